/* Tests of the sequence's verbs: random verbs on many sequences, against a model that keeps every sequence's ids in full.
 * What the store holds at a position is a hash of all ids up to it, so a block of the wrong history is found out. */
#include "support/test.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "engine/sequence.h"
#include "ops/cpu/state.h"

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
    rg_keep keep[4];
    rg_store *store;
    rg_states *states;
    rg_seq *seq[N_SEQS];
    plain plain[N_SEQS];
    rg_rng g;
    bool has_recurrent;
    int n_done[16], n_refused;
} world;

/* The first positions and a window; chunks, and summaries of them. */
static const rg_patterns sinks = {
    .n_patterns = 1, .patterns = { { 2, { { RG_TERM_FIRST, 70, 1 }, { RG_TERM_WINDOW, 100, 1 } } } },
};
static const rg_patterns summaries = {
    .n_patterns = 1, .patterns = { { 2, { { RG_TERM_CHUNK, 150, 1 }, { RG_TERM_SUMMARY, 300, 20 } } } },
};

#define GLOBAL { .kv = { .n_heads = 2, .k_dim = 3, .v_dim = 2 }, .shared_with = -1 }
#define GLOBAL_WIDE { .kv = { .n_heads = 1, .k_dim = 5, .v_dim = 5 }, .shared_with = -1 }
#define WINDOW { .kv = { .n_heads = 1, .k_dim = 2, .v_dim = 3 }, .sight = { .window = 100 }, .shared_with = -1 }
#define SINKS { .kv = { .n_heads = 1, .k_dim = 2, .v_dim = 3 }, .sight = { .patterns = &sinks }, .shared_with = -1 }
#define SUMMARIES                                                                                                                \
    { .kv = { .n_heads = 1, .k_dim = 2, .v_dim = 3 }, .sight = { .patterns = &summaries }, .shared_with = -1 }
#define LATENT { .kv = { .n_heads = 1, .k_dim = 4, .v_dim = 3, .latent = true }, .shared_with = -1 }
#define STATE { .name = "state", .bytes = 8, .draft_bytes = 4 }
#define RECURRENT { .n_buffers = 1, .buffer = { STATE }, .shared_with = -1 }
/* Heads side by side: attention, and two states, of which one needs nothing of drafts. */
#define PARALLEL                                                                                                       \
    {                                                                                                                  \
        .kv = { .n_heads = 1, .k_dim = 2, .v_dim = 2 }, .n_buffers = 2,                                                \
        .buffer = { { .name = "unused", .bytes = 24 }, STATE }, .shared_with = -1                                      \
    }
/* An indexer's keys, of all positions and of a window. */
#define KEYS                                                                                                           \
    {                                                                                                                  \
        .n_buffers = 2, .shared_with = -1,                                                                             \
        .buffer = { { .name = "keys", .per = RG_PER_POSITION, .bytes = 12 },                                           \
                    { .name = "near keys", .per = RG_PER_POSITION, .bytes = 5, .window = 100 } }                       \
    }
#define SHARED { .shared_with = 0 }

