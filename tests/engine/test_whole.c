/* test_whole.c -- prompts that are computed whole, on the real encoders: embeddings and scores of the goldens; the same bits
 * whatever runs beside, however many rows a step has and however many threads; many texts in a step, fair between tenants;
 * cancelling, deadlines, and what is refused. */
#include "support/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "engine/loop.h"
#include "engine/work/embedding.h"
#include "engine/work/head.h"

enum { MAX_ROWS = 128, STEP_ROWS = 64, MAX_SEQS = 16, N_TEXTS = 40, MAX_DIM = 64, SECOND = 21 };

typedef struct world {
    test_model model;
    test_rig rig;
    rg_loop *loop;
} world;

static const rg_backend *last_backend(void)
{
    int i = 0;

    while (test_backend(i + 1))
        i++;
    return test_backend(i);
}

static void open_world(world *w, const char *name, int n_threads, int step_rows, int max_seqs)
{
    rg_error err = { 0 };

    *w = (world){ 0 };
    test_model_open(&w->model, test_data(name), "f32");
    test_rig_open(&w->rig, &w->model, &(test_rig_options){ .backend = last_backend(), .n_threads = n_threads, .exact = true,
                                                           .max_rows = MAX_ROWS, .max_seqs = max_seqs, .max_len = 4096,
                                                           .state_bytes = (size_t)16 << 20 });
    w->loop = rg_loop_new(w->rig.runner,
                          &(rg_loop_options){ .max_seqs = max_seqs, .max_rows = step_rows, .max_waiting = 100,
                                              .max_seq_len = w->rig.runner->max_seq_len, .use_prefixes = true }, &err);
    assert_ok(w->loop, err);
}

static void close_world(world *w)
{
    rg_loop_check(w->loop);
    rg_loop_free(w->loop);
    test_rig_close(&w->rig);
    test_model_close(&w->model);
}

static rg_request *make(const world *w, const rg_params *p, rg_error *err)
{
    const rg_config *c = &w->model.m->config;

    return rg_request_new(p, &(rg_request_model){ .vocab_size = c->vocab_size, .max_seq_len = c->max_seq_len, .dim = c->dim,
                                                  .config = c, .sees = c->sees, .whole = true, .n_labels = c->n_labels,
                                                  .score_pooling = c->score_pooling, .max_rows = w->rig.runner->max_rows }, err);
}

static rg_request *submit(const world *w, const rg_params *p)
{
    rg_error err = { 0 };
    rg_request *r = make(w, p, &err);

    assert_ok(r, err);
    assert_ok(rg_loop_submit(w->loop, r, &err), err);
    return r;
}

static rg_finish finish_of(rg_request *r)
{
    return (rg_finish)atomic_load(&r->samples[0].finish);
}

static void run_all(const world *w)
{
    while (rg_loop_step(w->loop))
        rg_loop_check(w->loop);
}

/* ---- the goldens ------------------------------------------------------------------------------------------------- */

static void near_to(const char *what, const float *got, const float *want, size_t n)
{
    float most = 0, off = 0;

    for (size_t i = 0; i < n; i++) {
        float d = got[i] > want[i] ? got[i] - want[i] : want[i] - got[i], a = want[i] < 0 ? -want[i] : want[i];
        most = a > most ? a : most;
        off = d > off || d != d ? d : off;
    }
    if (!(off <= 1e-4f * most))
        fail_msg("%s: off by %g of %g", what, (double)off, (double)most);
}

static void golden(const char *name)
{
    static const struct {
        const char *key;
        rg_pooling how;
        bool is_short;
    } cases[] = { { "pooled.cls", RG_POOLING_CLS, false }, { "pooled.mean", RG_POOLING_MEAN, false },
                  { "short.pooled.cls", RG_POOLING_CLS, true }, { "short.pooled.mean", RG_POOLING_MEAN, true },
                  { "score", RG_POOLING_NONE, false } };
    rg_request *requests[RG_LEN(cases)] = { 0 };
    char path[96];
    rg_error err = { 0 };
    size_t n_ids, n;
    world w;

    snprintf(path, sizeof path, "%s/golden.safetensors", name);
    rg_checkpoint *g = rg_checkpoint_open(test_data(path), RG_CKPT_DEFAULT, &err);
    assert_ok(g, err);
    int32_t *ids = test_ints(g, "input_ids", &n_ids), *types = test_ints(g, "token_type_ids", &n);
    open_world(&w, name, 2, STEP_ROWS, MAX_SEQS);
    for (size_t i = 0; i < RG_LEN(cases); i++)
        if (cases[i].how || w.model.m->config.n_labels)
            requests[i] = submit(&w, &(rg_params){ .prompt = ids, .n_prompt = cases[i].is_short ? SECOND : (int32_t)n_ids,
                                                   .embed = cases[i].how, .score = !cases[i].how,
                                                   .second = types && !cases[i].is_short ? SECOND : 0 });
    run_all(&w);
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        rg_request *r = requests[i];
        float *want = r ? test_floats(g, cases[i].key, &n) : NULL;
        char what[96];
        int32_t n_made;

        if (!r)
            continue;
        assert_non_null(want);
        assert_int_equal(finish_of(r), RG_FINISH_STOP);
        snprintf(what, sizeof what, "%s: %s", name, cases[i].key);
        near_to(what, cases[i].how ? rg_embedding_pooled(r, &n_made) : rg_head_result(r, &n_made), want, n);
        free(want);
        rg_request_unref(r);
    }
    close_world(&w);
    free(ids);
    free(types);
    rg_checkpoint_close(g);
}

