/* convert_keys.c -- the metadata of a GGUF file that is written: copied from GGUF, or made from a config by the table
 * of keys that its architecture reads. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "model/convert.h"

enum { GGUF_TYPE_U32 = 4, GGUF_TYPE_I32 = 5, QUANTIZATION_VERSION = 2 };

int rg_convert_file_type(rg_type type)
{
    static const struct {
        rg_type type;
        int number;
    } numbers[] = {
        { RG_F32, 0 },   { RG_F16, 1 },   { RG_Q4_0, 2 },  { RG_Q4_1, 3 },  { RG_Q8_0, 7 },
        { RG_Q5_0, 8 },  { RG_Q5_1, 9 },  { RG_Q2_K, 10 }, { RG_Q3_K, 11 }, { RG_Q4_K, 14 },
        { RG_Q5_K, 16 }, { RG_Q6_K, 18 }, { RG_BF16, 32 },
    };

    for (size_t i = 0; i < RG_LEN(numbers); i++)
        if (numbers[i].type == type)
            return numbers[i].number;
    return 0;
}

/* Keys that a new file has its own values for, or that only a split one has. */
static bool is_ours(const char *key)
{
    return !strcmp(key, "general.file_type") || !strcmp(key, "general.quantization_version") ||
           !strncmp(key, "split.", 6);
}

static bool put_key(rg_ckpt_writer *w, const rg_config *c, const rg_key *key, rg_error *err)
{
    const void *at = (const char *)c + key->at;
    double value = 0;
    char name[128];

    if (!key->gguf)
        return true;
    switch (key->kind) {
    case KEY_INT: value = *(const int *)at; break;
    case KEY_FLOAT: value = (double)*(const float *)at; break;
    case KEY_DOUBLE: value = *(const double *)at; break;
    case KEY_BOOL: value = *(const bool *)at; break;
    }
    if (value == 0 && (key->fallback == 0 || key->zero_in_gguf))
        return true; /* readers take a missing key as off */
    snprintf(name, sizeof name, "%s.%s", c->arch->gguf_name, key->gguf);
    if (key->kind == KEY_INT)
        return rg_ckpt_put_int(w, name, GGUF_TYPE_U32, (int64_t)value, err);
    if (key->kind == KEY_BOOL)
        return rg_ckpt_put_bool(w, name, value != 0, err);
    return rg_ckpt_put_float(w, name, value, err);
}

static bool put_text(rg_ckpt_writer *w, const char *key, const char *text, size_t n, rg_error *err)
{
    return rg_ckpt_put_string(w, key, text, n, err);
}

/* The last part of the path, without slashes at its end. */
static bool put_name(rg_ckpt_writer *w, const rg_checkpoint *from, rg_error *err)
{
    const char *path = rg_checkpoint_path(from);
    size_t n = strlen(path), start;

    while (n > 1 && path[n - 1] == '/')
        n--;
    for (start = n; start && path[start - 1] != '/';)
        start--;
    if (start == n || (n - start <= 2 && path[start] == '.'))
        return true;
    return put_text(w, "general.name", path + start, n - start, err);
}

/* How the folder asks to be sampled from, where it does. */
static bool put_sampling(rg_ckpt_writer *w, const rg_config *c, rg_error *err)
{
    static const rg_sampling neutral = RG_SAMPLING_NEUTRAL;

    for (int i = 0; i < RG_N_SAMPLING_KEYS; i++) {
        const rg_sampling_key *k = &rg_sampling_keys[i];
        const void *at = (const char *)&c->sampling + k->at, *off = (const char *)&neutral + k->at;

        if (!memcmp(at, off, sizeof(int32_t))) /* a float has as many bytes */
            continue;
        if (k->least > INT32_MIN ? !rg_ckpt_put_int(w, k->gguf, GGUF_TYPE_I32, *(const int32_t *)at, err)
                                 : !rg_ckpt_put_float(w, k->gguf, (double)*(const float *)at, err))
            return false;
    }
    return true;
}

