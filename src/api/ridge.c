/* ridge.c -- the public API: checkpoint, model, tokenizer, runner and step loop put together.
 *
 * See ridge.h for what each function promises.  Everything that can be refused is refused in rg_open and rg_submit. */
#include "ridge.h"

#include <math.h> /* NAN */
#include <pthread.h>
#include <string.h>
#include <strings.h>

#include "api/breaker_texts.h"
#include "api/card.h"
#include "api/continued.h"
#include "api/drafts.h"
#include "api/embed_text.h"
#include "api/hosted.h"
#include "api/prefix_files.h"
#include "api/scoring.h"
#include "api/shown.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "ckpt/checkpoint.h"
#include "engine/work/answer.h"
#include "engine/work/beams.h"
#include "engine/work/embedding.h"
#include "engine/work/fill.h"
#include "engine/work/head.h"
#include "engine/work/prompt_logprobs.h"
#include "engine/work/search.h"
#include "grammar/cache.h"
#include "measure/profile.h"
#include "model/named_recipe.h"
#include "model/exchange.h"
#include "model/model.h"
#include "model/rank_calls.h"
#include "model/sparsity.h"
#include "text/chat.h"
#include "text/ends.h"
#include "text/tokenizer.h"

enum {
    CHAT_BYTES = 1 << 28, /* of a rendered conversation */
    DRAFT_ROWS = 128,     /* rows of drafts in a step: a draft for each of many sequences, or a few long ones */
    FILL_LOGIT_BYTES = 256 << 20, /* of the logits of masks in a step of a diffusion model */
    WHOLE_ROWS = 8192,    /* of a prompt that is computed in one step, where the caller does not say */
    SCORE_ROWS = 16,      /* rows of logits beyond one for each sequence: for prompts whose ids are scored */
    MOST_ROWS = 1 << 16,  /* of a step, and sequences at once */
};

struct rg_engine {
    rg_model *model;
    rg_tokenizer *tokenizer; /* NULL: ids only */
    rg_ends ends;
    rg_runner *runner;
    rg_drafts drafts;
    rg_prefix_files prefix_files;
    rg_hosted hosted;    /* whose thread and pool compute its steps */
    rg_loop *loop;
    rg_chat *chat;
    rg_embed_text embed_text;
    rg_roofs roofs;     /* of this machine and the model's weights; all 0: not known */
    rg_profile *profile; /* they are from; NULL: from none that is kept */
    char *profile_folder; /* where it lies */
    char *path;           /* of the checkpoint */
    int64_t modified_s;   /* when that was changed last */
    int max_seqs;
    const rg_backend *backend;
    rg_shown *shown;            /* what rg_engine_show was told; NULL: nothing */
    struct {
        rg_grammar_vocab *vocab; /* NULL until the first grammar, as is cache */
        rg_grammar_cache *cache;
    } grammars[2];               /* [0] for answers that hide special tokens, [1] for answers that show them */
    rg_breaker_texts *breakers; /* NULL without a tokenizer */
    pthread_mutex_t grammar_lock;
    bool lock_made;
    rg_named_recipe recipe;
    double attention_sparsity;
    int n_threads, max_seq_len;
    uint64_t state_bytes;
    bool has_copies, has_sparsity; /* weights on several nodes; thresholds that are of the weights */
};

rg_options rg_options_default(void)
{
    return (rg_options){ .isa = "auto", .recipe = "fast" };
}

/* Half of what is free, and of what the host has left, and is not promised to experts: a machine's other work has room,
 * and so have other models. */
static size_t default_state_bytes(const rg_engine *e, const rg_options *o)
{
    uint64_t room = rg_memory_free(), to_come = rg_model_expert_reads(e->model).bytes;
    uint64_t left = rg_host_left(e->hosted.host);

    if (o->numa_copies)
        to_come += (uint64_t)(rg_nodes() - 1) * e->model->weights.bytes;
    room = room > to_come ? (room - to_come) / 2 : (uint64_t)1 << 30;
    return (size_t)(room < left / 2 ? room : left / 2);
}

static bool choose_cpu(rg_engine *e, const rg_options *o, rg_error *err)
{
    if (!rg_named_recipe_find(&e->recipe, o->recipe, err))
        return false;
    e->attention_sparsity = o->attention_sparsity;
    if (!(o->attention_sparsity >= 0 && o->attention_sparsity < 1))
        return rg_fail(err, RG_E_USAGE, "attention_sparsity is %g: want a threshold of weights, at least 0 and less "
                       "than 1", o->attention_sparsity);
    e->n_threads = o->host           ? rg_pool_threads(rg_host_pool(o->host))
                   : o->n_threads > 0 ? o->n_threads
                                      : rg_ranks_threads(o->ranks);
    e->backend = rg_backend_find(o->isa, err);
    return e->backend && rg_hosted_open(&e->hosted, o->host, e->n_threads, err);
}

static bool open_weights(rg_engine *e, const rg_checkpoint *ckpt, const rg_options *o, rg_error *err)
{
    rg_adapter_source *adapters = rg_array((size_t)o->n_adapters, sizeof *adapters);
    rg_sparsity *sparsity = o->sparsity && adapters ? rg_sparsity_read(o->sparsity, err) : NULL;

    if (!adapters || (o->sparsity && !sparsity)) {
        rg_free(adapters);
        return adapters ? false : rg_fail_memory(err, (size_t)o->n_adapters * sizeof *adapters);
    }
    for (int32_t i = 0; i < o->n_adapters; i++)
        adapters[i] = (rg_adapter_source){ o->adapters[i].name, o->adapters[i].path };
    e->model = rg_model_open(ckpt, &(rg_model_options){ .kv_type = o->kv_type, .n_threads = e->n_threads,
                                                        .ranks = o->ranks, .path = e->path,
                                                        .backend = e->backend, .round16 = e->recipe.round16,
                                                        .max_draft = rg_drafts_rows_kept(&e->drafts),
                                                        .pack_cache = o->pack_cache, .sparsity = sparsity,
                                                        .expert_bytes = o->expert_bytes, .adapters = adapters,
                                                        .n_adapters = o->n_adapters, .progress = o->progress,
                                                        .progress_arg = o->progress_arg },
                             err);
    rg_sparsity_free(sparsity);
    rg_free(adapters);
    return e->model;
}

