/* modernbert.c -- ModernBERT (Warner et al. 2024): LayerNorms, usually without biases, in front of attention and MLP,
 * rotated positions, GELU gates; every third layer sees the whole sequence, the others a window to both sides, with a
 * rope of their own.  The first layer has no attention norm: the embeddings were normed.  A classifier scores the mean
 * over all positions, or the first. */
#include "model/arch/encoder.h"

static void block(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *h = l->w[W_ATTN_NORM] ? normed(f, l, x, W_ATTN_NORM) : x;
    const qkv p = project(f, l, h); /* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim] */

    rotate(f, l, &p);                                       /* by the rope of window layers, or that of the others */
    rg_act *a = attention(f, l, &p);                        /* [rows, n_heads * head_dim] */
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]); /* x += o_proj a */

    h = normed(f, l, x, W_FFN_NORM);
    rg_act *g = mlp(f, l, h);                                     /* gelu(gate_proj h) * up_proj h: [rows, ffn_dim] */
    rg_linear_add(f, x, g, l->w[W_DOWN_PROJ], l->w[W_DOWN_BIAS]); /* x += down_proj g */
}

typedef struct settings {
    encoder_settings base; /* first */
    int local;  /* keys of a window, half of them to each side */
    int period; /* of the layers that see everything, the first of which is layer 0 */
    bool norm_bias, score_bias;
} settings;

static const rg_key keys[] = {
    { offsetof(rg_config, max_seq_len), KEY_INT, "max_position_embeddings", "context_length", 8192 },
    { offsetof(rg_config, n_heads), KEY_INT, "num_attention_heads", "attention.head_count", 12 },
    KEY_FFN(1152), KEY_LAYER_NORM_EPS("norm_eps", 1e-5),
    { RG_OWN_AT(settings, local), KEY_INT, "local_attention", "attention.sliding_window", 128 },
    { RG_OWN_AT(settings, period), KEY_INT, "global_attn_every_n_layers", NULL, 3 },
    KEY_ATTN_BIAS(0),
    { offsetof(rg_config, mlp_bias), KEY_BOOL, "mlp_bias", NULL, 0 },
    { RG_OWN_AT(settings, norm_bias), KEY_BOOL, "norm_bias", NULL, 0 },
    { RG_OWN_AT(settings, score_bias), KEY_BOOL, "classifier_bias", NULL, 0 },
};

static const char *const harmless[] = {
    "attention_dropout", "embedding_dropout", "mlp_dropout", "classifier_dropout", "decoder_bias",
    "deterministic_flash_attn", "reference_compile", "repad_logits_with_grad", "initializer_cutoff_factor",
    "sparse_pred_ignore_index", "sparse_prediction", "tie_word_embeddings", "position_embedding_type",
    "layer_norm_eps", "cls_token_id", "problem_type", "num_labels", NULL,
};

static bool is_global(const rg_config *c, int layer)
{
    return layer % RG_OWN(c, settings)->period == 0;
}

/* Which layers see the whole sequence: a list, or every so many from the first on. */
static bool finish_layers(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    settings *own = RG_OWN_EDIT(c, settings);
    char key[128];
    const char *list = c->from_gguf ? rg_gguf_key(ckpt, "attention.sliding_window_pattern", key) : "layer_types";
    int64_t period = own->period;

    if (c->from_gguf && rg_meta_type_of(ckpt, list) == RG_META_INT &&
        rg_config_int(ckpt, list, 1, INT32_MAX, &period, err) < 0)
        return false;
    if (own->local < 0 || period < 1)
        return rg_fail(err, RG_E_INPUT, "%s: local_attention is %d and global_attn_every_n_layers %d: want 0 or more, "
                       "and 1 or more", rg_checkpoint_path(ckpt), own->local, (int)period);
    own->period = (int)period;
    c->window = own->local / 2 + 1;
    if (!finish_windows(c, ckpt, 0, 1, err))
        return false;
    for (int i = 0; i < c->n_layers; i++) {
        rg_layer_config *l = &c->layer[i];

        if (rg_meta_type_of(ckpt, list) != RG_META_ARRAY) {
            l->window = is_global(c, i) ? 0 : c->window;
            l->rope = !is_global(c, i);
        }
        l->around = l->window > 0;
    }
    return true;
}

