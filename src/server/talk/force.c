/* force.c -- see force.h: what stands around calls, and their names.  Values in a family's literals are in pairs.c. */
#include "server/talk/force.h"

#include <stdio.h>

#include "server/json.h"
#include "server/talk/inner.h"

enum { MAX_GRAMMAR = 4 << 20, MAX_CALLS = 16, DEEPEST = 8, MOST_ITEMS = 256 };

void rg_gbnf_literal(rg_buf *b, const char *s)
{
    if (!*s)
        return;
    rg_buf_str(b, " \"");
    for (; *s; s++) {
        if ((unsigned char)*s < ' ' || *s == 0x7f)
            rg_buf_printf(b, "\\x%02x", *s);
        else
            rg_buf_printf(b, *s == '"' || *s == '\\' ? "\\%c" : "%c", *s);
    }
    rg_buf_str(b, "\"");
}

static void optional(rg_buf *b, const char *s)
{
    if (s)
        rg_gbnf_literal(b, s);
}

void rg_gbnf_until(rg_buf *b, const char *mark)
{
    rg_buf_str(b, " %until");
    rg_gbnf_literal(b, mark);
}

static void write_without(rg_buf *b, const char *mark)
{
    rg_buf_str(b, " %without");
    rg_gbnf_literal(b, mark);
}

/* The name as it stands in the form: within quotes of JSON, or as it is. */
static void name_literal(rg_buf *b, const char *before, const char *name)
{
    size_t n = before ? strlen(before) : 0;
    json_t *v = n && before[n - 1] == '"' ? json_string(name) : NULL;
    char *quoted = v ? rg_body_dump(v) : NULL;

    if (quoted) {
        quoted[strlen(quoted) - 1] = 0;
        rg_gbnf_literal(b, quoted + 1);
    } else {
        rg_gbnf_literal(b, name);
    }
    rg_free(quoted);
    json_decref(v);
}

void rg_gbnf_schema(rg_buf *b, const json_t *v)
{
    char *s = v ? rg_body_dump(v) : NULL;

    rg_buf_str(b, " %json ");
    if (s)
        rg_buf_str(b, s);
    else
        b->failed = true;
    rg_free(s);
}

/* Arguments are an object, and those that are declared are all there are, unless the schema says otherwise. */
static void arguments_schema(rg_buf *b, const json_t *parameters)
{
    static const char *const open[] = {
        "additionalProperties", "patternProperties", "$ref", "anyOf", "allOf", "oneOf"
    };
    json_t *s = json_is_object(parameters) ? json_copy((json_t *)(uintptr_t)parameters) : json_object();
    bool closed = true;

    if (!json_object_get(s, "type"))
        json_object_set_new(s, "type", json_string("object"));
    for (size_t i = 0; i < RG_LEN(open); i++)
        closed &= !json_object_get(s, open[i]);
    if (closed)
        json_object_set_new(s, "additionalProperties", json_false());
    rg_gbnf_schema(b, s);
    json_decref(s);
}

/* ---- arguments as tags ------------------------------------------------------------------------------------------- */

static bool is_word_of(const char *s, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(s, words[i]))
            return true;
    return false;
}

bool rg_schema_requires(const json_t *schema, const char *key)
{
    const json_t *required = json_object_get(schema, "required");

    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *s = json_string_value(json_array_get(required, i));
        if (s && !strcmp(s, key))
            return true;
    }
    return false;
}

void rg_gbnf_property(rg_buf *b, const json_t *root, const json_t *property)
{
    static const char *const shared[] = { "$defs", "definitions" };
    json_t *s = json_pack("{s:[O]}", "allOf", property);

    for (size_t i = 0; i < RG_LEN(shared); i++)
        if (s && json_object_get(root, shared[i]))
            json_object_set(s, shared[i], json_object_get(root, shared[i]));
    rg_gbnf_schema(b, s);
    json_decref(s);
}

/* Write a rule for one of several texts, taken as they are. */
static void texts_of(rg_buf *b, const json_t *values)
{
    rg_buf_str(b, " (");
    for (size_t i = 0; i < json_array_size(values); i++) {
        rg_buf_str(b, i ? " |" : "");
        rg_buf_str(b, json_string_length(json_array_get(values, i)) ? "" : " \"\"");
        rg_gbnf_literal(b, json_string_value(json_array_get(values, i)));
    }
    rg_buf_str(b, " )");
}

