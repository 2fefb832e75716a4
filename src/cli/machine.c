/* machine.c -- `ridge machine`: what this machine can do, measured: read bandwidth, peaks of arithmetic, and what the
 * engine's own operations reach of them. */
#include <stdio.h>

#include "cli/profile.h"

extern const cli_command cli_machine;

static const rg_type shown[] = { RG_F32, RG_BF16, RG_Q8_0, RG_Q4_0, RG_Q4_K };

enum { MOST_QUERIES = RG_RATE_QUERIES - 1, COLUMNS = 128 }; /* of the attention that is shown */

static const rg_product_rate *product_of(const rg_rates *r, rg_type t)
{
    return &r->product[false][rg_format_of(t)->layout];
}

/* Bytes per second of weights that meet one row, from memory. */
static double stream_rate(const rg_rates *r, rg_type t)
{
    const rg_format *f = rg_format_of(t);
    double s = product_of(r, t)->value_s[RG_FAR][0];

    return s > 0 ? (double)f->block_bytes / f->block_len / s : 0;
}

/* Operations per second of many rows. */
static double product_rate(const rg_rates *r, rg_type t)
{
    double s = product_of(r, t)->value_s[RG_NEAR][RG_RATE_ROWS - 1];

    return s > 0 ? 2.0 * rg_rate_rows[RG_RATE_ROWS - 1] / s : 0;
}

/* Pairs of query and key per second, where so many queries share keys in bf16. */
static double pair_rate(const rg_rates *r, int i)
{
    const rg_attention_rate *a = &r->attention[false][RG_BF16];
    double s = a->pair_s[i] + COLUMNS * a->column_s[i];

    return s > 0 ? 1 / s : 0;
}

static void rates_json(cli_json *j, const rg_rates *r)
{
    cli_json_open(j, "sets", '[');
    for (int i = 0; i < RG_RATE_SETS; i++) {
        cli_json_open(j, NULL, '{');
        cli_json_int(j, "bytes", (int64_t)rg_rate_sets[i]);
        cli_json_float(j, "read_gb_s", r->set_bytes_s[i] / 1e9);
        cli_json_close(j);
    }
    cli_json_close(j);
    cli_json_open(j, "kernels", '[');
    for (size_t i = 0; i < RG_LEN(shown); i++) {
        cli_json_open(j, NULL, '{');
        cli_json_text(j, "format", rg_format_of(shown[i])->name);
        cli_json_float(j, "decode_gb_s", stream_rate(r, shown[i]) / 1e9);
        cli_json_float(j, "prefill_gop_s", product_rate(r, shown[i]) / 1e9);
        cli_json_close(j);
    }
    cli_json_close(j);
    cli_json_open(j, "operations", '[');
    for (int k = 0; k < RG_OP_COUNT; k++) {
        cli_json_open(j, NULL, '{');
        cli_json_text(j, "kind", rg_op_name((rg_op_kind)k));
        cli_json_float(j, "fixed_us", 1e6 * r->fixed_s[k]);
        cli_json_float(j, "value_ns", 1e9 * r->cell_s[k]);
        cli_json_close(j);
    }
    cli_json_close(j);
    cli_json_float(j, "step_us", 1e6 * r->step_s);
}

static bool print_json(const rg_backend *backend, const rg_profile *p)
{
    cli_json *j = cli_json_new();

    cli_json_open(j, NULL, '{');
    cli_json_float(j, "read_gb_s", p->roofs.read_bytes_s / 1e9);
    cli_json_float(j, "f32_gflop_s", p->roofs.f32_ops_s / 1e9);
    cli_json_float(j, "bf16_gflop_s", p->roofs.bf16_ops_s / 1e9);
    cli_json_float(j, "int8_gop_s", p->roofs.int8_ops_s / 1e9);
    cli_json_text(j, "isa", backend->name);
    cli_json_int(j, "cores", rg_cores());
    cli_json_int(j, "threads", p->roofs.n_threads);
    cli_json_bool(j, "busy", p->busy);
    rates_json(j, &p->rates);
    cli_json_open(j, "instruction_sets", '[');
    for (int i = 0; rg_backend_nth(i); i++)
        cli_json_text(j, NULL, rg_backend_nth(i)->name);
    cli_json_close(j);
    cli_json_close(j);
    return cli_json_print(j);
}

static void print_table(const rg_backend *backend, const rg_profile *p)
{
    const rg_rates *r = &p->rates;

    printf("instruction set %s, %d thread%s; this machine has:", backend->name, p->roofs.n_threads,
           p->roofs.n_threads > 1 ? "s" : "");
    for (int i = 0; rg_backend_nth(i); i++)
        printf(" %s", rg_backend_nth(i)->name);
    printf("\n%12s %14s %15s %12s\n%12.1f %14.1f %15.1f %12.1f\n", "read GB/s", "f32 GFLOP/s", "bf16 GFLOP/s",
           "int8 GOP/s", p->roofs.read_bytes_s / 1e9, p->roofs.f32_ops_s / 1e9, p->roofs.bf16_ops_s / 1e9,
           p->roofs.int8_ops_s / 1e9);
    printf("\n%-10s %22s %22s\n", "products", "one row, GB/s", "many rows, GOP/s");
    for (size_t i = 0; i < RG_LEN(shown); i++)
        printf("%-10s %22.1f %22.0f\n", rg_format_of(shown[i])->name, stream_rate(r, shown[i]) / 1e9,
               product_rate(r, shown[i]) / 1e9);
    printf("\n%-12s", "read again");
    for (int i = 0; i < RG_RATE_SETS; i += 2)
        printf(" %8.0f KiB", rg_rate_sets[i] / 1024);
    printf("\n%-12s", "GB/s");
    for (int i = 0; i < RG_RATE_SETS; i += 2)
        printf(" %12.1f", r->set_bytes_s[i] / 1e9);
    printf("\n\nattention over bf16 keys: %.0f million pairs of %d columns a second for one query, %.0f for %d that "
           "share them\nan operation costs %.2f us besides its work, a step %.2f us\n",
           1e-6 * pair_rate(r, 0), COLUMNS, 1e-6 * pair_rate(r, MOST_QUERIES), rg_rate_queries[MOST_QUERIES],
           1e6 * r->fixed_s[RG_OP_LINEAR], 1e6 * r->step_s);
}

static int run(int argc, char **argv)
{
    static rg_profile profile;
    bool anew = false;
    const cli_option options[] = {
        CLI_REMEASURE_OPTION(anew, ""),
        { NULL },
    };
    rg_error err = { 0 };
    cli_args args;
    int status = cli_parse(&args, &cli_machine, options, argc, argv);

    if (status >= 0)
        return status;
    const rg_backend *backend = rg_backend_find(args.common.isa, &err);
    int n = args.common.threads ? args.common.threads : rg_cores();
    if (!backend || !cli_profile(&profile, &args.common, backend, n, anew, &err))
        return cli_fail(&err);
    if (args.common.json)
        return print_json(backend, &profile) ? EXIT_DONE : EXIT_FAILED;
    print_table(backend, &profile);
    return EXIT_DONE;
}

const cli_command cli_machine = {
    .name = "machine", .arguments = "", .summary = "measure this machine: read bandwidth, arithmetic peaks", .run = run,
    .notes = "What was measured is kept in the user's cache folder and used again by machine, plan and bench.",
};
