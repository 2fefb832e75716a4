/* Tests of weights that quantizers store as several tensors: what they decode to, to the bit; any cut of their rows; and
 * refusals by name. */
#include "support/test.h"

#include <math.h>

#include "base/mem.h"
#include "ckpt/checkpoint.h"
#include "ckpt/files.h"

static rg_checkpoint *open_file(const char *path)
{
    rg_error err = { 0 };
    rg_checkpoint *c = rg_checkpoint_open(path, RG_CKPT_DEFAULT, &err);

    assert_ok(c, err);
    return c;
}

/* Rows [first, first + n) of a matrix as f32. */
static void read_rows(const rg_checkpoint *c, const rg_tensor *t, int64_t first, int64_t n, float *to)
{
    rg_error err = { 0 };
    uint64_t bytes;
    void *raw;

    assert_true(rg_row_bytes(t->type, rg_tensor_cols(t), &bytes));
    raw = test_guard_new((size_t)((uint64_t)n * bytes)); /* nothing is written past its end */
    assert_ok(rg_tensor_read(c, t, (uint64_t)first * bytes, raw, (size_t)((uint64_t)n * bytes), &err), err);
    rg_tensor_decode(t, raw, n, to);
    test_guard_free(raw);
}

/* bitsandbytes divides by 127 after it has multiplied, and ridge before: the last bit may differ. */
static void expect_values(const char *what, const float *got, const float *want, int64_t n, bool nearly)
{
    for (int64_t i = 0; i < n; i++)
        if (nearly ? fabsf(got[i] - want[i]) > fabsf(want[i]) * 0x1p-23f : got[i] != want[i])
            fail_msg("%s: value %lld is %a, want %a", what, (long long)i, (double)got[i], (double)want[i]);
}

/* The tensor `name` of c is the values of `golden`, whole and in pieces. */
static void check_tensor(const char *what, const rg_checkpoint *c, const char *name, const rg_checkpoint *golden,
                         const rg_tensor *want, bool nearly)
{
    static const int64_t cuts[] = { 1, 3, 8, 13 };
    const rg_tensor *t = rg_checkpoint_find(c, name);
    const int64_t n = rg_tensor_count(want), cols = rg_tensor_cols(want);
    float *values = rg_array((size_t)n, sizeof *values), *got = rg_array((size_t)n, sizeof *got);

    if (!t)
        fail_msg("%s: no tensor '%s'", what, name);
    assert_int_equal(t->n_dims, want->n_dims);
    assert_memory_equal(t->shape, want->shape, sizeof t->shape);
    read_rows(golden, want, 0, rg_tensor_rows(want), values);
    read_rows(c, t, 0, rg_tensor_rows(t), got);
    expect_values(what, got, values, n, nearly);
    for (size_t i = 0; i < RG_LEN(cuts); i++)
        for (int64_t row = 0; row < rg_tensor_rows(t); row += cuts[i]) {
            int64_t m = rg_tensor_rows(t) - row < cuts[i] ? rg_tensor_rows(t) - row : cuts[i];
            read_rows(c, t, row, m, got);
            expect_values(what, got, values + row * cols, m * cols, nearly);
        }
    rg_free(values);
    rg_free(got);
}

/* Every golden of a folder; and the type that the down projection is read as. */
static void check_folder(const char *name, rg_type type)
{
    char path[128];
    rg_checkpoint *c, *golden;
    int n_checked = 0;

    snprintf(path, sizeof path, "quantized/%s", name);
    c = open_file(test_data(path));
    snprintf(path, sizeof path, "quantized/%s/golden.safetensors", name);
    golden = open_file(test_data(path));
    for (int i = 0; i < rg_checkpoint_n_tensors(golden); i++) {
        const rg_tensor *want = rg_checkpoint_tensor(golden, i);
        if (strncmp(want->name, "model.", 6) != 0)
            continue;
        check_tensor(name, c, want->name, golden, want, !strcmp(name, "bnb-int8"));
        n_checked++;
    }
    assert_int_equal(n_checked, 2);
    if (rg_checkpoint_find(c, "model.layers.2.mlp.down_proj.weight")->type != type)
        fail_msg("%s: read as %s, want %s", name,
                 rg_format_of(rg_checkpoint_find(c, "model.layers.2.mlp.down_proj.weight")->type)->name,
                 rg_format_of(type)->name);
    rg_checkpoint_close(c);
    rg_checkpoint_close(golden);
}

