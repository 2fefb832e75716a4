/* api_responses.c -- POST /v1/responses: an answer is a list of items (reasoning, message, calls), streamed as numbered
 * events that open, fill and close each.  Nothing is stored, so there is no previous response. */
#include <stdio.h>
#include <string.h>

#include "server/call.h"

/* What item is open while streaming; a choice's part. */
enum { NO_ITEM, REASONING_ITEM, MESSAGE_ITEM };

/* ---- items ------------------------------------------------------------------------------------------------------- */

static void write_id_of(rg_buf *b, const rg_call *c, const char *key, const char *prefix, int item)
{
    char id[80];

    snprintf(id, sizeof id, "%s_%s%d", prefix, c->id + strlen("resp_"), item);
    rg_out_text(b, key, id);
}

/* Of the message's tokens from this one on; tokens of the reasoning are not the message's. */
static void write_logprobs(rg_buf *b, const rg_call *c, const rg_choice *ch, size_t from)
{
    size_t first = (size_t)ch->n_reasoning;

    rg_out_open(b, "logprobs", '[');
    for (size_t i = from > first ? from : first; i < rg_choice_n_logprobs(ch); i++)
        rg_write_logprob(b, c, ch, i);
    rg_out_close(b, ']');
}

/* Of a reasoning or message item; empty until it is done. */
static void write_part(rg_buf *b, const rg_call *c, const rg_choice *ch, const char *key, int kind, bool done)
{
    const rg_buf *text = kind == REASONING_ITEM ? &ch->answer.reasoning : &ch->answer.content;

    rg_out_open(b, key, '{');
    rg_out_text(b, "type", kind == REASONING_ITEM ? "reasoning_text" : "output_text");
    rg_out_string(b, "text", done ? text->data : "", done ? text->n : 0);
    if (kind == MESSAGE_ITEM) {
        rg_out_open(b, "annotations", '[');
        rg_out_close(b, ']');
        write_logprobs(b, c, ch, done ? 0 : SIZE_MAX);
    }
    rg_out_close(b, '}');
}

/* A reasoning or message item: empty when it is opened, whole when it is done. */
static void write_item(rg_buf *b, const rg_call *c, const rg_choice *ch, const char *key, int kind, int item, bool done)
{
    rg_out_open(b, key, '{');
    rg_out_text(b, "type", kind == REASONING_ITEM ? "reasoning" : "message");
    write_id_of(b, c, "id", kind == REASONING_ITEM ? "rs" : "msg", item);
    rg_out_text(b, "status", !done ? "in_progress" : rg_finish_is_cut(ch) ? "incomplete" : "completed");
    if (kind == REASONING_ITEM) {
        rg_out_open(b, "summary", '[');
        rg_out_close(b, ']');
    } else {
        rg_out_text(b, "role", "assistant");
    }
    rg_out_open(b, "content", '[');
    if (done)
        write_part(b, c, ch, NULL, kind, true);
    rg_out_close(b, ']');
    rg_out_close(b, '}');
}

static void write_call(rg_buf *b, const rg_call *c, const char *key, const rg_tool_call *t, int item, bool done)
{
    rg_out_open(b, key, '{');
    rg_out_text(b, "type", "function_call");
    write_id_of(b, c, "id", "fc", item);
    rg_out_text(b, "call_id", t->id);
    rg_out_text(b, "name", t->name);
    rg_out_text(b, "arguments", done ? rg_call_arguments(t) : "");
    rg_out_text(b, "status", !done ? "in_progress" : t->cut ? "incomplete" : "completed");
    rg_out_close(b, '}');
}

static void write_output(rg_buf *b, const rg_call *c, const rg_choice *ch)
{
    int item = 0;

    rg_out_open(b, "output", '[');
    if (ch->answer.reasoning.n)
        write_item(b, c, ch, NULL, REASONING_ITEM, item++, true);
    if (ch->answer.content.n || !ch->answer.n_calls)
        write_item(b, c, ch, NULL, MESSAGE_ITEM, item++, true);
    for (int i = 0; i < rg_choice_n_calls(c, ch); i++)
        write_call(b, c, NULL, &ch->answer.call[i], item++, true);
    rg_out_close(b, ']');
}

/* ---- the response object ----------------------------------------------------------------------------------------- */

static void write_text_settings(rg_buf *b, const json_t *text)
{
    static const char plain[] = "{\"type\":\"text\"}";
    const json_t *format = json_object_get(text, "format"), *verbosity = json_object_get(text, "verbosity");

    rg_out_open(b, "text", '{');
    if (json_is_object(format))
        rg_out_value(b, "format", format);
    else
        rg_out_raw(b, "format", plain, strlen(plain));
    if (json_is_string(verbosity))
        rg_out_value(b, "verbosity", verbosity);
    rg_out_close(b, '}');
}

