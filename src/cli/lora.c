/* lora.c -- see lora.h. */
#include "cli/lora.h"

#include <stdio.h>
#include <string.h>

/* The last part of a path. */
static const char *last_part(const char *path, int *n)
{
    size_t end = strlen(path), from;

    while (end > 1 && path[end - 1] == '/')
        end--;
    for (from = end; from > 0 && path[from - 1] != '/'; from--)
        ;
    *n = (int)(end - from);
    return path + from;
}

static bool read_one(cli_loras *v, const char *given, rg_error *err)
{
    const char *equals = strchr(given, '='), *slash = strchr(given, '/'), *name = given;
    bool named = equals && (!slash || equals < slash);
    const char *path = named ? equals + 1 : given;
    char *own = v->name[v->n];
    int n = (int)(equals - given);

    if (!named)
        name = last_part(given, &n);
    if (!n || !*path)
        return rg_fail(err, RG_E_USAGE, "--lora '%.200s' is not NAME=PATH", given);
    if (n >= (int)sizeof v->name[0])
        return rg_fail(err, RG_E_USAGE, "--lora: the name '%.*s' is longer than %d bytes", n, name,
                       (int)sizeof v->name[0] - 1);
    snprintf(own, sizeof v->name[0], "%.*s", n, name);
    v->item[v->n++] = (rg_adapter_option){ own, path };
    return true;
}

bool cli_loras_read(cli_loras *v, rg_error *err)
{
    for (v->n = 0; v->n < v->given.n;)
        if (!read_one(v, v->given.item[v->n], err))
            return false;
    return true;
}

bool cli_loras_read_one(cli_loras *v, rg_error *err)
{
    return cli_loras_read(v, err) &&
           (v->n <= 1 ||
            rg_fail(err, RG_E_USAGE, "--lora is given %d times: all that is computed here has the same one", v->n));
}
