/* tensors.h -- a checkpoint's tensors in memory, to be renamed, cut and joined, and written as another checkpoint. */
#ifndef RG_TEST_TENSORS_H
#define RG_TEST_TENSORS_H

#include "support/model.h"

enum { TEST_MAX_TENSORS = 1024 };

typedef struct test_tensor {
    char name[192]; /* "": left out */
    rg_type type;   /* F32, F16 or BF16 */
    int n_dims;
    int64_t shape[4];
    uint8_t *data;
    size_t bytes;
} test_tensor;

typedef struct test_tensors {
    int n;
    test_tensor t[TEST_MAX_TENSORS];
} test_tensors;

/* Of the golden's model.safetensors, or of a file at a path.  test_tensors_free it. */
test_tensors *test_tensors_read(const char *golden);
test_tensors *test_tensors_open(const char *path);
void test_tensors_free(test_tensors *s);
/* By its whole name; NULL: there is none. */
test_tensor *test_tensors_find(test_tensors *s, const char *name);
/* A new one, with room for its data. */
test_tensor *test_tensors_add(test_tensors *s, const char *name, rg_type type, int n_dims, const int64_t *shape);
/* As model.safetensors of the folder. */
void test_tensors_write(const test_tensors *s, const char *folder);
/* As a GGUF file, with the metadata of the one at `like`. */
void test_tensors_write_gguf(const test_tensors *s, const char *like, const char *path);
/* Each name that begins with `from` begins with `to` instead.  How many there were. */
int test_tensors_rename(test_tensors *s, const char *from, const char *to);

/* Set a key of folder's config.json to a JSON text (NULL: the key is taken away). */
void test_config_set(const char *folder, const char *key, const char *json);

#endif
