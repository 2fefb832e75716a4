/* postprocess.c -- see postprocess.h. */
#include "text/postprocess.h"

bool rg_around_add(rg_around *a, int32_t item, rg_error *err)
{
    if (a->n == RG_AROUND_CAP)
        return rg_fail(err, RG_E_UNSUPPORTED, "more than %d ids around a text", RG_AROUND_CAP);
    a->item[a->n++] = item;
    return true;
}

bool rg_around_wrap(rg_around *a, int32_t first, int32_t last, int32_t front, rg_error *err)
{
    rg_around old = *a;
    bool ok;

    if (!old.n)
        old.item[old.n++] = RG_AROUND_TEXT;
    a->n = 0;
    ok = rg_around_add(a, first, err);
    for (int i = 0; ok && i < old.n; i++) {
        if (old.item[i] != RG_AROUND_NEXT)
            ok = rg_around_add(a, old.item[i], err);
        else
            ok = rg_around_add(a, last, err) && rg_around_add(a, RG_AROUND_NEXT, err) &&
                 (front == RG_AROUND_NEXT || rg_around_add(a, front, err));
    }
    return ok && rg_around_add(a, last, err);
}

void rg_around_seal(rg_around *a)
{
    int n = 0, text = 0;

    if (!a->n)
        a->item[a->n++] = RG_AROUND_TEXT;
    for (int i = 0; i < a->n; i++) {
        if (a->item[i] == RG_AROUND_NEXT)
            continue;
        if (a->item[i] == RG_AROUND_TEXT)
            text = n;
        a->item[n++] = a->item[i];
    }
    a->before = a->item;
    a->n_before = text;
    a->after = a->item + text + 1;
    a->n_after = n - text - 1;
}
