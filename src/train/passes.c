/* passes.c -- see passes.h.
 *
 * A step of the back end's lane is one part of the model's text: the embedding, a layer, or the head of a block of
 * rows.  What is alive between layers is carried from one to the next through the host's memory. */
#include "train/passes_inside.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* ---- texts of a step --------------------------------------------------------------------------------------------- */

static void take_row(void *arg, int row, const float *x)
{
    const rg_mat *to = arg;

    memcpy(rg_mat_row(to, row), x, (size_t)to->cols * sizeof *x);
}

static void give_row(void *arg, int row, float *x)
{
    const rg_mat *from = arg;

    memcpy(x, rg_mat_row(from, row), (size_t)from->cols * sizeof *x);
}

rg_mat *rg_passes_carried(const rg_passes *p, int layer, int i)
{
    return &p->at[layer * MAX_CARRIED + i];
}

/* Activations that the embedding made, which layers share. */
static void note_carried(rg_passes *p, const rg_fwd *f)
{
    int n = 0;

    for (int i = 0; i < f->n_acts; i++) {
        const rg_act *a = &f->acts[i];

        if (a->shown >= 0)
            continue;
        RG_ASSERT(n < MAX_CARRIED);
        p->carry[n].name = a->name;
        p->carry[n++].cols = a->cols;
    }
    p->n_carried = n;
}

static void embed_text(const job *j, rg_fwd *f)
{
    rg_passes *p = j->p;
    int n = 0;

    rg_model_embed(p->model, f);
    if (!rg_reader_computes(f)) {
        note_carried(p, f);
        return;
    }
    for (int i = 0; i < f->n_acts; i++) {
        if (f->acts[i].shown >= 0)
            continue;
        if (f->thread == 0 && j->taped)
            rg_tape_seed(j->tape, f, &f->acts[i], &p->carry[n].grad);
        if (j->keep)
            rg_act_fetch(f, &f->acts[i], take_row, rg_passes_carried(p, 0, n));
        n++;
    }
}

static void layer_text(const job *j, rg_fwd *f)
{
    rg_passes *p = j->p;
    const bool computes = rg_reader_computes(f);
    rg_act *a[MAX_CARRIED];

    for (int i = 0; i < p->n_carried; i++) {
        a[i] = rg_act_rows(f, p->carry[i].name, f->batch->n_rows, p->carry[i].cols);
        if (computes)
            rg_tape_carry(j->tape, f, a[i], &p->carry[i].grad);
    }
    for (int i = 0; i < p->n_carried && computes; i++)
        rg_act_put(f, a[i], give_row, rg_passes_carried(p, j->layer, i));
    rg_model_layer(p->model, f, j->layer, a[0]);
    for (int i = 0; i < p->n_carried && computes && j->keep; i++)
        rg_act_fetch(f, a[i], take_row, rg_passes_carried(p, j->layer + 1, i));
}

static rg_mat rows_of(const rg_mat *m, int first, int n)
{
    return (rg_mat){ m->at ? rg_mat_row(m, first) : NULL, m->ld, n, m->cols };
}

static void head_text(const job *j, rg_fwd *f)
{
    rg_passes *p = j->p;
    rg_act *x = rg_act_rows(f, "head_in", j->n, p->carry[0].cols), *logits;
    const bool computes = rg_reader_computes(f);

    if (computes) {
        rg_mat grad = rows_of(&p->carry[0].grad, j->first, j->n);
        rg_mat from = rows_of(rg_passes_carried(p, p->model->config.n_layers, 0), j->first, j->n);

        rg_tape_carry(j->tape, f, x, &grad);
        rg_act_put(f, x, give_row, &from);
    }
    logits = rg_model_logits(p->model, f, x);
    if (!computes)
        return;
    if (j->hidden) /* x was normed in place */
        rg_act_fetch(f, x, take_row, (void *)(uintptr_t)j->hidden);
    if (!j->to)
        return;
    rg_act_fetch(f, logits, take_row, (void *)(uintptr_t)j->to);
    if (f->thread == 0)
        rg_tape_seed(j->tape, f, logits, j->to);
}

