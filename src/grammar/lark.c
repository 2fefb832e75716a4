/* lark.c -- grammars in Lark's notation: rules (lower case) and terminals (upper case) over characters.  "start" is the
 * whole answer.
 *
 * A rule ends with its line, unless brackets are open or the next line begins with '|'.  What %ignore names may stand
 * before the first and after every literal, regular expression and terminal of a rule; nothing is put into terminals.
 * Rules that begin with themselves become repetitions; other left recursion is refused.  As in GBNF, `%json {...}` is a
 * value of a JSON schema.  Greedy matching, priorities and aliases say how a text is read and not which texts there
 * are. */
#include "base/utf8.h"
#include "grammar/notation.h"

typedef struct parser {
    rg_notation t;
    uint32_t ignored;   /* any number of what %ignore names: a reference, bound at the end */
    rg_list ignore;
    uint32_t own;       /* the rule that is being read */
    rg_list again;      /* of its alternatives that begin with it: the rest */
    rg_writing how;     /* as the text is written, or within quotes of JSON */
    bool in_rule;       /* not in a terminal */
    char bracket[RG_SOURCE_DEPTH + 1];
} parser;

/* Terminals that %import common has. */
#define NUMBER_REAL "(?:\\d+[eE][+-]?\\d+|(?:\\d+\\.\\d*|\\.\\d+)(?:[eE][+-]?\\d+)?)"
static const struct {
    const char *name, *pattern;
} common[] = {
    { "DIGIT", "\\d" },
    { "HEXDIGIT", "[a-fA-F0-9]" },
    { "INT", "\\d+" },
    { "SIGNED_INT", "[+-]?\\d+" },
    { "DECIMAL", "\\d+\\.\\d*|\\.\\d+" },
    { "FLOAT", NUMBER_REAL },
    { "SIGNED_FLOAT", "[+-]?" NUMBER_REAL },
    { "NUMBER", NUMBER_REAL "|\\d+" },
    { "SIGNED_NUMBER", "[+-]?(?:" NUMBER_REAL "|\\d+)" },
    { "ESCAPED_STRING", "\"(?:[^\"\\\\\\n]|\\\\[^\\n])*\"" },
    { "LCASE_LETTER", "[a-z]" },
    { "UCASE_LETTER", "[A-Z]" },
    { "LETTER", "[A-Za-z]" },
    { "WORD", "[A-Za-z]+" },
    { "CNAME", "[_A-Za-z][_A-Za-z0-9]*" },
    { "WS_INLINE", "[ \\t]+" },
    { "WS", "[ \\t\\f\\r\\n]+" },
    { "CR", "\\r" },
    { "LF", "\\n" },
    { "NEWLINE", "(?:\\r?\\n)+" },
    { "SH_COMMENT", "#[^\\n]*" },
    { "CPP_COMMENT", "//[^\\n]*" },
    { "C_COMMENT", "/\\*(?:[^*]|\\*+[^*/])*\\*+/" },
    { "SQL_COMMENT", "--[^\\n]*" },
};

static void refuse(parser *p, rg_code code, const char *what)
{
    rg_notation_refuse(&p->t, code, what);
}

static int peek(const parser *p, size_t ahead)
{
    return rg_notation_peek(&p->t, ahead);
}

static bool starts(const parser *p, const char *with)
{
    size_t n = strlen(with);

    return p->t.at <= p->t.n && p->t.n - p->t.at >= n && !memcmp(p->t.s + p->t.at, with, n);
}

