/* items.c -- the conversations of the Responses API, lists of items, brought into the form of chat completions.  See
 * conversation.h.
 *
 * A call of any kind of tool (tool_kinds.h) is a call of the function as which it was offered.  Items that say nothing
 * to a model here are left out, and the answer's warning names them.  What the model thought in earlier turns goes with
 * its message, as "reasoning_content" and "reasoning": whether it is shown to the model again is the chat template's
 * decision. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "server/talk/conversation_inner.h"
#include "server/talk/tool_kinds.h"

static const char *text_of(const json_t *v, const char *key)
{
    return json_string_value(json_object_get(v, key));
}

static bool add(json_t *list, json_t *v, rg_refusal *e)
{
    return v && json_array_append_new(list, v) == 0 ? true : e->status ? false : rg_refuse_memory(e);
}

static json_t *last_of(const json_t *list)
{
    return json_array_get(list, json_array_size(list) - 1);
}

static bool is_assistant(const json_t *m)
{
    const char *role = text_of(m, "role");

    return role && !strcmp(role, "assistant");
}

/* A message of the assistant that so far holds nothing but its reasoning. */
static bool is_thought_alone(const json_t *m)
{
    return is_assistant(m) && json_object_get(m, "reasoning_content") && !json_object_get(m, "tool_calls") &&
           !json_string_length(json_object_get(m, "content"));
}

/* ---- messages and reasoning -------------------------------------------------------------------------------------- */

/* An item at work: where its messages go, and its number among the items. */
typedef struct item_reader {
    json_t *list;
    size_t i;
    rg_conversation *talk;
    rg_refusal *e;
} item_reader;

/* A reasoning item: its content or, if it has none, its summary.  It opens the message that the items after it fill; an
 * item that can only be read by who made it (encrypted_content) says nothing here. */
static bool add_reasoning(item_reader *r, const json_t *item)
{
    const json_t *content = json_object_get(item, "content"), *summary = json_object_get(item, "summary");
    bool whole = json_array_size(content) > 0;
    char p[64];

    if (!whole && !json_array_size(summary))
        return true;
    json_t *text =
        rg_content_read(whole ? content : summary, rg_param_at(p, "input", r->i, whole ? "content" : "summary"), r->e);
    json_t *m = text ? json_pack("{s:s, s:s}", "role", "assistant", "content", "") : NULL;
    if (m && !rg_message_set_reasoning(m, text)) {
        json_decref(m);
        m = NULL;
    }
    json_decref(text);
    return add(r->list, m, r->e);
}

/* A message; the assistant's becomes one with the reasoning right before it. */
static bool add_message(item_reader *r, const json_t *item)
{
    json_t *last = last_of(r->list), *m = rg_message_read(item, r->i, r->talk, r->e);

    if (!m && !strncmp(r->e->param, "messages", 8)) { /* as this API calls it */
        char rest[64];
        snprintf(rest, sizeof rest, "%.50s", r->e->param + 8);
        snprintf(r->e->param, sizeof r->e->param, "input%s", rest);
    }
    if (!m || !is_assistant(m) || !is_thought_alone(last))
        return add(r->list, m, r->e);
    bool ok = json_object_set(last, "content", json_object_get(m, "content")) == 0 || rg_refuse_memory(r->e);
    json_decref(m);
    return ok;
}

/* ---- calls and their results ------------------------------------------------------------------------------------- */

static bool refuse_item(item_reader *r, const char *type, const char *lacks)
{
    char p[64];

    return rg_refuse_field(r->e, rg_param_at(p, "input", r->i, lacks),
                           "'%s' of an item of type %.40s is missing or "
                           "has another type.",
                           p, type);
}

/* Calls of one turn stand in one message. */
static bool put_call(item_reader *r, json_t *call)
{
    json_t *last = last_of(r->list), *calls = json_object_get(last, "tool_calls");

    if (is_assistant(last) && !calls)
        json_object_set_new(last, "tool_calls", calls = json_array());
    if (calls)
        return add(calls, call, r->e);
    return add(r->list, json_pack("{s:s, s:s, s:[o]}", "role", "assistant", "content", "", "tool_calls", call), r->e);
}

/* A call of the tool of this name. */
static bool add_named_call(item_reader *r, const json_t *id, const char *namespace, const char *name, json_t *arguments)
{
    char flat[RG_FLAT_NAME];
    json_t *text, *call;

    rg_tool_flat_name(flat, namespace, name);
    text = json_string(flat);
    call = text && arguments ? rg_history_call(id, text, arguments) : NULL;
    json_decref(text);
    json_decref(arguments);
    return put_call(r, call);
}

static const json_t *call_id(const json_t *item)
{
    const json_t *id = json_object_get(item, "call_id");

    return json_is_string(id) ? id : json_object_get(item, "id");
}

static bool add_call(item_reader *r, const rg_tool_kind *k, const json_t *item)
{
    const char *name = k->name ? k->name : text_of(item, "name");
    json_t *arguments;

    if (!name)
        return refuse_item(r, k->call, "name");
    arguments = rg_tool_kind_arguments(k, item);
    if (!arguments || !rg_history_takes(arguments)) {
        json_decref(arguments);
        return refuse_item(r, k->call, k->member);
    }
    return add_named_call(r, call_id(item), text_of(item, "namespace"), name, arguments);
}

