/* lane.c -- steps of the far back end on the host: the text runs here, and what it asks for is sent.
 *
 * A step is one message, or several if a reader looks at values on the way: its batch, then items, each an operation or
 * something that needs an answer.  What is made of activations between two items goes with the second. */
#include "support/far/host.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

typedef struct lane {
    rg_lane base; /* first */
    rg_reader reader;
    rg_pool *pool;
    uint32_t number;
    const rg_step *step;
    rg_fwd f;
    far_wire wire, rows; /* of the step, and of what came of it */
    bool begun;          /* some of the step has been sent */
    int vocab, dim, labels;
    atomic_int next;     /* of the wanted rows, to be delivered */
} lane;

static lane *lane_of(const rg_reader *r)
{
    return (lane *)(uintptr_t)((const char *)r - offsetof(lane, reader));
}

bool far_measure(const rg_backend *b, const rg_step *step, size_t *bytes, rg_error *err)
{
    (void)b;
    return far_ref()->measure(far_ref(), step, bytes, err);
}

/* ---- the text ---------------------------------------------------------------------------------------------------- */

/* The head of an item: where the text is, and activations since the one before. */
static void put_head(lane *l, rg_fwd *f, far_item item)
{
    far_codec c = { .wire = &l->wire };
    const int32_t known = f->n_known, n = f->n_acts, layer = f->layer;

    FAR_PUT(&l->wire, item);
    FAR_PUT(&l->wire, layer);
    FAR_PUT(&l->wire, known);
    FAR_PUT(&l->wire, n);
    for (int i = known; i < n; i++)
        far_put_act(&c, &f->acts[i]);
    f->n_known = n;
}

/* Rows that are given are as long as the activation that they are put in. */
static void put_given(lane *l, const rg_batch *b, size_t cols)
{
    l->wire.kind = FAR_FEATURES;
    for (int32_t row = 0; row < b->n_rows; row++)
        if (b->token[row] == -1)
            far_put(&l->wire, b->given[row], cols * sizeof(float));
    l->wire.kind = FAR_COMMANDS;
}

static void run(const rg_reader *self, rg_fwd *f, const rg_op *op)
{
    lane *l = lane_of(self);
    far_codec c = { .wire = &l->wire, .f = f, .batch = f->batch, .owner = far_backend(),
                    .constant = far_constant };

    far_note_op(op->kind);
    if (op->kind == RG_OP_NOTE)
        return;
    put_head(l, f, FAR_ITEM_OP);
    far_put_op(&c, op);
    if (far_reads_given(op)) {
        const bool there = f->batch->given;

        FAR_PUT(&l->wire, there);
        if (there)
            put_given(l, f->batch, (size_t)op->out[0]->cols);
    }
}

/* Send what there is of the step, and get the answer to its last item. */
static void ask(lane *l)
{
    const far_verb verb = l->begun ? FAR_step_more : FAR_step;

    l->begun = true;
    far_ask(verb, &l->wire);
}

static void put_number(lane *l, const rg_fwd *f, const rg_act *a)
{
    const int32_t number = (int32_t)(a - f->acts);

    FAR_PUT(&l->wire, number);
}

static void begin_more(lane *l)
{
    far_reset(&l->wire);
    FAR_PUT(&l->wire, l->number);
}

static void fetch(const rg_reader *self, rg_fwd *f, const rg_act *a, rg_take_row *take, void *arg)
{
    lane *l = lane_of(self);
    const size_t bytes = (size_t)a->cols * sizeof(float);

    put_head(l, f, FAR_ITEM_FETCH);
    put_number(l, f, a);
    ask(l);
    l->wire.kind = FAR_VALUES;
    float *row = malloc(bytes);
    for (int i = 0; i < a->rows; i++) {
        far_get(&l->wire, row, bytes);
        take(arg, i, row);
    }
    free(row);
    far_add_counts(l->wire.bytes);
    begin_more(l);
}

static void put(const rg_reader *self, rg_fwd *f, rg_act *a, rg_give_row *give, void *arg)
{
    lane *l = lane_of(self);
    const size_t bytes = (size_t)a->cols * sizeof(float);
    float *row = malloc(bytes);

    put_head(l, f, FAR_ITEM_PUT);
    put_number(l, f, a);
    l->wire.kind = FAR_VALUES;
    for (int i = 0; i < a->rows; i++) {
        give(arg, i, row);
        far_put(&l->wire, row, bytes);
    }
    l->wire.kind = FAR_COMMANDS;
    free(row);
}

static void meet(const rg_reader *self, rg_fwd *f)
{
    (void)self, (void)f;
}

/* ---- a lane ------------------------------------------------------------------------------------------------------ */

