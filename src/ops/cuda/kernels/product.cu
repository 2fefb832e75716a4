/* product.cu -- matrices by rows.
 *
 * The exact product is that of ops/cpu/kernels.h, to the bit.  The fast one rounds x to bf16 and is this, of a row of
 * the matrix and a row of x:
 *
 *     y = 0; for each slab of 256 columns in rising order: y = y + s, where s = 0, and
 *         BF16      for each 16 columns: s = mma(s)
 *         I8, I4    for each 32 columns: s = fma(d, mma(mma(0)), s)
 *         K4        the same with d * s; then s = fma(-(e * t), sum of x, s)
 *         G8, G8M   for each 16 columns: s = fma(d, mma(0), s); of G8M then s = fma(-m, sum of x, s)
 *
 * mma(c) is c and 16 products, added as the tensor cores do, which the maker does not define; of quantized matrices the
 * factors in it are the codes, which bf16 holds.  Every kernel below does the same operations for an output in the same
 * order, however many rows there are: an output depends on its own row of x alone. */
#include "ops/cuda/kernels/matrix.h"

/* ---- rounding ---------------------------------------------------------------------------------------------------- */

/* A thread has 16 columns. */
RGK_KERNEL(round, round)
{
    const int row = RGK_BLOCK_X, group = RGK_BLOCK_Y * RGK_THREADS + RGK_THREAD;
    const float *x = p.x.at + row * p.x.stride;
    uint32_t *to = (uint32_t *)(void *)(p.to + ((int64_t)row * p.n_slabs * 8 + group / 2) * RGK_RUN) + group % 2 * 2;
    float sum = 0.0f;

    if (group >= p.n_slabs * 16)
        return;
    RGK_UNROLL
    for (int k = 0; k < 16; k += 2) {
        const int col = group * 16 + k;
        const uint32_t two = rgk_round_bf16x2(col < p.cols ? x[col] : 0.0f, col + 1 < p.cols ? x[col + 1] : 0.0f);

        to[k / 4 * 4 + k % 4 / 2] = two;
        sum += rgk_from_bf16((uint16_t)two);
        sum += rgk_from_bf16((uint16_t)(two >> 16));
    }
    p.sums[(int64_t)row * p.n_slabs * 16 + group] = sum;
}

/* ---- where a block works ----------------------------------------------------------------------------------------- */

/* One matrix, a run of its panels, and a run of slots that it meets. */
typedef struct job {
    const uint8_t *panel; /* the first */
    int k, matrix;        /* which of the operation's weights, which of a stack */
    int first_panel, n_panels;
    int first, n;         /* slots; n: that it has at all, from `first` on */
} job;

/* The job of a block that takes `panels` panels and `rows` rows; n_panels or n 0: there is nothing to do. */
RGK_DEVICE job job_of(const rgk_product_params *p, int panels, int rows)
{
    int at = RGK_BLOCK_X, begin = 0, end = p->n_rows;
    job j;

    j.k = 0;
    j.matrix = RGK_BLOCK_Y;
    for (;; j.k++) {
        const int n = (p->matrix[j.k].rows + RGK_PANEL * panels - 1) / (RGK_PANEL * panels);

        if (at < n || j.k == p->n_matrices - 1)
            break;
        at -= n;
    }
    if (p->start) {
        begin = p->start[j.matrix];
        end = p->start[j.matrix + 1];
    }
    const int all = (p->matrix[j.k].rows + RGK_PANEL - 1) / RGK_PANEL;
    j.first_panel = at * panels;
    j.n_panels = all - j.first_panel < panels ? all - j.first_panel : panels;
    j.first = begin + RGK_BLOCK_Z * rows;
    j.n = end - j.first;
    j.panel = p->matrix[j.k].at + j.matrix * p->matrix[j.k].mat_bytes + j.first_panel * p->matrix[j.k].panel_bytes;
    return j;
}

/* The row of x that a slot reads; slots past the end read the last one's, and are not written. */
RGK_DEVICE int64_t row_of(const rgk_product_params *p, const job *j, int i)
{
    const int slot = j->first + (i < j->n ? i : j->n - 1);

    return p->list ? p->list[slot] : slot;
}

RGK_DEVICE void put(const rgk_product_params *p, const job *j, int slot, int panel, int row, float v)
{
    const int at = (j->first_panel + panel) * RGK_PANEL + row, rows = p->matrix[j->k].rows;
    float *y = p->y[j->k].at + (j->first + slot) * p->y[j->k].stride + at;

    if (at >= rows || slot >= j->n)
        return;
    v = p->bias[j->k] ? v + p->bias[j->k][(int64_t)j->matrix * rows + at] : v;
    *y = p->accumulate ? *y + v : v;
}

