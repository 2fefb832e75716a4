/* adapter_file.c -- see adapter_file.h. */
#include "model/adapter_file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NAME = 512 };

static const char peft_prefix[] = "base_model.model.";

static bool refuse(const rg_adapter_file *f, rg_error *err, const char *what)
{
    return rg_fail(err, RG_E_UNSUPPORTED, "%s: %s", rg_checkpoint_path(f->ckpt), what);
}

/* ---- settings of a PEFT folder ---- */

/* Settings that must be false, null, empty or absent: what they would mean otherwise. */
static const struct {
    const char *key, *what;
} plain[] = {
    { "use_dora", "DoRA (use_dora) is not supported" },
    { "use_qalora", "QALoRA (use_qalora) is not supported" },
    { "use_bdlora", "block-diagonal LoRA (use_bdlora) is not supported" },
    { "kasa_config", "KaSA (kasa_config) is not supported" },
    { "arrow_config", "Arrow (arrow_config) is not supported" },
    { "monteclora_config", "MonteCLoRA (monteclora_config) is not supported" },
    { "lora_bias", "biases of LoRA matrices (lora_bias) are not supported" },
    { "modules_to_save", "modules that were trained whole (modules_to_save) are not supported" },
    { "trainable_token_indices", "trained rows of an embedding (trainable_token_indices) are not supported" },
    { "target_parameters", "LoRA of parameters (target_parameters), as of stacked experts, is not supported" },
    { "layer_replication", "replicated layers (layer_replication) are not supported" },
    { "alora_invocation_tokens", "activated LoRA (alora_invocation_tokens) is not supported" },
};

static bool is_empty(const rg_checkpoint *c, const char *key)
{
    bool yes = false;
    size_t n = 0;

    switch (rg_meta_type_of(c, key)) {
    case RG_META_NONE:
    case RG_META_NULL:
        return true;
    case RG_META_BOOL:
        return rg_meta_bool(c, key, &yes, NULL) >= 0 && !yes;
    case RG_META_ARRAY:
        return rg_meta_length(c, key, &n, NULL) >= 0 && !n;
    default:
        return false;
    }
}

/* Ways of initialising that change the model's own weights: A and B alone are then not what was trained. */
static bool check_init(const rg_adapter_file *f, rg_error *err)
{
    static const char *const changing[] = { "pissa", "olora", "corda", "loftq", "lora_ga" };
    const char *init = NULL;

    if (rg_meta_type_of(f->ckpt, "init_lora_weights") != RG_META_STRING)
        return true;
    if (rg_meta_string(f->ckpt, "init_lora_weights", &init, err) < 0)
        return false;
    for (size_t i = 0; i < RG_LEN(changing); i++)
        if (!strncmp(init, changing[i], strlen(changing[i])))
            return rg_fail(err, RG_E_UNSUPPORTED,
                           "%s: init_lora_weights '%.20s' changed the model's own weights: save the adapter converted "
                           "to LoRA (PEFT's path_initial_model_for_weight_conversion)",
                           rg_checkpoint_path(f->ckpt), init);
    return true;
}

static bool check_words(const rg_adapter_file *f, rg_error *err)
{
    const char *type = NULL, *bias = "none";

    if (rg_meta_string(f->ckpt, "peft_type", &type, err) < 0 || rg_meta_string(f->ckpt, "bias", &bias, err) < 0)
        return false;
    if (!type || strcmp(type, "LORA") != 0)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: peft_type '%.40s': only LORA is supported",
                       rg_checkpoint_path(f->ckpt), type ? type : "");
    if (strcmp(bias, "none") != 0)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: bias '%.40s': only none is supported", rg_checkpoint_path(f->ckpt),
                       bias);
    return true;
}

typedef struct pattern {
    const rg_adapter_file *f;
    const char *prefix, *module; /* "rank_pattern.", "alpha_pattern."; module NULL: only check the keys */
    double value;
    bool found;
    const char *irregular;
    char key[NAME];
} pattern;

/* A key is the end of a module's name; PEFT takes it as a regular expression, of which '.' is read as itself. */
static void see_key(void *arg, const char *key, rg_meta_type type, bool understood)
{
    pattern *p = arg;
    const size_t n = strlen(p->prefix);

    (void)type, (void)understood;
    if (strncmp(key, p->prefix, n) != 0 || p->found)
        return;
    const char *end = key + n;
    if (strpbrk(end, "^$*+?()[]{}|\\") && !p->irregular) {
        snprintf(p->key, sizeof p->key, "%s", end);
        p->irregular = p->key;
    }
    if (!p->module)
        return;
    size_t k = strlen(end), m = strlen(p->module);
    if (k <= m && !strcmp(p->module + m - k, end) && (k == m || p->module[m - k - 1] == '.'))
        p->found = rg_meta_float(p->f->ckpt, key, &p->value, NULL) == 1;
}

static double by_pattern(const rg_adapter_file *f, const char *prefix, const char *module, double usual)
{
    pattern p = { .f = f, .prefix = prefix, .module = module };

    rg_meta_each(f->ckpt, see_key, &p);
    return p.found ? p.value : usual;
}

static bool check_patterns(const rg_adapter_file *f, rg_error *err)
{
    static const char *const prefixes[] = { "rank_pattern.", "alpha_pattern." };

    for (size_t i = 0; i < RG_LEN(prefixes); i++) {
        pattern p = { .f = f, .prefix = prefixes[i] };

        rg_meta_each(f->ckpt, see_key, &p);
        if (p.irregular)
            return rg_fail(err, RG_E_UNSUPPORTED, "%s: %s%.80s: regular expressions are not supported, names are",
                           rg_checkpoint_path(f->ckpt), prefixes[i], p.irregular);
    }
    return true;
}

