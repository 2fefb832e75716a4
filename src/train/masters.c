/* masters.c -- see masters.h. */
#include "train/masters.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "model/arch/backs.h"
#include "model/weight_source.h"
#include "train/init.h"

/* How a weight's values follow from masters. */
typedef enum how {
    SAME,      /* the master's values, in their order */
    CHOSEN,    /* each is one of them, times +1 or -1, plus a constant */
    MINUS_EXP, /* each is -exp of one of them */
    ALONE,     /* each is some smooth function of one of them */
    DERIVED,   /* of other weights of the layer */
    CONSTANT,  /* of none */
} how;

typedef struct linked {
    how how;
    int *master;    /* [n_tensors] */
    int n_tensors;  /* each makes as many of the weight's values */
    int32_t *place; /* CHOSEN, MINUS_EXP, ALONE: [n] where in its tensor each value is; of -1 times: ~place */
    size_t n;       /* values of the weight */
    float *w, *g;   /* row-major: of SAME from one tensor the master's own */
    bool own, frozen;
} linked;

enum { MAX_LENT = 4, WHOLE_NUMBER = 11 }; /* the latter: GGUF's type of 64 bits, which the writer asks for */

/* A weight that the network has of its target: values alone. */
typedef struct lent {
    const rg_weight *weight;
    float *w;
} lent;

struct rg_masters {
    const rg_checkpoint *from;
    const rg_model *target; /* NULL: it is no network that drafts */
    bool is_new;            /* a module that `from` does not bring */
    lent lent[MAX_LENT];
    int n_lent;
    rg_checkpoint *ckpt; /* of the masters */
    rg_model *model;
    rg_master *all;
    rg_values *values;
    int n, room;
    linked *link; /* of the model's weights */
};

/* ---- masters ----------------------------------------------------------------------------------------------------- */

static bool add_master(rg_masters *m, const char *name, int n_dims, const int64_t *shape, rg_error *err)
{
    rg_master *a;
    size_t n = 1;

    if (rg_masters_find(m, name))
        return true;
    if (m->n == m->room) {
        const int room = m->room ? 2 * m->room : 64;
        rg_master *more = rg_resize_array(m->all, (size_t)room, sizeof *more);

        if (!more)
            return rg_fail_memory(err, (size_t)room * sizeof *more);
        m->all = more;
        m->room = room;
    }
    a = &m->all[m->n];
    *a = (rg_master){ .name = rg_strdup(name), .n_dims = n_dims };
    m->n++;
    for (int i = 0; i < n_dims; i++) {
        a->shape[i] = shape[i];
        if (!rg_mul(n, (size_t)shape[i], &n))
            return rg_fail_memory(err, SIZE_MAX);
    }
    a->n = n;
    a->w = rg_array(n, sizeof *a->w);
    a->g = rg_array(n, sizeof *a->g);
    return (a->name && a->w && a->g) || rg_fail_memory(err, 2 * n * sizeof *a->w);
}

rg_master *rg_masters_find(rg_masters *m, const char *name)
{
    for (int i = 0; i < m->n; i++)
        if (!strcmp(m->all[i].name, name))
            return &m->all[i];
    return NULL;
}

int rg_masters_count(const rg_masters *m)
{
    return m->n;
}

rg_master *rg_masters_at(rg_masters *m, int i)
{
    return &m->all[i];
}

const rg_model *rg_masters_model(const rg_masters *m)
{
    return m->model;
}

/* The tensors of a checkpoint that a weight is made from. */
static bool take_tensors(rg_masters *m, const rg_model *declared, rg_error *err)
{
    int n_unused;
    bool *used = rg_weights_used(&declared->weights, &declared->config, m->from, &n_unused, err), ok = used;

    for (int i = 0; ok && i < rg_checkpoint_n_tensors(m->from); i++) {
        const rg_tensor *t = rg_checkpoint_tensor(m->from, i);
        uint8_t *raw;

        if (!used[i] || rg_format_of(t->type)->layout == RG_LAYOUT_NONE)
            continue;
        raw = rg_alloc(t->bytes);
        ok = (raw || rg_fail_memory(err, t->bytes)) && add_master(m, t->name, t->n_dims, t->shape, err) &&
             rg_tensor_read(m->from, t, 0, raw, t->bytes, err);
        if (ok)
            rg_tensor_decode(t, raw, rg_tensor_rows(t), m->all[m->n - 1].w);
        rg_free(raw);
    }
    rg_free(used);
    return ok;
}

