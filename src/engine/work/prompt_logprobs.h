/* prompt_logprobs.h -- log-probabilities of a prompt's own ids, and its logits, with an answer behind it or without. */
#ifndef RG_ENGINE_WORK_PROMPT_LOGPROBS_H
#define RG_ENGINE_WORK_PROMPT_LOGPROBS_H

#include "engine/work/work.h"

/* Reader side, as rg_request_prompt_logprob. */
bool rg_prompt_logprobs_get(const rg_request *r, int32_t position, rg_prompt_logprob *out);
/* Does what rg_request_prompt_logits says. */
const float *rg_prompt_logits_get(const rg_request *r, int32_t position, int32_t *n);

#endif