static void weights_equal_golden(void **state)
{
    static const struct {
        const char *name;
        rg_type type;
    } folders[] = {
        { "awq-gemm-g32", RG_ZP4 },       { "bnb-fp4", RG_FP4 },          { "bnb-int8", RG_ZP8 },
        { "bnb-nf4", RG_NF4 },            { "bnb-nf4-nested", RG_NF4 },   { "ct-fp8-block", RG_F32 },
        { "ct-fp8-channel", RG_F32 },     { "ct-fp8-tensor", RG_F32 },    { "ct-int4-channel-asym", RG_ZP4 },
        { "ct-int4-g32", RG_ZP4 },        { "ct-int4-g32-asym", RG_ZP4 }, { "ct-int8-channel", RG_ZP8 },
        { "ct-int8-g32-packed", RG_ZP8 }, { "ct-mxfp4", RG_MXFP4 },       { "ct-nvfp4", RG_NVFP4_2 },
        { "fp8-block-scale-inv", RG_F32 }, { "gptq-2bit-g32-v2", RG_ZP4 }, { "gptq-3bit-g32", RG_ZP4 },
        { "gptq-4bit-g32-act", RG_ZP4 },  { "gptq-4bit-g32-v2", RG_ZP4 }, { "gptq-4bit-g64-asym", RG_ZP4 },
        { "gptq-8bit-all", RG_ZP8 },
    };
    size_t n_live = rg_mem_count().n_live;

    (void)state;
    for (size_t i = 0; i < RG_LEN(folders); i++)
        check_folder(folders[i].name, folders[i].type);
    assert_int_equal(rg_mem_count().n_live, n_live);
}

/* Single layers of other shapes, without a config: NAME.f32 is what NAME.weight (or NAME) decodes to. */
static void layers_equal_golden(void **state)
{
    rg_checkpoint *c = open_file(test_data("quantized/layers.safetensors"));
    int n_checked = 0;

    (void)state;
    for (int i = 0; i < rg_checkpoint_n_tensors(c); i++) {
        const rg_tensor *want = rg_checkpoint_tensor(c, i);
        const size_t n = strlen(want->name) - strlen(".f32");
        char name[64];

        if (strcmp(want->name + n, ".f32") != 0)
            continue;
        snprintf(name, sizeof name, "%.*s.weight", (int)n, want->name);
        if (!rg_checkpoint_find(c, name))
            snprintf(name, sizeof name, "%.*s", (int)n, want->name);
        check_tensor(name, c, name, c, want, false);
        n_checked++;
    }
    assert_int_equal(n_checked, 11);
    rg_checkpoint_close(c);
}

/* ---- groups out of order ----------------------------------------------------------------------------------------- */

enum { OUT = 8, IN = 64 };

static void put_part(rg_ckpt_writer *w, bool declare, const char *name, rg_type type, int64_t rows, int64_t cols,
                     const void *data)
{
    rg_error err = { 0 };
    const int64_t shape[2] = { rows ? rows : cols, cols };

    if (declare)
        assert_ok(rg_ckpt_declare(w, name, type, rows ? 2 : 1, shape, &err), err);
    else
        assert_ok(rg_ckpt_write(w, data, (size_t)((rows ? rows : 1) * cols) * 4, &err), err);
}

