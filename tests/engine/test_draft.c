/* test_draft.c -- drafters by themselves: trees, and what each proposes. */
#include "support/cases.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "engine/draft/draft.h"
#include "engine/draft/ngram.h"
#include "engine/draft/suffix.h"

/* ---- trees ------------------------------------------------------------------------------------------------------- */

static void trees_share_their_beginnings(void **state)
{
    rg_draft_tree t = { 0 };
    int32_t path[RG_MAX_DRAFT];

    (void)state;
    int32_t a = rg_draft_add(&t, -1, 5), b = rg_draft_add(&t, a, 6);
    assert_true(rg_draft_is_chain(&t));
    int32_t c = rg_draft_add(&t, -1, 6), d = rg_draft_add(&t, c, 6);
    assert_false(rg_draft_is_chain(&t));
    assert_int_equal(rg_draft_add(&t, a, 6), b);
    assert_int_equal(t.n, 4);
    assert_int_equal(rg_draft_find(&t, -1, 6), c);
    assert_int_equal(rg_draft_find(&t, b, 6), -1);
    assert_int_equal(rg_draft_path(&t, d, path), 2);
    assert_true(path[0] == c && path[1] == d);
    assert_int_equal(rg_draft_path(&t, -1, path), 0);
    rg_draft_prune(&t, (const bool[]){ false, true, true, true }); /* b goes with its parent */
    assert_int_equal(t.n, 2);
    assert_true(t.id[0] == 6 && t.parent[0] == -1 && t.id[1] == 6 && t.parent[1] == 0);
    for (int32_t i = t.n; i < RG_MAX_DRAFT; i++)
        assert_int_equal(rg_draft_add(&t, -1, 100 + i), i);
    assert_int_equal(rg_draft_add(&t, -1, 99), -1);
    assert_int_equal(rg_draft_add(&t, -1, 6), 0);
}

static void probes_are_not_found(void **state)
{
    rg_draft_tree t = { 0 };

    (void)state;
    int32_t a = rg_draft_add_probe(&t, -1, 5), b = rg_draft_add_probe(&t, -1, 5), c = rg_draft_add_probe(&t, b, 6);
    assert_true(a == 0 && b == 1 && c == 2 && t.probe[c]);
    assert_int_equal(rg_draft_find(&t, -1, 5), -1);
    int32_t d = rg_draft_add(&t, -1, 5);
    assert_int_equal(rg_draft_find(&t, -1, 5), d);
    rg_draft_prune(&t, (const bool[]){ true, true, true, false });
    assert_true(t.n == 3 && t.probe[2] && t.parent[2] == b);
}

/* ---- prompt lookup ----------------------------------------------------------------------------------------------- */

enum { MAX_IDS = 512 };

/* As transformers' PromptLookupCandidateGenerator, which also leaves off what follows an end token, or the longest
 * answer: the loop does that for every drafter. */
static void lookup_finds_the_first_match(void **state)
{
    json_t *all = cases_load("speculation/lookahead/prompt_lookup.json"), *c;
    size_t k;

    (void)state;
    json_array_foreach(all, k, c) {
        const json_t *eos = json_object_get(c, "eos_token_id");
        int32_t ids[MAX_IDS], want[MAX_IDS], n = cases_ints(json_object_get(c, "ids"), ids, MAX_IDS);
        int32_t n_want = cases_ints(json_object_get(c, "proposed"), want, MAX_IDS),
                most = cases_int(c, "num_output_tokens"), n_got = 0;
        int32_t at = rg_ngram_find(ids, n, cases_int(c, "max_matching_ngram_size")),
                max_length = cases_int(c, "max_length");

        for (int32_t i = at; i < n && i < max_length && n_got < most && max_length != n + 1; i++, n_got++)
            if (json_is_integer(eos) && ids[i] == json_integer_value(eos))
                break;
        assert_int_equal(n_got, n_want);
        assert_memory_equal(ids + at, want, (size_t)n_want * sizeof *want);
    }
    json_decref(all);
}

/* ---- suffixes ---------------------------------------------------------------------------------------------------- */

