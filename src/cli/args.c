/* args.c -- the command line in terms of a command's table of options, and help from the same table. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "cli/aliases.h"
#include "cli/models.h"
#include "cli/options.h"
#include "cli/settings.h"
#include "cli/suggest.h"

const cli_command *const *cli_commands;
size_t cli_n_commands;

bool cli_finished(rg_finish finish, rg_error *err)
{
    if (finish == RG_FINISH_NO_WEIGHTS)
        return rg_fail(err, RG_E_IO, "experts that the answer needs could not be read");
    if (finish == RG_FINISH_LOST)
        return rg_fail(err, RG_E_IO, "ranks that computed the answer ended time and again");
    if (finish != RG_FINISH_NOT_FINITE)
        return true;
    return rg_fail(err, RG_E_INPUT, "the model computed NaN or infinity: its weights are damaged, or too large for the "
                   "recipe (--recipe exact may help)");
}

int cli_fail(const rg_error *err)
{
    cli_flush(NULL);
    if (rg_log_is_json())
        rg_log(RG_LOG_ERROR, "%s", err->text);
    else
        fprintf(stderr, "ridge: %s\n", err->text);
    return err->code == RG_E_USAGE ? EXIT_USAGE : EXIT_FAILED;
}

int cli_usage(const char *fmt, ...)
{
    va_list args;

    fputs("ridge: ", stderr);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
    return EXIT_USAGE;
}

static void print_option(const cli_option *o)
{
    char left[64];

    snprintf(left, sizeof left, "%s%s%s", o->name, o->value ? " " : "", o->value ? o->value : "");
    printf("  %-26s %s\n", left, o->help);
}

static void print_help(const cli_args *a)
{
    printf("ridge %s %s\n\n%s\n\nOptions:\n", a->command->name, a->command->arguments, a->command->summary);
    for (const cli_option *o = a->options; o && o->name; o++)
        print_option(o);
    printf("\nCommon to all subcommands:\n");
    for (const cli_option *o = cli_common_options; o->name; o++)
        print_option(o);
    if (a->command->notes)
        printf("\n%s\n", a->command->notes);
}

/* ---- which option is meant ---- */

static void offer_option(void *arg, const cli_option *o)
{
    cli_suggest_offer(arg, o->name);
}

/* The option of a->command, or the alias that it has, nearest to what was typed; NULL: none is near. */
static const char *nearest_option(const cli_args *a, const char *arg, size_t n)
{
    cli_suggestion s = cli_suggest(arg, n);

    cli_option_each(a->options, offer_option, &s);
    for (int i = 0; cli_alias_nth(i); i++)
        if (cli_alias_nth(i)->to && cli_option_find(a, cli_alias_nth(i)->to, strlen(cli_alias_nth(i)->to)))
            cli_suggest_offer(&s, cli_alias_nth(i)->name);
    return s.best;
}

/* ---- the command line ---- */

static bool is_switch(const char *s)
{
    bool ignored;

    return s && (!strcasecmp(s, "auto") || cli_parse_flag(s, &ignored));
}

/* An option that another program has: *o is ours, or NULL if there is nothing to set. */
static bool follow(cli_args *a, const cli_alias *alias, const cli_option **o, rg_error *err)
{
    *o = alias->to ? cli_option_find(a, alias->to, strlen(alias->to)) : NULL;
    switch (alias->kind) {
    case CLI_ALIAS_OPTION:
    case CLI_ALIAS_SAME:
        return *o || rg_fail(err, RG_E_USAGE, "%s: no option '%s' (%s in ridge); see `ridge %s --help`",
                             a->command->name, alias->name, alias->to, a->command->name);
    case CLI_ALIAS_MODEL:
        return cli_takes_model(a->command) ||
               rg_fail(err, RG_E_USAGE, "%s: no option '%s': it takes no model", a->command->name, alias->name);
    case CLI_ALIAS_NOTHING:
        if (a->n_ignored < (int)RG_LEN(a->ignored))
            a->ignored[a->n_ignored++] = alias;
        return true;
    case CLI_ALIAS_REFUSED: break;
    }
    return rg_fail(err, RG_E_USAGE, "%s: no option '%s': %s", a->command->name, alias->name, alias->why);
}

static bool unknown_option(const cli_args *a, const char *arg, size_t n, rg_error *err)
{
    const char *near = nearest_option(a, arg, n);

    if (near)
        return rg_fail(err, RG_E_USAGE, "%s: no option '%.*s'; did you mean %s? (`ridge %s --help` lists all)",
                       a->command->name, (int)n, arg, near, a->command->name);
    return rg_fail(err, RG_E_USAGE, "%s: no option '%.*s'; see `ridge %s --help`", a->command->name, (int)n, arg,
                   a->command->name);
}

