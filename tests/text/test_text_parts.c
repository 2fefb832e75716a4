/* test_text_parts.c -- the parts of a tokenizer: merging against a naive merger, bytes that are no text, foreign text,
 * hostile files, failing memory, and cost. */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "text/bpe.h"
#include "text/clean.h"
#include "text/normalform.h"
#include "text/regex.h"
#include "text/tokenizer.h"
#include "ckpt/json.h"
#include "text/internal.h"

static rg_tokenizer *open_ok(const char *path)
{
    rg_error err = { 0 };
    rg_tokenizer *t = rg_tokenizer_open_path(path, &err);

    assert_ok(t, err);
    return t;
}

/* A tokenizer from the text of a tokenizer.json. */
static rg_tokenizer *from_text(const char *text, rg_error *err)
{
    rg_tokenizer *t = rg_zalloc(sizeof *t);

    assert_non_null(t);
    t->bos = t->eos = -1;
    if (rg_tokenizer_read_json(t, text, strlen(text), err))
        return t;
    rg_tokenizer_close(t);
    return NULL;
}

static rg_ids encode(const rg_tokenizer *t, const char *s, size_t n, unsigned flags)
{
    rg_error err = { 0 };
    rg_ids ids = { 0 };

    assert_ok(rg_tokenizer_encode(t, s, n, flags, &ids, &err), err);
    return ids;
}

/* ---- merging ---- */

/* The best pair again and again, looking at all of them each time. */
static size_t merge_naively(const rg_bpe *b, int32_t *id, rg_string *text, size_t n)
{
    for (;;) {
        int best = -1;
        size_t at = 0;
        int32_t becomes = -1;
        for (size_t i = 0; i + 1 < n; i++) {
            int rank = -1, joined = -1;
            if (b->order) {
                joined = rg_vocab_id(b->vocab, text[i].data, text[i].n + text[i + 1].n);
                rank = joined >= 0 && b->vocab->type[joined] == RG_PIECE_NORMAL ? (int)b->order[joined] : -1;
            } else if (id[i] >= 0 && id[i + 1] >= 0) {
                rg_pair p = { id[i], id[i + 1] };
                for (size_t k = 0; k < b->n_pairs; k++)
                    if (!memcmp(&b->pairs[k], &p, sizeof p))
                        rank = (int)k, joined = b->joined[k];
            }
            if (rank >= 0 && (best < 0 || rank < best)) {
                best = rank;
                at = i;
                becomes = joined;
            }
        }
        if (best < 0)
            return n;
        id[at] = becomes;
        text[at].n += text[at + 1].n;
        memmove(id + at + 1, id + at + 2, (n - at - 2) * sizeof *id);
        memmove(text + at + 1, text + at + 2, (n - at - 2) * sizeof *text);
        n--;
    }
}

/* A long word that says the same again and again, in one stretch or several, is joined by way of a shorter one: to the
 * same ids as without that.  Was it? */
static bool check_repeats(const rg_bpe *b, rg_bpe_work *w, rg_rng *rng)
{
    enum { MOST = 40000 };
    char *word = rg_alloc(MOST);
    rg_ids ids = { 0 }, want = { 0 };
    rg_error err = { 0 };
    size_t n = 0, begun = w->n_begun;
    bool shorter;

    assert_non_null(word);
    for (uint32_t stretches = 1 + rg_rng_below(rng, 3); stretches; stretches--) {
        size_t period = 1 + rg_rng_below(rng, rg_rng_below(rng, 2) ? 3 : 20), noise = n + rg_rng_below(rng, 50) + period;
        size_t end = noise + 10000 + rg_rng_below(rng, 2000);
        for (; n < end; n++)
            word[n] = n < noise ? (char)('a' + rg_rng_below(rng, 4)) : word[n - period]; /* d is in no piece */
    }
    assert_ok(rg_bpe_encode(b, w, (rg_string){ word, n }, false, &ids, &err), err);
    shorter = w->n_begun - begun < n / 3 * 2;
    w->whole = true;
    assert_ok(rg_bpe_encode(b, w, (rg_string){ word, n }, false, &want, &err), err);
    w->whole = false;
    assert_int_equal(ids.n, want.n);
    assert_memory_equal(ids.id, want.id, ids.n * sizeof *ids.id);
    rg_ids_fini(&ids);
    rg_ids_fini(&want);
    rg_free(word);
    return shorter;
}

enum { LONG = 600, ROUNDS_OF_MERGES = 60 };

