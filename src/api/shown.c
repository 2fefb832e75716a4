/* shown.c -- see shown.h. */
#include "api/shown.h"

#include <string.h>

#include "base/mem.h"

/* The text that a special token shows from now on, if it is on the list and shows nothing yet. */
static rg_string added_text(const rg_tokenizer *t, const bool *shown, int32_t id)
{
    return shown[id] ? rg_tokenizer_piece(t, id) : (rg_string){ "", 0 };
}

/* Copy the texts of one place and add the new ones.  False: no memory. */
static bool copy_place(rg_shown *s, const rg_tokenizer *t, const bool *shown, int place)
{
    const rg_spelling *from = rg_tokenizer_spelling(t);
    const uint32_t *offset = from->at[place].offset;
    size_t bytes = 0, at = 0;
    uint32_t *offsets;
    char *data;

    if (!offset)
        return true;
    for (int32_t id = 0; id < from->n; id++)
        bytes += offset[id + 1] - offset[id] + added_text(t, shown, id).n;
    data = rg_alloc_tail(bytes, 1, 1);
    offsets = rg_zalloc_tail(sizeof *offsets, (size_t)from->n, sizeof *offsets);
    s->spelling.at[place].data = data;
    s->spelling.at[place].offset = offsets;
    if (!data || !offsets || bytes > UINT32_MAX)
        return false;
    for (int32_t id = 0; id < from->n; id++) {
        rg_string own = { from->at[place].data + offset[id], offset[id + 1] - offset[id] };
        rg_string text = shown[id] ? added_text(t, shown, id) : own;

        memcpy(data + at, text.data, text.n);
        at += text.n;
        offsets[id + 1] = (uint32_t)at;
    }
    return true;
}

static bool fill(rg_shown *s, const rg_tokenizer *t, const bool *shown)
{
    const rg_spelling *from = rg_tokenizer_spelling(t);
    uint8_t *kind = from->kind ? rg_alloc_tail(1, (size_t)from->n, sizeof *kind) : NULL;

    s->spelling = *from;
    for (int place = 0; place < RG_SPELL_PLACES; place++) {
        s->spelling.at[place].data = NULL;
        s->spelling.at[place].offset = NULL;
    }
    s->spelling.kind = kind;
    if (from->kind && !kind)
        return false;
    for (int32_t id = 0; kind && id < from->n; id++)
        kind[id] = shown[id] ? RG_SPELL_COUNTS | RG_SPELL_SHOWS : from->kind[id];
    for (int place = 0; place < RG_SPELL_PLACES; place++)
        if (!copy_place(s, t, shown, place))
            return false;
    return true;
}

rg_shown *rg_shown_new(const rg_tokenizer *t, const int32_t *ids, size_t n, rg_error *err)
{
    const rg_spelling *from = rg_tokenizer_spelling(t);
    rg_shown *s = rg_zalloc(sizeof *s);
    bool *shown = rg_zalloc_tail(1, (size_t)from->n, sizeof *shown), ok;

    for (size_t i = 0; shown && i < n; i++)
        if (ids[i] >= 0 && ids[i] < from->n && ids[i] < rg_tokenizer_size(t) && rg_tokenizer_is_special(t, ids[i]) &&
            !rg_spelling_shows(from, ids[i]))
            shown[ids[i]] = true;
    ok = s && shown && fill(s, t, shown);
    rg_free(shown);
    if (ok)
        return s;
    rg_shown_free(s);
    return rg_fail_memory(err, (size_t)from->n), NULL;
}

void rg_shown_free(rg_shown *s)
{
    if (!s)
        return;
    for (int place = 0; place < RG_SPELL_PLACES; place++) {
        rg_free((void *)(uintptr_t)s->spelling.at[place].data);
        rg_free((void *)(uintptr_t)s->spelling.at[place].offset);
    }
    rg_free((void *)(uintptr_t)s->spelling.kind);
    rg_free(s);
}
