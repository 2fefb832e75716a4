/* matcher.h -- following a form byte by byte, as a set of stacks that share their lower parts.
 *
 * A frame says what is still to come at one level (a node, and the position in it) and which frame lies below.  Equal
 * frames are stored once, so that a stack is one number and equal stacks have the same number.  A step takes all stacks
 * and a byte, and gives the stacks that are possible after the byte.  If there is no room for one of them, it is left
 * out and `lost` is set: then fewer bytes are allowed than by the form, never more.  Allocates only when made. */
#ifndef RG_GRAMMAR_MATCHER_H
#define RG_GRAMMAR_MATCHER_H

#include "grammar/form.h"

enum {
    RG_HEADS = 256, /* stacks followed at once */
    RG_WORK = 1024, /* a power of two */
    RG_LOOKS = RG_WORK / 4 * 3, /* frames visited within a step */
};

typedef struct rg_frame {
    uint32_t node, below;
    uint64_t data;
} rg_frame;

typedef struct rg_visited {
    rg_frame frame;
    uint32_t stamp;
} rg_visited;

typedef struct rg_stacks {
    rg_frame *frame; /* [cap]; 0 is the END, 1 the BASE; what lies below has a lower number */
    uint32_t *index; /* [2 * cap], hash -> frame, 0 for none */
    uint32_t n, cap; /* cap: a power of two */
    uint32_t stamp;
    rg_visited seen[RG_WORK];
    rg_frame todo[RG_WORK];
    uint32_t n_todo;
    bool lost; /* the last step left a stack out */
} rg_stacks;

typedef struct rg_heads {
    uint32_t n;
    uint32_t id[RG_HEADS];
} rg_heads;

enum { RG_STACK_END, RG_STACK_BASE, RG_STACK_NONE = UINT32_MAX };

bool rg_stacks_init(rg_stacks *s, uint32_t cap);
void rg_stacks_fini(rg_stacks *s);
void rg_stacks_reset(rg_stacks *s);
void rg_stacks_copy(rg_stacks *to, const rg_stacks *from); /* of the same cap */
void rg_stacks_compact(rg_stacks *s, rg_heads *heads);     /* forget what heads do not reach */

/* The stack with this frame on top of another; NONE: no room, for this one or for the one below. */
uint32_t rg_stacks_push(rg_stacks *s, uint32_t node, uint64_t data, uint32_t below);

/* The stacks after byte; none: it cannot come, or (s->lost) there is no room for any of them. */
void rg_step(const rg_form *f, rg_stacks *s, const uint32_t *from, uint32_t n, uint8_t byte, rg_heads *to);

bool rg_frame_may_end(const rg_form *f, const rg_frame *frame); /* everything that it still expects may be empty */
bool rg_stack_may_end(const rg_form *f, const rg_stacks *s, uint32_t id, uint32_t bottom); /* down to END or BASE */

#endif