/* What a tool gave back, as a text: its output, texts of parts, or JSON. */
static json_t *result_text(item_reader *r, const json_t *item)
{
    const json_t *output = json_object_get(item, "output"), *tools = json_object_get(item, "tools");
    const json_t *first = json_array_get(output, 0), *v = output ? output : tools;
    char p[64], *dump;
    json_t *text;

    if (!v || json_is_null(v))
        return json_string(text_of(item, "status") ? text_of(item, "status") : "");
    if (json_is_string(v) || (v == output && json_is_array(v) && (!first || text_of(first, "type"))))
        return rg_content_show(v, rg_param_at(p, "input", r->i, "output"), r->talk, r->e);
    dump = rg_body_dump(v);
    text = dump ? json_string(dump) : NULL;
    rg_free(dump);
    return text;
}

static bool put_result(item_reader *r, const json_t *id, json_t *text)
{
    return text ? add(r->list, json_pack("{s:s, s:O*, s:o}", "role", "tool", "tool_call_id", id, "content", text), r->e)
                : add(r->list, NULL, r->e);
}

static bool add_result(item_reader *r, const rg_tool_kind *k, const json_t *item)
{
    const json_t *id = call_id(item), *tools = json_object_get(item, "tools");

    if (!json_is_string(id))
        return refuse_item(r, k->output, "call_id");
    return put_result(r, id, result_text(r, item)) && rg_flat_tools_add(tools, r->talk, r->e);
}

/* A call that a server made, and what came of it. */
static bool add_server_call(item_reader *r, const json_t *item)
{
    const json_t *id = json_object_get(item, "id"), *error = json_object_get(item, "error");
    const char *name = text_of(item, "name");
    json_t *arguments = json_object_get(item, "arguments");

    if (!name || !json_is_string(arguments))
        return refuse_item(r, "mcp_call", name ? "arguments" : "name");
    if (!add_named_call(r, id, text_of(item, "server_label"), name, json_incref(arguments)))
        return false;
    return put_result(r, id, json_is_string(error) ? json_incref((json_t *)(uintptr_t)error) : result_text(r, item));
}

static bool add_more_tools(item_reader *r, const json_t *item)
{
    return rg_flat_tools_add(json_object_get(item, "tools"), r->talk, r->e);
}

/* ---- items ------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *type;
    bool (*add)(item_reader *r, const json_t *item);
} other_items[] = {
    { "message", add_message },
    { "reasoning", add_reasoning },
    { "mcp_call", add_server_call },
    { "additional_tools", add_more_tools },
};

/* The word may be any text of the client's. */
static bool skip(item_reader *r, const char *type)
{
    char word[41];
    size_t n = 0;

    for (; type[n] && n < sizeof word - 1; n++)
        word[n] = strchr("abcdefghijklmnopqrstuvwxyz_0123456789", type[n]) ? type[n] : '?';
    word[n] = 0;
    if (!strstr(r->talk->warning, word))
        rg_conversation_warn(r->talk, "items of type %s were left out", word);
    return true;
}

static bool read_item(item_reader *r, const json_t *item)
{
    const char *type = text_of(item, "type");
    const rg_tool_kind *call = type ? rg_tool_kind_of_call(type) : NULL;
    const rg_tool_kind *output = type ? rg_tool_kind_of_output(type) : NULL;
    char p[64];

    if (!json_is_object(item))
        return rg_refuse_field(r->e, rg_param_at(p, "input", r->i, NULL), "'%s' must be an object.", p);
    if (call)
        return add_call(r, call, item);
    if (output)
        return add_result(r, output, item);
    for (size_t k = 0; k < RG_LEN(other_items); k++)
        if (!strcmp(type ? type : "message", other_items[k].type))
            return other_items[k].add(r, item);
    return skip(r, type);
}

json_t *rg_input_read(const json_t *items, const json_t *instructions, rg_conversation *talk, rg_refusal *e)
{
    item_reader r = { .list = json_array(), .talk = talk, .e = e };
    bool ok = true;

    if (instructions && !json_is_null(instructions))
        ok = json_is_string(instructions)
                 ? add(r.list, json_pack("{s:s, s:O}", "role", "system", "content", instructions), e)
                 : rg_refuse_field(e, "instructions", "'instructions' must be a string.");
    if (ok && (!json_array_size(items) || json_array_size(items) > RG_MAX_MESSAGES))
        ok = rg_refuse_field(e, "input", "'input' must be a string or a list of 1 to %d items.", RG_MAX_MESSAGES);
    for (size_t i = 0; ok && i < json_array_size(items); i++) {
        r.i = i < talk->n_history ? 0 : i - talk->n_history; /* as the client counts them */
        ok = read_item(&r, json_array_get(items, i));
    }
    if (ok && !json_array_size(r.list))
        ok = rg_refuse_field(e, "input", "'input' has no item that says anything to this model.");
    if (ok)
        return r.list;
    json_decref(r.list);
    return NULL;
}
