/* attention.c -- the backward of attention.  With S = scale q k^T, P = softmax(S), delta_i = dO_i . O_i:
 *     dV = P^T dO,  dS = P (dO V^T - delta),  dq = scale dS k,  dk = scale dS^T q;
 * of capped scores c tanh(S / c) dS is multiplied by 1 - (S_capped / c)^2 first; of a sink d = -sum of P_sink delta.
 *
 * A row of a chain (back.h) also sees its own rows of steps 1, 2, ...: a few keys of its own, behind those that all
 * rows of a block share.
 *
 * P is computed again, a block of queries at a time.  A part is all query heads that read one head of K/V, of one
 * sequence: sums over queries and heads are in their order.  Rows that reach their keys through a list of slots have K
 * and V gathered by it, and the gradients go back the same way; a block of queries is of rows with the same list. */
#include <math.h>
#include <string.h>

#include "ops/back/inside.h"

enum { QUERIES = 64 }; /* of a block */

typedef struct attending {
    const rg_back *b;
    size_t each;     /* floats of a thread's scratch */
    size_t gathered; /* the last ones of these, which hold keys that are gathered from a list */
    float *scratch;
    float *d_sinks;          /* [spans][heads] */
    int k_dim, v_dim, group; /* group: query heads of a part */
    const rg_span *spans;    /* of a chain those of its first step */
} attending;

/* One block of queries of one head. */
typedef struct block {
    const attending *a;
    const rg_span *span;
    int head, kv_head;
    int first, n;               /* queries: rows of the span */
    int low, n_keys;            /* keys that any of them may see: places in the sequence */
    int n_own, ld;              /* keys of a query's own behind them; all */
    const int32_t *list;        /* the rows of the span where the keys of those places lie; NULL: row j is place j */
    const float *keys, *values; /* of place `low` on, */
    float *d_keys, *d_values;   /*   and what is added to their gradients; */
    size_t ld_keys, ld_values, ld_d_keys, ld_d_values; /* floats from one to the next */
    float *gathered;                                   /* room for those of a list */
    float *q, *dq;                                     /* [n][k_dim], and of the first keys */
    float *first_q, *d_first_q;
    float *s, *p; /* [n][ld]: scores, then their gradients; weights */
    float *room;
} block;

static bool is_latent(const rg_back *b)
{
    return b->op->kv->latent;
}

static const float *key(const block *k, int j)
{
    return k->keys + (size_t)(j - k->low) * k->ld_keys;
}

static float *d_key(const block *k, int j)
{
    return k->d_keys + (size_t)(j - k->low) * k->ld_d_keys;
}

/* The row of the step where place j of the sequence has its K and V. */
static int row_of(const block *k, int j)
{
    return k->span->first_row + (k->list ? k->list[j] : j);
}

/* One head's columns of a row. */
static float *columns_of(const rg_mat *m, int row, int head, int dim)
{
    return rg_mat_row(m, row) + (size_t)head * (size_t)dim;
}

/* Copy the keys and values of a list, and clear their gradients. */
static void gather(block *k)
{
    const attending *a = k->a;
    const rg_back_kv *kv = a->b->kv;
    const size_t k_dim = (size_t)a->k_dim, v_dim = (size_t)a->v_dim, n = (size_t)k->n_keys;
    const bool latent = is_latent(a->b);
    float *keys = k->gathered, *values = keys + n * k_dim, *d_keys = values + n * v_dim, *d_values = d_keys + n * k_dim;

    for (int j = 0; j < k->n_keys; j++) {
        const int row = row_of(k, k->low + j);

        memcpy(keys + (size_t)j * k_dim, columns_of(&kv->k, row, k->kv_head, a->k_dim), k_dim * sizeof *keys);
        if (!latent)
            memcpy(values + (size_t)j * v_dim, columns_of(&kv->v, row, k->kv_head, a->v_dim), v_dim * sizeof *keys);
    }
    memset(d_keys, 0, n * (k_dim + v_dim) * sizeof *d_keys);
    k->keys = keys, k->d_keys = d_keys;
    k->ld_keys = k->ld_d_keys = k_dim;
    k->values = latent ? keys : values, k->d_values = latent ? d_keys : d_values;
    k->ld_values = k->ld_d_values = latent ? k_dim : v_dim;
}

