/* pretok.c -- see pretok.h. */
#include "text/pretok.h"

#include <string.h>

#include "base/mem.h"
#include "text/bytelevel.h"
#include "text/clean.h"

enum { TEXT_CAP = INT32_MAX };

void rg_pretok_fini(rg_pretok *p)
{
    for (int i = 0; i < p->n; i++)
        rg_regex_free(p->steps[i].pattern);
    p->n = 0;
}

bool rg_pretok_add(rg_pretok *p, rg_pretok_step step, rg_error *err)
{
    if (p->n == RG_PRETOK_STEPS) {
        rg_regex_free(step.pattern);
        return rg_fail(err, RG_E_UNSUPPORTED, "more than %d pre-tokenizers", RG_PRETOK_STEPS);
    }
    p->steps[p->n++] = step;
    return true;
}

bool rg_pretok_split(rg_pretok *p, const char *regex, rg_behavior behavior, bool invert, rg_error *err)
{
    rg_regex *r = rg_regex_new(regex, strlen(regex), err);

    return r && rg_pretok_add(p, (rg_pretok_step){ RG_PRETOK_SPLIT, behavior, invert, .pattern = r }, err);
}

/* ---- by name ---- */

typedef struct named {
    const char *name;
    bool ignore_merges;
    const char *split[8];
} named;

static const named table[] = {
#define PRETOK(name, ignore_merges, ...) { name, ignore_merges, { __VA_ARGS__ } },
#include "text/pretok.def"
#undef PRETOK
};

bool rg_pretok_byte_level(rg_pretok *p, bool prefix_space, bool use_regex, rg_error *err)
{
    return (!prefix_space || rg_pretok_add(p, (rg_pretok_step){ RG_PRETOK_SPACE }, err)) &&
           (!use_regex || rg_pretok_split(p, GPT2, RG_SPLIT_ISOLATED, false, err)) &&
           rg_pretok_add(p, (rg_pretok_step){ RG_PRETOK_BYTES }, err);
}

bool rg_pretok_named(rg_pretok *p, const char *name, bool *ignore_merges, rg_error *err)
{
    for (size_t i = 0; i < RG_LEN(table); i++) {
        if (strcmp(table[i].name, name))
            continue;
        *ignore_merges = table[i].ignore_merges;
        for (const char *const *s = table[i].split; *s; s++)
            if (!rg_pretok_split(p, *s, RG_SPLIT_ISOLATED, false, err))
                return false;
        return rg_pretok_add(p, (rg_pretok_step){ RG_PRETOK_BYTES }, err);
    }
    return rg_fail(err, RG_E_UNSUPPORTED, "pre-tokenizer '%.60s' is not one that ridge knows", name);
}

/* ---- cutting ---- */

void rg_words_fini(rg_words *w)
{
    rg_buf_fini(&w->own[0]);
    rg_buf_fini(&w->own[1]);
    rg_free(w->word);
    rg_free(w->spare);
    *w = (rg_words){ 0 };
}

static bool spare_add(rg_words *w, rg_word word, rg_error *err)
{
    if (word.from == word.to)
        return true;
    if (w->n_spare == w->spare_room) {
        size_t room = w->spare_room ? 2 * w->spare_room : 256;
        rg_word *list = rg_resize(w->spare, room * sizeof *list);
        if (!list)
            return rg_fail_memory(err, room * sizeof *list);
        w->spare = list;
        w->spare_room = room;
    }
    w->spare[w->n_spare++] = word;
    return true;
}

static void swap_lists(rg_words *w)
{
    rg_word *list = w->word;
    size_t room = w->room;

    w->word = w->spare;
    w->n = w->n_spare;
    w->room = w->spare_room;
    w->spare = list;
    w->spare_room = room;
    w->n_spare = 0;
}

/* The cut that is being made: segments come in order, matches and what lies between them, and become words. */
typedef struct cutter {
    rg_words *w;
    rg_behavior behavior;
    size_t start; /* of the word that is being cut */
    bool first;
    rg_span open; /* the word that may still grow */
    bool is_open, open_match;
    rg_error *err;
} cutter;

static bool emit(cutter *c, rg_span s)
{
    return spare_add(c->w, (rg_word){ s.from, s.to, c->first && s.from == c->start }, c->err);
}

/* Whether a segment joins the open word, by behavior, as the published library has it. */
static bool joins(const cutter *c, bool match)
{
    switch (c->behavior) {
    case RG_SPLIT_CONTIGUOUS:
        return c->open_match == match;
    case RG_SPLIT_MERGED_WITH_PREVIOUS:
        return match && !c->open_match;
    case RG_SPLIT_MERGED_WITH_NEXT:
        return !match && c->open_match;
    default:
        return false;
    }
}

