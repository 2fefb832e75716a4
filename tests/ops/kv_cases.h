/* kv_cases.h -- part of kernel_cases.c: what stores keys and values, closes their blocks, and attends to them. */
#ifndef RG_TEST_KV_CASES_H
#define RG_TEST_KV_CASES_H

static const rg_type kv_types[] = { RG_F32, RG_F16, RG_BF16, RG_I8, RG_Q4_1 };

/* q4 is not stored by position, but closed by block. */
enum { STORED_TYPES = RG_LEN(kv_types) - 1 };

static size_t kv_size(rg_type type)
{
    return (size_t)rg_format_of(type)->block_bytes;
}

/* Values that lie in so many bytes. */
static size_t kv_values(rg_type type)
{
    return (size_t)rg_format_of(type)->block_len;
}

/* What a state keeps, read back: side by side only. */
static bool load_same(cases *c, const void *from, const uint16_t *scales, rg_type type, int n, const char *what)
{
    static float want[MAX_N];
    float *y = walled(2, (size_t)n * sizeof *y);

    c->ref->load(want, from, scales, type, n);
    c->k->load(y, from, scales, type, n);
    return same_floats(y, want, (size_t)n, what);
}

/* Every half-precision number, and f32 that lie on and beside the ties; of q8, also what has no scale. */
static bool cases_store(cases *c)
{
    static float x[MAX_N];
    static uint8_t stored[MAX_N * 12];
    static uint16_t scales[MAX_N];
    char what[128];

    for (int round = 0; round < 300; round++) {
        const int n = lengths[round % (int)RG_LEN(lengths)];
        const rg_type type = kv_types[round % STORED_TYPES];
        const size_t size = kv_size(type), stride = round % 5 ? 1 : 3;
        const size_t bytes = ((size_t)(n - 1) * stride + 1) * size;
        const size_t n_scales = (size_t)(rg_kv_runs(n) - 1) * stride + 1;
        const float *in;
        uint8_t *to = walled(1, bytes);
        uint16_t *d = walled(3, n_scales * sizeof *d);

        for (int i = 0; i < n; i++) {
            uint32_t bits = (uint32_t)rg_rng_u64(&c->rng);
            if (i % 4 == 0)
                bits = (bits & 0xffff0000u) | 0x8000u;
            if (i % 4 == 1)
                bits = (bits & 0x87ffe000u) | 0x38001000u; /* f16 ties */
            memcpy(x + i, &bits, 4);
            if (isnan(x[i]) || type == RG_I8)
                x[i] = type == RG_I8 && round % 16 == 3 && i % 40 == 7 ? INFINITY : number(c, 2 + round / 4 % 2);
        }
        in = walled_copy(0, x, (size_t)n * sizeof *x);
        memset(stored, 7, sizeof stored);
        memset(to, 7, bytes);
        memset(scales, 7, sizeof scales);
        memset(d, 7, n_scales * sizeof *d);
        c->ref->store(stored, scales, type, stride, in, n);
        c->k->store(to, d, type, stride, in, n);
        snprintf(what, sizeof what, "%s store/load type %d n %d stride %zu", c->k->isa, (int)type, n, stride);
        if (memcmp(stored, to, bytes) || memcmp(scales, d, n_scales * sizeof *d)) {
            printf("%s: stored bytes differ\n", what);
            return false;
        }
        if (stride == 1 && !load_same(c, to, d, type, n, what))
            return false;
    }
    return true;
}

#include "close_cases.h"

/* ---- attention ------------------------------------------------------------------------------------------------------ */

typedef struct attend_case {
    rg_type type;
    int k_dim, v_dim, v_stride, mode;
    bool capped, sparse; /* sparse: queries leave out blocks whose weights are small */
} attend_case;

/* x as a value of the type, of q8 in fortieths, of q4 a run of it. */
static void put_stored(rg_type type, float x, uint8_t *to)
{
    const uint16_t h = type == RG_F16 ? rg_f32_to_f16(x) : rg_f32_to_bf16(x);

    if (type == RG_I8)
        *to = (uint8_t)(int8_t)fmaxf(-127.0f, fminf(127.0f, 40.0f * x));
    else if (type == RG_Q4_1) {
        const uint16_t run[10] = { 0, rg_f32_to_f16(x) };
        memcpy(to, run, sizeof run);
    } else
        memcpy(to, type == RG_F32 ? (const void *)&x : (const void *)&h, kv_size(type));
}

