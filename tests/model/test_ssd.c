/* test_ssd.c -- Mamba-2's mixer against its definition, written down here in double, in settings that no golden has: odd
 * sizes, biases, bounds of dt, the norm on either side of the gate, in groups, or none, multipliers, a tied head.
 *
 * The models are Falcon-H1's, whose attention and MLP add nothing: their last matrices are 0. */
#include "support/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/rng.h"

enum { WIDTH = 24, IDS = 40, ROWS = 21, MAX_TENSORS = 32 };

typedef struct settings {
    int heads, head_dim, d_state, groups, taps;
    bool conv_bias, in_bias, out_bias, norm, before, tied;
    const char *limits;
    double dt_min, dt_max;
    double in, out, times[5], embedding, head;
} settings;

#define ONES .in = 1, .out = 1, .times = { 1, 1, 1, 1, 1 }, .embedding = 1, .head = 1
static const settings cases[] = {
    { 4, 8, 16, 1, 4, .conv_bias = true, .limits = "null", .dt_max = 1e30, ONES },
    { 3, 5, 7, 3, 2, .in_bias = true, .out_bias = true, .norm = true, .limits = "[0, Infinity]", .dt_max = 1e30, ONES },
    { 6, 12, 9, 2, 4, .conv_bias = true, .norm = true, .before = true, .tied = true, .limits = "[0.3, 0.9]", .dt_min = 0.3,
      .dt_max = 0.9, ONES },
    { 2, 40, 33, 1, 1, .conv_bias = true, .out_bias = true, .norm = true, .limits = "[0.5, Infinity]", .dt_min = 0.5,
      .dt_max = 1e30, .in = 1.25, .out = 0.7, .times = { 0.7, 0.9, 0.8, 1.2, 0.6 }, .embedding = 1.5, .head = 0.5 },
};

/* ---- a checkpoint of random weights ------------------------------------------------------------------------------ */

typedef struct tensor {
    const char *name;
    int rows, cols;
    float *values;
} tensor;

typedef struct model {
    const settings *s;
    tensor all[MAX_TENSORS];
    int n;
    rg_rng rng;
} model;

/* One more tensor of values around `middle`; 0 for both: of zeros.  rows 0: a vector. */
static void add(model *m, const char *name, int rows, int cols, float middle, float spread)
{
    size_t n = (size_t)(rows ? rows : 1) * (size_t)cols;
    tensor *t = &m->all[m->n++];

    assert_true(m->n <= MAX_TENSORS);
    *t = (tensor){ name, rows, cols, malloc(n * sizeof(float)) };
    for (size_t i = 0; i < n; i++)
        t->values[i] = middle + spread * rg_rng_normal(&m->rng);
}

static const float *values(const model *m, const char *name)
{
    for (int i = 0; i < m->n; i++)
        if (!strcmp(m->all[i].name, name))
            return m->all[i].values;
    return NULL;
}

#define LAYER "model.layers.0."
static void make_weights(model *m)
{
    const settings *s = m->s;
    const int inner = s->heads * s->head_dim, channels = inner + 2 * s->groups * s->d_state;
    const int rows = inner + channels + s->heads;

    add(m, "model.embed_tokens.weight", IDS, WIDTH, 0, 1);
    if (!s->tied)
        add(m, "lm_head.weight", IDS, WIDTH, 0, 1);
    add(m, "model.final_layernorm.weight", 0, WIDTH, 1, 0.2f);
    add(m, LAYER "input_layernorm.weight", 0, WIDTH, 1, 0.2f);
    add(m, LAYER "pre_ff_layernorm.weight", 0, WIDTH, 1, 0.2f);
    add(m, LAYER "mamba.in_proj.weight", rows, WIDTH, 0, 0.3f);
    if (s->in_bias)
        add(m, LAYER "mamba.in_proj.bias", 0, rows, 0, 0.3f);
    add(m, LAYER "mamba.conv1d.weight", channels, s->taps, 0, 0.5f);
    if (s->conv_bias)
        add(m, LAYER "mamba.conv1d.bias", 0, channels, 0, 0.3f);
    add(m, LAYER "mamba.dt_bias", 0, s->heads, -1, 1);
    add(m, LAYER "mamba.A_log", 0, s->heads, -1, 0.5f);
    add(m, LAYER "mamba.D", 0, s->heads, 1, 0.5f);
    if (s->norm)
        add(m, LAYER "mamba.norm.weight", 0, inner, 1, 0.3f);
    add(m, LAYER "mamba.out_proj.weight", WIDTH, inner, 0, 0.5f);
    if (s->out_bias)
        add(m, LAYER "mamba.out_proj.bias", 0, WIDTH, 0, 0.5f);
    add(m, LAYER "self_attn.q_proj.weight", 16, WIDTH, 0, 1);
    add(m, LAYER "self_attn.k_proj.weight", 8, WIDTH, 0, 1);
    add(m, LAYER "self_attn.v_proj.weight", 8, WIDTH, 0, 1);
    add(m, LAYER "self_attn.o_proj.weight", WIDTH, 16, 0, 0);
    add(m, LAYER "feed_forward.gate_proj.weight", 32, WIDTH, 0, 1);
    add(m, LAYER "feed_forward.up_proj.weight", 32, WIDTH, 0, 1);
    add(m, LAYER "feed_forward.down_proj.weight", WIDTH, 32, 0, 0);
}

