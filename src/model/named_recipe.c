/* named_recipe.c -- see named_recipe.h. */
#include "model/named_recipe.h"

#include <strings.h>

#include "base/mem.h"

static const rg_named_recipe all[] = {
    { .name = "fast" },
    { .name = "llm.int8", .llm_int8 = true },
    { .name = "round16", .round16 = true },
    { .name = "exact", .exact = true },
};

bool rg_named_recipe_find(rg_named_recipe *a, const char *name, rg_error *err)
{
    for (size_t i = 0; i < RG_LEN(all); i++)
        if (!strcasecmp(name, all[i].name))
            return *a = all[i], true;
    return rg_fail(err, RG_E_USAGE, "recipe '%.20s' is not one of fast, llm.int8, round16, exact", name);
}
