/* health.c -- liveness, readiness, version, metrics and status. */
#include <stdio.h>

#include "base/clock.h"
#include "server/core.h"
#include "server/json.h"
#include "server/models.h"

/* How far it is with opening the model, if that is under way. */
static void write_progress(rg_buf *out, rg_served *s)
{
    const char *step = atomic_load(&s->state) == RG_LOADING ? atomic_load(&s->loading) : NULL;

    if (!step || (s->server->models && !rg_models_is_wanted(s)))
        return;
    rg_out_text(out, "step", step);
    rg_out_real(out, "progress", atomic_load(&s->loaded) * 1e-3);
}

static void reply_state(rg_served *s, rg_exchange *x, bool ok, const char *what)
{
    rg_buf out;

    rg_buf_init(&out, 4096);
    rg_out_open(&out, NULL, '{');
    rg_out_text(&out, "status", what);
    write_progress(&out, s);
    rg_out_close(&out, '}');
    if (!ok)
        rg_exchange_set(x, "Retry-After", "2");
    rg_note_answer(s, x, ok ? 200 : 503);
    rg_exchange_reply(x, ok ? 200 : 503, "application/json", &out);
}

/* Alive: the pumps' loops turned in the last seconds.  A model that is not open has none. */
void rg_api_livez(rg_served *s, rg_exchange *x)
{
    bool ok = true;
    rg_served *each;

    for (int i = 0; (each = rg_server_nth(s->server, i)); i++)
        if (rg_served_hold(each)) {
            ok &= rg_seconds(each->turned_ns, rg_now_ns()) < 5;
            rg_served_release(each);
        }
    reply_state(s, x, ok, ok ? "ok" : "stuck");
}

/* Ready: a model is loaded, nothing failed, and the queue has room. */
void rg_api_health(rg_served *s, rg_exchange *x)
{
    switch ((rg_server_state)atomic_load(&s->state)) {
    case RG_LOADING:
        reply_state(s, x, s->server->models,
                    s->server->models ? "ok" : "loading"); /* several are opened when they are asked for */
        return;
    case RG_DRAINING:
        reply_state(s, x, false, "draining");
        return;
    case RG_FAULTED:
        reply_state(s, x, false, "engine fault");
        return;
    default:
        break;
    }
    bool held = rg_served_hold(s), full = held && rg_engine_stats(s->engine).queue_fill >= 0.9;
    if (held)
        rg_served_release(s);
    reply_state(s, x, !full, full ? "queue full" : "ok");
}

void rg_api_version(rg_served *s, rg_exchange *x)
{
    rg_buf out;

    rg_buf_init(&out, 4096);
    rg_out_open(&out, NULL, '{');
    rg_out_text(&out, "version", RG_VERSION);
    rg_out_close(&out, '}');
    rg_reply_json(s, x, &out);
}

void rg_api_metrics(rg_served *s, rg_exchange *x)
{
    char started[24];
    rg_buf out;

    rg_buf_init(&out, 1 << 20);
    rg_metrics *all[256];
    int n = 0;

    for (rg_served *each; n < (int)RG_LEN(all) && (each = rg_server_nth(s->server, n)); n++)
        all[n] = each->metrics;
    rg_metrics_print(all, n, &out);
    snprintf(started, sizeof started, "%lld", (long long)s->server->started_s);
    rg_exchange_set(x, "Process-Start-Time-Unix", started);
    rg_note_answer(s, x, 200);
    rg_exchange_reply(x, 200, "text/plain; version=0.0.4; charset=utf-8", &out);
}

/* Forecasts for this model on this machine. */
static void write_forecasts(rg_buf *out, const rg_served *s)
{
    rg_out_int(out, "forecast_context", s->forecast_at);
    rg_out_open(out, "forecast", '[');
    for (int i = 0; i < s->n_forecasts; i++) {
        const rg_forecast *f = &s->forecast[i].f;
        rg_out_open(out, NULL, '{');
        rg_out_int(out, "batch", s->forecast[i].batch);
        rg_out_real(out, "weight_bytes", f->weight_bytes);
        rg_out_real(out, "state_bytes", f->kv_bytes + f->recurrent_bytes);
        rg_out_real(out, "activation_bytes", f->activation_bytes);
        rg_out_real(out, "step_s", f->step_s);
        rg_out_real(out, "limit_s", f->limit_s);
        rg_out_real(out, "tokens_per_s", f->tokens_s);
        rg_out_real(out, "ttft_s", f->ttft_s);
        rg_out_text(out, "bound", f->bound);
        rg_out_close(out, '}');
    }
    rg_out_close(out, ']');
}

