/* pick_filters.c -- map, select, reject and their like: lazy, as Python's generators are. */
#include <string.h>

#include "text/jinja/internal.h"

/* Arguments outlive the call. */
static bool keep_args(jj_ctx *c, const jj_args *a, size_t skip, jj_args *out)
{
    jj_value *copy = jj_array(c, a->n + 2 * a->n_kw + 1, sizeof *copy); /* fits: as many as lie on the stack */

    if (!copy)
        return false;
    skip = skip < a->n ? skip : a->n;
    *out = (jj_args){ copy, a->n - skip, copy + a->n, copy + a->n + a->n_kw, a->n_kw };
    for (size_t i = skip; i < a->n; i++)
        copy[i - skip] = a->pos[i];
    for (size_t i = 0; i < a->n_kw; i++) {
        copy[a->n + i] = a->kw_name[i];
        copy[a->n + a->n_kw + i] = a->kw[i];
    }
    return true;
}

static bool pick_attr(jj_ctx *c, jj_iter *it, jj_value item, bool *keep, jj_value *out)
{
    *keep = true;
    if (!jj_getpath(c, item, it->path, out))
        return false;
    if (out->type == JJ_UNDEFINED && it->otherwise.type != JJ_MISSING && it->otherwise.type != JJ_NONE)
        *out = it->otherwise;
    return true;
}

static bool pick_filtered(jj_ctx *c, jj_iter *it, jj_value item, bool *keep, jj_value *out)
{
    *keep = true;
    if (!jj_enter(c))
        return false;
    bool ok = jj_call_def(c, it->def, item, &it->args, out);
    jj_leave(c);
    return ok;
}

static bool pick_tested(jj_ctx *c, jj_iter *it, jj_value item, bool *keep, jj_value *out)
{
    jj_value subject;

    *out = item;
    if (!jj_enter(c) || !jj_getpath(c, item, it->path, &subject))
        return false;
    if (!it->def)
        *keep = jj_truth(subject);
    else if (!jj_call_test(c, it->def, subject, &it->args, keep))
        return false;
    jj_leave(c);
    *keep = *keep != it->negate;
    return true;
}

static bool is_keyword(const jj_args *a, size_t i, const char *name)
{
    return jj_str_is(a->kw_name[i].s, name);
}

static jj_iter *start(jj_ctx *c, jj_value self, jj_pick *pick)
{
    jj_value nothing;

    if (!jj_truth(self)) { /* of what is empty or None there is nothing to pick */
        if (!jj_new_list(c, &nothing, JJ_LIST, 0, false))
            return NULL;
        self = nothing;
    }
    return jj_iter_over(c, jj_iterate(c, self), pick);
}

bool jj_f_map(jj_ctx *c, jj_value self, const jj_args *a, jj_value *out)
{
    jj_iter *it = start(c, self, a->n ? pick_filtered : pick_attr);
    bool attribute = false;

    if (!it)
        return false;
    *out = (jj_value){ .type = JJ_ITER, .iter = it };
    if (a->n) {
        if (a->pos[0].type != JJ_STR || !(it->def = jj_find_filter(a->pos[0].s)))
            return jj_fail(c, "map: there is no such filter");
        return keep_args(c, a, 1, &it->args);
    }
    for (size_t i = 0; i < a->n_kw; i++) {
        if (is_keyword(a, i, "attribute")) {
            it->path = a->kw[i];
            attribute = true;
        } else if (is_keyword(a, i, "default")) {
            it->otherwise = a->kw[i];
        } else {
            return jj_fail(c, "map: an unexpected keyword argument");
        }
    }
    return attribute || jj_fail(c, "map requires a filter argument");
}

static bool choose(jj_ctx *c, jj_value self, const jj_args *a, bool attribute, bool negate, jj_value *out)
{
    jj_iter *it = start(c, self, pick_tested);
    size_t skip = attribute;

    if (!it)
        return false;
    it->negate = negate;
    *out = (jj_value){ .type = JJ_ITER, .iter = it };
    if (attribute && !a->n)
        return jj_fail(c, "the name of an attribute is missing");
    if (attribute)
        it->path = a->pos[0];
    if (a->n > skip) {
        if (a->pos[skip].type != JJ_STR || !(it->def = jj_find_test(a->pos[skip].s)))
            return jj_fail(c, "there is no such test");
        skip++;
    }
    return keep_args(c, a, skip, &it->args);
}

bool jj_f_select(jj_ctx *c, jj_value self, const jj_args *a, jj_value *out)
{
    return choose(c, self, a, false, false, out);
}

bool jj_f_reject(jj_ctx *c, jj_value self, const jj_args *a, jj_value *out)
{
    return choose(c, self, a, false, true, out);
}

bool jj_f_selectattr(jj_ctx *c, jj_value self, const jj_args *a, jj_value *out)
{
    return choose(c, self, a, true, false, out);
}

bool jj_f_rejectattr(jj_ctx *c, jj_value self, const jj_args *a, jj_value *out)
{
    return choose(c, self, a, true, true, out);
}
