/* passage.c -- see passage.h. */
#include "text/passage.h"

#include <string.h>

rg_passage rg_passage_part(const rg_passage *p, size_t from, size_t to)
{
    rg_passage part = *p;

    part.text += from;
    part.n = to - from;
    part.marks = p->marks ? p->marks + from : NULL;
    part.head = p->head > from ? p->head - from : 0;
    return part;
}

bool rg_passage_foreign(const rg_passage *p, size_t from, size_t to)
{
    if (!p->marks)
        return p->foreign;
    for (size_t i = from; i < to; i++)
        if (p->marks[i] & (i == from ? RG_FOREIGN : RG_FOREIGN | RG_GONE))
            return true;
    return false;
}

void rg_draft_fini(rg_draft *d)
{
    rg_buf_fini(&d->text);
    rg_buf_fini(&d->marks);
    *d = (rg_draft){ 0 };
}

void rg_draft_begin(rg_draft *d, const rg_passage *p, size_t cap)
{
    rg_buf_reset(&d->text);
    rg_buf_reset(&d->marks);
    d->text.cap = d->marks.cap = cap;
    d->marked = p->marks;
    d->foreign = p->foreign;
    d->dropped = false;
    d->head = 0;
    d->source_head = p->head;
}

/* n bytes were added, from the place `from`: the first of them may stand where something was dropped. */
static void settle(rg_draft *d, size_t n, size_t from, size_t n_head)
{
    if (from < d->source_head && d->head == d->text.n - n)
        d->head += n_head;
    if (d->dropped && d->marks.n >= n) {
        d->marks.data[d->marks.n - n] |= RG_GONE;
        d->dropped = false;
    }
}

void rg_draft_put(rg_draft *d, const char *s, size_t n, size_t from, bool foreign)
{
    if (!n || !rg_buf_add(&d->text, s, n))
        return;
    for (size_t i = 0; d->marked && i < n; i++)
        rg_buf_add(&d->marks, foreign ? "\1" : "\0", 1);
    settle(d, n, from, n);
}

void rg_draft_copy(rg_draft *d, const rg_passage *p, size_t from, size_t to)
{
    if (from == to || !rg_buf_add(&d->text, p->text + from, to - from))
        return;
    if (d->marked)
        rg_buf_add(&d->marks, p->marks + from, to - from);
    settle(d, to - from, from, p->head < to ? p->head - (from < p->head ? from : p->head) : to - from);
}

void rg_draft_drop(rg_draft *d, bool foreign)
{
    d->dropped |= foreign && d->marked;
}

bool rg_draft_ok(const rg_draft *d)
{
    return !d->text.failed && !d->marks.failed;
}

rg_passage rg_draft_passage(const rg_draft *d)
{
    return (rg_passage){ .text = d->text.data ? d->text.data : "", .n = d->text.n,
                         .marks = d->marked ? (d->marks.data ? d->marks.data : "") : NULL,
                         .foreign = d->foreign, .head = d->head };
}
