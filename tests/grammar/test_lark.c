/* test_lark.c -- grammars in Lark's notation: which texts they allow, and what is refused. */
#include "grammar/words.h"

static const struct {
    const char *source, *yes[4], *no[4];
} cases[] = {
    { "start: \"a\" B+\nB: \"b\"\n", { "ab", "abb" }, { "a", "b" } },
    { "start: expr\nexpr: expr \"+\" term | term\nterm: term \"*\" atom | atom\natom: NUMBER | \"(\" expr \")\"\n"
      "%import common.NUMBER\n%ignore \" \"\n",
      { "1+2*3", "( 1 + 2 ) * 3 ", "1", " 1.5e3" }, { "1+", "+1", "1 2" } },
    { "start: \"SELECT\"i /[a-z]+/i (\",\" NAME)~0..2 [\";\"]\nNAME: LETTER+\n%import common (LETTER, WS)\n%ignore WS\n",
      { "select a", "SELECT Ab, c , d ;", "\n select x", "SeLeCtx" }, { "select", "select a,b,c,d", "select a;;" } },
    { "?start: a\n     | b -> bee\na: \"x\"~3 // c\nb: \"y\"~1..2 # d\n", { "xxx", "y", "yy" }, { "xx", "yyy", "" } },
    { "start: \"a\"..\"c\" [/x.z/s] {1,2}\n", { "a", "bx\nz", "cxyzx.z" }, { "d", "ax" } },
    { "start: \"a\"..\"c\" [/x.z/]\n", { "a", "bxyz" }, { "bx\nz" } },
    { "start: %json {\"type\": \"integer\"} \"!\"\n", { "12!" }, { "a!", "12" } },
    { "start: begin hunk+ end\nbegin: \"*** Begin Patch\" LF\nend: \"*** End Patch\" LF?\n\nhunk: add | delete\n"
      "add: \"*** Add File: \" name LF line+\ndelete: \"*** Delete File: \" name LF\nname: /(.+)/\n"
      "line: \"+\" /(.*)/ LF -> line\n\n%import common.LF\n",
      { "*** Begin Patch\n*** Add File: a.txt\n+hi\n*** End Patch\n", "*** Begin Patch\n*** Delete File: a\n*** End Patch" },
      { "*** Begin Patch\n*** End Patch\n", "*** Begin Patch\n*** Add File: a.txt\n*** End Patch\n" } },
    { "start: WORD \"=\" ESCAPED_STRING\n%import common.ESCAPED_STRING\n%import common.CNAME -> WORD\n",
      { "a_1=\"x\\\"y\"", "b=\"\"" }, { "1=\"\"", "a=\"x", "a=\"\"\"" } },
    { "!start.2: (\"a\" | \"\\u00e9\" | \"\\x41\")\n", { "a", "\xc3\xa9", "A" }, { "b" } },
    { "start: \"a\" \\\n \"b\"", { "ab" }, { "a" } },
};

static void constructs(void **state)
{
    words w = all_bytes();

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        rg_grammar *g = compile(&w, RG_GRAMMAR_LARK, cases[i].source);
        for (size_t k = 0; k < RG_LEN(cases[i].yes) && cases[i].yes[k]; k++)
            if (!accepts(g, cases[i].yes[k]))
                fail_msg("%s refuses %s", cases[i].source, cases[i].yes[k]);
        for (size_t k = 0; k < RG_LEN(cases[i].no) && cases[i].no[k]; k++)
            if (accepts(g, cases[i].no[k]))
                fail_msg("%s accepts %s", cases[i].source, cases[i].no[k]);
        rg_grammar_unref(g);
    }
    free_words(&w);
}

static void named(void **state)
{
    static const struct {
        const char *source, *says;
    } refused[] = {
        { "start: a\na: b \"x\"\nb: a \"y\" | \"z\"", "left recursion: rule 'a'" },
        { "start: \"a\" &", "line 1: a character that begins nothing" },
        { "start: x", "'x' is used and not defined" },
        { "x: \"a\"", "no rule 'start'" },
        { "start: \"a\"\n%import python.NAME\n", "line 2: an %import of other than common" },
        { "start: \"a\"\n%import common.NAME\n", "'NAME', which is no terminal of common" },
        { "start: \"a\"\n%declare X\n", "neither %import nor %ignore" },
        { "start: x{\"a\"}\n", "templates" },
        { "start: x\nx[lazy]: \"a\"\n", "line 2: attributes" },
        { "start: \"a\" )\n", "without its '('" },
        { "start: (\"a\"\n", "without its ')'" },
        { "start: (\"a\"]\n", "without its '('" },
        { "T: r\nr: \"a\"\nstart: T", "refers to a rule" },
        { "start: \"a\"\nstart: \"b\"", "defined before" },
        { "start: \"a", "does not end on its line" },
        { "start: /a", "does not end on its line" },
        { "start: /a/q", "flag" },
        { "start: /a(?=b)/", "lookaround" },
        { "start: \"\\q\"", "escape" },
        { "start: \"a\"~3..2", "wrong order" },
        { "start: \"a\"~x", "a repetition that is not" },
        { "start: ~3", "repetition of nothing" },
        { "start: \"b\"..\"a\"", "range" },
        { "start \"a\"", "want a ':'" },
        { "start: %json 1", "%json" },
        { "", "no rule 'start'" },
    };
    words w = all_bytes();
    rg_error err;

    (void)state;
    for (size_t i = 0; i < RG_LEN(refused); i++) {
        const char *s = refused[i].source;
        if (rg_grammar_compile(w.v, &SOURCE(RG_GRAMMAR_LARK, s, strlen(s)), &err))
            fail_msg("accepted: %s", s);
        if (!strstr(err.text, refused[i].says))
            fail_msg("%s: %s", s, err.text);
    }
    free_words(&w);
}

/* Any beginning of a grammar, and any with a byte changed, is taken or refused. */
static void hostile(void **state)
{
    words w = all_bytes();
    char text[1024];

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++)
        for (size_t n = 0, all = strlen(cases[i].source); n < 2 * all; n++) {
            memcpy(text, cases[i].source, all);
            if (n >= all)
                text[n - all] = "\"({~|/%\\"[n % 8];
            rg_grammar_unref(rg_grammar_compile(w.v, &SOURCE(RG_GRAMMAR_LARK, text, n < all ? n : all), NULL));
        }
    free_words(&w);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constructs),
        cmocka_unit_test(named),
        cmocka_unit_test(hostile),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
