/* quantile.c -- see quantile.h. */
#include "base/quantile.h"

#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double rg_quantile(double *v, int n, double q)
{
    double at = q * (n - 1);
    int i = (int)at;

    qsort(v, (size_t)n, sizeof *v, compare);
    return i + 1 < n ? v[i] + (at - i) * (v[i + 1] - v[i]) : v[i];
}
