/* opt.c -- OPT (Zhang et al. 2022): learned positions, LayerNorm, attention and MLP with biases, ReLU.
 *
 * The table of positions begins two rows early.  One size (350m) has its norms behind attention and MLP, and embeddings
 * narrower than its layers, with a product on the way in and on the way out. */
#include "model/arch/parts.h"

enum { NORM_FIRST, NORM_LAST }; /* kinds of layer */
enum { POSITION_0 = 2 };         /* its row in the table */

static void block_norm_first(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    const qkv p = project(f, l, h);  /* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim] */
    rg_act *a = attention(f, l, &p); /* [rows, n_heads * head_dim] */
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]); /* x += o_proj a */

    h = normed(f, l, x, W_FFN_NORM);
    rg_act *g = mlp(f, l, h);                                     /* relu(up_proj h): [rows, ffn_dim] */
    rg_linear_add(f, x, g, l->w[W_DOWN_PROJ], l->w[W_DOWN_BIAS]); /* x += down_proj g */
}

/* The norm of each half behind it, after it was added. */
static void block_norm_last(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    const qkv p = project(f, l, x);

    rg_act *a = attention(f, l, &p);
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]);
    norm_into(f, l, x, x, W_ATTN_NORM); /* x = norm(x + o_proj a) */

    rg_act *g = mlp(f, l, x); /* relu(up_proj x): [rows, ffn_dim] */
    rg_linear_add(f, x, g, l->w[W_DOWN_PROJ], l->w[W_DOWN_BIAS]);
    norm_into(f, l, x, x, W_FFN_NORM); /* x = norm(x + down_proj g) */
}

typedef struct settings {
    int embed_dim; /* 0: as wide as the layers */
    bool norm_first, no_final_norm, has_bias, has_norm_weights;
} settings;

enum { W_PROJECT_IN = W_OWN, W_PROJECT_OUT };

#define own(c) RG_OWN(c, settings)

static const rg_key keys[] = {
    { offsetof(rg_config, max_seq_len), KEY_INT, "max_position_embeddings", NULL, 2048 },
    { offsetof(rg_config, n_heads), KEY_INT, "num_attention_heads", NULL, 12 },
    { offsetof(rg_config, ffn_dim), KEY_INT, "ffn_dim", NULL, 3072 },
    KEY_TIED(1),
    { RG_OWN_AT(settings, embed_dim), KEY_INT, "word_embed_proj_dim", NULL, 0 },
    { RG_OWN_AT(settings, norm_first), KEY_BOOL, "do_layer_norm_before", NULL, 1 },
    { RG_OWN_AT(settings, no_final_norm), KEY_BOOL, "_remove_final_layer_norm", NULL, 0 },
    { RG_OWN_AT(settings, has_bias), KEY_BOOL, "enable_bias", NULL, 1 },
    { RG_OWN_AT(settings, has_norm_weights), KEY_BOOL, "layer_norm_elementwise_affine", NULL, 1 },
};

static const char *const harmless[] = { "dropout", "layerdrop", "init_std", "prefix", "activation_dropout", NULL };

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    settings *s = RG_OWN_EDIT(c, settings);

    c->layer_norm = true;
    c->norm_eps = 1e-5f; /* there is no key for it */
    c->n_positions = c->max_seq_len;
    c->attn_bias = c->o_bias = c->mlp_bias = s->has_bias;
    if (s->embed_dim == c->dim)
        s->embed_dim = 0;
    for (int i = 0; i < c->n_layers; i++)
        c->layer[i].rope = -1, c->layer[i].kind = s->norm_first ? NORM_FIRST : NORM_LAST;
    return finish_heads(c, err) && finish_act(c, ckpt, "activation_function", RG_RELU, err);
}

static WHEN(when_norm_weights, own(c)->has_norm_weights)
static WHEN(when_final_norm, own(c)->norm_first && !own(c)->no_final_norm && when_norm_weights(c, layer))
static WHEN(when_projected, own(c)->embed_dim > 0)
static SIZE(EMBED_DIM, own(c)->embed_dim ? own(c)->embed_dim : c->dim)
static SIZE(POSITIONS, (int64_t)c->n_positions + POSITION_0)

