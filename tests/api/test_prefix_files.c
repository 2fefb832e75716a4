/* test_prefix_files.c -- cached prefixes in files: found again by the next engine, and by another one beside it, with the
 * bits of an answer that was computed whole; never by an engine of other arithmetic, K/V, checkpoint, adapter, tenant or
 * salt; damaged, cut and foreign files, writes that fail and processes that are killed cost time and nothing else. */
#include "support/engine.h"
#include "support/model.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

enum { N_PROMPT = 400, N_OUT = 6, BLOCK = 64, MAX_FILES = 512 };

typedef struct answer {
    int32_t ids[N_OUT], n_cached;
    float logprobs[N_OUT];
} answer;

/* One request, and the engine that it goes to. */
typedef struct question {
    const char *model; /* of the goldens, or a path */
    const char *folder, *kv_type, *recipe, *tenant, *salt, *adapter;
    int32_t which, n_prompt; /* prompts of different `which` share their first 200 ids */
    uint64_t bytes;
    double attention;
    bool share;
} question;

static const question usual = { .model = "llama", .n_prompt = N_PROMPT };

/* ---- asking ------------------------------------------------------------------------------------------------------ */

static rg_engine *open_for(const question *q)
{
    const rg_adapter_option adapter = { "plain", q->adapter };
    rg_options o = rg_options_default();

    o.n_threads = 2;
    o.kv_bytes = (size_t)64 << 20;
    o.max_seqs = 4;
    o.max_seq_len = 1024;
    o.max_batch_rows = 96;
    o.kv_type = q->kv_type;
    o.recipe = q->recipe ? q->recipe : "fast";
    o.prefix_folder = q->folder;
    o.prefix_bytes = q->bytes;
    o.share_prefixes = q->share;
    o.attention_sparsity = q->attention;
    o.adapters = &adapter;
    o.n_adapters = q->adapter != NULL;
    return test_open(q->model[0] == '/' ? q->model : test_data(q->model), &o);
}

static answer ask(rg_engine *e, const question *q)
{
    rg_params p = { .n_prompt = q->n_prompt,
                    .max_tokens = N_OUT,
                    .n_samples = 1,
                    .sampling = rg_sampling_default(),
                    .tenant = q->tenant,
                    .cache_salt = q->salt,
                    .adapter = q->adapter ? "plain" : NULL };
    int32_t ids[N_PROMPT], n = 0;
    answer a = { 0 };
    rg_error err = { 0 };
    rg_token t;

    for (int32_t i = 0; i < q->n_prompt; i++)
        ids[i] = 3 + (i * i + 5 * i + (i < 200 ? 0 : q->which * 7)) % 90;
    p.prompt = ids;
    p.sampling.seed = 11;
    p.sampling.n_logprobs = 0;
    p.sampling.ignore_eos = true;
    rg_request *r = rg_submit(e, &p, &err);
    assert_ok(r, err);
    while (rg_next(r, &t))
        if (t.id >= 0) {
            a.ids[n] = t.id;
            a.logprobs[n++] = t.logprob;
        }
    assert_int_equal(n, N_OUT);
    a.n_cached = rg_request_usage(r).n_cached;
    rg_request_close(r);
    rg_engine_check(e);
    return a;
}

/* By an engine of its own, which is closed again; *stats (may be NULL): what it did. */
static answer ask_once(const question *q, rg_stats *stats)
{
    rg_engine *e = open_for(q);
    answer a = ask(e, q);

    if (stats)
        *stats = rg_engine_stats(e);
    rg_close(e);
    return a;
}

static void check_same(const char *what, const answer *a, const answer *b)
{
    if (memcmp(a->ids, b->ids, sizeof a->ids) || memcmp(a->logprobs, b->logprobs, sizeof a->logprobs))
        fail_msg("%s: another answer than one that is computed whole", what);
}

