/* force.c -- see force.h: what stands around calls, and their names.  Values in a family's literals are in pairs.c. */
#include "server/talk/force.h"

#include <stdio.h>

#include "server/json.h"
#include "server/talk/inner.h"

enum { MAX_GRAMMAR = 4 << 20, MAX_CALLS = 16 };

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

/* One character of a set, as [^...] has it. */
static void set_char(rg_buf *b, char c)
{
    rg_buf_printf(b, strchr("]\\^-[", c) ? "\\%c" : "%c", c);
}

/* Any text that does not have the first two bytes of a mark one after the other. */
static void text_without(rg_buf *b, const char *mark)
{
    const char *m = mark + strspn(mark, " \n");
    char first[2] = { m[0], 0 };

    rg_buf_str(b, " ([^");
    set_char(b, m[0]);
    rg_buf_str(b, "] |");
    rg_gbnf_literal(b, first);
    rg_buf_str(b, " [^");
    set_char(b, m[0]);
    if (m[1] && m[1] != m[0])
        set_char(b, m[1]);
    rg_buf_str(b, "])*");
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

/* One of several texts, as they are. */
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

static void tag_value(rg_buf *b, const rg_talk_tags *t, const json_t *root, const char *key, const json_t *v)
{
    json_t *function = json_pack("{s:O}", "parameters", root);
    unsigned types = rg_argument_types(function, key, strlen(key));
    const json_t *s = rg_schema_resolve(root, v), *values = json_object_get(s, "enum");
    bool text = types == RG_IS_TEXT, listed = text && are_texts(values);

    if (t->key_rest) {
        rg_gbnf_literal(b, " ");
        rg_gbnf_literal(b, text ? t->is_text : t->isnt_text);
        rg_gbnf_literal(b, t->key_rest);
    }
    optional(b, t->value_open);
    if (listed)
        texts_of(b, values);
    else if (text && json_is_string(json_object_get(s, "const")))
        rg_gbnf_literal(b, json_string_value(json_object_get(s, "const")));
    else if (text)
        text_without(b, t->close);
    else
        rg_gbnf_property(b, root, v);
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
        rg_gbnf_literal(b, t->close);
        rg_buf_str(b, rg_schema_requires(parameters, key) ? " )" : " )?");
    }
    return true;
}

/* ---- a call ------------------------------------------------------------------------------------------------------ */

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

static bool write_call(rg_buf *b, const rg_talk_form *f, const json_t *function, rg_refusal *e)
{
    bool id_first = f->id_mark && strstr(f->id_mark, "name");

    if (id_first)
        rg_buf_str(b, " [a-z0-9]{9}");
    optional(b, id_first ? f->id_mark : f->item_open);
    name_literal(b, f->item_open, json_string_value(json_object_get(function, "name")));
    if (f->name_end) {
        rg_gbnf_literal(b, f->name_end);
        rg_buf_str(b, " [0-9]{1,3}");
    }
    if (f->way != RG_CALL_PYTHON)
        optional(b, f->sep);
    optional(b, f->sep_rest);
    if (!write_arguments(b, f, json_object_get(function, "parameters"), e))
        return false;
    optional(b, f->item_close);
    return true;
}

static bool write_tools(rg_buf *b, const rg_call_rules *r, rg_refusal *e)
{
    const rg_talk_heads *h = r->talk->heads;

    for (size_t i = 0; i < json_array_size(r->tools); i++) {
        const json_t *function = json_object_get(json_array_get(r->tools, i), "function");
        rg_buf_str(b, i ? "\n |" : "");
        if (!h) {
            if (!write_call(b, r->form, function, e))
                return false;
            continue;
        }
        optional(b, h->call);
        name_literal(b, h->call, json_string_value(json_object_get(function, "name")));
        optional(b, h->call_rest);
        arguments_schema(b, json_object_get(function, "parameters"));
        optional(b, h->call_end);
    }
    return true;
}

/* The rule "calls": one or several "call", and what is around them. */
static void write_calls(rg_buf *b, const rg_call_rules *r)
{
    const rg_talk_form *f = r->form;
    bool inside = r->many && f->joint, again = r->many && f->close && !f->joint;

    rg_buf_str(b, "\ncalls ::=");
    if (r->talk->heads) {
        rg_buf_str(b, " call");
        return;
    }
    rg_buf_str(b, " one");
    if (again)
        rg_buf_printf(b, " (\"\\n\" one){0,%d}", MAX_CALLS - 1);
    rg_buf_str(b, "\none ::=");
    optional(b, f->open);
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

/* The rule "root": reasoning, if it may come, and the calls. */
static void write_root(rg_buf *b, const rg_call_rules *r)
{
    const rg_talk_heads *h = r->talk->heads;
    const char *open = r->talk->think[0].open, *close = r->talk->think[0].close;

    rg_buf_str(b, "root ::=");
    if (h && r->start == RG_START_THINKING && h->again) {
        rg_gbnf_literal(b, h->again +
                               (h->end[0] && !strncmp(h->again, h->end[0], strlen(h->end[0])) ? strlen(h->end[0]) : 0));
    } else if (r->thinks && open && r->start == RG_START_PLAIN) {
        rg_buf_str(b, " (");
        rg_gbnf_literal(b, open);
        text_without(b, close);
        rg_gbnf_literal(b, h && h->again ? h->again : close);
        rg_buf_str(b, h ? " )?" : " \"\\n\"{0,2} )?");
    }
    if (h && r->start == RG_START_PLAIN && !*h->call) /* a head has to be opened first */
        rg_gbnf_literal(b, h->again);
    rg_buf_str(b, " calls");
}

const char *rg_force_after(const rg_talk *t, rg_talk_start start)
{
    return start == RG_START_THINKING ? t->think[0].close : NULL;
}

bool rg_force_calls(const rg_call_rules *r, rg_constraint *c, rg_refusal *e)
{
    static const char any[] = "\nqtext ::= ([^<] | \"<\" [^<|e])*";
    rg_buf b;
    bool ok;

    rg_buf_init(&b, MAX_GRAMMAR);
    write_root(&b, r);
    write_calls(&b, r);
    if (r->form->way == RG_CALL_QUOTED)
        rg_buf_str(&b, any);
    rg_buf_str(&b, "\ncall ::=");
    ok = write_tools(&b, r, e);
    if (ok && b.failed)
        ok = rg_refuse_field(e, "tools", "'tools': their schemas are too large together.");
    if (ok) {
        rg_constraint_fini(c);
        *c = (rg_constraint){ r->name ? r->name : "tool_choice", RG_GRAMMAR_GBNF, b.data, b.n };
    } else {
        rg_buf_fini(&b);
    }
    return ok;
}
