/* family_train.c -- see family.h: one member trained, judged and timed. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/quantile.h"
#include "ckpt/json.h"
#include "cli/study/family.h"
#include "cli/speed.h"
#include "cli/training.h"
#include "cli/study/mqar.h"
#include "plan/plan.h"
#include "train/init.h"
#include "train/masked.h"

enum {
    DRAWS = 4,       /* of masks, for each piece of held-out text */
    CONTEXT = 256,   /* of the step that is timed, */
    STEPS = 64,      /*   and how many */
    ASK_EVERY = 250, /* steps of training */
    ASK_EXAMPLES = 256,
    TRAIN_SEED = 1, /* of texts to learn recall from, */
    ASK_SEED = 99,  /*   and to be asked about */
    RESULT_CAP = 1 << 16,
    RECALL_VOCAB = 64, /* of its texts */
    RECALL_LENGTH = 48,
    FOLDER = 1024,
    FILE_NAME = FOLDER + 64,
};
static const double GOOD = 0.99; /* recall that needs no more training */

/* What is asked of recall: as in its published studies, small. */
static const rg_mqar recall_text = { .vocab_size = RECALL_VOCAB, .length = RECALL_LENGTH, .pairs = 8, .fill = true };
static const double recall_rates[] = { 0.003, 0.001, 0.01 };

/* One model that is being trained. */
typedef struct learning {
    const family_job *job;
    char folder[FOLDER], name[128];
    rg_train_settings s;
    const rg_backend *backend;
    int n_threads;
    rg_pool *pool;
    rg_tokenizer *tokens;
    rg_checkpoint *ckpt;
    rg_masters *masters;
    rg_masked *masked;
    rg_objective objective;
    rg_feed *feed;
    rg_training *run;
    double seconds, n_tokens; /* of the steps that were made now */
} learning;

bool family_folder(const family_job *j, const char *name, char *out, size_t room, rg_error *err)
{
    return snprintf(out, room, "%s/%s", j->folder, name) < (int)room ||
           rg_fail(err, RG_E_INPUT, "%s: the path is too long", j->folder);
}

