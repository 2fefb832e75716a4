/* bpe.c -- see bpe.h.  The word is a linked list of symbols in an array; a heap holds the pairs that can be joined, as
 * (rank, position of the left one) in 64 bits.  A pair that has changed since is recognised when it comes up: its left
 * symbol is gone or knows another rank.  Where the pairs come in order, as in a megabyte of one character, they are
 * taken from a list instead, so that this costs no more than prose. */
#include "text/bpe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/clean.h"

#define NO_RANK UINT32_MAX

typedef struct rg_symbol {
    uint32_t from, n; /* its text in the word; n 0: joined to another */
    int32_t id;       /* -1: unknown so far */
    int32_t prev, next;
    uint32_t rank;  /* of the pair that it makes with the next; NO_RANK: none */
    int32_t joined; /* what that pair becomes */
} symbol;

void rg_bpe_init(rg_bpe *b, const rg_vocab *vocab)
{
    char text[8];

    *b = (rg_bpe){ .vocab = vocab, .unk = -1 };
    for (uint32_t c = 0; c < RG_BPE_DIRECT; c++)
        b->direct[c] = rg_vocab_id(vocab, text, (size_t)rg_utf8_encode(c, text));
    for (int i = 0; i < 256; i++) {
        static const char hex[] = "0123456789ABCDEF";
        memcpy(text, "<0x", 3);
        text[3] = hex[i >> 4];
        text[4] = hex[i & 15];
        text[5] = '>';
        b->byte[i] = rg_vocab_id(vocab, text, 6);
    }
}

void rg_bpe_fini(rg_bpe *b)
{
    rg_dict_free(b->ranks);
    rg_free(b->pairs);
    rg_free(b->joined);
    rg_free(b->order);
    *b = (rg_bpe){ 0 };
}

static bool pair_room(rg_bpe *b, rg_error *err)
{
    size_t room = b->pairs_room ? 2 * b->pairs_room : 1024;
    rg_pair *pairs;
    int32_t *joined;

    if (b->n_pairs < b->pairs_room)
        return true;
    pairs = rg_resize(b->pairs, room * sizeof *pairs);
    if (!pairs)
        return rg_fail_memory(err, room * sizeof *pairs);
    b->pairs = pairs;
    joined = rg_resize(b->joined, room * sizeof *joined);
    if (!joined)
        return rg_fail_memory(err, room * sizeof *joined);
    b->joined = joined;
    b->pairs_room = room;
    return true;
}

bool rg_bpe_add_pair(rg_bpe *b, rg_string left, rg_string right, rg_error *err)
{
    const rg_vocab *v = b->vocab;
    int32_t l = rg_vocab_id(v, left.data, left.n), r = rg_vocab_id(v, right.data, right.n), both = -1;
    char stack[256], one[48], two[48], *text = stack;
    size_t n = left.n + right.n;

    if (left.n && right.n && n <= v->max_bytes) {
        text = n <= sizeof stack ? stack : rg_alloc(n);
        if (!text)
            return rg_fail_memory(err, n);
        memcpy(text, left.data, left.n);
        memcpy(text + left.n, right.data, right.n);
        both = rg_vocab_id(v, text, n);
        if (text != stack)
            rg_free(text);
    }
    if (l < 0 || r < 0 || both < 0)
        return rg_fail(err, RG_E_INPUT, "merge %zu, '%s' with '%s': %s is not in the vocabulary", b->n_pairs,
                       rg_piece_text(left, one), rg_piece_text(right, two),
                       l < 0   ? "the first"
                       : r < 0 ? "the second"
                               : "what they become");
    if (b->n_pairs >= INT32_MAX / 2)
        return rg_fail(err, RG_E_LIMIT, "more than %d merges", INT32_MAX / 2);
    if (!pair_room(b, err))
        return false;
    b->pairs[b->n_pairs] = (rg_pair){ l, r };
    b->joined[b->n_pairs++] = both;
    return true;
}

static int descending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x < y) - (x > y);
}

bool rg_bpe_set_scores(rg_bpe *b, const float *scores, rg_error *err)
{
    size_t n = (size_t)b->vocab->n, kinds = 0;
    float *sorted = rg_array(n, sizeof *sorted);

    b->order = rg_array(n, sizeof *b->order);
    if (!sorted || !b->order)
        return rg_free(sorted), rg_fail_memory(err, n * sizeof *sorted);
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(scores[i])) {
            rg_free(sorted);
            return rg_fail(err, RG_E_INPUT, "the score of id %zu is not a finite number", i);
        }
        sorted[i] = scores[i];
    }
    qsort(sorted, n, sizeof *sorted, descending);
    for (size_t i = 0; i < n; i++)
        if (!kinds || sorted[i] != sorted[kinds - 1])
            sorted[kinds++] = sorted[i];
    for (size_t i = 0; i < n; i++)
        b->order[i] = (uint32_t)((float *)bsearch(&scores[i], sorted, kinds, sizeof *sorted, descending) - sorted);
    rg_free(sorted);
    return true;
}