static bool open_model(rg_engine *e, const char *path, const rg_options *o, rg_error *err)
{
    rg_checkpoint *ckpt = rg_checkpoint_open(path, RG_CKPT_DEFAULT, err);
    rg_error why = { 0 };
    bool ok = false;

    if (!ckpt)
        return false;
    e->path = rg_strdup(path);
    e->modified_s = rg_card_modified_s(path);
    if (!e->path)
        rg_fail_memory(err, strlen(path));
    if (!e->path || !rg_prefix_files_read(&e->prefix_files, o, e->backend, ckpt, err) ||
        !rg_drafts_choose(&e->drafts, o, ckpt, err)) {
        rg_checkpoint_close(ckpt);
        return false;
    }
    if ((o->expert_bytes || rg_hosted_take_file(&e->hosted, ckpt, err)) && open_weights(e, ckpt, o, err)) {
        e->tokenizer = rg_tokenizer_open_for(ckpt, e->model->config.vocab_size, &why);
        ok = e->tokenizer || why.code == RG_OK;
        if (ok && e->tokenizer)
            ok = (e->chat = rg_chat_open(ckpt, &why)) != NULL &&
                 (!o->chat_template || rg_chat_choose(e->chat, o->chat_template, &why)) &&
                 (e->breakers = rg_breaker_texts_new(e->tokenizer, &why)) != NULL;
        ok = ok && rg_embed_text_open(&e->embed_text, &e->model->config.embedding, ckpt, &why);
        ok = ok && rg_ends_read(&e->ends, ckpt, e->tokenizer, e->model->config.vocab_size, &why);
        if (!ok && err)
            *err = why;
    }
    ok = ok && rg_drafts_load(&e->drafts, o, &(rg_drafts_target){ ckpt, e->model, e->tokenizer }, e->n_threads, err);
    rg_checkpoint_close(ckpt);
    return ok;
}

/* What this machine can do at most: from its profile, or else measured if steps are to be kept short. */
static bool find_roofs(rg_engine *e, const rg_options *o, rg_error *err)
{
    e->profile = rg_alloc(sizeof *e->profile);
    e->profile_folder = o->profile_folder ? rg_strdup(o->profile_folder) : NULL;
    if (!e->profile || (o->profile_folder && !e->profile_folder))
        return rg_fail_memory(err, sizeof *e->profile);
    if (o->profile_folder && rg_profile_load(e->profile, o->profile_folder, e->backend, e->n_threads)) {
        e->roofs = e->profile->roofs;
        e->roofs.read_bytes_s = rg_rates_bandwidth(&e->profile->rates, (double)e->model->weights.bytes);
        return true;
    }
    rg_free(e->profile);
    e->profile = NULL;
    if (o->step_s <= 0 && o->pace <= 0)
        return true;
    return rg_roofs_probe(&e->roofs, e->backend, e->n_threads, (double)e->model->weights.bytes, err);
}

/* Steps may have shown that limits were measured too low: the kept profile gets what they reached.  If it cannot be
 * written, the next engine corrects it. */
static void keep_corrections(const rg_engine *e)
{
    const rg_step_roofs reached = rg_loop_step_time(e->loop).roofs;
    rg_roofs *r = &e->profile->roofs;
    double bytes_s = rg_rates_bandwidth(&e->profile->rates, (double)e->model->weights.bytes);
    rg_error err = { 0 };

    if (reached.bytes_s <= bytes_s && reached.product_ops_s <= rg_roofs_peak(r, e->runner->facts.type, e->recipe.exact))
        return;
    rg_rates_raise_bandwidth(&e->profile->rates, (double)e->model->weights.bytes, reached.bytes_s);
    rg_roofs_raise_peak(r, e->runner->facts.type, e->recipe.exact, reached.product_ops_s);
    r->read_bytes_s = fmax(r->read_bytes_s, e->profile->rates.set_bytes_s[RG_RATE_SETS - 1]);
    if (!rg_profile_save(e->profile, e->profile_folder, e->backend, &err))
        rg_log(RG_LOG_INFO, "the profile of this machine is not corrected: %s", err.text);
}

static bool choose_preempt(const rg_options *o, rg_preempt *how, rg_error *err)
{
    static const char *const words[] = { [RG_PREEMPT_AUTO] = "auto", [RG_PREEMPT_RECOMPUTE] = "recompute",
                                         [RG_PREEMPT_SWAP] = "swap" };

    for (size_t i = 0; i < RG_LEN(words); i++)
        if (!strcasecmp(o->preempt ? o->preempt : "auto", words[i]))
            return *how = (rg_preempt)i, true;
    return rg_fail(err, RG_E_USAGE, "preempt '%.20s' is not one of swap, recompute, auto", o->preempt);
}

