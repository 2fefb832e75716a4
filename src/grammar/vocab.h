/* vocab.h -- the bytes of all ids as one tree, in the order of a walk, and the scratch memory in which masks are made.
 *
 * A node of the tree is followed by all nodes below it, so a walk is one pass over an array that skips what cannot
 * come.  A grammar never gives an id of more than 255 bytes.  If the vocabulary lacks a byte that characters beyond
 * ASCII need, a grammar allows whole characters only, since an answer might not be able to continue after a part of
 * one.  Immutable but for the scratch memory. */
#ifndef RG_GRAMMAR_VOCAB_H
#define RG_GRAMMAR_VOCAB_H

#include <pthread.h>

#include "grammar/grammar.h"
#include "grammar/matcher.h"

enum {
    RG_CONFIGS = 4096,      /* sets of stacks that one mask can meet before it starts afresh */
    RG_CONFIG_HEADS = 1 << 17,
    RG_CONFIG_SLOTS = 4 * RG_CONFIGS,
    RG_EXITS = 4096,        /* places where a mask may leave what it looks at */
    RG_MASK_SCRATCHES = 8,           /* masks made at once, at most */
    RG_UNKNOWN = 0xffff,    /* in a row of scratch memory: not looked at yet */
    RG_DEAD = 0,            /* the config of no stacks */
};

typedef struct rg_piece {
    uint32_t skip; /* the first node that is not below */
    int32_t id;    /* an id whose bytes end here, or -1 */
    uint8_t byte, depth;
} rg_piece;

/* A place in the tree at which a text of plain characters (all but quotes, backslashes and controls) ends: at a quote
 * or a backslash, or with an id that ends within a character. */
typedef struct rg_text_stop {
    uint32_t piece;
    int32_t id;      /* one whose bytes lead through the piece */
    uint8_t partial; /* bytes of the character that has no end; 0: a quote or backslash */
} rg_text_stop;

typedef struct rg_mask_config {
    uint32_t from, n; /* its stacks, sorted, in heads */
    bool exit;        /* one of them may be left */
} rg_mask_config;

/* Scratch memory of one mask in the making: a deterministic automaton that grows as far as the mask needs it. */
typedef struct rg_mask_scratch {
    pthread_mutex_t lock;
    rg_stacks stacks;
    rg_mask_config *config; /* [RG_CONFIGS] */
    uint32_t n_configs, n_heads;
    uint32_t *heads;   /* [RG_CONFIG_HEADS] */
    uint16_t *row;     /* [RG_CONFIGS][256] -> config */
    uint16_t *slot;    /* [RG_CONFIG_SLOTS], hash -> config, 0 for none */
    uint64_t *bits;    /* of the mask in the making */
    uint32_t exits[RG_EXITS], n_exits;
    rg_heads reached;
} rg_mask_scratch;

struct rg_grammar_vocab {
    const char *data;
    const uint32_t *offset;
    int32_t n;
    rg_piece *piece; /* [n_pieces]; 0 is the root */
    uint32_t n_pieces;
    int32_t *same;   /* per id: another one with the same bytes; -1: no more; UNUSABLE: it never comes */
    int longest;
    /* Ids that are plain characters alone, in the order of the tree; NULL: some of their bytes are missing. */
    uint32_t *text_id;
    uint32_t *text_before; /* [n_pieces + 1] how many of them are before a place */
    uint64_t *text_bits;   /* all of them, a bit per id */
    uint8_t *text_place;   /* [n_pieces] 1: the bytes up to here are plain characters */
    rg_text_stop *text_stop;
    uint32_t n_text_stops;
    rg_set spelled;  /* bytes that can be written one by one, and those that only whole characters have */
    rg_mask_scratch *scratch[RG_MASK_SCRATCHES]; /* [n_scratches], one for each core as far as they go */
    int n_scratches;
};

enum { RG_UNUSABLE = -2 };

static inline uint32_t rg_vocab_words(const rg_grammar_vocab *v)
{
    return ((uint32_t)v->n + 63) / 64;
}

/* Scratch memory for the caller alone; waits if all of it is taken. */
rg_mask_scratch *rg_mask_scratch_take(const rg_grammar_vocab *v);
void rg_mask_scratch_give(rg_mask_scratch *w);

#endif
