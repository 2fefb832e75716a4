/* gbnf.c -- GBNF: rules over characters, a notation of GGUF's engines.  "root" is the whole answer.
 *
 * A rule ends where the next one begins, or with the text: a line break within it counts as a blank.  These are
 * ridge's own: `%json {...}`, a value of a JSON schema; `%grammar {"syntax": "lark" or "regex", "definition": ...,
 * "quoted": true within quotes of JSON}`; `%until "..."`, any text up to and with this one, and `%without "..."`. */
#include "base/json.h"
#include "base/utf8.h"
#include "grammar/notation.h"

typedef rg_notation parser;

static void refuse(parser *p, rg_code code, const char *what)
{
    rg_notation_refuse(p, code, what);
}

static int peek(const parser *p, size_t ahead)
{
    return rg_notation_peek(p, ahead);
}

static bool is_name(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static void blanks(parser *p)
{
    for (;; p->at++) {
        int c = peek(p, 0);
        if (c == '#')
            while (peek(p, 0) >= 0 && peek(p, 0) != '\n')
                p->at++;
        else if (c != ' ' && c != '\t' && c != '\n' && c != '\r')
            return;
    }
}

static size_t name_length(const parser *p)
{
    size_t n = 0;

    while (is_name(peek(p, n)))
        n++;
    return n;
}

/* True if the name of n bytes here is the head of a rule. */
static bool is_head(const parser *p, size_t n)
{
    while (peek(p, n) == ' ' || peek(p, n) == '\t')
        n++;
    return peek(p, n) == ':' && peek(p, n + 1) == ':' && peek(p, n + 2) == '=';
}

/* ---- characters -------------------------------------------------------------------------------------------------- */

static uint32_t character(parser *p)
{
    static const char from[] = "nrt\\\"[].-^'/", to[] = "\n\r\t\\\"[].-^'/";
    uint32_t code = 0;
    int n = p->at < p->n ? rg_utf8_decode(p->s + p->at, p->n - p->at, &code) : 0, digits;

    if (!n) {
        refuse(p, RG_E_INPUT, p->at < p->n ? "not UTF-8" : "the text ends within a literal (\"...\") or a set ([...])");
        return 0;
    }
    p->at += (size_t)n;
    if (code != '\\')
        return code;
    n = peek(p, 0);
    p->at++;
    if (n > 0 && n < 128 && strchr(from, n))
        return (uint32_t)to[strchr(from, n) - from];
    digits = n == 'x' ? 2 : n == 'u' ? 4 : n == 'U' ? 8 : 0;
    if (!digits || !rg_hex(p->s, p->n, &p->at, digits, &code) || code > 0x10ffff)
        refuse(p, RG_E_INPUT, "an escape that is none of \\n \\r \\t \\\\ \\\" \\[ \\] \\xHH \\uHHHH \\UHHHHHHHH");
    return code;
}

static void literal(parser *p)
{
    rg_list codes = { 0 };

    p->at++;
    while (!p->f->failed && peek(p, 0) != '"')
        rg_list_add(p->f, &codes, character(p));
    p->at++;
    if (!p->f->failed)
        rg_notation_item(p, rg_chars_text(p->f, codes.id, codes.n, RG_WRITE_UTF8));
    rg_list_fini(&codes);
}

static void set(parser *p)
{
    rg_chars c = { 0 };
    bool not ;

    p->at++;
    not = peek(p, 0) == '^';
    p->at += not ;
    while (!p->f->failed && peek(p, 0) != ']') {
        uint32_t from = character(p), to = from;

        if (peek(p, 0) == '-' && peek(p, 1) != ']') {
            p->at++;
            to = character(p);
            if (to < from)
                refuse(p, RG_E_INPUT, "a range whose ends are in the wrong order");
        }
        rg_chars_add(p->f, &c, from, to);
    }
    p->at++;
    if (not )
        rg_chars_invert(p->f, &c);
    rg_notation_item(p, rg_chars_node(p->f, &c, RG_WRITE_UTF8));
    rg_chars_fini(&c);
}

/* ---- rules ------------------------------------------------------------------------------------------------------- */

static void braces(parser *p)
{
    uint32_t range[2];
    int found = rg_braces(p->f, p->s, p->n, &p->at, range);

    if (found > 0)
        rg_notation_repeat(p, range[0], range[1]);
    else if (found == 0)
        refuse(p, RG_E_INPUT, "a '{' that is not {m}, {m,}, {m,n} or {,n}");
}

static void reference(parser *p, size_t n)
{
    const rg_named_rule *r = rg_notation_rule(p, p->s + p->at, n);

    p->at += n;
    if (r)
        rg_notation_item(p, r->ref);
}

/* %json {...}: a value of a JSON schema. */
static size_t json_value(parser *p)
{
    size_t n = peek(p, 0) == '{' ? rg_notation_object(p) : 0;

    if (n)
        rg_notation_item(p, rg_schema(p->f, p->s + p->at, n));
    return n;
}

/* A source of another kind, from its object of JSON. */
static bool read_source(parser *p, const json_t *v)
{
    static const struct {
        const char *syntax;
        rg_grammar_kind kind;
    } known[] = { { "lark", RG_GRAMMAR_LARK }, { "regex", RG_GRAMMAR_REGEX },
                  { "gbnf", RG_GRAMMAR_GBNF }, { "choice", RG_GRAMMAR_CHOICE },
                  { "json", RG_GRAMMAR_JSON }, { "json_schema", RG_GRAMMAR_JSON_SCHEMA } };
    const char *syntax = json_string_value(json_object_get(v, "syntax"));
    const json_t *text = json_object_get(v, "definition");
    bool quoted = json_is_true(json_object_get(v, "quoted"));

    for (size_t i = 0; syntax && json_is_string(text) && i < RG_LEN(known); i++) {
        if (strcmp(known[i].syntax, syntax) ||
            (quoted && known[i].kind > RG_GRAMMAR_REGEX && known[i].kind != RG_GRAMMAR_LARK))
            continue;
        if (known[i].kind == RG_GRAMMAR_GBNF && (quoted || p->f->within))
            return false;
        p->f->within++;
        rg_notation_item(p, rg_source(p->f, known[i].kind, json_string_value(text), json_string_length(text),
                                      quoted ? RG_WRITE_JSON : RG_WRITE_UTF8));
        p->f->within--;
        return true;
    }
    return false;
}

/* %grammar {"syntax": ..., "definition": ..., "quoted": ...} */
static size_t source(parser *p)
{
    size_t n = peek(p, 0) == '{' ? rg_notation_object(p) : 0;
    json_t *v = n ? rg_json_load(p->s + p->at, n, 0, NULL) : NULL;
    bool ok = read_source(p, v);

    json_decref(v);
    return ok ? n : 0;
}

/* %until "...", %without "...": text up to and with this one, or that has it nowhere. */
static size_t text_around(parser *p, bool until)
{
    size_t from = p->at, n;
    rg_buf b;

    rg_buf_init(&b, RG_PATTERN_BYTES);
    if (peek(p, 0) == '"') {
        for (p->at++; !p->f->failed && peek(p, 0) != '"';) {
            char utf8[8];
            rg_buf_add(&b, utf8, (size_t)rg_utf8_encode(character(p), utf8));
        }
        p->at++;
    }
    n = p->at - from;
    p->at = from;
    if (n && !p->f->failed)
        rg_notation_item(p, until ? rg_until(p->f, b.data ? b.data : "", b.n)
                                  : rg_without(p->f, b.data ? b.data : "", b.n));
    rg_buf_fini(&b);
    return n;
}

static size_t until(parser *p)
{
    return text_around(p, true);
}

static size_t without(parser *p)
{
    return text_around(p, false);
}

/* What begins with '%' is ridge's own. */
static void directive(parser *p)
{
    static const struct {
        const char *word;
        size_t (*read)(parser *);
    } known[] = { { "%json", json_value }, { "%grammar", source }, { "%until", until }, { "%without", without } };
    size_t n = 0;

    for (size_t i = 0; i < RG_LEN(known) && !n; i++) {
        size_t k = strlen(known[i].word), from = p->at;
        if (p->n - p->at <= k || memcmp(p->s + p->at, known[i].word, k) != 0)
            continue;
        p->at += k;
        while (peek(p, 0) == ' ' || peek(p, 0) == '\t')
            p->at++;
        n = known[i].read(p);
        p->at = n ? p->at + n : from;
    }
    if (!n)
        refuse(p, RG_E_INPUT,
               "a '%' that is none of %json and a JSON schema, an object; %grammar and its syntax and "
               "definition, an object; %until or %without and a literal");
}

/* One part of a rule's right side; false: the rule ends here. */
static bool part(parser *p)
{
    int c = peek(p, 0);
    size_t n;

    switch (c) {
    case -1:
        return false;
    case '"':
        literal(p);
        return true;
    case '[':
        set(p);
        return true;
    case '.':
        p->at++;
        rg_notation_item(p, rg_chars_any(p->f, RG_WRITE_UTF8));
        return true;
    case '(':
        p->at++;
        rg_groups_open(&p->groups);
        p->atom = false;
        return true;
    case ')':
        p->at++;
        if (p->groups.depth == 0)
            refuse(p, RG_E_INPUT, "a ')' without its '('");
        rg_groups_close(&p->groups);
        p->atom = true;
        return true;
    case '|':
        p->at++;
        rg_groups_bar(&p->groups);
        p->atom = false;
        return true;
    case '*':
        p->at++;
        rg_notation_repeat(p, 0, RG_FOREVER);
        return true;
    case '+':
        p->at++;
        rg_notation_repeat(p, 1, RG_FOREVER);
        return true;
    case '?':
        p->at++;
        rg_notation_repeat(p, 0, 1);
        return true;
    case '{':
        braces(p);
        return true;
    case '%':
        directive(p);
        return true;
    case '<':
    case '!':
        refuse(p, RG_E_UNSUPPORTED, "tokens (<...>) are not supported");
        return true;
    default:
        break;
    }
    n = name_length(p);
    if (!n)
        refuse(p, RG_E_INPUT, "a character that begins nothing");
    else if (is_head(p, n))
        return false;
    else
        reference(p, n);
    return true;
}

static void define(parser *p)
{
    size_t n = name_length(p);
    uint32_t ref = 0, node;
    rg_named_rule *r;

    if (!n || !is_head(p, n)) {
        refuse(p, RG_E_INPUT, "want a rule: name ::= ...");
        return;
    }
    r = rg_notation_rule(p, p->s + p->at, n);
    if (!r)
        return;
    if (r->defined)
        refuse(p, RG_E_INPUT, "a rule that has been defined before");
    r->defined = true;
    ref = r->ref;
    for (p->at += n; peek(p, 0) != '='; p->at++)
        ;
    p->at++;
    p->atom = false;
    for (blanks(p); !p->f->failed && part(p);)
        blanks(p);
    if (!p->f->failed && p->groups.depth)
        refuse(p, RG_E_INPUT, "a '(' without its ')'");
    if (p->f->failed)
        return;
    node = rg_groups_end(&p->groups);
    rg_form_bind(p->f, ref, node);
}

uint32_t rg_gbnf(rg_form *f, const char *text, size_t n)
{
    uint32_t root = RG_NEVER;
    parser p;

    rg_notation_init(&p, f, text, n);
    for (blanks(&p); !f->failed && p.at < n; blanks(&p))
        define(&p);
    if (!f->failed)
        root = rg_notation_start(&p, "root");
    rg_notation_fini(&p);
    return root;
}
