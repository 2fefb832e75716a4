/* kbit.c -- `ridge study kbit`: perplexity against the bits of a model, over models and codes of 3 to 8 bits
 * (Dettmers and Zettlemoyer 2023). */
#include <math.h>
#include <string.h>

#include "cli/study/study.h"
#include "shrink/rtn.h"

extern const study study_kbit;

enum { MODEL, CODES, BITS, GROUP, TEXT, CTX, TOTAL_BITS, PPL, N_COLUMNS };

static const study_column columns[] = {
    STUDY_ROUNDING_COLUMNS,
    [CODES] = { "codes", STUDY_TEXT, .key = true, .json = "codes", .head = "codes", .width = 9 },
};

static const rg_lines_page page = {
    .title = "Perplexity against bits",
    .note = "Matrices of layers rounded to nearest, 8 bits to 3; all weights are counted.",
    .n_charts = 1,
    .charts = { { "One text", "bits of the whole model", "perplexity" } },
};

static const char stored[] = "stored"; /* the codes of a model as it is */
static int32_t group = 64;

static char text[STUDY_TEXT_KEY];

static const cli_option options[] = {
    { "--group", CLI_INT, &group, "N", "columns under a scale (default 64)", 1, 1 << 20 },
    { NULL },
};

static bool add_row(const study_run *run, const study_model *m, const char *codes, int bits, rg_error *err)
{
    study_value *v = study_add_row(run, m, err);

    if (!v)
        return false;
    v[MODEL].text = m->given;
    v[CODES].text = codes;
    v[BITS].number = bits;
    v[GROUP].number = group;
    v[TEXT].text = text;
    v[CTX].number = run->ctx;
    return true;
}

static bool plan(const study_run *run, const study_model *m, rg_error *err)
{
    static const char *const kinds[] = { "int", "float", "quantile" };
    bool ok = study_text_key(run, false, text, err) && add_row(run, m, stored, 16, err);

    for (int bits = 8; bits >= 3; bits--)
        for (size_t k = 0; ok && k < RG_LEN(kinds); k++)
            ok = add_row(run, m, kinds[k], bits, err);
    return ok;
}

/* Round the model's matrices as a row says, and count its bits. */
static bool change(void *row, rg_model *m, rg_error *err)
{
    study_value *v = row;
    rg_coding coding = { .bits = (int)v[BITS].number, .group = group, .scale_type = RG_F16 };

    if (strcmp(v[CODES].text, stored) != 0)
        return rg_code_kind_by_name(v[CODES].text, &coding.kind) && rg_coding_init(&coding, err) &&
               rg_round_model(m, &coding, NULL, &v[TOTAL_BITS].number, err);
    v[TOTAL_BITS].number = rg_stored_bits(m);
    return true;
}

static bool measure(const study_run *run, const study_model *m, study_value *v, rg_error *err)
{
    perplexity s = { .change = change, .change_arg = v };

    return study_perplexity(run, m, &s, &v[PPL].number, err) &&
           (!isnan(v[PPL].number) || study_needs_tokenizer(m->given, err));
}

/* A line for each kind of codes; the model as it is stored is a point. */
static void draw(study_picture *p, const study_model *m, const study_value *v)
{
    study_point(p, 0, m->name, v[CODES].text, (rg_lines_point){ v[TOTAL_BITS].number, v[PPL].number, true });
}

const study study_kbit = {
    .command = { .name = "study kbit", .arguments = "MODEL...", .n_positional = 5, .recipe = "exact",
                 .summary = "perplexity against bits, over codes and models",
                 .notes = "Matrices of layers are rounded to nearest in memory: int (with zero points), float and "
                          "quantile codes of\n8 to 3 bits; what stands outside the layers stays as it is stored, and "
                          "is counted." },
    .text = "the text to score (default: the shipped calibration text)",
    STUDY_PARTS,
};
