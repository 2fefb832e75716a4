/* layout.c -- what a program that declares the structs of ridge.h anew, in another language, compares with its own. */
#include <string.h>

#include "base/mem.h"
#include "ridge.h"

const char *rg_version(void)
{
    return RG_VERSION;
}

size_t rg_size_of(const char *name)
{
#define OF(type) { #type, sizeof(type) }
    static const struct {
        const char *name;
        size_t size;
    } sizes[] = {
        OF(rg_error), OF(rg_logit_bias), OF(rg_sampling), OF(rg_grammar_source),
        OF(rg_diffusion_params), OF(rg_beam_params), OF(rg_thinking), OF(rg_given_rows),
        OF(rg_params), OF(rg_options), OF(rg_adapter_option), OF(rg_host_options),
        OF(rg_info), OF(rg_card), OF(rg_stats), OF(rg_limits),
        OF(rg_forecast), OF(rg_text_options), OF(rg_text_ids), OF(rg_chat_options),
        OF(rg_top), OF(rg_token), OF(rg_usage), OF(rg_prompt_logprob),
        OF(rg_scorer), OF(rg_search_params),
    };
#undef OF

    for (size_t i = 0; i < RG_LEN(sizes); i++)
        if (!strcmp(name, sizes[i].name))
            return sizes[i].size;
    return 0;
}
