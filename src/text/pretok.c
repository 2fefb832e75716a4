/* pretok.c -- see pretok.h. */
#include "text/pretok.h"

#include <string.h>

#include "base/mem.h"
#include "text/bytelevel.h"
#include "text/charclass.h"
#include "text/clean.h"

enum { TEXT_CAP = INT32_MAX, WHOLE = 256 };

void rg_pretok_fini(rg_pretok *p)
{
    for (int i = 0; i < p->n; i++)
        rg_regex_free(p->steps[i].pattern);
    rg_free(p->steps);
    *p = (rg_pretok){ 0 };
}

bool rg_pretok_add(rg_pretok *p, rg_pretok_step step, rg_error *err)
{
    rg_pretok_step *steps;

    if (p->n == RG_PRETOK_STEPS) {
        rg_regex_free(step.pattern);
        return rg_fail(err, RG_E_UNSUPPORTED, "more than %d pre-tokenizers", RG_PRETOK_STEPS);
    }
    steps = rg_resize_array(p->steps, (size_t)(p->n + 1), sizeof *steps); /* fits: bounded above */
    if (!steps)
        return rg_regex_free(step.pattern), rg_fail_memory(err, sizeof *steps);
    p->steps = steps;
    p->steps[p->n++] = step;
    return true;
}

bool rg_pretok_class(rg_pretok *p, bool (*class)(uint32_t code), rg_behavior behavior, rg_error *err)
{
    return rg_pretok_add(p, (rg_pretok_step){ RG_PRETOK_SPLIT, behavior, .class = class }, err);
}

bool rg_pretok_split(rg_pretok *p, const char *regex, rg_behavior behavior, bool invert, rg_error *err)
{
    rg_regex *r = rg_regex_new(regex, strlen(regex), err);

    return r && rg_pretok_add(p, (rg_pretok_step){ RG_PRETOK_SPLIT, behavior, invert, .pattern = r }, err);
}

/* ---- by name ---- */

typedef struct named {
    const char *name;
    unsigned flags;
    const char *split[8];
} named;

static const named table[] = {
#define PRETOK(name, flags, ...) { name, flags, { __VA_ARGS__ } },
#include "text/pretok.def"
#undef PRETOK
};

bool rg_pretok_byte_level(rg_pretok *p, bool prefix_space, bool use_regex, rg_error *err)
{
    return (!prefix_space || rg_pretok_add(p, (rg_pretok_step){ RG_PRETOK_SPACE }, err)) &&
           (!use_regex || rg_pretok_split(p, GPT2, RG_SPLIT_ISOLATED, false, err)) &&
           rg_pretok_add(p, (rg_pretok_step){ RG_PRETOK_BYTES }, err);
}

bool rg_pretok_named(rg_pretok *p, const char *name, unsigned *flags, rg_error *err)
{
    for (size_t i = 0; i < RG_LEN(table); i++) {
        if (strcmp(table[i].name, name))
            continue;
        *flags = table[i].flags;
        for (const char *const *s = table[i].split; *s; s++)
            if (!rg_pretok_split(p, *s, RG_SPLIT_ISOLATED, false, err))
                return false;
        return (*flags & RG_PRE_CHARS) || rg_pretok_add(p, (rg_pretok_step){ RG_PRETOK_BYTES }, err);
    }
    return rg_fail(err, RG_E_UNSUPPORTED, "pre-tokenizer '%.60s' is not one that ridge knows", name);
}

/* ---- cutting ---- */

void rg_words_fini(rg_words *w)
{
    rg_draft_fini(&w->own[0]);
    rg_draft_fini(&w->own[1]);
    rg_free(w->word);
    rg_free(w->spare);
    *w = (rg_words){ 0 };
}

