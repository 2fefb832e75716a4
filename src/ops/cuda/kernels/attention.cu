/* attention.cu -- keys and values into the state, and softmax(q k) v over them.  The bits are those that
 * ops/cpu/kernels.h defines (attend, merge): a query's keys are taken in blocks of 64 and segments of 1,024.
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

/* What the threads of a block share: a segment of a tile of rows of one span, and some heads of one kv head.  Query q
 * is head q % heads of row q / heads. */
typedef struct shared {
    uint8_t *part[RGK_SEGMENT]; /* of each key: the layer's part of its block; NULL: no row sees it */
    int32_t slot[RGK_SEGMENT];
    float rescale[RGK_QUERIES][BLOCKS]; /* what a block multiplies the sums before it by */
    float m[RGK_QUERIES], l[RGK_QUERIES];
    int low[RGK_TILE_ROWS], end[RGK_TILE_ROWS]; /* keys of the segment [low, end) that a row sees */
    int row, n_rows, kv_head, head, heads, n;   /* n: queries */
    int lo, hi;                                 /* blocks of the segment that any row sees keys of */
    bool has_list;                              /* the row finds its last positions in a list */
    float floats[1];                            /* queries [n][k_dim], then scores, later weights [n][SCORE_GAP] */
} shared;

RGK_STATIC_ASSERT(sizeof(shared) <= RGK_ATTEND_BYTES);

RGK_DEVICE float *scores_at(const rgk_attend_params *p, shared *s, int q)
{
    return s->floats + s->n * p->kv.k_dim + q * SCORE_GAP;
}

/* The slot of a position, which a row of a draft tree finds in its list. */
RGK_DEVICE int slot_of(const rgk_batch *b, int row, int span, int position)
{
    const int list = b->ancestor[row], first = b->tree_start[span];

    return list >= 0 && position >= first ? b->ancestors[list + position - first] : position;
}

/* ---- what a block does ---- */

/* By one thread. */
RGK_DEVICE void find_tile(const rgk_attend_params *p, shared *s, int queries)
{
    const rgk_batch *b = &p->batch;
    const int tile = p->first + RGK_BLOCK_X, base = RGK_BLOCK_Z * RGK_SEGMENT, per_kv = p->n_heads / p->kv.n_heads;
    const int most = queries / p->tile_rows, groups = (per_kv + most - 1) / most, group = RGK_BLOCK_Y % groups * most;

    s->row = p->tile_rows == 1 ? tile : b->tile_row[tile];
    s->n_rows = p->tile_rows == 1 ? 1 : b->tile_rows[tile];
    s->has_list = b->ancestor[s->row] >= 0;
    s->kv_head = RGK_BLOCK_Y / groups;
    s->head = s->kv_head * per_kv + group;
    s->heads = per_kv - group < most ? per_kv - group : most;
    s->n = s->heads * s->n_rows;
    s->lo = BLOCKS;
    s->hi = 0;
    for (int r = 0; r < s->n_rows; r++) {
        const int at = b->index[s->row + r];
        int low = p->window && at - p->window + 1 > 0 ? at - p->window + 1 : 0, end = b->kv_end[s->row + r], lo, hi;

        if (p->around && p->window && end - at > p->window)
            end = at + p->window;
        low = low > base ? low - base : 0;
        end = end - base < RGK_SEGMENT ? end - base : RGK_SEGMENT;
        s->low[r] = low;
        s->end[r] = end;
        lo = low / RGK_KEYS;
        hi = end > low ? (end + RGK_KEYS - 1) / RGK_KEYS : 0;
        s->lo = lo < s->lo ? lo : s->lo;
        s->hi = hi > s->hi ? hi : s->hi;
    }
}

/* The keys of the blocks, and the queries. */
RGK_DEVICE void find_keys(const rgk_attend_params *p, shared *s)
{
    const rgk_batch *b = &p->batch;
    const int span = b->span[s->row], k_dim = p->kv.k_dim, each = s->heads * k_dim;

    for (int i = RGK_THREAD; i < s->n * k_dim; i += RGK_THREADS)
        s->floats[i] = p->q.at[(s->row + i / each) * p->q.stride + (int64_t)s->head * k_dim + i % each];
    for (int j = s->lo * RGK_KEYS + RGK_THREAD; j < s->hi * RGK_KEYS; j += RGK_THREADS) {
        bool sees = false;

        for (int r = 0; r < s->n_rows; r++)
            sees = sees || (j >= s->low[r] && j < s->end[r]);
        s->slot[j] = sees ? slot_of(b, s->row, span, RGK_BLOCK_Z * RGK_SEGMENT + j) : 0;
        s->part[j] = sees ? part_of(b, &p->kv, span, s->slot[j]) : (uint8_t *)0;
    }
}

