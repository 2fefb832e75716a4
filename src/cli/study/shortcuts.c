/* shortcut.c -- `ridge study shortcuts`: one price list of all that makes a model smaller or quicker.
 *
 * Each shortcut alone, and those that go together: how far the distribution of the next id is from the model's own
 * (KL), perplexity, bytes, and the time of a token on this machine; and which of them no other beats in all three. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "cli/study/shortcut.h"
#include "cli/speed.h"
#include "cli/study/study.h"

extern const study study_shortcuts;

enum { STEPS = 24, DRAFTED = 64, ANSWERS = 3, NAME = 160, MOST_SETS = 1024, SAMPLES = 8 };
enum { MODEL, NAMES, TEXT, WINDOWS, CTX, LENGTH, HEALED, KL, PPL, WEIGHTS, KV, BYTES, TOKEN_MS, FRONT, WHY, N_COLUMNS };

static const study_column columns[] = {
    [MODEL] = { "model", STUDY_TEXT, .key = true, .json = "model" },
    [NAMES] = { "shortcuts", STUDY_TEXT, .key = true, .json = "shortcuts", .head = "shortcuts", .width = 48 },
    [TEXT] = { "text", STUDY_TEXT, .key = true },
    [WINDOWS] = { "windows", STUDY_INT, .key = true },
    [CTX] = { "ctx", STUDY_INT, .key = true },
    [LENGTH] = { "length", STUDY_INT, .key = true },
    [HEALED] = { "heal_steps", STUDY_INT, .key = true },
    [KL] = { "kl", STUDY_REAL, .format = "%.9g", .json = "kl", .head = "KL", .width = 10, .digits = 6 },
    [PPL] = { "ppl", STUDY_REAL, .format = "%.17g", .json = "ppl", .head = "perplexity", .width = 11, .digits = 3 },
    [WEIGHTS] = { "weight_bytes", STUDY_REAL, .format = "%.0f", .json = "weight_bytes", .head = "weights",
                  .width = 10, .digits = 2, .scale = 1e-6, .unit = " MB" },
    [KV] = { "kv_bytes", STUDY_REAL, .format = "%.0f", .json = "kv_bytes", .head = "K/V", .width = 9, .digits = 3,
             .scale = 1e-6, .unit = " MB" },
    [BYTES] = { "bytes", STUDY_REAL, .format = "%.0f", .json = "bytes" },
    [TOKEN_MS] = { "token_ms", STUDY_REAL, .format = "%.6g", .json = "token_ms", .head = "ms/token", .width = 9,
                   .digits = 3 },
    [FRONT] = { "front", STUDY_BOOL, .no_yes = { "no", "yes" }, .json = "front" },
    [WHY] = { "why_not", STUDY_TEXT, .json = "why_not", .head = "", .width = 1 },
};

static const rg_lines_page page = {
    .title = "Shortcuts",
    .note = "KL in nats an id, from the model as it is, 1e-6 and less drawn there.  Fronts: what none beats in both.",
    .n_charts = 2,
    .charts = { { "Memory", "bytes of weights and K/V", "KL" }, { "Time", "ms a token", "KL" } },
};

static int32_t n_windows = 4, length = 512, heal_steps;
static bool full;
static const char *work;

static const cli_option options[] = {
    { "--full", CLI_FLAG, &full, NULL, "all shortcuts, all pairs, and threes of some (default: a quick choice)" },
    { "--windows", CLI_INT, &n_windows, "N", "windows of the text (default 4)", 1, 1 << 20 },
    { "--length", CLI_INT, &length, "N",
      "positions for which K/V is told, and after which tokens are timed (default 512)", 1, 1 << 20 },
    { "--heal-steps", CLI_INT, &heal_steps, "N", "of training, after layers were left out (default 20; --full: 200)", 1,
      1 << 20 },
    { "--work", CLI_STRING, &work, "DIR", "keep the models that are made here (default: they are removed)" },
    { NULL },
};

/* ---- which sets -------------------------------------------------------------------------------------------------- */

