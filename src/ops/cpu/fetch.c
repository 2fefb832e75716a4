/* fetch.c -- experts that lie in a file, read before their products are computed.
 *
 * What a layer will need is asked for as soon as it is known, and before that on a guess, so that the disk works while
 * something else is computed.  Pages are held from then on until the layer's own operation holds those that it needs;
 * wrong guesses are given up as soon as the layer's own choice is known, those that are not being read yet unread. */
#include "ops/cpu/reader.h"

#include <string.h>

#include "ops/cpu/paged.h"

static bool has_page(const rg_op *op, int page)
{
    for (int k = 0; k < 3 && op->w[k]; k++) {
        const rg_packed *p = rg_packed_of(op->w[k]->placed);

        if (page >= p->first_page && page < p->first_page + p->placed.n_mats)
            return true;
    }
    return false;
}

/* Release those of the first n fetched pages that belong to an operation's weights. */
static void drop(rg_moe_scratch *m, const rg_op *op, int n)
{
    int kept = 0;

    for (int i = 0; i < *m->n_fetched; i++)
        if (i < n && has_page(op, m->fetched[i]))
            rg_paged_release(rg_packed_of(op->w[0]->placed)->paged, m->fetched[i]);
        else
            m->fetched[kept++] = m->fetched[i];
    *m->n_fetched = kept;
}

void rg_cpu_drop_fetched(rg_cpu_reader *r, const rg_op *op)
{
    drop(&r->moe, op, *r->moe.n_fetched);
}

/* Hold an expert's matrices: those for which there is room. */
static void fetch_expert(rg_moe_scratch *m, const rg_op *op, int expert)
{
    for (int k = 0; k < 3 && op->w[k]; k++) {
        const rg_packed *p = rg_packed_of(op->w[k]->placed);

        if (*m->n_fetched < m->fetched_room && rg_paged_ask_ahead(p->paged, p->first_page + expert))
            m->fetched[(*m->n_fetched)++] = p->first_page + expert;
    }
}

/* One thread: the experts of all rows, each once. */
static void fetch_all(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    const rg_act *route = op->in[0];
    const int before = *r->moe.n_fetched;
    float *seen = rg_cpu_scratch(r, f);

    memset(seen, 0, (size_t)op->routing->n_experts * sizeof *seen);
    for (int row = 0; row < route->rows; row++)
        for (int k = 0; k < op->routing->n_used; k++) {
            int32_t expert;

            memcpy(&expert, rg_act_row(f, route, row) + k, sizeof expert);
            if (seen[expert] == 0.0f)
                fetch_expert(&r->moe, op, expert);
            seen[expert] = 1.0f;
        }
    drop(&r->moe, op, before);
}

void rg_cpu_fetch(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    RG_ASSERT(op->routing->n_experts <= r->sizes.max_experts);
    if (!rg_packed_of(op->w[0]->placed)->paged)
        return;
    if (rg_chunk_next(f, 1) == 0)
        fetch_all(r, f, op);
    rg_fwd_barrier(f);
}