static void check_merger(bool by_scores)
{
    rg_rng rng = { .seed = test_seed };
    rg_error err = { 0 };
    int shorter = 0;

    for (int round = 0; round < ROUNDS_OF_MERGES; round++) {
        rg_vocab v;
        rg_bpe b;
        rg_bpe_work w = { 0 };
        float scores[64];

        assert_ok(rg_vocab_init(&v, 64, &err), err);
        for (int i = 0; i < 3; i++)
            assert_ok(rg_vocab_add(&v, i, (rg_string){ &"abc"[i], 1 }, RG_PIECE_NORMAL, &err), err);
        while (v.n < 40) {
            char text[16];
            rg_string x = v.piece[rg_rng_below(&rng, (uint32_t)v.n)], y = v.piece[rg_rng_below(&rng, (uint32_t)v.n)];
            if (x.n + y.n > 9)
                continue;
            memcpy(text, x.data, x.n);
            memcpy(text + x.n, y.data, y.n);
            if (rg_vocab_id(&v, text, x.n + y.n) < 0)
                assert_ok(rg_vocab_add(&v, v.n, (rg_string){ text, x.n + y.n }, RG_PIECE_NORMAL, &err), err);
        }
        rg_bpe_init(&b, &v);
        for (int i = 0; i < v.n; i++)
            scores[i] = (float)rg_rng_below(&rng, round % 2 ? 12 : 2); /* with ties, and not in the order of growth */
        for (int k = 0; k < 400 && !by_scores; k++) {
            rg_string x = v.piece[rg_rng_below(&rng, 40)], y = v.piece[rg_rng_below(&rng, 40)];
            rg_error ignored;
            (void)!rg_bpe_add_pair(&b, x, y, &ignored); /* most become no piece and are refused */
        }
        if (by_scores)
            assert_ok(rg_bpe_set_scores(&b, scores, &err), err);
        assert_ok(rg_bpe_seal(&b, &err), err);
        for (int k = 0; k < 40; k++) {
            char word[LONG];
            int32_t id[LONG];
            rg_string text[LONG];
            rg_ids ids = { 0 };
            size_t n = 1 + rg_rng_below(&rng, k % 10 ? 119 : LONG - 1), alphabet = 1 + rg_rng_below(&rng, 3), left;
            size_t period = k % 2 ? n : 1 + rg_rng_below(&rng, 5); /* long ones that repeat themselves go in sweeps */

            for (size_t i = 0; i < n; i++) {
                bool again = i >= period && rg_rng_below(&rng, 100);
                word[i] = again ? word[i - period] : (char)('a' + rg_rng_below(&rng, (uint32_t)alphabet));
                id[i] = word[i] - 'a';
                text[i] = (rg_string){ word + i, 1 };
            }
            left = merge_naively(&b, id, text, n);
            assert_ok(rg_bpe_encode(&b, &w, (rg_string){ word, n }, false, &ids, &err), err);
            assert_int_equal(ids.n, left);
            assert_memory_equal(ids.id, id, left * sizeof *id);
            rg_ids_fini(&ids);
        }
        shorter += check_repeats(&b, &w, &rng);
        rg_bpe_work_fini(&w);
        rg_bpe_fini(&b);
        rg_vocab_fini(&v);
    }
    assert_true(shorter > ROUNDS_OF_MERGES * 9 / 10); /* vocabularies of chance make it hard now and then */
}

static void merges_by_rank(void **state)
{
    (void)state;
    check_merger(false);
}

static void merges_by_score(void **state)
{
    (void)state;
    check_merger(true);
}

/* ---- bytes ---- */

static void streamed(const rg_tokenizer *t, const rg_ids *ids, rg_buf *out)
{
    const rg_spelling *z = rg_tokenizer_spelling(t);
    const uint32_t *offset = z->at[0].offset;

    rg_buf_reset(out);
    for (size_t i = 0; i < ids->n; i++)
        assert_true(rg_buf_add(out, z->at[0].data + offset[ids->id[i]], offset[ids->id[i] + 1] - offset[ids->id[i]]));
}

