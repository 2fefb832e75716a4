/* test_masked.c -- what diffusion models learn: masks, their weights, and blocks that see the blocks before as they are. */
#include "trained.h"

#include <math.h>

#include "base/mem.h"
#include "train/masked.h"

enum { MASK = 319, N = 11, BLOCK = 4, MOST = 1 << 16 };

static const int32_t ids[N] = { 1, 17, 203, 44, 5, 99, 250, 31, 8, 120, 66 };

static double objective_loss(trained *t, const rg_objective *o, const rg_texts *texts, bool forward_only)
{
    rg_error err = { 0 };
    double loss;

    assert_ok(o->compute(o->arg, t->passes, texts, 1 / (double)o->count(o->arg, texts), forward_only, &loss, &err),
              err);
    return loss;
}

static rg_texts plain(const int32_t *of, int n, int32_t *targets)
{
    rg_texts t = { .rows = 1, .length = n, .ids = of };

    rg_texts_targets(&t, targets);
    t.targets = targets;
    return t;
}

/* ---- masked diffusion -------------------------------------------------------------------------------------------- */

/* Of a text of two ids the first is never masked, and what is expected is the cross-entropy of the second given its
 * mask: of many draws the mean comes near it, since a mask's weight makes up for how often there is one. */
static void expects_the_cross_entropy_of_what_is_masked(void **state)
{
    int32_t targets[2], at_mask[2] = { RG_NO_TARGET, 77 };
    const int32_t two[2] = { 1, 77 }, hidden[2] = { 1, MASK };
    rg_texts given = { .rows = 1, .length = 2, .ids = hidden, .targets = at_mask };
    rg_error err = { 0 };
    trained t;

    (void)state;
    trained_open(&t, test_data("llada"), 1, 0);
    rg_masked *m = rg_masked_new(&rg_masters_model(t.masters)->config, 1, 20000, &err);
    assert_ok(m, err);
    const rg_objective o = rg_masked_objective(m);
    const rg_texts texts = plain(two, 2, targets);
    const double want = trained_loss(&t, &given, true), got = objective_loss(&t, &o, &texts, true);

    if (!(fabs(got - want) < 0.05 * want))
        fail_msg("%.6g, not %.6g", got, want);
    rg_masked_free(m);
    trained_close(&t);
}

/* The same seed draws the same masks, another seed others; what is not to be learnt is never masked. */
static void draws_by_seed_and_what_is_learnt(void **state)
{
    int32_t targets[N];
    rg_error err = { 0 };
    double loss[3];
    trained t;

    (void)state;
    trained_open(&t, test_data("llada"), 1, 0);
    rg_texts texts = plain(ids, N, targets);
    for (int i = 0; i < 3; i++) {
        rg_masked *m = rg_masked_new(&rg_masters_model(t.masters)->config, i < 2 ? 5 : 6, 3, &err);
        const rg_objective o = rg_masked_objective(m);

        loss[i] = objective_loss(&t, &o, &texts, true);
        rg_masked_free(m);
    }
    assert_true(loss[0] == loss[1] && loss[0] != loss[2] && loss[0] > 0);
    /* One id is learnt: what is expected of it is finite and the others have no part in the loss. */
    for (int i = 0; i < N; i++)
        targets[i] = i == 3 ? ids[4] : RG_NO_TARGET;
    rg_masked *m = rg_masked_new(&rg_masters_model(t.masters)->config, 5, 20000, &err);
    const rg_objective o = rg_masked_objective(m);
    int32_t hidden[N], at_mask[N];
    for (int i = 0; i < N; i++) {
        hidden[i] = i == 4 ? MASK : ids[i];
        at_mask[i] = i == 4 ? ids[4] : RG_NO_TARGET;
    }
    const rg_texts given = { .rows = 1, .length = N, .ids = hidden, .targets = at_mask };
    const double want = trained_loss(&t, &given, true), got = objective_loss(&t, &o, &texts, true);
    assert_int_equal(o.count(o.arg, &texts), 1);
    assert_true(fabs(got - want) < 0.07 * want);
    rg_masked_free(m);
    trained_close(&t);
}