/* Older files have the bases of the ropes beside each other. */
static bool finish_ropes(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    double global = 160000, local = 10000;

    if (!c->from_gguf && (rg_config_float(ckpt, "global_rope_theta", &global, err) < 0 ||
                          rg_config_float(ckpt, "local_rope_theta", &local, err) < 0))
        return false;
    c->n_ropes = 2;
    c->ropes[0].dim = c->ropes[1].dim = c->head_dim;
    return rg_rope_read(&c->ropes[0], ckpt, "full_attention", global, err) &&
           rg_rope_read(&c->ropes[1], ckpt, "sliding_attention", local, err);
}

/* GGUF says nothing about the head: other engines take the mean, and GELU. */
static bool finish_score(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const char *const gelu[] = { "gelu", NULL }, *const poolings[] = { "cls", "mean", NULL };
    int which = c->from_gguf;

    c->score_pooling = RG_POOLING_CLS;
    if (!c->from_gguf && (!require_choice(ckpt, "classifier_activation", gelu, err) ||
                          !rg_config_choice(ckpt, "classifier_pooling", poolings, &which, err)))
        return false;
    if (which == 1)
        c->score_pooling = RG_POOLING_MEAN;
    return true;
}

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    settings *own = RG_OWN_EDIT(c, settings);
    char key[128];

    c->layer_norm = true;
    c->o_bias = c->attn_bias;
    if (c->from_gguf) { /* the same number again; and biases, by their tensors */
        rg_meta_understand(ckpt, rg_gguf_key(ckpt, "attention.layer_norm_rms_epsilon", key));
        c->attn_bias = rg_checkpoint_find(ckpt, "blk.0.attn_qkv.bias");
        c->o_bias = rg_checkpoint_find(ckpt, "blk.0.attn_output.bias");
        c->mlp_bias = rg_checkpoint_find(ckpt, "blk.0.ffn_up.bias");
        own->norm_bias = rg_checkpoint_find(ckpt, "output_norm.bias");
        own->score_bias = rg_checkpoint_find(ckpt, "cls.bias");
    }
    return finish_encoder(c, ckpt, err) && finish_layers(c, ckpt, err) && finish_ropes(c, ckpt, err) &&
           finish_act(c, ckpt, "hidden_activation", RG_GELU, err) && finish_score(c, ckpt, err);
}

static bool put_gguf(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    for (int i = 0; i < c->n_layers; i++)
        if (is_global(c, i) != !c->layer[i].window)
            return rg_fail(err, RG_E_UNSUPPORTED, "GGUF has no key for layer_types that are not periodic");
    if (c->act != RG_GELU)
        return rg_fail(err, RG_E_UNSUPPORTED, "GGUF has no key for a hidden_activation other than gelu");
    if (c->ropes[1].type != RG_ROPE_DEFAULT)
        return rg_fail(err, RG_E_UNSUPPORTED, "GGUF has no key for the scaling of the window layers' rope");
    if (c->n_labels && c->score_pooling != RG_POOLING_MEAN)
        return rg_fail(err, RG_E_UNSUPPORTED, "GGUF has no key for classifier_pooling: its readers take the mean");
    return put_gguf_encoder(c, w, err) && put_gguf_rope(c, w, err) &&
           put_gguf_float(c, w, "attention.layer_norm_rms_epsilon", c->norm_eps, err) &&
           put_gguf_no_scaling(c, w, err) &&
           put_gguf_float(c, w, "rope.freq_base_swa", c->ropes[1].theta, err) &&
           put_gguf_int(c, w, "attention.sliding_window_pattern", RG_OWN(c, settings)->period, err);
}

static WHEN(when_norm_bias, RG_OWN(c, settings)->norm_bias)
static WHEN(when_score_norm_bias, when_labels(c, layer) && when_norm_bias(c, layer))
static WHEN(when_score_bias, when_labels(c, layer) && RG_OWN(c, settings)->score_bias)

