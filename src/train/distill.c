/* distill.c -- see distill.h. */
#include "train/distill.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "ops/back/inside.h"

enum { MOST_PADDING = 1024 }; /* ids that a vocabulary is padded by */

struct rg_distill {
    rg_distill_options o;
    rg_teacher *teacher;
    int n_layers; /* of the student */
    int cols;     /* ids that both know */
    /* The batch. */
    const rg_texts *texts;
    double scale, alpha; /* alpha: 0 while it is not known */
    uint8_t *used;       /* [positions] NULL: all */
    rg_draws *draws;     /* [positions] */
    int32_t *id, *count; /* [positions, draws] */
    size_t room;         /* positions */
    double outputs;      /* H of the batch, summed */
    /* From the student's width to the teacher's, where they differ. */
    float *map, *d_map; /* [teacher's, student's] */
    char tag[200];
    int64_t shape[2];
};

/* ---- outputs of layers ------------------------------------------------------------------------------------------- */

/* apart = (map of) student - teacher, summed as squares into parts. */
static bool differ(rg_back_lane *lane, const rg_output_loss *l, rg_mat *apart, double *sum)
{
    const int rows = l->student->rows, cols = l->teacher->cols;

    *apart = (rg_mat){ rg_back_room(lane, (size_t)rows * (size_t)cols), (size_t)cols, rows, cols };
    if (!apart->at)
        return false;
    if (l->map)
        rg_gemm_run(lane, &(rg_gemm){ .m = rows,
                                      .n = cols,
                                      .k = l->student->cols,
                                      .a = l->student->at,
                                      .lda = l->student->ld,
                                      .b = l->map,
                                      .ldb = (size_t)l->student->cols,
                                      .b_turned = true,
                                      .y = apart->at,
                                      .ldy = apart->ld });
    for (int r = 0; r < rows; r++) {
        const float *x = l->map ? rg_mat_row(apart, r) : rg_mat_row(l->student, r), *y = rg_mat_row(l->teacher, r);
        float *to = rg_mat_row(apart, r);

        for (int c = 0; c < cols; c++) {
            to[c] = x[c] - y[c];
            *sum += l->scale * (double)to[c] * (double)to[c];
            to[c] *= (float)(2 * l->scale * l->by);
        }
    }
    return true;
}

void rg_output_loss_add(rg_back_lane *lane, const rg_output_loss *l, double *sum)
{
    const rg_back_mark mark = rg_back_marked(lane);
    rg_mat apart;

    if (differ(lane, l, &apart, sum) && l->grad) {
        if (l->map) {
            rg_gemm_run(lane, &(rg_gemm){ .m = apart.rows,
                                          .n = l->student->cols,
                                          .k = apart.cols,
                                          .a = apart.at,
                                          .lda = apart.ld,
                                          .b = l->map,
                                          .ldb = (size_t)l->student->cols,
                                          .y = l->grad->at,
                                          .ldy = l->grad->ld,
                                          .add = true });
            rg_gemm_run(lane, &(rg_gemm){ .m = apart.cols,
                                          .n = l->student->cols,
                                          .k = apart.rows,
                                          .a = apart.at,
                                          .lda = apart.ld,
                                          .a_turned = true,
                                          .b = l->student->at,
                                          .ldb = l->student->ld,
                                          .y = l->d_map,
                                          .ldy = (size_t)l->student->cols,
                                          .add = true });
        }
        for (int r = 0; !l->map && r < apart.rows; r++) {
            float *to = rg_mat_row(l->grad, r);
            const float *from = rg_mat_row(&apart, r);

            for (int c = 0; c < apart.cols; c++)
                to[c] += from[c];
        }
    }
    rg_back_give(lane, mark);
}

/* The teacher's layer at the depth of one of the student's: the last at the last. */
static int layer_for(const rg_distill *d, int layer)
{
    const int n = rg_teacher_config(d->teacher)->n_layers;

    return ((layer + 1) * n + d->n_layers / 2) / d->n_layers - 1;
}

static bool add_output(void *arg, rg_back_lane *lane, int layer, int64_t first, const rg_mat *out, rg_mat *grad,
                       rg_error *err)
{
    rg_distill *d = arg;
    rg_mat theirs;

    if (!rg_teacher_output(d->teacher, layer_for(d, layer), first, out->rows, &theirs, err))
        return false;
    rg_output_loss_add(lane,
                       &(rg_output_loss){ .student = out,
                                          .teacher = &theirs,
                                          .map = d->map,
                                          .d_map = d->d_map,
                                          .grad = grad,
                                          .scale = d->scale / ((double)theirs.cols * d->n_layers),
                                          .by = d->alpha },
                       &d->outputs);
    return !lane->failed || rg_fail_memory(err, 0);
}

/* ---- logits ------------------------------------------------------------------------------------------------------ */

