/* test_sandbox.c -- after --sandbox no thread opens another file, runs a program, makes a connection or a process, or maps
 * memory as executable; and the server serves all the same. */
#define _GNU_SOURCE 1
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/sandbox.h"
#include "support/command.h"
#include "support/model.h"
#include "support/web.h"

enum { WATCHDOG_S = 60 };

static bool kernel_has_landlock(void)
{
    return syscall(SYS_landlock_create_ruleset, NULL, 0, 1) >= 1;
}

static bool can_open(const char *folder, const char *name, int flags)
{
    char path[600];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, flags, 0644);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* What a thread finds; each is checked by a number, so that a failure tells which. */
static int look_around(const char *root)
{
    char *const none[] = { NULL };
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    char from[600], to[600];

    if (!can_open(root, "read/file", O_RDONLY) || can_open(root, "read/file", O_WRONLY) ||
        can_open(root, "read/new", O_WRONLY | O_CREAT))
        return 1;
    if (!can_open(root, "write/file", O_WRONLY) || !can_open(root, "write/new", O_WRONLY | O_CREAT | O_TRUNC))
        return 2;
    if (can_open(root, "other/file", O_RDONLY) || can_open(root, "read/../other/file", O_RDONLY) ||
        can_open("/etc", "passwd", O_RDONLY) || can_open("/proc/1", "environ", O_RDONLY))
        return 3;
    if (!can_open(root, "read/link", O_RDONLY)) /* it was there before */
        return 4;
    snprintf(from, sizeof from, "%s/write/new", root);
    snprintf(to, sizeof to, "%s/other/new", root);
    if (rename(from, to) == 0)
        return 5;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof at) == 0)
        return 6;
    if (fd >= 0 || errno != EPERM)
        return 7;
    if (execve("/bin/true", none, none) != -1 || errno != EPERM)
        return 8;
    pid_t child = fork();
    if (!child)
        _exit(0);
    if (child > 0 || errno != EPERM)
        return 9;
    if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED)
        return 10;
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED || mprotect(page, 4096, PROT_READ | PROT_EXEC) == 0)
        return 11;
    if (kill(getppid(), 0) == 0 || prctl(PR_SET_DUMPABLE, 1) == 0)
        return 12;
    return 0;
}

static atomic_int phase; /* 1: look around */
static const char *root_path;

static void *wait_and_look(void *arg)
{
    (void)arg;
    while (!atomic_load(&phase))
        usleep(1000);
    return (void *)(uintptr_t)look_around(root_path);
}

