/* kernels.c -- how near the panel kernels come to what the machine can do.
 *
 * For each instruction set and layout: one row over 256 MB of weights, in GB/s and as a share of the bandwidth that
 * `stream` reads at; the same over 256 KB a thread, which stay in L2, so that what bounds it is its instructions; and m
 * rows over weights that stay in cache, in GMAC/s and as a share of the peak of its arithmetic.  A shared machine changes
 * speed from moment to moment, so a kernel and its yardstick take turns, and the best of several turns of each is
 * compared.
 *
 * With --outliers, of the integer layouts only: LLM.int8() with outliers in 1 % of the columns beside the int8 recipe,
 * matrices of 2,048 by 2,048 from memory, rounding included, as times of the one over times of the other.
 *
 * With --decode, one row alone; with --rows, these numbers of rows instead of 8, 64 and 512; with --far, over weights
 * from memory, as in a large model, not from cache.
 *
 * With --zeros N, of the wide layouts only: one row of which N % are 0, matrices of 2,048 by 2,048 from memory, each thread
 * its share of their rows: GB/s of the columns that are read, and as a share of what `stream` reads at.
 *
 *     bench_kernels [--isa NAME] [--layout NAME] [--threads N] [--exact | --outliers | --zeros N]
 *                   [--rounds N] [--decode] [--rows N,N,...] [--far] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/pool.h"
#include "ops/cpu/reader.h"

enum { COLS = 4096, SMALL_COLS = 2048, SMALL_PANELS = 32, MAX_THREADS = 256, GROUP = 8, MAX_SIZES = 16, MOST_ROWS = 512 };

static const size_t stream_bytes = (size_t)256 << 20, near_bytes = (size_t)256 << 10; /* of a thread */

typedef struct options {
    const char *isa, *layout;
    int n_threads, rounds, zeros; /* zeros: in percent; -1: not asked for */
    bool exact, outliers, decode, far; /* decode: one row alone; far: more rows over weights from memory */
    int n_rows, rows[MAX_SIZES];
} options;

typedef enum turn { STREAM, PEAK, PANELS, SPARSE } turn;

/* One measurement, shared out among the threads. */
typedef struct job {
    const rg_cpu *k;
    turn turn;
    rg_layout layout;
    rg_recipe recipe;
    int n_threads, passes, cols, m; /* passes: over the panels, one after the other */
    size_t n_panels, panel_bytes, ldx; /* ldx: floats, or blocks of what is rounded */
    const uint8_t *w;
    const void *x;
    float *y; /* of one row [n_panels][16], of m rows [thread][SMALL_PANELS][m][16] */
    double peak_n;
    uint64_t sums[MAX_THREADS]; /* so that reading is not for nothing */
} job;

static const char *const recipes[RG_RECIPE_COUNT] = { "exact", "int8", "pairs", "tiles", "rounded" };

static double (*peak_of(const rg_cpu *k, rg_recipe recipe))(double n)
{
    return recipe == RG_EXACT ? k->peak_f32 : recipe == RG_INT8 ? k->peak_int8 : k->peak_bf16;
}

/* For folded panels. */
static uint8_t *room(void)
{
    static _Thread_local _Alignas(64) uint8_t bytes[RG_UNFOLDED * (sizeof(rg_table) + COLS / 256 * sizeof(rg_step_tk4h))];

    return bytes;
}

/* n panels, the p-th and on, by the rows. */
static void multiply(const job *j, size_t p, int n, float *y)
{
    const rg_packed w = { .layout = j->layout, .cols = j->cols, .panel_bytes = j->panel_bytes };
    const rg_operand in = { .x = j->x, .r = j->x, .ldx = j->ldx, .ldr = j->ldx };

    rg_cpu_product(j->k, j->recipe, &w, &in, 0,
                   (rg_product){ .panel = j->w + p * j->panel_bytes, .n_panels = n, .m = j->m,
                                 .y = y, .ldy = 16 * (size_t)n, .next = j->w + (p + (size_t)n) * j->panel_bytes, .room = room() });
}

