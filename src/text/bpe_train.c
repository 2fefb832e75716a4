/* bpe_train.c -- see bpe_train.h.
 *
 * Words are kept once, with how often they stand in the texts, as lists of ids that shrink.  A pair of ids has its
 * count and the words in which it may stand; the most frequent one is found by a heap, whose entries may be out of
 * date: one that comes up with another count than the pair has now is put back. */
#include "text/bpe_train.h"

#include <string.h>

#include "base/hash.h"
#include "base/json_write.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "text/bytelevel.h"
#include "text/clean.h"
#include "text/pretok.h"

#define PATTERN                                                                                                        \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"           \
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

enum { CLEAN_CAP = 1 << 28, CHUNK = 1 << 16, MAX_WORDS = 1 << 30 };

/* A different word: its bytes, then its ids. */
typedef struct word {
    int32_t *ids;
    uint32_t n;
    int64_t count;
} word;

/* Two ids side by side. */
typedef struct pair {
    int32_t a, b;
    int64_t count;
    uint32_t *words; /* in which it stands, or stood */
    uint32_t n, room;
} pair;

typedef struct entry {
    int64_t count;
    int32_t a, b;
} entry;

struct rg_bpe_training {
    rg_pretok pretok;
    rg_words cut;
    rg_buf clean;
    /* Counting: words by their bytes. */
    rg_dict *known;
    char **chunks; /* memory of the words' bytes, which the table points to */
    size_t n_chunks, chunk_room, used, size;
    const char **text;
    word *words;
    size_t n_words, word_room;
    /* Merging. */
    pair *pairs; /* open addressing; a -1: free */
    size_t n_pairs, pair_room;
    entry *heap;
    size_t n_heap, heap_room;
    int32_t (*merges)[2];
    int n_merges;
    bool failed; /* no memory */
};

/* ---- counting ---------------------------------------------------------------------------------------------------- */

rg_bpe_training *rg_bpe_training_new(rg_error *err)
{
    rg_bpe_training *t = rg_zalloc(sizeof *t);
    bool ok = t || rg_fail_memory(err, sizeof *t);

    if (ok) {
        rg_buf_init(&t->clean, CLEAN_CAP);
        t->known = rg_dict_new(1 << 12);
        ok = (t->known || rg_fail_memory(err, 1 << 12)) &&
             rg_pretok_split(&t->pretok, PATTERN, RG_SPLIT_ISOLATED, false, err);
    }
    if (!ok) {
        rg_bpe_training_free(t);
        return NULL;
    }
    return t;
}

void rg_bpe_training_free(rg_bpe_training *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->n_chunks; i++)
        rg_free(t->chunks[i]);
    for (size_t i = 0; i < t->n_words; i++)
        rg_free(t->words[i].ids);
    for (size_t i = 0; t->pairs && i < t->pair_room; i++)
        rg_free(t->pairs[i].words);
    rg_pretok_fini(&t->pretok);
    rg_words_fini(&t->cut);
    rg_buf_fini(&t->clean);
    rg_dict_free(t->known);
    rg_free(t->chunks);
    rg_free((void *)(uintptr_t)t->text);
    rg_free(t->words);
    rg_free(t->pairs);
    rg_free(t->heap);
    rg_free(t->merges);
    rg_free(t);
}

/* A copy of a word's bytes that stays where it is. */
static const char *keep(rg_bpe_training *t, const char *s, size_t n)
{
    if (!t->n_chunks || n > t->size - t->used) {
        const size_t size = n > CHUNK ? n : CHUNK;

        if (t->n_chunks == t->chunk_room) {
            const size_t room = t->chunk_room ? 2 * t->chunk_room : 64;
            char **more = rg_resize_array(t->chunks, room, sizeof *more);
            if (!more)
                return NULL;
            t->chunks = more;
            t->chunk_room = room;
        }
        t->chunks[t->n_chunks] = rg_alloc(size);
        if (!t->chunks[t->n_chunks])
            return NULL;
        t->n_chunks++;
        t->size = size;
        t->used = 0;
    }
    char *to = t->chunks[t->n_chunks - 1] + t->used;
    memcpy(to, s, n);
    t->used += n;
    return to;
}

