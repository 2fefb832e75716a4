/* eval_tasks.h -- `ridge eval --tasks FILE`: questions with right answers, scored as EleutherAI's lm-eval scores them.
 *
 * FILE has one question a line, an object in JSON.  "task" (a name; lines of one name are one result) and "context",
 *   with "choices" (texts that may follow) and "gold" (the number of the right one, from 0): the likeliest choice
 *     counts (acc), and the likeliest by character (acc_norm).  "lengths": the characters of each, where these are not
 *     those of the text behind its first space;
 *   with one text "continuation" alone: acc is 1 where it is what greedy decoding gives; also the perplexity;
 *   with "answers" (texts that are right): an answer is generated greedily, "max_tokens" long at most (256), up to one
 *     of the texts "until", and counts if it is one of them (exact_match); "ignore_case", "ignore_punctuation" and
 *     "strip" (true or false) say what does not matter. */
#ifndef RG_CLI_EVAL_TASKS_H
#define RG_CLI_EVAL_TASKS_H

#include "cli/engine.h"

typedef struct eval_tasks {
    const char *file;
    bool no_special; /* texts are encoded without what the tokenizer adds */
    cli_engine engine;
    const cli_args *args;
} eval_tasks;

bool eval_tasks_run(eval_tasks *t, rg_error *err);

#endif
