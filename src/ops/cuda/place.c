/* place.c -- see place.h.
 *
 * Rows are put into a copy in the host's memory, which goes to the device as a whole when all are there, or when they
 * are needed. */
#include "ops/cuda/place.h"

#include <pthread.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

enum { IMAGES = 1 }; /* raised when a matrix lies otherwise than before */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of copies that are made and sent */

static rg_cuda_placed *behind(const rg_placed *w)
{
    return (rg_cuda_placed *)(uintptr_t)w;
}

static const rg_cuda *gpu(void)
{
    return rg_cuda_device(NULL);
}

/* ---- layouts ----------------------------------------------------------------------------------------------------- */

static const struct {
    int slab_bytes; /* 0: columns are by themselves, of: */
    int value_bytes;
} layouts[RGK_LAYOUTS] = {
    [RGK_F32] = { .value_bytes = 4 }, [RGK_F16] = { .value_bytes = 2 },
    [RGK_BF16] = { 8192, 0 }, [RGK_I8] = { 4352, 0 }, [RGK_I4] = { 2304, 0 }, [RGK_K4] = { 2368, 0 },
    [RGK_G8] = { 5120, 0 }, [RGK_G8M] = { 6144, 0 },
};

enum { BYTES_END = 4096, NIBBLES_END = 2048, K4_ST = 2112 }; /* where scales begin (params.h) */

bool rg_cuda_layout_of(rg_type type, rgk_layout *layout)
{
    switch (rg_format_of(type)->layout) {
    case RG_LAYOUT_F32: *layout = RGK_F32; return true;
    case RG_LAYOUT_F16: *layout = RGK_F16; return true;
    case RG_LAYOUT_BF16: *layout = RGK_BF16; return true;
    case RG_LAYOUT_Q8: *layout = RGK_I8; return true;
    case RG_LAYOUT_Q4: *layout = RGK_I4; return true;
    case RG_LAYOUT_K4: *layout = RGK_K4; return true;
    case RG_LAYOUT_Q5: case RG_LAYOUT_K3: case RG_LAYOUT_K6: case RG_LAYOUT_T4: case RG_LAYOUT_T4E: case RG_LAYOUT_T4N:
    case RG_LAYOUT_TK4: case RG_LAYOUT_TK4H: case RG_LAYOUT_Z4: case RG_LAYOUT_Z4W: case RG_LAYOUT_Q2:
        *layout = RGK_G8;
        return true;
    case RG_LAYOUT_Q4M: case RG_LAYOUT_Q5M: case RG_LAYOUT_K5: case RG_LAYOUT_K2: *layout = RGK_G8M; return true;
    default: return false;
    }
}

/* ---- one row ----------------------------------------------------------------------------------------------------- */

/* Where the value of a column of a row of a panel lies in its slab. */
typedef struct spot {
    int run, j, i, h, lane, scale; /* scale: [g][h] */
} spot;

static spot spot_of(int row, int64_t col)
{
    const int c = (int)(col % RGK_SLAB);

    return (spot){ .run = c / RGK_RUN, .j = c % RGK_RUN / 16, .i = c % 4, .h = row / 8,
                   .lane = row % 8 * 4 + c % 16 / 4, .scale = row % 8 * 2 + row / 8 };
}

/* Four columns side by side, which a lane has together: their codes. */
static void put_nibbles(uint8_t *slab, spot s, const uint8_t *q)
{
    uint8_t *word = slab + s.run / 2 * 512 + s.lane * 16 + s.run % 2 * 8 + s.h * 4 + s.j;

    word[0] = (uint8_t)(q[0] | q[2] << 4);
    word[2] = (uint8_t)(q[1] | q[3] << 4);
}

static uint8_t *bytes_at(uint8_t *slab, spot s)
{
    return slab + s.run * 512 + s.lane * 16 + s.h * 8 + 4 * s.j;
}

