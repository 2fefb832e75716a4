/* tiles.h -- what the files of this folder share: how tile registers are laid out for what comes next. */
#ifndef RG_OPS_CPU_AMX_TILES_H
#define RG_OPS_CPU_AMX_TILES_H

#include <immintrin.h>

#include "ops/cpu/kernels.h"

void rg_amx_init_bf16(rg_cpu *k); /* bf16 weights */
void rg_amx_init_int8(rg_cpu *k); /* integer weights */

/* As the instruction reads it: palette 1, then bytes per row and rows of each tile. */
typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

/* gcc 12 does not know what its tile instructions read (8 bytes of the configuration, nothing of a tile): before them,
 * what they read must be stored. */
static inline void stored(const void *p)
{
    __asm__ volatile("" : : "r"(p) : "memory");
}

static inline void load_config(const tile_config *c)
{
    stored(c);
    _tile_loadconfig(c);
}

#endif
