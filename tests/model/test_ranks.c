/* Models that ranks share: the logits of other implementations, the same bits however a prompt is cut, whoever is beside
 * it and however many threads run, and as many exchanges as are foretold.  `make test` has a few families on two to four
 * ranks, make test-all every one. */
#include "support/model.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "model/rank_calls.h"
#include "model/share.h"

enum { MOST_IDS = 128 };

static const float TOLERANCE = 3e-4f;

typedef struct golden {
    int32_t *ids;
    float *logits; /* [n][vocab] */
    size_t n;
} golden;

static golden golden_read(const char *folder)
{
    char name[128];
    golden g = { 0 };
    rg_error err = { 0 };
    size_t n;

    snprintf(name, sizeof name, "%s/golden.safetensors", folder);
    rg_checkpoint *c = rg_checkpoint_open(test_data(name), RG_CKPT_DEFAULT, &err);
    assert_ok(c, err);
    g.ids = test_ints(c, "input_ids", &g.n);
    g.logits = test_floats(c, "logits", &n);
    assert_true(g.ids && g.logits && g.n <= MOST_IDS);
    rg_checkpoint_close(c);
    return g;
}

static void golden_free(golden *g)
{
    free(g->ids);
    free(g->logits);
}

/* Ranks 1: none. */
static void open_on(test_model *t, rg_ranks *ranks, const char *path, const char *kv_type)
{
    rg_error err = { 0 };

    t->ckpt = rg_checkpoint_open(path, RG_CKPT_DEFAULT, &err);
    assert_ok(t->ckpt, err);
    t->m = rg_model_open(t->ckpt, &(rg_model_options){ .kv_type = kv_type, .max_draft = 8, .n_threads = 1, .ranks = ranks,
                                                       .path = path, .backend = rg_backend_find("auto", NULL) }, &err);
    assert_ok(t->m, err);
}

typedef struct kept {
    float *logits;
    size_t vocab;
    int first;
} kept;

static void keep(void *arg, int feed, int row, float *logits)
{
    const kept *k = arg;

    if (feed == 0)
        memcpy(k->logits + (size_t)(k->first + row) * k->vocab, logits, k->vocab * sizeof *logits);
}

/* How a prompt is computed. */
typedef struct way {
    bool exact;
    int n_threads, cut; /* rows of a step */
    bool beside;        /* with another sequence in each step */
    int n_draft;        /* of a step's rows; all but the last of them are accepted */
} way;

static void expect_exchanges(const test_model *t, const test_rig *rig, int rows)
{
    const rg_link *link = t->m->link;
    rg_exchanges want;
    rg_error err = { 0 };

    (void)rig;
    if (!link)
        return;
    assert_ok(rg_share_exchanges(t->m, rows, rows, &want, &err), err);
    assert_int_equal(link->n_exchanges, want.n);
    assert_int_equal(link->bytes, want.bytes);
}

/* Logits of all ids; free() them. */
static float *logits_of(const test_model *t, const golden *g, way how)
{
    const test_rig_options o = { .backend = rg_backend_find("auto", NULL), .n_threads = how.n_threads, .exact = how.exact,
                                 .max_rows = 2 * MOST_IDS, .max_seqs = 4, .max_len = MOST_IDS };
    kept k = { .vocab = (size_t)t->m->config.vocab_size };
    rg_error err = { 0 };
    test_rig rig;

    k.logits = calloc(g->n, k.vocab * sizeof *k.logits);
    assert_non_null(k.logits);
    test_rig_open(&rig, t, &o);
    rg_seq *q = rg_seq_new(rig.states, MOST_IDS, 0, &err), *other = rg_seq_new(rig.states, MOST_IDS, 0, &err);
    assert_ok(q && other, err);
    const bool whole = rig.runner->sees != RG_CAUSAL;
    if (whole)
        rg_seq_scratch(q);
    for (int done = 0, n, n_draft; done < (int)g->n; done += n - (n_draft > 0)) {
        n = whole || how.cut > (int)g->n - done ? (int)g->n - done : how.cut;
        n_draft = whole || n <= how.n_draft ? 0 : how.n_draft;
        const test_feed feeds[] = { { .seq = q, .ids = g->ids + done, .n = n, .n_draft = n_draft },
                                    { .seq = other, .ids = g->ids + done % 3, .n = 1 } };

        assert_true(rg_seq_grow(rig.states, q, done + n) && rg_seq_grow(rig.states, other, other->length + 1));
        k.first = done;
        if (t->m->link)
            t->m->link->n_exchanges = t->m->link->bytes = 0;
        test_rig_step(&rig, feeds, how.beside && !whole ? 2 : 1, keep, &k);
        expect_exchanges(t, &rig, n + (how.beside && !whole));
        if (!whole)
            rg_seq_advance(rig.states, q, n, n_draft, NULL);
        if (n_draft)
            rg_seq_commit(rig.states, q, n_draft - 1, NULL, NULL);
        if (how.beside && !whole)
            rg_seq_advance(rig.states, other, 1, 0, NULL);
    }
    rg_seq_free(rig.states, q);
    rg_seq_free(rig.states, other);
    test_rig_close(&rig);
    return k.logits;
}

