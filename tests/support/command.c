/* command.c -- see command.h. */
#include "support/command.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

char command_out[1 << 22], command_err[4096];

/* All that comes, as much of it as there is room for. */
static void read_all(FILE *f, char *to, size_t room)
{
    char sink[4096];
    size_t n = 0, got;

    while ((got = n + 1 < room ? fread(to + n, 1, room - 1 - n, f) : fread(sink, 1, sizeof sink, f)) > 0)
        n += n + 1 < room ? got : 0;
    to[n] = 0;
}

int command_run(const char *args)
{
    char command[8192], path[256];

    snprintf(path, sizeof path, "%s/test_command.%d.err", RG_BUILD_DIR, (int)getpid());
    snprintf(command, sizeof command, "%s/ridge </dev/null %s 2>%s", RG_BUILD_DIR, args, path); /* args may say another */
    FILE *p = popen(command, "r");
    assert_non_null(p);
    read_all(p, command_out, sizeof command_out);
    int status = pclose(p);
    FILE *e = fopen(path, "r");
    assert_non_null(e);
    read_all(e, command_err, sizeof command_err);
    fclose(e);
    unlink(path);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

json_t *command_json(const char *args)
{
    json_error_t why;
    int status = command_run(args);

    if (status)
        print_error("ridge %s: %s", args, command_err);
    assert_int_equal(status, 0);
    json_t *j = json_loads(command_out, JSON_REJECT_DUPLICATES, &why);
    assert_non_null(j);
    return j;
}

void command_refuses(const char *args, int status, const char *about)
{
    const char *err = command_err;

    if (command_run(args) != status || strncmp(err, "ridge: ", 7) || !strstr(err, about) ||
        strchr(err, '\n') != err + strlen(err) - 1) {
        print_error("ridge %s: %s", args, err);
        fail();
    }
}
