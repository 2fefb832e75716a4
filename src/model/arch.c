/* arch.c -- the table of architectures, and how long the sides of their weights are. */
#include "model/arch.h"

#include <string.h>

#define ARCH(file) extern const rg_arch rg_arch_##file;
#include "model/arch/archs.def"
#undef ARCH
extern const rg_arch rg_arch_module;

enum { ALL_NAMES = 1900 }; /* bytes of the names of all architectures in one line */

static const rg_arch *const archs[] = {
#define ARCH(file) &rg_arch_##file,
#include "model/arch/archs.def"
#undef ARCH
};

/* Its name in this kind of checkpoint; "": it has none. */
static const char *name_of(const rg_arch *a, bool gguf)
{
    const char *name = gguf ? a->gguf_name : a->hf_name ? a->hf_name : a->hf_type;

    return name ? name : "";
}

const char *rg_config_name(const rg_config *c)
{
    return name_of(c->arch, c->from_gguf);
}

static bool is_of_type(const rg_arch *a, const char *type)
{
    bool yes = type && a->hf_type && !strcmp(a->hf_type, type);

    for (size_t i = 0; type && i < RG_LEN(a->hf_type_too); i++)
        yes = yes || (a->hf_type_too[i] && !strcmp(a->hf_type_too[i], type));
    return yes;
}

/* Ends of the names of classes that have the same layers. */
static const struct {
    const char *end;
    bool bidirectional;
} class_ends[] = {
    { "ForCausalLM", false }, { "LMHeadModel", false }, { "BidirectionalModel", true },
    { "BiModel", true },      { "TextModel", false },   { "EncoderModel", true },
    { "Model", false },
};

/* Bytes of a class's name without its end, which is number *end, or -1 if it has none of these. */
static size_t class_base(const char *name, int *end)
{
    const size_t n = strlen(name);

    for (size_t i = 0; i < RG_LEN(class_ends); i++) {
        const size_t n_end = strlen(class_ends[i].end);

        if (n > n_end && !strcmp(name + n - n_end, class_ends[i].end)) {
            *end = (int)i;
            return n - n_end;
        }
    }
    *end = -1;
    return n;
}

static bool is_same_class(const char *hf_name, const char *name)
{
    int end, other;
    const size_t n = class_base(name, &end), n_hf = class_base(hf_name, &other);

    return !strcmp(hf_name, name) || (end >= 0 && other >= 0 && n == n_hf && !strncmp(hf_name, name, n));
}

static bool is_of_class(const rg_arch *a, const char *name)
{
    bool yes = is_same_class(name_of(a, false), name);

    for (size_t i = 0; i < RG_LEN(a->hf_name_too); i++)
        yes = yes || (a->hf_name_too[i] && is_same_class(a->hf_name_too[i], name));
    return yes;
}

bool rg_arch_class_is_bidirectional(const rg_checkpoint *ckpt)
{
    const char *name = NULL;
    int end = -1;

    if (rg_meta_string(ckpt, "architectures.0", &name, NULL) == 1)
        class_base(name, &end);
    return end >= 0 && class_ends[end].bidirectional;
}

static bool matches(const rg_arch *a, const rg_checkpoint *ckpt, const char *name, const char *type)
{
    bool gguf = rg_checkpoint_kind(ckpt) == RG_CKPT_GGUF, by_type = !gguf && (!name || !a->hf_name);
    bool (*claims)(const rg_checkpoint *) = gguf ? a->claims : a->claims_hf;

    bool named = name && name[0] && (gguf ? !strcmp(name_of(a, gguf), name) : is_of_class(a, name));

    return (by_type ? is_of_type(a, type) : named) && (!claims || claims(ckpt));
}

/* The names of architectures in this kind of checkpoint, each once. */
static bool unknown(const rg_checkpoint *ckpt, const char *name, bool gguf, rg_error *err)
{
    char list[ALL_NAMES] = "";

    for (size_t i = 0, j; i < RG_LEN(archs); i++) {
        for (j = 0; j < i && strcmp(name_of(archs[i], gguf), name_of(archs[j], gguf)); j++)
            ;
        if (j < i || !name_of(archs[i], gguf)[0])
            continue;
        strncat(list, list[0] ? ", " : "", sizeof list - strlen(list) - 1);
        strncat(list, name_of(archs[i], gguf), sizeof list - strlen(list) - 1);
    }
    return rg_fail(err, RG_E_UNSUPPORTED, "%s: architecture '%.60s' is not one of %s", rg_checkpoint_path(ckpt), name,
                   list);
}

