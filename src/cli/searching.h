/* searching.h -- the flags of a search for the likeliest answers, and of the ids that end an answer. */
#ifndef RG_CLI_SEARCHING_H
#define RG_CLI_SEARCHING_H

#include "cli/cli.h"

typedef struct cli_searching {
    rg_beam_params p;
    const char *early_stopping;
    bool penalty, stopping, groups, diversity; /* given */
    int32_t best_of, simulations, width, span;
    float explore;
    const char *search;
    cli_strings eos_text;
    int32_t eos[64];
} cli_searching;

#define CLI_SEARCHING_OPTIONS(v)                                                                                       \
    { "--beams", CLI_INT, &(v).p.n_beams, "N", "beam search: the N likeliest beginnings go on", 1, RG_BEAMS_MAX },     \
    { "--length-penalty", CLI_FLOAT, &(v).p.length_penalty, "X",                                                       \
      "beams: score = sum of log-probabilities / length^X (default 1)",                                                \
      RG_LENGTH_PENALTY_MIN, RG_LENGTH_PENALTY_MAX, &(v).penalty },                                                    \
    { "--early-stopping", CLI_STRING, &(v).early_stopping, "WHEN",                                                     \
      "beams: true, false or never (default false)", 0, 0, &(v).stopping },                                            \
    { "--beam-groups", CLI_INT, &(v).p.n_groups, "G", "beams: in G groups that differ",                                \
      1, RG_BEAMS_MAX, &(v).groups },                                                                                  \
    { "--diversity", CLI_FLOAT, &(v).p.diversity, "X", "beams: penalty for the ids of earlier groups",                 \
      RG_DIVERSITY_MIN, RG_DIVERSITY_MAX, &(v).diversity },                                                            \
    { "--best-of", CLI_INT, &(v).best_of, "N", "draw N answers, and tell the likeliest --n of them", 1, 1024 },        \
    { "--search", CLI_STRING, &(v).search, "HOW", "mcts: Monte Carlo tree search for the likeliest answer" },          \
    { "--simulations", CLI_INT, &(v).simulations, "N", "mcts: paths that are followed (default 64)", 1, 1 << 24 },     \
    { "--width", CLI_INT, &(v).width, "K", "mcts: ids that may follow an id (default 4)", 1, 4096 },                   \
    { "--span", CLI_INT, &(v).span, "N", "mcts: ids of a node, all but the first greedy (default 1)", 1, 4096 },       \
    { "--explore", CLI_FLOAT, &(v).explore, "C", "mcts: weight of what was seen little (default 1.25)", 0, 1000 },     \
    { "--eos-id", CLI_STRINGS, &(v).eos_text, "ID", "the id that ends an answer, in place of the model's (repeatable)" }

/* Words into numbers, and defaults.  False: an unknown word, or a flag of beams without beams.  The ids of eos_text are
 * in eos. */
bool cli_searching_finish(cli_searching *v, rg_error *err);

#endif
