/* damaged.h -- a golden with one weight that is no number. */
#ifndef RG_TEST_DAMAGED_H
#define RG_TEST_DAMAGED_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/model.h"

/* As q8: matrices become Q8_0 where their columns allow it. */
static inline rg_type damaged_type(const rg_tensor *t, bool q8)
{
    return q8 && t->n_dims == 2 && rg_tensor_cols(t) % 32 == 0 && !strstr(t->name, "ssm_conv1d") ? RG_Q8_0 : t->type;
}

/* The golden's model.gguf, with `bad` (NaN or an infinity) in the middle of the tensor of this name.  Its path. */
static inline const char *damaged_model(const char *golden, const char *tensor, float bad, bool q8)
{
    char name[64], from[64];
    rg_error err = { 0 };
    bool found = false;

    snprintf(from, sizeof from, "%s/model.gguf", golden);
    snprintf(name, sizeof name, "damaged-%s.gguf", golden);
    rg_checkpoint *c = rg_checkpoint_open(test_data(from), RG_CKPT_DEFAULT, &err);
    assert_ok(c, err);
    const char *path = test_scratch(name);
    rg_ckpt_writer *w = rg_gguf_create(path, &err);
    assert_ok(w, err);
    assert_ok(rg_ckpt_put_all(w, c, NULL, &err), err);
    for (int i = 0; i < rg_checkpoint_n_tensors(c); i++) {
        const rg_tensor *t = rg_checkpoint_tensor(c, i);
        assert_ok(rg_ckpt_declare(w, t->name, damaged_type(t, q8), t->n_dims, t->shape, &err), err);
    }
    for (int i = 0; i < rg_checkpoint_n_tensors(c); i++) {
        const rg_tensor *t = rg_checkpoint_tensor(c, i);
        const rg_format *in = rg_format_of(t->type), *out = rg_format_of(damaged_type(t, q8));
        size_t n = (size_t)rg_tensor_count(t), blocks = n / (size_t)out->block_len, bytes = blocks * (size_t)out->block_bytes;
        bool here = !strcmp(t->name, tensor);
        uint8_t *raw = malloc(t->bytes), *coded = malloc(bytes);
        float *x = malloc(n * sizeof *x);

        assert_ok(rg_tensor_read(c, t, 0, raw, t->bytes, &err), err);
        in->decode(raw, (int64_t)n / in->block_len, x);
        if (here && out->block_len == 1)
            x[n / 2] = bad;
        out->encode(x, (int64_t)blocks, coded);
        if (here && out->block_len > 1) { /* the scale of a block, which comes first */
            uint16_t scale = rg_f32_to_f16(bad);
            memcpy(coded + blocks / 2 * (size_t)out->block_bytes, &scale, sizeof scale);
        }
        assert_ok(rg_ckpt_write(w, coded, bytes, &err), err);
        found |= here;
        free(raw);
        free(coded);
        free(x);
    }
    assert_true(found);
    assert_ok(rg_ckpt_commit(w, &err), err);
    rg_checkpoint_close(c);
    return path;
}

/* In the folder's model.safetensors, `bad` in the middle of a tensor of 2-byte floats, or of f32. */
static inline void damage_file(const char *folder, const char *tensor, float bad)
{
    char path[600], key[128];
    uint64_t n_header = 0;
    long first = 0, last = 0;

    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    FILE *f = fopen(path, "r+b");
    assert_true(f && fread(&n_header, sizeof n_header, 1, f) == 1);
    char *header = calloc(n_header + 1, 1), *at, *offsets;
    assert_int_equal(fread(header, 1, n_header, f), n_header);
    snprintf(key, sizeof key, "\"%s\":", tensor);
    at = strstr(header, key);
    assert_non_null(at);
    offsets = strstr(at, "\"data_offsets\"");
    assert_true(offsets && sscanf(strchr(offsets, '['), "[%ld , %ld]", &first, &last) == 2);
    const char *type = strchr(strstr(at, "\"dtype\"") + 7, '"');
    uint32_t bits;
    memcpy(&bits, &bad, sizeof bits);
    uint16_t half = !strncmp(type, "\"BF16", 5) ? (uint16_t)(bits >> 16) : rg_f32_to_f16(bad);
    bool wide = !strncmp(type, "\"F32", 4);
    long size = wide ? 4 : 2;
    fseek(f, 8 + (long)n_header + first + (last - first) / 2 / size * size, SEEK_SET);
    assert_int_equal(fwrite(wide ? (const void *)&bits : &half, (size_t)size, 1, f), 1);
    fclose(f);
    free(header);
}

/* A scratch folder `name` with the golden of config.json and model.safetensors, so damaged.  Its path. */
static inline const char *damaged_folder(const char *name, const char *golden, const char *tensor, float bad)
{
    const char *folder = test_variant(name, golden, "config.json", NULL, NULL);

    damage_file(folder, tensor, bad);
    return folder;
}

#endif
