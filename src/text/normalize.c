/* normalize.c -- see normalize.h. */
#include "text/normalize.h"

#include <string.h>

#include <utf8proc.h>

#include "base/mem.h"
#include "text/bytelevel.h"
#include "text/charclass.h"
#include "text/clean.h"
#include "text/normalform.h"

/* The most bytes of the result: a multiple of the input's, and a constant. */
enum { GROW = 64, GROW_BASE = 1 << 16, GRAPHEME = 6 };

void rg_normalizer_fini(rg_normalizer *z)
{
    for (int i = 0; i < z->n; i++) {
        rg_regex_free(z->steps[i].pattern);
        rg_charsmap_free(z->steps[i].map);
        rg_free(z->steps[i].text);
    }
    rg_free(z->steps);
    *z = (rg_normalizer){ 0 };
}

bool rg_normalizer_add(rg_normalizer *z, rg_norm_step step, rg_error *err)
{
    rg_norm_step *steps;

    step.text = step.text ? rg_strndup(step.text, step.n_text) : NULL;
    if (z->n == RG_NORM_STEPS) {
        rg_fail(err, RG_E_UNSUPPORTED, "more than %d normalizers", RG_NORM_STEPS);
        goto fail;
    }
    steps = rg_resize_array(z->steps, (size_t)(z->n + 1), sizeof *steps); /* fits: bounded above */
    if (steps)
        z->steps = steps;
    if (!steps || (step.n_text && !step.text)) {
        rg_fail_memory(err, step.n_text + sizeof *steps);
        goto fail;
    }
    z->inserts |= step.kind == RG_NORM_PREPEND || step.kind == RG_NORM_REPLACE;
    z->steps[z->n++] = step;
    return true;

fail:
    rg_regex_free(step.pattern);
    rg_charsmap_free(step.map);
    rg_free(step.text);
    return false;
}

/* ---- steps that look at one character ---- */

typedef enum fate { KEEP, DROP, REWRITE, SURROUND } fate; /* SURROUND: spaces before and after it */

static fate lowercase(uint32_t c, char *out, size_t *n)
{
    uint32_t low;

    if (c < 0x80) {
        out[0] = (char)(c | 32);
        *n = 1;
        return c >= 'A' && c <= 'Z' ? REWRITE : KEEP;
    }
    if (c == 0x130) { /* the one letter whose lower case is two */
        memcpy(out, "i\xCC\x87", *n = 3);
        return REWRITE;
    }
    low = (uint32_t)utf8proc_tolower((int32_t)c);
    if (low == c)
        return KEEP;
    *n = (size_t)rg_utf8_encode(low, out);
    return REWRITE;
}

static fate to_space(char *out, size_t *n)
{
    out[0] = ' ';
    *n = 1;
    return REWRITE;
}

