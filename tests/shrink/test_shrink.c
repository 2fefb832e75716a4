/* The driver of shrink: what is written reads back as what was made, bit for bit; a run that was stopped goes on; bad
 * input is refused by name. */
#include "support/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "shrink/prune.h"
#include "shrink/shrink.h"

enum { SAMPLES = 4, CTX = 24 };

static const char *const matrices[][2] = {
    { "self_attn.v_proj", "attn_v" }, { "self_attn.o_proj", "attn_output" }, { "mlp.gate_proj", "ffn_gate" },
    { "mlp.up_proj", "ffn_up" }, { "mlp.down_proj", "ffn_down" },
};

static int32_t ids[SAMPLES * CTX];

static rg_shrink_options options(const char *method)
{
    rg_error err = { 0 };
    const rg_shrink_method *m = rg_shrink_method_find(method, &err);

    assert_ok(m, err);
    for (int i = 0; i < SAMPLES * CTX; i++)
        ids[i] = i * 37 % 320;
    const rg_backend *best = test_backend(0);
    for (int i = 0; test_backend(i); i++)
        best = test_backend(i);
    return (rg_shrink_options){ .method = m, .coding = { .bits = 4, .group = 32 }, .alpha = 0.5f, .ids = ids,
                                .n_samples = SAMPLES, .ctx = CTX, .n_threads = 1, .backend = best };
}

/* A tensor's values as the checkpoint's readers give them. */
static float *values_of(const rg_checkpoint *c, const char *name, int64_t *rows, int64_t *cols)
{
    const rg_tensor *t = rg_checkpoint_find(c, name);
    rg_error err = { 0 };

    if (!t)
        fail_msg("no tensor '%s'", name);
    uint8_t *raw = malloc(t->bytes);
    float *to = malloc((size_t)rg_tensor_count(t) * sizeof *to);
    assert_ok(rg_tensor_read(c, t, 0, raw, t->bytes, &err), err);
    rg_tensor_decode(t, raw, rg_tensor_rows(t), to);
    *rows = rg_tensor_rows(t);
    *cols = rg_tensor_cols(t);
    free(raw);
    return to;
}

static rg_checkpoint *open_ok(const char *path)
{
    rg_error err = { 0 };
    rg_checkpoint *c = rg_checkpoint_open(path, RG_CKPT_DEFAULT, &err);

    assert_ok(c, err);
    return c;
}

static bool shrink(const char *from, const char *to, rg_shrink_options *o, rg_shrink_report *r, rg_error *err)
{
    rg_checkpoint *c = open_ok(from);
    bool ok = rg_shrink(r, c, to, o, err);

    rg_checkpoint_close(c);
    return ok;
}

/* ---- reading back ------------------------------------------------------------------------------------------------ */

/* Every matrix of the output is the source's, each value rounded to the nearest code. */
static void check_rounded(const char *path, const rg_shrink_options *o)
{
    rg_checkpoint *source = open_ok(test_data("llama")), *made = open_ok(path);
    rg_error err = { 0 };

    for (size_t i = 0; i < RG_LEN(matrices); i++) {
        char name[96];
        int64_t rows, cols, rows2, cols2;
        rg_coded coded;
        snprintf(name, sizeof name, "model.layers.1.%s.weight", matrices[i][0]);
        float *want = values_of(source, name, &rows, &cols);
        if (o->to_gguf)
            snprintf(name, sizeof name, "blk.1.%s.weight", matrices[i][1]);
        float *got = values_of(made, name, &rows2, &cols2);
        assert_true(rows == rows2 && cols == cols2);
        assert_ok(rg_coded_init(&coded, &o->coding, rows, cols, &err), err);
        rg_round_to_nearest(&coded, &o->coding, want);
        for (int64_t r = 0; r < rows; r++)
            rg_coded_row(&coded, r, want + r * cols);
        for (int64_t k = 0; k < rows * cols; k++)
            if (memcmp(&got[k], &want[k], sizeof *got) && (got[k] != 0 || want[k] != 0))
                fail_msg("%s: %s at %d is %.9g, want %.9g", path, name, (int)k, (double)got[k], (double)want[k]);
        rg_coded_fini(&coded);
        free(want);
        free(got);
    }
    rg_checkpoint_close(source);
    rg_checkpoint_close(made);
}

