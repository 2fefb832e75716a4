/* dump.c -- see dump.h. */
#include "cli/dump.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "ops/count/count.h"

/* ---- what there is ---- */

/* Columns that hold whole numbers as their bits: of experts, before their weights; of places of keys. */
static int n_numbers(const rg_watched *w)
{
    return w->kind == RG_OP_ROUTE ? w->cols / 2 : w->kind == RG_OP_CHOOSE_KEYS ? w->cols : 0;
}

static void learn(void *arg, const rg_watched *w)
{
    dump *d = arg;

    if (d->n == d->room) {
        int room = d->room ? 2 * d->room : 64;
        dump_place *more = rg_resize_array(d->places, (size_t)room, sizeof *more);
        d->failed = d->failed || !more;
        if (!more)
            return;
        d->places = more;
        d->room = room;
    }
    d->places[d->n++] = (dump_place){ .layer = w->layer, .act = w->name, .note = w->note,
                                      .n_numbers = n_numbers(w), .cols = w->cols };
}

static bool same_act(const dump_place *a, const dump_place *b)
{
    return !a->note && !b->note && a->layer == b->layer && !strcmp(a->act, b->act);
}

/* A layer's places are neighbours in the list. */
static void number(dump *d)
{
    for (int i = 0; i < d->n; i++)
        for (int k = i + 1; k < d->n && d->places[k].layer == d->places[i].layer; k++)
            if (same_act(&d->places[i], &d->places[k])) {
                d->places[i].again++;
                d->places[k].before++;
            }
}

static bool learn_places(dump *d, const rg_model *m, rg_error *err)
{
    rg_span span = { .n_rows = 1, .adapter = -1 };
    bool is_encoder = !rg_config_has_logits(&m->config);
    rg_batch batch = { .n_rows = 1, .n_spans = 1, .spans = &span, .n_logits = !is_encoder, .n_hidden = is_encoder };
    rg_fwd *f = rg_zalloc(sizeof *f);
    rg_counter counter;
    rg_watch watch;

    if (!f)
        return rg_fail_memory(err, sizeof *f);
    rg_counter_init(&counter, NULL, 0);
    rg_count_fwd(f, &counter, &batch);
    f->reader = rg_watch_init(&watch, f->reader, learn, d);
    rg_model_forward(m, f);
    rg_watch_fini(&watch);
    rg_free(f);
    if (d->failed)
        return rg_fail_memory(err, 2 * (size_t)d->room * sizeof *d->places);
    number(d);
    return true;
}

/* ---- what is asked for ---- */

static bool matches(const dump_place *p, const char *name, size_t n)
{
    char numbered[64];

    if (p->note)
        return false;
    snprintf(numbered, sizeof numbered, "%d.%s", p->layer, p->act);
    return (n == 3 && !strncmp(name, "all", n)) || (n == strlen(p->act) && !strncmp(name, p->act, n)) ||
           (n == strlen(numbered) && !strncmp(name, numbered, n));
}

static bool make_room(dump *d, dump_place *p, rg_error *err)
{
    size_t n;

    if (!rg_mul(d->n_rows, (size_t)p->cols, &n))
        return rg_fail_memory(err, SIZE_MAX);
    if (!p->rows)
        p->rows = rg_array(n, sizeof *p->rows);
    return p->rows || rg_fail_memory(err, n * sizeof *p->rows);
}

static bool refuse(const dump *d, const char *name, size_t n, rg_error *err)
{
    char names[400] = "";
    size_t used = 0;

    for (int i = 0; i < d->n; i++) {
        bool known = d->places[i].note;
        for (int k = 0; k < i && !known; k++)
            known = !d->places[k].note && !strcmp(d->places[k].act, d->places[i].act);
        if (!known && used < sizeof names)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", d->places[i].act);
    }
    return rg_fail(err, RG_E_USAGE, "--watch: this model has no '%.*s'; there are %s; 0.NAME is layer 0's, all is all",
                   n < 40 ? (int)n : 40, name, names);
}

