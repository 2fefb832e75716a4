/* composed.h -- tensors that are made of others when they are read: the forms in which quantizers store weights in
 * safetensors.
 *
 * Such a weight is several tensors of the file: codes, scales, zero points.  The reader of Hugging Face folders puts
 * one tensor in their place, under the weight's usual name and in a format whose blocks hold all of it (formats.def);
 * its bytes are put together as rows are read.  Included by the files of this floor only. */
#ifndef RG_CKPT_COMPOSED_H
#define RG_CKPT_COMPOSED_H

#include "ckpt/internal.h"

/* How codes lie. */
typedef enum rg_codes {
    RG_CODES_DOWN,  /* GPTQ: 32-bit words [columns' bits / 32, rows], along the columns */
    RG_CODES_AWQ,   /* words [columns, rows / 8], nibble i of a word being row 0, 2, 4, 6, 1, 3, 5, 7 of its eight */
    RG_CODES_WORDS, /* compressed-tensors: words [rows, columns' bits / 32], along the columns */
    RG_CODES_BYTES, /* [rows, columns] signed, or of e4m3 */
    RG_CODES_PAIRS, /* bytes [rows, columns / 2], the low nibble first */
    RG_CODES_FLAT,  /* bitsandbytes: bytes over rows and columns as one, the high nibble first */
} rg_codes;

struct rg_composed {
    rg_type type; /* of what is made: one with blocks, or f32 where groups of columns do not fit them */
    rg_codes codes;
    int bits;
    int64_t rows, cols;
    int64_t group, n_groups;  /* columns under a scale */
    int64_t block_rows;       /* rows under a scale: 1, or a block's */
    const int32_t *group_of;  /* [cols]; NULL: column / group */
    const int32_t *order;     /* [cols] columns by group, where group_of is out of order and every group has `group`
                               *   columns: those of a row of blocks.  NULL: they are not sorted */
    rg_tensor q, scale, zero; /* zero.name NULL: none are stored */
    bool scales_down;         /* scales are [groups, rows] */
    int zero_plus;            /* added to stored zero points; without, the zero point */
    float a, b;               /* a divisor of f32 scales in b; the factors of NVFP4_2 */
    rg_tensor nested;         /* scales of the scales, which are codes then; name NULL: none */
    const float *nested_map;
    float nested_offset;
    int64_t flat, nested_flat; /* values under a scale, and scales under a scale, of RG_CODES_FLAT */
};

/* What config.json says; 0: it does not. */
typedef struct rg_composed_config {
    int64_t group;                  /* columns under a scale */
    int64_t block_rows, block_cols; /* rows and columns under a scale of a block */
    int gptq_plus;                  /* GPTQ's zero points are stored less this */
} rg_composed_config;

/* Refuses methods, and settings of them, that are not known. */
bool rg_composed_config_read(rg_composed_config *out, const rg_checkpoint *c, rg_error *err) RG_MUST_CHECK;

/* Replaces the stored tensors by those composed of them.  Refuses unknown forms and settings. */
bool rg_composed_find(rg_checkpoint *c, rg_error *err) RG_MUST_CHECK;
/* As rg_tensor_note, of a composed tensor. */
const char *rg_composed_note(const rg_composed *m, const rg_tensor *t);
/* Rows [first, first + n) of a composed tensor, in blocks of its type. */
bool rg_composed_rows(const rg_checkpoint *c, const rg_tensor *t, int64_t first, int64_t n, uint8_t *to,
                  rg_error *err) RG_MUST_CHECK;

#endif
