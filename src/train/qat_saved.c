/* qat_saved.c -- checkpoints of training a layer at a time: codes of the layers that are done, and of the one that is
 * trained its weights, scales, zeros and their moments.  What the layers read is computed again. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "train/qat_inside.h"

enum { NAME = 700, SETTINGS_CAP = 1 << 14 };

/* What the run follows from, but for the number of threads. */
static void describe(const rg_qat *q, const rg_qat_blocks *b, rg_buf *to)
{
    const size_t n = (size_t)b->texts->rows * (size_t)b->texts->length; /* fits: the ids are in memory */

    rg_buf_init(to, SETTINGS_CAP);
    rg_qat_describe(q, to);
    rg_buf_printf(to, ", %d rows, %d steps, rate %.17g, floor %.17g, texts %016llx, ", b->rows, b->steps, b->rate,
                  b->floor, (unsigned long long)rg_hash(b->texts->ids, n * sizeof *b->texts->ids, n));
    rg_train_settings_write(b->settings, to);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static bool declare_one(void *arg, const char *name, rg_type type, const int64_t shape[2], void *values, rg_error *err)
{
    (void)values;
    return rg_ckpt_declare(arg, name, type, 2, shape, err);
}

static bool write_one(void *arg, const char *name, rg_type type, const int64_t shape[2], void *values, rg_error *err)
{
    const size_t each = type == RG_U8 ? 1 : sizeof(float);

    (void)name;
    return rg_ckpt_write(arg, values, (size_t)shape[0] * (size_t)shape[1] * each, err);
}

/* Values and moments of what is trained now. */
static bool each_trained(const rg_adamw *a, rg_qat_tensor_fn *each, void *arg, rg_error *err)
{
    char name[NAME];
    bool ok = true;

    for (int i = 0; a && ok && i < a->n; i++) {
        const rg_adamw_tensor *t = &a->tensors[i];
        float *const values[] = { t->w, t->m, t->v };

        for (int k = 0; ok && k < 3; k++) {
            snprintf(name, sizeof name, "%c.%.680s", "wmv"[k], t->name);
            ok = each(arg, name, RG_F32, t->shape, values[k], err);
        }
    }
    return ok;
}

static bool each_tensor(const rg_qat *q, int layer, const rg_adamw *a, rg_qat_tensor_fn *each, void *arg, rg_error *err)
{
    bool ok = true;

    for (int i = 0; ok && i < layer; i++)
        ok = rg_qat_each_fixed(q, i, each, arg, err);
    return ok && each_trained(a, each, arg, err);
}

bool rg_qat_blocks_save(const rg_qat *q, const rg_qat_blocks *b, int layer, int step, const rg_adamw *a, rg_error *err)
{
    const int64_t place[] = { layer, step }, n_place = RG_LEN(place);
    rg_buf settings;
    rg_ckpt_writer *w;
    bool ok;

    if (!b->saved)
        return true;
    describe(q, b, &settings);
    const int64_t n = (int64_t)settings.n;
    w = settings.failed ? NULL : rg_safetensors_create(b->saved, err);
    ok = w && rg_ckpt_declare(w, "place", RG_I64, 1, &n_place, err) &&
         rg_ckpt_declare(w, "settings", RG_U8, 1, &n, err) && each_tensor(q, layer, a, declare_one, w, err) &&
         rg_ckpt_write(w, place, sizeof place, err) && rg_ckpt_write(w, settings.data, settings.n, err) &&
         each_tensor(q, layer, a, write_one, w, err);
    if (settings.failed)
        rg_fail_memory(err, SETTINGS_CAP);
    rg_buf_fini(&settings);
    if (ok)
        return rg_ckpt_commit(w, err);
    rg_ckpt_abort(w);
    return false;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static bool read_one(void *arg, const char *name, rg_type type, const int64_t shape[2], void *values, rg_error *err)
{
    const rg_checkpoint *c = arg;
    const rg_tensor *t = rg_checkpoint_find(c, name);
    const size_t bytes = (size_t)shape[0] * (size_t)shape[1] * (type == RG_U8 ? 1 : sizeof(float));

    if (!t || t->type != type || t->bytes != bytes)
        return rg_fail(err, RG_E_INPUT, "%s: tensor '%s' is missing or of another shape: it is another model's",
                       rg_checkpoint_path(c), name);
    return rg_tensor_read(c, t, 0, values, bytes, err);
}

static bool check(const rg_qat *q, const rg_qat_blocks *b, const rg_checkpoint *c, rg_error *err)
{
    const rg_tensor *t = rg_checkpoint_find(c, "settings");
    char *was = t && t->bytes < SETTINGS_CAP ? rg_alloc(t->bytes) : NULL;
    rg_buf now;

    describe(q, b, &now);
    const bool read = was && !now.failed && rg_tensor_read(c, t, 0, was, t->bytes, err);
    const bool same = read && t->bytes == now.n && !memcmp(was, now.data, now.n);
    rg_free(was);
    rg_buf_fini(&now);
    return same || rg_fail(err, RG_E_INPUT, "%s: it was made with other settings or texts: run without --resume",
                           rg_checkpoint_path(c));
}

bool rg_qat_blocks_open(const rg_qat *q, const rg_qat_blocks *b, rg_checkpoint **at, int *layer, int *step,
                        rg_error *err)
{
    int64_t place[2] = { 0, 0 };
    const rg_tensor *t;

    *at = NULL;
    *layer = *step = 0;
    if (!b->saved || !b->resume || rg_path_look(b->saved) == RG_PATH_NONE)
        return true;
    *at = rg_checkpoint_open_tensors(b->saved, err);
    t = *at ? rg_checkpoint_find(*at, "place") : NULL;
    if (*at && (!t || t->bytes != sizeof place))
        rg_fail(err, RG_E_INPUT, "%s: it is no checkpoint of training a layer at a time", b->saved);
    else if (*at && rg_tensor_read(*at, t, 0, place, sizeof place, err) && check(q, b, *at, err)) {
        if (place[0] >= 0 && place[1] >= 0 && place[1] < b->steps) {
            *layer = (int)place[0];
            *step = (int)place[1];
            return true;
        }
        rg_fail(err, RG_E_INPUT, "%s: its place is out of range", b->saved);
    }
    rg_checkpoint_close(*at);
    *at = NULL;
    return false;
}

bool rg_qat_blocks_take_fixed(const rg_qat *q, int layer, rg_checkpoint *at, rg_error *err)
{
    return rg_qat_each_fixed(q, layer, read_one, at, err);
}

bool rg_qat_blocks_take_trained(rg_adamw *a, rg_checkpoint *at, rg_error *err)
{
    return each_trained(a, read_one, at, err);
}
