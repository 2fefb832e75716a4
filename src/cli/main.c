/* main.c -- the roof: the table of subcommands, the folders of models and profiles, and the one look at the
 * environment. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/settings.h"
#include "cli/suggest.h"

#define COMMANDS                                                                                                       \
    COMMAND(run)                                                                                                       \
    COMMAND(chat)                                                                                                      \
    COMMAND(serve)                                                                                                     \
    COMMAND(batch)                                                                                                     \
    COMMAND(embed)                                                                                                     \
    COMMAND(prove)                                                                                                     \
    COMMAND(bench)                                                                                                     \
    COMMAND(machine)                                                                                                   \
    COMMAND(plan)                                                                                                      \
    COMMAND(tour)                                                                                                      \
    COMMAND(inspect)                                                                                                   \
    COMMAND(tokenize)                                                                                                  \
    COMMAND(tokenizer)                                                                                                 \
    COMMAND(render)                                                                                                    \
    COMMAND(logits)                                                                                                    \
    COMMAND(grad)                                                                                                      \
    COMMAND(train)                                                                                                     \
    COMMAND(distill)                                                                                                   \
    COMMAND(eval)                                                                                                      \
    COMMAND(quantize)                                                                                                  \
    COMMAND(shrink)                                                                                                    \
    COMMAND(study)                                                                                                     \
    COMMAND(list)                                                                                                      \
    COMMAND(show)                                                                                                      \
    COMMAND(pull)                                                                                                      \
    COMMAND(completion)                                                                                                \
    COMMAND(version)

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
    fprintf(to, "\n`ridge help COMMAND` tells more.  MODEL is a GGUF file, a Hugging Face folder, or a name that "
                "`ridge list` lists.\n");
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

/* A path below $VARIABLE, a folder of the XDG specification, else below $HOME/otherwise; NULL: neither is set. */
static const char *find_below(const char *variable, const char *otherwise, const char *path, char dir[1024])
{
    const char *base = getenv(variable), *home = getenv("HOME");
    int n = 0;

    if (base && *base == '/') /* others are to be ignored, says the specification */
        n = snprintf(dir, 1024, "%s/%s", base, path);
    else if (home && *home)
        n = snprintf(dir, 1024, "%s/%s/%s", home, otherwise, path);
    return n > 0 && n < 1024 ? dir : NULL;
}

/* The first of these folders that a variable names; with path behind it. */
static const char *find_named(const char *variable, const char *path, char dir[1024])
{
    const char *v = getenv(variable);

    return v && *v && snprintf(dir, 1024, "%s%s%s", v, *path ? "/" : "", path) < 1024 ? dir : NULL;
}

/* The cache of the Hugging Face libraries, as they find it. */
static const char *find_hub(void)
{
    static char dir[1024];
    const char *hub = find_named("HF_HUB_CACHE", "", dir);

    hub = hub ? hub : find_named("HUGGINGFACE_HUB_CACHE", "", dir);
    hub = hub ? hub : find_named("HF_HOME", "hub", dir);
    return hub ? hub : find_below("XDG_CACHE_HOME", ".cache", "huggingface/hub", dir);
}

/* The folder of Ollama: the user's own, or that of its service. */
static const char *find_ollama(void)
{
    static const char service[] = "/usr/share/ollama/.ollama/models";
    static char dir[1024];
    const char *named = find_named("OLLAMA_MODELS", "", dir);

    if (named || (find_named("HOME", ".ollama/models", dir) && rg_path_look(dir) == RG_PATH_DIR))
        return dir;
    return rg_path_look(service) == RG_PATH_DIR ? service : NULL;
}

static const char *find_llama_cache(void)
{
    static char dir[1024];
    const char *named = find_named("LLAMA_CACHE", "", dir);

    return named ? named : find_below("XDG_CACHE_HOME", ".cache", "llama.cpp", dir);
}

static const char *look_up(const char *name)
{
    return getenv(name);
}

/* The one look at the environment. */
static void look_around(void)
{
    static char profiles[1024], config[1024], state[1024];

    cli_environment = look_up;
    cli_models_dir = find_models();
    cli_places = (rg_places){ .models = cli_models_dir, .hub = find_hub(), .ollama = find_ollama(),
                              .llama_cache = find_llama_cache() };
    cli_profile_folder = find_below("XDG_CACHE_HOME", ".cache", "ridge", profiles);
    cli_default_config = find_below("XDG_CONFIG_HOME", ".config", "ridge/config", config);
    cli_state_folder = find_below("XDG_STATE_HOME", ".local/state", "ridge", state);
    cli_commands = commands;
    cli_n_commands = RG_LEN(commands);
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

static const cli_command *find_command(const char *name)
{
    for (size_t i = 0; i < RG_LEN(commands); i++)
        if (!strcmp(name, commands[i]->name))
            return commands[i];
    return NULL;
}

static int unknown_command(const char *name)
{
    cli_suggestion s = cli_suggest(name, strlen(name));

    for (size_t i = 0; i < RG_LEN(commands); i++)
        cli_suggest_offer(&s, commands[i]->name);
    cli_suggest_offer(&s, "help");
    if (s.best)
        return cli_usage("'%.40s' is not a command; did you mean %s? (`ridge help` lists all)", name, s.best);
    return cli_usage("'%.40s' is not a command; `ridge help` lists them", name);
}

/* `ridge help [COMMAND [WORD]]`; argv begins at help. */
static int help(int argc, char **argv)
{
    const cli_command *c = argc > 1 ? find_command(argv[1]) : NULL;
    char ask[] = "--help", *words[] = { argv[1], argc > 2 ? argv[2] : ask, ask, NULL };

    if (argc > 1 && !c)
        return unknown_command(argv[1]);
    if (c)
        return c->run(argc > 2 && c->words_have_options ? 3 : 2,
                      argc > 2 && c->words_have_options ? words : (char *[]){ argv[1], ask, NULL });
    print_usage(stdout);
    return EXIT_DONE;
}

/* Under mpirun every process is a rank, and only rank 0 runs the command.  False: it cannot be. */
static bool join_ranks(bool *follows)
{
    /* For scripts/try-mpi: so many ranks count as a host's, and exchanges take so many microseconds longer. */
    const char *here = getenv("RANKS_OF_HOST"), *delay = getenv("RANKS_DELAY_US");
    const char *n = getenv("OMPI_COMM_WORLD_SIZE");
    rg_error err = { 0 };

    *follows = false;
    if (!n || atoi(n) < 2 || cli_ranks_join(follows, here ? atoi(here) : 0, delay ? atoi(delay) : 0, &err))
        return true;
    (void)cli_fail(&err);
    return false;
}

int main(int argc, char **argv)
{
    const cli_command *c;
    bool follows;

    if (argc < 2) {
        print_usage(stderr);
        return EXIT_USAGE;
    }
    look_around();
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help"))
        return end("help", help(argv[1][0] == '-' ? 1 : argc - 1, argv + 1));
    c = find_command(!strcmp(argv[1], "--version") ? "version" : argv[1]);
    if (!c)
        return unknown_command(argv[1]);
    if (!join_ranks(&follows))
        return EXIT_FAILED;
    if (follows)
        return EXIT_DONE;
    const int status = end(c->name, c->run(argc - 1, argv + 1));
    cli_ranks_stop();
    return status;
}
