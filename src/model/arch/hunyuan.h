/* hunyuan.h -- what the Hunyuan family shares: the base of its rope, and keys that say nothing about inference. */
#ifndef RG_MODEL_ARCH_HUNYUAN_H
#define RG_MODEL_ARCH_HUNYUAN_H

#include "model/arch/backs.h"
#include "model/arch/parts.h"

#define HUNYUAN_HARMLESS                                                                                               \
    "eod_token_id", "sep_token_id", "im_start_id", "im_end_id", "im_newline_id", "mask_init_id", "text_start_id",      \
        "text_end_id", "org_vocab_size", "add_classification_head", "class_num", "pool_type", "attention_head_dim",    \
        "use_rotary_pos_emb"

/* A rope of type "dynamic" with an alpha means one base for all lengths, theta * alpha^(d / (d - 2)). */
bool finish_hunyuan_base(rg_config *c, const rg_checkpoint *ckpt, rg_error *err);

/* The weight of q's norm where K is kept normed without one: see hunyuan.c. */
rg_derive_fn derive_q_norm;
rg_derive_back_fn derive_q_norm_back;

#endif
