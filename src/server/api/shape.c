/* shape.c -- what the shapes of several endpoints write alike: why an answer ended, its usage, its log-probabilities,
 * and the frame of OpenAI's completions, whose streams are chunks of the same object and one [DONE]. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "server/call.h"
#include "server/api/timings.h"

const char *rg_call_model(const rg_call *c)
{
    return c->adapter ? c->adapter : c->served->name;
}

const char *rg_finish_word(const rg_choice *ch)
{
    if (rg_finish_is_cut(ch))
        return "length";
    return ch->answer.n_calls && !ch->answer.call[ch->answer.n_calls - 1].cut ? "tool_calls" : "stop";
}

void rg_write_usage(rg_buf *b, const rg_call *c)
{
    rg_totals t = rg_call_totals(c);

    rg_out_open(b, "usage", '{');
    rg_out_int(b, "prompt_tokens", t.n_prompt);
    rg_out_int(b, "completion_tokens", t.n_output);
    rg_out_int(b, "total_tokens", t.n_prompt + t.n_output);
    rg_out_open(b, "prompt_tokens_details", '{');
    rg_out_int(b, "cached_tokens", t.n_cached);
    rg_out_text(b, "uncached_reason", t.uncached);
    rg_out_close(b, '}');
    if (c->shape->is_chat) {
        rg_out_open(b, "completion_tokens_details", '{');
        rg_out_int(b, "reasoning_tokens", t.n_reasoning);
        if (c->hints.n_predicted) {
            int64_t left = (int64_t)c->hints.n_predicted * c->n_choices - t.n_predicted_accepted;

            rg_out_int(b, "accepted_prediction_tokens", t.n_predicted_accepted);
            rg_out_int(b, "rejected_prediction_tokens", left > 0 ? left : 0);
        }
        rg_out_close(b, '}');
    }
    rg_out_close(b, '}');
}

size_t rg_choice_n_logprobs(const rg_choice *ch)
{
    return ch->logprobs.n / sizeof(rg_logprob);
}

const rg_logprob *rg_choice_logprob(const rg_choice *ch, size_t i)
{
    return (const rg_logprob *)(const void *)ch->logprobs.data + i;
}

const rg_top *rg_choice_tops(const rg_choice *ch, const rg_logprob *l)
{
    return l->n_top ? (const rg_top *)(const void *)ch->tops.data + l->top : NULL;
}

void rg_write_id(rg_buf *b, const rg_call *c, const char *key, int32_t id)
{
    size_t n;
    const char *s = rg_id_bytes(c->served->engine, id, false, &n);

    rg_out_string(b, key, s, n);
}

/* token, its log-probability and its bytes, which need not be whole characters. */
static void write_token(rg_buf *b, const rg_call *c, int32_t id, float logprob)
{
    size_t n;
    const char *s = rg_id_bytes(c->served->engine, id, false, &n);

    rg_out_string(b, "token", s, n);
    rg_out_real(b, "logprob", (double)logprob);
    rg_out_open(b, "bytes", '[');
    for (size_t i = 0; i < n; i++)
        rg_out_int(b, NULL, (unsigned char)s[i]);
    rg_out_close(b, ']');
}

void rg_write_logprob(rg_buf *b, const rg_call *c, const rg_choice *ch, size_t i)
{
    const rg_logprob *l = rg_choice_logprob(ch, i);
    const rg_top *top = rg_choice_tops(ch, l);

    rg_out_open(b, NULL, '{');
    write_token(b, c, l->id, l->logprob);
    rg_out_open(b, "top_logprobs", '[');
    for (int k = 0; k < l->n_top; k++) {
        rg_out_open(b, NULL, '{');
        write_token(b, c, top[k].id, top[k].logprob);
        rg_out_close(b, '}');
    }
    rg_out_close(b, ']');
    rg_out_close(b, '}');
}

void rg_write_token_ids(rg_buf *b, const rg_call *c, rg_choice *ch)
{
    const rg_kept_id *ids = (const rg_kept_id *)(const void *)ch->ids.data;

    if (!c->f.return_token_ids)
        return;
    rg_out_open(b, "token_ids", '[');
    for (; ch->sent_ids < ch->ids.n / sizeof *ids; ch->sent_ids++)
        rg_out_int(b, NULL, ids[ch->sent_ids].id);
    rg_out_close(b, ']');
}

void rg_write_prompt_ids(rg_buf *b, const rg_call *c, int32_t prompt)
{
    if (!c->f.return_token_ids)
        return;
    rg_out_open(b, "prompt_token_ids", '[');
    for (size_t i = 0; i < c->prompts[prompt].n; i++)
        rg_out_int(b, NULL, c->prompts[prompt].ids[i]);
    rg_out_close(b, ']');
}

