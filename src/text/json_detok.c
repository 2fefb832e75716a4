/* json_detok.c -- the "decoder" and the "post_processor" of a tokenizer.json. */
#include <limits.h>
#include <string.h>

#include "text/internal.h"
#include "text/json_parts.h"

/* ---- decoders ---- */

#define SIMPLE_DETOK(name, which)                                                                                      \
    static bool name(void *to, const json_t *v, rg_error *err)                                                         \
    {                                                                                                                  \
        (void)v;                                                                                                       \
        return rg_detok_add(to, (rg_detok_step){ .kind = which }, err);                                                \
    }
SIMPLE_DETOK(detok_byte_level, RG_DETOK_BYTE_LEVEL)
SIMPLE_DETOK(detok_byte_fallback, RG_DETOK_BYTE_FALLBACK)
SIMPLE_DETOK(detok_fuse, RG_DETOK_FUSE)

static bool detok_metaspace(void *to, const json_t *v, rg_error *err)
{
    rg_detok_step s = { RG_DETOK_META };
    rg_string by;

    if (!rg_json_need_char(v, "replacement", &by, err) || !rg_json_scheme(v, &s.scheme, err))
        return false;
    s.text = (char *)by.data;
    s.n_text = by.n;
    return rg_detok_add(to, s, err);
}

static bool detok_replace(void *to, const json_t *v, rg_error *err)
{
    rg_detok_step s = { RG_DETOK_REPLACE };
    rg_string by;

    if (!rg_json_need_string(v, "content", &by, err))
        return false;
    s.text = (char *)by.data;
    s.n_text = by.n;
    s.pattern = rg_json_pattern(v, err);
    return s.pattern && rg_detok_add(to, s, err);
}

static bool detok_strip(void *to, const json_t *v, rg_error *err)
{
    rg_detok_step s = { RG_DETOK_STRIP };
    rg_string by;
    int64_t start = 0, stop = 0;

    if (!rg_json_need_char(v, "content", &by, err) || !rg_json_int(v, "start", &start, err) ||
        !rg_json_int(v, "stop", &stop, err))
        return false;
    if (start < 0 || start > INT_MAX || stop < 0 || stop > INT_MAX)
        return rg_fail(err, RG_E_INPUT, "start or stop is outside 0 .. %d", INT_MAX);
    s.text = (char *)by.data;
    s.n_text = by.n;
    s.start = (int)start;
    s.stop = (int)stop;
    return rg_detok_add(to, s, err);
}

static bool detok_wordpiece(void *to, const json_t *v, rg_error *err)
{
    rg_detok_step s = { RG_DETOK_WORDPIECE, .cleanup = true };
    rg_string prefix = { "##", 2 };

    if (!rg_json_string(v, "prefix", &prefix, err) || !rg_json_bool(v, "cleanup", &s.cleanup, err))
        return false;
    s.text = (char *)prefix.data;
    s.n_text = prefix.n;
    return rg_detok_add(to, s, err);
}

static bool detok_bpe(void *to, const json_t *v, rg_error *err)
{
    rg_detok_step s = { RG_DETOK_SUFFIX };
    rg_string suffix = { "</w>", 4 };

    if (!rg_json_string(v, "suffix", &suffix, err))
        return false;
    s.text = (char *)suffix.data;
    s.n_text = suffix.n;
    return rg_detok_add(to, s, err);
}

static bool detok_ctc(void *to, const json_t *v, rg_error *err)
{
    rg_detok_step s = { RG_DETOK_CTC, .cleanup = true };
    rg_string pad = { "<pad>", 5 }, space = { "|", 1 };

    if (!rg_json_string(v, "pad_token", &pad, err) || !rg_json_string(v, "word_delimiter_token", &space, err) ||
        !rg_json_bool(v, "cleanup", &s.cleanup, err))
        return false;
    s.text = (char *)pad.data;
    s.n_text = pad.n;
    s.more = (char *)space.data;
    s.n_more = space.n;
    return rg_detok_add(to, s, err);
}

bool rg_json_detok(rg_detok *d, const json_t *v, rg_error *err)
{
    static const rg_json_row rows[] = {
        { "ByteLevel", detok_byte_level },
        { "ByteFallback", detok_byte_fallback },
        { "Fuse", detok_fuse },
        { "Metaspace", detok_metaspace },
        { "Replace", detok_replace },
        { "Strip", detok_strip },
        { "WordPiece", detok_wordpiece },
        { "BPEDecoder", detok_bpe },
        { "CTC", detok_ctc },
    };

    if (!rg_json_read_part(&(rg_json_part){ "decoder", "decoders", rows, RG_LEN(rows) }, d, v, err))
        return false;
    /* A decoder of no steps is not the same as none. */
    return d->n || !json_is_object(v) || rg_detok_add(d, (rg_detok_step){ RG_DETOK_FUSE }, err);
}

/* ---- post-processors ---- */

/* What they make of a text, and of a pair of texts; a pair that is not supported (n 0) does not refuse the tokenizer,
 * which may never be given one. */
typedef struct post {
    rg_around *single, *pair;
} post;