static question in(const question *q, const char *folder)
{
    question with = *q;

    with.folder = folder;
    with.bytes = folder ? q->bytes : 0;
    return with;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

typedef struct files {
    char path[MAX_FILES][512];
    int n;
    uint64_t bytes;
} files;

/* Everything that is no folder. */
static void list(files *f, const char *folder)
{
    DIR *d = opendir(folder);

    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d));) {
        char path[512];
        struct stat st;

        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (e->d_name[0] == '.' || lstat(path, &st))
            continue;
        if (S_ISDIR(st.st_mode)) {
            list(f, path);
            continue;
        }
        assert_true(f->n < MAX_FILES);
        f->bytes += (uint64_t)st.st_size;
        strcpy(f->path[f->n++], path);
    }
    closedir(d);
}

static files *files_of(const char *folder)
{
    files *f = calloc(1, sizeof *f);

    assert_non_null(f);
    list(f, folder);
    return f;
}

/* ---- what is found ----------------------------------------------------------------------------------------------- */

typedef struct kind {
    const char *model, *kv_type;
    int n_blocks; /* of a prompt of N_PROMPT that shares 200 ids with one before it */
} kind;

/* Kinds of state: all positions, windows beside them, windows alone, latents, states per sequence alone and beside K/V;
 * and of K/V.  States per sequence are kept where a prompt of this length ended, and so are not found in the middle. */
static const kind kinds[] = {
    { "llama", "bf16", 3 }, { "llama", "q4", 3 },       { "llama", "q8", 3 },         { "gemma3", "f32", 3 },
    { "gemma3", "q4", 3 },  { "mistral-swa", NULL, 3 }, { "deepseek-v2", "bf16", 3 }, { "mamba", NULL, 0 },
    { "jamba", "q8", 0 },   { "qwen3-next", NULL, 0 },
};

static void after_a_restart(void **state)
{
    (void)state;
    for (size_t i = 0; i < RG_LEN(kinds); i++) {
        const kind *k = &kinds[i];
        question q = { .model = k->model, .kv_type = k->kv_type, .n_prompt = N_PROMPT };
        const answer want = ask_once(&q, NULL);
        rg_stats s;
        char name[32];

        snprintf(name, sizeof name, "restart-%zu", i);
        q.folder = test_scratch(name);
        answer got = ask_once(&q, &s);
        check_same(k->model, &got, &want);
        assert_int_equal(got.n_cached, 0);
        assert_true(s.n_prefix_missed == 1 && !s.n_prefix_found && !s.prefix_bytes_read);
        got = ask_once(&q, &s);
        check_same(k->model, &got, &want);
        if (got.n_cached != (N_PROMPT - 1) / BLOCK * BLOCK)
            fail_msg("%s %s: %d ids found after a restart", k->model, k->kv_type, (int)got.n_cached);
        assert_true(s.n_prefix_found == 1 && s.prefix_bytes_read && !s.n_prefix_damaged && !s.n_prefix_failed);

        q.which = 1; /* another prompt that begins alike */
        const question alone = in(&q, NULL);
        const answer other = ask_once(&alone, NULL);
        got = ask_once(&q, &s);
        check_same(k->model, &got, &other);
        if (got.n_cached != k->n_blocks * BLOCK)
            fail_msg("%s %s: %d ids of the common beginning found", k->model, k->kv_type, (int)got.n_cached);
    }
}

/* Wait until an engine has written this much. */
static void wait_written(rg_engine *e, uint64_t bytes)
{
    for (int i = 0; i < 60000 && rg_engine_stats(e).prefix_bytes_written < bytes; i++)
        usleep(1000);
    assert_true(rg_engine_stats(e).prefix_bytes_written >= bytes);
}

