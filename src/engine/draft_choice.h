/* draft_choice.h -- chooses the drafter and the number of drafts of a step, so that drafts never cost more than they
 * save.
 *
 * Gain: a draft saves a step if it is accepted.  How likely that is at each place of a draft is counted, by answer and
 * drafter, recent steps counting most; as long as an answer has few steps, the drafter's share over all answers
 * stands in.  Cost: the row that a draft adds to a step, by the time that steps are predicted to take (step_time.h:
 * rows are free while a step waits for weights, and cost where arithmetic is the limit or a mixture reads more
 * experts), and the time of the drafter itself.  The choice is what gives the most ids a second, and no drafts unless
 * that is clearly more than without.
 *
 * Predictions can be wrong, so the speed of steps with and without drafts is measured too, and decides in the end.
 * Both have to be tried for that: a step without drafts if there was none for long; a step with drafts that are not
 * known to pay once in RG_CHOICE_TRY steps at most, less and less often as long as they lose, and at once after one
 * that won.
 *
 * Drafting spends only what it has earned.  Steps without drafts add a hundredth of their time to a credit, and steps
 * with drafts add the time that they saved, or take off what they lost.  A step takes drafts only if the credit covers
 * its loss should all guesses be wrong.  So a short answer loses a hundredth at most, and where guesses stand the first
 * small draft pays for larger ones.  Arithmetic on given numbers; reads no clock. */
#ifndef RG_ENGINE_DRAFT_CHOICE_H
#define RG_ENGINE_DRAFT_CHOICE_H

#include "engine/step_time.h"

enum {
    RG_CHOICE_DRAFTERS = 4, /* at most */
    RG_CHOICE_DEPTH = 16,   /* of paths that are chosen */
    RG_CHOICE_TRY = 200,
};

/* How often the guesses at each place of a path were tried, those before them standing, and stood. */
typedef struct rg_draft_record {
    float tried[RG_CHOICE_DEPTH], stood[RG_CHOICE_DEPTH];
} rg_draft_record;

/* A drafter, as far as it matters here. */
typedef struct rg_draft_option {
    int32_t depth;                      /* of its deepest path, at most RG_CHOICE_DEPTH */
    int32_t nodes[RG_CHOICE_DEPTH + 1]; /* of the tree for a depth; [0]: 0 */
    double level_s;                     /* seconds that it takes for each id of a path, for all answers of the step */
    bool is_new;                        /* it has a network and was never asked: its first call takes a step longer */
} rg_draft_option;

/* An answer of the step, whose own row is in the load. */
typedef struct rg_draft_answer {
    int64_t start;     /* positions before that row */
    int32_t max_depth; /* 0: it takes no drafts */
    int32_t left;      /* ids that it may still have */
    double read_s[RG_CHOICE_DRAFTERS]; /* seconds of each drafter to read the text so far, before its first guess */
    const rg_draft_record *records; /* [n_drafters] its own */
    /* The choice: the drafters to be asked, each if those before it have no guess. */
    int32_t n;
    int32_t drafter[RG_CHOICE_DRAFTERS], depth[RG_CHOICE_DRAFTERS];
} rg_draft_answer;

/* Steps with so many answers and no prompts, lately. */
typedef struct rg_draft_measured {
    int32_t n_plain, n_drafted;  /* counted up to what the means are taken of */
    double plain_s, drafted_s;   /* seconds of a step, drafters included */
    double ids;                  /* of an answer, in a step with drafts */
    int64_t last_plain;          /* the step */
} rg_draft_measured;

typedef struct rg_draft_choice {
    rg_draft_measured measured[RG_STEP_SIZES]; /* by the power of two of answers */
    rg_draft_record overall[RG_CHOICE_DRAFTERS];
    int64_t n_steps, last_try, pause; /* pause: steps until the next try; longer while tries only lose */
    int64_t n_plans;                  /* worked out so far: depths for a step, its cost and its ids */
    double credit_s;                  /* seconds that drafts may lose; below 0: they have lost more already */
    bool tried; /* the latest step took drafts that are not known to pay */
} rg_draft_choice;

void rg_draft_choice_init(rg_draft_choice *c);

/* Choose for answers [0, n) of a step that without drafts has this load, and at most max_rows rows of drafts. */
void rg_draft_choose(rg_draft_choice *c, const rg_step_time *t, const rg_step_load *load,
                     const rg_draft_option *drafters, int32_t n_drafters, rg_draft_answer *answers, int32_t n,
                     int32_t max_rows);

/* The step, which had n answers and no prompts, took so long and gave so many ids. */
void rg_draft_measure(rg_draft_choice *c, int32_t n, bool drafted, double took_s, int32_t n_ids);

/* Mean seconds of recent steps with about n answers, no prompts and no drafts; 0: too few were measured. */
double rg_draft_plain_s(const rg_draft_choice *c, int32_t n);

/* A draft whose deepest path has n_deep ids was checked; the first n_path of a path stood. */
void rg_draft_note(rg_draft_choice *c, rg_draft_record *own, int32_t drafter, int32_t n_deep, int32_t n_path);

/* The chance that the guess at place k (from 0) stands if those before it do. */
double rg_draft_chance(const rg_draft_choice *c, const rg_draft_record *own, int32_t drafter, int32_t k);

#endif
