/* json_parts.c -- see json_parts.h. */
#include "text/json_parts.h"

#include <string.h>

#include "text/clean.h"

bool rg_json_bool(const json_t *v, const char *key, bool *out, rg_error *err)
{
    const json_t *m = json_object_get(v, key);

    if (!m || json_is_null(m))
        return true;
    if (!json_is_boolean(m))
        return rg_fail(err, RG_E_INPUT, "\"%s\" is not true or false", key);
    *out = json_is_true(m);
    return true;
}

bool rg_json_int(const json_t *v, const char *key, int64_t *out, rg_error *err)
{
    const json_t *m = json_object_get(v, key);

    if (!m || json_is_null(m))
        return true;
    if (!json_is_integer(m))
        return rg_fail(err, RG_E_INPUT, "\"%s\" is not an integer", key);
    *out = json_integer_value(m);
    return true;
}

bool rg_json_string(const json_t *v, const char *key, rg_string *out, rg_error *err)
{
    const json_t *m = json_object_get(v, key);

    if (!m || json_is_null(m))
        return true;
    if (!json_is_string(m))
        return rg_fail(err, RG_E_INPUT, "\"%s\" is not a string", key);
    *out = (rg_string){ json_string_value(m), json_string_length(m) };
    return true;
}

bool rg_json_need_string(const json_t *v, const char *key, rg_string *out, rg_error *err)
{
    *out = (rg_string){ 0 };
    return rg_json_string(v, key, out, err) && (out->data || rg_fail(err, RG_E_INPUT, "\"%s\" is missing", key));
}

bool rg_json_need_char(const json_t *v, const char *key, rg_string *out, rg_error *err)
{
    return rg_json_need_string(v, key, out, err) && ((out->n && (size_t)rg_clean_length(out->data) == out->n) ||
                                             rg_fail(err, RG_E_INPUT, "\"%s\" is not one character", key));
}

rg_regex *rg_json_pattern(const json_t *v, rg_error *err)
{
    const json_t *p = json_object_get(v, "pattern");
    rg_string s = { 0 };

    if (json_is_string(p))
        s = (rg_string){ json_string_value(p), json_string_length(p) };
    else if (json_object_get(p, "Regex"))
        return rg_json_need_string(p, "Regex", &s, err) ? rg_regex_new(s.data, s.n, err) : NULL;
    else if (!rg_json_need_string(p, "String", &s, err))
        return NULL;
    return s.n ? rg_regex_literal(s.data, s.n, err) : rg_regex_new("", 0, err); /* nothing is everywhere */
}

bool rg_json_scheme(const json_t *v, rg_scheme *out, rg_error *err)
{
    static const char *const names[] = { "always", "first", "never" };
    rg_string s = { 0 };
    bool prefix = true;

    *out = RG_PREPEND_ALWAYS;
    if (!rg_json_string(v, "prepend_scheme", &s, err) || !rg_json_bool(v, "add_prefix_space", &prefix, err))
        return false;
    if (!s.data) /* files from before there was a scheme */
        return *out = prefix ? RG_PREPEND_ALWAYS : RG_PREPEND_NEVER, true;
    for (size_t i = 0; i < RG_LEN(names); i++) {
        if (!strcmp(names[i], s.data))
            return *out = (rg_scheme)i, true;
    }
    return rg_fail(err, RG_E_UNSUPPORTED, "prepend_scheme '%.60s' is not supported", s.data);
}

enum { SEQUENCE_DEPTH = 8, SEQUENCE_PARTS = 64 };

static bool read_one(const rg_json_part *p, void *to, const json_t *v, rg_error *err)
{
    rg_string type;

    if (!rg_json_need_string(v, "type", &type, err))
        return rg_fail_prefix(err, "%s", p->name);
    for (size_t i = 0; i < p->n_rows; i++)
        if (!strcmp(p->rows[i].type, type.data))
            return p->rows[i].read(to, v, err) || rg_fail_prefix(err, "%s %s", p->name, type.data);
    return rg_fail(err, RG_E_UNSUPPORTED, "%s '%.60s' is not supported", p->name, type.data);
}

bool rg_json_read_part(const rg_json_part *p, void *to, const json_t *v, rg_error *err)
{
    struct level {
        const json_t *list;
        size_t at;
    } stack[SEQUENCE_DEPTH];
    int depth = 0, n_parts = 0;

    while (v || depth) {
        const json_t *type = json_object_get(v, "type");
        if (v && json_is_string(type) && !strcmp(json_string_value(type), "Sequence")) {
            const json_t *list = json_object_get(v, p->members);
            if (!json_is_array(list))
                return rg_fail(err, RG_E_INPUT, "%s: a Sequence without its list", p->name);
            if (depth == SEQUENCE_DEPTH)
                return rg_fail(err, RG_E_UNSUPPORTED, "%s: Sequences nested deeper than %d", p->name, SEQUENCE_DEPTH);
            stack[depth++] = (struct level){ list, 0 };
        } else if (v && !json_is_null(v)) {
            if (++n_parts > SEQUENCE_PARTS)
                return rg_fail(err, RG_E_UNSUPPORTED, "%s: more than %d parts", p->name, SEQUENCE_PARTS);
            if (!read_one(p, to, v, err))
                return false;
        }
        v = NULL;
        while (depth && !v)
            if (!(v = json_array_get(stack[depth - 1].list, stack[depth - 1].at++)))
                depth--;
    }
    return true;
}
