/* test_pack_cache.c -- packed weights kept in a file: the second opening only reads it and gives the same weights; a file
 * that is damaged, cut, foreign or out of date is not used and is written anew; what fails leaves no half file. */
#include "support/model.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "ops/backend.h"

enum { MAX_TRIES = 5000 };

typedef struct opened {
    rg_checkpoint *ckpt;
    rg_model *m;
} opened;

static void close_model(opened *o)
{
    rg_model_close(o->m);
    rg_checkpoint_close(o->ckpt);
    *o = (opened){ 0 };
}

static bool open_model(opened *o, const char *path, const char *cache, rg_error *err)
{
    *o = (opened){ .ckpt = rg_checkpoint_open(path, RG_CKPT_DEFAULT, err) };
    if (o->ckpt)
        o->m = rg_model_open(o->ckpt, &(rg_model_options){ .n_threads = 2, .pack_cache = cache }, err);
    if (!o->m)
        close_model(o);
    return o->m;
}

static bool add_image(void *arg, const void *image, size_t bytes, rg_error *err)
{
    uint64_t *h = arg;

    (void)err;
    *h = rg_hash(image, bytes, *h);
    return true;
}

static uint64_t image_hash(const rg_placed *p)
{
    uint64_t h = 0;

    for (int64_t m = 0; m < p->n_mats; m++)
        assert_true(p->owner->image_save(p, m, add_image, &h, NULL));
    return h;
}

/* How many weights have other bits. */
static int n_different(const opened *a, const opened *b)
{
    const rg_weight_set *x = &a->m->weights, *y = &b->m->weights;
    int n = 0;

    assert_int_equal(x->n, y->n);
    assert_int_equal(x->bytes, y->bytes);
    for (int i = 0; i < x->n; i++) {
        const rg_placed *p = x->all[i].placed, *q = y->all[i].placed;

        assert_int_equal(!p, !q);
        if (!p) {
            n += !!memcmp(x->all[i].vec, y->all[i].vec, (size_t)(x->all[i].rows * x->all[i].cols) * sizeof(float));
            continue;
        }
        assert_int_equal(p->type, q->type);
        assert_int_equal(p->bytes, q->bytes);
        n += image_hash(p) != image_hash(q);
    }
    return n;
}

static void assert_same_weights(const opened *a, const opened *b)
{
    assert_int_equal(n_different(a, b), 0);
}

/* Open with the cache: the weights are those of `want`. */
static void open_and_compare(const char *path, const char *cache, const opened *want)
{
    opened o;
    rg_error err = { 0 };

    assert_ok(open_model(&o, path, cache, &err), err);
    assert_same_weights(&o, want);
    close_model(&o);
}

/* The one file in a folder; how many there are. */
static int only_file(const char *dir, char path[600])
{
    DIR *d = opendir(dir);
    int n = 0;

    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.') {
            snprintf(path, 600, "%s/%s", dir, e->d_name);
            n++;
        }
    closedir(d);
    return n;
}

static void change_byte(const char *path, off_t at)
{
    int fd = open(path, O_RDWR);
    unsigned char byte;

    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 0x40;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static struct stat look(const char *path)
{
    struct stat st;

    assert_int_equal(stat(path, &st), 0);
    return st;
}

static void set_time(const char *path, struct timespec to)
{
    assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[]){ to, to }, 0), 0);
}

/* A folder of the scratch, empty. */
static const char *new_folder(const char *name)
{
    char path[600];
    const char *dir = test_scratch(name);

    mkdir(dir, 0755);
    while (only_file(dir, path))
        assert_int_equal(remove(path), 0);
    return dir;
}

