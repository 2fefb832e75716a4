/* family.c -- `ridge study family`: one family of models trained alike, and what the lecture says of them.
 *
 * Two series: all architectures with equal parameters on equal tokens of text, and small ones on associative recall, of
 * several widths and states.  Each model has a folder in DIR, from which the same command goes on. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "cli/study/family.h"
#include "cli/study/study.h"

extern const study study_family;

enum {
    MODEL, SERIES, WIDTH, KNOB, LAYERS, PARAMETERS, TOKENS, BITS, RECALL, POSITION_BYTES, SEQUENCE_BYTES, TOKEN_MS,
    RATE, TOKENS_S, N_COLUMNS
};
enum { TEXT, ASKED, N_SERIES };
static const char *const series_names[N_SERIES] = { "text", "recall" };

static const study_column columns[] = {
    [MODEL] = { "model", STUDY_TEXT, .key = true, .json = "model", .head = "model", .width = 17 },
    [SERIES] = { "series", STUDY_TEXT, .key = true, .json = "series", .head = "series", .width = 6 },
    [WIDTH] = { "width", STUDY_INT, .key = true, .json = "width", .head = "width", .width = 5 },
    [KNOB] = { "state", STUDY_INT, .key = true, .json = "state", .head = "state", .width = 5 },
    [LAYERS] = { "layers", STUDY_REAL, .format = "%.0f", .json = "layers", .head = "layers", .width = 6 },
    [PARAMETERS] = { "parameters", STUDY_REAL, .format = "%.0f", .json = "parameters", .head = "weights", .width = 8 },
    [TOKENS] = { "tokens", STUDY_REAL, .format = "%.0f", .json = "tokens", .head = "tokens", .width = 9 },
    [BITS] = { "bits_per_byte", STUDY_REAL, .format = "%.17g", .json = "bits_per_byte", .head = "bits/byte",
               .width = 9, .digits = 4 },
    [RECALL] = { "recall", STUDY_REAL, .format = "%.17g", .json = "recall", .head = "recall", .width = 6, .digits = 3 },
    [POSITION_BYTES] = { "state_bytes_per_position", STUDY_REAL, .format = "%.0f", .json = "state_bytes_per_position",
                         .head = "B/pos.", .width = 7 },
    [SEQUENCE_BYTES] = { "state_bytes_per_sequence", STUDY_REAL, .format = "%.0f", .json = "state_bytes_per_sequence",
                         .head = "B/seq.", .width = 9 },
    [TOKEN_MS] = { "token_ms", STUDY_REAL, .format = "%.6g", .json = "token_ms", .head = "ms/token", .width = 8,
                   .digits = 3 },
    [RATE] = { "learning_rate", STUDY_REAL, .format = "%.6g", .json = "learning_rate", .head = "rate", .width = 6,
               .digits = 4 },
    [TOKENS_S] = { "train_tokens_s", STUDY_REAL, .format = "%.6g", .json = "train_tokens_s", .head = "tokens/s",
                   .width = 8, .digits = 0 },
};

static const rg_lines_page page = {
    .title = "One family, trained alike",
    .note = "State: of a sequence of 1,024 positions, as f32.  Diffusion's bits are an upper bound.",
    .n_charts = 4,
    .charts = { { "Text", "bytes of state", "bits per byte" },
                { "Text", "ms per token", "bits per byte" },
                { "Associative recall", "bytes of state", "share that is right" },
                { "Associative recall", "ms per token", "share that is right" } },
};
enum { POSITIONS = 1024 };

static struct {
    const char *folder, *tokenizer, *held, *members, *series;
    cli_strings data;
    int32_t recall_steps, save;
    uint64_t tokens, parameters, seed;
    float rate;
} o = { .recall_steps = 4000, .save = 100, .tokens = 2000000, .parameters = 900000, .rate = 0.003f };

static const cli_option options[] = {
    { "-o", CLI_STRING, &o.folder, "DIR", "a folder for each model; the same command goes on from there" },
    { "--members", CLI_STRING, &o.members, "A,B", "these alone (default: all)" },
    { "--series", CLI_STRING, &o.series, "NAME", "text or recall (default: both)" },
    { "--tokens", CLI_U64, &o.tokens, "N", "text: that each is trained on (default 2000000); more go on from fewer" },
    { "--parameters", CLI_U64, &o.parameters, "N", "text: of each, within 2 % (default 900000)" },
    { "--recall-steps", CLI_INT, &o.recall_steps, "N", "recall: steps of 32 examples at most (default 4000)", 1, 1e9 },
    { "--data", CLI_STRINGS, &o.data, "FILE", "text: to learn from, as for train (default: the shipped text)" },
    { "--held", CLI_STRING, &o.held, "FILE", "text: to be judged by; goes with --data" },
    { "--tokenizer", CLI_STRING, &o.tokenizer, "PATH", "tokenizer.json or a folder (default: that of tales-1m)" },
    { "--lr", CLI_FLOAT, &o.rate, "RATE", "text: the learning rate of all (default 0.003)", 1e-9, 100 },
    { "--seed", CLI_U64, &o.seed, "N", "of weights, order and masks (default 0)" },
    { "--save", CLI_INT, &o.save, "N", "steps from one checkpoint to the next (default 100)", 1, 1e9 },
    { NULL },
};

static family_study all;
static char tokenizer_path[1024], own[2][1100]; /* the shipped text, cut in two */
static const char *own_data;

