/* Every model against its golden, on every instruction set of this machine: logits, what enters each layer, a long prompt,
 * and the ids that argmax goes on with; from config.json, from config.old.json, and from model.gguf (on the best set alone,
 * but for make test-all).  Each set gives the first one's bits.  The best alone is asked for the long prompt; by make test-all
 * the others too, and by make soak the first, which is the definition, and slow. */
#include "support/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "model/convert.h"
#include "base/mem.h"
#include "ops/watch/watch.h"

enum { STEP_ROWS = 256, PROMPT = 24 };

static const float TOLERANCE = 1e-4f, TOLERANCE_DEEP = 3e-4f;

/* What is known of one set of weights. */
typedef struct golden {
    int n_layers, dim, vocab;
    int32_t *ids, *greedy, *long_ids;
    size_t n_ids, n_greedy, n_long, n_long_rows;
    float *logits, *hidden[64], *long_logits; /* hidden: one more than layers */
    float *logits_conv; /* of state spaces: by convolution with the whole kernel, at once; NULL: none */
} golden;

static void golden_free(golden *g)
{
    free(g->ids);
    free(g->greedy);
    free(g->long_ids);
    free(g->logits);
    free(g->long_logits);
    free(g->logits_conv);
    for (int i = 0; i <= g->n_layers; i++)
        free(g->hidden[i]);
}

static void golden_read(golden *g, const char *file)
{
    rg_error err = { 0 };
    rg_checkpoint *c = rg_checkpoint_open(test_data(file), RG_CKPT_DEFAULT, &err);
    char name[32] = "hidden.0";
    size_t n;

    assert_ok(c, err);
    memset(g, 0, sizeof *g);
    g->ids = test_ints(c, "input_ids", &g->n_ids);
    g->greedy = test_ints(c, "greedy", &g->n_greedy);
    g->long_ids = test_ints(c, "long_ids", &g->n_long);
    g->logits_conv = test_floats(c, "logits_conv", &n);
    g->logits = test_floats(c, "logits", &n);
    assert_true(g->ids && g->logits && n % g->n_ids == 0);
    g->vocab = (int)(n / g->n_ids);
    g->long_logits = test_floats(c, "long_logits", &g->n_long_rows);
    g->n_long_rows /= (size_t)g->vocab;
    assert_true(!g->long_ids == !g->long_logits);
    for (int i = 0; i < 64 && (g->hidden[i] = test_floats(c, name, &n)); i++) {
        g->n_layers = i;
        g->dim = (int)(n / g->n_ids);
        snprintf(name, sizeof name, "hidden.%d", i + 1);
    }
    rg_checkpoint_close(c);
}

/* ---- running a model --------------------------------------------------------------------------------------------- */

typedef struct job {
    test_rig rig;
    const golden *g; /* sizes, and where to look */
    rg_watch watch;
    int n_layers, dim, vocab;
    int first;       /* position of the step's first row */
    float *logits;   /* [rows kept, vocab] from position `from` on */
    int from;
    float *hidden;   /* [n_layers + 1][n_ids][dim]; NULL: not wanted now */
    int n_hidden;
} job;

static void see(void *arg, const rg_watched *w)
{
    job *j = arg;
    int layer = w->layer < 0 ? j->n_layers : w->layer;

    for (int r = 0; w->note && j->hidden && r < w->rows; r++)
        memcpy(j->hidden + ((size_t)layer * (size_t)j->n_hidden + (size_t)(j->first + r)) * (size_t)j->dim,
               w->data + (size_t)r * (size_t)w->cols, (size_t)j->dim * sizeof(float));
}

static const rg_reader *wrap(void *arg, const rg_reader *inner)
{
    return rg_watch_init(&((job *)arg)->watch, inner, see, arg);
}

static void keep_row(void *arg, int feed, int row, float *logits)
{
    job *j = arg;
    int at = j->first + row - j->from;

    (void)feed;
    if (at >= 0)
        memcpy(j->logits + (size_t)at * (size_t)j->vocab, logits, (size_t)j->vocab * sizeof *logits);
}