/* ---- the exact product ------------------------------------------------------------------------------------------- */

/* A thread has one row of a panel and one of eight rows of x. */
RGK_KERNEL(exact, product)
{
    const job j = job_of(&p, 1, 8);
    const int row = RGK_THREAD % RGK_PANEL, slot = RGK_THREAD / RGK_PANEL;
    float c[4] = { 0.0f, 0.0f, 0.0f, 0.0f };

    if (slot >= j.n)
        return;
    const float *x = p.x.at + row_of(&p, &j, slot) * p.x.stride;
    for (int k = 0; k < p.matrix[j.k].cols; k++) {
        const float v = rgk_value(&p.matrix[j.k], j.panel, row, k);

        RGK_UNROLL
        for (int i = 0; i < 4; i++)
            c[i] = k % 4 == i ? rgk_fma(v, x[k], c[i]) : c[i];
    }
    put(&p, &j, slot, 0, row, (c[0] + c[1]) + (c[2] + c[3]));
}

/* ---- a run of a panel -------------------------------------------------------------------------------------------- */

/* What a lane reads of a run: bf16 two loads, bytes one, and two runs of nibbles one. */
RGK_DEVICE bool is_bytes(int layout)
{
    return layout == RGK_I8 || layout == RGK_G8 || layout == RGK_G8M;
}

/* Loads of a slab for a lane. */
RGK_DEVICE int n_loads(int layout)
{
    return layout == RGK_BF16 ? 16 : is_bytes(layout) ? 8 : 4;
}

/* Two signed bytes of (byte - 128) as two bf16: through f32, whose upper halves hold such values exactly. */
RGK_DEVICE uint32_t bytes_to_bf16(uint32_t word, uint32_t first)
{
    const float low = rg_float_of(rgk_bytes(word, 0x4b000000u, 0x7440 + first)) - 8388736.0f;
    const float high = rg_float_of(rgk_bytes(word, 0x4b000000u, 0x7441 + first)) - 8388736.0f;

    return rgk_bytes(rg_bits_of(low), rg_bits_of(high), 0x7632);
}

/* Two nibbles, the s-th and the (s + 4)-th of a word, as two bf16 of (nibble - zero). */
RGK_DEVICE uint32_t nibbles_to_bf16(uint32_t word, int s, int layout)
{
    /* 0x4300 is 128, and the nibble its last bits */
    return rgk_add_bf16x2((word >> 4 * s & 0x000f000fu) | 0x43004300u, layout == RGK_I4 ? 0xc308c308u : 0xc300c300u);
}

/* The operands a of both mma of a run, from the loads of a slab. */
RGK_DEVICE void unpack(int layout, const rgk_u4 *raw, int run, uint32_t a[2][4])
{
    RGK_UNROLL
    for (int h = 0; h < 2; h++) {
        RGK_UNROLL
        for (int j = 0; j < 2; j++) {
            if (layout == RGK_BF16) {
                a[j][h] = raw[2 * run + h].v[2 * j];
                a[j][2 + h] = raw[2 * run + h].v[2 * j + 1];
            } else if (is_bytes(layout)) {
                a[j][h] = bytes_to_bf16(raw[run].v[2 * h + j], 0);
                a[j][2 + h] = bytes_to_bf16(raw[run].v[2 * h + j], 2);
            } else {
                a[j][h] = nibbles_to_bf16(raw[run / 2].v[run % 2 * 2 + h], 2 * j, layout);
                a[j][2 + h] = nibbles_to_bf16(raw[run / 2].v[run % 2 * 2 + h], 2 * j + 1, layout);
            }
        }
    }
}

/* The scales of rows g and g + 8: of a run, or of its 16 columns j. */
typedef struct scales {
    float d[2], m[2];
} scales;

