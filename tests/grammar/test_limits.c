/* test_limits.c -- grammars at the ends of their room, and grammars that bind only what follows a mark. */
#include "grammar/words.h"

#include "base/buf.h"
#include "base/mem.h"

/* ---- more ways to go on than there is room for ---- */

/* head, then n times what (with its number, if it has a %d in it), then tail. */
static char *repeated(const char *head, const char *what, int n, const char *tail)
{
    rg_buf b;

    rg_buf_init(&b, 1 << 22);
    rg_buf_str(&b, head);
    for (int i = 0; i < n; i++) {
        for (const char *p = what; *p; p++)
            if (*p == '@' || *p == '#')
                rg_buf_printf(&b, "r%d", *p == '@' ? i : i + 1);
            else
                rg_buf_add(&b, p, 1);
    }
    rg_buf_str(&b, tail);
    return b.data;
}

/* Rules that are only another rule take no room; what cannot begin in all its ways is refused. */
static void what_cannot_begin_is_refused(void **state)
{
    words w = all_bytes();
    char *chain = repeated("root ::= r0", "\n@ ::= #", 1000, "\nr1000 ::= \"x\"");
    char *either = repeated("root ::= r0", "\n@ ::= # | \"y\" r1000", 1000, "\nr1000 ::= \"x\"");
    char *options = repeated("root ::= ", "a? ", 1000, "\"x\"\na ::= \"a\"");
    char *few = repeated("root ::= ", "a? ", 100, "\"x\"\na ::= \"a\"");
    rg_error err;
    rg_grammar *g = compile(&w, G, chain);

    (void)state;
    assert_true(accepts(g, "x"));
    rg_grammar_unref(g);
    g = compile(&w, G, few);
    assert_true(accepts(g, "x") && accepts(g, "aaax"));
    rg_grammar_unref(g);
    const char *const bad[] = { either, options };
    for (size_t i = 0; i < RG_LEN(bad); i++) {
        assert_null(rg_grammar_compile(w.v, &SOURCE(G, bad[i], strlen(bad[i])), &err));
        assert_int_equal(err.code, RG_E_LIMIT);
        assert_non_null(strstr(err.text, "too ambiguous"));
    }
    rg_free(chain);
    rg_free(either);
    rg_free(options);
    rg_free(few);
    free_words(&w);
}

/* Nothing is left out in silence: by the mask where it would lack something, or by the id that goes there. */
static void what_is_lost_is_told(void **state)
{
    words w = all_bytes();
    char *options = repeated("root ::= \"b\" ", "a? ", 1000, "\"x\"\na ::= \"a\"");
    rg_grammar *g = compile(&w, G, options);
    rg_grammar_state *st = rg_grammar_start(g, NULL), *copy = rg_grammar_start(g, NULL);
    float logits[257] = { 0 };
    int n = 0;

    (void)state;
    rg_grammar_mask(st, logits, w.n, &(int32_t){ 256 }, 1, true);
    assert_false(rg_grammar_lost(st));
    assert_true(rg_grammar_advance(st, 'b'));
    assert_false(rg_grammar_lost(st));
    rg_grammar_copy(copy, st);
    rg_grammar_mask(copy, logits, w.n, &(int32_t){ 256 }, 1, true);
    assert_true(rg_grammar_lost(copy));
    rg_grammar_copy(copy, st);
    assert_true(!rg_grammar_advance(copy, 'a') || rg_grammar_lost(copy));
    rg_grammar_stop(st);
    rg_grammar_stop(copy);
    rg_grammar_unref(g);
    rg_free(options);
    g = compile(&w, X, "(a|b)*a(a|b){300}"); /* each a may be the one before the last 300 */
    st = rg_grammar_start(g, NULL);
    while (n < 1000 && !rg_grammar_lost(st) && rg_grammar_advance(st, 'a'))
        n++;
    assert_in_range(n, 200, 300);
    rg_grammar_stop(st);
    rg_grammar_unref(g);
    free_words(&w);
}

/* ---- after the reasoning ---- */

/* Anything may come up to the first place of the mark, and the grammar binds what follows it. */
static void a_grammar_binds_after_a_mark(void **state)
{
    static const struct {
        const char *after, *text;
        bool ok;
    } said[] = {
        { "</think>", "</think>42", true }, { "</think>", "a<b </thin </<</think>\n\n42", true },
        { "</think>", "日本語 <</think>\n7", true }, { "</think>", "42", false }, { "</think>", "hm</think>x", false },
        { "</think>", "hm</think>", false }, { "</think>", "hm</think>1</think>2", false },
        { "</think>", "\xff</think>1", false }, { "</think>", "hm</think>\n\n\n1", false },
        { "aabaaab", "aabaabaaab5", true }, { "aabaaab", "aaabaaab5", true }, { "aabaaab", "aabaaaab5", false },
        { "aabaaab", "aabaaaabaaab5", true }, { "aaa", "aaaa5", false }, { "aaa", "baaa5", true },
    };
    words w = all_bytes();
    rg_error err;

    (void)state;
    for (size_t i = 0; i < RG_LEN(said); i++) {
        rg_grammar_source source = { X, "[0-9]+", 6, said[i].after };
        rg_grammar *g = rg_grammar_compile(w.v, &source, &err);
        assert_ok(g, err);
        if (accepts(g, said[i].text) != said[i].ok)
            fail_msg("after %s: '%s' is %s", said[i].after, said[i].text, said[i].ok ? "refused" : "accepted");
        rg_grammar_unref(g);
    }
    rg_grammar_cache *c = rg_grammar_cache_new(w.v, &err); /* the same text, bound from elsewhere, is another grammar */
    rg_grammar *from_start = rg_grammar_cache_get(c, &(rg_grammar_source){ X, "[0-9]+", 6, NULL }, &err);
    rg_grammar *after = rg_grammar_cache_get(c, &(rg_grammar_source){ X, "[0-9]+", 6, "</think>" }, &err);
    rg_grammar *again = rg_grammar_cache_get(c, &(rg_grammar_source){ X, "[0-9]+", 6, "</think>" }, &err);
    assert_true(from_start && after && from_start != after && after == again);
    rg_grammar_unref(from_start);
    rg_grammar_unref(after);
    rg_grammar_unref(again);
    rg_grammar_cache_free(c);
    free_words(&w);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_cannot_begin_is_refused),
        cmocka_unit_test(what_is_lost_is_told),
        cmocka_unit_test(a_grammar_binds_after_a_mark),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
