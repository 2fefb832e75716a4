/* turn.c -- a call while it runs: tokens in, bytes out.  Only the pump's thread is here. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "server/call.h"
#include "server/api/timings.h"
#include "server/api/vote.h"

/* ---- tokens in --------------------------------------------------------------------------------------------------- */

static bool take_logprob(rg_call *c, rg_choice *ch, const rg_token *t)
{
    rg_logprob l = { t->id, t->n_top, t->logprob, ch->tops.n / sizeof(rg_top) };

    return c->f.n_logprobs < 0 || (rg_buf_add(&ch->logprobs, &l, sizeof l) &&
                                   rg_buf_add(&ch->tops, t->top, (size_t)t->n_top * sizeof *t->top));
}

static void take_times(rg_call *c, rg_choice *ch, uint64_t now)
{
    rg_metrics *m = c->served->metrics;

    if (ch->last_ns)
        rg_observe(m, RG_H_ITL, rg_seconds(ch->last_ns, now), 1);
    if (!c->first_ns) {
        c->first_ns = now;
        rg_observe(m, RG_H_TTFT, rg_seconds(c->since_ns, now), 1);
    }
    ch->last_ns = c->last_ns = now;
}

static void take(rg_call *c, rg_choice *ch, const rg_token *t, uint64_t now)
{
    if (t->id >= 0) {
        ch->n_tokens++;
        ch->n_reasoning += c->shape->is_chat && rg_answer_is_reasoning(&ch->answer);
        take_times(c, ch, now);
        c->failed |= !take_logprob(c, ch, t);
        ch->answer.token = (size_t)ch->n_tokens - 1;
    }
    if (c->shape->is_chat && t->finish != RG_RUNNING)
        rg_answer_end(&ch->answer, t->text, t->n_text);
    else if (c->shape->is_chat)
        rg_answer_feed(&ch->answer, t->text, t->n_text);
    else if (t->n_text)
        c->failed |= !rg_buf_add(&ch->text, t->text, t->n_text);
    if (t->id >= 0 && c->keeps_ids) {
        rg_kept_id kept = { t->id, ch->text.n };
        c->failed |= !rg_buf_add(&ch->ids, &kept, sizeof kept);
    }
    if (t->finish != RG_RUNNING) {
        ch->finish = c->out_of_time && t->finish == RG_FINISH_CANCELLED ? RG_FINISH_LENGTH : t->finish;
        ch->stop = t->stop;
        ch->stop_id = t->stop_id;
        if (c->shape->ended)
            c->shape->ended(c, ch);
        c->n_ended++;
    }
    c->failed |= ch->answer.failed || ch->text.failed;
    ch->news = true;
}

static void take_all(rg_call *c, uint64_t now)
{
    rg_token t;

    for (int32_t i = 0; i < c->n_submitted; i++)
        while (!c->failed && rg_poll(c->requests[i], &t) == 1)
            take(c, &c->choices[i * c->f.n + t.sample], &t, now);
}

/* ---- figures ----------------------------------------------------------------------------------------------------- */

static const char *uncached_word(rg_uncached why)
{
    switch (why) {
    case RG_UNCACHED_NEW:
        return "new";
    case RG_UNCACHED_GONE:
        return "evicted";
    case RG_UNCACHED_OFF:
        return "off";
    default:
        return "complete";
    }
}

rg_totals rg_call_totals(const rg_call *c)
{
    bool drawn_more = !c->f.use_beams && c->f.best_of > c->f.n; /* than are returned */
    rg_totals t = { .uncached = "complete" };

    for (int32_t i = 0; i < c->n_submitted; i++) {
        rg_usage u = rg_request_usage(c->requests[i]);
        t.n_prompt += u.n_prompt;
        t.n_cached += u.n_cached;
        t.n_prefilled += u.n_prefilled;
        t.n_predicted_accepted += u.n_predicted_accepted;
        t.n_output += drawn_more ? u.n_output : 0;
        t.uncached = i ? t.uncached : uncached_word(u.uncached);
        t.queue_s = u.queue_s > t.queue_s ? u.queue_s : t.queue_s;
        t.ttft_s = !i || u.ttft_s < t.ttft_s ? u.ttft_s : t.ttft_s;
        t.total_s = u.total_s > t.total_s ? u.total_s : t.total_s;
        t.steps_s += u.steps_s;
        t.limit_s += u.limit_s;
    }
    t.n_output += c->n_dropped_tokens;
    for (int32_t i = 0; i < c->n_choices; i++) {
        t.n_output += drawn_more ? 0 : c->choices[i].n_tokens;
        t.n_reasoning += c->choices[i].n_reasoning;
    }
    return t;
}

