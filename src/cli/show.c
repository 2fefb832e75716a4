/* show.c -- `ridge show MODEL`: what a model is and can do, in short. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cli/models.h"

extern const cli_command cli_show;

static void print_parameters(uint64_t n)
{
    if (n >= 1000000000)
        printf("parameters    %.2f billion\n", (double)n / 1e9);
    else
        printf("parameters    %.2f million\n", (double)n / 1e6);
}

static void print_text(const cli_model *m, bool with_template)
{
    char size[32];

    printf("name          %s\nfile          %s (%s)\nsize          %s\n", m->found.name, m->found.path,
           rg_place_name(m->found.place), cli_bytes_text(m->found.bytes, size));
    printf("architecture  %s, %d layers of %d", m->architecture, m->n_layers, m->dim);
    if (m->n_experts)
        printf(", %d experts", m->n_experts);
    putchar('\n');
    print_parameters(m->parameters);
    printf("quantization  %s\ncontext       %d\nvocabulary    %d\ncapabilities ", m->type, m->context, m->vocab_size);
    for (int i = 0; i < m->n_abilities; i++)
        printf(" %s", m->ability[i]);
    printf("\nlicence       %s\n", m->license[0] ? m->license : "not said");
    printf("template      %s\n", m->template_text ? with_template ? "" : "its own (--template prints it)" : "none");
    if (m->template_text && with_template)
        printf("%s\n", m->template_text);
}

static int run(int argc, char **argv)
{
    static struct {
        cli_args args;
        bool with_template;
    } o;
    const cli_option options[] = {
        { "--template", CLI_FLAG, &o.with_template, NULL, "print the chat template" },
        { NULL },
    };
    static cli_model m;
    rg_error err = { 0 };
    cli_json *j;

    int status = cli_parse(&o.args, &cli_show, options, argc, argv);
    if (status >= 0)
        return status;
    if (!cli_find(o.args.n_positional ? o.args.positional[0] : NULL, &m.found, &err))
        return cli_fail(&err);
    cli_model_look(&m);
    if (m.problem[0])
        return rg_fail(&err, RG_E_INPUT, "%s", m.problem), cli_fail(&err);
    if (!o.args.common.json) {
        print_text(&m, o.with_template);
    } else {
        j = cli_json_new();
        cli_json_open(j, NULL, '{');
        cli_json_open(j, "models", '[');
        cli_model_json(j, &m, true);
        cli_json_close(j);
        cli_json_close(j);
        status = cli_json_print(j) ? EXIT_DONE : EXIT_FAILED;
    }
    cli_model_fini(&m);
    return status < 0 ? EXIT_DONE : status;
}

const cli_command cli_show = {
    .name = "show", .arguments = "[MODEL]", .summary = "what a model is and can do, in short", .run = run,
    .n_positional = 1,
    .notes = "`ridge inspect` has more: every field of its config, metadata, tensors.",
};
