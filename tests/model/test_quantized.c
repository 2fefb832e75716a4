/* Models whose weights a quantizer stored in its own form: their logits, exactly and by the fast recipe; the bytes of
 * those whose columns have an order. */
#include "worlds.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/cpu/pack.h"


typedef struct job {
    float *logits;
    size_t vocab;
} job;

static void keep_row(void *arg, int feed, int row, float *logits)
{
    job *j = arg;

    (void)feed;
    memcpy(j->logits + (size_t)row * j->vocab, logits, j->vocab * sizeof *logits);
}

/* The n logits of ids; free them. */
static float *logits_of(const test_model *t, bool exact, const int32_t *ids, size_t n_ids, size_t n)
{
    test_rig_options o = { .backend = test_backend(0), .n_threads = 2, .exact = exact, .max_rows = (int)n_ids,
                           .max_seqs = 1, .max_len = (int)n_ids };
    job j = { malloc(n * sizeof *j.logits), n / n_ids };
    rg_error err = { 0 };
    test_rig rig;
    rg_seq *q;

    for (int i = 0; test_backend(i); i++)
        o.backend = test_backend(i); /* the best; the kernels' tests compare the others with it */
    test_rig_open(&rig, t, &o);
    q = rg_seq_new(rig.states, (int)n_ids, 0, &err);
    assert_ok(q, err);
    assert_true(rg_seq_grow(rig.states, q, (int)n_ids));
    test_rig_step(&rig, &(test_feed){ .seq = q, .ids = ids, .n = (int)n_ids }, 1, keep_row, &j);
    rg_seq_free(rig.states, q);
    test_rig_close(&rig);
    return j.logits;
}

/* Largest distance from the golden logits, as a share of the largest of them. */
static double distance(const test_model *t, bool exact, const int32_t *ids, size_t n_ids, const float *want,
                       size_t n_want)
{
    float *have = logits_of(t, exact, ids, n_ids, n_want);
    double most = 0, off = 0;

    for (size_t i = 0; i < n_want; i++) {
        most = fmax(most, fabs((double)want[i]));
        off = fmax(off, fabs((double)have[i] - (double)want[i]));
    }
    free(have);
    return off / most;
}

static void logits_equal_golden(void **state)
{
    static const char *const folders[] = { "gptq-4bit-g32-act", "bnb-nf4-nested", "ct-fp8-block" };

    (void)state;
    for (size_t i = 0; i < RG_LEN(folders); i++) {
        char path[128];
        rg_error err = { 0 };
        size_t n_ids, n_want;
        test_model t;

        snprintf(path, sizeof path, "quantized/%s/golden.safetensors", folders[i]);
        rg_checkpoint *c = rg_checkpoint_open(test_data(path), RG_CKPT_DEFAULT, &err);
        assert_ok(c, err);
        int32_t *ids = test_ints(c, "input_ids", &n_ids);
        float *want = test_floats(c, "logits", &n_want);
        snprintf(path, sizeof path, "quantized/%s", folders[i]);
        test_model_open(&t, test_data(path), "f32");
        double exact = distance(&t, true, ids, n_ids, want, n_want);
        double fast = distance(&t, false, ids, n_ids, want, n_want);
        print_message("    %s: exact %.1e, fast %.1e of the largest logit\n", folders[i], exact, fast);
        assert_true(exact < 1e-4 && fast < 0.06);
        test_model_close(&t);
        rg_checkpoint_close(c);
        free(ids);
        free(want);
    }
}

/* ---- act-order --------------------------------------------------------------------------------------------------- */

/* Bytes of matrices of the layers, as codes of 4 bits in groups of 32 and an order of columns for each matrix. */
static size_t bytes_of_codes(const rg_weight *w)
{
    const size_t panels = (size_t)((w->rows + RG_PANEL - 1) / RG_PANEL);
    size_t panel = (size_t)(w->cols / 32) * sizeof(rg_step_z4), order = (size_t)w->cols * sizeof(int32_t);

    assert_true(rg_round_up(panel, RG_ALIGN, &panel) && rg_round_up(order, RG_ALIGN, &order));
    return (size_t)w->n_mats * (panels * panel + order);
}

/* Matrices with an order are packed as the codes that they are, and plan counts them so; how many there are. */
static int check_bytes(const rg_model *m)
{
    const rg_weight_set *s = &m->weights;
    uint64_t stored = 0;
    int n = 0;

    for (int i = 0; i < s->n; i++) {
        const rg_weight *w = &s->all[i];
        uint64_t row;

        assert_true(rg_row_bytes(w->type, w->cols, &row));
        stored += (uint64_t)(w->n_mats * w->rows) * row + (w->order ? (uint64_t)(w->n_mats * w->cols) * 4 : 0);
        if (!w->order)
            continue;
        assert_int_equal(w->type, RG_ZP4);
        assert_int_equal(w->placed->bytes, bytes_of_codes(w));
        n++;
    }
    assert_int_equal(s->stored_bytes, stored);
    return n;
}

/* q, k and v read one input, so GPTQ gives them one order; so do gate and up. */
static void order_is_shared(const rg_model *m, int a, int b)
{
    for (int l = 0; l < m->config.n_layers; l++) {
        const rg_weight *x = rg_weights_get(&m->weights, a, l), *y = rg_weights_get(&m->weights, b, l);

        assert_true(x && y && x->order && x->order == y->order);
    }
}

static void act_order_stays_in_its_bits(void **state)
{
    test_model t;

    (void)state;
    test_model_open(&t, test_data("quantized/gptq-4bit-g32-act"), "f32");
    assert_int_equal(check_bytes(t.m), 7 * t.m->config.n_layers);
    order_is_shared(t.m, W_Q_PROJ, W_V_PROJ);
    order_is_shared(t.m, W_GATE_PROJ, W_UP_PROJ);
    test_model_close(&t);
}

/* Experts, each with orders of its own: the logits are those of the same weights in f32. */
static void experts_of_an_order_are_their_values(void **state)
{
    enum { N = 24 };
    const char *folder = world_act_order("mixtral"), *plain = test_scratch("plain");
    rg_convert_report r;
    int32_t ids[N];
    rg_error err = { 0 };
    test_model t, u;

    (void)state;
    for (int i = 0; i < N; i++)
        ids[i] = i * 91 % 250;
    test_model_open(&t, folder, "f32");
    assert_ok(rg_convert(&r, t.ckpt, plain, &(rg_convert_options){ .type = RG_F32, .to_hf = true, .n_threads = 2 }, &err),
              err);
    rg_convert_report_fini(&r);
    test_model_open(&u, plain, "f32");
    const size_t n = (size_t)N * (size_t)u.m->config.vocab_size;
    float *want = logits_of(&u, true, ids, N, n);
    double exact = distance(&t, true, ids, N, want, n), fast = distance(&t, false, ids, N, want, n);
    print_message("    experts: exact %.1e, fast %.1e of the largest logit\n", exact, fast);
    assert_true(exact < 1e-4 && fast < 0.06);
    assert_int_equal(check_bytes(t.m), 7 * t.m->config.n_layers);
    order_is_shared(t.m, W_GATE_EXPERTS, W_UP_EXPERTS);
    test_model_close(&t);
    test_model_close(&u);
    free(want);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_equal_golden),
        cmocka_unit_test(act_order_stays_in_its_bits),
        cmocka_unit_test(experts_of_an_order_are_their_values),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