static bool spare_room(rg_words *w, size_t n, rg_error *err)
{
    size_t room = w->spare_room ? w->spare_room : 64;
    rg_word *list;

    if (w->n_spare + n <= w->spare_room)
        return true;
    while (room < w->n_spare + n)
        room *= 2;
    list = rg_resize_array(w->spare, room, sizeof *list);
    if (!list)
        return rg_fail_memory(err, room * sizeof *list);
    w->spare = list;
    w->spare_room = room;
    return true;
}

/* A word of p; or the last one once more, if it is that and comes right after it. */
static bool spare_add(rg_words *w, const rg_passage *p, rg_extent word, rg_error *err)
{
    size_t n = word.to - word.from;

    if (!n)
        return true;
    if (w->n_spare && !p->marks) {
        rg_word *last = &w->spare[w->n_spare - 1];
        if (last->to - last->from == n && last->from + n * last->times == word.from &&
            p->text[last->from] == p->text[word.from] && !memcmp(p->text + last->from, p->text + word.from, n))
            return last->times++, true;
    }
    if (!spare_room(w, 1, err))
        return false;
    w->spare[w->n_spare++] = (rg_word){ (uint32_t)word.from, (uint32_t)word.to, 1 };
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
    rg_extent open; /* the word that may still grow */
    bool is_open, open_match;
    uint32_t known[64]; /* characters, and in the lowest bit whether they are of the step's class */
    rg_error *err;
} cutter;

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
        if (c->is_open && !spare_add(c->w, &c->w->passage, c->open, c->err))
            return false;
        c->open = (rg_extent){ from, to };
        c->is_open = true;
    }
    c->open_match = match;
    return true;
}

/* The next character of a class, as rg_regex_next finds patterns.  A text has few different characters, so the latest
 * answers for a class are remembered. */
static bool next_of_class(cutter *c, bool (*class)(uint32_t), const char *text, size_t n, rg_walk *walk,
                          rg_extent *found)
{
    while (walk->at < n) {
        int length;
        uint32_t code = rg_clean_char(text + walk->at, &length), *known = &c->known[code % RG_LEN(c->known)];
        size_t from = walk->at;
        walk->at += (size_t)length;
        if (*known >> 1 != code || !code)
            *known = code << 1 | class(code);
        if (*known & 1) {
            *found = (rg_extent){ from, walk->at };
            return true;
        }
    }
    return false;
}

static bool cut_word(cutter *c, const rg_pretok_step *step, rg_matcher *m, rg_extent word)
{
    const char *text = c->w->passage.text + word.from;
    size_t done = 0, n = word.to - word.from;
    rg_walk walk = { 0 };
    rg_extent s;
    int got;

    c->is_open = false;
    while ((got = step->class ? next_of_class(c, step->class, text, n, &walk, &s)
                              : rg_regex_next(step->pattern, m, text, n, &walk, &s, c->err)) > 0) {
        if (s.from > done && !segment(c, word.from + done, word.from + s.from, step->invert))
            return false;
        if (!segment(c, word.from + s.from, word.from + s.to, !step->invert))
            return false;
        done = s.to;
    }
    if (got < 0 || (done < n && !segment(c, word.from + done, word.to, step->invert)))
        return false;
    return !c->is_open || spare_add(c->w, &c->w->passage, c->open, c->err);
}

/* Cut where the script changes.  Characters of any script go with what is before them; those that nothing is before are
 * lost, as in the published library. */
static bool cut_scripts(rg_words *w, rg_extent word, rg_error *err)
{
    const char *text = w->passage.text;
    size_t from = word.to;
    int last = 0;

    for (size_t i = word.from; i < word.to;) {
        int length = rg_clean_length(text + i), script = rg_script(rg_utf8_code(text + i, length));
        if (script && script != last) {
            if (from < i && !spare_add(w, &w->passage, (rg_extent){ from, i }, err))
                return false;
            from = i;
            last = script;
        }
        i += (size_t)length;
    }
    return spare_add(w, &w->passage, (rg_extent){ from, word.to }, err);
}

