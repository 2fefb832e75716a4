/* mtp.c -- modules that predict further tokens (DeepSeek-V3 2024), which a model's own checkpoint brings.  They draft
 * as EAGLE's layer does; one module is asked again and again, with what it made of the row before. */
#include "engine/draft/eagle.h"

enum { NODES = 3 };

extern const rg_draft_kind rg_draft_mtp;

static rg_drafter *open_it(const rg_draft_options *o, rg_error *err)
{
    return rg_eagle_open(&rg_draft_mtp, o, err);
}

const rg_draft_kind rg_draft_mtp = { .name = "mtp", .max_draft = NODES, .has_network = true, .open = open_it };
