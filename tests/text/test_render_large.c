/* test_render_large.c -- templates over texts as long as a budget, a byte less and more: rendered, or refused in words. */
#include "support/test.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "text/large.h"

enum { OUT_CAP = 1 << 26 };

static void check(const char *source, const json_t *v, size_t n)
{
    rg_error err = { 0 };
    size_t live = rg_mem_count().n_live;
    rg_jinja *j = rg_jinja_parse(source, strlen(source), &err);
    rg_text out;

    assert_ok(j, err);
    rg_text_init(&out, OUT_CAP);
    bool ok = rg_jinja_render(j, &(rg_jinja_input){ .foreign = v }, &out, &err);
    if (!ok && (!err.text[0] || (err.code != RG_E_LIMIT && err.code != RG_E_INPUT)))
        fail_msg("%s with %zu bytes: code %d, '%s'", source, n, err.code, err.text);
    if (ok && out.bytes.n && !rg_utf8_valid(out.bytes.data, out.bytes.n))
        fail_msg("%s with %zu bytes: no UTF-8", source, n);
    rg_text_fini(&out);
    rg_jinja_free(j);
    assert_int_equal(rg_mem_count().n_live, live);
}

static void every_length_at_a_budget(void **state)
{
    const int beside = test_all() ? 1 : 0; /* bytes less and more than a budget */
    const size_t step = test_scale(12) < 12 ? 4 : 1;

    (void)state;
    for (size_t p = 0; p < RG_LEN(large_parts); p += step)
        for (int i = -beside; i <= beside; i++) {
            size_t n = (size_t)((long)(RG_JINJA_BYTES / large_parts[p]) + i);
            json_t *v = large_variables((int)(p + (size_t)(i + 1)) % LARGE_KINDS, n);
            assert_non_null(v);
            for (size_t t = 0; t < RG_LEN(large_templates); t++)
                check(large_templates[t], v, n);
            json_decref(v);
        }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_length_at_a_budget) };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
