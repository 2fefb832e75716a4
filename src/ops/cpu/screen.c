/* screen.c -- computes the logits of a head only for ids that can be drawn: a sketch tells for most ids that they
 * cannot.
 *
 * A logit lies within [mid - off, mid + off] (sketch.c).  First all panels of 16 ids get mid + off, and each panel its
 * largest mid.  Then the k panels with the largest mid are computed, which gives a threshold: at least k logits reach
 * it.  At last a panel is computed if any of its ids may reach the threshold, and the others are left out.
 *
 * Why the same id is drawn as with all logits.  An id that is left out has mid + off + (a margin) < threshold, so its
 * logit is less than k others by more than that margin.  Multiplying by a positive scale keeps the order, and equality
 * cannot arise, since the margin is more than a rounding.  Nor does the cap change it: cap * tanh(l / cap) grows,
 * between l = threshold - margin and l = threshold, by at least margin * (1 - tanh^2(MOST_CAPPED)) where |threshold|
 * <= MOST_CAPPED * cap, which is more than the error of tanh; where the threshold is further out, all ids are computed.
 * So it is not among the k largest.  With noise g and the temperature t, the id j of the threshold has l_j / t + g_j
 * more than l_i / t + g_i by more than what rounding can change (the sampler subtracts the largest logit in f32,
 * divides in f32 and adds in double): the id i loses against j.  The largest logit is computed: k is 1 or more. */
#include "ops/cpu/reader.h"

#include <math.h>
#include <stdatomic.h>

#include "ops/cpu/sketch.h"

enum {
    MOST_ROWS = 4, /* of logits of a step: with more of them, each needs other panels */
    GROUP = 32,    /* panels of a chunk */
    AGAIN = 64,    /* where it did not pay it is tried again at every so many positions */
    NOISE_GROUPS = RG_PANEL / 4,
};

#define MOST_CAPPED   2.5f     /* 1 - tanh^2 of it: 0.026 */
#define MARGIN        0x1p-20f /* of the size of logits, without a cap: many roundings */
#define CAPPED_MARGIN 0x1p-8f  /* with one: times 0.026, still many */

typedef struct rg_screen {
    rg_sketch *sketch;
    const rg_weight *head;
    rg_rounded *rounded; /* [MOST_ROWS][n_blocks] x as int8, where the recipe rounds otherwise */
    float *norm;         /* [MOST_ROWS][n_blocks] */
    float *best;         /* [MOST_ROWS][n_panels] the largest mid of each panel */
    rg_sketch_row row[MOST_ROWS];
    bool sure[MOST_ROWS]; /* false: all ids of the row are computed */
    bool off, off_next;   /* it did not pay.  off_next becomes off when no thread reads it */
    bool always;
    atomic_uint_fast64_t n_computed; /* panels, in the latest step */
    rg_screen_counts counts;         /* of the steps before */
    uint64_t n_panels;               /* of the latest step, and its rows: */
    int n_rows;
} rg_screen;

/* ---- making one -------------------------------------------------------------------------------------------------- */

static size_t bytes_of_weights(const rg_reader_sizes *s)
{
    size_t bytes = 0;

    for (int i = 0; i < s->n_weights; i++)
        bytes += s->weights[i].placed ? s->weights[i].placed->bytes : 0;
    return bytes;
}

void rg_cpu_reader_sketch(rg_cpu_reader *r, bool always)
{
    const rg_weight *head = r->sizes.head;
    const rg_packed *w = head && head->placed ? rg_packed_of(head->placed) : NULL;
    rg_screen *s;

    if (!w || r->screen || !rg_sketch_pays(w, always ? 0 : bytes_of_weights(&r->sizes)) ||
        !(r->cpu->sketches || always))
        return;
    s = rg_zalloc(sizeof *s);
    if (!s)
        return;
    r->screen = s;
    s->head = head;
    s->always = always;
    s->sketch = rg_sketch_new(w, r->sizes.n_threads);
    if (s->sketch) {
        const size_t n = MOST_ROWS * (size_t)s->sketch->n_blocks;

        s->rounded = rg_array(n, sizeof *s->rounded);
        s->norm = rg_array(n, sizeof *s->norm);
        /* fits: panels of a matrix in memory */
        s->best = rg_array(MOST_ROWS * (size_t)s->sketch->n_panels, sizeof *s->best);
    }
    if (!s->sketch || !s->rounded || !s->norm || !s->best) {
        rg_cpu_screen_free(s);
        r->screen = NULL;
    }
}

