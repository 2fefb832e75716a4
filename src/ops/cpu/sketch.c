/* sketch.c -- making a coarse copy of the head, and the proof of its bounds.
 *
 * Let w be a row of the head as the exact recipe decodes it, c (about) the mean of all rows, s what the sketch has of
 * w - c, and e = w - c - s.  Let x be a row, x8 the same rounded to int8 in blocks of 32 (kernels.h), xr what the
 * product's recipe rounds it to (x8, bf16, or x itself).  u = 2^-24; |.| is the Euclidean length;
 * b runs over blocks of 32.
 *
 * The product gives y.  It adds at most `cols` products of f32, none of which cancels within (the layouts that
 * can_sketch allows have one term for each block, an exact integer or one weight times one value), so
 *     |y - w . xr| <= 2 cols u |w| |xr| + (what bf16's arithmetic takes for zero: cols 2^-126 |w| and |x|)
 * Further
 *     |w . xr - w . x8| <= |w| |xr - x8|, and of int8 it is 0
 *     w . x8 = c . x8 + s . x8 + e . x8
 *     |e . x8| <= sum over b of |e_b| |x8_b|                                    (Cauchy and Schwarz, block by block)
 * The kernel's f32 sums of s . x8 and of the bound round at most cols / 16 times; |s| <= |w| + |c| + |e|, and a row
 * whose |e| is not below |w| + |c| is given an infinite bound.  All of this is below
 *     slack = longest * (|xr - x8| + cols 2^-20 (|x| + |x8|)) + 2^-100,  longest = the largest 2 (|w| + |c|),
 * and the bound's own rounding below a factor of 1 + 2^-10.  So y lies within [mid - off, mid + off].  A value that is
 * NaN or infinite makes off NaN or infinite, and such an id is never left out. */
#include "ops/cpu/sketch.h"

#include <math.h>
#include <string.h>

enum { RUN = 32, MOST_COLS = 1 << 17, SAMPLED = 31 /* of so many rows one counts for the mean */ };

static size_t panel_bytes_of(int64_t cols)
{
    const int n_blocks = (int)(cols / RUN);

    return rg_sketch_codes_at(n_blocks) + (size_t)n_blocks * sizeof(rg_sketch_codes);
}

static bool can_sketch(const rg_packed *w)
{
    static const rg_layout layouts[] = { RG_LAYOUT_Q8,  RG_LAYOUT_Z8,   RG_LAYOUT_Z8W,
                                         RG_LAYOUT_F16, RG_LAYOUT_BF16, RG_LAYOUT_F32 };
    bool known = false;

    for (size_t i = 0; i < RG_LEN(layouts); i++)
        known = known || w->layout == layouts[i];
    return known && w->data && !w->order_bytes && !w->column_bytes && w->placed.n_mats == 1 &&
           w->placed.cols % RUN == 0 && w->placed.cols <= MOST_COLS && w->placed.rows < INT32_MAX / 2;
}

bool rg_sketch_pays(const rg_packed *w, size_t all_bytes)
{
    const size_t panels = (size_t)rg_ceil_div(w->placed.rows, RG_PANEL);

    return can_sketch(w) && w->placed.bytes / 8 >= panels * panel_bytes_of(w->placed.cols) / 8 &&
           w->placed.bytes - panels * panel_bytes_of(w->placed.cols) >= all_bytes / 8;
}

/* ---- making one -------------------------------------------------------------------------------------------------- */

typedef struct maker {
    const rg_packed *w;
    rg_sketch *s;
    int n_threads;
    double *sums;    /* [n_threads][cols] of some rows */
    double *longest; /* [n_threads] */
    float *room;     /* [n_threads][2 cols] */
} maker;

