/* iter.c -- going through values one by one, lazily as Python's generators do, and what a loop knows of itself. */
#include <string.h>

#include "text/jinja/internal.h"

enum { MAX_CHAIN = 100 }; /* generators over generators: each is a C call deep */

bool jj_iterable(jj_value v)
{
    switch (v.type) {
    case JJ_UNDEFINED: case JJ_STR: case JJ_LIST: case JJ_TUPLE: case JJ_DICT: case JJ_VIEW: case JJ_RANGE:
    case JJ_ITER: case JJ_LOOP:
        return true;
    default:
        return false;
    }
}

jj_iter *jj_iterate(jj_ctx *c, jj_value v)
{
    jj_iter *it;

    if (v.type == JJ_ITER)
        return v.iter;
    if (!jj_iterable(v) || v.type == JJ_LOOP)
        return jj_fail(c, "'%s' object is not iterable", jj_type_name(v)), NULL;
    it = jj_array(c, 1, sizeof *it);
    if (it)
        it->of = v;
    return it;
}

jj_iter *jj_iter_over(jj_ctx *c, jj_iter *from, jj_pick *pick)
{
    jj_iter *it;

    if (!from)
        return NULL;
    it = jj_array(c, 1, sizeof *it);
    if (!it)
        return NULL;
    it->from = from;
    it->pick = pick;
    it->chain = from->chain + 1;
    if (it->chain > MAX_CHAIN)
        return jj_over(c, "too many filters behind one another"), NULL;
    return it;
}

/* How many items, where that is known; of a string: its bytes. */
static size_t count(jj_value v)
{
    switch (v.type) {
    case JJ_STR:
        return v.s->n;
    case JJ_LIST: case JJ_TUPLE:
        return v.list->n;
    case JJ_DICT: case JJ_VIEW:
        return v.dict->n;
    case JJ_RANGE:
        return v.range->n;
    default:
        return 0;
    }
}

static bool next_char(jj_ctx *c, jj_iter *it, jj_value *out)
{
    const jj_str *s = it->of.s;
    const unsigned char *p = (const unsigned char *)jj_data(s) + it->at;
    size_t n = *p < 0x80 ? 1 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : 4;

    if (!jj_give(out, jj_str_sub(c, s, it->at, n)))
        return false;
    out->s->points = 1;
    it->at += n;
    return true;
}

static bool item_at(jj_ctx *c, jj_value v, size_t at, jj_value *out)
{
    switch (v.type) {
    case JJ_LIST: case JJ_TUPLE:
        *out = v.list->item[at];
        return true;
    case JJ_DICT:
        *out = v.dict->entry[at].key;
        return true;
    case JJ_RANGE:
        *out = jj_int(v.range->start + (int64_t)at * v.range->step);
        return true;
    default:
        if (v.sub == JJ_ITEMS)
            return jj_new_tuple2(c, out, v.dict->entry[at].key, v.dict->entry[at].value, v.foreign);
        *out = v.sub == JJ_KEYS ? v.dict->entry[at].key : v.dict->entry[at].value;
        return true;
    }
}

bool jj_next(jj_ctx *c, jj_iter *it, jj_value *out)
{
    bool keep = false;
    jj_value item;
    size_t n;

    if (!it->from) {
        n = count(it->of);
        *out = JJ_NOTHING;
        if (it->at >= n)
            return true;
        if (it->of.type == JJ_STR)
            return next_char(c, it, out);
        it->at++;
        return item_at(c, it->of, it->backwards ? n - it->at : it->at - 1, out);
    }
    while (!keep) {
        if (!jj_step(c, 1) || !jj_next(c, it->from, &item))
            return false;
        *out = item;
        if (item.type == JJ_MISSING)
            return true;
        if (!it->pick(c, it, item, &keep, out))
            return false;
    }
    return true;
}

bool jj_to_list(jj_ctx *c, jj_value v, jj_value *out)
{
    jj_iter *it = jj_iterate(c, v);
    jj_value item;

    size_t room = v.type == JJ_STR || v.type == JJ_ITER ? 0 : count(v);

    if (!it || !jj_new_list(c, out, JJ_LIST, room, v.foreign))
        return false;
    for (;;) {
        if (!jj_step(c, 1) || !jj_next(c, it, &item))
            return false;
        if (item.type == JJ_MISSING)
            return true;
        if (!jj_list_add(c, out->list, item))
            return false;
    }
}

/* ---- sorting: merges from the bottom up ---- */

typedef struct sorter {
    jj_ctx *c;
    bool reverse;
    jj_value *item, *key, *item2, *key2;
    size_t n;
} sorter;

static bool merge(sorter *s, size_t lo, size_t mid, size_t hi)
{
    for (size_t i = lo, j = mid, k = lo; k < hi; k++) {
        bool right = i == mid;
        if (i < mid && j < hi) {
            const jj_value *a = &s->key[s->reverse ? i : j], *b = &s->key[s->reverse ? j : i];
            if (!jj_step(s->c, 1) || !jj_compare(s->c, JJ_LT, *a, *b, &right))
                return false;
        }
        s->item2[k] = s->item[right ? j : i];
        s->key2[k] = s->key[right ? j : i];
        if (right)
            j++;
        else
            i++;
    }
    return true;
}