static rg_suffix_index *index_of(const json_t *sequences, int removed)
{
    rg_error err = { 0 };
    rg_suffix_index *x = rg_suffix_index_new(1024, &err);
    json_t *sequence;
    size_t k;

    assert_ok(x, err);
    json_array_foreach(sequences, k, sequence) {
        int32_t ids[MAX_IDS], n = cases_ints(sequence, ids, MAX_IDS);

        for (int32_t i = 0; i < n && (int)k != removed; i++)
            rg_suffix_index_add(x, ids[i], 7);
        rg_suffix_index_add(x, -1, 7);
    }
    return x;
}

/* The path of a node of a draft as text. */
static void spell_path(const int32_t *ids, const int32_t *parents, int32_t node, char *out, size_t room)
{
    char rest[1024];

    snprintf(rest, sizeof rest, "%s", out);
    snprintf(out, room, "%d %s", (int)ids[node], rest);
    if (parents[node] >= 0)
        spell_path(ids, parents, parents[node], out, room);
}

/* Nodes of one draft whose path is not in the other one; their probabilities, in rising order. */
static int32_t others(const rg_suffix_draft *a, const rg_suffix_draft *b, float *out)
{
    int32_t n = 0;

    for (int32_t i = 0; i < a->n; i++) {
        char path[1024] = "", other[1024];
        bool found = false;
        int32_t at = n;

        spell_path(a->id, a->parent, i, path, sizeof path);
        for (int32_t k = 0; k < b->n && !found; k++) {
            *other = 0;
            spell_path(b->id, b->parent, k, other, sizeof other);
            found = !strcmp(path, other) && fabsf(a->probability[i] - b->probability[k]) < 1e-6f;
        }
        if (found)
            continue;
        for (n++; at > 0 && out[at - 1] > a->probability[i]; at--)
            out[at] = out[at - 1];
        out[at] = a->probability[i];
    }
    return n;
}

static void read_draft(const json_t *q, rg_suffix_draft *d)
{
    d->n = cases_ints(json_object_get(q, "ids"), d->id, RG_MAX_DRAFT);
    cases_ints(json_object_get(q, "parents"), d->parent, RG_MAX_DRAFT);
    for (int32_t i = 0; i < d->n; i++)
        d->probability[i] = (float)json_number_value(json_array_get(json_object_get(q, "probs"), (size_t)i));
    d->score = (float)json_number_value(json_object_get(q, "score"));
    d->length = cases_int(q, "match");
}

/* True if it is the same draft.  Where ids are as likely as each other, which of them are taken is not said. */
static bool check_suffix_query(const json_t *q, const rg_suffix_index *x, int32_t max_depth)
{
    int32_t context[MAX_IDS], n = cases_ints(json_object_get(q, "context"), context, MAX_IDS), n_found, n_others;
    rg_suffix_limits limits = { .max_length = max_depth, .most = cases_int(q, "max_spec_tokens"),
                                .factor = (float)json_number_value(json_object_get(q, "max_spec_factor")),
                                .offset = (float)json_number_value(json_object_get(q, "max_spec_offset")),
                                .min_probability = (float)json_number_value(json_object_get(q, "min_token_prob")),
                                .chain = !json_is_true(json_object_get(q, "use_tree_spec")) };
    float got_others[RG_MAX_DRAFT], want_others[RG_MAX_DRAFT];
    rg_suffix_match matches[RG_SUFFIX_MATCHES];
    rg_suffix_draft got, want;

    read_draft(q, &want);
    assert_int_equal(rg_suffix_find(x, 8, context, n, max_depth, matches, RG_SUFFIX_MATCHES), 0); /* another scope */
    n_found = rg_suffix_find(x, 7, context, n, n - 1 < max_depth ? n - 1 : max_depth, matches, RG_SUFFIX_MATCHES);
    rg_suffix_draft_best(matches, n_found, &limits, &got);
    n_others = others(&got, &want, got_others);
    if (got.n != want.n || got.length != want.length || fabsf(got.score - want.score) > 1e-5f ||
        others(&want, &got, want_others) != n_others)
        fail_msg("%s", json_dumps(q, 0));
    for (int32_t i = 0; i < n_others; i++)
        assert_true(fabsf(got_others[i] - want_others[i]) < 1e-6f);
    return !n_others;
}

