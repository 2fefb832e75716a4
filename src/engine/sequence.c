/* sequence.c -- the verbs of a sequence's state, over pools, store and prefix index.
 *
 * Invariants (rg_states_check asserts them).  The tables of K/V groups have n_blocks entries, enough for `length`;
 * those that no row from committed on sees are -1.  A full committed block is never written again.  A block that is
 * not full is in the index only if no sequence holds it.  So only the block of `length` can need a copy, and only
 * after a fork.  A recurrent slot holds the state at committed - n_replay, and a log of the last step's draft
 * rows; the first n_replay of them were accepted.  It is copied whole, so the log goes along.  Before a step writes a
 * slot it belongs to one sequence alone and not to the index.  A scratch sequence stays at committed = length = 0, so
 * it keeps all its blocks, those of windows too, and their contents are not valid after a step. */
#include "engine/states.h"

#include <string.h>

#include "base/mem.h"

/* ---- small things ------------------------------------------------------------------------------------------------ */

static int32_t take(rg_states *s, int g)
{
    int32_t block = rg_blocks_take(s->pools[g]);

    RG_ASSERT(block >= 0); /* it was counted before */
    return block;
}

static void drop(rg_states *s, int g, int32_t *entry)
{
    int32_t block = *entry;

    *entry = -1;
    rg_blocks_drop(s->pools[g], block);
    if (!rg_blocks_references(s->pools[g], block) && !rg_blocks_remembered(s->pools[g], block))
        rg_store_poison(s->store, g, block);
}

/* Drop blocks [from, n_blocks) of K/V groups, the deepest first: a cached prefix is then evicted from its end. */
static void cut_blocks(rg_states *s, rg_seq *q, int32_t from)
{
    for (int g = 0; g < s->spec.n_groups; g++)
        for (int32_t b = q->n_blocks - 1; !is_recurrent(s, g) && b >= from; b--)
            if (q->table[g][b] >= 0)
                drop(s, g, &q->table[g][b]);
    if (q->n_blocks > from)
        q->n_blocks = from;
}

static void drop_slots(rg_states *s, rg_seq *q)
{
    for (int g = 0; g < s->spec.n_groups; g++)
        if (is_recurrent(s, g) && q->table[g][0] >= 0)
            drop(s, g, &q->table[g][0]);
}

static void set_tail(rg_states *s, rg_seq *q, rg_node *node)
{
    if (node)
        rg_prefix_pin(s->prefix, node);
    if (q->tail)
        rg_prefix_unpin(s->prefix, q->tail);
    q->tail = node;
}

/* ---- birth and death --------------------------------------------------------------------------------------------- */

/* Entries of a group's table. */
static size_t table_room(const rg_states *s, int g, int32_t max_blocks)
{
    return is_recurrent(s, g) ? 1 : (size_t)max_blocks;
}

rg_seq *rg_seq_new(rg_states *s, int32_t max_len, uint64_t salt, rg_error *err)
{
    int32_t max_blocks = max_len > 0 ? blocks_for(max_len) : 1, *entry;
    size_t n_entries = 0;
    rg_seq *q;

    for (int g = 0; g < s->spec.n_groups; g++)
        n_entries += table_room(s, g, max_blocks);
    q = rg_zalloc_tail(sizeof *q, n_entries, sizeof *entry);
    if (!q)
        return rg_fail_memory(err, n_entries * sizeof *entry), NULL;
    entry = (int32_t *)(void *)(q + 1);
    for (size_t i = 0; i < n_entries; i++)
        entry[i] = -1;
    for (int g = 0; g < s->spec.n_groups; g++) {
        q->table[g] = entry;
        entry += table_room(s, g, max_blocks);
    }
    q->max_blocks = max_blocks;
    q->salt = salt;
    q->adapter = -1;
    q->next = s->seqs;
    if (s->seqs)
        s->seqs->prev = q;
    s->seqs = q;
    return q;
}

void rg_seq_free(rg_states *s, rg_seq *q)
{
    if (!q)
        return;
    rg_seq_release(s, q, NULL);
    *(q->prev ? &q->prev->next : &s->seqs) = q->next;
    if (q->next)
        q->next->prev = q->prev;
    rg_free(q);
}

/* ---- sharing ----------------------------------------------------------------------------------------------------- */

/* Why only p of n positions were found, although some request had computed n_known of them. */
static rg_uncached why_no_more(int32_t n, int32_t p, int32_t n_known)
{
    if (p + RG_BLOCK >= n)
        return RG_UNCACHED_NOTHING;
    return n_known >= p + RG_BLOCK ? RG_UNCACHED_GONE : RG_UNCACHED_NEW;
}

