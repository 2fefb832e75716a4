/* runner.c -- a runner of a model on a back end: the host's threads, a lane, state.
 *
 * Everything is sized when it is made, by measuring the largest step: a step allocates nothing. */
#include "base/mem.h"
#include "model/model.h"
#include "model/rank_calls.h"

typedef struct model_runner {
    rg_runner base; /* first */
    const rg_model *m;
    rg_runner_options o;
    rg_pool *pool;
    rg_lane *lane;
    const rg_reader *reader; /* around the lane's, or it */
    rg_rank_runner on_ranks; /* number 0: there are no others, or this is not rank 0 */
} model_runner;

/* Below so many operations and bytes a second thread costs more in barriers than it brings. */
enum { SMALL_STEP_OPS = 2000000, SMALL_STEP_BYTES = 1000000 };

static rg_outputs forward(const void *model, rg_fwd *f)
{
    return rg_model_forward(model, f);
}

static bool is_small(const model_runner *r, const rg_batch *batch)
{
    const rg_step_facts *facts = &r->base.facts;
    rg_step_load load = { 0 };

    for (int i = 0; i < batch->n_spans; i++)
        rg_step_load_add(&load, facts, batch->spans[i].start, batch->spans[i].n_rows, 0);
    load.n_logits = batch->n_logits;
    return rg_step_product_ops(facts, &load) + load.key_ops < SMALL_STEP_OPS &&
           rg_step_bytes(facts, &load) < SMALL_STEP_BYTES;
}

/* ---- on ranks ---- */

static bool keeps_state(const rg_runner *self)
{
    const model_runner *r = (const model_runner *)self;

    return rg_ranks_keep(r->m->ranks, &r->on_ranks);
}

static void renew_state(rg_runner *self)
{
    model_runner *r = (model_runner *)self;

    rg_ranks_renew(r->m->ranks, &r->on_ranks);
}

/* Results go on to the sink of a step unless a rank is lost, since these mean nothing then. */
typedef struct kept_sink {
    const model_runner *r;
    const rg_sink *sink;
} kept_sink;

static void give_logits(void *arg, int thread, int i, float *logits)
{
    const kept_sink *k = arg;

    if (keeps_state(&k->r->base))
        k->sink->logits(k->sink->arg, thread, i, logits);
}

static void give_hidden(void *arg, int thread, int i, const float *rows, size_t stride)
{
    const kept_sink *k = arg;

    if (keeps_state(&k->r->base))
        k->sink->hidden(k->sink->arg, thread, i, rows, stride);
}

static void give_scores(void *arg, int thread, int i, const float *scores)
{
    const kept_sink *k = arg;

    if (keeps_state(&k->r->base))
        k->sink->scores(k->sink->arg, thread, i, scores);
}

/* Without a caller who renews the state, whoever waits for this step would go on with nothing. */
static void step_on_ranks(model_runner *r, rg_step *one)
{
    kept_sink kept = { .r = r, .sink = one->sink };
    const rg_sink sink = { .logits = give_logits, .hidden = give_hidden, .scores = give_scores, .arg = &kept };

    one->sink = one->sink ? &sink : NULL;
    rg_ranks_lock(r->m->ranks);
    if (keeps_state(&r->base)) {
        rg_ranks_step(r->m->ranks, &r->on_ranks, r->base.spec, one->batch, (int)r->m->config.dim);
        r->lane->backend->submit(r->lane, one);
        r->lane->backend->wait(r->lane);
    }
    if (!r->base.is_renewed && !keeps_state(&r->base))
        rg_link_give_up(r->m->link, "one of them has ended");
    rg_ranks_unlock(r->m->ranks);
}

static void step(rg_runner *self, const rg_batch *batch, const rg_sink *sink)
{
    model_runner *r = (model_runner *)self;

    RG_ASSERT(batch->n_rows <= r->o.max_rows && batch->n_logits <= r->o.max_logits && batch->n_scores <= r->o.max_seqs);
    rg_step one = { .text = forward,
                          .model = r->m,
                          .batch = batch,
                          .reader = r->reader,
                          .exact = r->o.exact,
                          .llm_int8 = r->o.llm_int8,
                          .attention_sparsity = r->o.attention_sparsity,
                          .settled = r->o.wrap, /* a reader around the lane's may look at values */
                          .n_threads = is_small(r, batch) ? 1 : r->o.n_threads,
                          .state = rg_store_memory(r->base.store),
                          .sink = sink };
    if (r->on_ranks.number) {
        step_on_ranks(r, &one);
        return;
    }
    r->lane->backend->submit(r->lane, &one);
    r->lane->backend->wait(r->lane);
}

