/* pack.h -- any format to one of the few layouts that the fast kernels read: how these back ends hold weights.
 *
 * A packed matrix is a row of panels; a panel is 16 rows of weights side by side, rows past the end being zero.  Panels
 * stand one after the other, each starting on a cache line.  Within a panel, columns run in steps of the layout: 1 for
 * the float layouts, 32 or 256 for the integer ones.  BF16 has its columns two and two, [row][2], which is what a dot
 * product of pairs wants; a last odd column stands alone.  In an integer step, four consecutive columns of one row
 * are four consecutive bytes (what a dot-product instruction and a tile want): q[group][row][4].  The codes of 32
 * columns lie in planes of 1, 2, 4 or 8 bits.  In a plane of n bits the first n groups lie side by side, the next n in
 * the bits above them, and so on.  Codes of 3, 5 and 6 bits are a plane of their lower 2, 4 or 4 bits and, behind it,
 * one of the rest.
 *
 * A wide layout is for matrices whose columns are skipped: the values of a column are neighbours through all panels;
 * from one panel to the next it is 16 values, and from one column to the next column_bytes.
 *
 * A matrix may have an order of columns behind its panels, [cols] of int32: the column of the matrix that stands at
 * each place of the panels.  An input's columns are put in that order before they meet the panels.  So a matrix of
 * GPTQ's act-order, whose groups of columns are no neighbours, is packed like any other.
 *
 * A folded layout holds codes in as many bits as the file: vectors of a grid, or digits of base 3.  No kernel
 * multiplies it: a few panels are unfolded to TK4, TK4H or Q2 (rg_unfold), and multiplied as those.  So memory holds
 * the small form, while bits and kernels are those of the large one.
 *
 * A layout of codes of a table has the table at the head of every panel: 16 values, each weight being one of them times
 * a scale.
 *
 * Nothing is lost: decoding a packed matrix gives what decoding the file's format gives, to the bit.  Both evaluate, in
 * f32 with one rounding per operation and nothing fused:
 *   Q4, Q5, Q8, Q2: d * (q - o)         o: 8, 16, 128 or 1; q - o is an exact integer
 *   Q4M, Q5M:   (d * q) + m
 *   K2, K4, K5: ((d * s) * q) - (e * t)
 *   K3, K6:     (d * s) * (q - o)       o: 4 or 32
 *   T4 ...:     d * table[q];   TK4, TK4H: (d * s) * table[q];   T4N: ((s * a) / b) * table[q]
 *   Z4, Z8:     d * (q - z)
 *   F8:         d * (the value of the code q)
 * (A scale of infinity or NaN gives the same on both sides as well.) */
#ifndef RG_OPS_CPU_PACK_H
#define RG_OPS_CPU_PACK_H

#include "base/mem.h"
#include "ops/placed.h"

enum { RG_PANEL = 16 }; /* rows of a panel */

typedef struct rg_step_f32 { /* also F32W: what one panel has of a column */
    float q[16];
} rg_step_f32;

typedef struct rg_step_f16 { /* also BF16, F16W, BF16W */
    uint16_t q[16];
} rg_step_f16;

typedef struct rg_step_q4 { /* also T4 */
    uint16_t d[16];         /* f16 */
    uint8_t q[4][16][4];    /* low nibble: columns 4g .. 4g+3; high nibble: columns 16 + 4g .. */
} rg_step_q4;

typedef struct rg_step_q4m {
    uint16_t d[16], m[16];
    uint8_t q[4][16][4];
} rg_step_q4m;

typedef struct rg_step_q8 {
    uint16_t d[16];
    uint8_t q[8][16][4]; /* value + 128 */
} rg_step_q8;

typedef struct rg_step_q5 {
    uint16_t d[16];
    uint8_t q[5][16][4]; /* as in rg_step_q4, then bit g: the fifth of columns 4g .. 4g + 3 */
} rg_step_q5;

typedef struct rg_step_q5m {
    uint16_t d[16], m[16];
    uint8_t q[5][16][4];
} rg_step_q5m;

