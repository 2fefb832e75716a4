/* find.c -- the model that a name means, wherever people have it. */
#include <stdio.h>

#include "cli/models.h"

static bool fetching;

void cli_fetch_missing(bool fetch)
{
    fetching = fetch;
}

bool cli_find(const char *given, rg_library_model *out, rg_error *err)
{
    const char *name = given ? given : "tales-7m";
    rg_places places = cli_places;
    rg_pulled pulled;
    rg_error why = { 0 };

    if (!given)
        places = (rg_places){ .models = cli_places.models };
    if (rg_library_find(&places, name, out, &why))
        return true;
    if (!fetching || !cli_fetch_model(name, false, &pulled, err))
        return fetching ? false : err ? (*err = why, false) : false;
    *out = pulled.found;
    return true;
}

bool cli_find_model(const char *given, char *out, size_t room, rg_error *err)
{
    rg_library_model f;

    if (!cli_find(given, &f, err))
        return false;
    return (size_t)snprintf(out, room, "%s", f.path) < room ||
           rg_fail(err, RG_E_INPUT, "%.200s...: the path is longer than %zu bytes", f.path, room - 1);
}
