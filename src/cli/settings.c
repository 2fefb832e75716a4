/* settings.c -- see settings.h. */
#include "cli/settings.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"

enum { FILE_CAP = 1 << 20 };

const char *(*cli_environment)(const char *name);
const char *cli_default_config;

void cli_key_of(const cli_option *o, char key[CLI_KEY_ROOM])
{
    const char *name = !strcmp(o->name, "-n") ? "--max-tokens" : o->name;

    key[0] = 0;
    if (name[1] == '-')
        snprintf(key, CLI_KEY_ROOM, "%s", name + 2);
}

void cli_variable_of(const char *key, char variable[CLI_KEY_ROOM + 8])
{
    size_t n = (size_t)snprintf(variable, CLI_KEY_ROOM + 8, "RIDGE_%s", key);

    for (size_t i = 0; i < n; i++)
        variable[i] = variable[i] == '-' ? '_' : (char)toupper((unsigned char)variable[i]);
}

/* ---- the file ---- */

typedef struct reading {
    const char *path;
    int line;
    char where[512], section[CLI_KEY_ROOM], key[CLI_KEY_ROOM];
    cli_setting_taker *take;
    void *arg;
    rg_error *err;
} reading;

static bool wrong(const reading *r, const char *what)
{
    return rg_fail(r->err, RG_E_USAGE, "%s: %s", r->where, what);
}

static char *skip(char *s)
{
    return s + strspn(s, " \t");
}

static bool is_end(const char *s)
{
    return !*s || *s == '#';
}

/* A string in quotes at *at, unescaped where it stands; *at is then behind it.  NULL: it is wrong. */
static char *quoted(const reading *r, char **at)
{
    static const char escapes[] = "\"\\nt", meant[] = "\"\\\n\t";
    char quote = **at, *from = *at + 1, *to = from, *s = from;

    for (; *s && *s != quote; s++, to++) {
        const char *escape = quote == '"' && *s == '\\' && s[1] ? strchr(escapes, s[1]) : NULL;

        if (quote == '"' && *s == '\\' && !escape)
            return wrong(r, "an escape in a string is none of \\\" \\\\ \\n \\t"), NULL;
        *to = escape ? meant[escape - escapes] : *s;
        s += escape != NULL;
    }
    if (!*s)
        return wrong(r, "a string does not end"), NULL;
    *at = s + 1;
    *to = 0;
    return from;
}

/* A value without quotes: up to a comment, or in a list to a comma or the list's end, which *end then holds. */
static char *bare(char **at, const char *ends, char *end)
{
    char *from = *at, *s = from, *last;

    while (*s && !(*s == '#' && (s == from || isblank((unsigned char)s[-1]))) && !strchr(ends, *s))
        s++;
    for (last = s; last > from && isblank((unsigned char)last[-1]);)
        last--;
    *end = *s;
    *at = s;
    *last = 0;
    return from;
}

static bool give(const reading *r, const char *value, bool again)
{
    cli_setting s = { .where = r->where, .section = r->section, .key = r->key, .value = value, .again = again };

    return r->take(r->arg, &s, r->err);
}

/* ["one", two] in one line. */
static bool take_list(const reading *r, char *s)
{
    char end = ',', quote;
    const char *value;

    s = skip(s + 1);
    if (*s == ']')
        return wrong(r, "the list is empty");
    for (bool again = false; end == ','; again = true, s = skip(s)) {
        quote = *s == '"' || *s == '\'' ? *s : 0;
        if (quote) {
            if (!(value = quoted(r, &s)))
                return false;
            s = skip(s);
            end = *s;
        } else {
            value = bare(&s, ",]", &end);
        }
        if ((end != ',' && end != ']') || (!quote && !*value))
            return wrong(r, "a list is [\"one\", \"two\"] in one line");
        if (!give(r, value, again))
            return false;
        s++;
    }
    return is_end(s) || wrong(r, "something stands behind the list");
}

static bool take_value(const reading *r, char *s)
{
    char *value, end;

    if (*s == '[')
        return take_list(r, s);
    if (*s == '"' || *s == '\'') {
        if (!(value = quoted(r, &s)))
            return false;
        if (!is_end(skip(s)))
            return wrong(r, "something stands behind the string");
        return give(r, value, false);
    }
    value = bare(&s, "", &end);
    return *value ? give(r, value, false) : wrong(r, "the value is missing");
}

/* A name of letters, digits and dashes into out; its bytes.  Underscores become dashes.  0: there is none, or
 * it is too long. */
static size_t read_name(const char *s, char out[CLI_KEY_ROOM])
{
    size_t n = 0;

    for (; isalnum((unsigned char)s[n]) || s[n] == '-' || s[n] == '_'; n++) {
        if (n + 1 == CLI_KEY_ROOM)
            return 0;
        out[n] = s[n] == '_' ? '-' : s[n];
    }
    out[n] = 0;
    return n;
}

static bool is_command(const char *section)
{
    for (size_t i = 0; i < cli_n_commands; i++) {
        const cli_command *c = cli_commands[i];
        size_t n = strlen(c->name);

        if (!c->words_have_options && !strcmp(c->name, section))
            return true;
        for (int k = 0; c->words_have_options && c->words[k]; k++)
            if (!strncmp(c->name, section, n) && section[n] == ' ' && !strcmp(c->words[k], section + n + 1))
                return true;
    }
    return false;
}

/* COMMAND], or COMMAND WORD] */
static bool take_section(reading *r, char *s)
{
    char *end = strchr(s, ']');

    if (!end || !is_end(skip(end + 1)))
        return wrong(r, "a section is [COMMAND]");
    snprintf(r->section, sizeof r->section, "%.*s", (int)(end - s < CLI_KEY_ROOM ? end - s : CLI_KEY_ROOM), s);
    return is_command(r->section) ||
           rg_fail(r->err, RG_E_USAGE, "%s: [%s] is not a command of ridge", r->where, r->section);
}

static bool take_line(reading *r, char *s)
{
    size_t n;

    s = skip(s);
    if (is_end(s))
        return true;
    if (*s == '[')
        return take_section(r, s + 1);
    n = read_name(s, r->key);
    s = skip(s + n);
    if (!n || *s != '=')
        return wrong(r, "want KEY = VALUE");
    return take_value(r, skip(s + 1));
}

bool cli_settings_read(const char *path, cli_setting_taker *take, void *arg, rg_error *err)
{
    static char *text; /* options point into it until the program ends */
    reading r = { .path = path, .take = take, .arg = arg, .err = err };
    size_t n;

    rg_free(text);
    text = rg_file_slurp(path, FILE_CAP, &n, err);
    if (!text)
        return false;
    if (memchr(text, 0, n))
        return rg_fail(err, RG_E_USAGE, "%s: is no text file", path);
    for (char *line = text, *next; line; line = next) {
        r.line++;
        next = strchr(line, '\n');
        if (next)
            *next++ = 0;
        line[strcspn(line, "\r")] = 0;
        snprintf(r.where, sizeof r.where, "%s, line %d", path, r.line);
        if (!take_line(&r, line))
            return false;
    }
    return true;
}
