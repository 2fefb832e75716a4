/* tool.c -- see tool.h. */
#include "cli/tool.h"

#include <limits.h>
#include <stdatomic.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "engine/numeric.h"
#include "model/self.h"

/* True if it is opened for evaluations of a diffusion model. */
static bool fills(const tool *t, const tool_options *o)
{
    return o->filled_rows && rg_diffusion_fills(&t->model->config.diffusion);
}

static int most_logits(const tool *t, const tool_options *o)
{
    if (fills(t, o))
        return tool_rows_for(&t->model->config, o->filled_rows);
    return o->all_logits ? t->max_rows : o->max_seqs;
}

static bool open_runner(tool *t, const tool_options *o, rg_error *err)
{
    const rg_config *c = &t->model->config;
    uint64_t per_position = rg_state_bytes_per_position(&t->model->state),
             per_seq = rg_state_bytes_per_sequence(&t->model->state);
    uint64_t len = (uint64_t)(o->max_seq_len > 0 ? o->max_seq_len : c->max_seq_len);
    rg_runner_options r = { .backend = t->backend,
                            .n_threads = t->n_threads,
                            .exact = t->recipe.exact,
                            .llm_int8 = t->recipe.llm_int8,
                            .attention_sparsity = o->attention_sparsity,
                            .max_rows = t->max_rows,
                            .max_logits = most_logits(t, o),
                            .max_seqs = o->max_seqs,
                            .max_seq_len = (int)len,
                            .pin = o->common->pin || o->common->numa_copies,
                            .n_nodes = o->common->numa_copies ? rg_nodes() : 0,
                            .wrap = o->wrap,
                            .wrap_arg = o->wrap_arg };

    /* Blocks for every sequence at full length, twice what windows and recurrent states need, and a little over. */
    r.state_bytes =
        (size_t)((uint64_t)o->max_seqs * ((len + 2 * RG_BLOCK) * per_position + 8 * per_seq)) + ((size_t)64 << 20);
    for (int g = 0; g < t->model->state.n_groups; g++)
        if (!rg_group_grows(&t->model->state.group[g]))
            r.state_bytes += 8 * (size_t)o->max_seqs * t->model->state.group[g].block_bytes *
                             (size_t)(rg_group_blocks(&t->model->state.group[g], (int64_t)len) +
                                      t->max_rows / RG_BLOCK + 4);
    t->runner = rg_model_runner_new(t->model, &r, err);
    t->states = t->runner ? rg_states_new(&t->model->state, t->runner->store, false, err) : NULL;
    return t->states;
}

static bool open_model(tool *t, const tool_options *o, rg_error *err)
{
    rg_sparsity *read = o->sparsity ? rg_sparsity_read(o->sparsity, err) : NULL;

    if (o->sparsity && !read)
        return false;
    t->model = rg_model_open(t->ckpt, &(rg_model_options){ .kv_type = o->kv_type, .pack_cache = o->pack_cache,
                                                           .ranks = cli_ranks(), .path = rg_checkpoint_path(t->ckpt),
                                                           .expert_bytes = o->expert_memory,
                                                           .sparsity = read ? read : o->thresholds,
                                                           .random_weights = o->random,
                                                           .declared_type = o->declared_type,
                                                           .round16 = t->recipe.round16,
                                                           .adapters = o->adapter, .n_adapters = o->adapter != NULL,
                                                           .n_threads = t->n_threads, .backend = t->backend,
                                                           .progress = cli_progress,
                                                           .progress_arg = o->common->quiet ? t : NULL }, err);
    rg_sparsity_free(read);
    return t->model;
}

static bool take_self(tool *t, const tool_options *o, rg_error *err)
{
    int n = 0;
    const rg_self_method *method = o->self ? rg_self_find(o->self, &n, err) : NULL;

    if (!method)
        return !o->self;
    t->whole = t->model;
    t->model = rg_self_open(t->whole, method, n, 0, t->n_threads, err);
    return t->model;
}

int tool_rows_for(const rg_config *c, int max_rows)
{
    int most = (16 << 20) / c->vocab_size;

    return most < 1 ? 1 : most < max_rows ? most : max_rows;
}

