/* args.c -- options as data: parsing them, and printing help from the same tables. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cli/cli.h"

static cli_common common;

static const cli_option common_options[] = {
    { "--threads", CLI_INT, &common.threads, "N", "threads (default: physical cores within the cgroup's quota)", 0,
      1024 },
    { "--pin", CLI_FLAG, &common.pin, NULL, "keep each thread on a core" },
    { "--numa-copies", CLI_FLAG, &common.numa_copies, NULL, "packed weights once on each NUMA node; pins threads" },
    { "--isa", CLI_STRING, &common.isa, "NAME",
      "auto, ref (the scalar definition), or one that `ridge machine` lists" },
    { "--recipe", CLI_STRING, &common.recipe, "NAME", "fast, llm.int8 (fast, outliers apart) or exact arithmetic" },
    { "--json", CLI_FLAG, &common.json, NULL, "one JSON document on standard output, nothing else there" },
    { "--quiet", CLI_FLAG, &common.quiet, NULL, "no progress and no closing figures" },
    { NULL },
};

int32_t cli_ints_most(const cli_ints *v, int32_t least)
{
    for (size_t i = 0; i < v->n; i++)
        least = v->item[i] > least ? v->item[i] : least;
    return least;
}

bool cli_ints_settle(cli_ints *v, const int32_t *values, size_t n, const cli_ints_rule *rule, rg_error *err)
{
    if (!v->given) {
        v->item = rg_array(n, sizeof *v->item);
        if (!v->item)
            return rg_fail_memory(err, n * sizeof *v->item);
        memcpy(v->item, values, n * sizeof *values);
        v->n = n;
    }
    bool ok = v->n >= 1 && v->n <= rule->most;
    for (size_t i = 0; ok && i < v->n; i++)
        ok = v->item[i] >= rule->min && v->item[i] <= rule->max;
    return ok || rg_fail(err, RG_E_USAGE, "%s: %s takes 1 to %zu numbers from %d to %d", rule->command, rule->option,
                         rule->most, rule->min, rule->max);
}

void cli_ints_fini(cli_ints *v)
{
    rg_free(v->item);
    v->item = NULL;
    v->n = 0;
}

bool cli_finished(rg_finish finish, rg_error *err)
{
    if (finish == RG_FINISH_NO_WEIGHTS)
        return rg_fail(err, RG_E_IO, "experts that the answer needs could not be read");
    if (finish != RG_FINISH_NOT_FINITE)
        return true;
    return rg_fail(err, RG_E_INPUT, "the model computed NaN or infinity: its weights are damaged, or too large for the "
                   "recipe (--recipe exact may help)");
}

int cli_fail(const rg_error *err)
{
    cli_flush(NULL);
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
    for (const cli_option *o = common_options; o->name; o++)
        print_option(o);
    if (a->command->notes)
        printf("\n%s\n", a->command->notes);
}

static bool parse_number(const char *s, double *out)
{
    char *end;

    errno = 0;
    *out = strtod(s, &end);
    return end != s && !*end && !errno && isfinite(*out);
}

static bool parse_bytes(const char *s, size_t *out)
{
    static const char units[] = "KMGT";
    char *end;

    errno = 0;
    unsigned long long v = strtoull(s, &end, 10);
    if (end == s || errno || *s == '-')
        return false;
    const char *unit = *end ? strchr(units, *end) : NULL;
    int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    if (*end && (!unit || end[1]))
        return false;
    if (v > SIZE_MAX >> shift)
        return false;
    *out = (size_t)v << shift;
    return true;
}

static bool parse_ints(const char *s, cli_ints *out)
{
    size_t room = 1;

    for (const char *p = s; *p; p++)
        room += *p == ',';
    cli_ints_fini(out);
    out->item = rg_array(room, sizeof *out->item);
    out->given = true;
    if (!out->item)
        return false;
    while (*s) {
        char *end;
        errno = 0;
        long long v = strtoll(s, &end, 10);
        if (end == s || errno || v < INT32_MIN || v > INT32_MAX || (*end && *end != ','))
            return false;
        out->item[out->n++] = (int32_t)v;
        s = *end ? end + 1 : end;
    }
    return true;
}

static bool parse_whole(const cli_option *o, const char *s)
{
    char *end;

    errno = 0;
    if (o->kind == CLI_U64) {
        unsigned long long v = strtoull(s, &end, 0);
        if (end == s || *end || errno || *s == '-')
            return false;
        *(uint64_t *)o->to = v;
        return true;
    }
    long long v = strtoll(s, &end, 10);
    bool ranged = o->min != 0 || o->max != 0;
    if (end == s || *end || errno || v < INT32_MIN || v > INT32_MAX ||
        (ranged && ((double)v < o->min || (double)v > o->max)))
        return false;
    *(int32_t *)o->to = (int32_t)v;
    return true;
}

static bool set_option(const cli_option *o, const char *value)
{
    cli_strings *list = o->to;
    double number;

    switch (o->kind) {
    case CLI_FLAG: *(bool *)o->to = true; return true;
    case CLI_INT:
    case CLI_U64: return parse_whole(o, value);
    case CLI_FLOAT:
        if (!parse_number(value, &number) || ((o->min != 0 || o->max != 0) && (number < o->min || number > o->max)))
            return false;
        *(float *)o->to = (float)number;
        return true;
    case CLI_BYTES: return parse_bytes(value, o->to);
    case CLI_STRING: *(const char **)o->to = value; return true;
    case CLI_STRINGS:
        if (list->n == (int)RG_LEN(list->item))
            return false;
        list->item[list->n++] = value;
        return true;
    case CLI_INTS: return parse_ints(value, o->to);
    }
    return false;
}

static const cli_option *find_option(const cli_option *o, const char *arg, size_t n)
{
    for (; o && o->name; o++)
        if (strlen(o->name) == n && !memcmp(o->name, arg, n))
            return o;
    return NULL;
}

/* One option at argv[*i]; returns EXIT_DONE, or EXIT_USAGE having said why. */
static int parse_option(cli_args *a, int argc, char **argv, int *i)
{
    const char *arg = argv[*i], *value = NULL, *equals = arg[1] == '-' ? strchr(arg, '=') : NULL;
    size_t n = equals ? (size_t)(equals - arg) : strlen(arg);
    const cli_option *o = find_option(a->options, arg, n);

    if (!o)
        o = find_option(common_options, arg, n);
    if (!o)
        return cli_usage("%s: no option '%.*s'; see `ridge %s --help`", a->command->name, (int)n, arg,
                         a->command->name);
    if (o->kind == CLI_FLAG && equals)
        return cli_usage("%s: %s takes no value", a->command->name, o->name);
    if (o->kind != CLI_FLAG) {
        if (!equals && *i + 1 >= argc)
            return cli_usage("%s: %s needs a value (%s)", a->command->name, o->name, o->value);
        value = equals ? equals + 1 : argv[++*i];
    }
    if (!set_option(o, value)) {
        if (o->min != 0 || o->max != 0)
            return cli_usage("%s: %s takes a number from %.10g to %.10g, not '%.40s'", a->command->name, o->name,
                             o->min, o->max, value);
        return cli_usage("%s: %s cannot take '%.40s' (wanted: %s)", a->command->name, o->name, value, o->value);
    }
    if (o->given)
        *o->given = true;
    return EXIT_DONE;
}

int cli_parse(cli_args *a, const cli_command *command, const cli_option *options, int argc, char **argv)
{
    bool only_positional = false;

    *a = (cli_args){ .command = command, .options = options };
    common = (cli_common){ .isa = "auto", .recipe = command->recipe ? command->recipe : "fast" };
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        if (!only_positional && !strcmp(arg, "--help")) {
            print_help(a);
            return EXIT_DONE;
        }
        if (!only_positional && !strcmp(arg, "--")) {
            only_positional = true;
        } else if (!only_positional && arg[0] == '-' && arg[1]) {
            if (parse_option(a, argc, argv, &i) != EXIT_DONE)
                return EXIT_USAGE;
        } else if (a->n_positional < command->n_positional) {
            a->positional[a->n_positional++] = arg;
        } else {
            return cli_usage("%s: '%.60s' is one argument too many; see `ridge %s --help`", a->command->name, arg,
                             a->command->name);
        }
    }
    a->common = common;
    return -1;
}
