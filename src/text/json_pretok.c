/* json_pretok.c -- the "pre_tokenizer" of a tokenizer.json. */
#include <string.h>

#include "text/charclass.h"
#include "text/clean.h"
#include "text/internal.h"
#include "text/json_parts.h"

static bool behavior_of(const json_t *v, rg_behavior *out, rg_error *err)
{
    static const char *const names[] = { "Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous" };
    rg_string s;

    if (!rg_json_need_string(v, "behavior", &s, err))
        return false;
    for (size_t i = 0; i < RG_LEN(names); i++) {
        if (!strcmp(names[i], s.data))
            return *out = (rg_behavior)i, true;
    }
    return rg_fail(err, RG_E_UNSUPPORTED, "behavior '%.60s' is not supported", s.data);
}

static bool pre_split(void *to, const json_t *v, rg_error *err)
{
    rg_pretok_step s = { RG_PRETOK_SPLIT };

    if (!behavior_of(v, &s.behavior, err) || !rg_json_bool(v, "invert", &s.invert, err))
        return false;
    s.pattern = rg_json_pattern(v, err);
    return s.pattern && rg_pretok_add(to, s, err);
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

    if (!rg_json_need_char(v, "replacement", &by, err) || !rg_json_scheme(v, &s.scheme, err) ||
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
           rg_pretok_class(to, rg_is_numeric, alone ? RG_SPLIT_ISOLATED : RG_SPLIT_CONTIGUOUS, err);
}

static bool pre_punctuation(void *to, const json_t *v, rg_error *err)
{
    rg_behavior b = RG_SPLIT_ISOLATED;

    return (!json_object_get(v, "behavior") || behavior_of(v, &b, err)) &&
           rg_pretok_class(to, rg_is_punct, b, err);
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
    return rg_pretok_class(to, rg_is_space, RG_SPLIT_REMOVED, err);
}

static bool pre_delimiter(void *to, const json_t *v, rg_error *err)
{
    rg_pretok_step s = { RG_PRETOK_SPLIT, RG_SPLIT_REMOVED };
    rg_string by;

    return rg_json_need_char(v, "delimiter", &by, err) && (s.pattern = rg_regex_literal(by.data, by.n, err)) &&
           rg_pretok_add(to, s, err);
}

static bool pre_bert(void *to, const json_t *v, rg_error *err)
{
    (void)v;
    return rg_pretok_class(to, rg_is_space, RG_SPLIT_REMOVED, err) &&
           rg_pretok_class(to, rg_is_punct, RG_SPLIT_ISOLATED, err);
}

static bool pre_scripts(void *to, const json_t *v, rg_error *err)
{
    (void)v;
    return rg_pretok_add(to, (rg_pretok_step){ RG_PRETOK_SCRIPTS }, err);
}

static bool pre_fixed(void *to, const json_t *v, rg_error *err)
{
    int64_t length = 5;

    if (!rg_json_int(v, "length", &length, err))
        return false;
    if (length < 1)
        return rg_fail(err, RG_E_INPUT, "length %lld is not above 0", (long long)length);
    return rg_pretok_add(to, (rg_pretok_step){ RG_PRETOK_FIXED, .length = (size_t)length }, err);
}

bool rg_json_pretok(rg_pretok *p, const json_t *v, rg_error *err)
{
    static const rg_json_row rows[] = {
        { "Split", pre_split },
        { "ByteLevel", pre_byte_level },
        { "Metaspace", pre_metaspace },
        { "Digits", pre_digits },
        { "Punctuation", pre_punctuation },
        { "Whitespace", pre_whitespace },
        { "WhitespaceSplit", pre_whitespace_split },
        { "CharDelimiterSplit", pre_delimiter },
        { "BertPreTokenizer", pre_bert },
        { "UnicodeScripts", pre_scripts },
        { "FixedLength", pre_fixed },
    };

    return rg_json_read_part(&(rg_json_part){ "pre_tokenizer", "pretokenizers", rows, RG_LEN(rows) }, p, v, err);
}