static bool lose_rows(void *arg, rg_back_lane *lane, int64_t first, rg_mat *logits, double *nll, rg_error *err)
{
    rg_distill *d = arg;
    rg_divergence_rows r = {
        .student = logits, .used = d->used ? d->used + first : NULL, .scale = d->scale, .loss = nll
    };
    rg_mat theirs;

    if (d->o.loss.kind == RG_SAMPLED_KL) {
        rg_sampled_of(lane, d->draws + first, &r);
        return true;
    }
    r.teacher = &theirs;
    if (!rg_teacher_logits(d->teacher, first, logits->rows, &theirs, err))
        return false;
    rg_divergence_of(&d->o.loss, lane, &r);
    return !lane->failed || rg_fail_memory(err, 0);
}

/* ---- draws ------------------------------------------------------------------------------------------------------- */

static bool make_room(rg_distill *d, rg_error *err)
{
    const size_t n = (size_t)d->texts->rows * (size_t)d->texts->length;
    const size_t each = ((size_t)d->o.draws + 1) * sizeof *d->id; /* fits: RG_MOST_DRAWS */

    if (n <= d->room)
        return true;
    rg_free(d->used);
    rg_free(d->draws);
    rg_free(d->id);
    rg_free(d->count);
    d->used = rg_array(n, 1);
    d->draws = rg_array(n, sizeof *d->draws);
    d->id = rg_array(n, each);
    d->count = rg_array(n, each);
    d->room = d->used && d->draws && d->id && d->count ? n : 0;
    return d->room || rg_fail_memory(err, n * sizeof *d->draws);
}

/* What the draws of a row depend on besides the teacher: ids, and where texts begin. */
static uint64_t key_of(const rg_distill *d, int row)
{
    const rg_texts *t = d->texts;
    const size_t at = (size_t)row * (size_t)t->length;
    uint64_t h = rg_hash(t->ids + at, (size_t)t->length * sizeof *t->ids, 0);

    for (int i = 1; t->document && i < t->length; i++)
        if (t->document[at + (size_t)i] != t->document[at + (size_t)i - 1])
            h = rg_hash(&i, sizeof i, h);
    return h;
}

typedef struct drawing {
    rg_distill *d;
    const rg_backend *backend;
    rg_mat *logits;
    uint64_t key;
    int64_t first; /* position of the batch of the first row of logits */
    int in_row;    /* and of its text row */
} drawing;

static void draw_rows(void *arg, int first, int n, int block, int thread)
{
    const drawing *v = arg;
    rg_distill *d = v->d;

    (void)block, (void)thread;
    for (int r = first; r < first + n; r++) {
        const int64_t at = v->first + r;
        int32_t *id = d->id + at * d->o.draws, *count = d->count + at * d->o.draws;
        const int k = rg_draw_ids(v->backend, rg_mat_row(v->logits, r), d->cols, d->o.draws, d->o.seed ^ v->key,
                                  (uint64_t)(v->in_row + r), id, count);

        d->draws[at] = (rg_draws){ id, count, k };
    }
}

enum { DRAW_ROWS = 256 };

static bool draw_row(rg_distill *d, rg_back_lane *lane, int row, uint64_t key, rg_error *err)
{
    const int length = d->texts->length;
    rg_mat logits;

    for (int i = 0; i < length; i += DRAW_ROWS) {
        const int n = length - i < DRAW_ROWS ? length - i : DRAW_ROWS;
        const int64_t first = (int64_t)row * length + i;

        if (!rg_teacher_logits(d->teacher, first, n, &logits, err))
            return false;
        rg_back_each_rows(lane, n, draw_rows, &(drawing){ d, lane->backend, &logits, key, first, i });
    }
    return !d->o.store || rg_samples_put(d->o.store, key, length, d->draws + (int64_t)row * length, err);
}

static bool make_draws(rg_distill *d, rg_back_lane *lane, rg_error *err)
{
    bool ok = true;

    for (int row = 0; ok && row < d->texts->rows; row++) {
        const uint64_t key = key_of(d, row);
        const int64_t at = (int64_t)row * d->texts->length;
        const int got = d->o.store ? rg_samples_get(d->o.store, key, d->texts->length, d->draws + at,
                                                    d->id + at * d->o.draws, d->count + at * d->o.draws, err)
                                   : 0;

        ok = got > 0 || (got == 0 && draw_row(d, lane, row, key, err));
    }
    return ok;
}

/* ---- the objective ----------------------------------------------------------------------------------------------- */

static int64_t count(void *arg, const rg_texts *t)
{
    const rg_distill *d = arg;

    return d->o.targets_alone ? rg_texts_count(t) : (int64_t)t->rows * t->length;
}

static bool begin_batch(rg_distill *d, rg_passes *p, const rg_texts *t, rg_error *err)
{
    d->texts = t;
    d->outputs = 0;
    rg_teacher_begin(d->teacher, t);
    if (!make_room(d, err))
        return false;
    for (int64_t i = 0; i < (int64_t)t->rows * t->length; i++)
        d->used[i] = !d->o.targets_alone || t->targets[i] != RG_NO_TARGET;
    return d->o.loss.kind != RG_SAMPLED_KL || make_draws(d, rg_passes_lane(p), err);
}

