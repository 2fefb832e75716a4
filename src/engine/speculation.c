/* speculation.c -- see speculation.h. */
#include "engine/speculation.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/draft/predicted.h"
#include "engine/member.h"

_Static_assert((int)RG_DRAFT_PLACES == (int)RG_MAX_DRAFT, "ridge.h has a place for each");

/* Who has a lane.  Requests are told apart by their numbers, which are never used again. */
typedef struct lane {
    uint64_t request; /* 0: nobody */
    int32_t sample;
    uint64_t used;    /* the step in which it was drafted for last */
} lane;

enum {
    DRAFTERS = 3,  /* the loop's two, and: */
    PREDICTED = 2, /* what requests predict themselves, asked first */
    PREDICTED_FIRST = 8, PREDICTED_MOST = 32, /* ids of its first draft, and of any */
    CATCH_UP = RG_MAX_DRAFT, /* ids that a drafter reads beside its guesses, as part of them */
};
_Static_assert((int)DRAFTERS <= (int)RG_CHOICE_DRAFTERS, "the choice is among all of them");

/* An answer of this step that may get a draft: which drafters were asked for one. */
typedef struct draft_job {
    const rg_planned *planned;
    int32_t max_depth, drafter; /* drafter: who gave the draft; -1: nobody */
    bool asked[DRAFTERS];
} draft_job;

struct rg_speculation {
    rg_drafter *drafters[DRAFTERS]; /* NULL: there is none, or it has failed */
    int32_t *predicted_depth; /* [n_lanes] ids of the next draft of a predicted text: more while they stand */
    rg_states *states;
    rg_sample_scratch *scratch;
    int32_t max_draft, n_lanes, max_seq_len;
    uint64_t n_steps;
    lane *lanes;              /* [n_lanes] */
    rg_draft_record (*records)[DRAFTERS]; /* [n_lanes] */
    rg_draft_tree *drafts;    /* [n_lanes], as are the next; n_asks of this step */
    draft_job *jobs;
    rg_draft_answer *answers;
    rg_draft_ask *asks;       /* [n_lanes] those that one drafter is asked about */
    int32_t *asked;           /* [n_lanes] whose they are */
    int32_t *ask_of;          /* [n_lanes] of each planned span; -1: none */
    int32_t n_asks;
    rg_draft_seen *seen;      /* [n_lanes], n_seen of this step, for the drafter that reads features */
    int32_t n_seen;
    double seen_s;            /* that it took for them since it was last asked */
    /* The drafter at work (-1: none), which reads features, or is asked about asks[0, n_asked); and the next one to be
     * asked: drafter next_j by the answers that have it in this place of their lists.  Then there is this budget. */
    int working, place, next_j;
    int32_t n_asked;
    bool is_reading, is_drafting; /* is_drafting: drafts of this step are not complete */
    bool has_caught_up;       /* a drafter read an answer's text in this step: it does not show what drafts take */
    double work_s;            /* that it took so far */
    rg_row_budget left;
    int32_t (*paths)[RG_MAX_DRAFT]; /* [n_lanes] what was accepted of the draft of each job, */
    int32_t *n_path;                /*   so many nodes */
    rg_draft_counts counts;

    bool adapts, fixed; /* fixed: as rg_loop_fixes_drafts */
    rg_draft_choice choice;
    rg_step_time time;
    double cost[DRAFTERS];    /* what drafters take, as a multiple of what they say */
    int32_t n_costs[DRAFTERS];
    bool was_asked[DRAFTERS];
    /* The step that is being computed: */
    int32_t n_plain_rows, n_ids; /* n_ids: given so far; 0: it had prompts, and is not measured */
    double drafting_s, took_s;
};

/* Predictions follow what steps take, and of these any guess is good enough to begin with. */
static const rg_step_roofs guessed_roofs = { .bytes_s = 1e10, .product_ops_s = 2e11, .key_ops_s = 5e10 };

