/* prune.c -- see prune.h.
 *
 * Which side of a weight is channels, heads or neurons is said by the sizes in its architecture's table, so that no
 * architecture is named here. */
#include "shrink/prune.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "model/weight_source.h"
#include "shrink/kbit.h"

/* ---- importance -------------------------------------------------------------------------------------------------- */

typedef struct measuring {
    rg_importance *to;
    const rg_config *c;
    const rg_weight *q, *o, *gate, *down;
    int layer;
    int64_t n_rows; /* that cosines were added of */
} measuring;

/* += (mean over rows of |x| of each column)^2 */
static void add_means(const rg_read *r, double *to)
{
    for (int64_t k = 0; k < r->cols; k++) {
        double sum = 0;
        for (int64_t i = 0; i < r->n; i++)
            sum += fabs((double)r->rows[i * r->cols + k]);
        to[k] += pow(sum / (double)r->n, 2);
    }
}

static void add_heads(const rg_read *r, int n_heads, double *to)
{
    const int64_t width = r->cols / n_heads;

    for (int h = 0; h < n_heads; h++) {
        double sum = 0;
        for (int64_t i = 0; i < r->n; i++) {
            double square = 0;
            for (int64_t k = h * width; k < (h + 1) * width; k++)
                square += pow((double)r->rows[i * r->cols + k], 2);
            sum += sqrt(square);
        }
        to[h] += pow(sum / (double)r->n, 2);
    }
}

static double *channels_of(const measuring *m, int norm)
{
    return m->to->channel + (size_t)(1 + 2 * m->layer + norm) * (size_t)m->to->n_channels;
}

static bool take_reads(void *arg, int sample, const rg_read *reads, int n, rg_error *err)
{
    measuring *m = arg;

    (void)sample;
    (void)err;
    for (int i = 0; i < n; i++) {
        if (reads[i].w[0] == m->o)
            add_heads(&reads[i], m->to->n_heads, m->to->head + m->layer * m->to->n_heads);
        if (reads[i].w[0] == m->down)
            add_means(&reads[i], m->to->neuron + m->layer * m->to->n_neurons);
        if (reads[i].w[0] == m->q || reads[i].w[0] == m->gate)
            add_means(&reads[i], channels_of(m, reads[i].w[0] == m->gate));
    }
    return true;
}

static void take_cosines(void *arg, int sample, const float *before, const float *after, int64_t n, int64_t cols)
{
    measuring *m = arg;

    (void)sample;
    for (int64_t r = 0; r < n; r++) {
        double ab = 0, aa = 0, bb = 0;
        for (int64_t k = r * cols; k < (r + 1) * cols; k++) {
            ab += (double)before[k] * (double)after[k];
            aa += (double)before[k] * (double)before[k];
            bb += (double)after[k] * (double)after[k];
        }
        m->to->layer[m->layer] += aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
    }
    m->n_rows += n;
}

static bool measure_layer(measuring *m, rg_stage *s, rg_error *err)
{
    const rg_weight_set *set = &rg_stage_model(s)->weights;

    m->q = rg_weights_get(set, W_Q_PROJ, m->layer);
    m->o = rg_weights_get(set, W_O_PROJ, m->layer);
    m->gate = rg_weights_get(set, W_GATE_PROJ, m->layer);
    m->down = rg_weights_get(set, W_DOWN_PROJ, m->layer);
    if (!m->gate)
        m->gate = rg_weights_get(set, W_UP_PROJ, m->layer);
    if (!m->q || !m->o || !m->gate || !m->down || m->down->cols != m->to->n_neurons || m->o->cols % m->to->n_heads)
        return rg_fail(err, RG_E_UNSUPPORTED, "prune: layer %d is not attention and an MLP", m->layer);
    m->n_rows = 0;
    if (!rg_stage_enter(s, m->layer, err) ||
        !rg_stage_pass(s, &(rg_pass){ .arg = m, .read = take_reads, .through = take_cosines, .advance = true }, err))
        return false;
    m->to->layer[m->layer] = 1 - m->to->layer[m->layer] / (double)m->n_rows;
    return true;
}

static void take_roots(double *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        v[i] = sqrt(v[i]);
}

