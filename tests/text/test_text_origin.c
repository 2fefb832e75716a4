/* test_text_origin.c -- what foreign text may become, through every part of a tokenizer; and the splitters that GGUF
 * names. */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "support/tokenizer.h"
#include "text/internal.h"

static rg_tokenizer *from_text(const char *text)
{
    rg_tokenizer *t = rg_zalloc(sizeof *t);
    rg_error err = { 0 };

    assert_non_null(t);
    t->bos = t->eos = -1;
    assert_ok(rg_tokenizer_read_json(t, text, strlen(text), &err), err);
    return t;
}

/* A text whose foreign parts stand between '{' and '}', which are left out. */
static rg_ids encode(const rg_tokenizer *t, const char *marked)
{
    rg_text text;
    rg_ids ids = { 0 };
    rg_error err = { 0 };
    bool trusted = true;

    rg_text_init(&text, 1 << 20);
    for (const char *p = marked; *p; p++) {
        if (*p == '{' || *p == '}')
            trusted = *p == '}';
        else
            assert_true(rg_text_add(&text, p, 1, trusted));
    }
    assert_ok(rg_tokenizer_encode_text(t, &text, RG_ENCODE_NO_SPECIAL, &ids, &err), err);
    rg_text_fini(&text);
    return ids;
}

static bool has(const rg_ids *ids, int32_t id)
{
    for (size_t i = 0; i < ids->n; i++)
        if (ids->id[i] == id)
            return true;
    return false;
}

#define MODEL                                                                                                           \
    "\"model\":{\"type\":\"BPE\",\"byte_fallback\":false,\"vocab\":{\"<\":0,\"s\":1,\">\":2,\" \":3,"                     \
    "\"\xE2\x96\x81\":4,\"x\":5,\"<s>\":6,\"<s\":7},\"merges\":[\"< s\",\"<s >\"]}"

/* Special id 6 of each text or not, under each normaliser. */
static void through_normalizers(void **state)
{
    static const struct {
        const char *normalizer, *text;
        bool special;
    } cases[] = {
        { "null", "x<s>x", true },
        { "null", "x{<s>}x", false },
        { "null", "x<{s}>x", false },
        { "null", "{x}<s>{x}", true },
        { "null", "<s{>}", false },
        { "{\"type\":\"Lowercase\"}", "<S>", true },
        { "{\"type\":\"Lowercase\"}", "<{S}>", false },
        { "{\"type\":\"Lowercase\"}", "{X}<S>{X}", true },
        { "{\"type\":\"NFKC\"}", "{x}\xEF\xBC\x9Cs>", true },
        { "{\"type\":\"NFKC\"}", "{\xEF\xBC\x9C}s>x", false },
        { "{\"type\":\"Prepend\",\"prepend\":\"-\"}", "<s>{x}", true }, /* what is put in, here and in the token, is nobody's */
        { "{\"type\":\"Prepend\",\"prepend\":\"-\"}", "{<}s>", false },
        { "{\"type\":\"Replace\",\"pattern\":{\"String\":\"xx\"},\"content\":\"<s>\"}", "xx", true },
        { "{\"type\":\"Replace\",\"pattern\":{\"String\":\"xx\"},\"content\":\"<s>\"}", "x{x}", false },
        { "{\"type\":\"Replace\",\"pattern\":{\"String\":\"-\"},\"content\":\"\"}", "<-s>", true },
        { "{\"type\":\"Replace\",\"pattern\":{\"String\":\"-\"},\"content\":\"\"}", "<{-}s>", false }, /* it comes of that too */
        { "{\"type\":\"Replace\",\"pattern\":{\"String\":\"-\"},\"content\":\"\"}", "{-}<s>{-}", true },
        { "{\"type\":\"Nmt\"}", "<{\x01}s>", false },
        { "{\"type\":\"Nmt\"}", "{x\x01}<s>", true },
        { "{\"type\":\"BertNormalizer\"}", "{x\x07}<S>", true },
        { "{\"type\":\"BertNormalizer\"}", "<{S\x07}>", false },
        { "{\"type\":\"StripAccents\"}", "<{\xCC\x81}s>", false },
        { "{\"type\":\"Strip\"}", "{ } <s> { }", true },
        { "{\"type\":\"Strip\"}", "{  <s>  }", false },
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        char json[1024];
        rg_ids ids;
        rg_tokenizer *t;
        snprintf(json, sizeof json,
                 "{\"normalizer\":%s,\"added_tokens\":[{\"id\":6,\"content\":\"<s>\",\"special\":true,\"normalized\":%s}],"
                 "" MODEL "}",
                 cases[i].normalizer, i < 5 ? "false" : "true");
        t = from_text(json);
        ids = encode(t, cases[i].text);
        if (has(&ids, 6) != cases[i].special)
            fail_msg("%s: %s: %s", cases[i].normalizer, cases[i].text, cases[i].special ? "no special token" : "a special one");
        rg_ids_fini(&ids);
        rg_tokenizer_close(t);
    }
}

