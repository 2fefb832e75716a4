/* kernel_cases.c -- see kernel_cases.h.
 *
 * Every operand ends where an unmapped page begins.  Two NaN are equal whatever their payload: which operand's NaN survives
 * is not part of a recipe. */
#include "ops/kernel_cases.h"
#include "ops/cpu/sketch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_M = 289, BATCH_M = 97, INT8_M = 69, SOME_M = 33, LEAST_M = 9 };
enum { PANELS = 3, WIDE = 16 * PANELS, GAP = 3, N_MODES = 5, EDGE_MODES = 7 };

/* ---- memory that ends at a wall ------------------------------------------------------------------------------------- */

/* Each operand of a call has a wall of its own; `slot` says which.  Grown as needed, kept until exit. */
static void *walled(int slot, size_t n)
{
    static struct { char *end; size_t room; } walls[9];
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (n + page) / page * page;

    if (walls[slot].room < room) {
        char *base = mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (base == MAP_FAILED || mprotect(base + room, page, PROT_NONE))
            abort();
        walls[slot].end = base + room;
        walls[slot].room = room;
    }
    return walls[slot].end - n;
}

static void *walled_copy(int slot, const void *from, size_t n)
{
    return memcpy(walled(slot, n), from, n);
}

static bool same_floats(const float *got, const float *want, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(got + i, want + i, sizeof *got) && !(isnan(got[i]) && isnan(want[i]))) {
            printf("%s: value %zu is %a, ref has %a\n", what, i, (double)got[i], (double)want[i]);
            return false;
        }
    return true;
}

/* ---- hostile numbers ------------------------------------------------------------------------------------------------ */

/* Modes: 0 ordinary, 1 largest magnitudes, 2 tiny and zero, 3 a mixture of everything finite, 4 an infinity; 5 products
 * on both sides of the least normal number, 6 zeros, where what lies just below that is planted. */
static float number(cases *c, int mode)
{
    static const float odd[] = { 0.0f, -0.0f, 0x1p-149f, -0x1.8p-140f, 0x1p-130f,
                                 0x1p-126f, 1e-30f, -1e30f, 0x1.fffffep127f, 1.0f };
    const float x = rg_rng_normal(&c->rng);

    switch (mode) {
    case 1: return x < 0.0f ? -3e18f : 3e18f;
    case 2: return rg_rng_below(&c->rng, 3) ? x * 0x1p-140f : 0.0f * x;
    case 3: return rg_rng_below(&c->rng, 4) ? x : odd[rg_rng_below(&c->rng, RG_LEN(odd))];
    case 5: return x * 0x1p-63f;
    case 6: return 0.0f;
    default: return x;
    }
}

static uint16_t half(cases *c, int mode)
{
    static const uint16_t odd[] = { 0x0000, 0x8000, 0x0001, 0x83ff, 0x7bff, 0xfbff, 0x0400, 0x3c00 };

    switch (mode) {
    case 1: return rg_rng_below(&c->rng, 2) ? 0x7bff : 0xfbff;
    case 2: return (uint16_t)(rg_rng_below(&c->rng, 0x400) | rg_rng_below(&c->rng, 2) << 15);
    case 3: return odd[rg_rng_below(&c->rng, RG_LEN(odd))];
    default: return rg_f32_to_f16(0.02f * rg_rng_normal(&c->rng));
    }
}

static uint8_t byte(cases *c, int mode)
{
    static const uint8_t odd[] = { 0, 255, 128, 127, 8, 0x88, 15, 0xf0 };

    if (mode == 1)
        return rg_rng_below(&c->rng, 8) ? 255 : 0;
    return mode == 3 ? odd[rg_rng_below(&c->rng, RG_LEN(odd))] : (uint8_t)rg_rng_below(&c->rng, 256);
}

static void floats(cases *c, int mode, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = number(c, mode);
    if (mode == 4 && n)
        x[rg_rng_below(&c->rng, (uint32_t)n)] = INFINITY;
}

/* ---- panels --------------------------------------------------------------------------------------------------------- */

/* What an integer step starts with: f16 values, or f32 ones; the rest are bytes. */
typedef struct scale_case {
    size_t n_halves, n_floats;
} scale_case;

static const scale_case scales_of[RG_LAYOUT_COUNT] = {
    [RG_LAYOUT_F16] = { 16, 0 }, [RG_LAYOUT_Q4] = { 16, 0 },  [RG_LAYOUT_Q8] = { 16, 0 },  [RG_LAYOUT_Q4M] = { 32, 0 },
    [RG_LAYOUT_Q5] = { 16, 0 },  [RG_LAYOUT_Q5M] = { 32, 0 }, [RG_LAYOUT_K4] = { 32, 0 },  [RG_LAYOUT_K5] = { 32, 0 },
    [RG_LAYOUT_K2] = { 32, 0 },  [RG_LAYOUT_K3] = { 16, 0 },  [RG_LAYOUT_K6] = { 16, 0 },  [RG_LAYOUT_T4] = { 16, 0 },
    [RG_LAYOUT_T4F] = { 0, 16 }, [RG_LAYOUT_TK4] = { 0, 16 }, [RG_LAYOUT_TK4H] = { 0, 16 }, [RG_LAYOUT_Z4] = { 0, 16 },
    [RG_LAYOUT_Z4W] = { 0, 16 }, [RG_LAYOUT_Z8] = { 0, 16 },  [RG_LAYOUT_Z8W] = { 0, 16 }, [RG_LAYOUT_Q2] = { 16, 0 },
    [RG_LAYOUT_F8] = { 0, 16 },
};

/* e8m0: usual powers, the largest, the subnormal ones, all. */
static uint8_t power(cases *c, int mode)
{
    static const uint8_t from[] = { 120, 250, 0, 0, 120 }, n[] = { 10, 6, 4, 255, 10 };

    return (uint8_t)(from[mode] + rg_rng_below(&c->rng, n[mode]));
}