/* Parameters that are no module's `weight` have capitals in their names, or these. */
static bool is_bare(const char *name)
{
    static const char *const bare[] = { "bias", "dt_bias", "log_dt", "inv_dt", "e_score_correction_bias" };
    const char *last = strrchr(name, '.');
    bool yes = false;

    last = last ? last + 1 : name;
    for (size_t i = 0; i < RG_LEN(bare); i++)
        yes = yes || !strcmp(last, bare[i]);
    for (const char *p = last; *p; p++)
        yes = yes || isupper((unsigned char)*p);
    return yes;
}

/* The shape in which a weight's tensor is stored. */
static int shape_of(const rg_weight_source *s, int64_t shape[3])
{
    const rg_weight_spec *spec = s->spec;
    const bool stored = s->part || (s->load && spec->stored[0]);
    rg_size *const *sizes = stored ? spec->stored : spec->shape;
    int n = 0;

    for (int i = s->experts && !stored ? 1 : 0; i < 3 && sizes[i]; i++)
        shape[n++] = sizes[i](s->c, s->layer);
    if (s->transposed && n > 1) {
        const int64_t rows = shape[n - 2];

        shape[n - 2] = shape[n - 1];
        shape[n - 1] = rows;
    }
    return n;
}

/* The tensors that a config implies, under their names at Hugging Face. */
static bool make_tensors(rg_masters *m, const rg_model *declared, rg_error *err)
{
    const rg_weight_set *set = &declared->weights;
    bool ok = true;

    for (int i = 0; ok && i < set->n; i++) {
        rg_weight_source s = rg_weight_source_of(set->spec[i], &declared->config, m->from, set->layer[i]);
        char name[RG_WEIGHT_NAME], whole[RG_WEIGHT_NAME + 8];
        int64_t shape[3];
        const int n = shape_of(&s, shape);

        for (int e = 0; ok && !set->spec[i]->derive && e < s.n_tensors; e++) {
            rg_weight_source_find(&s, e, name);
            snprintf(whole, sizeof whole, "%s%s", name, is_bare(name) ? "" : ".weight");
            ok = add_master(m, whole, n, shape, err);
        }
    }
    return ok;
}

/* ---- how weights follow from masters ----------------------------------------------------------------------------- */

/* The values of weight i as a model reads them, made from masters. */
static float *read_weight(rg_masters *m, int i, rg_error *err)
{
    const rg_weight_set *set = &m->model->weights;
    const rg_weight *w = &set->all[i];
    rg_weight_source s = rg_weight_source_of(set->spec[i], &m->model->config, m->ckpt, set->layer[i]);
    char name[RG_WEIGHT_NAME];
    const int64_t n = w->n_mats * w->rows * w->cols;
    const rg_tensor *t = rg_weight_source_find(&s, 0, name);

    if (rg_spec_is_vector(set->spec[i]))
        return rg_weight_source_vector(&s, n, err);
    if (s.load)
        return rg_weight_source_values(&s, t, s.load, n, err);
    float *out = rg_array((size_t)n, sizeof *out);
    bool ok = out || rg_fail_memory(err, (size_t)n * sizeof *out);
    const int n_tensors = s.experts ? s.n_tensors : 1;
    for (int e = 0; ok && e < n_tensors; e++)
        ok = rg_weight_source_rows(&s, rg_weight_source_find(&s, e, name), 0, w->n_mats * w->rows / n_tensors,
                            (uint8_t *)(out + n / n_tensors * e), err);
    if (!ok)
        rg_free(out);
    return ok ? out : NULL;
}

/* What a master's values are while the way to a weight is looked for: their numbers in digits, one bit of them, or what
 * they are plus a step. */
typedef enum code { ZEROS, LOW, HIGH, BIT, MOVED } code;

typedef struct coding {
    code what;
    int bit;
    float step;
} coding;

enum { DIGIT = 1 << 12 };

static float code_of(coding c, size_t i, float own)
{
    switch (c.what) {
    case LOW:
        return (float)(i % DIGIT + 1);
    case HIGH:
        return (float)(i / DIGIT + 1);
    case BIT:
        return (float)(i >> c.bit & 1);
    case MOVED:
        return own + c.step;
    default:
        return 0;
    }
}

