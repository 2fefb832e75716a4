/* quantize.c -- `ridge quantize`: any readable model to GGUF in a format of choice, or to a Hugging Face directory. */
#include <stdio.h>
#include <string.h>

#include "base/pool.h"
#include "cli/cli.h"
#include "model/convert.h"
#include "text/export.h"

extern const cli_command cli_quantize;

typedef struct quantize_options {
    cli_args args;
    const char *type, *to, *importance;
} quantize_options;

static double bits_per_weight(const rg_convert_report *r)
{
    return r->n_values ? 8.0 * (double)r->bytes / (double)r->n_values : 0;
}

static bool print_json(const rg_convert_report *r, const char *type, rg_error *err)
{
    cli_json *j = cli_json_new();

    cli_json_open(j, NULL, '{');
    cli_json_text(j, "type", type);
    cli_json_u64(j, "bytes", r->bytes);
    cli_json_u64(j, "weights", r->n_values);
    cli_json_float(j, "bits_per_weight", bits_per_weight(r));
    cli_json_open(j, "fallbacks", '[');
    for (int i = 0; i < r->n_fallbacks; i++) {
        cli_json_open(j, NULL, '{');
        cli_json_text(j, "name", r->fallbacks[i].name);
        cli_json_text(j, "type", rg_format_of(r->fallbacks[i].type)->name);
        cli_json_close(j);
    }
    cli_json_close(j);
    cli_json_int(j, "important", r->n_important);
    cli_json_int(j, "left_out", r->n_left_out);
    cli_json_text(j, "warning", r->warning[0] ? r->warning : NULL);
    cli_json_close(j);
    return cli_json_print(j) || rg_fail(err, RG_E_IO, "quantize: standard output cannot be written");
}

static void print_text(const rg_convert_report *r, const char *to, bool quiet)
{
    if (r->warning[0])
        fprintf(stderr, "ridge: warning: %s\n", r->warning);
    if (quiet)
        return;
    printf("%s: %.1f MB of weights, %.2f bits each\n", to, (double)r->bytes / 1e6, bits_per_weight(r));
    if (r->n_fallbacks)
        printf("%d tensors took another type, as its blocks do not divide their rows:\n", r->n_fallbacks);
    for (int i = 0; i < r->n_fallbacks && i < 20; i++)
        printf("  %-40s %s\n", r->fallbacks[i].name, rg_format_of(r->fallbacks[i].type)->name);
    if (r->n_fallbacks > 20)
        printf("  and %d more (--json lists them all)\n", r->n_fallbacks - 20);
}

static bool convert(const quantize_options *o, const char *path, const rg_convert_options *c, rg_error *err)
{
    rg_checkpoint *ckpt = rg_checkpoint_open(path, RG_CKPT_DEFAULT, err);
    rg_checkpoint *importance = ckpt && o->importance ? rg_checkpoint_open(o->importance, RG_CKPT_DEFAULT, err) : NULL;
    const char *to = o->args.positional[1];
    rg_convert_options with = *c;
    rg_convert_report report;

    if (!ckpt || (o->importance && !importance))
        return rg_checkpoint_close(ckpt), false;
    with.importance = importance;
    bool ok = rg_convert(&report, ckpt, to, &with, err);
    if (ok && importance && !report.n_important)
        fprintf(stderr, "ridge: warning: %s: it has no matrix of the model by name\n", o->importance);
    if (ok) {
        cli_warn_unused(&o->args.common, path, report.n_left_out);
        cli_warn_notes(&o->args.common, path, report.notes);
    }
    if (ok && o->args.common.json)
        ok = print_json(&report, c->mixture ? c->mixture->name : rg_format_of(c->type)->name, err);
    else if (ok)
        print_text(&report, to, o->args.common.quiet);
    rg_convert_report_fini(&report);
    rg_checkpoint_close(importance);
    rg_checkpoint_close(ckpt);
    return ok;
}

static int run(int argc, char **argv)
{
    static quantize_options o = { .type = "q4_0", .to = "gguf" };
    const cli_option options[] = {
        { "--type", CLI_STRING, &o.type, "NAME",
          "of matrices: f32 f16 bf16 q4_0 (default) q4_1 q5_0 q5_1 q8_0 q2_k q3_k q4_k q5_k q6_k iq1_s iq1_m iq2_xxs "
          "iq2_xs iq2_s iq3_xxs iq3_s iq4_nl iq4_xs mxfp4 nvfp4 tq1_0 tq2_0; or a mixture: q3_k_s q3_k_m q3_k_l q4_k_s "
          "q4_k_m q5_k_s q5_k_m" },
        { "--to", CLI_STRING, &o.to, "KIND", "gguf (default), or hf: a directory of safetensors, in f32, f16 or bf16" },
        { "--importance", CLI_STRING, &o.importance, "FILE",
          "mean |x| of matrices' inputs, which `eval --activations` writes, or an imatrix: errors weigh by it" },
        { NULL },
    };
    char path[1024];
    rg_error err = { 0 };

    int status = cli_parse(&o.args, &cli_quantize, options, argc, argv);
    if (status >= 0)
        return status;
    if (o.args.n_positional < 2)
        return cli_usage("quantize: SRC and DST are needed; see `ridge quantize --help`");
    bool hf = !strcmp(o.to, "hf");
    if (!hf && strcmp(o.to, "gguf"))
        return cli_usage("quantize: --to takes gguf or hf, not '%.40s'", o.to);
    rg_convert_options c = { .to_hf = hf, .n_threads = o.args.common.threads ? o.args.common.threads : rg_cores(),
                             .vocabulary = rg_tokenizer_export, .progress = cli_progress, .stop = cli_interrupted };
    c.mixture = rg_mixture_find(o.type);
    if (c.mixture)
        c.type = c.mixture->base;
    else if (!rg_type_by_name(o.type, &c.type))
        return cli_usage("quantize: --type '%.40s' is no format; see `ridge quantize --help`", o.type);
    c.progress_arg = o.args.common.quiet ? &o : NULL;
    cli_catch_interrupt();
    if (!cli_find_model(o.args.positional[0], path, sizeof path, &err) || !convert(&o, path, &c, &err))
        return cli_fail(&err);
    return EXIT_DONE;
}

const cli_command cli_quantize = {
    .name = "quantize", .arguments = "SRC DST", .summary = "write a model in another format", .run = run,
    .n_positional = 2,
    .notes = "Vectors, tables and routers stay f32.  "
             "Where the blocks of a type do not divide a matrix's rows, it takes a\n"
             "type of 32-value blocks with about as many bits, else f16, and is listed.",
};
