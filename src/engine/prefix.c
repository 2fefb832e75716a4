/* prefix.c -- the tree of cached prefixes: nodes in one array, found by a seeded hash of (parent, salt, tokens).
 *
 * Age.  Nodes stand in one list, oldest first, in which a parent is always newer than its children: a path is touched
 * from its end to its root, and a new node is put just before its parent.  So the oldest node is a leaf, and finding a
 * node to evict takes few steps.  Nothing here allocates after rg_prefix_new. */
#include "engine/prefix.h"

#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"

enum {
    LOOK = 64,         /* children that are tried, the newest first: there may be thousands */
    WORTH_COPYING = 8, /* positions */
};

struct rg_node {
    rg_node *parent;
    rg_node *chain; /* the next in its bucket (only full blocks are in one); of free nodes */
    rg_node *older, *newer;
    rg_node *child, *before, *after; /* its newest child; among its parent's, the next newer and the next older */
    uint64_t hash, salt;
    int32_t n_children, n_pins, n_blocks, n_tokens;
    int32_t block[RG_MAX_GROUPS];
    int32_t tokens[RG_BLOCK]; /* n_tokens of them */
    rg_node_files files;
    bool live;
};

/* A block costs a node, at most four buckets, its place in by_block and in a path, and its mark and count in a pool. */
_Static_assert(sizeof(rg_node) + 6 * sizeof(rg_node *) + 5 * sizeof(int32_t) <= RG_BLOCK_BOOKKEEPING,
               "rg_model_runner_new counts on RG_BLOCK_BOOKKEEPING");

struct rg_prefix {
    rg_state_spec spec;
    rg_blocks *pools[RG_MAX_GROUPS];
    int32_t pool_blocks[RG_MAX_GROUPS];
    rg_node **by_block[RG_MAX_GROUPS]; /* the node that stands for this block */
    rg_node *nodes, *free;
    rg_node **buckets;
    rg_node *first; /* the newest child of all roots */
    rg_node *oldest, *newest;
    int32_t room, n_live;
    bool has_recurrent;
    uint64_t mask, seed;
};

rg_prefix *rg_prefix_new(const rg_state_spec *spec, rg_blocks *const pools[], int32_t room, rg_error *err)
{
    rg_prefix *p = rg_zalloc(sizeof *p);
    size_t n_buckets = 16;

    if (!p)
        return rg_fail_memory(err, sizeof *p), NULL;
    while (n_buckets < (size_t)room * 2)
        n_buckets *= 2;
    p->spec = *spec;
    p->room = room;
    p->mask = n_buckets - 1;
    p->seed = rg_seed();
    p->nodes = rg_array((size_t)room, sizeof *p->nodes);
    p->buckets = rg_array(n_buckets, sizeof *p->buckets);
    if (!p->nodes || !p->buckets)
        goto fail;
    for (int g = 0; g < spec->n_groups; g++) {
        p->pools[g] = pools[g];
        p->has_recurrent |= spec->group[g].per == RG_PER_SEQUENCE;
        p->pool_blocks[g] = rg_blocks_available(pools[g]) + rg_blocks_held(pools[g]);
        p->by_block[g] = rg_array((size_t)p->pool_blocks[g], sizeof(rg_node *));
        if (!p->by_block[g])
            goto fail;
    }
    for (int32_t i = room - 1; i >= 0; i--) {
        p->nodes[i].chain = p->free;
        p->free = &p->nodes[i];
    }
    return p;

fail:
    rg_fail_memory(err, (size_t)room * sizeof *p->nodes);
    rg_prefix_free(p);
    return NULL;
}

void rg_prefix_free(rg_prefix *p)
{
    if (!p)
        return;
    for (int g = 0; g < p->spec.n_groups; g++)
        rg_free(p->by_block[g]);
    rg_free(p->buckets);
    rg_free(p->nodes);
    rg_free(p);
}

/* ---- the list by age --------------------------------------------------------------------------------------------- */

static void age_unlink(rg_prefix *p, rg_node *n)
{
    *(n->older ? &n->older->newer : &p->oldest) = n->newer;
    *(n->newer ? &n->newer->older : &p->newest) = n->older;
}

/* Put n just before `at`; NULL: as the newest. */
static void age_insert(rg_prefix *p, rg_node *n, rg_node *at)
{
    n->newer = at;
    n->older = at ? at->older : p->newest;
    *(n->older ? &n->older->newer : &p->oldest) = n;
    *(at ? &at->older : &p->newest) = n;
}

static void touch_path(rg_prefix *p, rg_node *n)
{
    for (; n; n = n->parent) {
        age_unlink(p, n);
        age_insert(p, n, NULL);
    }
}

