/* plan_goal.c -- `ridge plan --for`: the plan read backwards, as text, JSON or CSV. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/plan.h"
#include "plan/goal.h"

enum { FILE_CAP = 1 << 22 };

/* "h100=2.5,a100=1.2": money an hour of each machine that is planned for. */
static bool read_prices(const plan_job *j, double prices[PLAN_MACHINES], rg_error *err)
{
    char name[64];
    double price;
    int used;

    memset(prices, 0, PLAN_MACHINES * sizeof *prices);
    for (const char *at = j->prices; at && *at;) {
        int i = 0;

        if (sscanf(at, "%60[^=,]=%lf%n", name, &price, &used) != 2 || (at[used] && at[used] != ',') || !(price > 0))
            return rg_fail(err, RG_E_USAGE,
                           "plan: --prices takes NAME=MONEY an hour, as in h100=2.5,a100=1.2: "
                           "'%.40s' is none",
                           at);
        while (i < j->n_machines && strcmp(j->machine[i].name, name) != 0)
            i++;
        if (i == j->n_machines)
            return rg_fail(err, RG_E_USAGE, "plan: --prices names '%s', which is not among the machines", name);
        prices[i] = price;
        at += used + (at[used] == ',');
    }
    for (int i = 0; j->prices && i < j->n_machines; i++)
        if (prices[i] <= 0)
            return rg_fail(err, RG_E_USAGE, "plan: --prices has none for %s: name it, or leave it out of --machine",
                           j->machine[i].name);
    return true;
}

static const char *type_name(const plan_job *j, const rg_plan_offer *o)
{
    (void)j;
    return rg_format_of(o->weights)->name;
}

static void put_text(rg_buf *b, const plan_job *j, const rg_plan_offers *all)
{
    rg_buf_printf(
        b,
        "%s, sequences of %d positions, %.0f tokens/s in all\n%-11s %5s %6s %6s %-20s %-6s %-5s %6s %9s %9s %11s "
        "%10s %-10s %s\n",
        j->title, (int)j->goal.seq, j->goal.tokens_s, "machine", "chips", "copies", j->prices ? "money" : "all",
        "architecture", "bits", "k/v", "drafts", "batch", "latency", "first token", "GB a copy", "binds", "waits for");
    for (int i = 0; i < all->n && i < j->top; i++) {
        const rg_plan_offer *o = &all->all[i];
        rg_buf_printf(b, "%-11s %5d %6lld %6.4g %-20s %-6s %-5s %6d %9lld %6.2f ms %8.1f ms %10.2f %-10s %s\n",
                      o->machine->name, o->chips, (long long)o->copies, o->cost, o->architecture, type_name(j, o),
                      o->kv, o->drafts, (long long)o->batch, 1e3 * o->latency_s, 1e3 * o->ttft_s, o->memory.total / 1e9,
                      o->binds, rg_bound_names[o->waits_for]);
    }
    rg_buf_printf(b, "%d of %d candidates do it; %d are too slow, %d do not fit, %d cost too much.\n", all->n_found,
                  all->n_tried, all->too_slow, all->too_large, all->too_dear);
    rg_buf_str(
        b, "binds: why the batch is no larger (demand: one copy gives enough; none: larger ones are not tried).  Of "
           "each machine\nthose are told that no other beats in cost and changes.  An architecture, bits or K/V "
           "other than the checkpoint's\nchange what is written: measure that (study, shrink).\n");
}

static void put_csv(rg_buf *b, const plan_job *j, const rg_plan_offers *all)
{
    rg_buf_str(b, "machine,chips,copies,cost,architecture,weights,kv,drafts,batch,latency_ms,ttft_ms,throughput_tok_s,"
                  "memory_bytes,changes,binds,waits_for\n");
    for (int i = 0; i < all->n; i++) {
        const rg_plan_offer *o = &all->all[i];
        rg_buf_printf(b, "%s,%d,%lld,%.6g,%s,%s,%s,%d,%lld,%.6g,%.6g,%.6g,%.0f,%d,%s,%s\n", o->machine->name, o->chips,
                      (long long)o->copies, o->cost, o->architecture, type_name(j, o), o->kv, o->drafts,
                      (long long)o->batch, 1e3 * o->latency_s, 1e3 * o->ttft_s, o->throughput, o->memory.total,
                      o->n_changes, o->binds, rg_bound_names[o->waits_for]);
    }
}