static bool make_word_room(rg_bpe_training *t)
{
    const size_t room = t->word_room ? 2 * t->word_room : 1 << 12;
    word *words;
    const char **text;

    if (t->n_words < t->word_room)
        return true;
    if (room > MAX_WORDS)
        return false;
    words = rg_resize_array(t->words, room, sizeof *words);
    t->words = words ? words : t->words;
    text = words ? rg_resize_array((void *)(uintptr_t)t->text, room, sizeof *text) : NULL;
    t->text = text ? text : t->text;
    t->word_room = text ? room : t->word_room;
    return text;
}

static bool count_word(rg_bpe_training *t, const char *s, size_t n, int64_t times)
{
    const int known = rg_dict_get(t->known, s, n);
    const char *copy;

    if (known >= 0) {
        t->words[known].count += times;
        return true;
    }
    copy = make_word_room(t) ? keep(t, s, n) : NULL;
    if (!copy || !rg_dict_put(t->known, copy, n, (int)t->n_words))
        return false;
    t->text[t->n_words] = copy;
    t->words[t->n_words++] = (word){ .n = (uint32_t)n, .count = times };
    return true;
}

bool rg_bpe_training_add(rg_bpe_training *t, const char *text, size_t n, rg_error *err)
{
    bool ok;

    rg_buf_reset(&t->clean);
    if (!rg_clean_add(&t->clean, text, n))
        return rg_fail_memory(err, n);
    const rg_passage all = { .text = t->clean.data, .n = t->clean.n };
    rg_matcher *m = rg_matcher_new(all.n, err); /* its limit is for one text */
    ok = m && (!all.n || rg_pretok_cut(&t->pretok, m, &all, &t->cut, err));
    rg_matcher_free(m);
    for (size_t i = 0; ok && all.n && i < t->cut.n; i++) {
        const rg_word *w = &t->cut.word[i];
        const uint32_t each = w->to - w->from;

        ok = !each || count_word(t, t->cut.passage.text + w->from, each, w->times ? w->times : 1) ||
             rg_fail_memory(err, t->n_words * sizeof(word));
    }
    return ok;
}

/* ---- pairs ------------------------------------------------------------------------------------------------------- */

static size_t slot_of(const rg_bpe_training *t, int32_t a, int32_t b)
{
    const int32_t key[] = { a, b };
    size_t i = rg_hash(key, sizeof key, 0) & (t->pair_room - 1);

    while (t->pairs[i].a >= 0 && (t->pairs[i].a != a || t->pairs[i].b != b))
        i = (i + 1) & (t->pair_room - 1);
    return i;
}

static bool grow_pairs(rg_bpe_training *t)
{
    const size_t room = t->pair_room ? 2 * t->pair_room : 1 << 14, old_room = t->pair_room;
    pair *old = t->pairs, *more;

    if (2 * t->n_pairs < t->pair_room)
        return true;
    more = rg_array(room, sizeof *more);
    if (!more)
        return false;
    for (size_t i = 0; i < room; i++)
        more[i].a = -1;
    t->pairs = more;
    t->pair_room = room;
    for (size_t i = 0; i < old_room; i++)
        if (old[i].a >= 0)
            t->pairs[slot_of(t, old[i].a, old[i].b)] = old[i];
    rg_free(old);
    return true;
}

/* True if x comes before y. */
static bool is_better(const entry *x, const entry *y)
{
    return x->count != y->count ? x->count > y->count : x->a != y->a ? x->a < y->a : x->b < y->b;
}

static void push(rg_bpe_training *t, entry e)
{
    size_t i = t->n_heap;

    if (i == t->heap_room) {
        const size_t room = t->heap_room ? 2 * t->heap_room : 1 << 14;
        entry *more = rg_resize_array(t->heap, room, sizeof *more);

        if (!more) {
            t->failed = true;
            return;
        }
        t->heap = more;
        t->heap_room = room;
    }
    for (t->n_heap++; i && is_better(&e, &t->heap[(i - 1) / 2]); i = (i - 1) / 2)
        t->heap[i] = t->heap[(i - 1) / 2];
    t->heap[i] = e;
}

