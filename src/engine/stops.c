/* stops.c -- see stops.h. */
#include "engine/stops.h"

void rg_stop_link(rg_stop *s)
{
    s->back[0] = 0;
    if (s->n)
        s->back[1] = 0;
    for (int32_t i = 1, k = 0; i < s->n; i++) {
        while (k && s->text[i] != s->text[k])
            k = s->back[k];
        k += s->text[i] == s->text[k];
        s->back[i + 1] = k;
    }
}

int32_t rg_stops_feed(const rg_stop *stops, int32_t n, int32_t *at, char byte)
{
    int32_t longest = -1;

    for (int32_t i = 0; i < n; i++) {
        const rg_stop *s = &stops[i];

        while (at[i] && s->text[at[i]] != byte)
            at[i] = s->back[at[i]];
        at[i] += s->text[at[i]] == byte;
        if (at[i] < s->n)
            continue;
        if (longest < 0 || s->n > stops[longest].n)
            longest = i;
        at[i] = s->back[at[i]];
    }
    return longest;
}

int32_t rg_stops_held(int32_t n, const int32_t *at)
{
    int32_t most = 0;

    for (int32_t i = 0; i < n; i++)
        most = at[i] > most ? at[i] : most;
    return most;
}
