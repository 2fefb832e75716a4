/* ops.h -- THE SEAM: the operations a model is written in.
 *
 * A model is ordinary C that calls the functions below once per operation.  What stands behind them decides what the
 * text does: compute it (a back end, backend.h), count its operations and bytes (count/), watch its intermediates
 * (watch/), and later tape or shard it.  Every call becomes one rg_op record handed to the reader of the rg_fwd;
 * readers wrap readers.
 *
 * An activation is a handle (rows, columns, name), not a pointer: its values are where the back end keeps them, which
 * may be memory that this process cannot read, and counting needs none.  A back end may run the text on several
 * threads, each with a private rg_fwd in which handles come out alike; no operation returns data to the text.  Knows no
 * model, no sequence, no request. */
#ifndef RG_OPS_OPS_H
#define RG_OPS_OPS_H

#include "ops/batch.h"
#include "ops/kv.h"
#include "ops/placed.h"
#include "ops/sight.h"

typedef struct rg_fwd rg_fwd;

/* ---- operands ---------------------------------------------------------------------------------------------------- */

/* A matrix of f32, [rows, cols].  Owned by its rg_fwd; valid until released. */
typedef struct rg_act {
    const char *name; /* as dumped: "attn_norm", "q", ... */
    int rows, cols;
    int layer; /* in which it was made; -1: outside the layers */
    int shown,
        first; /* of a view: the number of the activation that it shows, and its first column there; else -1, 0 */
} rg_act;

/* What an adapter adds to a weight (LoRA, Hu et al. 2021): y += scale * B (A x), for the rows of the spans that name
 * the adapter.  Its recipe is exact: A x, then B of that, then the product with scale, each row by itself. */
typedef struct rg_delta {
    const rg_placed *a; /* [rank, cols]; NULL: this adapter leaves the weight as it is */
    const rg_placed *b; /* [rows, rank] */
    float scale;
} rg_delta;

/* How ranks share a weight: runs of rows, of columns, or of its matrices. */
typedef enum rg_split { RG_CUT_NONE, RG_CUT_ROWS, RG_CUT_COLS, RG_CUT_MATS } rg_split;

/* A weight: declared from the config, then bound: placed by a back end.  Counting stops at declared. */
typedef struct rg_weight {
    const char *name; /* as in the checkpoint, for messages */
    rg_type type;     /* as stored; RG_F32 when only declared */
    int64_t n_mats, rows, cols; /* stacked matrices of [rows, cols]; a vector is [1, 1, n] */
    const rg_placed *placed;    /* a matrix, bound; else NULL */
    const float *vec;           /* a vector or small table in f32, bound; else NULL */
    int64_t apart;              /* of vec: values from one row to the next; 0: cols */
    const rg_placed *placed_vec; /* its copy in a back end that does not read the host's memory; else NULL */
    rg_split split;             /* how ranks share it, where they do */
    const struct rg_weight_part *part; /* what this rank has of it; NULL: all of it */
    float threshold;            /* values of an input of this magnitude or less count as 0 in a product; 0: all count */
    int order;                  /* of its columns, by number: equal ones are of equal orders; 0: they are in order */
    bool wide;                  /* columns that meet zeros are skipped: a wish of the placing (placed.h) */
    const rg_delta *deltas;     /* of a matrix, by the number of the adapter; NULL: no adapter changes it */
} rg_weight;

/* Values from one row of a weight's vec to the next. */
static inline size_t rg_vec_stride(const rg_weight *w)
{
    return (size_t)(w->apart ? w->apart : w->cols);
}

/* A rank's part of a weight: of `units` equal runs of what split names, those of the rank (rg_rank_first). */
typedef struct rg_weight_part {
    rg_split split;
    int64_t units;
    int64_t first, n; /* rows, columns or matrices */
    rg_weight here;   /* these as a weight by itself */
} rg_weight_part;

/* What one piece of state belongs to: its sequence as a whole, or each of its positions. */
typedef enum rg_per { RG_PER_SEQUENCE, RG_PER_POSITION } rg_per;

