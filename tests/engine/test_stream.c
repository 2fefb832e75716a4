/* test_stream.c -- ids shown one by one beside the same ids decoded at once: every golden tokenizer and every kind of
 * decoder, any ids, looked at whenever; through the mailbox too, with stop texts. */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "engine/request.h"
#include "support/tokenizer.h"

enum { MOST = 48, TEXT = 1 << 14 };

static const char *const goldens[] = { "bytelevel-deepseek", "bytelevel-gpt2", "bytelevel-llama3", "bytelevel-o200k",
                                       "bytelevel-qwen2",    "gemma",          "metaspace-first",  "spm-llama2",
                                       "unigram-t5",         "wordpiece-bert" };

#define REPLACE "{\"type\":\"Replace\",\"pattern\":{\"String\":\"\xE2\x96\x81\"},\"content\":\" \"}"
#define SPACE   "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}"
#define BYTES   "{\"type\":\"ByteFallback\"}"
#define FUSE    "{\"type\":\"Fuse\"}"
#define META(s) "{\"type\":\"Metaspace\",\"replacement\":\"\xE2\x96\x81\",\"prepend_scheme\":\"" s "\"}"
#define SUFFIX  "{\"type\":\"BPEDecoder\",\"suffix\":\"</w>\"}"
#define PIECES  "{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true}"
#define CTC     "{\"type\":\"CTC\",\"pad_token\":\"<pad>\",\"word_delimiter_token\":\"|\",\"cleanup\":true}"
#define LIST(...) "{\"type\":\"Sequence\",\"decoders\":[" __VA_ARGS__ "]}"

static const char *const decoders[] = {
    "null",
    "{\"type\":\"ByteLevel\"}",
    BYTES,
    FUSE,
    REPLACE,
    META("always"),
    META("first"),
    META("never"),
    "{\"type\":\"Strip\",\"content\":\"a\",\"start\":1,\"stop\":1}",
    PIECES,
    SUFFIX,
    "{\"type\":\"BPEDecoder\",\"suffix\":\"b\"}",
    CTC,
    "{\"type\":\"CTC\",\"pad_token\":\"a\",\"word_delimiter_token\":\"|\",\"cleanup\":false}",
    LIST(REPLACE "," BYTES "," FUSE),
    LIST(REPLACE "," BYTES "," FUSE "," SPACE),
    LIST(FUSE ",{\"type\":\"Strip\",\"content\":\"\xC3\xA9\",\"start\":3,\"stop\":0}"),
    LIST(CTC "," PIECES "," SUFFIX),
    LIST(META("always") "," SUFFIX "," FUSE "," SPACE),
    LIST("{\"type\":\"Strip\",\"content\":\" \",\"start\":0,\"stop\":2}," PIECES),
    LIST(""),
};

/* Words of all the decoders: ends, marks, bytes (two of them a character with another), spaces, and a byte-level one. */
#define WORDS                                                                                                          \
    "\"u\":0,\"a\":1,\"b\":2,\"##b\":3,\"</w>\":4,\"a</w>\":5,\"</w>a</w>b\":6,\"\xE2\x96\x81\":7,"                      \
    "\"\xE2\x96\x81" "a\":8,\"b\xE2\x96\x81\xE2\x96\x81" "c\":9,\" \":10,\"  a \":11,\"|\":12,\"<pad>\":13,"             \
    "\"\xC3\xA9\":14,\"\xC3\xA9\xC3\xA9x\":15,\"\xC3\x83\":16,\"\xC2\xA9\":17,\"\xC4\xA0q\":18,\"<0xE2>\":19,"           \
    "\"<0x82>\":20,\"<0xAC>\":21,\"<0x20>\":22,\"<0x41>\":23,\" .\":24,\" n't\":25,\"##\":26,\"\":27,\"<0xC3>\":28"
#define SPECIAL "{\"id\":29,\"content\":\"<s>\",\"special\":true,\"normalized\":false}"

