/* past.c -- see past.h. */
#include "server/talk/past.h"

#include <stdio.h>

#include "server/json.h"
#include "server/talk/inner.h"

enum { MAX_TEXT = 1 << 27 };

static const char *text_of(const json_t *m, const char *key)
{
    const char *s = json_string_value(json_object_get(m, key));

    return s ? s : "";
}

static bool has_role(const json_t *m, const char *role)
{
    return !strcmp(text_of(m, "role"), role);
}

/* ---- ids --------------------------------------------------------------------------------------------------------- */

/* Results of a call get its new id. */
static bool rename_results(const json_t *messages, size_t from, const json_t *old, const char *id)
{
    for (size_t i = from; json_is_string(old) && i < json_array_size(messages); i++) {
        json_t *m = json_array_get(messages, i);
        const json_t *given = json_object_get(m, "tool_call_id");
        if (json_is_string(given) && json_equal(given, old))
            return json_object_set_new(m, "tool_call_id", json_string(id)) == 0;
    }
    return true;
}

/* Calls are numbered through the whole conversation. */
static bool number_calls(const char *prefix, const json_t *messages)
{
    int n = 0;

    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *calls = json_object_get(json_array_get(messages, i), "tool_calls");
        for (size_t k = 0; k < json_array_size(calls); k++) {
            json_t *call = json_array_get(calls, k);
            char id[RG_CALL_ID];
            snprintf(id, sizeof id, "%s%.*s:%d", prefix, RG_CALL_NAME,
                     text_of(json_object_get(call, "function"), "name"), n++);
            if (!rename_results(messages, i + 1, json_object_get(call, "id"), id) ||
                json_object_set_new(call, "id", json_string(id)) != 0)
                return false;
        }
    }
    return true;
}

/* ---- reasoning --------------------------------------------------------------------------------------------------- */

/* Templates of messages with heads call it "thinking", and take it beside calls or a text, not beside both. */
static bool name_thoughts(const json_t *messages)
{
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *m = json_array_get(messages, i), *thought = json_object_get(m, "reasoning_content");
        bool both = json_array_size(json_object_get(m, "tool_calls")) && *text_of(m, "content");
        if (thought && !both && json_object_set(m, "thinking", thought) != 0)
            return false;
    }
    return true;
}

/* ---- calls and tools as texts ------------------------------------------------------------------------------------ */

/* Can a call in this form be written from its name and JSON? */
static bool is_plain(const rg_talk_form *f)
{
    return f->way <= RG_CALL_JSON;
}

static void write_one(rg_buf *b, const rg_talk_form *f, const char *name, const char *arguments)
{
    rg_buf_printf(b, "%s%s%s%s%s%s%s%s%s", f->open ? f->open : "", f->list ? "[" : "", f->item_open ? f->item_open : "",
                  name, f->sep ? f->sep : "", arguments, f->item_close ? f->item_close : "", f->list ? "]" : "",
                  f->close ? f->close : "");
}

static void write_call(rg_buf *b, const rg_talk_form *f, const json_t *call)
{
    const json_t *function = json_object_get(call, "function"), *arguments = json_object_get(function, "arguments");
    char *s = json_is_string(arguments) ? NULL : rg_body_dump(arguments);

    rg_buf_str(b, b->n ? "\n" : "");
    write_one(b, f, text_of(function, "name"), s ? s : json_is_string(arguments) ? json_string_value(arguments) : "{}");
    rg_free(s);
}

/* A message with calls becomes one with their text. */
static bool write_calls(const rg_talk_form *f, json_t *m)
{
    json_t *calls = json_object_get(m, "tool_calls");
    rg_buf b;
    bool ok;

    if (!json_array_size(calls))
        return true;
    rg_buf_init(&b, MAX_TEXT);
    rg_buf_str(&b, text_of(m, "content"));
    for (size_t i = 0; i < json_array_size(calls); i++)
        write_call(&b, f, json_array_get(calls, i));
    ok = !b.failed && json_object_set_new(m, "content", json_stringn(b.data ? b.data : "", b.n)) == 0 &&
         json_object_del(m, "tool_calls") == 0;
    rg_buf_fini(&b);
    return ok;
}

