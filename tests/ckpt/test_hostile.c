/* Tests of checkpoints made to harm: each is refused twice with the same words that name what is wrong, in bounded memory
 * and time, and leaks nothing; and every allocation and every read that fails on the way is a clean refusal too. */
#include "support/test.h"

#include "ckpt/files.h"

#include "base/file.h"
#include "base/mem.h"
#include "ckpt/checkpoint.h"

static rg_buf b; /* the file being made */

/* Open twice; both must fail alike, say `word`, and keep nothing. */
static void expect_refused(const char *path, const char *word)
{
    rg_error one = { 0 }, two = { 0 };
    size_t n_live = rg_mem_count().n_live;

    if (rg_checkpoint_open(path, 0, &one) || rg_checkpoint_open(path, 0, &two))
        fail_msg("opened: expected a refusal that says '%s'", word);
    assert_string_equal(one.text, two.text);
    assert_int_equal(one.code, two.code);
    if (!strstr(one.text, word) || !strstr(one.text, path))
        fail_msg("'%s' does not say '%s' and the path", one.text, word);
    assert_true(one.code != RG_OK);
    assert_int_equal(rg_mem_count().n_live, n_live);
}

static void refuse_bytes(const char *word)
{
    assert_false(b.failed);
    put_file("h.gguf", b.data, b.n);
    expect_refused(in_scratch("h.gguf"), word);
}

static void accept_bytes(void)
{
    rg_error err;
    rg_checkpoint *c;

    assert_false(b.failed);
    put_file("h.gguf", b.data, b.n);
    c = rg_checkpoint_open(in_scratch("h.gguf"), 0, &err);
    assert_ok(c, err);
    rg_checkpoint_close(c);
}

static void headers_are_checked(void **state)
{
    static const uint64_t counts[] = {
        1, 100, (uint64_t)1 << 31, (uint64_t)1 << 63, ((uint64_t)1 << 63) - 1, UINT64_MAX
    };
    static const uint32_t versions[] = { 0, 1, 4, 0x02000000, 0x03000000, UINT32_MAX };

    (void)state;
    put_file("h.gguf", "", 0);
    expect_refused(in_scratch("h.gguf"), "too few");
    gguf_head(&b, 3, 0, 0);
    accept_bytes();
    gguf_head(&b, 2, 0, 0);
    accept_bytes();
    b.data[0] = 'g';
    refuse_bytes("GGUF");
    for (size_t i = 0; i < RG_LEN(versions); i++) {
        gguf_head(&b, versions[i], 0, 0);
        refuse_bytes(i == 3 || i == 4 ? "big-endian" : "version");
    }
    for (size_t i = 0; i < RG_LEN(counts); i++) {
        gguf_head(&b, 3, counts[i], 0);
        refuse_bytes("tensors");
        gguf_head(&b, 3, 0, counts[i]);
        refuse_bytes("metadata entries");
    }
}

static void entry_head(const char *key, uint32_t type)
{
    gguf_head(&b, 3, 0, 1);
    str(&b, key);
    u32(&b, type);
}

/* An array value: its head, and all but its elements. */
static void array_head(const char *key, uint32_t type, uint64_t n)
{
    entry_head(key, 9);
    u32(&b, type);
    u64(&b, n);
}

static void keys_are_checked(void **state)
{
    static const uint64_t lengths[] = { 65536, (uint64_t)1 << 40, UINT64_MAX, UINT64_MAX - 7 };
    static const char *const bad[] = { "", "a\nb", "\xff\xfe", "\xc3", "\xed\xa0\x80", "a\x7f" };

    (void)state;
    for (size_t i = 0; i < RG_LEN(bad); i++) {
        entry_head(bad[i], 4);
        u64(&b, 1);
        refuse_bytes("key 0");
    }
    for (size_t i = 0; i < RG_LEN(lengths); i++) {
        gguf_head(&b, 3, 0, 1);
        u64(&b, lengths[i]);
        for (int k = 0; k < 100; k++)
            u8(&b, 'k');
        refuse_bytes("a key is");
    }
    gguf_head(&b, 3, 0, 1);
    u64(&b, 3);
    rg_buf_add(&b, "a\0b", 3);
    u32(&b, 4);
    u32(&b, 4);
    refuse_bytes("key 0");
    gguf_head(&b, 3, 0, 2);
    for (int i = 0; i < 2; i++) {
        str(&b, "twice");
        u32(&b, 4);
        u32(&b, 1);
    }
    refuse_bytes("'twice' is there twice");
}

