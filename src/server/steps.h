/* steps.h -- what the latest steps of a model did, and how the time of its latest answers was spent.
 *
 * Two rings of a fixed size: the pump writes, endpoints copy out of them.  The page draws both: steps as dots under the
 * machine's roofline, an answer's time as a picture.  A model that is closed and opened again keeps its rings, and its
 * steps are counted on.  Thread-safe. */
#ifndef RG_SERVER_STEPS_H
#define RG_SERVER_STEPS_H

#include "ridge.h"

enum { RG_STEPS_KEPT = 8192, RG_ANSWERS_KEPT = 256, RG_REQUEST_ID = 72 };

/* One step, or several that ended between two looks of the pump, together. */
typedef struct rg_step_note {
    uint64_t number;                /* of the last of these steps, counted from 1 over all engines that were noted */
    uint64_t end_ns;                /* as rg_now_ns counts: when the pump saw that it had ended */
    double took_s, limit_s;         /* time; time at the machine's limits, 0: these were not measured */
    double ops;                     /* operations */
    uint64_t bytes;                 /* read from memory: weights, K/V, state */
    uint64_t n_rows, n_output;      /* rows computed; ids generated */
    uint64_t n_drafted, n_accepted; /* ids of drafts that were checked, and accepted */
    int32_t n_steps, n_running;     /* how many steps these are; requests that ran at the end */
} rg_step_note;

/* One request that was answered. */
typedef struct rg_answer_note {
    char id[RG_REQUEST_ID];    /* X-Request-Id */
    int32_t tenant;            /* of its key; -1: none */
    uint64_t since_ns, end_ns; /* when it came, and ended */
    double queue_s, first_s;   /* from since_ns to the first step, and to the first token; 0: there was none */
    uint64_t last_step;        /* the number of the last step before its end, noted or not */
    int64_t n_prompt, n_cached, n_output, n_drafted, n_accepted; /* tokens */
} rg_answer_note;

typedef struct rg_steps rg_steps;

rg_steps *rg_steps_new(rg_error *err);
void rg_steps_free(rg_steps *s); /* NULL is fine */

/* Note the steps between two looks at the engine's figures; nothing, if there were none. */
void rg_steps_add(rg_steps *s, const rg_stats *then, const rg_stats *now, uint64_t now_ns);
/* engine_steps: how many steps its engine has done by now; last_step follows from it. */
void rg_steps_answered(rg_steps *s, const rg_answer_note *a, uint64_t engine_steps);

/* Copy the latest notes, at most `room`, of steps after number `after` that ended after from_ns, oldest first.  Returns
 * how many.  *last: the number of the latest step of all, 0: there was none; NULL is fine. */
int rg_steps_read(rg_steps *s, uint64_t after, uint64_t from_ns, rg_step_note *out, int room, uint64_t *last);
/* Copy the latest answer to a request of this id and key.  False: it is not known, or no longer. */
bool rg_steps_find(rg_steps *s, const char *id, int32_t tenant, rg_answer_note *out);

#endif
