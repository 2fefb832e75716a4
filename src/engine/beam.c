/* beam.c -- see beam.h. */
#include "engine/beam.h"

#include <string.h>

#include "engine/numeric.h"

bool rg_beams_check(const rg_beam_params *p, int32_t n_samples, rg_error *err)
{
    int32_t n_groups = p->n_groups ? p->n_groups : 1;

    if (p->n_beams < 1 || p->n_beams > RG_BEAMS_MAX)
        return rg_fail(err, RG_E_INPUT, "n_beams is %d: want 1 to %d", (int)p->n_beams, RG_BEAMS_MAX);
    if (n_samples > p->n_beams)
        return rg_fail(err, RG_E_INPUT, "%d answers are asked of a search with %d beams: ask for as many at most",
                       (int)n_samples, (int)p->n_beams);
    if (n_groups < 1 || n_groups > p->n_beams || p->n_beams % n_groups)
        return rg_fail(err, RG_E_INPUT, "%d beams in %d groups: want groups of one size", (int)p->n_beams,
                       (int)n_groups);
    if (!(p->length_penalty >= (float)RG_LENGTH_PENALTY_MIN && p->length_penalty <= (float)RG_LENGTH_PENALTY_MAX))
        return rg_fail(err, RG_E_INPUT, "length_penalty is %g: want a number in [%g, %g]", (double)p->length_penalty,
                       RG_LENGTH_PENALTY_MIN, RG_LENGTH_PENALTY_MAX);
    if (!(p->diversity >= (float)RG_DIVERSITY_MIN && p->diversity <= (float)RG_DIVERSITY_MAX))
        return rg_fail(err, RG_E_INPUT, "diversity is %g: want a number in [%g, %g]", (double)p->diversity,
                       RG_DIVERSITY_MIN, RG_DIVERSITY_MAX);
    if (n_groups == 1 && p->diversity > 0)
        return rg_fail(err, RG_E_INPUT, "diversity is %g with one group of beams: it is between groups",
                       (double)p->diversity);
    if (p->early_stopping < RG_EARLY_STOPPING_FALSE || p->early_stopping > RG_EARLY_STOPPING_NEVER)
        return rg_fail(err, RG_E_INPUT, "early_stopping is %d: want one of its values", (int)p->early_stopping);
    return true;
}

static int32_t group_size(const rg_beam_params *p)
{
    return p->n_groups > 1 ? p->n_beams / p->n_groups : p->n_beams;
}

/* Each beam has as many candidates that end as there are ends, so that a whole group can still go on. */
int32_t rg_beams_kept(const rg_beam_params *p, int32_t n_ends)
{
    return (n_ends > 1 ? 1 + n_ends : 2) * group_size(p);
}

/* A beam of an earlier group lowers one id by the penalty at most, and no other id moves down. */
int32_t rg_beams_room(const rg_beam_params *p, int32_t n_ends, int32_t vocab_size)
{
    int64_t n = (int64_t)rg_beams_kept(p, n_ends) + (p->n_beams - group_size(p));

    return n < vocab_size ? (int32_t)n : vocab_size;
}

double rg_beam_score(double sum, int32_t n, double penalty)
{
    double power = penalty * rg_ln((double)n);

    return power >= 0 ? sum * rg_exp_negative(-power) : sum / rg_exp_negative(power);
}

void rg_beams_begin(rg_beams *b)
{
    int32_t size = group_size(&b->p);

    for (int32_t i = 0; i < b->p.n_beams; i++)
        b->beam[i] = (rg_beam){ .runs = i % size == 0, .parent = -1, .id = -1 };
    for (int32_t g = 0; g < b->p.n_groups; g++) {
        b->n_finished[g] = 0;
        b->is_over[g] = false;
    }
    b->n_running = b->p.n_groups;
    b->n_ids = b->n_listed = b->n_common = 0;
    b->n_ordered = -1;
}

/* ---- candidates -------------------------------------------------------------------------------------------------- */

static bool is_better(const rg_beam_candidate *x, const rg_beam_candidate *y)
{
    if (x->sum > y->sum || x->sum < y->sum)
        return x->sum > y->sum;
    return x->beam != y->beam ? x->beam < y->beam : x->id < y->id;
}

/* How many beams of the groups before `first` go on with this id in this step. */
static int32_t count_chosen(const rg_beams *b, int32_t first, int32_t id)
{
    int32_t n = 0;

    for (int32_t i = 0; i < first; i++)
        n += b->beam[i].id == id;
    return n;
}

