/* spell.c -- see spell.h. */
#include "base/spell.h"

#include <string.h>

#include "base/utf8.h"

#define REPLACEMENT "\xEF\xBF\xBD"

static rg_string text_of(const rg_spelling *z, int32_t id, unsigned place)
{
    const uint32_t *offset;

    if (place == (RG_SPELL_FIRST | RG_SPELL_LAST) && !z->at[place].offset)
        place = z->at[RG_SPELL_LAST].offset ? RG_SPELL_LAST : RG_SPELL_FIRST;
    if (!z->at[place].offset)
        place = 0;
    offset = z->at[place].offset;
    return (rg_string){ z->at[place].data + offset[id], offset[id + 1] - offset[id] };
}

bool rg_spelling_shows(const rg_spelling *z, int32_t id)
{
    return id >= 0 && id < z->n && text_of(z, id, 0).n > 0;
}

rg_string rg_spelling_bytes(const rg_spelling *z, int32_t id)
{
    return text_of(z, id, 0);
}

static unsigned kind_of(const rg_spelling *z, int32_t id)
{
    if (id < 0 || id >= z->n)
        return 0;
    return z->kind ? z->kind[id] : rg_spelling_shows(z, id) ? RG_SPELL_COUNTS | RG_SPELL_SHOWS : 0;
}

size_t rg_spelling_room(const rg_spelling *z)
{
    uint32_t most = 0;
    bool runs = false;

    for (int32_t i = 0; i < z->n; i++) {
        for (int place = 0; place < RG_SPELL_PLACES; place++) {
            const uint32_t *offset = z->at[place].offset;
            most = offset && offset[i + 1] - offset[i] > most ? offset[i + 1] - offset[i] : most;
        }
        runs |= z->kind && z->kind[i] & RG_SPELL_BYTE;
    }
    return 2 * (size_t)most + z->strip.n + (runs ? strlen(REPLACEMENT) * (RG_SPELL_RUN + 4) : 0);
}

rg_speller rg_speller_begin(const rg_spelling *z, bool goes_on)
{
    return (rg_speller){ .run = -1, .held = -1, .last = -1, .begun = goes_on, .n_strip = goes_on ? 0 : z->n_strip };
}

int32_t rg_speller_waiting(const rg_speller *s)
{
    return s->n_part ? 0 : s->run >= 0 ? s->next - s->run : s->held >= 0;
}

/* Take one more byte of a run; its id is the next. */
static void run_add(const rg_spelling *z, rg_speller *s, int32_t id)
{
    uint32_t code;

    if (s->run < 0)
        s->run = s->next;
    s->next++;
    if (s->n_part < sizeof s->part)
        s->part[s->n_part++] = *text_of(z, id, 0).data;
    if (rg_utf8_decode(s->part, s->n_part, &code))
        s->n_part = 0;
    s->broken |= s->n_part == sizeof s->part;
    if (s->broken || (!s->n_part && s->next - s->run >= RG_SPELL_RUN))
        s->run_end = s->next;
}

static void run_close(rg_speller *s)
{
    s->broken |= s->n_part > 0;
    s->n_part = 0;
    s->over = true;
    s->run = s->run < 0 ? s->next : s->run;
    s->run_end = s->next;
}

/* The rest of a run that is being given out. */
static bool run_give(const rg_spelling *z, rg_speller *s, const int32_t *ids, rg_string *out)
{
    s->begun = true;
    while (s->run < s->run_end) {
        int32_t id = ids[s->run++];
        if (!(kind_of(z, id) & RG_SPELL_BYTE))
            continue;
        *out = s->broken ? (rg_string){ REPLACEMENT, strlen(REPLACEMENT) } : text_of(z, id, 0);
        return true;
    }
    s->run = -1;
    s->run_end = 0;
    if (s->over)
        s->broken = s->over = false;
    return false;
}

static bool give_held(const rg_spelling *z, rg_speller *s, unsigned place, rg_string *out)
{
    *out = text_of(z, s->held, place | (s->held_first ? RG_SPELL_FIRST : 0));
    s->held = -1;
    return true;
}

/* An id that shows and is not a byte: gives its text, or the text of the id before it that was held back. */
static bool give(const rg_spelling *z, rg_speller *s, int32_t id, rg_string *out)
{
    bool first = !s->begun, before = s->held >= 0;

    s->begun = true;
    if (!z->at[RG_SPELL_LAST].offset) {
        *out = text_of(z, id, first ? RG_SPELL_FIRST : 0);
        return true;
    }
    if (before)
        give_held(z, s, 0, out);
    s->held = id;
    s->held_first = first;
    return before;
}

/* As rg_speller_next, without stripping the start of the text. */
static bool next_stretch(const rg_spelling *z, rg_speller *s, const int32_t *ids, int32_t n, bool ended, rg_string *out)
{
    for (;;) {
        unsigned kind;
        int32_t id;

        if (s->run_end && run_give(z, s, ids, out))
            return true;
        if (s->next == n && (s->run >= 0 || s->broken) && ended) {
            run_close(s);
            continue;
        }
        if (s->next == n)
            return ended && s->held >= 0 && give_held(z, s, RG_SPELL_LAST, out);
        id = ids[s->next];
        kind = kind_of(z, id);
        if (kind & RG_SPELL_BYTE && s->held >= 0)
            return give_held(z, s, 0, out);
        if (kind & RG_SPELL_BYTE) {
            run_add(z, s, id);
            continue;
        }
        if (kind && (s->run >= 0 || s->broken)) {
            run_close(s);
            continue;
        }
        s->next++;
        if (!kind || (z->collapses && id == s->last))
            continue;
        s->last = id;
        if (kind & RG_SPELL_SHOWS && give(z, s, id, out))
            return true;
    }
}

/* Strip the start of the text from *out, the next piece of text; false: nothing of the piece is left. */
static bool strip(const rg_spelling *z, rg_speller *s, rg_string *out)
{
    while (s->n_strip && out->n && *out->data == z->strip.data[s->stripped]) {
        out->data++;
        out->n--;
        if (++s->stripped == z->strip.n) {
            s->stripped = 0;
            s->n_strip--;
        }
    }
    if (s->n_strip && out->n) { /* other text: the part of strip that was met stays */
        s->n_strip = 0;
        s->rest = *out;
        *out = (rg_string){ z->strip.data, s->stripped };
        s->stripped = 0;
        if (!out->n) {
            *out = s->rest;
            s->rest.n = 0;
        }
    }
    return out->n > 0;
}

bool rg_speller_next(const rg_spelling *z, rg_speller *s, const int32_t *ids, int32_t n, bool ended, rg_string *out)
{
    if (s->rest.n) {
        *out = s->rest;
        s->rest.n = 0;
        return true;
    }
    while (next_stretch(z, s, ids, n, ended, out))
        if (s->n_strip ? strip(z, s, out) : out->n > 0)
            return true;
    if (!ended || !s->stripped)
        return false;
    *out = (rg_string){ z->strip.data, s->stripped }; /* the text ended within strip */
    s->stripped = 0;
    return true;
}
