/* Thresholds against those of the authors' histogram, and calibrated ones of a model. */
#include "support/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "model/sparsity.h"
#include "shrink/sparsity.h"

/* x as f32; its products of the columns above the threshold. */
static void check_case(const rg_checkpoint *c, const json_t *j)
{
    const char *name = json_string_value(json_object_get(j, "name"));
    const double sparsity = json_number_value(json_object_get(j, "sparsity"));
    const double want = json_number_value(json_object_get(j, "threshold"));
    char key[48];
    rg_error err = { 0 };
    size_t n, below = 0, first = 0;

    snprintf(key, sizeof key, "%s.x", name);
    const rg_tensor *t = rg_checkpoint_find(c, key);
    assert_non_null(t);
    uint16_t *raw = malloc(t->bytes);
    n = (size_t)rg_tensor_count(t);
    float *x = malloc(n * sizeof *x), *sorted = malloc(n * sizeof *x);
    assert_ok(rg_tensor_read(c, t, 0, raw, t->bytes, &err), err);
    rg_format_of(t->type)->decode(raw, (int64_t)n, x);
    memcpy(sorted, x, n * sizeof *x);
    rg_spread *spread = malloc(sizeof *spread);
    rg_spread_of(spread, sorted, n);
    const double got = (double)rg_spread_threshold(spread, sparsity);
    free(spread);
    if (fabs(got - want) > 5e-3 * want) /* values next to each other lie that far apart */
        fail_msg("%s at %g: %g, want %g", name, sparsity, got, want);
    for (size_t i = 0; i < n; i++) {
        below += fabs((double)x[i]) <= want;
        first += i < (size_t)t->shape[1] && fabs((double)x[i]) <= want;
    }
    assert_true(fabs((double)below / (double)n - json_number_value(json_object_get(j, "realized"))) < 1e-6);
    assert_int_equal(first, json_integer_value(json_object_get(j, "zeros_of_first_row")));
    free(raw);
    free(x);
    free(sorted);
}

static void thresholds_are_those_of_the_authors(void **state)
{
    rg_error err = { 0 };
    size_t n;
    rg_checkpoint *c = rg_checkpoint_open(test_data("shrink/teal/cases.safetensors"), RG_CKPT_DEFAULT, &err);
    char *text = rg_file_slurp(test_data("shrink/teal/thresholds.json"), 1 << 16, &n, &err);
    json_t *cases = json_loads(text, 0, NULL);

    (void)state;
    assert_true(json_array_size(cases) == 9);
    for (size_t i = 0; i < 9; i++)
        check_case(c, json_array_get(cases, i));
    json_decref(cases);
    rg_free(text);
    rg_checkpoint_close(c);
}

/* ---- shares ------------------------------------------------------------------------------------------------------ */

enum { LATTICE = 20 }; /* steps from 0 to 1 of a matrix of a third of the block */

/* Separable, and growing ever faster: there the greedy way finds the best shares. */
static bool made_up_loss(void *arg, const double *share, double *loss, rg_error *err)
{
    static const double by[3] = { 1, 4, 0.5 }, power[3] = { 2, 3, 2.5 };
    int *calls = arg;

    (void)err;
    ++*calls;
    *loss = 0;
    for (int i = 0; i < 3; i++)
        *loss += by[i] * pow(share[i], power[i]);
    return true;
}

/* The least loss of all shares on the lattice that amount to so many steps. */
static double best_of_all(int steps)
{
    double best = INFINITY;
    int calls = 0;

    for (int a = 0; a <= LATTICE; a++)
        for (int b = 0; b <= LATTICE; b++) {
            const int c = steps - a - b;
            const double share[3] = { (double)a / LATTICE, (double)b / LATTICE, (double)c / LATTICE };
            double loss;
            if (c < 0 || c > LATTICE)
                continue;
            made_up_loss(&calls, share, &loss, NULL);
            best = loss < best ? loss : best;
        }
    return best;
}

