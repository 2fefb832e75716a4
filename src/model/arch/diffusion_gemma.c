/* diffusion_gemma.c -- DiffusionGemma (2026): the layers of Gemma 4 with experts, used in two ways.  Rows of the text
 * are causal, as those of Gemma.  Rows of a canvas behind it see all of the text that the layer keeps, and the whole
 * canvas both ways, and nothing of them is kept; what leaves a layer has a factor of its own for each of the two.
 *
 * A canvas conditions itself: beside the embedding e of its id a row reads `soft`, the mean of all embeddings by what
 * the evaluation before made of the row (softmax of its logits after temperature), or zeros at first.  In place of e
 * enters norm(e + mlp(norm(soft))).
 *
 * In a batch, rows of a canvas are of token type 1, and `soft` is their feature (engine/step_batch.c).  The part for
 * pictures is not read.  GGUF has no form of it. */
#include "model/arch/diffusion.h"
#include "model/arch/gemma4.h"

enum { W_CANVAS_SCALAR = W_GEMMA4_OWN };
enum { W_SOFT_NORM = W_OWN, W_EMBED_OF_IDS }; /* outside the layers; the latter is the table by dimensions */

static void block(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    qkv p = project(f, l, h); /* [rows, heads * head_dim], both as the layer has them */

    norm_values(f, l, &p); /* RMSNorm of each head of v, without weights; then of q and of k */
    norm_heads(f, l, &p);
    rotate(f, l, &p);
    rg_act *a = attention(f, l, &p); /* [rows, n_heads * head_dim] */
    rg_act *y = linear(f, "attn_out", a, l->w[W_O_PROJ], l->w[W_O_BIAS]);
    rg_rmsnorm(f, y, y, l->w[W_POST_ATTN_NORM], l->c->norm_eps);
    rg_add_to(f, x, y); /* x += norm(o_proj a) */

    h = normed(f, l, x, W_FFN_NORM);
    rg_act *z = linear(f, "ffn_out", mlp(f, l, h), l->w[W_DOWN_PROJ], l->w[W_DOWN_BIAS]);
    gemma4_experts(f, l, z, x);
    rg_rmsnorm(f, z, z, l->w[W_POST_FFN_NORM], l->c->norm_eps);
    rg_add_to(f, x, z); /* x += norm(norm(mlp) + norm(experts)) */

    rg_scale_by_type(f, x, l->w[W_SCALAR], l->w[W_CANVAS_SCALAR]); /* the text's factor, or the canvas's */
}

/* A row of a canvas: x, its embedding, becomes norm(x + mlp(norm(soft))).  A row of the text stays. */
static void condition(rg_fwd *f, const rg_layer *l, rg_act *x)
{
    const rg_config *c = l->c;
    rg_act *soft = rg_act_new(f, "soft", c->dim), *y;

    rg_read_features(f, soft);
    rg_rmsnorm(f, soft, soft, l->w[W_SOFT_NORM], c->norm_eps);
    y = linear(f, "conditioned", mlp(f, l, soft), l->w[W_DOWN_PROJ], NULL);
    rg_add_to(f, y, x);
    rg_rmsnorm_plain(f, y, y, c->dim, c->norm_eps);
    rg_keep_type(f, x, 0);
    rg_keep_type(f, y, 1);
    rg_add_to(f, x, y);
}

static void embed(rg_fwd *f, const rg_layer *l, rg_act *x)
{
    const int mark = rg_act_mark(f);

    rg_embed(f, x, l->w[W_EMBED_TOKENS], (float)l->c->embed_scale);
    if (f->batch->features)
        condition(f, l, x);
    rg_act_release(f, mark);
}

static rg_act *soften(rg_fwd *f, const rg_layer *l, const rg_act *logits)
{
    rg_act *shares = rg_act_rows(f, "shares", logits->rows, logits->cols);
    rg_act *soft = rg_act_rows(f, "soft_embed", logits->rows, l->c->dim);

    rg_soften(f, shares, logits);
    rg_linear(f, soft, shares, l->w[W_EMBED_OF_IDS], NULL);
    rg_scale_by(f, soft, (float)l->c->embed_scale);
    return soft;
}

/* ---- the checkpoint ---------------------------------------------------------------------------------------------- */

static const rg_key keys[] = { KEYS_GEMMA4(0, 1, 1, 30) };

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    return finish_gemma4(c, ckpt, err) && finish_canvas(c, ckpt, err);
}

static const rg_weight_spec weights[] = {
    { W_EMBED_TOKENS, "model.decoder.embed_tokens", NULL, { VOCAB, DIM }, SPLIT_ROWS },
    { W_EMBED_OF_IDS, "model.decoder.embed_tokens", NULL, { DIM, VOCAB }, .transposed = true },
    { W_FINAL_NORM, "model.decoder.norm", NULL, { DIM } },
    { W_LM_HEAD, "lm_head", NULL, { VOCAB, DIM }, SPLIT_ROWS, .when = when_untied },
    { W_SOFT_NORM, "model.decoder.self_conditioning.pre_norm", NULL, { DIM } },
    { W_GATE_PROJ, "model.decoder.self_conditioning.gate_proj", NULL, { FFN_DIM, DIM }, SPLIT_ROWS },
    { W_UP_PROJ, "model.decoder.self_conditioning.up_proj", NULL, { FFN_DIM, DIM }, SPLIT_ROWS },
    { W_DOWN_PROJ, "model.decoder.self_conditioning.down_proj", NULL, { DIM, FFN_DIM }, SPLIT_COLS },
    { 0 },
};

static const rg_weight_spec layer_weights[] = {
    WEIGHTS_GEMMA4_LAYER,
    { W_SCALAR, "/model.encoder.language_model.layers.#.layer_scalar", NULL, { ONE } },
    { W_CANVAS_SCALAR, "layer_scalar", NULL, { ONE } },
    { 0 },
};

const rg_arch rg_arch_diffusion_gemma = {
    .hf_name = "DiffusionGemmaForBlockDiffusion", .hf_type = "diffusion_gemma",
    .hf_type_too = { "diffusion_gemma_text" }, .hf_prefix = "model.decoder.layers.",
    RG_KEYS(keys), .own_bytes = sizeof(gemma4_settings), .finish = finish, .weights = weights,
    RG_KIND(layer_weights, keep_gemma4, block), .embed = embed, .soften = soften,
};
