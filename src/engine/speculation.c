/* speculation.c -- see speculation.h. */
#include "engine/speculation.h"

#include "base/mem.h"

_Static_assert((int)RG_DRAFT_PLACES == (int)RG_MAX_DRAFT, "ridge.h has a place for each");

/* Who has a lane.  Requests are told apart by their numbers, which are never used again. */
typedef struct lane {
    uint64_t request; /* 0: nobody */
    int32_t sample;
    uint64_t used;    /* the step in which it was drafted for last */
} lane;

struct rg_speculation {
    rg_drafter *drafter; /* NULL once it has failed */
    rg_states *states;
    rg_sample_scratch *scratch;
    int32_t max_draft, n_lanes, max_seq_len;
    uint64_t n_steps;
    lane *lanes;         /* [n_lanes] */
    rg_draft_tree *drafts;    /* [n_lanes] */
    rg_draft_ask *asks;  /* [n_lanes], n_asks of this step */
    int32_t *ask_of;     /* [n_lanes] of each planned span; -1: none */
    int32_t n_asks;
    rg_draft_counts counts;
};

rg_speculation *rg_speculation_new(const rg_loop_options *o, rg_states *states, rg_sample_scratch *scratch,
                                   rg_error *err)
{
    rg_speculation *s = rg_zalloc(sizeof *s);
    size_t n = (size_t)o->max_seqs;

    if (!s)
        return rg_fail_memory(err, sizeof *s), NULL;
    s->drafter = o->drafter;
    s->states = states;
    s->scratch = scratch;
    s->max_draft = o->max_draft;
    s->n_lanes = o->max_seqs;
    s->max_seq_len = o->max_seq_len;
    s->lanes = rg_array(n, sizeof *s->lanes);
    s->drafts = rg_array(n, sizeof *s->drafts);
    s->asks = rg_array(n, sizeof *s->asks);
    s->ask_of = rg_array(n, sizeof *s->ask_of);
    if (s->lanes && s->drafts && s->asks && s->ask_of) {
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
    rg_free(s->drafts);
    rg_free(s->asks);
    rg_free(s->ask_of);
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
        if (s->drafter->begin)
            s->drafter->begin(s->drafter, oldest);
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

    return min_of(min_of(left, to_stop), min_of(s->max_draft, s->drafter->depth));
}

static void ask(rg_speculation *s, const rg_planned *p, int i, rg_row_budget *left)
{
    const rg_sample *a = &p->request->samples[p->sample];
    int32_t depth = longest_path(s, p->request, a), most = min_of(left->rows, left->logits);

    s->ask_of[i] = -1;
    if (!p->ends || p->n_rows > 1 || !rg_request_draws(p->request) || !p->request->max_draft || depth < 1 || most < 1 ||
        !rg_draw_prepare(s->scratch, a))
        return;
    most = min_of(most, s->max_draft);
    left->rows -= most;
    left->logits -= most;
    s->ask_of[i] = s->n_asks;
    s->drafts[s->n_asks].n = 0;
    s->asks[s->n_asks] = (rg_draft_ask){ .lane = lane_of(s, p->request, p->sample),
                                         .request = p->request,
                                         .sample = p->sample,
                                         .ids = rg_request_tokens(p->request, p->sample),
                                         .n_ids = p->request->params.n_prompt + a->n_output,
                                         .depth = min_of(depth, most),
                                         .most = most,
                                         .probe_depth = s->max_seq_len - 1 - a->seq->length,
                                         .chain = rg_states_keep_chains(s->states),
                                         .draft = &s->drafts[s->n_asks] };
    s->n_asks++;
}

static bool is_among(int32_t id, const int32_t *ids, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (ids[i] == id)
            return true;
    return false;
}

/* True if an answer ends with this id, so that nothing can follow it. */
static bool ends_with(const rg_request *r, int32_t id)
{
    return is_among(id, r->params.stop_ids, r->params.n_stop_ids) ||
           (!r->params.sampling.ignore_eos && is_among(id, r->eos_ids, r->n_eos));
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

/* Room for the rows of the draft; without it, there is no draft. */
static void grow(rg_speculation *s, const rg_draft_ask *a)
{
    rg_seq *q = a->request->samples[a->sample].seq;

    if (a->draft->n && !rg_seq_grow(s->states, q, q->length + 1 + a->draft->n))
        a->draft->n = 0;
}

void rg_speculation_draft(rg_speculation *s, const rg_planned *plan, int n, const rg_row_budget *left)
{
    rg_row_budget budget = *left;

    s->n_steps++;
    s->n_asks = 0;
    for (int i = 0; i < n; i++)
        if (s->drafter)
            ask(s, &plan[i], i, &budget);
        else
            s->ask_of[i] = -1;
    if (!s->n_asks)
        return;
    if (!s->drafter->propose(s->drafter, s->asks, s->n_asks)) {
        s->drafter = NULL;
        for (int32_t k = 0; k < s->n_asks; k++)
            s->drafts[k].n = 0;
        return;
    }
    for (int32_t k = 0; k < s->n_asks; k++) {
        prune(s, &s->asks[k]);
        grow(s, &s->asks[k]);
    }
}

const rg_draft_tree *rg_speculation_of(const rg_speculation *s, int i)
{
    int32_t k = s ? s->ask_of[i] : -1;

    return k >= 0 && s->drafts[k].n ? &s->drafts[k] : NULL;
}

/* ---- after a step ------------------------------------------------------------------------------------------------ */

void rg_speculation_checked(rg_speculation *s, int i, const rg_drawn *drawn, const int32_t *path, int32_t n_path)
{
    const rg_draft_tree *d = rg_speculation_of(s, i);
    int32_t ids[1 + RG_MAX_DRAFT];

    if (!d)
        return;
    s->counts.n_drafts++;
    s->counts.n_nodes += (uint64_t)rg_draft_guesses(d);
    s->counts.n_accepted += (uint64_t)n_path;
    for (int32_t k = 0; k < n_path; k++)
        s->counts.at[k]++;
    if (!s->drafter || !s->drafter->checked)
        return;
    for (int32_t k = 0; k <= d->n; k++)
        ids[k] = drawn[k].id;
    s->drafter->checked(s->drafter, &(rg_draft_result){ .lane = s->asks[s->ask_of[i]].lane, .draft = d, .drawn = ids,
                                                        .path = path, .n_path = n_path });
}

void rg_speculation_end(rg_speculation *s, const rg_request *r, int i)
{
    const rg_sample *a = &r->samples[i];

    if (!s || !has_lane(s, r, i))
        return;
    if (s->drafter && s->drafter->end)
        s->drafter->end(s->drafter, a->lane, rg_request_tokens(r, i), r->params.n_prompt + a->n_output,
                        rg_draft_scope(r));
    s->lanes[a->lane] = (lane){ 0 };
}

const rg_draft_counts *rg_speculation_counts(const rg_speculation *s)
{
    return &s->counts;
}
