/* mixture.cu -- the choice of experts for each row, rows sorted by expert, and what the experts make added up.  The
 * bits are those of ops/cpu/moe.c. */
#include "ops/cuda/kernels/device.h"

/* ---- route ------------------------------------------------------------------------------------------------------- */

/* p = softmax of l, summed in rising order. */
RGK_DEVICE void softmax(float *p, const float *l, int n)
{
    float max = -__builtin_inff(), sum = 0.0f;

    for (int i = 0; i < n; i++)
        max = l[i] > max ? l[i] : max;
    for (int i = 0; i < n; i++) {
        p[i] = rg_expf(l[i] - max);
        sum += p[i];
    }
    for (int i = 0; i < n; i++)
        p[i] /= sum;
}

/* The best that is not taken, ties to the lowest; a NaN is better than any number. */
RGK_DEVICE int best(const float *score, const float *taken, int n)
{
    int at = -1;

    for (int i = 0; i < n; i++)
        if (taken[i] == 0.0f &&
            (at < 0 || score[i] > score[at] || (score[i] != score[i] && score[at] == score[at])))
            at = i;
    return at;
}

/* What a group of so many experts counts as. */
RGK_DEVICE float worth(const float *score, int size, bool by_two)
{
    float first = score[0], second = -__builtin_inff();

    for (int i = 1; i < size; i++) {
        const float less = score[i] > first ? first : score[i];

        first = score[i] > first ? score[i] : first;
        second = less > second ? less : second;
    }
    return by_two ? first + second : first;
}

/* Mark as taken the experts of all groups but the best. */
RGK_DEVICE void limit_groups(const rgk_route_params *p, const float *score, float *taken)
{
    const int size = p->n_experts / p->n_groups;

    for (int i = 0; i < p->n_experts; i++)
        taken[i] = -1.0f;
    for (int k = 0; k < p->n_groups_used; k++) {
        int pick = -1;
        float most = 0.0f;

        for (int group = 0; group < p->n_groups; group++) {
            const float top = worth(score + group * size, size, p->groups_by_two);

            if (taken[group * size] < 0.0f && (pick < 0 || top > most)) {
                pick = group;
                most = top;
            }
        }
        for (int i = 0; i < size; i++)
            taken[pick * size + i] = 0.0f;
    }
}

/* The share of the best, among those that are not taken and are near enough to it. */
RGK_DEVICE float mixer_weight(const rgk_route_params *p, const float *logits, const float *taken, int at)
{
    const float m = logits[at];
    float sum = 0.0f;

    for (int i = 0; i < p->n_experts; i++) {
        const float size = rg_float_of(rg_bits_of(logits[i]) & 0x7fffffff);
        const float far = (m - logits[i]) / (size > m ? size : m);

        if (taken[i] == 0.0f && !(far > 2.0f * p->jitter))
            sum += rg_expf(logits[i] - m);
    }
    return 1.0f / sum;
}

/* The order is that of rg_expert_score (ops/ops.h). */
enum { CHOSEN, SOFTMAX, SIGMOID, SPARSEMIXER };

RGK_DEVICE void make_scores(const rgk_route_params *p, const float *logits, float *score)
{
    if (p->score == SOFTMAX)
        softmax(score, logits, p->n_experts);
    for (int i = 0; i < p->n_experts && p->score != SOFTMAX; i++)
        score[i] = p->score == SIGMOID ? rg_sigmoidf(logits[i]) : logits[i];
}

