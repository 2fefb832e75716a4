/* watch.c -- see watch.h. */
#include "ops/watch/watch.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

static void see(rg_watch *w, rg_fwd *f, const rg_op *op, const rg_act *a)
{
    const float *data = rg_copy_take(&w->copy, f, a);

    if (f->thread == 0)
        w->see(w->arg, &(rg_watched){ .layer = f->layer,
                                      .name = a->name,
                                      .kind = op->kind,
                                      .note = op->kind == RG_OP_NOTE,
                                      .rows = a->rows,
                                      .cols = a->cols,
                                      .data = data });
}

static void run_watch(const rg_reader *self, rg_fwd *f, const rg_op *op)
{
    rg_watch *w = (rg_watch *)(uintptr_t)self; /* ours, and not const: the reader is its first member */

    self->inner->run(self->inner, f, op);
    if (f->guessing)
        return;
    if (op->kind == RG_OP_NOTE)
        see(w, f, op, op->in[0]);
    for (int i = 0; i < 3 && op->out[i]; i++)
        see(w, f, op, op->out[i]);
}

const rg_reader *rg_watch_init(rg_watch *w, const rg_reader *inner, void (*see_fn)(void *arg, const rg_watched *w),
                               void *arg)
{
    *w = (rg_watch){ .reader = { .run = run_watch, .inner = inner }, .see = see_fn, .arg = arg };
    return &w->reader;
}

void rg_watch_fini(rg_watch *w)
{
    rg_copy_fini(&w->copy);
}

/* ---- activation statistics ---- */

typedef struct stat_entry {
    const rg_weight *w;
    uint64_t *n_rows; /* [n_mats] */
    double *sum;      /* [n_mats][cols] */
} stat_entry;

struct rg_act_stats {
    rg_reader reader; /* first */
    stat_entry *entries;
    int n, room;
    bool failed; /* no memory: later weights are not counted */
    rg_copy x, route;
};

static stat_entry *entry_for(rg_act_stats *s, const rg_weight *w)
{
    for (int i = 0; i < s->n; i++)
        if (s->entries[i].w == w)
            return &s->entries[i];
    if (s->n == s->room) {
        int room = s->room ? 2 * s->room : 64;
        stat_entry *e = rg_resize_array(s->entries, (size_t)room, sizeof *e);
        if (!e)
            return NULL;
        s->entries = e;
        s->room = room;
    }
    stat_entry e = { .w = w, .n_rows = rg_array((size_t)w->n_mats, sizeof *e.n_rows),
                     .sum = rg_array((size_t)(w->n_mats * w->cols), sizeof *e.sum) }; /* fits: the matrices are there */
    if (!e.n_rows || !e.sum) {
        rg_free(e.n_rows);
        rg_free(e.sum);
        return NULL;
    }
    s->entries[s->n] = e;
    return &s->entries[s->n++];
}

/* One row of x, times `by`, meets matrix m. */
static void add_row(stat_entry *e, int64_t m, const float *x, float by)
{
    double *sum = e->sum + m * e->w->cols;

    for (int64_t k = 0; k < e->w->cols; k++)
        sum[k] += fabs((double)(x[k] * by));
    e->n_rows[m]++;
}

/* x: what the op reads; route: of a mixture. */
static void add_rows(stat_entry *e, const rg_op *op, const float *x, const float *route)
{
    const int cols = op->in[0]->cols, n_used = route ? op->in[1]->cols / 2 : 0;

    for (int r = 0; r < op->in[0]->rows; r++, x += cols) {
        for (int64_t m = 0; !route && m < e->w->n_mats; m++) /* heads, op->n columns from one to the next */
            add_row(e, m, x + m * op->n, 1.0f);
        for (int k = 0; k < n_used; k++) {
            const float *chosen = route + r * 2 * n_used;
            int32_t expert;

            memcpy(&expert, chosen + k, sizeof expert);
            add_row(e, expert, x, op->routing->weigh_input ? chosen[n_used + k] : 1.0f);
        }
    }
}

/* How many of an op's matrices read in[0]: not the experts' down. */
static int n_readers(const rg_op *op)
{
    int n = 0;

    while (n < 3 && op->w[n])
        n++;
    return op->kind == RG_OP_MOE ? n - 1 : n;
}

static void add_op(rg_act_stats *s, const rg_op *op, const float *x, const float *route)
{
    for (int i = 0; i < n_readers(op); i++) {
        rg_mem_permit(); /* allocations are allowed: this is not a serving step */
        stat_entry *e = x && (route || op->kind != RG_OP_MOE) ? entry_for(s, op->w[i]) : NULL;
        rg_mem_forbid();
        if (e)
            add_rows(e, op, x, route);
        else
            s->failed = true;
    }
}

/* Before the op runs: what it reads may be overwritten by it. */
static void run_stats(const rg_reader *self, rg_fwd *f, const rg_op *op)
{
    rg_act_stats *s = (rg_act_stats *)(uintptr_t)self;

    if (!f->guessing && (op->kind == RG_OP_LINEAR || op->kind == RG_OP_LINEAR_HEADS || op->kind == RG_OP_GATED ||
                         op->kind == RG_OP_MOE)) {
        const float *x = rg_copy_take(&s->x, f, op->in[0]);
        const float *route = op->kind == RG_OP_MOE ? rg_copy_take(&s->route, f, op->in[1]) : NULL;

        if (f->thread == 0)
            add_op(s, op, x, route);
    }
    self->inner->run(self->inner, f, op);
}

rg_act_stats *rg_act_stats_new(rg_error *err)
{
    rg_act_stats *s = rg_zalloc(sizeof *s);

    if (!s)
        rg_fail_memory(err, sizeof *s);
    return s;
}

void rg_act_stats_free(rg_act_stats *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->n; i++) {
        rg_free(s->entries[i].n_rows);
        rg_free(s->entries[i].sum);
    }
    rg_free(s->entries);
    rg_copy_fini(&s->x);
    rg_copy_fini(&s->route);
    rg_free(s);
}

const rg_reader *rg_act_stats_wrap(rg_act_stats *s, const rg_reader *inner)
{
    s->reader = (rg_reader){ .run = run_stats, .inner = inner };
    return &s->reader;
}

bool rg_act_stats_complete(const rg_act_stats *s)
{
    return !s->failed;
}

int rg_act_stats_count(const rg_act_stats *s)
{
    return s->n;
}

rg_act_stat rg_act_stats_at(const rg_act_stats *s, int i)
{
    const stat_entry *e = &s->entries[i];

    return (rg_act_stat){ .name = e->w->name, .n_mats = (int)e->w->n_mats, .n_channels = (int)e->w->cols,
                          .n_rows = e->n_rows, .sum = e->sum };
}
