/* search.c -- see search.h. */
#include "engine/work/search.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "engine/draw.h"
#include "engine/work/answer.h"
#include "engine/work/step.h"

typedef struct search_part {
    rg_tree tree;
    rg_top *listed;     /* [leaves][width] what may follow each path, by the rules, */
    float *listed_raw;  /*   and before them; NULL: log-probabilities are not asked for */
    int32_t *n_listed;  /* [leaves] */
    rg_speller speller; /* as every answer begins to be spelt */
    /* As in rg_usage. */
    atomic_int n_simulations, n_nodes;
    _Atomic int64_t positions;
    _Atomic uint64_t blocks, blocks_unshared;
    bool wants_values;  /* of a request that is valued by its reader: this round's paths have ended */
} search_part;

static search_part *part_of(const rg_request *r)
{
    return r->part;
}

/* ---- at the door ------------------------------------------------------------------------------------------------- */

static bool takes(const rg_params *p, const rg_request_model *m)
{
    (void)m;
    return p->search.simulations;
}

static bool check(const rg_params *p, const rg_request_model *m, rg_error *err)
{
    if (!rg_answer_check(p, m, err) || !rg_tree_check(&p->search, p->n_samples, err))
        return false;
    if (m->diffusion)
        return rg_fail(err, RG_E_UNSUPPORTED, "this model fills in answers in any order: a tree search needs ids one "
                       "after the other");
    if (p->beam.n_beams || p->best_of)
        return rg_fail(err, RG_E_UNSUPPORTED, "a tree search does not go together with %s",
                       p->beam.n_beams ? "beams" : "best_of");
    if (p->prompt_logprobs)
        return rg_fail(err, RG_E_UNSUPPORTED, "a tree search and log-probabilities of the prompt do not go together: "
                       "ask for those without a search");
    if (p->thinking.n_end)
        return rg_fail(err, RG_E_UNSUPPORTED, "a tree search has no budget of thinking");
    if (p->sampling.n_logprobs > 0)
        return rg_fail(err, RG_E_UNSUPPORTED, "a tree search gives log-probabilities of its ids, and not of others "
                       "(n_logprobs is %d: want 0 or less)", (int)p->sampling.n_logprobs);
    if (p->grammar && (p->sampling.ignore_eos || !m->n_eos))
        return rg_fail(err, RG_E_UNSUPPORTED, "a tree search and a grammar need an end token of the model, which says "
                       "that an answer is complete");
    return true;
}

/* One sample more than leaves, or than answers that are told, if there is a grammar: it keeps the grammar's start. */
static rg_work_shape shape(const rg_params *p, const rg_request_model *m)
{
    const rg_search_params s = rg_tree_params(&p->search);

    (void)m;
    return (rg_work_shape){ .row = (size_t)p->n_prompt + (size_t)p->max_tokens, .n_ending = p->n_samples,
                            .n_branches = (s.leaves > p->n_samples ? s.leaves : p->n_samples) + (p->grammar != NULL) };
}

static rg_tree carve_tree(rg_carver *c, const rg_params *p)
{
    const rg_search_params s = rg_tree_params(&p->search);
    const size_t n = (size_t)s.leaves, room = rg_tree_room(&s, p->max_tokens);
    rg_tree made = {
        .p = s, .max_tokens = p->max_tokens, .room = (int32_t)room, .n_answers = p->n_samples,
        .node = rg_carve(c, room, sizeof *made.node), .leaf = rg_carve(c, n, sizeof *made.leaf),
        .path = rg_carve(c, n, sizeof *made.path),
        .answer = rg_carve(c, (size_t)p->n_samples, sizeof *made.answer),
    };

    return made;
}

