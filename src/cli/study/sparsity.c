/* sparsity.c -- `ridge study sparsity`: perplexity and speed against the share of activations that count as zero,
 * by TEAL's thresholds (Liu et al. 2024). */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "cli/speed.h"
#include "cli/study/study.h"
#include "shrink/sparsity.h"

extern const study study_sparsity, study_softmax;

enum { STEPS = 32, CONTEXT = 16 };
enum { MODEL, PERCENT, ALLOCATION, TEXT, SAMPLES, CTX, REALIZED, PPL, TOKENS_S, N_COLUMNS };

static const study_column columns[] = {
    [MODEL] = STUDY_COLUMN_MODEL,
    [PERCENT] = { "percent", STUDY_INT, .key = true, .json = "percent", .head = "target", .width = 7, .unit = " %" },
    [ALLOCATION] = { "allocation", STUDY_TEXT, .key = true, .json = "allocation", .head = "allocation", .width = 10 },
    [TEXT] = { "text", STUDY_TEXT, .key = true },
    [SAMPLES] = { "samples", STUDY_INT, .key = true },
    [CTX] = { "ctx", STUDY_INT, .key = true },
    [REALIZED] = { "realized", STUDY_REAL, .format = "%.6f", .json = "realized", .head = "zeros", .width = 9,
                   .digits = 1, .scale = 100, .unit = " %" },
    [PPL] = STUDY_COLUMN_PPL,
    [TOKENS_S] = { "tokens_s", STUDY_REAL, .format = "%.3f", .json = "tokens_s", .head = "tokens/s", .width = 10,
                   .digits = 1 },
};

static const rg_lines_page page = {
    .title = "Perplexity and speed against sparsity",
    .note = "Activations below TEAL's thresholds count as zero in every row; steps of one row skip their columns.",
    .n_charts = 2,
    .charts = { { "One text", "not zero, %", "perplexity" }, { "Decoding one sequence", "not zero, %", "tokens/s" } },
};

static const char *const allocations[] = { "uniform", "greedy" };
static cli_ints percents;
static int32_t n_samples = 16;
static bool softmax; /* never set: then it is the other study */

static const cli_option options[] = {
    { "--percent", CLI_INTS, &percents, "0,25,...", "shares of activations (default 0,25,40,50,65)" },
    { "--samples", CLI_INT, &n_samples, "N", "windows of calibration text (default 16)", 1, 1 << 20 },
    { "--softmax", CLI_FLAG, &softmax, NULL,
      "instead: the share of small weights of attention (see `ridge study sparsity --softmax --help`)" },
    { NULL },
};

static bool settle(const study_run *run, rg_error *err)
{
    const cli_ints_rule rule = { "study sparsity", "--percent", 0, 95, RG_LINES_POINTS };

    (void)run;
    return cli_ints_settle(&percents, (const int32_t[]){ 0, 25, 40, 50, 65 }, 5, &rule, err);
}

static bool plan(const study_run *run, const study_model *m, rg_error *err)
{
    static char text[STUDY_TEXT_KEY];

    if (!study_text_key(run, true, text, err))
        return false;
    for (size_t i = 0; i < percents.n; i++)
        for (size_t a = 0; a < (percents.item[i] ? RG_LEN(allocations) : 1); a++) {
            study_value *v = study_add_row(run, m, err);

            if (!v)
                return false;
            v[MODEL].text = m->given;
            v[PERCENT].number = percents.item[i];
            v[ALLOCATION].text = allocations[a];
            v[TEXT].text = text;
            v[SAMPLES].number = n_samples;
            v[CTX].number = run->ctx;
        }
    return true;
}