rg_lane *far_lane_open(const rg_backend *b, const rg_lane_options *o, rg_error *err)
{
    lane *l = calloc(1, sizeof *l);
    far_wire w = { 0 };

    l->base = (rg_lane){ .backend = b, .reader = &l->reader };
    l->reader = (rg_reader){ .run = run, .fetch = fetch, .put = put, .meet = meet };
    l->pool = o->pool;
    l->number = far_next_number();
    FAR_PUT(&w, l->number);
    far_put_sizes(&w, &o->sizes);
    FAR_PUT(&w, o->activation_bytes);
    far_ask(FAR_lane_open, &w);
    if (!far_succeeded(&w, err)) {
        free(l);
        l = NULL;
    }
    far_fini(&w);
    return l ? &l->base : NULL;
}

void far_lane_close(rg_lane *lane_)
{
    lane *l = (lane *)lane_;
    far_wire w = { 0 };

    if (!l)
        return;
    FAR_PUT(&w, l->number);
    far_tell(FAR_lane_close, &w);
    far_fini(&w);
    far_fini(&l->wire);
    far_fini(&l->rows);
    free(l);
}

static void put_outputs(lane *l, const rg_fwd *f, const rg_outputs *out)
{
    const rg_act *const all[] = { out->logits, out->hidden, out->scores };
    int *const cols[] = { &l->vocab, &l->dim, &l->labels };

    for (size_t i = 0; i < RG_LEN(all); i++) {
        const int32_t number = all[i] ? (int32_t)(all[i] - f->acts) : -1;

        FAR_PUT(&l->wire, number);
        *cols[i] = all[i] ? all[i]->cols : 0;
    }
}

void far_lane_submit(rg_lane *lane_, const rg_step *s)
{
    static const far_groups no_groups;
    lane *l = (lane *)lane_;
    const uint32_t state = s->state ? s->state->number : 0;
    const bool wants = s->sink;

    far_begin_step();
    l->step = s;
    l->begun = false;
    far_reset(&l->wire);
    FAR_PUT(&l->wire, l->number);
    FAR_PUT(&l->wire, state);
    FAR_PUT(&l->wire, wants);
    far_put_step(&l->wire, s);
    far_put_batch(&l->wire, s->batch, s->state ? &s->state->groups : &no_groups);
    l->f = (rg_fwd){ .reader = s->reader, .batch = s->batch, .exact = s->exact, .llm_int8 = s->llm_int8,
                     .bf16 = s->bf16, .attention_sparsity = s->attention_sparsity, .layer = -1, .n_threads = 1 };
    rg_mem_forbid();
    const rg_outputs out = s->text(s->model, &l->f);
    rg_mem_permit();
    put_head(l, &l->f, FAR_ITEM_END);
    put_outputs(l, &l->f, &out);
    far_tell(l->begun ? FAR_step_more : FAR_step, &l->wire);
    far_end_step();
}

/* ---- its rows ---------------------------------------------------------------------------------------------------- */

/* Rows that are wanted, one after the other: logits, hidden states of runs, scores. */
static void deliver(void *arg, int thread)
{
    lane *l = arg;
    const rg_batch *b = l->step->batch;
    const rg_sink *sink = l->step->sink;
    float *rows = (float *)(void *)(l->rows.data + l->rows.at);
    const int n_all = b->n_logits + b->n_hidden + b->n_scores;

    for (int i; (i = atomic_fetch_add(&l->next, 1)) < n_all;) {
        size_t at = (size_t)b->n_logits * (size_t)l->vocab;
        int run_number = i - b->n_logits;

        if (i < b->n_logits) {
            sink->logits(sink->arg, thread, i, rows + (size_t)i * (size_t)l->vocab);
            continue;
        }
        for (int k = 0; k < b->n_hidden && k < run_number; k++)
            at += (size_t)b->hidden[k].n * (size_t)l->dim;
        if (run_number < b->n_hidden) {
            sink->hidden(sink->arg, thread, run_number, rows + at, (size_t)l->dim);
            continue;
        }
        run_number -= b->n_hidden;
        sink->scores(sink->arg, thread, run_number, rows + at + (size_t)run_number * (size_t)l->labels);
    }
}

void far_lane_wait(rg_lane *lane_)
{
    lane *l = (lane *)lane_;
    const rg_batch *b = l->step->batch;

    far_reset(&l->rows);
    FAR_PUT(&l->rows, l->number);
    far_ask(FAR_step_wait, &l->rows);
    if (b->failed) {
        uint8_t *failed = far_get_in_place(&l->rows, (size_t)b->n_rows);

        for (int32_t i = 0; i < b->n_rows; i++)
            b->failed[i] |= failed[i];
    }
    l->rows.at = (l->rows.at + sizeof(float) - 1) / sizeof(float) * sizeof(float); /* as it was put */
    if (!l->step->sink)
        return;
    l->rows.bytes[FAR_ROWS] = l->rows.n - l->rows.at;
    far_add_counts(l->rows.bytes);
    atomic_store(&l->next, 0);
    rg_pool_run(l->pool, l->step->n_threads, deliver, l);
}
