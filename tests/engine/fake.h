/* fake.h -- a model for the engine's tests: its state is the token ids themselves, per position, in the blocks of each
 * group, and its logits are a hash of the history read back through the span's tables. */
#ifndef RG_TEST_FAKE_H
#define RG_TEST_FAKE_H

#include "support/sight.h"
#include "support/test.h"

#include <string.h>

#include "base/mem.h"
#include "base/pool.h"
#include "engine/host.h"
#include "ops/cpu/state.h"

#ifndef FAKE_MAX_ROWS /* of a step, and of how many there are logits */
#define FAKE_MAX_ROWS 96
#define FAKE_MAX_LOGITS 24
#endif

enum { VOCAB = 64, DIM = 3, MAX_ROWS = FAKE_MAX_ROWS, MAX_LOGITS = FAKE_MAX_LOGITS, EOS = 7, FAKE_THREADS = 2, FAKE_DRAFT = 12 };

typedef struct mix { /* one layer of each kind that is wanted */
    const char *name;
    bool global, recurrent, latent;
    int window;
    const rg_patterns *patterns; /* of the layer that would have a window; NULL: it has */
    int32_t n_blocks; /* of groups that grow */
    int32_t n_window, n_slots;
} mix;

typedef struct fake {
    rg_runner runner;
    rg_state_spec spec;
    rg_keep keep[4];
    int n_layers;
    rg_pool *pool;
    const rg_batch *batch;
    const rg_sink *sink;
    uint64_t hash[MAX_ROWS];
    float logits[MAX_LOGITS][VOCAB]; /* they stay until the step ends */
    atomic_int next_row;
} fake;

