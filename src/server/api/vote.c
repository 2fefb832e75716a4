/* vote.c -- see vote.h. */
#include "server/api/vote.h"

#include <string.h>

#include "base/mem.h"
#include "base/votes.h"

/* Count the votes of each of n choices.  A choice that agrees with an earlier one gets 0.  False: no memory. */
static bool count(const rg_call *c, rg_choice *choices, int32_t n)
{
    rg_string *text = rg_array((size_t)n, sizeof *text);
    int32_t *votes = rg_array((size_t)n, sizeof *votes);
    const bool ok = text && votes;

    for (int32_t i = 0; ok && i < n; i++) {
        const rg_buf *whole = c->shape->is_chat ? &choices[i].answer.content : &choices[i].text;

        text[i] = rg_vote_text((rg_string){ whole->data, whole->n }, c->f.vote_after);
    }
    if (ok)
        rg_votes_count(text, n, votes);
    for (int32_t i = 0; ok && i < n; i++)
        choices[i].n_votes = votes[i];
    rg_free(text);
    rg_free(votes);
    return ok;
}

/* Bring the best choice of [from, n) to `from`; the others keep their order as far as votes are equal. */
static void bring(rg_choice *choices, int64_t from, int64_t n)
{
    int64_t best = from;

    for (int64_t i = from; i < n; i++)
        best = choices[i].n_votes > choices[best].n_votes ? i : best;
    rg_choice won = choices[best];
    memmove(&choices[from + 1], &choices[from], (size_t)(best - from) * sizeof won);
    choices[from] = won;
}

void rg_call_vote(rg_call *c)
{
    const int64_t n = c->f.n, told = c->f.n_told;

    for (int32_t p = 0; p < c->n_prompts; p++) {
        rg_choice *own = &c->choices[p * n];

        c->failed |= !count(c, own, (int32_t)n);
        for (int64_t k = 0; k < told; k++) {
            bring(own, k, n);
            own[k].index = (int32_t)(p * told + k);
        }
        for (int64_t k = told; k < n; k++) {
            c->n_dropped_tokens += own[k].n_tokens;
            rg_choice_fini(&own[k]);
        }
        memmove(&c->choices[p * told], own, (size_t)told * sizeof *own);
    }
    c->f.n = told;
    c->n_choices = c->n_ended = (int32_t)(c->n_prompts * told);
}