void rg_cpu_screen_free(rg_screen *s)
{
    if (!s)
        return;
    rg_sketch_free(s->sketch);
    rg_free(s->rounded);
    rg_free(s->norm);
    rg_free(s->best);
    rg_free(s);
}

rg_screen_counts rg_cpu_screen_counts(const rg_cpu_reader *r)
{
    const rg_screen *s = r->screen;

    if (!s)
        return (rg_screen_counts){ 0 };
    return (rg_screen_counts){ s->counts.n_rows + (uint64_t)s->n_rows, s->counts.n_panels + s->n_panels,
                               s->counts.n_computed + atomic_load(&s->n_computed) };
}

/* ---- one operation ----------------------------------------------------------------------------------------------- */

typedef struct job {
    rg_cpu_reader *r;
    rg_screen *s;
    rg_fwd *f;
    const rg_op *op;
    rg_recipe recipe;
    rg_operand x;
    int n_rows, n_panels;
} job;

/* The same on every thread: of what the batch and the operation say, and of `off`. */
static bool can_screen(const rg_screen *s, rg_fwd *f, const rg_op *op, rg_recipe recipe)
{
    const rg_batch *b = f->batch;
    const int n = op->in[0]->rows;
    const bool again = b->n_spans && b->spans[0].start % AGAIN == 0;

    if (!s || !b->picks || op->w[0] != s->head || op->in[1] || op->accumulate || n != b->n_logits || n > MOST_ROWS ||
        !rg_cpu_fwd_of(f)->lazy ||
        (recipe != RG_EXACT && recipe != RG_INT8 && recipe != RG_BF16_PAIRS && recipe != RG_BF16_TILES))
        return false;
    if (!(op->x > 1e-6f && op->x < 1e6f) || !(op->y >= 0) || (s->off && !again))
        return false;
    for (int i = 0; i < n; i++) {
        const rg_pick *p = &b->picks[i];

        if (p->k < 1 || p->k > RG_MOST_PICKED || p->k > s->sketch->n_panels ||
            (p->temperature > 0 && (p->k != 1 || op->y > 0 || !(p->temperature >= 1e-3f))))
            return false;
    }
    return true;
}

/* What the count of the latest step says: whether the next one pays; one thread, while no other reads or counts. */
static void settle_counts(rg_screen *s, int n_rows, uint64_t n_panels)
{
    const uint64_t n = atomic_exchange(&s->n_computed, 0);
    const size_t panel = rg_packed_of(s->head->placed)->panel_bytes;

    s->off_next =
        !s->always && s->n_panels &&
        (double)n * (double)panel + (double)s->sketch->bytes > 0.9 * (double)panel * (double)s->sketch->n_panels;
    s->counts.n_rows += (uint64_t)s->n_rows;
    s->counts.n_panels += s->n_panels;
    s->counts.n_computed += n;
    s->n_panels = n_panels;
    s->n_rows = n_rows;
}

/* A phase: what each row of x brings. */
static void read_rows(const job *j)
{
    const size_t n = (size_t)j->s->sketch->n_blocks;

    for (int i; (i = rg_chunk_next(j->f, j->n_rows)) >= 0;) {
        const float *x = j->x.x + (size_t)i * j->x.ldx;
        rg_sketch_row *row = &j->s->row[i];

        if (i == 0)
            settle_counts(j->s, j->n_rows, (uint64_t)j->n_rows * (uint64_t)j->n_panels);
        row->norm = j->s->norm + (size_t)i * n;
        if (j->recipe == RG_INT8) {
            row->q = &(j->x.r + (size_t)i * j->x.ldr)->int8;
        } else {
            j->r->cpu->quantize(x, j->s->sketch->cols, &j->s->rounded[(size_t)i * n].int8);
            row->q = &j->s->rounded[(size_t)i * n].int8;
        }
        j->s->sure[i] = rg_sketch_read_row(j->s->sketch, j->recipe, x, row);
    }
    rg_phase_done(j->f);
}

static int ids_of(const job *j, int panel)
{
    return rg_min(RG_PANEL, (int)j->op->w[0]->rows - panel * RG_PANEL);
}

static float bias_of(const job *j, int id)
{
    return j->op->b[0] ? j->op->b[0]->vec[id] : 0;
}

