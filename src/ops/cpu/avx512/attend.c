/* attend.c -- attention over one block of 64 keys, and the rounding of activations to int8.
 *
 * Scores: 64 keys are four vectors, K lies as [dim][64], so a dimension is one broadcast and four multiply-adds.
 * Values: vectors of the output stay in registers while the keys go by.  Eight queries share two vectors that are
 * loaded and widened, up to four queries share four; their sums, independent, hide the latency of a multiply-add. */
#include "ops/cpu/avx512/avx512.h"
#include "ops/math.h"
#include "ops/kv4.h"

enum {
    QUERIES = 8,
    VECTORS = 4, /* of keys or of an output at once, at most */
    STEPS = 4,   /* dimensions or keys between which pointers move: that takes ports of the multiply-adds */
    SUMS = 16,   /* of latents */
};

#include "ops/cpu/latent_tmpl.h"

/* How many of them for n queries: with eight, widening is shared by twice as many multiply-adds. */
ALWAYS_INLINE int vectors_of(int n)
{
    return n > 4 ? 2 : VECTORS;
}

/* The values that the 16 codes of a run of q4 stand for. */
ALWAYS_INLINE __m512 values_of_q4(const uint8_t *run)
{
    const __m512 codes = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    uint16_t h[2];

    memcpy(h, run, sizeof h);
    return _mm512_fmadd_ps(codes, _mm512_set1_ps(_cvtsh_ss(h[0])), _mm512_set1_ps(_cvtsh_ss(h[1])));
}

/* 16 values of q4 from the i-th on, a multiple of 16.  The lookup reads the low four bits of an index. */
ALWAYS_INLINE __m512 stored_q4(const uint8_t *p, size_t i)
{
    const uint8_t *run = p + i / RG_KV_RUN * KV4_BYTES;
    const __m512i codes = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(run + 4)));

    return _mm512_permutexvar_ps(i % RG_KV_RUN < 16 ? codes : _mm512_srli_epi32(codes, 4), values_of_q4(run));
}

/* 16 stored values from the i-th on, masked: lanes outside are 0 and their memory is not touched.  Of q8 they have yet
 * to be multiplied by their scales. */
ALWAYS_INLINE __m512 stored(const void *p, rg_type type, size_t i, __mmask16 mask)
{
    const uint16_t *h = (const uint16_t *)p + i;

    if (type == RG_F32)
        return _mm512_maskz_loadu_ps(mask, (const float *)p + i);
    if (type == RG_I8)
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(mask, (const int8_t *)p + i)));
    if (type == RG_Q4_1)
        return stored_q4(p, i);
    if (type == RG_F16)
        return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, h));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, h)), 16));
}

/* n vectors, two or four, of stored values from the i-th on; of bf16, of each two, the values with even numbers come
 * before the odd: a shift makes floats of the ones, a mask of the others, and nothing has to be spread out. */
ALWAYS_INLINE void stored_some(const void *p, rg_type type, size_t i, int n, __m512 *x)
{
#pragma GCC unroll 4
    for (int v = 0; v < n && type != RG_BF16; v++)
        x[v] = stored(p, type, i + (size_t)(16 * v), 0xffff);
#pragma GCC unroll 2
    for (int v = 0; v < n && type == RG_BF16; v += 2) {
        const __m512i two = _mm512_loadu_si512((const uint16_t *)p + i + 16 * v);

        x[v] = _mm512_castsi512_ps(_mm512_slli_epi32(two, 16));
        x[v + 1] = _mm512_castsi512_ps(_mm512_and_si512(two, _mm512_set1_epi32((int)0xffff0000)));
    }
}

/* From each two vectors, take the values that `first` names, and the values whose numbers are `step` higher. */
ALWAYS_INLINE void reorder(rg_type type, int n, __m512 *x, __m512i first, int step)
{
    const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(step));

#pragma GCC unroll 2
    for (int v = 0; v < n && type == RG_BF16; v += 2) {
        const __m512 one = _mm512_permutex2var_ps(x[v], first, x[v + 1]);
        x[v + 1] = _mm512_permutex2var_ps(x[v], second, x[v + 1]);
        x[v] = one;
    }
}

/* From the order of stored_some to that of memory; and back. */
ALWAYS_INLINE void put_together(rg_type type, int n, __m512 *x)
{
    reorder(type, n, x, _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23), 8);
}