/* What column k of a block is made of: the integer that is multiplied, its scale and its minimum. */
typedef struct term {
    int code;
    float d, m;
} term;

static term term_of(rg_layout layout, const rg_ints *x, int k)
{
    const float d = rg_f16_to_f32(x->d), e = rg_f16_to_f32(x->e);
    const int q = x->q[k];

    switch (layout) {
    case RG_LAYOUT_Q4M: return (term){ q, d, -e };
    case RG_LAYOUT_Q5: return (term){ q - 16, d, 0 };
    case RG_LAYOUT_Q5M: return (term){ q, d, -e };
    case RG_LAYOUT_K5: return (term){ q, d * (float)x->s[k / 32], e * (float)x->t[k / 32] };
    case RG_LAYOUT_K2: return (term){ q, d * (float)x->s[k / 16], e * (float)x->t[k / 16] };
    case RG_LAYOUT_K3: return (term){ q - 4, d * (float)x->s[k / 16], 0 };
    case RG_LAYOUT_K6: return (term){ q - 32, d * (float)x->s[k / 16], 0 };
    case RG_LAYOUT_T4: return (term){ (int)x->table[q], d, 0 };
    case RG_LAYOUT_T4E: return (term){ (int)x->table[q], rg_e8m0_half_to_f32(x->scales[k / 32]), 0 };
    case RG_LAYOUT_T4N: return (term){ (int)x->table[q], rg_e4m3_to_f32(x->scales[k / 16]) * x->a / x->b, 0 };
    case RG_LAYOUT_TK4: return (term){ (int)x->table[q], d * (float)x->s[k / 32], 0 };
    case RG_LAYOUT_TK4H: return (term){ (int)x->table[q], d * (float)x->s[k / 16], 0 };
    case RG_LAYOUT_Z4: case RG_LAYOUT_Z4W: return (term){ q - x->zero, x->f, 0 };
    default: return (term){ q - 1, d, 0 }; /* Q2 */
    }
}

/* Columns [k, k + 4) of a block, which is in the matrix from column `col` on. */
static void put_four(const rg_cuda_placed *w, uint8_t *panel, int row, int64_t col, const rg_ints *x, int k)
{
    const int layout = w->matrix.layout;
    const spot s = spot_of(row, col + k);
    uint8_t *slab = panel + (col + k) / RGK_SLAB * layouts[layout].slab_bytes;
    uint16_t *h = (uint16_t *)(void *)(slab + (layout == RGK_I8 ? BYTES_END : NIBBLES_END));
    float *d = (float *)(void *)(slab + BYTES_END) + (s.run * 2 + s.j) * 16 + s.scale;

    switch (layout) {
    case RGK_I8:
        memcpy(bytes_at(slab, s), x->q + k, 4);
        h[s.run * 16 + s.scale] = x->d;
        break;
    case RGK_I4:
        put_nibbles(slab, s, x->q + k);
        h[s.run * 16 + s.scale] = x->d;
        break;
    case RGK_K4:
        put_nibbles(slab, s, x->q + k);
        h[2 * s.scale] = x->d;
        h[2 * s.scale + 1] = x->e;
        slab[K4_ST + (s.run * 16 + s.scale) * 2] = (uint8_t)x->s[k / 32];
        slab[K4_ST + (s.run * 16 + s.scale) * 2 + 1] = x->t[k / 32];
        break;
    default:
        for (int i = 0; i < 4; i++) {
            const term t = term_of(rg_format_of(w->placed.type)->layout, x, k + i);

            bytes_at(slab, s)[i] = (uint8_t)(t.code + 128);
            d[0] = t.d;
            if (layout == RGK_G8M)
                d[256] = t.m;
        }
    }
}

