/* test_cost.c -- seconds of operations from counts and a machine, with made-up rates: each term by itself, by hand. */
#include <math.h>

#include "support/profile.h"
#include "support/test.h"

#include "measure/cost.h"

static rg_profile profile;
static rg_machine machine = { .rates = &profile.rates };

static int open_profile(void **state)
{
    (void)state;
    test_profile(&profile, 2);
    machine.roofs = profile.roofs;
    return 0;
}

static void is_about(double got, double want)
{
    if (!(fabs(got - want) <= 1e-9 * fabs(want))) {
        print_error("%.12g is not %.12g\n", got, want);
        fail();
    }
}

/* One operation, without what a step costs. */
static double seconds(const rg_machine *m, const rg_counted *op, bool exact)
{
    rg_cost cost;

    rg_cost_list(m, op, 1, exact, &cost);
    return cost.seconds - (m->rates ? m->rates->step_s : 0);
}

static void roofs_alone(void **state)
{
    const rg_machine roofs = { .roofs = profile.roofs };
    rg_counted op = { .kind = RG_OP_LINEAR, .rows = 1, .count = { .ops = 100e9, .weight_bytes = 30e9, .state_bytes = 10e9 } };
    rg_cost cost;

    (void)state;
    is_about(seconds(&roofs, &op, false), 2);
    op.count.ops = 500e9;
    is_about(seconds(&roofs, &op, false), 5);
    op.w[0] = (rg_counted_weight){ RG_BF16, 1 };
    is_about(seconds(&roofs, &op, false), 2.5);
    is_about(seconds(&roofs, &op, true), 5);
    op.w[0].type = RG_Q8_0;
    is_about(seconds(&roofs, &op, false), 2); /* 1.25 of arithmetic */
    rg_cost_list(&roofs, &op, 1, true, &cost);
    is_about(cost.compute_s, cost.limit_s);
    assert_true(cost.seconds == cost.limit_s && cost.fixed_s == 0);
}

/* With sizes between two that were measured, the time of a byte is between theirs. */
static void bandwidth_by_size(void **state)
{
    const rg_machine roofs = { .roofs = profile.roofs };
    const rg_rates *r = &profile.rates;

    (void)state;
    for (int i = 0; i < RG_RATE_SETS; i++)
        is_about(rg_machine_bandwidth(&machine, rg_rate_sets[i]), r->set_bytes_s[i]);
    is_about(rg_machine_bandwidth(&machine, 0), r->set_bytes_s[0]);
    is_about(rg_machine_bandwidth(&machine, 1e12), r->set_bytes_s[RG_RATE_SETS - 1]);
    is_about(1 / rg_machine_bandwidth(&machine, 0x3p20), 0.5 / r->set_bytes_s[3] + 0.5 / r->set_bytes_s[4]);
    is_about(rg_machine_bandwidth(&roofs, 1 << 20), 20e9);
}

/* Of each weight what its layout and recipe take, by rows; a value that is added to takes more. */
static void products_by_rows(void **state)
{
    const rg_product_rate *q4 = &profile.rates.product[false][RG_LAYOUT_Q4], *exact = &profile.rates.product[true][RG_LAYOUT_Q4];
    const rg_product_rate *bf16 = &profile.rates.product[false][RG_LAYOUT_BF16];
    const double fixed = profile.rates.fixed_s[RG_OP_LINEAR];
    rg_counted op = { .kind = RG_OP_LINEAR, .rows = 1, .w[0] = { RG_Q4_0, 1e6 } };

    (void)state;
    is_about(seconds(&machine, &op, false), fixed + 1e6 * q4->value_s[RG_NEAR][0]);
    is_about(seconds(&machine, &op, true), fixed + 1e6 * exact->value_s[RG_NEAR][0]);
    op.w[1] = (rg_counted_weight){ RG_BF16, 2e6 };
    is_about(seconds(&machine, &op, false), fixed + 1e6 * q4->value_s[RG_NEAR][0] + 2e6 * bf16->value_s[RG_NEAR][0]);
    op.w[1].values = 0;
    op.rows = 12; /* between 8 and 16 */
    is_about(seconds(&machine, &op, false), fixed + 1e6 * (q4->value_s[RG_NEAR][7] + q4->value_s[RG_NEAR][8]) / 2);
    op.rows = 1280; /* ten times the most */
    is_about(seconds(&machine, &op, false), fixed + 1e7 * q4->value_s[RG_NEAR][RG_RATE_ROWS - 1]);
    op.cells = 1000;
    is_about(seconds(&machine, &op, false),
             fixed + 1e7 * q4->value_s[RG_NEAR][RG_RATE_ROWS - 1] + 1000 * profile.rates.cell_s[RG_OP_LINEAR]);
}

