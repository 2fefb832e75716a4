/* encoder.c -- see encoder.h. */
#include "model/arch/encoder.h"

#include <stdio.h>
#include <string.h>

enum { GGUF_TYPE_U32 = 4, MAX_LABELS = 1 << 16 };

SIZE(N_TYPES, RG_OWN(c, encoder_settings)->n_types)
SIZE(N_LABELS, c->n_labels)

WHEN(when_types, RG_OWN(c, encoder_settings)->n_types > 0)
WHEN(when_labels, c->n_labels > 0)

/* A classifier's labels: as many as have a name, else two, as the published library has it. */
static bool read_labels(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const char classifier[] = "ForSequenceClassification";
    const char *name = NULL;
    static const rg_key row = { 0, KEY_INT, "num_labels", NULL, 2, .null = NULL_IS_MISSING, .least = 1,
                                .most = MAX_LABELS };
    int n = 0, said;
    char key[48];

    if (rg_meta_string(ckpt, "architectures.0", &name, err) < 0 ||
        !rg_config_keys(&said, ckpt, &row, 1, err))
        return false;
    size_t len = name ? strlen(name) : 0, end = sizeof classifier - 1;
    if (len < end || strcmp(name + len - end, classifier) != 0)
        return true;
    for (snprintf(key, sizeof key, "id2label.0"); n < MAX_LABELS && rg_meta_type_of(ckpt, key) != RG_META_NONE;)
        snprintf(key, sizeof key, "id2label.%d", ++n);
    c->n_labels = n ? n : said;
    return true;
}

/* GGUF: by the tensors of the head, all of which must be there. */
static void find_labels(rg_config *c, const rg_checkpoint *ckpt)
{
    const rg_tensor *out = rg_checkpoint_find(ckpt, "cls.output.weight");

    if (out && rg_checkpoint_find(ckpt, "cls.weight") && rg_tensor_rows(out) <= MAX_LABELS)
        c->n_labels = (int)rg_tensor_rows(out);
}

bool finish_encoder(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    encoder_settings *own = RG_OWN_EDIT(c, encoder_settings);
    const rg_tensor *types = c->from_gguf ? rg_checkpoint_find(ckpt, "token_types.weight") : NULL;
    bool causal = false;
    char key[128];

    if (c->from_gguf) {
        if (rg_meta_bool(ckpt, rg_gguf_key(ckpt, "attention.causal", key), &causal, err) < 0)
            return false;
        if (causal)
            return rg_fail(err, RG_E_UNSUPPORTED, "%s: %s is true, which is not supported", rg_checkpoint_path(ckpt),
                           key);
        rg_meta_understand(ckpt, rg_gguf_key(ckpt, "classifier.output_labels", key));
        own->n_types = types ? (int)rg_tensor_rows(types) : 0;
        find_labels(c, ckpt);
    } else if (!read_labels(c, ckpt, err)) {
        return false;
    }
    if (!c->arch->score)
        c->n_labels = 0;
    c->sees = RG_SEES_ALL;
    c->score_pooling = RG_POOLING_CLS;
    c->tie_embeddings = true; /* there is no head to be tied */
    return finish_heads(c, err);
}

bool put_gguf_encoder(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    const int n_types = RG_OWN(c, encoder_settings)->n_types;
    char key[128];

    snprintf(key, sizeof key, "%s.attention.causal", c->arch->gguf_name);
    return rg_ckpt_put_bool(w, key, false, err) &&
           (!n_types || rg_ckpt_put_int(w, "tokenizer.ggml.token_type_count", GGUF_TYPE_U32, n_types, err));
}

void embed_encoder(rg_fwd *f, const rg_layer *l, rg_act *x)
{
    rg_embed(f, x, l->w[W_EMBED_TOKENS], 1);
    if (l->w[W_EMBED_POSITIONS])
        rg_embed_positions(f, x, l->w[W_EMBED_POSITIONS], 0);
    if (l->w[W_EMBED_TYPES])
        rg_embed_types(f, x, l->w[W_EMBED_TYPES]);
    norm_into(f, l, x, x, W_EMBED_NORM);
}

void norm_nothing(rg_fwd *f, const rg_layer *l, rg_act *y, const rg_act *x)
{
    (void)f, (void)l;
    RG_ASSERT(y == x);
}

void score_by(rg_fwd *f, const rg_layer *l, rg_act *scores, const rg_act *pooled, rg_activation act)
{
    rg_act *h = rg_act_rows(f, "score_dense", pooled->rows, l->c->dim);

    rg_linear(f, h, pooled, l->w[W_SCORE_DENSE], l->w[W_SCORE_DENSE_BIAS]);
    rg_activate(f, h, h, act);
    if (l->w[W_SCORE_NORM])
        norm_into(f, l, h, h, W_SCORE_NORM);
    rg_linear(f, scores, h, l->w[W_SCORE_OUT], l->w[W_SCORE_OUT_BIAS]);
}

void score_tanh(rg_fwd *f, const rg_layer *l, rg_act *scores, const rg_act *pooled)
{
    score_by(f, l, scores, pooled, RG_TANH);
}
