/* test_latent.c -- K and V as latents: nothing is lost at full rank, more with fewer numbers; what is kept is as large as it
 * says; gradients of the new form; eigenvectors. */
#include "../train/trained.h"

#include <math.h>

#include "base/mem.h"
#include "shrink/latent.h"
#include "shrink/linear.h"

enum { SAMPLES = 4, CTX = 48, N_IDS = 320 };

static int32_t ids[SAMPLES * CTX];

static int prepare(void **state)
{
    (void)state;
    for (int i = 0; i < SAMPLES * CTX; i++)
        ids[i] = 3 + (i * 37 + i * i * 11) % 300;
    return 0;
}

/* The latent form of a golden model, in a folder; false and *err as rg_latent says. */
static bool make(const char *model, int rank, int rope_heads, const char *to, uint64_t *bytes, rg_error *err)
{
    const rg_stage_options so = {
        .backend = trained_backend(), .n_threads = 2, .ids = ids, .n_samples = SAMPLES, .ctx = CTX
    };
    const rg_latent_options o = { rank, rope_heads };
    rg_checkpoint *c = rg_checkpoint_open(test_data(model), RG_CKPT_DEFAULT, err);
    rg_stage *s = c ? rg_stage_open(c, &so, err) : NULL;
    const bool ok = s && rg_latent(c, s, SAMPLES, CTX, &o, to, bytes, err);

    rg_stage_close(s);
    rg_checkpoint_close(c);
    return ok;
}

/* Logits of a text of CTX ids, [CTX, N_IDS]. */
static float *logits_of(const char *path, uint64_t *position_bytes)
{
    float *at = malloc(sizeof *at * CTX * N_IDS);
    rg_error err = { 0 };
    int64_t first;
    int n;
    trained t;

    trained_open(&t, path, 2, 0);
    const rg_texts texts = { .rows = 1, .length = CTX, .ids = ids };
    assert_ok(rg_passes_enter(t.passes, &texts, 0, &first, &n, &err), err);
    rg_passes_logits(t.passes, 0, &(rg_mat){ at, N_IDS, CTX, N_IDS });
    *position_bytes = rg_state_bytes_per_position(&rg_masters_model(t.masters)->state);
    trained_close(&t);
    return at;
}

/* The largest difference, as a share of the largest logit. */
static double differs(const char *model, int rank, int rope_heads, uint64_t *position_bytes)
{
    const char *to = test_scratch("latent");
    double most = 0, apart = 0;
    uint64_t bytes, before;
    rg_error err = { 0 };

    assert_ok(make(model, rank, rope_heads, to, &bytes, &err), err);
    float *want = logits_of(test_data(model), &before), *got = logits_of(to, position_bytes);
    for (int i = 0; i < CTX * N_IDS; i++) {
        most = fmax(most, fabs((double)want[i]));
        apart = fmax(apart, fabs((double)want[i] - (double)got[i]));
    }
    free(want);
    free(got);
    return apart / most;
}

static void loses_nothing_at_full_rank(void **state)
{
    static const char *const models[] = { "llama", "llama3" };

    (void)state;
    for (size_t i = 0; i < RG_LEN(models); i++) {
        rg_error err = { 0 };
        uint64_t bytes;
        trained t;

        trained_open(&t, test_data(models[i]), 1, 0);
        const rg_config *c = &rg_masters_model(t.masters)->config;
        const int g = c->n_kv_heads, d = c->head_dim, layers = c->n_layers;
        trained_close(&t);
        const double full = differs(models[i], g * d, g, &bytes);
        if (!(full < 2e-5))
            fail_msg("%s: logits differ by %g of the largest", models[i], full);
        assert_int_equal(bytes, (uint64_t)(layers * 2 * g * d) * sizeof(float));
        /* Fewer numbers lose more; so do heads that are no longer rotated. */
        const double half = differs(models[i], g * d / 2, g, &bytes), few = differs(models[i], d / 4, g, &bytes);
        assert_int_equal(bytes, (uint64_t)(layers * (d / 4 + g * d)) * sizeof(float));
        const double unturned = differs(models[i], 2 * g * d, 1, &bytes);
        assert_true(full < half && half < few && full < unturned);
        assert_int_equal(bytes, (uint64_t)(layers * (2 * g * d + d)) * sizeof(float));
        assert_false(make(models[i], g * d + 1, g, test_scratch("latent"), &bytes, &err));
        assert_non_null(strstr(err.text, "a latent of"));
        err = (rg_error){ 0 };
        assert_false(make(models[i], 4, g + 1, test_scratch("latent"), &bytes, &err));
        assert_non_null(strstr(err.text, "stay rotated"));
    }
}