static rg_outputs text(const void *arg, rg_fwd *f)
{
    const job *j = arg;

    f->apart = true;
    if (j->part == EMBED)
        embed_text(j, f);
    else if (j->part == LAYER)
        layer_text(j, f);
    else
        head_text(j, f);
    return (rg_outputs){ 0 };
}

void rg_passes_step(rg_passes *p, const job *j)
{
    rg_batch batch = p->batch;

    batch.n_logits = j->part == HEAD ? j->n : 0;
    p->backend->submit(p->lane, &(rg_step){ .text = text,
                                            .model = j,
                                            .batch = &batch,
                                            .reader = rg_tape_wrap(j->tape, p->lane->reader),
                                            .exact = !p->back.bf16,
                                            .bf16 = p->back.bf16,
                                            .settled = true,
                                            .n_threads = p->n_threads,
                                            .state = rg_store_memory(p->store) });
    p->backend->wait(p->lane);
}

/* ---- a piece ----------------------------------------------------------------------------------------------------- */

static bool make_arrays(rg_passes *p, int rows, rg_error *err)
{
    if (rows <= p->n_room)
        return true;
    rg_free(p->spans);
    rg_free(p->ints);
    rg_free(p->pos);
    p->spans = rg_array((size_t)rows, sizeof *p->spans);
    p->ints = rg_array((size_t)rows, 3 * sizeof *p->ints);
    p->pos = rg_array((size_t)rows, sizeof *p->pos);
    p->n_room = p->spans && p->ints && p->pos ? rows : 0;
    return p->n_room || rg_fail_memory(err, (size_t)rows * sizeof *p->spans);
}

/* Places in the lists of slots of a text of n positions that is there twice: of each block, all that it sees. */
static int64_t list_room(int n, int sees)
{
    int64_t room = 0;

    for (int at = 0; at < n; at += sees)
        room += rg_kv_end(sees, at, n);
    return room;
}

/* Room for the lists of a piece: of its rows, at most one text each. */
static bool make_lists(rg_passes *p, const rg_texts *t, int n, rg_error *err)
{
    const int64_t room = (int64_t)(n / t->length) * list_room(t->length / 2, p->model->config.sees);

    rg_free(p->lists);
    rg_free(p->list_of);
    p->lists = rg_array((size_t)room, sizeof *p->lists);
    p->list_of = rg_array((size_t)n, sizeof *p->list_of);
    p->n_lists = 0;
    return (p->lists && p->list_of) || rg_fail_memory(err, (size_t)room * sizeof *p->lists);
}

/* Rows [first, first + n) of the second half of a text that begins n rows before: its blocks are seen through lists. */
static void see_twice(rg_passes *p, int first, int n, int *slot)
{
    const int sees = p->model->config.sees;

    for (int at = 0; at < n; at += sees) {
        const int end = rg_kv_end(sees, at, n);
        int32_t *list = p->lists + p->n_lists;

        for (int k = 0; k < end; k++)
            list[k] = k < at ? k : n + k;
        p->n_lists += end;
        for (int k = at; k < end; k++)
            p->list_of[first + k] = list;
    }
    for (int k = 0; k < n; k++)
        slot[first + k] = n + k;
}

/* One text: rows [from, end). */
static void make_span(rg_passes *p, const rg_texts *t, int from, int end)
{
    const rg_config *c = &p->model->config;
    int32_t *index = p->ints, *kv_end = index + p->batch.n_rows, *slot = kv_end + p->batch.n_rows;
    const int n = t->twice ? (end - from) / 2 : end - from;

    p->spans[p->batch.n_spans++] = (rg_span){ .first_row = from,
                                              .n_rows = end - from,
                                              .n_draft = t->twice ? end - from : 0,
                                              .adapter = -1,
                                              .rope = rg_config_rope(c, n) };
    for (int k = from; k < end; k++) {
        index[k] = (k - from) % n;
        slot[k] = k - from;
        kv_end[k] = rg_kv_end(c->sees, index[k], n);
        for (int d = 0; d < 4; d++)
            p->pos[k][d] = index[k];
    }
    if (t->twice)
        see_twice(p, from + n, n, slot);
}