static void values_are_checked(void **state)
{
    static const uint64_t counts[] = { 100, (uint64_t)1 << 32, (uint64_t)1 << 61, (uint64_t)1 << 62, UINT64_MAX };

    (void)state;
    for (uint32_t type = 13; type < 16; type++) {
        entry_head("k", type);
        u64(&b, 0);
        refuse_bytes("'k': unknown value type");
    }
    entry_head("k", UINT32_MAX);
    u64(&b, 0);
    refuse_bytes("'k': unknown value type");
    entry_head("k", 7);
    u8(&b, 2);
    refuse_bytes("'k': a boolean is 2");
    entry_head("k", 8);
    u64(&b, UINT64_MAX);
    refuse_bytes("'k': a text");
    for (uint32_t type = 0; type <= 13; type++) {
        for (size_t i = 0; i < RG_LEN(counts); i++) {
            array_head("k", type, counts[i]);
            u64(&b, 0);
            refuse_bytes(type == 9 ? "array of arrays" : type == 13 ? "unknown value type" : "past the end");
        }
    }
    array_head("k", 7, 2);
    u8(&b, 1);
    u8(&b, 7);
    refuse_bytes("boolean 1");
}

static void alignment_is_checked(void **state)
{
    static const uint32_t bad[] = { 0, 1, 3, 4, 33, (uint32_t)1 << 31, UINT32_MAX };

    (void)state;
    for (size_t i = 0; i < RG_LEN(bad); i++) {
        entry_head("general.alignment", 4);
        u32(&b, bad[i]);
        refuse_bytes("general.alignment");
    }
    entry_head("general.alignment", 8);
    str(&b, "32");
    refuse_bytes("general.alignment");
    array_head("general.alignment", 4, 1);
    u32(&b, 32);
    refuse_bytes("general.alignment");
    entry_head("general.alignment", 10);
    u64(&b, 32);
    refuse_bytes("general.alignment");
    entry_head("general.alignment", 4);
    u32(&b, 64);
    accept_bytes();
}

static const uint64_t eight[4] = { 8, 1, 1, 1 };

/* One tensor of this shape and type, and 4096 bytes of data. */
static void one_tensor(const char *name, uint32_t n_dims, const uint64_t *dims, uint32_t type, uint64_t offset)
{
    gguf_head(&b, 3, 1, 0);
    gguf_tensor(&b, name, n_dims, dims, type, offset);
    pad(&b, 32);
    for (int i = 0; i < 4096; i++)
        u8(&b, 0);
}

static void tensors_are_checked(void **state)
{
    static const uint64_t bad_dims[][4] = {
        { 0, 1, 1, 1 },
        { UINT64_MAX, 1, 1, 1 },
        { (uint64_t)1 << 63, 1, 1, 1 },
        { ((uint64_t)1 << 63) - 1, 1, 1, 1 },
        { (uint64_t)1 << 32, (uint64_t)1 << 32, 1, 1 },
        { (uint64_t)1 << 33, (uint64_t)1 << 31, 2, 1 },
        { (uint64_t)1 << 62, 4, 1, 1 },
        { (uint64_t)1 << 31, 1, 1, 1 },
        { 1025, 1, 1, 1 },
        { (uint64_t)1 << 60, 1, 1, 1 },
        { ((uint64_t)1 << 58) + 2, 1, 1, 1 },
    };
    static const uint32_t bad_types[] = { 4, 5, 9, 31, 33, 36, 37, 41, 1000, UINT32_MAX, 0x80000000u };
    static const uint32_t bad_ranks[] = { 0, 5, 1000, UINT32_MAX };
    static const uint64_t bad_offsets[] = { 1, 16, 31, 32, 4096, (uint64_t)1 << 63, UINT64_MAX, UINT64_MAX - 31 };
    static const char *const bad_names[] = { "", "a\tb", "\x80" };
    char name[600];

    (void)state;
    one_tensor("t", 1, eight, 0, 0);
    accept_bytes();
    for (size_t i = 0; i < RG_LEN(bad_dims); i++) {
        one_tensor("t", 4, bad_dims[i], 0, 0);
        refuse_bytes("'t'");
    }
    for (size_t i = 0; i < RG_LEN(bad_types); i++) {
        one_tensor("t", 1, eight, bad_types[i], 0);
        refuse_bytes("'t': type");
    }
    for (size_t i = 0; i < RG_LEN(bad_ranks); i++) {
        one_tensor("t", bad_ranks[i], (const uint64_t[8]){ 1, 1, 1, 1, 1, 1, 1, 1 }, 0, 0);
        refuse_bytes("'t'");
    }
    for (size_t i = 0; i < RG_LEN(bad_offsets); i++) {
        one_tensor("t", 1, eight, 0, bad_offsets[i]);
        refuse_bytes("'t': offset");
    }
    for (size_t i = 0; i < RG_LEN(bad_names); i++) {
        one_tensor(bad_names[i], 1, eight, 0, 0);
        refuse_bytes("the name of tensor 0");
    }
    one_tensor("t", 1, eight, 2, 0); /* 8 values of q4_0 */
    refuse_bytes("whole blocks of q4_0");
    memset(name, 'n', sizeof name);
    name[599] = '\0';
    one_tensor(name, 1, eight, 0, 0);
    refuse_bytes("name");
    name[512] = '\0';
    one_tensor(name, 1, eight, 0, 0);
    accept_bytes();
}