/* Any bytes come back from the ids' bytes; SentencePiece puts one space in front and writes U+2581 as a space. */
static void bytes_survive(void **state)
{
    const char *paths[] = { RG_SOURCE_DIR "/models/tales-7m", test_data("tokenizers/bytelevel-gpt2/tokenizer.json"),
                            test_data("stories260K.gguf") };
    static const char *const units[] = { "a",
                                         " ",
                                         "\xFF",
                                         "\xC3",
                                         "\xE2\x96",
                                         "\xED\xB2\x80",
                                         "\xF4\x90\x80\x80",
                                         "\xC0\xAF",
                                         "\xF0\x9F\x98\x80",
                                         "\n",
                                         "e\xCC\x81",
                                         "Once",
                                         "7",
                                         "\xC2\xAD",
                                         "\xEF\xBF\xBD" };
    rg_rng rng = { .seed = test_seed };
    rg_buf out;

    (void)state;
    rg_buf_init(&out, 1 << 20);
    for (size_t p = 0; p < RG_LEN(paths); p++) {
        rg_tokenizer *t = open_ok(paths[p]);
        size_t skip = p == 2;
        for (int round = 0; round < 400; round++) {
            char text[256];
            size_t n = 0;
            for (uint32_t k = 1 + rg_rng_below(&rng, 20); k; k--) {
                const char *unit = units[rg_rng_below(&rng, RG_LEN(units))];
                memcpy(text + n, unit, strlen(unit));
                n += strlen(unit);
            }
            rg_ids ids = encode(t, text, n, RG_ENCODE_NO_SPECIAL | RG_ENCODE_PLAIN);
            streamed(t, &ids, &out);
            assert_int_equal(out.n, n + skip);
            assert_memory_equal(out.data + skip, text, n);
            rg_ids_fini(&ids);
        }
        rg_tokenizer_close(t);
    }
    rg_buf_fini(&out);
}

