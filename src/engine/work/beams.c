/* beams.c -- see beams.h. */
#include "engine/work/beams.h"

#include <string.h>

#include "base/clock.h"
#include "engine/work/answer.h"

typedef struct beams_part {
    rg_beams search;
    rg_beam_ids *places;   /* [n_branches] the ids of each place: those of its sample */
    int32_t *stop_scratch; /* [n_stop] where a candidate's text stands in each stop text */
    _Atomic uint64_t blocks, blocks_unshared, blocks_copied; /* as in rg_usage */
} beams_part;

static beams_part *part_of(const rg_request *r)
{
    return r->part;
}

/* ---- at the door ------------------------------------------------------------------------------------------------- */

static bool takes(const rg_params *p, const rg_request_model *m)
{
    (void)m;
    return p->beam.n_beams;
}

static bool check(const rg_params *p, const rg_request_model *m, rg_error *err)
{
    if (!rg_answer_check(p, m, err) || !rg_beams_check(&p->beam, p->n_samples, err))
        return false;
    if (m->diffusion)
        return rg_fail(err, RG_E_UNSUPPORTED, "this model fills in answers in any order: beams need ids one after the "
                       "other");
    if (p->prompt_logprobs)
        return rg_fail(err, RG_E_UNSUPPORTED, "beams and log-probabilities of the prompt do not go together: ask for "
                       "those without beams");
    if (p->grammar && (p->sampling.ignore_eos || !m->n_eos))
        return rg_fail(err, RG_E_UNSUPPORTED, "beams and a grammar need an end token of the model, which says that an "
                       "answer is complete");
    return true;
}

static rg_work_shape shape(const rg_params *p, const rg_request_model *m)
{
    (void)m;
    return (rg_work_shape){ .row = (size_t)p->n_prompt + (size_t)p->max_tokens, .n_branches = p->beam.n_beams,
                            .n_ending = p->n_samples };
}

/* Room for the ids of an answer. */
static rg_beam_ids carve_ids(rg_carver *c, const rg_params *p, size_t n_tops)
{
    size_t n = (size_t)p->max_tokens;
    rg_beam_ids is = { .ids = rg_carve(c, n, sizeof *is.ids) };

    is.logprobs = rg_carve(c, p->sampling.n_logprobs >= 0 ? n : 0, sizeof *is.logprobs);
    is.tops = rg_carve_table(c, n, n_tops, sizeof *is.tops);
    return is;
}

/* True if the ids of a place and `id` contain a stop text (request: an rg_request; as rg_beams.stops). */
static bool would_stop(void *request, int32_t place, int32_t id)
{
    rg_request *r = request;
    rg_sample *a = &r->samples[place];

    a->ids[a->n_output] = id; /* behind its ids, where its next one goes */
    return rg_request_would_stop(r, place, part_of(r)->stop_scratch);
}

/* The ids that end an answer, and the first beams. */
static void start(rg_request *r, rg_beams *b, const rg_request_model *m)
{
    for (int32_t i = 0; !r->params.sampling.ignore_eos && i < m->n_eos; i++)
        b->ends[b->n_ends++] = m->eos_ids[i];
    for (int32_t i = 0; i < r->params.n_stop_ids; i++)
        b->ends[b->n_ends++] = r->params.stop_ids[i];
    if (r->params.n_stop) {
        b->stops = would_stop;
        b->stops_arg = r;
    }
    rg_beams_begin(b);
}

/* The search's own arrays; the ids of finished answers apart. */
static rg_beams carve_search(rg_carver *c, const rg_params *p, size_t n_ends, int32_t vocab_size)
{
    const bool logprobs = p->sampling.n_logprobs >= 0;
    const size_t n = (size_t)p->beam.n_beams, n_groups = p->beam.n_groups > 1 ? (size_t)p->beam.n_groups : 1;
    const size_t n_tops = p->sampling.n_logprobs > 0 ? (size_t)p->sampling.n_logprobs : 0;
    const size_t room = (size_t)rg_beams_room(&p->beam, (int32_t)n_ends, vocab_size);
    rg_beams made = {
        .p = p->beam, .max_tokens = p->max_tokens, .room = (int32_t)room, .n_tops = (int32_t)n_tops,
        .ends = rg_carve(c, n_ends, sizeof *made.ends),
        .beam = rg_carve(c, n, sizeof *made.beam), .listed = rg_carve_table(c, n, room, sizeof *made.listed),
        .kept = rg_carve(c, (size_t)rg_beams_kept(&p->beam, (int32_t)n_ends), sizeof *made.kept),
        .next = rg_carve(c, n, sizeof *made.next), .finished = rg_carve(c, n, sizeof *made.finished),
        .n_finished = rg_carve(c, n_groups, sizeof *made.n_finished),
        .is_over = rg_carve(c, n_groups, sizeof *made.is_over), .order = rg_carve(c, n, sizeof *made.order),
    };
    float *raw = rg_carve_table(c, n, logprobs ? room : 0, sizeof *raw);

    made.listed_tops = rg_carve_table(c, n, n_tops, sizeof *made.listed_tops);
    made.listed_raw = logprobs ? raw : NULL;
    made.p.n_groups = (int32_t)n_groups;
    return made;
}