static bool are_texts(const json_t *values)
{
    for (size_t i = 0; i < json_array_size(values); i++)
        if (!json_is_string(json_array_get(values, i)))
            return false;
    return json_array_size(values) > 0;
}

/* What stands between the key and the end of its tag. */
static void attributes(rg_buf *b, const rg_talk_tags *t, bool text)
{
    if (t->isnt_text) {
        rg_gbnf_literal(b, " ");
        rg_gbnf_literal(b, text ? t->is_text : t->isnt_text);
    }
    optional(b, t->key_rest);
}

/* What closes the value of a key. */
static void closing(const rg_talk_tags *t, const char *key, char *to, size_t room)
{
    snprintf(to, room, "%s%s%s", t->close, t->nested ? key : "", t->nested ? t->key_close : "");
}

/* A text up to the mark, or with anything in it between the marks for that. */
static void raw_or_until(rg_buf *b, const rg_talk_tags *t, const char *close)
{
    rg_buf_str(b, " (");
    rg_gbnf_literal(b, t->raw_open);
    rg_gbnf_until(b, t->raw_close);
    rg_gbnf_literal(b, close);
    rg_buf_str(b, " |");
    rg_gbnf_until(b, close);
    rg_buf_str(b, " )");
}

static void element(rg_buf *b, const rg_talk_tags *t, const json_t *root, const char *key, const json_t *v, int depth);

/* A value that is made of tags: a list's or an object's; others as they are. */
static void elements(rg_buf *b, const rg_talk_tags *t, const json_t *root, const json_t *v, int depth)
{
    const json_t *s = rg_schema_resolve(root, v), *properties = json_object_get(s, "properties");
    const char *type = json_string_value(json_object_get(s, "type")), *key;
    json_t *member;

    if (type && !strcmp(type, "array") && json_object_get(s, "items") && depth < DEEPEST) {
        rg_buf_str(b, " (");
        element(b, t, root, "item", json_object_get(s, "items"), depth);
        rg_buf_printf(b, " ){%d,%d}", json_integer_value(json_object_get(s, "minItems")) > 0, MOST_ITEMS);
    } else if (properties && depth < DEEPEST) {
        json_object_foreach((json_t *)(uintptr_t)properties, key, member)
        {
            rg_buf_str(b, " (");
            element(b, t, root, key, member, depth);
            rg_buf_str(b, rg_schema_requires(s, key) ? " )" : " )?");
        }
    } else {
        rg_gbnf_property(b, root, v);
    }
}

static void element(rg_buf *b, const rg_talk_tags *t, const json_t *root, const char *key, const json_t *v, int depth)
{
    const json_t *s = rg_schema_resolve(root, v);
    const char *type = json_string_value(json_object_get(s, "type"));
    char close[1200];

    closing(t, key, close, sizeof close);
    rg_gbnf_literal(b, t->key_open);
    rg_gbnf_literal(b, key);
    rg_gbnf_literal(b, t->key_close);
    if (type && !strcmp(type, "string") && !json_object_get(s, "enum")) {
        rg_gbnf_until(b, close);
        return;
    }
    if (are_texts(json_object_get(s, "enum")))
        texts_of(b, json_object_get(s, "enum"));
    else
        elements(b, t, root, v, depth + 1);
    rg_gbnf_literal(b, close);
}

/* A value, and what closes it. */
static void tag_value(rg_buf *b, const rg_talk_tags *t, const json_t *root, const char *key, const json_t *v)
{
    char close[1200];

    closing(t, key, close, sizeof close);
    json_t *function = json_pack("{s:O}", "parameters", root);
    unsigned types = rg_argument_types(function, key, strlen(key));
    const json_t *s = rg_schema_resolve(root, v), *values = json_object_get(s, "enum");
    bool text = types == RG_IS_TEXT, listed = text && are_texts(values);

    attributes(b, t, text);
    optional(b, t->value_open);
    if (listed)
        texts_of(b, values);
    else if (text && json_is_string(json_object_get(s, "const")))
        rg_gbnf_literal(b, json_string_value(json_object_get(s, "const")));
    else if (text && t->raw_open)
        raw_or_until(b, t, close);
    else if (text)
        rg_gbnf_until(b, close);
    else if (t->nested)
        elements(b, t, root, v, 0);
    else
        rg_gbnf_property(b, root, v);
    if (!text || listed || json_is_string(json_object_get(s, "const")))
        rg_gbnf_literal(b, close);
    json_decref(function);
}

