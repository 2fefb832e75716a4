/* Optimizer, schedule, whole runs against another program's in float64 (golden/train/runs.json), checkpoints, data, LoRA. */
#include "trained.h"

#include <math.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"
#include "train/init.h"
#include "train/lora.h"
#include "train/training.h"

static rg_train_settings settings_of(const json_t *v)
{
    rg_train_settings s = rg_train_settings_default();
    char *text = rg_json_dump(v, 0);
    rg_error err = { 0 };

    assert_ok(rg_train_settings_read(&s, text, strlen(text), NULL, &err), err);
    rg_free(text);
    return s;
}

static double number(const json_t *list, size_t i)
{
    return json_number_value(json_array_get(list, i));
}

/* ---- AdamW ------------------------------------------------------------------------------------------------------- */

/* Gradients that are zero, tiny, huge or late. */
static void updates_as_defined(void **state)
{
    json_t *all = cases_load("train/runs.json"), *v = json_object_get(all, "scalar");
    enum { N = 16, STEPS = 6 };

    (void)state;
    for (size_t k = 0; k < 3; k++) {
        json_t *setting = json_array_get(json_object_get(v, "settings"), k);
        const json_t *want = json_array_get(json_object_get(v, "w"), k);
        rg_train_settings s = settings_of(setting);
        float w[N], g[N];
        rg_adamw a = { 0 };
        rg_back_lane lane;
        rg_error err = { 0 };

        s.clip = 0;
        rg_back_lane_open(&lane, trained_backend(), NULL, 1);
        for (size_t i = 0; i < N; i++)
            w[i] = (float)number(json_object_get(v, "w0"), i);
        /* A matrix by its shape, so that it decays. */
        assert_ok(
            rg_adamw_add(&a, &(rg_adamw_tensor){ .name = "x", .n_dims = 2, .shape = { 1, N }, .w = w, .g = g, .n = N },
                         &err),
            err);
        for (size_t step = 0; step < STEPS; step++) {
            for (size_t i = 0; i < N; i++)
                g[i] = (float)number(json_object_get(v, "grad"), step * N + i);
            rg_adamw_update(&a, &lane, &s, s.peak, rg_adamw_norm(&a, &lane));
            for (size_t i = 0; i < N; i++)
                if (!(fabs((double)w[i] - number(want, step * N + i)) <=
                      1e-6 * fmax(fabs(number(want, step * N + i)), 0.1)))
                    fail_msg("setting %zu, step %zu, value %zu: %.9g, not %.9g", k, step, i, (double)w[i],
                             number(want, step * N + i));
        }
        rg_adamw_close(&a);
        rg_back_lane_close(&lane);
    }
    json_decref(all);
}

static void knows_what_decays(void **state)
{
    (void)state;
    assert_true(rg_adamw_decays("model.embed_tokens.weight", 2));
    assert_true(rg_adamw_decays("mixer.conv1d.weight", 3));
    assert_false(rg_adamw_decays("model.norm.weight", 1));
    assert_false(rg_adamw_decays("layers.0.mixer.A_log", 2));
    assert_false(rg_adamw_decays("layers.0.mixer.D", 1));
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

/* The batches of a golden run as a file. */
static const char *batches_of(const json_t *v, const rg_train_settings *s, int64_t steps, const char *beside,
                              const char *name)
{
    const int64_t shape[] = { steps, s->micro, s->rows, s->length };
    const size_t n = (size_t)(shape[0] * shape[1] * shape[2] * shape[3]);
    const char *path = test_scratch(name), *keys[] = { "ids", beside };
    int32_t *ids = malloc(n * sizeof *ids);
    rg_error err = { 0 };
    rg_ckpt_writer *w = rg_safetensors_create(path, &err);

    assert_ok(w, err);
    for (int i = 0; i < 2; i++)
        assert_ok(rg_ckpt_declare(w, keys[i], RG_I32, 4, shape, &err), err);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cases_ints(json_object_get(v, keys[i]), ids, (int32_t)n), n);
        assert_ok(rg_ckpt_write(w, ids, n * sizeof *ids, &err), err);
    }
    assert_ok(rg_ckpt_commit(w, &err), err);
    free(ids);
    return path;
}

typedef struct training {
    trained t;
    rg_train_settings s;
    rg_feed *feed;
    rg_lora *lora;
    rg_stand_in stand_in;
    rg_training *run;
} training;

