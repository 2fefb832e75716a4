/* jacobi.c -- Jacobi decoding (2305.10427): a block of ids is guessed, and every step replaces each by what the model
 * draws there, until nothing changes.
 *
 * The guess of a new block is the answer's last id, repeated.  What a step draws after the ids that turned out right is
 * the next guess for those behind them.  A block ends with its last id, whose row nobody needs: a draft has one id less
 * than the block. */
#include <string.h>

#include "base/mem.h"
#include "engine/draft/draft.h"

enum { BLOCK = 8 };

extern const rg_draft_kind rg_draft_jacobi;

typedef struct block {
    int32_t at; /* ids of the prompt and the answer before the first guess */
    int32_t n, id[RG_MAX_DRAFT + 1]; /* guesses of the ids that are not certain yet */
} block;

typedef struct jacobi {
    rg_drafter d; /* first */
    int32_t size; /* of a block */
    block *lanes; /* [n_lanes] */
} jacobi;

static void begin(rg_drafter *d, int32_t lane)
{
    ((jacobi *)d)->lanes[lane].n = 0;
}

/* The answer has n_ids ids by now, maybe by steps that nobody asked this drafter about: forget the guesses of them. */
static void forget_known(block *b, int32_t n_ids)
{
    int32_t gained = n_ids - b->at;

    b->at = n_ids;
    if (gained < 0 || gained >= b->n) {
        b->n = 0;
        return;
    }
    b->n -= gained;
    memmove(b->id, b->id + gained, (size_t)b->n * sizeof *b->id);
}

static bool propose(rg_drafter *d, const rg_draft_ask *asks, int32_t n)
{
    jacobi *j = (jacobi *)d;

    for (int32_t i = 0; i < n; i++) {
        const rg_draft_ask *a = &asks[i];
        block *b = &j->lanes[a->lane];

        forget_known(b, a->n_ids);
        if (!b->n && !rg_is_id(a->ids[a->n_ids - 1]))
            continue;
        for (; !b->n; b->n = j->size)
            for (int32_t k = 0; k < j->size; k++)
                b->id[k] = a->ids[a->n_ids - 1];
        for (int32_t k = 0; k < b->n - 1 && k < a->depth; k++)
            rg_draft_add(a->draft, k - 1, b->id[k]);
    }
    return true;
}

/* The answer has gained n_path + 1 ids; what was drawn behind those is the new guess. */
static void checked(rg_drafter *d, const rg_draft_result *r)
{
    block *b = &((jacobi *)d)->lanes[r->lane];
    for (int32_t k = 0; k < b->n; k++)
        if (k <= r->draft->n && r->drawn[k] >= 0)
            b->id[k] = r->drawn[k];
    forget_known(b, b->at + r->n_path + 1);
}

static void close_it(rg_drafter *d)
{
    jacobi *j = (jacobi *)d;

    rg_free(j->lanes);
    rg_free(j);
}

static rg_drafter *open_it(const rg_draft_options *o, rg_error *err)
{
    jacobi *j = rg_zalloc(sizeof *j);

    if (!j)
        return rg_fail_memory(err, sizeof *j), NULL;
    j->d = (rg_drafter){ .kind = &rg_draft_jacobi, .depth = o->max_draft, .propose = propose, .begin = begin,
                         .checked = checked, .close = close_it };
    j->size = o->max_draft + 1;
    j->lanes = rg_array((size_t)o->n_lanes, sizeof *j->lanes);
    if (!j->lanes) {
        close_it(&j->d);
        return rg_fail_memory(err, (size_t)o->n_lanes * sizeof *j->lanes), NULL;
    }
    memset(j->lanes, 0, (size_t)o->n_lanes * sizeof *j->lanes);
    return &j->d;
}

const rg_draft_kind rg_draft_jacobi = { .name = "jacobi", .max_draft = BLOCK - 1, .open = open_it };
