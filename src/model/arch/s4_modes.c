/* s4_modes.c -- from the continuous parameters of a state space to the discrete modes that rg_state_space computes.
 *
 * Diagonal (S4D, Gu et al. 2022b): by zero-order hold E = exp(dt A), B = (E - 1) / A; by the bilinear rule
 * E = (1 + dt A / 2) / (1 - dt A / 2), B = dt / (1 - dt A / 2).
 *
 * Diagonal plus low rank (S4, Gu et al. 2022a): A = L - P P^*, bilinear.  With D = 1 / (1 - dt L / 2), P scaled by
 * sqrt(dt / 2) and s = 1 / (1 + P^* D P), Woodbury's identity makes (1 - dt A / 2)^-1 = D - s D P P^* D, and of
 * (1 + dt A / 2) times that, since 1 + D (1 + dt L / 2) = 2 D, a diagonal and one product: E - 2 s D P (P^* D).  All
 * sums run over the modes and their conjugates.  All of it in double. */
#include "model/arch/s4.h"

#include <complex.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"

typedef double complex cplx;

enum { MODE_E, MODE_B, MODE_C, MODE_R, MODE_F, MODE_PARTS };

/* One channel of a layer, and its modes. */
typedef struct channel {
    const s4_settings *s;
    const rg_weight *const *w;
    int at, n; /* which; modes */
    cplx (*mode)[MODE_PARTS];
    const float *moved; /* a parameter that counts as `by` more: for derivatives */
    double by;
} channel;

static double number(const channel *c, const float *v, size_t i)
{
    return (double)v[i] + (v + i == c->moved ? c->by : 0);
}

static cplx pair(const channel *c, const float *v, size_t i)
{
    return number(c, v, 2 * i) + number(c, v, 2 * i + 1) * I;
}

static double dt_of(const channel *c)
{
    return exp(number(c, c->w[W_S4_LOG_DT]->vec, (size_t)c->at));
}

static void make_diagonal(const channel *c)
{
    const size_t first = (size_t)c->at * (size_t)c->n;
    const float *re = c->w[W_S4_A_REAL]->vec + first, *im = c->w[W_S4_A_IMAG]->vec + first;
    const double dt = dt_of(c);

    for (int k = 0; k < c->n; k++) {
        const size_t i = (size_t)k;
        cplx a = -exp(number(c, re, i)) + number(c, im, i) * I, d = 1 / (1 - dt / 2 * a), *m = c->mode[k];

        m[MODE_E] = c->s->bilinear ? (1 + dt / 2 * a) * d : cexp(dt * a);
        m[MODE_B] = c->s->bilinear ? dt * d : (m[MODE_E] - 1) / a;
        m[MODE_C] = pair(c, c->w[W_S4_C]->vec, first + i);
    }
}

static void make_full(const channel *c)
{
    const size_t first = (size_t)(c->at % c->s->n_ssm) * (size_t)c->n;
    const float *re = c->w[W_S4_A_REAL]->vec, *im = c->w[W_S4_A_IMAG]->vec;
    const float *b = c->w[W_S4_B]->vec, *p = c->w[W_S4_P]->vec;
    const double dt = dt_of(c), root = sqrt(dt / 2);
    double pdp = 0, pdb = 0;

    for (int k = 0; k < c->n; k++) {
        const size_t i = first + (size_t)k;
        cplx a = -exp(number(c, re, i)) - number(c, im, i) * I, d = 1 / (1 - dt / 2 * a), *m = c->mode[k];

        m[MODE_E] = (1 + dt / 2 * a) * d;
        m[MODE_B] = d * pair(c, b, i);
        m[MODE_C] = pair(c, c->w[W_S4_C]->vec, (size_t)c->at * (size_t)c->n + (size_t)k);
        m[MODE_R] = conj(root * pair(c, p, i)) * d;
        m[MODE_F] = root * pair(c, p, i) * d;
        pdp += 2 * creal(m[MODE_R] * root * pair(c, p, i));
        pdb += 2 * creal(m[MODE_R] * pair(c, b, i));
    }
    for (int k = 0; k < c->n; k++) {
        cplx *m = c->mode[k];

        m[MODE_B] = dt * (m[MODE_B] - pdb / (1 + pdp) * m[MODE_F]);
        m[MODE_F] *= -2 / (1 + pdp);
    }
}

/* As rg_state_space wants them, [modes][rows of a mode][channels]; of what sums read, twice the conjugate. */
static void store(const channel *c, float *dst, int n_channels)
{
    const int n_parts = c->s->full ? MODE_PARTS : MODE_C + 1;

    for (int k = 0; k < c->n; k++)
        for (int part = 0; part < n_parts; part++) {
            cplx v = c->mode[k][part];
            float *to = dst + (size_t)(k * n_parts + part) * 2 * (size_t)n_channels + c->at;

            v = part == MODE_C || part == MODE_R ? 2 * conj(v) : v;
            to[0] = (float)creal(v);
            to[n_channels] = (float)cimag(v);
        }
}

