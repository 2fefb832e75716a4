/* wire.h -- how what crosses to the far back end's process, and back, is written: both sides use it.
 *
 * A message is a run of bytes that a far_wire holds.  Structs of the seam go member by member (fields.def); of pointers
 * an activation goes as its number, a weight as its description and the number of what was placed, a rope or patterns
 * as the number of a constant that was sent once.  Both sides are of one build, so that values go as they lie. */
#ifndef RG_TEST_FAR_WIRE_H
#define RG_TEST_FAR_WIRE_H

#include "ops/backend.h"
#include "support/far/far.h"

typedef enum far_verb {
#define VERB(name) FAR_##name,
#include "support/far/verbs.def"
#undef VERB
    FAR_VERBS
} far_verb;

/* ---- messages ---- */

typedef struct far_wire {
    uint8_t *data;
    size_t n, room; /* bytes written */
    size_t at;      /* of them, read */
    far_kind kind;  /* what is written and read now counts as */
    uint64_t bytes[FAR_KINDS];
} far_wire;

/* Write n bytes at the end; read the next n, or, without copying, where they lie.  Aborts where there are not so many. */
void far_put(far_wire *w, const void *p, size_t n);
void far_get(far_wire *w, void *p, size_t n);
void *far_get_in_place(far_wire *w, size_t n);
/* n bytes at the end, to be filled in. */
void *far_room(far_wire *w, size_t n);
void far_reset(far_wire *w);
void far_fini(far_wire *w);

#define FAR_PUT(w, value) far_put(w, &(value), sizeof(value))
#define FAR_GET(w, value) far_get(w, &(value), sizeof(value))

/* Write all of a message to a socket, read one.  False: the other side is gone. */
bool far_send(int fd, uint32_t verb, const far_wire *w);
bool far_receive(int fd, uint32_t *verb, far_wire *w);

/* ---- structs ---- */

/* A weight as the host has it. */
typedef struct far_weight {
    rg_placed base; /* first */
    uint32_t number;
    rg_placing what;
} far_weight;

/* What structs are written from, or made in. */
typedef struct far_codec {
    far_wire *wire;
    const rg_fwd *f;       /* whose activations are named */
    const rg_batch *batch; /* of adapters */
    /* The host's: whose weights are named, and the number of a constant. */
    const rg_backend *owner;
    uint32_t (*constant)(const void *bytes, size_t n, bool is_rope);
    /* The process's: what a number stands for, and memory for structs, until it is reset. */
    const void *(*constant_at)(uint32_t number);
    const rg_placed *(*placed_at)(uint32_t number);
    const float *(*values_at)(const rg_placed *vector);
    uint8_t *memory;
    size_t memory_bytes, memory_used;
} far_codec;

void far_put_op(far_codec *c, const rg_op *op);
void far_get_op(far_codec *c, rg_op *op);
/* True if the rows that a batch gives follow, where it gives any. */
static inline bool far_reads_given(const rg_op *op)
{
    return op->kind == RG_OP_EMBED && op->n;
}
/* Of an activation, its shape. */
void far_put_act(far_codec *c, const rg_act *a);
void far_get_act(far_codec *c, rg_act *a);
void far_put_placing(far_wire *w, const rg_placing *p);
void far_get_placing(far_wire *w, rg_placing *p);
void far_put_placed(far_wire *w, const rg_placed *p);
void far_get_placed(far_wire *w, rg_placed *p); /* leaves the owner */
void far_put_sizes(far_wire *w, const rg_reader_sizes *s);
void far_get_sizes(far_wire *w, rg_reader_sizes *s);
void far_put_shape(far_wire *w, const rg_state_shape *s);
/* Its arrays are the caller's to free. */
void far_get_shape(far_wire *w, rg_state_shape *s);
/* A rope with its variants and frequencies, from the bytes of its constant.  The caller's to free. */
const rg_rope *far_rope_of(void *bytes, size_t n);

/* What a step's messages are made of. */
typedef enum far_item {
    FAR_ITEM_OP,
    FAR_ITEM_FETCH, /* the activation's number; its message's last item, which is answered with the rows */
    FAR_ITEM_PUT,   /* the number and the rows */
    FAR_ITEM_END,   /* numbers of what rg_outputs names */
} far_item;

void far_put_step(far_wire *w, const rg_step *s);
void far_get_step(far_wire *w, rg_step *s);

/* ---- batches (batch.c) ---- */

/* Which groups of a state have a block for every 64 positions; the others have one for each sequence. */
typedef struct far_groups {
    int n;
    bool per_position[RG_MAX_GROUPS];
} far_groups;

far_groups far_groups_of(const rg_state_shape *shape);
void far_put_batch(far_wire *w, const rg_batch *b, const far_groups *groups);
/* Points into the wire and into memory of its own. */
typedef struct far_batch {
    rg_batch batch;
    rg_span *spans;
    rg_rows *runs; /* of hidden states, then those of scores */
    const int32_t **ancestors;
    const float **given;
    uint8_t *failed;
} far_batch;
/* Sizes, spans without their tables, and runs. */
void far_put_spans(far_wire *w, const rg_batch *b);
void far_get_spans(far_wire *w, far_batch *b);
void far_get_batch(far_wire *w, far_batch *b, const far_groups *groups);
void far_batch_fini(far_batch *b);

#endif
