/* mixture.c -- see mixture.h. */
#include "model/mixture.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Which layers of n: all, the first and the last eighth and every third one between them, or the first few. */
typedef enum where { EVERYWHERE, MORE_BITS, FIRST_2, FIRST_4, FIRST_EIGHTH, FIRST_16TH } where;

static bool is_there(where w, int i, int n)
{
    switch (w) {
    case EVERYWHERE: return true;
    case MORE_BITS: return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
    case FIRST_2: return i < 2;
    case FIRST_4: return i < 4;
    case FIRST_EIGHTH: return i < n / 8;
    case FIRST_16TH: return i < n / 16;
    }
    return false;
}

static const rg_mixture mixtures[] = {
    { "q3_k_s", RG_Q3_K, 11 }, { "q3_k_m", RG_Q3_K, 12 }, { "q3_k_l", RG_Q3_K, 13 }, { "q4_k_s", RG_Q4_K, 14 },
    { "q4_k_m", RG_Q4_K, 15 }, { "q5_k_s", RG_Q5_K, 16 }, { "q5_k_m", RG_Q5_K, 17 },
};

/* The first rule that fits decides; without one it is the base. */
static const struct {
    const char *mixture, *role;
    where where;
    rg_type type;
} rules[] = {
    { "q3_k_m", "attn_v", FIRST_2, RG_Q5_K },
    { "q3_k_m", "attn_v", EVERYWHERE, RG_Q4_K },
    { "q3_k_m", "ffn_down", FIRST_16TH, RG_Q5_K },
    { "q3_k_m", "ffn_down", EVERYWHERE, RG_Q4_K },
    { "q3_k_m", "attn_output", EVERYWHERE, RG_Q4_K },
    { "q3_k_m", "attn_qkv", EVERYWHERE, RG_Q4_K },
    { "q3_k_l", "attn_v", EVERYWHERE, RG_Q5_K },
    { "q3_k_l", "ffn_down", EVERYWHERE, RG_Q5_K },
    { "q3_k_l", "attn_output", EVERYWHERE, RG_Q5_K },
    { "q3_k_l", "attn_qkv", EVERYWHERE, RG_Q4_K },
    { "q4_k_s", "attn_v", FIRST_4, RG_Q5_K },
    { "q4_k_s", "ffn_down", FIRST_EIGHTH, RG_Q5_K },
    { "q4_k_m", "attn_v", MORE_BITS, RG_Q6_K },
    { "q4_k_m", "ffn_down", MORE_BITS, RG_Q6_K },
    { "q4_k_m", "attn_qkv", EVERYWHERE, RG_Q5_K },
    { "q5_k_m", "attn_v", MORE_BITS, RG_Q6_K },
    { "q5_k_m", "ffn_down", MORE_BITS, RG_Q6_K },
    { "q5_k_m", "attn_qkv", EVERYWHERE, RG_Q6_K },
};

const rg_mixture *rg_mixture_find(const char *name)
{
    for (size_t i = 0; i < RG_LEN(mixtures); i++)
        if (!strcasecmp(mixtures[i].name, name))
            return &mixtures[i];
    return NULL;
}

rg_type rg_mixture_type(const rg_mixture *m, const char *name, int n_layers, bool is_head)
{
    int layer, n = 0;

    if (!strcmp(name, "output.weight") || (is_head && !strcmp(name, "token_embd.weight")))
        return RG_Q6_K;
    if (sscanf(name, "blk.%d.%n", &layer, &n) != 1 || !n)
        return m->base;
    for (size_t i = 0; i < RG_LEN(rules); i++) {
        size_t k = strlen(rules[i].role);

        /* ffn_down, and ffn_down_exps */
        if (!strcmp(rules[i].mixture, m->name) && !strncmp(name + n, rules[i].role, k) &&
            (name[n + (int)k] == '.' || name[n + (int)k] == '_') && is_there(rules[i].where, layer, n_layers))
            return rules[i].type;
    }
    return m->base;
}
