/* model.h -- a model: its config, its weights, what its sequences remember, and the one text that computes it.
 *
 * Immutable once open, shared by any number of runners and threads. */
#ifndef RG_MODEL_MODEL_H
#define RG_MODEL_MODEL_H

#include "model/adapters.h"
#include "model/dense.h"
#include "model/runner.h"
#include "model/weights.h"
#include "ops/backend.h"

/* How ranks share a buffer of a recurrence. */
typedef struct rg_state_cut {
    int64_t units; /* equal parts that ranks share; 0: every rank holds the whole; -1: no one way to cut it */
    size_t common; /* bytes of a draft row in its log that every rank has */
} rg_state_cut;

typedef struct rg_model {
    const struct rg_model *of; /* whose smaller self it is (self.h), borrowed; NULL: of none */
    bool *left_out;         /* [n_layers] layers that its text passes over; NULL: none */
    rg_config config;
    rg_weight_set weights;
    rg_dense dense;         /* behind the pooling of an embedding, as config.embedding says */
    rg_adapters adapters;   /* of which a span names one by its number */
    rg_layer outer; /* what stands outside the layers; its lm_head is the embedding where they are tied */
    rg_layer *layers;
    rg_rope ropes[RG_MAX_ROPES][RG_ROPE_VARIANTS];
    float *inv_freq; /* of all */
    rg_state_spec state;
    rg_keep *keep;          /* [n_layers] */
    rg_type kv_type;
    int32_t *target_ids;    /* of a network that drafts: [vocab_size] its target's id for each; NULL: the same */
    struct rg_link *link;   /* of this rank, where ranks share the model; NULL: there is one */
    rg_state_spec state_here; /* of this rank, with keep_here */
    rg_keep *keep_here;
    rg_state_cut (*state_cut)[RG_MAX_BUFFERS]; /* [n_layers]; NULL: no ranks */
    rg_ranks *ranks; /* on rank 0, whose runners tell the others; else NULL */
    int number;             /* by which the others know the model */
    int n_unused;           /* tensors of the checkpoint that no weight was made from */
    char *notes;            /* lines of what a person should know (notes.h); NULL: a network that drafts has none */
} rg_model;

typedef struct rg_model_options {
    const char *kv_type;    /* NULL: f32 for F32 weights and encoders, else bf16; or a name of ops/kv.h */
    /* Not NULL: the model is a network that drafts for this one, which is borrowed: from its own checkpoint, or (mtp)
     * from that of the target. */
    const struct rg_model *target;
    bool mtp;
    /* Ranks that share the model.  `ranks`, on rank 0: the others open it too.  `link`, on any: this rank's part of
     * a model (of declare_only, rg_link_alone).  NULL: there is one rank. */
    rg_ranks *ranks;
    struct rg_link *link;
    const char *path;       /* of the checkpoint, with ranks */
    bool declare_only;      /* no weights are read: for counting and planning */
    bool random_weights;    /* of declared_type, whatever the checkpoint has: for measuring a shape */
    bool layers_apart;      /* only weights outside the layers are read; the caller binds and unbinds those of layers */
    rg_type declared_type;  /* of weights when the checkpoint has none */
    bool round16;           /* F16 matrices become BF16, rounded (rg_weight_set) */
    int max_draft;          /* draft rows that a recurrent state has room for; 0 if no drafter can come */
    int n_threads;          /* that read and place weights; 0: one */
    const rg_backend *backend; /* that places them, and is to compute with them; NULL: the first one (the processor's
                                * share one memory) */
    const char *pack_cache; /* folder in which packed weights are kept (pack_cache.h); NULL: they are not */
    size_t expert_bytes;    /* memory for experts, which are read from a pack file when they are needed; 0: all are in
                             * memory.  Without pack_cache that file lies beside the checkpoint */
    const struct rg_sparsity *sparsity; /* what inputs count as zero (sparsity.h), borrowed; NULL: what is zero */
    const rg_adapter_source *adapters; /* [n_adapters]; of a model that is read, not only declared */
    int n_adapters;
    void (*progress)(void *arg, const char *what, double done);
    void *progress_arg;
} rg_model_options;

