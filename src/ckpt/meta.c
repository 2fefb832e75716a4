/* meta.c -- the store behind a checkpoint: entries and tensors found by a dictionary, texts in an arena, and the typed
 * readers of metadata.  Knows neither GGUF nor JSON syntax. */
#include "ckpt/internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/buf.h"
#include "base/mem.h"

enum { ARENA_BLOCK = 1 << 16, TEXT_ITEMS = 8 };

typedef struct rg_arena_block {
    struct rg_arena_block *next;
    size_t room, used;
    _Alignas(16) char data[];
} rg_arena_block;

void *rg_arena_get(rg_arena *a, size_t bytes, rg_error *err)
{
    rg_arena_block *b = a->blocks;
    size_t want;

    if (!rg_add(bytes, (size_t)15, &want) || (want &= ~(size_t)15) > a->cap - a->used)
        return rg_fail(err, RG_E_INPUT, "metadata of more than %zu bytes", a->cap), NULL;
    if (!b || want > b->room - b->used) {
        size_t room = want > ARENA_BLOCK / 4 ? want : ARENA_BLOCK;
        b = rg_alloc_tail(sizeof *b, room, 1);
        if (!b)
            return rg_fail_memory(err, sizeof *b + room), NULL;
        b->room = room;
        b->used = 0;
        /* A block made for one large text is full at once, so it is linked behind the block that still has room. */
        if (room == want && a->blocks) {
            b->next = a->blocks->next;
            a->blocks->next = b;
        } else {
            b->next = a->blocks;
            a->blocks = b;
        }
    }
    b->used += want;
    a->used += want;
    return b->data + b->used - want;
}

char *rg_arena_text(rg_arena *a, const char *s, size_t n, rg_error *err)
{
    return rg_put_text(n < SIZE_MAX ? rg_arena_get(a, n + 1, err) : NULL, s, n);
}

void rg_arena_fini(rg_arena *a)
{
    for (rg_arena_block *b = a->blocks, *next; b; b = next) {
        next = b->next;
        rg_free(b);
    }
    *a = (rg_arena){ .cap = a->cap };
}

const char *rg_name_text(const char *s, size_t n, char out[80])
{
    size_t i;

    for (i = 0; i < n && i < 76; i++)
        out[i] = (unsigned char)s[i] < 32 || (unsigned char)s[i] >= 127 ? '?' : s[i];
    snprintf(out + i, 80 - i, "%s", i < n ? "..." : "");
    return out;
}

bool rg_name_valid(const char *s, size_t n)
{
    size_t at = 0;

    while (at < n) {
        utf8proc_int32_t c;
        utf8proc_ssize_t used = utf8proc_iterate((const utf8proc_uint8_t *)s + at, (utf8proc_ssize_t)(n - at), &c);
        if (used < 1 || c < 32 || c == 127)
            return false;
        at += (size_t)used;
    }
    return n > 0;
}

