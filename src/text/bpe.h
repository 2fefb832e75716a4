/* bpe.h -- byte-pair encoding of one word: the best pair of neighbours is joined until none is left.
 *
 * One engine serves both kinds.  By ranks (tokenizer.json, GGUF "gpt2"): a list of pairs, the earliest in it first.
 * By scores (GGUF "llama", as SentencePiece does): any two neighbours whose text together is a piece, the highest score
 * first.  Ties go to the left.  O(n log n) in the length of the word. */
#ifndef RG_TEXT_BPE_H
#define RG_TEXT_BPE_H

#include "text/tokenizer.h"
#include "text/vocab.h"

enum { RG_BPE_AFFIX = 64 }; /* bytes of a prefix or suffix */
enum { RG_BPE_DIRECT = 0x180 }; /* characters with a table of their own: ASCII, Latin, the byte-level ones */

typedef struct rg_pair {
    int32_t left, right;
} rg_pair;

typedef struct rg_bpe {
    const rg_vocab *vocab;
    rg_pair *pairs;  /* by rank */
    int32_t *joined; /* what each pair becomes */
    size_t n_pairs, pairs_room;
    struct rg_pair_slot *slots; /* pairs by what they are; NULL: by scores */
    size_t n_slots;
    uint64_t seed;
    int shift; /* 64 less the logarithm of n_slots */
    bool cuts; /* no piece has U+2581 after another character, so words can be cut before U+2581 */
    uint32_t *order; /* by scores: [vocab->n], 0 is the highest; pieces that text cannot become have none */
    int32_t direct[RG_BPE_DIRECT]; /* id of a character, or -1 */
    int32_t level[256];            /* ids of the characters that stand for bytes (bytelevel.h) */
    bool levels;                   /* all of them are ordinary pieces */
    int32_t byte[256];             /* ids of "<0xNN>", or -1 */
    int32_t unk;                   /* -1: unknown characters are left out */
    bool unk_missing;              /* or, if this, an error */
    rg_string prefix, suffix;      /* of characters that come after another one; of the last one of a word; kept by the
                                      caller and set before the first pair */
    bool byte_fallback;            /* unknown characters become their bytes */
    bool fuse_unk;                 /* unknown neighbours become one */
    bool ignore_merges;            /* a word that is a piece is that piece */
} rg_bpe;

/* By ranks, without any.  The vocabulary is complete, and outlives b. */
void rg_bpe_init(rg_bpe *b, const rg_vocab *vocab);
void rg_bpe_fini(rg_bpe *b);

bool rg_bpe_add_pair(rg_bpe *b, rg_string left, rg_string right, rg_error *err); /* the next rank */
bool rg_bpe_set_scores(rg_bpe *b, const float *scores, rg_error *err);           /* [vocab->n] */
bool rg_bpe_seal(rg_bpe *b, rg_error *err);                                      /* after the last */

/* True if text becomes this piece by merges alone: it has several characters, and no merge makes any piece.  In a
 * sealed b; a vocabulary with many such pieces has lost its merges. */
bool rg_bpe_is_lost(const rg_bpe *b, int32_t id);
/* Refuse a vocabulary if several of its pieces can never be reached; a single one may be meant. */
bool rg_bpe_check_lost(size_t n_lost, rg_error *err) RG_MUST_CHECK;

/* Memory of one call, reused from word to word. */
typedef struct rg_bpe_work {
    struct rg_symbol *symbol;
    struct rg_pair_slot *memo; /* by scores: what pairs of pieces become, of those seen last */
    uint64_t *heap, *run; /* pairs that can be joined; run: in order, taken from its front */
    size_t symbol_room, heap_room, run_room, n, n_heap, n_run, run_at;
    rg_buf text;    /* of a word that was cut short */
    bool whole;     /* words are never cut: for comparing */
    size_t n_begun; /* symbols that were begun with, of all words */
} rg_bpe_work;

void rg_bpe_work_fini(rg_bpe_work *w);

/* Where a word can be cut without a change to its ids: at most its length, never 0 unless that is. */
size_t rg_bpe_cut(const rg_bpe *b, rg_string word);

/* Append the ids of a word (clean, see clean.h).  plain: it cannot produce special pieces. */
bool rg_bpe_encode(const rg_bpe *b, rg_bpe_work *w, rg_string word, bool plain, rg_ids *ids, rg_error *err);

/* The same of a word whose bytes the vocabulary knows as characters.  Only where rg_bpe_takes_bytes. */
bool rg_bpe_encode_bytes(const rg_bpe *b, rg_bpe_work *w, rg_string word, bool plain, rg_ids *ids, rg_error *err);
bool rg_bpe_takes_bytes(const rg_bpe *b, rg_string word);

bool rg_ids_add(rg_ids *ids, int32_t id, rg_error *err);
bool rg_ids_again(rg_ids *ids, size_t from, size_t times, rg_error *err); /* those from there on, so many times more */

#endif