static bool open_loop(rg_engine *e, const rg_options *o, int max_seqs, int max_rows, rg_error *err)
{
    double product_ops_s = rg_roofs_peak(&e->roofs, e->runner->facts.type, e->recipe.exact);
    rg_loop_options loop = { .max_seqs = max_seqs, .max_rows = max_rows, .max_seq_len = e->max_seq_len,
                             .max_waiting = o->max_waiting > 0 ? o->max_waiting : 1024,
                             .max_waiting_ids = o->max_waiting_ids, .max_wait_s = o->max_wait_s,
                             .use_prefixes = !o->no_prefix_cache,
                             .durable = e->prefix_files.durable,
                             .share_prefixes = o->share_prefixes, .static_batching = o->static_batching,
                             .step_s = o->step_s, .pace = o->pace, .drafter = e->drafts.drafter,
                             .fallback = e->drafts.fallback, .max_draft = e->drafts.max_draft,
                             .verify = e->drafts.verify,
                             .adapt_drafts = e->drafts.is_auto && e->drafts.verify == RG_VERIFY_COUPLED,
                             .roofs = { e->roofs.read_bytes_s, product_ops_s, e->roofs.f32_ops_s } };

    if (!choose_preempt(o, &loop.preempt, err))
        return false;
    e->loop = rg_loop_new(e->runner, &loop, err);
    return e->loop && rg_host_add(e->hosted.host, e->loop, err);
}

/* Rows of drafts in a step, at most; DRAFT_ROWS is more than one draft has. */
static int draft_rows(const rg_engine *e, int max_seqs)
{
    int32_t each = e->drafts.max_draft;

    if (!each)
        return 0;
    if (e->drafts.verify != RG_VERIFY_COUPLED)
        return max_seqs * each; /* never cut: what is written depends on it */
    return max_seqs < DRAFT_ROWS / (each + 1) ? max_seqs * each : DRAFT_ROWS;
}

/* Rows of a step whose logits may be wanted.  A diffusion model wants those of all masks of a block. */
static int logit_rows(const rg_engine *e, int max_seqs, int max_rows)
{
    const rg_config *c = &e->model->config;
    int n = max_seqs + SCORE_ROWS + draft_rows(e, max_seqs);
    int most = FILL_LOGIT_BYTES / (int)sizeof(float) / c->vocab_size;

    if (!rg_diffusion_fills(&c->diffusion))
        return n;
    most = most < max_rows ? most : max_rows;
    return most > n ? most : n;
}

/* Its rows see rows after them, so that it has no next id, and masks are nothing to it. */
static bool is_encoder(const rg_engine *e)
{
    return e->model->config.sees != RG_CAUSAL && !rg_diffusion_fills(&e->model->config.diffusion);
}

/* Drafts continue a text, which neither diffusion models nor encoders do, nor models without a head. */
static bool check_draft(const rg_engine *e, rg_error *err)
{
    const rg_config *c = &e->model->config;

    if (!e->drafts.kind ||
        (c->sees == RG_CAUSAL && rg_config_generates(c) && !rg_diffusion_fills(&c->diffusion)))
        return true;
    if (!rg_config_generates(c))
        return rg_fail(err, RG_E_UNSUPPORTED, "%s generates no answers, and takes no drafts",
                       is_encoder(e) ? "an encoder" : "a model without a head");
    return rg_fail(err, RG_E_UNSUPPORTED, "a diffusion model fills in its answers, and takes no drafts");
}

/* Rows of the longest prompt that the model takes, as far as memory for activations is given freely. */
static int rows_of_prompt(const rg_engine *e, int least)
{
    int n = e->max_seq_len < WHOLE_ROWS ? e->max_seq_len : WHOLE_ROWS;

    return n > least ? n : least;
}

static bool check_sizes(const rg_options *o, rg_error *err)
{
    rg_preempt how;


    if (!choose_preempt(o, &how, err))
        return false;
    if (o->max_seqs < 0 || o->max_seqs > MOST_ROWS)
        return rg_fail(err, RG_E_USAGE, "max_seqs is %d: want 0 to %d", (int)o->max_seqs, MOST_ROWS);
    if (o->max_batch_rows < 0 || o->max_batch_rows > MOST_ROWS)
        return rg_fail(err, RG_E_USAGE, "max_batch_rows is %d: want 0 to %d", (int)o->max_batch_rows, MOST_ROWS);
    return true;
}

/* Bytes of the model's weights, experts that are read when needed included, and of the weights of its drafter. */
static uint64_t weight_bytes(const rg_engine *e)
{
    return e->model->weights.bytes + (e->drafts.model ? e->drafts.model->weights.bytes : 0);
}

static uint64_t activation_bytes(const rg_engine *e)
{
    return e->runner->activation_bytes + (e->drafts.runner ? e->drafts.runner->activation_bytes : 0);
}

