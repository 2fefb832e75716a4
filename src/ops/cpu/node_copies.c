/* node_copies.c -- see node_copies.h. */
#include "ops/cpu/node_copies.h"

#include <string.h>

#include "base/mem.h"
#include "base/pool.h"
#include "ops/cpu/pack.h"

struct rg_node_copies {
    rg_reader reader; /* first */
    const rg_weight *all;
    int n, n_nodes;
    rg_weight *weights; /* [n_nodes - 1][n]: as all, with copies where a weight is packed */
    rg_packed *packed;  /* [n_nodes - 1][n]; no data: no copy */
};

static const rg_weight *on_node(const rg_node_copies *c, const rg_weight *w, int node)
{
    const ptrdiff_t i = node && w >= c->all && w < c->all + c->n ? w - c->all : -1; /* some may be another model's */

    return i < 0 ? w : &c->weights[(size_t)(node - 1) * (size_t)c->n + (size_t)i];
}

static void run_copies(const rg_reader *self, rg_fwd *f, const rg_op *op)
{
    const rg_node_copies *c = (const rg_node_copies *)self;
    rg_op mine = *op;

    for (size_t i = 0; i < RG_LEN(mine.w); i++)
        mine.w[i] = on_node(c, op->w[i], (int)((int64_t)f->thread * c->n_nodes / f->n_threads));
    self->inner->run(self->inner, f, &mine);
}

static bool copy(rg_node_copies *c, const rg_packed *from, int node, int i, rg_error *err)
{
    const size_t at = (size_t)(node - 1) * (size_t)c->n + (size_t)i;
    rg_packed *to = &c->packed[at];
    uint8_t *data = rg_region_new(from->placed.bytes);

    if (!data)
        return rg_fail_memory(err, from->placed.bytes);
    rg_region_to_node(data, from->placed.bytes, node);
    memcpy(data, from->data, from->placed.bytes);
    *to = *from;
    to->data = data;
    c->weights[at].placed = &to->placed;
    return true;
}

rg_node_copies *rg_node_copies_new(const rg_weight *all, int n, int n_nodes, rg_error *err)
{
    const size_t n_copies = (size_t)(n_nodes - 1) * (size_t)n;
    rg_node_copies *c = rg_zalloc(sizeof *c);
    bool ok = c != NULL;

    if (ok) {
        *c = (rg_node_copies){ .reader.run = run_copies, .all = all, .n = n, .n_nodes = n_nodes };
        c->weights = rg_array(n_copies, sizeof *c->weights);
        c->packed = rg_array(n_copies, sizeof *c->packed);
        ok = c->weights && c->packed;
    }
    if (!ok)
        rg_fail_memory(err, n_copies * (sizeof *c->weights + sizeof *c->packed));
    for (int node = 0; ok && node < n_nodes; node++) {
        if (node)
            memcpy(c->weights + (size_t)(node - 1) * (size_t)n, all, (size_t)n * sizeof *all);
        for (int i = 0; ok && i < n; i++) {
            const rg_packed *p = rg_packed_of(all[i].placed);
            if (p && p->data && !node)
                rg_region_to_node(p->data, p->placed.bytes, 0);
            else if (p && p->data)
                ok = copy(c, p, node, i, err);
        }
    }
    if (ok)
        return c;
    rg_node_copies_free(c);
    return NULL;
}

void rg_node_copies_free(rg_node_copies *c)
{
    if (!c)
        return;
    for (size_t i = 0; c->packed && i < (size_t)(c->n_nodes - 1) * (size_t)c->n; i++)
        rg_region_free(c->packed[i].data, c->packed[i].placed.bytes);
    rg_free(c->packed);
    rg_free(c->weights);
    rg_free(c);
}

const rg_reader *rg_node_copies_wrap(rg_node_copies *c, const rg_reader *inner)
{
    c->reader.inner = inner;
    return &c->reader;
}