/* lstrip and rstrip take any white space; tokens that are not special match anywhere; merges stay honest. */
static void flags(void **state)
{
    static const char json[] = "{\"added_tokens\":[{\"id\":8,\"content\":\"[M]\",\"special\":true,\"normalized\":false,"
    "\"lstrip\":true,"
                               "\"rstrip\":true},{\"id\":9,\"content\":\"[N]\",\"special\":false,\"normalized\":false},"
                               "{\"id\":6,\"content\":\"<s>\",\"special\":true,\"normalized\":false}]," MODEL "}";
    static const struct {
        const char *text;
        int32_t ids[8];
        size_t n;
    } cases[] = {
        { "{x  }[M]{  x}", { 5, 8, 5 }, 3 }, { "{x[M]x}", { 5, 5 }, 2 }, { "{x[N]}[N]", { 5, 9, 9 }, 3 },
        { "{<s>}", { 7, 2 }, 2 },            { "<s>{ }x", { 6, 3, 5 }, 3 },
    };
    rg_tokenizer *t = from_text(json);

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        rg_ids ids = encode(t, cases[i].text);
        if (ids.n != cases[i].n || memcmp(ids.id, cases[i].ids, ids.n * sizeof *ids.id))
            fail_msg("%s", cases[i].text);
        rg_ids_fini(&ids);
    }
    rg_tokenizer_close(t);
}

static const char *const names[] = { "bytelevel-gpt2", "bytelevel-llama3", "bytelevel-qwen2", "bytelevel-o200k",
                                     "bytelevel-deepseek",
                                     "gemma", "metaspace-first", "spm-llama2", "unigram-t5", "wordpiece-bert" };

/* Every special token of a vocabulary in a foreign text, whole or cut by origins: none comes of it, but for what stands for
 * the unknown; and a text without any has the ids that it would have alone, wherever it came from. */
