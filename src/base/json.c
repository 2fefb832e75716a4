/* json.c -- see json.h.
 *
 * jansson gets the text in pieces of at most a kilobyte, so that it reads little more after a refused allocation.  What
 * it allocates until it stops comes from memory that was reserved before. */
#include "base/json.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum {
    PIECE = 1024,   /* jansson's buffer: bytes that it still reads after a refused allocation */
    PER_BYTE = 256, /* most memory that one byte of text can take: "{" makes an object and its table */
    MORE = 4096,
    OVER_LIMIT = 100, /* in json_error_code's place */
};

static _Thread_local uint64_t n_refused, watched_from;

/* Before main, so that no object is allocated by one allocator and freed by another. */
static void *allocate(size_t bytes)
{
    void *p = rg_alloc_small(bytes);

    n_refused += !p;
    return p;
}

__attribute__((constructor)) static void allocate_from_base(void)
{
    json_set_alloc_funcs(allocate, rg_free_small);
}

uint64_t rg_json_refused(void)
{
    return n_refused;
}

uint64_t rg_json_watch(void)
{
    const uint64_t before = watched_from;

    watched_from = n_refused;
    return before;
}

void rg_json_watch_again(uint64_t watch)
{
    watched_from = watch;
}

bool rg_json_lost(void)
{
    return n_refused != watched_from;
}

void rg_json_lose(void)
{
    n_refused++;
}

typedef struct feed {
    const char *text;
    size_t left;
} feed;

static size_t give(void *buffer, size_t room, void *arg)
{
    feed *f = arg;
    size_t n = f->left < room ? f->left : room;

    if (rg_mem_refused())
        return SIZE_MAX;
    memcpy(buffer, f->text, n);
    f->text += n;
    f->left -= n;
    return n;
}

typedef struct extent {
    size_t depth, values; /* counted by what separates them; an empty list or object counts as two */
    size_t longest;       /* of a token: a string with its quotes, or the text between two delimiters with the first */
} extent;

static void count_delimiter(extent *e, size_t *depth, char c)
{
    if (c == '[' || c == '{') {
        e->values++;
        e->depth = ++*depth > e->depth ? *depth : e->depth;
    } else if (c == ']' || c == '}') {
        *depth -= *depth > 0;
    } else if (c == ',') {
        e->values++;
    }
}

static extent measure(const char *text, size_t n)
{
    extent e = { .values = 1 };
    size_t depth = 0;

    for (size_t at = 0, from; at < n;) {
        from = at++;
        if (text[from] == '"') {
            while (at < n && text[at] != '"')
                at += text[at] == '\\' ? 2 : 1;
            at = at < n ? at + 1 : n;
        } else {
            count_delimiter(&e, &depth, text[from]);
            while (at < n && !strchr(",:[]{}\" \t\r\n", text[at]))
                at++;
        }
        e.longest = at - from > e.longest ? at - from : e.longest;
    }
    return e;
}

size_t rg_json_budget(size_t n, size_t times)
{
    size_t bytes;

    return rg_head_and_items(RG_JSON_SPARE, n, times, &bytes) ? bytes : SIZE_MAX;
}

/* Reserve memory for after a refused allocation, at most `most` in one piece: a token's buffer is doubled, or is as
 * long as the token.  The text, the reserve and the parsed values together stay within `budget`. */
static bool set_aside(size_t longest, size_t n, size_t budget)
{
    size_t most, bytes, used;

    return rg_head_and_items(MORE, longest, 2, &most) &&
           rg_head_and_items((n < PIECE ? n : PIECE) * PER_BYTE, 2, most, &bytes) && rg_add(bytes, n, &used) &&
           rg_mem_reserve(bytes, most, used < budget ? budget - used : 0);
}

/* NULL, with the code and the sentence in *why. */
RG_PRINTF(3, 4) static json_t *refuse(json_error_t *why, int code, const char *fmt, ...)
{
    va_list args;

    if (!why)
        return NULL;
    memset(why, 0, sizeof *why);
    va_start(args, fmt);
    vsnprintf(why->text, sizeof why->text - 1, fmt, args);
    va_end(args);
    why->text[JSON_ERROR_TEXT_LENGTH - 1] = (char)code; /* where jansson keeps it */
    return NULL;
}

bool rg_json_over_limit(const json_error_t *why)
{
    return (int)json_error_code(why) == OVER_LIMIT;
}

void rg_json_fail(const char *name, size_t n, const json_error_t *why, rg_code over, rg_error *err)
{
    if (rg_json_over_limit(why))
        rg_fail(err, over, "%s: a document of %zu bytes: %s", name, n, why->text);
    else if (json_error_code(why) == json_error_out_of_memory)
        rg_fail(err, RG_E_MEMORY, "%s: out of memory for a document of %zu bytes", name, n);
    else
        rg_fail(err, RG_E_INPUT, "%s: line %d: not JSON, or a key twice (%s)", name, why->line, why->text);
    for (char *p = err ? err->text : ""; *p; p++)
        if ((unsigned char)*p < 32 || *p == 127)
            *p = '?';
}

json_t *rg_json_load_within(const char *text, size_t n, size_t flags, const rg_json_limits *limits, json_error_t *why)
{
    feed f = { text, n };
    extent size = measure(text, n);

    if (limits->depth && size.depth > limits->depth)
        return refuse(why, OVER_LIMIT, "it is nested more than %zu deep", limits->depth);
    if (limits->values && size.values > limits->values)
        return refuse(why, OVER_LIMIT, "it has more than %zu values", limits->values);
    bool refused = !set_aside(size.longest, n, limits->bytes), over = false;
    json_t *v = refused ? NULL : json_load_callback(give, &f, flags, why);

    if (!refused && rg_mem_refused()) {
        json_decref(v);
        v = NULL;
        refused = true;
        over = rg_mem_over_budget();
    }
    rg_mem_unreserve();
    if (over)
        return refuse(why, OVER_LIMIT, "it takes more than %zu bytes of memory", limits->bytes);
    n_refused += refused;
    return refused ? refuse(why, json_error_out_of_memory, "out of memory") : v;
}

json_t *rg_json_load(const char *text, size_t n, size_t flags, json_error_t *why)
{
    return rg_json_load_within(text, n, flags, &(rg_json_limits){ .bytes = rg_json_budget(n, RG_JSON_TIMES) }, why);
}

static int add_text(const char *text, size_t n, void *arg)
{
    return rg_buf_add(arg, text, n) ? 0 : -1;
}

char *rg_json_dump(const json_t *v, size_t flags)
{
    rg_buf b;

    rg_buf_init(&b, PTRDIFF_MAX);
    if (json_dump_callback(v, add_text, &b, flags) == 0 && !b.failed)
        return b.data;
    rg_buf_fini(&b);
    n_refused += v != NULL;
    return NULL;
}

bool rg_json_whole(const json_t *v, int64_t *n)
{
    const double most = 9223372036854775808.0; /* 2^63 */
    double x = json_real_value(v);

    if (json_is_integer(v))
        *n = json_integer_value(v);
    else if (json_is_real(v) && x >= -most && x < most && x == (double)(int64_t)x)
        *n = (int64_t)x;
    else
        return false;
    return true;
}
