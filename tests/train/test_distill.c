/* Losses of distillation against another program's in float64 (golden/train/kd.safetensors), draws by the same formula,
 * the store of draws, and students that come nearer to their teacher. */
#include "trained.h"

#include <math.h>
#include <unistd.h>

#include "base/mem.h"
#include "train/distill.h"
#include "train/training.h"

enum { ROWS = 12, IDS = 50, BEST = 8, DRAWN = 50, SEED = 21 };

/* A tensor of the golden as f32; rg_free it. */
static float *values(const char *name, size_t *n)
{
    rg_error err = { 0 };
    rg_checkpoint *c = rg_checkpoint_open_tensors(test_data("train/kd.safetensors"), &err);

    assert_ok(c, err);
    const rg_tensor *t = rg_checkpoint_find(c, name);
    assert_non_null(t);
    *n = (size_t)rg_tensor_count(t);
    uint8_t *raw = rg_alloc(t->bytes);
    float *out = rg_array(*n, sizeof *out);
    assert_ok(rg_tensor_read(c, t, 0, raw, t->bytes, &err), err);
    for (size_t i = 0; i < *n; i++)
        out[i] = t->type == RG_F64   ? (float)((const double *)(const void *)raw)[i]
                 : t->type == RG_I32 ? (float)((const int32_t *)(const void *)raw)[i]
                                     : ((const float *)(const void *)raw)[i];
    rg_free(raw);
    rg_checkpoint_close(c);
    return out;
}

static double value(const char *name)
{
    size_t n;
    float *v = values(name, &n);
    const double x = (double)v[0];

    rg_free(v);
    return x;
}

static void same(const char *what, const float *got, size_t ld, size_t cols, const char *name, double tolerance)
{
    size_t n;
    float *want = values(name, &n);
    double most = 0;

    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)want[i]));
    for (size_t i = 0; i < n; i++) {
        const double x = (double)got[i / cols * ld + i % cols];
        if (!(fabs(x - (double)want[i]) <= tolerance * most))
            fail_msg("%s, value %zu: %.9g, not %.9g", what, i, x, (double)want[i]);
    }
    rg_free(want);
}

static double mean(const double *loss, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += loss[i];
    return sum / n;
}

static void divergences_as_the_golden(void **state)
{
    static const struct {
        const char *name;
        rg_divergence d;
    } cases[] = {
        { "forward.T1", { RG_FORWARD_KL, 1, 0 } }, { "forward.T2", { RG_FORWARD_KL, 2, 0 } },
        { "forward.T4", { RG_FORWARD_KL, 4, 0 } }, { "reverse.T1", { RG_REVERSE_KL, 1, 0 } },
        { "reverse.T2", { RG_REVERSE_KL, 2, 0 } }, { "reverse.T4", { RG_REVERSE_KL, 4, 0 } },
        { "topk_rest", { RG_TOP_K_KL, 1, BEST } },
    };
    rg_pool *pool = rg_pool_new(2, &(rg_error){ 0 });
    rg_back_lane lane;
    double loss[ROWS];
    size_t n;

    (void)state;
    rg_back_lane_open(&lane, trained_backend(), pool, 2);
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        float *p = values("teacher", &n), *q = values("student", &n);
        char name[64];
        rg_mat teacher = { p, IDS, ROWS, IDS }, student = { q, IDS, ROWS, IDS };

        rg_divergence_of(&cases[i].d, &lane,
                         &(rg_divergence_rows){ &student, &teacher, .scale = 1.0 / ROWS, .loss = loss });
        if (!(fabs(mean(loss, ROWS) - value(cases[i].name)) <= 1e-5 * value(cases[i].name)))
            fail_msg("%s: %.9g, not %.9g", cases[i].name, mean(loss, ROWS), value(cases[i].name));
        snprintf(name, sizeof name, "grad.%s", cases[i].name);
        same(name, q, IDS, IDS, name, 1e-5);
        rg_free(p);
        rg_free(q);
    }
    rg_back_lane_close(&lane);
    rg_pool_free(pool);
}

