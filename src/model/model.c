/* model.c -- opening a model, and the text of one step: embedding, layers, head. */
#include "model/model.h"

#include <string.h>

#include "base/mem.h"
#include "model/notes.h"
#include "model/pack_cache.h"
#include "model/rank_calls.h"
#include "model/share.h"
#include "model/sparsity.h"
#include "ops/count/count.h"

/* f32 weights keep f32 K/V, and so does what keeps none of it beyond a step; everything else bf16. */
static bool choose_kv_type(rg_model *m, const char *name, rg_error *err)
{
    const rg_weight *w = m->outer.w[W_EMBED_TOKENS];
    bool embeds = m->config.sees == RG_SEES_ALL && !rg_diffusion_fills(&m->config.diffusion); /* nothing is kept */

    m->kv_type = w->type == RG_F32 || embeds ? RG_F32 : RG_BF16;
    if (!name)
        return true;
    if (!rg_kv_type_by_name(name, &m->kv_type))
        return rg_fail(err, RG_E_USAGE, "K/V type '%.20s' is not one of " RG_KV_NAMES, name);
    if (m->kv_type == RG_Q4_1 && m->config.diffusion.canvas.length)
        return rg_fail(err, RG_E_UNSUPPORTED, "K/V type q4 is not for a model that refines a canvas, whose rows see "
                       "blocks of it that are not whole");
    /* A row reads blocks other than its own in 4 bits once they are whole, so no row may see beyond its block. */
    if (m->kv_type == RG_Q4_1 && (m->config.sees == RG_SEES_ALL || RG_BLOCK % m->config.sees))
        return rg_fail(err, RG_E_UNSUPPORTED,
                       "K/V type q4 is not for a model whose rows see rows of blocks after theirs");
    return true;
}

/* GGUF's tensor of what a variant of the first rope divides its frequencies by; NULL: none. */
static const float *tensor_factors(const rg_model *m, const rg_rope_config *r, int variant)
{
    const rg_weight *w = m->outer.w[r->type == RG_ROPE_LONG ? W_ROPE_SHORT + variant : W_ROPE_FREQS];

    return w && r == m->config.ropes ? w->vec : NULL;
}

static bool make_ropes(rg_model *m, rg_error *err)
{
    const rg_config *c = &m->config;
    size_t n = 0;

    for (int i = 0; i < c->n_ropes; i++)
        n += (size_t)rg_rope_variants(&c->ropes[i]) * (size_t)c->ropes[i].dim / 2;
    m->inv_freq = rg_array(n, sizeof *m->inv_freq);
    if (!m->inv_freq)
        return rg_fail_memory(err, n * sizeof *m->inv_freq);
    float *at = m->inv_freq;
    for (int i = 0; i < c->n_ropes; i++) {
        const rg_rope_config *r = &c->ropes[i];

        for (int v = 0; v < rg_rope_variants(r); v++, at += r->dim / 2) {
            m->ropes[i][v] = (rg_rope){ .n_variants = rg_rope_variants(r),
                                        .n_pairs = r->dim / 2,
                                        .inv_freq = at,
                                        .interleaved = r->interleaved,
                                        .original = r->type == RG_ROPE_DYNAMIC ? (int)r->original_max_seq_len : 0,
                                        .theta = r->theta,
                                        .stretch = r->factor };
            rg_rope_frequencies(r, v, tensor_factors(m, r, v), at, &m->ropes[i][v].factor);
        }
    }
    return true;
}

/* Ask every layer what it keeps, and form the groups. */
static bool make_state(rg_model *m, const rg_model_options *o, rg_error *err)
{
    rg_config *c = &m->config;

    m->keep = rg_array((size_t)c->n_layers, sizeof *m->keep);
    if (!m->keep)
        return rg_fail_memory(err, (size_t)c->n_layers * sizeof *m->keep);
    for (int i = 0; i < c->n_layers; i++)
        if (m->left_out && m->left_out[i])
            m->keep[i] = (rg_keep){ .shared_with = -1 };
        else
            rg_layer_kind_of(c, i)->keep(c, i, &m->keep[i]);
    if (!rg_state_declare(&m->state, m->keep, c->n_layers, m->kv_type, o->max_draft, err))
        return false;
    m->state.sees = c->sees;
    return rg_share_state(m, err);
}

