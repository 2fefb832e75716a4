/* drafting.c -- see drafting.h. */
#include "train/drafting.h"

#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "ops/back/inside.h"

static const double EAGLE_IDS = 0.1; /* of EAGLE's loss, beside features */

typedef struct of_step {
    rg_drafting *d;
    int k;
} of_step;

struct rg_drafting {
    rg_drafting_options o;
    rg_masters *model, *network;
    rg_passes *passes; /* of the model */
    int vocab, dim, cols;
    int32_t *own_of; /* [vocab] the network's id for a model's, -1: none; NULL: they are alike */
    double sum[RG_DRAFTING_STEPS], loss[RG_DRAFTING_STEPS], right[RG_DRAFTING_STEPS];
    int64_t n_right[RG_DRAFTING_STEPS], n_counted[RG_DRAFTING_STEPS];
    of_step step[RG_DRAFTING_STEPS];
    rg_loss of[RG_DRAFTING_STEPS];
    /* Of a batch: */
    const rg_texts *texts;
    double scale;
    int32_t *ids, *targets; /* [n_steps][positions]; [positions] */
    float *features;        /* [positions][cols] */
    float *next;            /* EAGLE: the same without noise */
    size_t room;
    int64_t first; /* the piece that the model's layers ran for last */
    int n;
    rg_slab rows;
    rg_mat logits; /* of the model, for a block of rows */
    int n_logits;
    double feature_loss;
    uint8_t *hit; /* [block]: 1: counts, 2: and is right */
};

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), k = strlen(end);

    return n >= k && !strcmp(name + n - k, end);
}

bool rg_drafting_brings_module(const rg_masters *model, const rg_checkpoint *from)
{
    rg_config *c = rg_alloc(sizeof *c);
    const bool brings = c && rg_config_read_draft(c, from, &rg_masters_model(model)->config, true, NULL);

    rg_free(c);
    return brings;
}

static bool open_network(rg_drafting *d, const rg_checkpoint *from, const rg_backend *backend,
                         const rg_passes_options *passes, rg_error *err)
{
    const rg_model *network, *model = rg_masters_model(d->model);
    const bool is_module = d->o.kind == RG_DRAFTING_MODULE;

    d->network = is_module && !rg_drafting_brings_module(d->model, from)
                     ? rg_masters_new_module(from, model, d->o.init_std, d->o.seed, backend, err)
                     : rg_masters_open_network(from, model, is_module, backend, err);
    if (!d->network)
        return false;
    for (int i = 0; i < rg_masters_count(d->model); i++)
        rg_masters_at(d->model, i)->frozen = true;
    for (int i = 0; i < rg_masters_count(d->network); i++) {
        rg_master *a = rg_masters_at(d->network, i);
        a->frozen = ends_with(a->name, "embed_tokens.weight") || ends_with(a->name, "shared_head.head.weight");
    }
    network = rg_masters_model(d->network);
    d->vocab = rg_masters_model(d->model)->config.vocab_size;
    d->dim = network->config.dim;
    d->cols = network->config.places.n * d->dim;
    if (network->target_ids) {
        d->own_of = rg_array((size_t)d->vocab, sizeof *d->own_of);
        if (!d->own_of)
            return rg_fail_memory(err, (size_t)d->vocab * sizeof *d->own_of);
        for (int i = 0; i < d->vocab; i++)
            d->own_of[i] = -1;
        for (int i = 0; i < network->config.vocab_size; i++)
            d->own_of[network->target_ids[i]] = i;
    }
    d->passes = rg_passes_new(d->model, backend, passes, err);
    return d->passes;
}

static bool lose(void *arg, rg_back_lane *lane, int64_t first, rg_mat *logits, double *nll, rg_error *err);

rg_drafting *rg_drafting_new(rg_masters *model, const rg_checkpoint *network, const rg_drafting_options *o,
                             const rg_backend *backend, const rg_passes_options *passes, rg_error *err)
{
    rg_drafting *d = rg_zalloc(sizeof *d);

    if (!d)
        return rg_fail_memory(err, sizeof *d), NULL;
    d->o = *o;
    d->model = model;
    if (o->kind != RG_DRAFTING_EAGLE3)
        d->o.n_steps = 1;
    if (d->o.n_steps < 1 || d->o.n_steps > RG_DRAFTING_STEPS)
        rg_fail(err, RG_E_USAGE, "%d steps of a draft: there may be 1 to %d", o->n_steps, RG_DRAFTING_STEPS);
    else if (open_network(d, network, backend, passes, err)) {
        for (int k = 0; k < d->o.n_steps; k++) {
            d->step[k] = (of_step){ d, k };
            d->of[k] = (rg_loss){ lose, &d->step[k] };
        }
        return d;
    }
    rg_drafting_free(d);
    return NULL;
}

