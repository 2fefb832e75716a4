/* device_step.c -- steps in the far back end's process: `ref` runs a text that makes the activations and runs the
 * operations which messages say. */
#include "support/far/device.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { STRUCT_BYTES = 1 << 20 }; /* of one operation, all of them */

struct far_lane {
    rg_lane *lane; /* ref's */
    rg_pool *pool;
    uint32_t number;
    uint8_t *memory; /* of structs, [STRUCT_BYTES] */
    far_wire *in;    /* the message that the step is read from */
    far_verb verb;   /* and what it is answered as */
    far_batch batch;
    far_state *state;
    rg_outputs out;
    far_wire rows; /* what was wanted */
};

void far_ask_lane_open(far_wire *in, far_wire *out)
{
    far_lane *l = calloc(1, sizeof *l);
    rg_lane_options o = { 0 };
    rg_error err = { 0 };
    bool ok = true;

    FAR_GET(in, l->number);
    far_get_sizes(in, &o.sizes);
    FAR_GET(in, o.activation_bytes);
    o.sizes.n_threads = 1; /* a step is read as it is computed */
    o.pool = l->pool = rg_pool_new(1, &err);
    l->memory = malloc(STRUCT_BYTES);
    l->lane = o.pool ? far_ref()->open(far_ref(), &o, &err) : NULL;
    if (l->lane) {
        far_set(l->number, l);
        FAR_PUT(out, ok);
        return;
    }
    far_put_failure(out, &err);
    rg_pool_free(l->pool);
    free(l->memory);
    free(l);
}

void far_ask_lane_close(far_wire *in)
{
    uint32_t number;

    FAR_GET(in, number);
    far_lane *l = far_at(number);
    far_ref()->close(l->lane);
    rg_pool_free(l->pool);
    far_batch_fini(&l->batch);
    far_fini(&l->rows);
    free(l->memory);
    free(l);
    far_set(number, NULL);
}

/* ---- the text ---------------------------------------------------------------------------------------------------- */

/* Activations since the item before: what was released, and what is new. */
static far_item get_head(far_lane *l, rg_fwd *f)
{
    far_codec c = { .wire = l->in };
    int32_t known, n, layer;
    far_item item;

    FAR_GET(l->in, item);
    FAR_GET(l->in, layer);
    FAR_GET(l->in, known);
    FAR_GET(l->in, n);
    rg_act_release(f, known);
    for (int i = known; i < n; i++) {
        rg_act a;

        far_get_act(&c, &a);
        f->layer = a.layer;
        if (a.shown >= 0)
            rg_act_view(f, "far", &f->acts[a.shown], a.first, a.cols);
        else
            rg_act_rows(f, "far", a.rows, a.cols);
    }
    f->layer = layer;
    return item;
}

/* Rows that the batch gives, where they lie in the message. */
static void get_given(far_lane *l, size_t cols)
{
    rg_batch *b = &l->batch.batch;
    bool there;

    FAR_GET(l->in, there);
    if (!there)
        return;
    free(l->batch.given);
    l->batch.given = calloc((size_t)b->n_rows, sizeof *l->batch.given);
    for (int32_t row = 0; row < b->n_rows; row++)
        if (b->token[row] == -1)
            l->batch.given[row] = far_get_in_place(l->in, cols * sizeof(float));
    b->given = l->batch.given;
}

static void compute(far_lane *l, rg_fwd *f)
{
    far_codec c = { .wire = l->in, .f = f, .batch = f->batch, .constant_at = far_constant_at,
                    .placed_at = far_placed_at, .values_at = far_values_at, .memory = l->memory,
                    .memory_bytes = STRUCT_BYTES };
    rg_op op;

    far_get_op(&c, &op);
    if (far_reads_given(&op))
        get_given(l, (size_t)op.out[0]->cols);
    f->reader->run(f->reader, f, &op);
}

static rg_act *next_act(far_lane *l, rg_fwd *f)
{
    int32_t number;

    FAR_GET(l->in, number);
    RG_ASSERT(number < f->n_acts);
    return number < 0 ? NULL : &f->acts[number];
}

typedef struct moved {
    far_wire *wire;
    size_t bytes; /* of a row */
} moved;

static void take_row(void *arg, int row, const float *x)
{
    const moved *m = arg;

    (void)row;
    far_put(m->wire, x, m->bytes);
}

