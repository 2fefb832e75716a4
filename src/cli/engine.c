/* engine.c -- see engine.h. */
#include "cli/engine.h"

#include <stdio.h>
#include <unistd.h>

/* MODEL as in cli_find_model; anything else as it is. */
static const char *find_draft(cli_engine *v)
{
    bool is_model = v->draft && cli_find_model(v->draft, v->draft_path, sizeof v->draft_path, NULL);

    return is_model ? v->draft_path : v->draft;
}

rg_options cli_engine_options(cli_engine *v, const cli_common *common)
{
    rg_options o = rg_options_default();

    o.n_threads = common->threads;
    o.ranks = cli_ranks();
    o.pin = common->pin;
    o.numa_copies = common->numa_copies;
    o.isa = common->isa;
    o.recipe = common->recipe;
    o.kv_type = v->kv_type;
    o.kv_bytes = v->kv_memory;
    o.max_seq_len = v->ctx;
    o.max_seqs = v->max_seqs;
    o.pack_cache = v->pack_cache;
    o.prefix_folder = v->prefix_cache;
    o.prefix_bytes = v->prefix_memory;
    o.sparsity = v->sparsity;
    o.attention_sparsity = (double)v->attention_sparsity;
    o.whole_head = v->whole_head;
    if (!v->draft)
        v->draft = "auto";
    o.draft = find_draft(v);
    o.max_draft = v->draft_max;
    o.verify = v->verify;
    o.preempt = v->preempt;
    o.expert_bytes = v->expert_memory;
    o.chat_template = v->chat_template;
    o.adapters = v->loras.item;
    o.n_adapters = v->loras.n;
    o.profile_folder = cli_profile_folder;
    o.progress = cli_progress;
    o.progress_arg = common->quiet ? (void *)(uintptr_t)common : NULL;
    return o;
}

rg_engine *cli_engine_open(cli_engine *v, const cli_args *a, rg_error *err)
{
    return cli_engine_open_rows(v, a, 0, err);
}

bool cli_engine_generates(const cli_engine *v, const rg_engine *e, rg_error *err)
{
    rg_info info = rg_engine_info(e);

    return info.generates ||
           rg_fail(err, RG_E_UNSUPPORTED, "%s: this model %s (%s): it makes embeddings of texts%s, and generates no "
                   "answers; see `ridge embed`", v->path,
                   info.is_encoder ? "is an encoder" : "has no head, neither lm_head nor a tied embedding",
                   info.architecture,
                   info.n_labels ? " and scores pairs of them" : "");
}

rg_engine *cli_engine_open_rows(cli_engine *v, const cli_args *a, int32_t batch_rows, rg_error *err)
{
    const char *given = a->n_positional ? a->positional[0] : NULL;
    rg_engine *e = NULL;

    if (cli_loras_read_one(&v->loras, err) && cli_find_model(given, v->path, sizeof v->path, err)) {
        cli_common common = a->common;

        if (!cli_ranks_start(&common, err))
            return NULL;
        rg_options o = cli_engine_options(v, &common);
        o.max_batch_rows = batch_rows;
        e = rg_open(v->path, &o, err);
    }
    if (!e)
        return NULL;
    rg_info info = rg_engine_info(e);
    cli_warn_unused(&a->common, v->path, info.n_unused_tensors);
    cli_warn_notes(&a->common, v->path, info.notes);
    if (!v->kv_memory && !a->common.quiet && !a->common.json && isatty(STDERR_FILENO))
        fprintf(stderr, "[up to %.1f GB for what sequences remember, half of what is free]\n",
                (double)info.state_bytes / 1e9);
    return e;
}
