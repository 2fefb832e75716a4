/* history.c -- the conversations of Anthropic's API, messages of content blocks, brought into the form of chat
 * completions.  See conversation.h.
 *
 * What the model thought in earlier turns goes with its message, as "reasoning_content" and "reasoning": whether it is
 * shown to the model again is the chat template's decision. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "server/talk/conversation_inner.h"

static bool add(json_t *list, json_t *v, rg_refusal *e)
{
    return v && json_array_append_new(list, v) == 0 ? true : e->status ? false : rg_refuse_memory(e);
}

static bool read_result(json_t *list, const json_t *block, const char *param, rg_conversation *talk, rg_refusal *e)
{
    const json_t *id = json_object_get(block, "tool_use_id"), *content = json_object_get(block, "content");
    json_t *text = content && !json_is_null(content) ? rg_content_show(content, param, talk, e) : json_string("");

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
static bool add_blocks(json_t *list, const json_t *role, const blocks *b, const char *param, rg_conversation *talk,
                       rg_refusal *e)
{
    if (!json_array_size(b->texts) && !json_array_size(b->calls) && !json_array_size(b->thoughts))
        return true;
    json_t *text = rg_content_show(b->texts, param, talk, e);
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
static bool read_blocks(json_t *list, const json_t *m, size_t i, rg_conversation *talk, rg_refusal *e)
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
            ok = read_result(list, block, p, talk, e);
        else if (type && !strcmp(type, "tool_use"))
            ok = !json_is_string(json_object_get(block, "name"))
                     ? rg_refuse_field(e, p, "'%s' has a tool_use without a name.", p)
                     : add(b.calls,
                           rg_history_call(json_object_get(block, "id"), json_object_get(block, "name"),
                                           json_object_get(block, "input")),
                           e);
        else if (type && !strcmp(type, "thinking"))
            ok = json_array_append(b.thoughts, block) == 0 || rg_refuse_memory(e);
        else if (!type || strcmp(type, "redacted_thinking") != 0)
            ok = json_array_append(b.texts, block) == 0 || rg_refuse_memory(e);
    }
    ok = ok && add_blocks(list, role, &b, p, talk, e);
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

json_t *rg_blocks_read(const json_t *messages, const json_t *system, rg_conversation *talk, rg_refusal *e)
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
            ok = rg_refuse_field(e, rg_param_at(p, "messages", i, "role"), "'%s' must be one of user|assistant|system.",
                                 p);
        else if (json_is_string(content))
            ok = add(list, json_pack("{s:O, s:O}", "role", json_object_get(m, "role"), "content", content), e);
        else if (json_is_array(content))
            ok = read_blocks(list, m, i, talk, e);
        else
            ok = rg_refuse_field(e, rg_param_at(p, "messages", i, "content"),
                                 "'%s' must be a string or a list of blocks.", p);
    }
    if (ok)
        return list;
    json_decref(list);
    return NULL;
}
