/* searching.c -- see searching.h. */
#include "cli/searching.h"

#include <stdlib.h>
#include <string.h>

enum { SCORER_STATE_MIB = 256 };

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

    if (!v->p.n_beams && ((v->penalty && !v->search) || v->stopping || v->groups || v->diversity))
        return rg_fail(err, RG_E_USAGE, "--%s is a flag of beam search: it needs --beams",
                       v->penalty && !v->search ? "length-penalty" : v->stopping ? "early-stopping"
                       : v->groups              ? "beam-groups"                 : "diversity");
    if (v->search && strcmp(v->search, "mcts"))
        return rg_fail(err, RG_E_USAGE, "search '%.20s' is not one of mcts", v->search);
    if (v->search && (v->p.n_beams || v->best_of))
        return rg_fail(err, RG_E_USAGE, "--search mcts does not go together with --beams and --best-of");
    if (v->scorer && !v->search && !v->best_of)
        return rg_fail(err, RG_E_USAGE, "--scorer is a flag of --best-of and --search mcts");
    if (v->query && !v->scorer)
        return rg_fail(err, RG_E_USAGE, "--scorer-query needs --scorer");
    if (v->vote_after && !v->vote)
        return rg_fail(err, RG_E_USAGE, "--vote-after needs --vote");
    if (v->vote && (v->search || v->p.n_beams || v->best_of))
        return rg_fail(err, RG_E_USAGE, "--vote is among the --n answers that are drawn: not with --search, --beams "
                       "and --best-of");
    if (!v->search && (v->tree.simulations || v->tree.width || v->tree.span || v->tree.leaves || v->tree.rollout ||
                       v->explore_given))
        return rg_fail(err, RG_E_USAGE, "--simulations, --leaves, --width, --span, --rollout and --explore are flags "
                       "of --search mcts");
    if (v->search && !v->tree.simulations)
        v->tree.simulations = CLI_SIMULATIONS;
    if (v->search && v->explore_given && !(v->tree.explore > 0))
        v->tree.explore = -1;
    if (v->search && v->penalty)
        v->tree.length_penalty = v->p.length_penalty;
    if (when < 0)
        return rg_fail(err, RG_E_USAGE, "early-stopping '%.20s' is not one of true, false, never", v->early_stopping);
    v->p.early_stopping = (rg_early_stopping)when;
    v->p.length_penalty = v->penalty ? v->p.length_penalty : 1;
    return parse_eos(v, err);
}

rg_engine *cli_scorer_open(const cli_searching *v, rg_options options, rg_error *err)
{
    char path[4096];
    rg_engine *e;

    if (!cli_find_model(v->scorer, path, sizeof path, err))
        return NULL;
    options.draft = NULL;
    options.n_adapters = 0;
    options.kv_type = NULL;
    options.max_seq_len = 0;
    options.chat_template = NULL;
    options.expert_bytes = 0;
    options.kv_bytes = (size_t)SCORER_STATE_MIB << 20;
    e = rg_open(path, &options, err);
    if (e && !rg_engine_info(e).n_labels) {
        rg_close(e);
        return rg_fail(err, RG_E_USAGE, "--scorer %s: this model scores no pairs of texts: want a reranker", v->scorer),
               NULL;
    }
    return e;
}
