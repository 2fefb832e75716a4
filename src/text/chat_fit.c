/* chat_fit.c -- brings a conversation into the form that a chat template takes.  See chat_form.h. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"
#include "text/chat_form.h"

enum { MAX_TEXT = 1 << 28, ID_ROOM = 16 };

/* A call's id in a conversation, and what becomes of it: an object of new ids by old ones, and of those in use. */
typedef struct fitter {
    const rg_chat_form *form;
    json_t *ids, *used;
    const json_t *asked; /* the latest calls, whose results may come without an id */
    size_t n_answered;   /* of those */
    size_t n_calls;      /* so far, for ids of calls that have none */
    bool failed;         /* no memory */
} fitter;

/* A part of the result that could not be made. */
static bool keep(fitter *f, bool ok)
{
    f->failed = f->failed || !ok;
    return ok;
}

/* A copy one level deep that may be changed; NULL: no memory. */
static json_t *copy_of(fitter *f, const json_t *v)
{
    json_t *copy = json_copy((json_t *)(uintptr_t)v);

    /* jansson's copy lacks members, without an error, if memory ran out: compare. */
    if (keep(f, copy && json_object_size(copy) == json_object_size(v) && json_array_size(copy) == json_array_size(v)))
        return copy;
    json_decref(copy);
    return NULL;
}

/* ---- content ---- */

static rg_chat_role role_of(const json_t *message)
{
    static const char *const names[RG_N_ROLES] = { "user", "system", "assistant", "tool" };
    const char *role = json_string_value(json_object_get(message, "role"));

    for (int i = 0; role && i < RG_N_ROLES; i++)
        if (!strcmp(names[i], role))
            return (rg_chat_role)i;
    return RG_ROLE_USER;
}

/* The text of a list of parts that are all texts; NULL: some are not. */
static json_t *joined(fitter *f, const json_t *parts)
{
    rg_buf all;
    bool whole = true;
    json_t *text;

    rg_buf_init(&all, MAX_TEXT);
    for (size_t i = 0; whole && i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i), *type = json_object_get(part, "type");
        const json_t *s = json_is_string(part) ? part : json_object_get(part, "text");
        whole = json_is_string(s) && (!type || !strcmp(json_string_value(type) ? json_string_value(type) : "", "text"));
        if (whole) {
            rg_buf_add(&all, "\n", all.n > 0);
            rg_buf_add(&all, json_string_value(s), json_string_length(s));
        }
    }
    text = whole && !all.failed ? json_stringn(all.data ? all.data : "", all.n) : NULL;
    keep(f, text || !whole);
    rg_buf_fini(&all);
    return text;
}

/* The content that takes the place of a message's; NULL: it stays. */
static json_t *new_content(fitter *f, const json_t *message)
{
    const json_t *content = json_object_get(message, "content");
    rg_chat_role role = role_of(message);
    json_t *v = NULL;

    if (json_is_array(content) && f->form->no_parts[role])
        return joined(f, content);
    if (!json_is_string(content) || !f->form->no_text[role])
        return NULL;
    v = json_string_length(content) ? json_pack("[{s:s, s:O}]", "type", "text", "text", content) : json_array();
    keep(f, v);
    return v;
}

/* ---- arguments ---- */

/* The arguments that take the place of a function's; NULL: they stay. */
static json_t *new_arguments(fitter *f, const json_t *function)
{
    const json_t *v = json_object_get(function, "arguments");
    const char *s = json_string_value(v);
    bool nothing = !v || json_is_null(v) || (s && (!json_string_length(v) || !strcmp(s, "null")));
    json_t *out;

    if (nothing) {
        out = f->form->text_arguments ? json_string("{}") : json_object();
        keep(f, out);
        return out;
    }
    if (f->form->text_arguments) {
        char *text = s ? NULL : rg_json_dump(v, JSON_ENCODE_ANY);
        out = text ? json_string(text) : NULL;
        keep(f, s || out);
        rg_free(text);
        return out;
    }
    json_error_t why = { 0 };
    out = s ? rg_json_load(s, json_string_length(v), JSON_ALLOW_NUL, &why) : NULL;
    if (json_is_object(out))
        return out;
    keep(f, !s || out || json_error_code(&why) != json_error_out_of_memory);
    json_decref(out); /* a text that is no object is the template's to take or to refuse */
    return NULL;
}

/* ---- ids ---- */

