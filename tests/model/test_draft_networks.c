/* test_draft_networks.c -- networks that draft, by themselves: what the authors' code computes from the features of a
 * prompt, and of a draft that goes on from there. */
#include "support/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/step_batch.h"
#include "model/convert.h"

enum { PROMPT = 24, MAX_DIM = 64, MAX_VOCAB = 4 * 320, STEPS = 4 };

static const float TOLERANCE = 1e-4f;

/* ---- a network over a model -------------------------------------------------------------------------------------- */

typedef struct network {
    test_model target, own;
    test_rig rig;
    rg_step_batch rows;
    rg_seq *seq;
    int dim, vocab;
    float hidden[PROMPT][MAX_VOCAB], logits[PROMPT][MAX_VOCAB]; /* of the last step's rows */
} network;

/* path NULL: the module in the target's own checkpoint. */
static void network_open(network *n, const char *target, const char *path)
{
    rg_error err = { 0 };

    memset(n, 0, sizeof *n);
    test_model_open(&n->target, *target == '/' ? target : test_data(target), "f32");
    if (path) {
        n->own.ckpt = rg_checkpoint_open(test_data(path), RG_CKPT_DEFAULT, &err);
        assert_ok(n->own.ckpt, err);
    }
    n->own.m = rg_model_open(path ? n->own.ckpt : n->target.ckpt,
                             &(rg_model_options){ .kv_type = "f32", .target = n->target.m, .mtp = !path }, &err);
    assert_ok(n->own.m, err);
    test_rig_open(&n->rig, &n->own,
                  &(test_rig_options){ .backend = test_backend(0), .n_threads = 2, .exact = true, .max_rows = PROMPT,
                                       .max_seqs = 1, .max_len = 64 });
    assert_ok(rg_step_batch_init(&n->rows, 1, PROMPT, PROMPT, false, &err), err);
    n->seq = rg_seq_new(n->rig.states, 64, 0, &err);
    assert_ok(n->seq, err);
    n->dim = n->own.m->config.dim;
    n->vocab = n->own.m->config.vocab_size;
    assert_true(n->dim <= MAX_VOCAB && n->vocab <= MAX_VOCAB);
}

static void network_close(network *n)
{
    rg_seq_free(n->rig.states, n->seq);
    rg_step_batch_fini(&n->rows);
    test_rig_close(&n->rig);
    rg_model_close(n->own.m);
    rg_checkpoint_close(n->own.ckpt);
    test_model_close(&n->target);
}

static void keep_logits(void *arg, int thread, int i, float *logits)
{
    network *n = arg;

    (void)thread;
    memcpy(n->logits[i], logits, (size_t)n->vocab * sizeof *logits);
}

static void keep_hidden(void *arg, int thread, int i, const float *rows, size_t stride)
{
    network *n = arg;

    (void)thread, (void)i;
    for (int k = 0; k < n->rows.batch.n_rows; k++)
        memcpy(n->hidden[k], rows + (size_t)k * stride, (size_t)n->dim * sizeof *rows);
}

static void compute(network *n, const int32_t *tokens, int n_rows, const float *features, int cols)
{
    int32_t at[64] = { 0 };

    memcpy(at + n->seq->length, tokens, (size_t)n_rows * sizeof *tokens);
    assert_true(rg_seq_grow(n->rig.states, n->seq, n->seq->length + n_rows));
    rg_step_batch_begin(&n->rows);
    rg_step_batch_add(&n->rows, n->rig.states, n->seq, at, n_rows, NULL);
    rg_step_batch_want_prompt(&n->rows, 0, n_rows);
    rg_step_batch_want_hidden(&n->rows, (rg_rows){ 0, n_rows });
    n->rows.batch.features = features;
    n->rows.batch.feature_cols = cols;
    n->rig.runner->step(n->rig.runner, &n->rows.batch, &(rg_sink){ .logits = keep_logits, .hidden = keep_hidden, .arg = n });
    rg_seq_advance(n->rig.states, n->seq, n_rows, 0, NULL);
}

static void close_to(const char *what, const float *got, const float *want, size_t n)
{
    float most = 0, off = 0;

    for (size_t i = 0; i < n; i++) {
        most = fmaxf(most, fabsf(want[i]));
        off = fmaxf(off, isnan(got[i]) ? INFINITY : fabsf(got[i] - want[i]));
    }
    if (!(off <= TOLERANCE * most))
        fail_msg("%s: off by %g where %g is the largest", what, (double)off, (double)most);
}

