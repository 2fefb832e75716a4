/* json_normalizer.c -- the "normalizer" of a tokenizer.json. */
#include <string.h>

#include "text/internal.h"
#include "text/json_parts.h"

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
SIMPLE_NORM(norm_strip_accents, RG_NORM_STRIP_MARKS)
SIMPLE_NORM(norm_nmt, RG_NORM_NMT)
SIMPLE_NORM(norm_bytes, RG_NORM_BYTES)

static bool norm_prepend(void *to, const json_t *v, rg_error *err)
{
    rg_string s;

    return rg_json_need_string(v, "prepend", &s, err) &&
           rg_normalizer_add(to, (rg_norm_step){ .kind = RG_NORM_PREPEND, .text = (char *)s.data, .n_text = s.n }, err);
}

static bool norm_replace(void *to, const json_t *v, rg_error *err)
{
    rg_string s;
    rg_regex *r;

    if (!rg_json_need_string(v, "content", &s, err))
        return false;
    r = rg_json_pattern(v, err);
    return r && rg_normalizer_add(
                    to, (rg_norm_step){ RG_NORM_REPLACE, .pattern = r, .text = (char *)s.data, .n_text = s.n }, err);
}

static bool norm_strip(void *to, const json_t *v, rg_error *err)
{
    rg_norm_step s = { .kind = RG_NORM_STRIP, .left = true, .right = true };

    return rg_json_bool(v, "strip_left", &s.left, err) && rg_json_bool(v, "strip_right", &s.right, err) &&
           rg_normalizer_add(to, s, err);
}

static bool norm_precompiled(void *to, const json_t *v, rg_error *err)
{
    rg_string s;
    rg_norm_step step = { .kind = RG_NORM_CHARSMAP };

    if (!rg_json_need_string(v, "precompiled_charsmap", &s, err))
        return false;
    step.map = rg_charsmap_base64(s.data, s.n, err);
    return step.map && rg_normalizer_add(to, step, err);
}

static bool norm_bert(void *to, const json_t *v, rg_error *err)
{
    bool clean = true, chinese = true, lower = true, accents;

    if (!rg_json_bool(v, "clean_text", &clean, err) || !rg_json_bool(v, "handle_chinese_chars", &chinese, err) ||
        !rg_json_bool(v, "lowercase", &lower, err))
        return false;
    accents = lower;
    return rg_json_bool(v, "strip_accents", &accents, err) &&
           (!clean || rg_normalizer_add(to, (rg_norm_step){ .kind = RG_NORM_BERT_CLEAN }, err)) &&
           (!chinese || rg_normalizer_add(to, (rg_norm_step){ .kind = RG_NORM_IDEOGRAPHS }, err)) &&
           (!accents || (rg_normalizer_add(to, (rg_norm_step){ .kind = RG_NORM_NFD }, err) &&
                         rg_normalizer_add(to, (rg_norm_step){ .kind = RG_NORM_STRIP_NONSPACING }, err))) &&
           (!lower || rg_normalizer_add(to, (rg_norm_step){ .kind = RG_NORM_LOWERCASE }, err));
}

bool rg_json_normalizer(rg_normalizer *z, const json_t *v, rg_error *err)
{
    static const rg_json_row rows[] = {
        { "NFC", norm_nfc },
        { "NFD", norm_nfd },
        { "NFKC", norm_nfkc },
        { "NFKD", norm_nfkd },
        { "Lowercase", norm_lowercase },
        { "Prepend", norm_prepend },
        { "Replace", norm_replace },
        { "Strip", norm_strip },
        { "StripAccents", norm_strip_accents },
        { "Nmt", norm_nmt },
        { "Precompiled", norm_precompiled },
        { "BertNormalizer", norm_bert },
        { "ByteLevel", norm_bytes },
    };

    return rg_json_read_part(&(rg_json_part){ "normalizer", "normalizers", rows, RG_LEN(rows) }, z, v, err);
}