static bool tell_store(void *arg, const rg_store_call *c)
{
    const model_runner *r = arg;

    return rg_ranks_store(r->m->ranks, &r->on_ranks, r->base.spec, c);
}

/* Rank 0: the others make a runner of these sizes as well. */
static bool tell_runner(model_runner *r, const rg_runner_sizes *sizes, rg_error *err)
{
    if (!r->m->ranks)
        return true;
    if (r->reader != r->lane->reader)
        return rg_fail(err, RG_E_UNSUPPORTED, "values inside a model are not looked at where ranks share it: leave out "
                       "--ranks");
    if (r->o.n_nodes > 1)
        return rg_fail(err, RG_E_UNSUPPORTED, "--numa-copies does not go with --ranks: each rank has its part of the "
                       "weights on its own node");
    if (!rg_ranks_runner(r->m->ranks, r->m, &r->o, sizes, &r->on_ranks, err))
        return false;
    rg_store_tell(r->base.store, tell_store, r);
    r->base.keeps_state = keeps_state;
    r->base.renew_state = renew_state;
    return rg_ranks_answer(r->m->ranks, err);
}

/* ---- sizes ---- */

static bool measure_step(const model_runner *r, const rg_batch *batch, size_t *bytes, rg_error *err)
{
    const rg_step one = { .text = forward, .model = r->m, .batch = batch };

    return r->o.backend->measure(r->o.backend, &one, bytes, err);
}

/* The activations of the largest step: without hidden states, and with all that a step can give. */
static bool measure_activations(model_runner *r, rg_error *err)
{
    size_t n = (size_t)r->o.max_rows;
    int32_t *zeros = rg_array(n, 6 * sizeof *zeros);
    rg_span span = { .n_rows = r->o.max_rows, .adapter = r->m->adapters.n ? 0 : -1 };
    bool ok = zeros || rg_fail_memory(err, n * 6 * sizeof *zeros);
    rg_batch batch = { .n_rows = r->o.max_rows,
                       .n_spans = 1,
                       .spans = &span,
                       .token = zeros,
                       .index = zeros,
                       .n_logits = rg_config_has_logits(&r->m->config) ? r->o.max_logits : 0,
                       .logit_rows = zeros };

    if (ok && r->m->config.diffusion.canvas.length) { /* nothing is read of these */
        batch.features = batch.temperatures = (const float *)(const void *)zeros;
        batch.feature_cols = r->m->config.dim;
    }
    if (ok) {
        batch.kv_end = zeros + n;
        batch.pos = (const int32_t(*)[4])(const void *)(zeros + 2 * n);
        ok = measure_step(r, &batch, &r->base.activation_bytes, err);
        batch.n_hidden = 1;
        batch.n_scores = r->m->config.n_labels ? r->o.max_seqs : 0;
        ok = ok && measure_step(r, &batch, &r->base.activation_bytes, err);
    }
    rg_free(zeros);
    return ok;
}

static int64_t blocks_of(int64_t positions)
{
    return (positions + RG_BLOCK - 1) / RG_BLOCK;
}

static int64_t min_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Blocks of a group that does not grow, for so many sequences and as much again for snapshots. */
static int64_t fixed_blocks(const model_runner *r, const rg_group *group, int64_t seqs)
{
    int64_t length = r->o.max_seq_len, most = blocks_of(length) + 1;

    /* All but the block that is filled go after each step, and all sequences share the rows of one. */
    if (group->per == RG_PER_POSITION && rg_kept_blocks(&group->kept, length, 1) == 1)
        return 3 * seqs + blocks_of(r->o.max_rows) + 2;
    most = min_of(most, rg_kept_blocks(&group->kept, length, r->o.max_rows));
    return 2 * seqs * (group->per == RG_PER_SEQUENCE ? 1 : most + 1) + 2;
}

