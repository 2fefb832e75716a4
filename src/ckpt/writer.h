/* writer.h -- what the two writers share: declared tensors, the file, and a table of what differs.  Included by the
 * files of this floor only. */
#ifndef RG_CKPT_WRITER_H
#define RG_CKPT_WRITER_H

#include <jansson.h>

#include "base/buf.h"
#include "ckpt/internal.h"

typedef struct writer_kind {
    bool (*put)(rg_ckpt_writer *w, const rg_entry *e, rg_error *err);
    bool (*put_all)(rg_ckpt_writer *w, const rg_checkpoint *from, bool (*skip)(const char *key), rg_error *err);
    bool (*takes)(rg_type type);
    bool (*header)(rg_ckpt_writer *w, rg_error *err);  /* write what stands before the data; offsets are set */
    bool (*sidecar)(rg_ckpt_writer *w, rg_error *err); /* after the weights are in place */
    uint64_t align;                                    /* of each tensor, from the start of the data */
    int min_dims;                                      /* 0: a tensor may be a single value */
} writer_kind;

struct rg_ckpt_writer {
    const writer_kind *kind;
    rg_writer *out;
    rg_arena arena; /* names and keys */
    rg_dict *keys, *names;
    rg_tensor *tensors;
    size_t n_tensors, tensors_room;
    size_t current;    /* tensor being written */
    uint64_t written;  /* of it */
    uint64_t data_end; /* of what is declared, aligned */
    bool started;      /* the header is out: nothing more is declared */
    rg_buf meta;       /* GGUF: entries as they will stand in the file */
    uint64_t n_meta;
    char *dir;      /* HF */
    json_t *config; /* HF: config.json, NULL until something is put */
    char *source;   /* HF: the directory whose side files are copied */
};

rg_ckpt_writer *rg_ckpt_writer_new(const writer_kind *kind, rg_error *err);
void rg_ckpt_writer_free(rg_ckpt_writer *w);
bool rg_ckpt_write_zeros(rg_ckpt_writer *w, uint64_t n, rg_error *err);

#endif