ALWAYS_INLINE void take_apart(rg_type type, int n, __m512 *x)
{
    reorder(type, n, x, _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30), 1);
}

/* One float in every lane; by name, so that the compiler does not load it anew with every use. */
ALWAYS_INLINE __m512 every(const float *x)
{
    __m512 v;

    __asm__("vbroadcastss %1, %0" : "=v"(v) : "m"(*x));
    return v;
}

/* Queries, a dimension d, and where the keys that are read begin in it. */
typedef struct score_walk {
    const float *q[QUERIES];
    size_t d, at;
    __m512 k_scale[VECTORS]; /* of q8 */
} score_walk;

/* The i-th dimension from there of 16 n_keys keys into the sums; i, n and n_keys are constants. */
ALWAYS_INLINE void add_dimension(const rg_attend *a, rg_type type, const score_walk *w, int i, int n, int n_keys,
                                 __m512 (*s)[VECTORS])
{
    __m512 k[VECTORS];

    stored_some(a->k, type, w->at + (size_t)i * RG_BLOCK, n_keys, k);
#pragma GCC unroll 4
    for (int v = 0; v < n_keys; v++)
        k[v] = type == RG_I8 ? _mm512_mul_ps(k[v], w->k_scale[v]) : k[v];
#pragma GCC unroll 8
    for (int m = 0; m < n; m++) {
        const __m512 q = every(w->q[m] + w->d + i);
#pragma GCC unroll 4
        for (int v = 0; v < n_keys; v++)
            s[m][v] = _mm512_fmadd_ps(q, k[v], s[m][v]);
    }
}

/* Scores of keys [first, first + 16 n_keys) for n queries; n and n_keys are constants. */
ALWAYS_INLINE void some_scores(const rg_attend *a, rg_type type, const float *const *q, int n, float (*p)[RG_BLOCK],
                               int first, int n_keys)
{
    const __m512 scale = _mm512_set1_ps(a->scale);
    const size_t each = 16 * (size_t)n_keys;
    const int k_dim = a->k_dim;
    rg_coming coming = rg_coming_from(a, type, (size_t)(first * k_dim) / each, each);
    score_walk w = { .at = (size_t)first };
    __m512 s[QUERIES][VECTORS];

#pragma GCC unroll 8
    for (int i = 0; i < n; i++) {
        w.q[i] = q[i];
#pragma GCC unroll 4
        for (int v = 0; v < n_keys; v++)
            s[i][v] = _mm512_setzero_ps();
    }
    for (int d = 0, end; d < k_dim;) { /* of q8 a run */
        end = type == RG_I8 && k_dim - d > RG_KV_RUN ? d + RG_KV_RUN : k_dim;
#pragma GCC unroll 4
        for (int v = 0; v < n_keys && type == RG_I8; v++)
            w.k_scale[v] = load_bf16(a->k_scales + d / RG_KV_RUN * RG_BLOCK + first + 16 * v);
        for (; d + STEPS <= end; d += STEPS) {
#pragma GCC unroll 4
            for (int i = 0; i < STEPS; i++) {
                rg_fetch_next(&coming);
                add_dimension(a, type, &w, i, n, n_keys, s);
            }
            w.d += STEPS;
            w.at += STEPS * RG_BLOCK;
        }
        for (; d < end; d++) {
            rg_fetch_next(&coming);
            add_dimension(a, type, &w, 0, n, n_keys, s);
            w.d++;
            w.at += RG_BLOCK;
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < n; i++) {
        put_together(type, n_keys, s[i]);
#pragma GCC unroll 4
        for (int v = 0; v < n_keys; v++)
            _mm512_store_ps(p[i] + first + 16 * v, _mm512_mul_ps(s[i][v], scale));
    }
}

/* What eight queries do to two vectors, by type, in functions of its own: their sums leave few registers, and the
 * compiler would keep constants of what comes before and after in these. */
#define TYPES(DO) DO(f32, RG_F32) DO(f16, RG_F16) DO(bf16, RG_BF16) DO(q8, RG_I8) DO(q4, RG_Q4_1)
#define BY_TYPE(call) /* of constants `type` */                                                                        \
    type == RG_F32 ? call(f32) : type == RG_F16 ? call(f16) : type == RG_BF16 ? call(bf16) : type == RG_I8 ? call(q8)  \
                                                                                                           : call(q4)
#define EIGHT_SCORES(name, type)                                                                                       \
    static __attribute__((noinline)) void eight_scores_##name(const rg_attend *a, const float *const *q,               \
                                                              float (*p)[RG_BLOCK], int first)                         \
    {                                                                                                                  \
        some_scores(a, type, q, QUERIES, p, first, 2);                                                                 \
    }

