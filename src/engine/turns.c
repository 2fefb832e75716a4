/* turns.c -- see turns.h. */
#include "engine/turns.h"

/* The least that members had that go on wanting; `otherwise` if there are none. */
static double least_had(rg_turn_claim *const claims[], int n, double otherwise)
{
    bool some = false;
    double least = otherwise;

    for (int i = 0; i < n; i++)
        if (claims[i]->wants && claims[i]->wanted && (!some || claims[i]->had_s < least)) {
            least = claims[i]->had_s;
            some = true;
        }
    return least;
}

static bool comes_before(const rg_turn_claim *a, const rg_turn_claim *b)
{
    if (a->served != b->served)
        return a->served < b->served;
    if (a->deadline_ns != b->deadline_ns)
        return a->deadline_ns < b->deadline_ns;
    return a->had_s < b->had_s;
}

int rg_turns_next(rg_turn_claim *const claims[], int n)
{
    int next = -1;

    for (int i = 0; i < n; i++)
        if (claims[i]->wants && !claims[i]->wanted) {
            double least = least_had(claims, n, claims[i]->had_s);

            claims[i]->had_s = claims[i]->had_s > least ? claims[i]->had_s : least;
        }
    for (int i = 0; i < n; i++) {
        claims[i]->wanted = claims[i]->wants;
        if (claims[i]->wants && (next < 0 || comes_before(claims[i], claims[next])))
            next = i;
    }
    return next;
}

void rg_turns_took(rg_turn_claim *claim, double took_s)
{
    claim->had_s += took_s;
}