/* One buffer of a layer's state besides K/V: of the sequence as a whole (a recurrent state, the tail of a convolution),
 * which lies in the sequence's slot; or of each position (an indexer's keys), rows [RG_BLOCK][bytes] in a block.  The
 * layer says the members up to window, rg_state_declare fills in the rest. */
typedef struct rg_buffer {
    const char *name;
    rg_per per;
    size_t bytes;        /* per sequence, or per position */
    int values;          /* per position: numbers, kept in the type of K/V, from which bytes follows; 0: just bytes */
    size_t draft_bytes;  /* per sequence: of a draft row's inputs, which fold it in once it is accepted; 0: none */
    int window;          /* per position: positions that a row reads, itself included; 0: all */
    rg_type type;        /* of values: as rg_kv's; of q8 the scales stand behind them (kv.h) */
    int group;
    size_t offset;       /* in a block of its group */
    size_t draft_offset; /* likewise, of the log of draft rows, [max_draft][draft_bytes] */
    int max_draft;       /* 0: no drafter can come, and there is no log */
} rg_buffer;

/* Rotary embedding: one per kind of layer, computed when the model is opened.  Where a model chooses frequencies by how
 * long a sequence may become, there are variants.  Few of them (longrope: short factors, long factors) are an array,
 * and rg_rotate gets its first; a row is rotated by variant min(rope of its span, n_variants - 1).
 * Dynamic NTK has one for every length: variant v > 0 is of sequences of original + v positions, and its base is
 * theta * (stretch * (original + v) / original - (stretch - 1))^(d / (d - 2)), d = 2 n_pairs. */
typedef struct rg_rope {
    int n_variants;        /* of the array that this begins, alike in n_pairs and interleaved; 0 is as 1 */
    int n_pairs;           /* rotated pairs; 2 n_pairs <= head size, the rest passes through */
    const float *inv_freq; /* [n_pairs], scaling applied */
    float factor;          /* cos and sin are multiplied by it (yarn) */
    bool interleaved;      /* pairs (2i, 2i + 1); else (i, i + n_pairs) */
    int original;          /* dynamic NTK; 0: not */
    double theta, stretch;
} rg_rope;

typedef enum rg_activation {
    RG_SILU,      /* x sigmoid(x) */
    RG_GELU,      /* x Phi(x), by erf */
    RG_GELU_TANH, /* its approximation by tanh */
    RG_RELU,
    RG_RELU2,     /* relu(x)^2 */
    RG_SIGMOID,   /* for gates */
    RG_SWIGLU_CLAMPED, /* gpt-oss: g sigmoid(1.702 g) of g = min(x, 7); what it gates enters as clamp(up, -7, 7) + 1 */
    RG_TANH,
    RG_EXP,
    RG_SOFTPLUS,  /* log(1 + exp x) */
    RG_IDENTITY,  /* x */
    RG_INVERSE,   /* 1 / x */
    RG_ACTIVATIONS
} rg_activation;

/* What attention does besides reading the keys of a layer.  Fields left out are 0: no cap, no sinks. */
typedef struct rg_attend_params {
    int n_heads;            /* query heads; head h reads kv head h / (n_heads / kv->n_heads) */
    float scale;            /* of q . k */
    float cap;              /* scores become cap * tanh(score / cap); 0: as they are */
    const rg_sight *sight;  /* which keys a row sees */
    const rg_weight *sinks; /* [n_heads], or NULL: a score per query head that takes part in the softmax and has no
                               value, so that a row's weights add up to less than 1; neither scaled nor capped */
    const rg_act *first_q;  /* [rows, n_heads * k_dim], or NULL: the queries of keys before place n_first, those of the
                               others being q.  They differ where a row counts its distance to the first keys otherwise
                               than to the rest (StreamingLLM; see rg_rotate_until).  Not of latents */
    int n_first;
    const rg_act *chosen;   /* [rows, n] of rg_choose_keys, or NULL: of the keys that a row sees, it reads these */
} rg_attend_params;

/* The scores of experts, made from the router's logits. */
typedef enum rg_expert_score {
    RG_SCORE_CHOSEN,  /* the best logits are chosen, and a softmax over them gives the weights */
    RG_SCORE_SOFTMAX, /* softmax over all */
    RG_SCORE_SIGMOID,
    /* PhiMoE's SparseMixer: the best logit m is chosen; its weight is its share in a softmax over those l with
     * (m - l) / max(|l|, m) <= 2 jitter; then the same among the others. */
    RG_SCORE_SPARSEMIXER,
} rg_expert_score;

