/* json_steps.c -- the parts of a tokenizer.json that are lists of steps: normalizer, pre_tokenizer, decoder and
 * post_processor.  Each is one object with a type, or a Sequence of such; a type's row in a table says who reads it. */
#include <limits.h>
#include <string.h>

#include "text/clean.h"
#include "text/internal.h"

/* ---- members of objects ---- */

bool rg_json_bool(const json_t *v, const char *key, bool *out, rg_error *err)
{
    const json_t *m = json_object_get(v, key);

    if (!m || json_is_null(m))
        return true;
    if (!json_is_boolean(m))
        return rg_fail(err, RG_E_INPUT, "\"%s\" is not true or false", key);
    *out = json_is_true(m);
    return true;
}

bool rg_json_int(const json_t *v, const char *key, int64_t *out, rg_error *err)
{
    const json_t *m = json_object_get(v, key);

    if (!m || json_is_null(m))
        return true;
    if (!json_is_integer(m))
        return rg_fail(err, RG_E_INPUT, "\"%s\" is not an integer", key);
    *out = json_integer_value(m);
    return true;
}

bool rg_json_string(const json_t *v, const char *key, rg_string *out, rg_error *err)
{
    const json_t *m = json_object_get(v, key);

    if (!m || json_is_null(m))
        return true;
    if (!json_is_string(m))
        return rg_fail(err, RG_E_INPUT, "\"%s\" is not a string", key);
    *out = (rg_string){ json_string_value(m), json_string_length(m) };
    return true;
}

static bool need_string(const json_t *v, const char *key, rg_string *out, rg_error *err)
{
    *out = (rg_string){ 0 };
    return rg_json_string(v, key, out, err) && (out->data || rg_fail(err, RG_E_INPUT, "\"%s\" is missing", key));
}

/* A string that is one character. */
static bool need_char(const json_t *v, const char *key, rg_string *out, rg_error *err)
{
    return need_string(v, key, out, err) && ((out->n && (size_t)rg_clean_length(out->data) == out->n) ||
                                             rg_fail(err, RG_E_INPUT, "\"%s\" is not one character", key));
}

/* {"String": ...} or {"Regex": ...}.  NULL with *err untouched if *empty: a string of nothing matches nothing. */
static rg_regex *pattern_of(const json_t *v, bool *empty, rg_error *err)
{
    const json_t *p = json_object_get(v, "pattern");
    rg_string s = { 0 };

    *empty = false;
    if (json_is_string(p)) {
        s = (rg_string){ json_string_value(p), json_string_length(p) };
    } else if (json_object_get(p, "Regex")) {
        return need_string(p, "Regex", &s, err) ? rg_regex_new(s.data, s.n, err) : NULL;
    } else if (!need_string(p, "String", &s, err)) {
        return NULL;
    }
    *empty = !s.n;
    return s.n ? rg_regex_literal(s.data, s.n, err) : NULL;
}

/* ---- one object or a Sequence of them ---- */

typedef bool reader(void *to, const json_t *v, rg_error *err);

typedef struct row {
    const char *type;
    reader *read;
} row;

typedef struct part {
    const char *name, *members; /* "normalizer", and where a Sequence has its parts */
    const row *rows;
    size_t n_rows;
} part;

enum { SEQUENCE_DEPTH = 8, SEQUENCE_PARTS = 64 };

static bool read_one(const part *p, void *to, const json_t *v, rg_error *err)
{
    rg_string type;

    if (!need_string(v, "type", &type, err))
        return rg_fail_prefix(err, "%s", p->name);
    for (size_t i = 0; i < p->n_rows; i++)
        if (!strcmp(p->rows[i].type, type.data))
            return p->rows[i].read(to, v, err) || rg_fail_prefix(err, "%s %s", p->name, type.data);
    return rg_fail(err, RG_E_UNSUPPORTED, "%s '%.60s' is not supported", p->name, type.data);
}

