/* Tests of converting: a golden directory becomes the GGUF file that the format's own converter made of it, every type
 * holds what its encoder makes, GGUF to GGUF and directory to directory keep what they should, and failures leave
 * nothing behind. */
#include "support/test.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "model/convert.h"
#include "model/model.h"
#include "support/goldens.h"

static const char *out(const char *name)
{
    static char path[4][600];
    static int turn;
    char *p = path[turn++ % 4];
    rg_error err;

    snprintf(p, 600, "%s/convert_cases", RG_BUILD_DIR);
    assert_ok(rg_dir_make(p, &err), err);
    snprintf(p, 600, "%s/convert_cases/%s", RG_BUILD_DIR, name);
    return p;
}

static rg_checkpoint *open_ok(const char *path)
{
    rg_error err;
    rg_checkpoint *c = rg_checkpoint_open(path, RG_CKPT_DEFAULT, &err);

    assert_ok(c, err);
    return c;
}

/* True if there is a GGUF file to compare with.  Weights that are quantized already keep types of their own in it. */
static bool has_gguf(const char *name)
{
    if (rg_path_look(test_golden(name, "model.gguf")) != RG_PATH_FILE)
        return false;
    rg_checkpoint *c = open_ok(test_golden(name, ""));
    bool plain = rg_meta_type_of(c, "quantization_config.quant_method") == RG_META_NONE;

    rg_checkpoint_close(c);
    return plain;
}

static rg_convert_report convert_ok(const char *from, const char *to, rg_type type, bool to_hf, int n_threads)
{
    const rg_convert_options o = { .type = type, .to_hf = to_hf, .n_threads = n_threads };
    rg_convert_report r;
    rg_error err;
    rg_checkpoint *c = open_ok(from);

    assert_ok(rg_convert(&r, c, to, &o, &err), err);
    rg_checkpoint_close(c);
    return r;
}

static void *bytes_of(const rg_checkpoint *c, const rg_tensor *t)
{
    void *p = rg_alloc(t->bytes);
    rg_error err;

    assert_non_null(p);
    assert_ok(rg_tensor_read(c, t, 0, p, t->bytes, &err), err);
    return p;
}

static float *values_of(const rg_checkpoint *c, const rg_tensor *t)
{
    void *raw = bytes_of(c, t);
    float *v = rg_array((size_t)rg_tensor_count(t), sizeof *v);

    assert_non_null(v);
    rg_tensor_decode(t, raw, rg_tensor_rows(t), v);
    rg_free(raw);
    return v;
}

/* ---- against the files that the format's own converter made ---- */

/* How far a value may be off: the converter's exponential differs in the last place; its folded weights (below) were
 * rounded to bf16 after folding. */
static float tolerance(const char *name, float folded)
{
    return strstr(name, "ssm_a") ? 3e-7f : folded != 1 ? 0.01f : 0;
}

/* The files of the Gemma goldens have the attention's scale of 1 / sqrt(24), for which GGUF has no key, folded into q or
 * its norm; ours have a key for it, so theirs are smaller by sqrt(16 / 24), head_dim being 16. */
static float folding(const char *golden_name, const char *name)
{
    bool folded = (!strcmp(golden_name, "gemma2") && strstr(name, "attn_q.weight")) ||
                  (!strcmp(golden_name, "gemma3") && strstr(name, "attn_q_norm.weight"));

    return folded ? sqrtf(16.0f / 24.0f) : 1;
}

static void compare_values(const char *golden_name, const rg_checkpoint *want, const rg_tensor *a,
                           const rg_checkpoint *got, const rg_tensor *b)
{
    float *x = values_of(want, a), *y = values_of(got, b), by = folding(golden_name, a->name);

    for (int64_t k = 0; k < rg_tensor_count(a); k++)
        if (!(fabsf(x[k] - y[k] * by) <= tolerance(a->name, by) * fabsf(x[k])))
            fail_msg("%s: %s[%lld] is %g and not %g", golden_name, a->name, (long long)k, (double)(y[k] * by),
                     (double)x[k]);
    rg_free(x);
    rg_free(y);
}