/* ---- finding, making and removing nodes -------------------------------------------------------------------------- */

static uint64_t hash_of(const rg_prefix *p, const rg_node *parent, uint64_t salt, const int32_t *tokens)
{
    uint64_t of_parent = parent ? (uint64_t)(parent - p->nodes) + 1 : 0;

    return rg_hash(tokens, RG_BLOCK * sizeof *tokens,
                   p->seed ^ (of_parent * 0x9e3779b97f4a7c15u) ^ (salt * 0xd1342543de82ef95u));
}

static rg_node *find(const rg_prefix *p, const rg_node *parent, uint64_t salt, const int32_t *tokens, uint64_t hash)
{
    for (rg_node *n = p->buckets[hash & p->mask]; n; n = n->chain)
        if (n->hash == hash && n->parent == parent && n->salt == salt && !memcmp(n->tokens, tokens, sizeof n->tokens))
            return n;
    return NULL;
}

static rg_node **children(rg_prefix *p, rg_node *parent)
{
    return parent ? &parent->child : &p->first;
}

static void leave_bucket(rg_prefix *p, rg_node *n)
{
    rg_node **at = &p->buckets[n->hash & p->mask];

    while (*at != n)
        at = &(*at)->chain;
    *at = n->chain;
}

static void leave_parent(rg_prefix *p, rg_node *n)
{
    *(n->before ? &n->before->after : children(p, n->parent)) = n->after;
    if (n->after)
        n->after->before = n->before;
}

/* Remove n if nothing keeps it, then its parent if nothing else kept that one, and so on. */
static void prune(rg_prefix *p, rg_node *n)
{
    while (n && !n->n_blocks && !n->n_children && !n->n_pins) {
        rg_node *parent = n->parent;

        if (n->n_tokens == RG_BLOCK)
            leave_bucket(p, n);
        leave_parent(p, n);
        age_unlink(p, n);
        n->live = false;
        n->chain = p->free;
        p->free = n;
        p->n_live--;
        if (parent)
            parent->n_children--;
        n = parent;
    }
}

static void forget_at(rg_prefix *p, rg_node *n, int group)
{
    p->by_block[group][n->block[group]] = NULL;
    n->block[group] = -1;
    n->n_blocks--;
}

static void forget_all(rg_prefix *p, rg_node *n)
{
    for (int g = 0; g < p->spec.n_groups; g++) {
        if (n->block[g] < 0)
            continue;
        rg_blocks_remember(p->pools[g], n->block[g], false);
        forget_at(p, n, g);
    }
}

/* The oldest leaf makes way; none if all are pinned. */
static void make_way(rg_prefix *p)
{
    rg_node *n = p->oldest;

    while (n && (n->n_children || n->n_pins))
        n = n->newer;
    if (!n)
        return;
    forget_all(p, n);
    prune(p, n);
}

/* Remove leaves for partial blocks that are a beginning of n: n will have all of their state, unless that is valid only
 * where they end. */
static void supersede(rg_prefix *p, const rg_node *n)
{
    rg_node *c = n->after, *older;

    for (int i = 0; c && i < LOOK && !p->has_recurrent; i++, c = older) {
        older = c->after;
        if (c->n_tokens < n->n_tokens && c->salt == n->salt &&
            !memcmp(c->tokens, n->tokens, (size_t)c->n_tokens * sizeof *c->tokens)) {
            forget_all(p, c);
            prune(p, c);
        }
    }
}

static rg_node *add_child(rg_prefix *p, rg_node *parent, const rg_node *what)
{
    rg_node **list = children(p, parent), *n;

    if (parent)
        parent->n_pins++; /* it may be the oldest leaf itself */
    if (!p->free)
        make_way(p);
    if (parent)
        parent->n_pins--;
    n = p->free;
    if (!n)
        return NULL;
    p->free = n->chain;
    *n = *what;
    n->parent = parent;
    n->live = true;
    for (int g = 0; g < RG_MAX_GROUPS; g++)
        n->block[g] = -1;
    age_insert(p, n, parent);
    n->after = *list;
    if (n->after)
        n->after->before = n;
    *list = n;
    p->n_live++;
    if (parent)
        parent->n_children++;
    supersede(p, n);
    return n;
}

rg_node *rg_prefix_extend(rg_prefix *p, rg_node *parent, uint64_t salt, const int32_t tokens[RG_BLOCK])
{
    uint64_t hash = hash_of(p, parent, salt, tokens);
    rg_node *n = find(p, parent, salt, tokens, hash), what = { .salt = salt, .hash = hash, .n_tokens = RG_BLOCK };

    if (n)
        return n;
    memcpy(what.tokens, tokens, sizeof what.tokens);
    n = add_child(p, parent, &what);
    if (!n)
        return NULL;
    n->chain = p->buckets[hash & p->mask];
    p->buckets[hash & p->mask] = n;
    return n;
}