/* Thresholds of a row's model, in text, and the share of zeros that they give. */
static bool calibrate(const study_run *run, study_value *v, const char *path, const calibration *text, rg_buf *json,
                      rg_error *err)
{
    const cli_common *common = run->common;
    const bool greedy = !strcmp(v[ALLOCATION].text, "greedy");
    rg_stage_options o = { .backend = rg_backend_find(common->isa, err),
                           .n_threads = common->threads ? common->threads : rg_cores(),
                           .ids = text->ids, .n_samples = text->n_samples, .ctx = text->ctx, .thresholds = greedy };
    const rg_sparsity_options how = { .sparsity = v[PERCENT].number / 100.0, .greedy = greedy,
                                      .n_samples = text->n_samples, .ctx = text->ctx, .stop = cli_interrupted };

    rg_checkpoint *ckpt = o.backend ? rg_checkpoint_open(path, RG_CKPT_DEFAULT, err) : NULL;
    rg_stage *s = ckpt ? rg_stage_open(ckpt, &o, err) : NULL;
    bool ok = s && rg_sparsity_calibrate(s, &how, json, &v[REALIZED].number, err);

    rg_stage_close(s);
    rg_checkpoint_close(ckpt);
    return ok;
}

/* Perplexity and speed of a model that was opened with the thresholds. */
static bool score_and_time(study_value *v, tool *t, const calibration *text, rg_error *err)
{
    perplexity s = { .tool = t, .text = text->rest, .n_text = text->n_rest, .file = text->path, .ctx = text->ctx,
                  .quiet = true };
    speed *timed = rg_zalloc(sizeof *timed);
    double seconds, step_s;
    bool ok = timed ? perplexity_run(&s, err) && speed_init(timed, t, err) : rg_fail_memory(err, sizeof *timed);

    ok = ok && speed_decode(timed, 1, CONTEXT, STEPS, &seconds, &step_s, err);
    if (ok) {
        v[PPL].number = exp(s.nll / (double)s.n_scored);
        v[TOKENS_S].number = 1 / step_s;
    }
    if (timed)
        speed_fini(timed);
    rg_free(timed);
    return ok;
}

static bool measure(const study_run *run, const study_model *m, study_value *v, rg_error *err)
{
    calibration text = { .ctx = run->ctx, .score = run->text, .n_samples = n_samples };
    cli_common quiet = *run->common;
    rg_sparsity *thresholds = NULL;
    char path[1024];
    tool t = { 0 };
    rg_buf json;

    quiet.quiet = true;
    rg_buf_init(&json, 1 << 24);
    bool ok = cli_find_model(m->given, path, sizeof path, err) && study_read_ids(path, &text, err) &&
              (text.rest || study_needs_tokenizer(path, err));
    v[REALIZED].number = 0;
    if (ok && v[PERCENT].number > 0) {
        ok = calibrate(run, v, path, &text, &json, err);
        thresholds = ok ? rg_sparsity_parse("thresholds", json.data, json.n, err) : NULL;
        ok = thresholds;
    }
    const tool_options o = { .common = &quiet, .model = path, .kv_type = "f32", .thresholds = thresholds,
                             .max_rows = 512, .max_seqs = 1, .max_seq_len = run->ctx > 512 ? run->ctx : 512,
                             .all_logits = true };
    ok = ok && tool_open(&t, &o, err) && tool_reaches(&t, (size_t)run->ctx, err) && score_and_time(v, &t, &text, err);
    tool_close(&t);
    rg_sparsity_free(thresholds);
    rg_buf_fini(&json);
    calibration_fini(&text);
    return ok;
}

/* Over what is not zero, since axes are logarithmic.  Without zeros both allocations are the same: their lines meet. */
static void draw(study_picture *p, const study_model *m, const study_value *v)
{
    const double rest = 100 * (1 - v[REALIZED].number);

    for (size_t a = 0; a < RG_LEN(allocations); a++)
        if (!(v[PERCENT].number > 0) || !strcmp(allocations[a], v[ALLOCATION].text)) {
            study_point(p, 0, m->name, allocations[a], (rg_lines_point){ rest, v[PPL].number, true });
            study_point(p, 1, m->name, allocations[a], (rg_lines_point){ rest, v[TOKENS_S].number, true });
        }
}

const study study_sparsity = {
    .command = { .name = "study sparsity", .arguments = "MODEL...", .n_positional = RG_LINES_MOST / 2,
                 .recipe = "exact", .summary = "perplexity and speed against the share of zeros among activations",
                 .notes = "Thresholds are TEAL's, calibrated on the shipped text: the same share for every matrix of "
                          "the layers,\nand shares allotted greedily within each layer." },
    .text = "the text to score (default: the end of the calibration text)",
    STUDY_PARTS,
    .settle = settle,
    .other_option = "--softmax",
    .other = &study_softmax,
};
