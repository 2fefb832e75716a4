/* ollama_chat.c -- POST /api/chat and /api/generate, as Ollama's clients speak: answers are lines of JSON.
 *
 * Chat is the request of chat completions in another dress (ollama.h).  Generate is one turn of a chat, or, with `raw`,
 * with a model that has no chat template, or with `suffix`, a completion. */
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "server/api/fim.h"
#include "server/api/ollama.h"

/* ---- parts of an answer ------------------------------------------------------------------------------------------ */

/* Arguments are an object, also where the model gave none or only the beginning of one. */
static void write_call(rg_buf *b, const rg_tool_call *t, int i)
{
    char *closed = t->cut ? rg_arguments_close(rg_call_arguments(t)) : NULL;
    const char *text = closed ? closed : rg_call_arguments(t);
    json_t *arguments = rg_json_load(text, strlen(text), JSON_ALLOW_NUL, NULL);

    rg_out_open(b, NULL, '{');
    rg_out_text(b, "id", t->id);
    rg_out_open(b, "function", '{');
    rg_out_int(b, "index", i);
    rg_out_text(b, "name", t->name);
    if (json_is_object(arguments))
        rg_out_value(b, "arguments", arguments);
    else
        rg_out_raw(b, "arguments", "{}", 2);
    rg_out_close(b, '}');
    rg_out_close(b, '}');
    json_decref(arguments);
    rg_free(closed);
}

/* The calls that are whole and were not sent yet. */
static void write_calls(rg_buf *b, const rg_call *c, rg_choice *ch)
{
    int n = rg_choice_n_calls(c, ch);

    if (ch->sent_calls >= n || !rg_call_is_over(ch, &ch->answer.call[ch->sent_calls]))
        return;
    rg_out_open(b, "tool_calls", '[');
    for (; ch->sent_calls < n && rg_call_is_over(ch, &ch->answer.call[ch->sent_calls]); ch->sent_calls++)
        write_call(b, &ch->answer.call[ch->sent_calls], ch->sent_calls);
    rg_out_close(b, ']');
}

static void write_rest(rg_buf *b, const char *key, const rg_buf *text, size_t *sent, bool always)
{
    if (always || text->n > *sent)
        rg_out_string(b, key, text->data ? text->data + *sent : "", text->n - *sent);
    *sent = text->n;
}

static void write_logprobs(rg_buf *b, const rg_call *c, rg_choice *ch)
{
    size_t n = rg_choice_n_logprobs(ch);

    if (c->f.n_logprobs < 0 || ch->sent_logprobs == n)
        return;
    rg_out_open(b, "logprobs", '[');
    for (; ch->sent_logprobs < n; ch->sent_logprobs++)
        rg_write_logprob(b, c, ch, ch->sent_logprobs);
    rg_out_close(b, ']');
}

/* What was not sent yet, in a message or as the response. */
static void write_parts(rg_buf *b, rg_call *c, rg_choice *ch)
{
    rg_answer *a = &ch->answer;
    bool in_message = !strcmp(c->shape->input, "messages"), thinks = c->f.include_reasoning;

    if (in_message) {
        rg_out_open(b, "message", '{');
        rg_out_text(b, "role", "assistant");
    }
    if (!c->shape->is_chat)
        write_rest(b, "response", &ch->text, &ch->sent_text, true);
    else
        write_rest(b, in_message ? "content" : "response", &a->content, &ch->sent_content, true);
    if (thinks && c->shape->is_chat)
        write_rest(b, "thinking", &a->reasoning, &ch->sent_reasoning, false);
    write_calls(b, c, ch);
    if (in_message)
        rg_out_close(b, '}');
    write_logprobs(b, c, ch);
}

/* The ids of prompt and answer, for the next request's `context`. */
static void write_context(rg_buf *b, const rg_call *c, const rg_choice *ch)
{
    const rg_kept_id *ids = (const rg_kept_id *)(const void *)ch->ids.data;

    rg_out_open(b, "context", '[');
    for (size_t i = 0; i < c->prompts[0].n; i++)
        rg_out_int(b, NULL, c->prompts[0].ids[i]);
    for (size_t i = 0; i < ch->ids.n / sizeof *ids; i++)
        rg_out_int(b, NULL, ids[i].id);
    rg_out_close(b, ']');
}

/* The last line, with what was not sent before: of a whole answer, all of it. */
static void whole(rg_call *c, rg_buf *out)
{
    rg_choice *ch = &c->choices[0];

    rg_ollama_open(out, c);
    write_parts(out, c, ch);
    rg_out_bool(out, "done", true);
    rg_out_text(out, "done_reason", rg_finish_is_cut(ch) ? "length" : "stop");
    if (c->shape->keeps_ids && !json_is_true(json_object_get(c->body, "raw")))
        write_context(out, c, ch);
    rg_ollama_write_durations(out, c, true);
    rg_out_close(out, '}');
}