/* e4m3: NaN only where everything is asked for. */
static uint8_t float8(cases *c, int mode)
{
    static const uint8_t odd[] = { 0, 0x80, 1, 7, 8, 0x7e, 0xfe, 0x7f, 0xff };

    if (mode == 3)
        return odd[rg_rng_below(&c->rng, RG_LEN(odd))];
    return mode == 2 ? (uint8_t)rg_rng_below(&c->rng, 9) : (uint8_t)(byte(c, 0) & 0xf7);
}

static void fill_bf16(cases *c, int mode, uint16_t *x, size_t n)
{
    while (n--)
        x[n] = rg_f32_to_bf16(mode == 4 && !rg_rng_below(&c->rng, 64) ? INFINITY : number(c, mode));
}

static void fill_head(cases *c, rg_layout layout, int mode, uint8_t *panel)
{
    rg_table_factors *h = (void *)panel;

    if (!rg_layout_head_bytes(layout))
        return;
    floats(c, mode == 4 ? 0 : mode, h->table.value, 16);
    for (int i = 0; i < 16; i++)
        h->table.byte[i] = byte(c, mode);
    h->table.unit = layout == RG_LAYOUT_T4F ? number(c, mode == 4 ? 0 : mode) : 1.0f;
    if (layout == RG_LAYOUT_T4N) {
        floats(c, mode == 4 ? 0 : mode, h->a, 16);
        floats(c, mode == 4 ? 0 : mode, h->b, 16);
    }
}

static void fill_step(cases *c, rg_layout layout, int mode, uint8_t *step)
{
    const scale_case *l = &scales_of[layout];
    const size_t bytes = rg_layout_step_bytes(layout);

    for (size_t i = 0; i < l->n_halves; i++)
        ((uint16_t *)(void *)step)[i] = half(c, mode);
    floats(c, mode == 4 ? 0 : mode, (float *)(void *)step, l->n_floats);
    for (size_t i = 2 * l->n_halves + 4 * l->n_floats; i < bytes; i++)
        step[i] = byte(c, mode);
    for (size_t i = 0; layout == RG_LAYOUT_T4E && i < 16; i++)
        step[i] = power(c, mode);
    for (size_t i = 0; layout == RG_LAYOUT_T4N && i < 32; i++)
        step[i] = float8(c, mode);
    for (size_t i = 64; layout == RG_LAYOUT_F8 && i < bytes; i++)
        step[i] = float8(c, mode);
    if (layout == RG_LAYOUT_F8 && mode == 2) /* near the largest float, by small codes */
        ((float *)(void *)step)[rg_rng_below(&c->rng, 16)] = 0x1p121f;
}

static void fill_panel(cases *c, rg_layout layout, int mode, uint8_t *panel, size_t n_steps)
{
    const size_t bytes = rg_layout_step_bytes(layout);

    fill_head(c, layout, mode, panel);
    panel += rg_layout_head_bytes(layout);
    for (size_t s = 0; s < n_steps; s++, panel += bytes)
        if (layout == RG_LAYOUT_F32 || layout == RG_LAYOUT_F32W)
            floats(c, mode == 4 ? 0 : mode, (float *)(void *)panel, 16);
        else if (layout == RG_LAYOUT_BF16 || layout == RG_LAYOUT_BF16W)
            fill_bf16(c, mode, (uint16_t *)(void *)panel, 16);
        else
            fill_step(c, layout == RG_LAYOUT_F16W ? RG_LAYOUT_F16 : layout, mode > 4 ? 0 : mode, panel);
}

static void fill_blocks(cases *c, int mode, rg_xblock *x, size_t n)
{
    for (; n--; x++) {
        int32_t sum[2] = { 0, 0 };
        for (int i = 0; i < 32; i++) {
            x->q[i] = (int8_t)((int)rg_rng_below(&c->rng, 255) - 127);
            if (mode == 1)
                x->q[i] = rg_rng_below(&c->rng, 16) ? 127 : -127;
            if (mode == 3)
                x->q[i] = rg_rng_below(&c->rng, 2) ? 0 : -127;
            sum[i / 16] += x->q[i];
        }
        x->d = mode == 2 ? 0x1p-140f : mode == 1 ? 1e30f : fabsf(number(c, mode == 4 ? 0 : mode));
        x->s = x->d * (float)(sum[0] + sum[1]);
        x->neg8 = -8 * (sum[0] + sum[1]);
        x->neg128 = -128 * (sum[0] + sum[1]);
        for (int h = 0; h < 2; h++) {
            x->sh[h] = x->d * (float)sum[h];
            x->neg128h[h] = -128 * sum[h];
        }
    }
}

/* 2^-126 less a little, which a sum meets whether it goes by pairs (columns 0 and 1) or by tiles (4 and 6): in 24 bits it
 * is below the least normal number, as a subnormal it would round up to it.  The rest is zero. */
static void plant_edge(uint8_t *panel, bool of_f32, uint16_t *x, size_t rows, size_t ld)
{
    static const struct { int at; float w, x; } edge[] = {
        { 0, -0x1.8p-75f, 0x1p-76f }, { 1, 0x1p-63f, 0x1p-63f }, { 4, 0x1p-63f, 0x1p-63f }, { 6, -0x1.8p-75f, 0x1p-76f } };

    for (size_t i = 0; i < RG_LEN(edge); i++) {
        for (int k = 0; k < 16; k++)
            if (of_f32)
                memcpy(panel + sizeof(float) * (size_t)(16 * edge[i].at + k), &edge[i].w, sizeof(float));
            else
                ((uint16_t *)(void *)panel)[rg_bf16_at(32, edge[i].at, k)] = rg_f32_to_bf16(edge[i].w);
        for (size_t r = 0; r < rows; r++)
            x[r * ld + (size_t)edge[i].at] = rg_f32_to_bf16(edge[i].x);
    }
}

