/* test_rank_encoders.c -- encoders that ranks share: what other implementations give, embeddings and scores of pairs, on two
 * to four ranks; a text has the same bits alone and among others. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/model.h"

enum { SECOND = 21, N_OTHERS = 3, MOST_DIM = 256 };

static const float TOLERANCE = 3e-4f;

typedef struct golden {
    int32_t *ids;
    size_t n_ids;
    bool has_types; /* ids from SECOND on are of the second type */
    float *cls, *mean, *score;
    size_t dim;
} golden;

static golden golden_read(const char *folder)
{
    char name[128];
    golden g = { 0 };
    rg_error err = { 0 };
    size_t n;

    snprintf(name, sizeof name, "%s/golden.safetensors", folder);
    rg_checkpoint *c = rg_checkpoint_open(test_data(name), RG_CKPT_DEFAULT, &err);
    assert_ok(c, err);
    int32_t *types = test_ints(c, "token_type_ids", &n);
    g.has_types = types;
    free(types);
    g.ids = test_ints(c, "input_ids", &g.n_ids);
    g.cls = test_floats(c, "pooled.cls", &g.dim);
    g.mean = test_floats(c, "pooled.mean", &n);
    g.score = test_floats(c, "score", &n);
    assert_true(g.ids && g.cls && g.mean && g.dim <= MOST_DIM);
    rg_checkpoint_close(c);
    return g;
}

static void golden_free(golden *g)
{
    free(g->ids);
    free(g->cls);
    free(g->mean);
    free(g->score);
}

/* RG_POOLING_NONE: its score. */
static rg_request *ask(rg_engine *e, const golden *g, int n, rg_pooling pooling)
{
    rg_params p = { .prompt = g->ids, .n_prompt = n, .embed = pooling, .score = pooling == RG_POOLING_NONE,
                    .second = g->has_types && n > SECOND ? SECOND : 0, .n_samples = 1, .sampling = rg_sampling_default() };
    rg_error err = { 0 };
    rg_request *r = rg_submit(e, &p, &err);

    assert_ok(r, err);
    return r;
}

static int take(rg_request *r, bool score, float *out)
{
    const float *got;
    rg_token t;
    int32_t n;

    while (rg_next(r, &t))
        assert_int_equal(t.finish, RG_FINISH_STOP);
    got = score ? rg_request_head_scores(r, &n) : rg_request_embedding(r, &n);
    assert_true(got && n <= MOST_DIM);
    memcpy(out, got, (size_t)n * sizeof *out);
    rg_request_close(r);
    return n;
}

/* Alone, and then with texts of other lengths in the same steps. */
static void check(const char *what, rg_engine *e, const golden *g, rg_pooling pooling, const float *want)
{
    const bool score = pooling == RG_POOLING_NONE;
    float alone[MOST_DIM], among[MOST_DIM], other[MOST_DIM];
    rg_request *r[N_OTHERS];
    const int n = take(ask(e, g, (int)g->n_ids, pooling), score, alone);

    test_close_to(what, alone, want, score ? 1 : (size_t)n, TOLERANCE);
    for (int i = 0; i < N_OTHERS; i++)
        r[i] = ask(e, g, 5 + 3 * i, RG_POOLING_MEAN);
    take(ask(e, g, (int)g->n_ids, pooling), score, among);
    for (int i = 0; i < N_OTHERS; i++)
        take(r[i], false, other);
    assert_memory_equal(among, alone, (size_t)n * sizeof *alone);
}

static void check_encoder(const char *folder, rg_ranks *ranks, int n)
{
    golden g = golden_read(folder);
    rg_options o = rg_options_default();
    rg_error err = { 0 };
    char path[600], what[128];

    snprintf(path, sizeof path, "%s", test_data(folder));
    snprintf(what, sizeof what, "%s on %d ranks", folder, n);
    o.ranks = ranks;
    o.recipe = "exact";
    o.n_threads = 1;
    rg_engine *e = rg_open(path, &o, &err);
    assert_ok(e, err);
    check(what, e, &g, RG_POOLING_CLS, g.cls);
    check(what, e, &g, RG_POOLING_MEAN, g.mean);
    if (g.score)
        check(what, e, &g, RG_POOLING_NONE, g.score);
    rg_close(e);
    golden_free(&g);
}

static void encoders(void **state)
{
    static const char *const folders[] = {
#define GOLDEN(test, folder, worlds)
#define WHOLE(test, folder)
#define ENCODER(test, folder) folder,
#include "../model/goldens.def"
#undef GOLDEN
#undef WHOLE
#undef ENCODER
    };

    (void)state;
    for (int n = 2; n <= 4; n++) {
        rg_error err = { 0 };
        rg_ranks *ranks = rg_ranks_start(n, &err);

        assert_ok(ranks, err);
        for (size_t i = 0; i < RG_LEN(folders); i++)
            check_encoder(folders[i], ranks, n);
        rg_ranks_stop(ranks);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(encoders) };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
