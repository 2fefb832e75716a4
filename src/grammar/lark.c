/* lark.c -- grammars in Lark's notation: rules (lower case) and terminals (upper case) over characters.  "start" is the
 * whole answer.
 *
 * A rule ends with its line, unless brackets are open or the next line begins with '|'.  What %ignore names may stand
 * before the first and after every literal, regular expression and terminal of a rule; nothing is put into terminals.
 * Rules that begin with themselves become repetitions; other left recursion is refused.  As in GBNF, `%json {...}` is a
 * value of a JSON schema.  Greedy matching, priorities and aliases say how a text is read and not which texts there
 * are. */
#include "base/hash.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "grammar/source.h"

enum { MOST_RULES = 1 << 16 };

typedef struct rule {
    const char *name;
    size_t n;
    uint32_t ref;
    bool defined;
} rule;

typedef struct parser {
    rg_form *f;
    const char *s;
    size_t n, at;
    rule *rule;
    uint32_t n_rules, room;
    rg_dict *names;
    uint32_t ignored;   /* any number of what %ignore names: a reference, bound at the end */
    rg_list ignore;
    uint32_t own;       /* the rule that is being read */
    rg_list again;      /* of its alternatives that begin with it: the rest */
    bool in_rule, atom; /* not in a terminal; the last item can be repeated */
    char bracket[RG_SOURCE_DEPTH + 1];
    rg_groups groups;
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
    size_t line = 1;

    if (p->f->failed)
        return;
    for (size_t i = 0; i < p->at && i < p->n; i++)
        line += p->s[i] == '\n';
    rg_form_fail(p->f, code, "grammar, line %zu: %s", line, what);
}

static int peek(const parser *p, size_t ahead)
{
    return p->at + ahead < p->n ? (unsigned char)p->s[p->at + ahead] : -1;
}

