/* continued.c -- see continued.h. */
#define _GNU_SOURCE 1 /* memmem */
#include "api/continued.h"

#include <stdio.h>
#include <string.h>

#include "base/rng.h"

enum { MARK = 34 }; /* 32 digits and a blank, which shows whether the template trims; with a NUL */

/* The mark is random, so that no text of the conversation can hold it. */
static void make_mark(char mark[MARK])
{
    snprintf(mark, MARK, "%016llx%016llx ", (unsigned long long)rg_seed(), (unsigned long long)rg_seed());
}

/* A copy of the message whose content ends with the mark; NULL and *err: it cannot be continued. */
static json_t *marked_message(const json_t *m, const char *mark, rg_error *err)
{
    const json_t *content = json_object_get(m, "content");
    const char *role = json_string_value(json_object_get(m, "role"));
    json_t *copy;

    if (!role || strcmp(role, "assistant") != 0 || !json_is_string(content) ||
        json_array_size(json_object_get(m, "tool_calls")))
        return rg_fail(err, RG_E_INPUT, "only a last message of the assistant that is a text can be continued"), NULL;
    copy = json_copy((json_t *)(uintptr_t)m);
    if (!copy || json_object_size(copy) != json_object_size(m) ||
        json_object_set_new(copy, "content", json_sprintf("%s%s", json_string_value(content), mark)) != 0) {
        json_decref(copy);
        return rg_fail_memory(err, json_string_length(content)), NULL;
    }
    return copy;
}

/* A copy of the conversation, as an object, with the mark behind its last message. */
static json_t *marked_conversation(const json_t *conversation, const char *mark, rg_error *err)
{
    bool whole = json_is_object(conversation);
    const json_t *messages = whole ? json_object_get(conversation, "messages") : conversation;
    size_t n = json_array_size(messages);
    json_t *last = n ? marked_message(json_array_get(messages, n - 1), mark, err) : NULL, *list, *copy;

    if (!n)
        rg_fail(err, RG_E_INPUT, "there is no last message to continue");
    if (!last)
        return NULL;
    list = json_copy((json_t *)(uintptr_t)messages);
    copy = whole ? json_copy((json_t *)(uintptr_t)conversation) : json_object();
    bool ok = list && json_array_size(list) == n && json_array_set(list, n - 1, last) == 0 && copy &&
              (!whole || json_object_size(copy) == json_object_size(conversation)) &&
              json_object_set(copy, "messages", list) == 0 &&
              json_object_set_new(copy, "add_generation_prompt", json_false()) == 0;
    json_decref(last);
    json_decref(list);
    if (ok)
        return copy;
    json_decref(copy);
    return rg_fail_memory(err, n), NULL;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* Cut the text to its first n bytes. */
static void cut(rg_text *t, size_t n)
{
    t->bytes.n = n;
    t->bytes.data[n] = 0;
    while (t->n_runs > 1 && t->run[t->n_runs - 2].end >= n)
        t->n_runs--;
    if (n)
        t->run[t->n_runs - 1].end = n;
    else
        t->n_runs = 0;
}

static const char *last_of(const rg_text *t, const char *what, size_t n)
{
    const char *found = NULL, *end = t->bytes.data + t->bytes.n;

    for (const char *at = t->bytes.data; at && (at = memmem(at, (size_t)(end - at), what, n)); at++)
        found = at;
    return found;
}

bool rg_render_continued(const rg_chat *c, const json_t *conversation, int64_t now_s, rg_text *out, rg_error *err)
{
    char mark[MARK];
    make_mark(mark);
    json_t *marked = marked_conversation(conversation, mark, err);
    bool ok = marked && rg_chat_render(c, marked, false, now_s, out, err);

    json_decref(marked);
    if (!ok)
        return false;
    const char *at = last_of(out, mark, MARK - 2);
    if (!at)
        return rg_fail(err, RG_E_INPUT, "the chat template does not show the last message as it is");
    size_t n = (size_t)(at - out->bytes.data);
    bool trimmed = n + MARK - 2 == out->bytes.n || at[MARK - 2] != ' ';
    while (trimmed && n && is_blank(out->bytes.data[n - 1]))
        n--;
    cut(out, n);
    return true;
}
