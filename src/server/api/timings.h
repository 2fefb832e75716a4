/* timings.h -- how many tokens a call has computed and generated and how long that took: the figures that llama-server
 * calls `timings`, and Ollama durations. */
#ifndef RG_SERVER_API_TIMINGS_H
#define RG_SERVER_API_TIMINGS_H

#include "server/call.h"

typedef struct rg_timings {
    int64_t n_cached, n_prompt;    /* tokens of the prompt: found in the prefix cache; computed, so far */
    int64_t n_predicted;           /* generated, so far */
    int64_t n_drafted, n_accepted; /* of drafts */
    double prompt_s, predicted_s;  /* from the first step to the first token, and from there to the last one */
    double queue_s, total_s;       /* until the first step; from the request's arrival until now, or its end */
} rg_timings;

/* The timings of one prompt with all its answers; prompt -1: of all prompts together. */
rg_timings rg_call_timings(const rg_call *c, int32_t prompt);

/* "timings": an object.  Rates of generation leave out the first token, which comes with the prompt's last step. */
void rg_write_timings(rg_buf *b, const rg_timings *t);

#endif