static bool make_layers(rg_model *m, rg_error *err)
{
    const rg_config *c = &m->config;

    m->layers = rg_array((size_t)c->n_layers, sizeof *m->layers);
    if (!m->layers)
        return rg_fail_memory(err, (size_t)c->n_layers * sizeof *m->layers);
    for (int i = 0; i < c->n_layers; i++) {
        int rope = c->layer[i].rope;

        m->layers[i] = (rg_layer){ .c = c,
                                   .index = i,
                                   .kv = m->keep[i].kv.group >= 0 ? &m->keep[i].kv : NULL,
                                   .sight = &m->keep[i].sight,
                                   .buffer = m->keep[i].buffer,
                                   .rope = rope >= 0 && rope < c->n_ropes ? m->ropes[rope] : NULL,
                                   .second_rope = rope >= 0 && rope + 1 < c->n_ropes ? m->ropes[rope + 1] : NULL };
    }
    for (int i = 0; i < m->weights.n; i++)
        if (m->weights.layer[i] >= 0)
            m->layers[m->weights.layer[i]].w[m->weights.spec[i]->role] = &m->weights.all[i];
    return true;
}

/* A network that drafts has its target's embedding, head and final norm where it lacks its own. */
static void borrow(rg_model *m, const rg_model *target)
{
    static const rg_role roles[] = { W_EMBED_TOKENS, W_LM_HEAD_BIAS, W_LM_HEAD, W_FINAL_NORM };
    const bool own_head = m->outer.w[W_LM_HEAD];

    for (size_t i = 0; i < RG_LEN(roles); i++)
        if (!m->outer.w[roles[i]] && !(roles[i] == W_LM_HEAD_BIAS && own_head))
            m->outer.w[roles[i]] = target->outer.w[roles[i]];
}

/* Its ids are named by what must be added to them for the target's. */
static bool read_target_ids(rg_model *m, const rg_checkpoint *ckpt, rg_error *err)
{
    const char *name = m->config.arch->target_ids;
    const rg_tensor *t = name ? rg_checkpoint_find(ckpt, name) : NULL;
    const int n = m->config.vocab_size, n_target = m->config.target->vocab_size;
    int64_t *offset;
    bool ok = true;

    if (!t)
        return true;
    if (t->type != RG_I64 || rg_tensor_count(t) != n)
        return rg_fail(err, RG_E_INPUT, "%s: tensor '%s' is not of %d integers of 64 bits", rg_checkpoint_path(ckpt),
                       name, n);
    offset = rg_array((size_t)n, sizeof *offset);
    m->target_ids = rg_array((size_t)n, sizeof *m->target_ids);
    if (!offset || !m->target_ids)
        ok = rg_fail_memory(err, (size_t)n * sizeof *offset);
    ok = ok && rg_tensor_read(ckpt, t, 0, offset, (size_t)n * sizeof *offset, err);
    for (int i = 0; ok && i < n; i++) {
        if (offset[i] < -(int64_t)i || offset[i] >= n_target - i)
            ok = rg_fail(err, RG_E_INPUT, "%s: tensor '%s' makes id %d of %lld, beyond the %d ids of the model",
                         rg_checkpoint_path(ckpt), name, i, (long long)(offset[i] + i), n_target);
        else
            m->target_ids[i] = (int32_t)(i + offset[i]);
    }
    rg_free(offset);
    return ok;
}

/* Build what follows from the config once the weights are declared or bound. */
bool rg_model_complete(rg_model *m, const rg_model_options *o, rg_error *err)
{
    rg_layer *outer = &m->outer;

    m->config.headless = m->weights.headless;
    *outer = (rg_layer){ .c = &m->config, .index = -1 };
    for (int i = 0; i < m->weights.n; i++)
        if (m->weights.layer[i] < 0)
            outer->w[m->weights.spec[i]->role] = &m->weights.all[i];
    if (o->target)
        borrow(m, o->target);
    if (!outer->w[W_LM_HEAD] && !m->config.headless)
        outer->w[W_LM_HEAD] = outer->w[W_EMBED_TOKENS];
    return choose_kv_type(m, o->kv_type, err) && make_ropes(m, err) && make_state(m, o, err) && make_layers(m, err);
}

/* ---- adapters ---------------------------------------------------------------------------------------------------- */