static void carve(rg_carver *c, rg_request *r, const rg_params *p, const rg_request_model *m)
{
    const size_t n_max = (size_t)p->max_tokens, n_logprobs = p->sampling.n_logprobs >= 0 ? n_max : 0;
    search_part *own = rg_carve(c, 1, sizeof *own);
    rg_tree made = carve_tree(c, p);
    const size_t n = (size_t)made.p.leaves, width = (size_t)made.p.width;
    rg_top *listed = rg_carve_table(c, n, width, sizeof *listed);
    float *raw = rg_carve_table(c, n, n_logprobs ? width : 0, sizeof *raw);
    int32_t *n_listed = rg_carve(c, n, sizeof *n_listed);

    (void)m;
    for (int32_t k = 0; k < p->n_samples && !c->failed; k++) {
        rg_tree_ids is = { .ids = rg_carve(c, n_max, sizeof *is.ids) };

        is.logprobs = rg_carve(c, n_logprobs, sizeof *is.logprobs);
        if (c->base)
            made.answer[k].is = (rg_tree_ids){ is.ids, n_logprobs ? is.logprobs : NULL };
    }
    if (!c->base)
        return;
    for (size_t i = 0; i < n; i++)
        made.path[i] = (rg_tree_ids){ r->samples[i].ids, r->samples[i].logprobs };
    *own = (search_part){ .tree = made, .listed = listed, .listed_raw = n_logprobs ? raw : NULL,
                          .n_listed = n_listed, .speller = r->samples[0].speller };
    r->part = own;
    r->in_bulk = true;
    rg_tree_begin(&own->tree);
    (void)rg_tree_gather(&own->tree);
    atomic_store(&own->positions, r->params.n_prompt);
}

static rg_work_room most(const rg_request *r)
{
    rg_work_room room = rg_rowwise_most(r);

    room.forks.n = 1; /* paths need not be held together */
    return room;
}

/* ---- who runs ---------------------------------------------------------------------------------------------------- */

static bool is_open(const rg_request *r, int i)
{
    const rg_tree *t = &part_of(r)->tree;

    return i < t->p.leaves && t->leaf[i].node >= 0 && t->leaf[i].runs && rg_sample_is_live(&r->samples[i]);
}

static bool waits_to_fork(const rg_request *r, int i)
{
    (void)r;
    (void)i;
    return false;
}

static rg_work_rows rows(const rg_request *r, int i)
{
    return (rg_work_rows){ .first = r->samples[i].seq->length, .end = rg_rowwise_target(r, i), .block = 1 };
}

