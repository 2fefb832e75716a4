/* xlm_roberta.c -- RoBERTa and XLM-RoBERTa (Conneau et al. 2019): BERT whose table of positions begins behind the id
 * that fills up batches, with one token type, and with a head of its own names. */
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

static const rg_key keys[] = {
    KEYS_BERT(514, 1),
    { RG_OWN_AT(bert_settings, pad_id), KEY_INT, "pad_token_id", NULL, 1 },
};

/* Rows of the table that no position has. */
static SIZE(FIRST_POSITION, (int64_t)RG_OWN(c, bert_settings)->pad_id + 1)
static SIZE(TABLE_ROWS, (int64_t)c->n_positions + FIRST_POSITION(c, layer))

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    int64_t first = c->from_gguf ? 0 : FIRST_POSITION(c, -1); /* GGUF leaves these rows out */

    c->max_seq_len = c->max_seq_len > first ? c->max_seq_len - (int)first : 0;
    return finish_bert(c, ckpt, err);
}

static bool claims(const rg_checkpoint *ckpt)
{
    int64_t n = 2;

    return rg_meta_int(ckpt, "tokenizer.ggml.token_type_count", 0, INT32_MAX, &n, NULL) == 1 && n == 1;
}

static const rg_weight_spec weights[] = {
    WEIGHTS_BERT_OUTER("roberta.", TABLE_ROWS, FIRST_POSITION),
    WEIGHTS_BERT_HEAD("classifier.dense", "classifier.out_proj"), { 0 },
};

static const char *const ignored[] = { "embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias", NULL };

const rg_arch rg_arch_xlm_roberta = {
    .hf_type = "xlm-roberta", .hf_type_too = { "roberta", "camembert" }, .gguf_name = "bert", .claims = claims,
    .hf_prefix = "roberta.encoder.layer.", RG_KEYS(keys), .own_bytes = sizeof(bert_settings), .finish = finish,
    .harmless = bert_harmless, .ignored = ignored, .weights = weights, RG_KIND(bert_layer_weights, keep_kv, block),
    .embed = embed_encoder, .norm = norm_nothing, .score = score_tanh, .is_encoder = true, .put_gguf = put_gguf_encoder,
};
