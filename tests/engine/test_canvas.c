/* Models that refine a canvas: logits of both ways in which the weights are used, and whole generations, are those of the
 * authors' loop (golden/diffusion-gemma), with its draws; settings that such a model does not take are refused. */
#include "support/model.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/step_batch.h"

enum { N_VOCAB = 320, N_DIM = 64, CANVAS = 16, MAX_POSITIONS = 64 };

typedef struct job {
    test_model model;
    test_rig rig;
    rg_step_batch rows;
    rg_seq *seq;
    rg_fill f;
    int32_t ids[MAX_POSITIONS];
    rg_candidate candidates[MAX_POSITIONS];
    float soft[CANVAS * N_DIM], logits[CANVAS][N_VOCAB];
    const json_t *steps; /* of a generation */
    int n_off;           /* rows of it that are not the golden's */
} job;

static void take_logits(void *arg, int thread, int i, float *logits)
{
    job *j = arg;

    (void)thread;
    memcpy(j->logits[i], logits, sizeof j->logits[i]);
}

static void take_soft(void *arg, int thread, int i, const float *soft)
{
    job *j = arg;

    (void)thread;
    memcpy(j->soft + i * N_DIM, soft, N_DIM * sizeof *soft);
}

static void step(job *j)
{
    j->rig.runner->step(j->rig.runner, &j->rows.batch, &(rg_sink){ .logits = take_logits, .soft = take_soft, .arg = j });
}

/* The text up to a position, causally. */
static void read_text(job *j, int32_t upto)
{
    const int32_t n = upto - j->seq->length;

    assert_true(n > 0 && rg_seq_grow(j->rig.states, j->seq, upto));
    rg_step_batch_begin(&j->rows);
    rg_step_batch_add(&j->rows, j->rig.states, j->seq, j->ids, n, NULL);
    step(j);
    rg_seq_advance(j->rig.states, j->seq, n, 0, j->ids);
}

static void evaluate(job *j)
{
    assert_true(rg_seq_grow(j->rig.states, j->seq, j->f.e.end));
    rg_step_batch_begin(&j->rows);
    rg_step_batch_add_fill(&j->rows, j->rig.states, &j->f, j->seq, false);
    assert_int_equal(j->rows.batch.n_logits, CANVAS);
    step(j);
    rg_seq_advance(j->rig.states, j->seq, CANVAS, CANVAS, j->ids);
    rg_seq_rollback(j->rig.states, j->seq, j->seq->committed);
}

static job *begin(const rg_backend *backend)
{
    job *j = calloc(1, sizeof *j);
    rg_error err;

    assert_non_null(j);
    test_model_open_on(&j->model, test_data("diffusion-gemma"), "f32", backend);
    test_rig_open(&j->rig, &j->model, &(test_rig_options){ .backend = backend, .n_threads = 2, .exact = true,
                                                           .max_rows = 2 * MAX_POSITIONS, .max_seqs = 2,
                                                           .max_len = MAX_POSITIONS });
    assert_ok(rg_step_batch_init(&j->rows, 2, 2 * MAX_POSITIONS, CANVAS + 2, false, &err), err);
    assert_ok(rg_step_batch_refine(&j->rows, CANVAS, N_DIM, &err), err);
    j->f.soft = j->soft;
    j->f.dim = N_DIM;
    j->seq = rg_seq_new(j->rig.states, MAX_POSITIONS, 0, &err);
    assert_ok(j->seq, err);
    return j;
}

static void end(job *j)
{
    rg_seq_free(j->rig.states, j->seq);
    rg_step_batch_fini(&j->rows);
    test_rig_close(&j->rig);
    test_model_close(&j->model);
    free(j);
}

/* ---- passes ------------------------------------------------------------------------------------------------------ */

/* The mean of all embeddings by softmax(logits), in double. */
static void mean_of(const rg_model *m, const float *logits, float *soft)
{
    int32_t all[N_VOCAB];

    for (int32_t i = 0; i < N_VOCAB; i++)
        all[i] = i;
    float *table = test_embedded(m, all, N_VOCAB);
    for (int row = 0; row < CANVAS; row++) {
        const float *l = logits + row * N_VOCAB;
        double sum = 0, at[N_DIM] = { 0 };

        for (int v = 0; v < N_VOCAB; v++) {
            sum += exp((double)l[v]);
            for (int d = 0; d < N_DIM; d++)
                at[d] += exp((double)l[v]) * (double)table[v * N_DIM + d];
        }
        for (int d = 0; d < N_DIM; d++)
            soft[row * N_DIM + d] = (float)(at[d] / sum);
    }
    free(table);
}

/* What the step gave beside logits is the mean by them, after temperature. */
static void soft_is(const job *j)
{
    const float t = rg_denoise_temperature(&j->f.d);
    float logits[CANVAS * N_VOCAB], want[CANVAS * N_DIM];

    for (int i = 0; i < CANVAS; i++)
        for (int k = 0; k < N_VOCAB; k++)
            logits[i * N_VOCAB + k] = j->logits[i][k] / t;
    mean_of(j->model.m, logits, want);
    test_close_to("soft", j->soft, want, CANVAS * N_DIM, 2e-6f);
}

