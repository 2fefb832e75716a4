/* test_feature_drafts.c -- drafters that read the model's features: what is taken from its steps, and the trees and chains
 * that the authors' code makes of it. */
#include "support/model.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "engine/draft/dynamic_tree.h"
#include "engine/draft/static_tree.h"
#include "engine/step_batch.h"

enum { PROMPT = 24, MAX_LEN = 64, CUT = 10 };

static const float TOLERANCE = 1e-4f;

/* ---- a model, its tap, and a drafter ----------------------------------------------------------------------------- */

typedef struct world {
    test_model target, own;
    test_rig rig, own_rig;
    rg_tap *tap;
    rg_drafter *d;
    rg_request *r;
    rg_step_batch rows;
    rg_seq *seq;
    int32_t ids[PROMPT + 1]; /* the prompt, and the id that the model puts behind it */
} world;

static void put_hidden(void *arg, int thread, int i, const float *rows, size_t stride)
{
    world *w = arg;

    (void)thread;
    rg_tap_put_hidden(w->tap, w->rows.hidden[i].first, w->rows.hidden[i].n, rows, stride);
}

static void no_logits(void *arg, int thread, int i, float *logits)
{
    (void)arg, (void)thread, (void)i, (void)logits;
}

static rg_checkpoint *open_file(const char *folder, const char *name)
{
    char path[128];
    rg_error err = { 0 };

    snprintf(path, sizeof path, "%s/%s", folder, name);
    rg_checkpoint *c = rg_checkpoint_open(test_data(path), RG_CKPT_DEFAULT, &err);
    assert_ok(c, err);
    return c;
}

static void read_ids(const rg_checkpoint *c, int32_t ids[PROMPT + 1])
{
    size_t n, n_next;
    int32_t *prompt = test_ints(c, "input_ids", &n), *next = test_ints(c, "next_id", &n_next);

    assert_true(prompt && next && n == PROMPT && n_next == 1);
    memcpy(ids, prompt, PROMPT * sizeof *ids);
    ids[PROMPT] = *next;
    free(prompt);
    free(next);
}

static void open_network(world *w, const char *folder, bool mtp)
{
    rg_error err = { 0 };

    if (!mtp) {
        w->own.ckpt = rg_checkpoint_open(test_data(folder), RG_CKPT_DEFAULT, &err);
        assert_ok(w->own.ckpt, err);
    }
    w->own.m = rg_model_open(mtp ? w->target.ckpt : w->own.ckpt,
                             &(rg_model_options){ .kv_type = "f32", .target = w->target.m, .mtp = mtp }, &err);
    assert_ok(w->own.m, err);
    w->tap = rg_tap_new(&w->own.m->config, PROMPT, &err);
    assert_ok(w->tap, err);
}

/* golden: a folder with input_ids and next_id.  kind: the drafter's. */
static void world_open(world *w, const char *kind, const char *folder, const char *golden, int32_t max_draft)
{
    bool mtp = !strcmp(kind, "mtp");
    const rg_draft_kind *k = rg_draft_kind_find(kind);
    rg_params p = { .prompt = w->ids, .n_prompt = PROMPT, .max_tokens = 30, .n_samples = 1, .sampling = rg_sampling_default() };
    rg_checkpoint *c = open_file(golden, "golden.safetensors");
    rg_error err = { 0 };
    int vocab;

    memset(w, 0, sizeof *w);
    read_ids(c, w->ids);
    rg_checkpoint_close(c);
    test_model_open(&w->target, test_data(mtp ? folder : "llama"), "f32");
    open_network(w, folder, mtp);
    vocab = w->target.m->config.vocab_size;
    test_rig_open(&w->rig, &w->target,
                  &(test_rig_options){ .backend = test_backend(0), .n_threads = 2, .exact = true, .max_rows = PROMPT, .max_seqs = 1,
                                       .max_len = MAX_LEN, .wrap = rg_tap_wrap, .wrap_arg = w->tap });
    test_rig_open(&w->own_rig, &w->own,
                  &(test_rig_options){ .backend = test_backend(0), .n_threads = 2, .exact = true, .max_rows = PROMPT, .max_seqs = 1,
                                       .max_len = MAX_LEN });
    w->d = k->open(&(rg_draft_options){ .n_lanes = 1, .max_draft = max_draft, .vocab_size = vocab, .max_seq_len = MAX_LEN,
                                        .runner = w->own_rig.runner, .target_ids = w->own.m->target_ids, .tap = w->tap,
                                        .path = test_data(folder) }, &err);
    assert_ok(w->d, err);
    p.sampling.temperature = 0;
    w->r = rg_request_new(&p, &(rg_request_model){ .vocab_size = vocab, .max_seq_len = MAX_LEN, .dim = w->target.m->config.dim },
                          &err);
    assert_ok(w->r, err);
    assert_ok(rg_step_batch_init(&w->rows, 1, PROMPT, PROMPT, true, &err), err);
    w->seq = rg_seq_new(w->rig.states, MAX_LEN, 0, &err);
    assert_ok(w->seq, err);
}

