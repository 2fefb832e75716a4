/* attention.cu -- keys and values into the state, and softmax(q k) v over them.  The bits are those of ops/cpu/kernels.h
 * (attend, merge): a query's keys are taken in blocks of 64 and segments of 1,024.
 *
 * What the recipe does one after the other is done by many threads where the order of sums allows it: the scores of a
 * segment all at once; then the maxima and weights, a query by a warp; then a dimension of an output by a thread, which
 * goes over the keys in order. */
#include "ops/cuda/kernels/matrix.h"
#include "ops/cuda/kernels/warp.h"

enum { BLOCKS = RGK_SEGMENT / RGK_KEYS, KV_RUN = 32, SCORE_GAP = RGK_SEGMENT + 4 };

RGK_DEVICE int value_bytes(int type)
{
    return type == RGK_KV_F32 ? 4 : type == RGK_KV_Q8 ? 1 : 2;
}

RGK_DEVICE float stored(const uint8_t *at, int type, int64_t i)
{
    return type == RGK_KV_F32 ? ((const float *)(const void *)at)[i]
         : type == RGK_KV_Q8  ? (float)((const int8_t *)at)[i]
         : type == RGK_KV_F16 ? rgk_from_f16(((const uint16_t *)(const void *)at)[i])
                              : rgk_from_bf16(((const uint16_t *)(const void *)at)[i]);
}

/* The layer's part of the block that has a slot of a span's sequence; NULL: it was given back. */
RGK_DEVICE uint8_t *part_of(const rgk_batch *b, const rgk_kv *kv, int span, int slot)
{
    const int block = b->tables[b->table[span * b->n_groups + kv->group] + slot / RGK_KEYS];

    return block < 0 ? (uint8_t *)0 : kv->blocks + block * kv->block_bytes + kv->offset;
}

/* Where a head's values and scales of a block begin. */
typedef struct place {
    uint8_t *k, *v;
    uint16_t *k_scales, *v_scales; /* of q8 */
} place;

RGK_DEVICE place place_of(const rgk_kv *kv, uint8_t *part, int head)
{
    const int64_t size = value_bytes(kv->type), k_dim = kv->k_dim, v_dim = kv->v_dim, n = kv->n_heads;
    const int64_t k_runs = (k_dim + KV_RUN - 1) / KV_RUN, v_runs = (v_dim + KV_RUN - 1) / KV_RUN;
    uint16_t *scales = (uint16_t *)(void *)(part + n * RGK_KEYS * (k_dim + v_dim) * size);
    place at;

    at.k = part + head * k_dim * RGK_KEYS * size;
    at.v = part + (n * k_dim + head * v_dim) * RGK_KEYS * size;
    at.k_scales = scales + head * k_runs * RGK_KEYS;
    at.v_scales = scales + (n * k_runs + head * v_runs) * RGK_KEYS;
    return at;
}

/* ---- into the state ---------------------------------------------------------------------------------------------- */

RGK_DEVICE uint16_t to_f16(float x)
{
    const uint32_t bits = rg_bits_of(x), sign = bits >> 16 & 0x8000, m = bits & 0x7fffffff;

    if (m > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00 | (m >> 13 & 0x1ff));
    if (m >= 0x477ff000u)
        return (uint16_t)(sign | 0x7c00);
    if (m < 0x38800000u) /* subnormal: the sum with 1/2 rounds at the last bit of f16 */
        return (uint16_t)(sign | (rg_bits_of(rg_float_of(m) + 0.5f) - 0x3f000000u));
    return (uint16_t)(sign | ((m - 0x38000000u + 0xfff + (m >> 13 & 1)) >> 13));
}

/* One run of q8, as ops/kv.h says. */
RGK_DEVICE void store_run(int8_t *to, uint16_t *scale, int stride, const float *x, int n)
{
    uint32_t amax = 0, d;
    float inverse;

    for (int i = 0; i < n; i++) {
        const uint32_t magnitude = rg_bits_of(x[i]) & 0x7fffffff;
        amax = magnitude > amax ? magnitude : amax;
    }
    d = (rg_bits_of(rg_float_of(amax) / 127.0f) + 0xffff) >> 16;
    d = amax >= 0x7f800000u ? 0x7fc0 : d < 0x80 ? 0 : d;
    inverse = d == 0 || d == 0x7fc0 ? 0.0f : 1.0f / rgk_from_bf16((uint16_t)d);
    for (int i = 0; i < n; i++)
        to[(int64_t)i * stride] = inverse > 0.0f ? (int8_t)(int32_t)((x[i] * inverse + RG_RINT) - RG_RINT) : 0;
    *scale = (uint16_t)d;
}

