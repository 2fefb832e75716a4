/* embedding.h -- an embedding: the hidden states of a prompt's rows, pooled as they are computed. */
#ifndef RG_ENGINE_WORK_EMBEDDING_H
#define RG_ENGINE_WORK_EMBEDDING_H

#include "engine/work/work.h"

/* Engine side; r is of this kind.  The hidden states of wanted rows, [dim] each, `stride` floats apart, the first at
 * position start; and once all are pooled, finish the embedding and end the request: numbers that are not finite end it
 * as such. */
void rg_embedding_pool(rg_request *r, int32_t start, int32_t n, const float *rows, size_t stride);
void rg_embedding_finish(rg_request *r);

/* Reader side: the pooled states [*n] of a request that has ended well, before and after the layers that the checkpoint
 * has behind the pooling; NULL: there are none. */
const float *rg_embedding_pooled(const rg_request *r, int32_t *n);
const float *rg_embedding_result(const rg_request *r, int32_t *n);

#endif