static void write_ranked(rg_buf *b, const rg_call *c, int32_t id, float logprob, int32_t rank)
{
    char key[16];

    snprintf(key, sizeof key, "%d", (int)id);
    rg_out_open(b, key, '{');
    rg_out_real(b, "logprob", (double)logprob);
    rg_out_int(b, "rank", rank);
    rg_write_id(b, c, "decoded_token", id);
    rg_out_close(b, '}');
}

void rg_write_prompt_logprobs(rg_buf *b, const rg_call *c, int32_t prompt)
{
    rg_prompt_logprob l;

    rg_out_open(b, "prompt_logprobs", '[');
    for (int32_t i = 0; i < (int32_t)c->prompts[prompt].n; i++) {
        if (!rg_request_prompt_logprob(c->requests[prompt], i, &l)) {
            rg_out_null(b, NULL);
            continue;
        }
        rg_out_open(b, NULL, '{');
        write_ranked(b, c, l.id, l.logprob, l.rank);
        for (int32_t k = 0; k < c->f.prompt_logprobs; k++)
            if (l.top[k].id != l.id)
                write_ranked(b, c, l.top[k].id, l.top[k].logprob, k + 1);
        rg_out_close(b, '}');
    }
    rg_out_close(b, ']');
}

bool rg_finish_is_cut(const rg_choice *ch)
{
    return ch->finish == RG_FINISH_LENGTH || ch->finish == RG_FINISH_DEADLINE;
}

const char *rg_call_arguments(const rg_tool_call *t)
{
    return t->arguments.n ? t->arguments.data : "";
}

const rg_tool_kind *rg_call_kind(const rg_call *c, const rg_tool_call *t)
{
    return &rg_tool_kinds[json_integer_value(json_object_get(json_object_get(c->kinds, t->name), "kind"))];
}

bool rg_call_is_over(const rg_choice *ch, const rg_tool_call *t)
{
    return t->done || ch->finish != RG_RUNNING;
}

int rg_choice_n_calls(const rg_call *c, const rg_choice *ch)
{
    int n = ch->answer.n_calls;

    return c->f.parallel_tools || n < 1 ? n : 1;
}

bool rg_part_is_given(const rg_call *c, const rg_choice *ch, const rg_talk_part *p)
{
    return p->kind != RG_PART_CALL || (int)p->from < rg_choice_n_calls(c, ch);
}

bool rg_part_is_over(const rg_choice *ch, const rg_talk_part *p)
{
    bool last = p == &ch->answer.part[ch->answer.n_parts - 1];

    return ch->finish != RG_RUNNING || !last || (p->kind == RG_PART_CALL && ch->answer.call[p->from].done);
}

bool rg_says_nothing(const rg_answer *a)
{
    for (size_t i = 0; i < a->n_parts; i++)
        if (a->part[i].kind != RG_PART_REASONING)
            return false;
    return true;
}

/* ---- completions and chat ---------------------------------------------------------------------------------------- */

static void open_object(rg_buf *b, const rg_call *c, const char *object)
{
    rg_out_open(b, NULL, '{');
    rg_out_text(b, "id", c->id);
    rg_out_text(b, "object", object);
    rg_out_int(b, "created", c->created_s);
    rg_out_text(b, "model", rg_call_model(c));
    rg_out_open(b, "choices", '[');
}

/* All events of a stream are padded to the length of the first one plus some room; longer events to one of a few
 * lengths. */
void rg_write_noise(rg_buf *b, rg_call *c)
{
    enum { AROUND = 20, ROOM = 96, STEP = 128, MOST = 1024 };
    char noise[MOST + 1];
    size_t n = b->n - c->event_at + AROUND;

    if (!c->f.pads)
        return;
    if (!c->event_bytes || c->event_bytes > n + MOST - STEP) {
        c->event_bytes = n + ROOM;
        c->noise.seed = rg_seed();
    }
    /* fits: n is the length of an event in memory */
    size_t to = c->event_bytes + (n > c->event_bytes ? (n - c->event_bytes + STEP - 1) / STEP * STEP : 0);
    for (size_t i = 0; i < to - n; i++)
        noise[i] = (char)('a' + rg_rng_below(&c->noise, 26));
    noise[to - n] = 0;
    rg_out_text(b, "obfuscation", noise);
}

void rg_chunk_open(rg_buf *b, rg_call *c)
{
    c->event_at = b->n;
    rg_event_open(b, c->family, NULL);
    open_object(b, c, c->shape->chunk);
}

static void write_timings(rg_buf *b, const rg_call *c)
{
    rg_timings t = rg_call_timings(c, -1);

    rg_write_timings(b, &t);
}

/* The last chunks have the timings, as llama-server's do; every chunk if that is asked for.  Their length would tell
 * something where lengths are to tell nothing. */
