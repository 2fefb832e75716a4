/* test_text_runs.c -- text that says the same again and again, in every golden tokenizer: the short ways give what the
 * long ones do, and are taken.  What is counted here is work; what that costs, test_text_parts looks at. */
#include "support/test.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "text/internal.h"

static const char *const names[] = { "bytelevel-deepseek", "bytelevel-gpt2", "bytelevel-llama3", "bytelevel-o200k",
                                     "bytelevel-qwen2",    "gemma",          "metaspace-first",  "spm-llama2",
                                     "unigram-t5",         "wordpiece-bert" };

/* Clean characters, the last one a stray byte. */
static const char *const parts[] = { "a", "A", "1", ".", " ", "\n", "'s", " the", "\u00E9", "\u0301", "\u0323", "\u4E2D", "\uD55C",
                                     "\u2581", "\U0001F600", "\uFB01", "\u00A0", "<s>", "\xED\xB3\xBF" };

static void each_tokenizer(void (*check)(const char *name, const rg_tokenizer *t, rg_rng *rng))
{
    rg_rng rng = { .seed = test_seed };

    for (size_t i = 0; i < RG_LEN(names); i++) {
        char path[80];
        rg_error err = { 0 };
        rg_tokenizer *t;
        snprintf(path, sizeof path, "tokenizers/%s/tokenizer.json", names[i]);
        t = rg_tokenizer_open_path(test_data(path), &err);
        assert_ok(t, err);
        check(names[i], t, &rng);
        rg_tokenizer_close(t);
    }
}

/* Append up to n bytes of one unit of a few parts again and again, with something else between now and then. */
static void add_run(rg_buf *out, size_t n, rg_rng *rng)
{
    size_t end = out->n + n;
    uint32_t unit[4], n_unit = 1 + rg_rng_below(rng, 4);

    for (uint32_t i = 0; i < n_unit; i++)
        unit[i] = rg_rng_below(rng, RG_LEN(parts));
    for (uint32_t i = 0; out->n < end; i++)
        assert_true(rg_buf_str(out, parts[unit[i % n_unit]]));
    for (uint32_t i = rg_rng_below(rng, 3); i; i--)
        assert_true(rg_buf_str(out, parts[rg_rng_below(rng, RG_LEN(parts))]));
}

/* ---- words ---- */

static rg_ids ids_of(const rg_tokenizer *t, rg_bpe_work *w, rg_string word, bool whole)
{
    rg_ids ids = { 0 };
    rg_error err = { 0 };

    w->whole = whole;
    assert_ok((rg_bpe_takes_bytes(&t->bpe, word) ? rg_bpe_encode_bytes : rg_bpe_encode)(&t->bpe, w, word, false, &ids, &err),
              err);
    return ids;
}

static void check_words(const char *name, const rg_tokenizer *t, rg_rng *rng)
{
    rg_bpe_work w = { 0 };
    rg_buf word;

    if (t->model != &rg_word_model_bpe)
        return;
    rg_buf_init(&word, 1 << 20);
    for (int k = 0; k < 5; k++) {
        rg_ids ids, want;
        rg_buf_reset(&word);
        for (uint32_t i = 1 + rg_rng_below(rng, 2); i; i--)
            add_run(&word, 10000 + rg_rng_below(rng, 2000), rng);
        ids = ids_of(t, &w, (rg_string){ word.data, word.n }, false);
        want = ids_of(t, &w, (rg_string){ word.data, word.n }, true);
        if (ids.n != want.n || memcmp(ids.id, want.id, ids.n * sizeof *ids.id))
            fail_msg("%s: %zu ids, %zu as a whole: %.60s", name, ids.n, want.n, word.data);
        rg_ids_fini(&ids);
        rg_ids_fini(&want);
    }
    rg_buf_fini(&word);
    rg_bpe_work_fini(&w);
}

/* A word that repeats itself becomes the ids that it becomes when all of it is joined. */
static void words_cut_short(void **state)
{
    (void)state;
    each_tokenizer(check_words);
}

/* ---- text ---- */

typedef struct cut {
    rg_matcher *m;
    rg_draft two[2];
    rg_words words;
    rg_passage p;
} cut;