static rg_tokenizer *made(const char *decoder)
{
    static const char path[] = RG_BUILD_DIR "/test_stream.json";
    rg_error err = { 0 };
    FILE *f = fopen(path, "wb");
    rg_tokenizer *t;

    assert_non_null(f);
    assert_true(fprintf(f, "{\"added_tokens\":[" SPECIAL "],\"decoder\":%s,\"model\":{\"type\":\"WordLevel\","
                           "\"unk_token\":\"u\",\"vocab\":{" WORDS "}}}", decoder) > 0);
    assert_false(fclose(f));
    t = rg_tokenizer_open_path(path, &err);
    assert_ok(t, err);
    remove(path);
    assert_true(rg_tokenizer_streams(t));
    return t;
}

/* The text of ids [0, n). */
static size_t at_once(const rg_tokenizer *t, const int32_t *ids, int32_t n, char *out)
{
    rg_error err = { 0 };
    size_t m;
    char *text = rg_tokenizer_decode(t, ids, (size_t)n, true, &m, &err);

    assert_ok(text, err);
    assert_true(m < TEXT);
    memcpy(out, text, m + 1);
    rg_free(text);
    return m;
}

/* Where the stop text ends that is complete first; -1: there is none. */
static long stop_end(const char *text, size_t n, const char *const *stop, int n_stop)
{
    long end = -1;

    for (int i = 0; i < n_stop; i++)
        for (size_t k = strlen(stop[i]), at = k; at <= n; at++)
            if (!memcmp(text + at - k, stop[i], k) && (end < 0 || (long)at < end))
                end = (long)at;
    return end;
}

typedef struct answer {
    char text[TEXT];
    size_t n;
    int stop;
    bool ended;
} answer;

static void poll_all(rg_request *r, answer *a)
{
    rg_token token;

    while (rg_request_poll(r, &token) > 0) {
        assert_true(rg_utf8_valid(token.text, (size_t)token.n_text));
        assert_true(a->n + (size_t)token.n_text < TEXT);
        memcpy(a->text + a->n, token.text, (size_t)token.n_text);
        a->n += (size_t)token.n_text;
        a->text[a->n] = 0;
        a->stop = token.stop;
        a->ended |= token.id < 0;
    }
}

/* Ids through a request that may be read after any of them.  Returns how many it took. */
static int32_t through_mailbox(const rg_tokenizer *t, rg_rng *g, const int32_t *ids, int32_t n, const char *const *stop,
                               int n_stop, answer *a)
{
    int32_t nothing = rg_tokenizer_size(t), k = 0;
    rg_params p = { .prompt = &nothing, .n_prompt = 1, .max_tokens = n + (int32_t)rg_rng_below(g, 2), .n_samples = 1,
                    .stop = stop, .n_stop = n_stop,
                    .sampling = { .temperature = 1, .top_p = 1, .typical_p = 1, .repetition_penalty = 1,
                                  .n_logprobs = -1 } };
    rg_finish why = RG_RUNNING;
    rg_error err = { 0 };
    rg_request *r = rg_request_new(&p, &(rg_request_model){ nothing + 1, 1 << 20, 1, rg_tokenizer_spelling(t), NULL, 0 },
                                   &err);

    assert_ok(r, err);
    *a = (answer){ .stop = -1 };
    while (k < n && why == RG_RUNNING) {
        why = rg_request_append(r, 0, ids[k++], 0, NULL);
        if (!rg_rng_below(g, 3))
            poll_all(r, a);
    }
    if (why == RG_RUNNING)
        rg_request_end(r, 0, RG_FINISH_STOP);
    poll_all(r, a);
    assert_true(a->ended);
    rg_request_unref(r);
    return k;
}

static void differ(const char *name, const char *what, const char *got, const char *want)
{
    if (strcmp(got, want))
        fail_msg("%s: %s: '%s', where '%s' is decoded at once", name, what, got, want);
}