static void world_close(world *w)
{
    rg_seq_free(w->rig.states, w->seq);
    rg_step_batch_fini(&w->rows);
    rg_request_unref(w->r);
    rg_drafter_close(w->d);
    test_rig_close(&w->own_rig);
    test_rig_close(&w->rig);
    rg_tap_free(w->tap);
    rg_model_close(w->own.m);
    rg_checkpoint_close(w->own.ckpt);
    test_model_close(&w->target);
}

/* A step of the model over prompt rows [from, to), which the drafter sees. */
static void step(world *w, int from, int to)
{
    assert_true(rg_seq_grow(w->rig.states, w->seq, to));
    rg_step_batch_begin(&w->rows);
    rg_step_batch_add(&w->rows, w->rig.states, w->seq, w->ids, to - from, NULL);
    rg_step_batch_want_hidden(&w->rows, (rg_rows){ 0, to - from });
    w->rig.runner->step(w->rig.runner, &w->rows.batch, &(rg_sink){ .logits = no_logits, .hidden = put_hidden, .arg = w });
    rg_seq_advance(w->rig.states, w->seq, to - from, 0, NULL);
}

/* All steps of its network. */
static void compute(rg_drafter *d)
{
    while (rg_drafter_step(d))
        ;
}

static void see(world *w, int from, int to)
{
    w->d->seen(w->d, &(rg_draft_seen){ .request = w->r, .ids = w->ids, .n_ids = PROMPT + 1, .start = from, .n_rows = to - from,
                                       .ends = to == PROMPT }, 1);
    compute(w->d);
}

static void propose(world *w, int32_t depth, int32_t most, bool chain, rg_draft_tree *t)
{
    rg_draft_ask ask = { .request = w->r, .ids = w->ids, .n_ids = PROMPT + 1, .depth = depth, .most = most, .probe_depth = depth,
                         .chain = chain, .draft = t };

    *t = (rg_draft_tree){ 0 };
    assert_true(w->d->propose(w->d, &ask, 1));
    compute(w->d);
}

/* The prompt in two steps. */
static void see_prompt(world *w)
{
    for (int from = 0, to = CUT; from < PROMPT; from = to, to = PROMPT) {
        step(w, from, to);
        see(w, from, to);
    }
}

/* ---- features ---------------------------------------------------------------------------------------------------- */

static void check_features(const char *kind, const char *folder, const char *name)
{
    world *w = calloc(1, sizeof *w);
    rg_checkpoint *c = open_file(folder, "golden.safetensors");
    float *want, off = 0, most = 0;
    size_t n;

    world_open(w, kind, folder, folder, 4);
    want = test_floats(c, name, &n);
    assert_true(want && n == (size_t)PROMPT * (size_t)rg_tap_cols(w->tap));
    step(w, 0, PROMPT);
    for (size_t i = 0; i < n; i++) {
        off = fmaxf(off, fabsf(rg_tap_row(w->tap, 0)[i] - want[i]));
        most = fmaxf(most, fabsf(want[i]));
    }
    if (!(off <= TOLERANCE * most))
        fail_msg("%s: off by %g where %g is the largest", folder, (double)off, (double)most);
    free(want);
    rg_checkpoint_close(c);
    world_close(w);
    free(w);
}

static void features_are_the_models(void **state)
{
    (void)state;
    check_features("eagle", "speculation/eagle1", "features");
    check_features("eagle", "speculation/eagle3", "aux");
    check_features("mtp", "speculation/mtp-qwen", "target.hidden");
}

