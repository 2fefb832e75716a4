/* drafts.h -- rg_options.draft as a kind of drafter. */
#ifndef RG_API_DRAFTS_H
#define RG_API_DRAFTS_H

#include "engine/draft/draft.h"

/* *kind NULL: none is wanted.  False and *err: there is no such drafter. */
bool rg_draft_choose(const char *draft, const rg_draft_kind **kind, rg_error *err);

#endif
