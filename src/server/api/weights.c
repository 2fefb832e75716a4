/* weights.c -- POST /update_weights: the weights of the model are replaced in place, as a training that asks this
 * server for answers needs it.  Off unless the server was started to allow it. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "server/core.h"
#include "server/json.h"

/* One update, on a thread of its own: it may take as long as reading a model takes. */
typedef struct weights_update {
    rg_served *served;
    rg_exchange *x;
    char *path;
} weights_update;

static void free_update(weights_update *u)
{
    rg_exchange_release(u->x);
    rg_free(u->path);
    rg_free(u);
}

static void reply(const weights_update *u, double seconds)
{
    rg_buf out;

    rg_buf_init(&out, 1 << 16);
    rg_out_open(&out, NULL, '{');
    rg_out_bool(&out, "success", true);
    rg_out_text(&out, "message", "The weights were replaced.");
    rg_out_int(&out, "updates", (int64_t)rg_engine_stats(u->served->engine).n_updates);
    rg_out_real(&out, "seconds", seconds);
    rg_out_close(&out, '}');
    rg_reply_json(u->served, u->x, &out);
}

static void *run(void *arg)
{
    weights_update *u = arg;
    rg_served *s = u->served;
    const uint64_t from = rg_now_ns();
    rg_error err = { 0 };
    rg_refusal e;

    if (rg_engine_update_weights(s->engine, u->path, &err)) {
        reply(u, rg_seconds(from, rg_now_ns()));
    } else {
        if (err.code == RG_E_BUSY || err.code == RG_E_MEMORY)
            rg_refuse(&e, 503, err.code == RG_E_BUSY ? "shutting_down" : "out_of_memory", NULL, "%s.", err.text);
        else
            rg_refuse(&e, 400, "weights_refused", "path", "The weights stay as they are: %.500s.", err.text);
        rg_reply_refusal(s, u->x, &e);
    }
    free_update(u);
    atomic_store(&s->updating, false);
    return NULL;
}

/* The path that the body names; NULL and *e.  rg_free it. */
static char *read_path(rg_exchange *x, rg_refusal *e)
{
    static const char *const names[] = { "path", "model_path" };
    json_t *body = rg_read_object(x, e);
    const char *path = NULL;

    for (size_t i = 0; body && i < RG_LEN(names) && !path; i++)
        path = json_string_value(json_object_get(body, names[i]));
    char *copy = path && *path ? rg_strdup(path) : NULL;
    if (body && !copy)
        rg_refuse_field(e, "path", "'path' must name a checkpoint, a file or a folder on the server's machine.");
    json_decref(body);
    return copy;
}

void rg_api_update_weights(rg_served *s, rg_exchange *x)
{
    rg_refusal e = { 0 };
    weights_update *u = NULL;
    bool idle = false;

    if (!s->server->o.allow_updates || s->server->models)
        rg_refuse(&e, 403, "updates_off", NULL,
                  s->server->models
                      ? "A server of several models does not replace weights."
                      : "This server does not replace its weights: it was started without --allow-update-weights.");
    else if (!atomic_compare_exchange_strong(&s->updating, &idle, true))
        rg_refuse(&e, 409, "updating", NULL, "The weights are being replaced by an earlier request.");
    else if (!(u = rg_zalloc(sizeof *u)))
        rg_refuse_memory(&e);
    if (u) {
        u->served = s;
        u->path = read_path(x, &e);
        u->x = x;
        rg_exchange_keep(x);
        if (s->update_runs) /* it has ended */
            pthread_join(s->update, NULL);
        s->update_runs = u->path && rg_thread_start(&s->update, run, u);
        if (s->update_runs)
            return;
        if (u->path)
            rg_refuse(&e, 503, "out_of_memory", NULL, "There is no thread to replace the weights with.");
        rg_reply_refusal(s, x, &e);
        free_update(u);
        atomic_store(&s->updating, false);
        return;
    }
    if (!idle && s->server->o.allow_updates && !s->server->models && e.status != 409)
        atomic_store(&s->updating, false);
    rg_reply_refusal(s, x, &e);
}