static bool cut_fixed(rg_words *w, rg_extent word, size_t length, rg_error *err)
{
    size_t from = word.from, n = 0;

    for (size_t i = word.from; i < word.to;) {
        i += (size_t)rg_clean_length(w->passage.text + i);
        if (++n < length && i < word.to)
            continue;
        if (!spare_add(w, &w->passage, (rg_extent){ from, i }, err))
            return false;
        from = i;
        n = 0;
    }
    return true;
}

/* A short word as a unique number; 0: it is too long for that. */
static uint64_t short_word(const rg_words *w, rg_word word)
{
    size_t n = word.to - word.from;
    uint64_t key = 0;

    if (n >= sizeof key)
        return 0;
    if (w->passage.n - word.from >= sizeof key) { /* then it takes no call */
        memcpy(&key, w->passage.text + word.from, sizeof key);
        return (key & (((uint64_t)1 << 8 * n) - 1)) | (uint64_t)n << 56;
    }
    memcpy(&key, w->passage.text + word.from, n);
    return key | (uint64_t)n << 56;
}

static bool split_one(const rg_pretok_step *step, rg_matcher *m, cutter *c, rg_extent word)
{
    return step->kind == RG_PRETOK_SCRIPTS ? cut_scripts(c->w, word, c->err)
           : step->kind == RG_PRETOK_FIXED ? cut_fixed(c->w, word, step->length, c->err)
                                           : cut_word(c, step, m, word);
}

/* A word that came once or several times.  *whole: the step leaves it as it is. */
static bool split_all(const rg_pretok_step *step, rg_matcher *m, cutter *c, rg_word word, bool *whole)
{
    rg_words *w = c->w;
    size_t before = w->n_spare, n = word.to - word.from;

    if (!split_one(step, m, c, (rg_extent){ word.from, word.to }))
        return false;
    *whole = w->n_spare == before + 1 && w->spare[before].from == word.from && w->spare[before].to == word.to;
    if (*whole)
        w->spare[before].times = word.times;
    for (size_t k = 1; k < word.times && !*whole; k++)
        if (!split_one(step, m, c, (rg_extent){ word.from + k * n, word.to + k * n }))
            return false;
    return true;
}

/* How a word is cut depends on its bytes alone: short ones that a step leaves whole are remembered. */
static bool split(const rg_pretok_step *step, rg_matcher *m, rg_words *w, rg_error *err)
{
    cutter c = { .w = w, .behavior = step->behavior, .err = err };
    uint64_t known[WHOLE] = { 0 };

    for (size_t i = 0; i < w->n; i++) {
        rg_word word = w->word[i];
        uint64_t key = short_word(w, word), *whole = &known[key * 0x9E3779B97F4A7C15U >> 56];
        bool is_whole = key && *whole == key;
        if (is_whole ? !spare_room(w, 1, err) : !split_all(step, m, &c, word, &is_whole))
            return false;
        if (key && *whole == key)
            w->spare[w->n_spare++] = word;
        else if (key && is_whole)
            *whole = key;
    }
    swap_lists(w);
    return true;
}

/* ---- rewriting ---- */

size_t rg_pretok_bytes(const char *s, size_t n, char *out)
{
    size_t at = 0;

    for (size_t i = 0; i < n;) {
        int stray = (unsigned char)s[i] == 0xED ? rg_clean_stray(s + i, rg_clean_length(s + i)) : -1;
        at += (size_t)rg_utf8_encode(rg_byte_char(stray >= 0 ? (unsigned char)stray : (unsigned char)s[i]), out + at);
        i += stray >= 0 ? 3 : 1;
    }
    return at;
}

static bool starts_with(const rg_words *w, rg_extent word, const char *s)
{
    size_t n = strlen(s);

    return word.to - word.from >= n && !memcmp(w->passage.text + word.from, s, n);
}

static void write_bytes(const rg_passage *p, rg_extent word, rg_draft *out)
{
    for (size_t i = word.from; i < word.to;) {
        size_t length = (size_t)rg_clean_length(p->text + i);
        char by[8];
        rg_draft_put(out, by, rg_pretok_bytes(p->text + i, length, by), i, rg_passage_foreign(p, i, i + length));
        i += length;
    }
}