/* A reader that notes whose deltas are added. */
typedef struct delta_finder {
    rg_reader reader; /* first */
    const rg_weight_set *weights;
    bool *added; /* [weights] */
} delta_finder;

static void find_deltas(const rg_reader *self, rg_fwd *f, const rg_op *op)
{
    const delta_finder *d = (const delta_finder *)self;

    (void)f;
    for (int i = 0; op->kind == RG_OP_ADAPT && i < 3 && op->w[i]; i++)
        d->added[op->w[i] - d->weights->all] = true;
}

/* The model's text must add every delta: by a step that computes nothing. */
static bool check_deltas(const rg_model *m, rg_error *err)
{
    const int32_t zero = 0;
    const rg_span span = { .n_rows = 1, .adapter = 0 };
    const rg_batch batch = {
        .n_rows = 1, .n_spans = 1, .spans = &span, .logit_rows = &zero, .n_logits = rg_config_has_logits(&m->config)
    };
    delta_finder d = { .reader = { .run = find_deltas },
                       .weights = &m->weights,
                       .added = rg_array((size_t)m->weights.n, sizeof *d.added) };
    rg_fwd *f = rg_alloc(sizeof *f);
    rg_counter counter;
    bool ok = (f && d.added) || rg_fail_memory(err, sizeof *f);

    if (ok) {
        rg_counter_init(&counter, NULL, 0);
        rg_count_fwd(f, &counter, &batch);
        f->reader = &d.reader;
        rg_model_forward(m, f);
    }
    for (int i = 0; ok && i < m->weights.n; i++)
        if (m->weights.all[i].deltas && !d.added[i])
            ok = rg_fail(err, RG_E_UNSUPPORTED, "an adapter of '%s' is not supported: no plain product has this matrix",
                         m->weights.all[i].name);
    rg_free(f);
    rg_free(d.added);
    return ok;
}

static bool add_adapters(rg_model *m, const rg_model_options *o, rg_error *err)
{
    return !o->n_adapters ||
           (rg_adapters_open(&m->adapters, &m->weights, &m->config, o->adapters, o->n_adapters, err) &&
            check_deltas(m, err));
}

static bool bind(rg_model *m, const rg_checkpoint *ckpt, const rg_model_options *o, rg_error *err)
{
    const rg_checkpoint *from = o->random_weights ? NULL : ckpt;

    if (o->backend)
        m->weights.backend = o->backend;
    m->weights.round16 = o->round16;
    if (from && !rg_checkpoint_n_tensors(ckpt))
        return rg_fail(err, RG_E_INPUT, "%s: there are no weights", rg_checkpoint_path(ckpt));
    if (o->layers_apart)
        return rg_weights_bind_layer(&m->weights, -1, &m->config, ckpt, err);
    if (from && (o->pack_cache || o->expert_bytes)
            ? !rg_pack_cache_bind(m, ckpt, o, err)
            : !rg_weights_bind(&m->weights, &m->config, from, o->n_threads > 0 ? o->n_threads : 1, o->progress,
                               o->progress_arg, err))
        return false;
    if (!from)
        return true;
    bool *used = rg_weights_used(&m->weights, &m->config, ckpt, &m->n_unused, err), ok = used;
    rg_free(used);
    return ok;
}

/* Thresholds, and which matrices are packed for skipping: the model's text says, before its weights are read. */
static bool mark_sparse(rg_model *m, const rg_checkpoint *ckpt, const rg_model_options *o, rg_error *err)
{
    rg_model_options look = { .declare_only = true, .declared_type = o->declared_type };

    if (!o->sparsity)
        return true;
    if (o->pack_cache || o->expert_bytes)
        return rg_fail(err, RG_E_UNSUPPORTED, "skipping columns does not go with packed weights in a file");
    rg_model *declared = o->random_weights ? rg_model_declare(&m->config, &look, err) : rg_model_open(ckpt, &look, err);
    bool ok = declared && rg_sparsity_mark(o->sparsity, &m->weights, declared, err);
    rg_model_close(declared);
    return ok;
}

static bool take_notes(rg_model *m, const rg_checkpoint *ckpt, const rg_model_options *o, rg_error *err)
{
    m->notes = o->target ? NULL : rg_notes(&m->config, ckpt, err);
    return o->target || m->notes;
}