/* The best candidates of a group into b->kept, best first; returns how many. */
static int32_t collect(rg_beams *b, int32_t first, int32_t size)
{
    int32_t most = rg_beams_kept(&b->p, b->n_ends), n = 0;

    for (int32_t i = first; i < first + size; i++) {
        const rg_top *top = b->listed + (size_t)i * (size_t)b->room;

        for (int32_t k = 0; b->beam[i].runs && k < b->beam[i].n_listed; k++) {
            rg_beam_candidate c = { b->beam[i].sum + (double)top[k].logprob, i, top[k].id };
            int32_t at;

            if (first && b->p.diversity > 0)
                c.sum -= (double)b->p.diversity * count_chosen(b, first, c.id);
            else if (n == most && !is_better(&c, &b->kept[n - 1]))
                break; /* those after it are no better */
            if (n == most && !is_better(&c, &b->kept[n - 1]))
                continue;
            for (at = n < most ? n++ : n - 1; at > 0 && is_better(&c, &b->kept[at - 1]); at--)
                b->kept[at] = b->kept[at - 1];
            b->kept[at] = c;
        }
    }
    return n;
}

static bool ends_with(const rg_beams *b, int32_t id)
{
    for (int32_t i = 0; i < b->n_ends; i++)
        if (b->ends[i] == id)
            return true;
    return false;
}

/* ---- finished answers -------------------------------------------------------------------------------------------- */

/* The place of the worst of n answers. */
static int32_t worst_of(const rg_hypothesis *h, int32_t n)
{
    int32_t worst = 0;

    for (int32_t i = 1; i < n; i++)
        if (h[i].score < h[worst].score)
            worst = i;
    return worst;
}

void rg_beam_ids_copy(const rg_beams *b, const rg_beam_ids *to, const rg_beam_ids *from, int32_t n)
{
    memcpy(to->ids, from->ids, (size_t)n * sizeof *to->ids);
    if (!b->listed_raw)
        return;
    memcpy(to->logprobs, from->logprobs, (size_t)n * sizeof *to->logprobs);
    if (b->n_tops)
        memcpy(to->tops, from->tops, (size_t)n * (size_t)b->n_tops * sizeof *to->tops);
}

/* A beam's next id, which was listed for its parent. */
static void append(const rg_beams *b, const rg_beam_ids *to, int32_t parent, int32_t id)
{
    const size_t at = (size_t)b->n_ids, n_tops = (size_t)b->n_tops, first = (size_t)parent * (size_t)b->room;
    size_t k = first;

    to->ids[at] = id;
    if (!b->listed_raw)
        return;
    while (b->listed[k].id != id)
        k++;
    to->logprobs[at] = b->listed_raw[k];
    if (n_tops)
        memcpy(to->tops + at * n_tops, b->listed_tops + (size_t)parent * n_tops, n_tops * sizeof *to->tops);
}

/* How a candidate ends its answer. */
typedef enum ending { GOES_ON, BY_END, BY_STOP } ending;

static ending ending_of(const rg_beams *b, const rg_beam_candidate *c)
{
    if (ends_with(b, c->id))
        return BY_END;
    return b->stops && b->stops(b->stops_arg, c->beam, c->id) ? BY_STOP : GOES_ON;
}

