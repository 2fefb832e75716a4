/* lora.c -- see lora.h. */
#include "train/lora.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "ops/back/inside.h"

enum { NAME = 640, CONFIG_CAP = 1 << 20 };

typedef struct delta {
    rg_master *master;
    float *base; /* W0 */
    float *a, *b, *da, *db;
    char name_a[NAME], name_b[NAME];
    int64_t rows, cols;
} delta;

struct rg_lora {
    delta *all;
    int n, rank;
    double alpha;
};

/* PEFT's names: of the module, below the model's own. */
static void make_names(delta *d)
{
    const char *name = d->master->name, *end = strrchr(name, '.');
    const int n = end && !strcmp(end, ".weight") ? (int)(end - name) : (int)strlen(name);

    snprintf(d->name_a, sizeof d->name_a, "base_model.model.%.*s.lora_A.weight", n, name);
    snprintf(d->name_b, sizeof d->name_b, "base_model.model.%.*s.lora_B.weight", n, name);
}

static bool make_delta(delta *d, rg_master *m, int rank, rg_rng *rng, rg_error *err)
{
    const size_t r = (size_t)rank, rows = (size_t)m->shape[0], cols = (size_t)m->shape[1];
    const double bound = 1 / sqrt((double)cols); /* Kaiming's, as PEFT draws it */

    const size_t row_a = cols * sizeof(float), row_b = r * sizeof(float); /* fit: as those of W do */

    *d = (delta){ .master = m,
                  .rows = m->shape[0],
                  .cols = m->shape[1],
                  .base = rg_array(m->n, sizeof *d->base),
                  .a = rg_array(r, row_a),
                  .da = rg_array(r, row_a),
                  .b = rg_array(rows, row_b),
                  .db = rg_array(rows, row_b) };
    if (!d->base || !d->a || !d->da || !d->b || !d->db)
        return rg_fail_memory(err, m->n * sizeof *d->base);
    memcpy(d->base, m->w, m->n * sizeof *d->base);
    for (size_t i = 0; i < r * cols; i++)
        d->a[i] = (float)(bound * (2 * (double)rg_rng_unit(rng) - 1));
    make_names(d);
    return true;
}

rg_lora *rg_lora_new(rg_masters *m, int rank, double alpha, uint64_t seed, rg_error *err)
{
    const int n = rg_masters_count(m);
    rg_lora *l = rg_zalloc(sizeof *l);
    rg_rng rng = { .seed = seed };
    bool ok = l || rg_fail_memory(err, sizeof *l);

    if (!ok)
        return NULL;
    *l = (rg_lora){ .rank = rank, .alpha = alpha, .all = rg_array((size_t)n, sizeof *l->all) };
    ok = l->all || rg_fail_memory(err, (size_t)n * sizeof *l->all);
    for (int i = 0; ok && i < n; i++) {
        rg_master *t = rg_masters_at(m, i);

        t->frozen = !rg_masters_is_plain_matrix(m, i);
        if (!t->frozen)
            ok = make_delta(&l->all[l->n++], t, rank, &rng, err);
    }
    if (ok && !l->n)
        ok = rg_fail(err, RG_E_UNSUPPORTED, "the model has no matrix in its layers that LoRA could change");
    if (!ok) {
        rg_lora_free(l);
        return NULL;
    }
    return l;
}

void rg_lora_free(rg_lora *l)
{
    if (!l)
        return;
    for (int i = 0; l->all && i < l->n; i++) {
        rg_free(l->all[i].base);
        rg_free(l->all[i].a);
        rg_free(l->all[i].b);
        rg_free(l->all[i].da);
        rg_free(l->all[i].db);
    }
    rg_free(l->all);
    rg_free(l);
}

static bool add_to(void *arg, rg_adamw *a, rg_error *err)
{
    const rg_lora *l = arg;
    bool ok = true;

    for (int i = 0; ok && i < l->n; i++) {
        const delta *d = &l->all[i];
        const size_t n_a = (size_t)l->rank * (size_t)d->cols, n_b = (size_t)d->rows * (size_t)l->rank;

        ok = rg_adamw_add(
                 a,
                 &(rg_adamw_tensor){
                     .name = d->name_a, .n_dims = 2, .shape = { l->rank, d->cols }, .w = d->a, .g = d->da, .n = n_a },
                 err) &&
             rg_adamw_add(
                 a,
                 &(rg_adamw_tensor){
                     .name = d->name_b, .n_dims = 2, .shape = { d->rows, l->rank }, .w = d->b, .g = d->db, .n = n_b },
                 err);
    }
    return ok;
}

static void scale_by(float *x, size_t n, float by)
{
    for (size_t i = 0; i < n; i++)
        x[i] *= by;
}

/* Gradients of A and B, from those of masters. */
static void pull(void *arg, rg_back_lane *lane)
{
    const rg_lora *l = arg;
    const float s = (float)(l->alpha / l->rank);

    for (int i = 0; i < l->n; i++) {
        const delta *d = &l->all[i];
        const size_t rank = (size_t)l->rank, cols = (size_t)d->cols;

        rg_gemm_run(lane, &(rg_gemm){ .m = (int)d->rows,
                                      .n = l->rank,
                                      .k = (int)d->cols,
                                      .a = d->master->g,
                                      .lda = cols,
                                      .b = d->a,
                                      .ldb = cols,
                                      .b_turned = true,
                                      .y = d->db,
                                      .ldy = rank });
        rg_gemm_run(lane, &(rg_gemm){ .m = l->rank,
                                      .n = (int)d->cols,
                                      .k = (int)d->rows,
                                      .a = d->b,
                                      .lda = rank,
                                      .a_turned = true,
                                      .b = d->master->g,
                                      .ldb = cols,
                                      .y = d->da,
                                      .ldy = cols });
        scale_by(d->da, rank * cols, s);
        scale_by(d->db, rank * (size_t)d->rows, s);
    }
}

