/* step_facts.h -- how much a step reads and computes: a few numbers of a model, and arithmetic on them.
 *
 * The numbers are taken once, from a counting run of one row.  The work of a step of any shape follows from them
 * without walking over the model.  Knows no seconds: engine/step_time.h predicts those. */
#ifndef RG_MODEL_STEP_FACTS_H
#define RG_MODEL_STEP_FACTS_H

#include "model/state.h"

/* What attention reads and computes for each key, summed over all layers with the same window. */
typedef struct rg_key_facts {
    int32_t window;    /* positions that a row sees, its own among them; 0: all before it */
    double bytes, ops; /* bytes of a key and its value; operations of a pair of query and key */
} rg_key_facts;

typedef struct rg_step_facts {
    double weight_bytes;               /* read by every step: all but experts, embedding rows and the head */
    double head_bytes, head_ops;       /* bytes read if any logits are wanted; operations of each row of logits */
    double row_bytes, row_ops;         /* of a row: its embedding, its K/V on their way to the blocks; all products */
    double expert_bytes;               /* of all experts of all layers, */
    int32_t n_experts, n_experts_used; /*   of which a row uses so many in n; 0: the model has none */
    double sequence_bytes;             /* of a sequence: its recurrent state, read and written */
    rg_key_facts keys[RG_MAX_GROUPS];
    int32_t n_keys;
    rg_group kept[RG_MAX_GROUPS];      /* what a sequence keeps; borrows patterns of the model's config */
    int32_t n_kept;
    rg_type type;                      /* of most weights */
    double fixed_s;                    /* of a step, whatever its size: its operations and their barriers */
} rg_step_facts;

/* Take the numbers of a model, which may be declared only.  Allocates nothing. */
struct rg_model;
void rg_step_facts_find(rg_step_facts *facts, const struct rg_model *m);

/* What one step does. */
typedef struct rg_step_load {
    int32_t n_rows, n_logits, n_sequences;
    double key_bytes, key_ops; /* attention's */
} rg_step_load;

/* Add a sequence: n_rows causal rows after `start` positions. */
void rg_step_load_add(rg_step_load *load, const rg_step_facts *facts, int64_t start, int32_t n_rows, int32_t n_logits);

double rg_step_bytes(const rg_step_facts *facts, const rg_step_load *load);
double rg_step_product_ops(const rg_step_facts *facts, const rg_step_load *load); /* beside load->key_ops */

/* Bytes that a sequence of n positions keeps, in whole blocks. */
double rg_step_kept_bytes(const rg_step_facts *facts, int64_t n);

#endif
