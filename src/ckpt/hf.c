/* hf.c -- the reader of a Hugging Face directory: its JSON files flattened into metadata, its weights in one
 * safetensors file or in the shards that an index names.
 *
 * config.json's keys stand as they are, but for those of a language model among other parts (checkpoint.h); those of
 * generation_config.json under "generation.", those of tokenizer_config.json under "tokenizer_config.".  An array of
 * like scalars is one entry; of unlike things, or of arrays and objects, an entry for each. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "ckpt/internal.h"
#include "ckpt/json.h"
#include "ckpt/composed.h"

enum { PATH_ROOM = 4096, JSON_CAP = 1 << 26 };

/* Memory that a metadata file may take, a multiple of its size plus some bytes: first for its JSON, then for the
 * entries made of it.  Together at most RG_JSON_TIMES and RG_JSON_SPARE. */
enum { TREE_TIMES = 6, TREE_SPARE = 4 << 20, ENTRY_TIMES = 10, ENTRY_SPARE = 11 << 20, ENTRY_BYTES = 256 };

/* ---- JSON to entries ---- */

/* A number that JSON has no form for: as Python's json writes it, or as transformers 5 does, {"__float__":
 * "Infinity"}. */
static bool not_finite(const json_t *v, double *out)
{
    static const struct {
        const char *name;
        double value;
    } names[] = { { "Infinity", (double)INFINITY }, { "-Infinity", -(double)INFINITY }, { "NaN", (double)NAN } };
    const char *s = json_object_size(v) == 1 ? json_string_value(json_object_get(v, "__float__")) : NULL;

    for (size_t i = 0; s && i < RG_LEN(names); i++) {
        if (!strcmp(s, names[i].name)) {
            *out = names[i].value;
            return true;
        }
    }
    return rg_json_not_finite(v, out);
}

/* What the elements of an array have in common, as GGUF types them; GGUF_ARRAY: nothing. */
static uint32_t common_type(const json_t *array)
{
    uint32_t type = GGUF_ARRAY;
    double x;

    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *v = json_array_get(array, i);
        bool real = json_is_real(v) || not_finite(v, &x);
        uint32_t one = real                 ? GGUF_F64
                       : json_is_integer(v) ? GGUF_I64
                       : json_is_boolean(v) ? GGUF_BOOL
                       : json_is_string(v)  ? GGUF_STRING
                                            : GGUF_ARRAY;
        if (one == GGUF_ARRAY)
            return GGUF_ARRAY;
        if (i && one != type && !((one == GGUF_F64 && type == GGUF_I64) || (one == GGUF_I64 && type == GGUF_F64)))
            return GGUF_ARRAY;
        type = i && type == GGUF_F64 ? GGUF_F64 : one;
    }
    return json_array_size(array) ? type : GGUF_I64;
}

static double number(const json_t *v)
{
    double x;

    return not_finite(v, &x) ? x : json_number_value(v);
}

static bool fill_strings(rg_arena *a, rg_entry *e, const json_t *array, rg_error *err)
{
    rg_string *s = rg_arena_get(a, e->n * sizeof *s, err);

    if (!s)
        return false;
    e->strings = s;
    for (size_t i = 0; i < e->n; i++) {
        const json_t *v = json_array_get(array, i);
        s[i].n = json_string_length(v);
        s[i].data = rg_arena_text(a, json_string_value(v), s[i].n, err);
        if (!s[i].data)
            return false;
    }
    return true;
}

static bool fill_array(rg_arena *a, rg_entry *e, const json_t *array, rg_error *err)
{
    union {
        int64_t *i;
        double *f;
        uint8_t *b;
        void *any;
    } raw;

    if (e->gguf_type == GGUF_STRING)
        return fill_strings(a, e, array, err);
    raw.any = rg_arena_get(a, e->n * 8, err);
    if (!raw.any)
        return false;
    e->raw = raw.any;
    for (size_t i = 0; i < e->n; i++) {
        const json_t *v = json_array_get(array, i);
        if (e->gguf_type == GGUF_F64)
            raw.f[i] = number(v);
        else if (e->gguf_type == GGUF_BOOL)
            raw.b[i] = json_is_true(v);
        else
            raw.i[i] = json_integer_value(v);
    }
    return rg_entry_views(a, e, err);
}