/* Values that are kept as they are; the last columns may be fewer than four. */
static void put_values(const rg_cuda_placed *w, uint8_t *panel, int row, const void *src)
{
    const int layout = w->matrix.layout;
    const int64_t cols = w->placed.cols;

    for (int64_t k = 0; k < cols && layout == RGK_F32; k++)
        ((float *)(void *)panel)[k * RGK_PANEL + row] = ((const float *)src)[k];
    for (int64_t k = 0; k < cols && layout == RGK_F16; k++)
        ((uint16_t *)(void *)panel)[k * RGK_PANEL + row] = ((const uint16_t *)src)[k];
    for (int64_t k = 0; k < cols && layout == RGK_BF16; k += 4) {
        const spot s = spot_of(row, k);
        uint8_t *slab = panel + k / RGK_SLAB * layouts[layout].slab_bytes;

        memcpy((uint16_t *)(void *)slab + ((s.run * 2 + s.h) * 32 + s.lane) * 8 + 4 * s.j, (const uint16_t *)src + k,
               (cols - k < 4 ? (size_t)(cols - k) : 4) * sizeof(uint16_t));
    }
}

/* The reverse: the values of a row, as the formats define them. */
static void get_values(const rg_cuda_placed *w, const uint8_t *panel, int row, float *out)
{
    const int layout = w->matrix.layout;

    for (int64_t k = 0; k < w->placed.cols; k++) {
        const spot s = spot_of(row, k);
        const uint8_t *slab = panel + k / RGK_SLAB * layouts[layout].slab_bytes;
        const uint16_t *h = (const uint16_t *)(const void *)(slab + (layout == RGK_I8 ? BYTES_END : NIBBLES_END));
        const float *d = (const float *)(const void *)(slab + BYTES_END) + (s.run * 2 + s.j) * 16 + s.scale;
        const uint8_t *word = slab + s.run / 2 * 512 + s.lane * 16 + s.run % 2 * 8 + s.h * 4;
        const int nibble = 2 * s.j + s.i / 2 + s.i % 2 * 4, low = word[nibble / 2] >> nibble % 2 * 4 & 15;
        const float byte = (float)(slab[s.run * 512 + s.lane * 16 + s.h * 8 + 4 * s.j + s.i] - 128);
        const uint8_t *st = slab + K4_ST + (s.run * 16 + s.scale) * 2;

        switch (layout) {
        case RGK_F32: out[k] = ((const float *)(const void *)panel)[k * RGK_PANEL + row]; break;
        case RGK_F16: out[k] = rg_f16_to_f32(((const uint16_t *)(const void *)panel)[k * RGK_PANEL + row]); break;
        case RGK_BF16:
            out[k] = rg_bf16_to_f32(
                ((const uint16_t *)(const void *)slab)[((s.run * 2 + s.h) * 32 + s.lane) * 8 + 4 * s.j + s.i]);
            break;
        case RGK_I8: out[k] = rg_f16_to_f32(h[s.run * 16 + s.scale]) * byte; break;
        case RGK_I4: out[k] = rg_f16_to_f32(h[s.run * 16 + s.scale]) * (float)(low - 8); break;
        case RGK_K4: {
            const float scaled = rg_f16_to_f32(h[2 * s.scale]) * (float)st[0] * (float)low;
            out[k] = scaled - rg_f16_to_f32(h[2 * s.scale + 1]) * (float)st[1];
            break;
        }
        case RGK_G8: out[k] = d[0] * byte; break;
        default: {
            const float scaled = d[0] * byte;
            out[k] = scaled - d[256];
        }
        }
    }
}

/* ---- making one -------------------------------------------------------------------------------------------------- */

