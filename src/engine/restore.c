/* restore.c -- see restore.h.
 *
 * A node of the index has a name in files if all ids up to its end are ids (rows that were given have numbers that mean
 * something to this process alone).  Blocks that arrive are held until all have, so that none of them makes way for
 * another one. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/states.h"

enum { PUT_AGAIN_S = 600 }; /* what is still in use is handed over again: files make way by age */

typedef struct restore {
    rg_seek *seek; /* NULL: this one is free */
    rg_restore_of of;
    rg_node *tail;  /* of the path that was made so far, pinned, */
    int32_t n_path; /*   with so many nodes */
    int32_t *held;  /* [n_groups][max_blocks] blocks that have arrived; -1: none */
    bool given_up;
} restore;

struct rg_restores {
    int32_t max_blocks;
    restore all[RG_SEEKS];
};

static uint32_t now_s(void)
{
    return (uint32_t)(rg_now_ns() / 1000000000u);
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

static bool are_ids(const int32_t tokens[RG_BLOCK])
{
    for (int i = 0; i < RG_BLOCK; i++)
        if (!rg_is_id(tokens[i]))
            return false;
    return true;
}

/* Name a node that comes after its parent by these ids.  False: it has no name. */
static bool name_node(const rg_states *s, rg_node *node, const rg_block_name *scope, const int32_t tokens[RG_BLOCK])
{
    rg_node_files *f = rg_prefix_node_files(node), *above;
    rg_node *parent = rg_prefix_parent(node);
    rg_block_name root;

    if (f->is_named)
        return true;
    above = parent ? rg_prefix_node_files(parent) : NULL;
    if ((above && !above->is_named) || !are_ids(tokens))
        return false;
    if (!above)
        root = rg_durable_root(s->durable, scope);
    f->name = rg_durable_after(above ? &above->name : &root, tokens);
    return f->is_named = true;
}

/* ---- handing over ------------------------------------------------------------------------------------------------ */

/* False: there is no room for more now. */
static bool put_block(const rg_states *s, rg_node *node, int g, int32_t depth)
{
    const rg_node_files *f = rg_prefix_node_files(node);
    const rg_block_place at = { .name = f->name, .group = g, .depth = depth };
    void *to = rg_durable_room(s->durable);

    if (!to)
        return false;
    if (!rg_store_save(s->store, g, rg_prefix_block(s->prefix, node, g), to)) {
        rg_durable_drop_room(s->durable, to);
        return false;
    }
    rg_durable_put(s->durable, to, &at);
    return true;
}

/* Hand over what a node has and was not handed over lately.  False: there is no room for more now. */
static bool put_node(const rg_states *s, rg_node *node, int32_t depth)
{
    rg_node_files *f = rg_prefix_node_files(node);
    const uint32_t has = rg_prefix_has(s->prefix, node), now = now_s();

    if (!f->is_named)
        return true;
    if (now - f->put_s > PUT_AGAIN_S)
        f->put = 0;
    for (int g = 0; g < s->spec.n_groups; g++) {
        if (!(has >> g & 1) || f->put >> g & 1 || !rg_path_needs(&s->spec, g, depth, depth + 1))
            continue;
        if (!put_block(s, node, g, depth))
            return false;
        f->put |= (uint16_t)(1u << g);
        f->put_s = now;
    }
    return true;
}

void rg_states_put(const rg_states *s, const rg_seq *q, const int32_t *tokens)
{
    const int32_t depth = q->n_published - 1;

    if (s->durable && q->tail && name_node(s, q->tail, &q->scope, tokens + (size_t)depth * RG_BLOCK))
        (void)put_node(s, q->tail, depth); /* else when the path is used again */
}

void rg_states_put_path(const rg_states *s, const rg_seq *q)
{
    int32_t depth = q->n_published;

    for (rg_node *n = s->durable ? q->tail : NULL; n && put_node(s, n, --depth);)
        n = rg_prefix_parent(n);
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */

/* Blocks of the prompt that may come from files: whole ones of ids, before its last id, for which there is room. */
static int32_t most_blocks(const rg_states *s, const rg_restore_of *of)
{
    int32_t n = of->n > 0 ? (of->n - 1) / RG_BLOCK : 0;

    n = n < s->restores->max_blocks ? n : s->restores->max_blocks;
    for (int g = 0; g < s->spec.n_groups; g++)
        if (rg_group_grows(&s->spec.group[g]) && rg_blocks_available(s->pools[g]) < n)
            n = rg_blocks_available(s->pools[g]);
    return n;
}

/* Name the prompt's blocks, up to one that has no name. */
static void name_blocks(const rg_states *s, const rg_restore_of *of, int32_t n, int32_t n_matched, rg_seek *k)
{
    rg_block_name before = rg_durable_root(s->durable, &of->scope);

    for (k->n = 0; k->n < n; k->n++) {
        const int32_t *tokens = of->tokens + (size_t)k->n * RG_BLOCK;
        rg_node *node = k->n < n_matched ? s->path[k->n] : NULL;
        const rg_node_files *f = node ? rg_prefix_node_files(node) : NULL;

        if (!are_ids(tokens))
            return;
        before = f && f->is_named ? f->name : rg_durable_after(&before, tokens);
        k->names[k->n] = before;
        k->has[k->n] = node ? (uint16_t)rg_prefix_has(s->prefix, node) : 0;
    }
}

rg_restoring rg_states_restore(rg_states *s, const rg_restore_of *what)
{
    int32_t n_matched, n_known, n = s->durable ? most_blocks(s, what) : 0;
    restore *x = s->durable ? s->restores->all : NULL;
    rg_seek *k;

    if (!n)
        return RG_RESTORE_NOTHING;
    n_known = rg_prefix_match(s->prefix, what->tokens, what->n, what->salt, s->path, &n_matched) / RG_BLOCK;
    if (n_known >= n)
        return RG_RESTORE_NOTHING;
    k = rg_durable_seek(s->durable);
    if (!k)
        return RG_RESTORE_LATER;
    while (x->seek)
        x++;
    x->seek = k;
    x->of = *what;
    x->given_up = false;
    k->owner = x;
    k->n_known = n_known;
    name_blocks(s, what, n, n_matched / RG_BLOCK, k);
    rg_durable_start(s->durable, k);
    return RG_RESTORE_BEGUN;
}

/* ---- arriving ---------------------------------------------------------------------------------------------------- */

static int32_t *held(const rg_states *s, restore *x, int g, int32_t b)
{
    return &x->held[(size_t)g * (size_t)s->restores->max_blocks + (size_t)b];
}

/* The node of block b, with the path to it; NULL: there is no room for it. */
static rg_node *node_at(rg_states *s, restore *x, int32_t b)
{
    for (; x->n_path <= b; x->n_path++) {
        const int32_t *tokens = x->of.tokens + (size_t)x->n_path * RG_BLOCK;
        rg_node *next = rg_prefix_extend(s->prefix, x->tail, x->of.salt, tokens);

        if (!next)
            return NULL;
        (void)name_node(s, next, &x->of.scope, tokens);
        rg_prefix_pin(s->prefix, next);
        if (x->tail)
            rg_prefix_unpin(s->prefix, x->tail);
        x->tail = next;
    }
    rg_node *node = x->tail;
    for (int32_t i = x->n_path - 1; i > b; i--)
        node = rg_prefix_parent(node);
    return node;
}

/* False: there is no room for it. */
static bool load(rg_states *s, restore *x, const rg_arrival *a)
{
    rg_node *node = node_at(s, x, a->at);
    int32_t block;

    if (!node)
        return false;
    if (rg_prefix_block(s->prefix, node, a->group) >= 0)
        return true; /* computed meanwhile */
    block = rg_blocks_take(s->pools[a->group]);
    if (block < 0)
        return false;
    rg_store_load(s->store, a->group, block, a->block);
    RG_ASSERT(rg_prefix_publish(s->prefix, node, a->group, block));
    *held(s, x, a->group, a->at) = block;
    rg_prefix_node_files(node)->put |= (uint16_t)(1u << a->group);
    rg_prefix_node_files(node)->put_s = now_s();
    return true;
}

/* Let go of what has arrived, the deepest first: it is cached now, and evicted from its end. */
static void let_go(rg_states *s, restore *x)
{
    for (int32_t b = x->n_path - 1; b >= 0; b--)
        for (int g = 0; g < s->spec.n_groups; g++) {
            int32_t *block = held(s, x, g, b);

            if (*block >= 0)
                rg_blocks_drop(s->pools[g], *block);
            *block = -1;
        }
    if (x->tail)
        rg_prefix_unpin(s->prefix, x->tail);
    x->tail = NULL;
    x->n_path = 0;
}

static void *end(rg_states *s, restore *x)
{
    let_go(s, x);
    x->seek = NULL;
    return x->of.owner;
}

void *rg_states_restored(rg_states *s)
{
    void *owner = NULL;
    rg_arrival a;

    while (s->durable && !owner && rg_durable_next(s->durable, &a)) {
        restore *x = a.seek->owner;

        if (a.block && !x->given_up && !load(s, x, &a)) {
            x->given_up = true;
            rg_durable_give_up(s->durable, a.seek);
        }
        rg_durable_give_back(s->durable, &a);
        owner = a.block ? NULL : end(s, x);
    }
    return owner;
}

void rg_states_forsake(rg_states *s, const void *owner)
{
    for (restore *x = s->durable ? s->restores->all : NULL; x && x < s->restores->all + RG_SEEKS; x++) {
        if (!x->seek || x->of.owner != owner)
            continue;
        let_go(s, x);
        x->of.owner = NULL;
        x->given_up = true; /* its ids may be gone */
        rg_durable_give_up(s->durable, x->seek);
    }
}

/* ---- the states' own --------------------------------------------------------------------------------------------- */

bool rg_states_keep(rg_states *s, rg_durable *d, int32_t max_len, rg_error *err)
{
    const int32_t max_blocks = blocks_for(max_len);
    const size_t n = (size_t)s->spec.n_groups * (size_t)max_blocks;

    if (!s->prefix)
        return true;
    s->restores = rg_zalloc(sizeof *s->restores);
    if (!s->restores)
        return rg_fail_memory(err, sizeof *s->restores);
    s->restores->max_blocks = max_blocks;
    for (int i = 0; i < RG_SEEKS; i++) {
        restore *x = &s->restores->all[i];

        x->held = rg_array(n, sizeof *x->held);
        if (!x->held)
            return rg_fail_memory(err, n * sizeof *x->held);
        memset(x->held, -1, n * sizeof *x->held);
    }
    s->durable = d;
    return true;
}

void rg_restores_free(struct rg_restores *r)
{
    for (int i = 0; r && i < RG_SEEKS; i++)
        rg_free(r->all[i].held);
    rg_free(r);
}

void rg_restores_count(const rg_states *s, int g, int32_t *count)
{
    for (int i = 0; s->restores && i < RG_SEEKS; i++) {
        restore *x = &s->restores->all[i];

        for (int32_t b = 0; b < x->n_path; b++)
            if (*held(s, x, g, b) >= 0)
                count[*held(s, x, g, b)]++;
    }
}