/* A space put in front is as foreign as what it is put in front of. */
static void write_meta(const rg_pretok_step *step, const rg_words *w, rg_extent word, rg_draft *out)
{
    const rg_passage *p = &w->passage;
    bool prepend = step->scheme == RG_PREPEND_ALWAYS || (step->scheme == RG_PREPEND_FIRST && word.from < p->head);
    size_t n = strlen(step->text);

    if (prepend && p->text[word.from] != ' ' && !starts_with(w, word, step->text))
        rg_draft_put(out, step->text, n, word.from, rg_passage_foreign(p, word.from, word.from + 1));
    for (size_t i = word.from; i < word.to;) {
        const char *space = memchr(p->text + i, ' ', word.to - i);
        size_t end = space ? (size_t)(space - p->text) : word.to;
        rg_draft_copy(out, p, i, end);
        if (space)
            rg_draft_put(out, step->text, n, end, rg_passage_foreign(p, end, end + 1));
        i = end + (space != NULL);
    }
}

static void write_space(const rg_words *w, rg_extent word, rg_draft *out)
{
    const rg_passage *p = &w->passage;

    if (!starts_with(w, word, " "))
        rg_draft_put(out, " ", 1, word.from, rg_passage_foreign(p, word.from, word.from + 1));
    rg_draft_copy(out, p, word.from, word.to);
}

/* Every word written anew into the draft that is not in use. */
static bool rewrite(const rg_pretok_step *step, rg_words *w, rg_error *err)
{
    rg_draft *out = &w->own[w->turn];

    rg_draft_begin(out, &w->passage, TEXT_CAP);
    for (size_t i = 0; i < w->n; i++) {
        size_t n = w->word[i].to - w->word[i].from;
        for (size_t k = 0; k < w->word[i].times; k++) {
            rg_extent word = { w->word[i].from + k * n, w->word[i].to + k * n };
            size_t from = out->text.n;
            rg_passage written;
            if (step->kind == RG_PRETOK_BYTES)
                write_bytes(&w->passage, word, out);
            else if (step->kind == RG_PRETOK_SPACE)
                write_space(w, word, out);
            else
                write_meta(step, w, word, out);
            written = rg_draft_passage(out);
            if (!spare_add(w, &written, (rg_extent){ from, out->text.n }, err))
                return false;
        }
    }
    if (!rg_draft_ok(out))
        return rg_fail(err, RG_E_MEMORY, "no memory for the text's words, or the text is larger than %d bytes",
                       TEXT_CAP);
    swap_lists(w);
    w->passage = rg_draft_passage(out);
    w->turn = !w->turn;
    return true;
}

bool rg_pretok_cut(const rg_pretok *p, rg_matcher *m, const rg_passage *passage, rg_words *w, rg_error *err)
{
    int n = p->n;

    w->bytes = n && p->steps[n - 1].kind == RG_PRETOK_BYTES;
    w->passage = *passage;
    w->n_spare = 0;
    if (passage->n > TEXT_CAP)
        return rg_fail(err, RG_E_LIMIT, "a text of %zu bytes once normalised, more than %d", passage->n, TEXT_CAP);
    if (!spare_add(w, passage, (rg_extent){ 0, passage->n }, err))
        return false;
    swap_lists(w);
    for (int i = 0; i < n - w->bytes; i++) {
        const rg_pretok_step *step = &p->steps[i];
        bool writes = step->kind == RG_PRETOK_SPACE || step->kind == RG_PRETOK_META || step->kind == RG_PRETOK_BYTES;
        if (writes && !rewrite(step, w, err))
            return false;
        if ((!writes || step->pattern) && !split(step, m, w, err)) /* RG_PRETOK_META has a pattern if it splits */
            return false;
    }
    return true;
}