static double length_of(const float *x, int n)
{
    double sum[4] = { 0 }; /* several, since each waits for the one before; n is a multiple of 4 */

    for (int k = 0; k < n; k += 4)
        for (int i = 0; i < 4; i++)
            sum[i] += (double)x[k + i] * (double)x[k + i];
    return sqrt((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

/* The code of v among 1 .. 255 steps of unit that is not below it; 0 only of 0. */
static uint8_t code_up(double v, float unit)
{
    double code = unit > 0 ? ceil(v / (double)unit) : 0;

    while (code < 255 && code * (double)unit < v)
        code++;
    return (uint8_t)(code < 255 ? code : 255);
}

/* Codes of the 32 values at v under a scale; the length of what they miss. */
static double put_codes(const float *v, float d, rg_sketch_codes *codes, int lane)
{
    const float magic = 0x1.8p23f, inverse = d > 0 ? 1 / d : 0; /* v + magic - magic rounds what is less than 2^22 */
    double sum[4] = { 0 };
    int32_t code[RUN];

    for (int k = 0; k < RUN; k += 4)
        for (int i = 0; i < 4; i++) {
            const float at = v[k + i] * inverse, above = at > -8 ? at : -8 /* or NaN */, in = above < 7 ? above : 7;
            const float whole = (in + magic) - magic;
            const double miss = (double)v[k + i] - (double)whole * (double)d;

            code[k + i] = (int32_t)whole + 8;
            sum[i] += miss * miss;
        }
    for (int k = 0; k < 16; k++)
        codes->q[k / 4][lane][k % 4] = (uint8_t)(code[k] | code[k + 16] << 4);
    return sqrt((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

/* A scale with which the 16 codes reach the value of largest magnitude, whichever its sign: that one gets code -8, or
 * where both signs reach far, 7. */
static float scale_for(const float *v)
{
    float most[4] = { 0 }, least[4] = { 0 };

    for (int k = 0; k < RUN; k += 4)
        for (int i = 0; i < 4; i++) {
            most[i] = v[k + i] > most[i] ? v[k + i] : most[i];
            least[i] = v[k + i] < least[i] ? v[k + i] : least[i];
        }
    for (int i = 1; i < 4; i++) {
        most[0] = most[i] > most[0] ? most[i] : most[0];
        least[0] = least[i] < least[0] ? least[i] : least[0];
    }
    return most[0] / 7.5f > -least[0] / 8.5f ? most[0] / 7.5f : -least[0] / 8.5f;
}

/* Row `lane` of a panel; v [cols]: the row less the center.  missed [n_blocks] is scratch. */
static void sketch_row(const rg_sketch *s, uint8_t *panel, int lane, const float *v, float *missed)
{
    rg_sketch_head *head = (rg_sketch_head *)(void *)panel;
    rg_sketch_scales *scales = (rg_sketch_scales *)(uintptr_t)rg_sketch_scales_of(panel);
    rg_sketch_codes *codes = (rg_sketch_codes *)(uintptr_t)rg_sketch_codes_of(panel, s->n_blocks);
    double worst = 0, all = 0;
    float most = 0;

    for (int b = 0; b < s->n_blocks; b++)
        most = fmaxf(most, missed[b] = scale_for(v + RUN * b));
    head->d[lane] = most / 255;
    for (int b = 0; b < s->n_blocks; b++) {
        scales[b].d[lane] = code_up((double)missed[b], head->d[lane]);
        const double miss = put_codes(v + RUN * b, (float)scales[b].d[lane] * head->d[lane], &codes[b], lane);

        missed[b] = (float)(miss * (1 + 1e-6));
        worst = miss > worst ? miss : worst;
        all += miss * miss;
    }
    head->e[lane] = (float)(worst / 255 * (1 + 1e-5));
    if (!(sqrt(all) <= length_of(v, s->cols)) || !(most < 1e18f)) /* or NaN */
        head->e[lane] = INFINITY;
    for (int b = 0; b < s->n_blocks; b++)
        scales[b].e[lane] = head->e[lane] < INFINITY ? code_up((double)missed[b], head->e[lane]) : 255;
}

static int64_t first_row_of(const maker *m, int thread)
{
    return (int64_t)m->s->n_panels * thread / m->n_threads * RG_PANEL;
}

static int64_t end_row_of(const maker *m, int thread)
{
    const int64_t end = first_row_of(m, thread + 1);

    return end < m->w->placed.rows ? end : m->w->placed.rows;
}

static void add_part(void *arg, int thread)
{
    const maker *m = arg;
    double *sums = m->sums + (size_t)thread * (size_t)m->s->cols;
    float *v = m->room + 2 * (size_t)thread * (size_t)m->s->cols;

    for (int64_t row = first_row_of(m, thread); row < end_row_of(m, thread); row += SAMPLED) {
        rg_unpack_row(m->w, 0, row, v);
        for (int k = 0; k < m->s->cols; k++)
            sums[k] += (double)v[k];
    }
}

static void make_part(void *arg, int thread)
{
    const maker *m = arg;
    const rg_sketch *s = m->s;
    float *v = m->room + 2 * (size_t)thread * (size_t)s->cols;

    for (int64_t row = first_row_of(m, thread); row < end_row_of(m, thread); row++) {
        rg_unpack_row(m->w, 0, row, v);
        m->longest[thread] = fmax(m->longest[thread], length_of(v, s->cols));
        for (int k = 0; k < s->cols; k++)
            v[k] -= s->center[k];
        sketch_row(s, s->data + (size_t)(row / RG_PANEL) * s->panel_bytes, (int)(row % RG_PANEL), v, v + s->cols);
    }
}

/* Goes over the matrix twice: for the mean of its rows (some rows are enough), then for the rows. */
static void make(const maker *m, rg_pool *pool)
{
    rg_sketch *s = m->s;
    const double n = (double)(m->w->placed.rows / SAMPLED + 1);

    rg_pool_run(pool, m->n_threads, add_part, (void *)(uintptr_t)m);
    for (int k = 0; k < s->cols; k++) {
        double sum = 0;

        for (int t = 0; t < m->n_threads; t++)
            sum += m->sums[(size_t)t * (size_t)s->cols + (size_t)k];
        s->center[k] = fabs(sum / n) < 1e18 ? (float)(sum / n) : 0; /* not so where there is NaN */
    }
    rg_pool_run(pool, m->n_threads, make_part, (void *)(uintptr_t)m);
    for (int t = 0; t < m->n_threads; t++)
        s->longest = fmax(s->longest, m->longest[t]);
    s->longest = 2 * (s->longest + length_of(s->center, s->cols));
}

rg_sketch *rg_sketch_new(const rg_packed *w, int n_threads)
{
    const size_t cols = (size_t)w->placed.cols, n = (size_t)n_threads;
    rg_sketch *s = rg_zalloc(sizeof *s);
    double *sums = rg_array(n * cols, sizeof *sums); /* fits: threads, and columns of a matrix in memory */
    maker m = { .w = w,
                .s = s,
                .n_threads = n_threads,
                .sums = sums,
                .longest = rg_array(n, sizeof *m.longest),
                .room = rg_array(2 * n * cols, sizeof *m.room) }; /* fits: likewise */
    rg_pool *pool = rg_pool_new(n_threads, NULL);
    bool ok = s && sums && m.longest && m.room && pool;

    if (ok) {
        *s = (rg_sketch){ .panel_bytes = panel_bytes_of(w->placed.cols),
                          .cols = (int)cols,
                          .n_blocks = (int)cols / RUN,
                          .n_panels = rg_ceil_div(w->placed.rows, RG_PANEL) };
        s->bytes = (size_t)s->n_panels * s->panel_bytes;
        s->center = rg_array(cols, sizeof *s->center);
        s->data = rg_region_new(s->bytes);
        ok = s->center && s->data;
    }
    if (ok) {
        memset(sums, 0, n * cols * sizeof *sums);
        memset(m.longest, 0, n * sizeof *m.longest);
        make(&m, pool);
    }
    rg_free(sums);
    rg_free(m.longest);
    rg_free(m.room);
    rg_pool_free(pool);
    if (ok)
        return s;
    rg_sketch_free(s);
    return NULL;
}

void rg_sketch_free(rg_sketch *s)
{
    if (!s)
        return;
    if (s->data)
        rg_region_free(s->data, s->bytes);
    rg_free(s->center);
    rg_free(s);
}

/* ---- reading it -------------------------------------------------------------------------------------------------- */

bool rg_sketch_read_row(const rg_sketch *s, rg_recipe recipe, const float *x, rg_sketch_row *row)
{
    double x_all = 0, q_all = 0, apart = 0, shift = 0;

    for (int b = 0; b < s->n_blocks; b++) {
        const rg_xblock *q = &row->q[b];
        double sum = 0;

        for (int k = 0; k < RUN; k++) {
            const double of_x = (double)x[RUN * b + k], of_q = (double)q->q[k] * (double)q->d;

            sum += of_q * of_q;
            x_all += of_x * of_x;
            apart += (of_x - of_q) * (of_x - of_q);
            shift += of_q * (double)s->center[RUN * b + k];
        }
        row->norm[b] = (float)(sqrt(sum) * (1 + 1e-6));
        q_all += sum;
    }
    const double long_x = sqrt(x_all), long_q = sqrt(q_all);
    const double rounded = recipe == RG_INT8 ? 0 : sqrt(apart) + (recipe == RG_EXACT ? 0 : 0x1p-8 * long_x);
    row->shift = shift;
    row->slack = s->longest * (rounded + s->cols * 0x1p-20 * (long_x + long_q)) + 0x1p-100;
    return row->slack < 1e15; /* false for NaN */
}