/* Two tensors of 32 bytes, the second at this offset. */
static void two_tensors(const char *second, uint64_t offset, size_t n_data)
{
    gguf_head(&b, 3, 2, 0);
    gguf_tensor(&b, "t", 1, eight, 0, 0);
    gguf_tensor(&b, second, 1, eight, 0, offset);
    pad(&b, 32);
    for (size_t i = 0; i < n_data; i++)
        u8(&b, 0);
}

static void places_are_checked(void **state)
{
    (void)state;
    two_tensors("u", 32, 64);
    accept_bytes();
    two_tensors("u", 0, 64);
    refuse_bytes("'u': offset 0, want 32");
    two_tensors("u", 64, 128);
    refuse_bytes("'u': offset 64, want 32");
    two_tensors("t", 32, 64);
    refuse_bytes("'t' is there twice");
    two_tensors("u", 32, 63);
    refuse_bytes("'u': 32 bytes at");
    two_tensors("u", 32, 31);
    refuse_bytes("'t': 32 bytes at");
    two_tensors("u", 32, 0);
    refuse_bytes("'t'");
    gguf_head(&b, 3, 2, 0); /* out of order */
    gguf_tensor(&b, "t", 1, eight, 0, 32);
    gguf_tensor(&b, "u", 1, eight, 0, 0);
    pad(&b, 32);
    refuse_bytes("'t': offset 32, want 0");
}

static void truncation_is_refused_at_every_byte(void **state)
{
    size_t n;
    char *whole;

    (void)state;
    gguf_head(&b, 3, 2, 4);
    str(&b, "general.architecture");
    u32(&b, 8);
    str(&b, "llama");
    str(&b, "x.array");
    u32(&b, 9);
    u32(&b, 8);
    u64(&b, 2);
    str(&b, "one");
    str(&b, "two");
    str(&b, "x.numbers");
    u32(&b, 9);
    u32(&b, 5);
    u64(&b, 3);
    u64(&b, 0);
    u32(&b, 0);
    str(&b, "x.yes");
    u32(&b, 7);
    u8(&b, 1);
    gguf_tensor(&b, "t", 1, eight, 0, 0);
    gguf_tensor(&b, "u", 2, (const uint64_t[2]){ 32, 3 }, 2, 32);
    pad(&b, 32);
    for (int i = 0; i < 32 + 54; i++)
        u8(&b, 0);
    accept_bytes();
    n = b.n;
    whole = rg_alloc(n);
    memcpy(whole, b.data, n);
    for (size_t cut = 0; cut < n; cut++) {
        put_file("h.gguf", whole, cut);
        expect_refused(in_scratch("h.gguf"), "h.gguf");
    }
    /* Each byte changed in turn: refused or opened, but never more than that. */
    for (size_t at = 0; at < n; at++) {
        for (int bit = 0; bit < 8; bit += 7) {
            rg_error err;
            whole[at] ^= (char)(1 << bit);
            put_file("h.gguf", whole, n);
            rg_checkpoint_close(rg_checkpoint_open(in_scratch("h.gguf"), 0, &err));
            whole[at] ^= (char)(1 << bit);
        }
    }
    rg_free(whole);
}

