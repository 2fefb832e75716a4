/* fill.c -- see fill.h. */
#include "plan/fill.h"

#include <math.h>
#include <string.h>

enum { MOST_ANSWER = 256, USUAL_BLOCK = 32 };

const char *const rg_plan_cache_names[] = { "none", "prefix", "dual", "exact" };

/* Positions of the model's own blocks or canvases; 0: an answer is cut as is asked for. */
static int own_block(const rg_model *m)
{
    return m->config.diffusion.canvas.length ? m->config.diffusion.canvas.length : m->config.sees;
}

static bool has_own_blocks(const rg_model *m)
{
    return own_block(m) != RG_SEES_ALL;
}

/* Ids that an evaluation finishes where nobody says: one, or of a canvas what its most evaluations come to. */
static double usual_per_evaluation(const rg_model *m)
{
    enum { CANVAS_STEPS = 48 };
    const rg_diffusion *d = &m->config.diffusion;

    return d->canvas.length ? fmax(1, (double)d->canvas.length / (d->steps ? d->steps : CANVAS_STEPS)) : 1;
}

/* Fill in what was left out.  False: the model does not take it. */
static bool settle(const rg_model *m, int64_t seq, const rg_plan_filling *o, rg_plan_fill *f, rg_error *err)
{
    const bool own = has_own_blocks(m), whole = m->config.diffusion.schedule == RG_SCHEDULE_TIME;
    const int64_t half = seq > 1 ? seq / 2 : 1;

    f->answer = o->answer ? o->answer : half < MOST_ANSWER ? half : MOST_ANSWER;
    f->cache = o->cache;
    f->per_evaluation = o->per_evaluation > 0 ? o->per_evaluation : usual_per_evaluation(m);
    if (f->answer < 1 || f->answer > seq)
        return rg_fail(err, RG_E_USAGE,
                       "an answer of %lld ids is not within sequences of %lld positions: ask for "
                       "more with --seq",
                       (long long)f->answer, (long long)seq);
    if (own && o->block && o->block != own_block(m))
        return rg_fail(err, RG_E_USAGE, "blocks of %lld: this model was made for blocks of %d", (long long)o->block,
                       own_block(m));
    if (f->cache != RG_CACHE_NONE && (own || whole))
        return rg_fail(err, RG_E_USAGE, "cache '%s' is for models that fill in blocks of their answer (LLaDA)",
                       rg_plan_cache_names[f->cache]);
    if (whole && o->block && o->block != f->answer)
        return rg_fail(err, RG_E_USAGE, "blocks of %lld: this model fills in an answer as a whole",
                       (long long)o->block);
    f->block = own ? own_block(m) : whole ? f->answer : o->block ? o->block : USUAL_BLOCK;
    f->block = f->block < f->answer || own ? f->block : f->answer;
    f->per_evaluation = fmin(f->per_evaluation, (double)f->block);
    return true;
}

/* The sums of an answer on its way. */
typedef struct filling {
    const rg_plan_subject *s;
    const rg_plan_machine *m;
    int64_t batch;
    rg_plan_fill *out;
    double weights_s, state_s, compute_s;
    rg_error *err;
} filling;

/* n evaluations of these rows. */
static bool add_evaluations(filling *f, double n, int64_t start, int64_t rows, int64_t n_seq, int64_t logits)
{
    rg_step_shape shape = { .n_seqs = (int)f->batch,
                            .n_rows = (int)rows,
                            .start = start,
                            .exact = f->s->exact,
                            .n_logits = (int)logits,
                            .n_seq = n_seq };
    rg_cost cost;

    if (n <= 0 || rows <= 0)
        return true;
    if (!rg_cost_shape(f->s->model, &f->m->m, &shape, &cost, NULL, NULL, f->err))
        return false;
    f->out->evaluations += n;
    f->out->rows += n * (double)rows;
    f->out->seconds += n * cost.seconds;
    f->out->limit_s += n * cost.limit_s;
    f->out->fixed_s += n * cost.fixed_s;
    f->out->ops += n * cost.count.ops;
    f->out->bytes += n * (cost.count.weight_bytes + cost.count.state_bytes);
    f->out->activation_bytes = fmax(f->out->activation_bytes, (double)cost.activation_bytes);
    f->weights_s += n * cost.weights_s;
    f->state_s += n * cost.state_s;
    f->compute_s += n * cost.compute_s;
    return true;
}

/* A block [from, upto) of an answer that ends at n. */
static bool add_block(filling *f, int64_t from, int64_t upto, int64_t n)
{
    const rg_plan_fill *o = f->out;
    const double steps = ceil((double)(upto - from) / o->per_evaluation);
    const bool canvas = f->s->model->config.diffusion.canvas.length;
    const int64_t masks = (int64_t)ceil(((double)(upto - from) + o->per_evaluation) / 2); /* left, on average */
    const int64_t logits = canvas ? upto - from : masks;

    if (canvas)
        return add_evaluations(f, steps, from, upto - from, upto, logits) &&
               add_evaluations(f, 1, from, upto - from, 0, 0); /* and once as text */
    if (has_own_blocks(f->s->model))
        return add_evaluations(f, steps, from, upto - from, upto, logits) &&
               add_evaluations(f, 1, from, upto - from, upto, 0);
    if (o->cache == RG_CACHE_NONE)
        return add_evaluations(f, steps, 0, n, n, logits);
    return add_evaluations(f, 1, 0, n, n, upto - from) &&
           add_evaluations(f, steps - 1, from, (o->cache == RG_CACHE_DUAL ? upto : n) - from, n, logits);
}