static bool is_name(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static size_t name_length(const parser *p)
{
    size_t n = 0;

    while (is_name(peek(p, n)))
        n++;
    return n;
}

static void blanks(parser *p, bool lines)
{
    for (;; p->t.at++) {
        int c = peek(p, 0);
        if (c == '#' || (c == '/' && peek(p, 1) == '/'))
            while (peek(p, 1) >= 0 && peek(p, 1) != '\n')
                p->t.at++;
        else if (c == '\\' && peek(p, 1) == '\n') /* a line that goes on */
            p->t.at++;
        else if (c != ' ' && c != '\t' && c != '\r' && (c != '\n' || !lines))
            return;
    }
}

static bool is_terminal(const char *name, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (name[i] >= 'a' && name[i] <= 'z')
            return false;
    return true;
}

/* ---- what stands for characters ---------------------------------------------------------------------------------- */

/* What is read as one piece; in a rule what is ignored may follow it. */
static void token(parser *p, uint32_t id)
{
    rg_notation_item(&p->t, p->in_rule && !p->t.f->failed ? RG_SEQ(p->t.f, id, p->ignored) : id);
}

/* A character of a literal, at its first byte. */
static uint32_t character(parser *p)
{
    static const char from[] = "nrtfv0\\\"'/", to[] = "\n\r\t\f\v\0\\\"'/";
    uint32_t code = 0;
    int n = p->t.at < p->t.n ? rg_utf8_decode(p->t.s + p->t.at, p->t.n - p->t.at, &code) : 0, digits;
    const char *found;

    if (!n || code == '\n')
        refuse(p, RG_E_INPUT, "a literal (\"...\") that does not end on its line, or is not UTF-8");
    p->t.at += n ? (size_t)n : 1;
    if (code != '\\')
        return code;
    n = peek(p, 0);
    p->t.at++;
    found = n > 0 && n < 128 ? strchr(from, n) : NULL;
    if (found)
        return (unsigned char)to[found - from];
    digits = n == 'x' ? 2 : n == 'u' ? 4 : n == 'U' ? 8 : 0;
    if (!digits || !rg_hex(p->t.s, p->t.n, &p->t.at, digits, &code) || code > 0x10ffff)
        refuse(p, RG_E_INPUT, "an escape that is none of \\n \\r \\t \\f \\v \\0 \\\\ \\\" \\xHH \\uHHHH \\UHHHHHHHH");
    return code;
}

static void either_case(rg_form *f, rg_chars *c, uint32_t code)
{
    rg_chars_add(f, c, code, code);
    if ((code | 32) >= 'a' && (code | 32) <= 'z')
        rg_chars_add(f, c, code ^ 32, code ^ 32);
}

static uint32_t text_of(parser *p, const rg_list *codes, bool fold)
{
    rg_list l = { 0 };
    uint32_t made;

    for (uint32_t i = 0; i < codes->n && fold; i++) {
        rg_chars c = { 0 };
        either_case(p->t.f, &c, codes->id[i]);
        rg_list_add(p->t.f, &l, rg_chars_node(p->t.f, &c, p->how));
        rg_chars_fini(&c);
    }
    made = fold ? rg_form_seq(p->t.f, l.id, l.n) : rg_chars_text(p->t.f, codes->id, codes->n, p->how);
    rg_list_fini(&l);
    return made;
}

/* "..." or, as a range, "a".."z"; i after it: in either case. */
static void literal(parser *p)
{
    rg_list codes = { 0 }, last = { 0 };
    rg_chars c = { 0 };
    bool fold;

    for (p->t.at++; !p->t.f->failed && peek(p, 0) != '"';)
        rg_list_add(p->t.f, &codes, character(p));
    p->t.at++;
    fold = peek(p, 0) == 'i' && !is_name(peek(p, 1));
    p->t.at += fold;
    if (starts(p, "..\"")) {
        for (p->t.at += 3; !p->t.f->failed && peek(p, 0) != '"';)
            rg_list_add(p->t.f, &last, character(p));
        p->t.at++;
        if (!p->t.f->failed && (codes.n != 1 || last.n != 1 || fold || last.id[0] < codes.id[0]))
            refuse(p, RG_E_INPUT, "a range that is not of two characters in their order (\"a\"..\"z\")");
        if (!p->t.f->failed)
            rg_chars_add(p->t.f, &c, codes.id[0], last.id[0]);
        if (!p->t.f->failed)
            token(p, rg_chars_node(p->t.f, &c, p->how));
    } else if (!p->t.f->failed) {
        token(p, text_of(p, &codes, fold));
    }
    rg_chars_fini(&c);
    rg_list_fini(&codes);
    rg_list_fini(&last);
}

/* /.../flags */
static void regex(parser *p)
{
    size_t from = ++p->t.at, n;
    bool in_class = false, fold = false, all = false;

    while (peek(p, 0) >= 0 && peek(p, 0) != '\n' && (in_class || peek(p, 0) != '/')) {
        in_class = peek(p, 0) == '[' || (in_class && peek(p, 0) != ']');
        p->t.at += peek(p, 0) == '\\' && peek(p, 1) >= 0 ? 2 : 1;
    }
    n = p->t.at - from;
    if (peek(p, 0) != '/')
        refuse(p, RG_E_INPUT, "a regular expression (/.../) that does not end on its line");
    for (p->t.at++; is_name(peek(p, 0)); p->t.at++) {
        fold |= peek(p, 0) == 'i';
        all |= peek(p, 0) == 's';
        if (!strchr("ismul", peek(p, 0)))
            refuse(p, RG_E_UNSUPPORTED, "a flag of a regular expression that is none of i, s, m, u, l");
    }
    if (!p->t.f->failed)
        token(p, rg_pattern_flags(p->t.f, p->t.s + from, n, p->how, fold, all));
}

static void schema(parser *p)
{
    size_t n;

    p->t.at += strlen("%json");
    blanks(p, false);
    n = peek(p, 0) == '{' ? rg_notation_object(&p->t) : 0;
    if (n && p->how == RG_WRITE_JSON)
        refuse(p, RG_E_UNSUPPORTED, "a %json within a text of JSON");
    else if (n)
        token(p, rg_schema(p->t.f, p->t.s + p->t.at, n));
    else
        refuse(p, RG_E_INPUT, "a %json without a JSON schema, an object");
    p->t.at += n;
}

/* ---- rules ------------------------------------------------------------------------------------------------------- */

static void repeat(parser *p, uint32_t min, uint32_t max)
{
    rg_notation_repeat(&p->t, min, max);
    p->t.atom = false;
}

/* ~n or ~n..m, or {n,m} */
static void times(parser *p)
{
    uint32_t range[2] = { 0 };
    bool first = true;

    if (peek(p, 0) == '{') {
        if (rg_braces(p->t.f, p->t.s, p->t.n, &p->t.at, range) > 0)
            repeat(p, range[0], range[1]);
        else
            refuse(p, RG_E_UNSUPPORTED, "a '{' that is no repetition {m}, {m,} or {m,n}: templates are not supported");
        return;
    }
    for (p->t.at++; first || starts(p, ".."); first = false) {
        size_t from = p->t.at += first ? 0 : 2;
        uint64_t v = 0;
        blanks(p, false);
        from = p->t.at;
        for (; peek(p, 0) >= '0' && peek(p, 0) <= '9'; p->t.at++)
            v = v < RG_REPEAT_MIN ? v * 10 + (uint64_t)(peek(p, 0) - '0') : v;
        if (p->t.at == from || v > RG_REPEAT_MIN)
            refuse(p, RG_E_INPUT, "a repetition that is not ~n or ~n..m, of numbers up to 2^20");
        if (first)
            range[0] = (uint32_t)v;
        range[1] = (uint32_t)v;
        if (!first)
            break;
    }
    if (range[1] < range[0])
        refuse(p, RG_E_INPUT, "a repetition whose bounds are in the wrong order");
    if (!p->t.f->failed)
        repeat(p, range[0], range[1]);
}

static void reference(parser *p, size_t n)
{
    const char *name = p->t.s + p->t.at;
    const rg_named_rule *r = rg_notation_rule(&p->t, name, n);

    p->t.at += n;
    if (!r)
        return;
    if (is_terminal(name, n))
        token(p, r->ref);
    else if (p->in_rule)
        rg_notation_item(&p->t, r->ref);
    else
        refuse(p, RG_E_INPUT, "a terminal (upper case) that refers to a rule (lower case)");
}

/* The present alternative ends.  One of the rule itself that begins with the rule is kept apart. */
static void bar(parser *p)
{
    rg_list *items = &p->t.groups.level[p->t.groups.depth].items;

    if (p->t.groups.depth == 0 && items->n && items->id[0] == p->own) {
        if (items->n > 1)
            rg_list_add(p->t.f, &p->again, rg_form_seq(p->t.f, items->id + 1, items->n - 1));
        items->n = 0;
        rg_groups_item(&p->t.groups, RG_NEVER);
    }
    rg_groups_bar(&p->t.groups);
    p->t.atom = false;
}

static void open_bracket(parser *p)
{
    rg_groups_open(&p->t.groups);
    p->bracket[p->t.groups.depth] = (char)peek(p, 0);
    p->t.at++;
    p->t.atom = false;
}

static void close_bracket(parser *p)
{
    char closes = peek(p, 0) == ')' ? '(' : '[';

    if (p->t.groups.depth == 0 || p->bracket[p->t.groups.depth] != closes) {
        refuse(p, RG_E_INPUT, "a ')' or ']' without its '(' or '['");
        return;
    }
    rg_groups_close(&p->t.groups);
    p->t.atom = true;
    p->t.at++;
    if (closes == '[')
        rg_groups_repeat(&p->t.groups, 0, 1);
}

/* One part of a right side; false: the rule ends here. */
static bool part(parser *p)
{
    int c = peek(p, 0);
    size_t n = name_length(p);

    if (n && !(c >= '0' && c <= '9')) {
        reference(p, n);
        return true;
    }
    switch (c) {
    case -1: return false;
    case '"': literal(p); return true;
    case '/': regex(p); return true;
    case '(':
    case '[': open_bracket(p); return true;
    case ')':
    case ']': close_bracket(p); return true;
    case '|':
        p->t.at++;
        bar(p);
        return true;
    case '*': p->t.at++; repeat(p, 0, RG_FOREVER); return true;
    case '+': p->t.at++; repeat(p, 1, RG_FOREVER); return true;
    case '?': p->t.at++; repeat(p, 0, 1); return true;
    case '~':
    case '{': times(p); return true;
    default: break;
    }
    if (starts(p, "->")) { /* the name of an alternative */
        p->t.at += 2;
        blanks(p, false);
        p->t.at += name_length(p);
    } else if (starts(p, "%json")) {
        schema(p);
    } else if (c == '\n') {
        size_t had = p->t.at;
        blanks(p, true);
        if (p->t.groups.depth || peek(p, 0) == '|')
            return true;
        p->t.at = had;
        return false;
    } else {
        refuse(p, RG_E_INPUT, "a character that begins nothing");
    }
    return true;
}

/* The right side, up to the rule's end: its node. */
static uint32_t right_side(parser *p)
{
    uint32_t made;

    p->t.atom = false;
    p->again.n = 0;
    for (blanks(p, false); !p->t.f->failed && part(p);)
        blanks(p, false);
    if (!p->t.f->failed && p->t.groups.depth)
        refuse(p, RG_E_INPUT, "a '(' or '[' without its ')' or ']'");
    if (p->t.f->failed)
        return RG_NEVER;
    bar(p);
    p->t.groups.level[0].items.n = 0;
    made = rg_form_alt(p->t.f, p->t.groups.level[0].alternatives.id, p->t.groups.level[0].alternatives.n);
    p->t.groups.level[0].alternatives.n = 0;
    if (p->again.n) {
        uint32_t rest = rg_form_alt(p->t.f, p->again.id, p->again.n);
        made = RG_SEQ(p->t.f, made, rg_form_rep(p->t.f, rest, 0, RG_FOREVER));
    }
    return made;
}

static void define(parser *p)
{
    rg_named_rule *r;
    size_t n;
    uint32_t made;

    while (peek(p, 0) == '?' || peek(p, 0) == '!')
        p->t.at++;
    n = name_length(p);
    r = n && !(peek(p, 0) >= '0' && peek(p, 0) <= '9') ? rg_notation_rule(&p->t, p->t.s + p->t.at, n) : NULL;
    if (!r) {
        refuse(p, RG_E_INPUT, "want a rule (name: ...), a terminal (NAME: ...), %import or %ignore");
        return;
    }
    if (r->defined)
        refuse(p, RG_E_INPUT, "a rule that has been defined before");
    r->defined = true;
    p->own = r->ref;
    p->in_rule = !is_terminal(r->name, r->n);
    p->t.at += n;
    if (peek(p, 0) == '.') /* a priority */
        for (p->t.at++; is_name(peek(p, 0)) || peek(p, 0) == '-';)
            p->t.at++;
    blanks(p, false);
    if (peek(p, 0) == '[' || peek(p, 0) == '{')
        refuse(p, RG_E_UNSUPPORTED, "attributes (name[...]) and templates (name{...}) are not supported");
    else if (peek(p, 0) != ':')
        refuse(p, RG_E_INPUT, "want a ':' after a rule's name");
    p->t.at++;
    made = p->t.f->failed ? RG_NEVER : right_side(p);
    if (!p->t.f->failed)
        rg_form_bind(p->t.f, p->own, made);
}

/* ---- directives -------------------------------------------------------------------------------------------------- */

static void import_one(parser *p, const char *name, size_t n)
{
    const char *as = name;
    size_t n_as = n, i = 0;
    rg_named_rule *r;

    blanks(p, false);
    if (starts(p, "->")) {
        p->t.at += 2;
        blanks(p, false);
        as = p->t.s + p->t.at;
        n_as = name_length(p);
        p->t.at += n_as;
    }
    while (i < RG_LEN(common) && (strlen(common[i].name) != n || memcmp(common[i].name, name, n) != 0))
        i++;
    if (i == RG_LEN(common)) {
        rg_form_fail(p->t.f, RG_E_UNSUPPORTED, "grammar: %%import of '%.*s', which is no terminal of common",
                     (int)(n < 100 ? n : 100), name);
        return;
    }
    r = n_as ? rg_notation_rule(&p->t, as, n_as) : NULL;
    if (!r || r->defined) {
        refuse(p, RG_E_INPUT, "an import without a name, or of one that has been defined before");
        return;
    }
    r->defined = true;
    rg_form_bind(p->t.f, r->ref, rg_pattern(p->t.f, common[i].pattern, strlen(common[i].pattern), p->how, true));
}

/* %import common.NAME, %import common.NAME -> OTHER, %import common (NAME, NAME) */
static void import(parser *p)
{
    bool list;

    blanks(p, false);
    if (!starts(p, "common")) {
        refuse(p, RG_E_UNSUPPORTED, "an %import of other than common");
        return;
    }
    p->t.at += strlen("common");
    blanks(p, false);
    list = peek(p, 0) == '(';
    if (!list && peek(p, 0) != '.')
        refuse(p, RG_E_INPUT, "an %import that is not common.NAME or common (NAME, ...)");
    do {
        const char *name;
        size_t n;
        p->t.at++;
        blanks(p, list);
        name = p->t.s + p->t.at;
        n = name_length(p);
        p->t.at += n;
        if (!p->t.f->failed)
            import_one(p, name, n);
        blanks(p, list);
    } while (list && peek(p, 0) == ',' && !p->t.f->failed);
    if (list && peek(p, 0) != ')')
        refuse(p, RG_E_INPUT, "a list of imports without its ')'");
    p->t.at += list;
}

static void ignore(parser *p)
{
    p->in_rule = false;
    p->own = RG_NEVER;
    rg_list_add(p->t.f, &p->ignore, right_side(p));
}

static void directive(parser *p)
{
    static const struct {
        const char *name;
        void (*read)(parser *);
    } known[] = { { "%import", import }, { "%ignore", ignore } };

    for (size_t i = 0; i < RG_LEN(known); i++)
        if (starts(p, known[i].name) && !is_name(peek(p, strlen(known[i].name)))) {
            p->t.at += strlen(known[i].name);
            known[i].read(p);
            return;
        }
    refuse(p, RG_E_UNSUPPORTED, "a directive that is neither %import nor %ignore");
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* The node of the whole answer. */
static uint32_t finish(parser *p)
{
    const uint32_t start = rg_notation_start(&p->t, "start");
    const rg_list *l = &p->ignore;

    rg_form_bind(p->t.f, p->ignored,
                 l->n ? rg_form_rep(p->t.f, rg_form_alt(p->t.f, l->id, l->n), 0, RG_FOREVER) : RG_EMPTY);
    return p->t.f->failed ? RG_NEVER : RG_SEQ(p->t.f, p->ignored, start);
}

uint32_t rg_lark(rg_form *f, const char *text, size_t n, rg_writing how)
{
    parser p = { .how = how, .ignored = rg_form_ref(f, "%ignore", 7) };
    uint32_t made = RG_NEVER;

    rg_notation_init(&p.t, f, text, n);
    for (blanks(&p, true); !f->failed && p.t.at < n; blanks(&p, true)) {
        if (peek(&p, 0) == '%')
            directive(&p);
        else
            define(&p);
    }
    if (!f->failed)
        made = finish(&p);
    rg_notation_fini(&p.t);
    rg_list_fini(&p.ignore);
    rg_list_fini(&p.again);
    return made;
}