static void same_bits(const char *what, const test_model *t, const golden *g, way how, const float *want)
{
    float *got = logits_of(t, g, how);

    if (memcmp(got, want, g->n * (size_t)t->m->config.vocab_size * sizeof *got))
        fail_msg("%s: other bits with %d threads, cut to %d rows", what, how.n_threads, how.cut);
    free(got);
}

/* One family on n ranks: close to the golden; the same bits in every way, by the exact recipe and by the fast one. */
static void check_family(const char *folder, rg_ranks *ranks)
{
    golden g = golden_read(folder);
    test_model t;
    char what[128];

    snprintf(what, sizeof what, "%s on %d ranks", folder, rg_ranks_link(ranks)->n);
    open_on(&t, ranks, test_data(folder), "f32");
    for (int exact = 1; exact >= 0; exact--) {
        const way whole = { exact, 1, MOST_IDS, false };
        float *logits = logits_of(&t, &g, whole);

        if (exact)
            test_close_to(what, logits, g.logits, g.n * (size_t)t.m->config.vocab_size, TOLERANCE);
        same_bits(what, &t, &g, (way){ exact, 1, 5, true }, logits);
        same_bits(what, &t, &g, (way){ exact, 2, 1, false }, logits);
        same_bits(what, &t, &g, (way){ exact, 1, 6, true, .n_draft = 4 }, logits);
        free(logits);
    }
    test_model_close(&t);
    golden_free(&g);
}

static const char *const few[] = { "llama", "gemma3", "mixtral", "deepseek-v2", "mamba2", "qwen35-moe", "gpt2",
                                   "kimi-linear" };

static bool gates(const char *folder)
{
    for (size_t i = 0; i < RG_LEN(few); i++)
        if (!strcmp(folder, few[i]))
            return true;
    return test_all();
}

static void check_families(int n)
{
    static const char *const folders[] = {
#define GOLDEN(test, folder, worlds) folder,
#define WHOLE(test, folder) folder,
#define ENCODER(test, folder)
#include "goldens.def"
#undef GOLDEN
#undef WHOLE
#undef ENCODER
    };
    rg_error err = { 0 };
    rg_ranks *ranks = rg_ranks_start(n, &err);

    assert_ok(ranks, err);
    for (size_t i = 0; i < RG_LEN(folders); i++)
        if (gates(folders[i]))
            check_family(folders[i], ranks);
    rg_ranks_stop(ranks);
}

static void on_2_ranks(void **state)
{
    (void)state;
    check_families(2);
}

static void on_3_ranks(void **state)
{
    (void)state;
    check_families(3);
}

static void on_4_ranks(void **state)
{
    (void)state;
    check_families(4);
}

static rg_model *declared(const rg_checkpoint *c, rg_link *link)
{
    rg_error err = { 0 };
    rg_model *m = rg_model_open(c, &(rg_model_options){ .declare_only = true, .link = link }, &err);

    assert_ok(m, err);
    return m;
}

static int64_t n_values(const rg_weight *w)
{
    return w->n_mats * w->rows * w->cols;
}

/* The llama golden is split as a whole, matrices and K/V heads: its 5 K/V heads into 2 and 3.  So what is compared above is
 * what ranks do, and together they have each value once. */
static void all_is_split(void **state)
{
    rg_link alone[] = { rg_link_alone(0, 2), rg_link_alone(1, 2) };
    rg_error err = { 0 };
    rg_checkpoint *c = rg_checkpoint_open(test_data("llama"), RG_CKPT_DEFAULT, &err);

    (void)state;
    assert_ok(c, err);
    rg_model *m[] = { declared(c, &alone[0]), declared(c, &alone[1]) }, *whole = declared(c, NULL);
    const rg_shared sum = rg_share_count(m[0]);

    assert_int_equal(sum.whole_bytes, 0);
    assert_int_equal(sum.n_layers_kv_split, sum.n_layers_kv);
    assert_int_equal(rg_state_bytes_per_position(&m[0]->state_here) + rg_state_bytes_per_position(&m[1]->state_here),
                     rg_state_bytes_per_position(&whole->state));
    for (int i = 0; i < whole->weights.n; i++) {
        const rg_weight *w = &whole->weights.all[i];
        const rg_weight_part *a = m[0]->weights.all[i].part, *b = m[1]->weights.all[i].part;

        assert_int_equal(!a, !b);
        if (!a)
            continue;
        assert_int_equal(a->first, 0);
        assert_int_equal(b->first, a->n);
        assert_int_equal(n_values(&a->here) + n_values(&b->here), n_values(w));
    }
    for (int i = 0; i < 2; i++)
        rg_model_close(m[i]);
    rg_model_close(whole);
    rg_checkpoint_close(c);
}

