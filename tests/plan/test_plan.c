/* test_plan.c -- plans against closed forms: the textbook's table for Llama-2-13B on an H100, the scaling book's serving
 * quiz, counts against the formulas, what-if against its own, and what is refused. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/profile.h"
#include "support/test.h"

#include "ckpt/checkpoint.h"
#include "plan/report.h"
#include "plan/svg.h"

static rg_model *open_shape(const char *name, rg_type type)
{
    rg_error err = { 0 };
    char path[96];

    snprintf(path, sizeof path, "shapes/%s.json", name);
    rg_checkpoint *c = rg_checkpoint_open(test_data(path), RG_CKPT_NO_WEIGHTS, &err);
    assert_ok(c, err);
    rg_model *m = rg_model_open(c, &(rg_model_options){ .declare_only = true, .declared_type = type }, &err);
    assert_ok(m, err);
    rg_checkpoint_close(c);
    return m;
}

static rg_plan_machine machine(const char *name, int chips)
{
    rg_plan_machine m;
    rg_error err = { 0 };

    assert_ok(rg_plan_machine_find(&m, name, &err), err);
    rg_plan_machine_chips(&m, chips);
    return m;
}

static rg_plan_row point(const rg_plan_subject *s, const rg_plan_machine *m, int64_t batch, int64_t seq)
{
    rg_plan_row row;
    rg_error err = { 0 };

    assert_ok(rg_plan_point(s, m, batch, seq, &row, &err), err);
    return row;
}

static void is_about(double got, double want, double relative)
{
    if (!(fabs(got - want) <= relative * fabs(want))) {
        print_error("%.10g is not %.10g within %g\n", got, want, relative);
        fail();
    }
}

/* ---- the textbook ---- */

static void llama_on_h100(void **state)
{
    static const struct {
        const char *shape;
        int batch;
        double memory_gb, latency_ms, tok_s;
        bool fits;
    } golden[] = {
        { "llama-2-13b", 1, 26.87, 8.02, 124.7, true },        { "llama-2-13b", 64, 79.72, 23.80, 2689.5, true },
        { "llama-2-13b", 256, 240.8, 71.87, 3561.8, false },   { "llama-2-13b-gqa8", 64, 33.41, 9.97, 6416.7, true },
        { "llama-2-13b-gqa8", 256, 65.63, 19.59, 13068, true },
    };
    rg_plan_machine h100 = machine("h100", 1);

    (void)state;
    for (size_t i = 0; i < RG_LEN(golden); i++) {
        rg_model *m = open_shape(golden[i].shape, RG_BF16);
        rg_plan_subject s = { .method = RG_PLAN_CLOSED_FORM, .model = m, .weight_bytes = 2, .kv_value_bytes = 2 };
        rg_plan_row r = point(&s, &h100, golden[i].batch, 1024);
        is_about(r.memory.total / 1e9, golden[i].memory_gb, 5e-4);
        is_about(r.latency_s * 1e3, golden[i].latency_ms, 1e-3);
        is_about(r.throughput, golden[i].tok_s, 5e-4);
        assert_int_equal(r.fits, golden[i].fits);
        is_about(r.critical_batch, 295, 2e-3);
        rg_model_close(m);
    }
}

static void llama_sizes(void **state)
{
    rg_error err = { 0 };
    double params;

    (void)state;
    rg_model *m = open_shape("llama-2-13b", RG_BF16);
    assert_ok(rg_plan_textbook_params(&m->config, &params, &err), err);
    is_about(params, 13.015e9, 1e-4);
    assert_true(rg_plan_textbook_kv_values(&m->config) * 2 == 819200);
    rg_model_close(m);
    m = open_shape("llama-2-13b-gqa8", RG_BF16);
    assert_ok(rg_plan_textbook_params(&m->config, &params, &err), err);
    is_about(params, 11.338e9, 1e-4);
    rg_model_close(m);
}