static struct {
    char name[NAME];
    shortcut_set set;
    study_value *v;
} rows[MOST_SETS];
static int n_rows;

static bool add_set(const study_run *run, const study_model *m, const shortcut_set *s, rg_error *err)
{
    static char text[STUDY_TEXT_KEY];

    if (n_rows == MOST_SETS)
        return rg_fail(err, RG_E_LIMIT, "study shortcuts: more than %d sets", MOST_SETS);
    study_value *v = study_text_key(run, true, text, err) ? study_add_row(run, m, err) : NULL;
    if (!v)
        return false;
    shortcuts_name(s, rows[n_rows].name, NAME);
    rows[n_rows].set = *s;
    rows[n_rows].v = v;
    v[MODEL].text = m->given;
    v[NAMES].text = rows[n_rows++].name;
    v[TEXT].text = text;
    v[WINDOWS].number = n_windows;
    v[CTX].number = run->ctx;
    v[LENGTH].number = length;
    v[HEALED].number = heal_steps;
    v[FRONT].number = 0;
    return true;
}

/* Sets of one more shortcut than s has, from the i-th on, until there are `most`. */
static bool add_larger(const study_run *run, const study_model *m, const shortcut_set *s, size_t i, int most,
                       rg_error *err)
{
    for (const shortcut *one; (one = shortcuts_nth(i)); i++) {
        shortcut_set with = *s;
        int n = 1;
        bool goes = full || one->quick, joins = one->joins;

        for (int k = 0; k < SHORTCUT_KINDS; k++)
            if (s->of[k]) {
                n++;
                goes = goes && shortcuts_go(one, s->of[k]);
                joins = joins && s->of[k]->joins;
            }
        if (!goes || (n > 1 && !joins && (n > 2 || !full)))
            continue;
        with.of[one->kind] = one;
        if (!add_set(run, m, &with, err) || (n < most && !add_larger(run, m, &with, i + 1, most, err)))
            return false;
    }
    return true;
}

static bool settle(const study_run *run, rg_error *err)
{
    (void)run, (void)err;
    heal_steps = heal_steps ? heal_steps : full ? 200 : 20;
    return true;
}

static bool plan(const study_run *run, const study_model *m, rg_error *err)
{
    const shortcut_set none = { 0 };

    n_rows = 0;
    return add_set(run, m, &none, err) && add_larger(run, m, &none, 0, full ? 3 : SHORTCUT_KINDS, err);
}

/* ---- the model as it is ------------------------------------------------------------------------------------------ */

static struct {
    char path[1024], dir[SHORTCUT_PATH];
    bool made_dir;
    calibration text;
    size_t n_scored; /* ids of the text that are scored */
    int32_t *ids;    /* [length + STEPS] for timing */
    float *want;     /* [n_rows, vocab_size] logarithms of what the model as it is gives each id */
    uint64_t n_rows;
    int vocab_size;
    double *kl;      /* [n_rows] of the set that is scored */
} whole;

static void close_all(void)
{
    calibration_fini(&whole.text);
    rg_free(whole.ids);
    rg_free(whole.want);
    rg_free(whole.kl);
    if (whole.made_dir && !work)
        shortcuts_remove(whole.dir);
    memset(&whole, 0, sizeof whole);
}

/* Logarithms of the probabilities of a row, less the logits: what is subtracted from each. */
static double log_sum(const float *logits, int n)
{
    double most = -INFINITY, sum = 0;

    for (int i = 0; i < n; i++)
        most = (double)logits[i] > most ? (double)logits[i] : most;
    for (int i = 0; i < n; i++)
        sum += exp((double)logits[i] - most);
    return most + log(sum);
}