/* Sizes of what is described; nothing is allocated. */
static bool shape(rg_cuda_placed *w, const rg_placing *what, rg_error *err)
{
    const rg_format *f = rg_format_of(what->type);
    rgk_layout layout = RGK_F32;
    size_t panels = ((size_t)what->rows + RGK_PANEL - 1) / RGK_PANEL, bytes, slabs;

    w->placed = (rg_placed){ .type = what->type, .n_mats = what->n_mats, .rows = what->rows, .cols = what->cols };
    w->is_vector = what->vector;
    if (what->vector)
        return rg_mul((size_t)what->cols, sizeof(float), &w->bytes) || rg_fail_memory(err, SIZE_MAX);
    if (!rg_cuda_layout_of(what->type, &layout) || what->ordered)
        return rg_fail(err, RG_E_UNSUPPORTED, "weights of type %s%s cannot be computed with on a GPU yet", f->name,
                       what->ordered ? " with an order of columns" : "");
    if (what->cols % f->block_len)
        return rg_fail(err, RG_E_INPUT, "rows of %lld values are no whole blocks of %s", (long long)what->cols,
                       f->name);
    slabs = ((size_t)what->cols + RGK_SLAB - 1) / RGK_SLAB;
    if (!rg_mul(layouts[layout].slab_bytes ? slabs : (size_t)what->cols,
                layouts[layout].slab_bytes ? (size_t)layouts[layout].slab_bytes
                                           : (size_t)(RGK_PANEL * layouts[layout].value_bytes), &bytes) ||
        !rg_mul(bytes, panels, &w->bytes))
        return rg_fail_memory(err, SIZE_MAX);
    w->matrix = (rgk_matrix){ .mat_bytes = (int64_t)w->bytes, .panel_bytes = (int64_t)bytes, .layout = (int32_t)layout,
                              .rows = (int32_t)what->rows, .cols = (int32_t)what->cols, .n_slabs = (int32_t)slabs };
    return rg_mul(w->bytes, (size_t)what->n_mats, &w->bytes) || rg_fail_memory(err, SIZE_MAX);
}

static void weight_free(rg_placed *placed)
{
    rg_cuda_placed *w = behind(placed);

    rg_cuda_free(gpu(), (void *)(uintptr_t)w->matrix.at);
    rg_free(w->host);
    rg_free(w);
}

static rg_placed *weight_new(const rg_backend *b, const rg_placing *what, rg_error *err)
{
    const rg_cuda *c = rg_cuda_device(err);
    rg_cuda_placed *w = c ? rg_zalloc(sizeof *w) : NULL;

    if (!c)
        return NULL;
    if (!w)
        return rg_fail_memory(err, sizeof *w), NULL;
    if (!shape(w, what, err) || !(w->matrix.at = rg_cuda_alloc(c, w->bytes, err))) {
        rg_free(w);
        return NULL;
    }
    if (!what->vector && !(w->host = rg_zalloc(w->bytes))) {
        rg_fail_memory(err, w->bytes);
        weight_free(&w->placed);
        return NULL;
    }
    w->placed.owner = b;
    w->placed.bytes = w->bytes;
    return &w->placed;
}

/* ---- to the device and back -------------------------------------------------------------------------------------- */

void rg_cuda_settle(const rg_placed *placed)
{
    rg_cuda_placed *w = behind(placed);

    if (!__atomic_load_n(&w->host, __ATOMIC_ACQUIRE))
        return;
    pthread_mutex_lock(&lock);
    if (w->host) {
        uint8_t *host = w->host;

        rg_cuda_upload(gpu(), (void *)(uintptr_t)w->matrix.at, host, w->bytes);
        __atomic_store_n(&w->host, NULL, __ATOMIC_RELEASE);
        rg_free(host);
    }
    pthread_mutex_unlock(&lock);
}