/* One thread: a row has few experts, and sums have an order. */
RGK_KERNEL(route, route)
{
    RGK_SHARED float score[RGK_MAX_EXPERTS], sums[RGK_MAX_EXPERTS], taken[RGK_MAX_EXPERTS], logits[RGK_MAX_EXPERTS];
    float *out = p.route.at + RGK_BLOCK_X * p.route.stride, *weight = out + p.n_used, sum = p.sum_eps;
    const float *by = p.bias || p.groups_by_two ? sums : logits;
    int at = 0;

    for (int i = RGK_THREAD; i < p.n_experts; i += RGK_THREADS)
        logits[i] = p.logits.at[RGK_BLOCK_X * p.logits.stride + i];
    rgk_sync();
    if (RGK_THREAD)
        return;
    make_scores(&p, logits, score);
    for (int i = 0; i < p.n_experts; i++) {
        sums[i] = score[i] + (p.bias ? p.bias[i] : 0.0f);
        taken[i] = 0.0f;
    }
    if (p.n_groups > 0)
        limit_groups(&p, by, taken);
    for (int k = 0; k < p.n_used; k++) {
        const int pick = best(by, taken, p.n_experts);

        if (p.score == SPARSEMIXER)
            score[pick] = mixer_weight(&p, logits, taken, pick);
        taken[pick] = 1.0f;
    }
    for (int i = 0; i < p.n_experts; i++) {
        if (taken[i] <= 0.0f)
            continue;
        out[at] = rg_float_of((uint32_t)i);
        weight[at++] = score[i];
    }
    if (p.score == CHOSEN)
        softmax(weight, weight, at);
    for (int k = 0; k < at; k++)
        sum += weight[k];
    for (int k = 0; k < at; k++) {
        weight[k] = (p.renormalize ? weight[k] / sum : weight[k]) * p.scale;
        weight[k] = p.expert_scale ? weight[k] * p.expert_scale[rg_bits_of(out[k])] : weight[k];
    }
}

/* ---- rows by expert ---------------------------------------------------------------------------------------------- */

RGK_DEVICE int expert_of(rgk_rows route, int row, int k)
{
    return (int)rg_bits_of(route.at[row * route.stride + k]);
}

/* A thread has some experts, and goes over all pairs twice: it counts its own, then it gives them their slots. */
RGK_KERNEL(sort, sort)
{
    RGK_SHARED int32_t count[RGK_MAX_EXPERTS + 1];
    const int n_pairs = p.n_rows * p.n_used;

    for (int e = RGK_THREAD; e < p.n_experts; e += RGK_THREADS) {
        int n = 0;

        for (int i = 0; i < n_pairs; i++)
            n += expert_of(p.route, i / p.n_used, i % p.n_used) == e;
        count[e + 1] = n;
    }
    rgk_sync();
    if (RGK_THREAD == 0) {
        count[0] = 0;
        for (int e = 0; e < p.n_experts; e++)
            count[e + 1] += count[e];
    }
    rgk_sync();
    for (int e = RGK_THREAD; e < p.n_experts; e += RGK_THREADS) {
        int slot = count[e];

        for (int i = 0; i < n_pairs; i++)
            if (expert_of(p.route, i / p.n_used, i % p.n_used) == e) {
                p.row_of[slot] = i / p.n_used;
                p.slot_of[i] = slot++;
            }
    }
    for (int e = RGK_THREAD; e <= p.n_experts; e += RGK_THREADS)
        p.start[e] = count[e];
}

RGK_KERNEL(combine, combine)
{
    const int row = RGK_BLOCK_X, c = RGK_BLOCK_Y * RGK_THREADS + RGK_THREAD;
    float *y = p.y.at + row * p.y.stride + c, sum;

    if (c >= p.cols)
        return;
    sum = p.accumulate ? *y : 0.0f;
    for (int k = 0; k < p.n_used; k++)
        sum = rgk_fma(p.weighed ? 1.0f : p.route.at[row * p.route.stride + p.n_used + k],
                      p.h.at[p.slot_of[row * p.n_used + k] * p.h.stride + c], sum);
    *y = sum;
}

RGK_KERNEL(weigh, weigh)
{
    const int row = RGK_BLOCK_X / p.n_used, k = RGK_BLOCK_X % p.n_used, slot = p.slot_of[RGK_BLOCK_X];
    const float w = p.route.at[row * p.route.stride + p.n_used + k];

    for (int c = RGK_THREAD; c < p.cols; c += RGK_THREADS)
        p.y.at[slot * p.y.stride + c] = p.x.at[row * p.x.stride + c] * w;
}