/* Which experts, and how much of each.  Chosen are the n_used with the highest score, or score + bias where the
 * operation has biases; the weights are the scores alone. */
typedef struct rg_routing {
    int n_experts, n_used;
    rg_expert_score score;
    bool renormalize;     /* the weights of the chosen are divided by their sum + sum_eps */
    float sum_eps, jitter, scale;
    int n_groups, n_groups_used; /* group-limited: experts of the best groups alone; 0: off */
    bool groups_by_two;   /* a group counts as the sum of its best two experts; else as its best one */
    bool weigh_input;     /* rg_moe: the weights multiply the experts' input, not their output */
    int first_here, n_here; /* rg_moe has matrices of these experts, and leaves out the others; n_here 0: of all */
} rg_routing;

/* The experts' weights, stacked; biases are [n_experts, rows].  What is left out is not there. */
typedef struct rg_experts {
    const rg_weight *gate, *up, *down; /* without a gate: act(up x) */
    const rg_weight *b_gate, *b_up, *b_down;
    rg_activation act;
    bool alone;                        /* y = what they make, instead of y += */
} rg_experts;

/* A linear recurrence with a matrix state per head, S [k_dim, v_dim], zero at first; row after row
 *     S = diag(decay) S + k u^T,  y = scale * q . S + skip * v      (GLA, Yang et al. 2023; SSD, Dao & Gu 2024)
 * where u = beta * v; with `delta` u = beta * (v - k . diag(decay) S), the delta rule (gated DeltaNet, Yang et al.
 * 2024); with a and b S = diag(decay) S + a (b . S)^T + k u^T, where b reads the S of the row before (RWKV-7, Peng et
 * al. 2025).
 * An operand has as many heads as its columns say, any divisor of n_heads; several states then share one of them. */
typedef struct rg_linear_attention_params {
    int n_heads, k_dim, v_dim; /* states, and their sides */
    bool interleaved;    /* of m heads of an operand, state h reads head h % m; else head h / (n_heads / m) */
    float scale;
    bool delta;
    const rg_act *q, *k; /* [rows, heads * k_dim] */
    const rg_act *v;     /* [rows, heads * v_dim] */
    const rg_act *decay; /* [rows, n_heads]: a value per state; or [rows, heads * k_dim]: one per row of it; or NULL: */
    const rg_weight *fixed_decay; /* [n_heads], the same for every row; NULL as well: 1 */
    const rg_act *beta;  /* [rows, heads], or NULL: 1 */
    const rg_act *a, *b; /* [rows, heads * k_dim], both or none; not with delta */
    const rg_weight *skip; /* [n_heads], or NULL: 0 */
} rg_linear_attention_params;

/* What becomes of logits behind the head's product: cap * tanh(scale * logit / cap), or scale * logit. */
typedef struct rg_head_shape {
    float scale, cap; /* cap 0: none */
} rg_head_shape;

/* How a recurrence's decay follows from a row of an activation. */
typedef struct rg_decay_params {
    const rg_weight *bias; /* [cols], or NULL: 0 */
    rg_activation act;
    float min, max;        /* bounds of dt; max 0: none */
    const rg_weight *rate; /* [cols / k]: each of the rates is for k columns; NULL: fixed_rate for all */
    float fixed_rate;
} rg_decay_params;

/* ---- one operation ----------------------------------------------------------------------------------------------- */

typedef enum rg_op_kind {
#define OP(KIND, name) RG_OP_##KIND,
#include "ops/ops.def"
#undef OP
    RG_OP_COUNT
} rg_op_kind;

const char *rg_op_name(rg_op_kind kind);

