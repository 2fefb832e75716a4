/* sight.c -- see sight.h. */
#include "ops/sight.h"

#include <string.h>

const rg_sight rg_sight_all = { 0 };

static int64_t min_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t max_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* ---- what a row sees --------------------------------------------------------------------------------------------- */

/* The bits of keys lo <= j < hi in the block that begins at `base`. */
static uint64_t between(int64_t base, int64_t lo, int64_t hi)
{
    lo = max_of(lo - base, 0);
    hi = min_of(hi - base, RG_BLOCK);
    return lo >= hi ? 0 : ~0ull >> (RG_BLOCK - (hi - lo)) << lo;
}

/* Keys lo <= j <= i with (i - j) mod step = 0. */
static uint64_t every(int64_t base, int64_t lo, int64_t i, int64_t step)
{
    int64_t j = min_of(i, base + RG_BLOCK - 1);
    uint64_t bits = 0;

    j -= (i - j) % step ? step - (i - j) % step : 0;
    for (; j >= max_of(lo, base); j -= step)
        bits |= 1ull << (j - base);
    return bits;
}

static uint64_t summary(int64_t base, const rg_sight_term *t)
{
    uint64_t bits = 0;

    for (int64_t at = base / t->size * t->size; at < base + RG_BLOCK; at += t->size)
        bits |= between(base, at + t->size - t->step, at + t->size);
    return bits;
}

static bool is_listed(const rg_patterns *p, int32_t j)
{
    for (int n = 0; n < p->n_listed; n++)
        if (p->listed[n] == j)
            return true;
    return false;
}

static uint64_t listed(const rg_patterns *p, int64_t base, int32_t i)
{
    uint64_t bits = 0;

    if (is_listed(p, i))
        return ~0ull;
    for (int n = 0; n < p->n_listed; n++)
        bits |= between(base, p->listed[n], (int64_t)p->listed[n] + 1);
    return bits;
}

static uint64_t term_bits(const rg_patterns *p, const rg_sight_term *t, int64_t base, int32_t i)
{
    switch (t->kind) {
    case RG_TERM_ALL: return ~0ull;
    case RG_TERM_WINDOW:
        if (t->step == 1)
            return between(base, (int64_t)i - t->size + 1, (int64_t)i + 1);
        return every(base, i - (t->size - 1) * (int64_t)t->step, i, t->step);
    case RG_TERM_STRIDE: return every(base, 0, i, t->size);
    case RG_TERM_CHUNK: return between(base, i / t->size * t->size, (int64_t)i + 1);
    case RG_TERM_SUMMARY: return summary(base, t);
    case RG_TERM_FIRST: return between(base, 0, t->size);
    case RG_TERM_LISTED: return listed(p, base, i);
    }
    return 0;
}

uint64_t rg_sight_bits(const rg_sight *s, int head, int32_t i, int32_t kv_end, int32_t block)
{
    const int64_t base = (int64_t)block * RG_BLOCK;

    if (s->patterns) {
        const rg_pattern *p = &s->patterns->patterns[s->patterns->of_head[head]];
        uint64_t bits = between(base, i, (int64_t)i + 1);

        for (int n = 0; n < p->n_terms; n++)
            bits |= term_bits(s->patterns, &p->terms[n], base, i);
        return bits & between(base, 0, min_of((int64_t)i + 1, kv_end));
    }
    return between(base, s->window ? (int64_t)i + 1 - s->window : 0, rg_sight_end(s, i, kv_end));
}

/* The first key that a term admits to a row at i. */
static int64_t term_low(const rg_patterns *p, const rg_sight_term *t, int32_t i)
{
    switch (t->kind) {
    case RG_TERM_WINDOW: return max_of(i - (t->size - 1) * (int64_t)t->step, 0);
    case RG_TERM_STRIDE: return i % t->size;
    case RG_TERM_CHUNK: return i / t->size * t->size;
    case RG_TERM_SUMMARY: return t->size - t->step;
    case RG_TERM_LISTED: return is_listed(p, i) || !p->n_listed ? 0 : p->listed[0];
    default: return 0;
    }
}

