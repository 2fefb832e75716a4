/* chat.c -- POST /v1/chat/completions, and /apply-template, which shows the prompt that it would make. */
#include "server/call.h"

/* ---- parts ------------------------------------------------------------------------------------------------------- */

static void write_logprobs(rg_buf *b, const rg_call *c, rg_choice *ch)
{
    size_t n = rg_choice_n_logprobs(ch);

    if (c->f.n_logprobs < 0) {
        rg_out_null(b, "logprobs");
        return;
    }
    rg_out_open(b, "logprobs", '{');
    rg_out_open(b, "content", '[');
    for (; ch->sent_logprobs < n; ch->sent_logprobs++)
        rg_write_logprob(b, c, ch, ch->sent_logprobs);
    rg_out_close(b, ']');
    rg_out_null(b, "refusal");
    rg_out_close(b, '}');
}

static bool is_custom(const rg_call *c, const rg_tool_call *t)
{
    return rg_call_kind(c, t)->says == RG_SAYS_INPUT;
}

/* A call of a custom tool is written whole, when it is over: a part of its arguments can end within an escape of the
 * input. */
static void write_custom_call(rg_buf *b, const rg_call *c, rg_choice *ch, int i, bool numbered)
{
    const rg_tool_call *t = &ch->answer.call[i];

    rg_out_open(b, NULL, '{');
    if (numbered)
        rg_out_int(b, "index", i);
    rg_out_text(b, "id", t->id);
    rg_out_text(b, "type", "custom");
    rg_out_open(b, "custom", '{');
    rg_out_text(b, "name", t->name);
    rg_tool_kind_write(b, rg_call_kind(c, t), rg_call_arguments(t), t->cut);
    rg_out_close(b, '}');
    rg_out_close(b, '}');
    ch->sent_arguments = t->arguments.n;
    ch->call_open = true;
}

/* A call whole, or, numbered, what of it was not sent yet. */
static void write_call(rg_buf *b, rg_choice *ch, int i, bool numbered)
{
    const rg_tool_call *t = &ch->answer.call[i];

    rg_out_open(b, NULL, '{');
    if (numbered)
        rg_out_int(b, "index", i);
    if (!ch->call_open) {
        rg_out_text(b, "id", t->id);
        rg_out_text(b, "type", "function");
    }
    rg_out_open(b, "function", '{');
    if (!ch->call_open)
        rg_out_text(b, "name", t->name);
    rg_out_string(b, "arguments", rg_call_arguments(t) + ch->sent_arguments, t->arguments.n - ch->sent_arguments);
    rg_out_close(b, '}');
    rg_out_close(b, '}');
    ch->sent_arguments = t->arguments.n;
    ch->call_open = true;
}

/* Calls that have something to be written; a custom one only when it is over. */
static int n_writable(const rg_call *c, const rg_choice *ch)
{
    int n = rg_choice_n_calls(c, ch);
    const rg_tool_call *last = n ? &ch->answer.call[n - 1] : NULL;

    return n - (last && is_custom(c, last) && !rg_call_is_over(ch, last));
}

static void write_calls(rg_buf *b, const rg_call *c, rg_choice *ch, bool numbered)
{
    rg_out_open(b, "tool_calls", '[');
    while (ch->sent_calls < n_writable(c, ch)) {
        const rg_tool_call *t = &ch->answer.call[ch->sent_calls];
        if (is_custom(c, t))
            write_custom_call(b, c, ch, ch->sent_calls, numbered);
        else if (!ch->call_open || t->arguments.n > ch->sent_arguments)
            write_call(b, ch, ch->sent_calls, numbered);
        if (!rg_call_is_over(ch, t))
            break;
        ch->sent_calls++;
        ch->sent_arguments = 0;
        ch->call_open = false;
    }
    rg_out_close(b, ']');
}

/* There is more of the calls than was sent. */
static bool has_calls(const rg_call *c, const rg_choice *ch)
{
    int n = n_writable(c, ch);

    return n > ch->sent_calls + ch->call_open ||
           (n > ch->sent_calls && ch->answer.call[ch->sent_calls].arguments.n > ch->sent_arguments);
}

/* ---- the shape --------------------------------------------------------------------------------------------------- */

static void open_delta(rg_call *c, rg_choice *ch, rg_buf *out)
{
    rg_chunk_open(out, c);
    rg_out_open(out, NULL, '{');
    rg_out_int(out, "index", ch->index);
    rg_out_open(out, "delta", '{');
}

static void close_delta(rg_call *c, rg_choice *ch, rg_buf *out, bool last)
{
    rg_out_close(out, '}');
    write_logprobs(out, c, ch);
    rg_write_token_ids(out, c, ch);
    if (last)
        rg_write_finish(out, c, ch);
    else
        rg_out_null(out, "finish_reason");
    rg_out_close(out, '}');
    if (ch->started) {
        rg_chunk_close(out, c);
        return;
    }
    rg_chunk_close_first(out, c);
    ch->started = true;
}

static void start(rg_call *c, rg_buf *out)
{
    for (int32_t i = 0; i < c->n_choices; i++) {
        open_delta(c, &c->choices[i], out);
        rg_out_text(out, "role", "assistant");
        rg_out_null(out, "content");
        close_delta(c, &c->choices[i], out, false);
    }
}