static void stop(rg_call *c, rg_buf *out)
{
    rg_event_open(out, c->family, NULL);
    whole(c, out);
    rg_event_close(out, c->family);
}

static bool has_news(const rg_call *c, const rg_choice *ch)
{
    const rg_answer *a = &ch->answer;

    if (!c->shape->is_chat)
        return ch->text.n > ch->sent_text;
    return a->content.n > ch->sent_content || (c->f.include_reasoning && a->reasoning.n > ch->sent_reasoning) ||
           (ch->sent_calls < rg_choice_n_calls(c, ch) && rg_call_is_over(ch, &a->call[ch->sent_calls]));
}

static void delta(rg_call *c, rg_choice *ch, rg_buf *out)
{
    if (!has_news(c, ch))
        return;
    rg_event_open(out, c->family, NULL);
    rg_ollama_open(out, c);
    write_parts(out, c, ch);
    rg_out_bool(out, "done", false);
    rg_out_close(out, '}');
    rg_event_close(out, c->family);
}

/* ---- loading and unloading --------------------------------------------------------------------------------------- */

/* A request without anything to answer asks whether the model is there: it is, and stays.  Always false: it has been
 * answered. */
static bool answer_empty(rg_call *c, const char *key, rg_refusal *e)
{
    const char *name = json_string_value(json_object_get(c->body, "model"));
    bool stream = !json_is_false(json_object_get(c->body, "stream"));
    double keep_s;
    rg_buf out;

    if (!rg_check_model(c->served, name, e))
        return false;
    rg_buf_init(&out, 1 << 16);
    rg_ollama_open(&out, c);
    if (!strcmp(key, "message")) {
        rg_out_open(&out, key, '{');
        rg_out_text(&out, "role", "assistant");
        rg_out_text(&out, "content", "");
        rg_out_close(&out, '}');
    } else {
        rg_out_text(&out, key, "");
    }
    rg_out_bool(&out, "done", true);
    rg_out_text(&out, "done_reason", rg_ollama_keeps(c->body, &keep_s) && keep_s == 0 ? "unload" : "load");
    rg_out_close(&out, '}');
    if (stream)
        rg_event_close(&out, c->family);
    rg_note_answer(c->served, c->x, 200);
    rg_exchange_reply(c->x, 200, stream ? c->family->stream_type : "application/json", &out);
    return false;
}

/* ---- chat -------------------------------------------------------------------------------------------------------- */

static bool adapt_chat(rg_call *c, rg_refusal *e)
{
    if (!rg_ollama_adapt(c, e) || !rg_ollama_think(c, e))
        return false;
    const json_t *messages = json_object_get(c->body, "messages");
    if (!messages || json_is_null(messages) || (json_is_array(messages) && !json_array_size(messages)))
        return answer_empty(c, "message", e);
    return true;
}

static bool read_chat(rg_call *c, rg_refusal *e)
{
    c->f.include_reasoning = !json_is_false(json_object_get(c->body, "think"));
    return rg_call_read_chat(c, rg_chat_conversation, e);
}

static const rg_shape chat_shape = {
    .api = RG_API_CHAT | RG_API_OLLAMA,
    .id_prefix = "chat-",
    .input = "messages",
    .is_chat = true,
    .adapt = adapt_chat,
    .read = read_chat,
    .delta = delta,
    .stop = stop,
    .whole = whole,
};

void rg_api_ollama_chat(rg_served *s, rg_exchange *x)
{
    rg_call_answer(s, x, &chat_shape);
}

/* ---- generate ---------------------------------------------------------------------------------------------------- */

static const char *text_of(const rg_call *c, const char *key)
{
    const char *s = json_string_value(json_object_get(c->body, key));

    return s ? s : "";
}

static bool check_texts(const rg_call *c, rg_refusal *e)
{
    static const char *const texts[] = { "prompt", "system", "suffix" };
    const json_t *raw = json_object_get(c->body, "raw");

    for (size_t i = 0; i < RG_LEN(texts); i++) {
        const json_t *v = json_object_get(c->body, texts[i]);
        if (v && !json_is_null(v) && !json_is_string(v))
            return rg_refuse_field(e, texts[i], "'%s' must be a string.", texts[i]);
    }
    return !raw || json_is_null(raw) || json_is_boolean(raw) ||
           rg_refuse_field(e, "raw", "'raw' must be true or false.");
}

