/* test_ref.c -- the reference panels against a product in double of the unpacked weights, and the row kernels against
 * their formulas. */
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "ops/cpu/ref/init.h"

static const rg_type types[] = { RG_F32,    RG_F16,    RG_BF16,   RG_Q4_0,     RG_Q4_1, RG_Q5_0,     RG_Q5_1,
                                 RG_Q8_0,   RG_Q2_K,   RG_Q3_K,   RG_Q4_K,     RG_Q5_K, RG_Q6_K,     RG_IQ4_NL,
                                 RG_IQ4_XS, RG_TQ2_0,  RG_MXFP4,  RG_NVFP4,    RG_ZP4,  RG_ZP4_128,  RG_ZP8,
                                 RG_ZP8_128,  RG_NF4,  RG_FP4,    RG_NVFP4_2,  RG_FP8,
                                 RG_TQ1_0,  RG_IQ3_XXS };

/* [rows, cols] of random weights in a type, packed. */
static void random_packed(rg_rng *rng, rg_packed *p, rg_type type, int rows, int cols)
{
    uint64_t bytes;
    float *x = rg_array((size_t)cols, sizeof *x);
    void *row;
    rg_error err;

    assert_ok(rg_packed_init(p, type, 1, rows, cols, &err), err);
    assert_true(rg_row_bytes(type, cols, &bytes));
    row = rg_alloc(bytes);
    for (int i = 0; i < rows; i++) {
        for (int k = 0; k < cols; k++)
            x[k] = rg_rng_normal(rng) * (0.5f + (float)i);
        rg_format_of(type)->encode(x, cols / rg_format_of(type)->block_len, row);
        rg_pack_row(p, 0, i, row);
    }
    rg_free(row);
    rg_free(x);
}

/* Largest |y - w . x| relative to the sum of |terms|, over the rows of a panel. */
static double error_of(const rg_packed *p, int rows, const float *x, const float *y)
{
    float *w = rg_array((size_t)p->placed.cols, sizeof *w);
    double worst = 0;

    for (int i = 0; i < rows; i++) {
        double sum = 0, terms = 0;

        rg_unpack_row(p, 0, i, w);
        for (int64_t k = 0; k < p->placed.cols; k++) {
            sum += (double)w[k] * (double)x[k];
            terms += fabs((double)w[k] * (double)x[k]);
        }
        worst = fmax(worst, fabs((double)y[i] - sum) / terms);
    }
    rg_free(w);
    return worst;
}

static void panels_are_products(void **state)
{
    static const int widths[] = { 256, 512, 2304 };
    rg_rng rng = { .seed = test_seed };
    rg_cpu cpu;

    (void)state;
    rg_cpu_init_ref(&cpu);
    for (size_t t = 0; t < RG_LEN(types); t++)
        for (size_t c = 0; c < RG_LEN(widths); c++) {
            int cols = widths[c], rows = c == 1 ? 5 : 16;
            rg_packed p;
            float *x = rg_array((size_t)cols * 3, sizeof *x), y[3 * 20];
            rg_xblock *q = rg_array((size_t)cols / 32 * 3, sizeof *q);

            /* The int8 recipe rounds a table of reals; and of three values most are 0, so that fewer errors cancel. */
            const rg_layout layout = rg_format_of(types[t])->layout;
            const double table = layout == RG_LAYOUT_T4F ? 1e-2 : 0;
            const double more = rg_layout_unfolded(layout) == RG_LAYOUT_Q2 ? 1e-2 : table;

            random_packed(&rng, &p, types[t], rows, cols);
            for (int k = 0; k < cols * 3; k++)
                x[k] = rg_rng_normal(&rng);
            const rg_layout product = rg_layout_unfolded(layout);
            uint8_t *unfolded = rg_alloc(rg_unfolded_bytes(layout, cols) + 1);

            if (product != layout)
                rg_unfold(layout, p.data, cols, unfolded);
            rg_product exact = { .panel = product != layout ? unfolded : p.data, .n_panels = 1, .cols = cols, .m = 3,
                                 .x = x, .ldx = (size_t)cols, .y = y, .ldy = 20 };
            rg_product fast = exact;

            fast.x = NULL;
            fast.q = q;
            fast.ldx = (size_t)cols / 32;
            cpu.product[RG_EXACT][product](&exact);
            for (int r = 0; r < 3; r++)
                assert_true(error_of(&p, rows, x + (size_t)r * (size_t)cols, y + r * 20) < 2e-6);
            if (rows < 16)
                assert_true(y[rows] == 0.0f && y[15] == 0.0f);
            if (cpu.product[RG_INT8][product]) {
                for (int r = 0; r < 3; r++)
                    cpu.quantize(x + (size_t)r * (size_t)cols, cols, q + (size_t)r * (size_t)(cols / 32));
                cpu.product[RG_INT8][product](&fast);
                for (int r = 0; r < 3; r++)
                    assert_true(error_of(&p, rows, x + (size_t)r * (size_t)cols, y + r * 20) < 2e-3 + more);
                /* against the rounded activations it is exact but for the sum's own rounding */
                for (int k = 0; k < cols; k++)
                    x[k] = (float)q[k / 32].q[k % 32] * q[k / 32].d;
                assert_true(error_of(&p, rows, x, y) < 1e-5 + table);
            }
            rg_packed_fini(&p);
            rg_free(x);
            rg_free(q);
            rg_free(unfolded);
        }
}

