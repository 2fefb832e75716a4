/* named_recipe.h -- which arithmetic a model is computed with: what --recipe names.
 *
 * A recipe in the sense of ops/cpu/kernels.h is of one product; this says for all products of a model which of them
 * are taken, and what its weights are rounded to beforehand. */
#ifndef RG_MODEL_NAMED_RECIPE_H
#define RG_MODEL_NAMED_RECIPE_H

#include "base/error.h"

typedef struct rg_named_recipe {
    const char *name;
    bool exact, llm_int8; /* as rg_runner_options has them */
    bool round16;         /* as rg_model_options has it */
} rg_named_recipe;

/* The arithmetic of this name, in letters of any case.  False and *err: there is none. */
bool rg_named_recipe_find(rg_named_recipe *a, const char *name, rg_error *err) RG_MUST_CHECK;

#endif
