/* runner.c -- a runner that computes on this machine: threads, arena, state, and the step as one program.
 *
 * Everything is sized when it is made, by a counting run of the largest step: a step allocates nothing. */
#include <string.h>

#include "base/mem.h"
#include "model/cost.h"
#include "model/model.h"

typedef struct model_runner {
    rg_runner base; /* first */
    const rg_model *m;
    rg_runner_options o;
    rg_pool *pool;
    rg_cpu_reader *cpu;
    const rg_reader *reader;
    uint8_t *arena;
    size_t arena_bytes;
    rg_fwd *fwd; /* [n_threads] */
    bool has_small_steps;
    /* The step being run. */
    const rg_batch *batch;
    int n_threads;
    const rg_sink *sink;
    /* The last answer to prompt_rows, and to what; 0: none. */
    rg_step_aim aim;
    int n_prompt_rows;
} model_runner;

/* Below so many operations and bytes a second thread costs more in barriers than it brings. */
enum { SMALL_STEP_OPS = 2000000, SMALL_STEP_BYTES = 1000000 };

static float *row_of(const rg_fwd *f, const rg_act *a, int i)
{
    return rg_act_data(f, a) + (size_t)i * (size_t)a->stride;
}

static void program(void *arg, int thread)
{
    model_runner *r = arg;
    rg_fwd *f = &r->fwd[thread];

    *f = (rg_fwd){ .reader = r->reader,
                   .batch = r->batch,
                   .groups = rg_store_groups(r->base.store),
                   .exact = r->o.exact,
                   .layer = -1,
                   .thread = thread,
                   .n_threads = r->n_threads,
                   .pool = r->pool,
                   .arena = r->arena,
                   .arena_bytes = r->arena_bytes };
    rg_mem_forbid();
    rg_outputs out = rg_model_forward(r->m, f);
    int n_logits = r->batch->n_logits, n_all = n_logits + r->batch->n_hidden;
    for (int i; n_all && (i = rg_phase_take(r->pool, f->phase)) < n_all;)
        if (i < n_logits)
            r->sink->logits(r->sink->arg, i, row_of(f, out.logits, i));
        else
            r->sink->hidden(r->sink->arg, i - n_logits, row_of(f, out.hidden, r->batch->hidden[i - n_logits].first),
                            (size_t)out.hidden->stride);
    if (n_all)
        rg_phase_end(r->pool, &f->phase);
    rg_mem_permit();
}

/* Operations and bytes of a step. */
static rg_count count(const model_runner *r, const rg_batch *batch)
{
    rg_counter counter;
    rg_fwd f;

    rg_counter_init(&counter, NULL, 0);
    rg_count_fwd(&f, &counter, batch);
    rg_model_forward(r->m, &f);
    return counter.total;
}

static void predict(rg_runner *self, const rg_batch *batch, rg_predicted *out)
{
    const model_runner *r = (const model_runner *)self;
    rg_cost cost = { 0 };

    if (r->o.machine)
        rg_cost_batch(r->m, r->o.machine, batch, r->o.exact, &cost);
    else
        cost.count = count(r, batch);
    *out = (rg_predicted){ .ops = cost.count.ops, .limit_s = cost.limit_s, .seconds = cost.seconds,
                           .bytes = (uint64_t)(cost.count.weight_bytes + cost.count.state_bytes) };
}

/* The answer hardly changes within a block of positions, and steps that ask follow each other. */
static int prompt_rows(rg_runner *self, const rg_step_aim *aim)
{
    model_runner *r = (model_runner *)self;
    rg_step_aim same = *aim;

    same.decode_at -= same.decode_at % RG_BLOCK;
    same.prompt_at -= same.prompt_at % RG_BLOCK;
    if (!r->n_prompt_rows || memcmp(&same, &r->aim, sizeof same)) {
        r->n_prompt_rows = rg_cost_budget(r->m, r->o.machine, &same, r->o.max_rows, r->o.exact);
        r->aim = same;
    }
    return r->n_prompt_rows;
}

static bool is_small(const model_runner *r, const rg_batch *batch)
{
    rg_count c = count(r, batch);

    return c.ops < SMALL_STEP_OPS && c.weight_bytes + c.state_bytes < SMALL_STEP_BYTES;
}

