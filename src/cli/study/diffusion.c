/* diffusion.c -- `ridge study diffusion`: quality against evaluations.
 *
 * A diffusion model fills in the same answers by one mask an evaluation, by thresholds and by steps.  Told of each: the
 * evaluations of an answer, ids and seconds, the share of ids that are those of one mask an evaluation, and their mean
 * log-probability when they were fixed.  Prompts are texts where the model has a tokenizer, else drawn ids; answers
 * are greedy, and end tokens are ordinary ids. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/study/answers.h"

extern const study study_diffusion;

enum {
    MODEL,
    RULE,
    VALUE,
    ANSWER,
    BLOCK,
    PROMPT,
    PROMPTS,
    TEXT,
    SEED,
    EVALUATIONS,
    EACH,
    TOKENS_S,
    SAME,
    LOGPROB,
    N_COLUMNS
};

static const study_column columns[] = {
    [MODEL] = { "model", STUDY_TEXT, .key = true, .json = "model", .head = "model", .width = 20 },
    [RULE] = { "rule", STUDY_TEXT, .key = true, .json = "rule", .head = "rule", .width = 10 },
    [VALUE] = { "percent_or_steps", STUDY_INT, .key = true, .json = "value", .head = "% / steps", .width = 10 },
    [ANSWER] = { "answer", STUDY_INT, .key = true, .json = "answer" },
    [BLOCK] = { "block", STUDY_INT, .key = true },
    [PROMPT] = { "prompt", STUDY_INT, .key = true },
    [PROMPTS] = { "prompts", STUDY_INT, .key = true },
    [TEXT] = { "text", STUDY_TEXT, .key = true },
    [SEED] = { "seed", STUDY_TEXT, .key = true },
    [EVALUATIONS] = { "evaluations", STUDY_REAL, .format = "%.17g", .json = "evaluations", .head = "evaluations",
                      .width = 12, .digits = 1 },
    [EACH] = { "ids_per_evaluation", STUDY_REAL, .format = "%.17g", .json = "ids_per_evaluation", .head = "ids each",
               .width = 9, .digits = 2 },
    [TOKENS_S] = { "tokens_s", STUDY_REAL, .format = "%.6g", .json = "tok_s", .head = "tokens/s", .width = 10,
                   .digits = 1 },
    [SAME] = { "same", STUDY_REAL, .format = "%.17g", .json = "same", .head = "same ids", .width = 9, .digits = 3 },
    [LOGPROB] = { "logprob", STUDY_REAL, .format = "%.17g", .json = "logprob", .head = "log-prob.", .width = 10,
                  .digits = 4 },
};

static const rg_lines_page page = {
    .title = "Diffusion: quality against evaluations",
    .note = "Same ids: as by one mask an evaluation.  Greedy answers.",
    .n_charts = 2,
    .charts = { { "Same ids", "evaluations of an answer", "share" },
                { "Speed", "evaluations of an answer", "tokens per second" } },
};

static study_answers answers = { .answer = 64, .n_prompt = 32, .n_prompts = 8, .seed = 1 };
static int32_t block;
static cli_ints thresholds, steps;

static const cli_option options[] = {
    STUDY_ANSWERS_OPTIONS(answers, "64"),
    { "--block", CLI_INT, &block, "N", "positions of a block, where it is not the model's (default: the answer)", 1,
      1 << 16 },
    { "--thresholds", CLI_INTS, &thresholds, "99,95,90,80,70,50", "percent" },
    { "--steps", CLI_INTS, &steps, "32,16,8",
      "of an answer, or of a model's block (default: a half to an eighth of the answer)" },
    { NULL },
};

static int32_t *want, *got; /* [n_prompts][answer]: by one mask an evaluation, and of this row */

static bool settle(const study_run *run, rg_error *err)
{
    const cli_ints_rule rule = { "study diffusion", "--thresholds", 1, 100, 16 };
    const cli_ints_rule some = { "study diffusion", "--steps", 1, 1 << 16, 16 };
    const int32_t n = answers.answer, usual[] = { n / 2, n > 4 ? n / 4 : 1, n > 8 ? n / 8 : 1 };

    (void)run;
    return cli_ints_settle(&thresholds, (const int32_t[]){ 99, 95, 90, 80, 70, 50 }, 6, &rule, err) &&
           cli_ints_settle(&steps, usual, 3, &some, err);
}

static bool add(const study_run *run, const study_model *m, const char *rule, int32_t value, rg_error *err)
{
    study_value *v = study_add_row(run, m, err);

    if (!v || !study_answers_keys(&answers, run, err))
        return false;
    v[MODEL].text = m->given;
    v[RULE].text = rule;
    v[VALUE].number = value;
    v[ANSWER].number = answers.answer;
    v[BLOCK].number = block;
    v[PROMPT].number = answers.n_prompt;
    v[PROMPTS].number = answers.n_prompts;
    v[TEXT].text = answers.text;
    v[SEED].text = answers.number;
    return true;
}

