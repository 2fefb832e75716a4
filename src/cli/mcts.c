/* mcts.c -- see mcts.h. */
#include "cli/mcts.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

typedef struct node {
    int32_t id, parent, first, n; /* n children from `first` on; n -1: not asked for yet */
    float logprob;
    int32_t visits;
    double sum, prior;            /* of values; the probability among its siblings */
    bool ends, seen;              /* an answer ends here; all answers through it were seen */
} node;

typedef struct tree {
    rg_engine *engine;
    const cli_mcts *m;
    node *nodes;
    int32_t n, room;
    int32_t *ids;      /* [n_prompt + max_tokens] the prompt and a path */
    float *logprobs;   /* [max_tokens] of the path */
    double least, most; /* values so far */
    cli_mcts_result *out;
} tree;

static bool is_end(const tree *t, int32_t id)
{
    for (int32_t i = 0; i < t->m->params.n_stop_ids; i++)
        if (t->m->params.stop_ids[i] == id)
            return true;
    return false;
}

/* Ask for the likeliest ids after the path of n ids, and make them children of the node. */
static bool expand(tree *t, int32_t at, int32_t n, rg_error *err)
{
    rg_params p = t->m->params;
    rg_request *r;
    rg_token token;
    double total = 0;
    bool ok = false;

    p.prompt = t->ids;
    p.n_prompt = t->m->params.n_prompt + n;
    p.max_tokens = 1;
    p.n_samples = 1;
    p.n_stop_ids = 0; /* an end is an id like any here */
    p.sampling.ignore_eos = true;
    p.sampling.temperature = 0;
    p.sampling.n_logprobs = t->m->width;
    r = rg_submit(t->engine, &p, err);
    if (!r)
        return false;
    t->nodes[at].first = t->n;
    t->nodes[at].n = 0;
    while (rg_next(r, &token)) {
        if (cli_interrupted())
            rg_cancel(r);
        for (int32_t k = 0; token.id >= 0 && k < token.n_top; k++) {
            if (!(token.top[k].logprob > -INFINITY))
                continue;
            t->nodes[t->n++] = (node){ .id = token.top[k].id, .parent = at, .n = -1, .logprob = token.top[k].logprob,
                                       .prior = exp((double)token.top[k].logprob),
                                       .ends = is_end(t, token.top[k].id) || n + 1 == t->m->params.max_tokens };
            t->nodes[at].n++;
            total += exp((double)token.top[k].logprob);
        }
        ok |= token.finish == RG_FINISH_LENGTH;
    }
    for (int32_t k = 0; k < t->nodes[at].n; k++)
        t->nodes[t->nodes[at].first + k].prior /= total;
    rg_usage u = rg_request_usage(r);
    t->out->n_prompt += u.n_prompt;
    t->out->n_cached += u.n_cached;
    rg_request_close(r);
    return ok || rg_fail(err, RG_E_IO, "mcts: a request ended before its id was drawn");
}

static double scaled(const tree *t, double value)
{
    return t->most > t->least ? (value - t->least) / (t->most - t->least) : 0.5;
}

/* The child to go to by PUCT, ties to the likelier; -1: all were seen. */
static int32_t choose(const tree *t, int32_t at)
{
    const node *parent = &t->nodes[at];
    int32_t best = -1;
    double best_value = 0;

    for (int32_t i = parent->first; i < parent->first + parent->n; i++) {
        const node *c = &t->nodes[i];
        double q = c->visits ? scaled(t, c->sum / c->visits) : scaled(t, t->least);
        double value = q + t->m->explore * c->prior * sqrt((double)parent->visits) / (1 + c->visits);

        if (!c->seen && (best < 0 || value > best_value)) {
            best = i;
            best_value = value;
        }
    }
    return best;
}

static double default_score(void *arg, const int32_t *ids, const float *logprobs, int32_t n)
{
    double sum = 0;

    (void)arg, (void)ids;
    for (int32_t i = 0; i < n; i++)
        sum += (double)logprobs[i];
    return sum;
}

static void keep_if_best(tree *t, int32_t n, double value)
{
    cli_mcts_result *out = t->out;
    const int32_t *ids = t->ids + t->m->params.n_prompt;

    if (out->n >= 0 && !(value > out->score))
        return;
    out->score = value;
    out->ended = is_end(t, ids[n - 1]);
    out->n = n - out->ended;
    memcpy(out->ids, ids, (size_t)out->n * sizeof *ids);
}

