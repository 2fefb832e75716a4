/* thinking.h -- a budget of ids for a model's reasoning: where it is used up, the ids that end reasoning are forced.
 *
 * Where the reasoning stands follows from the ids of the answer alone, so that a row of a draft is treated as the same
 * row without one.  Pure functions. */
#ifndef RG_ENGINE_THINKING_H
#define RG_ENGINE_THINKING_H

#include "ridge.h"

enum { RG_THOUGHT_MARK = 64 }; /* ids of a mark, at most */

/* The reasoning of an answer so far. */
typedef struct rg_thought {
    int32_t from;  /* ids of the answer before the reasoning; -1: it has not begun */
    bool is_over;
} rg_thought;

/* The answer so far, n ids.  tail [n_tail]: its last RG_THOUGHT_MARK ids, or all if there are fewer. */
typedef struct rg_thought_text {
    const int32_t *tail;
    int32_t n_tail, n;
} rg_thought_text;

rg_thought rg_thought_begin(const rg_thinking *t);
/* The answer's last id is new. */
void rg_thought_note(rg_thought *at, const rg_thinking *t, const rg_thought_text *text);
/* The id that must come next; -1: it may be any. */
int32_t rg_thought_forced(const rg_thought *at, const rg_thinking *t, const rg_thought_text *text);

/* False and *err: marks are too long, or not ids of the model. */
bool rg_thinking_check(const rg_thinking *t, int32_t vocab_size, rg_error *err);

#endif
