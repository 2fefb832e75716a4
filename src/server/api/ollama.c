/* ollama.c -- see ollama.h. */
#include "server/api/ollama.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "server/models.h"
#include "server/api/timings.h"

/* ---- bodies ------------------------------------------------------------------------------------------------------ */

/* num_predict: below 1 is no limit (-1), or as much as the context holds (-2), which is the same here. */
static void drop_no_limit(json_t *body)
{
    const json_t *v = json_object_get(body, "num_predict");
    int64_t n;

    if (v && rg_json_whole(v, &n) && n < 1)
        json_object_del(body, "num_predict");
}

bool rg_ollama_no_images(const json_t *images, const char *param, rg_refusal *e)
{
    if (!images || json_is_null(images) || (json_is_array(images) && !json_array_size(images)))
        return true;
    return rg_refuse(e, 400, "unsupported_value", param, "This model takes no images: '%s' must be empty.", param);
}

/* One message in the form of chat completions; its role and content are checked later. */
static json_t *adapt_message(const json_t *m, size_t i, rg_refusal *e)
{
    static const char *const names[][2] = { { "thinking", "reasoning_content" }, { "tool_name", "name" } };
    char param[64];

    if (!json_is_object(m))
        return rg_refuse_field(e, "messages", "'messages' must hold objects."), NULL;
    snprintf(param, sizeof param, "messages[%zu].images", i);
    if (!rg_ollama_no_images(json_object_get(m, "images"), param, e))
        return NULL;
    json_t *out = json_copy((json_t *)(uintptr_t)m);
    bool ok = out && (json_object_get(out, "content") || json_object_set_new(out, "content", json_string("")) == 0);
    for (size_t k = 0; ok && k < RG_LEN(names); k++) {
        json_t *v = json_object_get(out, names[k][0]);
        if (v && !json_object_get(out, names[k][1]))
            ok = json_object_set(out, names[k][1], v) == 0;
    }
    if (ok)
        return out;
    json_decref(out);
    rg_refuse_memory(e);
    return NULL;
}

/* A last message of the assistant is one that goes on. */
static bool goes_on(const json_t *messages)
{
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));

    return role && !strcmp(role, "assistant") && json_string_length(json_object_get(last, "content")) &&
           !json_array_size(json_object_get(last, "tool_calls"));
}

static bool adapt_messages(json_t *body, rg_refusal *e)
{
    const json_t *messages = json_object_get(body, "messages");
    json_t *out = json_is_array(messages) ? json_array() : NULL;
    bool ok = true;

    for (size_t i = 0; ok && i < json_array_size(messages); i++) {
        json_t *m = adapt_message(json_array_get(messages, i), i, e);
        ok = m && json_array_append_new(out, m) == 0;
    }
    if (ok && goes_on(out))
        ok = json_object_set_new(body, "continue_final_message", json_true()) == 0;
    if (ok && out)
        ok = json_object_set(body, "messages", out) == 0;
    json_decref(out);
    return ok || (e->status ? false : rg_refuse_memory(e));
}

bool rg_ollama_adapt(rg_call *c, rg_refusal *e)
{
    json_t *stream = json_object_get(c->body, "stream");
    double keep_s;

    if (c->served->server->models && rg_ollama_keeps(c->body, &keep_s))
        rg_models_keep(c->served, keep_s);
    drop_no_limit(c->body);
    if ((!stream || json_is_null(stream)) && json_object_set_new(c->body, "stream", json_true()) != 0)
        return rg_refuse_memory(e);
    return adapt_messages(c->body, e);
}

bool rg_ollama_think(rg_call *c, rg_refusal *e)
{
    const json_t *v = json_object_get(c->body, "think");
    const char *level = json_string_value(v);
    bool wanted = !json_is_false(v);

    if (!v || json_is_null(v))
        return true;
    if (!json_is_boolean(v) && (!level || !rg_one_of("low|medium|high", level)))
        return rg_refuse_field(e, "think", "'think' must be true, false, or one of low|medium|high.");
    if (wanted && !c->served->use.thinks)
        return rg_refuse(e, 400, "unsupported_value", "think", "\"%.200s\" does not support thinking", c->served->name);
    json_t *kwargs = json_pack("{s:b, s:b}", "enable_thinking", wanted, "thinking", wanted);
    bool ok = kwargs && json_object_set_new(c->body, "chat_template_kwargs", kwargs) == 0;
    if (ok && level)
        ok = json_object_set_new(c->body, "reasoning_effort", json_string(level)) == 0;
    return ok || rg_refuse_memory(e);
}

/* "1h30m", "-1", "500ms": numbers with a unit each; the last one may have none, which are seconds. */
static bool read_duration(const char *s, double *seconds)
{
    static const struct {
        const char *unit;
        double s;
    } units[] = { { "ms", 1e-3 }, { "us", 1e-6 }, { "ns", 1e-9 }, { "h", 3600 }, { "m", 60 }, { "s", 1 }, { "", 1 } };
    const double sign = *s == '-' ? -1 : 1;

    s += *s == '-' || *s == '+';
    *seconds = 0;
    do {
        char *end;
        double v = strtod(s, &end);
        size_t i = 0;

        if (end == s || !(v >= 0))
            return false;
        while (strncmp(end, units[i].unit, strlen(units[i].unit)) != 0)
            i++;
        *seconds += sign * v * units[i].s;
        s = end + strlen(units[i].unit);
        if (!*units[i].unit)
            return !*s;
    } while (*s);
    return true;
}

bool rg_ollama_keeps(const json_t *body, double *seconds)
{
    const json_t *v = json_object_get(body, "keep_alive");

    if (json_is_string(v))
        return read_duration(json_string_value(v), seconds);
    *seconds = json_number_value(v);
    return json_is_number(v);
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

void rg_ollama_write_name(rg_buf *b, const char *key, const char *name)
{
    char tagged[600];

    snprintf(tagged, sizeof tagged, "%.580s%s", name, strchr(name, ':') ? "" : ":latest");
    rg_out_text(b, key, tagged);
}

void rg_ollama_write_time(rg_buf *b, const char *key, int64_t s)
{
    rg_out_time(b, key, s);
}

/* Clients divide by these. */
static int64_t nanoseconds(double s)
{
    return s > 1e-9 ? (int64_t)(1e9 * s) : 1;
}

void rg_ollama_write_durations(rg_buf *b, const rg_call *c, bool generates)
{
    rg_timings t = rg_call_timings(c, -1);

    rg_out_int(b, "total_duration", nanoseconds(t.total_s));
    rg_out_int(b, "load_duration", nanoseconds(t.queue_s));
    rg_out_int(b, "prompt_eval_count", t.n_cached + t.n_prompt);
    if (!generates)
        return;
    rg_out_int(b, "prompt_eval_duration", nanoseconds(t.prompt_s));
    rg_out_int(b, "eval_count", t.n_predicted);
    rg_out_int(b, "eval_duration", nanoseconds(t.predicted_s));
}

void rg_ollama_open(rg_buf *b, const rg_call *c)
{
    rg_out_open(b, NULL, '{');
    rg_ollama_write_name(b, "model", rg_call_model(c));
    rg_ollama_write_time(b, "created_at", rg_wall_s());
}
