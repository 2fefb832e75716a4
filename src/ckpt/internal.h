/* internal.h -- what the readers and writers of this floor share: the store of metadata and tensors, and an arena that
 * owns its texts.  Included by the files of this floor only. */
#ifndef RG_CKPT_INTERNAL_H
#define RG_CKPT_INTERNAL_H

#include <stdatomic.h>

#include "base/file.h"
#include "base/hash.h"
#include "ckpt/checkpoint.h"

/* Types of values as GGUF numbers them; JSON's values are held in the same terms. */
enum {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_TYPE_COUNT
};

enum {
    RG_META_CAP = 1 << 30, /* bytes of all metadata and names of one checkpoint */
    RG_SIDE_CAP = 1 << 28, /* of a file beside it */
    RG_KEY_CAP = 65535,    /* bytes of a key */
    RG_NAME_CAP = 512,     /* bytes of a tensor's name */
    RG_TENSORS_CAP = 1 << 24,
    RG_FILES_CAP = 1024, /* shards */
    RG_GGUF_ALIGN = 32,
};

/* Memory given back all at once. */
typedef struct rg_arena {
    struct rg_arena_block *blocks;
    size_t used, cap;
} rg_arena;

void *rg_arena_get(rg_arena *a, size_t bytes, rg_error *err);             /* aligned to 16, not zeroed */
char *rg_arena_text(rg_arena *a, const char *s, size_t n, rg_error *err); /* a copy with a NUL after it */
void rg_arena_fini(rg_arena *a);

typedef struct rg_entry {
    const char *key;
    rg_meta_type type;
    uint8_t gguf_type; /* of the value; of an array's elements if type is RG_META_ARRAY */
    bool parent;       /* an object, or an array of unlike things: its leaves are entries of their own */
    bool beyond;       /* an unsigned integer above INT64_MAX, its bits in i */
    atomic_bool understood;
    int64_t i;       /* RG_META_INT, RG_META_BOOL */
    double f;        /* RG_META_FLOAT */
    rg_string s;     /* RG_META_STRING; a NUL follows */
    size_t n;        /* elements of an array, members of an object */
    const void *raw; /* numbers and booleans of an array as GGUF stores them */
    const rg_string *strings;
    const int32_t *ints; /* NULL: not integers, or not all within 32 bits */
    const float *floats; /* NULL: not numbers */
} rg_entry;

typedef struct rg_composed rg_composed;

struct rg_checkpoint {
    rg_ckpt_kind kind;
    bool has_parts; /* a language model and others */
    bool is_peft;   /* a folder of an adapter */
    char *path, *dir; /* dir: where side files are, NULL for GGUF */
    rg_arena arena;
    rg_entry *entries;
    size_t n_entries, entries_room;
    rg_dict *keys;
    rg_tensor *tensors;
    int n_tensors, tensors_room;
    rg_dict *names;
    rg_file *files[RG_FILES_CAP];
    int n_files;
    rg_composed *composed;
    const rg_checkpoint *lender;    /* whose metadata and texts this one borrows; NULL: they are its own */
    const float *const *values;     /* of its tensors in memory, by number */
};

/* Append an entry; the key and all that e points to are in the arena.  Refuses a key that is there already. */
bool rg_ckpt_expect_entries(rg_checkpoint *c, size_t n, rg_error *err); /* room for n more, at once */
bool rg_ckpt_add_entry(rg_checkpoint *c, const rg_entry *e, size_t n_key, rg_error *err);
/* Complete ints and floats of an array entry from raw. */
bool rg_entry_views(rg_arena *a, rg_entry *e, rg_error *err);
/* Append a tensor; its name is in the arena.  Refuses a name that is there already. */
bool rg_ckpt_add_tensor(rg_checkpoint *c, const rg_tensor *t, rg_error *err);
/* Open path as the next file; its number, or -1. */
int rg_ckpt_add_file(rg_checkpoint *c, const char *path, rg_error *err);

const rg_entry *rg_ckpt_entry(const rg_checkpoint *c, const char *key); /* marks nothing */
int rg_gguf_type_bytes(uint32_t type);                                  /* 0: not of fixed size, or unknown */
/* The number or boolean at p, of e->gguf_type, becomes e's value; a boolean may be any byte. */
void rg_gguf_scalar(rg_entry *e, const void *p);

/* Text of a name for a message: cut, and without control bytes. */
const char *rg_name_text(const char *s, size_t n, char out[80]);
bool rg_name_valid(const char *s, size_t n); /* not empty, UTF-8, no control characters */

/* The readers: fill c, whose path is set. */
bool rg_gguf_read(rg_checkpoint *c, unsigned flags, rg_error *err);
bool rg_hf_read(rg_checkpoint *c, unsigned flags, rg_error *err);
bool rg_safetensors_read(rg_checkpoint *c, const char *path, rg_error *err); /* one file's tensors */
bool rg_torch_read(rg_checkpoint *c, const char *path, rg_error *err);       /* likewise, of torch.save */

#endif
