/* thinking.c -- see thinking.h. */
#include "engine/thinking.h"

#include <string.h>

#include "base/error.h"

rg_thought rg_thought_begin(const rg_thinking *t)
{
    return (rg_thought){ .from = t->n_start ? -1 : 0, .is_over = !t->n_end };
}

/* True if the ids from a place of the answer on end with a mark. */
static bool ends_with(const rg_thought_text *text, int32_t from, const int32_t *mark, int32_t n)
{
    return n && n <= text->n_tail && n <= text->n - from &&
           !memcmp(text->tail + text->n_tail - n, mark, (size_t)n * sizeof *mark);
}

void rg_thought_note(rg_thought *at, const rg_thinking *t, const rg_thought_text *text)
{
    if (at->is_over)
        return;
    if (at->from < 0)
        at->from = ends_with(text, 0, t->start, t->n_start) ? text->n : -1;
    else
        at->is_over = ends_with(text, at->from, t->end, t->n_end);
}

int32_t rg_thought_forced(const rg_thought *at, const rg_thinking *t, const rg_thought_text *text)
{
    int32_t k;

    if (at->is_over || at->from < 0 || text->n - at->from < t->budget)
        return -1;
    for (k = t->n_end - 1; k > 0; k--) /* what of the mark stands there already */
        if (ends_with(text, at->from, t->end, k))
            break;
    return t->end[k];
}

static bool check_mark(const char *name, const int32_t *ids, int32_t n, int32_t vocab_size, rg_error *err)
{
    if (n < 0 || n > RG_THOUGHT_MARK)
        return rg_fail(err, RG_E_INPUT, "thinking.%s has %d ids: want 0 to %d", name, (int)n, RG_THOUGHT_MARK);
    for (int32_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= vocab_size)
            return rg_fail(err, RG_E_INPUT, "thinking.%s: id %d is not one of the %d of the model", name, (int)ids[i],
                           (int)vocab_size);
    return true;
}

bool rg_thinking_check(const rg_thinking *t, int32_t vocab_size, rg_error *err)
{
    if (t->budget < 0)
        return rg_fail(err, RG_E_INPUT, "thinking.budget is %d: want 0 or more", (int)t->budget);
    return check_mark("start", t->start, t->n_start, vocab_size, err) &&
           check_mark("end", t->end, t->n_end, vocab_size, err);
}
