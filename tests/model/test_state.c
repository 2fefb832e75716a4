/* test_state.c -- how much a sequence of a model keeps, that whoever counts it counts the same, and that no number in a
 * file asks for memory beyond what state may take. */
#include "support/model.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "ckpt/writer.h"
#include "plan/plan.h"

/* A model of one of bench/shapes, without weights. */
static void declare_shape(test_model *t, const char *name, int max_draft)
{
    char path[512];
    rg_error err = { 0 };

    snprintf(path, sizeof path, "%s/bench/shapes/%s.json", RG_SOURCE_DIR, name);
    t->ckpt = rg_checkpoint_open(path, RG_CKPT_NO_WEIGHTS, &err);
    assert_ok(t->ckpt, err);
    t->m = rg_model_open(t->ckpt, &(rg_model_options){ .declare_only = true, .declared_type = RG_BF16,
                                                       .max_draft = max_draft }, &err);
    assert_ok(t->m, err);
}

/* 24 layers of a state [16][1536] and a tail [3][1536] of f32; room for drafts only where they can come. */
static void a_mamba_keeps_what_it_needs(void **state)
{
    test_model t;

    (void)state;
    declare_shape(&t, "mamba-130m", 0);
    assert_int_equal(rg_state_bytes_per_sequence(&t.m->state), 24 * (16 + 3) * 1536 * 4);
    assert_int_equal(rg_state_bytes_per_position(&t.m->state), 0);
    test_model_close(&t);
    declare_shape(&t, "mamba-130m", 7);
    assert_int_equal(rg_state_bytes_per_sequence(&t.m->state), 24 * ((16 + 3) * 1536 * 4 + 7 * (3 * 1536 + 16) * 4));
    test_model_close(&t);
}

static void plan_counts_the_same_state(void **state)
{
    static const char *const shapes[] = { "mamba-130m", "gemma3-1b", "tinyllama-1.1b", "mixtral-8x160m" };

    (void)state;
    for (size_t i = 0; i < RG_LEN(shapes); i++) {
        enum { LEN = 32768 }; /* longer than any window, and whole blocks */
        double kv, recurrent;
        test_model t;

        declare_shape(&t, shapes[i], 0);
        rg_plan_state_bytes(t.m, LEN, &kv, &recurrent);
        assert_true(kv + recurrent == (double)rg_state_bytes_per_sequence(&t.m->state) +
                                          (double)LEN * (double)rg_state_bytes_per_position(&t.m->state));
        test_model_close(&t);
    }
}

/* ---- what a file's numbers can ask for --------------------------------------------------------------------------- */

static char skipped[64];

static bool skip_key(const char *key)
{
    return !strcmp(key, skipped);
}

/* The golden's model.gguf with another number at a key of its architecture.  Its path. */
static const char *with_number(const char *name, const char *key, int64_t value)
{
    char from[64], to[128];
    const char *arch;
    rg_error err = { 0 };

    snprintf(from, sizeof from, "%s/model.gguf", name);
    snprintf(to, sizeof to, "%s-%s.gguf", name, key);
    rg_checkpoint *c = rg_checkpoint_open(test_data(from), RG_CKPT_DEFAULT, &err);
    assert_ok(c, err);
    assert_ok(rg_meta_string(c, "general.architecture", &arch, &err) > 0, err);
    snprintf(skipped, sizeof skipped, "%s.%s", arch, key);
    const char *path = test_scratch(to);
    rg_ckpt_writer *w = rg_gguf_create(path, &err);
    assert_ok(w, err);
    assert_ok(rg_ckpt_put_all(w, c, skip_key, &err), err);
    assert_ok(rg_ckpt_put_int(w, skipped, 4, value, &err), err);
    for (int i = 0; i < rg_checkpoint_n_tensors(c); i++) {
        const rg_tensor *t = rg_checkpoint_tensor(c, i);
        assert_ok(rg_ckpt_declare(w, t->name, t->type, t->n_dims, t->shape, &err), err);
    }
    for (int i = 0; i < rg_checkpoint_n_tensors(c); i++) {
        const rg_tensor *t = rg_checkpoint_tensor(c, i);
        uint8_t *data = malloc(t->bytes);
        assert_ok(rg_tensor_read(c, t, 0, data, t->bytes, &err), err);
        assert_ok(rg_ckpt_write(w, data, t->bytes, &err), err);
        free(data);
    }
    assert_ok(rg_ckpt_commit(w, &err), err);
    rg_checkpoint_close(c);
    return path;
}