static void progress(rg_call *c, rg_buf *out)
{
    rg_chunk_open(out, c);
    rg_out_open(out, NULL, '{');
    rg_out_int(out, "index", 0);
    rg_out_open(out, "delta", '{');
    rg_out_close(out, '}');
    rg_out_null(out, "finish_reason");
    rg_out_close(out, '}');
    rg_chunk_close_progress(out, c);
}

static void delta(rg_call *c, rg_choice *ch, rg_buf *out)
{
    const rg_answer *a = &ch->answer;
    bool reasoning = c->f.include_reasoning && a->reasoning.n > ch->sent_reasoning;
    bool content = a->content.n > ch->sent_content, calls = has_calls(c, ch);

    if (reasoning || content || calls) {
        open_delta(c, ch, out);
        if (reasoning)
            rg_out_string(out, "reasoning_content", a->reasoning.data + ch->sent_reasoning,
                          a->reasoning.n - ch->sent_reasoning);
        if (content)
            rg_out_string(out, "content", a->content.data + ch->sent_content, a->content.n - ch->sent_content);
        if (calls)
            write_calls(out, c, ch, true);
        close_delta(c, ch, out, false);
    }
    ch->sent_reasoning = a->reasoning.n;
    ch->sent_content = a->content.n;
    if (ch->finish != RG_RUNNING) {
        open_delta(c, ch, out);
        close_delta(c, ch, out, true);
    }
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

static void choice(rg_call *c, rg_choice *ch, rg_buf *out)
{
    rg_out_open(out, NULL, '{');
    rg_out_int(out, "index", ch->index);
    write_message(out, c, ch);
    write_logprobs(out, c, ch);
    rg_write_token_ids(out, c, ch);
    rg_write_finish(out, c, ch);
    rg_out_close(out, '}');
}

/* ---- the request ------------------------------------------------------------------------------------------------- */

/* continue_final_message: the answer goes on from the last message, and no message is opened for it. */
static bool read_continue(const json_t *body, rg_conversation *talk, rg_refusal *e)
{
    static const char name[] = "continue_final_message";
    const json_t *v = json_object_get(body, name);

    if (!v || json_is_null(v) || json_is_false(v))
        return true;
    if (!json_is_true(v))
        return rg_refuse_field(e, name, "'%s' must be true or false.", name);
    if (json_is_true(json_object_get(body, "add_generation_prompt")))
        return rg_refuse_field(e, name, "'%s' and 'add_generation_prompt' cannot both be true.", name);
    if (talk->must)
        return rg_refuse_field(e, name, "'%s' cannot be had with a 'tool_choice' that asks for a call.", name);
    talk->continued = rg_conversation_can_continue(talk->all);
    return talk->continued ||
           rg_refuse_field(e, name, "'%s' needs a last message of the assistant without tool_calls.", name);
}

bool rg_chat_conversation(const json_t *body, rg_conversation *talk, rg_refusal *e)
{
    const json_t *kwargs = json_object_get(body, "chat_template_kwargs");
    json_t *effort = json_object_get(body, "reasoning_effort"), *messages;

    if (!effort) /* as OpenRouter has it */
        effort = json_object_get(json_object_get(body, "reasoning"), "effort");

    if (!rg_tools_read(body, talk, e))
        return false;
    messages = rg_messages_read(json_object_get(body, "messages"), e);
    talk->all = messages ? rg_conversation_new(messages, talk->tools, kwargs, e) : NULL;
    if (talk->all && json_is_string(effort) && !json_object_get(talk->all, "reasoning_effort"))
        json_object_set(talk->all, "reasoning_effort", effort);
    return talk->all && read_continue(body, talk, e);
}

static bool read_request(rg_call *c, rg_refusal *e)
{
    return rg_call_read_chat(c, rg_chat_conversation, e);
}

static const rg_shape shape = {
    .api = RG_API_CHAT,
    .id_prefix = "chatcmpl-",
    .input = "messages",
    .is_chat = true,
    .read = read_request,
    .object = "chat.completion",
    .chunk = "chat.completion.chunk",
    .choice = choice,
    .start = start,
    .delta = delta,
    .progress = progress,
    .stop = rg_chunks_stop,
    .fail = rg_chunks_fail,
    .whole = rg_choices_whole,
};

void rg_api_chat(rg_served *s, rg_exchange *x)
{
    rg_call_answer(s, x, &shape);
}

static void write_prompt(rg_buf *out, const rg_rendered *r)
{
    rg_out_text(out, "prompt", r->text);
    rg_out_int(out, "count", (int64_t)r->n);
}

void rg_api_apply_template(rg_served *s, rg_exchange *x)
{
    rg_reply_rendered(s, x, rg_chat_conversation, write_prompt);
}

static void write_n(rg_buf *out, const rg_rendered *r)
{
    rg_out_text(out, "object", "response.input_tokens");
    rg_out_int(out, "input_tokens", (int64_t)r->n);
}

void rg_api_chat_input_tokens(rg_served *s, rg_exchange *x)
{
    rg_reply_rendered(s, x, rg_chat_conversation, write_n);
}