/* Everything of a model but its memory. */
static bool open_all(rg_model *m, const rg_checkpoint *ckpt, const rg_model_options *o, rg_error *err)
{
    const rg_checkpoint *declared = o->random_weights ? NULL : ckpt;

    return (o->target ? rg_config_read_draft(&m->config, ckpt, &o->target->config, o->mtp, err) &&
                            read_target_ids(m, ckpt, err)
                      : rg_config_read(&m->config, ckpt, err)) &&
           rg_weights_declare(&m->weights, &m->config, declared, o->declared_type, err) &&
           mark_sparse(m, ckpt, o, err) && rg_share_weights(m, ckpt, o, err) &&
           (o->declare_only || bind(m, ckpt, o, err)) && rg_model_complete(m, o, err) &&
           (o->declare_only || o->layers_apart || rg_dense_open(&m->dense, &m->config.embedding, ckpt, err)) &&
           add_adapters(m, o, err) && take_notes(m, ckpt, o, err) && rg_share_note(m, err);
}

rg_model *rg_model_open(const rg_checkpoint *ckpt, const rg_model_options *o, rg_error *err)
{
    rg_model *m = rg_zalloc(sizeof *m);
    rg_model_options mine = *o;

    if (!m)
        return rg_fail_memory(err, sizeof *m), NULL;
    if (o->ranks)
        mine.link = rg_ranks_link(o->ranks);
    if (o->ranks && !rg_ranks_open(o->ranks, m, o, err)) {
        rg_free(m);
        return NULL;
    }
    bool ok = open_all(m, ckpt, &mine, err);
    if (m->ranks) /* they answer in any case */
        ok = rg_ranks_answer(m->ranks, ok ? err : NULL) && ok;
    if (ok)
        return m;
    rg_model_close(m);
    return NULL;
}

rg_model *rg_model_declare(const rg_config *c, const rg_model_options *o, rg_error *err)
{
    rg_model *m = rg_zalloc(sizeof *m);

    if (!m)
        return rg_fail_memory(err, sizeof *m), NULL;
    m->config = *c;
    if (rg_weights_declare(&m->weights, &m->config, NULL, o->declared_type, err) && rg_model_complete(m, o, err))
        return m;
    rg_model_close(m);
    return NULL;
}

rg_model *rg_model_borrow(const rg_model *of, rg_error *err)
{
    rg_model *m = rg_zalloc(sizeof *m);

    if (!m)
        return rg_fail_memory(err, sizeof *m), NULL;
    m->of = of;
    m->config = of->config;
    if (rg_weights_borrow(&m->weights, &of->weights, err))
        return m;
    rg_model_close(m);
    return NULL;
}

void rg_model_close(rg_model *m)
{
    if (!m)
        return;
    if (m->ranks)
        rg_ranks_close(m->ranks, m);
    rg_adapters_close(&m->adapters);
    rg_dense_close(&m->dense);
    rg_weights_fini(&m->weights);
    rg_free(m->layers);
    rg_free(m->inv_freq);
    rg_free(m->state_cut);
    rg_free(m->keep);
    rg_free(m->keep_here);
    rg_free(m->target_ids);
    rg_free(m->notes);
    rg_free(m->left_out);
    rg_free(m);
}

rg_expert_reads rg_model_expert_reads(const rg_model *m)
{
    rg_paged_stats s = { 0 };

    if (m->weights.paged)
        s = m->weights.backend->paging->count(m->weights.paged);
    return (rg_expert_reads){ s.n_asked, s.n_read, s.n_failed, s.n_unused, s.read_bytes, s.bytes };
}

/* ---- the text of a step ------------------------------------------------------------------------------------------ */

static void norm(const rg_model *m, rg_fwd *f, rg_act *y, const rg_act *x)
{
    if (m->config.arch->norm)
        m->config.arch->norm(f, &m->outer, y, x);
    else if (m->config.layer_norm)
        rg_layernorm(f, y, x, m->outer.w[W_FINAL_NORM], m->outer.w[W_FINAL_NORM_BIAS], m->config.norm_eps);
    else
        rg_rmsnorm(f, y, x, m->outer.w[W_FINAL_NORM], m->config.norm_eps);
}

