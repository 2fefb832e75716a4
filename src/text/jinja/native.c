/* native.c -- calling what is built in: names to functions, arguments to parameters. */
#include <string.h>

#include "text/jinja/internal.h"

#define METHOD(name, params, n_required) { #name, jj_m_##name, params, n_required, NULL, false },
#define METHOD_ANY(name) { #name, NULL, NULL, 0, jj_m_##name, false },
#define FILTER(name, fn, params, n_required)
#define FILTER_TEXT(name, fn, params, n_required)
#define FILTER_ANY(name)
const jj_def jj_str_methods[] = {
#include "text/jinja/builtins.def"
    { .name = NULL },
};
#undef METHOD
#undef METHOD_ANY
#undef FILTER
#undef FILTER_TEXT
#undef FILTER_ANY

#define METHOD(name, params, n_required)
#define METHOD_ANY(name)
#define FILTER(name, fn, params, n_required) { #name, fn, params, n_required, NULL, false },
#define FILTER_TEXT(name, fn, params, n_required) { #name, fn, params, n_required, NULL, true },
#define FILTER_ANY(name) { #name, NULL, NULL, 0, jj_f_##name, false },
static const jj_def filters[] = {
#include "text/jinja/builtins.def"
    { .name = NULL },
};

const jj_def *jj_find_def(const jj_def *table, const char *name, size_t n)
{
    for (const jj_def *d = table; d->name; d++)
        if (strlen(d->name) == n && !memcmp(d->name, name, n))
            return d;
    return NULL;
}

const jj_def *jj_find_filter(const jj_str *name)
{
    return jj_find_def(filters, jj_data(name), name->n);
}

const jj_def *jj_find_test(const jj_str *name)
{
    return jj_find_def(jj_tests, jj_data(name), name->n);
}

/* The number of the parameter of that name; -1: none. */
static int find_param(const char *params, const jj_str *name)
{
    int i = 0;

    for (const char *p = params; p && *p; i++) {
        size_t n = strcspn(p, " ");
        if (n == name->n && !memcmp(p, jj_data(name), n))
            return i;
        p += n + (p[n] == ' ');
    }
    return -1;
}

static int count_params(const char *params)
{
    int n = params && *params;

    for (const char *p = params; p && *p; p++)
        n += *p == ' ';
    return n;
}

bool jj_call_def(jj_ctx *c, const jj_def *d, jj_value self, const jj_args *a, jj_value *out)
{
    jj_value bound[JJ_MAX_PARAMS] = { 0 };
    int n = count_params(d->params);

    if (d->any)
        return d->any(c, self, a, out);
    if (!d->fn)
        return jj_fail(c, "%s() is not allowed here", d->name);
    if (a->n > (size_t)n)
        return jj_fail(c, "%s() takes at most %d arguments, and has %zu", d->name, n, a->n);
    for (size_t i = 0; i < a->n; i++)
        bound[i] = a->pos[i];
    for (size_t i = 0; i < a->n_kw; i++) {
        const jj_str *name = a->kw_name[i].s;
        int at = find_param(d->params, name);
        int len = name->n < 60 ? (int)name->n : 60;
        if (at < 0)
            return jj_fail(c, "%s() has no argument '%.*s'", d->name, len, jj_data(name));
        if (bound[at].type != JJ_MISSING)
            return jj_fail(c, "%s() has two values for '%.*s'", d->name, len, jj_data(name));
        bound[at] = a->kw[i];
    }
    for (int i = 0; i < d->n_required; i++)
        if (bound[i].type == JJ_MISSING)
            return jj_fail(c, "%s() wants at least %d arguments", d->name, d->n_required);
    return (!d->of_text || jj_soft(c, self, &self)) && d->fn(c, self, bound, out);
}

bool jj_call_test(jj_ctx *c, const jj_def *d, jj_value self, const jj_args *a, bool *out)
{
    jj_value v;

    if (!jj_call_def(c, d, self, a, &v))
        return false;
    *out = jj_truth(v);
    return true;
}

bool jj_arg_str(jj_ctx *c, jj_value v, const char *what, jj_str **out)
{
    if (v.type == JJ_MISSING)
        return true;
    if (v.type == JJ_UNDEFINED)
        return jj_fail_undefined(c, v);
    if (v.type != JJ_STR)
        return jj_fail(c, "%s is a %s where text is wanted", what, jj_type_name(v));
    *out = v.s;
    return true;
}

bool jj_arg_int(jj_ctx *c, jj_value v, const char *what, int64_t *out)
{
    if (v.type == JJ_MISSING || jj_as_index(v, out))
        return true;
    if (v.type == JJ_UNDEFINED)
        return jj_fail_undefined(c, v);
    return jj_fail(c, "%s is a %s where an int is wanted", what, jj_type_name(v));
}
