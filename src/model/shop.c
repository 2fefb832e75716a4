/* shop.c -- see shop.h. */
#include "model/shop.h"

#include <string.h>

#include "base/clock.h"
#include "base/quantile.h"
#include "base/mem.h"
#include "base/rng.h"

enum {
    LATENT = 576,           /* columns of a head, at most */
    FILL_VALUES = 1 << 16, ARENA_FILLED = 8 << 20,
    TRIES = 6,
};

/* Seconds: of a run that is worth measuring, until cores run at their speed, of all tries when one has succeeded. */
static const double AT_LEAST = 1e-3, WARM = 3e-3, ENOUGH = 28e-3;

static void free_weights(rg_shop *w)
{
    for (int i = 0; i < RG_SHOP_MATRICES; i++)
        rg_packed_fini(&w->packed[i]);
    memset(w->packed, 0, sizeof w->packed);
}

static void free_state(rg_shop *w)
{
    if (w->state)
        rg_region_free(w->state, w->state_bytes);
    w->state = NULL;
}

void rg_shop_close(rg_shop *w)
{
    if (!w)
        return;
    free_weights(w);
    free_state(w);
    rg_cpu_reader_free(w->reader);
    rg_pool_free(w->pool);
    if (w->arena)
        rg_region_free(w->arena, w->arena_bytes);
    rg_free(w->fwd);
    rg_free(w->stamps);
    rg_free(w->vector);
    rg_free(w->table);
    rg_free(w->index);
    rg_free(w->kv_end);
    rg_free(w->ints);
    rg_free(w);
}

rg_shop *rg_shop_open(const rg_cpu *cpu, int n_threads, bool exact, rg_error *err)
{
    rg_shop *w = rg_zalloc(sizeof *w);
    rg_cpu_sizes sizes = { .max_rows = RG_SHOP_ROWS, .max_cols = RG_SHOP_COLS, .max_experts = RG_SHOP_EXPERTS,
                           .max_experts_used = RG_SHOP_USED, .n_threads = n_threads, .max_heads = 64,
                           .max_head_dim = LATENT, .max_keys = RG_SHOP_CONTEXT };

    if (!w)
        return rg_fail_memory(err, sizeof *w), NULL;
    w->n_threads = n_threads;
    w->exact = exact;
    w->arena_bytes = (size_t)64 << 20;
    w->arena = rg_region_new(w->arena_bytes);
    w->fwd = rg_array((size_t)n_threads, sizeof *w->fwd);
    w->stamps = rg_array((size_t)n_threads, RG_SHOP_TURNS * sizeof *w->stamps);
    w->vector = rg_array(RG_SHOP_VECTOR, sizeof *w->vector);
    w->table = rg_array(RG_SHOP_SPANS * RG_SHOP_CONTEXT / RG_BLOCK, sizeof *w->table);
    w->index = rg_array(RG_SHOP_ROWS, sizeof *w->index);
    w->kv_end = rg_array(RG_SHOP_ROWS, sizeof *w->kv_end);
    w->ints = rg_array((size_t)RG_SHOP_ROWS * 6, sizeof *w->ints);
    w->pool = rg_pool_new(n_threads, err);
    w->reader = w->pool ? rg_cpu_reader_new(cpu, &sizes, err) : NULL;
    if (!w->arena || !w->fwd || !w->stamps || !w->vector || !w->table || !w->index || !w->kv_end || !w->ints)
        rg_fail_memory(err, w->arena_bytes);
    else if (w->reader) {
        for (int i = 0; i < RG_SHOP_VECTOR; i++)
            w->vector[i] = i % 2 ? -0.5f : -1.0f; /* also a recurrence's A, which is negative */
        w->norm = (rg_weight){ .name = "norm", .n_mats = 1, .rows = 1, .vec = w->vector };
        return w;
    }
    rg_shop_close(w);
    return NULL;
}

/* ---- the batch --------------------------------------------------------------------------------------------------- */

