/* Tests of the formats: decode and encode against the goldens, conversions of single values, quality of the encoders. */
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "ops/cpu/pack.h"
#include "quant/tensor.h"

/* The goldens file, read here by hand: this floor knows no checkpoints. */
static char *golden;
static size_t n_golden;

/* The bytes of a tensor of the goldens, NULL if there is none.  The header is regular enough for strstr. */
static const char *golden_tensor(const char *name, size_t *n)
{
    char key[64];
    const char *at;
    unsigned long long from, to, header;

    snprintf(key, sizeof key, "\"%s\":", name);
    memcpy(&header, golden, 8);
    at = strstr(golden + 8, key);
    if (!at || at > golden + 8 + header)
        return NULL;
    at = strstr(at, "\"data_offsets\":");
    if (!at || sscanf(at, "\"data_offsets\":[%llu,%llu]", &from, &to) != 2 || 8 + header + to > n_golden)
        return NULL;
    *n = (size_t)(to - from);
    return golden + 8 + header + from;
}

static int read_golden(void **state)
{
    rg_error err;

    (void)state;
    golden = rg_file_slurp(test_data("quants.safetensors"), 1 << 24, &n_golden, &err);
    return golden ? 0 : -1;
}

static int free_golden(void **state)
{
    (void)state;
    rg_free(golden);
    return 0;
}

static bool same_bits(float a, float b)
{
    return (isnan(a) && isnan(b)) || !memcmp(&a, &b, sizeof a);
}

static void decode_equals_golden(void **state)
{
    int n_found = 0;

    (void)state;
    for (int type = 0; type < RG_TYPE_COUNT; type++) {
        const rg_format *f = rg_format_of((rg_type)type);
        char name[64];
        size_t n_raw, n_want;
        const char *raw, *want;
        float *got;

        snprintf(name, sizeof name, "%s.raw", f->name);
        raw = golden_tensor(name, &n_raw);
        snprintf(name, sizeof name, "%s.f32", f->name);
        want = golden_tensor(name, &n_want);
        if (!raw || !want)
            continue;
        n_found++;
        assert_int_equal(n_want / 4 / (size_t)f->block_len, n_raw / (size_t)f->block_bytes);
        got = rg_alloc(n_want);
        f->decode(raw, (int64_t)(n_raw / (size_t)f->block_bytes), got);
        for (size_t i = 0; i < n_want / 4; i++) {
            float w;
            memcpy(&w, want + 4 * i, 4);
            if (!same_bits(w, got[i]))
                fail_msg("%s: value %zu is %.9g, want %.9g", f->name, i, (double)got[i], (double)w);
        }
        rg_free(got);
    }
    assert_int_equal(n_found, 26);
}

static void encode_equals_golden(void **state)
{
    static const rg_type types[] = { RG_F16,  RG_BF16, RG_Q4_0,  RG_Q4_1,  RG_Q5_0,
                                     RG_Q5_1, RG_Q8_0, RG_TQ1_0, RG_TQ2_0, RG_MXFP4 };
    size_t n_src;
    const char *src = golden_tensor("encode.src", &n_src);
    float *x;

    (void)state;
    assert_non_null(src);
    x = rg_alloc(n_src);
    memcpy(x, src, n_src);
    for (size_t i = 0; i < RG_LEN(types); i++) {
        const rg_format *f = rg_format_of(types[i]);
        char name[64];
        size_t n_want;
        const char *want;
        uint8_t *got;

        snprintf(name, sizeof name, "encode.%s", f->name);
        want = golden_tensor(name, &n_want);
        assert_non_null(want);
        assert_int_equal(n_src / 4 / (size_t)f->block_len * (size_t)f->block_bytes, n_want);
        got = rg_alloc(n_want);
        f->encode(x, (int64_t)(n_src / 4) / f->block_len, got);
        for (size_t k = 0; k < n_want; k++)
            if (got[k] != (uint8_t)want[k])
                fail_msg("%s: byte %zu is %02x, want %02x", f->name, k, got[k], (uint8_t)want[k]);
        rg_free(got);
    }
    rg_free(x);
}