static void carve(rg_carver *c, rg_request *r, const rg_params *p, const rg_request_model *m)
{
    const size_t n = (size_t)p->beam.n_beams;
    const size_t n_ends = (size_t)p->n_stop_ids + (p->sampling.ignore_eos ? 0 : (size_t)m->n_eos);
    beams_part *own = rg_carve(c, 1, sizeof *own);
    rg_beam_ids *places = rg_carve(c, n, sizeof *places);
    int32_t *stop_scratch = rg_carve(c, (size_t)p->n_stop, sizeof *stop_scratch);
    rg_beams made = carve_search(c, p, n_ends, m->vocab_size);

    for (size_t i = 0; i < n && !c->failed; i++) {
        const rg_beam_ids is = carve_ids(c, p, (size_t)made.n_tops);

        if (!c->base)
            continue;
        made.finished[i].is = is;
        places[i] = (rg_beam_ids){ r->samples[i].ids, r->samples[i].logprobs, r->samples[i].tops };
    }
    if (!c->base)
        return;
    *own = (beams_part){ .search = made, .places = places, .stop_scratch = stop_scratch };
    r->part = own;
    r->in_bulk = true;
    start(r, &own->search, m);
}

static rg_work_room most(const rg_request *r)
{
    rg_work_room room = rg_rowwise_most(r);

    room.forks.n = r->n_branches;
    return room;
}

static bool fits(const rg_request *r, const rg_work_place *host, double share, rg_error *err)
{
    if (r->n_branches > host->max_seqs)
        return rg_fail(err, RG_E_LIMIT, "%d beams: the engine was opened for %d sequences at once (--max-seqs)",
                       (int)r->n_branches, (int)host->max_seqs);
    return share <= 1 || rg_fail(err, RG_E_LIMIT, "%d beams of %d prompt ids and %d to come need more state than the "
                                 "engine was opened with", (int)r->n_branches, (int)r->params.n_prompt,
                                 (int)r->params.max_tokens);
}

/* ---- who runs ---------------------------------------------------------------------------------------------------- */

static bool is_open(const rg_request *r, int i)
{
    return rg_sample_is_live(&r->samples[i]) && rg_beams_waits(&part_of(r)->search, i);
}

static int first_of(const rg_request *r)
{
    const rg_beams *b = &part_of(r)->search;
    int i = 0;

    while (i < r->n_branches - 1 && !b->beam[i].runs)
        i++;
    return i;
}

/* Positions that all beams have in common: before the last one of each, which each computes itself. */
static int32_t fork_at(const rg_request *r)
{
    const rg_beams *b = &part_of(r)->search;

    return r->params.n_prompt + (b->n_common < b->n_ids ? b->n_common : b->n_ids - 1);
}

/* True if beam i will fork from the first and has not yet. */
static bool is_to_fork(const rg_request *r, int i)
{
    return part_of(r)->search.beam[i].runs && i != first_of(r) && r->samples[i].seq && !r->samples[i].seq->length &&
           fork_at(r) > 0;
}

static void fork_beams(rg_states *states, rg_request *r)
{
    const rg_seq *from = r->samples[first_of(r)].seq;

    if (!from || from->committed != fork_at(r))
        return;
    for (int i = 0; i < r->n_branches; i++)
        if (is_to_fork(r, i))
            RG_ASSERT(rg_seq_fork(states, from, r->samples[i].seq));
}