static void write_config(const settings *s, const char *path)
{
    const char *const bools[] = { "false", "true" };
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fprintf(f, "{\"architectures\": [\"FalconH1ForCausalLM\"], \"hidden_size\": %d, \"vocab_size\": %d, \"num_hidden_layers\": 1,"
               " \"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"head_dim\": 8, \"intermediate_size\": 32,"
               " \"rms_norm_eps\": 0.001, \"mamba_d_ssm\": %d, \"mamba_d_head\": \"auto\", \"mamba_n_heads\": %d,",
            WIDTH, IDS, s->heads * s->head_dim, s->heads);
    fprintf(f, " \"mamba_d_state\": %d, \"mamba_n_groups\": %d, \"mamba_d_conv\": %d, \"time_step_limit\": %s,"
               " \"mamba_rms_norm\": %s, \"mamba_norm_before_gate\": %s, \"mamba_conv_bias\": %s, \"mamba_proj_bias\": %s,"
               " \"projectors_bias\": %s,",
            s->d_state, s->groups, s->taps, s->limits, bools[s->norm], bools[s->before], bools[s->conv_bias],
            bools[s->in_bias], bools[s->out_bias]);
    fprintf(f, " \"tie_word_embeddings\": %s, \"ssm_in_multiplier\": %g, \"ssm_out_multiplier\": %g, \"embedding_multiplier\": %g,"
               " \"lm_head_multiplier\": %g, \"ssm_multipliers\": [%g, %g, %g, %g, %g]}",
            bools[s->tied], s->in, s->out, s->embedding, s->head, s->times[0], s->times[1], s->times[2], s->times[3],
            s->times[4]);
    assert_int_equal(fclose(f), 0);
}

/* Its folder. */
static const char *write_model(const model *m, const char *name)
{
    const char *dir = test_scratch(name);
    char path[600];
    rg_error err = { 0 };

    assert_ok(rg_dir_make(dir, &err), err);
    snprintf(path, sizeof path, "%s/config.json", dir);
    write_config(m->s, path);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    rg_ckpt_writer *w = rg_safetensors_create(path, &err);
    assert_ok(w, err);
    for (int i = 0; i < m->n; i++) {
        const int64_t shape[2] = { m->all[i].rows, m->all[i].cols };
        assert_ok(rg_ckpt_declare(w, m->all[i].name, RG_F32, 1 + (shape[0] > 0), shape + (shape[0] == 0), &err), err);
    }
    for (int i = 0; i < m->n; i++) {
        const tensor *t = &m->all[i];
        assert_ok(rg_ckpt_write(w, t->values, (size_t)(t->rows ? t->rows : 1) * (size_t)t->cols * sizeof(float), &err), err);
    }
    assert_ok(rg_ckpt_commit(w, &err), err);
    return dir;
}

/* ---- the definition ---------------------------------------------------------------------------------------------- */

static double silu(double x)
{
    return x / (1 + exp(-x));
}

/* y = x / rms(x) * w. */
static void norm(double *y, const double *x, const float *w, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += x[i] * x[i];
    for (int i = 0; i < n; i++)
        y[i] = x[i] / sqrt(sum / n + 0.001) * (double)w[i];
}