/* How embeddings are made, if the folder says so. */
static bool put_pooling(rg_ckpt_writer *w, const rg_config *c, rg_error *err)
{
    static const int numbers[] = { [RG_POOLING_MEAN] = 1, [RG_POOLING_CLS] = 2, [RG_POOLING_LAST] = 3 };
    char name[128];

    if (!c->embedding.is_said || !c->embedding.n_poolings)
        return true;
    if (c->embedding.n_poolings > 1 || c->embedding.poolings[0] > RG_POOLING_CLS)
        return rg_fail(err, RG_E_UNSUPPORTED, "GGUF has no key for this way of pooling, only for mean, cls and last");
    for (int i = 0; i < c->embedding.n_steps; i++)
        if (c->embedding.steps[i].is_dense)
            return rg_fail(err, RG_E_UNSUPPORTED, "GGUF has no form of the module '%s' behind the pooling",
                           c->embedding.steps[i].folder);
    snprintf(name, sizeof name, "%s.pooling_type", c->arch->gguf_name);
    return rg_ckpt_put_int(w, name, GGUF_TYPE_U32, numbers[c->embedding.poolings[0]], err);
}

/* A decoder whose rows see each other, and one without a head: without the latter key, which is ridge's own, readers
 * tie the head to the embedding. */
static bool put_embedder(rg_ckpt_writer *w, const rg_config *c, rg_error *err)
{
    const bool both_ways = c->sees == RG_SEES_ALL && c->diffusion.mask_id < 0 && !c->arch->is_encoder;
    char name[128];

    snprintf(name, sizeof name, "%s.attention.causal", c->arch->gguf_name);
    return (!both_ways || rg_ckpt_put_bool(w, name, false, err)) &&
           (!c->headless || rg_ckpt_put_bool(w, "ridge.headless", true, err));
}

/* A classifier's labels, by their numbers. */
static bool put_labels(rg_ckpt_writer *w, const rg_checkpoint *from, const rg_config *c, rg_error *err)
{
    rg_string *labels = rg_array((size_t)c->n_labels, sizeof *labels);
    char name[128];
    bool ok = labels || rg_fail_memory(err, (size_t)c->n_labels * sizeof *labels);

    for (int i = 0; ok && i < c->n_labels; i++) {
        const char *text = "";

        snprintf(name, sizeof name, "id2label.%d", i);
        ok = rg_meta_string(from, name, &text, err) >= 0;
        labels[i] = (rg_string){ text, strlen(text) };
    }
    snprintf(name, sizeof name, "%s.classifier.output_labels", c->arch->gguf_name);
    ok = ok && rg_ckpt_put_strings(w, name, labels, (size_t)c->n_labels, err);
    rg_free(labels);
    return ok;
}

bool rg_convert_keys(rg_ckpt_writer *w, const rg_checkpoint *from, const rg_config *c, int file_type, rg_error *err)
{
    size_t n_common;
    const rg_key *common = rg_config_common_keys(&n_common);
    rg_config all_layers = *c;
    char name[128];

    if (rg_checkpoint_kind(from) == RG_CKPT_GGUF) {
        if (!rg_ckpt_put_all(w, from, is_ours, err))
            return false;
    } else {
        const char *arch = c->arch->gguf_name;
        if (!put_text(w, "general.architecture", arch, strlen(arch), err) ||
            !put_text(w, "general.type", "model", 5, err) || !put_name(w, from, err))
            return false;
        all_layers.n_layers += c->n_modules;
        for (size_t i = 0; i < n_common; i++)
            if (!put_key(w, &all_layers, &common[i], err))
                return false;
        for (size_t i = 0; i < c->arch->n_keys; i++)
            if (!put_key(w, c, &c->arch->keys[i], err))
                return false;
        snprintf(name, sizeof name, "%s.vocab_size", arch);
        if (!rg_ckpt_put_int(w, name, GGUF_TYPE_U32, c->vocab_size, err) || !put_pooling(w, c, err) ||
            !put_embedder(w, c, err) || !put_sampling(w, c, err) ||
            (c->n_labels && !put_labels(w, from, c, err)) ||
            !c->arch->put_gguf(c, w, err))
            return false;
    }
    return rg_ckpt_put_int(w, "general.file_type", GGUF_TYPE_U32, file_type, err) &&
           rg_ckpt_put_int(w, "general.quantization_version", GGUF_TYPE_U32, QUANTIZATION_VERSION, err);
}
