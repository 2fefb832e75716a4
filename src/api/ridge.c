/* ridge.c -- the public API: checkpoint, model, tokenizer, runner and step loop put together.
 *
 * See ridge.h for what each function promises.  Everything that can be refused is refused in rg_open and rg_submit. */
#include "ridge.h"

#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "ckpt/checkpoint.h"
#include "engine/engine.h"
#include "model/cost.h"
#include "model/model.h"
#include "text/tokenizer.h"

struct rg_engine {
    rg_model *model;
    rg_tokenizer *tokenizer; /* NULL: ids only */
    rg_runner *runner;
    rg_core *core;
    const rg_cpu *cpu;
    rg_token_bytes bytes;
    bool exact;
    int n_threads, max_seq_len;
    uint64_t state_bytes;
};

rg_sampling rg_sampling_default(void)
{
    return (rg_sampling){ .temperature = 1, .top_p = 1, .typical_p = 1, .repetition_penalty = 1, .n_logprobs = -1 };
}

rg_options rg_options_default(void)
{
    return (rg_options){ .isa = "auto", .recipe = "fast" };
}

/* Half of what is free, so that a machine's other work has room. */
static size_t default_state_bytes(void)
{
    long pages = sysconf(_SC_AVPHYS_PAGES), page = sysconf(_SC_PAGESIZE);

    return pages > 0 && page > 0 ? (size_t)pages * (size_t)page / 2 : (size_t)1 << 30;
}

static bool open_model(rg_engine *e, const char *path, const rg_options *o, rg_error *err)
{
    rg_checkpoint *ckpt = rg_checkpoint_open(path, RG_CKPT_DEFAULT, err);
    rg_error why = { 0 };
    bool ok = false;

    if (!ckpt)
        return false;
    e->model = rg_model_open(ckpt, &(rg_model_options){ .kv_type = o->kv_type, .progress = o->progress,
                                                        .progress_arg = o->progress_arg }, err);
    if (e->model) {
        e->tokenizer = rg_tokenizer_open(ckpt, &why);
        ok = e->tokenizer || why.code == RG_OK;
        if (!ok && err)
            *err = why;
    }
    rg_checkpoint_close(ckpt);
    if (ok && e->tokenizer && rg_tokenizer_size(e->tokenizer) > e->model->config.vocab_size)
        return rg_fail(err, RG_E_INPUT, "%s: the tokenizer has %d ids, the embedding %d rows", path,
                       rg_tokenizer_size(e->tokenizer), e->model->config.vocab_size);
    return ok;
}

static bool open_runner(rg_engine *e, const rg_options *o, rg_error *err)
{
    const rg_config *c = &e->model->config;
    int max_seqs = o->max_seqs > 0 ? o->max_seqs : 64, max_rows = o->max_batch_rows > 0 ? o->max_batch_rows : 512;

    if (strcmp(o->recipe, "fast") && strcmp(o->recipe, "exact"))
        return rg_fail(err, RG_E_USAGE, "recipe '%.20s' is not one of fast, exact", o->recipe);
    e->exact = !strcmp(o->recipe, "exact");
    e->cpu = rg_cpu_find(o->isa, err);
    if (!e->cpu)
        return false;
    e->n_threads = o->n_threads > 0 ? o->n_threads : rg_cores();
    e->max_seq_len = c->max_seq_len;
    if (o->max_seq_len > 0 && o->max_seq_len < e->max_seq_len)
        e->max_seq_len = o->max_seq_len;
    e->state_bytes = o->kv_bytes ? o->kv_bytes : default_state_bytes();
    if (max_rows < max_seqs)
        max_rows = max_seqs;
    e->runner = rg_model_runner_new(e->model, &(rg_runner_options){ .cpu = e->cpu, .n_threads = e->n_threads,
                                                                    .exact = e->exact,
                                                                    .max_rows = max_rows, .max_logits = max_seqs,
                                                                    .max_seqs = max_seqs, .max_seq_len = e->max_seq_len,
                                                                    .state_bytes = e->state_bytes }, err);
    if (!e->runner)
        return false;
    if (e->tokenizer) {
        e->bytes.n = rg_tokenizer_size(e->tokenizer);
        rg_tokenizer_bytes(e->tokenizer, &e->bytes.data, &e->bytes.offset);
    }
    e->core = rg_core_new(e->runner, &(rg_core_options){ .max_seqs = max_seqs, .max_rows = max_rows,
                                                         .max_seq_len = e->max_seq_len, .max_waiting = 4096,
                                                         .use_prefixes = !o->no_prefix_cache, .bytes = &e->bytes,
                                                         .eos_ids = c->eos_ids, .n_eos = c->n_eos,
                                                         .n_threads = e->n_threads }, err);
    return e->core && rg_core_start(e->core, err);
}