/* The bounds of some panels' ids for one row, to where their logits belong. */
static void bound_panels(const job *j, int row, int first, int n, float *y)
{
    const rg_sketch *s = j->s->sketch;
    const rg_sketch_row *x = &j->s->row[row];
    float *mid = rg_cpu_scratch(j->r, j->f), *off = mid + GROUP * RG_PANEL;
    const float shift = (float)x->shift, slack = (float)(x->slack * (1 + 1e-6));

    j->r->cpu->sketch(&(rg_sketch_product){ .panel = rg_sketch_panel(s, first),
                                            .panel_bytes = s->panel_bytes,
                                            .n_panels = n,
                                            .n_blocks = s->n_blocks,
                                            .q = x->q,
                                            .norm = x->norm,
                                            .mid = mid,
                                            .off = off });
    for (int i = 0; i < n; i++) {
        float *to = y + (size_t)(first + i) * RG_PANEL, best = -INFINITY;
        const int n_ids = ids_of(j, first + i);

        for (int k = 0; k < n_ids; k++) {
            const float at = mid[RG_PANEL * i + k] + shift + bias_of(j, (first + i) * RG_PANEL + k);

            to[k] = at + (off[RG_PANEL * i + k] * (1 + 0x1p-10f) + slack);
            best = at > best ? at : best;
        }
        j->s->best[(size_t)row * (size_t)j->n_panels + (size_t)(first + i)] = best;
    }
}

/* A phase. */
static void bound_all(const job *j)
{
    const int n_groups = rg_ceil_div(j->n_panels, GROUP);

    for (int i; (i = rg_chunk_next(j->f, n_groups)) >= 0;)
        for (int row = 0; row < j->n_rows; row++)
            if (j->s->sure[row])
                bound_panels(j, row, i * GROUP, rg_min(GROUP, j->n_panels - i * GROUP),
                             rg_act_row(j->f, j->op->out[0], row));
    rg_fwd_barrier(j->f);
}

/* The logits of one panel, as the full product gives them. */
static void compute_panel(const job *j, int row, int panel, float *to)
{
    const rg_packed *w = rg_packed_of(j->op->w[0]->placed);
    float *tile = rg_cpu_scratch(j->r, j->f) + 2 * GROUP * RG_PANEL;
    const rg_put put = { .to = to,
                         .from = tile,
                         .n_rows = 1,
                         .n = ids_of(j, panel),
                         .ld_to = RG_PANEL,
                         .ld_from = RG_PANEL,
                         .bias = j->op->b[0] ? j->op->b[0]->vec + panel * RG_PANEL : NULL };

    rg_cpu_product(j->r->cpu, j->recipe, w, &j->x, row,
                   (rg_product){ .panel = rg_panel_at(w, 0, panel),
                                 .n_panels = 1,
                                 .m = 1,
                                 .y = tile,
                                 .ldy = RG_PANEL,
                                 .room = rg_cpu_room(j->r, j->f) });
    j->r->cpu->put(&put);
}

/* ---- thresholds -------------------------------------------------------------------------------------------------- */

/* The k largest of n values in a heap whose root is the least of them; what is no number is passed over. */
typedef struct largest {
    float value[RG_MOST_PICKED];
    int place[RG_MOST_PICKED];
    int n, k;
} largest;

static void put_large(largest *l, float value, int place)
{
    int at;

    if (!(value > -INFINITY) || (l->n == l->k && value <= l->value[0]))
        return;
    if (l->n < l->k) {
        for (at = l->n++; at > 0 && l->value[(at - 1) / 2] > value; at = (at - 1) / 2) {
            l->value[at] = l->value[(at - 1) / 2];
            l->place[at] = l->place[(at - 1) / 2];
        }
    } else {
        for (at = 0; 2 * at + 1 < l->n;) {
            int child = 2 * at + 1;

            child += child + 1 < l->n && l->value[child + 1] < l->value[child];
            if (l->value[child] >= value)
                break;
            l->value[at] = l->value[child];
            l->place[at] = l->place[child];
            at = child;
        }
    }
    l->value[at] = value;
    l->place[at] = place;
}

/* An id of a row is left out if its bound is less than `logit`, and, where there is noise, bound / temperature + noise
 * is less than `noisy`. */
typedef struct limit {
    float logit, noisy;
} limit;

static void noise_of(const rg_pick *p, int panel, float out[RG_PANEL])
{
    for (int g = 0; g < NOISE_GROUPS; g++) {
        uint32_t bits[4];

        rg_noise_bits(&p->key, (uint32_t)(panel * NOISE_GROUPS + g), bits);
        for (int i = 0; i < 4; i++)
            out[4 * g + i] = rg_gumbel(bits[i]);
    }
}

