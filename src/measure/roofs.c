/* roofs.c -- see roofs.h. */
#include "measure/roofs.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

enum {
    MEMORY_BYTES = 128 << 20, /* more than the caches of most machines hold; a larger working set reads no slower */
    LEAST_READ = 32 << 20,    /* bytes that one try reads, so that it is long enough to be timed */
    TRIES = 5,
    LINE = 64,
};

/* Multiply-adds of one try, and seconds after which no further try begins. */
static const double PEAK_OPS = 1e7, LONG_S = 0.02;

typedef struct probe {
    const rg_backend *backend;
    uint8_t *data;
    size_t part; /* bytes of one thread */
    int repeats;
    rg_arithmetic kind;
    double *done; /* [threads] */
} probe;

static void fill(void *arg, int thread)
{
    probe *p = arg;

    memset(p->data + (size_t)thread * p->part, 1, p->part);
}

static void read_all(void *arg, int thread)
{
    probe *p = arg;

    for (int i = 0; i < p->repeats; i++)
        p->done[thread] = (double)p->backend->stream(p->backend, p->data + (size_t)thread * p->part, p->part);
}

static void compute(void *arg, int thread)
{
    probe *p = arg;

    p->done[thread] = p->backend->work(p->backend, p->kind, PEAK_OPS);
}

static double timed(probe *p, rg_pool *pool, void (*fn)(void *arg, int thread))
{
    uint64_t t0 = rg_now_ns();

    rg_pool_run(pool, rg_pool_threads(pool), fn, p);
    return rg_seconds(t0, rg_now_ns());
}

/* The least of several tries: other work on the machine can only slow one down. */
static double best_seconds(probe *p, rg_pool *pool, void (*fn)(void *arg, int thread))
{
    double best = timed(p, pool, fn), all = best;

    for (int i = 1; i < TRIES && all < LONG_S * TRIES; i++) {
        double s = timed(p, pool, fn);
        best = s < best ? s : best;
        all += s;
    }
    return best;
}

static double rate(double amount, double seconds)
{
    return seconds > 0 ? amount / seconds : 0;
}

static bool init(probe *p, const rg_backend *backend, const rg_pool *pool, rg_error *err)
{
    size_t n = (size_t)rg_pool_threads(pool);

    *p = (probe){ .backend = backend, .done = rg_array(n, sizeof *p->done) };
    return p->done || rg_fail_memory(err, n * sizeof *p->done);
}

static double peak_of(probe *p, rg_pool *pool, rg_arithmetic kind)
{
    double ops = 0;

    p->kind = kind;
    double s = best_seconds(p, pool, compute);
    for (int t = 0; t < rg_pool_threads(pool); t++) /* every try does as many */
        ops += 2 * p->done[t];
    return rate(ops, s);
}

bool rg_roofs_bandwidth(double *bytes_s, const rg_backend *backend, rg_pool *pool, size_t bytes, rg_error *err)
{
    size_t n = (size_t)rg_pool_threads(pool), part = bytes / n / LINE * LINE + LINE, all = n * part;
    probe p;

    if (!init(&p, backend, pool, err))
        return false;
    p.part = part;
    p.repeats = (int)(LEAST_READ / all) + 1;
    p.data = rg_region_new(all);
    bool ok = p.data || rg_fail_memory(err, all);
    if (ok) {
        rg_pool_run(pool, (int)n, fill, &p);
        *bytes_s = rate((double)all * p.repeats, best_seconds(&p, pool, read_all));
        rg_region_free(p.data, all);
    }
    rg_free(p.done);
    return ok;
}

bool rg_roofs_probe(rg_roofs *out, const rg_backend *backend, int n_threads, double working_set, rg_error *err)
{
    const size_t bytes = working_set > 0 && working_set < MEMORY_BYTES ? (size_t)working_set : MEMORY_BYTES;
    rg_pool *pool = rg_pool_new(n_threads, err);
    probe p = { 0 };
    bool ok = pool && init(&p, backend, pool, err);

    *out = (rg_roofs){ .n_threads = n_threads };
    if (ok) {
        ok = rg_roofs_bandwidth(&out->read_bytes_s, backend, pool, bytes, err);
        out->f32_ops_s = peak_of(&p, pool, RG_ARITHMETIC_F32);
        out->int8_ops_s = peak_of(&p, pool, RG_ARITHMETIC_INT8);
        out->bf16_ops_s = peak_of(&p, pool, RG_ARITHMETIC_BF16);
    }
    rg_free(p.done);
    rg_pool_free(pool);
    return ok;
}

static bool in_bf16(rg_layout layout)
{
    return layout == RG_LAYOUT_BF16 || layout == RG_LAYOUT_F8;
}

bool rg_roofs_in_int8(rg_type weights)
{
    const rg_layout layout = rg_format_of(weights)->layout;

    return layout > RG_LAYOUT_BF16 && !in_bf16(layout);
}

/* (An operation without weights has the type 0, F32.  F8 uses no tiles: where BF16 does, F8's peak is less.) */
static double *peak_at(rg_roofs *r, rg_type weights, bool exact)
{
    const bool bf16 = in_bf16(rg_format_of(weights)->layout);
    double *peak = bf16 ? &r->bf16_ops_s : rg_roofs_in_int8(weights) ? &r->int8_ops_s : NULL;

    return peak && *peak > 0 && !exact ? peak : &r->f32_ops_s;
}

double rg_roofs_peak(const rg_roofs *r, rg_type weights, bool exact)
{
    rg_roofs copy = *r;

    return *peak_at(&copy, weights, exact);
}

void rg_roofs_raise_peak(rg_roofs *r, rg_type weights, bool exact, double ops_s)
{
    double *peak = peak_at(r, weights, exact);

    *peak = ops_s > *peak ? ops_s : *peak;
}