/* Column k is in group group_of[k] of two.  The values, and the note. */
static void check_groups(const int32_t group_of[IN], rg_type type, const char *note)
{
    uint32_t q[IN / 8][OUT], zero[2][1] = { { 0x76543210 }, { 0x01234567 } };
    float scale[2][OUT], got[OUT * IN];
    rg_error err = { 0 };

    for (int i = 0; i < IN / 8 * OUT; i++)
        q[i / OUT][i % OUT] = (uint32_t)i * 2654435761u;
    for (int i = 0; i < 2 * OUT; i++)
        scale[i / OUT][i % OUT] = 0.25f + (float)i;
    mkdir(in_scratch("groups"), 0755);
    put_text("groups/config.json", "{}");
    rg_ckpt_writer *w = rg_safetensors_create(in_scratch("groups/model.safetensors"), &err);
    assert_ok(w, err);
    for (int declare = 1; declare >= 0; declare--) {
        put_part(w, declare, "a.qweight", RG_I32, IN / 8, OUT, q);
        put_part(w, declare, "a.scales", RG_F32, 2, OUT, scale);
        put_part(w, declare, "a.qzeros", RG_I32, 2, 1, zero);
        put_part(w, declare, "a.g_idx", RG_I32, 0, IN, group_of);
    }
    assert_ok(rg_ckpt_commit(w, &err), err);
    rg_checkpoint *c = open_file(in_scratch("groups"));
    const rg_tensor *t = rg_checkpoint_find(c, "a.weight");
    assert_int_equal(t->type, type);
    assert_true(note ? rg_tensor_note(c, t) && strstr(rg_tensor_note(c, t), note) : !rg_tensor_note(c, t));
    read_rows(c, t, 0, OUT, got);
    for (int r = 0; r < OUT; r++)
        for (int k = 0; k < IN; k++) {
            const int g = group_of[k], code = (int)(q[k / 8][r] >> k % 8 * 4 & 15), z = (int)(zero[g][0] >> r * 4 & 15) + 1;

            assert_true(got[r * IN + k] == scale[g][r] * (float)(code - z));
        }
    rg_checkpoint_close(c);
}

