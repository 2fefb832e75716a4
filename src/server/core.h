/* core.h -- what the parts of the server share: the server itself, the endpoints' table, and how to refuse a client.
 *
 * rg_server is what all models share, rg_served is one of them. */
#ifndef RG_SERVER_CORE_H
#define RG_SERVER_CORE_H

#include <pthread.h>
#include <stdatomic.h>

#include "server/talk/conversation.h"
#include "server/api/family.h"
#include "server/http/http.h"
#include "server/kept.h"
#include "server/keys.h"
#include "server/metrics.h"
#include "server/server.h"
#include "server/steps.h"
#include "server/talk/learn.h"

typedef struct rg_call rg_call;
typedef struct rg_batches rg_batches;

/* Responses that are made while nobody waits for them. */
typedef struct rg_background {
    pthread_mutex_t lock;
    struct rg_background_one *first;
} rg_background;

typedef enum rg_server_state { RG_LOADING, RG_READY, RG_DRAINING, RG_FAULTED } rg_server_state;

enum { RG_MAX_FORECASTS = 4 };

/* Ids of the marks with which a model fills in the middle (fim.h); -1: there is no such mark. */
typedef struct rg_fim {
    int32_t prefix, suffix, middle, repo, file;
    bool suffix_first;
} rg_fim;

/* One model that is served: its engine, what is known of it, its calls and its figures. */
struct rg_served {
    rg_server *server;
    const char *name; /* by which clients know it; owned */
    rg_metrics *metrics;
    rg_steps *steps;             /* the latest steps and answers */
    _Atomic(rg_engine *) engine; /* NULL: not yet */
    rg_info info;                /* set before engine, as all up to forecast_at */
    rg_sampling sampling;        /* where a request does not say, if sampling_given */
    bool sampling_given, fixed_seed;
    rg_card card;
    rg_fim fim;
    rg_talk_use use; /* how the model marks reasoning and calls */
    struct {
        int32_t batch;
        rg_forecast f;
    } forecast[RG_MAX_FORECASTS]; /* of steps after forecast_at positions */
    int n_forecasts;
    int32_t forecast_at;
    atomic_int state;              /* rg_server_state */
    _Atomic(const char *) loading; /* what rg_served_loading was told; NULL: nothing yet */
    atomic_int loaded;             /* of that, parts of 1,000 */
    atomic_int n_in_flight;
    atomic_bool aborting, closing;
    atomic_bool updating; /* weights are being replaced, by this thread: */
    pthread_t update;
    bool update_runs;           /* it is there to be joined */
    _Atomic uint64_t turned_ns; /* when the pump last went round */
    pthread_t pump;
    bool pump_runs;
    pthread_mutex_t lock; /* of the calls that are handed over, and nothing else */
    pthread_cond_t news;
    bool news_made;
    rg_call *fresh;             /* handed over, not yet with the pump */
    struct rg_model_slot *slot; /* of several models (models.c); NULL: its engine is given */
};

/* What all models share. */
struct rg_server {
    rg_server_options o; /* texts owned */
    rg_http *http;
    rg_keys *keys;
    rg_kept_texts *kept; /* responses and conversations */
    rg_background background;
    rg_batches *batches; /* NULL: no files and batches */
    _Atomic uint64_t n_calls; /* handed to the pumps so far */
    int64_t started_s;
    rg_served *first;                   /* the only model, or the one that answers who names none */
    _Atomic(struct rg_models *) models; /* all of them, if it opens several by itself; NULL: first is all */
};

/* ---- endpoints ---- */

typedef enum rg_route_flags {
    RG_ROUTE_OPEN = 1,   /* no key needed */
    RG_ROUTE_WORK = 2,   /* needs an engine that takes work */
    RG_ROUTE_PREFIX = 4, /* the path goes on */
    RG_ROUTE_ENGINE = 8, /* needs a model, but makes no tokens */
    RG_ROUTE_LIST = 16,  /* of all models, open or not */
} rg_route_flags;

typedef void rg_endpoint(rg_served *s, rg_exchange *x);

#define ROUTE(method, path, name, family, flags) rg_endpoint rg_api_##name;
#include "server/api/routes.def"
#undef ROUTE

typedef struct rg_route {
    const char *method, *path;
    rg_endpoint *answer;
    const rg_family *family;
    unsigned flags;
} rg_route;

extern const rg_route rg_routes[];
extern const int rg_n_routes;

