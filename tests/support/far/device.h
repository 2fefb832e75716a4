/* device.h -- inside the far back end's process: what it holds by number, and steps (device_step.c). */
#ifndef RG_TEST_FAR_DEVICE_H
#define RG_TEST_FAR_DEVICE_H

#include "support/far/wire.h"

/* State, and which of its groups have a block for every 64 positions. */
typedef struct far_state {
    rg_state_memory *memory;
    rg_state_shape shape;
    far_groups groups;
} far_state;

typedef struct far_lane far_lane; /* what computes steps */

const rg_backend *far_ref(void);
/* What a number stands for; aborts if it is nothing. */
void *far_at(uint32_t number);
void far_set(uint32_t number, void *p);
const void *far_constant_at(uint32_t number);
const rg_placed *far_placed_at(uint32_t number);
const float *far_values_at(const rg_placed *vector);

/* Answer messages until one has this verb, which in then holds. */
void far_serve_until(far_verb verb, far_wire *in);
void far_answer(far_verb verb, const far_wire *out);
void far_put_failure(far_wire *out, const rg_error *err);

void far_ask_lane_open(far_wire *in, far_wire *out);
void far_ask_lane_close(far_wire *in);
/* The whole step; its answers are sent on the way. */
void far_ask_step(far_wire *in);
void far_ask_step_wait(far_wire *in, far_wire *out);

#endif
