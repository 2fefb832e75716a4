/* torch.h -- what torch.save leaves: a zip archive with a pickle that says which tensors there are, and a file for the
 * values of each.
 *
 * A pickle is a program for Python's objects.  Read here is the part of it that makes a dict of tensors: it calls
 * nothing, and every name in it that is not one of a few of torch's is refused. */
#ifndef RG_CKPT_TORCH_H
#define RG_CKPT_TORCH_H

#include "ckpt/internal.h"

/* ---- the archive (torch_zip.c) ---- */

typedef struct rg_zip_entry {
    const char *name;     /* in the archive's text, ended by a NUL */
    uint64_t header, bytes;
} rg_zip_entry;

typedef struct rg_zip {
    const rg_file *file;  /* borrowed */
    rg_zip_entry *entries;
    int n;
    rg_dict *by_name;
    char *text;
} rg_zip;

/* Its directory.  Entries that are packed, or lie beyond 4 GB, are refused. */
bool rg_zip_open(rg_zip *z, const rg_file *file, rg_error *err) RG_MUST_CHECK;
void rg_zip_close(rg_zip *z);
const rg_zip_entry *rg_zip_find(const rg_zip *z, const char *name);
/* Where an entry's bytes begin in the file. */
bool rg_zip_at(const rg_zip *z, const rg_zip_entry *e, uint64_t *at, rg_error *err) RG_MUST_CHECK;

/* ---- the pickle (torch_pickle.c) ---- */

/* A tensor of the outermost dict. */
typedef struct rg_pickled {
    rg_string name, storage; /* into the pickle's bytes */
    rg_type type;
    uint64_t first;          /* value of the storage */
    int n_dims;
    int64_t shape[RG_MAX_DIMS];
} rg_pickled;

/* The tensors that a pickle names, *n of them; rg_free them.  NULL: *err. */
rg_pickled *rg_pickle_read(const uint8_t *bytes, size_t n_bytes, int *n, rg_error *err);

#endif
