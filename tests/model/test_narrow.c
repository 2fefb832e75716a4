/* test_narrow.c -- F16 weights whose values bf16 holds: the model is, to the bit, the model of the same weights in BF16,
 * in memory, from a pack cache and with experts in a file; a matrix with one value of more bits stays F16, or is
 * rounded if the recipe says so. */
#include "worlds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "ops/cpu/pack.h"

enum { N = 24 };

#define WIDER "blk.1.ffn_down_exps" /* the weight that may have a value of more bits */

static rg_type type_in(const rg_tensor *t, rg_type type)
{
    return t->n_dims < 2 ? t->type : type;
}

/* A matrix's values become such that bf16 and f16 hold. */
static void round_values(const rg_tensor *t, float *x, size_t n)
{
    for (size_t k = 0; t->n_dims >= 2 && k < n; k++)
        x[k] = rg_f16_to_f32(rg_f32_to_f16(rg_bf16_to_f32(rg_f32_to_bf16(x[k]))));
}

/* But the last one of WIDER, which has all the bits of f16. */
static void round_but_one(const rg_tensor *t, float *x, size_t n)
{
    round_values(t, x, n);
    if (!strcmp(t->name, WIDER ".weight"))
        x[n - 1] = 1.0f + 1.0f / 1024;
}

/* A golden's values, which bf16 may hold, become such that have all the bits of f16. */
static void round_to_f16(const rg_tensor *t, float *x, size_t n)
{
    for (size_t k = 0; t->n_dims >= 2 && k < n; k++)
        x[k] = rg_f16_to_f32(rg_f32_to_f16(x[k] * (1.0f + (float)(k % 7) / 1024)));
}

typedef void (*rounding)(const rg_tensor *t, float *x, size_t n);

/* A golden's matrices in `type`, their values rounded. */
static void write_model(const char *name, const char *to, rg_type type, rounding round)
{
    char from[64];
    rg_error err = { 0 };

    snprintf(from, sizeof from, "%s/model.gguf", name);
    rg_checkpoint *c = rg_checkpoint_open(test_data(from), RG_CKPT_DEFAULT, &err);
    assert_ok(c, err);
    rg_ckpt_writer *w = rg_gguf_create(to, &err);
    assert_ok(w, err);
    assert_ok(rg_ckpt_put_all(w, c, NULL, &err), err);
    for (int i = 0; i < rg_checkpoint_n_tensors(c); i++) {
        const rg_tensor *t = rg_checkpoint_tensor(c, i);

        assert_ok(rg_ckpt_declare(w, t->name, type_in(t, type), t->n_dims, t->shape, &err), err);
    }
    for (int i = 0; i < rg_checkpoint_n_tensors(c); i++) {
        const rg_tensor *t = rg_checkpoint_tensor(c, i);

        world_write(w, c, t, type_in(t, type), round);
    }
    assert_ok(rg_ckpt_commit(w, &err), err);
    rg_checkpoint_close(c);
}

static void open_as(test_model *t, const char *path, const rg_model_options *given)
{
    rg_model_options o = *given;
    rg_error err = { 0 };

    o.n_threads = 2;
    t->ckpt = rg_checkpoint_open(path, RG_CKPT_DEFAULT, &err);
    assert_ok(t->ckpt, err);
    t->m = rg_model_open(t->ckpt, &o, &err);
    assert_ok(t->m, err);
}

static void open_with(test_model *t, const char *path, const char *cache, size_t expert_bytes)
{
    open_as(t, path, &(rg_model_options){ .pack_cache = cache, .expert_bytes = expert_bytes });
}

/* ---- logits ------------------------------------------------------------------------------------------------------ */

/* Of N ids, half of them at once, then one by one.  free() them. */
static float *logits_of(const test_model *t, const rg_backend *backend, bool exact)
{
    return test_logits(t, &(test_rig_options){ .backend = backend, .n_threads = 2, .exact = exact, .max_rows = N,
                                               .max_seqs = 1, .max_len = N }, N / 2, 1);
}

/* The same bits by every recipe of every instruction set. */
static void expect_same_logits(const test_model *a, const test_model *b)
{
    const rg_backend *backend;

    for (int i = 0; (backend = test_backend(i)); i++)
        for (int exact = 0; exact < 2; exact++) {
            float *x = logits_of(a, backend, exact), *y = logits_of(b, backend, exact);

            assert_memory_equal(x, y, (size_t)N * (size_t)a->m->config.vocab_size * sizeof *x);
            free(x);
            free(y);
        }
}

/* ---- layouts ----------------------------------------------------------------------------------------------------- */

/* All matrices are BF16, but, with `wider`, that one. */
static void expect_layouts(const test_model *t, bool wider)
{
    const rg_weight_set *s = &t->m->weights;
    int n = 0;

    for (int i = 0; i < s->n; i++) {
        const rg_weight *w = &s->all[i];

        if (!w->placed)
            continue;
        const rg_type want = wider && !strcmp(w->name, WIDER) ? RG_F16 : RG_BF16;
        assert_int_equal(w->placed->type, want);
        assert_int_equal(rg_packed_of(w->placed)->layout, rg_format_of(want)->layout);
        n++;
    }
    assert_true(n > 10);
}