static bool open_runner(rg_engine *e, const rg_options *o, rg_error *err)
{
    const rg_config *c = &e->model->config;
    int max_seqs = o->max_seqs > 0 ? o->max_seqs : 64, max_rows = o->max_batch_rows > 0 ? o->max_batch_rows : 512;

    e->max_seqs = max_seqs;
    e->has_copies = o->numa_copies;
    e->has_sparsity = o->sparsity != NULL;
    e->max_seq_len = c->max_seq_len;
    if (o->max_seq_len > 0 && o->max_seq_len < e->max_seq_len)
        e->max_seq_len = o->max_seq_len;
    if (!rg_hosted_take_instead(&e->hosted, weight_bytes(e), "the weights", err))
        return false;
    e->state_bytes = o->kv_bytes ? o->kv_bytes : default_state_bytes(e, o);
    if (!rg_hosted_take(&e->hosted, e->state_bytes, "the state of sequences", err))
        return false;
    if (max_rows < max_seqs)
        max_rows = max_seqs;
    if (e->drafts.verify != RG_VERIFY_COUPLED && max_rows / (1 + e->drafts.max_draft) < max_seqs)
        max_rows = max_seqs * (1 + e->drafts.max_draft);
    int room = max_rows;
    if (is_encoder(e) && !o->max_batch_rows)
        room = rows_of_prompt(e, max_rows);
    if (!find_roofs(e, o, err))
        return false;
    size_t for_drafts = (size_t)(rg_drafts_share(&e->drafts, e->model) * (double)e->state_bytes);
    rg_runner_options r = { .backend = e->backend, .n_threads = e->n_threads, .exact = e->recipe.exact,
                            .llm_int8 = e->recipe.llm_int8, .attention_sparsity = (float)e->attention_sparsity,
                            .max_rows = room,
                            .max_logits = logit_rows(e, max_seqs, max_rows), .max_seqs = max_seqs,
                            .max_seq_len = e->max_seq_len, .state_bytes = e->state_bytes - for_drafts,
                            .draws = !o->whole_head, .pool = rg_host_pool(e->hosted.host),
                            .pin = o->pin || o->numa_copies,
                            .n_nodes = o->numa_copies ? rg_nodes() : 0 };
    e->runner = rg_drafts_tap(&e->drafts, &r, err) ? rg_model_runner_new(e->model, &r, err) : NULL;
    if (!e->runner)
        return false;
    r.max_seq_len = e->max_seq_len = e->runner->max_seq_len;
    r.state_bytes = for_drafts;
    return rg_drafts_open(&e->drafts, &r, e->model, err) && rg_hosted_take(&e->hosted, activation_bytes(e),
                                                                           "the activations of a step", err) &&
           rg_prefix_files_open(&e->prefix_files, &e->hosted, e->model, e->max_seq_len, err) &&
           open_loop(e, o, max_seqs, max_rows, err);
}

rg_engine *rg_open(const char *path, const rg_options *options, rg_error *err)
{
    rg_options o = options ? *options : rg_options_default();
    rg_engine *e = rg_zalloc(sizeof *e);

    if (!e)
        return rg_fail_memory(err, sizeof *e), NULL;
    e->lock_made = !pthread_mutex_init(&e->grammar_lock, NULL);
    if (!e->lock_made)
        rg_fail_memory(err, 0);
    if (e->lock_made && check_sizes(&o, err) && rg_prefix_files_check(&o, err) && choose_cpu(e, &o, err) &&
        open_model(e, path, &o, err) &&
        check_draft(e, err) && open_runner(e, &o, err))
        return e;
    rg_close(e);
    return NULL;
}

void rg_close(rg_engine *e)
{
    if (!e)
        return;
    if (e->profile && e->loop)
        keep_corrections(e);
    rg_free(e->profile);
    rg_free(e->profile_folder);
    rg_free(e->path);
    rg_loop_free(e->loop);
    rg_prefix_files_close(&e->prefix_files);
    rg_drafts_close(&e->drafts);
    rg_model_runner_free(e->runner);
    rg_hosted_close(&e->hosted);
    for (int shown = 0; shown < 2; shown++) {
        rg_grammar_cache_free(e->grammars[shown].cache);
        rg_grammar_vocab_free(e->grammars[shown].vocab);
    }
    rg_shown_free(e->shown);
    rg_breaker_texts_free(e->breakers);
    if (e->lock_made)
        pthread_mutex_destroy(&e->grammar_lock);
    rg_embed_text_close(&e->embed_text);
    rg_chat_close(e->chat);
    rg_tokenizer_close(e->tokenizer);
    rg_model_close(e->model);
    rg_free(e);
}

typedef struct update {
    rg_engine *engine;
    rg_model *with;
    uint64_t checkpoint[2]; /* what stands for it in files of prefixes */
} update;

static void exchange(void *arg)
{
    update *u = arg;

    rg_model_exchange(u->engine->model, u->with);
    rg_prefix_files_change(&u->engine->prefix_files, u->engine->model, u->checkpoint);
}

static bool may_update(const rg_engine *e, rg_error *err)
{
    if (e->model->ranks)
        return rg_fail(err, RG_E_UNSUPPORTED, "ranks share the weights, which are not replaced: open the engine anew");
    if (e->drafts.model)
        return rg_fail(err, RG_E_UNSUPPORTED, "a model drafts for this one, and it would go on with the old weights: "
                       "open the engine with --draft none, suffix, ngram, lookahead or jacobi to replace its weights");
    if (e->has_copies)
        return rg_fail(err, RG_E_UNSUPPORTED, "the weights have copies on other NUMA nodes, and are not replaced");
    if (e->has_sparsity)
        return rg_fail(err, RG_E_UNSUPPORTED, "inputs below thresholds count as zero, and these are of the old "
                       "weights");
    return true;
}

bool rg_engine_update_weights(rg_engine *e, const char *path, rg_error *err)
{
    rg_checkpoint *ckpt = may_update(e, err) ? rg_checkpoint_open(path, RG_CKPT_DEFAULT, err) : NULL;
    const rg_model_options o = { .kv_type = rg_kv_name(e->model->kv_type), .n_threads = e->n_threads,
                                 .backend = e->backend, .round16 = e->recipe.round16,
                                 .max_draft = e->model->state.max_draft };
    /* First by what the file says of itself, which takes no memory. */
    rg_model_options look = o;
    look.declare_only = true;
    rg_model *declared = ckpt ? rg_model_open(ckpt, &look, err) : NULL;
    bool ok = declared && rg_model_same_shape(e->model, declared, err);
    rg_model *with = ok ? rg_model_open(ckpt, &o, err) : NULL;

    update u = { .engine = e, .with = with };
    ok = with && (!e->prefix_files.durable || rg_checkpoint_fingerprint(ckpt, u.checkpoint, err));
    rg_model_close(declared);
    rg_checkpoint_close(ckpt);
    ok = ok && rg_model_same_shape(e->model, with, err) && rg_loop_change(e->loop, exchange, &u, err);
    rg_model_close(with); /* the old weights, or the new ones if they were not taken */
    return ok;
}

