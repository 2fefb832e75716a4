/* mailbox.c -- answers through a request: ids in at the engine's side, ids and text out at the reader's.
 *
 * Both sides run the same matcher of stop texts over the same bytes, so they cut at the same place wherever ids begin
 * and end.  The reader holds back text that may become a stop text, and bytes that are not a whole character yet. */
#include <math.h> /* NAN */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "engine/work/work.h"

enum { LOOK_AHEAD = 64 };

/* ---- the engine's side ------------------------------------------------------------------------------------------- */

/* The reader counts itself in n_asleep before it reads the counts; the engine publishes before it reads n_asleep.  All
 * are sequentially consistent, so at least one of the two sees the other. */
void rg_request_wake(rg_request *r)
{
    if (!atomic_load(&r->mail.n_asleep))
        return;
    pthread_mutex_lock(&r->mail.lock);
    pthread_cond_broadcast(&r->mail.ready);
    pthread_mutex_unlock(&r->mail.lock);
}

static bool feed_stops(const rg_request *r, int32_t *stop_at, rg_string text)
{
    for (size_t i = 0; i < text.n; i++)
        if (rg_stops_feed(r->texts.stops, r->params.n_stop, stop_at, text.data[i]) >= 0)
            return true;
    return false;
}

/* True if a stop text is in ids [0, n), or would be if they ended here.  For the second, a few ids that are held back
 * are tried at every id; where many are held back, they are left until they are certain.  What is certain moves the
 * speller and stop_at forward; try_stop_at is scratch. */
static bool finds_stop(const rg_request *r, const int32_t *ids, int32_t n, rg_speller *speller, int32_t *stop_at,
                       int32_t *try_stop_at)
{
    rg_speller ahead;
    rg_string text;
    int32_t waiting;

    if (!r->params.n_stop)
        return false;
    while (rg_speller_next(r->texts.spelling, speller, ids, n, false, &text))
        if (feed_stops(r, stop_at, text))
            return true;
    waiting = rg_speller_waiting(speller);
    if (!waiting || waiting > LOOK_AHEAD)
        return false;
    ahead = *speller;
    memcpy(try_stop_at, stop_at, (size_t)r->params.n_stop * sizeof *stop_at);
    while (rg_speller_next(r->texts.spelling, &ahead, ids, n, true, &text))
        if (feed_stops(r, try_stop_at, text))
            return true;
    return false;
}

bool rg_request_meets_stop(rg_request *r, int i)
{
    rg_sample *s = &r->samples[i];

    return finds_stop(r, s->ids, s->n_output, &s->speller, s->stop_at, s->try_stop_at);
}

/* How the answer ends with this id by its grammar.  RG_RUNNING: it does not.  It ends if nothing can follow, or if it
 * cannot continue (the grammar's room is used up, or biases leave no allowed id). */
static rg_finish end_by_grammar(rg_sample *s, int32_t id)
{
    if (!s->grammar)
        return RG_RUNNING;
    if (!rg_grammar_advance(s->grammar, id))
        return rg_grammar_complete(s->grammar) ? RG_FINISH_STOP : RG_FINISH_GRAMMAR;
    bool stuck = rg_grammar_stuck(s->grammar);
    return rg_grammar_lost(s->grammar) ? RG_FINISH_GRAMMAR : stuck ? RG_FINISH_STOP : RG_RUNNING;
}

/* The first end counts. */
void rg_request_finish(rg_request *r, rg_sample *s, rg_finish why)
{
    if (atomic_load_explicit(&s->finish, memory_order_relaxed) != RG_RUNNING)
        return;
    if (atomic_fetch_add(&r->counts.n_ended, 1) + 1 == r->n_ending)
        atomic_store(&r->counts.finished_ns, rg_now_ns());
    atomic_store(&s->finish, (int)why);
}

