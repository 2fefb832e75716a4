/* test_hostile_tokenizer.c -- tokenizer.json and tokenizer_config.json files that mean harm, made by rule: each is refused
 * with a clear error, the same one twice, or works; in bounded time, and nothing is left behind. */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "text/internal.h"

#define BPE   "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}"
#define LEVEL "\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"u\",\"vocab\":{\"u\":0,\"a\":1}}"

enum {
    WATCHDOG_S = 60,
    TEXT = 1 << 16,
    MOST_BYTES = 64 << 20, /* of memory for a file, and so many for each byte of it */
    MOST_TIMES = 64,
};

static rg_tokenizer *from_text(const char *text, size_t n, rg_error *err)
{
    rg_tokenizer *t = rg_zalloc(sizeof *t);

    assert_non_null(t);
    t->bos = t->eos = -1;
    if (rg_tokenizer_read_json(t, text, n, err))
        return t;
    rg_tokenizer_close(t);
    return NULL;
}

/* What a tokenizer that opened makes of some texts: ids in range or a clean error, and decoding that ends. */
static void use(const rg_tokenizer *t)
{
    static const char *const units[] = { "a", "ab ", " ", "\xF0\x9F\x98\x80", "\xCC\x81", "<s>", "x", "\xFF", "1" };
    char *text = rg_alloc(TEXT);

    assert_non_null(text);
    for (size_t u = 0; u < RG_LEN(units); u++) {
        rg_ids ids = { 0 };
        rg_error err = { 0 };
        size_t n = 0, n_back;
        for (; n + strlen(units[u]) <= TEXT; n += strlen(units[u]))
            memcpy(text + n, units[u], strlen(units[u]));
        if (rg_tokenizer_encode(t, text, n, RG_ENCODE_DEFAULT, &ids, &err)) {
            for (size_t i = 0; i < ids.n; i++)
                assert_true(ids.id[i] >= 0 && ids.id[i] < rg_tokenizer_size(t));
            rg_free(rg_tokenizer_decode(t, ids.id, ids.n < 5000 ? ids.n : 5000, false, &n_back, &err));
        } else {
            assert_int_not_equal(err.code, RG_OK);
            assert_true(strlen(err.text) > 5);
        }
        rg_ids_fini(&ids);
    }
    rg_free(text);
}

static int n_files;

/* What has been allocated at most; in the way of nothing. */
static bool watch(void *arg, size_t bytes)
{
    size_t *peak = arg, now = rg_mem_count().live_bytes + bytes;

    *peak = now > *peak ? now : *peak;
    return true;
}

/* One file, twice.  must_fail: it has to be refused. */
static void check(const char *name, const char *json, size_t n, bool must_fail)
{
    size_t live = rg_mem_count().n_live, before = rg_mem_count().live_bytes, peak = 0;
    rg_error err[2] = { 0 };
    rg_tokenizer *t;

    n_files++;
    alarm(WATCHDOG_S);
    rg_mem_set_gate(watch, &peak);
    for (int turn = 0; turn < 2; turn++) {
        t = from_text(json, n, &err[turn]);
        if (t && must_fail)
            fail_msg("%s: accepted", name);
        if (!t && (err[turn].code == RG_OK || strlen(err[turn].text) < 5 || strlen(err[turn].text) > 400))
            fail_msg("%s: refused without a reason", name);
        for (const char *p = err[turn].text; *p; p++)
            if ((unsigned char)*p < 32)
                fail_msg("%s: a message with control characters", name);
        if (t && !turn)
            use(t);
        rg_tokenizer_close(t);
    }
    rg_mem_set_gate(NULL, NULL);
    assert_int_equal(err[0].code, err[1].code);
    assert_string_equal(err[0].text, err[1].text);
    if (peak > before + MOST_BYTES + MOST_TIMES * n)
        fail_msg("%s: took %zu bytes of memory, for a file of %zu", name, peak - before, n);
    alarm(0);
    assert_int_equal(rg_mem_count().n_live, live);
}

static void check_text(const char *json, bool must_fail)
{
    check(json, json, strlen(json), must_fail);
}

/* ---- written by hand ---- */

