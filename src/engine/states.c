/* states.c -- the engine's states as a whole: made, asked for room, checked. */
#include "engine/states.h"

#include <string.h>

#include "base/mem.h"

enum {
    SNAPSHOT_EVERY = 16 * RG_BLOCK, /* positions between a long prompt's snapshots */
    SPARE_NODES = 64,
};

static void block_evicted(void *arg, int32_t block)
{
    const pool_of *of = arg;

    rg_prefix_forget(of->states->prefix, of->group, block);
}

static bool states_build(rg_states *s, bool use_prefixes, rg_error *err)
{
    int64_t n_total = 0, n_largest = 0;
    size_t n_counts;

    for (int g = 0; g < s->spec.n_groups; g++) {
        int32_t n = rg_store_n_blocks(s->store, g);

        s->evict_args[g] = (pool_of){ .states = s, .group = g };
        s->pools[g] = rg_blocks_new(n, block_evicted, &s->evict_args[g], err);
        if (!s->pools[g])
            return false;
        s->has_recurrent |= s->spec.group[g].per == RG_PER_SEQUENCE;
        n_total += n;
        n_largest = n > n_largest ? n : n_largest;
    }
    s->n_count = (size_t)n_largest;
    if (!rg_mul(s->n_count, (size_t)s->spec.n_groups, &n_counts))
        return rg_fail_memory(err, SIZE_MAX);
    s->count = rg_array(n_counts, sizeof *s->count);
    if (!s->count)
        return rg_fail_memory(err, n_counts * sizeof *s->count);
    /* Where the model's blocks lie across the edges of ours, K/V in one of ours depends on ids in the next one. */
    if (!use_prefixes || (s->spec.sees > 1 && RG_BLOCK % s->spec.sees))
        return true;
    n_total = (n_total < INT32_MAX / 4 ? n_total : INT32_MAX / 4) + SPARE_NODES;
    s->path = rg_array((size_t)n_total, sizeof(rg_node *));
    if (!s->path)
        return rg_fail_memory(err, (size_t)n_total * sizeof(rg_node *));
    if (!rg_contents_init(&s->contents, n_total, err))
        return false;
    s->prefix = rg_prefix_new(&s->spec, s->pools, (int32_t)n_total, err);
    return s->prefix != NULL;
}

rg_states *rg_states_new(const rg_state_spec *spec, rg_store *store, bool use_prefixes, rg_error *err)
{
    rg_states *s = rg_zalloc(sizeof *s);

    if (!s)
        return rg_fail_memory(err, sizeof *s), NULL;
    s->spec = *spec;
    s->store = store;
    if (!states_build(s, use_prefixes, err)) {
        rg_states_free(s);
        return NULL;
    }
    return s;
}

void rg_states_free(rg_states *s)
{
    if (!s)
        return;
    RG_ASSERT(!s->seqs);
    rg_prefix_free(s->prefix);
    rg_restores_free(s->restores);
    rg_contents_fini(&s->contents);
    for (int g = 0; g < s->spec.n_groups; g++)
        rg_blocks_free(s->pools[g]);
    rg_free(s->count);
    rg_free(s->path);
    rg_free(s);
}

uint64_t rg_states_number(rg_states *s, const rg_given_rows *given, int32_t n, int32_t *prompt)
{
    return s->prefix ? rg_contents_number(&s->contents, given, n, prompt) : 0;
}

/* ---- what the scheduler asks ------------------------------------------------------------------------------------- */

static int32_t most_blocks(const rg_states *s, int g, int32_t n)
{
    return (int32_t)rg_group_blocks(&s->spec.group[g], n);
}

bool rg_states_keep_chains(const rg_states *s)
{
    return s->has_recurrent;
}

/* Blocks that forks may need beside those of one sequence of n positions. */
static int64_t blocks_of_forks(const rg_states *s, int g, int32_t n, rg_forks forks)
{
    int32_t each = blocks_for(n) - forks.shared / RG_BLOCK, most = most_blocks(s, g, n);

    if (is_recurrent(s, g) || each > most)
        each = most;
    return forks.n > 1 ? (int64_t)(forks.n - 1) * each : 0;
}

double rg_states_share(const rg_states *s, int32_t n_positions, rg_forks forks)
{
    double most = 0;

    for (int g = 0; g < s->spec.n_groups; g++) {
        int64_t n = most_blocks(s, g, n_positions) + blocks_of_forks(s, g, n_positions, forks);
        double share = (double)n / (double)rg_store_n_blocks(s->store, g);

        most = share > most ? share : most;
    }
    return most;
}

bool rg_states_has_room(const rg_states *s, const rg_seq *q, int32_t upto, rg_forks forks)
{
    for (int g = 0; g < s->spec.n_groups; g++) {
        int64_t n = most_blocks(s, g, upto) - (q->swapped ? 0 : rg_seq_kept_blocks(s, g, q->committed));

        if (q->scratch || (is_recurrent(s, g) && !q->swapped))
            n = rg_seq_blocks_wanted(s, q, g, upto);
        if (n + blocks_of_forks(s, g, upto, forks) > rg_blocks_available(s->pools[g]))
            return false;
    }
    return true;
}

