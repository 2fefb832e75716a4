/* emulated_avx2_vnni.c -- src/ops/cpu/avx2/vnni.c on a processor without its instruction. */
#include "support/emulated.h"

#include "ops/cpu/avx2/vnni.c"
