/* salient.c -- `ridge study salient`: the experiment that AWQ begins with (Lin et al. 2023, table 1): matrices
 * rounded to few bits, and one column in a hundred kept in 16: those with the largest inputs, those with the largest
 * weights, or any. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "cli/study/study.h"
#include "ops/watch/watch.h"
#include "shrink/rtn.h"

extern const study study_salient;

enum { SAMPLES = 16, BITS_MOST = 8 };
enum { MODEL, BITS, KEPT, PERCENT, GROUP, TEXT, CTX, TOTAL_BITS, PPL, N_COLUMNS };

static const study_column columns[] = {
    STUDY_ROUNDING_COLUMNS,
    [KEPT] = { "kept", STUDY_TEXT, .key = true, .json = "kept", .head = "kept by", .width = 10 },
    [PERCENT] = { "percent", STUDY_TEXT, .key = true, .json = "percent", .head = "%", .width = 4 },
};

static const rg_lines_page page = {
    .title = "Columns kept in 16 bits",
    .note = "Matrices of layers rounded to nearest; kept: the columns with the largest inputs, or weights, or any.",
    .n_charts = 1,
    .charts = { { "One text", "bits of the whole model", "perplexity" } },
};

static const char stored[] = "stored", none[] = "none", inputs[] = "inputs", weights[] = "weights", any[] = "any";
static cli_ints bits;
static int32_t group = 128;
static float percent = 1;

static const cli_option options[] = {
    { "--bits", CLI_INTS, &bits, "3,4", "of the codes (default 3,4)" },
    { "--keep", CLI_FLOAT, &percent, "X", "percent of each matrix's columns (default 1)", 0.01, 50 },
    { "--group", CLI_INT, &group, "N", "columns under a scale (default 128)", 1, 1 << 20 },
    { NULL },
};

static bool settle(const study_run *run, rg_error *err)
{
    const cli_ints_rule rule = { "study salient", "--bits", 2, BITS_MOST, 7 };

    (void)run;
    return cli_ints_settle(&bits, (const int32_t[]){ 3, 4 }, 2, &rule, err);
}

static bool add_row(const study_run *run, const study_model *m, int n_bits, const char *kept, rg_error *err)
{
    static char text[STUDY_TEXT_KEY], share[16];
    study_value *v = study_text_key(run, true, text, err) ? study_add_row(run, m, err) : NULL;

    if (!v)
        return false;
    snprintf(share, sizeof share, "%g", (double)percent);
    v[MODEL].text = m->given;
    v[BITS].number = n_bits;
    v[KEPT].text = kept;
    v[PERCENT].text = kept == stored || kept == none ? "0" : share;
    v[GROUP].number = group;
    v[TEXT].text = text;
    v[CTX].number = run->ctx;
    return true;
}

static bool plan(const study_run *run, const study_model *m, rg_error *err)
{
    const char *const kept[] = { none, any, weights, inputs };
    bool ok = add_row(run, m, 16, stored, err);

    for (size_t b = 0; b < bits.n; b++)
        for (size_t k = 0; ok && k < RG_LEN(kept); k++)
            ok = add_row(run, m, bits.item[b], kept[k], err);
    return ok;
}

/* ---- inputs ------------------------------------------------------------------------------------------------------ */

/* The model that is studied now: for each weight, sums of |x| of what its columns read, [n_mats, cols]; NULL: not
 * known, as for experts' last matrices. */
static struct {
    const study_model *m;
    double **sum;
    int n;
} at;

static void close_inputs(void)
{
    for (int i = 0; i < at.n; i++)
        rg_free(at.sum[i]);
    rg_free(at.sum);
    memset(&at, 0, sizeof at);
}

static const rg_reader *wrap(void *arg, const rg_reader *inner)
{
    return rg_act_stats_wrap(arg, inner);
}

static bool copy_sums(const rg_act_stats *stats, const rg_weight_set *set, rg_error *err)
{
    at.sum = rg_array((size_t)set->n, sizeof *at.sum);
    if (!at.sum)
        return rg_fail_memory(err, (size_t)set->n * sizeof *at.sum);
    at.n = set->n;
    for (int k = 0; k < rg_act_stats_count(stats); k++) {
        const rg_act_stat s = rg_act_stats_at(stats, k);

        for (int i = 0; i < set->n; i++) {
            const rg_weight *w = &set->all[i];

            if (at.sum[i] || strcmp(w->name, s.name) || w->n_mats != s.n_mats || w->cols != s.n_channels)
                continue;
            /* fits: so many sums are there already */
            at.sum[i] = rg_array((size_t)(w->n_mats * w->cols), sizeof **at.sum);
            if (!at.sum[i])
                return rg_fail_memory(err, (size_t)(w->n_mats * w->cols) * sizeof **at.sum);
            memcpy(at.sum[i], s.sum, (size_t)(w->n_mats * w->cols) * sizeof **at.sum);
            break;
        }
    }
    return true;
}

