/* detok.c -- see detok.h. */
#define _GNU_SOURCE /* memmem */
#include "text/detok.h"

#include <string.h>

#include "base/mem.h"
#include "text/bytelevel.h"
#include "text/clean.h"

enum { TEXT_CAP = INT32_MAX };

#define REPLACEMENT "\xEF\xBF\xBD"

void rg_detok_fini(rg_detok *d)
{
    for (int i = 0; i < d->n; i++) {
        rg_regex_free(d->steps[i].pattern);
        rg_free(d->steps[i].text);
        rg_free(d->steps[i].more);
    }
    rg_free(d->steps);
    *d = (rg_detok){ 0 };
}

bool rg_detok_add(rg_detok *d, rg_detok_step step, rg_error *err)
{
    rg_detok_step *steps;

    step.text = step.text ? rg_strndup(step.text, step.n_text) : NULL;
    step.more = step.more ? rg_strndup(step.more, step.n_more) : NULL;
    if (d->n == RG_DETOK_STEPS) {
        rg_fail(err, RG_E_UNSUPPORTED, "more than %d decoders", RG_DETOK_STEPS);
        goto fail;
    }
    steps = rg_resize_array(d->steps, (size_t)(d->n + 1), sizeof *steps); /* fits: bounded above */
    if (steps)
        d->steps = steps;
    if (!steps || (step.n_text && !step.text) || (step.n_more && !step.more)) {
        rg_fail_memory(err, step.n_text + step.n_more + sizeof *steps);
        goto fail;
    }
    d->steps[d->n++] = step;
    return true;

fail:
    rg_regex_free(step.pattern);
    rg_free(step.text);
    rg_free(step.more);
    return false;
}

void rg_parts_fini(rg_parts *p)
{
    rg_buf_fini(&p->text);
    rg_free(p->end);
    *p = (rg_parts){ 0 };
}

/* The text added since the last part becomes a part. */
static bool close_part(rg_parts *p, rg_error *err)
{
    if (p->text.failed)
        return rg_fail_memory(err, p->text.n);
    if (p->n == p->room) {
        size_t room = p->room ? 2 * p->room : 64;
        size_t *end = rg_resize_array(p->end, room, sizeof *end);
        if (!end)
            return rg_fail_memory(err, room * sizeof *end);
        p->end = end;
        p->room = room;
    }
    p->end[p->n++] = p->text.n;
    return true;
}

bool rg_parts_add(rg_parts *p, const char *s, size_t n, rg_error *err)
{
    p->text.cap = TEXT_CAP;
    rg_buf_add(&p->text, s, n);
    return close_part(p, err);
}

static rg_string part(const rg_parts *p, size_t i)
{
    size_t from = i ? p->end[i - 1] : 0;

    return (rg_string){ p->text.data ? p->text.data + from : "", p->end[i] - from };
}

/* ---- steps that look at one piece ---- */

static bool byte_level(rg_string s, rg_buf *out)
{
    size_t from = out->n;
    uint32_t code;

    for (size_t i = 0; i < s.n;) {
        int n = rg_utf8_decode(s.data + i, s.n - i, &code), byte = n ? rg_char_byte(code) : -1;
        char c = (char)byte;
        if (byte < 0) { /* a piece with any other character stands for itself */
            out->n = from;
            return rg_buf_add(out, s.data, s.n);
        }
        if (!rg_buf_add(out, &c, 1))
            return false;
        i += (size_t)n;
    }
    return true;
}

static bool meta(const rg_detok_step *d, rg_string s, bool first, rg_buf *out)
{
    const char *end = s.data + s.n, *p;

    for (; (p = memmem(s.data, (size_t)(end - s.data), d->text, d->n_text)); s.data = p + d->n_text)
        if (!rg_buf_add(out, s.data, (size_t)(p - s.data)) ||
            ((!first || d->scheme == RG_PREPEND_NEVER) && !rg_buf_add(out, " ", 1)))
            return false;
    return rg_buf_add(out, s.data, (size_t)(end - s.data));
}