bool tool_open(tool *t, const tool_options *o, rg_error *err)
{
    char path[1024];
    rg_error why = { 0 };

    cli_common common = *o->common;

    memset(t, 0, sizeof *t);
    if (!cli_ranks_start(&common, err))
        return false;
    t->n_threads = common.threads ? common.threads : rg_cores();
    if (!rg_named_recipe_find(&t->recipe, o->common->recipe, err))
        return false;
    t->backend = rg_backend_find(o->common->isa, err);
    if (!t->backend || !cli_find_model(o->model, path, sizeof path, err))
        return false;
    t->ckpt = rg_checkpoint_open(path, o->random ? RG_CKPT_NO_WEIGHTS : RG_CKPT_DEFAULT, err);
    if (!t->ckpt)
        return false;
    if (!open_model(t, o, err) || !take_self(t, o, err))
        return false;
    if (!rg_config_has_logits(&t->model->config) && !o->whole)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: an encoder, or a model without a head, has no logits", path);
    if (t->model->config.sees != RG_CAUSAL && !o->whole && !fills(t, o))
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: rows of this model see rows after them: it has no next id", path);
    cli_warn_unused(o->common, path, t->model->n_unused);
    cli_warn_notes(o->common, path, t->model->notes);
    t->tokenizer = rg_tokenizer_open_for(t->ckpt, t->model->config.vocab_size, &why);
    if (!t->tokenizer && why.code != RG_OK) {
        *err = why;
        return false;
    }
    t->max_rows = fills(t, o) ? o->filled_rows : o->max_rows;
    if (o->all_logits && rg_config_has_logits(&t->model->config))
        t->max_rows = tool_rows_for(&t->model->config, o->max_rows);
    return open_runner(t, o, err);
}

bool tool_open_exact(tool *t, const tool *of, const tool_options *o, rg_error *err)
{
    const bool rounded = of->recipe.round16;
    tool_options own = *o;

    *t = (tool){ .ckpt = of->ckpt, .model = rounded ? NULL : of->model, .tokenizer = of->tokenizer,
                 .backend = of->backend, .n_threads = of->n_threads, .max_rows = of->max_rows, .borrows = true,
                 .borrows_model = !rounded };
    own.wrap = NULL;
    own.attention_sparsity = 0; /* it reads all keys */
    return rg_named_recipe_find(&t->recipe, "exact", err) &&
           (!rounded || (open_model(t, &own, err) && take_self(t, &own, err))) && open_runner(t, &own, err);
}

bool tool_reaches(const tool *t, size_t n, rg_error *err)
{
    const int most = t->model->config.n_positions;

    return !most || n <= (size_t)most ||
           rg_fail(err, RG_E_INPUT, "%zu ids: the model has embeddings for %d positions", n, most);
}

void tool_close(tool *t)
{
    rg_states_free(t->states);
    rg_model_runner_free(t->runner);
    if (!t->borrows_model) {
        rg_model_close(t->model);
        rg_model_close(t->whole);
    }
    if (!t->borrows) {
        rg_tokenizer_close(t->tokenizer);
        rg_checkpoint_close(t->ckpt);
    }
}

typedef struct arrays {
    int32_t *token, *index, *kv_end, *logit_rows;
    int32_t (*pos)[4];
    uint8_t *failed;
    rg_span *spans;
} arrays;

static void free_arrays(arrays *a)
{
    rg_free(a->token);
    rg_free(a->pos);
    rg_free(a->failed);
    rg_free(a->spans);
}

static bool new_arrays(arrays *a, size_t n_rows, size_t n_spans, rg_error *err)
{
    a->token = rg_array(n_rows, 4 * sizeof *a->token);
    a->pos = rg_array(n_rows, sizeof *a->pos);
    a->failed = rg_array(n_rows, sizeof *a->failed);
    a->spans = rg_array(n_spans, sizeof *a->spans);
    if (!a->token || !a->pos || !a->failed || !a->spans) {
        free_arrays(a);
        return rg_fail_memory(err, n_rows * 32);
    }
    a->index = a->token + n_rows;
    a->kv_end = a->index + n_rows;
    a->logit_rows = a->kv_end + n_rows;
    return true;
}

