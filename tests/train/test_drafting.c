/* Networks that draft: losses and gradients of EAGLE-3 and of a module against another program's in float64
 * (golden/train/eagle3.safetensors; mtp.safetensors by mtp.py), EAGLE and modules by finite differences, networks that
 * learn and load, and new modules of every architecture. */
#include "trained.h"
#include "values.h"

#include <math.h>

#include "base/mem.h"
#include "train/drafting.h"
#include "train/training.h"

enum { ROWS = 2, LENGTH = 32, N = ROWS * LENGTH, STEPS = 3 };

static const char *golden(void)
{
    return test_data("train/eagle3.safetensors");
}

typedef struct drafting {
    trained model;
    rg_checkpoint *ckpt;
    rg_drafting *d;
    rg_passes *passes;
} drafting;

static void open_drafting(drafting *g, const char *model, const char *network, const rg_drafting_options *o,
                          int threads)
{
    char path[512];
    rg_error err = { 0 };

    snprintf(path, sizeof path, "%s", network);
    trained_open(&g->model, model, threads, 0);
    g->ckpt = rg_checkpoint_open(path, RG_CKPT_DEFAULT, &err);
    assert_ok(g->ckpt, err);
    const rg_passes_options p = { .n_threads = threads, .pool = g->model.pool };
    g->d = rg_drafting_new(g->model.masters, g->ckpt, o, trained_backend(), &p, &err);
    assert_ok(g->d, err);
    g->passes = rg_passes_new(rg_drafting_masters(g->d), trained_backend(), &p, &err);
    assert_ok(g->passes, err);
}

static void close_drafting(drafting *g)
{
    rg_passes_free(g->passes);
    rg_drafting_free(g->d);
    rg_checkpoint_close(g->ckpt);
    trained_close(&g->model);
}

static double loss_of(drafting *g, const rg_texts *t, bool forward_only)
{
    const rg_objective o = rg_drafting_objective(g->d);
    double loss;
    rg_error err = { 0 };

    rg_masters_clear(rg_drafting_masters(g->d));
    assert_ok(o.compute(o.arg, g->passes, t, 1 / (double)o.count(o.arg, t), forward_only, &loss, &err), err);
    if (!forward_only)
        assert_ok(rg_masters_pull(rg_drafting_masters(g->d), &err), err);
    return loss;
}

/* Gradients of all masters beside those of a golden file. */
static void compare_gradients(drafting *g, const char *file, int n_want)
{
    rg_masters *masters = rg_drafting_masters(g->d);
    char name[160];
    double most = 0;
    size_t n;

    for (int i = 0; i < rg_masters_count(masters); i++) {
        const rg_master *m = rg_masters_at(masters, i);

        for (size_t k = 0; k < m->n; k++)
            most = fmax(most, fabs((double)m->g[k]));
    }
    for (int i = 0; i < rg_masters_count(masters); i++) {
        const rg_master *m = rg_masters_at(masters, i);
        double largest = 1e-4 * most;

        snprintf(name, sizeof name, "grad.%s", m->name);
        float *grad = values(file, name, &n);
        assert_int_equal(n, m->n);
        for (size_t k = 0; k < n; k++)
            largest = fmax(largest, fabs((double)grad[k]));
        for (size_t k = 0; k < n; k++)
            if (!(fabs((double)m->g[k] - (double)grad[k]) <= 1e-4 * largest))
                fail_msg("%s, value %zu: %.9g, not %.9g", name, k, (double)m->g[k], (double)grad[k]);
        rg_free(grad);
    }
    assert_int_equal(rg_masters_count(masters), n_want);
}

