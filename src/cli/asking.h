/* asking.h -- how many of the values of associative recall (plan/mqar.h) a model predicts: what studies share. */
#ifndef RG_CLI_ASKING_H
#define RG_CLI_ASKING_H

#include "cli/tool.h"
#include "plan/mqar.h"

/* The share of the values that a model predicts, over examples 0 to n - 1; negative: none was asked.  o: the model, and
 * how it is opened; sizes of sequences are set here.  A vocabulary of 0 is the model's.  Ctrl-C ends it.  False and
 * *err: the model cannot be opened, or is too small for such texts. */
bool asking_recall(const tool_options *o, const rg_mqar *what, int32_t n, double *accuracy, rg_error *err);

#endif