bool rg_importance_measure(rg_importance *to, rg_stage *s, rg_error *err)
{
    const rg_config *c = &rg_stage_model(s)->config;
    measuring m = { .to = to, .c = c };
    const size_t n = (size_t)c->n_layers;

    *to = (rg_importance){
        .n_layers = c->n_layers, .n_heads = c->n_heads, .n_neurons = c->ffn_dim, .n_channels = c->dim
    };
    if (c->n_heads < 1 || c->ffn_dim < 1)
        return rg_fail(err, RG_E_UNSUPPORTED, "prune: the model's layers are not attention and an MLP");
    to->head = rg_table_new(c->n_layers, c->n_heads, sizeof *to->head);
    to->neuron = rg_table_new(c->n_layers, c->ffn_dim, sizeof *to->neuron);
    to->channel = rg_table_new(2 * c->n_layers + 1, c->dim, sizeof *to->channel);
    to->layer = rg_array(n, sizeof *to->layer);
    if (!to->head || !to->neuron || !to->channel || !to->layer)
        return rg_fail_memory(err, n * (size_t)(c->ffn_dim + c->dim) * sizeof(double));
    for (m.layer = 0; m.layer < c->n_layers; m.layer++)
        if (!measure_layer(&m, s, err))
            return false;
    take_roots(to->head, n * (size_t)c->n_heads);
    take_roots(to->neuron, n * (size_t)c->ffn_dim);
    take_roots(to->channel, (2 * n + 1) * (size_t)c->dim);
    for (size_t i = 0; i < 2 * n; i++)
        for (int k = 0; k < c->dim; k++)
            to->channel[k] += to->channel[(i + 1) * (size_t)c->dim + (size_t)k];
    return true;
}

void rg_importance_fini(rg_importance *i)
{
    rg_free(i->head);
    rg_free(i->neuron);
    rg_free(i->channel);
    rg_free(i->layer);
    *i = (rg_importance){ 0 };
}

/* ---- what stays -------------------------------------------------------------------------------------------------- */

void rg_keep_highest(const double *v, int all, int n, int each, int32_t *kept)
{
    const int width = each ? each : all, of_each = n / (all / width);
    int k = 0;

    for (int first = 0; first < all; first += width)
        for (int i = first; i < first + width; i++) {
            int higher = 0; /* of the same group */
            for (int j = first; j < first + width; j++)
                higher += v[j] > v[i] || (v[j] == v[i] && j < i);
            if (higher < of_each)
                kept[k++] = i;
        }
}

typedef struct cutting {
    const rg_checkpoint *from;
    const rg_config *c;
    const rg_weight_set *set;
    rg_prune_options o;                       /* all filled in */
    int32_t *layer, *channel, *head, *neuron; /* kept; head and neuron of every layer */
    rg_ckpt_writer *w;
    uint64_t bytes;
} cutting;

/* Numbers that stay of a side of a weight into *kept, n of them; *each: values that stand for one.  n 0: all stay. */
static int side(const cutting *k, rg_size *size, int layer, const int32_t **kept, int *each)
{
    *each = 1;
    if (size == DIM) {
        *kept = k->channel;
        return k->o.n_channels;
    }
    if (size == FFN_DIM && layer >= 0) {
        *kept = k->neuron + (size_t)layer * (size_t)k->o.n_neurons;
        return k->o.n_neurons;
    }
    if ((size == Q_DIM || size == N_HEADS) && layer >= 0) {
        *kept = k->head + (size_t)layer * (size_t)k->o.n_heads;
        *each = size == Q_DIM ? k->c->head_dim : 1;
        return k->o.n_heads;
    }
    return 0;
}

static int64_t number_at(const int32_t *kept, int n, int each, int64_t i)
{
    return n ? (int64_t)kept[i / each] * each + i % each : i;
}