static void compare_tensors(const char *name, const rg_checkpoint *want, const rg_checkpoint *got)
{
    /* The format's own converter leaves out a part of BERT's head, without which it cannot score. */
    const int n_more = strcmp(name, "bert-rerank") ? 0 : 2;

    assert_int_equal(rg_checkpoint_n_tensors(want) + n_more, rg_checkpoint_n_tensors(got));
    for (int i = 0; i < rg_checkpoint_n_tensors(want); i++) {
        const rg_tensor *a = rg_checkpoint_tensor(want, i), *b = rg_checkpoint_find(got, a->name);
        if (!b || (a->type != b->type && folding(name, a->name) == 1) || a->n_dims != b->n_dims ||
            memcmp(a->shape, b->shape, sizeof a->shape))
            fail_msg("%s: %s is missing, or of another type or shape", name, a->name);
        compare_values(name, want, a, got, b);
    }
}

/* Every number and word of the converter's file, but for its name and the size it prints, stands in ours.  That of qwen35
 * was made from a folder without sections of positions, which the converter then makes up. */
static void compare_key(void *arg, const char *key, rg_meta_type type, bool understood)
{
    const rg_checkpoint *const *both = arg;
    char a[120], b[120];

    (void)understood;
    if (!strcmp(key, "general.name") || !strcmp(key, "general.basename") ||
        !strcmp(key, "general.size_label") || !strcmp(key, "qwen35.rope.dimension_sections"))
        return;
    /* These converters write a context of their own whatever config.json says. */
    if (!strcmp(key, "hunyuan-dense.context_length") || !strcmp(key, "granitehybrid.context_length") ||
        (!strncmp(key, "nemotron_h", 10) && strstr(key, ".context_length")) ||
        !strcmp(key, "hunyuan-dense.rope.scaling.original_context_length"))
        return;
    if (rg_meta_type_of(both[1], key) != type)
        fail_msg("key %s is missing or of another type", key);
    rg_meta_text(both[0], key, a, sizeof a);
    rg_meta_text(both[1], key, b, sizeof b);
    if (strcmp(a, b))
        fail_msg("key %s is %s and not %s", key, b, a);
}

static void goldens_become_their_gguf(void **state)
{
    char name[64];

    (void)state;
    for (size_t g = 0; g < RG_LEN(test_goldens); g++) {
        if (!has_gguf(test_goldens[g]))
            continue;
        rg_checkpoint *want = open_ok(test_golden(test_goldens[g], "model.gguf"));
        rg_type type = rg_checkpoint_find(want, "token_embd.weight")->type;
        snprintf(name, sizeof name, "%s.gguf", test_goldens[g]);
        rg_convert_report r = convert_ok(test_golden(test_goldens[g], ""), out(name), type, false, 2);
        assert_int_equal(r.n_fallbacks, 0);
        rg_checkpoint *got = open_ok(out(name));
        const rg_checkpoint *both[] = { want, got };
        compare_tensors(test_goldens[g], want, got);
        rg_meta_each(want, compare_key, both);
        rg_convert_report_fini(&r);
        rg_checkpoint_close(want);
        rg_checkpoint_close(got);
    }
}