static void no_control_from_outside(void **state)
{
    rg_rng rng = { .seed = test_seed };

    (void)state;
    for (size_t k = 0; k < RG_LEN(names); k++) {
        rg_tokenizer *t = test_tokenizer(names[k]);
        rg_error err = { 0 };
        int32_t unk = t->model == &rg_word_model_bpe ? t->bpe.unk : t->model == &rg_word_model_unigram ? t->unigram.unk
                                                                                                      : t->wordpiece.unk;
        for (int round = 0; round < 40; round++) {
            rg_text text, harmless;
            rg_ids ids = { 0 }, want = { 0 };
            rg_text_init(&text, 1 << 20);
            rg_text_init(&harmless, 1 << 20);
            for (int32_t id = 0; id < rg_tokenizer_size(t); id++) {
                rg_string s = t->vocab.piece[id];
                if (rg_tokenizer_is_special(t, id))
                    assert_true(rg_text_add(&text, " Ab", rg_rng_below(&rng, 4), true) && rg_text_add(&text, s.data, s.n, false));
                else if (s.n && rg_rng_below(&rng, (uint32_t)rg_tokenizer_size(t)) < 30 && !memchr(s.data, '<', s.n) &&
                         !memchr(s.data, '[', s.n))
                    assert_true(rg_text_add(&harmless, s.data, s.n, rg_rng_below(&rng, 2)));
            }
            assert_ok(rg_tokenizer_encode_text(t, &text, RG_ENCODE_NO_SPECIAL, &ids, &err), err);
            for (size_t i = 0; i < ids.n; i++)
                if (rg_tokenizer_is_special(t, ids.id[i]) && ids.id[i] != unk)
                    fail_msg("%s: special id %d", names[k], ids.id[i]);
            ids.n = 0;
            assert_ok(rg_tokenizer_encode_text(t, &harmless, RG_ENCODE_DEFAULT, &ids, &err), err);
            assert_ok(rg_tokenizer_encode(t, harmless.bytes.data, harmless.bytes.n, RG_ENCODE_DEFAULT, &want, &err), err);
            assert_int_equal(ids.n, want.n);
            if (ids.n)
                assert_memory_equal(ids.id, want.id, ids.n * sizeof *ids.id);
            rg_ids_fini(&ids);
            rg_ids_fini(&want);
            rg_text_fini(&text);
            rg_text_fini(&harmless);
        }
        rg_tokenizer_close(t);
    }
}

/* ---- what is remembered within a text ---- */

static rg_buf normal(rg_norm_kind kind, const char *text, size_t n)
{
    rg_normalizer z = { 0 };
    rg_draft two[2] = { 0 };
    rg_passage p = { .text = text, .n = n };
    rg_error err = { 0 };
    rg_matcher *m = rg_matcher_new(n, &err);
    rg_buf out;

    rg_buf_init(&out, 1 << 20);
    assert_ok(m && rg_normalizer_add(&z, (rg_norm_step){ .kind = kind }, &err) && rg_normalize(&z, m, two, &p, &err), err);
    assert_true(rg_buf_add(&out, p.text, p.n));
    rg_draft_fini(&two[0]);
    rg_draft_fini(&two[1]);
    rg_normalizer_fini(&z);
    rg_matcher_free(m);
    return out;
}

/* A text of parts that each begin with a letter is what its parts are, whatever was remembered of those before. */
static void memory_of_characters(void **state)
{
    static const uint32_t codes[] = { 'a', 'e', 0xE9, 0xC9, 0x301, 0x308, 0x348, 0x308 - 64, 0x323, 0x1100, 0x1161, 0x11A8,
                                      0xAC00, 0xAC40, 0x3B1, 0x391, 0x345, 0x2126, 0xFB01, 0x1E9B, 0x4E2D, 0x7EF, 0x1039 };
    static const rg_norm_kind kinds[] = { RG_NORM_NFC, RG_NORM_NFKC, RG_NORM_NFD, RG_NORM_LOWERCASE, RG_NORM_IDEOGRAPHS,
                                          RG_NORM_STRIP_MARKS };
    rg_rng rng = { .seed = test_seed };

    (void)state;
    for (size_t k = 0; k < RG_LEN(kinds); k++) {
        char text[4096];
        size_t n = 0;
        rg_buf parts, whole;
        rg_buf_init(&parts, 1 << 20);
        for (int part = 0; part < 300; part++) {
            size_t from = n;
            text[n++] = "aeo"[rg_rng_below(&rng, 3)];
            for (uint32_t i = rg_rng_below(&rng, 4); i; i--)
                n += (size_t)rg_utf8_encode(codes[rg_rng_below(&rng, RG_LEN(codes))], text + n);
            whole = normal(kinds[k], text + from, n - from);
            assert_true(rg_buf_add(&parts, whole.data, whole.n));
            rg_buf_fini(&whole);
        }
        whole = normal(kinds[k], text, n);
        assert_int_equal(whole.n, parts.n);
        assert_memory_equal(whole.data, parts.data, parts.n);
        rg_buf_fini(&whole);
        rg_buf_fini(&parts);
    }
}