/* Values of any type, and scales as of q8; what lies outside [lo, hi) may be anything, NaN too. */
static void fill_stored(cases *c, rg_type type, int mode, uint8_t *to, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        put_stored(type, number(c, mode == 4 ? 0 : mode), to + i * kv_size(type));
        if (type == RG_Q4_1) {
            const uint16_t d = rg_f32_to_f16(fabsf(number(c, mode)) / 16.0f);
            memcpy(to + i * kv_size(type), &d, sizeof d);
            for (size_t k = 4; k < kv_size(type); k++)
                to[i * kv_size(type) + k] = (uint8_t)rg_rng_u64(&c->rng);
        }
    }
}

/* As small as they are in q8, so that a sum stays what the other types' is. */
static uint16_t *walled_scales(cases *c, int slot, int mode, size_t n)
{
    uint16_t *d = walled(slot, n * sizeof *d);

    for (size_t i = 0; i < n; i++)
        d[i] = rg_f32_to_bf16(fabsf(number(c, mode)) / 64.0f);
    return d;
}

enum { QUERIES = 6 }; /* more than a kernel takes at once, and some over */

/* Two queries whose scores are no numbers: all of them -inf, or NaN. */
static void not_numbers(const attend_case *t, float *q, uint8_t *k)
{
    memset(q, 0, 2 * (size_t)t->k_dim * sizeof *q);
    q[0] = -INFINITY;
    q[t->k_dim] = NAN;
    for (size_t i = 0; i < (size_t)t->k_dim * RG_BLOCK / kv_values(t->type); i++)
        put_stored(t->type, 1.0f, k + i * kv_size(t->type));
}

/* A block made f32. */
static bool widen_same(cases *c, const rg_attend *r)
{
    static float want[2][MAX_N * RG_BLOCK];
    const size_t n_k = (size_t)r->k_dim * RG_BLOCK, n_v = (size_t)r->v_dim * RG_BLOCK;
    float *k = walled(6, n_k * sizeof *k), *v = walled(7, n_v * sizeof *v);
    char what[64];

    snprintf(what, sizeof what, "%s widen type %d", c->k->isa, (int)r->type);
    c->ref->widen(want[0], want[1], r);
    c->k->widen(k, v, r);
    return same_floats(k, want[0], n_k, what) && same_floats(v, want[1], n_v, what);
}

