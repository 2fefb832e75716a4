/* background.c -- responses that are made while nobody waits for them: the client is answered at once, and asks for the
 * response by its id later.
 *
 * Such a call goes on through an exchange without a connection.  Its response is kept from the beginning on (kept.h)
 * and changes its status as the call does. */
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "server/api/responses.h"

/* A response on its way, in the server's list. */
typedef struct rg_background_one background_one;
struct rg_background_one {
    background_one *next;
    rg_served *s;
    rg_exchange *x;
    char id[RG_KEPT_ID];
    const char *owner;
    bool cancelled;
};

static void forget(background_one *b)
{
    pthread_mutex_lock(&b->s->server->background.lock);
    for (background_one **at = &b->s->server->background.first; *at; at = &(*at)->next)
        if (*at == b) {
            *at = b->next;
            break;
        }
    pthread_mutex_unlock(&b->s->server->background.lock);
}

/* Change the kept response's status, with what went wrong in body, an error object; NULL: nothing.  Without memory for
 * that it stays as it is, and is read as failed since no call makes it (rg_api_response). */
static void set_status(rg_served *s, const char *owner, const char *id, const char *status, const char *body)
{
    const uint64_t watch = rg_json_watch();
    json_t *v, *response, *error = body ? json_loads(body, 0, NULL) : NULL, *text;

    rg_kept_hold(s->server->kept);
    v = rg_kept_load(s, owner, id);
    response = json_object_get(v, "response");
    text = json_object_get(json_object_get(error, "error"), "message");
    if (response) { /* it may have been deleted */
        json_object_set_new(response, "status", json_string(status));
        if (json_is_string(text))
            json_object_set_new(response, "error", json_pack("{s:s, s:O}", "code", "server_error", "message", text));
        rg_kept_store(s, owner, id, v);
    }
    rg_kept_release(s->server->kept);
    json_decref(v);
    json_decref(error);
    rg_json_watch_again(watch);
}

/* The call is over; called by whoever released its exchange last. */
static void done(void *arg, rg_exchange *x)
{
    background_one *b = arg;
    rg_buf body;
    int status;

    rg_buf_init(&body, 1 << 28);
    status = rg_exchange_take(x, &body);
    if (b->cancelled)
        set_status(b->s, b->owner, b->id, "cancelled", NULL);
    else if (status != 200)
        set_status(b->s, b->owner, b->id, "failed", body.n ? body.data : NULL);
    forget(b);
    rg_buf_fini(&body);
    rg_free(b);
}

static background_one *new_one(rg_call *c)
{
    background_one *b = rg_zalloc(sizeof *b);
    rg_inner_options o = { .id = rg_exchange_id(c->x), .note = *rg_exchange_notes(c->x), .done = done, .arg = b };
    rg_buf empty;

    if (!b)
        return NULL;
    b->s = c->served;
    b->owner = rg_keys_owner(c->served->server->keys, o.note.tenant);
    memcpy(b->id, c->id, strlen(c->id) + 1);
    rg_buf_init(&empty, 1);
    b->x = rg_exchange_new(&o, &empty);
    if (!b->x) {
        rg_free(b);
        return NULL;
    }
    pthread_mutex_lock(&b->s->server->background.lock);
    b->next = b->s->server->background.first;
    b->s->server->background.first = b;
    pthread_mutex_unlock(&b->s->server->background.lock);
    return b;
}

bool rg_background_start(rg_call *c, rg_refusal *e)
{
    background_one *b = new_one(c);
    rg_exchange *client = c->x, *inner = b ? b->x : NULL; /* b is freed when the last reference to inner is released */
    rg_served *s = c->served;
    rg_buf out;

    if (!b)
        return rg_refuse_memory(e);
    rg_buf_init(&out, 1 << 28);
    rg_response_write(&out, c, NULL, false, NULL);
    if (out.failed)
        rg_json_lose();
    rg_exchange_keep(inner);
    c->x = inner;
    rg_response_keep(c, false, NULL);
    bool ok = rg_call_start(c, e);
    if (ok) {
        rg_reply_json(s, client, &out);
    } else {
        c->x = client; /* as the caller had it */
        rg_kept_remove(s->server->kept, rg_keys_owner(s->server->keys, rg_exchange_notes(client)->tenant), c->id);
        rg_exchange_release(inner);
        rg_buf_fini(&out);
    }
    rg_exchange_release(inner);
    if (ok)
        rg_exchange_release(client); /* the call's */
    return ok;
}

bool rg_background_runs(rg_served *s, const char *id)
{
    bool runs = false;

    pthread_mutex_lock(&s->server->background.lock);
    for (const background_one *b = s->server->background.first; b && !runs; b = b->next)
        runs = !strcmp(b->id, id);
    pthread_mutex_unlock(&s->server->background.lock);
    return runs;
}

void rg_background_cancel(rg_served *s, rg_exchange *x, const char *id, json_t *response)
{
    bool running = false;
    rg_buf out;

    pthread_mutex_lock(&s->server->background.lock);
    for (background_one *b = s->server->background.first; b; b = b->next)
        if (!strcmp(b->id, id)) {
            b->cancelled = running = true;
            rg_exchange_leave(b->x);
        }
    pthread_mutex_unlock(&s->server->background.lock);
    if (running)
        json_object_set_new(response, "status", json_string("cancelled"));
    rg_buf_init(&out, 1 << 28);
    rg_out_value(&out, NULL, response);
    rg_reply_json(s, x, &out);
}
