/* test_vanishing.c -- a checkpoint that is cut short, overwritten or removed: under an engine that runs, which never looks at
 * it again, and while one is being opened, which then works or says what is wrong.  Never a signal. */
#define _GNU_SOURCE 1
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "ridge.h"
#include "support/test.h"

enum { N_IDS = 12 };

static char folder[64];
static const char *const parts[] = { "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
                                     "chat_template.jinja", "model.safetensors" };
static char weights[128];

static void copy(const char *from, const char *to)
{
    rg_error err = { 0 };
    size_t n;
    char *data = rg_file_slurp(from, (size_t)1 << 30, &n, &err);
    rg_writer *w = data ? rg_writer_open(to, &err) : NULL;

    assert_ok(w && rg_writer_write(w, data, n, &err) && rg_writer_commit(w, &err), err);
    rg_free(data);
}

/* A fresh copy of the shipped model. */
static void put_model(void)
{
    char from[512], to[256];

    for (size_t i = 0; i < RG_LEN(parts); i++) {
        snprintf(from, sizeof from, RG_SOURCE_DIR "/models/tales-1m/%s", parts[i]);
        snprintf(to, sizeof to, "%s/%s", folder, parts[i]);
        copy(from, to);
    }
}

static rg_engine *open_it(rg_error *err)
{
    rg_options o = rg_options_default();

    o.max_seq_len = 64;
    o.n_threads = 2;
    o.kv_bytes = (size_t)8 << 20;
    return rg_open(folder, &o, err);
}

static void generate(rg_engine *e, int32_t ids[N_IDS])
{
    int32_t prompt[] = { 5, 6, 7, 8 };
    rg_params p = { .prompt = prompt, .n_prompt = 4, .max_tokens = N_IDS, .n_samples = 1 };
    rg_error err = { 0 };
    rg_token token;
    int n = 0;

    p.sampling = rg_sampling_default();
    p.sampling.temperature = 0;
    p.sampling.ignore_eos = true;
    rg_request *r = rg_submit(e, &p, &err);
    assert_ok(r, err);
    while (rg_next(r, &token))
        if (token.id >= 0 && n < N_IDS)
            ids[n++] = token.id;
    rg_request_close(r);
    assert_int_equal(n, N_IDS);
}

static void shorten(off_t n)
{
    assert_int_equal(truncate(weights, n), 0);
}

static void overwrite(void)
{
    struct stat st;
    int fd = open(weights, O_WRONLY);
    char junk[4096];

    memset(junk, 0xa5, sizeof junk);
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    for (off_t at = 0; at < st.st_size; at += (off_t)sizeof junk)
        assert_true(pwrite(fd, junk, sizeof junk, at) > 0);
    close(fd);
}

static void an_open_engine_needs_no_file(void **state)
{
    int32_t before[N_IDS], after[N_IDS];
    rg_error err = { 0 };

    (void)state;
    put_model();
    rg_engine *e = open_it(&err);
    assert_ok(e, err);
    generate(e, before);
    overwrite();
    generate(e, after);
    assert_memory_equal(before, after, sizeof before);
    shorten(100);
    generate(e, after);
    assert_memory_equal(before, after, sizeof before);
    shorten(0);
    unlink(weights);
    generate(e, after);
    assert_memory_equal(before, after, sizeof before);
    rg_close(e);
    assert_null(open_it(&err));
    assert_true(err.code != RG_OK && err.text[0]);
}

typedef struct vandal {
    off_t length;
    double after_s;
    int how; /* 0: cut, 1: overwrite, 2: remove */
} vandal;

static void *wreck(void *arg)
{
    const vandal *v = arg;
    struct timespec t = { 0, (long)(v->after_s * 1e9) };

    nanosleep(&t, NULL);
    if (v->how == 0)
        shorten(v->length);
    else if (v->how == 1)
        overwrite();
    else
        unlink(weights);
    return NULL;
}

static void while_it_is_opened_it_works_or_says_why(void **state)
{
    rg_rng g = { .seed = test_seed };
    int32_t right[N_IDS], ids[N_IDS];
    int n_opened = 0, n = test_scale(30);
    struct stat st;
    rg_error err = { 0 };

    (void)state;
    put_model();
    assert_int_equal(stat(weights, &st), 0);
    uint64_t from = rg_now_ns();
    rg_engine *e = open_it(&err);
    double takes = rg_seconds(from, rg_now_ns());
    assert_ok(e, err);
    generate(e, right);
    rg_close(e);
    for (int i = 0; i < n; i++) {
        vandal v = { .length = (off_t)rg_rng_below(&g, (uint32_t)st.st_size), .how = i % 4 < 2 ? 0 : i % 4 - 1,
                     .after_s = 0 };
        double u = (double)rg_rng_below(&g, 1000) / 1000;
        pthread_t t;
        size_t live = rg_mem_count().n_live;
        char to[256];

        v.after_s = takes * u * u * u; /* the file is read early */
        snprintf(to, sizeof to, "%s/model.safetensors", folder);
        copy(RG_SOURCE_DIR "/models/tales-1m/model.safetensors", to);
        assert_int_equal(pthread_create(&t, NULL, wreck, &v), 0);
        err = (rg_error){ 0 };
        e = open_it(&err);
        pthread_join(t, NULL);
        assert_true(e || (err.code != RG_OK && err.text[0]));
        n_opened += e != NULL;
        if (e && v.how != 1) { /* what was overwritten in time was read as it was then */
            generate(e, ids);
            assert_memory_equal(ids, right, sizeof right);
        }
        rg_close(e);
        assert_int_equal(rg_mem_count().n_live, live);
    }
    print_message("%d of %d opened\n", n_opened, n);
}

static int setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/ridge-vanishing-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(weights, sizeof weights, "%s/model.safetensors", folder);
    return 0;
}

static int teardown(void **state)
{
    char path[256];

    (void)state;
    for (size_t i = 0; i < RG_LEN(parts); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, parts[i]);
        unlink(path);
    }
    return rmdir(folder);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_open_engine_needs_no_file),
        cmocka_unit_test(while_it_is_opened_it_works_or_says_why),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, setup, teardown);
}