/* Masters become what A and B say. */
static void apply(void *arg, rg_back_lane *lane)
{
    const rg_lora *l = arg;
    const float s = (float)(l->alpha / l->rank);

    for (int i = 0; i < l->n; i++) {
        const delta *d = &l->all[i];
        const size_t rank = (size_t)l->rank, cols = (size_t)d->cols;

        rg_gemm_run(lane, &(rg_gemm){ .m = (int)d->rows,
                                      .n = (int)d->cols,
                                      .k = l->rank,
                                      .a = d->b,
                                      .lda = rank,
                                      .b = d->a,
                                      .ldb = cols,
                                      .y = d->master->w,
                                      .ldy = cols });
        for (size_t k = 0; k < d->master->n; k++)
            d->master->w[k] = d->base[k] + s * d->master->w[k];
    }
}

rg_stand_in rg_lora_stand_in(rg_lora *l)
{
    return (rg_stand_in){ l, add_to, pull, apply };
}

/* ---- PEFT's folder ----------------------------------------------------------------------------------------------- */

/* The last component of a module's name, if no module before has it. */
static bool is_new_target(const rg_lora *l, int i, char out[NAME])
{
    char other[NAME];

    for (int k = 0; k <= i; k++) {
        char *end = strstr(strcpy(other, l->all[k].name_a), ".lora_A.weight");

        *end = 0;
        strcpy(k == i ? out : other, strrchr(other, '.') + 1);
        if (k < i) {
            char own[NAME];

            end = strstr(strcpy(own, l->all[i].name_a), ".lora_A.weight");
            *end = 0;
            if (!strcmp(other, strrchr(own, '.') + 1))
                return false;
        }
    }
    return true;
}

static void add_quoted(rg_buf *b, const char *s)
{
    rg_buf_str(b, "\"");
    for (; *s; s++)
        if (*s == '"' || *s == '\\')
            rg_buf_printf(b, "\\%c", *s);
        else if ((unsigned char)*s >= 0x20)
            rg_buf_add(b, s, 1);
    rg_buf_str(b, "\"");
}

static bool write_config(const rg_lora *l, const char *dir, const char *base, rg_error *err)
{
    char target[NAME];
    rg_buf b;
    bool ok, any = false;

    rg_buf_init(&b, CONFIG_CAP);
    rg_buf_printf(&b,
                  "{\n  \"peft_type\": \"LORA\",\n  \"task_type\": \"CAUSAL_LM\",\n  \"base_model_name_or_path\": ");
    add_quoted(&b, base);
    rg_buf_printf(&b,
                  ",\n  \"r\": %d,\n  \"lora_alpha\": %g,\n  \"lora_dropout\": 0.0,\n  \"bias\": \"none\",\n"
                  "  \"fan_in_fan_out\": false,\n  \"inference_mode\": true,\n  \"target_modules\": [",
                  l->rank, l->alpha);
    for (int i = 0; i < l->n; i++)
        if (is_new_target(l, i, target)) {
            rg_buf_str(&b, any ? ", " : "");
            add_quoted(&b, target);
            any = true;
        }
    rg_buf_str(&b, "]\n}\n");
    ok = (!b.failed || rg_fail_memory(err, b.n)) && rg_dir_make(dir, err) &&
         rg_file_put_in(dir, "adapter_config.json", b.data, b.n, err);
    rg_buf_fini(&b);
    return ok;
}

bool rg_lora_write(const rg_lora *l, const char *dir, const char *base, rg_error *err)
{
    char path[4096];
    rg_ckpt_writer *w;
    bool ok = write_config(l, dir, base, err);

    if (ok && !rg_path_join(path, sizeof path, dir, "adapter_model.safetensors"))
        ok = rg_fail(err, RG_E_INPUT, "%s: the path is too long", dir);
    w = ok ? rg_safetensors_create(path, err) : NULL;
    ok = w;
    for (int i = 0; ok && i < l->n; i++) {
        const delta *d = &l->all[i];
        const int64_t of_a[] = { l->rank, d->cols }, of_b[] = { d->rows, l->rank };

        ok = rg_ckpt_declare(w, d->name_a, RG_F32, 2, of_a, err) && rg_ckpt_declare(w, d->name_b, RG_F32, 2, of_b, err);
    }
    for (int i = 0; ok && i < l->n; i++) {
        const delta *d = &l->all[i];

        ok = rg_ckpt_write(w, d->a, (size_t)l->rank * (size_t)d->cols * sizeof *d->a, err) &&
             rg_ckpt_write(w, d->b, (size_t)l->rank * (size_t)d->rows * sizeof *d->b, err);
    }
    if (ok)
        return rg_ckpt_commit(w, err);
    rg_ckpt_abort(w);
    return false;
}