/* Blocks after each other on both tables, some of them seen in part, by several queries. */
static bool attend_same(cases *c, const attend_case *t)
{
    /* Keys 5 .. 63, all, 0, 0 .. 16, 63, 30 .. 34, every third, and some here and there. */
    static const uint64_t seen[] = { ~0ull << 5, ~0ull, 1, 0x1ffff, 1ull << 63, 31ull << 30, 0x2492492492492492,
                                     0x80f0000000f70005 };
    static float o_ref[QUERIES * MAX_N];
    const size_t size = kv_size(t->type), k_dim = (size_t)t->k_dim, v_dim = (size_t)t->v_dim;
    const size_t last = t->type == RG_Q4_1 ? (size_t)t->v_stride : v_dim; /* of the last row of V */
    const size_t k_bytes = k_dim * RG_BLOCK * size / kv_values(t->type);
    const size_t v_bytes = ((size_t)t->v_stride * (RG_BLOCK - 1) + last) * size / kv_values(t->type);
    float *q = walled(0, QUERIES * k_dim * 4), *o = walled(3, QUERIES * v_dim * 4);
    const float *queries[QUERIES];
    rg_softmax a[QUERIES], b[QUERIES];
    char what[128];

    memset(o_ref, 0, sizeof o_ref);
    memset(o, 0, QUERIES * v_dim * 4);
    for (size_t i = 0; i < QUERIES; i++) {
        queries[i] = q + i * k_dim;
        a[i] = (rg_softmax){ -INFINITY, 0.0f, o_ref + i * v_dim, i == 1 ? 0.5f : -INFINITY };
        b[i] = (rg_softmax){ -INFINITY, 0.0f, o + i * v_dim, a[i].top };
    }
    for (size_t i = 0; i < RG_LEN(seen); i++) {
        rg_attend r = { .q = queries, .n = i == 5 ? 1 : QUERIES, .type = t->type, .k_dim = t->k_dim,
                        .v_dim = t->v_dim, .v_stride = t->v_stride, .seen = seen[i],
                        .scale = 0.125f, .cap = t->capped ? 30.0f : 0.0f, .below = t->sparse ? -0.1f : 0.0f };
        uint8_t *k = walled(1, k_bytes), *v = walled(2, v_bytes);

        floats(c, t->mode == 4 ? 0 : t->mode, q, QUERIES * k_dim);
        fill_stored(c, t->type, t->mode, k, k_bytes / size);
        fill_stored(c, t->type, t->mode, v, v_bytes / size);
        if (t->mode == 0 && !(r.seen & 1)) /* not seen, and never looked at */
            memset(v, 0xff, size);
        if (t->mode == 0 && !(r.seen >> 63))
            memset(v + v_bytes - size, 0xff, size);
        if (t->mode == 0 && i == 0)
            not_numbers(t, q + 2 * k_dim, k);
        r.k = k;
        r.v = v;
        if (t->type == RG_I8) {
            const size_t runs = (size_t)rg_kv_runs(t->v_dim);
            uint16_t *k_scales = walled_scales(c, 4, t->mode, (size_t)rg_kv_runs(t->k_dim) * RG_BLOCK);
            uint16_t *v_scales = walled_scales(c, 5, t->mode, runs * RG_BLOCK);

            if (t->mode == 0 && !(r.seen & 1))
                k_scales[0] = v_scales[runs - 1] = 0xffff;
            if (t->mode == 0 && !(r.seen >> 63))
                v_scales[runs * (RG_BLOCK - 1)] = 0xffff;
            r.k_scales = k_scales;
            r.v_scales = v_scales;
        }
        if ((t->v_stride == t->v_dim || t->type == RG_Q4_1) && !widen_same(c, &r))
            return false;
        c->ref->attend(&r, a);
        c->k->attend(&r, b);
        snprintf(what, sizeof what, "%s attend type %d k %d v %d mode %d keys %llx", c->k->isa, (int)t->type, t->k_dim,
                 t->v_dim, t->mode, (unsigned long long)r.seen);
        for (int n = 0; n < r.n; n++) {
            /* m as a number: only differences of it are ever used, so a zero's sign is no part of the recipe */
            if (a[n].m != b[n].m && !(isnan(a[n].m) && isnan(b[n].m))) {
                printf("%s: m of query %d is %a, ref has %a\n", what, n, (double)b[n].m, (double)a[n].m);
                return false;
            }
            if (!same_floats(&b[n].l, &a[n].l, 1, what) || !same_floats(b[n].o, a[n].o, v_dim, what))
                return false;
            if (t->mode == 0 && ((n == 2 && !t->capped) || n == 3) &&
                !(isnan(b[n].m) && isnan(b[n].l) && isnan(b[n].o[v_dim - 1]))) {
                printf("%s: query %d has no numbers for scores, and its result is one\n", what, n);
                return false;
            }
        }
    }
    return true;
}

static bool cases_attend(cases *c)
{
    static const int dims[][3] = { { 64, 64, 64 },   { 128, 128, 128 }, { 8, 8, 8 },      { 6, 6, 6 },
                                   { 80, 80, 80 },   { 100, 100, 100 }, { 256, 256, 256 }, { 24, 16, 24 },
                                   { 576, 512, 576 }, { 1, 1, 1 } };

    for (size_t i = 0; i < RG_LEN(kv_types); i++)
        for (size_t j = 0; j < RG_LEN(dims); j++)
            for (int mode = 0; mode < (j < 4 ? 4 : 1); mode++) {
                if (i >= STORED_TYPES - 1 && dims[j][1] != dims[j][2])
                    continue;
                attend_case t = { kv_types[i], dims[j][0], dims[j][1],
                                  kv_types[i] == RG_Q4_1 ? rg_kv_runs(dims[j][1]) * RG_KV_RUN : dims[j][2], mode,
                                  mode == 3 || j == 4, false };
                if (!attend_same(c, &t))
                    return false;
                t.sparse = true;
                if (!attend_same(c, &t))
                    return false;
            }
    return true;
}

