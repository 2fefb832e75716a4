/* recur_tmpl.h -- linear recurrences with a tile's columns in vectors and its sums in registers.
 *
 * Included by the rows.c of an instruction set after its folder's header and ref/rows.h, where TOGETHER is defined.
 * Nothing is removed: a row of the state is loaded once for TOGETHER rows of the sequence, since the rows of the state
 * never meet but in sums, which go over them in rising order.  Something is removed: what a row removes depends on all
 * that the row before it left, so rows go one by one; but the sum for the next row is made as this row's state is. */
#ifndef RG_OPS_CPU_RECUR_TMPL_H
#define RG_OPS_CPU_RECUR_TMPL_H

enum { PAIR = 2 }; /* vectors side by side */

/* n_vec vectors of a row's y, from column c of the tile on. */
ALWAYS_INLINE void recur_out(const rg_recurrence *p, const rg_recurrence_row *row, int c, int n_vec, const vec *acc)
{
    for (int v = 0; v < n_vec; v++) {
        const int at = p->first + c + WIDTH * v;
        vec y = splat(p->scale) * acc[v];

        if (row->skip != 0.0f)
            y = fused(splat(row->skip), load_f32(row->v + at), y);
        store_f32(row->y + at, y);
    }
}

/* n_rows rows that remove nothing. */
ALWAYS_INLINE void recur_together(const rg_recurrence *p, const rg_recurrence_row *row, int c, int n_vec, int n_rows)
{
    vec u[TOGETHER][PAIR], acc[TOGETHER][PAIR], s[PAIR];
    float *at = p->s + c;

#pragma GCC unroll 8
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 8
        for (int v = 0; v < n_vec; v++) {
            u[r][v] = splat(row[r].beta) * load_f32(row[r].v + p->first + c + WIDTH * v);
            acc[r][v] = splat(0.0f);
        }
    for (int i = 0; i < p->k_dim; i++, at += p->cols) {
#pragma GCC unroll 8
        for (int v = 0; v < n_vec; v++)
            s[v] = load_f32(at + WIDTH * v);
#pragma GCC unroll 8
        for (int r = 0; r < n_rows; r++) {
            const vec decay = splat(row[r].decay[i]), k = splat(row[r].k[i]), q = splat(row[r].q[i]);

#pragma GCC unroll 8
            for (int v = 0; v < n_vec; v++) {
                s[v] = fused(k, u[r][v], decay * s[v]);
                acc[r][v] = fused(q, s[v], acc[r][v]);
            }
        }
#pragma GCC unroll 8
        for (int v = 0; v < n_vec; v++)
            store_f32(at + WIDTH * v, s[v]);
    }
#pragma GCC unroll 8
    for (int r = 0; r < n_rows; r++)
        recur_out(p, &row[r], c, n_vec, acc[r]);
}

ALWAYS_INLINE void recur_plain(const rg_recurrence *p, int c, int n_vec)
{
    int i = 0;

    for (; i + TOGETHER <= p->n_rows; i += TOGETHER)
        recur_together(p, p->row + i, c, n_vec, TOGETHER);
    for (; i < p->n_rows; i++)
        recur_together(p, p->row + i, c, n_vec, 1);
}

/* What the first row removes. */
ALWAYS_INLINE void recur_removed(const rg_recurrence *p, int c, int n_vec, vec *r)
{
    const float *b = p->row[0].b, *at = p->s + c;

#pragma GCC unroll 8
    for (int v = 0; v < n_vec; v++)
        r[v] = splat(0.0f);
    for (int i = 0; i < p->k_dim; i++, at += p->cols)
#pragma GCC unroll 8
        for (int v = 0; v < n_vec; v++)
            r[v] = fused(splat(b[i]), load_f32(at + WIDTH * v), r[v]);
}

/* with_a: what is removed comes back times a; else it is the delta rule's. */
ALWAYS_INLINE void recur_removing(const rg_recurrence *p, int c, int n_vec, bool with_a)
{
    vec r[PAIR], next[PAIR], u[PAIR], acc[PAIR];

    recur_removed(p, c, n_vec, r);
    for (int t = 0; t < p->n_rows; t++) {
        const rg_recurrence_row *row = &p->row[t];
        const float *decay = row->decay, *k = row->k, *q = row->q, *a = row->a;
        const float *b = p->row[t + 1 < p->n_rows ? t + 1 : t].b;
        float *at = p->s + c;

#pragma GCC unroll 8
        for (int v = 0; v < n_vec; v++) {
            vec x = load_f32(row->v + p->first + c + WIDTH * v);

            if (!with_a)
                x = x - r[v];
            u[v] = splat(row->beta) * x;
            acc[v] = next[v] = splat(0.0f);
        }
        for (int i = 0; i < p->k_dim; i++, at += p->cols)
#pragma GCC unroll 8
            for (int v = 0; v < n_vec; v++) {
                vec s = splat(decay[i]) * load_f32(at + WIDTH * v);

                if (with_a)
                    s = fused(splat(a[i]), r[v], s);
                s = fused(splat(k[i]), u[v], s);
                acc[v] = fused(splat(q[i]), s, acc[v]);
                next[v] = fused(splat(b[i]), s, next[v]);
                store_f32(at + WIDTH * v, s);
            }
        recur_out(p, row, c, n_vec, acc);
#pragma GCC unroll 8
        for (int v = 0; v < n_vec; v++)
            r[v] = next[v];
    }
}

ALWAYS_INLINE void recur_columns(const rg_recurrence *p, int c, int n_vec)
{
    if (!p->row->b)
        recur_plain(p, c, n_vec);
    else if (p->row->a)
        recur_removing(p, c, n_vec, true);
    else
        recur_removing(p, c, n_vec, false);
}

/* The rows of a call are alike in what they have.  Replayed ones, which have no y, are few, and so are tiles whose
 * columns are no whole vectors. */
static void recur(const rg_recurrence *p)
{
    int c = 0;

    if (p->n_rows < 1 || !p->row->y || p->cols % WIDTH) {
        rows_recur(p);
        return;
    }
    for (; c + PAIR * WIDTH <= p->cols; c += PAIR * WIDTH)
        recur_columns(p, c, PAIR);
    for (; c < p->cols; c += WIDTH)
        recur_columns(p, c, 1);
}

#endif