static void write_settings(rg_buf *b, const rg_call *c)
{
    rg_sampling s = rg_fields_sampling(&c->f, &c->server->info.sampling);
    const json_t *effort = json_object_get(json_object_get(c->body, "reasoning"), "effort");
    const json_t *choice = json_object_get(c->body, "tool_choice");

    rg_out_value(b, "instructions", json_object_get(c->body, "instructions"));
    if (c->f.max_completion_tokens != RG_NOT_GIVEN && c->f.max_completion_tokens != RG_UNLIMITED)
        rg_out_int(b, "max_output_tokens", c->f.max_completion_tokens);
    else
        rg_out_null(b, "max_output_tokens");
    rg_out_value(b, "metadata", json_object_get(c->body, "metadata"));
    rg_out_bool(b, "parallel_tool_calls", c->f.parallel_tools);
    rg_out_null(b, "previous_response_id");
    rg_out_open(b, "reasoning", '{');
    rg_out_value(b, "effort", effort);
    rg_out_null(b, "summary");
    rg_out_close(b, '}');
    rg_out_bool(b, "store", false);
    rg_out_real(b, "temperature", round(1e6 * (double)s.temperature) / 1e6); /* 0.7, not what a float makes of it */
    write_text_settings(b, json_object_get(c->body, "text"));
    if (choice && !json_is_null(choice))
        rg_out_value(b, "tool_choice", choice);
    else
        rg_out_text(b, "tool_choice", c->tools ? "auto" : "none");
    if (json_is_array(json_object_get(c->body, "tools")))
        rg_out_value(b, "tools", json_object_get(c->body, "tools"));
    else
        rg_out_raw(b, "tools", "[]", 2);
    rg_out_real(b, "top_p", round(1e6 * (double)s.top_p) / 1e6);
    rg_out_text(b, "truncation", "disabled");
    rg_out_text(b, "user", c->f.user);
}

static void write_usage(rg_buf *b, const rg_call *c)
{
    rg_totals t = rg_call_totals(c);

    rg_out_open(b, "usage", '{');
    rg_out_int(b, "input_tokens", t.n_prompt);
    rg_out_open(b, "input_tokens_details", '{');
    rg_out_int(b, "cached_tokens", t.n_cached);
    rg_out_text(b, "uncached_reason", t.uncached);
    rg_out_close(b, '}');
    rg_out_int(b, "output_tokens", t.n_output);
    rg_out_open(b, "output_tokens_details", '{');
    rg_out_int(b, "reasoning_tokens", t.n_reasoning);
    rg_out_close(b, '}');
    rg_out_int(b, "total_tokens", t.n_prompt + t.n_output);
    rg_out_close(b, '}');
}