static void refuses_models_that_continue_texts(void **state)
{
    rg_error err = { 0 };
    trained t;

    (void)state;
    trained_open(&t, test_data("llama"), 1, 0);
    assert_null(rg_masked_new(&rg_masters_model(t.masters)->config, 1, 1, &err));
    assert_non_null(strstr(err.text, "no masks to fill in"));
    trained_close(&t);
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* Gradients of all masters, in one list. */
static size_t keep_gradients(trained *t, double *to, bool add)
{
    size_t at = 0;

    for (int i = 0; i < rg_masters_count(t->masters); i++) {
        const rg_master *m = rg_masters_at(t->masters, i);

        for (size_t k = 0; k < m->n; k += 7, at++) {
            assert_true(at < MOST);
            to[at] = (add ? to[at] : 0) + (double)m->g[k];
        }
    }
    return at;
}

static double loss_and_gradients(trained *t, const rg_texts *texts)
{
    const rg_cross_entropy c = { .targets = texts->targets, .scale = 1 };
    const rg_loss loss = rg_cross_entropy_of(&c);
    rg_error err = { 0 };
    double sum;

    rg_masters_clear(t->masters);
    assert_ok(rg_passes_compute(t->passes, &(rg_passes_run){ .texts = texts, .loss = &loss }, &sum, &err), err);
    assert_ok(rg_masters_pull(t->masters, &err), err);
    return sum;
}

/* Row 0 of a batch of two: a text of N ids twice, then one of 3 twice. */
enum { SHORT = 3, BOTH = 2 * (N + SHORT) };

static void fill_twice(int32_t *all, int32_t *document, int32_t *targets, const uint8_t *masked)
{
    for (int i = 0; i < BOTH; i++) {
        const bool second = i >= 2 * N;
        const int n = second ? SHORT : N, k = (second ? i - 2 * N : i), at = k % n;

        document[i] = second;
        all[i] = ids[at];
        targets[i] = RG_NO_TARGET;
        if (k < n || !masked[at])
            continue;
        all[i] = MASK;
        targets[i] = ids[at];
    }
}

/* What blocks give together, each after the blocks before as they are, is what each gives at the end of a text of its own:
 * losses and gradients. */
static void blocks_see_what_stands_before_as_it_is(void **state)
{
    static const uint8_t masked[N] = { 0, 1, 0, 1, 1, 1, 0, 1, 0, 1, 1 };
    static double want[MOST], got[MOST];
    int32_t all[BOTH], document[BOTH], targets[BOTH];
    double sum = 0;
    size_t n = 0;
    trained t;

    (void)state;
    fill_twice(all, document, targets, masked);
    for (int threads = 1; threads <= 2; threads++) {
        trained_open(&t, test_data("sdar-b4"), threads, 0);
        assert_int_equal(rg_masters_model(t.masters)->config.sees, BLOCK);
        for (int text = 0; text < 2 && threads == 1; text++)
            for (int at = 0; at < (text ? SHORT : N); at += BLOCK) {
                const int whole = text ? SHORT : N, end = at + BLOCK < whole ? at + BLOCK : whole;
                int32_t one[N], wanted[N];

                for (int i = 0; i < end; i++) {
                    one[i] = i >= at && masked[i] ? MASK : ids[i];
                    wanted[i] = i >= at && masked[i] ? ids[i] : RG_NO_TARGET;
                }
                sum += loss_and_gradients(&t, &(rg_texts){ .rows = 1, .length = end, .ids = one, .targets = wanted });
                n = keep_gradients(&t, want, text || at);
            }
        const rg_texts twice = {
            .rows = 1, .length = BOTH, .ids = all, .document = document, .targets = targets, .twice = true
        };
        const double loss = loss_and_gradients(&t, &twice);

        assert_int_equal(keep_gradients(&t, got, false), n);
        assert_true(fabs(loss - sum) < 1e-5 * sum);
        double most = 0;
        for (size_t i = 0; i < n; i++)
            most = fmax(most, fabs(want[i]));
        for (size_t i = 0; i < n; i++)
            if (!(fabs(got[i] - want[i]) < 2e-5 * most))
                fail_msg("gradient %zu: %.9g, not %.9g", i, got[i], want[i]);
        trained_close(&t);
    }
}

/* The objective of a model of blocks: as many draws, the same masks whatever the threads. */
static void draws_each_block_a_share(void **state)
{
    int32_t targets[N];
    rg_error err = { 0 };
    double loss[2];
    trained t;

    (void)state;
    const rg_texts texts = plain(ids, N, targets);
    for (int threads = 1; threads <= 2; threads++) {
        trained_open(&t, test_data("sdar-b4"), threads, 0);
        rg_masked *m = rg_masked_new(&rg_masters_model(t.masters)->config, 3, 50, &err);
        const rg_objective o = rg_masked_objective(m);

        loss[threads - 1] = objective_loss(&t, &o, &texts, true);
        rg_masked_free(m);
        trained_close(&t);
    }
    assert_true(loss[0] == loss[1]);
    assert_true(loss[0] > 3 && loss[0] < 12); /* near ln 320 */
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expects_the_cross_entropy_of_what_is_masked),
        cmocka_unit_test(draws_by_seed_and_what_is_learnt),
        cmocka_unit_test(refuses_models_that_continue_texts),
        cmocka_unit_test(blocks_see_what_stands_before_as_it_is),
        cmocka_unit_test(draws_each_block_a_share),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
