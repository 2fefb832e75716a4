/* api_chat.c -- POST /v1/chat/completions, and /apply-template, which shows the prompt that it would make. */
#include <string.h>

#include "base/mem.h"
#include "server/call.h"
#include "server/conversation.h"

static void open_chunk(const rg_call *c, rg_buf *b, const char *object)
{
    rg_out_open(b, NULL, '{');
    rg_out_text(b, "id", c->id);
    rg_out_text(b, "object", object);
    rg_out_int(b, "created", c->created_s);
    rg_out_text(b, "model", c->server->o.model);
    rg_out_open(b, "choices", '[');
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

/* token, its bytes and its log-probability. */
static void write_token(rg_buf *b, const rg_call *c, int32_t id, float logprob)
{
    size_t n = 0;
    char *s = rg_decode(c->server->engine, &id, 1, false, &n, NULL);

    rg_out_string(b, "token", s ? s : "", s ? n : 0);
    rg_out_real(b, "logprob", (double)logprob);
    rg_out_open(b, "bytes", '[');
    for (size_t i = 0; s && i < n; i++)
        rg_out_int(b, NULL, (unsigned char)s[i]);
    rg_out_close(b, ']');
    rg_text_free(s);
}

static void write_logprobs(rg_buf *b, const rg_call *c, rg_choice *ch)
{
    size_t n = rg_choice_n_logprobs(ch);

    if (c->f.n_logprobs < 0) {
        rg_out_null(b, "logprobs");
        return;
    }
    rg_out_open(b, "logprobs", '{');
    rg_out_open(b, "content", '[');
    for (; ch->sent_logprobs < n; ch->sent_logprobs++) {
        const rg_logprob *l = rg_choice_logprob(ch, ch->sent_logprobs);
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
    rg_out_close(b, ']');
    rg_out_null(b, "refusal");
    rg_out_close(b, '}');
}

static void write_calls(rg_buf *b, const rg_call *c, rg_choice *ch, bool numbered)
{
    int n = c->f.parallel_tools ? ch->answer.n_calls : ch->answer.n_calls > 1 ? 1 : ch->answer.n_calls;

    rg_out_open(b, "tool_calls", '[');
    for (; ch->sent_calls < n; ch->sent_calls++) {
        const rg_tool_call *t = &ch->answer.call[ch->sent_calls];
        rg_out_open(b, NULL, '{');
        if (numbered)
            rg_out_int(b, "index", ch->sent_calls);
        rg_out_text(b, "id", t->id);
        rg_out_text(b, "type", "function");
        rg_out_open(b, "function", '{');
        rg_out_text(b, "name", t->name);
        rg_out_text(b, "arguments", t->arguments);
        rg_out_close(b, '}');
        rg_out_close(b, '}');
    }
    ch->sent_calls = ch->answer.n_calls;
    rg_out_close(b, ']');
}

/* ---- the shape --------------------------------------------------------------------------------------------------- */

static void open_delta(rg_call *c, rg_choice *ch, rg_buf *out)
{
    rg_event_open(out, NULL);
    open_chunk(c, out, "chat.completion.chunk");
    rg_out_open(out, NULL, '{');
    rg_out_int(out, "index", ch->index);
    rg_out_open(out, "delta", '{');
}

static void close_delta(rg_call *c, rg_choice *ch, rg_buf *out, const char *finish)
{
    rg_out_close(out, '}');
    write_logprobs(out, c, ch);
    rg_out_text(out, "finish_reason", finish);
    if (finish)
        rg_out_text(out, "stop_reason", ch->finish == RG_FINISH_DEADLINE ? "deadline" : NULL);
    rg_out_close(out, '}');
    rg_out_close(out, ']');
    if (c->f.include_usage)
        rg_out_null(out, "usage");
    rg_out_close(out, '}');
    rg_event_close(out);
}

static void start(rg_call *c, rg_buf *out)
{
    for (int32_t i = 0; i < c->n_choices; i++) {
        open_delta(c, &c->choices[i], out);
        rg_out_text(out, "role", "assistant");
        rg_out_text(out, "content", "");
        close_delta(c, &c->choices[i], out, NULL);
    }
}

static void delta(rg_call *c, rg_choice *ch, rg_buf *out)
{
    const rg_answer *a = &ch->answer;
    bool reasoning = c->f.include_reasoning && a->reasoning.n > ch->sent_reasoning;
    bool content = a->content.n > ch->sent_content, calls = a->n_calls > ch->sent_calls;

    if (reasoning || content || calls) {
        open_delta(c, ch, out);
        if (reasoning)
            rg_out_string(out, "reasoning_content", a->reasoning.data + ch->sent_reasoning,
                           a->reasoning.n - ch->sent_reasoning);
        if (content)
            rg_out_string(out, "content", a->content.data + ch->sent_content, a->content.n - ch->sent_content);
        if (calls)
            write_calls(out, c, ch, true);
        close_delta(c, ch, out, NULL);
    }
    ch->sent_reasoning = a->reasoning.n;
    ch->sent_content = a->content.n;
    if (ch->finish != RG_RUNNING) {
        open_delta(c, ch, out);
        close_delta(c, ch, out, rg_finish_word(ch));
    }
}

static void stop(rg_call *c, rg_buf *out)
{
    if (c->f.include_usage) {
        rg_event_open(out, NULL);
        open_chunk(c, out, "chat.completion.chunk");
        rg_out_close(out, ']');
        rg_write_usage(out, c);
        rg_out_close(out, '}');
        rg_event_close(out);
    }
    rg_buf_str(out, "data: [DONE]\n\n");
}

static void fail(rg_call *c, const rg_refusal *e, rg_buf *out)
{
    rg_event_open(out, NULL);
    rg_refusal_write(out, c->x, e);
    rg_event_close(out);
    rg_buf_str(out, "data: [DONE]\n\n");
}

static void write_message(rg_buf *out, rg_call *c, rg_choice *ch)
{
    const rg_answer *a = &ch->answer;

    rg_out_open(out, "message", '{');
    rg_out_text(out, "role", "assistant");
    if (a->content.n || !a->n_calls)
        rg_out_string(out, "content", a->content.data ? a->content.data : "", a->content.n);
    else
        rg_out_null(out, "content");
    rg_out_null(out, "refusal");
    if (a->reasoning.n && c->f.include_reasoning)
        rg_out_string(out, "reasoning_content", a->reasoning.data, a->reasoning.n);
    if (a->n_calls)
        write_calls(out, c, ch, false);
    rg_out_close(out, '}');
}

static void whole(rg_call *c, rg_buf *out)
{
    open_chunk(c, out, "chat.completion");
    for (int32_t i = 0; i < c->n_choices; i++) {
        rg_choice *ch = &c->choices[i];
        rg_out_open(out, NULL, '{');
        rg_out_int(out, "index", ch->index);
        write_message(out, c, ch);
        write_logprobs(out, c, ch);
        rg_out_text(out, "finish_reason", rg_finish_word(ch));
        rg_out_text(out, "stop_reason", ch->finish == RG_FINISH_DEADLINE ? "deadline" : NULL);
        rg_out_close(out, '}');
    }
    rg_out_close(out, ']');
    rg_write_usage(out, c);
    rg_out_close(out, '}');
}

static const rg_shape shape = { .id_prefix = "chatcmpl-", .is_chat = true, .start = start, .delta = delta, .stop = stop,
                                .fail = fail, .whole = whole };

/* ---- the request ------------------------------------------------------------------------------------------------- */

/* The conversation that a body describes; NULL and *e.  *tools: what is offered. */
static json_t *read_conversation(const json_t *body, const char *effort, json_t **tools, rg_refusal *e)
{
    const json_t *kwargs = json_object_get(body, "chat_template_kwargs");
    json_t *messages = rg_messages_read(json_object_get(body, "messages"), e), *all;

    *tools = NULL;
    if (!messages)
        return NULL;
    if (!rg_tools_read(json_object_get(body, "tools"), json_object_get(body, "tool_choice"), tools, e)) {
        json_decref(messages);
        return NULL;
    }
    all = rg_conversation_new(messages, *tools, kwargs, e);
    if (all && effort && !json_object_get(all, "reasoning_effort"))
        json_object_set_new(all, "reasoning_effort", json_string(effort));
    return all;
}

void rg_api_chat(rg_server *s, rg_exchange *x)
{
    rg_refusal e = { 0 };
    rg_call *c = rg_call_new(s, x, &shape, RG_API_CHAT, &e);
    json_t *conversation = c ? read_conversation(c->body, c->f.effort, &c->tools, &e) : NULL;
    bool ok = conversation && rg_call_add_chat(c, conversation, &e) && rg_call_start(c, &e);

    json_decref(conversation);
    if (ok)
        return;
    rg_call_free(c);
    rg_reply_refusal(s, x, &e);
}

void rg_api_apply_template(rg_server *s, rg_exchange *x)
{
    rg_refusal e = { 0 };
    rg_error err = { 0 };
    json_t *body = rg_read_object(x, &e), *tools = NULL;
    json_t *conversation = body ? read_conversation(body, NULL, &tools, &e) : NULL;
    char *json = conversation ? rg_body_dump(conversation) : NULL, *text = NULL;
    const json_t *generate = json_object_get(body, "add_generation_prompt");
    rg_chat_options o = { .no_generation_prompt = json_is_false(generate) };
    int32_t *ids = NULL;
    size_t n = 0;

    if (json && rg_chat_encode(s->engine, json, strlen(json), &o, &ids, &n, &text, &err)) {
        rg_buf out;
        rg_buf_init(&out, (size_t)1 << 28);
        rg_out_open(&out, NULL, '{');
        rg_out_text(&out, "prompt", text);
        rg_out_int(&out, "count", (int64_t)n);
        rg_out_close(&out, '}');
        rg_reply_json(s, x, &out);
    } else {
        if (json && err.code == RG_E_INPUT)
            rg_refuse_field(&e, "messages", "The model's chat template does not take this conversation.");
        else if (json)
            rg_refuse_engine(s, &e, &err);
        else if (!e.status)
            rg_refuse_memory(&e);
        rg_reply_refusal(s, x, &e);
    }
    rg_ids_free(ids);
    rg_text_free(text);
    rg_free(json);
    json_decref(conversation);
    json_decref(tools);
    json_decref(body);
}
