/* Every encoder against its golden, on every instruction set of this machine: what enters each layer and what leaves the
 * last, pooled states and the score of its head, of a pair of texts and of a text alone; from config.json, from
 * config.old.json and from model.gguf.  A text has the same bits alone and among others. */
#include "support/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "ops/watch/watch.h"

enum { MAX_ROWS = 160, MAX_LAYERS = 8, MAX_TEXTS = 8, SECOND = 21 };

static const float TOLERANCE = 1e-4f, TOLERANCE_DEEP = 3e-4f, TOLERANCE_GGUF = 1e-3f;

typedef struct golden {
    int n_layers, dim;
    size_t n_ids;
    int32_t *ids;
    bool has_types; /* ids from SECOND on are of the second type */
    float *hidden[MAX_LAYERS + 1], *cls, *mean, *short_cls, *short_mean, *score; /* score: NULL: none */
} golden;

static void golden_read(golden *g, const char *name)
{
    char path[96], key[32];
    rg_error err = { 0 };
    size_t n;

    snprintf(path, sizeof path, "%s/golden.safetensors", name);
    rg_checkpoint *c = rg_checkpoint_open(test_data(path), RG_CKPT_DEFAULT, &err);
    assert_ok(c, err);
    *g = (golden){ 0 };
    int32_t *types = test_ints(c, "token_type_ids", &n);
    g->ids = test_ints(c, "input_ids", &g->n_ids);
    g->has_types = types;
    for (int i = 0; types && i < (int)n; i++)
        assert_int_equal(types[i], i >= SECOND);
    free(types);
    for (int i = 0; snprintf(key, sizeof key, "hidden.%d", i), i <= MAX_LAYERS; i++) {
        g->hidden[i] = test_floats(c, key, &n);
        if (!g->hidden[i])
            break;
        g->n_layers = i;
        g->dim = (int)(n / g->n_ids);
    }
    g->cls = test_floats(c, "pooled.cls", &n);
    g->mean = test_floats(c, "pooled.mean", &n);
    g->short_cls = test_floats(c, "short.pooled.cls", &n);
    g->short_mean = test_floats(c, "short.pooled.mean", &n);
    g->score = test_floats(c, "score", &n);
    assert_true(g->ids && g->cls && g->mean && g->short_cls && g->short_mean && g->n_layers > 0);
    rg_checkpoint_close(c);
}