int32_t rg_sight_low(const rg_sight *s, int32_t i)
{
    int64_t low = i;

    if (!s->patterns)
        return (int32_t)(s->window ? max_of((int64_t)i + 1 - s->window, 0) : 0);
    for (int k = 0; k < s->patterns->n_patterns; k++)
        for (int n = 0; n < s->patterns->patterns[k].n_terms; n++)
            low = min_of(low, term_low(s->patterns, &s->patterns->patterns[k].terms[n], i));
    return (int32_t)low;
}

static int64_t blocks_of(int64_t n)
{
    return n / RG_BLOCK + (n % RG_BLOCK > 0);
}

/* n neighbours touch at most so many blocks. */
static int64_t touched(int64_t n)
{
    return (n + RG_BLOCK - 2) / RG_BLOCK + 1;
}

/* Blocks from that of key `low` to that of the row. */
static int64_t blocks_from(int64_t low, int32_t i)
{
    return i / RG_BLOCK - low / RG_BLOCK + 1;
}

typedef struct amount {
    int64_t keys, blocks;
} amount;

static amount term_amount(const rg_patterns *p, const rg_sight_term *t, int32_t i)
{
    const int64_t all = (int64_t)i + 1, low = term_low(p, t, i);
    int64_t n = 0;

    switch (t->kind) {
    case RG_TERM_ALL: break;
    case RG_TERM_WINDOW:
        n = min_of(t->size, i / t->step + 1);
        return (amount){ n, min_of(n, blocks_from(low, i)) };
    case RG_TERM_STRIDE: return (amount){ i / t->size + 1, min_of(i / t->size + 1, blocks_of(all)) };
    case RG_TERM_CHUNK: return (amount){ all - low, blocks_from(low, i) };
    case RG_TERM_SUMMARY:
        n = all / t->size;
        return (amount){ n * t->step + max_of(all % t->size - t->size + t->step, 0), (n + 1) * touched(t->step) };
    case RG_TERM_FIRST: return (amount){ t->size, blocks_of(t->size) };
    case RG_TERM_LISTED:
        if (is_listed(p, i))
            break;
        for (int k = 0; k < p->n_listed; k++)
            n += p->listed[k] <= i;
        return (amount){ n, n };
    }
    return (amount){ all, blocks_of(all) };
}

/* Does the term admit the row's own key, wherever the row is? */
static bool sees_own(const rg_sight_term *t)
{
    return t->kind != RG_TERM_SUMMARY && t->kind != RG_TERM_FIRST && t->kind != RG_TERM_LISTED;
}

rg_seen rg_sight_count(const rg_sight *s, int head, int32_t i)
{
    const int64_t all = (int64_t)i + 1, low = rg_sight_low(s, i);
    amount sum = { 0 };

    if (!s->patterns)
        return (rg_seen){ (double)(all - low), (double)blocks_from(low, i) };
    const rg_pattern *p = &s->patterns->patterns[s->patterns->of_head[head]];
    bool has_own = false;
    for (int n = 0; n < p->n_terms; n++) {
        const amount one = term_amount(s->patterns, &p->terms[n], i);

        has_own = has_own || sees_own(&p->terms[n]);
        sum.keys += one.keys;
        sum.blocks += one.blocks;
    }
    return (rg_seen){ (double)min_of(sum.keys + !has_own, all), (double)min_of(sum.blocks + !has_own, blocks_of(all)) };
}

int32_t rg_sight_most(const rg_sight *s)
{
    int64_t most = s->window;

    for (int k = 0; s->patterns && k < s->patterns->n_patterns; k++) {
        int64_t sum = 1;

        for (int n = 0; n < s->patterns->patterns[k].n_terms; n++) {
            const rg_sight_term *t = &s->patterns->patterns[k].terms[n];

            if (t->kind != RG_TERM_WINDOW && t->kind != RG_TERM_CHUNK && t->kind != RG_TERM_FIRST)
                return 0;
            sum += t->size;
        }
        most = max_of(most, sum);
    }
    return (int32_t)min_of(most, INT32_MAX);
}

/* ---- what stays -------------------------------------------------------------------------------------------------- */

static void keep_all(rg_kept *k)
{
    *k = (rg_kept){ .all = true };
}

static void keep_window(rg_kept *k, int64_t window)
{
    if (window >= INT32_MAX)
        keep_all(k);
    else
        k->window = (int32_t)max_of(k->window, window);
}

/* Where two sizes of chunks do not divide each other, neither begins before the other everywhere; a window of the
 * larger size does. */