/* The speller alone, which sees ids in lots of any size. */
static void spelled(const rg_tokenizer *t, rg_rng *g, const char *name, const int32_t *ids, int32_t n, const char *want)
{
    const rg_spelling *z = rg_tokenizer_spelling(t);
    rg_speller s = rg_speller_begin(z, false);
    rg_buf all, text;
    rg_string part;

    rg_buf_init(&all, TEXT);
    rg_buf_init(&text, TEXT);
    for (int32_t k = 0; k <= n; k += 1 + (int32_t)rg_rng_below(g, 4))
        while (rg_speller_next(z, &s, ids, k, false, &part))
            assert_true(rg_buf_add(&all, part.data, part.n));
    while (rg_speller_next(z, &s, ids, n, true, &part))
        assert_true(rg_buf_add(&all, part.data, part.n));
    assert_true(rg_utf8_lossy(&text, all.data ? all.data : "", all.n) && rg_buf_add(&text, "", 1));
    differ(name, "spelled", text.data, want);
    rg_buf_fini(&all);
    rg_buf_fini(&text);
}

static int n_stopped, n_early;

/* With stop texts of what is decoded at once: the answer is that text up to where the first of them begins. */
static void stopped(const rg_tokenizer *t, rg_rng *g, const char *name, const int32_t *ids, int32_t n, const char *want,
                    size_t n_want)
{
    static answer a;
    char texts[2][8], once[TEXT];
    const char *stop[2] = { texts[0], texts[1] };
    int32_t took;
    long end;

    for (int i = 0; i < 2; i++) {
        size_t from = rg_rng_below(g, n_want), k = 1 + rg_rng_below(g, 5);
        while (from && ((unsigned char)want[from] & 0xC0) == 0x80)
            from--;
        k = from + k < n_want ? k : n_want - from;
        while (((unsigned char)want[from + k] & 0xC0) == 0x80)
            k++;
        assert_true(k < sizeof texts[i] + 1);
        snprintf(texts[i], sizeof texts[i], "%.*s", (int)k, want + from);
        if (k >= sizeof texts[i] || strstr(texts[i], "\xEF\xBF\xBD"))
            return; /* stop texts are looked for in bytes, before they are mended */
    }
    took = through_mailbox(t, g, ids, n, stop, 2, &a);
    end = stop_end(once, at_once(t, ids, took, once), stop, 2);
    n_stopped += end >= 0;
    n_early += end >= 0 && took < n;
    assert_int_equal(end >= 0, a.stop >= 0);
    if (end >= 0)
        once[end - (long)strlen(stop[a.stop])] = 0;
    else
        assert_int_equal(took, n);
    differ(name, "with stop texts", a.text, once);
}

static void check(const rg_tokenizer *t, rg_rng *g, const char *name, const int32_t *ids, int32_t n)
{
    static answer a;
    char want[TEXT];
    size_t n_want = at_once(t, ids, n, want);

    if (strlen(want) != n_want)
        return; /* with a NUL in it, which the helpers here would end at */
    spelled(t, g, name, ids, n, want);
    (void)through_mailbox(t, g, ids, n, NULL, 0, &a);
    differ(name, "through the mailbox", a.text, want);
    if (n_want)
        stopped(t, g, name, ids, n, want, n_want);
}

/* Any ids, of a few so that neighbours are equal at times; byte pieces and special ones among them. */
static void any_ids(const rg_tokenizer *t, const char *name, int rounds)
{
    static const char *const units[] = { " a", "the ", "\xF0\x9F\x98\x80", "\xE4\xB8\xAD", "\n", "  ", "x", "\xCC\x81", "." };
    rg_rng g = { .seed = test_seed };
    int32_t ids[MOST];

    for (int round = 0; round < rounds; round++) {
        int32_t n = 1 + (int32_t)rg_rng_below(&g, MOST - 1), few = round & 1 ? 6 : rg_tokenizer_size(t);
        uint32_t base = rg_rng_below(&g, (uint32_t)(rg_tokenizer_size(t) - few + 1));
        rg_ids text = { 0 };
        rg_error err = { 0 };
        for (int32_t i = 0; i < n; i++)
            ids[i] = (int32_t)(base + rg_rng_below(&g, (uint32_t)few));
        check(t, &g, name, ids, n);
        for (int32_t i = 0; i < 8; i++) {
            const char *unit = units[rg_rng_below(&g, RG_LEN(units))];
            assert_ok(rg_tokenizer_encode(t, unit, strlen(unit), RG_ENCODE_DEFAULT, &text, &err), err);
        }
        check(t, &g, name, text.id, text.n < MOST ? (int32_t)text.n : MOST);
        rg_ids_fini(&text);
    }
}

