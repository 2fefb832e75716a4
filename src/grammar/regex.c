/* regex.c -- regular expressions, as ECMA-262 has them, with what Rust and Python share with it.
 *
 * What an answer can be is a language: greedy or lazy makes no difference, and groups only group.  Constructs whose
 * meaning differs between dialects, and constructs that are not regular, are refused by name.  \d \w are ASCII's, as in
 * ECMA-262; "." is anything but an end of line. */
#include <stdio.h>

#include "base/utf8.h"
#include "grammar/dfa.h"
#include "grammar/source.h"

typedef struct parser {
    rg_form *f;
    const char *s;
    size_t n, at;
    rg_writing how;
    bool whole, start, end; /* of the present alternative: anchored */
    bool marks;             /* anchors are bytes */
    uint32_t any;           /* any text, one node for all alternatives; 0: not made yet */
    bool fold, all;         /* letters of ASCII in either case; "." is any character */
    bool atom;              /* the last item can be repeated */
    rg_groups groups;
} parser;

static bool refuse(parser *p, rg_code code, const char *what)
{
    rg_form_fail(p->f, code, "regular expression, at byte %zu: %s", p->at, what);
    return false;
}

static int peek(const parser *p, size_t ahead)
{
    return p->at + ahead < p->n ? (unsigned char)p->s[p->at + ahead] : -1;
}

static bool starts(const parser *p, const char *with)
{
    size_t n = strlen(with);

    return p->n - p->at >= n && !memcmp(p->s + p->at, with, n);
}

static uint32_t character(parser *p)
{
    uint32_t code;
    int n = p->at < p->n ? rg_utf8_decode(p->s + p->at, p->n - p->at, &code) : 0;

    if (!n)
        return refuse(p, RG_E_INPUT, "not UTF-8"), 0;
    p->at += (size_t)n;
    return code;
}

static void item(parser *p, uint32_t id)
{
    rg_groups_item(&p->groups, id);
    p->atom = true;
}

/* ---- escapes: at the character after the backslash --------------------------------------------------------------- */

/* \u: four digits, or any number in braces, or a pair of surrogates. */
static bool unicode_escape(parser *p, int digits, uint32_t *code)
{
    if (peek(p, 0) == '{') {
        size_t from = ++p->at;
        *code = 0;
        for (uint32_t v; p->at - from < 6 && rg_hex(p->s, p->n, &p->at, 1, &v);)
            *code = *code << 4 | v;
        if (p->at == from || peek(p, 0) != '}' || *code > 0x10ffff)
            return refuse(p, RG_E_INPUT, "an escape \\u{...} or \\x{...} that is no character");
        p->at++;
        return true;
    }
    if (!rg_hex(p->s, p->n, &p->at, digits, code))
        return refuse(p, RG_E_INPUT, "an escape \\u or \\x without its digits");
    if (*code >= 0xd800 && *code < 0xdc00 && starts(p, "\\u")) {
        uint32_t low;
        p->at += 2;
        if (!rg_hex(p->s, p->n, &p->at, 4, &low) || low < 0xdc00 || low > 0xdfff)
            return refuse(p, RG_E_INPUT, "a surrogate without its other half");
        *code = 0x10000 + ((*code - 0xd800) << 10) + (low - 0xdc00);
    }
    return true;
}

/* One character: true and *code.  c is the letter, already read. */
static bool plain_escape(parser *p, uint32_t c, uint32_t *code)
{
    static const char from[] = "tnrfv", to[] = "\t\n\r\f\v";
    const char *found = c && c < 128 ? strchr(from, (int)c) : NULL;

    *code = c;
    if (found)
        return *code = (uint32_t)to[found - from], true;
    if (c == 'x' || c == 'u')
        return unicode_escape(p, c == 'x' ? 2 : 4, code);
    if (c == '0') {
        if (peek(p, 0) >= '0' && peek(p, 0) <= '9')
            return refuse(p, RG_E_UNSUPPORTED, "an octal escape");
        return *code = 0, true;
    }
    if (c == 'c') {
        int letter = peek(p, 0) | 32;
        if (letter < 'a' || letter > 'z')
            return refuse(p, RG_E_INPUT, "an escape \\c without its letter");
        p->at++;
        return *code = (uint32_t)letter - 'a' + 1, true;
    }
    if (c >= '1' && c <= '9')
        return refuse(p, RG_E_UNSUPPORTED, "a backreference (\\1)");
    if ((c | 32) >= 'a' && (c | 32) <= 'z') {
        char text[80];
        const char *name = c == 'k' ? " (a backreference)" : (c | 32) == 'b' ? " (a word boundary)" :
                           (c | 32) == 'p' ? " (a Unicode property)" : (c | 32) == 'z' ||
                                   c == 'A' ? " (an anchor)" : "";
        snprintf(text, sizeof text, "the escape \\%c%s is not supported", (char)c, name);
        return refuse(p, RG_E_UNSUPPORTED, text);
    }
    return true;
}

