/* texts.c -- see texts.h. */
#include "model/texts.h"

#include <string.h>

void rg_say_linear(rg_fwd *f, rg_shop *w, int turn)
{
    rg_act *x = rg_act_new(f, "x", (int)w->weight[turn].cols), *y = rg_act_new(f, "y", (int)w->weight[turn].rows);

    rg_linear(f, y, x, &w->weight[turn], NULL);
}

void rg_say_linear_add(rg_fwd *f, rg_shop *w, int turn)
{
    rg_act *x = rg_act_new(f, "x", (int)w->weight[turn].cols), *y = rg_act_new(f, "y", (int)w->weight[turn].rows);

    rg_linear_add(f, y, x, &w->weight[turn], NULL);
}

void rg_say_part(rg_fwd *f, rg_shop *w, int turn)
{
    rg_weight part = w->weight[turn / RG_SAY_PARTS];
    rg_packed packed = *part.packed;

    part.rows = packed.rows /= RG_SAY_PARTS;
    packed.data += (size_t)(turn % RG_SAY_PARTS * (packed.rows / RG_PANEL)) * packed.panel_bytes;
    part.packed = &packed;
    rg_linear(f, rg_act_new(f, "y", (int)part.rows), rg_act_new(f, "x", (int)part.cols), &part, NULL);
}

void rg_say_gated(rg_fwd *f, rg_shop *w, int turn)
{
    rg_act *x = rg_act_new(f, "x", (int)w->weight[turn].cols), *y = rg_act_new(f, "y", (int)w->weight[turn].rows);

    rg_gated(f, y, x, &w->weight[turn], &w->weight[turn], NULL, NULL, RG_SILU);
}

/* Not in place: again and again, its weights would make of some values numbers so small that processors are slow. */
void rg_say_rmsnorm(rg_fwd *f, rg_shop *w, int turn)
{
    rg_act *x = rg_act_new(f, "x", w->width);

    (void)turn;
    rg_rmsnorm(f, rg_act_new(f, "y", w->width), x, &w->norm, 1e-5f);
}

void rg_say_add(rg_fwd *f, rg_shop *w, int turn)
{
    rg_act *x = rg_act_new(f, "x", w->width), *y = rg_act_new(f, "y", w->width);

    (void)turn;
    rg_add_to(f, y, x);
}

void rg_say_act_mul(rg_fwd *f, rg_shop *w, int turn)
{
    rg_act *x = rg_act_new(f, "x", w->width), *y = rg_act_new(f, "y", w->width), *z = rg_act_new(f, "z", w->width);

    (void)turn;
    rg_act_mul(f, z, x, y, RG_SILU);
}

void rg_say_softcap(rg_fwd *f, rg_shop *w, int turn)
{
    (void)turn;
    rg_softcap(f, rg_act_new(f, "x", w->width), 30.0f);
}

void rg_say_gather(rg_fwd *f, rg_shop *w, int turn)
{
    rg_act *x = rg_act_new(f, "x", w->width), *y = rg_act_new(f, "y", w->width);

    (void)turn;
    rg_gather(f, y, x);
}

void rg_say_rotate(rg_fwd *f, rg_shop *w, int turn)
{
    (void)turn;
    rg_rotate(f, rg_act_new(f, "x", w->width), &w->rope, 64, 0);
}

void rg_say_embed(rg_fwd *f, rg_shop *w, int turn)
{
    (void)turn;
    rg_embed(f, rg_act_new(f, "x", (int)w->weight[0].cols), &w->weight[0], 1.0f);
}

void rg_say_kv_store(rg_fwd *f, rg_shop *w, int turn)
{
    rg_act *k = rg_act_new(f, "k", w->kv.n_heads * w->kv.k_dim), *v = rg_act_new(f, "v", w->kv.n_heads * w->kv.v_dim);

    (void)turn;
    rg_kv_store(f, &w->kv, k, v);
}

void rg_say_attention(rg_fwd *f, rg_shop *w, int turn)
{
    rg_act *q = rg_act_new(f, "q", w->n_heads * w->kv.k_dim), *y = rg_act_new(f, "y", w->n_heads * w->kv.v_dim);

    (void)turn;
    rg_attention(f, y, q, &w->kv, &(rg_attend_params){ .n_heads = w->n_heads, .scale = 0.1f });
}

void rg_say_layer(rg_fwd *f, rg_shop *w, int turn)
{
    rg_act *q = rg_act_new(f, "q", w->n_heads * w->kv.k_dim), *y = rg_act_new(f, "y", w->n_heads * w->kv.v_dim);
    rg_kv kv = w->kv;

    kv.offset = (size_t)turn * rg_kv_bytes(&kv);
    rg_attention(f, y, q, &kv, &(rg_attend_params){ .n_heads = w->n_heads, .scale = 0.1f });
}