static void goldens_stream(void **state)
{
    (void)state;
    for (size_t i = 0; i < RG_LEN(goldens); i++) {
        rg_tokenizer *t = test_tokenizer(goldens[i]);
        assert_true(rg_tokenizer_streams(t));
        any_ids(t, goldens[i], test_scale(60));
        rg_tokenizer_close(t);
    }
}

static void decoders_stream(void **state)
{
    (void)state;
    n_stopped = n_early = 0;
    for (size_t i = 0; i < RG_LEN(decoders); i++) {
        rg_tokenizer *t = made(decoders[i]);
        any_ids(t, decoders[i], test_scale(300));
        rg_tokenizer_close(t);
    }
    assert_true(n_stopped > 20 * (int)RG_LEN(decoders) && n_early > n_stopped / 2);
}

/* A run of bytes without end is shown as it goes on, and costs no more memory than was promised. */
static void long_runs(void **state)
{
    static int32_t ids[3 * RG_SPELL_RUN];
    static answer a;
    rg_tokenizer *t = made(LIST(REPLACE "," BYTES "," FUSE "," SPACE));
    rg_rng g = { .seed = test_seed };
    int32_t n = 3 * RG_SPELL_RUN, seen = 0;
    const rg_spelling *z = rg_tokenizer_spelling(t);
    rg_speller s = rg_speller_begin(z, false);
    rg_string part;
    char want[TEXT];

    (void)state;
    for (int32_t i = 0; i < n; i++)
        ids[i] = 19 + i % 3; /* a euro sign, again and again */
    for (int32_t i = 1; i <= n; i++) {
        while (rg_speller_next(z, &s, ids, i, false, &part))
            seen += (int32_t)part.n;
        assert_true(i - seen <= RG_SPELL_RUN + 3);
    }
    at_once(t, ids, n, want);
    (void)through_mailbox(t, &g, ids, n, NULL, 0, &a);
    differ("a long run", "through the mailbox", a.text, want);
    ids[500] = 23; /* broken */
    at_once(t, ids, n, want);
    (void)through_mailbox(t, &g, ids, n, NULL, 0, &a);
    differ("a long broken run", "through the mailbox", a.text, want);
    rg_tokenizer_close(t);
}

/* A stop text ends the answer with the id that completes it, though what that id shows may still change. */
static void stops_at_once(void **state)
{
    static const char *const newline[] = { "A" }, *const word[] = { "ba" };
    static const int32_t bytes[] = { 1, 19, 20, 21, 23, 1, 1 }, words[] = { 2, 5, 1, 1 };
    static answer a;
    rg_rng g = { .seed = test_seed };
    rg_tokenizer *t = made(LIST(REPLACE "," BYTES "," FUSE));

    (void)state;
    assert_int_equal(through_mailbox(t, &g, bytes, RG_LEN(bytes), newline, 1, &a), 5);
    assert_string_equal(a.text, "a\xE2\x82\xAC");
    rg_tokenizer_close(t);
    t = made(SUFFIX);
    assert_int_equal(through_mailbox(t, &g, words, RG_LEN(words), word, 1, &a), 2);
    assert_string_equal(a.text, "");
    assert_int_equal(a.stop, 0);
    rg_tokenizer_close(t);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goldens_stream),
        cmocka_unit_test(decoders_stream),
        cmocka_unit_test(long_runs),
        cmocka_unit_test(stops_at_once),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
