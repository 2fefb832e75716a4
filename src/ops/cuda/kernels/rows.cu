/* rows.cu -- what is done to rows by themselves: embedding, sums, norms, activations, rotation.  The bits are those of
 * ops/cpu/kernels.h. */
#include "ops/cuda/kernels/matrix.h"
#include "ops/cuda/kernels/warp.h"

/* ---- embedding --------------------------------------------------------------------------------------------------- */

RGK_KERNEL(embed, embed)
{
    const int row = RGK_BLOCK_X, given = p.batch.given[row], at = p.batch.token[row] - p.first_token;
    const int token = at >= 0 && at < p.table.rows ? at : 0;
    const uint8_t *panel = p.table.at + token / RGK_PANEL * p.table.panel_bytes;
    float *y = p.y.at + row * p.y.stride;

    for (int k = RGK_THREAD; k < p.cols; k += RGK_THREADS)
        if (given >= 0 && p.reads_given) {
            y[k] = p.batch.given_rows[(int64_t)given * p.cols + k];
        } else {
            const float v = rgk_value(&p.table, panel, token % RGK_PANEL, k);
            y[k] = p.scale == 1.0f ? v : v * p.scale;
        }
}

RGK_KERNEL(gather, gather)
{
    const float *x = p.x.at + p.from[RGK_BLOCK_X] * p.x.stride;

    for (int k = RGK_THREAD; k < p.cols; k += RGK_THREADS)
        p.y.at[RGK_BLOCK_X * p.y.stride + k] = x[k];
}

/* ---- elementwise ------------------------------------------------------------------------------------------------- */

/* The order is that of rg_activation (ops/ops.h). */
RGK_DEVICE float activate(int act, float x)
{
    switch (act) {
    case 0: return rg_siluf(x);
    case 1: return rg_geluf(x);
    case 2: return rg_gelu_tanhf(x);
    case 3: return rg_reluf(x);
    case 4: return rg_relu2f(x);
    case 5: return rg_sigmoidf(x);
    case 6: return rg_clamped_gatef(x);
    case 7: return rg_tanhf(x);
    case 8: return rg_expf(x);
    case 9: return rg_softplusf(x);
    case 10: return x;
    default: return rg_inversef(x);
    }
}

RGK_DEVICE float gated(int act, float g, float u)
{
    return activate(act, g) * (act == 6 ? rg_clamped_upf(u) : u);
}

/* The factor is computed in f32; positions up to 2^24 are exact there. */
RGK_DEVICE float by_position(const rgk_elementwise_params *p, int row)
{
    const int64_t periods = ((int64_t)p->batch.pos[row] + (int64_t)p->b) / p->n;

    return rgk_fma(p->a, rg_logf((float)(1 + periods)), 1.0f);
}

RGK_KERNEL(elementwise, elementwise)
{
    const int row = RGK_BLOCK_X, k = RGK_BLOCK_Y * RGK_THREADS + RGK_THREAD;
    float *y = p.y.at + row * p.y.stride + k;
    const float *x = p.x.at + row * p.x.stride;
    int64_t at;

    if (k >= p.cols)
        return;
    switch (p.kind) {
    case RGK_ADD: *y += x[k]; break;
    case RGK_MUL: *y *= x[k / p.n]; break;
    case RGK_SCALE: *y *= p.a; break;
    case RGK_SCALE_COLUMNS: *y *= p.w[k / p.n]; break;
    case RGK_SCALE_BY_POSITION: *y *= by_position(&p, row); break;
    case RGK_ACT_MUL: *y = gated(p.act, x[k], p.u.at[row * p.u.stride + k]); break;
    case RGK_ACTIVATE: *y = activate(p.act, x[k]); break;
    case RGK_SOFTCAP: *y = p.a * rg_tanhf(*y / p.a); break;
    case RGK_SPARSIFY: *y = rg_float_of(rg_bits_of(x[k]) & 0x7fffffff) <= p.a ? 0.0f : x[k]; break;
    case RGK_ADD_POSITIONS:
        at = (int64_t)p.batch.pos[row] + p.n;
        *y += p.w[at * p.cols + k];
        break;
    case RGK_ADD_TYPES: *y += p.w[(p.batch.second[row] && p.table_rows > 1 ? p.cols : 0) + k]; break;
    case RGK_FEATURES: *y = p.batch.features[(int64_t)row * p.cols + k]; break;
    default: break;
    }
}

/* ---- norms ------------------------------------------------------------------------------------------------------- */

