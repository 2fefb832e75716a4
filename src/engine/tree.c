/* tree.c -- see tree.h. */
#include "engine/tree.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "engine/beam.h"
#include "engine/numeric.h"

enum {
    LEAVES = 8,
    WIDTH = 4,
    MOST_NODES = 1 << 18, /* that rollouts may make; where they have made them, only leaves get children */
};

static const float EXPLORE = 1.25f;

/* ---- at the door ------------------------------------------------------------------------------------------------- */

static bool in_range(const char *name, int64_t value, int64_t least, int64_t most, rg_error *err)
{
    return (value >= least && value <= most) ||
           rg_fail(err, RG_E_INPUT, "search: %s is %lld: want %lld to %lld", name, (long long)value, (long long)least,
                   (long long)most);
}

bool rg_tree_check(const rg_search_params *p, int32_t n_samples, rg_error *err)
{
    if (!in_range("simulations", p->simulations, 1, RG_SIMULATIONS_MAX, err) ||
        !in_range("leaves", p->leaves, 0, RG_LEAVES_MAX, err) || !in_range("width", p->width, 0, RG_WIDTH_MAX, err) ||
        !in_range("span", p->span, 0, RG_SPAN_MAX, err) || !in_range("rollout", p->rollout, 0, INT32_MAX, err))
        return false;
    if (!(p->explore >= (float)RG_EXPLORE_MIN && p->explore <= (float)RG_EXPLORE_MAX))
        return rg_fail(err, RG_E_INPUT, "search: explore is %g: want a number in [%g, %g]", (double)p->explore,
                       RG_EXPLORE_MIN, RG_EXPLORE_MAX);
    if (!(p->length_penalty >= (float)RG_LENGTH_PENALTY_MIN && p->length_penalty <= (float)RG_LENGTH_PENALTY_MAX))
        return rg_fail(err, RG_E_INPUT, "search: length_penalty is %g: want a number in [%g, %g]",
                       (double)p->length_penalty, RG_LENGTH_PENALTY_MIN, RG_LENGTH_PENALTY_MAX);
    return n_samples <= p->simulations ||
           rg_fail(err, RG_E_INPUT, "%d answers are asked of a search with %d simulations: ask for as many at most",
                   (int)n_samples, (int)p->simulations);
}

rg_search_params rg_tree_params(const rg_search_params *p)
{
    rg_search_params r = *p;

    r.leaves = r.leaves ? r.leaves : LEAVES;
    r.leaves = r.leaves < r.simulations ? r.leaves : r.simulations;
    r.width = r.width ? r.width : WIDTH;
    r.span = r.span ? r.span : 1;
    r.explore = r.explore > 0 ? r.explore : r.explore < 0 ? 0 : EXPLORE;
    return r;
}

/* Each simulation needs room for the children of its leaf; rollouts make nodes of all their ids while there is more. */
size_t rg_tree_room(const rg_search_params *p, int32_t max_tokens)
{
    const size_t width = (size_t)p->width, least = 1 + (size_t)p->simulations * width;
    size_t all;

    if (!rg_mul((size_t)p->simulations * width, (size_t)max_tokens, &all) || all > MOST_NODES)
        all = MOST_NODES;
    return all + 1 > least ? all + 1 : least;
}

/* ---- a round ----------------------------------------------------------------------------------------------------- */

void rg_tree_begin(rg_tree *t)
{
    t->node[0] = (rg_tree_node){ .parent = -1, .id = -1, .n = -1, .best = -INFINITY };
    t->n_nodes = 1;
    t->n_told = t->n_simulations = t->n_open = 0;
    t->least = INFINITY;
    t->most = -INFINITY;
    t->is_over = t->is_finishing = false;
    for (int32_t i = 0; i < t->p.leaves; i++)
        t->leaf[i] = (rg_tree_leaf){ .node = -1 };
    for (int32_t i = 0; i < t->n_answers; i++)
        t->answer[i].score = -INFINITY;
}

/* Between the least and the largest value so far. */
static double scaled(const rg_tree *t, double value)
{
    if (!(value > -INFINITY))
        return 0;
    return t->most > t->least ? (value - t->least) / (t->most - t->least) : 0.5;
}