enum { BF16_COLS = 384 };

/* The bf16 recipes that the layout has, of 16 rows of w, of which a panel is made, by one row of x; how many they are. */
static int bf16_products(const rg_packed *p, const float *x, float y[2][16])
{
    rg_cpu cpu;
    int n = 0;
    uint16_t h[BF16_COLS];
    rg_product product = { .panel = p->data, .n_panels = 1, .cols = BF16_COLS, .m = 1, .h = h, .ldx = BF16_COLS, .ldy = 16 };

    rg_cpu_init_ref(&cpu);
    for (int k = 0; k < BF16_COLS; k++)
        h[k] = rg_f32_to_bf16(x[k]);
    for (; n < 2 && cpu.product[RG_BF16_PAIRS + n][p->layout]; n++) {
        product.y = y[n];
        cpu.product[RG_BF16_PAIRS + n][p->layout](&product);
    }
    return n;
}

static void bf16_recipes_are_products(void **state)
{
    static const struct { rg_type type; int n; } of[] = { { RG_BF16, 2 }, { RG_FP8, 2 } };
    rg_rng rng = { .seed = test_seed };
    float x[BF16_COLS], y[2][16];

    (void)state;
    for (size_t t = 0; t < RG_LEN(of); t++) {
        rg_packed p;

        random_packed(&rng, &p, of[t].type, 16, BF16_COLS);
        for (int k = 0; k < BF16_COLS; k++)
            x[k] = rg_rng_normal(&rng);
        assert_int_equal(bf16_products(&p, x, y), of[t].n);
        for (int i = 0; i < of[t].n; i++)
            assert_true(error_of(&p, 16, x, y[i]) < 1e-3);
        for (int k = 0; k < BF16_COLS; k++) /* against the rounded activations it is exact but for the sum's own rounding */
            x[k] = rg_bf16_to_f32(rg_f32_to_bf16(x[k]));
        bf16_products(&p, x, y);
        for (int i = 0; i < of[t].n; i++)
            assert_true(error_of(&p, 16, x, y[i]) < 1e-6);
        assert_true(of[t].n < 2 || memcmp(y[0], y[1], sizeof y[0]) != 0); /* they are two */
        rg_packed_fini(&p);
    }
}

/* By hand.  Subnormal operands count as 0; 2^-126 - 0.75 2^-150 stays below 2^-126 in 24 bits, and goes. */
static void bf16_recipes_flush(void **state)
{
    float w[BF16_COLS] = { -0x1.8p-75f, 0x1p-63f, 0, 0, 0x1p-63f, 0, -0x1.8p-75f };
    float x[BF16_COLS] = { 0x1p-76f, 0x1p-63f, 0, 0, 0x1p-63f, 0, 0x1p-76f }, y[2][16];
    uint16_t row[BF16_COLS];
    rg_packed p;
    rg_error err;

    (void)state;
    w[40] = 0x1p-127f; /* subnormal: nothing, even times 2^100 */
    x[40] = 0x1p100f;
    w[73] = 0x1p-70f; /* a product that is */
    x[73] = 0x1p-58f;
    assert_ok(rg_packed_init(&p, RG_BF16, 1, 16, BF16_COLS, &err), err);
    for (int i = 0; i < 16; i++) {
        w[200] = (float)i;
        x[200] = 0x1p-100f;
        for (int k = 0; k < BF16_COLS; k++)
            row[k] = rg_f32_to_bf16(w[k]);
        rg_pack_row(&p, 0, i, row);
    }
    bf16_products(&p, x, y);
    assert_true(y[0][0] == 0x1p-126f && y[1][0] == 0x1p-126f);
    for (int i = 1; i < 16; i++)
        assert_true(y[0][i] == (float)i * 0x1p-100f && y[1][i] == (float)i * 0x1p-100f);
    rg_packed_fini(&p);
}

