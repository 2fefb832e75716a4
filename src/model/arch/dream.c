/* dream.c -- Dream (2025): a diffusion model with the layers of Qwen2.  Every row sees all rows of its sequence, and
 * the logits of a position stand at the row before it. */
#include "model/arch/diffusion.h"

static const rg_key keys[] = {
    KEYS_GQA(32768, RG_REQUIRED, 0, 0), KEY_FFN(RG_REQUIRED), KEY_RMS_EPS(1e-6), KEY_TIED(0),
};

static const char *const harmless[] = { "sliding_window", "max_window_layers", NULL };

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    c->sees = RG_SEES_ALL;
    c->diffusion.shifted = true;
    c->diffusion.schedule = RG_SCHEDULE_TIME;
    c->attn_bias = true;
    finish_optional(c, ckpt);
    return finish_heads(c, err) && finish_diffusion(c, ckpt, err) && require_false(ckpt, "use_sliding_window", err) &&
           finish_rope(c, ckpt, 1e4, GGUF_HALVES, err) && require_silu(ckpt, err);
}

static const rg_weight_spec weights[] = { WEIGHTS_DECODER, { 0 } };
static const rg_weight_spec layer_weights[] = { WEIGHTS_PRE_NORMS, WEIGHTS_GQA(GGUF_HALVES), WEIGHTS_MLP, { 0 } };
static const rg_layer_kind kinds[] = { { layer_weights, keep_kv, block_pre_norm } };

const rg_arch rg_arch_dream = {
    .hf_name = "DreamModel", .hf_type = "Dream", .gguf_name = "dream", .hf_prefix = "model.layers.",
    .keys = keys, .n_keys = RG_LEN(keys), .finish = finish,
    .harmless = harmless, .weights = weights, .kinds = kinds, .n_kinds = RG_LEN(kinds), .put_gguf = put_gguf_diffusion,
};
