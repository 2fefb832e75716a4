/* templates.c -- see templates.h. */
#include "text/templates.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "ckpt/json.h"

#define KEY  "tokenizer.chat_template"
#define MORE "additional_chat_templates"
#define END  ".jinja"

enum { FILE_CAP = 1 << 26, PATH_ROOM = 4096 };

char *rg_text_place_read(const rg_text_place *p, const char *name, size_t *n, rg_error *err)
{
    char path[PATH_ROOM];

    *err = (rg_error){ 0 };
    if (p->ckpt)
        return rg_checkpoint_side_file(p->ckpt, name, n, err);
    if (!rg_path_join(path, sizeof path, p->dir, name) || rg_path_look(path) == RG_PATH_NONE)
        return NULL;
    return rg_file_slurp(path, FILE_CAP, n, err);
}

void rg_templates_fini(rg_templates *t)
{
    for (int i = 0; i < t->n; i++) {
        rg_free(t->all[i].name);
        rg_free(t->all[i].source);
        rg_free(t->all[i].where);
    }
    t->n = 0;
}

const rg_template *rg_templates_find(const rg_templates *t, const char *name)
{
    for (int i = 0; i < t->n; i++)
        if (!strcmp(t->all[i].name, name))
            return &t->all[i];
    return NULL;
}

/* One more, copied; of two with the same name the first stays.  text.data NULL: it is malformed, as problem says. */
static bool add(rg_templates *t, const char *name, rg_string text, const char *where, const char *problem,
                rg_error *err)
{
    rg_template *one = &t->all[t->n];

    if (rg_templates_find(t, name))
        return true;
    if (t->n == RG_MAX_TEMPLATES)
        return rg_fail(err, RG_E_INPUT, "%s: more than %d chat templates", where, RG_MAX_TEMPLATES);
    *one = (rg_template){ .name = rg_strdup(name), .source = text.data ? rg_strndup(text.data, text.n) : NULL,
                          .n = text.n, .where = rg_strdup(where), .problem = problem };
    t->n++;
    return (one->name && one->where && (one->source || !text.data)) || rg_fail_memory(err, text.n);
}

static bool add_json(rg_templates *t, const char *name, const json_t *v, const char *where, rg_error *err)
{
    rg_string text = { json_string_value(v), json_string_length(v) };

    return add(t, name, text, where, text.data ? NULL : "it is not a text", err);
}

/* ---- a folder ---- */

/* A walk through a folder of templates. */
typedef struct walk {
    rg_templates *t;
    const rg_text_place *place;
    rg_error *err;
    bool failed;
} walk;

static bool add_file(void *arg, const char *file)
{
    walk *to = arg;
    char path[PATH_ROOM], name[256];
    size_t n = 0, length = strlen(file);
    rg_error why;

    if (length <= strlen(END) || length >= sizeof name || strcmp(file + length - strlen(END), END) != 0)
        return true;
    snprintf(path, sizeof path, MORE "/%s", file);
    snprintf(name, sizeof name, "%.*s", (int)(length - strlen(END)), file);
    char *text = rg_text_place_read(to->place, path, &n, &why);
    if (!text && why.code != RG_OK && to->err)
        *to->err = why;
    to->failed = text ? !add(to->t, name, (rg_string){ text, n }, path, NULL, to->err) : why.code != RG_OK;
    rg_free(text);
    return !to->failed;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const rg_template *)a)->name, ((const rg_template *)b)->name);
}

static bool read_files(rg_templates *t, const rg_text_place *p, rg_error *err)
{
    const char *dir = p->ckpt ? rg_checkpoint_dir(p->ckpt) : p->dir;
    char path[PATH_ROOM];
    rg_error why;
    size_t n = 0;
    char *text = rg_text_place_read(p, "chat_template.jinja", &n, &why);

    if (!text && why.code != RG_OK) {
        if (err)
            *err = why;
        return false;
    }
    bool ok = !text || add(t, "default", (rg_string){ text, n }, "chat_template.jinja", NULL, err);
    rg_free(text);
    if (!ok || !dir || !rg_path_join(path, sizeof path, dir, MORE) || rg_path_look(path) != RG_PATH_DIR)
        return ok;
    walk w = { .t = t, .place = p, .err = err };
    ok = rg_dir_list(path, add_file, &w, err) && !w.failed;
    if (ok) /* folders have no order */
        qsort(t->all, (size_t)t->n, sizeof *t->all, by_name);
    return ok;
}

/* The chat_template of a JSON file. */
static bool add_member(rg_templates *t, const char *file, const json_t *v, rg_error *err)
{
    const char *key;
    json_t *one;

    if (!v || json_is_null(v))
        return true;
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *entry = json_array_get(v, i);
        const char *name = json_string_value(json_object_get(entry, "name"));
        if (!add_json(t, name ? name : "default", name ? json_object_get(entry, "template") : NULL, file, err))
            return false;
    }
    json_object_foreach((json_t *)(uintptr_t)v, key, one)
        if (!add_json(t, key, one, file, err))
            return false;
    return json_is_array(v) || json_object_size(v) || add_json(t, "default", v, file, err);
}

static bool read_member(rg_templates *t, const rg_text_place *p, const char *file, rg_error *err)
{
    rg_error why;
    size_t n = 0;
    char *text = rg_text_place_read(p, file, &n, &why);
    json_t *v = text ? rg_json_parse(file, text, n, err) : NULL;
    bool ok = text ? v && (json_is_object(v) || rg_fail(err, RG_E_INPUT, "%s is not a JSON object", file))
                   : why.code == RG_OK;

    if (!text && !ok && err)
        *err = why;
    ok = ok && (!v || add_member(t, file, json_object_get(v, "chat_template"), err));
    json_decref(v);
    rg_free(text);
    return ok;
}

/* ---- GGUF ---- */

typedef struct keys {
    rg_templates *t;
    const rg_checkpoint *ckpt;
    rg_error *err;
    bool failed;
} keys;

static void add_key(void *arg, const char *key, rg_meta_type type, bool understood)
{
    keys *k = arg;
    const char *name = key + strlen(KEY), *text = NULL;

    (void)understood;
    if (k->failed || strncmp(key, KEY, strlen(KEY)) != 0 || (*name && *name != '.'))
        return;
    name = *name ? name + 1 : "default";
    if (type == RG_META_STRING)
        k->failed = rg_meta_string(k->ckpt, key, &text, k->err) < 0;
    k->failed = k->failed || !add(k->t, name, (rg_string){ text, text ? strlen(text) : 0 }, key,
                                  text ? NULL : "it is not a text", k->err);
}

bool rg_templates_read(rg_templates *t, const rg_text_place *p, rg_error *err)
{
    static const char *const files[] = { "tokenizer_config.json", "chat_template.json" };

    t->n = 0;
    if (p->ckpt && rg_checkpoint_kind(p->ckpt) == RG_CKPT_GGUF) {
        keys k = { .t = t, .ckpt = p->ckpt, .err = err };
        rg_meta_each(p->ckpt, add_key, &k);
        rg_meta_understand(p->ckpt, "tokenizer.chat_templates");
        return !k.failed;
    }
    if (!read_files(t, p, err))
        return false;
    for (size_t i = 0; i < RG_LEN(files) && !t->n; i++)
        if (!read_member(t, p, files[i], err))
            return false;
    return true;
}
