/* cut.c -- see cut.h. */
#include "text/cut.h"

#include <string.h>

#include "ridge.h"
#include "text/internal.h"

/* The first so many of n that are left, or the last. */
static void keep(int32_t *ids, size_t n, size_t left, bool keep_end)
{
    if (keep_end)
        memmove(ids, ids + (n - left), left * sizeof *ids);
}

static bool begins_with(const int32_t *ids, size_t n, const int32_t *with, size_t n_with)
{
    return n >= n_with && !memcmp(ids, with, n_with * sizeof *ids);
}

size_t rg_tokenizer_cut(const rg_tokenizer *t, int32_t *ids, size_t n, const rg_cut *cut)
{
    const rg_around *a = &t->around;
    size_t before = (size_t)a->n_before, after = (size_t)a->n_after;

    if (!cut->most || n <= cut->most)
        return n;
    if (!begins_with(ids, n, a->before, before))
        before = 0;
    if (n < before + after || !begins_with(ids + n - after, after, a->after, after))
        after = 0;
    if (cut->most < before + after)
        return cut->most;
    const size_t left = cut->most - before - after;

    keep(ids + before, n - before - after, left, cut->keep_end);
    memmove(ids + before + left, ids + n - after, after * sizeof *ids);
    return cut->most;
}

/* Ids that are left of two texts, n of each, where both together may have `most`: the longer one is cut until they are
 * equally long, then both. */
static void share(size_t n[2], size_t most)
{
    const int small = n[0] > n[1], large = !small;

    if (n[0] + n[1] <= most)
        return;
    if (n[small] + n[small] <= most) {
        n[large] = most - n[small];
        return;
    }
    n[small] = most / 2;
    n[large] = most - n[small];
}

static bool add_all(rg_ids *ids, const int32_t *id, size_t n, rg_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (!rg_ids_add(ids, id[i], err))
            return false;
    return true;
}

/* The texts, each with so many of its ids, as the template puts them together. */
static bool assemble(const rg_tokenizer *t, rg_ids part[2], const size_t left[2], unsigned flags, rg_pair_ids *out,
                     rg_error *err)
{
    for (int i = 0; i < t->pair.n; i++) {
        const int32_t item = t->pair.item[i];
        const int which = item == RG_AROUND_SECOND;

        if (t->pair.type[i] && !out->second)
            out->second = (int32_t)out->ids.n;
        if (item >= 0 ? !(flags & RG_ENCODE_NO_SPECIAL) && !rg_ids_add(&out->ids, item, err)
                      : !add_all(&out->ids, part[which].id, left[which], err))
            return false;
    }
    return true;
}

bool rg_tokenizer_encode_pair_cut(const rg_tokenizer *t, const rg_string text[2], unsigned flags, const rg_cut *cut,
                                  rg_pair_ids *out, rg_error *err)
{
    rg_ids part[2] = { { 0 } };
    size_t left[2], special = 0;
    bool ok =
        t->pair.n || rg_fail(err, RG_E_UNSUPPORTED, "the tokenizer's template for pairs of texts is not supported");

    for (int i = 0; i < t->pair.n; i++)
        special += t->pair.item[i] >= 0 && !(flags & RG_ENCODE_NO_SPECIAL);
    for (int i = 0; ok && i < 2; i++)
        ok = rg_tokenizer_encode(t, text[i].data, text[i].n, flags | RG_ENCODE_NO_SPECIAL, &part[i], err);
    left[0] = part[0].n;
    left[1] = part[1].n;
    if (cut->most)
        share(left, cut->most > special ? cut->most - special : 0);
    for (int i = 0; ok && i < 2; i++)
        keep(part[i].id, part[i].n, left[i], cut->keep_end);
    ok = ok && assemble(t, part, left, flags, out, err);
    rg_ids_fini(&part[0]);
    rg_ids_fini(&part[1]);
    return ok;
}

bool rg_tokenizer_encode_pair(const rg_tokenizer *t, const rg_string text[2], unsigned flags, rg_ids *ids,
                              int32_t *second, rg_error *err)
{
    rg_pair_ids out = { 0 };
    bool ok = rg_tokenizer_encode_pair_cut(t, text, flags, &(rg_cut){ 0 }, &out, err) &&
              add_all(ids, out.ids.id, out.ids.n, err);

    *second = out.second;
    rg_ids_fini(&out.ids);
    return ok;
}
