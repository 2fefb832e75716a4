/* mcts.h -- Monte Carlo tree search over the ids of an answer: a client of ridge.h.
 *
 * A node is an id after its parent.  A simulation goes down from the root by PUCT: among the children of a node it
 * takes the one with the largest Q + c P sqrt(N) / (1 + n) (P: its probability among its siblings, N and n: visits of
 * the node and of the child, Q: the mean of the child's values, brought to [0, 1] by the least and the largest value so
 * far; Silver et al., 2017; Schrittwieser et al., 2020).  At a leaf the model is asked for the `width` likeliest ids,
 * which become its children, and the leaf's value is the scorer's of its ids.  A subtree of which every answer was seen
 * is not entered again, so that with enough simulations all answers within the width are seen.
 *
 * The state of a path is in the engine's prefix index, where paths share blocks: a leaf is a request for one id after
 * the path's.  One request runs at a time, so a search needs no more state than one answer. */
#ifndef RG_CLI_MCTS_H
#define RG_CLI_MCTS_H

#include "cli/cli.h"

/* The value of an answer: more is better.  logprobs [n]: of its ids, the end with them if it ended. */
typedef double (*cli_score)(void *arg, const int32_t *ids, const float *logprobs, int32_t n);

typedef struct cli_mcts {
    rg_params params;      /* the prompt; max_tokens: of an answer; stop ids; sampling's rules */
    int32_t simulations, width;
    double explore;        /* c */
    cli_score score;       /* NULL: the sum of the log-probabilities */
    void *score_arg;
} cli_mcts;

typedef struct cli_mcts_result {
    int32_t *ids;          /* [n] the best answer that was seen, without its end; to be freed with rg_free */
    int32_t n;
    bool ended;            /* by an end token or a stop id; else by its length */
    double score;
    int32_t n_nodes, n_simulations; /* simulations that were run: fewer than asked for if all answers were seen */
    int64_t n_prompt, n_cached; /* positions of all requests together, and those found in the prefix index */
} cli_mcts_result;

bool cli_mcts_search(rg_engine *engine, const cli_mcts *m, cli_mcts_result *out, rg_error *err);

#endif