/* Every thread finds the same, by itself.  Nothing is left out below a limit of -INFINITY. */
static limit limit_of(const job *j, int row)
{
    const rg_pick *p = &j->f->batch->picks[row];
    const float scale = j->op->x, cap = j->op->y;
    largest panels = { .k = p->k }, ids = { .k = p->k };
    float y[RG_PANEL], noise[RG_PANEL], noisy = -INFINITY;

    if (!j->s->sure[row])
        return (limit){ -INFINITY, -INFINITY };
    for (int i = 0; i < j->n_panels; i++)
        put_large(&panels, j->s->best[(size_t)row * (size_t)j->n_panels + (size_t)i], i);
    for (int i = 0; i < panels.n; i++) {
        compute_panel(j, row, panels.place[i], y);
        if (p->temperature > 0)
            noise_of(p, panels.place[i], noise);
        for (int k = 0; k < ids_of(j, panels.place[i]); k++) {
            put_large(&ids, y[k], k);
            if (p->temperature > 0 && scale * y[k] / p->temperature + noise[k] > noisy)
                noisy = scale * y[k] / p->temperature + noise[k];
        }
    }
    if (ids.n < p->k || (cap > 0 && !(fabsf(scale * ids.value[0]) <= MOST_CAPPED * cap)))
        return (limit){ -INFINITY, -INFINITY };
    const float size = fabsf(ids.value[0]) + 0x1p-60f;
    const limit l = { ids.value[0] - size * (cap > 0 ? CAPPED_MARGIN : MARGIN), noisy };
    return l;
}

/* ---- what is computed -------------------------------------------------------------------------------------------- */

static bool any_reaches(const float *bound, int n, float least)
{
    bool any = false;

    for (int k = 0; k < n; k++)
        any |= !(bound[k] + fabsf(bound[k]) * MARGIN < least); /* or NaN */
    return any;
}

/* True if an id of the panel that is not among the largest may still win by its noise. */
static bool noise_reaches(const job *j, int row, int panel, const float *bound, float noisy)
{
    const rg_pick *p = &j->f->batch->picks[row];
    float noise[RG_PANEL], least = INFINITY;
    float at[RG_PANEL];

    for (int k = 0; k < ids_of(j, panel); k++) {
        const float size = fabsf(bound[k]) * j->op->x / p->temperature;

        at[k] = bound[k] * j->op->x / p->temperature + (size + fabsf(noisy) + RG_MOST_NOISE) * (4 * MARGIN);
        least = noisy - at[k] < least ? noisy - at[k] : least;
    }
    if (least > RG_MOST_NOISE)
        return false;
    noise_of(p, panel, noise);
    for (int k = 0; k < ids_of(j, panel); k++)
        if (!(at[k] + noise[k] < noisy))
            return true;
    return false;
}

static uint64_t finish_panels(const job *j, int row, limit l, int first, int n)
{
    const bool noisy = j->f->batch->picks[row].temperature > 0;
    uint64_t n_computed = 0;

    for (int i = first; i < first + n; i++) {
        float *y = rg_act_row(j->f, j->op->out[0], row) + (size_t)i * RG_PANEL;
        const int n_ids = ids_of(j, i);

        if (l.logit == -INFINITY || any_reaches(y, n_ids, l.logit) || (noisy && noise_reaches(j, row, i, y, l.noisy))) {
            compute_panel(j, row, i, y);
            n_computed++;
            continue;
        }
        for (int k = 0; k < n_ids; k++)
            y[k] = RG_LEFT_OUT;
    }
    return n_computed;
}

bool rg_cpu_screen(rg_cpu_reader *r, rg_fwd *f, const rg_op *op, rg_recipe recipe)
{
    rg_screen *s = r->screen;
    limit limits[MOST_ROWS];
    uint64_t n_computed = 0;

    if (!can_screen(s, f, op, recipe))
        return false;
    const job j = { .r = r,
                    .s = s,
                    .f = f,
                    .op = op,
                    .recipe = recipe,
                    .x = rg_operand_of(f, op->in[0]),
                    .n_rows = op->in[0]->rows,
                    .n_panels = s->sketch->n_panels };
    read_rows(&j);
    bound_all(&j);
    if (f->thread == 0)
        s->off = s->off_next;
    for (int row = 0; row < j.n_rows; row++)
        limits[row] = limit_of(&j, row);
    for (int i, n = rg_ceil_div(j.n_panels, GROUP); (i = rg_chunk_next(f, n)) >= 0;)
        for (int row = 0; row < j.n_rows; row++)
            n_computed += finish_panels(&j, row, limits[row], i * GROUP, rg_min(GROUP, j.n_panels - i * GROUP));
    atomic_fetch_add(&s->n_computed, n_computed);
    rg_phase_done(f);
    return true;
}