/* Cut rows into texts: spans without tables. */
static bool make_spans(rg_passes *p, const rg_texts *t, int first_row, int rows, rg_error *err)
{
    const rg_config *c = &p->model->config;
    const int n = rows * t->length;
    const int32_t *ids = t->ids + (size_t)first_row * (size_t)t->length;
    const int32_t *document = t->document ? t->document + (size_t)first_row * (size_t)t->length : NULL;
    const int vocab = c->target ? c->target->vocab_size : c->vocab_size; /* a network reads its target's ids */

    RG_ASSERT(!t->twice || c->sees > RG_CAUSAL);
    if (t->twice && !make_lists(p, t, n, err))
        return false;
    p->batch = (rg_batch){ .n_rows = n,
                           .spans = p->spans,
                           .token = ids,
                           .index = p->ints,
                           .pos = (const int32_t(*)[4])p->pos,
                           .kv_end = p->ints + n,
                           .slot = t->twice ? p->ints + 2 * n : NULL,
                           .ancestors = t->twice ? p->list_of : NULL,
                           .logit_rows = p->ints };
    for (int i = 0, end; i < n; i = end) {
        const int row_end = (i / t->length + 1) * t->length;

        for (end = i + 1; end < row_end && (!document || document[end] == document[i]); end++)
            ;
        if (c->n_positions && end - i > c->n_positions)
            return rg_fail(err, RG_E_INPUT, "a text of %d ids is longer than the %d positions of the model", end - i,
                           c->n_positions);
        for (int k = i; k < end; k++)
            if (ids[k] < 0 || ids[k] >= vocab)
                return rg_fail(err, RG_E_INPUT, "id %d is not in the vocabulary of %d", ids[k], vocab);
        make_span(p, t, i, end);
    }
    return true;
}

/* Blocks of state for each span, and room for them. */
static bool make_tables(rg_passes *p, rg_error *err)
{
    const rg_state_spec *spec = &p->model->state;
    int64_t n_blocks = 0;
    int32_t need[RG_MAX_GROUPS];

    for (int s = 0; s < p->batch.n_spans; s++)
        n_blocks += rg_ceil_div((int64_t)p->spans[s].n_rows * p->n_steps, RG_BLOCK);
    if (n_blocks > p->n_table_room) {
        rg_free(p->tables);
        p->tables = rg_array((size_t)n_blocks, sizeof *p->tables);
        p->n_table_room = p->tables ? (int)n_blocks : 0;
        if (!p->tables)
            return rg_fail_memory(err, (size_t)n_blocks * sizeof *p->tables);
        for (int32_t i = 0; i < n_blocks; i++)
            p->tables[i] = i;
    }
    int64_t at = 0;
    for (int s = 0; s < p->batch.n_spans; s++) {
        for (int g = 0; g < spec->n_groups; g++)
            p->spans[s].tables[g] = p->tables + (spec->group[g].per == RG_PER_SEQUENCE ? s : at);
        at += rg_ceil_div((int64_t)p->spans[s].n_rows * p->n_steps, RG_BLOCK);
    }
    if (p->store && n_blocks <= p->store_blocks && p->batch.n_spans <= p->store_slots)
        return true;
    p->store_blocks = n_blocks > p->store_blocks ? n_blocks : p->store_blocks;
    p->store_slots = p->batch.n_spans > p->store_slots ? p->batch.n_spans : p->store_slots;
    for (int g = 0; g < spec->n_groups; g++)
        need[g] = (int32_t)(spec->group[g].per == RG_PER_SEQUENCE ? p->store_slots : p->store_blocks);
    rg_store_free(p->store);
    p->store = rg_store_new(spec, need, p->backend, err);
    return p->store;
}

static bool measure(rg_passes *p, const job *j, size_t *bytes, rg_error *err)
{
    rg_batch batch = p->batch;

    batch.n_logits = j->part == HEAD ? j->n : 0;
    return p->backend->measure(p->backend, &(rg_step){ .text = text, .model = j, .batch = &batch }, bytes, err);
}