/* The child to go to by PUCT, ties to the likelier; -1: none is free. */
static int32_t choose(const rg_tree *t, int32_t at)
{
    const rg_tree_node *parent = &t->node[at];
    const double root = sqrt((double)(parent->visits + parent->running));
    int32_t best = -1;
    double best_value = 0;

    for (int32_t i = parent->first; i < parent->first + parent->n; i++) {
        const rg_tree_node *c = &t->node[i];
        const int32_t n = c->visits + c->running;
        const double q = scaled(t, c->visits ? c->best : parent->best);
        const double value = q * (c->visits + 1) / (n + 1) + (double)t->p.explore * (double)c->prior * root / (1 + n);

        if (!c->busy && (best < 0 || value > best_value)) {
            best = i;
            best_value = value;
        }
    }
    return best;
}

/* What holds of a node by its children, and so on to the root. */
static void note_children(rg_tree *t, int32_t at)
{
    for (; at >= 0; at = t->node[at].parent) {
        rg_tree_node *a = &t->node[at];

        if (a->n < 0)
            continue;
        a->seen = a->busy = true;
        for (int32_t i = a->first; i < a->first + a->n; i++) {
            a->seen &= t->node[i].seen;
            a->busy &= t->node[i].busy;
        }
    }
}

/* The ids of a node's path. */
static void write_path(const rg_tree *t, int32_t at, const rg_tree_ids *out, double *sum)
{
    *sum = 0;
    for (; t->node[at].parent >= 0; at = t->node[at].parent) {
        const rg_tree_node *a = &t->node[at];

        out->ids[a->depth - 1] = a->id;
        if (out->logprobs)
            out->logprobs[a->depth - 1] = a->raw;
        *sum += (double)a->logprob;
    }
}

/* The child with the best value that is not dead; -1: none. */
static int32_t best_child(const rg_tree *t, int32_t at)
{
    const rg_tree_node *parent = &t->node[at];
    int32_t best = -1;

    for (int32_t i = parent->first; i < parent->first + parent->n; i++)
        if (!t->node[i].busy && (best < 0 || t->node[i].best > t->node[best].best))
            best = i;
    return best;
}

/* Place i follows the free node that PUCT leads to, or, as the last of a search, the one of the best value. */
static void follow(rg_tree *t, int32_t i)
{
    rg_tree_leaf *l = &t->leaf[i];
    int32_t at = 0;

    while (t->node[at].n > 0) {
        at = t->is_finishing ? best_child(t, at) : choose(t, at);
        RG_ASSERT(at >= 0); /* the parent was free */
    }
    *l = (rg_tree_leaf){ .node = at, .at = at, .n = t->node[at].depth, .n_begun = t->node[at].depth, .runs = true,
                         .end = -1 };
    write_path(t, at, &t->path[i], &l->sum);
    t->node[at].busy = true;
    note_children(t, t->node[at].parent);
    for (; at >= 0; at = t->node[at].parent)
        t->node[at].running++;
    t->n_simulations += !t->is_finishing;
    t->n_open++;
}

bool rg_tree_gather(rg_tree *t)
{
    RG_ASSERT(!t->n_open);
    for (int32_t i = 0; i < t->p.leaves; i++) {
        t->leaf[i] = (rg_tree_leaf){ .node = -1 };
        if (t->n_simulations < t->p.simulations && !t->node[0].busy)
            follow(t, i);
    }
    if (!t->n_open && !t->n_told && !t->node[0].busy) { /* beginnings alone were valued */
        t->is_finishing = true;
        follow(t, 0);
    }
    t->is_over = !t->n_open;
    return t->n_open;
}

/* ---- a path goes on ---------------------------------------------------------------------------------------------- */

/* True if a node's ids may have siblings behind it. */
static bool branches(const rg_tree *t, int32_t depth)
{
    return depth % t->p.span == 0;
}