/* Groups of as many columns each are sorted; others stay f32, and it is said why. */
static void groups_out_of_order(void **state)
{
    int32_t in_order[IN], mixed[IN], unequal[IN];

    (void)state;
    for (int k = 0; k < IN; k++) {
        in_order[k] = k / (IN / 2);
        mixed[k] = k * 5 % 8 / 4;
        unequal[k] = k % 3 == 0;
    }
    check_groups(in_order, RG_ZP4, NULL);
    check_groups(mixed, RG_ZP4, "sorted by group");
    check_groups(unequal, RG_F32, "unequal numbers");
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

/* Tensors as "name dtype dims bytes", in order; data as files.h puts it: byte i is i. */
static void put_tensors(const char *list)
{
    char header[4096] = "{", text[1024], *save = NULL, *at;
    size_t end = 0, n = 1;

    snprintf(text, sizeof text, "%s", list);
    for (at = strtok_r(text, ";", &save); at; at = strtok_r(NULL, ";", &save)) {
        char name[64], dtype[16], dims[32];
        size_t bytes;
        assert_int_equal(sscanf(at, " %63s %15s %31s %zu", name, dtype, dims, &bytes), 4);
        n += (size_t)snprintf(header + n, sizeof header - n,
                              "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}", end ? "," : "",
                              name, dtype, dims, end, end + bytes);
        end += bytes;
    }
    snprintf(header + n, sizeof header - n, "}");
    mkdir(in_scratch("made"), 0755);
    put_safetensors("made/model.safetensors", header, end);
}

static void refuse(const char *tensors, const char *config, const char *word)
{
    rg_error err = { 0 };

    put_tensors(tensors);
    put_text("made/config.json", config);
    rg_checkpoint *c = rg_checkpoint_open(in_scratch("made"), RG_CKPT_DEFAULT, &err);
    if (c)
        fail_msg("%s: opened", tensors);
    if (!strstr(err.text, word))
        fail_msg("%s: '%s' does not say '%s'", tensors, err.text, word);
}

static void bad_parts_are_refused(void **state)
{
    static const struct {
        const char *tensors, *word;
    } cases[] = {
        { "a.qweight I32 [4,8] 128", "no '.scales' beside it" },
        { "a.qweight I32 [4,8] 128; a.scales F16 [1,8] 16", "no '.qzeros' beside it" },
        { "a.qweight I32 [4,8] 128; a.scales I32 [1,8] 32; a.qzeros I32 [1,1] 4", "real scales [groups, rows]" },
        { "a.qweight I32 [4,8] 128; a.scales F16 [8] 16; a.qzeros I32 [1,1] 4", "real scales [groups, rows]" },
        { "a.qweight I32 [4,8] 128; a.scales F16 [1,0] 0; a.qzeros I32 [1,1] 4", "real scales [groups, rows]" },
        { "a.qweight I32 [4,8] 128; a.scales F16 [1,8] 16; a.qzeros I32 [2,1] 8", "words [groups, rows' bits / 32]" },
        { "a.qweight I32 [4,8] 128; a.scales F16 [1,32] 64; a.qzeros I32 [1,5] 20", "2, 3, 4 or 8 bits" },
        { "a.qweight I32 [4,9] 144; a.scales F16 [1,8] 16; a.qzeros I32 [1,1] 4", "[columns' bits / 32, rows]" },
        { "a.qweight I32 [4,32] 512; a.scales F16 [1,32] 64; a.qzeros I32 [1,3] 12", "[columns' bits / 32, rows]" },
        { "a.qweight I32 [4,8] 128; a.scales F16 [3,8] 48; a.qzeros I32 [3,1] 12", "each group of columns" },
        { "a.qweight I32 [4,8] 128; a.scales F16 [1,8] 16; a.qzeros I32 [1,1] 4; a.g_idx I32 [32] 128", "into group" },
        { "a.qweight I32 [4,8] 128; a.scales F16 [1,8] 16; a.qzeros I32 [1,1] 4; a.g_idx I32 [31] 124", "each column" },
        { "a.qweight I32 [4,8] 128; a.scales F16 [1,8] 16; a.qzeros I32 [1,1] 4; a.weight F16 [8,32] 512", "there twice" },
        { "a.weight_packed I32 [8,4] 128; a.weight_scale BF16 [8,1] 16", "no '.weight_shape' beside it" },
        { "a.weight_packed I32 [8,4] 128; a.weight_scale BF16 [8,1] 16; a.weight_shape I64 [2] 16", "bits / 32]" },
        { "a.weight_packed U8 [8,16] 128; a.weight_scale U8 [8,2] 16", "a scale of 8 bits" },
        { "a.weight_packed U8 [8,15] 120; a.weight_scale U8 [8,1] 8", "columns / 2]" },
        { "a.weight_packed U8 [8,16] 128; a.weight_scale F8_E4M3 [8,2] 16; a.weight_global_scale F32 [2] 8",
          "one real number" },
        { "a_blocks U8 [2,4,1,16] 128; a_scales U8 [2,4,2] 16", "each 16 bytes" },
        { "a_blocks U8 [2,4,1,16] 128", "no '_scales' beside it" },
        { "a.weight I8 [4,32] 128; a.weight_scale F32 [5,1] 20", "scales for each row" },
        { "a.weight I8 [4,32] 128; a.SCB F32 [4] 16; a.weight_zero_point I8 [3] 3", "a byte for each scale" },
        { "a.weight F8_E4M3 [4,32] 128; a.weight_scale_inv F32 [2,1] 8", "each block of rows" },
        { "a.weight F8_E4M3 [4,32] 128; a.weight_scale_inv I32 [1,1] 4", "real scales" },
        { "a.weight F8_E4M3 [0,32] 0", "a matrix" },
        { "a.weight U8 [64,1] 64; a.weight.absmax F32 [2] 8", "'.weight.quant_map' beside it" },
        { "a.weight U8 [64,1] 64; a.weight.absmax F32 [2] 8; a.weight.quant_map F32 [16] 64; "
          "a.weight.quant_state.bitsandbytes__nf4 U8 [9] 9", "the usual one" },
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++)
        refuse(cases[i].tensors, "{}", cases[i].word);
}

static void unknown_settings_are_refused(void **state)
{
    static const struct {
        const char *config, *word;
    } cases[] = {
        { "\"quant_method\":\"aqlm\"", "'aqlm', which is not one of gptq, awq" },
        { "\"quant_method\":7", "quant_method" },
        { "\"quant_method\":\"gptq\",\"checkpoint_format\":\"marlin\"", "checkpoint_format is 'marlin'" },
        { "\"quant_method\":\"awq\",\"version\":\"gemv\"", "version is 'gemv'" },
        { "\"quant_method\":\"fp8\",\"fmt\":\"e5m2\"", "fmt is 'e5m2'" },
        { "\"quant_method\":\"compressed-tensors\",\"sparsity_config\":{\"format\":\"sparse-24-bitmask\"}",
          "sparsity_config.format is 'sparse-24-bitmask'" },
    };
    char config[256];

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        snprintf(config, sizeof config, "{\"quantization_config\":{%s}}", cases[i].config);
        refuse("a F32 [1] 4", config, cases[i].word);
    }
}