static bool id_of(const json_t *v, int32_t *out, rg_error *err)
{
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= RG_VOCAB_CAP)
        return rg_fail(err, RG_E_INPUT, "an id is not a number between 0 and %d", RG_VOCAB_CAP - 1);
    *out = (int32_t)json_integer_value(v);
    return true;
}

/* The ids of one special token of a template. */
static bool add_special(rg_around *a, const json_t *v, const json_t *token, int type, rg_error *err)
{
    rg_string name;
    const json_t *ids;
    int32_t id;

    if (!rg_json_need_string(token, "id", &name, err))
        return false;
    ids = json_object_get(json_object_get(json_object_get(v, "special_tokens"), name.data), "ids");
    if (!json_is_array(ids))
        return rg_fail(err, RG_E_INPUT, "\"special_tokens\" does not list '%.60s'", name.data);
    for (size_t i = 0; i < json_array_size(ids); i++)
        if (!id_of(json_array_get(ids, i), &id, err) || !rg_around_add(a, id, type, err))
            return false;
    return true;
}

/* One part of what was there before the template: from *at to its end. */
static bool add_part(rg_around *a, const rg_around *old, int at, int type, rg_error *err)
{
    for (; at < old->n && old->item[at] != RG_AROUND_NEXT; at++)
        if (!rg_around_add(a, old->item[at], type, err))
            return false;
    return true;
}

/* Where each of the parts begins; they must be as many as texts. */
static bool find_parts(const rg_around *old, int n_texts, int at[2], rg_error *err)
{
    int n = 1;

    at[0] = 0;
    for (int i = 0; i < old->n; i++)
        if (old->item[i] == RG_AROUND_NEXT && n++ < 2)
            at[1] = i + 1;
    return n == n_texts || rg_fail(err, RG_E_UNSUPPORTED, "a template after another one is not supported");
}

/* "single" or "pair": items in their order, each a text ("Sequence" "A" or "B") or a special token, with its type. */
static bool read_template(rg_around *a, const json_t *v, const char *key, int n_texts, rg_error *err)
{
    const json_t *list = json_object_get(v, key);
    rg_around old = *a;
    int at[2], n_seen[2] = { 0 };

    if (!find_parts(&old, n_texts, at, err))
        return false;
    a->n = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i), *text = json_object_get(item, "Sequence");
        const json_t *special = json_object_get(item, "SpecialToken"), *type = text ? text : special;
        const char *id = json_string_value(json_object_get(text, "id"));
        int which = n_texts > 1 && id && !strcmp(id, "B");
        int kind = json_integer_value(json_object_get(type, "type_id")) > 0;

        if (!text == !special)
            return rg_fail(err, RG_E_INPUT, "\"%s\" has an item that is neither Sequence nor SpecialToken", key);
        if (i && !rg_around_add(a, RG_AROUND_NEXT, 0, err))
            return false;
        if (text && n_seen[which]++)
            return rg_fail(err, RG_E_UNSUPPORTED, "\"%s\" has the text twice", key);
        if (text ? !add_part(a, &old, at[which], kind, err) : !add_special(a, v, special, kind, err))
            return false;
    }
    return (n_seen[0] && (n_texts < 2 || n_seen[1])) ||
           rg_fail(err, RG_E_UNSUPPORTED, "\"%s\" has no place for the text", key);
}

static bool post_template(void *to, const json_t *v, rg_error *err)
{
    post *p = to;

    if (p->pair->n && !read_template(p->pair, v, "pair", 2, NULL))
        p->pair->n = 0;
    return read_template(p->single, v, "single", 1, err);
}

/* "cls": [text, id] before and "sep" after; the parts that a template made are taken for further texts. */
static bool post_ends(post *p, const json_t *v, bool sep_before, rg_error *err)
{
    int32_t cls, sep, front = RG_AROUND_NEXT;

    if (!id_of(json_array_get(json_object_get(v, "cls"), 1), &cls, err) ||
        !id_of(json_array_get(json_object_get(v, "sep"), 1), &sep, err))
        return false;
    if (sep_before)
        front = sep;
    if (p->pair->n && !rg_around_wrap(p->pair, cls, sep, front, NULL))
        p->pair->n = 0;
    return rg_around_wrap(p->single, cls, sep, front, err);
}

static bool post_bert(void *to, const json_t *v, rg_error *err)
{
    return post_ends(to, v, false, err);
}

static bool post_roberta(void *to, const json_t *v, rg_error *err)
{
    return post_ends(to, v, true, err);
}

static bool post_byte_level(void *to, const json_t *v, rg_error *err)
{
    (void)to, (void)v, (void)err; /* it only moves offsets, which ridge does not compute */
    return true;
}

bool rg_json_around(rg_around *single, rg_around *pair, const json_t *v, rg_error *err)
{
    static const rg_json_row rows[] = {
        { "TemplateProcessing", post_template },
        { "BertProcessing", post_bert },
        { "RobertaProcessing", post_roberta },
        { "ByteLevel", post_byte_level },
    };
    post p = { single, pair };

    rg_around_begin(single);
    rg_around_begin_pair(pair);
    if (!rg_json_read_part(&(rg_json_part){ "post_processor", "processors", rows, RG_LEN(rows) }, &p, v, err))
        return false;
    rg_around_seal(single);
    rg_around_join(pair);
    return true;
}
