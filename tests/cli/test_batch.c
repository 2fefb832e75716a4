/* test_batch.c -- a batch on a `ridge serve` that is killed again and again: every line is answered once, and as if
 * nothing had happened. */
#define _GNU_SOURCE 1
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/batch.h"
#include "support/test.h"

enum { LINES = 200, KILLS = 7 };

typedef struct process {
    pid_t pid;
    int port;
} process;

static char dir[64];

/* Files of more than max_file bytes cannot be written by it; 0: they can. */
static process start(rlim_t max_file)
{
    const char *argv[] = { RG_BUILD_DIR "/ridge", "serve", RG_SOURCE_DIR "/models/tales-1m", "--port", "0", "--threads",
                           "1", "--ctx", "128", "--kv-memory", "32M", "--batch-dir", dir, "--step-ms", "0", "--pace", "0",
                           "--max-wait", "0", NULL }; /* no limit that the machine would be measured for */
    static const char says[] = "ridge: listening on http://127.0.0.1:";
    process p;
    int pipes[2];
    char line[256];
    size_t got = 0;

    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    p.pid = fork();
    if (!p.pid) {
        if (max_file) {
            struct rlimit most = { max_file, max_file };
            signal(SIGXFSZ, SIG_IGN);
            setrlimit(RLIMIT_FSIZE, &most);
        }
        dup2(pipes[1], 1);
        execv(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    close(pipes[1]);
    while (got < sizeof line - 1 && read(pipes[0], line + got, 1) == 1 && line[got] != '\n')
        got++;
    line[got] = 0;
    close(pipes[0]);
    if (strncmp(line, says, strlen(says)) != 0)
        fail_msg("it says: '%s'", line);
    p.port = atoi(line + strlen(says));
    return p;
}

static void end(process *p, int signal_number)
{
    int status;

    kill(p->pid, signal_number);
    waitpid(p->pid, &status, 0);
}

static void nap(double s)
{
    struct timespec t = { (time_t)s, (long)((s - (double)(time_t)s) * 1e9) };

    nanosleep(&t, NULL);
}

/* Most are answered, every seventh is refused by its endpoint. */
static char *make_lines(void)
{
    char *text = malloc((size_t)LINES * 200 + 1), *to = text;

    assert_non_null(text);
    for (int i = 0; i < LINES; i++)
        to += sprintf(to,
                      "{\"custom_id\":\"line %d\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":"
                      "\"Once upon %d\",\"max_tokens\":%d,\"temperature\":%s,\"seed\":%d}}\n",
                      i, i, 6 + i % 20, i % 7 ? "1.0" : "-1", i);
    return text;
}

static void remove_dir(void)
{
    static const char *const names[] = { "batches.db", "batches.db-wal" };
    char path[128];

    for (size_t i = 0; i < RG_LEN(names); i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        unlink(path);
    }
    rmdir(dir);
}

static void make_dir(void)
{
    strcpy(dir, "/tmp/ridge-batch-XXXXXX");
    assert_non_null(mkdtemp(dir));
}

/* How many lines are done after a run of the batch with so many kills; their texts. */
static json_t *run_batch(int kills, uint64_t seed)
{
    rg_rng rng = { .seed = seed };
    char file[64], id[64], path[128], *lines = make_lines();
    process p;
    json_t *v, *texts = json_object();
    long long before = 0;

    make_dir();
    p = start(0);
    test_upload(p.port, NULL, lines, file);
    v = test_batch_new(p.port, NULL, file, "/v1/completions");
    snprintf(id, sizeof id, "%s", test_text(v, "id"));
    json_decref(v);
    snprintf(path, sizeof path, "/v1/batches/%s", id);
    for (int k = 0; k < kills; k++) {
        nap((double)rg_rng_below(&rng, 120) / 1000.0);
        end(&p, SIGKILL);
        p = start(0);
        v = test_ask_json(p.port, "GET", path, NULL, NULL, 200);
        assert_true(test_count(v, "completed") + test_count(v, "failed") >= before); /* nothing is lost */
        before = test_count(v, "completed") + test_count(v, "failed");
        json_decref(v);
    }
    v = test_batch_wait(p.port, NULL, id, "completed", 60 * TEST_SLOWER);
    assert_int_equal(test_count(v, "total"), LINES);
    assert_int_equal(test_count(v, "failed"), (LINES + 6) / 7);
    assert_int_equal(test_count(v, "completed"), LINES - (LINES + 6) / 7);
    json_t *good = test_answers(p.port, NULL, test_text(v, "output_file_id"));
    json_t *bad = test_answers(p.port, NULL, test_text(v, "error_file_id"));
    for (int i = 0; i < LINES; i++) {
        char name[32];
        snprintf(name, sizeof name, "line %d", i);
        const json_t *line = json_object_get(i % 7 ? good : bad, name);
        assert_non_null(line);
        assert_int_equal(json_integer_value(json_object_get(json_object_get(line, "response"), "status_code")),
                         i % 7 ? 200 : 400);
        if (i % 7)
            json_object_set_new(texts, name, json_string(test_answer_text(line)));
    }
    json_decref(good);
    json_decref(bad);
    json_decref(v);
    end(&p, SIGTERM);
    remove_dir();
    free(lines);
    return texts;
}

static void kills_lose_and_double_nothing(void **state)
{
    (void)state;
    json_t *whole = run_batch(0, 0), *killed = run_batch(KILLS, test_seed);

    assert_int_equal(json_object_size(whole), LINES - (LINES + 6) / 7);
    assert_true(json_equal(whole, killed));
    json_decref(whole);
    json_decref(killed);
}

/* The disk is full in the middle: the batch stays as it is, the server goes on, and with room again it is finished. */
static void a_full_disk_loses_nothing(void **state)
{
    char file[64], id[64], path[128], *lines = make_lines();
    process p;
    json_t *v;
    size_t n;

    (void)state;
    make_dir();
    p = start(300 << 10);
    test_upload(p.port, NULL, lines, file);
    v = test_batch_new(p.port, NULL, file, "/v1/completions");
    snprintf(id, sizeof id, "%s", test_text(v, "id"));
    json_decref(v);
    char *large = calloc(1, 400 << 10), *form = test_form("batch", "x", large, 400 << 10, &n);
    test_reply r = test_post_form(p.port, NULL, form, n);
    assert_int_equal(r.status, 507);
    test_reply_free(&r);
    nap(0.7);
    snprintf(path, sizeof path, "/v1/batches/%s", id);
    v = test_ask_json(p.port, "GET", path, NULL, NULL, 200);
    assert_string_equal(test_text(v, "status"), "in_progress");
    json_decref(v);
    json_decref(test_web_json(p.port, "/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":2}", 200));
    end(&p, SIGKILL);
    p = start(0);
    v = test_batch_wait(p.port, NULL, id, "completed", 60 * TEST_SLOWER);
    assert_int_equal(test_count(v, "completed") + test_count(v, "failed"), LINES);
    json_t *good = test_answers(p.port, NULL, test_text(v, "output_file_id"));
    assert_int_equal(json_object_size(good), test_count(v, "completed"));
    json_decref(good);
    json_decref(v);
    end(&p, SIGTERM);
    remove_dir();
    free(large);
    free(form);
    free(lines);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kills_lose_and_double_nothing),
        cmocka_unit_test(a_full_disk_loses_nothing),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
