/* Layers run one at a time give the logits of the whole model, whatever a family keeps between layers; and what an
 * expert's last matrix reads is what the layer makes of it. */
#include "support/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "shrink/stage.h"

enum { SAMPLES = 2, CTX = 70 };

static const rg_backend *best(void)
{
    const rg_backend *b = test_backend(0);

    for (int i = 0; test_backend(i); i++)
        b = test_backend(i);
    return b;
}

typedef struct summing {
    const int32_t *ids;
    int vocab;
    double loss[CTX];
} summing;

static void add_row(void *arg, int feed, int row, float *logits)
{
    summing *s = arg;
    double most = -INFINITY, sum = 0;

    (void)feed;
    for (int k = 0; k < s->vocab; k++)
        most = fmax(most, (double)logits[k]);
    for (int k = 0; k < s->vocab; k++)
        sum += exp((double)logits[k] - most);
    s->loss[row] = row + 1 < CTX ? most + log(sum) - (double)logits[s->ids[row + 1]] : 0;
}

/* The same of the model run as a whole. */
static double whole_loss(const char *folder, const int32_t *ids)
{
    test_rig_options o = { .backend = best(), .n_threads = 2, .exact = true, .max_rows = CTX, .max_seqs = SAMPLES,
                           .max_len = CTX };
    rg_error err = { 0 };
    test_model t;
    test_rig rig;
    double loss = 0;

    test_model_open(&t, test_data(folder), "f32");
    test_rig_open(&rig, &t, &o);
    for (int i = 0; i < SAMPLES; i++) {
        summing s = { ids + i * CTX, t.m->config.vocab_size, { 0 } };
        rg_seq *q = rg_seq_new(rig.states, CTX, 0, &err);
        assert_ok(q && rg_seq_grow(rig.states, q, CTX), err);
        q->rope = rg_config_rope(&t.m->config, CTX);
        test_rig_step(&rig, &(test_feed){ .seq = q, .ids = s.ids, .n = CTX }, 1, add_row, &s);
        for (int r = 0; r + 1 < CTX; r++)
            loss += s.loss[r] / (SAMPLES * (CTX - 1.0));
        rg_seq_free(rig.states, q);
    }
    test_rig_close(&rig);
    test_model_close(&t);
    return loss;
}

static void fill(int32_t *ids, int vocab)
{
    for (int i = 0; i < SAMPLES * CTX; i++)
        ids[i] = (i * 131 + i / 7) % vocab;
}

static void layers_make_the_model(void **state)
{
    static const char *const folders[] = { "llama", "gemma4", "mamba", "based", "gemma3n", "rwkv7", "mixtral",
                                           "recurrent-gemma", "gpt-oss" };

    (void)state;
    for (size_t f = 0; f < RG_LEN(folders); f++) {
        int32_t ids[SAMPLES * CTX];
        rg_error err = { 0 };
        double loss;
        rg_checkpoint *c = rg_checkpoint_open(test_data(folders[f]), RG_CKPT_DEFAULT, &err);
        assert_ok(c, err);
        rg_stage *s = rg_stage_open(c, &(rg_stage_options){ best(), 2, ids, SAMPLES, CTX, true }, &err);
        assert_ok(s, err);
        const rg_config *config = &rg_stage_model(s)->config;
        fill(ids, config->vocab_size);
        for (int i = 0; i < config->n_layers; i++) {
            assert_ok(rg_stage_enter(s, i, &err), err);
            assert_ok(rg_stage_pass(s, &(rg_pass){ .n_samples = 1 }, &err), err); /* changes nothing */
            assert_ok(rg_stage_pass(s, &(rg_pass){ .advance = true }, &err), err);
        }
        assert_ok(rg_stage_loss(s, &loss, &err), err);
        rg_stage_close(s);
        rg_checkpoint_close(c);
        double want = whole_loss(folders[f], ids);
        if (fabs(loss - want) > 1e-9 * want)
            fail_msg("%s: loss %.12g layer by layer, %.12g as a whole", folders[f], loss, want);
    }
}

/* ---- experts ----------------------------------------------------------------------------------------------------- */

enum { MOST_EXPERTS = 8 };

typedef struct seen {
    const rg_stage *stage;
    const rg_weight *router, *gate, *down;
    float *router_in;             /* [CTX, dim] */
    float *in[MOST_EXPERTS];      /* what each expert's last matrix reads */
    int64_t n[MOST_EXPERTS];
    float *attended, *after;
    int64_t dim;
} seen;

static float *copy(const float *from, int64_t n)
{
    float *to = malloc((size_t)n * sizeof *to);

    memcpy(to, from, (size_t)n * sizeof *to);
    return to;
}

