/* sight.h -- which keys a row sees, pair by pair, as sight.h of ops defines the terms. */
#ifndef RG_TEST_SIGHT_H
#define RG_TEST_SIGHT_H

#include "ops/sight.h"

static inline bool test_listed(const rg_patterns *p, int j)
{
    for (int n = 0; n < p->n_listed; n++)
        if (p->listed[n] == j)
            return true;
    return false;
}

static inline bool test_admits(const rg_patterns *p, const rg_sight_term *t, int i, int j)
{
    switch (t->kind) {
    case RG_TERM_ALL: return true;
    case RG_TERM_WINDOW: return (i - j) % t->step == 0 && (i - j) / t->step < t->size;
    case RG_TERM_STRIDE: return (i - j) % t->size == 0;
    case RG_TERM_CHUNK: return i / t->size == j / t->size;
    case RG_TERM_SUMMARY: return j % t->size >= t->size - t->step;
    case RG_TERM_FIRST: return j < t->size;
    case RG_TERM_LISTED: return test_listed(p, i) || test_listed(p, j);
    }
    return false;
}

/* Does a causal row at i see the key at j? */
static inline bool test_sees(const rg_sight *s, int head, int i, int j)
{
    const rg_pattern *p;
    bool yes = i == j;

    if (j > i || j < 0)
        return false;
    if (!s->patterns)
        return !s->window || i - j < s->window;
    p = &s->patterns->patterns[s->patterns->of_head[head]];
    for (int n = 0; n < p->n_terms && !yes; n++)
        yes = test_admits(s->patterns, &p->terms[n], i, j);
    return yes;
}

#endif