RGK_DEVICE scales scales_of(int layout, const uint8_t *slab, int run, int j, int g)
{
    const float *f = (const float *)(const void *)(slab + RGK_I8_CODES + ((run * 2 + j) * 8 + g) * 8);
    const uint16_t *h = (const uint16_t *)(const void *)(slab + (layout == RGK_I8 ? RGK_I8_CODES : RGK_I4_CODES));
    scales s;

    RGK_UNROLL
    for (int i = 0; i < 2; i++) {
        s.m[i] = 0.0f;
        if (layout == RGK_I8 || layout == RGK_I4) {
            s.d[i] = rgk_from_f16(h[run * 16 + 2 * g + i]);
        } else if (layout == RGK_K4) {
            const uint8_t *st = slab + RGK_K4_ST + run * 32 + 4 * g + 2 * i;
            s.d[i] = rgk_from_f16(h[4 * g + 2 * i]) * (float)st[0];
            s.m[i] = rgk_from_f16(h[4 * g + 2 * i + 1]) * (float)st[1];
        } else {
            s.d[i] = f[i];
            s.m[i] = layout == RGK_G8M ? f[256 + i] : 0.0f;
        }
    }
    return s;
}

/* s += the products of a run of a quantized matrix: a its operands, b those of 8 rows of x (of both mma), sums the sums
 * of 16 columns of rows 2 t and 2 t + 1. */
RGK_DEVICE void add_run(int layout, float s[4], const uint32_t a[2][4], const rgk_u4 *b, const scales by[2],
                        const float sums[2][2])
{
    float c[4] = { 0.0f, 0.0f, 0.0f, 0.0f };

    RGK_UNROLL
    for (int j = 0; j < 2; j++) {
        const bool per_16 = layout == RGK_G8 || layout == RGK_G8M, ends = per_16 || j == 1;

        rgk_mma(c, a[j], b->v + 2 * j);
        RGK_UNROLL
        for (int i = 0; i < 4 && ends; i++) {
            s[i] = rgk_fma(by[per_16 ? j : 0].d[i / 2], c[i], s[i]);
            if (layout == RGK_K4)
                s[i] = rgk_fma(-by[0].m[i / 2], sums[0][i % 2] + sums[1][i % 2], s[i]);
            if (layout == RGK_G8M)
                s[i] = rgk_fma(-by[j].m[i / 2], sums[j][i % 2], s[i]);
            c[i] = 0.0f;
        }
    }
}

RGK_DEVICE bool has_sums(int layout)
{
    return layout == RGK_K4 || layout == RGK_G8M;
}

/* ---- few rows ---------------------------------------------------------------------------------------------------- */

/* A block has a panel, or two neighbours, and up to 8 TILES rows; its warps take slabs by turns and leave their sums in
 * shared memory, where they are added in order. */
enum { WARPS = 8, THREADS = WARPS * RGK_WARP, MOST_TILES = 8, MOST_PANELS = 2, STAGES_OF_SLAB = 4 };

/* A lane's loads of two runs of a panel: the `stage`-th quarter of a slab. */
RGK_DEVICE void load_stage(int layout, const uint8_t *slab, int stage, bool once, rgk_u4 *raw)
{
    const int n = n_loads(layout) / STAGES_OF_SLAB;

    RGK_UNROLL
    for (int i = 0; i < n; i++) {
        const uint8_t *at = slab + (stage * n + i) * 512 + RGK_THREAD % RGK_WARP * 16;
        raw[i] = once ? rgk_load_once(at) : rgk_load(at);
    }
}

/* Operands and scales of a run. */
typedef struct run {
    uint32_t a[2][4];
    scales by[2];
} run;

RGK_DEVICE run run_of(int layout, const uint8_t *slab, const rgk_u4 *raw, int in_raw, int of_slab)
{
    const int g = RGK_THREAD % RGK_WARP / 4;
    run r;

    unpack(layout, raw, in_raw, r.a);
    if (layout != RGK_BF16) {
        r.by[0] = scales_of(layout, slab, of_slab, 0, g);
        r.by[1] = scales_of(layout, slab, of_slab, 1, g);
    }
    return r;
}

RGK_DEVICE void multiply_run(int layout, float s[4], const run *r, const rgk_u4 *b, const float sums[2][2])
{
    if (layout == RGK_BF16) {
        rgk_mma(s, r->a[0], b->v);
        rgk_mma(s, r->a[1], b->v + 2);
    } else {
        add_run(layout, s, r->a, b, r->by, sums);
    }
}

