/* tools.c -- the tools that a request offers and which of them must be called, in the words of three APIs, brought into
 * the form of chat completions.  See conversation.h.
 *
 * What is no function is offered as one where the client runs it (tool_kinds.h, and Anthropic's below).  What only its
 * maker's servers run is left out, and the answer's warning names it. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "server/talk/conversation_inner.h"
#include "server/talk/tool_kinds.h"

enum { MAX_TOOLS = 1024 };

static const char *text_of(const json_t *v, const char *key)
{
    return json_string_value(json_object_get(v, key));
}

static bool check_tool(const json_t *name, const json_t *description, const json_t *parameters, size_t i, rg_refusal *e)
{
    char p[64];
    size_t n = json_string_length(name);

    if (!json_is_string(name) || !n || n > 128)
        return rg_refuse_field(e, rg_param_at(p, "tools", i, "name"), "'%s' must be a string of 1 to 128 bytes.", p);
    if (description && !json_is_null(description) && !json_is_string(description))
        return rg_refuse_field(e, rg_param_at(p, "tools", i, "description"), "'%s' must be a string.", p);
    if (parameters && !json_is_null(parameters) && !json_is_object(parameters))
        return rg_refuse_field(e, rg_param_at(p, "tools", i, "parameters"), "'%s' must be a JSON schema.", p);
    return true;
}

static const char *name_of(const json_t *tool)
{
    return text_of(json_object_get(tool, "function"), "name");
}

static const json_t *find_tool(const json_t *tools, const char *name)
{
    for (size_t i = 0; name && i < json_array_size(tools); i++)
        if (!strcmp(name_of(json_array_get(tools, i)), name))
            return json_array_get(tools, i);
    return NULL;
}

static bool add_tool(rg_conversation *talk, json_t *name, const json_t *description, const json_t *parameters,
                     rg_refusal *e)
{
    json_t *t = json_pack("{s:s, s:{s:O, s:O*, s:O*}}", "type", "function", "function", "name", name, "description",
                          json_is_null(description) ? NULL : description, "parameters",
                          json_is_null(parameters) ? NULL : parameters);

    if (!talk->tools)
        talk->tools = json_array();
    return (t && json_array_append_new(talk->tools, t) == 0) || rg_refuse_memory(e);
}

/* A word that a client sent, safe to be shown in a header. */
static const char *shown(const char *s, char out[64])
{
    size_t n = 0;

    for (; s && s[n] && n < 63; n++)
        out[n] = strchr(" -./:_", s[n]) || (s[n] >= '0' && s[n] <= '9') || ((s[n] | 32) >= 'a' && (s[n] | 32) <= 'z')
                     ? s[n]
                     : '?';
    out[n] = 0;
    return out;
}

static bool leave_out(rg_conversation *talk, const char *type)
{
    char word[64];

    rg_conversation_warn(talk, "the tool %s was left out: this server does not run it", shown(type, word));
    return true;
}

/* ---- which must be called ---------------------------------------------------------------------------------------- */

/* The name that an object says, in the way of any API. */
static const char *named(const json_t *v, char flat[RG_FLAT_NAME])
{
    static const char *const wrapped[] = { "function", "custom" };
    const json_t *in = v;
    const char *type = text_of(v, "type");
    const rg_tool_kind *k = type ? rg_tool_kind_of(type) : NULL;

    for (size_t i = 0; i < RG_LEN(wrapped); i++)
        if (json_is_object(json_object_get(v, wrapped[i])))
            in = json_object_get(v, wrapped[i]);
    if (!text_of(in, "name"))
        return k ? k->name : NULL;
    rg_tool_flat_name(flat, text_of(in, "namespace"), text_of(in, "name"));
    return flat;
}