static void begin(training *r, const char *model, const rg_train_settings *s, const rg_feed_options *feed,
                  int n_threads, int rank)
{
    rg_feed_options o = *feed;
    rg_error err = { 0 };

    r->s = *s;
    r->lora = NULL;
    trained_open(&r->t, model, n_threads, 0);
    if (!rg_checkpoint_n_tensors(r->t.ckpt))
        assert_ok(rg_masters_init(r->t.masters, s->init_std, s->seed, &err), err);
    o.vocab_size = rg_masters_model(r->t.masters)->config.vocab_size;
    r->feed = rg_feed_open(&o, &r->s, &err);
    assert_ok(r->feed, err);
    if (rank)
        assert_ok(r->lora = rg_lora_new(r->t.masters, rank, 2 * rank, 1, &err), err);
    if (rank)
        r->stand_in = rg_lora_stand_in(r->lora);
    r->run = rg_training_new(&(rg_training_options){ .masters = r->t.masters,
                                                     .stand_in = rank ? &r->stand_in : NULL,
                                                     .feed = r->feed,
                                                     .settings = &r->s,
                                                     .backend = trained_backend(),
                                                     .pool = r->t.pool,
                                                     .n_threads = n_threads },
                             &err);
    assert_ok(r->run, err);
}

static void end(training *r)
{
    rg_training_free(r->run);
    rg_lora_free(r->lora);
    rg_feed_close(r->feed);
    trained_close(&r->t);
}

static rg_training_step next(training *r)
{
    rg_training_step s;
    rg_error err = { 0 };

    assert_ok(rg_training_next(r->run, &s, &err), err);
    return s;
}

static void close_to(const char *what, size_t step, double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance * fabs(want)))
        fail_msg("step %zu: %s %.9g, not %.9g", step, what, got, want);
}

static void trains_on_as_the_golden(void **state)
{
    json_t *all = cases_load("train/runs.json"), *v = json_object_get(all, "adamw");
    const rg_train_settings s = settings_of(json_object_get(v, "settings"));
    training r;

    (void)state;
    const char *path = batches_of(v, &s, s.steps, "targets", "adamw.safetensors");
    begin(&r, test_data("llama"), &s, &(rg_feed_options){ .batches = path }, 2, 0);
    for (size_t i = 0; i < 20; i++) {
        const rg_training_step step = next(&r);

        assert_int_equal(step.step, i + 1);
        close_to("loss", i, step.loss, number(json_object_get(v, "loss"), i), 1e-5);
        close_to("norm", i, step.grad_norm, number(json_object_get(v, "grad_norm"), i), 1e-5);
        close_to("rate", i, step.lr, number(json_object_get(v, "lr"), i), 1e-8);
    }
    end(&r);
    json_decref(all);
}

/* From a config and weights by formula. */
static void trains_from_scratch_as_the_golden(void **state)
{
    json_t *all = cases_load("train/runs.json"), *v = json_object_get(all, "scratch");
    const rg_train_settings s = settings_of(json_object_get(v, "settings"));
    const size_t n = json_array_size(json_object_get(v, "loss"));
    training r;

    (void)state;
    const char *config = test_scratch("scratch.json");
    json_dump_file(json_object_get(v, "config"), config, 0);
    const char *path = batches_of(v, &s, (int64_t)n, "document", "scratch.safetensors");
    begin(&r, config, &s, &(rg_feed_options){ .batches = path }, 2, 0);
    assert_int_equal(r.s.steps, s.steps); /* the rate is that of the whole run */
    for (size_t i = 0; i < n; i++) {
        const rg_training_step step = next(&r);

        close_to("loss", i, step.loss, number(json_object_get(v, "loss"), i), 1e-5);
        close_to("norm", i, step.grad_norm, number(json_object_get(v, "grad_norm"), i), 2e-5);
    }
    end(&r);
    json_decref(all);
}

/* ---- checkpoints ------------------------------------------------------------------------------------------------- */

static const char *documents(const char *name)
{
    const char *path = test_scratch(name);
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    for (int i = 0; i < 40; i++) {
        fprintf(f, "{\"ids\": [%d", i % 7);
        for (int k = 0; k < 3 + i * 5 % 31; k++)
            fprintf(f, ", %d", (i * 13 + k * k) % 300);
        fprintf(f, "]}\n");
    }
    fclose(f);
    return path;
}

static rg_train_settings small_settings(void)
{
    rg_train_settings s = rg_train_settings_default();

    s.steps = 8;
    s.warmup = 2;
    s.micro = s.rows = 2;
    s.length = 24;
    s.seed = 5;
    return s;
}

