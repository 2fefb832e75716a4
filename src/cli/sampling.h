/* sampling.h -- the flags that say how to choose tokens, the same for every subcommand that does. */
#ifndef RG_CLI_SAMPLING_H
#define RG_CLI_SAMPLING_H

#include "cli/cli.h"

typedef struct cli_sampling {
    rg_sampling s;
    bool temperature, top_k, top_p, min_p, typical_p, repetition, presence, frequency, seed; /* given */
    cli_strings bias_text;
    rg_logit_bias bias[64];
} cli_sampling;

#define CLI_SAMPLING_OPTIONS(v)                                                                                        \
    { "--temperature", CLI_FLOAT, &(v).s.temperature, "T", "0: greedy",                                                \
      RG_TEMPERATURE_MIN, RG_TEMPERATURE_MAX, &(v).temperature },                                                      \
    { "--top-k", CLI_INT, &(v).s.top_k, "K", "only the K best (0: all)", 0, INT32_MAX, &(v).top_k },                   \
    { "--top-p", CLI_FLOAT, &(v).s.top_p, "P", "the best that together have probability P",                            \
      RG_TOP_P_MIN, RG_TOP_P_MAX, &(v).top_p },                                                                        \
    { "--min-p", CLI_FLOAT, &(v).s.min_p, "P", "at least P times the best's probability",                              \
      RG_MIN_P_MIN, RG_MIN_P_MAX, &(v).min_p },                                                                        \
    { "--typical-p", CLI_FLOAT, &(v).s.typical_p, "P", "locally typical, with probability P",                          \
      RG_TYPICAL_P_MIN, RG_TYPICAL_P_MAX, &(v).typical_p },                                                            \
    { "--repetition-penalty", CLI_FLOAT, &(v).s.repetition_penalty, "X", "1: off",                                     \
      RG_REPETITION_PENALTY_MIN, RG_REPETITION_PENALTY_MAX, &(v).repetition },                                         \
    { "--no-repeat-ngram", CLI_INT, &(v).s.no_repeat_ngram, "N", "no run of N tokens twice (default 0: off)",          \
      0, INT32_MAX },                                                                                                  \
    { "--presence-penalty", CLI_FLOAT, &(v).s.presence_penalty, "X", "0: off",                                         \
      RG_PRESENCE_PENALTY_MIN, RG_PRESENCE_PENALTY_MAX, &(v).presence },                                               \
    { "--frequency-penalty", CLI_FLOAT, &(v).s.frequency_penalty, "X", "0: off",                                       \
      RG_FREQUENCY_PENALTY_MIN, RG_FREQUENCY_PENALTY_MAX, &(v).frequency },                                            \
    { "--logit-bias", CLI_STRINGS, &(v).bias_text, "ID=BIAS", "add to a logit (repeatable; -inf bans)" },              \
    { "--min-tokens", CLI_INT, &(v).s.min_tokens, "N", "no end before N tokens", 0, INT32_MAX },                       \
    { "--seed", CLI_U64, &(v).s.seed, "N", "of the draws (default: one is drawn and reported)", 0, 0, &(v).seed }

/* From zeros and the flags: what was not given comes from the checkpoint's defaults; a seed is drawn if none was. */
bool cli_sampling_finish(cli_sampling *v, const rg_sampling *defaults, rg_error *err);

#endif