/* What a reader sees.  Operands not used by a kind are NULL. */
typedef struct rg_op {
    rg_op_kind kind;
    rg_act *out[3];        /* written */
    const rg_act *in[7];   /* read */
    bool accumulate;       /* out is read too: out += */
    bool is_head;          /* of a product: its outputs are logits; the batch's picks may need few of them */
    const rg_weight *w[3]; /* matrices, or the vectors that ops.def names */
    const rg_weight *b[3]; /* biases, one per matrix */
    const rg_kv *kv;
    const rg_buffer *buffer;
    const rg_rope *rope;
    const rg_attend_params *attend;
    const rg_routing *routing;
    const rg_linear_attention_params *recurrence;
    const rg_decay_params *decay;
    rg_activation act;
    int n;       /* a count that the kind defines (heads, group size) */
    float x, y;  /* numbers that the kind defines (eps; scale and cap) */
} rg_op;

/* Gets a row of an activation, [cols]: x is valid during the call. */
typedef void rg_take_row(void *arg, int row, const float *x);
/* Writes a row of an activation, [cols].  Where the back end reads the host's memory, x holds the row as it stands. */
typedef void rg_give_row(void *arg, int row, float *x);

/* A reader of the seam.  run is called by every thread of the step with the same ops in the same order, and returns
 * when this thread may go on to the next one. */
typedef struct rg_reader rg_reader;
struct rg_reader {
    void (*run)(const rg_reader *self, rg_fwd *f, const rg_op *op);
    const rg_reader *inner; /* what a wrapping reader hands on to; NULL at the bottom */
    /* What rg_act_fetch and rg_act_put do, in a reader at the bottom.  NULL: it computes no values (it counts). */
    void (*fetch)(const rg_reader *self, rg_fwd *f, const rg_act *a, rg_take_row *take, void *arg);
    void (*put)(const rg_reader *self, rg_fwd *f, rg_act *a, rg_give_row *give, void *arg);
    void (*meet)(const rg_reader *self, rg_fwd *f); /* what rg_fwd_meet does there */
};

enum { RG_MAX_ACTS = 96, RG_STATE_TILE = 32 };

/* One thread's view of a step. */
struct rg_fwd {
    const rg_reader *reader;
    const rg_batch *batch;
    bool exact;            /* recipe: exact, else fast where the weight has one */
    bool llm_int8;         /* fast is LLM.int8() where it is int8 otherwise */
    bool bf16;             /* not exact: operands of products with weights of f32 are rounded to bf16 (training) */
    float attention_sparsity; /* each query leaves out blocks of keys whose weights are all below this threshold, which
                               * is less than 1; 0: none */
    int layer;             /* being computed; -1 outside the layers */
    bool apart;            /* operations that stand for several are run one by one: for who tapes them */
    bool guessing;         /* what is computed now serves a guess alone: nothing for who looks at values */
    int thread, n_threads; /* that run the text */
    int n_known; /* activations that the reader at the bottom has met: those from this number on are new to it.  It
                    * sets the number, a release lowers it */
    rg_act acts[RG_MAX_ACTS];
    int n_acts;
};

/* ---- activations ------------------------------------------------------------------------------------------------- */

/* A new activation of the step's rows (or of n rows). */
rg_act *rg_act_new(rg_fwd *f, const char *name, int cols);
rg_act *rg_act_rows(rg_fwd *f, const char *name, int rows, int cols);
/* Columns [first, first + cols) of a, sharing its memory. */
rg_act *rg_act_view(rg_fwd *f, const char *name, const rg_act *a, int first, int cols);

/* The first activation of this name that was made outside the layers and not released: what a model makes before its
 * first layer lives to the step's end, and layers read and write it.  Asserts if there is none. */
rg_act *rg_act_find(rg_fwd *f, const char *name);

/* Release everything made since the mark. */
int rg_act_mark(const rg_fwd *f);
void rg_act_release(rg_fwd *f, int mark);

/* Hand every row of an activation, as it stands here, to `take`: once each, by any thread of the step, several at once;
 * all have been taken when this returns.  Called by all threads alike, for who looks at values: it waits for the back
 * end, and its step is settled (backend.h).  Does nothing where nothing is computed. */
void rg_act_fetch(rg_fwd *f, const rg_act *a, rg_take_row *take, void *arg);
/* The other way: every row is written by `give`, likewise. */
void rg_act_put(rg_fwd *f, rg_act *a, rg_give_row *give, void *arg);
/* All threads of the step wait here for each other, where something is computed. */
void rg_fwd_meet(rg_fwd *f);
/* False: nothing is computed, so activations have no values. */
bool rg_reader_computes(const rg_fwd *f);