/* One value as an entry; containers of unlike things become parents. */
static bool add_value(rg_checkpoint *c, const rg_buf *path, const json_t *v, rg_error *err)
{
    rg_entry e = { .key = rg_arena_text(&c->arena, path->data, path->n, err) };
    char text[80];

    if (!e.key)
        return false;
    if (json_is_null(v)) {
        e.type = RG_META_NULL;
    } else if (json_is_boolean(v)) {
        e.type = RG_META_BOOL;
        e.i = json_is_true(v);
    } else if (json_is_integer(v)) {
        e.type = RG_META_INT;
        e.i = json_integer_value(v);
    } else if (json_is_real(v) || not_finite(v, &e.f)) {
        e.type = RG_META_FLOAT;
        e.f = number(v);
    } else if (json_is_string(v)) {
        e.type = RG_META_STRING;
        e.s = (rg_string){ rg_arena_text(&c->arena, json_string_value(v), json_string_length(v), err),
                           json_string_length(v) };
        if (!e.s.data)
            return false;
    } else if (json_is_object(v)) {
        e.type = RG_META_OBJECT;
        e.n = json_object_size(v);
        e.parent = true;
    } else {
        e.type = RG_META_ARRAY;
        e.n = json_array_size(v);
        e.gguf_type = (uint8_t)common_type(v);
        e.parent = e.gguf_type == GGUF_ARRAY;
        if (!e.parent && !fill_array(&c->arena, &e, v, err))
            return rg_fail_prefix(err, "key '%s'", rg_name_text(path->data, path->n, text));
    }
    return rg_ckpt_add_entry(c, &e, path->n, err);
}

/* A container on the way down. */
typedef struct level {
    json_t *v;
    void *member; /* of an object, the next */
    size_t i;     /* of an array, the next */
    size_t n_path;
} level;

/* The next child of a level: its name on the path, its value; NULL when there are no more. */
static json_t *next_child(level *l, rg_buf *path)
{
    json_t *v;

    path->n = l->n_path;
    if (l->n_path && path->data[l->n_path - 1] != '.')
        rg_buf_str(path, ".");
    if (json_is_object(l->v)) {
        if (!l->member)
            return NULL;
        v = json_object_iter_value(l->member);
        rg_buf_str(path, json_object_iter_key(l->member));
        l->member = json_object_iter_next(l->v, l->member);
        return v;
    }
    if (l->i >= json_array_size(l->v))
        return NULL;
    rg_buf_printf(path, "%zu", l->i);
    return json_array_get(l->v, l->i++);
}

/* Depth first, in file order, with a stack of our own.  The parser kept the depth within RG_JSON_DEPTH. */
static bool flatten(rg_checkpoint *c, json_t *root, rg_buf *path, rg_error *err)
{
    level stack[RG_JSON_DEPTH + 1] = { { root, json_object_iter(root), 0, path->n } };

    for (int depth = 0; depth >= 0;) {
        json_t *v = next_child(&stack[depth], path);

        if (!v) {
            depth--;
            continue;
        }
        if (path->failed)
            return rg_fail(err, RG_E_INPUT, "no memory for a key, or one of more than %d bytes", RG_KEY_CAP);
        if (!add_value(c, path, v, err))
            return false;
        if (c->entries[c->n_entries - 1].parent) {
            RG_ASSERT(depth < RG_JSON_DEPTH);
            stack[++depth] = (level){ v, json_object_iter(v), 0, path->n };
        }
    }
    return true;
}

/* The number of entries that flatten makes of v; at most RG_JSON_DEPTH deep. */
static size_t count_entries(const json_t *v)
{
    size_t n = 0;

    if (json_is_array(v) && common_type(v) != GGUF_ARRAY)
        return 0;
    for (size_t i = 0; i < json_array_size(v); i++)
        n += 1 + count_entries(json_array_get(v, i));
    for (void *i = json_object_iter((json_t *)v); i; i = json_object_iter_next((json_t *)v, i))
        n += 1 + count_entries(json_object_iter_value(i));
    return n;
}