/* 1 TB of nothing behind a header that claims all of it. */
static void sparse_files_cost_nothing(void **state)
{
    (void)state;
    array_head("k", 0, (uint64_t)1 << 39);
    put_file("h.gguf", b.data, b.n);
    if (truncate(in_scratch("h.gguf"), (off_t)1 << 40))
        skip();
    expect_refused(in_scratch("h.gguf"), "'k'");
    gguf_head(&b, 3, (uint64_t)1 << 30, 0);
    put_file("h.gguf", b.data, b.n);
    assert_int_equal(truncate(in_scratch("h.gguf"), (off_t)1 << 40), 0);
    expect_refused(in_scratch("h.gguf"), "tensor 0");
}

/* Quadratic would take minutes, and meet the watchdog. */
static void many_keys_and_tensors_take_linear_time(void **state)
{
    enum { N = 100000, WATCHDOG_S = 60 };
    char name[32];
    rg_checkpoint *c;
    rg_error err;

    (void)state;
    gguf_head(&b, 3, N, N);
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "key.%d", i);
        str(&b, name);
        u32(&b, 4);
        u32(&b, (uint32_t)i);
    }
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "tensor.%d", i);
        gguf_tensor(&b, name, 1, eight, 0, 32 * (uint64_t)i);
    }
    pad(&b, 32);
    for (int i = 0; i < N * 4; i++)
        u64(&b, 0);
    put_file("h.gguf", b.data, b.n);
    alarm(WATCHDOG_S);
    c = rg_checkpoint_open(in_scratch("h.gguf"), 0, &err);
    alarm(0);
    assert_ok(c, err);
    assert_int_equal(rg_checkpoint_n_tensors(c), N);
    assert_non_null(rg_checkpoint_find(c, "tensor.99999"));
    rg_checkpoint_close(c);
}

static void split_names_are_checked(void **state)
{
    (void)state;
    gguf_head(&b, 3, 0, 0);
    put_file("x-00000-of-00002.gguf", b.data, b.n);
    expect_refused(in_scratch("x-00000-of-00002.gguf"), "part 0 of 2");
    put_file("x-00003-of-00002.gguf", b.data, b.n);
    expect_refused(in_scratch("x-00003-of-00002.gguf"), "part 3 of 2");
    put_file("x-00001-of-99999.gguf", b.data, b.n);
    expect_refused(in_scratch("x-00001-of-99999.gguf"), "part 1 of 99999");
    put_file("x-00001-of-00002.gguf", b.data, b.n);
    expect_refused(in_scratch("x-00001-of-00002.gguf"), "split.no");
    entry_head("split.count", 8);
    str(&b, "2");
    refuse_bytes("split.count");
    entry_head("split.count", 3);
    u8(&b, 0xff);
    u8(&b, 0xff);
    refuse_bytes("split.count");
}

/* ---- safetensors ---- */

static void refuse_header(const char *header, size_t n_data, const char *word)
{
    put_safetensors("h.safetensors", header, n_data);
    expect_refused(in_scratch("h.safetensors"), word);
}

