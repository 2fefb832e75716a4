/* Everything that writes models and checkpoints, with each allocation and each system call failing once in turn. */
#include "support/failing.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "model/convert.h"
#include "shrink/prune.h"
#include "shrink/shrink.h"
#include "train/lora.h"
#include "train/samples.h"
#include "train/training.h"

enum { SAMPLES = 2, CTX = 16 };

static int32_t ids[SAMPLES * CTX];

static const rg_backend *best_backend(void)
{
    const rg_backend *best = test_backend(0);

    for (int i = 0; test_backend(i); i++)
        best = test_backend(i);
    return best;
}

static const char *path_in(char out[600], const char *folder, const char *name)
{
    snprintf(out, 600, "%s/%s", folder, name);
    return out;
}

/* ---- quantize, shrink, prune -------------------------------------------------------------------------------------- */

static bool quantize(void *arg, const char *folder, rg_error *err)
{
    const rg_convert_options o = { .type = RG_Q4_K, .n_threads = 2 };
    rg_convert_report r = { 0 };
    char to[600];

    rg_checkpoint *c = rg_checkpoint_open(arg, RG_CKPT_DEFAULT, err);
    const bool ok = c && rg_convert(&r, c, path_in(to, folder, "m.gguf"), &o, err);
    if (c)
        rg_convert_report_fini(&r);
    rg_checkpoint_close(c);
    return ok;
}

typedef struct shrinking {
    const char *method;
    bool to_gguf;
} shrinking;

static bool shrink(void *arg, const char *folder, rg_error *err)
{
    const shrinking *s = arg;
    const rg_shrink_method *m = rg_shrink_method_find(s->method, err);
    rg_shrink_options o = { .method = m,
                            .coding = { .bits = 4, .group = 32 },
                            .alpha = 0.5f,
                            .to_gguf = s->to_gguf,
                            .ids = ids,
                            .n_samples = SAMPLES,
                            .ctx = CTX,
                            .n_threads = 1,
                            .backend = best_backend() };
    rg_shrink_report r = { 0 };
    char to[600];

    rg_checkpoint *c = m ? rg_checkpoint_open(test_data("llama"), RG_CKPT_DEFAULT, err) : NULL;
    const bool ok = c && rg_shrink(&r, c, path_in(to, folder, s->to_gguf ? "m.gguf" : "m"), &o, err);
    if (c)
        rg_shrink_report_fini(&r);
    rg_checkpoint_close(c);
    return ok;
}

static bool prune(void *arg, const char *folder, rg_error *err)
{
    const rg_stage_options stage = {
        .backend = best_backend(), .n_threads = 1, .ids = ids, .n_samples = SAMPLES, .ctx = CTX
    };
    const rg_prune_options o = { .n_layers = 3, .n_neurons = 64 };
    rg_importance i = { 0 };
    uint64_t bytes;
    char to[600];

    (void)arg;
    rg_checkpoint *c = rg_checkpoint_open(test_data("llama"), RG_CKPT_DEFAULT, err);
    rg_stage *s = c ? rg_stage_open(c, &stage, err) : NULL;
    const bool ok = s && rg_importance_measure(&i, s, err) &&
                    rg_prune(c, &rg_stage_model(s)->config, &i, &o, path_in(to, folder, "m"), &bytes, err);
    rg_importance_fini(&i);
    rg_stage_close(s);
    rg_checkpoint_close(c);
    return ok;
}

/* ---- training ------------------------------------------------------------------------------------------------------ */

typedef struct run {
    rg_checkpoint *ckpt;
    rg_masters *masters;
    rg_pool *pool;
    rg_feed *feed;
    rg_lora *lora;
    rg_stand_in stand_in;
    rg_train_settings settings;
    rg_training *training;
} run;

static char documents[600];

static void write_documents(void)
{
    snprintf(documents, sizeof documents, "%s", test_scratch("documents.jsonl"));
    FILE *f = fopen(documents, "w");

    assert_non_null(f);
    for (int i = 0; i < 12; i++)
        fprintf(f, "{\"ids\": [%d, %d, %d, %d, %d]}\n", i, i + 7, 3 * i, 90 - i, 11);
    assert_int_equal(fclose(f), 0);
}

