/* timer.c -- see timer.h.
 *
 * Every thread notes when it began each operation and when it returned, in a row of its own; between two steps the rows
 * become times. */
#include "ops/watch/timer.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/quantile.h"

enum { MAX_OPS = 8192, MAX_PARTS = 256, MAX_LIKE = 4096, KEPT = 256 };

/* Operations are alike if these are equal. */
typedef struct like {
    int part;
    rg_op_kind kind;
    const char *name; /* of the first output */
    int rows, cols, group; /* of it; of the first input, or 0; of the state that is read or written, or -1 */
} like;

typedef struct entry {
    like of;
    int64_t n; /* times seen, the last KEPT kept */
    double seconds[KEPT];
} entry;

typedef struct stamps {
    int n; /* operations that this thread returned from */
    uint64_t begun[MAX_OPS], ended[MAX_OPS];
} stamps;

struct rg_timer {
    rg_reader reader; /* first */
    int n_threads, part; /* part -1: not between begin and end */
    stamps **threads; /* [n_threads] */
    like ops[MAX_OPS]; /* of this step, by the first thread */
    entry *entries; /* [MAX_LIKE] */
    int n_entries;
    int64_t steps[MAX_PARTS];
    bool incomplete;
};

rg_timer *rg_timer_new(int n_threads, rg_error *err)
{
    rg_timer *t = rg_zalloc(sizeof *t);
    bool ok = t;

    if (t) {
        t->n_threads = n_threads;
        t->part = -1;
        t->threads = rg_zalloc_tail(0, (size_t)n_threads, sizeof *t->threads);
        t->entries = rg_array(MAX_LIKE, sizeof *t->entries);
        ok = t->threads && t->entries;
    }
    for (int i = 0; ok && i < n_threads; i++)
        ok = (t->threads[i] = rg_alloc(sizeof *t->threads[i]));
    if (ok)
        return t;
    rg_timer_free(t);
    return rg_fail_memory(err, sizeof *t + MAX_LIKE * sizeof *t->entries), NULL;
}

void rg_timer_free(rg_timer *t)
{
    if (!t)
        return;
    for (int i = 0; t->threads && i < t->n_threads; i++)
        rg_free(t->threads[i]);
    rg_free(t->threads);
    rg_free(t->entries);
    rg_free(t);
}

/* ---- in a step ---- */

static like like_of(const rg_timer *t, const rg_op *op)
{
    const rg_act *y = op->out[0];

    return (like){ .part = t->part, .kind = op->kind, .name = y ? y->name : "kv", .rows = y ? y->rows : 0,
                   .cols = op->in[0] ? op->in[0]->cols : 0,
                   .group = op->kv ? op->kv->group : op->buffer ? op->buffer->group : -1 };
}

static void run_timer(const rg_reader *self, rg_fwd *f, const rg_op *op)
{
    rg_timer *t = (rg_timer *)(uintptr_t)self; /* ours, and not const: the reader is its first member */
    stamps *own = t->threads[f->thread];
    bool skip = t->part < 0 || op->kind == RG_OP_NOTE || own->n == MAX_OPS - 1; /* full: rg_timer_end sees it */

    if (!skip)
        own->begun[own->n] = rg_now_ns();
    self->inner->run(self->inner, f, op);
    if (skip)
        return;
    if (f->thread == 0)
        t->ops[own->n] = like_of(t, op);
    own->ended[own->n++] = rg_now_ns();
}

const rg_reader *rg_timer_wrap(rg_timer *t, const rg_reader *inner)
{
    t->reader = (rg_reader){ .run = run_timer, .inner = inner };
    return &t->reader;
}

/* ---- between steps ---- */

void rg_timer_begin(rg_timer *t, int part)
{
    t->part = part;
    for (int i = 0; i < t->n_threads; i++)
        t->threads[i]->n = 0;
}

static bool alike(const like *a, const like *b)
{
    return a->part == b->part && a->kind == b->kind && a->rows == b->rows && a->cols == b->cols &&
           a->group == b->group && !strcmp(a->name, b->name);
}

static void keep(rg_timer *t, const like *of, double seconds)
{
    int i = 0;

    while (i < t->n_entries && !alike(&t->entries[i].of, of))
        i++;
    if (i == MAX_LIKE) {
        t->incomplete = true;
        return;
    }
    entry *e = &t->entries[i];
    if (i == t->n_entries) {
        t->n_entries++;
        e->of = *of;
        e->n = 0;
    }
    e->seconds[e->n++ % KEPT] = seconds;
}

void rg_timer_end(rg_timer *t)
{
    int n = t->threads[0]->n, part = t->part;

    t->part = -1;
    if (n == MAX_OPS - 1 || part >= MAX_PARTS) {
        t->incomplete = true;
        return;
    }
    for (int i = 0; i < n; i++) {
        uint64_t begun = 0, ended = 0;
        for (int k = 0; k < t->n_threads; k++) {
            const stamps *s = t->threads[k];
            begun = s->begun[i] > begun ? s->begun[i] : begun;
            ended = s->ended[i] > ended ? s->ended[i] : ended;
        }
        keep(t, &t->ops[i], rg_seconds(begun, ended));
    }
    t->steps[part]++;
}

void rg_timer_reset(rg_timer *t)
{
    t->n_entries = 0;
    t->incomplete = false;
    memset(t->steps, 0, sizeof t->steps);
}

double rg_timer_seconds(const rg_timer *t, const char *kind, const char *name)
{
    double sum = 0, sorted[KEPT];

    for (int i = 0; i < t->n_entries && !t->incomplete; i++) {
        const entry *e = &t->entries[i];
        if (strcmp(rg_op_name(e->of.kind), kind) != 0 || strcmp(e->of.name, name) != 0)
            continue;
        int n = e->n < KEPT ? (int)e->n : KEPT;
        memcpy(sorted, e->seconds, (size_t)n * sizeof *sorted);
        sum += rg_quantile(sorted, n, 0.5) * (double)e->n / (double)t->steps[e->of.part];
    }
    return sum;
}
