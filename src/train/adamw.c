/* adamw.c -- see adamw.h.  Tensors are cut into pieces of a fixed length, so that sums do not depend on threads. */
#include "train/adamw.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

enum { PIECE = 1 << 14, MAX_PIECES = 1 << 17 };

bool rg_adamw_decays(const char *name, int n_dims)
{
    static const char *const rates[] = {
        "A_log", "D", "dt_bias", "log_dt", "inv_dt", "log_A_real", "A_real", "A_imag"
    };
    const char *last = strrchr(name, '.');
    bool is_rate = false;

    for (size_t i = 0; i < RG_LEN(rates); i++)
        is_rate = is_rate || !strcmp(last ? last + 1 : name, rates[i]);
    return n_dims >= 2 && !is_rate;
}

bool rg_adamw_add(rg_adamw *a, const rg_adamw_tensor *t, rg_error *err)
{
    rg_adamw_tensor *to;

    if (a->n == a->room) {
        const int room = a->room ? 2 * a->room : 64;
        rg_adamw_tensor *more = rg_resize_array(a->tensors, (size_t)room, sizeof *more);

        if (!more)
            return rg_fail_memory(err, (size_t)room * sizeof *more);
        a->tensors = more;
        a->room = room;
    }
    to = &a->tensors[a->n++];
    *to = *t;
    to->rate = t->rate > 0 ? t->rate : 1;
    to->decays = !t->keeps && rg_adamw_decays(t->name, t->n_dims);
    to->m = rg_array(t->n, sizeof *to->m);
    to->v = rg_array(t->n, sizeof *to->v);
    return (to->m && to->v) || rg_fail_memory(err, t->n * sizeof *to->m);
}

bool rg_adamw_add_master(rg_adamw *a, const rg_master *m, rg_error *err)
{
    rg_adamw_tensor t = { .name = m->name, .n_dims = m->n_dims, .w = m->w, .g = m->g, .n = m->n };

    memcpy(t.shape, m->shape, sizeof t.shape);
    return rg_adamw_add(a, &t, err);
}

bool rg_adamw_add_masters(rg_adamw *a, rg_masters *m, rg_error *err)
{
    bool ok = true;

    for (int i = 0; ok && i < rg_masters_count(m); i++)
        ok = rg_masters_at(m, i)->frozen || rg_adamw_add_master(a, rg_masters_at(m, i), err);
    return ok;
}

void rg_adamw_close(rg_adamw *a)
{
    for (int i = 0; i < a->n; i++) {
        rg_free(a->tensors[i].m);
        rg_free(a->tensors[i].v);
    }
    rg_free(a->tensors);
    *a = (rg_adamw){ 0 };
}

/* The i-th piece of all tensors. */
typedef struct piece {
    const rg_adamw_tensor *t;
    size_t first, n;
} piece;

static int pieces_of(const rg_adamw_tensor *t)
{
    return (int)((t->n + PIECE - 1) / PIECE);
}

static int n_pieces(const rg_adamw *a)
{
    int n = 0;

    for (int i = 0; i < a->n; i++)
        n += pieces_of(&a->tensors[i]);
    return n;
}

static piece piece_at(const rg_adamw *a, int i)
{
    int t = 0;

    for (; i >= pieces_of(&a->tensors[t]); t++)
        i -= pieces_of(&a->tensors[t]);
    const size_t first = (size_t)i * PIECE, left = a->tensors[t].n - first;
    return (piece){ &a->tensors[t], first, left < PIECE ? left : PIECE };
}

typedef struct updating {
    const rg_adamw *a;
    const rg_train_settings *s;
    double lr, scale, c1, c2; /* bias corrections */
    double *squares;          /* of pieces */
} updating;

static void square_piece(void *arg, int i, int thread)
{
    const updating *u = arg;
    const piece p = piece_at(u->a, i);
    const float *g = p.t->g + p.first;
    double sum[4] = { 0 };

    (void)thread;
    for (size_t k = 0; k < p.n; k++)
        sum[k % 4] += (double)g[k] * (double)g[k];
    u->squares[i] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

double rg_adamw_norm(const rg_adamw *a, const rg_back_lane *lane)
{
    const int n = n_pieces(a);
    updating u = { .a = a, .squares = rg_array((size_t)n, sizeof *u.squares) };
    double sum = 0;

    for (int i = 0; !u.squares && i < n; i++) { /* without memory, one by one: the same sums */
        double one;

        u.squares = &one - i;
        square_piece(&u, i, 0);
        u.squares = NULL;
        sum += one;
    }
    if (u.squares) {
        rg_back_each(lane, n, square_piece, &u);
        for (int i = 0; i < n; i++)
            sum += u.squares[i];
        rg_free(u.squares);
    }
    return sqrt(sum);
}

static void update_piece(void *arg, int i, int thread)
{
    const updating *u = arg;
    const piece p = piece_at(u->a, i);
    float *w = p.t->w + p.first, *m = p.t->m + p.first, *v = p.t->v + p.first;
    const float *gradient = p.t->g + p.first;
    const double b1 = u->s->beta1, b2 = u->s->beta2, eps = u->s->eps, lr = u->lr * p.t->rate, by = lr / u->c1,
                 root = 1 / sqrt(u->c2);
    const double kept = p.t->decays ? 1 - lr * u->s->weight_decay : 1;

    (void)thread;
    for (size_t k = 0; k < p.n; k++) { /* in double: a weight may all but vanish */
        const double g = (double)gradient[k] * u->scale;
        const double first = b1 * (double)m[k] + (1 - b1) * g, second = b2 * (double)v[k] + (1 - b2) * g * g;

        m[k] = (float)first;
        v[k] = (float)second;
        w[k] = (float)((double)w[k] * kept - by * first / (sqrt(second) * root + eps));
    }
}

void rg_adamw_update(rg_adamw *a, const rg_back_lane *lane, const rg_train_settings *s, double lr, double norm)
{
    const double limited = s->clip > 0 ? s->clip / (norm + 1e-6) : 1;

    a->step++;
    rg_back_each(lane, n_pieces(a), update_piece,
                 &(updating){ .a = a,
                              .s = s,
                              .lr = lr,
                              .scale = limited < 1 ? limited : 1,
                              .c1 = 1 - pow(s->beta1, (double)a->step),
                              .c2 = 1 - pow(s->beta2, (double)a->step) });
}