/* One option at argv[*i], which then is its last word. */
static bool parse_option(cli_args *a, int argc, char **argv, int *i, rg_error *err)
{
    const char *arg = argv[*i], *equals = arg[1] == '-' ? strchr(arg, '=') : NULL;
    size_t n = equals ? (size_t)(equals - arg) : strlen(arg);
    const cli_option *o = cli_option_find(a, arg, n);
    const cli_alias *alias = o ? NULL : cli_alias_find(a->command->name, arg, n);
    cli_given g = { .where = a->command->name, .source = CLI_LINE, .value = equals ? equals + 1 : NULL };
    bool needs_value;

    if (!o && !alias)
        return unknown_option(a, arg, n, err);
    if (alias && !follow(a, alias, &o, err))
        return false;
    needs_value = o ? o->kind != CLI_FLAG : alias->value == CLI_ALIAS_VALUE;
    if (needs_value && !equals && *i + 1 >= argc)
        return rg_fail(err, RG_E_USAGE, "%s: %.*s needs a value (%s)", a->command->name, (int)n, arg,
                       o ? o->value : alias->kind == CLI_ALIAS_MODEL ? "MODEL" : "VALUE");
    if (needs_value && !equals)
        g.value = argv[++*i];
    if (!o && alias->value == CLI_ALIAS_SWITCH && !equals && *i + 1 < argc && is_switch(argv[*i + 1]))
        ++*i;
    if (alias && alias->kind == CLI_ALIAS_MODEL) {
        if (a->model && a->model_source == CLI_LINE)
            return rg_fail(err, RG_E_USAGE, "%s: the model is named twice: %.200s and %.200s", a->command->name,
                           a->model, g.value);
        a->model = g.value;
        a->model_source = CLI_LINE;
        a->fetch = strncmp(alias->name, "-hf", 3) == 0 || !strcmp(alias->name, "--hf-repo");
    }
    g.same = alias && alias->kind == CLI_ALIAS_SAME;
    return !o || cli_option_set(a, o, &g, err);
}

static bool add_positional(cli_args *a, const char *arg, rg_error *err)
{
    if (a->n_positional < a->command->n_positional) {
        a->positional[a->n_positional++] = arg;
        return true;
    }
    return rg_fail(err, RG_E_USAGE, "%s: '%.60s' is one argument too many; see `ridge %s --help`", a->command->name,
                   arg, a->command->name);
}

/* -m stands before all arguments; a setting stands where there are none. */
static bool place_model(cli_args *a, rg_error *err)
{
    const char *last = a->n_positional ? a->positional[a->n_positional - 1] : NULL;

    if (!a->model || (a->model_source != CLI_LINE && a->n_positional))
        return true;
    if (!last)
        return add_positional(a, a->model, err);
    for (int i = a->n_positional - 1; i > 0; i--)
        a->positional[i] = a->positional[i - 1];
    a->positional[0] = a->model;
    return a->n_positional < a->command->n_positional ? add_positional(a, last, err)
                                                      : rg_fail(err, RG_E_USAGE,
                                                                "%s: '%.60s' is one argument too many beside -m; see "
                                                                "`ridge %s --help`",
                                                                a->command->name, last, a->command->name);
}

/* *help: it was asked for, and the rest does not matter. */
static bool parse_line(cli_args *a, int argc, char **argv, bool *help, rg_error *err)
{
    bool only_positional = false;

    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];

        if (!only_positional && (!strcmp(arg, "--help") || !strcmp(arg, "-h")))
            return *help = true;
        if (!only_positional && !strcmp(arg, "--"))
            only_positional = true;
        else if (!only_positional && arg[0] == '-' && arg[1] ? !parse_option(a, argc, argv, &i, err)
                                                             : !add_positional(a, arg, err))
            return false;
    }
    return true;
}

/* ---- the whole ---- */

static struct {
    cli_option_visitor *visit; /* NULL: commands run */
    void *arg;
} describing;

void cli_describe(const cli_command *command, const char *word, cli_option_visitor *visit, void *arg)
{
    char name[64], of_word[64], help[] = "--help", *argv[] = { name, word ? of_word : help, word ? help : NULL, NULL };

    snprintf(name, sizeof name, "%s", command->name);
    snprintf(of_word, sizeof of_word, "%s", word ? word : "");
    describing.visit = visit;
    describing.arg = arg;
    command->run(word ? 3 : 2, argv);
    describing.visit = NULL;
}

int cli_parse(cli_args *a, const cli_command *command, const cli_option *options, int argc, char **argv)
{
    rg_error err = { 0 };
    bool help = false;

    if (describing.visit) {
        cli_option_each(options, describing.visit, describing.arg);
        return EXIT_DONE;
    }
    *a = (cli_args){ .command = command, .options = options };
    cli_common_reset(command);
    if (!parse_line(a, argc, argv, &help, &err))
        return cli_fail(&err);
    if (help) {
        print_help(a);
        return EXIT_DONE;
    }
    if (!cli_read_sources(a, &err) || !place_model(a, &err))
        return cli_fail(&err);
    a->common = cli_common_now();
    cli_fetch_missing(a->fetch);
    for (int i = 0; i < a->n_ignored; i++)
        cli_tell_ignored(a->ignored[i]->name, a->ignored[i]->why);
    return -1;
}