static uint64_t stir(uint64_t h, uint64_t x)
{
    h = (h ^ x) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

/* ---- declaring --------------------------------------------------------------------------------------------------- */

static void layers_are_grouped_by_what_they_keep(void **state)
{
    rg_keep keep[] = { GLOBAL, WINDOW, GLOBAL_WIDE, RECURRENT, SHARED, LATENT, PARALLEL, KEYS, { .shared_with = -1 } };
    rg_keep bad[RG_MAX_GROUPS + 1];
    const rg_buffer *b = keep[6].buffer, *keys = keep[7].buffer;
    rg_state_spec spec;
    rg_error err;

    (void)state;
    assert_ok(rg_state_declare(&spec, keep, RG_LEN(keep), RG_F32, 5, &err), err);
    assert_int_equal(spec.n_groups, 3); /* all positions, a window, per sequence */
    assert_true(keep[0].kv.group == 0 && keep[2].kv.group == 0 && keep[0].kv.offset != keep[2].kv.offset);
    assert_true(keep[4].kv.group == 0 && keep[4].kv.offset == keep[0].kv.offset);
    assert_true(keep[5].kv.group == 0 && keep[5].kv.latent && keep[6].kv.group == 0);
    assert_true(keep[3].kv.group == -1 && keep[8].kv.group == -1 && keep[3].buffer[0].group == 2);
    assert_true(b[0].group == 2 && b[1].group == 2 && keys[0].group == 0 && keys[1].group == 1);
    assert_true(spec.group[2].per == RG_PER_SEQUENCE && spec.group[1].kept.window == 100);
    assert_true(keep[2].kv.offset % RG_ALIGN == 0 && keys[0].offset % RG_ALIGN == 0);
    assert_true(spec.group[0].block_bytes >= keys[0].offset + RG_BLOCK * keys[0].bytes);
    assert_true(b[0].max_draft == 0 && b[1].max_draft == 5 && b[1].draft_offset >= b[1].offset + b[1].bytes);
    assert_int_equal(rg_state_bytes_per_position(&spec), spec.group[0].block_bytes / RG_BLOCK);
    assert_int_equal(rg_state_bytes_per_sequence(&spec), 3 * spec.group[1].block_bytes + spec.group[2].block_bytes);

    for (int i = 0; i <= RG_MAX_GROUPS; i++) {
        bad[i] = (rg_keep)WINDOW;
        bad[i].sight.window = 10 + i;
    }
    assert_true(rg_state_declare(&spec, bad, RG_MAX_GROUPS, RG_BF16, 0, &err));
    assert_false(rg_state_declare(&spec, bad, RG_MAX_GROUPS + 1, RG_BF16, 0, &err));
    assert_int_equal(err.code, RG_E_LIMIT);
    bad[0] = (rg_keep)GLOBAL;
    bad[0].kv.n_heads = 1 << 24;
    bad[0].kv.k_dim = 1 << 24;
    assert_false(rg_state_declare(&spec, bad, 1, RG_BF16, 0, &err));
    for (int i = 0; i < 3; i++) { /* too many bytes per sequence, per position, per draft row */
        bad[0] = i == 1 ? (rg_keep)KEYS : (rg_keep)RECURRENT;
        *(i == 2 ? &bad[0].buffer[0].draft_bytes : &bad[0].buffer[0].bytes) = SIZE_MAX / 4;
        assert_int_equal(rg_state_declare(&spec, bad, 1, RG_BF16, 0, &err), i == 2); /* nobody drafts */
        bad[0] = i == 1 ? (rg_keep)KEYS : (rg_keep)RECURRENT;
        *(i == 2 ? &bad[0].buffer[0].draft_bytes : &bad[0].buffer[0].bytes) = SIZE_MAX / 4;
        assert_false(rg_state_declare(&spec, bad, 1, RG_BF16, RG_MAX_DRAFT, &err));
    }
    bad[0] = (rg_keep)SHARED;
    assert_false(rg_state_declare(&spec, bad, 1, RG_BF16, 0, &err));
    bad[0] = (rg_keep)RECURRENT;
    bad[1] = (rg_keep)SHARED; /* has no K/V */
    assert_false(rg_state_declare(&spec, bad, 2, RG_BF16, 0, &err));
    assert_false(rg_state_declare(&spec, keep, 1, RG_Q4_0, 0, &err));
}

/* What drafts need is there only where they can come. */
static void drafts_have_room_only_if_they_can_come(void **state)
{
    size_t bytes[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        rg_keep keep[] = { RECURRENT, PARALLEL };
        rg_state_spec spec;
        rg_error err;

        assert_ok(rg_state_declare(&spec, keep, 2, RG_F32, i ? 10 : 0, &err), err);
        bytes[i] = rg_state_bytes_per_sequence(&spec);
    }
    assert_int_equal(bytes[0], 3 * RG_ALIGN);
    assert_int_equal(bytes[1], 5 * RG_ALIGN); /* 40 bytes, rounded, of each that logs */
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
    const rg_group_memory *m = &rg_cpu_state_groups(rg_store_memory(w->store))[kv->group];
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

/* A row of a buffer per position. */
static void each_row(const world *w, const rg_span *span, const rg_buffer *b, int32_t p, uint64_t hash, bool write)
{
    const rg_group_memory *m = &rg_cpu_state_groups(rg_store_memory(w->store))[b->group];
    int32_t block = span->tables[b->group][p / RG_BLOCK];
    uint64_t value[2] = { stir(hash, 77), stir(hash, 78) };
    uint8_t *row;

    assert_true(block >= 0 && block < rg_store_n_blocks(w->store, b->group) && b->bytes <= sizeof value);
    row = m->data + (size_t)block * m->block_bytes + b->offset + (size_t)(p % RG_BLOCK) * b->bytes;
    if (write)
        memcpy(row, value, b->bytes);
    else
        assert_memory_equal(row, value, b->bytes);
}

static bool has_row(const rg_buffer *b, int32_t p, int32_t end)
{
    return b->per == RG_PER_POSITION && (!b->window || p > end - b->window);
}

static bool is_kept(const rg_sight *s, int32_t p, int32_t end)
{
    rg_kept kept = { 0 };

    rg_kept_add(&kept, s);
    return p >= end - kept.window + 1 || p / RG_BLOCK >= rg_kept_from(&kept, end) || rg_kept_for_good(&kept, p / RG_BLOCK);
}

/* Everything that is kept of position p, as far as a row at `end` may read it. */
static void put(const world *w, const rg_span *span, int32_t p, int32_t end, uint64_t hash, bool write)
{
    for (int l = 0; l < w->m->n_layers; l++) {
        const rg_keep *k = &w->keep[l];

        if (k->kv.group >= 0 && is_kept(&k->sight, p, end))
            each_value(w, span, &k->kv, p, hash, write);
        for (int i = 0; i < k->n_buffers; i++)
            if (has_row(&k->buffer[i], p, end))
                each_row(w, span, &k->buffer[i], p, hash, write);
    }
}

/* The buffer of a layer that is a state (a hash, and the ids of the logged rows); NULL: it has none. */
static const rg_buffer *state_of(const world *w, int l)
{
    const rg_keep *k = &w->keep[l];

    for (int i = 0; i < k->n_buffers; i++)
        if (k->buffer[i].draft_bytes)
            return &k->buffer[i];
    return NULL;
}

static uint8_t *slot_of(const world *w, const rg_seq *q, int group)
{
    const rg_group_memory *m = &rg_cpu_state_groups(rg_store_memory(w->store))[group];

    assert_true(q->table[group][0] >= 0);
    return m->data + (size_t)q->table[group][0] * m->block_bytes;
}

static void recur(const world *w, const rg_seq *q, const rg_span *span, const int32_t *ids)
{
    for (int l = 0; l < w->m->n_layers; l++) {
        const rg_buffer *b = state_of(w, l);
        uint8_t *slot, *log;
        uint64_t h = 0;

        if (!b)
            continue;
        slot = slot_of(w, q, b->group);
        log = slot + b->draft_offset;
        if (!rg_span_is_fresh(span))
            memcpy(&h, slot + b->offset, sizeof h);
        for (int32_t i = 0; i < span->n_replay; i++) {
            int32_t id;

            memcpy(&id, log + 4 * i, sizeof id);
            h = stir(h, (uint64_t)id);
        }
        for (int32_t i = 0; i < span->n_rows - span->n_draft; i++)
            h = stir(h, (uint64_t)ids[span->start + i]);
        memcpy(slot + b->offset, &h, sizeof h);
        if (span->n_draft)
            memcpy(log, ids + span->start + span->n_rows - span->n_draft, 4 * (size_t)span->n_draft);
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
    for (int32_t k = 0; k < p->length; k++)
        put(w, &span, k, p->committed, p->hash[k + 1], false);
    for (int l = 0; l < w->m->n_layers; l++) {
        const rg_buffer *b = state_of(w, l);
        int32_t n_logged = p->length > p->committed ? 0 : q->n_replay;
        const uint8_t *slot = b ? slot_of(w, q, b->group) : NULL;
        uint64_t h;

        if (!b)
            continue;
        memcpy(&h, slot + b->offset, sizeof h);
        assert_true(h == p->hash[p->committed - n_logged]);
        assert_memory_equal(slot + b->draft_offset, p->ids + p->committed - n_logged, 4 * (size_t)n_logged);
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
    assert_true(got >= 0 && got < n);
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
        put(w, &span, base + d, base + d, accepted ? p->hash[base + n] : rg_rng_u64(&w->g), true);
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
    bool more_drafts = q->length > q->committed, tree = !w->has_recurrent && !more_drafts && rg_rng_below(&w->g, 2);
    rg_span span = { 0 };

    if (q->swapped && !rg_seq_swap_in(w->states, q))
        return;
    if ((more_drafts && w->has_recurrent) || q->length + n_rows > MAX_LEN)
        return;
    if (more_drafts) /* drafts after drafts */
        n_draft = n_rows = n_rows < MAX_TREE ? n_rows : MAX_TREE;
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
        put(w, &span, span.start + k, span.start + k, p->hash[span.start + k + 1], true);
    recur(w, q, &span, p->ids);
    rg_seq_advance(w->states, q, n_rows, n_draft, p->ids);
    p->length += n_rows;
    p->committed += n_rows - n_draft;
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
    int32_t most = rg_rng_below(&w->g, 2) ? q->committed : (int32_t)rg_rng_below(&w->g, (uint64_t)q->committed + 1);
    int32_t p = rg_seq_shareable(w->states, q, most);
    assert_true(p <= most && (most < q->committed || p == most));
    assert_true(rg_seq_fork_at(w->states, q, p, w->seq[to]));
    w->plain[to] = w->plain[i];
    w->plain[to].length = w->plain[to].committed = p;
    if (!p)
        w->plain[to] = (plain){ 0 };
    w->n_done[4]++;
}

static void do_snapshot(world *w, int i)
{
    rg_seq *q = w->seq[i];
    bool done;

    if (q->swapped)
        return;
    done = rg_seq_snapshot(w->states, q, w->plain[i].ids);
    assert_true(!done || (w->has_recurrent && !q->n_replay && q->committed > 0));
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

/* A step of a scratch sequence over [0, n): what is read afterwards is this step's, whatever others did. */
static bool scratch_step(world *w, int i, int32_t n)
{
    plain *p = &w->plain[i];
    rg_seq *q = w->seq[i];
    bool room = rg_states_has_room(w->states, q, n, (rg_forks){ 0 });
    rg_span span = { 0 };

    assert_int_equal(rg_seq_grow(w->states, q, n), room);
    if (!room)
        return false;
    for (int32_t k = 0; k < n; k++)
        plain_append(p, k, next_id(w, i % 2, k));
    rg_seq_span(w->states, q, n, 0, &span);
    assert_true(span.start == 0 && span.n_rows == n && span.n_draft == 0 && span.n_replay == 0);
    for (int32_t k = 0; k < n; k++)
        put(w, &span, k, k, p->hash[k + 1], true);
    recur(w, q, &span, p->ids);
    rg_seq_advance(w->states, q, n, 0, p->ids);
    rg_states_check(w->states);
    assert_true(q->committed == 0 && q->length == 0 && q->n_published == 0);
    for (int32_t k = 0; k < n; k++)
        put(w, &span, k, k, p->hash[k + 1], false); /* of windows too */
    for (int l = 0; l < w->m->n_layers; l++)
        if (state_of(w, l)) {
            const rg_buffer *b = state_of(w, l);

            assert_memory_equal(slot_of(w, q, b->group) + b->offset, &p->hash[n], sizeof p->hash[n]);
        }
    return true;
}

static void do_scratch(world *w, int i)
{
    rg_uncached why;
    rg_seq *q;
    bool done = false;

    do_release(w, i);
    q = w->seq[i];
    rg_seq_scratch(q);
    assert_int_equal(rg_seq_match(w->states, q, w->plain[(i + 2) % N_SEQS].ids, 300, &why), 0);
    assert_int_equal(why, RG_UNCACHED_OFF);
    for (int turn = 0; turn < 3; turn++) {
        done |= scratch_step(w, i, 1 + (int32_t)rg_rng_below(&w->g, turn ? 80 : MAX_LEN));
        assert_false(rg_seq_snapshot(w->states, q, w->plain[i].ids));
        if (rg_rng_below(&w->g, 3))
            continue;
        assert_true(rg_seq_swap_out(w->states, q) && q->swapped_bytes == 0);
        rg_states_check(w->states);
        assert_true(rg_seq_swap_in(w->states, q));
    }
    rg_seq_release(w->states, q, w->plain[i].ids);
    assert_false(q->scratch);
    w->plain[i] = (plain){ 0 };
    w->n_done[8] += done;
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

static void world_open(world *w, const mix *m, bool use_prefixes)
{
    int32_t n_blocks[RG_MAX_GROUPS];
    rg_error err;

    *w = (world){ .m = m, .g = { .seed = test_seed } };
    memcpy(w->keep, m->keep, sizeof w->keep);
    assert_ok(rg_state_declare(&w->spec, w->keep, m->n_layers, m->type, RG_MAX_DRAFT, &err), err);
    for (int g = 0; g < w->spec.n_groups; g++) {
        bool recurrent = w->spec.group[g].per == RG_PER_SEQUENCE;

        w->has_recurrent |= recurrent;
        n_blocks[g] = recurrent ? m->n_slots : w->spec.group[g].kept.window ? m->n_window : m->n_blocks;
    }
    w->store = rg_store_new(&w->spec, n_blocks, rg_backend_nth(0), &err);
    assert_ok(w->store, err);
    for (int g = 0; g < w->spec.n_groups; g++) /* whatever a block held before */
        for (int32_t b = 0; b < n_blocks[g]; b++)
            rg_store_fill(w->store, g, b, 0xa5);
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
    { "parallel heads", { PARALLEL, RECURRENT }, 2, RG_F32, 40, 0, 9 },
    { "keys, all and near", { KEYS, WINDOW }, 2, RG_F16, 40, 16, 0 },
    { "all", { GLOBAL, WINDOW, RECURRENT, LATENT }, 4, RG_F32, 40, 18, 12 },
    { "sinks and global", { SINKS, GLOBAL }, 2, RG_F32, 40, 16, 0 },
    { "summaries alone", { SUMMARIES }, 1, RG_BF16, 0, 30, 0 },
};

static void run_random(const mix *m, bool use_prefixes, int n_verbs)
{
    static void (*const verbs[])(world * w, int i) = { do_match, do_step,     do_step, do_step, do_step,   do_accept,
                                                       do_fork,  do_snapshot, do_swap, do_swap, do_release, do_scratch };
    static world w;
    size_t n_before = rg_mem_count().n_live;

    world_open(&w, m, use_prefixes);
    for (int n = 0; n < n_verbs; n++) {
        int i = (int)rg_rng_below(&w.g, N_SEQS), v = (int)rg_rng_below(&w.g, RG_LEN(verbs));

        if ((v == 0 || v == 6 || v >= 10) && rg_rng_below(&w.g, 5)) /* what starts anew is rarer */
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
    assert_true(w.n_done[2] > 0 && w.n_done[4] > 0 && w.n_done[6] > 0 && w.n_done[8] > 0); /* it was about something */
    assert_true(!use_prefixes || m->n_slots == 3 || w.n_done[0] > 0);
    if (!use_prefixes || m->n_slots != 3)
        assert_int_equal(w.n_done[10] > 0, use_prefixes); /* matches that end within a block, recurrent states too */
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

/* A draft that a recurrent state has no room for is a bug of whoever planned it. */
static void drafts_without_room_are_caught(void **state)
{
    rg_keep keep[] = { RECURRENT };
    rg_state_spec spec;
    rg_error err;

    (void)state;
    for (int max_draft = 0; max_draft < 3; max_draft++) {
        assert_ok(rg_state_declare(&spec, keep, 1, RG_F32, max_draft, &err), err);
        rg_store *store = rg_store_new(&spec, (const int32_t[]){ 2 }, rg_backend_nth(0), &err);
        assert_ok(store, err);
        rg_states *s = rg_states_new(&spec, store, false, &err);
        assert_ok(s, err);
        rg_seq *q = rg_seq_new(s, 64, 0, &err);
        assert_ok(q, err);
        assert_true(rg_seq_grow(s, q, 4));
        pid_t child = fork();
        if (!child) {
            rg_span span;

            close(STDERR_FILENO);
            rg_seq_span(s, q, 4, 1, &span);
            _exit(0);
        }
        int status;
        assert_true(waitpid(child, &status, 0) == child);
        assert_int_equal(WIFEXITED(status) && !WEXITSTATUS(status), max_draft >= 1);
        rg_seq_free(s, q);
        rg_states_free(s);
        rg_store_free(store);
    }
}

/* Nothing of a scratch sequence can be found again, and all that it took comes back. */
static void scratch_leaves_no_trace(void **state)
{
    static world w;
    uint64_t all, held, live;

    (void)state;
    for (size_t i = 0; i < RG_LEN(mixes); i++) {
        int32_t least = 1000;

        world_open(&w, &mixes[i], true);
        for (int g = 0; g < w.spec.n_groups; g++)
            if (w.spec.group[g].per == RG_PER_POSITION && rg_store_n_blocks(w.store, g) * RG_BLOCK < least)
                least = rg_store_n_blocks(w.store, g) * RG_BLOCK;
        assert_int_equal(rg_states_most_scratch(w.states, 1000), least);
        assert_int_equal(rg_states_most_scratch(w.states, 96), 96);
        rg_seq_scratch(w.seq[0]);
        assert_true(scratch_step(&w, 0, 300) && scratch_step(&w, 0, 300));
        rg_seq_release(w.states, w.seq[0], w.plain[0].ids);
        rg_states_bytes(w.states, &all, &held, &live);
        assert_true(held == 0 && live == 0);
        assert_int_equal(rg_seq_match(w.states, w.seq[1], w.plain[0].ids, 300, NULL), 0);
        world_close(&w);
    }
}

/* All that is allocated follows the blocks, and tables the length that a sequence is made for. */
static void memory_follows_blocks_and_lengths(void **state)
{
    enum { N_BLOCKS = 20000, SMALL = 16384 };
    rg_keep keep[] = { RECURRENT, WINDOW, LATENT };
    rg_state_spec spec;
    rg_error err;

    (void)state;
    assert_ok(rg_state_declare(&spec, keep, 3, RG_F32, 0, &err), err);
    rg_store *store = rg_store_new(&spec, (const int32_t[]){ N_BLOCKS, N_BLOCKS, N_BLOCKS }, rg_backend_nth(0), &err);
    assert_ok(store, err);
    size_t before = rg_mem_count().live_bytes;
    rg_states *s = rg_states_new(&spec, store, true, &err);
    assert_ok(s, err);
    size_t made = rg_mem_count().live_bytes;
    assert_in_range(made - before, 0, 3 * N_BLOCKS * RG_BLOCK_BOOKKEEPING + SMALL);
    rg_seq *q = rg_seq_new(s, 1 << 20, 0, &err);
    assert_ok(q, err);
    assert_in_range(rg_mem_count().live_bytes - made, 0, 2 * ((1 << 20) / RG_BLOCK) * sizeof(int32_t) + SMALL);
    rg_seq_free(s, q);
    rg_states_free(s);
    assert_ok(rg_state_declare(&spec, keep, 1, RG_F32, 0, &err), err); /* a slot has a table of one entry */
    s = rg_states_new(&spec, store, true, &err);
    assert_ok(s, err);
    made = rg_mem_count().live_bytes;
    q = rg_seq_new(s, INT32_MAX, 0, &err);
    assert_ok(q, err);
    assert_in_range(rg_mem_count().live_bytes - made, 0, SMALL);
    rg_seq_free(s, q);
    rg_states_free(s);
    rg_store_free(store);
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
    const rg_forks alone = { 0 }, three = { 3, 20 * RG_BLOCK + 5 };
    assert_true(rg_states_share(w.states, 40 * RG_BLOCK, alone) == 1);
    assert_true(rg_states_share(w.states, 40 * RG_BLOCK + 1, alone) > 1);
    assert_true(rg_states_share(w.states, 26 * RG_BLOCK, three) < 1); /* 20 blocks once, and 6 for each */
    assert_true(rg_states_share(w.states, 27 * RG_BLOCK, three) > 1);
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
        cmocka_unit_test(drafts_have_room_only_if_they_can_come),
        cmocka_unit_test(drafts_without_room_are_caught),
        cmocka_unit_test(verbs_keep_every_history),
        cmocka_unit_test(scratch_leaves_no_trace),
        cmocka_unit_test(memory_follows_blocks_and_lengths),
        cmocka_unit_test(windows_release_what_no_row_sees),
        cmocka_unit_test(stops_are_where_snapshots_pay),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