bool dump_plan(dump *d, const rg_model *m, bool hidden, const char *watch, size_t n_rows, rg_error *err)
{
    d->n_rows = n_rows;
    if (!learn_places(d, m, err))
        return false;
    for (int i = 0; hidden && i < d->n; i++)
        if (d->places[i].note && !make_room(d, &d->places[i], err))
            return false;
    for (const char *name = watch; name;) {
        size_t n = strcspn(name, ",");
        bool found = false;
        for (int i = 0; i < d->n; i++)
            if (matches(&d->places[i], name, n)) {
                found = true;
                if (!make_room(d, &d->places[i], err))
                    return false;
            }
        if (!found)
            return refuse(d, name, n, err);
        name = name[n] ? name + n + 1 : NULL;
    }
    return true;
}

const float *dump_last(const dump *d)
{
    for (int i = 0; i < d->n; i++)
        if (d->places[i].note && d->places[i].layer < 0)
            return d->places[i].rows;
    return NULL;
}

/* ---- the steps ---- */

static void see(void *arg, const rg_watched *w)
{
    dump *d = arg;
    RG_ASSERT(d->next < d->n);
    const dump_place *p = &d->places[d->next++];

    RG_ASSERT(p->act == w->name && p->cols == w->cols && w->rows >= d->n_step);
    for (int r = 0; p->rows && r < d->n_step; r++) {
        float *row = p->rows + (d->first + (size_t)r) * (size_t)p->cols;
        memcpy(row, w->data + (size_t)r * (size_t)w->cols, (size_t)p->cols * sizeof *row);
        for (int i = 0; i < p->n_numbers; i++) {
            int32_t number;
            memcpy(&number, &row[i], sizeof number);
            row[i] = number == INT32_MAX ? -1.0f : (float)number; /* the row sees no more keys */
        }
    }
}

const rg_reader *dump_wrap(void *arg, const rg_reader *inner)
{
    dump *d = arg;

    return rg_watch_init(&d->watch, inner, see, d);
}

void dump_step(dump *d, size_t first, int n_step)
{
    d->next = 0;
    d->first = first;
    d->n_step = n_step;
}

/* ---- out ---- */

/* hidden.N; watch.LAYER.NAME is the last value that a layer writes to NAME, watch.LAYER.NAME.K the K-th of several,
 * except the last.  Outside the layers there is no number. */
static void name_of(const dump_place *p, int n_layers, char out[96])
{
    char layer[16] = "", turn[16] = "";

    if (p->layer >= 0)
        snprintf(layer, sizeof layer, "%d.", p->layer);
    if (p->again)
        snprintf(turn, sizeof turn, ".%d", p->before + 1);
    if (p->note)
        snprintf(out, 96, "hidden.%d", p->layer < 0 ? n_layers : p->layer);
    else
        snprintf(out, 96, "watch.%s%.48s%s", layer, p->act, turn);
}

bool dump_declare(const dump *d, const rg_model *m, rg_ckpt_writer *w, rg_error *err)
{
    char name[96];

    for (int i = 0; i < d->n; i++) {
        const dump_place *p = &d->places[i];
        int64_t shape[2] = { (int64_t)d->n_rows, p->cols };
        name_of(p, m->config.n_layers, name);
        if (p->rows && !rg_ckpt_declare(w, name, RG_F32, 2, shape, err))
            return false;
    }
    return true;
}

bool dump_write(const dump *d, rg_ckpt_writer *w, rg_error *err)
{
    for (int i = 0; i < d->n; i++) {
        const dump_place *p = &d->places[i];
        if (p->rows && !rg_ckpt_write(w, p->rows, d->n_rows * (size_t)p->cols * sizeof *p->rows, err))
            return false;
    }
    return true;
}

void dump_fini(dump *d)
{
    for (int i = 0; i < d->n; i++)
        rg_free(d->places[i].rows);
    rg_free(d->places);
    rg_watch_fini(&d->watch);
}
