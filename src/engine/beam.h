/* beam.h -- beam search: from lists of likely ids, which beams go on, which answers are finished, when it is over.
 *
 * The definition is that of transformers' `generate`: without groups of its version 5, with groups of version 4.48,
 * whose last published form it is (Vijayakumar et al., 2018, for the groups and their penalty).  A stop text ends an
 * answer as an end token does, but its ids are part of the answer.  A pure algorithm over the numbers it is given:
 * knows ids and log-probabilities, nothing of sequences, requests or texts.  Sums are in double
 * precision, in a fixed order; of equal candidates the one of the lower place goes first, then that of the lower id.
 *
 * A beam has a place.  In a step each parent's best child takes its parent's place, so that what belongs to a place
 * (ids, state) moves only for the others. */
#ifndef RG_ENGINE_BEAM_H
#define RG_ENGINE_BEAM_H

#include "base/error.h"

/* The ids of a beam or an answer, and what is said of them. */
typedef struct rg_beam_ids {
    int32_t *ids;    /* [max_tokens] */
    float *logprobs; /* [max_tokens] as the model gave them, before the rules; NULL: not asked for */
    rg_top *tops;    /* [max_tokens][n_tops] the likeliest ids in their place */
} rg_beam_ids;

typedef struct rg_hypothesis { /* a finished answer */
    double score;
    int32_t n;    /* ids, the end not counted */
    int32_t end;  /* the id that ended it; -1: its length, the search or a stop text did */
    bool stopped; /* by a stop text */
    rg_beam_ids is;
} rg_hypothesis;

typedef struct rg_beam { /* one place */
    double sum;       /* of its ids' log-probabilities, with all penalties */
    bool runs;        /* a beam is there */
    bool is_listed;   /* its candidates for the next id are */
    int32_t n_listed; /* as many as have a probability */
    int32_t parent, id; /* by the last step: the place whose ids it continues, with this one; if it runs */
} rg_beam;

typedef struct rg_beam_candidate {
    double sum;
    int32_t beam, id;
} rg_beam_candidate;

typedef struct rg_beams {
    rg_beam_params p;        /* n_groups >= 1 */
    int32_t max_tokens, n_ids; /* ids of an answer at most, and of every beam so far */
    int32_t *ends;           /* [n_ends] ids that end an answer */
    int32_t n_ends;
    int32_t room;            /* candidates listed for a beam, at most */
    rg_beam *beam;           /* [n_beams] group g has the places from g * n_beams / n_groups on */
    rg_top *listed;          /* [n_beams][room] of each place: ids and their log-probabilities, best first */
    float *listed_raw;       /* [n_beams][room] the same before the rules; NULL: log-probabilities are not asked for */
    rg_top *listed_tops;     /* [n_beams][n_tops] the likeliest ids before the rules */
    int32_t n_tops;
    /* True if the ids of a place and this one contain a stop text; NULL: there is none. */
    bool (*stops)(void *arg, int32_t place, int32_t id);
    void *stops_arg;
    rg_beam_candidate *kept; /* scratch: [rg_beams_kept] the best candidates of a group, */
    rg_beam_candidate *next; /*   and [n_beams] those that go on */
    rg_hypothesis *finished; /* [n_beams] as the places: those of group g, n_finished[g] of them; */
    int32_t *n_finished;     /*   [n_groups] */
    bool *is_over;           /* [n_groups] */
    int32_t *order;          /* [n_beams] once all is over: finished answers, best first; */
    int32_t n_ordered;       /*   their number; -1: it is not over */
    int32_t n_running, n_listed; /* beams, and those whose candidates are listed */
    int32_t n_common;        /* ids that all beams have in common, where their state is to be made again */
} rg_beams;

/* False and *err: no such search.  n_samples: answers that are to be told. */
bool rg_beams_check(const rg_beam_params *p, int32_t n_samples, rg_error *err);
/* Candidates of a group that are looked at in a step, and candidates of a beam that must be listed for that. */
int32_t rg_beams_kept(const rg_beam_params *p, int32_t n_ends);
int32_t rg_beams_room(const rg_beam_params *p, int32_t n_ends, int32_t vocab_size);

/* Begin: one beam for each group, without ids.  The caller has set all but the counts, and the arrays of numbers need
 * not be. */
void rg_beams_begin(rg_beams *b);

/* True if a beam is there that needs its list. */
static inline bool rg_beams_waits(const rg_beams *b, int32_t i)
{
    return b->beam[i].runs && !b->beam[i].is_listed;
}

/* All running beams have their lists (is_listed, n_listed, listed): one step.  places [n_beams] has the n_ids ids of
 * each place; afterwards they are those of the beam that is there now, one more, and for each place that runs `parent`
 * and `id` say how it came about.  True: the search is over, and `order` is there. */
bool rg_beams_step(rg_beams *b, const rg_beam_ids *places);

/* End the search as it stands: beams become answers that were cut.  Nothing if it is over. */
void rg_beams_close(rg_beams *b, const rg_beam_ids *places);

/* The lists are lost, to be made again.  Sets n_common. */
void rg_beams_lose(rg_beams *b, const rg_beam_ids *places);

/* The first n ids of `from` into `to`, and what is said of them. */
void rg_beam_ids_copy(const rg_beams *b, const rg_beam_ids *to, const rg_beam_ids *from, int32_t n);

/* sum / n^penalty. */
double rg_beam_score(double sum, int32_t n, double penalty);

#endif