/* Append s with every `old` replaced by `by`; an empty `old` matches between all characters. */
static bool swap_text(rg_string s, rg_string old, const char *by, rg_buf *out)
{
    const char *end = s.data + s.n, *p;

    while (!old.n && s.data < end) {
        size_t n = (size_t)rg_clean_length(s.data);
        n = n < (size_t)(end - s.data) ? n : (size_t)(end - s.data);
        if (!rg_buf_str(out, by) || !rg_buf_add(out, s.data, n))
            return false;
        s.data += n;
    }
    if (!old.n)
        return rg_buf_str(out, by);
    for (; (p = memmem(s.data, (size_t)(end - s.data), old.data, old.n)); s.data = p + old.n)
        if (!rg_buf_add(out, s.data, (size_t)(p - s.data)) || !rg_buf_str(out, by))
            return false;
    return rg_buf_add(out, s.data, (size_t)(end - s.data));
}

/* Remove the spaces that the published decoders remove, one kind after another, from what was added to out since
 * `from`. */
static bool clean_up(rg_buf *out, size_t from)
{
    static const struct {
        const char *old, *by;
    } table[] = {
        { " .", "." },     { " ?", "?" },   { " !", "!" },           { " ,", "," },
        { " ' ", "'" },    { " n't", "n't" }, { " 'm", "'m" },       { " do not", " don't" },
        { " 's", "'s" },   { " 've", "'ve" }, { " 're", "'re" },
    };

    for (size_t i = 0; i < RG_LEN(table) && !out->failed; i++) {
        size_t n = strlen(table[i].old), by = strlen(table[i].by), to = from;
        for (size_t k = from; k < out->n;) { /* nothing gets longer */
            bool match = out->n - k >= n && !memcmp(out->data + k, table[i].old, n);
            memmove(out->data + to, match ? table[i].by : out->data + k, match ? by : 1);
            to += match ? by : 1;
            k += match ? n : 1;
        }
        out->n = to;
    }
    return !out->failed;
}

static bool wordpiece(const rg_detok_step *d, rg_string s, bool first, rg_buf *out)
{
    size_t from = out->n;
    bool inside = s.n >= d->n_text && !memcmp(s.data, d->text, d->n_text);

    if (!first && inside)
        s = (rg_string){ s.data + d->n_text, s.n - d->n_text };
    return (first || inside || rg_buf_add(out, " ", 1)) && rg_buf_add(out, s.data, s.n) &&
           (!d->cleanup || clean_up(out, from));
}

static bool ctc(const rg_detok_step *d, rg_string s, rg_buf *out)
{
    rg_string pad = { d->text, d->n_text };
    rg_buf bare;
    bool ok;

    if (!d->cleanup)
        return swap_text(s, pad, "", out);
    rg_buf_init(&bare, TEXT_CAP);
    ok = swap_text(s, pad, "", &bare) && clean_up(&bare, 0) &&
         swap_text((rg_string){ bare.data ? bare.data : "", bare.n }, (rg_string){ d->more, d->n_more }, " ", out);
    rg_buf_fini(&bare);
    return ok;
}

static bool strip(const rg_detok_step *d, rg_string s, rg_buf *out)
{
    for (int i = 0; i < d->start && s.n >= d->n_text && !memcmp(s.data, d->text, d->n_text); i++) {
        s.data += d->n_text;
        s.n -= d->n_text;
    }
    for (int i = 0; i < d->stop && s.n >= d->n_text && !memcmp(s.data + s.n - d->n_text, d->text, d->n_text); i++)
        s.n -= d->n_text;
    return rg_buf_add(out, s.data, s.n);
}

/* Every match replaced. */
static bool replace(const rg_detok_step *d, rg_matcher *m, rg_string s, rg_buf *out, rg_error *err)
{
    size_t done = 0;
    rg_walk walk = { 0 };
    rg_extent f;
    int got;

    while ((got = rg_regex_next(d->pattern, m, s.data, s.n, &walk, &f, err)) > 0) {
        if (!rg_buf_add(out, s.data + done, f.from - done) || !rg_buf_add(out, d->text, d->n_text))
            break;
        done = f.to;
    }
    if (got < 0)
        return false;
    return (!out->failed && rg_buf_add(out, s.data + done, s.n - done)) || rg_fail_memory(err, s.n);
}

/* Where a piece stands among those of a text. */
typedef struct place {
    bool first, last;
} place;