static void feed(job *j, rg_seq *q, const int32_t *ids, int n)
{
    for (int done = 0; done < n;) {
        int rows = n - done < STEP_ROWS ? n - done : STEP_ROWS;

        assert_true(rg_seq_grow(j->rig.states, q, q->length + rows));
        j->first = q->length;
        test_rig_step(&j->rig, &(test_feed){ .seq = q, .ids = ids + done, .n = rows }, 1, keep_row, j);
        rg_seq_advance(j->rig.states, q, rows, 0, NULL);
        done += rows;
    }
}

/* A scratch sequence where rows see rows after them. */
static rg_seq *sequence(job *j, int n)
{
    rg_error err = { 0 };
    rg_seq *q = rg_seq_new(j->rig.states, n, 0, &err);

    assert_ok(q, err);
    if (j->rig.runner->sees != RG_CAUSAL)
        rg_seq_scratch(q);
    return q;
}

static int32_t argmax(const float *v, int n)
{
    int32_t best = 0;

    for (int32_t i = 1; i < n; i++)
        if (v[i] > v[best])
            best = i;
    return best;
}

/* The ids that argmax appends to the prompt. */
static void go_on(job *j, golden *out, const golden *like)
{
    rg_seq *q = sequence(j, PROMPT + (int)out->n_greedy);
    size_t vocab = (size_t)like->vocab;

    j->logits = calloc((PROMPT + out->n_greedy) * vocab, sizeof(float));
    out->greedy = calloc(out->n_greedy, sizeof *out->greedy);
    feed(j, q, like->ids, PROMPT);
    for (size_t i = 0; i < out->n_greedy; i++) {
        out->greedy[i] = argmax(j->logits + (PROMPT + i - 1) * vocab, out->vocab);
        feed(j, q, &out->greedy[i], 1);
    }
    rg_seq_free(j->rig.states, q);
    free(j->logits);
}

