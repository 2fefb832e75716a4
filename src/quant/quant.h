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

/* The few shapes that the fast kernels read (pack.h has their structs).  NONE: not a weight of a matrix product. */
typedef enum rg_layout {
    RG_LAYOUT_NONE,
    RG_LAYOUT_F32,
    RG_LAYOUT_F16,
    RG_LAYOUT_BF16,
    RG_LAYOUT_Q4,  /* 4 bits, a scale per 32:              w = d (q - 8) */
    RG_LAYOUT_Q8,  /* 8 bits, a scale per 32:              w = d (q - 128) */
    RG_LAYOUT_Q4M, /* 4 bits, scale and minimum per 32:    w = d q + m */
    RG_LAYOUT_Q8M, /* 8 bits, scale and minimum per 32:    w = d q + m */
    RG_LAYOUT_K4,  /* 4 bits, two levels of scale, per 32: w = (d s) q - (e t) */
    RG_LAYOUT_K8,  /* 8 bits, two levels of scale, per 16: w = (d s) (q - 128) - (e t) */
    RG_LAYOUT_COUNT
} rg_layout;

/* The integers of one run of 256 (or 32) values, in the layout's terms; what packing writes. */
typedef struct rg_ints {
    uint8_t q[256]; /* the layout's q: offset already added */
    uint16_t d, e;  /* f16 bits: d, and the layout's m or e */
    int8_t s[16];   /* K4: 8 of them, K8: 16 */
    uint8_t t[16];
} rg_ints;

typedef struct rg_format {
    const char *name;        /* "q4_0" */
    uint32_t gguf_id;
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
bool rg_type_by_name(const char *name, rg_type *type);        /* "q4_0", "Q4_0"; false: unknown */
bool rg_type_by_gguf(uint32_t id, rg_type *type);
bool rg_type_by_safetensors(const char *name, rg_type *type);

/* Bytes of n values of a row; false if a block does not divide n or the size overflows. */
bool rg_row_bytes(rg_type type, int64_t n, uint64_t *bytes);

/* Single values, shared by formats and state.  Round to nearest even; NaN stays NaN. */
float rg_f16_to_f32(uint16_t h);
uint16_t rg_f32_to_f16(float x);
float rg_bf16_to_f32(uint16_t h);
uint16_t rg_f32_to_bf16(float x);

#endif