/* Is one row, without its logits?  Counting a step costs as much as computing a few of its operations. */
static bool has_small_steps(const model_runner *r)
{
    static const int32_t zero[4], one = 1;
    rg_span span = { .n_rows = 1, .adapter = -1 };

    return is_small(r, &(rg_batch){ .n_rows = 1, .n_spans = 1, .spans = &span, .token = zero, .index = zero,
                                    .kv_end = &one, .pos = &zero });
}

static void step(rg_runner *self, const rg_batch *batch, const rg_sink *sink)
{
    model_runner *r = (model_runner *)self;

    RG_ASSERT(batch->n_rows <= r->o.max_rows && batch->n_logits <= r->o.max_logits);
    r->batch = batch;
    r->sink = sink;
    r->n_threads = r->has_small_steps && is_small(r, batch) ? 1 : r->o.n_threads;
    rg_pool_run(r->pool, r->n_threads, program, r);
}

/* ---- sizes ---- */

/* The arena of the largest step, by a run that computes nothing. */
static bool measure_arena(model_runner *r, rg_error *err)
{
    size_t n = (size_t)r->o.max_rows;
    int32_t *zeros = rg_array(n, 6 * sizeof *zeros);
    rg_span span = { .n_rows = r->o.max_rows, .adapter = -1 };
    rg_counter counter;
    rg_fwd *f = rg_alloc(sizeof *f);
    bool ok = zeros && f;

    if (ok) {
        rg_batch batch = { .n_rows = r->o.max_rows,
                           .n_spans = 1,
                           .spans = &span,
                           .token = zeros,
                           .index = zeros,
                           .kv_end = zeros + n,
                           .pos = (const int32_t(*)[4])(const void *)(zeros + 2 * n),
                           .n_logits = r->o.max_logits,
                           .logit_rows = zeros };
        rg_counter_init(&counter, NULL, 0);
        rg_count_fwd(f, &counter, &batch);
        rg_model_forward(r->m, f);
        r->arena_bytes = f->arena_peak;
    } else {
        rg_fail_memory(err, n * 6 * sizeof *zeros + sizeof *f);
    }
    rg_free(zeros);
    rg_free(f);
    return ok;
}

static int32_t blocks_of(int64_t positions)
{
    return (int32_t)((positions + RG_BLOCK - 1) / RG_BLOCK);
}

/* Window and recurrent groups get what max_seqs sequences need (as much again for snapshots, down
 * to a single sequence's if memory is short), the groups that grow share out the rest. */
static bool size_groups(const model_runner *r, int32_t n_blocks[RG_MAX_GROUPS], rg_error *err)
{
    const rg_state_spec *spec = &r->m->state;
    int seqs = r->o.max_seqs;
    uint64_t fixed, growing;

    for (;; seqs /= 2) {
        fixed = growing = 0;
        for (int g = 0; g < spec->n_groups; g++) {
            const rg_group *group = &spec->group[g];
            int32_t each = group->kind == RG_KEEP_RECURRENT ? 1 : blocks_of(group->window + r->o.max_rows) + 2;
            n_blocks[g] = 0;
            if (group->kind == RG_KEEP_RECURRENT || group->window)
                n_blocks[g] = 2 * seqs * each + 2;
            else
                growing += group->block_bytes;
            fixed += (uint64_t)n_blocks[g] * group->block_bytes;
        }
        if (fixed <= r->o.state_bytes / (growing ? 2 : 1) || seqs <= 1)
            break;
    }
    int64_t most = (int64_t)r->o.max_seqs * blocks_of(r->o.max_seq_len) * 2 + 8;
    int64_t room = growing && r->o.state_bytes > fixed ? (int64_t)((r->o.state_bytes - fixed) / growing) : 0;
    if (fixed > r->o.state_bytes || (growing && room < 2))
        return rg_fail(err, RG_E_LIMIT,
                       "the state of one sequence does not fit: %llu bytes are allowed, %llu are needed at least; "
                       "raise --kv-memory",
                       (unsigned long long)r->o.state_bytes, (unsigned long long)(fixed + 2 * growing));
    for (int g = 0; g < spec->n_groups; g++)
        if (!n_blocks[g])
            n_blocks[g] = (int32_t)(room < most ? room : most);
    return true;
}