/* True if each group has a free block for a copy besides the blocks of p positions. */
static bool can_copy_end(const rg_states *s, int32_t p)
{
    for (int g = 0; g < s->spec.n_groups; g++)
        if (!is_recurrent(s, g) && rg_blocks_available(s->pools[g]) <= rg_seq_kept_blocks(s, g, p))
            return false;
    return true;
}

/* Copy the node's block, whose beginning is wanted, into a block of our own; a state per sequence is shared until it is
 * written. */
static void copy_end(rg_states *s, rg_seq *q, int32_t b, const rg_node *node)
{
    for (int g = 0; g < s->spec.n_groups; g++) {
        int32_t from = rg_prefix_block(s->prefix, node, g);

        rg_blocks_hold(s->pools[g], from);
        if (is_recurrent(s, g)) {
            q->table[g][0] = from;
            continue;
        }
        q->table[g][b] = take(s, g);
        rg_store_copy(s->store, g, from, q->table[g][b]);
        rg_blocks_drop(s->pools[g], from);
    }
}

int32_t rg_seq_match(rg_states *s, rg_seq *q, const int32_t *tokens, int32_t n, rg_uncached *uncached)
{
    int32_t n_matched, p, n_nodes;
    rg_uncached ignored;

    uncached = uncached ? uncached : &ignored;
    *uncached = RG_UNCACHED_OFF;

    RG_ASSERT(!q->length && !q->n_blocks && !q->swapped && blocks_for(n) <= q->max_blocks);
    if (!s->prefix || q->scratch)
        return 0;
    p = rg_prefix_match(s->prefix, tokens, n, q->salt, s->path, &n_matched);
    if (s->spec.sees > 1)
        p -= p % s->spec.sees; /* what was computed of part of a block saw other ids behind it */
    if (p % RG_BLOCK && !can_copy_end(s, p))
        p = s->has_recurrent ? 0 : p - p % RG_BLOCK;
    n_nodes = p / RG_BLOCK;
    *uncached = why_no_more(n, p, n_matched);
    if (!p)
        return 0;
    for (int g = 0; g < s->spec.n_groups; g++) {
        if (is_recurrent(s, g) && p % RG_BLOCK)
            continue; /* that of the last node, which is not full */
        for (int32_t b = is_recurrent(s, g) ? n_nodes - 1 : 0; b < n_nodes; b++) {
            int32_t block = rg_prefix_block(s->prefix, s->path[b], g);

            if (!is_recurrent(s, g) && !is_kept(s, g, b, p))
                continue;
            rg_blocks_hold(s->pools[g], block);
            q->table[g][is_recurrent(s, g) ? 0 : b] = block;
        }
    }
    if (p % RG_BLOCK)
        copy_end(s, q, n_nodes, s->path[n_nodes]);
    q->n_blocks = blocks_for(p);
    q->n_published = n_nodes;
    q->committed = q->length = p;
    set_tail(s, q, n_nodes ? s->path[n_nodes - 1] : NULL);
    rg_states_put_path(s, q);
    return p;
}

/* Put the sequence's blocks at a node.  Where the node has one of another sequence, that one has the same bits: share
 * it and give ours back. */
static void publish_blocks(rg_states *s, rg_seq *q, rg_node *node, int32_t b)
{
    for (int g = 0; g < s->spec.n_groups; g++) {
        int32_t *entry = is_recurrent(s, g) ? NULL : &q->table[g][b], theirs;

        if (!entry || *entry < 0 || rg_prefix_publish(s->prefix, node, g, *entry))
            continue;
        theirs = rg_prefix_block(s->prefix, node, g);
        if (theirs == *entry)
            continue;
        rg_blocks_hold(s->pools[g], theirs);
        drop(s, g, entry);
        *entry = theirs;
    }
}

static void publish(rg_states *s, rg_seq *q, const int32_t *tokens)
{
    if (!s->prefix || !tokens)
        return;
    while ((int64_t)(q->n_published + 1) * RG_BLOCK <= q->committed) {
        int32_t b = q->n_published;
        rg_node *node = rg_prefix_extend(s->prefix, q->tail, q->salt, tokens + (size_t)b * RG_BLOCK);

        if (!node)
            return; /* no room now; the next commit tries again */
        publish_blocks(s, q, node, b);
        set_tail(s, q, node);
        q->n_published++;
        rg_states_put(s, q, tokens);
    }
}