static void multiply(double *y, const double *x, const float *w, const float *b, int rows, int cols)
{
    for (int r = 0; r < rows; r++) {
        y[r] = b ? (double)b[r] : 0;
        for (int c = 0; c < cols; c++)
            y[r] += (double)w[r * cols + c] * x[c];
    }
}

/* z, the convolved x, B and C, and dt of all rows. */
static void prepare(const model *m, double x[ROWS][WIDTH], double *z, double *u, double *dt)
{
    const settings *s = m->s;
    const int inner = s->heads * s->head_dim, groups = s->groups * s->d_state, channels = inner + 2 * groups;
    const int rows = inner + channels + s->heads, ends[5] = { inner, 2 * inner, 2 * inner + groups, inner + channels, rows };
    const float *taps = values(m, LAYER "mamba.conv1d.weight"), *bias = values(m, LAYER "mamba.conv1d.bias");
    double *in = calloc((size_t)rows * ROWS, sizeof *in), h[WIDTH];

    for (int t = 0; t < ROWS; t++) {
        double *row = in + (size_t)t * (size_t)rows;

        norm(h, x[t], values(m, LAYER "input_layernorm.weight"), WIDTH);
        for (int i = 0; i < WIDTH; i++)
            h[i] *= s->in;
        multiply(row, h, values(m, LAYER "mamba.in_proj.weight"), values(m, LAYER "mamba.in_proj.bias"), rows, WIDTH);
        for (int i = 0, part = 0; i < rows; i++) {
            part += i == ends[part];
            row[i] *= s->times[part];
        }
        memcpy(z + (size_t)t * (size_t)inner, row, (size_t)inner * sizeof *z);
        for (int c = 0; c < channels; c++) {
            double sum = bias ? (double)bias[c] : 0;
            for (int j = 0; j < s->taps; j++)
                if (t - (s->taps - 1) + j >= 0)
                    sum += (double)taps[c * s->taps + j] * in[(t - (s->taps - 1) + j) * rows + inner + c];
            u[t * channels + c] = silu(sum);
        }
        for (int k = 0; k < s->heads; k++) {
            double d = log1p(exp(row[inner + channels + k] + (double)values(m, LAYER "mamba.dt_bias")[k]));
            dt[t * s->heads + k] = fmin(fmax(d, s->dt_min), s->dt_max);
        }
    }
    free(in);
}

/* The recurrence: y of all rows. */
static void scan(const model *m, const double *u, const double *dt, double *y)
{
    const settings *s = m->s;
    const int inner = s->heads * s->head_dim, groups = s->groups * s->d_state, channels = inner + 2 * groups;
    double *state = calloc((size_t)s->d_state * (size_t)inner, sizeof *state);

    for (int t = 0; t < ROWS; t++) {
        for (int i = 0; i < inner; i++) {
            const int k = i / s->head_dim, g = k / (s->heads / s->groups) * s->d_state;
            const double *b = u + t * channels + inner + g, *c = b + groups, x = u[t * channels + i], d = dt[t * s->heads + k];
            const double decay = exp(-exp((double)values(m, LAYER "mamba.A_log")[k]) * d);
            double sum = (double)values(m, LAYER "mamba.D")[k] * x;

            for (int n = 0; n < s->d_state; n++) {
                double *at = &state[n * inner + i];
                *at = decay * *at + d * b[n] * x;
                sum += c[n] * *at;
            }
            y[t * inner + i] = sum;
        }
    }
    free(state);
}

