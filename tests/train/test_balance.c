/* The loss by which experts are used alike: of Mixtral's tiny checkpoint beside another program's in float64
 * (golden/train/balance.safetensors), of other routers by differences, and within a training objective. */
#include "trained.h"
#include "values.h"

#include <math.h>

#include "train/objective.h"

enum { ROWS = 2, LENGTH = 32, N = ROWS * LENGTH };

typedef struct two_rows {
    int32_t ids[N], document[N], targets[N];
    rg_texts texts;
} two_rows;

static void take(int32_t to[N], const char *name)
{
    size_t n;
    float *v = values(test_data("train/balance.safetensors"), name, &n);

    assert_int_equal(n, N);
    for (size_t i = 0; i < n; i++)
        to[i] = (int32_t)v[i];
    rg_free(v);
}

static void take_texts(two_rows *t)
{
    take(t->ids, "input_ids");
    take(t->document, "document");
    t->texts = (rg_texts){ ROWS, LENGTH, t->ids, t->document, t->targets };
    rg_texts_targets(&t->texts, t->targets);
}

/* The balance loss alone, and its gradient. */
static double balance_of(trained *t, const rg_texts *texts, bool forward_only)
{
    const rg_cross_entropy c = { .targets = texts->targets, .scale = 0 };
    const rg_loss none = rg_cross_entropy_of(&c);
    double sum, balance = -1;
    rg_error err = { 0 };

    rg_masters_clear(t->masters);
    assert_ok(rg_passes_compute(t->passes,
                                &(rg_passes_run){ .texts = texts,
                                                  .loss = &none,
                                                  .balance = &balance,
                                                  .balance_weight = 1,
                                                  .forward_only = forward_only },
                                &sum, &err),
              err);
    if (!forward_only)
        assert_ok(rg_masters_pull(t->masters, &err), err);
    return balance;
}

static void equals_the_golden(void **state)
{
    two_rows t;
    trained m;
    size_t n;
    int n_compared = 0;
    char name[200];
    float *want = values(test_data("train/balance.safetensors"), "aux.loss", &n);

    (void)state;
    take_texts(&t);
    for (int piece = 0; piece < 2; piece++) { /* also where rows would be computed one by one */
        trained_open(&m, test_data("mixtral"), 2, piece ? 1 : 0);
        for (int again = 0; again < 2; again++) { /* the second time layers run once, with a tape */
            const double loss = balance_of(&m, &t.texts, false);

            if (!(fabs(loss - (double)*want) <= 1e-5 * (double)*want))
                fail_msg("the balance loss is %.9g, not %.9g", loss, (double)*want);
            for (int i = 0; i < rg_masters_count(m.masters); i++) {
                const rg_master *a = rg_masters_at(m.masters, i);
                double most = 0;

                if (!strstr(a->name, ".gate.weight"))
                    continue;
                snprintf(name, sizeof name, "aux.grad.%s", a->name);
                float *grad = values(test_data("train/balance.safetensors"), name, &n);
                assert_int_equal(n, a->n);
                for (size_t k = 0; k < n; k++)
                    most = fmax(most, fabs((double)grad[k]));
                for (size_t k = 0; k < n; k++)
                    if (!(fabs((double)a->g[k] - (double)grad[k]) <= 1e-4 * most))
                        fail_msg("%s, value %zu: %.9g, not %.9g", name, k, (double)a->g[k], (double)grad[k]);
                rg_free(grad);
                n_compared++;
            }
        }
        trained_close(&m);
    }
    assert_int_equal(n_compared, 12);
    rg_free(want);
}