static int32_t n_left(const rg_request *r, int i)
{
    const rg_sample *a = &r->samples[i];

    return a->seq || !a->n_output ? rg_rowwise_target(r, i) - (a->seq ? a->seq->length : 0) : 1;
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

static void want(rg_work_step *s, int i)
{
    rg_work_add_rows(s, i);
    if (s->plan[i].ends)
        rg_step_batch_want_draws(&s->member->rows, 0);
}

static void take_logits(rg_work_step *s, int thread, int i, float *logits)
{
    const rg_planned *p = &s->plan[s->member->rows.wanted[i].span];
    search_part *own = part_of(p->request);
    const size_t at = (size_t)p->sample * (size_t)own->tree.p.width;

    own->n_listed[p->sample] = rg_draw_list(s->member->scratch, thread, p->request, p->sample,
                                            &(rg_draw_listing){ .listed = own->listed + at, .room = own->tree.p.width,
                                                                .raw = own->listed_raw ? own->listed_raw + at : NULL },
                                            logits);
}

/* The last id of place i's path is this one: the path may have ended with it. */
static void note_id(rg_request *r, int i, int32_t id)
{
    rg_tree *t = &part_of(r)->tree;
    rg_sample *a = &r->samples[i];
    const bool is_eos = !r->params.sampling.ignore_eos && rg_ids_have(r->texts.eos_ids, r->texts.n_eos, id);

    if (is_eos || rg_ids_have(r->params.stop_ids, r->params.n_stop_ids, id)) {
        rg_tree_end(t, i, true, id, false);
        return;
    }
    a->n_output++;
    bool stops = rg_request_meets_stop(r, i);
    if (a->grammar && !stops) {
        if (!rg_grammar_advance(a->grammar, id))
            rg_grammar_lose(a->grammar);
        stops = !rg_grammar_lost(a->grammar) && rg_grammar_stuck(a->grammar);
    }
    if (stops || a->n_output == t->max_tokens)
        rg_tree_end(t, i, true, -1, stops);
}

/* Place i goes on with an id, or has none to go on with. */
static void take_id(rg_request *r, int i, int32_t id)
{
    rg_tree *t = &part_of(r)->tree;

    if (id < 0) {
        rg_tree_end(t, i, false, -1, false);
        return;
    }
    note_id(r, i, id);
    if (t->leaf[i].runs && rg_tree_is_valued(t, i))
        rg_tree_end(t, i, false, -1, false);
}

/* Blocks of a path that has ended, and those of it that no other path has. */
static void count_blocks(rg_request *r, int i)
{
    search_part *own = part_of(r);
    const rg_tree_leaf *l = &own->tree.leaf[i];
    const int32_t n = (r->params.n_prompt + l->n - 1 + RG_BLOCK - 1) / RG_BLOCK;
    const int32_t shared = l->node ? (r->params.n_prompt + l->n_begun - 1) / RG_BLOCK : 0;

    atomic_fetch_add_explicit(&own->blocks, (uint64_t)(n - shared), memory_order_relaxed);
    atomic_fetch_add_explicit(&own->blocks_unshared, (uint64_t)n, memory_order_relaxed);
}

/* True once place i's path has ended. */
static bool take(rg_work_step *s, int i)
{
    const rg_planned *p = &s->plan[i];
    search_part *own = part_of(p->request);
    const size_t at = (size_t)p->sample * (size_t)own->tree.p.width;

    if (!p->ends)
        return false;
    atomic_fetch_add_explicit(&p->request->counts.n_steps, 1, memory_order_relaxed);
    take_id(p->request, p->sample, rg_tree_list(&own->tree, p->sample, own->listed + at,
                                                own->listed_raw ? own->listed_raw + at : NULL,
                                                own->n_listed[p->sample]));
    s->n_output++;
    if (own->tree.leaf[p->sample].runs)
        return false;
    count_blocks(p->request, p->sample);
    return true;
}

/* Where a path begins to be followed, others will go on: of a state per sequence a snapshot is kept there. */
static void keep_beginning(rg_work_step *s, int i)
{
    const rg_planned *p = &s->plan[i];
    rg_seq *q = p->request->samples[p->sample].seq;

    if (q->committed == p->request->params.n_prompt + part_of(p->request)->tree.leaf[p->sample].n_begun)
        (void)rg_seq_snapshot(s->member->states, q, rg_request_tokens(p->request, p->sample));
}

static bool take_row(rg_work_step *s, int i)
{
    keep_beginning(s, i);
    return take(s, i);
}

static bool commit(rg_work_step *s, int i)
{
    return rg_work_commit_rows(s, i, take_row);
}

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

/* Place i has a new path: where its text and its grammar stand behind it.  With its last id it may be an answer. */
static void begin_path(rg_request *r, int i)
{
    search_part *own = part_of(r);
    rg_sample *a = &r->samples[i];
    const int32_t n = own->tree.leaf[i].n;

    RG_ASSERT(!a->seq);
    a->speller = own->speller;
    if (r->params.n_stop)
        memset(a->stop_at, 0, (size_t)r->params.n_stop * sizeof *a->stop_at);
    if (a->grammar)
        rg_grammar_copy(a->grammar, r->samples[r->n_branches - 1].grammar);
    for (int32_t k = 0; a->grammar && k < n - 1; k++)
        if (!rg_grammar_advance(a->grammar, a->ids[k]))
            rg_grammar_lose(a->grammar);
    a->n_output = n > 0 ? n - 1 : 0;
    (void)rg_request_meets_stop(r, i); /* it does not: its answer would have ended */
    if (n > 0)
        note_id(r, i, a->ids[n - 1]);
}

/* The k-th best answer. */
static void tell(rg_request *r, int k, rg_finish why)
{
    const rg_tree *t = &part_of(r)->tree;
    const rg_tree_answer *b = k < t->n_told ? &t->answer[k] : NULL;
    rg_sample *s = &r->samples[k];

    if (!b) {
        rg_request_finish(r, s, why != RG_RUNNING ? why : RG_FINISH_GRAMMAR);
        return;
    }
    memcpy(s->ids, b->is.ids, (size_t)b->n * sizeof *s->ids);
    if (s->logprobs)
        memcpy(s->logprobs, b->is.logprobs, (size_t)b->n * sizeof *s->logprobs);
    s->n_output = b->n;
    bool is_eos = !r->params.sampling.ignore_eos && rg_ids_have(r->texts.eos_ids, r->texts.n_eos, b->end);
    bool is_stop_id = b->end >= 0 && rg_ids_have(r->params.stop_ids, r->params.n_stop_ids, b->end);
    s->stop_id = is_stop_id && !is_eos ? b->end : -1;
    atomic_store(&s->n_ready, b->n);
    rg_request_finish(r, s, why != RG_RUNNING ? why : b->end >= 0 || b->stopped ? RG_FINISH_STOP : RG_FINISH_LENGTH);
}

static void stop(rg_request *r, rg_finish why)
{
    r->is_told = true;
    if (!atomic_load_explicit(&r->counts.first_ns, memory_order_relaxed))
        atomic_store(&r->counts.first_ns, rg_now_ns());
    for (int k = 0; k < r->params.n_samples; k++)
        tell(r, k, why);
    rg_request_wake(r);
}

static void value_all(rg_request *r)
{
    rg_tree *t = &part_of(r)->tree;

    for (int32_t i = 0; i < t->p.leaves; i++)
        if (t->leaf[i].node >= 0)
            rg_tree_value(t, i, rg_tree_logprob(t, i));
}

/* The paths of the next round begin.  False: the search is over. */
static bool begin_round(rg_request *r)
{
    search_part *own = part_of(r);
    rg_tree *t = &own->tree;
    const bool goes_on = rg_tree_gather(t);

    for (int32_t i = 0; i < t->p.leaves; i++) {
        if (t->leaf[i].node < 0)
            continue;
        begin_path(r, i);
        if (t->leaf[i].runs)
            atomic_fetch_add_explicit(&own->positions, r->params.n_prompt + t->leaf[i].n, memory_order_relaxed);
    }
    atomic_store_explicit(&own->n_simulations, t->n_simulations, memory_order_relaxed);
    atomic_store_explicit(&own->n_nodes, t->n_nodes, memory_order_relaxed);
    return goes_on;
}

/* The values of a round are known: the next one begins, or the answers are told.  A round whose paths are all answers
 * computes nothing. */
static void next_round(rg_request *r)
{
    search_part *own = part_of(r);

    own->wants_values = false;
    while (begin_round(r)) {
        if (own->tree.n_open)
            return;
        own->wants_values = r->is_valued;
        if (r->is_valued)
            return;
        value_all(r);
    }
    stop(r, RG_RUNNING);
}

/* After a step: once all paths have ended, their values are taken in, or are still to be given. */
static void settle(rg_request *r)
{
    search_part *own = part_of(r);

    if (r->is_told || own->tree.n_open)
        return;
    own->wants_values = r->is_valued;
    if (r->is_valued)
        return;
    value_all(r);
    next_round(r);
}

/* ---- values, by the reader: the engine's thread has let go of the request ---- */

static bool is_held(const rg_request *r)
{
    return part_of(r)->wants_values;
}

static int32_t to_value(rg_request *r)
{
    return atomic_load(&r->is_held) && part_of(r)->wants_values ? part_of(r)->tree.p.leaves : 0;
}

static bool valued(rg_request *r, int32_t i, const int32_t **ids, const float **logprobs, int32_t *n)
{
    const rg_tree *t = &part_of(r)->tree;
    const rg_tree_leaf *l = &t->leaf[i];

    *ids = t->path[i].ids;
    *logprobs = t->path[i].logprobs;
    *n = l->n - (l->end >= 0);
    return l->node >= 0 && !l->dead && *n > 0;
}

static void take_values(rg_request *r, const double *values)
{
    rg_tree *t = &part_of(r)->tree;

    for (int32_t i = 0; i < t->p.leaves; i++)
        if (t->leaf[i].node >= 0)
            rg_tree_value(t, i, values[i]);
    next_round(r);
}

/* ---- ends -------------------------------------------------------------------------------------------------------- */

static void usage(const rg_request *r, rg_usage *u)
{
    const search_part *own = r->part;

    u->search_blocks = atomic_load(&own->blocks);
    u->search_blocks_unshared = atomic_load(&own->blocks_unshared);
    u->n_simulations = atomic_load(&own->n_simulations);
    u->n_nodes = atomic_load(&own->n_nodes);
    u->search_positions = atomic_load(&own->positions);
}

rg_tree *rg_search_of(const rg_request *r)
{
    return r->work == &rg_work_search ? &part_of(r)->tree : NULL;
}

double rg_search_score(const rg_request *r, int32_t k)
{
    const rg_tree *t = rg_search_of(r);

    return t && k < t->n_told && atomic_load(&r->samples[k].finish) != RG_RUNNING ? t->answer[k].score : NAN;
}

const rg_work rg_work_search = {
    .name = "search",
    .takes = takes, .check = check, .shape = shape, .carve = carve, .most = most,
    .is_open = is_open, .target = rg_rowwise_target, .room = rg_rowwise_room, .cacheable = rg_rowwise_cacheable,
    .waits_to_fork = waits_to_fork, .rows = rows, .n_left = n_left,
    .want = want, .take_logits = take_logits, .commit = commit, .settle = settle,
    .stop = stop, .to_value = to_value, .valued = valued, .take_values = take_values, .is_held = is_held,
    .usage = usage,
};