typedef struct rg_step_k4 { /* 256 columns: 8 runs of 32 */
    uint16_t d[16], e[16];
    int8_t s[8][16];
    uint8_t t[8][16];
    uint8_t q[8][4][16][4]; /* per run as in rg_step_q4 */
} rg_step_k4;

typedef struct rg_step_k5 {
    uint16_t d[16], e[16];
    int8_t s[8][16];
    uint8_t t[8][16];
    uint8_t q[8][5][16][4]; /* per run as in rg_step_q5 */
} rg_step_k5;

typedef struct rg_step_k2 { /* 256 columns: 16 runs of 16 */
    uint16_t d[16], e[16];
    uint8_t st[16][16];     /* low nibble s, high nibble t */
    uint8_t q[8][2][16][4]; /* bits 2p of group g: columns 8p + 4g .. 8p + 4g + 3 of 32 */
} rg_step_k2;

typedef struct rg_step_k3 {
    uint16_t d[16];
    uint8_t low[8][16];     /* s + 32 of run 2i + h: its lower four bits are nibble h of low[i], */
    uint8_t high[4][16];    /* the upper two are bits 2h, or 4 + 2h where i >= 4, of high[i % 4] */
    uint8_t q[8][3][16][4]; /* as in rg_step_k2, then bit g: the third of columns 4g .. 4g + 3 */
} rg_step_k3;

typedef struct rg_step_k6 {
    uint16_t d[16];
    int8_t s[16][16];
    uint8_t q[8][6][16][4]; /* as in rg_step_q4, then the upper two bits as in rg_step_k2 */
} rg_step_k6;

/* The head of a panel of codes. */
typedef struct rg_table {
    float value[16];
    uint8_t byte[16]; /* value / unit rounded to an integer, plus 128: what the int8 recipe multiplies */
    float unit;       /* 1 where all values are integers of 8 bits */
    uint8_t fill[44];
} rg_table;

typedef struct rg_table_factors { /* of T4N */
    rg_table table;
    float a[16], b[16]; /* of each row */
} rg_table_factors;

typedef struct rg_step_t4e {
    uint8_t d[16]; /* e8m0: 2^(d - 128) */
    uint8_t q[4][16][4];
} rg_step_t4e;

typedef struct rg_step_t4f {
    float d[16];
    uint8_t q[4][16][4];
} rg_step_t4f;

typedef struct rg_step_t4n {
    uint8_t s[2][16]; /* e4m3, of each 16 columns */
    uint8_t q[4][16][4];
} rg_step_t4n;

typedef struct rg_step_tk4 { /* 256 columns: 8 runs of 32 */
    float d[16];
    int8_t s[8][16];
    uint8_t q[8][4][16][4];
} rg_step_tk4;

typedef struct rg_step_tk4h { /* the same with a scale for each half of a run */
    float d[16];
    int8_t s[16][16];
    uint8_t q[8][4][16][4];
} rg_step_tk4h;

typedef struct rg_step_z4 {
    float d[16];
    uint8_t z[16];
    uint8_t q[1][4][16][4];
} rg_step_z4;

typedef struct rg_step_z4w { /* 128 columns: 4 runs of 32 */
    float d[16];
    uint8_t z[16];
    uint8_t q[4][4][16][4];
} rg_step_z4w;

typedef struct rg_step_z8 {
    float d[16];
    uint8_t z[16];
    uint8_t q[1][8][16][4];
} rg_step_z8;

typedef struct rg_step_z8w {
    float d[16];
    uint8_t z[16];
    uint8_t q[4][8][16][4];
} rg_step_z8w;

typedef struct rg_step_q2 { /* 256 columns: 8 runs of 32 */
    uint16_t d[16];         /* f16 */
    uint8_t q[8][2][16][4]; /* bits 2p of group g: columns 8p + 4g .. 8p + 4g + 3 of the run */
} rg_step_q2;

/* TQ1_0, whose bytes these are.  Digit n of group j is column 32 n + 4 j and on; from group 8 on, 160 + 16 n +
 * 4 (j - 8); of the last, 240 + 4 n. */
