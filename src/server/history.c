/* history.c -- the conversations of the Responses API (items) and of Anthropic's (messages of content blocks), brought
 * into the form of chat completions.  See conversation.h.
 *
 * What the model thought in earlier turns goes with its message, as "reasoning_content" and "reasoning": whether it is
 * shown to the model again is the chat template's decision. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "server/conversation_inner.h"

/* ---- responses --------------------------------------------------------------------------------------------------- */

static bool add(json_t *list, json_t *v, rg_refusal *e)
{
    return v && json_array_append_new(list, v) == 0 ? true : e->status ? false : rg_refuse_memory(e);
}

static bool is_assistant(const json_t *m)
{
    const char *role = json_string_value(json_object_get(m, "role"));

    return role && !strcmp(role, "assistant");
}

/* A message of the assistant that so far holds nothing but its reasoning. */
static bool is_thought_alone(const json_t *m)
{
    return is_assistant(m) && json_object_get(m, "reasoning_content") && !json_object_get(m, "tool_calls") &&
           !json_string_length(json_object_get(m, "content"));
}

/* A reasoning item: its content or, if it has none, its summary.  It opens the message that the items after it fill; an
 * item that can only be read by who made it (encrypted_content) says nothing here. */
static bool add_reasoning(json_t *list, const json_t *item, size_t i, rg_refusal *e)
{
    const json_t *content = json_object_get(item, "content"), *summary = json_object_get(item, "summary");
    bool whole = json_array_size(content) > 0;
    char p[64];

    if (!whole && !json_array_size(summary))
        return true;
    json_t *text = rg_content_read(whole ? content : summary,
                                   rg_param_at(p, "input", i, whole ? "content" : "summary"), e);
    json_t *m = text ? json_pack("{s:s, s:s}", "role", "assistant", "content", "") : NULL;
    if (m && !rg_message_set_reasoning(m, text)) {
        json_decref(m);
        m = NULL;
    }
    json_decref(text);
    return add(list, m, e);
}

/* A message; the assistant's becomes one with the reasoning right before it. */
static bool add_message(json_t *list, json_t *m, rg_refusal *e)
{
    json_t *last = json_array_get(list, json_array_size(list) - 1);

    if (!m || !is_assistant(m) || !is_thought_alone(last))
        return add(list, m, e);
    bool ok = json_object_set(last, "content", json_object_get(m, "content")) == 0 || rg_refuse_memory(e);
    json_decref(m);
    return ok;
}

/* Calls of one turn stand in one message. */
static bool add_call(json_t *list, json_t *call, rg_refusal *e)
{
    json_t *last = json_array_get(list, json_array_size(list) - 1), *calls = json_object_get(last, "tool_calls");

    if (is_assistant(last) && !calls)
        json_object_set_new(last, "tool_calls", calls = json_array());
    if (calls)
        return add(calls, call, e);
    return add(list, json_pack("{s:s, s:s, s:[o]}", "role", "assistant", "content", "", "tool_calls", call), e);
}

static bool read_item(json_t *list, const json_t *item, size_t i, rg_refusal *e)
{
    const char *type = json_string_value(json_object_get(item, "type"));
    char p[64];

    if (!json_is_object(item))
        return rg_refuse_field(e, rg_param_at(p, "input", i, NULL), "'%s' must be an object.", p);
    if (!type || !strcmp(type, "message")) {
        json_t *m = rg_message_read(item, i, e);
        if (!m && !strncmp(e->param, "messages", 8)) { /* as this API calls it */
            char rest[64];
            snprintf(rest, sizeof rest, "%.50s", e->param + 8);
            snprintf(e->param, sizeof e->param, "input%s", rest);
        }
        return add_message(list, m, e);
    }
    if (!strcmp(type, "reasoning"))
        return add_reasoning(list, item, i, e);
    const json_t *id = json_object_get(item, "call_id"), *name = json_object_get(item, "name");
    if (!strcmp(type, "function_call") && json_is_string(name) && rg_history_takes(json_object_get(item, "arguments")))
        return add_call(list, rg_history_call(id, name, json_object_get(item, "arguments")), e);
    if (!strcmp(type, "function_call_output") && json_is_string(id)) {
        json_t *text = rg_content_read(json_object_get(item, "output"), rg_param_at(p, "input", i, "output"), e);
        return text && add(list, json_pack("{s:s, s:O, s:o}", "role", "tool", "tool_call_id", id, "content", text), e);
    }
    return rg_refuse_field(e, rg_param_at(p, "input", i, "type"),
                           "'%s' is not one that is known, or lacks a field.", p);
}