/* What was read from the directory is read back from the file: config, weights, scale and frequencies. */
static void a_model_is_read_back(void **state)
{
    const rg_model_options o = { 0 };
    char name[64];
    rg_error err;

    (void)state;
    for (size_t g = 0; g < RG_LEN(test_goldens); g++) {
        if (!has_gguf(test_goldens[g]))
            continue;
        snprintf(name, sizeof name, "%s-f32.gguf", test_goldens[g]);
        rg_convert_report r = convert_ok(test_golden(test_goldens[g], ""), out(name), RG_F32, false, 1);
        rg_convert_report_fini(&r);
        rg_checkpoint *from = open_ok(test_golden(test_goldens[g], "")), *to = open_ok(out(name));
        rg_model *a = rg_model_open(from, &o, &err), *b = a ? rg_model_open(to, &o, &err) : NULL;
        assert_ok(a && b, err);
        assert_true(fabs(a->config.attn_scale - b->config.attn_scale) < 1e-7 || !strcmp(test_goldens[g], "falcon-h1"));
        assert_true(a->config.norm_eps == b->config.norm_eps);
        assert_int_equal(a->config.bos_id, b->config.bos_id);
        assert_memory_equal(a->config.layer, b->config.layer, sizeof a->config.layer);
        assert_int_equal(a->config.n_ropes, b->config.n_ropes);
        for (int k = 0; k < a->config.n_ropes; k++)
            for (int i = 0; i < a->ropes[k]->n_pairs; i++)
                assert_true(fabsf(a->ropes[k]->inv_freq[i] - b->ropes[k]->inv_freq[i]) <=
                            2e-7f * a->ropes[k]->inv_freq[i]);
        for (int i = 0; i < a->weights.n; i++) {
            const rg_weight *x = &a->weights.all[i];
            const rg_weight *y = rg_weights_get(&b->weights, a->weights.spec[i]->role, a->weights.layer[i]);
            assert_non_null(y);
            if (x->vec)
                assert_memory_equal(x->vec, y->vec, (size_t)(x->n_mats * x->rows * x->cols) * sizeof(float));
        }
        rg_model_close(a);
        rg_model_close(b);
        rg_checkpoint_close(from);
        rg_checkpoint_close(to);
    }
}

/* ---- types ---- */

/* GGUF to GGUF: each matrix is what the encoder makes of its values, whatever the threads; the fallback is the nearest. */
static void types_are_encoded_row_by_row(void **state)
{
    static const rg_type types[] = { RG_F16,  RG_BF16, RG_Q4_0, RG_Q4_1, RG_Q5_0, RG_Q5_1,
                                     RG_Q8_0, RG_Q2_K, RG_Q4_K, RG_Q5_K, RG_Q6_K };
    static const rg_type small[RG_TYPE_COUNT] = {
        [RG_Q2_K] = RG_Q4_0, [RG_Q4_K] = RG_Q4_1, [RG_Q5_K] = RG_Q5_0, [RG_Q6_K] = RG_Q8_0,
    };
    rg_checkpoint *from = open_ok(test_golden("deepseek-v2", "model.gguf"));

    (void)state;
    for (size_t k = 0; k < RG_LEN(types); k++) {
        int n_fallbacks = 0;
        uint64_t bytes = 0;
        rg_convert_report r = convert_ok(test_golden("deepseek-v2", "model.gguf"), out("typed.gguf"), types[k], false,
                                         1 + (int)k % 3);
        rg_checkpoint *to = open_ok(out("typed.gguf"));
        for (int i = 0; i < rg_checkpoint_n_tensors(from); i++) {
            const rg_tensor *a = rg_checkpoint_tensor(from, i), *b = rg_checkpoint_tensor(to, i);
            int64_t cols = rg_tensor_cols(a), n = rg_tensor_count(a);
            bool plain = a->n_dims == 1 || strstr(a->name, "ffn_gate_inp");
            rg_type want = plain ? RG_F32 : types[k];
            if (!plain && cols % rg_format_of(want)->block_len)
                want = cols % 32 ? RG_F16 : small[want];
            assert_string_equal(a->name, b->name);
            assert_int_equal(b->type, want);
            n_fallbacks += !plain && want != types[k];
            bytes += b->bytes;
            float *v = values_of(from, a);
            void *raw = bytes_of(to, b), *mine = rg_alloc(b->bytes);
            rg_format_of(want)->encode(v, n / rg_format_of(want)->block_len, mine);
            assert_memory_equal(raw, mine, b->bytes);
            rg_free(v);
            rg_free(raw);
            rg_free(mine);
        }
        assert_int_equal(r.n_fallbacks, n_fallbacks);
        assert_int_equal(r.bytes, bytes);
        rg_convert_report_fini(&r);
        rg_checkpoint_close(to);
    }
    rg_checkpoint_close(from);
}

