/* version.c -- `ridge version`: which ridge this is. */
#include <stdio.h>

#include "cli/cli.h"
#include "ops/backend.h"

extern const cli_command cli_version;

static int run(int argc, char **argv)
{
    static cli_args args;
    cli_json *j;

    int status = cli_parse(&args, &cli_version, NULL, argc, argv);
    if (status >= 0)
        return status;
    if (!args.common.json) {
        puts("ridge " RG_VERSION);
        return EXIT_DONE;
    }
    j = cli_json_new();
    cli_json_open(j, NULL, '{');
    cli_json_text(j, "version", RG_VERSION);
    cli_json_text(j, "compiler", __VERSION__);
    cli_json_open(j, "isa", '[');
    for (int i = 0; rg_backend_nth(i); i++)
        cli_json_text(j, NULL, rg_backend_nth(i)->name);
    cli_json_close(j);
    cli_json_close(j);
    return cli_json_print(j) ? EXIT_DONE : EXIT_FAILED;
}

const cli_command cli_version = {
    .name = "version", .arguments = "", .summary = "which version this is", .run = run,
};
