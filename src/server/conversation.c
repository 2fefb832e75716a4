/* conversation.c -- see conversation.h. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "server/conversation_inner.h"

enum { MAX_TOOLS = 1024, MAX_TEXT = 1 << 27 };

const char *rg_param_at(char out[64], const char *list, size_t i, const char *field)
{
    snprintf(out, 64, field ? "%s[%zu].%s" : "%s[%zu]", list, i, field);
    return out;
}

bool rg_is_among(const char *s, const char *const *words)
{
    for (; s && *words; words++)
        if (!strcmp(s, *words))
            return true;
    return false;
}

/* ---- content ----------------------------------------------------------------------------------------------------- */

static const char *const text_types[] = { "text", "input_text", "output_text", "refusal", "thinking", "summary_text",
                                          "reasoning_text", NULL };

json_t *rg_content_read(const json_t *v, const char *param, rg_refusal *e)
{
    rg_buf all;
    json_t *out;

    if (json_is_string(v))
        return json_incref((json_t *)(uintptr_t)v);
    if (!json_is_array(v))
        return rg_refuse_field(e, param, "'%s' must be a string or a list of parts.", param), NULL;
    rg_buf_init(&all, MAX_TEXT);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *part = json_array_get(v, i);
        const char *type = json_string_value(json_object_get(part, "type"));
        const json_t *text = json_object_get(part, type && !strcmp(type, "thinking") ? "thinking" : "text");
        if (!text && type && !strcmp(type, "refusal"))
            text = json_object_get(part, "refusal");
        if (!rg_is_among(type, text_types) || !json_is_string(text)) {
            rg_buf_fini(&all);
            if (type && !rg_is_among(type, text_types))
                return rg_refuse(e, 400, "unsupported_value", param, "'%s' has a part that is not text.", param), NULL;
            return rg_refuse_field(e, param, "'%s' must have parts with a 'type' and a 'text'.", param), NULL;
        }
        rg_buf_add(&all, "\n", all.n > 0);
        rg_buf_add(&all, json_string_value(text), json_string_length(text));
    }
    out = all.failed ? NULL : json_stringn(all.data ? all.data : "", all.n);
    rg_buf_fini(&all);
    if (!out)
        rg_refuse_memory(e);
    return out;
}

/* ---- calls of tools in messages ---------------------------------------------------------------------------------- */

/* Whether the template wants arguments as a text or as an object is found where it is rendered; none are an empty
 * object. */
json_t *rg_history_call(const json_t *id, const json_t *name, const json_t *arguments)
{
    json_t *none = json_is_null(arguments) || !arguments ? json_object() : NULL;

    return json_pack("{s:O?, s:s, s:{s:O, s:o}}", "id", id, "type", "function", "function", "name", name, "arguments",
                     none ? none : json_incref((json_t *)(uintptr_t)arguments));
}

bool rg_history_takes(const json_t *arguments)
{
    return !arguments || json_is_null(arguments) || json_is_string(arguments) || json_is_object(arguments);
}

static bool read_calls(json_t *to, const json_t *calls, const char *param, rg_refusal *e)
{
    json_t *list;

    if (!calls || json_is_null(calls))
        return true;
    if (!json_is_array(calls) || json_array_size(calls) > MAX_TOOLS)
        return rg_refuse_field(e, param, "'%s' must be a list.", param);
    list = json_array();
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *call = json_array_get(calls, i), *f = json_object_get(call, "function");
        const json_t *name = json_object_get(f, "name"), *arguments = json_object_get(f, "arguments");
        if (!json_is_string(name) || !rg_history_takes(arguments)) {
            json_decref(list);
            return rg_refuse_field(e, param, "'%s' must have functions with a 'name', and 'arguments' as a string or "
                                             "an object.", param);
        }
        json_array_append_new(list, rg_history_call(json_object_get(call, "id"), name, arguments));
    }
    if (json_array_size(list))
        json_object_set(to, "tool_calls", list);
    json_decref(list);
    return true;
}

/* ---- chat completions -------------------------------------------------------------------------------------------- */

static bool copy_text(json_t *to, const json_t *from, const char *key, const char *param, rg_refusal *e)
{
    json_t *v = json_object_get(from, key);

    if (!v || json_is_null(v))
        return true;
    if (!json_is_string(v))
        return rg_refuse_field(e, param, "'%s' must be a string.", param);
    json_object_set(to, key, v);
    return true;
}