/* A block of latents is one whose K are its rows, turned about: so in ref too.  dims: of k, v, and the stride. */
static bool latents_same(cases *c, const rg_cpu *k, rg_type type, const int *dims, int n, uint64_t seen)
{
    const int k_dim = dims[0], v_dim = dims[1], stride = dims[2];
    static float turned[MAX_N * RG_BLOCK], rows[MAX_N * RG_BLOCK], q[RG_PANEL * MAX_N], o_ref[RG_PANEL * MAX_N];
    const size_t n_values = (size_t)stride * (RG_BLOCK - 1) + (size_t)k_dim;
    uint8_t *stored = walled(0, n_values * kv_size(type));
    float *columns = walled(1, (size_t)k_dim * RG_PANEL * sizeof *columns);
    float *o = walled(2, (size_t)n * (size_t)v_dim * sizeof *o);
    const float *queries[RG_PANEL];
    rg_softmax a[RG_PANEL], b[RG_PANEL];
    char what[128];

    floats(c, 0, rows, n_values);
    floats(c, 0, q, (size_t)n * (size_t)k_dim);
    floats(c, 0, o_ref, (size_t)n * (size_t)v_dim);
    memcpy(o, o_ref, (size_t)n * (size_t)v_dim * sizeof *o);
    for (int j = 0; j < RG_BLOCK; j++)
        for (int d = 0; d < k_dim; d++) {
            if (!(seen >> j & 1))
                rows[j * stride + d] = NAN;
            put_stored(type, rows[j * stride + d], stored + (size_t)(j * stride + d) * kv_size(type));
            c->ref->load(rows + j * stride + d, stored + (size_t)(j * stride + d) * kv_size(type), NULL, type, 1);
            turned[d * RG_BLOCK + j] = rows[j * stride + d];
        }
    memset(columns, 0, (size_t)k_dim * RG_PANEL * sizeof *columns);
    for (int i = 0; i < n; i++) {
        queries[i] = q + i * k_dim;
        a[i] = (rg_softmax){ 0.25f, 2.0f, o_ref + i * v_dim };
        b[i] = (rg_softmax){ 0.25f, 2.0f, o + i * v_dim };
        for (int d = 0; d < k_dim; d++)
            columns[d * RG_PANEL + i] = queries[i][d];
    }
    rg_attend r = { .q = queries,
                    .n = n,
                    .k = turned,
                    .v = rows,
                    .type = RG_F32,
                    .k_dim = k_dim,
                    .v_dim = v_dim,
                    .v_stride = stride,
                    .seen = seen,
                    .scale = 0.125f,
                    .cap = n % 2 ? 30.0f : 0.0f };
    c->ref->attend(&r, a);
    r.q = NULL;
    r.k = r.v = stored;
    r.columns = columns;
    r.type = type;
    k->attend(&r, b);
    snprintf(what, sizeof what, "%s latents k %d v %d n %d keys %llx", k->isa, k_dim, v_dim, n,
             (unsigned long long)seen);
    for (int i = 0; i < n; i++)
        if (a[i].m != b[i].m || !same_floats(&b[i].l, &a[i].l, 1, what))
            return false;
    return same_floats(o, o_ref, (size_t)n * (size_t)v_dim, what);
}

static bool cases_latents(cases *c)
{
    static const int dims[][3] = { { 576, 512, 576 }, { 24, 16, 24 }, { 288, 256, 300 }, { 7, 5, 9 }, { 2, 1, 2 } };
    static const uint64_t seen[] = { ~0ull, 0x1ffff, 0x80f0000000f70005 };

    for (size_t i = 0; i < RG_LEN(dims); i++)
        for (size_t k = 0; k < RG_LEN(seen); k++)
            for (int n = 1; n <= RG_PANEL; n++)
                if (!latents_same(c, c->ref, kv_types[n % 3], dims[i], n, seen[k]) ||
                    !latents_same(c, c->k, kv_types[n % 3], dims[i], n, seen[k]))
                    return false;
    return true;
}

#endif
