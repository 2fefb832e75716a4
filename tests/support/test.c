/* test.c -- see test.h. */
#define _GNU_SOURCE
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

uint64_t test_seed = 1;
const char *test_isa;
static unsigned part = 1, n_parts = 1;

static void read_part(const char *text)
{
    if (sscanf(text, "%u/%u", &part, &n_parts) != 2 || part < 1 || part > n_parts) {
        fprintf(stderr, "--part %s: not K/N, K from 1 to N\n", text);
        exit(2);
    }
}

void test_init(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--seed") && i + 1 < argc)
            test_seed = strtoull(argv[++i], NULL, 10);
        else if (!strcmp(argv[i], "--isa") && i + 1 < argc)
            test_isa = argv[++i];
        else if (!strcmp(argv[i], "--part") && i + 1 < argc)
            read_part(argv[++i]);
        else
            cmocka_set_test_filter(argv[i]);
    }
}

int test_run_part(const struct CMUnitTest *tests, size_t n)
{
    struct CMUnitTest *mine = calloc(n, sizeof *mine);
    size_t n_mine = 0;

    for (size_t i = part - 1; i < n; i += n_parts)
        mine[n_mine++] = tests[i];
    int failed = _cmocka_run_group_tests("tests", mine, n_mine, NULL, NULL);
    free(mine);
    return failed;
}

int test_scale(int n)
{
    const char *text = getenv("RIDGE_TEST_SCALE");
    long scale = text ? strtol(text, NULL, 10) : 0;
    long cases = scale > 1 ? n / scale : scale < -1 ? n * -scale : n;

    return cases < 1 ? 1 : (int)cases;
}

bool test_all(void)
{
    return getenv("RIDGE_TEST_ALL") != NULL;
}

void test_assert_ok(bool ok, const char *what, const rg_error *err, const char *file, int line)
{
    if (!ok) {
        print_error("%s: %s\n", what, err->text);
        _fail(file, line);
    }
}

const char *test_data(const char *name)
{
    static _Thread_local char path[4][512];
    static _Thread_local unsigned turn;
    char *out = path[turn++ % 4];

    snprintf(out, sizeof path[0], "%s/%s", RG_TEST_DATA, name);
    return out;
}

/* The region's start and length stand in its first page, before the guarded bytes. */
char *test_read_text(const char *path)
{
    FILE *f = fopen(path, "r");
    char *s = calloc(1, 1 << 20);

    assert_true(f && s);
    size_t n = fread(s, 1, (1 << 20) - 1, f);
    assert_in_range(n, 1, (1 << 20) - 2);
    fclose(f);
    return s;
}

void test_write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

void *test_guard_new(size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (n + page - 1) / page * page;
    char *base = mmap(NULL, page + room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (base == MAP_FAILED || mprotect(base + page + room, page, PROT_NONE))
        abort();
    return base + page + room - n;
}

void test_guard_free(void *p)
{
    (void)p; /* tests are short: guarded pages live until exit */
}