static void file_of(const learning *l, const char *name, char out[FILE_NAME])
{
    snprintf(out, FILE_NAME, "%s/%s", l->folder, name);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static bool open_machine(learning *l, rg_error *err)
{
    const cli_common *c = l->job->common;

    l->n_threads = c->threads ? c->threads : rg_cores();
    l->backend = rg_backend_find(c->isa, err);
    l->pool = l->backend ? rg_pool_new(l->n_threads, err) : NULL;
    return l->pool;
}

/* The model of a config that lies in the folder, with new weights. */
static bool open_model(learning *l, const family_member *m, const family_sizes *s, const int32_t ends[2], rg_error *err)
{
    char path[FILE_NAME];
    rg_buf b;

    file_of(l, "config.json", path);
    rg_buf_init(&b, 1 << 16);
    family_config(m, s, ends, &b);
    if (!cli_write_file(path, &b, err))
        return false;
    l->ckpt = rg_checkpoint_open(path, RG_CKPT_NO_WEIGHTS, err);
    l->masters = l->ckpt ? rg_masters_open(l->ckpt, l->backend, err) : NULL;
    return l->masters && rg_masters_init(l->masters, l->s.init_std, l->s.seed, err);
}

static bool open_run(learning *l, const rg_feed_options *feed, rg_error *err)
{
    const rg_config *c = &rg_masters_model(l->masters)->config;

    l->objective = rg_next_ids;
    if (c->diffusion.mask_id >= 0) {
        l->masked = rg_masked_new(c, l->s.seed, DRAWS, err);
        if (!l->masked)
            return false;
        l->objective = rg_masked_objective(l->masked);
    }
    l->feed = rg_feed_open(feed, &l->s, err);
    l->run = l->feed ? rg_training_new(&(rg_training_options){ .masters = l->masters,
                                                               .feed = l->feed,
                                                               .objective = &l->objective,
                                                               .settings = &l->s,
                                                               .backend = l->backend,
                                                               .pool = l->pool,
                                                               .n_threads = l->n_threads },
                                       err)
                     : NULL;
    return l->run;
}

static void close_all(learning *l)
{
    rg_training_free(l->run);
    rg_feed_close(l->feed);
    rg_masked_free(l->masked);
    rg_masters_close(l->masters);
    rg_checkpoint_close(l->ckpt);
    rg_tokenizer_close(l->tokens);
    rg_pool_free(l->pool);
}

/* ---- training ---------------------------------------------------------------------------------------------------- */

/* Go on from the last checkpoint; where that is of a shorter run whose rate has fallen, from the one before it fell. */
static bool resume(learning *l, rg_error *err)
{
    char path[FILE_NAME];
    rg_error why = { 0 };
    int got;

    file_of(l, "checkpoint.safetensors", path);
    got = rg_training_resume(l->run, path, &why);
    if (got >= 0)
        return true;
    file_of(l, "stable.safetensors", path);
    got = rg_training_resume(l->run, path, err);
    if (!got)
        *err = why;
    return got > 0;
}

static bool save(const learning *l, const char *name, rg_error *err)
{
    char path[FILE_NAME];

    file_of(l, name, path);
    return rg_training_save(l->run, path, err);
}

static void tell(const learning *l, const rg_training_step *s)
{
    char text[256];

    snprintf(text, sizeof text, "%s%s: step %lld of %d, loss %.4f, %.0f tokens/s", l->job->note, l->name,
             (long long)s->step, l->s.steps, s->loss, (double)s->n_tokens / s->seconds);
    cli_progress(l->job->common->quiet ? (void *)(uintptr_t)l : NULL, text, (double)s->step / l->s.steps);
}

/* Steps up to `last`. */
static bool train_to(learning *l, int64_t last, rg_error *err)
{
    const int64_t stable = l->s.schedule == RG_RATE_WSD ? rg_train_decay_from(&l->s) : -1;
    rg_training_step s;
    bool ok = true;

    while (ok && rg_training_done(l->run) < last) {
        if (cli_interrupted())
            return save(l, "checkpoint.safetensors", err) &&
                   rg_fail(err, RG_E_IO, "study: interrupted; the same command goes on from there");
        ok = rg_training_next(l->run, &s, err);
        if (!ok)
            break;
        l->seconds += s.seconds;
        l->n_tokens += (double)s.n_tokens;
        tell(l, &s);
        if (s.step == stable)
            ok = save(l, "stable.safetensors", err);
        if (ok && (s.step % l->job->save == 0 || s.step == last))
            ok = save(l, "checkpoint.safetensors", err);
    }
    return ok;
}

/* ---- judging ----------------------------------------------------------------------------------------------------- */

/* Bytes of the text that a batch's targets are. */
static bool bytes_of(const learning *l, const rg_texts *t, double *bytes, rg_error *err)
{
    const int64_t n = (int64_t)t->rows * t->length;
    int32_t *ids = rg_array((size_t)n, sizeof *ids);
    size_t n_ids = 0, n_text = 0;

    if (!ids)
        return rg_fail_memory(err, (size_t)n * sizeof *ids);
    for (int64_t i = 0; i < n; i++)
        if (t->targets[i] != RG_NO_TARGET)
            ids[n_ids++] = t->targets[i];
    char *text = rg_tokenizer_decode(l->tokens, ids, n_ids, true, &n_text, err);
    rg_free(ids);
    rg_free(text);
    *bytes = (double)n_text;
    return text;
}

/* Bits per byte of the held-out text, in pieces of a batch: all of it, or as many as there is room for. */
static bool judge_text(learning *l, family_result *r, rg_error *err)
{
    rg_train_settings s = l->s;
    const rg_feed_options o = { .files = &l->job->held,
                                .n_files = 1,
                                .tokenizer = l->tokens,
                                .vocab_size = rg_masters_model(l->masters)->config.vocab_size };
    rg_feed *held;
    double nats = 0, bytes = 0;
    bool ok;

    s.micro = 1;
    held = rg_feed_open(&o, &s, err);
    ok = held;
    for (r->n_pieces = 0; ok && r->n_pieces < FAMILY_MOST_PIECES;) {
        const rg_texts *t;
        double loss = 0, of = 0;

        ok = rg_feed_next(held, &t, err);
        if (!ok || (r->n_pieces && rg_feed_place_of(held).epoch))
            break;
        ok = rg_training_loss(l->run, &l->objective, t, &loss, err) && bytes_of(l, t, &of, err);
        if (!ok)
            break;
        loss *= (double)rg_texts_count(t);
        nats += loss;
        bytes += of;
        r->piece[r->n_pieces++] = loss / log(2) / of;
    }
    rg_feed_close(held);
    r->bits_per_byte = nats / log(2) / bytes;
    return ok;
}

/* ---- what it costs ----------------------------------------------------------------------------------------------- */

static void count_costs(const learning *l, family_result *r)
{
    const rg_model *m = rg_masters_model(l->masters);

    r->layers = m->config.n_layers;
    r->parameters = 0;
    for (int i = 0; i < rg_masters_count(l->masters); i++)
        r->parameters += (double)rg_masters_at(l->masters, i)->n;
    r->position_bytes = (double)rg_state_bytes_per_position(&m->state);
    r->sequence_bytes = (double)rg_state_bytes_per_sequence(&m->state);
    r->tokens = rg_training_done(l->run) * l->s.micro * l->s.rows * l->s.length;
    r->tokens_s = l->seconds > 0 ? l->n_tokens / l->seconds : NAN;
}

/* The usual evaluation of a diffusion model: of a whole text, or of a block after the context. */
static bool time_evaluation(speed *s, int sees, double *seconds, rg_error *err)
{
    enum { ROUNDS = 33 };
    double took[ROUNDS];
    bool ok = true;

    for (int i = 0; ok && i < ROUNDS; i++)
        ok = sees == RG_SEES_ALL ? speed_prefill(s, CONTEXT, 0, &took[i], err)
                                 : speed_prefill(s, sees, CONTEXT, &took[i], err);
    if (ok)
        *seconds = rg_quantile(took, ROUNDS, 0.5);
    return ok;
}

/* Milliseconds of a token after a context, by one thread: such models are small, and others may use the machine.  Of a
 * diffusion model those of an evaluation, which gives one token or more. */
static bool time_token(const learning *l, family_result *r, rg_error *err)
{
    const int sees = rg_masters_model(l->masters)->config.sees;
    cli_common common = *l->job->common;
    const tool_options o = { .common = &common,
                             .model = l->folder,
                             .max_rows = SPEED_ROWS,
                             .max_seqs = 1,
                             .max_seq_len = CONTEXT + STEPS + 2,
                             .whole = sees != RG_CAUSAL };
    tool t = { 0 };
    speed s = { 0 };
    double all, step_s = NAN;
    bool ok;

    common.threads = 1;
    ok = tool_open(&t, &o, err) && speed_init(&s, &t, err);

    if (ok)
        ok = sees == RG_CAUSAL ? speed_decode(&s, 1, CONTEXT, STEPS, &all, &step_s, err)
                               : time_evaluation(&s, sees, &step_s, err);
    speed_fini(&s);
    tool_close(&t);
    r->token_ms = 1e3 * step_s;
    return ok;
}

/* ---- the file of results ----------------------------------------------------------------------------------------- */

static void describe(const family_job *j, rg_buf *to)
{
    rg_train_settings_write(&j->settings, to);
    rg_buf_printf(to, " %.0f parameters; %s", j->parameters, j->held ? j->held : "recall");
    for (int i = 0; i < j->n_data; i++)
        rg_buf_printf(to, ", %s", j->data[i]);
}

static bool write_result(const learning *l, const family_result *r, rg_error *err)
{
    char path[FILE_NAME];
    cli_json *out = cli_json_new();
    rg_buf how;

    rg_buf_init(&how, RESULT_CAP);
    describe(l->job, &how);
    file_of(l, "result.json", path);
    cli_json_open(out, NULL, '{');
    cli_json_text(out, "how", how.data);
    cli_json_int(out, "tokens", r->tokens);
    cli_json_int(out, "layers", r->layers);
    cli_json_float(out, "parameters", r->parameters);
    cli_json_float(out, "position_bytes", r->position_bytes);
    cli_json_float(out, "sequence_bytes", r->sequence_bytes);
    cli_json_float(out, "bits_per_byte", r->bits_per_byte);
    cli_json_float(out, "accuracy", r->accuracy);
    cli_json_float(out, "rate", r->rate);
    cli_json_float(out, "token_ms", r->token_ms);
    cli_json_float(out, "tokens_s", r->tokens_s);
    cli_json_open(out, "pieces", '[');
    for (int i = 0; i < r->n_pieces; i++)
        cli_json_float(out, NULL, r->piece[i]);
    cli_json_close(out);
    cli_json_close(out);
    rg_buf_fini(&how);
    return cli_json_write(out, path, err);
}

static double real_of(const json_t *v, const char *key)
{
    const json_t *x = json_object_get(v, key);

    return json_is_number(x) ? json_number_value(x) : NAN;
}

/* The result of an earlier run of the same study.  False: there is none. */
static bool read_result(const learning *l, family_result *r)
{
    char path[FILE_NAME];
    rg_error ignored = { 0 };
    rg_buf how;
    size_t n;

    file_of(l, "result.json", path);
    char *text = rg_path_look(path) == RG_PATH_FILE ? rg_file_slurp(path, RESULT_CAP, &n, &ignored) : NULL;
    json_t *v = text ? rg_json_parse(path, text, n, &ignored) : NULL;
    const char *was = json_string_value(json_object_get(v, "how"));

    rg_buf_init(&how, RESULT_CAP);
    describe(l->job, &how);
    const bool same = was && !how.failed && !strcmp(was, how.data);
    if (same) {
        const json_t *pieces = json_object_get(v, "pieces");

        *r = (family_result){ .tokens = (int64_t)real_of(v, "tokens"),
                              .layers = (int)real_of(v, "layers"),
                              .parameters = real_of(v, "parameters"),
                              .position_bytes = real_of(v, "position_bytes"),
                              .sequence_bytes = real_of(v, "sequence_bytes"),
                              .bits_per_byte = real_of(v, "bits_per_byte"),
                              .accuracy = real_of(v, "accuracy"),
                              .rate = real_of(v, "rate"),
                              .token_ms = real_of(v, "token_ms"),
                              .tokens_s = real_of(v, "tokens_s") };
        for (size_t i = 0; i < json_array_size(pieces) && i < FAMILY_MOST_PIECES; i++)
            r->piece[r->n_pieces++] = json_number_value(json_array_get(pieces, i));
    }
    rg_buf_fini(&how);
    json_decref(v);
    rg_free(text);
    return same;
}

/* ---- the series on text ------------------------------------------------------------------------------------------ */

static bool begin_text(learning *l, const family_member *m, rg_error *err)
{
    char path[FILE_NAME];
    double parameters;

    l->tokens = rg_tokenizer_open_path(l->job->tokenizer, err);
    if (!l->tokens || !open_machine(l, err))
        return false;
    const int32_t ends[2] = { rg_tokenizer_bos(l->tokens), rg_tokenizer_eos(l->tokens) };
    family_sizes sizes = family_text_sizes(m, rg_tokenizer_size(l->tokens));

    file_of(l, "config.json", path);
    return family_solve(m, &sizes, ends, path, l->job->parameters, &parameters, err) &&
           open_model(l, m, &sizes, ends, err) &&
           open_run(l,
                    &(rg_feed_options){ .files = l->job->data,
                                        .n_files = l->job->n_data,
                                        .tokenizer = l->tokens,
                                        .vocab_size = rg_masters_model(l->masters)->config.vocab_size },
                    err) &&
           resume(l, err);
}

bool family_known_text(const family_job *j, const family_member *m, family_result *r)
{
    learning l = { .job = j };
    rg_error ignored = { 0 };

    return family_folder(j, m->name, l.folder, sizeof l.folder, &ignored) && read_result(&l, r);
}

bool family_train_text(const family_job *j, const family_member *m, family_result *r, rg_error *err)
{
    learning l = { .job = j, .s = j->settings };
    bool ok = family_folder(j, m->name, l.folder, sizeof l.folder, err) && rg_dir_make(l.folder, err);

    snprintf(l.name, sizeof l.name, "%s", m->name);
    if (!ok || read_result(&l, r))
        return ok;
    ok = begin_text(&l, m, err) && train_to(&l, l.s.steps, err);
    if (ok) {
        *r = (family_result){ .accuracy = NAN, .rate = l.s.peak };
        count_costs(&l, r);
        ok = judge_text(&l, r, err) && rg_masters_write(l.masters, l.folder, RG_BF16, err) &&
             cli_tokenizer_copy(j->tokenizer, l.folder, err) && time_token(&l, r, err) && write_result(&l, r, err);
    }
    close_all(&l);
    return ok;
}

/* ---- the series on recall ---------------------------------------------------------------------------------------- */

typedef struct asker {
    rg_mqar what;
    int32_t *scratch;       /* [vocab_size + length] */
    int32_t *ids, *targets; /* of the texts that are asked about */
    int64_t n_right;
} asker;

static void make_row(void *arg, int64_t number, int32_t *ids, int32_t *targets)
{
    const asker *a = arg;

    rg_mqar_example(&a->what, (uint64_t)number, ids, targets, a->scratch);
}

/* Count targets that come out first; no loss. */
static bool count_right(void *arg, rg_back_lane *lane, int64_t first, rg_mat *logits, double *nll, rg_error *err)
{
    asker *a = arg;

    (void)lane, (void)err;
    for (int r = 0; r < logits->rows; r++) {
        const float *z = rg_mat_row(logits, r);
        const int32_t target = a->targets[first + r];
        int32_t best = 0;

        nll[r] = 0;
        for (int32_t k = 1; k < logits->cols; k++)
            best = z[k] > z[best] ? k : best;
        a->n_right += target != RG_NO_TARGET && best == target;
    }
    return true;
}

static int64_t count_targets(void *arg, const rg_texts *t)
{
    (void)arg;
    return rg_texts_count(t);
}

static bool ask_once(void *arg, rg_passes *p, const rg_texts *t, double scale, bool forward_only, double *loss,
                     rg_error *err)
{
    const rg_loss of = { count_right, arg };

    (void)forward_only;
    *loss = 0;
    ((asker *)arg)->n_right = 0;
    if (!rg_passes_compute(p, &(rg_passes_run){ .texts = t, .loss = &of, .forward_only = true }, loss, err))
        return false;
    *loss = scale * (double)((asker *)arg)->n_right;
    return true;
}

static bool ask(learning *l, asker *a, double *accuracy, rg_error *err)
{
    const rg_objective o = { .arg = a, .count = count_targets, .compute = ask_once };
    const int length = a->what.length;
    asker asked = *a;

    asked.what.seed = ASK_SEED;
    for (int e = 0; e < ASK_EXAMPLES; e++)
        make_row(&asked, e, a->ids + (size_t)e * (size_t)length, a->targets + (size_t)e * (size_t)length);
    return rg_training_loss(l->run, &o,
                            &(rg_texts){ .rows = ASK_EXAMPLES, .length = length, .ids = a->ids, .targets = a->targets },
                            accuracy, err);
}

/* One model at one rate: until all steps are done, or it is good. */
static bool learn_recall(learning *l, const family_asked *which, asker *a, family_result *r, rg_error *err)
{
    static const int32_t no_ends[2] = { -1, -1 };
    const family_sizes sizes = family_recall_sizes(which, a->what.vocab_size);
    const rg_feed_maker maker = { make_row, a };
    double accuracy = 0;
    int64_t done = 0;
    bool ok = open_machine(l, err) && open_model(l, family_find(which->member), &sizes, no_ends, err) &&
              open_run(l, &(rg_feed_options){ .maker = &maker, .vocab_size = a->what.vocab_size }, err) &&
              resume(l, err);

    while (ok) {
        done = rg_training_done(l->run);
        if (done == l->s.steps || (done && done % ASK_EVERY == 0))
            ok = ask(l, a, &accuracy, err);
        if (!ok || accuracy >= GOOD || done == l->s.steps)
            break;
        done = (done / ASK_EVERY + 1) * ASK_EVERY;
        ok = train_to(l, done < l->s.steps ? done : l->s.steps, err);
    }
    if (!ok)
        return false;
    count_costs(l, r);
    r->accuracy = accuracy;
    r->rate = l->s.peak;
    return rg_masters_write(l->masters, l->folder, RG_F32, err) && time_token(l, r, err);
}

/* The folder of one rate. */
static bool name_recall(learning *l, const family_asked *which, double rate, bool make, rg_error *err)
{
    char name[96];
    size_t n;

    snprintf(name, sizeof name, "recall-%s-%d-%d", which->member, which->dim, which->knob);
    snprintf(l->name, sizeof l->name, "%s at %g", name, rate);
    if (!family_folder(l->job, name, l->folder, sizeof l->folder, err) || (make && !rg_dir_make(l->folder, err)))
        return false;
    n = strlen(l->folder);
    if (snprintf(l->folder + n, sizeof l->folder - n, "/%g", rate) >= (int)(sizeof l->folder - n))
        return rg_fail(err, RG_E_INPUT, "%s: the path is too long", l->job->folder);
    return !make || rg_dir_make(l->folder, err);
}

bool family_known_recall(const family_job *j, const family_asked *which, family_result *r)
{
    learning l = { .job = j };
    rg_error ignored = { 0 };
    family_result one = { 0 };

    r->accuracy = -1;
    for (size_t i = 0; i < RG_LEN(recall_rates); i++)
        if (name_recall(&l, which, recall_rates[i], false, &ignored) && read_result(&l, &one) &&
            one.accuracy > r->accuracy)
            *r = one;
    return r->accuracy >= 0;
}

static bool recall_at(const family_job *j, const family_asked *which, double rate, asker *a, family_result *r,
                      rg_error *err)
{
    learning l = { .job = j, .s = j->settings };
    bool ok = name_recall(&l, which, rate, true, err);

    l.s.peak = rate;
    l.s.length = a->what.length;
    l.s.init_std = 1 / sqrt(3.0 * which->dim); /* narrow models do not learn from the deviation of wide ones */
    if (!ok || read_result(&l, r))
        return ok;
    *r = (family_result){ .bits_per_byte = NAN };
    ok = learn_recall(&l, which, a, r, err) && write_result(&l, r, err);
    close_all(&l);
    return ok;
}

bool family_train_recall(const family_job *j, const family_asked *which, family_result *r, rg_error *err)
{
    asker a = { .what = recall_text };
    family_result one;
    bool ok = true;

    a.what.seed = TRAIN_SEED + j->settings.seed;
    a.scratch = rg_array(RECALL_VOCAB + RECALL_LENGTH, sizeof *a.scratch);
    a.ids = rg_array(ASK_EXAMPLES * RECALL_LENGTH, sizeof *a.ids);
    a.targets = rg_array(ASK_EXAMPLES * RECALL_LENGTH, sizeof *a.targets);
    if (!a.scratch || !a.ids || !a.targets)
        ok = rg_fail_memory(err, ASK_EXAMPLES * RECALL_LENGTH * sizeof *a.ids);
    r->accuracy = -1;
    for (size_t i = 0; ok && i < RG_LEN(recall_rates) && r->accuracy < GOOD; i++) {
        ok = recall_at(j, which, recall_rates[i], &a, &one, err);
        if (ok && one.accuracy > r->accuracy)
            *r = one;
    }
    rg_free(a.scratch);
    rg_free(a.ids);
    rg_free(a.targets);
    return ok;
}