static void expect_same_bytes(const test_model *a, const test_model *b)
{
    for (int i = 0; i < a->m->weights.n; i++) {
        const rg_packed *p = rg_packed_of(a->m->weights.all[i].placed), *q = rg_packed_of(b->m->weights.all[i].placed);

        if (p && p->data && q->data) {
            assert_int_equal(p->placed.bytes, q->placed.bytes);
            assert_memory_equal(p->data, q->data, p->placed.bytes);
        }
    }
}

/* ---- the tests --------------------------------------------------------------------------------------------------- */

static void f16_of_bf16_is_bf16(void **state)
{
    static const char *const models[] = { "llama", "mixtral", "deepseek-v2" };

    (void)state;
    for (size_t i = 0; i < RG_LEN(models); i++) {
        char half[600], brain[600];
        test_model a, b;

        snprintf(half, sizeof half, "%s", test_scratch("half.gguf"));
        snprintf(brain, sizeof brain, "%s", test_scratch("brain.gguf"));
        write_model(models[i], half, RG_F16, round_values);
        write_model(models[i], brain, RG_BF16, round_values);
        open_with(&a, half, NULL, 0);
        open_with(&b, brain, NULL, 0);
        expect_layouts(&a, false);
        expect_same_bytes(&a, &b);
        expect_same_logits(&a, &b);
        test_model_close(&a);
        test_model_close(&b);
    }
}

/* The last value of the last expert decides for all of that weight, wherever its experts are. */
static void one_value_of_more_bits_keeps_f16(void **state)
{
    char path[600], cache[2][600];

    (void)state;
    for (int i = 0; i < 2; i++) {
        snprintf(cache[i], sizeof cache[i], "%s", test_scratch(i ? "apart" : "cache"));
        mkdir(cache[i], 0755);
    }
    for (int wider = 0; wider < 2; wider++) {
        test_model in_memory, other;

        snprintf(path, sizeof path, "%s", test_scratch(wider ? "wider.gguf" : "half.gguf"));
        write_model("mixtral", path, RG_F16, wider ? round_but_one : round_values);
        open_with(&in_memory, path, NULL, 0);
        expect_layouts(&in_memory, wider);
        for (int i = 0; i < 4; i++) { /* packed and written; read; the same with experts apart */
            open_with(&other, path, cache[i / 2], i < 2 ? 0 : 1 << 20);
            expect_layouts(&other, wider);
            expect_same_bytes(&in_memory, &other);
            if (i > 1)
                expect_same_logits(&in_memory, &other);
            test_model_close(&other);
        }
        test_model_close(&in_memory);
    }
}

static bool any_is_f16(const test_model *t)
{
    bool any = false;

    for (int i = 0; i < t->m->weights.n; i++)
        any = any || (t->m->weights.all[i].placed && t->m->weights.all[i].placed->type == RG_F16);
    return any;
}

/* With round16 the model is, to the bit, the model of a BF16 file that holds the rounded values: in memory, from a pack
 * cache that has both forms and with experts in a file. */
static void round16_is_bf16_rounded(void **state)
{
    static const char *const models[] = { "llama", "mixtral", "deepseek-v2" };
    char half[600], brain[600], cache[600];

    (void)state;
    snprintf(cache, sizeof cache, "%s", test_scratch("both"));
    mkdir(cache, 0755);
    snprintf(half, sizeof half, "%s", test_scratch("half.gguf"));
    snprintf(brain, sizeof brain, "%s", test_scratch("brain.gguf"));
    for (size_t i = 0; i < RG_LEN(models); i++) {
        test_model want, got;

        write_model(models[i], half, RG_F16, round_to_f16);
        write_model(models[i], brain, RG_BF16, round_to_f16);
        open_with(&want, brain, NULL, 0);
        for (int k = 0; k < 6; k++) { /* in memory, and packed and read again, each beside the file as it is */
            const size_t apart = k >= 4 && i > 0 ? 1 << 20 : 0;
            open_as(&got, half, &(rg_model_options){ .round16 = true, .pack_cache = k < 2 ? NULL : cache,
                                                     .expert_bytes = apart });
            expect_layouts(&got, false);
            expect_same_bytes(&got, &want);
            if (k % 2)
                expect_same_logits(&got, &want);
            test_model_close(&got);
            open_with(&got, half, k < 2 ? NULL : cache, apart);
            assert_true(any_is_f16(&got));
            test_model_close(&got);
        }
        test_model_close(&want);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f16_of_bf16_is_bf16),
        cmocka_unit_test(one_value_of_more_bits_keeps_f16),
        cmocka_unit_test(round16_is_bf16_rounded),
    };

    test_init(argc, argv);
    rg_log_set_level(RG_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
