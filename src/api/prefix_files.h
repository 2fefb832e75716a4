/* prefix_files.h -- the files of an engine's cached prefixes: what stands for the model and its arithmetic in their
 * names. */
#ifndef RG_API_PREFIX_FILES_H
#define RG_API_PREFIX_FILES_H

#include "api/hosted.h"
#include "engine/durable.h"
#include "model/model.h"

typedef struct rg_prefix_files {
    rg_durable *durable;   /* NULL: there are none */
    const char *folder;    /* borrowed while the engine opens; NULL: none are wanted */
    uint64_t most_bytes;
    const rg_backend *backend;
    char recipe[16];
    uint64_t checkpoint[2];
    uint64_t *adapters;    /* [n_adapters] what stands for each; NULL: there are none */
    uint64_t sparsity;     /* a hash of the thresholds; 0: there are none */
    double attention_sparsity; /* as in rg_options */
} rg_prefix_files;

/* False and *err: options that contradict each other. */
bool rg_prefix_files_check(const rg_options *o, rg_error *err);
/* What stands for checkpoint, adapters and arithmetic, while the checkpoint is open.  False and *err: a file cannot be
 * read. */
bool rg_prefix_files_read(rg_prefix_files *f, const rg_options *o, const rg_backend *b, const rg_checkpoint *ckpt,
                          rg_error *err);
/* Open the folder for the model's state, sequences of at most max_seq_len; the memory that blocks pass through is taken
 * of the host.  Without effect where no folder is wanted. */
bool rg_prefix_files_open(rg_prefix_files *f, rg_hosted *h, const rg_model *m, int32_t max_seq_len, rg_error *err);
void rg_prefix_files_close(rg_prefix_files *f); /* after the loop; half-opened too */

/* The weights are those of another checkpoint from now on; on the engine's thread. */
void rg_prefix_files_change(rg_prefix_files *f, const rg_model *m, const uint64_t checkpoint[2]);
/* What stands for an adapter, counted from 1; 0: for none. */
uint64_t rg_prefix_files_adapter(const rg_prefix_files *f, int32_t adapter);
/* The counts of rg_stats that are of these files. */
void rg_prefix_files_count(const rg_prefix_files *f, rg_stats *s);

#endif