static bool plan(const study_run *run, const study_model *m, rg_error *err)
{
    if (!add(run, m, "one", 1, err))
        return false;
    for (size_t i = 0; i < thresholds.n; i++)
        if (!add(run, m, "threshold", thresholds.item[i], err))
            return false;
    for (size_t i = 0; i < steps.n; i++)
        if (!add(run, m, "steps", steps.item[i], err))
            return false;
    return true;
}

static void close_model(void)
{
    study_answers_close(&answers);
    rg_free(want);
    rg_free(got);
    want = got = NULL;
}

static bool run_all(const rg_diffusion_params *d, study_value *v, rg_error *err)
{
    const double n = answers.n_prompts;
    double seconds = 0;

    v[LOGPROB].number = v[EVALUATIONS].number = 0;
    for (int i = 0; i < answers.n_prompts; i++) {
        int32_t *out = got + (size_t)i * (size_t)answers.answer;
        double sum;
        rg_usage u;

        if (!study_answers_run(&answers, i, (rg_params){ .diffusion = *d }, out, &sum, &u, err))
            return false;
        v[LOGPROB].number += sum / (n * answers.answer);
        v[EVALUATIONS].number += (double)u.n_steps / n;
        seconds += u.paced_s;
    }
    v[EACH].number = answers.answer / v[EVALUATIONS].number;
    v[TOKENS_S].number = seconds > 0 ? n * answers.answer / seconds : 0;
    return true;
}

/* By one mask an evaluation: at least as many steps as masks. */
static rg_diffusion_params one_each(void)
{
    return (rg_diffusion_params){ .block = block, .steps = answers.answer };
}

/* The model, and its answers by one mask an evaluation. */
static bool make_wanted(const study_run *run, const study_model *m, rg_error *err)
{
    const rg_diffusion_params d = one_each();
    study_value v[N_COLUMNS] = { 0 };
    size_t n_ids;

    if (!rg_mul((size_t)answers.n_prompts, (size_t)answers.answer, &n_ids))
        return rg_fail_memory(err, SIZE_MAX);
    if (!study_answers_open(&answers, run, m, err))
        return false;
    if (!rg_engine_info(answers.engine).is_diffusion)
        return rg_fail(err, RG_E_USAGE, "study diffusion: %s is not a diffusion model", m->given);
    want = rg_array(n_ids, sizeof *want);
    got = rg_array(n_ids, sizeof *got);
    if (!want || !got)
        return rg_fail_memory(err, n_ids * sizeof *want);
    if (!run_all(&d, v, err))
        return false;
    memcpy(want, got, n_ids * sizeof *want);
    return true;
}

static bool open_model(const study_run *run, const study_model *m, rg_error *err)
{
    close_model();
    if (make_wanted(run, m, err))
        return true;
    close_model();
    return false;
}

static bool measure(const study_run *run, const study_model *m, study_value *v, rg_error *err)
{
    if (answers.m != m && !open_model(run, m, err))
        return false;
    rg_diffusion_params d = one_each();
    if (!strcmp(v[RULE].text, "threshold"))
        d = (rg_diffusion_params){ .block = d.block, .threshold = (float)(v[VALUE].number / 100) };
    else if (!strcmp(v[RULE].text, "steps"))
        d = (rg_diffusion_params){ .block = d.block, .steps = (int32_t)v[VALUE].number };
    if (!run_all(&d, v, err))
        return false;
    int32_t same = 0;
    for (int32_t i = 0; i < answers.n_prompts * answers.answer; i++)
        same += got[i] == want[i];
    v[SAME].number = same / (answers.n_prompts * (double)answers.answer);
    return true;
}

static void draw(study_picture *p, const study_model *m, const study_value *v)
{
    study_point(p, 0, m->name, v[RULE].text, (rg_lines_point){ v[EVALUATIONS].number, v[SAME].number, true });
    study_point(p, 1, m->name, v[RULE].text, (rg_lines_point){ v[EVALUATIONS].number, v[TOKENS_S].number, true });
}

const study study_diffusion = {
    .command = { .name = "study diffusion",
                 .arguments = "MODEL...",
                 .n_positional = 8,
                 .summary = "a diffusion model's answers against evaluations",
                 .notes = "One mask an evaluation, thresholds (Fast-dLLM) and steps; where blocks are the model's own, "
                          "steps are those\nof a block.  Same ids: the share that one mask an evaluation gives, too." },
    .text = "the text whose beginnings are the prompts (default: the shipped calibration text)",
    STUDY_PARTS,
    .settle = settle,
    .close = close_model,
};
