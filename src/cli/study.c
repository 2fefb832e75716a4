/* study.c -- `ridge study NAME`: the table of studies. */
#include "cli/study.h"

#include <stdio.h>
#include <string.h>

extern const cli_command cli_study, cli_study_kbit, cli_study_kv, cli_study_recall, cli_study_sparsity;

static const cli_command *const studies[] = { &cli_study_kbit, &cli_study_kv, &cli_study_recall, &cli_study_sparsity };

const char *study_name(const char *path, char out[64])
{
    static const char config[] = "/config.json";
    size_t n = strlen(path), end = sizeof config - 1, from;

    if (n > end && !strcmp(path + n - end, config))
        n -= end;
    while (n > 1 && path[n - 1] == '/')
        n--;
    for (from = n; from > 0 && path[from - 1] != '/';)
        from--;
    for (size_t k = n; k > from + 1; k--)
        if (path[k - 1] == '.') {
            n = k - 1;
            break;
        }
    snprintf(out, 64, "%.*s", (int)(n - from < 60 ? n - from : 60), path + from);
    return out;
}

static const char *short_name(const cli_command *c)
{
    return c->name + strlen("study ");
}

static int run(int argc, char **argv)
{
    bool help = argc > 1 && !strcmp(argv[1], "--help");

    for (size_t i = 0; argc > 1 && i < RG_LEN(studies); i++)
        if (!strcmp(argv[1], short_name(studies[i])))
            return studies[i]->run(argc - 1, argv + 1);
    if (argc > 1 && !help)
        return cli_usage("study: '%.40s' is not a study; `ridge study --help` lists them", argv[1]);
    fprintf(help ? stdout : stderr, "usage: ridge study NAME MODEL... [OPTIONS]\n\n");
    for (size_t i = 0; i < RG_LEN(studies); i++)
        fprintf(help ? stdout : stderr, "  %-10s %s\n", short_name(studies[i]), studies[i]->summary);
    fprintf(help ? stdout : stderr, "\n`ridge study NAME --help` tells more.\n");
    return help ? EXIT_DONE : EXIT_USAGE;
}

const cli_command cli_study = {
    .name = "study", .arguments = "NAME MODEL...", .summary = "measure several models side by side", .run = run,
};
