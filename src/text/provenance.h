/* provenance.h -- text that knows where its bytes came from, and so what they may become.
 *
 * Trusted: a chat template's own text, the checkpoint's variables, and roles that were checked when the conversation
 * was read.  Foreign: whatever a person, a tool or a model wrote.  A special token is only ever made of bytes none of
 * which is foreign; everything else about encoding ignores the provenance, so a text without special tokens has the
 * same ids whatever its provenance. */
#ifndef RG_TEXT_PROVENANCE_H
#define RG_TEXT_PROVENANCE_H

#include "base/buf.h"

/* Bytes from the end of the run before it (or 0) up to end. */
typedef struct rg_run {
    size_t end;
    bool trusted;
} rg_run;

/* A text in runs: neighbours differ in trust, no run is empty, and the last one's end is bytes.n.  Owns its memory. */
typedef struct rg_text {
    rg_buf bytes;
    rg_run *run;
    size_t n_runs, runs_room;
} rg_text;

void rg_text_init(rg_text *t, size_t cap); /* cap: bytes that it may grow to */
void rg_text_fini(rg_text *t);

/* Append; false: no memory, or over the cap (nothing changed). */
bool rg_text_add(rg_text *t, const char *s, size_t n, bool trusted) RG_MUST_CHECK;

#endif