/* ---- C that was stored times I - A^l_kernel ---------------------------------------------------------------------- */

/* Real matrices of side 2 n: the modes' real parts, then their imaginary ones. */
typedef struct solving {
    int side;
    double *power, *square, *result; /* [side][side] */
} solving;

/* What a step does to the state when nothing comes in. */
static void make_step(const channel *c, const solving *v)
{
    const size_t n = (size_t)c->n, side = (size_t)v->side;

    for (size_t k = 0; k < n; k++)
        for (size_t j = 0; j < n; j++) {
            double *re = v->power + j * side + k, *im = re + n * side; /* of mode j, by the real part of mode k */
            cplx f = c->mode[j][MODE_F], r = c->mode[k][MODE_R], e = j == k ? c->mode[k][MODE_E] : 0;

            re[0] = creal(f) * 2 * creal(r) + creal(e);
            im[0] = cimag(f) * 2 * creal(r) + cimag(e);
            re[n] = creal(f) * -2 * cimag(r) - cimag(e); /* by its imaginary part */
            im[n] = cimag(f) * -2 * cimag(r) + creal(e);
        }
}

static void multiply(double *y, const double *a, const double *b, int side)
{
    memset(y, 0, (size_t)side * (size_t)side * sizeof *y);
    for (int i = 0; i < side; i++)
        for (int k = 0; k < side; k++) {
            const double x = a[i * side + k];
            const double *row = b + (size_t)k * (size_t)side;
            double *to = y + (size_t)i * (size_t)side;

            for (int j = 0; j < side; j++)
                to[j] += x * row[j];
        }
}

/* result = the step's n-th power, n > 0. */
static void raise_to(solving *v, int n)
{
    bool any = false;
    double *swap;

    for (; n; n >>= 1) {
        if (n & 1) {
            if (any)
                multiply(v->square, v->result, v->power, v->side);
            else
                memcpy(v->square, v->power, (size_t)v->side * (size_t)v->side * sizeof *v->power);
            swap = v->result, v->result = v->square, v->square = swap;
            any = true;
        }
        if (n > 1) {
            multiply(v->square, v->power, v->power, v->side);
            swap = v->power, v->power = v->square, v->square = swap;
        }
    }
}

/* Solve x m = y for the row x, which takes the place of y; m is overwritten.  Elimination by columns; false: no
 * pivot. */
static bool solve_row(double *m, double *y, int side)
{
    for (int k = 0; k < side; k++) {
        int best = k;

        for (int j = k + 1; j < side; j++)
            if (fabs(m[k * side + j]) > fabs(m[k * side + best]))
                best = j;
        if (!(fabs(m[k * side + best]) > 0))
            return false;
        for (int i = 0; i < side; i++) {
            double t = m[i * side + k];
            m[i * side + k] = m[i * side + best];
            m[i * side + best] = t;
        }
        double t = y[k];
        y[k] = y[best];
        y[best] = t;
        for (int j = k + 1; j < side; j++) {
            double by = m[k * side + j] / m[k * side + k];

            for (int i = k; i < side; i++)
                m[i * side + j] -= by * m[i * side + k];
            y[j] -= by * y[k];
        }
    }
    for (int k = side - 1; k >= 0; k--) {
        for (int i = k + 1; i < side; i++)
            y[k] -= y[i] * m[i * side + k];
        y[k] /= m[k * side + k];
    }
    return true;
}

static bool free_c(const channel *c, solving *v, double *row)
{
    make_step(c, v);
    raise_to(v, c->s->l_kernel);
    for (int i = 0; i < v->side * v->side; i++)
        v->result[i] = (i % (v->side + 1) == 0) - v->result[i];
    for (int k = 0; k < c->n; k++) {
        row[k] = creal(c->mode[k][MODE_C]);
        row[k + c->n] = -cimag(c->mode[k][MODE_C]);
    }
    if (!solve_row(v->result, row, v->side))
        return false;
    for (int k = 0; k < c->n; k++)
        c->mode[k][MODE_C] = row[k] - row[k + c->n] * I;
    return true;
}

/* ---- a layer ----------------------------------------------------------------------------------------------------- */

/* Memory for the modes of one channel and for freeing C. */
typedef struct workplace {
    double *memory;
    solving v;
    double *row; /* NULL: C is stored as it is */
} workplace;