static void keep_logits(void *arg, int feed, int row, float *logits)
{
    (void)feed;
    memcpy((float *)arg + (size_t)row * 320, logits, 320 * sizeof *logits);
}

static void rounded_codes_read_back(void **state)
{
    static const struct {
        rg_code_kind kind;
        int bits;
        bool sym, gguf;
        int64_t group;
    } cases[] = {
        { RG_CODE_INT, 2, false, false, 32 }, { RG_CODE_INT, 3, false, false, 32 }, { RG_CODE_INT, 3, true, false, 0 },
        { RG_CODE_INT, 4, false, false, 32 }, { RG_CODE_INT, 4, true, false, 64 },  { RG_CODE_INT, 5, false, false, 32 },
        { RG_CODE_INT, 6, true, false, 32 },  { RG_CODE_INT, 7, false, false, 0 },  { RG_CODE_INT, 8, false, false, 32 },
        { RG_CODE_INT, 8, true, false, 0 },   { RG_CODE_FLOAT, 3, false, false, 32 },
        { RG_CODE_FLOAT, 6, false, false, 64 }, { RG_CODE_QUANTILE, 4, false, false, 32 },
        { RG_CODE_QUANTILE, 5, false, false, 32 }, { RG_CODE_INT, 4, true, true, 32 }, { RG_CODE_INT, 4, false, true, 32 },
        { RG_CODE_INT, 5, true, true, 32 },   { RG_CODE_INT, 5, false, true, 32 },  { RG_CODE_INT, 8, true, true, 64 },
        { RG_CODE_FLOAT, 4, false, true, 32 },
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        rg_shrink_options o = options("rtn");
        rg_shrink_report r;
        rg_error err = { 0 };
        char name[32];
        snprintf(name, sizeof name, "rtn-%zu", i);
        const char *to = test_scratch(name);
        o.coding = (rg_coding){ .kind = cases[i].kind, .bits = cases[i].bits, .sym = cases[i].sym,
                                .group = cases[i].group };
        o.to_gguf = cases[i].gguf;
        assert_ok(shrink(test_data("llama"), to, &o, &r, &err), err);
        check_rounded(to, &o);
        assert_true(r.n == 21 && r.n_kept == 0 && r.bytes > 0 && r.matrix[0].error > 0);
        rg_shrink_report_fini(&r);
        test_model t;
        test_model_open(&t, to, "f32"); /* a model of its family */
        test_model_close(&t);
    }
}

/* Codes with an order of columns, and GPTQ's and AWQ's files, hold what the report's errors are of: a coarser code
 * loses more, and by second derivatives less is lost than by rounding. */
static double lost(const char *method, int bits, bool act_order, bool gguf, const char *to)
{
    rg_shrink_options o = options(method);
    rg_shrink_report r;
    rg_error err = { 0 };
    double sum = 0;

    o.coding.bits = bits;
    o.act_order = act_order;
    o.to_gguf = gguf;
    assert_ok(shrink(test_data("llama"), to, &o, &r, &err), err);
    for (int i = 0; i < r.n; i++)
        sum += r.matrix[i].error / r.n;
    rg_shrink_report_fini(&r);
    return sum;
}

/* Share of the weights' power by which the output differs from the source. */
static double distance(const char *path)
{
    rg_checkpoint *source = open_ok(test_data("llama")), *made = open_ok(path);
    double off = 0, all = 0;

    for (size_t i = 0; i < RG_LEN(matrices); i++) {
        char name[96];
        int64_t rows, cols;
        snprintf(name, sizeof name, "model.layers.2.%s.weight", matrices[i][0]);
        float *want = values_of(source, name, &rows, &cols), *got = values_of(made, name, &rows, &cols);
        for (int64_t k = 0; k < rows * cols; k++) {
            off += pow((double)got[k] - (double)want[k], 2);
            all += pow((double)want[k], 2);
        }
        free(want);
        free(got);
    }
    rg_checkpoint_close(source);
    rg_checkpoint_close(made);
    return off / all;
}

static void gptq_files_hold_the_model(void **state)
{
    (void)state;
    double four = lost("gptq", 4, false, false, test_scratch("gptq-4"));
    double three = lost("gptq", 3, false, false, test_scratch("gptq-3"));
    double order = lost("gptq", 4, true, false, test_scratch("gptq-act"));
    double gguf = lost("gptq", 4, false, true, test_scratch("gptq.gguf"));

    assert_true(four < 0.02 && three > 2 * four && order < 0.02 && gguf < 0.02);
    assert_true(distance(test_scratch("gptq-4")) < 0.05 && distance(test_scratch("gptq-act")) < 0.05);
    double rounded = lost("rtn", 4, false, false, test_scratch("rtn-as-gptq"));
    assert_true(rounded < 0.05 && distance(test_scratch("rtn-as-gptq")) < distance(test_scratch("gptq-4")));
}