static bool segment(cutter *c, size_t from, size_t to, bool match)
{
    if (c->behavior == RG_SPLIT_REMOVED && match)
        return true;
    if (c->is_open && joins(c, match)) {
        c->open.to = to;
    } else {
        if (c->is_open && !emit(c, c->open))
            return false;
        c->open = (rg_span){ from, to };
        c->is_open = true;
    }
    c->open_match = match;
    return true;
}

static bool cut_word(cutter *c, const rg_pretok_step *step, rg_matcher *m, rg_word word)
{
    size_t done = 0, at = 0, n = word.to - word.from;
    bool matched = false;
    rg_span s;
    int got;

    c->start = word.from;
    c->first = word.first;
    c->is_open = false;
    while ((got = rg_regex_next(step->pattern, m, c->w->text + word.from, n, &at, &s, c->err)) > 0) {
        if (matched && s.to == done) /* nothing, right after a match */
            continue;
        if (s.from > done && !segment(c, word.from + done, word.from + s.from, step->invert))
            return false;
        if (!segment(c, word.from + s.from, word.from + s.to, !step->invert))
            return false;
        done = s.to;
        matched = true;
    }
    if (got < 0 || (done < n && !segment(c, word.from + done, word.to, step->invert)))
        return false;
    return !c->is_open || emit(c, c->open);
}

static bool split(const rg_pretok_step *step, rg_matcher *m, rg_words *w, rg_error *err)
{
    cutter c = { .w = w, .behavior = step->behavior, .err = err };

    for (size_t i = 0; i < w->n; i++)
        if (!cut_word(&c, step, m, w->word[i]))
            return false;
    swap_lists(w);
    return true;
}

static bool starts_with(const rg_words *w, rg_word word, const char *s)
{
    size_t n = strlen(s);

    return word.to - word.from >= n && !memcmp(w->text + word.from, s, n);
}

static bool add_bytes(rg_buf *out, const char *s, size_t n)
{
    char utf8[4];

    for (size_t i = 0; i < n;) {
        int length = rg_clean_length(s + i), stray = rg_clean_stray(s + i, length);
        if (stray >= 0) {
            if (!rg_buf_add(out, utf8, (size_t)rg_utf8_encode(rg_byte_char((unsigned char)stray), utf8)))
                return false;
            i += (size_t)length;
            continue;
        }
        for (int k = 0; k < length; k++, i++)
            if (!rg_buf_add(out, utf8, (size_t)rg_utf8_encode(rg_byte_char((unsigned char)s[i]), utf8)))
                return false;
    }
    return true;
}

static bool add_meta(rg_buf *out, const char *s, size_t n, const char *by)
{
    while (n) {
        const char *space = memchr(s, ' ', n);
        size_t run = space ? (size_t)(space - s) : n;
        if (!rg_buf_add(out, s, run) || (space && !rg_buf_str(out, by)))
            return false;
        s += run + (space != NULL);
        n -= run + (space != NULL);
    }
    return true;
}

/* Every word written anew into the buffer that is not in use. */
static bool rewrite(const rg_pretok_step *step, rg_words *w, rg_error *err)
{
    rg_buf *out = &w->own[w->turn];

    out->cap = TEXT_CAP;
    rg_buf_reset(out);
    for (size_t i = 0; i < w->n; i++) {
        rg_word *word = &w->word[i];
        const char *s = w->text + word->from;
        size_t n = word->to - word->from, from = out->n;
        bool prepend = step->scheme == RG_PREPEND_ALWAYS || (step->scheme == RG_PREPEND_FIRST && word->first);

        if (step->kind == RG_PRETOK_BYTES) {
            add_bytes(out, s, n);
        } else if (step->kind == RG_PRETOK_SPACE) {
            if (!starts_with(w, *word, " "))
                rg_buf_add(out, " ", 1);
            rg_buf_add(out, s, n);
        } else {
            if (prepend && *s != ' ' && !starts_with(w, *word, step->text))
                rg_buf_str(out, step->text);
            add_meta(out, s, n, step->text);
        }
        word->from = from;
        word->to = out->n;
    }
    if (out->failed)
        return rg_fail(err, RG_E_MEMORY, "no memory for the text's words, or the text is larger than %d bytes",
                       TEXT_CAP);
    w->text = out->data ? out->data : "";
    w->turn = !w->turn;
    return true;
}

bool rg_pretok_cut(const rg_pretok *p, rg_matcher *m, const char *text, size_t n, bool first, rg_words *w,
                   rg_error *err)
{
    w->text = text;
    w->n_spare = 0;
    if (!spare_add(w, (rg_word){ 0, n, first }, err))
        return false;
    swap_lists(w);
    for (int i = 0; i < p->n; i++) {
        const rg_pretok_step *step = &p->steps[i];
        if (step->kind != RG_PRETOK_SPLIT && !rewrite(step, w, err))
            return false;
        if (step->pattern && !split(step, m, w, err)) /* RG_PRETOK_META has one if it splits */
            return false;
    }
    return true;
}