/* The score of a key for all queries (`queries` at most): a chain over the dimensions for each. */
RGK_DEVICE void score(const rgk_attend_params *p, shared *s, int j, int queries, int type)
{
    const int i = s->slot[j] % RGK_KEYS, k_dim = p->kv.k_dim, n = s->n;
    const place at = place_of(&p->kv, s->part[j], s->kv_head);
    float sum[RGK_QUERIES], d = 1.0f;

    RGK_UNROLL
    for (int q = 0; q < queries; q++)
        sum[q] = 0.0f;
    RGK_UNROLL_BY(16)
    for (int c = 0; c < k_dim; c++) {
        float v = stored(at.k, type, (int64_t)c * RGK_KEYS + i);

        if (type == RGK_KV_Q8) {
            if (c % KV_RUN == 0)
                d = rgk_from_bf16(at.k_scales[c / KV_RUN * RGK_KEYS + i]);
            v = v * d;
        }
        RGK_UNROLL
        for (int q = 0; q < queries; q++)
            if (q < n)
                sum[q] = rgk_fma(s->floats[q * k_dim + c], v, sum[q]);
    }
    RGK_UNROLL
    for (int q = 0; q < queries; q++)
        if (q < n) {
            const float scaled = sum[q] * p->scale;
            scores_at(p, s, q)[j] = p->cap > 0.0f ? p->cap * rg_tanhf(scaled / p->cap) : scaled;
        }
}

/* A score that counts: a NaN is passed over. */
RGK_DEVICE float number_of(float x)
{
    return x > -__builtin_inff() ? x : -__builtin_inff();
}

