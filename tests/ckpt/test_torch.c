/* test_torch.c -- files that torch.save wrote: their tensors, and damaged ones. */
#include "support/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/mem.h"
#include "ckpt/torch.h"

static rg_checkpoint *open_golden(void)
{
    rg_error err = { 0 };
    rg_checkpoint *c = rg_checkpoint_open(test_data("torch"), RG_CKPT_DEFAULT, &err);

    assert_ok(c, err);
    return c;
}

static void check_values(const rg_checkpoint *c, const char *name, const float *want, size_t n_want)
{
    const rg_tensor *t = rg_checkpoint_find(c, name);
    float got[24];
    uint8_t raw[96];
    rg_error err = { 0 };

    assert_true(t && t->bytes <= sizeof raw && rg_tensor_count(t) == (int64_t)n_want);
    assert_ok(rg_tensor_read(c, t, 0, raw, t->bytes, &err), err);
    rg_format_of(t->type)->decode(raw, (int64_t)n_want, got);
    assert_memory_equal(got, want, n_want * sizeof *got);
}

static void tensors_have_their_values(void **state)
{
    rg_checkpoint *c = open_golden();
    rg_error err = { 0 };
    float rising[24];
    int64_t whole[2];
    uint8_t flags[3];

    (void)state;
    for (int i = 0; i < 24; i++)
        rising[i] = (float)i;
    assert_int_equal(rg_checkpoint_n_tensors(c), 8);
    check_values(c, "a.weight", rising, 24);
    check_values(c, "part", rising + 12, 12); /* of the values of another */
    check_values(c, "half", (const float[]){ 0, 0.25f, 0.5f, 0.75f, 1 }, 5);
    check_values(c, "brain", (const float[]){ 1.5f, -2, 0.25f }, 3);
    check_values(c, "one", (const float[]){ 7 }, 1);
    const rg_tensor *t = rg_checkpoint_find(c, "whole");
    assert_true(t && t->type == RG_I64 && t->n_dims == 2 && t->shape[0] == 2 && t->shape[1] == 1);
    assert_ok(rg_tensor_read(c, t, 0, whole, sizeof whole, &err), err);
    assert_true(whole[0] == -3 && whole[1] == (int64_t)1 << 40);
    t = rg_checkpoint_find(c, "flags");
    assert_true(t && t->type == RG_U8);
    assert_ok(rg_tensor_read(c, t, 0, flags, sizeof flags, &err), err);
    assert_true(flags[0] && !flags[1] && flags[2]);
    assert_int_equal(rg_tensor_count(rg_checkpoint_find(c, "none")), 0);
    rg_checkpoint_close(c);
}

/* ---- damaged ----------------------------------------------------------------------------------------------------- */

/* A checkpoint of these bytes; NULL: it was refused, with a reason. */
static rg_checkpoint *open_bytes(const uint8_t *bytes, size_t n)
{
    const char *folder = test_scratch("torch");
    char path[600];
    rg_error err = { 0 };

    mkdir(folder, 0755);
    snprintf(path, sizeof path, "%s/config.json", folder);
    test_copy_file(test_data("torch/config.json"), path, NULL, NULL);
    snprintf(path, sizeof path, "%s/pytorch_model.bin", folder);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_true(fwrite(bytes, 1, n, f) == n && !fclose(f));
    rg_checkpoint *c = rg_checkpoint_open(folder, RG_CKPT_DEFAULT, &err);
    assert_true(c || (err.code != RG_OK && err.text[0]));
    return c;
}

/* What can be opened can be read. */
static void read_all(rg_checkpoint *c)
{
    rg_error err = { 0 };

    for (int i = 0; c && i < rg_checkpoint_n_tensors(c); i++) {
        const rg_tensor *t = rg_checkpoint_tensor(c, i);
        void *to = malloc(t->bytes + 1);

        assert_non_null(to);
        assert_ok(rg_tensor_read(c, t, 0, to, t->bytes, &err), err);
        free(to);
    }
    rg_checkpoint_close(c);
}

static void damaged_files_are_refused_or_read(void **state)
{
    rg_error err = { 0 };
    size_t n;
    uint8_t *bytes = (uint8_t *)rg_file_slurp(test_data("torch/pytorch_model.bin"), 1 << 20, &n, &err);
    rg_rng g = { .seed = test_seed };

    (void)state;
    assert_ok(bytes, err);
    for (size_t cut = 0; cut < n; cut += 1 + n / 40) {
        rg_checkpoint *c = open_bytes(bytes, cut);

        assert_null(c);
    }
    for (int k = 0; k < test_scale(400); k++) {
        size_t at = rg_rng_below(&g, (uint32_t)n);
        uint8_t was = bytes[at];

        bytes[at] = (uint8_t)rg_rng_below(&g, 256);
        read_all(open_bytes(bytes, n));
        bytes[at] = was;
    }
    rg_free(bytes);
}

/* ---- pickles ----------------------------------------------------------------------------------------------------- */

static void refuse(const char *pickle, size_t n_pickle, const char *why)
{
    rg_error err = { 0 };
    int n = 0;
    rg_pickled *t = rg_pickle_read((const uint8_t *)pickle, n_pickle, &n, &err);

    assert_null(t);
    if (!strstr(err.text, why))
        fail_msg("%s: %s", why, err.text);
}

#define REFUSE(pickle, why) refuse(pickle, sizeof(pickle) - 1, why)

static void broken_pickles_are_refused(void **state)
{
    (void)state;
    REFUSE("cos\nsystem\n(X\4\0\0\0truetR.", "'system', which is no tensor's");
    REFUSE("i", "opcode 0x69");
    REFUSE("}", "it does not end");
    REFUSE("K\1.", "of another kind");
    REFUSE(".", "the stack is empty");
    REFUSE("s.", "the stack is empty");
    REFUSE("}u.", "no mark");
    REFUSE("}(K\1u.", "a key without a value");
    REFUSE("}(K\1K\1(u.", "no dict");
    REFUSE("h\7.", "where nothing is");
    REFUSE("q\7.", "nothing to remember");
    REFUSE("}r\xff\xff\xff\x7f.", "too far");
    REFUSE("\x87.", "the stack is empty");
    REFUSE("(\x85.", "a mark in a tuple");
    REFUSE(")Q.", "a storage is not as torch");
    REFUSE("ccollections\nOrderedDict\nK\1R.", "of another kind");
    REFUSE("ctorch._utils\n_rebuild_tensor_v2\n)R.", "makes no tensor");
    REFUSE("ctorch._utils\n_rebuild_tensor_v2\n(K\1K\1))tR.", "a tensor is not as torch");
    REFUSE("X\xff\xff\xff\xff.", "ends too early");
    REFUSE("\x8a\x09.", "more than 64 bits");
    REFUSE("ctorch", "does not end");
}

static void an_empty_dict_has_no_tensors(void **state)
{
    static const uint8_t pickle[] = { 0x80, 2, '}', '.' };
    rg_error err = { 0 };
    int n = -1;
    rg_pickled *t = rg_pickle_read(pickle, sizeof pickle, &n, &err);

    (void)state;
    assert_ok(t, err);
    assert_int_equal(n, 0);
    rg_free(t);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_have_their_values),
        cmocka_unit_test(damaged_files_are_refused_or_read),
        cmocka_unit_test(broken_pickles_are_refused),
        cmocka_unit_test(an_empty_dict_has_no_tensors),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