/* Matrices B T; attention S T / (S + T) times N / K: S / 2 in prefill, less than 1 in decode whatever the batch. */
static void intensities(void **state)
{
    static const char *const shapes[] = { "llama-2-13b", "llama-2-13b-gqa8" };
    rg_plan_machine h100 = machine("h100", 1);
    rg_error err = { 0 };

    (void)state;
    for (int i = 0; i < 2; i++) {
        rg_model *m = open_shape(shapes[i], RG_BF16);
        rg_plan_subject s = { .method = RG_PLAN_CLOSED_FORM, .model = m, .weight_bytes = 2, .kv_value_bytes = 2 };
        rg_plan_ops ops;
        double share = i ? 5 : 1;
        for (int batch = 1; batch <= 64; batch *= 64) {
            assert_ok(rg_plan_list_ops(&s, &h100, batch, 1024, &ops, &err), err);
            assert_int_equal(ops.n, 4);
            is_about(ops.op[0].ops / ops.op[0].bytes, batch, 1e-9);
            is_about(ops.op[1].ops / ops.op[1].bytes, 1024.0 / 1025 * share, 1e-9);
            is_about(ops.op[2].ops / ops.op[2].bytes, 1024, 1e-9);
            is_about(ops.op[3].ops / ops.op[3].bytes, 512 * share, 1e-9);
        }
        rg_model_close(m);
    }
}

static void serving_quiz(void **state)
{
    rg_plan_subject s = { .method = RG_PLAN_GENERAL, .params = 30e9, .kv_bytes = 100e3, .weight_bytes = 1 };
    rg_plan_machine v5e = machine("v5e", 16);

    (void)state;
    rg_plan_row r = point(&s, &v5e, 4, 8192);
    is_about(r.latency_s, 2.57e-3, 2e-3);
    assert_int_equal(r.bound_by, RG_BOUND_WEIGHTS);
    r = point(&s, &v5e, 256, 8192);
    is_about(r.latency_s, 21.05e-3, 1e-3);
    assert_int_equal(r.bound_by, RG_BOUND_KV);
    assert_true(r.fits && r.max_batch == 275); /* (256e9 - 30e9) / (8192 x 100e3) */
    r = point(&s, &v5e, 276, 8192);
    assert_false(r.fits);
    s.weight_bytes = 2;
    r = point(&s, &v5e, 1, 8192);
    is_about(r.critical_batch, 243, 2e-3);
}

/* The largest batch fits and one more does not; the knee is where doubling first costs what it says. */
static void largest_and_knee(void **state)
{
    static const rg_plan_method methods[] = { RG_PLAN_COUNTED, RG_PLAN_CLOSED_FORM, RG_PLAN_GENERAL };
    rg_plan_machine h100 = machine("h100", 1);
    rg_model *m = open_shape("llama-2-13b", RG_BF16);
    rg_error err = { 0 };

    (void)state;
    for (size_t i = 0; i < RG_LEN(methods); i++) {
        rg_plan_subject s = { .method = methods[i], .model = m, .weight_bytes = 2, .kv_value_bytes = 2 };
        rg_plan_row r = point(&s, &h100, 1, 1024);
        double one, two;
        assert_true(r.max_batch > 0 && point(&s, &h100, r.max_batch, 1024).fits);
        assert_false(point(&s, &h100, r.max_batch + 1, 1024).fits);
        assert_true(r.knee_batch > 1);
        for (int k = 0; k < 2; k++) {
            assert_ok(rg_plan_latency(&s, &h100, r.knee_batch - k, 1024, &one, &err), err);
            assert_ok(rg_plan_latency(&s, &h100, 2 * (r.knee_batch - k), 1024, &two, &err), err);
            double gain = pow(2 * one / two, 1 / log2(two / one)) - 1; /* of throughput, per doubling of latency */
            assert_true(k ? gain >= 0.1 - 1e-4 : gain <= 0.1 + 1e-4);
        }
    }
    rg_model_close(m);
}

/* ---- counted ---- */

/* Where compute does not bind and there is no more than the textbook has, counting says what the textbook says, less the
 * embedding's rows that are not touched, plus norms. */