json_t *rg_input_read(const json_t *input, const json_t *instructions, rg_refusal *e)
{
    json_t *list = json_array();
    bool ok = true;

    if (instructions && !json_is_null(instructions))
        ok = json_is_string(instructions)
                 ? add(list, json_pack("{s:s, s:O}", "role", "system", "content", instructions), e)
                 : rg_refuse_field(e, "instructions", "'instructions' must be a string.");
    if (ok && json_is_string(input))
        ok = add(list, json_pack("{s:s, s:O}", "role", "user", "content", input), e);
    else if (ok && (!json_is_array(input) || !json_array_size(input) || json_array_size(input) > RG_MAX_MESSAGES))
        ok = rg_refuse_field(e, "input", "'input' must be a string or a list of 1 to %d items.", RG_MAX_MESSAGES);
    else
        for (size_t i = 0; ok && i < json_array_size(input); i++)
            ok = read_item(list, json_array_get(input, i), i, e);
    if (ok)
        return list;
    json_decref(list);
    return NULL;
}

/* ---- Anthropic --------------------------------------------------------------------------------------------------- */

static bool read_result(json_t *list, const json_t *block, const char *param, rg_refusal *e)
{
    const json_t *id = json_object_get(block, "tool_use_id"), *content = json_object_get(block, "content");
    json_t *text = content ? rg_content_read(content, param, e) : json_string("");

    if (!text)
        return false;
    if (!json_is_string(id)) {
        json_decref(text);
        return rg_refuse_field(e, param, "'%s' has a tool_result without its tool_use_id.", param);
    }
    return add(list, json_pack("{s:s, s:O, s:o}", "role", "tool", "tool_call_id", id, "content", text), e);
}

/* The content blocks of one message, by what becomes of them. */
typedef struct blocks {
    json_t *texts, *calls, *thoughts;
} blocks;

/* The message that these blocks make; none, and true, if they make none. */
static bool add_blocks(json_t *list, const json_t *role, const blocks *b, const char *param, rg_refusal *e)
{
    if (!json_array_size(b->texts) && !json_array_size(b->calls) && !json_array_size(b->thoughts))
        return true;
    json_t *text = rg_content_read(b->texts, param, e);
    json_t *out = text ? json_pack("{s:O, s:O}", "role", role, "content", text) : NULL;
    json_t *thought = out && json_array_size(b->thoughts) ? rg_content_read(b->thoughts, param, e) : NULL;
    bool ok = out && (thought || !json_array_size(b->thoughts));

    if (ok && json_array_size(b->calls))
        ok = json_object_set(out, "tool_calls", b->calls) == 0;
    if (ok && thought)
        ok = rg_message_set_reasoning(out, thought);
    json_decref(text);
    json_decref(thought);
    if (ok)
        return add(list, out, e);
    json_decref(out);
    return e->status ? false : rg_refuse_memory(e);
}

/* The texts of a message in one message, its thinking blocks as its reasoning, its tool_use blocks as calls, its
 * tool_result blocks as messages before it.  Nobody but its maker can read a redacted_thinking block. */
