/* LoRA adapters: the logits that PEFT computes, for adapters and models of both kinds; rows with different adapters in one
 * step have the bits that each has alone; rows without one have those of a model that has no adapters; and what cannot be
 * used is refused by name. */
#include "worlds.h"

#include <math.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "ops/count/count.h"

enum { N_IDS = 48, STEP = 64, MAX_LIVES = 4, LONG = 75 };

/* A path in tests/golden that stays valid. */
static const char *golden_path(const char *name)
{
    static char paths[64][256];
    static int n;

    assert_true(n < 64);
    snprintf(paths[n], sizeof paths[n], "%s", test_data(name));
    return paths[n++];
}

static void open_adapted(test_model *t, const char *path, const rg_adapter_source *from, int n)
{
    rg_error err = { 0 };

    t->ckpt = rg_checkpoint_open(path, RG_CKPT_DEFAULT, &err);
    assert_ok(t->ckpt, err);
    t->m = rg_model_open(
        t->ckpt, &(rg_model_options){ .kv_type = "f32", .max_draft = RG_MAX_DRAFT, .adapters = from, .n_adapters = n },
        &err);
    assert_ok(t->m, err);
}

static rg_seq *sequence(test_rig *r, int adapter, int n)
{
    rg_error err = { 0 };
    rg_seq *q = rg_seq_new(r->states, n, (uint64_t)adapter + 1, &err);

    assert_ok(q, err);
    q->adapter = adapter;
    return q;
}

/* ---- goldens ----------------------------------------------------------------------------------------------------- */

typedef struct kept_rows {
    float *logits; /* [n, vocab] */
    int first, vocab;
} kept_rows;

static void keep_row(void *arg, int feed, int row, float *logits)
{
    kept_rows *k = arg;

    (void)feed;
    if (row >= k->first)
        memcpy(k->logits + (size_t)(row - k->first) * (size_t)k->vocab, logits, (size_t)k->vocab * sizeof *logits);
}

/* The last rows of the golden's ids with the adapter, against those of PEFT. */
static void check_golden(const test_model *t, const rg_backend *backend, const int32_t *ids, const float *want, int n,
                         const char *what)
{
    int vocab = t->m->config.vocab_size;
    kept_rows k = { calloc((size_t)n * (size_t)vocab, sizeof(float)), N_IDS - n, vocab };
    float most = 0, off = 0;
    test_rig rig;

    test_rig_open(
        &rig, t,
        &(test_rig_options){
            .backend = backend, .n_threads = 2, .exact = true, .max_rows = STEP, .max_seqs = 2, .max_len = 256 });
    rg_seq *q = sequence(&rig, 0, N_IDS);
    assert_true(rg_seq_grow(rig.states, q, N_IDS));
    test_rig_step(&rig, &(test_feed){ .seq = q, .ids = ids, .n = N_IDS }, 1, keep_row, &k);
    rg_seq_advance(rig.states, q, N_IDS, 0, NULL);
    rg_seq_free(rig.states, q);
    test_rig_close(&rig);
    for (int i = 0; i < n * vocab; i++) {
        most = fmaxf(most, fabsf(want[i]));
        off = fmaxf(off, fabsf(want[i] - k.logits[i]));
    }
    if (!(off <= 1e-4f * most))
        fail_msg("%s on %s: off by %g of %g", what, backend->name, (double)off, (double)most);
    free(k.logits);
}