TYPES(EIGHT_SCORES)

ALWAYS_INLINE void scores(const rg_attend *a, rg_type type, const float *const *q, int n, float (*p)[RG_BLOCK])
{
    if (type == RG_I8)
        rg_fetch_next_scales(a);
    for (int first = 0; first < RG_BLOCK; first += 16 * vectors_of(n))
#define CALL(name) eight_scores_##name(a, q, p, first)
        if (n == QUERIES)
            BY_TYPE(CALL);
        else
            some_scores(a, type, q, n, p, first, vectors_of(n));
#undef CALL
}

/* Sums of sixteen keys become scores [first, first + 16) of sixteen queries: pairs, then fours of keys within each 128
 * bits, then the 128 bits themselves. */
ALWAYS_INLINE void turn(float (*p)[RG_BLOCK], int first, float (*from)[RG_PANEL])
{
    __m512 a[16], b[16];

#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        a[i] = _mm512_loadu_ps(from[i]);
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) { /* a[4g + c]: column c of each 128 bits, of rows 4g to 4g + 3 */
        const int g = i / 2 * 4, half = i % 2;
        const __m512d x = _mm512_castps_pd(b[g + half]), y = _mm512_castps_pd(b[g + 2 + half]);

        a[g + 2 * half] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
        a[g + 2 * half + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        const __m512 even[2] = { _mm512_shuffle_f32x4(a[c], a[4 + c], 0x88),
                                 _mm512_shuffle_f32x4(a[8 + c], a[12 + c], 0x88) };
        const __m512 odd[2] = { _mm512_shuffle_f32x4(a[c], a[4 + c], 0xdd),
                                _mm512_shuffle_f32x4(a[8 + c], a[12 + c], 0xdd) };

        _mm512_storeu_ps(p[c] + first, _mm512_shuffle_f32x4(even[0], even[1], 0x88));
        _mm512_storeu_ps(p[4 + c] + first, _mm512_shuffle_f32x4(odd[0], odd[1], 0x88));
        _mm512_storeu_ps(p[8 + c] + first, _mm512_shuffle_f32x4(even[0], even[1], 0xdd));
        _mm512_storeu_ps(p[12 + c] + first, _mm512_shuffle_f32x4(odd[0], odd[1], 0xdd));
    }
}

ALWAYS_INLINE void latent_scores(const rg_attend *a, float (*p)[RG_BLOCK])
{
    _Alignas(64) float sum[RG_BLOCK][RG_PANEL];

    latent_sums(a, sum);
    for (int first = 0; first < RG_BLOCK; first += 16)
        turn(p, first, sum + first);
}

/* A scale of q8 in every lane. */
ALWAYS_INLINE __m512 every_scale(const uint16_t *d)
{
    return _mm512_castsi512_ps(_mm512_set1_epi32((int)((uint32_t)*d << 16)));
}

/* A key: its weight for the first query, where the dimensions that are read begin, which of the last vector are there,
 * and the scales of q8. */
typedef struct value_walk {
    const float *weight;
    size_t row;
    __mmask16 mask;
    const uint16_t *scale;
} value_walk;

/* A key's values into n outputs, and on to the next key; n and n_out are constants. */
ALWAYS_INLINE void add_key(const rg_attend *a, rg_type type, value_walk *k, int n, int n_out, __m512 (*out)[VECTORS])
{
    __m512 x[VECTORS];

    if (n_out > 1)
        stored_some(a->v, type, k->row, n_out, x);
    else
        x[0] = stored(a->v, type, k->row, k->mask);
#pragma GCC unroll 4
    for (int v = 0; v < n_out && type == RG_I8; v++) /* of more than one vector, the first begins a run */
        x[v] = _mm512_mul_ps(x[v], every_scale(k->scale + v / 2));
#pragma GCC unroll 8
    for (int i = 0; i < n; i++) {
        const __m512 w = every(k->weight + i * RG_BLOCK);
#pragma GCC unroll 4
        for (int v = 0; v < n_out; v++)
            out[i][v] = _mm512_fmadd_ps(w, x[v], out[i][v]);
    }
    k->weight++;
    k->row += (size_t)a->v_stride;
    k->scale += rg_kv_runs(a->v_dim);
}

