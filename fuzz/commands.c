/* commands.c -- many commands of ridge, each in a child that is forked for it, for scripts/attack: under the sanitizers
 * starting a program takes ten times as long as most of what it then does with a small file.
 *
 * Standard input has requests, standard output their answers, both in the machine's byte order:
 *   request   uint32 n, then n bytes: words, each with a NUL behind it: the seconds of a core that it may take, the bytes that
 *             a file may grow to (-1: any), 1 if leaks are to be looked for (which takes as long as the rest), and the command
 *             as in main's argv
 *   answer    int32 what waitpid says, uint32 n, then n bytes: what it printed, standard error as well
 * Its own arguments are a command that it runs first and by itself, so that tables that are made once are there for all
 * children.  Linked with the objects of ridge and --wrap=main. */
#define _GNU_SOURCE 1
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_BYTES = 1 << 16, MOST_WORDS = 64, MOST_OUTPUT = 1 << 20 };

int __real_main(int argc, char **argv);
int __wrap_main(int argc, char **argv);

/* False: the end came first. */
static int read_whole(int fd, void *to, size_t n)
{
    char *at = to;

    while (n) {
        const ssize_t k = read(fd, at, n);
        if (k <= 0)
            return 0;
        at += k;
        n -= (size_t)k;
    }
    return 1;
}

static void write_whole(const void *from, size_t n)
{
    const char *at = from;

    while (n) {
        const ssize_t k = write(STDOUT_FILENO, at, n);
        if (k <= 0)
            exit(1);
        at += k;
        n -= (size_t)k;
    }
}

int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

enum { SECONDS, LIMIT, LEAKS, N_SETTINGS }; /* the words before the command */

/* The child's whole life.  Handlers of exit() are left out, as the sanitizer's take long. */
static void run(int argc, char **argv)
{
    const long long limit = atoll(argv[LIMIT]);
    int status;

    if (limit >= 0) {
        const struct rlimit most = { (rlim_t)limit, (rlim_t)limit };

        signal(SIGXFSZ, SIG_IGN);
        if (setrlimit(RLIMIT_FSIZE, &most) != 0)
            _exit(100);
    }
    const struct rlimit seconds = { (rlim_t)atoi(argv[SECONDS]), (rlim_t)atoi(argv[SECONDS]) };
    if (setrlimit(RLIMIT_CPU, &seconds) != 0)
        _exit(100);
    alarm(10 * (unsigned)seconds.rlim_cur); /* waits for ever: its signal ends the child */
    status = __real_main(argc - N_SETTINGS, argv + N_SETTINGS);
    fflush(NULL);
    if (!strcmp(argv[LEAKS], "1") && __lsan_do_recoverable_leak_check)
        (void)__lsan_do_recoverable_leak_check(); /* it prints what it found */
    _exit(status);
}

static void answer(int argc, char **argv)
{
    static char output[MOST_OUTPUT], rest[4096];
    int out[2], status = 0, null = open("/dev/null", O_RDONLY);
    uint32_t n = 0;
    ssize_t k;

    if (null < 0 || pipe(out) != 0)
        exit(1);
    const pid_t pid = fork();
    if (pid < 0)
        exit(1);
    if (!pid) {
        dup2(null, STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        dup2(out[1], STDERR_FILENO);
        close(null);
        close(out[0]);
        close(out[1]);
        run(argc, argv);
    }
    close(null);
    close(out[1]);
    while ((k = n < MOST_OUTPUT ? read(out[0], output + n, MOST_OUTPUT - n) : read(out[0], rest, sizeof rest)) > 0)
        n += n < MOST_OUTPUT ? (uint32_t)k : 0;
    close(out[0]);
    waitpid(pid, &status, 0);
    write_whole(&(int32_t){ status }, 4);
    write_whole(&n, 4);
    write_whole(output, n);
}

/* False: the command failed. */
static int warm_up(int argc, char **argv)
{
    const int kept = dup(STDOUT_FILENO), null = open("/dev/null", O_WRONLY);

    if (kept < 0 || null < 0 || dup2(null, STDOUT_FILENO) < 0)
        return 0;
    const int status = __real_main(argc, argv);
    fflush(stdout);
    dup2(kept, STDOUT_FILENO);
    close(kept);
    close(null);
    return status == 0;
}

int __wrap_main(int argc, char **argv)
{
    static char words[MOST_BYTES];
    char *word[MOST_WORDS + 1] = { NULL };
    uint32_t n;

    if (argc > 1 && !warm_up(argc - 1, argv + 1))
        return 2;
    while (read_whole(STDIN_FILENO, &n, 4)) {
        int n_words = 0;

        if (n > sizeof words || !read_whole(STDIN_FILENO, words, n) || !n || words[n - 1])
            return 2;
        for (char *at = words; at < words + n && n_words < MOST_WORDS; at += strlen(at) + 1)
            word[n_words++] = at;
        word[n_words] = NULL;
        if (n_words <= N_SETTINGS)
            return 2;
        answer(n_words, word);
    }
    return 0;
}