static bool one_piece(const rg_detok_step *d, rg_matcher *m, rg_string s, place at, rg_buf *out, rg_error *err)
{
    switch (d->kind) {
    case RG_DETOK_BYTE_LEVEL:
        return byte_level(s, out) || rg_fail_memory(err, s.n);
    case RG_DETOK_META:
        return meta(d, s, at.first, out) || rg_fail_memory(err, s.n);
    case RG_DETOK_STRIP:
        return strip(d, s, out) || rg_fail_memory(err, s.n);
    case RG_DETOK_WORDPIECE:
        return wordpiece(d, s, at.first, out) || rg_fail_memory(err, s.n);
    case RG_DETOK_SUFFIX:
        return swap_text(s, (rg_string){ d->text, d->n_text }, at.last ? "" : " ", out) || rg_fail_memory(err, s.n);
    case RG_DETOK_CTC:
        return ctc(d, s, out) || rg_fail_memory(err, s.n);
    case RG_DETOK_REPLACE:
        return replace(d, m, s, out, err);
    default:
        return rg_buf_add(out, s.data, s.n) || rg_fail_memory(err, s.n);
    }
}

/* ---- steps that look at several ---- */

/* The bytes of pieces [from, to): one part if they are UTF-8, else U+FFFD for each, parts of their own. */
static bool add_run(const rg_parts *in, size_t from, size_t to, rg_parts *out, rg_error *err)
{
    size_t start = out->text.n;

    for (size_t i = from; i < to; i++) {
        char c = (char)rg_piece_byte(part(in, i));
        rg_buf_add(&out->text, &c, 1);
    }
    if (!out->text.failed && !rg_utf8_valid(out->text.data + start, to - from)) {
        out->text.n = start;
        for (size_t i = from; i < to; i++)
            if (!rg_parts_add(out, REPLACEMENT, 3, err))
                return false;
        return true;
    }
    return close_part(out, err);
}

static bool byte_fallback(const rg_parts *in, rg_parts *out, rg_error *err)
{
    for (size_t i = 0; i < in->n;) {
        size_t from = i;
        rg_string s = part(in, i);
        while (i < in->n && rg_piece_byte(part(in, i)) >= 0)
            i++;
        if (i > from ? !add_run(in, from, i, out, err) : !rg_parts_add(out, s.data, s.n, err))
            return false;
        i += i == from;
    }
    return true;
}

static bool each_piece(const rg_detok_step *d, rg_matcher *m, const rg_parts *in, rg_parts *out, rg_error *err)
{
    rg_string last = { 0 };

    for (size_t i = 0; i < in->n; i++) {
        rg_string s = part(in, i);
        size_t from = out->text.n;
        bool again = d->kind == RG_DETOK_CTC && i && s.n == last.n && !memcmp(s.data, last.data, s.n);
        last = s;
        if (again)
            continue;
        if (!one_piece(d, m, s, (place){ i == 0, i + 1 == in->n }, &out->text, err))
            return false;
        if (!(d->kind == RG_DETOK_CTC && out->text.n == from) && !close_part(out, err))
            return false;
    }
    return true;
}

static bool step(const rg_detok_step *d, rg_matcher *m, rg_parts *in, rg_parts *out, rg_error *err)
{
    out->n = 0;
    out->text.cap = TEXT_CAP;
    rg_buf_reset(&out->text);
    if (d->kind == RG_DETOK_BYTE_FALLBACK)
        return byte_fallback(in, out, err);
    if (d->kind == RG_DETOK_FUSE)
        return !in->n || rg_parts_add(out, in->text.data ? in->text.data : "", in->text.n, err);
    if (!each_piece(d, m, in, out, err))
        return false;
    if (d->kind == RG_DETOK_BYTE_LEVEL && out->n) { /* characters go across pieces: they become one */
        out->end[0] = out->end[out->n - 1];
        out->n = 1;
    }
    return true;
}

static bool needs_matcher(const rg_detok *d)
{
    for (int i = 0; i < d->n; i++)
        if (d->steps[i].pattern)
            return true;
    return false;
}

bool rg_detok_text(const rg_detok *d, rg_parts *parts, rg_buf *out, rg_error *err)
{
    rg_matcher *m = needs_matcher(d) ? rg_matcher_new(parts->text.n, err) : NULL;
    rg_parts other = { 0 }, swap;
    bool ok = m || !needs_matcher(d);

    for (int i = 0; ok && i < d->n; i++) {
        ok = step(&d->steps[i], m, parts, &other, err);
        swap = *parts;
        *parts = other;
        other = swap;
    }
    for (size_t i = 0; ok && !d->n && i < parts->n; i++) {
        rg_string s = part(parts, i);
        ok = ((!i || rg_buf_add(out, " ", 1)) && rg_utf8_lossy(out, s.data, s.n)) || rg_fail_memory(err, s.n);
    }
    if (ok && d->n)
        ok = rg_utf8_lossy(out, parts->text.data ? parts->text.data : "", parts->text.n) ||
             rg_fail_memory(err, parts->text.n);
    rg_parts_fini(&other);
    rg_matcher_free(m);
    return ok;
}