/* Flatten within the budget of entries of n bytes of text. */
static bool add_all(rg_checkpoint *c, json_t *root, rg_buf *key, size_t n, rg_error *err)
{
    size_t n_entries = count_entries(root), bytes, budget, cap = c->arena.cap;
    bool ok;

    if (!rg_head_and_items(ENTRY_SPARE, n, ENTRY_TIMES, &budget) || !rg_mul(n_entries, (size_t)ENTRY_BYTES, &bytes) ||
        bytes > budget)
        return rg_fail(err, RG_E_INPUT, "%zu values in %zu bytes take too much memory", n_entries, n);
    if (!rg_ckpt_expect_entries(c, n_entries, err))
        return false;
    if (c->arena.cap - c->arena.used > budget - bytes)
        c->arena.cap = c->arena.used + budget - bytes;
    ok = flatten(c, root, key, err);
    c->arena.cap = cap;
    return ok;
}

/* The settings in the object at `key` go to the top.  *lifted: there are such. */
static bool lift(json_t *root, const char *key, bool *lifted, rg_error *err)
{
    json_t *inner = json_object_get(root, key);

    *lifted = json_is_object(inner);
    if (!*lifted)
        return true;
    json_incref(inner);
    bool ok = !json_object_set_new(root, key, json_object()) && !json_object_update(root, inner);
    json_decref(inner);
    return ok || rg_fail_memory(err, 4096);
}

/* Lift settings to the root: of the language model among several parts, and of the layer of a network that drafts. */
static bool lift_inner(json_t *root, bool *has_parts, rg_error *err)
{
    bool is_draft;

    return lift(root, "text_config", has_parts, err) && lift(root, "transformer_layer_config", &is_draft, err);
}

/* One JSON file's keys, under a prefix; "": it is the config. */
static bool read_json(rg_checkpoint *c, const char *path, const char *prefix, rg_error *err)
{
    json_t *root = NULL;
    bool ok = false;
    char *text;
    rg_buf key;
    size_t n;

    rg_buf_init(&key, RG_KEY_CAP);
    text = rg_file_slurp(path, JSON_CAP, &n, err);
    if (!text)
        return false;
    root = rg_json_parse_within(path, text, n, TREE_SPARE + n * TREE_TIMES, err); /* fits: n <= JSON_CAP */
    if (root && !json_is_object(root))
        rg_fail(err, RG_E_INPUT, "%s: not a JSON object", path);
    else if (root && !rg_buf_str(&key, prefix))
        rg_fail_memory(err, 64);
    else if (root && (*prefix || lift_inner(root, &c->has_parts, err)))
        ok = add_all(c, root, &key, n, err) || rg_fail_prefix(err, "%s", path);
    rg_buf_fini(&key);
    json_decref(root);
    rg_free(text);
    return ok;
}

/* ---- directory and weights ---- */

/* "dir/name" if it is there: 1; 0 if not; -1 and *err if it does not fit or is no file. */
static int beside(const rg_checkpoint *c, const char *name, char path[PATH_ROOM], rg_error *err)
{
    if (!rg_path_join(path, PATH_ROOM, c->dir, name))
        return rg_fail(err, RG_E_INPUT, "%s: the path is too long", c->path), -1;
    switch (rg_path_look(path)) {
    case RG_PATH_NONE:
        return 0;
    case RG_PATH_FILE:
        return 1;
    default:
        return rg_fail(err, RG_E_INPUT, "%s: not a regular file", path), -1;
    }
}

static bool read_beside(rg_checkpoint *c, const char *name, const char *prefix, rg_error *err)
{
    char path[PATH_ROOM];
    int there = beside(c, name, path, err);

    return there == 0 || (there == 1 && read_json(c, path, prefix, err));
}

/* Shards by the order in which the index first names them; a name has no folder in it. */
typedef struct shards {
    const char *name[RG_FILES_CAP];
    int n;
    rg_dict *by_name;
} shards;

static bool shard_name_valid(const char *name)
{
    size_t n = strlen(name), n_end = strlen(".safetensors");

    return rg_name_valid(name, n) && n > n_end && n < 256 && !strcmp(name + n - n_end, ".safetensors") &&
           !strchr(name, '/') && !strchr(name, '\\') && name[0] != '.';
}