static void by_an_engine_beside_it(void **state)
{
    const answer want = ask_once(&usual, NULL);
    question q = in(&usual, test_scratch("once"));
    files *f;

    (void)state;
    (void)ask_once(&q, NULL);
    f = files_of(q.folder);
    q.folder = test_scratch("beside");
    rg_engine *one = open_for(&q), *two = open_for(&q);
    answer got = ask(one, &q);
    check_same("the first", &got, &want);
    wait_written(one, f->bytes);
    got = ask(two, &q);
    check_same("the second", &got, &want);
    assert_int_equal(got.n_cached, 384);
    rg_close(one);
    q.which = 1;
    const question alone = in(&q, NULL);
    const answer other = ask_once(&alone, NULL);
    got = ask(two, &q); /* in memory by now */
    check_same("the other prompt", &got, &other);
    rg_close(two);
    free(f);
}

/* Many at once: more than are looked for at a time, some alike. */
static void by_many_at_once(void **state)
{
    enum { MANY = 24 };
    const char *folder = test_scratch("many");
    question q = in(&usual, folder);
    answer want[3];
    rg_request *r[MANY];
    rg_error err = { 0 };

    (void)state;
    for (q.which = 0; q.which < 3; q.which++)
        want[q.which] = ask_once(&q, NULL);
    rg_engine *e = open_for(&q);
    for (int k = 0; k < MANY; k++) {
        int32_t ids[N_PROMPT];
        rg_params p = { .prompt = ids,
                        .n_prompt = N_PROMPT,
                        .max_tokens = N_OUT,
                        .n_samples = 1 + k % 2,
                        .sampling = rg_sampling_default(),
                        .background = k % 5 == 4 };

        for (int32_t i = 0; i < N_PROMPT; i++)
            ids[i] = 3 + (i * i + 5 * i + (i < 200 ? 0 : k % 3 * 7)) % 90;
        p.sampling.seed = 11;
        p.sampling.n_logprobs = 0;
        p.sampling.ignore_eos = true;
        r[k] = rg_submit(e, &p, &err);
        assert_ok(r[k], err);
        if (k % 7 == 6)
            rg_cancel(r[k]);
    }
    for (int k = 0; k < MANY; k++) {
        int32_t n = 0;
        rg_token t;

        while (rg_next(r[k], &t))
            if (t.id >= 0 && t.sample == 0) {
                assert_int_equal(t.id, want[k % 3].ids[n]);
                assert_memory_equal(&t.logprob, &want[k % 3].logprobs[n++], sizeof t.logprob);
            }
        assert_true(n == N_OUT || k % 7 == 6);
        assert_true(k % 7 == 6 || rg_request_usage(r[k]).n_cached >= 192);
        rg_request_close(r[k]);
    }
    rg_engine_check(e);
    assert_true(rg_engine_stats(e).n_prefix_found >= 3);
    rg_close(e);
}

/* ---- what is not found ------------------------------------------------------------------------------------------- */

static void check_missed(const char *what, const question *q)
{
    const question alone = in(q, NULL);
    const answer want = ask_once(&alone, NULL), got = ask_once(q, NULL);

    check_same(what, &got, &want);
    if (got.n_cached)
        fail_msg("%s: %d ids were found", what, (int)got.n_cached);
}

static void not_by_others(void **state)
{
    const question base = in(&usual, test_scratch("others"));
    question q = base;

    (void)state;
    q.kv_type = "bf16";
    (void)ask_once(&q, NULL);
    q.kv_type = "f16";
    check_missed("another type of K/V", &q);
    q.kv_type = "bf16";
    q.recipe = "exact";
    check_missed("another recipe", &q);
    q.recipe = "llm.int8";
    check_missed("a third recipe", &q);
    q.recipe = "round16";
    check_missed("a fourth recipe", &q);
    q.recipe = NULL;
    q.attention = 0.01;
    check_missed("sparse attention", &q);
    q.attention = 0;
    q.tenant = "somebody";
    check_missed("a tenant", &q);
    q.tenant = NULL;
    q.salt = "salt";
    check_missed("a salt", &q);
    q.tenant = "salt";
    q.salt = NULL;
    check_missed("a tenant called like a salt", &q);
    q.tenant = NULL;
    q.adapter = RG_TEST_DATA "/adapters/llama";
    check_missed("an adapter", &q);
    q.adapter = RG_TEST_DATA "/adapters/llama-gguf/adapter.gguf"; /* of the same name */
    check_missed("another adapter", &q);
    q.adapter = NULL;
    assert_int_equal(ask_once(&q, NULL).n_cached, 384); /* and what was there is there still */
    q.tenant = "somebody";
    assert_int_equal(ask_once(&q, NULL).n_cached, 384);
    q.share = true;
    check_missed("tenants that share", &q);
    q.tenant = "somebody else";
    assert_int_equal(ask_once(&q, NULL).n_cached, 384);
}