/* A student that is all but the teacher: the loss is a small difference, and right to the last digits. */
static void a_small_divergence_is_exact(void **state)
{
    enum { N = 1000 };
    rg_back_lane lane;
    float p[N], q[N];
    double loss, want = 0, log_p = 0, log_q = 0;
    rg_mat teacher = { p, N, 1, N }, student = { q, N, 1, N };

    (void)state;
    for (int i = 0; i < N; i++) {
        p[i] = (float)(i * 37 % 101) / 16;
        q[i] = p[i] + (float)(i * 53 % 17 - 8) / 4096;
        log_p += exp((double)p[i]);
        log_q += exp((double)q[i]);
    }
    log_p = log(log_p);
    log_q = log(log_q);
    for (int i = 0; i < N; i++)
        want += exp((double)p[i] - log_p) * ((double)p[i] - log_p - (double)q[i] + log_q);
    rg_back_lane_open(&lane, trained_backend(), NULL, 1);
    rg_divergence_of(&(rg_divergence){ RG_FORWARD_KL, 1, 0 }, &lane,
                     &(rg_divergence_rows){ &student, &teacher, .scale = 1, .loss = &loss });
    assert_true(want < 1e-5 && fabs(loss - want) < 1e-5 * want);
    rg_back_lane_close(&lane);
}

static void draws_as_the_golden(void **state)
{
    size_t n, each;
    float *p = values("teacher", &n), *q = values("student", &n), *ids = values("sampled.ids", &each);
    float *counts = values("sampled.counts", &each);
    int32_t id[ROWS][DRAWN], count[ROWS][DRAWN];
    rg_draws draws[ROWS];
    rg_mat student = { q, IDS, ROWS, IDS };
    rg_back_lane lane;
    double loss[ROWS];

    (void)state;
    each /= ROWS;
    for (int r = 0; r < ROWS; r++) {
        const int k = rg_draw_ids(trained_backend(), p + r * IDS, IDS, DRAWN, SEED, (uint64_t)r, id[r], count[r]);

        draws[r] = (rg_draws){ id[r], count[r], k };
        for (size_t i = 0; i < each; i++) {
            assert_int_equal((int)i < k ? id[r][i] : -1, (int)ids[(size_t)r * each + i]);
            if ((int)i < k)
                assert_int_equal(count[r][i], (int)counts[(size_t)r * each + i]);
        }
    }
    rg_back_lane_open(&lane, trained_backend(), NULL, 1);
    rg_sampled_of(&lane, draws, &(rg_divergence_rows){ &student, .scale = 1.0 / ROWS, .loss = loss });
    assert_true(fabs(mean(loss, ROWS) - value("sampled")) <= 1e-5 * value("sampled"));
    same("sampled", q, IDS, IDS, "grad.sampled", 1e-5);
    rg_back_lane_close(&lane);
    rg_free(p);
    rg_free(q);
    rg_free(ids);
    rg_free(counts);
}

