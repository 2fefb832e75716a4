/* serve_models.c -- see serve_models.h. */
#include "cli/serve_models.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "cli/models.h"
#include "library/library.h"

static bool grow(cli_served *v)
{
    const int32_t room = v->room ? 2 * v->room : 16;
    char **names, **paths;

    if (v->n < v->room)
        return true;
    names = rg_array((size_t)room, sizeof *names);
    paths = rg_array((size_t)room, sizeof *paths);
    if (names && paths) {
        memcpy(names, v->names ? v->names : names, (size_t)v->n * sizeof *names);
        memcpy(paths, v->paths ? v->paths : paths, (size_t)v->n * sizeof *paths);
        rg_free(v->names);
        rg_free(v->paths);
        v->names = names;
        v->paths = paths;
        v->room = room;
        return true;
    }
    rg_free(names);
    rg_free(paths);
    return false;
}

static void add(cli_served *v, const char *name, const char *path)
{
    for (int32_t i = 0; i < v->n; i++)
        if (!strcmp(v->paths[i], path))
            return; /* the first one, which lies in the folder too */
    if (v->failed || !grow(v)) {
        v->failed = true;
        return;
    }
    v->names[v->n] = rg_strdup(name);
    v->paths[v->n] = rg_strdup(path);
    v->failed = !v->names[v->n] || !v->paths[v->n];
    v->n++;
}

static bool visit(void *arg, const rg_library_model *f)
{
    cli_served *v = arg;

    add(v, f->name, f->path);
    return !v->failed;
}

bool cli_served_read(cli_served *v, const char *first, const char *first_name, rg_error *err)
{
    if (rg_path_look(v->folder) != RG_PATH_DIR)
        return rg_fail(err, RG_E_INPUT, "--models %s: there is no such folder", v->folder);
    if (first)
        add(v, first_name, first);
    rg_library_each_in(v->folder, visit, v);
    if (v->failed)
        return rg_fail_memory(err, (size_t)v->n * 2 * sizeof *v->names);
    return v->n || rg_fail(err, RG_E_INPUT, "--models %s: there is no model in it: want folders with config.json, or "
                           "GGUF files", v->folder);
}

void cli_served_fini(cli_served *v)
{
    for (int32_t i = 0; i < v->n; i++) {
        rg_free(v->names[i]);
        rg_free(v->paths[i]);
    }
    rg_free(v->names);
    rg_free(v->paths);
}

bool cli_served_look(void *arg, const char *path, rg_model_facts *out)
{
    cli_model m = { 0 };

    (void)arg;
    snprintf(m.found.path, sizeof m.found.path, "%s", path);
    cli_model_look(&m);
    if (!m.problem[0]) {
        *out = (rg_model_facts){ .is_gguf = m.is_gguf, .has_template = m.template_text, .n_parameters = m.parameters,
                                 .context = m.context, .vocab_size = m.vocab_size, .n_abilities = m.n_abilities };
        snprintf(out->family, sizeof out->family, "%s", m.architecture);
        snprintf(out->weight_type, sizeof out->weight_type, "%s", m.type);
        memcpy(out->abilities, m.ability, (size_t)m.n_abilities * sizeof *m.ability);
    }
    cli_model_fini(&m);
    return !m.problem[0];
}