/* A query's scores to weights, by one warp. */
RGK_DEVICE void weigh(const rgk_attend_params *p, shared *s, int q)
{
    const float inf = __builtin_inff();
    const int lane = RGK_THREAD % RGK_WARP, r = q / s->heads;
    float *scores = scores_at(p, s, q), m = -inf, l = 0.0f;

    for (int block = s->lo; block < s->hi; block++) {
        const int j = block * RGK_KEYS + lane;
        float *w = scores + block * RGK_KEYS, c, e[2];
        const bool sees[2] = { j >= s->low[r] && j < s->end[r], j + 32 >= s->low[r] && j + 32 < s->end[r] };
        const float x[2] = { sees[0] ? w[lane] : -inf, sees[1] ? w[32 + lane] : -inf };
        const float low = number_of(x[0]), high = number_of(x[1]);
        float most = rgk_warp_max(high > low ? high : low);

        if (block * RGK_KEYS >= s->end[r] || (block + 1) * RGK_KEYS <= s->low[r]) { /* this row sees none of it */
            if (lane == 0)
                s->rescale[q][block] = 1.0f;
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
        const float second = rgk_shuffle(e[0], (lane + 16) % RGK_WARP);
        const float fourth = rgk_shuffle(e[1], (lane + 16) % RGK_WARP);
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

enum { TOGETHER = 4 }; /* queries of a row whose sums a thread makes at once */

/* o += the weighted values of a block whose keys are all seen: loads that wait for nothing. */
RGK_DEVICE void add_whole(const rgk_attend_params *p, shared *s, int q, int n, int d, int block, int type,
                          float o[TOGETHER])
{
    const int v_dim = p->kv.v_dim, v_runs = (v_dim + KV_RUN - 1) / KV_RUN, first = block * RGK_KEYS;
    const place at = place_of(&p->kv, s->part[first], s->kv_head);
    const float *w = scores_at(p, s, q) + first;

    RGK_UNROLL_BY(4)
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
                const float *by = w + i * SCORE_GAP + j;
                o[i] = rgk_fma(by[3], v[3], rgk_fma(by[2], v[2], rgk_fma(by[1], v[1], rgk_fma(by[0], v[0], o[i]))));
            }
    }
}

/* The sums o of one dimension of n queries of a row, from q on. */
RGK_DEVICE void values(const rgk_attend_params *p, shared *s, int q, int n, int d, int type, float o[TOGETHER])
{
    const int v_dim = p->kv.v_dim, v_runs = (v_dim + KV_RUN - 1) / KV_RUN, r = q / s->heads;
    const int low = s->low[r], end = s->end[r];
    const float *w = scores_at(p, s, q);

    RGK_UNROLL
    for (int i = 0; i < TOGETHER; i++)
        o[i] = 0.0f;
    for (int block = s->lo; block < s->hi; block++) {
        const int first = block * RGK_KEYS, last = first + RGK_KEYS;

        RGK_UNROLL
        for (int i = 0; i < TOGETHER; i++)
            o[i] *= i < n ? s->rescale[q + i][block] : 1.0f;
        if (first >= low && last <= end && !s->has_list) {
            add_whole(p, s, q, n, d, block, type, o);
            continue;
        }
        RGK_UNROLL_BY(8)
        for (int key = first; key < last; key++) {
            const bool sees = key >= low && key < end;
            const int at_row = s->slot[key] % RGK_KEYS;
            float v = 0.0f;

            if (sees) {
                const place at = place_of(&p->kv, s->part[key], s->kv_head);

                v = stored(at.v, type, at_row * v_dim + d);
                if (type == RGK_KV_Q8)
                    v = v * rgk_from_bf16(at.v_scales[at_row * v_runs + d / KV_RUN]);
            }
            RGK_UNROLL
            for (int i = 0; i < TOGETHER; i++)
                if (i < n)
                    o[i] = sees ? rgk_fma(w[i * SCORE_GAP + key], v, o[i]) : o[i];
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

/* One dimension of a query's sum to its place. */
RGK_DEVICE void put_sum(const rgk_attend_params *p, const shared *s, int q, int d, float o)
{
    const int r = q / s->heads, head = s->head + q % s->heads, v_dim = p->kv.v_dim;
    const int64_t of_grid = (int64_t)RGK_BLOCK_X * p->tile_rows + r;
    float *to = p->partial + ((of_grid * p->n_heads + head) * p->n_segments + RGK_BLOCK_Z) * (v_dim + 2);

    if (!p->partial) {
        p->y.at[(s->row + r) * p->y.stride + (int64_t)head * v_dim + d] = finished(p, head, s->m[q], s->l[q], o);
        return;
    }
    to[2 + d] = o;
    if (d == 0) {
        to[0] = s->m[q];
        to[1] = s->l[q];
    }
}

RGK_DEVICE void attend_as(const rgk_attend_params *p, shared *s, int queries, int type)
{
    if (RGK_THREAD == 0)
        find_tile(p, s, queries);
    rgk_sync();
    /* A row alone: by more threads; several: so that values are read less often. */
    const int most = s->n_rows > 1 ? TOGETHER : TOGETHER / 2, together = s->heads < most ? s->heads : most;
    const int groups = (s->heads + together - 1) / together;
    find_keys(p, s);
    rgk_sync();
    for (int j = s->lo * RGK_KEYS + RGK_THREAD; j < s->hi * RGK_KEYS; j += RGK_THREADS)
        if (s->part[j])
            score(p, s, j, queries, type);
    rgk_sync();
    for (int q = RGK_THREAD / RGK_WARP; q < s->n; q += RGK_THREADS / RGK_WARP)
        weigh(p, s, q);
    rgk_sync();
    for (int i = RGK_THREAD; i < groups * s->n_rows * p->kv.v_dim; i += RGK_THREADS) {
        const int group = i / p->kv.v_dim, d = i % p->kv.v_dim, of_row = group % groups * together;
        const int q = group / groups * s->heads + of_row, left = s->heads - of_row, n = left < together ? left : together;
        float o[TOGETHER];

        values(p, s, q, n, d, type, o);
        RGK_UNROLL
        for (int k = 0; k < TOGETHER; k++)
            if (k < n)
                put_sum(p, s, q + k, d, o[k]);
    }
}

RGK_DEVICE void attend_with(const rgk_attend_params *p, shared *s, int queries)
{
    switch (p->kv.type) {
    case RGK_KV_F32: attend_as(p, s, queries, RGK_KV_F32); break;
    case RGK_KV_F16: attend_as(p, s, queries, RGK_KV_F16); break;
    case RGK_KV_BF16: attend_as(p, s, queries, RGK_KV_BF16); break;
    default: attend_as(p, s, queries, RGK_KV_Q8); break;
    }
}

/* One row, and tiles of several. */
RGK_KERNEL_OF(attend, attend, 256, 2)
{
    RGK_DYNAMIC;

    attend_with(&p, (shared *)(void *)rgk_dynamic, RGK_ROW_QUERIES);
}

RGK_KERNEL_OF(attend_tile, attend, 256, 2)
{
    RGK_DYNAMIC;

    attend_with(&p, (shared *)(void *)rgk_dynamic, RGK_QUERIES);
}

/* The segments of a head, in order; a thread for a dimension. */
RGK_KERNEL(merge, attend)
{
    const int tile = p.first + RGK_BLOCK_X / p.tile_rows, r = RGK_BLOCK_X % p.tile_rows, head = RGK_BLOCK_Y;
    const int row = p.tile_rows == 1 ? tile : p.batch.tile_row[tile] + r, v_dim = p.kv.v_dim;
    const float inf = __builtin_inff();
    const float *from = p.partial + ((int64_t)RGK_BLOCK_X * p.n_heads + head) * p.n_segments * (v_dim + 2);

    if (p.tile_rows > 1 && r >= p.batch.tile_rows[tile])
        return;
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