static void assert_same_weights(training *a, training *b)
{
    for (int i = 0; i < rg_masters_count(a->t.masters); i++) {
        const rg_master *x = rg_masters_at(a->t.masters, i), *y = rg_masters_at(b->t.masters, i);
        assert_memory_equal(x->w, y->w, x->n * sizeof *x->w);
    }
}

/* Stopped after three steps, and resumed in another process, as it were, with other threads; with full weights and LoRA. */
static void goes_on_with_the_same_bits(void **state)
{
    char file[512];
    const char *data[] = { file };
    const rg_train_settings s = small_settings();

    (void)state;
    snprintf(file, sizeof file, "%s.jsonl", documents("resumed"));
    rename(documents("resumed"), file);
    for (int rank = 0; rank <= 4; rank += 4) {
        const rg_feed_options feed = { .files = data, .n_files = 1 };
        char saved[512];
        training a, b;
        rg_error err = { 0 };

        snprintf(saved, sizeof saved, "%s", test_scratch("run.safetensors"));
        begin(&a, test_data("llama"), &s, &feed, 2, rank);
        begin(&b, test_data("llama"), &s, &feed, 1, rank);
        assert_int_equal(rg_training_resume(b.run, test_scratch("none.safetensors"), &err), 0);
        for (int i = 0; i < 8; i++) {
            next(&a);
            if (i == 2)
                assert_ok(rg_training_save(a.run, saved, &err), err);
        }
        assert_int_equal(rg_training_resume(b.run, saved, &err), 1);
        assert_int_equal(rg_training_done(b.run), 3);
        for (int i = 3; i < 8; i++)
            next(&b);
        assert_same_weights(&a, &b);
        end(&b);
        rg_train_settings other = s;
        other.peak *= 2;
        begin(&b, test_data("llama"), &other, &feed, 1, rank);
        assert_int_equal(rg_training_resume(b.run, saved, &err), -1);
        assert_non_null(strstr(err.text, "settings"));
        end(&b);
        end(&a);
    }
}

/* The rate of wsd stays until the last fifth.  What was trained until there is the beginning of a longer run, with the
 * same bits; what was trained further is not, nor is any of a cosine. */
/* In bf16 losses and norms are near those of f32, and not the same; and every instruction set and number of threads
 * gives the same bits. */
static void trains_in_bf16_alike_everywhere(void **state)
{
    static const struct { const char *isa; int n_threads; } on[] = { { "ref", 1 }, { "auto", 1 }, { "auto", 3 } };
    enum { STEPS = 4 };
    json_t *all = cases_load("train/runs.json"), *v = json_object_get(all, "adamw");
    rg_train_settings s = settings_of(json_object_get(v, "settings"));
    const char *path = batches_of(v, &s, s.steps, "targets", "bf16.safetensors"), *isa = test_isa;
    training r[RG_LEN(on)];

    (void)state;
    s.precision = RG_PRECISION_BF16;
    for (size_t k = 0; k < RG_LEN(on); k++) {
        test_isa = on[k].isa;
        begin(&r[k], test_data("llama"), &s, &(rg_feed_options){ .batches = path }, on[k].n_threads, 0);
        for (size_t i = 0; i < STEPS; i++) {
            const rg_training_step step = next(&r[k]);
            const double loss = number(json_object_get(v, "loss"), i);

            close_to("loss", i, step.loss, loss, 1e-2 / loss);
            close_to("norm", i, step.grad_norm, number(json_object_get(v, "grad_norm"), i), 0.03);
            assert_true(fabs(step.loss - loss) > 1e-6); /* products were rounded */
        }
        if (k)
            assert_same_weights(&r[0], &r[k]);
    }
    test_isa = isa;
    for (size_t k = 0; k < RG_LEN(on); k++)
        end(&r[k]);
    json_decref(all);
}