static int max_of(int a, int b)
{
    return a > b ? a : b;
}

/* A lane for pieces as large as this one. */
static bool make_lane(rg_passes *p, rg_error *err)
{
    const rg_config *c = &p->model->config;
    const int rows = p->batch.n_rows;
    size_t bytes = 0;
    int longest = 0;

    for (int s = 0; s < p->batch.n_spans; s++)
        longest = max_of(longest, p->spans[s].n_rows + p->n_steps - 1);
    if (p->lane && rows <= p->lane_rows && longest <= p->lane_length)
        return true;
    p->backend->close(p->lane);
    p->lane = NULL;
    p->lane_rows = max_of(rows, p->lane_rows);
    p->lane_length = max_of(longest, p->lane_length);
    if (!measure(p, &(job){ .p = p, .part = EMBED }, &bytes, err))
        return false;
    for (int i = 0; i < c->n_layers; i++)
        if (!measure(p, &(job){ .p = p, .part = LAYER, .layer = i }, &bytes, err))
            return false;
    if (!measure(p, &(job){ .p = p, .part = HEAD, .n = HEAD_ROWS }, &bytes, err))
        return false;
    const rg_runner_options o = { .max_rows = max_of(p->lane_rows, HEAD_ROWS),
                                  .max_logits = HEAD_ROWS,
                                  .n_threads = p->n_threads };
    rg_lane_options lane = { .sizes = rg_model_reader_sizes(p->model, &o, p->lane_length),
                             .activation_bytes = bytes,
                             .pool = p->pool };

    p->lane = p->backend->open(p->backend, &lane, err);
    return p->lane;
}

static bool make_rows(rg_passes *p, rg_error *err)
{
    const rg_config *c = &p->model->config;
    const int rows = p->batch.n_rows, n_layers = c->n_layers;
    bool ok = true;

    if (!p->at)
        p->at = rg_array((size_t)n_layers + 1, MAX_CARRIED * sizeof *p->at); /* fits: layers are limited */
    if (!p->logits.at)
        p->logits = rg_slab_mat(&p->logits_slab, HEAD_ROWS, c->vocab_size);
    ok = p->at && p->logits.at;
    rg_slab_reset(&p->rows);
    for (int i = 0; ok && i < p->n_carried; i++) {
        for (int l = 0; ok && l <= n_layers; l++) {
            *rg_passes_carried(p, l, i) = rg_slab_mat(&p->rows, rows, p->carry[i].cols);
            ok = rg_passes_carried(p, l, i)->at;
        }
        p->carry[i].grad = rg_slab_mat(&p->rows, rows, p->carry[i].cols);
        ok = ok && p->carry[i].grad.at;
        if (ok)
            memset(p->carry[i].grad.at, 0, (size_t)rows * p->carry[i].grad.ld * sizeof(float));
    }
    return ok || rg_fail_memory(err, (size_t)rows * (size_t)c->dim * (size_t)n_layers * sizeof(float));
}

static void note_layer(void *arg, int layer, const rg_mat *grad)
{
    const rg_passes *p = arg;

    if (p->run->see)
        p->run->see(p->run->see_arg, layer, p->first + (layer < 0 ? p->head_first : 0), grad);
}

/* A part back: from its tape, or again with one. */
static bool back_through(rg_passes *p, job j, rg_error *err)
{
    const int n = p->model->config.n_layers, rows = p->batch.n_rows;

    if (p->layers)
        return rg_tape_walk(p->layers[j.part == EMBED ? n : j.layer], note_layer, p, err);
    j.tape = p->tape;
    j.taped = true;
    rg_tape_reset(p->tape, true);
    rg_passes_step(p, &j);
    p->bytes_per_row = fmax(p->bytes_per_row, (double)rg_tape_bytes(p->tape) / rows);
    return rg_tape_walk(p->tape, note_layer, p, err);
}

