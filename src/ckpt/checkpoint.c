/* checkpoint.c -- open and close, tensors by name, side files.  Chooses the reader; knows no format. */
#include "ckpt/checkpoint.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "ckpt/internal.h"
#include "ckpt/composed.h"
#include "ckpt/mistaken.h"

/* What the path is: a directory, a JSON or safetensors file by its name, else GGUF, which checks its magic. */
static bool is_hf(const char *path)
{
    const char *dot = strrchr(path, '.');

    return rg_path_look(path) == RG_PATH_DIR || (dot && (!strcmp(dot, ".json") || !strcmp(dot, ".safetensors")));
}

/* A folder that is no Hugging Face one may hold a GGUF file: then that is the path. */
static bool find_gguf(rg_checkpoint *c, unsigned flags, rg_error *err)
{
    static const char *const signs[] = { "config.json", "adapter_config.json", "tokenizer.json" };
    char path[4096], *file;
    rg_error why;

    if (rg_path_look(c->path) != RG_PATH_DIR)
        return true;
    for (size_t i = 0; i < RG_LEN(signs); i++)
        if (rg_path_join(path, sizeof path, c->path, signs[i]) && rg_path_look(path) != RG_PATH_NONE)
            return true;
    file = rg_mistaken_folder(c->path, &why);
    if (!file && !(flags & RG_CKPT_NO_WEIGHTS)) {
        if (err)
            *err = why;
        return false;
    }
    if (file) {
        rg_free(c->path);
        c->path = file;
    }
    return true;
}

/* Without tensors and metadata. */
static rg_checkpoint *new_checkpoint(const char *path, rg_error *err)
{
    rg_checkpoint *c = rg_zalloc(sizeof *c);

    if (!c)
        return rg_fail_memory(err, sizeof *c), NULL;
    c->arena.cap = RG_META_CAP;
    c->path = rg_strdup(path);
    c->keys = rg_dict_new(64);
    c->names = rg_dict_new(64);
    if (!c->path || !c->keys || !c->names) {
        rg_fail_memory(err, strlen(path) + 1);
        rg_checkpoint_close(c);
        return NULL;
    }
    if (rg_path_look(path) == RG_PATH_NONE) {
        rg_fail(err, RG_E_IO, "%s: no such file or directory", path);
        rg_checkpoint_close(c);
        return NULL;
    }
    return c;
}

rg_checkpoint *rg_checkpoint_open(const char *path, unsigned flags, rg_error *err)
{
    rg_checkpoint *c = new_checkpoint(path, err);

    if (c && find_gguf(c, flags, err) && (is_hf(c->path) ? rg_hf_read(c, flags, err) : rg_gguf_read(c, flags, err)))
        return c;
    rg_checkpoint_close(c);
    return NULL;
}

rg_checkpoint *rg_checkpoint_open_tensors(const char *path, rg_error *err)
{
    rg_checkpoint *c = new_checkpoint(path, err);

    if (c)
        c->kind = RG_CKPT_HF;
    if (c && rg_safetensors_read(c, path, err))
        return c;
    rg_checkpoint_close(c);
    return NULL;
}

rg_checkpoint *rg_checkpoint_of_values(const rg_checkpoint *from, const rg_values *values, int n, rg_error *err)
{
    rg_checkpoint *c = rg_zalloc(sizeof *c);
    const float **at = rg_array((size_t)n, sizeof *at);
    bool ok = (c && at) || rg_fail_memory(err, sizeof *c);

    if (!ok) {
        rg_free(c);
        rg_free(at);
        return NULL;
    }
    *c = (rg_checkpoint){ .kind = from->kind,
                          .has_parts = from->has_parts,
                          .lender = from,
                          .keys = from->keys,
                          .entries = from->entries,
                          .n_entries = from->n_entries,
                          .values = at };
    c->arena.cap = RG_META_CAP;
    c->path = rg_strdup(from->path);
    c->dir = from->dir ? rg_strdup(from->dir) : NULL;
    c->names = rg_dict_new(64);
    ok = (c->path && c->names && (c->dir || !from->dir)) || rg_fail_memory(err, strlen(from->path));
    for (int i = 0; ok && i < n; i++) {
        rg_tensor t = { .name = values[i].name,
                        .type = RG_F32,
                        .n_dims = values[i].n_dims,
                        .offset = (uint64_t)i,
                        .file = RG_FILE_MEMORY };

        memcpy(t.shape, values[i].shape, sizeof t.shape);
        for (int k = t.n_dims; k < RG_MAX_DIMS; k++)
            t.shape[k] = 1;
        t.bytes = (uint64_t)rg_tensor_count(&t) * sizeof(float);
        at[i] = values[i].at;
        ok = rg_ckpt_add_tensor(c, &t, err);
    }
    for (int i = 0; ok && n && i < rg_checkpoint_n_tensors(from); i++)
        if (rg_checkpoint_tensor(from, i)->type == RG_I64)
            ok = rg_ckpt_add_tensor(c, rg_checkpoint_tensor(from, i), err);
    if (!ok) {
        rg_checkpoint_close(c);
        return NULL;
    }
    return c;
}

