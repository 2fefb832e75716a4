/* kv.c -- `ridge study kv`: what K/V in fewer bits loses, beside the bytes that it keeps.
 *
 * For each model and type of K/V: perplexity of a text, and the share of the values of associative recall
 * (cli/study/mqar.h) that the model predicts. */
#include <math.h>
#include <stdio.h>

#include "cli/study/recall_score.h"
#include "cli/study/study.h"

extern const study study_kv;

enum {
    MODEL, KV_TYPE, TEXT, CTX, PAIRS, LENGTH, VOCABULARY, GAP_LIMIT, EXAMPLES, SEED, POSITION_BYTES, SEQUENCE_BYTES,
    PPL, RECALL, N_COLUMNS
};

static const study_column columns[] = {
    [MODEL] = STUDY_COLUMN_MODEL,
    [KV_TYPE] = { "kv_type", STUDY_TEXT, .key = true, .json = "kv_type", .head = "K/V", .width = 5 },
    [TEXT] = { "text", STUDY_TEXT, .key = true },
    [CTX] = { "ctx", STUDY_INT, .key = true },
    [PAIRS] = { "pairs", STUDY_INT, .key = true },
    [LENGTH] = { "length", STUDY_INT, .key = true },
    [VOCABULARY] = { "vocab", STUDY_INT, .key = true },
    [GAP_LIMIT] = { "gap_limit", STUDY_INT, .key = true },
    [EXAMPLES] = { "examples", STUDY_INT, .key = true },
    [SEED] = { "seed", STUDY_TEXT, .key = true },
    [POSITION_BYTES] = { "bytes_per_position", STUDY_REAL, .format = "%.0f", .json = "state_bytes_per_position",
                         .head = "B/pos.", .width = 10 },
    [SEQUENCE_BYTES] = { "bytes_per_sequence", STUDY_REAL, .format = "%.0f", .json = "state_bytes_per_sequence",
                         .head = "B/seq.", .width = 10 },
    [PPL] = { "ppl", STUDY_REAL, .format = "%.17g", .json = "ppl", .head = "perplexity", .width = 12, .digits = 5 },
    [RECALL] = { "recall", STUDY_REAL, .format = "%.17g", .json = "recall", .head = "recall", .width = 8, .digits = 4 },
};

static const rg_lines_page page = {
    .title = "K/V in fewer bits",
    .note = "Right to left: f32, bf16, q8, q4.  Associative recall: the share that is right.",
    .n_charts = 2,
    .charts = { { "One text", "bytes per position", "perplexity" }, { "Recall", "bytes per position", "share" } },
};

static recall_task ask = { .examples = 32, .text = { .seed = 1, .length = 256, .pairs = 8, .fill = true } };

static const cli_option options[] = { RECALL_OPTIONS(ask, "256", "32"), { NULL } };

static bool plan(const study_run *run, const study_model *m, rg_error *err)
{
    static const char *const types[] = { "f32", "bf16", "q8", "q4" };
    static char text[STUDY_TEXT_KEY], seed[24];

    if (!study_text_key(run, false, text, err))
        return false;
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)ask.text.seed);
    for (size_t t = 0; t < RG_LEN(types); t++) {
        study_value *v = study_add_row(run, m, err);

        if (!v)
            return false;
        v[MODEL].text = m->given;
        v[KV_TYPE].text = types[t];
        v[TEXT].text = text;
        v[CTX].number = run->ctx;
        v[PAIRS].number = ask.text.pairs;
        v[LENGTH].number = ask.text.length;
        v[VOCABULARY].number = ask.text.vocab_size;
        v[GAP_LIMIT].number = ask.text.gap_limit;
        v[EXAMPLES].number = ask.examples;
        v[SEED].text = seed;
    }
    return true;
}

static bool find_bytes(const study_model *m, study_value *v, rg_error *err)
{
    const rg_model_options o = { .declare_only = true, .declared_type = RG_BF16, .kv_type = v[KV_TYPE].text };
    char path[1024];

    if (!cli_find_model(m->given, path, sizeof path, err))
        return false;
    rg_checkpoint *ckpt = rg_checkpoint_open(path, RG_CKPT_NO_WEIGHTS, err);
    rg_model *model = ckpt ? rg_model_open(ckpt, &o, err) : NULL;
    if (model) {
        v[POSITION_BYTES].number = (double)rg_state_bytes_per_position(&model->state);
        v[SEQUENCE_BYTES].number = (double)rg_state_bytes_per_sequence(&model->state);
    }
    rg_model_close(model);
    rg_checkpoint_close(ckpt);
    return model;
}

static bool measure(const study_run *run, const study_model *m, study_value *v, rg_error *err)
{
    cli_common exact = *run->common;
    perplexity s = { .kv_type = v[KV_TYPE].text };
    const tool_options o = { .common = &exact, .model = m->given, .kv_type = s.kv_type, .max_rows = 512 };

    exact.quiet = true;
    exact.recipe = "exact";
    return find_bytes(m, v, err) && recall_score(&o, &ask, &v[RECALL].number, err) &&
           study_perplexity(run, m, &s, &v[PPL].number, err);
}

static void draw(study_picture *p, const study_model *m, const study_value *v)
{
    const double bytes = v[POSITION_BYTES].number;

    study_point(p, 0, m->name, NULL, (rg_lines_point){ bytes, v[PPL].number, true });
    study_point(p, 1, m->name, NULL, (rg_lines_point){ bytes, v[RECALL].number, true });
}

const study study_kv = {
    .command = { .name = "study kv", .arguments = "MODEL...", .n_positional = 8, .recipe = "exact",
                 .summary = "perplexity and recall against the bytes of K/V",
                 .notes = "K/V as f32, bf16, q8 and q4.  Recall: how many values of synthetic pairs, asked for later "
                          "in the\ntext, a model predicts; one that was not trained to look up what stood before "
                          "predicts few." },
    .text = "the text to score (default: the shipped calibration text)",
    STUDY_PARTS,
};
