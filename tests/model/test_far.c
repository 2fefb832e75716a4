/* A back end whose memory the host cannot read (support/far) gives ref's bits: the logits of a prompt and of what follows,
 * and every value that an operation writes on the way, fetched.  What crosses in a step is counted, and a step is under
 * way when submit returns.
 *
 * Here: one architecture of each kind, or with RIDGE_TEST_ALL every golden.  Cuts, drafts, swaps, forks and prefixes,
 * requests, drafters and shrinking go through it in the programs far_* (tests/CMakeLists.txt), which are the tests of those
 * with no other back end. */
#include "support/far/far.h"
#include "support/goldens.h"
#include "support/model.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "ops/watch/watch.h"
#include "shrink/shrink.h"

enum { PROMPT = 70, MORE = 3, LEN = PROMPT + MORE }; /* into a second block */

/* What a model makes of one text. */
typedef struct made {
    test_model model;
    test_rig rig;
    rg_watch watch;
    uint64_t values, n_values; /* of all that operations wrote: a hash, and how many */
    float *logits;             /* [LEN][vocab], from row `first` on those of the step */
    int first, vocab;
} made;

static void see(void *arg, const rg_watched *w)
{
    made *m = arg;
    const size_t n = (size_t)w->rows * (size_t)w->cols;

    assert_non_null(w->data);
    m->values = rg_hash(w->data, n * sizeof *w->data, m->values);
    m->n_values += n;
}

static const rg_reader *wrap(void *arg, const rg_reader *inner)
{
    return rg_watch_init(&((made *)arg)->watch, inner, see, arg);
}

static void take_row(void *arg, int feed, int row, float *logits)
{
    const made *m = arg;

    (void)feed;
    memcpy(m->logits + (size_t)(m->first + row) * (size_t)m->vocab, logits, (size_t)m->vocab * sizeof *logits);
}

static void open_on(made *m, const char *path, const rg_backend *backend, bool watches)
{
    *m = (made){ 0 };
    test_model_open_on(&m->model, path, NULL, backend);
    m->vocab = m->model.m->config.vocab_size;
    test_rig_open(&m->rig, &m->model,
                  &(test_rig_options){ .backend = backend, .n_threads = 2, .max_rows = PROMPT, .max_seqs = 2, .max_len = 4 * LEN,
                                       .wrap = watches ? wrap : NULL, .wrap_arg = m });
    m->logits = calloc((size_t)LEN * (size_t)m->vocab, sizeof *m->logits);
}

static void close_all(made *m)
{
    test_rig_close(&m->rig);
    rg_watch_fini(&m->watch);
    test_model_close(&m->model);
    free(m->logits);
}

static rg_seq *sequence(made *m)
{
    rg_error err = { 0 };
    rg_seq *q = rg_seq_new(m->rig.states, LEN, 0, &err);

    assert_ok(q, err);
    if (m->rig.runner->sees != RG_CAUSAL)
        rg_seq_scratch(q);
    return q;
}

/* n rows of a text more; of them the last `wanted` ones' logits. */
static void step(made *m, rg_seq *q, int n, int wanted)
{
    int32_t ids[LEN];
    bool unwanted[LEN] = { false };

    for (int i = 0; i < n; i++) {
        ids[i] = ((q->length + i) * 37 + 11) % (m->vocab < 250 ? m->vocab : 250);
        unwanted[i] = i < n - wanted;
    }
    m->first = q->length;
    assert_true(rg_seq_grow(m->rig.states, q, q->length + n));
    test_rig_step(&m->rig, &(test_feed){ .seq = q, .ids = ids, .n = n, .unwanted = unwanted }, 1, take_row, m);
    rg_seq_advance(m->rig.states, q, n, 0, NULL);
}

/* An encoder's rows have no logits: what is watched says all. */
static void compute(made *m, const char *path, const rg_backend *backend)
{
    open_on(m, path, backend, true);
    const bool has_logits = rg_config_has_logits(&m->model.m->config);
    rg_seq *q = sequence(m);

    step(m, q, PROMPT, has_logits ? PROMPT : 0);
    for (int i = 0; has_logits && i < MORE; i++)
        step(m, q, 1, 1);
    rg_seq_free(m->rig.states, q);
}

static void same_on_both(const char *folder)
{
    const rg_backend *const backends[] = { rg_backend_nth(0), far_backend() };
    made m[2];

    for (int i = 0; i < 2; i++)
        compute(&m[i], test_data(folder), backends[i]);
    if (m[0].values != m[1].values || m[0].n_values != m[1].n_values || !m[0].n_values)
        fail_msg("%s: other values of activations than on ref", folder);
    if (memcmp(m[0].logits, m[1].logits, (size_t)LEN * (size_t)m[0].vocab * sizeof(float)))
        fail_msg("%s: other logits than on ref", folder);
    for (int i = 0; i < 2; i++)
        close_all(&m[i]);
}

