/* words.c -- the words by which parameters of requests are known. */
#include <string.h>

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
