/* vocab.h -- the pieces of a vocabulary by id, and ids by piece.
 *
 * Pieces are the bytes that the checkpoint writes, in one run of memory; ids may have holes.  Filled once, then read by
 * any thread. */
#ifndef RG_TEXT_VOCAB_H
#define RG_TEXT_VOCAB_H

#include "base/hash.h"
#include "ckpt/checkpoint.h"

typedef enum rg_piece_type {
    RG_PIECE_HOLE, /* no piece has this id */
    RG_PIECE_NORMAL,
    RG_PIECE_BYTE,  /* "<0xNN>": one byte */
    RG_PIECE_ADDED, /* stands in text as it is; ordinary otherwise */
    RG_PIECE_SPECIAL,
} rg_piece_type;

enum { RG_VOCAB_CAP = 1 << 24 }; /* ids */

typedef struct rg_vocab {
    rg_string *piece; /* [n] */
    uint8_t *type;    /* [n] of rg_piece_type */
    int32_t n, room;
    size_t n_pieces;               /* without holes */
    size_t n_expected;             /* as far as it is known beforehand: ids far beyond it are refused */
    size_t max_bytes;              /* of a piece */
    rg_dict *ids;                  /* of the pieces that the model knows */
    rg_dict *outside;              /* of added tokens that it does not: text never becomes them by merging */
    struct rg_piece_chunk *chunks; /* the pieces' bytes; never moved, so that the dictionary's keys hold */
} rg_vocab;

bool rg_vocab_init(rg_vocab *v, size_t n_expected, rg_error *err);
void rg_vocab_fini(rg_vocab *v);

/* A piece, copied.  Refuses a piece or an id that is there already, and an id far beyond the number of pieces. */
bool rg_vocab_add(rg_vocab *v, int64_t id, rg_string piece, rg_piece_type type, rg_error *err);
/* The same of an added token that the model does not know. */
bool rg_vocab_add_outside(rg_vocab *v, int64_t id, rg_string piece, rg_piece_type type, rg_error *err);
/* What an id's piece is shown as from now on, copied; it is still found by what it was. */
bool rg_vocab_show(rg_vocab *v, int32_t id, rg_string piece, rg_error *err);
/* Every id up to the largest is near enough: call when all are in. */
bool rg_vocab_check(const rg_vocab *v, rg_error *err);

int32_t rg_vocab_id(const rg_vocab *v, const char *s, size_t n);   /* of a piece of the model; -1: none */
int32_t rg_vocab_find(const rg_vocab *v, const char *s, size_t n); /* of any */

/* The ids of "<0x00>" to "<0xFF>", or -1. */
void rg_vocab_bytes(const rg_vocab *v, int32_t ids[256]);

/* The byte that "<0xNN>" names, or -1. */
int rg_piece_byte(rg_string piece);
/* A piece for a message: cut, control bytes as '?'. */
const char *rg_piece_text(rg_string piece, char out[48]);

#endif
