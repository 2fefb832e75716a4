/* conversation.c -- see conversation.h. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "server/talk/conversation_inner.h"
#include "server/talk/tool_kinds.h"

enum { MAX_CALLS = 1024, MAX_TEXT = 1 << 27 };

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

/* Parts of a content that are texts, by their type, and the member that holds the text. */
static const struct {
    const char *type, *member;
} text_parts[] = {
    { "text", "text" },         { "input_text", "text" },   { "output_text", "text" },    { "refusal", "refusal" },
    { "thinking", "thinking" }, { "summary_text", "text" }, { "reasoning_text", "text" }, { "refusal", "text" },
};

/* The text of a part; NULL: it is no text.  *known: its type says that it is one. */
static const json_t *text_part(const json_t *part, bool *known)
{
    const char *type = json_string_value(json_object_get(part, "type"));

    *known = false;
    for (size_t i = 0; type && i < RG_LEN(text_parts); i++) {
        const json_t *text = json_object_get(part, text_parts[i].member);
        *known |= !strcmp(type, text_parts[i].type);
        if (!strcmp(type, text_parts[i].type) && json_is_string(text))
            return text;
    }
    return NULL;
}

static void add_line(rg_buf *b, const char *s, size_t n)
{
    rg_buf_add(b, "\n", b->n > 0);
    rg_buf_add(b, s, n);
}

json_t *rg_content_read(const json_t *v, const char *param, rg_refusal *e)
{
    rg_buf all;
    json_t *out;
    bool known;

    if (json_is_string(v))
        return json_incref((json_t *)(uintptr_t)v);
    if (!json_is_array(v))
        return rg_refuse_field(e, param, "'%s' must be a string or a list of parts.", param), NULL;
    rg_buf_init(&all, MAX_TEXT);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *part = json_array_get(v, i), *text = text_part(part, &known);
        if (!text) {
            rg_buf_fini(&all);
            if (json_is_string(json_object_get(part, "type")) && !known)
                return rg_refuse(e, 400, "unsupported_value", param, "'%s' has a part that is not text.", param), NULL;
            return rg_refuse_field(e, param, "'%s' must have parts with a 'type' and a 'text'.", param), NULL;
        }
        add_line(&all, json_string_value(text), json_string_length(text));
    }
    out = all.failed ? NULL : json_stringn(all.data ? all.data : "", all.n);
    rg_buf_fini(&all);
    if (!out)
        rg_refuse_memory(e);
    return out;
}

/* ---- parts that are no text, shown as one ---- */

static const json_t *member(const json_t *v, const char *key)
{
    return json_object_get(v, key);
}

/* A line "title: text", if the part has that member as a text. */
static void add_named(rg_buf *b, const char *title, const json_t *text)
{
    if (!json_string_length(text))
        return;
    rg_buf_add(b, "\n", b->n > 0);
    rg_buf_printf(b, "%s: ", title);
    rg_buf_add(b, json_string_value(text), json_string_length(text));
}

static void show_parts(rg_buf *b, const json_t *v, rg_conversation *talk, int depth);

/* A document: its title, and its text where it has one that can be read. */
static void show_document(rg_buf *b, const json_t *part, rg_conversation *talk, int depth)
{
    static const char lost[] = "(A document was left out: only its text could be read here, and it has none.)";
    const json_t *source = member(part, "source"), *data = member(source, "data"), *inner = member(source, "content");
    const char *type = json_string_value(member(source, "type"));

    add_named(b, "Title", member(part, "title"));
    add_named(b, "Context", member(part, "context"));
    if (type && !strcmp(type, "text") && json_is_string(data)) {
        add_line(b, json_string_value(data), json_string_length(data));
    } else if (inner) {
        show_parts(b, inner, talk, depth + 1);
    } else {
        add_line(b, lost, strlen(lost));
        rg_conversation_warn(talk, "a document was left out: only documents of plain text are read");
    }
}

static void show_search_result(rg_buf *b, const json_t *part, rg_conversation *talk, int depth)
{
    add_named(b, "Title", member(part, "title"));
    add_named(b, "Source", member(part, "source"));
    show_parts(b, member(part, "content"), talk, depth + 1);
}

static void show_tool(rg_buf *b, const json_t *part, rg_conversation *talk, int depth)
{
    (void)talk, (void)depth;
    add_named(b, "Tool", member(part, "tool_name"));
}