/* Methods whose codes say all: what is read back is what was rounded. */
static void eight_bits_read_back(void **state)
{
    static const char *const methods[] = { "int8", "fp8" };

    (void)state;
    for (size_t i = 0; i < RG_LEN(methods); i++) {
        rg_shrink_options o = options(methods[i]);
        rg_shrink_report r;
        rg_error err = { 0 };
        const char *to = test_scratch(methods[i]);
        assert_ok(shrink(test_data("llama"), to, &o, &r, &err), err);
        rg_shrink_report_fini(&r);
        check_rounded(to, &o);
    }
}

static float *logits_of(const char *path)
{
    test_rig_options o = { .backend = options("rtn").backend, .n_threads = 1, .exact = true, .max_rows = CTX,
                           .max_seqs = 1, .max_len = CTX };
    rg_error err = { 0 };
    test_model t;
    test_rig rig;

    test_model_open(&t, path, "f32");
    test_rig_open(&rig, &t, &o);
    rg_seq *q = rg_seq_new(rig.states, CTX, 0, &err);
    assert_ok(q && rg_seq_grow(rig.states, q, CTX), err);
    float *to = malloc((size_t)CTX * 320 * sizeof *to);
    test_rig_step(&rig, &(test_feed){ .seq = q, .ids = ids, .n = CTX }, 1, keep_logits, to);
    rg_seq_free(rig.states, q);
    test_rig_close(&rig);
    test_model_close(&t);
    return to;
}

/* What is folded does not change what the model computes: but for 8 bits, the logits are the source's. */
static void folding_keeps_the_logits(void **state)
{
    static const char *const methods[] = { "smoothquant", "awq" };
    rg_shrink_options plain = options("rtn");
    float *want = logits_of(test_data("llama"));
    double most = 0;

    (void)state;
    (void)plain;
    for (int i = 0; i < CTX * 320; i++)
        most = fmax(most, fabs((double)want[i]));
    for (size_t i = 0; i < RG_LEN(methods); i++) {
        rg_shrink_options o = options(methods[i]);
        rg_shrink_report r;
        rg_error err = { 0 };
        double off = 0;
        const char *to = test_scratch(methods[i]);
        o.coding.bits = 8;
        assert_ok(shrink(test_data("llama"), to, &o, &r, &err), err);
        rg_shrink_report_fini(&r);
        float *got = logits_of(to);
        for (int k = 0; k < CTX * 320; k++)
            off = fmax(off, fabs((double)got[k] - (double)want[k]));
        print_message("    %s: %.2g of the largest logit\n", methods[i], off / most);
        assert_true(off < 0.08 * most);
        free(got);
    }
    free(want);
}

/* Of each norm of two layers, a hundredth of the channels (of 64: one) are 30 times as large, and the columns that read
 * them 30 times as small; all else is the source's, and so are the logits. */
static void outliers_keep_the_logits(void **state)
{
    static const char *const norms[][4] = {
        { "input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj" },
        { "post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj" },
    };
    rg_shrink_options o = options("outliers");
    const char *to = test_scratch("outliers");
    rg_shrink_report r;
    rg_error err = { 0 };
    double most = 0, off = 0;

    (void)state;
    assert_ok(shrink(test_data("llama"), to, &o, &r, &err), err);
    rg_shrink_report_fini(&r);
    rg_checkpoint *a = open_ok(test_data("llama")), *b = open_ok(to);
    for (int i = 0; i < 4; i++) {
        int64_t rows, cols, n_enlarged = 0, at = -1;
        char name[120];
        snprintf(name, sizeof name, "model.layers.%d.%s.weight", i / 2, norms[i % 2][0]);
        float *was = values_of(a, name, &rows, &cols), *is = values_of(b, name, &rows, &cols);
        for (int64_t k = 0; k < cols; k++) {
            const float by = is[k] / was[k];
            assert_true(fabsf(by - 1) < 1e-6f || fabsf(by - 30) < 1e-4f);
            n_enlarged += by > 2;
            at = by > 2 ? k : at;
        }
        assert_int_equal(n_enlarged, 1);
        free(was);
        free(is);
        for (int w = 1; w < 4 && norms[i % 2][w]; w++) {
            snprintf(name, sizeof name, "model.layers.%d.%s.weight", i / 2, norms[i % 2][w]);
            was = values_of(a, name, &rows, &cols);
            is = values_of(b, name, &rows, &cols);
            for (int64_t k = 0; k < rows * cols; k++)
                assert_true(fabsf(is[k] * (k % cols == at ? 30 : 1) - was[k]) <= 1e-6f * fabsf(was[k]));
            free(was);
            free(is);
        }
    }
    rg_checkpoint_close(a);
    rg_checkpoint_close(b);
    float *want = logits_of(test_data("llama")), *got = logits_of(to);
    for (int k = 0; k < CTX * 320; k++) {
        most = fmax(most, fabs((double)want[k]));
        off = fmax(off, fabs((double)got[k] - (double)want[k]));
    }
    assert_true(most > 0 && off < 1e-5 * most);
    free(want);
    free(got);
}