/* Forward, keeping what enters each layer; and its tape, if there is room for all. */
static void forward_through(rg_passes *p, job j)
{
    const int n = p->model->config.n_layers;

    j.keep = true;
    j.taped = p->layers && !p->run->forward_only;
    j.tape = j.taped ? p->layers[j.part == EMBED ? n : j.layer] : p->tape;
    if (j.taped)
        rg_tape_begin(j.tape, &p->batch);
    else
        rg_tape_reset(j.tape, false);
    rg_passes_step(p, &j);
}

/* Tapes for all layers, once their size is known and there is room: a layer then runs once and not twice.  What is
 * computed is the same. */
static bool make_tapes(rg_passes *p, rg_error *err)
{
    const int n = p->model->config.n_layers;
    const double need = p->bytes_per_row * (n + 1) * p->batch.n_rows, room = (double)rg_memory_free() / 4;

    if (p->layers || p->run->forward_only || p->bytes_per_row == 0 || need > p->max_bytes || (room > 0 && need > room))
        return true;
    p->layers = rg_array((size_t)n + 1, sizeof *p->layers); /* fits: layers are limited */
    if (!p->layers)
        return rg_fail_memory(err, (size_t)n * sizeof *p->layers);
    for (int i = 0; i <= n; i++) {
        p->layers[i] = rg_tape_new(&p->back, rg_masters_weight, p->m, p->tape, err);
        if (!p->layers[i])
            return false;
    }
    return true;
}

/* Logits of to->rows rows of the piece. */
static void run_head(rg_passes *p, int first, bool taped, const rg_mat *to)
{
    rg_tape_reset(p->tape, taped);
    rg_passes_step(
        p, &(job){ .p = p, .part = HEAD, .first = first, .n = to->rows, .tape = p->tape, .taped = taped, .to = to });
}

bool rg_passes_head(rg_passes *p, int first, double *sum, rg_error *err)
{
    const int n = p->batch.n_rows - first < HEAD_ROWS ? p->batch.n_rows - first : HEAD_ROWS;
    rg_mat logits = { p->logits.at, p->logits.ld, n, p->logits.cols };

    p->head_first = first;
    run_head(p, first, !p->run->forward_only, &logits);
    if (!p->run->loss->rows(p->run->loss->arg, &p->back, p->first + first, &logits, p->nll, err))
        return false;
    for (int i = 0; i < n; i++) {
        *sum += p->nll[i];
        if (p->run->nll)
            p->run->nll[p->first + first + i] = p->nll[i];
    }
    if (!isfinite(*sum))
        return rg_fail(err, RG_E_INPUT, "the loss is not a number: the learning rate may be too high");
    return p->run->forward_only || rg_tape_walk(p->tape, note_layer, p, err);
}

static void forward_all(rg_passes *p)
{
    rg_tape_begin(p->tape, &p->batch);
    forward_through(p, (job){ .p = p, .part = EMBED });
    for (int i = 0; i < p->model->config.n_layers; i++)
        forward_through(p, (job){ .p = p, .part = LAYER, .layer = i });
}

/* A layer's own loss, and then its operations, back. */
static bool back_of_layer(rg_passes *p, int layer, rg_error *err)
{
    const rg_layer_loss *inner = p->run->inner;
    const bool forward = p->run->forward_only;

    if (inner && !inner->layer(inner->arg, &p->back, layer, p->first, rg_passes_carried(p, layer + 1, 0),
                               forward ? NULL : &p->carry[0].grad, err))
        return false;
    return forward || back_through(p, (job){ .p = p, .part = LAYER, .layer = layer }, err);
}

/* The layers, with what their routers choose, and the loss of that. */
static bool forward_balanced(rg_passes *p, rg_error *err)
{
    const double weight = p->run->forward_only ? 0 : p->run->balance_weight;

    if (!p->routes)
        p->routes = rg_zalloc(sizeof *p->routes);
    if (!p->share)
        p->share = rg_array(RG_BALANCE_EXPERTS, sizeof *p->share);
    if (!p->routes || !p->share)
        return rg_fail_memory(err, sizeof *p->routes);
    rg_routes_begin(p->routes);
    rg_tape_routes(p->tape, p->routes);
    forward_all(p);
    rg_tape_routes(p->tape, NULL);
    *p->run->balance = rg_balance_loss(p->routes, weight, p->share, &p->back.balance);
    return p->routes->n || rg_fail(err, RG_E_UNSUPPORTED, "the model has no experts whose use could be balanced");
}