static bool print_json(const plan_job *j, const rg_plan_offers *all)
{
    cli_json *out = cli_json_new();

    cli_json_open(out, NULL, '{');
    cli_json_text(out, "model", j->title);
    cli_json_int(out, "seq", j->goal.seq);
    cli_json_float(out, "tokens_s", j->goal.tokens_s);
    cli_json_open(out, "offers", '[');
    for (int i = 0; i < all->n && i < j->top; i++) {
        const rg_plan_offer *o = &all->all[i];
        cli_json_open(out, NULL, '{');
        cli_json_text(out, "machine", o->machine->name);
        cli_json_int(out, "chips", o->chips);
        cli_json_int(out, "copies", o->copies);
        cli_json_float(out, "cost", o->cost);
        cli_json_text(out, "architecture", o->architecture);
        cli_json_text(out, "weights", type_name(j, o));
        cli_json_text(out, "kv", o->kv);
        cli_json_int(out, "drafts", o->drafts);
        cli_json_int(out, "batch", o->batch);
        cli_json_float(out, "latency_ms", 1e3 * o->latency_s);
        cli_json_float(out, "ttft_ms", 1e3 * o->ttft_s);
        cli_json_float(out, "throughput_tok_s", o->throughput);
        cli_json_float(out, "memory_bytes", o->memory.total);
        cli_json_int(out, "changes", o->n_changes);
        cli_json_text(out, "binds", o->binds);
        cli_json_text(out, "waits_for", rg_bound_names[o->waits_for]);
        cli_json_close(out);
    }
    cli_json_close(out);
    cli_json_int(out, "tried", all->n_tried);
    cli_json_int(out, "found", all->n_found);
    cli_json_int(out, "too_slow", all->too_slow);
    cli_json_int(out, "too_large", all->too_large);
    cli_json_int(out, "too_dear", all->too_dear);
    cli_json_close(out);
    return cli_json_print(out);
}

static bool give(const plan_job *j, const rg_plan_offers *all, rg_error *err)
{
    rg_buf b;

    if (j->csv) {
        rg_buf_init(&b, FILE_CAP);
        put_csv(&b, j, all);
        if (!cli_write_file(j->csv, &b, err))
            return false;
    }
    if (j->args.common.json)
        return print_json(j, all) || rg_fail(err, RG_E_IO, "plan: standard output cannot be written");
    rg_buf_init(&b, FILE_CAP);
    put_text(&b, j, all);
    bool ok = !b.failed && fwrite(b.data, 1, b.n, stdout) == b.n && cli_flush(NULL);
    rg_buf_fini(&b);
    return ok || rg_fail(err, RG_E_IO, "plan: standard output cannot be written");
}

bool plan_check_goal(const plan_job *j, rg_error *err)
{
    if (!j->wanted)
        return (!j->prices && !j->has_top) || rg_fail(err, RG_E_USAGE, "plan: --prices and --top go with --for");
    if (j->measure || j->show_ops || j->what_if || j->svg || j->params || j->batch.given || j->chips > 1 ||
        j->seq.n > 1)
        return rg_fail(err, RG_E_USAGE,
                       "plan: --for finds batch and chips itself, for one --seq: --batch, --chips, --ops, "
                       "--what-if, --measure, --svg and --params are not for it");
    return true;
}

bool plan_goal(plan_job *j, rg_error *err)
{
    double prices[PLAN_MACHINES];
    rg_plan_offers all = { 0 };

    j->goal.seq = j->seq.item[0];
    j->goal.acceptance = (double)j->acceptance;
    j->goal.draft_cost = (double)j->draft_cost;
    bool ok =
        rg_plan_goal_read(j->wanted, &j->goal, err) && read_prices(j, prices, err) &&
        rg_plan_offer_all(&j->subject, j->machine, j->n_machines, j->prices ? prices : NULL, &j->goal, &all, err) &&
        give(j, &all, err);
    rg_plan_offers_fini(&all);
    return ok;
}
