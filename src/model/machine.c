/* machine.c -- see machine.h. */
#include "model/machine.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/quantile.h"

/* ---- the roofs --------------------------------------------------------------------------------------------------- */

typedef struct probe {
    const rg_cpu *cpu;
    rg_pool *pool;
    int n_threads;
    const uint8_t *data;
    size_t bytes;             /* per thread */
    int repeats;
    double (*peak)(double n);
    double n, done[256];
} probe;

static void read_all(void *arg, int thread)
{
    probe *p = arg;

    for (int i = 0; i < p->repeats; i++)
        p->done[thread] = (double)p->cpu->stream(p->data + (size_t)thread * p->bytes, p->bytes);
}

static void compute(void *arg, int thread)
{
    probe *p = arg;

    p->done[thread] = p->peak(p->n);
}

static void barriers(void *arg, int thread)
{
    probe *p = arg;
    uint32_t phase = 0;

    (void)thread;
    while (phase < 1000) {
        rg_phase_take(p->pool, phase);
        rg_phase_end(p->pool, &phase);
    }
}

static double timed(probe *p, void (*fn)(void *arg, int thread))
{
    uint64_t t0 = rg_now_ns();

    rg_pool_run(p->pool, p->n_threads, fn, p);
    return rg_seconds(t0, rg_now_ns());
}

/* The best of several tries: other work on the machine can only slow one down. */
static double best_peak(probe *p, double (*peak)(double n))
{
    double best = 0;

    if (!peak)
        return 0;
    p->peak = peak;
    p->n = 3e8;
    for (int i = 0; i < 5; i++) {
        double s = timed(p, compute), ops = 0;
        for (int t = 0; t < p->n_threads; t++)
            ops += 2 * p->done[t];
        best = ops / s > best ? ops / s : best;
    }
    return best;
}

/* Bytes per second: the highest of some tries, or the usual. */
static double bandwidth(probe *p, size_t working_set, bool highest)
{
    enum { TRIES = 5 };
    double tries[TRIES];
    size_t all = working_set ? working_set : (size_t)256 << 20;

    p->bytes = all / (size_t)p->n_threads / 4096 * 4096 + 4096;
    all = p->bytes * (size_t)p->n_threads;
    uint8_t *data = rg_region_new(all);
    if (!data)
        return 0;
    memset(data, 1, all);
    p->data = data;
    p->repeats = (int)(((size_t)64 << 20) / all) + 1;
    for (int i = 0; i < TRIES; i++)
        tries[i] = timed(p, read_all);
    rg_region_free(data, all);
    double usual = rg_quantile(tries, TRIES, 0.5); /* which sorts them */
    return (double)all * p->repeats / (highest ? tries[0] : usual);
}

double rg_machine_bandwidth(const rg_cpu *cpu, rg_pool *pool, int n_threads, size_t working_set, bool highest)
{
    probe *p = rg_zalloc(sizeof *p);

    if (!p)
        return 0;
    *p = (probe){ .cpu = cpu, .pool = pool, .n_threads = n_threads < 256 ? n_threads : 256 };
    double rate = bandwidth(p, working_set, highest);
    rg_free(p);
    return rate;
}

void rg_machine_measure(rg_machine *out, const rg_cpu *cpu, rg_pool *pool, int n_threads, size_t working_set)
{
    probe *p = rg_zalloc(sizeof *p);

    memset(out, 0, sizeof *out);
    if (!p)
        return;
    *p = (probe){ .cpu = cpu, .pool = pool, .n_threads = n_threads < 256 ? n_threads : 256 };
    out->read_bytes_s = bandwidth(p, working_set, true);
    out->f32_ops_s = best_peak(p, cpu->peak_f32);
    out->int8_ops_s = best_peak(p, cpu->peak_int8);
    out->bf16_ops_s = best_peak(p, cpu->peak_bf16);
    out->op_s = timed(p, barriers) / 1000;
    p->n = 0;
    p->peak = cpu->peak_f32;
    out->step_s = 2 * timed(p, compute);
    rg_free(p);
}

/* ---- the pulse --------------------------------------------------------------------------------------------------- */

