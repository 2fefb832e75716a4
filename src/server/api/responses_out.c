/* responses_out.c -- what POST /v1/responses writes: an answer is a list of items (reasoning, messages, calls), in the
 * order in which they came, streamed as numbered events that open, fill and close each.  See responses.h. */
#include "server/api/responses.h"

#include <stdio.h>
#include <string.h>

/* ---- items ------------------------------------------------------------------------------------------------------- */

static const rg_tool_kind *kind_of(const rg_call *c, const rg_tool_call *t, const char **namespace, const char **name)
{
    const json_t *v = json_object_get(c->kinds, t->name);

    *namespace = json_string_value(json_object_get(v, "namespace"));
    *name = v ? json_string_value(json_object_get(v, "name")) : t->name;
    return rg_call_kind(c, t);
}

/* What an item is, as far as ids and types go. */
typedef struct item_kind {
    const char *type, *id;
    const rg_tool_kind *call; /* NULL: reasoning or a message */
} item_kind;

static item_kind item_of(const rg_call *c, const rg_choice *ch, const rg_talk_part *p)
{
    const char *namespace, *name;
    const rg_tool_kind *k;

    if (p->kind == RG_PART_REASONING)
        return (item_kind){ "reasoning", "rs", NULL };
    if (p->kind == RG_PART_TEXT)
        return (item_kind){ "message", "msg", NULL };
    k = kind_of(c, &ch->answer.call[p->from], &namespace, &name);
    return (item_kind){ k->call, k->id, k };
}

static void write_id_of(rg_buf *b, const rg_call *c, const char *key, const char *prefix, int item)
{
    char id[80];

    snprintf(id, sizeof id, "%s_%s%d", prefix, c->id + strlen("resp_"), item);
    rg_out_text(b, key, id);
}

/* The text of a part of reasoning, or of a message. */
static const char *text_of(const rg_choice *ch, const rg_talk_part *p)
{
    const rg_buf *b = p->kind == RG_PART_REASONING ? &ch->answer.reasoning : &ch->answer.content;

    return p->n ? b->data + p->from : "";
}

/* The message of an answer without one: no part of it, so it has no neighbours among them. */
static const rg_talk_part nothing_said = { .kind = RG_PART_TEXT };

/* The tokens of a message are those from the end of the part before it on; those of the reasoning are not its. */
static void write_logprobs(rg_buf *b, const rg_call *c, const rg_choice *ch, const rg_talk_part *p, size_t from)
{
    const rg_answer *a = &ch->answer;
    const size_t before = p == &nothing_said ? 0 : (size_t)(p - a->part);
    size_t begin, end = rg_choice_n_logprobs(ch), n = 0;

    while (n < before && a->part[n].kind == RG_PART_REASONING)
        n++;
    begin = n == before ? (size_t)ch->n_reasoning : p->token; /* the first text */
    if (p != &nothing_said && before + 1 < a->n_parts && p[1].token < end)
        end = p[1].token;
    rg_out_open(b, "logprobs", '[');
    for (size_t i = from > begin ? from : begin; i < end; i++)
        rg_write_logprob(b, c, ch, i);
    rg_out_close(b, ']');
}

/* The content of a reasoning or message item; empty until it is done. */
static void write_content(rg_buf *b, const rg_call *c, const rg_choice *ch, const char *key, const rg_talk_part *p,
                          bool done)
{
    rg_out_open(b, key, '{');
    rg_out_text(b, "type", p->kind == RG_PART_REASONING ? "reasoning_text" : "output_text");
    rg_out_string(b, "text", done ? text_of(ch, p) : "", done ? p->n : 0);
    if (p->kind == RG_PART_TEXT) {
        rg_out_open(b, "annotations", '[');
        rg_out_close(b, ']');
        write_logprobs(b, c, ch, p, done ? 0 : SIZE_MAX);
    }
    rg_out_close(b, '}');
}

/* The members of a reasoning or message item. */
static void write_text_item(rg_buf *b, const rg_call *c, const rg_choice *ch, const rg_talk_part *p, bool done)
{
    bool last = !ch->answer.n_parts || p == &ch->answer.part[ch->answer.n_parts - 1];

    rg_out_text(b, "status", !done ? "in_progress" : last && rg_finish_is_cut(ch) ? "incomplete" : "completed");
    if (p->kind == RG_PART_REASONING) {
        rg_out_open(b, "summary", '[');
        rg_out_close(b, ']');
    } else {
        rg_out_text(b, "role", "assistant");
    }
    rg_out_open(b, "content", '[');
    if (done)
        write_content(b, c, ch, NULL, p, true);
    rg_out_close(b, ']');
}