typedef struct rg_step_q1 {
    uint16_t d[16];
    uint8_t q[13][16][4];
} rg_step_q1;

/* Folded layouts of vectors of a grid: 256 columns, 8 runs of 32; d, but for G1M, and the lower 8 bits of the entries
 * of a run's vectors come first.  signs: of column 16 u + 4 g + k of a run bit 8 k + 3 - g + 4 u, so that a shift by g
 * puts the signs of group g where a code of TK4 has them, in bits 3 and 7.  Where the signs of 8 columns tell the last
 * of them (not so in G2S and G3S), the scale of the run, or of its first half, lies there, its lowest bit lowest. */
typedef struct rg_step_g1 { /* IQ1_S */
    uint16_t d[16];
    uint8_t q[8][16][4];
    uint16_t h[8][16]; /* bits 3i: the upper 3 bits of entry i; 12: the scale; 15: moved down */
} rg_step_g1;

typedef struct rg_step_g1m { /* IQ1_M */
    uint8_t q[8][16][4];
    uint16_t h[8][16]; /* bits 4i: the upper 3 bits of entry i, and moved down */
    uint16_t s[4][16]; /* of two runs, bits 3i: the scale of 16 columns; 12: four bits of d */
} rg_step_g1m;

typedef struct rg_step_g2 { /* IQ2_XXS */
    uint16_t d[16];
    uint8_t q[8][16][4];
    uint32_t signs[8][16];
} rg_step_g2;

typedef struct rg_step_g2h { /* IQ2_XS */
    uint16_t d[16];
    uint8_t q[8][16][4];
    uint32_t signs[8][16];
    uint8_t h[8][16]; /* bit i: the ninth bit of entry i; bits 4 .. 7: the scale of the second half */
} rg_step_g2h;

typedef struct rg_step_g2s { /* IQ2_S */
    uint16_t d[16];
    uint8_t q[8][16][4];
    uint32_t signs[8][16];
    uint8_t h[8][16]; /* bits 2i: the upper 2 bits of entry i */
    uint8_t s[8][16]; /* nibbles: the scales of both halves */
} rg_step_g2s;

typedef struct rg_step_g3 { /* IQ3_XXS */
    uint16_t d[16];
    uint8_t q[8][2][16][4];
    uint32_t signs[8][16];
} rg_step_g3;

typedef struct rg_step_g3s { /* IQ3_S */
    uint16_t d[16];
    uint8_t q[8][2][16][4];
    uint32_t signs[8][16];
    uint8_t h[8][16]; /* bit i: the ninth bit of entry i */
    uint8_t s[4][16]; /* nibbles: the scales of two runs */
} rg_step_g3s;

typedef struct rg_step_f8 { /* 128 columns */
    float d[16];
    uint8_t q[128][16]; /* e4m3: column by column, as in the float layouts */
} rg_step_f8;

typedef struct rg_packed {
    rg_placed placed;   /* first; type: what it was packed from; each matrix starts on a new panel; bytes: of data */
    rg_layout layout;
    size_t panel_bytes; /* from one panel to the next */
    size_t column_bytes; /* of a wide layout: from one column to the next; 0: it is none */
    size_t order_bytes; /* behind the panels of each matrix: the order of its columns; 0: they are in order */
    uint8_t *data;      /* rg_region; panels of matrix 0, then of matrix 1, ...; NULL: they are pages */
    struct rg_paged *paged; /* matrix 0 is page first_page of it (paged.h); NULL: all are in data */
    int first_page;
} rg_packed;

static inline const rg_packed *rg_packed_of(const rg_placed *w)
{
    return (const rg_packed *)w;
}

/* Columns per step; bytes of a step (one panel, one step); of a panel's head; bits of a value; its name.  Inline,
 * because kernels ask for constants. */
static inline __attribute__((always_inline)) int rg_layout_step(rg_layout layout)
{
    switch (layout) {
#define LAYOUT(NAME, columns, step, bits, head) case RG_LAYOUT_##NAME: return columns;
#include "ops/cpu/layouts.def"
#undef LAYOUT
    default: return 1;
    }
}