/* Up to PANELS panels and MAX_M rows.  Rows are ld items (floats, blocks or bf16) apart, outputs WIDE + GAP floats. */
typedef struct panel_case {
    rg_layout layout;
    rg_recipe recipe;
    int cols, mode, max_m, n_panels;
    uint8_t *panel;
    size_t bytes;    /* of a panel */
    size_t item, ld; /* bytes of an item; items from row to row */
    void *x;
    float want[MAX_M * (WIDE + GAP)];
} panel_case;

static void panel_call(const rg_cpu *k, const panel_case *p, const void *x, int m, float *y)
{
    rg_product product = { .panel = p->panel, .panel_bytes = p->bytes, .column_bytes = rg_layout_step_bytes(p->layout),
                           .n_panels = p->n_panels, .cols = p->cols, .m = m, .ldx = p->ld, .y = y, .ldy = WIDE + GAP };

    if (p->recipe == RG_EXACT)
        product.x = x;
    else if (p->recipe == RG_INT8)
        product.q = x;
    else
        product.h = x;
    k->product[p->recipe][p->layout](&product);
}

static bool panel_rows_same(const cases *c, const panel_case *p)
{
    static const int many[] = { 1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 15, 16, 17,
                                21, 24, 25, 26, 27, 28, 29, 33, 64, 65, 66, 67, 68, 69, BATCH_M, MAX_M };
    static const int few[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 33, 65, 69, BATCH_M, MAX_M }; /* tiles of up to 6, and any rest */
    static const int least[] = { 1, 2, 3, 4, 6, LEAST_M };
    const int *rows = !c->few ? many : p->mode ? least : few;
    const size_t n_rows = !c->few ? RG_LEN(many) : p->mode ? RG_LEN(least) : RG_LEN(few);
    static const char *const recipes[RG_RECIPE_COUNT] = { "exact", "int8", "pairs", "tiles", "rounded" };
    const size_t row_items = (size_t)p->cols / (p->recipe == RG_INT8 ? 32 : 1);
    char what[128];

    for (size_t i = 0; i < n_rows && rows[i] <= p->max_m; i++) {
        const int m = rows[i];
        const size_t n_out = (size_t)(m - 1) * (WIDE + GAP) + 16 * (size_t)p->n_panels;
        const void *x = walled_copy(1, p->x, ((size_t)(m - 1) * p->ld + row_items) * p->item);
        float *y = walled(2, n_out * sizeof *y);

        for (size_t j = 0; j < n_out; j++)
            y[j] = 12345.0f;
        panel_call(c->k, p, x, m, y);
        snprintf(what, sizeof what, "%s panel_%s %s cols %d m %d mode %d", c->k->isa, recipes[p->recipe],
                 rg_layout_name(p->layout), p->cols, m, p->mode);
        if (!same_floats(y, p->want, n_out, what))
            return false;
    }
    return true;
}

static bool panel_same(cases *c, rg_layout layout, rg_recipe recipe, int n_steps, int mode)
{
    static const size_t items[RG_RECIPE_COUNT] = { sizeof(float), sizeof(rg_xblock), sizeof(uint16_t), sizeof(uint16_t),
                                                    sizeof(uint16_t) };
    static panel_case p;
    bool same;

    p = (panel_case){ .layout = layout, .recipe = recipe, .cols = rg_layout_step(layout) * n_steps, .mode = mode,
                      .bytes = rg_layout_head_bytes(layout) + rg_layout_step_bytes(layout) * (size_t)n_steps,
                      .item = items[recipe] };
    p.n_panels = p.cols > 1024 && mode ? 1 : PANELS; /* ref is slow: */
    p.max_m = p.cols > 4096 ? 5 : SOME_M; /* the last rows are tested by shorter ones */
    if (recipe == RG_INT8 && p.cols < 1024 && mode < 2) /* more than one piece of a panel, and many rows */
        p.max_m = INT8_M;
    if (c->few && mode) /* numbers of rows are compared by the first mode; the others are for values */
        p.max_m = LEAST_M;
    if (p.cols <= 128 && !mode) /* more than one batch of rows */
        p.max_m = recipe != RG_INT8 ? BATCH_M : p.cols <= 64 ? MAX_M : INT8_M;
    p.ld = (size_t)p.cols / (recipe == RG_INT8 ? 32 : 1) + 1;
    p.panel = walled(0, PANELS * p.bytes);
    p.x = calloc((size_t)p.max_m * p.ld, p.item);
    if (!p.x)
        abort();
    for (size_t i = 0; i < PANELS; i++)
        fill_panel(c, layout, mode, p.panel + i * p.bytes, (size_t)n_steps);
    for (size_t r = 0; r < (size_t)p.max_m; r++)
        if (recipe == RG_EXACT)
            floats(c, mode, (float *)p.x + r * p.ld, p.ld - 1);
        else if (recipe == RG_INT8)
            fill_blocks(c, mode, (rg_xblock *)p.x + r * p.ld, p.ld - 1);
        else
            fill_bf16(c, mode, (uint16_t *)p.x + r * p.ld, p.ld - 1);
    if (mode == 6)
        plant_edge(p.panel, layout == RG_LAYOUT_F32, p.x, (size_t)p.max_m, p.ld);
    for (size_t j = 0; j < RG_LEN(p.want); j++)
        p.want[j] = 12345.0f;
    panel_call(c->ref, &p, p.x, p.max_m, p.want);
    same = panel_rows_same(c, &p);
    free(p.x);
    return same;
}