/* The first warp adds up n values in shared memory: squares of (x - mean), or (x - mean) itself. */
RGK_DEVICE float sum_of(const float *x, int n, float mean, bool squares)
{
    float lane = 0.0f;

    int k = RGK_THREAD;

    for (; k + 15 * 16 < n && RGK_THREAD < 16; k += 256) { /* sixteen loads at once */
        float d[16];

        RGK_UNROLL
        for (int i = 0; i < 16; i++)
            d[i] = x[k + 16 * i] - mean;
        RGK_UNROLL
        for (int i = 0; i < 16; i++)
            lane = squares ? rgk_fma(d[i], d[i], lane) : lane + d[i];
    }
    for (; k < n && RGK_THREAD < 16; k += 16) {
        const float d = x[k] - mean;
        lane = squares ? rgk_fma(d, d, lane) : lane + d;
    }
    return rgk_tree16(lane);
}

RGK_DEVICE float scaled(int kind, const float *x, const float *old, int k, float mean, float r)
{
    return kind == RGK_MATCH_RMS ? old[k] * r : kind == RGK_LAYERNORM ? (x[k] - mean) * r : x[k] * r;
}

RGK_KERNEL(norm, norm)
{
    RGK_DYNAMIC;
    RGK_SHARED float shared[2];
    float *x = (float *)(void *)rgk_dynamic, *old = x + p.n;
    const int first = RGK_BLOCK_Y * p.n, n = p.n, step = RGK_THREADS;
    const float *from = p.x.at + RGK_BLOCK_X * p.x.stride + first;
    float *y = p.y.at + RGK_BLOCK_X * p.y.stride + first;
    const float *w = p.w ? p.w + first % p.w_cols : p.w, *b = p.b ? p.b + first % p.w_cols : p.b;
    float early[8]; /* of w: they are on their way while sums are made */

    RGK_UNROLL_BY(8)
    for (int k = RGK_THREAD; k < n; k += step) {
        x[k] = from[k];
        if (p.kind == RGK_MATCH_RMS)
            old[k] = y[k];
    }
    RGK_UNROLL
    for (int i = 0; i < 8; i++)
        early[i] = w && RGK_THREAD + i * step < n ? w[RGK_THREAD + i * step] : 0.0f;
    rgk_sync();
    if (RGK_THREAD < RGK_WARP) {
        float mean = 0.0f, r;

        if (p.kind == RGK_LAYERNORM)
            mean = sum_of(x, n, 0.0f, false) / (float)n;
        r = sum_of(x, n, mean, true);
        if (p.kind == RGK_MATCH_RMS) {
            const float v = sum_of(old, n, 0.0f, true) / (float)n;
            r = __builtin_sqrtf(r / (float)n) / __builtin_sqrtf(v > p.eps ? v : p.eps);
        } else if (p.kind == RGK_L2NORM) {
            r = 1.0f / __builtin_sqrtf(r + p.eps);
        } else {
            r = 1.0f / __builtin_sqrtf(r / (float)n + p.eps);
        }
        if (RGK_THREAD == 0) {
            shared[0] = r;
            shared[1] = mean;
        }
    }
    rgk_sync();
    const float r = shared[0], mean = shared[1];
    RGK_UNROLL
    for (int i = 0; i < 8; i++) {
        const int k = RGK_THREAD + i * step;

        if (k < n) {
            const float v = scaled(p.kind, x, old, k, mean, r);
            y[k] = b ? rgk_fma(v, early[i], b[k]) : w ? v * early[i] : v;
        }
    }
    for (int k = RGK_THREAD + 8 * step; k < n; k += step) {
        const float v = scaled(p.kind, x, old, k, mean, r);
        y[k] = b ? rgk_fma(v, w[k], b[k]) : w ? v * w[k] : v;
    }
}

/* ---- rotation ---------------------------------------------------------------------------------------------------- */

/* A thread has one pair of every few heads: its angle is computed once. */
RGK_KERNEL(rotate, rotate)
{
    const int row = RGK_BLOCK_X, n_heads = p.cols / p.head_dim, apart = RGK_THREADS / p.n_pairs;
    const int variant = p.batch.rope[row] < p.n_variants ? p.batch.rope[row] : p.n_variants - 1;
    const int pos = p.batch.pos[row] < p.last ? p.batch.pos[row] : p.last;
    const double *frequency = p.frequency + variant * (p.n_pairs + 1);
    float *x = p.x.at + row * p.x.stride + p.first;

    for (int at = RGK_THREAD; at < p.n_pairs * (apart ? apart : 1); at += RGK_THREADS) {
        const int i = at % p.n_pairs;
        const int low = p.interleaved ? 2 * i : i, high = p.interleaved ? low + 1 : i + p.n_pairs;
        double sine, cosine;

        rg_sincos((double)pos * frequency[i], &sine, &cosine);
        const float c = (float)(cosine * frequency[p.n_pairs]), s = (float)(sine * frequency[p.n_pairs]);
        for (int head = at / p.n_pairs; head < n_heads; head += apart ? apart : 1) {
            float *v = x + head * p.head_dim;
            const float a = v[low], b = v[high];

            v[low] = rgk_fma(a, c, -(b * s));
            v[high] = rgk_fma(b, c, a * s);
        }
    }
}