/* A tag for each argument, in the order of their declaration. */
static bool tag_arguments(rg_buf *b, const rg_talk_tags *t, const json_t *parameters, rg_refusal *e)
{
    static const char *const binding[] = { "allOf",
                                           "anyOf",
                                           "oneOf",
                                           "$ref",
                                           "enum",
                                           "const",
                                           "patternProperties",
                                           "propertyNames",
                                           "minProperties",
                                           "maxProperties",
                                           "dependentRequired",
                                           "dependentSchemas",
                                           "dependencies",
                                           "not",
                                           "if",
                                           "unevaluatedProperties" };
    json_t *properties = json_object_get(parameters, "properties"), *v;
    const char *key;

    json_object_foreach(
        (json_t *)(uintptr_t)parameters, key,
        v) if (!json_is_null(v) &&
               is_word_of(
                   key, binding,
                   RG_LEN(
                       binding))) return rg_refuse_field(e, "tools",
                                                         "'tools': '%.60s' beside 'properties' is not supported with a "
                                                         "'tool_choice' that asks for a call.",
                                                         key);
    json_object_foreach(properties, key, v)
    {
        if (strlen(key) > 1000 || strpbrk(key, "<>"))
            return rg_refuse_field(e, "tools", "'tools': a property's name cannot be written as a tag.");
        rg_buf_str(b, " (");
        rg_gbnf_literal(b, t->key_open);
        rg_gbnf_literal(b, key);
        rg_gbnf_literal(b, t->key_close);
        tag_value(b, t, parameters, key, v);
        rg_buf_str(b, rg_schema_requires(parameters, key) ? " )" : " )?");
    }
    return true;
}

/* ---- a call ------------------------------------------------------------------------------------------------------ */

static void write_source(rg_buf *b, const json_t *format, bool quoted)
{
    json_t *v = json_pack("{s:O, s:O, s:b}", "syntax", json_object_get(format, "syntax"), "definition",
                          json_object_get(format, "definition"), "quoted", quoted);
    char *s = v ? rg_body_dump(v) : NULL;

    rg_buf_str(b, " %grammar ");
    rg_buf_str(b, s ? s : "");
    b->failed |= !s;
    rg_free(s);
    json_decref(v);
}

/* The only argument is a text that follows a grammar. */
static void write_input(rg_buf *b, const rg_talk_form *f, const json_t *format)
{
    static const char blanks[] = " [ \\n\\t]{0,8}";
    const rg_talk_tags *t = f->tags;
    char close[1200];

    if (f->way == RG_CALL_TAGS) {
        closing(t, "input", close, sizeof close);
        rg_gbnf_literal(b, t->key_open);
        rg_gbnf_literal(b, "input");
        rg_gbnf_literal(b, t->key_close);
        attributes(b, t, true);
        optional(b, t->value_open);
        write_source(b, format, false);
        rg_gbnf_literal(b, close);
    } else if (f->way == RG_CALL_QUOTED || f->way == RG_CALL_PYTHON) {
        rg_gbnf_literal(b, f->quote ? "{input:" : "(input=\"");
        optional(b, f->quote);
        write_source(b, format, !f->quote);
        optional(b, f->quote);
        rg_gbnf_literal(b, f->quote ? "}" : "\")");
    } else {
        rg_buf_printf(b, " \"{\"%s \"\\\"input\\\"\"%s \":\"%s \"\\\"\"", blanks, blanks, blanks);
        write_source(b, format, true);
        rg_buf_printf(b, " \"\\\"\"%s \"}\"", blanks);
    }
}

/* Any arguments: an object, or whatever comes before what closes them.  False: nothing closes them. */
static bool write_free(rg_buf *b, const rg_talk_form *f)
{
    const char *close = f->item_close ? f->item_close : f->close;

    if (f->way <= RG_CALL_JSON)
        rg_buf_str(b, " %json {\"type\":\"object\",\"additionalProperties\":true}");
    else if (close)
        write_without(b, close);
    return f->way <= RG_CALL_JSON || close;
}