bool rg_shop_batch(rg_shop *w, int rows, size_t block_bytes, bool recurrent, rg_error *err)
{
    int32_t *token = w->ints, *logits = token + RG_SHOP_ROWS, *pos = logits + RG_SHOP_ROWS;
    int blocks = recurrent ? 1 : RG_SHOP_CONTEXT / RG_BLOCK, n = w->spread > 0 ? w->spread : 1;

    free_state(w);
    w->state_bytes = (size_t)n * (size_t)blocks * block_bytes;
    w->state = w->state_bytes ? rg_region_new(w->state_bytes) : NULL;
    if (w->state_bytes && !w->state)
        return rg_fail_memory(err, w->state_bytes);
    if (w->state) /* pages that nobody wrote are all the same one, and near; as f32 or bf16 this is 0.01 */
        memset(w->state, 0x3c, w->state_bytes);
    w->group = (rg_group_memory){ w->state, block_bytes };
    for (int r = 0; r < rows; r++) {
        token[r] = r;
        w->index[r] = RG_SHOP_CONTEXT - rows + r;
        w->kv_end[r] = w->index[r] + 1;
        logits[r] = r;
        for (int d = 0; d < 4; d++)
            pos[4 * r + d] = w->index[r];
    }
    for (int i = 0; i < n; i++) {
        for (int b = 0; b < blocks; b++)
            w->table[i * blocks + b] = i * blocks + b;
        w->spans[i] = (rg_span){ .n_rows = rows, .start = RG_SHOP_CONTEXT - rows, .adapter = -1 };
        w->spans[i].tables[0] = w->table + i * blocks;
        w->batches[i] = (rg_batch){ .n_rows = rows, .n_spans = 1, .spans = &w->spans[i], .token = token,
                                    .index = w->index, .kv_end = w->kv_end,
                                    .pos = (const int32_t(*)[4])(const void *)pos,
                                    .n_logits = rows, .logit_rows = logits };
    }
    return true;
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

bool rg_shop_weights(rg_shop *w, rg_type type, int n, const int64_t shape[3], rg_error *err)
{
    const rg_format *fmt = rg_format_of(type);
    size_t row_bytes = (size_t)(shape[2] / fmt->block_len * fmt->block_bytes);
    float *x = rg_array((size_t)shape[2], sizeof *x);
    uint8_t *row = rg_alloc(row_bytes);
    bool ok = x && row;

    free_weights(w);
    if (!ok)
        rg_fail_memory(err, row_bytes);
    for (int64_t i = 0; ok && i < shape[2]; i++)
        x[i] = (float)(i * 37 % 101 - 50) / 1000.0f;
    if (ok)
        fmt->encode(x, shape[2] / fmt->block_len, row);
    for (int i = 0; ok && i < n; i++) {
        rg_packed *p = &w->packed[i];
        ok = rg_packed_init(p, type, shape[0], shape[1], shape[2], err);
        for (int64_t r = 0; ok && !i && r < shape[0] * shape[1]; r++)
            rg_pack_row(p, r / shape[1], r % shape[1], row);
        if (ok && i)
            memcpy(p->data, w->packed[0].data, p->bytes);
        w->weight[i] = (rg_weight){ .name = "weight", .type = type, .n_mats = shape[0], .rows = shape[1],
                                    .cols = shape[2], .packed = p };
    }
    rg_free(x);
    rg_free(row);
    return ok;
}

/* ---- the clock --------------------------------------------------------------------------------------------------- */

/* In a step, what an operation reads was written by the one before it, and what it writes was read: some of it by this
 * thread, the rest by the others, from whose caches it comes.  So every thread writes its share of the text's
 * activations as they are. */
static void hand_over(rg_fwd *f)
{
    const size_t line = 64 / sizeof(uint32_t), run = 16 * line, all = f->arena_peak / sizeof(uint32_t);
    volatile uint32_t *at = (volatile uint32_t *)(void *)f->arena;

    for (size_t i = (size_t)f->thread * run; i < all; i += (size_t)f->n_threads * run)
        for (size_t k = i; k < i + run && k < all; k += line)
            at[k] = at[k];
    rg_fwd_barrier(f);
}

static void turns(rg_fwd *f, rg_shop *w, int n)
{
    rg_shop_stamp *stamp = w->stamps + (size_t)f->thread * RG_SHOP_TURNS;

    for (int i = 0; i < n; i++) {
        int mark = rg_act_mark(f), turn = w->spread > 1 ? i % w->spread : 0;

        f->batch = &w->batches[w->state && w->spread > 1 ? turn : 0];
        hand_over(f);
        stamp[i].begun = rg_now_ns();
        w->fn(f, w, turn);
        stamp[i].ended = rg_now_ns();
        rg_act_release(f, mark);
    }
    rg_fwd_barrier(f);
}

static void program(void *arg, int thread)
{
    rg_shop *w = arg;
    rg_fwd *f = &w->fwd[thread];

    *f = (rg_fwd){ .reader = rg_cpu_reader_of(w->reader), .batch = &w->batches[0], .groups = &w->group,
                   .exact = w->exact, .layer = 0, .thread = thread, .n_threads = w->n_threads, .pool = w->pool,
                   .arena = w->arena, .arena_bytes = w->arena_bytes };
    turns(f, w, 1);
    turns(f, w, w->repeats);
}

/* So many turns took so long, where the usual one takes usual_s. */
static void note_lost(rg_shop *w, double took_s, double usual_s)
{
    for (int i = 0; i < RG_RATE_WINDOWS; i++) {
        rg_lost *l = &w->lost[i];
        l->took_s += took_s;
        l->usual_s += usual_s;
        if (l->took_s < rg_rate_windows[i])
            continue;
        l->share[l->n++ % RG_SHOP_WINDOWS] = l->usual_s > 0 ? l->took_s / l->usual_s - 1 : 0;
        l->took_s = l->usual_s = 0;
    }
}

double rg_shop_lost(rg_shop *w, int i)
{
    rg_lost *l = &w->lost[i];
    int n = l->n < RG_SHOP_WINDOWS ? l->n : RG_SHOP_WINDOWS;
    double share = n ? rg_quantile(l->share, n, 0.5) : 0;

    *l = (rg_lost){ 0 };
    return rg_shop_usual(w, share > 0 ? share : 0, true);
}

/* Of a turn, the median: from when the last thread began it to when the last one was done with it, which is where the
 * next operation of a step begins. */
static double usual_turn(rg_shop *w)
{
    double took[RG_SHOP_TURNS], all = 0;

    for (int i = 0; i < w->repeats; i++) {
        uint64_t begun = 0, ended = 0;
        for (int t = 0; t < w->n_threads; t++) {
            const rg_shop_stamp *s = &w->stamps[(size_t)t * RG_SHOP_TURNS + (size_t)i];
            begun = s->begun > begun ? s->begun : begun;
            ended = s->ended > ended ? s->ended : ended;
        }
        took[i] = rg_seconds(begun, ended);
        all += took[i];
    }
    double usual = rg_quantile(took, w->repeats, 0.5);
    note_lost(w, all, usual * w->repeats);
    return usual;
}

/* Values as activations have them, without a pattern that branches could learn, and without the smallest of all, which
 * processors are slow at. */
static void fill_arena(rg_shop *w)
{
    rg_rng rng = { .seed = 1 };
    float *x = (float *)(void *)w->arena;
    size_t n = ARENA_FILLED / sizeof *x, known = n < FILL_VALUES ? n : FILL_VALUES;

    for (size_t i = 0; i < known; i++)
        x[i] = 2 * rg_rng_unit(&rng) - 1;
    for (; known < n; known *= 2)
        memcpy(x + known, x, (n - known < known ? n - known : known) * sizeof *x);
}

double rg_shop_usual(rg_shop *w, double seconds, bool quiet)
{
    rg_seen *seen = w->seen;
    int i = w->n_timed++;
    double sorted[RG_SHOP_PASSES];

    if (i >= RG_SHOP_TIMED)
        return seconds;
    if (i == seen->n) {
        seen->times[i] = 0;
        seen->quiet[seen->n++] = false;
    }
    if (quiet && !seen->quiet[i]) {
        seen->times[i] = 0;
        seen->quiet[i] = true;
    }
    if (quiet == seen->quiet[i])
        seen->seconds[i][seen->times[i]++ % RG_SHOP_PASSES] = seconds;
    int n = seen->times[i] < RG_SHOP_PASSES ? seen->times[i] : RG_SHOP_PASSES;
    memcpy(sorted, seen->seconds[i], (size_t)n * sizeof *sorted);
    return rg_quantile(sorted, n, 0.5);
}

static rg_share look(const rg_shop *w, bool memory)
{
    return w->pulse ? rg_pulse_look(w->pulse, w->pool, memory) : (rg_share){ 0 };
}

rg_share rg_shop_wait(rg_shop *w, bool memory)
{
    return w->pulse ? rg_pulse_wait(w->pulse, w->pool, memory, &w->patience_s) : (rg_share){ 0 };
}

bool rg_shop_quiet(const rg_shop *w, const rg_share *s)
{
    return !w->pulse || rg_pulse_quiet(w->pulse, s);
}

static rg_share between(const rg_share *a, const rg_share *b)
{
    return (rg_share){ .memory = (a->memory + b->memory) / 2, .compute = (a->compute + b->compute) / 2,
                       .cache = (a->cache + b->cache) / 2 };
}

/* What is timed takes near_s near, and its bytes bytes_s from there. */
typedef struct place {
    bool far;
    rg_source from;
    double near_s, bytes_s;
} place;

/* What took so long would have taken, had all been given. */
static double undelayed(double seconds, const rg_share *s, const place *at)
{
    if (!at->far)
        return s->compute > 0 ? seconds * s->compute : seconds;
    seconds -= rg_share_delay(s, at->from, at->near_s, at->bytes_s);
    return seconds > at->near_s ? seconds : at->near_s;
}

/* The first tries are to get warm, cores that have slept too; and of what lies in caches they tell how many turns make
 * a time worth measuring: it is gone through again and again, as by a step after a step, for looks leave nothing there.
 * On a slow machine, few.  Only quiet ones count, if there are any. */
static double timed(rg_shop *w, rg_shop_text *fn, const place *at)
{
    const bool once = at->far && at->from == RG_FROM_MEMORY;
    double tries[TRIES], spent = 0;
    int n = 0;
    bool quiet = false;

    fill_arena(w);
    w->fn = fn;
    w->repeats = w->spread > 1 ? w->spread : 2;
    rg_share before = rg_shop_wait(w, at->far);
    for (int i = 0; n < TRIES && (!n || spent < ENOUGH); i++) {
        rg_pool_run(w->pool, w->n_threads, program, w);
        double s = usual_turn(w), all = s * w->repeats;
        bool enough = once || all > AT_LEAST || w->repeats >= RG_SHOP_TURNS;
        rg_share after = look(w, at->far), then = between(&before, &after);
        if (!enough)
            w->repeats = s > 0 && s * RG_SHOP_TURNS > 2 * AT_LEAST ? (int)(2 * AT_LEAST / s) : RG_SHOP_TURNS;
        if (enough && i && (once || spent > WARM || i > TRIES)) { /* i: a clock may stand still */
            bool now = rg_shop_quiet(w, &before) && rg_shop_quiet(w, &after);
            if (now && !quiet)
                n = 0;
            if (now || !quiet)
                tries[n++] = undelayed(s, &then, at);
            quiet |= now;
        }
        spent += all;
        before = after;
    }
    return rg_shop_usual(w, rg_quantile(tries, n, 0.5), quiet);
}

double rg_shop_seconds(rg_shop *w, rg_shop_text *fn)
{
    return timed(w, fn, &(place){ 0 });
}

double rg_shop_far_seconds(rg_shop *w, rg_shop_text *fn, rg_source from, double near_s, double bytes_s)
{
    return timed(w, fn, &(place){ .far = true, .from = from, .near_s = near_s, .bytes_s = bytes_s });
}