static void clean_and_back(void **state)
{
    rg_rng rng = { .seed = test_seed };
    rg_buf clean, back;

    (void)state;
    rg_buf_init(&clean, 1 << 20);
    rg_buf_init(&back, 1 << 20);
    for (int round = 0; round < 20000; round++) {
        static const unsigned char likely[] = { 0x41, 0x80, 0xBF, 0xC2, 0xE0, 0xA0, 0xED,
                                                0x9F, 0xB2, 0xEF, 0xF0, 0x90, 0xF4, 0x8F };
        char text[12];
        size_t n = rg_rng_below(&rng, sizeof text + 1);
        for (size_t i = 0; i < n; i++)
            text[i] =
                (char)(rg_rng_below(&rng, 4) ? likely[rg_rng_below(&rng, sizeof likely)] : rg_rng_below(&rng, 256));
        rg_buf_reset(&clean);
        rg_buf_reset(&back);
        assert_true(rg_clean_add(&clean, text, n));
        assert_true(rg_clean_bytes(&back, clean.data ? clean.data : "", clean.n));
        assert_int_equal(back.n, n);
        if (n)
            assert_memory_equal(back.data, text, n);
        rg_buf_reset(&back);
        assert_true(rg_utf8_lossy(&back, text, n));
        assert_true(rg_utf8_valid(back.data ? back.data : "", back.n));
    }
    rg_buf_reset(&back);
    assert_true(rg_utf8_lossy(&back, "a\xE2\x96z\xF0\x9F\x98\xFF\xED\xA0\x80", 11));
    assert_string_equal(back.data, "a\xEF\xBF\xBDz\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
    rg_buf_fini(&clean);
    rg_buf_fini(&back);
}

/* No special token comes of foreign text, by being there or by merging. */
static void plain_text(void **state)
{
    static const char json[] =
        "{\"added_tokens\":[{\"id\":4,\"content\":\"ab\",\"special\":true,\"normalized\":false},"
        "{\"id\":5,\"content\":\"cc\",\"special\":false,\"normalized\":false}],"
        "\"model\":{\"type\":\"BPE\",\"ignore_merges\":true,\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"d\":3,\"ab\":4},"
        "\"merges\":[\"a b\"]}}";
    rg_error err = { 0 };
    rg_tokenizer *t = from_text(json, &err), *s;
    rg_ids ids;

    (void)state;
    assert_ok(t, err);
    ids = encode(t, "abccd", 5, 0);
    assert_int_equal(ids.n, 3);
    assert_int_equal(ids.id[0], 4);
    assert_int_equal(ids.id[1], 5);
    rg_ids_fini(&ids);
    ids = encode(t, "abccd", 5, RG_ENCODE_PLAIN);
    assert_int_equal(ids.n, 4);
    assert_int_equal(ids.id[0], 0);
    assert_int_equal(ids.id[1], 1);
    assert_int_equal(ids.id[2], 5);
    rg_ids_fini(&ids);
    ids = encode(t, "ab", 2, RG_ENCODE_PLAIN); /* a whole word that is a special piece */
    assert_int_equal(ids.n, 2);
    rg_ids_fini(&ids);
    rg_tokenizer_close(t);

    s = open_ok(test_data("stories260K.gguf"));
    ids = encode(s, "</s><s>", 7, RG_ENCODE_NO_SPECIAL);
    assert_int_equal(ids.n, 2);
    assert_int_equal(ids.id[0], 2);
    rg_ids_fini(&ids);
    ids = encode(s, "</s><s><unk>", 12, RG_ENCODE_NO_SPECIAL | RG_ENCODE_PLAIN);
    for (size_t i = 0; i < ids.n; i++)
        assert_false(rg_tokenizer_is_special(s, ids.id[i]));
    rg_ids_fini(&ids);
    rg_tokenizer_close(s);
}

/* The real story model: its own ids for a text, and what they say. */
static void stories(void **state)
{
    rg_tokenizer *t = open_ok(test_data("stories260K.gguf"));
    rg_ids ids = encode(t, "Once upon a time", 16, 0);
    static const int32_t want[] = { 1, 403, 407, 261, 378 };
    rg_error err = { 0 };
    size_t n;
    char *text;

    (void)state;
    assert_string_equal(rg_tokenizer_kind(t), "SentencePiece BPE");
    assert_int_equal(rg_tokenizer_size(t), 512);
    assert_int_equal(rg_tokenizer_bos(t), 1);
    assert_int_equal(rg_tokenizer_eos(t), 2);
    assert_true(rg_tokenizer_adds_bos(t));
    assert_int_equal(ids.n, RG_LEN(want));
    assert_memory_equal(ids.id, want, sizeof want);
    text = rg_tokenizer_decode(t, ids.id, ids.n, true, &n, &err);
    assert_ok(text, err);
    assert_string_equal(text, "Once upon a time");
    rg_free(text);
    rg_ids_fini(&ids);
    rg_tokenizer_close(t);
}

/* ---- regular expressions ---- */

/* Pattern, text, and where the first match is: as Oniguruma has it. */
static void dialect(void **state)
{
    static const struct {
        const char *pattern, *text;
        size_t from, to;
    } cases[] = {
        { "\\p{N}{1,3}+", "a1234567b", 1, 8 },
        { "a$", "a\nb", 0, 1 },
        { "^b", "a\nb", 2, 3 },
        { ".+", "a\nb", 0, 1 },
        { "\\h+", "xabz", 1, 3 },
        { "\\w+", "a\xCC\x81_\xC2\xB2 x", 0, 6 },
        { "\\s", "\xE1\xA0\x8E\x1C ", 4, 5 },
        { "[^\\s]+", "  ab ", 2, 4 },
        { "(?i:'s)", "'\xC5\xBF", 0, 3 },
        { "(?:ab){2,3}+", "xababababab", 1, 11 },
        { "[]a]+", "x]a", 1, 3 },
        { "\\d+",
          "\xE0\xA5\xA7"
          "2\xC2\xB2",
          0, 4 },
        { "[[:alpha:]]+", "1ab1", 1, 3 },
        { "[[:punct:]]+", "a$+b", 1, 3 },
        { "\\w+",
          "\xE2\x91\xA1"
          "a",
          3, 4 },
    };
    static const char *const refused[] = { "(", "[a&&b]", "(?m:.)", "[a[b]]", "a**)", "\\p{NoSuch}" };
    rg_error err = { 0 };
    rg_matcher *m = rg_matcher_new(1 << 10, &err);

    (void)state;
    assert_ok(m, err);
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        rg_regex *r = rg_regex_new(cases[i].pattern, strlen(cases[i].pattern), &err);
        rg_extent s = { 99, 99 };
        rg_walk walk = { 0 };
        assert_ok(r, err);
        assert_int_equal(rg_regex_next(r, m, cases[i].text, strlen(cases[i].text), &walk, &s, &err), 1);
        if (s.from != cases[i].from || s.to != cases[i].to)
            fail_msg("%s: [%zu, %zu)", cases[i].pattern, s.from, s.to);
        rg_regex_free(r);
    }
    for (size_t i = 0; i < RG_LEN(refused); i++) {
        err = (rg_error){ 0 };
        assert_null(rg_regex_new(refused[i], strlen(refused[i]), &err));
        assert_int_equal(err.code, RG_E_UNSUPPORTED);
    }
    rg_matcher_free(m);
}