/* Add to a byte of a file, and leave its time as it was. */
static void change_byte(const char *path, off_t at)
{
    struct stat st;
    uint8_t byte;
    int fd = open(path, O_RDWR);

    assert_true(fd >= 0 && !fstat(fd, &st));
    at = at < 0 ? st.st_size + at : at;
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte = (uint8_t)(byte + 3);
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    const struct timespec times[] = { st.st_mtim, st.st_mtim };
    assert_int_equal(futimens(fd, times), 0);
    close(fd);
}

/* Weights of the same names, shapes, sizes and times in the same place. */
static void not_by_another_checkpoint(void **state)
{
    question q = in(&usual, test_scratch("checkpoints"));
    char path[512];

    (void)state;
    q.model = test_variant("model", "llama", "config.json", NULL, NULL);
    (void)ask_once(&q, NULL);
    assert_int_equal(ask_once(&q, NULL).n_cached, 384);
    snprintf(path, sizeof path, "%s/model.safetensors", q.model);
    change_byte(path, -2);
    check_missed("another checkpoint", &q);
}

static void not_after_other_weights(void **state)
{
    question q = in(&usual, test_scratch("weights"));
    rg_error err = { 0 };
    char path[512], to[512];

    (void)state;
    q.model = test_variant("before", "llama", "config.json", NULL, NULL);
    snprintf(to, sizeof to, "%s", test_variant("after", "llama", "config.json", NULL, NULL));
    snprintf(path, sizeof path, "%s/model.safetensors", to);
    change_byte(path, -2);
    rg_engine *e = open_for(&q);
    (void)ask(e, &q);
    assert_ok(rg_engine_update_weights(e, to, &err), err);
    question after = { .model = to, .n_prompt = N_PROMPT };
    const answer want = ask_once(&after, NULL), got = ask(e, &q);
    check_same("after other weights", &got, &want);
    assert_int_equal(got.n_cached, 0);
    rg_close(e);
    assert_int_equal(ask_once(&q, NULL).n_cached, 384); /* the old ones' */
    after.folder = q.folder;
    const answer found = ask_once(&after, NULL); /* and the new ones' */
    assert_int_equal(found.n_cached, 384);
    check_same("found after other weights", &found, &want);
}

/* ---- what goes wrong --------------------------------------------------------------------------------------------- */

typedef enum harm { HARM_BLOCK, HARM_HEAD, HARM_CUT, HARM_EMPTY, HARM_FOREIGN, HARM_LONGER, HARM_FOLDER, N_HARMS } harm;

static void do_harm(harm h, const files *f, int i)
{
    const char *path = f->path[i];
    size_t n;
    char *other;

    switch (h) {
    case HARM_BLOCK:
        change_byte(path, -1 - i * 100);
        break;
    case HARM_HEAD:
        change_byte(path, i * 7 % 60);
        break;
    case HARM_CUT:
        assert_int_equal(truncate(path, 200 + i), 0);
        break;
    case HARM_EMPTY:
        assert_int_equal(truncate(path, 0), 0);
        break;
    case HARM_FOREIGN: /* a whole file, of another name */
        other = rg_file_slurp(f->path[(i + 1) % f->n], 1 << 24, &n, NULL);
        assert_non_null(other);
        int fd = open(path, O_WRONLY | O_TRUNC);
        assert_int_equal(write(fd, other, n), n);
        close(fd);
        rg_free(other);
        break;
    case HARM_LONGER:
        fd = open(path, O_WRONLY | O_APPEND);
        assert_int_equal(write(fd, "more", 4), 4);
        close(fd);
        break;
    case HARM_FOLDER:
        assert_int_equal(unlink(path), 0);
        assert_int_equal(mkdir(path, 0755), 0);
        break;
    case N_HARMS:
        break;
    }
}

