/* Opening and running a model with each allocation, and each file operation, failing once in turn: a clean error, nothing
 * leaked, and the next try works.  And what the kernels cannot do is refused when the model is opened, not asserted in a step. */
#include "support/model.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"

enum { N_STEPS = 3, MAX_TRIES = 5000 };

/* The n-th operation from now fails; n_asked counts them all. */
typedef struct gate {
    long n_asked, fails_at;
} gate;

static bool allow(gate *g)
{
    return g->n_asked++ != g->fails_at;
}

static bool allow_bytes(void *arg, size_t bytes)
{
    (void)bytes;
    return allow(arg);
}

static bool allow_operation(void *arg, const char *operation)
{
    (void)operation;
    return allow(arg);
}

static void take_first(void *arg, int thread, int i, float *logits)
{
    (void)thread;
    (void)i;
    *(float *)arg = logits[0];
}

static bool few_steps(rg_runner *r, rg_states *s, rg_seq *q, float *out, rg_error *err)
{
    for (int32_t i = 0; i < N_STEPS; i++) {
        int32_t token = 7 + i, index = i, pos[1][4] = { { i } }, kv_end = i + 1, row = 0;
        rg_span span = { .first_row = 0 };

        if (!rg_seq_grow(s, q, i + 1))
            return rg_fail(err, RG_E_LIMIT, "no room");
        rg_seq_span(s, q, 1, 0, &span);
        rg_batch b = { .n_rows = 1, .n_spans = 1, .spans = &span, .token = &token, .index = &index, .kv_end = &kv_end,
                       .pos = (const int32_t(*)[4])pos, .n_logits = 1, .logit_rows = &row };
        r->step(r, &b, &(rg_sink){ .logits = take_first, .arg = out });
        rg_seq_advance(s, q, 1, 0, NULL);
    }
    return true;
}

/* All of it, from the path to logits.  False and *err: some of it failed; nothing is left either way. */
static bool open_and_run(const char *path, float *out, rg_error *err)
{
    rg_runner_options o = { .backend = rg_backend_find("auto", NULL), .n_threads = 2, .exact = true, .max_rows = 8, .max_logits = 8,
                            .max_seqs = 2, .max_seq_len = 256, .state_bytes = (size_t)16 << 20 };
    rg_checkpoint *c = rg_checkpoint_open(path, RG_CKPT_DEFAULT, err);

    rg_model *m = c ? rg_model_open(c, &(rg_model_options){ 0 }, err) : NULL;
    rg_runner *r = m ? rg_model_runner_new(m, &o, err) : NULL;
    rg_states *s = r ? rg_states_new(r->spec, r->store, true, err) : NULL;
    rg_seq *q = s ? rg_seq_new(s, 64, 0, err) : NULL;
    bool ok = q && few_steps(r, s, q, out, err);

    if (s)
        rg_seq_free(s, q);
    rg_states_free(s);
    rg_model_runner_free(r);
    rg_model_close(m);
    rg_checkpoint_close(c);
    return ok;
}

/* Fail the 0th, 1st, ... operation until there are no more.  files: file operations, else allocations. */
static void each_fails(const char *path, bool files)
{
    float want, got;
    rg_error err = { 0 };
    gate g = { .fails_at = -1 };
    rg_mem_stats before;
    long n_failed = 0;

    assert_ok(open_and_run(path, &want, &err), err); /* whatever is made once is made now */
    before = rg_mem_count();
    for (long at = 0;; at++) {
        assert_true(at < MAX_TRIES);
        g = (gate){ .fails_at = at };
        err = (rg_error){ 0 };
        if (files)
            rg_file_set_gate(allow_operation, &g);
        else
            rg_mem_set_gate(allow_bytes, &g);
        bool ok = open_and_run(path, &got, &err);
        rg_file_set_gate(NULL, NULL);
        rg_mem_set_gate(NULL, NULL);
        assert_int_equal(rg_mem_count().n_live, before.n_live);
        assert_int_equal(rg_mem_count().live_bytes, before.live_bytes);
        if (ok)
            assert_memory_equal(&got, &want, sizeof got);
        if (g.n_asked <= at)
            break;
        if (ok)
            continue; /* done without: a huge page, a file that need not be there */
        n_failed++;
        if (!err.text[0] || err.code != (files ? RG_E_IO : RG_E_MEMORY)) {
            print_error("%s: failing %s %ld gives code %d, '%s'\n", path, files ? "file operation" : "allocation", at, err.code,
                        err.text);
            fail();
        }
    }
    assert_ok(open_and_run(path, &got, &err), err);
    assert_memory_equal(&got, &want, sizeof got);
    assert_true(n_failed > (files ? 3 : 20));
    print_message("%s: %ld %s failed in turn\n", strrchr(path, '/') + 1, n_failed, files ? "file operations" : "allocations");
}

