/* test_mqar.c -- texts of associative recall equal those of an independent generator, id by id; what has no room is refused. */
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "support/test.h"

#include "base/rng.h"
#include "ckpt/checkpoint.h"
#include "cli/study/mqar.h"

static void read_ints(const rg_checkpoint *c, const char *name, int i, int32_t *to, size_t n)
{
    char full[32];
    rg_error err = { 0 };

    snprintf(full, sizeof full, "%s.%d", name, i);
    const rg_tensor *t = rg_checkpoint_find(c, full);
    assert_non_null(t);
    assert_int_equal(t->bytes, n * sizeof *to);
    assert_ok(rg_tensor_read(c, t, 0, to, t->bytes, &err), err);
}

static rg_mqar setting(json_t *j)
{
#define NUMBER(key) (int32_t)json_integer_value(json_object_get(j, key))
    return (rg_mqar){ .seed = strtoull(json_string_value(json_object_get(j, "seed")), NULL, 10),
                      .vocab_size = NUMBER("vocab_size"), .length = NUMBER("length"), .pairs = NUMBER("pairs"),
                      .fill = NUMBER("fill"), .gap_limit = NUMBER("gap_limit") };
}

static void equals_golden(void **state)
{
    enum { MOST = 64 * 128, VOCAB = 8192 };
    static int32_t ids[MOST], targets[MOST], got[128], want[128], scratch[VOCAB + 128];
    rg_error err = { 0 };
    rg_checkpoint *c = rg_checkpoint_open(test_data("mqar/golden.safetensors"), 0, &err);
    json_t *settings = json_load_file(test_data("mqar/settings.json"), 0, NULL);

    (void)state;
    assert_ok(c, err);
    assert_int_equal(json_array_size(settings), 4);
    for (int i = 0; i < 4; i++) {
        rg_mqar m = setting(json_array_get(settings, (size_t)i));
        size_t n = (size_t)m.length;

        assert_ok(rg_mqar_check(&m, &err), err);
        read_ints(c, "ids", i, ids, 64 * n);
        read_ints(c, "targets", i, targets, 64 * n);
        for (size_t e = 0; e < 64; e++) {
            rg_mqar_example(&m, e, got, want, scratch);
            assert_memory_equal(got, ids + e * n, n * sizeof *ids);
            assert_memory_equal(want, targets + e * n, n * sizeof *ids);
        }
    }
    json_decref(settings);
    rg_checkpoint_close(c);
}

/* As the golden file holds them: from 0, most significant byte first. */
static void first_numbers(void **state)
{
    uint8_t bytes[4][8];
    uint64_t x = 0;
    rg_error err = { 0 };
    rg_checkpoint *c = rg_checkpoint_open(test_data("mqar/golden.safetensors"), 0, &err);

    (void)state;
    assert_ok(c, err);
    const rg_tensor *t = rg_checkpoint_find(c, "splitmix64_seed0_hex");
    assert_non_null(t);
    assert_ok(rg_tensor_read(c, t, 0, bytes, sizeof bytes, &err), err);
    for (int i = 0; i < 4; i++) {
        uint64_t v = rg_splitmix64(&x);
        for (int k = 0; k < 8; k++)
            assert_int_equal(bytes[i][k], v >> (56 - 8 * k) & 255);
    }
    rg_checkpoint_close(c);
}

static void refusals(void **state)
{
    const rg_mqar good = { .vocab_size = 64, .length = 32, .pairs = 8 };
    rg_mqar bad[] = { good, good, good, good };
    rg_error err = { 0 };

    (void)state;
    bad[0].pairs = 9;
    bad[1].vocab_size = 16;
    bad[2].gap_limit = 7;
    bad[3].pairs = 0;
    assert_ok(rg_mqar_check(&good, &err), err);
    for (size_t i = 0; i < RG_LEN(bad); i++)
        assert_false(rg_mqar_check(&bad[i], &err));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(equals_golden), cmocka_unit_test(first_numbers),
                                        cmocka_unit_test(refusals) };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
