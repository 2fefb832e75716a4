/* abilities.h -- what the served model can do, told to clients that choose models by it. */
#ifndef RG_SERVER_ABILITIES_H
#define RG_SERVER_ABILITIES_H

#include "server/core.h"
#include "server/json.h"

/* "capabilities": the words of Ollama's API (completion, tools, thinking, insert, embedding), and rerank. */
void rg_write_abilities(rg_buf *b, const rg_server *s);

#endif
