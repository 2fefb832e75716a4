/* test_acts.c -- activations: what a model made before its first layer is found in every layer by its name, what is not
 * there is a bug that stops the program, and how far rows lie apart. */
#include "world.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ops/count/count.h"

static rg_span span = { .n_rows = 3 };
static const rg_batch batch = { .n_rows = 3, .n_spans = 1, .spans = &span };

/* A fwd that computes nothing, with two activations made outside the layers. */
static void begin(rg_fwd *f, rg_counter *counter, rg_act *made[2])
{
    rg_counter_init(counter, NULL, 0);
    rg_count_fwd(f, counter, &batch);
    made[0] = rg_act_new(f, "hidden", 8);
    made[1] = rg_act_rows(f, "per_layer", 3, 20);
}

static void found_in_every_layer(void **state)
{
    rg_act *made[2], *tail;
    rg_counter counter;
    rg_fwd f;

    (void)state;
    begin(&f, &counter, made);
    for (int i = 0; i < 3; i++) {
        int mark = rg_act_mark(&f);

        f.layer = i;
        rg_act *own = rg_act_new(&f, "per_layer", 5); /* a layer's own of the same name hides nothing */
        assert_ptr_equal(rg_act_find(&f, "hidden"), made[0]);
        assert_ptr_equal(rg_act_find(&f, "per_layer"), made[1]);
        assert_ptr_not_equal(own, made[1]);
        assert_true(own->layer == i && made[1]->layer == -1 && made[1]->cols == 20);
        rg_act_release(&f, mark);
    }
    f.layer = -1;
    tail = rg_act_new(&f, "logits", 9);
    assert_ptr_equal(rg_act_find(&f, "logits"), tail);
}

/* In a child, whose message nobody needs: does looking for name in layer 2 abort? */
static bool aborts(const char *name)
{
    pid_t child = fork();
    int status = 0;

    assert_true(child >= 0);
    if (child == 0) {
        rg_act *made[2];
        rg_counter counter;
        rg_fwd f;

        if (!freopen("/dev/null", "w", stderr))
            _exit(1);
        begin(&f, &counter, made);
        f.layer = 2;
        rg_act_new(&f, "q", 8);
        rg_act_find(&f, name);
        _exit(0);
    }
    assert_true(waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void what_is_not_there_is_a_bug(void **state)
{
    (void)state;
    assert_false(aborts("hidden"));
    assert_true(aborts("q")); /* a layer's own goes with the layer */
    assert_true(aborts("values"));
}

/* A near cache of 8 ways has 64 sets of 64 bytes: rows some KiB apart would have few of them. */
static void rows_lie_in_different_sets(void **state)
{
    static const int cols[] = { 1, 256, 768, 1000, 3072, 4096 };
    rg_cpu_fwd f = { .base.batch = &batch };

    (void)state;
    for (size_t i = 0; i < RG_LEN(cols); i++) {
        const rg_act *a = rg_act_rows(&f.base, "x", 2, cols[i]);

        rg_cpu_place(&f);
        const size_t stride = rg_act_stride(&f.base, a);
        assert_true(stride >= (size_t)cols[i] && stride < (size_t)cols[i] + 2 * RG_PANEL);
        assert_int_equal(stride % RG_PANEL, 0);
        assert_int_not_equal(stride * sizeof(float) % 1024, 0);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(found_in_every_layer),
        cmocka_unit_test(what_is_not_there_is_a_bug),
        cmocka_unit_test(rows_lie_in_different_sets),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests_name("acts", tests, NULL, NULL);
}
