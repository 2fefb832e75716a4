/* messages.c -- POST /v1/messages and its token count, as Anthropic's clients speak: an answer is a list of blocks
 * (thinking, text, tool_use), streamed as named events. */
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "server/call.h"

/* stop_reason and stop_sequence; null while it is not done. */
static void write_stop(rg_buf *b, const rg_call *c, bool done)
{
    const rg_choice *ch = &c->choices[0];
    const char *word = rg_finish_word(ch);
    bool by_text = !strcmp(word, "stop") && ch->stop >= 0;

    word = !strcmp(word, "length") ? "max_tokens" : !strcmp(word, "tool_calls") ? "tool_use" : "end_turn";
    rg_out_text(b, "stop_reason", done ? by_text ? "stop_sequence" : word : NULL);
    rg_out_text(b, "stop_sequence", done && by_text ? c->f.stop[ch->stop] : NULL);
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

/* What a model gave as arguments may be no object, or only the beginning of one; their clients want an object. */
static void write_tool_block(rg_buf *b, const char *key, const rg_tool_call *t, bool whole)
{
    char *closed = whole && t->cut ? rg_arguments_close(rg_call_arguments(t)) : NULL;
    const char *text = closed ? closed : rg_call_arguments(t);
    json_t *input = whole ? rg_json_load(text, strlen(text), JSON_ALLOW_NUL, NULL) : NULL;

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
    rg_free(closed);
}

static void open_message(rg_buf *b, const rg_call *c, const char *key)
{
    rg_out_open(b, key, '{');
    rg_out_text(b, "id", c->id);
    rg_out_text(b, "type", "message");
    rg_out_text(b, "role", "assistant");
    rg_out_text(b, "model", rg_call_model(c));
    rg_out_open(b, "content", '[');
}

static void close_message(rg_buf *b, const rg_call *c, bool done)
{
    rg_out_close(b, ']');
    write_stop(b, c, done);
    write_usage(b, c, done);
    rg_out_close(b, '}');
}

/* ---- the shape --------------------------------------------------------------------------------------------------- */

static void start(rg_call *c, rg_buf *out)
{
    rg_typed_event_open(out, c, "message_start");
    open_message(out, c, "message");
    close_message(out, c, false);
    rg_typed_event_close(out, c);
}

static const char *text_of(const rg_choice *ch, const rg_talk_part *p)
{
    const rg_buf *b = p->kind == RG_PART_REASONING ? &ch->answer.reasoning : &ch->answer.content;

    return p->n ? b->data + p->from : "";
}

/* Empty when it is opened, whole when it is done. */
static void write_block(rg_buf *b, const rg_choice *ch, const char *key, const rg_talk_part *p, bool whole)
{
    if (p->kind == RG_PART_CALL)
        write_tool_block(b, key, &ch->answer.call[p->from], whole);
    else
        write_text_block(b, key, p->kind == RG_PART_REASONING, whole ? text_of(ch, p) : "", whole ? p->n : 0);
}

static void open_block(const rg_call *c, rg_choice *ch, rg_buf *out, const rg_talk_part *p)
{
    rg_typed_event_open(out, c, "content_block_start");
    rg_out_int(out, "index", ch->n_items);
    write_block(out, ch, "content_block", p, false);
    rg_typed_event_close(out, c);
    ch->part_open = true;
    ch->sent_part = 0;
}

static void close_block(const rg_call *c, rg_choice *ch, rg_buf *out)
{
    rg_typed_event_open(out, c, "content_block_stop");
    rg_out_int(out, "index", ch->n_items++);
    rg_typed_event_close(out, c);
    ch->part_open = false;
}

/* Send the part of the open block that was not sent yet. */
static void send_more(const rg_call *c, rg_choice *ch, rg_buf *out, const rg_talk_part *p)
{
    static const struct {
        const char *type, *member;
    } kinds[] = { [RG_PART_REASONING] = { "thinking_delta", "thinking" },
                  [RG_PART_TEXT] = { "text_delta", "text" },
                  [RG_PART_CALL] = { "input_json_delta", "partial_json" } };
    const rg_buf *arguments = p->kind == RG_PART_CALL ? &ch->answer.call[p->from].arguments : NULL;
    const char *text = arguments ? arguments->data : text_of(ch, p);
    size_t n = arguments ? arguments->n : p->n;

    if (n == ch->sent_part)
        return;
    rg_typed_event_open(out, c, "content_block_delta");
    rg_out_int(out, "index", ch->n_items);
    rg_out_open(out, "delta", '{');
    rg_out_text(out, "type", kinds[p->kind].type);
    rg_out_string(out, kinds[p->kind].member, text + ch->sent_part, n - ch->sent_part);
    rg_out_close(out, '}');
    rg_typed_event_close(out, c);
    ch->sent_part = n;
}

static void delta(rg_call *c, rg_choice *ch, rg_buf *out)
{
    for (; ch->n_parts < (int)ch->answer.n_parts; ch->n_parts++) {
        const rg_talk_part *p = &ch->answer.part[ch->n_parts];
        if (!rg_part_is_given(c, ch, p))
            continue;
        if (!ch->part_open)
            open_block(c, ch, out, p);
        send_more(c, ch, out, p);
        if (!rg_part_is_over(ch, p))
            return;
        close_block(c, ch, out);
    }
}

static void stop(rg_call *c, rg_buf *out)
{
    rg_typed_event_open(out, c, "message_delta");
    rg_out_open(out, "delta", '{');
    write_stop(out, c, true);
    rg_out_close(out, '}');
    write_usage(out, c, true);
    rg_typed_event_close(out, c);
    rg_typed_event_open(out, c, "message_stop");
    rg_typed_event_close(out, c);
}

static void whole(rg_call *c, rg_buf *out)
{
    const rg_choice *ch = &c->choices[0];

    open_message(out, c, NULL);
    for (size_t i = 0; i < ch->answer.n_parts; i++)
        if (rg_part_is_given(c, ch, &ch->answer.part[i]))
            write_block(out, ch, NULL, &ch->answer.part[i], true);
    if (rg_says_nothing(&ch->answer))
        write_text_block(out, NULL, false, "", 0);
    close_message(out, c, true);
}

/* ---- the request ------------------------------------------------------------------------------------------------- */

/* {type: enabled|disabled|adaptive}: a variable that many templates read. */
static bool read_thinking(const json_t *body, json_t *conversation, rg_refusal *e)
{
    const json_t *v = json_object_get(body, "thinking"), *budget = json_object_get(v, "budget_tokens");
    const char *type = json_string_value(json_object_get(v, "type"));
    int64_t n;

    if (!v || json_is_null(v))
        return true;
    if (!type || (strcmp(type, "enabled") != 0 && strcmp(type, "disabled") != 0 && strcmp(type, "adaptive") != 0))
        return rg_refuse_field(e, "thinking", "'thinking.type' must be one of enabled|disabled|adaptive.");
    if (budget && !json_is_null(budget) && (!rg_json_whole(budget, &n) || n < 1))
        return rg_refuse_field(e, "thinking", "'thinking.budget_tokens' must be an integer above 0.");
    json_object_set_new(conversation, "enable_thinking", json_boolean(strcmp(type, "disabled") != 0));
    return true;
}

/* output_config.effort, a variable of templates; output_config.format is read by read_format. */
static bool read_effort(const json_t *body, json_t *conversation, rg_refusal *e)
{
    const json_t *config = json_object_get(body, "output_config");
    json_t *effort = json_object_get(config, "effort");

    if (config && !json_is_null(config) && !json_is_object(config))
        return rg_refuse_field(e, "output_config", "'output_config' must be an object.");
    if (!effort || json_is_null(effort))
        return true;
    if (!json_is_string(effort) || !rg_one_of("low|medium|high|xhigh|max", json_string_value(effort)))
        return rg_refuse_field(e, "output_config.effort",
                               "'output_config.effort' must be one of low|medium|high|xhigh|max.");
    return json_object_set(conversation, "reasoning_effort", effort) == 0 || rg_refuse_memory(e);
}

/* What the answer must be; output_format is the older name. */
static bool read_format(rg_call *c, rg_refusal *e)
{
    const json_t *config = json_object_get(c->body, "output_config");

    return rg_constraint_read(&c->f.constraint, json_object_get(config, "format"), "output_config.format", e) &&
           rg_constraint_read(&c->f.constraint, json_object_get(c->body, "output_format"), "output_format", e);
}

static bool read_conversation(const json_t *body, rg_conversation *talk, rg_refusal *e)
{
    json_t *messages;

    if (!rg_anthropic_tools_read(body, talk, e))
        return false;
    messages = rg_blocks_read(json_object_get(body, "messages"), json_object_get(body, "system"), talk, e);
    talk->all = messages ? rg_conversation_new(messages, talk->tools, NULL, e) : NULL;
    if (json_array_size(json_object_get(body, "mcp_servers")))
        rg_conversation_warn(talk, "mcp_servers were left out: this server does not ask them");
    if (!talk->all || !read_thinking(body, talk->all, e) || !read_effort(body, talk->all, e))
        return false;
    talk->continued = rg_conversation_can_continue(talk->all);
    return !talk->continued || !talk->must ||
           rg_refuse_field(e, "tool_choice",
                           "'tool_choice' cannot ask for a call where the last message is the "
                           "assistant's: the answer goes on from it.");
}

static bool read_request(rg_call *c, rg_refusal *e)
{
    if (c->f.max_tokens == RG_NOT_GIVEN)
        return rg_refuse_field(e, "max_tokens", "'max_tokens' must be given: an integer above 0.");
    return read_format(c, e) && rg_call_read_chat(c, read_conversation, e);
}

static const rg_shape shape = {
    .api = RG_API_MESSAGES,
    .id_prefix = "msg_",
    .input = "messages",
    .is_chat = true,
    .read = read_request,
    .start = start,
    .delta = delta,
    .stop = stop,
    .whole = whole,
};

void rg_api_messages(rg_served *s, rg_exchange *x)
{
    rg_call_answer(s, x, &shape);
}

static void write_count(rg_buf *out, const rg_rendered *r)
{
    rg_out_int(out, "input_tokens", (int64_t)r->n);
}

void rg_api_count_tokens(rg_served *s, rg_exchange *x)
{
    rg_reply_rendered(s, x, read_conversation, write_count);
}
