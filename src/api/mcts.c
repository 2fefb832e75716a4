/* mcts.c -- rg_mcts_search: Monte Carlo tree search over the ids of an answer, as a client of ridge.h.
 *
 * A node is a span of ids after its parent: one of the likeliest ids there, and what follows it greedily.  A simulation
 * goes down from the root by PUCT: among the children of a node it takes the one with the largest
 * Q + c P sqrt(N) / (1 + n) (P: the probability of its first id among its siblings, N and n: visits of the node and of
 * the child, Q: the mean of the child's values, brought to [0, 1] by the least and the largest value so far; Silver et
 * al., 2017; Schrittwieser et al., 2020).  At a leaf the model is asked for the children, and the leaf's value is the
 * scorer's of its ids.  A subtree of which every answer was seen is not entered again, so that with enough simulations
 * all answers within the width are seen.
 *
 * The state of a path is in the engine's prefix index, where paths share blocks: a leaf is a request for one id after
 * the path's, and one for the rest of each child. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "engine/request.h"

typedef struct node {
    int32_t parent, first, n; /* n children from `first` on; n -1: not asked for yet */
    int32_t n_ids;            /* of its span, at [node * span] of the tree's ids */
    int32_t visits;
    double sum, prior;        /* of values; the probability among its siblings */
    bool ends, seen;          /* an answer ends here; all answers through it were seen */
} node;

enum { TOGETHER = 16 }; /* requests that are made at once */

typedef struct tree {
    rg_engine *engine;
    const rg_mcts_params *m;
    node *nodes;       /* [room] */
    int32_t *node_ids; /* [room][span] */
    float *node_logprobs;
    int32_t n, room;
    const int32_t *ends; /* [n_ends] the model's end tokens, beside the stop ids */
    int32_t n_ends;
    int32_t *ids;      /* [n_prompt + max_tokens] the prompt and a path */
    float *logprobs;   /* [max_tokens] of the path */
    double least, most; /* values so far */
    rg_mcts_result *out;
} tree;

static bool is_end(const tree *t, int32_t id)
{
    return rg_ids_have(t->m->request.stop_ids, t->m->request.n_stop_ids, id) || rg_ids_have(t->ends, t->n_ends, id);
}

static int32_t *ids_of(const tree *t, int32_t at)
{
    return t->node_ids + (size_t)at * (size_t)t->m->span;
}