/* One slab of the panels by `tiles` times 8 rows: s[panel][tile] as rgk_mma has c. */
RGK_DEVICE void slab_of(int layout, int panels, int tiles, const rgk_product_params *p, const job *j, int slab,
                        float s[MOST_PANELS][MOST_TILES][4])
{
    const int lane = RGK_THREAD % RGK_WARP, g = lane / 4, t = lane % 4;
    const int at_once = panels == 1 ? STAGES_OF_SLAB : 1; /* stages whose loads are on their way together */
    const uint8_t *at[MOST_PANELS];
    const uint16_t *x[MOST_TILES];
    rgk_u4 raw[MOST_PANELS][16], next[MOST_PANELS][4];

    RGK_UNROLL
    for (int k = 0; k < panels; k++) {
        const int panel = k < j->n_panels ? k : 0;

        at[k] = j->panel + panel * p->matrix[j->k].panel_bytes + (int64_t)slab * rgk_slab_bytes(layout);
        RGK_UNROLL
        for (int i = 0; i < at_once; i++)
            load_stage(layout, at[k], i, true, raw[k] + i * n_loads(layout) / STAGES_OF_SLAB);
    }
    RGK_UNROLL
    for (int n = 0; n < tiles; n++) {
        x[n] = p->h + (row_of(p, j, 8 * n + g) * p->n_slabs + slab) * RGK_SLAB + 8 * t;
        RGK_UNROLL
        for (int i = 0; i < 4 * panels; i++)
            s[i / 4][n][i % 4] = 0.0f;
    }
    RGK_UNROLL
    for (int stage = 0; stage < STAGES_OF_SLAB; stage++) {
        RGK_UNROLL
        for (int k = 0; k < panels && at_once == 1 && stage + 1 < STAGES_OF_SLAB; k++)
            load_stage(layout, at[k], stage + 1, true, next[k]);
        RGK_UNROLL
        for (int i = 0; i < 2; i++) {
            const int of_slab = 2 * stage + i;
            run r[MOST_PANELS];

            RGK_UNROLL
            for (int k = 0; k < panels; k++)
                r[k] = run_of(layout, at[k], raw[k], at_once == 1 ? i : of_slab, of_slab);
            RGK_UNROLL
            for (int n = 0; n < tiles; n++) {
                const rgk_u4 b = rgk_load(x[n] + of_slab * RGK_RUN);
                float sums[2][2];

                RGK_UNROLL
                for (int m = 0; m < 4 && has_sums(layout); m++)
                    sums[m / 2][m % 2] = p->sums[(row_of(p, j, 8 * n + 2 * t + m % 2) * p->n_slabs + slab) * 16 +
                                                 2 * of_slab + m / 2];
                RGK_UNROLL
                for (int k = 0; k < panels; k++)
                    multiply_run(layout, s[k][n], &r[k], &b, sums);
            }
        }
        RGK_UNROLL
        for (int i = 0; i < 4 * panels && at_once == 1; i++)
            raw[i / 4][i % 4] = next[i / 4][i % 4];
    }
}

RGK_DEVICE void few(int layout, int panels, int tiles, const rgk_product_params *p)
{
    RGK_DYNAMIC;
    float (*part)[RGK_PANEL] = (float (*)[RGK_PANEL])(void *)rgk_dynamic; /* [slab of a round][panel][row of x] */
    const job j = job_of(p, panels, 8 * tiles);
    const int warp = RGK_THREAD / RGK_WARP, lane = RGK_THREAD % RGK_WARP, g = lane / 4, t = lane % 4;
    const int each = 8 * tiles * panels, n_totals = each * RGK_PANEL;
    float total[MOST_PANELS * MOST_TILES / 2] = { 0.0f };

    if (j.n <= 0)
        return;
    for (int first = 0; first < p->n_slabs; first += p->slabs_at_once) {
        const int end = p->n_slabs - first < p->slabs_at_once ? p->n_slabs : first + p->slabs_at_once;

        for (int slab = first + warp; slab < end; slab += WARPS) {
            float s[MOST_PANELS][MOST_TILES][4];

            slab_of(layout, panels, tiles, p, &j, slab, s);
            RGK_UNROLL
            for (int n = 0; n < tiles * panels; n++) {
                RGK_UNROLL
                for (int i = 0; i < 4; i++)
                    part[(slab - first) * each + 8 * n + 2 * t + i % 2][g + i / 2 * 8] = s[n / tiles][n % tiles][i];
            }
        }
        rgk_sync();
        RGK_UNROLL
        for (int k = 0; k < MOST_PANELS * MOST_TILES / 2; k++) {
            const int i = k * THREADS + RGK_THREAD;

            for (int slab = 0; i < n_totals && slab < end - first; slab++)
                total[k] += part[slab * each + i / RGK_PANEL][i % RGK_PANEL];
        }
        rgk_sync();
    }
    RGK_UNROLL
    for (int k = 0; k < MOST_PANELS * MOST_TILES / 2; k++) {
        const int i = k * THREADS + RGK_THREAD, row = i / RGK_PANEL;

        if (i < n_totals && row / (8 * tiles) < j.n_panels)
            put(p, &j, row % (8 * tiles), row / (8 * tiles), i % RGK_PANEL, total[k]);
    }
}

