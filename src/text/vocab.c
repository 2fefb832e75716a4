/* vocab.c -- see vocab.h. */
#include "text/vocab.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum {
    CHUNK = 1 << 16,
    SPARSE_SLACK = 1 << 16, /* holes beyond three per piece */
};

typedef struct rg_piece_chunk {
    struct rg_piece_chunk *next;
    size_t used, room;
    char text[];
} chunk;

bool rg_vocab_init(rg_vocab *v, size_t n_expected, rg_error *err)
{
    *v = (rg_vocab){ .ids = rg_dict_new(n_expected < RG_VOCAB_CAP ? n_expected : RG_VOCAB_CAP),
                     .outside = rg_dict_new(0),
                     .n_expected = n_expected };
    return (v->ids && v->outside) || rg_fail_memory(err, n_expected);
}

void rg_vocab_fini(rg_vocab *v)
{
    while (v->chunks) {
        chunk *next = v->chunks->next;
        rg_free(v->chunks);
        v->chunks = next;
    }
    rg_dict_free(v->ids);
    rg_dict_free(v->outside);
    rg_free(v->piece);
    rg_free(v->type);
    *v = (rg_vocab){ 0 };
}

/* A copy with a NUL after it. */
static const char *keep(rg_vocab *v, rg_string piece)
{
    chunk *c = v->chunks;
    char *at;

    if (!c || c->room - c->used < piece.n + 1) {
        size_t room = piece.n + 1 > CHUNK ? piece.n + 1 : CHUNK;
        c = rg_alloc_tail(sizeof *c, room, 1);
        if (!c)
            return NULL;
        *c = (chunk){ .next = v->chunks, .room = room };
        v->chunks = c;
    }
    at = c->text + c->used;
    if (piece.n)
        memcpy(at, piece.data, piece.n);
    at[piece.n] = '\0';
    c->used += piece.n + 1;
    return at;
}

static bool near_enough(int64_t id, size_t n_pieces, rg_error *err)
{
    return (size_t)id < 4 * n_pieces + SPARSE_SLACK ||
           rg_fail(err, RG_E_INPUT, "ids reach %lld but there are only %zu pieces", (long long)id, n_pieces);
}

static bool make_room(rg_vocab *v, int32_t n, rg_error *err)
{
    int32_t room = v->room ? v->room : 256;
    rg_string *piece;
    uint8_t *type;

    if (n <= v->room)
        return true;
    while (room < n)
        room *= 2;
    piece = rg_resize_array(v->piece, (size_t)room, sizeof *piece);
    if (!piece)
        return rg_fail_memory(err, (size_t)room * sizeof *piece);
    v->piece = piece;
    type = rg_resize(v->type, (size_t)room);
    if (!type)
        return rg_fail_memory(err, (size_t)room);
    v->type = type;
    v->room = room;
    return true;
}

static bool add(rg_vocab *v, rg_dict *ids, int64_t id, rg_string piece, rg_piece_type type, rg_error *err)
{
    char text[48];
    const char *copy;

    if (id < 0 || id >= RG_VOCAB_CAP)
        return rg_fail(err, RG_E_INPUT, "piece '%s' has id %lld, outside 0 .. %d", rg_piece_text(piece, text),
                       (long long)id, RG_VOCAB_CAP - 1);
    if (id < v->n && v->type[id] != RG_PIECE_HOLE)
        return rg_fail(err, RG_E_INPUT, "id %lld is given twice, the second time to '%s'", (long long)id,
                       rg_piece_text(piece, text));
    if (!near_enough(id, v->n_expected, err) || !make_room(v, (int32_t)id + 1, err))
        return false;
    copy = keep(v, piece);
    if (!copy)
        return rg_fail_memory(err, piece.n);
    for (; v->n <= id; v->n++) {
        v->piece[v->n] = (rg_string){ "", 0 };
        v->type[v->n] = RG_PIECE_HOLE;
    }
    v->piece[id] = (rg_string){ copy, piece.n };
    v->type[id] = (uint8_t)type;
    v->n_pieces++;
    if (piece.n > v->max_bytes)
        v->max_bytes = piece.n;
    /* The same piece under two ids: the first is what text becomes, as GGUF files with placeholders need it. */
    if (rg_dict_get(ids, copy, piece.n) < 0 && !rg_dict_put(ids, copy, piece.n, (int)id))
        return rg_fail_memory(err, piece.n);
    return true;
}

bool rg_vocab_add(rg_vocab *v, int64_t id, rg_string piece, rg_piece_type type, rg_error *err)
{
    return add(v, v->ids, id, piece, type, err);
}

bool rg_vocab_add_outside(rg_vocab *v, int64_t id, rg_string piece, rg_piece_type type, rg_error *err)
{
    return add(v, v->outside, id, piece, type, err);
}

bool rg_vocab_show(rg_vocab *v, int32_t id, rg_string piece, rg_error *err)
{
    const char *copy;

    if (piece.n == v->piece[id].n && !memcmp(piece.data, v->piece[id].data, piece.n))
        return true;
    copy = keep(v, piece);
    if (!copy)
        return rg_fail_memory(err, piece.n);
    v->piece[id] = (rg_string){ copy, piece.n };
    return true;
}

bool rg_vocab_check(const rg_vocab *v, rg_error *err)
{
    if (!v->n_pieces)
        return rg_fail(err, RG_E_INPUT, "the vocabulary is empty");
    return near_enough(v->n - 1, v->n_pieces, err);
}

int32_t rg_vocab_id(const rg_vocab *v, const char *s, size_t n)
{
    return n > v->max_bytes ? -1 : rg_dict_get(v->ids, s, n);
}

int32_t rg_vocab_find(const rg_vocab *v, const char *s, size_t n)
{
    int32_t id = rg_vocab_id(v, s, n);

    return id >= 0 ? id : rg_dict_get(v->outside, s, n);
}

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

int rg_piece_byte(rg_string p)
{
    if (p.n != 6 || memcmp(p.data, "<0x", 3) || p.data[5] != '>' || hex(p.data[3]) < 0 || hex(p.data[4]) < 0)
        return -1;
    return hex(p.data[3]) << 4 | hex(p.data[4]);
}

void rg_vocab_bytes(const rg_vocab *v, int32_t ids[256])
{
    static const char digits[] = "0123456789ABCDEF";
    char text[] = "<0x00>";

    for (int i = 0; i < 256; i++) {
        text[3] = digits[i >> 4];
        text[4] = digits[i & 15];
        ids[i] = rg_vocab_id(v, text, 6);
    }
}

const char *rg_piece_text(rg_string piece, char out[48])
{
    size_t n = piece.n < 47 ? piece.n : 47;

    for (size_t i = 0; i < n; i++)
        out[i] = (unsigned char)piece.data[i] < 32 || piece.data[i] == 127 ? '?' : piece.data[i];
    out[n] = '\0';
    return out;
}
