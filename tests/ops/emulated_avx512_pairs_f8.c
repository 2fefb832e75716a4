/* emulated_avx512_pairs_f8.c -- src/ops/cpu/avx512/pairs_f8.c on a processor without its instructions. */
#include "support/emulated.h"

#include "ops/cpu/avx512/pairs_f8.c"
