/* Grids and the gradients through them, and whole runs on them, against another program's in float64
 * (golden/train/qat-cases.safetensors, qat-runs.safetensors). */
#include "trained.h"

#include <math.h>

#include "base/mem.h"
#include "train/distill.h"
#include "train/qat.h"
#include "train/training.h"

/* ---- goldens ----------------------------------------------------------------------------------------------------- */

/* A tensor as doubles; rg_free it. */
static double *numbers(const char *file, const char *name, size_t *n)
{
    char path[64];
    rg_error err = { 0 };

    snprintf(path, sizeof path, "train/%s.safetensors", file);
    rg_checkpoint *c = rg_checkpoint_open_tensors(test_data(path), &err);
    assert_ok(c, err);
    const rg_tensor *t = rg_checkpoint_find(c, name);
    if (!t)
        fail_msg("%s: no tensor %s", path, name);
    *n = (size_t)rg_tensor_count(t);
    uint8_t *raw = rg_alloc(t->bytes);
    double *out = rg_array(*n, sizeof *out);
    assert_ok(rg_tensor_read(c, t, 0, raw, t->bytes, &err), err);
    for (size_t i = 0; i < *n; i++)
        out[i] = t->type == RG_F64   ? ((const double *)(const void *)raw)[i]
                 : t->type == RG_I32 ? ((const int32_t *)(const void *)raw)[i]
                 : t->type == RG_I8  ? ((const int8_t *)raw)[i]
                                     : (double)((const float *)(const void *)raw)[i];
    rg_free(raw);
    rg_checkpoint_close(c);
    return out;
}

static void same(const char *what, const float *got, const char *file, const char *name, double tolerance)
{
    size_t n;
    double *want = numbers(file, name, &n), most = 0;

    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs(want[i]));
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= tolerance * most))
            fail_msg("%s, value %zu: %.9g, not %.9g", what, i, (double)got[i], want[i]);
    rg_free(want);
}

enum { GROUP = 32, GROUPS = 16, VALUES = GROUP * GROUPS };