static const char *why_ended(const rg_call *c)
{
    for (int32_t i = 0; i < c->n_choices; i++)
        if (c->choices[i].finish == RG_FINISH_DEADLINE)
            return "deadline";
    for (int32_t i = 0; i < c->n_choices; i++)
        if (c->choices[i].finish == RG_FINISH_LENGTH)
            return "length";
    return "stop";
}

/* Keep how the time of a call that was answered was spent. */
static void note_answer(const rg_call *c, const rg_totals *t, uint64_t end_ns)
{
    rg_timings d = rg_call_timings(c, -1);
    rg_answer_note a = { .tenant = rg_exchange_notes(c->x)->tenant,
                         .since_ns = c->since_ns,
                         .end_ns = end_ns,
                         .queue_s = t->queue_s,
                         .first_s = c->first_ns ? rg_seconds(c->since_ns, c->first_ns) : 0,
                         .n_prompt = t->n_prompt,
                         .n_cached = t->n_cached,
                         .n_output = t->n_output,
                         .n_drafted = d.n_drafted,
                         .n_accepted = d.n_accepted };

    snprintf(a.id, sizeof a.id, "%s", rg_exchange_id(c->x));
    rg_steps_answered(c->served->steps, &a, rg_engine_stats(c->served->engine).n_steps);
}

/* Add the figures of a call that was answered to the metrics. */
static void record(const rg_call *c, const char *reason)
{
    rg_metrics *m = c->served->metrics;
    rg_totals t = rg_call_totals(c);
    uint64_t now = rg_now_ns();
    double whole = rg_seconds(c->since_ns, now), first = rg_seconds(c->since_ns, c->first_ns);
    double decode = rg_seconds(c->first_ns, c->last_ns);
    int32_t longest = 0;

    if ((double)(t.n_prompt + t.n_output) > rg_metric_gauge(m, RG_G_LONGEST))
        rg_gauge(m, RG_G_LONGEST, (double)(t.n_prompt + t.n_output));
    note_answer(c, &t, now);
    rg_count_finish(m, reason);
    rg_count(m, RG_C_CACHE_QUERIES, (double)t.n_prompt);
    rg_count(m, RG_C_CACHE_HITS, (double)t.n_cached);
    rg_observe(m, RG_H_E2E, whole, 1);
    rg_observe(m, RG_H_QUEUE, t.queue_s, 1);
    if (t.steps_s > 0)
        rg_gauge(m, RG_G_ROOFLINE, t.limit_s / t.steps_s);
    rg_observe(m, RG_H_PROMPT, (double)t.n_prompt, 1);
    rg_observe(m, RG_H_OUTPUT, (double)t.n_output, 1);
    for (int32_t i = 0; i < c->n_choices; i++)
        longest = c->choices[i].n_tokens > longest ? c->choices[i].n_tokens : longest;
    rg_observe(m, RG_H_MAX_OUTPUT, longest, 1);
    if (!c->first_ns)
        return;
    rg_observe(m, RG_H_PREFILL, first > t.queue_s ? first - t.queue_s : 0, 1);
    rg_observe(m, RG_H_DECODE, decode, 1);
    rg_observe(m, RG_H_INFERENCE, whole > t.queue_s ? whole - t.queue_s : 0, 1);
    if (longest > 1)
        rg_observe(m, RG_H_TPOT, decode / (longest - 1), 1);
}

/* ---- bytes out --------------------------------------------------------------------------------------------------- */

static void flush(rg_call *c)
{
    if (c->out.failed)
        c->failed = true;
    else
        rg_exchange_write(c->x, c->out.data ? c->out.data : "", c->out.n);
    rg_buf_reset(&c->out);
    c->written_ns = rg_now_ns();
}

/* Tell a client that wants to know it how much of the prompt is computed, if that is more than it knows. */
static void tell_progress(rg_call *c)
{
    int64_t n = c->f.return_progress && c->shape->progress ? rg_call_totals(c).n_prefilled : 0;

    if (n <= c->n_prefilled)
        return;
    c->n_prefilled = n;
    c->shape->progress(c, &c->out);
}