/* Add the gradients of gathered keys and values to those of their rows. */
static void scatter(const block *k)
{
    const attending *a = k->a;
    const rg_back_kv *kv = a->b->kv;

    for (int j = 0; j < k->n_keys; j++) {
        const int row = row_of(k, k->low + j);
        float *dk = columns_of(&kv->dk, row, k->kv_head, a->k_dim);

        for (int c = 0; c < a->k_dim; c++)
            dk[c] += k->d_keys[(size_t)j * k->ld_d_keys + (size_t)c];
        if (is_latent(a->b))
            continue;
        float *dv = columns_of(&kv->dv, row, k->kv_head, a->v_dim);
        for (int c = 0; c < a->v_dim; c++)
            dv[c] += k->d_values[(size_t)j * k->ld_d_values + (size_t)c];
    }
}

/* Where the keys of a block lie. */
static void place_keys(block *k)
{
    const attending *a = k->a;
    const rg_back_kv *kv = a->b->kv;
    const bool latent = is_latent(a->b);
    const rg_mat *v = latent ? &kv->k : &kv->v, *dv = latent ? &kv->dk : &kv->dv;

    if (k->list) {
        gather(k);
        return;
    }
    k->keys = columns_of(&kv->k, row_of(k, k->low), k->kv_head, a->k_dim);
    k->values = columns_of(v, row_of(k, k->low), k->kv_head, a->v_dim);
    k->d_keys = columns_of(&kv->dk, row_of(k, k->low), k->kv_head, a->k_dim);
    k->d_values = columns_of(dv, row_of(k, k->low), k->kv_head, a->v_dim);
    k->ld_keys = kv->k.ld, k->ld_values = v->ld;
    k->ld_d_keys = kv->dk.ld, k->ld_d_values = dv->ld;
}

/* The row of K and V that holds key `own` of query r: of step own + 1 of a chain. */
static int own_row(const block *k, int r, int own)
{
    return (own + 1) * k->a->b->in[0].rows + k->span->first_row + k->first + r;
}

/* ---- queries ----------------------------------------------------------------------------------------------------- */

/* The columns of a head's query: of latents, what is multiplied with the latent and what is rotated. */
typedef struct columns {
    int input, first, n, to;
} columns;

static int parts_of_query(const block *k, columns out[2])
{
    const attending *a = k->a;
    const rg_back *b = a->b;

    if (!is_latent(b)) {
        out[0] = (columns){ 0, k->head * a->k_dim, a->k_dim, 0 };
        return 1;
    }
    const int each = b->in[1].cols / b->op->attend->n_heads, rope = a->k_dim - a->v_dim;

    out[0] = (columns){ 0, k->head * a->v_dim, a->v_dim, 0 };
    out[1] = (columns){ 1, (k->head + 1) * each - rope, rope, a->v_dim };
    return 2;
}

static void take_queries(const block *k, int instead, float *to)
{
    columns part[2];
    const int n = parts_of_query(k, part);

    for (int i = 0; i < n; i++)
        for (int r = 0; r < k->n; r++)
            memcpy(to + (size_t)r * (size_t)k->a->k_dim + part[i].to,
                   rg_mat_row(&k->a->b->in[part[i].input + instead], k->span->first_row + k->first + r) + part[i].first,
                   (size_t)part[i].n * sizeof *to);
}

static void add_queries(const block *k, int instead, const float *from)
{
    columns part[2];
    const int n = parts_of_query(k, part);

    for (int i = 0; i < n; i++)
        for (int r = 0; r < k->n; r++) {
            float *to = rg_mat_row(&k->a->b->d_in[part[i].input + instead], k->span->first_row + k->first + r);
            const float *d = from + (size_t)r * (size_t)k->a->k_dim + part[i].to;

            for (int c = 0; c < part[i].n; c++)
                to[part[i].first + c] += d[c];
        }
}

/* ---- scores and weights ------------------------------------------------------------------------------------------ */

