/* config.c -- reading the facts of a model from a checkpoint's metadata.
 *
 * The keys that all architectures share, and the helpers that architectures use for their own. */
#include "model/config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/arch.h"
#include "model/bidirectional.h"
#include "model/nulls.h"
#include "model/tied.h"

/* Keys of config.json that do not change what is computed. */
static const char *const harmless[] = {
    "architectures", "model_type", "attention_dropout", "dtype", "torch_dtype", "initializer_range", "use_cache",
    "transformers_version", "pad_token_id", "bos_token_id", "eos_token_id", "output_router_logits",
    "router_aux_loss_coef", "router_jitter_noise", "pretraining_tp", "_name_or_path", "auto_map",
    "quantization_config.", "output_attentions", "output_hidden_states", "return_dict", "id2label.", "label2id.",
    "chunk_size_feed_forward", "is_encoder_decoder", "tokenizer_class", "unsloth_version", "task_specific_params",
    "hidden_dropout", "resid_pdrop", "embd_pdrop", "_attn_implementation", "_attn_implementation_autoset",
    "_commit_hash", "_flash_attn_2_enabled", "attn_implementation", "bos_token", "compression_config.", "eos_token",
    "gradient_checkpointing", "is_llama_config", "name_or_path", "pad_token", "problem_type", "seq_length",
    "transformers.js_config.", "unsloth_fixed", "use_flash_attention", "use_flash_attn", NULL,
};

static const rg_key common_keys[] = {
    { offsetof(rg_config, n_layers), KEY_INT, "num_hidden_layers", "block_count", RG_REQUIRED,
      { "n_layer", "n_layers" } },
    { offsetof(rg_config, dim), KEY_INT, "hidden_size", "embedding_length", RG_REQUIRED, { "n_embd", "d_model" } },
};

const char *rg_gguf_key(const rg_checkpoint *ckpt, const char *suffix, char out[128])
{
    const char *name = "";

    if (rg_meta_string(ckpt, "general.architecture", &name, NULL) != 1)
        name = "";
    snprintf(out, 128, "%s.%s", name, suffix);
    return out;
}

const rg_key *rg_config_common_keys(size_t *n)
{
    *n = RG_LEN(common_keys);
    return common_keys;
}

/* The same, of models whose language model is one of several parts: the others, and ids that stand for their input. */
static const char *const of_other_parts[] = {
    "text_config", "vision_config", "audio_config", "image_token_id", "image_token_index", "video_token_id",
    "audio_token_id", "vision_start_token_id", "vision_end_token_id", "boi_token_id", "eoi_token_id", "boa_token_id",
    "eoa_token_id", "eoa_token_index", "boi_token_index", "eoi_token_index", "mm_tokens_per_image",
    "vision_soft_tokens_per_image", "audio_soft_tokens_per_image", "multimodal_projector_bias",
    "projector_hidden_act", "spatial_merge_size", "vision_feature_layer", NULL,
};

/* The first spelling of a key that has a value in config.json, or else the first that is null; its own if there is
 * none. */
static const char *spelling_of(const rg_checkpoint *ckpt, const rg_key *key)
{
    const char *names[] = { key->hf, key->hf_too[0], key->hf_too[1] }, *first = NULL;

    for (size_t i = 0; i < RG_LEN(names) && names[i]; i++) {
        rg_meta_type type = rg_meta_type_of(ckpt, names[i]);

        if (type > RG_META_NULL)
            return names[i];
        first = !first && type == RG_META_NULL ? names[i] : first;
    }
    return first ? first : key->hf;
}

