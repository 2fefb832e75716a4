/* predicted.c -- see predicted.h.  Nothing is kept: each call looks for the answer's end in the text. */
#include "engine/draft/predicted.h"

#include <stdlib.h>

#include "base/mem.h"

enum { MAX_RUN = 16, DEPTH = 32 };

int32_t rg_predicted_find(const int32_t *text, int32_t n_text, const int32_t *answer, int32_t n)
{
    int32_t best = n_text, longest = 0;

    if (!n)
        return 0;
    for (int32_t at = 1; at <= n_text; at++) { /* the place behind text[at - 1] */
        int32_t run = 0;

        if (text[at - 1] != answer[n - 1])
            continue;
        while (run < at && run < n && run < MAX_RUN && text[at - 1 - run] == answer[n - 1 - run])
            run++;
        if (run > longest || (run == longest && abs(at - n) < abs(best - n))) {
            longest = run;
            best = at;
        }
    }
    return best;
}

static bool propose(rg_drafter *d, const rg_draft_ask *asks, int32_t n)
{
    (void)d;
    for (int32_t k = 0; k < n; k++) {
        const rg_draft_ask *a = &asks[k];
        const rg_params *p = &a->request->params;
        int32_t at = rg_predicted_find(p->predicted, p->n_predicted, a->ids + p->n_prompt, a->n_ids - p->n_prompt);

        for (int32_t i = at; i < p->n_predicted && i - at < a->depth && a->draft->n < a->most; i++)
            rg_draft_add(a->draft, a->draft->n - 1, p->predicted[i]);
    }
    return true;
}

static void close_it(rg_drafter *d)
{
    rg_free(d);
}

rg_drafter *rg_draft_predicted_new(rg_error *err)
{
    rg_drafter *d = rg_zalloc(sizeof *d);

    if (!d)
        return rg_fail_memory(err, sizeof *d), NULL;
    d->depth = DEPTH;
    d->propose = propose;
    d->close = close_it;
    return d;
}
