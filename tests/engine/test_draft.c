/* test_draft.c -- drafters by themselves: trees, and what each proposes. */
#include "support/test.h"

#include <jansson.h>
#include <string.h>

#include "engine/draft/draft.h"
#include "engine/draft/ngram.h"

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

static json_t *load(const char *name)
{
    json_error_t why;
    json_t *v = json_load_file(test_data(name), 0, &why);

    if (!v)
        fail_msg("%s: %s", name, why.text);
    return v;
}

static int32_t ints(const json_t *list, int32_t *out, int32_t most)
{
    int32_t n = (int32_t)json_array_size(list);

    assert_true(n <= most);
    for (int32_t i = 0; i < n; i++)
        out[i] = (int32_t)json_integer_value(json_array_get(list, (size_t)i));
    return n;
}

static int32_t number(const json_t *v, const char *key)
{
    return (int32_t)json_integer_value(json_object_get(v, key));
}

enum { MAX_IDS = 512 };

/* As transformers' PromptLookupCandidateGenerator, which also leaves off what follows an end token, or the longest
 * answer: the loop does that for every drafter. */
static void lookup_finds_the_first_match(void **state)
{
    json_t *all = load("speculation/lookahead/prompt_lookup.json"), *c;
    size_t k;

    (void)state;
    json_array_foreach(all, k, c) {
        const json_t *eos = json_object_get(c, "eos_token_id");
        int32_t ids[MAX_IDS], want[MAX_IDS], n = ints(json_object_get(c, "ids"), ids, MAX_IDS);
        int32_t n_want = ints(json_object_get(c, "proposed"), want, MAX_IDS), most = number(c, "num_output_tokens"), n_got = 0;
        int32_t at = rg_ngram_find(ids, n, number(c, "max_matching_ngram_size")), max_length = number(c, "max_length");

        for (int32_t i = at; i < n && i < max_length && n_got < most && max_length != n + 1; i++, n_got++)
            if (json_is_integer(eos) && ids[i] == json_integer_value(eos))
                break;
        assert_int_equal(n_got, n_want);
        assert_memory_equal(ids + at, want, (size_t)n_want * sizeof *want);
    }
    json_decref(all);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trees_share_their_beginnings),
        cmocka_unit_test(probes_are_not_found),
        cmocka_unit_test(lookup_finds_the_first_match),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
