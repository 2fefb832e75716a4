/* json.c -- see json.h. */
#include "server/json.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"

char *rg_body_dump(const json_t *v)
{
    return rg_json_dump(v, JSON_COMPACT | JSON_ENCODE_ANY);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Values are counted by what separates them, so a value more at most. */
static bool within_budget(const char *text, size_t n, rg_error *err)
{
    size_t depth = 0, values = 1;

    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (c == '"') {
            for (i++; i < n && text[i] != '"'; i++)
                i += text[i] == '\\';
        } else if (c == '[' || c == '{') {
            depth++;
            values++;
        } else if (c == ']' || c == '}') {
            depth -= depth > 0;
        } else if (c == ',') {
            values++;
        }
        if (depth > RG_BODY_DEPTH)
            return rg_fail(err, RG_E_INPUT, "The JSON body is nested more than %d deep.", RG_BODY_DEPTH);
        if (values > RG_BODY_VALUES)
            return rg_fail(err, RG_E_INPUT, "The JSON body has more than %d values.", RG_BODY_VALUES);
    }
    return true;
}

json_t *rg_body_parse(const char *text, size_t n, rg_error *err)
{
    json_error_t why = { 0 };
    json_t *v;

    if (!n)
        return rg_fail(err, RG_E_INPUT, "The request has no body: want a JSON object."), NULL;
    if (!within_budget(text, n, err))
        return NULL;
    v = rg_json_load(text, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &why);
    if (v)
        return v;
    switch ((int)json_error_code(&why)) {
    case json_error_duplicate_key:
        rg_fail(err, RG_E_INPUT, "The JSON body has a key twice in one object (line %d).", why.line);
        break;
    case json_error_numeric_overflow:
        rg_fail(err, RG_E_INPUT, "The JSON body has a number that is too large (line %d).", why.line);
        break;
    case json_error_invalid_utf8:
        rg_fail(err, RG_E_INPUT, "The JSON body is not UTF-8 (line %d).", why.line);
        break;
    case RG_JSON_OVER_BUDGET:
        rg_fail(err, RG_E_INPUT, "The JSON body has too many small values: %s.", why.text);
        break;
    case json_error_out_of_memory:
        rg_fail(err, RG_E_MEMORY, "There is no memory for the JSON body.");
        break;
    default:
        rg_fail(err, RG_E_INPUT, "The body is not valid JSON (line %d, column %d).", why.line, why.column);
    }
    return NULL;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static void escape(rg_buf *b, const char *s, size_t n)
{
    static const char hex[] = "0123456789abcdef";
    size_t from = 0;

    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c >= ' ' && c != '"' && c != '\\' && c != 0x7f)
            continue;
        char out[7] = { '\\', 'u', '0', '0', hex[c >> 4], hex[c & 15], 0 };
        if (c == '"' || c == '\\' || c == '\n' || c == '\r' || c == '\t') {
            out[1] = c == '\n' ? 'n' : c == '\r' ? 'r' : c == '\t' ? 't' : (char)c;
            out[2] = 0;
        }
        rg_buf_add(b, s + from, i - from);
        rg_buf_str(b, out);
        from = i + 1;
    }
    rg_buf_add(b, s + from, n - from);
}

static void quote(rg_buf *b, const char *s, size_t n)
{
    rg_buf_add(b, "\"", 1);
    if (rg_utf8_valid(s, n)) {
        escape(b, s, n);
    } else {
        rg_buf mended;
        rg_buf_init(&mended, 3 * n + 16);
        if (rg_utf8_lossy(&mended, s, n))
            escape(b, mended.data ? mended.data : "", mended.n);
        else
            b->failed = true;
        rg_buf_fini(&mended);
    }
    rg_buf_add(b, "\"", 1);
}

/* A comma unless something was just opened, and the key. */
static void begin(rg_buf *b, const char *key)
{
    char last = b->n ? b->data[b->n - 1] : 0;

    if (last && last != '{' && last != '[' && last != ' ' && last != '\n')
        rg_buf_add(b, ",", 1);
    if (key) {
        quote(b, key, strlen(key));
        rg_buf_add(b, ":", 1);
    }
}

void rg_out_open(rg_buf *b, const char *key, char bracket)
{
    begin(b, key);
    rg_buf_add(b, &bracket, 1);
}

void rg_out_close(rg_buf *b, char bracket)
{
    rg_buf_add(b, &bracket, 1);
}

void rg_out_string(rg_buf *b, const char *key, const char *s, size_t n)
{
    begin(b, key);
    quote(b, s ? s : "", s ? n : 0);
}

void rg_out_text(rg_buf *b, const char *key, const char *s)
{
    if (s)
        rg_out_string(b, key, s, strlen(s));
    else
        rg_out_null(b, key);
}

void rg_out_int(rg_buf *b, const char *key, int64_t v)
{
    begin(b, key);
    rg_buf_printf(b, "%lld", (long long)v);
}

void rg_out_real(rg_buf *b, const char *key, double v)
{
    begin(b, key);
    if (isfinite(v))
        rg_buf_printf(b, "%.9g", v);
    else
        rg_buf_str(b, "null");
}

void rg_out_bool(rg_buf *b, const char *key, bool v)
{
    begin(b, key);
    rg_buf_str(b, v ? "true" : "false");
}

void rg_out_null(rg_buf *b, const char *key)
{
    begin(b, key);
    rg_buf_str(b, "null");
}

void rg_out_raw(rg_buf *b, const char *key, const char *json, size_t n)
{
    begin(b, key);
    rg_buf_add(b, json, n);
}

void rg_out_value(rg_buf *b, const char *key, const json_t *v)
{
    char *s = v ? rg_body_dump(v) : NULL;

    if (s)
        rg_out_raw(b, key, s, strlen(s));
    else if (v)
        b->failed = true;
    else
        rg_out_null(b, key);
    rg_free(s);
}

void rg_event_open(rg_buf *b, const char *name)
{
    if (name) {
        rg_buf_str(b, "event: ");
        rg_buf_str(b, name);
        rg_buf_str(b, "\n");
    }
    rg_buf_str(b, "data: ");
}

void rg_event_close(rg_buf *b)
{
    rg_buf_str(b, "\n\n");
}
