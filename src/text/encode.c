/* encode.c -- encodes a text through the parts of a tokenizer.
 *
 * Added tokens are cut out of the text as it came; each stretch between them is normalised, and added tokens that are
 * looked for in normalised text are cut out of that; what is left is cut into words, and the model makes ids of each.
 * Where a text came from goes along as marks on its bytes, if it came from several places. */
#include <string.h>

#include "base/mem.h"
#include "text/clean.h"
#include "text/internal.h"
#include "text/wordcache.h"

enum { TEXT_CAP = 1 << 30, CACHE_FROM = 256 /* bytes of text: in shorter texts words hardly repeat */ };

void rg_ids_fini(rg_ids *ids)
{
    rg_free(ids->id);
    *ids = (rg_ids){ 0 };
}

/* One call's memory. */
typedef struct work {
    const rg_tokenizer *t;
    rg_matcher *matcher;
    rg_draft clean, normal[2];
    rg_words words;
    rg_wordcache cache;
    rg_buf bytes;
    rg_model_work model;
    rg_string last; /* the word before, and where its ids start, up to the end */
    bool last_plain;
    size_t last_ids;
    rg_ids *ids;
    rg_error *err;
} work;

/* A word whose bytes the model knows as characters. */
static bool encode_bytes(work *w, rg_string word, bool plain)
{
    char stack[512], *to = stack;
    size_t n;

    if (w->t->model == &rg_word_model_bpe && rg_bpe_takes_bytes(&w->t->bpe, word))
        return rg_bpe_encode_bytes(&w->t->bpe, &w->model.bpe, word, plain, w->ids, w->err);
    if (2 * word.n > sizeof stack) {
        rg_buf_reset(&w->bytes);
        w->bytes.cap = SIZE_MAX / 2;
        if (!rg_buf_add(&w->bytes, word.data, word.n) || !rg_buf_add(&w->bytes, word.data, word.n))
            return rg_fail_memory(w->err, 2 * word.n);
        to = w->bytes.data;
    }
    n = rg_pretok_bytes(word.data, word.n, to);
    return w->t->model->encode(w->t, &w->model, (rg_string){ to, n }, plain, w->ids, w->err);
}

static bool encode_word(work *w, rg_string word, bool plain)
{
    const int32_t *known;
    uint64_t hash = 0;
    size_t n, before = w->ids->n;

    if (word.n == w->last.n && plain == w->last_plain && word.n <= RG_WORDCACHE_BYTES &&
        !memcmp(word.data, w->last.data, word.n)) { /* the word before, again */
        bool ok = rg_ids_again(w->ids, w->last_ids, 1, w->err);
        w->last_ids = before;
        return ok;
    }
    w->last = word;
    w->last_plain = plain;
    w->last_ids = before;

    if (w->cache.sets && rg_wordcache_get(&w->cache, word, plain, &hash, &known, &n)) {
        for (size_t i = 0; i < n; i++)
            if (!rg_ids_add(w->ids, known[i], w->err))
                return false;
        return true;
    }
    if (w->words.bytes ? !encode_bytes(w, word, plain)
                       : !w->t->model->encode(w->t, &w->model, word, plain, w->ids, w->err))
        return false;
    if (w->cache.sets && w->ids->id)
        rg_wordcache_put(&w->cache, word, hash, w->ids->id + before, w->ids->n - before);
    return true;
}

/* A word in the parts that BPE can be given apart, which are words that come again. */
static bool encode_parts(work *w, rg_string word, bool plain)
{
    while (word.n) {
        size_t n = rg_bpe_cut(&w->t->bpe, word);
        if (!encode_word(w, (rg_string){ word.data, n }, plain))
            return false;
        word = (rg_string){ word.data + n, word.n - n };
    }
    return true;
}

static bool encode_words(work *w, const rg_passage *p)
{
    bool parts;

    if (!rg_pretok_cut(&w->t->pretok, w->matcher, p, &w->words, w->err))
        return false;
    parts = w->t->model == &rg_word_model_bpe && w->t->bpe.cuts && !w->words.bytes;
    w->last.n = 0; /* its memory may have been reused */
    for (size_t i = 0; i < w->words.n; i++) {
        rg_word s = w->words.word[i];
        size_t before = w->ids->n;
        if (!(parts ? encode_parts : encode_word)(w, (rg_string){ w->words.passage.text + s.from, s.to - s.from },
                                                  rg_passage_foreign(&w->words.passage, s.from, s.to)) ||
            !rg_ids_again(w->ids, before, s.times - 1, w->err))
            return false;
        if (s.times > 1)
            w->last.n = 0; /* its ids are not the last ones alone */
    }
    return true;
}

typedef bool stretch(work *w, const rg_passage *p);

/* The ids of the tokens of a set in p, and what `between` makes of each stretch between them. */
static bool cut_out(work *w, const rg_added_set *set, const rg_passage *p, stretch *between)
{
    size_t done = 0;
    rg_search search = { 0 };
    rg_passage part;
    rg_found f;

    while (rg_added_next(set, p, &search, &f)) {
        part = rg_passage_part(p, done, f.from > done ? f.from : done);
        if (part.n && !between(w, &part))
            return false;
        if (!rg_ids_add(w->ids, f.token->id, w->err))
            return false;
        done = f.to;
    }
    part = rg_passage_part(p, done, p->n);
    return !part.n || between(w, &part);
}