/* Columns of the embedding: of some models other than those of hidden states. */
static int32_t given_dim(const rg_engine *e)
{
    return (int32_t)e->model->outer.w[W_EMBED_TOKENS]->cols;
}

rg_info rg_engine_info(const rg_engine *e)
{
    const rg_config *c = &e->model->config;

    return (rg_info){ .architecture = rg_config_name(c), .isa = e->backend->name,
                      .recipe = e->recipe.name,
                      .kv_type = rg_kv_name(e->model->kv_type), .attention_sparsity = e->attention_sparsity,
                      .n_threads = e->n_threads, .vocab_size = c->vocab_size, .max_seq_len = e->max_seq_len,
                      .bos_id = c->bos_id, .eos_ids = e->ends.id, .n_eos = e->ends.n,
                      .n_parameters = e->model->weights.n_parameters,
                      .weight_bytes = e->model->weights.bytes, .state_bytes = e->state_bytes,
                      .position_bytes = rg_state_bytes_per_position(&e->model->state),
                      .sequence_bytes = rg_state_bytes_per_sequence(&e->model->state),
                      .has_tokenizer = e->tokenizer,
                      .is_diffusion = rg_diffusion_fills(&c->diffusion), .is_encoder = is_encoder(e),
                      .generates = rg_config_generates(c),
                      .max_whole_rows = e->runner->max_rows, .n_labels = c->n_labels, .dim = c->dim,
                      .given_dim = given_dim(e),
                      .embed = c->embedding.n_poolings ? c->embedding.poolings[0] : RG_POOLING_NONE,
                      .embed_dim = c->embedding.dim,
                      .max_embed_ids = rg_embed_text_limit(&e->embed_text, e->max_seq_len),
                      .embed_refusal = c->embedding.refusal, .embed_sizes = c->embedding.sizes,
                      .n_embed_sizes = c->embedding.n_sizes, .sampling = c->sampling,
                      .n_unused_tensors = e->model->n_unused, .notes = e->model->notes ? e->model->notes : "",
                      .draft = e->drafts.drafter ? e->drafts.name : "none",
                      .draft_path = e->drafts.path,
                      .n_adapters = e->model->adapters.n, .adapter_bytes = e->model->adapters.bytes,
                      .call_id_chars = e->chat ? rg_chat_id_chars(e->chat) : 0 };
}

rg_card rg_engine_card(const rg_engine *e)
{
    rg_card card = rg_card_of(e->model, e->chat);

    card.path = e->path;
    card.modified_s = e->modified_s;
    card.max_seqs = e->max_seqs;
    return card;
}

const char *rg_engine_adapter(const rg_engine *e, int32_t i)
{
    return i >= 0 && i < e->model->adapters.n ? e->model->adapters.all[i].name : NULL;
}

rg_stats rg_engine_stats(const rg_engine *e)
{
    rg_stats s = rg_loop_stats(e->loop);
    rg_expert_reads experts = rg_model_expert_reads(e->model);

    s.n_experts_asked = experts.n_asked;
    s.n_experts_read = experts.n_read;
    s.n_experts_failed = experts.n_failed;
    s.expert_bytes_read = experts.bytes_read;
    s.expert_bytes = experts.bytes;
    rg_prefix_files_count(&e->prefix_files, &s);
    return s;
}

bool rg_engine_wait(rg_engine *e, uint64_t *seen, double timeout_s)
{
    return rg_loop_wait(e->loop, seen, timeout_s);
}

bool rg_engine_has_room(const rg_engine *e, const char *tenant)
{
    return rg_loop_has_room(e->loop, tenant);
}

int32_t rg_engine_retry_after(const rg_engine *e)
{
    return rg_loop_retry_after(e->loop);
}

void rg_engine_check(rg_engine *e)
{
    rg_loop_check_soon(e->loop);
}

double rg_engine_bandwidth(const rg_engine *e)
{
    rg_roofs now;

    if (e->roofs.read_bytes_s > 0)
        return rg_loop_step_time(e->loop).roofs.bytes_s;
    return rg_roofs_probe(&now, e->backend, e->n_threads, (double)e->model->weights.bytes, NULL) ? now.read_bytes_s : 0;
}

rg_limits rg_engine_limits(const rg_engine *e)
{
    rg_step_roofs roofs = rg_loop_step_time(e->loop).roofs;

    return (rg_limits){ .bytes_s = roofs.bytes_s, .ops_s = roofs.product_ops_s };
}

static const char *bound_of(const rg_step_time *t, const rg_step_load *load)
{
    double limit_s = rg_step_limit_s(t, load);

    if (rg_step_bytes(&t->facts, load) / t->roofs.bytes_s < limit_s)
        return "compute";
    return 2 * load->key_bytes > rg_step_bytes(&t->facts, load) ? "kv" : "weights";
}

/* Seconds of a prompt of n positions in steps of as many rows as there may be. */
static double prompt_s(const rg_step_time *t, int32_t n, int32_t max_rows)
{
    double s = 0;

    for (int32_t at = 0; at < n; at += max_rows) {
        rg_step_load load = { 0 };
        rg_step_load_add(&load, &t->facts, at, n - at < max_rows ? n - at : max_rows, at + max_rows >= n);
        s += rg_step_time_predict(t, &load);
    }
    return s;
}