void rg_checkpoint_close(rg_checkpoint *c)
{
    if (!c)
        return;
    for (int i = 0; i < c->n_files; i++)
        rg_file_close(c->files[i]);
    if (!c->lender) {
        rg_dict_free(c->keys);
        rg_free(c->entries);
    }
    rg_dict_free(c->names);
    rg_free((void *)(uintptr_t)c->values);
    rg_free(c->tensors);
    rg_free(c->composed);
    rg_arena_fini(&c->arena);
    rg_free(c->path);
    rg_free(c->dir);
    rg_free(c);
}

int rg_ckpt_add_file(rg_checkpoint *c, const char *path, rg_error *err)
{
    rg_file *f;

    if (c->n_files == RG_FILES_CAP)
        return rg_fail(err, RG_E_INPUT, "%s: more than %d files", c->path, RG_FILES_CAP), -1;
    f = rg_file_open(path, err);
    if (!f)
        return -1;
    c->files[c->n_files] = f;
    return c->n_files++;
}

rg_ckpt_kind rg_checkpoint_kind(const rg_checkpoint *c)
{
    return c->kind;
}

bool rg_checkpoint_is_adapter(const rg_checkpoint *c)
{
    const rg_entry *e = c->kind == RG_CKPT_GGUF ? rg_ckpt_entry(c, "general.type") : NULL;

    return c->is_peft || (e && e->type == RG_META_STRING && !strcmp(e->s.data, "adapter"));
}

const char *rg_checkpoint_path(const rg_checkpoint *c)
{
    return c->path;
}

static bool add_config(const rg_checkpoint *c, rg_hasher *h, rg_error *err)
{
    rg_error why = { RG_OK, "" };
    size_t n = 0;
    char *text = rg_checkpoint_side_file(c, "config.json", &n, &why);

    if (!text && why.code != RG_OK) {
        if (err)
            *err = why;
        return false;
    }
    rg_hasher_add(h, text, n);
    rg_free(text);
    return true;
}

bool rg_checkpoint_identity(const rg_checkpoint *c, uint64_t *out, rg_error *err)
{
    rg_hasher *h = rg_hasher_new();

    if (!h)
        return rg_fail_memory(err, sizeof *out);
    for (int i = 0; i < c->n_files; i++) {
        const uint64_t about[] = { rg_file_size(c->files[i]), rg_file_time_ns(c->files[i]) };
        rg_hasher_add(h, about, sizeof about);
    }
    for (int i = 0; i < c->n_tensors; i++) {
        const rg_tensor *t = &c->tensors[i];
        const uint64_t about[] = { (uint64_t)t->type, (uint64_t)t->n_dims, (uint64_t)t->file, t->offset, t->bytes };
        rg_hasher_add(h, t->name, strlen(t->name) + 1);
        rg_hasher_add(h, about, sizeof about);
        rg_hasher_add(h, t->shape, sizeof *t->shape * (size_t)t->n_dims);
    }
    bool ok = add_config(c, h, err);
    *out = rg_hasher_value(h);
    rg_hasher_free(h);
    return ok;
}

enum { SAMPLES = 4, SAMPLE = 256, BEGINNING = 1 << 16 };

/* A few places of a tensor, from its first byte to its last. */
static bool add_samples(const rg_checkpoint *c, const rg_tensor *t, rg_hasher *h, rg_error *err)
{
    const size_t n = t->bytes < SAMPLE ? (size_t)t->bytes : SAMPLE;
    uint8_t bytes[SAMPLE];

    for (uint64_t i = 0; i < SAMPLES; i++) {
        if (!rg_tensor_read(c, t, (t->bytes - n) / (SAMPLES - 1) * i, bytes, n, err))
            return false;
        rg_hasher_add(h, bytes, n);
    }
    return true;
}

static bool add_beginning(const rg_file *f, rg_hasher *h, rg_error *err)
{
    const size_t n = rg_file_size(f) < BEGINNING ? (size_t)rg_file_size(f) : BEGINNING;
    uint8_t *bytes = rg_alloc(n);
    bool ok = bytes ? rg_file_read(f, 0, bytes, n, err) : rg_fail_memory(err, n);

    if (ok)
        rg_hasher_add(h, bytes, n);
    rg_free(bytes);
    return ok;
}

