/* test_hostile_rows.c -- a tokenizer that is larger than the model that it came with. */
#include "support/model.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "ridge.h"

/* A model whose embedding has 320 rows opens with as many ids, and is refused with one more. */
static void more_ids_than_rows(void **state)
{
    enum { ROWS = 320 };
    char path[600];

    (void)state;
    for (int n = ROWS; n <= ROWS + 1; n++) {
        const char *dir = test_variant("rows", "llama", "config.json", NULL, NULL);
        rg_options o = rg_options_default();
        rg_error err[2] = { 0 };
        FILE *f;
        snprintf(path, sizeof path, "%s/tokenizer.json", dir);
        f = fopen(path, "w");
        assert_non_null(f);
        fprintf(f, "{\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"w0\",\"vocab\":{");
        for (int i = 0; i < n; i++)
            fprintf(f, "%s\"w%d\":%d", i ? "," : "", i, i);
        fprintf(f, "}}}");
        assert_int_equal(fclose(f), 0);
        o.n_threads = 1;
        for (int turn = 0; turn < 2; turn++) {
            size_t live = rg_mem_count().n_live;
            rg_engine *e = rg_open(dir, &o, &err[turn]);
            if (n <= ROWS)
                assert_ok(e, err[turn]);
            else
                assert_null(e);
            rg_close(e);
            assert_int_equal(rg_mem_count().n_live, live);
        }
        assert_string_equal(err[0].text, err[1].text);
        assert_true(n <= ROWS || strstr(err[0].text, "321 ids"));
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(more_ids_than_rows) };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