static bool is_id(const fitter *f, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!((s[i] >= '0' && s[i] <= '9') || (s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z')))
            return false;
    return n == (size_t)f->form->id_chars;
}

/* An id that no other call has, which follows from this text alone unless another one came to the same. */
static json_t *make_id(fitter *f, const char *s, size_t n)
{
    static const char digits[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    char id[ID_ROOM];
    json_t *v;

    for (uint64_t salt = 0;; salt++) {
        uint64_t h = rg_hash(s, n, salt);
        for (int i = 0; i < f->form->id_chars; i++, h /= 36)
            id[i] = digits[h % 36];
        id[f->form->id_chars] = 0;
        if (!json_object_get(f->used, id))
            break;
    }
    v = json_string(id);
    keep(f, v && json_object_set_new(f->used, id, json_true()) == 0);
    return v;
}

/* What stands for an id; NULL: it stays. */
static json_t *new_id(fitter *f, const json_t *id)
{
    const char *s = json_string_value(id);
    size_t n = json_string_length(id);
    json_t *v;

    if (is_id(f, s, n))
        return NULL;
    v = json_object_getn(f->ids, s, n);
    if (v)
        return json_incref(v);
    v = make_id(f, s, n);
    keep(f, v && json_object_setn(f->ids, s, n, v) == 0);
    return v;
}

/* Ids that have the form stay as they are, so no other may become one of them. */
static void reserve(fitter *f, const json_t *id)
{
    if (json_is_string(id) && is_id(f, json_string_value(id), json_string_length(id)))
        keep(f, json_object_set_new(f->used, json_string_value(id), json_true()) == 0);
}

static void reserve_all(fitter *f, const json_t *messages)
{
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *m = json_array_get(messages, i), *calls = json_object_get(m, "tool_calls");
        reserve(f, json_object_get(m, "tool_call_id"));
        for (size_t k = 0; k < json_array_size(calls); k++)
            reserve(f, json_object_get(json_array_get(calls, k), "id"));
    }
}

/* ---- messages ---- */

/* A call, in its form; its own reference. */
static json_t *fit_call(fitter *f, json_t *call)
{
    json_t *function = json_object_get(call, "function"), *id = json_object_get(call, "id"), *own = NULL;
    json_t *arguments = json_is_object(function) ? new_arguments(f, function) : NULL, *copy;
    char name[32];

    f->n_calls++;
    if (f->form->id_chars && json_is_string(id)) {
        own = new_id(f, id);
    } else if (f->form->id_chars && (!id || json_is_null(id))) {
        snprintf(name, sizeof name, "call %zu", f->n_calls);
        own = make_id(f, name, strlen(name));
    }
    if (!arguments && !own)
        return json_incref(call);
    copy = copy_of(f, call);
    if (copy && own)
        keep(f, json_object_set(copy, "id", own) == 0);
    if (copy && arguments) {
        json_t *inner = copy_of(f, function);
        keep(f, inner && json_object_set(inner, "arguments", arguments) == 0 &&
                    json_object_set(copy, "function", inner) == 0);
        json_decref(inner);
    }
    json_decref(arguments);
    json_decref(own);
    return copy;
}

static json_t *fit_calls(fitter *f, const json_t *calls)
{
    json_t *list = json_array();

    keep(f, list);
    for (size_t i = 0; !f->failed && i < json_array_size(calls); i++) {
        json_t *call = fit_call(f, json_array_get(calls, i));
        keep(f, call && json_array_append_new(list, call) == 0);
    }
    return list;
}

/* The id of the call that a result answers: its own, or that of the next call without a result.  NULL: it stays. */
static json_t *id_of_result(fitter *f, const json_t *message)
{
    const json_t *id = json_object_get(message, "tool_call_id");
    json_t *next = json_object_get(json_array_get(f->asked, f->n_answered++), "id");

    if (json_is_string(id))
        return new_id(f, id);
    return (!id || json_is_null(id)) && next ? json_incref(next) : NULL;
}

/* A message in its form; its own reference. */
static json_t *fit_message(fitter *f, json_t *message)
{
    const json_t *given = json_object_get(message, "tool_calls");
    bool is_result = f->form->id_chars && role_of(message) == RG_ROLE_TOOL;
    json_t *content = new_content(f, message), *calls = json_array_size(given) ? fit_calls(f, given) : NULL;
    json_t *id = is_result ? id_of_result(f, message) : NULL, *copy;

    if (!content && !calls && !id)
        return json_incref(message);
    copy = copy_of(f, message);
    if (copy && content)
        keep(f, json_object_set(copy, "content", content) == 0);
    if (copy && id)
        keep(f, json_object_set(copy, "tool_call_id", id) == 0);
    if (copy && calls) {
        keep(f, json_object_set(copy, "tool_calls", calls) == 0);
        f->asked = calls; /* the copy keeps it, and the list that is made keeps the copy */
        f->n_answered = 0;
    }
    json_decref(content);
    json_decref(calls);
    json_decref(id);
    return copy;
}

json_t *rg_chat_form_fit(const rg_chat_form *form, const json_t *messages, rg_error *err)
{
    fitter f = { .form = form, .ids = json_object(), .used = json_object() };
    json_t *list = json_array();

    keep(&f, f.ids && f.used && list);
    if (form->id_chars)
        reserve_all(&f, messages);
    for (size_t i = 0; !f.failed && i < json_array_size(messages); i++) {
        json_t *m = fit_message(&f, json_array_get(messages, i));
        keep(&f, m && json_array_append_new(list, m) == 0);
    }
    json_decref(f.ids);
    json_decref(f.used);
    if (!f.failed)
        return list;
    json_decref(list);
    rg_fail_memory(err, json_array_size(messages) * sizeof(json_t *));
    return NULL;
}
