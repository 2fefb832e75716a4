/* models.h -- several models behind one server: each is opened when it is asked for, and closed when it was not for a
 * while or when another one needs its memory; never while it answers.
 *
 * An exchange goes to the model (rg_served) that its body names; one whose model is not open waits, with others in the
 * order in which they came, and is answered by the thread that opens models.  So endpoints know one model, as if it
 * were alone. */
#ifndef RG_SERVER_MODELS_H
#define RG_SERVER_MODELS_H

#include "server/core.h"

typedef struct rg_models rg_models;

rg_models *rg_models_new(rg_server *server, const rg_server_models *o, rg_error *err);
/* The first is server->first under this name; one that is there already is refused. */
bool rg_models_add(rg_models *m, const char *name, const char *path, rg_error *err);
bool rg_models_start(rg_models *m, rg_error *err);
/* No model is opened any more: who waits for one is refused. */
void rg_models_stop(rg_models *m); /* NULL is fine */
void rg_models_free(rg_models *m); /* closes the engines; NULL is fine */

/* Any thread.  Answer by the model that the exchange names; or now with a refusal. */
void rg_models_answer(rg_models *m, rg_exchange *x);
/* The i-th model; NULL past the end. */
rg_served *rg_models_nth(rg_models *m, int i);
/* What its files take, in bytes, and when they were changed last. */
uint64_t rg_models_stored(const rg_served *s, int64_t *modified_s);
/* What its files say; NULL: nothing. */
const rg_model_facts *rg_models_facts(const rg_served *s);
/* When it will be closed if nobody asks for it, in seconds of the wall clock; 0: never. */
int64_t rg_models_expire_s(rg_served *s);

/* ---- of servers with one model, too ---- */

/* The i-th model of a server; NULL past the end. */
rg_served *rg_server_nth(rg_server *s, int i);
/* The model of this name, or with an adapter of this name; NULL: there is none. */
rg_served *rg_models_find(rg_server *s, const char *name);
/* The model that the query of an exchange names, open or not: what is told of a model opens none.  Without a name the
 * server's first.  NULL and *e: there is none of this name. */
rg_served *rg_models_told(rg_served *s, rg_exchange *x, rg_refusal *e);
/* Somebody waits for it: it is being opened, or will be. */
bool rg_models_is_wanted(rg_served *s);
/* While it is held a model that is open stays so.  False: it is not open. */
bool rg_served_hold(rg_served *s);
void rg_served_release(rg_served *s);
/* This model is kept for so many seconds after its last answer; below 0: for good. */
void rg_models_keep(rg_served *s, double seconds);
int rg_models_in_flight(rg_models *m); /* waiting ones too */

#endif