/* Compute what a golden holds, for its ids, with a model: the same struct, to be compared. */
static void compute(golden *out, const golden *like, const test_model *t, const rg_backend *backend)
{
    job *j = calloc(1, sizeof *j);
    size_t n = like->n_ids, vocab = (size_t)like->vocab, width;

    *out = (golden){ .n_layers = t->m->config.n_layers, .dim = t->m->config.dim, .vocab = t->m->config.vocab_size, .n_ids = n,
                     .n_greedy = like->n_greedy, .n_long = like->n_long, .n_long_rows = like->n_long_rows };
    assert_int_equal(out->vocab, like->vocab);
    *j = (job){ .n_layers = out->n_layers, .dim = out->dim, .vocab = out->vocab, .n_hidden = (int)n };
    test_rig_open(&j->rig, t,
                  &(test_rig_options){ .backend = backend,
                                       .n_threads = 2,
                                       .exact = true,
                                       .max_rows = STEP_ROWS,
                                       .max_seqs = 2,
                                       .max_len = 4096,
                                       .wrap = wrap,
                                       .wrap_arg = j });
    width = n * (size_t)out->dim;
    out->logits = j->logits = calloc(n * vocab, sizeof(float));
    j->hidden = calloc(((size_t)out->n_layers + 1) * width, sizeof(float));
    rg_seq *q = sequence(j, (int)n);
    feed(j, q, like->ids, (int)n);
    rg_seq_free(j->rig.states, q);
    for (int i = 0; i <= out->n_layers; i++)
        memcpy(out->hidden[i] = calloc(width, sizeof(float)), j->hidden + (size_t)i * width, width * sizeof(float));
    free(j->hidden);
    j->hidden = NULL;

    if (like->n_greedy)
        go_on(j, out, like);
    if (like->n_long) {
        q = sequence(j, (int)like->n_long);
        j->from = (int)(like->n_long - like->n_long_rows);
        out->long_logits = j->logits = calloc(like->n_long_rows * vocab, sizeof(float));
        feed(j, q, like->long_ids, (int)like->n_long);
        rg_seq_free(j->rig.states, q);
    }
    test_rig_close(&j->rig);
    rg_watch_fini(&j->watch);
    free(j);
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

static void equal_golden(const char *name, const rg_backend *backend, const golden *got, const golden *want)
{
    char what[128];

    assert_int_equal(got->n_layers, want->n_layers);
    assert_int_equal(got->dim, want->dim);
    snprintf(what, sizeof what, "%s on %s: logits", name, backend->name);
    test_close_to(what, got->logits, want->logits, want->n_ids * (size_t)want->vocab, TOLERANCE);
    snprintf(what, sizeof what, "%s on %s: logits_conv", name, backend->name);
    if (want->logits_conv)
        test_close_to(what, got->logits, want->logits_conv, want->n_ids * (size_t)want->vocab, TOLERANCE);
    for (int i = 0; i <= want->n_layers; i++) {
        snprintf(what, sizeof what, "%s on %s: hidden.%d", name, backend->name, i);
        test_close_to(what, got->hidden[i], want->hidden[i], want->n_ids * (size_t)want->dim, TOLERANCE_DEEP);
    }
    if (want->n_greedy)
        assert_memory_equal(got->greedy, want->greedy, want->n_greedy * sizeof *want->greedy);
    snprintf(what, sizeof what, "%s on %s: long_logits", name, backend->name);
    if (want->n_long)
        test_close_to(what, got->long_logits, want->long_logits, want->n_long_rows * (size_t)want->vocab, TOLERANCE_DEEP);
}

static void same_bits(const char *name, const rg_backend *backend, const golden *got, const golden *first)
{
    bool same = !memcmp(got->logits, first->logits, got->n_ids * (size_t)got->vocab * sizeof(float));

    for (int i = 0; i <= got->n_layers; i++)
        same &= !memcmp(got->hidden[i], first->hidden[i], got->n_ids * (size_t)got->dim * sizeof(float));
    if (!same)
        fail_msg("%s on %s: other bits than on %s", name, backend->name, test_backend(0)->name);
}

/* main: of this path all instruction sets gate, and make soak wants the long prompt on the slow one too. */
static void equals(const char *name, const char *path, const golden *want, bool main)
{
    test_model t;
    golden first = { 0 };

    test_model_open(&t, path, "f32");
    for (int i = 0; test_backend(i); i++) {
        if (!main && !test_all() && test_backend(i + 1))
            continue;
        golden got, like = *want;

        if (test_is_slow(test_backend(i)) ? !main || test_scale(1) <= 1 : test_backend(i + 1) && !test_all())
            like.n_long = 0;
        compute(&got, &like, &t, test_backend(i));
        equal_golden(name, test_backend(i), &got, &like);
        if (first.logits) {
            same_bits(name, test_backend(i), &got, &first);
            golden_free(&got);
        } else {
            first = got;
        }
    }
    golden_free(&first);
    test_model_close(&t);
}

/* The folder as GGUF, of our own writing. */
static const char *write_gguf(const char *folder)
{
    const rg_convert_options o = { .type = RG_F32, .n_threads = 1 };
    const char *to = test_scratch("written.gguf");
    rg_convert_report r;
    rg_error err = { 0 };
    rg_checkpoint *from = rg_checkpoint_open(folder, RG_CKPT_DEFAULT, &err);

    assert_ok(from, err);
    assert_ok(rg_convert(&r, from, to, &o, &err), err);
    rg_convert_report_fini(&r);
    rg_checkpoint_close(from);
    return to;
}

/* True if no other converter wrote a GGUF file of it. */
static bool is_ours_to_write(const char *name)
{
    static const char *const folders[] = { "dream", "llada", "minimax", "rwkv7" };

    for (size_t i = 0; i < RG_LEN(folders); i++)
        if (!strcmp(folders[i], name))
            return true;
    return false;
}

/* The three spellings of one model: whichever are there. */
static void model_equals(const char *name)
{
    char path[128];
    golden g;

    snprintf(path, sizeof path, "%s/golden.safetensors", name);
    golden_read(&g, path);
    equals(name, test_data(name), &g, true);
    snprintf(path, sizeof path, "%s/config.old.json", name);
    if (rg_path_look(test_data(path)) == RG_PATH_FILE)
        equals(path, test_variant(name, name, "config.old.json", NULL, NULL), &g, false);
    snprintf(path, sizeof path, "%s/model.gguf", name);
    if (rg_path_look(test_data(path)) == RG_PATH_FILE)
        equals(path, test_data(path), &g, false);
    if (is_ours_to_write(name))
        equals(name, write_gguf(test_data(name)), &g, false);
    golden_free(&g);
}

/* One test per folder of tests/golden. */
#define WHOLE(test, folder) GOLDEN(test, folder, )
#define ENCODER(test, folder)
#define GOLDEN(test, folder, worlds)                                                                                             \
    static void test(void **state)                                                                                               \
    {                                                                                                                            \
        (void)state;                                                                                                             \
        model_equals(folder);                                                                                                    \
    }
#include "goldens.def"
#undef GOLDEN
#undef WHOLE
#undef ENCODER

static void stories260K(void **state)
{
    golden g;

    (void)state;
    golden_read(&g, "stories260K.safetensors");
    equals("stories260K.gguf", test_data("stories260K.gguf"), &g, true);
    golden_free(&g);
}

/* Published files of GPT-2 leave out the first part of all names. */
static void names_without_their_root(void **state)
{
    const char *dir = test_variant("rootless", "gpt2", "config.json", NULL, NULL);
    char to[600];
    golden g;

    (void)state;
    snprintf(to, sizeof to, "%s/model.safetensors", dir);
    test_copy_file(test_data("gpt2/model.safetensors"), to, "\"transformer.", "            \"");
    golden_read(&g, "gpt2/golden.safetensors");
    equals("gpt2 without its root", dir, &g, false);
    golden_free(&g);
}

/* A matrix of one expert layer in latent space: `diagonal` times the identity. */
static void write_diagonal(rg_ckpt_writer *w, int n, float diagonal)
{
    float *m = calloc((size_t)n * (size_t)n, sizeof *m);
    rg_error err = { 0 };

    for (int i = 0; i < n; i++)
        m[i * n + i] = diagonal;
    assert_ok(rg_ckpt_write(w, m, (size_t)n * (size_t)n * sizeof *m, &err), err);
    free(m);
}

/* Nemotron 3's experts in latent space: twice as much in, a fourth of it out, and squared ReLU between, is what the golden
 * computes without. */
static void latent_experts(void **state)
{
    static const char *const names[] = { "fc1_latent_proj", "fc2_latent_proj" };
    static const int layers[] = { 1, 4 };
    const char *dir = test_variant("latent", "nemotron-h-moe", "config.json", "\"moe_latent_size\": null",
                                   "\"moe_latent_size\": 64");
    char path[600], name[96];
    const int64_t shape[] = { 64, 64 };
    rg_error err = { 0 };
    golden g;

    (void)state;
    rg_checkpoint *from = rg_checkpoint_open(test_data("nemotron-h-moe"), RG_CKPT_DEFAULT, &err);
    assert_ok(from, err);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    rg_ckpt_writer *w = rg_safetensors_create(path, &err);
    assert_ok(w, err);
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "backbone.layers.%d.mixer.%s.weight", layers[i / 2], names[i % 2]);
        assert_ok(rg_ckpt_declare(w, name, RG_F32, 2, shape, &err), err);
    }
    for (int i = 0; i < rg_checkpoint_n_tensors(from); i++) {
        const rg_tensor *t = rg_checkpoint_tensor(from, i);
        assert_ok(rg_ckpt_declare(w, t->name, t->type, t->n_dims, t->shape, &err), err);
    }
    for (int i = 0; i < 4; i++)
        write_diagonal(w, 64, i % 2 ? 0.25f : 2);
    for (int i = 0; i < rg_checkpoint_n_tensors(from); i++) {
        const rg_tensor *t = rg_checkpoint_tensor(from, i);
        void *raw = malloc(t->bytes);
        assert_ok(rg_tensor_read(from, t, 0, raw, t->bytes, &err), err);
        assert_ok(rg_ckpt_write(w, raw, t->bytes, &err), err);
        free(raw);
    }
    assert_ok(rg_ckpt_commit(w, &err), err);
    rg_checkpoint_close(from);
    golden_read(&g, "nemotron-h-moe/golden.safetensors");
    equals("experts in latent space", dir, &g, false);
    equals("the same as GGUF", write_gguf(dir), &g, false);
    golden_free(&g);
}