static uint64_t stir(uint64_t h, uint64_t x)
{
    h = (h ^ x) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

static void logits_of(uint64_t h, float *logits)
{
    for (int i = 0; i < VOCAB; i++)
        logits[i] = (float)(stir(h, (uint64_t)i) >> 40) * 0x1p-24f * 8.0f - 4.0f;
    logits[EOS] -= 2.0f;
}

static void hidden_of(uint64_t h, float *hidden)
{
    for (unsigned i = 0; i < DIM; i++)
        hidden[i] = (float)(stir(h, 1000 + i) >> 40) * 0x1p-24f - 0.5f;
}

/* Where a layer keeps position p: the value's address in its block. */
static uint8_t *cell(const fake *f, const rg_span *span, const rg_kv *kv, int32_t p)
{
    const rg_group_memory *m = &rg_cpu_state_groups(rg_store_memory(f->runner.store))[kv->group];
    int32_t block = span->tables[kv->group][p / RG_BLOCK];

    assert_true(block >= 0 && block < rg_store_n_blocks(f->runner.store, kv->group));
    return m->data + (size_t)block * m->block_bytes + kv->offset + (size_t)(p % RG_BLOCK) * sizeof(float);
}

/* Where row r finds the K/V of a position: a row of a draft tree through its list. */
static int32_t slot_seen(const fake *f, const rg_span *span, int32_t r, int32_t position)
{
    const int32_t *list = f->batch->ancestors ? f->batch->ancestors[r] : NULL;
    int32_t first = span->start + span->n_rows - span->n_draft;

    return list && position >= first ? list[position - first] : position;
}

static uint64_t read_history(const fake *f, const rg_span *span, int32_t r)
{
    int32_t p = f->batch->index[r];
    uint64_t h = 1;

    for (int l = 0; l < f->n_layers; l++) {
        const rg_kv *kv = &f->keep[l].kv;
        const rg_sight *sight = &f->keep[l].sight;

        for (int32_t k = rg_sight_low(sight, p); kv->group >= 0 && k <= p; k++) {
            int32_t id;

            if (!test_sees(sight, 0, p, k))
                continue;

            memcpy(&id, cell(f, span, kv, slot_seen(f, span, r, k)), sizeof id);
            h = stir(h, (uint64_t)(uint32_t)id + 1000u * (unsigned)l);
        }
    }
    return h;
}

/* What row r is made of: its id, or of a given row the number that it begins with. */
static int32_t id_of_row(const rg_batch *b, int32_t r)
{
    assert_true(b->token[r] >= 0 || (b->token[r] == RG_GIVEN && b->given));
    return b->token[r] >= 0 ? b->token[r] : (int32_t)b->given[r][0];
}

static void fake_span(fake *f, const rg_span *span)
{
    const rg_batch *b = f->batch;
    int32_t end = span->first_row + span->n_rows;

    for (int32_t r = span->first_row; r < end; r++) {
        int32_t slot = b->slot ? b->slot[r] : b->index[r];

        assert_int_equal(slot, span->start + r - span->first_row);
        assert_true(b->index[r] == slot || (r >= end - span->n_draft && b->index[r] < slot));
        assert_int_equal(b->kv_end[r], b->index[r] + 1);
        const int32_t id = id_of_row(b, r);

        for (int l = 0; l < f->n_layers; l++)
            if (f->keep[l].kv.group >= 0)
                memcpy(cell(f, span, &f->keep[l].kv, slot), &id, sizeof id);
        f->hash[r] = 0;
    }
    for (int l = 0; l < f->n_layers; l++) {
        const rg_buffer *state = &f->keep[l].buffer[0];
        const rg_group_memory *m;
        uint8_t *slot;
        int32_t *log;
        uint64_t h = 0;

        if (!f->keep[l].n_buffers)
            continue;
        m = &rg_cpu_state_groups(rg_store_memory(f->runner.store))[state->group];
        slot = m->data + (size_t)span->tables[state->group][0] * m->block_bytes + state->offset;
        log = (int32_t *)(void *)(slot - state->offset + state->draft_offset);
        assert_true(span->n_draft <= FAKE_DRAFT && span->n_replay <= FAKE_DRAFT);
        if (!rg_span_is_fresh(span))
            memcpy(&h, slot, sizeof h);
        for (int32_t i = 0; i < span->n_replay; i++)
            h = stir(h, (uint64_t)log[i] + 1);
        for (int32_t r = span->first_row; r < end; r++) {
            if (r == end - span->n_draft)
                memcpy(slot, &h, sizeof h);
            if (r >= end - span->n_draft)
                log[r - end + span->n_draft] = id_of_row(b, r);
            f->hash[r] = h = stir(h, (uint64_t)id_of_row(b, r) + 1);
        }
        if (!span->n_draft)
            memcpy(slot, &h, sizeof h);
    }
}

/* What row r makes of its history. */
static uint64_t hash_of_row(const fake *f, int32_t r)
{
    const rg_span *span = f->batch->spans;

    while (r >= span->first_row + span->n_rows)
        span++;
    return stir(f->hash[r], read_history(f, span, r));
}

static void fake_rows(void *arg, int thread)
{
    fake *f = arg;
    const rg_batch *b = f->batch;
    float hidden[MAX_ROWS][DIM + 1];

    for (int i; (i = atomic_fetch_add(&f->next_row, 1)) < b->n_logits + b->n_hidden;) {
        if (i < b->n_logits) {
            logits_of(hash_of_row(f, b->logit_rows[i]), f->logits[i]);
            f->sink->logits(f->sink->arg, thread, i, f->logits[i]);
            continue;
        }
        const rg_rows *rows = &b->hidden[i - b->n_logits];

        for (int32_t k = 0; k < rows->n; k++)
            hidden_of(hash_of_row(f, rows->first + k), hidden[k]);
        f->sink->hidden(f->sink->arg, thread, i - b->n_logits, hidden[0], DIM + 1);
    }
}

static void fake_step(rg_runner *self, const rg_batch *batch, const rg_sink *sink)
{
    fake *f = (fake *)self;

    assert_true(batch->n_rows > 0 && batch->n_rows <= MAX_ROWS && batch->n_logits <= MAX_LOGITS);
    f->batch = batch;
    f->sink = sink;
    atomic_store(&f->next_row, 0);
    for (int i = 0; i < batch->n_spans; i++)
        fake_span(f, &batch->spans[i]);
    if (f->pool)
        rg_pool_run(f->pool, FAKE_THREADS, fake_rows, f);
    else
        fake_rows(f, 0);
}

static rg_sight fake_sight(const mix *m)
{
    return (rg_sight){ .window = m->patterns ? 0 : m->window, .patterns = m->patterns };
}

static fake *fake_new(const mix *m, rg_error *err)
{
    const rg_kv kv = { .n_heads = 1, .k_dim = 1, .v_dim = 1 }, none = { 0 };
    int32_t n_blocks[RG_MAX_GROUPS] = { 0 };
    fake *f = rg_zalloc(sizeof *f);

    if (!f)
        return rg_fail_memory(err, sizeof *f), NULL;
    f->n_layers = RG_LEN(f->keep);
    for (int l = 0; l < f->n_layers; l++)
        f->keep[l].shared_with = -1;
    f->keep[0].kv = m->global ? kv : none;
    f->keep[1].kv = m->window || m->patterns ? kv : none;
    f->keep[1].sight = fake_sight(m);
    f->keep[2].n_buffers = m->recurrent;
    f->keep[2].buffer[0] = (rg_buffer){ .name = "hash", .bytes = sizeof(uint64_t), .draft_bytes = sizeof(int32_t) };
    f->keep[3].kv = m->latent ? kv : none;
    f->keep[3].kv.latent = m->latent;
    assert_true(rg_state_declare(&f->spec, f->keep, f->n_layers, RG_F32, FAKE_DRAFT, err));
    for (int g = 0; g < f->spec.n_groups; g++)
        n_blocks[g] = f->spec.group[g].per == RG_PER_SEQUENCE ? m->n_slots
                      : f->spec.group[g].kept.all             ? m->n_blocks
                                                              : m->n_window;
    f->runner = (rg_runner){ .vocab_size = VOCAB, .dim = DIM, .sees = RG_CAUSAL, .diffusion.mask_id = -1, .max_rows = MAX_ROWS,
                             .max_logits = MAX_LOGITS, .n_threads = FAKE_THREADS, .spec = &f->spec, .step = fake_step };
    f->runner.store = rg_store_new(&f->spec, n_blocks, rg_backend_nth(0), err);
    if (!f->runner.store) {
        rg_free(f);
        return NULL;
    }
    return f;
}

static void fake_free(fake *f)
{
    rg_pool_free(f->pool);
    rg_store_free(f->runner.store);
    rg_free(f);
}

/* The same model over a plain array of ids. */
static __attribute__((unused)) uint64_t plain_hash(const mix *m, const int32_t *ids, int32_t n)
{
    uint64_t rec = 0, h = 1;

    for (int32_t i = 0; i < n && m->recurrent; i++)
        rec = stir(rec, (uint64_t)ids[i] + 1);
    for (unsigned l = 0; l < 4; l++) {
        const rg_sight sight = l == 1 ? fake_sight(m) : rg_sight_all;

        if ((l == 0 && m->global) || (l == 1 && (m->window || m->patterns)) || (l == 3 && m->latent))
            for (int32_t k = 0; k < n; k++)
                if (test_sees(&sight, 0, n - 1, k))
                    h = stir(h, (uint64_t)(uint32_t)ids[k] + 1000u * l);
    }
    return stir(rec, h);
}

#endif
