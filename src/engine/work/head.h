/* head.h -- label scores: what a classification head makes of a prompt (rerankers, classifiers). */
#ifndef RG_ENGINE_WORK_HEAD_H
#define RG_ENGINE_WORK_HEAD_H

#include "engine/work/work.h"

/* The label scores [*n] of a request that has ended well; NULL: there are none. */
const float *rg_head_result(const rg_request *r, int32_t *n);

#endif
