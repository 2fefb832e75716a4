/* checkpoint.h -- a checkpoint as published: tensors by name, and metadata by key.
 *
 * Two readers stand behind it: GGUF v2 and v3 (split files included), and a Hugging Face directory (config.json,
 * generation_config.json, tokenizer files, safetensors, sharded or not).  Opening validates every header into typed,
 * bounds-checked views before anything is sized by it; after that a tensor's bytes are known to lie inside their file.
 * Nothing is mapped; a checkpoint may be read by several threads. */
#ifndef RG_CKPT_CHECKPOINT_H
#define RG_CKPT_CHECKPOINT_H

#include "base/buf.h"
#include "quant/tensor.h"

typedef struct rg_checkpoint rg_checkpoint;

typedef enum rg_ckpt_kind { RG_CKPT_GGUF, RG_CKPT_HF } rg_ckpt_kind;

/* path: a GGUF file (any part of a split one) or a folder that holds one alone, a Hugging Face directory, or a
 * config.json under any name, with or without the other files.  RG_CKPT_NO_WEIGHTS: weight files may be missing, and a
 * config is read without its folder.
 * A LoRA adapter opens likewise: a GGUF file, or a folder with adapter_config.json (whose keys are then the metadata)
 * and adapter_model.safetensors.  RG_CKPT_ADAPTER: also where the folder has a config.json as well. */
typedef enum rg_ckpt_flags { RG_CKPT_DEFAULT = 0, RG_CKPT_NO_WEIGHTS = 1, RG_CKPT_ADAPTER = 2 } rg_ckpt_flags;

rg_checkpoint *rg_checkpoint_open(const char *path, unsigned flags, rg_error *err);
/* The tensors of one safetensors file, whatever lies beside it: batches, gradients. */
rg_checkpoint *rg_checkpoint_open_tensors(const char *path, rg_error *err);
void rg_checkpoint_close(rg_checkpoint *c); /* NULL is fine */

/* A tensor of f32 in the caller's memory. */
typedef struct rg_values {
    const char *name;
    int n_dims;
    int64_t shape[RG_MAX_DIMS];
    float *at;
} rg_values;

/* A checkpoint with the metadata and side files of `from`, its tensors of integers, and these tensors in place of all
 * others; n 0: the metadata alone.  All of it is borrowed: `from`, names and values outlive it, and values may change
 * between reads.  NULL and *err: no memory, or a name stands twice. */
rg_checkpoint *rg_checkpoint_of_values(const rg_checkpoint *from, const rg_values *values, int n, rg_error *err);

rg_ckpt_kind rg_checkpoint_kind(const rg_checkpoint *c);
bool rg_checkpoint_is_adapter(const rg_checkpoint *c); /* and no model */
const char *rg_checkpoint_path(const rg_checkpoint *c);

/* A number that changes with the files: from the sizes and times of those that hold the tensors, the tensors' names,
 * types, shapes and places, and the text of config.json.  False: no memory, or config.json cannot be read. */