enum {
    LOOKS = 1024,
    PULSE_THREADS = 256,
    PULSE_BYTES = 128 << 20, /* gone through in turn, so that what is read is in no cache, */
    LOOK_BYTES = 32 << 20,   /* so much by all threads together, */
    CHUNKS = 32,             /* shared out as operations are */
};

static const double LOOK_S = 2e-4; /* of arithmetic, at full speed */

typedef struct looks {
    double v[LOOKS];
    int n;
} looks;

struct rg_pulse {
    const rg_cpu *cpu;
    rg_pool *pool; /* of this look */
    int n_threads;
    double read_bytes_s, f32_ops_s; /* the roofs */
    uint8_t *data;                  /* [PULSE_BYTES] */
    size_t at;                      /* of it, the next look's */
    bool memory;                    /* what is looked at */
    double done[PULSE_THREADS];
    uint64_t begun[PULSE_THREADS], ended[PULSE_THREADS];
    looks seen_memory, seen_compute;
};

rg_pulse *rg_pulse_open(const rg_machine *m, const rg_cpu *cpu, int n_threads, rg_error *err)
{
    rg_pulse *p = rg_zalloc(sizeof *p);
    uint8_t *data = p ? rg_region_new(PULSE_BYTES) : NULL;

    if (!data) {
        rg_free(p);
        rg_fail_memory(err, PULSE_BYTES);
        return NULL;
    }
    memset(data, 1, PULSE_BYTES);
    p->cpu = cpu;
    p->n_threads = n_threads < PULSE_THREADS ? n_threads : PULSE_THREADS;
    p->read_bytes_s = m->read_bytes_s;
    p->f32_ops_s = m->f32_ops_s;
    p->data = data;
    return p;
}

void rg_pulse_close(rg_pulse *p)
{
    if (!p)
        return;
    rg_region_free(p->data, PULSE_BYTES);
    rg_free(p);
}

/* From when all threads are awake. */
static void look(void *arg, int thread)
{
    rg_pulse *p = arg;
    const double ops = LOOK_S * p->f32_ops_s / CHUNKS;
    const size_t bytes = LOOK_BYTES / CHUNKS;
    double done = 0;
    uint32_t phase = 0;

    rg_phase_end(p->pool, &phase);
    p->begun[thread] = rg_now_ns();
    for (int i; (i = rg_phase_take(p->pool, phase)) < CHUNKS;)
        if (!p->memory)
            done += 2 * p->cpu->peak_f32(ops / 2);
        else if (p->cpu->stream(p->data + p->at + (size_t)i * bytes, bytes)) /* never 0: every byte is 1 */
            done += (double)bytes;
    p->ended[thread] = rg_now_ns();
    p->done[thread] = done;
    rg_phase_end(p->pool, &phase);
}

static double share(rg_pulse *p, bool memory, double roof, looks *seen)
{
    double done = 0;

    if (roof <= 0)
        return 0;
    p->memory = memory;
    rg_pool_run(p->pool, p->n_threads, look, p);
    uint64_t first = p->begun[0], last = p->ended[0];
    for (int t = 0; t < p->n_threads; t++) {
        done += p->done[t];
        first = p->begun[t] < first ? p->begun[t] : first;
        last = p->ended[t] > last ? p->ended[t] : last;
    }
    double now = last > first ? done / rg_seconds(first, last) / roof : 0;
    seen->v[seen->n++ % LOOKS] = now;
    return now;
}

rg_share rg_pulse_look(rg_pulse *p, rg_pool *pool, bool memory)
{
    rg_share s = { 0 };

    p->pool = pool;
    s.compute = share(p, false, p->f32_ops_s, &p->seen_compute);
    if (memory) {
        s.memory = share(p, true, p->read_bytes_s, &p->seen_memory);
        p->at = p->at + 2 * LOOK_BYTES <= PULSE_BYTES ? p->at + LOOK_BYTES : 0;
    }
    return s;
}

static double median(looks *seen)
{
    int n = seen->n < LOOKS ? seen->n : LOOKS;

    seen->n = 0;
    return n ? rg_quantile(seen->v, n, 0.5) : 0;
}

rg_share rg_pulse_usual(rg_pulse *p)
{
    return (rg_share){ .memory = median(&p->seen_memory), .compute = median(&p->seen_compute) };
}