static void greedy_shares_are_the_best_of_all(void **state)
{
    const double size[3] = { 7, 7, 7 };
    int calls = 0;
    const rg_block_loss b = { .n = 3, .size = size, .loss = made_up_loss, .arg = &calls };
    rg_error err = { 0 };

    (void)state;
    for (int steps = 1; steps < 3 * LATTICE; steps++) {
        double share[3], loss;
        assert_ok(rg_allocate_greedily(&b, steps / (3.0 * LATTICE), 1 / (3.0 * LATTICE), share, &err), err);
        assert_true(fabs(share[0] + share[1] + share[2] - (double)steps / LATTICE) < 1e-9);
        made_up_loss(&calls, share, &loss, NULL);
        assert_true(fabs(loss - best_of_all(steps)) < 1e-9);
    }
}

/* A matrix of a tenth of the block goes ten times as far by one step, and not past 1. */
static void a_share_weighs_by_size(void **state)
{
    const double size[3] = { 1, 5, 4 };
    int calls = 0;
    const rg_block_loss b = { .n = 3, .size = size, .loss = made_up_loss, .arg = &calls };
    rg_error err = { 0 };
    double share[3];

    (void)state;
    assert_ok(rg_allocate_greedily(&b, 0.05, 0.05, share, &err), err);
    assert_int_equal(calls, 3);
    assert_true(share[0] == 0 && share[1] == 0 && fabs(share[2] - 0.125) < 1e-12); /* 0.25, 0.004, 0.0028 */
    assert_ok(rg_allocate_greedily(&b, 1, 0.03, share, &err), err);
    assert_true(fabs(share[0] - 1) < 1e-6 && fabs(share[1] - 1) < 1e-6 && fabs(share[2] - 1) < 1e-6);
    assert_true(share[0] <= 1 && share[1] <= 1 && share[2] <= 1);
    assert_ok(rg_allocate_greedily(&b, 0, 0.03, share, &err), err);
    assert_true(share[0] == 0 && share[1] == 0 && share[2] == 0);
}

/* ---- a model ----------------------------------------------------------------------------------------------------- */

enum { CTX = 32, SAMPLES = 2 };

static rg_stage *open_stage(const rg_checkpoint *c, const int32_t *ids, bool thresholds)
{
    rg_error err = { 0 };
    const rg_backend *best = test_backend(0);

    for (int i = 0; test_backend(i); i++)
        best = test_backend(i);
    rg_stage *s = rg_stage_open(c, &(rg_stage_options){ .backend = best, .n_threads = 1, .ids = ids,
                                                        .n_samples = SAMPLES, .ctx = CTX, .thresholds = thresholds },
                                &err);
    assert_ok(s, err);
    return s;
}

/* The model takes the thresholds that were written for it. */
static void loads(const rg_checkpoint *c, const rg_buf *json)
{
    rg_error err = { 0 };
    rg_sparsity *t = rg_sparsity_parse("thresholds", json->data, json->n, &err);

    assert_ok(t, err);
    rg_model *m = rg_model_open(c, &(rg_model_options){ .n_threads = 1, .sparsity = t }, &err);
    assert_ok(m, err);
    rg_model_close(m);
    rg_sparsity_free(t);
}

static json_t *calibrated(const char *name, bool greedy, double sparsity, const int32_t *ids)
{
    const rg_sparsity_options o = { .sparsity = sparsity, .greedy = greedy, .n_samples = SAMPLES, .ctx = CTX };
    rg_error err = { 0 };
    rg_buf json;
    double realized;
    rg_checkpoint *c = rg_checkpoint_open(test_data(name), RG_CKPT_DEFAULT, &err);

    assert_ok(c, err);
    rg_stage *s = open_stage(c, ids, greedy);
    rg_buf_init(&json, 1 << 20);
    assert_ok(rg_sparsity_calibrate(s, &o, &json, &realized, &err), err);
    json_t *v = json_loads(json.data, 0, NULL);
    assert_non_null(v);
    const bool experts = rg_stage_model(s)->config.routing.n_experts > 0; /* zeros meet none of their bytes */
    assert_true(realized < sparsity + 0.1 && (experts || realized > sparsity - 0.1) &&
                fabs(realized - json_number_value(json_object_get(v, "realized"))) < 1e-6);
    loads(c, &json);
    rg_buf_fini(&json);
    rg_stage_close(s);
    rg_checkpoint_close(c);
    return v;
}