const rg_arch *rg_arch_find(const rg_checkpoint *ckpt, rg_error *err)
{
    const char *name = NULL, *type = NULL;
    bool gguf = rg_checkpoint_kind(ckpt) == RG_CKPT_GGUF;

    if (rg_meta_string(ckpt, gguf ? "general.architecture" : "architectures.0", &name, err) < 0 ||
        (!gguf && rg_meta_string(ckpt, "model_type", &type, err) < 0))
        return NULL;
    if (rg_checkpoint_has_parts(ckpt) && type) /* the name is that of all parts, the type that of the language model */
        name = NULL;
    for (size_t i = 0; i < RG_LEN(archs); i++)
        if (matches(archs[i], ckpt, name, type))
            return archs[i];
    if (name || type)
        unknown(ckpt, name ? name : type, gguf, err);
    else
        rg_fail(err, RG_E_INPUT, "%s: no model: %s", rg_checkpoint_path(ckpt),
                gguf ? "the key general.architecture is missing"
                     : "there is no config.json, or no architectures and no model_type in it");
    return NULL;
}

#define NETWORK(file) extern const rg_arch rg_network_##file;
#include "model/arch/networks.def"
#undef NETWORK

const rg_arch *rg_arch_find_draft(const rg_checkpoint *ckpt, rg_error *err)
{
    static const rg_arch *const networks[] = {
#define NETWORK(file) &rg_network_##file,
#include "model/arch/networks.def"
#undef NETWORK
    };

    for (size_t i = 0; i < RG_LEN(networks); i++)
        if (networks[i]->claims(ckpt))
            return networks[i];
    rg_fail(err, RG_E_UNSUPPORTED,
            "%s: its tensors are those of no network that drafts: not of Medusa heads, EAGLE or "
            "EAGLE-3",
            rg_checkpoint_path(ckpt));
    return NULL;
}

const rg_arch *rg_arch_mtp_of(const rg_arch *target)
{
    return target->mtp ? target->mtp : &rg_arch_module;
}

const rg_arch *rg_arch_of_layers(const rg_config *c)
{
    return c->arch->kinds || !c->target ? c->arch : c->target->arch;
}

const rg_layer_kind *rg_layer_kind_of(const rg_config *c, int layer)
{
    return &rg_arch_of_layers(c)->kinds[c->layer[layer].kind];
}

SIZE(DIM, c->dim)
SIZE(DIM_2, 2 * (int64_t)c->dim)
SIZE(VOCAB, c->vocab_size)
SIZE(Q_DIM, (int64_t)c->n_heads * c->head_dim)
SIZE(KV_DIM, (int64_t)c->n_kv_heads * c->head_dim)
SIZE(QKV_DIM, ((int64_t)c->n_heads + 2 * (int64_t)c->n_kv_heads) * c->head_dim)
SIZE(HEAD_DIM, c->head_dim)
SIZE(FFN_DIM, layer >= 0 && c->layer[layer].ffn_dim ? c->layer[layer].ffn_dim : c->ffn_dim)
SIZE(FFN_DIM_2, 2 * FFN_DIM(c, layer))
SIZE(N_EXPERTS, c->routing.n_experts)
SIZE(MOE_DIM, c->moe_ffn_dim)
SIZE(MOE_DIM_2, 2 * (int64_t)c->moe_ffn_dim)
SIZE(SHARED_DIM, c->shared_ffn_dim ? c->shared_ffn_dim : (int64_t)c->n_shared_experts * c->moe_ffn_dim)
SIZE(N_HEADS, c->n_heads)
SIZE(ROPE_PAIRS, c->ropes[0].dim / 2)
SIZE(ONE, 1)
SIZE(ROW_0, 0)
SIZE(ROW_1, 1)
SIZE(ROW_OF_K, Q_DIM(c, layer))
SIZE(ROW_OF_V, Q_DIM(c, layer) + KV_DIM(c, layer))