/* The members of a call's item. */
static void write_call_item(rg_buf *b, const rg_call *c, const rg_tool_call *t, bool done)
{
    const char *namespace, *name;
    const rg_tool_kind *k = kind_of(c, t, &namespace, &name);

    rg_out_text(b, "call_id", t->id);
    if (namespace)
        rg_out_text(b, "namespace", namespace);
    if (!k->name)
        rg_out_text(b, "name", name);
    if (!strcmp(k->tool, "tool_search"))
        rg_out_text(b, "execution", "client");
    rg_tool_kind_write(b, k, done ? rg_call_arguments(t) : k->says == RG_SAYS_OBJECT ? "{}" : "", done && t->cut);
    rg_out_text(b, "status", !done ? "in_progress" : t->cut ? "incomplete" : "completed");
}

/* An item: empty when it is opened, whole when it is done. */
static void write_item(rg_buf *b, const rg_call *c, const rg_choice *ch, const char *key, const rg_talk_part *p,
                       int item, bool done)
{
    item_kind k = item_of(c, ch, p);

    rg_out_open(b, key, '{');
    rg_out_text(b, "type", k.type);
    write_id_of(b, c, "id", k.id, item);
    if (p->kind == RG_PART_CALL)
        write_call_item(b, c, &ch->answer.call[p->from], done);
    else
        write_text_item(b, c, ch, p, done);
    rg_out_close(b, '}');
}

