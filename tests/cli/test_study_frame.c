/* test_study_frame.c -- what all studies do alike, by one that measures nothing: going on after Ctrl-C at any row, lines of
 * other command lines, files that are damaged or foreign, values of each kind in CSV, JSON and table. */
#include "cli/study/study.h"

#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "support/model.h"

enum { MODEL, SIZE, FLAVOUR, RATIO, NOTHING, LARGE, NOTE, N_COLUMNS };
enum { SIZES = 3, FLAVOURS = 2, ROWS = SIZES * FLAVOURS };

static const study_column columns[] = {
    [MODEL] = { "model", STUDY_TEXT, .key = true, .json = "model", .head = "model", .width = 10 },
    [SIZE] = { "size", STUDY_INT, .key = true, .json = "size", .head = "size", .width = 6, .unit = " %" },
    [FLAVOUR] = { "flavour", STUDY_TEXT, .key = true },
    [RATIO] = { "ratio", STUDY_REAL, .format = "%.17g", .json = "percent", .json_scale = 100, .head = "ratio",
                .width = 9, .digits = 2, .scale = 1000, .unit = " ms" },
    [NOTHING] = { "nothing", STUDY_REAL, .format = "%.3f", .json = "nothing", .head = "nothing", .width = 7 },
    [LARGE] = { "how", STUDY_BOOL, .no_yes = { "small", "large" }, .json = "large", .head = "", .width = 5 },
    [NOTE] = { "note", STUDY_TEXT, .json = "note", .head = "note", .width = 12 },
};

static const rg_lines_page page = { .title = "Nothing", .note = "", .n_charts = 1, .charts = { { "x", "x", "y" } } };

static int32_t seed;        /* of what is measured */
static int n_measured;      /* calls of measure */
static int interrupted_at;  /* the call during which Ctrl-C comes, */
static bool then_fails;     /*   and what measure then says; */
static int fails_at;        /* the call that fails; 0: none */

static const cli_option options[] = { { "--seed", CLI_INT, &seed, "N", "another result" }, { NULL } };

static bool plan(const study_run *run, const study_model *m, rg_error *err)
{
    static const char *const flavours[FLAVOURS] = { "plain", "with, comma" };

    for (int i = 0; i < ROWS; i++) {
        study_value *v = study_add_row(run, m, err);

        if (!v)
            return false;
        v[MODEL].text = m->given;
        v[SIZE].number = 10 * (i / FLAVOURS + 1);
        v[FLAVOUR].text = flavours[i % FLAVOURS];
    }
    return true;
}

static bool measure(const study_run *run, const study_model *m, study_value *v, rg_error *err)
{
    (void)run;
    n_measured++;
    v[NOTE].text = strchr(v[FLAVOUR].text, ',') ? "a \"note\",\nof two lines" : "";
    v[LARGE].number = v[SIZE].number > 15;
    v[RATIO].number = -1; /* what is not done yet shows itself */
    if (n_measured == interrupted_at) {
        raise(SIGINT);
        return !then_fails || rg_fail(err, RG_E_IO, "stopped");
    }
    if (n_measured == fails_at)
        return rg_fail(err, RG_E_IO, "%s: cannot be measured", m->given);
    v[RATIO].number = (1 + seed + strlen(m->name)) / v[SIZE].number / 3;
    return true;
}

static void draw(study_picture *p, const study_model *m, const study_value *v)
{
    study_point(p, 0, m->name, v[FLAVOUR].text, (rg_lines_point){ 100 - v[SIZE].number, v[RATIO].number, true });
}

static const study fake = {
    .command = { .name = "study fake", .arguments = "MODEL...", .summary = "nothing", .n_positional = 4 },
    .where = "nowhere", .options = options, .columns = columns, .n_columns = N_COLUMNS, .page = &page, .plan = plan,
    .measure = measure, .draw = draw,
};

/* ---- running it -------------------------------------------------------------------------------------------------- */

static char *out; /* what the last run printed */

/* `study fake ARGS` (words, of which none has a space): its exit status. */
static int run(const char *args)
{
    char words[1024], *argv[32] = { "fake" };
    int argc = 1, kept = dup(STDOUT_FILENO), status;
    const char *path = test_scratch("frame.out");
    rg_error err = { 0 };
    size_t n;

    snprintf(words, sizeof words, "%s", args);
    for (char *w = strtok(words, " "); w; w = strtok(NULL, " "))
        argv[argc++] = w;
    fflush(stdout);
    assert_non_null(freopen(path, "w", stdout));
    n_measured = 0;
    seed = 0;
    status = study_main(&fake, argc, argv);
    fflush(stdout);
    assert_true(dup2(kept, STDOUT_FILENO) >= 0);
    close(kept);
    rg_free(out);
    out = rg_file_slurp(path, 1 << 20, &n, &err);
    assert_ok(out, err);
    interrupted_at = fails_at = 0;
    cli_interrupt_clear();
    return status;
}

