/* completion.c -- `ridge completion SHELL`: a script that completes commands and options, from the same tables as the
 * help. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

extern const cli_command cli_completion;

/* What completes an option's value. */
typedef enum wanted { WANT_NONE, WANT_FILE, WANT_TEXT } wanted;

static wanted wanted_of(const cli_option *o)
{
    static const char *const paths[] = { "FILE", "DIR", "PATH", "MODEL" };

    if (o->kind == CLI_FLAG)
        return WANT_NONE;
    for (size_t i = 0; i < RG_LEN(paths); i++)
        if (strstr(o->value, paths[i]))
            return WANT_FILE;
    return WANT_TEXT;
}

/* Print s with a backslash before each of these characters, and quotes as a shell has them within single quotes. */
static void print_escaped(const char *s, const char *escaped, const char *quote)
{
    for (; *s; s++) {
        if (*s == '\'')
            fputs(quote, stdout);
        else
            printf("%s%c", strchr(escaped, *s) ? "\\" : "", *s);
    }
}

/* ---- every command, and every word that has options of its own ---- */

typedef void command_printer(const cli_command *c, const char *word);

static void each_command(command_printer *print)
{
    for (size_t i = 0; i < cli_n_commands; i++) {
        const cli_command *c = cli_commands[i];

        if (!c->words_have_options)
            print(c, NULL);
        for (int k = 0; c->words_have_options && c->words[k]; k++)
            print(c, c->words[k]);
    }
}

/* ---- bash ---- */

static void bash_name(void *arg, const cli_option *o)
{
    if (!arg || wanted_of(o) == *(const wanted *)arg)
        printf(" %s", o->name);
}

static void bash_list(const cli_command *c, const char *word, const char *name, const wanted *only)
{
    printf(" %s='", name);
    cli_describe(c, word, bash_name, (void *)(uintptr_t)only);
    printf(" '");
}

static void bash_command(const cli_command *c, const char *word)
{
    static const wanted file = WANT_FILE, text = WANT_TEXT;

    printf("    '%s%s%s')", c->name, word ? " " : "", word ? word : "");
    bash_list(c, word, "options", NULL);
    bash_list(c, word, "files", &file);
    bash_list(c, word, "texts", &text);
    printf(" ;;\n");
}

static void print_bash(void)
{
    printf(
        "# ridge(1) completion for bash: source <(ridge completion bash)\n"
        "_ridge() {\n"
        "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words='' options='' files='' texts=''\n"
        "  local command=${COMP_WORDS[1]} commands='help");
    for (size_t i = 0; i < cli_n_commands; i++)
        printf(" %s", cli_commands[i]->name);
    printf("'\n  COMPREPLY=()\n  case $command in\n");
    for (size_t i = 0; i < cli_n_commands; i++) {
        const cli_command *c = cli_commands[i];
        if (!c->words)
            continue;
        printf("    %s) words='", c->name);
        for (int k = 0; c->words[k]; k++)
            printf("%s%s", k ? " " : "", c->words[k]);
        printf("'%s ;;\n", c->words_have_options ? "; command+=\" ${COMP_WORDS[2]}\"" : "");
    }
    printf("    help) words=$commands ;;\n  esac\n  case $command in\n");
    each_command(bash_command);
    printf(
        "  esac\n"
        "  if [ \"$COMP_CWORD\" = 1 ]; then COMPREPLY=($(compgen -W \"$commands\" -- \"$cur\"))\n"
        "  elif [[ $files == *\" $prev \"* ]]; then COMPREPLY=($(compgen -f -- \"$cur\"))\n"
        "  elif [[ $texts == *\" $prev \"* ]]; then :\n"
        "  elif [[ $cur == -* ]]; then COMPREPLY=($(compgen -W \"$options --help\" -- \"$cur\"))\n"
        "  elif [ \"$COMP_CWORD\" = 2 ] && [ -n \"$words\" ]; then COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
        "  else COMPREPLY=($(compgen -f -- \"$cur\"))\n"
        "    [ \"$COMP_CWORD\" -gt 2 ] || COMPREPLY+=($(compgen -W \"$(\"${COMP_WORDS[0]}\" list --names "
        "2>/dev/null)\" -- \"$cur\"))\n"
        "  fi\n"
        "}\n"
        "complete -o filenames -F _ridge ridge\n");
}

/* ---- zsh ---- */

static const char zsh_escaped[] = "[]:\\", zsh_quote[] = "'\\''";

static void zsh_option(void *arg, const cli_option *o)
{
    static const char *const action[] = { "", ":_files", ":" };

    (void)arg;
    printf(" \\\n        '%s%s[", o->kind == CLI_STRINGS ? "*" : "", o->name);
    print_escaped(o->help, zsh_escaped, zsh_quote);
    putchar(']');
    if (o->kind != CLI_FLAG) {
        putchar(':');
        print_escaped(o->value, zsh_escaped, zsh_quote);
        fputs(action[wanted_of(o)], stdout);
    }
    putchar('\'');
}