/* A thread's share of the rows of all matrices of SMALL_COLS by SMALL_COLS, or half of their columns, by one row. */
static void skip_columns(const job *j, int thread)
{
    enum { N_PANELS = SMALL_COLS / RG_PANEL };
    const size_t column_bytes = j->panel_bytes * N_PANELS, mat_bytes = column_bytes * SMALL_COLS;
    const int n = j->n_threads % 2 ? j->n_threads : j->n_threads / 2, each = (N_PANELS + n - 1) / n;

    for (size_t at = 0; at + mat_bytes <= stream_bytes; at += mat_bytes)
        for (int i = thread; i < 2 * n; i += j->n_threads) {
            const int from = i / 2 * each, left = N_PANELS - from;

            j->k->sparse[j->layout](&(rg_product){
                .panel = j->w + at + (size_t)from * j->panel_bytes, .panel_bytes = j->panel_bytes,
                .column_bytes = column_bytes, .n_panels = left < each ? left : each, .cols = SMALL_COLS, .m = 1,
                .half = i % 2, .x = j->x, .y = j->y + 2 * at / column_bytes + i % 2 * SMALL_COLS + from * RG_PANEL });
        }
}

static void work(void *arg, int thread)
{
    job *j = arg;
    const size_t from = j->n_panels * (size_t)thread / (size_t)j->n_threads;
    const size_t to = j->n_panels * (size_t)(thread + 1) / (size_t)j->n_threads;

    if (j->turn == PEAK) {
        peak_of(j->k, j->recipe)(j->peak_n / j->n_threads);
        return;
    }
    if (j->turn == STREAM) {
        j->sums[thread] = j->k->stream(j->w + from * j->panel_bytes, (to - from) * j->panel_bytes);
        return;
    }
    if (j->turn == SPARSE) {
        skip_columns(j, thread);
        return;
    }
    for (int pass = 0; pass < j->passes; pass++)
        for (size_t p = from; p < to; p += GROUP) { /* a thread's sums of many rows take the place of earlier ones */
            const size_t at = j->m > 1 ? (p - from) % SMALL_PANELS + (size_t)thread * SMALL_PANELS : p;

            multiply(j, p, (int)(to - p < GROUP ? to - p : GROUP), j->y + at * (size_t)j->m * 16);
        }
}

static double seconds(rg_pool *pool, job j, turn t)
{
    uint64_t start;

    j.turn = t;
    start = rg_now_ns();
    rg_pool_run(pool, j.n_threads, work, &j);
    return rg_seconds(start, rg_now_ns());
}

/* Shortest of several turns of t, each beside one of its yardstick. */
static void best(rg_pool *pool, const job *j, turn yardstick, turn t, int rounds, double s[2])
{
    s[0] = s[1] = 1e9;
    for (int i = 0; i < rounds; i++) {
        double a = seconds(pool, *j, yardstick), b = seconds(pool, *j, t);
        s[0] = a < s[0] ? a : s[0];
        s[1] = b < s[1] ? b : s[1];
    }
}

/* Bytes that read as an ordinary number in every float type, so that nothing becomes infinite, NaN or subnormal. */
static void fill(uint8_t *w, size_t n)
{
    for (size_t i = 0; i < n; i++)
        w[i] = (uint8_t)(0x2c | (i * 37 & 3));
}

static void fill_x(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(int)(i * 2654435761u % 255) / 127.0f - 1.0f;
}

static size_t panel_bytes(rg_layout layout, int cols)
{
    return rg_layout_head_bytes(layout) + (size_t)(cols / rg_layout_step(layout)) * rg_layout_step_bytes(layout);
}