/* Give the last node of a path its children, if there is room: as much as the simulations to come need stays. */
static void add_children(rg_tree *t, const rg_tree_leaf *l, const rg_top *listed, const float *raw, int32_t n)
{
    const int64_t kept = (int64_t)(t->p.simulations - t->n_simulations + t->n_open) * t->p.width;
    rg_tree_node *a = &t->node[l->at];
    double total = 0;

    n = branches(t, a->depth) ? n : 1;
    if (a->depth != l->n || a->n >= 0 || (l->at != l->node && t->room - t->n_nodes < kept + n) ||
        t->room - t->n_nodes < n)
        return;
    a->first = t->n_nodes;
    a->n = n;
    for (int32_t k = 0; k < n; k++)
        total += rg_exp_negative((double)(listed[k].logprob - listed[0].logprob));
    for (int32_t k = 0; k < n; k++)
        t->node[t->n_nodes++] = (rg_tree_node){
            .parent = l->at, .id = listed[k].id, .n = -1, .depth = a->depth + 1, .logprob = listed[k].logprob,
            .raw = raw ? raw[k] : 0, .best = -INFINITY,
            .prior = (float)(rg_exp_negative((double)(listed[k].logprob - listed[0].logprob)) / total),
        };
}

int32_t rg_tree_list(rg_tree *t, int32_t i, const rg_top *listed, const float *raw, int32_t n)
{
    rg_tree_leaf *l = &t->leaf[i];

    if (!n) {
        l->dead = true;
        return -1;
    }
    add_children(t, l, listed, raw, n < t->p.width ? n : t->p.width);
    if (t->node[l->at].depth == l->n && t->node[l->at].n > 0)
        l->at = t->node[l->at].first;
    t->path[i].ids[l->n] = listed[0].id;
    if (t->path[i].logprobs)
        t->path[i].logprobs[l->n] = raw ? raw[0] : 0;
    l->sum += (double)listed[0].logprob;
    l->n++;
    return listed[0].id;
}

bool rg_tree_is_valued(const rg_tree *t, int32_t i)
{
    const rg_tree_leaf *l = &t->leaf[i];

    return t->p.rollout && !t->is_finishing && l->n - l->n_begun >= t->p.rollout;
}

void rg_tree_end(rg_tree *t, int32_t i, bool is_answer, int32_t end, bool stopped)
{
    rg_tree_leaf *l = &t->leaf[i];

    RG_ASSERT(l->runs);
    l->runs = false;
    l->ends = is_answer;
    l->end = end;
    l->stopped = stopped;
    t->n_open--;
}

double rg_tree_logprob(const rg_tree *t, int32_t i)
{
    const rg_tree_leaf *l = &t->leaf[i];

    return l->dead ? -INFINITY : rg_beam_score(l->sum, l->n > 0 ? l->n : 1, (double)t->p.length_penalty);
}

/* ---- what a path was worth --------------------------------------------------------------------------------------- */

static void keep_answer(rg_tree *t, int32_t i, double score)
{
    const rg_tree_leaf *l = &t->leaf[i];
    const int32_t n = l->n - (l->end >= 0);
    int32_t at = t->n_told;

    if (t->n_told == t->n_answers && !(score > t->answer[t->n_told - 1].score))
        return;
    at = t->n_told < t->n_answers ? t->n_told++ : t->n_told - 1;
    rg_tree_ids is = t->answer[at].is;
    for (; at > 0 && score > t->answer[at - 1].score; at--)
        t->answer[at] = t->answer[at - 1];
    t->answer[at] = (rg_tree_answer){ .score = score, .n = n, .end = l->end, .stopped = l->stopped, .is = is };
    memcpy(is.ids, t->path[i].ids, (size_t)n * sizeof *is.ids);
    if (is.logprobs)
        memcpy(is.logprobs, t->path[i].logprobs, (size_t)n * sizeof *is.logprobs);
}

void rg_tree_value(rg_tree *t, int32_t i, double value)
{
    rg_tree_leaf *l = &t->leaf[i];
    const bool counts = value > -INFINITY && value < INFINITY; /* NaN does not */

    RG_ASSERT(l->node >= 0 && !l->runs);
    if (counts) {
        t->least = value < t->least ? value : t->least;
        t->most = value > t->most ? value : t->most;
    }
    if (l->ends && !l->dead)
        keep_answer(t, i, counts ? value : -INFINITY);
    for (int32_t at = l->node; at >= 0; at = t->node[at].parent)
        t->node[at].running--;
    t->node[l->node].busy = false;
    if (l->ends || l->dead)
        t->node[l->at].seen = t->node[l->at].busy = true;
    for (int32_t at = l->at; at >= 0; at = t->node[at].parent) {
        rg_tree_node *a = &t->node[at];

        a->visits++;
        a->best = counts && value > a->best ? value : a->best;
    }
    note_children(t, t->node[l->at].parent);
    l->node = -1;
}
