/* made.h -- a description of marks that no family in the table has, read off what a chat template renders.
 *
 * The template renders the same conversation with a text, with a thought, with one call and with two; what stands
 * around the known names, keys and values are the marks.  Knows no engine. */
#ifndef RG_SERVER_TALK_MADE_H
#define RG_SERVER_TALK_MADE_H

#include "server/talk/talk.h"

/* The words that the conversations have. */
#define RG_MADE_NAME    "ridge_probe"
#define RG_MADE_OTHER   "ridge_other"
#define RG_MADE_KEY     "ridge_key"
#define RG_MADE_MORE    "ridge_more"
#define RG_MADE_TEXT    "ridge_text"
#define RG_MADE_THOUGHT "ridge_thought"

/* What was rendered, without a prompt behind it; NULL: the template refuses it.  A call of RG_MADE_NAME has the
 * arguments {RG_MADE_KEY: 7, RG_MADE_MORE: 8}, one of RG_MADE_OTHER {RG_MADE_KEY: 9}. */
typedef struct rg_talk_samples {
    const char *text;    /* an answer RG_MADE_TEXT */
    const char *thought; /* the same, after the reasoning RG_MADE_THOUGHT */
    const char *one;     /* the call alone */
    const char *two;     /* both calls */
} rg_talk_samples;

typedef struct rg_talk_made rg_talk_made;

/* NULL: the samples show no call with marks of its own, or no memory.  rg_talk_made_free it; NULL is fine. */
rg_talk_made *rg_talk_make(const rg_talk_samples *s);
void rg_talk_made_free(rg_talk_made *m);
const rg_talk *rg_talk_made_of(const rg_talk_made *m); /* of m */

#endif