/* ---- adapters ---- */

/* Rows [first, first + n) of an activation that is multiplied, all of them of one adapter. */
typedef struct rg_adapted {
    int first, n, adapter;
    int span; /* the next one */
} rg_adapted;

/* The next such rows after *a, { 0 } at first; false: there are no more.  Within a layer an activation's rows are those
 * of the batch, outside the layers (the head) those whose logits are wanted. */
bool rg_adapted_next(const rg_fwd *f, rg_adapted *a);

/* ---- the operations: y first, then what it is made of.  A product adds the deltas of its weights ---- */

/* y = row of the table for each token (the first row for one that the table is too short for), times scale; or the
 * given row, as it is. */
void rg_embed(rg_fwd *f, rg_act *y, const rg_weight *table, float scale);
/* The same of a table that no given row stands for: for those, the first row. */
void rg_embed_beside(rg_fwd *f, rg_act *y, const rg_weight *table, float scale);
/* y += row p + offset of the table, kept in f32, p the position of the row: learned positions.  What runs the step sees
 * to it that the table has that row. */
void rg_embed_positions(rg_fwd *f, rg_act *y, const rg_weight *table, int offset);
/* y += row t of the table, kept in f32, t the token type of the row by its span's `second`; row 0 if the table has no
 * other. */
void rg_embed_types(rg_fwd *f, rg_act *y, const rg_weight *table);
/* y = the batch's features of each row, which are as many columns. */
void rg_read_features(rg_fwd *f, rg_act *y);
/* y [n_scores, cols] = the mean of each run of rows whose scores are wanted, summed in double in rising order. */
void rg_mean_rows(rg_fwd *f, rg_act *y, const rg_act *x);
/* y = the rows whose logits are wanted. */
void rg_gather(rg_fwd *f, rg_act *y, const rg_act *x);
/* y += x. */
void rg_add_to(rg_fwd *f, rg_act *y, const rg_act *x);
/* y *= x, elementwise: y [rows, cols], x [rows, cols / k] for any whole k; each value of x multiplies the k columns of
 * y that stand in its place.  k = 1: a gate of y's own width; k = head_dim: one value per head; k = cols: one per
 * row. */
void rg_mul_by(rg_fwd *f, rg_act *y, const rg_act *x);
/* y *= s. */
void rg_scale_by(rg_fwd *f, rg_act *y, float s);
/* y *= w, a vector of cols / k values: each multiplies k columns side by side. */
void rg_scale_columns(rg_fwd *f, rg_act *y, const rg_weight *w);
/* y *= first in rows of token type 0, and y *= second in those of type 1 (by their span's `second`), each a vector of
 * one value. */
void rg_scale_by_type(rg_fwd *f, rg_act *y, const rg_weight *first, const rg_weight *second);
/* y = 0 in rows whose token type is not this one, 0 or 1. */
void rg_keep_type(rg_fwd *f, rg_act *y, int type);
/* y_i = sum over j of m_ij x_j: x [rows, b * n] and y [rows, a * n] are runs of n columns, m [rows, a * b] a matrix for
 * each row.  y is not x. */
void rg_mix(rg_fwd *f, rg_act *y, const rg_act *x, const rg_act *m, int n);
/* y *= rms(x) / rms(y), row by row, rms being sqrt(mean(x^2)); a mean(y^2) below `floor` counts as that. */
void rg_match_rms(rg_fwd *f, rg_act *y, const rg_act *x, float floor);
/* y = relu(x - (mean + k * deviation)), of each row, the deviation being sqrt(mean((x - mean)^2)): of a normal
 * distribution it leaves the part above its k-th deviation.  y may be x. */
void rg_cut_gate(rg_fwd *f, rg_act *y, const rg_act *x, float k);
/* y *= 1 + beta * log(1 + floor((p + offset) / period)), p the position of the row: a scale of queries that grows where
 * a sequence is longer than those of training.  period > 0, offset >= 0. */