/* Sums into means of an evaluation. */
static void divide(filling *f)
{
    rg_plan_fill *o = f->out;

    o->throughput = o->seconds > 0 ? (double)(f->batch * o->answer) / o->seconds : 0;
    o->rows /= o->evaluations;
    o->ops /= o->evaluations;
    o->bytes /= o->evaluations;
    o->limit_s /= o->evaluations;
    o->fixed_s /= o->evaluations;
    o->bound_by = f->compute_s > f->weights_s && f->compute_s > f->state_s ? RG_BOUND_COMPUTE
                  : f->state_s > f->weights_s                              ? RG_BOUND_KV
                                                                           : RG_BOUND_WEIGHTS;
}

bool rg_plan_fill_answer(const rg_plan_subject *s, const rg_plan_machine *m, int64_t batch, int64_t seq,
                         const rg_plan_filling *o, rg_plan_fill *out, rg_error *err)
{
    filling f = { .s = s, .m = m, .batch = batch, .out = out, .err = err };

    memset(out, 0, sizeof *out);
    if (!settle(s->model, seq, o, out, err))
        return false;
    const int64_t n_prompt = seq - out->answer, canvas = s->model->config.diffusion.canvas.length;
    const int64_t first = has_own_blocks(s->model) && !canvas ? n_prompt % out->block : 0;
    for (int64_t from = n_prompt - first; from < seq; from += out->block) {
        const int64_t upto = canvas || from + out->block < seq ? from + out->block : seq;

        if (!add_block(&f, from, upto, seq))
            return false;
        if (out->first_s == 0)
            out->first_s = out->seconds;
    }
    if (has_own_blocks(s->model) && n_prompt > first) { /* the prompt's own blocks, once */
        rg_step_shape prompt = { .n_seqs = 1, .n_rows = (int)(n_prompt - first), .exact = s->exact };
        rg_cost cost;

        rg_cost_prompt(s->model, &m->m, &prompt, m->chunk ? m->chunk : (int)n_prompt, &cost);
        out->first_s += cost.seconds;
        out->seconds += (double)batch * cost.seconds;
    }
    divide(&f);
    return true;
}

int rg_plan_fill_table(const rg_plan_subject *s, const rg_plan_machine *m, int64_t batch, int64_t seq,
                       rg_plan_fill out[RG_PLAN_FILLS], rg_error *err)
{
    static const double per[] = { 1, 2, 4, 8 };
    const bool one_cache = has_own_blocks(s->model) || s->model->config.diffusion.schedule == RG_SCHEDULE_TIME;
    rg_plan_filling o = s->filling;
    int n = 0;

    for (int cache = 0; cache < (one_cache ? 1 : RG_CACHE_DUAL + 1); cache++)
        for (size_t k = 0; k < (s->filling.per_evaluation > 0 ? 1 : RG_LEN(per)); k++) {
            o.cache = (rg_diffusion_cache)cache;
            o.per_evaluation = s->filling.per_evaluation > 0 ? s->filling.per_evaluation : per[k];
            if (!rg_plan_fill_answer(s, m, batch, seq, &o, &out[n++], err))
                return -1;
            if (out[n - 1].per_evaluation < o.per_evaluation)
                break; /* a block has no more */
        }
    return n;
}

rg_step_shape rg_plan_step(const rg_plan_subject *s, int64_t batch, int64_t seq)
{
    rg_step_shape shape = { .n_seqs = (int)batch, .n_rows = 1, .start = seq - 1, .exact = s->exact };
    rg_plan_fill f;
    rg_error err;

    if (!rg_plan_fills(s->model) || !settle(s->model, seq, &s->filling, &f, &err))
        return shape;
    const bool alone = has_own_blocks(s->model) || f.cache == RG_CACHE_DUAL;
    const int64_t rows = alone ? f.block : f.cache == RG_CACHE_PREFIX ? f.answer / 2 + 1 : seq;
    shape.n_rows = (int)(rows < seq ? rows : seq);
    shape.start = f.cache == RG_CACHE_DUAL ? seq - f.answer / 2 - shape.n_rows / 2 : seq - shape.n_rows;
    shape.start = shape.start + shape.n_rows > seq ? seq - shape.n_rows : shape.start < 0 ? 0 : shape.start;
    shape.n_seq = seq;
    shape.n_logits = (int)((f.block + 1) / 2 < shape.n_rows ? (f.block + 1) / 2 : shape.n_rows);
    return shape;
}