static void bench_decode(rg_pool *pool, const options *o, job j)
{
    double s[2], bytes;

    j.cols = COLS;
    j.m = 1;
    j.panel_bytes = panel_bytes(j.layout, COLS);
    j.n_panels = stream_bytes / j.panel_bytes;
    best(pool, &j, STREAM, PANELS, o->rounds, s);
    bytes = (double)(j.n_panels * j.panel_bytes);
    printf("  m 1: %6.1f GB/s, %.2f of %.1f", bytes / s[1] * 1e-9, s[0] / s[1], bytes / s[0] * 1e-9);
    j.n_panels = (size_t)j.n_threads * (near_bytes / j.panel_bytes);
    j.passes = 64;
    best(pool, &j, STREAM, PANELS, o->rounds, s);
    bytes = (double)j.passes * (double)(j.n_panels * j.panel_bytes);
    printf(", near %.1f", bytes / s[1] * 1e-9);
}

static void bench_prefill(rg_pool *pool, const options *o, job j)
{
    double s[2];

    j.cols = SMALL_COLS;
    j.panel_bytes = panel_bytes(j.layout, SMALL_COLS);
    j.n_panels = o->far ? stream_bytes / j.panel_bytes : SMALL_PANELS;
    for (int i = 0; i < o->n_rows; i++) {
        double macs;
        j.m = o->rows[i];
        macs = (double)j.n_panels * 16 * j.cols * j.m;
        j.peak_n = macs;
        best(pool, &j, PEAK, PANELS, o->far ? o->rounds : o->rounds * 4, s);
        printf("   m %d: %5.0f, %.2f", j.m, macs / s[1] * 1e-9, s[0] / s[1]);
        if (i + 1 == o->n_rows)
            printf(" of %.0f GMAC/s", macs / s[0] * 1e-9);
    }
}

static void bench_isa(rg_pool *pool, const options *o, const rg_cpu *k, uint8_t *w)
{
    const size_t max_m = MOST_ROWS, n_x = max_m * (COLS + 32);
    const size_t n_y = stream_bytes / 32 + (size_t)o->n_threads * SMALL_PANELS * max_m * 16;
    float *x = rg_alloc(n_x * sizeof *x), *y = rg_alloc(n_y * sizeof *y);
    rg_rounded *r = rg_alloc(n_x / 32 * sizeof *r);

    for (rg_layout l = RG_LAYOUT_F32; l < RG_LAYOUT_COUNT && x && y && r; l++) {
        job j = { .k = k, .layout = l, .n_threads = o->n_threads, .passes = 1, .w = w, .y = y };

        if ((o->layout && strcmp(o->layout, rg_layout_name(l))) || k->sparse[l]) /* wide ones: with --zeros */
            continue;
        fill_x(x, n_x);
        j.recipe = o->exact ? RG_EXACT : k->fast[l];
        j.x = j.recipe == RG_EXACT ? (const void *)x : (const void *)r;
        j.ldx = SMALL_COLS + 16; /* odd in cache lines, rounded or not: rows spread over the sets */
        if (j.recipe == RG_INT8) {
            k->quantize(x, (int)n_x, &r->int8);
            j.ldx = SMALL_COLS / 32 + 1;
        } else if (j.recipe != RG_EXACT) {
            k->store(r->bf16, NULL, RG_BF16, 1, x, (int)n_x);
            j.ldx = SMALL_COLS / 32 + 1;
        }
        printf("%-11s %-5s %s", k->isa, rg_layout_name(l), recipes[j.recipe]);
        bench_decode(pool, o, j);
        if (peak_of(k, j.recipe) && !o->decode)
            bench_prefill(pool, o, j);
        printf("\n");
        fflush(stdout);
    }
    rg_free(x);
    rg_free(y);
    rg_free(r);
}

/* ---- columns that are not 0 -------------------------------------------------------------------------------------- */

