/* words.c -- the words by which parameters of requests are known, and what the caller gets and gives back: texts, ids,
 * JSON. */
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "ridge.h"

int rg_remasking_find(const char *word)
{
    static const char *const words[] = {
        [RG_REMASKING_CONFIDENCE] = "low_confidence", [RG_REMASKING_ENTROPY] = "entropy",
        [RG_REMASKING_MARGIN] = "margin",             [RG_REMASKING_SEQUENTIAL] = "sequential",
        [RG_REMASKING_DYNAMIC] = "dynamic",
    };

    for (int i = 1; i < (int)RG_LEN(words); i++)
        if (!strcmp(words[i], word))
            return i;
    return -1;
}

int rg_early_stopping_find(const char *word)
{
    static const char *const words[] = { [RG_EARLY_STOPPING_FALSE] = "false", [RG_EARLY_STOPPING_TRUE] = "true",
                                         [RG_EARLY_STOPPING_NEVER] = "never" };

    for (int i = 0; i < (int)RG_LEN(words); i++)
        if (!strcmp(words[i], word))
            return i;
    return -1;
}

int rg_diffusion_cache_find(const char *word)
{
    static const char *const words[] = { "none", "prefix", "dual" };

    for (int i = 0; i < (int)RG_LEN(words); i++)
        if (!strcmp(words[i], word))
            return i;
    return -1;
}

rg_sampling rg_sampling_default(void)
{
    return (rg_sampling)RG_SAMPLING_NEUTRAL;
}

void rg_text_free(char *text)
{
    rg_free(text);
}

void rg_ids_free(int32_t *ids)
{
    rg_free(ids);
}

rg_json *rg_json_new(const char *text, size_t n, rg_error *err)
{
    json_error_t why = { 0 };
    json_t *v = rg_json_load_within(text, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL,
                                    &(rg_json_limits){ .bytes = rg_json_budget(n, RG_JSON_TIMES_BODY) }, &why);

    if (!v)
        rg_json_fail("the JSON text", n, &why, RG_E_LIMIT, err);
    return (rg_json *)v;
}

void rg_json_close(rg_json *json)
{
    json_decref((json_t *)json);
}
