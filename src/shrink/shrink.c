/* shrink.c -- see shrink.h: layer by layer through a model, then the output. */
#include "shrink/shrink.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "shrink/inputs.h"
#include "shrink/linear.h"
#include "shrink/targets.h"

#define METHOD(name) extern const rg_shrink_method rg_shrink_##name;
#include "shrink/methods.def"
#undef METHOD

static const rg_shrink_method *const methods[] = {
#define METHOD(name) &rg_shrink_##name,
#include "shrink/methods.def"
#undef METHOD
};

const rg_shrink_method *rg_shrink_method_find(const char *name, rg_error *err)
{
    char all[200] = "";
    size_t n = 0;

    for (size_t i = 0; i < RG_LEN(methods); i++) {
        if (!strcmp(methods[i]->name, name))
            return methods[i];
        n += (size_t)snprintf(all + n, sizeof all - n, "%s%s", i ? ", " : "", methods[i]->name);
    }
    rg_fail(err, RG_E_USAGE, "method '%.20s' is not one of %s", name, all);
    return NULL;
}

typedef struct shrinking {
    const rg_checkpoint *from;
    const char *to;
    rg_shrink_options *o;
    rg_shrink_report *report;
    rg_stage *stage;
    const rg_model *model;
    rg_targets targets;
    rg_results *results;
    bool *folded; /* [weights.n] vectors that scales were folded into */
    double began_s;
    int n_made; /* layers, in this run */
} shrinking;

/* ---- one layer --------------------------------------------------------------------------------------------------- */

static bool check_weights(const rg_matrix *m, rg_error *err)
{
    for (int64_t i = 0; i < m->rows * m->cols; i++)
        if (!isfinite(m->w[i]))
            return rg_fail(err, RG_E_INPUT, "tensor '%s': its weight [%lld, %lld] is not finite", m->name,
                           (long long)(i / m->cols), (long long)(i % m->cols));
    return true;
}

static bool load_matrix(const shrinking *s, rg_layer_work *l, int i, int64_t mat, rg_error *err)
{
    const rg_weight *w = &s->model->weights.all[i];
    const rg_tensor *t = rg_targets_tensor(&s->targets, i, mat);
    rg_matrix *m = &l->m[l->n];

    *m = (rg_matrix){
        .weight = w, .mat = mat, .rows = w->rows, .cols = w->cols, .name = t->name, .coding = s->o->coding
    };
    m->w = rg_table_new(m->rows, m->cols, sizeof *m->w);
    if (!m->w)
        return rg_fail_memory(err, (size_t)(m->rows * m->cols) * sizeof *m->w);
    l->n++;
    rg_stage_get(s->stage, w, mat, m->w);
    return check_weights(m, err);
}

static bool load_layer(const shrinking *s, rg_layer_work *l, rg_error *err)
{
    const rg_weight_set *set = &s->model->weights;
    size_t n = 0, n_vectors = 0;

    for (int i = 0; i < set->n; i++) {
        n += set->layer[i] == l->layer && s->targets.codes[i] ? (size_t)set->all[i].n_mats : 0;
        n_vectors += set->layer[i] == l->layer;
    }
    l->m = rg_array(n, sizeof *l->m);
    l->folded = rg_array(n_vectors, sizeof *l->folded);
    if (!l->m || !l->folded)
        return rg_fail_memory(err, n * sizeof *l->m);
    for (int i = 0; i < set->n; i++)
        for (int64_t mat = 0; set->layer[i] == l->layer && s->targets.codes[i] && mat < set->all[i].n_mats; mat++)
            if (!load_matrix(s, l, i, mat, err))
                return false;
    return true;
}

static void free_layer(rg_layer_work *l)
{
    for (int i = 0; i < l->n; i++) {
        rg_free(l->m[i].w);
        rg_coded_fini(&l->m[i].coded);
    }
    for (int i = 0; i < l->n_folded; i++)
        rg_free(l->folded[i].values);
    rg_free(l->m);
    rg_free(l->folded);
    rg_inputs_free(l);
}

/* *to: the share of the power of d [rows, cols] to that of w: of what they make of the inputs where those are known.
 * False: no memory. */