/* ---- many rows --------------------------------------------------------------------------------------------------- */

/* A warp has 2 panels and 64 rows, a block 8 panels and 128 rows, or, wide, 16 panels and 64 rows.  x comes to shared
 * memory in stages of 64 columns; a warp reads its panels, which lie in the order in which it multiplies them, by
 * itself. */
enum { STAGES = 4, STAGE_COLS = 64, TILES = 8, PANELS = 2, MANY_ROWS = 128 };

/* Where 16 bytes of a row of a stage lie: two rows side by side differ in the half of the banks that they use. */
RGK_DEVICE unsigned char *staged(unsigned char *stage, int row, int piece)
{
    return stage + row * STAGE_COLS * 2 + (piece ^ row % 2 * 4) * 16;
}

RGK_DEVICE void fetch_stage(const rgk_product_params *p, const int64_t *rows, int n_rows, unsigned char *stages,
                            int stage)
{
    unsigned char *to = stages + stage % STAGES * n_rows * STAGE_COLS * 2;

    if (stage < p->n_slabs * STAGES_OF_SLAB)
        for (int i = RGK_THREAD; i < n_rows * 8; i += THREADS)
            rgk_copy(staged(to, i / 8, i % 8), p->h + rows[i / 8] + stage * STAGE_COLS + i % 8 * 8, true);
    rgk_copy_commit();
}

/* Two runs of a warp's panels by its rows. */
RGK_DEVICE void multiply_stage(int layout, const rgk_product_params *p, const job *j, const uint8_t *const *slab,
                               int column, unsigned char *stage, const rgk_u4 raw[PANELS][4], int first_row,
                               float s[PANELS][TILES][4])
{
    const int lane = RGK_THREAD % RGK_WARP, g = lane / 4, t = lane % 4;

    RGK_UNROLL
    for (int i = 0; i < 2; i++) {
        run r[PANELS];

        RGK_UNROLL
        for (int k = 0; k < PANELS; k++)
            r[k] = run_of(layout, slab[k], raw[k], i, column % RGK_SLAB / RGK_RUN + i);
        RGK_UNROLL
        for (int n = 0; n < TILES && layout == RGK_BF16; n += 4) { /* products that wait for each other stand apart */
            rgk_u4 b[4];

            RGK_UNROLL
            for (int m = 0; m < 4; m++)
                b[m] = *(const rgk_u4 *)(const void *)staged(stage, first_row + 8 * (n + m) + g, 4 * i + t);
            RGK_UNROLL
            for (int j2 = 0; j2 < 2; j2++) {
                RGK_UNROLL
                for (int m = 0; m < 4 * PANELS; m++)
                    rgk_mma(s[m / 4][n + m % 4], r[m / 4].a[j2], b[m % 4].v + 2 * j2);
            }
        }
        RGK_UNROLL
        for (int n = 0; n < TILES && layout != RGK_BF16; n++) {
            const rgk_u4 b = *(const rgk_u4 *)(const void *)staged(stage, first_row + 8 * n + g, 4 * i + t);
            float sums[2][2];

            RGK_UNROLL
            for (int m = 0; m < 4 && has_sums(layout); m++)
                sums[m / 2][m % 2] = p->sums[row_of(p, j, first_row + 8 * n + 2 * t + m % 2) * p->n_slabs * 16 +
                                             column / 16 + 2 * i + m / 2];
            RGK_UNROLL
            for (int k = 0; k < PANELS; k++)
                multiply_run(layout, s[k][n], &r[k], &b, sums);
        }
    }
}

