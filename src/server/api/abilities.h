/* abilities.h -- what the served model can do, told to clients that choose models by it. */
#ifndef RG_SERVER_API_ABILITIES_H
#define RG_SERVER_API_ABILITIES_H

#include "server/core.h"
#include "server/json.h"

/* "capabilities": the words of Ollama's API (completion, tools, thinking, insert, embedding), and rerank; of a model
 * that is open. */
void rg_write_abilities(rg_buf *b, const rg_served *s);
/* The same of one whose files alone are known, which tell less surely what its template does with tools. */
void rg_write_likely_abilities(rg_buf *b, const rg_model_facts *f);

#endif
