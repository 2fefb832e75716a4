/* shrink.h -- models made smaller: what a method is, and the driver that takes one through a model, layer by layer.
 *
 * A method gets the matrices of a layer in f32, and what they read on calibration text, and gives codes and scales, or
 * weights that scales were folded into.  One file and one line in methods.def for each.  The driver keeps one layer in
 * memory, and what it made of each in a folder beside the output, so that a run that was stopped goes on from there;
 * the output is written last, whole or not at all. */
#ifndef RG_SHRINK_SHRINK_H
#define RG_SHRINK_SHRINK_H

#include "model/convert.h"
#include "shrink/kbit.h"
#include "shrink/stage.h"

/* ---- what a method sees ------------------------------------------------------------------------------------------ */

/* What it wants to know of the inputs of matrices. */
enum { RG_NEED_GRAM = 1, RG_NEED_SPREAD = 2, RG_NEED_ROWS = 4 };

/* What matrices of one operation read, over the calibration text. */
typedef struct rg_input {
    const rg_weight *w[3]; /* n_w of them */
    int n_w;
    bool takes_zeros; /* as in rg_read */
    int64_t mat, cols, n_rows;
    double *gram;    /* [cols, cols] sum of x x^T */
    double *abs_sum; /* [cols] sum of |x|, */
    float *abs_max;  /* [cols] and the largest */
    float *rows;     /* [n_kept, cols], evenly spaced over all; at most RG_KEPT_ROWS */
    int64_t n_kept;
} rg_input;
enum { RG_KEPT_ROWS = 512 };

typedef struct rg_matrix {
    const rg_weight *weight;
    int64_t mat, rows, cols;
    const char *name; /* of its tensor */
    float *w;         /* [rows, cols] */
    rg_input *x;      /* NULL: nothing was read, or nobody asked */
    rg_coding coding; /* as the options say; the method may change it */
    rg_coded coded;   /* made by the method; q NULL: the matrix stays as it was stored, or plain = true: as w is */
    bool plain;
    double error; /* set by the driver: share of the output's power that is lost (of the weights', without x) */
} rg_matrix;

/* A vector that scales were folded into. */
typedef struct rg_folded {
    const rg_weight *weight;
    float *values;
} rg_folded;

typedef struct rg_shrink_options rg_shrink_options;

typedef struct rg_layer_work {
    const rg_shrink_options *o;
    int layer;
    rg_stage *stage; /* NULL: the method needs no activations */
    rg_pool *pool;
    const rg_config *config;
    rg_matrix *m;
    int n;
    rg_input *inputs;
    int n_inputs;
    rg_folded *folded; /* [as many vectors as the layer has] */
    int n_folded;
    char note[120]; /* said of the layer in the report; "": nothing */
} rg_layer_work;

/* How codes lie in a Hugging Face directory. */
typedef enum rg_packing {
    RG_FORM_GPTQ,   /* qweight, qzeros, scales, g_idx */
    RG_FORM_AWQ,    /* the same, along the rows */
    RG_FORM_PACKED, /* compressed-tensors: pack-quantized */
    RG_FORM_BYTES,  /* compressed-tensors: int-quantized */
    RG_FORM_F8,     /* compressed-tensors: float-quantized */
    RG_FORM_BNB_8,  /* bitsandbytes: LLM.int8() */
    RG_FORM_NF4,    /* bitsandbytes: NF4 */
    RG_FORM_PLAIN,  /* the values that the codes stand for, in f32: no format has such codes */
} rg_packing;

typedef struct rg_shrink_method {
    const char *name, *summary;
    unsigned needs; /* RG_NEED_... */
    bool follows;   /* a layer reads what those before it give once they are shrunk; else what they gave before */
    /* Check the options, and set what follows from them.  *o has its defaults. */
    bool (*settle)(rg_shrink_options *o, rg_error *err);
    /* Code the layer's matrices. */
    bool (*layer)(rg_layer_work *l, rg_error *err);
} rg_shrink_method;

/* Codes that were made elsewhere, by training: what the method `qat` writes. */
typedef struct rg_given_codes {
    void *arg;
    uint64_t number; /* tells them from others */
    /* Codes, scales and zeros of a tensor's matrix into c, which has been initialised.  False: there are none, and the
     * matrix is rounded. */
    bool (*fill)(void *arg, const char *name, rg_coded *c);
} rg_given_codes;

/* ---- the driver -------------------------------------------------------------------------------------------------- */

struct rg_shrink_options {
    const rg_shrink_method *method;
    rg_coding coding;
    bool act_order, static_groups;
    float alpha;                 /* of SmoothQuant */
    const rg_given_codes *given; /* of qat */
    bool to_gguf;
    rg_packing form;  /* set by settle */
    int input_bits;     /* activations are to be rounded to so many bits as well, a scale per row; 0: not */
    const int32_t *ids; /* [n_samples, ctx] */
    int n_samples, ctx;
    const rg_backend *backend;
    int n_threads;
    bool (*vocabulary)(rg_ckpt_writer *w, const rg_checkpoint *from, int vocab_size, int32_t *bos,
                       char warning[RG_CONVERT_WARNING], rg_error *err); /* as in convert.h */
    void (*progress)(void *arg, const char *what, double done);
    void *progress_arg;
    bool (*stop)(void); /* true: stop; what was made stays in the folder beside the output.  May be NULL */
};

typedef struct rg_shrunk {
    char name[144]; /* of the tensor; of stacked ones "name[expert]" */
    int layer;
    double error;    /* as in rg_matrix; NAN: it stays as it was stored */
    uint64_t n_rows; /* that it read */
} rg_shrunk;

typedef struct rg_shrink_report {
    rg_shrunk *matrix;
    int n, room;
    int n_kept;     /* matrices of layers that stay as they were stored */
    char kept[160]; /* the first of them, and why */
    char note[120];
    int n_resumed;                /* layers that an earlier run had made */
    uint64_t bytes_before, bytes; /* of all tensors */
    char warning[RG_CONVERT_WARNING];
} rg_shrink_report;

/* By name; NULL and *err: none, and which there are. */
const rg_shrink_method *rg_shrink_method_find(const char *name, rg_error *err);

/* *r need not be initialised; call rg_shrink_report_fini on it, after failure too. */
bool rg_shrink(rg_shrink_report *r, const rg_checkpoint *from, const char *to, rg_shrink_options *o,
               rg_error *err) RG_MUST_CHECK;
void rg_shrink_report_fini(rg_shrink_report *r);

#endif