/* Settings that no golden has come through GGUF as they are: both give the same logits, which are not the golden's. */
static void variants_as_gguf(void **state)
{
    static const struct {
        const char *golden, *find, *replace;
    } variants[] = {
        { "granite-hybrid", "\"num_local_experts\": 6", "\"num_local_experts\": 0" },
        { "granite-hybrid", "\"position_embedding_type\": null", "\"position_embedding_type\": \"rope\"" },
        { "mamba2", "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true" },
        { "nemotron-h", "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true" },
        { "nemotron-h-moe", "\"n_shared_experts\": 1", "\"n_shared_experts\": 0" },
        { "falcon-h1", "\"key_multiplier\": 0.8", "\"key_multiplier\": 1.7" },
        { "minimax", "alpha_factor\": 1", "alpha_factor\": 3.5" },
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(variants); i++) {
        const char *dir = test_variant("variant", variants[i].golden, "config.json", variants[i].find, variants[i].replace);
        char path[128];
        golden g, v;
        test_model t;

        snprintf(path, sizeof path, "%s/golden.safetensors", variants[i].golden);
        golden_read(&g, path);
        golden like = g;
        like.n_long = like.n_greedy = 0;
        test_model_open(&t, dir, "f32");
        compute(&v, &like, &t, test_backend(0));
        test_model_close(&t);
        assert_memory_not_equal(v.logits, g.logits, g.n_ids * (size_t)g.vocab * sizeof(float));
        v.ids = g.ids;
        equals(variants[i].find, write_gguf(dir), &v, false);
        v.ids = NULL;
        golden_free(&v);
        golden_free(&g);
    }
}