bool rg_checkpoint_fingerprint(const rg_checkpoint *c, uint64_t out[2], rg_error *err)
{
    rg_hasher *h = rg_checkpoint_identity(c, &out[0], err) ? rg_hasher_new() : NULL;
    bool ok = h;

    for (int i = 0; ok && i < c->n_files; i++)
        ok = add_beginning(c->files[i], h, err);
    for (int i = 0; ok && i < c->n_tensors; i++)
        ok = c->tensors[i].file < 0 || add_samples(c, &c->tensors[i], h, err);
    if (ok)
        out[1] = rg_hasher_value(h);
    rg_hasher_free(h);
    return ok;
}

int rg_checkpoint_n_tensors(const rg_checkpoint *c)
{
    return c->n_tensors;
}

const rg_tensor *rg_checkpoint_tensor(const rg_checkpoint *c, int i)
{
    return i >= 0 && i < c->n_tensors ? &c->tensors[i] : NULL;
}

static const rg_tensor *find(const rg_checkpoint *c, const char *name)
{
    return rg_checkpoint_tensor(c, rg_dict_get(c->names, name, strlen(name)));
}

const rg_tensor *rg_checkpoint_find(const rg_checkpoint *c, const char *name)
{
    const rg_tensor *t = find(c, name);
    char other[RG_NAME_CAP + 32];

    if (t || c->kind == RG_CKPT_GGUF)
        return t;
    snprintf(other, sizeof other, "language_model.%s", name);
    t = find(c, other);
    if (t || strncmp(name, "model.", 6) != 0)
        return t;
    snprintf(other, sizeof other, "model.language_model.%s", name + 6);
    return find(c, other);
}

bool rg_checkpoint_has_parts(const rg_checkpoint *c)
{
    return c->has_parts;
}

bool rg_tensor_is_of_other_part(const rg_checkpoint *c, const rg_tensor *t)
{
    static const char *const parts[] = { "vision_tower.",         "vision_model.", "visual.",
                                         "audio_tower.",          "embed_vision.", "embed_audio.",
                                         "multi_modal_projector." };
    const char *name = strncmp(t->name, "model.", 6) ? t->name : t->name + 6;
    bool yes = false;

    for (size_t i = 0; c->has_parts && i < RG_LEN(parts); i++)
        yes = yes || !strncmp(name, parts[i], strlen(parts[i]));
    return yes;
}

/* Whole rows at once; parts of rows through a copy of them. */
static bool read_composed(const rg_checkpoint *c, const rg_tensor *t, uint64_t at, uint8_t *to, size_t n, rg_error *err)
{
    const uint64_t row = t->bytes / (uint64_t)rg_tensor_rows(t), first = at / row, end = (at + n + row - 1) / row;
    uint8_t *rows;
    bool ok;

    if (at % row == 0 && n % row == 0)
        return rg_composed_rows(c, t, (int64_t)first, (int64_t)(n / row), to, err);
    rows = rg_array((size_t)(end - first), (size_t)row);
    if (!rows)
        return rg_fail_memory(err, (size_t)(end - first) * (size_t)row);
    ok = rg_composed_rows(c, t, (int64_t)first, (int64_t)(end - first), rows, err);
    if (ok)
        memcpy(to, rows + (at - first * row), n);
    rg_free(rows);
    return ok;
}

bool rg_tensor_read(const rg_checkpoint *c, const rg_tensor *t, uint64_t from, void *to, size_t n, rg_error *err)
{
    if (from > t->bytes || n > t->bytes - from)
        return rg_fail(err, RG_E_USAGE, "%s: bytes %llu to %llu of tensor '%s', which has %llu", c->path,
                       (unsigned long long)from, (unsigned long long)(from + n), t->name, (unsigned long long)t->bytes);
    if (t->file == RG_FILE_COMPOSED)
        return read_composed(c, t, from, to, n, err);
    if (c->lender && t->file != RG_FILE_MEMORY)
        return rg_tensor_read(c->lender, t, from, to, n, err);
    if (t->file == RG_FILE_MEMORY) {
        memcpy(to, (const uint8_t *)c->values[t->offset] + from, n);
        return true;
    }
    return rg_file_read(c->files[t->file], t->offset + from, to, n, err);
}

const char *rg_tensor_note(const rg_checkpoint *c, const rg_tensor *t)
{
    return t->file == RG_FILE_COMPOSED ? rg_composed_note(&c->composed[t->offset], t) : NULL;
}

const char *rg_checkpoint_dir(const rg_checkpoint *c)
{
    return c->dir;
}

bool rg_checkpoint_side_path(const rg_checkpoint *c, const char *name, char *path, size_t room)
{
    return c->dir && rg_path_join(path, room, c->dir, name);
}

char *rg_checkpoint_side_file(const rg_checkpoint *c, const char *name, size_t *n, rg_error *err)
{
    char path[4096];

    if (err)
        *err = (rg_error){ RG_OK, "" };
    if (!c->dir || !rg_path_join(path, sizeof path, c->dir, name) || rg_path_look(path) == RG_PATH_NONE)
        return NULL;
    return rg_file_slurp(path, RG_SIDE_CAP, n, err);
}