static void every_allocation(void **state)
{
    (void)state;
    each_fails(test_data("llama"), false);
    each_fails(test_data("mamba"), false);
    each_fails(test_data("llama/model.gguf"), false);
    each_fails(test_data("mamba/model.gguf"), false);
}

static void every_file_operation(void **state)
{
    (void)state;
    each_fails(test_data("llama"), true);
    each_fails(test_data("mamba"), true);
    each_fails(test_data("llama/model.gguf"), true);
    each_fails(test_data("mamba/model.gguf"), true);
}

/* ---- limits ------------------------------------------------------------------------------------------------------ */

/* A folder with the weights that a mamba of such a state and convolution has, all zero. */
static const char *mamba_of(int d_state, int d_conv)
{
    const int64_t dim = 16, inner = 32, vocab = 32, rank = 1;
    const struct { const char *name; int n; int64_t shape[3]; } tensors[] = {
        { "backbone.embeddings.weight", 2, { vocab, dim } },
        { "backbone.norm_f.weight", 1, { dim } },
        { "backbone.layers.0.norm.weight", 1, { dim } },
        { "backbone.layers.0.mixer.in_proj.weight", 2, { 2 * inner, dim } },
        { "backbone.layers.0.mixer.conv1d.weight", 3, { inner, 1, d_conv } },
        { "backbone.layers.0.mixer.conv1d.bias", 1, { inner } },
        { "backbone.layers.0.mixer.x_proj.weight", 2, { rank + 2 * d_state, inner } },
        { "backbone.layers.0.mixer.dt_proj.weight", 2, { inner, rank } },
        { "backbone.layers.0.mixer.dt_proj.bias", 1, { inner } },
        { "backbone.layers.0.mixer.A_log", 2, { inner, d_state } },
        { "backbone.layers.0.mixer.D", 1, { inner } },
        { "backbone.layers.0.mixer.out_proj.weight", 2, { dim, inner } },
    };
    char name[64], path[600];
    rg_error err = { 0 };

    snprintf(name, sizeof name, "mamba-%d-%d", d_state, d_conv);
    const char *dir = test_scratch(name);
    assert_ok(rg_dir_make(dir, &err), err);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    rg_ckpt_writer *w = rg_safetensors_create(path, &err);
    assert_ok(w, err);
    for (size_t i = 0; i < RG_LEN(tensors); i++)
        assert_ok(rg_ckpt_declare(w, tensors[i].name, RG_F32, tensors[i].n, tensors[i].shape, &err), err);
    for (size_t i = 0; i < RG_LEN(tensors); i++) {
        int64_t n = tensors[i].shape[0] * (tensors[i].n > 1 ? tensors[i].shape[1] : 1) *
                    (tensors[i].n > 2 ? tensors[i].shape[2] : 1);
        float *zeros = rg_array((size_t)n, sizeof *zeros);
        assert_ok(rg_ckpt_write(w, zeros, (size_t)n * sizeof *zeros, &err), err);
        rg_free(zeros);
    }
    assert_ok(rg_ckpt_commit(w, &err), err);
    snprintf(path, sizeof path, "%s/config.json", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "{\"architectures\": [\"MambaForCausalLM\"], \"model_type\": \"mamba\", \"hidden_size\": 16, \"vocab_size\": 32,"
               " \"num_hidden_layers\": 1, \"intermediate_size\": 32, \"time_step_rank\": 1, \"state_size\": %d,"
               " \"conv_kernel\": %d}\n", d_state, d_conv);
    fclose(f);
    return dir;
}

static void what_the_kernels_cannot_do_is_refused(void **state)
{
    static const struct { int d_state, d_conv; bool ok; } cases[] = {
        { 16, 4, true }, { 16, 16, true }, { 1024, 4, true }, { 1, 1, true },
        { 16, 17, false }, { 1025, 4, false }, { 4096, 64, false },
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        rg_error err = { 0 };
        float logit;
        bool ok = open_and_run(mamba_of(cases[i].d_state, cases[i].d_conv), &logit, &err);

        if (ok != cases[i].ok)
            print_error("state %d, convolution %d: %s\n", cases[i].d_state, cases[i].d_conv, err.text);
        assert_int_equal(ok, cases[i].ok);
        assert_true(ok || err.code == RG_E_UNSUPPORTED || err.code == RG_E_INPUT || err.code == RG_E_LIMIT);
    }
}

static void weights_packed_by_others_are_refused_by_name(void **state)
{
    const char *path = test_variant("packed", "llama", "config.json", "\"pretraining_tp\": 1",
                                    "\"quantization_config\": { \"quant_method\": \"aqlm\", \"bits\": 4 }");
    rg_error err = { 0 };
    float logit;

    (void)state;
    assert_false(open_and_run(path, &logit, &err));
    assert_int_equal(err.code, RG_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "'aqlm'"));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation),
        cmocka_unit_test(every_file_operation),
        cmocka_unit_test(what_the_kernels_cannot_do_is_refused),
        cmocka_unit_test(weights_packed_by_others_are_refused_by_name),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
