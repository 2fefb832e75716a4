/* samples.h -- ids that were drawn from a teacher's distributions, kept in a file: the teacher runs once for each text.
 *
 * A record holds the draws of one row of a batch, under a key made of its ids and documents, so that any run over the
 * same rows finds them, in whatever order.  An id and how often it was drawn take three bytes (17 and 7 bits), four
 * where the vocabulary is larger: of 50 draws about 12 differ, 36 bytes a token.  The file grows at its end alone; a
 * record that was not written whole is cut off when the file is opened. */
#ifndef RG_TRAIN_SAMPLES_H
#define RG_TRAIN_SAMPLES_H

#include "train/divergence.h"

enum { RG_MOST_DRAWS = 127 };

typedef struct rg_samples rg_samples;

/* What the draws of a file have in common. */
typedef struct rg_samples_kind {
    int32_t draws, vocab_size;
    uint64_t seed, teacher; /* teacher: a number that tells it from others */
} rg_samples_kind;

/* A file that is there, or a new one.  NULL and *err: it cannot be read or written, or holds other draws. */
rg_samples *rg_samples_open(const char *path, const rg_samples_kind *kind, rg_error *err);
void rg_samples_close(rg_samples *s); /* NULL is fine */
uint64_t rg_samples_bytes(const rg_samples *s);
int64_t rg_samples_positions(const rg_samples *s);

/* The draws of n positions under a key: id and count get them, `draws` for each position at most, and out [n] points
 * there.  1: found; 0: there are none; -1: *err. */
int rg_samples_get(rg_samples *s, uint64_t key, int n, rg_draws *out, int32_t *id, int32_t *count, rg_error *err);
bool rg_samples_put(rg_samples *s, uint64_t key, int n, const rg_draws *draws, rg_error *err) RG_MUST_CHECK;

#endif