/* Of latent attention what heads have of their own is split, and the latents that they share are not. */
static void latents_are_shared(void **state)
{
    rg_link alone = rg_link_alone(1, 2);
    rg_error err = { 0 };
    rg_checkpoint *c = rg_checkpoint_open(test_data("deepseek-v2"), RG_CKPT_DEFAULT, &err);
    int n_split = 0;

    (void)state;
    assert_ok(c, err);
    rg_model *m = declared(c, &alone);
    for (int i = 0; i < m->weights.n; i++) {
        const char *name = m->weights.all[i].name;
        const bool of_heads = strstr(name, "q_proj") || strstr(name, "q_b_proj") || strstr(name, "kv_b_proj") ||
                              strstr(name, "attn_q_b") || strstr(name, "attn_k_b") || strstr(name, "attn_v_b") ||
                              strstr(name, "o_proj");

        if (of_heads)
            assert_non_null(m->weights.all[i].part);
        n_split += of_heads;
        if (strstr(name, "kv_a_"))
            assert_null(m->weights.all[i].part);
    }
    assert_true(n_split >= 4 * m->config.n_layers);
    rg_model_close(m);
    rg_checkpoint_close(c);
}

/* States of recurrences are cut by heads or channels, together all of each; what stays whole (the tails of convolutions whose
 * channels are not of one head) every rank has. */
static void recurrent_states_are_cut(void **state)
{
    static const struct {
        const char *folder;
        bool all;
    } cases[] = { { "gla", true }, { "retnet", true }, { "kimi-linear", true }, { "recurrent-gemma", false },
                  { "mamba2", false }, { "qwen3-next", false }, { "granite-hybrid", false },
                  { "mamba", false }, { "s4d-lin", true }, { "s4", true }, { "jamba", false } };
    rg_error err = { 0 };

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        rg_link alone[] = { rg_link_alone(0, 2), rg_link_alone(1, 2) };
        rg_checkpoint *c = rg_checkpoint_open(test_data(cases[i].folder), RG_CKPT_DEFAULT, &err);
        assert_ok(c, err);
        rg_model *m[] = { declared(c, &alone[0]), declared(c, &alone[1]) }, *whole = declared(c, NULL);
        const rg_shared sum = rg_share_count(m[0]);

        if (!sum.state_split_bytes || (cases[i].all && sum.state_whole_bytes))
            fail_msg("%s: %d bytes of state are cut, %d are not", cases[i].folder, (int)sum.state_split_bytes,
                     (int)sum.state_whole_bytes);
        for (int l = 0; l < whole->config.n_layers; l++)
            for (int b = 0; b < whole->keep[l].n_buffers; b++) {
                const size_t all = whole->keep[l].buffer[b].bytes, first = m[0]->keep_here[l].buffer[b].bytes;

                assert_int_equal(m[0]->state_cut[l][b].units > 0 ? all - first : first, m[1]->keep_here[l].buffer[b].bytes);
            }
        for (int r = 0; r < 2; r++)
            rg_model_close(m[r]);
        rg_model_close(whole);
        rg_checkpoint_close(c);
    }
}

/* Put its number into its slot; in the first group a rank ends before that. */
static void tell_number(rg_link *link, void *arg)
{
    atomic_int *n_started = arg; /* of rank 2 */

    if (link->rank == 2 && !atomic_fetch_add(n_started, 1))
        _exit(7);
    *(int *)rg_link_slot(link) = 100 + link->rank;
    rg_link_exchange(link, RG_LINK_ALL, sizeof(int));
}