static bool compute(void *arg, rg_passes *p, const rg_texts *t, double scale, bool forward_only, double *loss,
                    rg_error *err)
{
    rg_distill *d = arg;
    const rg_loss of_logits = { lose_rows, d };
    const rg_layer_loss of_layers = { add_output, d };
    double sum;

    d->scale = scale;
    if (!begin_batch(d, p, t, err) || !rg_passes_compute(p,
                                                         &(rg_passes_run){ .texts = t,
                                                                           .loss = &of_logits,
                                                                           .inner = d->o.outputs ? &of_layers : NULL,
                                                                           .forward_only = forward_only },
                                                         &sum, err))
        return false;
    *loss = sum * scale + d->alpha * d->outputs;
    return true;
}

/* alpha, from the losses before this step's update. */
static bool begin(void *arg, rg_passes *p, const rg_texts *micro, int n, double scale, rg_error *err)
{
    rg_distill *d = arg;
    double of_logits = 0, of_outputs = 0, loss;

    if (d->d_map)
        memset(d->d_map, 0, (size_t)(d->shape[0] * d->shape[1]) * sizeof *d->d_map);
    d->alpha = 0;
    for (int i = 0; d->o.outputs && i < n; i++) {
        if (!compute(d, p, &micro[i], scale, true, &loss, err))
            return false;
        of_logits += loss;
        of_outputs += d->outputs;
    }
    d->alpha = of_outputs > 0 ? of_logits / of_outputs : 0;
    return true;
}

static bool add_map(void *arg, rg_adamw *a, rg_error *err)
{
    rg_distill *d = arg;

    return !d->map || rg_adamw_add(a,
                                   &(rg_adamw_tensor){ .name = "distill.map",
                                                       .n_dims = 2,
                                                       .shape = { d->shape[0], d->shape[1] },
                                                       .w = d->map,
                                                       .g = d->d_map,
                                                       .n = (size_t)(d->shape[0] * d->shape[1]) },
                                   err);
}

rg_objective rg_distill_objective(rg_distill *d)
{
    return (
        rg_objective){ .arg = d, .tag = d->tag, .count = count, .begin = begin, .compute = compute, .add_to = add_map };
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static bool make_map(rg_distill *d, int theirs, int ours, rg_error *err)
{
    const size_t n = (size_t)theirs * (size_t)ours;
    rg_rng rng = { .seed = d->o.seed };

    if (!d->o.outputs || theirs == ours)
        return true;
    d->shape[0] = theirs;
    d->shape[1] = ours;
    d->map = rg_array(n, sizeof *d->map);
    d->d_map = rg_array(n, sizeof *d->d_map);
    if (!d->map || !d->d_map)
        return rg_fail_memory(err, 2 * n * sizeof *d->map);
    for (size_t i = 0; i < n; i++)
        d->map[i] = rg_rng_normal(&rng) / sqrtf((float)ours);
    return true;
}

rg_distill *rg_distill_new(rg_teacher *teacher, const rg_masters *student, const rg_distill_options *o, rg_error *err)
{
    const rg_config *theirs = rg_teacher_config(teacher), *ours = &rg_masters_model(student)->config;
    rg_distill *d = rg_zalloc(sizeof *d);

    if (!d)
        return rg_fail_memory(err, sizeof *d), NULL;
    if (abs(theirs->vocab_size - ours->vocab_size) > MOST_PADDING) {
        rg_fail(err, RG_E_INPUT, "the teacher has a vocabulary of %d and the student one of %d: they must be the same",
                theirs->vocab_size, ours->vocab_size);
        rg_free(d);
        return NULL;
    }
    *d = (rg_distill){ .o = *o, .teacher = teacher, .n_layers = ours->n_layers };
    d->cols = rg_back_min(theirs->vocab_size, ours->vocab_size);
    if (o->loss.kind != RG_SAMPLED_KL)
        d->o.draws = 0;
    snprintf(d->tag, sizeof d->tag,
             "distilled: loss %d, temperature %g, k %d, draws %d, outputs %d, targets %d, seed %llu, teacher %016llx",
             (int)o->loss.kind, o->loss.temperature, o->loss.k, d->o.draws, o->outputs, o->targets_alone,
             (unsigned long long)o->seed, (unsigned long long)rg_teacher_number(teacher));
    if (make_map(d, theirs->dim, ours->dim, err))
        return d;
    rg_distill_free(d);
    return NULL;
}

void rg_distill_free(rg_distill *d)
{
    if (!d)
        return;
    rg_free(d->used);
    rg_free(d->draws);
    rg_free(d->id);
    rg_free(d->count);
    rg_free(d->map);
    rg_free(d->d_map);
    rg_free(d);
}
