/* pack_file.h -- packed weights in a file of their own.
 *
 * First a page with nothing but the magic; then the matrices, each at the start of a page and filled up with zeros to
 * the next; then the directory, an entry for each weight and for each matrix its place and checksum; last a trailer
 * that says where the directory is.  Numbers are in the machine's own byte order.  A file belongs to one key and to one
 * list of weights; with any other it is not opened.  Knows no checkpoint. */
#ifndef RG_MODEL_PACK_FILE_H
#define RG_MODEL_PACK_FILE_H

#include "base/file.h"
#include "model/weights.h"

enum { RG_PACK_PAGE = 4096 };

typedef struct rg_pack_place {
    uint64_t offset, hash; /* hash: of the matrix, rg_hash_pieces */
} rg_pack_place;

/* Bytes of one matrix of weight i, packed; a vector or a table is one matrix of f32. */
bool rg_pack_mat_bytes(const rg_weight_set *s, int i, size_t *bytes, rg_error *err) RG_MUST_CHECK;

typedef struct rg_pack_file rg_pack_file;

/* Everything is checked but the matrices.  NULL and *err: damaged, or made for another key or other weights. */
rg_pack_file *rg_pack_file_open(const char *path, uint64_t key, const rg_weight_set *s, rg_error *err);
void rg_pack_file_close(rg_pack_file *f); /* NULL is fine */
/* What weight i is packed as there: its type, or BF16 instead of F16. */
rg_type rg_pack_file_type(const rg_pack_file *f, int i);
const rg_pack_place *rg_pack_file_place(const rg_pack_file *f, int i, int64_t mat);
/* Matrix mat of weight i, checked; any thread. */
bool rg_pack_file_read(const rg_pack_file *f, int i, int64_t mat, void *to, rg_error *err) RG_MUST_CHECK;

/* The open file, for whoever reads the matrices from their places; it stays f's until it is let go. */
rg_file *rg_pack_file_file(rg_pack_file *f);
void rg_pack_file_let_go(rg_pack_file *f); /* no matrix is read by f any more */

typedef struct rg_pack_writer rg_pack_writer;

/* The set is bound, but for experts that are apart, and borrowed until the end.  Every matrix is put once, in any
 * order, by one thread at a time. */
rg_pack_writer *rg_pack_writer_open(const char *path, uint64_t key, const rg_weight_set *s, rg_error *err);
bool rg_pack_writer_put(rg_pack_writer *w, int i, int64_t mat, const void *data, rg_error *err) RG_MUST_CHECK;
bool rg_pack_writer_commit(rg_pack_writer *w, rg_error *err) RG_MUST_CHECK; /* frees w, as does abort */
void rg_pack_writer_abort(rg_pack_writer *w); /* NULL is fine */

#endif