static void zsh_command(const cli_command *c, const char *word)
{
    printf("    '%s%s%s') _arguments -S", c->name, word ? " " : "", word ? word : "");
    cli_describe(c, word, zsh_option, NULL);
    if (c->words && !word) {
        printf(" \\\n        '1:word:(");
        for (int k = 0; c->words[k]; k++)
            printf("%s%s", k ? " " : "", c->words[k]);
        printf(")'");
    }
    printf(" \\\n        '*:argument:_files' ;;\n");
}

static void print_zsh(void)
{
    printf(
        "#compdef ridge\n# ridge(1) completion for zsh: ridge completion zsh >DIRECTORY-OF-FPATH/_ridge\n_ridge() {\n"
        "  local -a commands=(\n    'help:tell more of a command'\n");
    for (size_t i = 0; i < cli_n_commands; i++) {
        printf("    '%s:", cli_commands[i]->name);
        print_escaped(cli_commands[i]->summary, ":\\", zsh_quote);
        printf("'\n");
    }
    printf("  )\n  if (( CURRENT == 2 )); then _describe command commands; return; fi\n"
           "  local command=$words[2]\n");
    for (size_t i = 0; i < cli_n_commands; i++) {
        const cli_command *c = cli_commands[i];
        if (!c->words_have_options)
            continue;
        printf("  if [[ $command == %s ]]; then\n    if (( CURRENT == 3 )); then compadd", c->name);
        for (int k = 0; c->words[k]; k++)
            printf(" %s", c->words[k]);
        printf("; return; fi\n    command+=\" $words[3]\"; shift words; (( CURRENT-- ))\n  fi\n");
    }
    printf("  shift words; (( CURRENT-- ))\n  case $command in\n    help) _describe command commands ;;\n");
    each_command(zsh_command);
    printf("  esac\n}\nif [ \"$funcstack[1]\" = _ridge ]; then _ridge \"$@\"; else compdef _ridge ridge; fi\n");
}

/* ---- fish ---- */

static const char fish_escaped[] = "\\", fish_quote[] = "\\'";

typedef struct fish_place {
    const cli_command *command;
    const char *word;
} fish_place;

static void fish_option(void *arg, const cli_option *o)
{
    static const char *const value[] = { "", " -r -F", " -x" };
    const fish_place *at = arg;

    printf("complete -c ridge -n '__fish_seen_subcommand_from %s", at->command->name);
    if (at->word)
        printf("; and __fish_seen_subcommand_from %s", at->word);
    printf("' %s %s%s -d '", o->name[1] == '-' ? "-l" : "-s", o->name + 1 + (o->name[1] == '-'), value[wanted_of(o)]);
    print_escaped(o->help, fish_escaped, fish_quote);
    printf("'\n");
}

static void fish_command(const cli_command *c, const char *word)
{
    fish_place at = { c, word };

    cli_describe(c, word, fish_option, &at);
}

static void print_fish(void)
{
    printf("# ridge(1) completion for fish: ridge completion fish >~/.config/fish/completions/ridge.fish\n"
           "complete -c ridge -n __fish_use_subcommand -f -a help -d 'tell more of a command'\n");
    for (size_t i = 0; i < cli_n_commands; i++) {
        const cli_command *c = cli_commands[i];

        printf("complete -c ridge -n __fish_use_subcommand -f -a %s -d '", c->name);
        print_escaped(c->summary, fish_escaped, fish_quote);
        printf("'\ncomplete -c ridge -n '__fish_seen_subcommand_from help' -f -a %s\n", c->name);
        if (strstr(c->arguments, "MODEL"))
            printf("complete -c ridge -n '__fish_seen_subcommand_from %s' -a '(ridge list --names 2>/dev/null)'\n",
                   c->name);
        for (int k = 0; c->words && c->words[k]; k++)
            printf("complete -c ridge -n '__fish_seen_subcommand_from %s' -a %s\n", c->name, c->words[k]);
    }
    each_command(fish_command);
}

static const char *const shells[] = { "bash", "zsh", "fish", NULL };

static int run(int argc, char **argv)
{
    static void (*const print[])(void) = { print_bash, print_zsh, print_fish };
    static cli_args args;

    int status = cli_parse(&args, &cli_completion, NULL, argc, argv);
    if (status >= 0)
        return status;
    for (int i = 0; args.n_positional && shells[i]; i++)
        if (!strcmp(args.positional[0], shells[i])) {
            print[i]();
            return EXIT_DONE;
        }
    return cli_usage("completion: SHELL is one of bash, zsh, fish");
}

const cli_command cli_completion = {
    .name = "completion", .arguments = "SHELL", .summary = "a script that completes options in bash, zsh or fish",
    .run = run, .n_positional = 1, .words = shells,
    .notes = "source <(ridge completion bash)\nridge completion zsh >\"${fpath[1]}/_ridge\"\n"
             "ridge completion fish >~/.config/fish/completions/ridge.fish",
};