static void loss_and_gradients_as_the_golden(void **state)
{
    const rg_drafting_options o = { .kind = RG_DRAFTING_EAGLE3, .n_steps = STEPS, .weight = 0.8 };
    size_t n;
    float *of_ids = values(golden(), "input_ids", &n), *mask = values(golden(), "loss_mask", &n);
    float *want = values(golden(), "loss.steps", &n), *right = values(golden(), "accuracy", &n);
    int32_t ids[N], targets[N];
    const rg_texts texts = { .rows = ROWS, .length = LENGTH, .ids = ids, .targets = targets };
    drafting g;

    (void)state;
    for (int i = 0; i < N; i++) {
        ids[i] = (int32_t)of_ids[i];
        targets[i] = mask[i] > 0 ? 0 : RG_NO_TARGET;
    }
    open_drafting(&g, test_data("llama"), test_data("speculation/eagle3"), &o, 2);
    loss_of(&g, &texts, false);
    for (int k = 0; k < STEPS; k++) {
        if (!(fabs(rg_drafting_losses(g.d)[k] - (double)want[k]) <= 1e-5 * (double)want[k]))
            fail_msg("loss of step %d: %.9g, not %.9g", k, rg_drafting_losses(g.d)[k], (double)want[k]);
    }
    compare_gradients(&g, golden(), 13);
    rg_free(of_ids);
    rg_free(mask);
    rg_free(want);
    rg_free(right);
    close_drafting(&g);
}

/* A new module of a model that brings none, with the golden's weights. */
static void a_new_module_as_the_golden(void **state)
{
    enum { MODULE_LENGTH = 24, MODULE_N = ROWS * MODULE_LENGTH };
    const rg_drafting_options o = { .kind = RG_DRAFTING_MODULE, .init_std = 0.02 };
    char file[512];
    size_t n;
    int32_t ids[MODULE_N], targets[MODULE_N];
    rg_texts texts = { .rows = ROWS, .length = MODULE_LENGTH, .ids = ids };
    rg_error err = { 0 };
    drafting g;

    (void)state;
    snprintf(file, sizeof file, "%s", test_data("train/mtp.safetensors"));
    float *of_ids = values(file, "input_ids", &n), *want = values(file, "loss", &n);
    for (int i = 0; i < MODULE_N; i++)
        ids[i] = (int32_t)of_ids[i];
    rg_texts_targets(&texts, targets);
    texts.targets = targets;
    open_drafting(&g, test_data("llama"), test_data("llama"), &o, 2);
    for (int i = 0; i < rg_masters_count(rg_drafting_masters(g.d)); i++) {
        rg_master *m = rg_masters_at(rg_drafting_masters(g.d), i);
        float *w = values(file, m->name, &n);

        assert_int_equal(n, m->n);
        memcpy(m->w, w, n * sizeof *w);
        rg_free(w);
    }
    assert_ok(rg_masters_push(rg_drafting_masters(g.d), &err), err);
    const double loss = loss_of(&g, &texts, false);
    if (!(fabs(loss - (double)*want) <= 1e-5 * (double)*want))
        fail_msg("the loss is %.9g, not %.9g", loss, (double)*want);
    compare_gradients(&g, file, 13);
    rg_free(of_ids);
    rg_free(want);
    close_drafting(&g);
}

static double moved_loss(drafting *g, const rg_texts *t, double by)
{
    rg_masters *m = rg_drafting_masters(g->d);
    const rg_objective o = rg_drafting_objective(g->d);
    double loss;
    rg_error err = { 0 };

    for (int i = 0; i < rg_masters_count(m); i++) {
        rg_master *a = rg_masters_at(m, i);

        for (size_t k = 0; k < a->n && !a->frozen; k++)
            a->w[k] += (float)(by * (double)a->g[k]);
    }
    assert_ok(rg_masters_push(m, &err), err);
    assert_ok(o.compute(o.arg, g->passes, t, 1 / (double)o.count(o.arg, t), true, &loss, &err), err);
    return loss;
}

