/* bpe_merge.c -- joining the symbols of one word.
 *
 * The word is a list of symbols in an array; a heap holds the pairs that can be joined, as (rank, position of the left
 * one) in 64 bits.  A pair that has changed since is recognised when it is taken: its left symbol was joined, or has
 * another rank.  Where many pairs wait they are sorted and taken from a list, and a text that repeats itself is joined
 * in sweeps, so that a megabyte of one character costs no more than ordinary text. */
#include <string.h>

#include "base/mem.h"
#include "text/bpe_word.h"

typedef rg_symbol symbol;

enum {
    MEMO = 1 << 10,
    MEMO_FROM = 64, /* symbols: for fewer it is slower */
    SORT_FROM = 1 << 10,
    SWEEP_FROM = 1 << 8,
    SWEEP_SHARE = 32,
    POOR_SWEEPS = 4,
};

/* ---- the heap: four children to a node, which is one cache line for two ---- */

/* One more at the end, in no order. */
static bool heap_append(rg_bpe_work *w, uint64_t key, rg_error *err)
{
    if (w->n_heap == w->heap_room) {
        size_t room = w->heap_room ? 2 * w->heap_room : 256;
        uint64_t *heap = rg_resize_array(w->heap, room, sizeof *heap);
        if (!heap)
            return rg_fail_memory(err, room * sizeof *heap);
        w->heap = heap;
        w->heap_room = room;
    }
    w->heap[w->n_heap++] = key;
    return true;
}

static bool heap_push(rg_bpe_work *w, uint64_t key, rg_error *err)
{
    size_t i = w->n_heap;

    if (!heap_append(w, key, err))
        return false;
    while (i && w->heap[(i - 1) / 4] > key) {
        w->heap[i] = w->heap[(i - 1) / 4];
        i = (i - 1) / 4;
    }
    w->heap[i] = key;
    return true;
}

/* Put key where i is, or below it. */
static void heap_sink(rg_bpe_work *w, size_t i, uint64_t key)
{
    size_t child;

    while ((child = 4 * i + 1) < w->n_heap) {
        size_t end = child + 4 < w->n_heap ? child + 4 : w->n_heap, best = child;
        for (size_t k = child + 1; k < end; k++)
            if (w->heap[k] < w->heap[best])
                best = k;
        if (w->heap[best] >= key)
            break;
        w->heap[i] = w->heap[best];
        i = best;
    }
    w->heap[i] = key;
}

static bool grow_keys(uint64_t **keys, size_t *room, size_t n)
{
    uint64_t *more = n <= *room ? NULL : rg_resize_array(*keys, n, sizeof **keys);

    if (n > *room && !more)
        return false;
    if (more) {
        *keys = more;
        *room = n;
    }
    return true;
}

static void swap_keys(rg_bpe_work *w)
{
    uint64_t *keys = w->heap;
    size_t room = w->heap_room;

    w->heap = w->run;
    w->heap_room = w->run_room;
    w->run = keys;
    w->run_room = room;
}

/* Sort the heap's array by digits, with the run's for a spare; the result is in the run's. */
static void sort_keys(rg_bpe_work *w)
{
    uint64_t all = 0;

    for (size_t i = 0; i < w->n_heap; i++)
        all |= w->heap[i];
    swap_keys(w);
    for (int shift = 0; shift < 64 && all >> shift; shift += 11) {
        uint32_t start[2049] = { 0 };
        if (!(all >> shift & 2047))
            continue;
        swap_keys(w);
        for (size_t i = 0; i < w->n_heap; i++)
            start[(w->heap[i] >> shift & 2047) + 1]++;
        for (int k = 0; k < 2048; k++)
            start[k + 1] += start[k];
        for (size_t i = 0; i < w->n_heap; i++)
            w->run[start[w->heap[i] >> shift & 2047]++] = w->heap[i];
    }
}

/* Turn the heap into the sorted run if its array is sorted, or if it is large; sorting costs less than taking the pairs
 * out one by one.  False: it stays a heap. */
static bool heap_to_run(rg_bpe_work *w)
{
    size_t sorted = w->n_heap > 0;

    while (sorted && sorted < w->n_heap && w->heap[sorted - 1] < w->heap[sorted])
        sorted++;
    if (sorted == w->n_heap)
        swap_keys(w);
    else if (w->n_heap >= SORT_FROM && grow_keys(&w->run, &w->run_room, w->n_heap))
        sort_keys(w); /* without memory for it, it only takes longer */
    else
        return false;
    w->n_run = w->n_heap;
    w->run_at = 0;
    w->n_heap = 0;
    return true;
}

