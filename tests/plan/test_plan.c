/* test_plan.c -- plans against closed forms: the textbook's table for Llama-2-13B on an H100, the scaling book's serving
 * quiz, counts against the formulas, levers against theirs, and what is refused. */
#include <math.h>
#include <stdio.h>
#include <string.h>

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

static void made_up_rates(rg_machine *m)
{
    rg_rates *r = &m->rates;

    r->measured = true;
    r->n_threads = 2;
    for (int i = 0; i < RG_RATE_SETS; i++)
        r->set_bytes_s[i] = 100e9 / (1 + i);
    for (int t = 0; t < RG_TYPE_COUNT; t++) {
        r->linear[t].measured = r->attention[t].measured = true;
        for (int i = 0; i < RG_RATE_ROWS; i++) {
            r->linear[t].near_s[i] = 1e-12 * rg_rate_rows[i];
            r->linear[t].far_s[RG_FROM_MEMORY][i] = 5e-12;
        }
        for (int i = 0; i < RG_RATE_QUERIES; i++) {
            r->attention[t].width_s[i] = 2e-12;
            r->attention[t].far_s[RG_FROM_MEMORY][i] = 3e-12;
        }
    }
    for (int k = 0; k < RG_OP_COUNT; k++) {
        r->fixed_s[k] = 1e-6;
        r->few_s[k] = 1e-10;
        r->many_s[k] = 2e-10;
    }
}