static inline __attribute__((always_inline)) size_t rg_layout_step_bytes(rg_layout layout)
{
    switch (layout) {
#define LAYOUT(NAME, columns, step, bits, head) case RG_LAYOUT_##NAME: return sizeof(step);
#include "ops/cpu/layouts.def"
#undef LAYOUT
    default: return 0;
    }
}

static inline __attribute__((always_inline)) size_t rg_layout_head_bytes(rg_layout layout)
{
    switch (layout) {
#define LAYOUT(NAME, columns, step, bits, head) case RG_LAYOUT_##NAME: return head;
#include "ops/cpu/layouts.def"
#undef LAYOUT
    default: return 0;
    }
}

static inline __attribute__((always_inline)) int rg_layout_bits(rg_layout layout)
{
    switch (layout) {
#define LAYOUT(NAME, columns, step, bits, head) case RG_LAYOUT_##NAME: return bits;
#include "ops/cpu/layouts.def"
#undef LAYOUT
    default: return 0;
    }
}

/* Bits of the lower plane of its codes. */
static inline __attribute__((always_inline)) int rg_layout_low_bits(rg_layout layout)
{
    const int bits = rg_layout_bits(layout);

    return bits >= 8 ? 8 : bits >= 4 ? 4 : 2;
}

/* Where a BF16 panel of so many columns has column k of a row, counted in values. */
static inline size_t rg_bf16_at(int64_t cols, int64_t k, int row)
{
    const size_t pair = 16 * (size_t)(k & ~(int64_t)1);

    return (k | 1) < cols ? pair + 2 * (size_t)row + (size_t)(k & 1) : pair + (size_t)row;
}

/* s of run i (of 16 columns) of a row. */
static inline __attribute__((always_inline)) int rg_k3_scale(const rg_step_k3 *k, int i, int row)
{
    const int low = k->low[i / 2][row] >> i % 2 * 4 & 15, high = k->high[i / 2 % 4][row] >> (i / 8 * 4 + i % 2 * 2) & 3;

    return (low | high << 4) - 32;
}

/* Where the codes begin in a step of an integer layout: they are its last member, 32 columns after 32 columns. */
static inline __attribute__((always_inline)) size_t rg_layout_codes_at(rg_layout layout)
{
    return rg_layout_step_bytes(layout) - (size_t)(rg_layout_step(layout) * RG_PANEL * rg_layout_bits(layout) / 8);
}

/* The layout that a folded one is unfolded to; else itself. */
static inline __attribute__((always_inline)) rg_layout rg_layout_unfolded(rg_layout layout)
{
    switch (layout) {
    case RG_LAYOUT_G1:
    case RG_LAYOUT_G2:
    case RG_LAYOUT_G3:
    case RG_LAYOUT_G3S: return RG_LAYOUT_TK4;
    case RG_LAYOUT_G1M:
    case RG_LAYOUT_G2H:
    case RG_LAYOUT_G2S: return RG_LAYOUT_TK4H;
    case RG_LAYOUT_Q1: return RG_LAYOUT_Q2;
    default: return layout;
    }
}

static inline __attribute__((always_inline)) bool rg_layout_is_folded(rg_layout layout)
{
    return rg_layout_unfolded(layout) != layout;
}

/* The type that has a folded layout: there is one. */
static inline __attribute__((always_inline)) rg_type rg_folded_type(rg_layout layout)
{
    switch (layout) {
    case RG_LAYOUT_Q1: return RG_TQ1_0;
    case RG_LAYOUT_G1: return RG_IQ1_S;
    case RG_LAYOUT_G1M: return RG_IQ1_M;
    case RG_LAYOUT_G2: return RG_IQ2_XXS;
    case RG_LAYOUT_G2H: return RG_IQ2_XS;
    case RG_LAYOUT_G2S: return RG_IQ2_S;
    case RG_LAYOUT_G3: return RG_IQ3_XXS;
    default: return RG_IQ3_S;
    }
}

