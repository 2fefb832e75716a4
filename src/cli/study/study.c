/* study.c -- `ridge study NAME`: the table of studies. */
#include "cli/study/study.h"

#include <stdio.h>
#include <string.h>

extern const cli_command cli_study;
extern const study study_diffusion, study_family, study_kbit, study_kv, study_recall, study_salient, study_search,
    study_shortcuts, study_sparsity;

static const study *const studies[] = { &study_diffusion, &study_family, &study_kbit,
                                       &study_kv,        &study_recall, &study_salient,
                                       &study_search,    &study_shortcuts, &study_sparsity };

static const char *short_name(const study *s)
{
    return s->command.name + strlen("study ");
}

static int run(int argc, char **argv)
{
    bool help = argc > 1 && !strcmp(argv[1], "--help");

    for (size_t i = 0; argc > 1 && i < RG_LEN(studies); i++)
        if (!strcmp(argv[1], short_name(studies[i])))
            return study_main(studies[i], argc - 1, argv + 1);
    if (argc > 1 && !help)
        return cli_usage("study: '%.40s' is not a study; `ridge study --help` lists them", argv[1]);
    fprintf(help ? stdout : stderr, "usage: ridge study NAME [MODEL...] [OPTIONS]\n\n");
    for (size_t i = 0; i < RG_LEN(studies); i++)
        fprintf(help ? stdout : stderr, "  %-10s %s\n", short_name(studies[i]), studies[i]->command.summary);
    fprintf(help ? stdout : stderr, "\n`ridge study NAME --help` tells more.\n");
    return help ? EXIT_DONE : EXIT_USAGE;
}

/* As in studies. */
static const char *const words[] = { "diffusion", "family", "kbit",      "kv",       "recall",
                                    "salient",   "search", "shortcuts", "sparsity", NULL };

const cli_command cli_study = {
    .name = "study", .arguments = "NAME MODEL...", .summary = "measure several models side by side", .run = run,
    .words = words, .words_have_options = true,
};