/* ---- classes ----------------------------------------------------------------------------------------------------- */

/* One end of a range: 1 a character, 0 a class that was added as a whole, -1 failed. */
static int class_part(parser *p, rg_chars *c, uint32_t *code)
{
    *code = character(p);
    if (p->f->failed)
        return -1;
    if (*code == '[' && (peek(p, 0) == ':' || peek(p, 0) == '.' || peek(p, 0) == '='))
        return refuse(p, RG_E_UNSUPPORTED, "a class of POSIX ([:alpha:])"), -1;
    if ((*code == '&' && peek(p, 0) == '&') || (*code == '-' && peek(p, 0) == '-') || (*code == '~' && peek(p,
            0) == '~'))
        return refuse(p, RG_E_UNSUPPORTED, "an operation on classes (&&, --, ~~)"), -1;
    if (*code != '\\')
        return 1;
    if (p->at == p->n)
        return refuse(p, RG_E_INPUT, "a '\\' at the end"), -1;
    *code = character(p);
    if (p->f->failed)
        return -1;
    if (rg_chars_class(p->f, c, *code))
        return 0;
    if (*code == 'b')
        return *code = 8, 1;
    return plain_escape(p, *code, code) ? 1 : -1;
}

/* Letters of ASCII in either case, if that is asked for. */
static void add_range(parser *p, rg_chars *c, uint32_t from, uint32_t to)
{
    rg_chars_add(p->f, c, from, to);
    for (uint32_t letter = 'A'; p->fold && letter <= 'Z'; letter++) {
        if (letter >= from && letter <= to)
            rg_chars_add(p->f, c, letter | 32, letter | 32);
        if ((letter | 32) >= from && (letter | 32) <= to)
            rg_chars_add(p->f, c, letter, letter);
    }
}

/* One character as it is written. */
static void single(parser *p, uint32_t code)
{
    rg_chars c = { 0 };

    add_range(p, &c, code, code);
    item(p, rg_chars_node(p->f, &c, p->how));
    rg_chars_fini(&c);
}

static void class(parser *p)
{
    rg_chars c = { 0 };
    bool not = peek(p, 0) == '^';
    size_t open = p->at - 1;

    p->at += not;
    if (peek(p, 0) == ']')
        refuse(p, RG_E_UNSUPPORTED, "a class that begins with ']', which means different things: write \\]");
    while (!p->f->failed && peek(p, 0) != ']') {
        uint32_t from, to;

        if (p->at == p->n) {
            p->at = open;
            refuse(p, RG_E_INPUT, "a '[' without its ']'");
            break;
        }
        int kind = class_part(p, &c, &from);
        to = from;
        if (kind >= 0 && peek(p, 0) == '-' && peek(p, 1) >= 0 && peek(p, 1) != ']') {
            p->at++;
            if (kind == 0 || class_part(p, &c, &to) != 1)
                refuse(p, RG_E_INPUT, "a range of a class whose end is a class");
            else if (to < from)
                refuse(p, RG_E_INPUT, "a range of a class whose ends are in the wrong order");
        }
        if (kind == 1)
            add_range(p, &c, from, to);
    }
    p->at++;
    if (not)
        rg_chars_invert(p->f, &c);
    item(p, rg_chars_node(p->f, &c, p->how));
    rg_chars_fini(&c);
}