static bool starts(const parser *p, const char *with)
{
    size_t n = strlen(with);

    return p->at <= p->n && p->n - p->at >= n && !memcmp(p->s + p->at, with, n);
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
    for (;; p->at++) {
        int c = peek(p, 0);
        if (c == '#' || (c == '/' && peek(p, 1) == '/'))
            while (peek(p, 1) >= 0 && peek(p, 1) != '\n')
                p->at++;
        else if (c == '\\' && peek(p, 1) == '\n') /* a line that goes on */
            p->at++;
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

static rule *find_rule(parser *p, const char *name, size_t n)
{
    int at = rg_dict_get(p->names, name, n);

    if (at >= 0)
        return &p->rule[at];
    if (p->n_rules == p->room) {
        uint32_t room = p->room ? 2 * p->room : 32;
        rule *r = p->n_rules < MOST_RULES ? rg_resize_array(p->rule, room, sizeof *r) : NULL;
        if (!r) {
            refuse(p, p->n_rules < MOST_RULES ? RG_E_MEMORY : RG_E_LIMIT, "too many rules, or no memory for them");
            return NULL;
        }
        p->rule = r;
        p->room = room;
    }
    p->rule[p->n_rules] = (rule){ name, n, rg_form_ref(p->f, name, n), false };
    if (!rg_dict_put(p->names, name, n, (int)p->n_rules))
        refuse(p, RG_E_MEMORY, "out of memory for the rules");
    return &p->rule[p->n_rules++];
}

/* ---- what stands for characters ---------------------------------------------------------------------------------- */

static void item(parser *p, uint32_t id)
{
    rg_groups_item(&p->groups, id);
    p->atom = true;
}

/* What is read as one piece; in a rule what is ignored may follow it. */
static void token(parser *p, uint32_t id)
{
    item(p, p->in_rule && !p->f->failed ? RG_SEQ(p->f, id, p->ignored) : id);
}

/* A character of a literal, at its first byte. */
static uint32_t character(parser *p)
{
    static const char from[] = "nrtfv0\\\"'/", to[] = "\n\r\t\f\v\0\\\"'/";
    uint32_t code = 0;
    int n = p->at < p->n ? rg_utf8_decode(p->s + p->at, p->n - p->at, &code) : 0, digits;
    const char *found;

    if (!n || code == '\n')
        refuse(p, RG_E_INPUT, "a literal (\"...\") that does not end on its line, or is not UTF-8");
    p->at += n ? (size_t)n : 1;
    if (code != '\\')
        return code;
    n = peek(p, 0);
    p->at++;
    found = n > 0 && n < 128 ? strchr(from, n) : NULL;
    if (found)
        return (unsigned char)to[found - from];
    digits = n == 'x' ? 2 : n == 'u' ? 4 : n == 'U' ? 8 : 0;
    if (!digits || !rg_hex(p->s, p->n, &p->at, digits, &code) || code > 0x10ffff)
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
        either_case(p->f, &c, codes->id[i]);
        rg_list_add(p->f, &l, rg_chars_node(p->f, &c, RG_WRITE_UTF8));
        rg_chars_fini(&c);
    }
    made = fold ? rg_form_seq(p->f, l.id, l.n) : rg_chars_text(p->f, codes->id, codes->n, RG_WRITE_UTF8);
    rg_list_fini(&l);
    return made;
}

/* "..." or, as a range, "a".."z"; i after it: in either case. */
static void literal(parser *p)
{
    rg_list codes = { 0 }, last = { 0 };
    rg_chars c = { 0 };
    bool fold;

    for (p->at++; !p->f->failed && peek(p, 0) != '"';)
        rg_list_add(p->f, &codes, character(p));
    p->at++;
    fold = peek(p, 0) == 'i' && !is_name(peek(p, 1));
    p->at += fold;
    if (starts(p, "..\"")) {
        for (p->at += 3; !p->f->failed && peek(p, 0) != '"';)
            rg_list_add(p->f, &last, character(p));
        p->at++;
        if (!p->f->failed && (codes.n != 1 || last.n != 1 || fold || last.id[0] < codes.id[0]))
            refuse(p, RG_E_INPUT, "a range that is not of two characters in their order (\"a\"..\"z\")");
        if (!p->f->failed)
            rg_chars_add(p->f, &c, codes.id[0], last.id[0]);
        if (!p->f->failed)
            token(p, rg_chars_node(p->f, &c, RG_WRITE_UTF8));
    } else if (!p->f->failed) {
        token(p, text_of(p, &codes, fold));
    }
    rg_chars_fini(&c);
    rg_list_fini(&codes);
    rg_list_fini(&last);
}

/* /.../flags */
static void regex(parser *p)
{
    size_t from = ++p->at, n;
    bool in_class = false, fold = false, all = false;

    while (peek(p, 0) >= 0 && peek(p, 0) != '\n' && (in_class || peek(p, 0) != '/')) {
        in_class = peek(p, 0) == '[' || (in_class && peek(p, 0) != ']');
        p->at += peek(p, 0) == '\\' && peek(p, 1) >= 0 ? 2 : 1;
    }
    n = p->at - from;
    if (peek(p, 0) != '/')
        refuse(p, RG_E_INPUT, "a regular expression (/.../) that does not end on its line");
    for (p->at++; is_name(peek(p, 0)); p->at++) {
        fold |= peek(p, 0) == 'i';
        all |= peek(p, 0) == 's';
        if (!strchr("ismul", peek(p, 0)))
            refuse(p, RG_E_UNSUPPORTED, "a flag of a regular expression that is none of i, s, m, u, l");
    }
    if (!p->f->failed)
        token(p, rg_pattern_flags(p->f, p->s + from, n, fold, all));
}

/* The bytes of the JSON object here; 0: it does not end. */
static size_t object_length(const parser *p)
{
    size_t depth = 0;

    for (size_t i = 0; p->at + i < p->n; i++) {
        int c = peek(p, i);
        if (c == '"')
            for (i++; peek(p, i) >= 0 && peek(p, i) != '"'; i++)
                i += peek(p, i) == '\\';
        depth += c == '{';
        depth -= c == '}' && depth > 0;
        if (!depth)
            return i + 1;
    }
    return 0;
}

static void schema(parser *p)
{
    size_t n;

    p->at += strlen("%json");
    blanks(p, false);
    n = peek(p, 0) == '{' ? object_length(p) : 0;
    if (n)
        token(p, rg_schema(p->f, p->s + p->at, n));
    else
        refuse(p, RG_E_INPUT, "a %json without a JSON schema, an object");
    p->at += n;
}

/* ---- rules ------------------------------------------------------------------------------------------------------- */

static void repeat(parser *p, uint32_t min, uint32_t max)
{
    if (!p->atom)
        refuse(p, RG_E_INPUT, "a repetition of nothing");
    rg_groups_repeat(&p->groups, min, max);
    p->atom = false;
}

/* ~n or ~n..m, or {n,m} */
static void times(parser *p)
{
    uint32_t range[2] = { 0 };
    bool first = true;

    if (peek(p, 0) == '{') {
        if (rg_braces(p->f, p->s, p->n, &p->at, range) > 0)
            repeat(p, range[0], range[1]);
        else
            refuse(p, RG_E_UNSUPPORTED, "a '{' that is no repetition {m}, {m,} or {m,n}: templates are not supported");
        return;
    }
    for (p->at++; first || starts(p, ".."); first = false) {
        size_t from = p->at += first ? 0 : 2;
        uint64_t v = 0;
        blanks(p, false);
        from = p->at;
        for (; peek(p, 0) >= '0' && peek(p, 0) <= '9'; p->at++)
            v = v < RG_REPEAT_MIN ? v * 10 + (uint64_t)(peek(p, 0) - '0') : v;
        if (p->at == from || v > RG_REPEAT_MIN)
            refuse(p, RG_E_INPUT, "a repetition that is not ~n or ~n..m, of numbers up to 2^20");
        if (first)
            range[0] = (uint32_t)v;
        range[1] = (uint32_t)v;
        if (!first)
            break;
    }
    if (range[1] < range[0])
        refuse(p, RG_E_INPUT, "a repetition whose bounds are in the wrong order");
    if (!p->f->failed)
        repeat(p, range[0], range[1]);
}

static void reference(parser *p, size_t n)
{
    const char *name = p->s + p->at;
    const rule *r = find_rule(p, name, n);

    p->at += n;
    if (!r)
        return;
    if (is_terminal(name, n))
        token(p, r->ref);
    else if (p->in_rule)
        item(p, r->ref);
    else
        refuse(p, RG_E_INPUT, "a terminal (upper case) that refers to a rule (lower case)");
}

/* The present alternative ends.  One of the rule itself that begins with the rule is kept apart. */
static void bar(parser *p)
{
    rg_list *items = &p->groups.level[p->groups.depth].items;

    if (p->groups.depth == 0 && items->n && items->id[0] == p->own) {
        if (items->n > 1)
            rg_list_add(p->f, &p->again, rg_form_seq(p->f, items->id + 1, items->n - 1));
        items->n = 0;
        rg_groups_item(&p->groups, RG_NEVER);
    }
    rg_groups_bar(&p->groups);
    p->atom = false;
}

static void open_bracket(parser *p)
{
    rg_groups_open(&p->groups);
    p->bracket[p->groups.depth] = (char)peek(p, 0);
    p->at++;
    p->atom = false;
}

static void close_bracket(parser *p)
{
    char closes = peek(p, 0) == ')' ? '(' : '[';

    if (p->groups.depth == 0 || p->bracket[p->groups.depth] != closes) {
        refuse(p, RG_E_INPUT, "a ')' or ']' without its '(' or '['");
        return;
    }
    rg_groups_close(&p->groups);
    p->atom = true;
    p->at++;
    if (closes == '[')
        rg_groups_repeat(&p->groups, 0, 1);
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
        p->at++;
        bar(p);
        return true;
    case '*': p->at++; repeat(p, 0, RG_FOREVER); return true;
    case '+': p->at++; repeat(p, 1, RG_FOREVER); return true;
    case '?': p->at++; repeat(p, 0, 1); return true;
    case '~':
    case '{': times(p); return true;
    default: break;
    }
    if (starts(p, "->")) { /* the name of an alternative */
        p->at += 2;
        blanks(p, false);
        p->at += name_length(p);
    } else if (starts(p, "%json")) {
        schema(p);
    } else if (c == '\n') {
        size_t had = p->at;
        blanks(p, true);
        if (p->groups.depth || peek(p, 0) == '|')
            return true;
        p->at = had;
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

    p->atom = false;
    p->again.n = 0;
    for (blanks(p, false); !p->f->failed && part(p);)
        blanks(p, false);
    if (!p->f->failed && p->groups.depth)
        refuse(p, RG_E_INPUT, "a '(' or '[' without its ')' or ']'");
    if (p->f->failed)
        return RG_NEVER;
    bar(p);
    p->groups.level[0].items.n = 0;
    made = rg_form_alt(p->f, p->groups.level[0].alternatives.id, p->groups.level[0].alternatives.n);
    p->groups.level[0].alternatives.n = 0;
    if (p->again.n) {
        uint32_t rest = rg_form_alt(p->f, p->again.id, p->again.n);
        made = RG_SEQ(p->f, made, rg_form_rep(p->f, rest, 0, RG_FOREVER));
    }
    return made;
}

static void define(parser *p)
{
    rule *r;
    size_t n;
    uint32_t made;

    while (peek(p, 0) == '?' || peek(p, 0) == '!')
        p->at++;
    n = name_length(p);
    r = n && !(peek(p, 0) >= '0' && peek(p, 0) <= '9') ? find_rule(p, p->s + p->at, n) : NULL;
    if (!r) {
        refuse(p, RG_E_INPUT, "want a rule (name: ...), a terminal (NAME: ...), %import or %ignore");
        return;
    }
    if (r->defined)
        refuse(p, RG_E_INPUT, "a rule that has been defined before");
    r->defined = true;
    p->own = r->ref;
    p->in_rule = !is_terminal(r->name, r->n);
    p->at += n;
    if (peek(p, 0) == '.') /* a priority */
        for (p->at++; is_name(peek(p, 0)) || peek(p, 0) == '-';)
            p->at++;
    blanks(p, false);
    if (peek(p, 0) == '[' || peek(p, 0) == '{')
        refuse(p, RG_E_UNSUPPORTED, "attributes (name[...]) and templates (name{...}) are not supported");
    else if (peek(p, 0) != ':')
        refuse(p, RG_E_INPUT, "want a ':' after a rule's name");
    p->at++;
    made = p->f->failed ? RG_NEVER : right_side(p);
    if (!p->f->failed)
        rg_form_bind(p->f, p->own, made);
}

/* ---- directives -------------------------------------------------------------------------------------------------- */

static void import_one(parser *p, const char *name, size_t n)
{
    const char *as = name;
    size_t n_as = n, i = 0;
    rule *r;

    blanks(p, false);
    if (starts(p, "->")) {
        p->at += 2;
        blanks(p, false);
        as = p->s + p->at;
        n_as = name_length(p);
        p->at += n_as;
    }
    while (i < RG_LEN(common) && (strlen(common[i].name) != n || memcmp(common[i].name, name, n) != 0))
        i++;
    if (i == RG_LEN(common)) {
        rg_form_fail(p->f, RG_E_UNSUPPORTED, "grammar: %%import of '%.*s', which is no terminal of common",
                     (int)(n < 100 ? n : 100), name);
        return;
    }
    r = n_as ? find_rule(p, as, n_as) : NULL;
    if (!r || r->defined) {
        refuse(p, RG_E_INPUT, "an import without a name, or of one that has been defined before");
        return;
    }
    r->defined = true;
    rg_form_bind(p->f, r->ref, rg_pattern(p->f, common[i].pattern, strlen(common[i].pattern), RG_WRITE_UTF8, true));
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
    p->at += strlen("common");
    blanks(p, false);
    list = peek(p, 0) == '(';
    if (!list && peek(p, 0) != '.')
        refuse(p, RG_E_INPUT, "an %import that is not common.NAME or common (NAME, ...)");
    do {
        const char *name;
        size_t n;
        p->at++;
        blanks(p, list);
        name = p->s + p->at;
        n = name_length(p);
        p->at += n;
        if (!p->f->failed)
            import_one(p, name, n);
        blanks(p, list);
    } while (list && peek(p, 0) == ',' && !p->f->failed);
    if (list && peek(p, 0) != ')')
        refuse(p, RG_E_INPUT, "a list of imports without its ')'");
    p->at += list;
}

static void ignore(parser *p)
{
    p->in_rule = false;
    p->own = RG_NEVER;
    rg_list_add(p->f, &p->ignore, right_side(p));
}

static void directive(parser *p)
{
    static const struct {
        const char *name;
        void (*read)(parser *);
    } known[] = { { "%import", import }, { "%ignore", ignore } };

    for (size_t i = 0; i < RG_LEN(known); i++)
        if (starts(p, known[i].name) && !is_name(peek(p, strlen(known[i].name)))) {
            p->at += strlen(known[i].name);
            known[i].read(p);
            return;
        }
    refuse(p, RG_E_UNSUPPORTED, "a directive that is neither %import nor %ignore");
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* Check that all that is used is defined; the node of the whole answer. */
static uint32_t finish(parser *p)
{
    int start = rg_dict_get(p->names, "start", 5);
    uint32_t ignored;

    for (uint32_t i = 0; i < p->n_rules && !p->f->failed; i++)
        if (!p->rule[i].defined)
            rg_form_fail(p->f, RG_E_INPUT, "grammar: '%.*s' is used and not defined",
                         (int)(p->rule[i].n < 100 ? p->rule[i].n : 100), p->rule[i].name);
    if (!p->f->failed && start < 0)
        rg_form_fail(p->f, RG_E_INPUT, "grammar: there is no rule 'start'");
    ignored = p->ignore.n ? rg_form_rep(p->f, rg_form_alt(p->f, p->ignore.id, p->ignore.n), 0, RG_FOREVER) : RG_EMPTY;
    rg_form_bind(p->f, p->ignored, ignored);
    return p->f->failed ? RG_NEVER : RG_SEQ(p->f, p->ignored, p->rule[start].ref);
}

uint32_t rg_lark(rg_form *f, const char *text, size_t n)
{
    parser p = { .f = f, .s = text, .n = n, .names = rg_dict_new(64), .ignored = rg_form_ref(f, "%ignore", 7) };
    uint32_t made = RG_NEVER;

    if (!p.names)
        rg_form_fail(f, RG_E_MEMORY, "out of memory for the rules");
    rg_groups_init(&p.groups, f);
    for (blanks(&p, true); !f->failed && p.at < n; blanks(&p, true)) {
        if (peek(&p, 0) == '%')
            directive(&p);
        else
            define(&p);
    }
    if (!f->failed)
        made = finish(&p);
    rg_groups_fini(&p.groups);
    rg_list_fini(&p.ignore);
    rg_list_fini(&p.again);
    rg_dict_free(p.names);
    rg_free(p.rule);
    return made;
}