static bool list_shards(shards *s, const json_t *map, rg_error *err)
{
    char text[80];
    void *i;

    for (i = json_object_iter((json_t *)map); i; i = json_object_iter_next((json_t *)map, i)) {
        const char *name = json_string_value(json_object_iter_value(i)), *tensor = json_object_iter_key(i);

        if (!name || !shard_name_valid(name))
            return rg_fail(err, RG_E_INPUT,
                           "weight_map: the file of tensor '%s' is not a name like "
                           "model-00001-of-00002.safetensors",
                           rg_name_text(tensor, strlen(tensor), text));
        if (rg_dict_get(s->by_name, name, strlen(name)) >= 0)
            continue;
        if (s->n == RG_FILES_CAP)
            return rg_fail(err, RG_E_INPUT, "weight_map: more than %d files", RG_FILES_CAP);
        if (!rg_dict_put(s->by_name, name, strlen(name), s->n))
            return rg_fail_memory(err, 64);
        s->name[s->n++] = name;
    }
    return true;
}

/* Every tensor of the map must be in the file that the map says, and every tensor of the files in the map. */
static bool check_map(const rg_checkpoint *c, const shards *s, const json_t *map, rg_error *err)
{
    char text[80];
    void *i;

    for (i = json_object_iter((json_t *)map); i; i = json_object_iter_next((json_t *)map, i)) {
        const char *name = json_object_iter_key(i), *file = json_string_value(json_object_iter_value(i));
        const rg_tensor *t = rg_checkpoint_find(c, name);

        if (!t || t->file != rg_dict_get(s->by_name, file, strlen(file)))
            return rg_fail(err, RG_E_INPUT, "weight_map: tensor '%s' is not in %s",
                           rg_name_text(name, strlen(name), text), file);
    }
    for (int k = 0; k < c->n_tensors; k++) {
        const char *name = c->tensors[k].name;
        if (!json_object_get(map, name))
            return rg_fail(err, RG_E_INPUT, "weight_map: tensor '%s' is in %s, and not in the map",
                           rg_name_text(name, strlen(name), text), s->name[c->tensors[k].file]);
    }
    return true;
}

static bool none_is_there(const rg_checkpoint *c, const shards *s)
{
    char path[PATH_ROOM];

    for (int i = 0; i < s->n; i++)
        if (beside(c, s->name[i], path, NULL) != 0)
            return false;
    return true;
}

/* If the caller needs no weights, an index whose shards are all missing counts as no weights. */
static bool read_shards(rg_checkpoint *c, const json_t *map, unsigned flags, rg_error *err)
{
    shards *s = rg_zalloc(sizeof *s);
    char path[PATH_ROOM];
    bool ok = s && (s->by_name = rg_dict_new(16)), none;

    if (!ok)
        rg_fail_memory(err, sizeof *s);
    ok = ok && list_shards(s, map, err);
    none = ok && (flags & RG_CKPT_NO_WEIGHTS) && none_is_there(c, s);
    for (int i = 0; ok && !none && i < s->n; i++) {
        int there = beside(c, s->name[i], path, err);
        if (there == 0)
            rg_fail(err, RG_E_INPUT, "weight_map: %s is missing", s->name[i]);
        ok = there == 1 && rg_safetensors_read(c, path, err);
    }
    ok = ok && (none || check_map(c, s, map, err));
    if (s)
        rg_dict_free(s->by_name);
    rg_free(s);
    return ok;
}

static bool read_index(rg_checkpoint *c, const char *path, unsigned flags, rg_error *err)
{
    size_t n;
    char *text = rg_file_slurp(path, JSON_CAP, &n, err);
    json_t *index, *map;
    bool ok;

    if (!text)
        return false;
    index = rg_json_parse(path, text, n, err);
    rg_free(text);
    if (!index)
        return false;
    map = json_object_get(index, "weight_map");
    if (!json_is_object(map) || !json_object_size(map))
        ok = rg_fail(err, RG_E_INPUT, "%s: no weight_map, or an empty one", path);
    else
        ok = read_shards(c, map, flags, err) || rg_fail_prefix(err, "%s", path);
    json_decref(index);
    return ok;
}

/* Weights under other names: those of Medusa heads, and what torch.save wrote.  1: read, 0: there are none, -1:
 * *err. */
static int read_other(rg_checkpoint *c, rg_error *err)
{
    static const char *const names[] = { "medusa_lm_head.safetensors", "medusa_lm_head.pt", "pytorch_model.bin" };
    char path[PATH_ROOM];
    int there = 0;

    for (size_t i = 0; i < RG_LEN(names) && !there; i++) {
        there = beside(c, names[i], path, err);
        if (there == 1)
            there = (i ? rg_torch_read : rg_safetensors_read)(c, path, err) ? 1 : -1;
    }
    return there;
}

