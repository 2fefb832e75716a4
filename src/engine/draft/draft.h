/* draft.h -- drafters: guesses of the ids that answers go on with, for the model to check in its next step.
 *
 * Computing several rows of one sequence costs little more than computing one, as long as a step is bound by memory.
 * So before a step the loop asks a drafter about answers that are being written, and gets a tree of ids for each: every
 * path from its root is a guess at what follows the answer's last id, and a chain is a tree.  The step computes a row
 * for each id of the tree beside everyone else's rows and draws an id after every row.  Where a drawn id is the guess,
 * the row after it counts, and so on; the other rows are forgotten.  A wrong guess costs time and changes no answer.
 *
 * To write a drafter: one file here with one rg_draft_kind, and one line in drafters.def.  Only `propose` is needed.  A
 * drafter knows an answer by its lane, a number that is the answer's own until `end`, or until `begin` gives the lane
 * to another one.  All calls come from the engine's thread, between steps, and allocate nothing after `open`.
 *
 * A drafter with a network computes nothing itself: its network is a member of the engine (member.h), which computes
 * the rows that the drafter lays out (rg_drafter_step) as steps among those of all members. */
#ifndef RG_ENGINE_DRAFT_DRAFT_H
#define RG_ENGINE_DRAFT_DRAFT_H

#include "engine/request.h"
#include "model/runner.h"
#include "model/tap.h"

/* The tree of one answer: its nodes are ids, children after their parents.
 *
 * A probe is a node that cannot be accepted: its row is computed and an id is drawn after it, for the drafter to learn
 * from.  What follows a probe are probes.  They are never pruned: those that were added first keep their numbers. */
typedef struct rg_draft_tree {
    int32_t n;
    int32_t id[RG_MAX_DRAFT];
    int32_t parent[RG_MAX_DRAFT]; /* a node; -1: it follows the answer's last id */
    bool probe[RG_MAX_DRAFT];     /* children of one parent that are no probes differ */
    /* [vocab_size] the distribution that the id was drawn from, in the drafter's memory until the next propose; NULL:
     * it was not drawn.  A sibling's is that after the siblings before it were rejected. */
    const float *from[RG_MAX_DRAFT];
} rg_draft_tree;

/* The node for an id after a parent (-1: after the answer's last id), new if there is none yet.  -1: no room. */
int32_t rg_draft_add(rg_draft_tree *d, int32_t parent, int32_t id);
/* A new probe.  -1: no room. */
int32_t rg_draft_add_probe(rg_draft_tree *d, int32_t parent, int32_t id);
int32_t rg_draft_find(const rg_draft_tree *d, int32_t parent, int32_t id); /* -1: there is none; probes do not count */
int32_t rg_draft_guesses(const rg_draft_tree *d); /* nodes that are no probes */
/* Nodes from the root to this one, itself last, into path [RG_MAX_DRAFT]; their number.  node -1: 0. */
int32_t rg_draft_path(const rg_draft_tree *d, int32_t node, int32_t *path);
/* Keep the nodes with `keep` true whose parents are kept too, in their order. */
void rg_draft_prune(rg_draft_tree *d, const bool *keep);
/* True if each node's parent is the one before it. */
bool rg_draft_is_chain(const rg_draft_tree *d);

/* One answer to draft for. */
typedef struct rg_draft_ask {
    int32_t lane;
    const rg_request *request;
    int32_t sample;
    const int32_t *ids;     /* [n_ids] the prompt and the answer so far; the last has no state yet.  What is no id
                             *   (rg_is_id) is a given row, like no other row, and never part of a draft */
    int32_t n_ids;
    int32_t depth, most;    /* ids of a path, and of the tree, at most; depth <= most <= RG_MAX_DRAFT */
    int32_t probe_depth;    /* ids of a path to a probe, at most; at least depth */
    bool chain;             /* no branches: what the sequence keeps cannot hold them */
    rg_draft_tree *draft;   /* to be filled in; empty */
} rg_draft_ask;

/* What became of a draft. */
typedef struct rg_draft_result {
    int32_t lane;
    const rg_draft_tree *draft;
    const int32_t *drawn;   /* [1 + draft->n] the id drawn after the answer's last id, then after each node; -1: none */
    const int32_t *path;    /* [n_path] the nodes that were accepted, from the root */
    int32_t n_path;
} rg_draft_result;

/* What is known of answers may be used for those of the same scope alone. */
static inline uint64_t rg_draft_scope(const rg_request *r)
{
    return rg_request_scope(r, false);
}

/* Rows of an answer that a step computed, prompt or output, whose features the tap has: the n_rows that were certain,
 * from row first_row of the step on, and of the draft behind them the accepted nodes, each n_rows + its number behind
 * first_row.  Their positions follow each other. */
