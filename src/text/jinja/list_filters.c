/* list_filters.c -- filters on lists and mappings: order, grouping, joining, taking. */
#include <string.h>

#include "text/jinja/internal.h"

bool jj_f_length(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)
{
    (void)arg;
    return jj_length(c, self, out);
}

bool jj_f_first(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)
{
    jj_iter *it = jj_iterate(c, self);

    (void)arg;
    if (!it || !jj_next(c, it, out))
        return false;
    return out->type != JJ_MISSING ||
           jj_undefined(c, out, JJ_WHY_HINT, "no first item, the sequence was empty", JJ_NOTHING);
}

static bool reversible(jj_value v)
{
    return jj_iterable(v) && v.type != JJ_ITER && v.type != JJ_LOOP;
}

bool jj_f_last(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)
{
    jj_iter *it;

    (void)arg;
    if (!reversible(self))
        return jj_fail(c, "'%s' object is not reversible", jj_type_name(self));
    if (self.type == JJ_STR && self.s->n)
        return jj_getitem(c, self, jj_int(-1), out);
    it = jj_iterate(c, self);
    if (!it)
        return false;
    it->backwards = true;
    if (!jj_next(c, it, out))
        return false;
    return out->type != JJ_MISSING ||
           jj_undefined(c, out, JJ_WHY_HINT, "no last item, the sequence was empty", JJ_NOTHING);
}

bool jj_f_list(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)
{
    (void)arg;
    return jj_to_list(c, self, out);
}

/* A list as what a generator gives. */
static bool lazily(jj_ctx *c, jj_value list, jj_value *out)
{
    jj_iter *it = jj_iterate(c, list);

    *out = (jj_value){ .type = JJ_ITER, .iter = it };
    return it;
}

bool jj_f_reverse(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)
{
    jj_iter *it;

    (void)arg;
    if (self.type == JJ_STR) {
        jj_buf *b = jj_buf_new(c, self.s->n, 0);
        size_t at = self.s->n, end = at;
        const char *p = jj_data(self.s);
        for (; b && at > 0; end = at) {
            do
                at--;
            while (((unsigned char)p[at] & 0xc0) == 0x80);
            if (!jj_charge(c, 48) || !jj_put_sub(c, b, self.s, at, end - at))
                return false;
        }
        return b && jj_give(out, jj_str_from(c, b));
    }
    it = reversible(self) || jj_to_list(c, self, out) ? jj_iterate(c, reversible(self) ? self : *out) : NULL;
    if (!it)
        return false;
    it->backwards = true;
    if (!reversible(self)) /* what cannot be walked back becomes a list */
        return jj_to_list(c, (jj_value){ .type = JJ_ITER, .iter = it }, out);
    *out = (jj_value){ .type = JJ_ITER, .iter = it };
    return it;
}

bool jj_f_join(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)
{
    jj_str *by = NULL;
    jj_buf *b = jj_buf_new(c, 64, 0);
    jj_iter *it = b ? jj_iterate(c, self) : NULL;
    jj_value item;

    if (!it || (arg[0].type != JJ_MISSING && !jj_to_str(c, arg[0], &by)))
        return false;
    for (bool first = true;; first = false) {
        if (!jj_step(c, arg[1].type == JJ_MISSING ? 2 : 8) || !jj_next(c, it, &item))
            return false;
        if (item.type == JJ_MISSING)
            return jj_give(out, jj_str_from(c, b));
        if (!jj_getpath(c, item, arg[1], &item) || (!first && by && !jj_put_str(c, b, by)) || !jj_print(c, b, item))
            return false;
    }
}

/* What to sort, group or compare by. */
static bool key_of(jj_ctx *c, jj_value item, jj_value path, bool as_is, jj_value *out)
{
    jj_str *s;

    if (!jj_getpath(c, item, path, out))
        return false;
    if (as_is || out->type != JJ_STR)
        return true;
    return jj_recase(c, out->s, JJ_LOWER, &s) && jj_give(out, s);
}

/* The keys of several attributes, "a,b", in a list. */
static bool keys_of(jj_ctx *c, jj_value item, jj_value paths, bool as_is, jj_value *out)
{
    jj_value key, path = paths;

    if (!jj_new_list(c, out, JJ_LIST, 1, false))
        return false;
    for (size_t at = 0, end;; at = end + 1) {
        end = paths.type == JJ_STR ? jj_str_find(paths.s, at, ",", 1) : SIZE_MAX;
        if (paths.type == JJ_STR &&
            !jj_give(&path, jj_str_sub(c, paths.s, at, (end == SIZE_MAX ? paths.s->n : end) - at)))
            return false;
        if (!jj_step(c, 2) || !key_of(c, item, path, as_is, &key) || !jj_list_add(c, out->list, key))
            return false;
        if (end == SIZE_MAX)
            return true;
    }
}

