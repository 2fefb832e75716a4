/* deepseek32.c -- DeepSeek-V3.2 (2025): DeepSeek-V3, whose rows attend to the keys that an indexer chooses. */
#include "model/arch/dsa.h"

static void block(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    rg_act *q_a = latent_query(f, l, h);                     /* [rows, q_lora_rank] */
    rg_act *chosen = chosen_keys(f, l, h, q_a);              /* places of keys: [rows, index_topk] */
    rg_act *a = latent_attention_from(f, l, h, q_a, chosen); /* [rows, n_heads * v_dim] */
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]);  /* x += o_proj a */

    h = normed(f, l, x, W_FFN_NORM);
    mlp_or_experts(f, l, x, h);
}

static const rg_key keys[] = {
    KEYS_MLA(4096, 128, 1536, 512, 64), KEYS_DSA(64, 0), KEY_FFN(18432), KEY_RMS_EPS(1e-6), KEY_TIED(0),
    KEY_ATTN_BIAS(0),
    KEYS_EXPERTS("n_routed_experts", 256, 8, 2048), KEYS_NOAUX(1, 8, 4, 2.5),
    { offsetof(rg_config, n_dense_layers), KEY_INT, "first_k_dense_replace", NULL, 3 },
};

static const char *const harmless[] = { DSA_HARMLESS, NULL };

static const rg_layer_kind kinds[DSA_KINDS] = { KINDS_DSA(block) };

const rg_arch rg_arch_deepseek32 = {
    .hf_name = "DeepseekV32ForCausalLM", .hf_type = "deepseek_v32", .hf_prefix = "model.layers.", RG_KEYS(keys),
    .own_bytes = sizeof(dsa_settings), .finish = finish_dsa, .harmless = harmless, .weights = dsa_weights,
    .kinds = kinds, .n_kinds = DSA_KINDS, .embed = embed_dsa,
};
