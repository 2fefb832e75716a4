/* tree.h -- Monte Carlo tree search over ids: which paths are followed, what a finished one changes, the best answers.
 *
 * The definition is at rg_search_params in ridge.h.  A round: rg_tree_gather chooses leaves, one for each place; the
 * caller lists what may follow each path (rg_tree_list), an id at a time, until it has ended (it may be an answer as it
 * is); rg_tree_value is told the
 * value of each; then the next round.  Results depend on what is listed and on the values alone, as leaves are chosen
 * and values are taken in by place.  A pure algorithm: knows ids and numbers, nothing of sequences, requests or texts.
 * Allocates nothing. */
#ifndef RG_ENGINE_TREE_H
#define RG_ENGINE_TREE_H

#include "base/error.h"

typedef struct rg_tree_node {
    int32_t parent, id;
    int32_t first, n;        /* children [first, first + n); n -1: not listed yet */
    int32_t depth;           /* ids of its path */
    int32_t visits, running; /* simulations that went through it; that are going through it now */
    float logprob, raw;      /* of its id after those before it, by the rules and before them */
    float prior;             /* its probability among its siblings */
    double best;             /* value behind it; -INFINITY: none */
    bool seen, busy;         /* all answers through it were seen; they were or are being followed now */
} rg_tree_node;

/* The ids of a path. */
typedef struct rg_tree_ids {
    int32_t *ids;    /* [max_tokens] */
    float *logprobs; /* [max_tokens] before the rules; NULL: not asked for */
} rg_tree_ids;

typedef struct rg_tree_leaf { /* one place */
    int32_t node;    /* where its rollout began; -1: nothing is followed here */
    int32_t at;      /* the last node of its path */
    int32_t n;       /* ids of the path, beyond `at` too where the tree has no room for more nodes */
    int32_t n_begun; /*   and as many had the node */
    double sum;      /* of their log-probabilities by the rules */
    bool runs;       /* the path goes on */
    bool ends;       /* it is a whole answer: */
    int32_t end;     /*   ended by this id, which is not part of it; -1: by its length, a stop text or a grammar */
    bool stopped;    /*   by one of the last two */
    bool dead;       /* the rules leave no id: there is no answer behind it */
} rg_tree_leaf;

typedef struct rg_tree_answer { /* the best seen */
    double score;
    int32_t n, end; /* as of a leaf */
    bool stopped;
    rg_tree_ids is;
} rg_tree_answer;

typedef struct rg_tree {
    rg_search_params p;       /* no member is 0 that means something else, but rollout */
    int32_t max_tokens;
    rg_tree_node *node;       /* [room] n_nodes of them */
    int32_t n_nodes, room;
    rg_tree_leaf *leaf;       /* [p.leaves] */
    rg_tree_ids *path;        /* [p.leaves] the ids of each */
    rg_tree_answer *answer;   /* [n_answers] best first, n_told of them */
    int32_t n_answers, n_told;
    int32_t n_simulations;
    int32_t n_open;           /* places whose path goes on */
    double least, most;       /* values so far */
    bool is_over;
    bool is_finishing;        /* no simulation came to the end of an answer: the best path is followed there */
} rg_tree;

/* False and *err: no such search. */
bool rg_tree_check(const rg_search_params *p, int32_t n_samples, rg_error *err);
/* With the defaults in place of what is 0. */
rg_search_params rg_tree_params(const rg_search_params *p);
/* Nodes that it is good to have room for. */
size_t rg_tree_room(const rg_search_params *p, int32_t max_tokens);

/* Begin; the caller has set p, max_tokens, room, n_answers and the arrays. */
void rg_tree_begin(rg_tree *t);
/* No path goes on: choose those of the next round, path[i] gets the ids that they have.  False: the search is over. */
bool rg_tree_gather(rg_tree *t);
/* What may follow place i's path, best first, by the rules, and (NULL: not asked for) the same before them.  The path
 * goes on with the first; n 0: it is dead.  Returns that id, -1: none. */
int32_t rg_tree_list(rg_tree *t, int32_t i, const rg_top *listed, const float *raw, int32_t n);
/* The path of place i does not go on. */
void rg_tree_end(rg_tree *t, int32_t i, bool is_answer, int32_t end, bool stopped);
/* True if place i's path is long enough to be valued as a beginning. */
bool rg_tree_is_valued(const rg_tree *t, int32_t i);
/* The value by log-probabilities of place i's path. */
double rg_tree_logprob(const rg_tree *t, int32_t i);
/* The value of place i's path. */
void rg_tree_value(rg_tree *t, int32_t i, double value);

#endif