static void keep_row(void *arg, uint64_t i, const float *logits, int n)
{
    const double by = log_sum(logits, n);
    float *to = whole.want + i * (uint64_t)n;

    (void)arg;
    for (int k = 0; i < whole.n_rows && k < n; k++)
        to[k] = (float)((double)logits[k] - by);
}

/* sum of p log(p / q), from what was kept; the same bits give 0. */
static void compare_row(void *arg, uint64_t i, const float *logits, int n)
{
    const double by = log_sum(logits, n);
    const float *want = whole.want + i * (uint64_t)n;
    double sum = 0;

    (void)arg;
    for (int k = 0; i < whole.n_rows && k < n; k++) {
        const double p = (double)want[k], q = (double)(float)((double)logits[k] - by);
        sum += exp(p) * (p - q);
    }
    if (i < whole.n_rows)
        whole.kl[i] = sum;
}

/* ---- measuring --------------------------------------------------------------------------------------------------- */

/* A set's model, as it is opened. */
typedef struct subject {
    char path[SHORTCUT_PATH], thresholds[SHORTCUT_PATH];
    const shortcut_set *set;
} subject;

static const char *value_of(const subject *x, shortcut_kind kind)
{
    return x->set->of[kind] ? x->set->of[kind]->value : NULL;
}

static double threshold_of(const subject *x)
{
    return x->set->of[SHORTCUT_ATTENTION] ? x->set->of[SHORTCUT_ATTENTION]->number : 0;
}

static double state_bytes(const rg_state_spec *spec, int64_t n)
{
    double bytes = 0;

    for (int g = 0; g < spec->n_groups; g++)
        bytes += (double)rg_group_blocks(&spec->group[g], n) * (double)spec->group[g].block_bytes;
    return bytes;
}

static bool reserve_rows(const tool *t, int ctx, rg_error *err)
{
    const uint64_t n = (uint64_t)n_windows * (uint64_t)ctx, most = (uint64_t)1 << 31;
    const int vocab = t->runner->vocab_size;

    if (whole.want)
        return vocab == whole.vocab_size || rg_fail(err, RG_E_UNSUPPORTED, "it has another vocabulary");
    if (n * (uint64_t)vocab * sizeof(float) > most)
        return rg_fail(err, RG_E_LIMIT, "study shortcuts: the distributions of %llu rows take more than 2 GB: lower "
                       "--windows or --ctx", (unsigned long long)n);
    /* fits: it is no more than `most` */
    whole.want = rg_array((size_t)n, (size_t)vocab * sizeof *whole.want);
    whole.kl = rg_array((size_t)n, sizeof *whole.kl);
    whole.n_rows = n;
    whole.vocab_size = vocab;
    return (whole.want && whole.kl) || rg_fail_memory(err, (size_t)n * (size_t)vocab * sizeof *whole.want);
}

/* KL and perplexity; of the first model that is scored, what the others are compared with is kept. */
static bool score(const study_run *run, tool *t, study_value *v, rg_error *err)
{
    const bool first = !whole.want;
    perplexity s = { .tool = t, .text = whole.text.rest, .n_text = whole.n_scored, .file = whole.text.path,
                  .ctx = run->ctx, .quiet = true, .row = first ? keep_row : compare_row };
    double sum = 0;

    if (!t->tokenizer)
        return study_needs_tokenizer(whole.path, err);
    if (!reserve_rows(t, run->ctx, err) || !perplexity_run(&s, err))
        return false;
    for (uint64_t i = 0; i < whole.n_rows && !first; i++)
        sum += whole.kl[i];
    v[KL].number = sum / (double)whole.n_rows;
    v[PPL].number = exp(s.nll / (double)s.n_scored);
    return true;
}

static bool time_token(tool *t, study_value *v, rg_error *err)
{
    speed *timed = rg_zalloc(sizeof *timed);
    double step_s = 0;
    bool ok = timed ? speed_init(timed, t, err) && speed_after(timed, whole.ids, length, STEPS, &step_s, err)
                    : rg_fail_memory(err, sizeof *timed);

    if (timed)
        speed_fini(timed);
    rg_free(timed);
    v[TOKEN_MS].number = 1e3 * step_s;
    return ok;
}