static void goes_on_to_more_steps_while_the_rate_is_the_same(void **state)
{
    char file[512], stable[512], late[512];
    const char *data[] = { file };
    rg_train_settings s = small_settings(), longer, other;
    training a, b;
    rg_error err = { 0 };

    (void)state;
    snprintf(file, sizeof file, "%s.jsonl", documents("longer"));
    rename(documents("longer"), file);
    snprintf(stable, sizeof stable, "%s", test_scratch("stable.safetensors"));
    snprintf(late, sizeof late, "%s", test_scratch("late.safetensors"));
    const rg_feed_options feed = { .files = data, .n_files = 1 };
    assert_true(rg_rate_shape_by_name("wsd", &s.schedule));
    s.steps = 10;
    assert_int_equal(rg_train_decay_from(&s), 8);
    assert_true(rg_train_rate(&s, 0) == s.peak / 2 && rg_train_rate(&s, 2) == s.peak && rg_train_rate(&s, 7) == s.peak);
    assert_true(fabs(rg_train_rate(&s, 8) - s.peak * 0.55) < 1e-12 &&
                fabs(rg_train_rate(&s, 9) - s.peak * 0.1) < 1e-12);
    longer = other = s;
    longer.steps = 15;
    begin(&a, test_data("llama"), &s, &feed, 1, 0);
    for (int i = 0; i < 9; i++) {
        if (i == 8)
            assert_ok(rg_training_save(a.run, stable, &err), err);
        next(&a);
    }
    assert_ok(rg_training_save(a.run, late, &err), err);
    end(&a);
    begin(&a, test_data("llama"), &longer, &feed, 1, 0);
    begin(&b, test_data("llama"), &longer, &feed, 2, 0);
    assert_int_equal(rg_training_resume(b.run, stable, &err), 1);
    for (int i = 0; i < 15; i++)
        next(&a);
    for (int i = 8; i < 15; i++)
        next(&b);
    assert_same_weights(&a, &b);
    assert_int_equal(rg_training_resume(b.run, late, &err), -1);
    end(&b);
    other.steps = 15;
    other.weight_decay /= 2;
    begin(&b, test_data("llama"), &other, &feed, 1, 0);
    assert_int_equal(rg_training_resume(b.run, stable, &err), -1);
    end(&b);
    end(&a);
}

/* ---- data -------------------------------------------------------------------------------------------------------- */

static void packs_each_document_once_in_an_order_by_seed(void **state)
{
    char file[512];
    const char *data[] = { file };
    rg_train_settings s = small_settings();
    int64_t n_ids = 0;
    int seen[2][400] = { { 0 } };
    int32_t first[2][24];

    (void)state;
    snprintf(file, sizeof file, "%s.jsonl", documents("packed"));
    rename(documents("packed"), file);
    for (int i = 0; i < 40; i++)
        n_ids += 4 + i * 5 % 31;
    s.rows = s.micro = 1;
    for (int turn = 0; turn < 2; turn++) {
        rg_error err = { 0 };
        const rg_texts *t;

        s.seed = (uint64_t)turn;
        rg_feed *f = rg_feed_open(&(rg_feed_options){ .files = data, .n_files = 1, .vocab_size = 400 }, &s, &err);
        assert_ok(f, err);
        assert_int_equal(rg_feed_documents(f), 40);
        for (int64_t got = 0; got < n_ids;) {
            assert_ok(rg_feed_next(f, &t, &err), err);
            if (!got)
                memcpy(first[turn], t->ids, sizeof first[turn]);
            for (int i = 0; i < s.length && got < n_ids; i++, got++) {
                seen[turn][t->ids[i]]++;
                const bool last = i + 1 == s.length || t->document[i + 1] != t->document[i];
                assert_int_equal(t->targets[i], last ? RG_NO_TARGET : t->ids[i + 1]);
            }
        }
        rg_feed_close(f);
    }
    assert_memory_equal(seen[0], seen[1], sizeof seen[0]);
    assert_memory_not_equal(first[0], first[1], sizeof first[0]);
}

/* What stands before a completion is read and not learnt. */
static void learns_completions_alone(void **state)
{
    rg_train_settings s = small_settings();
    rg_error err = { 0 };
    const rg_texts *t;
    char file[512];
    const char *data[] = { file };
    int n = 0;

    (void)state;
    snprintf(file, sizeof file, "%s.jsonl", test_scratch("pairs"));
    test_write_text(file, "{\"prompt\": \"Once upon a time there was a\", \"completion\": \" dog\"}\n");
    rg_tokenizer *tokens = rg_tokenizer_open_path(RG_SOURCE_DIR "/models/tales-1m", &err);
    assert_ok(tokens, err);
    s.rows = s.micro = 1;
    rg_feed *f = rg_feed_open(
        &(rg_feed_options){ .files = data, .n_files = 1, .tokenizer = tokens, .vocab_size = 4096 }, &s, &err);
    assert_ok(f, err);
    assert_ok(rg_feed_next(f, &t, &err), err);
    for (int i = 0; i < 10 && t->document[i] == t->document[0]; i++)
        n += t->targets[i] != RG_NO_TARGET;
    assert_int_equal(n, 2); /* " dog" and the end */
    rg_feed_close(f);
    rg_tokenizer_close(tokens);
}

