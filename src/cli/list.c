/* list.c -- `ridge list`: the models that are found, wherever people have them. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cli/models.h"

extern const cli_command cli_list;

typedef struct list_options {
    cli_args args;
    bool names;
    cli_json *json;
    int n;
} list_options;

static bool show(void *arg, const rg_library_model *f)
{
    list_options *o = arg;
    char size[32];
    cli_model m = { .found = *f };

    if (o->names) {
        puts(f->name);
        return cli_flush(NULL);
    }
    cli_model_look(&m);
    if (o->json)
        cli_model_json(o->json, &m, false);
    else {
        if (!o->n)
            printf("%-48s %-14s %-8s %10s  %s\n", "name", "architecture", "type", "size", "where");
        printf("%-48s %-14s %-8s %10s  %s\n", f->name, m.problem[0] ? "-" : m.architecture,
               m.problem[0] ? "-" : m.type, cli_bytes_text(f->bytes, size), rg_place_name(f->place));
        if (m.problem[0])
            printf("    cannot be used: %s\n", m.problem);
    }
    o->n++;
    cli_model_fini(&m);
    return !cli_interrupted() && (o->json || cli_flush(NULL));
}

static int run(int argc, char **argv)
{
    static list_options o;
    const cli_option options[] = {
        { "--names", CLI_FLAG, &o.names, NULL, "only names, one a line" },
        { NULL },
    };

    int status = cli_parse(&o.args, &cli_list, options, argc, argv);
    if (status >= 0)
        return status;
    cli_catch_interrupt();
    if (o.args.common.json && !o.names) {
        o.json = cli_json_new();
        cli_json_open(o.json, NULL, '{');
        cli_json_open(o.json, "models", '[');
    }
    if (o.args.n_positional)
        rg_library_each_in(o.args.positional[0], show, &o);
    else
        rg_library_each(&cli_places, show, &o);
    if (o.json) {
        cli_json_close(o.json);
        cli_json_close(o.json);
        return cli_json_print(o.json) ? EXIT_DONE : EXIT_FAILED;
    }
    if (!o.n && !o.names && !o.args.common.quiet)
        fprintf(stderr, "ridge: no models are found; `ridge pull ORG/NAME` fetches one\n");
    return EXIT_DONE;
}

const cli_command cli_list = {
    .name = "list", .arguments = "[FOLDER]", .summary = "the models that are found, or those of a folder", .run = run,
    .n_positional = 1,
    .notes = "Looked at are the models folder (RIDGE_MODELS), the cache of the Hugging Face libraries (HF_HUB_CACHE,\n"
             "HF_HOME), Ollama's folder (OLLAMA_MODELS) and llama.cpp's cache (LLAMA_CACHE).",
};
