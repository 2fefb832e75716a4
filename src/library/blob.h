/* blob.h -- one file of the cache, by its hash: fetched under another name, gone on with, checked, then renamed. */
#ifndef RG_LIBRARY_BLOB_H
#define RG_LIBRARY_BLOB_H

#include "library/pull.h"

typedef struct rg_blob {
    char name[512], hash[72]; /* in the model; hexadecimal */
    bool is_sha256;           /* of its bytes; else it is git's hash of a blob (SHA-1) */
    uint64_t size;
} rg_blob;

typedef struct rg_blob_options {
    const rg_pull_options *pull;
    uint64_t before, total; /* bytes of the files before this one, and of all, for the progress */
} rg_blob_options;

/* How many bytes of it are on disk already: all, or what an earlier fetch left. */
uint64_t rg_blob_bytes_there(const char *blobs, const rg_blob *b);

/* Have it as BLOBS/HASH; *n_fetched is raised if it was not there. */
bool rg_blob_get(const rg_blob_options *o, const char *url, const char *blobs, const rg_blob *b, int *n_fetched,
                 rg_error *err) RG_MUST_CHECK;

#endif