static void bits_are_those_of_ref(void **state)
{
    static const char *const some[] = { "llama", "jamba", "gemma3", "deepseek-v3", "bert", "llada" };

    (void)state;
    for (size_t i = 0; !test_all() && i < RG_LEN(some); i++)
        same_on_both(some[i]);
    for (size_t i = 0; test_all() && i < RG_LEN(test_goldens); i++)
        same_on_both(test_goldens[i]);
}

/* Kinds that no golden has, and the programs in which they cross. */
static bool crosses_elsewhere(rg_op_kind kind)
{
    return kind == RG_OP_FEATURES      /* far_draft_networks */
           || kind == RG_OP_MEAN_ROWS  /* far_encoders */
           || kind == RG_OP_ADAPT      /* far_adapters */
           || kind == RG_OP_FETCH      /* of experts that stay in a file, which this back end does not keep so */
           || kind == RG_OP_SPARSIFY   /* far_sparsity */
           || kind == RG_OP_PERMUTE;   /* far_invariance */
}

/* Whatever is added to ops.def crosses: it has a golden, or its test is named above. */
static void every_operation_crosses(void **state)
{
    uint64_t n[RG_OP_COUNT];

    (void)state;
    if (!test_all())
        return;
    far_count_ops(n);
    for (int kind = 0; kind < RG_OP_COUNT; kind++)
        if (!n[kind] && !crosses_elsewhere((rg_op_kind)kind))
            fail_msg("no model here has the operation '%s': give it one, or name the far_ program that does",
                     rg_op_name((rg_op_kind)kind));
}

/* ---- what crosses ------------------------------------------------------------------------------------------------ */

/* Bytes of each kind since the last call. */
static void crossed(uint64_t bytes[FAR_KINDS])
{
    static uint64_t before[FAR_KINDS];
    uint64_t now[FAR_KINDS];

    far_count(now);
    for (int k = 0; k < FAR_KINDS; k++)
        bytes[k] = now[k] - before[k];
    memcpy(before, now, sizeof now);
}

/* A step of one span: n rows, of which `wanted` have logits, up to position `end`. */
static void assert_step(const made *m, int n, int wanted, int end, uint64_t bytes[FAR_KINDS])
{
    const size_t sizes = 6 * sizeof(int32_t), span = 8 * sizeof(int32_t), row = 7 * sizeof(int32_t); /* its id, index,
                                                                            kv_end, and four components of pos */
    const size_t entries = (size_t)(end + RG_BLOCK - 1) / RG_BLOCK, groups = (size_t)m->rig.runner->spec->n_groups;

    crossed(bytes);
    assert_int_equal(bytes[FAR_IDS], sizes + span + (size_t)n * row + (size_t)wanted * sizeof(int32_t));
    assert_int_equal(bytes[FAR_TABLES], groups * entries * sizeof(int32_t));
    assert_int_equal(bytes[FAR_ROWS], (size_t)wanted * (size_t)m->vocab * sizeof(float));
    assert_int_equal(bytes[FAR_FEATURES] + bytes[FAR_WEIGHTS] + bytes[FAR_STATE] + bytes[FAR_VALUES], 0);
}

/* Weights cross once.  A step takes ids and tables in and wanted rows out: no row that nobody wants, no activation, no
 * state; and what says its operations does not grow with the text. */
static void a_step_moves_ids_tables_and_wanted_rows(void **state)
{
    uint64_t bytes[FAR_KINDS], commands = 0, weights;
    made m;

    (void)state;
    crossed(bytes);
    open_on(&m, test_data("llama"), far_backend(), false);
    crossed(bytes);
    weights = m.model.m->weights.bytes;
    assert_in_range(bytes[FAR_WEIGHTS], weights / 2, weights); /* rows as in the file, no padding */
    rg_seq *q = sequence(&m);
    crossed(bytes);
    step(&m, q, 60, 1);
    assert_step(&m, 60, 1, 60, bytes);
    for (int end = 61; end <= LEN; end++) {
        step(&m, q, 1, 1);
        assert_step(&m, 1, 1, end, bytes);
        if (end % RG_BLOCK == 1)
            continue; /* it takes a new block, which checked builds fill first */
        assert_true(!commands || commands == bytes[FAR_COMMANDS]);
        commands = bytes[FAR_COMMANDS];
    }
    rg_seq_free(m.rig.states, q);
    close_all(&m);
}

/* ---- a step is under way ----------------------------------------------------------------------------------------- */