/* The weight's values with its masters holding a code in place of their values.  NULL: *err. */
static float *read_coded(rg_masters *m, int i, coding c, rg_error *err)
{
    const linked *l = &m->link[i];
    float *kept[2] = { NULL, NULL }, *out;
    size_t most = 0;

    for (int e = 0; e < l->n_tensors; e++)
        most += m->all[l->master[e]].n;
    kept[0] = rg_array(most, sizeof *kept[0]);
    if (!kept[0])
        return rg_fail_memory(err, most * sizeof *kept[0]), NULL;
    kept[1] = kept[0];
    for (int e = 0; e < l->n_tensors; e++) {
        rg_master *a = &m->all[l->master[e]];

        memcpy(kept[1], a->w, a->n * sizeof *a->w);
        kept[1] += a->n;
        for (size_t k = 0; k < a->n; k++)
            a->w[k] = code_of(c, k, a->w[k]);
    }
    out = read_weight(m, i, err);
    kept[1] = kept[0];
    for (int e = 0; e < l->n_tensors; e++) {
        rg_master *a = &m->all[l->master[e]];

        memcpy(a->w, kept[1], a->n * sizeof *a->w);
        kept[1] += a->n;
    }
    rg_free(kept[0]);
    return out;
}

/* Values that are chosen, and times 1 or -1: a whole number stays one.  False: it is no such map. */
static bool decode(linked *l, const float *zeros, const float *low, const float *high, size_t tensor)
{
    bool ok = true;

    for (size_t k = 0; ok && k < l->n; k++) {
        const double a = (double)low[k] - (double)zeros[k], b = (double)high[k] - (double)zeros[k];

        ok = a == rint(a) && b == rint(b) && fabs(a) >= 1 && fabs(a) <= DIGIT && fabs(b) >= 1 && (a < 0) == (b < 0);
        const double size = ok ? fabs(a) - 1 + (fabs(b) - 1) * DIGIT : 0;
        ok = ok && size < (double)tensor;
        l->place[k] = a < 0 ? ~(int32_t)size : (int32_t)size;
    }
    return ok;
}

static bool try_chosen(rg_masters *m, int i, bool *found, rg_error *err)
{
    linked *l = &m->link[i];
    float *zeros = read_coded(m, i, (coding){ ZEROS }, err), *low = NULL, *high = NULL;
    const bool ok =
        zeros && (low = read_coded(m, i, (coding){ LOW }, err)) && (high = read_coded(m, i, (coding){ HIGH }, err));

    *found = ok && decode(l, zeros, low, high, m->all[l->master[0]].n);
    rg_free(zeros);
    rg_free(low);
    rg_free(high);
    return ok;
}

/* A function of one value each: which, by the bits of its number. */
static bool try_alone(rg_masters *m, int i, bool *found, rg_error *err)
{
    linked *l = &m->link[i];
    const size_t tensor = m->all[l->master[0]].n;
    float *zeros = read_coded(m, i, (coding){ ZEROS }, err), *now = zeros ? read_weight(m, i, err) : NULL, *bits;
    bool ok = zeros && now, is_exp = true;

    memset(l->place, 0, l->n * sizeof *l->place);
    for (int bit = 0; ok && tensor > 1 && (tensor - 1) >> bit; bit++) {
        bits = read_coded(m, i, (coding){ BIT, .bit = bit }, err);
        ok = bits;
        for (size_t k = 0; ok && k < l->n; k++)
            l->place[k] |= bits[k] != zeros[k] ? 1 << bit : 0;
        rg_free(bits);
    }
    *found = ok;
    for (size_t k = 0; *found && k < l->n; k++)
        *found = (size_t)l->place[k] < tensor;
    for (size_t k = 0; *found && k < l->n; k++) {
        const size_t each = l->n / (size_t)l->n_tensors;
        const double want = -exp((double)m->all[l->master[k / each]].w[l->place[k]]);
        is_exp = is_exp && fabs((double)now[k] - want) <= 1e-6 * -want;
    }
    l->how = is_exp ? MINUS_EXP : ALONE;
    rg_free(zeros);
    rg_free(now);
    return ok;
}

static bool is_same(const linked *l)
{
    const size_t each = l->n / (size_t)l->n_tensors;
    bool yes = true;

    for (size_t k = 0; yes && k < l->n; k++)
        yes = l->place[k] == (int32_t)(k % each);
    return yes;
}

/* What depends on more than one value shows where all are moved: a chosen one is moved as far. */
static bool check_way(rg_masters *m, int i, bool *found, rg_error *err)
{
    const linked *l = &m->link[i];
    float *now = read_weight(m, i, err), *moved = now ? read_coded(m, i, (coding){ MOVED, .step = 0.5f }, err) : NULL;
    const bool ok = now && moved;

    for (size_t k = 0; ok && *found && l->how == CHOSEN && k < l->n; k++) {
        const double by = (double)moved[k] - (double)now[k];
        *found = fabs(fabs(by) - 0.5) <= 1e-3 * (1 + fabs((double)now[k])) && (by < 0) == (l->place[k] < 0);
    }
    rg_free(now);
    rg_free(moved);
    return ok;
}