static fate nmt(uint32_t c, char *out, size_t *n)
{
    if ((c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F)
        return DROP;
    if (c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 || (c >= 0x200B && c <= 0x200F) || c == 0x2028 ||
        c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD)
        return to_space(out, n);
    return KEEP;
}

static fate bert_clean(uint32_t c, char *out, size_t *n)
{
    if (c > 32 && c < 127)
        return KEEP;
    if (c == '\t' || c == '\n' || c == '\r')
        return to_space(out, n);
    if (!c || c == 0xFFFD || rg_is_other(c))
        return DROP;
    return rg_is_space(c) && c != ' ' ? to_space(out, n) : KEEP;
}

static fate ideograph(uint32_t c, char *out, size_t *n)
{
    (void)out, (void)n;
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
                   (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
                   (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F)
               ? SURROUND
               : KEEP;
}

static fate strip_marks(uint32_t c, char *out, size_t *n)
{
    (void)out, (void)n;
    return c >= 0x80 && rg_is_mark(c) ? DROP : KEEP;
}

static fate strip_nonspacing(uint32_t c, char *out, size_t *n)
{
    (void)out, (void)n;
    return c >= 0x80 && rg_is_nonspacing(c) ? DROP : KEEP;
}

typedef fate char_step(uint32_t code, char *out, size_t *n);

/* The result for a character.  A text has few different ones, so the latest results are remembered. */
typedef struct verdict {
    uint32_t code;
    fate fate;
    size_t n;
    char by[8];
} verdict;

enum { VERDICTS = 64 };

/* What is kept is copied in runs. */
static void each_char(char_step *look, const rg_passage *p, rg_draft *out)
{
    verdict known[VERDICTS] = { { .code = 1 } }; /* the others know the code 0, which comes first here */
    size_t kept = 0;

    for (size_t i = 0; i < p->n;) {
        int length;
        uint32_t code = rg_clean_char(p->text + i, &length);
        size_t next = i + (size_t)length;
        verdict *v = &known[code % VERDICTS];

        if (v->code != code) {
            v->code = code;
            v->fate = look(code, v->by, &v->n);
            if (v->fate == SURROUND && !out->marked) { /* then it is all one */
                v->n = (size_t)length + 2;
                v->by[0] = v->by[v->n - 1] = ' ';
                memcpy(v->by + 1, p->text + i, (size_t)length);
                v->fate = REWRITE;
            }
        }
        if (v->fate != KEEP) {
            rg_draft_copy(out, p, kept, i);
            kept = next;
        }
        if (v->fate == DROP) {
            rg_draft_drop(out, rg_passage_foreign(p, i, next));
        } else if (v->fate == REWRITE) {
            rg_draft_put(out, v->by, v->n, i, rg_passage_foreign(p, i, next));
        } else if (v->fate == SURROUND) {
            rg_draft_put(out, " ", 1, i, false);
            rg_draft_copy(out, p, i, next);
            rg_draft_put(out, " ", 1, i, false);
        }
        i = next;
    }
    rg_draft_copy(out, p, kept, p->n);
}

static void bytes(const rg_passage *p, rg_draft *out)
{
    for (size_t i = 0; i < p->n;) {
        int length = rg_clean_length(p->text + i), stray = rg_clean_stray(p->text + i, length);
        char utf8[4];
        for (int k = 0; k < (stray >= 0 ? 1 : length); k++) {
            unsigned char b = stray >= 0 ? (unsigned char)stray : (unsigned char)p->text[i + (size_t)k];
            rg_draft_put(out, utf8, (size_t)rg_utf8_encode(rg_byte_char(b), utf8), i,
                         rg_passage_foreign(p, i, i + (size_t)length));
        }
        i += (size_t)length;
    }
}

/* ---- character maps ---- */

/* Bytes [from, to) of p become `by`.  What is taken from the front leaves what follows at the beginning of the text, as
 * the published library has it. */
static void map_part(const rg_passage *p, size_t from, size_t to, rg_string by, rg_draft *out)
{
    bool foreign = rg_passage_foreign(p, from, to);

    if (by.n)
        rg_draft_put(out, by.data, by.n, out->text.n ? from : 0, foreign);
    else
        rg_draft_drop(out, foreign);
}

static void keep_part(const rg_passage *p, size_t from, size_t to, rg_draft *out)
{
    if (out->text.n || p->head > from)
        rg_draft_copy(out, p, from, to);
    else
        rg_draft_put(out, p->text + from, to - from, 0, rg_passage_foreign(p, from, to));
}

/* Clusters of characters that are short enough are looked up whole: if the map knows so much as a beginning of one, all
 * of it becomes what that does.  So the published library has it. */
static void map_clusters(const rg_charsmap *map, const rg_passage *p, rg_draft *out)
{
    for (size_t i = 0; i < p->n;) {
        size_t end = i + rg_cluster_length(p->text + i, p->n - i);
        rg_string by;

        if (end - i < GRAPHEME && rg_charsmap_find(map, p->text + i, end - i, false, &by)) {
            map_part(p, i, end, by, out);
            i = end;
        }
        while (i < end) {
            size_t next = i + (size_t)rg_clean_length(p->text + i);
            if (rg_charsmap_find(map, p->text + i, next - i, false, &by))
                map_part(p, i, next, by, out);
            else
                keep_part(p, i, next, out);
            i = next;
        }
    }
}

static void map_longest(const rg_charsmap *map, const rg_passage *p, rg_draft *out)
{
    for (size_t i = 0; i < p->n;) {
        rg_string by;
        size_t n = rg_charsmap_find(map, p->text + i, p->n - i, true, &by), one = (size_t)rg_clean_length(p->text + i);

        if (n)
            map_part(p, i, i + n, by, out);
        else
            rg_draft_copy(out, p, i, i + one);
        i += n ? n : one;
        while (i < p->n && ((unsigned char)p->text[i] & 0xC0) == 0x80) /* a map that ends within a character */
            i++;
    }
}

/* ---- the other steps ---- */

static bool replace(const rg_norm_step *z, rg_matcher *m, const rg_passage *p, rg_draft *out, rg_error *err)
{
    size_t done = 0;
    rg_walk walk = { 0 };
    rg_extent s;
    int got = 0;

    while (rg_draft_ok(out) && (got = rg_regex_next(z->pattern, m, p->text, p->n, &walk, &s, err)) > 0) {
        size_t last = s.to ? s.to - 1 : 0; /* the published library takes it to come of the match's last character */
        while (last && ((unsigned char)p->text[last] & 0xC0) == 0x80)
            last--;
        rg_draft_copy(out, p, done, s.from);
        if (z->n_text)
            rg_draft_put(out, z->text, z->n_text, last, rg_passage_foreign(p, s.from, s.to));
        else
            rg_draft_drop(out, rg_passage_foreign(p, s.from, s.to));
        done = s.to;
    }
    if (rg_draft_ok(out) && got < 0)
        return false;
    rg_draft_copy(out, p, done, p->n);
    return true;
}

static void squeeze(const rg_passage *p, rg_draft *out)
{
    size_t end = p->n;

    while (end && p->text[end - 1] == ' ')
        end--;
    for (size_t i = 0; i < end; i++) {
        size_t from = i;
        while (i < end && p->text[i] != ' ')
            i++;
        rg_draft_copy(out, p, from, i);
        from = i;
        while (i < end && p->text[i] == ' ')
            i++;
        if (i > from && out->text.n)
            rg_draft_put(out, " ", 1, from, rg_passage_foreign(p, from, i));
        i--;
    }
}

static bool is_ascii(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] & 0x80)
            return false;
    return true;
}