/* Along the gradient the loss rises by the gradient's length: by differences, which f32 gives to about one in a hundred. */
static void rises_along_the_gradient(const char *name, drafting *g, const rg_texts *t)
{
    const double step = 1e-3;
    double square = 0;

    loss_of(g, t, false);
    for (int i = 0; i < rg_masters_count(rg_drafting_masters(g->d)); i++) {
        const rg_master *a = rg_masters_at(rg_drafting_masters(g->d), i);

        for (size_t k = 0; k < a->n && !a->frozen; k++)
            square += (double)a->g[k] * (double)a->g[k];
    }
    const double length = sqrt(square), up = moved_loss(g, t, step / length),
                 down = moved_loss(g, t, -2 * step / length);
    const double got = (up - down) / (2 * step);
    assert_true(length > 1e-3);
    if (!(fabs(got - length) <= 0.02 * length))
        fail_msg("%s: along the gradient the loss rises by %.6g, not %.6g", name, got, length);
}

/* Rows of several documents, one of them a single id. */
static rg_texts some_texts(int32_t ids[N], int32_t document[N], int32_t targets[N], int vocab)
{
    const rg_texts t = { .rows = ROWS, .length = LENGTH, .ids = ids, .document = document, .targets = targets };

    for (int i = 0; i < N; i++) {
        ids[i] = (i * 37 + i * i % 11) % vocab;
        document[i] = i < 9 ? 0 : i < 10 ? 1 : i < 24 ? 2 : i < LENGTH ? 3 : 4;
    }
    rg_texts_targets(&t, targets);
    return t;
}

static void gradients_of_every_kind_by_differences(void **state)
{
    static const struct {
        const char *model, *network;
        rg_drafting_kind kind;
    } cases[] = {
        { "llama", "speculation/eagle1", RG_DRAFTING_EAGLE },
        { "llama", "speculation/eagle3-speculators-nbf", RG_DRAFTING_EAGLE3 },
        { "speculation/mtp-qwen", "speculation/mtp-qwen", RG_DRAFTING_MODULE },
        { "speculation/mtp-glm", "speculation/mtp-glm", RG_DRAFTING_MODULE },
        { "speculation/mtp-deepseek", "speculation/mtp-deepseek", RG_DRAFTING_MODULE },
    };
    int32_t ids[N], document[N], targets[N];

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        const rg_texts t = some_texts(ids, document, targets, 320);
        char network[512];
        drafting g;

        snprintf(network, sizeof network, "%s", test_data(cases[i].network));
        open_drafting(&g, test_data(cases[i].model), network,
                      &(rg_drafting_options){ .kind = cases[i].kind, .n_steps = STEPS, .weight = 0.8, .noise = 0.1 },
                      2);
        rises_along_the_gradient(cases[i].network, &g, &t);
        close_drafting(&g);
    }
}

/* A text's loss does not depend on what else is in the batch, nor on the number of threads. */
static void texts_are_as_if_alone(void **state)
{
    const rg_drafting_options o = { .kind = RG_DRAFTING_EAGLE3, .n_steps = STEPS, .weight = 0.8 };
    int32_t ids[N], document[N], targets[N];
    const rg_texts all = some_texts(ids, document, targets, 320);
    const struct {
        int first, n;
    } texts[] = { { 0, 9 }, { 10, 14 }, { 24, 8 }, { LENGTH, LENGTH } };
    drafting g, other;
    double sum[STEPS] = { 0 };

    (void)state;
    open_drafting(&g, test_data("llama"), test_data("speculation/eagle3"), &o, 2);
    for (size_t i = 0; i < RG_LEN(texts); i++) {
        const rg_texts one = { .rows = 1, .length = texts[i].n, .ids = ids + texts[i].first };
        int32_t own[N];
        rg_texts t = one;

        rg_texts_targets(&one, own);
        t.targets = own;
        loss_of(&g, &t, true);
        for (int k = 0; k < STEPS; k++)
            sum[k] += rg_drafting_losses(g.d)[k] * texts[i].n;
    }
    loss_of(&g, &all, false);
    for (int k = 0; k < STEPS; k++)
        assert_true(fabs(rg_drafting_losses(g.d)[k] * N - sum[k]) <= 1e-9 * sum[k]);
    open_drafting(&other, test_data("llama"), test_data("speculation/eagle3"), &o, 1);
    loss_of(&other, &all, false);
    for (int i = 0; i < rg_masters_count(rg_drafting_masters(g.d)); i++) {
        const rg_master *a = rg_masters_at(rg_drafting_masters(g.d), i);
        const rg_master *b = rg_masters_at(rg_drafting_masters(other.d), i);

        assert_memory_equal(a->g, b->g, a->n * sizeof *a->g);
    }
    close_drafting(&other);
    close_drafting(&g);
}

