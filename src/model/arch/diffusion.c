/* diffusion.c -- see diffusion.h. */
#include "model/arch/diffusion.h"

#include <stdio.h>

enum { GGUF_U32 = 4 };

/* What generation_config.json says of filling in, by the families' names. */
static bool read_generation(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const char *const steps[] = { "generation.steps", "generation.denoising_steps" };
    static const char *const thresholds[] = { "generation.threshold", "generation.confidence_threshold" };
    double threshold = 0;
    int64_t n = 0;

    for (size_t i = 0; i < RG_LEN(steps); i++)
        if (rg_meta_int(ckpt, steps[i], 1, 1 << 24, &n, err) < 0)
            return false;
    for (size_t i = 0; i < RG_LEN(thresholds); i++)
        if (rg_meta_float(ckpt, thresholds[i], &threshold, err) < 0)
            return false;
    if (!(threshold >= 0 && threshold <= 1))
        return rg_fail(err, RG_E_INPUT, "%s: generation_config's threshold is %g: want 0 to 1",
                       rg_checkpoint_path(ckpt), threshold);
    c->diffusion.steps = (int32_t)n;
    c->diffusion.threshold = (float)threshold;
    return true;
}

bool finish_diffusion(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    const char *name = c->from_gguf ? "tokenizer.ggml.mask_token_id" : "mask_token_id";
    bool causal = false;
    char key[128];
    int64_t id = 0;
    int got = rg_config_int(ckpt, name, 0, (int64_t)c->vocab_size - 1, &id, err);

    if (got < 0)
        return false;
    if (!got)
        return rg_fail(err, RG_E_INPUT, "%s: key '%s' is missing", rg_checkpoint_path(ckpt), name);
    c->diffusion.mask_id = (int32_t)id;
    if (!c->from_gguf)
        return read_generation(c, ckpt, err);
    if (rg_config_flag(ckpt, "diffusion.shift_logits", &c->diffusion.shifted, err) < 0 ||
        rg_meta_bool(ckpt, rg_gguf_key(ckpt, "attention.causal", key), &causal, err) < 0)
        return false;
    return !causal || rg_fail(err, RG_E_UNSUPPORTED, "%s: %s is true, which is not supported", rg_checkpoint_path(ckpt),
                              key);
}

/* Where generation_config says nothing, the authors' code takes these. */
static const rg_canvas usual_canvas = {
    .length = 256, .t_min = 0.4f, .t_max = 0.8f, .entropy_bound = 0.1f, .confidence = 0.005f, .stability = 1,
};

bool finish_canvas(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    rg_canvas canvas = usual_canvas;
    int64_t length = canvas.length, stability = canvas.stability, steps = 0;
    double t_min = (double)canvas.t_min, t_max = (double)canvas.t_max;
    double bound = (double)canvas.entropy_bound, confidence = (double)canvas.confidence;

    if (rg_config_int(ckpt, "canvas_length", 1, c->max_seq_len, &length, err) < 0 ||
        rg_meta_int(ckpt, "generation.max_denoising_steps", 1, 1 << 24, &steps, err) < 0 ||
        rg_meta_int(ckpt, "generation.stability_threshold", 0, 1 << 24, &stability, err) < 0 ||
        rg_meta_float(ckpt, "generation.t_min", &t_min, err) < 0 ||
        rg_meta_float(ckpt, "generation.t_max", &t_max, err) < 0 ||
        rg_meta_float(ckpt, "generation.sampler_config.entropy_bound", &bound, err) < 0 ||
        rg_meta_float(ckpt, "generation.confidence_threshold", &confidence, err) < 0)
        return false;
    if (!(t_min >= 0 && t_max > t_min && t_max <= 100))
        return rg_fail(err, RG_E_INPUT, "%s: generation_config's t_min %g and t_max %g: want 0 or more, and a t_max "
                       "above t_min and up to 100", rg_checkpoint_path(ckpt), t_min, t_max);
    if (!(bound > 0 && bound < 1e9) || !(confidence > 0 && confidence < 1e9))
        return rg_fail(err, RG_E_INPUT, "%s: generation_config's entropy_bound %g or confidence_threshold %g is not "
                       "above 0", rg_checkpoint_path(ckpt), bound, confidence);
    c->diffusion.steps = (int32_t)steps;
    c->diffusion.canvas = (rg_canvas){ .length = (int32_t)length, .t_min = (float)t_min, .t_max = (float)t_max,
                                       .entropy_bound = (float)bound, .confidence = (float)confidence,
                                       .stability = (int32_t)stability };
    return true;
}

bool put_gguf_diffusion(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    char key[64];

    snprintf(key, sizeof key, "%s.attention.causal", c->arch->gguf_name);
    return put_gguf_decoder(c, w, err) && rg_ckpt_put_bool(w, key, false, err) &&
           rg_ckpt_put_bool(w, "diffusion.shift_logits", c->diffusion.shifted, err) &&
           rg_ckpt_put_int(w, "tokenizer.ggml.mask_token_id", GGUF_U32, c->diffusion.mask_id, err);
}