/* Facts of a model that is open, held. */
static void write_plan(rg_buf *out, const rg_served *s)
{
    rg_out_open(out, "plan", '{');
    rg_out_text(out, "draft", s->info.draft);
    rg_out_text(out, "architecture", s->info.architecture);
    rg_out_text(out, "isa", s->info.isa);
    rg_out_text(out, "recipe", s->info.recipe);
    rg_out_text(out, "kv_type", s->info.kv_type);
    rg_out_real(out, "attention_sparsity", s->info.attention_sparsity);
    rg_out_int(out, "threads", s->info.n_threads);
    rg_out_int(out, "context", s->info.max_seq_len);
    rg_out_int(out, "parameters", (int64_t)s->info.n_parameters);
    rg_out_int(out, "weight_bytes", (int64_t)s->info.weight_bytes);
    rg_out_int(out, "state_bytes", (int64_t)s->info.state_bytes);
    rg_out_int(out, "position_bytes", (int64_t)s->info.position_bytes);
    rg_out_int(out, "sequence_bytes", (int64_t)s->info.sequence_bytes);
    rg_out_bool(out, "chat", rg_chat_has_template(s->engine));
    write_forecasts(out, s);
    rg_out_close(out, '}');
}

/* Where a server has several models, a model is closed until it is asked for.  While its engine is being closed the
 * state is still "ready": only `open`, from rg_served_hold, says what other endpoints say too. */
static const char *state_word(rg_served *s, bool open)
{
    static const char *const states[] = { "loading", "ready", "draining", "fault" };
    int state = atomic_load(&s->state);

    if (!s->server->models || open || state > RG_READY)
        return states[state];
    return rg_models_is_wanted(s) ? "loading" : "closed";
}

/* What the page's gauges show, of the model that the query names. */
void rg_api_status(rg_served *first, rg_exchange *x)
{
    static const struct {
        const char *name;
        rg_gauge_id id;
        bool kept; /* also once the model is closed */
    } gauges[] = { { "tokens_per_s", RG_G_TOKENS_S },
                   { "prompt_tokens_per_s", RG_G_PREFILL_S },
                   { "batch", RG_G_BATCH },
                   { "running", RG_G_RUNNING },
                   { "waiting", RG_G_WAITING },
                   { "state_used", RG_G_KV },
                   { "roofline", RG_G_ROOFLINE, true } };
    rg_refusal e = { 0 };
    rg_served *s = rg_models_told(first, x, &e);
    rg_buf out;

    if (!s) {
        rg_reply_refusal(first, x, &e);
        return;
    }
    const bool open = rg_served_hold(s);
    rg_buf_init(&out, 1 << 16);
    rg_out_open(&out, NULL, '{');
    rg_out_text(&out, "state", state_word(s, open));
    rg_out_text(&out, "model", s->name);
    rg_out_text(&out, "version", RG_VERSION);
    for (size_t i = 0; i < RG_LEN(gauges); i++)
        rg_out_real(&out, gauges[i].name, open || gauges[i].kept ? rg_metric_gauge(s->metrics, gauges[i].id) : 0);
    rg_out_real(&out, "ttft_s", rg_metric_quantile(s->metrics, RG_H_TTFT, 0.5));
    rg_out_real(&out, "step_s", rg_metric_quantile(s->metrics, RG_H_STEP, 0.5));
    rg_out_real(&out, "drafted_tokens", rg_metric_counter(s->metrics, RG_C_DRAFT_TOKENS));
    rg_out_real(&out, "accepted_tokens", rg_metric_counter(s->metrics, RG_C_ACCEPTED));
    if (open) {
        write_plan(&out, s);
        rg_served_release(s);
    } else {
        write_progress(&out, s);
    }
    rg_out_close(&out, '}');
    rg_reply_json(s, x, &out);
}
