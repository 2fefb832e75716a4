/* softmax.c -- `ridge study sparsity --softmax`: how many weights of attention are small, by layer and position,
 * and what `--attention-sparsity` would leave out. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cli/study/study.h"
#include "ops/watch/softmax.h"

extern const study study_softmax;

enum {
    MODEL,
    LAYER,
    POSITION,
    TEXT,
    WINDOWS,
    CTX,
    KEYS,
    BELOW,
    UNREAD = BELOW + RG_SOFTMAX_THRESHOLDS,
    LOST = UNREAD + RG_SOFTMAX_THRESHOLDS,
    N_COLUMNS = LOST + RG_SOFTMAX_THRESHOLDS
};

#define SHARE(name, title)                                                                                             \
    {                                                                                                                  \
        name, STUDY_REAL, .format = "%.6g", .json = name, .head = title, .width = 9, .digits = 2, .scale = 100,        \
                          .unit = "%"                                                                                  \
    }

static const study_column columns[] = {
    [MODEL] = { "model", STUDY_TEXT, .key = true, .json = "model", .head = "model", .width = 16 },
    [LAYER] = { "layer", STUDY_TEXT, .key = true, .json = "layer", .head = "layer", .width = 5 },
    [POSITION] = { "from", STUDY_INT, .key = true, .json = "from", .head = "from", .width = 6 },
    [TEXT] = { "text", STUDY_TEXT, .key = true },
    [WINDOWS] = { "windows", STUDY_INT, .key = true },
    [CTX] = { "ctx", STUDY_INT, .key = true },
    [KEYS] = { "keys", STUDY_REAL, .format = "%.3f", .json = "keys", .head = "keys", .width = 8, .digits = 1 },
    [BELOW] = SHARE("below_1e-4", "< 1e-4"),
    SHARE("below_1e-3", "< 1e-3"),
    SHARE("below_1e-2", "< 1e-2"),
    [UNREAD] = SHARE("blocks_1e-4", "out 1e-4"),
    SHARE("blocks_1e-3", "out 1e-3"),
    SHARE("blocks_1e-2", "out 1e-2"),
    [LOST] = SHARE("lost_1e-4", "lost 1e-4"),
    SHARE("lost_1e-3", "lost 1e-3"),
    SHARE("lost_1e-2", "lost 1e-2"),
};

static const rg_lines_page page = {
    .title = "Small weights of attention",
    .note = "All layers.  Blocks: of 64 keys, that attention leaves out at a threshold.",
    .n_charts = 2,
    .charts = { { "Weights below", "keys", "%" }, { "Blocks left out", "keys", "%" } },
};

static int32_t n_windows = 4, every = 7;
static bool asked; /* --softmax, which has been seen */

static const cli_option options[] = {
    { "--softmax", CLI_FLAG, &asked, NULL, "of attention: the share of small weights by layer and position" },
    { "--windows", CLI_INT, &n_windows, "N", "windows of the text (default 4)", 1, 1 << 20 },
    { "--every", CLI_INT, &every, "N", "look at each N-th row (default 7)", 1, 1 << 20 },
    { NULL },
};

/* The model that is being looked at, and what was found. */
static struct {
    const study_model *m;
    rg_softmax_stats *stats;
} at;

static void close_stats(void)
{
    rg_softmax_stats_free(at.stats);
    at.stats = NULL;
    at.m = NULL;
}

static bool layers_of(const study_model *m, int *n, rg_error *err)
{
    char path[1024];

    if (!cli_find_model(m->given, path, sizeof path, err))
        return false;
    rg_checkpoint *ckpt = rg_checkpoint_open(path, RG_CKPT_NO_WEIGHTS, err);
    rg_model *model =
        ckpt ? rg_model_open(ckpt, &(rg_model_options){ .declare_only = true, .declared_type = RG_BF16 }, err) : NULL;

    *n = model ? model->config.n_layers : 0;
    rg_model_close(model);
    rg_checkpoint_close(ckpt);
    return model;
}

/* All layers first, then each. */
static bool plan(const study_run *run, const study_model *m, rg_error *err)
{
    static char text[STUDY_TEXT_KEY], names[512][8];
    int n_layers;

    if (!study_text_key(run, false, text, err) || !layers_of(m, &n_layers, err))
        return false;
    for (int l = -1; l < n_layers && l < 511; l++)
        for (int i = 0; i < RG_SOFTMAX_PLACES && rg_softmax_place(i) < run->ctx; i++) {
            study_value *v = study_add_row(run, m, err);

            if (!v)
                return false;
            snprintf(names[l + 1], sizeof names[0], l < 0 ? "all" : "%d", l);
            v[MODEL].text = m->given;
            v[LAYER].text = names[l + 1];
            v[POSITION].number = rg_softmax_place(i);
            v[TEXT].text = text;
            v[WINDOWS].number = n_windows;
            v[CTX].number = run->ctx;
        }
    return true;
}

