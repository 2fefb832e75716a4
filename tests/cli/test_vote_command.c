/* test_vote_command.c -- `ridge run --vote`: of several answers the one is told on which most agree. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "support/command.h"

#define RUN "run " RG_SOURCE_DIR "/models/tales-1m -p 'Once upon a time, there was a little' --seed 4 --ignore-eos --quiet "

enum { N = 24 };

/* What of a text counts, as docs/RUN.md says: small letters, no blanks and full stops around; after: what follows its last
 * occurrence. */
static void bring_down(const char *text, const char *after, char out[256])
{
    const char *from = text;
    size_t n;

    for (const char *at = text; *after && (at = strstr(at, after)); at++)
        from = at + strlen(after);
    while (*from && (isspace((unsigned char)*from) || *from == '.'))
        from++;
    snprintf(out, 256, "%s", from);
    for (n = strlen(out); n && (isspace((unsigned char)out[n - 1]) || out[n - 1] == '.'); n--)
        out[n - 1] = 0;
    for (char *p = out; *p; p++)
        *p = (char)tolower((unsigned char)*p);
}

/* The first of the answers on which most agree; *votes: how many. */
static size_t most_agree(const json_t *choices, const char *after, long long *votes)
{
    size_t best = 0;

    *votes = 0;
    for (size_t i = 0; i < json_array_size(choices); i++) {
        long long same = 0;
        char a[256], b[256];

        bring_down(json_string_value(json_object_get(json_array_get(choices, i), "text")), after, a);
        for (size_t k = 0; k < json_array_size(choices); k++) {
            bring_down(json_string_value(json_object_get(json_array_get(choices, k), "text")), after, b);
            same += !strcmp(a, b);
        }
        if (same > *votes) {
            *votes = same;
            best = i;
        }
    }
    return best;
}

static void the_majority_is_told(void **state)
{
    static const struct {
        int length;
        const char *after, *flag;
    } runs[] = {
        { 1, "", "" },
        { 3, "", "--vote-after ''" },        /* no text: the whole counts */
        { 3, " ", "--vote-after ' '" },      /* the last word */
        { 2, "nobody writes this", "--vote-after 'nobody writes this'" },
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(runs); i++) {
        char args[600];
        long long votes;

        snprintf(args, sizeof args, RUN "-n %d --n %d --json", runs[i].length, N);
        json_t *all = command_json(args);
        const json_t *choices = json_object_get(all, "choices");
        assert_int_equal(json_array_size(choices), N);
        const json_t *want = json_array_get(choices, most_agree(choices, runs[i].after, &votes));
        assert_true(votes > 1 && votes < N); /* else it shows nothing */
        snprintf(args, sizeof args, RUN "-n %d --n %d --json --vote %s", runs[i].length, N, runs[i].flag);
        json_t *told = command_json(args);
        assert_null(json_object_get(told, "choices"));
        assert_int_equal(json_integer_value(json_object_get(told, "votes")), votes);
        assert_true(json_equal(json_object_get(told, "ids"), json_object_get(want, "ids")));
        assert_string_equal(json_string_value(json_object_get(told, "text")),
                            json_string_value(json_object_get(want, "text")));
        /* As text: this answer, and nothing of the others. */
        snprintf(args, sizeof args, RUN "-n %d --n %d --vote %s", runs[i].length, N, runs[i].flag);
        assert_int_equal(command_run(args), 0);
        const char *text = json_string_value(json_object_get(told, "text"));
        assert_int_equal(strncmp(command_out, text, strlen(text)), 0);
        assert_true(strlen(command_out) <= strlen(text) + 1);
        json_decref(told);
        json_decref(all);
    }
}

/* How many agree is said behind the figures. */
static void the_count_is_said(void **state)
{
    (void)state;
    assert_int_equal(command_run("run " RG_SOURCE_DIR "/models/tales-1m -p 'Once upon a' -n 1 --n 6 --seed 3 --ignore-eos "
                                 "--vote --verbose"), 0);
    assert_non_null(strstr(command_err, " of 6 answers agree with it"));
    command_refuses(RUN "--n 4 --vote-after x", 2, "--vote");
    command_refuses(RUN "--vote --best-of 3", 2, "--vote");
    command_refuses(RUN "--vote --search mcts", 2, "--vote");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_majority_is_told),
        cmocka_unit_test(the_count_is_said),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