static void copy_ints(const rg_checkpoint *c, const char *name, int32_t *to, size_t want)
{
    size_t n;
    int32_t *ints = test_ints(c, name, &n);

    assert_int_equal(n, want);
    memcpy(to, ints, n * sizeof *ints);
    free(ints);
}

static void logits_are(const job *j, const rg_checkpoint *c, const char *name)
{
    size_t n;
    float *want = test_floats(c, name, &n);

    assert_int_equal(n, CANVAS * N_VOCAB);
    test_close_to(name, j->logits[0], want, n, 2e-5f);
    free(want);
}

/* The text's keys are read by the canvas alone, so that its logits tell of both; a prompt in two parts has the same bits. */
static void passes_are_the_authors(void **state)
{
    enum { PROMPT = 24 };
    rg_error err;
    rg_checkpoint *c = rg_checkpoint_open(test_data("diffusion-gemma/golden.safetensors"), RG_CKPT_DEFAULT, &err);
    float first[CANVAS][N_VOCAB];

    (void)state;
    assert_ok(c, err);
    for (int k = 0; test_backend(k); k++) {
        job *j = begin(test_backend(k));
        size_t n;

        copy_ints(c, "input_ids", j->ids, PROMPT);
        copy_ints(c, "canvas_ids", j->ids + PROMPT, CANVAS);
        j->f.d = (rg_denoise){ .model = j->rig.runner->diffusion, .p.steps = 4, .n_prompt = PROMPT, .n = PROMPT + CANVAS,
                               .ids = j->ids, .candidates = j->candidates };
        j->f.e = (rg_evaluation){ .first = PROMPT, .end = PROMPT + CANVAS, .from = PROMPT, .upto = PROMPT + CANVAS };
        read_text(j, 7);
        read_text(j, PROMPT);
        evaluate(j);
        logits_are(j, c, "logits");
        memcpy(first, j->logits, sizeof first);
        soft_is(j);
        float *before = test_floats(c, "self_conditioning_logits", &n);
        mean_of(j->model.m, before, j->soft);
        free(before);
        j->f.d.step = 1;
        evaluate(j);
        logits_are(j, c, "logits.self_conditioned");
        j->f.d.step = 0;
        evaluate(j);
        assert_memory_equal(first, j->logits, sizeof first); /* nothing of a canvas is kept */
        end(j);
    }
    rg_checkpoint_close(c);
}

/* ---- generations ------------------------------------------------------------------------------------------------- */

static int32_t int_at(const json_t *of, const char *name, int i)
{
    return (int32_t)json_integer_value(json_array_get(json_object_get(of, name), (size_t)i));
}

static int places(const json_t *step)
{
    return (int)json_array_size(json_object_get(step, "canvas"));
}

/* The golden's: a canvas begins as it says, and later noise is its random ids. */
static int32_t noise(void *arg, int32_t n_evaluations, int32_t position)
{
    const job *j = arg;
    const int i = (position - j->f.d.n_prompt) % CANVAS;
    const bool begins = j->f.d.step == 0;

    return int_at(json_array_get(j->steps, (size_t)(begins ? n_evaluations : n_evaluations - 1)), begins ? "canvas" : "random", i);
}

/* What the engine makes of the logits, but for the draw, which is the golden's.  An evaluation reads what the one before
 * made, and a rounding grows by it about five times in this model: so much may the k-th of a canvas differ.  The golden's
 * entropies and likeliest ids are then taken, so that all that follows from them must be equal.  One row of a generation may
 * be further off: at the last of 12 evaluations two experts of a row are so close that the rounding chooses the other. */
static void take_candidates(job *j, const json_t *step)
{
    const float t = rg_denoise_temperature(&j->f.d);
    const double most = 2.5e-5 * pow(5, j->f.d.step);

    assert_true(fabs((double)t - json_number_value(json_object_get(step, "temperature"))) < 1e-6);
    for (int i = 0; i < CANVAS; i++) {
        rg_candidate *c = &j->candidates[j->f.e.from + i];
        float *l = j->logits[i], largest = l[0];
        const double entropy = json_number_value(json_array_get(json_object_get(step, "entropy"), (size_t)i));

        for (int v = 0; v < N_VOCAB; v++) {
            l[v] /= t;
            largest = v && l[v] < largest ? largest : l[v];
        }
        c->id = int_at(step, "sampled", i);
        c->best = int_at(step, "argmax", i);
        c->confidence = (float)-entropy;
        j->n_off += !(fabs(entropy - (double)rg_entropy(l, N_VOCAB)) < most) || !((double)(largest - l[c->best]) < most);
        if (j->n_off > 1)
            fail_msg("evaluation %d, place %d: entropy %g and not %g, or id %d is not the likeliest", j->f.d.n_evaluations, i,
                     (double)rg_entropy(l, N_VOCAB), entropy, c->best);
    }
}