static void quantize_keeps_its_sums(void **state)
{
    rg_rng rng = { .seed = test_seed };
    rg_cpu cpu;
    float x[64];
    rg_xblock q[2];

    (void)state;
    rg_cpu_init_ref(&cpu);
    for (int n = 0; n < 200; n++) {
        int sum[2] = { 0 };

        for (int k = 0; k < 64; k++)
            x[k] = n == 0 ? 0.0f : rg_rng_normal(&rng) * (n == 1 ? 1e-41f : n == 2 ? 1e38f : 3.0f);
        cpu.quantize(x, 64, q);
        for (int k = 0; k < 32; k++) {
            sum[k / 16] += q[1].q[k];
            assert_true(fabsf(x[32 + k] - q[1].d * q[1].q[k]) <= 0.5001f * q[1].d || n == 1);
        }
        assert_int_equal(q[1].neg8, -8 * (sum[0] + sum[1]));
        assert_int_equal(q[1].neg128, -128 * (sum[0] + sum[1]));
        assert_int_equal(q[1].neg128h[1], -128 * sum[1]);
        assert_true(q[1].s == q[1].d * (float)(sum[0] + sum[1]) && q[1].sh[0] == q[1].d * (float)sum[0]);
    }
    x[3] = NAN;
    x[40] = INFINITY;
    cpu.quantize(x, 64, q); /* defined, whatever it gives */
    assert_true(isinf(q[1].d));
}

static void stored_values_agree_with_formats(void **state)
{
    rg_rng rng = { .seed = test_seed };
    rg_cpu cpu;

    (void)state;
    rg_cpu_init_ref(&cpu);
    for (uint32_t i = 0; i < 0x10000; i++) {
        uint16_t h = (uint16_t)i, back;
        float y, z = rg_f16_to_f32(h);

        cpu.load(&y, &h, NULL, RG_F16, 1);
        assert_true(y == z || (isnan(y) && isnan(z)));
        cpu.load(&y, &h, NULL, RG_BF16, 1);
        z = rg_bf16_to_f32(h);
        assert_true(y == z || (isnan(y) && isnan(z)));
        z = (rg_rng_normal(&rng)) * (i % 3 ? 1.0f : 1e-40f);
        cpu.store(&back, NULL, RG_BF16, 1, &z, 1);
        assert_int_equal(back, rg_f32_to_bf16(z));
        cpu.store(&back, NULL, RG_F16, 1, &z, 1);
        assert_int_equal(back, rg_f32_to_f16(z));
    }
}

static void norm_and_rotation(void **state)
{
    rg_rng rng = { .seed = test_seed };
    float x[37], w[37], y[37], c[8], s[8], a[16], b[16];
    double sum = 0;
    rg_cpu cpu;

    (void)state;
    rg_cpu_init_ref(&cpu);
    for (int i = 0; i < 37; i++) {
        x[i] = rg_rng_normal(&rng);
        w[i] = rg_rng_normal(&rng);
        sum += (double)x[i] * x[i];
    }
    cpu.rmsnorm(y, x, w, 37, 1e-5f);
    for (int i = 0; i < 37; i++)
        assert_true(fabs(y[i] - x[i] / sqrt(sum / 37 + 1e-5) * w[i]) < 1e-6);
    for (int i = 0; i < 8; i++) {
        c[i] = cosf((float)i);
        s[i] = sinf((float)i);
    }
    for (int i = 0; i < 16; i++)
        a[i] = b[i] = x[i];
    cpu.rotate(a, c, s, 8, true);
    cpu.rotate(b, c, s, 8, false);
    for (int i = 0; i < 8; i++) {
        assert_true(fabsf(a[2 * i] - (x[2 * i] * c[i] - x[2 * i + 1] * s[i])) < 1e-6f);
        assert_true(fabsf(a[2 * i + 1] - (x[2 * i + 1] * c[i] + x[2 * i] * s[i])) < 1e-6f);
        assert_true(fabsf(b[i] - (x[i] * c[i] - x[i + 8] * s[i])) < 1e-6f);
        assert_true(fabsf(b[i + 8] - (x[i + 8] * c[i] + x[i] * s[i])) < 1e-6f);
    }
}