static void counted_beside_closed(void **state)
{
    rg_plan_machine h100 = machine("h100", 1);
    rg_model *m = open_shape("llama-2-13b", RG_BF16);
    rg_plan_subject s = { .method = RG_PLAN_COUNTED, .model = m, .weight_bytes = 2, .kv_value_bytes = 2 };

    (void)state;
    rg_plan_row r = point(&s, &h100, 4, 1024);
    double table = 32000.0 * 5120 * 2, touched = 4 * 5120 * 2, norms = 81 * 5120 * 4.0, stored = 4 * 819200;
    is_about(r.latency_s * 3.35e12, r.closed_latency_s * 3.35e12 - table + touched + norms + stored, 1e-9);
    is_about(r.memory.kv, 4 * 1024 * 819200.0, 1e-12);
    assert_int_equal(r.bound_by, RG_BOUND_WEIGHTS);
    r = point(&s, &h100, 64, 65); /* 65 positions take two blocks */
    is_about(r.memory.kv, 64 * 128 * 819200.0, 1e-12);
    is_about(r.ops / r.bytes, r.intensity, 1e-12);
    r = point(&s, &h100, 512, 1);
    assert_int_equal(r.bound_by, RG_BOUND_COMPUTE);
    rg_model_close(m);
}

/* A shape, whose rows are said to be causal, counts like a batch that spells them out, windows included. */
static void shapes_are_batches(void **state)
{
    enum { ROWS = 90 };
    static const int starts[] = { 0, 1, 5, 40, 63, 64, 200 };
    rg_plan_machine h100 = machine("h100", 1);
    int32_t index[ROWS], kv_end[ROWS];
    rg_error err = { 0 };

    (void)state;
    rg_checkpoint *c = rg_checkpoint_open(test_data("gemma3"), RG_CKPT_NO_WEIGHTS, &err);
    assert_ok(c, err);
    rg_model *m = rg_model_open(c, &(rg_model_options){ .declare_only = true }, &err);
    assert_ok(m, err);
    assert_true(m->config.window > 0);
    for (size_t i = 0; i < RG_LEN(starts); i++) {
        for (int n = 1; n <= ROWS; n += 7) {
            rg_span span = { .n_rows = n, .start = starts[i], .adapter = -1 };
            rg_batch b = { .n_rows = n, .n_spans = 1, .spans = &span, .index = index, .kv_end = kv_end, .n_logits = 1 };
            rg_step_shape shape = { .n_seqs = 1, .n_rows = n, .start = starts[i] };
            rg_cost spelled, shaped;
            for (int r = 0; r < n; r++) {
                index[r] = starts[i] + r;
                kv_end[r] = index[r] + 1;
            }
            rg_cost_batch(m, &h100.m, &b, false, &spelled);
            assert_ok(rg_cost_shape(m, &h100.m, &shape, &shaped, NULL, NULL, &err), err);
            assert_true(spelled.count.ops == shaped.count.ops && spelled.count.state_bytes == shaped.count.state_bytes &&
                        spelled.count.weight_bytes == shaped.count.weight_bytes && spelled.seconds == shaped.seconds);
        }
    }
    rg_model_close(m);
    rg_checkpoint_close(c);
}

/* Rows given as batches and as shapes are priced alike, a prompt in steps is the sum of them, and a list of operations
 * adds up to the step. */
static void add_seconds(void *arg, const rg_counted *op, double seconds)
{
    double *sums = arg;

    sums[0] += seconds;
    sums[1] += op->count.ops;
    sums[2] += op->count.weight_bytes + op->count.state_bytes;
}

