/* plan.h -- what a model will cost on a machine, before it is run: memory, latency, throughput, and what limits it.
 *
 * Three methods.  closed-form is the textbook: every matrix, the embedding included, read once; latency = memory /
 * bandwidth.  general is step = B K/V / bandwidth + max(2 B P / peak, P bytes / bandwidth), arithmetic in bf16; it
 * needs no model, only its size.  counted, the default, runs the model's own code through the counting reader, and
 * takes the seconds from measure/cost.h.  Knows no files and no command line. */
#ifndef RG_PLAN_PLAN_H
#define RG_PLAN_PLAN_H

#include "plan/machines.h"

typedef enum rg_plan_method { RG_PLAN_COUNTED, RG_PLAN_CLOSED_FORM, RG_PLAN_GENERAL } rg_plan_method;

bool rg_plan_method_by_name(const char *name, rg_plan_method *method, rg_error *err) RG_MUST_CHECK;

/* How a diffusion model is assumed to fill in answers; a member that is 0 takes its default (fill.h). */
typedef struct rg_plan_filling {
    int64_t answer, block;
    double per_evaluation; /* ids that an evaluation finishes of each sequence */
    rg_diffusion_cache cache;
} rg_plan_filling;

/* What is planned for. */
typedef struct rg_plan_subject {
    rg_plan_method method;
    const rg_model *model;   /* declared is enough; NULL: `params` and `kv_bytes` say all (general) */
    double params;
    double kv_bytes;         /* per position of a sequence */
    double weight_bytes;     /* per parameter, for closed-form and general */
    double kv_value_bytes;   /* per value of K or V, likewise */
    bool exact;              /* recipe, for counted */
    rg_plan_filling filling; /* of diffusion models */
} rg_plan_subject;

typedef enum rg_bound { RG_BOUND_WEIGHTS, RG_BOUND_KV, RG_BOUND_COMPUTE } rg_bound;
extern const char *const rg_bound_names[];

typedef struct rg_plan_memory { /* bytes */
    double weights, kv, recurrent, activations; /* kv: of all sequences, windows included */
    double total, of;                           /* of: what the machine has */
} rg_plan_memory;

typedef struct rg_plan_row {
    const rg_plan_machine *machine;
    int64_t batch, seq;
    rg_plan_memory memory;
    bool fits;
    double latency_s;          /* of a step that computes the seq-th position of each of the batch's sequences; of a
                                *   diffusion model, of an evaluation of answers that end there, on average */
    double ttft_s;             /* of a prompt of seq positions, alone; of a diffusion model, until the first ids of an
                                *   answer are final */
    double evaluations;        /* of an answer of a diffusion model; 0: it is none */
    double rows;               /* of a sequence in an evaluation; likewise */
    double per_evaluation;     /* ids that an evaluation finishes; likewise */
    double throughput;         /* tokens per second of all sequences together */
    double ops, bytes;         /* of that step */
    double intensity;          /* ops / bytes */
    rg_bound bound_by;
    double fixed_s;            /* counted on a measured machine: within latency_s */
    double limit_s;            /* the roofline's latency, without measured terms */
    double closed_latency_s;   /* what closed-form says, for comparison; 0: it does not apply */
    int64_t max_batch;         /* the largest that fits at this seq; 0: not even one */
    double critical_batch;     /* where reading the weights takes as long as computing: peak bytes / (2 bandwidth) */
    int64_t knee_batch;        /* from this batch on throughput gains less than 10 % per doubling of latency; 0: beyond
                                *   the batches tried */
} rg_plan_row;

/* One row.  False: out of range, or closed-form asked of a model that it does not describe. */
bool rg_plan_point(const rg_plan_subject *s, const rg_plan_machine *m, int64_t batch, int64_t seq, rg_plan_row *row,
                   rg_error *err) RG_MUST_CHECK;

/* Latency and throughput alone, of any batch: what curves are drawn from. */
bool rg_plan_latency(const rg_plan_subject *s, const rg_plan_machine *m, int64_t batch, int64_t seq, double *latency_s,
                     rg_error *err) RG_MUST_CHECK;

/* A kind of operation, summed over all layers. */
typedef struct rg_plan_op {
    const char *name;       /* of its output: "q", "ffn", "logits" */
    const char *kind;
    bool prefill;           /* else decode */
    int count;
    double ops, bytes, seconds;
    double measured_s;      /* 0: was not */
    double intensity;
    rg_bound bound_by;
} rg_plan_op;

enum { RG_PLAN_MAX_OPS = 128 };

typedef struct rg_plan_ops {
    rg_plan_op op[RG_PLAN_MAX_OPS];
    int n;
} rg_plan_ops;

/* The operations of a decode step, then of a prefill of seq positions.  The textbook methods (closed-form, and general
 * with a model) take matrices at intensity B T and attention at S T / (S + T) times heads / kv heads. */
bool rg_plan_list_ops(const rg_plan_subject *s, const rg_plan_machine *m, int64_t batch, int64_t seq, rg_plan_ops *out,
                      rg_error *err) RG_MUST_CHECK;

/* ---- the textbook ---- */

/* 2 V D + 3 D F L + (2 D N H + 2 D K H) L.  False and *err: not a dense decoder with K/V attention. */
bool rg_plan_textbook_params(const rg_config *c, double *params, rg_error *err) RG_MUST_CHECK;
/* K H L 2 values. */
double rg_plan_textbook_kv_values(const rg_config *c);

/* Bytes of activations of a row of a step, in which they are linear; and the type of most of a model's weights. */
double rg_plan_row_arena(const rg_model *m, const rg_plan_machine *machine);
rg_type rg_plan_usual_type(const rg_model *m);

/* Bytes of state of one sequence of seq positions, in the engine's own blocks: K/V, windows included; and recurrent. */
void rg_plan_state_bytes(const rg_model *m, int64_t seq, double *kv, double *recurrent);

#endif
