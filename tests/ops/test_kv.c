/* test_kv.c -- q4: codes against those of KIVI's authors, what is no number, and where everything of a block lies. */
#include "support/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/kv4.h"

enum { HEADS = 2, TOKENS = 96, CHANNELS = 64 };

static const rg_kv shape = { .type = RG_Q4_1, .n_heads = HEADS, .k_dim = CHANNELS, .v_dim = CHANNELS };

static void *tensor(rg_checkpoint *c, const char *name, rg_type type)
{
    const rg_tensor *t = rg_checkpoint_find(c, name);
    rg_error err = { 0 };

    assert_true(t && t->type == type);
    void *to = malloc((size_t)t->bytes);
    assert_ok(rg_tensor_read(c, t, 0, to, (size_t)t->bytes, &err), err);
    return to;
}

/* K or V as the golden has it, f32 of [head][token][dim]. */
static float *values_of(rg_checkpoint *c, const char *name)
{
    uint16_t *h = tensor(c, name, RG_F16);
    float *x = malloc(HEADS * TOKENS * CHANNELS * sizeof *x);

    for (int i = 0; i < HEADS * TOKENS * CHANNELS; i++)
        x[i] = rg_f16_to_f32(h[i]);
    free(h);
    return x;
}

static int code(const uint8_t *run, int i)
{
    return i < 16 ? run[4 + i] & 15 : run[4 + i - 16] >> 4;
}

/* What the golden says of one group, beside the run that is to hold it; `stride`: from one of its codes to the next. */
static void same_group(const uint8_t *run, const uint8_t *codes, int stride, float scale, float lo)
{
    const uint16_t want[2] = { rg_f32_to_f16(scale), rg_f32_to_f16(lo) };

    for (int i = 0; i < RG_KV_RUN; i++)
        assert_int_equal(code(run, i), codes[i * stride]);
    assert_memory_equal(run, want, sizeof want);
}

/* Positions [first, first + n) of the golden are a block; behind them it holds zeros. */
static void check_block(rg_checkpoint *c, int first, int n)
{
    const rg_kv from = rg_kv_open(&shape);
    float *k = values_of(c, "k"), *v = values_of(c, "v");
    uint8_t *open = calloc(1, rg_kv_bytes(&from)), *closed = malloc(rg_kv_bytes(&shape));
    uint8_t *k_codes = tensor(c, "kivi4.k.codes", RG_U8), *v_codes = tensor(c, "kivi4.v.codes", RG_U8);
    float *k_scale = tensor(c, "kivi4.k.scale", RG_F32), *k_min = tensor(c, "kivi4.k.min", RG_F32);
    float *v_scale = tensor(c, "kivi4.v.scale", RG_F32), *v_min = tensor(c, "kivi4.v.min", RG_F32);

    for (int h = 0; h < HEADS; h++)
        for (int i = 0; i < n; i++) {
            const rg_kv_place at = rg_kv_at(&from, open, h, i);
            const int row = (h * TOKENS + first + i) * CHANNELS;

            for (int d = 0; d < CHANNELS; d++)
                ((float *)(void *)at.k)[d * RG_BLOCK] = k[row + d];
            memcpy(at.v, v + row, CHANNELS * sizeof *v);
        }
    rg_kv_close(&shape, open, closed);
    for (int h = 0; h < HEADS; h++) {
        for (int g = 0; g < n / RG_KV_RUN; g++)
            for (int d = 0; d < CHANNELS; d++) { /* [head][group][dim] */
                const int group = (h * TOKENS + first) / RG_KV_RUN + g;

                same_group(rg_kv_at(&shape, closed, h, 0).k + (d * KV4_RUNS + g) * KV4_BYTES,
                           k_codes + group * RG_KV_RUN * CHANNELS + d, CHANNELS, k_scale[group * CHANNELS + d],
                           k_min[group * CHANNELS + d]);
            }
        for (int i = 0; i < n; i++)
            for (int g = 0; g < CHANNELS / RG_KV_RUN; g++) { /* [head][token][group] */
                const int group = (h * TOKENS + first + i) * (CHANNELS / RG_KV_RUN) + g;

                same_group(rg_kv_at(&shape, closed, h, i).v + g * KV4_BYTES, v_codes + group * RG_KV_RUN, 1, v_scale[group],
                           v_min[group]);
            }
    }
    void *all[] = { k, v, open, closed, k_codes, v_codes, k_scale, k_min, v_scale, v_min };
    for (size_t i = 0; i < RG_LEN(all); i++)
        free(all[i]);
}

static void codes_of_the_authors(void **state)
{
    rg_error err = { 0 };
    rg_checkpoint *c = rg_checkpoint_open(test_data("shrink/kvquant/cases.safetensors"), RG_CKPT_DEFAULT, &err);

    (void)state;
    assert_ok(c, err);
    check_block(c, 0, 64);
    check_block(c, 64, 32);
    rg_checkpoint_close(c);
}