/* Matches in a text that says the same again and again are those that a look at each of them by itself finds. */
static void rounds(void **state)
{
    static const char *const patterns[] = {
        "'s|'t| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
        "(?i:'s|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+",
        "\\p{N}{1,3}", "\\p{N}{1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))", "a(?=.{70}b)|a.", "(?<=a)b|b", "^1|1.", "\\b.|..", "\\s+$|a",
        "(?=a)|1", "a*", "1|(?=1a)", ".{60}", ".", "a\\K1|1",
    };
    static const char *const parts[] = { "a", "b", "1", "2", " ", "\n", "'", "'s", "\xCC\x81", "\xE4\xB8\xAD", "\xF0\x9F\x98\x80" };
    enum { TEXTS = 60, TEXT = 2000 };
    char text[TEXT + 64];
    rg_error err = { 0 };
    rg_matcher *m = rg_matcher_new(1 << 20, &err);
    rg_rng rng = { .seed = 4 };

    (void)state;
    for (size_t i = 0; i < RG_LEN(patterns) * TEXTS; i++) {
        rg_regex *r = rg_regex_new(patterns[i / TEXTS], strlen(patterns[i / TEXTS]), &err);
        size_t n = 0, n_unit = 1 + rg_rng_below(&rng, 5), unit[5], times = 100 + rg_rng_below(&rng, 200);
        rg_walk walk = { 0 };
        rg_extent s, want;
        int got;
        assert_ok(r, err);
        for (size_t k = 0; k < n_unit; k++)
            unit[k] = rg_rng_below(&rng, RG_LEN(parts));
        for (size_t k = 0; k < n_unit * times && n < TEXT; k++) {
            size_t part = k + 7 > n_unit * times ? rg_rng_below(&rng, RG_LEN(parts)) : unit[k % n_unit];
            memcpy(text + n, parts[part], strlen(parts[part]));
            n += strlen(parts[part]);
        }
        do {
            rg_walk alone = { .at = walk.at, .done = walk.done, .matched = walk.matched };
            int got_alone = rg_regex_next(r, m, text, n, &alone, &want, &err);
            got = rg_regex_next(r, m, text, n, &walk, &s, &err);
            assert_int_equal(got, got_alone);
            if (got > 0 && (s.from != want.from || s.to != want.to || walk.at != alone.at))
                fail_msg("%s: [%zu, %zu), by itself [%zu, %zu)", patterns[i / TEXTS], s.from, s.to, want.from, want.to);
        } while (got > 0);
        assert_int_equal(got, 0);
        rg_regex_free(r);
    }
    rg_matcher_free(m);
}

/* A pattern that backtracks without end is an error within a second or so. */
static void catastrophe(void **state)
{
    static const char json[] = "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?:a|a|aa)+[^a]{1,2}\"}"
                               ",\"behavior\":\"Isolated\"},"
                               "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}";
    rg_error err = { 0 };
    rg_tokenizer *t = from_text(json, &err);
    rg_ids ids = { 0 };
    char text[2000];

    (void)state;
    assert_ok(t, err);
    memset(text, 'a', sizeof text);
    assert_false(rg_tokenizer_encode(t, text, sizeof text, 0, &ids, &err));
    assert_int_equal(err.code, RG_E_LIMIT);
    rg_ids_fini(&ids);
    rg_tokenizer_close(t);
}

/* ---- normal forms ---- */

static void check_form(const char *text, bool compose, bool compat, const char *want)
{
    rg_passage p = { .text = text, .n = strlen(text) };
    rg_draft out = { 0 };
    rg_error err = { 0 };

    rg_draft_begin(&out, &p, 1 << 10);
    assert_ok(rg_normal_form(&p, compose, compat, &out, &err), err);
    assert_string_equal(out.text.data, want);
    rg_draft_fini(&out);
}

/* What stays as it is, what joins the character before it, and what only seems to. */
static void normal_forms(void **state)
{
    static const struct {
        const char *text, *nfc, *nfd, *nfkc;
    } cases[] = {
        { "ab\u4E2D\u00E9\uD55C", "ab\u4E2D\u00E9\uD55C", "ab\u4E2De\u0301\u1112\u1161\u11AB", "ab\u4E2D\u00E9\uD55C" },
        { "e\u0301e", "\u00E9e", "e\u0301e", "\u00E9e" },
        { "\u4E2D\u00E9\u0323\u4E2D", "\u4E2D\u1EB9\u0301\u4E2D", "\u4E2De\u0323\u0301\u4E2D", "\u4E2D\u1EB9\u0301\u4E2D" },
        { "\u00EA\u0301", "\u1EBF", "e\u0302\u0301", "\u1EBF" },
        /* remembered in one place (normalform.c), by turns */
        { "\u00E9\u0169\u00E9\u0169\u0323\u00E9", "\u00E9\u0169\u00E9\u1EE5\u0303\u00E9",
          "e\u0301u\u0303e\u0301u\u0323\u0303e\u0301", "\u00E9\u0169\u00E9\u1EE5\u0303\u00E9" },
        { "\uD55C\uD51C\uD55C", "\uD55C\uD51C\uD55C", "\u1112\u1161\u11AB\u1111\u1173\u11BF\u1112\u1161\u11AB",
          "\uD55C\uD51C\uD55C" },
        { "\u0301\u0323a", "\u0323\u0301a", "\u0323\u0301a", "\u0323\u0301a" },
        { "\uD558\u11AB\u11AB", "\uD55C\u11AB", "\u1112\u1161\u11AB\u11AB", "\uD55C\u11AB" },
        { "\uD558\u11A7\u11AB", "\uD558\u11A7\u11AB", "\u1112\u1161\u11A7\u11AB", "\uD558\u11A7\u11AB" },
        { "\u09C7\u09BE", "\u09CB", "\u09C7\u09BE", "\u09CB" },
        { "\u212B\u0958", "\u00C5\u0915\u093C", "A\u030A\u0915\u093C", "\u00C5\u0915\u093C" },
        { "\uFB01\u00BD\uFF76\uFF9E", "\uFB01\u00BD\uFF76\uFF9E", "\uFB01\u00BD\uFF76\uFF9E", "fi1\u20442\u30AC" },
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        check_form(cases[i].text, true, false, cases[i].nfc);
        check_form(cases[i].text, false, false, cases[i].nfd);
        check_form(cases[i].text, true, true, cases[i].nfkc);
    }
}

