/* searching.h -- the flags of a search for the likeliest answers, and of the ids that end an answer. */
#ifndef RG_CLI_SEARCHING_H
#define RG_CLI_SEARCHING_H

#include "cli/cli.h"

typedef struct cli_searching {
    rg_beam_params p;
    const char *early_stopping;
    bool penalty, stopping, groups, diversity; /* given */
    rg_search_params tree;
    int32_t best_of;
    bool explore_given;
    const char *search, *scorer, *query, *vote_after;
    bool vote;
    cli_strings eos_text;
    int32_t eos[64];
} cli_searching;

#define CLI_SEARCHING_OPTIONS(v)                                                                                       \
    { "--beams", CLI_INT, &(v).p.n_beams, "N", "beam search: the N likeliest beginnings go on", 1, RG_BEAMS_MAX },     \
    { "--length-penalty", CLI_FLOAT, &(v).p.length_penalty, "X",                                                       \
      "beams (default 1), mcts (0): score = sum of log-probabilities / length^X",                                      \
      RG_LENGTH_PENALTY_MIN, RG_LENGTH_PENALTY_MAX, &(v).penalty },                                                    \
    { "--early-stopping", CLI_STRING, &(v).early_stopping, "WHEN",                                                     \
      "beams: true, false or never (default false)", 0, 0, &(v).stopping },                                            \
    { "--beam-groups", CLI_INT, &(v).p.n_groups, "G", "beams: in G groups that differ",                                \
      1, RG_BEAMS_MAX, &(v).groups },                                                                                  \
    { "--diversity", CLI_FLOAT, &(v).p.diversity, "X", "beams: penalty for the ids of earlier groups",                 \
      RG_DIVERSITY_MIN, RG_DIVERSITY_MAX, &(v).diversity },                                                            \
    { "--best-of", CLI_INT, &(v).best_of, "N", "draw N answers, and tell the likeliest --n of them", 1, 1024 },        \
    { "--search", CLI_STRING, &(v).search, "HOW", "mcts: Monte Carlo tree search for the likeliest answer" },          \
    { "--simulations", CLI_INT, &(v).tree.simulations, "N", "mcts: paths that are followed (default 64)",              \
      1, RG_SIMULATIONS_MAX },                                                                                         \
    { "--leaves", CLI_INT, &(v).tree.leaves, "N", "mcts: paths that are followed at once (default 8)",                 \
      1, RG_LEAVES_MAX },                                                                                              \
    { "--width", CLI_INT, &(v).tree.width, "K", "mcts: ids that may follow an id (default 4)", 1, RG_WIDTH_MAX },      \
    { "--span", CLI_INT, &(v).tree.span, "N", "mcts: only every N-th id has others beside it (default 1)",             \
      1, RG_SPAN_MAX },                                                                                                \
    { "--rollout", CLI_INT, &(v).tree.rollout, "N",                                                                    \
      "mcts: value a path after N ids more, not at the end of its answer", 1, INT32_MAX },                             \
    { "--explore", CLI_FLOAT, &(v).tree.explore, "C", "mcts: weight of what was seen little (default 1.25)",           \
      0, RG_EXPLORE_MAX, &(v).explore_given },                                                                         \
    { "--scorer", CLI_STRING, &(v).scorer, "MODEL", "best-of, mcts: by what this reranker says of an answer" },        \
    { "--scorer-query", CLI_STRING, &(v).query, "TEXT", "of this in place of the prompt" },                            \
    { "--vote", CLI_FLAG, &(v).vote, NULL, "of --n answers, tell the one on which most agree" },                       \
    { "--vote-after", CLI_STRING, &(v).vote_after, "TEXT", "they agree by what follows the last TEXT in them" },       \
    { "--eos-id", CLI_STRINGS, &(v).eos_text, "ID", "the id that ends an answer, in place of the model's (repeatable)" }

enum { CLI_SIMULATIONS = 64 };

/* The reranker that --scorer names, with these options; NULL and no error: there is none.  The caller closes it. */
rg_engine *cli_scorer_open(const cli_searching *v, rg_options options, rg_error *err);

/* Words into numbers, and defaults.  False: an unknown word, or a flag of beams without beams.  The ids of eos_text are
 * in eos. */
bool cli_searching_finish(cli_searching *v, rg_error *err);

#endif