rg_finish rg_request_append(rg_request *r, int i, int32_t id, float logprob, const rg_top *top)
{
    rg_sample *s = &r->samples[i];
    int32_t k = r->params.sampling.n_logprobs;
    bool is_eos = !r->params.sampling.ignore_eos && rg_ids_have(r->texts.eos_ids, r->texts.n_eos, id);
    bool is_stop_id = rg_ids_have(r->params.stop_ids, r->params.n_stop_ids, id);
    rg_finish why = RG_RUNNING;

    if (!atomic_load_explicit(&r->counts.first_ns, memory_order_relaxed))
        atomic_store(&r->counts.first_ns, rg_now_ns());
    if (s->grammar && rg_grammar_lost(s->grammar)) {
        rg_request_end(r, i, RG_FINISH_GRAMMAR);
        return RG_FINISH_GRAMMAR;
    }
    s->sum_logprobs += s->logprobs ? (double)logprob : 0;
    s->n_drawn++;
    if (is_eos || is_stop_id) {
        s->stop_id = is_eos ? -1 : id;
        rg_request_end(r, i, RG_FINISH_STOP);
        return RG_FINISH_STOP;
    }
    RG_ASSERT(s->n_output < r->params.max_tokens);
    s->ids[s->n_output] = id;
    if (s->logprobs)
        s->logprobs[s->n_output] = logprob;
    if (k > 0 && top != s->tops + (size_t)s->n_output * (size_t)k)
        memcpy(s->tops + (size_t)s->n_output * (size_t)k, top, (size_t)k * sizeof *top);
    s->n_output++;
    rg_thought_note(&s->thought, &r->params.thinking, &(rg_thought_text){ s->ids, s->n_output, s->n_output });
    why = rg_request_meets_stop(r, i) ? RG_FINISH_STOP : end_by_grammar(s, id);
    if (why == RG_RUNNING && s->n_output == r->params.max_tokens)
        why = RG_FINISH_LENGTH;
    atomic_store(&s->n_ready, s->n_output);
    if (why != RG_RUNNING)
        rg_request_finish(r, s, why);
    rg_request_wake(r);
    return why;
}

void rg_request_end(rg_request *r, int i, rg_finish why)
{
    rg_request_finish(r, &r->samples[i], why);
    rg_request_wake(r);
}

bool rg_request_would_stop(const rg_request *r, int i, int32_t *scratch)
{
    const rg_sample *s = &r->samples[i];
    rg_speller speller = s->speller;

    memcpy(scratch, s->stop_at, (size_t)r->params.n_stop * sizeof *scratch);
    return finds_stop(r, s->ids, s->n_output + 1, &speller, scratch, s->try_stop_at);
}

/* ---- the reader's side ------------------------------------------------------------------------------------------- */

/* What is certain of the pending bytes, as whole characters, into r->text. */
static size_t give_text(rg_request *r, rg_sample *s, bool last)
{
    bool may_stop = !last && s->stop < 0;
    size_t held = may_stop ? (size_t)rg_stops_held(r->params.n_stop, s->read_stop_at) : 0, used, n;

    n = rg_utf8_copy(s->pending, s->n_pending - held, last, r->mail.text, &used);
    if (used)
        memmove(s->pending, s->pending + used, s->n_pending - used);
    s->n_pending -= used;
    r->mail.text[n] = '\0';
    return n;
}

static void read_text(rg_request *r, rg_sample *s, bool ended)
{
    rg_string text;

    while (s->stop < 0 && rg_speller_next(r->texts.spelling, &s->read_speller, s->ids, s->n_read, ended, &text)) {
        for (size_t i = 0; i < text.n && s->stop < 0; i++) {
            s->pending[s->n_pending++] = text.data[i];
            s->stop = rg_stops_feed(r->texts.stops, r->params.n_stop, s->read_stop_at, text.data[i]);
        }
        if (s->stop >= 0)
            s->n_pending -= (size_t)r->texts.stops[s->stop].n;
    }
}

rg_sample *rg_request_told(rg_request *r, int k)
{
    return r->work->told ? r->work->told(r, k) : &r->samples[k];
}

static void give_id(rg_request *r, int i, rg_token *out)
{
    rg_sample *s = rg_request_told(r, i);
    int32_t k = r->params.sampling.n_logprobs, at = s->n_read++;

    read_text(r, s, false);
    *out = (rg_token){ .sample = i, .id = s->ids[at], .logprob = s->logprobs ? s->logprobs[at] : NAN, .stop = -1,
                       .stop_id = -1 };
    if (k > 0) {
        out->top = s->tops + (size_t)at * (size_t)k;
        out->n_top = k;
    }
    out->n_text = give_text(r, s, false);
    out->text = r->mail.text;
}