static void golden_of(const char *model, const char *adapter, const char *folder)
{
    char path[128];
    rg_error err = { 0 };
    size_t n_ids, n;

    snprintf(path, sizeof path, "%s/golden.safetensors", folder);
    rg_checkpoint *c = rg_checkpoint_open(test_data(path), RG_CKPT_DEFAULT, &err);
    assert_ok(c, err);
    int32_t *ids = test_ints(c, "input_ids", &n_ids);
    rg_checkpoint_close(c);
    assert_int_equal(n_ids, N_IDS);
    snprintf(path, sizeof path, "adapters/%.*s/golden.safetensors", (int)strcspn(adapter, "/"), adapter);
    c = rg_checkpoint_open(test_data(path), RG_CKPT_DEFAULT, &err);
    assert_ok(c, err);
    float *want = test_floats(c, "logits", &n);
    rg_checkpoint_close(c);

    test_model t;
    snprintf(path, sizeof path, "adapters/%s", adapter);
    open_adapted(&t, test_data(model), &(rg_adapter_source){ "it", test_data(path) }, 1);
    for (int i = 0; test_backend(i); i++) /* the first and the last, where a part gates */
        if (!i || !test_backend(i + 1) || test_all())
            check_golden(&t, test_backend(i), ids, want, (int)(n / (size_t)t.m->config.vocab_size), model);
    test_model_close(&t);
    free(ids);
    free(want);
}

static void goldens(void **state)
{
    static const struct {
        const char *model, *adapter, *folder;
    } cases[] = {
        { "llama", "llama", "llama" },                              /* patterns of rank and alpha, rsLoRA */
        { "llama/model.gguf", "llama", "llama" },                   /* rows of q and k side by side in the model, */
        { "llama", "llama-gguf/adapter.gguf", "llama" },            /*   in the adapter, */
        { "llama/model.gguf", "llama-gguf/adapter.gguf", "llama" }, /* and in both */
        { "phi3", "phi3", "phi3" },                                 /* fused q, k, v and gate, up; the head */
        { "phi3/model.gguf", "phi3", "phi3" },
        { "gpt2", "gpt2", "gpt2" },          /* stored transposed */
        { "mixtral", "mixtral", "mixtral" }, /* beside experts */
        { "mixtral/model.gguf", "mixtral", "mixtral" },
        { "qwen2", "qwen2", "qwen2" }, /* with biases; the head is the embedding */
        { "qwen2/model.gguf", "qwen2", "qwen2" },
        { "gpt-neox", "gpt-neox", "gpt-neox" }, /* rows that a load function moves */
        { "falcon", "falcon", "falcon" },
        { "qwen35", "qwen35", "qwen35" }, /* recurrent layers; rows by turns */
        { "qwen35/model.gguf", "qwen35", "qwen35" },
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++)
        golden_of(cases[i].model, cases[i].adapter, cases[i].folder);
}

/* ---- the promise ------------------------------------------------------------------------------------------------- */

/* A text that is computed with one adapter, or none. */
typedef struct life {
    rg_seq *q;
    int adapter, upto; /* rows of the next step end there */
    int32_t ids[LONG];
    float *want; /* [LONG, vocab]: one row per step, alone */
    bool learns; /* want is being filled in */
} life;

typedef struct world {
    test_rig rig;
    life *feeds[MAX_LIVES];
    int vocab;
    long n_compared, n_bad;
} world;

static void see_row(void *arg, int feed, int row, float *logits)
{
    world *w = arg;
    life *l = w->feeds[feed];
    const size_t vocab = (size_t)w->vocab;
    float *at = l->want + (size_t)(l->q->length + row) * vocab;

    if (l->learns)
        memcpy(at, logits, vocab * sizeof *at);
    else if (memcmp(at, logits, vocab * sizeof *at) != 0)
        __atomic_fetch_add(&w->n_bad, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&w->n_compared, 1, __ATOMIC_RELAXED);
}

/* One step of some lives, each up to its `upto`. */
static void step(world *w, int n, const bool *unwanted)
{
    test_feed feeds[MAX_LIVES] = { 0 };

    for (int i = 0; i < n; i++) {
        life *l = w->feeds[i];

        assert_true(rg_seq_grow(w->rig.states, l->q, l->upto));
        feeds[i] =
            (test_feed){ .seq = l->q, .ids = l->ids + l->q->length, .n = l->upto - l->q->length, .unwanted = unwanted };
    }
    test_rig_step(&w->rig, feeds, n, see_row, w);
    for (int i = 0; i < n; i++)
        rg_seq_advance(w->rig.states, w->feeds[i]->q, feeds[i].n, 0, NULL);
}