static void table_is_found_by_every_name(void **state)
{
    rg_type type;

    (void)state;
    for (int i = 0; i < RG_TYPE_COUNT; i++) {
        const rg_format *f = rg_format_of((rg_type)i);
        assert_true(rg_type_by_name(f->name, &type) && (int)type == i);
        assert_true(f->gguf_id == RG_NO_GGUF ? !rg_type_by_gguf(f->gguf_id, &type)
                                             : rg_type_by_gguf(f->gguf_id, &type) && (int)type == i);
        if (f->safetensors)
            assert_true(rg_type_by_safetensors(f->safetensors, &type) && (int)type == i);
        assert_non_null(f->decode);
    }
    assert_true(rg_type_by_name("Q4_K", &type) && type == RG_Q4_K);
    assert_false(rg_type_by_name("q4", &type));
    assert_false(rg_type_by_gguf(4, &type));
    assert_false(rg_type_by_gguf(UINT32_MAX, &type));
    assert_false(rg_type_by_safetensors("q4_0", &type));
}

static void row_bytes_are_checked(void **state)
{
    uint64_t bytes;

    (void)state;
    assert_true(rg_row_bytes(RG_Q4_0, 64, &bytes) && bytes == 36);
    assert_true(rg_row_bytes(RG_Q6_K, 0, &bytes) && bytes == 0);
    assert_false(rg_row_bytes(RG_Q4_0, 33, &bytes));
    assert_false(rg_row_bytes(RG_F32, -1, &bytes));
    assert_false(rg_row_bytes(RG_F64, INT64_MAX, &bytes));
}

