/* lookahead.h -- lookahead decoding (2402.02057): n-grams from Jacobi trajectories, checked as drafts.
 *
 * A window has W columns and N - 1 levels: level l of a column is what the model gave one iteration after level l - 1.
 * Each step computes the window's rows beside the answer's (as probes; level l follows level l - 1 of its column, and
 * the first level is a chain), takes the ids drawn after the last level as the next one, and forgets the first.  A
 * column's N ids, read along the levels, are an n-gram: it goes into a pool by its first id.  Those that begin with the
 * answer's last id, at most G of them, are the draft.  Rows of a step beside the answer's own: (W - 1) + W (N - 2) +
 * G (N - 1) at most.
 *
 * A pool belongs to one answer, and has room for the n-grams of RG_LOOKAHEAD_KEYS first ids; it forgets the id that was
 * not used for the longest time, of a few that share a place. */
#ifndef RG_ENGINE_DRAFT_LOOKAHEAD_H
#define RG_ENGINE_DRAFT_LOOKAHEAD_H

#include "engine/draft/draft.h"

enum { RG_LOOKAHEAD_KEYS = 512, RG_LOOKAHEAD_MAX_N = 8 };

typedef struct rg_lookahead_size {
    int32_t window, n, guesses; /* W, N (3 .. RG_LOOKAHEAD_MAX_N), G; with no more rows than RG_MAX_DRAFT */
    bool only_window;           /* n-grams of the prompt and of the answer stay out of the pool */
} rg_lookahead_size;

/* The largest size with at most so many rows. */
rg_lookahead_size rg_lookahead_size_for(int32_t max_rows);
int32_t rg_lookahead_rows(const rg_lookahead_size *size);

rg_drafter *rg_lookahead_open(const rg_draft_options *o, const rg_lookahead_size *size, rg_error *err);

#endif