static void open_world(world *w, const test_model *t, const rg_backend *backend, bool exact, int n_threads)
{
    *w = (world){ .vocab = t->m->config.vocab_size };
    test_rig_open(&w->rig, t,
                  &(test_rig_options){ .backend = backend,
                                       .n_threads = n_threads,
                                       .exact = exact,
                                       .max_rows = 512,
                                       .max_seqs = 2 * MAX_LIVES,
                                       .max_len = 256 });
}

/* Each row alone, of a model that has only this adapter (or none at all). */
static void learn(life *l, const char *path, const rg_adapter_source *from, const rg_backend *backend, bool exact)
{
    test_model t;
    world w;

    open_adapted(&t, path, from, l->adapter >= 0);
    open_world(&w, &t, backend, exact, 1);
    l->q = sequence(&w.rig, l->adapter >= 0 ? 0 : -1, LONG);
    l->learns = true;
    w.feeds[0] = l;
    for (l->upto = 1; l->upto <= LONG; l->upto++)
        step(&w, 1, NULL);
    l->learns = false;
    rg_seq_free(w.rig.states, l->q);
    test_rig_close(&w.rig);
    test_model_close(&t);
}

static void mix(const char *path, const rg_adapter_source from[2], const rg_backend *backend, bool exact)
{
    static life lives[MAX_LIVES];
    rg_rng g = { .seed = test_seed };
    const int n_rounds = test_all() ? 20 : 2;
    bool unwanted[LONG] = { false };
    test_model t;
    world w;

    open_adapted(&t, path, from, 2);
    open_world(&w, &t, backend, exact, 2);
    for (int i = 0; i < MAX_LIVES; i++) {
        life *l = &lives[i];

        *l = (life){ .adapter = i % 3 - 1, .want = calloc(LONG * (size_t)w.vocab, sizeof(float)) };
        for (int k = 0; k < LONG; k++) /* the same ids for all three */
            l->ids[k] = i % 3 ? lives[i - i % 3].ids[k] : (int32_t)rg_rng_below(&g, (uint32_t)w.vocab);
        learn(l, path, l->adapter >= 0 ? &from[l->adapter] : NULL, backend, exact);
    }
    for (int round = 0; round < n_rounds; round++) {
        for (int i = 0; i < MAX_LIVES; i++)
            lives[i].q = sequence(&w.rig, lives[i].adapter, LONG);
        for (int n = 1; n;) {
            n = 0;
            for (int k = 0; k < MAX_LIVES; k++) { /* in another order each round; not all in each step */
                life *l = &lives[(k + round) % MAX_LIVES];
                int left = LONG - l->q->length, rows = rg_rng_below(&g, 3) ? 1 + (int)rg_rng_below(&g, 70) : 1;

                if (!left || (k && !rg_rng_below(&g, 4)))
                    continue;
                l->upto = l->q->length + (rows < left ? rows : left);
                w.feeds[n++] = l;
            }
            for (int k = 0; k < LONG; k++)
                unwanted[k] = rg_rng_below(&g, 4) == 0;
            if (n)
                step(&w, n, round % 2 ? unwanted : NULL);
            for (int i = 0; i < MAX_LIVES; i++)
                n += lives[i].q->length < LONG;
        }
        for (int i = 0; i < MAX_LIVES; i++)
            rg_seq_free(w.rig.states, lives[i].q);
    }
    assert_true(w.n_compared > 300);
    if (w.n_bad)
        fail_msg("%s on %s: %ld of %ld rows differ", path, backend->name, w.n_bad, w.n_compared);
    /* Adapters change what is computed, and each in its own way. */
    assert_memory_not_equal(lives[0].want, lives[1].want, (size_t)w.vocab * sizeof(float));
    assert_memory_not_equal(lives[1].want, lives[2].want, (size_t)w.vocab * sizeof(float));
    for (int i = 0; i < MAX_LIVES; i++)
        free(lives[i].want);
    test_rig_close(&w.rig);
    test_model_close(&t);
}