static entry pop(rg_bpe_training *t)
{
    const entry top = t->heap[0], last = t->heap[--t->n_heap];
    size_t i = 0;

    for (size_t k; (k = 2 * i + 1) < t->n_heap; i = k) {
        k += k + 1 < t->n_heap && is_better(&t->heap[k + 1], &t->heap[k]);
        if (!is_better(&t->heap[k], &last))
            break;
        t->heap[i] = t->heap[k];
    }
    t->heap[i] = last;
    return top;
}

/* A pair stands `times` more often, in word w; what is new comes into the heap once a word is done. */
static void change(rg_bpe_training *t, int32_t a, int32_t b, int64_t times, uint32_t w)
{
    pair *p;

    if (!grow_pairs(t)) {
        t->failed = true;
        return;
    }
    p = &t->pairs[slot_of(t, a, b)];
    if (p->a < 0) {
        *p = (pair){ .a = a, .b = b };
        t->n_pairs++;
    }
    p->count += times;
    if (times < 0 || (p->n && p->words[p->n - 1] == w))
        return;
    if (p->n == p->room) {
        const uint32_t room = p->room ? 2 * p->room : 4;
        uint32_t *more = rg_resize_array(p->words, room, sizeof *more);

        if (!more) {
            t->failed = true;
            return;
        }
        p->words = more;
        p->room = room;
    }
    p->words[p->n++] = w;
}

/* Every pair of the word, as often as it stands in all texts. */
static void change_word(rg_bpe_training *t, uint32_t w, int64_t sign)
{
    const word *x = &t->words[w];

    for (uint32_t i = 0; i + 1 < x->n; i++)
        change(t, x->ids[i], x->ids[i + 1], sign * x->count, w);
}

static void push_word(rg_bpe_training *t, uint32_t w, int32_t made)
{
    const word *x = &t->words[w];

    for (uint32_t i = 0; i + 1 < x->n; i++)
        if (x->ids[i] == made || x->ids[i + 1] == made) {
            const pair *p = &t->pairs[slot_of(t, x->ids[i], x->ids[i + 1])];
            push(t, (entry){ p->count, p->a, p->b });
        }
}

/* ---- merging ----------------------------------------------------------------------------------------------------- */

static void merge_word(rg_bpe_training *t, uint32_t w, int32_t a, int32_t b, int32_t made)
{
    word *x = &t->words[w];
    uint32_t n = 0;
    bool any = false;

    for (uint32_t i = 0; i + 1 < x->n; i++)
        any = any || (x->ids[i] == a && x->ids[i + 1] == b);
    if (!any)
        return;
    change_word(t, w, -1);
    for (uint32_t i = 0; i < x->n; n++) {
        const bool here = i + 1 < x->n && x->ids[i] == a && x->ids[i + 1] == b;

        x->ids[n] = here ? made : x->ids[i];
        i += here ? 2 : 1;
    }
    x->n = n;
    change_word(t, w, 1);
    push_word(t, w, made);
}

/* The best pair as it is now; false: there is none. */
static bool best_pair(rg_bpe_training *t, entry *best)
{
    while (t->n_heap) {
        *best = pop(t);
        const int64_t now = t->pairs[slot_of(t, best->a, best->b)].count;

        if (now == best->count && now > 0)
            return true;
        if (now > 0 && now < best->count)
            push(t, (entry){ now, best->a, best->b });
    }
    return false;
}

static void merge_best(rg_bpe_training *t, const entry *best, int32_t made)
{
    pair *p = &t->pairs[slot_of(t, best->a, best->b)];
    uint32_t *words = p->words;
    const uint32_t n = p->n;

    p->words = NULL;
    p->n = p->room = 0;
    for (uint32_t i = 0; i < n; i++)
        merge_word(t, words[i], best->a, best->b, made);
    rg_free(words);
}

/* Bytes in the order of the characters that stand for them. */
static void order_bytes(int32_t id_of[256], unsigned char byte_of[256])
{
    int n = 0;

    for (uint32_t c = 0; c < 324; c++)
        if (rg_char_byte(c) >= 0) {
            byte_of[n] = (unsigned char)rg_char_byte(c);
            id_of[byte_of[n]] = n;
            n++;
        }
}

