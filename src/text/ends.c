/* ends.c -- see ends.h. */
#include "text/ends.h"

#include <jansson.h>
#include <string.h>

#include "base/mem.h"
#include "ckpt/json.h"
#include "text/internal.h"

enum { MAX_BARS = 4, GGUF_TYPE_U32 = 4 };

typedef enum text_kind { TURN, PART, CONTROL } text_kind;

/* ---- the tables ---- */

static const struct end_file {
    const char *file, *key, *name;
} files[] = {
#define END_FILE(file, key) { file, key, file ": " key },
#define END_KEY(key)
#define END_TEXT(kind, ...)
#include "text/ends.def"
#undef END_FILE
#undef END_KEY
#undef END_TEXT
};

static const char *const keys[] = {
#define END_FILE(file, key)
#define END_KEY(key) key,
#define END_TEXT(kind, ...)
#include "text/ends.def"
#undef END_FILE
#undef END_KEY
#undef END_TEXT
};

static const struct end_text {
    text_kind kind;
    const char *text;
    const char *bars[MAX_BARS]; /* beside any of these it is no end; NULL: no more */
} texts[] = {
#define END_FILE(file, key)
#define END_KEY(key)
#define END_TEXT(kind, text, ...) { kind, text, { __VA_ARGS__ } },
#include "text/ends.def"
#undef END_FILE
#undef END_KEY
#undef END_TEXT
};

/* The numbers of the sources: the files' keys, GGUF's keys, and these. */
enum { OF_KEYS = RG_LEN(files), OF_USUAL = OF_KEYS + RG_LEN(keys), OF_TEXT, N_SOURCES };

_Static_assert(N_SOURCES <= 32, "the sources are bits of a word");

const char *rg_ends_source(int k)
{
    if (k < 0 || k >= N_SOURCES)
        return NULL;
    return k < OF_KEYS     ? files[k].name
           : k < OF_USUAL  ? keys[k - OF_KEYS]
           : k == OF_USUAL ? "the usual id of such a tokenizer"
                           : "its text";
}

bool rg_ends_is_turn(rg_string piece)
{
    for (size_t i = 0; i < RG_LEN(texts); i++)
        if (texts[i].kind == TURN && piece.n == strlen(texts[i].text) && !memcmp(piece.data, texts[i].text, piece.n))
            return true;
    return false;
}

/* ---- collecting ---- */

typedef struct collector {
    rg_ends *ends;
    const rg_checkpoint *ckpt;
    const rg_tokenizer *t; /* NULL: none */
    int32_t vocab_size;
    rg_error *err;
} collector;

static bool add(collector *c, int64_t id, int source)
{
    rg_ends *e = c->ends;
    int i = 0;

    if (id < 0 || id == UINT32_MAX) /* none: GGUF writes -1 without a sign */
        return true;
    if (id >= c->vocab_size)
        return rg_fail(c->err, RG_E_INPUT, "%s: the id %lld that ends a sequence is beyond the vocabulary of %d (%s)",
                       rg_checkpoint_path(c->ckpt), (long long)id, (int)c->vocab_size, rg_ends_source(source));
    while (i < e->n && e->id[i] != id)
        i++;
    if (i == RG_MAX_ENDS)
        return rg_fail(c->err, RG_E_INPUT, "%s: more than %d ids that end a sequence (%s)", rg_checkpoint_path(c->ckpt),
                       RG_MAX_ENDS, rg_ends_source(source));
    if (i == e->n) {
        e->id[e->n] = (int32_t)id;
        e->sources[e->n++] = 0;
    }
    e->sources[i] |= 1u << source;
    return true;
}

/* The id of a text, within the model's; -1: no token has it. */
static int32_t find(const collector *c, const char *s, size_t n)
{
    int32_t id = c->t ? rg_vocab_find(&c->t->vocab, s, n) : -1;

    return id < c->vocab_size ? id : -1;
}

/* What a JSON file says: an id, a list of them, a token's text, or an object with it. */
static bool add_value(collector *c, const json_t *v, int source)
{
    if (json_is_object(v))
        v = json_object_get(v, "content");
    if (json_is_integer(v))
        return add(c, json_integer_value(v), source);
    if (json_is_string(v))
        return add(c, find(c, json_string_value(v), json_string_length(v)), source);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *one = json_array_get(v, i);
        if (!json_is_array(one) && !add_value(c, one, source)) /* no deeper */
            return false;
    }
    return true;
}

static const json_t *at_path(const json_t *v, const char *key)
{
    const char *dot = strchr(key, '.');

    return dot ? json_object_get(json_object_getn(v, key, (size_t)(dot - key)), dot + 1) : json_object_get(v, key);
}

