/* dsa.c -- see dsa.h. */
#include "model/arch/dsa.h"

#include <stdio.h>

enum { W_INDEX_Q = W_MLA_END, W_INDEX_K, W_INDEX_K_NORM, W_INDEX_K_NORM_BIAS, W_INDEX_WEIGHTS };

/* The indexer's norm has this eps, whatever the config says. */
static const float index_eps = 1e-6f;

static const char chosen_name[] = "chosen";

static const dsa_settings *dsa_of(const rg_config *c)
{
    return RG_OWN(c, dsa_settings);
}

static SIZE(INDEX_Q_DIM, (int64_t)dsa_of(c)->n_heads * dsa_of(c)->head_dim)
static SIZE(INDEX_DIM, dsa_of(c)->head_dim)
static SIZE(INDEX_HEADS, dsa_of(c)->n_heads)

/* ---- the config -------------------------------------------------------------------------------------------------- */

static bool finish_indexer(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    const dsa_settings *d = dsa_of(c);

    if (d->n_heads < 1 || d->head_dim < d->mla.rope_dim || d->n_chosen < 1 || d->n_chosen > 1 << 20 ||
        (int64_t)d->n_heads * d->head_dim > INT32_MAX / 4 || !d->mla.q_lora_rank)
        return rg_fail(err, RG_E_INPUT,
                       "%s: an indexer of %d heads of %d (rope %d) that chooses %d keys, from queries of rank %d: "
                       "out of range", rg_checkpoint_path(ckpt), d->n_heads, d->head_dim, d->mla.rope_dim,
                       d->n_chosen, d->mla.q_lora_rank);
    if (!finish_mla_rope(c, ckpt, d->interleaved, err))
        return false;
    c->n_ropes = 2; /* the indexer's is the same, but perhaps with other pairs */
    c->ropes[1] = c->ropes[0];
    c->ropes[1].interleaved = d->index_interleaved;
    return true;
}

/* Dense layers first, or as a list says; every layer is sparse in its attention. */
static bool finish_kinds(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const char *const types[] = { "indexed_attention", "deepseek_sparse_attention", NULL };
    static const char *const mlps[] = { "dense", "sparse", NULL };
    char key[48];
    int which;

    for (int i = 0; i < c->n_layers; i++) {
        snprintf(key, sizeof key, "layer_types.%d", i);
        if (!require_choice(ckpt, key, types, err))
            return false;
        snprintf(key, sizeof key, "mlp_layer_types.%d", i);
        if (!rg_config_choice(ckpt, key, mlps, &which, err))
            return false;
        c->layer[i].kind = which == 0 || (which < 0 && i < c->n_dense_layers) ? DSA_DENSE : DSA_EXPERTS;
    }
    return true;
}

bool finish_dsa(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const char *const methods[] = { "noaux_tc", NULL }, *const scores[] = { "sigmoid", NULL };

    c->o_bias = c->attn_bias;
    return finish_mla(c, ckpt, err) && finish_indexer(c, ckpt, err) && finish_noaux(c, ckpt, err) &&
           require_choice(ckpt, "topk_method", methods, err) && require_choice(ckpt, "scoring_func", scores, err) &&
           require_number(ckpt, "moe_layer_freq", 1, err) && require_silu(ckpt, err) &&
           require_false(ckpt, "mlp_bias", err) && finish_kinds(c, ckpt, err);
}

/* ---- weights and state ------------------------------------------------------------------------------------------- */

const rg_weight_spec dsa_weights[] = { WEIGHTS_DECODER, { 0 } };

#define WEIGHTS_INDEXER                                                                                                \
    { W_INDEX_Q, "self_attn.indexer.wq_b", NULL, { INDEX_Q_DIM, Q_RANK } },                                            \
    { W_INDEX_K, "self_attn.indexer.wk", NULL, { INDEX_DIM, DIM } },                                                   \
    { W_INDEX_K_NORM, "self_attn.indexer.k_norm", NULL, { INDEX_DIM } },                                               \
    { W_INDEX_K_NORM_BIAS, "self_attn.indexer.k_norm.bias", NULL, { INDEX_DIM } },                                     \
    { W_INDEX_WEIGHTS, "self_attn.indexer.weights_proj", NULL, { INDEX_HEADS, DIM } }

#define WEIGHTS_EXPERT_HALF                                                                                            \
    WEIGHTS_EXPERTS("mlp", "gate_proj", "up_proj", "down_proj"),                                                       \
    WEIGHT_CHOICE_BIAS("mlp.gate.e_score_correction_bias"),                                                            \
    WEIGHTS_SHARED("mlp.shared_experts")

const rg_weight_spec dsa_dense[] = { WEIGHTS_PRE_NORMS, WEIGHTS_MLA, WEIGHTS_INDEXER, WEIGHTS_MLP, { 0 } };
const rg_weight_spec dsa_experts[] = { WEIGHTS_PRE_NORMS, WEIGHTS_MLA, WEIGHTS_INDEXER, WEIGHTS_EXPERT_HALF, { 0 } };
const rg_weight_spec dsa_dense_takes[] = { WEIGHTS_PRE_NORMS, WEIGHTS_MLA, WEIGHTS_MLP, { 0 } };
const rg_weight_spec dsa_experts_take[] = { WEIGHTS_PRE_NORMS, WEIGHTS_MLA, WEIGHTS_EXPERT_HALF, { 0 } };

void keep_indexed(const rg_config *c, int layer, rg_keep *out)
{
    keep_latent(c, layer, out);
    out->buffer[out->n_buffers++] = rg_rows_of("index_keys", dsa_of(c)->head_dim);
}

/* ---- the block --------------------------------------------------------------------------------------------------- */

void embed_dsa(rg_fwd *f, const rg_layer *l, rg_act *x)
{
    rg_act_new(f, chosen_name, dsa_of(l->c)->n_chosen);
    rg_embed(f, x, l->w[W_EMBED_TOKENS], (float)l->c->embed_scale);
}

/* The factors on scores, by heads and by their size, are the same for all keys and so left out. */
rg_act *chosen_keys(rg_fwd *f, const rg_layer *l, const rg_act *h, const rg_act *q_a)
{
    rg_act *chosen = rg_act_find(f, chosen_name);

    if (!l->w[W_INDEX_Q])
        return chosen;
    const dsa_settings *d = dsa_of(l->c);
    rg_act *q = rg_act_new(f, "index_q", d->n_heads * d->head_dim), *k = rg_act_new(f, "index_k", d->head_dim);
    rg_act *weights = rg_act_new(f, "index_weights", d->n_heads);

    rg_linear(f, k, h, l->w[W_INDEX_K], NULL);
    rg_layernorm(f, k, k, l->w[W_INDEX_K_NORM], l->w[W_INDEX_K_NORM_BIAS], index_eps);
    rg_rotate(f, k, l->second_rope, d->head_dim, 0);
    rg_rows_store(f, &l->buffer[0], k);
    rg_linear(f, q, q_a, l->w[W_INDEX_Q], NULL);
    rg_rotate(f, q, l->second_rope, d->head_dim, 0);
    rg_linear(f, weights, h, l->w[W_INDEX_WEIGHTS], NULL);
    rg_choose_keys(f, chosen, q, weights, &l->buffer[0]);
    return chosen;
}
