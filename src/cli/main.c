/* main.c -- the roof: the table of subcommands, the folders of models and profiles, and the one look at the
 * environment. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/cli.h"

#define COMMANDS                                                                                                       \
    COMMAND(run)                                                                                                       \
    COMMAND(chat)                                                                                                      \
    COMMAND(serve)                                                                                                     \
    COMMAND(embed)                                                                                                     \
    COMMAND(prove)                                                                                                     \
    COMMAND(bench)                                                                                                     \
    COMMAND(machine)                                                                                                   \
    COMMAND(plan)                                                                                                      \
    COMMAND(inspect)                                                                                                   \
    COMMAND(tokenize)                                                                                                  \
    COMMAND(render)                                                                                                    \
    COMMAND(logits)                                                                                                    \
    COMMAND(eval)                                                                                                      \
    COMMAND(quantize)                                                                                                  \
    COMMAND(shrink)                                                                                                    \
    COMMAND(study)

#define COMMAND(name) extern const cli_command cli_##name;
COMMANDS
#undef COMMAND

static const cli_command *const commands[] = {
#define COMMAND(name) &cli_##name,
    COMMANDS
#undef COMMAND
};

static void print_usage(FILE *to)
{
    fprintf(to, "ridge " RG_VERSION
                ": LLM inference at the speed the hardware allows\n\nusage: ridge COMMAND [ARGUMENTS]\n\n");
    for (size_t i = 0; i < RG_LEN(commands); i++)
        fprintf(to, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
    fprintf(to, "\n`ridge COMMAND --help` tells more.  MODEL is a GGUF file, a Hugging Face folder, or a name under "
                "the models folder.\n");
}

/* RIDGE_MODELS, else "models" beside the program, beside its build folder, or where it was installed. */
static const char *find_models(void)
{
    static char dir[1024];
    static const char *const around[] = { "models", "../models", "../share/ridge/models" };
    const char *set = getenv("RIDGE_MODELS");
    char self[512];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

    if (set)
        return set;
    if (n > 0) {
        self[n] = 0;
        *strrchr(self, '/') = 0;
        for (size_t i = 0; i < RG_LEN(around); i++) {
            snprintf(dir, sizeof dir, "%s/%s", self, around[i]);
            if (rg_path_look(dir) == RG_PATH_DIR)
                return dir;
        }
    }
    return rg_path_look(RG_MODELS_INSTALLED) == RG_PATH_DIR ? RG_MODELS_INSTALLED : NULL;
}

/* $XDG_CACHE_HOME/ridge, else $HOME/.cache/ridge; NULL: neither is set. */
static const char *find_profiles(void)
{
    static char dir[1024];
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = 0;

    if (cache && *cache == '/') /* others are to be ignored, says the XDG specification */
        n = snprintf(dir, sizeof dir, "%s/ridge", cache);
    else if (home && *home)
        n = snprintf(dir, sizeof dir, "%s/.cache/ridge", home);
    return n > 0 && (size_t)n < sizeof dir ? dir : NULL;
}

/* What was printed may still be lost on its way to a full disk: then a command that did its work has failed. */
static int end(const char *command, int status)
{
    const char *why;

    if (!cli_flush(&why) && status == EXIT_DONE) {
        fprintf(stderr, "ridge: %s: standard output cannot be written: %s\n", command, why);
        return EXIT_FAILED;
    }
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_usage(stderr);
        return EXIT_USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "help")) {
        print_usage(stdout);
        return end("help", EXIT_DONE);
    }
    if (!strcmp(argv[1], "--version")) {
        puts("ridge " RG_VERSION);
        return end("version", EXIT_DONE);
    }
    cli_models_dir = find_models();
    cli_profile_folder = find_profiles();
    for (size_t i = 0; i < RG_LEN(commands); i++)
        if (!strcmp(argv[1], commands[i]->name))
            return end(commands[i]->name, commands[i]->run(argc - 1, argv + 1));
    cli_usage("'%.40s' is not a command; `ridge --help` lists them", argv[1]);
    return EXIT_USAGE;
}