/* Bytes of so many blocks of a group. */
static uint64_t bytes_of(const rg_group *group, int64_t n)
{
    uint64_t bytes;

    return rg_mul((uint64_t)n, (uint64_t)group->block_bytes + RG_BLOCK_BOOKKEEPING, &bytes) ? bytes : UINT64_MAX / 32;
}

/* Blocks of the groups that do not grow for max_seqs sequences, or for fewer if those take more than `most` bytes. */
static uint64_t size_fixed(const model_runner *r, uint64_t most, int32_t n_blocks[RG_MAX_GROUPS])
{
    const rg_state_spec *spec = &r->m->state;

    for (int64_t seqs = r->o.max_seqs;; seqs /= 2) {
        uint64_t bytes = 0;

        for (int g = 0; g < spec->n_groups; g++) {
            int64_t n = rg_group_grows(&spec->group[g]) ? 0 : fixed_blocks(r, &spec->group[g], seqs);

            n_blocks[g] = (int32_t)min_of(n, INT32_MAX);
            bytes += bytes_of(&spec->group[g], n);
        }
        if (bytes <= most || seqs <= 1)
            return bytes;
    }
}

/* Share out state_bytes: the groups that do not grow get what max_seqs sequences need, or what a single one needs if
 * memory is short; those that grow share the rest.  The longest sequence is the one whose blocks fit together with the
 * tables of all sequences.  If no group grows, the ids of all sequences must fit. */
static bool size_groups(model_runner *r, int32_t n_blocks[RG_MAX_GROUPS], rg_error *err)
{
    const rg_state_spec *spec = &r->m->state;
    uint64_t each = 0, per_length = 0, fixed, room;
    int64_t length = blocks_of(r->o.max_seq_len), n = 0;

    for (int g = 0; g < spec->n_groups; g++) {
        each += rg_group_grows(&spec->group[g]) ? bytes_of(&spec->group[g], 1) : 0;
        per_length += spec->group[g].per == RG_PER_POSITION ? (uint64_t)r->o.max_seqs * sizeof(int32_t) : 0;
    }
    fixed = size_fixed(r, r->o.state_bytes / (each ? 2 : 1), n_blocks);
    room = r->o.state_bytes > fixed ? r->o.state_bytes - fixed : 0;
    if (!each)
        per_length += (uint64_t)r->o.max_seqs * RG_BLOCK * sizeof(int32_t);
    length = min_of(length, (int64_t)(room / (each + per_length)));
    if (each)
        n = (int64_t)((room - (uint64_t)length * per_length) / each);
    if (length < 1 || (each && n < 2))
        return rg_fail(err, RG_E_LIMIT,
                       "the state of one sequence does not fit: %llu bytes are allowed, %llu are needed at least; "
                       "raise --kv-memory or lower --ctx",
                       (unsigned long long)r->o.state_bytes, (unsigned long long)(fixed + 2 * (each + per_length)));
    n = min_of(n, min_of((int64_t)r->o.max_seqs * length * 2 + 8, INT32_MAX));
    for (int g = 0; g < spec->n_groups; g++)
        if (rg_group_grows(&spec->group[g]))
            n_blocks[g] = (int32_t)n;
    r->base.max_seq_len = (int)min_of(r->o.max_seq_len, length * RG_BLOCK);
    return true;
}

static int max_of(int a, int b)
{
    return a > b ? a : b;
}

static void add_matrix(rg_reader_sizes *s, const rg_weight *w)
{
    s->max_cols = max_of(s->max_cols, max_of((int)w->cols, (int)w->rows));
    if (w->part && w->part->here.placed && w->part->here.placed->is_folded)
        s->max_folded = max_of(s->max_folded, (int)w->part->here.cols);
    if (w->placed && w->placed->is_folded)
        s->max_folded = max_of(s->max_folded, (int)w->cols);
}