/* A quantized source: the same type is copied, another is made of its values. */
static void a_quantized_source_is_taken(void **state)
{
    rg_convert_report r[3];

    (void)state;
    r[0] = convert_ok(test_golden("llama", ""), out("a.gguf"), RG_Q5_1, false, 2);
    r[1] = convert_ok(out("a.gguf"), out("b.gguf"), RG_Q5_1, false, 2);
    r[2] = convert_ok(out("a.gguf"), out("c.gguf"), RG_F32, false, 2);
    rg_checkpoint *a = open_ok(out("a.gguf")), *b = open_ok(out("b.gguf")), *c = open_ok(out("c.gguf"));
    compare_tensors("llama", a, b);
    for (int i = 0; i < rg_checkpoint_n_tensors(a); i++) {
        const rg_tensor *t = rg_checkpoint_tensor(a, i);
        float *x = values_of(a, t), *y = values_of(c, rg_checkpoint_find(c, t->name));
        assert_memory_equal(x, y, (size_t)rg_tensor_count(t) * sizeof *x);
        rg_free(x);
        rg_free(y);
    }
    rg_checkpoint_close(a);
    rg_checkpoint_close(b);
    rg_checkpoint_close(c);
    for (int i = 0; i < 3; i++)
        rg_convert_report_fini(&r[i]);
}

/* The directory as f32 has the values of this one, whose columns may have an order. */
static void change_type(const char *from, const char *to, const char *key)
{
    const char *type = "";
    rg_error err;
    rg_convert_report r = convert_ok(from, to, RG_F32, true, 2);
    rg_checkpoint *a = open_ok(from), *b = open_ok(to);

    assert_int_equal(rg_checkpoint_n_tensors(a), rg_checkpoint_n_tensors(b));
    for (int i = 0; i < rg_checkpoint_n_tensors(a); i++) {
        const rg_tensor *t = rg_checkpoint_tensor(a, i), *u = rg_checkpoint_find(b, t->name);
        assert_non_null(u);
        assert_int_equal(u->type, RG_F32);
        assert_memory_equal(t->shape, u->shape, sizeof t->shape);
        float *x = values_of(a, t), *y = values_of(b, u);
        assert_memory_equal(x, y, (size_t)rg_tensor_count(t) * sizeof *x);
        rg_free(x);
        rg_free(y);
    }
    assert_int_equal(rg_meta_string(b, key, &type, &err), 1);
    assert_string_equal(type, "float32");
    rg_checkpoint_close(a);
    rg_checkpoint_close(b);
    rg_convert_report_fini(&r);
}

static void directories_change_type(void **state)
{
    (void)state;
    change_type(test_golden("gemma3", ""), out("gemma3-hf"), "dtype");
    change_type(test_data("quantized/gptq-4bit-g32-act"), out("act-order-hf"), "torch_dtype");
}

/* ---- refusals and failures ---- */

static void what_cannot_be_written_is_refused(void **state)
{
    static const struct {
        const char *golden, *file;
        rg_convert_options o;
        const char *says;
    } cases[] = {
        { "llama", "model.gguf", { .type = RG_F32, .to_hf = true }, "GGUF" },
        { "llama", "", { .type = RG_Q4_0, .to_hf = true }, "q4_0" },
        { "llama", "", { .type = RG_I32 }, "i32" },
        { "shapes", "llama-2-13b.json", { .type = RG_F32 }, "no weights" },
    };
    rg_convert_report r;
    rg_error err;

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        rg_convert_options o = cases[i].o;
        rg_checkpoint *c = open_ok(test_golden(cases[i].golden, cases[i].file));
        o.n_threads = 1;
        assert_false(rg_convert(&r, c, out("refused"), &o, &err));
        if (!strstr(err.text, cases[i].says))
            fail_msg("'%s' does not say '%s'", err.text, cases[i].says);
        assert_int_equal(rg_path_look(out("refused")), RG_PATH_NONE);
        rg_convert_report_fini(&r);
        rg_checkpoint_close(c);
    }
}

typedef struct countdown {
    long left;
} countdown;

static bool allow_memory(void *arg, size_t bytes)
{
    (void)bytes;
    return ((countdown *)arg)->left-- != 0;
}

