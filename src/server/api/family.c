/* family.c -- see family.h. */
#include "server/api/family.h"

#include <string.h>

#include "base/mem.h"
#include "server/core.h"
#include "server/json.h"

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static void openai_error(rg_buf *b, const rg_exchange *x, const rg_refusal *e, const char *type)
{
    rg_out_open(b, "error", '{');
    rg_out_text(b, "message", e->text);
    rg_out_text(b, "type", type);
    rg_out_text(b, "param", e->param[0] ? e->param : NULL);
    rg_out_text(b, "code", e->code);
    rg_out_close(b, '}');
    rg_out_text(b, "request_id", rg_exchange_id(x));
}

static void anthropic_error(rg_buf *b, const rg_exchange *x, const rg_refusal *e, const char *type)
{
    rg_out_text(b, "type", "error");
    rg_out_open(b, "error", '{');
    rg_out_text(b, "type", type);
    rg_out_text(b, "message", e->text);
    rg_out_close(b, '}');
    rg_out_text(b, "request_id", rg_exchange_id(x));
}

static void ollama_error(rg_buf *b, const rg_exchange *x, const rg_refusal *e, const char *type)
{
    (void)x;
    (void)type;
    rg_out_text(b, "error", e->text);
}

/* As llama-server has it: the code is the status. */
static void native_error(rg_buf *b, const rg_exchange *x, const rg_refusal *e, const char *type)
{
    const bool too_long = e->code && !strcmp(e->code, "context_length_exceeded");

    (void)x;
    rg_out_open(b, "error", '{');
    rg_out_int(b, "code", e->status);
    rg_out_text(b, "message", e->text);
    rg_out_text(b, "type",
                too_long           ? "exceed_context_size_error"
                : e->status == 501 ? "not_supported_error"
                : e->status == 503 ? "unavailable_error"
                                   : type);
    if (e->param[0])
        rg_out_text(b, "param", e->param);
    if (e->n_prompt) {
        rg_out_int(b, "n_prompt_tokens", e->n_prompt);
        rg_out_int(b, "n_ctx", e->n_ctx);
    }
    rg_out_close(b, '}');
}

/* ---- the families ------------------------------------------------------------------------------------------------ */

#define EVENTS  .stream_type = "text/event-stream; charset=utf-8", .before = "data: ", .after = "\n\n"
#define COMMENT .ping = ": nothing new yet\n\n"

const rg_family rg_openai = { EVENTS, COMMENT, .error = openai_error, .error_schema = "Error" };

const rg_family rg_anthropic = {
    EVENTS,
    .ping = "event: ping\ndata: {\"type\":\"ping\"}\n\n",
    .error = anthropic_error,
    .anthropic_types = true,
    .error_schema = "AnthropicError",
    .error_event = "error",
};

const rg_family rg_ollama = {
    .below = "/api/",
    .settings = "options",
    .error = ollama_error,
    .error_schema = "OllamaError",
    .stream_type = "application/x-ndjson",
    .before = "",
    .after = "\n",
    .ping = "",
};

const rg_family rg_native = { EVENTS, COMMENT, .error = native_error, .error_schema = "Error" };

const rg_family *rg_exchange_family(const rg_exchange *x)
{
    int route = rg_exchange_notes((rg_exchange *)(uintptr_t)x)->route;
    const char *path = rg_exchange_path(x);

    if (route >= 0)
        return rg_routes[route].family;
    return path && !strncmp(path, rg_ollama.below, strlen(rg_ollama.below)) ? &rg_ollama : &rg_openai;
}

/* ---- streams and bodies ------------------------------------------------------------------------------------------ */

void rg_event_open(rg_buf *b, const rg_family *f, const char *name)
{
    if (name) {
        rg_buf_str(b, "event: ");
        rg_buf_str(b, name);
        rg_buf_str(b, "\n");
    }
    rg_buf_str(b, f->before);
}

void rg_event_close(rg_buf *b, const rg_family *f)
{
    rg_buf_str(b, f->after);
}

bool rg_settings_lift(const rg_family *f, json_t *body, rg_refusal *e)
{
    const json_t *settings = f->settings ? json_object_get(body, f->settings) : NULL;
    bool ok = true;

    if (!settings)
        return true;
    if (!json_is_null(settings) && !json_is_object(settings))
        return rg_refuse_field(e, f->settings, "'%s' must be an object.", f->settings);
    if (json_is_object(settings))
        ok = json_object_update_missing(body, (json_t *)(uintptr_t)settings) == 0;
    json_object_del(body, f->settings);
    return ok || rg_refuse_memory(e);
}