bool jj_f_sort(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)
{
    jj_value keys, key;

    if (!jj_to_list(c, self, out) || !jj_new_list(c, &keys, JJ_LIST, out->list->n, false))
        return false;
    for (size_t i = 0; i < out->list->n; i++)
        if (!keys_of(c, out->list->item[i], arg[2], jj_truth(arg[1]), &key) || !jj_list_add(c, keys.list, key))
            return false;
    return jj_sort(c, out->list, keys.list, jj_truth(arg[0]), out->list->n);
}

bool jj_f_unique(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)
{
    jj_value list, seen, key, kept;

    if (!jj_to_list(c, self, &list) || !jj_new_dict(c, &seen, false) ||
        !jj_new_list(c, &kept, JJ_LIST, 0, list.foreign))
        return false;
    for (size_t i = 0; i < list.list->n; i++) {
        size_t had = seen.dict->n;
        if (!jj_step(c, 4) || !key_of(c, list.list->item[i], arg[1], jj_truth(arg[0]), &key) ||
            !jj_dict_put(c, seen.dict, key, JJ_NULL))
            return false;
        if (seen.dict->n > had && !jj_list_add(c, kept.list, list.list->item[i]))
            return false;
    }
    return lazily(c, kept, out);
}

bool jj_f_groupby(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)
{
    bool as_is = jj_truth(arg[2]), same = false;
    jj_value items, keys, key, group, list, before = JJ_NOTHING;

    if (!jj_to_list(c, self, &items) || !jj_new_list(c, &keys, JJ_LIST, items.list->n, false) ||
        !jj_new_list(c, out, JJ_LIST, 0, items.foreign))
        return false;
    for (size_t i = 0; i < items.list->n; i++) {
        if (!jj_step(c, 8) || !key_of(c, items.list->item[i], arg[0], as_is, &key))
            return false;
        if (key.type == JJ_UNDEFINED && arg[1].type != JJ_MISSING && !key_of(c, arg[1], JJ_NULL, as_is, &key))
            return false;
        if (!jj_list_add(c, keys.list, key))
            return false;
    }
    if (!jj_sort(c, items.list, keys.list, false, items.list->n))
        return false;
    for (size_t i = 0; i < items.list->n; i++) {
        if (i && !jj_equal(c, before, keys.list->item[i], &same))
            return false;
        before = keys.list->item[i];
        if (!same) {
            if (!key_of(c, items.list->item[i], arg[0], true, &key))
                return false;
            key = key.type == JJ_UNDEFINED && arg[1].type != JJ_MISSING ? arg[1] : key;
            if (!jj_new_list(c, &list, JJ_LIST, 0, items.foreign) ||
                !jj_new_tuple2(c, &group, key, list, items.foreign))
                return false;
            group.sub = JJ_GROUP;
            if (!jj_list_add(c, out->list, group))
                return false;
        }
        if (!jj_list_add(c, list.list, items.list->item[i]))
            return false;
    }
    return true;
}

bool jj_f_batch(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)
{
    jj_value items, rows, row = JJ_NOTHING;
    int64_t width = 0;

    if (!jj_arg_int(c, arg[0], "batch", &width) || !jj_to_list(c, self, &items) ||
        !jj_new_list(c, &rows, JJ_LIST, 0, items.foreign))
        return false;
    for (size_t i = 0; i < items.list->n; i++) {
        if (row.type == JJ_MISSING || (int64_t)row.list->n == width) {
            if (!jj_new_list(c, &row, JJ_LIST, 0, items.foreign) || !jj_list_add(c, rows.list, row))
                return false;
        }
        if (!jj_list_add(c, row.list, items.list->item[i]))
            return false;
    }
    bool fill = arg[1].type != JJ_MISSING && arg[1].type != JJ_NONE && row.type != JJ_MISSING;
    while (fill && (int64_t)row.list->n < width)
        if (!jj_step(c, 1) || !jj_list_add(c, row.list, arg[1]))
            return false;
    return lazily(c, rows, out);
}

bool jj_f_slice(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)
{
    jj_value items, rows, row;
    int64_t n = 0;
    size_t at = 0;

    if (!jj_arg_int(c, arg[0], "slice", &n) || !jj_to_list(c, self, &items) ||
        !jj_new_list(c, &rows, JJ_LIST, 0, items.foreign))
        return false;
    if (!n)
        return jj_fail(c, "slice: division by zero");
    for (int64_t i = 0; i < n; i++) {
        size_t each = items.list->n / (size_t)n, over = items.list->n % (size_t)n;
        if (!jj_step(c, 4) || !jj_new_list(c, &row, JJ_LIST, 0, items.foreign) || !jj_list_add(c, rows.list, row))
            return false;
        for (size_t k = each + ((size_t)i < over); k; k--)
            if (!jj_list_add(c, row.list, items.list->item[at++]))
                return false;
        bool fill = (size_t)i >= over && arg[1].type != JJ_MISSING && arg[1].type != JJ_NONE;
        if (fill && !jj_list_add(c, row.list, arg[1]))
            return false;
    }
    return lazily(c, rows, out);
}