/* ---- other families ---------------------------------------------------------------------------------------------- */

/* Experts, tensors that hold several weights, matrices that stand the other way round, K/V of other layers: with codes
 * of 8 bits the model opens, and its matrices are near the source's. */
static void other_families_are_shrunk(void **state)
{
    static const struct {
        const char *folder, *method;
        bool gguf;
        int least; /* matrices that are coded */
    } cases[] = {
        { "mixtral", "gptq", false, 48 }, { "phi3", "gptq", false, 12 }, { "gpt2", "awq", false, 8 },
        { "gemma3n", "gptq", false, 10 }, { "mixtral", "gptq", true, 48 }, { "qwen3-moe", "rtn", false, 30 },
        { "stories260K.gguf", "rtn", true, 30 }, { "mamba", "gptq", false, 4 }, { "gemma2", "smoothquant", false, 10 },
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        rg_shrink_options o = options(cases[i].method);
        rg_shrink_report r;
        rg_error err = { 0 };
        char name[32];
        double sum = 0;
        snprintf(name, sizeof name, "family-%zu", i);
        const char *to = test_scratch(name);
        o.coding.bits = 8;
        o.coding.sym = cases[i].gguf;
        o.coding.group = 0;
        o.to_gguf = cases[i].gguf;
        for (int k = 0; k < SAMPLES * CTX; k++)
            ids[k] = k * 37 % 250;
        if (!shrink(test_data(cases[i].folder), to, &o, &r, &err))
            fail_msg("%s by %s: %s", cases[i].folder, cases[i].method, err.text);
        for (int k = 0; k < r.n; k++)
            sum += r.matrix[k].error / r.n;
        print_message("    %s by %s: %d matrices, %d kept (%s), error %.2g\n", cases[i].folder, cases[i].method, r.n,
                      r.n_kept, r.kept, sum);
        assert_true(r.n >= cases[i].least && sum < 1e-3);
        rg_shrink_report_fini(&r);
        test_model t;
        test_model_open(&t, to, "f32");
        test_model_close(&t);
    }
}

/* ---- stopped, and on ---------------------------------------------------------------------------------------------- */

static int asked;

static bool after_two(void)
{
    return ++asked > 2;
}

static void same_bytes(const char *a, const char *b)
{
    char path[2][600];
    rg_error err = { 0 };
    size_t n[2];
    char *text[2];

    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%s/model.safetensors", i ? b : a);
        text[i] = rg_file_slurp(path[i], 1 << 24, &n[i], &err);
        assert_ok(text[i], err);
    }
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(text[0], text[1], n[0]);
    rg_free(text[0]);
    rg_free(text[1]);
}