static bool compute_piece(rg_passes *p, double *sum, rg_error *err)
{
    bool ok = true;

    if (!make_tapes(p, err))
        return false;
    if (!p->run->balance)
        forward_all(p);
    else if (!forward_balanced(p, err))
        return false;
    for (int first = 0; ok && first < p->batch.n_rows; first += HEAD_ROWS)
        ok = rg_passes_head(p, first, sum, err);
    for (int i = p->model->config.n_layers - 1; ok && i >= 0; i--)
        ok = back_of_layer(p, i, err);
    return ok && (p->run->forward_only || back_through(p, (job){ .p = p, .part = EMBED }, err));
}

int rg_passes_at_once(const rg_passes *p, const rg_texts *t)
{
    return max_of(1, p->max_tokens / max_of(1, t->length));
}

bool rg_passes_piece(rg_passes *p, const rg_texts *t, int row, int at_once, rg_error *err)
{
    const int rows = t->rows - row < at_once ? t->rows - row : at_once;

    p->first = (int64_t)row * t->length;
    return make_arrays(p, rows * t->length, err) && make_spans(p, t, row, rows, err) && make_tables(p, err) &&
           make_lane(p, err) && make_rows(p, err);
}

static const rg_passes_run forward_run = { .forward_only = true };

bool rg_passes_compute(rg_passes *p, const rg_passes_run *run, double *sum, rg_error *err)
{
    const rg_texts *t = run->texts;
    const int at_once = run->balance ? t->rows : rg_passes_at_once(p, t);
    bool ok = true;

    *sum = 0;
    p->run = run;
    for (int row = 0; ok && row < t->rows; row += at_once)
        ok = rg_passes_piece(p, t, row, at_once, err) && compute_piece(p, sum, err);
    p->back.balance = (rg_back_balance){ 0 };
    return ok;
}

bool rg_passes_enter(rg_passes *p, const rg_texts *t, int64_t position, int64_t *first, int *n, rg_error *err)
{
    const int at_once = rg_passes_at_once(p, t);

    p->run = &forward_run;
    if (!rg_passes_piece(p, t, (int)(position / t->length) / at_once * at_once, at_once, err))
        return false;
    forward_all(p);
    *first = p->first;
    *n = p->batch.n_rows;
    return true;
}

void rg_passes_logits(rg_passes *p, int64_t first, const rg_mat *to)
{
    for (int i = 0; i < to->rows; i += HEAD_ROWS) {
        const rg_mat block = rows_of(to, i, to->rows - i < HEAD_ROWS ? to->rows - i : HEAD_ROWS);

        run_head(p, (int)(first - p->first) + i, false, &block);
    }
}

bool rg_passes_hidden(rg_passes *p, int64_t first, const rg_mat *to, rg_error *err)
{
    if (p->carry[0].cols != p->model->config.dim)
        return rg_fail(err, RG_E_UNSUPPORTED,
                       "the model's layers are %d wide and its head %d: heads like this one are "
                       "not trained on it",
                       p->carry[0].cols, p->model->config.dim);
    rg_tape_reset(p->tape, false);
    for (int i = 0; i < to->rows; i += HEAD_ROWS) {
        const rg_mat block = rows_of(to, i, to->rows - i < HEAD_ROWS ? to->rows - i : HEAD_ROWS);

        rg_passes_step(p, &(job){ .p = p,
                                  .part = HEAD,
                                  .first = (int)(first - p->first) + i,
                                  .n = block.rows,
                                  .tape = p->tape,
                                  .hidden = &block });
    }
    return true;
}

const rg_mat *rg_passes_output(const rg_passes *p, int layer)
{
    return rg_passes_carried(p, layer + 1, 0);
}