bool rg_message_set_reasoning(json_t *m, json_t *text)
{
    json_incref(text); /* it may be the message's own */
    bool ok = json_object_set(m, "reasoning_content", text) == 0 && json_object_set(m, "reasoning", text) == 0;
    json_decref(text);
    return ok;
}

json_t *rg_message_read(const json_t *m, size_t i, rg_refusal *e)
{
    static const char *const roles[] = { "system", "developer", "user", "assistant", "tool", "function", NULL };
    static const char *const texts[] = { "name", "tool_call_id", "reasoning_content", "reasoning" };
    const char *role = json_string_value(json_object_get(m, "role"));
    const json_t *content = json_object_get(m, "content");
    char p[64];

    if (!json_is_object(m))
        return rg_refuse_field(e, rg_param_at(p, "messages", i, NULL), "'%s' must be an object.", p), NULL;
    if (!rg_is_among(role, roles))
        return rg_refuse_field(e, rg_param_at(p, "messages", i, "role"),
                               "'%s' must be one of system|developer|user|assistant|tool|function.", p), NULL;
    bool assistant = !strcmp(role, "assistant");
    json_t *out = json_pack("{s:s}", "role", strcmp(role, "developer") != 0 ? role : "system");
    bool silent = assistant && (!content || json_is_null(content));
    json_t *text = silent ? json_string("") : rg_content_read(content, rg_param_at(p, "messages", i, "content"), e);
    bool ok = out && text && json_object_set(out, "content", text) == 0;
    json_decref(text);
    for (size_t k = 0; ok && k < RG_LEN(texts); k++)
        ok = copy_text(out, m, texts[k], rg_param_at(p, "messages", i, texts[k]), e);
    json_t *thought = json_object_get(out, "reasoning_content") ? json_object_get(out, "reasoning_content")
                                                                : json_object_get(out, "reasoning");
    ok = ok && (!thought || rg_message_set_reasoning(out, thought));
    ok = ok && (!assistant || read_calls(out, json_object_get(m, "tool_calls"),
                                         rg_param_at(p, "messages", i, "tool_calls"), e));
    if (ok)
        return out;
    json_decref(out);
    if (!e->status)
        rg_refuse_memory(e);
    return NULL;
}

json_t *rg_messages_read(const json_t *messages, rg_refusal *e)
{
    json_t *out;

    if (!json_is_array(messages) || !json_array_size(messages) || json_array_size(messages) > RG_MAX_MESSAGES)
        return rg_refuse_field(e, "messages", "'messages' must be a list of 1 to %d messages.", RG_MAX_MESSAGES), NULL;
    out = json_array();
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *m = rg_message_read(json_array_get(messages, i), i, e);
        if (!m || json_array_append_new(out, m) != 0) {
            json_decref(out);
            if (!e->status)
                rg_refuse_memory(e);
            return NULL;
        }
    }
    return out;
}

/* ---- tools ------------------------------------------------------------------------------------------------------- */

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

static json_t *make_tool(const json_t *name, const json_t *description, const json_t *parameters)
{
    return json_pack("{s:s, s:{s:O, s:O*, s:O*}}", "type", "function", "function", "name", name, "description",
                     json_is_null(description) ? NULL : description, "parameters",
                     json_is_null(parameters) ? NULL : parameters);
}

static const char *name_of(const json_t *tool)
{
    return json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
}

/* Add the tool of this name to a list; false and *e: it is not offered. */
static bool add_named(json_t *to, const json_t *tools, const json_t *name, rg_refusal *e)
{
    const char *wanted = json_string_value(name);

    if (!wanted)
        return rg_refuse_field(e, "tool_choice", "'tool_choice' must name a tool.");
    for (size_t i = 0; i < json_array_size(tools); i++)
        if (!strcmp(name_of(json_array_get(tools, i)), wanted))
            return json_array_append(to, json_array_get(tools, i)) == 0 || rg_refuse_memory(e);
    return rg_refuse_field(e, "tool_choice", "'tool_choice' names a tool that is not in 'tools'.");
}

/* The name that an object says, in the way of either API. */
static const json_t *named(const json_t *v)
{
    const json_t *inner = json_object_get(v, "function");

    return json_object_get(inner ? inner : v, "name");
}