static void set_ids(int32_t *ids)
{
    for (int i = 0; i < SAMPLES * CTX; i++)
        ids[i] = i * 29 % 300;
}

static void a_model_is_calibrated(void **state)
{
    int32_t ids[SAMPLES * CTX];
    const char *name;
    json_t *share;

    (void)state;
    set_ids(ids);
    for (int greedy = 0; greedy < 2; greedy++) {
        json_t *v = calibrated("mixtral", greedy, 0.5, ids), *shares = json_object_get(v, "shares");
        bool differ = false;
        assert_true(json_object_size(json_object_get(v, "thresholds")) > 10);
        assert_int_equal(json_object_size(shares), json_object_size(json_object_get(v, "thresholds")));
        json_object_foreach(shares, name, share)
        {
            const bool half = fabs(json_number_value(share) - 0.5) < 1e-12;
            differ = differ || !half;
            assert_null(strchr(name, '[')); /* experts get none */
        }
        assert_true(differ == greedy);
        json_decref(v);
    }
}

/* Sum of squares of what a layer loses in the last quarter of its rows. */
typedef struct lost {
    float *want;
    double sum;
} lost;

static void keep_or_compare(void *arg, int sample, const float *before, const float *after, int64_t n, int64_t cols)
{
    lost *l = arg;
    float *want = l->want + sample * n * cols;

    (void)before;
    for (int64_t i = n * 3 / 4 * cols; i < n * cols; i++) {
        if (l->sum < 0)
            want[i] = after[i];
        else
            l->sum += ((double)after[i] - (double)want[i]) * ((double)after[i] - (double)want[i]);
    }
}

/* By name, through the stage itself: what layer 0 loses with these thresholds. */
static double loss_of(json_t *v, const int32_t *ids)
{
    rg_error err = { 0 };
    rg_checkpoint *c = rg_checkpoint_open(test_data("qwen2"), RG_CKPT_DEFAULT, &err);
    rg_stage *s = open_stage(c, ids, true);
    lost l = { .want = calloc(SAMPLES * CTX, 4096 * sizeof(float)), .sum = -1 };
    const rg_pass p = { .arg = &l, .through = keep_or_compare };
    const rg_weight_set *set = &rg_stage_model(s)->weights;

    assert_ok(rg_stage_enter(s, 0, &err), err);
    assert_ok(rg_stage_pass(s, &p, &err), err);
    l.sum = 0;
    for (int i = 0; i < set->n; i++) {
        json_t *t = set->layer[i] == 0 ? json_object_get(json_object_get(v, "thresholds"), set->all[i].name) : NULL;
        if (t)
            rg_stage_set_threshold(s, &set->all[i], (float)json_number_value(t));
    }
    assert_ok(rg_stage_pass(s, &p, &err), err);
    free(l.want);
    rg_stage_close(s);
    rg_checkpoint_close(c);
    return l.sum;
}

static void greedy_loses_less(void **state)
{
    int32_t ids[SAMPLES * CTX];

    (void)state;
    set_ids(ids);
    json_t *uniform = calibrated("qwen2", false, 0.4, ids), *greedy = calibrated("qwen2", true, 0.4, ids);
    const double even = loss_of(uniform, ids), best = loss_of(greedy, ids);
    assert_true(even > 0 && best > 0 && best < even);
    json_decref(uniform);
    json_decref(greedy);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(thresholds_are_those_of_the_authors),
                                        cmocka_unit_test(greedy_shares_are_the_best_of_all),
                                        cmocka_unit_test(a_share_weighs_by_size),
                                        cmocka_unit_test(a_model_is_calibrated),
                                        cmocka_unit_test(greedy_loses_less) };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