/* ---- a vocabulary whose merges are missing ---- */

#define PIECES "\"a\":0,\"b\":1,\"\\u0120\":2,\"ab\":3"

/* Pieces that no text becomes may be meant: one, those beside merges, added tokens, words that are taken whole. */
static void some_pieces_need_no_merges(void **state)
{
    static const char *const good[] = {
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{" PIECES "},\"merges\":[]}}",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{" PIECES ",\"bab\":4,\"bb\":5},\"merges\":[\"a b\"]}}",
        "{\"model\":{\"type\":\"BPE\",\"ignore_merges\":true,\"vocab\":{" PIECES ",\"abb\":4},\"merges\":[]}}",
        "{\"added_tokens\":[{\"id\":4,\"content\":\"<one>\"},{\"id\":5,\"content\":\"<two>\",\"special\":true}],"
        "\"model\":{\"type\":\"BPE\",\"vocab\":{" PIECES ",\"<one>\":4,\"<two>\":5},\"merges\":[]}}",
        "{\"model\":{\"type\":\"BPE\",\"end_of_word_suffix\":\"</w>\",\"vocab\":{\"a\":0,\"a</w>\":1,\"b</w>\":2},"
        "\"merges\":[]}}",
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(good); i++) {
        rg_error err = { 0 };
        rg_tokenizer *t = from_text(good[i], &err);
        assert_ok(t, err);
        rg_tokenizer_close(t);
    }
}

/* ---- hostile files ---- */

#define MODEL(rest) "{\"model\":{\"type\":\"BPE\"," rest "}}"
#define GOOD        "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]}"

static void hostile(void **state)
{
    static const struct {
        const char *json, *says;
    } cases[] = {
        { "", "" },
        { "[]", "model" },
        { "{}", "model" },
        { MODEL("\"merges\":[]"), "vocab" },
        { MODEL("\"vocab\":{},\"merges\":[]"), "empty" },
        { MODEL("\"vocab\":{\"a\":-1},\"merges\":[]"), "-1" },
        { MODEL("\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]"), "twice" },
        { MODEL("\"vocab\":{\"a\":0,\"b\":16000000},\"merges\":[]"), "16000000" },
        { MODEL("\"vocab\":{\"a\":2147483648},\"merges\":[]"), "2147483648" },
        { MODEL("\"vocab\":{\"a\":1.5},\"merges\":[]"), "integer" },
        { MODEL("\"vocab\":{\"a\":\"x\"},\"merges\":[]"), "integer" },
        { MODEL("\"vocab\":{\"a\":0},\"merges\":[\"a b\"]"), "merge 0" },
        { MODEL("\"vocab\":{\"a\":0},\"merges\":[\"a\"]"), "merge 0" },
        { MODEL("\"vocab\":{\"a\":0},\"merges\":[\"a a\"]"), "what they become" },
        { MODEL("\"vocab\":{\"a\":0},\"merges\":[\" a\"]"), "merge 0" },
        { MODEL("\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]"), "merge 0" },
        { MODEL("\"vocab\":{\"a\":0},\"merges\":3"), "merges" },
        { MODEL("\"vocab\":{\"a\":0}"), "merges" },
        { MODEL("\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"abb\":3},\"merges\":[]"), "no merges, but 2 pieces" },
        { MODEL("\"vocab\":{\"a\":0},\"merges\":[],\"byte_fallback\":true"), "0x00" },
        { MODEL("\"vocab\":{\"a\":0},\"merges\":[],\"dropout\":0.1"), "dropout" },
        { MODEL("\"vocab\":{\"a\":0},\"merges\":[],\"end_of_word_suffix\":7"), "end_of_word_suffix" },
        { MODEL("\"vocab\":{\"a\":0},\"merges\":[],\"fuse_unk\":1"), "fuse_unk" },
        { "{\"model\":{\"type\":\"Unigram\"}}", "vocab" },
        { "{\"model\":{\"type\":\"Odd\"}}", "Odd" },
        { "{\"added_tokens\":[{\"id\":5,\"content\":\"\"}]," GOOD "}", "empty" },
        { "{\"added_tokens\":[{\"id\":5,\"content\":\"a\"}]," GOOD "}", "id 5" },
        { "{\"added_tokens\":[{\"id\":-5,\"content\":\"x\"}]," GOOD "}", "-5" },
        { "{\"added_tokens\":[{\"id\":0,\"content\":\"x\"}]," GOOD "}", "twice" },
        { "{\"added_tokens\":[7]," GOOD "}", "empty" },
        { "{\"added_tokens\":{}," GOOD "}", "list" },
        { "{\"normalizer\":{\"type\":\"Precompiled\"}," GOOD "}", "precompiled_charsmap" },
        { "{\"normalizer\":{\"type\":\"Sequence\"}," GOOD "}", "list" },
        { "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(\"},\"content\":\"\"}," GOOD "}",
          "regular" },
        { "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":7,\"content\":\"\"}," GOOD "}", "String" },
        { "{\"normalizer\":7," GOOD "}", "type" },
        { "{\"pre_tokenizer\":{\"type\":\"Odd\"}," GOOD "}", "Odd" },
        { "{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"xy\"}," GOOD "}", "one character" },
        { "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":\"Odd\"}," GOOD "}",
          "Odd" },
        { "{\"decoder\":{\"type\":\"Odd\"}," GOOD "}", "Odd" },
        { "{\"decoder\":{\"type\":\"Strip\",\"content\":\" \",\"start\":-1}," GOOD "}", "start" },
        { "{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[]}," GOOD "}", "single" },
        { "{\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"a\",0],\"sep\":[\"b\",9]}," GOOD "}", "id 9" },
        { "{\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"a\",0],\"sep\":[\"b\",-9]}," GOOD "}", "id" },
    };
    rg_error err;

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        size_t live = rg_mem_count().n_live;
        rg_tokenizer *t;
        err = (rg_error){ 0 };
        t = from_text(cases[i].json, &err);
        if (t || err.code == RG_OK || !strstr(err.text, cases[i].says))
            fail_msg("%s: %s", cases[i].json, t ? "accepted" : err.text);
        assert_int_equal(rg_mem_count().n_live, live);
    }
    rg_tokenizer *t = from_text("{" GOOD "}", &err);
    assert_ok(t, err); /* the frame of the cases is sound */
    rg_tokenizer_close(t);
}