/* Nobody waits for it for ever, the others end as well, and a second group takes their places. */
static void a_rank_that_ends(void **state)
{
    atomic_int *n_started = mmap(NULL, sizeof *n_started, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    rg_error err = { 0 };
    rg_link *link = rg_link_fork(4, tell_number, n_started, &err);

    (void)state;
    assert_ok(link, err);
    for (int i = 0; i < 3; i++) { /* none of them waits */
        *(int *)rg_link_slot(link) = 100;
        rg_link_exchange(link, RG_LINK_ALL, sizeof(int));
    }
    assert_true(rg_link_is_lost(link));
    for (int r = 0; r < 4; r++)
        assert_int_equal(rg_link_process(link, r), 0);
    assert_int_equal(*n_started, 1);
    assert_ok(rg_link_restart(link, &err), err);
    assert_false(rg_link_is_lost(link));
    *(int *)rg_link_slot(link) = 100;
    rg_link_exchange(link, RG_LINK_ALL, sizeof(int));
    for (int r = 0; r < 4; r++)
        assert_int_equal(*(const int *)rg_link_of(link, r), 100 + r);
    assert_int_equal(*n_started, 2);
    rg_link_close(link);
    munmap(n_started, sizeof *n_started);
}

/* Without an engine that computes anew, the process ends with a message, and does not go on with what means nothing. */
static void a_step_without_its_ranks(void **state)
{
    int status = 0;
    const pid_t pid = fork();

    (void)state;
    assert_true(pid >= 0);
    if (!pid) {
        rg_error err = { 0 };
        golden g = golden_read("llama");
        rg_ranks *ranks = rg_ranks_start(2, &err);
        test_model t;

        const test_rig_options o = { .backend = rg_backend_find("auto", NULL), .n_threads = 1, .max_rows = MOST_IDS,
                                     .max_seqs = 1, .max_len = MOST_IDS };
        kept k = { .vocab = 320, .logits = calloc(5 * 320, sizeof(float)) };
        test_rig rig;

        open_on(&t, ranks, test_data("llama"), "f32");
        test_rig_open(&rig, &t, &o);
        rg_seq *q = rg_seq_new(rig.states, MOST_IDS, 0, &err);
        const test_feed feed = { .seq = q, .ids = g.ids, .n = 5 };
        if (!k.logits || t.m->config.vocab_size != (int)k.vocab || !rg_seq_grow(rig.states, q, 5))
            _exit(2);
        test_rig_step(&rig, &feed, 1, keep, &k);
        kill(rg_link_process(rg_ranks_link(ranks), 1), SIGKILL);
        test_rig_step(&rig, &feed, 1, keep, &k);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 1);
}

static void refused(void **state)
{
    rg_error err = { 0 };
    rg_ranks *ranks = rg_ranks_start(2, &err);
    rg_checkpoint *c = rg_checkpoint_open(test_data("llama"), RG_CKPT_DEFAULT, &err);
    rg_model_options o = { .ranks = ranks, .path = test_data("llama"), .pack_cache = "/nowhere" };

    (void)state;
    assert_null(rg_ranks_start(1, &err));
    assert_null(rg_ranks_start(65, &err));
    assert_null(rg_model_open(c, &o, &err));
    assert_non_null(strstr(err.text, "--pack-cache"));
    /* a file that one rank cannot open */
    o.pack_cache = NULL;
    o.path = "/no/such/model";
    assert_null(rg_model_open(c, &o, &err));
    assert_non_null(strstr(err.text, "rank 1"));
    o.path = test_data("llama");
    rg_model *m = rg_model_open(c, &o, &err); /* and they can go on */
    assert_ok(m, err);
    rg_model_close(m);
    rg_checkpoint_close(c);
    rg_ranks_stop(ranks);
}

/* In a process of its own, which has not asked the machine yet: ranks for so many bytes of weights on a machine that hwloc
 * is told of; bytes 0: its cores. */
static int best_on(const char *machine, uint64_t bytes)
{
    const pid_t child = fork();
    int status = 0;

    assert_true(child >= 0);
    if (!child) {
        setenv("HWLOC_SYNTHETIC", machine, 1);
        _exit(bytes ? rg_ranks_best(bytes) : rg_cores());
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* It comes first: once a process has asked for the machine's cores, it knows them. */
static void one_for_each_node(void **state)
{
    const uint64_t large = (uint64_t)8 << 30, small = (uint64_t)200 << 20;

    (void)state;
    assert_int_equal(best_on("node:1 core:8 pu:2", large), 1);
    assert_int_equal(best_on("node:2 core:1 pu:2", large), 1); /* too few cores */
    assert_int_equal(best_on("node:2 core:4 pu:1", small), 1); /* too little to read */
    const int cores = best_on("node:2 core:16 pu:2", 0); /* 32, but for the quota of whoever runs this */
    assert_int_equal(best_on("node:2 core:16 pu:2", large), cores >= 4 ? 2 : 1);
    assert_int_equal(best_on("node:4 core:8 pu:1", large), cores >= 8 ? 4 : 1);
    assert_int_equal(best_on("node:4 core:8 pu:1", large / 32), 1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_for_each_node),
        cmocka_unit_test(on_2_ranks),
        cmocka_unit_test(on_3_ranks),
        cmocka_unit_test(on_4_ranks),
        cmocka_unit_test(all_is_split),
        cmocka_unit_test(latents_are_shared),
        cmocka_unit_test(recurrent_states_are_cut),
        cmocka_unit_test(a_rank_that_ends),
        cmocka_unit_test(a_step_without_its_ranks),
        cmocka_unit_test(refused),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