static void keep_chunk(rg_kept *k, int32_t size)
{
    if (!k->chunk || size % k->chunk == 0) {
        k->chunk = size;
    } else if (k->chunk % size) {
        keep_window(k, max_of(k->chunk, size));
        k->chunk = 0;
    }
}

static void keep_summary(rg_kept *k, const rg_sight_term *t)
{
    if (t->size <= RG_BLOCK || t->step >= t->size || (k->period && k->period != t->size)) {
        keep_all(k); /* of small periods, every block has some */
        return;
    }
    k->period = t->size;
    k->columns = (int32_t)max_of(k->columns, t->step);
}

static bool same_list(const int32_t *a, int n, const int32_t *b, int m)
{
    return n == m && (!n || !memcmp(a, b, (size_t)n * sizeof *a));
}

static void keep_listed(rg_kept *k, const rg_patterns *p)
{
    if (!p->n_listed)
        return;
    if (k->n_listed && !same_list(k->listed, k->n_listed, p->listed, p->n_listed)) {
        keep_all(k);
        return;
    }
    k->listed = p->listed;
    k->n_listed = p->n_listed;
    k->until = p->listed[p->n_listed - 1];
}

static void keep_term(rg_kept *k, const rg_patterns *p, const rg_sight_term *t)
{
    switch (t->kind) {
    case RG_TERM_ALL:
    case RG_TERM_STRIDE: keep_all(k); break; /* every position is at a multiple of the stride from some later row */
    case RG_TERM_WINDOW: keep_window(k, (t->size - 1) * (int64_t)t->step + 1); break;
    case RG_TERM_CHUNK: keep_chunk(k, t->size); break;
    case RG_TERM_SUMMARY: keep_summary(k, t); break;
    case RG_TERM_FIRST: k->first = (int32_t)max_of(k->first, t->size); break;
    case RG_TERM_LISTED: keep_listed(k, p); break;
    }
}

void rg_kept_add(rg_kept *k, const rg_sight *s)
{
    if (!k->all && !s->patterns && !s->window)
        keep_all(k);
    if (!k->all)
        keep_window(k, s->patterns ? 1 : s->window);
    for (int i = 0; s->patterns && i < s->patterns->n_patterns; i++)
        for (int n = 0; n < s->patterns->patterns[i].n_terms && !k->all; n++)
            keep_term(k, s->patterns, &s->patterns->patterns[i].terms[n]);
}

bool rg_kept_same(const rg_kept *a, const rg_kept *b)
{
    return a->all == b->all && a->window == b->window && a->chunk == b->chunk && a->first == b->first &&
           a->period == b->period && a->columns == b->columns && a->until == b->until &&
           same_list(a->listed, a->n_listed, b->listed, b->n_listed);
}

int32_t rg_kept_from(const rg_kept *k, int32_t p)
{
    int64_t from = (int64_t)p - k->window + 1;

    if (k->all || (k->n_listed && p <= k->until))
        return 0;
    if (k->chunk)
        from = min_of(from, p / k->chunk * k->chunk);
    return (int32_t)(max_of(from, 0) / RG_BLOCK);
}

bool rg_kept_for_good(const rg_kept *k, int32_t block)
{
    const int64_t base = (int64_t)block * RG_BLOCK, end = base + RG_BLOCK;
    bool yes = k->all || base < k->first;

    for (int n = 0; n < k->n_listed && !yes; n++)
        yes = k->listed[n] >= base && k->listed[n] < end;
    if (yes || !k->period)
        return yes;
    /* The last columns of the period of the block's first position end at `last`; those of the next begin behind it. */
    int64_t last = base / k->period * k->period + k->period;
    return last - k->columns < end;
}

int64_t rg_kept_blocks(const rg_kept *k, int64_t n, int64_t rows)
{
    int64_t all = blocks_of(n);
    int64_t most = touched(max_of(k->window, k->chunk) + rows - 1) + blocks_of(k->first) + k->n_listed;

    if (k->all)
        return all;
    if (k->n_listed)
        most = max_of(most, blocks_of(min_of(n, (int64_t)k->until + 1)));
    if (k->period)
        most += (min_of(n, (int64_t)1 << 40) / k->period + 1) * touched(k->columns);
    return min_of(most, all);
}

bool rg_kept_grows(const rg_kept *k)
{
    return k->all || k->period || k->n_listed;
}