static bool read_part(const part *p, void *to, const json_t *v, rg_error *err)
{
    struct level {
        const json_t *list;
        size_t at;
    } stack[SEQUENCE_DEPTH];
    int depth = 0, n_parts = 0;

    while (v || depth) {
        const json_t *type = json_object_get(v, "type");
        if (v && json_is_string(type) && !strcmp(json_string_value(type), "Sequence")) {
            const json_t *list = json_object_get(v, p->members);
            if (!json_is_array(list))
                return rg_fail(err, RG_E_INPUT, "%s: a Sequence without its list", p->name);
            if (depth == SEQUENCE_DEPTH)
                return rg_fail(err, RG_E_UNSUPPORTED, "%s: Sequences nested deeper than %d", p->name, SEQUENCE_DEPTH);
            stack[depth++] = (struct level){ list, 0 };
        } else if (v && !json_is_null(v)) {
            if (++n_parts > SEQUENCE_PARTS)
                return rg_fail(err, RG_E_UNSUPPORTED, "%s: more than %d parts", p->name, SEQUENCE_PARTS);
            if (!read_one(p, to, v, err))
                return false;
        }
        v = NULL;
        while (depth && !v)
            if (!(v = json_array_get(stack[depth - 1].list, stack[depth - 1].at++)))
                depth--;
    }
    return true;
}

/* ---- normalizers ---- */

#define SIMPLE_NORM(name, which)                                                                                       \
    static bool name(void *to, const json_t *v, rg_error *err)                                                         \
    {                                                                                                                  \
        (void)v;                                                                                                       \
        return rg_normalizer_add(to, (rg_norm_step){ .kind = which }, err);                                            \
    }
SIMPLE_NORM(norm_nfc, RG_NORM_NFC)
SIMPLE_NORM(norm_nfd, RG_NORM_NFD)
SIMPLE_NORM(norm_nfkc, RG_NORM_NFKC)
SIMPLE_NORM(norm_nfkd, RG_NORM_NFKD)
SIMPLE_NORM(norm_lowercase, RG_NORM_LOWERCASE)

static bool norm_prepend(void *to, const json_t *v, rg_error *err)
{
    rg_string s;

    return need_string(v, "prepend", &s, err) &&
           rg_normalizer_add(to, (rg_norm_step){ RG_NORM_PREPEND, .text = (char *)s.data, .n_text = s.n }, err);
}

static bool norm_replace(void *to, const json_t *v, rg_error *err)
{
    rg_string s;
    bool empty;
    rg_regex *r;

    if (!need_string(v, "content", &s, err))
        return false;
    r = pattern_of(v, &empty, err);
    return (!r && empty) ||
           (r && rg_normalizer_add(to, (rg_norm_step){ RG_NORM_REPLACE, r, (char *)s.data, s.n }, err));
}

static bool norm_strip(void *to, const json_t *v, rg_error *err)
{
    rg_norm_step s = { RG_NORM_STRIP, .left = true, .right = true };

    return rg_json_bool(v, "strip_left", &s.left, err) && rg_json_bool(v, "strip_right", &s.right, err) &&
           rg_normalizer_add(to, s, err);
}

bool rg_json_normalizer(rg_normalizer *z, const json_t *v, rg_error *err)
{
    static const row rows[] = {
        { "NFC", norm_nfc },
        { "NFD", norm_nfd },
        { "NFKC", norm_nfkc },
        { "NFKD", norm_nfkd },
        { "Lowercase", norm_lowercase },
        { "Prepend", norm_prepend },
        { "Replace", norm_replace },
        { "Strip", norm_strip },
    };

    return read_part(&(part){ "normalizer", "normalizers", rows, RG_LEN(rows) }, z, v, err);
}

/* ---- pre-tokenizers ---- */

static bool behavior_of(const json_t *v, rg_behavior *out, rg_error *err)
{
    static const char *const names[] = { "Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous" };
    rg_string s;

    if (!need_string(v, "behavior", &s, err))
        return false;
    for (size_t i = 0; i < RG_LEN(names); i++) {
        if (!strcmp(names[i], s.data))
            return *out = (rg_behavior)i, true;
    }
    return rg_fail(err, RG_E_UNSUPPORTED, "behavior '%.60s' is not supported", s.data);
}

static bool scheme_of(const json_t *v, rg_scheme *out, rg_error *err)
{
    static const char *const names[] = { "always", "first", "never" };
    rg_string s = { 0 };
    bool prefix = true;

    *out = RG_PREPEND_ALWAYS;
    if (!rg_json_string(v, "prepend_scheme", &s, err) || !rg_json_bool(v, "add_prefix_space", &prefix, err))
        return false;
    if (!s.data) /* files from before there was a scheme */
        return *out = prefix ? RG_PREPEND_ALWAYS : RG_PREPEND_NEVER, true;
    for (size_t i = 0; i < RG_LEN(names); i++) {
        if (!strcmp(names[i], s.data))
            return *out = (rg_scheme)i, true;
    }
    return rg_fail(err, RG_E_UNSUPPORTED, "prepend_scheme '%.60s' is not supported", s.data);
}

