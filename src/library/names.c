/* names.c -- names of folders' contents, and what the name of a GGUF file says. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "base/mem.h"
#include "library/internal.h"

enum { MOST_NAMES = 100000 };

/* ---- lists ---- */

bool rg_names_add(rg_names *v, const char *name)
{
    char *copy = rg_strdup(name);

    if (copy && v->n == v->room && v->room < MOST_NAMES) {
        int room = v->room ? 2 * v->room : 64;
        char **more = rg_resize_array(v->item, (size_t)room, sizeof *more);

        if (more) {
            v->item = more;
            v->room = room;
        }
    }
    if (!copy || v->n == v->room) {
        rg_free(copy);
        return v->failed = true, false;
    }
    v->item[v->n++] = copy;
    return true;
}

static bool add_name(void *arg, const char *name)
{
    return rg_names_add(arg, name);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void rg_names_of(rg_names *v, const char *folder)
{
    *v = (rg_names){ 0 };
    if (rg_path_look(folder) == RG_PATH_DIR && !rg_dir_list(folder, add_name, v, NULL))
        v->failed = true;
    if (v->n)
        qsort(v->item, (size_t)v->n, sizeof *v->item, by_name);
}

void rg_names_fini(rg_names *v)
{
    for (int i = 0; i < v->n; i++)
        rg_free(v->item[i]);
    rg_free(v->item);
    *v = (rg_names){ 0 };
}

/* ---- GGUF files ---- */

bool rg_ends_in(const char *s, const char *end)
{
    size_t n = strlen(s), n_end = strlen(end);

    return n > n_end && !strcmp(s + n - n_end, end);
}

static const char *base_name(const char *file)
{
    const char *slash = strrchr(file, '/');

    return slash ? slash + 1 : file;
}

/* The number of a split file's part, and the bytes of "-00001-of-00003.gguf"; 0: it is no part. */
static unsigned part_of(const char *file, size_t *n_tail)
{
    const size_t n = strlen(file), tail = strlen("-00001-of-00001.gguf");
    unsigned no, of;
    int end = 0;

    *n_tail = strlen(".gguf");
    if (n <= tail || sscanf(file + n - tail, "-%5u-of-%5u.gguf%n", &no, &of, &end) != 2 || end != (int)tail)
        return 0;
    *n_tail = tail;
    return no;
}

bool rg_gguf_is_model(const char *file)
{
    size_t tail;

    return rg_ends_in(file, ".gguf") && strncasecmp(base_name(file), "mmproj", 6) != 0 && part_of(file, &tail) <= 1;
}

/* A type stands at s: its bytes, else 0. */
static size_t type_at(const char *s)
{
    static const char *const begins[] = { "Q#", "IQ#", "TQ#", "F16", "F32", "BF16", "FP16", "MXFP4", "NVFP4" };
    size_t n = 0;

    for (size_t i = 0; i < RG_LEN(begins) && !n; i++) {
        size_t k = 0;

        for (const char *b = begins[i]; *b; b++, k++)
            if (*b == '#' ? !isdigit((unsigned char)s[k]) : toupper((unsigned char)s[k]) != *b)
                break;
        n = begins[i][k] ? 0 : k;
    }
    while (n && (isalnum((unsigned char)s[n]) || s[n] == '_'))
        n++;
    return n;
}

static bool is_between(char c)
{
    return c == '-' || c == '.' || c == '_' || c == '/';
}

void rg_gguf_quant(const char *file, char quant[32])
{
    const char *name = base_name(file);
    size_t tail, n;

    quant[0] = 0;
    part_of(name, &tail);
    for (size_t i = 0; i + tail < strlen(name); i++) {
        n = i == 0 || is_between(name[i - 1]) ? type_at(name + i) : 0;
        if (n && n < 28 && i + n + tail <= strlen(name)) {
            const size_t front = i >= 3 && !strncasecmp(name + i - 3, "UD-", 3) ? 3 : 0; /* a maker's own mixture */

            snprintf(quant, 32, "%.*s", (int)(n + front), name + i - front);
            i += n;
        }
    }
}

bool rg_gguf_is_of(const char *file, const char *quant)
{
    const char *name = base_name(file);
    size_t n = strlen(quant), tail;

    if (!strcmp(name, quant) || !strcmp(file, quant))
        return true;
    part_of(name, &tail);
    for (const char *s = name; s + n + tail <= name + strlen(name); s++)
        if ((s == name || is_between(s[-1])) && !strncasecmp(s, quant, n) &&
            (s[n] == '-' || s[n] == '.' || s + n + tail == name + strlen(name)))
            return true;
    return false;
}

/* "Q4_K_M, Q8_0": the types, or the names of files without one. */
static void list_types(const rg_names *files, char *out, size_t room)
{
    size_t n = 0;

    out[0] = 0;
    for (int i = 0; i < files->n && n + 64 < room; i++) {
        char quant[32];

        rg_gguf_quant(files->item[i], quant);
        n += (size_t)snprintf(out + n, room - n, "%s%.60s", i ? ", " : "", *quant ? quant : base_name(files->item[i]));
    }
}

int rg_choose_gguf(const rg_names *files, const char *quant, const char *who, rg_error *err)
{
    char types[400];
    int best = -1;

    if (!quant && files->n == 1)
        return 0;
    for (int i = 0; i < files->n; i++) /* UD-Q4_K_M has more in its name than Q4_K_M */
        if (rg_gguf_is_of(files->item[i], quant ? quant : "q4_k_m") &&
            (best < 0 || strlen(files->item[i]) < strlen(files->item[best])))
            best = i;
    if (best >= 0)
        return best;
    list_types(files, types, sizeof types);
    if (quant)
        rg_fail(err, RG_E_INPUT, "%s: no GGUF file of type %.60s; there %s %s", who, quant,
                files->n == 1 ? "is" : "are", files->n ? types : "none");
    else
        rg_fail(err, RG_E_INPUT, "%s: %d models as GGUF (%s): say which, as in %s:TYPE", who, files->n, types, who);
    return -1;
}
