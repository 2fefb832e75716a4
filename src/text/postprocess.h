/* postprocess.h -- the ids that a tokenizer puts around a text. */
#ifndef RG_TEXT_POSTPROCESS_H
#define RG_TEXT_POSTPROCESS_H

#include "text/tokenizer.h"

enum { RG_AROUND_CAP = 16 };

typedef struct rg_around {
    int32_t before[RG_AROUND_CAP], after[RG_AROUND_CAP];
    int n_before, n_after;
} rg_around;

/* One more id at the very front, or at the very end. */
bool rg_around_before(rg_around *a, int32_t id, rg_error *err);
bool rg_around_after(rg_around *a, int32_t id, rg_error *err);

#endif
