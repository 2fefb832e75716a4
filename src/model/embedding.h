/* embedding.h -- how a checkpoint's hidden states become an embedding, as the checkpoint says.
 *
 * GGUF says it by the key "pooling_type", a folder by the modules of sentence-transformers (modules.json and the
 * folders of its modules), or by "pooling" in config.json.  Behind the pooling there may be dense layers and
 * normalisations, in any order.  Whether embeddings may be cut ("matryoshka") stands in config.json.  Embeddings that
 * are not supported do not refuse the model, which may be used for its tokens: the reason is kept and given to requests
 * for embeddings. */
#ifndef RG_MODEL_EMBEDDING_H
#define RG_MODEL_EMBEDDING_H

#include "ckpt/checkpoint.h"
#include "ops/ops.h"

enum { RG_MAX_EMBED_SIZES = 32, RG_ANY_SIZE = -1, RG_MAX_POOLINGS = 6, RG_MAX_EMBED_STEPS = 8, RG_FOLDER_NAME = 64 };

/* What becomes of a pooled state. */
typedef struct rg_embed_step {
    bool is_dense; /* act(W x + b); else x is divided by its length */
    int in, out;   /* of a dense layer: columns and rows of W */
    bool bias;
    rg_activation act;
    char folder[RG_FOLDER_NAME]; /* where its weights lie, within the checkpoint's */
} rg_embed_step;

typedef struct rg_embedding {
    /* The ways of pooling, whose results stand one behind the other.  Where the checkpoint says nothing
     * RG_POOLING_LAST, of a model whose rows see each other RG_POOLING_MEAN.  n_poolings 0: not supported. */
    rg_pooling poolings[RG_MAX_POOLINGS];
    int n_poolings;
    char refusal[160]; /* why not */
    bool is_said;      /* by the checkpoint */
    bool skips_prompt; /* positions of a prompt in front of the text are not pooled */
    rg_embed_step steps[RG_MAX_EMBED_STEPS];
    int n_steps;
    int dim;                                    /* numbers of an embedding */
    int32_t sizes[RG_MAX_EMBED_SIZES], n_sizes; /* as rg_info.embed_sizes */
} rg_embedding;

/* dim: numbers of a hidden state.  both_ways: its rows see each other. */
bool rg_embedding_read(rg_embedding *e, const rg_checkpoint *ckpt, int dim, bool both_ways,
                       rg_error *err) RG_MUST_CHECK;
/* Refuse embeddings for this reason.  True. */
RG_PRINTF(2, 3) bool rg_embedding_refuse(rg_embedding *e, const char *fmt, ...);

#endif
