/* postprocess.c -- see postprocess.h. */
#include "text/postprocess.h"

#include <string.h>

bool rg_around_add(rg_around *a, int32_t item, int type, rg_error *err)
{
    if (a->n == RG_AROUND_CAP)
        return rg_fail(err, RG_E_UNSUPPORTED, "more than %d ids around a text", RG_AROUND_CAP);
    a->type[a->n] = (uint8_t)type;
    a->item[a->n++] = item;
    return true;
}

void rg_around_begin(rg_around *a)
{
    *a = (rg_around){ .item = { RG_AROUND_TEXT }, .n = 1 };
}

void rg_around_begin_pair(rg_around *a)
{
    *a = (rg_around){ .item = { RG_AROUND_TEXT, RG_AROUND_NEXT, RG_AROUND_SECOND }, .type = { 0, 0, 1 }, .n = 3 };
}

bool rg_around_wrap(rg_around *a, int32_t first, int32_t last, int32_t front, rg_error *err)
{
    rg_around old = *a;
    int type = 0, later = front == RG_AROUND_NEXT;
    bool ok;

    a->n = 0;
    ok = rg_around_add(a, first, 0, err);
    for (int i = 0; ok && i < old.n; i++) {
        if (old.item[i] != RG_AROUND_NEXT) {
            ok = rg_around_add(a, old.item[i], later ? old.type[i] : 0, err);
            continue;
        }
        ok = rg_around_add(a, last, type, err) && rg_around_add(a, RG_AROUND_NEXT, 0, err);
        type = later;
        ok = ok && (later || rg_around_add(a, front, 0, err));
    }
    return ok && rg_around_add(a, last, type, err);
}

void rg_around_join(rg_around *a)
{
    int n = 0;

    for (int i = 0; i < a->n; i++) {
        if (a->item[i] == RG_AROUND_NEXT)
            continue;
        a->type[n] = a->type[i];
        a->item[n++] = a->item[i];
    }
    a->n = n;
}

void rg_around_seal(rg_around *a)
{
    int text = 0;

    rg_around_join(a);
    while (text < a->n && a->item[text] != RG_AROUND_TEXT)
        text++;
    a->before = a->item;
    a->n_before = text;
    a->after = a->item + text + 1;
    a->n_after = a->n - text - 1;
}