/* The block of group g that holds a sequence's last position, or its state. */
static int32_t end_block(const rg_states *s, const rg_seq *q, int g)
{
    return q->table[g][is_recurrent(s, g) ? 0 : q->committed / RG_BLOCK];
}

/* True if another sequence or a node of the index has one of these blocks: a fork that still writes into it would have
 * to copy it, and a block stands for one node. */
static bool end_is_shared(const rg_states *s, const rg_seq *q)
{
    for (int g = 0; g < s->spec.n_groups; g++) {
        const int32_t block = end_block(s, q, g);

        if (block < 0 || rg_blocks_references(s->pools[g], block) > 1 || rg_blocks_remembered(s->pools[g], block))
            return true;
    }
    return false;
}

/* A sequence that ends with a full block leaves the state of recurrent groups at that block's node. */
static void publish_slots(rg_states *s, const rg_seq *q)
{
    for (int g = 0; g < s->spec.n_groups; g++) {
        const int32_t slot = q->table[g][0];

        if (is_recurrent(s, g) && slot >= 0 && rg_blocks_references(s->pools[g], slot) == 1 &&
            !rg_blocks_remembered(s->pools[g], slot))
            (void)rg_prefix_publish(s->prefix, q->tail, g, slot); /* false: the node has one */
    }
}

/* Publish the positions beyond the last full block, for later sequences that begin alike, and with them the state at
 * the end of recurrent groups. */
static void publish_end(rg_states *s, const rg_seq *q, const int32_t *tokens)
{
    int32_t full = q->committed / RG_BLOCK;
    rg_node *node;

    if (!s->prefix || !tokens || q->swapped || q->n_replay)
        return;
    if (q->n_published < full || !q->committed)
        return;
    if (q->committed % RG_BLOCK == 0)
        publish_slots(s, q);
    if (q->committed % RG_BLOCK == 0 || end_is_shared(s, q))
        return;
    node = rg_prefix_extend_part(s->prefix, q->tail, q->salt, tokens + (size_t)full * RG_BLOCK,
                                 q->committed - full * RG_BLOCK);
    for (int g = 0; node && g < s->spec.n_groups; g++)
        RG_ASSERT(rg_prefix_publish(s->prefix, node, g, end_block(s, q, g)));
}

void rg_seq_release(rg_states *s, rg_seq *q, const int32_t *tokens)
{
    publish_end(s, q, tokens);
    if (tokens)
        rg_states_put_path(s, q);
    cut_blocks(s, q, 0);
    drop_slots(s, q);
    set_tail(s, q, NULL);
    rg_free(q->swapped);
    q->swapped = NULL;
    q->swapped_bytes = 0;
    q->committed = q->length = q->n_replay = q->n_published = 0;
    q->n_copied = 0;
    q->scratch = false;
    q->scratch_from = 0;
}

void rg_seq_scratch(rg_seq *q)
{
    RG_ASSERT(!q->length && !q->n_blocks && !q->swapped);
    q->scratch = true;
}

void rg_seq_scratch_from(rg_states *s, rg_seq *q, int32_t from)
{
    RG_ASSERT(q->scratch && from >= 0);
    for (int g = 0; g < s->spec.n_groups; g++)
        RG_ASSERT(!from || !is_recurrent(s, g));
    q->scratch_from = from;
}

/* True if q still has all that a row behind its first p positions sees. */
static bool has_all_before(const rg_states *s, const rg_seq *q, int32_t p)
{
    for (int g = 0; g < s->spec.n_groups; g++)
        for (int32_t b = 0; !is_recurrent(s, g) && b < blocks_for(p); b++)
            if (is_kept(s, g, b, p) && q->table[g][b] < 0)
                return false;
    return true;
}

int32_t rg_seq_shareable(const rg_states *s, const rg_seq *q, int32_t most)
{
    int32_t p = most < q->committed ? most : q->committed;

    if (q->swapped || q->scratch || (s->has_recurrent && p < q->committed))
        return 0;
    if (s->spec.sees > 1)
        p -= p % s->spec.sees;
    if (!has_all_before(s, q, p))
        p -= p % RG_BLOCK;
    return has_all_before(s, q, p) ? p : 0;
}