static void strip(const rg_norm_step *z, rg_passage *p)
{
    const char *from = p->text, *end = from + p->n;

    while (z->left && from < end && rg_is_space(rg_utf8_code(from, rg_clean_length(from))))
        from += rg_clean_length(from);
    while (z->right && from < end) {
        const char *q = end - 1;
        while (q > from && ((unsigned char)*q & 0xC0) == 0x80)
            q--;
        if (!rg_is_space(rg_utf8_code(q, (int)(end - q))))
            break;
        end = q;
    }
    *p = rg_passage_part(p, (size_t)(from - p->text), (size_t)(end - p->text));
}

static bool apply(const rg_norm_step *z, rg_matcher *m, const rg_passage *p, rg_draft *out, rg_error *err)
{
    static char_step *const by_char[] = {
        [RG_NORM_LOWERCASE] = lowercase,     [RG_NORM_NMT] = nmt,
        [RG_NORM_BERT_CLEAN] = bert_clean,   [RG_NORM_IDEOGRAPHS] = ideograph,
        [RG_NORM_STRIP_MARKS] = strip_marks, [RG_NORM_STRIP_NONSPACING] = strip_nonspacing,
    };

    if (z->kind < RG_LEN(by_char) && by_char[z->kind])
        return each_char(by_char[z->kind], p, out), true;
    switch (z->kind) {
    case RG_NORM_PREPEND:
        rg_draft_put(out, z->text, z->n_text, 0, false);
        rg_draft_copy(out, p, 0, p->n);
        return true;
    case RG_NORM_REPLACE:
        return replace(z, m, p, out, err);
    case RG_NORM_BYTES:
        return bytes(p, out), true;
    case RG_NORM_CHARSMAP:
        return map_clusters(z->map, p, out), true;
    case RG_NORM_CHARSMAP_LONGEST:
        return map_longest(z->map, p, out), true;
    case RG_NORM_SQUEEZE:
        return squeeze(p, out), true;
    default:
        return rg_normal_form(p, z->kind == RG_NORM_NFC || z->kind == RG_NORM_NFKC,
                              z->kind == RG_NORM_NFKC || z->kind == RG_NORM_NFKD, out, err);
    }
}

bool rg_normalize(const rg_normalizer *z, rg_matcher *m, rg_draft two[2], rg_passage *p, rg_error *err)
{
    size_t cap = GROW_BASE + GROW * p->n;
    int turn = 0;

    for (int i = 0; i < z->n && p->n; i++) {
        const rg_norm_step *step = &z->steps[i];
        if (step->kind == RG_NORM_STRIP) {
            strip(step, p);
            continue;
        }
        if (step->kind <= RG_NORM_STRIP_NONSPACING && is_ascii(p->text, p->n))
            continue;
        rg_draft_begin(&two[turn], p, cap);
        if (!apply(step, m, p, &two[turn], err))
            return false;
        if (!rg_draft_ok(&two[turn]))
            return rg_fail(err, RG_E_LIMIT, "no memory for normalised text, or it is more than %d times longer", GROW);
        *p = rg_draft_passage(&two[turn]);
        turn = !turn;
    }
    return true;
}
