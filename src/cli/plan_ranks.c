/* plan_ranks.c -- what --ranks N adds to a plan: what of the model ranks share, and what they exchange in a step. */
#include <stdio.h>

#include "cli/plan.h"
#include "model/share.h"

bool plan_find_ranks(plan_job *j, rg_error *err)
{
    const int n = j->args.common.ranks;
    rg_link alone = rg_link_alone(0, n);
    rg_model_options o = { .declare_only = true, .declared_type = j->weight_type, .link = &alone };
    rg_plan_ranks *r = &j->ranks;

    if (n <= 1)
        return true;
    if (!j->ckpt)
        return rg_fail(err, RG_E_USAGE, "plan: --ranks needs a model");
    rg_model *m = rg_model_open(j->ckpt, &o, err);
    if (!m)
        return false;
    const rg_shared shared = rg_share_count(m);
    const int rows = (int)j->rows[0].batch;

    *r = (rg_plan_ranks){ .n = n,
                          .rows = rows,
                          .split_bytes = shared.split_bytes,
                          .whole_bytes = shared.whole_bytes,
                          .n_layers_kv = shared.n_layers_kv,
                          .n_layers_kv_split = shared.n_layers_kv_split };
    rg_exchanges e;
    bool ok = rg_share_exchanges(m, rows, rows, &e, err);
    r->n_exchanges = ok ? e.n : 0;
    r->exchange_bytes = ok ? e.bytes : 0;
    rg_model_close(m);
    return ok;
}

void plan_ranks_text(rg_buf *b, const plan_job *j)
{
    const rg_plan_ranks *r = &j->ranks;

    if (!r->n)
        return;
    rg_buf_printf(
        b,
        "\n%d ranks: they share %.3f MB of matrices, and each has %.3f MB that cannot be split; K/V heads are "
        "shared in %d of %d layers that keep K/V.\nA step of %d rows: %llu exchanges, %llu bytes from each rank.\n",
        r->n, (double)r->split_bytes / 1e6, (double)r->whole_bytes / 1e6, r->n_layers_kv_split, r->n_layers_kv, r->rows,
        (unsigned long long)r->n_exchanges, (unsigned long long)r->exchange_bytes);
}

void plan_ranks_json(cli_json *out, const plan_job *j)
{
    const rg_plan_ranks *r = &j->ranks;

    if (!r->n)
        return;
    cli_json_open(out, "ranks", '{');
    cli_json_int(out, "n", r->n);
    cli_json_int(out, "split_bytes", (int64_t)r->split_bytes);
    cli_json_int(out, "whole_bytes", (int64_t)r->whole_bytes);
    cli_json_int(out, "kv_layers", r->n_layers_kv);
    cli_json_int(out, "kv_layers_split", r->n_layers_kv_split);
    cli_json_int(out, "rows", r->rows);
    cli_json_int(out, "exchanges", (int64_t)r->n_exchanges);
    cli_json_int(out, "exchange_bytes", (int64_t)r->exchange_bytes);
    cli_json_close(out);
}
