/* served.c -- one of the server's models: what is learnt of it when its engine comes, and its end. */
#include "base/clock.h"
#include "base/mem.h"
#include "server/api/fim.h"
#include "server/call.h"
#include "server/core.h"

rg_served *rg_served_new(rg_server *server, const char *name, rg_error *err)
{
    rg_served *s = rg_zalloc(sizeof *s);

    if (!s)
        return rg_fail_memory(err, sizeof *s), NULL;
    s->server = server;
    s->name = rg_strdup(name);
    pthread_mutex_init(&s->lock, NULL);
    s->news_made = rg_cond_init(&s->news);
    s->metrics = s->name && s->news_made ? rg_metrics_new(s->name, err) : NULL;
    s->steps = s->metrics ? rg_steps_new(err) : NULL;
    if (s->steps)
        return s;
    rg_served_free(s);
    return rg_fail_memory(err, 0), NULL;
}

void rg_served_drop(rg_served *s)
{
    while (s->fresh) {
        rg_call *c = s->fresh;
        s->fresh = c->next;
        rg_call_free(c);
    }
}

void rg_served_free(rg_served *s)
{
    if (!s)
        return;
    if (s->update_runs)
        pthread_join(s->update, NULL);
    rg_talk_forget(&s->use);
    rg_steps_free(s->steps);
    rg_metrics_free(s->metrics);
    rg_free((void *)(uintptr_t)s->name);
    if (s->news_made)
        pthread_cond_destroy(&s->news);
    pthread_mutex_destroy(&s->lock);
    rg_free(s);
}

void rg_served_loading(rg_served *s, const char *step, double done)
{
    atomic_store(&s->loaded, (int)(done * 1000));
    atomic_store(&s->loading, step);
}

void rg_served_sampling(rg_served *s, const rg_sampling *p, bool fixed_seed)
{
    s->sampling = *p;
    s->sampling_given = true;
    s->fixed_seed = fixed_seed;
}

/* Forecasts for the page. */
static void make_forecasts(rg_served *s, const rg_engine *engine)
{
    static const int32_t batches[RG_MAX_FORECASTS] = { 1, 4, 16, 64 };

    s->n_forecasts = 0;
    s->forecast_at = s->info.max_seq_len / 2 < 1024 ? s->info.max_seq_len / 2 : 1024;
    for (int i = 0; i < RG_MAX_FORECASTS; i++) {
        s->forecast[s->n_forecasts].batch = batches[i];
        s->n_forecasts += rg_engine_forecast(engine, batches[i], s->forecast_at, &s->forecast[s->n_forecasts].f);
    }
}

void rg_served_ready(rg_served *s, rg_engine *engine)
{
    int loading = RG_LOADING;

    s->info = rg_engine_info(engine);
    if (s->sampling_given)
        s->info.sampling = s->sampling;
    s->card = rg_engine_card(engine);
    rg_fim_learn(&s->fim, engine);
    rg_talk_learn(&s->use, engine, s->server->o.tool_format);
    make_forecasts(s, engine);
    atomic_store(&s->engine, engine);
    atomic_compare_exchange_strong(&s->state, &loading, RG_READY); /* the state may be draining already */
    rg_gauge(s->metrics, RG_G_READY, 1);
}

bool rg_served_open(rg_served *s, rg_engine *engine, rg_error *err)
{
    if (!s->pump_runs && !rg_pump_start(s, err))
        return false;
    rg_served_ready(s, engine);
    return true;
}

/* A model that is closed does nothing, and keeps nothing in memory. */
static void rest_gauges(rg_metrics *m)
{
    static const rg_gauge_id ids[] = { RG_G_READY, RG_G_RUNNING, RG_G_WAITING,  RG_G_WAITING_IDS, RG_G_STATE,
                                       RG_G_LIVE,  RG_G_KV,      RG_G_TOKENS_S, RG_G_PREFILL_S,   RG_G_BATCH };

    for (size_t i = 0; i < RG_LEN(ids); i++)
        rg_gauge(m, ids[i], 0);
}

void rg_served_close(rg_served *s)
{
    rg_engine *engine = atomic_load(&s->engine);
    int ready = RG_READY;

    rg_pump_stop(s);
    s->closing = s->aborting = false;
    atomic_compare_exchange_strong(&s->state, &ready, RG_LOADING);
    rest_gauges(s->metrics);
    atomic_store(&s->engine, NULL);
    rg_close(engine);
    rg_talk_forget(&s->use);
}