static bool read_weights(rg_checkpoint *c, unsigned flags, rg_error *err)
{
    char path[PATH_ROOM];
    int there = beside(c, "model.safetensors", path, err);

    if (there)
        return there == 1 && rg_safetensors_read(c, path, err);
    there = beside(c, "model.safetensors.index.json", path, err);
    if (there < 0)
        return false;
    if (there == 0 && (there = read_other(c, err)))
        return there == 1;
    if (there == 0)
        return (flags & RG_CKPT_NO_WEIGHTS) ||
               rg_fail(err, RG_E_INPUT, "%s: neither model.safetensors nor model.safetensors.index.json", c->path);
    return read_index(c, path, flags, err);
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), n_end = strlen(end);

    return n >= n_end && !strcmp(s + n - n_end, end);
}

/* The metadata files beside the weights. */
static bool read_metadata(rg_checkpoint *c, const char *config, unsigned flags, rg_error *err)
{
    char path[PATH_ROOM];
    int there = 1;

    if (!config) {
        there = beside(c, "config.json", path, err);
        config = path;
    }
    if (there < 0)
        return false;
    if (there == 0 && !(flags & RG_CKPT_NO_WEIGHTS))
        return rg_fail(err, RG_E_INPUT, "%s: no config.json", c->path);
    return (there == 0 || read_json(c, config, "", err)) &&
           read_beside(c, "generation_config.json", "generation.", err) &&
           read_beside(c, "tokenizer_config.json", "tokenizer_config.", err);
}

/* True if the path is an adapter: one of its files, or a folder that has them (and, unless the caller wants an adapter,
 * no model). */
static bool is_adapter(const rg_checkpoint *c, bool is_dir, unsigned flags)
{
    char path[PATH_ROOM];

    if (!is_dir)
        return ends_with(c->path, "adapter_config.json") || ends_with(c->path, "adapter_model.safetensors");
    return (flags & RG_CKPT_ADAPTER) ||
           (beside(c, "adapter_config.json", path, NULL) == 1 && beside(c, "config.json", path, NULL) == 0);
}

static bool read_adapter(rg_checkpoint *c, rg_error *err)
{
    static const char *const names[] = { "adapter_config.json", "adapter_model.safetensors" };
    char path[2][PATH_ROOM];

    c->is_peft = true;
    for (int i = 0; i < 2; i++) {
        int there = beside(c, names[i], path[i], err);

        if (there == 0)
            rg_fail(err, RG_E_INPUT, "%s: no %s", c->path, names[i]);
        if (there != 1)
            return false;
    }
    return read_json(c, path[0], "", err) && rg_safetensors_read(c, path[1], err);
}

static bool read_all(rg_checkpoint *c, unsigned flags, rg_error *err)
{
    bool is_dir = rg_path_look(c->path) == RG_PATH_DIR;
    const char *slash = strrchr(c->path, '/');

    c->kind = RG_CKPT_HF;
    if (is_dir)
        c->dir = rg_strdup(c->path);
    else
        c->dir = slash ? rg_strndup(c->path, slash == c->path ? 1 : (size_t)(slash - c->path)) : rg_strdup(".");
    if (!c->dir)
        return rg_fail_memory(err, strlen(c->path) + 1);
    if (is_adapter(c, is_dir, flags))
        return read_adapter(c, err);
    if (is_dir)
        return read_metadata(c, NULL, flags, err) && read_weights(c, flags, err);
    if (ends_with(c->path, ".safetensors")) /* its folder's metadata, if there is any */
        return read_metadata(c, NULL, RG_CKPT_NO_WEIGHTS, err) && rg_safetensors_read(c, c->path, err);
    if (ends_with(c->path, "tokenizer.json")) /* a side file of a folder that may hold no model */
        return read_metadata(c, NULL, RG_CKPT_NO_WEIGHTS, err);
    /* A config under any name opens its whole folder, if that has weights. */
    return read_metadata(c, c->path, flags, err) &&
           ((flags & RG_CKPT_NO_WEIGHTS) || read_weights(c, RG_CKPT_NO_WEIGHTS, err));
}

bool rg_hf_read(rg_checkpoint *c, unsigned flags, rg_error *err)
{
    return read_all(c, flags, err) && (c->is_peft || rg_composed_find(c, err));
}