/* Where sums are short, and where much is rounded for few sums, a product takes longer than its weights alone. */
static void products_by_shape(void **state)
{
    const rg_product_rate *q4 = &profile.rates.product[false][RG_LAYOUT_Q4], *exact = &profile.rates.product[true][RG_LAYOUT_Q4];
    const double fixed = profile.rates.fixed_s[RG_OP_LINEAR];
    rg_counted op = { .kind = RG_OP_LINEAR, .rows = 8, .w[0] = { RG_Q4_0, 1e6 }, .outs = 3e4 };

    (void)state;
    is_about(seconds(&machine, &op, false), fixed + 1e6 * q4->value_s[RG_NEAR][7] + 3e4 * q4->out_s[1]);
    op.ins = 5e4;
    is_about(seconds(&machine, &op, false),
             fixed + 1e6 * q4->value_s[RG_NEAR][7] + 3e4 * q4->out_s[1] + 5e4 * q4->in_s);
    is_about(seconds(&machine, &op, true), fixed + 1e6 * exact->value_s[RG_NEAR][7] + 3e4 * exact->out_s[1]);
    op.rows = 6; /* between 4 and 8 */
    is_about(seconds(&machine, &op, true),
             fixed + 1e6 * exact->value_s[RG_NEAR][5] + 3e4 * (exact->out_s[0] + exact->out_s[1]) / 2);
    op.n_rows = 6; /* threads wait for each other */
    is_about(seconds(&machine, &op, true) - 1e6 * exact->value_s[RG_NEAR][5] -
             3e4 * (exact->out_s[0] + exact->out_s[1]) / 2, profile.rates.shared_s[RG_OP_LINEAR]);
}

/* What all operations of a step read together says where it comes from. */
static void products_by_place(void **state)
{
    const rg_product_rate *q4 = &profile.rates.product[false][RG_LAYOUT_Q4];
    const double fixed = profile.rates.fixed_s[RG_OP_LINEAR];

    (void)state;
    for (int place = 0; place < RG_RATE_PLACES; place++) {
        const double set = rg_rate_sets[rg_rate_place_set[place]];
        rg_counted ops[2] = { { .kind = RG_OP_LINEAR, .rows = 1, .w[0] = { RG_Q4_0, 1e6 } },
                              { .kind = RG_OP_ADD, .count = { .weight_bytes = set } } };
        rg_cost both, one;
        rg_cost_list(&machine, ops, 2, false, &both);
        rg_cost_list(&machine, ops + 1, 1, false, &one);
        is_about(both.seconds - one.seconds, fixed + 1e6 * q4->value_s[place][0]);
    }
    /* Between two places by what a byte takes. */
    rg_counted between = { .kind = RG_OP_LINEAR, .rows = 1, .w[0] = { RG_Q4_0, 1e8 }, .count = { .weight_bytes = 0x4p20 } };
    double near = 1 / profile.rates.set_bytes_s[2], cache = 1 / profile.rates.set_bytes_s[5];
    double x = (1 / profile.rates.set_bytes_s[4] - near) / (cache - near);
    is_about(seconds(&machine, &between, false),
             fixed + 1e8 * ((1 - x) * q4->value_s[RG_NEAR][0] + x * q4->value_s[RG_IN_CACHE][0]));
}

static void the_longer_of_bytes_and_arithmetic(void **state)
{
    rg_counted op = { .kind = RG_OP_LINEAR, .rows = 1, .w[0] = { RG_Q4_0, 1 }, .count = { .weight_bytes = 20e9 } };

    (void)state;
    is_about(seconds(&machine, &op, false), profile.rates.fixed_s[RG_OP_LINEAR] + 1); /* 20e9 a second */
    op.w[0].values = 1e12;
    assert_true(seconds(&machine, &op, false) > 2);
}

static void attention_by_queries(void **state)
{
    const rg_attention_rate *kv = &profile.rates.attention[false][RG_BF16], *latent = &profile.rates.attention[true][RG_BF16];
    rg_counted op = { .kind = RG_OP_ATTENTION, .rows = 1, .cells = 10, .whole = 1e6, .width = 128, .type = RG_BF16 };
    const double fixed = profile.rates.fixed_s[RG_OP_ATTENTION];

    (void)state;
    is_about(seconds(&machine, &op, false), fixed + 1e6 * (kv->pair_s[0] + 128 * kv->column_s[0]));
    op.rows = 6; /* between 4 and 8 */
    is_about(seconds(&machine, &op, false),
             fixed + 1e6 * ((kv->pair_s[2] + kv->pair_s[3]) / 2 + 128 * (kv->column_s[2] + kv->column_s[3]) / 2));
    op.rows = 1000;
    is_about(seconds(&machine, &op, false), fixed + 1e6 * (kv->pair_s[4] + 128 * kv->column_s[4]));
    op.latent = true;
    is_about(seconds(&machine, &op, false), fixed + 1e6 * (latent->pair_s[4] + 128 * latent->column_s[4]));
}