static bool find_way(rg_masters *m, int i, const rg_weight_source *s, rg_error *err)
{
    linked *l = &m->link[i];
    bool found = false;

    if (!s->load && !s->part && !s->transposed)
        return true; /* SAME */
    l->place = rg_array(l->n, sizeof *l->place);
    if (!l->place)
        return rg_fail_memory(err, l->n * sizeof *l->place);
    l->how = CHOSEN;
    if (!try_chosen(m, i, &found, err) || (!found && !try_alone(m, i, &found, err)) || !check_way(m, i, &found, err))
        return false;
    if (!found)
        return rg_fail(err, RG_E_UNSUPPORTED, "'%s' is made of its tensor in a way that cannot be differentiated yet",
                       m->model->weights.all[i].name);
    if (l->how == CHOSEN && !s->load && is_same(l)) {
        rg_free(l->place);
        l->place = NULL;
        l->how = SAME;
    }
    return true;
}

/* The weights of a layer by their roles. */
static void of_layer(const rg_masters *m, int layer, const rg_weight *w[W_COUNT], float *g[W_COUNT])
{
    const rg_weight_set *set = &m->model->weights;

    for (int k = 0; k < set->n; k++)
        if (set->layer[k] == layer) {
            w[set->spec[k]->role] = &set->all[k];
            g[set->spec[k]->role] = m->link[k].frozen ? NULL : m->link[k].g;
        }
}

/* A weight that is derived depends on others if it changes when they do. */
static bool find_derived(rg_masters *m, int i, rg_error *err)
{
    const rg_weight_set *set = &m->model->weights;
    const rg_weight *w[W_COUNT] = { 0 };
    linked *l = &m->link[i];
    float *g[W_COUNT] = { 0 }, *other = rg_array(l->n, sizeof *other);
    bool ok = other || rg_fail_memory(err, l->n * sizeof *other);

    of_layer(m, set->layer[i], w, g);
    for (int turn = 0; ok && turn < 2; turn++) {
        for (int k = 0; k < W_COUNT; k++)
            for (int64_t c = 0; w[k] && w[k]->vec && w[k] != &set->all[i] && c < w[k]->n_mats * w[k]->rows * w[k]->cols;
                 c++)
                ((float *)(uintptr_t)w[k]->vec)[c] += turn ? -0.25f : 0.25f;
        if (!turn)
            ok = set->spec[i]->derive(&m->model->config, set->layer[i], w, other, err);
    }
    l->how = ok && !memcmp(other, set->all[i].vec, l->n * sizeof *other) ? CONSTANT : DERIVED;
    rg_free(other);
    if (ok && l->how == DERIVED && !rg_derive_back_of(set->spec[i]->derive))
        return rg_fail(err, RG_E_UNSUPPORTED,
                       "'%s' is derived from other weights in a way that cannot be differentiated yet",
                       set->all[i].name);
    return ok;
}