static void give_end(rg_request *r, int i, rg_finish why, rg_token *out)
{
    rg_sample *s = rg_request_told(r, i);

    s->end_given = true;
    read_text(r, s, true);
    *out = (rg_token){ .sample = i, .id = -1, .logprob = NAN, .finish = why, .stop = s->stop, .stop_id = s->stop_id };
    out->n_text = give_text(r, s, true);
    out->text = r->mail.text;
}

/* Reads from the sample with unread ids that the fewest ids were read from, so that answers advance side by side. */
int rg_request_poll(rg_request *r, rg_token *out)
{
    int best = -1, best_finish = RG_RUNNING;
    bool open = false, best_id = false;

    for (int i = 0; i < r->params.n_samples; i++) {
        rg_sample *s = rg_request_told(r, i);
        int why; /* read before n_ready: once it is set, n_ready is final */
        bool id;

        if (!s)
            return 0;
        if (s->end_given)
            continue;
        open = true;
        why = atomic_load(&s->finish);
        id = s->n_read < atomic_load(&s->n_ready);
        if ((id || why != RG_RUNNING) && (best < 0 || s->n_read < rg_request_told(r, best)->n_read)) {
            best = i;
            best_id = id;
            best_finish = why;
        }
    }
    if (best < 0)
        return open ? 0 : -1;
    if (best_id)
        give_id(r, best, out);
    else
        give_end(r, best, (rg_finish)best_finish, out);
    return 1;
}

static bool wants_values(rg_request *r)
{
    return r->is_valued && r->work->to_value(r) > 0;
}

int rg_request_wait(rg_request *r, rg_token *out)
{
    int got = rg_request_poll(r, out);

    if (got)
        return got;
    pthread_mutex_lock(&r->mail.lock);
    atomic_fetch_add(&r->mail.n_asleep, 1);
    while (!(got = rg_request_poll(r, out)) && !wants_values(r))
        pthread_cond_wait(&r->mail.ready, &r->mail.lock);
    atomic_fetch_sub(&r->mail.n_asleep, 1);
    pthread_mutex_unlock(&r->mail.lock);
    return got;
}

static double since(const rg_request *r, uint64_t ns)
{
    return ns ? rg_seconds(atomic_load(&r->counts.submitted_ns), ns) : 0;
}

void rg_request_note_prefilled(rg_request *r, int32_t n)
{
    n = n < r->params.n_prompt ? n : r->params.n_prompt;
    if (n > atomic_load_explicit(&r->counts.n_prefilled, memory_order_relaxed))
        atomic_store_explicit(&r->counts.n_prefilled, n, memory_order_relaxed);
}

rg_usage rg_request_used(const rg_request *r)
{
    rg_usage u = { .n_prompt = r->params.n_prompt, .n_cached = r->counts.n_cached, .n_preempted = r->counts.n_preempted,
                   .n_lost = r->counts.n_lost,
                   .n_prefilled = r->counts.n_prefilled, .n_steps = r->counts.n_steps,
                   .n_drafted = r->counts.n_drafted, .n_accepted = r->counts.n_accepted,
                   .n_predicted_accepted = r->counts.n_predicted_accepted,
                   .uncached = (rg_uncached)atomic_load(&r->counts.uncached) };

    for (int i = 0; i < r->n_ending; i++)
        u.n_output += atomic_load(&r->samples[i].n_ready);
    if (r->work->usage)
        r->work->usage(r, &u);
    u.n_rows = atomic_load(&r->counts.n_rows);
    u.steps_s = 1e-9 * (double)atomic_load(&r->counts.steps_ns);
    u.limit_s = 1e-9 * (double)atomic_load(&r->counts.limit_ns);
    u.queue_s = since(r, atomic_load(&r->counts.admitted_ns));
    u.ttft_s = since(r, atomic_load(&r->counts.first_ns));
    u.total_s = since(r, atomic_load(&r->counts.finished_ns));
    u.paced_s = u.total_s > 0 ? u.total_s - (r->in_bulk ? u.queue_s : u.ttft_s) : 0;
    u.n_paced = u.n_output - (u.n_output > 0 && !r->in_bulk);
    return u;
}