/* Seconds of an operation in a step that reads so many bytes besides. */
static double seconds_within(const rg_counted *op, double bytes)
{
    rg_counted ops[2] = { *op, { .kind = RG_OP_ADD, .count = { .weight_bytes = bytes } } };
    rg_cost both, one;

    rg_cost_list(&machine, ops, 2, false, &both);
    rg_cost_list(&machine, ops + 1, 1, false, &one);
    return both.seconds - one.seconds;
}

/* K/V in the shared cache is read as if it were near; beyond it, by what a byte takes, up to what far K/V takes. */
static void attention_by_place(void **state)
{
    const rg_attention_rate *kv = &profile.rates.attention[false][RG_I8];
    const rg_counted op = { .kind = RG_OP_ATTENTION, .rows = 2, .whole = 1e6, .width = 128, .type = RG_I8 };
    const double *set = rg_rate_sets, *bytes_s = profile.rates.set_bytes_s, fixed = profile.rates.fixed_s[RG_OP_ATTENTION];
    const int cache = rg_rate_place_set[RG_IN_CACHE], memory = rg_rate_place_set[RG_FAR];
    const double near_s = 1e6 * (kv->pair_s[1] + 128 * kv->column_s[1]);
    const double far_s = 1e6 * (kv->far_pair_s[1] + 128 * kv->far_column_s[1]);

    (void)state;
    is_about(seconds_within(&op, set[0]), fixed + near_s);
    is_about(seconds_within(&op, set[cache]), fixed + near_s);
    is_about(seconds_within(&op, set[memory]), fixed + far_s);
    double x = (1 / bytes_s[memory - 1] - 1 / bytes_s[cache]) / (1 / bytes_s[memory] - 1 / bytes_s[cache]);
    is_about(seconds_within(&op, set[memory - 1]), fixed + (1 - x) * near_s + x * far_s);
}

/* Keys that are stored take their values and their cache lines, which may be far. */
static void stores_by_lines(void **state)
{
    const rg_rates *r = &profile.rates;
    const rg_counted op = { .kind = RG_OP_KV_STORE, .cells = 1000, .lines = 500 };
    const double without = r->fixed_s[RG_OP_KV_STORE] + 1000 * r->cell_s[RG_OP_KV_STORE];

    (void)state;
    for (int place = 0; place < RG_RATE_PLACES; place++)
        is_about(seconds_within(&op, rg_rate_sets[rg_rate_place_set[place]]), without + 500 * r->line_s[place]);
}

/* No kernel fetches a sequence's first block early; how long it takes to come depends on where it is. */
static void first_blocks_by_place(void **state)
{
    const rg_rates *r = &profile.rates;
    const rg_counted op = { .kind = RG_OP_ATTENTION, .rows = 1, .width = 128, .type = RG_BF16, .first_bytes = 1e6 };

    (void)state;
    for (int place = 0; place < RG_RATE_PLACES; place++)
        is_about(seconds_within(&op, rg_rate_sets[rg_rate_place_set[place]]),
                 r->fixed_s[RG_OP_ATTENTION] + 1e6 * r->first_byte_s[place]);
}

static void rotations_by_angles(void **state)
{
    const rg_rates *r = &profile.rates;
    const rg_counted op = { .kind = RG_OP_ROTATE, .n_rows = 2, .cells = 100, .angles = 64 };

    (void)state;
    is_about(seconds(&machine, &op, false),
             r->shared_s[RG_OP_ROTATE] + 100 * r->cell_s[RG_OP_ROTATE] + 64 * r->angle_s);
}

/* Whatever is no product and no attention goes by the values that it makes: so does a kind that is added later. */
static void all_else_by_values(void **state)
{
    (void)state;
    for (int k = 0; k < RG_OP_COUNT; k++) {
        rg_counted op = { .kind = (rg_op_kind)k, .cells = 1e6 };
        if (k != RG_OP_ATTENTION && k != RG_OP_MLA_ATTENTION)
            is_about(seconds(&machine, &op, false), profile.rates.fixed_s[k] + 1e6 * profile.rates.cell_s[k]);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(roofs_alone),          cmocka_unit_test(bandwidth_by_size),
        cmocka_unit_test(products_by_rows),     cmocka_unit_test(products_by_place),
        cmocka_unit_test(the_longer_of_bytes_and_arithmetic), cmocka_unit_test(attention_by_queries),
        cmocka_unit_test(attention_by_place),   cmocka_unit_test(stores_by_lines),
        cmocka_unit_test(all_else_by_values),   cmocka_unit_test(products_by_shape),
        cmocka_unit_test(first_blocks_by_place), cmocka_unit_test(rotations_by_angles),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, open_profile, NULL);
}
