/* ollama.h -- what the endpoints of Ollama's API share: its bodies in the names of fields.def, and names of models,
 * times and durations as it writes them.
 *
 * Its requests are those of completions, chat and embeddings in another dress: options stand in an object of their own,
 * answers stream unless told otherwise, and they are lines of JSON. */
#ifndef RG_SERVER_API_OLLAMA_H
#define RG_SERVER_API_OLLAMA_H

#include "server/call.h"

/* The version of Ollama's API that is spoken: clients ask for it before they use what is newer. */
#define RG_OLLAMA_VERSION "0.12.11"

/* Bring c->body into the names of fields.def: limits below 1 are none, an answer streams unless `stream` says that it
 * does not, and messages are those of chat completions. */
bool rg_ollama_adapt(rg_call *c, rg_refusal *e);

/* `think`: true, false, or how much: "low", "medium", "high".  Sets the chat template's variables in the body. */
bool rg_ollama_think(rg_call *c, rg_refusal *e);

/* Refuse pictures in a list called `param`, unless it is empty: models see none here. */
bool rg_ollama_no_images(const json_t *images, const char *param, rg_refusal *e);

/* keep_alive: how long the model is to stay after this answer, in seconds (0: it goes, below 0: for good), as a number
 * or as Go writes durations ("5m", "1h30m").  False: it is not there, or is none. */
bool rg_ollama_keeps(const json_t *body, double *seconds);

/* "model": the name that answers as clients know it, with its tag. */
void rg_ollama_write_name(rg_buf *b, const char *key, const char *name);
/* Seconds since 1970, in UTC: "2026-01-31T12:00:00Z". */
void rg_ollama_write_time(rg_buf *b, const char *key, int64_t s);
/* How long it took, in nanoseconds, and how many tokens it was. */
void rg_ollama_write_durations(rg_buf *b, const rg_call *c, bool generates);

/* model, created_at: the beginning of every document of an answer, which the caller closes. */
void rg_ollama_open(rg_buf *b, const rg_call *c);

#endif
