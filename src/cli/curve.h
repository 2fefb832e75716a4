/* curve.h -- the course of a training run: kept, written to a CSV file step by step, drawn as a picture. */
#ifndef RG_CLI_CURVE_H
#define RG_CLI_CURVE_H

#include <stdio.h>

#include "train/training.h"

typedef struct cli_curve_point {
    int64_t step;
    double loss, grad_norm, lr, tokens_s;
} cli_curve_point;

typedef struct cli_curve {
    cli_curve_point *at; /* [n] */
    size_t n, room;
    FILE *log; /* NULL: none */
    const char *path;
} cli_curve;

/* path NULL: no file.  Rows of a file that is there, up to step `done`, are kept and read: a run that goes on; with
 * done 0 it is begun anew. */
bool cli_curve_open(cli_curve *c, const char *path, int64_t done, rg_error *err) RG_MUST_CHECK;
bool cli_curve_add(cli_curve *c, const rg_training_step *s, rg_error *err) RG_MUST_CHECK;
bool cli_curve_svg(const cli_curve *c, const char *path, rg_error *err) RG_MUST_CHECK;
void cli_curve_close(cli_curve *c);

#endif