/* False: what was opened is still to be closed. */
static bool run_open(run *r, bool lora, rg_error *err)
{
    const rg_backend *b = best_backend();
    const char *data[] = { documents };

    r->settings = rg_train_settings_default();
    r->settings.steps = 3;
    r->settings.micro = r->settings.rows = 1;
    r->settings.length = 12;
    if (!(r->ckpt = rg_checkpoint_open(test_data("llama"), RG_CKPT_NO_WEIGHTS, err)) ||
        !(r->masters = rg_masters_open(r->ckpt, b, err)) || !(r->pool = rg_pool_new(1, err)))
        return false;
    const rg_feed_options feed = { .files = data,
                                   .n_files = 1,
                                   .vocab_size = rg_masters_model(r->masters)->config.vocab_size };
    if (!(r->feed = rg_feed_open(&feed, &r->settings, err)) ||
        (lora && !(r->lora = rg_lora_new(r->masters, 2, 4, 1, err))))
        return false;
    if (lora)
        r->stand_in = rg_lora_stand_in(r->lora);
    const rg_training_options o = { .masters = r->masters,
                                    .stand_in = lora ? &r->stand_in : NULL,
                                    .feed = r->feed,
                                    .settings = &r->settings,
                                    .backend = b,
                                    .pool = r->pool,
                                    .n_threads = 1 };
    return (r->training = rg_training_new(&o, err)) != NULL;
}

static void run_close(run *r)
{
    rg_training_free(r->training);
    rg_lora_free(r->lora);
    rg_feed_close(r->feed);
    rg_pool_free(r->pool);
    rg_masters_close(r->masters);
    rg_checkpoint_close(r->ckpt);
    *r = (run){ 0 };
}

static bool steps(run *r, int n, rg_error *err)
{
    rg_training_step s;

    for (int i = 0; i < n; i++)
        if (!rg_training_next(r->training, &s, err))
            return false;
    return true;
}

/* A step, a checkpoint, and two steps more by a run that goes on from it. */
static bool train(void *arg, const char *folder, rg_error *err)
{
    const bool lora = arg != NULL;
    char saved[600], to[600];
    run r = { 0 };

    path_in(saved, folder, "run.safetensors");
    path_in(to, folder, "out");
    bool ok = run_open(&r, lora, err) &&
              (rg_path_look(saved) == RG_PATH_FILE || (steps(&r, 1, err) && rg_training_save(r.training, saved, err)));
    run_close(&r);
    ok = ok && run_open(&r, lora, err) && rg_training_resume(r.training, saved, err) == 1 && steps(&r, 2, err) &&
         (lora ? rg_lora_write(r.lora, to, "llama", err) : rg_masters_write(r.masters, to, RG_F32, err));
    run_close(&r);
    return ok;
}

/* Draws that are kept, and found again by who opens the file next. */
static bool keep_samples(void *arg, const char *folder, rg_error *err)
{
    const rg_samples_kind kind = { .draws = 4, .vocab_size = 100, .seed = 1, .teacher = 2 };
    int32_t id[] = { 5, 9 }, count[] = { 3, 1 }, got_id[8], got_count[8];
    const rg_draws draws = { id, count, 2 };
    rg_draws got;
    char path[600];
    bool ok = true;

    (void)arg;
    path_in(path, folder, "drawn.work"); /* it grows: what a failure leaves is a shorter one */
    for (int i = 0; i < 2 && ok; i++) {
        rg_samples *s = rg_samples_open(path, &kind, err);
        ok = s != NULL;
        for (uint64_t key = 1; key < 4 && ok; key++) {
            const int n = rg_samples_get(s, key, 1, &got, got_id, got_count, err);
            ok = n == 1 || (n == 0 && rg_samples_put(s, key, 1, &draws, err));
            if (n == 1 && (got.n != 2 || got.id[0] != 5 || got.count[1] != 1))
                fail_msg("draws that were kept are not those that are found");
        }
        rg_samples_close(s);
    }
    return ok;
}

/* ---- all of them --------------------------------------------------------------------------------------------------- */

static shrinking rtn = { "rtn", false }, gptq = { "gptq", true }, awq = { "awq", false },
                 smoothquant = { "smoothquant", false };

static char llama[600], mamba[600];

static const test_job jobs[] = {
    { "quantize llama", quantize, llama, 60 },
    { "quantize mamba", quantize, mamba, 60 },
    { "shrink by rtn", shrink, &rtn, 40 },
    { "shrink by gptq to GGUF", shrink, &gptq, 40 },
    { "shrink by awq", shrink, &awq, 40 },
    { "shrink by smoothquant", shrink, &smoothquant, 40 },
    { "prune", prune, NULL, 60 },
    { "train", train, NULL, 60 },
    { "train LoRA", train, &rtn, 60 },
    { "keep draws of a teacher", keep_samples, NULL, 200 },
};

static void fail_each(test_operations kind)
{
    for (size_t i = 0; i < RG_LEN(jobs); i++)
        test_each_fails(&jobs[i], kind);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    fail_each(TEST_ALLOCATIONS);
}

static void every_system_call_may_fail(void **state)
{
    (void)state;
    fail_each(TEST_SYSTEM_CALLS);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(every_system_call_may_fail),
    };

    test_init(argc, argv);
    for (int i = 0; i < SAMPLES * CTX; i++)
        ids[i] = i * 37 % 320;
    snprintf(llama, sizeof llama, "%s", test_data("llama"));
    snprintf(mamba, sizeof mamba, "%s", test_data("mamba"));
    write_documents();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