static void train_some(drafting *g, rg_feed *feed, const rg_train_settings *s, double *first, double *last)
{
    const rg_objective o = rg_drafting_objective(g->d);
    rg_training_step step;
    rg_error err = { 0 };
    rg_training *run = rg_training_new(&(rg_training_options){ .masters = rg_drafting_masters(g->d),
                                                               .feed = feed,
                                                               .objective = &o,
                                                               .settings = s,
                                                               .backend = trained_backend(),
                                                               .pool = g->model.pool,
                                                               .n_threads = 2 },
                                       &err);

    assert_ok(run, err);
    for (int i = 0; i < s->steps; i++) {
        assert_ok(rg_training_next(run, &step, &err), err);
        *first = i ? *first : step.loss;
    }
    *last = step.loss;
    rg_training_free(run);
}

/* New networks learn, the model stays as it was, and what is written is a network that can be opened. */
static void new_networks_learn_and_load(void **state)
{
    static const rg_drafting_kind kinds[] = { RG_DRAFTING_EAGLE, RG_DRAFTING_EAGLE3 };
    char file[512], dir[512];
    const char *data[] = { file };
    rg_train_settings s = rg_train_settings_default();
    int64_t counts[320] = { 0 };
    rg_error err = { 0 };

    (void)state;
    snprintf(file, sizeof file, "%s.jsonl", test_scratch("repeated"));
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    for (int i = 0; i < 20; i++)
        fprintf(f, "{\"ids\": [%d, 5, 9, 14, 20, 27, 35, 5, 9, 14, 20, 27, 35, 5, 9, 14]}\n", i);
    fclose(f);
    s.steps = 12;
    s.warmup = 2;
    s.rows = 2;
    s.length = LENGTH;
    s.peak = 3e-3;
    for (int i = 0; i < 320; i++)
        counts[i] = i % 7 == 3 ? 100 + i : 1;
    for (size_t i = 0; i < RG_LEN(kinds); i++) {
        trained model;
        drafting g;
        double first = 0, last = 0;

        snprintf(dir, sizeof dir, "%s", test_scratch(i ? "new-eagle3" : "new-eagle"));
        trained_open(&model, test_data("llama"), 1, 0);
        assert_ok(rg_drafting_create(
                      dir, model.masters,
                      &(rg_drafting_shape){ .kind = kinds[i], .ffn_dim = 48, .n_ids = 40, .counts = counts }, &err),
                  err);
        assert_false(
            rg_drafting_create(dir, model.masters, &(rg_drafting_shape){ .kind = kinds[i], .n_ids = 321 }, &err));
        trained_close(&model);
        open_drafting(&g, test_data("llama"), dir,
                      &(rg_drafting_options){ .kind = kinds[i], .n_steps = 2, .weight = 0.8, .noise = 0.1 }, 2);
        rg_feed *feed = rg_feed_open(&(rg_feed_options){ .files = data, .n_files = 1, .vocab_size = 320 }, &s, &err);
        assert_ok(feed, err);
        const float was = rg_masters_at(g.model.masters, 0)->w[7];
        train_some(&g, feed, &s, &first, &last);
        if (!(last < 0.97 * first))
            fail_msg("the loss went from %g to %g", first, last);
        assert_true(rg_masters_at(g.model.masters, 0)->w[7] == was);
        if (i) {
            const int32_t *own = rg_masters_model(rg_drafting_masters(g.d))->target_ids;

            for (int k = 0; k < 40; k++)
                assert_int_equal(own[k], 45 + 7 * k); /* of 46 that stand often, the last 40 */
        }
        snprintf(dir, sizeof dir, "%s", test_scratch(i ? "trained-eagle3" : "trained-eagle"));
        assert_ok(rg_masters_write(rg_drafting_masters(g.d), dir, RG_BF16, &err), err);
        rg_feed_close(feed);
        close_drafting(&g);
        open_drafting(&g, test_data("llama"), dir, &(rg_drafting_options){ .kind = kinds[i], .n_steps = 2 }, 1);
        close_drafting(&g);
    }
}

