/* normalize.c -- see normalize.h. */
#include "text/normalize.h"

#include <string.h>

#include <utf8proc.h>

#include "base/mem.h"
#include "text/clean.h"

/* A step's output may have so many bytes per byte of its input, and so many more. */
enum { GROW = 64, GROW_BASE = 1 << 16 };

void rg_normalizer_fini(rg_normalizer *z)
{
    for (int i = 0; i < z->n; i++) {
        rg_regex_free(z->steps[i].pattern);
        rg_free(z->steps[i].text);
    }
    z->n = 0;
}

bool rg_normalizer_add(rg_normalizer *z, rg_norm_step step, rg_error *err)
{
    if (z->n == RG_NORM_STEPS)
        return rg_regex_free(step.pattern), rg_fail(err, RG_E_UNSUPPORTED, "more than %d normalizers", RG_NORM_STEPS);
    step.text = step.text ? rg_strndup(step.text, step.n_text) : NULL;
    if (step.n_text && !step.text)
        return rg_regex_free(step.pattern), rg_fail_memory(err, step.n_text);
    z->steps[z->n++] = step;
    return true;
}

/* ---- normal forms (Unicode Standard Annex #15) ---- */

typedef struct codes {
    int32_t *c;
    size_t n, room;
} codes;

static bool codes_room(codes *s, size_t more, rg_error *err)
{
    size_t room = s->room ? s->room : 256;
    int32_t *c;

    if (s->room - s->n >= more)
        return true;
    while (room - s->n < more)
        room *= 2;
    c = rg_resize(s->c, room * sizeof *c);
    if (!c)
        return rg_fail_memory(err, room * sizeof *c);
    s->c = c;
    s->room = room;
    return true;
}

static int combining(int32_t c)
{
    return utf8proc_get_property(c)->combining_class;
}

/* Marks in a run are put in order of their class, those of one class staying as they are.  By counting: a run may be a
 * megabyte long. */
static void order_run(int32_t *c, int32_t *spare, size_t n)
{
    size_t start[257] = { 0 };

    for (size_t i = 0; i < n; i++)
        start[combining(c[i]) + 1]++;
    for (int k = 0; k < 256; k++)
        start[k + 1] += start[k];
    for (size_t i = 0; i < n; i++)
        spare[start[combining(c[i])]++] = c[i];
    memcpy(c, spare, n * sizeof *c);
}

static bool order_marks(codes *s, rg_error *err)
{
    for (size_t i = 0; i < s->n;) {
        size_t from = i;
        bool sorted = true;
        while (i < s->n && combining(s->c[i])) {
            sorted &= i == from || combining(s->c[i - 1]) <= combining(s->c[i]);
            i++;
        }
        if (!sorted) {
            if (!codes_room(s, i - from, err))
                return false;
            order_run(s->c + from, s->c + s->n, i - from);
        }
        i += i == from;
    }
    return true;
}

static bool decompose(codes *s, const char *text, size_t n, int options, rg_error *err)
{
    for (size_t i = 0; i < n;) {
        int length = rg_clean_length(text + i), boundary = 0;
        int32_t code = (int32_t)rg_utf8_code(text + i, length);
        utf8proc_ssize_t got = 1;

        if (!codes_room(s, 32, err)) /* no character decomposes into more than 18 */
            return false;
        if (rg_clean_stray(text + i, length) >= 0)
            s->c[s->n] = code;
        else
            got = utf8proc_decompose_char(code, s->c + s->n, 32, options, &boundary);
        if (got < 0 || got > 32)
            return rg_fail(err, RG_E_INPUT, "a character cannot be normalised");
        s->n += (size_t)got;
        i += (size_t)length;
    }
    return true;
}

static bool normal_form(rg_norm_kind kind, const char *text, size_t n, rg_buf *out, rg_error *err)
{
    bool compose = kind == RG_NORM_NFC || kind == RG_NORM_NFKC, compat = kind == RG_NORM_NFKC || kind == RG_NORM_NFKD;
    int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compat ? UTF8PROC_COMPAT : 0);
    codes s = { 0 };
    bool ok = decompose(&s, text, n, options, err) && order_marks(&s, err);

    if (ok && compose && s.n)
        s.n = (size_t)utf8proc_normalize_utf32(s.c, (utf8proc_ssize_t)s.n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    for (size_t i = 0; ok && i < s.n; i++) {
        char utf8[4];
        ok = rg_buf_add(out, utf8, (size_t)rg_utf8_encode((uint32_t)s.c[i], utf8)) || rg_fail_memory(err, s.n);
    }
    rg_free(s.c);
    return ok;
}

