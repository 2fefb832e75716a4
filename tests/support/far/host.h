/* host.h -- inside the host's side of the far back end: asking its process, and the steps' verbs. */
#ifndef RG_TEST_FAR_HOST_H
#define RG_TEST_FAR_HOST_H

#include "support/far/wire.h"

struct rg_state_memory {
    uint32_t number;
    far_groups groups;
    rg_state_shape shape; /* its arrays copied */
};

/* Send a verb, and with an answer wait for that: then w holds it.  Whole messages; any thread. */
void far_tell(far_verb verb, far_wire *w);
void far_ask(far_verb verb, far_wire *w);
/* True, or false with the process's error: what an answer begins with. */
bool far_succeeded(far_wire *w, rg_error *err);
uint32_t far_next_number(void);
uint32_t far_constant(const void *bytes, size_t n, bool is_rope);
void far_add_counts(const uint64_t bytes[FAR_KINDS]);
const rg_backend *far_ref(void);
/* Between the first and the last message of a step no other step's come. */
void far_begin_step(void);
void far_note_op(rg_op_kind kind);
void far_end_step(void);

bool far_measure(const rg_backend *b, const rg_step *step, size_t *bytes, rg_error *err);
rg_lane *far_lane_open(const rg_backend *b, const rg_lane_options *o, rg_error *err);
void far_lane_close(rg_lane *lane);
void far_lane_submit(rg_lane *lane, const rg_step *step);
void far_lane_wait(rg_lane *lane);

#endif