static bool read_blocks(json_t *list, const json_t *m, size_t i, rg_refusal *e)
{
    const json_t *content = json_object_get(m, "content"), *role = json_object_get(m, "role");
    blocks b = { json_array(), json_array(), json_array() };
    char p[64];
    bool ok = true;

    rg_param_at(p, "messages", i, "content");
    for (size_t k = 0; ok && k < json_array_size(content); k++) {
        json_t *block = json_array_get(content, k);
        const char *type = json_string_value(json_object_get(block, "type"));
        if (type && !strcmp(type, "tool_result"))
            ok = read_result(list, block, p, e);
        else if (type && !strcmp(type, "tool_use"))
            ok = !json_is_string(json_object_get(block, "name"))
                     ? rg_refuse_field(e, p, "'%s' has a tool_use without a name.", p)
                     : add(b.calls, rg_history_call(json_object_get(block, "id"), json_object_get(block, "name"),
                                                    json_object_get(block, "input")), e);
        else if (type && !strcmp(type, "thinking"))
            ok = json_array_append(b.thoughts, block) == 0 || rg_refuse_memory(e);
        else if (!type || strcmp(type, "redacted_thinking") != 0)
            ok = json_array_append(b.texts, block) == 0 || rg_refuse_memory(e);
    }
    ok = ok && add_blocks(list, role, &b, p, e);
    json_decref(b.texts);
    json_decref(b.calls);
    json_decref(b.thoughts);
    return ok;
}

/* Text without the lines by which a client tells its own billing: they change with every request, so that no prompt's
 * prefix would ever be found again, and say nothing to a model.  NULL and *e: no memory. */
static json_t *without_billing(json_t *text, rg_refusal *e)
{
    static const char mark[] = "x-anthropic-billing-header:";
    const char *s = json_string_value(text);
    rg_buf b;
    json_t *out;

    if (!s || !strstr(s, mark))
        return text;
    rg_buf_init(&b, json_string_length(text) + 1);
    while (*s) {
        size_t n = strcspn(s, "\n");
        size_t whole = n + (s[n] == '\n');
        if (strncmp(s, mark, strlen(mark)) != 0)
            rg_buf_add(&b, s, whole);
        s += whole;
    }
    out = b.failed ? NULL : json_stringn(b.data ? b.data : "", b.n);
    rg_buf_fini(&b);
    json_decref(text);
    if (!out)
        rg_refuse_memory(e);
    return out;
}

json_t *rg_blocks_read(const json_t *messages, const json_t *system, rg_refusal *e)
{
    static const char *const roles[] = { "user", "assistant", "system", NULL };
    json_t *list = json_array(), *text = NULL;
    bool ok = true;
    char p[64];

    if (system && !json_is_null(system)) {
        text = rg_content_read(system, "system", e);
        text = text ? without_billing(text, e) : NULL;
        if (text && !json_string_length(text) && json_string_length(system) + json_array_size(system))
            json_decref(text); /* nothing is left of it */
        else
            ok = text && add(list, json_pack("{s:s, s:o}", "role", "system", "content", text), e);
    }
    if (ok && (!json_is_array(messages) || !json_array_size(messages) || json_array_size(messages) > RG_MAX_MESSAGES))
        ok = rg_refuse_field(e, "messages", "'messages' must be a list of 1 to %d messages.", RG_MAX_MESSAGES);
    for (size_t i = 0; ok && i < json_array_size(messages); i++) {
        const json_t *m = json_array_get(messages, i), *content = json_object_get(m, "content");
        if (!rg_is_among(json_string_value(json_object_get(m, "role")), roles))
            ok = rg_refuse_field(e, rg_param_at(p, "messages", i, "role"),
                                 "'%s' must be one of user|assistant|system.", p);
        else if (json_is_string(content))
            ok = add(list, json_pack("{s:O, s:O}", "role", json_object_get(m, "role"), "content", content), e);
        else if (json_is_array(content))
            ok = read_blocks(list, m, i, e);
        else
            ok = rg_refuse_field(e, rg_param_at(p, "messages", i, "content"),
                                 "'%s' must be a string or a list of blocks.", p);
    }
    if (ok)
        return list;
    json_decref(list);
    return NULL;
}
