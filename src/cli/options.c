/* options.c -- see options.h. */
#include "cli/options.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"

static cli_common common;
static const char *config; /* --config */

const cli_option cli_common_options[] = {
    { "--threads", CLI_INT, &common.threads, "N", "threads (default: physical cores within the cgroup's quota)", 0,
      1024 },
    { "--ranks", CLI_INT, &common.ranks, "N",
      "processes that share the model, each with --threads threads (default: 1, this one)", 1, 64 },
    { "--pin", CLI_FLAG, &common.pin, NULL, "keep each thread on a core" },
    { "--numa-copies", CLI_FLAG, &common.numa_copies, NULL, "packed weights once on each NUMA node; pins threads" },
    { "--isa", CLI_STRING, &common.isa, "NAME",
      "auto, ref (the scalar definition), or one that `ridge machine` lists" },
    { "--recipe", CLI_STRING, &common.recipe, "NAME",
      "fast, llm.int8 (fast, outliers apart), round16 (fast, F16 weights as BF16) or exact arithmetic" },
    { "--json", CLI_FLAG, &common.json, NULL, "one JSON document on standard output, nothing else there" },
    { "--quiet", CLI_FLAG, &common.quiet, NULL, "no progress and no closing figures" },
    { "--config", CLI_STRING, &config, "FILE", "options from this file (none: from no file; docs/RUN.md)" },
    { NULL },
};

void cli_common_reset(const cli_command *command)
{
    common = (cli_common){ .isa = "auto", .recipe = command->recipe ? command->recipe : "fast" };
    config = NULL;
}

cli_common cli_common_now(void)
{
    return common;
}

const char *cli_config_given(void)
{
    return config;
}

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

/* ---- values ---- */

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

bool cli_parse_flag(const char *s, bool *out)
{
    static const char *const words[][2] = { { "false", "true" }, { "0", "1" }, { "off", "on" }, { "no", "yes" } };

    *out = true;
    for (size_t i = 0; s && i < RG_LEN(words); i++)
        for (int k = 0; k < 2; k++)
            if (!strcasecmp(s, words[i][k]))
                return *out = k, true;
    return !s;
}

static bool set_option(const cli_option *o, const char *value)
{
    cli_strings *list = o->to;
    double number;

    switch (o->kind) {
    case CLI_FLAG: return cli_parse_flag(value, o->to);
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


/* ---- which one ---- */

static const cli_option *find_in(const cli_option *o, const char *name, size_t n)
{
    for (; o && o->name; o++)
        if (strlen(o->name) == n && !memcmp(o->name, name, n))
            return o;
    return NULL;
}

const cli_option *cli_option_find(const cli_args *a, const char *name, size_t n)
{
    const cli_option *o = find_in(a->options, name, n);

    return o ? o : find_in(cli_common_options, name, n);
}

void cli_option_each(const cli_option *own, cli_option_visitor *visit, void *arg)
{
    for (const cli_option *o = own; o && o->name; o++)
        visit(arg, o);
    for (const cli_option *o = cli_common_options; o->name; o++)
        visit(arg, o);
}

/* Where it says which source has set o. */
static unsigned char *source_of(cli_args *a, const cli_option *o)
{
    bool is_common = o >= cli_common_options && o < cli_common_options + RG_LEN(cli_common_options);
    size_t i = is_common ? (size_t)(o - cli_common_options) : RG_LEN(cli_common_options) + (size_t)(o - a->options);

    RG_ASSERT(i < CLI_MOST_OPTIONS);
    return &a->source[i];
}

bool cli_takes_model(const cli_command *c)
{
    return !strncmp(c->arguments, "MODEL", 5) || !strncmp(c->arguments, "SRC", 3) || cli_model_is_optional(c);
}

bool cli_model_is_optional(const cli_command *c)
{
    return !strncmp(c->arguments, "[MODEL", 6);
}

/* ---- setting it ---- */

bool cli_option_set(cli_args *a, const cli_option *o, const cli_given *g, rg_error *err)
{
    unsigned char *source = source_of(a, o);
    cli_strings *list = o->to;
    const char *before = o->kind == CLI_STRING ? *(const char **)o->to : NULL;
    bool is_list = o->kind == CLI_STRINGS, in_file = g->source == CLI_FILE || g->source == CLI_FILE_SECTION;

    if (*source > g->source)
        return true;
    if (*source == g->source && in_file && !(is_list && g->again))
        return rg_fail(err, RG_E_USAGE, "%s: %s is set twice", g->where, o->name);
    if (g->same && *source == g->source && before && strcasecmp(before, g->value))
        return rg_fail(err, RG_E_USAGE, "%s: %s is one setting here: '%.40s' and '%.40s' cannot both be", g->where,
                       o->name, before, g->value);
    if (is_list && *source != g->source)
        list->n = 0;
    if (!set_option(o, g->value)) {
        if (o->kind == CLI_FLAG)
            return rg_fail(err, RG_E_USAGE, "%s: %s takes no value, or true or false, not '%.40s'", g->where, o->name,
                           g->value);
        if (o->min != 0 || o->max != 0)
            return rg_fail(err, RG_E_USAGE, "%s: %s takes a number from %.10g to %.10g, not '%.40s'", g->where, o->name,
                           o->min, o->max, g->value);
        return rg_fail(err, RG_E_USAGE, "%s: %s cannot take '%.40s' (wanted: %s)", g->where, o->name, g->value,
                       o->value);
    }
    *source = (unsigned char)g->source;
    if (o->given)
        *o->given = true;
    return true;
}

void cli_tell_ignored(const char *name, const char *why)
{
    if (!common.quiet)
        fprintf(stderr, "ridge: %s has no effect: %s\n", name, why);
}