static bool read_peft(rg_adapter_file *f, rg_error *err)
{
    for (size_t i = 0; i < RG_LEN(plain); i++)
        if (!is_empty(f->ckpt, plain[i].key))
            return refuse(f, err, plain[i].what);
    f->rank = f->alpha = 8; /* PEFT's own defaults */
    if (rg_meta_float(f->ckpt, "r", &f->rank, err) < 0 || rg_meta_float(f->ckpt, "lora_alpha", &f->alpha, err) < 0 ||
        rg_meta_bool(f->ckpt, "use_rslora", &f->by_root, err) < 0 ||
        rg_meta_string(f->ckpt, "base_model_name_or_path", &f->of, err) < 0)
        return false;
    return check_words(f, err) && check_init(f, err) && check_patterns(f, err);
}

/* ---- settings of GGUF ---- */

static bool read_gguf(rg_adapter_file *f, rg_error *err)
{
    const char *type = NULL;

    if (rg_meta_string(f->ckpt, "adapter.type", &type, err) < 0)
        return false;
    if (!type || strcmp(type, "lora") != 0)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: adapter.type '%.40s': only lora is supported",
                       rg_checkpoint_path(f->ckpt), type ? type : "");
    if (!is_empty(f->ckpt, "adapter.alora.invocation_tokens"))
        return refuse(f, err, "activated LoRA (adapter.alora.invocation_tokens) is not supported");
    int there = rg_meta_float(f->ckpt, "adapter.lora.alpha", &f->alpha, err);
    if (there < 0)
        return false;
    return there || rg_fail(err, RG_E_INPUT, "%s: the key adapter.lora.alpha is missing", rg_checkpoint_path(f->ckpt));
}

bool rg_adapter_file_open(rg_adapter_file *f, const char *path, rg_error *err)
{
    *f = (rg_adapter_file){ .ckpt = rg_checkpoint_open(path, RG_CKPT_ADAPTER, err) };
    if (!f->ckpt)
        return false;
    if (!rg_checkpoint_is_adapter(f->ckpt))
        return rg_fail(err, RG_E_INPUT, "%s: no LoRA adapter: general.type is not \"adapter\"", path);
    f->is_gguf = rg_checkpoint_kind(f->ckpt) == RG_CKPT_GGUF;
    if (!(f->is_gguf ? read_gguf(f, err) : read_peft(f, err)))
        return false;
    return isfinite(f->alpha) || rg_fail(err, RG_E_INPUT, "%s: alpha is not a number", path);
}

void rg_adapter_file_close(rg_adapter_file *f)
{
    rg_checkpoint_close(f->ckpt);
    f->ckpt = NULL;
}

/* ---- tensors ---- */

static const rg_tensor *find(const rg_adapter_file *f, const char *before, const char *module, const char *after)
{
    char name[NAME];
    int n = snprintf(name, sizeof name, "%s%s%s", before, module, after);

    return n > 0 && n < (int)sizeof name ? rg_checkpoint_find(f->ckpt, name) : NULL;
}

bool rg_adapter_file_find(const rg_adapter_file *f, const char *module, const rg_tensor **a, const rg_tensor **b)
{
    /* What models of several parts have their language model in. */
    static const char *const inside[] = { "base_model.model.language_model.",
                                          "base_model.model.model.language_model." };

    if (f->is_gguf) {
        *a = find(f, "", module, ".weight.lora_a");
        *b = find(f, "", module, ".weight.lora_b");
        return *a || *b;
    }
    *a = find(f, peft_prefix, module, ".lora_A.weight");
    *b = find(f, peft_prefix, module, ".lora_B.weight");
    for (size_t i = 0; i < RG_LEN(inside) && !*a && !*b; i++) {
        const char *rest = i && !strncmp(module, "model.", 6) ? module + 6 : module;

        *a = find(f, inside[i], rest, ".lora_A.weight");
        *b = find(f, inside[i], rest, ".lora_B.weight");
    }
    return *a || *b;
}

bool rg_adapter_file_scale(const rg_adapter_file *f, const char *module, int64_t rank, float *scale, rg_error *err)
{
    double want = f->is_gguf ? (double)rank : by_pattern(f, "rank_pattern.", module, f->rank);
    double alpha = f->is_gguf ? f->alpha : by_pattern(f, "alpha_pattern.", module, f->alpha);

    if ((double)rank != want)
        return rg_fail(err, RG_E_INPUT, "%s: '%s' has matrices of rank %lld where adapter_config.json says %g",
                       rg_checkpoint_path(f->ckpt), module, (long long)rank, want);
    *scale = (float)(alpha / (f->by_root ? sqrt(want) : want));
    return true;
}

static bool has(const char *name, const char *part)
{
    return strstr(name, part);
}

void rg_adapter_file_blame(const rg_adapter_file *f, const rg_tensor *t, rg_error *err)
{
    const char *why = "belongs to no matrix of this model";

    if (has(t->name, "lora_embedding_") || has(t->name, "token_embd."))
        why = "changes an embedding, which is not supported";
    else if (has(t->name, ".base_layer."))
        why = "is a copy of the model's own: save the adapter without it (PEFT's save_embedding_layers=False)";
    else if (has(t->name, "lora_magnitude_vector"))
        why = "is of DoRA, which is not supported";
    else if (!has(t->name, ".lora_A.weight") && !has(t->name, ".lora_B.weight") && !has(t->name, ".lora_a") &&
             !has(t->name, ".lora_b"))
        why = "is no matrix of LoRA";
    else if (has(t->name, "experts.") || has(t->name, "_exps."))
        why = "changes experts, which is not supported";
    rg_fail(err, RG_E_UNSUPPORTED, "%s: tensor '%.200s' %s", rg_checkpoint_path(f->ckpt), t->name, why);
}