/* Every file in turn, and all at once. */
static void damaged_files(void **state)
{
    const answer want = ask_once(&usual, NULL);

    (void)state;
    for (harm h = 0; h < N_HARMS; h++) {
        char name[32];

        snprintf(name, sizeof name, "damaged-%d", h);
        const question q = in(&usual, test_scratch(name));
        (void)ask_once(&q, NULL);
        files *f = files_of(q.folder);
        const int n = f->n;
        assert_int_equal(n, (N_PROMPT + N_OUT - 1) / BLOCK);
        for (int i = 0; i <= n; i++) {
            rg_stats s;

            for (int k = i < n ? i : 0; k < (i < n ? i + 1 : n); k++)
                do_harm(h, f, k);
            answer got = ask_once(&q, &s);
            check_same("with a damaged file", &got, &want);
            assert_true(got.n_cached % BLOCK == 0 && got.n_cached < 384);
            assert_true(h == HARM_FOLDER ? !s.n_prefix_damaged : s.n_prefix_damaged == 1);
            if (h == HARM_FOLDER) /* it stays, for it is not ours */
                for (int k = i < n ? i : 0; k < (i < n ? i + 1 : n); k++)
                    assert_int_equal(rmdir(f->path[k]), 0);
            got = ask_once(&q, &s); /* written anew, or with the folders gone, this time */
            check_same("after a damaged file", &got, &want);
            assert_true(h == HARM_FOLDER || (got.n_cached == 384 && !s.n_prefix_damaged));
            assert_int_equal(ask_once(&q, NULL).n_cached, 384);
        }
        free(f);
    }
}

static bool no_writes(void *arg, const char *operation)
{
    const char *refused = arg;

    return strcmp(operation, refused) != 0;
}

static void full_disk(void **state)
{
    const char *operations[] = { "write", "rename", "open" };
    const answer want = ask_once(&usual, NULL);

    (void)state;
    for (size_t i = 0; i < RG_LEN(operations); i++) {
        char name[32];

        snprintf(name, sizeof name, "full-%zu", i);
        const question q = in(&usual, test_scratch(name));
        rg_engine *e = open_for(&q);

        rg_file_set_gate(no_writes, (void *)(uintptr_t)operations[i]);
        answer got = ask(e, &q);
        check_same("on a full disk", &got, &want);
        for (int k = 0; k < 60000 && rg_engine_stats(e).n_prefix_failed < (N_PROMPT + N_OUT - 1) / BLOCK; k++)
            usleep(1000);
        assert_int_equal(rg_engine_stats(e).n_prefix_failed, (N_PROMPT + N_OUT - 1) / BLOCK);
        assert_int_equal(rg_engine_stats(e).prefix_bytes_written, 0);
        rg_file_set_gate(NULL, NULL);
        got = ask(e, &q);
        check_same("after a full disk", &got, &want);
        rg_close(e);
        files *f = files_of(q.folder);
        assert_int_equal(f->n, 0); /* nothing in halves */
        free(f);
    }
}

/* Kill a process that writes, at some moment; the next one finds whole files or none. */
static void killed(void **state)
{
    const answer want = ask_once(&usual, NULL);
    const question q = in(&usual, test_scratch("killed"));
    int n_found = 0;

    (void)state;
    for (int i = 0; i < 12; i++) {
        int pipes[2];
        char byte;
        pid_t child;

        assert_int_equal(pipe(pipes), 0);
        child = fork();
        assert_true(child >= 0);
        if (!child) {
            rg_engine *e = open_for(&q);
            question next = q;

            (void)!write(pipes[1], "x", 1);
            for (next.which = i;; next.which++)
                (void)ask(e, &next);
        }
        assert_int_equal(read(pipes[0], &byte, 1), 1);
        usleep((useconds_t)(1000 * i));
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, NULL, 0), child);
        close(pipes[0]);
        close(pipes[1]);
        rg_stats s;
        const answer got = ask_once(&q, &s);
        check_same("after a kill", &got, &want);
        assert_int_equal(s.n_prefix_damaged, 0);
        n_found += got.n_cached > 0;
    }
    assert_true(n_found >= 11); /* by the first ask_once at the latest */
}