bool jj_f_items(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)
{
    (void)arg;
    if (self.type != JJ_DICT && self.type != JJ_UNDEFINED)
        return jj_fail(c, "items: a %s where a mapping is wanted", jj_type_name(self));
    if (self.type == JJ_DICT) {
        self.type = JJ_VIEW;
        self.sub = JJ_ITEMS;
    }
    return lazily(c, self, out);
}

bool jj_f_dictsort(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)
{
    bool by_value = arg[1].type == JJ_STR && jj_str_is(arg[1].s, "value");
    jj_value keys, key, pair;

    if (arg[1].type != JJ_MISSING && !by_value && !(arg[1].type == JJ_STR && jj_str_is(arg[1].s, "key")))
        return jj_fail(c, "You can only sort by either \"key\" or \"value\"");
    if (self.type == JJ_UNDEFINED)
        return jj_fail_undefined(c, self);
    if (self.type != JJ_DICT)
        return jj_fail(c, "dictsort: a %s where a mapping is wanted", jj_type_name(self));
    if (!jj_new_list(c, out, JJ_LIST, self.dict->n, self.foreign) ||
        !jj_new_list(c, &keys, JJ_LIST, self.dict->n, false))
        return false;
    for (size_t i = 0; i < self.dict->n; i++) {
        const jj_entry *e = &self.dict->entry[i];
        if (!key_of(c, by_value ? e->value : e->key, JJ_NULL, jj_truth(arg[0]), &key) ||
            !jj_list_add(c, keys.list, key) || !jj_new_tuple2(c, &pair, e->key, e->value, self.foreign) ||
            !jj_list_add(c, out->list, pair))
            return false;
    }
    return jj_sort(c, out->list, keys.list, jj_truth(arg[2]), self.dict->n);
}

static bool extreme(jj_ctx *c, jj_value self, const jj_value *arg, bool most, jj_value *out)
{
    jj_iter *it = jj_iterate(c, self);
    jj_value item, key, best = JJ_NOTHING;
    bool better = true;

    *out = JJ_NOTHING;
    while (it) {
        if (!jj_step(c, 2) || !jj_next(c, it, &item))
            return false;
        if (item.type == JJ_MISSING)
            break;
        if (!key_of(c, item, arg[1], jj_truth(arg[0]), &key))
            return false;
        if (best.type != JJ_MISSING && !jj_compare(c, most ? JJ_GT : JJ_LT, key, best, &better))
            return false;
        if (better) {
            best = key;
            *out = item;
        }
    }
    if (it && out->type == JJ_MISSING)
        return jj_undefined(c, out, JJ_WHY_HINT, "no aggregated item, the sequence was empty", JJ_NOTHING);
    return it;
}

bool jj_f_min(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)
{
    return extreme(c, self, arg, false, out);
}

bool jj_f_max(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)
{
    return extreme(c, self, arg, true, out);
}

bool jj_f_sum(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)
{
    jj_iter *it = jj_iterate(c, self);
    jj_value item, total = arg[1].type == JJ_MISSING ? jj_int(0) : arg[1];

    if (total.type == JJ_STR)
        return jj_fail(c, "sum() can't sum strings");
    while (it) {
        if (!jj_step(c, 1) || !jj_next(c, it, &item))
            return false;
        *out = total;
        if (item.type == JJ_MISSING)
            return true;
        if (!jj_getpath(c, item, arg[0], &item) || !jj_binary(c, JJ_ADD, total, item, out))
            return false;
        total = *out;
    }
    return false;
}

bool jj_f_default(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)
{
    bool lacks = self.type == JJ_UNDEFINED || (jj_truth(arg[1]) && !jj_truth(self));

    (void)c;
    *out = lacks ? arg[0] : self;
    return out->type != JJ_MISSING || jj_text(c, out, "");
}

bool jj_f_attr(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)
{
    jj_value name = { .type = JJ_STR };
    jj_attr a;

    if (self.type == JJ_UNDEFINED)
        return jj_fail_undefined(c, self);
    if (!jj_arg_str(c, arg[0], "attr: name", &name.s))
        return false;
    jj_attr_of(name, &a);
    if (!jj_own_attr(c, self, &a, out))
        return false;
    return out->type != JJ_MISSING || jj_undefined(c, out, JJ_WHY_ATTR, jj_type_name(self), name);
}