static void give_row(void *arg, int row, float *x)
{
    const moved *m = arg;

    (void)row;
    far_get(m->wire, x, m->bytes);
}

/* Answer with the rows, and wait for what follows. */
static void fetch(far_lane *l, rg_fwd *f)
{
    far_wire out = { 0 };
    const rg_act *a = next_act(l, f);
    uint32_t number;

    rg_act_fetch(f, a, take_row, &(moved){ &out, (size_t)a->cols * sizeof(float) });
    far_answer(l->verb, &out);
    far_fini(&out);
    rg_mem_permit(); /* of what others ask in between */
    far_serve_until(l->verb = FAR_step_more, l->in);
    rg_mem_forbid();
    FAR_GET(l->in, number);
    RG_ASSERT(number == l->number);
}

static void put(far_lane *l, rg_fwd *f)
{
    rg_act *a = next_act(l, f);

    rg_act_put(f, a, give_row, &(moved){ l->in, (size_t)a->cols * sizeof(float) });
}

static rg_outputs text(const void *model, rg_fwd *f)
{
    far_lane *l = (far_lane *)(uintptr_t)model;

    for (;;)
        switch (get_head(l, f)) {
        case FAR_ITEM_OP:
            compute(l, f);
            break;
        case FAR_ITEM_FETCH:
            fetch(l, f);
            break;
        case FAR_ITEM_PUT:
            put(l, f);
            break;
        case FAR_ITEM_END:
            l->out.logits = next_act(l, f);
            l->out.hidden = next_act(l, f);
            l->out.scores = next_act(l, f);
            return l->out;
        }
}

/* ---- wanted rows, in their order --------------------------------------------------------------------------------- */

static void keep_logits(void *arg, int thread, int i, float *logits)
{
    far_lane *l = arg;

    (void)thread, (void)i;
    far_put(&l->rows, logits, (size_t)l->out.logits->cols * sizeof *logits);
}

static void keep_hidden(void *arg, int thread, int i, const float *rows, size_t stride)
{
    far_lane *l = arg;

    (void)thread;
    for (int32_t r = 0; r < l->batch.batch.hidden[i].n; r++)
        far_put(&l->rows, rows + (size_t)r * stride, (size_t)l->out.hidden->cols * sizeof *rows);
}

static void keep_scores(void *arg, int thread, int i, const float *scores)
{
    far_lane *l = arg;

    (void)thread, (void)i;
    far_put(&l->rows, scores, (size_t)l->out.scores->cols * sizeof *scores);
}

/* What failed is known at the end, and stands before the rows: room is left for it. */
void far_ask_step(far_wire *in)
{
    static const far_groups no_groups;
    const rg_sink sink = { .logits = keep_logits, .hidden = keep_hidden, .scores = keep_scores };
    static const float zeros[1];
    rg_step step;
    uint32_t number, state;
    bool wants;

    FAR_GET(in, number);
    far_lane *l = far_at(number);
    FAR_GET(in, state);
    FAR_GET(in, wants);
    far_get_step(in, &step);
    l->state = state ? far_at(state) : NULL;
    far_batch_fini(&l->batch);
    far_get_batch(in, &l->batch, l->state ? &l->state->groups : &no_groups);
    l->in = in;
    l->verb = FAR_step;
    rg_sink to_rows = sink;
    to_rows.arg = l;
    step.text = text;
    step.model = l;
    step.batch = &l->batch.batch;
    step.reader = l->lane->reader;
    step.n_threads = 1;
    step.state = l->state ? l->state->memory : NULL;
    step.sink = wants ? &to_rows : NULL;
    far_reset(&l->rows);
    const size_t n_failed = l->batch.failed ? (size_t)l->batch.batch.n_rows : 0;
    if (n_failed)
        memset(far_room(&l->rows, n_failed), 0, n_failed);
    far_put(&l->rows, zeros, (sizeof(float) - n_failed % sizeof(float)) % sizeof(float));
    far_ref()->submit(l->lane, &step);
    far_ref()->wait(l->lane);
    if (n_failed)
        memcpy(l->rows.data, l->batch.failed, n_failed);
}

void far_ask_step_wait(far_wire *in, far_wire *out)
{
    uint32_t number;

    FAR_GET(in, number);
    const far_lane *l = far_at(number);
    far_put(out, l->rows.data, l->rows.n);
}
