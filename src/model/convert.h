/* convert.h -- any readable model written anew: as GGUF in any format that other engines read, or as a Hugging Face
 * directory in a plain type.
 *
 * Matrices take the asked type; vectors, tables and routers stay f32.  Rows that a block does not divide fall back to a
 * type of 32-value blocks of the nearest bits, then to f16, and are reported.  From a Hugging Face directory to GGUF,
 * names, keys and transforms are those that the architecture declares.  The output is written whole or not at all. */
#ifndef RG_MODEL_CONVERT_H
#define RG_MODEL_CONVERT_H

#include "model/arch.h"
#include "model/mixture.h"

enum { RG_CONVERT_WARNING = 300 };

/* Tensors whose rows somebody else has in another form than the checkpoint. */
typedef struct rg_convert_coded {
    void *arg;
    bool (*type)(void *arg, const rg_tensor *t, rg_type *type); /* false: t is converted like the others */
    /* Row `row` of it, counted through its matrices, in blocks of that type. */
    bool (*row)(void *arg, const rg_tensor *t, int64_t row, uint8_t *to, rg_error *err);
} rg_convert_coded;

typedef struct rg_convert_options {
    rg_type type;
    const rg_mixture *mixture; /* whose base is the type; NULL: all matrices have the same */
    const rg_convert_coded *coded; /* NULL: none; of weights that are made by a function of their own, none may be */
    bool to_hf;
    int n_threads; /* >= 1 */
    /* How much each column of a matrix matters: mean |x| of what it reads, by the weight's name, as `ridge eval
     * --activations` writes it; or a GGUF file of NAME.in_sum2 and NAME.counts (an imatrix).  NULL: not known.
     * What it does not have is encoded as without it, and counted. */
    const rg_checkpoint *importance;
    /* Puts GGUF's keys for a Hugging Face checkpoint's tokenizer, up to vocab_size tokens, and for the ids that end
     * an answer; *bos: in, the config's or
     * -1; out, the id that encoding puts in front.  A tokenizer that GGUF cannot express gives a warning and no
     * failure.  NULL: "none", and no ends. */
    bool (*vocabulary)(rg_ckpt_writer *w, const rg_checkpoint *from, int vocab_size, int32_t *bos,
                       char warning[RG_CONVERT_WARNING], rg_error *err);
    void (*progress)(void *arg, const char *what, double done); /* may be NULL */
    void *progress_arg;
    bool (*stop)(void); /* true: give up; may be NULL */
} rg_convert_options;

typedef struct rg_fallback {
    const char *name; /* of the tensor written */
    rg_type type;
} rg_fallback;

typedef struct rg_convert_report {
    uint64_t bytes, n_values; /* of all tensors */
    rg_fallback *fallbacks;
    int n_fallbacks;
    int n_important; /* matrices whose columns' importance is known */
    int n_left_out; /* tensors that no weight is made from: GGUF has no name for them */
    char *notes; /* lines of what a person should know of the checkpoint (notes.h) */
    char *names; /* what the fallbacks' names lie in */
    char warning[RG_CONVERT_WARNING]; /* "": none */
} rg_convert_report;

/* *r need not be initialised; call rg_convert_report_fini on it, after failure too. */
bool rg_convert(rg_convert_report *r, const rg_checkpoint *from, const char *to, const rg_convert_options *o,
                rg_error *err) RG_MUST_CHECK;
void rg_convert_report_fini(rg_convert_report *r);

/* The metadata of such a GGUF file, but for the tokenizer (convert_keys.c).  file_type: general.file_type. */
bool rg_convert_keys(rg_ckpt_writer *w, const rg_checkpoint *from, const rg_config *c, int file_type,
                     rg_error *err) RG_MUST_CHECK;
/* The number of one type; for the k-types of their simplest mixture. */
int rg_convert_file_type(rg_type type);

#endif
