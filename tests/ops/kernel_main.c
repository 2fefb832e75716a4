/* kernel_main.c -- test_kernels without cmocka: for a processor that is emulated, linked statically. */
#include <stdio.h>

#include "ops/kernel_cases.h"

int main(void)
{
    int n_failed = rg_cpu_nth(1) ? 0 : 1; /* with nothing but the definition, nothing is shown */

    for (int i = 1; rg_cpu_nth(i); i++)
        for (size_t j = 0; kernel_cases[j].name; j++) {
            cases c = { rg_cpu_nth(0), rg_cpu_nth(i), NULL, { 1, 0 } };
            const bool same = kernel_cases[j].same(&c);
            printf("%-8s %-12s %s\n", c.k->isa, kernel_cases[j].name, same ? "ok" : "DIFFERS");
            n_failed += !same;
        }
    return n_failed != 0;
}
