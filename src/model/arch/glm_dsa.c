/* glm_dsa.c -- GLM-5 (Zhipu 2026): DeepSeek-V3.2, some of whose layers have no indexer and take the choice of the layer
 * before. */
#include <stdio.h>
#include <string.h>

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
    KEYS_MLA(202752, 64, 1536, 512, 64), KEYS_DSA(32, 1), KEY_FFN(12288), KEY_RMS_EPS(1e-5), KEY_TIED(0),
    KEY_ATTN_BIAS(0),
    KEYS_EXPERTS("n_routed_experts", 256, 8, 2048), KEYS_NOAUX(1, 1, 1, 2.5),
    { offsetof(rg_config, n_dense_layers), KEY_INT, "first_k_dense_replace", NULL, 3 },
};

static const char *const harmless[] = { DSA_HARMLESS, NULL };

/* Does layer i take the choice of the layer before, by the keys that stand in for indexer_types: a pattern of F and S,
 * or a period behind the first layers? */
static bool takes_by_pattern(const rg_checkpoint *ckpt, int n_layers, int i, bool *takes, rg_error *err)
{
    const char *pattern = NULL;
    int64_t period = 1, offset = 2;
    int got = rg_meta_string(ckpt, "index_topk_pattern", &pattern, err);

    if (got < 0 || rg_config_int(ckpt, "index_topk_freq", 0, INT32_MAX, &period, err) < 0 ||
        rg_config_int(ckpt, "index_skip_topk_offset", 0, INT32_MAX, &offset, err) < 0)
        return false;
    if (got && (strlen(pattern) != (size_t)n_layers || strspn(pattern, "FS") != (size_t)n_layers))
        return rg_fail(err, RG_E_INPUT, "%s: index_topk_pattern is not one of F and S for each of %d layers",
                       rg_checkpoint_path(ckpt), n_layers);
    *takes = got ? pattern[i] == 'S' : period > 1 && i >= offset && (i - offset + 1) % period != 0;
    return true;
}

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const char *const types[] = { "full", "shared", NULL };
    char key[48];
    int which;

    if (!finish_dsa(c, ckpt, err))
        return false;
    for (int i = 0; i < c->n_layers; i++) {
        bool takes = false;

        snprintf(key, sizeof key, "indexer_types.%d", i);
        if (!takes_by_pattern(ckpt, c->n_layers, i, &takes, err) || !rg_config_choice(ckpt, key, types, &which, err))
            return false;
        takes = which < 0 ? takes : which == 1;
        if (takes && !i)
            return rg_fail(err, RG_E_INPUT, "%s: the first layer has no indexer, and there is no layer before it",
                           rg_checkpoint_path(ckpt));
        c->layer[i].kind += takes ? DSA_TAKES : 0;
    }
    return true;
}

static const rg_layer_kind kinds[DSA_KINDS] = { KINDS_DSA(block) };

const rg_arch rg_arch_glm_dsa = {
    .hf_name = "GlmMoeDsaForCausalLM", .hf_type = "glm_moe_dsa", .hf_prefix = "model.layers.", RG_KEYS(keys),
    .own_bytes = sizeof(dsa_settings), .finish = finish, .harmless = harmless, .weights = dsa_weights, .kinds = kinds,
    .n_kinds = DSA_KINDS, .embed = embed_dsa,
};
