/* vote.c -- see vote.h. */
#define _GNU_SOURCE 1 /* memmem */
#include "server/vote.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

static bool is_around(char c)
{
    return isspace((unsigned char)c) || c == '.';
}

/* What of an answer is voted on. */
static rg_string voted(const rg_call *c, const rg_choice *ch)
{
    const rg_buf *text = c->shape->is_chat ? &ch->answer.content : &ch->text;
    const char *at = text->n ? text->data : "", *end = at + text->n, *mark = c->f.vote_after;

    for (const char *next = at; mark && (next = memmem(next, (size_t)(end - next), mark, strlen(mark)));)
        at = next += strlen(mark);
    while (at < end && is_around(*at))
        at++;
    while (end > at && is_around(end[-1]))
        end--;
    return (rg_string){ at, (size_t)(end - at) };
}

static bool agree(rg_string a, rg_string b)
{
    return a.n == b.n && !strncasecmp(a.data, b.data, a.n);
}

/* The votes of each of n choices, as those have it who agree with an earlier one: 0. */
static void count(const rg_call *c, rg_choice *choices, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t first = 0;

        while (!agree(voted(c, &choices[first]), voted(c, &choices[i])))
            first++;
        choices[i].n_votes = 0;
        choices[first].n_votes++;
    }
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

        count(c, own, n);
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
