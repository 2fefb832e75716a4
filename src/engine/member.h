/* member.h -- a network that the engine computes: its runner, what its sequences keep, and the rows of its next step.
 *
 * The model that answers requests is a member of its loop (loop.h), and so is a network that drafts for it; the
 * engine's thread computes the steps of all of them, one after the other, on the threads of one pool (host.h).  A step
 * computes rows of one member.  The engine thread's alone. */
#ifndef RG_ENGINE_MEMBER_H
#define RG_ENGINE_MEMBER_H

#include "engine/draw.h"
#include "engine/sequence.h"
#include "engine/step_batch.h"

typedef struct rg_member {
    rg_runner *runner;          /* borrowed */
    rg_states *states;
    rg_sample_scratch *scratch; /* for draws from its rows */
    rg_step_batch rows;         /* of the next step */
    uint64_t n_steps;
    double took_s, mean_s;      /* of the latest step; of the latest ten or so; 0: there was none */
} rg_member;

typedef struct rg_member_options {
    int32_t max_seqs;       /* spans of a step */
    int32_t vocab_size;     /* ids of an answer that is drawn, which a network that drafts may have more or fewer of, */
    int32_t max_seq_len;    /*   and the most ids of it and its prompt */
    bool use_prefixes;      /* sequences find what others have computed */
    struct rg_durable *durable; /* and files of it, borrowed; NULL: there are none */
    bool trees;             /* rows of drafts have branches, where the states can hold them */
    bool judge;             /* draws judge guesses, or give the distribution that they come from */
} rg_member_options;

/* False and *err: no memory; rg_member_fini frees what is there. */
bool rg_member_init(rg_member *m, rg_runner *runner, const rg_member_options *o, rg_error *err);
void rg_member_fini(rg_member *m); /* fine for one that is all 0 */

/* Compute the rows that are laid out, with all threads.  When it returns, the states hold all rows. */
void rg_member_step(rg_member *m, const rg_sink *sink);

#endif