/* A tool's result becomes the user's words; those that follow each other one message. */
static bool write_result(json_t *list, const json_t *m)
{
    json_t *last = json_array_get(list, json_array_size(list) - 1), *text;
    bool joins = json_is_true(json_object_get(last, "ridge_result"));
    rg_buf b;
    bool ok;

    rg_buf_init(&b, MAX_TEXT);
    rg_buf_printf(&b, "%s%s<tool_response>\n%s\n</tool_response>", joins ? text_of(last, "content") : "",
                  joins ? "\n" : "", text_of(m, "content"));
    text = b.failed ? NULL : json_stringn(b.data, b.n);
    rg_buf_fini(&b);
    if (joins)
        return text && json_object_set_new(last, "content", text) == 0;
    ok = text && json_array_append_new(
                     list, json_pack("{s:s, s:O, s:b}", "role", "user", "content", text, "ridge_result", 1)) == 0;
    json_decref(text);
    return ok;
}

static bool write_past(const rg_talk_form *f, json_t *conversation)
{
    const json_t *messages = json_object_get(conversation, "messages");
    json_t *list = json_array();
    bool ok = list;

    for (size_t i = 0; ok && i < json_array_size(messages); i++) {
        json_t *m = json_array_get(messages, i);
        if (has_role(m, "tool") || has_role(m, "function"))
            ok = write_result(list, m);
        else
            ok = write_calls(f, m) && json_array_append(list, m) == 0;
    }
    for (size_t i = 0; i < json_array_size(list); i++)
        json_object_del(json_array_get(list, i), "ridge_result");
    if (ok)
        ok = json_object_set(conversation, "messages", list) == 0;
    json_decref(list);
    return ok;
}

/* Which tools there are, and how they are called, in front of the first message of a system or a user. */
static bool tell_tools(const rg_talk_form *f, json_t *conversation)
{
    const json_t *messages = json_object_get(conversation, "messages"), *tools = json_object_get(conversation, "tools");
    json_t *m = NULL;
    rg_buf b;
    bool ok;

    for (size_t i = 0; !m && i < json_array_size(messages); i++)
        if (has_role(json_array_get(messages, i), "system") || has_role(json_array_get(messages, i), "user"))
            m = json_array_get(messages, i);
    if (!m)
        return true;
    rg_buf_init(&b, MAX_TEXT);
    rg_buf_str(&b, "You may call these tools:\n<tools>\n");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        char *s = rg_body_dump(json_object_get(json_array_get(tools, i), "function"));
        rg_buf_printf(&b, "%s\n", s ? s : "");
        b.failed |= !s;
        rg_free(s);
    }
    rg_buf_str(&b, "</tools>\nTo call one, write:\n");
    write_one(&b, f, "NAME", "{...}");
    rg_buf_printf(&b, "\n\n%s", text_of(m, "content"));
    ok = !b.failed && json_object_set_new(m, "content", json_stringn(b.data, b.n)) == 0 &&
         json_object_del(conversation, "tools") == 0;
    rg_buf_fini(&b);
    return ok;
}

bool rg_talk_fit_past(const rg_talk_use *use, json_t *conversation, bool *told)
{
    json_t *messages = json_object_get(conversation, "messages");
    bool ok = true;

    *told = !use->shows_tools && json_array_size(json_object_get(conversation, "tools")) && is_plain(use->form);
    if (use->talk->id_prefix)
        ok = number_calls(use->talk->id_prefix, messages);
    if (ok && use->talk->heads)
        ok = name_thoughts(messages);
    if (ok && !use->shows_calls && is_plain(use->form))
        ok = write_past(use->form, conversation);
    return ok && (!*told || tell_tools(use->form, conversation));
}
