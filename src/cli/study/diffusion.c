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
#include "cli/study/study.h"

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

static int32_t answer = 64, block, n_prompt = 32, n_prompts = 8;
static uint64_t seed = 1;
static cli_ints thresholds, steps;

static const cli_option options[] = {
    { "--answer", CLI_INT, &answer, "N", "ids of an answer (default 64)", 2, 1 << 16 },
    { "--block", CLI_INT, &block, "N", "positions of a block, where it is not the model's (default: the answer)", 1,
      1 << 16 },
    { "--prompt", CLI_INT, &n_prompt, "N", "ids of a prompt (default 32)", 1, 1 << 16 },
    { "--prompts", CLI_INT, &n_prompts, "N", "prompts, whose means are told (default 8)", 1, 1024 },
    { "--thresholds", CLI_INTS, &thresholds, "99,95,90,80,70,50", "percent" },
    { "--steps", CLI_INTS, &steps, "32,16,8",
      "of an answer, or of a model's block (default: a half to an eighth of the answer)" },
    { "--seed", CLI_U64, &seed, "N", "of drawn prompts (default 1)" },
    { NULL },
};

/* The model whose rows are being made. */
static struct {
    const study_model *m; /* NULL: none yet */
    rg_engine *engine;
    int32_t *prompts; /* [n_prompts][n_prompt] */
    int32_t *want;    /* [n_prompts][answer] by one mask an evaluation */
    int32_t *got;     /* [n_prompts][answer] */
} at;

static bool settle(const study_run *run, rg_error *err)
{
    const cli_ints_rule rule = { "study diffusion", "--thresholds", 1, 100, 16 };
    const cli_ints_rule some = { "study diffusion", "--steps", 1, 1 << 16, 16 };
    const int32_t usual[] = { answer / 2, answer > 4 ? answer / 4 : 1, answer > 8 ? answer / 8 : 1 };

    (void)run;
    return cli_ints_settle(&thresholds, (const int32_t[]){ 99, 95, 90, 80, 70, 50 }, 6, &rule, err) &&
           cli_ints_settle(&steps, usual, 3, &some, err);
}

static bool add(const study_run *run, const study_model *m, const char *rule, int32_t value, rg_error *err)
{
    static char text[STUDY_TEXT_KEY], number[24];
    study_value *v = study_add_row(run, m, err);

    if (!v || !study_text_key(run, false, text, err))
        return false;
    snprintf(number, sizeof number, "%llu", (unsigned long long)seed);
    v[MODEL].text = m->given;
    v[RULE].text = rule;
    v[VALUE].number = value;
    v[ANSWER].number = answer;
    v[BLOCK].number = block;
    v[PROMPT].number = n_prompt;
    v[PROMPTS].number = n_prompts;
    v[TEXT].text = text;
    v[SEED].text = number;
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
    rg_close(at.engine);
    rg_free(at.prompts);
    rg_free(at.want);
    rg_free(at.got);
    memset(&at, 0, sizeof at);
}

static bool run_one(int i, const rg_diffusion_params *d, study_value *v, double *s, rg_error *err)
{
    rg_params p = { .prompt = at.prompts + (size_t)i * (size_t)n_prompt,
                    .n_prompt = n_prompt,
                    .max_tokens = answer,
                    .n_samples = 1,
                    .sampling = rg_sampling_default(),
                    .diffusion = *d };
    rg_token t;
    int32_t n = 0;

    p.sampling.temperature = 0;
    p.sampling.ignore_eos = true;
    p.sampling.n_logprobs = 0;
    rg_request *r = rg_submit(at.engine, &p, err);
    if (!r)
        return false;
    while (rg_next(r, &t)) {
        if (cli_interrupted())
            rg_cancel(r);
        if (t.id < 0 || n == answer)
            continue;
        at.got[(size_t)i * (size_t)answer + (size_t)n++] = t.id;
        v[LOGPROB].number += (double)t.logprob / (n_prompts * (double)answer);
    }
    const rg_usage u = rg_request_usage(r);
    rg_request_close(r);
    v[EVALUATIONS].number += (double)u.n_steps / n_prompts;
    *s += u.paced_s;
    return n == answer || rg_fail(err, RG_E_INPUT, "study diffusion: an answer ended before it had %d ids", answer);
}

static bool run_all(const rg_diffusion_params *d, study_value *v, rg_error *err)
{
    double seconds = 0;

    v[LOGPROB].number = v[EVALUATIONS].number = 0;
    for (int i = 0; i < n_prompts; i++)
        if (!run_one(i, d, v, &seconds, err))
            return false;
    v[EACH].number = answer / v[EVALUATIONS].number;
    v[TOKENS_S].number = seconds > 0 ? n_prompts * (double)answer / seconds : 0;
    return true;
}

/* By one mask an evaluation: at least as many steps as masks. */
static rg_diffusion_params one_each(void)
{
    return (rg_diffusion_params){ .block = block, .steps = answer };
}

static bool open_model(const study_run *run, const study_model *m, rg_error *err)
{
    rg_options o = rg_options_default();
    size_t n_prompt_ids, n_ids;
    study_value v[N_COLUMNS] = { 0 };
    char path[1024];

    close_model();
    if (!rg_mul((size_t)n_prompts, (size_t)n_prompt, &n_prompt_ids) ||
        !rg_mul((size_t)n_prompts, (size_t)answer, &n_ids))
        return rg_fail_memory(err, SIZE_MAX);
    if (!cli_find_model(m->given, path, sizeof path, err))
        return false;
    o.n_threads = run->common->threads;
    o.isa = run->common->isa;
    o.recipe = run->common->recipe;
    at.engine = rg_open(path, &o, err);
    if (!at.engine)
        return false;
    at.prompts = rg_array(n_prompt_ids, sizeof *at.prompts);
    at.want = rg_array(n_ids, sizeof *at.want);
    at.got = rg_array(n_ids, sizeof *at.got);
    if (!at.prompts || !at.want || !at.got)
        return rg_fail_memory(err, n_ids * sizeof *at.want);
    const rg_info info = rg_engine_info(at.engine);
    if (!info.is_diffusion)
        return rg_fail(err, RG_E_USAGE, "study diffusion: %s is not a diffusion model", m->given);
    if (!study_prompts(run, path, &(study_prompt_shape){ n_prompts, n_prompt, info.vocab_size, seed }, at.prompts, err))
        return false;
    const rg_diffusion_params d = one_each();
    if (!run_all(&d, v, err))
        return false;
    memcpy(at.want, at.got, n_ids * sizeof *at.want);
    at.m = m;
    return true;
}

static bool measure(const study_run *run, const study_model *m, study_value *v, rg_error *err)
{
    if (at.m != m && !open_model(run, m, err))
        return false;
    rg_diffusion_params d = one_each();
    if (!strcmp(v[RULE].text, "threshold"))
        d = (rg_diffusion_params){ .block = d.block, .threshold = (float)(v[VALUE].number / 100) };
    else if (!strcmp(v[RULE].text, "steps"))
        d = (rg_diffusion_params){ .block = d.block, .steps = (int32_t)v[VALUE].number };
    if (!run_all(&d, v, err))
        return false;
    int32_t same = 0;
    for (int32_t i = 0; i < n_prompts * answer; i++)
        same += at.got[i] == at.want[i];
    v[SAME].number = same / (n_prompts * (double)answer);
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
    .options = options,
    .columns = columns,
    .n_columns = N_COLUMNS,
    .page = &page,
    .settle = settle,
    .plan = plan,
    .measure = measure,
    .draw = draw,
    .close = close_model,
};