/* The most bytes that were asked for and not given back, at once. */
typedef struct meter {
    size_t before;
    atomic_size_t most;
} meter;

static bool measure(void *arg, size_t bytes)
{
    meter *m = arg;
    size_t now = rg_mem_count().live_bytes + bytes - m->before;

    if (now > m->most)
        m->most = now;
    return now < (size_t)1 << 30; /* a broken engine must not take the machine */
}

/* Open, answer a short prompt without a limit of its own, close; the memory that all of it took. */
static size_t memory_of(const char *path, size_t kv_bytes, int32_t *max_seq_len)
{
    static meter m; /* a test that fails leaves the gate set */
    rg_options o = rg_options_default();
    rg_error err = { 0 };
    rg_token t;

    m = (meter){ .before = rg_mem_count().live_bytes };
    o.kv_bytes = kv_bytes;
    o.n_threads = 2;
    rg_mem_set_gate(measure, &m);
    rg_engine *e = rg_open(path, &o, &err);
    assert_ok(e, err);
    *max_seq_len = rg_engine_info(e).max_seq_len;
    rg_params p = { .prompt = (const int32_t[]){ 1, 2, 3 }, .n_prompt = 3, .max_tokens = *max_seq_len, .n_samples = 1,
                    .sampling = rg_sampling_default() };
    rg_request *r = rg_submit(e, &p, &err);
    assert_ok(r, err);
    assert_true(rg_next(r, &t) && t.id >= 0);
    rg_request_close(r);
    rg_close(e);
    rg_mem_set_gate(NULL, NULL);
    return m.most;
}

enum { MEGABYTE = 1 << 20 };

static void a_context_in_a_file_takes_no_memory(void **state)
{
    static const char *const models[] = { "llama", "mamba", "gemma3", "deepseek-v2" };

    (void)state;
    for (size_t i = 0; i < RG_LEN(models); i++) {
        int32_t length;
        size_t bytes = memory_of(with_number(models[i], "context_length", INT32_MAX), 64 * MEGABYTE, &length);

        print_message("%s: %zu bytes, %d positions\n", models[i], bytes, (int)length);
        assert_in_range(bytes, 0, 200 * MEGABYTE);
        assert_in_range(length, 1 << 14, 1 << 24);
    }
}

static void a_window_in_a_file_takes_no_memory(void **state)
{
    int32_t length;
    size_t bytes;

    (void)state;
    bytes = memory_of(with_number("gemma3", "attention.sliding_window", INT32_MAX), 64 * MEGABYTE, &length);
    print_message("%zu bytes, %d positions\n", bytes, (int)length);
    assert_in_range(bytes, 0, 200 * MEGABYTE);
}

/* More than the memory for state can hold is refused when the model is opened. */
static void what_cannot_fit_is_refused(void **state)
{
    static const char *const models[] = { "llama", "mamba", "gemma3" };

    (void)state;
    for (size_t i = 0; i < RG_LEN(models); i++) {
        rg_options o = rg_options_default();
        rg_error err = { 0 };

        o.kv_bytes = 1000;
        assert_null(rg_open(test_data(models[i]), &o, &err));
        assert_int_equal(err.code, RG_E_LIMIT);
        assert_non_null(strstr(err.text, "raise --kv-memory"));
    }
}

/* Attention over a long context has no more scratch than one over a shorter one, and gives up sharing out instead. */
static void partial_sums_are_bounded(void **state)
{
    size_t made[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        const rg_lane_options o = { .sizes = { .max_rows = 1,
                                               .max_cols = 64,
                                               .n_threads = 1,
                                               .max_heads = 4096,
                                               .max_head_dim = 128,
                                               .max_keys = i ? INT32_MAX : 1 << 20 },
                                    .activation_bytes = 4096 };
        size_t before = rg_mem_count().live_bytes;
        rg_error err = { 0 };
        const rg_backend *b = rg_backend_find("auto", NULL);
        rg_lane *lane = b->open(b, &o, &err);

        assert_ok(lane, err);
        made[i] = rg_mem_count().live_bytes - before;
        b->close(lane);
    }
    assert_int_equal(made[0], made[1]);
    assert_in_range(made[1], 0, 100 * MEGABYTE);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mamba_keeps_what_it_needs),
        cmocka_unit_test(plan_counts_the_same_state),
        cmocka_unit_test(a_context_in_a_file_takes_no_memory),
        cmocka_unit_test(a_window_in_a_file_takes_no_memory),
        cmocka_unit_test(what_cannot_fit_is_refused),
        cmocka_unit_test(partial_sums_are_bounded),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
