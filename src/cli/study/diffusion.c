/* diffusion.c -- `ridge study diffusion`: quality against evaluations.
 *
 * A diffusion model fills in the same answers by one id an evaluation, by thresholds and by steps.  Told of each: the
 * evaluations of an answer, ids and seconds, the share of ids that are those of one id an evaluation, and their mean
 * log-probability when they were fixed.  Prompts are texts where the model has a tokenizer, else drawn ids; answers
 * are greedy, and end tokens are ordinary ids.
 *
 * What a model does not take is known before the first row is measured: usual rows are left out then, and those that
 * were asked for are refused. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/study/answers.h"
#include "engine/denoise.h"

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
    .note = "Same ids: as by one id an evaluation.  Greedy answers.",
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
      "of an answer, or of a model's block or canvas (default: a half to an eighth of its positions)" },
    { NULL },
};

/* A model that is studied, before it is opened. */
typedef struct facts {
    rg_diffusion diffusion;
    int32_t sees, own_block; /* as rg_denoise_own_block */
} facts;

static int32_t *want, *got; /* [n_prompts][answer]: by one id an evaluation, and of this row */

static bool settle(const study_run *run, rg_error *err)
{
    const cli_ints_rule rule = { "study diffusion", "--thresholds", 1, 100, 16 };
    const cli_ints_rule some = { "study diffusion", "--steps", 1, 1 << 16, 16 };

    (void)run;
    return cli_ints_settle(&thresholds, (const int32_t[]){ 99, 95, 90, 80, 70, 50 }, 6, &rule, err) &&
           cli_ints_settle(&steps, (const int32_t[]){ 2, 4, 8 }, 3, &some, err); /* not given: parts, see steps_of */
}

static bool read_facts(const study_model *m, facts *f, rg_error *err)
{
    static rg_config c;
    char path[1024];
    rg_checkpoint *ckpt =
        cli_find_model(m->given, path, sizeof path, err) ? rg_checkpoint_open(path, RG_CKPT_NO_WEIGHTS, err) : NULL;
    bool ok = ckpt && rg_config_read(&c, ckpt, err);

    rg_checkpoint_close(ckpt);
    if (!ok)
        return false;
    if (!rg_diffusion_fills(&c.diffusion))
        return rg_fail(err, RG_E_USAGE, "study diffusion: %s is not a diffusion model", m->given);
    *f = (facts){ c.diffusion, c.sees, rg_denoise_own_block(&c.diffusion, c.sees) };
    return true;
}

/* By one id an evaluation: at least as many steps as masks, or as a canvas has positions. */
static rg_diffusion_params one_each(const facts *f)
{
    return (rg_diffusion_params){ .block = block, .steps = f->diffusion.canvas.length ? f->own_block : answers.answer };
}

/* The number of a row of --steps. */
static int32_t steps_of(const facts *f, size_t i)
{
    const int32_t n = f->own_block ? f->own_block : answers.answer;

    return steps.given ? steps.item[i] : n > steps.item[i] ? n / steps.item[i] : 1;
}

/* What a row asks of the model. */
static rg_diffusion_params params_of(const facts *f, const char *rule, int32_t value)
{
    if (!strcmp(rule, "threshold"))
        return (rg_diffusion_params){ .block = block, .threshold = (float)(value / 100.0) };
    if (!strcmp(rule, "steps"))
        return (rg_diffusion_params){ .block = block, .steps = value };
    return one_each(f);
}

/* False and *err: the model does not take what the row asks of it. */
static bool takes(const study_model *m, const facts *f, const char *rule, int32_t value, rg_error *err)
{
    rg_diffusion_params d = params_of(f, rule, value);
    rg_error why = { 0 };

    rg_denoise_settle(&d, &f->diffusion, f->sees);
    return rg_denoise_check(&d, &f->diffusion, f->sees, &why) ||
           rg_fail(err, why.code, "study diffusion: %s: %s", m->given, why.text);
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
    facts f;

    if (!read_facts(m, &f, err) || !takes(m, &f, "one", 1, err) || !add(run, m, "one", 1, err))
        return false;
    for (size_t i = 0; i < thresholds.n; i++) {
        if (!thresholds.given && !takes(m, &f, "threshold", thresholds.item[i], NULL))
            break;
        if (!takes(m, &f, "threshold", thresholds.item[i], err) || !add(run, m, "threshold", thresholds.item[i], err))
            return false;
    }
    for (size_t i = 0; i < steps.n; i++) {
        const int32_t n = steps_of(&f, i);

        if (!steps.given && i && n == steps_of(&f, i - 1))
            continue;
        if (!takes(m, &f, "steps", n, err) || !add(run, m, "steps", n, err))
            return false;
    }
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

static facts opened; /* of the model that is open */

/* The model, and its answers by one id an evaluation. */
static bool make_wanted(const study_run *run, const study_model *m, rg_error *err)
{
    rg_diffusion_params d;
    study_value v[N_COLUMNS] = { 0 };
    size_t n_ids;

    if (!rg_mul((size_t)answers.n_prompts, (size_t)answers.answer, &n_ids))
        return rg_fail_memory(err, SIZE_MAX);
    if (!read_facts(m, &opened, err) || !study_answers_open(&answers, run, m, err))
        return false;
    d = one_each(&opened);
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
    const rg_diffusion_params d = params_of(&opened, v[RULE].text, (int32_t)v[VALUE].number);

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
                 .notes = "One id an evaluation, thresholds (Fast-dLLM) and steps; where blocks or canvases are the "
                          "model's own, steps\nare those of one, and a model that takes no thresholds has none.  Same "
                          "ids: the share that one id an\nevaluation gives, too." },
    .text = "the text whose beginnings are the prompts (default: the shipped calibration text)",
    STUDY_PARTS,
    .settle = settle,
    .close = close_model,
};
