/* op_cases.c -- the operations that are timed (see op_bench.h), each as a model would call it. */
#include "measure/op_bench.h"

void rg_case_linear(rg_fwd *f, const rg_op_bench *b)
{
    rg_act *x = rg_act_new(f, "x", (int)b->weight.cols), *y = rg_act_new(f, "y", (int)b->weight.rows);

    rg_linear(f, y, x, &b->weight, NULL);
}

void rg_case_gated(rg_fwd *f, const rg_op_bench *b)
{
    rg_act *x = rg_act_new(f, "x", (int)b->weight.cols), *y = rg_act_new(f, "y", (int)b->weight.rows);

    rg_gated(f, y, x, &b->weight, &b->weight, NULL, NULL, RG_SILU);
}

void rg_case_embed(rg_fwd *f, const rg_op_bench *b)
{
    rg_embed(f, rg_act_new(f, "x", (int)b->weight.cols), &b->weight, 1.0f);
}

/* Not in place: applied again and again, its weights would make values denormal, which is slow. */
void rg_case_rmsnorm(rg_fwd *f, const rg_op_bench *b)
{
    rg_act *x = rg_act_new(f, "x", b->width);

    rg_rmsnorm(f, rg_act_new(f, "y", b->width), x, &b->norm, 1e-5f);
}

void rg_case_add(rg_fwd *f, const rg_op_bench *b)
{
    rg_act *x = rg_act_new(f, "x", b->width), *y = rg_act_new(f, "y", b->width);

    rg_add_to(f, y, x);
}

void rg_case_act_mul(rg_fwd *f, const rg_op_bench *b)
{
    rg_act *x = rg_act_new(f, "x", b->width), *y = rg_act_new(f, "y", b->width), *z = rg_act_new(f, "z", b->width);

    rg_act_mul(f, z, x, y, RG_SILU);
}

void rg_case_softcap(rg_fwd *f, const rg_op_bench *b)
{
    rg_softcap(f, rg_act_new(f, "x", b->width), 30.0f);
}

void rg_case_gather(rg_fwd *f, const rg_op_bench *b)
{
    rg_act *x = rg_act_new(f, "x", b->width), *y = rg_act_new(f, "y", b->width);

    rg_gather(f, y, x);
}

void rg_case_rotate(rg_fwd *f, const rg_op_bench *b)
{
    rg_rotate(f, rg_act_new(f, "x", b->width), &b->rope, 64, 0);
}

/* Rows behind position 2 are turned as if they stood at 1, then as if at 2. */
void rg_case_turn_back(rg_fwd *f, const rg_op_bench *b)
{
    rg_act *x = rg_act_new(f, "x", b->width);

    rg_rotate_until(f, x, &b->rope, 64, 0, 1);
    rg_rotate_until(f, x, &b->rope, 64, 0, 2);
}

void rg_case_kv_store(rg_fwd *f, const rg_op_bench *b)
{
    rg_act *k = rg_act_new(f, "k", b->kv.n_heads * b->kv.k_dim), *v = rg_act_new(f, "v", b->kv.n_heads * b->kv.v_dim);

    rg_kv_store(f, &b->kv, k, v);
}

static rg_attend_params attend_all(const rg_op_bench *b)
{
    return (rg_attend_params){ .n_heads = b->n_heads, .scale = 0.1f, .sight = &rg_sight_all };
}

void rg_case_attention(rg_fwd *f, const rg_op_bench *b)
{
    rg_act *q = rg_act_new(f, "q", b->n_heads * b->kv.k_dim), *y = rg_act_new(f, "y", b->n_heads * b->kv.v_dim);
    const rg_attend_params p = attend_all(b);

    rg_attention(f, y, q, &b->kv, &p);
}

void rg_case_mla_attention(rg_fwd *f, const rg_op_bench *b)
{
    const int n = b->n_heads * b->kv.v_dim, n_rotated = b->n_heads * b->kv.k_dim - n;
    rg_act *q = rg_act_new(f, "q", n), *r = rg_act_new(f, "r", n_rotated), *y = rg_act_new(f, "y", n);
    const rg_attend_params p = attend_all(b);

    rg_mla_attention(f, y, q, r, &b->kv, &p);
}

/* As in a model, x and z are halves of one activation. */
void rg_case_conv(rg_fwd *f, const rg_op_bench *b)
{
    const int n = b->width;
    rg_weight taps = { .name = "taps", .n_mats = 1, .rows = n, .cols = RG_BENCH_TAPS, .vec = b->vector };
    rg_weight bias = { .name = "bias", .n_mats = 1, .rows = 1, .cols = n, .vec = b->vector };
    rg_act *xz = rg_act_new(f, "xz", 2 * n), *x = rg_act_view(f, "x", xz, 0, n), *y = rg_act_new(f, "y", n);

    rg_conv(f, y, x, &taps, &bias, &b->tail, RG_SILU);
}

void rg_case_scan(rg_fwd *f, const rg_op_bench *b)
{
    const int n = b->width;
    rg_weight a = { .name = "a", .n_mats = 1, .rows = RG_BENCH_STATES, .cols = n, .vec = b->vector };
    rg_weight d = { .name = "d", .n_mats = 1, .rows = 1, .cols = n, .vec = b->vector };
    rg_act *xz = rg_act_new(f, "xz", 2 * n), *z = rg_act_view(f, "z", xz, n, n), *x = rg_act_new(f, "x", n);
    rg_act *dt = rg_act_new(f, "dt", n), *bc = rg_act_new(f, "bc", 2 * RG_BENCH_STATES), *y = rg_act_new(f, "y", n);

    rg_scan(f, y, x, dt, bc, z, &a, &d, &b->scan);
}

/* The gated delta rule.  Keys are not normalised, so its values overflow, which takes no longer. */
void rg_case_linear_attention(rg_fwd *f, const rg_op_bench *b)
{
    const int n = b->width, heads = n / RG_BENCH_STATE_DIM;
    rg_act *q = rg_act_new(f, "q", n), *k = rg_act_new(f, "k", n), *v = rg_act_new(f, "v", n);
    rg_act *decay = rg_act_new(f, "decay", heads), *beta = rg_act_new(f, "beta", heads), *y = rg_act_new(f, "y", n);
    const rg_linear_attention_params p = { .n_heads = heads, .k_dim = RG_BENCH_STATE_DIM, .v_dim = RG_BENCH_STATE_DIM,
                                           .scale = 0.1f, .delta = true, .q = q, .k = k, .v = v, .decay = decay,
                                           .beta = beta };

    rg_linear_attention(f, y, &p, &b->recurrence);
}
