/* emulated_amx_amx.c -- src/ops/cpu/amx/amx.c on a processor without its instructions. */
#include "support/emulated.h"

#include "ops/cpu/amx/amx.c"