/* Scores that are no numbers, and texts that grow without bound. */
static void hostile_numbers(void **state)
{
    rg_error err = { 0 };
    rg_vocab v;
    rg_bpe b;
    float scores[] = { 0, __builtin_nanf("") };
    rg_tokenizer *t;
    rg_ids ids = { 0 };
    char *big = rg_alloc(70000), *json = rg_alloc(80000);

    (void)state;
    assert_ok(rg_vocab_init(&v, 2, &err), err);
    assert_ok(rg_vocab_add(&v, 0, (rg_string){ "a", 1 }, RG_PIECE_NORMAL, &err), err);
    assert_ok(rg_vocab_add(&v, 1, (rg_string){ "b", 1 }, RG_PIECE_NORMAL, &err), err);
    rg_bpe_init(&b, &v);
    assert_false(rg_bpe_set_scores(&b, scores, &err));
    assert_int_equal(err.code, RG_E_INPUT);
    rg_bpe_fini(&b);
    rg_vocab_fini(&v);

    memset(big, 'x', 70000);
    big[69999] = '\0';
    snprintf(json, 80000,
             "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"%s\"}," GOOD "}", big);
    t = from_text(json, &err);
    assert_ok(t, err);
    assert_false(rg_tokenizer_encode(t, "aaaaaaaa", 8, 0, &ids, &err));
    assert_int_equal(err.code, RG_E_LIMIT);
    rg_tokenizer_close(t);
    rg_ids_fini(&ids);
    rg_free(big);
    rg_free(json);
}

/* ---- memory ---- */

typedef struct gate {
    uint64_t left;
} gate;

static bool let(void *arg, size_t bytes)
{
    gate *g = arg;

    (void)bytes;
    return g->left && g->left--;
}