void rg_drafting_free(rg_drafting *d)
{
    if (!d)
        return;
    rg_passes_free(d->passes);
    rg_masters_close(d->network);
    rg_slab_fini(&d->rows);
    rg_free(d->own_of);
    rg_free(d->ids);
    rg_free(d->targets);
    rg_free(d->features);
    rg_free(d->next);
    rg_free(d->hit);
    rg_free(d);
}

rg_masters *rg_drafting_masters(rg_drafting *d)
{
    return d->network;
}

const double *rg_drafting_losses(const rg_drafting *d)
{
    return d->loss;
}

const double *rg_drafting_right(const rg_drafting *d)
{
    return d->right;
}

/* ---- what the model says ----------------------------------------------------------------------------------------- */

/* True if position i + ahead stands in the text of position i. */
static bool is_ahead(const rg_texts *t, int64_t i, int ahead)
{
    return i % t->length + ahead < t->length && (!t->document || t->document[i] == t->document[i + ahead]);
}

/* Row i of step k counts: the model has a distribution there, and what it is about is to be learnt. */
static bool counts(const rg_texts *t, int64_t i, int k)
{
    return is_ahead(t, i, 1 + k) && (!t->targets || t->targets[i + k] != RG_NO_TARGET);
}

static bool make_room(rg_drafting *d, size_t n, rg_error *err)
{
    const size_t steps = (size_t)d->o.n_steps;
    size_t all;

    if (n <= d->room)
        return true;
    rg_free(d->ids);
    rg_free(d->targets);
    rg_free(d->features);
    rg_free(d->next);
    d->room = 0;
    d->ids = rg_mul(n, steps, &all) ? rg_array(all, sizeof *d->ids) : NULL;
    d->targets = rg_array(n, sizeof *d->targets);
    const bool fits = rg_mul(n, (size_t)d->cols, &all);
    d->features = fits ? rg_array(all, sizeof *d->features) : NULL;
    d->next = fits ? rg_array(all, sizeof *d->next) : NULL;
    if (!d->ids || !d->targets || !d->features || !d->next)
        return rg_fail_memory(err, n * sizeof(float));
    d->room = n;
    return true;
}

static bool enter(rg_drafting *d, int64_t position, rg_error *err)
{
    if (d->n && position >= d->first && position < d->first + d->n)
        return true;
    d->n = 0;
    return rg_passes_enter(d->passes, d->texts, position, &d->first, &d->n, err);
}

/* What the network reads of the piece that the model ran for. */
static bool take_features(rg_drafting *d, rg_error *err)
{
    const rg_feature_places *places = &rg_masters_model(d->network)->config.places;

    rg_slab_reset(&d->rows);
    for (int i = 0; i < places->n; i++) {
        rg_mat hidden = { 0 };
        const rg_mat *from = &hidden;

        if (places->layer[i] == RG_HEAD_INPUT) {
            hidden = rg_slab_mat(&d->rows, d->n, d->dim);
            if (!hidden.at)
                return rg_fail_memory(err, (size_t)d->n * (size_t)d->dim * sizeof(float));
            if (!rg_passes_hidden(d->passes, d->first, &hidden, err))
                return false;
        } else {
            from = rg_passes_output(d->passes, places->layer[i] - 1);
        }
        for (int r = 0; r < d->n; r++)
            memcpy(d->features + (size_t)(d->first + r) * (size_t)d->cols + (size_t)i * (size_t)d->dim,
                   rg_mat_row(from, r), (size_t)d->dim * sizeof(float));
    }
    return true;
}

/* A batch's noise follows from its ids, so that a run that goes on has the same. */
static void add_noise(rg_drafting *d, size_t n)
{
    uint64_t x = rg_hash(d->texts->ids, n * sizeof *d->texts->ids, d->o.seed);

    n *= (size_t)d->cols;
    memcpy(d->next, d->features, n * sizeof *d->next);
    for (size_t i = 0; i < n && d->o.noise > 0; i++)
        d->features[i] += (float)(((double)(rg_splitmix64(&x) >> 11) * 0x1p-53 - 0.5) * d->o.noise);
}