/* As Arctic Inference's suffix tree. */
static void suffixes_give_the_counts_of_a_suffix_tree(void **state)
{
    json_t *all = cases_load("speculation/lookahead/suffix.json"), *c, *q;
    size_t k, i, n = 0, n_same = 0;

    (void)state;
    json_array_foreach(all, k, c) {
        const json_t *sequences = json_object_get(c, "sequences");
        rg_suffix_index *whole = index_of(sequences, -1), *less = index_of(sequences, 1);

        json_array_foreach(json_object_get(c, "queries"), i, q) {
            n_same += check_suffix_query(q, json_is_integer(json_object_get(q, "removed")) ? less : whole,
                                         cases_int(c, "max_depth"));
            n++;
        }
        rg_suffix_index_free(whole);
        rg_suffix_index_free(less);
    }
    assert_int_equal(n, 120);
    assert_true(n_same > 100);
    json_decref(all);
}

/* Places that the ring has come round to are found no more, and what is found agrees. */
static void a_ring_forgets_the_oldest(void **state)
{
    rg_error err = { 0 };
    rg_suffix_index *x = rg_suffix_index_new(64, &err);
    rg_suffix_match m[RG_SUFFIX_MATCHES];
    int32_t ids[5000];

    (void)state;
    assert_ok(x, err);
    for (int32_t i = 0; i < 5000; i++) {
        int32_t n, most = 0;

        ids[i] = i * i % 31 % 7;
        rg_suffix_index_add(x, ids[i], 1);
        n = rg_suffix_find(x, 1, ids, i + 1, 16, m, RG_SUFFIX_MATCHES);
        for (int32_t k = 0; k < n; k++) {
            int32_t from = (int32_t)m[k].next;

            assert_true(from <= i && i - from < 64 && m[k].length > 0 && m[k].length <= 16);
            assert_memory_equal(ids + from - m[k].length, ids + i + 1 - m[k].length, (size_t)m[k].length * sizeof *ids);
            most = m[k].length > most ? m[k].length : most;
        }
        assert_true(i < 64 || most == 16); /* it repeats after 31 */
    }
    rg_suffix_index_free(x);
}

/* What a drafter has learnt from one tenant's answers it may use for no other one, whatever salts they choose. */
static void tenants_have_scopes_of_their_own(void **state)
{
    static const char *const names[] = { NULL, "a", "b", "key 0", "key 1" };
    static const int32_t prompt[] = { 1 };
    uint64_t scopes[RG_LEN(names) * RG_LEN(names)];
    size_t n = 0;
    rg_error err;

    (void)state;
    for (size_t i = 0; i < RG_LEN(names); i++)
        for (size_t k = 0; k < RG_LEN(names); k++) {
            rg_params p = { .prompt = prompt, .n_prompt = 1, .max_tokens = 1, .n_samples = 1, .tenant = names[i],
                            .cache_salt = names[k], .sampling = rg_sampling_default() };
            rg_request *r = rg_request_new(&p, &(rg_request_model){ .vocab_size = 9, .max_seq_len = 9 }, &err);

            assert_ok(r, err);
            scopes[n++] = rg_draft_scope(r);
            if (names[k]) /* a client that knows the hash could else choose a salt that leads into another's scope */
                assert_true(r->who.salt != rg_hash(names[k], strlen(names[k]), 0));
            rg_request_unref(r);
        }
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++)
            assert_true(scopes[i] != scopes[k]);
}

/* ---- prompts with given rows ------------------------------------------------------------------------------------- */

enum { N_IDS = 60, WORDS = 4, N_TIMES = 40 };

