/* lane.c -- a step as one program that every thread of the host's pool runs.
 *
 * Everything is sized when the lane is opened: a step allocates nothing. */
#include "ops/cpu/lane.h"

#include "base/mem.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/reader.h"
#include "ops/cpu/state.h"

typedef struct lane {
    rg_lane base; /* first */
    rg_cpu_reader *reader;
    rg_pool *pool;
    uint8_t *arena;
    size_t arena_bytes;
    rg_cpu_fwd *fwd;     /* [n_threads] */
    const rg_step *step; /* being computed */
} lane;

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

/* A reader that gives places and computes nothing.  What a file's numbers can get wrong is refused here; a step only
 * asserts it. */
typedef struct measurer {
    rg_reader reader; /* first */
    rg_error *err;
    bool ok;
} measurer;

static void measure_op(const rg_reader *self, rg_fwd *f, const rg_op *op)
{
    measurer *m = (measurer *)(uintptr_t)self;

    m->ok = m->ok && rg_cpu_can(f->layer, op, m->err);
    rg_cpu_place(rg_cpu_fwd_of(f));
}

bool rg_cpu_measure(const rg_backend *b, const rg_step *step, size_t *bytes, rg_error *err)
{
    measurer m = { .reader.run = measure_op, .err = err, .ok = true };
    rg_cpu_fwd *f = rg_zalloc(sizeof *f);

    (void)b;
    if (!f)
        return rg_fail_memory(err, sizeof *f);
    f->base = (rg_fwd){ .reader = &m.reader, .batch = step->batch, .layer = -1, .n_threads = 1 };
    step->text(step->model, &f->base);
    *bytes = f->arena_peak > *bytes ? f->arena_peak : *bytes;
    rg_free(f);
    return m.ok;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

rg_lane *rg_cpu_lane_open(const rg_backend *b, const rg_lane_options *o, rg_error *err)
{
    lane *l = rg_zalloc(sizeof *l);

    if (!l)
        return rg_fail_memory(err, sizeof *l), NULL;
    l->base.backend = b;
    l->pool = o->pool;
    l->arena_bytes = o->activation_bytes;
    l->arena = rg_region_new(o->activation_bytes);
    l->fwd = rg_array((size_t)o->sizes.n_threads, sizeof *l->fwd);
    if (!l->arena || !l->fwd)
        rg_fail_memory(err, o->activation_bytes);
    else
        l->reader = rg_cpu_reader_new(b->kernels, &o->sizes, err);
    if (!l->reader) {
        rg_cpu_lane_close(&l->base);
        return NULL;
    }
    rg_cpu_reader_sketch(l->reader, false);
    l->base.reader = rg_cpu_reader_of(l->reader);
    return &l->base;
}

void rg_cpu_lane_close(rg_lane *lane_)
{
    lane *l = (lane *)lane_;

    if (!l)
        return;
    rg_cpu_reader_free(l->reader);
    if (l->arena)
        rg_region_free(l->arena, l->arena_bytes);
    rg_free(l->fwd);
    rg_free(l);
}

void *rg_cpu_lane_activations(rg_lane *lane_, size_t *bytes)
{
    lane *l = (lane *)lane_;

    *bytes = l->arena_bytes;
    return l->arena;
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

static void deliver_row(rg_fwd *f, const rg_outputs *out, const rg_sink *sink, int i)
{
    if (out->soft)
        sink->soft(sink->arg, f->thread, i, rg_act_row(f, out->soft, i));
    sink->logits(sink->arg, f->thread, i, rg_act_row(f, out->logits, i));
}

/* Wanted rows are chunks too: whoever made a row probably has it in its cache. */
static void deliver(rg_fwd *f, const rg_batch *b, const rg_outputs *out, const rg_sink *sink)
{
    const int n_logits = b->n_logits, n_hidden = b->n_hidden, n_all = n_logits + n_hidden + b->n_scores;

    for (int i; n_all && (i = rg_chunk_next(f, n_all)) >= 0;)
        if (i < n_logits)
            deliver_row(f, out, sink, i);
        else if (i < n_logits + n_hidden)
            sink->hidden(sink->arg, f->thread, i - n_logits, rg_act_row(f, out->hidden, b->hidden[i - n_logits].first),
                         rg_act_stride(f, out->hidden));
        else
            sink->scores(sink->arg, f->thread, i - n_logits - n_hidden,
                         rg_act_row(f, out->scores, i - n_logits - n_hidden));
}

static void program(void *arg, int thread)
{
    lane *l = arg;
    const rg_step *s = l->step;
    rg_cpu_fwd *f = &l->fwd[thread];

    *f = (rg_cpu_fwd){ .base = { .reader = s->reader,
                                 .batch = s->batch,
                                 .exact = s->exact,
                                 .llm_int8 = s->llm_int8,
                                 .bf16 = s->bf16,
                                 .attention_sparsity = s->attention_sparsity,
                                 .layer = -1,
                                 .thread = thread,
                                 .n_threads = s->n_threads },
                       .groups = rg_cpu_state_groups(s->state),
                       .pool = l->pool,
                       .lazy = !s->settled,
                       .arena = l->arena,
                       .arena_bytes = l->arena_bytes };
    rg_mem_forbid();
    rg_outputs out = s->text(s->model, &f->base);
    if (s->sink)
        deliver(&f->base, s->batch, &out, s->sink);
    rg_mem_permit();
}

void rg_cpu_lane_submit(rg_lane *lane_, const rg_step *step)
{
    lane *l = (lane *)lane_;

    l->step = step;
    rg_pool_run(l->pool, step->n_threads, program, l);
}

/* A step is over when submit returns. */
void rg_cpu_lane_wait(rg_lane *lane_)
{
    (void)lane_;
}
