/* test_errors.c -- the table of error codes in docs/SERVE.md has what the server's source can answer, and no more.
 *
 * In the source a refusal is a status and a code, one after the other: rg_refuse(e, 400, "invalid_value", ...), or in a table. */
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <glob.h>

#include "base/error.h"
#include "support/test.h"

enum { MOST = 200 };

typedef struct error {
    int status;
    char code[40];
    char openai[40], anthropic[40]; /* "type" */
    bool seen;
} error;

static error coded[MOST], documented[MOST];
static int n_coded, n_documented;
static struct {
    int status;
    char openai[40], anthropic[40];
} types[MOST];
static int n_types;

static void copy(char to[40], const char *text, regmatch_t at)
{
    assert_in_range(at.rm_eo - at.rm_so, 1, 39);
    memcpy(to, text + at.rm_so, (size_t)(at.rm_eo - at.rm_so));
    to[at.rm_eo - at.rm_so] = 0;
}

static void add_coded(int status, const char *text, regmatch_t code)
{
    error e = { .status = status };

    copy(e.code, text, code);
    for (int i = 0; i < n_coded; i++)
        if (coded[i].status == status && !strcmp(coded[i].code, e.code))
            return;
    assert_true(n_coded < MOST);
    coded[n_coded++] = e;
}

/* What text holds that is of this form; take is given the matches. */
static void each_match(const char *text, const char *form, void (*take)(const char *text, regmatch_t *m))
{
    regmatch_t m[6];
    regex_t r;

    assert_int_equal(regcomp(&r, form, REG_EXTENDED), 0);
    for (; !regexec(&r, text, RG_LEN(m), m, 0); text += m[0].rm_eo)
        take(text, m);
    regfree(&r);
}

static void take_refusal(const char *text, regmatch_t *m)
{
    add_coded(atoi(text + m[1].rm_so), text, m[2]);
}

static void take_unavailable(const char *text, regmatch_t *m)
{
    add_coded(503, text, m[1]);
}

static void take_types(const char *text, regmatch_t *m)
{
    assert_true(n_types < MOST);
    types[n_types].status = atoi(text + m[1].rm_so);
    copy(types[n_types].openai, text, m[2]);
    copy(types[n_types++].anthropic, text, m[3]);
}

static void take_row(const char *text, regmatch_t *m)
{
    error e = { .status = atoi(text + m[1].rm_so) };

    copy(e.openai, text, m[2]);
    copy(e.anthropic, text, m[3]);
    copy(e.code, text, m[4]);
    assert_true(n_documented < MOST);
    documented[n_documented++] = e;
}

static void read_source(void)
{
    glob_t files;

    assert_int_equal(glob(RG_SOURCE_DIR "/src/server/*.c", 0, NULL, &files), 0);
    assert_int_equal(glob(RG_SOURCE_DIR "/src/server/*/*.c", GLOB_APPEND, NULL, &files), 0);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        char *s = test_read_text(files.gl_pathv[i]);
        each_match(s, "[a-z], ([45][0-9][0-9]),[ \n]+\"([a-z_]+)\"", take_refusal);
        each_match(s, "\\{ ([45][0-9][0-9]), \"([a-z_]+)\" \\}", take_refusal); /* faults of HTTP */
        each_match(s, "unavailable\\(e, \"([a-z_]+)\"", take_unavailable);
        each_match(s, "\\{ ([45][0-9][0-9]), \"([a-z_]+)\", \"([a-z_]+)\" \\}", take_types);
        free(s);
    }
    globfree(&files);
    assert_in_range(n_coded, 30, MOST);
    assert_in_range(n_types, 10, MOST);
}

static void check_types(const error *e)
{
    const char *openai = "server_error", *anthropic = "api_error";

    for (int i = 0; i < n_types; i++)
        if (types[i].status == e->status) {
            openai = types[i].openai;
            anthropic = types[i].anthropic;
        }
    if (strcmp(e->openai, openai) != 0 || strcmp(e->anthropic, anthropic) != 0)
        fail_msg("%d %s is of type %s and %s, not %s and %s", e->status, e->code, openai, anthropic, e->openai,
                 e->anthropic);
}

static void the_table_is_what_can_be_answered(void **state)
{
    char *s = test_read_text(RG_SOURCE_DIR "/docs/SERVE.md");

    (void)state;
    read_source();
    each_match(s, "\n\\| ([45][0-9][0-9]) \\| `([a-z_]+)` \\| `([a-z_]+)` \\| `([a-z_]+)` \\|", take_row);
    free(s);
    for (int i = 0; i < n_coded; i++) {
        error *found = NULL;
        for (int k = 0; k < n_documented && !found; k++)
            if (documented[k].status == coded[i].status && !strcmp(documented[k].code, coded[i].code))
                found = &documented[k];
        if (!found)
            fail_msg("%d %s is not in docs/SERVE.md", coded[i].status, coded[i].code);
        found->seen = true;
        check_types(found);
    }
    for (int i = 0; i < n_documented; i++)
        if (!documented[i].seen)
            fail_msg("docs/SERVE.md has %d %s once too often: nothing answers it", documented[i].status, documented[i].code);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_is_what_can_be_answered),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
