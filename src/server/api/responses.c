/* responses.c -- POST /v1/responses: reading a request, and the response object.  What is kept
 * of it is in responses_kept.c. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "server/api/responses.h"

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
    rg_sampling s = rg_fields_sampling(&c->f, &c->served->info.sampling);
    const json_t *effort = json_object_get(json_object_get(c->body, "reasoning"), "effort");
    const json_t *choice = json_object_get(c->body, "tool_choice");

    rg_out_value(b, "instructions", json_object_get(c->body, "instructions"));
    if (c->f.max_completion_tokens != RG_NOT_GIVEN && c->f.max_completion_tokens != RG_UNLIMITED)
        rg_out_int(b, "max_output_tokens", c->f.max_completion_tokens);
    else
        rg_out_null(b, "max_output_tokens");
    rg_out_value(b, "metadata", json_object_get(c->body, "metadata"));
    rg_out_bool(b, "parallel_tool_calls", c->f.parallel_tools);
    rg_out_value(b, "previous_response_id", c->previous);
    if (c->conversation) {
        rg_out_open(b, "conversation", '{');
        rg_out_value(b, "id", c->conversation);
        rg_out_close(b, '}');
    }
    rg_out_open(b, "reasoning", '{');
    rg_out_value(b, "effort", effort);
    rg_out_null(b, "summary");
    rg_out_close(b, '}');
    rg_out_bool(b, "store", c->f.store);
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
    rg_out_text(b, "truncation", c->f.truncation ? c->f.truncation : "disabled");
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

static const char *status_word(const rg_call *c, bool done, const rg_refusal *e)
{
    if (e)
        return "failed";
    if (!done)
        return c->f.background && !c->f.stream ? "queued" : "in_progress";
    return rg_finish_is_cut(&c->choices[0]) ? "incomplete" : "completed";
}

void rg_response_write(rg_buf *b, const rg_call *c, const char *key, bool done, const rg_refusal *e)
{
    const rg_choice *ch = &c->choices[0];
    bool cut = done && rg_finish_is_cut(ch);

    rg_out_open(b, key, '{');
    rg_out_text(b, "id", c->id);
    rg_out_text(b, "object", "response");
    rg_out_int(b, "created_at", c->created_s);
    rg_out_text(b, "status", status_word(c, done, e));
    rg_out_bool(b, "background", c->f.background);
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
        rg_response_output(b, c, "output");
    else
        rg_out_raw(b, "output", "[]", 2);
    write_settings(b, c);
    if (done)
        write_usage(b, c);
    else
        rg_out_null(b, "usage");
    rg_out_close(b, '}');
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
    static const char efforts[] = "none|minimal|low|medium|high|xhigh|max";
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

static void whole(rg_call *c, rg_buf *out)
{
    rg_response_keep(c, true, NULL);
    rg_response_write(out, c, NULL, true, NULL);
}

static bool read_conversation(const json_t *body, rg_conversation *talk, rg_refusal *e)
{
    const json_t *kwargs = json_object_get(body, "chat_template_kwargs");
    json_t *effort = json_object_get(json_object_get(body, "reasoning"), "effort"), *messages = NULL;
    const char *truncation = json_string_value(json_object_get(body, "truncation"));
    json_t *items = rg_flat_tools_read(body, talk, e) ? rg_items_with_history(body, talk, e) : NULL;

    if (items)
        messages = rg_input_read(items, json_object_get(body, "instructions"), talk, e);
    json_decref(items);
    talk->may_cut = truncation && !strcmp(truncation, "auto");
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
    .api = RG_API_RESPONSES,
    .id_prefix = "resp_",
    .input = "input",
    .is_chat = true,
    .read = read_request,
    .start = rg_response_start,
    .delta = rg_response_delta,
    .stop = rg_response_stop,
    .fail = rg_response_fail,
    .whole = whole,
};

void rg_api_responses(rg_served *s, rg_exchange *x)
{
    rg_refusal e = { 0 };
    rg_call *c = rg_call_new(s, x, &shape, &e);

    if (c && c->f.background && !c->f.store)
        rg_refuse_field(&e, "background", "'background' needs 'store', which must not be false.");
    else if (c && read_request(c, &e) && (c->f.background && !c->f.stream ? rg_background_start : rg_call_start)(c, &e))
        return;
    rg_call_free(c);
    rg_reply_refusal(s, x, &e);
}

static void write_count(rg_buf *out, const rg_rendered *r)
{
    rg_out_text(out, "object", "response.input_tokens");
    rg_out_int(out, "input_tokens", (int64_t)r->n);
}

void rg_api_response_tokens(rg_served *s, rg_exchange *x)
{
    rg_reply_rendered(s, x, read_conversation, write_count);
}
