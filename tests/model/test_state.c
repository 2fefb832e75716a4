/* test_state.c -- how much a sequence of a model keeps, and that whoever counts it counts the same. */
#include "support/model.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "plan/plan.h"

/* A model of one of bench/shapes, without weights. */
static void declare_shape(test_model *t, const char *name, int max_draft)
{
    char path[512];
    rg_error err = { 0 };

    snprintf(path, sizeof path, "%s/bench/shapes/%s.json", RG_SOURCE_DIR, name);
    t->ckpt = rg_checkpoint_open(path, RG_CKPT_NO_WEIGHTS, &err);
    assert_ok(t->ckpt, err);
    t->m = rg_model_open(t->ckpt, &(rg_model_options){ .declare_only = true, .declared_type = RG_BF16,
                                                       .max_draft = max_draft }, &err);
    assert_ok(t->m, err);
}

/* 24 layers of a state [16][1536] and a tail [3][1536] of f32; room for drafts only where they can come. */
static void a_mamba_keeps_what_it_needs(void **state)
{
    test_model t;

    (void)state;
    declare_shape(&t, "mamba-130m", 0);
    assert_int_equal(rg_state_bytes_per_sequence(&t.m->state), 24 * (16 + 3) * 1536 * 4);
    assert_int_equal(rg_state_bytes_per_position(&t.m->state), 0);
    test_model_close(&t);
    declare_shape(&t, "mamba-130m", 7);
    assert_int_equal(rg_state_bytes_per_sequence(&t.m->state), 24 * ((16 + 3) * 1536 * 4 + 7 * (3 * 1536 + 16) * 4));
    test_model_close(&t);
}

static void plan_counts_the_same_state(void **state)
{
    static const char *const shapes[] = { "mamba-130m", "gemma3-1b", "tinyllama-1.1b", "mixtral-8x160m" };

    (void)state;
    for (size_t i = 0; i < RG_LEN(shapes); i++) {
        enum { LEN = 32768 }; /* longer than any window, and whole blocks */
        double kv, recurrent;
        test_model t;

        declare_shape(&t, shapes[i], 0);
        rg_plan_state_bytes(t.m, LEN, &kv, &recurrent);
        assert_true(kv + recurrent == (double)rg_state_bytes_per_sequence(&t.m->state) +
                                          (double)LEN * (double)rg_state_bytes_per_position(&t.m->state));
        test_model_close(&t);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mamba_keeps_what_it_needs),
        cmocka_unit_test(plan_counts_the_same_state),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