rg_speculation *rg_speculation_new(const rg_loop_options *o, const rg_step_facts *facts, rg_states *states,
                                   rg_sample_scratch *scratch, rg_error *err)
{
    rg_speculation *s = rg_zalloc(sizeof *s);
    size_t n = (size_t)o->max_seqs;

    if (!s)
        return rg_fail_memory(err, sizeof *s), NULL;
    s->drafters[0] = o->drafter;
    s->drafters[1] = o->fallback;
    s->states = states;
    s->scratch = scratch;
    s->max_draft = o->max_draft;
    s->n_lanes = o->max_seqs;
    s->max_seq_len = o->max_seq_len;
    s->adapts = o->adapt_drafts;
    s->fixed = rg_loop_fixes_drafts(o);
    rg_draft_choice_init(&s->choice);
    rg_step_time_init(&s->time, facts, o->roofs.bytes_s > 0 ? &o->roofs : &guessed_roofs);
    for (int j = 0; j < DRAFTERS; j++)
        s->cost[j] = 1;
    s->working = -1;
    s->lanes = rg_array(n, sizeof *s->lanes);
    s->records = rg_array(n, sizeof *s->records);
    s->drafts = rg_array(n, sizeof *s->drafts);
    s->jobs = rg_array(n, sizeof *s->jobs);
    s->answers = rg_array(n, sizeof *s->answers);
    s->asks = rg_array(n, sizeof *s->asks);
    s->asked = rg_array(n, sizeof *s->asked);
    s->ask_of = rg_array(n, sizeof *s->ask_of);
    s->seen = rg_array(n, sizeof *s->seen);
    s->paths = rg_array(n, sizeof *s->paths);
    s->n_path = rg_array(n, sizeof *s->n_path);
    s->predicted_depth = rg_array(n, sizeof *s->predicted_depth);
    s->drafters[PREDICTED] = rg_draft_predicted_new(NULL);
    if (s->predicted_depth && s->drafters[PREDICTED] && s->lanes && s->records && s->drafts && s->jobs &&
        s->answers && s->asks && s->asked && s->ask_of &&
        s->seen && s->paths && s->n_path) {
        for (size_t i = 0; i < n; i++)
            s->lanes[i] = (lane){ 0 };
        return s;
    }
    rg_speculation_free(s);
    return rg_fail_memory(err, n * sizeof *s->drafts), NULL;
}

void rg_speculation_free(rg_speculation *s)
{
    if (!s)
        return;
    rg_free(s->lanes);
    rg_free(s->records);
    rg_free(s->drafts);
    rg_free(s->jobs);
    rg_free(s->answers);
    rg_free(s->asks);
    rg_free(s->asked);
    rg_free(s->ask_of);
    rg_free(s->seen);
    rg_free(s->paths);
    rg_free(s->n_path);
    rg_free(s->predicted_depth);
    rg_drafter_close(s->drafters[PREDICTED]);
    rg_free(s);
}

/* ---- lanes ------------------------------------------------------------------------------------------------------- */

static bool has_lane(const rg_speculation *s, const rg_request *r, int i)
{
    int32_t n = r->samples[i].lane;

    return n >= 0 && s->lanes[n].request == r->id && s->lanes[n].sample == i;
}

/* The lane of a sample; if it has none, the one that was not used for the longest time.  There are as many as samples
 * that run at once, so that one is not of this step. */
static int32_t lane_of(rg_speculation *s, rg_request *r, int i)
{
    int32_t oldest = 0;

    if (!has_lane(s, r, i)) {
        for (int32_t k = 1; k < s->n_lanes; k++)
            if (s->lanes[k].used < s->lanes[oldest].used)
                oldest = k;
        s->lanes[oldest] = (lane){ .request = r->id, .sample = i };
        r->samples[i].lane = oldest;
        memset(s->records[oldest], 0, sizeof s->records[oldest]);
        s->predicted_depth[oldest] = PREDICTED_FIRST;
        for (int j = 0; j < DRAFTERS; j++)
            if (s->drafters[j] && s->drafters[j]->begin)
                s->drafters[j]->begin(s->drafters[j], oldest);
    }
    s->lanes[r->samples[i].lane].used = s->n_steps;
    return r->samples[i].lane;
}

/* ---- drafts of a step -------------------------------------------------------------------------------------------- */