static bool read_model(rg_drafting *d, const rg_texts *t, rg_error *err)
{
    const int64_t n = (int64_t)t->rows * t->length;

    d->texts = t;
    d->n = 0;
    if (!make_room(d, (size_t)n, err))
        return false;
    for (int64_t at = 0; at < n; at = d->first + d->n)
        if (!enter(d, at, err) || !take_features(d, err))
            return false;
    if (d->o.kind == RG_DRAFTING_EAGLE)
        add_noise(d, (size_t)n);
    for (int k = 0; k < d->o.n_steps; k++)
        for (int64_t i = 0; i < n; i++)
            d->ids[k * n + i] = i % t->length + 1 + k < t->length ? t->ids[i + 1 + k] : 0;
    for (int64_t i = 0; i < n; i++)
        d->targets[i] = is_ahead(t, i, 2) && counts(t, i, 0) ? t->ids[i + 2] : RG_NO_TARGET;
    return true;
}

/* ---- losses ------------------------------------------------------------------------------------------------------ */

typedef struct losing {
    rg_drafting *d;
    const rg_backend *backend;
    int k;
    int64_t first;
    rg_mat *logits;
    double *nll, by;
} losing;

/* exp(z - the most of z); returned is its sum, *log_sum the logarithm of the sum of exp(z). */
static double to_weights(const rg_backend *backend, float *z, int n, double *log_sum)
{
    float most = z[0];
    double sum = 0;

    for (int i = 1; i < n; i++)
        most = z[i] > most ? z[i] : most;
    for (int i = 0; i < n; i++)
        z[i] -= most;
    backend->host_activate(backend, RG_EXP, z, z, (size_t)n);
    for (int i = 0; i < n; i++)
        sum += (double)z[i];
    *log_sum = log(sum) + (double)most;
    return sum;
}

static int best_of(const float *z, int n)
{
    int best = 0;

    for (int i = 1; i < n; i++)
        best = z[i] > z[best] ? i : best;
    return best;
}

/* The gradient of -sum of p ln q, in place of the network's logits; p: the model's, of the ids that both have. */
static void lose_row(const losing *v, int r)
{
    const rg_drafting *d = v->d;
    const int n = v->logits->cols;
    float *x = rg_mat_row(v->logits, r), *z = r < d->n_logits ? rg_mat_row(&d->logits, r) : NULL;
    const int best = z && counts(d->texts, v->first + r, v->k) ? best_of(z, d->vocab) : -1;
    const int own = best < 0 || !d->own_of ? best : d->own_of[best];
    double log_sum, unused, loss = 0;

    v->nll[r] = 0;
    d->hit[r] = 0;
    if (own < 0) {
        memset(x, 0, (size_t)n * sizeof *x);
        return;
    }
    d->hit[r] = best_of(x, n) == own ? 2 : 1;
    for (int i = 0, at = 0; d->own_of && i < d->vocab; i++) /* own ids rise with the model's */
        if (d->own_of[i] >= 0) {
            RG_ASSERT(d->own_of[i] == at);
            z[at++] = z[i];
        }
    const double p = to_weights(v->backend, z, n, &unused);
    for (int i = 0; i < n; i++)
        loss -= (double)z[i] / p * (double)x[i];
    const double q = to_weights(v->backend, x, n, &log_sum);
    v->nll[r] = loss + log_sum;
    for (int i = 0; i < n; i++)
        x[i] = (float)(((double)x[i] / q - (double)z[i] / p) * v->by);
}

static void lose_rows(void *arg, int first, int n, int block, int thread)
{
    (void)block, (void)thread;
    for (int r = first; r < first + n; r++)
        lose_row(arg, r);
}

/* The model's logits at the places that rows [first, first + n) of step k are about, as far as its piece goes. */
static bool ask_model(rg_drafting *d, int64_t first, int k, int n, rg_error *err)
{
    if (!enter(d, first, err))
        return false;
    const int64_t left = d->first + d->n - (first + 1 + k);

    rg_slab_reset(&d->rows);
    d->n_logits = left < n ? (int)(left > 0 ? left : 0) : n;
    d->logits = rg_slab_mat(&d->rows, n, d->vocab);
    rg_free(d->hit);
    d->hit = rg_alloc((size_t)n);
    if (!d->logits.at || !d->hit)
        return rg_fail_memory(err, (size_t)n * (size_t)d->vocab * sizeof(float));
    if (d->n_logits)
        rg_passes_logits(d->passes, first + 1 + k, &(rg_mat){ d->logits.at, d->logits.ld, d->n_logits, d->vocab });
    return true;
}

