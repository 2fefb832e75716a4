/* results.c -- see results.h. */
#include "shrink/results.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"

enum { PATH_ROOM = 4096, NAME_ROOM = 64, N_FACTS = 8 };

struct rg_results {
    char dir[PATH_ROOM];
    const rg_weight_set *set;
    int layer; /* whose file is open */
    rg_checkpoint *open;
};

static bool path_of(const rg_results *r, const char *name, char out[PATH_ROOM], rg_error *err)
{
    return rg_path_join(out, PATH_ROOM, r->dir, name) || rg_fail(err, RG_E_USAGE, "%s: the path is too long", r->dir);
}

static void layer_name(int layer, char out[NAME_ROOM])
{
    snprintf(out, NAME_ROOM, "layer-%04d.safetensors", layer);
}

/* The file "job" has the number of what is done here. */
static bool check_job(rg_results *r, uint64_t job, rg_error *err)
{
    char path[PATH_ROOM], want[32];
    size_t n;

    if (!path_of(r, "job", path, err))
        return false;
    snprintf(want, sizeof want, "%016" PRIx64 "\n", job);
    if (rg_path_look(path) == RG_PATH_NONE)
        return rg_file_put(path, want, strlen(want), err);
    char *have = rg_file_slurp(path, 1 << 12, &n, err);
    if (!have)
        return false;
    bool same = !strcmp(have, want);
    rg_free(have);
    return same || rg_fail(err, RG_E_USAGE,
                           "%s: holds the unfinished work of another run (another model, other options or another "
                           "calibration text); remove it, or write elsewhere",
                           r->dir);
}

rg_results *rg_results_open(const char *to, uint64_t job, const rg_weight_set *set, rg_error *err)
{
    rg_results *r = rg_zalloc(sizeof *r);

    if (!r)
        return rg_fail_memory(err, sizeof *r), NULL;
    r->set = set;
    r->layer = -1;
    if (snprintf(r->dir, sizeof r->dir, "%s.work", to) >= (int)sizeof r->dir) {
        rg_fail(err, RG_E_USAGE, "%s: the path is too long", to);
        goto fail;
    }
    if (rg_dir_make(r->dir, err) && check_job(r, job, err))
        return r;

fail:
    rg_results_close(r);
    return NULL;
}

static void shut(rg_results *r)
{
    rg_checkpoint_close(r->open);
    r->open = NULL;
    r->layer = -1;
}

void rg_results_close(rg_results *r)
{
    if (r)
        shut(r);
    rg_free(r);
}

void rg_results_remove(rg_results *r)
{
    char path[PATH_ROOM], name[NAME_ROOM];

    shut(r);
    for (int i = 0; i < RG_MAX_LAYERS; i++) {
        layer_name(i, name);
        if (rg_path_join(path, sizeof path, r->dir, name))
            rg_path_remove(path);
    }
    if (rg_path_join(path, sizeof path, r->dir, "job"))
        rg_path_remove(path);
    rg_path_remove(r->dir);
}

