/* quantile.h -- a quantile of some measurements. */
#ifndef RG_BASE_QUANTILE_H
#define RG_BASE_QUANTILE_H

/* The quantile q of n > 0 values, which it sorts: 0 is the least, 0.5 the median, 1 the greatest; linear between two
 * values. */
double rg_quantile(double *v, int n, double q);

#endif
