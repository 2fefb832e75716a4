/* recall_score.h -- how many of the values of associative recall (mqar.h) a model predicts: what studies share. */
#ifndef RG_CLI_STUDY_RECALL_SCORE_H
#define RG_CLI_STUDY_RECALL_SCORE_H

#include "cli/tool.h"
#include "cli/study/mqar.h"

/* What is asked: so many texts. */
typedef struct recall_task {
    rg_mqar text; /* a vocabulary of 0 is the model's */
    int32_t examples;
} recall_task;

/* Options that set it; with the defaults of the study that has them, as text. */
#define RECALL_OPTIONS(what, length_unless, examples_unless)                                                           \
    { "--pairs", CLI_INT, &(what).text.pairs, "N", "recall: keys with a value (default 8)", 1, 1 << 20 },              \
        { "--length", CLI_INT, &(what).text.length, "N", "recall: ids of a text (default " length_unless ")", 4,       \
          1 << 24 },                                                                                                   \
        { "--vocab", CLI_INT, &(what).text.vocab_size, "N", "recall: ids are below it (default: the model's)", 4,      \
          1 << 24 },                                                                                                   \
        { "--gap-limit", CLI_INT, &(what).text.gap_limit, "N",                                                         \
          "recall: queries stand within 2 N ids (default: anywhere)", 0, 1 << 24 },                                    \
        { "--examples", CLI_INT, &(what).examples, "N",                                                                \
          "recall: texts (default " examples_unless "; 0: nothing is asked)", 0, 1 << 20 },                            \
        { "--seed", CLI_U64, &(what).text.seed, "N", "recall: of the texts (default 1)" }

/* The share of the values that a model predicts; NAN: none was asked.  o: the model, and how it is opened; sizes of
 * sequences are set here.  Ctrl-C ends it.  False and *err: the model cannot be opened, or is too small for such
 * texts. */
bool recall_score(const tool_options *o, const recall_task *what, double *accuracy, rg_error *err);

#endif