/* The room that sample i needs, and the forks of all beams. */
static rg_work_room room(const rg_request *r, int i)
{
    rg_work_room room = rg_rowwise_room(r, i);

    room.forks = (rg_forks){ .n = r->n_branches, .shared = r->params.n_prompt - 1 };
    return room;
}

/* A match is shorter than these ids: the other beams can fork where it ends. */
static int32_t cacheable(const rg_request *r, int i)
{
    const int32_t most = rg_rowwise_target(r, i);

    return part_of(r)->search.n_running > 1 && fork_at(r) + 1 < most ? fork_at(r) + 1 : most;
}

static rg_work_rows rows(const rg_request *r, int i)
{
    const int32_t at = r->samples[i].seq->length;
    bool some_fork = false;

    for (int k = i + 1; k < r->n_branches && at < fork_at(r); k++)
        some_fork |= is_to_fork(r, k);
    return (rg_work_rows){ .first = at, .end = some_fork ? fork_at(r) : rg_rowwise_target(r, i), .block = 1 };
}

/* ---- steps of the search ----------------------------------------------------------------------------------------- */

static void want(rg_work_step *s, int i)
{
    rg_work_add_rows(s, i);
    if (s->plan[i].ends)
        rg_step_batch_want_draws(&s->member->rows, 0);
}

/* List the candidates for the next id of a beam. */
static void take_logits(rg_work_step *s, int thread, int i, float *logits)
{
    const rg_planned *p = &s->plan[s->member->rows.wanted[i].span];

    rg_beams *b = &part_of(p->request)->search;
    const size_t k = (size_t)p->sample, at = k * (size_t)b->room;

    b->beam[k].n_listed = rg_draw_list(s->member->scratch, thread, p->request, p->sample,
                                       &(rg_draw_listing){ .listed = b->listed + at, .room = b->room,
                                                           .raw = b->listed_raw ? b->listed_raw + at : NULL,
                                                           .tops = b->listed_tops + k * (size_t)b->n_tops,
                                                           .n_tops = b->n_tops },
                                       logits);
}

/* Place i, whose own beam has ended, continues that of its parent. */
static void take_over(rg_states *states, rg_request *r, int i)
{
    const int parent = part_of(r)->search.beam[i].parent;
    const rg_sample *from = &r->samples[parent];
    rg_sample *a = &r->samples[i];

    a->speller = from->speller;
    if (r->params.n_stop)
        memcpy(a->stop_at, from->stop_at, (size_t)r->params.n_stop * sizeof *a->stop_at);
    rg_seq_release(states, a->seq, NULL);
    RG_ASSERT(rg_seq_fork(states, from->seq, a->seq));
    if (a->grammar)
        rg_grammar_copy(a->grammar, from->grammar);
}

static void append(rg_request *r, int i)
{
    const rg_beams *b = &part_of(r)->search;
    rg_sample *a = &r->samples[i];

    a->n_output = b->n_ids;
    (void)rg_request_meets_stop(r, i); /* it does not: the beam would have ended */
    if (a->grammar && !rg_grammar_advance(a->grammar, b->beam[i].id))
        rg_grammar_lose(a->grammar); /* its room is used up: no candidates will be listed */
}

/* Blocks that the beams hold and share. */
static void count_blocks(rg_states *states, rg_request *r)
{
    beams_part *own = r->part;
    uint64_t held = 0, unshared = 0, copied = 0;

    for (int i = 0; i < r->n_branches; i++) {
        rg_states_count(states, r->samples[i].seq, &held, &unshared);
        copied += r->samples[i].seq->n_copied;
        r->samples[i].seq->n_copied = 0;
    }
    for (int i = 0; i < r->n_branches; i++)
        rg_states_uncount(states, r->samples[i].seq);
    atomic_fetch_add_explicit(&own->blocks, held, memory_order_relaxed);
    atomic_fetch_add_explicit(&own->blocks_unshared, unshared, memory_order_relaxed);
    atomic_fetch_add_explicit(&own->blocks_copied, copied, memory_order_relaxed);
}

