/* Tests of the sequence's verbs: random verbs on many sequences, against a model that keeps every sequence's ids in full.
 * What the store holds at a position is a hash of all ids up to it, so a block of the wrong history is found out. */
#include "support/test.h"

#include <string.h>

#include "base/mem.h"
#include "engine/sequence.h"

enum { MAX_LEN = 640, N_SEQS = 7, MAX_TREE = 12 };

typedef struct mix {
    const char *name;
    rg_keep keep[4];
    int n_layers;
    rg_type type;
    int32_t n_blocks, n_window, n_slots;
} mix;

/* The model of one sequence: all its ids, and the hash up to each. */
typedef struct plain {
    int32_t ids[MAX_LEN];
    uint64_t hash[MAX_LEN + 1]; /* of the first n ids */
    int32_t committed, length;
    int32_t n_logged; /* draft rows in a recurrent slot's log that count */
} plain;

typedef struct world {
    const mix *m;
    rg_state_spec spec;
    rg_kv kv[4];
    rg_recurrent rec[4];
    rg_store *store;
    rg_states *states;
    rg_seq *seq[N_SEQS];
    plain plain[N_SEQS];
    rg_rng g;
    bool has_recurrent;
    int n_done[16], n_refused;
} world;

#define GLOBAL                                                                                                         \
    {                                                                                                                  \
        .kind = RG_KEEP_KV, .n_heads = 2, .k_dim = 3, .v_dim = 2, .shared_with = -1                                    \
    }
#define GLOBAL_WIDE                                                                                                    \
    {                                                                                                                  \
        .kind = RG_KEEP_KV, .n_heads = 1, .k_dim = 5, .v_dim = 5, .shared_with = -1                                    \
    }
#define WINDOW                                                                                                         \
    {                                                                                                                  \
        .kind = RG_KEEP_KV, .n_heads = 1, .k_dim = 2, .v_dim = 3, .window = 100, .shared_with = -1                     \
    }
#define LATENT                                                                                                         \
    {                                                                                                                  \
        .kind = RG_KEEP_LATENT, .n_heads = 1, .k_dim = 4, .v_dim = 3, .shared_with = -1                                \
    }
#define RECURRENT                                                                                                      \
    {                                                                                                                  \
        .kind = RG_KEEP_RECURRENT, .d_inner = 2, .d_state = 1, .d_conv = 1, .shared_with = -1                          \
    }
#define SHARED                                                                                                         \
    {                                                                                                                  \
        .kind = RG_KEEP_KV, .shared_with = 0                                                                           \
    }