/* Add the tool that v names to a list; false and *e: it is not offered. */
static bool add_named(json_t *to, const json_t *tools, const json_t *v, rg_refusal *e)
{
    char flat[RG_FLAT_NAME];
    const char *name = named(v, flat);
    const json_t *found = find_tool(tools, name);
    char word[64];

    if (!name)
        return rg_refuse_field(e, "tool_choice", "'tool_choice' of type %s must name a tool.",
                               shown(text_of(v, "type") ? text_of(v, "type") : "", word));
    if (!found)
        return rg_refuse_field(e, "tool_choice", "'tool_choice' names a tool that is not in 'tools'.");
    return json_array_append(to, (json_t *)(uintptr_t)found) == 0 || rg_refuse_memory(e);
}

/* A tool that this server does not run was left out of the tools, and so of what may be called. */
static bool is_left_out(const json_t *v)
{
    static const char *const ours[] = { "function", "tool", "custom", "allowed_tools", NULL };
    const char *type = text_of(v, "type");

    return type && !rg_is_among(type, ours) && !rg_tool_kind_of(type);
}

/* {type: allowed_tools, mode, tools}: nothing else is offered. */
static bool choose_allowed(rg_conversation *talk, const json_t *choice, rg_refusal *e)
{
    const json_t *inner = json_object_get(choice, "allowed_tools"), *v = inner ? inner : choice;
    const json_t *list = json_object_get(v, "tools");
    const char *mode = text_of(v, "mode");
    bool required = mode && !strcmp(mode, "required"), ok = required || (mode && !strcmp(mode, "auto"));
    json_t *allowed;

    if (!ok || !json_array_size(list) || json_array_size(list) > MAX_TOOLS)
        return rg_refuse_field(e, "tool_choice",
                               "'tool_choice' of allowed_tools must have 'tools' and a 'mode' of "
                               "auto or required.");
    allowed = json_array();
    for (size_t i = 0; ok && i < json_array_size(list); i++)
        ok = is_left_out(json_array_get(list, i)) || add_named(allowed, talk->tools, json_array_get(list, i), e);
    if (!ok) {
        json_decref(allowed);
        return false;
    }
    json_decref(talk->tools);
    talk->tools = json_array_size(allowed) ? allowed : NULL;
    talk->must = required && talk->tools ? json_incref(allowed) : NULL;
    if (!talk->tools)
        json_decref(allowed);
    return true;
}

