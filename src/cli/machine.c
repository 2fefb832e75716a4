/* machine.c -- `ridge machine`: what this machine can do, measured: read bandwidth and peaks, per thread count. */
#include <stdio.h>

#include "cli/cli.h"
#include "model/cost.h"

extern const cli_command cli_machine;

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
}

static int run(int argc, char **argv)
{
    cli_args args = { .command = &cli_machine, .common = { .isa = "auto", .recipe = "fast" } };
    rg_machine all[64];
    rg_error err = { 0 };
    int status = cli_parse(&args, argc, argv);

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
    cli_progress(args.common.quiet || args.common.json ? &args : NULL, "measuring", 1);
    rg_pool_free(pool);
    if (!args.common.json)
        print_table(cpu, all, n);
    else if (!print_json(cpu, all, n))
        return EXIT_FAILED;
    return EXIT_DONE;
}

const cli_command cli_machine = {
    .name = "machine", .arguments = "", .summary = "measure this machine: read bandwidth, arithmetic peaks", .run = run,
};