static bool adapt_generate(rg_call *c, rg_refusal *e)
{
    if (!rg_ollama_adapt(c, e) || !rg_ollama_think(c, e) || !check_texts(c, e) ||
        !rg_ollama_no_images(json_object_get(c->body, "images"), "images", e))
        return false;
    return *text_of(c, "prompt") || *text_of(c, "suffix") ? true : answer_empty(c, "response", e);
}

/* system and prompt as the turns that open a conversation. */
static bool one_turn(const json_t *body, rg_conversation *talk, rg_refusal *e)
{
    json_t *system = json_object_get(body, "system"), *copy = json_copy((json_t *)(uintptr_t)body);
    json_t *messages = json_array();
    bool ok = copy && messages;

    if (ok && json_string_length(system))
        ok = json_array_append_new(messages, json_pack("{s:s, s:O}", "role", "system", "content", system)) == 0;
    ok = ok && json_array_append_new(
                   messages, json_pack("{s:s, s:O}", "role", "user", "content", json_object_get(body, "prompt"))) == 0;
    ok = ok && json_object_set(copy, "messages", messages) == 0;
    ok = ok ? rg_chat_conversation(copy, talk, e) : rg_refuse_memory(e);
    json_decref(messages);
    json_decref(copy);
    return ok;
}

/* What was said before goes before the only prompt, which then does not begin a text anew. */
static bool prepend_context(rg_call *c, rg_refusal *e)
{
    const json_t *context = json_object_get(c->body, "context");
    rg_prompt *p = &c->prompts[0];
    rg_mixed all;

    if (context && !json_is_array(context))
        return rg_refuse_field(e, "context", "'context' must be a list of token ids.");
    if (!json_array_size(context))
        return true;
    rg_mixed_init(&all);
    size_t skip = p->n && p->ids[0] == c->served->info.bos_id;
    bool ok = rg_mixed_list(&all, c->served, context, "context", false, e) &&
              rg_mixed_add(&all, p->ids + skip, p->n - skip, e) && rg_mixed_take(&all, c, e);
    rg_mixed_fini(&all);
    if (!ok)
        return false;
    rg_prompt was = c->prompts[0];
    c->prompts[0] = c->prompts[1];
    c->prompts[1] = was;
    rg_call_drop_prompt(c);
    return true;
}

static bool read_insert(rg_call *c, rg_refusal *e)
{
    const rg_fim_prompt prompt = { .prefix = text_of(c, "prompt"), .suffix = text_of(c, "suffix"), .start = "" };

    if (c->served->fim.prefix < 0)
        return rg_refuse(e, 400, "unsupported_value", "suffix", "\"%.200s\" does not support insert", c->served->name);
    return rg_fim_take(c, &prompt, e);
}

/* The system text, if there is one, stands before the prompt. */
static bool read_text(rg_call *c, rg_refusal *e)
{
    const char *system = text_of(c, "system"), *prompt = text_of(c, "prompt");
    rg_buf b;

    rg_buf_init(&b, strlen(system) + strlen(prompt) + 8);
    if (*system) {
        rg_buf_str(&b, system);
        rg_buf_str(&b, "\n\n");
    }
    rg_buf_str(&b, prompt);
    bool ok = (!b.failed || rg_refuse_memory(e)) && rg_call_add_text(c, b.data ? b.data : "", b.n, e);
    rg_buf_fini(&b);
    return ok;
}

static const rg_shape text_shape, turn_shape;

static bool read_generate(rg_call *c, rg_refusal *e)
{
    bool raw = json_is_true(json_object_get(c->body, "raw"));

    c->f.include_reasoning = !json_is_false(json_object_get(c->body, "think"));
    if (*text_of(c, "suffix")) {
        c->shape = &text_shape;
        return read_insert(c, e);
    }
    if (raw || !rg_chat_has_template(c->served->engine)) {
        c->shape = &text_shape;
        return read_text(c, e) && (raw || prepend_context(c, e));
    }
    return rg_call_read_chat(c, one_turn, e) && prepend_context(c, e);
}

#define GENERATE                                                                                                       \
    .api = RG_API_COMPLETIONS | RG_API_OLLAMA, .id_prefix = "gen-", .input = "prompt", .adapt = adapt_generate,        \
    .read = read_generate, .delta = delta, .stop = stop, .whole = whole, .keeps_ids = true

static const rg_shape text_shape = { GENERATE };
static const rg_shape turn_shape = { GENERATE, .is_chat = true };

void rg_api_ollama_generate(rg_served *s, rg_exchange *x)
{
    rg_call_answer(s, x, &turn_shape);
}