typedef struct rg_draft_seen {
    int32_t lane;
    const rg_request *request;
    int32_t sample;
    const int32_t *ids;     /* [n_ids] as in rg_draft_ask: an id stands after each of the rows */
    int32_t n_ids;
    int32_t start;          /* position of the first row */
    int32_t first_row, n_rows;
    const int32_t *path;    /* [n_path] */
    int32_t n_path;
    bool ends;              /* the answer's last id is the one after these rows: it may be drafted for next */
} rg_draft_seen;

typedef struct rg_draft_kind rg_draft_kind;

typedef struct rg_drafter rg_drafter;
struct rg_drafter {
    const rg_draft_kind *kind;
    int32_t depth;          /* of its deepest path */
    rg_tap *tap;            /* borrowed: of the features that it reads; NULL: it reads none */
    struct rg_member *member; /* its network; NULL: it has none */

    /* Fill in the drafts of n answers, no lane twice; an empty one is no guess.  With a network: they are filled in
     * when lay_out has no more steps, and until then asks stays as it is.  False: the drafter has failed and is to be
     * closed. */
    bool (*propose)(rg_drafter *d, const rg_draft_ask *asks, int32_t n);

    /* With a network: lay out the rows of its next step for what propose, or seen, was given, and say where their
     * results go.  False: there are no more. */
    bool (*lay_out)(rg_drafter *d, rg_sink *sink);
    /* That step was computed. */
    void (*take)(rg_drafter *d);

    /* The rest may be NULL.  The lane is a new answer's: forget what was known of it. */
    void (*begin)(rg_drafter *d, int32_t lane);
    /* After a step that drew an id for the lane's answer, about which the drafter was asked: its draft was checked, or
     * it is empty, since it gave none or there was no room for the rows.  Not where another drafter's was checked. */
    void (*checked)(rg_drafter *d, const rg_draft_result *result);
    /* After every step, where the drafter reads features: what it computed of n answers, no lane twice; `seen` stays as
     * it is until lay_out has no more steps.  Rows whose state came out of the prefix index, or was swapped in, are in
     * no step, and have no features; rows of an answer that was preempted may come again. */
    void (*seen)(rg_drafter *d, const rg_draft_seen *seen, int32_t n);
    /* The answer is complete: its prompt and its ids, and rg_draft_scope of its request. */
    void (*end)(rg_drafter *d, int32_t lane, const int32_t *ids, int32_t n_ids, uint64_t scope);
    /* Seconds that a call of propose is expected to take for n answers, each with paths of so many ids; 0: next to
     * nothing. */
    double (*cost_s)(const rg_drafter *d, int32_t n, int32_t depth);
    /* Ids [0, n_ids) of the lane's answer that a call of propose would have to read first; NULL: none. */
    int32_t (*unread)(const rg_drafter *d, int32_t lane, int32_t n_ids);
    /* Nodes of the tree that it gives for a depth; NULL: as many, a chain. */
    int32_t (*nodes)(const rg_drafter *d, int32_t depth);

    void (*close)(rg_drafter *d);
};

typedef struct rg_draft_options {
    int32_t n_lanes;
    int32_t max_draft;      /* nodes of a tree at most, 1 .. RG_MAX_DRAFT */
    int32_t vocab_size, max_seq_len;
    rg_runner *runner;      /* borrowed: of a model to draft with; NULL: none is needed */
    rg_tap *tap;            /* borrowed: what takes the features that the runner's network reads; NULL: it is none */
    const int32_t *target_ids; /* borrowed: of such a network, the model's id for each of its own; NULL: the same */
    const char *path;       /* what the user named behind the kind; NULL: nothing */
    bool own_noise;         /* ids that are drawn are drawn with noise of the drafter's own, and nodes have `from`; else
                             *   with the noise of the answer's own draw */
    bool fixed;             /* what is kept of an answer depends on its drafts: they must follow from its ids alone,
                             *   whatever that takes, where the kind can */
} rg_draft_options;

struct rg_draft_kind {
    const char *name;  /* as --draft has it */
    int32_t max_draft; /* nodes of a tree where nothing else is asked for */
    bool has_model;    /* it needs a runner of a model */
    bool has_network;  /* it needs one of a network that reads features: the one at the path, or, where it has no path,
                        *   the module that the model's own checkpoint brings */
    bool has_heads;    /* that network keeps nothing of an answer: it is heads; else it is a layer that does */
    bool has_path;     /* it needs a path: --draft name:PATH */
    bool has_branches; /* it is of no use where drafts are chains */
    rg_drafter *(*open)(const rg_draft_options *o, rg_error *err); /* NULL and *err: refused, or no memory */
};

void rg_drafter_close(rg_drafter *d); /* NULL is fine */

/* Compute the next step of its network for what it was given last.  False: there is none, or it has no network. */
bool rg_drafter_step(rg_drafter *d);

/* By name; NULL: there is none.  The i-th; NULL past the end. */
const rg_draft_kind *rg_draft_kind_find(const char *name);
const rg_draft_kind *rg_draft_kind_nth(size_t i);

#endif
