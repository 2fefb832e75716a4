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
} channel;

static cplx pair(const float *v, size_t i)
{
    return (double)v[2 * i] + (double)v[2 * i + 1] * I;
}

static double dt_of(const channel *c)
{
    return exp((double)c->w[W_S4_LOG_DT]->vec[c->at]);
}

static void make_diagonal(const channel *c)
{
    const size_t first = (size_t)c->at * (size_t)c->n;
    const float *re = c->w[W_S4_A_REAL]->vec + first, *im = c->w[W_S4_A_IMAG]->vec + first;
    const double dt = dt_of(c);

    for (int k = 0; k < c->n; k++) {
        cplx a = -exp((double)re[k]) + (double)im[k] * I, d = 1 / (1 - dt / 2 * a), *m = c->mode[k];

        m[MODE_E] = c->s->bilinear ? (1 + dt / 2 * a) * d : cexp(dt * a);
        m[MODE_B] = c->s->bilinear ? dt * d : (m[MODE_E] - 1) / a;
        m[MODE_C] = pair(c->w[W_S4_C]->vec, first + (size_t)k);
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
        cplx a = -exp((double)re[i]) - (double)im[i] * I, d = 1 / (1 - dt / 2 * a), *m = c->mode[k];

        m[MODE_E] = (1 + dt / 2 * a) * d;
        m[MODE_B] = d * pair(b, i);
        m[MODE_C] = pair(c->w[W_S4_C]->vec, (size_t)c->at * (size_t)c->n + (size_t)k);
        m[MODE_R] = conj(root * pair(p, i)) * d;
        m[MODE_F] = root * pair(p, i) * d;
        pdp += 2 * creal(m[MODE_R] * root * pair(p, i));
        pdb += 2 * creal(m[MODE_R] * pair(b, i));
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

bool s4_modes(const rg_config *config, int layer, const rg_weight *const w[], float *dst, rg_error *err)
{
    const s4_settings *s = RG_OWN(config, s4_settings);
    const size_t side = (size_t)s->d_state, n_modes = side / 2;
    const bool stored_times = s->full && s->l_kernel;
    const size_t room = MODE_PARTS * n_modes * 2 + (stored_times ? 3 * side * side + side : 0);
    double *memory = rg_array(room, sizeof *memory), *matrices = memory + MODE_PARTS * n_modes * 2;
    channel c = { .s = s, .w = w, .n = (int)n_modes, .mode = (cplx(*)[MODE_PARTS])(void *)memory };
    bool ok = true;

    if (!memory)
        return rg_fail_memory(err, room * sizeof *memory);
    for (; ok && c.at < config->dim; c.at++) {
        if (s->full)
            make_full(&c);
        else
            make_diagonal(&c);
        if (stored_times) {
            solving v = { (int)side, matrices, matrices + side * side, matrices + 2 * side * side };

            ok = free_c(&c, &v, matrices + 3 * side * side) ||
                 rg_fail(err, RG_E_INPUT, "layer %d: C of channel %d cannot be recovered: I - A^%d is singular", layer,
                         c.at, s->l_kernel);
        }
        store(&c, dst, config->dim);
    }
    rg_free(memory);
    return ok;
}
