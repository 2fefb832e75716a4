/* draw.cu -- of a row of logits the few ids that can be drawn, so that the host gets these alone.
 *
 * An id can be drawn if its logit reaches a threshold below which it is not among the k largest.  The threshold is the
 * k-th largest of what each thread found largest among its own ids: at least k logits reach it, and hardly more do.
 * With noise, so can an id whose (logit - largest) / temperature + noise is less than the largest of these by
 * RGK_DRAW_MARGIN at most.  The host draws among what comes out, by its own arithmetic; so the margin has to cover what
 * this one differs by: where something can be drawn at all the numbers are below 46, the host's differ by a rounding of
 * the difference and one of the sum, 2^-24 of that each, of both ids: 1.1e-5.
 *
 * Candidates come in the order of threads, of each in rising order. */
#include "ops/cuda/kernels/device.h"
#include "ops/cuda/kernels/warp.h"

#define RGK_DRAW_MARGIN 0x1p-14f

/* A row, what is drawn of it, and, once known, the limits that an id reaches if it can be drawn. */
typedef struct drawing {
    const float *x;
    int n;
    bool noisy;
    rg_noise_key key;
    float temperature, top, least, least_noisy;
} drawing;

/* The largest of the block, to all threads; no thread has a NaN. */
RGK_DEVICE float largest(float v, float *shared)
{
    float most = -__builtin_inff();

    v = rgk_warp_max(v);
    if (RGK_THREAD % RGK_WARP == 0)
        shared[RGK_THREAD / RGK_WARP] = v;
    rgk_sync();
    for (int i = 0; i < RGK_DRAW_THREADS / RGK_WARP; i++)
        most = shared[i] > most ? shared[i] : most;
    rgk_sync();
    return most;
}

/* Of a thread's ids the largest logit and where it is; infinite if any logit is no number. */
RGK_DEVICE float own_top(const float *x, int n, int *id)
{
    float top = -__builtin_inff();

    *id = 0;
    RGK_UNROLL_BY(4)
    for (int at = 4 * RGK_THREAD; at < n; at += 4 * RGK_DRAW_THREADS) {
        const rgk_u4 four = rgk_load(x + at);

        RGK_UNROLL
        for (int i = 0; i < 4; i++) {
            const float v = (four.v[i] & 0x7f800000u) == 0x7f800000u ? __builtin_inff() : rg_float_of(four.v[i]);

            if (at + i < n && v > top) {
                top = v;
                *id = at + i;
            }
        }
    }
    return top;
}

/* The k-th largest of what the threads have. */
RGK_DEVICE float kth_largest(float v, int k, float *shared)
{
    int before = 0;

    shared[RGK_THREAD] = v;
    rgk_sync();
    for (int i = 0; i < RGK_DRAW_THREADS; i++)
        before += shared[i] > v || (shared[i] == v && i < RGK_THREAD);
    rgk_sync();
    if (before == k - 1)
        shared[0] = v;
    rgk_sync();
    v = shared[0];
    rgk_sync();
    return v;
}

RGK_DEVICE float score(const drawing *d, float logit, uint32_t bits)
{
    return (logit - d->top) / d->temperature + rg_gumbel(bits);
}

/* Whether it can be as much as `least`; most ids need no logarithm to see that they are not. */
RGK_DEVICE bool may_reach(const drawing *d, float logit, float noise, float least)
{
    return (logit - d->top) / d->temperature + noise >= least;
}

/* The best score of a thread's ids; less, if it is below `least`. */
RGK_DEVICE float own_score(const drawing *d, float least)
{
    float best = -__builtin_inff();

    for (int at = 4 * RGK_THREAD; at < d->n; at += 4 * RGK_DRAW_THREADS) {
        const rgk_u4 four = rgk_load(d->x + at);
        uint32_t bits[4];
        bool any = false;

        RGK_UNROLL
        for (int i = 0; i < 4; i++)
            any |= at + i < d->n && may_reach(d, rg_float_of(four.v[i]), RG_MOST_NOISE, least);
        if (!any)
            continue;
        rg_noise_bits(&d->key, (uint32_t)at / 4, bits);
        RGK_UNROLL
        for (int i = 0; i < 4; i++) {
            const float logit = rg_float_of(four.v[i]);

            if (at + i >= d->n || !may_reach(d, logit, rg_gumbel_bound(bits[i]), least))
                continue;
            const float s = score(d, logit, bits[i]);
            best = s > best ? s : best;
            least = s > least ? s : least;
        }
    }
    return best;
}

