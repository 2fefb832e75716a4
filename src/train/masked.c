/* masked.c -- see masked.h. */
#include "train/masked.h"

#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"

/* Shares begin here: where nothing is masked there is nothing to learn. */
static const double LEAST = 1e-3;

struct rg_masked {
    rg_diffusion what;
    int32_t sees, draws;
    uint64_t seed;
    /* Of a batch; of a model of blocks each text is there twice. */
    int64_t room;
    int32_t *ids, *document, *targets;
    float *weight;
};

rg_masked *rg_masked_new(const rg_config *c, uint64_t seed, int draws, rg_error *err)
{
    rg_masked *m;

    if (c->diffusion.mask_id < 0 || c->sees == RG_CAUSAL)
        return rg_fail(err, RG_E_UNSUPPORTED, "a model of %s continues texts: it has no masks to fill in",
                       rg_config_name(c)),
               NULL;
    m = rg_zalloc(sizeof *m);
    if (!m)
        return rg_fail_memory(err, sizeof *m), NULL;
    m->what = c->diffusion;
    m->sees = c->sees;
    m->seed = seed;
    m->draws = draws;
    return m;
}

static void free_room(rg_masked *m)
{
    rg_free(m->ids);
    rg_free(m->document);
    rg_free(m->targets);
    rg_free(m->weight);
}

void rg_masked_free(rg_masked *m)
{
    if (m)
        free_room(m);
    rg_free(m);
}

/* ---- masks ------------------------------------------------------------------------------------------------------- */

static bool make_room(rg_masked *m, int64_t n, rg_error *err)
{
    if (n <= m->room)
        return true;
    free_room(m);
    m->ids = rg_array((size_t)n, sizeof *m->ids);
    m->document = rg_array((size_t)n, sizeof *m->document);
    m->targets = rg_array((size_t)n, sizeof *m->targets);
    m->weight = rg_array((size_t)n, sizeof *m->weight);
    m->room = m->ids && m->document && m->targets && m->weight ? n : 0;
    return m->room || rg_fail_memory(err, (size_t)n * 4 * sizeof *m->ids);
}

static double unit(uint64_t *x)
{
    return (double)(rg_splitmix64(x) >> 11) * 0x1p-53;
}

/* Shares that are spread evenly: the first one is drawn, each is a golden section further, modulo 1. */
static double next_share(double *at)
{
    *at += 0.6180339887498949;
    *at -= floor(*at);
    return LEAST + (1 - LEAST) * *at;
}

/* The masked form of a text of n ids, learnt where `targets` says so of the place before: ids, and what they should
 * predict, times which weight. */
typedef struct filled {
    int32_t *ids, *targets;
    float *weight;
} filled;

static void mask_text(const rg_masked *m, const int32_t *ids, const int32_t *targets, int n, uint64_t *x, double *at,
                      const filled *to)
{
    const int block = m->sees == RG_SEES_ALL ? n : m->sees;
    double share = 1;

    for (int i = 0; i < n; i++) {
        to->ids[i] = ids[i];
        to->targets[i] = RG_NO_TARGET;
        to->weight[i] = 0;
    }
    for (int i = 0; i < n; i++) {
        if (i % block == 0)
            share = next_share(at);
        const bool masked = unit(x) < share && i > 0 && targets[i - 1] != RG_NO_TARGET;
        const int row = m->what.shifted && i > 0 ? i - 1 : i;

        if (!masked)
            continue;
        to->ids[i] = m->what.mask_id;
        to->targets[row] = ids[i];
        to->weight[row] = (float)(1 / share);
    }
}

/* The batch with masks, in the room; *at: where shares stand, which go on from draw to draw. */
static rg_texts mask_all(rg_masked *m, const rg_texts *t, int draw, double *at)
{
    const int64_t n = (int64_t)t->rows * t->length;
    const bool twice = m->sees > RG_CAUSAL;
    uint64_t x = rg_xxh64(t->ids, (size_t)n * sizeof *t->ids, m->seed + 0x9e3779b97f4a7c15u * (uint64_t)(draw + 1));

    if (!draw)
        *at = unit(&x);
    for (int64_t i = 0, end; i < n; i = end) {
        const int64_t row_end = (i / t->length + 1) * t->length, to = twice ? 2 * i : i;
        int64_t second = to;

        for (end = i + 1; end < row_end && (!t->document || t->document[end] == t->document[i]); end++)
            ;
        if (twice) { /* as it is, first */
            second = to + (end - i);
            memcpy(m->ids + to, t->ids + i, (size_t)(end - i) * sizeof *m->ids);
            for (int64_t k = to; k < second; k++) {
                m->targets[k] = RG_NO_TARGET;
                m->weight[k] = 0;
            }
        }
        mask_text(m, t->ids + i, t->targets + i, (int)(end - i), &x, at,
                  &(filled){ m->ids + second, m->targets + second, m->weight + second });
        for (int64_t k = to; k < second + (end - i); k++)
            m->document[k] = t->document ? t->document[i] : 0;
    }
    return (rg_texts){ .rows = t->rows,
                       .length = twice ? 2 * t->length : t->length,
                       .ids = m->ids,
                       .document = m->document,
                       .targets = m->targets,
                       .twice = twice };
}

/* ---- the objective ----------------------------------------------------------------------------------------------- */

static int64_t count(void *arg, const rg_texts *t)
{
    (void)arg;
    return rg_texts_count(t);
}

static bool compute(void *arg, rg_passes *p, const rg_texts *t, double scale, bool forward_only, double *loss,
                    rg_error *err)
{
    rg_masked *m = arg;
    const int draws = forward_only ? m->draws : 1;
    double at = 0;

    *loss = 0;
    if (!make_room(m, 2 * (int64_t)t->rows * t->length, err))
        return false;
    for (int i = 0; i < draws; i++) {
        const rg_texts masked = mask_all(m, t, i, &at);
        const rg_cross_entropy c = { .targets = m->targets, .scale = scale, .weight = m->weight };
        const rg_loss of = rg_cross_entropy_of(&c);
        double sum;

        if (!rg_passes_compute(p, &(rg_passes_run){ .texts = &masked, .loss = &of, .forward_only = forward_only }, &sum,
                               err))
            return false;
        *loss += sum * scale / draws;
    }
    return true;
}

rg_objective rg_masked_objective(rg_masked *m)
{
    return (rg_objective){ .arg = m, .tag = "masked", .count = count, .compute = compute };
}