void rg_scale_by_position(rg_fwd *f, rg_act *y, float beta, int period, int offset);
/* y = x / sqrt(mean(x^2) + eps) * w, over each run of w->cols columns (a whole row, or each head of it): x, y [rows,
 * k * w->cols], w a vector.  y may be x. */
void rg_rmsnorm(rg_fwd *f, rg_act *y, const rg_act *x, const rg_weight *w, float eps);
/* The same over each run of n columns, without a weight. */
void rg_rmsnorm_plain(rg_fwd *f, rg_act *y, const rg_act *x, int n, float eps);
/* The same over each run of n columns, where every run has weights of its own: w [k * n]. */
void rg_rmsnorm_runs(rg_fwd *f, rg_act *y, const rg_act *x, const rg_weight *w, int n, float eps);
/* y = x / sqrt(sum(x^2) + eps) over each run of n columns.  y may be x. */
void rg_l2norm(rg_fwd *f, rg_act *y, const rg_act *x, int n, float eps);
/* LayerNorm: y = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * w + b, over each run of w->cols columns: x, y
 * [rows, k * w->cols], w and b vectors; b may be NULL.  y may be x. */
void rg_layernorm(rg_fwd *f, rg_act *y, const rg_act *x, const rg_weight *w, const rg_weight *b, float eps);
/* The same over each run of n columns, without weight and bias. */
void rg_layernorm_plain(rg_fwd *f, rg_act *y, const rg_act *x, int n, float eps);
/* The same over each run of n columns, where every run has weights and a bias of its own: w, b [k * n]. */
void rg_layernorm_runs(rg_fwd *f, rg_act *y, const rg_act *x, const rg_weight *w, const rg_weight *b, int n, float eps);
/* y = w x + b.  b may be NULL. */
void rg_linear(rg_fwd *f, rg_act *y, const rg_act *x, const rg_weight *w, const rg_weight *b);
/* The same where y is a step's logits, which are then multiplied by `scale`, and capped at `cap` unless it is 0: only
 * those that the batch's picks need have to be computed. */
void rg_linear_head(rg_fwd *f, rg_act *y, const rg_act *x, const rg_weight *w, const rg_weight *b, rg_head_shape shape);
/* y += w x + b: the residual inside the linear. */
void rg_linear_add(rg_fwd *f, rg_act *y, const rg_act *x, const rg_weight *w, const rg_weight *b);
/* Up to three linears of one input at once: q, k and v. */
void rg_linear3(rg_fwd *f, rg_act *const y[3], const rg_act *x, const rg_weight *const w[3],
                const rg_weight *const b[3]);
/* Per head h of w's matrices: y[h * w->rows ..] = w[h] x[h * x_stride .. + w->cols].  x_stride 0: all of the same. */
void rg_linear_heads(rg_fwd *f, rg_act *y, const rg_act *x, const rg_weight *w, int x_stride);
/* y = act(gate x + b0) * (up x + b1). */
void rg_gated(rg_fwd *f, rg_act *y, const rg_act *x, const rg_weight *gate, const rg_weight *up,
              const rg_weight *b_gate, const rg_weight *b_up, rg_activation act);
/* y = act(gate) * up, elementwise; all [rows, cols].  y may be gate or up.  With up = y and RG_SIGMOID it is a gate:
 * y *= sigmoid(gate). */
void rg_act_mul(rg_fwd *f, rg_act *y, const rg_act *gate, const rg_act *up, rg_activation act);
/* y = act(x), elementwise; both [rows, cols].  y may be x. */
void rg_activate(rg_fwd *f, rg_act *y, const rg_act *x, rg_activation act);
/* A map whose products are an exponential's Taylor series to second order (Arora et al. 2024, BASED): phi(q) . phi(k) =
 * 1 + s + s^2 / 2, s = q . k / sqrt(n), over each run of n columns.  x [rows, k * n]; y [rows, k * rg_taylor_cols(n)]:
 * 1, x[i] / n^(1/4), and of every pair i <= j x[i] x[j] / sqrt(n), times sqrt(1/2) where i = j. */