static int max_of(int a, int b)
{
    return a > b ? a : b;
}

static rg_cpu_sizes reader_sizes(const model_runner *r)
{
    const rg_config *c = &r->m->config;
    rg_cpu_sizes s = { .max_rows = max_of(r->o.max_rows, r->o.max_logits),
                       .n_threads = r->o.n_threads,
                       .max_experts = c->routing.n_experts,
                       .max_experts_used = c->routing.n_used,
                       .max_heads = c->n_heads,
                       .max_keys = r->o.max_seq_len };

    for (int i = 0; i < r->m->weights.n; i++)
        if (!r->m->weights.all[i].vec)
            s.max_cols = max_of(s.max_cols, max_of((int)r->m->weights.all[i].cols, (int)r->m->weights.all[i].rows));
    for (int i = 0; i < c->n_layers; i++) {
        s.max_head_dim = max_of(s.max_head_dim, max_of(r->m->kv[i].k_dim, r->m->kv[i].v_dim));
        s.max_cols = max_of(s.max_cols, r->m->recurrent[i].d_inner);
    }
    return s;
}

/* What the recurrence's kernels cannot do is refused here, where a file's numbers arrive, and asserted in a step. */
static bool kernels_can(const rg_model *m, rg_error *err)
{
    for (int i = 0; i < m->config.n_layers; i++) {
        const rg_recurrent *rec = &m->recurrent[i];

        if (rec->group >= 0 && (rec->d_conv > RG_MAX_CONV || rec->d_state > RG_MAX_STATE))
            return rg_fail(err, RG_E_UNSUPPORTED,
                           "layer %d: a convolution of %d taps and a state of %d; at most %d and %d can be computed", i,
                           rec->d_conv, rec->d_state, RG_MAX_CONV, RG_MAX_STATE);
    }
    return true;
}

rg_runner *rg_model_runner_new(const rg_model *m, const rg_runner_options *o, rg_error *err)
{
    model_runner *r = rg_zalloc(sizeof *r);
    int32_t n_blocks[RG_MAX_GROUPS] = { 0 };

    if (!r)
        return rg_fail_memory(err, sizeof *r), NULL;
    r->m = m;
    r->o = *o;
    r->base = (rg_runner){ .vocab_size = m->config.vocab_size, .dim = m->config.dim, .max_rows = o->max_rows,
                           .max_logits = o->max_logits, .spec = &m->state, .step = step, .predict = predict,
                           .prompt_rows = o->machine ? prompt_rows : NULL };
    rg_cpu_sizes sizes = reader_sizes(r);
    if (!kernels_can(m, err) || !measure_arena(r, err) || !size_groups(r, n_blocks, err))
        goto fail;
    r->has_small_steps = has_small_steps(r);
    r->arena = rg_region_new(r->arena_bytes);
    r->fwd = rg_array((size_t)o->n_threads, sizeof *r->fwd);
    if (!r->arena || !r->fwd) {
        rg_fail_memory(err, r->arena_bytes);
        goto fail;
    }
    r->base.store = rg_store_new(&m->state, n_blocks, err);
    if (!r->base.store)
        goto fail;
    r->pool = rg_pool_new(o->n_threads, err);
    r->cpu = r->pool ? rg_cpu_reader_new(o->cpu, &sizes, err) : NULL;
    if (!r->cpu)
        goto fail;
    r->reader = rg_cpu_reader_of(r->cpu);
    if (o->wrap)
        r->reader = o->wrap(o->wrap_arg, r->reader);
    return &r->base;

fail:
    rg_model_runner_free(&r->base);
    return NULL;
}

struct rg_pool *rg_model_runner_pool(rg_runner *self)
{
    return ((model_runner *)self)->pool;
}

void rg_model_runner_free(rg_runner *self)
{
    model_runner *r = (model_runner *)self;

    if (!r)
        return;
    rg_cpu_reader_free(r->cpu);
    rg_pool_free(r->pool);
    rg_store_free(r->base.store);
    if (r->arena)
        rg_region_free(r->arena, r->arena_bytes);
    rg_free(r->fwd);
    rg_free(r);
}
