/* study.h -- `ridge study`: what several models do side by side.  Each study is a command of its own behind that name:
 * one file, and one line in study.c. */
#ifndef RG_CLI_STUDY_H
#define RG_CLI_STUDY_H

#include "cli/scoring.h"
#include "plan/lines.h"

/* The name of a model's file without folders and ending, or of its folder, which a config.json is called by; into out,
 * which is returned. */
const char *study_name(const char *path, char out[64]);

/* ---- what studies share: study_parts.c ---- */

/* The text that is scored where no other is given. */
const char *study_shipped_text(void);
/* Perplexity of a text for a model, by exact arithmetic in windows of ctx ids.  s: what is done to the model, and the
 * type of its K/V.  Negative, and no error: the model has no tokenizer, so there is no text for it. */
bool study_perplexity(const char *model, const cli_common *common, const char *file, int32_t ctx, scoring *s,
                      double *ppl, rg_error *err);

/* *text: the file of rows that an earlier run wrote, the caller's; NULL: there is none, or it is not to be resumed.
 * False and *err: it cannot be read, or does not begin with the header. */
bool study_read_rows(const char *csv, bool resume, const char *header, char **text, rg_error *err);
/* What follows `start` in the last line that begins so; NULL: none does. */
const char *study_find_row(const char *text, const char *start);

/* One point more of the line of that name, which is made if it is the first; names [as many as lines] are its own. */
void study_add_point(rg_curve *lines, char (*names)[80], int *n_lines, const char *name, double x, double y);

#endif