bool rg_seq_fork_at(rg_states *s, const rg_seq *q, int32_t p, rg_seq *to)
{
    int32_t n_blocks = blocks_for(p);
    rg_node *tail = q->tail;

    RG_ASSERT(!to->length && !to->n_blocks && !to->swapped && !q->swapped && !q->scratch && !to->scratch);
    RG_ASSERT(p <= q->committed && (!p || p == q->committed || !s->has_recurrent));
    if (n_blocks > to->max_blocks)
        return false;
    for (int g = 0; g < s->spec.n_groups; g++) {
        int32_t n = is_recurrent(s, g) ? p > 0 : n_blocks;

        for (int32_t b = 0; b < n; b++) {
            if (q->table[g][b] < 0 || (!is_recurrent(s, g) && !is_kept(s, g, b, p)))
                continue;
            rg_blocks_hold(s->pools[g], q->table[g][b]);
            to->table[g][b] = q->table[g][b];
        }
    }
    to->n_blocks = n_blocks;
    to->committed = to->length = p;
    to->n_replay = p ? q->n_replay : 0;
    to->salt = q->salt;
    to->scope = q->scope;
    to->rope = q->rope;
    to->adapter = q->adapter;
    to->n_published = q->n_published < p / RG_BLOCK ? q->n_published : p / RG_BLOCK;
    for (int32_t b = q->n_published; b > to->n_published; b--)
        tail = rg_prefix_parent(tail);
    set_tail(s, to, tail);
    return true;
}

bool rg_seq_fork(rg_states *s, const rg_seq *q, rg_seq *to)
{
    return rg_seq_fork_at(s, q, q->committed, to);
}

/* The index node that a snapshot at `committed` belongs to; NULL: there can be none now, or it is there. */
static rg_node *snapshot_node(const rg_states *s, const rg_seq *q, const int32_t *tokens)
{
    const int32_t full = q->committed / RG_BLOCK, part = q->committed % RG_BLOCK;

    if (!s->prefix || !s->has_recurrent || q->n_replay || !q->committed || q->n_published != full)
        return NULL;
    for (int g = 0; g < s->spec.n_groups; g++)
        if ((is_recurrent(s, g) || part) && (!rg_blocks_available(s->pools[g]) || end_block(s, q, g) < 0))
            return NULL;
    return part ? rg_prefix_extend_part(s->prefix, q->tail, q->salt, tokens + (size_t)full * RG_BLOCK, part) : q->tail;
}

bool rg_seq_snapshot(rg_states *s, rg_seq *q, const int32_t *tokens)
{
    rg_node *node;

    publish(s, q, tokens);
    node = snapshot_node(s, q, tokens);
    if (!node)
        return false;
    rg_prefix_pin(s->prefix, node);
    for (int g = 0; g < s->spec.n_groups; g++) {
        int32_t copy;

        if ((!is_recurrent(s, g) && q->committed % RG_BLOCK == 0) || rg_prefix_block(s->prefix, node, g) >= 0)
            continue;
        copy = take(s, g);
        rg_store_copy(s->store, g, end_block(s, q, g), copy);
        RG_ASSERT(rg_prefix_publish(s->prefix, node, g, copy));
        rg_blocks_drop(s->pools[g], copy);
    }
    rg_prefix_unpin(s->prefix, node);
    if (q->committed % RG_BLOCK == 0)
        rg_states_put(s, q, tokens);
    return true;
}

/* ---- growing ----------------------------------------------------------------------------------------------------- */

/* True if a step must not write this block, since another sequence or the index refers to it. */
static bool is_shared(const rg_states *s, int g, int32_t block)
{
    return rg_blocks_references(s->pools[g], block) > 1 || rg_blocks_remembered(s->pools[g], block);
}

int32_t rg_seq_blocks_wanted(const rg_states *s, const rg_seq *q, int g, int32_t upto)
{
    int32_t n = blocks_for(upto) - q->n_blocks, slot = q->table[g][0];

    if (is_recurrent(s, g)) {
        if (slot < 0 || rg_blocks_references(s->pools[g], slot) > 1)
            return 1;
        /* A snapshot that is ours alone: copied if there is a slot, else taken from the index. */
        return rg_blocks_remembered(s->pools[g], slot) && rg_blocks_available(s->pools[g]) > 0;
    }
    n = n > 0 ? n : 0;
    for (int32_t b = q->length / RG_BLOCK; b < q->n_blocks; b++)
        n += is_shared(s, g, q->table[g][b]);
    return n;
}

