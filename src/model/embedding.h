/* embedding.h -- how a checkpoint's hidden states become an embedding, as the checkpoint says.
 *
 * GGUF says it by the key "pooling_type", a folder by the modules of sentence-transformers (modules.json and the folder
 * of the pooling module).  Whether embeddings may be cut ("matryoshka") stands in config.json.  Embeddings that are not
 * supported do not refuse the model, which may be used for its tokens: the reason is kept and given to requests for
 * embeddings. */
#ifndef RG_MODEL_EMBEDDING_H
#define RG_MODEL_EMBEDDING_H

#include "ckpt/checkpoint.h"

enum { RG_MAX_EMBED_SIZES = 32, RG_ANY_SIZE = -1 };

typedef struct rg_embedding {
    rg_pooling pooling; /* where the checkpoint says nothing RG_POOLING_LAST, of an encoder RG_POOLING_MEAN;
                         * RG_POOLING_NONE: not supported */
    char refusal[160];  /* why not */
    bool is_said;       /* by the checkpoint */
    int32_t sizes[RG_MAX_EMBED_SIZES], n_sizes; /* as rg_info.embed_sizes */
} rg_embedding;

/* dim: numbers of a hidden state. */
bool rg_embedding_read(rg_embedding *e, const rg_checkpoint *ckpt, int dim, rg_error *err) RG_MUST_CHECK;

#endif