/* ---- drafts ------------------------------------------------------------------------------------------------------ */

/* A chain of the authors' ids. */
static void check_chain(const char *kind, const char *folder, const char *name, int32_t n_draft)
{
    world *w = calloc(1, sizeof *w);
    rg_checkpoint *c = open_file(folder, "golden.safetensors");
    rg_draft_tree t;
    size_t n;

    world_open(w, kind, folder, folder, n_draft);
    int32_t *ids = test_ints(c, name, &n);
    assert_true(ids && n == (size_t)n_draft);
    propose(w, n_draft, n_draft, true, &t);
    assert_int_equal(t.n, 0); /* nothing was seen */
    see_prompt(w);
    for (int again = 0; again < 2; again++) { /* nothing of a draft is kept */
        propose(w, n_draft, n_draft, true, &t);
        assert_true(t.n == n_draft && rg_draft_is_chain(&t));
        assert_memory_equal(t.id, ids, n * sizeof *ids);
        see(w, CUT, PROMPT); /* known rows may come again */
    }
    see(w, 0, CUT);
    propose(w, n_draft, n_draft, true, &t);
    assert_int_equal(t.n, 0);
    free(ids);
    rg_checkpoint_close(c);
    world_close(w);
    free(w);
}

static void chains_are_the_authors(void **state)
{
    (void)state;
    check_chain("eagle", "speculation/eagle1", "chain.ids", 4);
    check_chain("eagle", "speculation/eagle3", "chain.ids", 4);
    check_chain("eagle", "speculation/eagle3-speculators", "chain.ids", 4);
    check_chain("eagle", "speculation/eagle3-speculators-nbf", "chain.ids", 4);
    check_chain("mtp", "speculation/mtp-deepseek", "ids", 2);
    check_chain("mtp", "speculation/mtp-glm", "ids", 2);
    check_chain("mtp", "speculation/mtp-qwen", "ids", 2);
}

/* Rows of a draft that was accepted are seen as those of a prompt: here the prompt's last id is one, beside a wrong one. */
static void accepted_rows_are_seen(void **state)
{
    world *w = calloc(1, sizeof *w);
    rg_checkpoint *c = open_file("speculation/eagle3", "golden.safetensors");
    const rg_draft_tree guessed = { .n = 2, .id = { 7, 0 }, .parent = { -1, -1 } };
    const int32_t path[] = { 1 };
    rg_draft_tree t;
    size_t n;

    (void)state;
    world_open(w, "eagle", "speculation/eagle3", "speculation/eagle3", 4);
    int32_t *ids = test_ints(c, "chain.ids", &n);
    assert_true(ids && n == 4);
    step(w, 0, PROMPT - 2);
    see(w, 0, PROMPT - 2);
    rg_draft_tree checked = guessed;
    checked.id[1] = w->ids[PROMPT - 1];
    assert_true(checked.id[0] != checked.id[1] && rg_seq_grow(w->rig.states, w->seq, PROMPT + 1));
    rg_step_batch_begin(&w->rows);
    rg_step_batch_add(&w->rows, w->rig.states, w->seq, w->ids, 1, &checked);
    rg_step_batch_want_hidden(&w->rows, (rg_rows){ 0, 3 });
    w->rig.runner->step(w->rig.runner, &w->rows.batch, &(rg_sink){ .logits = no_logits, .hidden = put_hidden, .arg = w });
    w->d->seen(w->d, &(rg_draft_seen){ .request = w->r, .ids = w->ids, .n_ids = PROMPT + 1, .start = PROMPT - 2, .n_rows = 1,
                                       .path = path, .n_path = 1, .ends = true }, 1);
    compute(w->d);
    propose(w, 4, 4, true, &t);
    assert_int_equal(t.n, 4);
    assert_memory_equal(t.id, ids, n * sizeof *ids);
    free(ids);
    rg_checkpoint_close(c);
    world_close(w);
    free(w);
}

/* Of the whole tree: depth 5 beyond the first level, 8 nodes wide, 31 nodes. */
static void check_dynamic(const rg_draft_tree *t, const rg_checkpoint *tree)
{
    size_t n, n_parents;
    int32_t *ids = test_ints(tree, "draft_ids", &n), *parents = test_ints(tree, "parents", &n_parents);

    assert_true(ids && parents && n == 32 && n_parents == n);
    assert_int_equal(t->n, 31);
    for (int32_t i = 0; i < t->n; i++) { /* theirs has the answer's last id as node 0, and rows by depth */
        assert_int_equal(t->id[i], ids[i + 1]);
        assert_int_equal(t->parent[i], parents[i + 1] - 1);
    }
    free(ids);
    free(parents);
}

