/* calibration.h -- the text that methods watch a model on, cut into samples, and the part of it that is kept for
 * scoring. */
#ifndef RG_CLI_CALIBRATION_H
#define RG_CLI_CALIBRATION_H

#include "cli/cli.h"
#include "text/tokenizer.h"

typedef struct calibration {
    const char *file;  /* as given; NULL: the one that stands beside the shipped models */
    int32_t n_samples; /* 0: as many as the text has, up to 64 */
    int32_t ctx;
    const char *score; /* another file that is scored; NULL: the last eighth of the text */
    int32_t *ids;      /* [n_samples, ctx]: each the BOS, if the tokenizer adds one, and what follows */
    int32_t *rest;     /* [n_rest] what is scored */
    size_t n_rest;
    char path[1024];
} calibration;

/* Fill in ids and rest.  False and *err: the text is too short, or cannot be read. */
bool calibration_read(calibration *c, const rg_tokenizer *t, rg_error *err);
void calibration_fini(calibration *c);

#endif