/* The k-th best answer. */
static void tell(rg_request *r, int k, rg_finish why)
{
    const rg_beams *b = &part_of(r)->search;
    const rg_hypothesis *h = k < b->n_ordered ? &b->finished[b->order[k]] : NULL;
    rg_sample *s = &r->samples[k];

    if (!h) {
        rg_request_finish(r, s, why != RG_RUNNING ? why : RG_FINISH_GRAMMAR);
        return;
    }
    rg_beam_ids_copy(b, &part_of(r)->places[k], &h->is, h->n);
    s->n_output = h->n;
    bool is_eos = !r->params.sampling.ignore_eos && rg_ids_have(r->texts.eos_ids, r->texts.n_eos, h->end);
    bool is_stop_id = h->end >= 0 && rg_ids_have(r->params.stop_ids, r->params.n_stop_ids, h->end);
    s->stop_id = is_stop_id && !is_eos ? h->end : -1;
    atomic_store(&s->n_ready, h->n);
    rg_request_finish(r, s, why != RG_RUNNING ? why
                            : h->end >= 0 || h->stopped ? RG_FINISH_STOP : RG_FINISH_LENGTH);
}

/* The search is over, or is ended as it stands because of `why`: its best answers, for the reader. */
static void stop(rg_request *r, rg_finish why)
{
    r->is_told = true;
    rg_beams_close(&part_of(r)->search, part_of(r)->places);
    if (!atomic_load_explicit(&r->counts.first_ns, memory_order_relaxed))
        atomic_store(&r->counts.first_ns, rg_now_ns());
    for (int k = 0; k < r->params.n_samples; k++)
        tell(r, k, why);
    rg_request_wake(r);
}

/* Beam i has its candidates.  Once all have: a step of the search, and every place gets its ids, its state and where it
 * stands in the grammar; or the search is over, and the answers are told.  Returns the number of ids that beams went on
 * with. */
static int32_t take_listed(rg_states *states, rg_request *r, int i)
{
    rg_beams *b = &part_of(r)->search;
    int32_t n = b->n_running;

    b->beam[i].is_listed = true;
    if (++b->n_listed < n)
        return 0;
    count_blocks(states, r);
    atomic_fetch_add_explicit(&r->counts.n_steps, 1, memory_order_relaxed);
    if (rg_beams_step(b, part_of(r)->places)) {
        stop(r, RG_RUNNING);
        return n;
    }
    for (int k = 0; k < r->n_branches; k++)
        if (b->beam[k].runs && b->beam[k].parent != k)
            take_over(states, r, k);
    for (int k = 0; k < r->n_branches; k++) {
        if (b->beam[k].runs)
            append(r, k);
        else if (r->samples[k].seq->length)
            rg_seq_release(states, r->samples[k].seq, NULL);
    }
    return b->n_running;
}

/* Once the search is over, all samples have ended, and the request is removed with them. */
static bool take(rg_work_step *s, int i)
{
    const rg_planned *p = &s->plan[i];

    if (p->ends)
        s->n_output += (uint64_t)take_listed(s->member->states, p->request, p->sample);
    return false;
}

static bool commit(rg_work_step *s, int i)
{
    return rg_work_commit_rows(s, i, take);
}

/* ---- ends -------------------------------------------------------------------------------------------------------- */

/* What was listed is lost too. */
static void lose(rg_request *r, int i)
{
    (void)i;
    rg_beams_lose(&part_of(r)->search, part_of(r)->places);
}

static void usage(const rg_request *r, rg_usage *u)
{
    const beams_part *own = r->part;

    u->search_blocks = atomic_load(&own->blocks);
    u->search_blocks_unshared = atomic_load(&own->blocks_unshared);
    u->search_blocks_copied = atomic_load(&own->blocks_copied);
}

static void agree(const rg_request *r, int i)
{
    RG_ASSERT(part_of(r)->search.beam[i].runs || !r->samples[i].seq->n_blocks);
}

const rg_beams *rg_beams_of(const rg_request *r)
{
    return r->work == &rg_work_beams ? &part_of(r)->search : NULL;
}

const rg_work rg_work_beams = {
    .name = "beams", .together = true,
    .takes = takes, .check = check, .shape = shape, .carve = carve, .most = most, .fits = fits,
    .is_open = is_open, .target = rg_rowwise_target, .room = room, .cacheable = cacheable,
    .waits_to_fork = is_to_fork, .rows = rows, .n_left = rg_rowwise_n_left, .first = first_of, .fork = fork_beams,
    .want = want, .take_logits = take_logits, .commit = commit,
    .lose = lose, .stop = stop, .usage = usage, .agree = agree,
};