static const rg_weight_spec weights[] = {
    { W_EMBED_TOKENS, "model.embeddings.tok_embeddings", "token_embd", { VOCAB, DIM }, SPLIT_ROWS },
    { W_EMBED_NORM, "model.embeddings.norm", "token_embd_norm", { DIM } },
    { W_EMBED_NORM_BIAS, "model.embeddings.norm.bias", "token_embd_norm.bias", { DIM }, .when = when_norm_bias },
    { W_FINAL_NORM, "model.final_norm", "output_norm", { DIM } },
    { W_FINAL_NORM_BIAS, "model.final_norm.bias", "output_norm.bias", { DIM }, .when = when_norm_bias },
    { W_SCORE_DENSE, "head.dense", "cls", { DIM, DIM }, .when = when_labels },
    { W_SCORE_DENSE_BIAS, "head.dense.bias", "cls.bias", { DIM }, .when = when_score_bias },
    { W_SCORE_NORM, "head.norm", "cls.norm", { DIM }, .when = when_labels },
    { W_SCORE_NORM_BIAS, "head.norm.bias", "cls.norm.bias", { DIM }, .when = when_score_norm_bias },
    { W_SCORE_OUT, "classifier", "cls.output", { N_LABELS, DIM }, .when = when_labels },
    { W_SCORE_OUT_BIAS, "classifier.bias", "cls.output.bias", { N_LABELS }, .when = when_labels },
    { 0 },
};

static WHEN(when_normed, layer > 0)
static WHEN(when_normed_with_bias, when_normed(c, layer) && when_norm_bias(c, layer))

#define GATE_UP .stored = { FFN_DIM_2, DIM }
#define GATE_UP_BIAS(first) .stored = { FFN_DIM_2 }, .first_row = first, .when = when_mlp_bias

static const rg_weight_spec layer_weights[] = {
    { W_ATTN_NORM, "attn_norm", "attn_norm", { DIM }, .when = when_normed },
    { W_ATTN_NORM_BIAS, "attn_norm.bias", "attn_norm.bias", { DIM }, .when = when_normed_with_bias },
    WEIGHTS_QKV("attn.Wqkv"), WEIGHTS_O("attn.Wo"),
    { W_FFN_NORM, "mlp_norm", "ffn_norm", { DIM } },
    { W_FFN_NORM_BIAS, "mlp_norm.bias", "ffn_norm.bias", { DIM }, .when = when_norm_bias },
    { W_GATE_BIAS, "mlp.Wi.bias", "ffn_up.bias", { FFN_DIM }, SPLIT_ROWS, GATE_UP_BIAS(ROW_0) },
    { W_UP_BIAS, "mlp.Wi.bias", "ffn_up.bias", { FFN_DIM }, SPLIT_ROWS, GATE_UP_BIAS(FFN_DIM) },
    { W_DOWN_BIAS, "mlp.Wo.bias", "ffn_down.bias", { DIM }, .when = when_mlp_bias },
    { W_GATE_PROJ, "mlp.Wi", "ffn_up", { FFN_DIM, DIM }, SPLIT_ROWS, GATE_UP, .first_row = ROW_0 },
    { W_UP_PROJ, "mlp.Wi", "ffn_up", { FFN_DIM, DIM }, SPLIT_ROWS, GATE_UP, .first_row = FFN_DIM },
    { W_DOWN_PROJ, "mlp.Wo", "ffn_down", { DIM, FFN_DIM }, SPLIT_COLS },
    { 0 },
};

static void score(rg_fwd *f, const rg_layer *l, rg_act *scores, const rg_act *pooled)
{
    score_by(f, l, scores, pooled, RG_GELU);
}

/* Weights of the head that predicts masked ids, which is not used. */
static const char *const ignored[] = { "head.dense.weight", "head.norm.weight", "decoder.weight", "decoder.bias",
                                       NULL };

const rg_arch rg_arch_modernbert = {
    .hf_type = "modernbert", .gguf_name = "modern-bert", .hf_prefix = "model.layers.", RG_KEYS(keys),
    .own_bytes = sizeof(settings), .finish = finish, .harmless = harmless, .ignored = ignored, .weights = weights,
    RG_KIND(layer_weights, keep_kv, block), .embed = embed_encoder, .score = score, .is_encoder = true,
    .put_gguf = put_gguf,
};
