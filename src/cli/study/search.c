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
#include "cli/study/answers.h"

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

static study_answers answers = { .answer = 32, .n_prompt = 32, .n_prompts = 8, .seed = 1 };
static rg_search_params tree;
static cli_ints beams, simulations;

static const cli_option options[] = {
    STUDY_ANSWERS_OPTIONS(answers, "32"),
    { "--beams", CLI_INTS, &beams, "2,4,8", "beams" },
    { "--simulations", CLI_INTS, &simulations, "16,64,256", "simulations of a tree search" },
    { "--leaves", CLI_INT, &tree.leaves, "N", "of these at once (default 8)", 1, RG_LEAVES_MAX },
    { "--width", CLI_INT, &tree.width, "K", "ids that may follow an id (default 4)", 1, RG_WIDTH_MAX },
    { "--span", CLI_INT, &tree.span, "N", "only every N-th id has others beside it (default 1)", 1, RG_SPAN_MAX },
    { "--explore", CLI_FLOAT, &tree.explore, "C", "weight of what was seen little (default 1.25)", 0, RG_EXPLORE_MAX },
    { NULL },
};

static double greedy; /* mean score of the greedy answers of the model that is open */

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
    static char shape[64];
    study_value *v = study_add_row(run, m, err);

    if (!v || !study_answers_keys(&answers, run, err))
        return false;
    snprintf(shape, sizeof shape, "%d/%d/%d/%g", tree.leaves, tree.width, tree.span, (double)tree.explore);
    v[MODEL].text = m->given;
    v[HOW].text = how;
    v[SIZE].number = size;
    v[ANSWER].number = answers.answer;
    v[PROMPT].number = answers.n_prompt;
    v[PROMPTS].number = answers.n_prompts;
    v[TREE].text = shape;
    v[TEXT].text = answers.text;
    v[SEED].text = answers.number;
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
    study_answers_close(&answers);
}

/* The means over all prompts.  The prefix cache is not used across answers: each has a salt. */
static bool run_all(rg_params p, study_value *v, rg_error *err)
{
    static int n_asked;
    const double n = answers.n_prompts;
    char salt[32];

    v[SCORE].number = v[ROWS].number = v[STEPS].number = v[SECONDS].number = 0;
    for (int i = 0; i < answers.n_prompts; i++) {
        double sum;
        rg_usage u;

        snprintf(salt, sizeof salt, "%d", ++n_asked);
        p.cache_salt = salt;
        if (!study_answers_run(&answers, i, p, NULL, &sum, &u, err))
            return false;
        v[SCORE].number += sum / n;
        v[ROWS].number += (double)u.n_rows / n;
        v[STEPS].number += (double)u.n_steps / n;
        v[SECONDS].number += (u.total_s - u.queue_s) / n;
    }
    return true;
}

static bool open_model(const study_run *run, const study_model *m, rg_error *err)
{
    study_value v[N_COLUMNS] = { 0 };

    if (!study_answers_open(&answers, run, m, err) || !run_all((rg_params){ 0 }, v, err)) {
        close_model();
        return false;
    }
    greedy = v[SCORE].number;
    return true;
}

static bool measure(const study_run *run, const study_model *m, study_value *v, rg_error *err)
{
    rg_params p = { 0 };

    if (answers.m != m && !open_model(run, m, err))
        return false;
    if (!strcmp(v[HOW].text, "beams"))
        p.beam = (rg_beam_params){ .n_beams = (int32_t)v[SIZE].number, .length_penalty = 1 };
    if (!strcmp(v[HOW].text, "mcts")) {
        p.search = tree;
        p.search.simulations = (int32_t)v[SIZE].number;
    }
    if (!run_all(p, v, err))
        return false;
    v[GAIN].number = v[SCORE].number - greedy;
    return true;
}

static void draw(study_picture *p, const study_model *m, const study_value *v)
{
    const double ppl = exp(-v[SCORE].number / answers.answer);

    study_point(p, 0, m->name, v[HOW].text, (rg_lines_point){ v[ROWS].number, ppl, true });
}

const study study_search = {
    .command = { .name = "study search",
                 .arguments = "MODEL...",
                 .n_positional = 8,
                 .summary = "answers that searches find against rows",
                 .notes = "Greedy, beams and Monte Carlo tree search: the log-probability of the best answer that each "
                          "finds, and the\nrows that it computes for it." },
    .text = "the text whose beginnings are the prompts (default: the shipped calibration text)",
    STUDY_PARTS,
    .settle = settle,
    .close = close_model,
};