/* ---- the other steps ---- */

bool rg_replace(const rg_regex *pattern, rg_matcher *m, rg_string text, rg_string by, rg_buf *out, rg_error *err)
{
    size_t done = 0, at = 0;
    bool matched = false;
    rg_span s;
    int got;

    while ((got = rg_regex_next(pattern, m, text.data, text.n, &at, &s, err)) > 0) {
        if (matched && s.to == done) /* nothing, right after a match */
            continue;
        if (!rg_buf_add(out, text.data + done, s.from - done) || !rg_buf_add(out, by.data, by.n))
            break;
        done = s.to;
        matched = true;
    }
    if (got < 0)
        return false;
    if (out->failed || !rg_buf_add(out, text.data + done, text.n - done))
        return rg_fail(err, RG_E_LIMIT, "no memory for a replacement, or it makes the text more than %d times longer",
                       GROW);
    return true;
}

static bool lowercase(const char *text, size_t n, rg_buf *out)
{
    for (size_t i = 0; i < n;) {
        int length = rg_clean_length(text + i);
        uint32_t code = rg_utf8_code(text + i, length);
        char utf8[4];

        if (code == 0x130) /* the one letter whose lower case is two */
            rg_buf_add(out, "i\xCC\x87", 3);
        else
            rg_buf_add(out, utf8, (size_t)rg_utf8_encode((uint32_t)utf8proc_tolower((int32_t)code), utf8));
        i += (size_t)length;
    }
    return !out->failed;
}

static bool is_ascii(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] & 0x80)
            return false;
    return true;
}

static void strip(const rg_norm_step *z, const char **text, size_t *n)
{
    const char *p = *text, *end = p + *n;

    while (z->left && p < end && rg_is_space(rg_utf8_code(p, rg_clean_length(p))))
        p += rg_clean_length(p);
    while (z->right && p < end) {
        const char *q = end - 1;
        while (q > p && ((unsigned char)*q & 0xC0) == 0x80)
            q--;
        if (!rg_is_space(rg_utf8_code(q, (int)(end - q))))
            break;
        end = q;
    }
    *text = p;
    *n = (size_t)(end - p);
}

static bool apply(const rg_norm_step *z, rg_matcher *m, rg_string in, rg_buf *out, rg_error *err)
{
    switch (z->kind) {
    case RG_NORM_PREPEND:
        return (rg_buf_add(out, z->text, z->n_text) && rg_buf_add(out, in.data, in.n)) || rg_fail_memory(err, in.n);
    case RG_NORM_REPLACE:
        return rg_replace(z->pattern, m, in, (rg_string){ z->text, z->n_text }, out, err);
    case RG_NORM_LOWERCASE:
        return lowercase(in.data, in.n, out) || rg_fail_memory(err, in.n);
    default:
        return normal_form(z->kind, in.data, in.n, out, err);
    }
}

/* Whether a step takes away what a text begins with: then it is not the beginning of a text any more. */
static int beheads(const rg_norm_step *step, rg_matcher *m, rg_string text, rg_error *err)
{
    rg_span s;
    size_t at = 0;
    int got;

    if (step->kind != RG_NORM_REPLACE || step->n_text)
        return 0;
    got = rg_regex_next(step->pattern, m, text.data, text.n, &at, &s, err);
    return got > 0 ? s.from == 0 && s.to > 0 : got;
}

bool rg_normalize(const rg_normalizer *z, rg_matcher *m, rg_buf two[2], const char **text, size_t *n, bool *first,
                  rg_error *err)
{
    int turn = 0;

    for (int i = 0; i < z->n && *n; i++) {
        const rg_norm_step *step = &z->steps[i];
        if (step->kind == RG_NORM_STRIP) {
            const char *start = *text;
            strip(step, text, n);
            *first &= *text == start;
            continue;
        }
        if (step->kind <= RG_NORM_NFKD && is_ascii(*text, *n))
            continue;
        if (*first) {
            int gone = beheads(step, m, (rg_string){ *text, *n }, err);
            if (gone < 0)
                return false;
            *first = !gone;
        }
        two[turn].cap = GROW_BASE + GROW * *n;
        rg_buf_reset(&two[turn]);
        if (!apply(step, m, (rg_string){ *text, *n }, &two[turn], err))
            return false;
        *text = two[turn].data ? two[turn].data : "";
        *n = two[turn].n;
        turn = !turn;
    }
    return true;
}