static void bench_isa_zeros(rg_pool *pool, const options *o, const rg_cpu *k, const uint8_t *w)
{
    float *x = rg_alloc(SMALL_COLS * sizeof *x), *y = rg_alloc(2 * stream_bytes / SMALL_COLS * sizeof *y);
    double s[2], n = 0;

    for (int i = 0; x && i < SMALL_COLS; i++) {
        x[i] = (int)((unsigned)i * 2654435761u >> 8) % 100 < o->zeros ? 0.0f : 1.0f;
        n += x[i];
    }
    for (rg_layout l = RG_LAYOUT_F32; l < RG_LAYOUT_COUNT && x && y; l++) {
        job j = { .k = k, .layout = l, .n_threads = o->n_threads, .w = w, .x = x, .y = y, .panel_bytes = panel_bytes(l, 1) };
        double bytes = (double)stream_bytes;

        if ((o->layout && strcmp(o->layout, rg_layout_name(l))) || !k->sparse[l])
            continue;
        j.n_panels = stream_bytes / j.panel_bytes;
        best(pool, &j, STREAM, SPARSE, o->rounds, s);
        printf("%-11s %-5s %d %% of zeros: %.1f GB/s, %.2f of %.1f\n", k->isa, rg_layout_name(l), o->zeros,
               bytes * n / SMALL_COLS / s[1] * 1e-9, s[0] / s[1] * n / SMALL_COLS, bytes / s[0] * 1e-9);
        fflush(stdout);
    }
    rg_free(x);
    rg_free(y);
}

/* ---- LLM.int8() beside int8 -------------------------------------------------------------------------------------- */

enum { WITH_OUTLIERS = SMALL_COLS / 100 };

/* The product of j with rows x [m][SMALL_COLS], rounded first. */
static void one_thread(const job *j, rg_recipe recipe, const float *x, rg_rounded *r)
{
    const rg_packed w = { .layout = j->layout, .cols = j->cols, .panel_bytes = j->panel_bytes };
    const size_t ldr = rg_round_stride(SMALL_COLS);
    const rg_operand in = { .x = x, .r = r, .ldx = SMALL_COLS, .ldr = ldr, .n_blocks = SMALL_COLS / 32 };

    for (int i = 0; i < j->m; i++)
        rg_cpu_round_row(j->k, recipe, x + (size_t)i * SMALL_COLS, SMALL_COLS, r + (size_t)i * ldr);
    for (size_t p = 0; p < j->n_panels; p += GROUP)
        rg_cpu_product(j->k, recipe, &w, &in, 0,
                       (rg_product){ .panel = j->w + p * j->panel_bytes, .n_panels = GROUP, .m = j->m,
                                     .y = j->y + p * (size_t)j->m * 16, .ldy = 16 * GROUP, .room = room() });
}

static void bench_outliers(const options *o, job j, float *x, rg_rounded *r)
{
    static const int rows[] = { 1, 8, 64, 512 };
    const uint8_t *const w = j.w, *const end = w + stream_bytes;
    size_t bytes;

    printf("%-11s %-5s LLM.int8() / int8 in time:", j.k->isa, rg_layout_name(j.layout));
    j.cols = SMALL_COLS;
    j.panel_bytes = panel_bytes(j.layout, SMALL_COLS);
    j.n_panels = SMALL_COLS / RG_PANEL;
    bytes = j.n_panels * j.panel_bytes;
    for (size_t i = 0; i < RG_LEN(rows); i++) {
        const int repeat = rows[i] < 64 ? 64 / rows[i] : 1;
        double s[2] = { 1e9, 1e9 };

        j.m = rows[i];
        for (int round = 0; round < 2 * o->rounds; round++) {
            const uint64_t start = rg_now_ns();
            for (int n = 0; n < repeat; n++, j.w += bytes, j.w = j.w + bytes > end ? w : j.w)
                one_thread(&j, round % 2 ? RG_LLM_INT8 : RG_INT8, x, r);
            const double t = rg_seconds(start, rg_now_ns()) / repeat;
            s[round % 2] = t < s[round % 2] ? t : s[round % 2];
        }
        printf("   m %d: %.1f / %.1f us, %.2f", j.m, s[1] * 1e6, s[0] * 1e6, s[1] / s[0]);
    }
    printf("\n");
    fflush(stdout);
}

