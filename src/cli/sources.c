/* sources.c -- options that the command line does not give, from the environment and a configuration file. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "cli/aliases.h"
#include "cli/options.h"
#include "cli/settings.h"
#include "cli/suggest.h"

/* Looking for a key among the options of some commands. */
typedef struct looking {
    const char *key;
    bool found;
    cli_suggestion near;
    char name[CLI_KEY_ROOM], best[CLI_KEY_ROOM]; /* the one at hand; the nearest so far */
} looking;

static void look_at(void *arg, const cli_option *o)
{
    looking *l = arg;
    int before = l->near.distance;

    cli_key_of(o, l->name);
    l->found = l->found || !strcmp(l->name, l->key);
    cli_suggest_offer(&l->near, l->name);
    if (l->near.distance < before)
        memcpy(l->best, l->name, sizeof l->best);
}

/* True if name, of a command or a section, begins with that word. */
static bool begins(const char *name, const char *word)
{
    size_t n = strlen(word);

    return !strncmp(name, word, n) && (!name[n] || name[n] == ' ');
}

/* Look at the options of c that the section is about.  Those of the command that runs are at hand; asking it for them
 * would undo what has been set. */
static void look_in(looking *l, const cli_args *a, const cli_command *c, const char *section)
{
    if (begins(a->command->name, c->name)) {
        cli_option_each(a->options, look_at, l);
        l->found = l->found || (c->words_have_options && strcmp(section, a->command->name) != 0);
    } else if (!c->words_have_options) {
        cli_describe(c, NULL, look_at, l);
    } else {
        for (int k = 0; c->words[k]; k++)
            if (!*section || !strcmp(section + strlen(c->name) + 1, c->words[k]))
                cli_describe(c, c->words[k], look_at, l);
    }
}

/* True if some command that the section is for has such an option. */
static bool is_known(const cli_args *a, const cli_setting *s, rg_error *err)
{
    looking l = { .key = s->key, .near = cli_suggest(s->key, strlen(s->key)) };
    char dashed[CLI_KEY_ROOM + 2];

    snprintf(dashed, sizeof dashed, "--%s", s->key);
    l.found = !strcmp(s->key, "model");
    for (size_t i = 0; i < cli_n_commands && !l.found; i++) {
        l.found = cli_alias_find(cli_commands[i]->name, dashed, strlen(dashed)) != NULL;
        if (!l.found && (!*s->section || begins(s->section, cli_commands[i]->name)))
            look_in(&l, a, cli_commands[i], s->section);
    }
    if (l.found)
        return true;
    return rg_fail(err, RG_E_USAGE, "%s: '%s' is not an option of %s%s%s%s", s->where, s->key,
                   *s->section ? s->section : "any command", *l.best ? "; did you mean " : "", l.best,
                   *l.best ? "?" : "");
}

/* The option of a->command that a key means: its own, or by another program's name. */
static const cli_option *option_of_key(const cli_args *a, const char *key, const cli_alias **alias)
{
    char dashed[CLI_KEY_ROOM + 2];
    size_t n = (size_t)snprintf(dashed, sizeof dashed, "--%s", key);
    const cli_option *o = cli_option_find(a, dashed, n);

    *alias = o ? NULL : cli_alias_find(a->command->name, dashed, n);
    return *alias && (*alias)->to ? cli_option_find(a, (*alias)->to, strlen((*alias)->to)) : o;
}

static bool is_config(const cli_option *o)
{
    return !strcmp(o->name, "--config");
}

/* MODEL where the command line has none. */
static void take_model(cli_args *a, const char *value, cli_source source)
{
    if (!cli_model_is_optional(a->command) || a->model_source > source)
        return;
    a->model = value;
    a->model_source = source;
}

static bool take_setting(void *arg, const cli_setting *s, rg_error *err)
{
    cli_args *a = arg;
    size_t n = strlen(s->section);
    cli_given g = { .where = s->where, .value = s->value, .again = s->again,
                .source = n ? CLI_FILE_SECTION : CLI_FILE };
    const cli_alias *alias;
    const cli_option *o;

    if (!is_known(a, s, err))
        return false;
    if (n && strcmp(a->command->name, s->section) != 0)
        return true;
    if (!strcmp(s->key, "model")) {
        take_model(a, s->value, g.source);
        return true;
    }
    o = option_of_key(a, s->key, &alias);
    if (!o && alias && n && alias->why)
        cli_tell_ignored(s->where, alias->why);
    if (o && is_config(o))
        return rg_fail(err, RG_E_USAGE, "%s: a file cannot name another one", s->where);
    return !o || cli_option_set(a, o, &g, err);
}

/* A variable holds one value; of a repeatable option, one a line. */
static bool take_variable(cli_args *a, const cli_option *o, char **copy, rg_error *err)
{
    char key[CLI_KEY_ROOM], variable[CLI_KEY_ROOM + 8];
    const char *value;
    cli_given g = { .where = variable, .source = CLI_ENVIRONMENT };

    cli_key_of(o, key);
    cli_variable_of(key, variable);
    value = *key ? cli_environment(variable) : NULL;
    if (!value || !*value || is_config(o))
        return true;
    rg_free(*copy);
    *copy = rg_strdup(value);
    if (!*copy)
        return rg_fail_memory(err, strlen(value));
    for (char *line = *copy, *next = line; next; line = next) {
        next = o->kind == CLI_STRINGS ? strchr(line, '\n') : NULL;
        if (next)
            *next++ = 0;
        g.value = line;
        if (*line && !cli_option_set(a, o, &g, err))
            return false;
    }
    return true;
}

static bool read_environment(cli_args *a, rg_error *err)
{
    static char *copies[CLI_MOST_OPTIONS]; /* options point into them until the program ends */
    const char *model = cli_environment("RIDGE_MODEL");
    char **copy = copies;

    if (model && *model)
        take_model(a, model, CLI_ENVIRONMENT);
    for (const cli_option *o = cli_common_options; o->name; o++)
        if (!take_variable(a, o, copy++, err))
            return false;
    for (const cli_option *o = a->options; o && o->name; o++, copy++)
        if (copy == copies + CLI_MOST_OPTIONS || !take_variable(a, o, copy, err))
            return false;
    return true;
}

bool cli_read_sources(cli_args *a, rg_error *err)
{
    const char *named = cli_config_given();
    bool is_there;

    if (cli_environment && !read_environment(a, err))
        return false;
    if (!named && cli_environment)
        named = cli_environment("RIDGE_CONFIG");
    is_there = named ? *named && strcmp(named, "none") != 0
                     : cli_default_config && rg_path_look(cli_default_config) == RG_PATH_FILE;
    return !is_there || cli_settings_read(named ? named : cli_default_config, take_setting, a, err);
}
