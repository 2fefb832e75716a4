/* stand_in.h -- what is trained in place of masters, which follow from it: low-rank deltas, weights behind a
 * quantization grid. */
#ifndef RG_TRAIN_STAND_IN_H
#define RG_TRAIN_STAND_IN_H

#include "train/adamw.h"

typedef struct rg_stand_in {
    void *arg;
    bool (*add_to)(void *arg, rg_adamw *a, rg_error *err); /* the tensors that are updated */
    void (*pull)(void *arg, rg_back_lane *lane);           /* their gradients, from those of masters */
    void (*apply)(void *arg, rg_back_lane *lane);          /* masters become what they say */
} rg_stand_in;

#endif