static bool share(const rg_matrix *m, const float *d, const float *w, rg_pool *pool, double *to)
{
    double lost = 0, all = 0;

    if (m->x && m->x->gram && m->x->n_rows && (!rg_quadratic(&lost, d, m->rows, m->x->gram, m->cols, pool) ||
                                               !rg_quadratic(&all, w, m->rows, m->x->gram, m->cols, pool)))
        return false;
    if (!(all > 0)) {
        lost = 0;
        for (int64_t i = 0; i < m->rows * m->cols; i++) {
            lost += (double)d[i] * (double)d[i];
            all += (double)w[i] * (double)w[i];
        }
    }
    *to = all > 0 ? lost / all : 0;
    return true;
}

/* Leaves in w what the codes stand for. */
static bool decode(rg_matrix *m, rg_pool *pool, rg_error *err)
{
    float *row = rg_array((size_t)m->cols, sizeof *row), *lost = rg_table_new(m->rows, m->cols, sizeof *lost);
    bool ok = row && lost;

    for (int64_t r = 0; ok && r < m->rows; r++) {
        rg_coded_row(&m->coded, r, row);
        for (int64_t k = 0; k < m->cols; k++)
            lost[r * m->cols + k] = m->w[r * m->cols + k] - row[k];
    }
    ok = ok && share(m, lost, m->w, pool, &m->error);
    for (int64_t r = 0; ok && r < m->rows; r++)
        rg_coded_row(&m->coded, r, m->w + r * m->cols);
    rg_free(row);
    rg_free(lost);
    return ok || rg_fail_memory(err, (size_t)(m->rows * m->cols) * sizeof *lost);
}

static bool make_layer(shrinking *s, rg_layer_work *l, rg_error *err)
{
    const rg_shrink_method *method = s->o->method;

    if (!load_layer(s, l, err) || (method->needs && !rg_inputs_collect(l, method->needs, err)))
        return false;
    for (int i = 0; i < l->n; i++)
        l->m[i].x = rg_input_of(l, l->m[i].weight, l->m[i].mat);
    if (!method->layer(l, err))
        return false;
    for (int i = 0; i < l->n; i++) {
        rg_matrix *m = &l->m[i];
        if (m->coded.q && !decode(m, l->pool, err))
            return false;
        if (m->coded.q && s->o->form == RG_FORM_PLAIN) {
            rg_coded_fini(&m->coded);
            m->plain = true;
        }
        if (method->follows)
            rg_stage_put(s->stage, m->weight, m->mat, m->w);
    }
    for (int i = 0; method->follows && i < l->n_folded; i++)
        rg_stage_put_vector(s->stage, l->folded[i].weight, l->folded[i].values);
    if (l->note[0] && !s->report->note[0])
        snprintf(s->report->note, sizeof s->report->note, "%s", l->note);
    return rg_results_put(s->results, l, err);
}

/* What an earlier run made of the layer takes the place of its weights. */
static bool recall_layer(shrinking *s, int layer, rg_error *err)
{
    const rg_weight_set *set = &s->model->weights;

    for (int i = 0; i < set->n; i++) {
        const rg_weight *w = &set->all[i];
        if (set->layer[i] != layer)
            continue;
        float *vector = w->vec ? rg_results_vector(s->results, w, err) : NULL;
        if (vector)
            rg_stage_put_vector(s->stage, w, vector);
        rg_free(vector);
        for (int64_t mat = 0; s->targets.codes[i] && mat < w->n_mats; mat++) {
            rg_coded coded;
            float *values;
            int got = rg_results_get(s->results, w, mat, &coded, &values, NULL, NULL, err);
            if (got < 0)
                return false;
            if (got == 1 && !(values = rg_table_new(w->rows, w->cols, sizeof *values)))
                return rg_coded_fini(&coded), rg_fail_memory(err, (size_t)(w->rows * w->cols) * 4);
            for (int64_t r = 0; got == 1 && r < w->rows; r++)
                rg_coded_row(&coded, r, values + r * w->cols);
            if (got > 0)
                rg_stage_put(s->stage, w, mat, values);
            rg_coded_fini(&coded);
            rg_free(values);
        }
    }
    return true;
}

/* ---- all layers -------------------------------------------------------------------------------------------------- */

