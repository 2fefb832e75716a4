/* lex.c -- see lex.h.  Follows the regular expressions of Jinja's own lexer, with trim_blocks and lstrip_blocks on and
 * one line break at the end of the source left out. */
#include "text/jinja/lex.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

bool jj_lexer_init(jj_lexer *x, jj_ctx *c, const char *source, size_t n)
{
    char *copy = jj_alloc_tail(c, n, 1, 1);
    size_t k = 0;

    if (!copy)
        return false;
    if (!rg_utf8_valid(source, n))
        return jj_fail(c, "the template is not UTF-8");
    for (size_t i = 0; i < n; i++) {
        if (source[i] == '\r' && i + 1 < n && source[i + 1] == '\n')
            continue;
        copy[k++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (k && copy[k - 1] == '\n')
        k--;
    copy[k] = 0;
    *x = (jj_lexer){ .c = c, .src = copy, .n = k, .line = 1, .line_start = true };
    return true;
}

static bool space_at(const jj_lexer *x, size_t at, size_t *n)
{
    uint32_t code;
    if (at < x->n && (unsigned char)x->src[at] < 128) {
        *n = 1;
        return x->src[at] == ' ' || (x->src[at] < ' ' && jj_is(JJ_SPACE, (uint32_t)x->src[at]));
    }
    int k = at < x->n ? rg_utf8_decode(x->src + at, x->n - at, &code) : 0;
    *n = (size_t)k;
    return k > 0 && jj_is(JJ_SPACE, code);
}

static size_t skip_space(const jj_lexer *x, size_t at)
{
    size_t n;

    while (space_at(x, at, &n))
        at += n;
    return at;
}

static size_t skip_space_back(const jj_lexer *x, size_t from, size_t at)
{
    while (at > from) {
        size_t k = at - 1, n;
        while (k > from && ((unsigned char)x->src[k] & 0xc0) == 0x80)
            k--;
        if (!space_at(x, k, &n))
            break;
        at = k;
    }
    return at;
}

static void advance(jj_lexer *x, size_t to)
{
    for (; x->at < to; x->at++)
        x->line += x->src[x->at] == '\n';
    x->line_start = to && x->src[to - 1] == '\n';
    x->c->line = x->line;
}

static bool has(const jj_lexer *x, size_t at, const char *what)
{
    size_t n = strlen(what);

    return at + n <= x->n && !memcmp(x->src + at, what, n);
}

/* Past "-%}" and the white space after it, "+%}", or "%}" and one line break; `at` if none of them stands there. */
static size_t tag_end(const jj_lexer *x, size_t at, const char *close, bool plus)
{
    if (x->src[at] == '-' && has(x, at + 1, close))
        return skip_space(x, at + 3);
    if (plus && x->src[at] == '+' && has(x, at + 1, close))
        return at + 3;
    if (!has(x, at, close))
        return at;
    return at + 2 + (plus && at + 2 < x->n && x->src[at + 2] == '\n');
}

/* {% raw %}: past it, else `at`.  The sign after {% is left to the caller. */
static size_t raw_begin(const jj_lexer *x, size_t at)
{
    size_t k = at + 2;

    if (!has(x, at, "{%"))
        return at;
    k = skip_space(x, k + (x->src[k] == '-' || x->src[k] == '+'));
    if (!has(x, k, "raw"))
        return at;
    k = skip_space(x, k + 3);
    if (has(x, k, "-%}"))
        return skip_space(x, k + 3);
    return has(x, k, "%}") ? k + 2 : at;
}

/* The text up to a tag, as the tag wants it stripped. */
static void strip_before(const jj_lexer *x, size_t from, size_t tag, bool variable, size_t *end)
{
    char sign = tag + 2 < x->n ? x->src[tag + 2] : 0;
    size_t line = tag;

    *end = tag;
    if (sign == '-') {
        *end = skip_space_back(x, from, tag);
    } else if (sign != '+' && !variable) {
        while (line > from && x->src[line - 1] != '\n')
            line--;
        if ((line > from || x->line_start) && skip_space(x, line) >= tag)
            *end = line;
    }
}

static bool give_data(jj_lexer *x, jj_token *t, size_t from, size_t end, size_t next)
{
    *t = (jj_token){ .type = JT_DATA, .line = x->line, .s = x->src + from, .n = end - from };
    advance(x, next);
    return true;
}

/* After {% raw %}: the text up to {% endraw %}. */
static bool lex_raw(jj_lexer *x, jj_token *t)
{
    size_t from = x->at, end;

    for (size_t at = from; at < x->n; at++) {
        const char *p = memchr(x->src + at, '{', x->n - at);
        if (!p)
            break;
        at = (size_t)(p - x->src);
        if (!has(x, at, "{%"))
            continue;
        size_t k = at + 2;
        k = skip_space(x, k + (x->src[k] == '-' || x->src[k] == '+'));
        if (!has(x, k, "endraw"))
            continue;
        k = skip_space(x, k + 6);
        size_t past = tag_end(x, k, "%}", true);
        if (past == k)
            continue;
        strip_before(x, from, at, false, &end);
        return give_data(x, t, from, end, past);
    }
    return jj_fail(x->c, "missing end of raw directive");
}

static bool lex_comment(jj_lexer *x)
{
    for (size_t at = x->at;; at++) {
        const char *p = at < x->n ? memchr(x->src + at, '#', x->n - at) : NULL;
        if (!p)
            return jj_fail(x->c, "missing end of comment tag");
        at = (size_t)(p - x->src);
        if (!has(x, at, "#}"))
            continue;
        if (at > x->at && (x->src[at - 1] == '-' || x->src[at - 1] == '+'))
            at--;
        advance(x, tag_end(x, at, "#}", true));
        return true;
    }
}

static size_t find_tag(const jj_lexer *x, size_t at)
{
    while (at < x->n) {
        const char *p = memchr(x->src + at, '{', x->n - at);
        if (!p)
            break;
        at = (size_t)(p - x->src);
        char next = at + 1 < x->n ? x->src[at + 1] : 0;
        if (next == '{' || next == '%' || next == '#')
            return at;
        at++;
    }
    return x->n;
}

static bool lex_between(jj_lexer *x, jj_token *t)
{
    for (;;) {
        size_t from = x->at, tag = x->at_tag ? x->at : find_tag(x, x->at), end = tag, past;
        if (tag == x->n && from == x->n) {
            *t = (jj_token){ .type = JT_EOF, .line = x->line };
            return true;
        }
        if (!x->at_tag) {
            if (tag < x->n)
                strip_before(x, from, tag, x->src[tag + 1] == '{', &end);
            give_data(x, t, from, end, tag);
            x->at_tag = tag < x->n;
            if (end > from)
                return true;
            continue;
        }
        x->at_tag = false;
        char kind = x->src[tag + 1], sign = tag + 2 < x->n ? x->src[tag + 2] : 0;
        past = raw_begin(x, tag);
        if (past > tag) {
            advance(x, past);
            return lex_raw(x, t);
        }
        advance(x, tag + 2 + (sign == '-' || sign == '+'));
        if (kind == '#') {
            if (!lex_comment(x))
                return false;
            continue;
        }
        x->inside = kind == '%' ? JT_BLOCK_BEGIN : JT_VAR_BEGIN;
        *t = (jj_token){ .type = x->inside, .line = x->line };
        return true;
    }
}

/* ---- inside a tag ---- */

static bool is_digit(char ch)
{
    return ch >= '0' && ch <= '9';
}

/* (\d+_)*\d+ from `at`: past it. */
static size_t digits(const jj_lexer *x, size_t at)
{
    const char *p = x->src;

    while (at < x->n && (is_digit(p[at]) || (p[at] == '_' && at && is_digit(p[at - 1]) && is_digit(p[at + 1]))))
        at++;
    return at;
}

static bool put_number(jj_lexer *x, size_t end, jj_token *t)
{
    char text[400];
    size_t n = 0;
    int base = 10, skip = 0;

    for (size_t i = x->at; i < end; i++) {
        if (x->src[i] == '_')
            continue;
        if (n == sizeof text - 1)
            return jj_fail(x->c, "a number of too many digits");
        text[n++] = x->src[i];
    }
    text[n] = 0;
    advance(x, end);
    if (t->type == JT_FLOAT) {
        t->f = strtod(text, NULL);
        return true;
    }
    if (n > 1 && text[0] == '0' && !is_digit(text[1])) {
        base = (text[1] | 32) == 'x' ? 16 : (text[1] | 32) == 'o' ? 8 : 2;
        skip = 2;
    }
    errno = 0;
    t->i = strtoll(text + skip, NULL, base);
    return !errno || jj_fail(x->c, "an integer beyond 64 bits: %.40s", text);
}

/* 0x, 0o, 0b and digits of that kind from `at`: past them, or `at`. */
static size_t prefixed(const jj_lexer *x, size_t at)
{
    static const char *const kinds[] = { "b01", "o01234567", "x0123456789abcdefABCDEF" };
    char kind = at + 1 < x->n ? (char)(x->src[at + 1] | 32) : 0;
    size_t k = at + 2;

    for (size_t i = 0; i < RG_LEN(kinds); i++) {
        if (x->src[at] != '0' || kinds[i][0] != kind)
            continue;
        while (k < x->n && x->src[k] && (strchr(kinds[i] + 1, x->src[k]) ||
                                         (x->src[k] == '_' && x->src[k + 1] && strchr(kinds[i] + 1, x->src[k + 1]))))
            k++;
        return k > at + 2 ? k : at;
    }
    return at;
}

static bool lex_number(jj_lexer *x, jj_token *t)
{
    size_t whole = digits(x, x->at), end = whole, e;

    t->type = JT_INT;
    if (x->at == 0 || x->src[x->at - 1] != '.') {
        if (end + 1 < x->n && x->src[end] == '.' && is_digit(x->src[end + 1]))
            end = digits(x, end + 1);
        e = end;
        if (e < x->n && (x->src[e] | 32) == 'e') {
            e += 1 + (x->src[e + 1] == '+' || x->src[e + 1] == '-');
            if (e < x->n && is_digit(x->src[e]))
                end = digits(x, e);
        }
    }
    if (end > whole) {
        t->type = JT_FLOAT;
        return put_number(x, end, t);
    }
    end = prefixed(x, x->at);
    if (end == x->at && x->src[x->at] == '0') /* 0, 00: but no other digit follows a zero */
        for (end = x->at + 1; end < whole && (x->src[end] == '0' || x->src[end] == '_'); end++)
            ;
    return put_number(x, end == x->at ? whole : end, t);
}

static bool lex_name(jj_lexer *x, jj_token *t)
{
    size_t end = x->at;
    uint32_t code;
    int n;

    while ((x->src[end] | 32) >= 'a' && (x->src[end] | 32) <= 'z')
        end++;
    while (end < x->n && (n = rg_utf8_decode(x->src + end, x->n - end, &code)) > 0 &&
           (code == '_' || jj_is(JJ_ALNUM, code)))
        end += (size_t)n;
    if (end == x->at)
        return jj_fail(x->c, "unexpected character '%.*s'", rg_utf8_decode(x->src + end, x->n - end, &code),
                       x->src + end);
    t->type = JT_NAME;
    t->s = x->src + x->at;
    t->n = end - x->at;
    advance(x, end);
    return true;
}

static int hex_value(const char *p, size_t left, int n, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < n; i++) {
        int d = (size_t)i < left && is_digit(p[i]) ? p[i] - '0'
                : (size_t)i < left && (p[i] | 32) >= 'a' && (p[i] | 32) <= 'f' ? (p[i] | 32) - 'a' + 10 : -1;
        if (d < 0)
            return 0;
        *out = *out * 16 + (uint32_t)d;
    }
    return n;
}

/* An escape after its backslash: bytes read; its bytes to out. */
static int unescape(jj_lexer *x, const char *p, size_t left, char *out, int *n_out)
{
    static const char letters[] = "nrtabfv\\'\"", means[] = "\n\r\t\a\b\f\v\\'\"";
    const char *found = *p ? strchr(letters, *p) : NULL;
    uint32_t code = 0;
    int read = 0;

    *n_out = 1;
    if (found)
        return *out = means[found - letters], 1;
    if (*p == '\n')
        return *n_out = 0, 1;
    if (*p >= '0' && *p <= '7') {
        for (; read < 3 && (size_t)read < left && p[read] >= '0' && p[read] <= '7'; read++)
            code = 8 * code + (uint32_t)(p[read] - '0');
    } else if (*p == 'x' || *p == 'u' || *p == 'U') {
        read = 1 + hex_value(p + 1, left - 1, *p == 'x' ? 2 : *p == 'u' ? 4 : 8, &code);
        if (read == 1)
            return jj_fail(x->c, "a string with a truncated \\%c escape", *p), -1;
    } else if (*p == 'N') {
        return jj_fail(x->c, "characters by name, \\N{...}, are not supported"), -1;
    } else { /* no escape: the backslash stays, and what follows it is read as it is */
        return *out = '\\', 0;
    }
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        return jj_fail(x->c, "a string with an escape that is no character"), -1;
    *n_out = rg_utf8_encode(code, out);
    return read;
}

static bool lex_string(jj_lexer *x, jj_token *t)
{
    char quote = x->src[x->at], *out;
    size_t end = x->at + 1, from = end, n = 0;
    bool escaped = false;

    while (end < x->n && x->src[end] != quote) {
        escaped |= x->src[end] == '\\';
        end += x->src[end] == '\\' ? 2 : 1;
    }
    if (end >= x->n)
        return jj_fail(x->c, "a string that is not closed");
    t->type = JT_STRING;
    t->s = x->src + from;
    t->n = end - from;
    if (escaped) {
        out = jj_alloc_tail(x->c, 4, end - from, 2);
        if (!out)
            return false;
        for (size_t i = from; i < end;) {
            int n_out = 1, k;
            if (x->src[i] != '\\') {
                out[n++] = x->src[i++];
                continue;
            }
            k = unescape(x, x->src + i + 1, end - i - 1, out + n, &n_out);
            if (k < 0)
                return false;
            n += (size_t)n_out;
            i += 1 + (size_t)k;
        }
        t->s = out;
        t->n = n;
    }
    advance(x, end + 1);
    return true;
}

static const struct sign {
    char text[3];
    jj_tok type;
} signs[] = {
    { "//", JT_FLOORDIV }, { "**", JT_POW }, { "==", JT_EQ }, { "!=", JT_NE }, { ">=", JT_GE }, { "<=", JT_LE },
    { "+", JT_ADD }, { "-", JT_SUB }, { "/", JT_DIV }, { "*", JT_MUL }, { "%", JT_MOD }, { "~", JT_TILDE },
    { "[", JT_LBRACKET }, { "]", JT_RBRACKET }, { "(", JT_LPAREN }, { ")", JT_RPAREN }, { "{", JT_LBRACE },
    { "}", JT_RBRACE }, { ">", JT_GT }, { "<", JT_LT }, { "=", JT_ASSIGN }, { ".", JT_DOT }, { ":", JT_COLON },
    { "|", JT_PIPE }, { ",", JT_COMMA }, { ";", JT_SEMICOLON },
};

static bool balance(jj_lexer *x, jj_tok type)
{
    char close = type == JT_LPAREN ? ')' : type == JT_LBRACKET ? ']' : type == JT_LBRACE ? '}' : 0;
    char is = type == JT_RPAREN ? ')' : type == JT_RBRACKET ? ']' : type == JT_RBRACE ? '}' : 0;

    if (close) {
        if (x->n_open == RG_JINJA_DEPTH)
            return jj_over(x->c, "brackets are nested too deep");
        x->open[x->n_open++] = close;
    } else if (is) {
        if (!x->n_open)
            return jj_fail(x->c, "unexpected '%c'", is);
        if (x->open[--x->n_open] != is)
            return jj_fail(x->c, "unexpected '%c', expected '%c'", is, x->open[x->n_open]);
    }
    return true;
}

static bool lex_inside(jj_lexer *x, jj_token *t)
{
    bool block = x->inside == JT_BLOCK_BEGIN;

    for (size_t k;; advance(x, k)) {
        if (!x->n_open && x->at < x->n) {
            size_t past = tag_end(x, x->at, block ? "%}" : "}}", block);
            if (past > x->at) {
                *t = (jj_token){ .type = block ? JT_BLOCK_END : JT_VAR_END, .line = x->line };
                x->inside = JT_EOF;
                advance(x, past);
                return true;
            }
        }
        k = skip_space(x, x->at);
        if (k == x->at)
            break;
    }
    *t = (jj_token){ .line = x->line };
    if (x->at >= x->n)
        return true; /* the end, inside a tag */
    if (is_digit(x->src[x->at]))
        return lex_number(x, t);
    if (x->src[x->at] == '\'' || x->src[x->at] == '"')
        return lex_string(x, t);
    for (size_t i = 0; i < RG_LEN(signs); i++) {
        if (x->src[x->at] != signs[i].text[0] || !has(x, x->at, signs[i].text))
            continue;
        t->type = signs[i].type;
        advance(x, x->at + strlen(signs[i].text));
        return balance(x, t->type);
    }
    return lex_name(x, t);
}

bool jj_lex(jj_lexer *x, jj_token *t)
{
    x->c->line = x->line;
    return x->inside == JT_EOF ? lex_between(x, t) : lex_inside(x, t);
}

const char *jj_token_name(const jj_token *t, char out[64])
{
    static const char *const names[] = { "end of template", "text", "begin of print statement",
                                         "end of print statement", "begin of statement block",
                                         "end of statement block" };

    if (t->type <= JT_BLOCK_END)
        return names[t->type];
    if (t->type == JT_NAME)
        snprintf(out, 64, "%.*s", t->n < 60 ? (int)t->n : 60, t->s);
    else
        snprintf(out, 64, "%s", t->type == JT_STRING ? "string" : t->type == JT_INT ? "integer" : "float");
    for (size_t i = 0; i < RG_LEN(signs); i++)
        if (signs[i].type == t->type)
            return signs[i].text;
    return out;
}
