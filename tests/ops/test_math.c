/* test_math.c -- our exp, log, tanh and their kin against the real ones in long double. */
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/math.h"

/* Distance of y from want in units of the last place of want as a float, subnormals counting in units of 2^-149. */
static double ulps(float y, long double want)
{
    int e;

    if (y == want)
        return 0;
    frexpl(want, &e);
    e = e < -125 ? -125 : e;
    return (double)fabsl(((long double)y - want) / ldexpl(1.0L, e - 24));
}

/* Every 997th float of a range, by bits. */
static double worst(float from, float to, float (*f)(float), long double (*real)(long double))
{
    uint32_t a = rg_bits_of(fabsf(from) < fabsf(to) ? from : to), b = rg_bits_of(fabsf(from) < fabsf(to) ? to : from);
    double most = 0;

    for (uint64_t i = a; i <= b; i += 997) {
        double u = ulps(f(rg_float_of((uint32_t)i)), real(rg_float_of((uint32_t)i)));
        if (!(u <= most))
            most = u;
    }
    return most;
}

static long double real_silu(long double x)
{
    return x / (1 + expl(-x));
}

static long double real_gelu(long double x)
{
    return x / (1 + expl(-2 * 0.79788456080286535587989211986876L * (x + 0.044715L * x * x * x)));
}

static long double real_erf_gelu(long double x)
{
    return x * erfcl(-x * 0.70710678118654752440084436210485L) / 2;
}

static long double real_sigmoid(long double x)
{
    return 1 / (1 + expl(-x));
}

static long double real_softplus(long double x)
{
    return (x > 0 ? x : 0) + log1pl(expl(-fabsl(x)));
}

static void exp_is_near(void **state)
{
    (void)state;
    assert_true(worst(1e-30f, 88.72f, rg_expf, expl) <= 1.5);
    assert_true(worst(-1e-30f, -87.3f, rg_expf, expl) <= 1.5);
    assert_true(worst(-87.3f, -106.0f, rg_expf, expl) <= 1.5); /* subnormal results */
    assert_true(rg_expf(0.0f) == 1.0f && rg_expf(-0.0f) == 1.0f);
    assert_true(rg_expf(-INFINITY) == 0.0f && rg_expf(-1e30f) == 0.0f);
    assert_true(isinf(rg_expf(INFINITY)) && isinf(rg_expf(88.73f)) && isinf(rg_expf(1e30f)));
    assert_true(isnan(rg_expf(NAN)));
}

static void log_is_near(void **state)
{
    (void)state;
    assert_true(worst(1e-45f, 3.4e38f, rg_logf, logl) <= 2.0);
    assert_true(worst(0.9f, 1.1f, rg_logf, logl) <= 2.0);
    assert_true(rg_logf(1.0f) == 0.0f && isinf(rg_logf(0.0f)) && rg_logf(0.0f) < 0);
    assert_true(isinf(rg_logf(INFINITY)) && isnan(rg_logf(NAN)) && isnan(rg_logf(-1.0f)));
}

static void tanh_is_near(void **state)
{
    (void)state;
    assert_true(worst(1e-30f, 100.0f, rg_tanhf, tanhl) <= 2.0);
    assert_true(worst(-1e-30f, -100.0f, rg_tanhf, tanhl) <= 2.0);
    assert_true(rg_tanhf(INFINITY) == 1.0f && rg_tanhf(-INFINITY) == -1.0f && isnan(rg_tanhf(NAN)));
}

static void activations_are_near(void **state)
{
    (void)state;
    assert_true(worst(1e-30f, 80.0f, rg_siluf, real_silu) <= 3.0);
    assert_true(worst(-1e-30f, -80.0f, rg_siluf, real_silu) <= 3.0);
    assert_true(worst(1e-30f, 30.0f, rg_gelu_tanhf, real_gelu) <= 3.0);
    /* the exponent's own rounding shows in the tail */
    assert_true(worst(-1e-30f, -1.0f, rg_gelu_tanhf, real_gelu) <= 4.0);
    assert_true(worst(-1.0f, -8.0f, rg_gelu_tanhf, real_gelu) <= 100.0);
    assert_true(worst(1e-30f, 100.0f, rg_softplusf, real_softplus) <= 2.0);
    assert_true(worst(-1e-30f, -86.0f, rg_softplusf, real_softplus) <= 3.0);
    assert_true(rg_softplusf(-INFINITY) == 0.0f && isinf(rg_softplusf(INFINITY)) && isnan(rg_softplusf(NAN)));
}

/* By erf: near 0, and far out, where it is the tail of a distribution. */
static void gelu_is_near(void **state)
{
    (void)state;
    assert_true(worst(1e-37f, 100.0f, rg_geluf, real_erf_gelu) <= 2.0);
    assert_true(worst(-1e-37f, -0.69f, rg_geluf, real_erf_gelu) <= 3.0);
    assert_true(worst(-0.69f, -13.0f, rg_geluf, real_erf_gelu) <= 6.0);
    assert_true(rg_geluf(0.0f) == 0.0f && rg_geluf(-20.0f) == 0.0f && rg_geluf(-1e30f) == 0.0f);
    assert_true(isinf(rg_geluf(INFINITY)) && isnan(rg_geluf(NAN)));
}

static void gates_are_near(void **state)
{
    (void)state;
    assert_true(worst(1e-30f, 100.0f, rg_sigmoidf, real_sigmoid) <= 2.0);
    assert_true(worst(-1e-30f, -87.0f, rg_sigmoidf, real_sigmoid) <= 3.0);
    assert_true(rg_sigmoidf(INFINITY) == 1.0f && rg_sigmoidf(-INFINITY) == 0.0f && isnan(rg_sigmoidf(NAN)));
    assert_true(rg_reluf(3.0f) == 3.0f && rg_reluf(-3.0f) == 0.0f && rg_reluf(-INFINITY) == 0.0f);
    assert_true(rg_relu2f(3.0f) == 9.0f && rg_relu2f(-3.0f) == 0.0f && rg_relu2f(-INFINITY) == 0.0f);
    assert_true(isnan(rg_reluf(NAN)) && isnan(rg_reluf(-NAN)) && isnan(rg_relu2f(NAN)) && isnan(rg_relu2f(-NAN)));
}

static void sincos_is_right_as_float(void **state)
{
    rg_rng rng = { .seed = test_seed };

    (void)state;
    for (int i = 0; i < 200000; i++) {
        double x = (rg_rng_unit(&rng) * 2.0 - 1.0) * (i % 2 ? 1e7 : 10.0), s, c;

        rg_sincos(x, &s, &c);
        assert_true(fabs(s - sin(x)) < 2e-13 && fabs(c - cos(x)) < 2e-13);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_is_near),
        cmocka_unit_test(log_is_near),
        cmocka_unit_test(tanh_is_near),
        cmocka_unit_test(activations_are_near),
        cmocka_unit_test(gelu_is_near),
        cmocka_unit_test(gates_are_near),
        cmocka_unit_test(sincos_is_right_as_float),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests_name("math", tests, NULL, NULL);
}
