/* search.c -- `ridge study search`: how likely answers a search finds, against the rows that it computes.
 *
 * The same prompts are answered greedily, by beams of several widths and by tree search of several numbers of
 * simulations.  Told of each, as means over the prompts: the sum of the log-probabilities of the best answer's ids, by
 * how much that is above the greedy answer's, and the rows computed.  Answers have one length: end tokens are ordinary
 * ids, and scores can be compared. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cli/study/study.h"

extern const study study_search;

enum {
    MODEL,
    HOW,
    SIZE,
    ANSWER,
    PROMPT,
    PROMPTS,
    TREE,
    TEXT,
    SEED,
    SCORE,
    GAIN,
    ROWS,
    STEPS,
    SECONDS,
    N_COLUMNS
};

static const study_column columns[] = {
    [MODEL] = { "model", STUDY_TEXT, .key = true, .json = "model", .head = "model", .width = 20 },
    [HOW] = { "search", STUDY_TEXT, .key = true, .json = "search", .head = "search", .width = 8 },
    [SIZE] = { "beams_or_simulations", STUDY_INT, .key = true, .json = "size", .head = "size", .width = 6 },
    [ANSWER] = { "answer", STUDY_INT, .key = true, .json = "answer" },
    [PROMPT] = { "prompt", STUDY_INT, .key = true },
    [PROMPTS] = { "prompts", STUDY_INT, .key = true },
    [TREE] = { "tree", STUDY_TEXT, .key = true, .json = "tree" },
    [TEXT] = { "text", STUDY_TEXT, .key = true },
    [SEED] = { "seed", STUDY_TEXT, .key = true },
    [SCORE] = { "score", STUDY_REAL, .format = "%.17g", .json = "score", .head = "log-prob.", .width = 10,
                .digits = 3 },
    [GAIN] = { "over_greedy", STUDY_REAL, .format = "%.17g", .json = "over_greedy", .head = "over greedy", .width = 12,
               .digits = 3 },
    [ROWS] = { "rows", STUDY_REAL, .format = "%.17g", .json = "rows", .head = "rows", .width = 9, .digits = 1 },
    [STEPS] = { "steps", STUDY_REAL, .format = "%.17g", .json = "steps" },
    [SECONDS] = { "seconds", STUDY_REAL, .format = "%.6g", .json = "seconds", .head = "seconds", .width = 9,
                  .digits = 3 },
};

static const rg_lines_page page = {
    .title = "Searches: likely answers against computed rows",
    .note = "Perplexity of the best answer that is found; ends are ordinary ids.",
    .n_charts = 1,
    .charts = { { "Answers", "rows computed", "perplexity of the answer" } },
};

static int32_t answer = 32, n_prompt = 32, n_prompts = 8;
static rg_search_params tree;
static uint64_t seed = 1;
static cli_ints beams, simulations;

static const cli_option options[] = {
    { "--answer", CLI_INT, &answer, "N", "ids of an answer (default 32)", 1, 1 << 16 },
    { "--prompt", CLI_INT, &n_prompt, "N", "ids of a prompt (default 32)", 1, 1 << 16 },
    { "--prompts", CLI_INT, &n_prompts, "N", "prompts, whose means are told (default 8)", 1, 1024 },
    { "--beams", CLI_INTS, &beams, "2,4,8", "beams" },
    { "--simulations", CLI_INTS, &simulations, "16,64,256", "simulations of a tree search" },
    { "--leaves", CLI_INT, &tree.leaves, "N", "of these at once (default 8)", 1, RG_LEAVES_MAX },
    { "--width", CLI_INT, &tree.width, "K", "ids that may follow an id (default 4)", 1, RG_WIDTH_MAX },
    { "--span", CLI_INT, &tree.span, "N", "only every N-th id has others beside it (default 1)", 1, RG_SPAN_MAX },
    { "--explore", CLI_FLOAT, &tree.explore, "C", "weight of what was seen little (default 1.25)", 0, RG_EXPLORE_MAX },
    { "--seed", CLI_U64, &seed, "N", "of drawn prompts (default 1)" },
    { NULL },
};

/* The model whose rows are being made. */
static struct {
    const study_model *m; /* NULL: none yet */
    rg_engine *engine;
    int32_t *prompts; /* [n_prompts][n_prompt] */
    double greedy;    /* mean score of the greedy answers */
} at;

static bool settle(const study_run *run, rg_error *err)
{
    const cli_ints_rule of_beams = { "study search", "--beams", 1, RG_BEAMS_MAX, 16 };
    const cli_ints_rule of_trees = { "study search", "--simulations", 1, RG_SIMULATIONS_MAX, 16 };

    (void)run;
    return cli_ints_settle(&beams, (const int32_t[]){ 2, 4, 8 }, 3, &of_beams, err) &&
           cli_ints_settle(&simulations, (const int32_t[]){ 16, 64, 256 }, 3, &of_trees, err);
}

