/* recur_cases.h -- rows of linear recurrences against the definition.  Part of kernel_cases.c, behind its helpers. */
#ifndef RG_TEST_RECUR_CASES_H
#define RG_TEST_RECUR_CASES_H

/* Rows of a linear recurrence, with and without what is removed, over tiles of whole vectors and others. */
typedef struct recur_case {
    int k_dim, cols, n_rows;
    bool removes, with_a, replay;
} recur_case;

enum { MOST_RECUR_ROWS = 9, MOST_RECUR_DIM = 19 };

static bool recur_same(cases *c, const recur_case *t, int mode)
{
    const int first = 3, wide = first + t->cols;
    const size_t each = (size_t)(5 * t->k_dim + wide), n_state = (size_t)(t->k_dim * t->cols);
    static float s_ref[MOST_RECUR_DIM * RG_STATE_TILE], y_ref[MOST_RECUR_ROWS * (RG_STATE_TILE + 3)];
    float *s = walled(0, n_state * 4);
    float *in = walled(1, (size_t)t->n_rows * each * 4), *y = walled(2, (size_t)(t->n_rows * wide) * 4);
    rg_recurrence_row rows[MOST_RECUR_ROWS];
    rg_recurrence p = { .s = s, .k_dim = t->k_dim, .first = first, .cols = t->cols, .n_rows = t->n_rows, .scale = 0.7f,
                        .row = rows };
    char what[128];

    floats(c, mode, s, n_state);
    floats(c, mode, in, (size_t)t->n_rows * each);
    memcpy(s_ref, s, n_state * 4);
    memset(y, 0, (size_t)(t->n_rows * wide) * 4);
    memset(y_ref, 0, sizeof y_ref);
    for (int i = 0; i < t->n_rows; i++) {
        const float *at = in + (size_t)i * each;

        rows[i] = (rg_recurrence_row){ .q = t->replay ? NULL : at, .k = at + t->k_dim, .decay = at + 2 * t->k_dim,
                                       .a = t->with_a ? at + 3 * t->k_dim : NULL,
                                       .b = t->removes ? at + 4 * t->k_dim : NULL, .v = at + 5 * t->k_dim,
                                       .beta = number(c, mode), .skip = i % 2 ? 0.0f : number(c, mode),
                                       .y = t->replay ? NULL : y + i * wide };
    }
    c->k->recur(&p);
    p.s = s_ref;
    for (int i = 0; i < t->n_rows && !t->replay; i++)
        rows[i].y = y_ref + i * wide;
    c->ref->recur(&p);
    snprintf(what, sizeof what, "%s recur k_dim %d cols %d rows %d removes %d a %d replay %d mode %d", c->k->isa, t->k_dim,
             t->cols, t->n_rows, t->removes, t->with_a, t->replay, mode);
    return same_floats(s, s_ref, n_state, what) && same_floats(y, y_ref, (size_t)(t->n_rows * wide), what);
}

static bool cases_recur(cases *c)
{
    static const int cols[] = { 1, 4, 8, 12, 16, 17, 24, 32 };

    for (size_t i = 0; i < RG_LEN(cols); i++)
        for (int n_rows = 1; n_rows <= MOST_RECUR_ROWS; n_rows++)
            for (int mode = 0; mode < 5; mode++)
                for (int form = 0; form < 4; form++) {
                    const recur_case t = { .k_dim = n_rows % 2 ? 8 : MOST_RECUR_DIM, .cols = cols[i], .n_rows = n_rows,
                                           .removes = form > 0, .with_a = form == 2, .replay = form == 3 };
                    if (!recur_same(c, &t, mode))
                        return false;
                }
    return true;
}

#endif