/* Rows whose values stay below the threshold but in WITH_OUTLIERS columns, the same of all rows. */
static void bench_isa_outliers(const options *o, const rg_cpu *k, const uint8_t *w)
{
    const size_t n = 512 * (size_t)SMALL_COLS;
    float *x = rg_alloc(n * sizeof *x), *y = rg_alloc(n * sizeof *y);
    rg_rounded *r = rg_alloc(512 * rg_round_stride(SMALL_COLS) * sizeof *r);

    for (rg_layout l = RG_LAYOUT_F32; l < RG_LAYOUT_COUNT && x && y && r; l++) {
        if ((o->layout && strcmp(o->layout, rg_layout_name(l))) || k->fast[l] != RG_INT8)
            continue;
        fill_x(x, n);
        for (size_t row = 0; row < 512; row++)
            for (int i = 0; i < WITH_OUTLIERS; i++)
                x[row * SMALL_COLS + (size_t)(i * 997 + 13) % SMALL_COLS] = 20.0f + (float)(row % 7);
        bench_outliers(o, (job){ .k = k, .layout = l, .w = w, .y = y }, x, r);
    }
    rg_free(x);
    rg_free(y);
    rg_free(r);
}

/* "8,64" to o->rows; false if it is not such a list. */
static bool read_rows(options *o, const char *list)
{
    char *end = (char *)(uintptr_t)list;

    for (o->n_rows = 0; o->n_rows < MAX_SIZES; list = end + 1) {
        const long n = strtol(list, &end, 10);

        if (n < 1 || n > MOST_ROWS || (*end && *end != ','))
            return false;
        o->rows[o->n_rows++] = (int)n;
        if (!*end)
            return true;
    }
    return false;
}

int main(int argc, char **argv)
{
    options o = { .n_threads = 2, .rounds = 5, .zeros = -1, .n_rows = 3, .rows = { 8, 64, 512 } };
    rg_error err = { 0 };
    rg_pool *pool;
    uint8_t *w;

    for (int i = 1; i < argc; i++) {
        const bool more = i + 1 < argc;
        if (!strcmp(argv[i], "--exact"))
            o.exact = true;
        else if (!strcmp(argv[i], "--outliers"))
            o.outliers = true;
        else if (!strcmp(argv[i], "--decode"))
            o.decode = true;
        else if (!strcmp(argv[i], "--far"))
            o.far = true;
        else if (!strcmp(argv[i], "--isa") && more)
            o.isa = argv[++i];
        else if (!strcmp(argv[i], "--layout") && more)
            o.layout = argv[++i];
        else if (!strcmp(argv[i], "--threads") && more)
            o.n_threads = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--rounds") && more)
            o.rounds = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--zeros") && more)
            o.zeros = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--rows") && more && read_rows(&o, argv[i + 1]))
            i++;
        else
            return fprintf(stderr, "usage: bench_kernels [--isa NAME] [--layout NAME] [--threads N] [--rounds N] "
                                   "[--exact | --outliers | --zeros N] [--decode] [--rows N,N,...] [--far]\n"), 2;
    }
    if (o.n_threads < 1 || o.n_threads > MAX_THREADS)
        return fprintf(stderr, "--threads: 1 to %d\n", MAX_THREADS), 2;
    pool = rg_pool_new(o.n_threads, &err);
    w = rg_region_new(stream_bytes);
    if (!pool || !w)
        return fprintf(stderr, "%s\n", pool ? "no memory" : err.text), 1;
    fill(w, stream_bytes);
    for (int i = 0; rg_cpu_nth(i); i++)
        if (o.isa ? !strcmp(o.isa, rg_cpu_nth(i)->isa) : i > 0)
            o.zeros >= 0 ? bench_isa_zeros(pool, &o, rg_cpu_nth(i), w)
            : o.outliers ? bench_isa_outliers(&o, rg_cpu_nth(i), w)
                         : bench_isa(pool, &o, rg_cpu_nth(i), w);
    rg_region_free(w, stream_bytes);
    rg_pool_free(pool);
    return 0;
}