static void costs_add_up(void **state)
{
    rg_plan_machine p = machine("xeon-8480", 1);
    rg_model *m = open_shape("llama-2-13b-gqa8", RG_Q4_0);
    rg_profile profile;
    rg_error err = { 0 };

    (void)state;
    test_profile(&profile, 2);
    for (int measured = 0; measured < 2; measured++) {
        rg_step_shape shape = { .n_seqs = 3, .n_rows = 2, .start = 700 };
        double sums[3] = { 0 };
        rg_cost cost, prompt, first, second;
        double step_s = measured ? profile.rates.step_s : 0;
        p.m.rates = measured ? &profile.rates : NULL;
        assert_ok(rg_cost_shape(m, &p.m, &shape, &cost, add_seconds, sums, &err), err);
        is_about(sums[0] + step_s, cost.seconds, 1e-9);
        is_about(sums[1], cost.count.ops, 1e-12);
        is_about(sums[2], cost.count.weight_bytes + cost.count.state_bytes, 1e-12);
        is_about(cost.weights_s + cost.state_s + cost.compute_s, cost.limit_s, 1e-12);
        assert_true(cost.seconds >= cost.fixed_s && cost.fixed_s >= step_s);

        shape = (rg_step_shape){ .n_seqs = 1, .n_rows = 700 };
        rg_cost_prompt(m, &p.m, &shape, 512, &prompt);
        shape.n_rows = 512;
        assert_ok(rg_cost_shape(m, &p.m, &shape, &first, NULL, NULL, &err), err);
        shape = (rg_step_shape){ .n_seqs = 1, .n_rows = 188, .start = 512 };
        assert_ok(rg_cost_shape(m, &p.m, &shape, &second, NULL, NULL, &err), err);
        is_about(prompt.seconds, first.seconds + second.seconds, 1e-12);
        is_about(prompt.count.ops, first.count.ops + second.count.ops, 1e-12);
    }
    rg_model_close(m);
}

/* ---- what if ---- */

static const rg_what_if_row *find_change(const rg_what_if *all, const char *start)
{
    for (int i = 0; i < all->n; i++)
        if (!strncmp(all->row[i].name, start, strlen(start)))
            return &all->row[i];
    print_error("no change '%s'\n", start);
    fail();
    return NULL;
}