/* Logits [ROWS, IDS] of ids. */
static void define(const model *m, const int32_t *ids, double *logits)
{
    const settings *s = m->s;
    const int inner = s->heads * s->head_dim, channels = inner + 2 * s->groups * s->d_state, group = inner / s->groups;
    const float *embed = values(m, "model.embed_tokens.weight"), *w = values(m, LAYER "mamba.norm.weight");
    double x[ROWS][WIDTH], *z = calloc((size_t)inner * ROWS, sizeof *z), *u = calloc((size_t)channels * ROWS, sizeof *u);
    double *dt = calloc((size_t)s->heads * ROWS, sizeof *dt), *y = calloc((size_t)inner * ROWS, sizeof *y), added[WIDTH], h[WIDTH];

    for (int t = 0; t < ROWS; t++)
        for (int i = 0; i < WIDTH; i++)
            x[t][i] = (double)embed[ids[t] * WIDTH + i] * s->embedding;
    prepare(m, x, z, u, dt);
    scan(m, u, dt, y);
    for (int t = 0; t < ROWS; t++) {
        double *row = y + (size_t)t * (size_t)inner;

        for (int i = 0; i < inner && !s->before; i++)
            row[i] *= silu(z[t * inner + i]);
        for (int g = 0; g < s->groups && s->norm; g++)
            norm(row + g * group, row + g * group, w + g * group, group);
        for (int i = 0; i < inner && s->before; i++)
            row[i] *= silu(z[t * inner + i]);
        multiply(added, row, values(m, LAYER "mamba.out_proj.weight"), values(m, LAYER "mamba.out_proj.bias"), WIDTH, inner);
        for (int i = 0; i < WIDTH; i++)
            x[t][i] += s->out * added[i];
        norm(h, x[t], values(m, "model.final_layernorm.weight"), WIDTH);
        multiply(logits + t * IDS, h, s->tied ? embed : values(m, "lm_head.weight"), NULL, IDS, WIDTH);
        for (int i = 0; i < IDS; i++)
            logits[t * IDS + i] *= s->head;
    }
    free(z), free(u), free(dt), free(y);
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

typedef struct job {
    int first;
    float logits[ROWS * IDS];
} job;

static void keep_row(void *arg, int feed, int row, float *logits)
{
    job *j = arg;

    (void)feed;
    memcpy(j->logits + (size_t)(j->first + row) * IDS, logits, IDS * sizeof *logits);
}

/* In steps of 8 rows. */
static void compute(const char *path, const rg_backend *backend, const int32_t *ids, job *j)
{
    test_model t;
    test_rig rig;
    rg_error err = { 0 };

    test_model_open(&t, path, "f32");
    test_rig_open(&rig, &t, &(test_rig_options){ .backend = backend, .n_threads = 2, .exact = true, .max_rows = 8, .max_seqs = 1,
                                                 .max_len = 64 });
    rg_seq *q = rg_seq_new(rig.states, ROWS, 0, &err);
    assert_ok(q, err);
    for (j->first = 0; j->first < ROWS; j->first += 8) {
        int n = ROWS - j->first < 8 ? ROWS - j->first : 8;

        assert_true(rg_seq_grow(rig.states, q, q->length + n));
        test_rig_step(&rig, &(test_feed){ .seq = q, .ids = ids + j->first, .n = n }, 1, keep_row, j);
        rg_seq_advance(rig.states, q, n, 0, NULL);
    }
    rg_seq_free(rig.states, q);
    test_rig_close(&rig);
    test_model_close(&t);
}

static void check(const settings *s, int number)
{
    static double want[ROWS * IDS];
    model m = { .s = s, .rng = { 77 + (uint64_t)number } };
    int32_t ids[ROWS];
    char name[32];
    double most = 0;

    for (int i = 0; i < ROWS; i++)
        ids[i] = (int32_t)rg_rng_below(&m.rng, IDS);
    make_weights(&m);
    define(&m, ids, want);
    for (int i = 0; i < ROWS * IDS; i++)
        most = fmax(most, fabs(want[i]));
    snprintf(name, sizeof name, "ssd-%d", number);
    const char *path = write_model(&m, name);
    for (int b = 0; test_backend(b); b++) {
        job j = { 0 };

        compute(path, test_backend(b), ids, &j);
        for (int i = 0; i < ROWS * IDS; i++)
            if (!(fabs((double)j.logits[i] - want[i]) <= 2e-5 * most))
                fail_msg("case %d on %s: logit %d of row %d is %g and not %g", number, test_backend(b)->name, i % IDS,
                         i / IDS, (double)j.logits[i], want[i]);
    }
    for (int i = 0; i < m.n; i++)
        free(m.all[i].values);
}

static void every_setting_is_as_defined(void **state)
{
    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++)
        check(&cases[i], (int)i);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_setting_is_as_defined),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests_name("ssd", tests, NULL, NULL);
}