/* One weight's tensor under the name that it has in the new model. */
static bool put_weight(cutting *k, int i, bool data, rg_error *err)
{
    const rg_weight_spec *spec = k->set->spec[i];
    const int old = k->set->layer[i], dims = rg_spec_dims(spec);
    rg_weight_source s = rg_weight_source_of(spec, k->c, k->from, old);
    char name[RG_WEIGHT_NAME], to[RG_WEIGHT_NAME + 32];
    const rg_tensor *t = rg_weight_source_find(&s, 0, name);
    const int32_t *rows, *cols;
    int each_row = 1, each_col, now = -1;
    const int n_rows = dims > 1 ? side(k, spec->shape[0], old, &rows, &each_row) : 0;
    const int n_cols = side(k, spec->shape[dims - 1], old, &cols, &each_col);
    const int64_t from_cols = rg_tensor_cols(t);
    const int64_t shape[2] = { dims > 1 ? (n_rows ? (int64_t)n_rows * each_row : t->shape[0]) : 1,
                               n_cols ? (int64_t)n_cols * each_col : from_cols };
    const rg_format *f = rg_format_of(t->type);

    for (int l = 0; l < k->o.n_layers; l++)
        now = k->layer[l] == old ? l : now;
    if (old >= 0 && now < 0)
        return true; /* its layer is left out */
    snprintf(to, sizeof to, "%s", t->name);
    if (old >= 0) {
        const char *prefix = k->c->arch->hf_prefix, *rest = rg_config_rootless(k->c, prefix);
        const char *at = strstr(t->name, rest ? rest : prefix); /* the class's own name may be left out, or another */
        const char *number = at ? at + strlen(rest ? rest : prefix) : NULL, *dot = number ? strchr(number, '.') : NULL;
        if (!dot)
            return rg_fail(err, RG_E_UNSUPPORTED, "prune: tensor '%s' has no layer in its name", t->name);
        snprintf(to, sizeof to, "%.*s%d%s", (int)(number - t->name), t->name, now, dot);
    }
    if (!data) {
        k->bytes += (uint64_t)(shape[0] * shape[1]) * (uint64_t)f->block_bytes;
        return rg_ckpt_declare(k->w, to, t->type, dims, dims > 1 ? shape : shape + 1, err);
    }
    const size_t size = (size_t)f->block_bytes;
    uint8_t *row = rg_table_new(from_cols, 2, size), *cut = row ? row + (size_t)from_cols * size : NULL;
    bool ok = row || rg_fail_memory(err, (size_t)from_cols * 2 * size);
    for (int64_t r = 0; ok && r < shape[0]; r++) {
        const int64_t at = number_at(rows, n_rows, each_row, r);
        ok = rg_tensor_read(k->from, t, (uint64_t)(at * from_cols) * size, row, (size_t)from_cols * size, err);
        for (int64_t c = 0; ok && c < shape[1]; c++)
            memcpy(cut + (size_t)c * size, row + (size_t)number_at(cols, n_cols, each_col, c) * size, size);
        ok = ok && rg_ckpt_write(k->w, cut, (size_t)shape[1] * size, err);
    }
    rg_free(row);
    return ok;
}

/* Weights that can be cut: one plain tensor each. */
static bool check_weights(const cutting *k, rg_error *err)
{
    char name[RG_WEIGHT_NAME];

    if (rg_checkpoint_kind(k->from) != RG_CKPT_HF)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: only a Hugging Face directory can be pruned",
                       rg_checkpoint_path(k->from));
    for (int i = 0; i < k->set->n; i++) {
        rg_weight_source s = rg_weight_source_of(k->set->spec[i], k->c, k->from, k->set->layer[i]);
        const rg_tensor *t = rg_weight_source_find(&s, 0, name);
        if (!t || rg_spec_dims(k->set->spec[i]) > 2 || s.load || s.part || s.transposed ||
            t->file == RG_FILE_COMPOSED || t->n_dims != rg_spec_dims(k->set->spec[i]))
            return rg_fail(err, RG_E_UNSUPPORTED, "prune: '%s' is stored in a form that is not cut",
                           k->set->all[i].name);
    }
    return true;
}

static bool check_sizes(const cutting *k, rg_error *err)
{
    const rg_config *c = k->c;
    const rg_prune_options *o = &k->o;

    if (o->n_layers < 1 || o->n_layers > c->n_layers || o->n_channels < 1 || o->n_channels > c->dim ||
        o->n_neurons < 1 || o->n_neurons > c->ffn_dim || o->n_heads < 1 || o->n_heads > c->n_heads ||
        o->n_heads % c->n_kv_heads)
        return rg_fail(
            err, RG_E_USAGE,
            "prune: %d layers, %d channels, %d neurons and %d heads do not fit a model of %d, %d, %d and %d; "
            "heads are a multiple of its %d K/V heads",
            o->n_layers, o->n_channels, o->n_neurons, o->n_heads, c->n_layers, c->dim, c->ffn_dim, c->n_heads,
            c->n_kv_heads);
    return true;
}

