/* iq4_xs.h -- 256 codes of iq4_nl's table; runs of 32 with a 6-bit scale: w = (d (s - 32)) table[q]. */
#ifndef RG_QUANT_IQ4_XS_H
#define RG_QUANT_IQ4_XS_H

#include "quant/iq4_nl.h"

typedef struct block_iq4_xs {
    uint8_t d[2];     /* f16 */
    uint8_t high[2];  /* bits 2j: the upper two of scale j */
    uint8_t low[4];   /* nibbles: the lower four, scale 2i in the low one of byte i */
    uint8_t q[8][16]; /* of each run: low nibble: value i; high nibble: value 16 + i */
} block_iq4_xs;

static void iq4_xs_ints(const void *block, rg_ints *out)
{
    const block_iq4_xs *b = block;

    out->table = iq4_table;
    out->f = rg_f16_to_f32(load16(b->d));
    for (int run = 0; run < 8; run++) {
        int low = b->low[run / 2] >> run % 2 * 4 & 15, high = load16(b->high) >> 2 * run & 3;
        out->s[run] = (int8_t)((low | high << 4) - 32);
        load_nibbles(b->q[run], out->q + 32 * run);
    }
}

static void iq4_xs_decode(const void *blocks, int64_t n_blocks, float *y)
{
    const block_iq4_xs *b = blocks;
    rg_ints ints;

    for (; n_blocks--; b++, y += 256) {
        iq4_xs_ints(b, &ints);
        decode_table_two_level(&ints, 32, y);
    }
}

/* Codes of a run under a scale; the sums by which it is fitted, and the error, of weight w. */
static float iq4_xs_codes(const float *x, const float *w, float scale, uint8_t q[32], float *xv, float *vv)
{
    float error = 0;

    *xv = *vv = 0;
    for (int i = 0; i < 32; i++) {
        q[i] = (uint8_t)nearest_code(iq4_table, scale, x[i]);
        const float v = iq4_table[q[i]], miss = scale * v - x[i];
        *xv += w[i] * x[i] * v;
        *vv += w[i] * v * v;
        error += w[i] * miss * miss;
    }
    return error;
}

/* Under d, every run takes the multiple near the wanted scale that loses least; returns what all lose.  *fitted: the d
 * that would be best for these codes. */
static float iq4_xs_choose(const float *x, const float *w, const float *want, float d, int s[8], uint8_t q[8][32],
                           float *fitted)
{
    float all = 0, xs = 0, ss = 0;

    for (int run = 0; run < 8; run++) {
        const int near = round_into(want[run] * reciprocal(d), -32, 31);
        float least = INFINITY, best_xv = 0, best_vv = 0;
        for (int k = near - 2; k <= near + 2; k++) {
            uint8_t codes[32];
            float xv, vv, error;
            if (k < -32 || k > 31)
                continue;
            error = iq4_xs_codes(x + 32 * run, w + 32 * run, d * (float)k, codes, &xv, &vv);
            if (error < least || least == INFINITY) {
                least = error;
                s[run] = k;
                best_xv = xv;
                best_vv = vv;
                memcpy(q[run], codes, sizeof codes);
            }
        }
        all += least;
        xs += (float)s[run] * best_xv;
        ss += (float)(s[run] * s[run]) * best_vv;
    }
    *fitted = ss > 0 ? xs / ss : 0;
    return all;
}

/* by: how much each value weighs; NULL: all alike. */
static void iq4_xs_weighted(const float *x, const float *by, int64_t n_blocks, void *blocks)
{
    block_iq4_xs *b = blocks;

    for (; n_blocks--; b++, x += 256, by = by ? by + 256 : NULL) {
        float scales[8], w[256], d, fitted, error = INFINITY;
        uint16_t bits = 0, high = 0;

        for (int i = 0; i < 256; i++)
            w[i] = by ? by[i] : 1;
        for (int run = 0; run < 8; run++)
            scales[run] = fit_table_scale(x + 32 * run, w + 32 * run, 32, iq4_table);
        memset(b, 0, sizeof *b);
        for (int turn = 0; turn < 20; turn++) { /* from several d, and from the best for the codes of each */
            uint8_t q[8][32];
            int s[8] = { 0 };
            if (turn % 2 == 0)
                bits = rg_f32_to_f16(extreme(scales, 8) / (-32.5f + 0.5f * (float)(turn / 2)));
            d = rg_f16_to_f32(bits);
            float now = iq4_xs_choose(x, w, scales, d, s, q, &fitted);
            bits = rg_f32_to_f16(fitted);
            if (turn && !(now < error))
                continue;
            error = now;
            high = 0;
            memset(b, 0, sizeof *b);
            store16(b->d, rg_f32_to_f16(d));
            for (int run = 0; run < 8; run++) {
                const int code = s[run] + 32;
                high |= (uint16_t)(code >> 4 << 2 * run);
                b->low[run / 2] |= (uint8_t)((code & 15) << run % 2 * 4);
                store_nibbles(b->q[run], q[run]);
            }
        }
        store16(b->high, high);
    }
}

static void iq4_xs_encode(const float *x, int64_t n_blocks, void *blocks)
{
    iq4_xs_weighted(x, NULL, n_blocks, blocks);
}

#endif