static bool add_file(collector *c, int source)
{
    const struct end_file *f = &files[source];
    rg_error why = { 0 };
    size_t n = 0;
    char *text = rg_checkpoint_side_file(c->ckpt, f->file, &n, &why);
    json_t *v;
    bool ok;

    if (!text) {
        if (why.code != RG_OK && c->err)
            *c->err = why;
        return why.code == RG_OK;
    }
    v = rg_json_parse(f->file, text, n, c->err);
    rg_free(text);
    ok = v && add_value(c, at_path(v, f->key), source);
    json_decref(v);
    return ok;
}

static bool add_key(collector *c, const char *key, int source)
{
    const int32_t *ids = NULL;
    int64_t id = -1;
    size_t n = 0;

    if (rg_meta_type_of(c->ckpt, key) != RG_META_ARRAY)
        return rg_meta_int(c->ckpt, key, -1, UINT32_MAX, &id, c->err) >= 0 && add(c, id, source);
    if (rg_meta_ints(c->ckpt, key, &ids, &n, c->err) < 0)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!add(c, ids[i], source))
            return false;
    return true;
}

static bool add_texts(collector *c)
{
    for (size_t i = 0; i < RG_LEN(texts); i++) {
        int32_t id = find(c, texts[i].text, strlen(texts[i].text));
        if (id >= 0 && (texts[i].kind != CONTROL || c->t->vocab.type[id] == RG_PIECE_SPECIAL) && !add(c, id, OF_TEXT))
            return false;
    }
    return true;
}

static bool is_barred(const collector *c, const struct end_text *t)
{
    for (int i = 0; i < MAX_BARS && t->bars[i]; i++)
        if (find(c, t->bars[i], strlen(t->bars[i])) >= 0)
            return true;
    return false;
}

/* Take out the marks that close a part of an answer in this vocabulary. */
static void remove_barred(collector *c)
{
    rg_ends *e = c->ends;

    for (size_t i = 0; i < RG_LEN(texts); i++) {
        int32_t id = is_barred(c, &texts[i]) ? find(c, texts[i].text, strlen(texts[i].text)) : -1;
        int kept = 0;
        for (int k = 0; id >= 0 && k < e->n; k++) {
            if (e->id[k] == id)
                continue;
            e->id[kept] = e->id[k];
            e->sources[kept++] = e->sources[k];
        }
        if (id >= 0)
            e->n = kept;
    }
}

bool rg_ends_read(rg_ends *e, const rg_checkpoint *ckpt, const rg_tokenizer *t, int32_t vocab_size, rg_error *err)
{
    collector c = { .ends = e, .ckpt = ckpt, .t = t, .vocab_size = vocab_size, .err = err };
    bool gguf = rg_checkpoint_kind(ckpt) == RG_CKPT_GGUF;

    *e = (rg_ends){ .n = 0 };
    for (int i = 0; gguf && i < (int)RG_LEN(keys); i++)
        if (!add_key(&c, keys[i], OF_KEYS + i))
            return false;
    for (int i = 0; !gguf && i < (int)RG_LEN(files); i++)
        if (!add_file(&c, i))
            return false;
    if (gguf && t && rg_meta_type_of(ckpt, "tokenizer.ggml.eos_token_id") == RG_META_NONE &&
        rg_tokenizer_eos(t) < vocab_size && !add(&c, rg_tokenizer_eos(t), OF_USUAL))
        return false;
    if (!add_texts(&c))
        return false;
    remove_barred(&c);
    return true;
}

/* ---- writing ---- */

static bool has(const rg_ends *e, int32_t id)
{
    for (int i = 0; i < e->n; i++)
        if (e->id[i] == id)
            return true;
    return false;
}

bool rg_ends_put(rg_ckpt_writer *w, const rg_ends *e, const rg_tokenizer *t, rg_error *err)
{
    static const char message_end[] = "<|eom_id|>";
    int32_t eos = t ? rg_tokenizer_eos(t) : -1, eot = -1;
    int32_t eom = t ? rg_vocab_find(&t->vocab, message_end, strlen(message_end)) : -1;
    int n_put;

    if (!has(e, eos))
        eos = e->n ? e->id[0] : -1;
    if (!has(e, eom) || eom == eos)
        eom = -1;
    for (int i = e->n - 1; i >= 0; i--)
        if (e->id[i] != eos && e->id[i] != eom)
            eot = e->id[i];
    n_put = (eos >= 0) + (eot >= 0) + (eom >= 0);
    return (eos < 0 || rg_ckpt_put_int(w, "tokenizer.ggml.eos_token_id", GGUF_TYPE_U32, eos, err)) &&
           (eot < 0 || rg_ckpt_put_int(w, "tokenizer.ggml.eot_token_id", GGUF_TYPE_U32, eot, err)) &&
           (eom < 0 || rg_ckpt_put_int(w, "tokenizer.ggml.eom_token_id", GGUF_TYPE_U32, eom, err)) &&
           (e->n <= n_put || rg_ckpt_put_ints(w, "tokenizer.ggml.eos_token_ids", e->id, (size_t)e->n, err));
}