int rg_gguf_type_bytes(uint32_t type)
{
    static const int bytes[GGUF_TYPE_COUNT] = {
        [GGUF_U8] = 1,  [GGUF_I8] = 1,   [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,
        [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
    };

    return type < GGUF_TYPE_COUNT ? bytes[type] : 0;
}

/* Room for one more of `each` bytes; *p grows by doubling. */
static bool make_room(void **p, size_t n, size_t *room, size_t each, rg_error *err)
{
    size_t more = *room ? *room * 2 : 64, bytes;
    void *q;

    if (n < *room)
        return true;
    if (!rg_mul(more, each, &bytes))
        return rg_fail_memory(err, SIZE_MAX);
    q = rg_resize(*p, bytes);
    if (!q)
        return rg_fail_memory(err, bytes);
    *p = q;
    *room = more;
    return true;
}

bool rg_ckpt_expect_entries(rg_checkpoint *c, size_t n, rg_error *err)
{
    size_t room;

    if (!rg_add(c->n_entries, n, &room))
        return rg_fail_memory(err, SIZE_MAX);
    if (room <= c->entries_room)
        return true;
    rg_entry *p = rg_resize_array(c->entries, room, sizeof *p);
    if (!p)
        return rg_fail_memory(err, room * sizeof *p);
    c->entries = p;
    c->entries_room = room;
    return true;
}

bool rg_ckpt_add_entry(rg_checkpoint *c, const rg_entry *e, size_t n_key, rg_error *err)
{
    void *p = c->entries;
    char text[80];
    rg_entry *to;

    if (rg_dict_get(c->keys, e->key, n_key) >= 0)
        return rg_fail(err, RG_E_INPUT, "key '%s' is there twice", rg_name_text(e->key, n_key, text));
    if (c->n_entries >= INT32_MAX || !make_room(&p, c->n_entries, &c->entries_room, sizeof *c->entries, err))
        return false;
    c->entries = p;
    if (!rg_dict_put(c->keys, e->key, n_key, (int)c->n_entries))
        return rg_fail_memory(err, c->n_entries * sizeof(void *));
    to = &c->entries[c->n_entries++];
    *to = *e;
    return true;
}

bool rg_ckpt_add_tensor(rg_checkpoint *c, const rg_tensor *t, rg_error *err)
{
    size_t room = (size_t)c->tensors_room, n_name = strlen(t->name);
    void *p = c->tensors;
    char text[80];

    if (rg_dict_get(c->names, t->name, n_name) >= 0)
        return rg_fail(err, RG_E_INPUT, "tensor '%s' is there twice", rg_name_text(t->name, n_name, text));
    if (c->n_tensors >= RG_TENSORS_CAP)
        return rg_fail(err, RG_E_INPUT, "more than %d tensors", RG_TENSORS_CAP);
    if (!make_room(&p, (size_t)c->n_tensors, &room, sizeof *c->tensors, err))
        return false;
    c->tensors = p;
    c->tensors_room = (int)room;
    if (!rg_dict_put(c->names, t->name, n_name, c->n_tensors))
        return rg_fail_memory(err, room * sizeof(void *));
    c->tensors[c->n_tensors++] = *t;
    return true;
}

void rg_gguf_scalar(rg_entry *e, const void *p)
{
    union {
        uint8_t u8;
        int8_t i8;
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        uint64_t u64;
        float f32;
        double f64;
    } v;

    memcpy(&v, p, (size_t)rg_gguf_type_bytes(e->gguf_type));
    e->type = RG_META_INT;
    switch (e->gguf_type) {
    case GGUF_U8:
        e->i = v.u8;
        break;
    case GGUF_I8:
        e->i = v.i8;
        break;
    case GGUF_U16:
        e->i = v.u16;
        break;
    case GGUF_I16:
        e->i = v.i16;
        break;
    case GGUF_U32:
        e->i = v.u32;
        break;
    case GGUF_I32:
        e->i = v.i32;
        break;
    case GGUF_F32:
        e->type = RG_META_FLOAT;
        e->f = (double)v.f32;
        break;
    case GGUF_F64:
        e->type = RG_META_FLOAT;
        e->f = v.f64;
        break;
    case GGUF_BOOL:
        e->type = RG_META_BOOL;
        e->i = v.u8;
        break;
    default:
        e->i = (int64_t)v.u64;
        e->beyond = e->gguf_type == GGUF_U64 && v.u64 > INT64_MAX;
        break;
    }
}

/* Element i of an array of numbers or booleans, or of texts, as an entry of its own. */
static rg_entry element(const rg_entry *array, size_t i)
{
    const uint8_t *raw = array->raw;
    rg_entry e = { .key = array->key, .type = RG_META_STRING, .gguf_type = array->gguf_type };

    if (array->gguf_type == GGUF_STRING)
        e.s = array->strings[i];
    else
        rg_gguf_scalar(&e, raw + i * (size_t)rg_gguf_type_bytes(array->gguf_type));
    return e;
}

bool rg_entry_views(rg_arena *a, rg_entry *e, rg_error *err)
{
    int32_t *ints;
    float *floats;
    bool fit = true;

    if (e->gguf_type == GGUF_F32)
        e->floats = e->raw;
    else if (e->gguf_type == GGUF_I32)
        e->ints = e->raw;
    if (!e->ints && e->gguf_type != GGUF_F32 && e->gguf_type != GGUF_F64) {
        ints = rg_arena_get(a, e->n * sizeof *ints, err);
        if (!ints)
            return false;
        for (size_t i = 0; i < e->n && fit; i++) {
            rg_entry one = element(e, i);
            fit = !one.beyond && one.i >= INT32_MIN && one.i <= INT32_MAX;
            ints[i] = (int32_t)one.i;
        }
        e->ints = fit ? ints : NULL;
    }
    if (!e->floats && e->gguf_type != GGUF_BOOL) {
        floats = rg_arena_get(a, e->n * sizeof *floats, err);
        if (!floats)
            return false;
        for (size_t i = 0; i < e->n; i++) {
            rg_entry one = element(e, i);
            floats[i] = one.type == RG_META_FLOAT ? (float)one.f : one.beyond ? (float)(uint64_t)one.i : (float)one.i;
        }
        e->floats = floats;
    }
    return true;
}

const rg_entry *rg_ckpt_entry(const rg_checkpoint *c, const char *key)
{
    int i = rg_dict_get(c->keys, key, strlen(key));

    return i < 0 ? NULL : &c->entries[i];
}

/* The entry of key; or, where key is "array.number", the array's, with its element in *one. */
static rg_entry *look(const rg_checkpoint *c, const char *key, rg_entry *one, const rg_entry **value)
{
    const char *dot = strrchr(key, '.');
    rg_entry *e = (rg_entry *)rg_ckpt_entry(c, key);
    unsigned long long at;
    char *end;
    int i;

    *value = e;
    if (e || !dot || dot[1] < '0' || dot[1] > '9')
        return e;
    i = rg_dict_get(c->keys, key, (size_t)(dot - key));
    at = strtoull(dot + 1, &end, 10);
    if (i < 0 || *end || (dot[1] == '0' && dot[2]))
        return NULL;
    e = &c->entries[i];
    if (e->type != RG_META_ARRAY || e->parent || at >= e->n)
        return NULL;
    *one = element(e, (size_t)at);
    *value = one;
    return e;
}

rg_meta_type rg_meta_type_of(const rg_checkpoint *c, const char *key)
{
    const rg_entry *value;
    rg_entry one;

    return look(c, key, &one, &value) ? value->type : RG_META_NONE;
}

/* For the typed readers: 1 and *value (copied to *one) if the key has a value, 0 if it has none. */
static int take(const rg_checkpoint *c, const char *key, rg_entry *one, const rg_entry **value)
{
    rg_entry *e = look(c, key, one, value);

    if (!e)
        return 0;
    atomic_store_explicit(&e->understood, true, memory_order_relaxed);
    return (*value)->type != RG_META_NULL;
}

static const char *type_name(rg_meta_type type)
{
    static const char *const names[] = { "absent", "null",   "a boolean", "an integer",
                                         "a real", "a text", "an array",  "an object" };

    return names[type];
}

static int wrong_type(const rg_checkpoint *c, const char *key, const rg_entry *e, const char *want, rg_error *err)
{
    rg_fail(err, RG_E_INPUT, "%s: key '%s' is %s, want %s", c->path, key, type_name(e->type), want);
    return -1;
}

int rg_meta_int(const rg_checkpoint *c, const char *key, int64_t min, int64_t max, int64_t *out, rg_error *err)
{
    const rg_entry *e;
    rg_entry one;
    int64_t v;

    if (!take(c, key, &one, &e))
        return 0;
    /* Some writers store integers as reals: a real without a fraction counts as an integer. */
    if (e->type == RG_META_FLOAT && e->f == floor(e->f) && fabs(e->f) < 0x1p53)
        v = (int64_t)e->f;
    else if (e->type == RG_META_INT)
        v = e->i;
    else
        return wrong_type(c, key, e, "an integer", err);
    if (e->beyond || v < min || v > max) {
        char text[32];
        snprintf(text, sizeof text, e->beyond ? "%llu" : "%lld", (long long)v);
        rg_fail(err, RG_E_INPUT, "%s: key '%s' is %s, want %lld to %lld", c->path, key, text, (long long)min,
                (long long)max);
        return -1;
    }
    *out = v;
    return 1;
}

int rg_meta_float(const rg_checkpoint *c, const char *key, double *out, rg_error *err)
{
    const rg_entry *e;
    rg_entry one;

    if (!take(c, key, &one, &e))
        return 0;
    if (e->type != RG_META_FLOAT && e->type != RG_META_INT)
        return wrong_type(c, key, e, "a number", err);
    if (e->type == RG_META_FLOAT && !isfinite(e->f)) {
        rg_fail(err, RG_E_INPUT, "%s: key '%s' is %g, want a finite number", c->path, key, e->f);
        return -1;
    }
    *out = e->type == RG_META_FLOAT ? e->f : e->beyond ? (double)(uint64_t)e->i : (double)e->i;
    return 1;
}

int rg_meta_bool(const rg_checkpoint *c, const char *key, bool *out, rg_error *err)
{
    const rg_entry *e;
    rg_entry one;

    if (!take(c, key, &one, &e))
        return 0;
    if (e->type != RG_META_BOOL)
        return wrong_type(c, key, e, "a boolean", err);
    *out = e->i != 0;
    return 1;
}

int rg_meta_string(const rg_checkpoint *c, const char *key, const char **out, rg_error *err)
{
    const rg_entry *e;
    rg_entry one;

    if (!take(c, key, &one, &e))
        return 0;
    if (e->type != RG_META_STRING)
        return wrong_type(c, key, e, "a text", err);
    if (memchr(e->s.data, 0, e->s.n)) {
        rg_fail(err, RG_E_INPUT, "%s: key '%s' holds a NUL byte", c->path, key);
        return -1;
    }
    *out = e->s.data;
    return 1;
}

int rg_meta_length(const rg_checkpoint *c, const char *key, size_t *n, rg_error *err)
{
    const rg_entry *e;
    rg_entry one;

    if (!take(c, key, &one, &e))
        return 0;
    if (e->type != RG_META_ARRAY)
        return wrong_type(c, key, e, "an array", err);
    *n = e->n;
    return 1;
}

/* An array's view; an empty array is an array of anything. */
static int take_array(const rg_checkpoint *c, const char *key, const rg_entry **e, rg_error *err)
{
    rg_entry one;

    if (!take(c, key, &one, e))
        return 0;
    return (*e)->type == RG_META_ARRAY ? 1 : wrong_type(c, key, *e, "an array", err);
}

static int wrong_elements(const rg_checkpoint *c, const char *key, const char *want, rg_error *err)
{
    rg_fail(err, RG_E_INPUT, "%s: key '%s' is not an array of %s", c->path, key, want);
    return -1;
}

int rg_meta_strings(const rg_checkpoint *c, const char *key, const rg_string **out, size_t *n, rg_error *err)
{
    static const rg_string none;
    const rg_entry *e;
    int got = take_array(c, key, &e, err);

    if (got != 1)
        return got;
    if (e->n && !e->strings)
        return wrong_elements(c, key, "texts", err);
    *out = e->n ? e->strings : &none;
    *n = e->n;
    return 1;
}

int rg_meta_floats(const rg_checkpoint *c, const char *key, const float **out, size_t *n, rg_error *err)
{
    static const float none;
    const rg_entry *e;
    int got = take_array(c, key, &e, err);

    if (got != 1)
        return got;
    if (e->n && !e->floats)
        return wrong_elements(c, key, "numbers", err);
    *out = e->n ? e->floats : &none;
    *n = e->n;
    return 1;
}

int rg_meta_ints(const rg_checkpoint *c, const char *key, const int32_t **out, size_t *n, rg_error *err)
{
    static const int32_t none;
    const rg_entry *e;
    int got = take_array(c, key, &e, err);

    if (got != 1)
        return got;
    if (e->n && !e->ints)
        return wrong_elements(c, key, "integers of 32 bits", err);
    *out = e->n ? e->ints : &none;
    *n = e->n;
    return 1;
}

void rg_meta_understand(const rg_checkpoint *c, const char *key)
{
    rg_entry *e = (rg_entry *)rg_ckpt_entry(c, key);
    size_t n = strlen(key);
    bool below = n && key[n - 1] == '.';

    if (e)
        atomic_store_explicit(&e->understood, true, memory_order_relaxed);
    if (!below && !(e && e->parent))
        return;
    for (size_t i = 0; i < c->n_entries; i++)
        if (!strncmp(c->entries[i].key, key, n) && (below || c->entries[i].key[n] == '.'))
            atomic_store_explicit(&c->entries[i].understood, true, memory_order_relaxed);
}

void rg_meta_each(const rg_checkpoint *c, rg_meta_visit *visit, void *arg)
{
    for (size_t i = 0; i < c->n_entries; i++) {
        const rg_entry *e = &c->entries[i];
        if (!e->parent || e->n == 0)
            visit(arg, e->key, e->type, atomic_load_explicit(&e->understood, memory_order_relaxed));
    }
}

static void add_text(rg_buf *b, const rg_entry *e)
{
    char text[80];

    switch (e->type) {
    case RG_META_NULL:
        rg_buf_str(b, "null");
        break;
    case RG_META_BOOL:
        rg_buf_str(b, e->i ? "true" : "false");
        break;
    case RG_META_INT:
        rg_buf_printf(b, e->beyond ? "%llu" : "%lld", (long long)e->i);
        break;
    case RG_META_FLOAT:
        rg_buf_printf(b, "%.9g", e->f);
        break;
    case RG_META_STRING:
        rg_buf_str(b, rg_name_text(e->s.data, e->s.n, text));
        break;
    case RG_META_ARRAY:
        rg_buf_str(b, "[");
        for (size_t i = 0; i < e->n && i < TEXT_ITEMS && !e->parent; i++) {
            rg_entry one = element(e, i);
            rg_buf_str(b, i ? ", " : "");
            add_text(b, &one);
        }
        rg_buf_printf(b, e->n > TEXT_ITEMS || e->parent ? " ... %zu in all]" : "]", e->n);
        break;
    default:
        rg_buf_printf(b, "{%zu}", e->n);
    }
}

void rg_meta_text(const rg_checkpoint *c, const char *key, char *out, size_t room)
{
    const rg_entry *e;
    rg_entry one;
    rg_buf b;

    if (!room)
        return;
    rg_buf_init(&b, 4096);
    if (look(c, key, &one, &e))
        add_text(&b, e);
    snprintf(out, room, "%s", b.data ? b.data : "");
    rg_buf_fini(&b);
}
