/* trie.c -- see trie.h.  Level by level: a node is a range of sorted pieces that share their beginning, and its
 * children are the ranges within it that share one byte more. */
#include "text/trie.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { MAX_NODES = 1 << 26 };

typedef struct entry {
    rg_string piece;
    int32_t id;
} entry;

static int compare(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    int c = memcmp(x->piece.data, y->piece.data, x->piece.n < y->piece.n ? x->piece.n : y->piece.n);

    return c ? c : x->piece.n != y->piece.n ? (x->piece.n > y->piece.n) - (x->piece.n < y->piece.n)
                                            : (x->id > y->id) - (x->id < y->id);
}

typedef struct range {
    uint32_t from, to, depth;
} range;

typedef struct builder {
    rg_trie *t;
    const entry *e;
    range *of; /* of each node */
    uint32_t room;
} builder;

static bool add_node(builder *b, uint8_t label, range of, rg_error *err)
{
    rg_trie *t = b->t;

    if (t->n == b->room) {
        uint32_t room = b->room ? 2 * b->room : 1024;
        rg_trie_node *node;
        range *ranges;
        if (room > MAX_NODES)
            return rg_fail(err, RG_E_LIMIT, "the pieces have more than %d different beginnings", MAX_NODES);
        node = rg_resize_array(t->node, room, sizeof *node);
        if (!node)
            return rg_fail_memory(err, room * sizeof *node);
        t->node = node;
        ranges = rg_resize_array(b->of, room, sizeof *ranges);
        if (!ranges)
            return rg_fail_memory(err, room * sizeof *ranges);
        b->of = ranges;
        b->room = room;
    }
    t->node[t->n] = (rg_trie_node){ .label = label, .id = -1 };
    b->of[t->n++] = of;
    return true;
}

/* The children of node i. */
static bool add_children(builder *b, uint32_t i, rg_error *err)
{
    range r = b->of[i];
    uint32_t first = b->t->n;

    for (; r.from < r.to && b->e[r.from].piece.n == r.depth; r.from++)
        b->t->node[i].id = b->e[r.from].id;
    while (r.from < r.to) {
        uint8_t label = (uint8_t)b->e[r.from].piece.data[r.depth];
        uint32_t to = r.from;
        while (to < r.to && (uint8_t)b->e[to].piece.data[r.depth] == label)
            to++;
        if (!add_node(b, label, (range){ r.from, to, r.depth + 1 }, err))
            return false;
        r.from = to;
    }
    if (b->t->n > first) {
        b->t->node[i].child = first;
        b->t->node[i].children = (uint16_t)(b->t->n - first);
    }
    return true;
}

bool rg_trie_init(rg_trie *t, const rg_vocab *v, bool (*keep)(const rg_vocab *v, int32_t id), rg_error *err)
{
    entry *e = rg_zalloc_tail(sizeof *e, (size_t)v->n, sizeof *e);
    builder b = { .t = t, .e = e };
    uint32_t n = 0;
    bool ok = e;

    *t = (rg_trie){ 0 };
    if (!e)
        return rg_fail_memory(err, (size_t)v->n * sizeof *e);
    for (int32_t id = 0; id < v->n; id++)
        if (v->piece[id].n && (!keep || keep(v, id)))
            e[n++] = (entry){ v->piece[id], id };
    qsort(e, n, sizeof *e, compare);
    ok = add_node(&b, 0, (range){ 0, n, 0 }, err);
    for (uint32_t i = 0; ok && i < t->n; i++)
        ok = add_children(&b, i, err);
    for (uint32_t k = 0; ok && k < t->node[0].children; k++)
        t->first[t->node[t->node[0].child + k].label] = t->node[0].child + k;
    rg_free(b.of);
    rg_free(e);
    return ok;
}

void rg_trie_fini(rg_trie *t)
{
    rg_free(t->node);
    *t = (rg_trie){ 0 };
}