/* The gradient of the form, along a random direction of all its weights. */
static void can_be_repaired(void **state)
{
    const rg_texts plain = { .rows = 1, .length = CTX, .ids = ids };
    int32_t targets[CTX];
    uint64_t bytes;
    rg_error err = { 0 };
    double slope = 0, side[2];
    const double step = 2e-3;
    trained t;

    (void)state;
    assert_ok(make("llama", 20, 1, test_scratch("latent"), &bytes, &err), err);
    trained_open(&t, test_scratch("latent"), 2, 0);
    rg_texts texts = plain;
    rg_texts_targets(&plain, targets);
    texts.targets = targets;
    trained_loss(&t, &texts, false);
    for (int s = 0; s < 2; s++) {
        for (int i = 0; i < rg_masters_count(t.masters); i++) {
            rg_master *m = rg_masters_at(t.masters, i);

            for (size_t k = 0; k < m->n; k++) {
                const double by = (k * 2654435761u >> 7 & 1 ? 1 : -1) * 1e-2;

                slope += s ? 0 : by * (double)m->g[k];
                m->w[k] += (float)((s ? -2 : 1) * step * by);
            }
        }
        assert_ok(rg_masters_push(t.masters, &err), err);
        side[s] = trained_loss(&t, &texts, true);
    }
    const double found = (side[0] - side[1]) / (2 * step);
    if (!(fabs(found - slope) < 2e-2 * fabs(slope) + 1e-3))
        fail_msg("slope %.6g, not %.6g", slope, found);
    trained_close(&t);
}

static void refuses_other_forms(void **state)
{
    static const char *const models[] = { "qwen2", "qwen3", "mistral-swa", "deepseek-v2", "cla2" };
    uint64_t bytes;

    (void)state;
    for (size_t i = 0; i < RG_LEN(models); i++) {
        rg_error err = { 0 };

        assert_false(make(models[i], 8, 1, test_scratch("latent"), &bytes, &err));
        assert_int_equal(err.code, RG_E_UNSUPPORTED);
    }
}

static void finds_eigenvectors(void **state)
{
    enum { N = 7 };
    double a[N * N], used[N * N], v[N * N], values[N];

    (void)state;
    for (int i = 0; i < N; i++)
        for (int k = 0; k <= i; k++)
            a[i * N + k] = a[k * N + i] = i == k ? 2 + i % 3 : sin(i * 3.0 + k * k);
    memcpy(used, a, sizeof a);
    rg_eigen(used, N, values, v);
    for (int i = 0; i < N; i++) {
        assert_true(!i || values[i] <= values[i - 1]);
        for (int k = 0; k < N; k++) {
            double same = 0, turned = 0;

            for (int c = 0; c < N; c++) {
                same += v[i * N + c] * v[k * N + c];
                turned += a[k * N + c] * v[i * N + c];
            }
            assert_true(fabs(same - (i == k)) < 1e-12);
            assert_true(fabs(turned - values[i] * v[i * N + k]) < 1e-12);
        }
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loses_nothing_at_full_rank),
        cmocka_unit_test(can_be_repaired),
        cmocka_unit_test(refuses_other_forms),
        cmocka_unit_test(finds_eigenvectors),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, prepare, NULL);
}