/* ---- bounds ------------------------------------------------------------------------------------------------------ */

static void files_make_way(void **state)
{
    question q = in(&usual, test_scratch("small"));
    files *f;

    (void)state;
    (void)ask_once(&q, NULL);
    f = files_of(q.folder);
    const uint64_t each = f->bytes / (uint64_t)f->n;
    free(f);
    q.bytes = 20 * each; /* three prompts of six blocks, of which they share three */
    char foreign[512], abandoned[512];
    snprintf(foreign, sizeof foreign, "%s/ab", q.folder);
    (void)mkdir(foreign, 0755);
    snprintf(abandoned, sizeof abandoned, "%s/123456789012345678901234567890-0.kv.tmp-0123", foreign);
    strcat(foreign, "/notes.txt");
    test_write_text(foreign, "of somebody else");
    test_write_text(abandoned, "in halves");
    const struct timespec old[] = { { .tv_sec = 1 }, { .tv_sec = 1 } };
    assert_int_equal(utimensat(AT_FDCWD, abandoned, old, 0), 0);
    rg_engine *reader = open_for(&q);
    for (q.which = 1; q.which < 12; q.which++) {
        const question alone = in(&q, NULL);
        const answer want = ask_once(&alone, NULL), got = ask_once(&q, NULL), beside = ask(reader, &q);

        check_same("in a small folder", &got, &want);
        check_same("beside it", &beside, &want);
        f = files_of(q.folder);
        assert_true(f->bytes <= q.bytes + 100);
        free(f);
    }
    rg_close(reader);
    assert_int_equal(access(foreign, F_OK), 0);
    assert_int_not_equal(access(abandoned, F_OK), 0);
    q.which = 11; /* the latest is there, from its beginning */
    assert_true(ask_once(&q, NULL).n_cached >= 192);
}

static void refused(void **state)
{
    rg_options o = rg_options_default();
    rg_error err = { 0 };

    (void)state;
    o.prefix_bytes = 1 << 30;
    assert_null(rg_open(test_data("llama"), &o, &err));
    assert_non_null(strstr(err.text, "--prefix-cache"));
    o.prefix_folder = test_scratch("refused");
    o.no_prefix_cache = true;
    assert_null(rg_open(test_data("llama"), &o, &err));
    assert_non_null(strstr(err.text, "--no-prefix-cache"));
    o.no_prefix_cache = false;
    o.prefix_bytes = 1000;
    assert_null(rg_open(test_data("llama"), &o, &err));
    assert_non_null(strstr(err.text, "too few"));
    o.prefix_bytes = 0;
    o.prefix_folder = "";
    assert_null(rg_open(test_data("llama"), &o, &err));
    o.prefix_folder = test_data("llama/config.json");
    assert_null(rg_open(test_data("llama"), &o, &err));
    assert_non_null(strstr(err.text, "config.json"));
    o.prefix_folder = "/proc/none/here";
    assert_null(rg_open(test_data("llama"), &o, &err));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(after_a_restart),
        cmocka_unit_test(by_an_engine_beside_it),
        cmocka_unit_test(by_many_at_once),
        cmocka_unit_test(not_by_others),
        cmocka_unit_test(not_by_another_checkpoint),
        cmocka_unit_test(not_after_other_weights),
        cmocka_unit_test(damaged_files),
        cmocka_unit_test(full_disk),
        cmocka_unit_test(killed),
        cmocka_unit_test(files_make_way),
        cmocka_unit_test(refused),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