static bool pre_split(void *to, const json_t *v, rg_error *err)
{
    rg_pretok_step s = { RG_PRETOK_SPLIT };
    bool empty;

    if (!behavior_of(v, &s.behavior, err) || !rg_json_bool(v, "invert", &s.invert, err))
        return false;
    s.pattern = pattern_of(v, &empty, err);
    return (!s.pattern && empty) || (s.pattern && rg_pretok_add(to, s, err));
}

static bool pre_byte_level(void *to, const json_t *v, rg_error *err)
{
    bool prefix = true, regex = true;

    return rg_json_bool(v, "add_prefix_space", &prefix, err) && rg_json_bool(v, "use_regex", &regex, err) &&
           rg_pretok_byte_level(to, prefix, regex, err);
}

static bool pre_metaspace(void *to, const json_t *v, rg_error *err)
{
    rg_pretok_step s = { RG_PRETOK_META, RG_SPLIT_MERGED_WITH_NEXT };
    rg_string by;
    bool split = true;

    if (!need_char(v, "replacement", &by, err) || !scheme_of(v, &s.scheme, err) ||
        !rg_json_bool(v, "split", &split, err))
        return false;
    memcpy(s.text, by.data, by.n);
    if (split && !(s.pattern = rg_regex_literal(by.data, by.n, err)))
        return false;
    return rg_pretok_add(to, s, err);
}

static bool pre_digits(void *to, const json_t *v, rg_error *err)
{
    bool alone = false;

    return rg_json_bool(v, "individual_digits", &alone, err) &&
           rg_pretok_split(to, "\\p{N}", alone ? RG_SPLIT_ISOLATED : RG_SPLIT_CONTIGUOUS, false, err);
}

static bool pre_punctuation(void *to, const json_t *v, rg_error *err)
{
    rg_behavior b = RG_SPLIT_ISOLATED;

    return (!json_object_get(v, "behavior") || behavior_of(v, &b, err)) &&
           rg_pretok_split(to, "[!-/:-@\\[-`{-~\\p{P}]", b, false, err);
}

#define WORD_INSIDE "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}"
#define WORD        "[" WORD_INSIDE "]"

static bool pre_whitespace(void *to, const json_t *v, rg_error *err)
{
    (void)v; /* word characters as UTS #18 recommends, which is more than \\w is in other patterns */
    return rg_pretok_split(to, WORD "+|[^\\s" WORD_INSIDE "]+", RG_SPLIT_REMOVED, true, err);
}

static bool pre_whitespace_split(void *to, const json_t *v, rg_error *err)
{
    (void)v;
    return rg_pretok_split(to, "\\s", RG_SPLIT_REMOVED, false, err);
}

static bool pre_delimiter(void *to, const json_t *v, rg_error *err)
{
    rg_pretok_step s = { RG_PRETOK_SPLIT, RG_SPLIT_REMOVED };
    rg_string by;

    return need_char(v, "delimiter", &by, err) && (s.pattern = rg_regex_literal(by.data, by.n, err)) &&
           rg_pretok_add(to, s, err);
}

bool rg_json_pretok(rg_pretok *p, const json_t *v, rg_error *err)
{
    static const row rows[] = {
        { "Split", pre_split },
        { "ByteLevel", pre_byte_level },
        { "Metaspace", pre_metaspace },
        { "Digits", pre_digits },
        { "Punctuation", pre_punctuation },
        { "Whitespace", pre_whitespace },
        { "WhitespaceSplit", pre_whitespace_split },
        { "CharDelimiterSplit", pre_delimiter },
    };

    return read_part(&(part){ "pre_tokenizer", "pretokenizers", rows, RG_LEN(rows) }, p, v, err);
}

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

    if (!need_char(v, "replacement", &by, err) || !scheme_of(v, &s.scheme, err))
        return false;
    s.text = (char *)by.data;
    s.n_text = by.n;
    return rg_detok_add(to, s, err);
}

