/* exaone4.c -- EXAONE 4 (LG 2025): norms behind attention and MLP, and on every head of q and k.  Where the model has
 * windows, the layers without one have no rope either. */
#include <string.h>

#include "model/arch/parts.h"

static void block(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    const qkv p = project(f, l, x); /* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim] */

    norm_heads(f, l, &p); /* RMSNorm of each head of q and of k */
    rotate(f, l, &p);
    rg_act *a = attention(f, l, &p); /* [rows, n_heads * head_dim] */
    rg_act *y = linear(f, "attn_out", a, l->w[W_O_PROJ], l->w[W_O_BIAS]);
    rg_rmsnorm(f, y, y, l->w[W_POST_ATTN_NORM], l->c->norm_eps);
    rg_add_to(f, x, y); /* x += norm(o_proj a) */

    rg_act *g = mlp(f, l, x); /* silu(gate_proj x) * up_proj x: [rows, ffn_dim] */
    rg_act *z = linear(f, "ffn_out", g, l->w[W_DOWN_PROJ], l->w[W_DOWN_BIAS]);
    rg_rmsnorm(f, z, z, l->w[W_POST_FFN_NORM], l->c->norm_eps);
    rg_add_to(f, x, z); /* x += norm(down_proj g) */
}

static const rg_key keys[] = {
    KEYS_GQA(2048, 32, 32, 0), KEY_FFN(16384), KEY_RMS_EPS(1e-5), KEY_TIED(0), KEY_WINDOW_OR_NONE(4096),
};

/* sliding_window_pattern: a period, or its layers as a word of L (a window) that ends with G (none). */
static bool read_period(const rg_checkpoint *ckpt, int *period, rg_error *err)
{
    static const rg_key row = { 0, KEY_INT, "sliding_window_pattern", NULL, 4, .null = NULL_IS_MISSING };
    const char *word = NULL;

    if (rg_meta_type_of(ckpt, row.hf) != RG_META_STRING)
        return rg_config_keys(period, ckpt, &row, 1, err);
    if (rg_meta_string(ckpt, row.hf, &word, err) < 0)
        return false;
    size_t n = strspn(word, "L");
    if (strcmp(word + n, "G") != 0)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: sliding_window_pattern is '%.40s', which is not supported",
                       rg_checkpoint_path(ckpt), word);
    *period = (int)n + 1;
    return true;
}

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    int period;

    finish_optional(c, ckpt);
    if ((!c->from_gguf && !read_period(ckpt, &period, err)) || !finish_heads(c, err) ||
        !finish_windows(c, ckpt, (int)period, 0, err) || !finish_rope(c, ckpt, 1e4, GGUF_HALVES, err) ||
        !require_silu(ckpt, err))
        return false;
    for (int i = 0; i < c->n_layers && c->window; i++)
        c->layer[i].rope = c->layer[i].window ? 0 : -1;
    return true;
}

static bool put_gguf(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    return put_gguf_decoder(c, w, err) && (!c->window || put_gguf_windows(c, w, err));
}

static const rg_weight_spec layer_weights[] = {
    WEIGHTS_GQA(GGUF_HALVES), WEIGHTS_QK_NORM(HEAD_DIM, HEAD_DIM), WEIGHTS_MLP, WEIGHTS_POST_NORMS, { 0 },
};

const rg_arch rg_arch_exaone4 = {
    .hf_name = "Exaone4ForCausalLM", .hf_type = "exaone4", .gguf_name = "exaone4", .hf_prefix = "model.layers.",
    RG_KEYS(keys), .finish = finish, .weights = decoder_weights_and_freqs, RG_KIND(layer_weights, keep_kv, block),
    .put_gguf = put_gguf,
};