bool jj_sort(jj_ctx *c, jj_list *item, jj_list *key, bool reverse, size_t n)
{
    sorter s = { c, reverse, item->item, key->item, NULL, NULL, n };

    s.item2 = jj_array(c, n, sizeof *s.item2);
    s.key2 = jj_array(c, n, sizeof *s.key2);
    if (!s.item2 || !s.key2)
        return false;
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t lo = 0; lo < n; lo += 2 * width) {
            size_t mid = lo + width < n ? lo + width : n, hi = lo + 2 * width < n ? lo + 2 * width : n;
            if (!merge(&s, lo, mid, hi))
                return false;
        }
        jj_value *t = s.item;
        s.item = s.item2;
        s.item2 = t;
        t = s.key;
        s.key = s.key2;
        s.key2 = t;
    }
    item->item = s.item;
    key->item = s.key;
    item->room = key->room = item->n = key->n = n;
    return true;
}

/* ---- loops ---- */

bool jj_loop_next(jj_ctx *c, jj_loop *l, jj_value *out)
{
    if (l->after.type != JJ_MISSING) {
        *out = l->after;
        l->after = JJ_NOTHING;
    } else if (!jj_next(c, l->iter, out)) {
        return false;
    }
    if (out->type == JJ_MISSING)
        return true;
    l->index0++;
    l->before = l->current;
    l->current = *out;
    return true;
}

static bool peek(jj_ctx *c, jj_loop *l)
{
    return l->after.type != JJ_MISSING || jj_next(c, l->iter, &l->after);
}

static bool loop_length(jj_ctx *c, jj_loop *l)
{
    jj_value rest, whole;

    if (l->length >= 0)
        return true;
    if (l->iterable.type != JJ_ITER) {
        if (!jj_length(c, l->iterable, &whole))
            return false;
        l->length = whole.i;
        return true;
    }
    if (!jj_to_list(c, (jj_value){ .type = JJ_ITER, .iter = l->iter }, &rest))
        return false;
    l->length = (int64_t)rest.list->n + l->index0 + 1 + (l->after.type != JJ_MISSING);
    return (l->iter = jj_iterate(c, rest));
}

bool jj_loop_attr(jj_ctx *c, jj_loop *l, const jj_str *name, jj_value *out, bool *found)
{
    *found = true;
    if (jj_str_is(name, "index"))
        *out = jj_int(l->index0 + 1);
    else if (jj_str_is(name, "index0"))
        *out = jj_int(l->index0);
    else if (jj_str_is(name, "first"))
        *out = jj_bool(l->index0 == 0);
    else if (jj_str_is(name, "depth"))
        *out = jj_int(l->depth0 + 1);
    else if (jj_str_is(name, "depth0"))
        *out = jj_int(l->depth0);
    else if (jj_str_is(name, "last"))
        return peek(c, l) && (*out = jj_bool(l->after.type == JJ_MISSING), true);
    else if (jj_str_is(name, "length") || jj_str_is(name, "revindex") || jj_str_is(name, "revindex0")) {
        if (!loop_length(c, l))
            return false;
        *out = jj_int(name->n == 6 ? l->length : l->length - l->index0 - (name->n == 9));
    } else if (jj_str_is(name, "previtem")) {
        *out = l->before;
        return l->index0 != 0 || jj_undefined(c, out, JJ_WHY_HINT, "there is no previous item", JJ_NOTHING);
    } else if (jj_str_is(name, "nextitem")) {
        if (!peek(c, l))
            return false;
        *out = l->after;
        return l->after.type != JJ_MISSING || jj_undefined(c, out, JJ_WHY_HINT, "there is no next item", JJ_NOTHING);
    } else {
        *found = false;
    }
    return true;
}

static bool loop_cycle(jj_ctx *c, jj_value self, const jj_args *a, jj_value *out)
{
    if (!a->n)
        return jj_fail(c, "cycle() has no items");
    *out = a->pos[(size_t)self.loop->index0 % a->n];
    return true;
}

static bool loop_changed(jj_ctx *c, jj_value self, const jj_args *a, jj_value *out)
{
    jj_loop *l = self.loop;
    jj_value now, before = { .type = JJ_TUPLE, .list = l->changed };
    bool same = false;

    if (!jj_new_list(c, &now, JJ_TUPLE, a->n, false))
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (!jj_list_add(c, now.list, a->pos[i]))
            return false;
    if (l->changed && !jj_equal(c, before, now, &same))
        return false;
    l->changed = now.list;
    *out = jj_bool(!same);
    return true;
}

const jj_def jj_loop_methods[] = {
    { .name = "cycle", .any = loop_cycle }, { .name = "changed", .any = loop_changed }, { NULL },
};