static uint64_t stir(uint64_t h, uint64_t x)
{
    h = (h ^ x) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

/* ---- declaring --------------------------------------------------------------------------------------------------- */

static void layers_are_grouped_by_what_they_keep(void **state)
{
    const rg_keep keep[] = { GLOBAL, WINDOW, GLOBAL_WIDE, RECURRENT, SHARED, LATENT, { .shared_with = -1 } };
    rg_keep bad[RG_MAX_GROUPS + 1];
    rg_kv kv[RG_MAX_GROUPS + 1];
    rg_recurrent rec[RG_MAX_GROUPS + 1];
    rg_state_spec spec;
    rg_error err;

    (void)state;
    assert_ok(rg_state_declare(&spec, keep, 7, RG_F32, kv, rec, &err), err);
    assert_int_equal(spec.n_groups, 4);
    assert_true(kv[0].group == kv[2].group && kv[0].offset != kv[2].offset && kv[4].group == 0 &&
                kv[4].offset == kv[0].offset);
    assert_true(kv[3].group == -1 && rec[3].group == 2 && kv[6].group == -1 && rec[6].group == -1 && kv[5].latent);
    assert_int_equal(spec.group[0].n_layers, 2);
    assert_true(kv[2].offset % RG_ALIGN == 0 && spec.group[0].block_bytes >= rg_kv_bytes(&kv[0]) + rg_kv_bytes(&kv[2]));
    assert_int_equal(rg_state_bytes_per_position(&spec),
                     (spec.group[0].block_bytes + spec.group[3].block_bytes) / RG_BLOCK);
    assert_int_equal(rg_state_bytes_per_sequence(&spec), 4 * spec.group[1].block_bytes + spec.group[2].block_bytes);

    for (int i = 0; i <= RG_MAX_GROUPS; i++) {
        bad[i] = (rg_keep)WINDOW;
        bad[i].window = 10 + i;
    }
    assert_true(rg_state_declare(&spec, bad, RG_MAX_GROUPS, RG_BF16, kv, rec, &err));
    assert_false(rg_state_declare(&spec, bad, RG_MAX_GROUPS + 1, RG_BF16, kv, rec, &err));
    assert_int_equal(err.code, RG_E_LIMIT);
    bad[0].n_heads = 1 << 24;
    bad[0].k_dim = 1 << 24;
    assert_false(rg_state_declare(&spec, bad, 1, RG_BF16, kv, rec, &err));
    bad[0] = (rg_keep)SHARED;
    assert_false(rg_state_declare(&spec, bad, 1, RG_BF16, kv, rec, &err));
    assert_false(rg_state_declare(&spec, keep, 1, RG_Q4_0, kv, rec, &err));
}

/* ---- the fake layers: writing and reading values through a span's tables ----------------------------------------- */

/* One part of what a layer keeps at a position, n_keys columns of [.][RG_BLOCK] before n_rows rows of [RG_BLOCK][width],
 * units of `size` bytes: written, or compared. */
static void each_unit(uint8_t *base, const int n[3], size_t size, size_t i, uint64_t hash, bool write)
{
    int n_keys = n[0], n_rows = n[1];
    size_t width = (size_t)n[2];

    for (int k = 0; k < n_keys + n_rows * (int)width; k++) {
        uint64_t value = stir(hash, (uint64_t)k);
        size_t at = (size_t)k * RG_BLOCK + i;

        if (k >= n_keys) {
            size_t r = (size_t)(k - n_keys) / width, c = (size_t)(k - n_keys) % width;
            at = ((size_t)n_keys + r * width) * RG_BLOCK + i * width + c;
        }
        if (write)
            memcpy(base + at * size, &value, size);
        else
            assert_memory_equal(base + at * size, &value, size);
    }
}

/* Every value that a layer keeps at a position, and every scale. */
static void each_value(const world *w, const rg_span *span, const rg_kv *kv, int32_t p, uint64_t hash, bool write)
{
    const rg_group_memory *m = &rg_store_groups(w->store)[kv->group];
    int32_t block = span->tables[kv->group][p / RG_BLOCK];
    int heads = kv->n_heads, values[3] = { kv->latent ? 0 : heads * kv->k_dim, heads, kv->latent ? kv->k_dim : kv->v_dim };
    int scales[3] = { kv->latent ? 0 : heads, heads, kv->latent ? 2 : 1 }; /* no head here has more than 32 values */
    size_t size = kv->type == RG_F32 ? 4 : kv->type == RG_I8 ? 1 : 2, i = (size_t)(p % RG_BLOCK);
    uint8_t *base;

    assert_true(block >= 0 && block < rg_store_n_blocks(w->store, kv->group));
    base = m->data + (size_t)block * m->block_bytes + kv->offset;
    each_unit(base, values, size, i, hash, write);
    if (kv->type == RG_I8)
        each_unit(base + (size_t)(values[0] + values[1] * values[2]) * RG_BLOCK, scales, 2, i, ~hash, write);
}

static void put(const world *w, const rg_span *span, int32_t p, uint64_t hash, bool write)
{
    for (int l = 0; l < w->m->n_layers; l++)
        if (w->kv[l].group >= 0)
            each_value(w, span, &w->kv[l], p, hash, write);
}

/* A recurrent slot: the state (a hash), then the ids of the logged rows. */
static uint8_t *slot_of(const world *w, const rg_seq *q, int l)
{
    const rg_group_memory *m = &rg_store_groups(w->store)[w->rec[l].group];

    assert_true(q->table[w->rec[l].group][0] >= 0);
    return m->data + (size_t)q->table[w->rec[l].group][0] * m->block_bytes + w->rec[l].offset;
}

static void recur(const world *w, const rg_seq *q, const rg_span *span, const int32_t *ids)
{
    for (int l = 0; l < w->m->n_layers; l++) {
        uint8_t *slot;
        uint64_t h;

        if (w->rec[l].group < 0)
            continue;
        slot = slot_of(w, q, l);
        memcpy(&h, slot, sizeof h);
        for (int32_t i = 0; i < span->n_replay; i++) {
            int32_t id;

            memcpy(&id, slot + 8 + 4 * i, sizeof id);
            h = stir(h, (uint64_t)id);
        }
        for (int32_t i = 0; i < span->n_rows - span->n_draft; i++)
            h = stir(h, (uint64_t)ids[span->start + i]);
        memcpy(slot, &h, sizeof h);
        if (span->n_draft)
            memcpy(slot + 8, ids + span->start + span->n_rows - span->n_draft, 4 * (size_t)span->n_draft);
    }
}

/* Everything that a row at `committed` may read, and the drafts beyond. */
static void check_contents(const world *w, int i)
{
    const rg_seq *q = w->seq[i];
    const plain *p = &w->plain[i];
    rg_span span = { 0 };

    if (!q)
        return;
    assert_int_equal(q->committed, p->committed);
    assert_int_equal(q->length, p->length);
    if (q->swapped || !q->length)
        return;
    rg_seq_span(w->states, q, 0, 0, &span);
    for (int l = 0; l < w->m->n_layers; l++) {
        const rg_kv *kv = &w->kv[l];
        int32_t first = kv->window && p->committed >= kv->window ? p->committed - kv->window + 1 : 0;

        for (int32_t k = first; kv->group >= 0 && k < p->length; k++)
            each_value(w, &span, kv, k, p->hash[k + 1], false);
        if (w->rec[l].group >= 0) {
            const uint8_t *slot = slot_of(w, q, l);
            int32_t n_logged = p->length > p->committed ? 0 : q->n_replay;
            uint64_t h;

            memcpy(&h, slot, sizeof h);
            assert_true(h == p->hash[p->committed - n_logged]);
            assert_memory_equal(slot + 8, p->ids + p->committed - n_logged, 4 * (size_t)n_logged);
        }
    }
}

/* ---- verbs ------------------------------------------------------------------------------------------------------- */

static void plain_append(plain *p, int32_t at, int32_t id)
{
    p->ids[at] = id;
    p->hash[at + 1] = stir(p->hash[at], (uint64_t)id);
}

/* Ids mostly follow one of two families, so that sequences meet. */
static int32_t next_id(world *w, int family, int32_t at)
{
    return rg_rng_below(&w->g, 150) ? (int32_t)(stir((uint64_t)family, (uint64_t)at) % 50)
                                    : (int32_t)rg_rng_below(&w->g, 50);
}

static void do_release(world *w, int i)
{
    if (rg_rng_below(&w->g, 2)) {
        rg_seq_release(w->states, w->seq[i], rg_rng_below(&w->g, 4) ? w->plain[i].ids : NULL);
    } else {
        rg_error err;

        rg_seq_free(w->states, w->seq[i]);
        w->seq[i] = rg_seq_new(w->states, MAX_LEN, 0, &err);
        assert_ok(w->seq[i], err);
    }
    w->plain[i] = (plain){ 0 };
    w->n_done[7]++;
}

static void do_match(world *w, int i)
{
    plain *p = &w->plain[i];
    rg_seq *q = w->seq[i];
    int family = i % 2;
    int32_t n = 1 + (int32_t)rg_rng_below(&w->g, MAX_LEN - 1), got;

    if (q->length || q->swapped)
        do_release(w, i);
    q = w->seq[i];
    for (int32_t k = 0; k < n; k++)
        plain_append(p, k, next_id(w, family, k));
    got = rg_seq_match(w->states, q, p->ids, n, NULL);
    assert_true(got >= 0 && got < n && (got % RG_BLOCK == 0 || !w->has_recurrent));
    p->committed = p->length = got;
    w->n_done[0] += got > 0;
    w->n_done[10] += got % RG_BLOCK > 0;
}

/* Accept an ascending subset of a tree's rows, which then is the sequence; the others held something else. */
static void do_tree(world *w, int i, int32_t n_draft)
{
    plain *p = &w->plain[i];
    rg_seq *q = w->seq[i];
    int32_t slots[MAX_TREE], n = 0, base = q->committed;
    rg_span span = { 0 };

    rg_seq_rollback(w->states, q, q->length); /* changes nothing */
    rg_seq_span(w->states, q, 0, 0, &span);
    for (int32_t d = 0; d < n_draft; d++) {
        bool accepted = rg_rng_below(&w->g, 2);

        if (accepted) {
            plain_append(p, base + n, next_id(w, i % 2, base + n));
            slots[n++] = base + d;
        }
        put(w, &span, base + d, accepted ? p->hash[base + n] : rg_rng_u64(&w->g), true);
    }
    rg_seq_commit(w->states, q, n, slots, p->ids);
    p->committed = p->length = base + n;
    w->n_done[1]++;
}

static void do_step(world *w, int i)
{
    plain *p = &w->plain[i];
    rg_seq *q = w->seq[i];
    int32_t n_rows =
        rg_rng_below(&w->g, 3) ? 1 + (int32_t)rg_rng_below(&w->g, 14) : 1 + (int32_t)rg_rng_below(&w->g, 200);
    int32_t n_draft = rg_rng_below(&w->g, 2) ? 0 : (int32_t)rg_rng_below(&w->g, MAX_TREE);
    int family = i % 2;
    bool tree = !w->has_recurrent && rg_rng_below(&w->g, 2);
    rg_span span = { 0 };

    if (q->swapped && !rg_seq_swap_in(w->states, q))
        return;
    if (q->length > q->committed || q->length + n_rows > MAX_LEN)
        return;
    n_draft = n_draft < n_rows ? n_draft : n_rows;
    if (w->has_recurrent && rg_rng_below(&w->g, 2)) { /* to where a snapshot may be kept */
        n_rows = RG_BLOCK - q->length % RG_BLOCK;
        n_draft = 0;
    }
    if (!rg_seq_grow(w->states, q, q->length + n_rows)) {
        w->n_refused++;
        return;
    }
    rg_states_check(w->states);
    for (int32_t k = 0; k < n_rows; k++)
        plain_append(p, q->length + k, next_id(w, family, q->length + k));
    rg_seq_span(w->states, q, n_rows, n_draft, &span);
    for (int32_t k = 0; k < n_rows; k++)
        put(w, &span, span.start + k, p->hash[span.start + k + 1], true);
    recur(w, q, &span, p->ids);
    rg_seq_advance(w->states, q, n_rows, n_draft, p->ids);
    p->length += n_rows;
    p->committed = p->length - n_draft;
    if (tree && n_draft)
        do_tree(w, i, n_draft);
    w->n_done[2]++;
}

static void do_accept(world *w, int i)
{
    plain *p = &w->plain[i];
    rg_seq *q = w->seq[i];
    int32_t n_draft = q->length - q->committed, n;

    if (!n_draft)
        return;
    if (!rg_rng_below(&w->g, 3)) {
        p->length = q->committed + (int32_t)rg_rng_below(&w->g, (uint32_t)n_draft + 1);
        rg_seq_rollback(w->states, q, p->length);
        n_draft = p->length - p->committed;
    }
    n = (int32_t)rg_rng_below(&w->g, (uint32_t)n_draft + 1);
    rg_seq_commit(w->states, q, n, NULL, rg_rng_below(&w->g, 8) ? p->ids : NULL);
    p->committed = p->length = p->committed + n;
    assert_int_equal(q->n_blocks, (q->length + RG_BLOCK - 1) / RG_BLOCK); /* what the forgotten needed is back */
    w->n_done[3]++;
}

static void do_fork(world *w, int i)
{
    int to = (int)rg_rng_below(&w->g, N_SEQS);
    rg_seq *q = w->seq[i];

    if (to == i || q->swapped)
        return;
    do_release(w, to); /* may make a new one */
    assert_true(rg_seq_fork(w->states, q, w->seq[to]));
    w->plain[to] = w->plain[i];
    w->plain[to].length = w->plain[to].committed;
    w->n_done[4]++;
}

static void do_snapshot(world *w, int i)
{
    rg_seq *q = w->seq[i];
    bool done;

    if (q->swapped)
        return;
    done = rg_seq_snapshot(w->states, q, w->plain[i].ids);
    assert_true(!done || (w->has_recurrent && !q->n_replay && q->committed % RG_BLOCK == 0));
    w->n_done[5] += done;
}

static void do_swap(world *w, int i)
{
    rg_seq *q = w->seq[i];

    if (q->swapped) {
        w->n_done[6] += rg_seq_swap_in(w->states, q);
    } else {
        assert_true(rg_seq_swap_out(w->states, q));
        w->plain[i].length = w->plain[i].committed;
    }
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

static void world_open(world *w, const mix *m, bool use_prefixes)
{
    int32_t n_blocks[RG_MAX_GROUPS];
    rg_error err;

    *w = (world){ .m = m, .g = { .seed = test_seed } };
    assert_ok(rg_state_declare(&w->spec, m->keep, m->n_layers, m->type, w->kv, w->rec, &err), err);
    for (int g = 0; g < w->spec.n_groups; g++) {
        bool recurrent = w->spec.group[g].kind == RG_KEEP_RECURRENT;

        w->has_recurrent |= recurrent;
        n_blocks[g] = recurrent ? m->n_slots : w->spec.group[g].window ? m->n_window : m->n_blocks;
    }
    w->store = rg_store_new(&w->spec, n_blocks, &err);
    assert_ok(w->store, err);
    w->states = rg_states_new(&w->spec, w->store, use_prefixes, &err);
    assert_ok(w->states, err);
    for (int i = 0; i < N_SEQS; i++) {
        w->seq[i] = rg_seq_new(w->states, MAX_LEN, 0, &err);
        assert_ok(w->seq[i], err);
    }
}

static void world_close(world *w)
{
    for (int i = 0; i < N_SEQS; i++)
        rg_seq_free(w->states, w->seq[i]);
    rg_states_check(w->states);
    rg_states_free(w->states);
    rg_store_free(w->store);
}

static const mix mixes[] = {
    { "global", { GLOBAL, GLOBAL_WIDE, SHARED }, 3, RG_F32, 30, 0, 0 },
    { "window and global, q8", { GLOBAL, WINDOW }, 2, RG_I8, 40, 14, 0 },
    { "recurrent and global", { RECURRENT, GLOBAL }, 2, RG_F16, 40, 0, 9 },
    { "recurrent alone, few slots", { RECURRENT }, 1, RG_F32, 0, 0, 3 },
    { "latent, q8", { LATENT, LATENT }, 2, RG_I8, 30, 0, 0 },
    { "all", { GLOBAL, WINDOW, RECURRENT, LATENT }, 4, RG_F32, 40, 18, 12 },
};

static void run_random(const mix *m, bool use_prefixes, int n_verbs)
{
    static void (*const verbs[])(world * w, int i) = { do_match, do_step,     do_step, do_step, do_step,   do_accept,
                                                       do_fork,  do_snapshot, do_swap, do_swap, do_release };
    static world w;
    size_t n_before = rg_mem_count().n_live;

    world_open(&w, m, use_prefixes);
    for (int n = 0; n < n_verbs; n++) {
        int i = (int)rg_rng_below(&w.g, N_SEQS), v = (int)rg_rng_below(&w.g, RG_LEN(verbs));

        if ((v == 0 || v == 6 || v == 10) && rg_rng_below(&w.g, 5)) /* what starts anew is rarer */
            continue;
        verbs[v](&w, i);
        rg_states_check(w.states);
        check_contents(&w, i);
        for (int k = 0; k < N_SEQS && n % 8 == 0; k++)
            check_contents(&w, k);
    }
    print_message("%s%s: %d matched, %d trees, %d steps, %d accepts, %d forks, %d snapshots, %d swaps, %d refused\n",
                  m->name, use_prefixes ? ", prefixes" : "", w.n_done[0], w.n_done[1], w.n_done[2], w.n_done[3],
                  w.n_done[4], w.n_done[5], w.n_done[6], w.n_refused);
    assert_true(w.n_done[2] > 0 && w.n_done[4] > 0 && w.n_done[6] > 0); /* it was about something */
    assert_true(!use_prefixes || m->n_slots == 3 || w.n_done[0] > 0);
    assert_int_equal(w.n_done[10] > 0, use_prefixes && !w.has_recurrent);
    assert_int_equal(w.n_done[5] > 0, use_prefixes && w.has_recurrent);
    world_close(&w);
    assert_int_equal(rg_mem_count().n_live, n_before);
}

static void verbs_keep_every_history(void **state)
{
    (void)state;
    for (size_t i = 0; i < RG_LEN(mixes); i++) {
        run_random(&mixes[i], true, 5000);
        run_random(&mixes[i], false, 2000);
    }
}

static void windows_release_what_no_row_sees(void **state)
{
    static world w;
    rg_seq *q;

    (void)state;
    world_open(&w, &mixes[1], true);
    q = w.seq[0];
    for (int32_t at = 0; at < 600; at++) {
        assert_true(rg_seq_grow(w.states, q, at + 1));
        rg_seq_advance(w.states, q, 1, 0, NULL);
        for (int32_t b = 0; b < q->n_blocks; b++) /* the next row sees from at + 1 - 99 on */
            assert_int_equal(q->table[1][b] >= 0, (b + 1) * RG_BLOCK > at + 2 - 100);
    }
    assert_true(rg_states_share(w.states, 40 * RG_BLOCK) == 1 && rg_states_share(w.states, 40 * RG_BLOCK + 1) > 1);
    world_close(&w);
}

static void stops_are_where_snapshots_pay(void **state)
{
    static world w;

    (void)state;
    world_open(&w, &mixes[2], true);
    assert_int_equal(rg_states_next_stop(w.states, 0, 200), 192);
    assert_int_equal(rg_states_next_stop(w.states, 0, 192), 128); /* a match is always less than n */
    assert_int_equal(rg_states_next_stop(w.states, 192, 200), 200);
    assert_int_equal(rg_states_next_stop(w.states, 0, 5000), 1024);
    assert_int_equal(rg_states_next_stop(w.states, 4096, 5000), 4992);
    assert_int_equal(rg_states_next_stop(w.states, 0, 10), 10);
    world_close(&w);
    world_open(&w, &mixes[0], true);
    assert_int_equal(rg_states_next_stop(w.states, 0, 5000), 5000);
    world_close(&w);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_are_grouped_by_what_they_keep),
        cmocka_unit_test(verbs_keep_every_history),
        cmocka_unit_test(windows_release_what_no_row_sees),
        cmocka_unit_test(stops_are_where_snapshots_pay),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