/* Routers by softmax and by sigmoids: along its gradient the loss rises by the gradient's length. */
static void gradients_by_differences(void **state)
{
    static const char *const models[] = { "mixtral", "qwen3-moe", "deepseek-v2", "deepseek-v3", "glm4-moe", "gpt-oss" };
    const double step = 2e-4;
    rg_error err = { 0 };
    two_rows t;
    trained m;

    (void)state;
    take_texts(&t);
    for (size_t i = 0; i < RG_LEN(models); i++) {
        double square = 0, loss[2];

        trained_open(&m, test_data(models[i]), 2, 0);
        balance_of(&m, &t.texts, false);
        for (int k = 0; k < rg_masters_count(m.masters); k++)
            for (size_t c = 0; c < rg_masters_at(m.masters, k)->n; c++)
                square += pow((double)rg_masters_at(m.masters, k)->g[c], 2);
        const double length = sqrt(square);
        float *keep = NULL;
        for (int turn = 0; turn < 2; turn++) {
            const double by = (turn ? -2 : 1) * step / length;

            for (int k = 0; k < rg_masters_count(m.masters); k++) {
                rg_master *a = rg_masters_at(m.masters, k);
                for (size_t c = 0; c < a->n; c++)
                    a->w[c] += (float)(by * (double)a->g[c]);
            }
            assert_ok(rg_masters_push(m.masters, &err), err);
            if (!turn) { /* gradients are cleared by a pass: they are kept for the way back */
                size_t n = 0, at = 0;
                for (int k = 0; k < rg_masters_count(m.masters); k++)
                    n += rg_masters_at(m.masters, k)->n;
                keep = rg_array(n, sizeof *keep);
                for (int k = 0; k < rg_masters_count(m.masters); at += rg_masters_at(m.masters, k++)->n)
                    memcpy(keep + at, rg_masters_at(m.masters, k)->g, rg_masters_at(m.masters, k)->n * sizeof *keep);
            }
            loss[turn] = balance_of(&m, &t.texts, true);
            for (int k = 0, at = 0; k < rg_masters_count(m.masters); at += (int)rg_masters_at(m.masters, k++)->n)
                memcpy(rg_masters_at(m.masters, k)->g, keep + at, rg_masters_at(m.masters, k)->n * sizeof *keep);
        }
        const double got = (loss[0] - loss[1]) / (2 * step);
        if (!(length > 1e-4) || !(fabs(got - length) <= 0.02 * length))
            fail_msg("%s: along the gradient the loss rises by %.6g, not %.6g", models[i], got, length);
        rg_free(keep);
        trained_close(&m);
    }
}

/* As an objective: the weight times the loss is added, by a micro-batch's share of targets; the same bits for any number
 * of threads; a model without experts is refused by name. */
static void is_part_of_an_objective(void **state)
{
    rg_balanced b[2];
    const rg_objective with = rg_balanced_next_ids(&b[0], 0.25), other = rg_balanced_next_ids(&b[1], 0.5);
    rg_error err = { 0 };
    two_rows t;
    trained m, one;
    double plain, both, balance;

    (void)state;
    take_texts(&t);
    assert_string_not_equal(with.tag, other.tag);
    trained_open(&m, test_data("mixtral"), 2, 0);
    trained_open(&one, test_data("mixtral"), 1, 0);
    const double scale = 0.5 / (double)rg_texts_count(&t.texts); /* a step of two such micro-batches */
    balance = balance_of(&m, &t.texts, true);
    assert_ok(rg_next_ids.compute(rg_next_ids.arg, m.passes, &t.texts, scale, true, &plain, &err), err);
    rg_masters_clear(m.masters);
    rg_masters_clear(one.masters);
    assert_ok(with.compute(with.arg, m.passes, &t.texts, scale, false, &both, &err), err);
    if (!(fabs(both - plain - 0.5 * 0.25 * balance) <= 1e-9))
        fail_msg("%.12g with the balance loss, %.12g without it, which is %.12g", both, plain, balance);
    assert_ok(with.compute(with.arg, one.passes, &t.texts, scale, false, &plain, &err), err);
    assert_true(plain == both);
    assert_ok(rg_masters_pull(m.masters, &err) && rg_masters_pull(one.masters, &err), err);
    for (int i = 0; i < rg_masters_count(m.masters); i++)
        assert_memory_equal(rg_masters_at(m.masters, i)->g, rg_masters_at(one.masters, i)->g,
                            rg_masters_at(m.masters, i)->n * sizeof(float));
    trained_close(&one);
    trained_close(&m);
    trained_open(&m, test_data("llama"), 1, 0);
    assert_false(with.compute(with.arg, m.passes, &t.texts, scale, true, &both, &err));
    assert_non_null(strstr(err.text, "no experts"));
    trained_close(&m);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_golden),
        cmocka_unit_test(gradients_by_differences),
        cmocka_unit_test(is_part_of_an_objective),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