/* A stream that waits for its turn, reads its prompt or holds text back is not silent: proxies and clients give up what
 * is silent for a minute.  Nothing is added for a client that has not taken what was sent before. */
static void break_silence(rg_call *c, uint64_t now)
{
    double most = c->served->server->o.ping_s;

    if (most > 0 && !c->out.n && rg_seconds(c->written_ns, now) >= most && !rg_exchange_waiting(c->x))
        rg_buf_str(&c->out, c->family->ping);
}

static void fail(rg_call *c, const rg_refusal *e, rg_buf *out)
{
    rg_event_open(out, c->family, c->family->error_event);
    rg_refusal_write(out, c->x, e);
    rg_event_close(out, c->family);
}

void rg_call_abort(rg_call *c, const rg_refusal *e)
{
    for (int32_t i = 0; i < c->n_submitted; i++)
        rg_cancel(c->requests[i]);
    rg_count_finish(c->served->metrics, "error");
    rg_buf_reset(&c->out);
    if (c->f.stream) {
        (c->shape->fail ? c->shape->fail : fail)(c, e, &c->out);
        flush(c);
        rg_exchange_end(c->x);
        rg_note_answer(c->served, c->x, 200);
    } else {
        rg_reply_refusal(c->served, c->x, e);
    }
}

static bool abort_for(rg_call *c, int status, const char *code, const char *text, int retry_after_s)
{
    rg_refusal e;

    rg_refuse(&e, status, code, NULL, "%s", text);
    e.retry_after_s = retry_after_s;
    rg_call_abort(c, &e);
    return false;
}

static const char rank_lost[] = "A process that computes the model has ended, and with it what it knew of this answer; "
                                "it is being started again: ask again.";

static bool finish(rg_call *c)
{
    bool dead = true, late = false, cancelled = false, lost = false, broken = false, unread = false;
    bool gone = false;

    for (int32_t i = 0; i < c->n_choices; i++) {
        dead &= c->choices[i].finish == RG_FINISH_DEADLINE && !c->choices[i].n_tokens;
        late |= c->choices[i].finish == RG_FINISH_DEADLINE;
        cancelled |= c->choices[i].finish == RG_FINISH_CANCELLED;
        broken |= c->choices[i].finish == RG_FINISH_NOT_FINITE;
        unread |= c->choices[i].finish == RG_FINISH_NO_WEIGHTS;
        lost |= c->choices[i].finish == RG_FINISH_GRAMMAR;
        gone |= c->choices[i].finish == RG_FINISH_LOST;
    }
    if (gone)
        return abort_for(c, 503, "rank_lost", rank_lost, 1);
    if (cancelled) /* and not by the client, which is still there */
        return abort_for(c, 503, "aborted", "The server ended this request before it was finished.", 1);
    if (lost)
        return abort_for(c, 400, "grammar_limit",
                         "The answer could not go on as its grammar or schema asks: it is too "
                         "ambiguous, its values are nested too deeply, or 'logit_bias' bans all that it allows.",
                         0);
    if (unread)
        return abort_for(c, 500, "weights_unread", "Experts that the answer needs could not be read.", 0);
    if (broken)
        return abort_for(c, 500, "not_finite", "The model computed NaN or infinity: its weights are damaged.", 0);
    if (dead || (late && c->shape->embeds))
        return abort_for(c, 504, "deadline_exceeded", "The request's time was over before there was an answer.", 0);
    if (c->f.n_told)
        rg_call_vote(c);
    record(c, why_ended(c));
    if (c->f.stream) {
        c->shape->stop(c, &c->out);
        if (c->out.failed || rg_json_lost())
            return abort_for(c, 503, "out_of_memory", "There is no memory for this answer now.", 1);
        flush(c);
        rg_exchange_end(c->x);
        rg_note_answer(c->served, c->x, 200);
        return false;
    }
    c->shape->whole(c, &c->out);
    if (c->failed || c->out.failed || rg_json_lost())
        return abort_for(c, 503, "out_of_memory", "There is no memory for this answer now.", 1);
    rg_reply_json(c->served, c->x, &c->out);
    return false;
}

