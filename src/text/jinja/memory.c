/* memory.c -- the arena of a template or of a render, its budgets, and how an error is said. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "text/jinja/internal.h"

/* Chunks double.  A render that takes a lot gets huge pages: faults of small ones would cost more than its work. */
enum { CHUNK_MIN = 1 << 13, CHUNK_LARGE = 1 << 21, CHUNK_MAX = 1 << 24 };

struct jj_chunk {
    jj_chunk *next;
    size_t used, room;
    char *data;
};

enum { CHUNK_HEAD = (sizeof(jj_chunk) + 15) / 16 * 16 };

bool jj_fail(jj_ctx *c, const char *fmt, ...)
{
    char text[400];
    va_list args;

    if (c->failed)
        return false;
    c->failed = true;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return rg_fail(c->err, RG_E_INPUT, "chat template, line %u: %s", c->line, text);
}

bool jj_over(jj_ctx *c, const char *what)
{
    if (c->failed)
        return false;
    c->failed = true;
    return rg_fail(c->err, RG_E_LIMIT, "chat template, line %u: %s", c->line, what);
}

bool jj_no_memory(jj_ctx *c, size_t n)
{
    if (c->failed)
        return false;
    c->failed = true;
    return rg_fail_memory(c->err, n);
}

bool jj_over_bytes(jj_ctx *c)
{
    return jj_over(c, "it makes more text than a prompt can hold (20 MiB)");
}

bool jj_charge(jj_ctx *c, size_t n)
{
    if (n > RG_JINJA_BYTES || (c->bytes += n) > RG_JINJA_BYTES)
        return jj_over_bytes(c);
    return true;
}

bool jj_charge_times(jj_ctx *c, size_t n, size_t by)
{
    size_t total;

    return rg_mul(n, by, &total) ? jj_charge(c, total) : jj_over_bytes(c);
}

bool jj_charge_walk(jj_ctx *c, size_t n)
{
    return jj_charge_times(c, n, JJ_WALK);
}

bool jj_step(jj_ctx *c, size_t n)
{
    if (n > RG_JINJA_STEPS || (c->steps += JJ_STEP * (uint32_t)n) > JJ_STEP * RG_JINJA_STEPS)
        return jj_over(c, "it takes too many steps");
    return true;
}

static jj_chunk *chunk_new(jj_ctx *c, size_t need)
{
    size_t room = c->chunks ? 2 * c->chunks->room : CHUNK_MIN;

    room = room > CHUNK_MAX ? CHUNK_MAX : room;
    room = room < need ? need : room;
    /* fits: need was charged, so it is within RG_JINJA_BYTES */
    jj_chunk *k = room < CHUNK_LARGE ? rg_alloc(CHUNK_HEAD + room) : rg_region_new(CHUNK_HEAD + room);
    if (!k)
        return jj_no_memory(c, room), NULL;
    *k = (jj_chunk){ .room = room, .data = (char *)k + CHUNK_HEAD };
    return k;
}

void *jj_alloc(jj_ctx *c, size_t n)
{
    jj_chunk *k = c->chunks;
    size_t need;

    if (!rg_round_up(n, 8, &need))
        return jj_over_bytes(c), NULL;
    if (!jj_charge(c, need))
        return NULL;
    if (!k || k->room - k->used < need) {
        k = chunk_new(c, need);
        if (!k)
            return NULL;
        if (c->chunks && need > c->chunks->room / 4) { /* its own; what is left of the first stays in use */
            k->next = c->chunks->next;
            c->chunks->next = k;
            k->used = need;
            return k->data;
        }
        k->next = c->chunks;
        c->chunks = k;
    }
    void *p = k->data + k->used;
    k->used += need;
    return p;
}

void *jj_alloc_tail(jj_ctx *c, size_t head, size_t n, size_t each)
{
    size_t total;

    return rg_head_and_items(head, n, each, &total) ? jj_alloc(c, total) : (jj_over_bytes(c), NULL);
}

void *jj_array(jj_ctx *c, size_t n, size_t bytes)
{
    void *p = jj_alloc_tail(c, 0, n, bytes);

    if (p)
        memset(p, 0, n * bytes);
    return p;
}

void jj_free_all(jj_ctx *c)
{
    while (c->chunks) {
        jj_chunk *k = c->chunks;
        c->chunks = k->next;
        if (k->room < CHUNK_LARGE)
            rg_free(k);
        else
            rg_region_free(k, CHUNK_HEAD + k->room);
    }
}

bool jj_enter(jj_ctx *c)
{
    if (c->depth >= RG_JINJA_DEPTH)
        return jj_over(c, "values are nested too deep");
    c->depth++;
    return true;
}

void jj_leave(jj_ctx *c)
{
    c->depth--;
}