/* A recipe of a layout by many numbers of columns. */
static bool recipe_same(cases *c, rg_layout layout, rg_recipe recipe)
{
    static const int steps[] = { 1, 2, 3, 17, 4, 5, 9, 64, 65 }, columns[] = { 1, 2, 3, 4, 5, 7, 64, 65, 301 };
    static const int blocks[] = { 32, 64, 96, 544 };
    const bool of_floats = rg_layout_step(layout) == 1, bf16 = recipe > RG_INT8 && of_floats;
    const int *n = bf16 ? blocks : of_floats ? columns : steps, n_modes = bf16 ? EDGE_MODES : N_MODES;
    const size_t n_steps = c->few || rg_layout_step(layout) > 32 ? 4 : RG_LEN(steps);
    const size_t n_sizes = bf16 ? RG_LEN(blocks) : of_floats ? RG_LEN(columns) : n_steps;

    for (size_t i = 0; i < n_sizes; i++)
        for (int mode = 0; mode < n_modes; mode++)
            if ((n[i] * rg_layout_step(layout) < 1024 || mode < 2) && !panel_same(c, layout, recipe, n[i], mode))
                return false;
    return true;
}

static bool cases_panels(cases *c)
{
    for (rg_layout layout = RG_LAYOUT_F32; layout < RG_LAYOUT_COUNT; layout++)
        for (rg_recipe recipe = RG_EXACT; recipe < RG_RECIPE_COUNT; recipe++) {
            const bool own = c->k->product[recipe][layout] != c->ref->product[recipe][layout];
            const bool new = !c->below || c->k->product[recipe][layout] != c->below->product[recipe][layout];

            if (own && new && !recipe_same(c, layout, recipe))
                return false;
        }
    return true;
}

#include "column_cases.h"

/* ---- matrices as they lie ------------------------------------------------------------------------------------------- */

/* Operands at the end of their rooms: panels as such, or columns of a matrix; rows of x, or columns. */
static bool matrices_same(cases *c, int m, int n_panels, int cols, bool packed, bool turned, bool add, int mode)
{
    const size_t width = 16 * (size_t)n_panels, ldw = packed ? 16 : width + GAP, ldx = (size_t)(turned ? m : cols) + GAP;
    const size_t n_w = packed ? width * (size_t)cols : ldw * (size_t)(cols - 1) + width;
    const size_t n_x = ldx * (size_t)((turned ? cols : m) - 1) + (size_t)(turned ? m : cols);
    const size_t ldy = width + GAP, n_y = ldy * (size_t)(m - 1) + width;
    float *w = walled(0, n_w * sizeof *w), *x = walled(1, n_x * sizeof *x), *y[2];
    char what[96];

    floats(c, mode, w, n_w);
    floats(c, mode, x, n_x);
    y[0] = walled(2, n_y * sizeof **y);
    floats(c, 0, y[0], n_y);
    y[1] = walled_copy(3, y[0], n_y * sizeof **y);
    for (int i = 0; i < 2; i++)
        (i ? c->k : c->ref)->matrices(&(rg_host_product){ .x = x, .panels = w, .column_floats = ldw, .y = y[i], .ldx = ldx,
            .ldy = ldy, .panel_floats = packed ? 16 * (size_t)cols : 16, .m = m, .n_panels = n_panels, .cols = cols,
            .turned = turned, .add = add });
    snprintf(what, sizeof what, "%s matrices %d x %d by %d panels%s%s%s, mode %d", c->k->isa, m, cols, n_panels,
             packed ? " packed" : "", turned ? " turned" : "", add ? " added" : "", mode);
    return same_floats(y[1], y[0], n_y, what);
}

static bool cases_matrices(cases *c)
{
    static const int rows[] = { 1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 24, 96, 97, 131 }, depths[] = { 1, 3, 4, 24, 33, 129, 514, 1024 };
    bool ok = true;

    for (size_t i = 0; ok && i < RG_LEN(rows); i++)
        for (size_t k = 0; ok && k < RG_LEN(depths) && (!c->few || depths[k] < 514); k++)
            for (int kind = 0; ok && kind < 8; kind++)
                ok = matrices_same(c, rows[i], 1 + (int)(i + k) % 3, depths[k], kind & 1, kind & 2, kind & 4, (int)(i + k) % 5);
    return ok;
}

/* ---- folded layouts ------------------------------------------------------------------------------------------------- */

/* Any bytes are a panel; d, which may be no number, is compared as floats where it was made one. */
static bool unfolded_same(cases *c, rg_layout layout, int cols)
{
    const rg_layout to = rg_layout_unfolded(layout);
    const size_t head = rg_layout_head_bytes(layout), n_steps = (size_t)cols / 256, each = rg_layout_step_bytes(to);
    const size_t bytes = head + n_steps * rg_layout_step_bytes(layout), n_d = to == RG_LAYOUT_Q2 ? 0 : RG_PANEL;
    uint8_t *panel = walled(0, bytes), *want = walled(1, head + n_steps * each), *got = walled(2, head + n_steps * each);
    bool same;

    for (size_t i = 0; i < bytes; i++)
        panel[i] = (uint8_t)rg_rng_below(&c->rng, 256);
    memset(want, 1, head + n_steps * each);
    memset(got, 2, head + n_steps * each);
    c->ref->unfold(layout, panel, cols, want);
    c->k->unfold(layout, panel, cols, got);
    same = !memcmp(want, got, head);
    for (size_t i = head; same && i < head + n_steps * each; i += each)
        same = same_floats((const float *)(const void *)(got + i), (const float *)(const void *)(want + i), n_d,
                           rg_layout_name(layout)) &&
               !memcmp(got + i + n_d * sizeof(float), want + i + n_d * sizeof(float), each - n_d * sizeof(float));
    if (!same)
        printf("%s unfolds %s of %d columns otherwise\n", c->k->isa, rg_layout_name(layout), cols);
    return same;
}

