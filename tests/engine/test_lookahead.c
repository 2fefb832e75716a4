/* test_lookahead.c -- drafters that learn from rows that are never accepted: lookahead and Jacobi decoding, by themselves
 * beside the authors' traces, and with a model, whose answers they must not change. */
#include "support/cases.h"
#include "support/model.h"

#include <string.h>

#include "engine/draft/lookahead.h"
#include "engine/loop.h"

enum { MAX_IDS = 256, N_OUTPUT = 40 };

static rg_lookahead_size size_of(const json_t *c)
{
    return (rg_lookahead_size){ .window = cases_int(c, "window"), .n = cases_int(c, "ngram"),
                                .guesses = cases_int(c, "guess_set"),
                                .only_window = !json_is_true(json_object_get(c, "pool_from_prompt")) };
}

static rg_request *request_of(const rg_request_model *m, const int32_t *prompt, int32_t n, int32_t max_tokens)
{
    rg_params p = { .prompt = prompt, .n_prompt = n, .max_tokens = max_tokens, .n_samples = 1,
                    .sampling = { .top_p = 1, .typical_p = 1, .repetition_penalty = 1, .n_logprobs = -1,
                                  .ignore_eos = true } };
    rg_error err = { 0 };
    rg_request *r = rg_request_new(&p, m, &err);

    assert_ok(r, err);
    return r;
}

/* ---- by itself --------------------------------------------------------------------------------------------------- */

/* The window of a pass, as probes in the order of the draft; ids of the levels after each other. */
static int32_t window_of(const json_t *pass, int32_t *out, int32_t *n_levels, int32_t *n_last)
{
    int32_t n = 0;
    json_t *row;
    size_t k;

    *n_levels = 0;
    json_array_foreach(json_object_get(pass, "window"), k, row) {
        if (!json_is_array(row))
            break;
        *n_last = cases_ints(row, out + n, MAX_IDS - n);
        n += *n_last;
        ++*n_levels;
    }
    return n;
}

/* What the pass drew after the window's last level: as told, or (while levels are being filled) the next pass's. */
static void newest_of(const json_t *pass, const json_t *next, int32_t n_levels, int32_t *out)
{
    const json_t *told = json_object_get(pass, "new");

    if (told && !json_is_null(told))
        cases_ints(told, out, MAX_IDS);
    else
        cases_ints(json_array_get(json_object_get(next, "window"), (size_t)n_levels), out + (n_levels > 1), MAX_IDS - 1);
}

/* The guesses of the pass, in their order, are paths of the draft, and it has no other. */
static void check_guesses(const json_t *pass, const rg_draft_tree *d, int32_t n_probes)
{
    rg_draft_tree want = { 0 };
    json_t *guess;
    size_t k, i;

    json_array_foreach(json_object_get(pass, "guesses"), k, guess) {
        int32_t node = -1;

        for (i = 0; i < json_array_size(guess); i++)
            node = rg_draft_add(&want, node, (int32_t)json_integer_value(json_array_get(guess, i)));
    }
    assert_int_equal(d->n - n_probes, want.n);
    for (int32_t j = 0; j < want.n; j++) {
        int32_t parent = d->parent[n_probes + j];

        assert_int_equal(d->id[n_probes + j], want.id[j]);
        assert_int_equal(parent < 0 ? -1 : parent - n_probes, want.parent[j]);
    }
}

/* One pass: the drafter's window and guesses are those of the trace, and what the pass drew is told it. */
static void check_pass(rg_drafter *d, const rg_draft_ask *a, const json_t *pass, const json_t *next, int32_t all_levels)
{
    int32_t window[MAX_IDS], n_levels, n_last = 0, n = window_of(pass, window, &n_levels, &n_last);
    int32_t drawn[1 + RG_MAX_DRAFT] = { 0 };

    a->draft->n = 0;
    assert_true(d->propose(d, a, 1));
    assert_true(a->draft->n >= n);
    for (int32_t i = 0; i < n; i++)
        assert_true(a->draft->probe[i] && a->draft->id[i] == window[i]);
    if (n_levels == all_levels)
        check_guesses(pass, a->draft, n);
    newest_of(pass, next, n_levels, drawn + 1 + n - n_last);
    d->checked(d, &(rg_draft_result){ .lane = 0, .draft = a->draft, .drawn = drawn });
}

/* The authors' trace: the pool has the same n-grams in the same order, the window the same rows.  Nothing is drafted by
 * them before the window is full; a case without the pool of the prompt has nothing to draft by then. */
