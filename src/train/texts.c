/* texts.c -- targets of texts, and the loss of what is predicted for them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ops/back/inside.h"
#include "train/objective.h"

int64_t rg_texts_targets(const rg_texts *t, int32_t *to)
{
    int64_t n = 0;

    for (int64_t i = 0; i < (int64_t)t->rows * t->length; i++) {
        const bool last = i % t->length == t->length - 1;
        const bool same = !last && (!t->document || t->document[i] == t->document[i + 1]);

        to[i] = same ? t->ids[i + 1] : RG_NO_TARGET;
        n += same;
    }
    return n;
}

int64_t rg_texts_count(const rg_texts *t)
{
    int64_t n = 0;

    for (int64_t i = 0; i < (int64_t)t->rows * t->length; i++)
        n += t->targets[i] != RG_NO_TARGET;
    return n;
}

/* ---- cross-entropy ----------------------------------------------------------------------------------------------- */

typedef struct losing {
    const rg_cross_entropy *c;
    const rg_backend *backend;
    int64_t first;
    rg_mat *logits;
    double *nll;
} losing;

/* (softmax - onehot) * scale, in place. */
static void lose_row(const losing *v, int r)
{
    const int32_t target = v->c->targets[v->first + r];
    float *z = rg_mat_row(v->logits, r);
    const int n = v->logits->cols;
    const double weight = v->c->weight ? (double)v->c->weight[v->first + r] : 1;

    v->nll[r] = 0;
    if (target == RG_NO_TARGET) {
        memset(z, 0, (size_t)n * sizeof *z);
        return;
    }
    const float own = z[target], most = rg_back_max(z, n, -INFINITY);
    for (int i = 0; i < n; i++)
        z[i] -= most;
    v->backend->host_activate(v->backend, RG_EXP, z, z, (size_t)n);
    const double sum = rg_back_sum(z, n);
    v->nll[r] = weight * (log(sum) + (double)most - (double)own);
    const float by = (float)(weight * v->c->scale / sum);
    for (int i = 0; i < n; i++)
        z[i] *= by;
    z[target] = (float)((exp((double)own - (double)most) / sum - 1) * (weight * v->c->scale));
}

static void lose_rows(void *arg, int first, int n, int block, int thread)
{
    (void)block, (void)thread;
    for (int r = first; r < first + n; r++)
        lose_row(arg, r);
}

static bool cross_entropy(void *arg, rg_back_lane *lane, int64_t first, rg_mat *logits, double *nll, rg_error *err)
{
    (void)err;
    rg_back_each_rows(lane, logits->rows, lose_rows, &(losing){ arg, lane->backend, first, logits, nll });
    return true;
}

rg_loss rg_cross_entropy_of(const rg_cross_entropy *c)
{
    return (rg_loss){ cross_entropy, (void *)(uintptr_t)c };
}

static int64_t count_targets(void *arg, const rg_texts *t)
{
    (void)arg;
    return rg_texts_count(t);
}

static bool lose_targets(void *arg, rg_passes *p, const rg_texts *t, double scale, bool forward_only, double *loss,
                         rg_error *err)
{
    const rg_cross_entropy c = { .targets = t->targets, .scale = scale };
    const rg_loss of = rg_cross_entropy_of(&c);
    const rg_balanced *b = arg;
    const double weight = b ? b->weight * scale * (double)rg_texts_count(t) : 0;
    double balance = 0;

    if (!rg_passes_compute(p,
                           &(rg_passes_run){ .texts = t,
                                             .loss = &of,
                                             .balance = b ? &balance : NULL,
                                             .balance_weight = weight,
                                             .forward_only = forward_only },
                           loss, err))
        return false;
    *loss = *loss * scale + weight * balance;
    return true;
}

const rg_objective rg_next_ids = { .count = count_targets, .compute = lose_targets };

rg_objective rg_balanced_next_ids(rg_balanced *b, double weight)
{
    rg_objective o = rg_next_ids;

    b->weight = weight;
    snprintf(b->tag, sizeof b->tag, "experts balanced with a weight of %.9g", weight);
    o.arg = b;
    o.tag = b->tag;
    return o;
}