/* An answer of group g: the n ids of a place, then `id` (-1: no more), which may be an end. */
static void finish(rg_beams *b, int32_t g, const rg_beam_candidate *c, ending how, const rg_beam_ids *places)
{
    bool ends = how == BY_END;
    int32_t size = group_size(&b->p), n = b->n_ids + (c->id >= 0);
    rg_hypothesis *of_group = b->finished + (size_t)g * (size_t)size, *h;
    double score = rg_beam_score(c->sum, n, (double)b->p.length_penalty);

    if (b->n_finished[g] < size) {
        h = &of_group[b->n_finished[g]++];
    } else {
        h = &of_group[worst_of(of_group, size)];
        if (!(score > h->score))
            return;
    }
    rg_beam_ids_copy(b, &h->is, &places[c->beam], b->n_ids);
    if (c->id >= 0 && !ends)
        append(b, &h->is, c->beam, c->id);
    h->score = score;
    h->n = n - ends;
    h->end = ends ? c->id : -1;
    h->stopped = how == BY_STOP;
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

/* Put the n candidates that go on into places of their group: the best child of a parent into the parent's. */
static void place(rg_beams *b, int32_t first, int32_t size, int32_t n)
{
    int32_t free_place = first;

    for (int32_t i = first; i < first + size; i++)
        b->beam[i] = (rg_beam){ .parent = -1, .id = -1 };
    for (int32_t k = 0; k < n; k++) {
        rg_beam_candidate *c = &b->next[k];

        if (b->beam[c->beam].runs)
            continue;
        b->beam[c->beam] = (rg_beam){ .sum = c->sum, .runs = true, .parent = c->beam, .id = c->id };
        c->id = -1; /* it has its place */
    }
    for (int32_t k = 0; k < n; k++) {
        const rg_beam_candidate *c = &b->next[k];

        if (c->id < 0)
            continue;
        while (b->beam[free_place].runs)
            free_place++;
        b->beam[free_place] = (rg_beam){ .sum = c->sum, .runs = true, .parent = c->beam, .id = c->id };
    }
}

/* True if the best that may still come cannot enter a group's finished answers. */
static bool is_decided(const rg_beams *b, int32_t g, double best_sum)
{
    int32_t size = group_size(&b->p), n = b->n_ids + 1;
    const rg_hypothesis *h = b->finished + (size_t)g * (size_t)size;

    if (b->n_finished[g] < size)
        return false;
    if (b->p.early_stopping == RG_EARLY_STOPPING_TRUE)
        return true;
    if (b->p.early_stopping == RG_EARLY_STOPPING_NEVER && b->p.length_penalty > 0)
        n = b->max_tokens;
    return !(rg_beam_score(best_sum, n, (double)b->p.length_penalty) > h[worst_of(h, size)].score);
}

static void step_group(rg_beams *b, int32_t g, const rg_beam_ids *places)
{
    int32_t size = group_size(&b->p), first = g * size, n = collect(b, first, size), n_next = 0;
    bool last = b->n_ids + 1 == b->max_tokens, grouped = b->p.n_groups > 1;

    for (int32_t rank = 0; rank < n; rank++) {
        const rg_beam_candidate *c = &b->kept[rank];
        ending how = ending_of(b, c);

        if (how != GOES_ON || (last && !grouped)) {
            if (rank < size)
                finish(b, g, c, how, places);
        } else if (n_next < size) {
            b->next[n_next++] = *c;
        }
    }
    /* With groups, beams that the length cuts are answers whatever their rank, and what ended counts as what may still
     * come. */
    b->is_over[g] = !n_next || is_decided(b, g, grouped ? b->kept[0].sum : b->next[0].sum);
    for (int32_t k = 0; last && !b->is_over[g] && k < n_next; k++)
        finish(b, g, &b->next[k], GOES_ON, places);
    b->is_over[g] |= last;
    place(b, first, size, n_next);
    for (int32_t i = first; b->is_over[g] && i < first + size; i++)
        b->beam[i].runs = false; /* but later groups see its last ids */
}

static void put_in_order(rg_beams *b)
{
    int32_t size = group_size(&b->p);

    b->n_ordered = 0;
    for (int32_t g = 0; g < b->p.n_groups; g++) {
        for (int32_t i = g * size; i < g * size + b->n_finished[g]; i++) {
            int32_t at = b->n_ordered++;

            for (; at > 0 && b->finished[i].score > b->finished[b->order[at - 1]].score; at--)
                b->order[at] = b->order[at - 1];
            b->order[at] = i;
        }
    }
}

/* The places' ids become those of the beams that are there now.  A place whose beam has changed is nobody's parent. */
static void follow(const rg_beams *b, const rg_beam_ids *places)
{
    for (int32_t i = 0; i < b->p.n_beams; i++)
        if (b->beam[i].runs && b->beam[i].parent != i)
            rg_beam_ids_copy(b, &places[i], &places[b->beam[i].parent], b->n_ids);
    for (int32_t i = 0; i < b->p.n_beams; i++)
        if (b->beam[i].runs)
            append(b, &places[i], b->beam[i].parent, b->beam[i].id);
}

bool rg_beams_step(rg_beams *b, const rg_beam_ids *places)
{
    for (int32_t i = 0; i < b->p.n_beams; i++)
        b->beam[i].id = -1;
    for (int32_t g = 0; g < b->p.n_groups; g++)
        if (!b->is_over[g])
            step_group(b, g, places);
    follow(b, places);
    b->n_ids++;
    b->n_running = b->n_listed = 0;
    for (int32_t i = 0; i < b->p.n_beams; i++)
        b->n_running += b->beam[i].runs;
    if (b->n_running)
        return false;
    put_in_order(b);
    return true;
}

void rg_beams_close(rg_beams *b, const rg_beam_ids *places)
{
    int32_t size = group_size(&b->p);

    if (b->n_ordered >= 0)
        return;
    for (int32_t i = 0; i < b->p.n_beams && b->n_ids; i++)
        if (b->beam[i].runs)
            finish(b, i / size, &(rg_beam_candidate){ b->beam[i].sum, i, -1 }, GOES_ON, places);
    put_in_order(b);
}

void rg_beams_lose(rg_beams *b, const rg_beam_ids *places)
{
    const int32_t *one = NULL;
    int32_t n = b->n_ids;

    b->n_listed = 0;
    for (int32_t i = 0; i < b->p.n_beams; i++) {
        const int32_t *own = places[i].ids;
        int32_t k = 0;

        b->beam[i].is_listed = false;
        if (!b->beam[i].runs)
            continue;
        one = one ? one : own;
        while (k < n && own[k] == one[k])
            k++;
        n = k;
    }
    b->n_common = n;
}
