/* emulated_avx512_bf16.c -- src/ops/cpu/avx512/bf16.c on a processor without its instructions. */
#include "support/emulated.h"

#include "ops/cpu/avx512/bf16.c"
