/* weights.h -- declare the weights that the config implies, and bind them: have a back end place them.
 *
 * Declared weights have names, shapes and a source; that is enough to count and to plan.  Binding checks every tensor's
 * shape, reads it row by row and hands the rows to the back end, which decides how they lie (ops/placed.h); after it
 * nothing reads the file. */
#ifndef RG_MODEL_WEIGHTS_H
#define RG_MODEL_WEIGHTS_H

#include "model/arch.h"
#include "ops/backend.h"

typedef struct rg_weight_set {
    const rg_backend *backend; /* that places them; once declared the first one, until the caller sets another */
    rg_weight *all;            /* n of them; names and what is placed are owned by the set */
    const rg_weight_spec **spec;
    int *layer;                /* -1: outside the layers */
    int n;
    rg_placed **placed;        /* one per weight; NULL: none yet, or it is a vector */
    rg_type *settled;          /* one per weight: the type in which experts that are apart are placed */
    char *names;
    uint64_t n_parameters, bytes, stored_bytes; /* bytes: resident once bound; stored: as in the checkpoint */
    int n_orders;              /* numbers of orders of columns that weights have */
    bool headless;             /* the checkpoint has no head, and does not say that it is tied to the embedding */
    rg_weight_part *parts;     /* for each weight what this rank has of it; NULL: there are no ranks */
    bool is_borrowed;          /* of another set (rg_weights_borrow), whose are the names and what is not in `placed` */
    bool round16;              /* F16 matrices are placed as BF16, rounded where that cannot hold a value */
    bool experts_apart;        /* experts are not bound: they stay in a file, as pages of: */
    rg_paged *paged;           /* the back end's; NULL: nothing is paged */
} rg_weight_set;

/* Work on every weight, done by whichever thread is free, in order. */
typedef struct rg_weight_work {
    bool (*each)(void *arg, int i, rg_error *err); /* on weight i of the set; several at once */
    void *arg;
    int n_threads;
    const char *what; /* what it is, for progress */
    void (*progress)(void *arg, const char *what, double done); /* by the calling thread, 0 to 1; may be NULL */
    void *progress_arg;
} rg_weight_work;

/* False and *err: that of the first weight that failed. */
bool rg_weights_each(rg_weight_set *s, const rg_weight_work *work, rg_error *err) RG_MUST_CHECK;

/* ckpt may be NULL (a config alone): types are then `type`.  With one, types and presence come from its tensors. */
bool rg_weights_declare(rg_weight_set *s, const rg_config *c, const rg_checkpoint *ckpt, rg_type type, rg_error *err)
    RG_MUST_CHECK;
/* ckpt NULL: random values (random_weights.h).  Uses so many threads.  progress (may be NULL) is called by the calling
 * thread with the share that is done, 0 to 1. */
bool rg_weights_bind(rg_weight_set *s, const rg_config *c, const rg_checkpoint *ckpt, int n_threads,
                     void (*progress)(void *arg, const char *what, double done), void *arg,
                     rg_error *err) RG_MUST_CHECK;
/* Bind the weights of one layer (-1: of none), on this thread; and free what binding one made. */
bool rg_weights_bind_layer(rg_weight_set *s, int layer, const rg_config *c, const rg_checkpoint *ckpt,
                           rg_error *err) RG_MUST_CHECK;
void rg_weights_unbind_layer(rg_weight_set *s, int layer);
/* The type in which weight i is given to the back end: its own, or BF16 for F16 with round16. */
rg_type rg_weights_given_type(const rg_weight_set *s, int i);
/* How n_mats of w's matrices are to be placed, as `type` (rg_weights_given_type, or what rg_weights_placed_type
 * gives). */
rg_placing rg_weights_placing(const rg_weight *w, rg_type type, int64_t n_mats);
/* In which type weight i is placed: its own, or, once it is bound, BF16 where that holds each value of its F16.
 * Experts that are apart are looked at when the set is bound. */
rg_type rg_weights_placed_type(const rg_weight_set *s, int i);
/* Place one matrix of weight i alone; rg_placed_free it.  NULL and *err: it cannot be read, or there is no memory. */
rg_placed *rg_weights_place_mat(const rg_weight_set *s, int i, int64_t mat, const rg_config *c,
                                const rg_checkpoint *ckpt, rg_error *err);
/* Weight i becomes `with`, which is the set's from now on, and of its type; what it was is freed. */
void rg_weights_replace(rg_weight_set *s, int i, rg_placed *with);
/* Weight i is a vector whose values (vec) are new: give them to a back end that cannot read them there.  Cannot fail
 * where it was given them before. */
bool rg_weights_place_vector(rg_weight_set *s, int i, rg_error *err);
/* Put a row as w has it, in p's type (all rows of its matrices are counted through) into p: all of it, or what this
 * rank has of it, columns being cut between whole blocks. */
void rg_weights_put_row(rg_placed *p, const rg_weight *w, int64_t at, const uint8_t *row);
/* Weight i is placed: give that to it, or to this rank's part of it. */
void rg_weights_set_placed(rg_weight_set *s, int i);
/* True if weight i holds experts, and they are apart. */
bool rg_weights_is_apart(const rg_weight_set *s, int i);
/* All are bound: count the bytes that they take. */
void rg_weights_count_bytes(rg_weight_set *s);
/* Make s a set of the same weights as a bound one, which must outlive it: rg_weights_replace gives it matrices of its
 * own in their stead.  It holds no bytes before that. */
bool rg_weights_borrow(rg_weight_set *s, const rg_weight_set *of, rg_error *err) RG_MUST_CHECK;
/* Free what binding made; the weights are declared again. */
void rg_weights_unbind(rg_weight_set *s);
/* One flag for each tensor of the checkpoint, in its order: true if a weight is made from it; and how many are false.
 * Tensors that are ignored count as used.  rg_free it; NULL: no memory. */
bool *rg_weights_used(const rg_weight_set *s, const rg_config *c, const rg_checkpoint *ckpt, int *n_unused,
                      rg_error *err);
void rg_weights_fini(rg_weight_set *s);
/* The name of the format that holds most of the weights' bytes in the checkpoint. */
const char *rg_weights_commonest_type(const rg_weight_set *s);
/* The weight of a role in a layer (-1: outside), or NULL. */
const rg_weight *rg_weights_get(const rg_weight_set *s, int role, int layer);

#endif