/* The copy in the host's memory, made again if it has gone. */
static uint8_t *host_of(rg_cuda_placed *w)
{
    uint8_t *host = __atomic_load_n(&w->host, __ATOMIC_ACQUIRE);

    if (host)
        return host;
    pthread_mutex_lock(&lock);
    if (!w->host) {
        host = rg_alloc(w->bytes);
        RG_ASSERT(host);
        rg_cuda_download(gpu(), host, w->matrix.at, w->bytes);
        __atomic_store_n(&w->host, host, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&lock);
    return w->host;
}

static uint8_t *panel_in(const rg_cuda_placed *w, uint8_t *host, int64_t mat, int64_t row)
{
    return host + mat * w->matrix.mat_bytes + row / RGK_PANEL * w->matrix.panel_bytes;
}

static void weight_put(rg_placed *placed, int64_t mat, int64_t row, const void *src)
{
    rg_cuda_placed *w = behind(placed);
    const rg_format *f = rg_format_of(w->placed.type);
    rg_ints ints;

    if (w->is_vector) {
        rg_cuda_upload(gpu(), (void *)(uintptr_t)w->matrix.at, src, w->bytes);
        return;
    }
    uint8_t *panel = panel_in(w, host_of(w), mat, row);
    if (!f->ints) {
        put_values(w, panel, (int)(row % RGK_PANEL), src);
        return;
    }
    for (int64_t k = 0; k < w->placed.cols; k += f->block_len) {
        f->ints((const uint8_t *)src + k / f->block_len * f->block_bytes, &ints);
        for (int i = 0; i < f->block_len; i += 4)
            put_four(w, panel, (int)(row % RGK_PANEL), k, &ints, i);
    }
}

static void weight_order(rg_placed *w, int64_t mat, const int32_t *order)
{
    (void)w, (void)mat, (void)order;
    RG_ASSERT(!"no weight of this back end has an order"); /* it was refused */
}

static void weight_end(rg_placed *w)
{
    rg_cuda_settle(w);
}

static void weight_get(const rg_placed *placed, int64_t mat, int64_t row, float *out)
{
    rg_cuda_placed *w = behind(placed);
    const size_t bytes = (size_t)w->matrix.panel_bytes;
    uint8_t *panel = rg_alloc(bytes), *host = w->host;

    RG_ASSERT(panel);
    if (host)
        memcpy(panel, panel_in(w, host, mat, row), bytes);
    else
        rg_cuda_download(gpu(), panel,
                         w->matrix.at + mat * w->matrix.mat_bytes + row / RGK_PANEL * w->matrix.panel_bytes, bytes);
    get_values(w, panel, (int)(row % RGK_PANEL), out);
    rg_free(panel);
}

/* ---- images ------------------------------------------------------------------------------------------------------ */

static bool image_bytes(const rg_backend *b, const rg_placing *what, size_t *bytes, rg_error *err)
{
    rg_cuda_placed w = { 0 };

    (void)b;
    if (!shape(&w, what, err))
        return false;
    *bytes = (size_t)w.matrix.mat_bytes;
    return true;
}

static uint64_t image_version(const rg_backend *b)
{
    const int images = IMAGES;

    return rg_hash(&images, sizeof images, rg_hash(b->name, strlen(b->name), 0));
}

static bool image_save(const rg_placed *placed, int64_t mat, rg_image_take *take, void *arg, rg_error *err)
{
    rg_cuda_placed *w = behind(placed);
    const size_t bytes = (size_t)w->matrix.mat_bytes;
    uint8_t *image = rg_alloc(bytes);

    if (!image)
        return rg_fail_memory(err, bytes);
    rg_cuda_settle(placed);
    rg_cuda_download(gpu(), image, w->matrix.at + mat * w->matrix.mat_bytes, bytes);
    const bool ok = take(arg, image, bytes, err);
    rg_free(image);
    return ok;
}

static bool image_load(rg_placed *placed, int64_t mat, rg_image_fill *fill, void *arg, rg_error *err)
{
    rg_cuda_placed *w = behind(placed);

    return fill(arg, host_of(w) + mat * w->matrix.mat_bytes, (size_t)w->matrix.mat_bytes, err);
}

void rg_cuda_add_weights(rg_backend *b)
{
    b->weight_new = weight_new;
    b->weight_free = weight_free;
    b->weight_put = weight_put;
    b->weight_order = weight_order;
    b->weight_end = weight_end;
    b->weight_get = weight_get;
    b->image_bytes = image_bytes;
    b->image_version = image_version;
    b->image_save = image_save;
    b->image_load = image_load;
}