static void what_if(void **state)
{
    static const int32_t lengths[] = { 100, 200, 600 };
    rg_what_if_options o = { .keep = 0.5, .acceptance = 0.8, .draft_cost = 0, .lengths = lengths, .n_lengths = 3,
                           .window = 1024, .chips = 4, .skipped = 0.36 };
    rg_plan_machine h100 = machine("h100", 1);
    rg_model *m = open_shape("llama-2-13b", RG_BF16);
    rg_plan_subject s = { .method = RG_PLAN_COUNTED, .model = m, .weight_bytes = 2, .kv_value_bytes = 2 };
    rg_error err = { 0 };
    rg_what_if all;

    (void)state;
    assert_ok(rg_what_if_try(&s, &h100, 16, 4096, &o, &all, &err), err);
    const rg_what_if_row *base = &all.row[0];
    rg_plan_row r = point(&s, &h100, 16, 4096);
    assert_true(base->latency_s == r.latency_s && base->memory_bytes == r.memory.total);
    for (int i = 0; i < all.n; i++) {
        assert_true(all.row[i].formula[0] && all.row[i].latency_s > 0 && all.row[i].throughput > 0);
        assert_int_equal(all.row[i].fits, all.row[i].memory_bytes <= 80e9);
    }
    /* K/V of a quarter of the heads, and k_proj and v_proj with them. */
    double heads = 16 * 4096 * 819200.0 * 0.75 + 40 * 2.0 * 5120 * 5120 * 0.75 * 2;
    is_about(base->memory_bytes - find_change(&all, "kv heads 40 -> 10")->memory_bytes, heads, 1e-6);
    double half = 16 * 4096 * 819200.0 / 2;
    is_about(base->memory_bytes - find_change(&all, "q8 K/V")->memory_bytes, half * (2 - 1.0625), 1e-6);
    double made = 20 * 2.0 * 5120 * 5120 * 2;
    is_about(base->memory_bytes - find_change(&all, "CLA 2")->memory_bytes, half + made, 1e-6);
    /* Of the blocks of 64 keys 36 % are left out: V of these is not read.  Nothing of the memory is saved. */
    const rg_what_if_row *skips = find_change(&all, "attention skips 36 %");
    is_about(base->latency_s - skips->latency_s, 0.18 * 16 * 4096 * 819200.0 / 3.35e12, 1e-3);
    assert_true(skips->memory_bytes == base->memory_bytes);
    /* 4.5 H values instead of 2 N H. */
    double mla = 16 * 4096 * 819200.0 * (1 - 4.5 / 80), q = 0.5 * 5120 * 5120.0, kv = (576 - 2 * 5120.0) * 5120;
    double absorb = 2 * 512 * 128 * 40.0;
    is_about(base->memory_bytes - find_change(&all, "MLA")->memory_bytes, mla - 40 * 2 * (q + kv + absorb), 1e-6);
    /* 35 of 40 layers keep [128, 128] per head in f32 instead of K/V; then all keep as much, and make B and C of 128. */
    double linear = 16 * 40 * 128.0 * 128 * 4 * 35;
    is_about(base->memory_bytes - find_change(&all, "linear")->memory_bytes, 16 * 4096 * 819200.0 * 35 / 40 - linear, 1e-6);
    double bc = 40 * 2 * (5120.0 - 256) * 5120;
    is_about(base->memory_bytes - find_change(&all, "recurrent")->memory_bytes,
             16 * 4096 * 819200.0 - linear * 40 / 35 + bc, 1e-6);
    assert_true(find_change(&all, "recurrent")->latency_s < find_change(&all, "linear")->latency_s);
    assert_true(find_change(&all, "windows of 1024")->memory_bytes < base->memory_bytes);
    assert_true(find_change(&all, "int4 weights")->latency_s < find_change(&all, "int8 weights")->latency_s);
    assert_true(find_change(&all, "speculation")->latency_s < base->latency_s);
    is_about(find_change(&all, "static")->throughput, base->throughput * 0.5, 1e-12);
    is_about(find_change(&all, "4 replicas")->throughput, 4 * base->throughput, 1e-12);
    assert_true(find_change(&all, "tensor")->latency_s > base->latency_s / 4);
    is_about(rg_speculation_tokens(0.8, 3), (1 - 0.8 * 0.8 * 0.8 * 0.8) / (1 - 0.8), 1e-12);
    s.method = RG_PLAN_CLOSED_FORM;
    assert_false(rg_what_if_try(&s, &h100, 1, 1024, &o, &all, &err));
    rg_model_close(m);
}

/* ---- machines, and what is refused ---- */

static void machines(void **state)
{
    rg_plan_machine m;
    rg_error err = { 0 };
    int n = 0;

    (void)state;
    for (; rg_plan_machine_nth(n); n++) {
        m = machine(rg_plan_machine_nth(n), 2);
        assert_true(m.m.roofs.read_bytes_s > 1e9 && rg_roofs_peak(&m.m.roofs, RG_BF16, false) > 1e10 && m.memory_bytes > 1e9);
        assert_true(rg_roofs_peak(&m.m.roofs, RG_Q8_0, false) >= rg_roofs_peak(&m.m.roofs, RG_Q8_0, true));
    }
    assert_true(n >= 10);
    m = machine("h100", 8);
    assert_true(m.m.roofs.bf16_ops_s == 8 * 989e12 && m.memory_bytes == 640e9 && m.link_bytes_s == 450e9);
    assert_false(rg_plan_machine_find(&m, "abacus", &err));
    assert_non_null(strstr(err.text, "abacus"));
    assert_non_null(strstr(err.text, "h100"));
}