bool rg_engine_forecast(const rg_engine *e, int32_t batch, int32_t context, rg_forecast *out)
{
    rg_step_time t = rg_loop_step_time(e->loop);
    rg_step_load load = { 0 };

    if (t.roofs.bytes_s <= 0 || batch < 1 || batch > e->runner->max_rows || context < 1 || context >= e->max_seq_len)
        return false;
    for (int32_t i = 0; i < batch; i++)
        rg_step_load_add(&load, &t.facts, context, 1, 1);
    double recurrent_bytes = rg_step_kept_bytes(&t.facts, 0), step_s = rg_step_time_predict(&t, &load);
    *out = (rg_forecast){ .weight_bytes = (double)e->model->weights.bytes,
                          .kv_bytes = batch * (rg_step_kept_bytes(&t.facts, context) - recurrent_bytes),
                          .recurrent_bytes = batch * recurrent_bytes,
                          .activation_bytes = (double)e->runner->activation_bytes,
                          .step_s = step_s,
                          .limit_s = rg_step_limit_s(&t, &load),
                          .tokens_s = batch / step_s,
                          .ttft_s = prompt_s(&t, context, e->runner->max_rows),
                          .bound = bound_of(&t, &load) };
    return true;
}

/* Ids that an encoder has made, or its failure, to the caller. */
static bool hand_over(rg_ids *from, bool ok, int32_t **ids, size_t *n_ids)
{
    if (!ok) {
        rg_ids_fini(from);
        return false;
    }
    *ids = from->id;
    *n_ids = from->n;
    return true;
}

static bool need_tokenizer(const rg_engine *e, rg_error *err)
{
    return e->tokenizer || rg_fail(err, RG_E_UNSUPPORTED, "the checkpoint has no tokenizer: give ids");
}

bool rg_encode(const rg_engine *e, const char *text, size_t n, unsigned flags, int32_t **ids, size_t *n_ids,
               rg_error *err)
{
    rg_ids out = { 0 };

    return need_tokenizer(e, err) &&
           hand_over(&out, rg_tokenizer_encode(e->tokenizer, text, n, flags, &out, err), ids, n_ids);
}

bool rg_encode_pair(const rg_engine *e, const char *const text[2], const size_t n[2], unsigned flags, int32_t **ids,
                    size_t *n_ids, int32_t *second, rg_error *err)
{
    const rg_string both[2] = { { text[0], n[0] }, { text[1], n[1] } };
    rg_ids out = { 0 };

    return need_tokenizer(e, err) &&
           hand_over(&out, rg_tokenizer_encode_pair(e->tokenizer, both, flags, &out, second, err), ids, n_ids);
}

bool rg_encode_to_embed(const rg_engine *e, const char *text, size_t n, const rg_text_options *o, rg_text_ids *out,
                        rg_error *err)
{
    return need_tokenizer(e, err) &&
           rg_embed_text_encode(&e->embed_text, e->tokenizer, (rg_string){ text, n }, o, out, err);
}

bool rg_encode_pair_to_score(const rg_engine *e, const char *const text[2], const size_t n[2], const rg_text_options *o,
                             rg_text_ids *out, rg_error *err)
{
    const rg_string both[2] = { { text[0], n[0] }, { text[1], n[1] } };
    const rg_cut cut = { .most = o->max_ids > 0 ? (size_t)o->max_ids : 0,
                         .keep_end = o->keep_end || e->embed_text.keep_end };
    rg_pair_ids pair = { 0 };

    if (!need_tokenizer(e, err))
        return false;
    if (!rg_tokenizer_encode_pair_cut(e->tokenizer, both, o->flags, &cut, &pair, err)) {
        rg_ids_fini(&pair.ids);
        return false;
    }
    *out = (rg_text_ids){ .ids = pair.ids.id, .n = pair.ids.n, .second = pair.second };
    return true;
}

size_t rg_cut_ids(const rg_engine *e, int32_t *ids, size_t n, const rg_text_options *o)
{
    const rg_cut cut = rg_embed_text_cut(&e->embed_text, o);

    if (e->tokenizer)
        return rg_tokenizer_cut(e->tokenizer, ids, n, &cut);
    if (!cut.most || n <= cut.most)
        return n;
    if (cut.keep_end)
        memmove(ids, ids + (n - cut.most), cut.most * sizeof *ids);
    return cut.most;
}

const char *rg_engine_prompt(const rg_engine *e, int32_t i)
{
    return i >= 0 && i < e->embed_text.n_prompts ? e->embed_text.prompts[i].name : NULL;
}

int32_t rg_pair_second(const rg_engine *e, const int32_t *ids, size_t n)
{
    int32_t sep = e->model->config.sep_id;

    for (size_t i = 0; sep >= 0 && i + 1 < n && i < INT32_MAX; i++)
        if (ids[i] == sep)
            return (int32_t)i + 1;
    return 0;
}

char *rg_decode(const rg_engine *e, const int32_t *ids, size_t n, bool skip_special, size_t *n_text, rg_error *err)
{
    return need_tokenizer(e, err) ? rg_tokenizer_decode(e->tokenizer, ids, n, skip_special, n_text, err) : NULL;
}