static void refused(void **state)
{
    static const char *const files[] = {
        "{", "null", "[]", "7", "\"x\"", "{\"model\":null}", "{\"model\":[]}", "{\"model\":{}}", "\xEF\xBB\xBF{}",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":[],\"merges\":[]}}",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}}",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]}}",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":2147483647},\"merges\":[]}}",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":2147483648},\"merges\":[]}}",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":9223372036854775808},\"merges\":[]}}",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1e400},\"merges\":[]}}",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":NaN},\"merges\":[]}}",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0.5},\"merges\":[]}}",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":null},\"merges\":[]}}",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":12000000},\"merges\":[]}}",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"\\ud800\":0},\"merges\":[]}}",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a c\"]}}",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a a\"]}}",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[[\"a\",\"a\",\"a\"]]}}",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[[\"a\",7]]}}",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":{}}}",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[],\"dropout\":0.5}}",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[],\"byte_fallback\":true}}",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[],\"unk_token\":7}}",
        "{\"model\":{\"type\":\"Unigram\",\"vocab\":{}}}",
        "{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}",
        "{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\"]]}}",
        "{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",\"b\"]]}}",
        "{\"model\":{\"type\":\"Unigram\",\"vocab\":[[7,0]]}}",
        "{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",NaN]]}}",
        "{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",-Infinity]]}}",
        "{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",1e400]]}}",
        "{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0]],\"unk_id\":1}}",
        "{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0]],\"unk_id\":-1}}",
        "{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0]],\"unk_id\":\"a\"}}",
        "{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0]],\"unk_id\":4294967296}}",
        "{\"model\":{\"type\":\"WordPiece\",\"vocab\":[]}}",
        "{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0},\"max_input_chars_per_word\":-1}}",
        "{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0},\"continuing_subword_prefix\":7}}",
        "{\"model\":{\"type\":\"WordLevel\",\"vocab\":{}}}",
        "{\"model\":{\"type\":\"Word\"}}",
        "{\"added_tokens\":[{\"id\":3,\"content\":\"\"}]," BPE "}",
        "{\"added_tokens\":[{\"id\":-3,\"content\":\"x\"}]," BPE "}",
        "{\"added_tokens\":[{\"id\":0,\"content\":\"x\"}]," BPE "}",
        "{\"added_tokens\":[{\"id\":2147483648,\"content\":\"x\"}]," BPE "}",
        "{\"added_tokens\":[{\"content\":\"x\"}]," BPE "}",
        "{\"added_tokens\":[{\"id\":3}]," BPE "}",
        "{\"added_tokens\":[{\"id\":3,\"content\":\"x\",\"lstrip\":2}]," BPE "}",
        "{\"added_tokens\":[[]]," BPE "}", "{\"added_tokens\":7," BPE "}",
        "{\"added_tokens\":[{\"id\":3,\"content\":\"xx\"}],\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"x\"},"
        "\"content\":\"\"}," BPE "}",
        "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(\"},\"content\":\"\"}," BPE "}",
        "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a{99999999}\"},\"content\":\"\"}," BPE "}",
        "{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAAA\"}," BPE "}",
        "{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"!\"}," BPE "}",
        "{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"/////w==\"}," BPE "}",
        "{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AwAAAAAAAA==\"}," BPE "}",
        "{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":7}," BPE "}",
        "{\"normalizer\":{\"type\":\"BertNormalizer\",\"lowercase\":\"yes\"}," BPE "}",
        "{\"pre_tokenizer\":{\"type\":\"FixedLength\",\"length\":0}," BPE "}",
        "{\"pre_tokenizer\":{\"type\":\"FixedLength\",\"length\":-9223372036854775808}," BPE "}",
        "{\"pre_tokenizer\":{\"type\":\"CharDelimiterSplit\",\"delimiter\":\"\"}," BPE "}",
        "{\"pre_tokenizer\":{\"type\":\"CharDelimiterSplit\",\"delimiter\":\"ab\"}," BPE "}",
        "{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\"}," BPE "}",
        "{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"last\"}," BPE "}",
        "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[\"},\"behavior\":\"Isolated\"}," BPE "}",
        "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{},\"behavior\":\"Isolated\"}," BPE "}",
        "{\"pre_tokenizer\":{\"type\":\"Punctuation\",\"behavior\":\"Odd\"}," BPE "}",
        "{\"decoder\":{\"type\":\"Strip\",\"content\":\" \",\"start\":-1}," BPE "}",
        "{\"decoder\":{\"type\":\"WordPiece\",\"prefix\":7}," BPE "}",
        "{\"decoder\":{\"type\":\"Sequence\",\"decoders\":{}}," BPE "}",
        "{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{}},{\"Sequence\":{}}]}," BPE "}",
        "{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}}]}," BPE "}",
        "{\"post_processor\":{\"type\":\"RobertaProcessing\",\"cls\":[\"a\",0],\"sep\":[\"b\",99]}," BPE "}",
        "{\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[],\"sep\":[]}," BPE "}",
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(files); i++)
        check_text(files[i], true);
    check_text("{" BPE "}", false); /* the frames are sound */
    check_text("{" LEVEL "}", false);
}