/* What tool_choice makes of the tools. */
static bool choose(rg_conversation *talk, const json_t *choice, rg_refusal *e)
{
    static const char *const all[] = { "required", "any", NULL };
    static const char *const one[] = { "function", "tool", "custom", NULL };
    const char *s = json_is_object(choice) ? text_of(choice, "type") : json_string_value(choice);
    char word[64];

    if (!choice || json_is_null(choice) || (s && !strcmp(s, "auto")))
        return true;
    if (s && !strcmp(s, "none")) {
        json_decref(talk->tools);
        talk->tools = NULL;
        talk->no_tools = true;
        return true;
    }
    bool object = json_is_object(choice);
    if (!s || (!rg_is_among(s, all) && !object))
        return rg_refuse_field(e, "tool_choice", "'tool_choice' must be one of none|auto|required, or name a tool.");
    if (!talk->tools && rg_is_among(s, all)) /* nothing can be called: agents send it with an empty list */
        return true;
    if (object && is_left_out(choice) && !rg_is_among(s, all)) {
        rg_conversation_warn(talk, "tool_choice counts as auto: %s is not run by this server", shown(s, word));
        return true;
    }
    if (!talk->tools)
        return rg_refuse_field(e, "tool_choice", "'tool_choice' asks for a call, and there are no 'tools'.");
    if (rg_is_among(s, all)) {
        talk->must = json_incref(talk->tools);
        return true;
    }
    if (!rg_is_among(s, one) && !strcmp(s, "allowed_tools"))
        return choose_allowed(talk, choice, e);
    talk->must = json_array();
    talk->one_call = true;
    return add_named(talk->must, talk->tools, choice, e);
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */

/* Offer the i-th tool, or leave it out. */
typedef bool read_tool(rg_conversation *talk, const json_t *tool, size_t i, rg_refusal *e);

static bool read_tools(rg_conversation *talk, const json_t *tools, read_tool *read, rg_refusal *e)
{
    bool ok = true;

    if (!tools || json_is_null(tools))
        return true;
    if (!json_is_array(tools) || json_array_size(tools) > MAX_TOOLS)
        return rg_refuse_field(e, "tools", "'tools' must be a list of at most %d tools.", MAX_TOOLS);
    for (size_t i = 0; ok && i < json_array_size(tools); i++)
        ok = read(talk, json_array_get(tools, i), i, e);
    if (ok && json_array_size(talk->tools) > MAX_TOOLS)
        return rg_refuse_field(e, "tools", "'tools' must be a list of at most %d tools.", MAX_TOOLS);
    return ok;
}

static bool read_both(const json_t *body, read_tool *read, rg_conversation *talk, rg_refusal *e)
{
    return read_tools(talk, json_object_get(body, "tools"), read, e) &&
           choose(talk, json_object_get(body, "tool_choice"), e);
}

/* ---- what is no function ----------------------------------------------------------------------------------------- */

/* Remember what the tool that is offered by this name is to the client. */
static bool note_kind(rg_conversation *talk, const char *offered, const rg_tool_kind *k, const char *namespace,
                      const char *name, const json_t *format, rg_refusal *e)
{
    json_t *v = json_pack("{s:I, s:s, s:s*, s:O*}", "kind", (json_int_t)(k - rg_tool_kinds), "name", name, "namespace",
                          namespace, "format", (json_t *)(uintptr_t)format);

    if (!talk->kinds)
        talk->kinds = json_object();
    return (v && json_object_set_new(talk->kinds, offered, v) == 0) || rg_refuse_memory(e);
}

/* The grammar of a custom tool's input; NULL: it has none. */
static const json_t *grammar_of(const json_t *tool)
{
    const json_t *format = json_object_get(tool, "format"), *wrapped = json_object_get(format, "grammar");
    const json_t *grammar = wrapped ? wrapped : format;

    return text_of(grammar, "syntax") && text_of(grammar, "definition") ? grammar : NULL;
}

/* What a custom tool says of itself, and the grammar of its input, which the model has to know. */
static json_t *describe_custom(const json_t *tool)
{
    const char *about = text_of(tool, "description");
    const json_t *grammar = grammar_of(tool);
    const char *syntax = text_of(grammar, "syntax"), *definition = text_of(grammar, "definition");

    if (!grammar)
        return json_string(about ? about : "");
    return json_sprintf("%s%sThe input must match this %s:\n%s", about ? about : "", about ? "\n\n" : "",
                        !strcmp(syntax, "regex") ? "regular expression" : "grammar (Lark)", definition);
}

/* The parameters of a tool without any of its own. */
static json_t *load(const char *json)
{
    return json ? rg_json_load(json, strlen(json), 0, NULL) : NULL;
}

/* A tool of a known kind; tool: its own members, in the namespace if there is one. */
static bool offer(rg_conversation *talk, const rg_tool_kind *k, const json_t *tool, const char *namespace, size_t i,
                  rg_refusal *e)
{
    const json_t *said = json_object_get(tool, "description"), *given = json_object_get(tool, "parameters");
    bool custom = k->says == RG_SAYS_INPUT;
    json_t *name = k->name ? json_string(k->name) : json_incref(json_object_get(tool, "name"));
    json_t *about = custom                        ? describe_custom(tool)
                    : !said || json_is_null(said) ? (k->about ? json_string(k->about) : NULL)
                                                  : json_incref((json_t *)(uintptr_t)said);
    json_t *schema =
        given && !custom && !json_is_null(given) ? json_incref((json_t *)(uintptr_t)given) : load(k->schema);
    bool ok = check_tool(name, about, schema, i, e);
    char flat[RG_FLAT_NAME];

    if (ok) {
        rg_tool_flat_name(flat, namespace, json_string_value(name));
        if (k->name && find_tool(talk->tools, flat)) /* the client has a function of this name */
            snprintf(flat, sizeof flat, "%s_tool", k->name);
        json_t *offered = json_string(flat);
        ok = add_tool(talk, offered, about, schema, e);
        json_decref(offered);
    }
    if (ok && (k != rg_tool_kinds || namespace))
        ok = note_kind(talk, flat, k, namespace, json_string_value(name), custom ? grammar_of(tool) : NULL, e);
    json_decref(name);
    json_decref(about);
    json_decref(schema);
    return ok;
}

/* The functions and custom tools of a namespace, as MCP servers have them. */
static bool read_namespace(rg_conversation *talk, const json_t *tool, size_t i, rg_refusal *e)
{
    const json_t *list = json_object_get(tool, "tools"), *name = json_object_get(tool, "name");
    bool ok = check_tool(name, json_object_get(tool, "description"), NULL, i, e);

    for (size_t k = 0; ok && k < json_array_size(list); k++) {
        const json_t *inner = json_array_get(list, k);
        const char *type = text_of(inner, "type");
        const rg_tool_kind *kind = rg_tool_kind_of(type ? type : "function");
        ok = kind && !kind->name ? offer(talk, kind, inner, json_string_value(name), i, e) : leave_out(talk, type);
    }
    return ok;
}

/* The client runs it; a search of the server's would find what is offered anyway. */
static bool is_ours_to_run(const json_t *tool)
{
    const char *by = text_of(tool, "execution");

    return !strcmp(text_of(tool, "type"), "tool_search") && !(by && !strcmp(by, "client"));
}

static bool read_flat_tool(rg_conversation *talk, const json_t *tool, size_t i, rg_refusal *e)
{
    const char *type = text_of(tool, "type");
    const rg_tool_kind *k = type ? rg_tool_kind_of(type) : NULL;
    char p[64];

    if (!type)
        return rg_refuse_field(e, rg_param_at(p, "tools", i, "type"), "'%s' must be the type of a tool.", p);
    if (!strcmp(type, "namespace"))
        return read_namespace(talk, tool, i, e);
    if (!k || is_ours_to_run(tool))
        return leave_out(talk, type);
    return offer(talk, k, tool, NULL, i, e);
}

bool rg_flat_tools_add(const json_t *tools, rg_conversation *talk, rg_refusal *e)
{
    for (size_t i = 0; !talk->no_tools && i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        const char *name = text_of(tool, "name");

        if (!find_tool(talk->tools, name) && text_of(tool, "type") && !read_flat_tool(talk, tool, i, e))
            return false;
    }
    return true;
}

bool rg_flat_tools_read(const json_t *body, rg_conversation *talk, rg_refusal *e)
{
    talk->one_call = json_is_false(json_object_get(body, "parallel_tool_calls"));
    return read_both(body, read_flat_tool, talk, e);
}

/* ---- chat completions -------------------------------------------------------------------------------------------- */

static bool read_chat_tool(rg_conversation *talk, const json_t *tool, size_t i, rg_refusal *e)
{
    const json_t *f = json_object_get(tool, "function");
    const char *type = text_of(tool, "type");
    json_t *name = json_object_get(f, "name");
    char p[64];

    if (type && !strcmp(type, "custom"))
        return offer(talk, rg_tool_kind_of(type), json_object_get(tool, type), NULL, i, e);
    if (!type || strcmp(type, "function") != 0)
        return rg_refuse_field(e, rg_param_at(p, "tools", i, "type"), "'%s' must be function or custom.", p);
    return check_tool(name, json_object_get(f, "description"), json_object_get(f, "parameters"), i, e) &&
           add_tool(talk, name, json_object_get(f, "description"), json_object_get(f, "parameters"), e);
}

bool rg_tools_read(const json_t *body, rg_conversation *talk, rg_refusal *e)
{
    talk->one_call = json_is_false(json_object_get(body, "parallel_tool_calls"));
    return read_both(body, read_chat_tool, talk, e);
}

/* ---- Anthropic --------------------------------------------------------------------------------------------------- */

/* Tools that the client runs, whose schema Anthropic's models know; types begin so, and a date follows.  Properties are
 * texts, unless a type follows the name. */
static const struct client_tool {
    const char *type, *about;
    const char *properties; /* between blanks */
    const char *commands;   /* what "command" may be; NULL: any text */
    const char *required;
} client_tools[] = {
    { "bash_", "Runs a command in a shell that stays open between calls.", "command restart:boolean", NULL, "" },
    { "text_editor_", "Views, creates and edits text files.",
      "command path file_text old_str new_str insert_line:integer insert_text view_range:array",
      "view create str_replace insert", "command path" },
    { "memory_", "Keeps notes in files below /memories.",
      "command path file_text old_str new_str insert_line:integer insert_text old_path new_path view_range:array",
      "view create str_replace insert delete rename", "command" },
};

/* The words of a text as a list. */
static json_t *words(const char *s)
{
    json_t *list = json_array();

    while (*s) {
        size_t n = strcspn(s, " ");
        json_array_append_new(list, json_stringn(s, n));
        s += n + (s[n] == ' ');
    }
    return list;
}

static json_t *client_schema(const struct client_tool *c)
{
    json_t *properties = json_object(), *list = words(c->properties), *v;
    size_t i;

    json_array_foreach(list, i, v)
    {
        const char *s = json_string_value(v), *type = strchr(s, ':');
        json_t *name = json_stringn(s, type ? (size_t)(type - s) : strlen(s));
        json_object_set_new(properties, json_string_value(name),
                            json_pack("{s:s}", "type", type ? type + 1 : "string"));
        json_decref(name);
    }
    if (c->commands)
        json_object_set_new(json_object_get(properties, "command"), "enum", words(c->commands));
    if (json_object_get(properties, "view_range"))
        json_object_set_new(json_object_get(properties, "view_range"), "items", json_pack("{s:s}", "type", "integer"));
    json_decref(list);
    return json_pack("{s:s, s:o, s:o}", "type", "object", "properties", properties, "required", words(c->required));
}

static bool read_client_tool(rg_conversation *talk, const json_t *tool, const char *type, size_t i, rg_refusal *e)
{
    json_t *name = json_object_get(tool, "name");

    for (size_t k = 0; k < RG_LEN(client_tools); k++) {
        const struct client_tool *c = &client_tools[k];
        if (strncmp(type, c->type, strlen(c->type)) != 0)
            continue;
        json_t *about = json_string(c->about), *schema = client_schema(c);
        bool ok = schema && check_tool(name, about, schema, i, e) && add_tool(talk, name, about, schema, e);
        json_decref(about);
        json_decref(schema);
        return ok;
    }
    return leave_out(talk, type);
}

static bool read_anthropic_tool(rg_conversation *talk, const json_t *tool, size_t i, rg_refusal *e)
{
    const json_t *schema = json_object_get(tool, "input_schema");
    const char *type = text_of(tool, "type");
    json_t *name = json_object_get(tool, "name");

    if (type && strcmp(type, "custom") != 0)
        return read_client_tool(talk, tool, type, i, e);
    return check_tool(name, json_object_get(tool, "description"), schema, i, e) &&
           add_tool(talk, name, json_object_get(tool, "description"), schema, e);
}

bool rg_anthropic_tools_read(const json_t *body, rg_conversation *talk, rg_refusal *e)
{
    const json_t *choice = json_object_get(body, "tool_choice");

    talk->one_call = json_is_true(json_object_get(choice, "disable_parallel_tool_use"));
    return read_both(body, read_anthropic_tool, talk, e);
}