static void copy_shared(rg_states *s, rg_seq *q, int g, int32_t *entry)
{
    int32_t own;

    if (!is_shared(s, g, *entry))
        return;
    own = take(s, g);
    rg_store_copy(s->store, g, *entry, own);
    drop(s, g, entry);
    *entry = own;
    q->n_copied++;
}

static void grow_slot(rg_states *s, rg_seq *q, int g)
{
    int32_t *entry = &q->table[g][0];

    if (*entry < 0) {
        *entry = take(s, g);
        rg_store_poison(s->store, g, *entry); /* the first step starts from zero: rg_span_is_fresh */
    } else if (rg_blocks_references(s->pools[g], *entry) == 1 && !rg_blocks_available(s->pools[g])) {
        if (rg_blocks_remembered(s->pools[g], *entry)) {
            rg_prefix_forget(s->prefix, g, *entry);
            rg_blocks_remember(s->pools[g], *entry, false);
        }
    } else {
        copy_shared(s, q, g, entry);
    }
}

bool rg_seq_grow(rg_states *s, rg_seq *q, int32_t upto)
{
    int32_t n_blocks = blocks_for(upto);

    RG_ASSERT(!q->swapped && n_blocks <= q->max_blocks);
    if (upto <= q->length)
        return true;
    for (int g = 0; g < s->spec.n_groups; g++)
        if (rg_seq_blocks_wanted(s, q, g, upto) > rg_blocks_available(s->pools[g]))
            return false;
    for (int g = 0; g < s->spec.n_groups; g++) {
        if (is_recurrent(s, g)) {
            grow_slot(s, q, g);
            continue;
        }
        for (int32_t b = q->length / RG_BLOCK; b < q->n_blocks; b++)
            copy_shared(s, q, g, &q->table[g][b]);
        for (int32_t b = q->n_blocks; b < n_blocks; b++) {
            q->table[g][b] = take(s, g);
            rg_store_poison(s->store, g, q->table[g][b]);
        }
    }
    if (n_blocks > q->n_blocks)
        q->n_blocks = n_blocks;
    return true;
}

/* ---- going on and going back ------------------------------------------------------------------------------------- */

/* After `committed` moved from `was`: release the blocks that no later row sees. */
static void release_unseen(rg_states *s, rg_seq *q, int32_t was)
{
    for (int g = 0; g < s->spec.n_groups; g++)
        for (int32_t b = first_kept(s, g, was); !is_recurrent(s, g) && b < first_kept(s, g, q->committed); b++)
            if (!is_kept(s, g, b, q->committed))
                drop(s, g, &q->table[g][b]);
}

static void commit_to(rg_states *s, rg_seq *q, int32_t p, const int32_t *tokens)
{
    int32_t was = q->committed;

    q->committed = p;
    publish(s, q, tokens);
    release_unseen(s, q, was);
}

/* The position of the next step's first row. */
static int32_t first_of(const rg_seq *q)
{
    return q->scratch ? q->scratch_from : q->length;
}

void rg_seq_advance(rg_states *s, rg_seq *q, int32_t n_rows, int32_t n_draft, const int32_t *tokens)
{
    RG_ASSERT(n_draft >= 0 && n_draft <= n_rows && n_draft <= most_drafts(s));
    RG_ASSERT(q->length == q->committed || (n_draft == n_rows && !s->has_recurrent));
    RG_ASSERT(blocks_for(first_of(q) + n_rows) <= q->n_blocks);
    RG_ASSERT(!q->scratch || !n_draft);
    if (q->scratch)
        return;
    if (n_rows)
        q->n_replay = 0;
    q->length += n_rows;
    commit_to(s, q, q->committed + n_rows - n_draft, tokens);
}

/* Row i was put at slots[i] and belongs at committed + i.  Slots rise and never lie below their row's place, so a move
 * overwrites nothing that is still to be moved. */
static void move_rows(rg_states *s, rg_seq *q, int32_t n, const int32_t *slots)
{
    for (int32_t i = 0; i < n; i++) {
        int32_t from = slots[i], to = q->committed + i;

        RG_ASSERT(from >= to && from < q->length && (i == 0 || from > slots[i - 1]));
        if (from == to)
            continue;
        RG_ASSERT(!s->has_recurrent); /* its drafts are chains */
        for (int g = 0; g < s->spec.n_groups; g++)
            rg_store_move(s->store, g, q->table[g][from / RG_BLOCK], from % RG_BLOCK, q->table[g][to / RG_BLOCK],
                          to % RG_BLOCK);
    }
}