/* What is made new for a model of one architecture: its gradient, and the folder, which brings it.  False: refused. */
static bool makes_a_module(const char *folder)
{
    const rg_drafting_options o = { .kind = RG_DRAFTING_MODULE, .init_std = 0.05 };
    int32_t ids[N], document[N], targets[N];
    char path[512], dir[512];
    rg_error err = { 0 };
    trained model;
    drafting g;

    snprintf(path, sizeof path, "%s", test_data(folder));
    trained_open(&model, path, 1, 0);
    rg_drafting *made = rg_drafting_new(model.masters, model.ckpt, &o, trained_backend(),
                                        &(rg_passes_options){ .n_threads = 1, .pool = model.pool }, &err);
    const bool made_it = made;
    if (!made && !strstr(err.text, "has no module that predicts further tokens: "))
        fail_msg("%s: %s", folder, err.text);
    rg_drafting_free(made);
    trained_close(&model);
    if (!made_it)
        return false;
    open_drafting(&g, path, path, &o, 1);
    const rg_texts t =
        some_texts(ids, document, targets, rg_masters_model(g.model.masters)->config.vocab_size < 320 ? 64 : 320);
    rises_along_the_gradient(folder, &g, &t);
    const double loss = loss_of(&g, &t, true);
    snprintf(dir, sizeof dir, "%s", test_scratch("with-module"));
    assert_ok(rg_masters_write(rg_drafting_masters(g.d), dir, RG_F32, &err), err);
    close_drafting(&g);
    open_drafting(&g, dir, dir, &o, 1);
    assert_true(rg_drafting_brings_module(g.model.masters, g.ckpt));
    if (!(fabs(loss_of(&g, &t, true) - loss) <= 1e-6 * loss))
        fail_msg("%s: written and read, the loss is %.9g, not %.9g", folder, loss_of(&g, &t, true), loss);
    close_drafting(&g);
    return true;
}

/* Models of every kind of layer, and of a form of modules that their publishers have, but without one. */
static void new_modules_of_every_architecture(void **state)
{
    static const struct {
        const char *folder;
        bool possible;
    } models[] = {
        { "llama", true },       { "mixtral", true },    { "qwen3", true },      { "gemma2", true },
        { "deepseek-v2", true }, { "cla2", true },       { "cohere2", true },    { "falcon", true },
        { "olmo2", true },       { "phi3", true },       { "jamba", true },      { "gpt-neox", true },
        { "deepseek-v3", true }, { "glm4-moe", true },   { "qwen3-next", true }, { "gpt-oss", true },
        { "mamba", false },      { "gpt2", false },      { "gla", false },
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(models); i++)
        if (makes_a_module(models[i].folder) != models[i].possible)
            fail_msg("%s: a module is %s", models[i].folder, models[i].possible ? "refused" : "made");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loss_and_gradients_as_the_golden),
        cmocka_unit_test(a_new_module_as_the_golden),
        cmocka_unit_test(new_modules_of_every_architecture),
        cmocka_unit_test(gradients_of_every_kind_by_differences),
        cmocka_unit_test(texts_are_as_if_alone),
        cmocka_unit_test(new_networks_learn_and_load),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