/* Keys that are not seen may hold anything; a block without a score that is a number gives none. */
static void attend_ignores_the_unseen(void **state)
{
    const float query[3] = { 1, 2, 3 }, *q[1] = { query };
    float k[3 * 64], v[64 * 2], o[2] = { 5, 7 }, o2[2] = { 5, 7 };
    rg_attend a = {
        .q = q, .n = 1, .k = k, .v = v, .type = RG_F32, .k_dim = 3, .v_dim = 2, .v_stride = 2, .seen = 0x1400, .scale = 0.5f
    };
    rg_softmax s = { .m = 0.25f, .l = 2.0f, .o = o }, t = { .m = 0.25f, .l = 2.0f, .o = o2 };
    rg_cpu cpu;

    (void)state;
    rg_cpu_init_ref(&cpu);
    for (int i = 0; i < 3 * 64; i++)
        k[i] = i % 64 == 10 || i % 64 == 12 ? 0.1f * (float)i : NAN;
    for (int i = 0; i < 128; i++)
        v[i] = i / 2 == 10 || i / 2 == 12 ? (float)i : NAN;
    cpu.attend(&a, &s);
    assert_true(isfinite(s.m) && isfinite(s.l) && isfinite(o[0]) && isfinite(o[1]));
    for (int i = 0; i < 3 * 64; i++)
        k[i] = i / 64 ? 0.0f : -INFINITY;
    t.m = -INFINITY;
    cpu.attend(&a, &t);
    assert_true(isnan(t.m) && isnan(t.l) && isnan(o2[0]) && isnan(o2[1]));
}

/* Attention sparsity: a block whose weights are all below the threshold leaves no trace, and its V is not read; a query
 * beside it that has one above takes part. */
static void attend_leaves_out_the_small(void **state)
{
    static float k[16 * 64], v[64 * 8];
    rg_cpu cpu;

    (void)state;
    for (int n_cpu = 0; rg_cpu_nth(n_cpu); n_cpu++) {
        cpu = *rg_cpu_nth(n_cpu);
        float query[9][16] = { { 0 } }, o[9][8], m[9];
        const float *q[9];
        rg_softmax s[9];
        rg_attend a = { .q = q, .n = 9, .k = k, .v = v, .type = RG_F32, .k_dim = 16, .v_dim = 8, .v_stride = 8,
                        .seen = ~0ull, .scale = 1.0f, .below = -5.0f, .k_next = k, .v_next = k };

        for (int j = 0; j < 64; j++)
            for (int d = 0; d < 16; d++)
                k[d * 64 + j] = d == 0 ? (j == 40 ? 2.0f : 1.0f) : 0.0f;
        for (int i = 0; i < 9; i++) { /* its best score is 2; what it knows: 6.9 or 7.1 of m, or of top */
            query[i][0] = 1.0f;
            q[i] = query[i];
            m[i] = i % 3 == 0 ? 6.9f : 7.1f;
            s[i] = (rg_softmax){ .m = i % 2 ? m[i] : 0.0f, .l = 1.5f, .o = o[i], .top = i % 2 ? -INFINITY : m[i] };
            for (int d = 0; d < 8; d++)
                o[i][d] = d ? -0.0f : 3.0f;
        }
        for (int i = 0; i < 64 * 8; i++)
            v[i] = 1.0f;
        cpu.attend(&a, s);
        for (int i = 0; i < 9; i++) {
            const bool takes_part = i % 3 == 0;

            assert_true((s[i].l > 1.5f || s[i].m == 2.0f) == takes_part);
            assert_true((o[i][1] > 0) == takes_part && (takes_part || (signbit(o[i][1]) && o[i][0] == 3.0f)));
            assert_true(takes_part || s[i].m == (i % 2 ? m[i] : 0.0f));
        }
        for (int i = 0; i < 64 * 8; i++) /* as is seen where all leave it out */
            v[i] = NAN;
        for (int i = 0; i < 9; i++)
            s[i] = (rg_softmax){ .m = 7.1f, .l = 1.5f, .o = o[i], .top = -INFINITY };
        memset(o, 0, sizeof o);
        cpu.attend(&a, s);
        for (int i = 0; i < 9; i++)
            assert_true(s[i].l == 1.5f && o[i][0] == 0 && o[i][7] == 0);
        for (int j = 0; j < 64; j++)
            k[j] = j == 40 ? NAN : 1.0f;
        cpu.attend(&a, s); /* what is no number is not passed over */
        assert_true(isnan(s[0].l));
        a.looks = true;
        a.n = 1;
        cpu.attend(&a, s + 1);
        assert_true(s[1].top == 1.0f);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(panels_are_products),
        cmocka_unit_test(bf16_recipes_are_products),
        cmocka_unit_test(bf16_recipes_flush),
        cmocka_unit_test(quantize_keeps_its_sums),
        cmocka_unit_test(stored_values_agree_with_formats),
        cmocka_unit_test(norm_and_rotation),
        cmocka_unit_test(attend_ignores_the_unseen),
        cmocka_unit_test(attend_leaves_out_the_small),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests_name("ref", tests, NULL, NULL);
}
