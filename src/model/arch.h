/* arch.h -- what an architecture is: a table of keys, kinds of layer with their weights, and one block for each kind.
 *
 * One small file per architecture under arch/, one line each in archs.def, and nothing outside names them.  The weight
 * table is the checkpoint; the block is the paper.  Settings, weights and sizes that one architecture alone has stand
 * in its file: a struct for RG_OWN, roles from W_OWN on, functions for shapes. */
#ifndef RG_MODEL_ARCH_H
#define RG_MODEL_ARCH_H

#include "model/config.h"
#include "model/state.h"

/* What a weight is for. */
typedef enum rg_role {
    W_EMBED_TOKENS, W_EMBED_POSITIONS, W_FINAL_NORM, W_FINAL_NORM_BIAS, W_LM_HEAD,
    W_LM_HEAD_BIAS,
    W_ROPE_FREQS, W_ROPE_SHORT, W_ROPE_LONG,
    W_ATTN_NORM, W_ATTN_NORM_BIAS, W_FFN_NORM, W_FFN_NORM_BIAS,
    W_Q_PROJ, W_K_PROJ, W_V_PROJ, W_O_PROJ, W_Q_BIAS, W_K_BIAS, W_V_BIAS, W_O_BIAS, W_Q_NORM, W_K_NORM,
    W_SINKS, W_POST_ATTN_NORM, W_POST_FFN_NORM,
    W_GATE_PROJ, W_UP_PROJ, W_DOWN_PROJ, W_GATE_BIAS, W_UP_BIAS, W_DOWN_BIAS,
    W_ROUTER, W_ROUTER_BIAS,
    W_CHOICE_BIAS, W_EXPERT_SCALE, /* rg_route's bias and scale */
    W_GATE_EXPERTS, W_UP_EXPERTS, W_DOWN_EXPERTS, W_GATE_EXPERTS_BIAS, W_UP_EXPERTS_BIAS, W_DOWN_EXPERTS_BIAS,
    W_SHARED_GATE, W_SHARED_UP, W_SHARED_DOWN,
    W_FC, W_FC_BIAS, W_TOKEN_NORM, W_FEATURE_NORM, /* of networks that draft: what makes x of embedding and features */
    W_SHARED_ROUTER,     /* of one row: the shared expert counts as much as the sigmoid of its value */
    W_OWN,               /* the first of an architecture's own */
    W_COUNT = W_OWN + 32
} rg_role;

/* The length of one side of a weight, from the config.  Those that several architectures share: */
typedef int64_t rg_size(const rg_config *c, int layer);
rg_size DIM, DIM_2, VOCAB, Q_DIM, KV_DIM, QKV_DIM, HEAD_DIM, FFN_DIM, FFN_DIM_2, N_EXPERTS, MOE_DIM, MOE_DIM_2,
    SHARED_DIM, N_HEADS, ROPE_PAIRS, ONE;
/* First rows of the parts of a tensor that holds q, k and v one below the other; of what has its rows by turns with
 * another. */
rg_size ROW_0, ROW_1, ROW_OF_K, ROW_OF_V;
/* Define a size that one architecture alone has: SIZE(D_INNER, RG_OWN(c, settings)->d_inner). */
#define SIZE(name, formula)                                                                                            \
    int64_t name(const rg_config *c, int layer)                                                                        \
    {                                                                                                                  \
        (void)c, (void)layer;                                                                                          \
        return formula;                                                                                                \
    }

/* A condition of weights: WHEN(when_gated, RG_OWN(c, settings)->gated). */
#define WHEN(name, condition)                                                                                          \
    bool name(const rg_config *c, int layer)                                                                           \
    {                                                                                                                  \
        (void)c, (void)layer;                                                                                          \
        return condition;                                                                                              \
    }

enum { SPLIT_NONE, SPLIT_ROWS, SPLIT_COLS };

/* Makes a weight from a whole source tensor in f32, where the checkpoint stores it otherwise than the seam needs it:
 * src as stored, dst the n values of the spec's shape. */
typedef void rg_load_fn(const rg_config *c, const float *src, float *dst, int64_t n);

/* Makes a weight's values from weights of the same layer, by role, which are vectors or tables.  False and *err: it
 * cannot. */
