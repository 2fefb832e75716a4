/* kernel_main.c -- test_kernels without cmocka: for an arm64 processor that is emulated, linked statically.
 *
 *     kernels list              the runs there are, a line of arguments each
 *     kernels plain NAME        the comparison NAME, on a processor without dot products
 *     kernels dotprod NAME      the same on one with them: only for what they change */
#include <stdio.h>
#include <string.h>

#include "ops/cpu/neon/init.h"
#include "ops/kernel_cases.h"

static bool changed(const char *name)
{
    return !strcmp(name, "panels") || !strcmp(name, "sketch") || !strcmp(name, "probe");
}

static void list(void)
{
    for (size_t j = 0; kernel_cases[j].name; j++) {
        printf("plain %s\n", kernel_cases[j].name);
        if (changed(kernel_cases[j].name))
            printf("dotprod %s\n", kernel_cases[j].name);
    }
}

static int compare(bool dotprod, const char *name)
{
    const rg_cpu *ref = rg_cpu_nth(0), *k = rg_cpu_nth(1);
    rg_cpu plain;
    size_t j = 0;

    if (!k) /* with nothing but the definition, nothing is shown */
        return 1;
    plain = *ref;
    rg_cpu_init_neon(&plain);
    if (dotprod == (k->product[RG_INT8][RG_LAYOUT_Q4] == plain.product[RG_INT8][RG_LAYOUT_Q4])) {
        printf("%s dot products, unlike what was asked for\n", dotprod ? "no" : "with");
        return 1;
    }
    while (kernel_cases[j].name && strcmp(kernel_cases[j].name, name) != 0)
        j++;
    if (!kernel_cases[j].name) {
        printf("no comparison '%s'\n", name);
        return 1;
    }
    cases c = { .ref = ref, .k = k, .below = dotprod ? &plain : NULL, .rng = { 1, 0 }, .few = true };
    const bool same = kernel_cases[j].same(&c);
    printf("%-8s %-12s %s%s\n", k->isa, name, same ? "ok" : "DIFFERS", dotprod ? ", with dot products" : "");
    return !same;
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "list"))
        return list(), 0;
    if (argc == 3 && (!strcmp(argv[1], "plain") || !strcmp(argv[1], "dotprod")))
        return compare(argv[1][0] == 'd', argv[2]);
    fprintf(stderr, "kernels list, or kernels plain|dotprod NAME\n");
    return 2;
}