static void grids_as_the_golden(void **state)
{
    static const struct {
        const char *name;
        rg_grid grid;
        int zero; /* the code of 0, in the golden's codes */
    } cases[] = {
        { "q4_0", { RG_GRID_Q4_0, 4, GROUP }, 0 }, { "q8_0", { RG_GRID_Q8_0, 8, GROUP }, 128 },
        { "int4", { RG_GRID_INT, 4, GROUP }, 8 },  { "int8", { RG_GRID_INT, 8, GROUP }, 128 },
        { "lsq", { RG_GRID_LSQ, 4, GROUP }, -1 },  { "int3", { RG_GRID_AFFINE, 3, GROUP }, 0 },
    };
    size_t n;
    double *w = numbers("qat-cases", "w", &n), *up = numbers("qat-cases", "upstream", &n);

    (void)state;
    for (size_t c = 0; c < RG_LEN(cases); c++) {
        const rg_grid *g = &cases[c].grid;
        char name[64];
        float value[VALUES], d_w[VALUES], scale[GROUPS], d_scale[GROUPS], d_zero[GROUPS], code[VALUES];
        double *scales = NULL, *zeros = NULL;

        snprintf(name, sizeof name, "%s.scale", cases[c].name);
        scales = numbers("qat-cases", name, &n);
        if (g->kind == RG_GRID_AFFINE)
            zeros = numbers("qat-cases", "int3.zero", &n);
        for (int i = 0; i < GROUPS; i++) {
            rg_grid_group of = { 0 }, d;
            float x[GROUP], y[GROUP];
            uint8_t codes[GROUP];

            for (int k = 0; k < GROUP; k++) {
                x[k] = (float)w[i * GROUP + k];
                y[k] = (float)up[i * GROUP + k];
            }
            if (rg_grid_learns_scale(g))
                of = (rg_grid_group){ (float)scales[i], zeros ? (float)zeros[i] : 0 };
            rg_grid_round(g, x, GROUP, &of, value + i * GROUP, codes);
            rg_grid_back(g, x, GROUP, &of, y, d_w + i * GROUP, &d);
            scale[i] = of.scale;
            d_scale[i] = d.scale;
            d_zero[i] = d.zero;
            for (int k = 0; k < GROUP; k++) {
                assert_true(rg_grid_value(g, codes[k], &of) == value[i * GROUP + k]);
                code[i * GROUP + k] = (float)(codes[k] - cases[c].zero);
            }
        }
        same(cases[c].name, scale, "qat-cases", name, 1e-6);
        snprintf(name, sizeof name, "%s.value", cases[c].name);
        same(name, value, "qat-cases", name, 1e-6);
        if (cases[c].zero >= 0) {
            snprintf(name, sizeof name, "%s.codes", cases[c].name);
            same(name, code, "qat-cases", name, 0);
        }
        snprintf(name, sizeof name, "%s.grad", cases[c].name);
        same(name, d_w, "qat-cases", name, 1e-6);
        if (g->kind == RG_GRID_LSQ)
            same("scale", d_scale, "qat-cases", "lsq.grad_scale_times_g", 1e-5);
        if (g->kind == RG_GRID_AFFINE) {
            same("scale", d_scale, "qat-cases", "int3.grad_scale", 1e-5);
            same("zero", d_zero, "qat-cases", "int3.grad_zero", 1e-5);
        }
        rg_free(scales);
        rg_free(zeros);
    }
    rg_free(w);
    rg_free(up);
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

enum { ROWS = 4, LENGTH = 32, STEPS = 30 };

typedef struct on_grid {
    trained t;
    rg_checkpoint *whole;
    rg_teacher *teacher;
    rg_distill *distill;
    rg_objective objective;
    rg_train_settings s;
    rg_feed *feed;
    rg_qat *qat;
    rg_stand_in stand_in;
    rg_training *run;
} on_grid;

/* The golden's batches as a file. */
static const char *batches(void)
{
    const char *path = test_scratch("batches.safetensors");
    const int64_t shape[] = { STEPS + 1, 1, ROWS, LENGTH };
    size_t n;
    double *ids = numbers("qat-runs", "ids", &n);
    int32_t *out = rg_array(n, sizeof *out);
    rg_error err = { 0 };
    rg_ckpt_writer *w = rg_safetensors_create(path, &err);

    for (size_t i = 0; i < n; i++)
        out[i] = (int32_t)ids[i];
    assert_ok(w && rg_ckpt_declare(w, "ids", RG_I32, 4, shape, &err), err);
    assert_ok(rg_ckpt_write(w, out, n * sizeof *out, &err), err);
    assert_ok(rg_ckpt_commit(w, &err), err);
    rg_free(ids);
    rg_free(out);
    return path;
}

static void begin(on_grid *r, const rg_grid *grid, double rate, bool scales_alone)
{
    const rg_distill_options o = { .loss = { RG_FORWARD_KL, 1, 0 } };
    rg_error err = { 0 };

    *r = (on_grid){ .s = rg_train_settings_default() };
    r->s.steps = STEPS;
    r->s.warmup = 0;
    r->s.schedule = RG_RATE_CONSTANT;
    r->s.peak = rate;
    r->s.weight_decay = 0;
    r->s.clip = 0;
    trained_open(&r->t, test_data("llama"), 2, 0);
    r->whole = rg_checkpoint_open(test_data("llama"), RG_CKPT_DEFAULT, &err);
    assert_ok(r->whole, err);
    r->teacher =
        rg_teacher_open(r->whole, trained_backend(), &(rg_passes_options){ .n_threads = 2, .pool = r->t.pool }, &err);
    assert_ok(r->teacher, err);
    r->distill = rg_distill_new(r->teacher, r->t.masters, &o, &err);
    assert_ok(r->distill, err);
    r->qat = rg_qat_new(r->t.masters, grid, 3e-4 / rate, !scales_alone, &err);
    assert_ok(r->qat, err);
    if (scales_alone)
        assert_ok(rg_qat_fix_codes(r->qat, &err), err);
    assert_ok(rg_masters_push(r->t.masters, &err), err);
    r->objective = rg_distill_objective(r->distill);
    r->stand_in = rg_qat_stand_in(r->qat);
    r->feed = rg_feed_open(&(rg_feed_options){ .batches = batches(), .vocab_size = 320 }, &r->s, &err);
    assert_ok(r->feed, err);
    r->run = rg_training_new(&(rg_training_options){ .masters = r->t.masters,
                                                     .stand_in = &r->stand_in,
                                                     .feed = r->feed,
                                                     .objective = &r->objective,
                                                     .settings = &r->s,
                                                     .backend = trained_backend(),
                                                     .pool = r->t.pool,
                                                     .n_threads = 2 },
                             &err);
    assert_ok(r->run, err);
}

static void end(on_grid *r)
{
    rg_training_free(r->run);
    rg_feed_close(r->feed);
    rg_qat_free(r->qat);
    rg_distill_free(r->distill);
    rg_teacher_close(r->teacher);
    rg_checkpoint_close(r->whole);
    trained_close(&r->t);
}

static double held(on_grid *r)
{
    const rg_texts *texts;
    rg_error err = { 0 };
    double loss;

    assert_ok(rg_feed_held(r->feed, STEPS, &texts, &err), err);
    assert_ok(rg_training_loss(r->run, &r->objective, texts, &loss, &err), err);
    return loss;
}

static void runs_as_the_golden(void **state)
{
    static const struct {
        const char *name;
        rg_grid grid;
        double rate;
        bool scales_alone;
    } runs[] = {
        { "q4_0", { RG_GRID_Q4_0, 4, GROUP }, 3e-4, false },
        { "q8_0", { RG_GRID_Q8_0, 8, GROUP }, 9e-6, false },
        { "int4-g", { RG_GRID_INT, 4, GROUP }, 3e-4, false },
        { "int3-affine", { RG_GRID_AFFINE, 3, GROUP }, 3e-4, false },
        { "int4-lsq", { RG_GRID_LSQ, 4, GROUP, true }, 3e-4, false },
        { "int3-scales", { RG_GRID_AFFINE, 3, GROUP }, 3e-4, true },
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(runs); i++) {
        on_grid r;
        size_t n;
        char name[64];
        rg_error err = { 0 };
        rg_training_step s;

        begin(&r, &runs[i].grid, runs[i].rate, runs[i].scales_alone);
        snprintf(name, sizeof name, "%s.loss", runs[i].name);
        double *want = numbers("qat-runs", name, &n);
        snprintf(name, sizeof name, "%s.held", runs[i].name);
        double *of_held = numbers("qat-runs", name, &n);
        const double before = held(&r);
        for (int k = 0; k < STEPS; k++) {
            assert_ok(rg_training_next(r.run, &s, &err), err);
            const double limit = k == 0 || runs[i].scales_alone ? 1e-4 : k <= 5 ? 1e-3 : 0.1;
            if (!(fabs(s.loss - want[k]) <= limit * want[k]))
                fail_msg("%s, step %d: %.9g, not %.9g", runs[i].name, k, s.loss, want[k]);
        }
        if (!(fabs(before - of_held[0]) <= 1e-4 * of_held[0]) || !(fabs(held(&r) - of_held[1]) <= 0.1 * of_held[1]))
            fail_msg("%s: held out %.9g and %.9g, not %.9g and %.9g", runs[i].name, before, held(&r), of_held[0],
                     of_held[1]);
        rg_free(want);
        rg_free(of_held);
        end(&r);
    }
}

/* ---- a layer at a time ------------------------------------------------------------------------------------------- */

typedef struct told {
    double loss[2][STEPS];
} told;

static void tell(void *arg, int layer, int step, double loss)
{
    told *t = arg;

    if (layer < 2)
        t->loss[layer][step] = loss;
}

static void a_layer_at_a_time_as_the_golden(void **state)
{
    const rg_grid grid = { RG_GRID_AFFINE, 3, GROUP };
    rg_train_settings s = rg_train_settings_default();
    int32_t ids[8 * LENGTH];
    told said;
    trained t;
    size_t n;
    rg_error err = { 0 };
    double *of_ids = numbers("qat-runs", "stage1.ids", &n), *want = numbers("qat-runs", "stage1.loss", &n);

    (void)state;
    for (size_t i = 0; i < RG_LEN(ids); i++)
        ids[i] = (int32_t)of_ids[i];
    s.clip = s.weight_decay = 0;
    s.beta2 = 0.999;
    trained_open(&t, test_data("llama"), 2, 0);
    rg_qat *q = rg_qat_new(t.masters, &grid, 2, false, &err);
    assert_ok(q, err);
    assert_ok(rg_masters_push(t.masters, &err), err);
    assert_ok(rg_qat_train_blocks(q, t.masters,
                                  &(rg_qat_blocks){ .backend = trained_backend(),
                                                    .pool = t.pool,
                                                    .n_threads = 2,
                                                    .texts = &(rg_texts){ .rows = 8, .length = LENGTH, .ids = ids },
                                                    .rows = 8,
                                                    .steps = STEPS,
                                                    .rate = 3e-4,
                                                    .floor = 0.05,
                                                    .settings = &s,
                                                    .told = tell,
                                                    .told_arg = &said },
                                  &err),
              err);
    for (int k = 0; k < STEPS; k++)
        if (!(fabs(said.loss[0][k] - want[k]) <= (k == 0 ? 1e-4 : k <= 5 ? 1e-3 : 0.1) * want[k]))
            fail_msg("step %d: %.9g, not %.9g", k, said.loss[0][k], want[k]);
    static const char *const of[] = { "self_attn.q_proj", "self_attn.o_proj", "mlp.down_proj" };
    for (size_t i = 0; i < RG_LEN(of); i++) {
        char name[128];
        snprintf(name, sizeof name, "model.layers.0.%s.weight", of[i]);
        const rg_qat_matrix m = rg_qat_at(q, rg_qat_find(q, name));
        assert_non_null(m.code);
        snprintf(name, sizeof name, "stage1.%s.scale", of[i]);
        same(name, m.scale, "qat-runs", name, 0.02);
    }
    assert_true(said.loss[1][STEPS - 1] < 0.9 * said.loss[1][0]);
    rg_qat_free(q);
    trained_close(&t);
    rg_free(of_ids);
    rg_free(want);
}

/* ---- checkpoints of a layer at a time ------------------------------------------------------------------------------ */

enum { SAVED_STEPS = 6, SAVE = 4 };

static int steps_until_stop, steps_made;

static bool stop_soon(void)
{
    return --steps_until_stop == 0;
}

static void count_step(void *arg, int layer, int step, double loss)
{
    (void)arg, (void)layer, (void)step, (void)loss;
    steps_made++;
}

/* Train a layer at a time; stop after so many steps (-1: not).  False: it was stopped, or *err. */
static bool train_saved(rg_qat **q, trained *t, const char *saved, int stop_after, double rate, rg_error *err)
{
    static int32_t ids[4 * LENGTH];
    const rg_grid grid = { RG_GRID_AFFINE, 3, GROUP };
    rg_train_settings s = rg_train_settings_default();

    for (size_t i = 0; i < RG_LEN(ids); i++)
        ids[i] = (int32_t)(i * 37 % 311);
    s.clip = s.weight_decay = 0;
    trained_open(t, test_data("llama"), 2, 0);
    *q = rg_qat_new(t->masters, &grid, 2, false, err);
    assert_non_null(*q);
    assert_true(rg_masters_push(t->masters, err));
    steps_until_stop = stop_after;
    steps_made = 0;
    return rg_qat_train_blocks(*q, t->masters,
                               &(rg_qat_blocks){ .backend = trained_backend(),
                                                 .pool = t->pool,
                                                 .n_threads = 2,
                                                 .texts = &(rg_texts){ .rows = 4, .length = LENGTH, .ids = ids },
                                                 .rows = 2,
                                                 .steps = SAVED_STEPS,
                                                 .rate = rate,
                                                 .floor = 0.05,
                                                 .settings = &s,
                                                 .told = count_step,
                                                 .stop = stop_soon,
                                                 .saved = saved,
                                                 .save = SAVE,
                                                 .resume = true },
                               err);
}

static void close_saved(rg_qat *q, trained *t)
{
    rg_qat_free(q);
    trained_close(t);
}

/* Stopped anywhere, a run goes on to the same codes and scales, and makes only the steps that are left. */
static void a_layer_at_a_time_goes_on(void **state)
{
    static const int stops[] = { 1, 3, SAVED_STEPS - 1, SAVED_STEPS, SAVED_STEPS + 1, 2 * SAVED_STEPS + 5 };
    char path[512];
    rg_error err = { 0 };
    rg_qat *whole, *q;
    trained t, other;

    (void)state;
    assert_ok(train_saved(&whole, &t, NULL, -1, 3e-4, &err), err);
    const int all = steps_made;
    assert_int_equal(all, 3 * SAVED_STEPS);
    for (size_t i = 0; i < RG_LEN(stops); i++) {
        snprintf(path, sizeof path, "%s", test_scratch("layers.safetensors"));
        remove(path);
        err = (rg_error){ 0 };
        const bool done = train_saved(&q, &other, path, stops[i], 3e-4, &err);
        const int made = steps_made;

        close_saved(q, &other);
        assert_true(done == (stops[i] % SAVED_STEPS == 0)); /* the last step of a layer is followed by its checkpoint */
        assert_true(done || strstr(err.text, "interrupted in layer"));
        assert_ok(train_saved(&q, &other, path, -1, 3e-4, &err), err);
        assert_int_equal(steps_made, all - made);
        for (int k = 0; k < rg_qat_count(whole); k++) {
            const rg_qat_matrix a = rg_qat_at(whole, k), b = rg_qat_at(q, k);

            assert_memory_equal(a.code, b.code, (size_t)(a.rows * a.cols));
            assert_memory_equal(a.scale, b.scale, (size_t)(a.rows * a.groups) * sizeof(float));
            assert_memory_equal(a.zero, b.zero, (size_t)(a.rows * a.groups) * sizeof(float));
        }
        close_saved(q, &other);
    }
    assert_false(train_saved(&q, &other, path, -1, 2e-4, &err)); /* another rate */
    assert_non_null(strstr(err.text, "other settings"));
    close_saved(q, &other);
    close_saved(whole, &t);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grids_as_the_golden),
        cmocka_unit_test(runs_as_the_golden),
        cmocka_unit_test(a_layer_at_a_time_as_the_golden),
        cmocka_unit_test(a_layer_at_a_time_goes_on),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