/* A request whose prompt repeats itself, given rows among its ids; number: that of the first row, which all share or not. */
static rg_request *given_request(rg_rng *g, int32_t number, bool all_alike)
{
    static const float row[] = { 1 };
    int32_t ids[N_IDS];
    rg_given_rows given[N_IDS];
    rg_params p = { .prompt = ids, .n_prompt = N_IDS, .max_tokens = N_IDS, .n_samples = 1, .given = given,
                    .sampling = rg_sampling_default() };
    rg_error err;

    for (int32_t i = 0; i < N_IDS; i++) {
        const bool is_given = i % 11 == 4 || !rg_rng_below(g, 9);

        ids[i] = is_given ? RG_GIVEN : (int32_t)rg_rng_below(g, WORDS);
        if (is_given)
            given[p.n_given++] = (rg_given_rows){ .at = i, .n = 1, .rows = row };
    }
    rg_request *r = rg_request_new(&p, &(rg_request_model){ .vocab_size = WORDS, .max_seq_len = 3 * N_IDS, .given_dim = 1,
                                                            .max_draft = RG_MAX_DRAFT }, &err);
    assert_ok(r, err);
    for (int32_t i = 0; i < N_IDS; i++)
        if (!rg_is_id(r->tokens[i]))
            r->tokens[i] = all_alike ? number : number - i;
    return r;
}

/* What a drafter gives for beginnings of the prompt, as if each were an answer's; hashed.  No node is a given row. */
static uint64_t drafts_of(const char *kind, int32_t number, bool all_alike)
{
    const rg_draft_options o = { .n_lanes = 1, .max_draft = 20, .vocab_size = WORDS, .max_seq_len = 3 * N_IDS };
    rg_rng g = { .seed = test_seed };
    rg_error err;
    rg_drafter *d = rg_draft_kind_find(kind)->open(&o, &err);
    uint64_t h = 0;
    int n_guesses = 0;

    assert_ok(d, err);
    for (int k = 0; k < N_TIMES; k++) {
        rg_request *r = given_request(&g, number, all_alike);

        if (d->begin)
            d->begin(d, 0);
        for (int32_t n = 20; n <= N_IDS; n++) {
            rg_draft_tree tree = { 0 };
            int32_t drawn[RG_MAX_DRAFT + 1], path[1];
            const rg_draft_ask a = { .request = r, .ids = r->tokens, .n_ids = n, .depth = 10, .most = 20, .probe_depth = 60,
                                     .draft = &tree };

            assert_true(d->propose(d, &a, 1));
            for (int32_t i = 0; i < tree.n; i++)
                assert_true(tree.id[i] >= 0 && tree.id[i] < WORDS);
            for (int32_t i = 0; i <= tree.n; i++)
                drawn[i] = (int32_t)rg_rng_below(&g, WORDS);
            h = rg_hash(tree.id, (size_t)tree.n * sizeof *tree.id, h ^ (uint64_t)tree.n);
            n_guesses += rg_draft_guesses(&tree);
            if (d->checked)
                d->checked(d, &(rg_draft_result){ .draft = &tree, .drawn = drawn, .path = path });
        }
        if (d->end)
            d->end(d, 0, r->tokens, N_IDS, rg_draft_scope(r));
        rg_request_unref(r);
    }
    assert_true(n_guesses > N_TIMES);
    rg_drafter_close(d);
    return h;
}

/* And which numbers they have does not matter, equal ones included. */
static void given_rows_are_never_drafted(void **state)
{
    static const char *const kinds[] = { "ngram", "suffix", "lookahead", "jacobi" };

    (void)state;
    for (size_t i = 0; i < RG_LEN(kinds); i++) {
        const uint64_t want = drafts_of(kinds[i], -2, false);

        assert_true(drafts_of(kinds[i], INT32_MIN + 100, false) == want);
        assert_true(drafts_of(kinds[i], -2, true) == want);
        assert_true(drafts_of(kinds[i], RG_GIVEN, true) == want); /* where nothing is numbered */
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trees_share_their_beginnings),
        cmocka_unit_test(probes_are_not_found),
        cmocka_unit_test(lookup_finds_the_first_match),
        cmocka_unit_test(suffixes_give_the_counts_of_a_suffix_tree),
        cmocka_unit_test(a_ring_forgets_the_oldest),
        cmocka_unit_test(tenants_have_scopes_of_their_own),
        cmocka_unit_test(given_rows_are_never_drafted),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