static bool cases_unfold(cases *c)
{
    for (rg_layout layout = RG_LAYOUT_F32; layout < RG_LAYOUT_COUNT; layout++)
        for (int cols = 256; rg_layout_is_folded(layout) && cols < 2048; cols = 2 * cols + 256)
            if (!unfolded_same(c, layout, cols))
                return false;
    return true;
}

/* ---- sketches ------------------------------------------------------------------------------------------------------- */

/* Any bytes are scales and codes. */
static bool sketch_same(cases *c, int n_blocks, int n_panels, int mode)
{
    const size_t bytes = rg_sketch_codes_at(n_blocks) + (size_t)n_blocks * sizeof(rg_sketch_codes);
    const size_t n = 16 * (size_t)n_panels, n_x = (size_t)n_blocks;
    uint8_t *panel = walled(0, (size_t)n_panels * bytes);
    float *x = walled(1, 32 * n_x * sizeof *x), *norm = walled(2, n_x * sizeof *norm);
    rg_xblock *q = walled(3, n_x * sizeof *q);
    float *out[4]; /* mid and off, of ref and of k */
    char what[80];

    for (int i = 0; i < 4; i++)
        out[i] = walled(4 + i, n * sizeof **out);
    for (size_t i = 0; i < (size_t)n_panels * bytes; i++)
        panel[i] = byte(c, mode);
    for (int i = 0; i < n_panels; i++) /* d and e */
        floats(c, mode, (float *)(void *)(panel + (size_t)i * bytes), 32);
    floats(c, mode == 4 ? 1 : mode, x, 32 * n_x);
    floats(c, mode, norm, n_x);
    c->ref->quantize(x, 32 * n_blocks, q);
    for (int i = 0; i < 2; i++)
        (i ? c->k : c->ref)->sketch(&(rg_sketch_product){ .panel = panel, .panel_bytes = bytes, .n_panels = n_panels,
                                                          .n_blocks = n_blocks, .q = q, .norm = norm,
                                                          .mid = out[2 * i], .off = out[2 * i + 1] });
    snprintf(what, sizeof what, "%s sketch blocks %d panels %d mode %d", c->k->isa, n_blocks, n_panels, mode);
    return same_floats(out[2], out[0], n, what) && same_floats(out[3], out[1], n, what);
}

static bool cases_sketch(cases *c)
{
    for (int mode = 0; mode < N_MODES; mode++)
        for (int n_blocks = 1; n_blocks < 70; n_blocks = 2 * n_blocks + 1)
            for (int n_panels = 1; n_panels < 4; n_panels++)
                if (!sketch_same(c, n_blocks, n_panels, mode))
                    return false;
    return true;
}

/* ---- rows ----------------------------------------------------------------------------------------------------------- */

enum { MAX_N = 700 };

static const int lengths[] = { 1, 2, 3, 5, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 172, 511, 700 };

/* Outputs of one call on both tables, compared. */
typedef void row_call(const rg_cpu *k, float *y, const float *const in[3], int n, float a);

static void call_rmsnorm(const rg_cpu *k, float *y, const float *const in[3], int n, float a)
{
    k->rmsnorm(y, in[0], in[1], n, fabsf(a) * 1e-6f);
}

static void call_rmsnorm_same(const rg_cpu *k, float *y, const float *const in[3], int n, float a)
{
    k->rmsnorm(y, y, in[1], n, fabsf(a) * 1e-6f);
}

static void call_rmsnorm_plain(const rg_cpu *k, float *y, const float *const in[3], int n, float a)
{
    k->rmsnorm(y, in[0], NULL, n, fabsf(a) * 1e-6f);
}

static void call_layernorm(const rg_cpu *k, float *y, const float *const in[3], int n, float a)
{
    k->layernorm(y, in[0], in[1], in[2], n, fabsf(a) * 1e-6f);
}

static void call_layernorm_same(const rg_cpu *k, float *y, const float *const in[3], int n, float a)
{
    k->layernorm(y, y, in[1], NULL, n, fabsf(a) * 1e-6f);
}

static void call_layernorm_plain(const rg_cpu *k, float *y, const float *const in[3], int n, float a)
{
    k->layernorm(y, in[0], NULL, NULL, n, fabsf(a) * 1e-6f);
}

static void call_mul(const rg_cpu *k, float *y, const float *const in[3], int n, float a)
{
    (void)a;
    k->mul(y, in[0], n);
}

static void call_add(const rg_cpu *k, float *y, const float *const in[3], int n, float a)
{
    (void)a;
    k->add(y, in[0], n);
}

/* Two rows, of the even length below n; with a bias or without, added to what is there or not. */
static void put_two(const rg_cpu *k, float *y, const float *const in[3], int n, bool biased, bool accumulate)
{
    const size_t half = (size_t)n / 2;
    const rg_put p = { .to = y, .from = in[0], .bias = biased ? in[1] : NULL, .ld_to = half, .ld_from = half,
                       .n_rows = 2, .n = (int)half, .accumulate = accumulate };

    k->put(&p);
}

static void call_put(const rg_cpu *k, float *y, const float *const in[3], int n, float a)
{
    put_two(k, y, in, n, true, a > 0.0f);
}

static void call_put_plain(const rg_cpu *k, float *y, const float *const in[3], int n, float a)
{
    put_two(k, y, in, n, false, a > 0.0f);
}

static void call_scale(const rg_cpu *k, float *y, const float *const in[3], int n, float a)
{
    k->scale(y, in[0], a, n);
}

static void call_axpy(const rg_cpu *k, float *y, const float *const in[3], int n, float a)
{
    k->axpy(y, a, in[0], n);
}