/* ---- a text in the making ---- */

static bool fuses(const rg_detok_step *s)
{
    return s->kind == RG_DETOK_FUSE || s->kind == RG_DETOK_BYTE_LEVEL;
}

unsigned rg_detok_spelling(const rg_detok *d, rg_spelling *z)
{
    unsigned minds = d->n ? 0 : RG_SPELL_FIRST;
    bool fused = false;

    for (int i = 0; i < d->n; i++) {
        const rg_detok_step *s = &d->steps[i];
        fused |= fuses(s);
        if (s->kind == RG_DETOK_META || s->kind == RG_DETOK_WORDPIECE)
            minds |= RG_SPELL_FIRST;
        if (s->kind == RG_DETOK_SUFFIX)
            minds |= RG_SPELL_LAST;
        z->collapses |= s->kind == RG_DETOK_CTC;
        if (fused && s->kind == RG_DETOK_STRIP) {
            z->strip = (rg_string){ s->text, s->n_text };
            z->n_strip = s->n_text ? s->start : 0;
        }
    }
    return minds;
}

bool rg_detok_streams(const rg_detok *d)
{
    bool fused = false, bytes = false, placed = false, stripped = false;

    for (int i = 0; i < d->n; i++) {
        const rg_detok_step *s = &d->steps[i];
        bool last_strip = s->kind == RG_DETOK_STRIP && fused && !stripped && !s->stop;
        if (fused && s->kind != RG_DETOK_FUSE && !last_strip)
            return false;
        if (bytes && !fused && s->kind != RG_DETOK_FUSE)
            return false;
        if ((s->kind == RG_DETOK_CTC && i) || (s->kind == RG_DETOK_BYTE_FALLBACK && placed))
            return false;
        stripped |= last_strip;
        fused |= fuses(s);
        bytes |= s->kind == RG_DETOK_BYTE_FALLBACK;
        placed |= s->kind == RG_DETOK_CTC || s->kind == RG_DETOK_WORDPIECE || s->kind == RG_DETOK_SUFFIX;
    }
    return true;
}

/* One step on the piece in p; the result is written to `to`.  Patterns do not match bytes.  Text that is removed from
 * the start of the whole text is not handled here. */
static bool step_on_piece(const rg_detok_step *d, rg_matcher *m, bool fused, rg_spoken *p, rg_buf *to, rg_error *err)
{
    place at = { p->place & RG_SPELL_FIRST, p->place & RG_SPELL_LAST };
    int byte = d->kind == RG_DETOK_BYTE_FALLBACK ? rg_piece_byte(p->piece) : -1;

    if (p->kind & RG_SPELL_BYTE || (d->kind == RG_DETOK_STRIP && fused))
        return true;
    rg_buf_reset(to);
    if (byte >= 0) {
        p->kind |= RG_SPELL_BYTE;
        if (!rg_buf_add(to, &(char){ (char)byte }, 1))
            return rg_fail_memory(err, 1);
    } else if (!one_piece(d, m, p->piece, at, to, err)) {
        return false;
    }
    p->piece = (rg_string){ to->data ? to->data : "", to->n };
    if (d->kind == RG_DETOK_CTC && !to->n)
        p->kind &= ~(unsigned)RG_SPELL_SHOWS;
    return true;
}

bool rg_detok_piece(const rg_detok *d, rg_matcher *m, rg_spoken *p, rg_buf *out, rg_error *err)
{
    rg_buf two[2];
    bool ok = true, fused = false;

    p->kind = RG_SPELL_COUNTS | RG_SPELL_SHOWS;
    rg_buf_init(&two[0], TEXT_CAP);
    rg_buf_init(&two[1], TEXT_CAP);
    for (int i = 0; ok && i < d->n; i++) {
        fused |= fuses(&d->steps[i]);
        ok = step_on_piece(&d->steps[i], m, fused, p, &two[p->piece.data == two[0].data], err);
    }
    if (ok && !d->n && !(p->place & RG_SPELL_FIRST))
        ok = rg_buf_add(out, " ", 1) || rg_fail_memory(err, 1);
    ok = ok && (rg_buf_add(out, p->piece.data, p->piece.n) || rg_fail_memory(err, p->piece.n));
    rg_buf_fini(&two[0]);
    rg_buf_fini(&two[1]);
    return ok;
}
