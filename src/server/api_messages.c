/* api_messages.c -- POST /v1/messages and its token count, as Anthropic's clients speak: an answer is a list of blocks
 * (thinking, text, tool_use), streamed as named events. */
#include <string.h>

#include "base/mem.h"
#include "server/call.h"
#include "server/conversation.h"

enum { NO_BLOCK, THINKING_BLOCK, TEXT_BLOCK };

static const char *stop_word(const rg_choice *ch)
{
    const char *word = rg_finish_word(ch);

    return !strcmp(word, "length") ? "max_tokens" : !strcmp(word, "tool_calls") ? "tool_use" : "end_turn";
}

/* Their input_tokens are those that were not cached. */
static void write_usage(rg_buf *b, const rg_call *c, bool done)
{
    rg_totals t = rg_call_totals(c);

    rg_out_open(b, "usage", '{');
    rg_out_int(b, "input_tokens", done ? t.n_prompt - t.n_cached : (int64_t)c->prompts[0].n);
    rg_out_int(b, "cache_creation_input_tokens", 0);
    rg_out_int(b, "cache_read_input_tokens", done ? t.n_cached : 0);
    rg_out_int(b, "output_tokens", done ? t.n_output : 0);
    rg_out_close(b, '}');
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static void write_text_block(rg_buf *b, const char *key, bool thinking, const char *s, size_t n)
{
    rg_out_open(b, key, '{');
    rg_out_text(b, "type", thinking ? "thinking" : "text");
    rg_out_string(b, thinking ? "thinking" : "text", s, n);
    if (thinking)
        rg_out_text(b, "signature", "");
    rg_out_close(b, '}');
}

/* What a model gave as arguments may be no object; their clients want one. */
static void write_tool_block(rg_buf *b, const char *key, const rg_tool_call *t, bool whole)
{
    json_t *input = whole ? json_loads(t->arguments, JSON_ALLOW_NUL, NULL) : NULL;

    rg_out_open(b, key, '{');
    rg_out_text(b, "type", "tool_use");
    rg_out_text(b, "id", t->id);
    rg_out_text(b, "name", t->name);
    if (json_is_object(input))
        rg_out_value(b, "input", input);
    else
        rg_out_raw(b, "input", "{}", 2);
    rg_out_close(b, '}');
    json_decref(input);
}

static void open_message(rg_buf *b, const rg_call *c, const char *key)
{
    rg_out_open(b, key, '{');
    rg_out_text(b, "id", c->id);
    rg_out_text(b, "type", "message");
    rg_out_text(b, "role", "assistant");
    rg_out_text(b, "model", c->server->o.model);
    rg_out_open(b, "content", '[');
}

static void close_message(rg_buf *b, const rg_call *c, bool done)
{
    rg_out_close(b, ']');
    rg_out_text(b, "stop_reason", done ? stop_word(&c->choices[0]) : NULL);
    rg_out_null(b, "stop_sequence");
    write_usage(b, c, done);
    rg_out_close(b, '}');
}

/* ---- the shape --------------------------------------------------------------------------------------------------- */

static void open_event(rg_buf *out, const char *type)
{
    rg_event_open(out, type);
    rg_out_open(out, NULL, '{');
    rg_out_text(out, "type", type);
}

static void close_event(rg_buf *out)
{
    rg_out_close(out, '}');
    rg_event_close(out);
}

static void start(rg_call *c, rg_buf *out)
{
    open_event(out, "message_start");
    open_message(out, c, "message");
    close_message(out, c, false);
    close_event(out);
}

static void close_block(rg_choice *ch, rg_buf *out)
{
    if (ch->part == NO_BLOCK)
        return;
    open_event(out, "content_block_stop");
    rg_out_int(out, "index", ch->n_parts++);
    close_event(out);
    ch->part = NO_BLOCK;
}

static void send_text(rg_choice *ch, rg_buf *out, int part, const rg_buf *text, size_t *sent)
{
    bool thinking = part == THINKING_BLOCK;

    if (text->n == *sent)
        return;
    if (ch->part != part) {
        close_block(ch, out);
        ch->part = part;
        open_event(out, "content_block_start");
        rg_out_int(out, "index", ch->n_parts);
        write_text_block(out, "content_block", thinking, "", 0);
        close_event(out);
    }
    open_event(out, "content_block_delta");
    rg_out_int(out, "index", ch->n_parts);
    rg_out_open(out, "delta", '{');
    rg_out_text(out, "type", thinking ? "thinking_delta" : "text_delta");
    rg_out_string(out, thinking ? "thinking" : "text", text->data + *sent, text->n - *sent);
    rg_out_close(out, '}');
    close_event(out);
    *sent = text->n;
}

static void send_call(rg_choice *ch, rg_buf *out, const rg_tool_call *t)
{
    close_block(ch, out);
    open_event(out, "content_block_start");
    rg_out_int(out, "index", ch->n_parts);
    write_tool_block(out, "content_block", t, false);
    close_event(out);
    open_event(out, "content_block_delta");
    rg_out_int(out, "index", ch->n_parts);
    rg_out_open(out, "delta", '{');
    rg_out_text(out, "type", "input_json_delta");
    rg_out_text(out, "partial_json", t->arguments);
    rg_out_close(out, '}');
    close_event(out);
    ch->part = TEXT_BLOCK; /* any: it is open, and closed like the others */
    close_block(ch, out);
}

static void delta(rg_call *c, rg_choice *ch, rg_buf *out)
{
    (void)c;
    send_text(ch, out, THINKING_BLOCK, &ch->answer.reasoning, &ch->sent_reasoning);
    send_text(ch, out, TEXT_BLOCK, &ch->answer.content, &ch->sent_content);
    for (; ch->sent_calls < ch->answer.n_calls; ch->sent_calls++)
        send_call(ch, out, &ch->answer.call[ch->sent_calls]);
    if (ch->finish != RG_RUNNING)
        close_block(ch, out);
}

static void stop(rg_call *c, rg_buf *out)
{
    open_event(out, "message_delta");
    rg_out_open(out, "delta", '{');
    rg_out_text(out, "stop_reason", stop_word(&c->choices[0]));
    rg_out_null(out, "stop_sequence");
    rg_out_close(out, '}');
    write_usage(out, c, true);
    close_event(out);
    open_event(out, "message_stop");
    close_event(out);
}

static void fail(rg_call *c, const rg_refusal *e, rg_buf *out)
{
    rg_event_open(out, "error");
    rg_refusal_write(out, c->x, e);
    rg_event_close(out);
}

static void whole(rg_call *c, rg_buf *out)
{
    const rg_answer *a = &c->choices[0].answer;

    open_message(out, c, NULL);
    if (a->reasoning.n)
        write_text_block(out, NULL, true, a->reasoning.data, a->reasoning.n);
    if (a->content.n || !a->n_calls)
        write_text_block(out, NULL, false, a->content.data, a->content.n);
    for (int i = 0; i < a->n_calls; i++)
        write_tool_block(out, NULL, &a->call[i], true);
    close_message(out, c, true);
}

static const rg_shape shape = { .id_prefix = "msg_", .is_chat = true, .start = start, .delta = delta, .stop = stop,
                                .fail = fail, .whole = whole };

/* ---- the request ------------------------------------------------------------------------------------------------- */

/* {type: enabled|disabled|adaptive}: a variable that many templates read. */
static bool read_thinking(const json_t *body, json_t *conversation, rg_refusal *e)
{
    const json_t *v = json_object_get(body, "thinking"), *budget = json_object_get(v, "budget_tokens");
    const char *type = json_string_value(json_object_get(v, "type"));

    if (!v || json_is_null(v))
        return true;
    if (!type || (strcmp(type, "enabled") != 0 && strcmp(type, "disabled") != 0 && strcmp(type, "adaptive") != 0))
        return rg_refuse_field(e, "thinking", "'thinking.type' must be one of enabled|disabled|adaptive.");
    if (budget && (!json_is_integer(budget) || json_integer_value(budget) < 1))
        return rg_refuse_field(e, "thinking", "'thinking.budget_tokens' must be an integer above 0.");
    json_object_set_new(conversation, "enable_thinking", json_boolean(strcmp(type, "disabled") != 0));
    return true;
}

static json_t *read_conversation(const json_t *body, json_t **tools, rg_refusal *e)
{
    json_t *messages, *all;

    *tools = NULL;
    if (!rg_anthropic_tools_read(json_object_get(body, "tools"), json_object_get(body, "tool_choice"), tools, e))
        return NULL;
    messages = rg_blocks_read(json_object_get(body, "messages"), json_object_get(body, "system"), e);
    all = messages ? rg_conversation_new(messages, *tools, NULL, e) : NULL;
    if (all && !read_thinking(body, all, e)) {
        json_decref(all);
        return NULL;
    }
    return all;
}

void rg_api_messages(rg_server *s, rg_exchange *x)
{
    rg_refusal e = { 0 };
    rg_call *c = rg_call_new(s, x, &shape, RG_API_MESSAGES, &e);
    json_t *conversation = NULL;
    bool ok = c && (c->f.max_tokens != RG_NOT_GIVEN ||
                    rg_refuse_field(&e, "max_tokens", "'max_tokens' must be given: an integer above 0."));

    conversation = ok ? read_conversation(c->body, &c->tools, &e) : NULL;
    ok = conversation && rg_call_add_chat(c, conversation, &e) && rg_call_start(c, &e);
    json_decref(conversation);
    if (ok)
        return;
    rg_call_free(c);
    rg_reply_refusal(s, x, &e);
}

void rg_api_count_tokens(rg_server *s, rg_exchange *x)
{
    rg_refusal e = { 0 };
    rg_error err = { 0 };
    json_t *body = rg_read_object(x, &e), *tools = NULL;
    json_t *conversation = body ? read_conversation(body, &tools, &e) : NULL;
    char *json = conversation ? rg_body_dump(conversation) : NULL;
    rg_chat_options o = { 0 };
    int32_t *ids = NULL;
    size_t n = 0;

    if (json && rg_chat_encode(s->engine, json, strlen(json), &o, &ids, &n, NULL, &err)) {
        rg_buf out;
        rg_buf_init(&out, 4096);
        rg_out_open(&out, NULL, '{');
        rg_out_int(&out, "input_tokens", (int64_t)n);
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
    rg_free(json);
    json_decref(conversation);
    json_decref(tools);
    json_decref(body);
}