/* What a model that reads text alone cannot be shown. */
static void show_nothing(rg_buf *b, const json_t *part, rg_conversation *talk, int depth)
{
    const char *type = json_string_value(member(part, "type"));
    const char *what = type && strstr(type, "audio")                                   ? "audio"
                       : type && strstr(type, "file")                                  ? "file"
                       : type && (strstr(type, "image") || strstr(type, "screenshot")) ? "image"
                                                                                       : "part";

    (void)depth;
    rg_buf_add(b, "\n", b->n > 0);
    rg_buf_printf(b, "(One %s was left out: this model reads text alone.)", what);
    if (!strstr(talk->warning, "reads text alone"))
        rg_conversation_warn(talk, "one %s or more was left out: the model reads text alone", what);
}

static const struct {
    const char *type;
    void (*show)(rg_buf *b, const json_t *part, rg_conversation *talk, int depth);
} other_parts[] = {
    { "document", show_document },
    { "search_result", show_search_result },
    { "tool_reference", show_tool },
};

enum { DEEPEST_PART = 8 };

static void show_parts(rg_buf *b, const json_t *v, rg_conversation *talk, int depth)
{
    bool known;

    if (json_is_string(v))
        add_line(b, json_string_value(v), json_string_length(v));
    for (size_t i = 0; depth < DEEPEST_PART && i < json_array_size(v); i++) {
        const json_t *part = json_array_get(v, i), *text = text_part(part, &known);
        const char *type = json_string_value(member(part, "type"));
        size_t k = 0;

        while (k < RG_LEN(other_parts) && !(type && !strcmp(type, other_parts[k].type)))
            k++;
        if (text)
            add_line(b, json_string_value(text), json_string_length(text));
        else if (json_is_string(part))
            add_line(b, json_string_value(part), json_string_length(part));
        else
            (k < RG_LEN(other_parts) ? other_parts[k].show : show_nothing)(b, part, talk, depth);
    }
}

json_t *rg_content_show(const json_t *v, const char *param, rg_conversation *talk, rg_refusal *e)
{
    rg_buf all;
    json_t *out;
    bool known;

    if (!json_is_array(v))
        return rg_content_read(v, param, e);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *part = json_array_get(v, i), *text = text_part(part, &known);
        if ((known && !text) || (!json_is_string(member(part, "type")) && !json_is_string(part)))
            return rg_refuse_field(e, param, "'%s' must have parts with a 'type' and a 'text'.", param), NULL;
    }
    rg_buf_init(&all, MAX_TEXT);
    show_parts(&all, v, talk, 0);
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
    if (!json_is_array(calls) || json_array_size(calls) > MAX_CALLS)
        return rg_refuse_field(e, param, "'%s' must be a list.", param);
    list = json_array();
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *call = json_array_get(calls, i), *custom = json_object_get(call, "custom");
        const json_t *f = custom ? custom : json_object_get(call, "function"), *name = json_object_get(f, "name");
        json_t *arguments = custom ? rg_tool_kind_arguments(rg_tool_kind_of("custom"), custom)
                                   : json_incref(json_object_get(f, "arguments"));
        bool ok = json_is_string(name) && (custom ? arguments != NULL : rg_history_takes(arguments));
        if (ok)
            json_array_append_new(list, rg_history_call(json_object_get(call, "id"), name, arguments));
        json_decref(arguments);
        if (!ok) {
            json_decref(list);
            return rg_refuse_field(e, param,
                                   "'%s' must have functions with a 'name', and 'arguments' as a string or "
                                   "an object, or customs with a 'name' and an 'input'.",
                                   param);
        }
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