static bool measure_tool(const study_run *run, const subject *x, study_value *v, rg_error *err)
{
    cli_common quiet = *run->common;
    tool t = { 0 };
    const int longest = length + STEPS > run->ctx ? length + STEPS : run->ctx;
    const tool_options o = { .common = &quiet, .model = x->path, .kv_type = value_of(x, SHORTCUT_KV),
                             .sparsity = x->thresholds[0] ? x->thresholds : NULL,
                             .attention_sparsity = (float)threshold_of(x), .self = value_of(x, SHORTCUT_SELF),
                             .max_rows = 512, .max_seqs = 1, .max_seq_len = longest, .all_logits = true };

    quiet.quiet = true;
    bool ok = tool_open(&t, &o, err) && tool_reaches(&t, (size_t)longest, err) && score(run, &t, v, err) &&
              time_token(&t, v, err);
    if (ok) {
        v[WEIGHTS].number = (double)(t.whole ? t.whole : t.model)->weights.bytes;
        v[KV].number = state_bytes(&t.model->state, length);
        v[BYTES].number = v[WEIGHTS].number + v[KV].number;
    }
    tool_close(&t);
    return ok;
}

/* ---- drafts ------------------------------------------------------------------------------------------------------ */

static rg_engine *open_engine(const study_run *run, const subject *x, const char *draft, rg_error *err)
{
    rg_options o = rg_options_default();

    o.n_threads = run->common->threads;
    o.isa = run->common->isa;
    o.recipe = run->common->recipe;
    o.kv_type = value_of(x, SHORTCUT_KV);
    o.sparsity = x->thresholds[0] ? x->thresholds : NULL;
    o.attention_sparsity = threshold_of(x);
    o.max_seq_len = length + DRAFTED;
    o.max_seqs = 1;
    o.kv_bytes = (size_t)256 << 20;
    o.no_prefix_cache = true;
    o.draft = draft;
    return rg_open(x->path, &o, err);
}

/* The likeliest ids after the text, and the seconds of one. */
static bool answer(rg_engine *e, int32_t ids[DRAFTED], double *seconds, rg_error *err)
{
    rg_params p = { .prompt = whole.ids, .n_prompt = length, .max_tokens = DRAFTED, .n_samples = 1,
                    .sampling = rg_sampling_default() };
    rg_token t;
    int n = 0;

    p.sampling.temperature = 0;
    p.sampling.ignore_eos = true;
    rg_request *r = rg_submit(e, &p, err);
    while (r && rg_next(r, &t)) {
        if (cli_interrupted())
            rg_cancel(r);
        if (t.id >= 0 && n < DRAFTED)
            ids[n++] = t.id;
    }
    const rg_usage u = r ? rg_request_usage(r) : (rg_usage){ 0 };
    *seconds = u.n_paced ? u.paced_s / u.n_paced : 0;
    const bool ok = r && (n == DRAFTED || rg_fail(err, RG_E_INPUT, "study shortcuts: an answer ended early"));
    rg_request_close(r);
    return ok;
}

/* The quickest of some. */
static bool best_answer(const study_run *run, const subject *x, const char *draft, int32_t ids[DRAFTED],
                        double *seconds, rg_error *err)
{
    rg_engine *e = open_engine(run, x, draft, err);
    bool ok = e;

    *seconds = INFINITY;
    for (int i = 0; ok && i < ANSWERS; i++) {
        double one;

        ok = answer(e, ids, &one, err);
        *seconds = ok ? fmin(*seconds, one) : *seconds;
    }
    rg_close(e);
    return ok;
}