/* Dimensions [first, first + 16 n_out) of n outputs.  `mask` says which of them are there in the last vector; n and
 * n_out are constants. */
ALWAYS_INLINE void some_values(const rg_attend *a, rg_type type, int n, float (*p)[RG_BLOCK], const float *c,
                               rg_softmax *s, int first, int n_out, __mmask16 mask)
{
    const int runs = rg_kv_runs(a->v_dim);
    const size_t each = 16 * (size_t)n_out;
    rg_coming coming = rg_coming_from(a, type, (size_t)(a->k_dim + first) * RG_BLOCK / each, each);
    __m512 out[QUERIES][VECTORS];

#pragma GCC unroll 8
    for (int i = 0; i < n; i++) {
#pragma GCC unroll 4
        for (int v = 0; v < n_out; v++)
            out[i][v] = _mm512_mul_ps(_mm512_maskz_loadu_ps(v == n_out - 1 ? mask : 0xffff, s[i].o + first + 16 * v),
                                      _mm512_set1_ps(c[i]));
        if (n_out > 1)
            take_apart(type, n_out, out[i]);
    }
    for (int j = 0, end; (end = rg_seen_run(a->seen, &j)) > 0;) {
        value_walk w = { p[0] + j, (size_t)j * (size_t)a->v_stride + (size_t)first, mask,
                         a->v_scales + j * runs + first / RG_KV_RUN };
        for (; j + STEPS <= end; j += STEPS)
#pragma GCC unroll 4
            for (int i = 0; i < STEPS; i++) {
                rg_fetch_next(&coming);
                add_key(a, type, &w, n, n_out, out);
            }
        for (; j < end; j++) {
            rg_fetch_next(&coming);
            add_key(a, type, &w, n, n_out, out);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < n; i++) {
        if (n_out > 1)
            put_together(type, n_out, out[i]);
#pragma GCC unroll 4
        for (int v = 0; v < n_out; v++)
            _mm512_mask_storeu_ps(s[i].o + first + 16 * v, v == n_out - 1 ? mask : 0xffff, out[i][v]);
    }
}

#define EIGHT_VALUES(name, type)                                                                                       \
    static __attribute__((noinline)) void eight_values_##name(const rg_attend *a, float (*p)[RG_BLOCK],                \
                                                              const float *c, rg_softmax *s, int first)                \
    {                                                                                                                  \
        some_values(a, type, QUERIES, p, c, s, first, 2, 0xffff);                                                      \
    }

TYPES(EIGHT_VALUES)

/* ---- the running softmax ----------------------------------------------------------------------------------------- */

/* math.h's exp of x that is not above 0, or NaN: max_ps is its second operand where one is NaN.  q 2^half is exact, so
 * 2^n in one operation rounds as there. */
ALWAYS_INLINE __m512 exp_down(__m512 x)
{
    const __m512 rint = _mm512_set1_ps(RG_RINT);
    __m512 n, r, q;

    x = _mm512_max_ps(_mm512_set1_ps(-105.0f), x);
    n = _mm512_sub_ps(_mm512_fmadd_ps(x, _mm512_set1_ps(0x1.715476p+0f), rint), rint);
    r = _mm512_fmadd_ps(n, _mm512_set1_ps(-RG_LN2_HI), x);
    r = _mm512_fmadd_ps(n, _mm512_set1_ps(-RG_LN2_LO), r);
    q = _mm512_set1_ps(0x1.6a242ep-10f);
    q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0x1.1239e2p-7f));
    q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0x1.5558f2p-5f));
    q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0x1.555492p-3f));
    q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0x1.fffffcp-2f));
    q = _mm512_add_ps(_mm512_set1_ps(1.0f), _mm512_fmadd_ps(q, _mm512_mul_ps(r, r), r));
    return _mm512_scalef_ps(q, n);
}

ALWAYS_INLINE __m512 sum_of(__m512 a, __m512 b)
{
    return _mm512_add_ps(a, b);
}

ALWAYS_INLINE __m512 larger_of(__m512 a, __m512 b)
{
    return _mm512_max_ps(a, b);
}

/* Where fold puts what is left of the i-th vector. */
ALWAYS_INLINE int folded_at(int i)
{
    return 4 * (i % 4) + i / 4;
}