static bool choose(cutting *k, const rg_importance *i, rg_error *err)
{
    const rg_config *c = k->c;
    const size_t n = (size_t)c->n_layers;

    k->layer = rg_array(n, sizeof *k->layer);
    k->channel = rg_array((size_t)c->dim, sizeof *k->channel);
    k->head = rg_table_new(c->n_layers, c->n_heads, sizeof *k->head);
    k->neuron = rg_table_new(c->n_layers, c->ffn_dim, sizeof *k->neuron);
    if (!k->layer || !k->channel || !k->head || !k->neuron)
        return rg_fail_memory(err, n * (size_t)c->ffn_dim * sizeof *k->neuron);
    rg_keep_highest(i->layer, c->n_layers, k->o.n_layers, 0, k->layer);
    rg_keep_highest(i->channel, c->dim, k->o.n_channels, 0, k->channel);
    for (int l = 0; l < c->n_layers; l++) {
        rg_keep_highest(i->head + l * c->n_heads, c->n_heads, k->o.n_heads, c->n_heads / c->n_kv_heads,
                        k->head + (size_t)l * (size_t)k->o.n_heads);
        rg_keep_highest(i->neuron + (size_t)l * (size_t)c->ffn_dim, c->ffn_dim, k->o.n_neurons, 0,
                        k->neuron + (size_t)l * (size_t)k->o.n_neurons);
    }
    return true;
}

/* config.json with the new sizes, and the types of the layers that stay. */
static bool put_config(cutting *k, rg_error *err)
{
    const struct {
        const char *key;
        int now, before;
    } sizes[] = {
        { "num_hidden_layers", k->o.n_layers, k->c->n_layers },
        { "hidden_size", k->o.n_channels, k->c->dim },
        { "intermediate_size", k->o.n_neurons, k->c->ffn_dim },
        { "num_attention_heads", k->o.n_heads, k->c->n_heads },
        { "num_key_value_heads", k->c->n_kv_heads, k->c->n_kv_heads },
        { "head_dim", k->c->head_dim, k->c->head_dim },
    };
    rg_string types[RG_MAX_LAYERS];
    const rg_string *all;
    size_t n = 0;

    if (!rg_ckpt_put_all(k->w, k->from, NULL, err))
        return false;
    for (size_t i = 0; i < RG_LEN(sizes); i++) {
        if (sizes[i].now != sizes[i].before && rg_meta_type_of(k->from, sizes[i].key) != RG_META_INT)
            return rg_fail(err, RG_E_UNSUPPORTED, "prune: config.json has no key '%s' to change", sizes[i].key);
        if (!rg_ckpt_put_int(k->w, sizes[i].key, 11, sizes[i].now, err))
            return false;
    }
    if (rg_meta_strings(k->from, "layer_types", &all, &n, NULL) < 1)
        return true;
    for (int l = 0; l < k->o.n_layers && (size_t)k->layer[l] < n; l++)
        types[l] = all[k->layer[l]];
    return n < (size_t)k->c->n_layers || rg_ckpt_put_strings(k->w, "layer_types", types, (size_t)k->o.n_layers, err);
}

bool rg_prune(const rg_checkpoint *from, const rg_config *c, const rg_importance *i, const rg_prune_options *o,
              const char *to, uint64_t *bytes, rg_error *err)
{
    rg_weight_set set = { 0 };
    cutting k = { .from = from, .c = c, .set = &set, .o = *o };

    k.o.n_layers = k.o.n_layers ? k.o.n_layers : c->n_layers;
    k.o.n_channels = k.o.n_channels ? k.o.n_channels : c->dim;
    k.o.n_neurons = k.o.n_neurons ? k.o.n_neurons : c->ffn_dim;
    k.o.n_heads = k.o.n_heads ? k.o.n_heads : c->n_heads;
    bool ok = check_sizes(&k, err) && rg_weights_declare(&set, c, from, RG_F32, err) && check_weights(&k, err) &&
              choose(&k, i, err) && (k.w = rg_hf_create(to, err)) != NULL && put_config(&k, err);
    for (int data = 0; data < 2; data++)
        for (int n = 0; ok && n < set.n; n++)
            ok = put_weight(&k, n, data, err);
    *bytes = k.bytes;
    if (ok)
        ok = rg_ckpt_commit(k.w, err);
    else
        rg_ckpt_abort(k.w);
    rg_weights_fini(&set);
    rg_free(k.layer);
    rg_free(k.channel);
    rg_free(k.head);
    rg_free(k.neuron);
    return ok;
}
