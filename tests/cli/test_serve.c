/* test_serve.c -- `ridge serve` as a process: it says where it listens, drains on SIGTERM, ends on the second one, is not
 * taken to be stuck when it was stopped, says so when it is stuck, and comes back after kill -9. */
#define _GNU_SOURCE 1
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "support/command.h"
#include "support/model.h"
#include "support/web.h"

/* A wait that takes longer has failed. */
enum { WATCHDOG_S = TEST_SLOWER > 1 ? 600 : 60 };

typedef struct process {
    pid_t pid;
    int out, port;
} process;

/* With more options, or NULL. */
static void start(process *p, const char *const *more)
{
    const char *argv[24] = { RG_BUILD_DIR "/ridge", "serve", RG_SOURCE_DIR "/models/tales-1m", "--port", "0", "--threads", "1" };
    int pipes[2], n = 7;
    char line[256];
    size_t got = 0;

    for (; more && *more; more++)
        argv[n++] = *more;
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    p->pid = fork();
    if (!p->pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nobody behind */
        dup2(pipes[1], 1);
        execv(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    close(pipes[1]);
    p->out = pipes[0];
    while (got < sizeof line - 1 && read(p->out, line + got, 1) == 1 && line[got] != '\n')
        got++;
    line[got] = 0;
    static const char says[] = "ridge: listening on http://127.0.0.1:";
    if (strncmp(line, says, strlen(says)) != 0)
        fail_msg("it says: '%s'", line);
    p->port = atoi(line + strlen(says));
}

/* Its exit status, within seconds; -1: it had to be killed. */
static int ended(process *p, double seconds)
{
    uint64_t from = rg_now_ns();
    int status = -1;

    while (waitpid(p->pid, &status, WNOHANG) == 0) {
        if (rg_seconds(from, rg_now_ns()) > seconds) {
            kill(p->pid, SIGKILL);
            waitpid(p->pid, &status, 0);
            close(p->out);
            return -1;
        }
        struct timespec t = { 0, 10000000 };
        nanosleep(&t, NULL);
    }
    close(p->out);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Until it takes no more work. */
static void wait_draining(int port)
{
    uint64_t from = rg_now_ns();

    while (test_web_status(port, "/readyz", NULL) != 503)
        assert_true(rg_seconds(from, rg_now_ns()) < WATCHDOG_S);
}

static int open_stream(int port, int n)
{
    char all[512], body[200];
    int fd = test_web_connect(port);

    snprintf(body, sizeof body, "{\"prompt\":\"a\",\"max_tokens\":900,\"ignore_eos\":true,\"stream\":true,\"n\":%d}", n);
    int k = snprintf(all, sizeof all, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s",
                     strlen(body), body);
    assert_true(test_web_send(fd, all, (size_t)k));
    char some[1];
    assert_true(test_web_some(fd, some, 1, WATCHDOG_S) == 1); /* it runs */
    return fd;
}

static char *read_all(int fd)
{
    size_t n = 0, room = 1 << 24;
    char *s = malloc(room);
    long k;

    assert_non_null(s);
    while (n < room - 1 && (k = test_web_some(fd, s + n, room - 1 - n, WATCHDOG_S)) > 0)
        n += (size_t)k;
    s[n] = 0;
    close(fd);
    return s;
}

static void the_first_signal_drains(void **state)
{
    process p;

    (void)state;
    start(&p, NULL);
    int fd = open_stream(p.port, 1);
    kill(p.pid, SIGTERM);
    wait_draining(p.port);
    char *s = read_all(fd);
    assert_non_null(strstr(s, "\"finish_reason\":\"length\""));
    assert_non_null(strstr(s, "data: [DONE]\n\n"));
    free(s);
    assert_int_equal(ended(&p, WATCHDOG_S), 0);
}

static void the_drain_has_an_end(void **state)
{
    static const char *const more[] = { "--drain-timeout", "0.1", NULL };
    process p;

    (void)state;
    start(&p, more);
    int fd = open_stream(p.port, 128);
    kill(p.pid, SIGTERM);
    char *s = read_all(fd);
    char *done = strstr(s, "data: [DONE]\n\n"); /* told in the middle of it: 128 answers of 900 tokens take far longer */
    assert_true(strstr(s, "shutting_down") && done && !strstr(done + 8, "[DONE]"));
    assert_null(strstr(s, "\"finish_reason\":\"length\""));
    free(s);
    assert_int_equal(ended(&p, WATCHDOG_S), 0);
}

static void nap(double s)
{
    struct timespec t = { (time_t)s, (long)((s - (double)(time_t)s) * 1e9) };

    nanosleep(&t, NULL);
}

/* Told that it is over: an error event in the middle of the stream, and one [DONE]. */
static void read_last_words(int fd)
{
    char *s = read_all(fd), *done = strstr(s, "data: [DONE]\n\n");

    assert_non_null(strstr(s, "shutting_down"));
    assert_true(done && !strstr(done + 8, "[DONE]"));
    free(s);
}

/* Stopped for longer than a step may take, it goes on as if nothing had been; while it drains it answers, and takes nothing. */
static void the_second_signal_ends_it(void **state)
{
    const char *const more[] = { "--watchdog", "3", NULL };
    static const char ask[] = "{\"prompt\":\"a\",\"max_tokens\":1}";
    process p;

    (void)state;
    start(&p, more);
    int fd[8];
    for (size_t i = 0; i < RG_LEN(fd); i++)
        fd[i] = open_stream(p.port, 6);
    kill(p.pid, SIGSTOP);
    nap(3.3);
    kill(p.pid, SIGCONT);
    nap(0.1);
    assert_int_equal(test_web_status(p.port, "/readyz", NULL), 200);
    kill(p.pid, SIGTERM);
    wait_draining(p.port);
    assert_int_equal(test_web_status(p.port, "/livez", NULL), 200);
    test_reply r = test_web_ask(p.port, "POST", "/v1/completions", NULL, ask);
    assert_int_equal(r.status, 503);
    assert_true(atoi(test_reply_header(&r, "Retry-After")) >= 1);
    test_reply_free(&r);
    kill(p.pid, SIGTERM);
    for (size_t i = 0; i < RG_LEN(fd); i++)
        read_last_words(fd[i]);
    assert_int_equal(ended(&p, WATCHDOG_S), 0);
}

/* So short a time is less than the first step takes: then it says that it is lost, and a signal ends it as failed. */
static void a_lost_engine_ends_as_failed(void **state)
{
    static const char *const more[] = { "--watchdog", "0.001", "--batch-rows", "8192", NULL };
    process p;
    char *body = malloc(1 << 16);
    size_t n;

    (void)state;
    assert_non_null(body);
    n = (size_t)sprintf(body, "{\"max_tokens\":1,\"prompt\":[");
    for (int i = 0; i < 8000; i++) /* eight prompts */
        n += (size_t)sprintf(body + n, "%s%d", i % 1000 ? "," : i ? "],[" : "[", 5 + i % 97);
    strcpy(body + n, "]]}");
    start(&p, more);
    test_reply r = test_web_ask(p.port, "POST", "/v1/completions", NULL, body);
    assert_int_equal(r.status, 500);
    assert_non_null(strstr(r.body, "engine_fault"));
    test_reply_free(&r);
    assert_int_equal(test_web_status(p.port, "/readyz", NULL), 503);
    assert_int_equal(test_web_status(p.port, "/livez", NULL), 200);
    kill(p.pid, SIGTERM);
    assert_int_equal(ended(&p, WATCHDOG_S), 1);
    free(body);
}

/* A burst is not refused for the time that it will wait: 48 at once with 150 ids each, and no option given. */
static void a_burst_waits(void **state)
{
    char body[2048], all[2304];
    int n = sprintf(body, "{\"max_tokens\":4,\"prompt\":["), fd[48];
    process p;

    (void)state;
    for (int i = 0; i < 150; i++)
        n += sprintf(body + n, "%s%d", i ? "," : "", 5 + i % 97);
    n += sprintf(body + n, "]}");
    n = sprintf(all, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", n, body);
    start(&p, NULL);
    for (size_t i = 0; i < RG_LEN(fd); i++) {
        fd[i] = test_web_connect(p.port);
        assert_true(test_web_send(fd[i], all, (size_t)n));
    }
    for (size_t i = 0; i < RG_LEN(fd); i++) {
        test_reply r = test_web_read(fd[i], WATCHDOG_S);
        assert_int_equal(r.status, 200);
        test_reply_free(&r);
        close(fd[i]);
    }
    kill(p.pid, SIGTERM);
    assert_int_equal(ended(&p, WATCHDOG_S), 0);
}

static void killed_it_comes_back(void **state)
{
    process p;

    (void)state;
    for (int i = 0; i < 3; i++) {
        start(&p, NULL);
        int fd = open_stream(p.port, 4);
        kill(p.pid, SIGKILL);
        assert_int_equal(ended(&p, WATCHDOG_S), 128 + SIGKILL);
        close(fd);
    }
    start(&p, NULL);
    assert_int_equal(test_web_status(p.port, "/health", NULL), 200);
    kill(p.pid, SIGINT);
    assert_int_equal(ended(&p, WATCHDOG_S), 0);
}

/* Weights behind keys are no part of these. */
static void keys_have_weights(void **state)
{
    static const struct {
        const char *given;
        int want;
    } cases[] = { { "x-api-key: one\r\n", 200 }, { "Authorization: Bearer two\r\n", 200 }, { "x-api-key: three\r\n", 200 },
                  { "x-api-key: two weight=2.5\r\n", 401 }, { "x-api-key: weight=2.5\r\n", 401 } };
    const char *path = test_scratch("keys");
    FILE *f = fopen(path, "w");
    process p;

    (void)state;
    assert_non_null(f);
    fputs("# who may ask\none\ntwo  weight=2.5\r\n\nthree\tweight=0.5", f);
    assert_int_equal(fclose(f), 0);
    start(&p, (const char *const[]){ "--api-key-file", path, NULL });
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        test_reply r = test_web_ask(p.port, "POST", "/v1/completions", cases[i].given, "{\"prompt\":\"a\",\"max_tokens\":2}");

        assert_int_equal(r.status, cases[i].want);
        test_reply_free(&r);
    }
    kill(p.pid, SIGTERM);
    assert_int_equal(ended(&p, WATCHDOG_S), 0);
}

static void weights_are_numbers(void **state)
{
    static const char *const lines[] = { "one weight=", "one weight=many", "one weight=0", "one weight=-1", "one weight=1e9",
                                         "one weight=nan", "one weight=2x" };
    char args[400];

    (void)state;
    for (size_t i = 0; i < RG_LEN(lines); i++) {
        const char *path = test_scratch("keys");
        FILE *f = fopen(path, "w");

        assert_non_null(f);
        fprintf(f, "%s\n", lines[i]);
        assert_int_equal(fclose(f), 0);
        snprintf(args, sizeof args, "serve tales-1m --api-key-file %s", path);
        command_refuses(args, 1, "want a number from 0.001 to 1000");
    }
}

/* Lines of the log are JSON where that is asked for, requests among them; an open address without a key is warned of. */
static void the_log_is_json(void **state)
{
    static const char *const more[] = { "--host", "127.0.0.1", "--log-format", "json", "--log-level", "info", NULL };
    static const char *const open_hosts[][5] = { { "--host", "0.0.0.0", "--log-format", "json", NULL },
                                                 { "--host", "::", "--log-format", "JSON", NULL } };
    char path[512], line[4096];
    int n_warnings = 0, n_requests = 0;
    process p;

    (void)state;
    snprintf(path, sizeof path, "%s", test_scratch("log"));
    int kept = dup(2), fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0644);
    dup2(fd, 2);
    start(&p, more);
    dup2(kept, 2);
    close(fd);
    assert_int_equal(test_web_status(p.port, "/no \"such", NULL), 400);
    assert_int_equal(test_web_status(p.port, "/nothing", NULL), 404);
    kill(p.pid, SIGTERM);
    assert_int_equal(ended(&p, WATCHDOG_S), 0);
    FILE *f = fopen(path, "r");
    while (fgets(line, sizeof line, f)) {
        json_t *j = json_loads(line, JSON_REJECT_DUPLICATES, NULL);

        assert_non_null(j);
        assert_non_null(json_string_value(json_object_get(j, "time")));
        assert_non_null(json_string_value(json_object_get(j, "message")));
        assert_string_equal(json_string_value(json_object_get(j, "level")), "info");
        n_requests += json_integer_value(json_object_get(j, "status")) == 404;
        assert_true(!json_object_get(j, "status") || json_string_value(json_object_get(j, "request_id")));
        json_decref(j);
    }
    fclose(f);
    assert_int_equal(n_requests, 1);

    for (size_t i = 0; i < RG_LEN(open_hosts); i++) {
        char args[400];

        snprintf(args, sizeof args, "serve /nonexistent; timeout -s TERM 2 " RG_BUILD_DIR "/ridge serve tales-1m --port 0 "
                 "--threads 1 %s %s %s %s >/dev/null", open_hosts[i][0], open_hosts[i][1], open_hosts[i][2], open_hosts[i][3]);
        command_run(args);
        n_warnings += strstr(command_err, "\"warn\"") && strstr(command_err, "without --api-key");
        snprintf(args + strlen(args), sizeof args - strlen(args), " --api-key k");
        command_run(args);
        assert_null(strstr(command_err, "\"warn\""));
    }
    assert_int_equal(n_warnings, 2);
    command_refuses("serve tales-1m --log-level loud", 2, "'loud' is not one of error, warn, info, debug");
    command_refuses("serve tales-1m --log-format xml", 2, "'xml'");
    command_refuses("serve /nonexistent", 1, "/nonexistent");
}

/* MODEL, with the models of a folder beside it; the folder's own copy of MODEL is no second one. */
static void a_folder_of_models_is_served(void **state)
{
    static const char *const more[] = { "--models", RG_SOURCE_DIR "/models", "--kv-memory", "8M", "--memory", "400M", NULL };
    static const char *const names[] = { "tales-1m", "tales-7m" };
    process p;
    char body[200], want[100];

    (void)state;
    start(&p, more);
    test_reply r = test_web_ask(p.port, "GET", "/v1/models", NULL, NULL);
    for (size_t i = 0; i < RG_LEN(names); i++) {
        snprintf(want, sizeof want, "\"id\":\"%s\"", names[i]);
        char *at = strstr(r.body, want);
        assert_non_null(at);
        assert_null(strstr(at + 1, want));
        at = strstr(at, "\"loaded\":false"); /* what it can do is told before it is opened */
        assert_non_null(at);
        assert_memory_equal(at, "\"loaded\":false,\"capabilities\":[\"completion\"]", 44);
    }
    assert_non_null(strstr(r.body, "\"chat_template\":true"));
    test_reply_free(&r);
    r = test_web_ask(p.port, "GET", "/api/tags", NULL, NULL);
    assert_non_null(strstr(r.body, "\"parameter_size\":\"7."));
    assert_non_null(strstr(r.body, "\"capabilities\":[\"completion\"]"));
    test_reply_free(&r);
    for (size_t i = 0; i < RG_LEN(names); i++) {
        snprintf(body, sizeof body, "{\"model\":\"%s\",\"prompt\":\"Once\",\"max_tokens\":3}", names[i]);
        r = test_web_ask(p.port, "POST", "/v1/completions", NULL, body);
        snprintf(want, sizeof want, "\"model\":\"%s\"", names[i]);
        assert_true(r.status == 200 && strstr(r.body, want));
        test_reply_free(&r);
    }
    kill(p.pid, SIGTERM);
    assert_int_equal(ended(&p, WATCHDOG_S), 0);
    command_refuses("serve tales-1m --models /nonexistent", 1, "there is no such folder");
    command_refuses("serve --models " RG_SOURCE_DIR "/docs", 1, "there is no model in it");
    command_refuses("serve tales-1m --memory 1G", 2, "are for --models");
    command_refuses("serve tales-1m --models " RG_SOURCE_DIR "/models --alias a", 2, "for one model");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_signal_drains),
        cmocka_unit_test(the_drain_has_an_end),
        cmocka_unit_test(the_second_signal_ends_it),
        cmocka_unit_test(a_lost_engine_ends_as_failed),
        cmocka_unit_test(a_burst_waits),
        cmocka_unit_test(killed_it_comes_back),
        cmocka_unit_test(keys_have_weights),
        cmocka_unit_test(weights_are_numbers),
        cmocka_unit_test(the_log_is_json),
        cmocka_unit_test(a_folder_of_models_is_served),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
