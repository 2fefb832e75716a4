/* backend.c -- the list of back ends that this machine has. */
#include "ops/backend.h"

#include <ctype.h>
#include <string.h>

/* A folder's i-th back end, best last; NULL past the end.  And true if the folder has a back end of this name, which
 * this machine may lack. */
#define BACKENDS(folder)                                                                                               \
    const rg_backend *rg_##folder##_backend(int i);                                                                    \
    bool rg_##folder##_backend_is_known(const char *name);
#include "ops/backends.def"
#undef BACKENDS

static const struct {
    const rg_backend *(*nth)(int i);
    bool (*is_known)(const char *name);
} folders[] = {
#define BACKENDS(folder) { rg_##folder##_backend, rg_##folder##_backend_is_known },
#include "ops/backends.def"
#undef BACKENDS
};

const rg_backend *rg_backend_nth(int i)
{
    for (size_t f = 0; i >= 0 && f < RG_LEN(folders); f++) {
        int n = 0;

        while (folders[f].nth(n))
            n++;
        if (i < n)
            return folders[f].nth(i);
        i -= n;
    }
    return NULL;
}

void rg_placed_free(rg_placed *w)
{
    if (w)
        w->owner->weight_free(w);
}

const rg_backend *rg_backend_find(const char *given, rg_error *err)
{
    const rg_backend *b = NULL;
    char name[32]; /* in small letters */
    size_t n = strnlen(given, sizeof name - 1);

    for (size_t i = 0; i < n; i++)
        name[i] = (char)tolower((unsigned char)given[i]);
    name[n] = 0;
    const bool best = !strcmp(name, "auto");
    char list[256] = "auto";
    bool known = false;

    for (int i = 0; rg_backend_nth(i); i++) {
        if (best ? !rg_backend_nth(i)->by_name : !strcmp(name, rg_backend_nth(i)->name))
            b = rg_backend_nth(i);
        strncat(list, ", ", sizeof list - strlen(list) - 1);
        strncat(list, rg_backend_nth(i)->name, sizeof list - strlen(list) - 1);
    }
    for (size_t f = 0; f < RG_LEN(folders); f++)
        known |= folders[f].is_known(name);
    if (!b && known)
        rg_fail(err, RG_E_UNSUPPORTED, "this machine does not have the instruction set '%s'", name);
    else if (!b)
        rg_fail(err, RG_E_USAGE, "instruction set '%s' is not one that this machine has: %s", name, list);
    return b;
}
