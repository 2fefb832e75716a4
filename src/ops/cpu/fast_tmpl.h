/* fast_tmpl.h -- the fast recipe's entries of the table, one per integer layout.
 *
 * Included where TARGET (what the functions are compiled for, if that is more than their file is) and
 * panel_rows(layout, p), which multiplies one panel, are defined. */
#ifndef RG_OPS_CPU_FAST_TMPL_H
#define RG_OPS_CPU_FAST_TMPL_H

#define FAST_PRODUCT(name, layout)                                                                                     \
    TARGET static void fast_##name(const rg_product *p)                                                                \
    {                                                                                                                  \
        const int rows = near_rows((size_t)p->cols / 32 * sizeof(rg_xblock));                                          \
                                                                                                                       \
        for (int row = 0; row < p->m; row += rows)                                                                     \
            for (int i = 0; i < p->n_panels; i++) {                                                                    \
                const rg_product q = part_of(p, i, row, rows);                                                         \
                panel_rows(layout, &q);                                                                                \
            }                                                                                                          \
    }

INTEGER_LAYOUTS(FAST_PRODUCT)

static void fill_fast(rg_cpu *k)
{
    INTEGER_LAYOUTS(FILL_FAST)
}

#endif
