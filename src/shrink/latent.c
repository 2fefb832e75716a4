/* latent.c -- see latent.h.  With g K/V heads of d columns, Sigma the mean of x x^T of what K and V are made of:
 *
 * U_l [g, g], one for each frequency l (columns l and l + d / 2 of a head): eigenvectors of the covariance of the
 * heads' columns.  Turned K: K'_j = sum over h of U[j][h] K_h, of which the first m are rotated; of query head n, which
 * reads K/V head h, the parts U[j][h] q_n are rotated with them.  The rest of K_h is K_h - sum over j < m of U[j][h]
 * K'_j, and its scores are those of q_n itself. */
#include "shrink/latent.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "model/arch.h"
#include "model/weight_source.h"
#include "shrink/inputs.h"
#include "shrink/linear.h"

/* One layer in double, row-major. */
typedef struct layer {
    double *q, *k, *v; /* [n_heads d, dim], [g d, dim] twice */
    double *sigma;     /* [dim, dim] */
    double *turns;     /* [d / 2][g, g] */
    float *new_q;      /* [n_heads (1 + m) d, dim] */
    float *down, *up;  /* [rank + m d, dim], [n_heads 2 d, rank] */
} layer;

typedef struct latent {
    const rg_checkpoint *from;
    rg_stage *s;
    const rg_config *c;
    const rg_weight_set *set;
    rg_shrink_options shrink; /* for what collects inputs */
    rg_latent_options o;
    int64_t g, d, dim, n_heads, rank, m;
    layer *layers; /* [n_layers] */
    rg_ckpt_writer *w;
    uint64_t bytes;
} latent;

/* ---- what it can be made of -------------------------------------------------------------------------------------- */

static bool is_known(rg_role role)
{
    static const rg_role known[] = { W_ATTN_NORM, W_Q_PROJ,  W_K_PROJ,    W_V_PROJ,       W_O_PROJ,     W_FFN_NORM,
                                     W_GATE_PROJ, W_UP_PROJ, W_DOWN_PROJ, W_EMBED_TOKENS, W_FINAL_NORM, W_LM_HEAD };

    for (size_t i = 0; i < RG_LEN(known); i++)
        if (known[i] == role)
            return true;
    return false;
}

static bool check(const latent *k, rg_error *err)
{
    const rg_config *c = k->c;
    const int64_t most = (k->m < k->g ? 2 : 1) * k->g * k->d;

    if (rg_checkpoint_kind(k->from) != RG_CKPT_HF)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: only a Hugging Face directory is made another",
                       rg_checkpoint_path(k->from));
    if (!c->arch->latents)
        return rg_fail(err, RG_E_UNSUPPORTED, "models of %s have no form with latents: Llama has one",
                       rg_config_name(c));
    for (int i = 0; i < k->set->n; i++)
        if (!is_known((rg_role)k->set->spec[i]->role))
            return rg_fail(err, RG_E_UNSUPPORTED, "'%s' is not of a plain Llama: its K and V cannot become latents",
                           k->set->all[i].name);
    for (int i = 0; i < c->n_layers; i++)
        if (c->layer[i].window || c->layer[i].kv_layer >= 0)
            return rg_fail(err, RG_E_UNSUPPORTED, "layer %d has a window or another layer's K/V", i);
    if (c->n_ropes != 1 || c->ropes[0].dim != c->head_dim || c->ropes[0].interleaved)
        return rg_fail(err, RG_E_UNSUPPORTED, "only heads that are rotated whole, as halves, can become latents");
    if (k->m < 1 || k->m > k->g)
        return rg_fail(err, RG_E_USAGE, "%lld K heads cannot stay rotated: there are %lld", (long long)k->m,
                       (long long)k->g);
    return (k->rank >= 1 && k->rank <= most) ||
           rg_fail(err, RG_E_USAGE, "a latent of %lld numbers: 1 to %lld are wanted", (long long)k->rank,
                   (long long)most);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static const rg_weight *weight_of(const latent *k, int layer_number, int role)
{
    for (int i = 0; i < k->set->n; i++)
        if (k->set->layer[i] == layer_number && (int)k->set->spec[i]->role == role)
            return &k->set->all[i];
    return NULL;
}