/* Drafts change the time alone: by how much less an answer of the engine takes.  Its ids are checked. */
static bool measure_draft(const study_run *run, const subject *x, study_value *v, rg_error *err)
{
    int32_t plain[DRAFTED], drafted[DRAFTED];
    double plain_s, drafted_s;

    if (!best_answer(run, x, NULL, plain, &plain_s, err) ||
        !best_answer(run, x, value_of(x, SHORTCUT_DRAFT), drafted, &drafted_s, err))
        return false;
    if (memcmp(plain, drafted, sizeof plain) != 0)
        return rg_fail(err, RG_E_INPUT, "study shortcuts: draft %s changed an answer", value_of(x, SHORTCUT_DRAFT));
    v[TOKEN_MS].number *= plain_s > 0 ? drafted_s / plain_s : 1;
    return true;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static bool make_dir(rg_error *err)
{
    if (work) {
        snprintf(whole.dir, sizeof whole.dir, "%s", work);
        return rg_dir_make(work, err);
    }
    snprintf(whole.dir, sizeof whole.dir, "%s/ridge-shortcuts-XXXXXX", P_tmpdir);
    whole.made_dir = mkdtemp(whole.dir) != NULL;
    return whole.made_dir || rg_fail(err, RG_E_IO, "%s: no folder can be made here: give --work DIR", P_tmpdir);
}

/* What all rows have: the text, a folder, and, scored first, the model as it is. */
static bool open_whole(const study_run *run, const study_model *m, rg_error *err)
{
    const size_t wanted = (size_t)n_windows * (size_t)run->ctx;
    const subject as_it_is = { .set = &rows[0].set };
    study_value v[N_COLUMNS];
    subject x = as_it_is;

    if (whole.want)
        return true;
    whole.text = (calibration){ .ctx = run->ctx < 256 ? run->ctx : 256, .score = run->text, .n_samples = SAMPLES };
    if (!cli_find_model(m->given, whole.path, sizeof whole.path, err) ||
        !study_read_ids(whole.path, &whole.text, err) ||
        !(whole.text.rest || study_needs_tokenizer(m->given, err)) || !make_dir(err))
        return false;
    whole.n_scored = wanted;
    if (whole.text.n_rest < wanted)
        return rg_fail(err, RG_E_INPUT, "study shortcuts: %s has %zu ids, fewer than %d windows of %d: give "
                       "a longer --text, or lower --windows or --ctx", whole.text.path, whole.text.n_rest,
                       (int)n_windows, (int)run->ctx);
    /* fits: --length is 2^20 at most */
    whole.ids = rg_array((size_t)(length + STEPS), sizeof *whole.ids);
    if (!whole.ids)
        return rg_fail_memory(err, (size_t)(length + STEPS) * sizeof *whole.ids);
    for (size_t i = 0; i < (size_t)(length + STEPS); i++)
        whole.ids[i] = whole.text.rest[i % whole.text.n_rest];
    snprintf(x.path, sizeof x.path, "%s", whole.path);
    return measure_tool(run, &x, v, err);
}

static bool is_measured(const study_value *v)
{
    return !isnan(v[TOKEN_MS].number);
}

/* True if a is nowhere worse than b, and somewhere better. */
static bool beats(const study_value *a, const study_value *b, const int *of, int n)
{
    bool better = false;

    for (int i = 0; i < n; i++) {
        if (a[of[i]].number > b[of[i]].number)
            return false;
        better = better || a[of[i]].number < b[of[i]].number;
    }
    return better;
}

static bool is_on_front(const study_value *v, const int *of, int n)
{
    for (int i = 0; i < n_rows; i++)
        if (is_measured(rows[i].v) && beats(rows[i].v, v, of, n))
            return false;
    return is_measured(v);
}

/* The sum over all rows so far. */
static void find_front(void)
{
    static const int of[] = { KL, BYTES, TOKEN_MS };

    for (int i = 0; i < n_rows; i++)
        rows[i].v[FRONT].number = is_on_front(rows[i].v, of, RG_LEN(of));
}

/* What cannot be made of this model has no numbers, and says why. */
static bool pass_over(study_value *v, rg_error *err)
{
    static char why[MOST_SETS][sizeof err->text];
    static int n;

    if (err->code != RG_E_UNSUPPORTED && err->code != RG_E_USAGE)
        return false;
    for (int c = KL; c <= TOKEN_MS; c++)
        v[c].number = NAN;
    snprintf(why[n % MOST_SETS], sizeof why[0], "%s", err->text);
    v[WHY].text = why[n++ % MOST_SETS];
    *err = (rg_error){ 0 };
    return true;
}

static bool measure(const study_run *run, const study_model *m, study_value *v, rg_error *err)
{
    const cli_args args = { .command = &study_shortcuts.command, .common = { .threads = run->common->threads,
                            .isa = run->common->isa, .recipe = run->common->recipe, .quiet = true } };
    static char heal_text[1024];
    subject x = { 0 };

    if (!open_whole(run, m, err))
        return false;
    snprintf(heal_text, sizeof heal_text, "%s/calibration.txt", cli_models_dir);
    const shortcut_shop shop = { .args = &args, .dir = whole.dir, .path = whole.path, .ids = whole.text.ids,
                                 .n_samples = whole.text.n_samples, .ctx = whole.text.ctx, .heal_text = heal_text,
                                 .heal_steps = heal_steps };
    for (int i = 0; i < n_rows; i++)
        if (!strcmp(rows[i].name, v[NAMES].text))
            x.set = &rows[i].set;
    const bool ok = shortcuts_make(&shop, x.set, x.path, x.thresholds, err) && measure_tool(run, &x, v, err) &&
                    (!value_of(&x, SHORTCUT_DRAFT) || measure_draft(run, &x, v, err));
    if (!ok && (cli_interrupted() || !pass_over(v, err)))
        return false;
    find_front();
    return true;
}

/* ---- what is told ------------------------------------------------------------------------------------------------ */

/* Each shortcut alone is a point with its name; of combinations only those on the front have one. */
static void draw(study_picture *p, const study_model *m, const study_value *v)
{
    static const int charts[][2] = { { BYTES, KL }, { TOKEN_MS, KL } };

    (void)m;
    for (int c = 0; is_measured(v) && c < 2; c++) {
        const rg_lines_point at = { v[charts[c][0]].number, v[KL].number > 1e-6 ? v[KL].number : 1e-6, true };

        if (!strstr(v[NAMES].text, " + "))
            study_point(p, c, v[NAMES].text, NULL, at);
        if (is_on_front(v, charts[c], 2))
            study_point(p, c, "the front", NULL, at);
    }
}

static void conclude(const study_run *run, cli_json *out)
{
    (void)run;
    find_front();
    if (out)
        cli_json_open(out, "front", '[');
    else
        printf("\nNo other has less of KL, bytes and time together:\n");
    for (int i = 0; i < n_rows; i++) {
        const study_value *v = rows[i].v;

        if (v[FRONT].number == 0)
            continue;
        if (out)
            cli_json_text(out, NULL, v[NAMES].text);
        else
            printf("  %-48s KL %.6f, %.2f MB, %.3f ms\n", v[NAMES].text, v[KL].number, v[BYTES].number / 1e6,
                   v[TOKEN_MS].number);
    }
    if (out)
        cli_json_close(out);
}

const study study_shortcuts = {
    .command = { .name = "study shortcuts", .arguments = "MODEL", .n_positional = 1,
                 .summary = "KL, bytes and time of every shortcut, alone and together",
                 .notes = "What cannot be done to a model has a row without numbers that says why.  Drafts change no "
                          "answer, which is\nchecked.  Inputs: a share of the activations counts as zero "
                          "(TEAL), which fewer bits of weights do not go with." },
    .text = "the text to score (default: the end of the calibration text)",
    STUDY_PARTS,
    .settle = settle,
    .conclude = conclude,
    .close = close_all,
};