void rg_taylor(rg_fwd *f, rg_act *y, const rg_act *x, int n);
static inline int rg_taylor_cols(int n)
{
    return 1 + n + n * (n + 1) / 2;
}
/* Rotate each head of x [rows, heads * head_dim] by its row's position, the rotated part starting at column `first` of
 * the head, with the variant of the rope that the row's span uses. */
void rg_rotate(rg_fwd *f, rg_act *x, const rg_rope *rope, int head_dim, int first);
/* The same where a position beyond `last` counts as that one: of queries that are never further away from the first
 * keys than so (StreamingLLM, whose positions are places in a cache of the first keys and the newest). */
enum { RG_MAX_LAST = 1 << 24 };
void rg_rotate_until(rg_fwd *f, rg_act *x, const rg_rope *rope, int head_dim, int first, int last);
/* Put this step's K and V into the state: k [rows, n_heads * k_dim], v [rows, n_heads * v_dim].  Latent: k is the
 * latent [rows, v_dim], v the rotated part [rows, k_dim - v_dim]. */
void rg_kv_store(rg_fwd *f, const rg_kv *kv, const rg_act *k, const rg_act *v);
/* y [rows, n_heads * v_dim] = softmax(scale q . k, capped) v over what each row sees; q [rows, n_heads * k_dim]. */
void rg_attention(rg_fwd *f, rg_act *y, const rg_act *q, const rg_kv *kv, const rg_attend_params *p);
/* MLA, absorbed: q_latent [rows, n_heads * v_dim]; q_rope has as many columns for each head, and the last k_dim - v_dim
 * of them are the rotated part of that head's q (those before are not read); y [rows, n_heads * v_dim]. */
void rg_mla_attention(rg_fwd *f, rg_act *y, const rg_act *q_latent, const rg_act *q_rope, const rg_kv *kv,
                      const rg_attend_params *p);
/* Put each row of x into a buffer that is kept per position. */
void rg_rows_store(rg_fwd *f, const rg_buffer *rows, const rg_act *x);
/* Such a buffer, of so many columns; and its type, from which its bytes follow (f32 until it is declared). */
rg_buffer rg_rows_of(const char *name, int cols);
void rg_rows_set_type(rg_buffer *rows, rg_type type);
/* Where the scales of a row of q8 stand behind its n values. */
static inline size_t rg_rows_scales_at(int n)
{
    return (size_t)n + (size_t)n % 2;
}
/* Sparse attention by an indexer (DeepSeek-V3.2): chosen [rows, n] = the n keys below a row's kv_end that score best,
 *     score(j) = sum over heads h of weights[h] * relu(q[h] . k[j]),
 * of equal scores the one at the lowest place; as places (int32 bits), rising, and behind them INT32_MAX where the row
 * sees fewer than n.  q [rows, heads * k_dim], weights [rows, heads], keys [k_dim] for each position. */
void rg_choose_keys(rg_fwd *f, rg_act *chosen, const rg_act *q, const rg_act *weights, const rg_buffer *keys);
/* route [rows, 2 * n_used] = chosen experts (as int32 bits), in rising order, then their weights, from logits [rows,
 * n_experts].  bias [n_experts], added to the scores for the choice alone, and scale [n_experts], which multiplies the
 * weights at last, may be NULL. */
void rg_route(rg_fwd *f, rg_act *route, const rg_act *logits, const rg_routing *routing, const rg_weight *bias,
              const rg_weight *scale);
/* The experts that a later rg_moe will need, or probably will: those that lie in a file are read from now on, as far as
 * there is room.  No result depends on it. */
void rg_fetch(rg_fwd *f, const rg_act *route, const rg_routing *routing, const rg_experts *e);
/* y += sum over a row's experts, in index order, of weight * (down[e] (act(gate[e] x + b) * (up[e] x + b)) + b). */
void rg_moe(rg_fwd *f, rg_act *y, const rg_act *x, const rg_act *route, const rg_routing *routing,
            const rg_experts *e);
/* Causal depthwise convolution over positions: y[t, c] = act(b[c] + sum_j w[c, j] x[t - (taps - 1) + j, c % channels]).
 * x [rows, channels], y [rows, k * channels] (k results of each channel), w [k * channels, taps]; b may be NULL. */