static double *matrix_of(const latent *k, int number, int role, int64_t rows, rg_error *err)
{
    const rg_weight *w = weight_of(k, number, role);
    const size_t n = (size_t)rows * (size_t)k->dim;
    double *to = w ? rg_array(n, sizeof *to) : NULL;
    float *values = to ? rg_array(n, sizeof *values) : NULL;

    RG_ASSERT(w);
    if (!values) {
        rg_free(to);
        return rg_fail_memory(err, n * sizeof *to), NULL;
    }
    rg_stage_get(k->s, w, 0, values);
    for (size_t i = 0; i < n; i++)
        to[i] = (double)values[i];
    rg_free(values);
    return to;
}

/* The mean of x x^T of what K and V read; of a model that saw nothing all directions are alike. */
static bool take_sigma(const latent *k, layer *l, int number, rg_error *err)
{
    rg_layer_work work = {
        .o = &k->shrink, .layer = number, .stage = k->s, .pool = rg_stage_pool(k->s), .config = k->c
    };
    const size_t n = (size_t)k->dim;
    size_t all;

    l->sigma = rg_mul(n, n, &all) ? rg_array(all, sizeof *l->sigma) : NULL;
    if (!l->sigma)
        return rg_fail_memory(err, n * n * sizeof *l->sigma);
    const bool ok = rg_inputs_collect(&work, RG_NEED_GRAM, err);
    const rg_input *x = ok ? rg_input_of(&work, weight_of(k, number, W_K_PROJ), 0) : NULL;
    for (size_t i = 0; x && i < all; i++)
        l->sigma[i] = x->gram[i] / (double)x->n_rows;
    rg_inputs_free(&work);
    return ok && (x || rg_fail(err, RG_E_UNSUPPORTED, "nothing was seen of K's matrix"));
}

/* ---- turning ----------------------------------------------------------------------------------------------------- */

/* to [rows, dim] = a [rows, dim] Sigma. */
static void times_sigma(const latent *k, const layer *l, const double *a, int64_t rows, double *to)
{
    const int64_t n = k->dim;

    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < n; c++) {
            double sum = 0;

            for (int64_t i = 0; i < n; i++)
                sum += a[r * n + i] * l->sigma[i * n + c]; /* symmetric */
            to[r * n + c] = sum;
        }
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* The turn of each frequency, by the covariance of K's columns; ks [g d, dim]: K Sigma. */
static bool find_turns(const latent *k, layer *l, const double *ks, rg_error *err)
{
    const int64_t g = k->g, half = k->d / 2, n = k->dim;
    double *a = rg_table_new(g, g, sizeof *a), *values = rg_array((size_t)g, sizeof *values);
    bool ok;

    l->turns = rg_table_new(half, g * g, sizeof *l->turns);
    ok = a && values && l->turns;
    for (int64_t f = 0; ok && f < half; f++) {
        for (int64_t i = 0; i < g; i++)
            for (int64_t h = 0; h < g; h++) {
                const int64_t x = i * k->d + f, y = h * k->d + f;

                a[i * g + h] = dot(ks + x * n, l->k + y * n, n) + dot(ks + (x + half) * n, l->k + (y + half) * n, n);
            }
        rg_eigen(a, g, values, l->turns + f * g * g);
    }
    rg_free(a);
    rg_free(values);
    return ok || rg_fail_memory(err, (size_t)(half * g * g) * sizeof *a);
}

/* U[j][h] of the frequency of a column of a head. */
static double turn_of(const latent *k, const layer *l, int64_t column, int64_t j, int64_t h)
{
    return l->turns[(column % (k->d / 2)) * k->g * k->g + j * k->g + h];
}

/* Rows of K that stay rotated, to the end of `down`; and what is left of K, in its place. */
static void split_keys(const latent *k, layer *l, double *row)
{
    const int64_t n = k->dim, d = k->d;

    for (int64_t j = 0; j < k->m; j++)
        for (int64_t c = 0; c < d; c++) {
            memset(row, 0, (size_t)n * sizeof *row);
            for (int64_t h = 0; h < k->g; h++)
                for (int64_t i = 0; i < n; i++)
                    row[i] += turn_of(k, l, c, j, h) * l->k[(h * d + c) * n + i];
            for (int64_t i = 0; i < n; i++)
                l->down[(k->rank + j * d + c) * n + i] = (float)row[i];
            for (int64_t h = 0; h < k->g; h++) /* rows of a turn are orthogonal: the others do not change */
                for (int64_t i = 0; i < n; i++)
                    l->k[(h * d + c) * n + i] -= turn_of(k, l, c, j, h) * row[i];
        }
}

