/* bert.c -- BERT (Devlin et al. 2018): embeddings of tokens, positions and token types; attention over the whole
 * sequence and an MLP with biases, each added to its input and normed behind; LayerNorm, GELU.  A classifier scores the
 * first position. */
#include "model/arch/bert.h"

static void block(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    const qkv p = project(f, l, x); /* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim] */

    rg_act *a = attention(f, l, &p); /* over all rows of the sequence: [rows, n_heads * head_dim] */
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]);
    norm_into(f, l, x, x, W_ATTN_NORM); /* x = norm(x + o_proj a) */

    rg_act *g = mlp(f, l, x); /* gelu(up_proj x): [rows, ffn_dim] */
    rg_linear_add(f, x, g, l->w[W_DOWN_PROJ], l->w[W_DOWN_BIAS]);
    norm_into(f, l, x, x, W_FFN_NORM); /* x = norm(x + down_proj g) */
}

static const rg_key keys[] = { KEYS_BERT(512, 2) };

const char *const bert_harmless[] = {
    "hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout", "tie_word_embeddings",
    "directionality", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head",
    "pooler_type", "gradient_checkpointing", "output_past", "problem_type", "finetuning_task", "num_labels", NULL,
};

SIZE(MAX_POSITIONS, c->n_positions)

bool finish_bert(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const char *const absolute[] = { "absolute", NULL };

    c->layer_norm = true;
    c->attn_bias = c->o_bias = c->mlp_bias = true;
    for (int i = 0; i < c->n_layers; i++)
        c->layer[i].rope = -1;
    if (c->max_seq_len < 1)
        return rg_fail(err, RG_E_INPUT, "%s: max_position_embeddings leaves no position", rg_checkpoint_path(ckpt));
    c->n_positions = c->max_seq_len;
    return finish_encoder(c, ckpt, err) && finish_act(c, ckpt, "hidden_act", RG_GELU, err) &&
           require_choice(ckpt, "position_embedding_type", absolute, err) && require_false(ckpt, "is_decoder", err) &&
           require_false(ckpt, "add_cross_attention", err);
}

/* GGUF files that say one token type are of the RoBERTa kind. */
static bool claims(const rg_checkpoint *ckpt)
{
    int64_t n = 2;

    return rg_meta_int(ckpt, "tokenizer.ggml.token_type_count", 0, INT32_MAX, &n, NULL) < 1 || n != 1;
}

static const rg_weight_spec weights[] = {
    WEIGHTS_BERT_OUTER("bert.", MAX_POSITIONS, ROW_0), WEIGHTS_BERT_HEAD("bert.pooler.dense", "classifier"), { 0 },
};

const rg_weight_spec bert_layer_weights[] = {
    WEIGHTS_GQA_OF(GGUF_HALVES, "attention.self.query", "attention.self.key", "attention.self.value",
                   "attention.output.dense"),
    { W_ATTN_NORM, "attention.output.LayerNorm", "attn_output_norm", { DIM } },
    { W_ATTN_NORM_BIAS, "attention.output.LayerNorm.bias", "attn_output_norm.bias", { DIM } },
    { W_UP_PROJ, "intermediate.dense", "ffn_up", { FFN_DIM, DIM }, SPLIT_ROWS },
    { W_UP_BIAS, "intermediate.dense.bias", "ffn_up.bias", { FFN_DIM }, SPLIT_ROWS },
    { W_DOWN_PROJ, "output.dense", "ffn_down", { DIM, FFN_DIM }, SPLIT_COLS },
    { W_DOWN_BIAS, "output.dense.bias", "ffn_down.bias", { DIM } },
    { W_FFN_NORM, "output.LayerNorm", "layer_output_norm", { DIM } },
    { W_FFN_NORM_BIAS, "output.LayerNorm.bias", "layer_output_norm.bias", { DIM } },
    { 0 },
};

/* A buffer of older directories, and the head's first product where there is no second. */
static const char *const ignored[] = { "embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias", NULL };

const rg_arch rg_arch_bert = {
    .hf_type = "bert", .gguf_name = "bert", .claims = claims, .hf_prefix = "bert.encoder.layer.", RG_KEYS(keys),
    .own_bytes = sizeof(bert_settings), .finish = finish_bert, .harmless = bert_harmless, .ignored = ignored,
    .weights = weights, RG_KIND(bert_layer_weights, keep_kv, block), .embed = embed_encoder, .norm = norm_nothing,
    .score = score_tanh, .is_encoder = true, .put_gguf = put_gguf_encoder,
};
