/* kernel_main.c -- test_kernels without cmocka: for an arm64 processor that is emulated, linked statically.  Asked for
 * `dotprod`: only what dot products change, the rest having been compared on a processor without them. */
#include <stdio.h>
#include <string.h>

#include "ops/cpu/neon/init.h"
#include "ops/kernel_cases.h"

static bool changed(const char *name)
{
    return !strcmp(name, "panels") || !strcmp(name, "probe");
}

int main(int argc, char **argv)
{
    const bool dotprod = argc > 1 && !strcmp(argv[1], "dotprod");
    const rg_cpu *ref = rg_cpu_nth(0), *k = rg_cpu_nth(1);
    rg_cpu plain;
    int n_failed = 0;

    if (!k) /* with nothing but the definition, nothing is shown */
        return 1;
    plain = *ref;
    rg_cpu_init_neon(&plain);
    if (dotprod == (k->product[RG_INT8][RG_LAYOUT_Q4] == plain.product[RG_INT8][RG_LAYOUT_Q4])) {
        printf("%s dot products, unlike what was asked for\n", dotprod ? "no" : "with");
        return 1;
    }
    for (size_t j = 0; kernel_cases[j].name; j++) {
        cases c = { .ref = ref, .k = k, .below = dotprod ? &plain : NULL, .rng = { 1, 0 }, .few = true };

        if (dotprod && !changed(kernel_cases[j].name))
            continue;
        const bool same = kernel_cases[j].same(&c);
        printf("%-8s %-12s %s\n", k->isa, kernel_cases[j].name, same ? "ok" : "DIFFERS");
        n_failed += !same;
    }
    return n_failed != 0;
}
