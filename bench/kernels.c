/* kernels.c -- how near the panel kernels come to what the machine can do.
 *
 * For each instruction set and layout: one row over 256 MB of weights, in GB/s and as a share of the bandwidth that
 * `stream` reads at; and m rows over weights that stay in cache, in GMAC/s and as a share of the peak of its arithmetic.  A
 * shared machine changes speed from moment to moment, so a kernel and its yardstick take turns, and the best of several
 * turns of each is compared.
 *
 *     bench_kernels [--isa NAME] [--layout NAME] [--threads N] [--exact] [--rounds N] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/pool.h"
#include "ops/cpu/kernels.h"

enum { COLS = 4096, SMALL_COLS = 2048, SMALL_PANELS = 32, MAX_THREADS = 256, GROUP = 8 };

static const size_t stream_bytes = (size_t)256 << 20;

typedef struct options {
    const char *isa, *layout;
    int n_threads, rounds;
    bool exact;
} options;

typedef enum turn { STREAM, PEAK, PANELS } turn;

/* One measurement, shared out among the threads. */
typedef struct job {
    const rg_cpu *k;
    turn turn;
    rg_layout layout;
    rg_recipe recipe;
    int n_threads, cols, m;
    size_t n_panels, panel_bytes, ldx; /* ldx: blocks, bf16 or floats */
    const uint8_t *w;
    const void *x;
    float *y; /* [n_panels][m][16] */
    double peak_n;
    uint64_t sums[MAX_THREADS]; /* so that reading is not for nothing */
} job;

static const char *const recipes[RG_RECIPE_COUNT] = { "exact", "int8", "pairs", "tiles" };

static double (*peak_of(const rg_cpu *k, rg_recipe recipe))(double n)
{
    return recipe == RG_EXACT ? k->peak_f32 : recipe == RG_INT8 ? k->peak_int8 : k->peak_bf16;
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
    for (size_t p = from; p < to; p += GROUP) {
        rg_product product = { .panel = j->w + p * j->panel_bytes, .panel_bytes = j->panel_bytes, .cols = j->cols,
                               .n_panels = (int)(to - p < GROUP ? to - p : GROUP), .m = j->m, .ldx = j->ldx,
                               .y = j->y + p * (size_t)j->m * 16 };
        product.ldy = 16 * (size_t)product.n_panels;
        if (j->recipe == RG_EXACT)
            product.x = j->x;
        else if (j->recipe == RG_INT8)
            product.q = j->x;
        else
            product.h = j->x;
        j->k->product[j->recipe][j->layout](&product);
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

/* Shortest of several turns, each beside one of its yardstick. */
static void best(rg_pool *pool, const job *j, turn yardstick, int rounds, double s[2])
{
    s[0] = s[1] = 1e9;
    for (int i = 0; i < rounds; i++) {
        double a = seconds(pool, *j, yardstick), b = seconds(pool, *j, PANELS);
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
    best(pool, &j, STREAM, o->rounds, s);
    bytes = (double)(j.n_panels * j.panel_bytes);
    printf("  m 1: %6.1f GB/s, %.2f of %.1f", bytes / s[1] * 1e-9, s[0] / s[1], bytes / s[0] * 1e-9);
}

static void bench_prefill(rg_pool *pool, const options *o, job j)
{
    static const int rows[] = { 8, 64, 512 };
    double s[2];

    j.cols = SMALL_COLS;
    j.panel_bytes = panel_bytes(j.layout, SMALL_COLS);
    j.n_panels = SMALL_PANELS;
    for (size_t i = 0; i < RG_LEN(rows); i++) {
        double macs;
        j.m = rows[i];
        macs = (double)j.n_panels * 16 * j.cols * j.m;
        j.peak_n = macs;
        best(pool, &j, PEAK, o->rounds * 4, s);
        printf("   m %d: %5.0f, %.2f", j.m, macs / s[1] * 1e-9, s[0] / s[1]);
        if (i + 1 == RG_LEN(rows))
            printf(" of %.0f GMAC/s", macs / s[0] * 1e-9);
    }
}

static void bench_isa(rg_pool *pool, const options *o, const rg_cpu *k, uint8_t *w)
{
    const size_t max_m = 512, n_x = max_m * (COLS + 32);
    float *x = rg_alloc(n_x * sizeof *x), *y = rg_alloc((stream_bytes / 32 + max_m * 16 * SMALL_PANELS) * sizeof *y);
    rg_rounded *r = rg_alloc(n_x / 32 * sizeof *r);

    for (rg_layout l = RG_LAYOUT_F32; l < RG_LAYOUT_COUNT && x && y && r; l++) {
        job j = { .k = k, .layout = l, .n_threads = o->n_threads, .w = w, .y = y };

        if (o->layout && strcmp(o->layout, rg_layout_name(l)))
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
            j.ldx = SMALL_COLS + 32;
        }
        printf("%-11s %-5s %s", k->isa, rg_layout_name(l), recipes[j.recipe]);
        bench_decode(pool, o, j);
        if (peak_of(k, j.recipe))
            bench_prefill(pool, o, j);
        printf("\n");
        fflush(stdout);
    }
    rg_free(x);
    rg_free(y);
    rg_free(r);
}

int main(int argc, char **argv)
{
    options o = { .n_threads = 2, .rounds = 5 };
    rg_error err = { 0 };
    rg_pool *pool;
    uint8_t *w;

    for (int i = 1; i < argc; i++) {
        const bool more = i + 1 < argc;
        if (!strcmp(argv[i], "--exact"))
            o.exact = true;
        else if (!strcmp(argv[i], "--isa") && more)
            o.isa = argv[++i];
        else if (!strcmp(argv[i], "--layout") && more)
            o.layout = argv[++i];
        else if (!strcmp(argv[i], "--threads") && more)
            o.n_threads = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--rounds") && more)
            o.rounds = atoi(argv[++i]);
        else
            return fprintf(stderr, "usage: bench_kernels [--isa NAME] [--layout NAME] [--threads N] [--rounds N] [--exact]\n"), 2;
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
            bench_isa(pool, &o, rg_cpu_nth(i), w);
    rg_region_free(w, stream_bytes);
    rg_pool_free(pool);
    return 0;
}