typedef bool rg_derive_fn(const rg_config *c, int layer, const rg_weight *const w[], float *dst, rg_error *err);

typedef struct rg_weight_spec {
    int role; /* an rg_role, or one of the architecture's own */
    /* Names without ".weight": after the arch's prefix and "N." in a layer, '*' standing for an expert's number; and
     * after "blk.N.".  A name that begins with '/' has no prefix, and '#' in it stands for the layer's number.  NULL:
     * that kind of checkpoint has none. */
    const char *hf, *gguf;
    rg_size *shape[3]; /* 1: a vector, 2: a matrix, 3: stacked matrices */
    int split;
    bool (*when)(const rg_config *c, int layer); /* NULL: always */
    rg_load_fn *load;      /* NULL: as stored; applied to what the Hugging Face name finds */
    rg_load_fn *load_gguf; /* likewise for the GGUF name */
    /* Shape of the source where it differs: the tensor that load reads; or a tensor that holds several weights one
     * below the other (of stacked matrices: in each of them), where this one has the rows from first_row on; or, of
     * row_step weights whose runs of row_run rows take turns, a run from first_row on and every row_step-th after
     * it.  load, where there is one, takes them out itself. */
    rg_size *stored[3];
    rg_size *first_row;    /* NULL: not part of a larger tensor */
    int row_step;          /* 0: 1 */
    rg_size *row_run;      /* NULL: 1 */
    bool split_in_gguf;    /* GGUF has a tensor of its own for each part */
    bool transposed;       /* Hugging Face's matrices are [cols, rows]; shape and stored say [rows, cols] */
    /* Where the checkpoint lacks the GGUF name: a source and a load for it (older conversions). */
    const char *gguf_else;
    const char *hf_else;   /* another name where the checkpoint lacks the Hugging Face one */
    bool optional;         /* a network that drafts may lack it: it has its target's, if that has one of this role */
    bool made_new;         /* and where such a network is new, it has it */
    bool table;            /* a matrix kept as f32, not multiplied (a convolution's taps) */
    /* For writing GGUF from a Hugging Face checkpoint.  Without these, GGUF gets what `load` makes. */
    rg_load_fn *to_gguf;   /* from the Hugging Face tensor to GGUF's form, of the shape in `stored` */
    bool paired; /* GGUF holds the rotated rows of each head with the pairs side by side, not the halves apart */
    rg_size *gguf_shape[4]; /* of GGUF's tensor, where it has other sides than shape */
    bool bare;             /* the GGUF name stands without ".weight" */
    const char *letters;   /* what '*' stands for instead of numbers, for each matrix a letter; NULL: numbers */
    rg_derive_fn *derive;  /* no checkpoint has it: a vector or table that is made last; hf names it for messages */
} rg_weight_spec;

/* A layer as its block sees it, one in an array of all of them.  With index -1: what is outside the layers, for the
 * hooks below. */
typedef struct rg_layer {
    const rg_config *c;
    int index;
    const rg_weight *w[W_COUNT]; /* NULL: this layer has none */
    const rg_kv *kv;             /* NULL: none; where config.layer[].kv_layer is set, that layer's */
    const rg_sight *sight;       /* which of these keys a row sees */
    const rg_buffer *buffer;     /* in the order in which its keep lists them */
    const rg_rope *rope;         /* NULL: positions are not rotated */
    const rg_rope *second_rope;  /* the config's next one, of a block that rotates in two ways; NULL: there is none */
} rg_layer;

/* Layers that have the same weights and the same block. */
typedef struct rg_layer_kind {
    const rg_weight_spec *weights; /* ends with { 0 } */
    void (*keep)(const rg_config *c, int layer, rg_keep *out);
    void (*block)(rg_fwd *f, const rg_layer *l, rg_act *x); /* x += what the layer adds */
} rg_layer_kind;