static int32_t min_of(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* The longest path that could be of use: every id of it and the one after it still belong to the answer.  A recurrent
 * state must come to the place of a snapshot without drafts. */
static int32_t longest_path(const rg_speculation *s, const rg_request *r, const rg_sample *a)
{
    int32_t left = r->params.max_tokens - a->n_output - 1, at = a->seq->length;
    int32_t to_stop = rg_states_next_stop(s->states, at, INT32_MAX) - at - 2;

    return min_of(min_of(left, to_stop), s->max_draft);
}

/* True if the step's rows of an answer are such that it is drafted for.  Whether a prompt's last row is a span of its
 * own depends on what else is in the batch, so that a fixed draft follows no prompt. */
static bool is_at_draft(const rg_speculation *s, const rg_planned *p)
{
    return p->ends && p->n_rows == 1 && rg_request_draws(p->request) && p->request->max_draft &&
           (!s->fixed || p->request->samples[p->sample].n_output);
}

/* Ids of an answer that drafter j would have to read first. */
static int32_t unread_of(const rg_speculation *s, int j, const rg_planned *p)
{
    const rg_drafter *d = s->drafters[j];
    const rg_sample *a = &p->request->samples[p->sample];

    return d && d->unread ? d->unread(d, a->lane, p->request->params.n_prompt + a->n_output) : 0;
}

/* Seconds that this takes: as long as the model would need, by what both compute for a row. */
static double read_s(const rg_speculation *s, int j, const rg_planned *p)
{
    const int32_t n = unread_of(s, j, p);
    rg_step_load load = { 0 };

    if (n <= CATCH_UP || !s->time.facts.row_ops)
        return 0;
    rg_step_load_add(&load, &s->time.facts, 0, n, 1);
    return rg_step_time_predict(&s->time, &load) * s->drafters[j]->member->runner->facts.row_ops /
           s->time.facts.row_ops;
}

/* An answer that drafters may be asked about. */
static void add_job(rg_speculation *s, const rg_planned *p, int i)
{
    const rg_sample *a = &p->request->samples[p->sample];
    int32_t depth = longest_path(s, p->request, a);

    s->ask_of[i] = -1;
    if (!is_at_draft(s, p) || depth < 1 || !rg_draw_prepare(s->scratch, a))
        return;
    const int32_t at = lane_of(s, p->request, p->sample);
    s->jobs[s->n_asks] = (draft_job){ .planned = p, .max_depth = depth, .drafter = -1 };
    s->answers[s->n_asks] = (rg_draft_answer){ .start = a->seq->length, .max_depth = depth,
                                               .left = p->request->params.max_tokens - a->n_output,
                                               .records = s->records[at] };
    for (int j = 0; j < DRAFTERS; j++)
        s->answers[s->n_asks].read_s[j] = read_s(s, j, p);
    s->drafts[s->n_asks].n = 0;
    s->n_path[s->n_asks] = 0;
    s->ask_of[i] = s->n_asks++;
}

/* True if an answer ends with this id, so that nothing can follow it. */
static bool ends_with(const rg_request *r, int32_t id)
{
    return rg_ids_have(r->params.stop_ids, r->params.n_stop_ids, id) ||
           (!r->params.sampling.ignore_eos && rg_ids_have(r->texts.eos_ids, r->texts.n_eos, id));
}

/* Drop the nodes that cannot be accepted. */
static void prune(rg_speculation *s, const rg_draft_ask *a)
{
    rg_draft_tree *d = a->draft;
    bool keep[RG_MAX_DRAFT];
    int32_t path[RG_MAX_DRAFT], ids[RG_MAX_DRAFT];

    RG_ASSERT(d->n <= a->most && (!a->chain || rg_draft_is_chain(d)));
    for (int32_t i = 0; i < d->n; i++) {
        int32_t n = rg_draft_path(d, i, path);

        for (int32_t k = 0; k < n; k++)
            ids[k] = d->id[path[k]];
        RG_ASSERT(!d->probe[i] || n <= a->probe_depth);
        keep[i] = d->probe[i] || (n <= a->depth && !ends_with(a->request, d->id[i]) &&
                                  rg_draw_allowed(s->scratch, &a->request->samples[a->sample], ids, n) == n);
    }
    rg_draft_prune(d, keep);
}

static int32_t nodes_for(const rg_speculation *s, int j, int32_t depth)
{
    const rg_drafter *d = s->drafters[j];

    return min_of(d->nodes ? d->nodes(d, depth) : depth, s->max_draft);
}

/* What a drafter says that it takes for so many answers: for an id of a path, or for paths of some depth. */
static double said_s(const rg_drafter *d, int32_t n, int32_t depth)
{
    const double least_s = 1e-6;
    double said = d->cost_s ? d->cost_s(d, n, depth) : 0;

    return said > least_s ? said : least_s * n * depth;
}

/* The drafters as the choice sees them; one that has failed has no depth. */
static void describe(const rg_speculation *s, rg_draft_option *out)
{
    for (int j = 0; j < PREDICTED; j++) {
        out[j] = (rg_draft_option){ 0 };
        if (!s->drafters[j])
            continue;
        const rg_draft_kind *kind = s->drafters[j]->kind;
        out[j].depth = min_of(s->drafters[j]->depth, RG_CHOICE_DEPTH);
        out[j].level_s = s->cost[j] * said_s(s->drafters[j], s->n_asks, 1);
        out[j].is_new = kind && (kind->has_model || kind->has_network) && !s->was_asked[j];
        for (int32_t k = 1; k <= out[j].depth; k++)
            out[j].nodes[k] = nodes_for(s, j, k);
    }
}

/* Everyone in turn, as deep as can be. */
static void choose_all(rg_speculation *s)
{
    for (int32_t k = 0; k < s->n_asks; k++) {
        rg_draft_answer *a = &s->answers[k];

        for (int32_t j = 0; j < PREDICTED; j++)
            if (s->drafters[j]) {
                a->drafter[a->n] = j;
                a->depth[a->n++] = min_of(a->max_depth, s->drafters[j]->depth);
            }
    }
}

/* A network that computes rows of the prompt's ids has none for given rows. */
static bool drafts_for(const rg_drafter *d, const rg_request *r)
{
    const rg_draft_kind *kind = d->kind;

    return !r->params.n_given || !kind || !(kind->has_model || (kind->has_network && !kind->has_heads));
}

static void ask_one(rg_speculation *s, int32_t k, int j, int32_t depth, int32_t most, int32_t at)
{
    const rg_planned *p = s->jobs[k].planned;
    const rg_sample *a = &p->request->samples[p->sample];

    s->asked[at] = k;
    s->has_caught_up |= unread_of(s, j, p) > CATCH_UP;
    s->asks[at] = (rg_draft_ask){ .lane = a->lane,
                                  .request = p->request,
                                  .sample = p->sample,
                                  .ids = rg_request_tokens(p->request, p->sample),
                                  .n_ids = p->request->params.n_prompt + a->n_output,
                                  .depth = min_of(min_of(depth, most), s->drafters[j]->depth),
                                  .most = most,
                                  .probe_depth = s->max_seq_len - 1 - a->seq->length,
                                  .chain = rg_states_keep_chains(s->states),
                                  .draft = &s->drafts[k] };
}

/* A drafter took so long for n answers and paths of this depth. */
static void note_cost(rg_speculation *s, int j, int32_t n, int32_t depth, double took_s)
{
    const int32_t mean_of = 8;
    double times = took_s / said_s(s->drafters[j], n, depth);

    if (s->n_costs[j] < mean_of)
        s->n_costs[j]++;
    if (s->n_costs[j] > 2 && times > 4 * s->cost[j])
        times = 4 * s->cost[j]; /* something else had the machine */
    s->cost[j] += (times - s->cost[j]) / s->n_costs[j];
}

/* Drafter j has ended its drafts, or has failed: what of them is of use, and the rows that are left. */
static void end_drafter(rg_speculation *s, int j)
{
    const rg_drafter *d = s->drafters[j];
    int32_t deepest = 1;

    for (int32_t i = 0; i < s->n_asked; i++) {
        rg_draft_ask *a = &s->asks[i];

        if (!d)
            a->draft->n = 0;
        deepest = a->depth > deepest ? a->depth : deepest;
        if (a->draft->n)
            s->jobs[s->asked[i]].drafter = j;
        prune(s, a);
        s->left.rows += a->most - a->draft->n;
        s->left.logits += a->most - a->draft->n;
    }
    if (!d)
        return;
    s->drafting_s += s->work_s + (d->tap ? s->seen_s : 0);
    if (!s->has_caught_up)
        note_cost(s, j, s->n_asked, deepest, s->work_s + (d->tap ? s->seen_s : 0));
    s->was_asked[j] = true;
    s->seen_s = d->tap ? 0 : s->seen_s;
}

/* Ask drafter j about the first n of `asks`; one that fails is dropped. */
static void begin_drafter(rg_speculation *s, int j, int32_t n)
{
    rg_drafter *d = s->drafters[j];
    uint64_t start = rg_now_ns();

    s->n_asked = n;
    if (!d->propose(d, s->asks, n))
        s->drafters[j] = NULL;
    s->work_s = rg_seconds(start, rg_now_ns());
    if (s->drafters[j] && d->member)
        s->working = j;
    else
        end_drafter(s, j);
}

/* Ask drafter j about the answers that have it in this place of their lists, and no draft yet. */
static void ask_drafter(rg_speculation *s, int j, int place)
{
    rg_row_budget *left = &s->left;
    int32_t n = 0;

    for (int32_t k = 0; k < s->n_asks; k++) {
        const rg_draft_answer *a = &s->answers[k];
        int32_t most = min_of(left->rows, left->logits);

        if (place >= a->n || a->drafter[place] != j || s->drafts[k].n ||
            !drafts_for(s->drafters[j], s->jobs[k].planned->request))
            continue;
        most = min_of(most, s->adapts ? nodes_for(s, j, a->depth[place]) : s->max_draft);
        if (most < 1)
            continue;
        s->jobs[k].asked[j] = true;
        left->rows -= most;
        left->logits -= most;
        ask_one(s, k, j, a->depth[place], most, n++);
    }
    if (n)
        begin_drafter(s, j, n);
}

/* Whoever says what the answer will be is asked whatever drafts have brought so far.  How deep follows from how well
 * its own text stood, or, where drafts are fixed, from nothing. */
static void ask_predicted(rg_speculation *s)
{
    rg_row_budget *left = &s->left;
    int32_t n = 0;

    for (int32_t k = 0; k < s->n_asks; k++) {
        const rg_planned *p = s->jobs[k].planned;
        const int32_t depth = s->fixed ? PREDICTED_MOST : s->predicted_depth[p->request->samples[p->sample].lane];
        const int32_t most = min_of(min_of(left->rows, left->logits), min_of(depth, s->answers[k].max_depth));

        if (!p->request->params.n_predicted || most < 1)
            continue;
        s->jobs[k].asked[PREDICTED] = true;
        left->rows -= most;
        left->logits -= most;
        ask_one(s, k, PREDICTED, most, most, n++);
    }
    if (!n)
        return;
    begin_drafter(s, PREDICTED, n);
    s->has_caught_up = true; /* what the step gives says nothing of other drafters */
}

/* Ask drafters until one is at work.  False: all are through. */
static bool ask_next(rg_speculation *s)
{
    while (s->working < 0 && s->place < PREDICTED) {
        int place = s->place, j = s->next_j;

        s->next_j = (j + 1) % PREDICTED;
        s->place += !s->next_j;
        if (s->drafters[j])
            ask_drafter(s, j, place);
    }
    return s->working >= 0;
}

/* Room for the rows of the draft; without it, there is no draft. */
static void grow(rg_speculation *s, int32_t k)
{
    const rg_planned *p = s->jobs[k].planned;
    rg_seq *q = p->request->samples[p->sample].seq;

    if (s->drafts[k].n && !rg_seq_grow(s->states, q, q->length + 1 + s->drafts[k].n))
        s->drafts[k].n = 0;
}

static void end_drafts(rg_speculation *s)
{
    for (int32_t k = 0; k < s->n_asks && s->is_drafting; k++)
        grow(s, k);
    s->is_drafting = false;
}

/* What the step reads and computes without drafts. */
static rg_step_load load_of(const rg_speculation *s, const rg_planned *plan, int n)
{
    rg_step_load load = { 0 };

    for (int i = 0; i < n; i++) {
        int64_t start = plan[i].request->samples[plan[i].sample].seq->length;

        rg_step_load_add(&load, &s->time.facts, start, plan[i].n_rows, 1);
    }
    return load;
}

static void choose(rg_speculation *s, const rg_step_load *load, const rg_row_budget *left)
{
    rg_draft_option options[DRAFTERS];

    if (!s->adapts) {
        choose_all(s);
        return;
    }
    describe(s, options);
    rg_draft_choose(&s->choice, &s->time, load, options, PREDICTED, s->answers, s->n_asks,
                    min_of(left->rows, left->logits));
    s->counts.paused = true;
    for (int32_t k = 0; k < s->n_asks; k++)
        s->counts.paused &= !s->answers[k].n;
}

void rg_speculation_draft(rg_speculation *s, const rg_planned *plan, int n, const rg_row_budget *left)
{
    rg_step_load load = load_of(s, plan, n);

    RG_ASSERT(s->working < 0);
    s->n_steps++;
    s->left = *left;
    s->n_asks = 0;
    s->drafting_s = 0;
    s->n_ids = 0;
    s->has_caught_up = false;
    for (int i = 0; i < n; i++)
        add_job(s, &plan[i], i);
    s->n_plain_rows = load.n_rows;
    if (!s->n_asks)
        return;
    choose(s, &load, &s->left);
    s->place = s->next_j = 0;
    s->is_drafting = true;
    ask_predicted(s);
    if (ask_next(s))
        return;
    end_drafts(s);
}

/* The drafter at work has no more steps. */
static void end_work(rg_speculation *s)
{
    int j = s->working;

    s->working = -1;
    if (s->is_reading) {
        s->is_reading = false;
        s->seen_s += s->work_s;
        s->n_seen = 0;
        return;
    }
    end_drafter(s, j);
    if (!ask_next(s))
        end_drafts(s);
}

bool rg_speculation_step(rg_speculation *s)
{
    while (s && s->working >= 0) {
        uint64_t start = rg_now_ns();
        bool stepped = rg_drafter_step(s->drafters[s->working]);

        s->work_s += rg_seconds(start, rg_now_ns());
        if (stepped)
            return true;
        end_work(s);
    }
    return false;
}

bool rg_speculation_is_at_work(const rg_speculation *s)
{
    return s && s->working >= 0;
}

const rg_draft_tree *rg_speculation_of(const rg_speculation *s, int i)
{
    int32_t k = s ? s->ask_of[i] : -1;

    return k >= 0 && s->drafts[k].n ? &s->drafts[k] : NULL;
}

bool rg_speculation_is_predicted(const rg_speculation *s, int i)
{
    return s->ask_of[i] >= 0 && s->jobs[s->ask_of[i]].drafter == PREDICTED;
}

/* ---- after a step ------------------------------------------------------------------------------------------------ */

void rg_speculation_stepped(rg_speculation *s, const rg_step_load *load, double took_s)
{
    rg_step_time_learn(&s->time, load, took_s);
    if (!s->n_asks || s->n_plain_rows > s->n_asks)
        return;
    s->n_ids = s->n_asks;
    s->took_s = took_s + s->drafting_s;
}

/* True if some guess follows a node (-1: the answer's last id). */
static bool has_guess(const rg_draft_tree *d, int32_t node)
{
    for (int32_t i = node + 1; i < d->n; i++)
        if (d->parent[i] == node && !d->probe[i])
            return true;
    return false;
}

/* The draft of job k was checked: count it. */
static void note_checked(rg_speculation *s, int32_t k, const int32_t *path, int32_t n_path)
{
    const rg_draft_tree *d = &s->drafts[k];
    const rg_planned *p = s->jobs[k].planned;
    const int j = s->jobs[k].drafter;
    rg_draft_record *record = &s->records[p->request->samples[p->sample].lane][j];

    s->counts.n_drafts++;
    s->counts.n_nodes += (uint64_t)rg_draft_guesses(d);
    s->counts.n_accepted += (uint64_t)n_path;
    for (int32_t i = 0; i < n_path; i++) {
        s->counts.at[i]++;
        s->paths[k][i] = path[i];
    }
    s->n_path[k] = n_path;
    s->n_ids += n_path;
    if (j == PREDICTED) {
        int32_t *depth = &s->predicted_depth[p->request->samples[p->sample].lane];

        *depth = n_path == d->n ? min_of(2 * *depth, PREDICTED_MOST) : *depth > 2 ? *depth / 2 : 1;
    }
    rg_draft_note(&s->choice, record, j, n_path + has_guess(d, n_path ? path[n_path - 1] : -1), n_path);
}

void rg_speculation_checked(rg_speculation *s, int i, const rg_drawn *drawn, const int32_t *path, int32_t n_path)
{
    const int32_t k = s ? s->ask_of[i] : -1;
    int32_t ids[1 + RG_MAX_DRAFT];

    if (k < 0)
        return;
    const draft_job *at = &s->jobs[k];
    const rg_draft_tree *d = &s->drafts[k];
    const rg_draft_result result = { .lane = at->planned->request->samples[at->planned->sample].lane,
                                     .draft = d, .drawn = ids, .path = path, .n_path = n_path };
    if (d->n)
        note_checked(s, k, path, n_path);
    for (int32_t node = 0; node <= d->n; node++)
        ids[node] = drawn[node].id;
    for (int j = 0; j < DRAFTERS; j++)
        if (s->drafters[j] && s->drafters[j]->checked && (d->n ? j == at->drafter : at->asked[j]))
            s->drafters[j]->checked(s->drafters[j], &result);
}

void rg_speculation_committed(rg_speculation *s)
{
    bool drafted = s->drafting_s > 0;
    double plain_s = rg_draft_plain_s(&s->choice, s->n_asks);

    if (s->n_ids < s->n_asks || !s->n_asks)
        return; /* it had prompts */
    if (plain_s > 0) {
        s->counts.took_s += s->took_s;
        s->counts.plain_s += plain_s * s->n_ids / s->n_asks;
    }
    if (!s->has_caught_up)
        rg_draft_measure(&s->choice, s->n_asks, drafted, s->took_s, s->n_ids);
}

/* The drafter that reads features; NULL: none does. */
static rg_drafter *reader_of(const rg_speculation *s)
{
    for (int j = 0; s && j < DRAFTERS; j++)
        if (s->drafters[j] && s->drafters[j]->tap)
            return s->drafters[j];
    return NULL;
}

rg_tap *rg_speculation_tap(const rg_speculation *s)
{
    const rg_drafter *d = reader_of(s);

    return d ? d->tap : NULL;
}

bool rg_speculation_reads(const rg_speculation *s, const rg_planned *p)
{
    return reader_of(s) && rg_request_draws(p->request) && p->request->max_draft &&
           drafts_for(reader_of(s), p->request);
}

void rg_speculation_note_features(rg_speculation *s, const rg_planned *p, int i, const rg_span *span)
{
    const rg_sample *a = &p->request->samples[p->sample];

    if (!rg_speculation_reads(s, p))
        return;
    const int32_t k = s->ask_of[i];
    s->seen[s->n_seen++] = (rg_draft_seen){ .lane = lane_of(s, p->request, p->sample),
                                            .request = p->request,
                                            .sample = p->sample,
                                            .ids = rg_request_tokens(p->request, p->sample),
                                            .n_ids = p->request->params.n_prompt + a->n_output,
                                            .start = span->start,
                                            .first_row = span->first_row,
                                            .n_rows = span->n_rows - span->n_draft,
                                            .path = k >= 0 ? s->paths[k] : NULL,
                                            .n_path = k >= 0 ? s->n_path[k] : 0,
                                            .ends = p->ends };
}

void rg_speculation_give_features(rg_speculation *s)
{
    rg_drafter *d = reader_of(s);
    const uint64_t start = rg_now_ns();

    if (!d || !s->n_seen)
        return;
    d->seen(d, s->seen, s->n_seen);
    s->work_s = rg_seconds(start, rg_now_ns());
    s->is_reading = true;
    s->working = d == s->drafters[0] ? 0 : 1;
    if (!d->member)
        end_work(s);
}

void rg_speculation_end(rg_speculation *s, const rg_request *r, int i)
{
    const rg_sample *a = &r->samples[i];

    if (!s || !has_lane(s, r, i))
        return;
    for (int j = 0; j < DRAFTERS; j++)
        if (s->drafters[j] && s->drafters[j]->end)
            s->drafters[j]->end(s->drafters[j], a->lane, rg_request_tokens(r, i), r->params.n_prompt + a->n_output,
                                rg_draft_scope(r));
    s->lanes[a->lane] = (lane){ 0 };
}

const rg_draft_counts *rg_speculation_counts(const rg_speculation *s)
{
    return &s->counts;
}
