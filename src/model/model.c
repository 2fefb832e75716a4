/* model.c -- opening a model, and the text of one step: embedding, layers, head. */
#include "model/model.h"

#include <string.h>

#include "base/mem.h"

/* f32 weights keep f32 K/V; everything else bf16. */
static bool choose_kv_type(rg_model *m, const char *name, rg_error *err)
{
    const rg_weight *w = m->embed;

    m->kv_type = w->type == RG_F32 ? RG_F32 : RG_BF16;
    if (!name)
        return true;
    if (!rg_kv_type_by_name(name, &m->kv_type))
        return rg_fail(err, RG_E_USAGE, "K/V type '%.20s' is not one of f32, f16, bf16, q8", name);
    return true;
}

static bool make_ropes(rg_model *m, rg_error *err)
{
    rg_config *c = &m->config;
    const rg_weight *factors = rg_weights_get(&m->weights, W_ROPE_FREQS, -1);
    int n = c->rope.dim / 2, n_local = c->rope_local.dim / 2;

    m->inv_freq = rg_array((size_t)(n + n_local), sizeof *m->inv_freq); /* fits: each is half an int */
    if (!m->inv_freq)
        return rg_fail_memory(err, (size_t)(n + n_local) * sizeof *m->inv_freq);
    m->rope = (rg_rope){ .n_pairs = n, .inv_freq = m->inv_freq, .interleaved = c->rope.interleaved };
    m->rope_local =
        (rg_rope){ .n_pairs = n_local, .inv_freq = m->inv_freq + n, .interleaved = c->rope_local.interleaved };
    rg_rope_frequencies(&c->rope, factors ? factors->vec : NULL, m->inv_freq, &m->rope.factor);
    rg_rope_frequencies(&c->rope_local, factors ? factors->vec : NULL, m->inv_freq + n, &m->rope_local.factor);
    return true;
}

/* What every layer keeps, and so the groups. */
static bool make_state(rg_model *m, rg_error *err)
{
    rg_config *c = &m->config;
    size_t n = (size_t)c->n_layers;
    rg_keep *keep = rg_array(n, sizeof *keep);
    bool ok = false;

    m->kv = rg_array(n, sizeof *m->kv);
    m->recurrent = rg_array(n, sizeof *m->recurrent);
    if (!keep || !m->kv || !m->recurrent) {
        rg_fail_memory(err, n * (sizeof *keep + sizeof *m->kv + sizeof *m->recurrent));
    } else {
        for (int i = 0; i < c->n_layers; i++)
            c->arch->keep(c, i, &keep[i]);
        ok = rg_state_declare(&m->state, keep, c->n_layers, m->kv_type, m->kv, m->recurrent, err);
    }
    rg_free(keep);
    return ok;
}

static bool make_layers(rg_model *m, rg_error *err)
{
    const rg_config *c = &m->config;

    m->layers = rg_array((size_t)c->n_layers, sizeof *m->layers);
    if (!m->layers)
        return rg_fail_memory(err, (size_t)c->n_layers * sizeof *m->layers);
    for (int i = 0; i < c->n_layers; i++) {
        rg_layer *l = &m->layers[i];
        l->c = c;
        l->index = i;
        l->kv = m->kv[i].group >= 0 ? &m->kv[i] : NULL;
        l->rec = m->recurrent[i].group >= 0 ? &m->recurrent[i] : NULL;
        l->rope = l->kv && l->kv->window ? &m->rope_local : &m->rope;
    }
    for (int i = 0; i < m->weights.n; i++)
        if (m->weights.layer[i] >= 0)
            m->layers[m->weights.layer[i]].w[m->weights.spec[i]->role] = &m->weights.all[i];
    return true;
}

/* What follows from the config once the weights are declared or bound. */
static bool complete(rg_model *m, const rg_model_options *o, rg_error *err)
{
    m->embed = rg_weights_get(&m->weights, W_EMBED_TOKENS, -1);
    m->final_norm = rg_weights_get(&m->weights, W_FINAL_NORM, -1);
    m->lm_head = rg_weights_get(&m->weights, W_LM_HEAD, -1);
    if (!m->lm_head)
        m->lm_head = m->embed;
    return choose_kv_type(m, o->kv_type, err) && make_ropes(m, err) && make_state(m, err) && make_layers(m, err);
}

static bool bind(rg_model *m, const rg_checkpoint *ckpt, const rg_model_options *o, rg_error *err)
{
    if (!rg_checkpoint_n_tensors(ckpt))
        return rg_fail(err, RG_E_INPUT, "%s: there are no weights", rg_checkpoint_path(ckpt));
    if (!rg_weights_bind(&m->weights, &m->config, ckpt, o->progress, o->progress_arg, err))
        return false;
    bool *used = rg_weights_used(&m->weights, &m->config, ckpt, &m->n_unused, err), ok = used;
    rg_free(used);
    return ok;
}

rg_model *rg_model_open(const rg_checkpoint *ckpt, const rg_model_options *o, rg_error *err)
{
    rg_model *m = rg_zalloc(sizeof *m);

    if (!m)
        return rg_fail_memory(err, sizeof *m), NULL;
    if (rg_config_read(&m->config, ckpt, err) &&
        rg_weights_declare(&m->weights, &m->config, ckpt, o->declared_type, err) &&
        (o->declare_only || bind(m, ckpt, o, err)) && complete(m, o, err))
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
    if (rg_weights_declare(&m->weights, &m->config, NULL, o->declared_type, err) && complete(m, o, err))
        return m;
    rg_model_close(m);
    return NULL;
}

void rg_model_close(rg_model *m)
{
    if (!m)
        return;
    rg_weights_fini(&m->weights);
    rg_free(m->layers);
    rg_free(m->inv_freq);
    rg_free(m->kv);
    rg_free(m->recurrent);
    rg_free(m);
}

rg_outputs rg_model_forward(const rg_model *m, rg_fwd *f)
{
    const rg_config *c = &m->config;
    const rg_batch *b = f->batch;
    rg_outputs out = { 0 };
    rg_act *x = rg_act_new(f, "hidden", c->dim);

    f->layer = -1;
    rg_embed(f, x, m->embed, (float)c->embed_scale);
    for (int i = 0; i < c->n_layers; i++) {
        int mark = rg_act_mark(f);
        f->layer = i;
        rg_note(f, x);
        c->arch->block(f, &m->layers[i], x);
        rg_act_release(f, mark);
    }
    f->layer = -1;
    if (b->n_hidden) { /* a row's norm is its own: all of them, where they lie */
        rg_rmsnorm(f, x, x, m->final_norm, c->norm_eps);
        out.hidden = x;
    }
    if (!b->n_logits)
        return out;
    rg_act *h = rg_act_rows(f, "head_in", b->n_logits, c->dim);
    out.logits = rg_act_rows(f, "logits", b->n_logits, c->vocab_size);
    rg_gather(f, h, x);
    if (!b->n_hidden)
        rg_rmsnorm(f, h, h, m->final_norm, c->norm_eps);
    rg_note(f, h);
    rg_linear(f, out.logits, h, m->lm_head, NULL);
    if (c->logit_softcap > 0)
        rg_softcap(f, out.logits, c->logit_softcap);
    return out;
}
