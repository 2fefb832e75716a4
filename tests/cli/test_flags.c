/* test_flags.c -- the flags in docs are those of the commands: docs/RUN.md has every flag of `run` and `chat`, docs/SERVE.md
 * every flag of `serve`, and neither has one that no command takes. */
#include "support/command.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_of_flag(char c)
{
    return c == '-' || isalnum((unsigned char)c);
}

/* The next flag in a text: `--` and a word, or `-` and a letter, with nothing of a word before it.  NULL: none. */
static const char *next_flag(const char *text, const char *from, size_t *n)
{
    for (const char *s = from; *s; s++) {
        if (*s != '-' || (s > text && (is_of_flag(s[-1]) || s[-1] == '/' || s[-1] == '.')))
            continue;
        for (*n = 1; is_of_flag(s[*n]); ++*n)
            ;
        if ((s[1] == '-' && *n > 3 && islower((unsigned char)s[2])) || (*n == 2 && islower((unsigned char)s[1])))
            return s;
        s += *n - 1;
    }
    return NULL;
}

static bool has_flag(const char *text, const char *flag, size_t n)
{
    size_t m;

    for (const char *s = text; (s = next_flag(text, s, &m)); s += m)
        if (m == n && !memcmp(s, flag, n))
            return true;
    return false;
}

/* Every flag of a command's options is in the text. */
static void all_are_in(const char *command, const char *text, const char *name)
{
    char args[64];
    int n_flags = 0;

    snprintf(args, sizeof args, "%s --help", command);
    assert_int_equal(command_run(args), 0);
    for (const char *line = command_out; line; line = strchr(line, '\n')) {
        size_t n;
        const char *flag = line += *line == '\n';

        if (strncmp(line, "  -", 3) != 0)
            continue;
        flag = next_flag(command_out, line, &n);
        n_flags++;
        if (!has_flag(text, flag, n))
            fail_msg("%s has no %.*s of `ridge %s`", name, (int)n, flag, command);
    }
    assert_true(n_flags > 20);
}

/* Every flag in a text is one of these commands', or one of the others that the text names. */
static void all_are_taken(const char *text, const char *name, const char *const *commands, const char *others)
{
    char *help = calloc(1, 1 << 20), args[64];
    size_t n;

    assert_non_null(help);
    for (; *commands; commands++) {
        snprintf(args, sizeof args, "%s --help", *commands);
        assert_int_equal(command_run(args), 0);
        assert_true(strlen(help) + strlen(command_out) < 1 << 20);
        strcat(help, command_out);
    }
    for (const char *s = text; (s = next_flag(text, s, &n)); s += n)
        if (!has_flag(help, s, n) && !has_flag(others, s, n))
            fail_msg("%s has %.*s, which no command takes", name, (int)n, s);
    free(help);
}

static void docs_have_the_flags_there_are(void **state)
{
    char *run = test_read_text(RG_SOURCE_DIR "/docs/RUN.md"), *serve = test_read_text(RG_SOURCE_DIR "/docs/SERVE.md");

    (void)state;
    all_are_in("run", run, "docs/RUN.md");
    all_are_in("chat", run, "docs/RUN.md");
    all_are_in("batch", run, "docs/RUN.md");
    all_are_in("serve", serve, "docs/SERVE.md");
    all_are_taken(run, "docs/RUN.md",
                  (const char *const[]){ "run", "chat", "train", "distill", "shrink", "tokenizer", "grad", "batch", "eval",
                                         "tour", NULL }, "ray_batch.py --work --workers --lines");
    all_are_taken(serve, "docs/SERVE.md", (const char *const[]){ "serve", "train", NULL },
                  "curl -d, kill -9, scripts/bench-serve --beside --rows --diffusion");
    free(run);
    free(serve);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(docs_have_the_flags_there_are),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
