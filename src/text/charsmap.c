/* charsmap.c -- see charsmap.h. */
#include "text/charsmap.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

/* The fields of a unit, as the darts-clone library lays them out. */
static bool has_leaf(uint32_t u)
{
    return u >> 8 & 1;
}

static uint32_t label(uint32_t u)
{
    return u & (0x80000000U | 0xFF);
}

static uint32_t offset(uint32_t u)
{
    return (u >> 10) << ((u & 0x200U) >> 6);
}

static uint32_t value(uint32_t u)
{
    return u & 0x7FFFFFFFU;
}

rg_charsmap *rg_charsmap_new(const void *blob, size_t n, rg_error *err)
{
    const unsigned char *b = blob;
    rg_charsmap *m;
    size_t size;

    if (n < 4)
        return rg_fail(err, RG_E_INPUT, "a character map of %zu bytes", n), NULL;
    size = (size_t)b[0] | (size_t)b[1] << 8 | (size_t)b[2] << 16 | (size_t)b[3] << 24;
    if (size > n - 4 || size % 4 || size < 4)
        return rg_fail(err, RG_E_INPUT, "a character map whose trie has %zu of %zu bytes", size, n - 4), NULL;
    if (!rg_utf8_valid((const char *)b + 4 + size, n - 4 - size))
        return rg_fail(err, RG_E_INPUT, "a character map whose texts are not UTF-8"), NULL;
    m = rg_zalloc(sizeof *m);
    if (!m || !(m->unit = rg_alloc(size)) || !(m->text = rg_strndup((const char *)b + 4 + size, n - 4 - size))) {
        rg_charsmap_free(m);
        return rg_fail_memory(err, n), NULL;
    }
    m->n_units = size / 4;
    m->n_text = n - 4 - size;
    for (size_t i = 0; i < m->n_units; i++) {
        const unsigned char *u = b + 4 + 4 * i;
        m->unit[i] = (uint32_t)u[0] | (uint32_t)u[1] << 8 | (uint32_t)u[2] << 16 | (uint32_t)u[3] << 24;
    }
    return m;
}

static int sextet(char c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

unsigned char *rg_charsmap_decode(const char *text, size_t n, size_t *n_blob, rg_error *err)
{
    unsigned char *blob = rg_alloc_tail(3, n / 4, 3);
    size_t at = 0, out = 0;
    uint32_t bits = 0;

    if (!blob)
        return rg_fail_memory(err, n), NULL;
    for (; at < n && sextet(text[at]) >= 0; at++) {
        bits = bits << 6 | (uint32_t)sextet(text[at]);
        if (at % 4)
            blob[out++] = (unsigned char)(bits >> (6 - at % 4 * 2));
    }
    if (n % 4 || n - at > 2 || at % 4 == 1 || memcmp(text + at, "==", n - at)) {
        rg_free(blob);
        return rg_fail(err, RG_E_INPUT, "a character map that is not base64 (at byte %zu)", at), NULL;
    }
    *n_blob = out;
    return blob;
}

rg_charsmap *rg_charsmap_base64(const char *text, size_t n, rg_error *err)
{
    size_t n_blob = 0;
    unsigned char *blob = rg_charsmap_decode(text, n, &n_blob, err);
    rg_charsmap *m = blob ? rg_charsmap_new(blob, n_blob, err) : NULL;

    rg_free(blob);
    return m;
}

void rg_charsmap_free(rg_charsmap *m)
{
    if (!m)
        return;
    rg_free(m->unit);
    rg_free(m->text);
    rg_free(m);
}

size_t rg_charsmap_find(const rg_charsmap *m, const char *s, size_t n, bool longest, rg_string *by)
{
    uint32_t at = offset(m->unit[0]), where = 0;
    size_t found = 0;

    for (size_t i = 0; i < n && s[i]; i++) {
        unsigned char c = (unsigned char)s[i];
        uint32_t u;
        at ^= c;
        if (at >= m->n_units || label(u = m->unit[at]) != c)
            break;
        at ^= offset(u);
        if (at >= m->n_units)
            break;
        if (!has_leaf(u))
            continue;
        where = value(m->unit[at]);
        found = i + 1;
        if (!longest)
            break;
    }
    if (!found || where > m->n_text)
        return 0;
    *by = (rg_string){ m->text + where, strnlen(m->text + where, m->n_text - where) };
    while (by->n && ((unsigned char)by->data[0] & 0xC0) == 0x80) { /* into the middle of a character */
        by->data++;
        by->n--;
    }
    return found;
}
