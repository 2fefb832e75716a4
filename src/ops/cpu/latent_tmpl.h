/* latent_tmpl.h -- scores over latents: a key is a row, so queries are lanes, and a key's values are numbers that all
 * lanes share.  Nothing has to be turned about but the queries, once for all keys.  What is no f32 becomes it in L1, a
 * piece of some rows at a time.
 *
 * Included after the folder's header where SUMS, how many sums stay in registers, is defined. */
#ifndef RG_OPS_CPU_LATENT_TMPL_H
#define RG_OPS_CPU_LATENT_TMPL_H

enum {
    KEYS_OF_POINTER = 3, /* that an address and its offsets reach without an operation of their own */
    DIMS = 4,            /* between which pointers move */
    PIECE = 192,         /* dimensions of some keys that are widened together: up to 12 KB */
    POINTERS = (SUMS + KEYS_OF_POINTER - 1) / KEYS_OF_POINTER,
};

/* n values of f16 or bf16 as f32. */
ALWAYS_INLINE void widen_some(float *to, const uint16_t *from, bool f16, int n)
{
    int d = 0;

    for (; d + WIDTH <= n; d += WIDTH)
        store_f32(to + d, f16 ? load_f16(from + d) : load_bf16(from + d));
    for (; d < n; d++)
        to[d] = f16 ? rg_f16_to_f32(from[d]) : rg_float_of((uint32_t)from[d] << 16);
}

/* Some keys, and the queries of all dimensions from where they stand. */
typedef struct latent_walk {
    const float *q, *key[POINTERS];
    size_t apart[KEYS_OF_POINTER];
} latent_walk;

/* A dimension, the i-th from there, of some keys into their sums; parts: vectors of queries. */
ALWAYS_INLINE void add_dim(const latent_walk *w, int i, int keys, int parts, vec (*s)[PARTS])
{
    vec q[PARTS];

#pragma GCC unroll 4
    for (int part = 0; part < parts; part++)
        q[part] = load_f32(w->q + RG_PANEL * i + WIDTH * part);
#pragma GCC unroll 16
    for (int k = 0; k < keys; k++) {
        const vec x = splat(w->key[k / KEYS_OF_POINTER][w->apart[k % KEYS_OF_POINTER] + (size_t)i]);
#pragma GCC unroll 4
        for (int part = 0; part < parts; part++)
            s[k][part] = fused(q[part], x, s[k][part]);
    }
}

ALWAYS_INLINE void move_on(latent_walk *w, int n, int keys)
{
    w->q += RG_PANEL * n;
#pragma GCC unroll 6
    for (int i = 0; i < (keys + KEYS_OF_POINTER - 1) / KEYS_OF_POINTER; i++) {
        w->key[i] += n;
        __asm__("" : "+r"(w->key[i])); /* a pointer of its own, not the first and a multiple of the stride */
    }
}

/* n dimensions of some keys, which are f32 and lie `stride` apart from k on, into their sums. */
ALWAYS_INLINE void add_piece(latent_walk *w, const float *k, size_t stride, int n, int keys, int parts,
                             rg_coming *coming, vec (*s)[PARTS])
{
    w->apart[1] = stride;
    w->apart[2] = 2 * stride;
    __asm__("" : "+r"(w->apart[2]));
#pragma GCC unroll 6
    for (int i = 0; i < (keys + KEYS_OF_POINTER - 1) / KEYS_OF_POINTER; i++)
        w->key[i] = k + (size_t)(KEYS_OF_POINTER * i) * stride;
    for (; n >= DIMS; n -= DIMS) {
        rg_fetch_next(coming);
#pragma GCC unroll 4
        for (int i = 0; i < DIMS; i++)
            add_dim(w, i, keys, parts, s);
        move_on(w, DIMS, keys);
    }
    for (; n > 0; n--) {
        add_dim(w, 0, keys, parts, s);
        move_on(w, 1, keys);
    }
}

/* The scaled scores of keys [first, first + keys), 16 numbers each; keys and parts are constants. */
ALWAYS_INLINE void some_sums(const rg_attend *a, int first, int keys, int parts, rg_coming *coming, float *to)
{
    const size_t stride = (size_t)a->v_stride, at = (size_t)first * stride;
    _Alignas(64) float room[SUMS][PIECE];
    latent_walk w = { .q = a->columns };
    vec s[SUMS][PARTS];

#pragma GCC unroll 16
    for (int k = 0; k < keys; k++)
#pragma GCC unroll 4
        for (int part = 0; part < parts; part++)
            s[k][part] = splat(0.0f);
    if (a->type == RG_F32)
        add_piece(&w, (const float *)a->k + at, stride, a->k_dim, keys, parts, coming, s);
    for (int d = 0, n; a->type != RG_F32 && d < a->k_dim; d += n) {
        n = a->k_dim - d < PIECE ? a->k_dim - d : PIECE;
        for (int k = 0; k < keys; k++)
            widen_some(room[k], (const uint16_t *)a->k + at + (size_t)k * stride + d, a->type == RG_F16, n);
        add_piece(&w, room[0], PIECE, n, keys, parts, coming, s);
    }
#pragma GCC unroll 16
    for (int k = 0; k < keys; k++)
#pragma GCC unroll 4
        for (int part = 0; part < parts; part++)
            store_f32(to + RG_PANEL * k + WIDTH * part, s[k][part] * splat(a->scale));
}

/* sum[key][query], scaled. */
static __attribute__((noinline)) void latent_sums(const rg_attend *a, float (*sum)[RG_PANEL])
{
    rg_coming coming = { a->k_next, a->v_next, a->next_step };

    if (a->n <= WIDTH)
        for (int first = 0; first < RG_BLOCK; first += SUMS)
            some_sums(a, first, SUMS, 1, &coming, sum[first]);
    else
        for (int first = 0; first < RG_BLOCK; first += SUMS / PARTS)
            some_sums(a, first, SUMS / PARTS, PARTS, &coming, sum[first]);
}

#endif