static bool workplace_open(workplace *p, const s4_settings *s, channel *c, rg_error *err)
{
    const size_t side = (size_t)s->d_state, n_modes = side / 2;
    const bool stored_times = s->full && s->l_kernel;
    const size_t room = MODE_PARTS * n_modes * 2 + (stored_times ? 3 * side * side + side : 0);
    double *matrices;

    *p = (workplace){ .memory = rg_array(room, sizeof *p->memory) };
    if (!p->memory)
        return rg_fail_memory(err, room * sizeof *p->memory);
    matrices = p->memory + MODE_PARTS * n_modes * 2;
    p->v = (solving){ (int)side, matrices, matrices + side * side, matrices + 2 * side * side };
    p->row = stored_times ? matrices + 3 * side * side : NULL;
    c->n = (int)n_modes;
    c->mode = (cplx(*)[MODE_PARTS])(void *)p->memory;
    return true;
}

/* The modes of the channel.  False and *err: C cannot be freed. */
static bool make_modes(const channel *c, workplace *p, int layer, rg_error *err)
{
    solving v = p->v;

    if (c->s->full)
        make_full(c);
    else
        make_diagonal(c);
    return !p->row || free_c(c, &v, p->row) ||
           rg_fail(err, RG_E_INPUT, "layer %d: C of channel %d cannot be recovered: I - A^%d is singular", layer, c->at,
                   c->s->l_kernel);
}

bool s4_modes(const rg_config *config, int layer, const rg_weight *const w[], float *dst, rg_error *err)
{
    const s4_settings *s = RG_OWN(config, s4_settings);
    channel c = { .s = s, .w = w };
    workplace p;
    bool ok = workplace_open(&p, s, &c, err);

    for (; ok && c.at < config->dim; c.at++) {
        ok = make_modes(&c, &p, layer, err);
        store(&c, dst, config->dim);
    }
    rg_free(p.memory);
    return ok;
}

/* ---- derivatives ------------------------------------------------------------------------------------------------- */

/* The sum of d_dst times what `store` writes for a channel. */
static double weighed(const channel *c, const float *d_dst, int n_channels)
{
    const int n_parts = c->s->full ? MODE_PARTS : MODE_C + 1;
    double sum = 0;

    for (int k = 0; k < c->n; k++)
        for (int part = 0; part < n_parts; part++) {
            const float *d = d_dst + (size_t)(k * n_parts + part) * 2 * (size_t)n_channels + c->at;
            cplx v = c->mode[k][part];

            v = part == MODE_C || part == MODE_R ? 2 * conj(v) : v;
            sum += (double)d[0] * creal(v) + (double)d[n_channels] * cimag(v);
        }
    return sum;
}

/* A channel's parameters [first, first + n) of one weight, by central differences in double. */
static bool move_each(channel *c, workplace *p, const float *d_dst, int n_channels, const float *v, size_t first,
                      size_t n, float *d, rg_error *err)
{
    const double step = 0x1p-18;
    bool ok = true;

    for (size_t i = first; ok && d && i < first + n; i++) {
        double at[2];

        c->moved = v + i;
        for (int k = 0; ok && k < 2; k++) {
            c->by = k ? -step : step;
            ok = make_modes(c, p, 0, err);
            at[k] = weighed(c, d_dst, n_channels);
        }
        d[i] += (float)((at[0] - at[1]) / (2 * step));
    }
    c->moved = NULL;
    return ok;
}

bool s4_modes_back(const rg_config *config, int layer, const rg_weight *const w[], const float *d_dst,
                   float *const d_w[], rg_error *err)
{
    static const int shared[] = { W_S4_A_REAL, W_S4_A_IMAG, W_S4_B, W_S4_P };
    const s4_settings *s = RG_OWN(config, s4_settings);
    channel c = { .s = s, .w = w };
    workplace p;
    bool ok = workplace_open(&p, s, &c, err);
    const size_t n = (size_t)c.n;

    (void)layer;
    for (; ok && c.at < config->dim; c.at++) {
        const size_t at = (size_t)c.at, of = s->full ? at % (size_t)s->n_ssm : at;

        ok = move_each(&c, &p, d_dst, config->dim, w[W_S4_LOG_DT]->vec, at, 1, d_w[W_S4_LOG_DT], err) &&
             move_each(&c, &p, d_dst, config->dim, w[W_S4_C]->vec, 2 * at * n, 2 * n, d_w[W_S4_C], err);
        for (size_t i = 0; ok && i < RG_LEN(shared); i++) {
            const size_t each = i < 2 ? 1 : 2; /* numbers, pairs */
            if (w[shared[i]])
                ok = move_each(&c, &p, d_dst, config->dim, w[shared[i]]->vec, each * of * n, each * n, d_w[shared[i]],
                               err);
        }
    }
    rg_free(p.memory);
    return ok;
}