static void mixed_rows_are_as_alone(void **state)
{
    const rg_adapter_source llama[2] = { { "a", golden_path("adapters/llama") },
                                         { "b", golden_path("adapters/llama-gguf/adapter.gguf") } };
    char quantized[512];

    (void)state;
    snprintf(quantized, sizeof quantized, "%s", world_quantized("llama", 0));
    for (int i = 0; test_backend(i); i++) {
        mix(golden_path("llama"), llama, test_backend(i), true);
        if (i || !test_backend(1) || test_all()) /* not on the definition, which is slow */
            mix(quantized, llama, test_backend(i), false);
    }
}

static void heads_and_fused_rows_are_as_alone(void **state)
{
    const rg_adapter_source twice[2] = { { "a", golden_path("adapters/phi3") }, { "b", golden_path("adapters/phi3") } };
    static life one;

    (void)state;
    for (int i = 0; test_backend(i); i++) {
        test_model t;
        world w;
        life *l = &one;

        /* The head's rows are those that are wanted: every second one here. */
        bool unwanted[LONG];
        for (int k = 0; k < LONG; k++)
            unwanted[k] = k % 2;
        *l = (life){ .adapter = 1 };
        open_adapted(&t, golden_path("phi3"), twice, 2);
        open_world(&w, &t, test_backend(i), true, 2);
        l->want = calloc(LONG * (size_t)w.vocab, sizeof(float));
        for (int k = 0; k < LONG; k++)
            l->ids[k] = (k * 37 + 5) % w.vocab;
        learn(l, golden_path("phi3"), &twice[1], test_backend(i), true);
        life plain = *l;
        plain.adapter = -1;
        plain.want = calloc(LONG * (size_t)w.vocab, sizeof(float));
        learn(&plain, golden_path("phi3"), NULL, test_backend(i), true);
        l->q = sequence(&w.rig, 1, LONG);
        plain.q = sequence(&w.rig, -1, LONG);
        w.feeds[0] = &plain;
        w.feeds[1] = l;
        l->upto = 66, plain.upto = 33;
        step(&w, 2, unwanted);
        l->upto = LONG, plain.upto = LONG;
        step(&w, 2, unwanted);
        assert_int_equal(w.n_bad, 0);
        assert_int_equal(w.n_compared, 33 + 5 + 17 + 21); /* half of each piece, rounded up */
        rg_seq_free(w.rig.states, l->q);
        rg_seq_free(w.rig.states, plain.q);
        free(l->want);
        free(plain.want);
        test_rig_close(&w.rig);
        test_model_close(&t);
    }
}

/* ---- counting ---------------------------------------------------------------------------------------------------- */