static void refusals(void **state)
{
    rg_plan_machine h100 = machine("h100", 1);
    rg_model *m = open_shape("llama-2-13b", RG_BF16);
    rg_plan_subject s = { .method = RG_PLAN_COUNTED, .model = m, .weight_bytes = 2, .kv_value_bytes = 2 };
    static const int64_t bad[] = { 0, -1, INT64_MAX, INT64_MIN, (int64_t)1 << 40 };
    rg_plan_method method;
    rg_error err = { 0 };
    rg_plan_row row;
    rg_plan_ops ops;
    rg_cost cost;

    (void)state;
    for (size_t i = 0; i < RG_LEN(bad); i++) {
        assert_false(rg_plan_point(&s, &h100, bad[i], 1024, &row, &err));
        assert_non_null(strstr(err.text, "batch"));
        assert_false(rg_plan_point(&s, &h100, 1, bad[i], &row, &err));
        assert_non_null(strstr(err.text, "positions"));
        assert_false(rg_plan_list_ops(&s, &h100, 1, bad[i], &ops, &err));
    }
    assert_false(rg_cost_shape(m, &h100.m, &(rg_step_shape){ .n_seqs = 1 << 20, .n_rows = 1 << 20 }, &cost, NULL, NULL, &err));
    assert_false(rg_cost_shape(m, &h100.m, &(rg_step_shape){ .n_seqs = 1, .n_rows = 1, .start = INT64_MAX }, &cost, NULL, NULL,
                               &err));
    assert_false(rg_plan_method_by_name("guess", &method, &err));
    s = (rg_plan_subject){ .method = RG_PLAN_COUNTED, .params = 1e9, .kv_bytes = 1 };
    assert_false(rg_plan_point(&s, &h100, 1, 1, &row, &err));
    rg_model_close(m);
}

/* ---- reports ---- */

static void reports(void **state)
{
    rg_plan_machine h100 = machine("h100", 1);
    rg_model *m = open_shape("llama-2-13b", RG_BF16);
    rg_plan_subject s = { .method = RG_PLAN_COUNTED, .model = m, .weight_bytes = 2, .kv_value_bytes = 2 };
    rg_plan_row rows[2] = { point(&s, &h100, 1, 1024), point(&s, &h100, 256, 1024) };
    rg_svg_point points[2] = { { 1, rows[0].latency_s, rows[0].throughput, 0.01, true },
                               { 256, rows[1].latency_s, rows[1].throughput, 0, false } };
    rg_plan_ops ops;
    rg_error err = { 0 };
    rg_buf b;

    (void)state;
    assert_ok(rg_plan_list_ops(&s, &h100, 1, 1024, &ops, &err), err);
    rg_plan_report r = { .title = "a <model> & more", .subject = &s, .rows = rows, .n_rows = 2, .ops = &ops };
    rg_buf_init(&b, 1 << 20);
    rg_report_text(&b, &r);
    assert_false(b.failed);
    assert_non_null(strstr(b.data, "does not fit"));
    rg_buf_reset(&b);
    rg_report_csv(&b, &r);
    int lines = 0, commas = 0;
    for (const char *p = b.data; *p; p++) {
        commas += *p == ',';
        lines += *p == '\n';
    }
    assert_int_equal(lines, 3);
    assert_int_equal(commas, 3 * 26);
    rg_buf_reset(&b);
    rg_svg_plan svg = { .title = r.title, .machine = &h100, .row = &rows[0], .ops = &ops, .points = points, .n_points = 2 };
    rg_svg_write(&b, &svg);
    assert_false(b.failed);
    assert_non_null(strstr(b.data, "a &lt;model&gt; &amp; more"));
    assert_non_null(strstr(b.data, "prefers-color-scheme: dark"));
    assert_null(strstr(b.data, "nan"));
    assert_null(strstr(b.data, "inf"));
    assert_string_equal(b.data + b.n - 7, "</svg>\n");
    rg_buf_fini(&b);
    rg_model_close(m);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_on_h100),     cmocka_unit_test(llama_sizes),   cmocka_unit_test(intensities),
        cmocka_unit_test(serving_quiz),      cmocka_unit_test(largest_and_knee),
        cmocka_unit_test(counted_beside_closed), cmocka_unit_test(shapes_are_batches),
        cmocka_unit_test(costs_add_up),
        cmocka_unit_test(what_if),            cmocka_unit_test(machines),      cmocka_unit_test(refusals),
        cmocka_unit_test(reports),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