rg_model *rg_model_open(const rg_checkpoint *ckpt, const rg_model_options *o, rg_error *err);
/* A model of a config alone, all matrices of o->declared_type and none of them read: for counting what is not there. */
rg_model *rg_model_declare(const rg_config *c, const rg_model_options *o, rg_error *err);
/* A model of the weights of another one, which must outlive it, before self.c has left anything out; and the rest of
 * it after that. */
rg_model *rg_model_borrow(const rg_model *of, rg_error *err);
bool rg_model_complete(rg_model *m, const rg_model_options *o, rg_error *err);
void rg_model_close(rg_model *m); /* NULL is fine */

/* What was read of experts that stay in a file; all 0: none do. */
typedef struct rg_expert_reads {
    uint64_t n_asked, n_read, n_failed; /* matrices that steps needed, that were read, that could not be read */
    uint64_t n_unused;                  /* of those read, on guesses that were wrong */
    uint64_t bytes_read;
    size_t bytes;                       /* memory for them */
} rg_expert_reads;
rg_expert_reads rg_model_expert_reads(const rg_model *m);

/* The model's text: one step through a reader.  Where ranks share the model, forward computes this rank's part of it,
 * and rank 0 has the outputs; text is that of one rank. */
rg_outputs rg_model_forward(const rg_model *m, rg_fwd *f);
rg_outputs rg_model_text(const rg_model *m, rg_fwd *f);
/* And its parts, for who computes them one by one: the model's stream x [rows, rg_model_width] from the embedding
 * (activations that layers share are made here too); a layer, in place; logits of rows of the stream, which it may
 * overwrite. */
rg_act *rg_model_embed(const rg_model *m, rg_fwd *f);
void rg_model_layer(const rg_model *m, rg_fwd *f, int i, rg_act *x);
rg_act *rg_model_logits(const rg_model *m, rg_fwd *f, rg_act *rows);
int rg_model_width(const rg_model *m);

/* ---- a runner that computes on this machine ---- */

typedef struct rg_runner_options {
    const rg_backend *backend;
    int n_threads;
    bool exact, llm_int8; /* as rg_fwd has them */
    float attention_sparsity; /* likewise */
    int max_rows, max_logits; /* of one step */
    int max_seqs, max_seq_len; /* the runner's own max_seq_len may come out less */
    size_t state_bytes;       /* memory for state, shared out over the groups, with what hands it out */
    rg_pool *pool;            /* its threads, n_threads at least, borrowed; NULL: threads of its own */
    bool draws;               /* ids are drawn: the head may be kept in a coarse copy besides, if that pays */
    bool pin;                 /* keep threads on cores (rg_pool_pin) */
    int n_nodes;              /* copies of the weights, for as many NUMA nodes (rg_reader_sizes); 0: none */
    const rg_reader *(*wrap)(void *arg, const rg_reader *inner); /* a reader around the computing one; may be NULL */
    void *wrap_arg;
} rg_runner_options;

/* The sizes of a lane that computes steps of the model, whose sequences are no longer than max_seq_len. */
rg_reader_sizes rg_model_reader_sizes(const rg_model *m, const rg_runner_options *o, int max_seq_len);

/* What rank 0 finds for its runner, and the others are told. */
typedef struct rg_runner_sizes {
    int32_t n_blocks[RG_MAX_GROUPS];
    int max_seq_len;
} rg_runner_sizes;
/* A runner of these sizes, on a rank other than 0: it computes its part of batches, and has no outputs. */
rg_runner *rg_model_runner_follow(const rg_model *m, const rg_runner_options *o, const rg_runner_sizes *sizes,
                                  rg_error *err);

/* The model is borrowed.  NULL and *err if the state does not fit a single sequence, or no memory. */
rg_runner *rg_model_runner_new(const rg_model *m, const rg_runner_options *o, rg_error *err);
void rg_model_runner_free(rg_runner *r); /* NULL is fine */

#endif