/* Every half goes to single and back; every half's neighbourhood rounds as arithmetic says it must. */
static void halves_round_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        float x = rg_f16_to_f32((uint16_t)h), b = rg_bf16_to_f32((uint16_t)h);
        if (isnan(x))
            assert_true(isnan(rg_f16_to_f32(rg_f32_to_f16(x))));
        else
            assert_int_equal(rg_f32_to_f16(x), h);
        if (isnan(b))
            assert_true(isnan(rg_bf16_to_f32(rg_f32_to_bf16(b))));
        else
            assert_int_equal(rg_f32_to_bf16(b), h);
    }
    for (uint32_t h = 0; h < 0x7bff; h++) {
        /* The middle of two neighbours is exact in f32: it goes to the even one, and the least step off it does not. */
        float low = rg_f16_to_f32((uint16_t)h), high = rg_f16_to_f32((uint16_t)(h + 1)), middle = (low + high) / 2.0f;
        assert_int_equal(rg_f32_to_f16(middle), h + (h & 1));
        assert_int_equal(rg_f32_to_f16(nextafterf(middle, 0.0f)), h);
        assert_int_equal(rg_f32_to_f16(-nextafterf(middle, INFINITY)), 0x8000 | (h + 1));
    }
    assert_true(rg_f16_to_f32(0x0001) == 0x1p-24f && rg_f16_to_f32(0x7bff) == 65504.0f);
    assert_int_equal(rg_f32_to_f16(65519.996f), 0x7bff);
    assert_int_equal(rg_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(rg_f32_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(rg_f32_to_bf16(3.4028235e38f), 0x7f80);
}

/* Every code of 8 bits decodes to its value, and values round to the codes that they should. */
static void floats_of_8_bits_equal_golden(void **state)
{
    static const struct {
        const char *name;
        float (*decode)(uint8_t v);
        uint8_t (*encode)(float x);
    } kinds[] = { { "f8_e4m3", rg_e4m3_to_f32, rg_f32_to_e4m3 }, { "f8_e5m2", rg_e5m2_to_f32, NULL } };
    const char *powers;
    size_t n;

    (void)state;
    for (size_t k = 0; k < RG_LEN(kinds); k++) {
        char name[64];
        const char *want, *in, *code;
        size_t n_in, n_code;

        snprintf(name, sizeof name, "%s.f32", kinds[k].name);
        want = golden_tensor(name, &n);
        snprintf(name, sizeof name, "%s.in", kinds[k].name);
        in = golden_tensor(name, &n_in);
        snprintf(name, sizeof name, "%s.code", kinds[k].name);
        code = golden_tensor(name, &n_code);
        assert_true(want && in && code && n == 256 * 4 && n_in == 4 * n_code);
        for (int i = 0; i < 256; i++) {
            float w;
            memcpy(&w, want + 4 * i, 4);
            assert_true(same_bits(w, kinds[k].decode((uint8_t)i)));
        }
        if (!kinds[k].encode)
            continue;
        for (size_t i = 0; i < n_code; i++) {
            float x;
            memcpy(&x, in + 4 * i, 4);
            assert_int_equal(kinds[k].encode(x), (uint8_t)code[i]);
        }
        assert_int_equal(kinds[k].encode(1e9f), kinds[k].encode(INFINITY)); /* the largest code, */
        assert_true(isfinite(kinds[k].decode(kinds[k].encode(-INFINITY))));
        assert_true(isnan(kinds[k].decode(kinds[k].encode(NAN)))); /* and nothing but NaN is NaN */
    }
    powers = golden_tensor("f8_e8m0.f32", &n);
    assert_true(powers && n == 256 * 4);
    for (int i = 1; i < 255; i++) {
        float w;
        memcpy(&w, powers + 4 * i, 4);
        assert_true(rg_e8m0_half_to_f32((uint8_t)i) == w / 2.0f);
    }
}

static double rms_error(rg_type type, const float *x, int n)
{
    const rg_format *f = rg_format_of(type);
    uint8_t *blocks = rg_zalloc((size_t)(n / f->block_len * f->block_bytes));
    float *y = rg_zalloc((size_t)n * sizeof *y);
    double sum = 0, all = 0;

    f->encode(x, n / f->block_len, blocks);
    f->decode(blocks, n / f->block_len, y);
    for (int i = 0; i < n; i++) {
        double miss = (double)x[i] - (double)y[i];
        sum += miss * miss;
        all += (double)x[i] * (double)x[i];
    }
    rg_free(blocks);
    rg_free(y);
    return sqrt(sum / all);
}

/* Formats of so few values that data of very different sizes is not met closely: three values, and the grids of IQ1 and
 * IQ2. */
static bool is_coarse(rg_type type)
{
    const char *name = rg_format_of(type)->name;

    return rg_layout_unfolded(rg_format_of(type)->layout) == RG_LAYOUT_Q2 || !strncmp(name, "iq1", 3) || !strncmp(name, "iq2", 3);
}

/* Relative errors on Gaussian values: of q4_0's 4.5 bits q4_k must make more, and each format must keep to a bound a
 * little above what a careful encoder reaches. */
static void encoders_are_good(void **state)
{
    static const struct {
        rg_type type;
        double most;
    } bounds[] = {
        { RG_Q2_K, 0.285 },  { RG_Q3_K, 0.159 },  { RG_Q4_K, 0.0745 }, { RG_Q5_K, 0.0371 },
        { RG_Q6_K, 0.0184 }, { RG_Q8_0, 0.0057 }, { RG_Q4_0, 0.089 },
        { RG_IQ4_NL, 0.080 }, { RG_IQ4_XS, 0.080 }, { RG_MXFP4, 0.13 }, { RG_NVFP4, 0.10 },
    };
    const int n = test_all() ? 1 << 16 : 1 << 13;
    rg_rng r = { .seed = test_seed };
    float *x = rg_alloc((size_t)n * sizeof *x);

    (void)state;
    for (int i = 0; i < n; i++)
        x[i] = rg_rng_normal(&r) * 0.02f;
    for (size_t i = 0; i < RG_LEN(bounds); i++) {
        double e = rms_error(bounds[i].type, x, n);
        print_message("    %s: relative error %.4f\n", rg_format_of(bounds[i].type)->name, e);
        assert_true(e < bounds[i].most);
    }
    assert_true(rms_error(RG_Q4_K, x, n) < 0.9 * rms_error(RG_Q4_0, x, n));
    assert_true(rms_error(RG_Q5_K, x, n) < rms_error(RG_Q5_0, x, n));
    assert_true(rms_error(RG_Q3_K, x, n) < rms_error(RG_Q2_K, x, n));
    assert_true(rms_error(RG_Q6_K, x, n) < rms_error(RG_Q5_K, x, n));
    for (int i = 0; i < n; i++) /* all of one sign, and of very different sizes */
        x[i] = fabsf(x[i]) * (float)(1 << i / 16 % 12);
    for (int type = 0; type < RG_TYPE_COUNT; type++)
        if (rg_format_of((rg_type)type)->encode)
            assert_true(rms_error((rg_type)type, x, n) < (is_coarse((rg_type)type) ? 1.0 : 0.35));
    rg_free(x);
}

/* Constants, zeros, subnormals, infinities, NaN: an encoder may lose them but must not trap; zeros stay zeros. */
static void encoders_take_anything(void **state)
{
    static const float odd[] = { 0.0f, -0.0f, 1.0f, -3e38f, 3e38f, INFINITY, -INFINITY, NAN, 1e-42f, 1e-20f, 65504.0f };
    rg_rng r = { .seed = test_seed };
    float x[256], y[256];
    uint8_t blocks[2048];

    (void)state;
    for (int type = 0; type < RG_TYPE_COUNT; type++) {
        const rg_format *f = rg_format_of((rg_type)type);
        if (!f->encode)
            continue;
        for (int round = 0; round < test_scale(300); round++) {
            for (int i = 0; i < 256; i++)
                x[i] = round < (int)RG_LEN(odd) ? odd[round] : odd[rg_rng_below(&r, RG_LEN(odd))];
            f->encode(x, 256 / f->block_len, blocks);
            f->decode(blocks, 256 / f->block_len, y);
            for (int i = 0; round < 2 && i < 256; i++)
                assert_true(y[i] == 0.0f);
            for (int i = 0; round == 2 && i < 256; i++)
                assert_true(fabsf(y[i] - 1.0f) < 0.01f);
        }
    }
}

static void integers_decode_to_their_value(void **state)
{
    int16_t a[2] = { -32768, 7 };
    int64_t b[2] = { -5, (int64_t)1 << 40 };
    double c[2] = { 0.1, 1e300 };
    float y[2];

    (void)state;
    rg_format_of(RG_I16)->decode(a, 2, y);
    assert_true(y[0] == -32768.0f && y[1] == 7.0f);
    rg_format_of(RG_I64)->decode(b, 2, y);
    assert_true(y[0] == -5.0f && y[1] == 0x1p40f);
    rg_format_of(RG_F64)->decode(c, 2, y);
    assert_true(y[0] == 0.1f && isinf(y[1]));
}

static void shapes_are_told(void **state)
{
    rg_tensor t = { .n_dims = 3, .shape = { 8, 320, 64, 1 } };
    char text[96];
    int64_t wide[4] = { INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN };

    (void)state;
    assert_int_equal(rg_tensor_count(&t), 8 * 320 * 64);
    assert_int_equal(rg_tensor_rows(&t), 8 * 320);
    assert_int_equal(rg_tensor_cols(&t), 64);
    assert_string_equal(rg_shape_text(t.shape, 3, text), "[8, 320, 64]");
    assert_string_equal(rg_shape_text(t.shape, 0, text), "[]");
    assert_true(strlen(rg_shape_text(wide, 4, text)) < 96);
    assert_int_equal(text[strlen(text) - 1], ']');
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode_equals_golden),
        cmocka_unit_test(encode_equals_golden),
        cmocka_unit_test(table_is_found_by_every_name),
        cmocka_unit_test(row_bytes_are_checked),
        cmocka_unit_test(halves_round_to_nearest_even),
        cmocka_unit_test(floats_of_8_bits_equal_golden),
        cmocka_unit_test(encoders_are_good),
        cmocka_unit_test(encoders_take_anything),
        cmocka_unit_test(integers_decode_to_their_value),
        cmocka_unit_test(shapes_are_told),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, read_golden, free_golden) ? 1 : 0;
}
