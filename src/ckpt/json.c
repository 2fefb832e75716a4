/* json.c -- see json.h.  A first pass over the text finds the tokens to rewrite; jansson then parses the text
 * or its rewritten copy. */
#include "ckpt/json.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "ckpt/mistaken.h"

static const char most[] = "9223372036854775807";

static const struct literal {
    const char *text, *rewritten;
} literals[] = {
    { "-Infinity", "\"\\u0001-\"" },
    { "Infinity", "\"\\u0001+\"" },
    { "NaN", "\"\\u0001?\"" },
};

typedef struct scan {
    const char *text;
    size_t n, at;
    char *out; /* NULL: only counting */
    size_t n_out;
    bool rewrite; /* something needs it */
} scan;

static void emit(scan *s, const char *p, size_t n)
{
    if (s->out)
        memcpy(s->out + s->n_out, p, n);
    s->n_out += n;
}

/* From the quote to past the closing one, or to the end. */
static void scan_string(scan *s)
{
    size_t from = s->at++;

    while (s->at < s->n && s->text[s->at] != '"')
        s->at += s->text[s->at] == '\\' ? 2 : 1;
    s->at = s->at < s->n ? s->at + 1 : s->n;
    emit(s, s->text + from, s->at - from);
}

static void scan_number(scan *s)
{
    size_t from = s->at, digits = 0;
    bool real = false;
    const char *last;

    for (; s->at < s->n && strchr("+-.eE0123456789", s->text[s->at]) && s->text[s->at]; s->at++) {
        char c = s->text[s->at];
        digits += c >= '0' && c <= '9';
        real |= c == '.' || c == 'e' || c == 'E';
    }
    emit(s, s->text + from, s->at - from);
    last = s->text + s->at - digits; /* an integer's digits are together, at its end */
    if (!real && (digits > sizeof most - 1 || (digits == sizeof most - 1 && memcmp(last, most, digits) > 0))) {
        s->rewrite = true;
        emit(s, ".0", 2);
    }
}

static bool scan_literal(scan *s)
{
    for (size_t i = 0; i < RG_LEN(literals); i++) {
        size_t n = strlen(literals[i].text);
        if (s->n - s->at >= n && !memcmp(s->text + s->at, literals[i].text, n)) {
            emit(s, literals[i].rewritten, strlen(literals[i].rewritten));
            s->at += n;
            return s->rewrite = true;
        }
    }
    return false;
}

static void scan_all(scan *s)
{
    while (s->at < s->n) {
        char c = s->text[s->at];

        if (c == '"') {
            scan_string(s);
            continue;
        }
        if (scan_literal(s))
            continue;
        if (c == '-' || (c >= '0' && c <= '9')) {
            scan_number(s);
            continue;
        }
        emit(s, &c, 1);
        s->at++;
    }
}

static json_t *load(const char *name, const char *text, size_t n, size_t budget, rg_error *err)
{
    json_error_t why = { 0 };
    json_t *v = rg_json_load_within(text, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL,
                                    &(rg_json_limits){ .bytes = budget, .depth = RG_JSON_DEPTH }, &why);

    if (!v)
        rg_json_fail(name, n, &why, RG_E_INPUT, err);
    return v;
}

json_t *rg_json_parse(const char *name, const char *text, size_t n, rg_error *err)
{
    return rg_json_parse_within(name, text, n, rg_json_budget(n, RG_JSON_TIMES), err);
}

json_t *rg_json_parse_within(const char *name, const char *text, size_t n, size_t bytes, rg_error *err)
{
    scan count = { .text = text, .n = n }, rewrite;
    json_t *v;

    if (n && text[0] != '{' && text[0] != '[' && rg_mistaken_bytes(text, n))
        return rg_fail(err, RG_E_INPUT, "%s: %s", name, rg_mistaken_bytes(text, n)), NULL;
    scan_all(&count);
    if (!count.rewrite)
        return load(name, text, n, bytes, err);
    rewrite = (scan){ .text = text, .n = n, .out = rg_alloc(count.n_out) };
    if (!rewrite.out)
        return rg_fail_memory(err, count.n_out), NULL;
    scan_all(&rewrite);
    v = load(name, rewrite.out, rewrite.n_out, bytes > n ? bytes - n : 0, err);
    rg_free(rewrite.out);
    return v;
}

bool rg_json_not_finite(const json_t *v, double *out)
{
    const char *s = json_string_value(v);

    if (!s || json_string_length(v) != 2 || s[0] != 1)
        return false;
    *out = s[1] == '+' ? (double)INFINITY : s[1] == '-' ? -(double)INFINITY : (double)NAN;
    return true;
}
