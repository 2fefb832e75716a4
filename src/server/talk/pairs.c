/* pairs.c -- arguments as KEY=VALUE or KEY:VALUE, with texts between a family's quotes, as a grammar; see force.h.
 *
 * Python's texts follow the whole schema.  Between special quotes a text is free: its pattern and length are not
 * bound. */
#include "server/talk/force.h"
#include "server/talk/inner.h"

enum { DEEPEST = 8 };

static const char *quote_of(const rg_talk_form *f)
{
    return f->quote ? f->quote : "\"";
}

static void any_of(rg_buf *b, const rg_talk_form *f, const json_t *root, const json_t *values)
{
    rg_buf_str(b, " (");
    for (size_t i = 0; i < json_array_size(values); i++) {
        const json_t *v = json_array_get(values, i);
        json_t *alone = json_pack("{s:O}", "const", v);
        rg_buf_str(b, i ? " |" : "");
        if (json_is_string(v) && f->quote) {
            rg_gbnf_literal(b, f->quote);
            rg_gbnf_literal(b, json_string_value(v));
            rg_gbnf_literal(b, f->quote);
        } else {
            rg_gbnf_property(b, root, alone);
        }
        json_decref(alone);
    }
    rg_buf_str(b, " )");
}

const json_t *rg_schema_resolve(const json_t *root, const json_t *s)
{
    const char *ref = json_string_value(json_object_get(s, "$ref")), *slash = ref ? strrchr(ref, '/') : NULL;
    const json_t *defs = json_object_get(root, ref && strstr(ref, "#/definitions/") ? "definitions" : "$defs");

    return slash && json_object_get(defs, slash + 1) ? json_object_get(defs, slash + 1) : s;
}

static void list_of(rg_buf *b, const rg_talk_form *f, const json_t *root, const json_t *s, int depth)
{
    const json_t *items = json_object_get(s, "items");
    int64_t least = json_integer_value(json_object_get(s, "minItems"));
    const json_t *most = json_object_get(s, "maxItems");

    rg_buf_str(b, " \"[\"");
    if (!json_is_integer(most) || json_integer_value(most) > 0) {
        rg_buf_str(b, least > 0 ? " (" : " (");
        rg_gbnf_value(b, f, root, items, depth + 1);
        rg_buf_str(b, " (\",\"");
        rg_gbnf_value(b, f, root, items, depth + 1);
        if (json_is_integer(most))
            rg_buf_printf(b, "){%d,%d}", (int)(least > 1 ? least - 1 : 0), (int)json_integer_value(most) - 1);
        else
            rg_buf_printf(b, "){%d,}", (int)(least > 1 ? least - 1 : 0));
        rg_buf_str(b, least > 0 ? " )" : " )?");
    }
    rg_buf_str(b, " \"]\"");
}

void rg_gbnf_value(rg_buf *b, const rg_talk_form *f, const json_t *root, const json_t *schema, int depth)
{
    const json_t *s = rg_schema_resolve(root, schema);
    const char *type = json_string_value(json_object_get(s, "type"));

    if (!f->quote) {
        json_t *any = json_object();
        rg_gbnf_property(b, root, schema ? schema : any);
        json_decref(any);
    } else if (json_object_get(s, "enum")) {
        any_of(b, f, root, json_object_get(s, "enum"));
    } else if (type && !strcmp(type, "array") && depth < DEEPEST) {
        list_of(b, f, root, s, depth);
    } else if (type && !strcmp(type, "object") && depth < DEEPEST) {
        rg_buf_str(b, " \"{\"");
        rg_gbnf_pairs(b, f, root, s, depth + 1);
        rg_buf_str(b, " \"}\"");
    } else if (!type || !strcmp(type, "string")) {
        rg_gbnf_literal(b, quote_of(f));
        rg_gbnf_until(b, quote_of(f));
    } else {
        rg_gbnf_property(b, root, s);
    }
}

static void pair(rg_buf *b, const rg_talk_form *f, const json_t *root, const char *key, const json_t *v, int depth)
{
    rg_gbnf_literal(b, key);
    rg_gbnf_literal(b, f->quote ? ":" : "=");
    rg_gbnf_value(b, f, root, v, depth);
}

/* Required keys come in the order of their declaration, then the others.  Where none is required, any key may begin. */
void rg_gbnf_pairs(rg_buf *b, const rg_talk_form *f, const json_t *root, const json_t *schema, int depth)
{
    const char *joint = f->quote ? "," : ", ", *key, *later;
    json_t *properties = json_object_get(schema, "properties"), *v, *w;
    bool any = false;

    json_object_foreach(properties, key, v) if (rg_schema_requires(schema, key))
    {
        if (any)
            rg_gbnf_literal(b, joint);
        pair(b, f, root, key, v, depth);
        any = true;
    }
    if (any) {
        json_object_foreach(properties, key, v) if (!rg_schema_requires(schema, key))
        {
            rg_buf_str(b, " (");
            rg_gbnf_literal(b, joint);
            pair(b, f, root, key, v, depth);
            rg_buf_str(b, " )?");
        }
        return;
    }
    if (!json_object_size(properties))
        return;
    rg_buf_str(b, " (");
    json_object_foreach(properties, key, v)
    {
        bool behind = false;
        rg_buf_str(b, any ? " |" : "");
        any = true;
        pair(b, f, root, key, v, depth);
        json_object_foreach(properties, later, w)
        {
            if (behind) {
                rg_buf_str(b, " (");
                rg_gbnf_literal(b, joint);
                pair(b, f, root, later, w, depth);
                rg_buf_str(b, " )?");
            }
            behind |= !strcmp(key, later);
        }
    }
    rg_buf_str(b, " )?");
}