static const char *path_of(const char *name)
{
    static char path[4][256];
    static int k;

    k = (k + 1) % 4;
    snprintf(path[k], sizeof path[k], "%s", test_scratch(name));
    return path[k];
}

static void assert_same_file(const char *a, const char *b)
{
    char *x = test_read_text(a), *y = test_read_text(b);

    assert_string_equal(x, y);
    free(x);
    free(y);
}

/* Rows of the JSON that the last run printed; *kept: how many it says were kept.  json_decref the whole. */
static json_t *rows_of(json_t **whole, int *kept)
{
    *whole = json_loads(out, 0, NULL);
    assert_non_null(*whole);
    *kept = (int)json_integer_value(json_object_get(*whole, "kept"));
    return json_object_get(*whole, "rows");
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

/* Ctrl-C during any row: the rows before it are in the file, whole, and the next run measures the others and no more. */
static void goes_on_after_ctrl_c(void **state)
{
    const char *whole = path_of("whole.csv"), *csv = path_of("cut.csv");
    const int n = 2 * ROWS;
    char args[600];
    json_t *j;
    int kept;

    (void)state;
    snprintf(args, sizeof args, "a \"b\",c --csv %s --svg %s.svg", whole, whole);
    assert_int_equal(run(args), 0);
    assert_int_equal(n_measured, n);
    for (int at = 1; at <= n; at++) {
        unlink(csv);
        snprintf(args, sizeof args, "a \"b\",c --csv %s --json", csv);
        interrupted_at = at;
        then_fails = at % 2;
        assert_int_equal(run(args), 0);
        assert_int_equal(n_measured, at);
        assert_int_equal(json_array_size(rows_of(&j, &kept)), at - 1);
        json_decref(j);
        snprintf(args, sizeof args, "a \"b\",c --resume --csv %s --svg %s.svg --json", csv, csv);
        assert_int_equal(run(args), 0);
        assert_int_equal(n_measured, n - (at - 1));
        assert_int_equal(json_array_size(rows_of(&j, &kept)), n);
        assert_int_equal(kept, at - 1);
        json_decref(j);
        assert_same_file(csv, whole);
        char other[300];
        snprintf(args, sizeof args, "%s.svg", csv);
        snprintf(other, sizeof other, "%s.svg", whole);
        assert_same_file(args, other);
    }
    snprintf(args, sizeof args, "a \"b\",c --resume --csv %s", csv);
    assert_int_equal(run(args), 0);
    assert_int_equal(n_measured, 0);
    /* A row that is gone from among them is measured again, alone. */
    char *text = test_read_text(csv), *gone = strstr(text, "a,20,plain"), *behind = strchr(gone, '\n') + 1;
    memmove(gone, behind, strlen(behind) + 1);
    test_write_text(csv, text);
    free(text);
    assert_int_equal(run(args), 0);
    assert_int_equal(n_measured, 1);
    assert_same_file(csv, whole);
    /* Points of a line are in the picture by rising x, though the rows are not. */
    snprintf(args, sizeof args, "%s.svg", whole);
    text = test_read_text(args);
    assert_true(strstr(text, "<title>70:") && strstr(text, "<title>70:") < strstr(text, "<title>80:"));
    free(text);
}

/* Without --resume all rows are made anew; the file's rows are kept as they are with it. */
static void only_resume_keeps(void **state)
{
    const char *csv = path_of("again.csv"), *first = path_of("first.csv");
    char args[600];

    (void)state;
    snprintf(args, sizeof args, "a --csv %s", csv);
    assert_int_equal(run(args), 0);
    snprintf(args, sizeof args, "a --csv %s", first);
    assert_int_equal(run(args), 0);
    snprintf(args, sizeof args, "a --seed 7 --resume --csv %s", csv);
    assert_int_equal(run(args), 0);
    assert_same_file(csv, first);
    snprintf(args, sizeof args, "a --seed 7 --csv %s", csv);
    assert_int_equal(run(args), 0);
    assert_int_equal(n_measured, ROWS);
    char *text = test_read_text(csv), *was = test_read_text(first);
    assert_string_not_equal(text, was);
    free(text);
    free(was);
}

/* Lines that this command line does not name stay in the file, and are neither printed nor measured. */
static void other_rows_stay(void **state)
{
    const char *csv = path_of("others.csv");
    char args[600];
    json_t *j;
    int kept;

    (void)state;
    unlink(csv);
    snprintf(args, sizeof args, "b,b --csv %s", csv);
    assert_int_equal(run(args), 0);
    char *b = test_read_text(csv);
    snprintf(args, sizeof args, "a --resume --csv %s --json", csv);
    assert_int_equal(run(args), 0);
    assert_int_equal(n_measured, ROWS);
    json_t *rows = rows_of(&j, &kept);
    assert_int_equal(json_array_size(rows), ROWS);
    assert_string_equal(json_string_value(json_object_get(json_array_get(rows, 0), "model")), "a");
    json_decref(j);
    char *both = test_read_text(csv);
    assert_true(!strncmp(both, b, strlen(b)) && strlen(both) > strlen(b));
    free(both);
    free(b);
    snprintf(args, sizeof args, "b,b --resume --csv %s", csv);
    assert_int_equal(run(args), 0);
    assert_int_equal(n_measured, 0);
}

/* A row that cannot be measured: those before it stand in the file and in the table. */
static void failing_row(void **state)
{
    const char *csv = path_of("failed.csv");
    char args[600];

    (void)state;
    unlink(csv);
    snprintf(args, sizeof args, "a --csv %s", csv);
    fails_at = 3;
    assert_int_equal(run(args), 1);
    assert_int_equal(n_measured, 3);
    char *text = test_read_text(csv);
    assert_non_null(strstr(text, "\na,10,\"with, comma\",0.066666666666666666,,small,\"a \"\"note\"\",\nof two lines\"\n"));
    assert_null(strstr(text, "a,20"));
    free(text);
    assert_non_null(strstr(out, "\na            10 %  66.67 ms         small\n"));
    snprintf(args, sizeof args, "a --csv %s/no/such/folder.csv", csv);
    assert_int_equal(run(args), 1);
    assert_int_equal(n_measured, 1);
}

static void values_of_each_kind(void **state)
{
    json_t *j;
    int kept;

    (void)state;
    assert_int_equal(run("aaa --json --seed 2"), 0);
    const json_t *row = json_array_get(rows_of(&j, &kept), 3);
    assert_true(json_is_integer(json_object_get(row, "size")));
    assert_int_equal(json_integer_value(json_object_get(row, "size")), 20);
    assert_true(fabs(json_number_value(json_object_get(row, "percent")) - 10) < 1e-6);
    assert_true(json_is_null(json_object_get(row, "nothing")) && json_is_true(json_object_get(row, "large")));
    assert_null(json_object_get(row, "flavour"));
    assert_string_equal(json_string_value(json_object_get(row, "note")), "a \"note\",\nof two lines");
    json_decref(j);
    assert_int_equal(run("aaa --quiet"), 0);
    assert_true(!strncmp(out, "model        size     ratio nothing       note\n", 47));
    assert_non_null(strstr(out, "\naaa          20 %  66.67 ms         large\n"));
}

/* Files that no such study wrote are refused, and left alone. */
static void foreign_files(void **state)
{
    static const char head[] = "model,size,flavour,ratio,nothing,how,note\n";
    static const struct {
        const char *head, *text, *about;
    } cases[] = {
        { "", "{}", "is not what `study fake --csv` writes" },
        { "", "model,size,flavour\n", "is not what `study fake --csv` writes" },
        { head, "a,10,plain,1,,small\n", "the row that begins with 'a'" },
        { head, "a,10,plain,1,,small,,\n", "the row" },
        { head, "a,10,plain,1,,small,", "the row" },
        { head, "a,1O,plain,1,,small,\n", "the row" },
        { head, "a,10,plain,1,,huge,\n", "the row" },
        { head, "a,10,\"plain,1,,small,\n", "the row" },
        { head, "a,10,plain,1,,small,\nmodel,size,flavour,ratio,nothing,how,note\n", "begins with 'model'" },
    };
    const char *csv = path_of("foreign.csv"), *err_path = path_of("frame.err");
    char args[600], text[400];

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        snprintf(text, sizeof text, "%s%s", cases[i].head, cases[i].text);
        test_write_text(csv, text);
        snprintf(args, sizeof args, "a --resume --csv %s", csv);
        fflush(stderr);
        int kept = dup(STDERR_FILENO);
        assert_non_null(freopen(err_path, "w", stderr));
        const int status = run(args);
        fflush(stderr);
        dup2(kept, STDERR_FILENO);
        close(kept);
        char *said = test_read_text(err_path), *now = test_read_text(csv);
        if (status != 1 || n_measured || !strstr(said, cases[i].about) || strcmp(now, text) != 0)
            fail_msg("case %zu: status %d, %d measured, said %s", i, status, n_measured, said);
        free(said);
        free(now);
    }
    assert_int_equal(run("a --resume"), 2);
    assert_int_equal(run("--json"), 2);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goes_on_after_ctrl_c), cmocka_unit_test(only_resume_keeps),
        cmocka_unit_test(other_rows_stay),      cmocka_unit_test(failing_row),
        cmocka_unit_test(values_of_each_kind),  cmocka_unit_test(foreign_files),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