static void close_chunk(rg_buf *b, rg_call *c)
{
    if (!c->f.pads && ((c->f.timings_always && c->first_ns) || (!c->f.include_usage && c->n_ended == c->n_choices)))
        write_timings(b, c);
    if (c->f.usage_always)
        rg_write_usage(b, c);
    else if (c->f.include_usage)
        rg_out_null(b, "usage");
    rg_write_noise(b, c);
    rg_out_close(b, '}');
    rg_event_close(b, c->family);
}

void rg_chunk_close(rg_buf *b, rg_call *c)
{
    rg_out_close(b, ']');
    close_chunk(b, c);
}

void rg_chunk_close_first(rg_buf *b, rg_call *c)
{
    rg_out_close(b, ']');
    rg_write_prompt_ids(b, c, 0);
    close_chunk(b, c);
}

void rg_write_progress(rg_buf *b, const rg_call *c)
{
    rg_totals t = rg_call_totals(c);
    double s = rg_seconds(c->since_ns, rg_now_ns()) - t.queue_s;

    rg_out_open(b, "prompt_progress", '{');
    rg_out_int(b, "total", t.n_prompt);
    rg_out_int(b, "cache", t.n_cached);
    rg_out_int(b, "processed", t.n_prefilled);
    rg_out_int(b, "time_ms", (int64_t)(1e3 * (s > 0 ? s : 0)));
    rg_out_close(b, '}');
}

void rg_chunk_close_progress(rg_buf *b, rg_call *c)
{
    rg_out_close(b, ']');
    rg_write_progress(b, c);
    close_chunk(b, c);
}

/* stop_reason: the stop text or the stop id that ended the answer, if one did. */
void rg_write_finish(rg_buf *b, const rg_call *c, const rg_choice *ch)
{
    if (ch->n_votes)
        rg_out_int(b, "votes", ch->n_votes);
    rg_out_text(b, "finish_reason", ch->finish == RG_RUNNING ? NULL : rg_finish_word(ch));
    if (ch->finish == RG_FINISH_STOP && ch->stop >= 0)
        rg_out_text(b, "stop_reason", c->f.stop[ch->stop]);
    else if (ch->finish == RG_FINISH_STOP && ch->stop_id >= 0)
        rg_out_int(b, "stop_reason", ch->stop_id);
    else
        rg_out_text(b, "stop_reason", ch->finish == RG_FINISH_DEADLINE ? "deadline" : NULL);
}

void rg_chunks_stop(rg_call *c, rg_buf *out)
{
    if (c->f.include_usage) {
        rg_event_open(out, c->family, NULL);
        open_object(out, c, c->shape->chunk);
        rg_out_close(out, ']');
        rg_write_usage(out, c);
        write_timings(out, c);
        rg_out_close(out, '}');
        rg_event_close(out, c->family);
    }
    rg_buf_str(out, "data: [DONE]\n\n");
}

void rg_chunks_fail(rg_call *c, const rg_refusal *e, rg_buf *out)
{
    rg_event_open(out, c->family, NULL);
    rg_refusal_write(out, c->x, e);
    rg_event_close(out, c->family);
    rg_buf_str(out, "data: [DONE]\n\n");
}

/* llama-server's "__verbose": the prompt as the model saw it. */
static void write_prompt(rg_buf *b, const rg_call *c)
{
    size_t n = 0;
    char *text = rg_decode(c->served->engine, c->prompts[0].ids, c->prompts[0].n, false, &n, NULL);

    rg_out_open(b, "__verbose", '{');
    rg_out_string(b, "prompt", text ? text : "", n);
    rg_out_close(b, '}');
    rg_text_free(text);
}

void rg_choices_whole(rg_call *c, rg_buf *out)
{
    open_object(out, c, c->shape->object);
    for (int32_t i = 0; i < c->n_choices; i++)
        c->shape->choice(c, &c->choices[i], out);
    rg_out_close(out, ']');
    rg_write_usage(out, c);
    write_timings(out, c);
    if (c->shape->is_chat && json_is_true(json_object_get(c->body, "verbose")))
        write_prompt(out, c);
    if (c->shape->is_chat && c->f.prompt_logprobs >= 0)
        rg_write_prompt_logprobs(out, c, 0);
    if (c->shape->is_chat)
        rg_write_prompt_ids(out, c, 0);
    rg_out_close(out, '}');
}

/* ---- responses and messages: events that say their type twice ---------------------------------------------------- */

void rg_typed_event_open(rg_buf *b, const rg_call *c, const char *type)
{
    rg_event_open(b, c->family, type);
    rg_out_open(b, NULL, '{');
    rg_out_text(b, "type", type);
}

void rg_typed_event_close(rg_buf *b, const rg_call *c)
{
    rg_out_close(b, '}');
    rg_event_close(b, c->family);
}
