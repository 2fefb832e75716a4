/* emulated_amx_bf16.c -- src/ops/cpu/amx/bf16.c on a processor without its instructions. */
#include "support/emulated.h"

#include "ops/cpu/amx/bf16.c"