static const rg_weight_spec weights[] = {
    { W_EMBED_TOKENS, "model.decoder.embed_tokens", NULL, { VOCAB, EMBED_DIM }, SPLIT_ROWS },
    { W_EMBED_POSITIONS, "model.decoder.embed_positions", NULL, { POSITIONS, DIM }, .table = true },
    { W_PROJECT_IN, "model.decoder.project_in", NULL, { DIM, EMBED_DIM }, .when = when_projected },
    { W_PROJECT_OUT, "model.decoder.project_out", NULL, { EMBED_DIM, DIM }, .when = when_projected },
    { W_FINAL_NORM, "model.decoder.final_layer_norm", NULL, { DIM }, .when = when_final_norm },
    { W_FINAL_NORM_BIAS, "model.decoder.final_layer_norm.bias", NULL, { DIM }, .when = when_final_norm },
    { W_LM_HEAD, "lm_head", NULL, { VOCAB, EMBED_DIM }, SPLIT_ROWS, .when = when_untied },
    { 0 },
};

static const rg_weight_spec layer_weights[] = {
    { W_ATTN_NORM, "self_attn_layer_norm", NULL, { DIM }, .when = when_norm_weights },
    { W_ATTN_NORM_BIAS, "self_attn_layer_norm.bias", NULL, { DIM }, .when = when_norm_weights },
    WEIGHTS_GQA_OF(GGUF_HALVES, "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj"),
    { W_FFN_NORM, "final_layer_norm", NULL, { DIM }, .when = when_norm_weights },
    { W_FFN_NORM_BIAS, "final_layer_norm.bias", NULL, { DIM }, .when = when_norm_weights },
    { W_UP_PROJ, "fc1", NULL, { FFN_DIM, DIM }, SPLIT_ROWS },
    { W_UP_BIAS, "fc1.bias", NULL, { FFN_DIM }, SPLIT_ROWS, .when = when_mlp_bias },
    { W_DOWN_PROJ, "fc2", NULL, { DIM, FFN_DIM }, SPLIT_COLS },
    { W_DOWN_BIAS, "fc2.bias", NULL, { DIM }, .when = when_mlp_bias },
    { 0 },
};

static void embed(rg_fwd *f, const rg_layer *l, rg_act *x)
{
    if (l->w[W_PROJECT_IN]) {
        rg_act *narrow = rg_act_new(f, "embedding", own(l->c)->embed_dim);

        rg_embed(f, narrow, l->w[W_EMBED_TOKENS], 1);
        rg_linear(f, x, narrow, l->w[W_PROJECT_IN], NULL);
    } else {
        rg_embed(f, x, l->w[W_EMBED_TOKENS], 1);
    }
    rg_embed_positions(f, x, l->w[W_EMBED_POSITIONS], POSITION_0);
}

/* Where there is none, what the last layer leaves goes to the head: y is x then. */
static void norm(rg_fwd *f, const rg_layer *l, rg_act *y, const rg_act *x)
{
    if (own(l->c)->norm_first && !own(l->c)->no_final_norm)
        norm_into(f, l, y, x, W_FINAL_NORM);
}

static void head(rg_fwd *f, const rg_layer *l, rg_act *logits, const rg_act *h)
{
    if (l->w[W_PROJECT_OUT]) {
        rg_act *narrow = rg_act_rows(f, "projected", h->rows, own(l->c)->embed_dim);

        rg_linear(f, narrow, h, l->w[W_PROJECT_OUT], NULL);
        h = narrow;
    }
    rg_linear(f, logits, h, l->w[W_LM_HEAD], NULL);
}

static const rg_layer_kind kinds[] = {
    [NORM_FIRST] = { layer_weights, keep_kv, block_norm_first },
    [NORM_LAST] = { layer_weights, keep_kv, block_norm_last },
};

const rg_arch rg_arch_opt = {
    .hf_name = "OPTForCausalLM", .hf_type = "opt", .hf_prefix = "model.decoder.layers.", RG_KEYS(keys),
    .own_bytes = sizeof(settings), .finish = finish, .harmless = harmless, .weights = weights, RG_KINDS(kinds),
    .embed = embed, .norm = norm, .head = head,
};