/* The least pair; false when there is none. */
static bool next_pair(rg_bpe_work *w, uint64_t *key)
{
    if (w->run_at < w->n_run && (!w->n_heap || w->run[w->run_at] <= w->heap[0])) {
        *key = w->run[w->run_at++];
        if (w->run_at == w->n_run) {
            w->n_run = w->run_at = 0;
            heap_to_run(w); /* tried once for a run's length of pairs */
        }
        return true;
    }
    if (!w->n_heap)
        return false;
    *key = w->heap[0];
    if (--w->n_heap)
        heap_sink(w, 0, w->heap[w->n_heap]);
    return true;
}

/* ---- pairs ---- */

/* What two neighbours become by scores.  What two pieces become is remembered; unknown characters may be part of a
 * piece too, and only their text can tell. */
static rg_pair_slot by_score(const rg_bpe *b, rg_bpe_work *w, const symbol *s, const symbol *next, const char *text)
{
    uint64_t pair = rg_pair_key(s->id, next->id);
    bool known = w->memo && s->id >= 0 && next->id >= 0;
    rg_pair_slot *memo = known ? &w->memo[pair * 0x9E3779B97F4A7C15U >> 54] : NULL, found;

    if (memo && memo->pair == pair)
        return *memo;
    found = (rg_pair_slot){ pair, RG_NO_RANK, rg_vocab_id(b->vocab, text + s->from, (size_t)s->n + next->n) };
    if (found.joined >= 0)
        found.rank = b->order[found.joined];
    if (memo)
        *memo = found;
    return found;
}

/* The rank of the pair that s makes with the next. */
static inline uint32_t rank_of(const rg_bpe *b, rg_bpe_work *w, const symbol *s, const symbol *next, const char *text,
                               bool plain)
{
    rg_pair_slot found;

    if (b->order) {
        found = by_score(b, w, s, next, text);
    } else {
        const rg_pair_slot *slot;
        if (s->id < 0 || next->id < 0)
            return RG_NO_RANK;
        slot = rg_pair_find(b, rg_pair_key(s->id, next->id));
        if (!plain || slot->rank == RG_NO_RANK) /* no pair becomes a hole */
            return slot->rank;
        found = *slot;
    }
    return found.rank != RG_NO_RANK && rg_bpe_allowed(b, found.joined, plain) ? found.rank : RG_NO_RANK;
}

/* What s becomes with its right neighbour: their pair has a rank. */
static int32_t joined(const rg_bpe *b, rg_bpe_work *w, const symbol *s, const symbol *next, const char *text)
{
    return b->order ? by_score(b, w, s, next, text).joined : b->joined[s->rank];
}

/* ---- sweeps ---- */

/* The first rank among the pairs of neighbours, and how many have it. */
typedef struct least {
    uint32_t rank;
    size_t n;
} least;

static least count_all(const rg_bpe_work *w)
{
    least l = { .rank = RG_NO_RANK };

    for (size_t i = 0; i + 1 < w->n; i++) {
        uint32_t rank = w->symbol[i].rank;
        if (rank < l.rank)
            l = (least){ rank, 0 };
        l.n += rank == l.rank;
    }
    return l;
}

/* A sweep: symbols before `to` are written, those from `at` on are not looked at yet. */
typedef struct sweeping {
    const rg_bpe *b;
    rg_bpe_work *w;
    const char *text;
    bool plain;
    uint32_t rank;
    size_t to, at;
} sweeping;

/* Join the symbol at `at` with the next, and the result with its neighbours as long as those pairs have the same rank,
 * the left one first.  False: joining made a pair of an earlier rank. */
static bool sweep_join(sweeping *z, symbol *now)
{
    symbol *s = z->w->symbol, last;
    const symbol *next = &s[z->at + 1];
    uint32_t left = RG_NO_RANK;

    for (*now = s[z->at++];; next = left == z->rank ? &last : &s[z->at]) {
        now->id = joined(z->b, z->w, now, next, z->text);
        now->n += next->n;
        z->at += next != &last;
        now->rank = z->at < z->w->n ? rank_of(z->b, z->w, now, &s[z->at], z->text, z->plain) : RG_NO_RANK;
        left = z->to ? rank_of(z->b, z->w, &s[z->to - 1], now, z->text, z->plain) : RG_NO_RANK;
        if (z->to)
            s[z->to - 1].rank = left;
        if (left < z->rank || now->rank < z->rank)
            return false;
        if (left > z->rank && now->rank > z->rank)
            return true;
        if (left == z->rank) {
            last = *now;
            *now = s[--z->to];
        }
    }
}