static bool allow_file(void *arg, const char *operation)
{
    (void)operation;
    return ((countdown *)arg)->left-- != 0;
}

static int files_in(const char *path)
{
    DIR *d = opendir(path);
    int n = 0;

    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

/* Every allocation, then every file operation, failing in turn: an error, no leak, nothing beside the old files. */
static void failures_leave_nothing(void **state)
{
    const rg_convert_options o = { .type = RG_Q8_0, .n_threads = 1 };
    char dir[600];
    rg_convert_report r;
    rg_error err;

    (void)state;
    snprintf(dir, sizeof dir, "%s/convert_failures", RG_BUILD_DIR);
    assert_ok(rg_dir_make(dir, &err), err);
    snprintf(dir, sizeof dir, "%s/convert_failures/m.gguf", RG_BUILD_DIR);
    unlink(dir);
    rg_checkpoint *c = open_ok(test_golden("mamba", ""));
    size_t n_live = rg_mem_count().n_live;
    for (int kind = 0; kind < 2; kind++) {
        bool ok = false;
        int n_whole = 0;
        for (long n = 0; !ok; n++) {
            countdown left = { .left = n };
            assert_true(n < 100000);
            if (kind == 0)
                rg_mem_set_gate(allow_memory, &left);
            else
                rg_file_set_gate(allow_file, &left);
            ok = rg_convert(&r, c, dir, &o, &err);
            rg_mem_set_gate(NULL, NULL);
            rg_file_set_gate(NULL, NULL);
            rg_convert_report_fini(&r);
            assert_int_equal(rg_mem_count().n_live, n_live);
            if (!ok)
                assert_int_equal(err.code, kind == 0 ? RG_E_MEMORY : RG_E_IO);
            dir[strlen(dir) - strlen("/m.gguf")] = 0;
            int n_files = files_in(dir);
            strcat(dir, "/m.gguf");
            /* What fails after the renaming leaves the whole file, and nothing ever leaves a part of one. */
            assert_in_range(n_files, 2, 3);
            if (n_files == 3) {
                rg_checkpoint_close(open_ok(dir));
                unlink(dir);
                n_whole++;
            }
        }
        assert_in_range(n_whole, 1, 4);
    }
    rg_checkpoint_close(c);
}

static bool stop_at_once(void)
{
    return true;
}

static void a_stop_writes_nothing(void **state)
{
    const rg_convert_options o = { .type = RG_Q8_0, .n_threads = 1, .stop = stop_at_once };
    rg_convert_report r;
    rg_error err;
    rg_checkpoint *c = open_ok(test_golden("llama", ""));

    (void)state;
    unlink(out("stopped.gguf"));
    assert_false(rg_convert(&r, c, out("stopped.gguf"), &o, &err));
    assert_int_equal(rg_path_look(out("stopped.gguf")), RG_PATH_NONE);
    rg_convert_report_fini(&r);
    rg_checkpoint_close(c);
}

static void refused_without_a_name_in_gguf(void **state)
{
    const rg_convert_options o = { .type = RG_Q8_0, .n_threads = 1 };
    rg_convert_report r;
    rg_error err;
    rg_checkpoint *c = open_ok(test_golden("sdar-b4", ""));

    (void)state;
    assert_false(rg_convert(&r, c, out("nameless.gguf"), &o, &err));
    assert_non_null(strstr(err.text, "GGUF has no form of SDARForCausalLM"));
    assert_int_equal(rg_path_look(out("nameless.gguf")), RG_PATH_NONE);
    rg_convert_report_fini(&r);
    rg_checkpoint_close(c);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goldens_become_their_gguf),
        cmocka_unit_test(a_model_is_read_back),
        cmocka_unit_test(types_are_encoded_row_by_row),
        cmocka_unit_test(a_quantized_source_is_taken),
        cmocka_unit_test(directories_change_type),
        cmocka_unit_test(what_cannot_be_written_is_refused),
        cmocka_unit_test(failures_leave_nothing),
        cmocka_unit_test(a_stop_writes_nothing),
        cmocka_unit_test(refused_without_a_name_in_gguf),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