static void refuses_what_is_no_data(void **state)
{
    static const struct {
        const char *name, *text, *about;
    } cases[] = {
        { "empty.txt", "\n\n \n", "document" },
        { "bad.jsonl", "{\"texts\": 1}\n", "text" },
        { "json.jsonl", "{\"text\": \n", "json.jsonl" },
        { "large.jsonl", "{\"ids\": [1, 5000]}\n", "5000" },
        { "word.jsonl", "{\"ids\": [1, \"a\"]}\n", "whole numbers" },
        { "plain.txt", "some text\n", "tokenizer" },
    };
    rg_train_settings s = small_settings();

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        const char *path = test_scratch(cases[i].name), *data[] = { path };
        rg_error err = { 0 };
        const rg_texts *t;

        test_write_text(path, cases[i].text);
        rg_feed *f = rg_feed_open(&(rg_feed_options){ .files = data, .n_files = 1, .vocab_size = 400 }, &s, &err);
        assert_true(!f || !rg_feed_next(f, &t, &err));
        if (!strstr(err.text, cases[i].about))
            fail_msg("%s: '%s'", cases[i].name, err.text);
        rg_feed_close(f);
    }
}

/* ---- LoRA -------------------------------------------------------------------------------------------------------- */

/* The model with the adapter that was written computes what the trained one does. */
static void writes_adapters_that_load(void **state)
{
    char file[512], dir[512];
    const char *data[] = { file };
    const rg_train_settings s = small_settings();
    rg_error err = { 0 };
    training r;
    int n_compared = 0;

    (void)state;
    snprintf(file, sizeof file, "%s.jsonl", documents("lora"));
    rename(documents("lora"), file);
    snprintf(dir, sizeof dir, "%s", test_scratch("adapter"));
    begin(&r, test_data("llama"), &s, &(rg_feed_options){ .files = data, .n_files = 1 }, 2, 8);
    for (int i = 0; i < 8; i++)
        next(&r);
    assert_ok(rg_lora_write(r.lora, dir, "llama", &err), err);
    const rg_adapter_source source = { .name = "x", .path = dir };
    rg_model *m = rg_model_open(r.t.ckpt, &(rg_model_options){ .adapters = &source, .n_adapters = 1 }, &err);
    assert_ok(m, err);
    for (int i = 0; i < m->weights.n; i++) {
        const rg_weight *w = &m->weights.all[i];
        char name[160];

        if (!w->deltas || !w->deltas[0].a)
            continue;
        snprintf(name, sizeof name, "%s%s", w->name, strstr(w->name, ".weight") ? "" : ".weight");
        const rg_master *t = rg_masters_find(r.t.masters, name);
        assert_non_null(t);
        n_compared++;
        float *a = malloc((size_t)w->cols * 8 * sizeof *a), b[8], *row = malloc((size_t)w->cols * sizeof *row);
        for (int k = 0; k < 8; k++)
            trained_backend()->weight_get(w->deltas[0].a, 0, k, a + k * w->cols);
        trained_backend()->weight_get(w->deltas[0].b, 0, 3, b);
        trained_backend()->weight_get(w->placed, 0, 3, row);
        for (int64_t c = 0; c < w->cols; c++) {
            double want = (double)row[c];
            for (int k = 0; k < 8; k++)
                want += (double)w->deltas[0].scale * (double)b[k] * (double)a[k * w->cols + c];
            if (!(fabs(want - (double)t->w[3 * w->cols + c]) <= 1e-5))
                fail_msg("%s: column %lld is %g, not %g", name, (long long)c, want, (double)t->w[3 * w->cols + c]);
        }
        free(a);
        free(row);
    }
    assert_int_equal(n_compared, 7 * rg_masters_model(r.t.masters)->config.n_layers);
    rg_model_close(m);
    end(&r);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(updates_as_defined),
        cmocka_unit_test(knows_what_decays),
        cmocka_unit_test(trains_on_as_the_golden),
        cmocka_unit_test(trains_from_scratch_as_the_golden),
        cmocka_unit_test(goes_on_with_the_same_bits),
        cmocka_unit_test(trains_in_bf16_alike_everywhere),
        cmocka_unit_test(goes_on_to_more_steps_while_the_rate_is_the_same),
        cmocka_unit_test(packs_each_document_once_in_an_order_by_seed),
        cmocka_unit_test(learns_completions_alone),
        cmocka_unit_test(refuses_what_is_no_data),
        cmocka_unit_test(writes_adapters_that_load),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