json_t *rg_message_read(const json_t *m, size_t i, rg_conversation *talk, rg_refusal *e)
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
                               "'%s' must be one of system|developer|user|assistant|tool|function.", p),
               NULL;
    bool assistant = !strcmp(role, "assistant");
    json_t *out = json_pack("{s:s}", "role", strcmp(role, "developer") != 0 ? role : "system");
    bool silent = assistant && (!content || json_is_null(content));
    rg_param_at(p, "messages", i, "content");
    json_t *text = silent ? json_string("")
                   : talk ? rg_content_show(content, p, talk, e)
                          : rg_content_read(content, p, e);
    bool ok = out && text && json_object_set(out, "content", text) == 0;
    json_decref(text);
    for (size_t k = 0; ok && k < RG_LEN(texts); k++)
        ok = copy_text(out, m, texts[k], rg_param_at(p, "messages", i, texts[k]), e);
    json_t *thought = json_object_get(out, "reasoning_content") ? json_object_get(out, "reasoning_content")
                                                                : json_object_get(out, "reasoning");
    ok = ok && (!thought || rg_message_set_reasoning(out, thought));
    ok = ok && (!assistant ||
                read_calls(out, json_object_get(m, "tool_calls"), rg_param_at(p, "messages", i, "tool_calls"), e));
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
        json_t *m = rg_message_read(json_array_get(messages, i), i, NULL, e);
        if (!m || json_array_append_new(out, m) != 0) {
            json_decref(out);
            if (!e->status)
                rg_refuse_memory(e);
            return NULL;
        }
    }
    return out;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

bool rg_conversation_can_continue(const json_t *all)
{
    const json_t *messages = json_object_get(all, "messages");
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));

    return role && !strcmp(role, "assistant") && !json_array_size(json_object_get(last, "tool_calls"));
}

static bool has_role(const json_t *m, const char *word)
{
    const char *role = json_string_value(json_object_get(m, "role"));

    return role && !strcmp(role, word);
}

/* The message with another text before or behind its own, as a copy; NULL: no memory. */
static json_t *with_text(const json_t *m, const char *before, const char *behind)
{
    const char *own = json_string_value(json_object_get(m, "content"));
    json_t *copy = json_copy((json_t *)(uintptr_t)m), *text;

    text = json_sprintf("%s%s%s%s%s", before, *before && own && *own ? "\n\n" : "", own ? own : "",
                        *behind && own && *own ? "\n\n" : "", behind);
    if (copy && text && json_object_set_new(copy, "content", text) == 0)
        return copy;
    json_decref(copy);
    return NULL;
}

bool rg_conversation_fold(json_t *all)
{
    const json_t *messages = json_object_get(all, "messages");
    json_t *list = json_array();
    bool folded = false, ok = list;

    for (size_t i = 0; ok && i < json_array_size(messages); i++) {
        json_t *m = json_array_get(messages, i), *next = json_array_get(messages, i + 1);
        size_t n = json_array_size(list);
        json_t *last = json_array_get(list, n - 1);
        const char *text = json_string_value(json_object_get(m, "content"));
        if (!n || !text || !has_role(m, "system")) {
            ok = json_array_append(list, m) == 0;
            continue;
        }
        folded = true;
        if (has_role(last, "user") || has_role(last, "system")) {
            ok = json_array_set_new(list, n - 1, with_text(last, "", text)) == 0;
        } else if (has_role(next, "user")) {
            ok = json_array_append_new(list, with_text(next, text, "")) == 0;
            i++;
        } else {
            ok = json_array_append_new(list, json_pack("{s:s, s:s}", "role", "user", "content", text)) == 0;
        }
    }
    ok = ok && folded && json_object_set(all, "messages", list) == 0;
    json_decref(list);
    return ok;
}

int rg_conversation_n_calls(const json_t *all)
{
    const json_t *messages = json_object_get(all, "messages");
    size_t n = 0;

    for (size_t i = 0; i < json_array_size(messages); i++)
        n += json_array_size(json_object_get(json_array_get(messages, i), "tool_calls"));
    return (int)n;
}

void rg_conversation_warn(rg_conversation *talk, const char *fmt, ...)
{
    size_t n = strlen(talk->warning);
    va_list args;

    if (n && n + 2 < sizeof talk->warning)
        n += (size_t)snprintf(talk->warning + n, sizeof talk->warning - n, "; ");
    va_start(args, fmt);
    vsnprintf(talk->warning + n, sizeof talk->warning - n, fmt, args);
    va_end(args);
}

void rg_conversation_fini(rg_conversation *talk)
{
    json_decref(talk->all);
    json_decref(talk->tools);
    json_decref(talk->must);
    json_decref(talk->kinds);
    json_decref(talk->items);
    json_decref(talk->previous);
    json_decref(talk->conversation);
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
        json_object_foreach((json_t *)(uintptr_t)kwargs, key, v)
        {
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
