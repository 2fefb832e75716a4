/* rope.h -- rotary positions as checkpoints describe them: settings, and the frequencies that follow. */
#ifndef RG_MODEL_ROPE_H
#define RG_MODEL_ROPE_H

#include "ckpt/checkpoint.h"

enum {
    RG_ROPE_VARIANTS = 2,    /* of one rope: for sequences up to its original length, and for longer ones */
    RG_MAX_ROPE_PAIRS = 256, /* that have a factor of their own */
};

typedef enum rg_rope_type {
    RG_ROPE_DEFAULT, RG_ROPE_LINEAR, RG_ROPE_LLAMA3, RG_ROPE_YARN, RG_ROPE_LONG, RG_ROPE_PROPORTIONAL,
    RG_ROPE_DYNAMIC,
} rg_rope_type;

typedef struct rg_rope_config {
    rg_rope_type type;
    double theta;
    int dim;                    /* columns of a head that are rotated */
    bool interleaved;
    double factor;              /* linear, llama3, yarn, proportional, dynamic */
    double part;                /* proportional: of the pairs, how many turn; the others stand still */
    double low_freq_factor, high_freq_factor;              /* llama3 */
    double beta_fast, beta_slow, mscale, mscale_all_dim;   /* yarn; mscale 0: not given */
    double attention_factor;    /* yarn, longrope; 0: follows from factor and mscale */
    double long_mscale[RG_ROPE_VARIANTS]; /* longrope, instead of that; 0: not given */
    bool untruncated;           /* yarn: the ends of the ramp are not rounded to whole pairs */
    int64_t original_max_seq_len;
    int sections[4];            /* pairs for each place of a picture; text has one place for all.  0: not given */
    /* longrope: what each pair's frequency is divided by, of short sequences and of long ones. */
    float factors[RG_ROPE_VARIANTS][RG_MAX_ROPE_PAIRS];
} rg_rope_config;

/* Rope settings, in the new spelling (rope_parameters, per layer type where part is given) or the old, or GGUF's. */
bool rg_rope_read(rg_rope_config *r, const rg_checkpoint *ckpt, const char *part, double theta_default, rg_error *err)
    RG_MUST_CHECK;

/* How many variants a rope has that are kept; dynamic's others follow from a length (ops.h). */
int rg_rope_variants(const rg_rope_config *r);
/* The variant for a sequence of at most `length` positions. */
int32_t rg_rope_variant(const rg_rope_config *r, int32_t length);
/* inv_freq [dim / 2] of a variant of a rope and the factor on cos and sin.  freq_factors: GGUF's tensor, or NULL. */
void rg_rope_frequencies(const rg_rope_config *r, int variant, const float *freq_factors, float *inv_freq,
                         float *factor);
/* What each default frequency is divided by, for the types whose scaling depends on the frequency alone: dim / 2
 * values. */
void rg_rope_factors(const rg_rope_config *r, int variant, float *factors);
/* longrope's factor on cos and sin (Ding et al. 2024): of a context that was stretched by r->factor. */
double rg_long_factor(const rg_rope_config *r, int variant);
/* yarn's factor on cos and sin. */
double rg_yarn_factor(const rg_rope_config *r);
/* yarn's attention scale: 0.1 * mscale * ln(factor) + 1; 1 for factors up to 1. */
double rg_yarn_mscale(double factor, double mscale);
/* Where the settings do not say which context was stretched, it is the model's own, max_seq_len. */
void rg_rope_complete(rg_rope_config *r, int max_seq_len);

/* Does config.json's rope_scaling say anything?  It then stands in for rope_parameters. */
bool rg_rope_has_scaling(const rg_checkpoint *ckpt);
/* Is it the name of a number that ropes have in config.json? */
bool rg_rope_has_number(const char *name);

#endif