/* Where a block is counted. */
static int32_t *count_of(const rg_states *s, int g, int32_t block)
{
    return &s->count[(size_t)g * s->n_count + (size_t)block];
}

void rg_states_count(rg_states *s, const rg_seq *q, uint64_t *held, uint64_t *all)
{
    for (int g = 0; g < s->spec.n_groups; g++)
        for (int32_t b = 0; b < (is_recurrent(s, g) ? 1 : q->n_blocks); b++) {
            if (q->table[g][b] < 0)
                continue;
            *held += !*count_of(s, g, q->table[g][b]);
            *count_of(s, g, q->table[g][b]) = 1;
            ++*all;
        }
}

void rg_states_uncount(rg_states *s, const rg_seq *q)
{
    for (int g = 0; g < s->spec.n_groups; g++)
        for (int32_t b = 0; b < (is_recurrent(s, g) ? 1 : q->n_blocks); b++)
            if (q->table[g][b] >= 0)
                *count_of(s, g, q->table[g][b]) = 0;
}

int32_t rg_states_most_scratch(const rg_states *s, int32_t max_rows)
{
    int64_t most = max_rows;

    for (int g = 0; g < s->spec.n_groups; g++) {
        int64_t n = (int64_t)rg_store_n_blocks(s->store, g) * RG_BLOCK;

        most = !is_recurrent(s, g) && n < most ? n : most;
    }
    return (int32_t)most;
}

int32_t rg_states_next_stop(const rg_states *s, int32_t from, int32_t n)
{
    int32_t last = n > 0 ? (n - 1) / RG_BLOCK * RG_BLOCK : 0, next;

    if (!s->prefix || !s->has_recurrent || from >= n)
        return n;
    next = from - from % SNAPSHOT_EVERY;
    if (next > INT32_MAX - SNAPSHOT_EVERY)
        return n;
    next += SNAPSHOT_EVERY;
    if (last > from && last < next)
        return last;
    return next < n ? next : n;
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static void check_seq(const rg_states *s, const rg_seq *q)
{
    RG_ASSERT(q->committed >= 0 && q->committed <= q->length && q->n_blocks <= q->max_blocks);
    RG_ASSERT(q->n_replay >= 0 && q->n_replay <= (s->has_recurrent ? s->spec.max_draft : 0));
    RG_ASSERT(!q->scratch || (!q->length && !q->n_replay));
    RG_ASSERT(q->n_published <= q->committed / RG_BLOCK && (q->tail != NULL) == (q->n_published > 0));
    RG_ASSERT(q->swapped ? !q->n_blocks && q->length == q->committed : q->n_blocks >= blocks_for(q->length));
    for (int g = 0; g < s->spec.n_groups; g++) {
        if (is_recurrent(s, g)) {
            RG_ASSERT(q->table[g][0] >= 0 || !q->n_blocks);
            continue;
        }
        for (int32_t b = 0; b < q->max_blocks; b++)
            RG_ASSERT((q->table[g][b] >= 0) == (b < q->n_blocks && is_kept(s, g, b, q->committed)));
    }
}

/* Bytes of a group's blocks that sequences hold and have not written yet.  Such a part is never in a shared block. */
static uint64_t empty_bytes(const rg_states *s, int g, uint64_t block_bytes)
{
    uint64_t n = 0;

    for (const rg_seq *q = s->seqs; q && !is_recurrent(s, g); q = q->next)
        n += q->swapped || q->scratch ? 0 : (uint64_t)q->n_blocks * RG_BLOCK - (uint64_t)q->length;
    return n * (block_bytes / RG_BLOCK);
}

void rg_states_bytes(const rg_states *s, uint64_t *all, uint64_t *held, uint64_t *live)
{
    *all = *held = *live = 0;
    for (int g = 0; g < s->spec.n_groups; g++) {
        uint64_t each = s->spec.group[g].block_bytes;

        *all += each * (uint64_t)rg_store_n_blocks(s->store, g);
        *held += each * (uint64_t)rg_blocks_held(s->pools[g]);
        *live -= empty_bytes(s, g, each);
    }
    *live += *held;
}

void rg_states_forget(rg_states *s)
{
    if (s->prefix)
        rg_prefix_clear(s->prefix);
}

void rg_states_check(const rg_states *s)
{
    for (const rg_seq *q = s->seqs; q; q = q->next)
        check_seq(s, q);
    for (int g = 0; g < s->spec.n_groups; g++) {
        int32_t n = rg_store_n_blocks(s->store, g);

        for (const rg_seq *q = s->seqs; q; q = q->next)
            for (int32_t b = 0; b < (is_recurrent(s, g) ? 1 : q->n_blocks); b++)
                if (q->table[g][b] >= 0)
                    s->count[q->table[g][b]]++;
        rg_restores_count(s, g, s->count);
        for (int32_t i = 0; i < n; i++)
            RG_ASSERT(s->count[i] == rg_blocks_references(s->pools[g], i));
        memset(s->count, 0, (size_t)n * sizeof *s->count);
        rg_blocks_check(s->pools[g]);
    }
    if (s->prefix)
        rg_prefix_check(s->prefix);
}