/* ---- options ----------------------------------------------------------------------------------------------------- */

/* The shipped text: seven eighths are learnt from, the last is judged by. */
static bool cut_shipped(rg_error *err)
{
    char path[1100];
    size_t n;
    bool ok = true;

    if (!cli_models_dir)
        return rg_fail(err, RG_E_USAGE, "study family: the shipped text is not there: give --data and --held");
    snprintf(path, sizeof path, "%s/calibration.txt", cli_models_dir);
    char *text = rg_file_slurp(path, (size_t)1 << 28, &n, err);
    if (!text)
        return false;
    size_t at = n / 8 * 7;
    while (at < n && text[at] != '\n')
        at++;
    for (int i = 0; ok && i < 2; i++) {
        rg_buf b;

        ok = snprintf(own[i], sizeof own[i], "%s/%s.txt", o.folder, i ? "held" : "learnt") < (int)sizeof own[i] ||
             rg_fail(err, RG_E_INPUT, "%s: the path is too long", o.folder);
        rg_buf_init(&b, n + 1);
        rg_buf_add(&b, i ? text + at : text, i ? n - at : at);
        ok = ok && cli_write_file(own[i], &b, err);
    }
    rg_free(text);
    own_data = own[0];
    return ok;
}

/* True if a name is in the list, or the list is not given. */
static bool is_asked_for(const char *name)
{
    const size_t n = strlen(name);

    for (const char *at = o.members; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (!strncmp(at, name, n) && (!at[n] || at[n] == ','))
            return true;
    return !o.members;
}

static bool check_members(rg_error *err)
{
    for (const char *at = o.members; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        const size_t n = strcspn(at, ",");
        bool known = false;

        for (int i = 0; i < family_n_members; i++)
            known = known || (strlen(family_members[i].name) == n && !strncmp(at, family_members[i].name, n));
        if (!known)
            return rg_fail(err, RG_E_USAGE, "study family: '%.*s' is no member; see `ridge study family --help`",
                           (int)(n < 40 ? n : 40), at);
    }
    return true;
}

static bool check_text(rg_error *err)
{
    if (!o.data.n != !o.held)
        return rg_fail(err, RG_E_USAGE, "study family: --data and --held go together: what is learnt from, and what is "
                                        "judged by");
    return o.data.n || cut_shipped(err);
}

static void settle_jobs(const study_run *run)
{
    rg_train_settings s = rg_train_settings_default();
    family_job *text = &all.job[TEXT], *asked = &all.job[ASKED];

    s.seed = o.seed;
    *text = (family_job){ .common = run->common, .folder = o.folder, .tokenizer = tokenizer_path, .save = o.save,
                          .data = o.data.n ? o.data.item : &own_data, .n_data = o.data.n ? o.data.n : 1,
                          .held = o.data.n ? o.held : own[1], .parameters = (double)o.parameters, .settings = s,
                          .note = "" };
    text->settings.schedule = RG_RATE_WSD;
    text->settings.peak = round((double)o.rate * 1e9) / 1e9;
    text->settings.steps = (int32_t)fmax(1, round((double)o.tokens / (s.rows * s.length)));
    text->settings.warmup = 50;
    *asked = *text;
    asked->held = NULL;
    asked->n_data = 0;
    asked->settings.rows = 32;
    asked->settings.steps = o.recall_steps;
    asked->settings.warmup = 100;
    asked->parameters = 0;
}

static bool settle(const study_run *run, rg_error *err)
{
    if (!o.folder)
        return rg_fail(err, RG_E_USAGE, "study family: -o DIR is needed: where the models are trained");
    all.series[TEXT] = !o.series || !strcmp(o.series, series_names[TEXT]);
    all.series[ASKED] = !o.series || !strcmp(o.series, series_names[ASKED]);
    if (!all.series[TEXT] && !all.series[ASKED])
        return rg_fail(err, RG_E_USAGE, "study family: --series '%.20s' is not one of text, recall", o.series);
    if (o.tokens > (uint64_t)1 << 40 || o.parameters > (uint64_t)1 << 32)
        return rg_fail(err, RG_E_USAGE, "study family: --tokens or --parameters is too large");
    if (!check_members(err) || !rg_dir_make(o.folder, err) || (all.series[TEXT] && !check_text(err)))
        return false;
    if (o.tokenizer)
        snprintf(tokenizer_path, sizeof tokenizer_path, "%s", o.tokenizer);
    else if (all.series[TEXT] && !cli_find_model("tales-1m", tokenizer_path, sizeof tokenizer_path, err))
        return false;
    settle_jobs(run);
    return true;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static bool list(const study_run *run, rg_error *err)
{
    bool ok = true;

    for (int i = 0; ok && i < family_n_members; i++)
        ok = !is_asked_for(family_members[i].name) || study_add_model(run, family_members[i].name, err);
    return ok;
}

static bool add_row(const study_run *run, const study_model *m, int series, int width, int knob, rg_error *err)
{
    study_value *v = study_add_row(run, m, err);

    if (!v)
        return false;
    v[MODEL].text = m->name;
    v[SERIES].text = series_names[series];
    v[WIDTH].number = width;
    v[KNOB].number = knob;
    return true;
}

static bool plan(const study_run *run, const study_model *m, rg_error *err)
{
    const family_member *member = family_find(m->name);
    bool ok = true;

    if (all.series[TEXT] && member->solve) {
        const family_sizes s = family_text_sizes(member, 0);

        ok = add_row(run, m, TEXT, s.dim, 0, err);
    }
    for (int i = 0; ok && all.series[ASKED] && i < family_n_recall; i++)
        ok = strcmp(family_recall[i].member, m->name) != 0 ||
             add_row(run, m, ASKED, family_recall[i].dim, family_recall[i].knob, err);
    return ok;
}

static const family_asked *asked_of(const study_model *m, const study_value *v)
{
    for (int i = 0; i < family_n_recall; i++)
        if (!strcmp(family_recall[i].member, m->name) && family_recall[i].dim == v[WIDTH].number &&
            family_recall[i].knob == v[KNOB].number)
            return &family_recall[i];
    return NULL;
}

static bool is_text(const study_value *v)
{
    return !strcmp(v[SERIES].text, series_names[TEXT]);
}

static bool measure(const study_run *run, const study_model *m, study_value *v, rg_error *err)
{
    family_result r = { 0 };

    (void)run;
    if (is_text(v) ? !family_train_text(&all.job[TEXT], family_find(m->name), &r, err)
                   : !family_train_recall(&all.job[ASKED], asked_of(m, v), &r, err))
        return false;
    v[LAYERS].number = r.layers;
    v[PARAMETERS].number = r.parameters;
    v[TOKENS].number = (double)r.tokens;
    v[BITS].number = r.bits_per_byte;
    v[RECALL].number = r.accuracy;
    v[POSITION_BYTES].number = r.position_bytes;
    v[SEQUENCE_BYTES].number = r.sequence_bytes;
    v[TOKEN_MS].number = r.token_ms;
    v[RATE].number = r.rate;
    v[TOKENS_S].number = r.tokens_s;
    return true;
}

static void draw(study_picture *p, const study_model *m, const study_value *v)
{
    const double state = v[POSITION_BYTES].number * POSITIONS + v[SEQUENCE_BYTES].number;
    const int first = is_text(v) ? 0 : 2;
    const double y = v[first ? RECALL : BITS].number;

    study_point(p, first, m->name, NULL, (rg_lines_point){ state, y, true });
    study_point(p, first + 1, m->name, NULL, (rg_lines_point){ v[TOKEN_MS].number, y, true });
}

/* ---- the lecture ------------------------------------------------------------------------------------------------- */

static void print_claim(void *arg, const char *sentence, const char *verdict, const char *found)
{
    (void)arg;
    printf("\n%s\n  %s: %s\n", sentence, verdict, found);
}

static void write_claim(void *arg, const char *sentence, const char *verdict, const char *found)
{
    cli_json_open(arg, NULL, '{');
    cli_json_text(arg, "sentence", sentence);
    cli_json_text(arg, "verdict", verdict);
    cli_json_text(arg, "found", found);
    cli_json_close(arg);
}

static void conclude(const study_run *run, cli_json *out)
{
    (void)run;
    if (!out) {
        family_claims(&all, print_claim, NULL);
        return;
    }
    cli_json_open(out, "claims", '[');
    family_claims(&all, write_claim, out);
    cli_json_close(out);
}

const study study_family = {
    .command = { .name = "study family", .arguments = "-o DIR", .recipe = "exact",
                 .summary = "train one family alike, and hold the lecture against it",
                 .notes = family_notes },
    STUDY_PARTS,
    .settle = settle,
    .list = list,
    .conclude = conclude,
};