static void safetensors_headers_are_checked(void **state)
{
    static const struct {
        const char *header;
        size_t n_data;
        const char *word;
    } bad[] = {
        { "[]", 0, "does not start with" },
        { " {}", 0, "does not start with" },
        { "{", 0, "header" },
        { "{}x", 0, "header" },
        { "{}", 1, "behind the last tensor" },
        { "{\"a\":1}", 0, "'a'" },
        { "{\"a\":{}}", 0, "'a'" },
        { "{\"\\u0000\":{}}", 0, "header" },
        { "{\"\xff\":{}}", 0, "header" },
        { "{\"a\":{\"dtype\":\"F32\"}}", 0, "'a': 'shape'" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "'a': 'data_offsets'" },
        { "{\"a\":{\"dtype\":\"F8_E3M4\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, "F8_E3M4" },
        { "{\"a\":{\"dtype\":\"C64\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, "C64" },
        { "{\"a\":{\"dtype\":\"\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, "dtype ''" },
        { "{\"a\":{\"dtype\":5,\"shape\":[4],\"data_offsets\":[0,4]}}", 4, "'a'" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "dimension 0" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 4, "dimension 0" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1e400],\"data_offsets\":[0,4]}}", 4, "header" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[\"1\"],\"data_offsets\":[0,4]}}", 4, "dimension 0" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1],\"data_offsets\":[0,4]}}", 4, "5 dimensions" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0, "multiply" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[9223372036854775807],\"data_offsets\":[0,0]}}", 0, "multiply" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[18446744073709551616],\"data_offsets\":[0,0]}}", 0, "dimension 0" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "does not make 4 bytes" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,8]}}", 8, "does not make 8 bytes" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,4]}}", 4, "does not make 4 bytes" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, "do not lie" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", 4, "data_offsets" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "data_offsets" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 4, "data_offsets" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,9223372036854775807]}}", 4, "do not lie" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, "hole" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
          "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
          4, "overlaps" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
          "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
          8, "overlaps" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
          "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
          8, "twice" },
        { "{\"__metadata__\":[]}", 0, "__metadata__" },
        { "{\"__metadata__\":{\"a\":1}}", 0, "__metadata__" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[NaN],\"data_offsets\":[0,4]}}", 4, "dimension 0" },
    };
    static const uint64_t lengths[] = { 0, 1, 17, 100000001, (uint64_t)1 << 63, UINT64_MAX, UINT64_MAX - 7 };

    (void)state;
    for (size_t i = 0; i < RG_LEN(bad); i++)
        refuse_header(bad[i].header, bad[i].n_data, bad[i].word);
    for (size_t i = 0; i < RG_LEN(lengths); i++) {
        rg_buf_reset(&b);
        u64(&b, lengths[i]);
        rg_buf_str(&b, "{}              ");
        put_file("h.safetensors", b.data, b.n);
        expect_refused(in_scratch("h.safetensors"), "a header of");
    }
    for (size_t n = 0; n < 8; n++) {
        put_file("h.safetensors", "\2\0\0\0\0\0\0\0", n);
        expect_refused(in_scratch("h.safetensors"), "too few");
    }
}

static void deep_and_wide_json_is_refused(void **state)
{
    enum { DEPTH = 100000 };
    char *text = rg_alloc(DEPTH * 8 + 100);
    size_t n = 0;

    (void)state;
    n = (size_t)sprintf(text, "{\"a\":");
    memset(text + n, '[', DEPTH);
    text[n + DEPTH] = '\0';
    refuse_header(text, 0, "nested more than 64 deep");
    for (int i = 0; i < DEPTH; i++)
        n += (size_t)sprintf(text + n, "{\"a\":");
    refuse_header(text, 0, "nested more than 64 deep");
    rg_free(text);
    text = rg_alloc((size_t)10 << 20);
    n = (size_t)sprintf(text, "{\"a\":[0");
    while (n < (size_t)9 << 20) {
        text[n++] = ',';
        text[n++] = '0';
    }
    strcpy(text + n, "]}");
    refuse_header(text, 0, "bytes of memory");
    rg_free(text);
}

/* What is allocated at most. */
static bool note_peak(void *arg, size_t bytes)
{
    size_t *peak = arg, now = rg_mem_count().live_bytes + bytes;

    *peak = now > *peak ? now : *peak;
    return true;
}

/* A header of some MB, as of very many tensors with the shortest of names, takes 16 times its size and 16 MB at most. */
static void long_headers_take_bounded_memory(void **state)
{
    const size_t bytes = (size_t)(TEST_SLOWER > 1 ? 3 : test_all() ? 25 : 8) << 20;
    static const char *const entries[] = {
        "\"t%zu\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[%zu,%zu]},",
        "\"model.layers.%zu.mlp.down_proj.weight\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[%zu,%zu]},",
        "\"%zu\":[],",
        "\"model.layers.%zu.mlp.experts.12.down_proj.weight\":{\"dtype\":\"BF16\",\"shape\":[0,4096],\"data_offsets\":[0,0]},",
    };

    (void)state;
    for (size_t k = 0; k < RG_LEN(entries); k++) {
        char *text = rg_alloc(bytes + 256);
        size_t n = 1, i = 0, before, peak = 0;
        rg_error err = { 0 };
        text[0] = '{';
        for (; n < bytes; i++)
            n += (size_t)sprintf(text + n, entries[k], i, i, i + 1);
        text[n - 1] = '}';
        text[n] = '\0';
        put_safetensors("long.safetensors", text, i);
        rg_free(text);
        before = rg_mem_count().live_bytes;
        rg_mem_set_gate(note_peak, &peak);
        rg_checkpoint *c = rg_checkpoint_open(in_scratch("long.safetensors"), RG_CKPT_NO_WEIGHTS, &err);
        rg_mem_set_gate(NULL, NULL);
        assert_true(c || err.text[0]);
        rg_checkpoint_close(c);
        if (peak - before > 16 * n + (16 << 20))
            fail_msg("%s: %zu bytes of memory for %zu", entries[k], peak - before, n);
    }
}

