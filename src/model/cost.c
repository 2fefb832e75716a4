/* cost.c -- see cost.h. */
#include "model/cost.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

enum { MAX_OPS = 65536 };

static double op_seconds(const rg_machine *m, const rg_counted *op, bool exact)
{
    double peak = op->integer && !exact && m->int8_ops_s > 0 ? m->int8_ops_s : m->f32_ops_s;
    double bytes = (op->count.weight_bytes + op->count.state_bytes) / m->read_bytes_s, ops = op->count.ops / peak;

    return bytes > ops ? bytes : ops;
}

double rg_cost_limit(const rg_machine *m, const rg_counter *counter, bool exact)
{
    double s = 0;

    RG_ASSERT(counter->list && counter->n_ops <= counter->list_room);
    for (int i = 0; i < counter->n_ops; i++)
        s += op_seconds(m, &counter->list[i], exact);
    return s;
}

double rg_cost_seconds(const rg_machine *m, const rg_counter *counter, bool exact)
{
    return rg_cost_limit(m, counter, exact) + counter->n_ops * m->op_s + m->step_s;
}

bool rg_cost_count(const rg_model *m, int n_seqs, int n_rows, int64_t start, rg_counter *counter, rg_error *err)
{
    size_t rows = (size_t)n_seqs * (size_t)n_rows;
    int32_t *ints = rg_array(rows * 7 + (size_t)n_seqs, sizeof *ints);
    rg_span *spans = rg_array((size_t)n_seqs, sizeof *spans);
    rg_fwd *f = rg_alloc(sizeof *f);
    bool ok = ints && spans && f;

    if (!ok) {
        rg_fail_memory(err, rows * 7 * sizeof *ints);
    } else {
        int32_t *token = ints, *index = ints + rows, *kv_end = ints + 2 * rows, *pos = ints + 3 * rows,
                *logits = ints + 7 * rows;
        for (int s = 0; s < n_seqs; s++) {
            spans[s] = (rg_span){ .first_row = s * n_rows, .n_rows = n_rows, .start = (int32_t)start, .adapter = -1 };
            logits[s] = (s + 1) * n_rows - 1;
            for (int r = 0; r < n_rows; r++) {
                index[s * n_rows + r] = (int32_t)start + r;
                kv_end[s * n_rows + r] = (int32_t)start + r + 1;
            }
        }
        rg_batch batch = { .n_rows = (int32_t)rows, .n_spans = n_seqs, .spans = spans, .token = token, .index = index,
                           .kv_end = kv_end, .pos = (const int32_t(*)[4])(const void *)pos, .n_logits = n_seqs,
                           .logit_rows = logits };
        rg_count_fwd(f, counter, &batch);
        rg_model_forward(m, f);
    }
    rg_free(ints);
    rg_free(spans);
    rg_free(f);
    return ok;
}

/* ---- measuring this machine ---- */

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

static double best_bandwidth(probe *p, size_t working_set)
{
    double best = 0;
    size_t all = working_set ? working_set : (size_t)256 << 20;

    p->bytes = all / (size_t)p->n_threads / 4096 * 4096 + 4096;
    all = p->bytes * (size_t)p->n_threads;
    uint8_t *data = rg_region_new(all);
    if (!data)
        return 0;
    memset(data, 1, all);
    p->data = data;
    p->repeats = (int)(((size_t)256 << 20) / all) + 1;
    for (int i = 0; i < 5; i++) {
        double s = timed(p, read_all), rate = (double)all * p->repeats / s;
        best = rate > best ? rate : best;
    }
    rg_region_free(data, all);
    return best;
}

double rg_machine_bandwidth(const rg_cpu *cpu, rg_pool *pool, int n_threads, size_t working_set)
{
    probe *p = rg_zalloc(sizeof *p);

    if (!p)
        return 0;
    *p = (probe){ .cpu = cpu, .pool = pool, .n_threads = n_threads < 256 ? n_threads : 256 };
    double rate = best_bandwidth(p, working_set);
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
    out->read_bytes_s = best_bandwidth(p, working_set);
    out->f32_ops_s = best_peak(p, cpu->peak_f32);
    out->int8_ops_s = best_peak(p, cpu->peak_int8);
    out->bf16_ops_s = best_peak(p, cpu->peak_bf16);
    out->op_s = timed(p, barriers) / 1000;
    p->n = 0;
    p->peak = cpu->peak_f32;
    out->step_s = 2 * timed(p, compute);
    rg_free(p);
}
