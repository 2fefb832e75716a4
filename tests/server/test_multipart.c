/* test_multipart.c -- forms as browsers and libraries send them, and as nobody should. */
#include <stdlib.h>
#include <string.h>

#include "server/http/multipart.h"
#include "support/test.h"

static const char type[] = "multipart/form-data; boundary=xYzZY";
static rg_part part[RG_MULTIPART_MOST];

static int read_form(const char *content_type, const char *body, size_t n)
{
    static char *copy;

    free(copy);
    copy = malloc(n + 1); /* an exact block, so that a read past its end shows */
    assert_non_null(copy);
    memcpy(copy, body, n);
    return rg_multipart_read(content_type, copy, n, part);
}

static bool is(const char *s, size_t n, const char *want)
{
    return s && n == strlen(want) && !memcmp(s, want, n);
}

static void what_clients_send(void **state)
{
    static const char body[] =
        "preamble\r\n--xYzZY\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n"
        "--xYzZY \t\r\ncontent-type: text/plain\r\nCONTENT-DISPOSITION: form-data; filename=\"a \\\"b\\\"; "
        "name=c.jsonl\"; "
        "name=file\r\n\r\nline 1\r\n--xYzZ\r\nline 2\r\n"
        "--xYzZY\r\nContent-Disposition: form-data; name=\"empty\"\r\n\r\n--xYzZY--\r\nepilogue";

    (void)state;
    assert_int_equal(read_form(type, body, sizeof body - 1), 3);
    assert_true(is(part[0].name, part[0].n_name, "purpose") && is(part[0].data, part[0].n, "batch"));
    assert_null(part[0].filename);
    assert_true(is(part[1].name, part[1].n_name, "file") && is(part[1].data, part[1].n, "line 1\r\n--xYzZ\r\nline 2"));
    assert_true(is(part[1].filename, part[1].n_filename, "a \"b\"; name=c.jsonl"));
    assert_true(is(part[2].name, part[2].n_name, "empty") && !part[2].n);
    assert_ptr_equal(rg_multipart_find(part, 3, "file"), &part[1]);
    assert_null(rg_multipart_find(part, 3, "fil"));
    assert_int_equal(read_form("multipart/form-data; boundary=\"xYzZY\"", body, sizeof body - 1), 3);
    assert_int_equal(read_form(type, "--xYzZY--", 9), 0);
}

static void what_is_no_form(void **state)
{
    static const char *const bodies[] = {
        "",
        "--",
        "--xYzZY",
        "--xYzZY\r\n",
        "--xYzZY\r\n\r\n",
        "--xYzZY\r\n\r\ndata\r\n--xYzZY--",
        "--xYzZY\r\nContent-Disposition: form-data\r\n\r\ndata\r\n--xYzZY--",
        "--xYzZY\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\ndata",
        "--xYzZYContent-Disposition: form-data; name=\"a\"\r\n\r\ndata\r\n--xYzZY--",
        "--xYzZY\r\nContent-Disposition: form-data; filename=\"a\"\r\n\r\ndata\r\n--xYzZY--",
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(bodies); i++)
        assert_int_equal(read_form(type, bodies[i], strlen(bodies[i])), -1);
    assert_int_equal(read_form(NULL, "--xYzZY--", 9), -1);
    assert_int_equal(read_form("application/json", "--xYzZY--", 9), -1);
    assert_int_equal(read_form("multipart/form-data", "--xYzZY--", 9), -1);
    assert_int_equal(read_form("multipart/form-data; boundary=\"", "--xYzZY--", 9), -1);
}

/* Every cut and many changed bytes of a form: no read outside it, and every part lies within. */
static void torn_forms(void **state)
{
    static const char body[] =
        "--xYzZY\r\nContent-Disposition: form-data; name=\"p\\\"\"; filename=\"\\\\\"\r\n\r\nbatch\r\n"
        "--xYzZY\r\nA: b\r\nContent-Disposition: form-data; name=q\r\n\r\n\r\n--xYzZY--\r\n";
    static const char signs[] = "\r\n-\"\\;: =xZ\0";
    rg_rng rng = { .seed = test_seed };
    char torn[sizeof body];

    (void)state;
    for (int i = 0; i < test_scale(20000); i++) {
        size_t n = i < (int)sizeof body ? (size_t)i : sizeof body - 1;
        memcpy(torn, body, n);
        for (uint32_t k = rg_rng_below(&rng, 4); i >= (int)sizeof body && k; k--)
            torn[rg_rng_below(&rng, (uint32_t)n)] = signs[rg_rng_below(&rng, sizeof signs - 1)];
        int got = read_form(type, torn, n);
        assert_true(got >= -1 && got <= RG_MULTIPART_MOST);
        for (int k = 0; k < got; k++)
            assert_true(part[k].n <= n && part[k].n_name <= n && part[k].n_filename <= n);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_clients_send),
        cmocka_unit_test(what_is_no_form),
        cmocka_unit_test(torn_forms),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