static void goldens(void **state)
{
    (void)state;
#define GOLDEN(test, folder, worlds)
#define WHOLE(test, folder)
#define ENCODER(test, folder) golden(folder);
#include "model/goldens.def"
#undef ENCODER
}

/* ---- the same bits ----------------------------------------------------------------------------------------------- */

typedef struct made {
    float v[MAX_DIM + 1];
} made;

/* Texts of 1 to MAX_ROWS ids, the longest alone in a step; each an embedding, or every third a score. */
static rg_params text_of(const world *w, int i, int32_t *ids)
{
    static const rg_pooling ways[] = { RG_POOLING_MEAN, RG_POOLING_CLS, RG_POOLING_LAST };
    bool score = i % 3 == 2 && w->model.m->config.n_labels;
    int32_t n = i % 8 == 7 ? MAX_ROWS - i : 1 + i * 7 % 30;

    for (int32_t k = 0; k < n; k++)
        ids[k] = (k * 37 + i * 11 + k / 7) % w->model.m->config.vocab_size;
    return (rg_params){ .prompt = ids, .n_prompt = n, .second = i % 2 ? n / 2 : 0, .score = score,
                        .embed = score ? RG_POOLING_NONE : ways[i % 3], .tenant = i % 4 ? "a" : "b" };
}

static void compute(world *w, made out[N_TEXTS], bool together)
{
    rg_request *r[N_TEXTS];
    int32_t ids[MAX_ROWS];

    for (int i = 0; i < N_TEXTS; i++) {
        rg_params p = text_of(w, i, ids);
        r[i] = submit(w, &p);
        if (!together)
            run_all(w);
    }
    run_all(w);
    for (int i = 0; i < N_TEXTS; i++) {
        int32_t n;

        assert_int_equal(finish_of(r[i]), RG_FINISH_STOP);
        memset(&out[i], 0, sizeof out[i]);
        const float *got = r[i]->params.score ? rg_head_result(r[i], &n) : rg_embedding_pooled(r[i], &n);
        memcpy(out[i].v, got, (size_t)n * sizeof *got);
        rg_request_unref(r[i]);
    }
}

static void same_bits(const char *name)
{
    static const struct {
        int n_threads, step_rows, max_seqs;
        bool together;
    } ways[] = { { 1, STEP_ROWS, MAX_SEQS, false }, { 1, STEP_ROWS, MAX_SEQS, true }, { 2, MAX_ROWS, MAX_SEQS, true },
                 { 2, 16, 3, true } };
    static made first[N_TEXTS], again[N_TEXTS];

    for (size_t i = 0; i < RG_LEN(ways); i++) {
        world w;

        open_world(&w, name, ways[i].n_threads, ways[i].step_rows, ways[i].max_seqs);
        compute(&w, i ? again : first, ways[i].together);
        if (i)
            assert_memory_equal(again, first, sizeof first);
        close_world(&w);
    }
}

