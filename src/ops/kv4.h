/* kv4.h -- the arithmetic of q4 (kv.h): runs of 32 values to 4 bits and back.
 *
 * Static functions, compiled here for kv.c and once more for each instruction set; the order of what they compute does
 * not show in the bits: a least and a largest value, and every value by itself. */
#ifndef RG_OPS_KV4_H
#define RG_OPS_KV4_H

#include <string.h>

#include "ops/kv.h"

enum {
    KV4_BYTES = 20,                   /* of a run: d, lo, and 16 bytes whose low nibbles are values 0 to 15 */
    KV4_RUNS = RG_BLOCK / RG_KV_RUN,  /* of a channel of K */
};

static inline float kv4_float_of(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Half precision by arithmetic: 2^112 moves the exponent's bias, subnormals included; the rest is selected. */
static inline float kv4_f16(const uint8_t *p)
{
    const uint32_t h = p[0] | (uint32_t)p[1] << 8, magnitude = (h & 0x7fff) << 13;
    const float x = magnitude >= 0x0f800000u ? kv4_float_of(magnitude | 0x7f800000u)
                                             : kv4_float_of(magnitude) * 0x1p112f;

    return h & 0x8000 ? -x : x;
}

/* The i-th value of a run. */
static inline float kv4_value(const uint8_t run[KV4_BYTES], int i)
{
    return kv4_f16(run) * (float)(i < 16 ? run[4 + i] & 15 : run[4 + i - 16] >> 4) + kv4_f16(run + 2);
}

/* n <= RG_KV_RUN values side by side to a run. */
static inline void kv4_encode(uint8_t to[KV4_BYTES], const float *x, int n)
{
    float lo = x[0], hi = x[0], d;
    uint16_t h[2];
    bool is_number = true;

    memset(to, 0, KV4_BYTES);
    for (int i = 0; i < n; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
        is_number &= x[i] >= -65504.0f && x[i] <= 65504.0f;
    }
    d = (hi - lo) / 15.0f;
    h[0] = is_number ? rg_f32_to_f16(d) : 0;
    h[1] = is_number ? rg_f32_to_f16(lo) : 0x7e00;
    memcpy(to, h, sizeof h);
    for (int i = 0; i < n && is_number && d > 0.0f; i++) {
        float q = (x[i] - lo) / d;

        q = ((q < 15.0f ? q : 15.0f) + 0x1.8p23f) - 0x1.8p23f; /* to nearest, ties to even */
        to[4 + i % 16] |= (uint8_t)((int)q << (i < 16 ? 0 : 4));
    }
}

static inline void kv4_decode(float *x, const uint8_t run[KV4_BYTES], int n)
{
    const float d = kv4_f16(run), lo = kv4_f16(run + 2);

    for (int i = 0; i < n; i++)
        x[i] = d * (float)(i < 16 ? run[4 + i] & 15 : run[4 + i - 16] >> 4) + lo;
}

/* n values side by side, run after run; returns where the next run is. */
static inline uint8_t *kv4_encode_row(uint8_t *to, const float *x, int n)
{
    for (; n > 0; n -= RG_KV_RUN, x += RG_KV_RUN, to += KV4_BYTES)
        kv4_encode(to, x, n < RG_KV_RUN ? n : RG_KV_RUN);
    return to;
}

/* Values side by side become what their runs of 4 bits stand for. */
static inline void kv4_round_row(float *x, int n)
{
    uint8_t run[KV4_BYTES];

    for (; n > 0; n -= RG_KV_RUN, x += RG_KV_RUN) {
        kv4_encode(run, x, n < RG_KV_RUN ? n : RG_KV_RUN);
        kv4_decode(x, run, n < RG_KV_RUN ? n : RG_KV_RUN);
    }
}

/* One head of a block's closed part from its open part. */
static inline void kv4_close(const rg_kv *kv, int head, const uint8_t *open, uint8_t *closed)
{
    const rg_kv from = rg_kv_open(kv);
    const int n_k = rg_kv_k_values(kv), n_v = rg_kv_v_values(kv);
    const rg_kv_place first = rg_kv_at(&from, (uint8_t *)(uintptr_t)open, head, 0);
    uint8_t *to = rg_kv_at(kv, closed, head, 0).k;

    if (!kv->latent)
        kv4_encode_row(to, (const float *)(const void *)first.k, n_k * RG_BLOCK);
    for (int i = 0; i < RG_BLOCK; i++) {
        const rg_kv_place at = rg_kv_at(&from, (uint8_t *)(uintptr_t)open, head, i);
        const rg_kv_place place = rg_kv_at(kv, closed, head, i);

        if (kv->latent)
            kv4_encode_row(place.k, (const float *)(const void *)at.k, n_k);
        kv4_encode_row(place.v, (const float *)(const void *)at.v, n_v);
    }
}

#endif
