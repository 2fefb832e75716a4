/* server.h -- the HTTP server over engines: the APIs that clients already speak, for many clients at once.
 *
 * It answers from one engine that is given, or opens the models of a list by itself (models.h).
 *
 * It listens from rg_server_open on and answers 503 until an engine is there.  HTTP threads turn requests into
 * rg_submit, one pump thread turns tokens into bytes; the engine never waits for either.  Functions may be called from
 * any thread. */
#ifndef RG_SERVER_SERVER_H
#define RG_SERVER_SERVER_H

#include "ridge.h"

typedef struct rg_server rg_server;
typedef struct rg_served rg_served; /* one of its models */

enum { RG_LINE_EVERY = 32 }; /* requests, after which a line of a batch is begun even while others wait */

typedef struct rg_server_options {
    const char *const *hosts; /* addresses or names to listen on, or unix:PATH; none: this machine alone */
    int32_t n_hosts;
    int32_t socket_mode;        /* permissions of Unix sockets */
    int32_t port;               /* 0 picks one */
    bool any_port;              /* if that one is taken, another */
    const char *model;          /* the name that clients know the model by */
    const char *const *aliases; /* other names that clients may call it by */
    int32_t n_aliases;
    bool strict_model;       /* any other name is a 404; else one model that is alone answers under every name */
    const char *const *keys; /* API keys; none: everybody may ask */
    int32_t n_keys;
    const float *key_weights; /* [n_keys] shares of the keys' holders, as rg_params.tenant_weight; NULL: all the same */
    const char *tls_cert, *tls_key;  /* PEM texts, both or neither */
    const char *const *cors_origins; /* of web pages that may ask, besides this machine's; * is any text, or all */
    int32_t n_cors_origins;
    const char *const *allowed_hosts; /* names that it answers to besides this machine's: NAME, *.NAME or * */
    int32_t n_allowed_hosts;
    size_t max_body;   /* bytes of a request's body */
    size_t max_header; /* bytes of a request's head: its line and its headers */
    int32_t max_connections, n_threads;
    int32_t max_waiting;      /* what the engine was opened with: past it, 429 before the body is read */
    int32_t max_choices;      /* answers of one request in all: prompts x n */
    double request_timeout_s; /* no request runs longer; 0: none */
    double queue_timeout_s;   /* or waits longer than this for its first step; 0: for ever */
    double idle_timeout_s, header_timeout_s, body_timeout_s, write_timeout_s;
    double ping_s;      /* a stream without news is written to so often, so that no proxy closes it; 0: never */
    double watchdog_s;  /* a step that takes longer than this, and than 10 x the 99th percentile, is a fault */
    bool no_listener;   /* it listens when rg_server_listen says so; without that, what it answers comes from
                               *   within the process (batch/file.h) */
    bool allow_updates; /* clients may replace the weights (/update_weights) */
    bool no_page;
    bool metrics_open;           /* /metrics asks for no key */
    bool no_slots;               /* /slots is refused: it tells how busy the server is */
    int32_t max_tokens;          /* of an answer, where a request does not say; 0: no limit */
    const char *template_kwargs; /* variables of the chat template that conversations do not set: an object in JSON;
                               *   NULL: none */
    const char *tool_format; /* the family whose marks an answer has (rg_talk_named in talk/talk.h); NULL: as the chat
                               *   template and the vocabulary have it */
    const char *batch_dir;   /* where files and batches are kept; NULL: there are none */
    const char *store_dir;   /* where responses and conversations are kept; NULL: in memory, for an hour */
    int32_t batch_lines;     /* of batches, that run at once, at most */
    int32_t max_batches;     /* of one key, that have not ended */
} rg_server_options;

rg_server_options rg_server_options_default(void);

/* Listen, if not told otherwise.  The options' texts are copied.  NULL and *err on failure. */
rg_server *rg_server_open(const rg_server_options *options, rg_error *err);
bool rg_server_listen(rg_server *s, rg_error *err); /* once, if it was opened with no_listener */
const char *rg_server_url(const rg_server *s);      /* valid until the close */

/* Until there is an engine: what is being done to open it, a text that stays, and how much of it is done, 0 to 1. */
void rg_served_loading(rg_served *s, const char *step, double done);
rg_served *rg_server_first(rg_server *s); /* the model of a server that has one */

/* How tokens are chosen where a request does not say; before rg_server_ready.  Texts and lists that it points to stay
 * as long as the server.  fixed_seed: requests without a seed have that of p, and none is drawn. */
void rg_served_sampling(rg_served *s, const rg_sampling *p, bool fixed_seed);

/* Answer from this engine, which outlives the server's close. */
void rg_server_ready(rg_server *s, rg_engine *engine);

/* What a model's files say of it, for clients that choose among models that are not open. */
typedef struct rg_model_facts {
    char family[64], weight_type[32]; /* as in rg_card */
    bool is_gguf, has_template;       /* has_template: for chats */
    uint64_t n_parameters;
    int32_t context, vocab_size;
    const char *abilities[8]; /* [n_abilities] words that stay, as in abilities.h */
    int n_abilities;
} rg_model_facts;

/* Several models: how they are opened, and how long they stay. */
typedef struct rg_server_models {
    /* By a thread of the server, one at a time: open the model at this path, and tell rg_served_loading(s, ...) how
     * far it is.  RG_E_LIMIT: there is too little memory; it may be asked again when another model was closed.  The
     * engine is the server's, which closes it. */
    rg_engine *(*open)(void *arg, const char *path, rg_served *s, rg_error *err);
    /* Look into the files at this path, once, before the model is served.  False: they tell nothing.  NULL: none is
     * looked into. */
    bool (*look)(void *arg, const char *path, rg_model_facts *out);
    void *arg;
    double keep_alive_s; /* a model that has answered nothing for so long is closed; below 0: it stays */
} rg_server_models;

/* Answer from these models instead of one engine, each opened when it is asked for; the first one's name becomes that
 * of options.model, and requests that name none are for it.  Once, before it listens.  False and *err: two have the
 * same name, no memory, or no thread. */
bool rg_server_serve_models(rg_server *s, const rg_server_models *o, const char *const *names, const char *const *paths,
                            int32_t n, rg_error *err);

void rg_server_drain(rg_server *s);          /* from now on new work is refused with 503; what runs goes on */
int rg_server_in_flight(const rg_server *s); /* requests that have not had their last byte */
bool rg_server_faulted(const rg_server *s);  /* no step has ended for too long: the process must be restarted */
void rg_server_abort(rg_server *s);          /* end what runs with an error event */
void rg_server_close(rg_server *s);          /* NULL is fine */

#endif