/* Where the numbers of a step go, by any of its threads. */
typedef struct row_taker {
    void (*row)(void *arg, int i, float *logits); /* NULL: nowhere */
    void *arg;
    const rg_runner *runner;
    const int32_t *logit_rows;
    int n_hidden;         /* rows of an encoder, all in one run */
    atomic_int first_bad; /* row of the batch that is no number; INT_MAX: none is */
} row_taker;

static void check_row(row_taker *taker, int row, const float *x, int n)
{
    int first = atomic_load(&taker->first_bad);

    if (rg_all_finite(x, n))
        return;
    while (row < first && !atomic_compare_exchange_weak(&taker->first_bad, &first, row))
        ;
}

static void take_hidden(void *arg, int thread, int i, const float *rows, size_t stride)
{
    row_taker *taker = arg;

    (void)thread, (void)i;
    for (int k = 0; taker->row && k < taker->n_hidden; k++)
        check_row(taker, k, rows + (size_t)k * stride, taker->runner->dim);
}

static void take_row(void *arg, int thread, int i, float *logits)
{
    row_taker *taker = arg;

    (void)thread;
    if (!taker->row)
        return;
    check_row(taker, taker->logit_rows[i], logits, taker->runner->vocab_size);
    taker->row(taker->arg, i, logits);
}

/* The numbers of a row of the batch are not finite. */
static bool fail_at(const rg_batch *b, int row, rg_error *err)
{
    (void)cli_finished(RG_FINISH_NOT_FINITE, err);
    return rg_fail_prefix(err, "position %d", (int)b->index[row]);
}

bool tool_step(tool *t, const tool_span *spans, int n_spans, void (*row)(void *arg, int i, float *logits), void *arg,
               rg_error *err)
{
    bool is_encoder = !rg_config_has_logits(&t->model->config);
    rg_batch b = { .n_spans = n_spans };
    rg_rows all;
    arrays a = { 0 };

    for (int s = 0; s < n_spans; s++)
        b.n_rows += spans[s].n;
    RG_ASSERT(b.n_rows <= t->max_rows);
    if (!new_arrays(&a, (size_t)b.n_rows, (size_t)n_spans, err))
        return false;
    for (int s = 0, r = 0; s < n_spans; s++) {
        rg_seq *q = spans[s].seq;
        if (!rg_seq_grow(t->states, q, q->length + spans[s].n)) {
            free_arrays(&a);
            return rg_fail(err, RG_E_LIMIT, "no room for the state of %d positions", q->length + spans[s].n);
        }
        a.spans[s] = (rg_span){ .first_row = r, .n_rows = spans[s].n, .adapter = -1, .second = spans[s].second };
        rg_seq_span(t->states, q, spans[s].n, 0, &a.spans[s]);
        for (int i = 0; i < spans[s].n; i++, r++) {
            a.token[r] = spans[s].ids[i];
            a.index[r] = a.pos[r][0] = q->length + i;
            a.kv_end[r] = rg_kv_end(t->runner->sees, a.index[r], q->length + spans[s].n);
            if (is_encoder)
                continue;
            if (spans[s].all_logits || i >= spans[s].n - (spans[s].n_logits ? spans[s].n_logits : 1))
                a.logit_rows[b.n_logits++] = r;
        }
    }
    b.spans = a.spans;
    b.token = a.token;
    b.index = a.index;
    b.kv_end = a.kv_end;
    b.pos = (const int32_t(*)[4])a.pos;
    b.logit_rows = a.logit_rows;
    b.failed = a.failed;
    all = (rg_rows){ 0, b.n_rows };
    b.n_hidden = is_encoder;
    b.hidden = &all;
    row_taker taker = { .row = row,
                        .arg = arg,
                        .runner = t->runner,
                        .logit_rows = b.logit_rows,
                        .n_hidden = b.n_rows,
                        .first_bad = INT_MAX };
    t->runner->step(t->runner, &b, &(rg_sink){ .logits = take_row, .hidden = take_hidden, .arg = &taker });
    for (int s = 0; s < n_spans; s++)
        rg_seq_advance(t->states, spans[s].seq, spans[s].n, 0, NULL);
    bool ok = !memchr(a.failed, 1, (size_t)b.n_rows) || rg_fail(err, RG_E_IO, "experts could not be read");
    if (ok && taker.first_bad < b.n_rows)
        ok = fail_at(&b, taker.first_bad, err);
    free_arrays(&a);
    return ok;
}
