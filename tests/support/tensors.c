/* tensors.c -- see tensors.h. */
#include "support/tensors.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

test_tensors *test_tensors_read(const char *golden)
{
    char path[256];

    snprintf(path, sizeof path, "%s/model.safetensors", golden);
    return test_tensors_open(test_data(path));
}

test_tensors *test_tensors_open(const char *path)
{
    test_tensors *s = calloc(1, sizeof *s);
    rg_error err = { 0 };
    rg_checkpoint *c = rg_checkpoint_open(path, RG_CKPT_DEFAULT, &err);

    assert_non_null(s);
    assert_ok(c, err);
    for (int i = 0; i < rg_checkpoint_n_tensors(c); i++) {
        const rg_tensor *t = rg_checkpoint_tensor(c, i);
        test_tensor *to = test_tensors_add(s, t->name, t->type, t->n_dims, t->shape);
        assert_int_equal(to->bytes, t->bytes);
        assert_ok(rg_tensor_read(c, t, 0, to->data, t->bytes, &err), err);
    }
    rg_checkpoint_close(c);
    return s;
}

void test_tensors_free(test_tensors *s)
{
    for (int i = 0; i < s->n; i++)
        free(s->t[i].data);
    free(s);
}

test_tensor *test_tensors_find(test_tensors *s, const char *name)
{
    for (int i = 0; i < s->n; i++)
        if (!strcmp(s->t[i].name, name))
            return &s->t[i];
    return NULL;
}

test_tensor *test_tensors_add(test_tensors *s, const char *name, rg_type type, int n_dims, const int64_t *shape)
{
    test_tensor *t = &s->t[s->n++];

    assert_true(s->n <= TEST_MAX_TENSORS);
    *t = (test_tensor){ .type = type, .n_dims = n_dims, .bytes = (size_t)rg_format_of(type)->block_bytes };
    snprintf(t->name, sizeof t->name, "%s", name);
    for (int i = 0; i < n_dims; i++)
        t->bytes *= (size_t)(t->shape[i] = shape[i]);
    t->data = malloc(t->bytes + 1);
    assert_non_null(t->data);
    return t;
}

static void write_all(const test_tensors *s, rg_ckpt_writer *w)
{
    rg_error err = { 0 };

    for (int i = 0; i < s->n; i++)
        if (s->t[i].name[0])
            assert_ok(rg_ckpt_declare(w, s->t[i].name, s->t[i].type, s->t[i].n_dims, s->t[i].shape, &err), err);
    for (int i = 0; i < s->n; i++)
        if (s->t[i].name[0])
            assert_ok(rg_ckpt_write(w, s->t[i].data, s->t[i].bytes, &err), err);
    assert_ok(rg_ckpt_commit(w, &err), err);
}

void test_tensors_write(const test_tensors *s, const char *folder)
{
    char path[600];
    rg_error err = { 0 };

    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    rg_ckpt_writer *w = rg_safetensors_create(path, &err);
    assert_ok(w, err);
    write_all(s, w);
}

static bool skip_none(const char *key)
{
    (void)key;
    return false;
}

void test_tensors_write_gguf(const test_tensors *s, const char *like, const char *path)
{
    rg_error err = { 0 };
    rg_checkpoint *c = rg_checkpoint_open(like, RG_CKPT_DEFAULT, &err);
    rg_ckpt_writer *w = c ? rg_gguf_create(path, &err) : NULL;

    assert_ok(w, err);
    assert_ok(rg_ckpt_put_all(w, c, skip_none, &err), err);
    rg_checkpoint_close(c);
    write_all(s, w);
}

int test_tensors_rename(test_tensors *s, const char *from, const char *to)
{
    const size_t n_from = strlen(from);
    int n = 0;

    for (int i = 0; i < s->n; i++) {
        char rest[sizeof s->t[i].name];

        if (!s->t[i].name[0] || strncmp(s->t[i].name, from, n_from) != 0)
            continue;
        snprintf(rest, sizeof rest, "%s", s->t[i].name + n_from);
        assert_true(snprintf(s->t[i].name, sizeof s->t[i].name, "%s%s", to, rest) < (int)sizeof s->t[i].name);
        n++;
    }
    return n;
}

void test_config_set(const char *folder, const char *key, const char *json)
{
    char path[600];

    snprintf(path, sizeof path, "%s/config.json", folder);
    json_t *config = json_load_file(path, 0, NULL), *v = json ? json_loads(json, JSON_DECODE_ANY, NULL) : NULL;
    assert_true(config && (v || !json));
    if (v)
        json_object_set_new(config, key, v);
    else
        json_object_del(config, key);
    assert_int_equal(json_dump_file(config, path, JSON_INDENT(1)), 0);
    json_decref(config);
}