/* Odd, and no fault: they open, and texts give ids or a clean error. */
static void odd(void **state)
{
    static const char *const files[] = {
        "{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0]]}}",
        "{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"\",0],[\"a\",1e308],[\"aa\",1e308]],\"unk_id\":0}}",
        "{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",-1e308],[\"aa\",-1e308]],\"unk_id\":0}}",
        "{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\\u0000\",0],[\"a\",1]],\"unk_id\":0}}",
        "{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"##\":0,\"#\":1,\"a\":2,\"##a\":3}}}",
        "{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0},\"continuing_subword_prefix\":\"\",\"unk_token\":\"a\"}}",
        "{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0},\"max_input_chars_per_word\":0,\"unk_token\":\"a\"}}",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[],\"unk_token\":\"gone\"}}",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"aa\":1,\"aaa\":2},\"merges\":[\"a a\",\"aa a\",\"a aa\",\"a a\"]}}",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"xa\":1,\"ax\":2},\"merges\":[],\"continuing_subword_prefix\":\"x\","
        "\"end_of_word_suffix\":\"x\"}}",
        "{\"added_tokens\":[{\"id\":3,\"content\":\" \",\"lstrip\":true,\"rstrip\":true}]," BPE "}",
        "{\"added_tokens\":[{\"id\":0,\"content\":\"a\",\"special\":true},{\"id\":0,\"content\":\"a\"}]," BPE "}",
        "{\"added_tokens\":[{\"id\":3,\"content\":\"<s>\",\"single_word\":true,\"lstrip\":true,\"rstrip\":true}]," BPE "}",
        "{\"normalizer\":{\"type\":\"Prepend\",\"prepend\":\"\"}," BPE "}",
        "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"x\"}," BPE "}",
        "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"\"},\"content\":\"\"}," BPE "}",
        "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(?=a)\"},\"content\":\"b\"}," BPE "}",
        "{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"BAAAAAAAAAA=\"}," BPE "}",
        "{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"CAAAAP//////////YQ==\"}," BPE "}",
        "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"\"},\"behavior\":\"Removed\"}," BPE "}",
        "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(a+)+$\"},\"behavior\":\"Isolated\"}," BPE "}",
        "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?:a|a|aa)+[^a]\"},\"behavior\":\"Isolated\"}," BPE "}",
        "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?=(\\\\d{3})+(?!\\\\d))\"},"
        "\"behavior\":\"Isolated\"}," BPE
        "}",
        "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(.*)\\\\1x\"},\"behavior\":\"Isolated\"}," BPE "}",
        "{\"pre_tokenizer\":{\"type\":\"FixedLength\",\"length\":9223372036854775807}," BPE "}",
        "{\"decoder\":{\"type\":\"CTC\",\"pad_token\":\"\",\"word_delimiter_token\":\"\",\"cleanup\":true}," BPE "}",
        "{\"decoder\":{\"type\":\"BPEDecoder\",\"suffix\":\"\"}," BPE "}",
        "{\"decoder\":{\"type\":\"Strip\",\"content\":\"a\",\"start\":2147483647,\"stop\":2147483647}," BPE "}",
        "{\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"\"}," BPE "}",
        "{\"decoder\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a*\"},\"content\":\"xyz\"}," BPE "}",
        "{\"truncation\":{\"max_length\":-1},\"padding\":{\"strategy\":7}," BPE "}",
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(files); i++) {
        rg_error err = { 0 };
        rg_tokenizer *t = from_text(files[i], strlen(files[i]), &err);
        if (!t)
            fail_msg("%s: %s", files[i], err.text);
        rg_tokenizer_close(t);
        check_text(files[i], false);
    }
}

/* ---- large ---- */

static rg_buf big;

static void repeat(const char *s, size_t n)
{
    while (n--)
        assert_true(rg_buf_str(&big, s));
}

static void check_big(const char *name, bool must_fail)
{
    assert_false(big.failed);
    check(name, big.data, big.n, must_fail);
    rg_buf_reset(&big);
}