static cut cut_up(const rg_tokenizer *t, const char *text, size_t n, const char *marks)
{
    cut c = { .p = { .text = text, .n = n, .marks = marks } };
    rg_error err = { 0 };

    c.m = rg_matcher_new(n, &err);
    assert_ok(c.m, err);
    assert_ok(rg_normalize(&t->normalizer, c.m, c.two, &c.p, &err) && rg_pretok_cut(&t->pretok, c.m, &c.p, &c.words, &err), err);
    return c;
}

static void cut_fini(cut *c)
{
    rg_words_fini(&c->words);
    rg_draft_fini(&c->two[0]);
    rg_draft_fini(&c->two[1]);
    rg_matcher_free(c->m);
}

static void check_text(const char *name, const rg_tokenizer *t, rg_rng *rng)
{
    rg_buf text;

    rg_buf_init(&text, 1 << 20);
    for (int k = 0; k < 30; k++) {
        char *marks;
        size_t at = 0, times = 0;
        cut c, want;
        rg_buf_reset(&text);
        for (uint32_t i = 1 + rg_rng_below(rng, 3); i; i--)
            add_run(&text, rg_rng_below(rng, 600), rng);
        marks = rg_zalloc(text.n + 1);
        c = cut_up(t, text.data ? text.data : "", text.n, NULL);
        want = cut_up(t, text.data ? text.data : "", text.n, marks); /* then nothing is put together */
        assert_int_equal(c.words.passage.n, want.words.passage.n);
        assert_memory_equal(c.words.passage.text, want.words.passage.text, want.words.passage.n);
        for (size_t i = 0; i < want.words.n; i++) {
            rg_word w = want.words.word[i], of = at < c.words.n ? c.words.word[at] : (rg_word){ 0 };
            uint32_t further = (uint32_t)times * (of.to - of.from);
            if (w.times != 1 || w.from != of.from + further || w.to != of.to + further)
                fail_msg("%s: word %zu: [%u, %u), alone [%u, %u): %.60s", name, i, of.from + further, of.to + further, w.from,
                         w.to, text.data);
            at += ++times == of.times;
            times = times == of.times ? 0 : times;
        }
        assert_int_equal(at, c.words.n);
        cut_fini(&c);
        cut_fini(&want);
        rg_free(marks);
    }
    rg_buf_fini(&text);
}

/* Text is normalised and cut into the same words whether those that come again are put together or not. */
static void words_put_together(void **state)
{
    (void)state;
    each_tokenizer(check_text);
}

/* ---- work ---- */

/* How much is looked for, cut and joined one by one where a text is one thing again and again: next to nothing. */
static void check_work(const char *name, const rg_tokenizer *t, rg_rng *rng)
{
    enum { BYTES = 1 << 16, MOST = BYTES / 8 };
    static const char *const units[] = { "a", "A", "1", ".", " ", "\n", "\U0001F600", "\u0301", "\u00E9", "\uD55C" };
    rg_bpe_work w = { 0 };
    rg_buf text;

    (void)rng;
    rg_buf_init(&text, 2 * BYTES);
    for (size_t u = 0; u < RG_LEN(units); u++) {
        size_t work, before = w.n_begun;
        cut c;
        rg_buf_reset(&text);
        while (text.n < BYTES)
            assert_true(rg_buf_str(&text, units[u]));
        c = cut_up(t, text.data, text.n, NULL);
        for (size_t i = 0; i < c.words.n && t->model == &rg_word_model_bpe; i++) {
            rg_word s = c.words.word[i];
            rg_ids ids = ids_of(t, &w, (rg_string){ c.words.passage.text + s.from, s.to - s.from }, false);
            rg_ids_fini(&ids);
        }
        work = rg_matcher_calls(c.m) + c.words.n + (w.n_begun - before);
        if (work > MOST)
            fail_msg("%s, '%s': %u looks, %zu words, %zu symbols", name, units[u], (unsigned)rg_matcher_calls(c.m), c.words.n,
                     w.n_begun - before);
        cut_fini(&c);
    }
    rg_buf_fini(&text);
    rg_bpe_work_fini(&w);
}

static void runs_are_little_work(void **state)
{
    (void)state;
    each_tokenizer(check_work);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_cut_short), cmocka_unit_test(words_put_together), cmocka_unit_test(runs_are_little_work),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
