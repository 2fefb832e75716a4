/* self.c -- see self.h. */
#include "model/self.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "ops/kv.h"

enum {
    FEW_BITS = 5,     /* weights of no more stay as they are */
    SINKS = 4,        /* first keys that all rows go on to see: attention breaks down without (Xiao et al. 2023) */
    MAX_N = 1 << 20,
};

/* ---- fewer bits -------------------------------------------------------------------------------------------------- */

static double bits_of(rg_type type)
{
    const rg_format *f = rg_format_of(type);

    return 8.0 * (double)f->block_bytes / f->block_len;
}

/* True for a matrix that products read in more bits. */
static bool is_wide(const rg_weight_set *s, int i)
{
    const rg_weight *w = &s->all[i];

    return w->placed && !w->placed->is_paged && !w->order && bits_of(w->type) > FEW_BITS &&
           w->cols % rg_format_of(RG_Q4_0)->block_len == 0;
}

/* Weight i in 4 bits, each block of 32 with a scale, as files have it (Q4_0). */
static bool narrow_one(void *arg, int i, rg_error *err)
{
    rg_weight_set *s = arg;
    rg_weight *w = &s->all[i];
    const rg_format *q4 = rg_format_of(RG_Q4_0);
    const rg_placing what = { .type = RG_Q4_0, .n_mats = w->n_mats, .rows = w->rows, .cols = w->cols };

    if (!is_wide(s, i))
        return true;
    const rg_placed *from = w->placed;
    rg_placed *to = s->backend->weight_new(s->backend, &what, err);
    float *row = rg_array((size_t)w->cols, sizeof *row);
    uint8_t *codes = rg_array((size_t)(w->cols / q4->block_len), q4->block_bytes);
    bool ok = to && row && codes;

    if (to && !ok)
        rg_fail_memory(err, (size_t)w->cols * sizeof *row);
    for (int64_t r = 0; ok && r < w->n_mats * w->rows; r++) {
        from->owner->weight_get(from, r / w->rows, r % w->rows, row);
        q4->encode(row, w->cols / q4->block_len, codes);
        to->owner->weight_put(to, r / w->rows, r % w->rows, codes);
    }
    rg_free(row);
    rg_free(codes);
    if (!ok) {
        rg_placed_free(to);
        return false;
    }
    w->wide = false;
    rg_weights_replace(s, i, to);
    return true;
}

static bool narrow(rg_model *m, int n, int n_threads, rg_error *err)
{
    const rg_weight_work work = { .each = narrow_one, .arg = &m->weights, .n_threads = n_threads };
    bool some = false;

    (void)n;
    for (int i = 0; i < m->weights.n; i++)
        some = some || is_wide(&m->weights, i);
    if (!some)
        return rg_fail(err, RG_E_USAGE, "its weights have no more than %d bits already", FEW_BITS);
    if (!rg_weights_each(&m->weights, &work, err))
        return false;
    for (int i = 0; i < m->weights.n; i++)
        m->weights.bytes += m->weights.placed[i] ? m->weights.placed[i]->bytes : 0;
    return true;
}

bool rg_self_has_wide_weights(const rg_model *m)
{
    double wide = 0, all = 0;

    for (int i = 0; i < m->weights.n; i++) {
        const rg_weight *w = &m->weights.all[i];
        const double bytes = w->placed ? (double)(w->n_mats * w->rows * w->cols) * bits_of(w->type) / 8 : 0;

        all += bytes;
        wide += is_wide(&m->weights, i) && bits_of(w->type) >= 16 ? bytes : 0;
    }
    return wide > all / 2;
}

/* ---- fewer layers ------------------------------------------------------------------------------------------------ */

/* The first and the last layers do what no other does. */
static bool may_be_left_out(const rg_model *m, int i)
{
    const int n = m->config.n_layers, ends = (n + 3) / 4;

    for (int k = 0; k < n; k++)
        if (m->of->keep[k].shared_with == i)
            return false;
    return i >= ends && i < n - ends;
}