static void call_softcap(const rg_cpu *k, float *y, const float *const in[3], int n, float a)
{
    (void)in;
    k->softcap(y, 1.0f + fabsf(a), n);
}

static void call_l2norm(const rg_cpu *k, float *y, const float *const in[3], int n, float a)
{
    (void)a;
    k->l2norm(y, in[0], n, 1e-6f);
}

static void call_match_rms(const rg_cpu *k, float *y, const float *const in[3], int n, float a)
{
    k->match_rms(y, in[0], n, fabsf(a) * 0.1f + 1e-5f);
}

static void call_cut(const rg_cpu *k, float *y, const float *const in[3], int n, float a)
{
    k->cut(y, in[0], n, a);
}

static void call_rotate_pairs(const rg_cpu *k, float *y, const float *const in[3], int n, float a)
{
    (void)a;
    k->rotate(y, in[0], in[1], n / 2, true);
}

static void call_rotate_halves(const rg_cpu *k, float *y, const float *const in[3], int n, float a)
{
    (void)a;
    k->rotate(y, in[0], in[1], n / 2, false);
}

/* An activation of one row, of the same row in place, and times another row. */
static bool activation_same(cases *c, rg_activation act, int n, int mode)
{
    const size_t bytes = (size_t)n * sizeof(float);
    static float want[MAX_N];
    float *x = walled(0, bytes), *u = walled(1, bytes), *y = walled(2, bytes);
    char what[96];

    for (int way = 0; way < 3; way++) {
        floats(c, mode, x, (size_t)n);
        floats(c, mode, u, (size_t)n);
        for (int i = 0; i < n && mode == 0; i++) /* both sides of every bound of a formula */
            x[i] *= 8.0f;
        memcpy(way == 1 ? y : want, x, bytes);
        if (way < 2) {
            c->ref->act[act](want, x, n);
            c->k->act[act](y, way ? y : x, n);
        } else {
            c->ref->act_mul[act](want, x, u, n);
            c->k->act_mul[act](y, x, u, n);
        }
        snprintf(what, sizeof what, "%s activation %d way %d n %d mode %d", c->k->isa, (int)act, way, n, mode);
        if (!same_floats(y, want, (size_t)n, what))
            return false;
    }
    return true;
}

static bool cases_activations(cases *c)
{
    for (rg_activation act = 0; act < RG_ACTIVATIONS; act++)
        for (size_t j = 0; j < RG_LEN(lengths); j++)
            for (int mode = 0; mode < N_MODES; mode++)
                if (!activation_same(c, act, lengths[j], mode))
                    return false;
    return true;
}

static bool cases_rows(cases *c)
{
    static const struct { const char *name; row_call *call; } calls[] = {
        { "rmsnorm", call_rmsnorm },       { "rmsnorm in place", call_rmsnorm_same },
        { "rmsnorm plain", call_rmsnorm_plain },
        { "layernorm", call_layernorm },   { "layernorm in place, no bias", call_layernorm_same },
        { "layernorm plain", call_layernorm_plain },
        { "mul", call_mul },
        { "add", call_add },               { "scale", call_scale },
        { "axpy", call_axpy },             { "put", call_put }, { "put without bias", call_put_plain },
        { "softcap", call_softcap },       { "l2norm", call_l2norm },
        { "match rms", call_match_rms },   { "cut", call_cut },
        { "rotate pairs", call_rotate_pairs }, { "rotate halves", call_rotate_halves },
    };
    static float want[MAX_N];
    char what[128];

    for (size_t i = 0; i < RG_LEN(calls); i++)
        for (size_t j = 0; j < RG_LEN(lengths); j++)
            for (int mode = 0; mode < N_MODES; mode++) {
                const int n = lengths[j];
                const size_t bytes = (size_t)n * sizeof(float);
                float *in[3], *y = walled(3, bytes), a = rg_rng_normal(&c->rng);

                for (int s = 0; s < 3; s++)
                    floats(c, s ? mode % 4 : mode, in[s] = walled(s, bytes), (size_t)n);
                floats(c, mode, y, (size_t)n);
                memcpy(want, y, bytes);
                calls[i].call(c->ref, want, (const float *const *)in, n, a);
                calls[i].call(c->k, y, (const float *const *)in, n, a);
                snprintf(what, sizeof what, "%s %s n %d mode %d", c->k->isa, calls[i].name, n, mode);
                if (!same_floats(y, want, (size_t)n, what))
                    return false;
            }
    return true;
}

static bool cases_index(cases *c)
{
    static const int heads[] = { 1, 3, 16 }, counts[] = { 1, 7, 64 };
    static float want[64];
    char what[128];

    for (size_t i = 0; i < 9; i++)
        for (size_t j = 0; j < RG_LEN(lengths); j++)
            for (int mode = 0; mode < N_MODES; mode++) {
                const int n_heads = heads[i % 3], n = counts[i / 3], k_dim = lengths[j];
                const size_t bytes = (size_t)k_dim * sizeof(float);
                float *q = walled(0, bytes * (size_t)n_heads), *weights = walled(1, (size_t)n_heads * sizeof(float));
                float *keys = walled(2, bytes * (size_t)n), *score = walled(3, (size_t)n * sizeof(float));
                const float *at[64];

                floats(c, mode, q, (size_t)(n_heads * k_dim));
                floats(c, mode % 4, weights, (size_t)n_heads);
                floats(c, mode % 4, keys, (size_t)(n * k_dim));
                for (int k = 0; k < n; k++)
                    at[k] = keys + (size_t)(k * 5 % n) * (size_t)k_dim;
                const rg_index x = { q, weights, n_heads, k_dim, at, n };
                c->ref->index_scores(want, &x);
                c->k->index_scores(score, &x);
                snprintf(what, sizeof what, "%s index_scores heads %d k_dim %d n %d mode %d", c->k->isa, n_heads, k_dim, n, mode);
                if (!same_floats(score, want, (size_t)n, what))
                    return false;
            }
    return true;
}