static void escape(parser *p)
{
    rg_chars c = { 0 };
    uint32_t code = 0;

    if (p->at == p->n)
        refuse(p, RG_E_INPUT, "a '\\' at the end");
    else
        code = character(p);

    if (!p->f->failed && rg_chars_class(p->f, &c, code))
        item(p, rg_chars_node(p->f, &c, p->how));
    else if (!p->f->failed && plain_escape(p, code, &code))
        single(p, code);
    rg_chars_fini(&c);
}

static void dot(parser *p)
{
    rg_chars c = { 0 };

    if (p->all) {
        item(p, rg_chars_any(p->f, p->how));
        return;
    }
    rg_chars_add(p->f, &c, '\n', '\n');
    rg_chars_add(p->f, &c, '\r', '\r');
    rg_chars_add(p->f, &c, 0x2028, 0x2029);
    rg_chars_invert(p->f, &c);
    item(p, rg_chars_node(p->f, &c, p->how));
    rg_chars_fini(&c);
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

static void open_group(parser *p)
{
    if (starts(p, "?:")) {
        p->at += 2;
    } else if (starts(p, "?=") || starts(p, "?!") || starts(p, "?<=") || starts(p, "?<!")) {
        refuse(p, RG_E_UNSUPPORTED, "lookaround (?=, ?!, ?<=, ?<!)");
    } else if (starts(p, "?<") || starts(p, "?P<")) {
        while (peek(p, 0) >= 0 && peek(p, 0) != '>')
            p->at++;
        p->at++;
    } else if (starts(p, "?P=")) {
        refuse(p, RG_E_UNSUPPORTED, "a backreference (?P=name)");
    } else if (starts(p, "?#") || starts(p, "?>") || starts(p, "?(") || starts(p, "?")) {
        refuse(p, RG_E_UNSUPPORTED, "a group of the form (?...: flags, conditions and atomic groups are not supported");
    }
    rg_groups_open(&p->groups);
    p->atom = false;
}

static uint32_t any_text(parser *p)
{
    uint32_t one;

    if (p->any)
        return p->any;
    one = rg_chars_any(p->f, p->how);
    if (p->marks)
        one = RG_ALT(p->f, one, rg_form_range(p->f, RG_DFA_BEGINS, RG_DFA_ENDED));
    return p->any = rg_form_rep(p->f, one, 0, RG_FOREVER);
}

/* Beside any text a repetition of more than the fewest times finds nothing else. */
static void fewest_times(parser *p, uint32_t *id)
{
    rg_grammar_node node = p->f->node[*id];

    if (!p->f->failed && node.kind == RG_NODE_REP && node.max > node.min)
        *id = rg_form_rep(p->f, node.a, node.min, node.min);
}

/* The present alternative of the outermost level ends: what may stand around it, where it only has to be found. */
static void finish_alternative(parser *p)
{
    rg_group_level *l = &p->groups.level[0];
    uint32_t id;

    if (p->groups.depth == 0 && !p->whole) {
        if (!p->start && l->items.n)
            fewest_times(p, &l->items.id[0]);
        if (!p->end && l->items.n)
            fewest_times(p, &l->items.id[l->items.n - 1]);
        id = rg_form_seq(p->f, l->items.id, l->items.n);
        id = RG_SEQ(p->f, p->start ? RG_EMPTY : any_text(p), id, p->end ? RG_EMPTY : any_text(p));
        l->items.n = 0;
        rg_groups_item(&p->groups, id);
    }
    if (p->groups.depth == 0)
        p->start = p->end = false;
    p->atom = false;
}

static void close_group(parser *p)
{
    if (p->groups.depth == 0) {
        refuse(p, RG_E_INPUT, "a ')' without its '('");
        return;
    }
    rg_groups_close(&p->groups);
    p->atom = true;
}

/* Anchors stand only at the ends of the whole expression, or of its alternatives. */
static void anchor(parser *p, char c)
{
    if (p->marks) {
        unsigned mark = c == '^' ? RG_DFA_BEGINS : RG_DFA_ENDED;
        rg_groups_item(&p->groups, rg_form_range(p->f, mark, mark));
    } else if (p->groups.depth ||
               (c == '^' ? !rg_groups_empty(&p->groups) || p->start : peek(p, 0) >= 0 && peek(p, 0) != '|'))
        refuse(p, RG_E_UNSUPPORTED, "an anchor (^, $) that is not at the end of the expression or of an alternative");
    else if (c == '^')
        p->start = true;
    else
        p->end = true;
    p->atom = false;
}

static void repeat(parser *p, uint32_t min, uint32_t max)
{
    if (!p->atom) {
        refuse(p, RG_E_INPUT, "a repetition of nothing");
        return;
    }
    rg_groups_repeat(&p->groups, min, max);
    p->atom = false;
    if (peek(p, 0) == '?')
        p->at++; /* lazy: the same language */
    else if (peek(p, 0) == '+')
        refuse(p, RG_E_UNSUPPORTED, "a possessive repetition");
}

static void braces(parser *p)
{
    uint32_t range[2];
    int found;

    if (peek(p, 0) == ',' && peek(p, 1) >= '0' && peek(p, 1) <= '9') {
        refuse(p, RG_E_UNSUPPORTED, "{,n}, which means different things: write {0,n}");
        return;
    }
    p->at--;
    found = rg_braces(p->f, p->s, p->n, &p->at, range);
    if (found > 0 && p->s[p->at - 1] == '}') {
        repeat(p, range[0], range[1]);
    } else if (found == 0) {
        uint32_t code = '{';
        p->at++;
        item(p, rg_chars_text(p->f, &code, 1, p->how));
    }
}

static void step(parser *p)
{
    uint32_t c = character(p);

    if (p->f->failed)
        return;
    switch (c) {
    case '(': open_group(p); break;
    case ')': close_group(p); break;
    case '|':
        finish_alternative(p);
        rg_groups_bar(&p->groups);
        break;
    case '[': class(p); break;
    case '\\': escape(p); break;
    case '.': dot(p); break;
    case '^':
    case '$': anchor(p, (char)c); break;
    case '*': repeat(p, 0, RG_FOREVER); break;
    case '+': repeat(p, 1, RG_FOREVER); break;
    case '?': repeat(p, 0, 1); break;
    case '{': braces(p); break;
    default: single(p, c); break;
    }
}

static uint32_t parse(parser *p)
{
    uint32_t made = RG_NEVER;

    if (p->n > RG_PATTERN_BYTES) {
        rg_form_fail(p->f, RG_E_LIMIT, "a regular expression of %zu bytes, of at most %d", p->n, RG_PATTERN_BYTES);
        return RG_NEVER;
    }
    rg_groups_init(&p->groups, p->f);
    while (p->at < p->n && !p->f->failed)
        step(p);
    if (!p->f->failed && p->groups.depth)
        refuse(p, RG_E_INPUT, "a '(' without its ')'");
    if (!p->f->failed) {
        finish_alternative(p);
        made = rg_groups_end(&p->groups);
    }
    rg_groups_fini(&p->groups);
    return p->f->failed ? RG_NEVER : made;
}

uint32_t rg_pattern(rg_form *f, const char *text, size_t n, rg_writing how, bool whole)
{
    parser p = { .f = f, .s = text, .n = n, .how = how, .whole = whole };

    return parse(&p);
}

uint32_t rg_pattern_flags(rg_form *f, const char *text, size_t n, rg_writing how, bool fold, bool all)
{
    parser p = { .f = f, .s = text, .n = n, .how = how, .whole = true, .fold = fold, .all = all };

    return parse(&p);
}

uint32_t rg_pattern_marked(rg_form *f, const char *text, size_t n)
{
    parser p = { .f = f, .s = text, .n = n, .how = RG_WRITE_JSON, .marks = true };

    return parse(&p);
}

bool rg_pattern_anchors_within(const char *s, size_t n)
{
    bool in_class = false;
    int depth = 0;

    for (size_t i = 0; i < n; i++) {
        if (s[i] == '\\')
            i++;
        else if (in_class || s[i] == '[')
            in_class = s[i] != ']';
        else if (s[i] == '(' || s[i] == ')')
            depth += s[i] == '(' ? 1 : -1;
        else if ((s[i] == '^' && (depth || (i && s[i - 1] != '|'))) ||
                 (s[i] == '$' && (depth || (i + 1 < n && s[i + 1] != '|'))))
            return true;
    }
    return false;
}