static void nested(const char *part, const char *list, size_t depth)
{
    rg_buf_printf(&big, "{\"%s\":", part);
    for (size_t i = 0; i < depth; i++)
        rg_buf_printf(&big, "{\"type\":\"Sequence\",\"%s\":[", list);
    for (size_t i = 0; i < depth; i++)
        rg_buf_str(&big, "]}");
    rg_buf_str(&big, "," BPE "}");
}

static void large(void **state)
{
    (void)state;
    rg_buf_init(&big, (size_t)1 << 28);
    repeat("[", 100000);
    check_big("brackets", true);
    nested("normalizer", "normalizers", 100000);
    check_big("nested normalizers", true);
    nested("pre_tokenizer", "pretokenizers", 20);
    check_big("nested pre-tokenizers", true);
    nested("decoder", "decoders", 9);
    check_big("nested decoders", true);
    rg_buf_str(&big, "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"}");
    repeat(",{\"type\":\"NFKD\"}", 100000);
    rg_buf_str(&big, "]}," BPE "}");
    check_big("100,000 normalizers", true);
    rg_buf_str(&big, "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"}");
    repeat(",{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aaaaaaaaaaaaaaaa\"}", 20);
    rg_buf_str(&big, "]}," BPE "}");
    check_big("an explosion", false);
    rg_buf_str(&big, "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"");
    repeat("x", 1000000);
    rg_buf_str(&big, "\"}," BPE "}");
    check_big("a replacement of a million", false);
    rg_buf_str(&big, "{\"added_tokens\":[{\"id\":3,\"content\":\"");
    repeat("x", 1000000);
    rg_buf_str(&big, "\"}]," BPE "}");
    check_big("an added token of a million", true);
    rg_buf_str(&big, "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"");
    repeat("a", 1000000);
    rg_buf_str(&big, "\":1},\"merges\":[]}}");
    check_big("a piece of a million", false);
    rg_buf_str(&big, "{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"a\",-1],[\"");
    repeat("a", 1000000);
    rg_buf_str(&big, "\",-1]]}}");
    check_big("a scored piece of a million", false);
    rg_buf_str(&big, "{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"a\",\"max_input_chars_per_word\":9000000,\"vocab\":{"
    "\"a\":0,\"");
    repeat("a", 1000000);
    rg_buf_str(&big, "\":1,\"##a\":2}}}");
    check_big("a wordpiece of a million", false);
    rg_buf_str(&big, "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"aa\":1},\"merges\":[\"a a\"");
    repeat(",\"a a\"", 1000000);
    rg_buf_str(&big, "]}}");
    check_big("a million merges", false);
    rg_buf_str(&big, "{\"added_tokens\":[");
    for (int i = 0; i < 20000; i++)
        rg_buf_printf(&big, "%s{\"id\":%d,\"content\":\"<%d>\",\"lstrip\":true}", i ? "," : "", i + 3, i);
    rg_buf_str(&big, "]," BPE "}");
    check_big("20,000 added tokens", false);
    rg_buf_str(&big, "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"");
    repeat("(", 60000);
    rg_buf_str(&big, "\"},\"behavior\":\"Isolated\"}," BPE "}");
    check_big("60,000 parentheses", true);
    rg_buf_str(&big, "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a");
    repeat("{1,9}", 12);
    rg_buf_str(&big, "\"},\"behavior\":\"Isolated\"}," BPE "}");
    check_big("intervals of intervals", false);
    rg_buf_str(&big, "{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{}}");
    repeat(",{\"SpecialToken\":{\"id\":\"x\"}}", 1000);
    rg_buf_str(&big, "],\"special_tokens\":{\"x\":{\"ids\":[0]}}}," BPE "}");
    check_big("a template of 1,000", true);
    rg_buf_fini(&big);
    printf("%d files\n", n_files);
    assert_true(n_files >= 80);
}

/* ---- tokenizer_config.json ---- */

static void configs(void **state)
{
    static const struct {
        const char *text;
        bool ok;
    } cases[] = {
        { "{}", true }, { "[]", true }, { "{", false }, { "{\"bos_token\":7}", false }, { "{\"bos_token\":[]}", false },
        { "{\"bos_token\":{\"content\":7}}", false }, { "{\"bos_token\":\"no such\"}", true }, { "{\"bos_token\":\"\"}", true },
        { "{\"bos_token\":null,\"eos_token\":{\"content\":\"b\"}}", true }, { "{\"eos_token\":{}}", true },
        { "{\"bos_token\":\"\\ud800\"}", false }, { "{\"bos_token\":\"a\",\"bos_token\":\"b\"}", false },
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        size_t live = rg_mem_count().n_live;
        rg_error err[2] = { 0 };
        for (int turn = 0; turn < 2; turn++) {
            rg_tokenizer *t = from_text("{" BPE "}", strlen("{" BPE "}"), &err[turn]);
            assert_ok(t, err[turn]);
            if (rg_tokenizer_read_config(t, cases[i].text, strlen(cases[i].text), &err[turn]) != cases[i].ok)
                fail_msg("%s: %s", cases[i].text, cases[i].ok ? err[turn].text : "accepted");
            assert_true(cases[i].ok || strlen(err[turn].text) > 5);
            rg_tokenizer_close(t);
        }
        assert_string_equal(err[0].text, err[1].text);
        assert_int_equal(rg_mem_count().n_live, live);
    }
}

/* ---- memory ---- */

static bool let(void *arg, size_t bytes)
{
    uint64_t *left = arg;

    (void)bytes;
    return *left && (*left)--;
}

/* All parts in one file: opened, used and closed with the N-th allocation failing, for every N. */
static void memory_fails(void **state)
{
    static const char *const files[] = {
        "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"BertNormalizer\"},{\"type\":\"NFKC\"},{\"type\":"
        "\"Precompiled\",\"precompiled_charsmap\":\"BAAAAAAAAAA=\"},{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"\\\\p{"
        "Greek}+\"},"
        "\"content\":\"x\"}]},\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"UnicodeScripts\"},{\"type\":"
        "\"Metaspace\",\"replacement\":\"_\"},{\"type\":\"FixedLength\"}]},\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{"
        "\"type\":"
        "\"WordPiece\"},{\"type\":\"CTC\"},{\"type\":\"BPEDecoder\"},{\"type\":\"Strip\",\"content\":\" \"}]},"
        "\"post_processor\":{\"type\":"
        "\"RobertaProcessing\",\"cls\":[\"a\",0],\"sep\":[\"b\",0]},\"added_tokens\":[{\"id\":1,\"content\":\"<s>\","
        "\"special\":true}],"
        "\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"byte_fallback\":true,\"vocab\":[[\"a\",-1],[\"<s>\",0],[\"b\",-2],["
        "\"ab\",-2]]}}",
        "{\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},\"decoder\":{\"type\":\"WordPiece\"},\"model\":{"
        "\"type\":\"WordPiece\","
        "\"unk_token\":\"a\",\"vocab\":{\"a\":0,\"##b\":1,\"c\":2}}}",
        "{\"model\":{\"type\":\"BPE\",\"unk_token\":\"a\",\"continuing_subword_prefix\":\"##\","
        "\"end_of_word_suffix\":\"</w>\",\"vocab\":"
        "{\"a\":0,\"##b</w>\":1,\"ab</w>\":2},\"merges\":[\"a ##b</w>\"]}}",
    };
    rg_text text;

    (void)state;
    rg_text_init(&text, 1 << 12);
    assert_true(rg_text_add(&text, "ab c\xCC\x81<s> ", 9, true) && rg_text_add(&text, "\xCE\xB1 <s>\xFF ab", 10, false));
    for (size_t i = 0; i < RG_LEN(files); i++) {
        size_t live = rg_mem_count().n_live;
        bool done = false;
        for (uint64_t k = 0; !done; k++) {
            uint64_t left = k;
            rg_error err = { 0 };
            rg_ids ids = { 0 };
            char *out = NULL;
            size_t n;
            rg_tokenizer *t = rg_zalloc(sizeof *t);
            t->bos = t->eos = -1;
            rg_mem_set_gate(let, &left);
            if (rg_tokenizer_read_json(t, files[i], strlen(files[i]), &err) &&
                rg_tokenizer_encode_text(t, &text, RG_ENCODE_DEFAULT, &ids, &err))
                out = rg_tokenizer_decode(t, ids.id, ids.n, false, &n, &err);
            rg_mem_set_gate(NULL, NULL);
            if (!out && err.code == RG_OK)
                fail_msg("file %zu, allocation %d: failed without an error", i, (int)k);
            done = out;
            rg_free(out);
            rg_ids_fini(&ids);
            rg_tokenizer_close(t);
            assert_int_equal(rg_mem_count().n_live, live);
        }
    }
    rg_text_fini(&text);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused), cmocka_unit_test(odd),          cmocka_unit_test(large),
        cmocka_unit_test(configs), cmocka_unit_test(memory_fails),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
