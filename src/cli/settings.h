/* settings.h -- options that come neither from the command line nor from the defaults: environment variables and a
 * configuration file.
 *
 * A setting's key is the option's long name without dashes ("kv-type"); the variable is RIDGE_ and the same in capitals
 * with underscores (RIDGE_KV_TYPE).  The file is a subset of TOML:
 *
 *     threads = 8                 # for every command that has such an option
 *     [serve]                     # for one command
 *     model = "org/name:Q4_K_M"   # the MODEL argument where none is given
 *     port = 9000
 *     no-page = true
 *     api-key = ["one", "two"]    # options that are repeatable
 *
 * Strings need quotes only where they begin with a quote or a bracket or have a # in them. */
#ifndef RG_CLI_SETTINGS_H
#define RG_CLI_SETTINGS_H

#include "cli/cli.h"

enum { CLI_KEY_ROOM = 64 };

/* An option's key; "": it has none, and is given on the command line only. */
void cli_key_of(const cli_option *o, char key[CLI_KEY_ROOM]);
/* The variable of a key. */
void cli_variable_of(const char *key, char variable[CLI_KEY_ROOM + 8]);

/* One value of a file: those of a list come one by one. */
typedef struct cli_setting {
    const char *where;   /* "FILE, line N" */
    const char *section; /* the command it is for; "": all */
    const char *key;     /* with dashes, as in the help */
    const char *value;   /* lives until the program ends */
    bool again;          /* not the first value of a list */
} cli_setting;

/* Hand each to take, in order.  False: take returned false, or the file is wrong; *err says which line. */
typedef bool cli_setting_taker(void *arg, const cli_setting *s, rg_error *err);
bool cli_settings_read(const char *path, cli_setting_taker *take, void *arg, rg_error *err);

/* Set what the command line has not: from the environment, and from the file that --config or RIDGE_CONFIG names or the
 * default one. */
bool cli_read_sources(cli_args *a, rg_error *err);

/* The environment, from main; NULL: there is none. */
extern const char *(*cli_environment)(const char *name);

/* The configuration file where none is named ($XDG_CONFIG_HOME/ridge/config), from main; NULL: none. */
extern const char *cli_default_config;

#endif
