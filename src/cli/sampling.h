/* sampling.h -- the flags that say how to choose tokens, the same for every subcommand that does. */
#ifndef RG_CLI_SAMPLING_H
#define RG_CLI_SAMPLING_H

#include "cli/cli.h"

typedef struct cli_sampling {
    rg_sampling s;
    bool temperature, top_k, top_p, min_p, typical_p, repetition, presence, frequency, seed; /* given, as are: */
    bool last_n, dry, dry_base, dry_allowed, dry_last_n, xtc, xtc_threshold, n_sigma, dynatemp, dynatemp_exponent;
    bool mirostat, mirostat_tau, mirostat_eta;
    cli_strings breaker_text;
    char breaker_room[CLI_STRINGS_ROOM][64];
    const char *breakers[CLI_STRINGS_ROOM];
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
    { "--repeat-last-n", CLI_INT, &(v).s.penalty_last_n, "N",                                                          \
      "penalties look at the last N ids of prompt and answer (-1: all; 0: none)", -1, INT32_MAX, &(v).last_n },        \
    { "--dry-multiplier", CLI_FLOAT, &(v).s.dry_multiplier, "X", "DRY, against repeated runs (0: off)",                \
      RG_DRY_MULTIPLIER_MIN, RG_DRY_MULTIPLIER_MAX, &(v).dry },                                                        \
    { "--dry-base", CLI_FLOAT, &(v).s.dry_base, "X", "DRY takes off multiplier * base^(run - allowed) (default 1.75)", \
      RG_DRY_BASE_MIN, RG_DRY_BASE_MAX, &(v).dry_base },                                                               \
    { "--dry-allowed-length", CLI_INT, &(v).s.dry_allowed_length, "N", "of shorter runs nothing (default 2)",          \
      0, INT32_MAX, &(v).dry_allowed },                                                                                \
    { "--dry-penalty-last-n", CLI_INT, &(v).s.dry_penalty_last_n, "N", "it looks at the last N ids (default -1: all)", \
      -1, INT32_MAX, &(v).dry_last_n },                                                                                \
    { "--dry-sequence-breaker", CLI_STRINGS, &(v).breaker_text, "S",                                                   \
      "ends a run of DRY (repeatable; default \\n, :, \", *; none)" },                                                 \
    { "--top-n-sigma", CLI_FLOAT, &(v).s.top_n_sigma, "N", "logits from the best - N standard deviations on (0: off)", \
      RG_TOP_N_SIGMA_MIN, RG_TOP_N_SIGMA_MAX, &(v).n_sigma },                                                          \
    { "--dynatemp-range", CLI_FLOAT, &(v).s.dynatemp_range, "X", "temperature - X to + X, by entropy (0: off)",        \
      RG_DYNATEMP_RANGE_MIN, RG_DYNATEMP_RANGE_MAX, &(v).dynatemp },                                                   \
    { "--dynatemp-exp", CLI_FLOAT, &(v).s.dynatemp_exponent, "X", "how entropy says where (default 1)",                \
      RG_DYNATEMP_EXPONENT_MIN, RG_DYNATEMP_EXPONENT_MAX, &(v).dynatemp_exponent },                                    \
    { "--xtc-probability", CLI_FLOAT, &(v).s.xtc_probability, "P", "chance that XTC drops the best ids (0: off)",      \
      RG_XTC_PROBABILITY_MIN, RG_XTC_PROBABILITY_MAX, &(v).xtc },                                                      \
    { "--xtc-threshold", CLI_FLOAT, &(v).s.xtc_threshold, "P", "all from P on but the last of them (default 0.1)",     \
      RG_XTC_THRESHOLD_MIN, RG_XTC_THRESHOLD_MAX, &(v).xtc_threshold },                                                \
    { "--mirostat", CLI_INT, &(v).s.mirostat, "N", "1 or 2: mirostat, in place of the filters (0: off)",               \
      0, RG_MIROSTAT_MAX, &(v).mirostat },                                                                             \
    { "--mirostat-ent", CLI_FLOAT, &(v).s.mirostat_tau, "X", "tau, the surprise aimed at, in bits (default 5)",        \
      RG_MIROSTAT_TAU_MIN, RG_MIROSTAT_TAU_MAX, &(v).mirostat_tau },                                                   \
    { "--mirostat-lr", CLI_FLOAT, &(v).s.mirostat_eta, "X", "eta, how fast the bound follows (default 0.1)",           \
      RG_MIROSTAT_ETA_MIN, RG_MIROSTAT_ETA_MAX, &(v).mirostat_eta },                                                   \
    { "--logit-bias", CLI_STRINGS, &(v).bias_text, "ID=BIAS", "add to a logit (repeatable; -inf bans)" },              \
    { "--min-tokens", CLI_INT, &(v).s.min_tokens, "N", "no end before N tokens", 0, INT32_MAX },                       \
    { "--seed", CLI_U64, &(v).s.seed, "N", "of the draws (default: one is drawn and reported)", 0, 0, &(v).seed }

/* From zeros and the flags: what was not given comes from the checkpoint's defaults; a seed is drawn if none was. */
bool cli_sampling_finish(cli_sampling *v, const rg_sampling *defaults, rg_error *err);

#endif