void rg_seq_commit(rg_states *s, rg_seq *q, int32_t n, const int32_t *slots, const int32_t *tokens)
{
    RG_ASSERT(n >= 0 && n <= q->length - q->committed);
    if (slots)
        move_rows(s, q, n, slots);
    for (int32_t b = q->committed / RG_BLOCK; slots && b < (q->committed + n) / RG_BLOCK; b++)
        rg_store_close_block(s->store, (const int32_t *const *)q->table, b);
    if (s->has_recurrent)
        q->n_replay += n;
    q->length = q->committed + n;
    cut_blocks(s, q, blocks_for(q->length));
    commit_to(s, q, q->length, tokens);
}

void rg_seq_rollback(rg_states *s, rg_seq *q, int32_t p)
{
    RG_ASSERT(p >= q->committed && p <= q->length);
    q->length = p;
    cut_blocks(s, q, blocks_for(p));
}

/* ---- out and in -------------------------------------------------------------------------------------------------- */

/* True if a sequence committed to `p` keeps block b of group g. */
static bool keeps(const rg_states *s, int g, int32_t b, int32_t p)
{
    if (is_recurrent(s, g))
        return b == 0 && p > 0;
    return b < blocks_for(p) && is_kept(s, g, b, p);
}

int32_t rg_seq_kept_blocks(const rg_states *s, int g, int32_t p)
{
    int32_t first = first_kept(s, g, p), n = blocks_for(p) - first;

    if (is_recurrent(s, g))
        return p > 0;
    for (int32_t b = 0; b < first; b++)
        n += rg_kept_for_good(&s->spec.group[g].kept, b);
    return n;
}

static size_t kept_bytes(const rg_states *s, int32_t p)
{
    size_t bytes = 0;

    for (int g = 0; g < s->spec.n_groups; g++)
        for (int32_t b = 0; b < blocks_for(p); b++)
            bytes += keeps(s, g, b, p) ? s->spec.group[g].block_bytes : 0;
    return bytes;
}

bool rg_seq_swap_out(rg_states *s, rg_seq *q)
{
    size_t bytes = kept_bytes(s, q->committed);
    uint8_t *to = rg_alloc(bytes);
    bool kept = true;

    RG_ASSERT(!q->swapped);
    if (!to)
        return false;
    q->swapped = to;
    q->swapped_bytes = bytes;
    for (int g = 0; g < s->spec.n_groups; g++) {
        for (int32_t b = 0; b < blocks_for(q->committed); b++) {
            if (!keeps(s, g, b, q->committed))
                continue;
            kept = rg_store_save(s->store, g, q->table[g][b], to) && kept;
            to += s->spec.group[g].block_bytes;
        }
    }
    if (!kept) {
        rg_free(q->swapped);
        q->swapped = NULL;
        q->swapped_bytes = 0;
        return false;
    }
    cut_blocks(s, q, 0);
    drop_slots(s, q);
    q->length = q->committed;
    return true;
}

bool rg_seq_swap_in(rg_states *s, rg_seq *q)
{
    const uint8_t *from = q->swapped;

    RG_ASSERT(q->swapped);
    for (int g = 0; g < s->spec.n_groups; g++)
        if (rg_seq_kept_blocks(s, g, q->committed) > rg_blocks_available(s->pools[g]))
            return false;
    for (int g = 0; g < s->spec.n_groups; g++) {
        for (int32_t b = 0; b < blocks_for(q->committed); b++) {
            if (!keeps(s, g, b, q->committed))
                continue;
            q->table[g][b] = take(s, g);
            rg_store_load(s->store, g, q->table[g][b], from);
            from += s->spec.group[g].block_bytes;
        }
    }
    q->n_blocks = blocks_for(q->committed);
    rg_free(q->swapped);
    q->swapped = NULL;
    q->swapped_bytes = 0;
    return true;
}

/* ---- what a step is told ----------------------------------------------------------------------------------------- */

void rg_seq_span(const rg_states *s, const rg_seq *q, int32_t n_rows, int32_t n_draft, rg_span *span)
{
    RG_ASSERT(!q->swapped && blocks_for(first_of(q) + n_rows) <= q->n_blocks && n_draft <= most_drafts(s));
    span->n_rows = n_rows;
    span->start = first_of(q);
    span->n_draft = n_draft;
    span->n_replay = q->n_replay;
    span->adapter = q->adapter;
    span->rope = q->rope;
    for (int g = 0; g < RG_MAX_GROUPS; g++)
        span->tables[g] = g < s->spec.n_groups ? q->table[g] : NULL;
}