/* tree16 of n <= 8 vectors side by side, `join` being its addition; other lanes are copies of these. */
ALWAYS_INLINE __m512 fold(const __m512 *x, int n, __m512 (*join)(__m512, __m512))
{
    __m512 t[8], u[4], v[2];

#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        t[i] = x[i < n ? i : 0];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) /* halves of vectors 2i and 2i + 1 */
        u[i] = join(_mm512_shuffle_f32x4(t[2 * i], t[2 * i + 1], 0x44),
                    _mm512_shuffle_f32x4(t[2 * i], t[2 * i + 1], 0xee));
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) /* quarters of vectors 4i to 4i + 3 */
        v[i] = join(_mm512_shuffle_f32x4(u[2 * i], u[2 * i + 1], 0x88),
                    _mm512_shuffle_f32x4(u[2 * i], u[2 * i + 1], 0xdd));
    v[0] = join(_mm512_shuffle_ps(v[0], v[1], 0x44), _mm512_shuffle_ps(v[0], v[1], 0xee));
    return join(_mm512_shuffle_ps(v[0], v[0], 0x88), _mm512_shuffle_ps(v[0], v[0], 0xdd));
}

/* The largest of each query's seen scores and its m so far; NaN where that is no number. */
ALWAYS_INLINE __m512 largest(uint64_t seen, int n, float (*p)[RG_BLOCK], const rg_softmax *s)
{
    const __m512 none = _mm512_set1_ps(-__builtin_inff());
    __m512 most[QUERIES], m;

#pragma GCC unroll 8
    for (int i = 0; i < n; i++) {
        most[i] = _mm512_set1_ps(s[i].m);
#pragma GCC unroll 4
        for (int v = 0; v < 4; v++) { /* max_ps(score, most) keeps `most` where a score is NaN: as is defined */
            const __m512 score = _mm512_load_ps(p[i] + 16 * v);
            most[i] = _mm512_mask_max_ps(most[i], (__mmask16)(seen >> (16 * v)), score, most[i]);
        }
    }
    m = fold(most, n, larger_of);
    return _mm512_mask_mov_ps(m, _mm512_cmp_ps_mask(m, none, _CMP_EQ_OQ), _mm512_set1_ps(__builtin_nanf("")));
}

/* Each step for all queries before the next: none waits for another's. */
ALWAYS_INLINE void weigh(const rg_attend *a, int n, float (*p)[RG_BLOCK], rg_softmax *s, float *c)
{
    const uint64_t seen = a->seen;
    _Alignas(64) float m[16] = { 0 }, l[16] = { 0 }, fall[16];
    __m512 sum[QUERIES], max, old;

    for (int i = 0; i < n; i++) {
        m[folded_at(i)] = s[i].m;
        l[folded_at(i)] = s[i].l;
    }
    max = largest(seen, n, p, s);
    old = _mm512_load_ps(m);
    _mm512_store_ps(m, max);
#pragma GCC unroll 8
    for (int i = 0; i < n; i++) {
        const __m512 mi = every(m + folded_at(i));
        __m512 e[4];
#pragma GCC unroll 4
        for (int v = 0; v < 4; v++) {
            e[v] = _mm512_maskz_mov_ps((__mmask16)(seen >> (16 * v)),
                                       exp_down(_mm512_sub_ps(_mm512_load_ps(p[i] + 16 * v), mi)));
            _mm512_store_ps(p[i] + 16 * v, e[v]);
        }
        sum[i] = _mm512_add_ps(_mm512_add_ps(_mm512_add_ps(e[0], e[1]), e[2]), e[3]);
    }
    old = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(old, _mm512_set1_ps(-__builtin_inff()), _CMP_NEQ_UQ),
                              exp_down(_mm512_sub_ps(old, max)));
    _mm512_store_ps(fall, old);
    _mm512_store_ps(l, _mm512_fmadd_ps(_mm512_load_ps(l), old, fold(sum, n, sum_of)));
    for (int i = 0; i < n; i++) {
        c[i] = fall[folded_at(i)];
        s[i].l = l[folded_at(i)];
        s[i].m = m[folded_at(i)];
    }
}

