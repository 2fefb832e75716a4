/* linear.h -- the linear algebra that methods need, in double: sums of outer products, the Cholesky factor of an
 * inverse, eigenvectors.  Matrices are square, row-major; what is shared out over a pool's threads has the same bits
 * for any number of them. */
#ifndef RG_SHRINK_LINEAR_H
#define RG_SHRINK_LINEAR_H

#include <stdint.h>

#include "base/pool.h"

/* gram [cols, cols] += sum over the n rows of x of x x^T, the upper triangle alone.  x [n, cols]. */
void rg_gram_add(double *gram, const float *x, int64_t n, int64_t cols, rg_pool *pool);
/* The lower triangle from the upper one. */
void rg_gram_mirror(double *gram, int64_t cols);

/* The upper triangular U with U^T U = A^-1, in place of a symmetric A, whose upper triangle is read; below the
 * diagonal are zeros.  False: A is not positive definite, and what is in its place means nothing. */
bool rg_inverse_factor(double *a, int64_t n);

/* Eigenvalues of a symmetric A in falling order, and its eigenvectors, the rows of v [n, n], by Jacobi's rotations; a
 * is used up. */
void rg_eigen(double *a, int64_t n, double *values, double *v);

/* *to: the trace of D A D^T over the rows of d [rows, cols], A symmetric: its lower triangle is read.  False: no
 * memory. */
bool rg_quadratic(double *to, const float *d, int64_t rows, const double *a, int64_t cols, rg_pool *pool) RG_MUST_CHECK;

#endif
