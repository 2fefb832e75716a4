/* chain.c -- forward and backward of a network that drafts: every row is continued for some steps, as drafts are, each
 * with what the network made of the row before.
 *
 * Step 0 is a batch of texts.  In the steps that follow every row is a span of its own, a place further in its text: a
 * draft whose earlier rows stand in slots behind the text's.  All steps run, with a tape for each; then they are walked
 * from the last to the first, and the gradient of a step's features is added to that of what the step before made. */
#include <string.h>

#include "train/passes_inside.h"

typedef struct chain {
    rg_passes *p;
    const rg_chain_run *run;
    int n_layers, n_rows;
    rg_slab room;
    rg_tape **tapes;       /* [n_steps][n_layers + 1] of the embedding, and of layers */
    rg_back_chain *steps;  /* [n_steps] */
    rg_batch *batches;     /* [n_steps] */
    rg_span *spans;        /* [n_steps][n_rows] */
    int32_t *ints;         /* [n_steps][3][n_rows] index, kv_end, slot; then [n_rows][n_steps] lists of slots */
    int32_t (*pos)[4];     /* [n_steps][n_rows] */
    const int32_t **lists; /* [n_rows] */
    rg_mat *made;          /* [n_steps] what the network made of the rows */
    float *features;       /* [n_rows][dim] of the step that runs */
    rg_mat d_features;     /* [n_rows, dim] */
    int n_tapes, room_rows;
} chain;

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static bool make_tapes(chain *c, rg_error *err)
{
    const int n = c->run->n_steps * (c->n_layers + 1);

    c->tapes = rg_array((size_t)n, sizeof *c->tapes);
    if (!c->tapes)
        return rg_fail_memory(err, (size_t)n * sizeof *c->tapes);
    for (; c->n_tapes < n; c->n_tapes++) {
        c->tapes[c->n_tapes] = rg_tape_new(&c->p->back, rg_masters_weight, c->p->m, c->p->tape, err);
        if (!c->tapes[c->n_tapes])
            return false;
    }
    return true;
}

static void free_rows(chain *c)
{
    rg_free(c->spans);
    rg_free(c->ints);
    rg_free(c->pos);
    rg_free(c->lists);
    c->room_rows = 0;
}

static bool make_rows(chain *c, rg_error *err)
{
    const size_t n = (size_t)c->n_rows, steps = (size_t)c->run->n_steps, dim = (size_t)c->p->carry[0].cols;
    size_t all;
    bool ok = true;

    if (c->n_rows > c->room_rows) {
        free_rows(c);
        ok = rg_mul(n, steps, &all);
        c->spans = ok ? rg_array(all, sizeof *c->spans) : NULL;
        c->ints = ok ? rg_array(all, 4 * sizeof *c->ints) : NULL;
        c->pos = ok ? rg_array(all, sizeof *c->pos) : NULL;
        c->lists = rg_array(n, sizeof *c->lists);
        ok = c->spans && c->ints && c->pos && c->lists;
        c->room_rows = ok ? c->n_rows : 0;
    }
    rg_slab_reset(&c->room);
    for (size_t k = 0; ok && k < steps; k++) {
        c->made[k] = rg_slab_mat(&c->room, c->n_rows, (int)dim);
        ok = c->made[k].at;
    }
    c->features = ok ? rg_slab_take(&c->room, n * dim) : NULL;
    c->d_features = ok ? rg_slab_mat(&c->room, c->n_rows, (int)dim) : (rg_mat){ 0 };
    return (c->features && c->d_features.at) || rg_fail_memory(err, n * dim * sizeof(float));
}

static void close_chain(chain *c)
{
    for (int i = 0; i < c->n_tapes; i++)
        rg_tape_free(c->tapes[i]);
    free_rows(c);
    rg_free(c->tapes);
    rg_free(c->steps);
    rg_free(c->batches);
    rg_free(c->made);
    rg_slab_fini(&c->room);
}

static bool open_chain(chain *c, rg_passes *p, const rg_chain_run *r, rg_error *err)
{
    const size_t n = (size_t)r->n_steps;

    *c = (chain){ .p = p, .run = r, .n_layers = p->model->config.n_layers };
    c->steps = rg_array(n, sizeof *c->steps);
    c->batches = rg_array(n, sizeof *c->batches);
    c->made = rg_array(n, sizeof *c->made);
    if (!c->steps || !c->batches || !c->made)
        return rg_fail_memory(err, n * sizeof *c->batches);
    return make_tapes(c, err);
}

/* ---- the batch of a step ----------------------------------------------------------------------------------------- */

/* Row r, `at` places into the text of span s, in step k: the slots of its earlier rows are in its list. */
static void place_row(chain *c, int k, const rg_span *s, int at)
{
    const int n = c->n_rows, r = s->first_row + at, n_steps = c->run->n_steps;
    int32_t *index = c->ints + (size_t)k * 3 * (size_t)n, *kv_end = index + n, *slot = kv_end + n;
    int32_t *list = c->ints + (size_t)n_steps * 3 * (size_t)n + (size_t)r * (size_t)n_steps;
    rg_span *to = &c->spans[(size_t)k * (size_t)n + (size_t)r];

    *to = *s;
    to->first_row = r;
    to->n_rows = 1;
    to->start = at + k;
    to->n_draft = k;
    index[r] = at + k;
    kv_end[r] = at + k + 1;
    slot[r] = list[k - 1] = k * s->n_rows + at;
    c->lists[r] = list;
    for (int i = 0; i < 4; i++)
        c->pos[(size_t)k * (size_t)n + (size_t)r][i] = at + k;
}

