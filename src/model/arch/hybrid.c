/* hybrid.c -- see hybrid.h. */
#include "model/arch/hybrid.h"

#include <stdio.h>
#include <string.h>

/* The entry of words for what stands at a key; NULL and *err: it is none of them. */
static const kind_word *word_at(const rg_checkpoint *ckpt, const char *key, const kind_word *words, rg_error *err)
{
    const char *text = "";

    if (rg_meta_string(ckpt, key, &text, err) < 0)
        return NULL;
    for (const kind_word *w = words; w->word; w++)
        if (!strcmp(text, w->word))
            return w;
    rg_fail(err, RG_E_UNSUPPORTED, "%s: %s is '%.40s', which is not supported", rg_checkpoint_path(ckpt), key, text);
    return NULL;
}

int read_kinds(rg_config *c, const rg_checkpoint *ckpt, const char *key, const kind_word *words, rg_error *err)
{
    char name[64];
    size_t n;
    int got = rg_meta_length(ckpt, key, &n, err);

    if (got <= 0)
        return got;
    if (n != (size_t)c->n_layers)
        return rg_fail(err, RG_E_INPUT, "%s: %s has %zu entries for %d layers", rg_checkpoint_path(ckpt), key, n,
                       c->n_layers), -1;
    for (int i = 0; i < c->n_layers; i++) {
        snprintf(name, sizeof name, "%s.%d", key, i);
        const kind_word *w = word_at(ckpt, name, words, err);
        if (!w)
            return -1;
        c->layer[i].kind = w->kind;
    }
    return 1;
}

bool read_gguf_kv_heads(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    const int32_t *heads = NULL;
    int64_t of_all = 0;
    size_t n = 0;
    char key[128];

    rg_gguf_key(ckpt, "attention.head_count_kv", key);
    if (rg_meta_type_of(ckpt, key) == RG_META_ARRAY) {
        if (rg_meta_ints(ckpt, key, &heads, &n, err) < 0)
            return false;
        if (!require_length(c, ckpt, key, n, err))
            return false;
    } else if (rg_config_int(ckpt, key, 0, INT32_MAX, &of_all, err) < 0) {
        return false;
    }
    c->n_kv_heads = 0;
    for (int i = 0; i < c->n_layers; i++) {
        int64_t here = heads ? heads[i] : of_all;

        if (here < 0 || (here && c->n_kv_heads && here != c->n_kv_heads))
            return rg_fail(err, RG_E_UNSUPPORTED,
                           "%s: %s is %lld in layer %d and %d in another, which is not supported",
                           rg_checkpoint_path(ckpt), key, (long long)here, i, c->n_kv_heads);
        c->layer[i].kind = here ? HYBRID_ATTENTION : HYBRID_OTHER;
        if (here)
            c->n_kv_heads = (int)here;
    }
    return true;
}

bool put_gguf_kv_heads(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    int32_t heads[RG_MAX_LAYERS];
    char key[128];

    for (int i = 0; i < c->n_layers; i++) {
        rg_keep keep;

        rg_layer_kind_of(c, i)->keep(c, i, &keep);
        heads[i] = keep.kv.n_heads;
    }
    snprintf(key, sizeof key, "%s.attention.head_count_kv", c->arch->gguf_name);
    return rg_ckpt_put_ints(w, key, heads, (size_t)c->n_layers, err);
}

bool layer_has(const rg_checkpoint *ckpt, int i, const char *name)
{
    char full[96];

    snprintf(full, sizeof full, "blk.%d.%s", i, name);
    return rg_checkpoint_find(ckpt, full);
}

bool any_layer_has(const rg_config *c, const rg_checkpoint *ckpt, const char *name)
{
    for (int i = 0; i < c->n_layers; i++)
        if (layer_has(ckpt, i, name))
            return true;
    return false;
}
