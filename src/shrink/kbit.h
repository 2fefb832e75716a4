/* kbit.h -- matrices as codes of k bits with a scale for each run of columns: how ranges are chosen, how values are
 * rounded to codes, and what codes stand for.  Pure; knows no file. */
#ifndef RG_SHRINK_KBIT_H
#define RG_SHRINK_KBIT_H

#include "base/mem.h"
#include "quant/quant.h"

/* A zeroed table of rows * cols values of `each` bytes; NULL: no memory, or more than can be. */
static inline void *rg_table_new(int64_t rows, int64_t cols, size_t each)
{
    size_t n;

    return rows >= 0 && cols >= 0 && rg_mul((size_t)rows, (size_t)cols, &n) ? rg_array(n, each) : NULL;
}

typedef enum rg_code_kind {
    RG_CODE_INT,      /* w = d (q - z) */
    RG_CODE_MINIMUM,  /* w = d q + m: GGUF's types that have a minimum */
    RG_CODE_FLOAT,    /* w = d table[q]: sign, exponent, fraction */
    RG_CODE_QUANTILE, /* w = d table[q]: quantiles of the normal distribution, 0 among them; 4 bits: NF4 */
    RG_CODE_F8,       /* w = d (q as e4m3) */
} rg_code_kind;

/* How matrices are coded. */
typedef struct rg_coding {
    rg_code_kind kind;
    int bits;           /* 2 .. 8 */
    bool sym;           /* of INT: the range is as wide on both sides of zero, z = 2^(bits - 1) */
    bool by_most;       /* the scale is the largest value, and `over` of codes is 127: bitsandbytes */
    bool narrow;        /* of a symmetric INT: d = most / (2^(bits - 1) - 1), and the lowest code is not used */
    int64_t group;      /* columns under a scale; 0: all of a row */
    rg_type scale_type; /* scales and minima are rounded to it; RG_F32: they are not */
    float table[256];   /* of FLOAT and QUANTILE, rising; set by rg_coding_init */
    uint8_t order[256]; /* the code of the i-th value of the table */
} rg_coding;

/* Fill in the table.  False: a number of bits or a group that there is no such coding for. */
bool rg_coding_init(rg_coding *c, rg_error *err) RG_MUST_CHECK;
bool rg_code_kind_by_name(const char *name, rg_code_kind *kind); /* int, float, quantile */

/* A matrix in codes. */
typedef struct rg_coded {
    rg_code_kind kind;
    int bits;
    bool sym;   /* all zero points are 2^(bits - 1) */
    float over; /* scales are divided by it first: bitsandbytes stores the largest value, 127 scales; else 1 */
    int64_t rows, cols, group, n_groups;
    int64_t block_rows; /* rows under a scale: 1, or more of F8 */
    uint8_t *q;         /* [rows, cols] */
    float *scale;       /* [rows / block_rows, n_groups] */
    float *zero;        /* the same: z, or m; NULL: the kind has none */
    int32_t *group_of;  /* [cols]; NULL: column / group */
    float table[256];   /* by code */
} rg_coded;

bool rg_coded_init(rg_coded *to, const rg_coding *c, int64_t rows, int64_t cols, rg_error *err) RG_MUST_CHECK;
void rg_coded_fini(rg_coded *c);

/* One run of a row: its scale, and zero or minimum, so that n values (or their least and greatest) fit. */
void rg_choose_scale(const rg_coding *c, float least, float most, float *scale, float *zero);
/* The nearest code, ties to even; what a code stands for. */
uint8_t rg_code_of(const rg_coding *c, float w, float scale, float zero);
float rg_code_value(const rg_coded *c, uint8_t q, float scale, float zero);

static inline int64_t rg_group_of(const rg_coded *c, int64_t col)
{
    return c->group_of ? c->group_of[col] : col / c->group;
}
/* Row r as values. */
void rg_coded_row(const rg_coded *c, int64_t r, float *to);

/* Round row r, which is w [cols], to the nearest codes. */
void rg_round_row(rg_coded *to, const rg_coding *c, int64_t r, const float *w);
/* Round all of w [rows, cols] to the nearest codes: RTN.  to has been initialised. */
void rg_round_to_nearest(rg_coded *to, const rg_coding *c, const float *w);

#endif