/* Bytes of a panel of a folded layout, of cols columns, once unfolded: whole cache lines. */
static inline size_t rg_unfolded_bytes(rg_layout layout, int cols)
{
    const rg_layout to = rg_layout_unfolded(layout);
    const size_t bytes = rg_layout_head_bytes(to) + (size_t)cols / 256 * rg_layout_step_bytes(to);

    return (bytes + RG_ALIGN - 1) / RG_ALIGN * RG_ALIGN; /* fits: scratch of that size was made */
}

/* The panel of a folded layout, of cols columns, as one of rg_layout_unfolded; to: as many steps, behind a head, if it
 * has one.  The definition of what the kernels of each instruction set do (kernels.h). */
void rg_unfold(rg_layout layout, const uint8_t *panel, int cols, uint8_t *to);

/* The wide twin of a layout; NONE: it has none. */
static inline rg_layout rg_layout_wide(rg_layout layout)
{
    return layout == RG_LAYOUT_F32    ? RG_LAYOUT_F32W
           : layout == RG_LAYOUT_F16  ? RG_LAYOUT_F16W
           : layout == RG_LAYOUT_BF16 ? RG_LAYOUT_BF16W
                                      : RG_LAYOUT_NONE;
}

/* Size p for a matrix of this type, without data.  False: cols not a multiple of the block, or overflow. */
bool rg_packed_shape(rg_packed *p, rg_type type, int64_t n_mats, int64_t rows, int64_t cols, rg_error *err);
/* The same, and allocate it, zeroed.  False also: no memory. */
bool rg_packed_init(rg_packed *p, rg_type type, int64_t n_mats, int64_t rows, int64_t cols, rg_error *err);
/* Both for matrices that have an order of columns, which is at first that of the columns. */
bool rg_packed_shape_ordered(rg_packed *p, rg_type type, int64_t n_mats, int64_t rows, int64_t cols, rg_error *err);
bool rg_packed_init_ordered(rg_packed *p, rg_type type, int64_t n_mats, int64_t rows, int64_t cols, rg_error *err);
/* The same as rg_packed_init in the wide twin of the type's layout, where it has one. */
bool rg_packed_init_wide(rg_packed *p, rg_type type, int64_t n_mats, int64_t rows, int64_t cols, rg_error *err);
void rg_packed_fini(rg_packed *p);

/* Put one row (as stored: cols values of its type, in the matrix's order of columns) in its place.  Different rows may
 * be put by different threads if they are in different panels. */
void rg_pack_row(rg_packed *p, int64_t mat, int64_t row, const void *src);

/* Set the order of columns of a matrix, of a packed one that has orders; order [cols]. */
void rg_pack_order(rg_packed *p, int64_t mat, const int32_t *order);

/* Decode one row to cols floats, columns where they belong: what the embedding reads, and what tests compare. */
void rg_unpack_row(const rg_packed *p, int64_t mat, int64_t row, float *out);

/* Bytes of the panels of one of its matrices. */
static inline size_t rg_packed_panels_bytes(const rg_packed *p)
{
    return p->column_bytes ? (size_t)p->placed.cols * p->column_bytes
                           : (size_t)((p->placed.rows + RG_PANEL - 1) / RG_PANEL) * p->panel_bytes;
}

/* Bytes of one of its matrices. */
static inline size_t rg_packed_mat_bytes(const rg_packed *p)
{
    return rg_packed_panels_bytes(p) + p->order_bytes;
}

/* The order of columns, [cols], of the matrix whose panels are these; NULL: they are in order. */
static inline const int32_t *rg_order_behind(const rg_packed *p, const uint8_t *panels)
{
    return p->order_bytes ? (const int32_t *)(const void *)(panels + rg_packed_panels_bytes(p)) : NULL;
}

static inline const uint8_t *rg_panel_at(const rg_packed *p, int64_t mat, int64_t panel)
{
    return p->data + (size_t)mat * rg_packed_mat_bytes(p) + (size_t)panel * p->panel_bytes;
}

#endif
