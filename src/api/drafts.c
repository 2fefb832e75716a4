/* drafts.c -- see drafts.h. */
#include "api/drafts.h"

#include <stdio.h>
#include <string.h>

bool rg_draft_choose(const char *draft, const rg_draft_kind **kind, rg_error *err)
{
    char names[256] = "none";
    size_t n = strlen(names);

    *kind = NULL;
    if (!draft || !strcmp(draft, "none"))
        return true;
    *kind = rg_draft_kind_find(draft);
    for (size_t i = 0; rg_draft_kind_nth(i) && n < sizeof names; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, ", %s", rg_draft_kind_nth(i)->name);
    return *kind || rg_fail(err, RG_E_USAGE, "draft '%.100s' is not one of %s", draft, names);
}
