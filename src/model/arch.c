/* arch.c -- the table of architectures, and how long the sides of their weights are. */
#include "model/arch.h"

#include <string.h>

#define ARCH(file) extern const rg_arch rg_arch_##file;
#include "model/arch/archs.def"
#undef ARCH

static const rg_arch *const archs[] = {
#define ARCH(file) &rg_arch_##file,
#include "model/arch/archs.def"
#undef ARCH
};

static bool matches(const rg_arch *a, const rg_checkpoint *ckpt, const char *name, const char *type)
{
    if (rg_checkpoint_kind(ckpt) == RG_CKPT_GGUF)
        return name && !strcmp(a->gguf_name, name) && (!a->claims || a->claims(ckpt));
    return name ? !strcmp(a->hf_name, name) : type && !strcmp(a->hf_type, type);
}

const rg_arch *rg_arch_find(const rg_checkpoint *ckpt, rg_error *err)
{
    const char *name = NULL, *type = NULL;
    char list[256] = "";
    bool gguf = rg_checkpoint_kind(ckpt) == RG_CKPT_GGUF;

    if (rg_meta_string(ckpt, gguf ? "general.architecture" : "architectures.0", &name, err) < 0 ||
        (!gguf && rg_meta_string(ckpt, "model_type", &type, err) < 0))
        return NULL;
    for (size_t i = 0; i < RG_LEN(archs); i++)
        if (matches(archs[i], ckpt, name, type))
            return archs[i];
    if (!name && !type)
        return rg_fail(err, RG_E_INPUT, "%s: no model: %s", rg_checkpoint_path(ckpt),
                       gguf ? "the key general.architecture is missing"
                            : "there is no config.json, or no architectures and no model_type in it"),
               NULL;
    for (size_t i = 0; i < RG_LEN(archs); i++) {
        strncat(list, i ? ", " : "", sizeof list - strlen(list) - 1);
        strncat(list, gguf ? archs[i]->gguf_name : archs[i]->hf_name, sizeof list - strlen(list) - 1);
    }
    rg_fail(err, RG_E_UNSUPPORTED, "%s: architecture '%.60s' is not one of %s", rg_checkpoint_path(ckpt),
            name ? name : type, list);
    return NULL;
}

int64_t rg_size_of(const rg_config *c, rg_size size)
{
    int64_t heads = c->n_heads;

    switch (size) {
    case SIZE_NONE: return 1;
    case DIM: return c->dim;
    case VOCAB: return c->vocab_size;
    case Q_DIM: return heads * c->head_dim;
    case KV_DIM: return (int64_t)c->n_kv_heads * c->head_dim;
    case HEAD_DIM: return c->head_dim;
    case FFN_DIM: return c->ffn_dim;
    case N_EXPERTS: return c->routing.n_experts;
    case MOE_DIM: return c->moe_ffn_dim;
    case SHARED_DIM: return (int64_t)c->n_shared_experts * c->moe_ffn_dim;
    case N_HEADS: return heads;
    case Q_RANK: return c->q_lora_rank;
    case KV_RANK: return c->kv_lora_rank;
    case KV_A_DIM: return (int64_t)c->kv_lora_rank + c->rope_dim;
    case NOPE_DIM: return c->nope_dim;
    case V_DIM: return c->v_dim;
    case MLA_Q_DIM: return heads * (c->nope_dim + c->rope_dim);
    case MLA_KV_B_DIM: return heads * (c->nope_dim + c->v_dim);
    case MLA_O_DIM: return heads * c->v_dim;
    case D_INNER: return c->d_inner;
    case D_INNER_2: return 2 * (int64_t)c->d_inner;
    case D_STATE: return c->d_state;
    case D_CONV: return c->d_conv;
    case DT_RANK: return c->dt_rank;
    case X_PROJ_DIM: return (int64_t)c->dt_rank + 2 * (int64_t)c->d_state;
    case ROPE_PAIRS: return c->rope.dim / 2;
    }
    return 0;
}
