/* fast_tmpl.h -- the fast recipe's entries of the table, one per integer layout.
 *
 * Included where TARGET (what the functions are compiled for, if that is more than their file is) and
 * panel_rows(layout, panel, n_runs, x, ldx, m, y, ldy) are defined. */
#ifndef RG_OPS_CPU_FAST_TMPL_H
#define RG_OPS_CPU_FAST_TMPL_H

#define FAST_PANEL(name, layout)                                                                                       \
    TARGET static void fast_##name(const uint8_t *panel, int cols, const rg_xblock *x, size_t ldx, int m, float *y,    \
                                   size_t ldy)                                                                         \
    {                                                                                                                  \
        panel_rows(layout, panel, cols / 32, x, ldx, m, y, ldy);                                                       \
    }

INTEGER_LAYOUTS(FAST_PANEL)

static void fill_fast(rg_cpu *k)
{
    INTEGER_LAYOUTS(FILL_FAST)
}

#endif