rg_engine *rg_open(const char *path, const rg_options *options, rg_error *err)
{
    rg_options o = options ? *options : rg_options_default();
    rg_engine *e = rg_zalloc(sizeof *e);

    if (!e)
        return rg_fail_memory(err, sizeof *e), NULL;
    if (open_model(e, path, &o, err) && open_runner(e, &o, err))
        return e;
    rg_close(e);
    return NULL;
}

void rg_close(rg_engine *e)
{
    if (!e)
        return;
    rg_core_free(e->core);
    rg_model_runner_free(e->runner);
    rg_tokenizer_close(e->tokenizer);
    rg_model_close(e->model);
    rg_free(e);
}

rg_info rg_engine_info(const rg_engine *e)
{
    const rg_config *c = &e->model->config;

    return (rg_info){ .architecture = c->from_gguf ? c->arch->gguf_name : c->arch->hf_name, .isa = e->cpu->isa,
                      .recipe = e->exact ? "exact" : "fast", .kv_type = rg_format_of(e->model->kv_type)->name,
                      .n_threads = e->n_threads, .vocab_size = c->vocab_size, .max_seq_len = e->max_seq_len,
                      .bos_id = c->bos_id, .n_parameters = e->model->weights.n_parameters,
                      .weight_bytes = e->model->weights.bytes, .state_bytes = e->state_bytes,
                      .has_tokenizer = e->tokenizer, .sampling = c->sampling };
}

rg_stats rg_engine_stats(const rg_engine *e)
{
    return rg_core_stats(e->core);
}

double rg_engine_bandwidth(const rg_engine *e)
{
    rg_pool *pool = rg_pool_new(e->n_threads, NULL);
    double rate = pool ? rg_machine_bandwidth(e->cpu, pool, e->n_threads, e->model->weights.bytes) : 0;

    rg_pool_free(pool);
    return rate;
}

bool rg_encode(const rg_engine *e, const char *text, size_t n, unsigned flags, int32_t **ids, size_t *n_ids,
               rg_error *err)
{
    rg_ids out = { 0 };

    if (!e->tokenizer)
        return rg_fail(err, RG_E_UNSUPPORTED, "the checkpoint has no tokenizer: give ids");
    if (!rg_tokenizer_encode(e->tokenizer, text, n, flags, &out, err)) {
        rg_ids_fini(&out);
        return false;
    }
    *ids = out.id;
    *n_ids = out.n;
    return true;
}

void rg_ids_free(int32_t *ids)
{
    rg_free(ids);
}

rg_request *rg_submit(rg_engine *e, const rg_params *params, rg_error *err)
{
    const rg_config *c = &e->model->config;
    rg_request *r = rg_request_new(params, c->vocab_size, e->max_seq_len, &e->bytes, c->eos_ids, c->n_eos, err);

    if (r && !rg_core_submit(e->core, r, err)) {
        rg_request_unref(r);
        return NULL;
    }
    return r;
}

bool rg_next(rg_request *r, rg_token *token)
{
    return rg_request_wait(r, token);
}

int rg_poll(rg_request *r, rg_token *token)
{
    return rg_request_poll(r, token);
}

void rg_cancel(rg_request *r)
{
    atomic_store(&r->cancelled, true);
}

rg_usage rg_request_usage(const rg_request *r)
{
    return rg_request_used(r);
}

void rg_request_close(rg_request *r)
{
    if (!r)
        return;
    rg_cancel(r);
    rg_request_unref(r);
}
