/* eagle.h -- the drafter of networks that go on from the model's features, by whatever name it is asked for. */
#ifndef RG_ENGINE_DRAFT_EAGLE_H
#define RG_ENGINE_DRAFT_EAGLE_H

#include "engine/draft/draft.h"

/* As rg_draft_kind.open, for this kind; o->runner is the network's, and o->tap takes the features that it reads. */
rg_drafter *rg_eagle_open(const rg_draft_kind *kind, const rg_draft_options *o, rg_error *err);

#endif
