/* scan.c -- the backward of Mamba's scan.
 *
 * A part goes forward once more, keeping the states of a run of rows and those before each run, and then from the back.
 * What the channels share (B and C) is summed over a part, and then over the parts. */
#include "ops/back/lanes.h"

enum { CELLS = 4096, LEAST_ROWS = 16 };

/* Rows whose states are kept. */
static int run_of(int n_states, int longest)
{
    const int rows = CELLS / n_states > LEAST_ROWS ? CELLS / n_states : LEAST_ROWS;

    return rg_back_min(rows, longest);
}

/* Some channels of one sequence. */
typedef struct scanning {
    const rg_back *b;
    const rg_span *span;
    int c, run;
    rg_loop_scan at;
    float *border;           /* [runs][states]: what h is before each run */
    float *before;           /* [1 + run][states]: h, and that before it */
    float *a, *skip;         /* [states], one row */
    float *x, *dt, *raw, *z; /* [run] */
    float *gate, *dy, *d[2]; /* [run]: silu(z), the gradient of what the gate gives, and scratch */
    double *da, *dd;
} scanning;

/* Rows [first, first + n) of the sequence forward, from what stands before the first state. */
static void go_over(scanning *v, int first, int n)
{
    const rg_back *b = v->b;
    const rg_backend *backend = b->lane->backend;
    const int row = v->span->first_row + first;

    rg_lanes_load(v->x, &b->in[0], row, n, v->c);
    rg_lanes_load(v->raw, &b->in[1], row, n, v->c);
    backend->host_activate(backend, RG_SOFTPLUS, v->dt, v->raw, (size_t)n * RG_LANES);
    v->at.n_rows = n;
    v->at.bc = rg_mat_row(&b->in[2], row);
    v->at.ld = b->in[2].ld;
    backend->host_loops(backend)->scan(&v->at);
}

/* The same rows from the back. */
static void go_back(scanning *v, int first, int n, float *shared)
{
    const rg_back *b = v->b;
    const rg_backend *backend = b->lane->backend;
    const int row = v->span->first_row + first;
    const size_t all = (size_t)n * RG_LANES, states = (size_t)v->at.n_states * RG_LANES;
    float *g = v->d[0], *scratch = v->d[1];

    rg_lanes_load(v->z, &b->in[3], row, n, v->c);
    rg_lanes_load(v->dy, &b->d_out[0], row, n, v->c);
    backend->host_activate(backend, RG_SILU, v->gate, v->z, all);
    for (size_t i = 0; i < all; i++)
        g[i] = v->dy[i] * v->gate[i];
    v->at.dbc = shared + (size_t)row * 2 * (size_t)v->at.n_states;
    backend->host_loops(backend)->scan_back(&v->at);
    rg_lanes_sum(v->da, v->at.da, states);
    rg_lanes_sum(v->dd, v->at.dd, RG_LANES);
    rg_lanes_add(&b->d_in[0], row, n, v->c, v->at.dx);
    rg_back_slopes(backend, RG_SOFTPLUS, v->at.ddt, v->at.ddt, v->raw, (int)all, scratch);
    rg_lanes_add(&b->d_in[1], row, n, v->c, v->at.ddt);
    for (size_t i = 0; i < all; i++)
        v->dy[i] *= v->at.y[i];
    rg_back_slopes(backend, RG_SILU, v->dy, v->dy, v->z, (int)all, scratch);
    rg_lanes_add(&b->d_in[3], row, n, v->c, v->dy);
}

static void scan_span(scanning *v, float *shared)
{
    const size_t states = (size_t)v->at.n_states * RG_LANES;
    const int n = v->span->n_rows, last = (n - 1) / v->run;
    float *before = v->before;

    memset(v->border, 0, states * sizeof *before);
    for (int i = 0; i <= last; i++) {
        const int rows = rg_back_min(v->run, n - i * v->run);

        memcpy(before, v->border + (size_t)i * states, states * sizeof *before);
        go_over(v, i * v->run, rows);
        if (i < last)
            memcpy(v->border + (size_t)(i + 1) * states, v->at.h + (size_t)(rows - 1) * states,
                   states * sizeof *before);
    }
    memset(v->at.lambda, 0, states * sizeof *before);
    for (int i = last; i >= 0; i--) {
        const int rows = rg_back_min(v->run, n - i * v->run);

        if (i < last) {
            memcpy(before, v->border + (size_t)i * states, states * sizeof *before);
            go_over(v, i * v->run, rows);
        }
        go_back(v, i * v->run, rows, shared);
    }
}