/* True: it has waited for its first step for longer than the queue timeout. */
static bool waited_too_long(const rg_call *c, uint64_t now)
{
    double most = c->served->server->o.queue_timeout_s;

    if (most <= 0 || c->first_ns || rg_seconds(c->since_ns, now) < most || rg_exchange_notes(c->x)->background)
        return false;
    for (int32_t i = 0; i < c->n_submitted; i++)
        if (rg_request_usage(c->requests[i]).queue_s > 0)
            return false;
    return true;
}

/* Submit the prompts of a long list that the engine does not have yet.  False: the call is over. */
static bool submit_more(rg_call *c, uint64_t now)
{
    rg_refusal e = { 0 };

    if (c->deadline_s > 0 && rg_seconds(c->since_ns, now) > c->deadline_s)
        return abort_for(c, 504, "deadline_exceeded", "The request's time was over before there was an answer.", 0);
    if (rg_call_submit(c, &e))
        return true;
    rg_call_abort(c, &e);
    return false;
}

/* t_max_predict_ms, from the first token on: once it is over, answers that have a line end are cut there. */
static void limit_time(rg_call *c, uint64_t now)
{
    bool has_line = false;

    if (c->f.max_predict_ms <= 0 || c->out_of_time || !c->first_ns ||
        1e3 * rg_seconds(c->first_ns, now) < (double)c->f.max_predict_ms)
        return;
    for (int32_t i = 0; i < c->n_choices && !has_line; i++)
        has_line = c->choices[i].text.n && memchr(c->choices[i].text.data, '\n', c->choices[i].text.n);
    if (!has_line)
        return;
    c->out_of_time = true;
    for (int32_t i = 0; i < c->n_submitted; i++)
        rg_cancel(c->requests[i]);
}

/* True if an answer's state was lost after the client had got its beginning.  An answer that the client has nothing of
 * yet is computed anew, and the client does not notice. */
static bool lost_what_streamed(rg_call *c)
{
    int32_t n = 0;

    for (int32_t i = 0; i < c->n_submitted; i++)
        n += rg_request_usage(c->requests[i]).n_lost;
    const bool lost = c->has_streamed && n > c->n_lost;
    c->n_lost = n;
    return lost;
}

/* What is new of the i-th choice, unless it ends in a refusal. */
static void stream_choice(rg_call *c, int32_t i)
{
    const rg_choice *ch = &c->choices[i];
    const size_t before = c->out.n;

    if (!ch->news || ch->finish == RG_FINISH_CANCELLED || ch->finish == RG_FINISH_GRAMMAR ||
        ch->finish == RG_FINISH_NOT_FINITE || ch->finish == RG_FINISH_NO_WEIGHTS || ch->finish == RG_FINISH_LOST ||
        (!ch->n_tokens && ch->finish == RG_FINISH_DEADLINE))
        return;
    c->shape->delta(c, &c->choices[i], &c->out);
    c->has_streamed |= c->out.n > before;
}

bool rg_call_turn(rg_call *c, uint64_t now)
{
    if (rg_exchange_gone(c->x)) {
        for (int32_t i = 0; i < c->n_submitted; i++)
            rg_cancel(c->requests[i]);
        rg_count(c->served->metrics, RG_C_GONE, 1);
        rg_count_finish(c->served->metrics, "abort");
        return false;
    }
    rg_json_watch();
    if (lost_what_streamed(c))
        return abort_for(c, 503, "rank_lost", rank_lost, 1);
    take_all(c, now);
    limit_time(c, now);
    if (c->f.stream)
        tell_progress(c);
    for (int32_t i = 0; c->f.stream && i < c->n_choices; i++)
        stream_choice(c, i);
    for (int32_t i = 0; i < c->n_choices; i++)
        c->choices[i].news = false;
    if (c->f.stream)
        break_silence(c, now);
    if (c->failed || c->out.failed || rg_json_lost())
        return abort_for(c, 503, "out_of_memory", "There is no memory for this answer now.", 1);
    if (c->f.stream && c->out.n)
        flush(c);
    if (c->n_ended == c->n_choices)
        return finish(c);
    if (c->n_submitted < c->n_prompts && !submit_more(c, now))
        return false;
    if (waited_too_long(c, now))
        return abort_for(c, 503, "queue_timeout", "The request waited too long for its turn.",
                         rg_engine_retry_after(c->served->engine));
    return true;
}