static void a_stopped_run_goes_on(void **state)
{
    static const char *const methods[] = { "gptq", "awq" };

    (void)state;
    for (size_t i = 0; i < RG_LEN(methods); i++) {
        rg_shrink_options o = options(methods[i]);
        rg_shrink_report r;
        rg_error err = { 0 };
        char name[2][32], work[600];
        snprintf(name[0], sizeof name[0], "%s-whole", methods[i]);
        snprintf(name[1], sizeof name[1], "%s-stopped", methods[i]);
        const char *whole = test_scratch(name[0]), *stopped = test_scratch(name[1]);
        assert_ok(shrink(test_data("llama"), whole, &o, &r, &err), err);
        rg_shrink_report_fini(&r);
        asked = 0;
        o.stop = after_two;
        assert_false(shrink(test_data("llama"), stopped, &o, &r, &err));
        rg_shrink_report_fini(&r);
        assert_non_null(strstr(err.text, "stopped before layer 3"));
        assert_int_equal(rg_path_look(stopped), RG_PATH_NONE);
        snprintf(work, sizeof work, "%s.work", stopped);
        assert_int_equal(rg_path_look(work), RG_PATH_DIR);
        o.stop = NULL;
        o.coding.bits = 8; /* another job does not go on from there */
        err = (rg_error){ 0 };
        assert_false(shrink(test_data("llama"), stopped, &o, &r, &err));
        rg_shrink_report_fini(&r);
        assert_non_null(strstr(err.text, "another run"));
        o.coding.bits = 4;
        o.n_threads = 2; /* the same bytes */
        err = (rg_error){ 0 };
        assert_ok(shrink(test_data("llama"), stopped, &o, &r, &err), err);
        assert_int_equal(r.n_resumed, 2);
        rg_shrink_report_fini(&r);
        assert_int_equal(rg_path_look(work), RG_PATH_NONE);
        same_bytes(whole, stopped);
    }
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Bytes of tales-7m: a layer's matrices as f32; second moments of what they read, of q, k and v, of o, of gate and up,
 * and of down; the factor of the largest of those; and rows that are kept of the same inputs. */
enum { LAYER = 4 * (2 * 256 * 256 + 2 * 128 * 256 + 3 * 768 * 256), LAYERS = 2 };
enum { MOMENTS = 8 * (3 * 256 * 256 + 768 * 768), FACTOR = 8 * 768 * 768, ROWS = 4 * 2 * RG_KEPT_ROWS * (3 * 256 + 768) };

/* The most bytes that were alive before the first layer, and while each was made. */
static size_t most_bytes[LAYERS + 1], bytes_before;
static int layer_at;

static bool watch_bytes(void *arg, size_t bytes)
{
    const size_t live = rg_mem_count().live_bytes + bytes - bytes_before;

    (void)arg;
    most_bytes[layer_at] = live > most_bytes[layer_at] ? live : most_bytes[layer_at];
    return true;
}

static bool next_layer(void)
{
    return layer_at++ == LAYERS;
}

/* What a layer takes beside what it knows of its activations is at most four times its matrices, and nothing of it is
 * left when the next one is made. */
static void memory_is_that_of_a_layer(void **state)
{
    static const struct {
        const char *method;
        size_t known;
    } cases[] = { { "rtn", 0 }, { "gptq", MOMENTS + FACTOR }, { "awq", MOMENTS + ROWS } };

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        rg_shrink_options o = options(cases[i].method);
        rg_shrink_report r;
        rg_error err = { 0 };
        rg_checkpoint *c = open_ok(RG_SOURCE_DIR "/models/tales-7m");

        o.stop = next_layer;
        layer_at = 0;
        memset(most_bytes, 0, sizeof most_bytes);
        bytes_before = rg_mem_count().live_bytes;
        rg_mem_set_gate(watch_bytes, NULL);
        assert_false(rg_shrink(&r, c, test_scratch(cases[i].method), &o, &err));
        rg_mem_set_gate(NULL, NULL);
        rg_shrink_report_fini(&r);
        rg_checkpoint_close(c);
        assert_non_null(strstr(err.text, "stopped before layer 3"));
        for (int l = 1; l <= LAYERS; l++) {
            const double bytes = (double)most_bytes[l] - (double)most_bytes[0] - (double)cases[i].known;
            if (bytes > 4.0 * LAYER || most_bytes[l] > most_bytes[1] + LAYER / 4)
                fail_msg("%s: layer %d has %.2f times its matrices, layer 1 %zu bytes and it %zu", cases[i].method, l,
                         bytes / LAYER, most_bytes[1], most_bytes[l]);
        }
    }
}