/* row_warps: warps that have different rows. */
RGK_DEVICE void many(int layout, int row_warps, const rgk_product_params *p)
{
    RGK_DYNAMIC;
    RGK_SHARED int64_t rows[MANY_ROWS]; /* of x: where they begin */
    const int panel_warps = WARPS / row_warps, n_rows = 8 * TILES * row_warps;
    const job j = job_of(p, PANELS * panel_warps, n_rows);
    const int warp = RGK_THREAD / RGK_WARP, lane = RGK_THREAD % RGK_WARP, g = lane / 4, t = lane % 4;
    const int first_panel = warp % panel_warps * PANELS, first_row = warp / panel_warps * 8 * TILES;
    const int n = p->n_slabs * STAGES_OF_SLAB;
    float total[PANELS][TILES][4], s[PANELS][TILES][4];
    const uint8_t *slab[PANELS];
    rgk_u4 raw[PANELS][4], next[PANELS][4];

    if (j.n <= 0)
        return;
    for (int i = RGK_THREAD; i < n_rows; i += THREADS)
        rows[i] = row_of(p, &j, i) * p->n_slabs * RGK_SLAB;
    RGK_UNROLL
    for (int k = 0; k < PANELS; k++) { /* a panel too many is the last one again, and is not written */
        const int panel = first_panel + k < j.n_panels ? first_panel + k : j.n_panels - 1;

        slab[k] = j.panel + panel * p->matrix[j.k].panel_bytes;
        load_stage(layout, slab[k], 0, row_warps == 1, raw[k]);
        RGK_UNROLL
        for (int i = 0; i < 4 * TILES; i++)
            total[k][i / 4][i % 4] = s[k][i / 4][i % 4] = 0.0f;
    }
    rgk_sync();
    for (int i = 0; i < STAGES - 1; i++)
        fetch_stage(p, rows, n_rows, rgk_dynamic, i);
    for (int stage = 0; stage < n; stage++) {
        const bool ends = stage % STAGES_OF_SLAB == STAGES_OF_SLAB - 1;

        rgk_copy_wait(2); /* STAGES - 2 */
        rgk_sync();
        fetch_stage(p, rows, n_rows, rgk_dynamic, stage + STAGES - 1);
        RGK_UNROLL
        for (int k = 0; k < PANELS && stage + 1 < n; k++)
            load_stage(layout, slab[k] + (ends ? rgk_slab_bytes(layout) : 0), (stage + 1) % STAGES_OF_SLAB,
                       row_warps == 1, next[k]);
        multiply_stage(layout, p, &j, slab, stage * STAGE_COLS,
                       rgk_dynamic + stage % STAGES * n_rows * STAGE_COLS * 2, raw, first_row, s);
        RGK_UNROLL
        for (int k = 0; k < PANELS; k++) {
            slab[k] += ends ? rgk_slab_bytes(layout) : 0;
            RGK_UNROLL
            for (int i = 0; i < 4; i++)
                raw[k][i] = next[k][i];
            RGK_UNROLL
            for (int i = 0; i < 4 * TILES && ends; i++) {
                total[k][i / 4][i % 4] += s[k][i / 4][i % 4];
                s[k][i / 4][i % 4] = 0.0f;
            }
        }
    }
    RGK_UNROLL
    for (int k = 0; k < PANELS; k++) {
        RGK_UNROLL
        for (int i = 0; i < 4 * TILES; i++)
            if (first_panel + k < j.n_panels)
                put(p, &j, first_row + i / 4 * 8 + 2 * t + i % 2, first_panel + k, g + i % 4 / 2 * 8,
                    total[k][i / 4][i % 4]);
    }
}

/* ---- the kernels ------------------------------------------------------------------------------------------------- */

#define FEW(name, layout, panels, tiles, blocks)                                                                       \
    RGK_KERNEL_OF(name, product, 256, blocks)                                                                          \
    {                                                                                                                  \
        few(layout, panels, tiles, &p);                                                                                \
    }
#define MANY(name, layout, row_warps)                                                                                  \
    RGK_KERNEL_OF(name, product, 256, 1)                                                                               \
    {                                                                                                                  \
        many(layout, row_warps, &p);                                                                                   \
    }
#define PRODUCTS(name, layout)                                                                                         \
    FEW(name##_8, layout, 1, 1, layout == RGK_BF16 ? 2 : 3)                                                            \
    FEW(name##_16, layout, 1, 2, 2)                                                                                    \
    FEW(name##_32, layout, 2, 4, 1)                                                                                    \
    FEW(name##_64, layout, 2, 8, 1)                                                                                    \
    MANY(name##_wide, layout, 1)                                                                                       \
    MANY(name##_many, layout, 2)
PRODUCTS(bf16, RGK_BF16)
PRODUCTS(i8, RGK_I8)
PRODUCTS(i4, RGK_I4)
PRODUCTS(k4, RGK_K4)
PRODUCTS(g8, RGK_G8)
PRODUCTS(g8m, RGK_G8M)
