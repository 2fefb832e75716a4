/* weights.c -- see weights.h.  A handle is an rg_packed (pack.h). */
#include "ops/cpu/weights.h"

#include <string.h>

#include "base/hash.h"
#include "ops/cpu/narrow.h"
#include "ops/cpu/paged.h"

enum { IMAGES = 5 }; /* raised when a matrix is packed otherwise than before */

static rg_packed *behind(rg_placed *w)
{
    return (rg_packed *)w;
}

/* Integers have no wide layout, and an order is of integers. */
static bool shape(rg_packed *p, const rg_placing *o, rg_error *err)
{
    return (o->ordered ? rg_packed_shape_ordered : rg_packed_shape)(p, o->type, o->n_mats, o->rows, o->cols, err);
}

static bool allocate(rg_packed *p, const rg_placing *o, rg_error *err)
{
    if (o->wide && !o->ordered)
        return rg_packed_init_wide(p, o->type, o->n_mats, o->rows, o->cols, err);
    return (o->ordered ? rg_packed_init_ordered : rg_packed_init)(p, o->type, o->n_mats, o->rows, o->cols, err);
}

static void weight_free(rg_placed *w)
{
    if (!w->is_paged)
        rg_packed_fini(behind(w));
    rg_free(w);
}

static rg_placed *weight_new(const rg_backend *b, const rg_placing *what, rg_error *err)
{
    rg_packed *p = rg_zalloc(sizeof *p);

    if (!p)
        return rg_fail_memory(err, sizeof *p), NULL;
    if (!allocate(p, what, err)) {
        rg_free(p);
        return NULL;
    }
    p->placed.owner = b;
    return &p->placed;
}

static void weight_put(rg_placed *w, int64_t mat, int64_t row, const void *src)
{
    rg_pack_row(behind(w), mat, row, src);
}

static void weight_order(rg_placed *w, int64_t mat, const int32_t *order)
{
    rg_pack_order(behind(w), mat, order);
}

static void weight_end(rg_placed *w)
{
    if (rg_packed_fits_bf16(behind(w)))
        rg_packed_to_bf16(behind(w));
}

static void weight_get(const rg_placed *w, int64_t mat, int64_t row, float *out)
{
    RG_ASSERT(!w->is_paged);
    rg_unpack_row(rg_packed_of(w), mat, row, out);
}

/* ---- images ------------------------------------------------------------------------------------------------------ */

static bool image_bytes(const rg_backend *b, const rg_placing *what, size_t *bytes, rg_error *err)
{
    rg_packed p;

    (void)b;
    if (!shape(&p, what, err))
        return false;
    *bytes = rg_packed_mat_bytes(&p);
    return true;
}

static uint64_t image_version(const rg_backend *b)
{
    uint64_t h = IMAGES;

    (void)b;
    for (int type = 0; type < RG_TYPE_COUNT; type++) {
        const rg_format *f = rg_format_of((rg_type)type);
        rg_packed p = { 0 };

        if (f->layout != RG_LAYOUT_NONE)
            RG_ASSERT(rg_packed_shape(&p, (rg_type)type, 1, 1, f->block_len, NULL));
        const uint64_t about[] = { (uint64_t)f->block_len, (uint64_t)f->block_bytes, (uint64_t)f->layout,
                                   p.placed.bytes };
        h = rg_hash(f->name, strlen(f->name) + 1, h);
        h = rg_hash(about, sizeof about, h);
    }
    return h;
}

static bool image_save(const rg_placed *w, int64_t mat, rg_image_take *take, void *arg, rg_error *err)
{
    const rg_packed *p = rg_packed_of(w);

    return take(arg, rg_panel_at(p, mat, 0), rg_packed_mat_bytes(p), err);
}

static bool image_load(rg_placed *w, int64_t mat, rg_image_fill *fill, void *arg, rg_error *err)
{
    const rg_packed *p = behind(w);
    const size_t bytes = rg_packed_mat_bytes(p);

    return fill(arg, p->data + (size_t)mat * bytes, bytes, err);
}

/* ---- matrices in a file ------------------------------------------------------------------------------------------ */

static rg_placed *place_pages(const rg_backend *b, rg_paged *pages, int first, const rg_placing *what, rg_error *err)
{
    rg_packed *p = rg_zalloc(sizeof *p);

    if (!p)
        return rg_fail_memory(err, sizeof *p), NULL;
    if (!shape(p, what, err)) {
        rg_free(p);
        return NULL;
    }
    p->placed.owner = b;
    p->placed.bytes = 0;
    p->placed.is_paged = true;
    p->paged = pages;
    p->first_page = first;
    return &p->placed;
}

static const rg_paging paging = {
    .check = rg_paged_check,
    .open = rg_paged_new,
    .close = rg_paged_free,
    .place = place_pages,
    .count = rg_paged_count,
};

void rg_cpu_add_weights(rg_backend *b)
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
    b->paging = &paging;
}