static int32_t n_alike(const int32_t *a, const int32_t *b, int32_t n)
{
    int32_t i = 0;

    while (i < n && a[i] == b[i])
        i++;
    return i;
}

/* Returns the child that shares the longest beginning with tokens[0, n), and sets *n_same to its length.  A child that
 * lacks a block does not count; a child with a recurrent state shares all of its tokens or none. */
static rg_node *nearest(rg_prefix *p, rg_node *parent, uint64_t salt, const int32_t *tokens, int32_t n, int32_t *n_same)
{
    rg_node *best = NULL, *c = *children(p, parent);

    *n_same = 0;
    for (int i = 0; c && i < LOOK; i++, c = c->after) {
        int32_t alike = c->salt == salt ? n_alike(c->tokens, tokens, n < c->n_tokens ? n : c->n_tokens) : 0;

        if (p->has_recurrent && alike < c->n_tokens)
            continue;
        if (alike > *n_same && c->n_blocks == p->spec.n_groups) {
            *n_same = alike;
            best = c;
        }
    }
    return best;
}

rg_node *rg_prefix_extend_part(rg_prefix *p, rg_node *parent, uint64_t salt, const int32_t *tokens, int32_t n)
{
    rg_node what = { .salt = salt, .n_tokens = n };
    int32_t n_same;

    RG_ASSERT(n > 0 && n < RG_BLOCK);
    nearest(p, parent, salt, tokens, n, &n_same);
    if (n_same == n)
        return NULL;
    memcpy(what.tokens, tokens, (size_t)n * sizeof *tokens);
    return add_child(p, parent, &what);
}

/* ---- matching ---------------------------------------------------------------------------------------------------- */

void rg_path_blocks_add(rg_path_blocks *f, const rg_state_spec *spec, int32_t b, uint32_t has)
{
    for (int g = 0; g < spec->n_groups; g++) {
        bool is_there = has >> g & 1;

        f->have[g] = is_there ? f->have[g] + 1 : 0;
        f->lacks[g] = f->lacks[g] || (!is_there && rg_kept_for_good(&spec->group[g].kept, b));
    }
}

bool rg_path_blocks_usable(const rg_path_blocks *f, const rg_state_spec *spec, int32_t n_nodes, uint32_t has)
{
    for (int g = 0; g < spec->n_groups; g++) {
        const rg_group *group = &spec->group[g];

        if (group->per == RG_PER_SEQUENCE
                ? !(has >> g & 1)
                : f->lacks[g] || f->have[g] < n_nodes - rg_kept_from(&group->kept, n_nodes * RG_BLOCK))
            return false;
    }
    return true;
}

bool rg_path_needs(const rg_state_spec *spec, int g, int32_t b, int32_t n_nodes)
{
    const rg_group *group = &spec->group[g];

    if (group->per == RG_PER_SEQUENCE)
        return b == n_nodes - 1;
    return b >= rg_kept_from(&group->kept, n_nodes * RG_BLOCK) || rg_kept_for_good(&group->kept, b);
}

int32_t rg_prefix_match(rg_prefix *p, const int32_t *tokens, int32_t n, uint64_t salt, rg_node **path,
                        int32_t *n_matched)
{
    int32_t best = 0, n_nodes = 0, n_before = 0, more; /* n_before: nodes that a partial block may follow */
    const int32_t worth = p->has_recurrent ? 1 : WORTH_COPYING;
    rg_path_blocks f = { 0 };
    rg_node *node = NULL, *part;

    while ((int64_t)(n_nodes + 1) * RG_BLOCK <= n) {
        const int32_t *here = tokens + (size_t)n_nodes * RG_BLOCK;
        rg_node *next = find(p, node, salt, here, hash_of(p, node, salt, here));

        if (!next)
            break;
        node = next;
        path[n_nodes++] = node;
        uint32_t has = rg_prefix_has(p, node);
        rg_path_blocks_add(&f, &p->spec, n_nodes - 1, has);
        if (n_nodes * RG_BLOCK >= n || !rg_path_blocks_usable(&f, &p->spec, n_nodes, UINT32_MAX))
            continue;
        n_before = n_nodes; /* of groups of positions all is there */
        if (rg_path_blocks_usable(&f, &p->spec, n_nodes, has))
            best = n_nodes * RG_BLOCK;
    }
    touch_path(p, node);
    *n_matched = n_nodes * RG_BLOCK;
    const int32_t before = n_before * RG_BLOCK;
    if (n - before <= worth)
        return best;
    part = nearest(p, n_before ? path[n_before - 1] : NULL, salt, tokens + before, n - 1 - before, &more);
    if (more < worth)
        return best;
    RG_ASSERT(more < RG_BLOCK); /* else it would have been found above */
    touch_path(p, part);
    path[n_before] = part;
    return before + more;
}