/* Of n values the i-th is `bad`. */
static float first_back(float bad, int i, int n)
{
    uint8_t run[KV4_BYTES];
    float x[RG_KV_RUN], y[RG_KV_RUN];

    for (int k = 0; k < n; k++)
        x[k] = (float)k - 3.5f;
    x[i] = bad;
    kv4_encode(run, x, n);
    kv4_decode(y, run, n);
    for (int k = n; k < RG_KV_RUN; k++)
        assert_int_equal(code(run, k), 0);
    return y[0];
}

static void what_is_no_number(void **state)
{
    static const float broken[] = { NAN, INFINITY, -INFINITY, 65600.0f, -3e38f };
    uint8_t run[KV4_BYTES];
    float x[RG_KV_RUN];

    (void)state;
    for (size_t i = 0; i < RG_LEN(broken); i++)
        for (int n = 1; n <= RG_KV_RUN; n++)
            for (int at = 0; at < n; at++)
                assert_true(isnan(first_back(broken[i], at, n)));
    assert_true(isfinite(first_back(65504.0f, 3, 32)) && isfinite(first_back(-65504.0f, 0, 32)));
    for (int i = 0; i < RG_KV_RUN; i++) /* all alike: no division by a range of 0 */
        x[i] = 0.75f;
    kv4_encode(run, x, RG_KV_RUN);
    kv4_decode(x, run, RG_KV_RUN);
    for (int i = 0; i < RG_KV_RUN; i++)
        assert_true(x[i] == 0.75f);
}

/* Every run of a closed part has bytes of its own, and they fill it. */
static void places(void **state)
{
    static const rg_kv kinds[] = { { .type = RG_Q4_1, .n_heads = 3, .k_dim = 33, .v_dim = 40 },
                                   { .type = RG_Q4_1, .n_heads = 1, .k_dim = 72, .v_dim = 64, .latent = true },
                                   { .type = RG_Q4_1, .n_heads = 1, .k_dim = 40, .v_dim = 40, .latent = true } };

    (void)state;
    for (size_t c = 0; c < RG_LEN(kinds); c++) {
        const rg_kv *kv = &kinds[c], open = rg_kv_open(kv);
        const size_t bytes = rg_kv_bytes(kv), n_open = rg_kv_bytes(&open) / sizeof(float);
        const int v_runs = rg_kv_runs(rg_kv_v_values(kv));
        uint8_t *part = calloc(1, bytes);
        float *x = malloc(n_open * sizeof *x);

        for (int h = 0; h < kv->n_heads; h++)
            for (int i = 0; i < RG_BLOCK; i++) {
                const rg_kv_place at = rg_kv_at(kv, part, h, i);

                for (int r = 0; r < (kv->latent ? rg_kv_runs(kv->v_dim) : i ? 0 : KV4_RUNS * kv->k_dim); r++)
                    for (int b = 0; b < KV4_BYTES; b++)
                        at.k[r * KV4_BYTES + b]++;
                for (int b = 0; b < v_runs * KV4_BYTES; b++)
                    at.v[b]++;
            }
        for (size_t i = 0; i < bytes; i++)
            assert_int_equal(part[i], 1);
        for (size_t i = 0; i < n_open; i++)
            x[i] = (float)(i * 37 % 101) - 50.0f;
        rg_kv_close(kv, (const uint8_t *)x, part);
        for (int h = 0; h < kv->n_heads; h++) { /* the last value of V, within half a step of what it was */
            const int n = rg_kv_v_values(kv) ? rg_kv_v_values(kv) : rg_kv_k_values(kv), last = (n - 1) / RG_KV_RUN;
            const rg_kv_place at = rg_kv_at(kv, part, h, 63), was = rg_kv_at(&open, (uint8_t *)x, h, 63);
            const float *want = (const float *)(const void *)(rg_kv_v_values(kv) ? was.v : was.k);

            const float got = kv4_value((rg_kv_v_values(kv) ? at.v : at.k) + last * KV4_BYTES, (n - 1) % RG_KV_RUN);
            assert_true(fabsf(got - want[n - 1]) <= 100.0f / 15 / 2 + 0.05f);
        }
        free(part);
        free(x);
    }
    assert_true(rg_kv_value_bytes(RG_Q4_1) == 0.625 && rg_kv_bytes(&shape) == 2 * 64 * 128 * 5 / 8);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(codes_of_the_authors), cmocka_unit_test(what_is_no_number),
                                        cmocka_unit_test(places) };

    test_init(argc, argv);
    return cmocka_run_group_tests_name("kv", tests, NULL, NULL);
}