const char *rg_id_bytes(const rg_engine *e, int32_t id, bool skip_special, size_t *n)
{
    const rg_spelling *z = e->tokenizer ? rg_tokenizer_spelling(e->tokenizer) : NULL;
    rg_string s = { "", 0 };

    if (z && rg_spelling_shows(z, id))
        s = rg_spelling_bytes(z, id);
    else if (z && !skip_special && id >= 0 && id < rg_tokenizer_size(e->tokenizer) &&
             rg_tokenizer_is_special(e->tokenizer, id))
        s = rg_tokenizer_piece(e->tokenizer, id);
    *n = s.n;
    return s.data;
}

static bool encode_chat(const rg_engine *e, const json_t *conversation, const rg_chat_options *o, rg_text *text,
                        rg_ids *ids, rg_error *err)
{
    /* A template writes special tokens itself; the plain default leaves them to the tokenizer. */
    unsigned flags = rg_chat_is_default(e->chat) ? RG_ENCODE_DEFAULT : RG_ENCODE_NO_SPECIAL;
    bool ok = o->continue_final
                  ? rg_render_continued(e->chat, conversation, rg_local_s(), text, err)
                  : rg_chat_render(e->chat, conversation, !o->no_generation_prompt, rg_local_s(), text, err);

    /* The text that callers get ends at its first NUL. */
    if (ok && text->bytes.n && memchr(text->bytes.data, 0, text->bytes.n))
        return rg_fail(err, RG_E_INPUT, "the conversation has a NUL character");
    return ok && rg_tokenizer_encode_text(e->tokenizer, text, flags, ids, err);
}

bool rg_chat_encode(const rg_engine *e, const rg_json *conversation, const rg_chat_options *options, int32_t **ids,
                    size_t *n_ids, char **text, rg_error *err)
{
    rg_chat_options o = options ? *options : (rg_chat_options){ 0 };
    rg_text rendered;
    rg_ids out = { 0 };
    bool ok;

    if (!need_tokenizer(e, err))
        return false;
    rg_text_init(&rendered, CHAT_BYTES);
    ok = hand_over(&out, encode_chat(e, rg_json_inside(conversation), &o, &rendered, &out, err), ids, n_ids);
    if (ok && text) { /* the buffer ends with a NUL, and is the caller's from now on */
        *text = rendered.bytes.data;
        rendered.bytes.data = NULL;
    }
    rg_text_fini(&rendered);
    return ok;
}

bool rg_chat_has_template(const rg_engine *e)
{
    return e->chat && !rg_chat_is_default(e->chat) && !rg_chat_problem(e->chat);
}

const char *rg_engine_chat_problem(const rg_engine *e)
{
    return e->chat ? rg_chat_problem(e->chat) : NULL;
}

bool rg_engine_show(rg_engine *e, const int32_t *ids, size_t n, rg_error *err)
{
    if (!need_tokenizer(e, err))
        return false;
    if (!e->shown)
        e->shown = rg_shown_new(e->tokenizer, ids, n, err);
    return e->shown;
}

/* How ids are spelled in answers that show marks, or do not; NULL: there is no tokenizer. */
static const rg_spelling *spelling_of(const rg_engine *e, bool show_marks)
{
    if (show_marks && e->shown)
        return &e->shown->spelling;
    return e->tokenizer ? rg_tokenizer_spelling(e->tokenizer) : NULL;
}

/* Where grammars are kept, and the vocabulary as they see it, made when the first one comes. */
static rg_grammar_cache *grammars(rg_engine *e, bool show_marks, rg_error *err)
{
    const rg_spelling *z = spelling_of(e, show_marks);
    const int k = show_marks && e->shown;
    rg_grammar_cache *cache;

    pthread_mutex_lock(&e->grammar_lock);
    if (!e->grammars[k].vocab)
        e->grammars[k].vocab = rg_grammar_vocab_new(z->at[0].data, z->at[0].offset, z->n, err);
    if (e->grammars[k].vocab && !e->grammars[k].cache)
        e->grammars[k].cache = rg_grammar_cache_new(e->grammars[k].vocab, err);
    cache = e->grammars[k].cache;
    pthread_mutex_unlock(&e->grammar_lock);
    return cache;
}

rg_grammar *rg_grammar_new(const rg_engine *engine, const rg_grammar_source *source, rg_error *err)
{
    rg_engine *e = (rg_engine *)(uintptr_t)engine; /* for the sake of what is made once, under its lock */
    rg_grammar_cache *cache = need_tokenizer(e, err) ? grammars(e, source->show_marks, err) : NULL;

    return cache ? rg_grammar_cache_get(cache, source, err) : NULL;
}

void rg_grammar_close(rg_grammar *g)
{
    rg_grammar_unref(g);
}

/* As a request has it: counted from 1; 0: none. */
static int32_t find_adapter(const rg_engine *e, const char *name)
{
    return name ? rg_adapters_find(&e->model->adapters, name) + 1 : 0;
}

/* DRY's sequence breakers, with a reference for the caller; NULL if DRY is off. */
static bool find_breakers(const rg_engine *e, const rg_sampling *p, rg_breakers **out, rg_error *err)
{
    *out = NULL;
    if (!(p->dry_multiplier > 0))
        return true;
    if (p->n_dry_breakers < 0 || p->n_dry_breakers > RG_DRY_BREAKERS_MAX || (p->n_dry_breakers && !p->dry_breakers))
        return rg_fail(err, RG_E_INPUT, "n_dry_breakers is %d: want a list of at most %d texts",
                       (int)p->n_dry_breakers, RG_DRY_BREAKERS_MAX);
    for (int32_t i = 0; i < p->n_dry_breakers; i++)
        if (!p->dry_breakers[i])
            return rg_fail(err, RG_E_INPUT, "sequence breaker %d is NULL", (int)i);
    if (!e->breakers)
        return !p->n_dry_breakers || need_tokenizer(e, err);
    *out = rg_breaker_texts_get(e->breakers, p->dry_breakers, p->n_dry_breakers, err);
    return *out;
}

