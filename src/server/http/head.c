/* head.c -- see head.h. */
#include "server/http/head.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"

enum {
    MAX_LENGTH_DIGITS = 19, /* fewer than 2^64 in any case */
    MAX_CHUNK_DIGITS = 16,
    MAX_EXTENSIONS = 16 << 10, /* bytes of chunk extensions of one body */
    MAX_TRAILERS = 8 << 10,
};

/* ---- characters -------------------------------------------------------------------------------------------------- */

static bool is_token_char(unsigned char c)
{
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || (c && strchr("!#$%&'*+-.^_`|~", c));
}

bool rg_is_token(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!is_token_char((unsigned char)s[i]))
            return false;
    return n > 0;
}

/* Values may have blanks, tabs, visible characters and bytes of other encodings. */
static bool is_value_char(unsigned char c)
{
    return c == '\t' || (c >= ' ' && c != 0x7f);
}

static int hex_digit(unsigned char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool same_word(const char *s, size_t n, const char *word)
{
    return strlen(word) == n && !strncasecmp(s, word, n);
}

static bool fail(rg_http_fault *f, int status, const char *why)
{
    f->status = status;
    snprintf(f->why, sizeof f->why, "%s", why);
    return false;
}

/* ---- hosts ------------------------------------------------------------------------------------------------------- */

size_t rg_host_length(const char *s, size_t n)
{
    const char *end = n && *s == '[' ? memchr(s, ']', n) : memchr(s, ':', n);

    return !end ? n : (size_t)(end - s) + (*s == '[');
}

bool rg_is_authority(const char *s, size_t n)
{
    static const char names[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    size_t host = rg_host_length(s, n), port = 0;

    if (!host)
        return false;
    for (size_t i = *s == '['; i < host - (*s == '['); i++)
        if (!s[i] || !strchr(*s == '[' ? "0123456789abcdefABCDEF:." : names, s[i]))
            return false;
    if (*s == '[' && (host < 4 || s[host - 1] != ']'))
        return false;
    if (host == n)
        return true;
    if (s[host] != ':' || n - host > 6)
        return false;
    for (size_t i = host + 1; i < n; i++) {
        if (s[i] < '0' || s[i] > '9')
            return false;
        port = 10 * port + (size_t)(s[i] - '0');
    }
    return port <= 65535;
}

/* An authority without the port that its scheme has anyway. */
static size_t without_default_port(const char *s, size_t n, bool secure)
{
    size_t host = rg_host_length(s, n);
    const char *port = secure ? ":443" : ":80";

    return host + 1 == n || same_word(s + host, n - host, port) ? host : n;
}

/* ---- the request line -------------------------------------------------------------------------------------------- */

static bool read_request_line(rg_head *h, char *s, size_t n)
{
    size_t method = strcspn(s, " "), version = n;

    if (memchr(s, 0, n))
        return fail(&h->fault, 400, "The request line has a NUL in it.");
    if (method == n || !rg_is_token(s, method))
        return fail(&h->fault, 400, "The request line does not begin with a method.");
    while (version > method && s[version - 1] != ' ')
        version--;
    if (version == method + 1)
        return fail(&h->fault, 400, "The request line does not end with a version of HTTP.");
    const char *v = s + version;
    if (n - version != 8 || strncmp(v, "HTTP/", 5) != 0 || v[5] < '0' || v[5] > '9' || v[6] != '.' || v[7] < '0' ||
        v[7] > '9')
        return fail(&h->fault, 400, "The request line does not end with a version of HTTP.");
    if (v[5] != '1' || v[7] > '1')
        return fail(&h->fault, 505, "This server speaks versions 1.0 and 1.1 of HTTP.");
    for (size_t i = method + 1; i < version - 1; i++)
        if ((unsigned char)s[i] <= ' ' || s[i] == 0x7f || s[i] == '#')
            return fail(&h->fault, 400, "The request line's target has a character that no target may have.");
    if (version - 1 <= method + 1)
        return fail(&h->fault, 400, "The request line has no target.");
    h->minor = v[7] - '0';
    s[method] = s[version - 1] = 0;
    h->target = (size_t)(s - h->text.data) + method + 1;
    h->method = ""; /* told at the end: text may still move */
    return true;
}

/* Decode %XX in place, in a query + too; the end of what was written.  What is no code stays as it is. */
static char *decode(char *to, const char *s, size_t n, bool query)
{
    for (size_t i = 0; i < n; i++) {
        int a = s[i] == '%' && i + 2 < n ? hex_digit((unsigned char)s[i + 1]) : -1;
        int b = a >= 0 ? hex_digit((unsigned char)s[i + 2]) : -1;

        if (b >= 0)
            i += 2;
        *to++ = b >= 0 ? (char)(a << 4 | b) : query && s[i] == '+' ? ' ' : s[i];
    }
    return to;
}

/* name=value&... at s to name NUL value NUL in its place, which is never longer; what has no '=' is left out. */
static void read_args(rg_head *h, char *s)
{
    char *to = s;

    h->args = s;
    for (char *at = s, *next; at; at = next) {
        size_t n = strcspn(at, "&"), name = strcspn(at, "=&");

        next = at[n] ? at + n + 1 : NULL;
        if (name == n)
            continue;
        to = decode(to, at, name, true);
        *to++ = 0;
        to = decode(to, at + name + 1, n - name - 1, true);
        *to++ = 0;
    }
    h->args_end = to;
}

/* The target as path and arguments.  The host of a target that has one goes to h->host. */
static bool read_target(rg_head *h, char *t)
{
    static char root[] = "/", all[] = "*"; /* never written to */
    bool options = !strcmp(h->method, "OPTIONS");

    if (strstr(t, "%00"))
        return fail(&h->fault, 400, "The request line's target has a NUL in it.");
    if (!strncasecmp(t, "http://", 7) || !strncasecmp(t, "https://", 8)) {
        char *host = strchr(t, ':') + 3;
        size_t n = strcspn(host, "/?");
        if (!rg_is_authority(host, n))
            return fail(&h->fault, 400, "The request line's target has no valid host.");
        memmove(host - 1, host, n); /* over a slash: room for a NUL before the path */
        host[n - 1] = 0;
        h->host = host - 1;
        t = host + n;
        if (!*t)
            t = options ? all : root;
    } else if (*t != '/' && !(options && !strcmp(t, "*"))) {
        return fail(&h->fault, 400, "The request line's target must be a path, or begin with http://.");
    }
    char *query = strchr(t, '?');
    if (query) {
        *query = 0;
        read_args(h, query + 1);
    }
    h->path = *t ? t : root;
    if (*t && t != root && t != all)
        *decode(t, t, strlen(t), false) = 0;
    return true;
}

/* ---- fields ------------------------------------------------------------------------------------------------------ */

static bool read_field(rg_head *h, char *s, size_t n)
{
    char *colon = memchr(s, ':', n), *value, *end = s + n;

    if (*s == ' ' || *s == '\t')
        return fail(&h->fault, 400, "A header is folded: each must be one line.");
    if (!colon || !rg_is_token(s, (size_t)(colon - s)))
        return fail(&h->fault, 400, "A header line does not begin with a name and a colon.");
    for (value = colon + 1; value < end && (*value == ' ' || *value == '\t'); value++)
        ;
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    for (const char *c = value; c < end; c++)
        if (!is_value_char((unsigned char)*c))
            return fail(&h->fault, 400, "The value of a header has a control character.");
    if (h->n_fields == RG_MAX_FIELDS)
        return fail(&h->fault, 431, "The request has too many headers.");
    *colon = *end = 0;
    h->field[h->n_fields].name = (uint32_t)(s - h->text.data);
    h->field[h->n_fields++].value = (uint32_t)(value - h->text.data);
    return true;
}

const char *rg_head_field(const rg_head *h, const char *name)
{
    for (int32_t i = 0; i < h->n_fields; i++)
        if (!strcasecmp(h->text.data + h->field[i].name, name))
            return h->text.data + h->field[i].value;
    return NULL;
}

const char *rg_head_arg(const rg_head *h, const char *name)
{
    for (const char *s = h->args; s && s < h->args_end;) {
        const char *value = s + strlen(s) + 1;
        if (!strcmp(s, name))
            return value;
        s = value + strlen(value) + 1;
    }
    return NULL;
}

/* Headers that may stand once only: other software might read the second one. */
static const char *const once[] = { "Host",         "Content-Length", "Transfer-Encoding", "Content-Encoding",
                                    "Content-Type", "Expect",         "Authorization",     "X-Api-Key",
                                    "Origin" };

static bool check_once(rg_head *h)
{
    bool seen[RG_LEN(once)] = { false };

    for (int32_t i = 0; i < h->n_fields; i++)
        for (size_t k = 0; k < RG_LEN(once); k++) {
            if (strcasecmp(h->text.data + h->field[i].name, once[k]) != 0)
                continue;
            if (seen[k]) {
                snprintf(h->fault.why, sizeof h->fault.why, "The request has more than one %s header.", once[k]);
                h->fault.status = 400;
                return false;
            }
            seen[k] = true;
        }
    return true;
}

/* ---- what the head says as a whole ------------------------------------------------------------------------------- */

/* h->host is that of the target, or NULL. */
static bool check_host(rg_head *h)
{
    const char *host = rg_head_field(h, "Host"), *target = h->host;
    bool secure = (h->text.data[h->target + 4] | 0x20) == 's'; /* https:// */
    size_t n = host ? strlen(host) : 0;

    if (!host && h->minor)
        return fail(&h->fault, 400, "The request has no Host header.");
    if (host && !rg_is_authority(host, n))
        return fail(&h->fault, 400, "The Host header is not a host with or without a port.");
    if (host && target) {
        n = without_default_port(host, n, secure);
        if (n != without_default_port(target, strlen(target), secure) || strncasecmp(host, target, n) != 0)
            return fail(&h->fault, 400, "The Host header and the host in the request line differ.");
    }
    h->host = host ? host : target;
    return true;
}

/* The next word of a list with commas, without the blanks around it; NULL: no more. */
static const char *next_word(const char **list, size_t *n)
{
    const char *s = *list;

    if (!s)
        return NULL;
    *n = strcspn(s, ",");
    *list = s[*n] ? s + *n + 1 : NULL;
    while (*n && (*s == ' ' || *s == '\t'))
        s++, --*n;
    while (*n && (s[*n - 1] == ' ' || s[*n - 1] == '\t'))
        --*n;
    return s;
}

static bool read_transfer(rg_head *h, const char *value)
{
    bool named = false; /* "chunked" or "identity" in it */
    const char *word;
    size_t n;

    if (!h->minor)
        return fail(&h->fault, 400, "Version 1.0 of HTTP has no Transfer-Encoding.");
    if (!strcasecmp(value, "chunked")) {
        h->chunked = true;
        return true;
    }
    for (const char *list = value; (word = next_word(&list, &n));) {
        if (!rg_is_token(word, n) || named)
            return fail(&h->fault, 400, "The Transfer-Encoding header is malformed.");
        named = same_word(word, n, "chunked") || same_word(word, n, "identity");
    }
    return fail(&h->fault, 501, "The only transfer encoding that is known is chunked.");
}

static bool read_length(rg_head *h, const char *value)
{
    size_t n = strlen(value);

    if (!n || strspn(value, "0123456789") != n)
        return fail(&h->fault, 400, "The Content-Length header is not a number.");
    h->length = n <= MAX_LENGTH_DIGITS ? strtoull(value, NULL, 10) : UINT64_MAX;
    return true;
}

static bool read_framing(rg_head *h)
{
    const char *length = rg_head_field(h, "Content-Length"), *transfer = rg_head_field(h, "Transfer-Encoding");
    const char *encoding = rg_head_field(h, "Content-Encoding"), *expect = rg_head_field(h, "Expect");

    if (length && transfer)
        return fail(&h->fault, 400, "The request has both Content-Length and Transfer-Encoding.");
    if ((length && !read_length(h, length)) || (transfer && !read_transfer(h, transfer)))
        return false;
    if (encoding && *encoding && strcasecmp(encoding, "identity") != 0)
        return fail(&h->fault, 415, "The body must not be compressed.");
    if (expect && h->minor && strcasecmp(expect, "100-continue") != 0)
        return fail(&h->fault, 417, "The only expectation that is known is 100-continue.");
    h->expects = expect && h->minor;
    return true;
}

/* HTTP/1.1 goes on unless told, HTTP/1.0 only if told. */
static void read_connection(rg_head *h)
{
    bool closes = false, keeps = h->minor > 0;

    for (int32_t i = 0; i < h->n_fields; i++) {
        const char *list = h->text.data + h->field[i].value, *word;
        size_t n;

        if (strcasecmp(h->text.data + h->field[i].name, "Connection") != 0)
            continue;
        while ((word = next_word(&list, &n))) {
            closes |= same_word(word, n, "close");
            keeps |= same_word(word, n, "keep-alive");
        }
    }
    h->keeps = keeps && !closes;
}

static void finish(rg_head *h)
{
    h->method = h->text.data;
    if (!read_target(h, h->text.data + h->target) || !check_once(h) || !check_host(h) || !read_framing(h))
        return;
    read_connection(h);
    h->done = true;
}

/* ---- bytes in ---------------------------------------------------------------------------------------------------- */

void rg_head_init(rg_head *h, size_t most)
{
    memset(h, 0, offsetof(rg_head, field)); /* fields come as they are told */
    memset(&h->fault, 0, sizeof *h - offsetof(rg_head, fault));
    rg_buf_init(&h->text, most);
}

void rg_head_fini(rg_head *h)
{
    rg_buf_fini(&h->text);
}

/* The line from h->line to the end of text is whole. */
static void take_line(rg_head *h)
{
    char *s = h->text.data + h->line;
    size_t n = h->text.n - h->line - 1;
    const bool bare = !n || s[n - 1] != '\r';

    if (h->begun ? bare != h->bare : bare && !n) {
        fail(&h->fault, 400, "The lines of the head end in different ways.");
        return;
    }
    h->bare = bare;
    n -= !bare;
    s[n] = 0;
    if (!n && !h->begun) { /* empty lines before a request are skipped */
        rg_buf_reset(&h->text);
        return;
    }
    if (!n) {
        finish(h);
        return;
    }
    bool ok = h->begun ? read_field(h, s, n) : read_request_line(h, s, n);
    h->begun |= ok;
    h->line = h->text.n;
}

/* So many more bytes could not be added. */
static void refuse_size(rg_head *h, size_t more)
{
    if (more <= h->text.cap - h->text.n)
        fail(&h->fault, 503, "The server has no memory for this request.");
    else if (!h->begun)
        fail(&h->fault, 414, "The request line is too long.");
    else
        fail(&h->fault, 431, "The headers are too long.");
}

size_t rg_head_feed(rg_head *h, const char *data, size_t n)
{
    size_t used = 0;

    while (used < n && !h->done && !h->fault.status) {
        const char *from = data + used, *end = memchr(from, '\n', n - used);
        size_t take = end ? (size_t)(end - from) + 1 : n - used;

        if (!h->text.n && *from == 0x16) {
            fail(&h->fault, 400, "This port speaks HTTP without TLS.");
        } else if (!h->text.n && *from != '\r' && *from != '\n' && !is_token_char((unsigned char)*from)) {
            fail(&h->fault, 400, "The request line does not begin with a method.");
        } else if (!rg_buf_add(&h->text, from, take)) {
            refuse_size(h, take);
        } else if (end) {
            take_line(h);
        }
        used += take;
    }
    return used;
}

/* ---- chunks ------------------------------------------------------------------------------------------------------ */

enum {
    AT_SIZE,
    AT_EXTENSION,
    AT_SIZE_LF,
    AT_DATA,
    AT_DATA_CR,
    AT_DATA_LF,
    AT_TRAILER,
    AT_TRAILER_NAME,
    AT_TRAILER_VALUE,
    AT_TRAILER_LF,
    AT_END_LF,
};

void rg_chunks_init(rg_chunks *k)
{
    *k = (rg_chunks){ .state = AT_SIZE };
}

/* A trailer must not say again what the head has said: it is dropped, and other software might not drop it. */
static bool check_trailer_name(rg_chunks *k)
{
    for (size_t i = 0; i < RG_LEN(once); i++)
        if (same_word(k->name, k->n_name, once[i]))
            return fail(&k->fault, 400, "A trailer has a header that only the head may have.");
    return true;
}

static bool take_size(rg_chunks *k, unsigned char c)
{
    int d = hex_digit(c);

    if (d >= 0) {
        if (k->n_digits++ == MAX_CHUNK_DIGITS)
            return fail(&k->fault, 413, "A chunk is larger than this server takes.");
        k->left = k->left << 4 | (uint64_t)d;
        return true;
    }
    if (!k->n_digits || (c != '\r' && c != ';'))
        return fail(&k->fault, 400, "The size of a chunk is not a hexadecimal number and CR LF.");
    k->state = c == ';' ? AT_EXTENSION : AT_SIZE_LF;
    return true;
}

static bool take_trailer(rg_chunks *k, unsigned char c)
{
    static const char malformed[] = "A trailer is not a name, a colon and a value in one line.";

    if (++k->n_trailer > MAX_TRAILERS)
        return fail(&k->fault, 431, "The trailers are too long.");
    if (k->state == AT_TRAILER) {
        k->n_name = 0;
        if (c == '\r') {
            k->state = AT_END_LF;
            return true;
        }
        k->state = AT_TRAILER_NAME;
        if (c == ':')
            return fail(&k->fault, 400, malformed);
    }
    if (k->state == AT_TRAILER_NAME) {
        if (c == ':') {
            k->state = AT_TRAILER_VALUE;
            return check_trailer_name(k);
        }
        if (k->n_name < sizeof k->name)
            k->name[k->n_name++] = (char)c;
        return is_token_char(c) || fail(&k->fault, 400, malformed);
    }
    if (c == '\r')
        k->state = AT_TRAILER_LF;
    return c == '\r' || is_value_char(c) || fail(&k->fault, 400, malformed);
}

static bool take_extension(rg_chunks *k, unsigned char c)
{
    if (++k->n_extension > MAX_EXTENSIONS)
        return fail(&k->fault, 400, "The extensions of chunks are too long.");
    if (c == '\r')
        k->state = AT_SIZE_LF;
    return c == '\r' || is_value_char(c) || fail(&k->fault, 400, "The extension of a chunk has a control character.");
}

static bool expect_byte(rg_chunks *k, unsigned char c, unsigned char want, int next)
{
    k->state = next;
    return c == want || fail(&k->fault, 400, "A line or a chunk of the body does not end with CR LF.");
}

/* One byte that is not the body's. */
static bool take_byte(rg_chunks *k, unsigned char c)
{
    switch (k->state) {
    case AT_SIZE:
        return take_size(k, c);
    case AT_EXTENSION:
        return take_extension(k, c);
    case AT_SIZE_LF:
        return expect_byte(k, c, '\n', k->left ? AT_DATA : AT_TRAILER);
    case AT_DATA_CR:
        return expect_byte(k, c, '\r', AT_DATA_LF);
    case AT_DATA_LF:
        k->n_digits = 0;
        return expect_byte(k, c, '\n', AT_SIZE);
    case AT_TRAILER_LF:
        return expect_byte(k, c, '\n', AT_TRAILER);
    case AT_END_LF:
        k->done = c == '\n';
        return expect_byte(k, c, '\n', AT_END_LF);
    default:
        return take_trailer(k, c);
    }
}

size_t rg_chunks_feed(rg_chunks *k, const char *data, size_t n, const char **body, size_t *n_body)
{
    size_t i = 0;

    *n_body = 0;
    while (i < n && !k->done && k->state != AT_DATA && take_byte(k, (unsigned char)data[i]))
        i++;
    if (k->state == AT_DATA && i < n && !k->fault.status) {
        *body = data + i;
        *n_body = k->left < n - i ? (size_t)k->left : n - i;
        k->left -= *n_body;
        if (!k->left)
            k->state = AT_DATA_CR;
        i += *n_body;
    }
    return i;
}