static bool write_arguments(rg_buf *b, const rg_talk_form *f, const json_t *parameters, rg_refusal *e)
{
    switch (f->way) {
    case RG_CALL_TAGS:
        return tag_arguments(b, f->tags, parameters, e);
    case RG_CALL_PYTHON:
    case RG_CALL_QUOTED:
        rg_gbnf_literal(b, f->way == RG_CALL_PYTHON ? "(" : "{");
        rg_gbnf_pairs(b, f, parameters, parameters, 0);
        rg_gbnf_literal(b, f->way == RG_CALL_PYTHON ? ")" : "}");
        return true;
    default:
        arguments_schema(b, parameters);
        return true;
    }
}

static const json_t *format_of(const rg_call_rules *r, const char *name)
{
    return json_object_get(json_object_get(r->kinds, name), "format");
}

/* The arguments of one tool, and what closes the call. */
static bool write_some_arguments(rg_buf *b, const rg_call_rules *r, const rg_talk_form *f, const json_t *function,
                                 rg_refusal *e)
{
    const json_t *format = format_of(r, json_string_value(json_object_get(function, "name")));

    if (format)
        write_input(b, f, format);
    else if (!(r->may && write_free(b, f)) && !write_arguments(b, f, json_object_get(function, "parameters"), e))
        return false;
    optional(b, f->item_close);
    return true;
}

static bool write_call(rg_buf *b, const rg_call_rules *r, const json_t *function, rg_refusal *e)
{
    const rg_talk_form *f = r->form;
    bool id_first = f->id_mark && strstr(f->id_mark, "name");

    if (id_first)
        rg_buf_str(b, " [a-z0-9]{9}");
    optional(b, id_first ? f->id_mark : f->item_open);
    if (f->name_after) {
        rg_buf_str(b, " [a-zA-Z0-9_.-]{1,64}");
        rg_gbnf_literal(b, f->name_after);
    }
    name_literal(b, f->item_open, json_string_value(json_object_get(function, "name")));
    if (f->name_end) {
        rg_gbnf_literal(b, f->name_end);
        rg_buf_str(b, " [0-9]{1,3}");
    }
    if (f->way != RG_CALL_PYTHON)
        optional(b, f->sep);
    optional(b, f->sep_rest);
    return write_some_arguments(b, r, f, function, e);
}

/* A call whose head names the tool, after what opens the head. */
static bool write_headed(rg_buf *b, const rg_call_rules *r, const json_t *function, rg_refusal *e)
{
    static const rg_talk_form plain = { .way = RG_CALL_JSON };
    const rg_talk_heads *h = r->talk->heads;

    if (h->to || !h->calls)
        name_literal(b, NULL, json_string_value(json_object_get(function, "name")));
    if (r->may && h->to && !h->calls)
        rg_gbnf_until(b, h->body);
    else
        optional(b, h->call_rest);
    if (!h->calls)
        return write_some_arguments(b, r, &plain, function, e) && (optional(b, h->call_end), true);
    optional(b, r->form->open);
    if (!write_call(b, r, function, e))
        return false;
    optional(b, r->form->close);
    return true;
}