/* {type: allowed_tools, mode, tools}: nothing else is offered. */
static bool choose_allowed(rg_conversation *talk, const json_t *choice, rg_refusal *e)
{
    const json_t *inner = json_object_get(choice, "allowed_tools"), *v = inner ? inner : choice;
    const json_t *list = json_object_get(v, "tools");
    const char *mode = json_string_value(json_object_get(v, "mode"));
    bool required = mode && !strcmp(mode, "required"), ok = required || (mode && !strcmp(mode, "auto"));
    json_t *allowed;

    if (!ok || !json_array_size(list) || json_array_size(list) > MAX_TOOLS)
        return rg_refuse_field(e, "tool_choice", "'tool_choice' of allowed_tools must have 'tools' and a 'mode' of "
                                                 "auto or required.");
    allowed = json_array();
    for (size_t i = 0; ok && i < json_array_size(list); i++)
        ok = add_named(allowed, talk->tools, named(json_array_get(list, i)), e);
    if (!ok) {
        json_decref(allowed);
        return false;
    }
    json_decref(talk->tools);
    talk->tools = allowed;
    talk->must = required ? json_incref(allowed) : NULL;
    return true;
}

/* What tool_choice makes of the tools. */
static bool choose(rg_conversation *talk, const json_t *choice, rg_refusal *e)
{
    static const char *const all[] = { "required", "any", NULL }, *const one[] = { "function", "tool", NULL };
    const char *s = json_is_object(choice) ? json_string_value(json_object_get(choice, "type"))
                                           : json_string_value(choice);

    if (!choice || json_is_null(choice) || (s && !strcmp(s, "auto")))
        return true;
    if (s && !strcmp(s, "none")) {
        json_decref(talk->tools);
        talk->tools = NULL;
        return true;
    }
    if (s && !strcmp(s, "custom"))
        return rg_refuse(e, 400, "unsupported_value", "tool_choice", "'tool_choice' of custom is not supported.");
    if (!rg_is_among(s, all) &&
        (!json_is_object(choice) || (!rg_is_among(s, one) && strcmp(s ? s : "", "allowed_tools"))))
        return rg_refuse_field(e, "tool_choice", "'tool_choice' must be one of none|auto|required, or name a tool.");
    if (!talk->tools && rg_is_among(s, all)) /* nothing can be called: agents send it with an empty list */
        return true;
    if (!talk->tools)
        return rg_refuse_field(e, "tool_choice", "'tool_choice' asks for a call, and there are no 'tools'.");
    if (rg_is_among(s, all)) {
        talk->must = json_incref(talk->tools);
        return true;
    }
    if (!rg_is_among(s, one))
        return choose_allowed(talk, choice, e);
    talk->must = json_array();
    talk->one_call = true;
    return add_named(talk->must, talk->tools, named(choice), e);
}

typedef json_t *read_tool(const json_t *tool, size_t i, rg_refusal *e);

static bool read_tools(rg_conversation *talk, const json_t *tools, read_tool *read, rg_refusal *e)
{
    if (!tools || json_is_null(tools))
        return true;
    if (!json_is_array(tools) || json_array_size(tools) > MAX_TOOLS)
        return rg_refuse_field(e, "tools", "'tools' must be a list of at most %d tools.", MAX_TOOLS);
    talk->tools = json_array_size(tools) ? json_array() : NULL;
    for (size_t i = 0; i < json_array_size(tools); i++) {
        json_t *t = read(json_array_get(tools, i), i, e);
        if (!t || json_array_append_new(talk->tools, t) != 0)
            return e->status ? false : rg_refuse_memory(e);
    }
    return true;
}

static bool is_function(const json_t *tool, size_t i, rg_refusal *e)
{
    const char *type = json_string_value(json_object_get(tool, "type"));
    char p[64];

    if (type && !strcmp(type, "function"))
        return true;
    return rg_refuse_field(e, rg_param_at(p, "tools", i, "type"), "'%s' must be function.", p);
}

static json_t *read_chat_tool(const json_t *tool, size_t i, rg_refusal *e)
{
    const json_t *f = json_object_get(tool, "function"), *name = json_object_get(f, "name");

    if (!is_function(tool, i, e) ||
        !check_tool(name, json_object_get(f, "description"), json_object_get(f, "parameters"), i, e))
        return NULL;
    return make_tool(name, json_object_get(f, "description"), json_object_get(f, "parameters"));
}