/* The rows of a piece through one layer: in, out, and back. */
static bool layer_piece(rg_passes *p, const rg_layer_run *r, rg_error *err)
{
    const job j = { .p = p, .part = LAYER, .layer = r->layer, .keep = true, .tape = p->tape, .taped = r->loss };
    const rg_mat in = rows_of(r->in, (int)p->first, p->batch.n_rows), *given = rg_passes_carried(p, r->layer + 1, 0);

    for (int i = 0; i < in.rows; i++)
        memcpy(rg_mat_row(rg_passes_carried(p, r->layer, 0), i), rg_mat_row(&in, i), (size_t)in.cols * sizeof(float));
    rg_tape_begin(p->tape, &p->batch);
    rg_tape_reset(p->tape, r->loss);
    rg_passes_step(p, &j);
    for (int i = 0; r->out && i < in.rows; i++)
        memcpy(rg_mat_row(r->out, (int)p->first + i), rg_mat_row(given, i), (size_t)in.cols * sizeof(float));
    return !r->loss || (r->loss->layer(r->loss->arg, &p->back, r->layer, p->first, given, &p->carry[0].grad, err) &&
                        rg_tape_walk(p->tape, note_layer, p, err));
}

bool rg_passes_layer(rg_passes *p, const rg_layer_run *r, rg_error *err)
{
    const rg_texts *t = r->texts;
    const int at_once = rg_passes_at_once(p, t);
    bool ok = true;

    p->run = &forward_run;
    for (int row = 0; ok && row < t->rows; row += at_once) {
        ok = rg_passes_piece(p, t, row, at_once, err);
        if (ok && (p->n_carried > 1 || p->model->config.layer[r->layer].kv_layer >= 0))
            ok = rg_fail(err, RG_E_UNSUPPORTED,
                         "layer %d reads more than what the layer before gives: it cannot be "
                         "trained alone",
                         r->layer);
        ok = ok && layer_piece(p, r, err);
    }
    return ok;
}

static rg_passes *passes_of(const rg_model *model, rg_masters *m, const rg_backend *backend, const rg_passes_options *o,
                            rg_error *err)
{
    rg_passes *p = rg_zalloc(sizeof *p);

    if (!p)
        return rg_fail_memory(err, sizeof *p), NULL;
    p->m = m;
    p->model = model;
    p->backend = backend;
    p->pool = o->pool;
    p->n_threads = o->n_threads;
    p->n_steps = 1;
    p->max_tokens = o->max_tokens > 0 ? o->max_tokens : RG_PIECE_TOKENS;
    p->max_bytes = o->tape_bytes ? (double)o->tape_bytes : RG_PIECE_TAPE_BYTES;
    rg_back_lane_open(&p->back, backend, o->pool, o->n_threads);
    p->back.bf16 = o->bf16;
    p->tape = rg_tape_new(&p->back, rg_masters_weight, m, NULL, err);
    if (!p->tape) {
        rg_passes_free(p);
        return NULL;
    }
    return p;
}

rg_passes *rg_passes_new(rg_masters *m, const rg_backend *backend, const rg_passes_options *o, rg_error *err)
{
    return passes_of(rg_masters_model(m), m, backend, o, err);
}

rg_passes *rg_passes_of_model(const rg_model *m, const rg_backend *backend, const rg_passes_options *o, rg_error *err)
{
    return passes_of(m, NULL, backend, o, err);
}

rg_back_lane *rg_passes_lane(rg_passes *p)
{
    return &p->back;
}

void rg_passes_free(rg_passes *p)
{
    if (!p)
        return;
    p->backend->close(p->lane);
    rg_store_free(p->store);
    for (int i = 0; p->layers && i <= p->model->config.n_layers; i++)
        rg_tape_free(p->layers[i]);
    rg_free(p->layers);
    rg_tape_free(p->tape);
    rg_back_lane_close(&p->back);
    rg_slab_fini(&p->rows);
    rg_slab_fini(&p->logits_slab);
    if (p->routes)
        rg_routes_fini(p->routes);
    rg_free(p->routes);
    rg_free(p->share);
    rg_free(p->at);
    rg_free(p->spans);
    rg_free(p->ints);
    rg_free(p->pos);
    rg_free(p->tables);
    rg_free(p->lists);
    rg_free(p->list_of);
    rg_free(p);
}
