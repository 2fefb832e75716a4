/* packing.h -- how codes lie in files: the tensors of a Hugging Face directory, and blocks of GGUF.  Included by the
 * files of this floor only. */
#ifndef RG_SHRINK_PACKING_H
#define RG_SHRINK_PACKING_H

#include "shrink/shrink.h"

enum { RG_MAX_PARTS = 6 };

/* One tensor that a matrix is stored as. */
typedef struct rg_code_part {
    const char *end; /* of its name, after the weight's without ".weight" */
    rg_type type;
    int n_dims;
    int64_t shape[2];
    void *data; /* rg_free it; NULL where codes were not given */
    size_t bytes;
} rg_code_part;

/* NULL: a matrix of this shape can be stored so; else why not. */
const char *rg_packing_refuses(rg_packing form, const rg_coding *c, int64_t rows, int64_t cols);
/* The parts of a matrix.  c->q NULL: their names, types and shapes alone.  -1: no memory. */
int rg_packing_parts(rg_packing form, const rg_coded *c, rg_code_part parts[RG_MAX_PARTS], rg_error *err);
/* quantization_config of such a directory. */
bool rg_packing_config(const rg_shrink_options *o, rg_ckpt_writer *w, const rg_string *kept, size_t n_kept,
                    rg_error *err) RG_MUST_CHECK;

/* Where codes lie that nothing else is known of: by the options' kind and bits. */
bool rg_settle_codes(rg_shrink_options *o, rg_error *err) RG_MUST_CHECK;
/* Options of integer codes that GGUF has a type for, or codes of other kinds as plain values. */
bool rg_settle_gguf(rg_shrink_options *o, rg_error *err) RG_MUST_CHECK;
/* Every matrix of the layer to the nearest codes. */
bool rg_round_layer(rg_layer_work *l, rg_error *err) RG_MUST_CHECK;
/* The GGUF type of such codes: blocks of 32 under an f16 scale.  False: none has them. */
bool rg_packing_gguf(const rg_coding *c, rg_type *type);
/* Row r in blocks of that type. */
void rg_packing_blocks(const rg_coded *c, rg_type type, int64_t r, uint8_t *to);

#endif
