/* bpe_word.h -- the parts of byte-pair encoding: bpe.c, which knows vocabularies, bpe_merge.c, which joins, and
 * bpe_repeat.c, which knows how to join less. */
#ifndef RG_TEXT_BPE_WORD_H
#define RG_TEXT_BPE_WORD_H

#include "text/bpe.h"

#define RG_NO_RANK UINT32_MAX

/* A pair of neighbours, left in the upper half, and what it becomes. */
typedef struct rg_pair_slot {
    uint64_t pair;
    uint32_t rank; /* RG_NO_RANK: a free slot, or a pair that becomes nothing */
    int32_t joined;
} rg_pair_slot;

typedef struct rg_symbol {
    uint32_t from, n; /* where its text starts in the word, and by scores how long it is; n 0: joined to another */
    int32_t id;       /* -1: unknown so far */
    int32_t prev, next;
    uint32_t rank; /* of the pair that it makes with the next; RG_NO_RANK: none */
} rg_symbol;

static inline uint64_t rg_pair_key(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

/* The pair's slot, or the free one where it would go.  The seed keeps files from choosing pairs that collide. */
static inline rg_pair_slot *rg_pair_find(const rg_bpe *b, uint64_t pair)
{
    size_t i = (size_t)((pair ^ b->seed) * 0x9E3779B97F4A7C15U >> b->shift);

    while (b->slots[i].rank != RG_NO_RANK && b->slots[i].pair != pair)
        i = (i + 1) & (b->n_slots - 1);
    return &b->slots[i];
}

/* True if text can become this piece.  By ranks it can become special pieces too, unless the text is plain. */
static inline bool rg_bpe_allowed(const rg_bpe *b, int32_t id, bool plain)
{
    rg_piece_type type = id >= 0 ? b->vocab->type[id] : RG_PIECE_HOLE;

    return b->order ? type == RG_PIECE_NORMAL || type == RG_PIECE_ADDED
                    : type != RG_PIECE_HOLE && !(plain && type == RG_PIECE_SPECIAL);
}

/* How words become ids in one call. */
typedef struct rg_bpe_job {
    const rg_bpe *b;
    rg_bpe_work *w;
    /* The work's symbols of a word, nothing joined yet. */
    bool (*start)(const rg_bpe *b, rg_bpe_work *w, rg_string word, bool plain, rg_error *err);
    bool plain;
    rg_ids *ids;
    rg_error *err;
} rg_bpe_job;

bool rg_bpe_join(const rg_bpe_job *j, rg_string word); /* a word's symbols, joined */
bool rg_bpe_put(const rg_bpe_job *j, const char *text, const rg_symbol *s); /* append what one stands for */

/* The ids of a word of RG_BPE_REPEAT bytes or more by way of a shorter one; *done: there was one.  Not for vocabularies
 * with affixes. */
enum { RG_BPE_REPEAT = 1 << 13 };
bool rg_bpe_repeats(const rg_bpe_job *j, rg_string word, bool *done);

/* Join the work's symbols, which lie in the order of the text, until no pair is left; then they hang together by
 * next. */
bool rg_bpe_merge(const rg_bpe *b, rg_bpe_work *w, const char *text, bool plain, rg_error *err);

#endif