rg_reader_sizes rg_model_reader_sizes(const rg_model *m, const rg_runner_options *o, int max_seq_len)
{
    const rg_config *c = &m->config;
    rg_reader_sizes s = { .max_rows = max_of(o->max_rows, max_of(o->max_logits, c->n_labels ? o->max_seqs : 0)),
                          .n_threads = o->n_threads,
                          .max_experts = c->routing.n_experts,
                          .max_experts_used = c->routing.n_used,
                          .max_heads = c->n_heads,
                          .max_keys = max_seq_len,
                          .max_rank = m->adapters.max_rank,
                          .n_nodes = o->n_nodes,
                          .weights = m->weights.all,
                          .n_weights = m->weights.n };

    if (o->draws && !m->link && !m->of && !c->target && !m->adapters.n && !c->arch->head && o->n_nodes <= 1)
        s.head = m->outer.w[W_LM_HEAD];
    for (int i = 0; i < W_COUNT; i++) /* some may be another model's */
        if (m->outer.w[i])
            add_matrix(&s, m->outer.w[i]);
    for (int i = 0; i < m->weights.n; i++)
        if (!m->weights.all[i].vec)
            add_matrix(&s, &m->weights.all[i]);
    for (int i = 0; i < m->adapters.n_placed; i++)
        if (m->adapters.placed[i]->is_folded)
            s.max_folded = max_of(s.max_folded, (int)m->adapters.placed[i]->cols);
    for (int i = 0; i < c->n_layers; i++)
        s.max_head_dim = max_of(s.max_head_dim, max_of(m->keep[i].kv.k_dim, m->keep[i].kv.v_dim));
    for (int i = 0; i < c->n_ropes; i++) /* layers may rotate heads without keeping K/V */
        s.max_head_dim = max_of(s.max_head_dim, c->ropes[i].dim);
    return s;
}

/* given: the sizes that rank 0 has found; NULL: this is it. */
static rg_runner *make_runner(const rg_model *m, const rg_runner_options *o, const rg_runner_sizes *given,
                              rg_error *err)
{
    model_runner *r = rg_zalloc(sizeof *r);
    rg_runner_sizes sizes = { 0 };

    if (!r)
        return rg_fail_memory(err, sizeof *r), NULL;
    r->m = m;
    r->o = *o;
    r->base = (rg_runner){ .vocab_size = m->config.vocab_size,
                           .dim = m->config.dim,
                           .max_rows = o->max_rows,
                           .max_logits = o->max_logits,
                           .n_threads = o->n_threads,
                           .sees = m->config.sees,
                           .diffusion = m->config.diffusion,
                           .spec = &m->state,
                           .step = step };
    if (!measure_activations(r, err) || (!given && !size_groups(r, sizes.n_blocks, err)))
        goto fail;
    if (given) {
        sizes = *given;
        r->base.max_seq_len = given->max_seq_len;
    }
    sizes.max_seq_len = r->base.max_seq_len;
    rg_step_facts_find(&r->base.facts, m);
    r->base.store = rg_store_new(&m->state, sizes.n_blocks, o->backend, err);
    if (!r->base.store)
        goto fail;
    r->pool = o->pool ? o->pool : rg_pool_new(o->n_threads, err);
    rg_lane_options lane = { .sizes = rg_model_reader_sizes(r->m, &r->o, r->base.max_seq_len),
                             .activation_bytes = r->base.activation_bytes,
                             .pool = r->pool };
    r->lane = r->pool ? o->backend->open(o->backend, &lane, err) : NULL;
    if (!r->lane)
        goto fail;
    r->reader = r->lane->reader;
    if (o->pin)
        rg_pool_pin(r->pool);
    if (o->wrap)
        r->reader = o->wrap(o->wrap_arg, r->reader);
    if (!given && !tell_runner(r, &sizes, err))
        goto fail;
    return &r->base;

fail:
    rg_model_runner_free(&r->base);
    return NULL;
}

rg_runner *rg_model_runner_new(const rg_model *m, const rg_runner_options *o, rg_error *err)
{
    return make_runner(m, o, NULL, err);
}

rg_runner *rg_model_runner_follow(const rg_model *m, const rg_runner_options *o, const rg_runner_sizes *sizes,
                                  rg_error *err)
{
    return make_runner(m, o, sizes, err);
}

void rg_model_runner_free(rg_runner *self)
{
    model_runner *r = (model_runner *)self;

    if (!r)
        return;
    if (r->on_ranks.number)
        rg_ranks_runner_free(r->m->ranks, &r->on_ranks);
    r->o.backend->close(r->lane);
    if (!r->o.pool)
        rg_pool_free(r->pool);
    rg_store_free(r->base.store);
    rg_free(r);
}