static rg_backend held;
static bool is_submitted;
static int n_taken, n_taken_before_wait;

/* The process stands still while a step is submitted. */
static void submit_held(rg_lane *lane, const rg_step *s)
{
    int status;

    assert_int_equal(kill(far_process(), SIGSTOP), 0);
    assert_int_equal(waitpid(far_process(), &status, WUNTRACED), far_process());
    assert_true(WIFSTOPPED(status));
    far_backend()->submit(lane, s);
    is_submitted = true;
    n_taken_before_wait = n_taken;
}

static void wait_held(rg_lane *lane)
{
    assert_int_equal(kill(far_process(), SIGCONT), 0);
    far_backend()->wait(lane);
}

static void count_row(void *arg, int feed, int row, float *logits)
{
    (void)arg, (void)feed, (void)row, (void)logits;
    n_taken++;
}

static void submit_returns_before_it_is_computed(void **state)
{
    const int32_t ids[] = { 1, 2, 3 };
    rg_error err = { 0 };
    test_model t;
    test_rig rig;

    (void)state;
    held = *far_backend();
    held.submit = submit_held;
    held.wait = wait_held;
    test_model_open_on(&t, test_data("llama"), NULL, far_backend());
    test_rig_open(&rig, &t, &(test_rig_options){ .backend = &held, .n_threads = 1, .max_rows = 3, .max_seqs = 1, .max_len = 64 });
    rg_seq *q = rg_seq_new(rig.states, 64, 0, &err);
    assert_ok(q, err);
    assert_true(rg_seq_grow(rig.states, q, 3));
    test_rig_step(&rig, &(test_feed){ .seq = q, .ids = ids, .n = 3 }, 1, count_row, NULL);
    assert_true(is_submitted);
    assert_int_equal(n_taken_before_wait, 0);
    assert_int_equal(n_taken, 3);
    rg_seq_free(rig.states, q);
    test_rig_close(&rig);
    test_model_close(&t);
}

/* ---- vectors ----------------------------------------------------------------------------------------------------- */

/* Of a vector the host has the values and the process a copy, which operations read. */
static void vectors_are_placed(void **state)
{
    test_model far, near;
    int n = 0;

    (void)state;
    test_model_open_on(&far, test_data("jamba"), NULL, far_backend());
    test_model_open_on(&near, test_data("jamba"), NULL, rg_backend_nth(0));
    for (int i = 0; i < far.m->weights.n; i++) {
        const rg_weight *f = &far.m->weights.all[i], *r = &near.m->weights.all[i];

        assert_true(!f->vec == !f->placed_vec);
        assert_null(r->placed_vec);
        n += f->placed_vec != NULL;
    }
    assert_true(n > 0);
    test_model_close(&far);
    test_model_close(&near);
}

/* Scales that move into vectors while layers are shrunk are seen by the layers behind: both write the same file. */
static void shrinking_writes_the_same_file(void **state)
{
    const rg_backend *const backends[] = { rg_backend_nth(0), far_backend() };
    static int32_t ids[2 * 64];
    rg_error err = { 0 };
    char *data[2];
    size_t n[2];

    (void)state;
    for (size_t i = 0; i < RG_LEN(ids); i++)
        ids[i] = (int32_t)(i * 37 % 250);
    for (int i = 0; i < 2; i++) {
        rg_shrink_options o = { .method = rg_shrink_method_find("awq", &err), .coding = { .bits = 4, .group = 32 },
                                .alpha = 0.5f, .ids = ids, .n_samples = 2, .ctx = 64, .n_threads = 1,
                                .backend = backends[i] };
        const char *to = test_scratch(backends[i]->name);
        rg_checkpoint *from = rg_checkpoint_open(test_data("llama"), RG_CKPT_DEFAULT, &err);
        rg_shrink_report r;
        char path[600];

        assert_ok(from, err);
        assert_ok(rg_shrink(&r, from, to, &o, &err), err);
        rg_shrink_report_fini(&r);
        rg_checkpoint_close(from);
        snprintf(path, sizeof path, "%s/model.safetensors", to);
        data[i] = rg_file_slurp(path, (size_t)1 << 30, &n[i], &err);
        assert_ok(data[i], err);
    }
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(data[0], data[1], n[0]);
    rg_free(data[0]);
    rg_free(data[1]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_those_of_ref),
        cmocka_unit_test(every_operation_crosses),
        cmocka_unit_test(a_step_moves_ids_tables_and_wanted_rows),
        cmocka_unit_test(submit_returns_before_it_is_computed),
        cmocka_unit_test(vectors_are_placed),
        cmocka_unit_test(shrinking_writes_the_same_file),
    };

    test_init(argc, argv);
    far_backend();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