/* A request of these parameters; adapter: its number, counted from 1, 0: none.  forks: NULL, or the request that it
 * goes on from. */
static rg_request *submit(rg_engine *e, const rg_params *params, int32_t adapter, rg_request *forks, rg_error *err)
{
    const rg_config *c = &e->model->config;
    rg_request_model m = { .vocab_size = c->vocab_size, .max_seq_len = e->max_seq_len, .dim = c->dim,
                           .given_dim = given_dim(e), .spelling = spelling_of(e, params->show_marks),
                           .eos_ids = e->ends.id, .n_eos = e->ends.n, .config = c,
                           .max_draft = e->drafts.max_draft, .sees = c->sees, .whole = c->sees != RG_CAUSAL,
                           .headless = !rg_config_has_logits(c),
                           .embedding = &c->embedding, .dense = &e->model->dense,
                           .n_labels = c->n_labels, .score_pooling = c->score_pooling,
                           .diffusion = rg_diffusion_fills(&c->diffusion) ? &c->diffusion : NULL,
                           .max_rows = e->runner->max_rows, .max_logits = e->runner->max_logits,
                           .adapter = adapter, .forks = forks };
    m.adapter_identity = rg_prefix_files_adapter(&e->prefix_files, m.adapter);
    if (params->embed == RG_POOLING_MODEL && !c->embedding.n_poolings)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s", c->embedding.refusal), NULL;
    if (!find_breakers(e, &params->sampling, &m.breakers, err))
        return NULL;
    rg_request *r = rg_request_new(params, &m, err);

    rg_breakers_unref(m.breakers);
    if (r && r->is_valued && !(r->scoring = rg_scoring_new(params->scorer, params, err))) {
        rg_request_unref(r);
        return NULL;
    }
    if (r && !rg_loop_submit(e->loop, r, err)) {
        rg_scoring_free(r->scoring);
        rg_request_unref(r);
        return NULL;
    }
    return r;
}

rg_request *rg_submit(rg_engine *e, const rg_params *params, rg_error *err)
{
    const int32_t adapter = find_adapter(e, params->adapter);

    if (params->adapter && !adapter)
        return rg_fail(err, RG_E_INPUT, "no adapter is called '%.200s'", params->adapter), NULL;
    return submit(e, params, adapter, NULL, err);
}

rg_request *rg_fork(rg_engine *e, rg_request *from, int32_t sample, int32_t n_output, const rg_params *params,
                    rg_error *err)
{
    rg_params p = *params;
    int32_t *ids;
    rg_request *r;

    if (p.n_given)
        return rg_fail(err, RG_E_INPUT, "a fork has the given rows of the request that it forks, and no others"), NULL;
    ids = rg_request_fork_ids(from, sample, n_output, p.prompt, p.n_prompt, &p.n_prompt, err);
    if (!ids)
        return NULL;
    p.prompt = ids;
    p.given = from->params.given;
    p.n_given = from->params.n_given;
    r = submit(e, &p, from->who.adapter + 1, from, err);
    rg_free(ids);
    return r;
}

bool rg_next(rg_request *r, rg_token *token)
{
    int got;

    while (!(got = rg_request_wait(r, token)))
        (void)rg_scoring_serve(r->scoring, r, true);
    return got > 0;
}

int rg_poll(rg_request *r, rg_token *token)
{
    int got = rg_request_poll(r, token);

    if (!got && r->is_valued && r->work->to_value(r) && rg_scoring_serve(r->scoring, r, false))
        got = rg_request_poll(r, token);
    return got;
}

void rg_cancel(rg_request *r)
{
    atomic_store(&r->cancelled, true);
}

const int32_t *rg_request_trace(const rg_request *r, int32_t sample, int32_t k, int32_t *n)
{
    const rg_fill *f = rg_fill_of(r, sample);

    if (!f || !f->trace || k < 0 || k >= atomic_load(&f->n_traced))
        return NULL;
    *n = f->d.n;
    return f->trace + (size_t)k * (size_t)f->d.n;
}

rg_usage rg_request_usage(const rg_request *r)
{
    return rg_request_used(r);
}

double rg_request_answer_score(const rg_request *r, int32_t sample)
{
    const rg_beams *b = rg_beams_of(r);

    if (sample < 0 || sample >= r->params.n_samples)
        return NAN;
    if (rg_search_of(r))
        return rg_search_score(r, sample);
    if (!b)
        return rg_answer_score(r, sample);
    if (atomic_load(&r->samples[sample].finish) == RG_RUNNING || sample >= b->n_ordered)
        return NAN;
    return b->finished[b->order[sample]].score;
}

const float *rg_request_embedding(const rg_request *r, int32_t *n)
{
    return rg_embedding_result(r, n);
}

const float *rg_request_head_scores(const rg_request *r, int32_t *n)
{
    return rg_head_result(r, n);
}

bool rg_request_prompt_logprob(const rg_request *r, int32_t position, rg_prompt_logprob *out)
{
    return rg_prompt_logprobs_get(r, position, out);
}

const float *rg_request_prompt_logits(const rg_request *r, int32_t position, int32_t *n)
{
    return rg_prompt_logits_get(r, position, n);
}

void rg_request_close(rg_request *r)
{
    if (!r)
        return;
    rg_cancel(r);
    atomic_store(&r->is_closed, true);
    rg_loop_return(r->loop, r);
    rg_scoring_free(r->scoring);
    rg_request_unref(r);
}