ALWAYS_INLINE void values(const rg_attend *a, rg_type type, int n, float (*p)[RG_BLOCK], const float *c, rg_softmax *s)
{
    int d = 0;

    for (; d + 16 * vectors_of(n) <= a->v_dim; d += 16 * vectors_of(n))
#define CALL(name) eight_values_##name(a, p, c, s, d)
        if (n == QUERIES)
            BY_TYPE(CALL);
        else
            some_values(a, type, n, p, c, s, d, vectors_of(n), 0xffff);
#undef CALL
    for (; vectors_of(n) > 2 && d + 32 <= a->v_dim; d += 32)
        some_values(a, type, n, p, c, s, d, 2, 0xffff);
    for (; d < a->v_dim; d += 16)
        some_values(a, type, n, p, c, s, d, 1, (__mmask16)(a->v_dim - d < 16 ? (1u << (a->v_dim - d)) - 1 : 0xffff));
}

#include "ops/cpu/attend_tmpl.h"

void rg_avx512_attend(const rg_attend *a, rg_softmax *s)
{
    attend(a, s);
}

/* 16 values rounded to bytes, ties to even.  min_ps(a, b) and max_ps(a, b) are b when either is NaN, so the order of
 * their operands is that of the definition. */
ALWAYS_INLINE __m128i rounded_bytes(__m512 x, __m512 inverse)
{
    const __m512 v = _mm512_min_ps(_mm512_mul_ps(x, inverse), _mm512_set1_ps(127.0f));

    return _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_max_ps(v, _mm512_set1_ps(-127.0f))));
}

ALWAYS_INLINE void quantize_block(__m512 x0, __m512 x1, float amax, rg_xblock *out)
{
    const __m512 inverse = _mm512_set1_ps(amax == 0.0f ? 0.0f : 127.0f / amax);
    const __m256i q = _mm256_set_m128i(rounded_bytes(x1, inverse), rounded_bytes(x0, inverse));
    __m256i sums = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), q);

    sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, _MM_SHUFFLE(1, 0, 3, 2)));
    sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, _MM_SHUFFLE(2, 3, 0, 1)));
    const int32_t sum[2] = { _mm256_extract_epi32(sums, 0), _mm256_extract_epi32(sums, 4) };

    _mm256_storeu_si256((__m256i *)(void *)out->q, q);
    for (int h = 0; h < 2; h++)
        out->neg128h[h] = -128 * sum[h];
    out->d = amax / 127.0f;
    out->s = out->d * (float)(sum[0] + sum[1]);
    out->sh[0] = out->d * (float)sum[0];
    out->sh[1] = out->d * (float)sum[1];
    out->neg8 = -8 * (sum[0] + sum[1]);
    out->neg128 = -128 * (sum[0] + sum[1]);
}

void rg_avx512_quantize(const float *x, int n, rg_xblock *out)
{
    for (int b = 0; b < n / 32; b++, x += 32, out++) {
        const __m512 x0 = _mm512_loadu_ps(x), x1 = _mm512_loadu_ps(x + 16);
        const __m512i lane = _mm512_max_epi32(_mm512_castps_si512(_mm512_abs_ps(x0)),
                                              _mm512_castps_si512(_mm512_abs_ps(x1)));

        fetch_ahead(x, 2048);
        fetch_ahead(x + 16, 2048);
        quantize_block(x0, x1, rg_float_of((uint32_t)_mm512_reduce_max_epi32(lane)), out);
    }
}

ALWAYS_INLINE __mmask16 outliers_of(__m512 x)
{
    return _mm512_cmp_ps_mask(_mm512_abs_ps(x), _mm512_set1_ps(RG_OUTLIER), _CMP_GE_OQ);
}

void rg_avx512_quantize_row(const float *x, int n, rg_xblock *out, uint32_t *outliers)
{
    __m512i most = _mm512_setzero_si512();

    for (int k = 0; k < n; k += 16) {
        const __m512 v = _mm512_loadu_ps(x + k);
        const __mmask16 within = _knot_mask16(outliers_of(v));
        most = _mm512_mask_max_epi32(most, within, most, _mm512_castps_si512(_mm512_abs_ps(v)));
    }
    const float amax = rg_float_of((uint32_t)_mm512_reduce_max_epi32(most));

    for (int b = 0; b < n / 32; b++, x += 32, out++) {
        const __m512 x0 = _mm512_loadu_ps(x), x1 = _mm512_loadu_ps(x + 16);
        const __mmask16 m0 = outliers_of(x0), m1 = outliers_of(x1);

        outliers[b] = (uint32_t)m0 | (uint32_t)m1 << 16;
        quantize_block(_mm512_maskz_mov_ps(_knot_mask16(m0), x0), _mm512_maskz_mov_ps(_knot_mask16(m1), x1), amax, out);
    }
}
