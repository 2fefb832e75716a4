/* arch.h -- what an architecture is: a table of keys, a table of weights, what each layer keeps, and one block.
 *
 * One small file per architecture under arch/, one line each in archs.def, and nothing outside names them.  The weight
 * table is the checkpoint; the block is the paper. */
#ifndef RG_MODEL_ARCH_H
#define RG_MODEL_ARCH_H

#include "model/config.h"
#include "model/state.h"

/* What a weight is for. */
typedef enum rg_role {
    W_EMBED_TOKENS, W_FINAL_NORM, W_LM_HEAD, W_ROPE_FREQS,
    W_ATTN_NORM, W_Q_PROJ, W_K_PROJ, W_V_PROJ, W_O_PROJ, W_Q_BIAS, W_K_BIAS, W_V_BIAS, W_O_BIAS, W_Q_NORM, W_K_NORM,
    W_POST_ATTN_NORM, W_FFN_NORM, W_POST_FFN_NORM,
    W_GATE_PROJ, W_UP_PROJ, W_DOWN_PROJ, W_GATE_BIAS, W_UP_BIAS, W_DOWN_BIAS,
    W_ROUTER, W_GATE_EXPERTS, W_UP_EXPERTS, W_DOWN_EXPERTS, W_SHARED_GATE, W_SHARED_UP, W_SHARED_DOWN,
    W_Q_A_PROJ, W_Q_A_BIAS, W_Q_A_NORM, W_Q_B_PROJ, W_KV_A_PROJ, W_KV_A_BIAS, W_KV_A_NORM, W_K_B_PROJ, W_V_B_PROJ,
    W_IN_PROJ, W_IN_BIAS, W_CONV, W_CONV_BIAS, W_X_PROJ, W_DT_PROJ, W_DT_BIAS, W_A, W_D, W_OUT_PROJ, W_OUT_BIAS,
    W_COUNT
} rg_role;

/* How long a side of a weight is, as the config says. */
typedef enum rg_size {
    SIZE_NONE, DIM, VOCAB, Q_DIM, KV_DIM, HEAD_DIM, FFN_DIM, N_EXPERTS, MOE_DIM, SHARED_DIM, N_HEADS, Q_RANK, KV_RANK,
    KV_A_DIM, NOPE_DIM, V_DIM, MLA_Q_DIM, MLA_KV_B_DIM, MLA_O_DIM, D_INNER, D_INNER_2, D_STATE, D_CONV, DT_RANK,
    X_PROJ_DIM, ROPE_PAIRS
} rg_size;

enum { SPLIT_NONE, SPLIT_ROWS, SPLIT_COLS };

/* A weight made from a whole source tensor in f32, where the checkpoint stores it otherwise than the seam wants it: src
 * as stored, dst the n values of the spec's shape. */
typedef void rg_load_fn(const rg_config *c, const float *src, float *dst, int64_t n);

typedef struct rg_weight_spec {
    rg_role role;
    /* Names without ".weight": after the arch's prefix and "N." in a layer, '*' standing for an expert's number; and
     * after "blk.N.".  NULL: that kind of checkpoint has none. */
    const char *hf, *gguf;
    rg_size shape[3]; /* 1: a vector, 2: a matrix, 3: stacked matrices */
    int split;
    bool (*when)(const rg_config *c, int layer); /* NULL: always */
    rg_load_fn *load;      /* NULL: as stored; applied to what the Hugging Face name finds */
    rg_load_fn *load_gguf; /* likewise for the GGUF name */
    rg_size stored[2];     /* shape of the source that load reads, where it differs */
    /* Where the checkpoint lacks the GGUF name: a source and a load for it (older conversions). */
    const char *gguf_else;
    bool table;            /* a matrix kept as f32, not multiplied (a convolution's taps) */
    /* For writing GGUF from a Hugging Face checkpoint, whose GGUF form is what `load` makes unless these say
     * otherwise. */
    rg_load_fn *to_gguf;   /* from what the Hugging Face name finds to GGUF's form, of the shape in `stored` */
    bool paired; /* GGUF holds the rotated rows of each head with the pairs side by side, not the halves apart */
    bool bare;             /* the GGUF name stands without ".weight" */
} rg_weight_spec;

typedef struct rg_layer {
    const rg_config *c;
    int index;
    const rg_weight *w[W_COUNT]; /* NULL: this layer has none */
    const rg_kv *kv;             /* NULL: keeps none */
    const rg_buffer *buffer;     /* in the order in which its keep lists them */
    const rg_rope *rope;
} rg_layer;

struct rg_arch {
    const char *hf_name;    /* of config.json's "architectures" */
    const char *hf_type;    /* of its "model_type" */
    const char *gguf_name;  /* of general.architecture */
    bool (*claims)(const rg_checkpoint *ckpt); /* when several share a gguf_name; NULL: yes */
    const char *hf_prefix;  /* of layer weights: "model.layers." */
    const rg_key *keys;
    size_t n_keys;
    bool (*finish)(rg_config *c, const rg_checkpoint *ckpt, rg_error *err); /* what follows from the keys */
    const rg_weight_spec *weights;       /* outside the layers; ends with shape[0] SIZE_NONE */
    const rg_weight_spec *layer_weights;
    void (*keep)(const rg_config *c, int layer, rg_keep *out);
    void (*block)(rg_fwd *f, const rg_layer *l, rg_act *x); /* x += what the layer adds */
    /* Put the keys of GGUF that the table cannot say; refuses by name a setting that GGUF has no key for. */
    bool (*put_gguf)(const rg_config *c, rg_ckpt_writer *w, rg_error *err);
    const char *const *harmless; /* config.json keys that say nothing about inference; NULL-ended; may be NULL */
};

const rg_arch *rg_arch_find(const rg_checkpoint *ckpt, rg_error *err);
int64_t rg_size_of(const rg_config *c, rg_size size);

#endif