/* n values of one position, `stride` values apart where they go. */
RGK_DEVICE void store(uint8_t *to, uint16_t *scales, int type, int stride, const float *x, int n)
{
    if (type == RGK_KV_Q8) {
        for (int r = RGK_THREAD; r * KV_RUN < n; r += RGK_THREADS)
            store_run((int8_t *)to + (int64_t)r * KV_RUN * stride, scales + (int64_t)r * stride, stride, x + r * KV_RUN,
                      n - r * KV_RUN < KV_RUN ? n - r * KV_RUN : KV_RUN);
        return;
    }
    for (int i = RGK_THREAD; i < n; i += RGK_THREADS)
        if (type == RGK_KV_F32)
            ((float *)(void *)to)[(int64_t)i * stride] = x[i];
        else
            ((uint16_t *)(void *)to)[(int64_t)i * stride] = type == RGK_KV_F16 ? to_f16(x[i]) : rgk_to_bf16(x[i]);
}

RGK_KERNEL(kv_store, kv_store)
{
    const int row = RGK_BLOCK_X, head = RGK_BLOCK_Y, slot = p.batch.slot[row], i = slot % RGK_KEYS;
    const int size = value_bytes(p.kv.type), v_runs = (p.kv.v_dim + KV_RUN - 1) / KV_RUN;
    const place at = place_of(&p.kv, part_of(&p.batch, &p.kv, p.batch.span[row], slot), head);

    store(at.k + i * size, at.k_scales + i, p.kv.type, RGK_KEYS, p.k.at + row * p.k.stride + head * p.kv.k_dim,
          p.kv.k_dim);
    store(at.v + (int64_t)i * p.kv.v_dim * size, at.v_scales + i * v_runs, p.kv.type, 1,
          p.v.at + row * p.v.stride + head * p.kv.v_dim, p.kv.v_dim);
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

/* What the threads of a block share: a segment of one row, and some heads of one kv head. */
typedef struct shared {
    float p[RGK_QUERIES][SCORE_GAP];  /* scores, then weights */
    float q[RGK_QUERIES][RGK_MAX_HEAD];
    float rescale[RGK_QUERIES][BLOCKS]; /* what a block multiplies the sums before it by */
    float m[RGK_QUERIES], l[RGK_QUERIES];
    uint8_t *part[RGK_SEGMENT]; /* of each key: the layer's part of its block; NULL: the row does not see it */
    int32_t slot[RGK_SEGMENT];
    bool whole[BLOCKS]; /* all keys of the block are seen, and lie in one block in their order */
    int kv_head;
} shared;

RGK_STATIC_ASSERT(sizeof(shared) <= RGK_ATTEND_BYTES);

/* The slot of a position, which a row of a draft tree finds in its list. */
RGK_DEVICE int slot_of(const rgk_batch *b, int row, int span, int position)
{
    const int list = b->ancestor[row], first = b->tree_start[span];

    return list >= 0 && position >= first ? b->ancestors[list + position - first] : position;
}

/* The score of a key for n queries: a chain over the dimensions for each of them. */
RGK_DEVICE void score(const rgk_attend_params *p, shared *s, int j, int n, int type)
{
    const int i = s->slot[j] % RGK_KEYS, k_dim = p->kv.k_dim;
    const place at = place_of(&p->kv, s->part[j], s->kv_head);
    float sum[RGK_QUERIES], d = 1.0f;

    RGK_UNROLL
    for (int q = 0; q < RGK_QUERIES; q++)
        sum[q] = 0.0f;
    RGK_UNROLL_BY(32)
    for (int c = 0; c < k_dim; c++) {
        float v = stored(at.k, type, (int64_t)c * RGK_KEYS + i);

        if (type == RGK_KV_Q8) {
            if (c % KV_RUN == 0)
                d = rgk_from_bf16(at.k_scales[c / KV_RUN * RGK_KEYS + i]);
            v = v * d;
        }
        RGK_UNROLL
        for (int q = 0; q < RGK_QUERIES; q++)
            if (q < n)
                sum[q] = rgk_fma(s->q[q][c], v, sum[q]);
    }
    RGK_UNROLL
    for (int q = 0; q < RGK_QUERIES; q++)
        if (q < n) {
            const float scaled = sum[q] * p->scale;
            s->p[q][j] = p->cap > 0.0f ? p->cap * rg_tanhf(scaled / p->cap) : scaled;
        }
}

/* A query's scores of blocks [lo, hi) of the segment to weights, by one warp. */
RGK_DEVICE void weigh(shared *s, int q, int lo, int hi)
{
    const float inf = __builtin_inff();
    const int lane = RGK_THREAD % RGK_WARP;
    float m = -inf, l = 0.0f;

    for (int block = lo; block < hi; block++) {
        float *w = s->p[q] + block * RGK_KEYS;
        const bool sees[2] = { s->part[block * RGK_KEYS + lane] != (uint8_t *)0,
                               s->part[block * RGK_KEYS + 32 + lane] != (uint8_t *)0 };
        const float x[2] = { sees[0] ? w[lane] : -inf, sees[1] ? w[32 + lane] : -inf };
        const float any = rgk_warp_max(sees[0] || sees[1] ? 1.0f : 0.0f);
        float most = rgk_warp_max(x[1] > (x[0] > -inf ? x[0] : -inf) ? x[1] : x[0] > -inf ? x[0] : -inf), c, e[2];

        if (any == 0.0f) { /* a window, or a list, may leave out whole blocks */
            if (lane == 0)
                s->rescale[q][block] = 1.0f;
            w[lane] = w[32 + lane] = 0.0f;
            continue;
        }
        most = most > m ? most : m;
        most = most == -inf ? __builtin_nanf("") : most;
        c = m == -inf ? 0.0f : rg_expf(m - most);
        e[0] = sees[0] ? rg_expf(x[0] - most) : 0.0f;
        e[1] = sees[1] ? rg_expf(x[1] - most) : 0.0f;
        w[lane] = e[0];
        w[32 + lane] = e[1];
        /* lane i: p[i] + p[16 + i] + p[32 + i] + p[48 + i] */
        const float second = rgk_shuffle(e[0], (lane + 16) % RGK_WARP), fourth = rgk_shuffle(e[1], (lane + 16) % RGK_WARP);
        l = rgk_fma(l, c, rgk_tree16(e[0] + second + e[1] + fourth));
        m = most;
        if (lane == 0)
            s->rescale[q][block] = c;
    }
    if (lane == 0) {
        s->m[q] = m;
        s->l[q] = l;
    }
}

enum { TOGETHER = 2 }; /* queries whose sums a thread makes at once */

/* o += the weighted values of a block whose keys are all seen: loads that wait for nothing. */
RGK_DEVICE void add_whole(const rgk_attend_params *p, const shared *s, int q, int n, int d, int block, int type,
                          float o[TOGETHER])
{
    const int v_dim = p->kv.v_dim, v_runs = (v_dim + KV_RUN - 1) / KV_RUN, first = block * RGK_KEYS;
    const place at = place_of(&p->kv, s->part[first], s->kv_head);

    RGK_UNROLL_BY(8)
    for (int j = 0; j < RGK_KEYS; j += 4) {
        float v[4];

        RGK_UNROLL
        for (int k = 0; k < 4; k++) {
            v[k] = stored(at.v, type, (j + k) * v_dim + d);
            if (type == RGK_KV_Q8)
                v[k] = v[k] * rgk_from_bf16(at.v_scales[(j + k) * v_runs + d / KV_RUN]);
        }
        RGK_UNROLL
        for (int i = 0; i < TOGETHER; i++)
            if (i < n) {
                const float *w = &s->p[q + i][first + j];
                o[i] = rgk_fma(w[3], v[3], rgk_fma(w[2], v[2], rgk_fma(w[1], v[1], rgk_fma(w[0], v[0], o[i]))));
            }
    }
}

/* The sums o of one dimension of n queries from q on over blocks [lo, hi). */
RGK_DEVICE void values(const rgk_attend_params *p, const shared *s, int q, int n, int d, int lo, int hi, int type,
                       float o[TOGETHER])
{
    const int v_dim = p->kv.v_dim, v_runs = (v_dim + KV_RUN - 1) / KV_RUN;

    RGK_UNROLL
    for (int i = 0; i < TOGETHER; i++)
        o[i] = 0.0f;
    for (int block = lo; block < hi; block++) {
        RGK_UNROLL
        for (int i = 0; i < TOGETHER; i++)
            o[i] *= i < n ? s->rescale[q + i][block] : 1.0f;
        if (s->whole[block]) {
            add_whole(p, s, q, n, d, block, type, o);
            continue;
        }
        RGK_UNROLL_BY(8)
        for (int key = block * RGK_KEYS; key < (block + 1) * RGK_KEYS; key++) {
            uint8_t *part = s->part[key];
            const int at_row = s->slot[key] % RGK_KEYS;
            float v = 0.0f;

            if (part) {
                const place at = place_of(&p->kv, part, s->kv_head);

                v = stored(at.v, type, at_row * v_dim + d);
                if (type == RGK_KV_Q8)
                    v = v * rgk_from_bf16(at.v_scales[at_row * v_runs + d / KV_RUN]);
            }
            RGK_UNROLL
            for (int i = 0; i < TOGETHER; i++)
                if (i < n)
                    o[i] = part ? rgk_fma(s->p[q + i][key], v, o[i]) : o[i];
        }
    }
}

/* Put a sink into a softmax: one more score, whose value is 0; o has yet to be multiplied by the result. */
RGK_DEVICE float add_sink(float *m, float *l, float sink)
{
    const float inf = __builtin_inff(), most = sink > *m ? sink : *m;
    const float c = *m == -inf ? 0.0f : rg_expf(*m - most);

    if (sink == -inf)
        return 1.0f;
    *l = rgk_fma(*l, c, rg_expf(sink - most));
    *m = most;
    return c;
}

/* y = o / l, or 0 where nothing was seen. */
RGK_DEVICE float finished(const rgk_attend_params *p, int head, float m, float l, float o)
{
    if (p->sinks)
        o *= add_sink(&m, &l, p->sinks[head]);
    return o * (l > 0.0f ? 1.0f / l : 0.0f);
}

/* One dimension of a head's sum to its place. */
RGK_DEVICE void put(const rgk_attend_params *p, const shared *s, int q, int head, int d, float o)
{
    const int row = p->first_row + RGK_BLOCK_X, v_dim = p->kv.v_dim;
    float *to = p->partial + (((int64_t)RGK_BLOCK_X * p->n_heads + head) * p->n_segments + RGK_BLOCK_Z) * (v_dim + 2);

    if (!p->partial) {
        p->y.at[row * p->y.stride + (int64_t)head * v_dim + d] = finished(p, head, s->m[q], s->l[q], o);
        return;
    }
    to[2 + d] = o;
    if (d == 0) {
        to[0] = s->m[q];
        to[1] = s->l[q];
    }
}

/* Blocks [lo, hi) of a segment that a row sees keys of. */
typedef struct seen {
    int low, end, base, lo, hi; /* keys [low, end) of the sequence; base: the segment's first one */
} seen;

RGK_DEVICE seen seen_of(const rgk_attend_params *p)
{
    const int at = p->batch.index[p->first_row + RGK_BLOCK_X];
    seen s;

    s.base = RGK_BLOCK_Z * RGK_SEGMENT;
    s.end = p->batch.kv_end[p->first_row + RGK_BLOCK_X];
    s.low = p->window && at - p->window + 1 > 0 ? at - p->window + 1 : 0;
    if (p->around && p->window && s.end - at > p->window)
        s.end = at + p->window;
    s.lo = (s.low > s.base ? s.low - s.base : 0) / RGK_KEYS;
    s.hi = s.end - s.base < RGK_SEGMENT ? (s.end - s.base + RGK_KEYS - 1) / RGK_KEYS : BLOCKS;
    s.hi = s.hi > s.lo ? s.hi : s.lo;
    return s;
}

/* The keys of the blocks and the queries, to what the threads share. */
RGK_DEVICE void find_keys(const rgk_attend_params *p, shared *s, seen see, int head, int n)
{
    const rgk_batch *b = &p->batch;
    const int row = p->first_row + RGK_BLOCK_X, span = b->span[row], k_dim = p->kv.k_dim;

    for (int i = RGK_THREAD; i < n * k_dim; i += RGK_THREADS)
        s->q[i / k_dim][i % k_dim] = p->q.at[row * p->q.stride + (int64_t)head * k_dim + i];
    for (int j = see.lo * RGK_KEYS + RGK_THREAD; j < see.hi * RGK_KEYS; j += RGK_THREADS) {
        const int position = see.base + j;
        const bool sees = position >= see.low && position < see.end;

        s->slot[j] = sees ? slot_of(b, row, span, position) : 0;
        s->part[j] = sees ? part_of(b, &p->kv, span, s->slot[j]) : (uint8_t *)0;
        if (j % RGK_KEYS == 0)
            s->whole[j / RGK_KEYS] = position >= see.low && position + RGK_KEYS <= see.end && b->ancestor[row] < 0;
    }
}

RGK_DEVICE void attend_as(const rgk_attend_params *p, shared *s, int type)
{
    const int per_kv = p->n_heads / p->kv.n_heads, groups = (per_kv + RGK_QUERIES - 1) / RGK_QUERIES;
    const int kv_head = RGK_BLOCK_Y / groups, first = RGK_BLOCK_Y % groups * RGK_QUERIES;
    const int head = kv_head * per_kv + first, n = per_kv - first < RGK_QUERIES ? per_kv - first : RGK_QUERIES;
    const int pairs = (n + TOGETHER - 1) / TOGETHER;
    const seen see = seen_of(p);

    if (RGK_THREAD == 0)
        s->kv_head = kv_head;
    find_keys(p, s, see, head, n);
    rgk_sync();
    for (int j = see.lo * RGK_KEYS + RGK_THREAD; j < see.hi * RGK_KEYS; j += RGK_THREADS)
        if (s->part[j])
            score(p, s, j, n, type);
    rgk_sync();
    for (int q = RGK_THREAD / RGK_WARP; q < n; q += RGK_THREADS / RGK_WARP)
        weigh(s, q, see.lo, see.hi);
    rgk_sync();
    for (int i = RGK_THREAD; i < pairs * p->kv.v_dim; i += RGK_THREADS) {
        const int q = i / p->kv.v_dim * TOGETHER, d = i % p->kv.v_dim, m = n - q < TOGETHER ? n - q : TOGETHER;
        float o[TOGETHER];

        values(p, s, q, m, d, see.lo, see.hi, type, o);
        RGK_UNROLL
        for (int k = 0; k < TOGETHER; k++)
            if (k < m)
                put(p, s, q + k, head + q + k, d, o[k]);
    }
}

RGK_KERNEL_OF(attend, attend, 256, 2)
{
    RGK_DYNAMIC;
    shared *s = (shared *)(void *)rgk_dynamic;

    switch (p.kv.type) {
    case RGK_KV_F32: attend_as(&p, s, RGK_KV_F32); break;
    case RGK_KV_F16: attend_as(&p, s, RGK_KV_F16); break;
    case RGK_KV_BF16: attend_as(&p, s, RGK_KV_BF16); break;
    default: attend_as(&p, s, RGK_KV_Q8); break;
    }
}

/* The segments of a head, in order; a thread for a dimension. */
RGK_KERNEL(merge, attend)
{
    const int row = p.first_row + RGK_BLOCK_X, head = RGK_BLOCK_Y, v_dim = p.kv.v_dim;
    const float inf = __builtin_inff();
    const float *from = p.partial + ((int64_t)RGK_BLOCK_X * p.n_heads + head) * p.n_segments * (v_dim + 2);

    for (int d = RGK_THREAD; d < v_dim; d += RGK_THREADS) {
        float m = -inf, l = 0.0f, o = 0.0f;

        for (int s = 0; s < p.n_segments; s++) {
            const float *part = from + (int64_t)s * (v_dim + 2), m2 = part[0], l2 = part[1], o2 = part[2 + d];
            const float most = m2 > m ? m2 : m;

            if (m2 == -inf)
                continue;
            if (m == -inf) {
                m = m2;
                l = l2;
                o = o2;
                continue;
            }
            const float x = rg_expf(m - most), y = rg_expf(m2 - most);
            l = rgk_fma(l, x, l2 * y);
            o = rgk_fma(o, x, o2 * y);
            m = most;
        }
        p.y.at[row * p.y.stride + (int64_t)head * v_dim + d] = finished(&p, head, m, l, o);
    }
}