/* Open, encode and decode with the N-th allocation failing, and all after it: every N, then every few as they grow. */
static void check_memory(const char *path)
{
    static const char text[] = "Once upon a time\xFF, e\xCC\x81 there was  <s> <|endoftext|> 123";
    size_t live = rg_mem_count().n_live;
    bool done = false;

    for (uint64_t k = 0; !done; k += 1 + k / 12) {
        gate g = { k };
        rg_error err = { 0 };
        rg_ids ids = { 0 };
        size_t n;
        char *out = NULL;

        rg_mem_set_gate(let, &g);
        rg_tokenizer *t = rg_tokenizer_open_path(path, &err);
        if (t && rg_tokenizer_encode(t, text, sizeof text - 1, 0, &ids, &err))
            out = rg_tokenizer_decode(t, ids.id, ids.n, false, &n, &err);
        rg_mem_set_gate(NULL, NULL);
        assert_true(out || err.code != RG_OK);
        done = out != NULL;
        rg_free(out);
        rg_ids_fini(&ids);
        rg_tokenizer_close(t);
        assert_int_equal(rg_mem_count().n_live, live);
    }
}

/* The same of encoding and decoding alone, every N. */
static void check_memory_encode(const char *path)
{
    static const char text[] = "Once upon a time\xFF, e\xCC\x81 there was  <s> <|endoftext|> 123";
    rg_tokenizer *t = open_ok(path);
    size_t live = rg_mem_count().n_live;
    bool done = false;

    for (uint64_t k = 0; !done; k++) {
        gate g = { k };
        rg_error err = { 0 };
        rg_ids ids = { 0 };
        size_t n;
        char *out = NULL;

        rg_mem_set_gate(let, &g);
        if (rg_tokenizer_encode(t, text, sizeof text - 1, 0, &ids, &err))
            out = rg_tokenizer_decode(t, ids.id, ids.n, false, &n, &err);
        rg_mem_set_gate(NULL, NULL);
        assert_true(out || err.code != RG_OK);
        done = out != NULL;
        rg_free(out);
        rg_ids_fini(&ids);
        assert_int_equal(rg_mem_count().n_live, live);
    }
    rg_tokenizer_close(t);
}

static void memory_fails(void **state)
{
    const char *paths[] = { test_data("tokenizers/unigram-t5/tokenizer.json"),
                            test_data("tokenizers/wordpiece-bert/tokenizer.json"),
                            test_data("tokenizers/bytelevel-qwen2/tokenizer.json"), test_data("stories260K.gguf") };

    (void)state;
    for (size_t i = 0; i < RG_LEN(paths); i++) {
        check_memory(paths[i]);
        check_memory_encode(paths[i]);
    }
}

/* ---- cost ---- */

enum { RUN_BYTES = (4 << 20) / TEST_SLOWER, WATCHDOG_S = 60 };

/* One thing again and again: what takes quadratic time for it takes hours for so much, and meets the watchdog. */
static void runs_take_linear_time(void **state)
{
    static const char *const units[] = { " ", "1", "a", "\n", "\xF0\x9F\x98\x80", "\xCC\x81", "e\xCC\x81", "\xE4\xB8\xAD",
                                         "a b ", "\xFF", "<s>", "<|", "'", "A1", "\xCC\x81\xCC\xA3" };
    const char *paths[] = { RG_SOURCE_DIR "/models/tales-7m", test_data("tokenizers/bytelevel-qwen2/tokenizer.json"),
                            test_data("tokenizers/unigram-t5/tokenizer.json"),
                            test_data("tokenizers/wordpiece-bert/tokenizer.json"), test_data("stories260K.gguf") };
    char *text = rg_alloc(RUN_BYTES);

    (void)state;
    assert_non_null(text);
    for (size_t p = 0; p < RG_LEN(paths); p++) {
        rg_tokenizer *t = open_ok(paths[p]);
        for (size_t i = 0; i < RG_LEN(units); i++) {
            size_t k = strlen(units[i]), n = RUN_BYTES / k * k;
            for (size_t at = 0; at < n; at += k)
                memcpy(text + at, units[i], k);
            alarm(WATCHDOG_S);
            rg_ids ids = encode(t, text, n, 0);
            alarm(0);
            rg_ids_fini(&ids);
        }
        rg_tokenizer_close(t);
    }
    rg_free(text);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_by_rank), cmocka_unit_test(merges_by_score), cmocka_unit_test(bytes_survive),
        cmocka_unit_test(clean_and_back), cmocka_unit_test(plain_text), cmocka_unit_test(stories),
        cmocka_unit_test(dialect), cmocka_unit_test(rounds), cmocka_unit_test(normal_forms),
        cmocka_unit_test(catastrophe), cmocka_unit_test(some_pieces_need_no_merges),
        cmocka_unit_test(hostile), cmocka_unit_test(hostile_numbers),
        cmocka_unit_test(memory_fails), cmocka_unit_test(runs_take_linear_time),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
