/* llama_mla.c -- a Llama whose K and V became latents (TransMLA, Meng et al. 2025), as `ridge shrink mla` writes it.
 *
 * MLA as DeepSeek's, but for three things: the latent has no norm, since it was made of K and V that had none; what is
 * rotated is several parts of a head's size (qk_rope_heads), each by the table that the heads had; and scores are
 * scaled as before, by the size of a head, which is what of a key is not rotated. */
#include "model/arch/mla.h"

static void block(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    rg_act *a = latent_attention(f, l, h); /* over latents of kv_lora_rank values: [rows, n_heads * v_dim] */
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]); /* x += o_proj a */

    h = normed(f, l, x, W_FFN_NORM);
    rg_linear_add(f, x, mlp(f, l, h), l->w[W_DOWN_PROJ], l->w[W_DOWN_BIAS]);
}

static const rg_key keys[] = {
    KEYS_MLA(2048, RG_REQUIRED, 0, RG_REQUIRED, RG_REQUIRED),
    { RG_OWN_AT(mla_settings, rope_heads), KEY_INT, "qk_rope_heads", NULL, 1 },
    KEY_FFN(RG_REQUIRED), KEY_RMS_EPS(1e-6), KEY_TIED(0),
};

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    mla_settings *m = RG_OWN_EDIT(c, mla_settings);

    m->plain = true;
    if (m->rope_heads < 1)
        return rg_fail(err, RG_E_INPUT, "%s: qk_rope_heads is %d", rg_checkpoint_path(ckpt), m->rope_heads);
    if (!finish_mla(c, ckpt, err) || !require_silu(ckpt, err) || !require_false(ckpt, "attention_bias", err) ||
        !require_false(ckpt, "mlp_bias", err) || !finish_mla_rope(c, ckpt, false, err))
        return false;
    c->attn_scale = 1 / __builtin_sqrt((double)m->nope_dim);
    return true;
}

static const rg_weight_spec layer_weights[] = { WEIGHTS_PRE_NORMS, WEIGHTS_MLA, WEIGHTS_MLP, { 0 } };

const rg_arch rg_arch_llama_mla = {
    .hf_name = "LlamaMLAForCausalLM", .hf_type = "llama_mla", .hf_prefix = "model.layers.", RG_KEYS(keys),
    .own_bytes = sizeof(mla_settings), .finish = finish, .weights = decoder_weights,
    RG_KIND(layer_weights, keep_latent, block),
};