static json_t *read_flat_tool(const json_t *tool, size_t i, rg_refusal *e)
{
    const json_t *name = json_object_get(tool, "name");

    if (!is_function(tool, i, e) ||
        !check_tool(name, json_object_get(tool, "description"), json_object_get(tool, "parameters"), i, e))
        return NULL;
    return make_tool(name, json_object_get(tool, "description"), json_object_get(tool, "parameters"));
}

static json_t *read_anthropic_tool(const json_t *tool, size_t i, rg_refusal *e)
{
    const json_t *name = json_object_get(tool, "name"), *schema = json_object_get(tool, "input_schema");
    const char *type = json_string_value(json_object_get(tool, "type"));
    char p[64];

    if (type && strcmp(type, "custom") != 0)
        return rg_refuse_field(e, rg_param_at(p, "tools", i, "type"), "'%s' must be custom.", p), NULL;
    if (!check_tool(name, json_object_get(tool, "description"), schema, i, e))
        return NULL;
    return make_tool(name, json_object_get(tool, "description"), schema);
}

static bool read_both(const json_t *body, read_tool *read, rg_conversation *talk, rg_refusal *e)
{
    return read_tools(talk, json_object_get(body, "tools"), read, e) &&
           choose(talk, json_object_get(body, "tool_choice"), e);
}

bool rg_tools_read(const json_t *body, rg_conversation *talk, rg_refusal *e)
{
    talk->one_call = json_is_false(json_object_get(body, "parallel_tool_calls"));
    return read_both(body, read_chat_tool, talk, e);
}

bool rg_flat_tools_read(const json_t *body, rg_conversation *talk, rg_refusal *e)
{
    talk->one_call = json_is_false(json_object_get(body, "parallel_tool_calls"));
    return read_both(body, read_flat_tool, talk, e);
}

bool rg_anthropic_tools_read(const json_t *body, rg_conversation *talk, rg_refusal *e)
{
    const json_t *choice = json_object_get(body, "tool_choice");

    talk->one_call = json_is_true(json_object_get(choice, "disable_parallel_tool_use"));
    return read_both(body, read_anthropic_tool, talk, e);
}

bool rg_conversation_can_continue(const json_t *all)
{
    const json_t *messages = json_object_get(all, "messages");
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));

    return role && !strcmp(role, "assistant") && !json_array_size(json_object_get(last, "tool_calls"));
}

int rg_conversation_n_calls(const json_t *all)
{
    const json_t *messages = json_object_get(all, "messages");
    size_t n = 0;

    for (size_t i = 0; i < json_array_size(messages); i++)
        n += json_array_size(json_object_get(json_array_get(messages, i), "tool_calls"));
    return (int)n;
}

void rg_conversation_fini(rg_conversation *talk)
{
    json_decref(talk->all);
    json_decref(talk->tools);
    json_decref(talk->must);
    *talk = (rg_conversation){ 0 };
}

json_t *rg_conversation_new(json_t *messages, json_t *tools, const json_t *kwargs, rg_refusal *e)
{
    static const char *const ours[] = { "messages", "tools", "add_generation_prompt", NULL };
    json_t *c = json_object(), *v;
    const char *key;
    bool ok = c && json_object_set_new(c, "messages", messages) == 0;

    if (!c)
        json_decref(messages);
    ok = ok && (!tools || json_object_set(c, "tools", tools) == 0);
    if (ok && kwargs && !json_is_null(kwargs) && !json_is_object(kwargs))
        ok = rg_refuse_field(e, "chat_template_kwargs", "'chat_template_kwargs' must be an object.");
    if (ok)
        json_object_foreach((json_t *)(uintptr_t)kwargs, key, v) {
            if (rg_is_among(key, ours)) {
                ok = rg_refuse_field(e, "chat_template_kwargs", "'chat_template_kwargs' must not set '%s'.", key);
                break;
            }
            ok = ok && json_object_set(c, key, v) == 0;
        }
    if (ok)
        return c;
    json_decref(c);
    if (!e->status)
        rg_refuse_memory(e);
    return NULL;
}
