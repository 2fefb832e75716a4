/* votes.c -- see votes.h. */
#define _GNU_SOURCE 1 /* memmem */
#include "base/votes.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

/* What may stand around an answer. */
static bool is_around(char c)
{
    return isspace((unsigned char)c) || c == '.';
}

rg_string rg_vote_text(rg_string text, const char *after)
{
    const char *at = text.n ? text.data : "", *end = at + text.n;

    for (const char *next = at; after && *after && (next = memmem(next, (size_t)(end - next), after, strlen(after)));)
        at = next += strlen(after);
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

void rg_votes_count(const rg_string *text, int32_t n, int32_t *votes)
{
    for (int32_t i = 0; i < n; i++) {
        int32_t first = 0;

        while (!agree(text[first], text[i]))
            first++;
        votes[i] = 0;
        votes[first]++;
    }
}