/* Make each query head anew: itself, and its parts that are rotated. */
static void make_queries(const latent *k, layer *l)
{
    const int64_t n = k->dim, d = k->d, each = (1 + k->m) * d;

    for (int64_t head = 0; head < k->n_heads; head++)
        for (int64_t c = 0; c < d; c++) {
            const double *from = l->q + (head * d + c) * n;
            float *to = l->new_q + (head * each + c) * n;

            for (int64_t i = 0; i < n; i++)
                to[i] = (float)from[i];
            for (int64_t j = 0; j < k->m; j++) {
                const double by = turn_of(k, l, c, j, head / (k->n_heads / k->g));

                for (int64_t i = 0; i < n; i++)
                    to[(j + 1) * d * n + i] = (float)(by * from[i]);
            }
        }
}

/* ---- the latent -------------------------------------------------------------------------------------------------- */

/* The two matrices that K's rest and V become: y [2 g d, dim] holds both, K's rows times `balance`; p [2 g d, 2 g d]
 * principal components as rows. */
static void make_latent(const latent *k, layer *l, const double *y, const double *p, double balance)
{
    const int64_t all = 2 * k->g * k->d, n = k->dim, d = k->d;

    for (int64_t r = 0; r < k->rank; r++)
        for (int64_t i = 0; i < n; i++) {
            double sum = 0;

            for (int64_t a = 0; a < all; a++)
                sum += p[r * all + a] * y[a * n + i];
            l->down[r * n + i] = (float)sum;
        }
    for (int64_t head = 0; head < k->n_heads; head++) {
        const int64_t h = head / (k->n_heads / k->g);

        for (int64_t c = 0; c < d; c++)
            for (int64_t r = 0; r < k->rank; r++) {
                float *to = l->up + (head * 2 * d + c) * k->rank + r;

                to[0] = (float)(balance > 0 ? p[r * all + h * d + c] / balance : 0);
                to[d * k->rank] = (float)p[r * all + (k->g + h) * d + c];
            }
    }
}

/* Principal components of what K's rest and V are. */
static bool compress(const latent *k, layer *l, rg_error *err)
{
    const int64_t half = k->g * k->d, all = 2 * half, n = k->dim;
    double *y = rg_table_new(all, n, sizeof *y), *ys = rg_table_new(all, n, sizeof *ys);
    double *a = rg_table_new(all, all, sizeof *a), *p = rg_table_new(all, all, sizeof *p);
    double *values = rg_array((size_t)all, sizeof *values), power[2] = { 0, 0 };
    const bool ok = y && ys && a && p && values;

    if (ok) {
        memcpy(y, l->k, (size_t)(half * n) * sizeof *y);
        memcpy(y + half * n, l->v, (size_t)(half * n) * sizeof *y);
        times_sigma(k, l, y, all, ys);
        for (int64_t i = 0; i < all; i++)
            power[i >= half] += dot(ys + i * n, y + i * n, n);
        /* Nothing but rounding is left of K where all of it stays rotated. */
        const double balance = k->m < k->g && power[0] > 0 ? sqrt(power[1] / power[0]) : 0;
        for (int64_t i = 0; i < half * n; i++) {
            y[i] *= balance;
            ys[i] *= balance;
        }
        for (int64_t i = 0; i < all; i++)
            for (int64_t j = 0; j <= i; j++)
                a[i * all + j] = a[j * all + i] = dot(ys + i * n, y + j * n, n);
        rg_eigen(a, all, values, p);
        make_latent(k, l, y, p, balance);
    }
    rg_free(y);
    rg_free(ys);
    rg_free(a);
    rg_free(p);
    rg_free(values);
    return ok || rg_fail_memory(err, (size_t)all * (size_t)(all + n) * 2 * sizeof *y);
}