static bool begin_words(rg_bpe_training *t, const int32_t id_of[256], int first, rg_error *err)
{
    rg_buf bytes;
    bool ok = grow_pairs(t);

    rg_buf_init(&bytes, CLEAN_CAP);
    for (size_t w = 0; ok && w < t->n_words; w++) {
        word *x = &t->words[w];

        rg_buf_reset(&bytes);
        ok = rg_clean_bytes(&bytes, t->text[w], x->n);
        x->ids = ok ? rg_array(bytes.n, sizeof *x->ids) : NULL;
        ok = x->ids;
        for (size_t i = 0; ok && i < bytes.n; i++)
            x->ids[i] = first + id_of[(unsigned char)bytes.data[i]];
        x->n = ok ? (uint32_t)bytes.n : 0;
        if (ok)
            change_word(t, (uint32_t)w, 1);
    }
    rg_buf_fini(&bytes);
    for (size_t i = 0; ok && i < t->pair_room; i++)
        if (t->pairs[i].a >= 0)
            push(t, (entry){ t->pairs[i].count, t->pairs[i].a, t->pairs[i].b });
    return (ok && !t->failed) || rg_fail_memory(err, t->n_words * sizeof(word));
}

/* ---- tokenizer.json ---------------------------------------------------------------------------------------------- */

/* The piece of an id of the vocabulary without special tokens, as characters. */
static void add_piece(const rg_bpe_training *t, int32_t id, const unsigned char byte_of[256], rg_buf *to)
{
    int32_t stack[512];
    int n = 0;

    for (stack[n++] = id; n;) {
        const int32_t top = stack[--n];
        char text[4];

        if (top < 256) {
            rg_buf_add(to, text, (size_t)rg_utf8_encode(rg_byte_char(byte_of[top]), text));
            continue;
        }
        if (n + 2 > (int)RG_LEN(stack)) {
            to->failed = true; /* no merge is so deep */
            return;
        }
        stack[n++] = t->merges[top - 256][1];
        stack[n++] = t->merges[top - 256][0];
    }
}

static void write_special(rg_buf *b, const char *const *special, int n)
{
    rg_out_open(b, "added_tokens", '[');
    for (int i = 0; i < n; i++) {
        rg_out_open(b, NULL, '{');
        rg_out_int(b, "id", i);
        rg_out_text(b, "content", special[i]);
        rg_out_bool(b, "single_word", false);
        rg_out_bool(b, "lstrip", false);
        rg_out_bool(b, "rstrip", false);
        rg_out_bool(b, "normalized", false);
        rg_out_bool(b, "special", true);
        rg_out_close(b, '}');
    }
    rg_out_close(b, ']');
}

static const char pre_tokenizer[] =
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?i:'s|'t|'re|'ve|'m|'ll|'"
    "d)|"
    "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| "
    "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|"
    "\\\\s+(?!\\\\S)|\\\\s+\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\","
    "\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false}]}";
static const char decoder[] =
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true}";

/* The first special token in front of a text. */
static void write_template(rg_buf *b, const char *first)
{
    static const char *const parts[][2] = { { "single", "A" }, { "pair", "AB" } };

    rg_out_open(b, "post_processor", '{');
    rg_out_text(b, "type", "TemplateProcessing");
    for (size_t i = 0; i < RG_LEN(parts); i++) {
        rg_out_open(b, parts[i][0], '[');
        rg_out_open(b, NULL, '{');
        rg_out_open(b, "SpecialToken", '{');
        rg_out_text(b, "id", first);
        rg_out_int(b, "type_id", 0);
        rg_out_close(b, '}');
        rg_out_close(b, '}');
        for (const char *p = parts[i][1]; *p; p++) {
            rg_out_open(b, NULL, '{');
            rg_out_open(b, "Sequence", '{');
            rg_out_string(b, "id", p, 1);
            rg_out_int(b, "type_id", 0);
            rg_out_close(b, '}');
            rg_out_close(b, '}');
        }
        rg_out_close(b, ']');
    }
    rg_out_open(b, "special_tokens", '{');
    rg_out_open(b, first, '{');
    rg_out_text(b, "id", first);
    rg_out_open(b, "ids", '[');
    rg_out_int(b, NULL, 0);
    rg_out_close(b, ']');
    rg_out_open(b, "tokens", '[');
    rg_out_text(b, NULL, first);
    rg_out_close(b, ']');
    rg_out_close(b, '}');
    rg_out_close(b, '}');
    rg_out_close(b, '}');
}