static void outputs_of_layers_as_the_golden(void **state)
{
    enum { LAYERS = 2, POSITIONS = 12, THEIRS = 24, OURS = 16 };
    size_t n;
    float *s = values("hidden.student", &n), *t = values("hidden.teacher", &n), *map = values("hidden.map", &n);
    float grad[LAYERS * POSITIONS * OURS] = { 0 }, d_map[THEIRS * OURS] = { 0 };
    rg_back_lane lane;
    double sum = 0;

    (void)state;
    rg_back_lane_open(&lane, trained_backend(), NULL, 1);
    for (int l = 0; l < LAYERS; l++) {
        rg_mat to = { grad + l * POSITIONS * OURS, OURS, POSITIONS, OURS };

        rg_output_loss_add(
            &lane,
            &(rg_output_loss){ .student = &(rg_mat){ s + l * POSITIONS * OURS, OURS, POSITIONS, OURS },
                               .teacher = &(rg_mat){ t + l * POSITIONS * THEIRS, THEIRS, POSITIONS, THEIRS },
                               .map = map,
                               .d_map = d_map,
                               .grad = &to,
                               .scale = 1.0 / (POSITIONS * THEIRS * LAYERS),
                               .by = 1 },
            &sum);
    }
    assert_true(fabs(sum - value("hidden.loss")) <= 1e-5 * sum);
    assert_true(fabs(value("logits_loss") / sum - value("alpha")) <= 1e-5 * value("alpha"));
    same("student", grad, OURS, OURS, "grad.hidden.student", 1e-5);
    same("map", d_map, OURS, OURS, "grad.hidden.map", 1e-5);
    rg_back_lane_close(&lane);
    rg_free(s);
    rg_free(t);
    rg_free(map);
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

typedef struct lesson {
    trained t;
    rg_checkpoint *from;
    rg_teacher *teacher;
    rg_samples *store;
    rg_distill *distill;
    rg_objective objective;
    rg_train_settings s;
    rg_feed *feed;
    rg_training *run;
} lesson;

static const char *texts_file(void)
{
    static char path[512];
    FILE *f;

    snprintf(path, sizeof path, "%s.jsonl", test_scratch("texts"));
    f = fopen(path, "w");
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

static void begin(lesson *l, const char *student, const char *teacher, const rg_distill_options *o, const char *store,
                  int n_threads)
{
    const char *data[] = { texts_file() };
    rg_distill_options options = *o;
    rg_error err = { 0 };

    *l = (lesson){ .s = rg_train_settings_default() };
    l->s.steps = 6;
    l->s.warmup = 1;
    l->s.rows = 3;
    l->s.length = 24;
    l->s.peak = 2e-3;
    l->s.weight_decay = 0;
    trained_open(&l->t, student, n_threads, 0);
    l->from = rg_checkpoint_open(teacher, RG_CKPT_DEFAULT, &err);
    assert_ok(l->from, err);
    l->teacher = rg_teacher_open(l->from, trained_backend(),
                                 &(rg_passes_options){ .n_threads = n_threads, .pool = l->t.pool }, &err);
    assert_ok(l->teacher, err);
    if (store) {
        const rg_samples_kind kind = { options.draws, 320, options.seed, 1 };
        assert_ok(l->store = rg_samples_open(store, &kind, &err), err);
        options.store = l->store;
    }
    l->distill = rg_distill_new(l->teacher, l->t.masters, &options, &err);
    assert_ok(l->distill, err);
    l->objective = rg_distill_objective(l->distill);
    l->feed = rg_feed_open(&(rg_feed_options){ .files = data, .n_files = 1, .vocab_size = 320 }, &l->s, &err);
    assert_ok(l->feed, err);
    l->run = rg_training_new(&(rg_training_options){ .masters = l->t.masters,
                                                     .feed = l->feed,
                                                     .objective = &l->objective,
                                                     .settings = &l->s,
                                                     .backend = trained_backend(),
                                                     .pool = l->t.pool,
                                                     .n_threads = n_threads },
                             &err);
    assert_ok(l->run, err);
}

static void end(lesson *l)
{
    rg_training_free(l->run);
    rg_feed_close(l->feed);
    rg_distill_free(l->distill);
    rg_samples_close(l->store);
    rg_teacher_close(l->teacher);
    rg_checkpoint_close(l->from);
    trained_close(&l->t);
}

static const rg_distill_options forward = { .loss = { RG_FORWARD_KL, 1, 0 } };

/* Forward KL of a batch that is not learnt. */
static double held(lesson *l)
{
    const rg_texts *texts;
    rg_error err = { 0 };
    double loss;
    rg_distill *judge = rg_distill_new(l->teacher, l->t.masters, &forward, &err);

    assert_ok(judge, err);
    const rg_objective o = rg_distill_objective(judge);
    assert_ok(rg_feed_held(l->feed, l->s.steps, &texts, &err), err);
    assert_ok(rg_training_loss(l->run, &o, texts, &loss, &err), err);
    rg_distill_free(judge);
    return loss;
}

static void learn(lesson *l, double *losses)
{
    rg_training_step s;
    rg_error err = { 0 };

    for (int i = 0; i < l->s.steps; i++) {
        assert_ok(rg_training_next(l->run, &s, &err), err);
        if (losses)
            losses[i] = s.loss;
    }
}

static void a_model_is_no_way_from_itself(void **state)
{
    lesson l;

    (void)state;
    begin(&l, test_data("llama"), test_data("llama"), &forward, NULL, 2);
    assert_true(held(&l) < 1e-9);
    end(&l);
}

/* Every loss brings a student nearer, of other families, depths and widths too. */
static void students_come_nearer(void **state)
{
    static const rg_distill_options options[] = {
        { .loss = { RG_FORWARD_KL, 2, 0 } },
        { .loss = { RG_REVERSE_KL, 1, 0 }, .targets_alone = true },
        { .loss = { RG_TOP_K_KL, 1, 20 } },
        { .loss = { RG_SAMPLED_KL, 1, 0 }, .draws = 20, .seed = 3 },
        { .loss = { RG_FORWARD_KL, 1, 0 }, .outputs = true },
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(options); i++) {
        lesson l;

        begin(&l, test_data("qwen3"), test_data(i % 2 ? "mamba" : "llama3"), &options[i], NULL, 2);
        const double before = held(&l);
        learn(&l, NULL);
        const double after = held(&l);
        if (!(after < 0.98 * before))
            fail_msg("loss %zu: %.6g before, %.6g after", i, before, after);
        end(&l);
    }
}

/* Logits of a packed row are those of its documents alone: the teacher's too. */
static void threads_change_no_bit(void **state)
{
    double losses[2][8];

    (void)state;
    for (int i = 0; i < 2; i++) {
        lesson l;

        begin(&l, test_data("llama"), test_data("gemma2"),
              &(rg_distill_options){ .loss = { 0, 1, 0 }, .outputs = true }, NULL, 1 + i);
        learn(&l, losses[i]);
        end(&l);
    }
    assert_memory_equal(losses[0], losses[1], 6 * sizeof(double));
}

/* A run goes on with the same bits, and only towards the same teacher by the same loss. */
static void a_run_goes_on_with_its_own_loss(void **state)
{
    const rg_distill_options other = { .loss = { RG_REVERSE_KL, 1, 0 } };
    char saved[512];
    double whole[8], second[8];
    rg_training_step s;
    rg_error err = { 0 };
    lesson l;

    (void)state;
    snprintf(saved, sizeof saved, "%s", test_scratch("lesson.safetensors"));
    begin(&l, test_data("llama"), test_data("llama3"), &forward, NULL, 2);
    for (int i = 0; i < l.s.steps; i++) {
        assert_ok(rg_training_next(l.run, &s, &err), err);
        whole[i] = s.loss;
        if (i == 2)
            assert_ok(rg_training_save(l.run, saved, &err), err);
    }
    end(&l);
    begin(&l, test_data("llama"), test_data("llama3"), &forward, NULL, 1);
    assert_int_equal(rg_training_resume(l.run, saved, &err), 1);
    for (int i = 3; i < l.s.steps; i++) {
        assert_ok(rg_training_next(l.run, &s, &err), err);
        second[i] = s.loss;
    }
    assert_memory_equal(whole + 3, second + 3, 3 * sizeof *whole);
    end(&l);
    begin(&l, test_data("llama"), test_data("llama3"), &other, NULL, 1);
    assert_int_equal(rg_training_resume(l.run, saved, &err), -1);
    end(&l);
    begin(&l, test_data("llama"), test_data("gemma2"), &forward, NULL, 1);
    assert_int_equal(rg_training_resume(l.run, saved, &err), -1);
    assert_non_null(strstr(err.text, "teacher"));
    end(&l);
}

/* The second run finds all draws in the file, and comes to the same; a tail that was not written whole is cut off. */
static void drawn_ids_are_found_again(void **state)
{
    const rg_distill_options o = { .loss = { RG_SAMPLED_KL, 1, 0 }, .draws = 20, .seed = 3 };
    char path[512];
    double losses[3][8];
    uint64_t bytes = 0;
    int64_t positions = 0;
    rg_error err = { 0 };

    (void)state;
    snprintf(path, sizeof path, "%s", test_scratch("draws"));
    for (int i = 0; i < 3; i++) {
        lesson l;

        if (i == 2)
            assert_int_equal(truncate(path, (off_t)bytes - 7), 0);
        begin(&l, test_data("llama"), test_data("llama3"), &o, path, 2);
        learn(&l, losses[i]);
        if (i)
            assert_int_equal(rg_samples_bytes(l.store), bytes);
        bytes = rg_samples_bytes(l.store);
        positions = rg_samples_positions(l.store);
        end(&l);
        assert_memory_equal(losses[0], losses[i], 6 * sizeof(double));
    }
    assert_int_equal(positions, 6 * 3 * 24);
    assert_true((double)bytes / (double)positions < 1 + 3 * 20 + 2);
    assert_null(rg_samples_open(path, &(rg_samples_kind){ 20, 320, 4, 1 }, &err));
    assert_non_null(strstr(err.text, "seed 3"));
    assert_null(rg_samples_open(path, &(rg_samples_kind){ 20, 320, 3, 2 }, &err));
    assert_non_null(strstr(err.text, "another teacher"));
    assert_null(rg_samples_open(test_data("train/kd.safetensors"), &(rg_samples_kind){ 20, 320, 3, 1 }, &err));
    assert_non_null(strstr(err.text, "no file of drawn ids"));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(divergences_as_the_golden),
        cmocka_unit_test(a_small_divergence_is_exact),
        cmocka_unit_test(draws_as_the_golden),
        cmocka_unit_test(outputs_of_layers_as_the_golden),
        cmocka_unit_test(a_model_is_no_way_from_itself),
        cmocka_unit_test(students_come_nearer),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(drawn_ids_are_found_again),
        cmocka_unit_test(a_run_goes_on_with_its_own_loss),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