void rg_response_output(rg_buf *b, const rg_call *c, const char *key)
{
    const rg_choice *ch = &c->choices[0];
    const rg_answer *a = &ch->answer;
    int item = 0;

    rg_out_open(b, key, '[');
    for (size_t i = 0; i < a->n_parts; i++)
        if (rg_part_is_given(c, ch, &a->part[i]))
            write_item(b, c, ch, NULL, &a->part[i], item++, true);
    if (rg_says_nothing(a))
        write_item(b, c, ch, NULL, &nothing_said, item, true);
    rg_out_close(b, ']');
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

static void open_event(rg_call *c, rg_buf *out, const char *type)
{
    rg_typed_event_open(out, c, type);
    rg_out_int(out, "sequence_number", c->sequence++);
}

void rg_response_event(rg_call *c, rg_buf *out, const char *type, bool done, const rg_refusal *e)
{
    open_event(c, out, type);
    rg_response_write(out, c, "response", done, e);
    rg_typed_event_close(out, c);
}

/* An event about the content of the open item. */
static void open_item_event(rg_call *c, rg_choice *ch, rg_buf *out, const char *type, const rg_talk_part *p)
{
    open_event(c, out, type);
    write_id_of(out, c, "item_id", item_of(c, ch, p).id, ch->n_items);
    rg_out_int(out, "output_index", ch->n_items);
    if (p->kind != RG_PART_CALL)
        rg_out_int(out, "content_index", 0);
}

static void item_event(rg_call *c, rg_choice *ch, rg_buf *out, const rg_talk_part *p, bool done)
{
    open_event(c, out, done ? "response.output_item.done" : "response.output_item.added");
    rg_out_int(out, "output_index", ch->n_items);
    write_item(out, c, ch, "item", p, ch->n_items, done);
    rg_typed_event_close(out, c);
}

static void content_event(rg_call *c, rg_choice *ch, rg_buf *out, const rg_talk_part *p, bool done)
{
    open_item_event(c, ch, out, done ? "response.content_part.done" : "response.content_part.added", p);
    write_content(out, c, ch, "part", p, done);
    rg_typed_event_close(out, c);
}

static void open_part(rg_call *c, rg_choice *ch, rg_buf *out, const rg_talk_part *p)
{
    item_event(c, ch, out, p, false);
    if (p->kind != RG_PART_CALL)
        content_event(c, ch, out, p, false);
    ch->part_open = true;
    ch->sent_part = 0;
    ch->scan = (rg_input_scan){ 0 };
    rg_buf_reset(&ch->input);
}

static void close_text(rg_call *c, rg_choice *ch, rg_buf *out, const rg_talk_part *p)
{
    bool reasoning = p->kind == RG_PART_REASONING;

    open_item_event(c, ch, out, reasoning ? "response.reasoning_text.done" : "response.output_text.done", p);
    rg_out_string(out, "text", text_of(ch, p), p->n);
    if (!reasoning)
        write_logprobs(out, c, ch, p, 0);
    rg_typed_event_close(out, c);
    content_event(c, ch, out, p, true);
}

static void close_call(rg_call *c, rg_choice *ch, rg_buf *out, const rg_talk_part *p)
{
    const rg_tool_call *t = &ch->answer.call[p->from];
    const char *namespace, *name;
    const rg_tool_kind *k = kind_of(c, t, &namespace, &name);

    if (!k->done)
        return;
    open_item_event(c, ch, out, k->done, p);
    rg_tool_kind_write(out, k, rg_call_arguments(t), t->cut);
    if (k->says == RG_SAYS_JSON)
        rg_out_text(out, "name", name);
    rg_typed_event_close(out, c);
}

static void close_part(rg_call *c, rg_choice *ch, rg_buf *out, const rg_talk_part *p)
{
    if (p->kind == RG_PART_CALL)
        close_call(c, ch, out, p);
    else
        close_text(c, ch, out, p);
    item_event(c, ch, out, p, true);
    ch->part_open = false;
    ch->n_items++;
}

/* More of a part's text, or of a call's arguments, which are a text of n bytes so far. */
static void send_more(rg_call *c, rg_choice *ch, rg_buf *out, const rg_talk_part *p, const char *type, const char *text,
                      size_t n)
{
    if (n == ch->sent_part)
        return;
    c->event_at = out->n;
    open_item_event(c, ch, out, type, p);
    rg_out_string(out, "delta", text + ch->sent_part, n - ch->sent_part);
    if (p->kind == RG_PART_TEXT) {
        write_logprobs(out, c, ch, p, ch->sent_logprobs);
        ch->sent_logprobs = rg_choice_n_logprobs(ch);
    }
    if (p->kind != RG_PART_CALL)
        rg_write_noise(out, c);
    rg_typed_event_close(out, c);
    ch->sent_part = n;
}

static void send_part(rg_call *c, rg_choice *ch, rg_buf *out, const rg_talk_part *p)
{
    const rg_tool_call *t = p->kind == RG_PART_CALL ? &ch->answer.call[p->from] : NULL;
    const rg_tool_kind *k = item_of(c, ch, p).call;

    if (!t) {
        send_more(c, ch, out, p,
                  p->kind == RG_PART_REASONING ? "response.reasoning_text.delta" : "response.output_text.delta",
                  text_of(ch, p), p->n);
    } else if (k->delta && k->says == RG_SAYS_INPUT) {
        rg_input_read_on(&ch->scan, rg_call_arguments(t), t->arguments.n, &ch->input);
        size_t whole = rg_utf8_span(ch->input.data ? ch->input.data : "", ch->input.n);
        send_more(c, ch, out, p, k->delta, ch->input.data ? ch->input.data : "",
                  whole > ch->sent_part ? whole : ch->sent_part);
    } else if (k->delta) {
        send_more(c, ch, out, p, k->delta, rg_call_arguments(t), t->arguments.n);
    }
}

/* ---- the shape --------------------------------------------------------------------------------------------------- */

void rg_response_start(rg_call *c, rg_buf *out)
{
    rg_response_event(c, out, "response.created", false, NULL);
    rg_response_event(c, out, "response.in_progress", false, NULL);
}

void rg_response_delta(rg_call *c, rg_choice *ch, rg_buf *out)
{
    const rg_answer *a = &ch->answer;

    for (; ch->n_parts < (int)a->n_parts; ch->n_parts++) {
        const rg_talk_part *p = &a->part[ch->n_parts];
        if (!rg_part_is_given(c, ch, p))
            continue;
        if (!ch->part_open)
            open_part(c, ch, out, p);
        send_part(c, ch, out, p);
        if (!rg_part_is_over(ch, p))
            return;
        close_part(c, ch, out, p);
    }
    if (ch->finish != RG_RUNNING && rg_says_nothing(a)) {
        open_part(c, ch, out, &nothing_said);
        close_part(c, ch, out, &nothing_said);
    }
}

void rg_response_stop(rg_call *c, rg_buf *out)
{
    rg_response_keep(c, true, NULL);
    rg_response_event(c, out, rg_finish_is_cut(&c->choices[0]) ? "response.incomplete" : "response.completed", true,
                      NULL);
}

void rg_response_fail(rg_call *c, const rg_refusal *e, rg_buf *out)
{
    rg_response_keep(c, true, e);
    rg_response_event(c, out, "response.failed", true, e);
}
