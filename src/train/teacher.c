/* teacher.c -- see teacher.h. */
#include "train/teacher.h"

#include <string.h>

#include "base/hash.h"

struct rg_teacher {
    rg_model *model;
    uint64_t number;
    rg_passes *passes;
    const rg_texts *texts;
    int64_t first; /* positions of the piece that was computed */
    int n;
    rg_slab rows;
};

static bool find_number(const rg_checkpoint *from, uint64_t *number, rg_error *err)
{
    uint8_t head[4096];

    *number = 0;
    for (int i = 0; i < rg_checkpoint_n_tensors(from); i++) {
        const rg_tensor *t = rg_checkpoint_tensor(from, i);
        const size_t n = t->bytes < sizeof head ? t->bytes : sizeof head;

        if (!rg_tensor_read(from, t, 0, head, n, err))
            return false;
        *number = rg_hash(head, n, rg_hash(t->name, strlen(t->name), *number));
    }
    return true;
}

rg_teacher *rg_teacher_open(const rg_checkpoint *from, const rg_backend *backend, const rg_passes_options *o,
                            rg_error *err)
{
    rg_teacher *t = rg_zalloc(sizeof *t);

    if (!t)
        return rg_fail_memory(err, sizeof *t), NULL;
    t->model = rg_model_open(from, &(rg_model_options){ .kv_type = "f32", .backend = backend }, err);
    if (t->model && !rg_config_has_logits(&t->model->config))
        rg_fail(err, RG_E_UNSUPPORTED, "%s: an encoder, or a model without a head, predicts no ids: it cannot teach",
                rg_checkpoint_path(from));
    else if (t->model && find_number(from, &t->number, err))
        t->passes = rg_passes_of_model(t->model, backend, o, err);
    if (t->passes)
        return t;
    rg_teacher_close(t);
    return NULL;
}

void rg_teacher_close(rg_teacher *t)
{
    if (!t)
        return;
    rg_passes_free(t->passes);
    rg_model_close(t->model);
    rg_slab_fini(&t->rows);
    rg_free(t);
}

uint64_t rg_teacher_number(const rg_teacher *t)
{
    return t->number;
}

const rg_config *rg_teacher_config(const rg_teacher *t)
{
    return &t->model->config;
}

void rg_teacher_begin(rg_teacher *t, const rg_texts *texts)
{
    t->texts = texts;
    t->n = 0;
}

/* The layers have run for the piece of a position; *left: positions of it from there on. */
static bool enter(rg_teacher *t, int64_t position, int *left, rg_error *err)
{
    if ((position < t->first || position >= t->first + t->n) &&
        !rg_passes_enter(t->passes, t->texts, position, &t->first, &t->n, err))
        return t->n = 0, false;
    *left = (int)(t->first + t->n - position);
    return true;
}

static int min_of(int a, int b)
{
    return a < b ? a : b;
}

bool rg_teacher_logits(rg_teacher *t, int64_t first, int n, rg_mat *out, rg_error *err)
{
    rg_slab_reset(&t->rows);
    *out = rg_slab_mat(&t->rows, n, t->model->config.vocab_size);
    if (!out->at)
        return rg_fail_memory(err, (size_t)n * (size_t)t->model->config.vocab_size * sizeof(float));
    for (int i = 0, left; i < n; i += left) {
        if (!enter(t, first + i, &left, err))
            return false;
        left = min_of(left, n - i);
        rg_passes_logits(t->passes, first + i, &(rg_mat){ rg_mat_row(out, i), out->ld, left, out->cols });
    }
    return true;
}

bool rg_teacher_output(rg_teacher *t, int layer, int64_t first, int n, rg_mat *out, rg_error *err)
{
    rg_slab_reset(&t->rows);
    *out = rg_slab_mat(&t->rows, n, t->model->config.dim);
    if (!out->at)
        return rg_fail_memory(err, (size_t)n * (size_t)t->model->config.dim * sizeof(float));
    for (int i = 0, left; i < n; i += left) {
        if (!enter(t, first + i, &left, err))
            return false;
        left = min_of(left, n - i);
        const rg_mat *from = rg_passes_output(t->passes, layer);
        for (int r = 0; r < left; r++)
            memcpy(rg_mat_row(out, i + r), rg_mat_row(from, (int)(first - t->first) + i + r),
                   (size_t)out->cols * sizeof(float));
    }
    return true;
}