/* Words that are the same as the one before are not looked at; those that only look like it are. */
static void memory_of_words(void **state)
{
    static const char text[] = "aa aa ab ab aa ac aa aa";
    static const char *const want[] = { "aa", "aa", "a", "b", "a", "b", "aa", "ac", "aa", "aa" };
    rg_pretok p = { 0 };
    rg_words w = { 0 };
    rg_error err = { 0 };
    rg_passage whole = { .text = text, .n = sizeof text - 1 };
    rg_matcher *m = rg_matcher_new(sizeof text, &err);

    (void)state;
    assert_ok(m && rg_pretok_split(&p, " ", RG_SPLIT_REMOVED, false, &err) &&
                  rg_pretok_split(&p, "b", RG_SPLIT_ISOLATED, false, &err) && rg_pretok_cut(&p, m, &whole, &w, &err), err);
    assert_int_equal(w.n, RG_LEN(want));
    for (size_t i = 0; i < w.n; i++) {
        assert_int_equal(w.word[i].to - w.word[i].from, strlen(want[i]));
        assert_memory_equal(w.passage.text + w.word[i].from, want[i], strlen(want[i]));
    }
    rg_words_fini(&w);
    rg_pretok_fini(&p);
    rg_matcher_free(m);
}

/* Marks that change places leave the text's beginning where it was. */
static void beginning(void **state)
{
    rg_tokenizer *t = from_text("{\"normalizer\":{\"type\":\"NFD\"},\"pre_tokenizer\":{\"type\":\"Metaspace\","
                                "\"replacement\":\"_\",\"prepend_scheme\":\"first\",\"split\":false},\"model\":{\"type\":"
                                "\"BPE\",\"unk_token\":\"u\",\"vocab\":{\"_\":0,\"u\":1},\"merges\":[]}}");
    rg_ids ids = { 0 };
    rg_error err = { 0 };

    (void)state;
    assert_ok(rg_tokenizer_encode(t, "\xDF\xAF\xE1\x80\xB9", 5, RG_ENCODE_DEFAULT, &ids, &err), err);
    assert_int_equal(ids.n, 3);
    assert_int_equal(ids.id[0], 0);
    rg_ids_fini(&ids);
    rg_tokenizer_close(t);
}

/* Every published name compiles, and cuts a text into words that are all of it. */
static void splitters(void **state)
{
    static const char *const known[] = {
#define PRETOK(name, flags, ...) name,
#include "text/pretok.def"
#undef PRETOK
    };
    static const char text[] = "Hello  World's 12345 \xE4\xBD\xA0\xE5\xA5\xBD\r\n\r\n\t x \xC3\xA9t\xC3\xA9 getUserName "
                               "<sentinel:12> $^! \xF0\x9F\x98\x80 ";

    (void)state;
    for (size_t i = 0; i < RG_LEN(known); i++) {
        rg_pretok p = { 0 };
        rg_words w = { 0 };
        rg_error err = { 0 };
        unsigned says;
        size_t at = 0;
        rg_matcher *m = rg_matcher_new(sizeof text, &err);
        rg_passage whole = { .text = text, .n = sizeof text - 1 };

        assert_ok(m, err);
        assert_ok(rg_pretok_named(&p, known[i], &says, &err), err);
        assert_ok(rg_pretok_cut(&p, m, &whole, &w, &err), err);
        for (size_t k = 0; k < w.n; k++) {
            assert_int_equal(w.word[k].from, at);
            at = w.word[k].to;
        }
        assert_int_equal(at, sizeof text - 1);
        assert_true(w.n > 3);
        rg_words_fini(&w);
        rg_pretok_fini(&p);
        rg_matcher_free(m);
    }
    assert_true(RG_LEN(known) >= 80);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(through_normalizers),
        cmocka_unit_test(flags),
        cmocka_unit_test(no_control_from_outside),
        cmocka_unit_test(memory_of_characters),
        cmocka_unit_test(memory_of_words),
        cmocka_unit_test(beginning),
        cmocka_unit_test(splitters),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