/* A key without a value is null, or there is none. */
static bool read_absent(const rg_checkpoint *ckpt, const rg_key *key, const char *name, double *value, rg_error *err)
{
    const bool null = name && key->null != NULL_IS_MISSING && rg_config_is_null(ckpt, name);
    const bool zero = null || (key->zero_in_gguf && rg_checkpoint_kind(ckpt) == RG_CKPT_GGUF);

    *value = zero ? 0 : key->fallback;
    if (null && !rg_null_is_zero(key))
        return rg_null_refuse(ckpt, name, err);
    return !isnan(*value) ||
           rg_fail(err, RG_E_INPUT, "%s: key '%s' is missing", rg_checkpoint_path(ckpt), name ? name : key->hf);
}

/* A number, or a list of numbers that are all alike: of every layer.  As rg_meta_int. */
static int read_int(const rg_checkpoint *ckpt, const rg_key *key, const char *name, int64_t *out, rg_error *err)
{
    const int32_t *list = NULL;
    size_t n = 0;

    if (rg_meta_type_of(ckpt, name) != RG_META_ARRAY)
        return rg_meta_int(ckpt, name, key->least, key->most ? key->most : INT32_MAX, out, err);
    if (rg_meta_ints(ckpt, name, &list, &n, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        if (list[i] != list[0] || list[i] < 0) {
            rg_fail(err, RG_E_UNSUPPORTED, "%s: %s has %d at place %zu and %d at place 0, which is not supported: this "
                    "architecture has one number for all layers", rg_checkpoint_path(ckpt), name, (int)list[i], i,
                    (int)list[0]);
            return -1;
        }
    if (n)
        *out = list[0];
    return n > 0;
}

/* Likewise of reals. */
static int read_float(const rg_checkpoint *ckpt, const char *name, double *out, rg_error *err)
{
    const float *list = NULL;
    size_t n = 0;

    if (rg_meta_type_of(ckpt, name) != RG_META_ARRAY)
        return rg_meta_float(ckpt, name, out, err);
    if (rg_meta_floats(ckpt, name, &list, &n, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        if (list[i] != list[0] || !isfinite(list[i])) {
            rg_fail(err, RG_E_UNSUPPORTED, "%s: %s has %g at place %zu and %g at place 0, which is not supported: this "
                    "architecture has one number for all layers", rg_checkpoint_path(ckpt), name, (double)list[i], i,
                    (double)list[0]);
            return -1;
        }
    if (n)
        *out = (double)list[0];
    return n > 0;
}

static bool read_key(void *into, const rg_checkpoint *ckpt, const rg_key *key, rg_error *err)
{
    const bool gguf = rg_checkpoint_kind(ckpt) == RG_CKPT_GGUF;
    char full[128];
    const char *name = gguf ? key->gguf : key->hf;
    char *at = (char *)into + key->at;
    int64_t whole = 0;
    double real = 0;
    bool yes = false;
    int got = 0;

    if (name && gguf)
        name = rg_gguf_key(ckpt, name, full);
    else if (name)
        name = spelling_of(ckpt, key);
    if (name && key->kind == KEY_INT)
        got = read_int(ckpt, key, name, &whole, err);
    else if (name && key->kind == KEY_BOOL)
        got = rg_meta_bool(ckpt, name, &yes, err);
    else if (name)
        got = read_float(ckpt, name, &real, err);
    if (got < 0)
        return false;
    if (!got) {
        if (!read_absent(ckpt, key, name, &real, err))
            return false;
        whole = (int64_t)real;
        yes = real != 0;
    }
    switch (key->kind) {
    case KEY_INT: *(int *)(void *)at = (int)whole; break;
    case KEY_FLOAT: *(float *)(void *)at = (float)real; break;
    case KEY_DOUBLE: *(double *)(void *)at = real; break;
    case KEY_BOOL: *(bool *)(void *)at = yes; break;
    }
    return true;
}

bool rg_config_keys(void *into, const rg_checkpoint *ckpt, const rg_key *keys, size_t n, rg_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (!read_key(into, ckpt, &keys[i], err))
            return false;
    return true;
}

/* The value at a key's place, as a number. */
static double value_at(const rg_config *c, const rg_key *key)
{
    const void *at = (const char *)c + key->at;

    switch (key->kind) {
    case KEY_INT:
        return *(const int *)at;
    case KEY_FLOAT:
        return (double)*(const float *)at;
    case KEY_DOUBLE:
        return *(const double *)at;
    case KEY_BOOL:
        return *(const bool *)at;
    }
    return 0;
}

double rg_config_value(const rg_config *c, const char *name)
{
    for (size_t i = 0; i < c->arch->n_keys; i++) {
        const rg_key *key = &c->arch->keys[i];

        if ((key->hf && !strcmp(key->hf, name)) || (key->gguf && !strcmp(key->gguf, name)))
            return value_at(c, key);
    }
    return NAN;
}

bool rg_config_choice(const rg_checkpoint *ckpt, const char *key, const char *const *choices, int *which, rg_error *err)
{
    const char *s = NULL;
    int got = rg_meta_string(ckpt, key, &s, err);

    *which = -1;
    if (got <= 0)
        return got == 0 && rg_null_allowed(ckpt, key, err);
    for (int i = 0; choices[i]; i++) {
        if (!strcmp(s, choices[i])) {
            *which = i;
            return true;
        }
    }
    return rg_fail(err, RG_E_UNSUPPORTED, "%s: %s is '%.40s', which is not supported (supported: '%s')",
                   rg_checkpoint_path(ckpt), key, s, choices[0]);
}

bool rg_config_has_logits(const rg_config *c)
{
    return !c->arch->is_encoder && !c->headless;
}

bool rg_config_generates(const rg_config *c)
{
    return rg_config_has_logits(c) && (c->sees == RG_CAUSAL || rg_diffusion_fills(&c->diffusion));
}

/* The name is the first word of those of the layers' weights: of a network that drafts, its target's. */
const char *rg_config_rootless(const rg_config *c, const char *name)
{
    const rg_arch *arch = c->target ? c->target->arch : c->arch;
    const char *dot = strchr(arch->hf_prefix ? arch->hf_prefix : "", '.');
    const size_t n = dot && dot[1] ? (size_t)(dot + 1 - arch->hf_prefix) : 0;

    return n && !strncmp(name, arch->hf_prefix, n) ? name + n : NULL;
}

const rg_tensor *rg_config_tensor(const rg_config *c, const rg_checkpoint *ckpt, const char *name)
{
    const rg_tensor *t = rg_checkpoint_find(ckpt, name);
    const char *rest = t || c->from_gguf ? NULL : rg_config_rootless(c, name);

    return rest ? rg_checkpoint_find(ckpt, rest) : t;
}

rg_sight rg_config_sight(const rg_config *c, int layer)
{
    const rg_layer_config *l = &c->layer[layer];

    if (l->pattern >= 0)
        return (rg_sight){ .patterns = &c->patterns[l->pattern] };
    return (rg_sight){ .window = l->window, .around = l->around };
}

int32_t rg_config_rope(const rg_config *c, int32_t length)
{
    int32_t variant = 0;

    for (int i = 0; i < c->n_ropes && !variant; i++)
        variant = rg_rope_variant(&c->ropes[i], length);
    return variant;
}

/* Dynamic NTK stretches the model's own context. */
static bool stretch_context(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    const int context = c->max_seq_len;

    for (int i = 0; i < c->n_ropes; i++) {
        const rg_rope_config *r = &c->ropes[i];

        if (r->type != RG_ROPE_DYNAMIC)
            continue;
        if (r->original_max_seq_len != context)
            return rg_fail(err, RG_E_UNSUPPORTED,
                           "%s: rope 'dynamic' with original_max_position_embeddings %lld, which is not supported "
                           "(supported: max_position_embeddings, %d)",
                           rg_checkpoint_path(ckpt), (long long)r->original_max_seq_len, context);
        c->max_seq_len = r->factor * context < INT32_MAX ? (int)(r->factor * context) : INT32_MAX;
    }
    return true;
}

/* ---- special ids and sampling ---- */

/* The first id at a key; -1: none. */
static bool first_id(const rg_checkpoint *ckpt, const char *key, int64_t *id, rg_error *err)
{
    const int32_t *ids;
    size_t n = 0;

    *id = -1;
    if (rg_meta_type_of(ckpt, key) != RG_META_ARRAY)
        return rg_meta_int(ckpt, key, -1, UINT32_MAX, id, err) >= 0;
    if (rg_meta_ints(ckpt, key, &ids, &n, err) < 0)
        return false;
    *id = n ? ids[0] : -1;
    return true;
}

/* Where sequences begin, and what stands between two texts: the separator, or else the end of a text.  (Which ids end
 * an answer is the text floor's to find: text/ends.h.) */
static bool read_special(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const char *const keys[2][3] = {
        { "sep_token_id", "generation.eos_token_id", "eos_token_id" },
        { "tokenizer.ggml.seperator_token_id", "tokenizer.ggml.eos_token_id", NULL },
    };
    int64_t bos = -1, sep = -1;

    if (c->from_gguf && rg_meta_int(ckpt, "tokenizer.ggml.bos_token_id", 0, UINT32_MAX, &bos, err) < 0)
        return false;
    if (!c->from_gguf && rg_meta_type_of(ckpt, "bos_token_id") == RG_META_INT &&
        rg_meta_int(ckpt, "bos_token_id", -1, UINT32_MAX, &bos, err) < 0)
        return false;
    for (int i = 0; i < 3 && keys[c->from_gguf][i] && (sep < 0 || sep >= c->vocab_size); i++)
        if (!first_id(ckpt, keys[c->from_gguf][i], &sep, err))
            return false;
    if (sep >= c->vocab_size && sep != UINT32_MAX) /* of the last key: GGUF writes -1 without a sign */
        return rg_fail(err, RG_E_INPUT, "%s: the id %lld that ends a sequence is beyond the vocabulary of %d",
                       rg_checkpoint_path(ckpt), (long long)sep, c->vocab_size);
    c->sep_id = sep >= 0 && sep < c->vocab_size ? (int32_t)sep : -1;
    if (bos == UINT32_MAX)
        bos = -1;
    if (bos >= c->vocab_size)
        return rg_fail(err, RG_E_INPUT, "%s: the id %lld at which sequences begin is beyond the vocabulary of %d",
                       rg_checkpoint_path(ckpt), (long long)bos, c->vocab_size);
    c->bos_id = (int32_t)bos;
    return true;
}

#define SAMPLING(hf, gguf, field) { hf, RG_SAMPLING_KEYS gguf, offsetof(rg_sampling, field), INT32_MIN }
#define COUNTED(hf, gguf, field, least) { hf, RG_SAMPLING_KEYS gguf, offsetof(rg_sampling, field), least }

const rg_sampling_key rg_sampling_keys[RG_N_SAMPLING_KEYS] = {
    SAMPLING("generation.temperature", "temp", temperature),
    COUNTED("generation.top_k", "top_k", top_k, 0),
    SAMPLING("generation.top_p", "top_p", top_p),
    SAMPLING("generation.min_p", "min_p", min_p),
    SAMPLING("generation.typical_p", "typical_p", typical_p),
    SAMPLING("generation.repetition_penalty", "penalty_repeat", repetition_penalty),
    COUNTED(NULL, "penalty_last_n", penalty_last_n, -1),
    SAMPLING(NULL, "xtc_probability", xtc_probability),
    SAMPLING(NULL, "xtc_threshold", xtc_threshold),
    COUNTED(NULL, "mirostat", mirostat, 0),
    SAMPLING(NULL, "mirostat_tau", mirostat_tau),
    SAMPLING(NULL, "mirostat_eta", mirostat_eta),
};

/* A count below the least is what some writers put for "no limit". */
static bool read_sampling_key(rg_sampling *s, const rg_checkpoint *ckpt, const rg_sampling_key *k, bool gguf,
                              rg_error *err)
{
    const char *name = gguf ? k->gguf : k->hf;
    void *at = (char *)s + k->at;
    int64_t whole = 0;
    double real = 0;
    int got = !name                  ? 0
              : k->least > INT32_MIN ? rg_meta_int(ckpt, name, gguf ? INT32_MIN : 0, INT32_MAX, &whole, err)
                                     : rg_meta_float(ckpt, name, &real, err);

    if (got > 0 && k->least > INT32_MIN && whole >= k->least)
        *(int32_t *)at = (int32_t)whole;
    else if (got > 0 && k->least == INT32_MIN)
        *(float *)at = (float)real;
    return got >= 0;
}

static void understand_general(void *arg, const char *key, rg_meta_type type, bool understood)
{
    (void)type;
    (void)understood;
    if (!strncmp(key, "general.", 8) && strncmp(key, RG_SAMPLING_KEYS, strlen(RG_SAMPLING_KEYS)) != 0)
        rg_meta_understand(arg, key);
}

static bool read_sampling(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    int64_t last_n = -1;
    bool sample = true;

    c->sampling = (rg_sampling)RG_SAMPLING_NEUTRAL;
    for (int i = 0; i < RG_N_SAMPLING_KEYS; i++)
        if (!read_sampling_key(&c->sampling, ckpt, &rg_sampling_keys[i], c->from_gguf, err))
            return false;
    if (rg_meta_bool(ckpt, "generation.do_sample", &sample, err) < 0 ||
        rg_meta_int(ckpt, RG_SAMPLING_KEYS "penalty_last_n", INT32_MIN, INT32_MAX, &last_n, err) < 0)
        return false;
    if (!sample)
        c->sampling.temperature = 1;
    if (!last_n) /* in GGUF a penalty of the last 0 ids is none */
        c->sampling.repetition_penalty = 1;
    rg_meta_understand(ckpt, "generation.");
    rg_meta_understand(ckpt, "tokenizer_config.");
    rg_meta_understand(ckpt, "tokenizer.");
    rg_meta_understand(ckpt, "split.");
    rg_meta_each(ckpt, understand_general, (void *)(uintptr_t)ckpt);
    return true;
}

/* The number of layers may follow from a list that has an entry for each. */
static bool read_sizes(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    const rg_key *layers = &common_keys[0];
    const char *list = c->arch->layer_list;
    bool counted = !c->from_gguf && list && rg_meta_type_of(ckpt, spelling_of(ckpt, layers)) == RG_META_NONE &&
                   rg_meta_type_of(ckpt, list) == RG_META_ARRAY;
    size_t n = 0;

    if (!rg_config_keys(c, ckpt, layers + counted, RG_LEN(common_keys) - counted, err) ||
        (counted && rg_meta_length(ckpt, list, &n, err) < 0))
        return false;
    if (counted)
        c->n_layers = (int)(n < RG_MAX_LAYERS ? n : RG_MAX_LAYERS + 1); /* too many are refused with the rest */
    return true;
}

/* A checkpoint may leave vocab_size to the embedding's shape, GGUF also to the token list. */
static bool read_vocab(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    char key[128];
    int64_t n = 0;
    size_t n_tokens;
    int got =
        rg_meta_int(ckpt, c->from_gguf ? rg_gguf_key(ckpt, "vocab_size", key) : "vocab_size", 1, INT32_MAX, &n, err);
    const rg_tensor *embed = c->from_gguf ? rg_checkpoint_find(ckpt, "token_embd.weight")
                                          : rg_config_tensor(c, ckpt, "model.embed_tokens.weight");

    if (got < 0)
        return false;
    if (!got && embed)
        n = rg_tensor_rows(embed);
    else if (!got && c->from_gguf && rg_meta_length(ckpt, "tokenizer.ggml.tokens", &n_tokens, NULL) > 0)
        n = (int64_t)n_tokens;
    if (n < 1 || n > INT32_MAX)
        return rg_fail(err, RG_E_INPUT, "%s: vocab_size is missing", rg_checkpoint_path(ckpt));
    c->vocab_size = (int)n;
    return true;
}

/* ---- what was not read ---- */

typedef struct stray {
    const rg_config *c;
    bool scaling_wins; /* rope_scaling stands in for rope_parameters */
    char key[160];     /* the first known key in a place where it is not read; "": none */
} stray;

static bool is_known(const rg_config *c, const char *name)
{
    if (rg_rope_has_number(name))
        return true;
    for (size_t i = 0; i < RG_LEN(common_keys); i++)
        if (!strcmp(name, common_keys[i].hf))
            return true;
    for (size_t i = 0; i < c->arch->n_keys; i++)
        if (c->arch->keys[i].hf && !strcmp(name, c->arch->keys[i].hf))
            return true;
    return false;
}

static void find_stray(void *arg, const char *key, rg_meta_type type, bool understood)
{
    stray *s = arg;
    const char *name = strrchr(key, '.');

    if (understood || type == RG_META_NULL || !name || s->key[0] || !is_known(s->c, name + 1))
        return;
    if (!(s->scaling_wins && !strncmp(key, "rope_parameters.", 16)))
        snprintf(s->key, sizeof s->key, "%s", key);
}

/* A setting that this model uses, in an object that is not read, would be ignored silently. */
static bool require_no_stray(const rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    stray s = { .c = c, .scaling_wins = rg_rope_has_scaling(ckpt) };

    if (c->from_gguf)
        return true;
    rg_meta_each(ckpt, find_stray, &s);
    if (!s.key[0])
        return true;
    return rg_fail(err, RG_E_UNSUPPORTED, "%s: the key '%s' stands where this architecture does not read it",
                   rg_checkpoint_path(ckpt), s.key);
}

/* What is meant where nothing says otherwise. */
static void begin(rg_config *c, const rg_checkpoint *ckpt)
{
    memset(c, 0, sizeof *c);
    c->from_gguf = rg_checkpoint_kind(ckpt) == RG_CKPT_GGUF;
    c->embed_scale = 1;
    c->sees = RG_CAUSAL;
    c->diffusion.mask_id = -1;
    c->logit_scale = 1;
    for (int i = 0; i < RG_MAX_LAYERS; i++)
        c->layer[i].kv_layer = c->layer[i].pattern = -1;
}

static bool check_eps(const rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    return (c->norm_eps > 0 && c->norm_eps < 1) ||
           rg_fail(err, RG_E_INPUT, "%s: the norm's eps %g is not between 0 and 1", rg_checkpoint_path(ckpt),
                   (double)c->norm_eps);
}

/* Rows that see each other, and no masks: an encoder's. */
static bool rows_embed(const rg_config *c)
{
    return c->sees == RG_SEES_ALL && !rg_diffusion_fills(&c->diffusion);
}

bool rg_config_read(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    begin(c, ckpt);
    if (rg_checkpoint_is_adapter(ckpt))
        return rg_fail(err, RG_E_USAGE,
                       "%s is a LoRA adapter, not a model: give the model that it was trained for, and --lora NAME=%s",
                       rg_checkpoint_path(ckpt), rg_checkpoint_path(ckpt));
    c->arch = rg_arch_find(ckpt, err);
    if (!c->arch)
        return false;
    RG_ASSERT(c->arch->own_bytes <= sizeof c->own);
    if (!read_sizes(c, ckpt, err) || !read_vocab(c, ckpt, err))
        return false;
    if (c->n_layers < 1 || c->n_layers > RG_MAX_LAYERS || c->dim < 1)
        return rg_fail(err, RG_E_INPUT,
                       "%s: %d layers of width %d: ridge takes 1 to %d layers and a width of at least 1",
                       rg_checkpoint_path(ckpt), c->n_layers, c->dim, RG_MAX_LAYERS);
    if (!rg_config_keys(c, ckpt, c->arch->keys, c->arch->n_keys, err) || !c->arch->finish(c, ckpt, err) ||
        !rg_bidirectional_read(c, ckpt, err) || !rg_tied_settle(c, ckpt, err) || !read_special(c, ckpt, err) ||
        !read_sampling(c, ckpt, err) || !rg_embedding_read(&c->embedding, ckpt, c->dim, rows_embed(c), err))
        return false;
    for (int i = 0; i < c->n_ropes; i++)
        rg_rope_complete(&c->ropes[i], c->max_seq_len);
    if (!stretch_context(c, ckpt, err))
        return false;
    for (int i = 0; harmless[i]; i++)
        rg_meta_understand(ckpt, harmless[i]);
    for (int i = 0; rg_checkpoint_has_parts(ckpt) && of_other_parts[i]; i++)
        rg_meta_understand(ckpt, of_other_parts[i]);
    for (int i = 0; c->arch->harmless && c->arch->harmless[i]; i++)
        rg_meta_understand(ckpt, c->arch->harmless[i]);
    rg_meta_understand(ckpt, rg_arch_mtp_of(c->arch)->module_key);
    if (!require_no_stray(c, ckpt, err) || !check_eps(c, ckpt, err))
        return false;
    if (c->max_seq_len < 1)
        return rg_fail(err, RG_E_INPUT, "%s: the context length is 0", rg_checkpoint_path(ckpt));
    return true;
}

/* ---- networks that draft ----------------------------------------------------------------------------------------- */

/* The module of the model's own checkpoint is a layer more of it. */
static bool read_mtp(rg_config *c, const rg_checkpoint *ckpt, const rg_config *target, rg_error *err)
{
    *c = *target;
    c->target = target;
    c->arch = rg_arch_mtp_of(target->arch);
    c->first_layer = target->n_layers;
    c->layer[0] = target->layer[target->n_layers - 1];
    c->layer[0].kv_layer = -1;
    c->n_layers = 1;
    c->places = (rg_feature_places){ 1, { RG_HEAD_INPUT } };
    return c->arch->finish(c, ckpt, err);
}

bool rg_config_read_draft(rg_config *c, const rg_checkpoint *ckpt, const rg_config *target, bool mtp, rg_error *err)
{
    if (mtp)
        return read_mtp(c, ckpt, target, err);
    begin(c, ckpt);
    c->arch = c->from_gguf ? NULL : rg_arch_find_draft(ckpt, err);
    if (c->from_gguf)
        rg_fail(err, RG_E_UNSUPPORTED, "%s: GGUF has no form of a network that drafts", rg_checkpoint_path(ckpt));
    if (!c->arch)
        return false;
    RG_ASSERT(c->arch->own_bytes <= sizeof c->own);
    c->target = target;
    c->n_layers = 1;
    c->dim = target->dim;
    c->vocab_size = target->vocab_size;
    c->max_seq_len = target->max_seq_len;
    c->norm_eps = target->norm_eps;
    c->embed_scale = target->embed_scale;
    c->logit_scale = target->logit_scale;
    c->logit_softcap = target->logit_softcap;
    if (!rg_config_keys(c, ckpt, c->arch->keys, c->arch->n_keys, err) || !c->arch->finish(c, ckpt, err))
        return false;
    for (int i = 0; i < c->n_ropes; i++)
        rg_rope_complete(&c->ropes[i], c->max_seq_len);
    return check_eps(c, ckpt, err) &&
           (c->max_seq_len > 0 ||
            rg_fail(err, RG_E_INPUT, "%s: the context length is 0", rg_checkpoint_path(ckpt)));
}