static bool add(const study_run *run, const study_model *m, const char *how, int32_t size, rg_error *err)
{
    static char text[STUDY_TEXT_KEY], number[24], shape[64];
    study_value *v = study_add_row(run, m, err);

    if (!v || !study_text_key(run, false, text, err))
        return false;
    snprintf(number, sizeof number, "%llu", (unsigned long long)seed);
    snprintf(shape, sizeof shape, "%d/%d/%d/%g", tree.leaves, tree.width, tree.span, (double)tree.explore);
    v[MODEL].text = m->given;
    v[HOW].text = how;
    v[SIZE].number = size;
    v[ANSWER].number = answer;
    v[PROMPT].number = n_prompt;
    v[PROMPTS].number = n_prompts;
    v[TREE].text = shape;
    v[TEXT].text = text;
    v[SEED].text = number;
    return true;
}

static bool plan(const study_run *run, const study_model *m, rg_error *err)
{
    if (!add(run, m, "greedy", 1, err))
        return false;
    for (size_t i = 0; i < beams.n; i++)
        if (!add(run, m, "beams", beams.item[i], err))
            return false;
    for (size_t i = 0; i < simulations.n; i++)
        if (!add(run, m, "mcts", simulations.item[i], err))
            return false;
    return true;
}

static void close_model(void)
{
    rg_close(at.engine);
    rg_free(at.prompts);
    memset(&at, 0, sizeof at);
}

/* The answer to the i-th prompt, as p has it.  The prefix cache is not used across answers: each has a salt. */
static bool run_one(int i, rg_params p, study_value *v, rg_error *err)
{
    static int n_asked;
    char salt[32];
    rg_token t;
    int32_t n = 0;
    double sum = 0;

    snprintf(salt, sizeof salt, "%d", ++n_asked);
    p.prompt = at.prompts + (size_t)i * (size_t)n_prompt;
    p.n_prompt = n_prompt;
    p.max_tokens = answer;
    p.n_samples = 1;
    p.cache_salt = salt;
    p.sampling = rg_sampling_default();
    p.sampling.temperature = 0;
    p.sampling.ignore_eos = true;
    p.sampling.n_logprobs = 0;
    rg_request *r = rg_submit(at.engine, &p, err);
    if (!r)
        return false;
    while (rg_next(r, &t)) {
        if (cli_interrupted())
            rg_cancel(r);
        if (t.id >= 0) {
            sum += (double)t.logprob;
            n++;
        }
    }
    const rg_usage u = rg_request_usage(r);
    rg_request_close(r);
    v[SCORE].number += sum / n_prompts;
    v[ROWS].number += (double)u.n_rows / n_prompts;
    v[STEPS].number += (double)u.n_steps / n_prompts;
    v[SECONDS].number += (u.total_s - u.queue_s) / n_prompts;
    return n == answer || rg_fail(err, RG_E_INPUT, "study search: an answer ended before it had %d ids", answer);
}

static bool run_all(const rg_params *p, study_value *v, rg_error *err)
{
    v[SCORE].number = v[ROWS].number = v[STEPS].number = v[SECONDS].number = 0;
    for (int i = 0; i < n_prompts; i++)
        if (!run_one(i, *p, v, err))
            return false;
    return true;
}

static bool open_model(const study_run *run, const study_model *m, rg_error *err)
{
    rg_options o = rg_options_default();
    study_value v[N_COLUMNS] = { 0 };
    size_t n_ids;
    char path[1024];

    close_model();
    if (!rg_mul((size_t)n_prompts, (size_t)n_prompt, &n_ids))
        return rg_fail_memory(err, SIZE_MAX);
    if (!cli_find_model(m->given, path, sizeof path, err))
        return false;
    o.n_threads = run->common->threads;
    o.isa = run->common->isa;
    o.recipe = run->common->recipe;
    at.engine = rg_open(path, &o, err);
    at.prompts = at.engine ? rg_array(n_ids, sizeof *at.prompts) : NULL;
    if (!at.prompts)
        return at.engine ? rg_fail_memory(err, n_ids * sizeof *at.prompts) : false;
    const study_prompt_shape z = { n_prompts, n_prompt, rg_engine_info(at.engine).vocab_size, seed };
    if (!study_prompts(run, path, &z, at.prompts, err) || !run_all(&(rg_params){ 0 }, v, err))
        return false;
    at.greedy = v[SCORE].number;
    at.m = m;
    return true;
}

static bool measure(const study_run *run, const study_model *m, study_value *v, rg_error *err)
{
    rg_params p = { 0 };

    if (at.m != m && !open_model(run, m, err))
        return false;
    if (!strcmp(v[HOW].text, "beams"))
        p.beam = (rg_beam_params){ .n_beams = (int32_t)v[SIZE].number, .length_penalty = 1 };
    if (!strcmp(v[HOW].text, "mcts")) {
        p.search = tree;
        p.search.simulations = (int32_t)v[SIZE].number;
    }
    if (!run_all(&p, v, err))
        return false;
    v[GAIN].number = v[SCORE].number - at.greedy;
    return true;
}

static void draw(study_picture *p, const study_model *m, const study_value *v)
{
    study_point(p, 0, m->name, v[HOW].text, (rg_lines_point){ v[ROWS].number, exp(-v[SCORE].number / answer), true });
}

const study study_search = {
    .command = { .name = "study search",
                 .arguments = "MODEL...",
                 .n_positional = 8,
                 .summary = "answers that searches find against rows",
                 .notes = "Greedy, beams and Monte Carlo tree search: the log-probability of the best answer that each "
                          "finds, and the\nrows that it computes for it." },
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