/* What a thread needs for runs of `run` rows. */
static void lay_out(scanning *v, int n_states, int run, int longest, rg_dealt *from)
{
    const size_t states = (size_t)n_states * RG_LANES, rows = (size_t)run * RG_LANES;
    float **const of_rows[] = { &v->x, &v->dt, &v->raw, &v->z, &v->gate, &v->dy, &v->d[0], &v->d[1],
                                &v->at.y, &v->at.dx, &v->at.ddt };

    v->run = run;
    v->at.n_states = n_states;
    v->border = rg_deal(from, (size_t)rg_ceil_div(longest, run) * states);
    v->before = rg_deal(from, (size_t)(run + 1) * states);
    v->at.decay = rg_deal(from, (size_t)run * states);
    v->at.lambda = rg_deal(from, states);
    v->a = rg_deal(from, states);
    v->skip = rg_deal(from, RG_LANES);
    v->at.da = rg_deal(from, states);
    v->at.dd = rg_deal(from, RG_LANES);
    v->da = rg_deal_doubles(from, states);
    v->dd = rg_deal_doubles(from, RG_LANES);
    for (size_t i = 0; i < RG_LEN(of_rows); i++)
        *of_rows[i] = rg_deal(from, rows);
}

static void scan_part(void *arg, int i, int thread)
{
    const rg_back_parts *p = arg;
    const rg_back *b = p->b;
    const int n = (int)b->op->w[0]->rows, d_inner = b->in[0].cols, c = i * RG_LANES;
    const size_t states = (size_t)n * RG_LANES;
    scanning v = { .b = b, .c = c };

    lay_out(&v, n, run_of(n, p->longest), p->longest, &(rg_dealt){ p->scratch + (size_t)thread * p->each, 0 });
    v.at.h = v.before + states;
    v.at.a = v.a, v.at.d = v.skip, v.at.x = v.x, v.at.dt = v.dt, v.at.g = v.d[0];
    for (int k = 0; k < n; k++)
        rg_lanes_get(v.a + k * RG_LANES, b->w[0] + (size_t)k * (size_t)d_inner, d_inner, c);
    rg_lanes_get(v.skip, b->w[1], d_inner, c);
    memset(v.da, 0, states * sizeof *v.da);
    memset(v.dd, 0, RG_LANES * sizeof *v.dd);
    for (int s = 0; s < b->batch->n_spans; s++) {
        v.span = rg_back_span(b, s);
        scan_span(&v, p->shared + (size_t)i * (size_t)b->in[0].rows * 2 * (size_t)n);
    }
    for (int k = 0; b->dw[0] && k < n; k++)
        rg_lanes_put(b->dw[0] + (size_t)k * (size_t)d_inner, d_inner, c, v.da + k * RG_LANES);
    if (b->dw[1])
        rg_lanes_put(b->dw[1], d_inner, c, v.dd);
}

/* dB and dC of some rows, summed over the parts. */
static void scan_fold(void *arg, int first, int n, int block, int thread)
{
    const rg_back_parts *p = arg;
    const rg_back *b = p->b;
    const int cols = b->in[2].cols, n_parts = rg_ceil_div(b->in[0].cols, RG_LANES);

    (void)block, (void)thread;
    for (int r = first; r < first + n; r++)
        for (int c = 0; c < cols; c++) {
            double sum = 0;

            for (int i = 0; i < n_parts; i++)
                sum += (double)p->shared[((size_t)i * (size_t)b->in[0].rows + (size_t)r) * (size_t)cols + (size_t)c];
            rg_mat_row(&b->d_in[2], r)[c] += (float)sum;
        }
}

void rg_back_scan(const rg_back *b)
{
    const int n = (int)b->op->w[0]->rows, longest = rg_back_longest(b);
    const size_t n_parts = (size_t)rg_ceil_div(b->in[0].cols, RG_LANES);
    rg_dealt need = { 0 };
    rg_back_parts v;

    lay_out(&(scanning){ 0 }, n, run_of(n, longest), longest, &need);
    if (!rg_back_parts_begin(&v, b, need.used))
        return;
    v.shared = rg_back_room(b->lane, n_parts * (size_t)b->in[0].rows * 2 * (size_t)n);
    if (!v.shared)
        return;
    rg_back_parts_run(&v, b->in[0].cols, scan_part);
    rg_back_each_rows(b->lane, b->in[0].rows, scan_fold, &v);
}