static void deltas_are_counted(void **state)
{
    const rg_adapter_source from = { "a", golden_path("adapters/qwen2") };
    int32_t rows[4] = { 0, 1, 2, 3 };
    rg_span spans[2] = { { .n_rows = 3, .adapter = 0 }, { .first_row = 3, .n_rows = 1, .adapter = -1 } };
    const rg_batch b = { .n_rows = 4, .n_spans = 2, .spans = spans, .n_logits = 4, .logit_rows = rows };
    double values = 0, bytes = 0;
    rg_counter counter;
    test_model t;
    rg_fwd *f = calloc(1, sizeof *f);

    (void)state;
    open_adapted(&t, test_data("qwen2"), &from, 1);
    for (int i = 0; i < t.m->weights.n; i++)
        if (t.m->weights.all[i].deltas) {
            const rg_delta *d = t.m->weights.all[i].deltas;
            values += (double)(d->a->rows * d->a->cols + d->b->rows * d->b->cols);
            bytes += (double)(d->a->bytes + d->b->bytes);
        }
    for (int with = 1; with >= 0; with--) {
        spans[0].adapter = with - 1;
        rg_counter_init(&counter, NULL, 0);
        rg_count_fwd(f, &counter, &b);
        rg_model_forward(t.m, f);
        assert_true(counter.by_kind[RG_OP_ADAPT].ops == with * 2 * 3 * values);
        assert_true(counter.by_kind[RG_OP_ADAPT].weight_bytes == with * bytes);
    }
    assert_true(values > 0 && (double)t.m->adapters.bytes == bytes);
    test_model_close(&t);
    free(f);
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

/* The adapter of llama with another setting in its adapter_config.json. */
static const char *changed(const char *find, const char *replace)
{
    static int turn;
    char name[32], to[600];

    snprintf(name, sizeof name, "adapter-%d", turn++);
    const char *dir = test_scratch(name);
    mkdir(dir, 0755);
    snprintf(to, sizeof to, "%s/adapter_config.json", dir);
    test_copy_file(test_data("adapters/llama/adapter_config.json"), to, find, replace);
    snprintf(to, sizeof to, "%s/adapter_model.safetensors", dir);
    test_copy_file(test_data("adapters/llama/adapter_model.safetensors"), to, NULL, NULL);
    return dir;
}

static void refuses(const char *model, const rg_adapter_source *from, int n, const char *why)
{
    rg_error err = { 0 };
    rg_checkpoint *c = rg_checkpoint_open(test_data(model), RG_CKPT_DEFAULT, &err);

    assert_ok(c, err);
    assert_null(rg_model_open(c, &(rg_model_options){ .adapters = from, .n_adapters = n }, &err));
    if (!strstr(err.text, why))
        fail_msg("'%s' is not in: %s", why, err.text);
    rg_checkpoint_close(c);
}

static void what_is_not_lora_is_refused_by_name(void **state)
{
    static const struct {
        const char *find, *replace, *why;
    } cases[] = {
        { "\"use_dora\": false", "\"use_dora\": true", "use_dora" },
        { "\"lora_bias\": false", "\"lora_bias\": true", "lora_bias" },
        { "\"bias\": \"none\"", "\"bias\": \"lora_only\"", "bias 'lora_only'" },
        { "\"modules_to_save\": null", "\"modules_to_save\": [\"lm_head\"]", "modules_to_save" },
        { "\"trainable_token_indices\": null", "\"trainable_token_indices\": [3]", "trainable_token_indices" },
        { "\"target_parameters\": null", "\"target_parameters\": [\"experts\"]", "target_parameters" },
        { "\"peft_type\": \"LORA\"", "\"peft_type\": \"IA3\"", "peft_type 'IA3'" },
        { "\"init_lora_weights\": true", "\"init_lora_weights\": \"pissa_niter_4\"",
          "init_lora_weights 'pissa_niter_4'" },
        { "\"down_proj\": 6", "\".*down_proj\": 6", "regular expressions" },
        { "\"down_proj\": 6", "\"\": 6", "rank 6 where adapter_config.json says 4" }, /* of no module */
        { "\"r\": 4", "\"r\": 5", "rank 4 where adapter_config.json says 5" },
        { "\"down_proj\": 6", "\"down_proj\": 7", "rank 6 where adapter_config.json says 7" },
    };
    const char *good = golden_path("adapters/llama");

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++)
        refuses("llama", &(rg_adapter_source){ "a", changed(cases[i].find, cases[i].replace) }, 1, cases[i].why);
    refuses("llama", (rg_adapter_source[]){ { "a", good }, { "a", good } }, 2, "two adapters are called 'a'");
    refuses("llama", &(rg_adapter_source){ "", good }, 1, "needs a name");
    refuses("llama", &(rg_adapter_source){ "a", golden_path("llama") }, 1, "no adapter_config.json");
    refuses("llama", &(rg_adapter_source){ "a", test_data("llama/model.gguf") }, 1, "no LoRA adapter");
    refuses("smollm3", &(rg_adapter_source){ "a", good }, 1, "do not fit the model's matrix");
    refuses("gpt2", &(rg_adapter_source){ "a", good }, 1, "belongs to no matrix of this model");
    refuses("qwen2/model.gguf", &(rg_adapter_source){ "a", golden_path("adapters/llama-gguf/adapter.gguf") }, 1,
            "an adapter for models of architecture 'llama'");
}