static bool detok_replace(void *to, const json_t *v, rg_error *err)
{
    rg_detok_step s = { RG_DETOK_REPLACE };
    rg_string by;
    bool empty;

    if (!need_string(v, "content", &by, err))
        return false;
    s.text = (char *)by.data;
    s.n_text = by.n;
    s.pattern = pattern_of(v, &empty, err);
    return (!s.pattern && empty) || (s.pattern && rg_detok_add(to, s, err));
}

static bool detok_strip(void *to, const json_t *v, rg_error *err)
{
    rg_detok_step s = { RG_DETOK_STRIP };
    rg_string by;
    int64_t start = 0, stop = 0;

    if (!need_char(v, "content", &by, err) || !rg_json_int(v, "start", &start, err) ||
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

bool rg_json_detok(rg_detok *d, const json_t *v, rg_error *err)
{
    static const row rows[] = {
        { "ByteLevel", detok_byte_level },
        { "ByteFallback", detok_byte_fallback },
        { "Fuse", detok_fuse },
        { "Metaspace", detok_metaspace },
        { "Replace", detok_replace },
        { "Strip", detok_strip },
    };

    return read_part(&(part){ "decoder", "decoders", rows, RG_LEN(rows) }, d, v, err);
}

/* ---- post-processors ---- */

static bool id_of(const json_t *v, int32_t *out, rg_error *err)
{
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= RG_VOCAB_CAP)
        return rg_fail(err, RG_E_INPUT, "an id is not a number between 0 and %d", RG_VOCAB_CAP - 1);
    *out = (int32_t)json_integer_value(v);
    return true;
}

/* The ids of one special token of a template, before or after what is there. */
static bool add_special(rg_around *a, const json_t *v, const json_t *token, bool after, rg_error *err)
{
    rg_string name;
    const json_t *ids;
    int32_t id;

    if (!need_string(token, "id", &name, err))
        return false;
    ids = json_object_get(json_object_get(json_object_get(v, "special_tokens"), name.data), "ids");
    if (!json_is_array(ids))
        return rg_fail(err, RG_E_INPUT, "\"special_tokens\" does not list '%.60s'", name.data);
    for (size_t i = 0, n = json_array_size(ids); i < n; i++) {
        if (!id_of(json_array_get(ids, after ? i : n - 1 - i), &id, err) ||
            !(after ? rg_around_after : rg_around_before)(a, id, err))
            return false;
    }
    return true;
}

static bool post_template(void *to, const json_t *v, rg_error *err)
{
    const json_t *single = json_object_get(v, "single");
    size_t n = json_array_size(single), sequence = n;

    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(single, i);
        if (!json_object_get(item, "Sequence") == !json_object_get(item, "SpecialToken"))
            return rg_fail(err, RG_E_INPUT, "\"single\" has an item that is neither Sequence nor SpecialToken");
        if (!json_object_get(item, "Sequence"))
            continue;
        if (sequence != n)
            return rg_fail(err, RG_E_UNSUPPORTED, "\"single\" has the text twice");
        sequence = i;
    }
    if (!n || sequence == n)
        return rg_fail(err, RG_E_UNSUPPORTED, "\"single\" has no place for the text");
    for (size_t i = sequence; i-- > 0;)
        if (!add_special(to, v, json_object_get(json_array_get(single, i), "SpecialToken"), false, err))
            return false;
    for (size_t i = sequence + 1; i < n; i++)
        if (!add_special(to, v, json_object_get(json_array_get(single, i), "SpecialToken"), true, err))
            return false;
    return true;
}

/* "cls": [text, id] before and "sep" after. */
static bool post_bert(void *to, const json_t *v, rg_error *err)
{
    int32_t cls, sep;

    return id_of(json_array_get(json_object_get(v, "cls"), 1), &cls, err) &&
           id_of(json_array_get(json_object_get(v, "sep"), 1), &sep, err) && rg_around_before(to, cls, err) &&
           rg_around_after(to, sep, err);
}

static bool post_byte_level(void *to, const json_t *v, rg_error *err)
{
    (void)to, (void)v, (void)err; /* it moves offsets, which nobody asks ridge for */
    return true;
}

bool rg_json_around(rg_around *a, const json_t *v, rg_error *err)
{
    static const row rows[] = {
        { "TemplateProcessing", post_template },
        { "BertProcessing", post_bert },
        { "RobertaProcessing", post_bert },
        { "ByteLevel", post_byte_level },
    };

    return read_part(&(part){ "post_processor", "processors", rows, RG_LEN(rows) }, a, v, err);
}