bool rg_results_has(const rg_results *r, int layer)
{
    char path[PATH_ROOM], name[NAME_ROOM];

    layer_name(layer, name);
    return rg_path_join(path, sizeof path, r->dir, name) && rg_path_look(path) == RG_PATH_FILE;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static void name_of(const rg_results *r, const rg_weight *w, int64_t mat, const char *part, char out[NAME_ROOM])
{
    snprintf(out, NAME_ROOM, "%d.%" PRId64 ".%s", (int)(w - r->set->all), mat, part);
}

/* Declare a tensor, or, in the second pass, write it. */
typedef struct putting {
    const rg_results *r;
    rg_ckpt_writer *w;
    bool data;
    rg_error *err;
} putting;

static bool put(const putting *p, const rg_weight *w, int64_t mat, const char *part, rg_type type, int64_t rows,
                int64_t cols, const void *data)
{
    char name[NAME_ROOM];
    const int64_t shape[2] = { rows, cols };

    if (!data)
        return true;
    name_of(p->r, w, mat, part, name);
    if (!p->data)
        return rg_ckpt_declare(p->w, name, type, 2, shape, p->err);
    return rg_ckpt_write(p->w, data, (size_t)(rows * cols) * (size_t)rg_format_of(type)->block_bytes, p->err);
}

static bool put_matrix(const putting *p, const rg_matrix *m)
{
    const rg_coded *c = &m->coded;
    const int64_t n_scales = c->q ? (c->rows + c->block_rows - 1) / c->block_rows : 0;
    const int64_t facts[N_FACTS] = { (int64_t)c->kind,        c->bits, c->group,        c->n_groups, c->block_rows,
                                     m->x ? m->x->n_rows : 0, c->sym,  (int64_t)c->over };
    const double error = m->error;

    return put(p, m->weight, m->mat, "facts", RG_I64, 1, N_FACTS, facts) &&
           put(p, m->weight, m->mat, "error", RG_F64, 1, 1, &error) &&
           put(p, m->weight, m->mat, "codes", RG_U8, c->rows, c->cols, c->q) &&
           put(p, m->weight, m->mat, "by", RG_F32, n_scales, c->n_groups, c->scale) &&
           put(p, m->weight, m->mat, "zero", RG_F32, c->rows, c->n_groups, c->zero) &&
           put(p, m->weight, m->mat, "group_of", RG_I32, 1, c->cols, c->group_of) &&
           (!c->q || put(p, m->weight, m->mat, "table", RG_F32, 1, 256, c->table)) &&
           put(p, m->weight, m->mat, "values", RG_F32, m->rows, m->cols, m->plain ? m->w : NULL);
}

bool rg_results_put(rg_results *r, const rg_layer_work *l, rg_error *err)
{
    char path[PATH_ROOM], name[NAME_ROOM];
    putting p = { .r = r, .err = err };

    layer_name(l->layer, name);
    if (!path_of(r, name, path, err))
        return false;
    p.w = rg_safetensors_create(path, err);
    if (!p.w)
        return false;
    for (int pass = 0; pass < 2; pass++) {
        bool ok = true;
        p.data = pass;
        for (int i = 0; ok && i < l->n; i++)
            ok = put_matrix(&p, &l->m[i]);
        for (int i = 0; ok && i < l->n_folded; i++)
            ok = put(&p, l->folded[i].weight, 0, "vector", RG_F32, 1, l->folded[i].weight->cols, l->folded[i].values);
        if (!ok)
            return rg_ckpt_abort(p.w), false;
    }
    return rg_ckpt_commit(p.w, err);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static bool open_layer(rg_results *r, int layer, rg_error *err)
{
    char path[PATH_ROOM], name[NAME_ROOM];

    if (r->layer == layer)
        return true;
    shut(r);
    layer_name(layer, name);
    r->open = path_of(r, name, path, err) ? rg_checkpoint_open(path, RG_CKPT_DEFAULT, err) : NULL;
    if (r->open)
        r->layer = layer;
    return r->open;
}

/* A part of n values into *to, which is allocated; stays NULL if there is none. */
static bool get(rg_results *r, const rg_weight *w, int64_t mat, const char *part, rg_type type, void *to, int64_t *n,
                rg_error *err)
{
    char name[NAME_ROOM];
    void *data = NULL;

    name_of(r, w, mat, part, name);
    const rg_tensor *t = rg_checkpoint_find(r->open, name);
    if (t && t->type != type)
        return rg_fail(err, RG_E_INPUT, "%s: tensor '%s' is of another type", r->dir, name);
    if (t && !(data = rg_alloc(t->bytes)))
        return rg_fail_memory(err, t->bytes);
    if (t && !rg_tensor_read(r->open, t, 0, data, t->bytes, err))
        return rg_free(data), false;
    memcpy(to, &data, sizeof data);
    if (n)
        *n = t ? rg_tensor_count(t) : 0;
    return true;
}

/* The parts of codes are as many as their facts say. */
static bool get_codes(rg_results *r, const rg_weight *w, int64_t mat, const int64_t *facts, rg_coded *c, rg_error *err)
{
    int64_t n_q, n_scale, n_zero, n_of, n_table;
    float *table = NULL;

    *c = (rg_coded){ .kind = (rg_code_kind)facts[0],
                     .bits = (int)facts[1],
                     .sym = facts[6] != 0,
                     .over = (float)facts[7],
                     .rows = w->rows,
                     .cols = w->cols,
                     .group = facts[2],
                     .n_groups = facts[3],
                     .block_rows = facts[4] };
    bool ok = get(r, w, mat, "codes", RG_U8, &c->q, &n_q, err) &&
              get(r, w, mat, "by", RG_F32, &c->scale, &n_scale, err) &&
              get(r, w, mat, "zero", RG_F32, &c->zero, &n_zero, err) &&
              get(r, w, mat, "group_of", RG_I32, &c->group_of, &n_of, err) &&
              get(r, w, mat, "table", RG_F32, &table, &n_table, err);
    if (ok && c->q && table && n_table == 256)
        memcpy(c->table, table, sizeof c->table);
    rg_free(table);
    if (ok && c->q)
        ok = (n_q == w->rows * w->cols && n_table == 256 && c->group > 0 && c->n_groups > 0 && c->block_rows > 0 &&
              n_scale == (w->rows + c->block_rows - 1) / c->block_rows * c->n_groups &&
              (!n_zero || n_zero == w->rows * c->n_groups) && (!n_of || n_of == w->cols)) ||
             rg_fail(err, RG_E_INPUT, "%s: the work on '%s' is damaged; remove the folder", r->dir, w->name);
    if (!ok)
        rg_coded_fini(c);
    return ok;
}

int rg_results_get(rg_results *r, const rg_weight *w, int64_t mat, rg_coded *coded, float **values, double *error,
                   uint64_t *n_rows, rg_error *err)
{
    int64_t *facts = NULL, n;
    double *lost = NULL;
    int got = -1;

    *coded = (rg_coded){ 0 };
    *values = NULL;
    if (open_layer(r, r->set->layer[w - r->set->all], err) && get(r, w, mat, "facts", RG_I64, &facts, &n, err) &&
        get(r, w, mat, "error", RG_F64, &lost, NULL, err) && get(r, w, mat, "values", RG_F32, values, NULL, err)) {
        got = facts && n == N_FACTS && lost ? 1 : 0;
        if (got && error)
            *error = *lost;
        if (got && n_rows)
            *n_rows = (uint64_t)facts[5];
        if (got && *values)
            got = 2;
        else if (got && !get_codes(r, w, mat, facts, coded, err))
            got = -1;
        else if (!coded->q)
            got = 0;
    }
    rg_free(facts);
    rg_free(lost);
    return got;
}

float *rg_results_vector(rg_results *r, const rg_weight *w, rg_error *err)
{
    float *values = NULL;
    int64_t n;

    if (!open_layer(r, r->set->layer[w - r->set->all], err) || !get(r, w, 0, "vector", RG_F32, &values, &n, err))
        return NULL;
    if (values && n != w->cols) {
        rg_free(values);
        rg_fail(err, RG_E_INPUT, "%s: the work on '%s' is damaged; remove the folder", r->dir, w->name);
        return NULL;
    }
    return values;
}