static void trees_grow_as_the_authors(void **state)
{
    world *w = calloc(1, sizeof *w);
    rg_checkpoint *tree = open_file("speculation/eagle1", "tree.safetensors");
    rg_draft_tree t;

    (void)state;
    world_open(w, "eagle", "speculation/eagle1", "speculation/eagle1", 31);
    see_prompt(w);
    propose(w, 6, 31, false, &t);
    check_dynamic(&t, tree);
    propose(w, 3, 12, false, &t); /* smaller ones */
    assert_int_equal(t.n, 12);
    for (int32_t i = 0, path[RG_MAX_DRAFT]; i < t.n; i++)
        assert_true(rg_draft_path(&t, i, path) <= 3);
    propose(w, 1, 5, false, &t);
    assert_int_equal(t.n, 1); /* of few nodes it makes a chain */
    rg_checkpoint_close(tree);
    world_close(w);
    free(w);
}

/* The same from the golden's logits alone. */
static int32_t best_of(const float *logits, int32_t vocab, rg_guess best[8])
{
    const rg_sampling greedy = { 0 };

    return rg_sample_best(logits, vocab, &greedy, NULL, 8, best);
}

static void trees_follow_logits(void **state)
{
    rg_checkpoint *tree = open_file("speculation/eagle1", "tree.safetensors");
    rg_dynamic_tree *d = calloc(1, sizeof *d);
    rg_draft_tree t = { 0 };
    rg_guess best[8];
    json_error_t why;
    json_t *v = json_load_file(test_data("speculation/eagle1/tree.json"), 0, &why), *want = json_object_get(v, "kept");
    int32_t kept[RG_MAX_DRAFT];

    (void)state;
    assert_non_null(want);
    for (int level = 0; level <= 5; level++) {
        char name[16];
        size_t n;

        snprintf(name, sizeof name, "logits.%d", level);
        float *logits = test_floats(tree, name, &n);
        const int32_t rows = level ? 8 : 1, vocab = (int32_t)n / rows;
        assert_non_null(logits);
        for (int32_t r = 0; r < rows; r++) {
            int32_t n_best = best_of(logits + r * vocab, vocab, best);
            if (level)
                rg_dynamic_tree_follow(d, r, best, n_best);
            else
                rg_dynamic_tree_begin(d, 8, best, n_best);
        }
        if (level)
            rg_dynamic_tree_open(d);
        free(logits);
    }
    rg_dynamic_tree_draft(d, 31, &t, kept);
    check_dynamic(&t, tree);
    assert_int_equal(json_array_size(want), t.n);
    for (int32_t i = 0; i < t.n; i++)
        assert_int_equal(kept[i], json_integer_value(json_array_get(want, (size_t)i)));
    json_decref(v);
    rg_checkpoint_close(tree);
    free(d);
}

/* One of the authors' trees: nodes, and who sees whom. */
static void check_static(const rg_draft_tree *t, const json_t *want)
{
    const json_t *ids = json_object_get(want, "tree_candidates"), *mask = json_object_get(want, "mask");
    const json_t *positions = json_object_get(want, "position_ids");
    int32_t path[RG_MAX_DRAFT];

    assert_int_equal(t->n + 1, json_array_size(ids));
    for (int32_t i = 0; i < t->n; i++) {
        const char *sees = json_string_value(json_array_get(mask, (size_t)i + 1));
        const int32_t n = rg_draft_path(t, i, path);
        char row[RG_MAX_DRAFT + 2] = "1";

        assert_int_equal(t->id[i], json_integer_value(json_array_get(ids, (size_t)i + 1)));
        assert_int_equal(n, json_integer_value(json_array_get(positions, (size_t)i + 1)));
        memset(row + 1, '0', (size_t)t->n);
        for (int32_t k = 0; k < n; k++)
            row[1 + path[k]] = '1';
        assert_string_equal(row, sees);
    }
}

