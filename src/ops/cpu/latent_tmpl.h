/* latent_tmpl.h -- scores over latents: a key is a row of f32, so queries are lanes, and a key's values are numbers
 * that all lanes share.  Nothing has to be turned about but the queries, once for all keys.
 *
 * Included after the folder's header where SUMS, how many sums stay in registers, is defined. */
#ifndef RG_OPS_CPU_LATENT_TMPL_H
#define RG_OPS_CPU_LATENT_TMPL_H

enum {
    KEYS_OF_POINTER = 3, /* that an address and its offsets reach without an operation of their own */
    DIMS = 4,            /* between which pointers move */
    POINTERS = (SUMS + KEYS_OF_POINTER - 1) / KEYS_OF_POINTER,
};

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

/* The scaled scores of keys [first, first + keys), 16 numbers each; keys and parts are constants. */
ALWAYS_INLINE void some_sums(const rg_attend *a, int first, int keys, int parts, rg_coming *coming, float *to)
{
    const size_t stride = (size_t)a->v_stride;
    const int k_dim = a->k_dim;
    latent_walk w = { .q = a->columns, .apart = { 0, stride, 2 * stride } };
    vec s[SUMS][PARTS];
    int d = 0;

    __asm__("" : "+r"(w.apart[2]));
#pragma GCC unroll 6
    for (int i = 0; i < (keys + KEYS_OF_POINTER - 1) / KEYS_OF_POINTER; i++)
        w.key[i] = (const float *)a->k + (size_t)(first + KEYS_OF_POINTER * i) * stride;
#pragma GCC unroll 16
    for (int k = 0; k < keys; k++)
#pragma GCC unroll 4
        for (int part = 0; part < parts; part++)
            s[k][part] = splat(0.0f);
    for (; d + DIMS <= k_dim; d += DIMS) {
        rg_fetch_next(coming);
#pragma GCC unroll 4
        for (int i = 0; i < DIMS; i++)
            add_dim(&w, i, keys, parts, s);
        move_on(&w, DIMS, keys);
    }
    for (; d < k_dim; d++) {
        add_dim(&w, 0, keys, parts, s);
        move_on(&w, 1, keys);
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