/* Values and visits from a node up to the root, and what has been seen whole. */
static void back_up(tree *t, int32_t at, double value)
{
    for (; at >= 0; at = t->nodes[at].parent) {
        node *a = &t->nodes[at];

        a->visits++;
        a->sum += value;
        if (a->n < 0)
            continue;
        a->seen = true;
        for (int32_t i = a->first; i < a->first + a->n; i++)
            a->seen &= t->nodes[i].seen;
    }
}

static bool simulate(tree *t, rg_error *err)
{
    cli_score score = t->m->score ? t->m->score : default_score;
    int32_t at = 0, n = 0;

    while (t->nodes[at].n > 0) {
        at = choose(t, at);
        t->ids[t->m->params.n_prompt + n] = t->nodes[at].id;
        t->logprobs[n++] = t->nodes[at].logprob;
    }
    if (!t->nodes[at].ends && !expand(t, at, n, err))
        return false;
    double value = score(t->m->score_arg, t->ids + t->m->params.n_prompt, t->logprobs, n);
    t->least = value < t->least ? value : t->least;
    t->most = value > t->most ? value : t->most;
    if (t->nodes[at].ends) {
        t->nodes[at].seen = true;
        keep_if_best(t, n, value);
    }
    back_up(t, at, value);
    return true;
}

/* The likeliest way on from the best path known, where no simulation reached the end of an answer. */
static bool finish_greedily(tree *t, rg_error *err)
{
    int32_t at = 0, n = 0;

    while (!t->nodes[at].ends) {
        if (t->nodes[at].n < 0 && t->n + t->m->width > t->room)
            return rg_fail(err, RG_E_LIMIT, "mcts: no room for more nodes");
        if (t->nodes[at].n < 0 && !expand(t, at, n, err))
            return false;
        if (t->nodes[at].n < 1)
            return rg_fail(err, RG_E_INPUT, "mcts: the rules leave no id");
        int32_t best = t->nodes[at].first;
        for (int32_t i = best; i < t->nodes[at].first + t->nodes[at].n; i++)
            best = t->nodes[i].visits > t->nodes[best].visits ? i : best;
        at = best;
        t->ids[t->m->params.n_prompt + n] = t->nodes[at].id;
        t->logprobs[n++] = t->nodes[at].logprob;
    }
    keep_if_best(t, n, (t->m->score ? t->m->score : default_score)(t->m->score_arg, t->ids + t->m->params.n_prompt,
                                                                    t->logprobs, n));
    return true;
}

bool cli_mcts_search(rg_engine *engine, const cli_mcts *m, cli_mcts_result *out, rg_error *err)
{
    size_t most_tokens = (size_t)m->params.max_tokens, n_prompt = (size_t)m->params.n_prompt, n_asked, n_nodes, n_ids;
    tree t = { .engine = engine, .m = m, .least = INFINITY, .most = -INFINITY, .out = out };
    bool ok;

    *out = (cli_mcts_result){ .n = -1, .score = -INFINITY };
    if (!rg_add((size_t)m->simulations, most_tokens, &n_asked) || !rg_mul(n_asked, (size_t)m->width, &n_nodes) ||
        !rg_add(n_nodes, (size_t)1, &n_nodes) || n_nodes > INT32_MAX / 4 || !rg_add(n_prompt, most_tokens, &n_ids))
        return rg_fail(err, RG_E_LIMIT, "mcts: %d simulations of width %d need too many nodes", (int)m->simulations,
                       (int)m->width);
    t.room = (int32_t)n_nodes;
    t.nodes = rg_array(n_nodes, sizeof *t.nodes);
    t.ids = rg_array(n_ids, sizeof *t.ids);
    t.logprobs = rg_array(most_tokens, sizeof *t.logprobs);
    out->ids = rg_array(most_tokens, sizeof *out->ids);
    ok = (t.nodes && t.ids && t.logprobs && out->ids) || rg_fail_memory(err, n_nodes * sizeof *t.nodes);
    if (ok) {
        memcpy(t.ids, m->params.prompt, n_prompt * sizeof *t.ids);
        t.nodes[t.n++] = (node){ .id = -1, .parent = -1, .n = -1 };
    }
    for (; ok && out->n_simulations < m->simulations && !t.nodes[0].seen; out->n_simulations++)
        ok = simulate(&t, err);
    ok = ok && (out->n >= 0 || finish_greedily(&t, err));
    out->n_nodes = t.n;
    rg_free(t.nodes);
    rg_free(t.ids);
    rg_free(t.logprobs);
    if (!ok) {
        rg_free(out->ids);
        out->ids = NULL;
    }
    return ok;
}
