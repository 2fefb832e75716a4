/* json_write.c -- see json_write.h. */
#include "base/json_write.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"

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

void rg_out_u64(rg_buf *b, const char *key, uint64_t v)
{
    begin(b, key);
    rg_buf_printf(b, "%llu", (unsigned long long)v);
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
    char *s = v ? rg_json_dump(v, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;

    if (s)
        rg_out_raw(b, key, s, strlen(s));
    else if (v)
        b->failed = true;
    else
        rg_out_null(b, key);
    rg_free(s);
}