/* Any thread that has the exchange: its endpoint answers, from the model that it names. */
void rg_server_answer(rg_server *s, rg_exchange *x);
/* Its endpoint answers from this model.  Values that find no memory meanwhile (rg_json_lost) make every answer and
 * refusal a 503, so that endpoints need not look at each value. */
void rg_endpoint_answer(rg_served *s, rg_exchange *x);

/* True if work may begin: it is ready, or opens models when they are asked for. */
bool rg_server_takes_work(const rg_server *s);
/* Requests that wait for their engines. */
int64_t rg_server_n_waiting(rg_server *s);

/* ---- models (served.c) ---- */

/* A model of the server, without an engine. */
rg_served *rg_served_new(rg_server *server, const char *name, rg_error *err);
void rg_served_free(rg_served *s); /* NULL is fine */
void rg_served_drop(rg_served *s); /* calls that were handed over while its pump was stopping */
/* Answer from this engine. */
void rg_served_ready(rg_served *s, rg_engine *engine);
/* The same with a pump, and its end: the engine, which answers nothing, is closed. */
bool rg_served_open(rg_served *s, rg_engine *engine, rg_error *err);
void rg_served_close(rg_served *s);

/* ---- answering ---- */

enum { RG_TENANT = 24 };
/* The engine's name for the holder of this key, in to[RG_TENANT]; NULL: no key. */
const char *rg_name_tenant(int tenant, char *to);

void rg_reply_refusal(rg_served *s, rg_exchange *x, const rg_refusal *e);
/* The i-th status with which requests may be refused; 0: there are not so many. */
int rg_error_status(int i);
/* The document that e is in the family of the exchange's endpoint. */
void rg_refusal_write(rg_buf *b, const rg_exchange *x, const rg_refusal *e);
void rg_reply_json(rg_served *s, rg_exchange *x, rg_buf *body);
void rg_reply_text(rg_served *s, rg_exchange *x, int status, const char *type, const char *text);
/* Count and log an exchange that has been answered. */
void rg_note_answer(rg_served *s, rg_exchange *x, int status);

/* The body as an object; NULL and *e.  Its text is dropped. */
json_t *rg_read_object(rg_exchange *x, rg_refusal *e);
/* Make *e of what the engine refused, without what a client must not learn. */
void rg_refuse_engine(rg_served *s, rg_refusal *e, const rg_error *err);
/* This is a name of the model, or of one of its adapters. */
bool rg_is_model(const rg_served *s, const char *name);
/* The model that a request names can answer it: a model that is alone answers under any name, unless names are
 * strict. */
bool rg_check_model(const rg_served *s, const char *name, rg_refusal *e);
/* False and *e, which tells the models that there are, as many as the message has room for. */
bool rg_refuse_model(const rg_served *s, rg_refusal *e);
/* The adapter of this name, as the engine calls it; NULL: none is called so. */
const char *rg_find_adapter(const rg_served *s, const char *name);

/* A conversation as the model sees it. */
typedef struct rg_rendered {
    int32_t *ids; /* rg_ids_free */
    size_t n;
    char *text;          /* rg_text_free */
    bool tools_told;     /* the tools are told by a text of ours: the template knows none */
    rg_talk_start start; /* where the answer begins: the prompt may end within the model's reasoning */
    int think;           /* the family's marks of the reasoning that may come, or is open; -1: none may come */
} rg_rendered;

/* generation_prompt: open a message for the answer, unless the last one is continued.  On failure *e, and nothing to
 * free. */
bool rg_render(rg_served *s, const rg_conversation *talk, bool generation_prompt, rg_rendered *r, rg_refusal *e);
/* The same without as many of its oldest turns as it takes for `most` ids, and a warning if that is any.  The last turn
 * stays, and it may be too long. */
bool rg_render_cut(rg_served *s, rg_conversation *talk, size_t most, rg_rendered *r, rg_refusal *e);
void rg_rendered_fini(rg_rendered *r);
/* Say in headers of the answer what the client should know of the prompt. */
void rg_warn_of(rg_exchange *x, const rg_conversation *talk, const rg_rendered *r);

/* ---- the pump (pump.c) ---- */

bool rg_pump_start(rg_served *s, rg_error *err);
void rg_pump_stop(rg_served *s);
void rg_pump_take(rg_served *s, rg_call *c); /* from now on the pump's, which frees it */

#endif