static void tell(const shrinking *s, int layer)
{
    const int n = s->model->config.n_layers;
    double spent = (double)rg_now_ns() / 1e9 - s->began_s;
    char what[80];

    if (!s->o->progress)
        return;
    if (s->n_made > 0)
        snprintf(what, sizeof what, "layer %d of %d, %.0f s left", layer + 1, n, spent / s->n_made * (n - layer));
    else
        snprintf(what, sizeof what, "layer %d of %d", layer + 1, n);
    s->o->progress(s->o->progress_arg, what, (double)layer / n);
}

static bool do_layer(shrinking *s, int layer, rg_error *err)
{
    const bool reads = s->o->method->needs != 0, last = layer + 1 == s->model->config.n_layers;
    rg_layer_work l = {
        .o = s->o, .layer = layer, .stage = s->stage, .pool = rg_stage_pool(s->stage), .config = &s->model->config
    };
    const bool done = rg_results_has(s->results, layer);
    bool ok = true;

    if (done && !reads)
        return s->report->n_resumed++, true;
    ok = rg_stage_enter(s->stage, layer, err);
    if (ok && done)
        ok = !s->o->method->follows || recall_layer(s, layer, err);
    else if (ok)
        ok = make_layer(s, &l, err);
    free_layer(&l);
    s->report->n_resumed += done;
    s->n_made += !done;
    return ok && (!reads || last || rg_stage_pass(s->stage, &(rg_pass){ .advance = true }, err));
}

static bool all_layers(shrinking *s, rg_error *err)
{
    s->began_s = (double)rg_now_ns() / 1e9;
    for (int i = 0; i < s->model->config.n_layers; i++) {
        tell(s, i);
        if (s->o->stop && s->o->stop())
            return rg_fail(err, RG_E_IO,
                           "stopped before layer %d of %d; the layers before it are in %s.work, from where the same "
                           "command goes on",
                           i + 1, s->model->config.n_layers, s->to);
        if (!do_layer(s, i, err))
            return false;
    }
    tell(s, s->model->config.n_layers);
    return true;
}

/* ---- the report -------------------------------------------------------------------------------------------------- */

static bool report_matrix(shrinking *s, int i, int64_t mat, rg_error *err)
{
    rg_shrink_report *r = s->report;
    const rg_weight *w = &s->model->weights.all[i];
    const rg_tensor *t = rg_targets_tensor(&s->targets, i, mat);
    rg_coded coded;
    float *values;

    if (r->n == r->room) {
        const int room = r->room ? 2 * r->room : 64;
        rg_shrunk *more = rg_resize_array(r->matrix, (size_t)room, sizeof *more);
        if (!more)
            return rg_fail_memory(err, (size_t)room * sizeof *more);
        r->matrix = more;
        r->room = room;
    }
    rg_shrunk *m = &r->matrix[r->n++];
    *m = (rg_shrunk){ .layer = s->model->weights.layer[i], .error = NAN };
    if (w->n_mats > 1 && rg_tensor_count(t) > w->rows * w->cols)
        snprintf(m->name, sizeof m->name, "%.120s[%lld]", t->name, (long long)mat);
    else
        snprintf(m->name, sizeof m->name, "%.140s", t->name);
    int got = rg_results_get(s->results, w, mat, &coded, &values, &m->error, &m->n_rows, err);
    rg_coded_fini(&coded);
    rg_free(values);
    return got >= 0;
}