bool rg_checkpoint_identity(const rg_checkpoint *c, uint64_t *out, rg_error *err) RG_MUST_CHECK;
/* The same, and a
bool rg_checkpoint_identity(const rg_checkpoint *c, uint64_t *out, rg_error *err) RG_MUST_CHECK; * hash of samples of
bool rg_checkpoint_identity(const rg_checkpoint *c, uint64_t *out, rg_error *err) RG_MUST_CHECK; * what the files
bool rg_checkpoint_identity(const rg_checkpoint *c, uint64_t *out, rg_error *err) RG_MUST_CHECK; * hold: of their
bool rg_checkpoint_identity(const rg_checkpoint *c, uint64_t *out, rg_error *err) RG_MUST_CHECK; * beginnings, and of
bool rg_checkpoint_identity(const rg_checkpoint *c, uint64_t *out, rg_error *err) RG_MUST_CHECK; * each tensor in a
bool rg_checkpoint_identity(const rg_checkpoint *c, uint64_t *out, rg_error *err) RG_MUST_CHECK; * few places.  Tells
bool rg_checkpoint_identity(const rg_checkpoint *c, uint64_t *out, rg_error *err) RG_MUST_CHECK; * two trainings of
bool rg_checkpoint_identity(const rg_checkpoint *c, uint64_t *out, rg_error *err) RG_MUST_CHECK; * one shape apart
bool rg_checkpoint_identity(const rg_checkpoint *c, uint64_t *out, rg_error *err) RG_MUST_CHECK; * also where a copy
bool rg_checkpoint_identity(const rg_checkpoint *c, uint64_t *out, rg_error *err) RG_MUST_CHECK; * or an image gave
bool rg_checkpoint_identity(const rg_checkpoint *c, uint64_t *out, rg_error *err) RG_MUST_CHECK; * their files the
bool rg_checkpoint_identity(const rg_checkpoint *c, uint64_t *out, rg_error *err) RG_MUST_CHECK; * same time; reads
bool rg_checkpoint_identity(const rg_checkpoint *c, uint64_t *out, rg_error *err) RG_MUST_CHECK; * far less than the
bool rg_checkpoint_identity(const rg_checkpoint *c, uint64_t *out, rg_error *err) RG_MUST_CHECK; * files. */
bool rg_checkpoint_fingerprint(const rg_checkpoint *c, uint64_t out[2], rg_error *err) RG_MUST_CHECK;

/* ---- tensors ---- */
int rg_checkpoint_n_tensors(const rg_checkpoint *c);
const rg_tensor *rg_checkpoint_tensor(const rg_checkpoint *c, int i);          /* in file order */
const rg_tensor *rg_checkpoint_find(const rg_checkpoint *c, const char *name); /* NULL: none */

/* ---- models of several parts ----
 *
 * A model that has encoders of pictures or sound beside its language model has the settings of the latter in an object
 * of config.json, "text_config", and its tensors below "model.language_model." or "language_model.".  Its settings are
 * read as if they stood at the top, where they replace others of the same name; its tensors are found by the names that
 * they have in a model of text alone, also below a config without that object.  The other parts are not read. */
bool rg_checkpoint_has_parts(const rg_checkpoint *c);
/* True if a tensor belongs to one of the other parts. */
bool rg_tensor_is_of_other_part(const rg_checkpoint *c, const rg_tensor *t);

/* Bytes [from, from + n) of a tensor. */
bool rg_tensor_read(const rg_checkpoint *c, const rg_tensor *t, uint64_t from, void *to, size_t n,
                    rg_error *err) RG_MUST_CHECK;

/* What a person should know of how a tensor of codes is read, in a few words: its columns have an order, or why it is
 * f32; NULL: nothing. */
const char *rg_tensor_note(const rg_checkpoint *c, const rg_tensor *t);

/* ---- metadata: one view of both kinds ----
 *
 * A key of config.json is its path with dots ("rope_parameters.factor"), arrays by number ("layer_types.3"); a key of
 * GGUF is itself ("general.name"), its array elements likewise ("tokenizer.ggml.tokens.17" works but is slow: use
 * rg_meta_array).  Reading a key marks it as understood, so that keys that were never read can be reported. */
typedef enum rg_meta_type {
    RG_META_NONE,
    RG_META_NULL,
    RG_META_BOOL,
    RG_META_INT,
    RG_META_FLOAT,
    RG_META_STRING,
    RG_META_ARRAY,
    RG_META_OBJECT
} rg_meta_type;

rg_meta_type rg_meta_type_of(const rg_checkpoint *c, const char *key); /* marks nothing */

/* 1: read; 0: absent or null, *out untouched; -1: there and of another type, or out of [min, max]: *err names it. */
int rg_meta_int(const rg_checkpoint *c, const char *key, int64_t min, int64_t max, int64_t *out, rg_error *err);
int rg_meta_float(const rg_checkpoint *c, const char *key, double *out, rg_error *err); /* finite; an int will do */
int rg_meta_bool(const rg_checkpoint *c, const char *key, bool *out, rg_error *err);
int rg_meta_string(const rg_checkpoint *c, const char *key, const char **out, rg_error *err); /* valid until close */
int rg_meta_length(const rg_checkpoint *c, const char *key, size_t *n, rg_error *err);        /* of an array */