/* Leave out n layers, spread evenly over all that may be left out; 0: half of all that may. */
static bool leave_layers(rg_model *m, int n, int n_threads, rg_error *err)
{
    const int n_layers = m->config.n_layers;
    int most = 0, at = 0;

    (void)n_threads;
    for (int i = 0; i < n_layers; i++)
        most += may_be_left_out(m, i);
    n = n ? n : (most + 1) / 2;
    if (n < 1 || n > most)
        return rg_fail(err, RG_E_USAGE, "of its %d layers no more than %d can be left out", n_layers, most);
    m->left_out = rg_array((size_t)n_layers, sizeof *m->left_out);
    if (!m->left_out)
        return rg_fail_memory(err, (size_t)n_layers);
    for (int i = 0; i < n_layers; i++) {
        const bool may = may_be_left_out(m, i);

        m->left_out[i] = may && (at + 1) * n / most > at * n / most;
        at += may;
    }
    return true;
}

/* ---- fewer keys -------------------------------------------------------------------------------------------------- */

static bool sees_all(const rg_config *c, int layer)
{
    return rg_layer_kind_of(c, layer)->keep && !c->layer[layer].window && c->layer[layer].pattern < 0;
}

/* Rows of layers that see all keys see the latest n and the first few. */
static bool see_window(rg_model *m, int n, int n_threads, rg_error *err)
{
    rg_config *c = &m->config;
    int some = 0;

    (void)n_threads;
    if (c->n_patterns == RG_MAX_LAYER_PATTERNS)
        return rg_fail(err, RG_E_UNSUPPORTED, "its layers have as many patterns as there is room for");
    c->patterns[c->n_patterns] = (rg_patterns){ .n_patterns = 1, .patterns[0] = { .n_terms = 2, .terms = {
        { .kind = RG_TERM_WINDOW, .size = n, .step = 1 }, { .kind = RG_TERM_FIRST, .size = SINKS, .step = 1 } } } };
    for (int i = 0; i < c->n_layers; i++)
        if (m->of->keep[i].kv.group >= 0 && sees_all(c, i)) {
            c->layer[i].pattern = c->n_patterns;
            some++;
        }
    c->n_patterns++;
    return some || rg_fail(err, RG_E_USAGE, "none of its layers sees all keys");
}

static bool keep_all(rg_model *m, int n, int n_threads, rg_error *err)
{
    (void)m, (void)n, (void)n_threads, (void)err;
    return true;
}

/* ---- methods ----------------------------------------------------------------------------------------------------- */

static const rg_self_method methods[] = {
    { "q4", "weights in 4 bits", 0, 0, narrow, NULL },
    { "layers", "N layers left out, of the middle", 1, 0, leave_layers, NULL },
    { "window", "the latest N keys and the first four", 16, 256, see_window, NULL },
    { "kv4", "K/V in 4 bits", 0, 0, keep_all, "q4" },
};

const rg_self_method *rg_self_nth(size_t i)
{
    return i < RG_LEN(methods) ? &methods[i] : NULL;
}

const rg_self_method *rg_self_find(const char *text, int *n, rg_error *err)
{
    const size_t length = strcspn(text, ":");
    const char *number = text[length] ? text + length + 1 : NULL;
    char *end = NULL;

    for (size_t i = 0; i < RG_LEN(methods); i++) {
        const rg_self_method *s = &methods[i];

        if (strlen(s->name) != length || strncmp(s->name, text, length) != 0)
            continue;
        const long given = number ? strtol(number, &end, 10) : s->normal;
        if (number && (!s->least || end == number || *end || given < s->least || given > MAX_N))
            return s->least ? rg_fail(err, RG_E_USAGE, "draft self:%.40s: want %d or more behind %s:", text, s->least,
                                      s->name)
                            : rg_fail(err, RG_E_USAGE, "draft self:%.40s: %s takes no number", text, s->name), NULL;
        *n = (int)given;
        return s;
    }
    rg_fail(err, RG_E_USAGE, "draft self:%.40s: want self:q4, self:layers[:N], self:window[:N] or self:kv4", text);
    return NULL;
}

rg_model *rg_self_open(const rg_model *of, const rg_self_method *method, int n, int max_draft, int n_threads,
                       rg_error *err)
{
    const rg_model_options o = { .kv_type = method->kv_type ? method->kv_type : rg_kv_name(of->kv_type),
                                 .max_draft = max_draft };
    rg_error why = { 0 };
    rg_model *m = rg_model_borrow(of, err);

    if (!m)
        return NULL;
    if (method->apply(m, n, n_threads, &why) && rg_model_complete(m, &o, &why))
        return m;
    rg_model_close(m);
    rg_fail(err, why.code, "draft self:%s: %s", method->name, why.text);
    return NULL;
}