static bool cases_quantize(cases *c)
{
    static rg_xblock want[8];

    for (int round = 0; round < 200; round++) {
        const int mode = round % 4, n = 32 * (1 + round % 8);
        const size_t n_bytes = (size_t)n / 32 * sizeof *want;
        float *x = walled(0, (size_t)n * sizeof *x);
        rg_xblock *y = walled(1, n_bytes);

        floats(c, mode, x, (size_t)n);
        for (int i = 0; i < n && round % 16 == 8; i++)
            x[i] = ((float)(int)rg_rng_below(&c->rng, 255) - 127.0f) / 2.0f; /* ties */
        for (int i = 0; i < n && round % 16 == 9; i++)
            x[i] = 0.0f;
        if (round % 16 == 10)
            x[rg_rng_below(&c->rng, (uint32_t)n)] = round % 32 == 10 ? NAN : -INFINITY;
        c->ref->quantize(x, n, want);
        c->k->quantize(x, n, y);
        if (memcmp(want, y, n_bytes)) {
            printf("%s quantize n %d mode %d round %d differs\n", c->k->isa, n, mode, round);
            return false;
        }
        for (int i = 0; i < n; i++)
            if (!isfinite(x[i]) && isfinite(y[i / 32].d)) {
                printf("%s quantize: value %d is %a, and its block is of numbers\n", c->k->isa, i, (double)x[i]);
                return false;
            }
        for (int i = 0; i < n && round % 3; i++)
            x[i] *= rg_rng_below(&c->rng, 9) ? 1.0f : RG_OUTLIER;
        if (round % 5 == 0)
            x[n - 1] = -RG_OUTLIER;
        uint32_t bits[8], want_bits[8];

        c->ref->quantize_row(x, n, want, want_bits);
        c->k->quantize_row(x, n, y, bits);
        if (memcmp(want, y, n_bytes) || memcmp(bits, want_bits, (size_t)n / 32 * sizeof *bits)) {
            printf("%s quantize_row n %d mode %d round %d differs\n", c->k->isa, n, mode, round);
            return false;
        }
        for (int i = 0; i < n; i++)
            if ((bits[i / 32] >> i % 32 & 1) != (fabsf(x[i]) >= RG_OUTLIER))
                return false;
    }
    return true;
}

#include "kv_cases.h"

static bool cases_merge(cases *c)
{
    static float a_ref[MAX_N];
    char what[64];

    for (int round = 0; round < 100; round++) {
        const int n = lengths[round % (int)RG_LEN(lengths)];
        const size_t bytes = (size_t)n * sizeof(float);
        float *o = walled(0, bytes), *other = walled(1, bytes);
        rg_softmax a = { round % 7 ? rg_rng_normal(&c->rng) : -INFINITY, 3.0f, a_ref }, k = { a.m, a.l, o };
        const bool no_number = round % 11 == 4;
        const rg_softmax b = { no_number ? NAN : round % 5 ? rg_rng_normal(&c->rng) : -INFINITY, no_number ? NAN : 2.0f,
                               other };

        floats(c, round % 4, o, (size_t)n);
        floats(c, round % 4, other, (size_t)n);
        memcpy(a_ref, o, bytes);
        c->ref->merge(&a, &b, n);
        c->k->merge(&k, &b, n);
        snprintf(what, sizeof what, "%s merge n %d round %d", c->k->isa, n, round);
        if (isnan(b.m) && !isnan(k.l)) {
            printf("%s: a part that is no number is left out\n", what);
            return false;
        }
        if (!same_floats(&k.m, &a.m, 1, what) || !same_floats(&k.l, &a.l, 1, what) || !same_floats(o, a_ref, (size_t)n, what))
            return false;
    }
    return true;
}

/* ---- recurrence ----------------------------------------------------------------------------------------------------- */

static bool scan_same(cases *c, int n, int d_state, int mode, bool replay)
{
    const size_t bytes = (size_t)n * 4, all = bytes * (size_t)d_state, state = (size_t)d_state * 4;
    static float h_ref[16 * MAX_N], y_ref[MAX_N];
    float *h = walled(0, all), *a = walled(1, all), *in = walled(2, 4 * bytes), *b = walled(3, state), *g = walled(4, state);
    float *y = walled(5, bytes);
    char what[96];

    floats(c, mode, h, all / 4);
    floats(c, mode, in, bytes);
    floats(c, mode, b, (size_t)d_state);
    floats(c, mode, g, (size_t)d_state);
    for (size_t i = 0; i < all / 4; i++)
        a[i] = -fabsf(number(c, mode));
    for (int i = 0; i < n; i++)
        in[n + i] = fabsf(in[n + i]);
    memcpy(h_ref, h, all);
    c->ref->scan_row(h_ref, (size_t)n, a, (size_t)n, d_state, n, in, in + n, b, g, in + 2 * n, in + 3 * n, replay ? NULL : y_ref);
    c->k->scan_row(h, (size_t)n, a, (size_t)n, d_state, n, in, in + n, b, g, in + 2 * n, in + 3 * n, replay ? NULL : y);
    snprintf(what, sizeof what, "%s scan_row n %d d_state %d mode %d replay %d", c->k->isa, n, d_state, mode, replay);
    return same_floats(h, h_ref, all / 4, what) && (replay || same_floats(y, y_ref, (size_t)n, what));
}

