/* answers.h -- greedy answers to the prompts of a study, of one length: what the studies of searches and of diffusion
 * share. */
#ifndef RG_CLI_STUDY_ANSWERS_H
#define RG_CLI_STUDY_ANSWERS_H

#include "cli/study/study.h"

typedef struct study_answers {
    int32_t answer, n_prompt, n_prompts; /* ids of an answer, and of each prompt */
    uint64_t seed;                       /* of drawn prompts */
    char text[STUDY_TEXT_KEY], number[24]; /* keys of a row: study_text_key's, and the seed */
    const study_model *m;                  /* the one that is open; NULL: none is */
    rg_engine *engine;
    int32_t *prompts; /* [n_prompts][n_prompt] */
} study_answers;

/* Options that set the lengths, the number of prompts and the seed; usual: the default of answer, as text. */
#define STUDY_ANSWERS_OPTIONS(a, usual)                                                                                \
    { "--answer", CLI_INT, &(a).answer, "N", "ids of an answer (default " usual ")", 2, 1 << 16 },                     \
        { "--prompt", CLI_INT, &(a).n_prompt, "N", "ids of a prompt (default 32)", 1, 1 << 16 },                       \
        { "--prompts", CLI_INT, &(a).n_prompts, "N", "prompts, whose means are told (default 8)", 1, 1024 },           \
        { "--seed", CLI_U64, &(a).seed, "N", "of drawn prompts (default 1)" }

/* Set text and number.  False and *err. */
bool study_answers_keys(study_answers *a, const study_run *run, rg_error *err);
/* Open a model in place of the one that is open, and read or draw the prompts.  On failure too, study_answers_close. */
bool study_answers_open(study_answers *a, const study_run *run, const study_model *m, rg_error *err);
void study_answers_close(study_answers *a); /* what stands in the options stays */
/* Answer the i-th prompt as p says, whose prompt, lengths and sampling are set here: ids to out [answer] (NULL: not
 * wanted), the sum of their log-probabilities, and what it took.  Ctrl-C ends it.  False and *err: it was refused, or
 * ended before it had as many ids. */
bool study_answers_run(const study_answers *a, int i, rg_params p, int32_t *out, double *logprob, rg_usage *usage,
                       rg_error *err);

#endif