static const rg_reader *wrap(void *arg, const rg_reader *inner)
{
    return rg_softmax_stats_wrap(arg, inner);
}

/* Score the windows, for the sake of what their steps compute. */
static bool look_at(const study_run *run, const char *path, const calibration *text, rg_error *err)
{
    const size_t wanted = (size_t)n_windows * (size_t)run->ctx;
    cli_common quiet = *run->common;
    tool t = { 0 };
    const tool_options o = { .common = &quiet,
                             .model = path,
                             .kv_type = "f32",
                             .max_rows = 512,
                             .max_seqs = 1,
                             .max_seq_len = run->ctx,
                             .all_logits = true,
                             .wrap = wrap,
                             .wrap_arg = at.stats };
    perplexity s = { .tool = &t,
                  .text = text->rest,
                  .n_text = text->n_rest < wanted ? text->n_rest : wanted,
                  .file = text->path,
                  .ctx = run->ctx,
                  .quiet = true };

    quiet.quiet = true;
    bool ok = tool_open(&t, &o, err) && tool_reaches(&t, (size_t)run->ctx, err) && perplexity_run(&s, err);
    tool_close(&t);
    return ok && (rg_softmax_stats_complete(at.stats) ||
                  rg_fail(err, RG_E_UNSUPPORTED,
                          "study sparsity: %s: the weights of its attention cannot be looked at: "
                          "its keys are chosen by an indexer, or memory ran out",
                          path));
}

static bool open_stats(const study_run *run, const study_model *m, rg_error *err)
{
    calibration text = { .file = study_text(run), .ctx = run->ctx, .score = study_text(run), .n_samples = 1 };
    char path[1024];
    int n_layers;

    close_stats();
    bool ok = layers_of(m, &n_layers, err) && cli_find_model(m->given, path, sizeof path, err) &&
              study_read_ids(path, &text, err) && (text.rest || study_needs_tokenizer(path, err));
    at.stats = ok ? rg_softmax_stats_new(n_layers, every, err) : NULL;
    ok = at.stats && look_at(run, path, &text, err);
    at.m = ok ? m : NULL;
    calibration_fini(&text);
    return ok;
}

static bool measure(const study_run *run, const study_model *m, study_value *v, rg_error *err)
{
    rg_softmax_sums all = { 0 };
    int n_layers, place = 0;

    if ((at.m != m && !open_stats(run, m, err)) || !layers_of(m, &n_layers, err))
        return false;
    while (rg_softmax_place(place) < (int)v[POSITION].number)
        place++;
    for (int l = 0; l < n_layers; l++) {
        const rg_softmax_sums *s = rg_softmax_stats_at(at.stats, l, place);

        if (strcmp(v[LAYER].text, "all") && atoi(v[LAYER].text) != l)
            continue;
        all.rows += s->rows;
        all.keys += s->keys;
        all.blocks += s->blocks;
        for (int t = 0; t < RG_SOFTMAX_THRESHOLDS; t++) {
            all.below[t] += s->below[t];
            all.unread[t] += s->unread[t];
            all.lost[t] += s->lost[t];
        }
    }
    if (all.rows == 0) /* a layer without attention */
        return true;
    v[KEYS].number = all.keys / all.rows;
    for (int t = 0; t < RG_SOFTMAX_THRESHOLDS; t++) {
        v[BELOW + t].number = all.below[t] / all.keys;
        v[UNREAD + t].number = all.unread[t] / all.blocks;
        v[LOST + t].number = all.lost[t] / all.rows;
    }
    return true;
}

static void draw(study_picture *p, const study_model *m, const study_value *v)
{
    for (int t = 0; t < RG_SOFTMAX_THRESHOLDS && !strcmp(v[LAYER].text, "all") && !isnan(v[KEYS].number); t++) {
        char kind[16];

        snprintf(kind, sizeof kind, "%g", rg_softmax_thresholds[t]);
        study_point(p, 0, m->name, kind, (rg_lines_point){ v[KEYS].number, 100 * v[BELOW + t].number, true });
        study_point(p, 1, m->name, kind, (rg_lines_point){ v[KEYS].number, 100 * v[UNREAD + t].number, true });
    }
}

const study study_softmax = {
    .command = { .name = "study sparsity",
                 .arguments = "--softmax MODEL...",
                 .n_positional = 8,
                 .recipe = "exact",
                 .summary = "small weights of attention, by layer and position",
                 .notes = "Weights that are below 1e-4, 1e-3 and 1e-2; blocks of 64 keys that --attention-sparsity "
                          "leaves out\nat these thresholds; and the share of a row's weight that is lost with them. "
                          "Rows: positions from\nthe one that is named to the next one." },
    .text = "the text to read (default: the shipped calibration text)",
    STUDY_PARTS,
    .close = close_stats,
};
