/* diffusion.h -- the flags of a diffusion model: how it fills in an answer. */
#ifndef RG_CLI_DIFFUSION_H
#define RG_CLI_DIFFUSION_H

#include "cli/cli.h"

typedef struct cli_diffusion {
    rg_diffusion_params p;
    const char *remasking, *cache;
} cli_diffusion;

#define CLI_DIFFUSION_OPTIONS(v)                                                                                       \
    { "--steps", CLI_INT, &(v).p.steps, "N", "diffusion: steps of an answer, or of a model's block",            \
      1, INT32_MAX },                                                                                                  \
    { "--block", CLI_INT, &(v).p.block, "N", "diffusion: positions of a block", 1, INT32_MAX },                        \
    { "--remasking", CLI_STRING, &(v).remasking, "ORDER",                                                              \
      "diffusion: low_confidence, entropy, margin, sequential or dynamic" },                                           \
    { "--cfg", CLI_FLOAT, &(v).p.cfg_scale, "X", "diffusion: guidance by the prompt", 0, 100 },                       \
    { "--threshold", CLI_FLOAT, &(v).p.threshold, "P", "diffusion: fill in at once what is so sure", 0, 1 },           \
    { "--diffusion-cache", CLI_STRING, &(v).cache, "HOW",                                                              \
      "diffusion: none, prefix or dual (lossy: other answers than without)" },                                         \
    { "--trace", CLI_FLAG, &(v).p.trace, NULL, "diffusion: with --json, the ids after every step" }

/* Words into numbers.  False: an unknown word. */
bool cli_diffusion_finish(cli_diffusion *v, rg_error *err);

#endif