static void free_layer(layer *l)
{
    rg_free(l->q);
    rg_free(l->k);
    rg_free(l->v);
    rg_free(l->sigma);
    rg_free(l->turns);
    rg_free(l->new_q);
    rg_free(l->down);
    rg_free(l->up);
    *l = (layer){ 0 };
}

/* What is written stays; the rest is given back. */
static void keep_results(layer *l)
{
    const layer was = *l;

    *l = (layer){ .new_q = was.new_q, .down = was.down, .up = was.up };
    free_layer(&(layer){ .q = was.q, .k = was.k, .v = was.v, .sigma = was.sigma, .turns = was.turns });
}

static bool make_layer(const latent *k, int number, rg_error *err)
{
    layer *l = &k->layers[number];
    const size_t n = (size_t)k->dim;
    double *ks = NULL, *row = NULL;
    bool ok = rg_stage_enter(k->s, number, err) &&
              (l->q = matrix_of(k, number, W_Q_PROJ, k->n_heads * k->d, err)) != NULL &&
              (l->k = matrix_of(k, number, W_K_PROJ, k->g * k->d, err)) != NULL &&
              (l->v = matrix_of(k, number, W_V_PROJ, k->g * k->d, err)) != NULL && take_sigma(k, l, number, err);

    if (ok) {
        ks = rg_table_new(k->g * k->d, k->dim, sizeof *ks);
        row = rg_array(n, sizeof *row);
        l->new_q = rg_table_new(k->n_heads * (1 + k->m) * k->d, k->dim, sizeof *l->new_q);
        l->down = rg_table_new(k->rank + k->m * k->d, k->dim, sizeof *l->down);
        l->up = rg_table_new(k->n_heads * 2 * k->d, k->rank, sizeof *l->up);
        ok = (ks && row && l->new_q && l->down && l->up) || rg_fail_memory(err, n * n * sizeof *ks);
    }
    if (ok) {
        times_sigma(k, l, l->k, k->g * k->d, ks);
        ok = find_turns(k, l, ks, err);
    }
    if (ok) {
        split_keys(k, l, row);
        make_queries(k, l);
        ok = compress(k, l, err);
    }
    rg_free(ks);
    rg_free(row);
    keep_results(l);
    return ok && rg_stage_pass(k->s, &(rg_pass){ .advance = true }, err);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* A tensor of the new form in place of an old one: of Q, K and V. */
typedef struct new_tensor {
    const char *name;
    int64_t rows, cols;
    const float *values;
} new_tensor;

static bool tensor_of(const latent *k, int number, int role, new_tensor *out)
{
    const layer *l = &k->layers[number];

    switch (role) {
    case W_Q_PROJ:
        *out = (new_tensor){ "q_proj", k->n_heads * (1 + k->m) * k->d, k->dim, l->new_q };
        return true;
    case W_K_PROJ:
        *out = (new_tensor){ "kv_a_proj_with_mqa", k->rank + k->m * k->d, k->dim, l->down };
        return true;
    case W_V_PROJ:
        *out = (new_tensor){ "kv_b_proj", k->n_heads * 2 * k->d, k->rank, l->up };
        return true;
    default:
        return false;
    }
}

static bool put_tensor(latent *k, int number, const new_tensor *t, bool data, rg_error *err)
{
    const int64_t shape[RG_MAX_DIMS] = { t->rows, t->cols };
    const size_t bytes = (size_t)(t->rows * t->cols) * sizeof *t->values;
    char name[RG_WEIGHT_NAME];

    if (data)
        return rg_ckpt_write(k->w, t->values, bytes, err);
    snprintf(name, sizeof name, "model.layers.%d.self_attn.%s.weight", number, t->name);
    k->bytes += bytes;
    return rg_ckpt_declare(k->w, name, RG_F32, 2, shape, err);
}

static bool put_old(latent *k, int i, bool data, rg_error *err)
{
    rg_weight_source s = rg_weight_source_of(k->set->spec[i], k->c, k->from, k->set->layer[i]);
    char name[RG_WEIGHT_NAME];
    const rg_tensor *t = rg_weight_source_find(&s, 0, name);

    if (!t || s.load || s.part || s.transposed || t->file == RG_FILE_COMPOSED)
        return rg_fail(err, RG_E_UNSUPPORTED, "'%s' is stored in a form that is not changed", k->set->all[i].name);
    if (!data) {
        k->bytes += t->bytes;
        return rg_ckpt_declare(k->w, t->name, t->type, t->n_dims, t->shape, err);
    }
    uint8_t *raw = rg_alloc(t->bytes);
    const bool ok = (raw || rg_fail_memory(err, t->bytes)) && rg_tensor_read(k->from, t, 0, raw, t->bytes, err) &&
                    rg_ckpt_write(k->w, raw, t->bytes, err);
    rg_free(raw);
    return ok;
}

static bool put_weights(latent *k, bool data, rg_error *err)
{
    bool ok = true;

    for (int i = 0; ok && i < k->set->n; i++) {
        const int number = k->set->layer[i];
        new_tensor t;

        ok = number >= 0 && tensor_of(k, number, (int)k->set->spec[i]->role, &t) ? put_tensor(k, number, &t, data, err)
                                                                                 : put_old(k, i, data, err);
    }
    return ok;
}

static bool is_not_of_latents(const char *key)
{
    static const char *const keys[] = { "architectures", "model_type", "num_key_value_heads", "head_dim",
                                        "quantization_config" };

    for (size_t i = 0; i < RG_LEN(keys); i++)
        if (!strcmp(key, keys[i]))
            return true;
    return false;
}

static bool put_config(const latent *k, rg_error *err)
{
    const rg_arch *form = k->c->arch->latents;
    const rg_string class = { form->hf_name, strlen(form->hf_name) };
    rg_ckpt_writer *w = k->w;

    return rg_ckpt_put_all(w, k->from, is_not_of_latents, err) &&
           rg_ckpt_put_strings(w, "architectures", &class, 1, err) &&
           rg_ckpt_put_string(w, "model_type", form->hf_type, strlen(form->hf_type), err) &&
           rg_ckpt_put_int(w, "num_key_value_heads", 11, k->n_heads, err) &&
           rg_ckpt_put_int(w, "kv_lora_rank", 11, k->rank, err) && rg_ckpt_put_int(w, "qk_rope_heads", 11, k->m, err) &&
           rg_ckpt_put_int(w, "qk_rope_head_dim", 11, k->m * k->d, err) &&
           rg_ckpt_put_int(w, "qk_nope_head_dim", 11, k->d, err) && rg_ckpt_put_int(w, "v_head_dim", 11, k->d, err);
}

bool rg_latent(const rg_checkpoint *from, rg_stage *s, int n_samples, int ctx, const rg_latent_options *o,
               const char *to, uint64_t *bytes, rg_error *err)
{
    static const rg_shrink_method reads = { .name = "mla", .needs = RG_NEED_GRAM };
    const rg_model *model = rg_stage_model(s);
    const rg_config *c = &model->config;
    latent k = { .from = from,
                 .s = s,
                 .c = c,
                 .set = &model->weights,
                 .o = *o,
                 .shrink = { .method = &reads, .n_samples = n_samples, .ctx = ctx },
                 .g = c->n_kv_heads,
                 .d = c->head_dim,
                 .dim = c->dim,
                 .n_heads = c->n_heads,
                 .rank = o->rank,
                 .m = o->rope_heads };
    bool ok = check(&k, err);

    if (ok) {
        k.layers = rg_array((size_t)c->n_layers, sizeof *k.layers);
        ok = k.layers || rg_fail_memory(err, (size_t)c->n_layers * sizeof *k.layers);
    }
    for (int i = 0; ok && i < c->n_layers; i++)
        ok = make_layer(&k, i, err);
    ok = ok && (k.w = rg_hf_create(to, err)) != NULL && put_config(&k, err) && put_weights(&k, false, err) &&
         put_weights(&k, true, err);
    *bytes = k.bytes;
    if (ok)
        ok = rg_ckpt_commit(k.w, err);
    else
        rg_ckpt_abort(k.w);
    for (int i = 0; k.layers && i < c->n_layers; i++)
        free_layer(&k.layers[i]);
    rg_free(k.layers);
    return ok;
}
