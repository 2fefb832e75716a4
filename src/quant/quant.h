/* quant.h -- the format table, built from formats.def: how each weight format is decoded, encoded and cut into
 * integers with scales.  Pure functions; no memory of their own. */
#ifndef RG_QUANT_QUANT_H
#define RG_QUANT_QUANT_H

#include "base/error.h"

typedef enum rg_type {
#define FORMAT(NAME, file, text, gguf, st, len, bytes, layout) RG_##NAME,
#include "quant/formats.def"
#undef FORMAT
    RG_TYPE_COUNT
} rg_type;

/* The few shapes that formats have in common: what the fast kernels read (ops/cpu/pack.h has their structs).  NONE: not
 * a weight of a matrix product. */
typedef enum rg_layout {
    RG_LAYOUT_NONE,
    RG_LAYOUT_F32,
    RG_LAYOUT_F16,
    RG_LAYOUT_BF16,
    RG_LAYOUT_Q4,   /* 4 bits, a scale per 32:                      w = d (q - 8) */
    RG_LAYOUT_Q8,   /* 8 bits, a scale per 32:                      w = d (q - 128) */
    RG_LAYOUT_Q4M,  /* 4 bits, scale and minimum per 32:            w = d q + m */
    RG_LAYOUT_Q5,   /* 5 bits, a scale per 32:                      w = d (q - 16) */
    RG_LAYOUT_Q5M,  /* 5 bits, scale and minimum per 32:            w = d q + m */
    RG_LAYOUT_K4,   /* 4 bits, two levels of scale, per 32:         w = (d s) q - (e t) */
    RG_LAYOUT_K5,   /* 5 bits, the same */
    RG_LAYOUT_K2,   /* 2 bits, the same, per 16 */
    RG_LAYOUT_K3,   /* 3 bits, two levels of scale, per 16:         w = (d s) (q - 4) */
    RG_LAYOUT_K6,   /* 6 bits, the same:                            w = (d s) (q - 32) */
    RG_LAYOUT_T4,   /* 4-bit codes of a table, a scale per 32:      w = d table[q] */
    RG_LAYOUT_T4E,  /* the same, the scale a power of two */
    RG_LAYOUT_T4F,  /* the same, the scale in f32 */
    RG_LAYOUT_T4N,  /* the same, an e4m3 scale per 16, two factors: w = ((s a) / b) table[q] */
    RG_LAYOUT_TK4,  /* the same, two levels of scale, per 32:       w = (d s) table[q] */
    RG_LAYOUT_TK4H, /* the same, per 16 */
    RG_LAYOUT_Z4,   /* 4 bits, f32 scale and zero point per 32:     w = d (q - z) */
    RG_LAYOUT_Z4W,  /* the same, per 128 */
    RG_LAYOUT_Z8,   /* 8 bits, f32 scale and zero point per 32:     w = d (q - z) */
    RG_LAYOUT_Z8W,  /* the same, per 128 */
    RG_LAYOUT_Q2,   /* 2 bits, a scale per 256:                     w = d (q - 1) */
    RG_LAYOUT_F8,   /* e4m3, an f32 scale per 128:                  w = d value(q) */
    RG_LAYOUT_F32W, /* wide: the values of a column side by side */
    RG_LAYOUT_F16W,
    RG_LAYOUT_BF16W,
    RG_LAYOUT_Q1,   /* folded: five digits of base 3 in a byte, as Q2 */
    RG_LAYOUT_G1,   /* folded: vectors of a grid in the bits of the file, one layout for each format */
    RG_LAYOUT_G1M,
    RG_LAYOUT_G2,
    RG_LAYOUT_G2H,
    RG_LAYOUT_G2S,
    RG_LAYOUT_G3,
    RG_LAYOUT_G3S,
    RG_LAYOUT_COUNT
} rg_layout;

const char *rg_layout_name(rg_layout layout);

