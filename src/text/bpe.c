/* bpe.c -- see bpe.h: vocabularies and merges, and a word's characters as the symbols that bpe_merge.c joins. */
#include "text/bpe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "text/bpe_word.h"
#include "text/bytelevel.h"
#include "text/clean.h"
#include "text/internal.h"

#define META    "\xE2\x96\x81"

void rg_bpe_init(rg_bpe *b, const rg_vocab *vocab)
{
    char text[8];

    *b = (rg_bpe){ .vocab = vocab, .unk = -1 };
    for (uint32_t c = 0; c < RG_BPE_DIRECT; c++)
        b->direct[c] = rg_vocab_id(vocab, text, (size_t)rg_utf8_encode(c, text));
    rg_vocab_bytes(vocab, b->byte);
    b->levels = true;
    for (int i = 0; i < 256; i++) {
        b->level[i] = b->direct[rg_byte_char((unsigned char)i)];
        b->levels &= b->level[i] >= 0 && vocab->type[b->level[i]] == RG_PIECE_NORMAL;
    }
}

void rg_bpe_fini(rg_bpe *b)
{
    rg_free(b->slots);
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
    pairs = rg_resize_array(b->pairs, room, sizeof *pairs);
    if (!pairs)
        return rg_fail_memory(err, room * sizeof *pairs);
    b->pairs = pairs;
    joined = rg_resize_array(b->joined, room, sizeof *joined);
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
    size_t skip = right.n < b->prefix.n ? right.n : b->prefix.n, n = left.n + right.n - skip;

    if (left.n && right.n && n <= v->max_bytes) {
        text = n <= sizeof stack ? stack : rg_alloc(n);
        if (!text)
            return rg_fail_memory(err, n);
        memcpy(text, left.data, left.n);
        memcpy(text + left.n, right.data + skip, right.n - skip);
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

/* True if U+2581 is a piece, and no piece has it after another character: then it never joins with what is before
 * it. */
static bool find_cuts(const rg_bpe *b)
{
    const rg_vocab *v = b->vocab;

    if (!rg_bpe_allowed(b, rg_vocab_id(v, META, 3), true))
        return false;
    for (int32_t id = 0; id < v->n; id++) {
        rg_string p = v->piece[id];
        for (size_t i = 1; rg_bpe_allowed(b, id, false) && i + 3 <= p.n; i++)
            if (!memcmp(p.data + i, META, 3) && (i < 3 || memcmp(p.data + i - 3, META, 3)))
                return false;
    }
    return !b->prefix.n && !b->suffix.n && !b->ignore_merges; /* a part that is a piece need not be one of the word */
}

bool rg_bpe_seal(rg_bpe *b, rg_error *err)
{
    b->cuts = find_cuts(b);
    if (b->order)
        return true;
    b->n_slots = 16;
    for (b->shift = 60; b->n_slots < 2 * b->n_pairs; b->shift--)
        b->n_slots *= 2;
    b->seed = rg_seed();
    b->slots = rg_array(b->n_slots, sizeof *b->slots);
    if (!b->slots)
        return rg_fail_memory(err, b->n_slots * sizeof *b->slots);
    for (size_t i = 0; i < b->n_slots; i++)
        b->slots[i].rank = RG_NO_RANK;
    for (size_t i = 0; i < b->n_pairs; i++) { /* of a pair that is listed twice the last place counts */
        uint64_t pair = rg_pair_key(b->pairs[i].left, b->pairs[i].right);
        *rg_pair_find(b, pair) = (rg_pair_slot){ pair, (uint32_t)i, b->joined[i] };
    }
    return true;
}

static bool starts_with(rg_string s, rg_string with)
{
    return s.n >= with.n && !memcmp(s.data, with.data, with.n);
}

/* A character alone, or with the mark of a word's inside or end, is where merging begins. */
bool rg_bpe_is_lost(const rg_bpe *b, int32_t id)
{
    rg_string s = b->vocab->piece[id];
    size_t n_chars = 0;

    if (b->n_pairs || b->order || b->ignore_merges || b->vocab->type[id] != RG_PIECE_NORMAL || id == b->unk)
        return false;
    if (b->prefix.n && starts_with(s, b->prefix))
        s = (rg_string){ s.data + b->prefix.n, s.n - b->prefix.n };
    if (b->suffix.n && s.n > b->suffix.n && !memcmp(s.data + s.n - b->suffix.n, b->suffix.data, b->suffix.n))
        s.n -= b->suffix.n;
    for (size_t i = 0; i < s.n; i++)
        n_chars += (s.data[i] & 0xc0) != 0x80;
    return n_chars > 1;
}

bool rg_bpe_check_lost(size_t n_lost, rg_error *err)
{
    return n_lost < 2 || rg_fail(err, RG_E_INPUT, "there are no merges, but %zu pieces of several characters, which no "
                                 "text can become without: the tokenizer is incomplete", n_lost);
}

/* ---- one word ---- */

void rg_bpe_work_fini(rg_bpe_work *w)
{
    rg_free(w->symbol);
    rg_free(w->memo);
    rg_free(w->heap);
    rg_free(w->run);
    rg_buf_fini(&w->text);
    *w = (rg_bpe_work){ 0 };
}

static bool ids_room(rg_ids *ids, size_t more, rg_error *err)
{
    size_t room = ids->room ? ids->room : 64;
    int32_t *list;

    if (more > INT32_MAX - ids->n)
        return rg_fail(err, RG_E_LIMIT, "more than %d ids", INT32_MAX);
    while (room < ids->n + more)
        room *= 2;
    list = rg_resize_array(ids->id, room, sizeof *list);
    if (!list)
        return rg_fail_memory(err, room * sizeof *list);
    ids->id = list;
    ids->room = room;
    return true;
}

bool rg_ids_add(rg_ids *ids, int32_t id, rg_error *err)
{
    if (ids->n == ids->room && !ids_room(ids, 1, err))
        return false;
    ids->id[ids->n++] = id;
    return true;
}

bool rg_ids_again(rg_ids *ids, size_t from, size_t times, rg_error *err)
{
    size_t n = ids->n - from;

    if (!n || !times)
        return true;
    if (times > INT32_MAX / n)
        return rg_fail(err, RG_E_LIMIT, "more than %d ids", INT32_MAX);
    if (ids->room - ids->n < n * times && !ids_room(ids, n * times, err))
        return false;
    for (size_t end = ids->n + n * times; ids->n < end; ids->n++)
        ids->id[ids->n] = ids->id[ids->n - n];
    return true;
}

static size_t char_count(rg_string word)
{
    size_t n = 0;

    for (size_t i = 0; i < word.n; i++)
        n += ((unsigned char)word.data[i] & 0xC0) != 0x80;
    return n;
}

/* Reserve n symbols at once: growing step by step would be the largest cost of a long word.  There are no symbols
 * yet. */
static bool symbol_room(rg_bpe_work *w, size_t n, rg_error *err)
{
    w->n = 0;
    if (n <= w->symbol_room)
        return true;
    rg_free(w->symbol);
    w->symbol_room = 0;
    n = n < 128 ? 128 : n;
    w->symbol = rg_alloc_tail(0, n, sizeof *w->symbol);
    if (!w->symbol)
        return rg_fail_memory(err, n * sizeof *w->symbol);
    w->symbol_room = n;
    return true;
}

static bool symbol_add(rg_bpe_work *w, int32_t id, size_t from, size_t n, rg_error *err)
{
    if (w->n == w->symbol_room) {
        size_t room = w->symbol_room ? 2 * w->symbol_room : 128;
        rg_symbol *list = rg_resize_array(w->symbol, room, sizeof *list);
        if (!list)
            return rg_fail_memory(err, room * sizeof *list);
        w->symbol = list;
        w->symbol_room = room;
    }
    w->symbol[w->n] = (rg_symbol){ (uint32_t)from, (uint32_t)n, id, (int32_t)w->n - 1, -1, RG_NO_RANK };
    w->n++;
    return true;
}

enum { ROOM = 2 * RG_BPE_AFFIX + 4 }; /* a character with all that can be put around it */

/* The ids of the bytes of the clean characters of s (at most ROOM bytes); returns their number, 0 if a byte has no
 * id. */
static size_t bytes_of(const rg_bpe *b, rg_string s, int32_t out[ROOM])
{
    size_t n = 0;

    for (size_t i = 0; b->byte_fallback && i < s.n;) {
        int length = rg_clean_length(s.data + i), stray = rg_clean_stray(s.data + i, length);
        for (int k = 0; k < (stray >= 0 ? 1 : length); k++)
            if ((out[n++] = b->byte[stray >= 0 ? stray : (unsigned char)s.data[i + (size_t)k]]) < 0)
                return 0;
        i += (size_t)length;
    }
    return n;
}

/* A character as the vocabulary has it at its place: with the prefix unless it comes first, with the suffix if last. */
static rg_string with_affixes(const rg_bpe *b, rg_string s, bool first, bool last, char *room)
{
    size_t n = 0;

    if (first && !(last && b->suffix.n))
        return s;
    if (!first && b->prefix.n)
        memcpy(room, b->prefix.data, n = b->prefix.n);
    memcpy(room + n, s.data, s.n);
    n += s.n;
    if (last && b->suffix.n)
        memcpy(room + n, b->suffix.data, b->suffix.n);
    return (rg_string){ room, n + (last ? b->suffix.n : 0) };
}

static int32_t char_id(const rg_bpe *b, rg_string s, bool plain)
{
    uint32_t c = s.n <= 2 ? rg_utf8_code(s.data, rg_clean_length(s.data)) : RG_BPE_DIRECT;
    int32_t id = c < RG_BPE_DIRECT && s.n == (size_t)rg_clean_length(s.data) ? b->direct[c]
                                                                             : rg_vocab_id(b->vocab, s.data, s.n);

    return rg_bpe_allowed(b, id, plain) ? id : -1;
}

/* By ranks: unknown characters become bytes, or the unknown id, before anything is joined. */
static bool start_by_ranks(const rg_bpe *b, rg_bpe_work *w, rg_string word, bool plain, rg_error *err)
{
    int32_t bytes[ROOM];
    char room[ROOM];
    bool pending = false; /* an unknown that may still grow */

    if (!symbol_room(w, char_count(word), err))
        return false;
    for (size_t i = 0; i < word.n;) {
        size_t n = (size_t)rg_clean_length(word.data + i), n_bytes = 0;
        rg_string s = { word.data + i, n };
        int32_t id;

        if (b->prefix.n || b->suffix.n)
            s = with_affixes(b, s, i == 0, i + n == word.n, room);
        id = char_id(b, s, plain);
        if (id < 0)
            n_bytes = bytes_of(b, s, bytes);
        if ((id >= 0 || (!n_bytes && !b->fuse_unk)) && pending) {
            if (!symbol_add(w, b->unk, i, 1, err))
                return false;
            pending = false;
        }
        if (id >= 0 && !symbol_add(w, id, i, n, err))
            return false;
        for (size_t k = 0; k < n_bytes; k++)
            if (!symbol_add(w, bytes[k], n_bytes == n ? i + k : i, 1, err))
                return false;
        if (id < 0 && !n_bytes && b->unk_missing)
            return rg_fail(err, RG_E_INPUT, "a character is not in the vocabulary, and neither is the unk_token");
        pending |= id < 0 && !n_bytes && b->unk >= 0;
        i += n;
    }
    return !pending || symbol_add(w, b->unk, 0, 1, err);
}

static bool start_by_scores(const rg_bpe *b, rg_bpe_work *w, rg_string word, bool plain, rg_error *err)
{
    if (!symbol_room(w, char_count(word), err))
        return false;
    for (size_t i = 0; i < word.n;) {
        size_t n = (size_t)rg_clean_length(word.data + i);
        bool again = i >= n && !memcmp(word.data + i, word.data + i - n, n); /* then the one before is as long */
        int32_t id = again ? w->symbol[w->n - 1].id : char_id(b, (rg_string){ word.data + i, n }, plain);
        if (!symbol_add(w, id, i, n, err))
            return false;
        i += n;
    }
    return true;
}

/* A word whose bytes the vocabulary knows as characters. */
static bool start_by_bytes(const rg_bpe *b, rg_bpe_work *w, rg_string word, bool plain, rg_error *err)
{
    (void)plain;
    if (!symbol_room(w, word.n, err))
        return false;
    for (size_t i = 0; i < word.n; w->n++) {
        unsigned char byte = (unsigned char)word.data[i];
        int stray = byte == 0xED ? rg_clean_stray(word.data + i, rg_clean_length(word.data + i)) : -1;
        w->symbol[w->n] = (rg_symbol){ (uint32_t)i, 1, b->level[stray >= 0 ? stray : byte], .rank = RG_NO_RANK };
        i += stray >= 0 ? 3 : 1;
    }
    return true;
}

/* By scores: a symbol that is not a piece after joining is one character, and becomes its bytes or the unknown id. */
static bool add_unknown(const rg_bpe *b, rg_string s, rg_ids *ids, rg_error *err)
{
    int32_t bytes[ROOM];
    size_t n = bytes_of(b, s, bytes);

    if (!n && b->unk >= 0)
        return rg_ids_add(ids, b->unk, err);
    for (size_t i = 0; i < n; i++)
        if (!rg_ids_add(ids, bytes[i], err))
            return false;
    return true;
}

size_t rg_bpe_cut(const rg_bpe *b, rg_string word)
{
    const char *p = word.data, *end = word.data + word.n;

    while (b->cuts && (p = memchr(p, META[0], (size_t)(end - p)))) {
        if (end - p >= 3 && !memcmp(p, META, 3) && p > word.data && (p - word.data < 3 || memcmp(p - 3, META, 3)))
            return (size_t)(p - word.data);
        p++;
    }
    return word.n;
}

bool rg_bpe_join(const rg_bpe_job *j, rg_string word)
{
    if (!j->start(j->b, j->w, word, j->plain, j->err))
        return false;
    j->w->n_begun += j->w->n;
    return rg_bpe_merge(j->b, j->w, word.data, j->plain, j->err);
}

bool rg_bpe_put(const rg_bpe_job *j, const char *text, const rg_symbol *s)
{
    return s->id >= 0 ? rg_ids_add(j->ids, s->id, j->err)
                      : add_unknown(j->b, (rg_string){ text + s->from, s->n }, j->ids, j->err);
}

static bool encode(const rg_bpe_job *j, rg_string word)
{
    bool done = false, repeats = word.n >= RG_BPE_REPEAT && !j->w->whole && !j->b->prefix.n && !j->b->suffix.n;
    const rg_bpe_work *w = j->w;

    if (word.n > INT32_MAX)
        return rg_fail(j->err, RG_E_LIMIT, "a word of %zu bytes, more than %d", word.n, INT32_MAX);
    if (repeats && !rg_bpe_repeats(j, word, &done))
        return false;
    if (done)
        return true;
    if (!rg_bpe_join(j, word))
        return false;
    for (int32_t i = w->n ? 0 : -1; i >= 0; i = w->symbol[i].next)
        if (!rg_bpe_put(j, word.data, &w->symbol[i]))
            return false;
    return true;
}

bool rg_bpe_encode(const rg_bpe *b, rg_bpe_work *w, rg_string word, bool plain, rg_ids *ids, rg_error *err)
{
    rg_bpe_job j = { b, w, b->order ? start_by_scores : start_by_ranks, plain, ids, err };

    if (!word.n)
        return true;
    if (b->ignore_merges) {
        int32_t id = rg_vocab_id(b->vocab, word.data, word.n);
        if (rg_bpe_allowed(b, id, plain))
            return rg_ids_add(ids, id, err);
    }
    return encode(&j, word);
}

bool rg_bpe_takes_bytes(const rg_bpe *b, rg_string word)
{
    return b->levels && !b->order && !b->prefix.n && !b->suffix.n &&
           !(b->ignore_merges && word.n <= b->vocab->max_bytes); /* it may be a piece as a whole */
}

bool rg_bpe_encode_bytes(const rg_bpe *b, rg_bpe_work *w, rg_string word, bool plain, rg_ids *ids, rg_error *err)
{
    rg_bpe_job j = { b, w, start_by_bytes, plain, ids, err };

    return encode(&j, word);
}

static bool model_encode(const rg_tokenizer *t, rg_model_work *w, rg_string word, bool plain, rg_ids *ids,
                         rg_error *err)
{
    return rg_bpe_encode(&t->bpe, &w->bpe, word, plain, ids, err);
}

static void model_fini(rg_tokenizer *t)
{
    rg_bpe_fini(&t->bpe);
}

const rg_word_model rg_word_model_bpe = { "BPE", model_encode, model_fini };