/* Weights of every kind: f32 and quantized, vectors, tables, loaded, stacked by expert and by head. */
static void the_file_has_every_weight(void **state)
{
    static const char *const models[] = { "llama", "llama/model.gguf", "mamba", "mixtral", "phi3", "deepseek-v2",
                                          "quantized/gptq-4bit-g32-act" };

    (void)state;
    for (size_t i = 0; i < RG_LEN(models); i++) {
        char path[600], file[600];
        const char *cache = new_folder("cache");
        opened plain;
        rg_error err = { 0 };

        snprintf(path, sizeof path, "%s", test_data(models[i]));
        assert_ok(open_model(&plain, path, NULL, &err), err);
        open_and_compare(path, cache, &plain);
        assert_int_equal(only_file(cache, file), 1);
        struct stat first = look(file);
        open_and_compare(path, cache, &plain);
        assert_int_equal(look(file).st_ino, first.st_ino); /* read, not written */
        close_model(&plain);
    }
}

/* A copy of a model whose last weight is changed afterwards: with its old time nobody sees it, since nothing but the
 * header is read; with a new time it is packed again. */
static void only_a_changed_checkpoint_is_packed_again(void **state)
{
    char path[600], file[600];
    const char *cache = new_folder("cache");
    opened before, after;
    rg_error err = { 0 };

    (void)state;
    snprintf(path, sizeof path, "%s", test_scratch("copy.gguf"));
    test_copy_file(test_data("llama/model.gguf"), path, NULL, NULL);
    struct stat st = look(path);
    assert_ok(open_model(&before, path, NULL, &err), err);
    open_and_compare(path, cache, &before);

    change_byte(path, st.st_size - 100);
    set_time(path, st.st_mtim);
    open_and_compare(path, cache, &before);
    set_time(path, (struct timespec){ st.st_mtim.tv_sec + 1, 0 });
    assert_ok(open_model(&after, path, NULL, &err), err);
    open_and_compare(path, cache, &after);
    open_and_compare(path, cache, &after);
    assert_int_equal(only_file(cache, file), 1);
    assert_int_equal(n_different(&before, &after), 1);
    close_model(&before);
    close_model(&after);
}

/* The config is part of the key: the same tensors may be loaded otherwise. */
static void a_changed_config_is_another_key(void **state)
{
    const char *cache = new_folder("cache");
    const char *dir = test_variant("other", "llama", "config.json", "rms_norm_eps", "rms_norm_eps");
    char file[600], config[600];
    opened plain;
    rg_error err = { 0 };

    (void)state;
    assert_ok(open_model(&plain, dir, NULL, &err), err);
    open_and_compare(dir, cache, &plain);
    only_file(cache, file);
    struct stat first = look(file);
    snprintf(config, sizeof config, "%s/config.json", dir);
    test_copy_file(test_data("llama/config.json"), config, "{", "{ ");
    open_and_compare(dir, cache, &plain);
    assert_int_not_equal(look(file).st_ino, first.st_ino);
    close_model(&plain);
}

static void a_damaged_file_is_written_anew(void **state)
{
    char path[600], file[600], good[600];
    const char *cache = new_folder("cache");
    opened plain;
    rg_error err = { 0 };

    (void)state;
    snprintf(path, sizeof path, "%s", test_data("mixtral"));
    assert_ok(open_model(&plain, path, NULL, &err), err);
    open_and_compare(path, cache, &plain);
    assert_int_equal(only_file(cache, file), 1);
    snprintf(good, sizeof good, "%s", test_scratch("good"));
    test_copy_file(file, good, NULL, NULL);
    off_t size = look(file).st_size;
    off_t places[] = { 4096, size / 2 / 4096 * 4096, size - 2000, size - 56, size - 40, size - 30, size - 9, size - 1 };
    for (size_t i = 0; i < RG_LEN(places); i++) { /* of a matrix, of the directory, of each part of the trailer */
        change_byte(file, places[i]);
        struct stat bad = look(file);
        open_and_compare(path, cache, &plain);
        assert_int_not_equal(look(file).st_ino, bad.st_ino);
        assert_int_equal(look(file).st_size, size);
    }
    off_t cuts[] = { 0, 1, 55, 4096, size / 2, size - 57, size - 56, size - 1 };
    for (size_t i = 0; i < RG_LEN(cuts); i++) {
        assert_int_equal(truncate(file, cuts[i]), 0);
        open_and_compare(path, cache, &plain);
        assert_int_equal(look(file).st_size, size);
    }
    rg_rng random = { .seed = test_seed };
    for (int i = 0; i < test_scale(50); i++) { /* wherever it is */
        change_byte(file, (off_t)rg_rng_below(&random, (uint32_t)size));
        open_and_compare(path, cache, &plain);
    }
    /* That of another model, under this one's name. */
    char other[600];
    const char *there = new_folder("other-cache");
    opened llama;
    assert_ok(open_model(&llama, test_data("llama"), there, &err), err);
    close_model(&llama);
    assert_int_equal(only_file(there, other), 1);
    test_copy_file(other, file, NULL, NULL);
    open_and_compare(path, cache, &plain);
    assert_int_equal(look(file).st_size, size);
    close_model(&plain);
}