static void check_trace(const json_t *c, const rg_request_model *m)
{
    const json_t *trace = json_object_get(c, "trace");
    rg_lookahead_size size = size_of(c);
    rg_error err = { 0 };
    int32_t ids[MAX_IDS], n = cases_ints(json_object_get(c, "prompt"), ids, MAX_IDS);
    rg_request *r = request_of(m, ids, n, N_OUTPUT);
    rg_drafter *d = rg_lookahead_open(&(rg_draft_options){ .n_lanes = 1, .max_draft = RG_MAX_DRAFT }, &size, &err);
    rg_draft_tree draft = { 0 };
    json_t *pass;
    size_t k;

    assert_ok(d, err);
    json_array_foreach(trace, k, pass) {
        const json_t *next = json_array_get(trace, k + 1);
        rg_draft_ask a = { .request = r, .ids = ids, .n_ids = n, .depth = size.n - 1, .most = RG_MAX_DRAFT,
                           .probe_depth = RG_MAX_DRAFT, .draft = &draft };

        if (!next)
            break;
        check_pass(d, &a, pass, next, size.n - 1);
        n += cases_ints(json_object_get(pass, "emitted"), ids + n, MAX_IDS - n);
    }
    assert_true(k > 3);
    rg_drafter_close(d);
    rg_request_unref(r);
}

static void windows_and_pools_are_the_authors(void **state)
{
    json_t *all = cases_load("speculation/lookahead/lookahead.json"), *c;
    rg_request_model m = { .vocab_size = 320, .max_seq_len = MAX_IDS, .max_draft = RG_MAX_DRAFT };
    size_t k, n = 0;

    (void)state;
    json_array_foreach(all, k, c)
        if (!json_is_true(json_object_get(c, "pool_from_prompt"))) {
            check_trace(c, &m);
            n++;
        }
    assert_int_equal(n, 14);
    json_decref(all);
}

static void sizes_fit_the_rows(void **state)
{
    (void)state;
    for (int32_t rows = 3; rows <= RG_MAX_DRAFT; rows++) {
        rg_lookahead_size s = rg_lookahead_size_for(rows);

        assert_true(rg_lookahead_rows(&s) <= rows && s.window >= 1 && s.guesses >= 1);
    }
    rg_lookahead_size paper = rg_lookahead_size_for(120);
    assert_true(paper.window == 15 && paper.n == 5 && paper.guesses == 15);
    assert_int_equal(rg_lookahead_rows(&paper), 119); /* and the answer's own */
}

/* A block's iterates, and how many of its ids are certain before each: what jacobi.c drafts must be the rest. */
static void check_block(rg_drafter *d, const rg_request *r, int32_t *ids, int32_t *n, const json_t *iterates, int32_t size)
{
    int32_t now[RG_MAX_DRAFT], next[RG_MAX_DRAFT], done = 0, final[RG_MAX_DRAFT];
    size_t n_passes = json_array_size(iterates);

    cases_ints(json_array_get(iterates, n_passes - 1), final, RG_MAX_DRAFT);
    for (size_t k = 0; k + 1 < n_passes && done < size; k++) {
        rg_draft_tree draft = { 0 };
        int32_t right = 0;
        rg_draft_ask a = { .request = r, .ids = ids, .n_ids = *n, .depth = size - 1, .most = size - 1, .draft = &draft };

        cases_ints(json_array_get(iterates, k), now, RG_MAX_DRAFT);
        cases_ints(json_array_get(iterates, k + 1), next, RG_MAX_DRAFT);
        assert_true(d->propose(d, &a, 1));
        assert_int_equal(draft.n, size - 1 - done);
        for (int32_t i = 0; i < draft.n; i++)
            assert_true(draft.id[i] == now[done + i] && draft.parent[i] == i - 1);
        while (right < draft.n && draft.id[right] == next[done + right])
            right++;
        d->checked(d, &(rg_draft_result){ .lane = 0, .draft = &draft, .drawn = next + done, .n_path = right });
        memcpy(ids + *n, next + done, (size_t)(right + 1) * sizeof *ids);
        *n += right + 1;
        done += right + 1;
    }
    assert_int_equal(done, size);
    assert_memory_equal(ids + *n - size, final, (size_t)size * sizeof *ids);
}

static void blocks_iterate_as_jacobi(void **state)
{
    json_t *all = cases_load("speculation/lookahead/jacobi.json"), *c, *block;
    rg_request_model m = { .vocab_size = 320, .max_seq_len = MAX_IDS, .max_draft = RG_MAX_DRAFT };
    size_t k, i, n_blocks = 0;

    (void)state;
    json_array_foreach(all, k, c) {
        int32_t ids[MAX_IDS], n = cases_ints(json_object_get(c, "prompt"), ids, MAX_IDS), size = cases_int(c, "block");
        rg_request *r = request_of(&m, ids, n, N_OUTPUT);
        rg_error err = { 0 };
        rg_drafter *d = rg_draft_kind_find("jacobi")->open(
            &(rg_draft_options){ .n_lanes = 1, .max_draft = size - 1 }, &err);

        assert_ok(d, err);
        json_array_foreach(json_object_get(c, "iterates"), i, block) {
            check_block(d, r, ids, &n, block, size);
            n_blocks++;
        }
        rg_drafter_close(d);
        rg_request_unref(r);
    }
    assert_true(n_blocks > 20);
    json_decref(all);
}

