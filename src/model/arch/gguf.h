/* gguf.h -- what metadata of GGUF says otherwise than config.json: keys that must fit, and keys for put_gguf. */
#ifndef RG_MODEL_ARCH_GGUF_H
#define RG_MODEL_ARCH_GGUF_H

#include "model/arch.h"

/* "attention.value_length" must be head_dim. */
bool require_value_length(const rg_config *c, const rg_checkpoint *ckpt, rg_error *err);
/* "expert_gating_func", if it is there, must be that of c->routing.score. */
bool require_gating(const rg_config *c, const rg_checkpoint *ckpt, rg_error *err);

/* Refuses a setting that GGUF has no key for: "windows".  False. */
bool no_gguf_key(rg_error *err, const char *what);
/* For put_gguf.  "<architecture>.<suffix>" = value. */
bool put_gguf_int(const rg_config *c, rg_ckpt_writer *w, const char *suffix, int64_t value, rg_error *err);
bool put_gguf_string(const rg_config *c, rg_ckpt_writer *w, const char *suffix, const char *value, rg_error *err);
bool put_gguf_float(const rg_config *c, rg_ckpt_writer *w, const char *suffix, double value, rg_error *err);
bool put_gguf_bool(const rg_config *c, rg_ckpt_writer *w, const char *suffix, bool value, rg_error *err);
bool put_gguf_gating(const rg_config *c, rg_ckpt_writer *w, rg_error *err);
/* "attention.sliding_window_pattern": the list of layers that have a window. */
bool put_gguf_windows(const rg_config *c, rg_ckpt_writer *w, rg_error *err);
/* c->ropes[0]: its base and its scaling; log_unit: what yarn_log_multiplier is of mscale_all_dim (0.1 without _by). */
bool put_gguf_rope(const rg_config *c, rg_ckpt_writer *w, rg_error *err);
bool put_gguf_rope_by(const rg_config *c, rg_ckpt_writer *w, double log_unit, rg_error *err);
/* Says of a default rope that it has no scaling, where other engines ask. */
bool put_gguf_no_scaling(const rg_config *c, rg_ckpt_writer *w, rg_error *err);
/* The whole put_gguf of a decoder with one rope: the length of values, and rope. */
bool put_gguf_decoder(const rg_config *c, rg_ckpt_writer *w, rg_error *err);

#endif