/* Arrays whole.  Strings may hold NULs and bytes that are not UTF-8. */
int rg_meta_strings(const rg_checkpoint *c, const char *key, const rg_string **out, size_t *n, rg_error *err);
int rg_meta_floats(const rg_checkpoint *c, const char *key, const float **out, size_t *n, rg_error *err);
int rg_meta_ints(const rg_checkpoint *c, const char *key, const int32_t **out, size_t *n, rg_error *err);

/* Mark a key, or every key below "prefix.", as understood without reading it. */
void rg_meta_understand(const rg_checkpoint *c, const char *key);

/* Every leaf key in file order; and those that no reader asked for (without "general.*" and the like). */
typedef void rg_meta_visit(void *arg, const char *key, rg_meta_type type, bool understood);
void rg_meta_each(const rg_checkpoint *c, rg_meta_visit *visit, void *arg);
void rg_meta_text(const rg_checkpoint *c, const char *key, char *out, size_t room); /* short, for people */

/* The folder of a Hugging Face checkpoint; NULL: it has none. */
const char *rg_checkpoint_dir(const rg_checkpoint *c);
/* The path of a file or folder beside a Hugging Face checkpoint; false: it is a GGUF file, or the path is too long. */
bool rg_checkpoint_side_path(const rg_checkpoint *c, const char *name, char *path, size_t room);
/* The text of a file beside a Hugging Face checkpoint ("tokenizer.json"); NULL without an error if it is not there. */
char *rg_checkpoint_side_file(const rg_checkpoint *c, const char *name, size_t *n, rg_error *err);

/* ---- writing ---- */

/* A new checkpoint, tensor by tensor: declare everything, then write the data in the order declared. */
typedef struct rg_ckpt_writer rg_ckpt_writer;

rg_ckpt_writer *rg_gguf_create(const char *path, rg_error *err);
/* directory: created if absent; gets model.safetensors and copies of the source's other files. */
rg_ckpt_writer *rg_hf_create(const char *directory, rg_error *err);
/* One safetensors file at path: tensors, no metadata. */
rg_ckpt_writer *rg_safetensors_create(const char *path, rg_error *err);

bool rg_ckpt_put_int(rg_ckpt_writer *w, const char *key, uint32_t gguf_type, int64_t value, rg_error *err);
bool rg_ckpt_put_float(rg_ckpt_writer *w, const char *key, double value, rg_error *err);
bool rg_ckpt_put_bool(rg_ckpt_writer *w, const char *key, bool value, rg_error *err);
bool rg_ckpt_put_string(rg_ckpt_writer *w, const char *key, const char *s, size_t n, rg_error *err);
bool rg_ckpt_put_strings(rg_ckpt_writer *w, const char *key, const rg_string *s, size_t n, rg_error *err);
bool rg_ckpt_put_floats(rg_ckpt_writer *w, const char *key, const float *v, size_t n, rg_error *err);
bool rg_ckpt_put_ints(rg_ckpt_writer *w, const char *key, const int32_t *v, size_t n, rg_error *err);
bool rg_ckpt_put_bools(rg_ckpt_writer *w, const char *key, const uint8_t *v, size_t n, rg_error *err); /* 0 or 1 */
bool rg_ckpt_put_bytes(rg_ckpt_writer *w, const char *key, const uint8_t *v, size_t n, rg_error *err);
/* All metadata of a GGUF checkpoint, in order, except keys for which skip returns true. */
bool rg_ckpt_put_all(rg_ckpt_writer *w, const rg_checkpoint *from, bool (*skip)(const char *key), rg_error *err);

bool rg_ckpt_declare(rg_ckpt_writer *w, const char *name, rg_type type, int n_dims, const int64_t *shape,
                     rg_error *err);
/* The next bytes of the next tensor. */
bool rg_ckpt_write(rg_ckpt_writer *w, const void *data, size_t n, rg_error *err);
bool rg_ckpt_commit(rg_ckpt_writer *w, rg_error *err); /* checks that all was written; frees w */
void rg_ckpt_abort(rg_ckpt_writer *w);

#endif