static bool lose(void *arg, rg_back_lane *lane, int64_t first, rg_mat *logits, double *nll, rg_error *err)
{
    const of_step *s = arg;
    rg_drafting *d = s->d;
    losing v = { d, lane->backend, s->k, first, logits, nll, d->scale * pow(d->o.weight, s->k) };

    if (d->o.kind == RG_DRAFTING_MODULE) {
        const rg_cross_entropy c = { d->targets, d->scale };
        const rg_loss ids = rg_cross_entropy_of(&c);

        return ids.rows(ids.arg, lane, first, logits, nll, err);
    }
    if (d->o.kind == RG_DRAFTING_EAGLE)
        v.by = EAGLE_IDS * d->scale;
    if (!ask_model(d, first, s->k, logits->rows, err))
        return false;
    rg_back_each_rows(lane, logits->rows, lose_rows, &v);
    for (int r = 0; r < logits->rows; r++) {
        d->n_counted[s->k] += d->hit[r] > 0;
        d->n_right[s->k] += d->hit[r] == 2;
    }
    return true;
}

/* EAGLE: the network's output against the model's next feature. */
static bool lose_features(void *arg, rg_back_lane *lane, int layer, int64_t first, const rg_mat *out, rg_mat *grad,
                          rg_error *err)
{
    rg_drafting *d = arg;

    (void)lane, (void)layer, (void)err;
    for (int r = 0; r < out->rows; r++) {
        const float *want = d->next + (size_t)(first + r + 1) * (size_t)d->cols, *got = rg_mat_row(out, r);
        double sum = 0;

        if (!counts(d->texts, first + r, 0))
            continue;
        for (int c = 0; c < d->dim; c++) {
            const double by = (double)got[c] - (double)want[c], size = fabs(by);

            sum += size < 1 ? 0.5 * by * by : size - 0.5;
            if (grad)
                rg_mat_row(grad, r)[c] += (float)((size < 1 ? by : by > 0 ? 1 : -1) * d->scale / d->dim);
        }
        d->feature_loss += sum / d->dim;
    }
    return true;
}

/* ---- the objective ----------------------------------------------------------------------------------------------- */

static int64_t count(void *arg, const rg_texts *t)
{
    const rg_drafting *d = arg;
    int64_t n = 0;

    if (d->o.kind == RG_DRAFTING_EAGLE3)
        return (int64_t)t->rows * t->length;
    for (int64_t i = 0; i < (int64_t)t->rows * t->length; i++)
        n += counts(t, i, 0) && (d->o.kind == RG_DRAFTING_EAGLE || is_ahead(t, i, 2));
    return n;
}

static bool compute(void *arg, rg_passes *p, const rg_texts *t, double scale, bool forward_only, double *loss,
                    rg_error *err)
{
    rg_drafting *d = arg;
    const rg_layer_loss features = { lose_features, d };

    d->scale = scale;
    d->feature_loss = 0;
    memset(d->n_right, 0, sizeof d->n_right);
    memset(d->n_counted, 0, sizeof d->n_counted);
    if (!read_model(d, t, err) ||
        !rg_passes_chain(p,
                         &(rg_chain_run){ .texts = t,
                                          .n_steps = d->o.n_steps,
                                          .ids = d->ids,
                                          .features = d->features,
                                          .feature_cols = d->cols,
                                          .loss = d->of,
                                          .inner = d->o.kind == RG_DRAFTING_EAGLE ? &features : NULL,
                                          .forward_only = forward_only,
                                          .sums = d->sum },
                         err))
        return false;
    *loss = 0;
    for (int k = 0; k < d->o.n_steps; k++) {
        d->loss[k] = d->sum[k] * scale;
        d->right[k] = d->n_counted[k] ? (double)d->n_right[k] / (double)d->n_counted[k] : 0;
        *loss += pow(d->o.weight, k) * d->loss[k];
    }
    if (d->o.kind == RG_DRAFTING_EAGLE)
        *loss = d->feature_loss * scale + EAGLE_IDS * d->loss[0];
    return true;
}

rg_objective rg_drafting_objective(rg_drafting *d)
{
    static const char *const tags[] = { "a network of EAGLE", "a network of EAGLE-3", "a module for further tokens" };

    return (rg_objective){ .arg = d, .tag = tags[d->o.kind], .count = count, .compute = compute };
}