static bool link_weight(rg_masters *m, int i, rg_error *err)
{
    const rg_weight_set *set = &m->model->weights;
    const rg_weight *w = &set->all[i];
    rg_weight_source s = rg_weight_source_of(set->spec[i], &m->model->config, m->ckpt, set->layer[i]);
    linked *l = &m->link[i];
    char name[RG_WEIGHT_NAME];
    bool ok = true;

    *l = (linked){ .how = SAME, .n = (size_t)(w->n_mats * w->rows * w->cols) };
    if (set->spec[i]->derive) {
        ok = find_derived(m, i, err);
    } else {
        rg_weight_source_find(&s, 0, name);
        l->n_tensors = s.n_tensors;
        l->master = rg_array((size_t)s.n_tensors, sizeof *l->master);
        if (!l->master)
            return rg_fail_memory(err, (size_t)s.n_tensors * sizeof *l->master);
        for (int e = 0; e < s.n_tensors; e++)
            l->master[e] = (int)(rg_masters_find(m, rg_weight_source_find(&s, e, name)->name) - m->all);
        ok = find_way(m, i, &s, err);
    }
    if (!ok)
        return false;
    l->own = l->how != SAME || l->n_tensors > 1;
    if (!l->own) {
        l->w = m->all[l->master[0]].w;
        l->g = m->all[l->master[0]].g;
        return true;
    }
    l->w = rg_array(l->n, sizeof *l->w);
    l->g = rg_array(l->n, sizeof *l->g);
    return (l->w && l->g) || rg_fail_memory(err, 2 * l->n * sizeof *l->w);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static bool make_checkpoint(rg_masters *m, rg_error *err)
{
    m->values = rg_array((size_t)m->n, sizeof *m->values);
    if (!m->values)
        return rg_fail_memory(err, (size_t)m->n * sizeof *m->values);
    for (int i = 0; i < m->n; i++) {
        m->values[i] = (rg_values){ .name = m->all[i].name, .n_dims = m->all[i].n_dims, .at = m->all[i].w };
        memcpy(m->values[i].shape, m->all[i].shape, sizeof m->values[i].shape);
    }
    m->ckpt = rg_checkpoint_of_values(m->from, m->values, m->n, err);
    return m->ckpt;
}

/* Values of what is the target's. */
static bool take_lent(rg_masters *m, rg_error *err)
{
    const rg_weight_set *own = &m->model->weights;

    for (int i = 0; i < W_COUNT; i++) {
        const rg_weight *w = m->model->outer.w[i];

        if (!w || (w >= own->all && w < own->all + own->n))
            continue;
        RG_ASSERT(m->n_lent < MAX_LENT);
        const size_t n = (size_t)(w->n_mats * w->rows * w->cols); /* fits: it is in memory */
        float *to = rg_array(n, sizeof *to);
        if (!to)
            return rg_fail_memory(err, n * sizeof *to);
        m->lent[m->n_lent++] = (lent){ w, to };
        if (w->vec)
            memcpy(to, w->vec, n * sizeof *to);
        for (int64_t r = 0; w->placed && r < w->rows; r++)
            w->placed->owner->weight_get(w->placed, 0, r, to + r * w->cols);
    }
    return true;
}

/* shapes: `from`, or the same without tensors, so that masters are made by its config. */
static rg_masters *open_masters(const rg_checkpoint *from, const rg_checkpoint *shapes, rg_model_options o,
                                rg_error *err)
{
    const rg_model_options declare = {
        .declare_only = true, .declared_type = RG_F32, .target = o.target, .mtp = o.mtp
    };
    rg_masters *m = rg_zalloc(sizeof *m);
    rg_model *declared = m ? rg_model_open(shapes, &declare, err) : NULL;
    bool ok = declared;

    if (!m)
        return rg_fail_memory(err, sizeof *m), NULL;
    m->from = from;
    m->target = o.target;
    m->is_new = shapes != from;
    ok = ok && (rg_checkpoint_n_tensors(shapes) ? take_tensors(m, declared, err) : make_tensors(m, declared, err)) &&
         make_checkpoint(m, err);
    rg_model_close(declared);
    m->model = ok ? rg_model_open(m->ckpt, &o, err) : NULL;
    ok = m->model && take_lent(m, err);
    if (ok) {
        m->link = rg_array((size_t)m->model->weights.n, sizeof *m->link);
        ok = m->link || rg_fail_memory(err, (size_t)m->model->weights.n * sizeof *m->link);
    }
    for (int i = 0; ok && i < m->model->weights.n; i++)
        ok = link_weight(m, i, err);
    ok = ok && rg_masters_push(m, err);
    if (!ok) {
        rg_masters_close(m);
        return NULL;
    }
    return m;
}

rg_masters *rg_masters_open(const rg_checkpoint *from, const rg_backend *backend, rg_error *err)
{
    const rg_model_options o = { .kv_type = "f32", .declared_type = RG_F32, .backend = backend };

    return open_masters(from, from, o, err);
}

rg_masters *rg_masters_open_network(const rg_checkpoint *from, const rg_model *target, bool module,
                                    const rg_backend *backend, rg_error *err)
{
    return open_masters(
        from, from,
        (rg_model_options){
            .kv_type = "f32", .declared_type = RG_F32, .backend = backend, .target = target, .mtp = module },
        err);
}

/* The new module's final norm becomes the target's: what it is stored as may be less by a constant. */
static void take_final_norm(rg_masters *m)
{
    const rg_weight *from = m->target->outer.w[W_FINAL_NORM], *to = m->model->outer.w[W_FINAL_NORM];
    const linked *l = to ? &m->link[to - m->model->weights.all] : NULL;

    for (size_t k = 0; from && from->vec && l && l->n_tensors == 1 && k < l->n; k++)
        m->all[l->master[0]].w[k] += from->vec[k] - to->vec[k];
}

rg_masters *rg_masters_new_module(const rg_checkpoint *from, const rg_model *target, double deviation, uint64_t seed,
                                  const rg_backend *backend, rg_error *err)
{
    const rg_model_options o = {
        .kv_type = "f32", .declared_type = RG_F32, .backend = backend, .target = target, .mtp = true
    };
    rg_checkpoint *shapes = rg_checkpoint_of_values(from, NULL, 0, err);
    rg_masters *m = shapes ? open_masters(from, shapes, o, err) : NULL;
    bool ok = m && rg_masters_init(m, deviation, seed, err);

    rg_checkpoint_close(shapes);
    if (ok && m->model->outer.w[W_FINAL_NORM] != target->outer.w[W_FINAL_NORM]) {
        take_final_norm(m);
        ok = rg_masters_push(m, err);
    }
    if (ok)
        return m;
    rg_masters_close(m);
    return NULL;
}

void rg_masters_close(rg_masters *m)
{
    if (!m)
        return;
    for (int i = 0; m->link && i < m->model->weights.n; i++) {
        rg_free(m->link[i].master);
        rg_free(m->link[i].place);
        if (m->link[i].own) {
            rg_free(m->link[i].w);
            rg_free(m->link[i].g);
        }
    }
    rg_free(m->link);
    for (int i = 0; i < m->n_lent; i++)
        rg_free(m->lent[i].w);
    rg_model_close(m->model);
    rg_checkpoint_close(m->ckpt);
    for (int i = 0; i < m->n; i++) {
        rg_free((char *)(uintptr_t)m->all[i].name);
        rg_free(m->all[i].w);
        rg_free(m->all[i].g);
    }
    rg_free(m->values);
    rg_free(m->all);
    rg_free(m);
}

/* ---- to the model and back --------------------------------------------------------------------------------------- */

static void make_own(const rg_masters *m, linked *l)
{
    const size_t each = l->n / (size_t)l->n_tensors;

    for (int e = 0; e < l->n_tensors; e++) {
        const float *from = m->all[l->master[e]].w;
        float *to = l->w + (size_t)e * each;

        if (l->how == SAME)
            memcpy(to, from, each * sizeof *to);
    }
}

/* Give weight i of the model its values. */
static bool push_weight(rg_masters *m, int i, rg_error *err)
{
    const rg_weight_set *set = &m->model->weights;
    const rg_weight *w = &set->all[i];
    linked *l = &m->link[i];

    if (l->own && l->how == SAME) {
        make_own(m, l);
    } else if (l->own) {
        float *values = read_weight(m, i, err);

        if (!values)
            return false;
        memcpy(l->w, values, l->n * sizeof *values);
        rg_free(values);
    }
    if (w->vec)
        memcpy((float *)(uintptr_t)w->vec, l->w, l->n * sizeof *l->w);
    for (int64_t r = 0; w->placed && r < w->n_mats * w->rows; r++)
        set->backend->weight_put((rg_placed *)(uintptr_t)w->placed, r / w->rows, r % w->rows, l->w + r * w->cols);
    return true;
}

static bool push_derived(rg_masters *m, int i, rg_error *err)
{
    const rg_weight_set *set = &m->model->weights;
    const rg_weight *w[W_COUNT] = { 0 };
    float *g[W_COUNT] = { 0 };

    of_layer(m, set->layer[i], w, g);
    if (!set->spec[i]->derive(&m->model->config, set->layer[i], w, m->link[i].w, err))
        return false;
    memcpy((float *)(uintptr_t)set->all[i].vec, m->link[i].w, m->link[i].n * sizeof(float));
    return true;
}

/* Of one layer, or ALL. */
enum { ALL = -2 };

static bool push(rg_masters *m, int layer, rg_error *err)
{
    const rg_weight_set *set = &m->model->weights;
    bool ok = true;

    for (int i = 0; ok && i < set->n; i++)
        ok = set->spec[i]->derive || (layer != ALL && layer != set->layer[i]) || push_weight(m, i, err);
    for (int i = 0; ok && i < set->n; i++)
        ok = !set->spec[i]->derive || (layer != ALL && layer != set->layer[i]) || push_derived(m, i, err);
    return ok;
}

bool rg_masters_push(rg_masters *m, rg_error *err)
{
    return push(m, ALL, err);
}

bool rg_masters_push_layer(rg_masters *m, int layer, rg_error *err)
{
    return push(m, layer, err);
}

void rg_masters_clear(rg_masters *m)
{
    for (int i = 0; i < m->n; i++)
        memset(m->all[i].g, 0, m->all[i].n * sizeof *m->all[i].g);
    for (int i = 0; i < m->model->weights.n; i++) {
        linked *l = &m->link[i];

        if (l->own)
            memset(l->g, 0, l->n * sizeof *l->g);
        l->frozen = l->n_tensors > 0;
        for (int e = 0; e < l->n_tensors; e++)
            l->frozen = l->frozen && m->all[l->master[e]].frozen;
    }
}

/* The derivative of each value by the one that it is made of: from four steps, since values are in f32. */
static bool slopes(rg_masters *m, int i, float *out, rg_error *err)
{
    static const double weights[] = { 1, -8, 8, -1 }, steps[] = { -2, -1, 1, 2 };
    const double step = 0x1p-6;
    const linked *l = &m->link[i];
    bool ok = true;

    memset(out, 0, l->n * sizeof *out);
    for (int k = 0; ok && k < 4; k++) {
        float *v = read_coded(m, i, (coding){ MOVED, .step = (float)(steps[k] * step) }, err);

        ok = v;
        for (size_t c = 0; ok && c < l->n; c++)
            out[c] += (float)(weights[k] * (double)v[c] / (12 * step));
        rg_free(v);
    }
    return ok;
}

static bool pull_alone(rg_masters *m, int i, rg_error *err)
{
    const linked *l = &m->link[i];
    const size_t each = l->n / (size_t)l->n_tensors;
    float *slope = rg_array(l->n, sizeof *slope);
    bool ok = slope || rg_fail_memory(err, l->n * sizeof *slope);

    ok = ok && slopes(m, i, slope, err);
    for (size_t k = 0; ok && k < l->n; k++)
        m->all[l->master[k / each]].g[l->place[k]] += l->g[k] * slope[k];
    rg_free(slope);
    return ok;
}

static void pull_weight(rg_masters *m, const linked *l)
{
    const size_t each = l->n_tensors ? l->n / (size_t)l->n_tensors : 0;

    for (int e = 0; e < l->n_tensors; e++) {
        float *to = m->all[l->master[e]].g;
        const float *from = l->g + (size_t)e * each, *w = l->w + (size_t)e * each;
        const int32_t *place = l->place ? l->place + (size_t)e * each : NULL;

        for (size_t k = 0; k < each && l->how == SAME; k++)
            to[k] += from[k];
        for (size_t k = 0; k < each && l->how == CHOSEN; k++)
            to[place[k] < 0 ? ~place[k] : place[k]] += place[k] < 0 ? -from[k] : from[k];
        for (size_t k = 0; k < each && l->how == MINUS_EXP; k++)
            to[place[k]] += from[k] * w[k];
    }
}

bool rg_masters_pull(rg_masters *m, rg_error *err)
{
    const rg_weight_set *set = &m->model->weights;
    bool ok = true;

    for (int i = 0; ok && i < set->n; i++) {
        const rg_weight *w[W_COUNT] = { 0 };
        float *g[W_COUNT] = { 0 };

        if (m->link[i].how != DERIVED)
            continue;
        of_layer(m, set->layer[i], w, g);
        ok = rg_derive_back_of(set->spec[i]->derive)(&m->model->config, set->layer[i], w, m->link[i].g, g, err);
    }
    for (int i = 0; ok && i < set->n; i++)
        if (m->link[i].how == ALONE)
            ok = pull_alone(m, i, err);
        else if (m->link[i].own && !set->spec[i]->derive)
            pull_weight(m, &m->link[i]);
    return ok;
}

void rg_masters_weight(void *masters, const rg_weight *w, const float **values, float **grad)
{
    rg_masters *m = masters;
    const rg_weight_set *own = &m->model->weights;
    const linked *l;

    for (int i = 0; i < m->n_lent; i++)
        if (m->lent[i].weight == w) {
            *values = m->lent[i].w;
            *grad = NULL;
            return;
        }
    l = &m->link[w - own->all];

    *values = l->w;
    *grad = l->frozen || l->how == CONSTANT ? NULL : l->g;
}

bool rg_masters_center(rg_masters *m, rg_error *err)
{
    for (int i = 0; i < m->model->weights.n; i++) {
        const linked *l = &m->link[i];
        rg_master *a = l->n_tensors == 1 ? &m->all[l->master[0]] : NULL;
        float *zeros;

        if (l->how != CHOSEN || !a || a->n_dims != 1 || a->n != l->n || a->w[0] != 1.0f)
            continue;
        zeros = read_coded(m, i, (coding){ ZEROS }, err);
        if (!zeros)
            return false;
        for (size_t k = 0; zeros[0] == 1.0f && k < a->n; k++)
            a->w[k] = 0;
        rg_free(zeros);
    }
    return true;
}

int rg_masters_layer(const rg_masters *m, int i)
{
    const rg_weight_set *set = &m->model->weights;

    for (int k = 0; k < set->n; k++)
        if (set->all[k].placed && set->layer[k] >= 0 && m->link[k].how == SAME && m->link[k].n_tensors == 1 &&
            set->all[k].n_mats == 1 && m->all[i].n_dims == 2 && m->link[k].master[0] == i)
            return set->layer[k];
    return -1;
}

bool rg_masters_is_plain_matrix(const rg_masters *m, int i)
{
    return rg_masters_layer(m, i) >= 0;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static bool write_master(rg_ckpt_writer *w, const rg_master *a, rg_type type, rg_error *err)
{
    const rg_format *fmt = rg_format_of(type);
    void *coded = rg_array(a->n, (size_t)fmt->block_bytes);
    const bool ok = coded || rg_fail_memory(err, a->n);

    if (ok)
        fmt->encode(a->w, (int64_t)a->n, coded);
    const bool written = ok && rg_ckpt_write(w, coded, a->n * (size_t)fmt->block_bytes, err);
    rg_free(coded);
    return written;
}

/* What another engine would read the type of. */
static bool put_type(rg_ckpt_writer *w, rg_type type, rg_error *err)
{
    const char *name = type == RG_BF16 ? "bfloat16" : type == RG_F16 ? "float16" : "float32";

    return rg_ckpt_put_string(w, "torch_dtype", name, strlen(name), err);
}

static bool is_other_type(const char *key)
{
    return !strcmp(key, "dtype") || !strcmp(key, "quantization_config");
}

static bool is_other_type_or_modules(const char *key)
{
    return is_other_type(key) || !strcmp(key, "num_nextn_predict_layers") || !strcmp(key, "mtp_num_hidden_layers");
}

/* The checkpoint's config, and that it has a module where that is new. */
static bool put_config(const rg_masters *m, rg_ckpt_writer *w, rg_error *err)
{
    const char *modules = m->is_new ? m->model->config.arch->module_key : NULL;

    return rg_ckpt_put_all(w, m->from, modules ? is_other_type_or_modules : is_other_type, err) &&
           (!modules || rg_ckpt_put_int(w, modules, WHOLE_NUMBER, 1, err));
}

static bool copy_tensor(rg_ckpt_writer *w, const rg_checkpoint *from, const rg_tensor *t, rg_error *err)
{
    uint8_t *raw = rg_alloc(t->bytes);
    const bool ok = (raw || rg_fail_memory(err, t->bytes)) && rg_tensor_read(from, t, 0, raw, t->bytes, err) &&
                    rg_ckpt_write(w, raw, t->bytes, err);

    rg_free(raw);
    return ok;
}

/* Tensors that are not trained, in two turns: they are declared, and written. */
static bool put_others(const rg_masters *m, rg_ckpt_writer *w, bool data, rg_error *err)
{
    bool ok = true;

    for (int i = 0; ok && m->target && i < rg_checkpoint_n_tensors(m->from); i++) {
        const rg_tensor *t = rg_checkpoint_tensor(m->from, i);

        if (!rg_masters_find((rg_masters *)(uintptr_t)m, t->name))
            ok =
                data ? copy_tensor(w, m->from, t, err) : rg_ckpt_declare(w, t->name, t->type, t->n_dims, t->shape, err);
    }
    return ok;
}

bool rg_masters_write(const rg_masters *m, const char *dir, rg_type type, rg_error *err)
{
    rg_ckpt_writer *w = rg_hf_create(dir, err);
    bool ok = w && put_config(m, w, err) && put_type(w, type, err);

    for (int i = 0; ok && i < m->n; i++)
        ok = rg_ckpt_declare(w, m->all[i].name, type, m->all[i].n_dims, m->all[i].shape, err);
    ok = ok && put_others(m, w, false, err);
    for (int i = 0; ok && i < m->n; i++)
        ok = write_master(w, &m->all[i], type, err);
    ok = ok && put_others(m, w, true, err);
    if (ok)
        return rg_ckpt_commit(w, err);
    rg_ckpt_abort(w);
    return false;
}