/* One tensor of the adapter under another name, of the same length. */
static void tensors_of_other_kinds_are_refused_by_name(void **state)
{
    static const struct {
        const char *find, *replace, *why;
    } cases[] = {
        { "layers.0.mlp.down_proj.lora_A", "layers.9.mlp.down_proj.lora_A", "has a matrix B and no A" },
        { "layers.0.mlp.down_proj.lora_", "layers.9.mlp.down_proj.lora_", "belongs to no matrix of this model" },
        { "layers.0.mlp.down_proj.lora_", "layers.0.experts.12.w1.lora_", "changes experts" },
        { "layers.0.mlp.down_proj.lora_A.weight", "layers.0.mlp.down_proj.base_layer.we", "has a matrix B and no A" },
    };
    char to[600];

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        const char *dir = changed(NULL, NULL);

        snprintf(to, sizeof to, "%s/adapter_model.safetensors", dir);
        test_copy_file(test_data("adapters/llama/adapter_model.safetensors"), to, cases[i].find, cases[i].replace);
        refuses("llama", &(rg_adapter_source){ "a", dir }, 1, cases[i].why);
    }
}

static bool allow(void *arg, size_t bytes)
{
    (void)bytes;
    return (*(long *)arg)-- > 0;
}

/* Of the allocations of opening, beyond those of the model alone, the N-th fails. */
static void memory_may_end_anywhere(void **state)
{
    const rg_adapter_source from = { "a", golden_path("adapters/gpt-neox") };
    rg_error err = { 0 };
    rg_checkpoint *c = rg_checkpoint_open(test_data("gpt-neox"), RG_CKPT_DEFAULT, &err);
    uint64_t before = rg_mem_count().n_allocs;
    rg_model *m;
    long n = 0;

    (void)state;
    assert_ok(c, err);
    rg_model_close(rg_model_open(c, &(rg_model_options){ 0 }, &err));
    const long alone = (long)(rg_mem_count().n_allocs - before) - 10;
    const size_t n_live = rg_mem_count().n_live;
    do {
        long left = alone + n;

        assert_true(n < 2000);
        rg_mem_set_gate(allow, &left);
        m = rg_model_open(c, &(rg_model_options){ .adapters = &from, .n_adapters = 1 }, &err);
        rg_mem_set_gate(NULL, NULL);
        if (!m) {
            assert_int_equal(err.code, RG_E_MEMORY);
            assert_int_equal(rg_mem_count().n_live, n_live);
        }
        n += n < 60 || test_all() ? 1 : TEST_SLOWER > 1 ? 25 : 5;
    } while (!m);
    assert_true(n > 100);
    rg_model_close(m);
    assert_int_equal(rg_mem_count().n_live, n_live);
    rg_checkpoint_close(c);
}

static void an_adapter_is_no_model(void **state)
{
    static const char *const paths[] = { "adapters/llama", "adapters/llama-gguf/adapter.gguf" };

    (void)state;
    for (size_t i = 0; i < RG_LEN(paths); i++)
        refuses(paths[i], NULL, 0,
                "is a LoRA adapter, not a model: give the model that it was trained for, and --lora");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goldens),
        cmocka_unit_test(mixed_rows_are_as_alone),
        cmocka_unit_test(heads_and_fused_rows_are_as_alone),
        cmocka_unit_test(deltas_are_counted),
        cmocka_unit_test(what_is_not_lora_is_refused_by_name),
        cmocka_unit_test(tensors_of_other_kinds_are_refused_by_name),
        cmocka_unit_test(memory_may_end_anywhere),
        cmocka_unit_test(an_adapter_is_no_model),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