/* Errors of all matrices, which vectors were folded, and sizes. */
static bool gather(shrinking *s, rg_error *err)
{
    const rg_weight_set *set = &s->model->weights;

    for (int i = 0; i < set->n; i++) {
        if (set->layer[i] < 0)
            continue;
        for (int64_t mat = 0; s->targets.codes[i] && mat < set->all[i].n_mats; mat++)
            if (!report_matrix(s, i, mat, err))
                return false;
        if (s->targets.codes[i] || !rg_spec_is_vector(set->spec[i]))
            continue;
        rg_error why = { 0 };
        float *vector = rg_results_vector(s->results, &set->all[i], &why);
        s->folded[i] = vector != NULL;
        rg_free(vector);
        if (why.code != RG_OK)
            return *err = why, false;
    }
    for (int i = 0; i < rg_checkpoint_n_tensors(s->from); i++)
        s->report->bytes_before += rg_checkpoint_tensor(s->from, i)->bytes;
    s->report->n_kept = s->targets.n_kept;
    memcpy(s->report->kept, s->targets.kept, sizeof s->report->kept);
    return true;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* A number of what is done: the model, what it becomes, and the text. */
static bool number_job(const shrinking *s, uint64_t *job, rg_error *err)
{
    const rg_shrink_options *o = s->o;
    const rg_coding *c = &o->coding;
    uint64_t from;
    char text[400];

    if (!rg_checkpoint_identity(s->from, &from, err))
        return false;
    int n = snprintf(text, sizeof text, "%s %d %d %d %d %d %lld %d %d %d %a %d %d %d %d %d", o->method->name,
                     (int)c->kind, c->bits, c->sym, c->narrow, c->by_most, (long long)c->group, (int)c->scale_type,
                     o->act_order, o->static_groups, (double)o->alpha, o->to_gguf, (int)o->form,
                     o->method->needs ? o->n_samples : 0, o->method->needs ? o->ctx : 0, o->input_bits);
    *job = rg_hash(text, (size_t)n, from);
    if (o->given)
        *job = rg_hash(&o->given->number, sizeof o->given->number, *job);
    if (o->method->needs)
        *job = rg_hash(o->ids, (size_t)o->n_samples * (size_t)o->ctx * sizeof *o->ids, *job);
    return true;
}

static bool check_options(const rg_checkpoint *from, const char *to, rg_shrink_options *o, rg_error *err)
{
    if (!o->method->settle(o, err) || !rg_coding_init(&o->coding, err))
        return false;
    if (rg_checkpoint_kind(from) == RG_CKPT_GGUF && !o->to_gguf)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: a GGUF file cannot become a Hugging Face directory; take --to gguf",
                       rg_checkpoint_path(from));
    if (o->method->needs && (o->n_samples < 1 || o->ctx < 2))
        return rg_fail(err, RG_E_USAGE, "%s needs calibration text: at least one sample of two ids", o->method->name);
    if (!rg_checkpoint_n_tensors(from))
        return rg_fail(err, RG_E_INPUT, "%s: there are no weights", rg_checkpoint_path(from));
    if (o->to_gguf ? rg_path_look(to) == RG_PATH_DIR : rg_path_look(to) == RG_PATH_FILE)
        return rg_fail(err, RG_E_USAGE, "%s: is a %s; --to %s writes a %s", to, o->to_gguf ? "directory" : "file",
                       o->to_gguf ? "gguf" : "hf", o->to_gguf ? "file" : "directory");
    return true;
}

static bool open_all(shrinking *s, rg_error *err)
{
    const rg_shrink_options *o = s->o;
    const rg_stage_options stage = { .backend = o->backend,
                                     .n_threads = o->n_threads,
                                     .ids = o->ids,
                                     .n_samples = o->method->needs ? o->n_samples : 0,
                                     .ctx = o->ctx };
    uint64_t job;

    if (!number_job(s, &job, err) || !(s->stage = rg_stage_open(s->from, &stage, err)))
        return false;
    s->model = rg_stage_model(s->stage);
    if (!rg_targets_make(&s->targets, s->from, o, &s->model->config, &s->model->weights, err))
        return false;
    s->folded = rg_array((size_t)s->model->weights.n, sizeof *s->folded);
    if (!s->folded)
        return rg_fail_memory(err, (size_t)s->model->weights.n);
    s->results = rg_results_open(s->to, job, &s->model->weights, err);
    return s->results;
}

bool rg_shrink(rg_shrink_report *r, const rg_checkpoint *from, const char *to, rg_shrink_options *o, rg_error *err)
{
    shrinking s = { .from = from, .to = to, .o = o, .report = r };

    memset(r, 0, sizeof *r);
    bool ok = check_options(from, to, o, err) && open_all(&s, err) && all_layers(&s, err) && gather(&s, err);
    if (ok && o->to_gguf)
        ok = rg_write_gguf(&s.targets, s.results, s.folded, to, &r->bytes, r->warning, err);
    else if (ok)
        ok = rg_write_hf(&s.targets, s.results, s.folded, to, &r->bytes, err);
    if (ok)
        rg_results_remove(s.results);
    rg_results_close(s.results);
    rg_targets_fini(&s.targets);
    rg_free(s.folded);
    rg_stage_close(s.stage);
    return ok;
}

void rg_shrink_report_fini(rg_shrink_report *r)
{
    rg_free(r->matrix);
    memset(r, 0, sizeof *r);
}