/* Join the pairs of the first rank from left to right; the symbols stay packed.  False: joining made a pair of an
 * earlier rank; the symbols are then correct up to that point. */
static bool sweep(sweeping *z)
{
    rg_bpe_work *w = z->w;
    symbol *s = w->symbol;
    bool on = true;

    for (z->to = z->at = 0; z->at < w->n; z->to++) {
        symbol now;
        if (on && s[z->at].rank == z->rank)
            on = sweep_join(z, &now);
        else
            now = s[z->at++];
        s[z->to] = now;
    }
    w->n = z->to; /* the last one has no neighbour, and no rank */
    return on;
}

/* While many of the neighbours are pairs of the first rank, as in a text that repeats itself, joining them in one sweep
 * costs far less than one by one.  A few sweeps may join little, since the ends of such a text often have an earlier
 * rank. */
static void sweep_all(const rg_bpe *b, rg_bpe_work *w, const char *text, bool plain)
{
    sweeping z = { .b = b, .w = w, .text = text, .plain = plain };

    for (int poor = 0; w->n >= SWEEP_FROM;) {
        least first = count_all(w);
        z.rank = first.rank;
        poor += first.n < w->n / SWEEP_SHARE;
        if (first.rank == RG_NO_RANK || poor > POOR_SWEEPS || !sweep(&z))
            break;
    }
}

/* ---- one word ---- */

static uint64_t key_of(const symbol *s, const rg_bpe_work *w)
{
    return (uint64_t)s->rank << 32 | (uint32_t)(s - w->symbol);
}

/* Ranks of all neighbours, and what can be joined in sweeps; then links, and a heap of the pairs that are left. */
static bool begin(const rg_bpe *b, rg_bpe_work *w, const char *text, bool plain, rg_error *err)
{
    size_t n = 0;

    if (b->order && !w->memo && w->n >= MEMO_FROM) {
        w->memo = rg_alloc_tail(0, MEMO, sizeof *w->memo);
        if (!w->memo)
            return rg_fail_memory(err, MEMO * sizeof *w->memo);
        memset(w->memo, 0xFF, MEMO * sizeof *w->memo); /* no pair is that */
    }
    for (size_t i = 0; i + 1 < w->n; i++)
        w->symbol[i].rank = rank_of(b, w, &w->symbol[i], &w->symbol[i + 1], text, plain);
    sweep_all(b, w, text, plain);
    w->n_heap = w->n_run = w->run_at = 0;
    for (size_t i = 0; i < w->n; i++)
        n += w->symbol[i].rank != RG_NO_RANK;
    if (!grow_keys(&w->heap, &w->heap_room, n))
        return rg_fail_memory(err, n * sizeof *w->heap);
    for (size_t i = 0; i < w->n; i++) {
        symbol *s = &w->symbol[i];
        s->prev = (int32_t)i - 1;
        s->next = i + 1 < w->n ? (int32_t)i + 1 : -1;
        if (s->rank != RG_NO_RANK && !heap_append(w, key_of(s, w), err))
            return false;
    }
    if (!heap_to_run(w) && w->n_heap > 1)
        for (size_t i = (w->n_heap - 2) / 4 + 1; i-- > 0;)
            heap_sink(w, i, w->heap[i]);
    return true;
}

static bool offer(const rg_bpe *b, rg_bpe_work *w, symbol *s, const char *text, bool plain, rg_error *err)
{
    s->rank = s->next >= 0 ? rank_of(b, w, s, &w->symbol[s->next], text, plain) : RG_NO_RANK;
    return s->rank == RG_NO_RANK || heap_push(w, key_of(s, w), err);
}

bool rg_bpe_merge(const rg_bpe *b, rg_bpe_work *w, const char *text, bool plain, rg_error *err)
{
    uint64_t key;

    if (!begin(b, w, text, plain, err))
        return false;
    while (next_pair(w, &key)) {
        symbol *s = &w->symbol[(uint32_t)key], *next;

        if (!s->n || s->rank != key >> 32)
            continue;
        next = &w->symbol[s->next];
        s->id = joined(b, w, s, next, text);
        s->n += next->n;
        s->next = next->next;
        next->n = 0;
        if (s->next >= 0)
            w->symbol[s->next].prev = (int32_t)(s - w->symbol);
        if (!offer(b, w, s, text, plain, err) ||
            (s->prev >= 0 && !offer(b, w, &w->symbol[s->prev], text, plain, err)))
            return false;
    }
    return true;
}