/* ---- what nodes remember ----------------------------------------------------------------------------------------- */

bool rg_prefix_publish(rg_prefix *p, rg_node *node, int group, int32_t block)
{
    if (node->block[group] >= 0)
        return false;
    rg_blocks_remember(p->pools[group], block, true);
    node->block[group] = block;
    node->n_blocks++;
    p->by_block[group][block] = node;
    return true;
}

int32_t rg_prefix_block(const rg_prefix *p, const rg_node *node, int group)
{
    (void)p;
    return node->block[group];
}

uint32_t rg_prefix_has(const rg_prefix *p, const rg_node *node)
{
    uint32_t has = 0;

    for (int g = 0; g < p->spec.n_groups; g++)
        has |= (uint32_t)(node->block[g] >= 0) << g;
    return has;
}

rg_node *rg_prefix_parent(const rg_node *node)
{
    return node->parent;
}

rg_node_files *rg_prefix_node_files(rg_node *node)
{
    return &node->files;
}

void rg_prefix_forget(rg_prefix *p, int group, int32_t block)
{
    rg_node *n = p->by_block[group][block];

    RG_ASSERT(n && n->block[group] == block);
    forget_at(p, n, group);
    prune(p, n);
}

void rg_prefix_pin(rg_prefix *p, rg_node *node)
{
    (void)p;
    node->n_pins++;
}

void rg_prefix_unpin(rg_prefix *p, rg_node *node)
{
    RG_ASSERT(node->live && node->n_pins > 0);
    node->n_pins--;
    if (node->n_pins || node->n_children)
        return;
    if (node->n_blocks)
        touch_path(p, node);
    else
        prune(p, node);
}

void rg_prefix_clear(rg_prefix *p)
{
    for (int32_t i = 0; i < p->room; i++) {
        rg_node *n = &p->nodes[i];

        for (int g = 0; n->live && g < p->spec.n_groups; g++) {
            if (n->block[g] < 0 || rg_blocks_references(p->pools[g], n->block[g]))
                continue;
            rg_blocks_remember(p->pools[g], n->block[g], false);
            forget_at(p, n, g);
        }
    }
    for (int32_t i = 0; i < p->room; i++)
        if (p->nodes[i].live)
            prune(p, &p->nodes[i]);
}

static void check_node(const rg_prefix *p, const rg_node *n)
{
    int32_t n_blocks = 0;

    RG_ASSERT(n->n_blocks || n->n_children || n->n_pins);
    RG_ASSERT(!n->parent || (n->parent->live && n->parent->n_children > 0 && n->parent->salt == n->salt));
    RG_ASSERT(n->n_tokens == RG_BLOCK ? find(p, n->parent, n->salt, n->tokens, n->hash) == n
                                      : n->n_tokens > 0 && !n->n_children);
    RG_ASSERT(!n->after || (n->after->before == n && n->after->parent == n->parent));
    RG_ASSERT(n->before ? n->before->after == n : (n->parent ? n->parent->child : p->first) == n);
    for (int g = 0; g < p->spec.n_groups; g++) {
        if (n->block[g] < 0)
            continue;
        RG_ASSERT(rg_blocks_remembered(p->pools[g], n->block[g]) && p->by_block[g][n->block[g]] == n);
        n_blocks++;
    }
    RG_ASSERT(n_blocks == n->n_blocks);
}

void rg_prefix_check(const rg_prefix *p)
{
    int32_t n_live = 0, n_with_parent = 0, n_children = 0, n_listed = 0;

    for (int32_t i = 0; i < p->room; i++) {
        const rg_node *n = &p->nodes[i];

        if (!n->live)
            continue;
        check_node(p, n);
        n_live++;
        n_with_parent += n->parent != NULL;
        n_children += n->n_children;
    }
    RG_ASSERT(n_live == p->n_live && n_with_parent == n_children);
    for (const rg_node *n = p->oldest; n; n = n->newer, n_listed++)
        RG_ASSERT(n->live && n_listed < n_live && (n->newer ? n->newer->older == n : p->newest == n));
    RG_ASSERT(n_listed == n_live);
    for (int g = 0; g < p->spec.n_groups; g++)
        for (int32_t b = 0; b < p->pool_blocks[g]; b++)
            RG_ASSERT(rg_blocks_remembered(p->pools[g], b) == (p->by_block[g][b] != NULL));
}
