/* past.h -- brings a conversation into what a family's chat template needs beyond its form: ids of calls, the names of
 * reasoning, and, where the template says nothing of tools or calls, texts that do. */
#ifndef RG_SERVER_TALK_PAST_H
#define RG_SERVER_TALK_PAST_H

#include <jansson.h>

#include "server/talk/learn.h"

/* Change {messages, tools, ...} in place.  *told: the tools are told by a text of ours, not by the template.  False: no
 * memory. */
bool rg_talk_fit_past(const rg_talk_use *use, json_t *conversation, bool *told);

#endif