static void golden_free(golden *g)
{
    for (int i = 0; i <= g->n_layers; i++)
        free(g->hidden[i]);
    free(g->ids);
    free(g->cls);
    free(g->mean);
    free(g->short_cls);
    free(g->short_mean);
    free(g->score);
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

typedef struct text {
    const int32_t *ids;
    int n, second;
    rg_seq *seq;
    float *states; /* [n][dim] after the last layer */
    float score;
} text;

typedef struct job {
    test_model model;
    test_rig rig;
    rg_watch watch;
    int n_layers, dim;
    text *texts;
    rg_rows scores[MAX_TEXTS];
    float *inputs; /* [n_layers][rows][dim] of the step's first text; NULL: not wanted */
} job;

static void see(void *arg, const rg_watched *w)
{
    job *j = arg;
    int rows = j->inputs ? j->texts[0].n : 0;

    for (int r = 0; w->note && w->layer >= 0 && r < rows; r++)
        memcpy(j->inputs + ((size_t)w->layer * (size_t)rows + (size_t)r) * (size_t)j->dim,
               w->data + (size_t)r * (size_t)w->cols, (size_t)j->dim * sizeof(float));
}

static const rg_reader *wrap(void *arg, const rg_reader *inner)
{
    return rg_watch_init(&((job *)arg)->watch, inner, see, arg);
}

static void take_states(void *arg, int thread, int i, const float *rows, size_t stride)
{
    const job *j = arg;

    (void)thread;
    for (int r = 0; r < j->texts[i].n; r++)
        memcpy(j->texts[i].states + (size_t)r * (size_t)j->dim, rows + (size_t)r * stride, (size_t)j->dim * sizeof(float));
}

static void take_score(void *arg, int thread, int i, const float *scores)
{
    (void)thread;
    ((job *)arg)->texts[i].score = scores[0];
}

/* All texts in one step. */
static void compute(job *j, text *texts, int n_texts)
{
    static int32_t token[MAX_ROWS], index[MAX_ROWS], kv_end[MAX_ROWS], pos[MAX_ROWS][4];
    const rg_config *c = &j->model.m->config;
    rg_span spans[MAX_TEXTS];
    rg_rows hidden[MAX_TEXTS];
    rg_batch b = { .n_spans = n_texts, .spans = spans, .token = token, .index = index, .kv_end = kv_end,
                   .pos = (const int32_t(*)[4])pos, .n_hidden = n_texts, .hidden = hidden,
                   .n_scores = c->n_labels ? n_texts : 0, .scores = j->scores };

    j->texts = texts;
    for (int s = 0; s < n_texts; s++) {
        text *t = &texts[s];
        bool whole = c->score_pooling == RG_POOLING_MEAN;

        t->seq = rg_seq_new(j->rig.states, t->n, 0, NULL);
        assert_non_null(t->seq);
        rg_seq_scratch(t->seq);
        assert_true(rg_seq_grow(j->rig.states, t->seq, t->n));
        spans[s] = (rg_span){ .first_row = b.n_rows, .adapter = -1, .second = t->second };
        rg_seq_span(j->rig.states, t->seq, t->n, 0, &spans[s]);
        hidden[s] = (rg_rows){ b.n_rows, t->n };
        j->scores[s] = (rg_rows){ b.n_rows, whole ? t->n : 1 };
        for (int i = 0; i < t->n; i++, b.n_rows++) {
            token[b.n_rows] = t->ids[i];
            index[b.n_rows] = pos[b.n_rows][0] = i;
            kv_end[b.n_rows] = rg_kv_end(j->rig.runner->sees, i, t->n);
        }
    }
    j->rig.runner->step(j->rig.runner, &b, &(rg_sink){ .hidden = take_states, .scores = take_score, .arg = j });
    for (int s = 0; s < n_texts; s++) {
        rg_seq_advance(j->rig.states, texts[s].seq, texts[s].n, 0, NULL);
        rg_seq_free(j->rig.states, texts[s].seq);
    }
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

static void pooled_close_to(const char *name, const job *j, const text *t, const float *cls, const float *mean, float tolerance)
{
    float *sum = calloc((size_t)j->dim, sizeof *sum);
    char what[160];

    snprintf(what, sizeof what, "%s: cls of %d ids", name, t->n);
    test_close_to(what, t->states, cls, (size_t)j->dim, tolerance);
    for (int i = 0; i < j->dim; i++) {
        double all = 0;

        for (int r = 0; r < t->n; r++)
            all += (double)t->states[r * j->dim + i];
        sum[i] = (float)(all / t->n);
    }
    snprintf(what, sizeof what, "%s: mean of %d ids", name, t->n);
    test_close_to(what, sum, mean, (size_t)j->dim, tolerance);
    free(sum);
}

static void equals_golden(const char *name, job *j, const golden *g, text *full, float tolerance)
{
    const size_t n = g->n_ids * (size_t)g->dim;
    float *states = calloc(n, sizeof *states);
    text part = { .ids = g->ids, .n = SECOND, .states = states };
    char what[160];

    j->inputs = calloc((size_t)g->n_layers * n, sizeof(float));
    compute(j, full, 1);
    for (int i = 0; i < g->n_layers; i++) {
        snprintf(what, sizeof what, "%s: hidden.%d", name, i);
        test_close_to(what, j->inputs + (size_t)i * n, g->hidden[i], n, tolerance > TOLERANCE_DEEP ? tolerance : TOLERANCE_DEEP);
    }
    free(j->inputs);
    j->inputs = NULL;
    snprintf(what, sizeof what, "%s: hidden.%d", name, g->n_layers);
    test_close_to(what, full->states, g->hidden[g->n_layers], n, tolerance);
    pooled_close_to(name, j, full, g->cls, g->mean, tolerance);
    snprintf(what, sizeof what, "%s: score", name);
    if (g->score && j->model.m->config.n_labels)
        test_close_to(what, &full->score, g->score, 1, tolerance);
    compute(j, &part, 1);
    pooled_close_to(name, j, &part, g->short_cls, g->short_mean, tolerance);
    free(states);
}

/* Five texts in one step, the first of them as before. */
static void same_among_others(job *j, const golden *g, const text *alone)
{
    const size_t width = g->n_ids * (size_t)g->dim;
    float *room = calloc(5 * width, sizeof *room);
    text texts[5];

    for (int i = 0; i < 5; i++)
        texts[i] = (text){ .ids = g->ids, .n = i == 2 ? alone->n : 1 + i * 9, .second = i == 2 ? alone->second : 0,
                           .states = room + (size_t)i * width };
    compute(j, texts, 5);
    assert_memory_equal(texts[2].states, alone->states, width * sizeof *room);
    assert_true(!j->model.m->config.n_labels || texts[2].score == alone->score);
    free(room);
}

static void equals(const char *name, const char *path, const golden *g, bool main)
{
    const size_t width = g->n_ids * (size_t)g->dim;
    float *first = NULL;
    char on[160];

    for (int i = 0; test_backend(i); i++) {
        if (!main && !test_all() && test_backend(i + 1))
            continue;
        for (int threads = 1; threads <= 2; threads++) {
            job j = { 0 };
            text full = { .ids = g->ids, .n = (int)g->n_ids, .second = g->has_types ? SECOND : 0,
                          .states = calloc(width, sizeof(float)) };

            test_model_open(&j.model, path, "f32");
            j.dim = j.model.m->config.dim;
            j.n_layers = j.model.m->config.n_layers;
            assert_int_equal(j.dim, g->dim);
            assert_int_equal(j.n_layers, g->n_layers);
            test_rig_open(&j.rig, &j.model, &(test_rig_options){ .backend = test_backend(i), .n_threads = threads, .exact = true,
                                                                 .max_rows = MAX_ROWS, .max_seqs = MAX_TEXTS,
                                                                 .max_len = 64, .wrap = wrap, .wrap_arg = &j });
            snprintf(on, sizeof on, "%s on %s", name, test_backend(i)->name);
            equals_golden(on, &j, g, &full, strstr(path, ".gguf") ? TOLERANCE_GGUF : TOLERANCE);
            same_among_others(&j, g, &full);
            assert_true(!first || !memcmp(first, full.states, width * sizeof *first));
            free(first);
            first = full.states;
            test_rig_close(&j.rig);
            rg_watch_fini(&j.watch);
            test_model_close(&j.model);
        }
    }
    free(first);
}

/* Whichever spellings are there. */
static void encoder_equals(const char *name)
{
    char path[96];
    golden g;

    golden_read(&g, name);
    equals(name, test_data(name), &g, true);
    snprintf(path, sizeof path, "%s/config.old.json", name);
    if (rg_path_look(test_data(path)) == RG_PATH_FILE)
        equals(path, test_variant(name, name, "config.old.json", NULL, NULL), &g, false);
    snprintf(path, sizeof path, "%s/model.gguf", name);
    if (rg_path_look(test_data(path)) == RG_PATH_FILE)
        equals(path, test_data(path), &g, false);
    golden_free(&g);
}

#define GOLDEN(test, folder, worlds)
#define WHOLE(test, folder)
#define ENCODER(test, folder)                                                                                                    \
    static void test(void **state)                                                                                               \
    {                                                                                                                            \
        (void)state;                                                                                                             \
        encoder_equals(folder);                                                                                                  \
    }
#include "goldens.def"
#undef ENCODER

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
#define ENCODER(test, folder) cmocka_unit_test(test),
#include "goldens.def"
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