/* The same of a config. */
static void long_configs_take_bounded_memory(void **state)
{
    const size_t bytes = (size_t)(TEST_SLOWER > 1 ? 1 : test_all() ? 6 : 3) << 20;
    static const char *const pieces[] = {
        "\"k%zx\":0,", "\"k%zx\":{},", "\"k%zx\":[0,{}],", "\"k%zx\":\"\",", "\"k%zx\":[1,2,3,4,5,6,7,8],",
        "\"a_key_as_long_as_keys_are_%zu\": 0.12345,\n",
    };

    (void)state;
    mkdir(in_scratch("long"), 0755);
    for (size_t k = 0; k < RG_LEN(pieces); k++) {
        char *text = rg_alloc(bytes + 256);
        size_t n = 1, i = 0, before, peak = 0;
        rg_error err = { 0 };
        text[0] = '{';
        for (; n < bytes; i++)
            n += (size_t)sprintf(text + n, pieces[k], i);
        strcpy(text + n, "\"z\":0}");
        put_text("long/config.json", text);
        rg_free(text);
        before = rg_mem_count().live_bytes;
        rg_mem_set_gate(note_peak, &peak);
        rg_checkpoint *c = rg_checkpoint_open(in_scratch("long"), RG_CKPT_NO_WEIGHTS, &err);
        rg_mem_set_gate(NULL, NULL);
        assert_true(c || strstr(err.text, "memory"));
        rg_checkpoint_close(c);
        if (peak - before > 16 * n + (16 << 20))
            fail_msg("%s: %zu bytes of memory for %zu", pieces[k], peak - before, n);
    }
}

static void refuse_index(const char *index, const char *word)
{
    put_text("hf/model.safetensors.index.json", index);
    expect_refused(in_scratch("hf"), word);
}

static void indexes_are_checked(void **state)
{
    static const char *const names[] = {
        "../out.safetensors",  "/etc/passwd.safetensors", "a/b.safetensors", "..", ".safetensors", "x.bin", "",
        ".hidden.safetensors", "a\\\\b.safetensors"
    };
    char text[200];

    (void)state;
    mkdir(in_scratch("hf"), 0755);
    put_text("hf/config.json", "{}");
    put_safetensors("hf/one.safetensors", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4);
    put_safetensors("hf/two.safetensors", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4);
    put_safetensors("out.safetensors", "{}", 0);
    for (size_t i = 0; i < RG_LEN(names); i++) {
        snprintf(text, sizeof text, "{\"weight_map\":{\"a\":\"%s\"}}", names[i]);
        refuse_index(text, "the file of tensor 'a'");
    }
    refuse_index("{}", "weight_map");
    refuse_index("[]", "weight_map");
    refuse_index("{\"weight_map\":{}}", "weight_map");
    refuse_index("{\"weight_map\":{\"a\":5}}", "'a'");
    refuse_index("{\"weight_map\":{\"a\":\"none.safetensors\"}}", "none.safetensors is missing");
    refuse_index("{\"weight_map\":{\"b\":\"one.safetensors\"}}", "'b' is not in one.safetensors");
    refuse_index("{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"two.safetensors\"}}", "'a' is there twice");
    put_safetensors("hf/three.safetensors", "{\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                                            "\"c\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8);
    refuse_index("{\"weight_map\":{\"a\":\"one.safetensors\",\"c\":\"three.safetensors\"}}",
                 "'b' is in three.safetensors, and not in the map");
    mkdir(in_scratch("hf/dir.safetensors"), 0755);
    refuse_index("{\"weight_map\":{\"a\":\"dir.safetensors\"}}", "dir.safetensors");
}

/* Who asks for no weights may do without any of the shards, and not with a part of them or a bad map. */
static void indexes_are_checked_without_weights(void **state)
{
    static const struct { const char *index, *word; } cases[] = {
        { "{\"weight_map\":{\"a\":\"none.safetensors\",\"b\":\"nor-this.safetensors\"}}", NULL },
        { "{\"weight_map\":{}}", "weight_map" },
        { "{\"weight_map\":{\"a\":\"none.safetensors\",\"b\":\"one.safetensors\"}}", "none.safetensors is missing" },
        { "{\"weight_map\":{\"x\":\"one.safetensors\"}}", "'x' is not in one.safetensors" },
        { "{\"weight_map\":{\"a\":\"../one.safetensors\"}}", "the file of tensor 'a'" },
        { "{\"weight_map\":", "not JSON" },
    };

    (void)state;
    mkdir(in_scratch("bare"), 0755);
    put_text("bare/config.json", "{}");
    put_safetensors("bare/one.safetensors", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4);
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        rg_error err = { 0 };
        put_text("bare/model.safetensors.index.json", cases[i].index);
        rg_checkpoint *c = rg_checkpoint_open(in_scratch("bare"), RG_CKPT_NO_WEIGHTS, &err);
        if (!cases[i].word)
            assert_ok(c, err);
        else if (c || !strstr(err.text, cases[i].word))
            fail_msg("%s: '%s'", cases[i].index, c ? "opened" : err.text);
        rg_checkpoint_close(c);
    }
}