/* The heads of the prompt's last row, and three sets of choices, one of which is the usual one. */
static void ranks_make_the_authors_trees(void **state)
{
    json_error_t why;
    json_t *all = json_load_file(test_data("speculation/medusa/trees.json"), 0, &why), *want;
    const char *name;

    (void)state;
    assert_non_null(all);
    json_object_foreach(all, name, want) {
        const bool usual = !strcmp(name, "mc_sim_7b_63");
        char choices[2048];
        const size_t n_choices = json_dumpb(json_object_get(want, "choices"), choices, sizeof choices, 0);
        rg_head_guesses g = { .n_heads = 4 };
        rg_checkpoint *c = open_file("speculation/medusa", "golden.safetensors");
        rg_static_tree s;
        rg_draft_tree t = { 0 };
        rg_error err = { 0 };
        rg_guess best[RG_MEDUSA_RANKS];
        size_t n;

        assert_true(n_choices > 0 && n_choices <= sizeof choices);
        float *logits = test_floats(c, "logits", &n);
        assert_ok(rg_static_tree_read(&s, name, choices, n_choices, &err), err);
        const int32_t vocab = (int32_t)n / 4 / PROMPT;
        for (int32_t k = 0; k < 4; k++) {
            g.n[k] = rg_sample_best(logits + ((size_t)k * PROMPT + PROMPT - 1) * (size_t)vocab, vocab, &(rg_sampling){ 0 }, NULL,
                                    RG_MEDUSA_RANKS, best);
            for (int32_t r = 0; r < g.n[k]; r++)
                g.id[k][r] = best[r].id;
        }
        rg_static_tree_draft(&s, &g, 4, RG_MAX_DRAFT, false, &t);
        check_static(&t, want);
        if (usual) {
            rg_static_tree u;

            rg_static_tree_usual(&u);
            t.n = 0;
            rg_static_tree_draft(&u, &g, 4, RG_MAX_DRAFT, false, &t);
            check_static(&t, want);
            t.n = 0;
            rg_static_tree_draft(&u, &g, 4, 9, true, &t);
            assert_true(t.n == 4 && rg_draft_is_chain(&t));
        }
        free(logits);
        rg_checkpoint_close(c);
    }
    json_decref(all);
}

/* From the model's own step. */
static void heads_draft_their_tree(void **state)
{
    world *w = calloc(1, sizeof *w);
    json_error_t why;
    json_t *all = json_load_file(test_data("speculation/medusa/trees.json"), 0, &why);
    rg_draft_tree t;

    (void)state;
    assert_non_null(all);
    world_open(w, "medusa", "speculation/medusa", "speculation/eagle1", 63);
    see_prompt(w);
    propose(w, 4, 63, false, &t);
    check_static(&t, json_object_get(all, "mc_sim_7b_63"));
    see(w, 0, CUT);
    propose(w, 4, 63, false, &t);
    assert_int_equal(t.n, 0);
    json_decref(all);
    world_close(w);
    free(w);
}

static void damaged_choices_are_refused(void **state)
{
    static const char *const damaged[][2] = {
        { "[]", "1 to 127 choices" },       { "{}", "1 to 127 choices" },        { "[[0],[10]]", "one of 0 to 9" },
        { "[[0],[1.5]]", "one of 0 to 9" }, { "[[0],[1,0]]", "does not stand" }, { "[[0],[]]", "1 to 16 ranks" },
        { "[[0],[0]]", "there twice" },     { "[[0],3]", "1 to 16 ranks" },      { "[[0]", "1 to 127 choices" },
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(damaged); i++) {
        rg_static_tree s;
        rg_error err = { 0 };

        assert_false(rg_static_tree_read(&s, "choices", damaged[i][0], strlen(damaged[i][0]), &err));
        if (!strstr(err.text, damaged[i][1]))
            fail_msg("%s: %s", damaged[i][0], err.text);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(features_are_the_models),
        cmocka_unit_test(chains_are_the_authors),
        cmocka_unit_test(accepted_rows_are_seen),
        cmocka_unit_test(trees_follow_logits),
        cmocka_unit_test(trees_grow_as_the_authors),
        cmocka_unit_test(ranks_make_the_authors_trees),
        cmocka_unit_test(heads_draft_their_tree),
        cmocka_unit_test(damaged_choices_are_refused),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