static bool keep_reads(void *arg, int sample, const rg_read *reads, int n, rg_error *err)
{
    seen *s = arg;

    (void)err;
    (void)sample;
    for (int i = 0; i < n; i++) {
        if (reads[i].w[0] == s->router)
            s->router_in = copy(reads[i].rows, reads[i].n * reads[i].cols);
        if (reads[i].w[0] == s->down) {
            s->in[reads[i].mat] = copy(reads[i].rows, reads[i].n * reads[i].cols);
            s->n[reads[i].mat] = reads[i].n;
        }
    }
    return true;
}

static void keep_attended(void *arg, int sample, const float *rows, int64_t n)
{
    seen *s = arg;

    (void)sample;
    s->attended = copy(rows, n);
}

static void keep_after(void *arg, int sample, const float *before, const float *after, int64_t n, int64_t cols)
{
    seen *s = arg;

    (void)sample;
    (void)before;
    s->after = copy(after, n * cols);
    s->dim = cols;
}

static void dense(const rg_stage *s, const rg_weight *w, int64_t mat, const float *x, double *y)
{
    float *m = malloc((size_t)(w->rows * w->cols) * sizeof *m);

    rg_stage_get(s, w, mat, m);
    for (int64_t r = 0; r < w->rows; r++) {
        y[r] = 0;
        for (int64_t k = 0; k < w->cols; k++)
            y[r] += (double)m[r * w->cols + k] * (double)x[k];
    }
    free(m);
}

/* Mixtral: softmax over the two best logits. */
static void choose(const double *logits, int n, int best_of[2], double weight[2])
{
    best_of[0] = best_of[1] = -1;
    for (int e = 0; e < n; e++)
        if (best_of[0] < 0 || logits[e] > logits[best_of[0]]) {
            best_of[1] = best_of[0];
            best_of[0] = e;
        } else if (best_of[1] < 0 || logits[e] > logits[best_of[1]]) {
            best_of[1] = e;
        }
    weight[0] = 1 / (1 + exp(logits[best_of[1]] - logits[best_of[0]]));
    weight[1] = 1 - weight[0];
}

static void experts_read_what_the_layer_makes(void **state)
{
    int32_t ids[SAMPLES * CTX];
    rg_error err = { 0 };
    seen s = { 0 };
    int64_t at[MOST_EXPERTS] = { 0 };
    double off = 0, most = 0;
    rg_checkpoint *c = rg_checkpoint_open(test_data("mixtral"), RG_CKPT_DEFAULT, &err);

    (void)state;
    assert_ok(c, err);
    rg_stage *stage = rg_stage_open(c, &(rg_stage_options){ best(), 2, ids, 1, CTX, false }, &err);
    assert_ok(stage, err);
    const rg_model *m = rg_stage_model(stage);
    fill(ids, m->config.vocab_size);
    s.stage = stage;
    s.router = rg_weights_get(&m->weights, W_ROUTER, 0);
    s.down = rg_weights_get(&m->weights, W_DOWN_EXPERTS, 0);
    assert_ok(rg_stage_enter(stage, 0, &err), err);
    assert_ok(rg_stage_pass(stage, &(rg_pass){ .arg = &s, .read = keep_reads, .through = keep_after }, &err), err);
    assert_ok(rg_stage_pass(stage, &(rg_pass){ .arg = &s, .reached = keep_attended,
                                               .until = rg_weights_get(&m->weights, W_O_PROJ, 0) }, &err), err);
    assert_true(s.router_in && s.attended && s.after && s.down->rows == s.dim);
    for (int r = 0; r < CTX; r++) {
        double logits[MOST_EXPERTS], weight[2], y[256], sum[256] = { 0 };
        int chosen[2];
        dense(stage, s.router, 0, s.router_in + r * s.dim, logits);
        choose(logits, (int)s.router->rows, chosen, weight);
        for (int k = 0; k < 2; k++) {
            const int e = chosen[k];
            assert_true(at[e] < s.n[e]);
            dense(stage, s.down, e, s.in[e] + at[e]++ * s.down->cols, y);
            for (int64_t i = 0; i < s.dim; i++)
                sum[i] += weight[k] * y[i];
        }
        for (int64_t i = 0; i < s.dim; i++) {
            double want = (double)s.after[r * s.dim + i] - (double)s.attended[r * s.dim + i];
            off = fmax(off, fabs(sum[i] - want));
            most = fmax(most, fabs(want));
        }
    }
    if (!(off < 1e-4 * most))
        fail_msg("off by %g of %g", off, most);
    for (int e = 0; e < MOST_EXPERTS; e++)
        free(s.in[e]);
    free(s.router_in);
    free(s.attended);
    free(s.after);
    rg_stage_close(stage);
    rg_checkpoint_close(c);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(layers_make_the_model),
                                        cmocka_unit_test(experts_read_what_the_layer_makes) };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
