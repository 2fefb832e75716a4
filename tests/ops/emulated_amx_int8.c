/* emulated_amx_int8.c -- src/ops/cpu/amx/int8.c on a processor without its instructions. */
#include "support/emulated.h"

#include "ops/cpu/amx/int8.c"