/* ---- with a model ------------------------------------------------------------------------------------------------ */

/* Steps in which the answer to a golden prompt is written, greedily, which must be the golden's.  *n_output: its ids. */
static int run_case(const test_model *t, rg_drafter *d, int32_t max_draft, const json_t *c, int *n_output)
{
    int32_t prompt[MAX_IDS], want[MAX_IDS], n = cases_ints(json_object_get(c, "prompt"), prompt, MAX_IDS);
    rg_error err = { 0 };
    rg_runner *runner = rg_model_runner_new(
        t->m, &(rg_runner_options){ .backend = rg_backend_find("auto", &err), .n_threads = 1, .exact = true, .max_rows = 160,
                                    .max_logits = 160, .max_seqs = 1, .max_seq_len = MAX_IDS, .state_bytes = 8 << 20 },
        &err);
    rg_loop_options o = { .max_seqs = 1, .max_rows = 160, .max_seq_len = MAX_IDS, .max_waiting = 1, .drafter = d,
                          .max_draft = max_draft };
    rg_request_model m = { .vocab_size = 320, .max_seq_len = MAX_IDS, .max_draft = max_draft };
    int32_t n_want = cases_ints(json_object_get(c, "output"), want, MAX_IDS);
    rg_request *r = request_of(&m, prompt, n, n_want);
    rg_loop *l;
    int n_steps = 0;

    assert_ok(runner, err);
    l = rg_loop_new(runner, &o, &err);
    assert_ok(l, err);
    assert_ok(rg_loop_submit(l, r, &err), err);
    while (rg_loop_step(l))
        n_steps++;
    assert_int_equal(r->samples[0].n_output, n_want);
    assert_memory_equal(r->samples[0].ids, want, (size_t)n_want * sizeof *want);
    assert_true(r->counts.n_accepted <= r->counts.n_drafted);
    *n_output = n_want;
    rg_request_unref(r);
    rg_loop_free(l);
    rg_model_runner_free(runner);
    return n_steps;
}

/* The text is the same, and takes no more passes than the authors'; one is due to the window, which begins after the
 * prompt here. */
static void lookahead_is_greedy_in_fewer_steps(void **state)
{
    json_t *all = cases_load("speculation/lookahead/lookahead.json"), *c;
    int n_steps = 0, n_theirs = 0, n_output;
    test_model t;
    size_t k;

    (void)state;
    test_model_open(&t, test_data("llama"), "f32");
    json_array_foreach(all, k, c) {
        rg_lookahead_size size = size_of(c);
        rg_error err = { 0 };
        rg_drafter *d = rg_lookahead_open(&(rg_draft_options){ .n_lanes = 1, .max_draft = RG_MAX_DRAFT }, &size, &err);

        assert_ok(d, err);
        n_steps += run_case(&t, d, RG_MAX_DRAFT, c, &n_output);
        n_theirs += cases_int(c, "steps");
        rg_drafter_close(d);
    }
    print_message("%d steps, the authors' %d\n", n_steps, n_theirs);
    assert_true(n_steps <= n_theirs + (int)json_array_size(all));
    test_model_close(&t);
    json_decref(all);
}

static void jacobi_is_greedy_in_no_more_steps(void **state)
{
    json_t *all = cases_load("speculation/lookahead/jacobi.json"), *c;
    test_model t;
    size_t k;

    (void)state;
    test_model_open(&t, test_data("llama"), "f32");
    json_array_foreach(all, k, c) {
        rg_error err = { 0 };
        int32_t max_draft = cases_int(c, "block") - 1;
        rg_drafter *d = rg_draft_kind_find("jacobi")->open(
            &(rg_draft_options){ .n_lanes = 1, .max_draft = max_draft }, &err);
        int n_output;

        assert_ok(d, err);
        assert_true(run_case(&t, d, max_draft, c, &n_output) <= cases_int(c, "passes"));
        rg_drafter_close(d);
    }
    test_model_close(&t);
    json_decref(all);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_and_pools_are_the_authors),
        cmocka_unit_test(sizes_fit_the_rows),
        cmocka_unit_test(blocks_iterate_as_jacobi),
        cmocka_unit_test(lookahead_is_greedy_in_fewer_steps),
        cmocka_unit_test(jacobi_is_greedy_in_no_more_steps),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
