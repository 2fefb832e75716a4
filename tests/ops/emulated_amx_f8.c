/* emulated_amx_f8.c -- src/ops/cpu/amx/f8.c on a processor without its instructions. */
#include "support/emulated.h"

#include "ops/cpu/amx/f8.c"