/* Only reading them tells: zero points of GPTQ's first format are stored less one. */
static void a_zero_point_of_256_is_refused(void **state)
{
    rg_error err = { 0 };
    uint8_t row[37];
    rg_checkpoint *c;

    (void)state;
    /* Byte i is i: of the 255 rows' zero points, the last is 254 + 1, and with 256 rows it would be 256. */
    put_tensors("a.qzeros I32 [1,64] 256; a.qweight I32 [8,256] 8192; a.scales F16 [1,256] 512");
    put_text("made/config.json", "{}");
    c = open_file(in_scratch("made"));
    assert_ok(rg_tensor_read(c, rg_checkpoint_find(c, "a.weight"), 254 * 37, row, sizeof row, &err), err);
    assert_int_equal(row[4], 255);
    assert_false(rg_tensor_read(c, rg_checkpoint_find(c, "a.weight"), 255 * 37, row, sizeof row, &err));
    assert_non_null(strstr(err.text, "zero point of 256"));
    rg_checkpoint_close(c);
}

/* Without memory somewhere on the way, opening fails or reading does, and nothing is left behind. */
static int allocations_left;

static bool count_down(void *arg, size_t bytes)
{
    (void)arg;
    (void)bytes;
    return allocations_left-- != 0;
}

static void failing_allocations_leave_nothing(void **state)
{
    static const char *const folders[] = { "quantized/gptq-4bit-g32-v2", "quantized/ct-int4-g32-asym",
                                           "quantized/bnb-nf4-nested", "quantized/gptq-4bit-g32-act" };
    size_t n_live = rg_mem_count().n_live;

    (void)state;
    for (size_t i = 0; i < RG_LEN(folders); i++)
        for (int n = 0, done = 0; !done; n += n < 60 || TEST_SLOWER == 1 ? 1 : 5) {
            rg_error err = { 0 };
            float row[64];
            rg_checkpoint *c;
            const rg_tensor *t;

            allocations_left = n;
            rg_mem_set_gate(count_down, NULL);
            c = rg_checkpoint_open(test_data(folders[i]), RG_CKPT_DEFAULT, &err);
            t = c ? rg_checkpoint_find(c, "model.layers.0.self_attn.k_proj.weight") : NULL;
            done = t && rg_tensor_read(c, t, 0, row, (size_t)(t->bytes / 32), &err);
            rg_mem_set_gate(NULL, NULL);
            assert_true(done || err.code == RG_E_MEMORY);
            rg_checkpoint_close(c);
            assert_int_equal(rg_mem_count().n_live, n_live);
        }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_equal_golden),
        cmocka_unit_test(layers_equal_golden),
        cmocka_unit_test(groups_out_of_order),
        cmocka_unit_test(bad_parts_are_refused),
        cmocka_unit_test(unknown_settings_are_refused),
        cmocka_unit_test(a_zero_point_of_256_is_refused),
        cmocka_unit_test(failing_allocations_leave_nothing),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch) ? 1 : 0;
}
