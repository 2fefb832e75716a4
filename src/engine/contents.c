/* contents.c -- see contents.h.  The table is one of sets: a content may stand in any place of the set that its hash
 * names, and takes the place of the one that came least lately. */
#include "engine/contents.h"

#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"

enum { MOST_SETS = 1024 };

static const uint64_t ERA_SALT = 0xa0761d6478bd642f;

bool rg_contents_init(rg_contents *c, int64_t room, rg_error *err)
{
    *c = (rg_contents){ .n_sets = 1, .seed = rg_seed(), .next = RG_GIVEN - 1 };
    while (c->n_sets < MOST_SETS && (int64_t)c->n_sets * RG_CONTENT_WAYS < room)
        c->n_sets *= 2;
    c->all = rg_array(c->n_sets, RG_CONTENT_WAYS * sizeof *c->all);
    return c->all || rg_fail_memory(err, c->n_sets * RG_CONTENT_WAYS * sizeof *c->all);
}

void rg_contents_fini(rg_contents *c)
{
    rg_free(c->all);
    c->all = NULL;
}

/* The place of a content, or the one that it takes. */
static rg_content *place_of(const rg_contents *c, const rg_given_rows *g)
{
    rg_content *set = c->all + (rg_hash(g->hash, sizeof g->hash, c->seed) & (c->n_sets - 1)) * RG_CONTENT_WAYS;
    rg_content *oldest = set;

    for (rg_content *p = set; p < set + RG_CONTENT_WAYS; p++) {
        if (p->n == g->n && !memcmp(p->hash, g->hash, sizeof p->hash))
            return p;
        if (p->used < oldest->used)
            oldest = p;
    }
    oldest->n = 0;
    return oldest;
}

/* So many numbers are about to be used: without them, all that was numbered is forgotten. */
static void ensure(rg_contents *c, int64_t n)
{
    if (c->next - n >= INT32_MIN)
        return;
    memset(c->all, 0, c->n_sets * RG_CONTENT_WAYS * sizeof *c->all);
    c->next = RG_GIVEN - 1;
    c->era++;
}

uint64_t rg_contents_number(rg_contents *c, const rg_given_rows *given, int32_t n, int32_t *prompt)
{
    int64_t all = 0;

    for (int32_t i = 0; i < n; i++)
        all += given[i].n;
    ensure(c, all);
    for (int32_t i = 0; i < n; i++) {
        const rg_given_rows *g = &given[i];
        rg_content *p = place_of(c, g);

        if (!p->n) {
            *p = (rg_content){ .n = g->n, .first = c->next };
            memcpy(p->hash, g->hash, sizeof p->hash);
            c->next -= g->n;
        }
        p->used = ++c->clock;
        for (int32_t k = 0; k < g->n; k++)
            prompt[g->at + k] = p->first - k;
    }
    return c->era * ERA_SALT;
}

const float *rg_given_row(const rg_given_rows *given, int32_t n, int32_t dim, int32_t position)
{
    int32_t low = 0, high = n;

    while (low < high) { /* the first run that ends behind the position */
        const int32_t mid = low + (high - low) / 2;

        if (given[mid].at + given[mid].n <= position)
            low = mid + 1;
        else
            high = mid;
    }
    if (low == n || position < given[low].at)
        return NULL;
    return given[low].rows + (size_t)(position - given[low].at) * (size_t)dim;
}
