/* tour.h -- what the parts of `ridge tour` share: tour.c prints, tour_facts.c plans and measures, tour_steps.c is the
 * lecture: its steps in their order, as data. */
#ifndef RG_CLI_TOUR_H
#define RG_CLI_TOUR_H

#include "cli/profile.h"
#include "cli/speed.h"
#include "plan/plan.h"
#include "plan/svg.h"

enum { TOUR_BATCHES = 11, TOUR_LECTURE = 6, TOUR_TEXT = 200 };

/* Llama 2 13B on the lecture's H100, 1,024 positions a sequence. */
typedef struct tour_planned {
    int64_t batch;
    bool grouped;       /* 8 K/V heads for 40 query heads, else 40 */
    rg_plan_row row;
} tour_planned;

/* A decode step of the shipped model on this machine. */
typedef struct tour_step_time {
    int batch;
    double planned_s, measured_s;
    rg_bound bound_by;
} tour_step_time;

/* What is planned and measured, once, for all steps. */
typedef struct tour_facts {
    rg_profile profile;
    char here_title[CLI_HERE_ROOM];
    rg_plan_machine h100, here;
    tour_planned lecture[TOUR_LECTURE];
    tour_step_time step[TOUR_BATCHES];
    int n_steps;
    double b_star;                  /* of the shipped model here */
    double prefill_s, prefill_planned_s; /* of TOUR_PROMPT ids */
    double cached_s, naive_s;       /* TOUR_PROMPT / 8 ids after as many, with the K/V cache and without */
    double kv_bytes, weight_bytes;  /* of a position; of the model */
    /* By the engine: */
    double alone_s, together_s;     /* TOUR_ANSWERS answers, one after the other and at once */
    double plain_s, drafted_s, ids_a_step; /* one answer, without a draft and with the smaller model's */
    double self_ids_a_step;         /* with the model's own self in 4 bits */
    bool same_alone;                /* one answer's ids and log-probabilities, alone and among the others, to the bit */
    double live, held, apart;       /* bytes of TOUR_ANSWERS answers to one prompt: written, held; and if none shared */
    rg_plan_ops ops;                /* of a step here, for the picture */
    rg_plan_row row;
} tour_facts;

enum { TOUR_PROMPT = 512, TOUR_ANSWERS = 8, TOUR_IDS = 64 };

bool tour_plan(tour_facts *f, const cli_args *a, bool full, rg_error *err);
bool tour_measure(tour_facts *f, const cli_args *a, rg_error *err);

/* A step of the lecture.  planned and measured write up to TOUR_TEXT bytes; NULL: there is nothing of the kind. */
typedef struct tour_step {
    const char *title, *idea, *formula, *lecture;
    void (*planned)(const tour_facts *f, char out[TOUR_TEXT]);
    void (*measured)(const tour_facts *f, char out[TOUR_TEXT]);
    const char *binds;   /* what limits it */
    const char *command; /* that shows it */
} tour_step;

extern const tour_step tour_steps[];
extern const int tour_n_steps;

#endif