static void same_among_others(void **state)
{
    (void)state;
    same_bits("bert-rerank");
    same_bits("modernbert");
    same_bits("nomic-bert");
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static rg_request *submit_text(const world *w, int32_t n, const char *tenant)
{
    int32_t ids[MAX_ROWS] = { 0 };

    return submit(w, &(rg_params){ .prompt = ids, .n_prompt = n, .embed = RG_POOLING_MEAN, .tenant = tenant });
}

/* Texts of 8 ids: as many in a step as it has rows for.  One that is longer than such a step is computed alone, and does not
 * wait for ever while shorter ones come. */
static void many_texts_in_a_step(void **state)
{
    (void)state;
    rg_request *r[32], *longest;
    world w;

    open_world(&w, "bert", 1, STEP_ROWS, MAX_SEQS);
    for (int i = 0; i < 32; i++)
        r[i] = submit_text(&w, 8, NULL);
    run_all(&w);
    assert_int_equal(rg_loop_stats(w.loop).n_steps, 4);
    assert_int_equal(rg_loop_stats(w.loop).n_rows, 256);
    for (int i = 0; i < 32; i++)
        rg_request_unref(r[i]);
    for (int i = 0; i < 8; i++)
        r[i] = submit_text(&w, 8, NULL);
    longest = submit_text(&w, MAX_ROWS, NULL);
    for (int i = 8; i < 32; i++)
        r[i] = submit_text(&w, 8, NULL);
    for (int i = 0; i < 3; i++)
        rg_loop_step(w.loop);
    assert_int_equal(finish_of(longest), RG_FINISH_STOP);
    run_all(&w);
    for (int i = 0; i < 32; i++) {
        assert_int_equal(finish_of(r[i]), RG_FINISH_STOP);
        rg_request_unref(r[i]);
    }
    rg_request_unref(longest);
    close_world(&w);
}

/* A tenant's flood does not delay the one text of another beyond a step or two. */
static void tenants_share(void **state)
{
    (void)state;
    rg_request *flood[60], *other;
    int n_over = 0;
    world w;

    open_world(&w, "bert", 1, STEP_ROWS, 4);
    for (int i = 0; i < 60; i++)
        flood[i] = submit_text(&w, 16, "flood");
    rg_loop_step(w.loop);
    other = submit_text(&w, 16, "other");
    while (finish_of(other) == RG_RUNNING)
        assert_true(rg_loop_step(w.loop));
    for (int i = 0; i < 60; i++)
        n_over += finish_of(flood[i]) != RG_RUNNING;
    assert_in_range(n_over, 1, 40); /* its credit is 512 ids */
    run_all(&w);
    for (int i = 0; i < 60; i++)
        rg_request_unref(flood[i]);
    rg_request_unref(other);
    close_world(&w);
}

static uint64_t now_ns;

static uint64_t clock_of_test(void *arg)
{
    (void)arg;
    return now_ns;
}

static void requests_end_early(void **state)
{
    (void)state;
    rg_request *r[8];
    int32_t ids[60] = { 0 };
    world w;

    now_ns = 1000000000;
    rg_clock_set(clock_of_test, NULL);
    open_world(&w, "bert", 1, STEP_ROWS, MAX_SEQS);
    for (int i = 0; i < 8; i++)
        r[i] = submit(&w, &(rg_params){ .prompt = ids, .n_prompt = 60, .embed = RG_POOLING_CLS, .deadline_s = i == 6 ? 1 : 0 });
    rg_loop_step(w.loop);
    assert_int_equal(finish_of(r[0]), RG_FINISH_STOP);
    atomic_store(&r[1]->cancelled, true); /* has its state already */
    atomic_store(&r[7]->cancelled, true);
    now_ns += 1000000001;
    run_all(&w);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(finish_of(r[i]), i == 1 || i == 7 ? RG_FINISH_CANCELLED : i == 6 ? RG_FINISH_DEADLINE : RG_FINISH_STOP);
        rg_request_unref(r[i]);
    }
    close_world(&w);
    rg_clock_set(NULL, NULL);
}

static void refused(const world *w, const rg_params *p, rg_code code, const char *word)
{
    rg_error err = { 0 };

    assert_null(make(w, p, &err));
    assert_int_equal(err.code, code);
    if (!strstr(err.text, word))
        fail_msg("'%s' does not say '%s'", err.text, word);
}

static void what_is_refused(void **state)
{
    (void)state;
    int32_t ids[5000] = { 0 };
    world w;

    open_world(&w, "modernbert", 1, STEP_ROWS, 2);
    rg_params p = { .prompt = ids, .n_prompt = MAX_ROWS + 1, .embed = RG_POOLING_MEAN };
    refused(&w, &p, RG_E_LIMIT, "--batch-rows");
    p.n_prompt = 4097;
    refused(&w, &p, RG_E_LIMIT, "4096");
    p.n_prompt = 9;
    p.second = 10;
    refused(&w, &p, RG_E_INPUT, "second");
    p.second = 0;
    p.score = true;
    refused(&w, &p, RG_E_INPUT, "not both");
    p = (rg_params){ .prompt = ids, .n_prompt = 9, .max_tokens = 5, .n_samples = 1 };
    refused(&w, &p, RG_E_UNSUPPORTED, "scores pairs");
    close_world(&w);
    open_world(&w, "bert", 1, STEP_ROWS, 2);
    refused(&w, &p, RG_E_UNSUPPORTED, "embeddings");
    p = (rg_params){ .prompt = ids, .n_prompt = 9, .score = true };
    refused(&w, &p, RG_E_UNSUPPORTED, "head");
    close_world(&w);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goldens),       cmocka_unit_test(same_among_others),  cmocka_unit_test(many_texts_in_a_step),
        cmocka_unit_test(tenants_share), cmocka_unit_test(requests_end_early), cmocka_unit_test(what_is_refused),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
