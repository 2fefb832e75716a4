/* searching.c -- see searching.h. */
#include "cli/searching.h"

#include <stdlib.h>
#include <string.h>

static bool parse_eos(cli_searching *v, rg_error *err)
{
    for (int i = 0; i < v->eos_text.n; i++) {
        char *end;
        const char *s = v->eos_text.item[i];
        long id = strtol(s, &end, 10);

        if (end == s || *end || id < 0 || id > INT32_MAX)
            return rg_fail(err, RG_E_USAGE, "--eos-id takes an id, not '%.40s'", s);
        v->eos[i] = (int32_t)id;
    }
    return true;
}

bool cli_searching_finish(cli_searching *v, rg_error *err)
{
    int when = v->early_stopping ? rg_early_stopping_find(v->early_stopping) : RG_EARLY_STOPPING_FALSE;

    if (!v->p.n_beams && (v->penalty || v->stopping || v->groups || v->diversity))
        return rg_fail(err, RG_E_USAGE, "--%s is a flag of beam search: it needs --beams",
                       v->penalty ? "length-penalty" : v->stopping ? "early-stopping" : v->groups ? "beam-groups"
                                                                                                  : "diversity");
    if (v->search && strcmp(v->search, "mcts"))
        return rg_fail(err, RG_E_USAGE, "search '%.20s' is not one of mcts", v->search);
    if (v->search && (v->p.n_beams || v->best_of))
        return rg_fail(err, RG_E_USAGE, "--search mcts does not go together with --beams and --best-of");
    if (!v->search && (v->simulations || v->width || v->span || v->explore > 0))
        return rg_fail(err, RG_E_USAGE, "--simulations, --width, --span and --explore are flags of --search mcts");
    v->simulations = v->simulations ? v->simulations : 64;
    v->width = v->width ? v->width : 4;
    v->span = v->span ? v->span : 1;
    v->explore = v->explore > 0 ? v->explore : 1.25f;
    if (when < 0)
        return rg_fail(err, RG_E_USAGE, "early-stopping '%.20s' is not one of true, false, never", v->early_stopping);
    v->p.early_stopping = (rg_early_stopping)when;
    v->p.length_penalty = v->penalty ? v->p.length_penalty : 1;
    return parse_eos(v, err);
}