/* In a process of its own: threads from before, the one that asks, and one that starts later. */
static int in_the_child(const char *root)
{
    cli_places_left left = { .n = 0 };
    pthread_t before[4], after;
    void *found;
    char read_path[500], write_path[500];
    rg_error err = { 0 };
    int bad = 0;

    root_path = root;
    for (int i = 0; i < 4; i++)
        pthread_create(&before[i], NULL, wait_and_look, NULL);
    snprintf(read_path, sizeof read_path, "%s/read", root);
    snprintf(write_path, sizeof write_path, "%s/write", root);
    cli_leave_place(&left, read_path, false);
    cli_leave_place(&left, write_path, true);
    cli_leave_place(&left, NULL, true);
    cli_leave_place(&left, "/nonexistent", true);
    if (!cli_sandbox_enter(&left, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 100;
    }
    atomic_store(&phase, 1);
    for (int i = 0; i < 4; i++) {
        pthread_join(before[i], &found);
        bad = bad ? bad : (int)(uintptr_t)found;
    }
    if (pthread_create(&after, NULL, wait_and_look, NULL))
        return 101;
    pthread_join(after, &found);
    bad = bad ? bad : (int)(uintptr_t)found;
    return bad ? bad : look_around(root);
}

static void no_thread_reaches_more(void **state)
{
    static const char *const folders[] = { "", "/read", "/write", "/other" };
    char path[600], to[600], root[500];
    int status;

    (void)state;
    if (!kernel_has_landlock())
        skip();
    snprintf(root, sizeof root, "%s", test_scratch("box"));
    for (size_t i = 0; i < RG_LEN(folders); i++) {
        snprintf(path, sizeof path, "%s%s", root, folders[i]);
        mkdir(path, 0755);
        strcat(path, "/file");
        test_write_text(path, "text");
    }
    snprintf(to, sizeof to, "%s/file", root);
    snprintf(path, sizeof path, "%s/read/link", root);
    assert_int_equal(symlink(to, path), 0);
    pid_t child = fork();
    if (!child) {
        alarm(WATCHDOG_S);
        _exit(in_the_child(root));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- the server ---- */

typedef struct process {
    pid_t pid;
    int out, port;
} process;

static void start(process *p, const char *const *args)
{
    const char *argv[24] = { RG_BUILD_DIR "/ridge", "serve", "--port", "0", "--threads", "2" };
    int pipes[2], n = 6;
    char line[512];
    size_t got = 0;

    for (; *args; args++)
        argv[n++] = *args;
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    p->pid = fork();
    if (!p->pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(pipes[1], 1);
        execv(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    close(pipes[1]);
    p->out = pipes[0];
    while (got < sizeof line - 1 && read(p->out, line + got, 1) == 1 && line[got] != '\n')
        got++;
    line[got] = 0;
    const char *colon = strrchr(line, ':');
    if (!colon || strncmp(line, "ridge: listening on ", 20) != 0)
        fail_msg("it says: '%s'", line);
    p->port = atoi(colon + 1);
}

static void stop(process *p)
{
    int status;

    kill(p->pid, SIGTERM);
    assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
    close(p->out);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* "NAME:\tvalue" of every thread is that. */
static void every_thread_has(const process *p, const char *name, const char *value)
{
    char path[300];
    DIR *d;
    int n = 0;

    snprintf(path, sizeof path, "/proc/%d/task", (int)p->pid);
    d = opendir(path);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        char line[256], want[100];
        bool found = false;

        snprintf(path, sizeof path, "/proc/%d/task/%.20s/status", (int)p->pid, e->d_name);
        FILE *f = e->d_name[0] == '.' ? NULL : fopen(path, "r");
        snprintf(want, sizeof want, "%s:\t%s\n", name, value);
        while (f && fgets(line, sizeof line, f))
            found = found || !strcmp(line, want);
        assert_true(!f || found);
        n += f != NULL;
        if (f)
            fclose(f);
    }
    closedir(d);
    assert_true(n > 3);
}

static void it_serves_every_kind(void **state)
{
    static const struct {
        const char *path, *body;
    } asks[] = {
        { "/v1/completions", "{\"prompt\": \"Once\", \"max_tokens\": 9, \"n\": 3, \"logprobs\": 2}" },
        { "/v1/completions", "{\"prompt\": \"Once\", \"max_tokens\": 9, \"stream\": true}" },
        { "/v1/chat/completions", "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"max_tokens\": 9}" },
        { "/v1/chat/completions",
          "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"max_tokens\": 40, \"response_format\": "
          "{\"type\": \"json_schema\", \"json_schema\": {\"name\": \"a\", \"schema\": {\"type\": \"object\", "
          "\"properties\": {\"a\": {\"type\": \"integer\"}}}}}}" },
        { "/v1/messages", "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"max_tokens\": 9}" },
        { "/v1/responses", "{\"input\": \"Hi\", \"max_output_tokens\": 16}" },
        { "/v1/embeddings", "{\"input\": \"Hi\"}" },
        { "/tokenize", "{\"prompt\": \"Hi\"}" },
        { "/api/chat", "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"stream\": false, \"options\": "
                       "{\"num_predict\": 5}}" },
    };
    static const char *const gets[] = { "/", "/v1/models", "/metrics", "/health", "/readyz" };
    char batches[500], store[500];
    process p;

    (void)state;
    if (!kernel_has_landlock())
        skip();
    snprintf(batches, sizeof batches, "%s", test_scratch("batches"));
    snprintf(store, sizeof store, "%s", test_scratch("store"));
    mkdir(store, 0755);
    start(&p, (const char *const[]){ RG_SOURCE_DIR "/models/tales-1m", "--sandbox", "--batch-dir", batches, "--store",
                                     store, NULL });
    for (size_t i = 0; i < RG_LEN(asks); i++)
        if (test_web_status(p.port, asks[i].path, asks[i].body) != 200)
            fail_msg("%s %s is not answered", asks[i].path, asks[i].body);
    for (size_t i = 0; i < RG_LEN(gets); i++)
        if (test_web_status(p.port, gets[i], NULL) != 200)
            fail_msg("%s is not answered", gets[i]);
    every_thread_has(&p, "Seccomp", "2");
    every_thread_has(&p, "NoNewPrivs", "1");
    stop(&p);
}

/* A model that is opened while the server runs: only where the folder that was named has it. */
static void only_named_folders_are_opened(void **state)
{
    static const char *const ways[][2] = { { "--sandbox", NULL }, { NULL, NULL } };
    static const char ask[] = "{\"model\": \"%s\", \"prompt\": \"Once\", \"max_tokens\": 3}";
    char folder[400], path[600], outside[600], body[200];
    process p;

    (void)state;
    if (!kernel_has_landlock())
        skip();
    for (size_t way = 0; way < RG_LEN(ways); way++) {
        snprintf(folder, sizeof folder, "%s", test_scratch(way ? "plain" : "boxed"));
        mkdir(folder, 0755);
        snprintf(path, sizeof path, "%s/inside.gguf", folder);
        test_copy_file(RG_TEST_DATA "/stories260K.gguf", path, NULL, NULL);
        snprintf(path, sizeof path, "%s/moved.gguf", folder);
        test_copy_file(RG_TEST_DATA "/stories260K.gguf", path, NULL, NULL);
        start(&p, (const char *const[]){ "--models", folder, ways[way][0], NULL });
        snprintf(body, sizeof body, ask, "inside.gguf");
        assert_int_equal(test_web_status(p.port, "/v1/completions", body), 200);
        /* Somebody puts a link to another file in its place. */
        snprintf(outside, sizeof outside, "%s", test_scratch("outside.gguf"));
        test_copy_file(RG_TEST_DATA "/stories260K.gguf", outside, NULL, NULL);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(symlink(outside, path), 0);
        snprintf(body, sizeof body, ask, "moved.gguf");
        int status = test_web_status(p.port, "/v1/completions", body);
        assert_true(ways[way][0] ? status >= 500 : status == 200);
        stop(&p);
    }
}

static void root_becomes_a_user(void **state)
{
    process p;

    (void)state;
    command_refuses("serve tales-1m --user nosuchuser", 2, "nosuchuser");
    if (getuid())
        command_refuses("serve tales-1m --user 1", 2, "only root");
    else
        command_refuses("serve tales-1m --user root", 2, "is root itself");
    pid_t child = getuid() ? -1 : fork();
    if (!child) {
        bool reads = !setgid(65534) && !setuid(65534) && !access(RG_SOURCE_DIR "/models/tales-1m/config.json", R_OK) &&
                     !access(RG_BUILD_DIR "/ridge", X_OK);
        _exit(reads ? 0 : 1);
    }
    int status = 1;
    if (child > 0)
        waitpid(child, &status, 0);
    if (status)
        return; /* no root, or that user could read no model here */
    start(&p, (const char *const[]){ RG_SOURCE_DIR "/models/tales-1m", "--user", "65534", NULL });
    every_thread_has(&p, "Uid", "65534\t65534\t65534\t65534");
    every_thread_has(&p, "CapEff", "0000000000000000");
    every_thread_has(&p, "CapPrm", "0000000000000000");
    assert_int_equal(test_web_status(p.port, "/v1/completions", "{\"prompt\": \"Once\", \"max_tokens\": 3}"), 200);
    stop(&p);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_thread_reaches_more),
        cmocka_unit_test(it_serves_every_kind),
        cmocka_unit_test(only_named_folders_are_opened),
        cmocka_unit_test(root_becomes_a_user),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests_name("sandbox", tests, NULL, NULL);
}