bool rg_bpe_seal(rg_bpe *b, rg_error *err)
{
    if (b->order)
        return true;
    b->ranks = rg_dict_new(b->n_pairs);
    if (!b->ranks)
        return rg_fail_memory(err, b->n_pairs);
    for (size_t i = 0; i < b->n_pairs; i++) /* of a pair that is listed twice the last place counts */
        if (!rg_dict_put(b->ranks, (const char *)&b->pairs[i], sizeof *b->pairs, (int)i))
            return rg_fail_memory(err, b->n_pairs);
    return true;
}

/* ---- the heap: four children to a node, which is one cache line for two ---- */

/* One more at the end, in no order. */
static bool heap_append(rg_bpe_work *w, uint64_t key, rg_error *err)
{
    if (w->n_heap == w->heap_room) {
        size_t room = w->heap_room ? 2 * w->heap_room : 256;
        uint64_t *heap = rg_resize(w->heap, room * sizeof *heap);
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

/* If the heap's array is in order, it becomes the run, and the heap is empty. */
static bool heap_to_run(rg_bpe_work *w)
{
    uint64_t *heap = w->heap;
    size_t room = w->heap_room;

    for (size_t i = 1; i < w->n_heap; i++)
        if (heap[i - 1] > heap[i])
            return false;
    w->heap = w->run;
    w->heap_room = w->run_room;
    w->run = heap;
    w->run_room = room;
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

/* ---- one word ---- */

void rg_bpe_work_fini(rg_bpe_work *w)
{
    rg_free(w->symbol);
    rg_free(w->heap);
    rg_free(w->run);
    *w = (rg_bpe_work){ 0 };
}

bool rg_ids_add(rg_ids *ids, int32_t id, rg_error *err)
{
    if (ids->n == ids->room) {
        size_t room = ids->room ? 2 * ids->room : 64;
        int32_t *list;
        if (ids->n >= INT32_MAX)
            return rg_fail(err, RG_E_LIMIT, "more than %d ids", INT32_MAX);
        list = rg_resize(ids->id, room * sizeof *list);
        if (!list)
            return rg_fail_memory(err, room * sizeof *list);
        ids->id = list;
        ids->room = room;
    }
    ids->id[ids->n++] = id;
    return true;
}

static bool allowed(const rg_bpe *b, int32_t id, bool plain)
{
    rg_piece_type type = id >= 0 ? b->vocab->type[id] : RG_PIECE_HOLE;

    return b->order ? type == RG_PIECE_NORMAL || type == RG_PIECE_ADDED
                    : type != RG_PIECE_HOLE && !(plain && type == RG_PIECE_SPECIAL);
}

/* The rank of i with its right neighbour, and what they become, into the symbol. */
static void look(const rg_bpe *b, rg_bpe_work *w, int32_t i, const char *text, bool plain)
{
    symbol *s = &w->symbol[i];
    const symbol *next = s->next >= 0 ? &w->symbol[s->next] : NULL;
    int rank = -1, id = -1;

    s->rank = NO_RANK;
    if (!next)
        return;
    if (b->order) {
        id = rg_vocab_id(b->vocab, text + s->from, (size_t)s->n + next->n);
        rank = id >= 0 ? (int)b->order[id] : -1;
    } else if (s->id >= 0 && next->id >= 0) {
        rg_pair pair = { s->id, next->id };
        rank = rg_dict_get(b->ranks, (const char *)&pair, sizeof pair);
        id = rank >= 0 ? b->joined[rank] : -1;
    }
    if (rank >= 0 && allowed(b, id, plain)) {
        s->rank = (uint32_t)rank;
        s->joined = id;
    }
}

static bool offer(const rg_bpe_work *w, int32_t i)
{
    return i >= 0 && w->symbol[i].rank != NO_RANK;
}

static uint64_t key_of(const rg_bpe_work *w, int32_t i)
{
    return (uint64_t)w->symbol[i].rank << 32 | (uint32_t)i;
}

static bool merge_all(const rg_bpe *b, rg_bpe_work *w, const char *text, bool plain, rg_error *err)
{
    uint64_t key;

    w->n_heap = w->n_run = w->run_at = 0;
    for (int32_t i = 0; (size_t)i < w->n; i++) {
        look(b, w, i, text, plain);
        if (offer(w, i) && !heap_append(w, key_of(w, i), err))
            return false;
    }
    if (!heap_to_run(w))
        for (size_t i = (w->n_heap - 2) / 4 + 1; i-- > 0;)
            heap_sink(w, i, w->heap[i]);
    while (next_pair(w, &key)) {
        int32_t i = (int32_t)(uint32_t)key;
        symbol *s = &w->symbol[i], *next;

        if (!s->n || s->rank != key >> 32)
            continue;
        next = &w->symbol[s->next];
        s->n += next->n;
        s->id = s->joined;
        s->next = next->next;
        next->n = 0;
        if (s->next >= 0)
            w->symbol[s->next].prev = i;
        look(b, w, i, text, plain);
        if (offer(w, i) && !heap_push(w, key_of(w, i), err))
            return false;
        if (s->prev < 0)
            continue;
        look(b, w, s->prev, text, plain);
        if (offer(w, s->prev) && !heap_push(w, key_of(w, s->prev), err))
            return false;
    }
    return true;
}

static bool symbol_add(rg_bpe_work *w, int32_t id, size_t from, size_t n, rg_error *err)
{
    if (w->n == w->symbol_room) {
        size_t room = w->symbol_room ? 2 * w->symbol_room : 128;
        symbol *list = rg_resize(w->symbol, room * sizeof *list);
        if (!list)
            return rg_fail_memory(err, room * sizeof *list);
        w->symbol = list;
        w->symbol_room = room;
    }
    w->symbol[w->n] = (symbol){ (uint32_t)from, (uint32_t)n, id, (int32_t)w->n - 1, -1, NO_RANK, -1 };
    if (w->n)
        w->symbol[w->n - 1].next = (int32_t)w->n;
    w->n++;
    return true;
}

/* The ids of the bytes that the clean characters s[0, n) stand for, into out; their number, or 0 if one has no id. */
static int bytes_of(const rg_bpe *b, const char *s, int n, int32_t out[4])
{
    int stray = rg_clean_stray(s, n);

    if (!b->byte_fallback)
        return 0;
    if (stray >= 0) {
        out[0] = b->byte[stray];
        return out[0] >= 0;
    }
    for (int i = 0; i < n; i++)
        if ((out[i] = b->byte[(unsigned char)s[i]]) < 0)
            return 0;
    return n;
}

static int32_t char_id(const rg_bpe *b, const char *s, int n, bool plain)
{
    uint32_t c = rg_utf8_code(s, n);
    int32_t id = c < RG_BPE_DIRECT ? b->direct[c] : rg_vocab_id(b->vocab, s, (size_t)n);

    return allowed(b, id, plain) ? id : -1;
}

/* By ranks: unknown characters become bytes, or unknowns, before anything is joined. */
static bool start_by_ranks(const rg_bpe *b, rg_bpe_work *w, rg_string word, bool plain, rg_error *err)
{
    bool pending = false; /* an unknown that may still grow */

    for (size_t i = 0; i < word.n;) {
        int n = rg_clean_length(word.data + i), n_bytes = 0;
        int32_t id = char_id(b, word.data + i, n, plain), bytes[4];

        if (id < 0)
            n_bytes = bytes_of(b, word.data + i, n, bytes);
        if ((id >= 0 || (!n_bytes && !b->fuse_unk)) && pending) {
            if (!symbol_add(w, b->unk, i, 1, err))
                return false;
            pending = false;
        }
        if (id >= 0 && !symbol_add(w, id, i, (size_t)n, err))
            return false;
        for (int k = 0; k < n_bytes; k++)
            if (!symbol_add(w, bytes[k], i, 1, err))
                return false;
        pending |= id < 0 && !n_bytes && b->unk >= 0;
        i += (size_t)n;
    }
    return !pending || symbol_add(w, b->unk, 0, 1, err);
}

static bool start_by_scores(const rg_bpe *b, rg_bpe_work *w, rg_string word, bool plain, rg_error *err)
{
    for (size_t i = 0; i < word.n;) {
        int n = rg_clean_length(word.data + i);
        if (!symbol_add(w, char_id(b, word.data + i, n, plain), i, (size_t)n, err))
            return false;
        i += (size_t)n;
    }
    return true;
}

/* By scores, a symbol that is still no piece is one character: its bytes, or an unknown. */
static bool add_unknown(const rg_bpe *b, const symbol *s, const char *text, rg_ids *ids, rg_error *err)
{
    int32_t bytes[4];
    int n = bytes_of(b, text + s->from, (int)s->n, bytes);

    if (!n && b->unk >= 0)
        return rg_ids_add(ids, b->unk, err);
    for (int i = 0; i < n; i++)
        if (!rg_ids_add(ids, bytes[i], err))
            return false;
    return true;
}

bool rg_bpe_encode(const rg_bpe *b, rg_bpe_work *w, rg_string word, bool plain, rg_ids *ids, rg_error *err)
{
    if (!word.n)
        return true;
    if (word.n > INT32_MAX)
        return rg_fail(err, RG_E_LIMIT, "a word of %zu bytes, more than %d", word.n, INT32_MAX);
    if (b->ignore_merges) {
        int32_t id = rg_vocab_id(b->vocab, word.data, word.n);
        if (allowed(b, id, plain))
            return rg_ids_add(ids, id, err);
    }
    w->n = 0;
    if (!(b->order ? start_by_scores : start_by_ranks)(b, w, word, plain, err))
        return false;
    if (w->n > 1 && !merge_all(b, w, word.data, plain, err))
        return false;
    for (int32_t i = w->n ? 0 : -1; i >= 0; i = w->symbol[i].next) {
        const symbol *s = &w->symbol[i];
        if (s->id >= 0 ? !rg_ids_add(ids, s->id, err) : !add_unknown(b, s, word.data, ids, err))
            return false;
    }
    return true;
}