static int32_t best_of(const network *n, int row)
{
    int32_t best = 0;

    for (int32_t i = 1; i < n->vocab; i++)
        if (n->logits[row][i] > n->logits[row][best])
            best = i;
    return n->own.m->target_ids ? n->own.m->target_ids[best] : best;
}

/* ---- goldens ----------------------------------------------------------------------------------------------------- */

static rg_checkpoint *golden_open(const char *folder)
{
    char path[128];
    rg_error err = { 0 };

    snprintf(path, sizeof path, "%s/golden.safetensors", folder);
    rg_checkpoint *c = rg_checkpoint_open(test_data(path), RG_CKPT_DEFAULT, &err);
    assert_ok(c, err);
    return c;
}

static float *floats(const rg_checkpoint *c, const char *name, size_t want)
{
    size_t n;
    float *v = test_floats(c, name, &n);

    if (!v || n != want)
        fail_msg("%s: %zu values, not %zu", name, v ? n : 0, want);
    return v;
}

/* The tokens of the pairs (feature of a position, token of the next one). */
static void next_tokens(const rg_checkpoint *c, int32_t tokens[PROMPT])
{
    size_t n, n_next;
    int32_t *ids = test_ints(c, "input_ids", &n), *next = test_ints(c, "next_id", &n_next);

    assert_true(ids && next && n == PROMPT && n_next == 1);
    memcpy(tokens, ids + 1, (PROMPT - 1) * sizeof *ids);
    tokens[PROMPT - 1] = *next;
    free(ids);
    free(next);
}

static void compare(const rg_checkpoint *c, const char *name, const float *got, size_t n)
{
    float *want = floats(c, name, n);

    close_to(name, got, want, n);
    free(want);
}

/* A chain from the prompt's last row on. */
static void check_chain(network *n, const rg_checkpoint *c, int last)
{
    size_t n_ids;
    int32_t *ids = test_ints(c, "chain.ids", &n_ids);
    float *hidden = floats(c, "chain.hidden", (size_t)STEPS * (size_t)n->dim);
    float *logits = floats(c, "chain.logits", (size_t)STEPS * (size_t)n->vocab), feature[MAX_DIM];

    assert_int_equal(n_ids, STEPS);
    for (int k = 0; k < STEPS; k++, last = 0) {
        close_to("chain.hidden", n->hidden[last], hidden + (size_t)k * (size_t)n->dim, (size_t)n->dim);
        close_to("chain.logits", n->logits[last], logits + (size_t)k * (size_t)n->vocab, (size_t)n->vocab);
        assert_int_equal(best_of(n, last), ids[k]);
        memcpy(feature, n->hidden[last], sizeof feature);
        if (k < STEPS - 1)
            compute(n, &ids[k], 1, feature, n->dim);
    }
    free(ids);
    free(hidden);
    free(logits);
}

/* The prompt in two parts, as a prompt that is cut is computed. */
static void check_eagle(const char *folder, const char *features_name, int places)
{
    network *n = calloc(1, sizeof *n);
    rg_checkpoint *c = golden_open(folder);
    int32_t tokens[PROMPT];
    float *features, *hidden;
    int cols;

    network_open(n, "llama", folder);
    cols = places * n->dim;
    features = floats(c, features_name, PROMPT * (size_t)cols);
    hidden = calloc(PROMPT, MAX_DIM * sizeof *hidden);
    next_tokens(c, tokens);
    for (int from = 0, rows = 10; from < PROMPT; from += rows, rows = PROMPT - from) {
        compute(n, tokens + from, rows, features + (size_t)from * (size_t)cols, cols);
        for (int i = 0; i < rows; i++)
            memcpy(hidden + (from + i) * n->dim, n->hidden[i], (size_t)n->dim * sizeof *hidden);
    }
    compare(c, "prompt.hidden", hidden, PROMPT * (size_t)n->dim);
    check_chain(n, c, PROMPT - 10 - 1);
    network_close(n);
    rg_checkpoint_close(c);
    free(features);
    free(hidden);
    free(n);
}

static void eagle(void **state)
{
    (void)state;
    check_eagle("speculation/eagle1", "features", 1);
}