/* The rule "call": of any of the tools. */
static bool write_tools(rg_buf *b, const rg_call_rules *r, rg_refusal *e)
{
    rg_buf_str(b, "\ncall ::=");
    for (size_t i = 0; i < json_array_size(r->tools); i++) {
        const json_t *function = json_object_get(json_array_get(r->tools, i), "function");
        rg_buf_str(b, i ? "\n |" : "");
        if (!(r->talk->heads ? write_headed(b, r, function, e) : write_call(b, r, function, e)))
            return false;
    }
    return true;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* The rule "one": calls from their opening mark on, which stands before it (open); and all that follow. */
static void write_one(rg_buf *b, const rg_call_rules *r)
{
    const rg_talk_form *f = r->form;
    bool inside = r->many && f->joint;

    rg_buf_str(b, "\none ::=");
    rg_buf_str(b, f->list && r->may ? " [ \\n]*" : "");
    rg_gbnf_literal(b, f->list ? "[" : "");
    rg_buf_str(b, " call");
    if (inside) {
        rg_buf_str(b, " (");
        if (*f->joint)
            rg_gbnf_literal(b, f->joint);
        rg_buf_printf(b, " call){0,%d}", MAX_CALLS - 1);
    }
    rg_gbnf_literal(b, f->list ? "]" : "");
    if (!r->close_ends)
        optional(b, f->close);
}

/* Calls, and nothing else but reasoning before them. */
static void write_calls(rg_buf *b, const rg_call_rules *r)
{
    const rg_talk_form *f = r->form;
    const rg_talk_heads *h = r->talk->heads;

    rg_buf_str(b, "root ::=");
    if (h) {
        rg_gbnf_head(b, r->talk, r->start, r->thinks, h->call);
        rg_buf_str(b, " call");
        if (r->many) {
            rg_buf_str(b, " (");
            rg_gbnf_literal(b, h->again);
            rg_gbnf_literal(b, h->call);
            rg_buf_printf(b, " call){0,%d}", MAX_CALLS - 1);
        }
        rg_gbnf_thoughts(b, r->talk, r->thinks);
        return;
    }
    rg_gbnf_thought(b, r->talk, r->start, r->think, r->thinks);
    optional(b, f->open);
    rg_buf_str(b, " one");
    if (r->many && f->close && !f->joint) {
        rg_buf_str(b, " (\"\\n\"?");
        optional(b, f->open);
        rg_buf_printf(b, " one){0,%d}", MAX_CALLS - 1);
    }
    write_one(b, r);
}

/* The mark after which a call is bound in an answer that may be text, without blanks at its end; "": there is none. */
static void call_mark(const rg_call_rules *r, char *to, size_t room)
{
    const rg_talk_form *f = r->form;
    const rg_talk_heads *h = r->talk->heads;
    bool marked = f->way > RG_CALL_KEYED && f->way != RG_CALL_PYTHON;
    size_t n;

    if (h && !h->calls)
        snprintf(to, room, "%s%s", h->to ? h->to : h->open[0], h->to_prefix ? h->to_prefix : "");
    else
        snprintf(to, room, "%s", f->open ? f->open : h ? h->call_rest : marked && f->item_open ? f->item_open : "");
    for (n = strlen(to); n && rg_is_blank(to[n - 1]); n--)
        to[n - 1] = 0;
}

/* What follows the mark of a message's head: a call, or text. */
static void write_after_head(rg_buf *b, const rg_talk_heads *h)
{
    rg_buf_str(b, " \" \"? (call");
    if (h->says) {
        rg_buf_str(b, " |");
        rg_gbnf_literal(b, h->says);
        rg_gbnf_literal(b, h->body);
    }
    rg_buf_str(b, " )");
}

/* Text, in which a call is bound once its mark is there. */
static void write_text_and_calls(rg_buf *b, const rg_call_rules *r, const char *mark)
{
    const rg_talk_heads *h = r->talk->heads;
    bool headed = h && !h->calls;

    rg_buf_str(b, "root ::=");
    if (!h)
        rg_gbnf_thought(b, r->talk, r->start, r->think, r->thinks);
    else if (headed && r->start == RG_START_HEAD)
        write_after_head(b, h);
    rg_buf_str(b, " (");
    rg_gbnf_until(b, mark);
    if (headed)
        write_after_head(b, h);
    else
        rg_buf_str(b, " [ \\n]* one");
    rg_buf_str(b, " )*");
    write_without(b, mark);
    write_one(b, r);
}

bool rg_force_calls(const rg_call_rules *r, rg_constraint *c, rg_refusal *e)
{
    rg_talk_form form = *r->form;
    rg_call_rules own = *r;
    char mark[256] = "";
    rg_buf b;
    bool ok;

    if (r->may) {
        call_mark(r, mark, sizeof mark);
        own.form = &form;
        if (form.item_open && !strcmp(mark, form.item_open)) /* the mark stands before the rule */
            form.item_open = "";
        if (!*mark)
            return true;
    }
    rg_buf_init(&b, MAX_GRAMMAR);
    if (r->may)
        write_text_and_calls(&b, &own, mark);
    else
        write_calls(&b, r);
    ok = write_tools(&b, &own, e);
    if (ok && b.failed)
        ok = !b.over ? rg_refuse_memory(e)
                     : rg_refuse_field(e, "tools", "'tools': their schemas are too large together.");
    if (ok) {
        rg_constraint_fini(c);
        *c = (rg_constraint){ r->name ? r->name : "tool_choice", RG_GRAMMAR_GBNF, b.data, b.n };
    } else {
        rg_buf_fini(&b);
    }
    return ok;
}