/* A golden's settings as those of the language model among several parts. */
static void write_parts_config(const char *name, const char *to)
{
    char path[128];
    size_t n;
    rg_error err = { 0 };
    FILE *f = fopen(to, "wb");

    snprintf(path, sizeof path, "%s/config.json", name);
    char *text = rg_file_slurp(test_data(path), 1 << 20, &n, &err);
    assert_ok(text, err);
    assert_non_null(f);
    fprintf(f, "{\"architectures\": [\"Llama4ForConditionalGeneration\"], \"model_type\": \"llama4\", \"text_config\": %s}", text);
    assert_int_equal(fclose(f), 0);
    rg_free(text);
}

/* Its tensors below "language_model.". */
static void write_parts_tensors(const char *name, const char *to)
{
    rg_error err = { 0 };
    rg_checkpoint *c = rg_checkpoint_open(test_data(name), RG_CKPT_DEFAULT, &err);
    rg_ckpt_writer *w = rg_safetensors_create(to, &err);
    int n = rg_checkpoint_n_tensors(c);
    char below[256];

    assert_ok(c, err);
    assert_ok(w, err);
    for (int i = 0; i < n; i++) {
        const rg_tensor *t = rg_checkpoint_tensor(c, i);
        snprintf(below, sizeof below, "language_model.%s", t->name);
        assert_ok(rg_ckpt_declare(w, below, t->type, t->n_dims, t->shape, &err), err);
    }
    for (int i = 0; i < n; i++) {
        const rg_tensor *t = rg_checkpoint_tensor(c, i);
        void *data = malloc(t->bytes);
        assert_ok(rg_tensor_read(c, t, 0, data, t->bytes, &err), err);
        assert_ok(rg_ckpt_write(w, data, t->bytes, &err), err);
        free(data);
    }
    assert_ok(rg_ckpt_commit(w, &err), err);
    rg_checkpoint_close(c);
}

/* As Llama 4 is published. */
static void beside_a_vision_model(void **state)
{
    const char *dir = test_variant("llama4-parts", "llama4", "config.json", NULL, NULL);
    char to[600];
    golden g;

    (void)state;
    snprintf(to, sizeof to, "%s/config.json", dir);
    write_parts_config("llama4", to);
    snprintf(to, sizeof to, "%s/model.safetensors", dir);
    write_parts_tensors("llama4", to);
    golden_read(&g, "llama4/golden.safetensors");
    equals("llama4 beside a vision model", dir, &g, false);
    golden_free(&g);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
#define GOLDEN(test, folder, worlds) cmocka_unit_test(test),
#define WHOLE(test, folder) cmocka_unit_test(test),
#define ENCODER(test, folder)
#include "goldens.def"
#undef GOLDEN
#undef WHOLE
#undef ENCODER
        cmocka_unit_test(stories260K),
        cmocka_unit_test(names_without_their_root),
        cmocka_unit_test(variants_as_gguf),
        cmocka_unit_test(beside_a_vision_model),
        cmocka_unit_test(latent_experts),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
