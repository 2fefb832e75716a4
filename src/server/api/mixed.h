/* mixed.h -- a prompt put together from ids and texts: what was said before, marks of a vocabulary, mixed lists. */
#ifndef RG_SERVER_API_MIXED_H
#define RG_SERVER_API_MIXED_H

#include "server/call.h"

typedef struct rg_mixed {
    rg_buf ids; /* int32_t each */
} rg_mixed;

void rg_mixed_init(rg_mixed *p);
void rg_mixed_fini(rg_mixed *p);
size_t rg_mixed_n(const rg_mixed *p);

/* Add ids, or a text encoded with these rg_encode_flags.  False and *e: no memory, or no tokenizer. */
bool rg_mixed_add(rg_mixed *p, const int32_t *ids, size_t n, rg_refusal *e);
bool rg_mixed_text(rg_mixed *p, const rg_served *s, const char *text, size_t n, unsigned flags, rg_refusal *e);
/* The id with which the tokenizer begins every text, if there is one. */
bool rg_mixed_begin(rg_mixed *p, const rg_served *s, rg_refusal *e);
/* A JSON list of ids and texts, or of ids alone; the first text gets what the tokenizer adds in front if it comes first
 * and `special` is set. */
bool rg_mixed_list(rg_mixed *p, const rg_served *s, const json_t *list, const char *param, bool special, rg_refusal *e);

/* They become one more prompt of the call. */
bool rg_mixed_take(rg_mixed *p, rg_call *c, rg_refusal *e);

#endif
