/* quantile.h -- of some measurements the one with a share of them below it. */
#ifndef RG_BASE_QUANTILE_H
#define RG_BASE_QUANTILE_H

/* Of n > 0 values, which are sorted: 0 the least, 0.5 the median, 1 the most; between two of them on the line. */
double rg_quantile(double *v, int n, double q);

#endif