/* Put those of a thread's ids that can be drawn from place `from` on, as far as there is room; their number. */
RGK_DEVICE int collect(const drawing *d, rgk_drawn *to, int from, int room)
{
    int n = 0;

    for (int at = 4 * RGK_THREAD; at < d->n; at += 4 * RGK_DRAW_THREADS) {
        const rgk_u4 four = rgk_load(d->x + at);
        uint32_t bits[4] = { 0, 0, 0, 0 };
        bool any = false;

        RGK_UNROLL
        for (int i = 0; i < 4; i++)
            any |= d->noisy && at + i < d->n && may_reach(d, rg_float_of(four.v[i]), RG_MOST_NOISE, d->least_noisy);
        if (any)
            rg_noise_bits(&d->key, (uint32_t)at / 4, bits);
        RGK_UNROLL
        for (int i = 0; i < 4; i++) {
            const float logit = rg_float_of(four.v[i]);

            if (at + i >= d->n ||
                !(logit >= d->least || (any && may_reach(d, logit, rg_gumbel_bound(bits[i]), d->least_noisy) &&
                                        score(d, logit, bits[i]) >= d->least_noisy)))
                continue;
            if (from + n < room) {
                to[from + n].id = at + i;
                to[from + n].logit = logit;
            }
            n++;
        }
    }
    return n;
}

RGK_DEVICE int sum_of_counts(const int32_t *counts, int n)
{
    int sum = 0;

    for (int i = 0; i < n; i++)
        sum += counts[i];
    return sum;
}

RGK_KERNEL_OF(draw, draw, RGK_DRAW_THREADS, 1)
{
    RGK_SHARED float shared[RGK_DRAW_THREADS];
    RGK_SHARED int32_t counts[RGK_DRAW_THREADS];
    const rgk_pick pick = p.picks[RGK_BLOCK_X];
    rgk_drawn *to = p.to + (int64_t)RGK_BLOCK_X * (p.room + 1);
    drawing d;
    int id, n = 0;

    if (RGK_THREAD == 0)
        to[0].id = RGK_WHOLE;
    if (pick.k < 1)
        return;
    d.x = p.logits.at + RGK_BLOCK_X * p.logits.stride;
    d.n = p.n;
    d.noisy = pick.temperature > 0.0f;
    d.temperature = pick.temperature;
    d.key.seed = (uint64_t)pick.seed[1] << 32 | pick.seed[0];
    d.key.sample = pick.sample;
    d.key.draw = pick.draw;
    d.key.position = pick.position;
    const float own = own_top(d.x, d.n, &id);
    d.top = largest(own, shared);
    d.least = pick.k > 1 ? kth_largest(own, pick.k, shared) : d.top;
    if (!(d.least > RGK_LEAST_DRAWN && d.top < __builtin_inff()))
        return;
    bool has_any = own >= d.least;
    d.least_noisy = 0.0f;
    if (d.noisy) { /* each thread's largest logit first: the best of their scores is near the best of all */
        uint32_t bits[4];

        rg_noise_bits(&d.key, (uint32_t)id / 4, bits);
        const float first = largest(own > -__builtin_inff() ? score(&d, own, bits[id % 4]) : own, shared);
        const float best = own_score(&d, first - RGK_DRAW_MARGIN);

        d.least_noisy = largest(best, shared) - RGK_DRAW_MARGIN;
        has_any |= best >= d.least_noisy;
    }
    if (has_any)
        n = collect(&d, to, 0, 0);
    counts[RGK_THREAD] = n;
    rgk_sync();
    if (n)
        collect(&d, to + 1, sum_of_counts(counts, RGK_THREAD), p.room);
    if (RGK_THREAD == 0) {
        const int all = sum_of_counts(counts, RGK_DRAW_THREADS);

        to[0].id = all <= p.room ? all : RGK_WHOLE;
    }
}
