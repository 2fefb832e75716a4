/* rtn.h -- rounding a model that is in memory, for studies: nothing is written. */
#ifndef RG_SHRINK_RTN_H
#define RG_SHRINK_RTN_H

#include "model/model.h"
#include "shrink/kbit.h"

/* Columns that are not rounded, but kept in f16: set kept [cols], all false before, of matrix `mat` of weight i of the
 * set, and say how many they are. */
typedef struct rg_round_keep {
    int64_t (*choose)(void *arg, const rg_weight_set *set, int i, int64_t mat, bool *kept);
    void *arg;
} rg_round_keep;

/* Round the matrices of all layers (not routers) to the nearest codes, in f32 from then on; c has been initialised.
 * keep NULL: all columns are.  *bits: of all weights, each scale counted as 16 bits and each zero point as a code. */
bool rg_round_model(rg_model *m, const rg_coding *c, const rg_round_keep *keep, double *bits,
                    rg_error *err) RG_MUST_CHECK;
/* True for a weight of the set whose matrices are rounded. */
bool rg_round_is_of(const rg_weight_set *set, int i);
/* Bits of all weights as they are stored. */
double rg_stored_bits(const rg_model *m);

#endif