/* One block of a format in the layout's terms; what packing writes.  A layout reads what it has. */
typedef struct rg_ints {
    uint8_t q[256];     /* the layout's q: offset already added */
    uint16_t d, e;      /* f16 bits: d, and the layout's m or e */
    int8_t s[16];       /* K4, K5, TK4: 8 of them, K2, K3, K6, TK4H: 16 */
    uint8_t t[16];
    uint8_t scales[4];  /* T4E: e8m0, T4N: e4m3, one per 16 */
    float f, a, b;      /* d where it is f32; the factors of T4N */
    uint8_t zero;       /* z */
    const float *table; /* [16] of the layouts that have one; the same for all blocks of a format */
} rg_ints;

/* One block of a format whose codes are vectors of a grid. */
typedef struct rg_vectors {
    uint16_t d;         /* f16 */
    int scale[16];      /* by run: s = 2 scale + 1 */
    uint16_t entry[64]; /* by vector: which of the grid */
    uint8_t high[64];   /* by vector: its signs, a bit for each value; or 1: moved down */
} rg_vectors;

enum { RG_NO_GGUF = INT32_MAX };

typedef struct rg_format {
    const char *name;        /* "q4_0" */
    uint32_t gguf_id;        /* RG_NO_GGUF: not in GGUF */
    const char *safetensors; /* NULL: not in safetensors */
    int block_len, block_bytes;
    rg_layout layout;
    /* n_blocks blocks to n_blocks * block_len floats, exactly as the format defines. */
    void (*decode)(const void *blocks, int64_t n_blocks, float *y);
    /* The reverse, rounding as the formats' reference quantizer does for the plain types, by least squares for the
     * k-types.  Never NULL for a type that `quantize` may write; NULL for the integer types. */
    void (*encode)(const float *x, int64_t n_blocks, void *blocks);
    /* One block in the layout's terms.  NULL for the layouts F32, F16, BF16, NONE. */
    void (*ints)(const void *block, rg_ints *out);
} rg_format;

const rg_format *rg_format_of(rg_type type);
/* Encode so that the sum of importance * error^2 is small.  importance: one for each value, not negative; NULL: as
 * `encode`. */
void rg_encode_weighted(rg_type type, const float *x, const float *importance, int64_t n_blocks, void *blocks);
/* The reverse of `ints`, for MXFP4 and the formats that no file holds. */
void rg_ints_put(rg_type type, const rg_ints *ints, void *block);
bool rg_type_by_name(const char *name, rg_type *type);        /* "q4_0", "Q4_0"; false: unknown */
bool rg_type_by_gguf(uint32_t id, rg_type *type);
bool rg_type_by_safetensors(const char *name, rg_type *type);
/* "f32, f16, ...": the types of GGUF by their names, or those of safetensors by theirs.  Returns out. */
enum { RG_TYPE_NAMES = 320 };
char *rg_type_names(bool gguf, char out[RG_TYPE_NAMES]);

/* For types whose codes are vectors of a grid (IQ1, IQ2, IQ3): the vectors of a block, and its codes and scales. */
void rg_vectors_load(rg_type type, const void *block, rg_vectors *out);
void rg_vectors_ints(rg_type type, const rg_vectors *v, rg_ints *out);
/* The grid of such a type, [entries]: of vectors of 8 values the code of value i is in the lower half of byte i, that
 * of value 4 + i in the upper one; of vectors of 4 the upper halves are 0. */
const uint32_t *rg_grid_of(rg_type type);

/* Bytes of n values of a row; false if a block does not divide n or the size overflows. */
bool rg_row_bytes(rg_type type, int64_t n, uint64_t *bytes);

/* Single values, shared by formats and state.  Round to nearest even; NaN stays NaN. */
float rg_f16_to_f32(uint16_t h);
uint16_t rg_f32_to_f16(float x);
float rg_bf16_to_f32(uint16_t h);
uint16_t rg_f32_to_bf16(float x);
float rg_e8m0_half_to_f32(uint8_t e);  /* 2^(e - 128): half of what the code says, for tables of doubled values */
float rg_e4m3_to_f32(uint8_t v);       /* finite and NaN, no infinity */
uint8_t rg_f32_to_e4m3(float x);       /* beyond 448, and infinity, become 448 */
float rg_e5m2_to_f32(uint8_t v);

#endif
