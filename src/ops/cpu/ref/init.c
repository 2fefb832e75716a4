/* init.c -- the table of the reference: every kernel in plain C.  It has no peaks of its own to measure. */
#include "ops/cpu/ref/init.h"

#include <string.h>

static uint64_t stream(const void *p, size_t n)
{
    const uint8_t *bytes = p;
    uint64_t lane[8] = { 0 }, word[8], sum = 0;
    size_t i = 0;

    for (; i + sizeof word <= n; i += sizeof word) {
        memcpy(word, bytes + i, sizeof word);
        for (int k = 0; k < 8; k++)
            lane[k] += word[k];
    }
    for (; i < n; i++)
        sum += bytes[i];
    for (int k = 0; k < 8; k++)
        sum += lane[k];
    return sum;
}

void rg_cpu_init_ref(rg_cpu *k)
{
    memset(k, 0, sizeof *k);
    k->isa = "ref";
    rg_cpu_panels_ref(k);
    rg_cpu_rows_ref(k);
    rg_cpu_loops_ref(k);
    k->stream = stream;
}