/* ---- what fails -------------------------------------------------------------------------------------------------- */

typedef struct gate {
    long n_asked, fails_at;
} gate;

static bool allow_operation(void *arg, const char *operation)
{
    gate *g = arg;

    (void)operation;
    return g->n_asked++ != g->fails_at;
}

static bool allow_bytes(void *arg, size_t bytes)
{
    gate *g = arg;

    (void)bytes;
    return g->n_asked++ != g->fails_at;
}

/* Each operation fails once in turn: while packing and writing, or (kept) while reading. */
static void each_fails(bool files, bool kept) /* without a file to read, allocations are those of test_failure */
{
    char path[600], file[600];
    const char *cache = new_folder("cache");
    opened plain, o;
    rg_error err = { 0 };
    long n_failed = 0;

    snprintf(path, sizeof path, "%s", test_data("mamba/model.gguf"));
    assert_ok(open_model(&plain, path, NULL, &err), err);
    open_and_compare(path, cache, &plain);
    only_file(cache, file);
    rg_mem_stats before = rg_mem_count();
    for (long at = 0;; at++) {
        gate g = { .fails_at = at };

        assert_true(at < MAX_TRIES);
        if (!kept)
            remove(file);
        if (files)
            rg_file_set_gate(allow_operation, &g);
        else
            rg_mem_set_gate(allow_bytes, &g);
        bool ok = open_model(&o, path, cache, &err);
        rg_file_set_gate(NULL, NULL);
        rg_mem_set_gate(NULL, NULL);
        if (ok)
            assert_same_weights(&o, &plain);
        else
            assert_int_equal(err.code, files ? RG_E_IO : RG_E_MEMORY);
        close_model(&o);
        n_failed += !ok;
        assert_int_equal(rg_mem_count().n_live, before.n_live);
        int n_files = only_file(cache, file);
        assert_true(n_files <= 1); /* nothing half written */
        if (files && n_files)
            open_and_compare(path, cache, &plain);
        if (g.n_asked <= at)
            break;
    }
    open_and_compare(path, cache, &plain);
    assert_true(n_failed > 2);
    close_model(&plain);
}

static void every_operation_may_fail(void **state)
{
    (void)state;
    each_fails(true, false);
    each_fails(true, true);
    each_fails(false, true);
}

static void a_folder_that_cannot_be_made_is_an_error(void **state)
{
    char file[600];
    opened o;
    rg_error err = { 0 };

    (void)state;
    snprintf(file, sizeof file, "%s", test_scratch("plain"));
    test_copy_file(test_data("llama/config.json"), file, NULL, NULL);
    assert_false(open_model(&o, test_data("llama"), file, &err));
    assert_int_equal(err.code, RG_E_IO);
    assert_non_null(strstr(err.text, file));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_file_has_every_weight),
        cmocka_unit_test(only_a_changed_checkpoint_is_packed_again),
        cmocka_unit_test(a_changed_config_is_another_key),
        cmocka_unit_test(a_damaged_file_is_written_anew),
        cmocka_unit_test(every_operation_may_fail),
        cmocka_unit_test(a_folder_that_cannot_be_made_is_an_error),
    };

    test_init(argc, argv);
    rg_log_set_level(RG_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
