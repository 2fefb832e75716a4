/* widen_tmpl.h -- a block's K and V as f32, where the compiler does not find the way by itself: q8.
 *
 * Included by the rows.c of an instruction set after its folder's header and ref/rows.h. */
#ifndef RG_OPS_CPU_WIDEN_TMPL_H
#define RG_OPS_CPU_WIDEN_TMPL_H

/* Values [first, first + n) of K, one run, of all keys. */
ALWAYS_INLINE void widen_keys(float *k, const int8_t *q, const uint16_t *run, int n)
{
    vec d[RG_BLOCK / WIDTH];

    for (int i = 0; i < RG_BLOCK / WIDTH; i++)
        d[i] = load_bf16(run + WIDTH * i);
    for (; n > 0; n--, k += RG_BLOCK, q += RG_BLOCK)
        for (int i = 0; i < RG_BLOCK / WIDTH; i++)
            store_f32(k + WIDTH * i, load_i8(q + WIDTH * i) * d[i]);
}

static void widen(float *k, float *v, const rg_attend *a)
{
    const int8_t *qk = a->k, *qv = a->v;
    const uint16_t *run = a->v_scales;

    if (a->type != RG_I8) {
        rows_widen(k, v, a);
        return;
    }
    for (int d = 0; d < a->k_dim; d += RG_KV_RUN)
        widen_keys(k + d * RG_BLOCK, qk + d * RG_BLOCK, a->k_scales + d / RG_KV_RUN * RG_BLOCK,
                   a->k_dim - d < RG_KV_RUN ? a->k_dim - d : RG_KV_RUN);
    for (int j = 0; j < RG_BLOCK; j++, v += a->v_dim, qv += a->v_dim)
        for (int first = 0; first < a->v_dim; first += RG_KV_RUN, run++) {
            const float scale = from_bf16(*run);
            int d = first, end = a->v_dim - first < RG_KV_RUN ? a->v_dim : first + RG_KV_RUN;

            for (; d + WIDTH <= end; d += WIDTH)
                store_f32(v + d, load_i8(qv + d) * scale);
            for (; d < end; d++)
                v[d] = (float)qv[d] * scale;
        }
}

#endif
