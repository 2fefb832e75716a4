/* machine.c -- `ridge machine`: what this machine can do, measured: read bandwidth and peaks, per thread count, and
 * what the engine's own operations reach of them. */
#include <stdio.h>

#include "cli/cli.h"
#include "model/rates.h"

extern const cli_command cli_machine;

static const rg_type shown[] = { RG_F32, RG_BF16, RG_Q8_0, RG_Q4_0, RG_Q4_K };

/* Of a format: bytes per second of weights that meet one row, from memory; operations per second of many rows. */
static double stream_rate(const rg_rates *r, rg_type t)
{
    const rg_format *f = rg_format_of(t);

    return (double)f->block_bytes / f->block_len / (r->linear[t].near_s[0] + r->linear[t].far_s[RG_FROM_MEMORY][0]);
}

static double product_rate(const rg_rates *r, rg_type t)
{
    return 2.0 * rg_rate_rows[RG_RATE_ROWS - 1] / r->linear[t].near_s[RG_RATE_ROWS - 1];
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
    cli_json_open(j, "taken", '[');
    for (int i = 0; i < RG_RATE_PAUSES; i++) {
        cli_json_open(j, NULL, '{');
        cli_json_float(j, "seconds", rg_rate_pauses[i]);
        cli_json_float(j, "part", r->taken[i]);
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
    cli_json_float(j, "interrupted", r->lost[RG_RATE_WINDOWS - 1]);
}

static void print_rates(const rg_rates *r)
{
    printf("\n%-10s %22s %22s\n", "products", "one row, GB/s", "512 rows, GOP/s");
    for (size_t i = 0; i < RG_LEN(shown); i++)
        printf("%-10s %22.1f %22.0f\n", rg_format_of(shown[i])->name, stream_rate(r, shown[i]) / 1e9,
               product_rate(r, shown[i]) / 1e9);
    printf("\n%-10s", "gone through");
    for (int i = 0; i < RG_RATE_SETS; i += 3)
        printf(" %8.0f KiB", rg_rate_sets[i] / 1024);
    printf("\n%-12s", "read, GB/s");
    for (int i = 0; i < RG_RATE_SETS; i += 3)
        printf(" %12.1f", r->set_bytes_s[i] / 1e9);
    printf("\nof what lies in a cache, others take");
    for (int i = 0; i < RG_RATE_PAUSES; i++)
        printf("%s %.0f %% in %.2g ms", i ? "," : "", 100 * r->taken[i], 1e3 * rg_rate_pauses[i]);
    const rg_attention_rate *a = &r->attention[RG_BF16];
    int last = RG_RATE_QUERIES - 1;
    printf("\n\nattention over bf16 keys: %.0f million pairs of 128 columns a second for one query, %.0f for 32 that "
           "share them\nan operation costs %.2f us besides its work\n",
           1e-6 / (a->pair_s[0] + 128 * a->width_s[0]), 1e-6 / (a->pair_s[last] + 128 * a->width_s[last]),
           1e6 * r->fixed_s[RG_OP_LINEAR]);
}

static bool print_json(const rg_cpu *cpu, const rg_machine *all, int n)
{
    const rg_machine *m = &all[n - 1];
    cli_json *j = cli_json_new();

    cli_json_open(j, NULL, '{');
    cli_json_float(j, "read_gb_s", m->read_bytes_s / 1e9);
    cli_json_float(j, "f32_gflop_s", m->f32_ops_s / 1e9);
    cli_json_float(j, "bf16_gflop_s", m->bf16_ops_s / 1e9);
    cli_json_float(j, "int8_gop_s", m->int8_ops_s / 1e9);
    cli_json_text(j, "isa", cpu->isa);
    cli_json_int(j, "cores", rg_cores());
    cli_json_float(j, "op_us", 1e6 * m->op_s);
    cli_json_float(j, "step_us", 1e6 * m->step_s);
    rates_json(j, &m->rates);
    cli_json_open(j, "instruction_sets", '[');
    for (int i = 0; rg_cpu_nth(i); i++)
        cli_json_text(j, NULL, rg_cpu_nth(i)->isa);
    cli_json_close(j);
    cli_json_open(j, "threads", '[');
    for (int i = 0; i < n; i++) {
        cli_json_open(j, NULL, '{');
        cli_json_int(j, "threads", i + 1);
        cli_json_float(j, "read_gb_s", all[i].read_bytes_s / 1e9);
        cli_json_float(j, "f32_gflop_s", all[i].f32_ops_s / 1e9);
        cli_json_float(j, "bf16_gflop_s", all[i].bf16_ops_s / 1e9);
        cli_json_float(j, "int8_gop_s", all[i].int8_ops_s / 1e9);
        cli_json_close(j);
    }
    cli_json_close(j);
    cli_json_close(j);
    return cli_json_print(j);
}

static void print_table(const rg_cpu *cpu, const rg_machine *all, int n)
{
    printf("instruction set %s; this machine has:", cpu->isa);
    for (int i = 0; rg_cpu_nth(i); i++)
        printf(" %s", rg_cpu_nth(i)->isa);
    printf("\n%8s %12s %14s %15s %12s\n", "threads", "read GB/s", "f32 GFLOP/s", "bf16 GFLOP/s", "int8 GOP/s");
    for (int i = 0; i < n; i++)
        printf("%8d %12.1f %14.1f %15.1f %12.1f\n", i + 1, all[i].read_bytes_s / 1e9, all[i].f32_ops_s / 1e9,
               all[i].bf16_ops_s / 1e9, all[i].int8_ops_s / 1e9);
    printf("a phase of a step costs %.2f us on %d threads, a step %.2f us\n", 1e6 * all[n - 1].op_s, n,
           1e6 * all[n - 1].step_s);
    print_rates(&all[n - 1].rates);
}

static int run(int argc, char **argv)
{
    cli_args args;
    static rg_machine all[64];
    rg_rates_wanted wanted = { .attention[RG_BF16] = true, .passes = 2 };
    rg_error err = { 0 };
    int status = cli_parse(&args, &cli_machine, NULL, argc, argv);

    if (status >= 0)
        return status;
    const rg_cpu *cpu = rg_cpu_find(args.common.isa, &err);
    int n = args.common.threads ? args.common.threads : rg_cores();
    n = n < (int)RG_LEN(all) ? n : (int)RG_LEN(all);
    rg_pool *pool = cpu ? rg_pool_new(n, &err) : NULL;
    if (!pool)
        return cli_fail(&err);
    for (int i = 0; i < n; i++) {
        cli_progress(args.common.quiet || args.common.json ? &args : NULL, "measuring", (double)i / n);
        rg_machine_measure(&all[i], cpu, pool, i + 1, 0);
    }
    rg_pool_free(pool);
    for (size_t i = 0; i < RG_LEN(shown); i++)
        wanted.linear[shown[i]] = true;
    if (!rg_rates_measure(&all[n - 1], cpu, n, &wanted, NULL, &err))
        return cli_fail(&err);
    cli_progress(args.common.quiet || args.common.json ? &args : NULL, "measuring", 1);
    if (!args.common.json)
        print_table(cpu, all, n);
    else if (!print_json(cpu, all, n))
        return EXIT_FAILED;
    return EXIT_DONE;
}

const cli_command cli_machine = {
    .name = "machine", .arguments = "", .summary = "measure this machine: read bandwidth, arithmetic peaks", .run = run,
};
