/* training.c -- see training.h. */
#include "plan/training.h"

#include <math.h>

#include "base/mem.h"
#include "ops/back/counted.h"

/* Measured (docs/PLAN.md): what products reach of the peak, of f32 and of bf16; bytes that a value, or a pair of
 * attention, moves in a step beside the products; bytes that a weight moves in an update: gradient, moments and weight
 * read and written, and its copy for products; what an operation takes besides, forward and backward, while threads
 * wait for each other; and bytes of the program, its tokenizer and texts. */
static const double PRODUCTS[2] = { 0.83, 0.90 }, VALUE_BYTES[2] = { 52, 70 }, WEIGHT_BYTES = 48, OPERATION_S = 150e-6,
                    PROGRAM_BYTES = 20e6;

/* What a piece of the batch costs. */
typedef struct piece {
    rg_back_count count;
    double kept, largest;        /* bytes of all layers' tapes, and of one */
    double values, most_values;  /* made by all layers, and by one */
    double forward_ops;
} piece;

/* Sequences of a piece, each from its beginning. */
static bool make_batch(rg_batch *b, int n_seqs, int length, rg_error *err)
{
    rg_span *spans = rg_array((size_t)n_seqs, sizeof *spans);

    if (!spans)
        return rg_fail_memory(err, (size_t)n_seqs * sizeof *spans);
    for (int i = 0; i < n_seqs; i++)
        spans[i] = (rg_span){ .first_row = i * length, .n_rows = length, .adapter = -1 };
    *b = (rg_batch){ .n_rows = n_seqs * length, .spans = spans, .n_spans = n_seqs };
    return true;
}

/* The largest of what was kept since the last reset. */
static void close_layer(piece *p)
{
    p->kept += p->count.kept_bytes;
    p->largest = fmax(p->largest, p->count.kept_bytes);
    p->most_values = fmax(p->most_values, p->count.values - p->values);
    p->values = p->count.values;
    rg_back_count_reset(&p->count);
}

static void count_piece(const rg_model *m, const rg_batch *batch, piece *p)
{
    rg_fwd f;

    *p = (piece){ 0 };
    rg_back_count_fwd(&f, &p->count, batch);
    rg_act *x = rg_model_embed(m, &f);
    close_layer(p);
    for (int i = 0; i < m->config.n_layers; i++) {
        rg_model_layer(m, &f, i, x);
        close_layer(p);
    }
    f.layer = -1;
    for (int first = 0; first < batch->n_rows; first += RG_PIECE_HEAD_ROWS) {
        const int left = batch->n_rows - first, n = left < RG_PIECE_HEAD_ROWS ? left : RG_PIECE_HEAD_ROWS;
        const int mark = rg_act_mark(&f);

        rg_model_logits(m, &f, rg_act_rows(&f, "head_in", n, x->cols));
        rg_act_release(&f, mark);
    }
    p->values = p->count.values;
    p->forward_ops = p->count.counter.total.ops;
}

static void find_memory(const rg_model *m, const rg_plan_machine *machine, const piece *p, const rg_batch *b,
                        rg_plan_trained *out)
{
    const rg_config *c = &m->config;
    const double row = (double)b->n_rows * rg_model_width(m) * sizeof(float), all = p->kept;

    out->recompute = all > RG_PIECE_TAPE_BYTES || (machine->memory_bytes > 0 && all > machine->memory_bytes / 4);
    out->weights = 2 * sizeof(float) * out->params;
    out->optimizer = 3 * sizeof(float) * out->params;
    out->tapes = out->recompute ? p->largest : all;
    out->kv = p->count.kv_bytes;
    out->rows = (c->n_layers + 2) * row;
    out->logits = 3.0 * RG_PIECE_HEAD_ROWS * c->vocab_size * sizeof(float);
    out->scratch = 2 * p->most_values * sizeof(float) + PROGRAM_BYTES;
    out->total = out->weights + out->optimizer + out->tapes + out->kv + out->rows + out->logits + out->scratch;
    out->of = machine->memory_bytes;
}

static void find_time(const rg_plan_machine *machine, const rg_plan_training *t, const piece *p, double pieces,
                      rg_plan_trained *out)
{
    const bool bf16 = (t->bf16 || machine->accelerator) && machine->m.roofs.bf16_ops_s > 0;
    const double peak = bf16 ? machine->m.roofs.bf16_ops_s : machine->m.roofs.f32_ops_s;
    const double bytes_s = machine->m.roofs.read_bytes_s;

    out->forward_ops = pieces * p->forward_ops * (out->recompute ? 2 : 1);
    out->ops = out->forward_ops + pieces * p->count.backward_ops;
    out->products_s = out->ops / (PRODUCTS[bf16] * peak);
    out->moved_s = pieces * p->values * VALUE_BYTES[bf16] * (out->recompute ? 4.0 / 3 : 1) / bytes_s;
    out->update_s = WEIGHT_BYTES * out->params / bytes_s;
    out->waits_s = machine->accelerator ? 0 : pieces * p->count.counter.n_ops * OPERATION_S;
    out->step_s = out->products_s + out->moved_s + out->update_s + out->waits_s;
    out->tokens_s = out->tokens / out->step_s;
    out->peak_share = out->lecture_ops / out->step_s / peak;
    out->run_tokens = t->run_tokens > 0 ? t->run_tokens : 20 * out->params;
    out->run_s = out->run_tokens / out->tokens_s;
}

bool rg_plan_train(const rg_model *m, const rg_plan_machine *machine, const rg_plan_training *t, rg_plan_trained *out,
                   rg_error *err)
{
    const int64_t most = RG_PIECE_TOKENS / t->length > 1 ? RG_PIECE_TOKENS / t->length : 1;
    const int64_t at_once = t->rows < most ? t->rows : most;
    rg_batch batch;
    piece p;

    *out = (rg_plan_trained){ .params = (double)m->weights.n_parameters };
    if (t->length < 2 || t->length > (1 << 20) || t->rows < 1 || t->micro < 1)
        return rg_fail(err, RG_E_USAGE, "a training step has rows of 2 to 1,048,576 ids, not %lld rows of %lld",
                       (long long)t->rows, (long long)t->length);
    if (!make_batch(&batch, (int)at_once, (int)t->length, err))
        return false;
    count_piece(m, &batch, &p);
    rg_free((void *)(uintptr_t)batch.spans);
    if (p.count.cannot) {
        *err = p.count.why;
        return false;
    }
    out->tokens = (double)(t->rows * t->micro * t->length);
    out->lecture_ops = 6 * out->params * out->tokens;
    find_memory(m, machine, &p, &batch, out);
    find_time(machine, t, &p, out->tokens / (double)(at_once * t->length), out);
    return true;
}