static void make_batch(chain *c, int k)
{
    const rg_batch *first = &c->batches[0];
    const int32_t *index = c->ints + (size_t)k * 3 * (size_t)c->n_rows;
    rg_batch *b = &c->batches[k];

    c->steps[k] = (rg_back_chain){ k, c->run->n_steps, first };
    if (k == 0) {
        *b = c->p->batch;
    } else {
        for (int s = 0; s < first->n_spans; s++)
            for (int i = 0; i < first->spans[s].n_rows; i++)
                place_row(c, k, &first->spans[s], i);
        *b = (rg_batch){ .n_rows = c->n_rows,
                         .n_spans = c->n_rows,
                         .spans = c->spans + (size_t)k * (size_t)c->n_rows,
                         .index = index,
                         .pos = (const int32_t(*)[4])(c->pos + (size_t)k * (size_t)c->n_rows),
                         .kv_end = index + c->n_rows,
                         .slot = index + 2 * c->n_rows,
                         .ancestors = c->lists,
                         .logit_rows = index };
    }
    b->token = c->run->ids + (size_t)k * (size_t)c->run->texts->rows * (size_t)c->run->texts->length + c->p->first;
    b->features = k ? c->features : c->run->features + (size_t)c->p->first * (size_t)c->run->feature_cols;
    b->feature_cols = k ? c->made[0].cols : c->run->feature_cols;
}

/* ---- a piece ----------------------------------------------------------------------------------------------------- */

static void run_part(chain *c, int k, job j)
{
    rg_tape *t = c->tapes[k * (c->n_layers + 1) + (j.part == EMBED ? 0 : j.layer + 1)];

    j.p = c->p;
    j.keep = true;
    j.tape = t;
    j.taped = true;
    rg_tape_begin_chain(t, &c->batches[k], &c->steps[k]);
    if (j.part == EMBED && k)
        rg_tape_features(t, &c->d_features);
    rg_passes_step(c->p, &j);
}

static void forward(chain *c, int k)
{
    rg_passes *p = c->p;

    for (int r = 0; k && r < c->n_rows; r++)
        memcpy(c->features + (size_t)r * (size_t)c->made[0].cols, rg_mat_row(&c->made[k - 1], r),
               (size_t)c->made[0].cols * sizeof(float));
    make_batch(c, k);
    p->batch = c->batches[k];
    *rg_passes_carried(p, c->n_layers, 0) = c->made[k];
    run_part(c, k, (job){ .part = EMBED });
    for (int i = 0; i < c->n_layers; i++)
        run_part(c, k, (job){ .part = LAYER, .layer = i });
}

/* The gradient of what the step made is that of its loss, and of the features of the step behind. */
static bool output_back(chain *c, int k, rg_error *err)
{
    rg_passes *p = c->p;
    rg_mat *grad = &p->carry[0].grad;

    for (int r = 0; k + 1 < c->run->n_steps && r < c->n_rows; r++)
        for (int i = 0; i < grad->cols; i++)
            rg_mat_row(grad, r)[i] += rg_mat_row(&c->d_features, r)[i];
    memset(c->d_features.at, 0, (size_t)c->n_rows * c->d_features.ld * sizeof(float));
    return !c->run->inner || c->run->inner->layer(c->run->inner->arg, &p->back, 0, p->first, &c->made[k],
                                                  c->run->forward_only ? NULL : grad, err);
}

static bool backward(chain *c, int k, rg_error *err)
{
    rg_passes *p = c->p;
    const rg_passes_run run = { .loss = &c->run->loss[k], .forward_only = c->run->forward_only };
    bool ok = true;

    p->run = &run;
    p->batch = c->batches[k];
    *rg_passes_carried(p, c->n_layers, 0) = c->made[k];
    for (int first = 0; ok && first < c->n_rows; first += HEAD_ROWS)
        ok = rg_passes_head(p, first, &c->run->sums[k], err);
    ok = ok && output_back(c, k, err);
    for (int i = c->n_layers; ok && !run.forward_only && i >= 0; i--)
        ok = rg_tape_walk(c->tapes[k * (c->n_layers + 1) + i], NULL, NULL, err);
    p->run = NULL;
    return ok;
}

static bool one_piece(chain *c, int row, int at_once, rg_error *err)
{
    rg_passes *p = c->p;
    rg_texts t = *c->run->texts;
    bool ok;

    t.ids = c->run->ids;
    ok = rg_passes_piece(p, &t, row, at_once, err);
    c->n_rows = p->batch.n_rows;
    ok = ok && make_rows(c, err);
    c->steps[0] = (rg_back_chain){ 0, c->run->n_steps, &c->batches[0] };
    rg_tape_begin_chain(p->tape, &p->batch, &c->steps[0]);
    for (int k = 0; ok && k < c->run->n_steps; k++)
        forward(c, k);
    for (int k = c->run->n_steps - 1; ok && k >= 0; k--)
        ok = backward(c, k, err);
    return ok;
}

bool rg_passes_chain(rg_passes *p, const rg_chain_run *r, rg_error *err)
{
    const int at_once = rg_passes_at_once(p, r->texts);
    chain c;
    bool ok;

    p->n_steps = r->n_steps;
    ok = open_chain(&c, p, r, err);
    for (int k = 0; k < r->n_steps; k++)
        r->sums[k] = 0;
    for (int row = 0; ok && row < r->texts->rows; row += at_once)
        ok = one_piece(&c, row, at_once, err);
    rg_tape_begin(p->tape, &p->batch);
    close_chain(&c);
    p->n_steps = 1;
    return ok;
}