void rg_say_store_in_layer(rg_fwd *f, rg_shop *w, int turn)
{
    rg_act *k = rg_act_new(f, "k", w->kv.n_heads * w->kv.k_dim), *v = rg_act_new(f, "v", w->kv.n_heads * w->kv.v_dim);
    rg_kv kv = w->kv;

    kv.offset = (size_t)turn * rg_kv_bytes(&kv);
    rg_kv_store(f, &kv, k, v);
    rg_say_layer(f, w, turn);
}

void rg_say_mla_attention(rg_fwd *f, rg_shop *w, int turn)
{
    const int n = w->n_heads * w->kv.v_dim, n_rotated = w->n_heads * w->kv.k_dim - n;
    rg_act *q = rg_act_new(f, "q", n), *r = rg_act_new(f, "r", n_rotated), *y = rg_act_new(f, "y", n);

    (void)turn;
    rg_mla_attention(f, y, q, r, &w->kv, &(rg_attend_params){ .n_heads = w->n_heads, .scale = 0.1f });
}

/* Every expert gets as many rows as any other. */
void rg_say_moe(rg_fwd *f, rg_shop *w, int turn)
{
    int dim = (int)w->weight[0].cols;
    rg_act *x = rg_act_new(f, "x", dim), *y = rg_act_new(f, "y", dim);
    rg_act *r = rg_act_new(f, "r", 2 * RG_SHOP_USED);
    const rg_weight *all[3] = { &w->weight[0], &w->weight[1], &w->weight[2] };

    (void)turn;
    for (int row = 0; f->thread == 0 && row < r->rows; row++) {
        float *to = rg_act_data(f, r) + (size_t)row * (size_t)r->stride;
        for (int32_t k = 0; k < RG_SHOP_USED; k++) {
            int32_t e = row % (RG_SHOP_EXPERTS / RG_SHOP_USED) + k * (RG_SHOP_EXPERTS / RG_SHOP_USED);
            memcpy(to + k, &e, sizeof e);
            to[RG_SHOP_USED + k] = 0.5f;
        }
    }
    rg_fwd_barrier(f);
    rg_moe(f, y, x, r, &w->routing, all, RG_SILU);
}

void rg_say_route(rg_fwd *f, rg_shop *w, int turn)
{
    rg_act *x = rg_act_new(f, "x", RG_SHOP_EXPERTS), *r = rg_act_new(f, "r", 2 * RG_SHOP_USED);

    (void)turn;
    rg_route(f, r, x, &w->routing);
}

/* Of one layer of many after the other, each with its place in every state: the tail first, then h. */
static rg_buffer of_layer(const rg_shop *w, const rg_buffer *b, int turn)
{
    rg_buffer own = *b;

    own.offset = (size_t)turn * (w->tail.bytes + w->h.bytes) + (b == &w->h ? w->tail.bytes : 0);
    return own;
}

/* As in a model, x and z are halves of one activation. */
void rg_say_conv(rg_fwd *f, rg_shop *w, int turn)
{
    rg_buffer tail = of_layer(w, &w->tail, turn);
    const int n = w->d_inner;
    rg_weight taps = { .name = "taps", .n_mats = 1, .rows = n, .cols = w->taps, .vec = w->vector };
    rg_weight bias = { .name = "bias", .n_mats = 1, .rows = 1, .cols = n, .vec = w->vector };
    rg_act *xz = rg_act_new(f, "xz", 2 * n), *x = rg_act_view(f, "x", xz, 0, n), *y = rg_act_new(f, "y", n);

    rg_conv(f, y, x, &taps, &bias, &tail);
}

void rg_say_scan(rg_fwd *f, rg_shop *w, int turn)
{
    rg_buffer h = of_layer(w, &w->h, turn);
    const int n = w->d_inner;
    rg_weight a = { .name = "a", .n_mats = 1, .rows = w->d_state, .cols = n, .vec = w->vector };
    rg_weight d = { .name = "d", .n_mats = 1, .rows = 1, .cols = n, .vec = w->vector };
    rg_act *xz = rg_act_new(f, "xz", 2 * n), *z = rg_act_view(f, "z", xz, n, n), *x = rg_act_new(f, "x", n);
    rg_act *dt = rg_act_new(f, "dt", n), *bc = rg_act_new(f, "bc", 2 * w->d_state), *y = rg_act_new(f, "y", n);

    rg_scan(f, y, x, dt, bc, z, &a, &d, &h);
}