static void head(const rg_model *m, rg_fwd *f, rg_act *logits, const rg_act *h)
{
    if (m->config.arch->head) {
        m->config.arch->head(f, &m->outer, logits, h);
        return;
    }
    rg_linear_head(f, logits, h, m->outer.w[W_LM_HEAD], m->outer.w[W_LM_HEAD_BIAS],
                   (rg_head_shape){ m->config.logit_scale, m->config.logit_softcap });
    if (m->config.logit_scale != 1.0f)
        rg_scale_by(f, logits, m->config.logit_scale);
    if (m->config.logit_softcap > 0)
        rg_softcap(f, logits, m->config.logit_softcap);
}

rg_act *rg_model_embed(const rg_model *m, rg_fwd *f)
{
    const rg_arch *arch = m->config.arch;
    rg_act *x = rg_act_new(f, "hidden", rg_model_width(m));

    f->layer = -1;
    if (arch->embed)
        arch->embed(f, &m->outer, x);
    else
        rg_embed(f, x, m->outer.w[W_EMBED_TOKENS], (float)m->config.embed_scale);
    return x;
}

int rg_model_width(const rg_model *m)
{
    return m->config.arch->width ? m->config.arch->width(&m->config) : m->config.dim;
}

void rg_model_layer(const rg_model *m, rg_fwd *f, int i, rg_act *x)
{
    const rg_arch *arch = m->config.arch;
    const int mark = rg_act_mark(f);

    f->layer = i;
    rg_note(f, arch->shown ? arch->shown(f, &m->outer, x) : x);
    rg_layer_kind_of(&m->config, i)->block(f, &m->layers[i], x);
    rg_act_release(f, mark);
    f->layer = -1;
}

/* What the head makes of rows that were normed. */
static rg_act *logits_of(const rg_model *m, rg_fwd *f, const rg_act *h)
{
    rg_act *logits = rg_act_rows(f, "logits", h->rows, m->config.vocab_size);

    rg_note(f, h);
    head(m, f, logits, h);
    return logits;
}

rg_act *rg_model_logits(const rg_model *m, rg_fwd *f, rg_act *rows)
{
    rg_act *h = rows->cols == m->config.dim ? rows : rg_act_rows(f, "head_normed", rows->rows, m->config.dim);

    norm(m, f, h, rows);
    return logits_of(m, f, h);
}

rg_outputs rg_model_forward(const rg_model *m, rg_fwd *f)
{
    rg_shard shard;

    if (!m->link)
        return rg_model_text(m, f);
    rg_shard_begin(&shard, m->link, f);
    shard.state_here = rg_share_state_here;
    shard.state_arg = m;
    rg_outputs out = rg_model_text(m, f);
    rg_act *results[] = { out.logits, out.hidden, out.scores, out.soft };
    for (size_t i = 0; i < RG_LEN(results); i++)
        if (results[i])
            rg_shard_to_zero(&shard, f, results[i]);
    rg_shard_end(&shard, f);
    return out;
}

rg_outputs rg_model_text(const rg_model *m, rg_fwd *f)
{
    const rg_config *c = &m->config;
    const rg_batch *b = f->batch;
    rg_outputs out = { 0 };
    rg_act *x = rg_model_embed(m, f);

    for (int i = 0; i < c->n_layers; i++)
        if (!m->left_out || !m->left_out[i])
            rg_model_layer(m, f, i, x);
    if (b->n_hidden || b->n_scores) { /* rows are normed independently, so norm all of them, in place if possible */
        out.hidden = x->cols == c->dim ? x : rg_act_new(f, "normed", c->dim);
        norm(m, f, out.hidden, x);
        x = out.hidden;
        if (!b->n_logits)
            rg_note(f, x);
    }
    if (b->n_scores) {
        rg_act *pooled = rg_act_rows(f, "pooled", b->n_scores, c->dim);

        out.scores = rg_act_rows(f, "scores", b->n_scores, c->n_labels);
        rg_mean_rows(f, pooled, x);
        c->arch->score(f, &m->outer, out.scores, pooled);
    }
    if (!b->n_logits)
        return out;
    rg_act *rows = rg_act_rows(f, "head_in", b->n_logits, x->cols);
    rg_gather(f, rows, x);
    out.logits = out.hidden ? logits_of(m, f, rows) : rg_model_logits(m, f, rows);
    if (b->temperatures && c->arch->soften)
        out.soft = c->arch->soften(f, &m->outer, out.logits);
    return out;
}
