/* emulated_avx512_unfold_vbmi.c -- src/ops/cpu/avx512/unfold_vbmi.c on a processor without its instructions. */
#include "support/emulated.h"

#include "ops/cpu/avx512/unfold_vbmi.c"