static bool write_model(const rg_bpe_training *t, const char *const *special, int n_special,
                        const unsigned char byte_of[256], rg_buf *b)
{
    rg_buf piece[2];
    bool ok;

    for (int i = 0; i < 2; i++)
        rg_buf_init(&piece[i], CLEAN_CAP);
    rg_out_open(b, "model", '{');
    rg_out_text(b, "type", "BPE");
    rg_out_null(b, "dropout");
    rg_out_null(b, "unk_token");
    rg_out_null(b, "continuing_subword_prefix");
    rg_out_null(b, "end_of_word_suffix");
    rg_out_bool(b, "fuse_unk", false);
    rg_out_bool(b, "byte_fallback", false);
    rg_out_bool(b, "ignore_merges", false);
    rg_out_open(b, "vocab", '{');
    for (int i = 0; i < n_special; i++)
        rg_out_int(b, special[i], i);
    for (int32_t i = 0; i < 256 + t->n_merges; i++) {
        rg_buf_reset(&piece[0]);
        add_piece(t, i, byte_of, &piece[0]);
        rg_out_int(b, piece[0].n ? piece[0].data : "", n_special + i);
    }
    rg_out_close(b, '}');
    rg_out_open(b, "merges", '[');
    for (int i = 0; i < t->n_merges; i++) {
        rg_out_open(b, NULL, '[');
        for (int k = 0; k < 2; k++) {
            rg_buf_reset(&piece[k]);
            add_piece(t, t->merges[i][k], byte_of, &piece[k]);
            rg_out_string(b, NULL, piece[k].data, piece[k].n);
        }
        rg_out_close(b, ']');
    }
    rg_out_close(b, ']');
    rg_out_close(b, '}');
    ok = !piece[0].failed && !piece[1].failed;
    for (int i = 0; i < 2; i++)
        rg_buf_fini(&piece[i]);
    return ok;
}

bool rg_bpe_training_end(rg_bpe_training *t, int size, const char *const *special, int n_special, rg_buf *json,
                         int *got, rg_error *err)
{
    const int n = size - n_special - 256;
    unsigned char byte_of[256];
    int32_t id_of[256];
    entry best;
    bool ok;

    if (n < 0)
        return rg_fail(err, RG_E_USAGE, "a vocabulary of %d ids has no room for 256 bytes and %d special tokens", size,
                       n_special);
    order_bytes(id_of, byte_of);
    t->merges = rg_array((size_t)n, sizeof *t->merges);
    ok = (t->merges || rg_fail_memory(err, (size_t)n * sizeof *t->merges)) && begin_words(t, id_of, 0, err);
    while (ok && !t->failed && t->n_merges < n && best_pair(t, &best)) {
        t->merges[t->n_merges][0] = best.a;
        t->merges[t->n_merges][1] = best.b;
        merge_best(t, &best, 256 + t->n_merges++);
    }
    if (ok && t->failed)
        ok = rg_fail_memory(err, t->n_pairs * sizeof(pair));
    if (!ok)
        return false;
    rg_out_open(json, NULL, '{');
    rg_out_text(json, "version", "1.0");
    rg_out_null(json, "truncation");
    rg_out_null(json, "padding");
    write_special(json, special, n_special);
    rg_out_null(json, "normalizer");
    rg_out_raw(json, "pre_tokenizer", pre_tokenizer, strlen(pre_tokenizer));
    if (n_special)
        write_template(json, special[0]);
    else
        rg_out_null(json, "post_processor");
    rg_out_raw(json, "decoder", decoder, strlen(decoder));
    ok = write_model(t, special, n_special, byte_of, json);
    rg_out_close(json, '}');
    *got = n_special + 256 + t->n_merges;
    return (ok && !json->failed) || rg_fail_memory(err, json->n);
}
