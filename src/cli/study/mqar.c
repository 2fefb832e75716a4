/* mqar.c -- see mqar.h. */
#include "cli/study/mqar.h"

#include <string.h>

#include "base/rng.h"

/* A random number from 0 to n - 1. */
static int32_t below(uint64_t *x, int32_t n)
{
    return (int32_t)((rg_splitmix64(x) >> 32) * (uint64_t)n >> 32);
}

/* k different numbers of lo .. lo + n - 1 at the beginning of list [n]. */
static void distinct(uint64_t *x, int32_t lo, int32_t n, int32_t k, int32_t *list)
{
    for (int32_t i = 0; i < n; i++)
        list[i] = lo + i;
    for (int32_t a = 0; a < k; a++) {
        int32_t b = a + below(x, n - a), t = list[a];

        list[a] = list[b];
        list[b] = t;
    }
}

/* Places for queries, every second id behind the pairs. */
static int32_t space(const rg_mqar *m)
{
    int32_t n = (m->length - 2 * m->pairs) / 2;

    return m->gap_limit && m->gap_limit < n ? m->gap_limit : n;
}

bool rg_mqar_check(const rg_mqar *m, rg_error *err)
{
    if (m->pairs < 1 || m->vocab_size < 4 || m->length < 1 || m->gap_limit < 0)
        return rg_fail(err, RG_E_USAGE, "recall: %d pairs in %d ids of a vocabulary of %d, gap limit %d: out of range",
                       m->pairs, m->length, m->vocab_size, m->gap_limit);
    if (m->pairs > m->vocab_size / 2 - 1)
        return rg_fail(err, RG_E_USAGE, "recall: a vocabulary of %d has keys for %d pairs, not %d", m->vocab_size,
                       m->vocab_size / 2 - 1, m->pairs);
    if (m->length / 4 < m->pairs || space(m) < m->pairs)
        return rg_fail(err, RG_E_USAGE, "recall: %d ids have no room for %d pairs and as many queries", m->length,
                       m->pairs);
    return true;
}

void rg_mqar_example(const rg_mqar *m, uint64_t e, int32_t *ids, int32_t *targets, int32_t *scratch)
{
    int32_t half = m->vocab_size / 2;
    uint64_t x = rg_splitmix64_example(m->seed, e);

    memset(ids, 0, (size_t)m->length * sizeof *ids);
    for (int32_t i = 0; i < m->length; i++)
        targets[i] = RG_MQAR_UNSCORED;
    distinct(&x, 1, half - 1, m->pairs, scratch);
    for (int32_t i = 0; i < m->pairs; i++)
        ids[2 * i] = scratch[i];
    distinct(&x, half, m->vocab_size - half, m->pairs, scratch);
    for (int32_t i = 0; i < m->pairs; i++)
        ids[2 * i + 1] = scratch[i];
    distinct(&x, 0, space(m), m->pairs, scratch);
    for (int32_t i = 0; i < m->pairs; i++) {
        int32_t at = 2 * m->pairs + 2 * scratch[i];

        ids[at] = ids[2 * i];
        targets[at] = ids[2 * i + 1];
    }
    for (int32_t i = 2 * m->pairs; m->fill && i < m->length; i++)
        if (!ids[i])
            ids[i] = below(&x, m->vocab_size);
}