static float *logprobs_of(const tree *t, int32_t at)
{
    return t->node_logprobs + (size_t)at * (size_t)t->m->span;
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

/* Greedily n ids after the first n_path of the path, with the log-probabilities of the k best. */
static rg_request *ask(const tree *t, int32_t n_path, int32_t n, int32_t k, rg_error *err)
{
    rg_params p = t->m->request;

    p.prompt = t->ids;
    p.n_prompt = t->m->request.n_prompt + n_path;
    p.max_tokens = n;
    p.n_stop_ids = 0; /* an end is an id like any here */
    p.sampling.ignore_eos = true;
    p.sampling.temperature = p.sampling.dynatemp_range = 0;
    p.sampling.n_logprobs = k;
    return rg_submit(t->engine, &p, err);
}

/* Close a request that was read to its end. */
static bool close_request(tree *t, rg_request *r, rg_finish finish, rg_error *err)
{
    rg_usage u = rg_request_usage(r);

    t->out->n_prompt += u.n_prompt;
    t->out->n_cached += u.n_cached;
    rg_request_close(r);
    return finish == RG_FINISH_LENGTH || rg_fail(err, RG_E_IO, "mcts: a request ended before its ids were drawn");
}

/* The likeliest ids after the path of n ids become children of a node. */
static bool add_children(tree *t, int32_t at, int32_t n, rg_error *err)
{
    rg_request *r = ask(t, n, 1, t->m->width, err);
    rg_finish finish = RG_RUNNING;
    double total = 0;
    rg_token token;

    if (!r)
        return false;
    t->nodes[at].first = t->n;
    t->nodes[at].n = 0;
    while (rg_next(r, &token)) {
        for (int32_t k = 0; token.id >= 0 && k < token.n_top; k++) {
            if (!(token.top[k].logprob > -INFINITY))
                continue;
            *ids_of(t, t->n) = token.top[k].id;
            *logprobs_of(t, t->n) = token.top[k].logprob;
            t->nodes[t->n++] = (node){ .parent = at, .n = -1, .n_ids = 1, .prior = exp((double)token.top[k].logprob),
                                       .ends = is_end(t, token.top[k].id) || n + 1 == t->m->request.max_tokens };
            t->nodes[at].n++;
            total += exp((double)token.top[k].logprob);
        }
        finish = token.finish;
    }
    for (int32_t k = 0; k < t->nodes[at].n; k++)
        t->nodes[t->nodes[at].first + k].prior /= total;
    return close_request(t, r, finish, err);
}

/* The rest of a child's span, up to an end. */
static bool read_rest(tree *t, int32_t at, int32_t n_path, rg_request *r, rg_error *err)
{
    rg_finish finish = RG_RUNNING;
    node *a = &t->nodes[at];
    rg_token token;

    while (rg_next(r, &token)) {
        finish = token.finish;
        if (token.id < 0 || a->ends)
            continue;
        ids_of(t, at)[a->n_ids] = token.id;
        logprobs_of(t, at)[a->n_ids++] = token.logprob;
        a->ends = is_end(t, token.id) || n_path + a->n_ids == t->m->request.max_tokens;
    }
    return close_request(t, r, finish, err);
}

/* What follows the first ids of children [first, last) of a node at the end of a path of n_path ids.  Where the queue
 * has no room for all, the next one waits until one before it is read. */
static bool complete(tree *t, int32_t first, int32_t last, int32_t n_path, rg_error *err)
{
    rg_request *open[TOGETHER] = { NULL };
    int32_t left = t->m->request.max_tokens - n_path - 1, n = t->m->span - 1 < left ? t->m->span - 1 : left;
    int32_t read = first;
    bool ok = true;

    for (int32_t i = first; ok && i < last;) {
        rg_error why = { 0 };

        t->ids[t->m->request.n_prompt + n_path] = *ids_of(t, i);
        if (!t->nodes[i].ends)
            open[i - first] = ask(t, n_path + 1, n, 0, &why);
        if (t->nodes[i].ends || open[i - first]) {
            i++;
        } else if (why.code == RG_E_BUSY && read < i) {
            ok = !open[read - first] || read_rest(t, read, n_path, open[read - first], err);
            open[read++ - first] = NULL;
        } else {
            ok = rg_fail(err, why.code, "%s", why.text);
        }
    }
    for (; read < last; read++) {
        if (open[read - first] && ok)
            ok = read_rest(t, read, n_path, open[read - first], err);
        else
            rg_request_close(open[read - first]);
    }
    return ok;
}

/* Ask for the children of a node at the end of the path of n ids. */
static bool expand(tree *t, int32_t at, int32_t n, rg_error *err)
{
    const int32_t whole = (t->m->request.n_prompt + n) / RG_BLOCK, part = (t->m->request.n_prompt + n) % RG_BLOCK != 0;
    const int32_t before = at ? (t->m->request.n_prompt + n - t->nodes[at].n_ids) / RG_BLOCK : 0;

    if (t->room - t->n < t->m->width)
        return rg_fail(err, RG_E_LIMIT, "mcts: no room for more nodes");
    if (!add_children(t, at, n, err))
        return false;
    t->out->blocks += (uint64_t)(whole - before + part);
    t->out->blocks_unshared += (uint64_t)(whole + part);
    for (int32_t k = 0; t->m->span > 1 && k < t->nodes[at].n; k += TOGETHER) {
        int32_t first = t->nodes[at].first + k, more = t->nodes[at].n - k;

        if (!complete(t, first, first + (more < TOGETHER ? more : TOGETHER), n, err))
            return false;
    }
    return true;
}

/* ---- simulations ------------------------------------------------------------------------------------------------- */

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

/* The path of n ids goes on with a node's; its new length. */
static int32_t go_to(tree *t, int32_t at, int32_t n)
{
    const size_t n_ids = (size_t)t->nodes[at].n_ids;

    memcpy(t->ids + t->m->request.n_prompt + n, ids_of(t, at), n_ids * sizeof *t->ids);
    memcpy(t->logprobs + n, logprobs_of(t, at), n_ids * sizeof *t->logprobs);
    return n + t->nodes[at].n_ids;
}

static double score_path(const tree *t, int32_t n)
{
    double sum = 0;

    if (t->m->score)
        return t->m->score(t->m->score_arg, t->ids + t->m->request.n_prompt, t->logprobs, n);
    for (int32_t i = 0; i < n; i++)
        sum += (double)t->logprobs[i];
    return sum;
}

static void keep_if_best(tree *t, int32_t n, double value)
{
    rg_mcts_result *out = t->out;
    const int32_t *ids = t->ids + t->m->request.n_prompt;

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
    int32_t at = 0, n = 0;

    while (t->nodes[at].n > 0) {
        at = choose(t, at);
        n = go_to(t, at, n);
    }
    if (!t->nodes[at].ends && !expand(t, at, n, err))
        return false;
    double value = score_path(t, n);
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
        if (t->nodes[at].n < 0 && !expand(t, at, n, err))
            return false;
        if (t->nodes[at].n < 1)
            return rg_fail(err, RG_E_INPUT, "mcts: the rules leave no id");
        int32_t best = t->nodes[at].first;
        for (int32_t i = best; i < t->nodes[at].first + t->nodes[at].n; i++)
            best = t->nodes[i].visits > t->nodes[best].visits ? i : best;
        at = best;
        n = go_to(t, at, n);
    }
    keep_if_best(t, n, score_path(t, n));
    return true;
}