static void canvas_is(const job *j, const json_t *step, const char *name)
{
    for (int i = 0; i < CANVAS; i++)
        if (j->ids[j->f.e.from + i] != int_at(step, name, i))
            fail_msg("%s: place %d of evaluation %d has id %d and not %d", name, i, j->f.d.n_evaluations,
                     j->ids[j->f.e.from + i], int_at(step, name, i));
}

static void generate(job *j, const json_t *of)
{
    const json_t *settings = json_object_get(of, "config");
    const rg_diffusion model = {
        .mask_id = -1,
        .canvas = { .length = CANVAS, .t_min = (float)json_number_value(json_object_get(settings, "t_min")),
                    .t_max = (float)json_number_value(json_object_get(settings, "t_max")),
                    .entropy_bound = (float)json_number_value(json_object_get(settings, "entropy_bound")),
                    .confidence = (float)json_number_value(json_object_get(settings, "confidence_threshold")),
                    .stability = (int32_t)json_integer_value(json_object_get(settings, "stability_threshold")) },
    };
    const rg_diffusion_params p = { .steps = (int32_t)json_integer_value(json_object_get(settings, "max_denoising_steps")) };
    const int32_t n_prompt = (int32_t)json_array_size(json_object_get(of, "prompt"));
    const int32_t n_tokens = (int32_t)json_integer_value(json_object_get(settings, "max_new_tokens"));
    int32_t n_final = 0;
    size_t n = 0;

    j->steps = json_object_get(of, "steps");
    for (int i = 0; i < n_prompt; i++)
        j->ids[i] = int_at(of, "prompt", i);
    j->f.d = (rg_denoise){ .n_prompt = n_prompt }; /* noise reads it */
    rg_denoise_init(&j->f.d, &(rg_denoise_start){ .params = &p, .model = &model, .sees = RG_CAUSAL, .n_prompt = n_prompt,
                                                  .n = rg_denoise_length(n_prompt, n_tokens, &model, RG_CAUSAL), .ids = j->ids,
                                                  .candidates = j->candidates, .noise = noise, .noise_arg = j });
    assert_int_equal(j->f.d.n, json_array_size(json_object_get(of, "sequence")));
    while (rg_denoise_next(&j->f.d, &j->f.e)) {
        const json_t *one = json_array_get(j->steps, n++);

        assert_true(one && places(one) == CANVAS);
        if (j->seq->length < j->f.e.from)
            read_text(j, j->f.e.from);
        canvas_is(j, one, "canvas");
        evaluate(j);
        take_candidates(j, one);
        n_final = rg_denoise_commit(&j->f.d, &j->f.e);
        assert_int_equal(j->f.d.done, json_is_true(json_object_get(one, "finished")) ||
                                         json_integer_value(json_object_get(one, "cur_step")) == 1);
        assert_int_equal(n_final, (j->f.d.done ? j->f.e.upto : j->f.e.from) - n_prompt);
        canvas_is(j, one, j->f.d.done ? "argmax" : "next_canvas");
    }
    assert_int_equal(n, json_array_size(j->steps));
    for (int i = 0; i < j->f.d.n; i++)
        assert_int_equal(j->ids[i], int_at(of, "sequence", i));
}

static void generations_are_the_authors(void **state)
{
    json_error_t err;
    json_t *all = json_load_file(test_data("diffusion-gemma/generations.json"), 0, &err), *one;
    size_t k;

    (void)state;
    assert_true(json_array_size(all) > 0);
    json_array_foreach(all, k, one) {
        job *j = begin(rg_backend_find("auto", NULL));

        print_message("    generation %zu\n", k);
        generate(j, one);
        end(j);
    }
    json_decref(all);
}

/* ---- settings ---------------------------------------------------------------------------------------------------- */

static void settings_are_refused(void **state)
{
    static const rg_diffusion model = { .mask_id = -1, .canvas = { .length = CANVAS } };
    static const struct {
        rg_diffusion_params p;
        const char *why;
    } cases[] = {
        { { .steps = -1 }, "negative" },
        { { .block = 8 }, "canvases of 16" },
        { { .threshold = 0.5f }, "threshold" },
        { { .remasking = RG_REMASKING_ENTROPY }, "remasking" },
        { { .cfg_scale = 1 }, "cfg" },
        { { .cache = RG_CACHE_DUAL }, "cache" },
    };
    rg_diffusion_params p = { 0 };
    rg_error err;

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        assert_false(rg_denoise_check(&cases[i].p, &model, RG_CAUSAL, &err));
        if (!strstr(err.text, cases[i].why))
            fail_msg("case %zu: %s", i, err.text);
    }
    rg_denoise_settle(&p, &model, RG_CAUSAL);
    assert_int_equal(p.steps, 48);
    assert_ok(rg_denoise_check(&p, &model, RG_CAUSAL, &err), err);
    assert_int_equal(rg_denoise_length(5, 1, &model, RG_CAUSAL), 5 + CANVAS);
    assert_int_equal(rg_denoise_length(5, CANVAS + 1, &model, RG_CAUSAL), 5 + 2 * CANVAS);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_are_the_authors),
        cmocka_unit_test(generations_are_the_authors),
        cmocka_unit_test(settings_are_refused),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
