/* derived.h -- a description of marks that no family in the table has, read off what a chat template renders.
 *
 * The template renders the same conversation with a text, with a thought, with one call and with two; what stands
 * around the known names, keys and values are the marks.  Knows no engine. */
#ifndef RG_SERVER_TALK_DERIVED_H
#define RG_SERVER_TALK_DERIVED_H

#include "server/talk/talk.h"

/* The words that the conversations have. */
#define RG_PROBE_NAME    "ridge_probe"
#define RG_PROBE_OTHER   "ridge_other"
#define RG_PROBE_KEY     "ridge_key"
#define RG_PROBE_MORE    "ridge_more"
#define RG_PROBE_TEXT    "ridge_text"
#define RG_PROBE_THOUGHT "ridge_thought"

/* What was rendered, without a prompt behind it; NULL: the template refuses it.  A call of RG_PROBE_NAME has the
 * arguments {RG_PROBE_KEY: 7, RG_PROBE_MORE: 8}, one of RG_PROBE_OTHER {RG_PROBE_KEY: 9}. */
typedef struct rg_talk_samples {
    const char *text;    /* an answer RG_PROBE_TEXT */
    const char *thought; /* the same, after the reasoning RG_PROBE_THOUGHT */
    const char *one;     /* the call alone */
    const char *two;     /* both calls */
} rg_talk_samples;

typedef struct rg_talk_derived rg_talk_derived;

/* NULL: the samples show no call with marks of its own, or no memory.  rg_talk_derived_free it; NULL is fine. */
rg_talk_derived *rg_talk_make(const rg_talk_samples *s);
void rg_talk_derived_free(rg_talk_derived *m);
const rg_talk *rg_talk_derived_of(const rg_talk_derived *m); /* of m */

#endif