/* ---- the search -------------------------------------------------------------------------------------------------- */

rg_mcts_params rg_mcts_default(void)
{
    return (rg_mcts_params){ .simulations = 64, .width = 4, .span = 1, .explore = 1.25 };
}

static bool check(const rg_mcts_params *m, const rg_info *info, rg_error *err)
{
    const rg_params *p = &m->request;

    if (m->simulations < 1 || m->width < 1 || m->span < 1 || !(m->explore >= 0) || !(m->explore < INFINITY))
        return rg_fail(err, RG_E_INPUT, "mcts: want simulations, width and span of 1 or more, and a finite explore of "
                       "0 or more");
    if (p->max_tokens < 1 || p->n_prompt < 1)
        return rg_fail(err, RG_E_INPUT, "mcts: want a prompt and max_tokens of 1 or more");
    if (p->n_prompt >= info->max_seq_len)
        return rg_fail(err, RG_E_LIMIT, "the prompt has %d ids, and the context of %d must hold one more",
                       (int)p->n_prompt, (int)info->max_seq_len);
    if (p->n_samples != 1 || p->n_stop || p->grammar || p->beam.n_beams || p->best_of || p->prompt_logprobs ||
        p->embed != RG_POOLING_NONE || p->score || p->sampling.min_tokens)
        return rg_fail(err, RG_E_UNSUPPORTED, "mcts finds one answer, by its ids: several answers, stop texts, "
                       "grammars, min_tokens and log-probabilities of the prompt do not go with it");
    return true;
}

static bool make_tree(tree *t, rg_error *err)
{
    const rg_mcts_params *m = t->m;
    size_t most_tokens = (size_t)m->request.max_tokens, n_asked, n_nodes, n_ids, n_path;

    if (!rg_add((size_t)m->simulations, most_tokens, &n_asked) || !rg_mul(n_asked, (size_t)m->width, &n_nodes) ||
        !rg_add(n_nodes, (size_t)1, &n_nodes) || n_nodes > INT32_MAX / 4 || !rg_mul(n_nodes, (size_t)m->span, &n_ids) ||
        !rg_add((size_t)m->request.n_prompt, most_tokens, &n_path))
        return rg_fail(err, RG_E_LIMIT, "mcts: %d simulations of width %d need too many nodes", (int)m->simulations,
                       (int)m->width);
    t->room = (int32_t)n_nodes;
    t->nodes = rg_array(n_nodes, sizeof *t->nodes);
    t->node_ids = rg_array(n_ids, sizeof *t->node_ids);
    t->node_logprobs = rg_array(n_ids, sizeof *t->node_logprobs);
    t->ids = rg_array(n_path, sizeof *t->ids);
    t->logprobs = rg_array(most_tokens, sizeof *t->logprobs);
    t->out->ids = rg_array(most_tokens, sizeof *t->out->ids);
    if (!t->nodes || !t->node_ids || !t->node_logprobs || !t->ids || !t->logprobs || !t->out->ids)
        return rg_fail_memory(err, n_nodes * sizeof *t->nodes);
    memcpy(t->ids, m->request.prompt, (size_t)m->request.n_prompt * sizeof *t->ids);
    t->nodes[t->n++] = (node){ .parent = -1, .n = -1 };
    return true;
}

bool rg_mcts_search(rg_engine *engine, const rg_mcts_params *params, rg_mcts_result *out, rg_error *err)
{
    rg_info info = rg_engine_info(engine);
    rg_mcts_params m = *params;
    tree t = { .engine = engine, .m = &m, .least = INFINITY, .most = -INFINITY, .out = out, .ends = info.eos_ids,
               .n_ends = m.request.sampling.ignore_eos ? 0 : info.n_eos };
    bool ok;

    *out = (rg_mcts_result){ .n = -1, .score = -INFINITY };
    ok = check(&m, &info, err);
    if (ok && m.request.max_tokens > info.max_seq_len - m.request.n_prompt)
        m.request.max_tokens = info.max_seq_len - m.request.n_prompt; /* the context ends an answer */
    ok = ok && make_tree(&t, err);
    for (; ok && out->n_simulations < m.simulations && !t.nodes[0].seen; out->n_simulations++) {
        ok = !m.stop || !m.stop(m.stop_arg) || rg_fail(err, RG_E_IO, "mcts: the search was stopped");
        ok = ok && simulate(&t, err);
    }
    ok = ok && (out->n >= 0 || finish_greedily(&t, err));
    out->n_nodes = t.n;
    rg_free(t.nodes);
    rg_free(t.node_ids);
    rg_free(t.node_logprobs);
    rg_free(t.ids);
    rg_free(t.logprobs);
    if (!ok)
        rg_mcts_result_fini(out);
    return ok;
}

void rg_mcts_result_fini(rg_mcts_result *r)
{
    rg_free(r->ids);
    r->ids = NULL;
}
