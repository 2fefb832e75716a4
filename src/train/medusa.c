/* medusa.c -- see medusa.h. */
#include "train/medusa.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "ops/back/inside.h"

enum { MOST_HEADS = 16, BLOCK = 256, NAME = 48, PARTS = 3, CONFIG_CAP = 1 << 16 };

static const char *const part_names[PARTS] = { "0.linear.weight", "0.linear.bias", "1.weight" };

typedef struct one_head {
    float *w[PARTS], *g[PARTS]; /* W1 [dim, dim], b [dim], W2 [vocab, dim] */
    char name[PARTS][NAME];
} one_head;

struct rg_medusa {
    one_head *heads;
    int n, dim, vocab;
    double weight;
    double loss[MOST_HEADS];
    int64_t count[MOST_HEADS]; /* targets of a step */
    int32_t *targets;          /* [positions] of one head */
    size_t room;
};

static size_t size_of(const rg_medusa *d, int part)
{
    const size_t dim = (size_t)d->dim;

    return part == 0 ? dim * dim : part == 1 ? dim : (size_t)d->vocab * dim; /* fit: W2's is that of a weight */
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

/* The model's own head, or the embedding that it shares. */
static const rg_weight *head_of(const rg_model *m)
{
    const rg_weight *w = rg_weights_get(&m->weights, W_LM_HEAD, -1);

    return w ? w : rg_weights_get(&m->weights, W_EMBED_TOKENS, -1);
}

static bool make_head(const rg_medusa *d, one_head *h, int k, const rg_weight *from, rg_error *err)
{
    for (int p = 0; p < PARTS; p++) {
        h->w[p] = rg_array(size_of(d, p), sizeof(float));
        h->g[p] = rg_array(size_of(d, p), sizeof(float));
        if (!h->w[p] || !h->g[p])
            return rg_fail_memory(err, size_of(d, p) * sizeof(float));
        snprintf(h->name[p], NAME, "%d.%s", k, part_names[p]);
    }
    for (int64_t r = 0; r < d->vocab; r++)
        from->placed->owner->weight_get(from->placed, 0, r, h->w[2] + (size_t)r * (size_t)d->dim);
    return true;
}

rg_medusa *rg_medusa_new(rg_masters *m, int n_heads, double weight, rg_error *err)
{
    const rg_model *model = rg_masters_model(m);
    const rg_weight *from = head_of(model);
    rg_medusa *d = rg_zalloc(sizeof *d);
    bool ok = d || rg_fail_memory(err, sizeof *d);

    if (!ok)
        return NULL;
    *d = (rg_medusa){ .dim = model->config.dim, .vocab = model->config.vocab_size, .weight = weight };
    if (n_heads < 1 || n_heads > MOST_HEADS)
        ok = rg_fail(err, RG_E_USAGE, "%d Medusa heads: there may be 1 to %d", n_heads, MOST_HEADS);
    else if (!from || !from->placed || from->cols != d->dim || from->rows < d->vocab)
        ok = rg_fail(err, RG_E_UNSUPPORTED, "the model has no head of its width that Medusa's could begin as");
    d->heads = ok ? rg_array((size_t)n_heads, sizeof *d->heads) : NULL;
    ok = ok && (d->heads || rg_fail_memory(err, (size_t)n_heads * sizeof *d->heads));
    for (int k = 0; ok && k < n_heads; k++)
        ok = make_head(d, &d->heads[d->n++], k, from, err);
    for (int i = 0; ok && i < rg_masters_count(m); i++)
        rg_masters_at(m, i)->frozen = true;
    if (ok)
        return d;
    rg_medusa_free(d);
    return NULL;
}

void rg_medusa_free(rg_medusa *d)
{
    if (!d)
        return;
    for (int k = 0; k < d->n; k++)
        for (int p = 0; p < PARTS; p++) {
            rg_free(d->heads[k].w[p]);
            rg_free(d->heads[k].g[p]);
        }
    rg_free(d->heads);
    rg_free(d->targets);
    rg_free(d);
}

bool rg_medusa_tensor(rg_medusa *d, int k, const char *name, float **w, float **g, size_t *n)
{
    for (int p = 0; p < PARTS; p++)
        if (k >= 0 && k < d->n && !strcmp(name, part_names[p])) {
            *w = d->heads[k].w[p];
            *g = d->heads[k].g[p];
            *n = size_of(d, p);
            return true;
        }
    return false;
}

const double *rg_medusa_losses(const rg_medusa *d)
{
    return d->loss;
}

/* ---- targets ----------------------------------------------------------------------------------------------------- */

/* The id `ahead` places on in the same text; to may be NULL.  Returned: how many there are. */
static int64_t targets_ahead(const rg_texts *t, int ahead, int32_t *to)
{
    int64_t n = 0;

    for (int64_t i = 0; i < (int64_t)t->rows * t->length; i++) {
        const int64_t at = i + ahead;
        const bool there = i % t->length + ahead < t->length && (!t->document || t->document[i] == t->document[at]);

        if (to)
            to[i] = there ? t->ids[at] : RG_NO_TARGET;
        n += there;
    }
    return n;
}

static int64_t count(void *arg, const rg_texts *t)
{
    (void)arg;
    return targets_ahead(t, 2, NULL);
}

static bool begin(void *arg, rg_passes *p, const rg_texts *micro, int n, double scale, rg_error *err)
{
    rg_medusa *d = arg;

    (void)p, (void)scale, (void)err;
    for (int k = 0; k < d->n; k++) {
        d->count[k] = 0;
        for (int i = 0; i < n; i++)
            d->count[k] += targets_ahead(&micro[i], k + 2, NULL);
        for (int part = 0; part < PARTS; part++)
            memset(d->heads[k].g[part], 0, size_of(d, part) * sizeof(float));
    }
    return true;
}

/* ---- a block of rows --------------------------------------------------------------------------------------------- */

/* What a head makes of hidden states h [n, dim], and the gradients of its tensors, by dL / d logits. */
typedef struct rows {
    const rg_medusa *d;
    const one_head *head;
    rg_back_lane *lane;
    rg_mat h;
    float *inner, *act, *y, *logits, *dy; /* W1 h + b; its silu; h + that; [n, vocab]; [n, dim] */
} rows;

static void forward(const rows *v)
{
    const int n = v->h.rows, dim = v->d->dim;

    rg_gemm_run(v->lane, &(rg_gemm){ .m = n,
                                     .n = dim,
                                     .k = dim,
                                     .a = v->h.at,
                                     .lda = v->h.ld,
                                     .b = v->head->w[0],
                                     .ldb = (size_t)dim,
                                     .b_turned = true,
                                     .y = v->inner,
                                     .ldy = (size_t)dim });
    for (int r = 0; r < n; r++)
        for (int c = 0; c < dim; c++)
            v->inner[r * dim + c] += v->head->w[1][c];
    v->lane->backend->host_activate(v->lane->backend, RG_SILU, v->act, v->inner, (size_t)n * (size_t)dim);
    for (int r = 0; r < n; r++)
        for (int c = 0; c < dim; c++)
            v->y[r * dim + c] = rg_mat_row(&v->h, r)[c] + v->act[r * dim + c];
    rg_gemm_run(v->lane, &(rg_gemm){ .m = n,
                                     .n = v->d->vocab,
                                     .k = dim,
                                     .a = v->y,
                                     .lda = (size_t)dim,
                                     .b = v->head->w[2],
                                     .ldb = (size_t)dim,
                                     .b_turned = true,
                                     .y = v->logits,
                                     .ldy = (size_t)v->d->vocab });
}

static void backward(const rows *v)
{
    const int n = v->h.rows, dim = v->d->dim, vocab = v->d->vocab;
    const rg_mat d_inner = { v->dy, (size_t)dim, n, dim };

    rg_gemm_run(v->lane, &(rg_gemm){ .m = vocab,
                                     .n = dim,
                                     .k = n,
                                     .a = v->logits,
                                     .lda = (size_t)vocab,
                                     .a_turned = true,
                                     .b = v->y,
                                     .ldb = (size_t)dim,
                                     .y = v->head->g[2],
                                     .ldy = (size_t)dim,
                                     .add = true });
    rg_gemm_run(v->lane, &(rg_gemm){ .m = n,
                                     .n = dim,
                                     .k = vocab,
                                     .a = v->logits,
                                     .lda = (size_t)vocab,
                                     .b = v->head->w[2],
                                     .ldb = (size_t)dim,
                                     .y = v->dy,
                                     .ldy = (size_t)dim });
    for (int r = 0; r < n; r++)
        rg_back_slopes(v->lane->backend, RG_SILU, v->dy + r * dim, v->dy + r * dim, v->inner + r * dim, dim, v->act);
    rg_gemm_run(v->lane, &(rg_gemm){ .m = dim,
                                     .n = dim,
                                     .k = n,
                                     .a = v->dy,
                                     .lda = (size_t)dim,
                                     .a_turned = true,
                                     .b = v->h.at,
                                     .ldb = v->h.ld,
                                     .y = v->head->g[0],
                                     .ldy = (size_t)dim,
                                     .add = true });
    rg_back_sum_rows(v->lane, v->head->g[1], &d_inner);
}

static bool one_block(rg_medusa *d, int k, rg_back_lane *lane, const rg_mat *h, int64_t first, bool back, rg_error *err)
{
    const rg_back_mark mark = rg_back_marked(lane);
    const size_t n = (size_t)h->rows, dim = (size_t)d->dim;
    const double by = pow(d->weight, k + 1) / (double)(d->count[k] > 0 ? d->count[k] : 1);
    const rg_cross_entropy c = { .targets = d->targets, .scale = by };
    const rg_loss loss = rg_cross_entropy_of(&c);
    rows v = { .d = d, .head = &d->heads[k], .lane = lane, .h = *h };
    double nll[BLOCK];

    v.inner = rg_back_room(lane, n * dim);
    v.act = rg_back_room(lane, n * dim);
    v.y = rg_back_room(lane, n * dim);
    v.dy = rg_back_room(lane, n * dim);
    v.logits = rg_back_room(lane, n * (size_t)d->vocab);
    if (!v.inner || !v.act || !v.y || !v.dy || !v.logits)
        return rg_fail_memory(err, n * (size_t)d->vocab * sizeof(float));
    forward(&v);
    rg_mat logits = { v.logits, (size_t)d->vocab, h->rows, d->vocab };
    if (!loss.rows(loss.arg, lane, first, &logits, nll, err))
        return false;
    for (int r = 0; r < h->rows; r++)
        d->loss[k] += nll[r] / (double)(d->count[k] > 0 ? d->count[k] : 1);
    if (back)
        backward(&v);
    rg_back_give(lane, mark);
    return !lane->failed || rg_fail_memory(err, 0);
}

/* ---- a batch ----------------------------------------------------------------------------------------------------- */

static bool make_room(rg_medusa *d, const rg_texts *t, rg_error *err)
{
    const size_t n = (size_t)t->rows * (size_t)t->length;

    if (n > d->room) {
        rg_free(d->targets);
        d->targets = rg_array(n, sizeof *d->targets);
        d->room = d->targets ? n : 0;
    }
    return d->room || rg_fail_memory(err, n * sizeof *d->targets);
}

/* Hidden states of the piece at `first`, through all heads. */
static bool piece(rg_medusa *d, rg_passes *p, const rg_texts *t, int64_t first, int n, bool back, rg_error *err)
{
    rg_back_lane *lane = rg_passes_lane(p);
    const rg_back_mark mark = rg_back_marked(lane);
    rg_mat h = { rg_back_room(lane, (size_t)n * (size_t)d->dim), (size_t)d->dim, n, d->dim };
    bool ok = h.at || rg_fail_memory(err, (size_t)n * (size_t)d->dim * sizeof(float));

    ok = ok && rg_passes_hidden(p, first, &h, err);
    for (int k = 0; ok && k < d->n; k++) {
        targets_ahead(t, k + 2, d->targets);
        for (int i = 0; ok && i < n; i += BLOCK) {
            const rg_mat part = { rg_mat_row(&h, i), h.ld, n - i < BLOCK ? n - i : BLOCK, d->dim };

            ok = one_block(d, k, lane, &part, first + i, back, err);
        }
    }
    rg_back_give(lane, mark);
    return ok;
}

static bool compute(void *arg, rg_passes *p, const rg_texts *t, double scale, bool forward_only, double *loss,
                    rg_error *err)
{
    rg_medusa *d = arg;
    bool ok = make_room(d, t, err);
    int64_t first;
    int n = 0;

    (void)scale;
    memset(d->loss, 0, sizeof d->loss);
    for (int64_t at = 0; ok && at < (int64_t)t->rows * t->length; at += n)
        ok = rg_passes_enter(p, t, at, &first, &n, err) && piece(d, p, t, first, n, !forward_only, err);
    *loss = 0;
    for (int k = 0; k < d->n; k++)
        *loss += pow(d->weight, k + 1) * d->loss[k];
    return ok;
}

static bool add_to(void *arg, rg_adamw *a, rg_error *err)
{
    rg_medusa *d = arg;
    bool ok = true;

    for (int k = 0; ok && k < d->n; k++)
        for (int p = 0; ok && p < PARTS; p++)
            ok = rg_adamw_add(a,
                              &(rg_adamw_tensor){ .name = d->heads[k].name[p],
                                                  .n_dims = p == 1 ? 1 : 2,
                                                  .shape = { p == 2 ? d->vocab : d->dim, d->dim },
                                                  .w = d->heads[k].w[p],
                                                  .g = d->heads[k].g[p],
                                                  .n = size_of(d, p) },
                              err);
    return ok;
}

rg_objective rg_medusa_objective(rg_medusa *d)
{
    return (rg_objective){
        .arg = d, .tag = "heads of Medusa", .count = count, .begin = begin, .compute = compute, .add_to = add_to
    };
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static bool write_tensor(rg_ckpt_writer *w, const float *values, size_t n, rg_type type, rg_error *err)
{
    const rg_format *f = rg_format_of(type);
    uint8_t *coded = rg_array(n, (size_t)f->block_bytes);
    bool ok = coded || rg_fail_memory(err, n);

    if (ok)
        f->encode(values, (int64_t)n, coded);
    ok = ok && rg_ckpt_write(w, coded, n * (size_t)f->block_bytes, err);
    rg_free(coded);
    return ok;
}

static bool write_config(const rg_medusa *d, const char *dir, const char *base, rg_error *err)
{
    rg_buf b;
    bool ok;

    rg_buf_init(&b, CONFIG_CAP);
    rg_buf_printf(&b, "{\"medusa_num_heads\": %d, \"medusa_num_layers\": 1, \"base_model_name_or_path\": \"", d->n);
    for (const char *s = base; *s; s++)
        if (*s == '"' || *s == '\\')
            rg_buf_printf(&b, "\\%c", *s);
        else if ((unsigned char)*s >= 0x20)
            rg_buf_add(&b, s, 1);
    rg_buf_str(&b, "\"}\n");
    ok = (!b.failed || rg_fail_memory(err, b.n)) && rg_dir_make(dir, err) &&
         rg_file_put_in(dir, "config.json", b.data, b.n, err);
    rg_buf_fini(&b);
    return ok;
}

bool rg_medusa_write(const rg_medusa *d, const char *dir, const char *base, rg_type type, rg_error *err)
{
    char path[4096];
    rg_ckpt_writer *w;
    bool ok = write_config(d, dir, base, err);

    if (ok && !rg_path_join(path, sizeof path, dir, "medusa_lm_head.safetensors"))
        ok = rg_fail(err, RG_E_INPUT, "%s: the path is too long", dir);
    w = ok ? rg_safetensors_create(path, err) : NULL;
    ok = w;
    for (int data = 0; data < 2; data++)
        for (int k = 0; k < d->n; k++)
            for (int p = 0; ok && p < PARTS; p++) {
                const int64_t shape[] = { p == 2 ? d->vocab : d->dim, d->dim };

                ok = data ? write_tensor(w, d->heads[k].w[p], size_of(d, p), type, err)
                          : rg_ckpt_declare(w, d->heads[k].name[p], type, p == 1 ? 1 : 2, shape, err);
            }
    if (ok)
        return rg_ckpt_commit(w, err);
    rg_ckpt_abort(w);
    return false;
}