static void write_response(rg_buf *b, const rg_call *c, const char *key, bool done, const rg_refusal *e)
{
    const rg_choice *ch = &c->choices[0];
    bool cut = done && rg_finish_is_cut(ch);

    rg_out_open(b, key, '{');
    rg_out_text(b, "id", c->id);
    rg_out_text(b, "object", "response");
    rg_out_int(b, "created_at", c->created_s);
    rg_out_text(b, "status", e ? "failed" : !done ? "in_progress" : cut ? "incomplete" : "completed");
    rg_out_bool(b, "background", false);
    if (e) {
        rg_out_open(b, "error", '{');
        rg_out_text(b, "code", "server_error");
        rg_out_text(b, "message", e->text);
        rg_out_close(b, '}');
    } else {
        rg_out_null(b, "error");
    }
    if (cut) {
        rg_out_open(b, "incomplete_details", '{');
        rg_out_text(b, "reason", ch->finish == RG_FINISH_DEADLINE ? "deadline" : "max_output_tokens");
        rg_out_close(b, '}');
    } else {
        rg_out_null(b, "incomplete_details");
    }
    rg_out_text(b, "model", rg_call_model(c));
    if (done)
        write_output(b, c, ch);
    else
        rg_out_raw(b, "output", "[]", 2);
    write_settings(b, c);
    if (done)
        write_usage(b, c);
    else
        rg_out_null(b, "usage");
    rg_out_close(b, '}');
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

static void open_event(rg_call *c, rg_buf *out, const char *type)
{
    rg_typed_event_open(out, type);
    rg_out_int(out, "sequence_number", c->sequence++);
}

static void response_event(rg_call *c, rg_buf *out, const char *type, bool done, const rg_refusal *e)
{
    open_event(c, out, type);
    write_response(out, c, "response", done, e);
    rg_typed_event_close(out);
}

/* An event about a part of the open item. */
static void open_part_event(rg_call *c, rg_choice *ch, rg_buf *out, const char *type)
{
    open_event(c, out, type);
    write_id_of(out, c, "item_id", ch->part == REASONING_ITEM ? "rs" : "msg", ch->n_parts);
    rg_out_int(out, "output_index", ch->n_parts);
    rg_out_int(out, "content_index", 0);
}

static void item_event(rg_call *c, rg_choice *ch, rg_buf *out, bool done)
{
    open_event(c, out, done ? "response.output_item.done" : "response.output_item.added");
    rg_out_int(out, "output_index", ch->n_parts);
    write_item(out, c, ch, "item", ch->part, ch->n_parts, done);
    rg_typed_event_close(out);
}

static void part_event(rg_call *c, rg_choice *ch, rg_buf *out, bool done)
{
    open_part_event(c, ch, out, done ? "response.content_part.done" : "response.content_part.added");
    write_part(out, c, ch, "part", ch->part, done);
    rg_typed_event_close(out);
}

static void close_item(rg_call *c, rg_choice *ch, rg_buf *out)
{
    bool reasoning = ch->part == REASONING_ITEM;
    const rg_buf *text = reasoning ? &ch->answer.reasoning : &ch->answer.content;

    if (ch->part == NO_ITEM)
        return;
    open_part_event(c, ch, out, reasoning ? "response.reasoning_text.done" : "response.output_text.done");
    rg_out_string(out, "text", text->data, text->n);
    if (!reasoning)
        write_logprobs(out, c, ch, 0);
    rg_typed_event_close(out);
    part_event(c, ch, out, true);
    item_event(c, ch, out, true);
    ch->part = NO_ITEM;
    ch->n_parts++;
}

static void open_item(rg_call *c, rg_choice *ch, rg_buf *out, int part)
{
    if (ch->part == part)
        return;
    close_item(c, ch, out);
    ch->part = part;
    item_event(c, ch, out, false);
    part_event(c, ch, out, false);
}

static void send_text(rg_call *c, rg_choice *ch, rg_buf *out, int part, const rg_buf *text, size_t *sent)
{
    if (text->n == *sent)
        return;
    open_item(c, ch, out, part);
    c->event_at = out->n;
    open_part_event(c, ch, out,
                    part == REASONING_ITEM ? "response.reasoning_text.delta" : "response.output_text.delta");
    rg_out_string(out, "delta", text->data + *sent, text->n - *sent);
    if (part == MESSAGE_ITEM) {
        write_logprobs(out, c, ch, ch->sent_logprobs);
        ch->sent_logprobs = rg_choice_n_logprobs(ch);
    }
    rg_write_noise(out, c);
    rg_typed_event_close(out);
    *sent = text->n;
}

static void call_item_event(rg_call *c, rg_choice *ch, rg_buf *out, const rg_tool_call *t, bool done)
{
    open_event(c, out, done ? "response.output_item.done" : "response.output_item.added");
    rg_out_int(out, "output_index", ch->n_parts);
    write_call(out, c, "item", t, ch->n_parts, done);
    rg_typed_event_close(out);
}

/* An event about the arguments of the call that is open. */
static void arguments_event(rg_call *c, rg_choice *ch, rg_buf *out, const rg_tool_call *t, bool done)
{
    const size_t from = done ? 0 : ch->sent_arguments;

    open_event(c, out, done ? "response.function_call_arguments.done" : "response.function_call_arguments.delta");
    rg_out_int(out, "output_index", ch->n_parts);
    write_id_of(out, c, "item_id", "fc", ch->n_parts);
    rg_out_string(out, done ? "arguments" : "delta", rg_call_arguments(t) + from, t->arguments.n - from);
    if (done)
        rg_out_text(out, "name", t->name);
    rg_typed_event_close(out);
}

/* What of the next call was not sent yet.  True: all of it now is. */
static bool send_call(rg_call *c, rg_choice *ch, rg_buf *out, const rg_tool_call *t)
{
    if (!ch->call_open) {
        close_item(c, ch, out);
        call_item_event(c, ch, out, t, false);
        ch->call_open = true;
    }
    if (t->arguments.n > ch->sent_arguments) {
        arguments_event(c, ch, out, t, false);
        ch->sent_arguments = t->arguments.n;
    }
    if (!rg_call_is_over(ch, t))
        return false;
    arguments_event(c, ch, out, t, true);
    call_item_event(c, ch, out, t, true);
    ch->n_parts++;
    ch->sent_calls++;
    ch->sent_arguments = 0;
    ch->call_open = false;
    return true;
}

/* ---- the shape --------------------------------------------------------------------------------------------------- */

static void start(rg_call *c, rg_buf *out)
{
    response_event(c, out, "response.created", false, NULL);
    response_event(c, out, "response.in_progress", false, NULL);
}

static void delta(rg_call *c, rg_choice *ch, rg_buf *out)
{
    if (ch->call_open && !send_call(c, ch, out, &ch->answer.call[ch->sent_calls]))
        return;
    send_text(c, ch, out, REASONING_ITEM, &ch->answer.reasoning, &ch->sent_reasoning);
    send_text(c, ch, out, MESSAGE_ITEM, &ch->answer.content, &ch->sent_content);
    while (ch->sent_calls < rg_choice_n_calls(c, ch) && send_call(c, ch, out, &ch->answer.call[ch->sent_calls]))
        ;
    if (ch->finish == RG_RUNNING)
        return;
    if (!ch->sent_content && !ch->answer.n_calls)
        open_item(c, ch, out, MESSAGE_ITEM); /* an empty answer is a message too */
    close_item(c, ch, out);
}

static void stop(rg_call *c, rg_buf *out)
{
    response_event(c, out, rg_finish_is_cut(&c->choices[0]) ? "response.incomplete" : "response.completed", true, NULL);
}

static void fail(rg_call *c, const rg_refusal *e, rg_buf *out)
{
    response_event(c, out, "response.failed", true, e);
}

static void whole(rg_call *c, rg_buf *out)
{
    write_response(out, c, NULL, true, NULL);
}

/* ---- the request ------------------------------------------------------------------------------------------------- */

/* 'include' may name only what the server can add. */
static bool read_include(rg_call *c, rg_refusal *e)
{
    const json_t *include = json_object_get(c->body, "include");
    bool logprobs = false;

    if (include && !json_is_null(include) && !json_is_array(include))
        return rg_refuse_field(e, "include", "'include' must be a list.");
    for (size_t i = 0; i < json_array_size(include); i++) {
        const char *s = json_string_value(json_array_get(include, i));
        bool is = s && !strcmp(s, "message.output_text.logprobs");

        if (!s || (!is && strcmp(s, "reasoning.encrypted_content") != 0))
            return rg_refuse(e, 400, "unsupported_value", "include", "'include' names what is not supported.");
        logprobs |= is;
    }
    if (c->f.top_logprobs > 0 && !logprobs)
        return rg_refuse_field(e, "top_logprobs", "'top_logprobs' needs 'message.output_text.logprobs' in 'include'.");
    if (logprobs)
        c->f.n_logprobs = c->f.top_logprobs == RG_NOT_GIVEN ? 0 : (int32_t)c->f.top_logprobs;
    return true;
}

static bool read_word(const json_t *v, const char *name, const char *words, rg_refusal *e)
{
    if (!v || json_is_null(v) || (json_is_string(v) && rg_one_of(words, json_string_value(v))))
        return true;
    return rg_refuse_field(e, name, "'%s' must be one of %s.", name, words);
}

static bool read_small(rg_call *c, rg_refusal *e)
{
    static const char efforts[] = "none|minimal|low|medium|high|xhigh";
    const json_t *reasoning = json_object_get(c->body, "reasoning"), *text = json_object_get(c->body, "text");

    if (reasoning && !json_is_null(reasoning) && !json_is_object(reasoning))
        return rg_refuse_field(e, "reasoning", "'reasoning' must be an object.");
    if (text && !json_is_null(text) && !json_is_object(text))
        return rg_refuse_field(e, "text", "'text' must be an object.");
    return read_word(json_object_get(reasoning, "effort"), "reasoning.effort", efforts, e) &&
           read_word(json_object_get(text, "verbosity"), "text.verbosity", "low|medium|high", e) &&
           rg_constraint_read(&c->f.constraint, json_object_get(text, "format"), "text.format", e) &&
           read_include(c, e);
}

static bool read_conversation(const json_t *body, rg_conversation *talk, rg_refusal *e)
{
    const json_t *kwargs = json_object_get(body, "chat_template_kwargs");
    json_t *effort = json_object_get(json_object_get(body, "reasoning"), "effort"), *messages;

    if (!rg_flat_tools_read(body, talk, e))
        return false;
    messages = rg_input_read(json_object_get(body, "input"), json_object_get(body, "instructions"), e);
    talk->all = messages ? rg_conversation_new(messages, talk->tools, kwargs, e) : NULL;
    if (talk->all && json_is_string(effort))
        json_object_set(talk->all, "reasoning_effort", effort);
    return talk->all;
}

static bool read_request(rg_call *c, rg_refusal *e)
{
    return read_small(c, e) && rg_call_read_chat(c, read_conversation, e);
}

static const rg_shape shape = {
    .api = RG_API_RESPONSES, .id_prefix = "resp_", .input = "input", .is_chat = true, .read = read_request,
    .start = start, .delta = delta, .stop = stop, .fail = fail, .whole = whole,
};

void rg_api_responses(rg_server *s, rg_exchange *x)
{
    rg_call_answer(s, x, &shape);
}
