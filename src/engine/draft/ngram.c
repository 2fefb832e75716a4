/* ngram.c -- prompt lookup (Saxena 2023): answers that repeat parts of their prompt, or of themselves, go on as those
 * did.  Nothing is kept: each call searches the ids from the left. */
#include "engine/draft/ngram.h"

#include <string.h>

#include "base/mem.h"
#include "engine/draft/draft.h"

enum { MAX_SIZE = 3, DEPTH = 10 };

extern const rg_draft_kind rg_draft_ngram;

int32_t rg_ngram_find(const int32_t *ids, int32_t n, int32_t max_size)
{
    int32_t most = 0; /* nothing is like a given row */

    while (most < max_size && most < n - 1 && rg_is_id(ids[n - 1 - most]))
        most++;
    for (int32_t size = most; size > 0; size--) {
        const int32_t *last = ids + n - size;

        for (int32_t i = 0; i + size < n; i++)
            if (ids[i] == *last && !memcmp(ids + i, last, (size_t)size * sizeof *ids) && rg_is_id(ids[i + size]))
                return i + size;
    }
    return n;
}

static bool propose(rg_drafter *d, const rg_draft_ask *asks, int32_t n)
{
    (void)d;
    for (int32_t k = 0; k < n; k++) {
        const rg_draft_ask *a = &asks[k];
        int32_t at = rg_ngram_find(a->ids, a->n_ids, MAX_SIZE);

        for (int32_t i = at; i < a->n_ids && i - at < a->depth && rg_is_id(a->ids[i]); i++)
            rg_draft_add(a->draft, a->draft->n - 1, a->ids[i]);
    }
    return true;
}

static void close_it(rg_drafter *d)
{
    rg_free(d);
}

static rg_drafter *open_it(const rg_draft_options *o, rg_error *err)
{
    rg_drafter *d = rg_zalloc(sizeof *d);

    if (!d)
        return rg_fail_memory(err, sizeof *d), NULL;
    d->kind = &rg_draft_ngram;
    d->depth = o->max_draft;
    d->propose = propose;
    d->close = close_it;
    return d;
}

const rg_draft_kind rg_draft_ngram = { .name = "ngram", .max_draft = DEPTH, .open = open_it };