struct rg_arch {
    /* Of config.json's "architectures": XForCausalLM, which also stands for the class without a head (XModel) and for
     * those whose rows see each other; NULL: any, of these types. */
    const char *hf_name;
    const char *hf_name_too[2]; /* others that mean the same; NULL: none */
    const char *hf_type;    /* of its "model_type" */
    const char *hf_type_too[2]; /* others that mean the same; NULL: none */
    const char *gguf_name;  /* of general.architecture; NULL: GGUF has no form of it */
    bool (*claims)(const rg_checkpoint *ckpt); /* when several share a gguf_name; NULL: yes */
    bool (*claims_hf)(const rg_checkpoint *ckpt); /* when several share hf_name and hf_type; NULL: yes */
    const char *hf_prefix;  /* of layer weights: "model.layers." */
    const char *layer_list; /* config.json's list with an entry for each layer, counted if no number is given; NULL */
    const rg_key *keys;
    size_t n_keys, own_bytes;
    /* Check the keys, and fill in what follows from them: the rest of the config, and those members of config.layer
     * that differ from their default (kind 0, rope 0 where there is one, no window, K/V of its own). */
    bool (*finish)(rg_config *c, const rg_checkpoint *ckpt, rg_error *err);
    const rg_weight_spec *weights; /* outside the layers; ends with { 0 } */
    const rg_layer_kind *kinds; /* NULL: those of the model that it drafts for, with their names */
    int n_kinds;

    /* Hooks; NULL: the usual one, named behind each.  l->index is -1. */
    void (*embed)(rg_fwd *f, const rg_layer *l, rg_act *x);                    /* row of a table, times embed_scale */
    void (*norm)(rg_fwd *f, const rg_layer *l, rg_act *y, const rg_act *x);    /* by W_FINAL_NORM; y may be x */
    void (*head)(rg_fwd *f, const rg_layer *l, rg_act *logits, const rg_act *h); /* linear, capped */
    /* What the model reads of its own answers as a feature in a later step, [n_logits, dim], made from its logits.
     * NULL: it reads nothing of them. */
    rg_act *(*soften)(rg_fwd *f, const rg_layer *l, const rg_act *logits);
    /* scores [rows, n_labels] of hidden states that were pooled as config.score_pooling says; where n_labels > 0. */
    void (*score)(rg_fwd *f, const rg_layer *l, rg_act *scores, const rg_act *pooled);
    bool is_encoder;                        /* it has no head: no logits are ever wanted */
    bool halves_window;     /* where rows see what comes after them, half of the window lies to each side */
    const rg_arch *latents; /* the form that its models have once their K and V are latents; NULL: none */
    const rg_arch *mtp;     /* its own form of modules that predict further tokens; NULL: that of arch/mtp.c */
    const char *module_key; /* of such modules: config.json's key for their number */
    const char *target_ids; /* tensor: what to add to an id of its own for the id of its target; NULL: they are alike */
    int (*width)(const rg_config *c);       /* columns of x; NULL: dim */
    /* The dim columns of x that readers see as a layer's input; NULL: x. */
    rg_act *(*shown)(rg_fwd *f, const rg_layer *l, rg_act *x);

    /* Put the keys of GGUF that the table cannot express; refuses by name a setting that GGUF has no key for. */
    bool (*put_gguf)(const rg_config *c, rg_ckpt_writer *w, rg_error *err);
    const char *const *ignored;  /* ends of names of tensors that are not needed; NULL-ended; may be NULL */
    const char *const *harmless; /* config.json keys that say nothing about inference; NULL-ended; may be NULL */
};

#define RG_KEYS(table)  .keys = table, .n_keys = RG_LEN(table)
#define RG_KINDS(table) .kinds = table, .n_kinds = RG_LEN(table)
#define RG_KIND(weights, keep, block) .kinds = &(const rg_layer_kind){ weights, keep, block }, .n_kinds = 1

const rg_arch *rg_arch_find(const rg_checkpoint *ckpt, rg_error *err);
/* True if config.json's class is named as one whose rows see what comes after them (LlamaBidirectionalModel). */
bool rg_arch_class_is_bidirectional(const rg_checkpoint *ckpt);
/* The architecture of a network that drafts: the first of networks.def that claims the checkpoint. */
const rg_arch *rg_arch_find_draft(const rg_checkpoint *ckpt, rg_error *err);
/* The architecture whose layers c has: its own, or that of the model it drafts for. */
const rg_arch *rg_arch_of_layers(const rg_config *c);
const rg_layer_kind *rg_layer_kind_of(const rg_config *c, int layer);
/* What modules that predict further tokens are, as networks: the architecture's own form of them, or one for all. */
const rg_arch *rg_arch_mtp_of(const rg_arch *target);

#endif