static void refuse_config(const char *text, size_t n, const char *word)
{
    put_file("hf/config.json", text, n);
    expect_refused(in_scratch("hf/config.json"), word);
}

static void configs_are_checked(void **state)
{
    char *big = rg_zalloc((size_t)65 << 20);

    (void)state;
    refuse_config("", 0, "config.json");
    refuse_config("[]", 2, "not a JSON object");
    refuse_config("{\"a\":1,\"a\":2}", 13, "twice");
    refuse_config("{\"a\":{\"b\":1},\"a.b\":2}", 21, "'a.b' is there twice");
    refuse_config("{\"a\":1}\0", 8, "config.json");
    refuse_config("{\"a\":1e999}", 11, "config.json");
    refuse_config("{\"a\":\"\xff\"}", 9, "config.json");
    refuse_config("{\"a\":01}", 8, "config.json");
    refuse_config("{\"a\":\"\\ud800\"}", 14, "config.json");
    refuse_config("{\"a\":\"unfinished", 16, "config.json");
    refuse_config("{\"a\":\"unfinished\\", 17, "config.json");
    refuse_config(big, (size_t)65 << 20, "more than");
    memset(big, 'k', 70000);
    memcpy(big, "{\"", 2);
    memcpy(big + 70000, "\":1}", 5);
    refuse_config(big, 70004, "65535");
    rg_free(big);
    mkdir(in_scratch("nothing"), 0755);
    expect_refused(in_scratch("nothing"), "config.json");
    expect_refused("/dev/zero", "regular");
    assert_int_equal(mkfifo(in_scratch("pipe"), 0600), 0);
    expect_refused(in_scratch("pipe"), "regular");
}

/* ---- failing machines ---- */

typedef struct countdown {
    int left;
} countdown;

static bool allow_bytes(void *arg, size_t bytes)
{
    (void)bytes;
    return ((countdown *)arg)->left-- > 0;
}

static bool allow_operation(void *arg, const char *operation)
{
    (void)operation;
    return ((countdown *)arg)->left-- > 0;
}