/* What the calibration text gives the columns to read. */
static bool watch(const study_run *run, const char *path, const calibration *text, rg_error *err)
{
    cli_common quiet = *run->common;
    rg_act_stats *stats = rg_act_stats_new(err);
    tool t = { 0 };
    const tool_options o = { .common = &quiet, .model = path, .kv_type = "f32", .max_rows = 512, .max_seqs = 1,
                             .max_seq_len = text->ctx, .all_logits = true, .wrap = wrap, .wrap_arg = stats };
    perplexity s = { .tool = &t, .text = text->ids, .n_text = (size_t)text->n_samples * (size_t)text->ctx,
                  .file = text->path, .ctx = text->ctx, .quiet = true };

    quiet.quiet = true;
    bool ok = stats && tool_open(&t, &o, err) && tool_reaches(&t, (size_t)text->ctx, err) && perplexity_run(&s, err) &&
              copy_sums(stats, &t.model->weights, err);
    tool_close(&t);
    rg_act_stats_free(stats);
    return ok;
}

static bool open_inputs(const study_run *run, const study_model *m, rg_error *err)
{
    calibration text = { .ctx = run->ctx < 256 ? run->ctx : 256, .score = study_text(run), .n_samples = SAMPLES };
    char path[1024];

    close_inputs();
    bool ok = cli_find_model(m->given, path, sizeof path, err) && study_read_ids(path, &text, err) &&
              (text.ids || study_needs_tokenizer(path, err)) && watch(run, path, &text, err);
    at.m = ok ? m : NULL;
    calibration_fini(&text);
    return ok;
}

/* ---- which columns ----------------------------------------------------------------------------------------------- */

/* A column's place and what it counts. */
typedef struct column {
    int64_t place;
    double by;
} column;

static int larger_first(const void *a, const void *b)
{
    const column *x = a, *y = b;

    return x->by > y->by ? -1 : x->by < y->by ? 1 : x->place < y->place ? -1 : 1;
}

static void add_weights(const rg_weight *w, int64_t mat, column *c)
{
    float *row = rg_array((size_t)w->cols, sizeof *row);

    for (int64_t r = 0; row && r < w->rows; r++) {
        w->placed->owner->weight_get(w->placed, mat, r, row);
        for (int64_t k = 0; k < w->cols; k++)
            c[k].by += fabs((double)row[k]);
    }
    rg_free(row);
}

/* At least one column, those of the largest numbers. */
static int64_t choose(void *arg, const rg_weight_set *set, int i, int64_t mat, bool *kept)
{
    const char *by = ((const study_value *)arg)[KEPT].text;
    const rg_weight *w = &set->all[i];
    const int64_t wanted = (int64_t)ceil((double)w->cols * (double)percent / 100);
    column *c = rg_array((size_t)w->cols, sizeof *c);
    rg_rng rng = { .seed = 1 + (uint64_t)i };

    for (int64_t k = 0; c && k < w->cols; k++) {
        c[k].place = k;
        if (!strcmp(by, inputs))
            c[k].by = at.sum[i] ? at.sum[i][mat * w->cols + k] : 0;
        else if (!strcmp(by, any))
            c[k].by = (double)rg_rng_below(&rng, 1u << 30);
    }
    if (c && !strcmp(by, weights))
        add_weights(w, mat, c);
    if (!c)
        return 0;
    qsort(c, (size_t)w->cols, sizeof *c, larger_first);
    for (int64_t k = 0; k < wanted; k++)
        kept[c[k].place] = true;
    rg_free(c);
    return wanted;
}

static bool change(void *row, rg_model *m, rg_error *err)
{
    study_value *v = row;
    const rg_round_keep keep = { choose, v };
    rg_coding coding = { .bits = (int)v[BITS].number, .group = group, .scale_type = RG_F16 };

    if (!strcmp(v[KEPT].text, stored)) {
        v[TOTAL_BITS].number = rg_stored_bits(m);
        return true;
    }
    return rg_coding_init(&coding, err) &&
           rg_round_model(m, &coding, strcmp(v[KEPT].text, none) ? &keep : NULL, &v[TOTAL_BITS].number, err);
}

static bool measure(const study_run *run, const study_model *m, study_value *v, rg_error *err)
{
    perplexity s = { .change = change, .change_arg = v };

    return (at.m == m || open_inputs(run, m, err)) && study_perplexity(run, m, &s, &v[PPL].number, err);
}

static void draw(study_picture *p, const study_model *m, const study_value *v)
{
    study_point(p, 0, m->name, v[KEPT].text, (rg_lines_point){ v[TOTAL_BITS].number, v[PPL].number, true });
}

const study study_salient = {
    .command = { .name = "study salient", .arguments = "MODEL...", .n_positional = 5, .recipe = "exact",
                 .summary = "few bits, with one column in a hundred kept in 16",
                 .notes = "What AWQ begins with: columns whose inputs are large matter more than those whose weights "
                          "are.\nInputs are those of the shipped calibration text.  `shrink awq` scales such columns "
                          "instead." },
    .text = "the text to score (default: the shipped calibration text)",
    STUDY_PARTS,
    .settle = settle,
    .close = close_inputs,
};