static void eagle3(void **state)
{
    (void)state;
    check_eagle("speculation/eagle3", "aux", 3);
    check_eagle("speculation/eagle3-speculators", "aux", 3);
    check_eagle("speculation/eagle3-speculators-nbf", "aux", 3);
}

/* normed: rows of a draft read what the layer made with the norm behind it. */
static void check_mtp(const char *folder, const char *model, bool normed)
{
    network *n = calloc(1, sizeof *n);
    rg_checkpoint *c = golden_open(folder);
    int32_t tokens[PROMPT], id;
    float *features, feature[MAX_DIM], rows[PROMPT][MAX_DIM];

    network_open(n, model, NULL);
    features = floats(c, "target.hidden", PROMPT * (size_t)n->dim);
    next_tokens(c, tokens);
    compute(n, tokens, PROMPT, features, n->dim);
    for (int i = 0; i < PROMPT; i++)
        memcpy(rows[i], n->hidden[i], sizeof rows[i]);
    if (!normed) /* else the golden's are those before the norm */
        compare(c, "hidden", rows[0], PROMPT * (size_t)n->dim);
    compare(c, "step1.logits", n->logits[PROMPT - 1], (size_t)n->vocab);
    memcpy(feature, n->hidden[PROMPT - 1], sizeof feature);
    id = best_of(n, PROMPT - 1);
    compute(n, &id, 1, feature, n->dim);
    if (!normed)
        compare(c, "step2.hidden", n->hidden[0], (size_t)n->dim);
    compare(c, "step2.logits", n->logits[0], (size_t)n->vocab);
    network_close(n);
    rg_checkpoint_close(c);
    free(features);
    free(n);
}

static void modules_of_checkpoints(void **state)
{
    (void)state;
    check_mtp("speculation/mtp-deepseek", "speculation/mtp-deepseek", false);
    check_mtp("speculation/mtp-glm", "speculation/mtp-glm", false);
    check_mtp("speculation/mtp-qwen", "speculation/mtp-qwen", true);
}

/* Written as GGUF, a model keeps its module. */
static void check_gguf(const char *folder)
{
    rg_error err = { 0 };
    rg_checkpoint *from = rg_checkpoint_open(test_data(folder), RG_CKPT_DEFAULT, &err);
    rg_convert_report report;
    char path[600];

    assert_ok(from, err);
    snprintf(path, sizeof path, "%s", test_scratch("module.gguf"));
    assert_ok(rg_convert(&report, from, path, &(rg_convert_options){ .type = RG_BF16, .n_threads = 1 }, &err), err);
    assert_int_equal(report.n_left_out, 0);
    rg_convert_report_fini(&report);
    rg_checkpoint_close(from);
    check_mtp(folder, path, false);
}

static void modules_in_gguf(void **state)
{
    (void)state;
    check_gguf("speculation/mtp-deepseek");
    check_gguf("speculation/mtp-glm");
}

static void check_medusa(const char *folder)
{
    network *n = calloc(1, sizeof *n);
    rg_checkpoint *c = golden_open("speculation/medusa");
    const int n_heads = 4;
    int32_t tokens[PROMPT] = { 0 };
    float *features, *want;

    network_open(n, "llama", folder);
    const int vocab = n->target.m->config.vocab_size, dim = n->target.m->config.dim;
    assert_int_equal(n->vocab, n_heads * vocab);
    features = floats(c, "hidden", PROMPT * (size_t)dim);
    want = floats(c, "logits", PROMPT * (size_t)n->vocab);
    compute(n, tokens, PROMPT, features, dim);
    for (int k = 0; k < n_heads; k++)
        for (int i = 0; i < PROMPT; i++)
            close_to(folder, n->logits[i] + k * vocab, want + ((size_t)k * PROMPT + (size_t)i) * (size_t)vocab,
                     (size_t)vocab);
    network_close(n);
    rg_checkpoint_close(c);
    free(features);
    free(want);
    free(n);
}

static void medusa(void **state)
{
    (void)state;
    check_medusa("speculation/medusa");
    check_medusa("speculation/medusa/vllm");
    check_medusa("speculation/medusa/torch");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(medusa),
        cmocka_unit_test(eagle),
        cmocka_unit_test(eagle3),
        cmocka_unit_test(modules_of_checkpoints),
        cmocka_unit_test(modules_in_gguf),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