static bool modes_same(cases *c, int n, int n_modes, int mode, bool full, bool replay)
{
    const size_t bytes = (size_t)n * 4, rows = (size_t)n_modes * (full ? RG_FULL_MODE_ROWS : RG_MODE_ROWS);
    static float x_ref[2 * 8 * MAX_N], y_ref[MAX_N];
    float *x = walled(0, 2 * (size_t)n_modes * bytes), *m = walled(1, rows * bytes), *d = walled(2, bytes);
    float *u = walled(3, bytes), *y = walled(4, bytes);
    rg_modes s = { .x = x, .m = m, .d = d, .ldx = (size_t)n, .ldm = (size_t)n, .n_modes = n_modes, .full = full };
    char what[96];

    floats(c, mode, x, 2 * (size_t)n_modes * (size_t)n);
    floats(c, mode, m, rows * (size_t)n);
    floats(c, mode, d, (size_t)n);
    floats(c, mode, u, (size_t)n);
    memcpy(x_ref, x, 2 * (size_t)n_modes * bytes);
    c->k->modes_row(&s, n, u, replay ? NULL : y);
    s.x = x_ref;
    c->ref->modes_row(&s, n, u, replay ? NULL : y_ref);
    snprintf(what, sizeof what, "%s modes_row n %d modes %d mode %d full %d", c->k->isa, n, n_modes, mode, full);
    return same_floats(x, x_ref, 2 * (size_t)n_modes * (size_t)n, what) &&
           (replay || same_floats(y, y_ref, (size_t)n, what));
}

static bool lru_same(cases *c, int n, int mode, bool first)
{
    const size_t bytes = (size_t)n * 4;
    static float h_ref[MAX_N], a_ref[MAX_N], b_ref[MAX_N];
    float *in[6], *a = walled(6, bytes), *b = walled(7, bytes), *h;
    char what[96];

    for (int i = 0; i < 6; i++)
        floats(c, mode, in[i] = walled(i, bytes), (size_t)n);
    rg_lru_row g = { .x = in[0], .r = in[1], .i = in[2], .rate = in[3], .b_r = in[4], .b_i = in[5], .first = first,
                     .a = a, .b = b };
    c->k->lru_gates(&g, n);
    g.a = a_ref;
    g.b = b_ref;
    c->ref->lru_gates(&g, n);
    h = in[0];
    memcpy(h_ref, h, bytes);
    c->k->lru_row(h, a, b, n);
    c->ref->lru_row(h_ref, a_ref, b_ref, n);
    snprintf(what, sizeof what, "%s lru n %d mode %d first %d", c->k->isa, n, mode, first);
    return same_floats(a, a_ref, (size_t)n, what) && same_floats(b, b_ref, (size_t)n, what) &&
           same_floats(h, h_ref, (size_t)n, what);
}

static bool conv_same(cases *c, int n, int d_conv, int mode, bool biased)
{
    const size_t bytes = (size_t)n * 4;
    static float want[MAX_N];
    const float *in[6];
    float *w = walled(6, bytes * (size_t)d_conv), *bias = walled(7, bytes), *y = walled(8, bytes);
    char what[96];

    for (int j = 0; j < d_conv; j++) {
        float *x = walled(j, bytes);
        floats(c, mode, x, (size_t)n);
        in[j] = x;
    }
    floats(c, mode, w, (size_t)(n * d_conv));
    floats(c, mode, bias, (size_t)n);
    c->ref->conv_row(want, in, w, biased ? bias : NULL, d_conv, n);
    c->k->conv_row(y, in, w, biased ? bias : NULL, d_conv, n);
    snprintf(what, sizeof what, "%s conv_row n %d d_conv %d mode %d", c->k->isa, n, d_conv, mode);
    return same_floats(y, want, (size_t)n, what);
}

#include "recur_cases.h"

static bool cases_recurrence(cases *c)
{
    for (size_t i = 0; i < RG_LEN(lengths); i++)
        for (int mode = 0; mode < 4; mode++)
            for (int odd = 0; odd < 2; odd++)
                if (!scan_same(c, lengths[i], odd ? 3 : 16, mode, mode == 0 && odd) ||
                    !modes_same(c, lengths[i], odd ? 3 : 8, mode, odd, mode == 0 && odd) ||
                    !lru_same(c, lengths[i], mode, odd) ||
                    !conv_same(c, lengths[i], odd ? 1 + (int)(i % 3) : 4 + (int)(i % 3), mode, odd))
                    return false;
    return cases_recur(c);
}

/* ---- peaks ---------------------------------------------------------------------------------------------------------- */

/* They run, and say that they did about what was asked. */
static bool cases_probe(cases *c)
{
    double (*const peaks[])(double n) = { c->k->peak_f32, c->k->peak_int8, c->k->peak_bf16 };
    const size_t n = 4096 + 77;
    uint8_t *p = walled(0, n);
    uint64_t before;

    for (size_t i = 0; i < RG_LEN(peaks); i++)
        if (peaks[i] && peaks[i](1e6) < 1e6)
            return false;
    memset(p, 1, n);
    before = c->k->stream(p, n);
    p[n - 1] = 2;
    if (c->k->stream(p, n) == before)
        return false;
    p[n - 1] = 1;
    p[1000] = 9;
    return c->k->stream(p, n) != before;
}

const kernel_case kernel_cases[] = {
    { "panels", cases_panels },         { "columns", cases_columns }, { "sparse", cases_sparse },
    { "matrices", cases_matrices },     { "unfold", cases_unfold },   { "sketch", cases_sketch },
    { "rows", cases_rows },             { "quantize", cases_quantize }, { "store", cases_store },
    { "latents", cases_latents },
    { "close", cases_close },           { "attend", cases_attend },   { "merge", cases_merge },
    { "recurrence", cases_recurrence }, { "probe", cases_probe },   { "activations", cases_activations },
    { "index", cases_index },
    { NULL, NULL },
};