static bool encode_stretch(work *w, const rg_passage *p)
{
    rg_passage normal = *p;

    return rg_normalize(&w->t->normalizer, w->matcher, w->normal, &normal, w->err) &&
           cut_out(w, &w->t->normalized, &normal, encode_words);
}

static bool add_all(rg_ids *ids, const int32_t *id, int n, rg_error *err)
{
    for (int i = 0; i < n; i++)
        if (!rg_ids_add(ids, id[i], err))
            return false;
    return true;
}

/* Append the bytes at the start of s[0, n) that are not part of a character, at least one and at most `most`; returns
 * how many. */
static size_t clean_strays(rg_draft *out, const char *s, size_t n, size_t most, bool foreign)
{
    enum { SOME = 64 };
    char strays[4 * SOME];
    size_t done = 0, length = 0;
    uint32_t code;

    do
        length += (size_t)rg_utf8_encode(RG_STRAY_BASE + (unsigned char)s[done++], strays + length);
    while (done < most && done < SOME && !rg_utf8_decode(s + done, n - done, &code));
    rg_draft_put(out, strays, length, 0, foreign);
    return done;
}

/* Write s[0, n) clean; its characters may lie across runs, and every byte is as foreign as its run. */
static void clean_runs(rg_draft *out, const char *s, size_t n, const rg_run *run)
{
    for (size_t i = 0; i < n;) {
        size_t whole = i + rg_utf8_span(s + i, n - i);
        for (; i < whole; run += run->end <= i) {
            size_t end = run->end < whole ? run->end : whole;
            rg_draft_put(out, s + i, end - i, i, !run->trusted);
            i = end;
        }
        if (i < n) {
            i += clean_strays(out, s + i, n - i, run->end - i, !run->trusted);
            run += run->end <= i && i < n;
        }
    }
}

/* The text as a passage of clean characters, with marks if its runs are of both kinds; or if all is foreign and the
 * normaliser could write a special token of its own accord. */
static bool make_passage(work *w, const char *s, const rg_run *run, size_t n_runs, rg_passage *p)
{
    size_t n = n_runs ? run[n_runs - 1].end : 0;
    bool foreign = n_runs && !run[0].trusted;
    bool marked = n_runs > 1 || (foreign && w->t->normalizer.inserts && w->t->normalized.n_special);
    rg_passage like = { .marks = marked ? "" : NULL, .foreign = foreign };

    *p = (rg_passage){ .text = s ? s : "", .n = n, .foreign = foreign };
    if (marked || !rg_utf8_valid(s, n)) {
        rg_draft_begin(&w->clean, &like, SIZE_MAX / 2);
        clean_runs(&w->clean, s, n, run);
        if (!rg_draft_ok(&w->clean))
            return rg_fail_memory(w->err, 3 * n);
        *p = rg_draft_passage(&w->clean);
    }
    p->head = p->n ? (size_t)rg_clean_length(p->text) : 0;
    return true;
}

static bool encode(const rg_tokenizer *t, const char *s, const rg_run *run, size_t n_runs, unsigned flags, rg_ids *ids,
                   rg_error *err)
{
    work w = { .t = t, .ids = ids, .err = err };
    bool special = !(flags & RG_ENCODE_NO_SPECIAL), ok;
    size_t n = n_runs ? run[n_runs - 1].end : 0;
    rg_passage p;

    if (n > TEXT_CAP)
        return rg_fail(err, RG_E_LIMIT, "a text of %zu bytes, more than %d", n, TEXT_CAP);
    w.matcher = rg_matcher_new(n, err);
    ok = w.matcher && (n < CACHE_FROM || rg_wordcache_init(&w.cache, n, err)) &&
         (!special || add_all(ids, t->around.before, t->around.n_before, err)) &&
         make_passage(&w, s, run, n_runs, &p) && cut_out(&w, &t->raw, &p, encode_stretch) &&
         (!special || add_all(ids, t->around.after, t->around.n_after, err));
    rg_draft_fini(&w.clean);
    rg_draft_fini(&w.normal[0]);
    rg_draft_fini(&w.normal[1]);
    rg_words_fini(&w.words);
    rg_wordcache_fini(&w.cache);
    rg_buf_fini(&w.bytes);
    rg_model_work_fini(&w.model);
    rg_matcher_free(w.matcher);
    return ok;
}

bool rg_tokenizer_encode(const rg_tokenizer *t, const char *text, size_t n, unsigned flags, rg_ids *ids, rg_error *err)
{
    rg_run whole = { .end = n, .trusted = !(flags & RG_ENCODE_PLAIN) };

    return encode(t, text, &whole, n > 0, flags, ids, err);
}

bool rg_tokenizer_encode_text(const rg_tokenizer *t, const rg_text *text, unsigned flags, rg_ids *ids, rg_error *err)
{
    if (flags & RG_ENCODE_PLAIN)
        return rg_tokenizer_encode(t, text->bytes.data, text->bytes.n, flags, ids, err);
    return encode(t, text->bytes.data, text->run, text->n_runs, flags, ids, err);
}

void rg_model_work_fini(rg_model_work *w)
{
    rg_bpe_work_fini(&w->bpe);
    rg_unigram_work_fini(&w->unigram);
}