/* Keys [from, to) of the block by these queries, to columns from - low on of s. */
static void score(const block *k, const float *q, int from, int to, float *s)
{
    const attending *a = k->a;

    if (to > from)
        rg_gemm_here(a->b->lane,
                     &(rg_gemm){ .m = k->n,
                                 .n = to - from,
                                 .k = a->k_dim,
                                 .a = q,
                                 .lda = (size_t)a->k_dim,
                                 .b = key(k, from),
                                 .ldb = k->ld_keys,
                                 .b_turned = true,
                                 .y = s + (from - k->low),
                                 .ldy = (size_t)k->ld },
                     k->room);
}

static float dot(const float *x, const float *y, int n)
{
    float sum = 0;

    for (int i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

static void add_times(float *to, float by, const float *x, int n)
{
    for (int i = 0; i < n; i++)
        to[i] += by * x[i];
}

static void score_own(const block *k)
{
    const attending *a = k->a;

    for (int r = 0; r < k->n; r++)
        for (int i = 0; i < k->n_own; i++)
            k->s[(size_t)r * (size_t)k->ld + (size_t)(k->n_keys + i)] =
                dot(k->q + (size_t)r * (size_t)a->k_dim,
                    columns_of(&a->b->kv->k, own_row(k, r, i), k->kv_head, a->k_dim), a->k_dim);
}

/* The first key that the usual queries read. */
static int border(const block *k)
{
    const rg_attend_params *p = k->a->b->op->attend;
    const int n = p->first_q ? p->n_first : 0, end = k->low + k->n_keys;

    return n < k->low ? k->low : n < end ? n : end;
}

/* Scores of keys at places [from, to) of the text become scaled and capped ones, -inf where a key is not seen. */
static void mask_run(const block *k, int row, int from, int to, float *s)
{
    const rg_back *b = k->a->b;
    const rg_attend_params *p = b->op->attend;
    const int i = b->batch->index[row], kv_end = b->batch->kv_end[row];
    const float scale = p->scale, cap = p->cap; /* no values of s, as the compiler sees */

    for (int j = 0; j < to - from; j++)
        s[j] *= scale;
    for (int j = 0; j < to - from && cap > 0; j++)
        s[j] = cap * tanhf(s[j] / cap);
    for (int j = from; j < to;) {
        const int at = j / RG_BLOCK, end = rg_back_min((at + 1) * RG_BLOCK, to);
        const uint64_t seen = rg_sight_bits(p->sight, k->head, i, kv_end, at);

        for (; j < end && seen != UINT64_MAX; j++)
            if (!(seen >> (j % RG_BLOCK) & 1))
                s[j - from] = -INFINITY;
        j = end;
    }
}

/* Row r of s: of a chain, places behind the row's own in the first step are those of its own keys. */
static void mask(const block *k, int r)
{
    const int row = k->span->first_row + k->first + r, end = k->low + k->n_keys, own = k->first + r + 1;
    float *s = k->s + (size_t)r * (size_t)k->ld;

    if (!k->n_own) {
        mask_run(k, row, k->low, end, s);
        return;
    }
    mask_run(k, row, k->low, rg_back_min(own, end), s);
    for (int j = own > k->low ? own : k->low; j < end; j++)
        s[j - k->low] = -INFINITY;
    mask_run(k, row, own, own + k->n_own, s + k->n_keys);
}

/* p = the softmax of row r of s; returned is the sink's share. */
static float weigh(const block *k, int r)
{
    const rg_back *b = k->a->b;
    const int n = k->ld;
    const float *restrict s = k->s + (size_t)r * (size_t)n;
    float *restrict p = k->p + (size_t)r * (size_t)n;
    const float most = rg_back_max(s, n, b->w[0] ? b->w[0][k->head] : -INFINITY);

    for (int j = 0; j < n; j++)
        p[j] = s[j] - most;
    b->lane->backend->host_activate(b->lane->backend, RG_EXP, p, p, (size_t)n);
    const double sum = rg_back_sum(p, n);
    const double sink = b->w[0] ? exp((double)b->w[0][k->head] - (double)most) : 0;
    const float by = (float)(1 / (sum + sink));
    for (int j = 0; j < n; j++)
        p[j] *= by;
    return (float)(sink / (sum + sink));
}

/* Row r of s, which holds scores, becomes scale * dS, with dp = dO . v. */
static double gradients(const block *k, int r, const float *restrict dp)
{
    const rg_back *b = k->a->b;
    const rg_attend_params *a = b->op->attend;
    const int row = k->span->first_row + k->first + r, v_dim = k->a->v_dim;
    const float *o = rg_mat_row(&b->out[0], row) + k->head * v_dim;
    const float *d = rg_mat_row(&b->d_out[0], row) + k->head * v_dim;
    const float scale = a->scale, cap = a->cap;
    const int n = k->ld;
    const float *restrict p = k->p + (size_t)r * (size_t)n;
    float *restrict s = k->s + (size_t)r * (size_t)n;
    const double delta = rg_back_dot(o, d, v_dim);
    const float from = (float)delta;

    if (cap > 0) {
        for (int j = 0; j < n; j++) /* the slope of the cap */
            s[j] = p[j] > 0 ? 1 - s[j] / cap * (s[j] / cap) : 0;
        for (int j = 0; j < n; j++)
            s[j] = p[j] * (dp[j] - from) * (scale * s[j]);
    } else {
        for (int j = 0; j < n; j++)
            s[j] = p[j] * (dp[j] - from) * scale;
    }
    return delta;
}

/* ---- a block ----------------------------------------------------------------------------------------------------- */

/* dq and dk of keys [from, to), by these queries. */
static void to_queries_and_keys(const block *k, const float *q, float *dq, int from, int to)
{
    const attending *a = k->a;
    const rg_back_lane *lane = a->b->lane;
    const size_t k_dim = (size_t)a->k_dim, ld = (size_t)k->ld;

    if (to <= from) {
        memset(dq, 0, (size_t)k->n * k_dim * sizeof *dq);
        return;
    }
    rg_gemm_here(lane,
                 &(rg_gemm){ .m = k->n,
                             .n = a->k_dim,
                             .k = to - from,
                             .a = k->s + (from - k->low),
                             .lda = ld,
                             .b = key(k, from),
                             .ldb = k->ld_keys,
                             .y = dq,
                             .ldy = k_dim },
                 k->room);
    rg_gemm_here(lane,
                 &(rg_gemm){ .m = to - from,
                             .n = a->k_dim,
                             .k = k->n,
                             .a = k->s + (from - k->low),
                             .lda = ld,
                             .a_turned = true,
                             .b = q,
                             .ldb = k_dim,
                             .y = d_key(k, from),
                             .ldy = k->ld_d_keys,
                             .add = true },
                 k->room);
}

/* The gradient of weights to `dp` [n][ld], and dv. */
static void to_values(const block *k, float *dp)
{
    const attending *a = k->a;
    const rg_back *b = a->b;
    const float *d = rg_mat_row(&b->d_out[0], k->span->first_row + k->first) + k->head * a->v_dim;

    rg_gemm_here(b->lane,
                 &(rg_gemm){ .m = k->n,
                             .n = k->n_keys,
                             .k = a->v_dim,
                             .a = d,
                             .lda = b->d_out[0].ld,
                             .b = k->values,
                             .ldb = k->ld_values,
                             .b_turned = true,
                             .y = dp,
                             .ldy = (size_t)k->ld },
                 k->room);
    rg_gemm_here(b->lane,
                 &(rg_gemm){ .m = k->n_keys,
                             .n = a->v_dim,
                             .k = k->n,
                             .a = k->p,
                             .lda = (size_t)k->ld,
                             .a_turned = true,
                             .b = d,
                             .ldb = b->d_out[0].ld,
                             .y = k->d_values,
                             .ldy = k->ld_d_values,
                             .add = true },
                 k->room);
}

/* The same of a query's own keys: dp and dv; then dq and dk. */
static void to_own_values(const block *k, float *dp)
{
    const attending *a = k->a;
    const rg_back_kv *kv = a->b->kv;
    const rg_mat *v = is_latent(a->b) ? &kv->k : &kv->v, *dv = is_latent(a->b) ? &kv->dk : &kv->dv;
    const int v_dim = a->v_dim;

    for (int r = 0; r < k->n; r++)
        for (int i = 0; i < k->n_own; i++) {
            const int row = own_row(k, r, i);
            const float *d = columns_of(&a->b->d_out[0], k->span->first_row + k->first + r, k->head, v_dim);
            const size_t column = (size_t)r * (size_t)k->ld + (size_t)(k->n_keys + i);

            dp[column] = dot(d, columns_of(v, row, k->kv_head, v_dim), v_dim);
            add_times(columns_of(dv, row, k->kv_head, v_dim), k->p[column], d, v_dim);
        }
}

static void to_own_keys(const block *k)
{
    const attending *a = k->a;
    const rg_back_kv *kv = a->b->kv;
    const int k_dim = a->k_dim;

    for (int r = 0; r < k->n; r++)
        for (int i = 0; i < k->n_own; i++) {
            const int row = own_row(k, r, i);
            const float ds = k->s[(size_t)r * (size_t)k->ld + (size_t)(k->n_keys + i)];
            const size_t of_query = (size_t)r * (size_t)k_dim;

            add_times(k->dq + of_query, ds, columns_of(&kv->k, row, k->kv_head, k_dim), k_dim);
            add_times(columns_of(&kv->dk, row, k->kv_head, k_dim), ds, k->q + of_query, k_dim);
        }
}

/* Returned: the gradient of the head's sink. */
static double back_block(block *k, float *dp)
{
    const rg_attend_params *p = k->a->b->op->attend;
    const int end = k->low + k->n_keys, at = border(k);
    float share[QUERIES];
    double d_sink = 0;

    take_queries(k, 0, k->q);
    score(k, k->q, at, end, k->s);
    if (p->first_q) {
        take_queries(k, 1, k->first_q);
        score(k, k->first_q, k->low, at, k->s);
    }
    score_own(k);
    for (int r = 0; r < k->n; r++) {
        mask(k, r);
        share[r] = weigh(k, r);
    }
    to_values(k, dp);
    to_own_values(k, dp);
    for (int r = 0; r < k->n; r++)
        d_sink -= (double)share[r] * gradients(k, r, dp + (size_t)r * (size_t)k->ld);
    to_queries_and_keys(k, k->q, k->dq, at, end);
    to_own_keys(k);
    add_queries(k, 0, k->dq);
    if (p->first_q) {
        to_queries_and_keys(k, k->first_q, k->d_first_q, k->low, at);
        add_queries(k, 1, k->d_first_q);
    }
    return d_sink;
}

/* Which keys the queries of a block may see. */
static void find_keys(block *k)
{
    const rg_back *b = k->a->b;
    const rg_sight *sight = b->op->attend->sight;
    int low = INT32_MAX, end = 0;

    for (int r = k->span->first_row + k->first; r < k->span->first_row + k->first + k->n; r++) {
        const int i = b->batch->index[r], from = rg_sight_low(sight, i);
        const int to = rg_sight_end(sight, i, b->batch->kv_end[r]) - k->n_own;

        low = from < low ? from : low;
        end = to > end ? to : end;
    }
    k->low = low < 0 ? 0 : low;
    k->n_keys = end - k->low;
    k->ld = k->n_keys + k->n_own;
}

static const int32_t *list_of(const block *k, int row)
{
    const rg_batch *b = k->a->b->batch;

    return b->ancestors && !k->a->b->chain ? b->ancestors[k->span->first_row + row] : NULL;
}

/* The rows of a block from `first` on: those with the same list. */
static void take_rows(block *k)
{
    const int most = rg_back_min(QUERIES, k->span->n_rows - k->first);

    k->list = list_of(k, k->first);
    for (k->n = 1; k->n < most && list_of(k, k->first + k->n) == k->list;)
        k->n++;
}

static void attend_part(void *arg, int i, int thread)
{
    const attending *a = arg;
    const rg_back *b = a->b;
    const int n_kv = b->op->attend->n_heads / a->group, most = QUERIES * a->k_dim;
    float *at = a->scratch + (size_t)thread * a->each;
    block k = { .a = a,
                .span = &a->spans[i / n_kv],
                .kv_head = is_latent(b) ? 0 : i % n_kv,
                .n_own = b->chain ? b->chain->step : 0 };

    k.q = at, k.dq = at + most, k.first_q = at + 2 * most, k.d_first_q = at + 3 * most;
    k.gathered = at + a->each - a->gathered;
    for (int h = 0; h < a->group; h++)
        for (k.first = 0; k.first < k.span->n_rows; k.first += k.n) {
            k.head = i % n_kv * a->group + h;
            take_rows(&k);
            find_keys(&k);
            place_keys(&k);
            const size_t room = rg_back_whole((size_t)QUERIES * (size_t)k.ld);
            k.s = at + 4 * most, k.p = k.s + room, k.room = k.s + 3 * room;
            const double d = back_block(&k, k.s + 2 * room);
            if (k.list)
                scatter(&k);
            if (a->d_sinks)
                a->d_sinks[(size_t)(i / n_kv) * (size_t)b->op->attend->n_heads + (size_t)k.head] += (float)d;
        }
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static void attend(const rg_back *b, int group)
{
    const rg_kv *kv = b->op->kv;
    const rg_batch *texts = b->chain ? b->chain->first : b->batch;
    const int n_heads = b->op->attend->n_heads, n_spans = texts->n_spans;
    attending a = { .b = b, .k_dim = kv->k_dim, .v_dim = kv->v_dim, .group = group, .spans = texts->spans };
    int most = 0;

    for (int s = 0; s < n_spans; s++)
        most = a.spans[s].n_rows > most ? a.spans[s].n_rows : most;
    most += b->chain ? b->chain->step : 0;
    const int dim = kv->k_dim > kv->v_dim ? kv->k_dim : kv->v_dim;
    const size_t gemm = larger(rg_gemm_room(QUERIES, most, dim),
                               larger(rg_gemm_room(QUERIES, dim, most), rg_gemm_room(most, dim, QUERIES)));

    a.each = 4 * (size_t)QUERIES * (size_t)dim + 3 * ((size_t)QUERIES * (size_t)most + 16) + gemm;
    a.gathered =
        b->batch->ancestors && !b->chain ? rg_back_whole(2 * (size_t)most * (size_t)(kv->k_dim + kv->v_dim)) : 0;
    a.each = rg_back_whole(a.each) + a.gathered;
    a.scratch = rg_back_room(b->lane, a.each * (size_t)b->lane->n_threads);
    if (b->dw[0])
        a.d_sinks = rg_back_zeros(b->lane, (size_t)n_spans * (size_t)n_heads);
    if (!a.scratch || (b->dw[0] && !a.d_sinks))
        return;
    rg_back_each(b->lane, n_spans * (n_heads / group), attend_part, &a);
    if (a.d_sinks)
        rg_back_fold(b->dw[0], a.d_sinks, n_spans, n_heads);
}

void rg_back_attention(const rg_back *b)
{
    attend(b, b->op->attend->n_heads / b->op->kv->n_heads);
}

/* All heads share the latents, whose gradients are summed over them. */
void rg_back_mla_attention(const rg_back *b)
{
    attend(b, b->op->attend->n_heads);
}

/* ---- K and V ----------------------------------------------------------------------------------------------------- */

static void store_rows(void *arg, int first, int n, int block_, int thread)
{
    const rg_back *b = arg;
    const rg_mat *dk = &b->kv->dk, *dv = &b->kv->dv;
    const int n_k = b->d_in[0].cols, n_v = b->d_in[1].cols;

    (void)block_, (void)thread;
    for (int r = first; r < first + n; r++) {
        const int at = (b->chain ? b->chain->step : 0) * b->d_in[0].rows + r;
        const float *of_k = rg_mat_row(dk, at), *of_v = is_latent(b) ? of_k + n_k : rg_mat_row(dv, at);
        float *k = rg_mat_row(&b->d_in[0], r), *v = rg_mat_row(&b->d_in[1], r);

        for (int c = 0; c < n_k; c++)
            k[c] += of_k[c];
        for (int c = 0; c < n_v; c++)
            v[c] += of_v[c];
    }
}

void rg_back_kv_store(const rg_back *b)
{
    rg_back_each_rows(b->lane, b->d_in[0].rows, store_rows, (void *)(uintptr_t)b);
}