/* Fail the first, the second, ... until opening succeeds. */
static void fail_each(const char *path, bool memory)
{
    size_t n_live = rg_mem_count().n_live;
    rg_checkpoint *c = NULL;
    int n;

    for (n = 0; !c && n < 20000; n++) {
        countdown count = { n };
        rg_error err = { 0 };
        if (memory)
            rg_mem_set_gate(allow_bytes, &count);
        else
            rg_file_set_gate(allow_operation, &count);
        c = rg_checkpoint_open(path, 0, &err);
        rg_mem_set_gate(NULL, NULL);
        rg_file_set_gate(NULL, NULL);
        if (!c) {
            /* jansson tells of some failed allocations as of bad JSON. */
            assert_true(memory ? err.code == RG_E_MEMORY || err.code == RG_E_INPUT : err.code == RG_E_IO);
            if (rg_mem_count().n_live != n_live)
                fail_msg("%s: failure %d leaks %zu allocations: %s", path, n, rg_mem_count().n_live - n_live, err.text);
        }
    }
    assert_non_null(c);
    assert_true(n > 2);
    rg_checkpoint_close(c);
    assert_int_equal(rg_mem_count().n_live, n_live);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    fail_each(test_data("llama"), true);
    fail_each(test_data("stories260K.gguf"), true);
    fail_each(RG_SOURCE_DIR "/models/tales-1m", true);
}

static void every_read_may_fail(void **state)
{
    (void)state;
    fail_each(test_data("llama"), false);
    fail_each(test_data("stories260K.gguf"), false);
}

/* Writing, with the n-th allocation or operation failing: no leak, and the target absent or whole. */
static bool write_once(bool hf)
{
    static const rg_string strings[] = { { "a", 1 }, { "bc", 2 } };
    rg_error err = { 0 };
    rg_checkpoint *from = rg_checkpoint_open(test_data(hf ? "llama" : "llama/model.gguf"), 0, &err);
    rg_ckpt_writer *w = NULL;
    float x[8] = { 0 };
    bool ok = from != NULL;

    if (ok)
        w = hf ? rg_hf_create(in_scratch("w"), &err) : rg_gguf_create(in_scratch("w.gguf"), &err);
    ok = ok && w && rg_ckpt_put_all(w, from, NULL, &err) && rg_ckpt_put_strings(w, "x.y", strings, 2, &err) &&
         rg_ckpt_declare(w, "t", RG_F32, 1, (int64_t[]){ 8 }, &err) && rg_ckpt_write(w, x, sizeof x, &err);
    if (ok)
        ok = rg_ckpt_commit(w, &err);
    else
        rg_ckpt_abort(w);
    rg_checkpoint_close(from);
    assert_true(ok || err.code == RG_E_MEMORY || err.code == RG_E_IO || err.code == RG_E_INPUT);
    return ok;
}

static void every_step_of_writing_may_fail(void **state)
{
    size_t n_live = rg_mem_count().n_live;

    (void)state;
    for (int mode = 0; mode < 4; mode++) {
        bool ok = false;
        for (int n = 0; !ok && n < 20000; n++) {
            countdown count = { n };
            if (mode & 1)
                rg_mem_set_gate(allow_bytes, &count);
            else
                rg_file_set_gate(allow_operation, &count);
            ok = write_once(mode & 2);
            rg_mem_set_gate(NULL, NULL);
            rg_file_set_gate(NULL, NULL);
            if (rg_mem_count().n_live != n_live)
                fail_msg("mode %d, failure %d: %zu leaked", mode, n, rg_mem_count().n_live - n_live);
        }
        assert_true(ok);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_are_checked),
        cmocka_unit_test(keys_are_checked),
        cmocka_unit_test(values_are_checked),
        cmocka_unit_test(alignment_is_checked),
        cmocka_unit_test(tensors_are_checked),
        cmocka_unit_test(places_are_checked),
        cmocka_unit_test(truncation_is_refused_at_every_byte),
        cmocka_unit_test(sparse_files_cost_nothing),
        cmocka_unit_test(many_keys_and_tensors_take_linear_time),
        cmocka_unit_test(split_names_are_checked),
        cmocka_unit_test(safetensors_headers_are_checked),
        cmocka_unit_test(deep_and_wide_json_is_refused),
        cmocka_unit_test(long_headers_take_bounded_memory),
        cmocka_unit_test(long_configs_take_bounded_memory),
        cmocka_unit_test(indexes_are_checked),
        cmocka_unit_test(indexes_are_checked_without_weights),
        cmocka_unit_test(configs_are_checked),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(every_read_may_fail),
        cmocka_unit_test(every_step_of_writing_may_fail),
    };
    int failed;

    test_init(argc, argv);
    rg_buf_init(&b, 1 << 28);
    failed = cmocka_run_group_tests(tests, make_scratch, remove_scratch);
    rg_buf_fini(&b);
    return failed ? 1 : 0;
}
