/* median.h -- the middle one of some measurements. */
#ifndef RG_BASE_MEDIAN_H
#define RG_BASE_MEDIAN_H

/* Of n > 0 values, which are sorted; of an even number of them, the mean of the two in the middle. */
double rg_median(double *v, int n);

#endif
