/* amx.c -- fills the table on AVX512: the recipes of bf16 and of integer weights on tiles, and their peaks. */
#include "ops/cpu/amx/tiles.h"
#include "ops/cpu/amx/init.h"

enum { CHAINS = 4 }; /* sums 0 .. 3, operands 6 and 7 */

static const tile_config peak_config = {
    .palette = 1,
    .row_bytes = { 64, 64, 64, 64, 0, 0, 64, 64 },
    .rows = { 16, 16, 16, 16, 0, 0, 16, 16 },
};

/* About n multiply-adds, `lanes` of them to a product of two tiles. */
#define PEAK(name, lanes, product)                                                                                     \
    static double name(double n)                                                                                       \
    {                                                                                                                  \
        const int64_t rounds = (int64_t)(n / ((lanes) * CHAINS)) + 1;                                                  \
                                                                                                                       \
        load_config(&peak_config);                                                                                     \
        _tile_zero(0);                                                                                                 \
        _tile_zero(1);                                                                                                 \
        _tile_zero(2);                                                                                                 \
        _tile_zero(3);                                                                                                 \
        _tile_zero(6);                                                                                                 \
        _tile_zero(7);                                                                                                 \
        for (int64_t r = 0; r < rounds; r++) {                                                                         \
            product(0, 6, 7);                                                                                          \
            product(1, 6, 7);                                                                                          \
            product(2, 6, 7);                                                                                          \
            product(3, 6, 7);                                                                                          \
        }                                                                                                              \
        _tile_release();                                                                                               \
        return (double)rounds * (lanes) * CHAINS;                                                                      \
    }

PEAK(peak_int8, 16 * 16 * 64, _tile_dpbssd)
PEAK(peak_bf16, 16 * 16 * 32, _tile_dpbf16ps)

void rg_cpu_init_amx(rg_cpu *k)
{
    k->isa = "amx";
    rg_amx_init_int8(k);
    rg_amx_init_bf16(k);
    k->peak_int8 = peak_int8;
    k->peak_bf16 = peak_bf16;
}