static void costs_add_up(void **state)
{
    rg_plan_machine p = machine("xeon-8480", 1);
    rg_model *m = open_shape("llama-2-13b-gqa8", RG_Q4_0);
    rg_error err = { 0 };

    (void)state;
    for (int measured = 0; measured < 2; measured++) {
        rg_step_shape shape = { .n_seqs = 3, .n_rows = 2, .start = 700 };
        double sums[3] = { 0 };
        rg_cost cost, prompt, first, second;
        if (measured)
            made_up_rates(&p.m);
        p.m.step_s = 1e-5;
        assert_ok(rg_cost_shape(m, &p.m, &shape, &cost, add_seconds, sums, &err), err);
        is_about(sums[0] + p.m.step_s, cost.seconds, 1e-9);
        is_about(sums[1], cost.count.ops, 1e-12);
        is_about(sums[2], cost.count.weight_bytes + cost.count.state_bytes, 1e-12);
        is_about(cost.weights_s + cost.state_s + cost.compute_s, cost.limit_s, 1e-12);
        assert_true(cost.seconds >= cost.fixed_s && cost.fixed_s >= p.m.step_s);

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

/* A machine that gives half of its bandwidth: what waits for memory takes twice as long, what computes as long as before;
 * half of its arithmetic, the other way round; all, as if nothing were said. */
static void what_is_given(void **state)
{
    rg_plan_machine p = machine("xeon-8480", 1);
    rg_model *m = open_shape("llama-2-13b-gqa8", RG_Q4_0);
    const rg_share shares[] = { { 0, 0 }, { 1, 1 }, { 0.5, 1 }, { 1, 0.5 }, { 0.5, 0.5 }, { 2, 2 } };
    double decode[RG_LEN(shares)], prefill[RG_LEN(shares)], sums[3];
    rg_error err = { 0 };

    (void)state;
    is_about(rg_share_delay(&(rg_share){ 0.5, 1 }, RG_FROM_MEMORY, 2, 5), 5, 1e-12);   /* 10 for 5 */
    is_about(rg_share_delay(&(rg_share){ 0.5, 1 }, RG_FROM_MEMORY, 4, 3), 2, 1e-12);   /* memory's 6 for arithmetic's 4 */
    is_about(rg_share_delay(&(rg_share){ 1, 0.5 }, RG_FROM_MEMORY, 4, 3), 4, 1e-12);
    is_about(rg_share_delay(&(rg_share){ 1, 0.5 }, RG_FROM_MEMORY, 2, 5) + 1, 1, 1e-12); /* hidden */
    is_about(rg_share_delay(&(rg_share){ 2, 1 }, RG_FROM_MEMORY, 2, 5), -2.5, 1e-12);
    made_up_rates(&p.m);
    for (int k = 0; k < RG_OP_COUNT; k++) /* products alone */
        p.m.rates.fixed_s[k] = p.m.rates.few_s[k] = p.m.rates.many_s[k] = 0;
    for (int t = 0; t < RG_TYPE_COUNT; t++)
        for (int i = 0; i < RG_RATE_ROWS; i++) {
            double bytes = (double)rg_format_of((rg_type)t)->block_bytes / rg_format_of((rg_type)t)->block_len;
            p.m.rates.linear[t].near_s[i] = 0.01 * bytes / p.m.read_bytes_s * rg_rate_rows[i]; /* computes from 100 rows on */
            p.m.rates.linear[t].far_s[RG_FROM_MEMORY][i] = i ? 0 : 0.99 * bytes / p.m.read_bytes_s;
        }
    for (size_t i = 0; i < RG_LEN(shares); i++) {
        rg_step_shape shape = { .n_seqs = 1, .n_rows = 1, .start = 1 };
        rg_cost cost;
        p.m.share = shares[i];
        memset(sums, 0, sizeof sums);
        assert_ok(rg_cost_shape(m, &p.m, &shape, &cost, add_seconds, sums, &err), err);
        is_about(sums[0] + p.m.step_s, cost.seconds, 1e-9);
        decode[i] = cost.seconds - p.m.step_s;
        shape.n_rows = 512;
        assert_ok(rg_cost_shape(m, &p.m, &shape, &cost, NULL, NULL, &err), err);
        prefill[i] = cost.seconds - p.m.step_s;
    }
    is_about(decode[1], decode[0], 1e-12);
    is_about(decode[2], 2 * decode[0], 0.02);
    is_about(decode[3], decode[0], 0.02);
    is_about(decode[4], 2 * decode[0], 0.02);
    is_about(decode[5], decode[0] / 2, 0.02);
    is_about(prefill[2], prefill[0], 0.02);
    is_about(prefill[3], 2 * prefill[0], 0.02);
    rg_model_close(m);
}

/* What lies in a cache does not wait for memory, and what lies there in part waits for some of it. */
static void caches_give_all(void **state)
{
    rg_plan_machine p = machine("xeon-8480", 1);
    rg_counted op = { .kind = RG_OP_LINEAR, .rows = 1, .n_rows = 1, .count = { .ops = 2, .weight_bytes = 1e9 } };
    double *rate = p.m.rates.set_bytes_s, cost[2][3];

    (void)state;
    made_up_rates(&p.m);
    op.w[0] = (rg_counted_weight){ .type = RG_F32, .values = 1 };
    for (int i = 0; i < RG_RATE_SETS; i++) {
        size_t set = (size_t)rg_rate_sets[i];
        rate[i] = set > 16 << 20 ? 1e9 : set > 4 << 20 ? 1.25e9 : 3e9;
    }
    for (int half = 0; half < 2; half++)
        for (int i = 0; i < 3; i++) {
            p.m.share = (rg_share){ .memory = half ? 0.5 : 1, .compute = 1 };
            rg_sources from = rg_cost_sources(&p.m, (size_t[]){ 1 << 20, 16 << 20, 1 << 30 }[i], 0);
            cost[half][i] = rg_cost_op(&p.m, &op, &from, true);
        }
    is_about(cost[1][0], cost[0][0], 1e-12);
    is_about(cost[1][1] - cost[0][1], 0.6 * 1e9 / p.m.read_bytes_s, 1e-6); /* 2 x 1 / 1.25 - 1 */
    is_about(cost[1][2] - cost[0][2], 1e9 / p.m.read_bytes_s, 1e-6);
    p.m.rates.linear[RG_F32].far_start_s = 1; /* nor does it wait until bytes flow from memory */
    for (int i = 0; i < 3; i++) {
        rg_sources from = rg_cost_sources(&p.m, (size_t[]){ 1 << 20, 16 << 20, 1 << 30 }[i], 0);
        is_about(rg_cost_op(&p.m, &op, &from, true) - cost[1][i] + 1, (double[]){ 0, 0.6, 1 }[i] + 1, 1e-6);
    }
}

/* What comes from the last cache goes at the pace that it gives, unless the cores take longer. */
static void caches_give_some(void **state)
{
    rg_plan_machine p = machine("xeon-8480", 1);
    rg_counted op = { .kind = RG_OP_LINEAR, .rows = 1, .n_rows = 1, .w[0] = { .type = RG_F32, .values = 1e6 } };
    const rg_sources cache = { .far[RG_FROM_CACHE] = 1 };

    (void)state;
    made_up_rates(&p.m);
    op.count.weight_bytes = 4e6;
    p.m.cache_bytes_s = 1e12;
    p.m.rates.linear[RG_F32].far_s[RG_FROM_CACHE][0] = 3e-12;
    double all = rg_cost_op(&p.m, &op, &cache, true);
    is_about(all, 1e-6 + 1e-6 + 3e-6, 1e-9);
    op.w[0].outputs = 1000;
    p.m.rates.linear[RG_F32].far_row_s[0] = 2e-9; /* as panels begin: of what comes from there alone */
    is_about(rg_cost_op(&p.m, &op, &cache, true) - rg_cost_op(&p.m, &op, &(rg_sources){ 0 }, true), 5e-6, 1e-9);
    op.w[0].outputs = 0;
    p.m.share = (rg_share){ .memory = 1, .compute = 1, .cache = 0.5 };
    is_about(rg_cost_op(&p.m, &op, &cache, true), all + 4e-6, 1e-9); /* all bytes, not what shows of them */
    p.m.share = (rg_share){ .memory = 1, .compute = 0.5, .cache = 1 };
    is_about(rg_cost_op(&p.m, &op, &cache, true), all + 1e-6, 1e-9); /* what is fixed: the rest is hidden */
    p.m.share = (rg_share){ .memory = 1, .compute = 0.1, .cache = 0.5 };
    is_about(rg_cost_op(&p.m, &op, &cache, true), all + 9e-6 + 6e-6, 1e-9); /* 10 for 4 */
    p.m.share = (rg_share){ .memory = 1, .compute = 1, .cache = 10 };
    is_about(rg_cost_op(&p.m, &op, &cache, true), 2e-6, 1e-9); /* never sooner than from near */
}

/* What a byte of a set takes when all is given: of a machine that gives 0.6 of memory and 0.8 of the last cache, where
 * it comes from both as much of it does. */
static void bytes_of_a_set(void **state)
{
    const rg_machine m = { .read_bytes_s = 6e10, .cache_bytes_s = 2e11 };
    const rg_share all = { 0 }, some = { .memory = 0.6, .compute = 0.5, .cache = 0.8 };
    const double far_s = 1 / 6e10, cache_s = 1 / 2e11, far_now = far_s / 0.6, cache_now = cache_s / 0.8;

    (void)state;
    for (int i = -2; i <= 12; i++) {
        double x = i / 10.0;
        is_about(rg_share_byte(&m, &all, cache_s + x * (far_s - cache_s)), cache_s + x * (far_s - cache_s), 1e-9);
        if (i >= 0 && i <= 10)
            is_about(rg_share_byte(&m, &some, cache_now + x * (far_now - cache_now)),
                     cache_s + x * (far_s - cache_s), 1e-9);
    }
    is_about(rg_share_byte(&m, &some, 1.5 * far_now), 1.5 * far_s, 1e-9);     /* it differs from look to look, */
    is_about(rg_share_byte(&m, &some, 0.9 * cache_now), 0.9 * cache_s, 1e-9); /* here too */
    is_about(rg_share_byte(&m, &some, cache_now / 3), cache_now / 3, 1e-9);   /* near */
}

/* Near, in the last cache, in memory, and between two of them by what a byte takes; and with time others take of it. */
static void caches_are_taken(void **state)
{
    static const struct {
        double set, seconds, cache, memory;
    } cases[] = { { 1 << 20, 0, 0, 0 },        { 8 << 20, 0, 1, 0 },           { 64 << 20, 0, 0, 1 },
                  { 2 << 20, 0, 0.5, 0 },      { 16 << 20, 0, 0.75, 0.25 },    { 1 << 20, 1e-3, 0, 0.4 },
                  { 8 << 20, 1e-3, 0.6, 0.4 }, { 8 << 20, 0.75e-3, 0.7, 0.3 }, { 8 << 20, 0.125e-3, 0.95, 0.05 },
                  { 8 << 20, 1, 0.2, 0.8 },    { 16 << 20, 1, 0.15, 0.85 },    { 64 << 20, 1, 0, 1 } };
    static const double at_least[][2] = { { 0x2p20, 2 }, { 0x4p20, 3 }, { 0x10p20, 4 }, { 0x20p20, 5 }, { 0x40p20, 7 } };
    rg_plan_machine p = machine("xeon-8480", 1);
    rg_counted op = { .kind = RG_OP_EMBED, .n_rows = 1, .cells = 1, .count = { .ops = 1, .weight_bytes = 8 << 20 } };
    rg_cost cost;

    (void)state;
    made_up_rates(&p.m);
    memcpy(p.m.rates.taken, (double[RG_RATE_PAUSES]){ 0.1, 0.2, 0.4, 0.6, 0.8 }, sizeof p.m.rates.taken);
    for (int i = 0; i < RG_RATE_SETS; i++) {
        p.m.rates.set_bytes_s[i] = 1e20; /* so quick that nothing is taken while a set is gone through */
        for (size_t k = 0; k < RG_LEN(at_least); k++)
            if (rg_rate_sets[i] >= at_least[k][0])
                p.m.rates.set_bytes_s[i] = 1e20 / at_least[k][1];
    }
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        rg_sources from = rg_cost_sources(&p.m, cases[i].set, cases[i].seconds);
        is_about(from.far[RG_FROM_CACHE] + 1, cases[i].cache + 1, 1e-9);
        is_about(from.far[RG_FROM_MEMORY] + 1, cases[i].memory + 1, 1e-9);
    }
    /* 16 MB gone through in 1 ms, while 0.4 were taken: after it 0.8 of which, or 1 - 0.2 / 0.6. */
    for (int i = 0; i < RG_RATE_SETS; i++)
        p.m.rates.set_bytes_s[i] *= (16 << 20) / 1e-3 / (1e20 / 4);
    is_about(rg_cost_sources(&p.m, 16 << 20, 0.5e-3).far[RG_FROM_MEMORY], 0.25, 1e-9);
    is_about(rg_cost_sources(&p.m, 16 << 20, 1e-3).far[RG_FROM_MEMORY], 0.25, 1e-9);
    is_about(rg_cost_sources(&p.m, 16 << 20, 1).far[RG_FROM_MEMORY], 0.25 + 0.75 * (1 - 0.2 / 0.6), 1e-9);
    /* The longer a step takes, the more is taken, and the longer it takes. */
    p.m.step_s = 1e-3;
    rg_cost_list(&p.m, &op, 1, true, &cost);
    is_about(cost.from.far[RG_FROM_MEMORY], rg_cost_sources(&p.m, 8 << 20, cost.seconds).far[RG_FROM_MEMORY], 1e-6);
    assert_true(cost.from.far[RG_FROM_MEMORY] > rg_cost_sources(&p.m, 8 << 20, p.m.step_s).far[RG_FROM_MEMORY] + 0.05);
    is_about(cost.seconds, p.m.step_s + rg_cost_op(&p.m, &op, &cost.from, true), 1e-9);
}

/* What a product adds to is read; rows are taken one by one. */
static void rows_and_values(void **state)
{
    rg_plan_machine p = machine("xeon-8480", 1);
    const rg_sources near = { 0 };
    rg_counted op = { .kind = RG_OP_ROTATE, .n_rows = 1, .cells = 100 };

    (void)state;
    made_up_rates(&p.m);
    p.m.rates.row_s[RG_OP_ROTATE] = 1e-7;
    double one = rg_cost_op(&p.m, &op, &near, true);
    op.n_rows = 8;
    is_about(rg_cost_op(&p.m, &op, &near, true) - one, 7e-7, 1e-9);
    op = (rg_counted){ .kind = RG_OP_LINEAR, .rows = 1, .n_rows = 1, .w[0] = { .type = RG_F32, .values = 1 } };
    one = rg_cost_op(&p.m, &op, &near, true);
    op.cells = 1000;
    is_about(rg_cost_op(&p.m, &op, &near, true) - one, 1e-7, 1e-6);
    /* A store's rows are those of one sequence. */
    op = (rg_counted){ .kind = RG_OP_KV_STORE, .rows = 1, .n_rows = 512, .cells = 1e6 };
    is_about(rg_cost_op(&p.m, &op, &near, true), 1e-6 + 1e-4, 1e-9);
    op.rows = 512;
    is_about(rg_cost_op(&p.m, &op, &near, true), 1e-6 + 2e-4, 1e-9);
}

/* A long step meets its share of interruptions, a short one some of it. */
static void what_interrupts(void **state)
{
    static const double seconds[][2] = { { 0, 0 },           { 1e-3, 1.05e-3 }, { 2e-3, 2.2e-3 },
                                         { 11e-3, 13.2e-3 }, { 20e-3, 26e-3 },  { 1, 1.3 } };
    rg_plan_machine p = machine("xeon-8480", 1);
    rg_model *m = open_shape("llama-2-13b-gqa8", RG_Q4_0);
    rg_step_shape shape = { .n_seqs = 8, .n_rows = 1, .start = 1000 };
    rg_cost quiet, cost;
    rg_error err = { 0 };

    (void)state;
    made_up_rates(&p.m);
    p.m.step_s = 1;
    assert_ok(rg_cost_shape(m, &p.m, &shape, &quiet, NULL, NULL, &err), err);
    p.m.rates.lost[0] = 0.1;
    p.m.rates.lost[1] = 0.3;
    assert_ok(rg_cost_shape(m, &p.m, &shape, &cost, NULL, NULL, &err), err);
    is_about(cost.seconds, 1.3 * quiet.seconds, 1e-12);
    for (size_t i = 0; i < RG_LEN(seconds); i++) {
        p.m.step_s = seconds[i][0];
        rg_cost_list(&p.m, NULL, 0, false, &cost);
        is_about(cost.seconds + 1, seconds[i][1] + 1, 1e-12);
    }
    rg_model_close(m);
}

/* ---- levers ---- */

static const rg_lever *find_lever(const rg_levers *all, const char *start)
{
    for (int i = 0; i < all->n; i++)
        if (!strncmp(all->lever[i].name, start, strlen(start)))
            return &all->lever[i];
    print_error("no lever '%s'\n", start);
    fail();
    return NULL;
}

static void levers(void **state)
{
    static const int32_t lengths[] = { 100, 200, 600 };
    rg_lever_options o = { .keep = 0.5, .acceptance = 0.8, .draft_cost = 0, .lengths = lengths, .n_lengths = 3,
                           .window = 1024, .chips = 4 };
    rg_plan_machine h100 = machine("h100", 1);
    rg_model *m = open_shape("llama-2-13b", RG_BF16);
    rg_plan_subject s = { .method = RG_PLAN_COUNTED, .model = m, .weight_bytes = 2, .kv_value_bytes = 2 };
    rg_error err = { 0 };
    rg_levers all;

    (void)state;
    assert_ok(rg_levers_try(&s, &h100, 16, 4096, &o, &all, &err), err);
    const rg_lever *base = &all.lever[0];
    rg_plan_row r = point(&s, &h100, 16, 4096);
    assert_true(base->latency_s == r.latency_s && base->memory_bytes == r.memory.total);
    for (int i = 0; i < all.n; i++) {
        assert_true(all.lever[i].formula[0] && all.lever[i].latency_s > 0 && all.lever[i].throughput > 0);
        assert_int_equal(all.lever[i].fits, all.lever[i].memory_bytes <= 80e9);
    }
    /* K/V of a quarter of the heads, and k_proj and v_proj with them. */
    double heads = 16 * 4096 * 819200.0 * 0.75 + 40 * 2.0 * 5120 * 5120 * 0.75 * 2;
    is_about(base->memory_bytes - find_lever(&all, "kv heads 40 -> 10")->memory_bytes, heads, 1e-6);
    double half = 16 * 4096 * 819200.0 / 2;
    is_about(base->memory_bytes - find_lever(&all, "q8 K/V")->memory_bytes, half * (2 - 1.0625), 1e-6);
    double made = 20 * 2.0 * 5120 * 5120 * 2;
    is_about(base->memory_bytes - find_lever(&all, "CLA 2")->memory_bytes, half + made, 1e-6);
    /* 4.5 H values instead of 2 N H. */
    double mla = 16 * 4096 * 819200.0 * (1 - 4.5 / 80), q = 0.5 * 5120 * 5120.0, kv = (576 - 2 * 5120.0) * 5120;
    double absorb = 2 * 512 * 128 * 40.0;
    is_about(base->memory_bytes - find_lever(&all, "MLA")->memory_bytes, mla - 40 * 2 * (q + kv + absorb), 1e-6);
    assert_true(find_lever(&all, "windows of 1024")->memory_bytes < base->memory_bytes);
    assert_true(find_lever(&all, "int4 weights")->latency_s < find_lever(&all, "int8 weights")->latency_s);
    assert_true(find_lever(&all, "speculation")->latency_s < base->latency_s);
    is_about(find_lever(&all, "static")->throughput, base->throughput * 0.5, 1e-12);
    is_about(find_lever(&all, "4 replicas")->throughput, 4 * base->throughput, 1e-12);
    assert_true(find_lever(&all, "tensor")->latency_s > base->latency_s / 4);
    is_about(rg_speculation_tokens(0.8, 3), (1 - 0.8 * 0.8 * 0.8 * 0.8) / (1 - 0.8), 1e-12);
    s.method = RG_PLAN_CLOSED_FORM;
    assert_false(rg_levers_try(&s, &h100, 1, 1024, &o, &all, &err));
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
        assert_true(m.m.read_bytes_s > 1e9 && rg_machine_peak(&m.m, RG_BF16, false) > 1e10 && m.memory_bytes > 1e9);
        assert_true(rg_machine_peak(&m.m, RG_Q8_0, false) >= rg_machine_peak(&m.m, RG_Q8_0, true));
    }
    assert_true(n >= 10);
    m = machine("h100", 8);
    assert_true(m.m.bf16_ops_s == 8 * 989e12 && m.memory_bytes == 640e9 && m.link_bytes_s == 450e9);
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
    assert_int_equal(commas, 3 * 25);
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
        cmocka_unit_test(costs_add_up), cmocka_unit_test(what_is_given), cmocka_unit_test(caches_give_all),
        cmocka_unit_test(caches_give_some), cmocka_unit_test(caches_are_taken), cmocka_unit_test(bytes_of_a_set),
        cmocka_unit_test(rows_and_values), cmocka_unit_test(what_interrupts),
        cmocka_unit_test(levers),            cmocka_unit_test(machines),      cmocka_unit_test(refusals),
        cmocka_unit_test(reports),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