void rg_conv(rg_fwd *f, rg_act *y, const rg_act *x, const rg_weight *w, const rg_weight *b, const rg_buffer *tail,
             rg_activation act);
/* Its buffer, f32: the last taps - 1 rows of x, oldest first, [taps - 1][channels]; of a draft row, x. */
rg_buffer rg_conv_tail(const char *name, int channels, int taps);
/* Mamba's selective scan (Gu & Dao 2023): dt = softplus(dt_raw); h = exp(dt A) h + dt B x; y = (C . h + D x) * silu(z).
 * x, dt_raw, z [rows, d_inner]; bc [rows, 2 * d_state] = B | C; a [d_state, d_inner] (transposed, = -exp(A_log)). */
void rg_scan(rg_fwd *f, rg_act *y, const rg_act *x, const rg_act *dt_raw, const rg_act *bc, const rg_act *z,
             const rg_weight *a, const rg_weight *d, const rg_buffer *h);
/* Its buffer, f32: h [d_state][d_inner]; of a draft row, x and dt [d_inner], then B [d_state]. */
rg_buffer rg_scan_state(const char *name, int d_inner, int d_state);
/* A linear recurrence (rg_linear_attention_params).  y [rows, n_heads * v_dim], not one of its operands. */
void rg_linear_attention(rg_fwd *f, rg_act *y, const rg_linear_attention_params *p, const rg_buffer *state);
/* Its buffer, f32: a state per head, each in tiles of up to RG_STATE_TILE columns, [k_dim][columns of the tile]; of a
 * draft row, `logged` floats: the columns of its k, v, decay, beta, a and b together. */
rg_buffer rg_linear_attention_state(const char *name, int n_heads, int k_dim, int v_dim, int logged);
/* dt = act(raw + bias) within bounds; decay = exp(rate * dt), elementwise: all [rows, cols].  dt may be NULL; it, else
 * decay, may be raw. */
void rg_decay(rg_fwd *f, rg_act *decay, rg_act *dt, const rg_act *raw, const rg_decay_params *p);
/* State spaces of one input and one output, one system per channel (S4, S4D: Gu et al. 2022), discrete, with n complex
 * modes that stand for their conjugates too; row after row
 *     q = 2 Re(sum R x),  x = E x + B u + F q,  y = 2 Re(sum C x) + D u.
 * u, y [rows, channels]; d [channels].  modes [n * RG_MODE_ROWS or RG_FULL_MODE_ROWS, channels]: for each mode E, B, C
 * and, if the modes meet, R and F, the real part and the imaginary one of each; but of C and R twice the real part and
 * minus twice the imaginary one. */
void rg_state_space(rg_fwd *f, rg_act *y, const rg_act *u, const rg_weight *modes, const rg_weight *d,
                    const rg_buffer *x);
enum { RG_MODE_ROWS = 6, RG_FULL_MODE_ROWS = 10 };
/* Its buffer, f32: x [n modes][2][channels]; of a draft row, u. */
rg_buffer rg_state_space_state(const char *name, int channels, int n_modes);
/* The RG-LRU (De et al. 2024): a = exp(rate * sigmoid(r + b[0])), h = a h + sqrt(1 - a^2) * sigmoid(i + b[1]) * x,
 * without the root at a sequence's first position; y = h.  All [rows, channels]; rate, b [channels]. */
void rg_lru(rg_fwd *f, rg_act *y, const rg_act *x, const rg_act *r, const rg_act *i, const rg_weight *rate,
            const rg_weight *const b[2], const rg_buffer *h);
/* Its buffer, f32: h [channels]; of a draft row, a, then what it adds. */
rg_buffer rg_lru_state(const char *name, int channels);
/* x = cap * tanh(x / cap). */
void rg_softcap(rg_fwd *f, rg_act *x, float cap);

/* y = softmax(x / temperature), of each wanted row with its own temperature, which the batch has; all [n_logits, cols].
 * y is not x. */
void rg_soften(rg_fwd *f, rg_act *y, const rg_act *x);

/* x, as it stands here, is a place that readers may want: a layer's input, what enters the head.  Computes nothing. */
void rg_note(rg_fwd *f, const rg_act *x);

#endif