/* The same of pruning, which has a layer at a time when it looks at activations and a tensor when it writes. */
static void pruning_takes_a_layer(void **state)
{
    const rg_shrink_options o = options("rtn");
    const rg_prune_options prune = { .n_layers = 6, .n_neurons = 512 };
    const rg_stage_options stage = { .backend = o.backend, .n_threads = 1, .ids = o.ids, .n_samples = SAMPLES,
                                     .ctx = CTX };
    rg_importance i = { 0 };
    rg_error err = { 0 };
    uint64_t bytes;
    rg_checkpoint *c = open_ok(RG_SOURCE_DIR "/models/tales-7m");
    rg_stage *s = rg_stage_open(c, &stage, &err);

    (void)state;
    assert_ok(s, err);
    layer_at = 0;
    most_bytes[0] = 0;
    bytes_before = rg_mem_count().live_bytes;
    rg_mem_set_gate(watch_bytes, NULL);
    assert_ok(rg_importance_measure(&i, s, &err), err);
    assert_ok(rg_prune(c, &rg_stage_model(s)->config, &i, &prune, test_scratch("pruned"), &bytes, &err), err);
    rg_mem_set_gate(NULL, NULL);
    if (most_bytes[0] > (size_t)4 * LAYER)
        fail_msg("%.2f times a layer's matrices", (double)most_bytes[0] / LAYER);
    rg_importance_fini(&i);
    rg_stage_close(s);
    rg_checkpoint_close(c);
}

/* ---- refused ----------------------------------------------------------------------------------------------------- */

/* The golden llama with one weight that is not finite. */
static const char *make_damaged(void)
{
    const char *dir = test_variant("damaged", "llama", "config.json", NULL, NULL);
    rg_checkpoint *c = open_ok(dir);
    const rg_tensor *t = rg_checkpoint_find(c, "model.layers.1.mlp.up_proj.weight");
    uint64_t at = t->offset + 4 * 70;
    char path[600];

    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    rg_checkpoint_close(c);
    FILE *f = fopen(path, "r+b");
    const float nan_value = NAN;
    assert_true(f && !fseek(f, (long)at, SEEK_SET) && fwrite(&nan_value, 4, 1, f) == 1);
    fclose(f);
    return dir;
}

static void refused(const char *from, rg_shrink_options *o, const char *why)
{
    rg_shrink_report r;
    rg_error err = { 0 };
    const char *to = test_scratch("refused");

    assert_false(shrink(from, to, o, &r, &err));
    rg_shrink_report_fini(&r);
    if (!strstr(err.text, why))
        fail_msg("'%s' does not say '%s'", err.text, why);
    assert_int_equal(rg_path_look(to), RG_PATH_NONE);
    char job[600];
    snprintf(job, sizeof job, "rm -rf '%s.work'", to);
    assert_int_equal(system(job), 0);
}

static void bad_input_is_refused_by_name(void **state)
{
    rg_shrink_options o = options("awq");
    char damaged[600];

    (void)state;
    snprintf(damaged, sizeof damaged, "%s", make_damaged());
    o.coding.group = 48;
    refused(test_data("llama"), &o, "groups of 48 do not divide its 64 columns");
    o = options("gptq");
    refused(damaged, &o, "model.layers.1.mlp.up_proj.weight': its weight [1, 6] is not finite");
    o = options("rtn");
    refused(damaged, &o, "is not finite");
    o = options("outliers");
    refused(damaged, &o, "model.layers.1.mlp.up_proj.weight': its weight [1, 6] is not finite");
    o.to_gguf = true;
    refused(test_data("llama"), &o, "outliers: take --to hf");
    o = options("gptq");
    o.n_samples = 0;
    refused(test_data("llama"), &o, "needs calibration text");
    o = options("gptq");
    o.coding.bits = 5;
    refused(test_data("llama"), &o, "2, 3, 4 or 8 bits, not 5");
    o = options("rtn");
    o.to_gguf = true;
    o.coding.bits = 3;
    refused(test_data("llama"), &o, "GGUF has no type for codes of 3 bits");
    o = options("rtn");
    refused(test_data("quantized/gptq-4bit-g32-act"), &o, "in codes already");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounded_codes_read_back),
        cmocka_unit_test(gptq_files_hold_the_model),
        cmocka_unit_test(eight_bits_read_back),
        cmocka_unit_test(folding_keeps_the_logits),
        cmocka_unit_test(outliers_keep_the_logits),
        cmocka_unit_test(other_families_are_shrunk),
        cmocka_unit_test(a_stopped_run_goes_on),
        cmocka_unit_test(memory_is_that_of_a_layer),
        cmocka_unit_test(pruning_takes_a_layer),
        cmocka_unit_test(bad_input_is_refused_by_name),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
