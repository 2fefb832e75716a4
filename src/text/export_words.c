/* export_words.c -- Unigram and WordPiece vocabularies as GGUF's "t5" and "bert" (export_parts.h).
 *
 * "t5" normalizes by a character map alone, and takes extra spaces away or not; other normalizers are lost, and the
 * warning says so.  "bert" writes a piece that begins a word with U+2581 in front, and one that goes on as it is, where
 * tokenizer.json marks the latter. */
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "text/charsmap.h"
#include "text/export_parts.h"

#define KEY        "tokenizer.ggml."
#define META_SPACE "\xE2\x96\x81"

/* ---- Unigram ---- */

typedef struct shape { /* what stands before the model */
    const json_t *charsmap; /* base64; NULL: none */
    bool prefix, squeeze, splits;
    const char *lost;
} shape;

static bool one_normalizer(const json_t *v, shape *s)
{
    if (rg_export_is(v, "Precompiled")) {
        if (s->charsmap || s->squeeze)
            return false;
        s->charsmap = json_object_get(v, "precompiled_charsmap");
        return json_is_string(s->charsmap);
    }
    if (rg_export_is(v, "Replace")) {
        const char *by = rg_export_text(v, "content");
        s->squeeze = !strcmp(rg_export_text(json_object_get(v, "pattern"), "Regex"), " {2,}");
        s->lost = *s->lost ? s->lost : "spaces at the end of a text";
        return s->squeeze && (!strcmp(by, " ") || !strcmp(by, META_SPACE));
    }
    if (rg_export_is(v, "Strip")) {
        s->squeeze = true;
        return true;
    }
    s->lost = "normalizers that are no character map";
    return rg_export_is(v, "Nmt") || rg_export_is(v, "NFKC") || rg_export_is(v, "NFC");
}

static bool read_shape(const rg_export *x, shape *s)
{
    const json_t *v = json_object_get(x->root, "normalizer"), *pre = json_object_get(x->root, "pre_tokenizer");
    const json_t *list = json_object_get(v, "normalizers");
    size_t n = list ? json_array_size(list) : !rg_export_absent(v);

    *s = (shape){ .lost = "" };
    for (size_t i = 0; i < n; i++)
        if (!one_normalizer(list ? json_array_get(list, i) : v, s))
            return false;
    list = json_object_get(pre, "pretokenizers");
    if (json_array_size(list) == 2 && rg_export_is(json_array_get(list, 0), "WhitespaceSplit")) {
        s->squeeze = true;
        pre = json_array_get(list, 1);
    }
    s->prefix = strcmp(rg_export_text(pre, "prepend_scheme"), "never") != 0;
    s->splits = !json_is_false(json_object_get(pre, "split"));
    if (s->prefix && !s->squeeze && !*s->lost)
        s->lost = "spaces at the start of a text";
    return rg_export_is(pre, "Metaspace") && !strcmp(rg_export_text(pre, "replacement"), META_SPACE);
}

/* Pieces with a space inside can never match if text is cut into words before the model. */
static bool crosses_words(const rg_export *x)
{
    for (int i = 0; i < x->n; i++)
        for (size_t k = 1; x->types[i] == RG_TOKEN_NORMAL && k + 3 <= x->tokens[i].n; k++)
            if (!memcmp(x->tokens[i].data + k, META_SPACE, 3))
                return true;
    return false;
}

static bool put_charsmap(rg_export *x, const json_t *text, rg_error *err)
{
    size_t n = 0;
    unsigned char *blob = rg_charsmap_decode(json_string_value(text), json_string_length(text), &n, err);
    bool ok = blob && rg_ckpt_put_bytes(x->w, KEY "precompiled_charsmap", blob, n, err);

    rg_free(blob);
    return ok;
}

bool rg_export_unigram(rg_export *x, int32_t *bos, rg_error *err)
{
    int64_t before, after;
    shape s;

    if (json_is_true(json_object_get(x->model, "byte_fallback")))
        return rg_export_cannot(x, "Unigram with bytes for what is unknown");
    if (!read_shape(x, &s))
        return rg_export_cannot(x, "a normalizer or a pre-tokenizer before Unigram");
    if (s.splits && crosses_words(x))
        return rg_export_cannot(x, "pieces that go across spaces, at which the text is cut");
    if (!rg_export_template(json_object_get(x->root, "post_processor"), &before, &after))
        return rg_export_cannot(x, "a template that puts several tokens on one side");
    for (int i = 0; i < x->n; i++)
        if (x->types[i] == RG_TOKEN_UNUSED)
            x->scores[i] = -1e9f; /* never the best way */
    rg_export_note(x, s.lost);
    return rg_export_common(x, "t5", "default", bos, err) &&
           rg_ckpt_put_floats(x->w, KEY "scores", x->scores, (size_t)x->n, err) &&
           rg_ckpt_put_bool(x->w, KEY "add_space_prefix", s.prefix, err) &&
           rg_ckpt_put_bool(x->w, KEY "remove_extra_whitespaces", s.squeeze, err) &&
           (!s.charsmap || put_charsmap(x, s.charsmap, err));
}

/* ---- WordPiece ---- */

/* Tokens as GGUF writes them, their texts in `text`; false: two become one, or no memory. */
static bool mark_words(rg_export *x, const char *prefix, rg_buf *text, rg_error *err)
{
    size_t n_prefix = strlen(prefix), at = 0;
    rg_dict *seen = rg_dict_new((size_t)x->n);
    bool ok = seen || rg_fail_memory(err, (size_t)x->n);

    for (int i = 0; ok && i < x->n; i++) {
        rg_string t = x->tokens[i];
        bool word = x->types[i] == RG_TOKEN_NORMAL;
        bool inside = word && t.n > n_prefix && !memcmp(t.data, prefix, n_prefix);
        if (word && !inside)
            rg_buf_str(text, META_SPACE);
        rg_buf_add(text, t.data + (inside ? n_prefix : 0), t.n - (inside ? n_prefix : 0));
        if (text->failed || !rg_buf_add(text, "", 1))
            ok = rg_fail_memory(err, text->n);
    }
    for (int i = 0; ok && i < x->n; i++) {
        x->tokens[i] = (rg_string){ text->data + at, strlen(text->data + at) };
        at += x->tokens[i].n + 1;
        if (rg_dict_get(seen, x->tokens[i].data, x->tokens[i].n) >= 0)
            ok = rg_export_cannot(x, "two pieces that it would write alike");
        else if (!rg_dict_put(seen, x->tokens[i].data, x->tokens[i].n, i))
            ok = rg_fail_memory(err, 64);
    }
    rg_dict_free(seen);
    return ok;
}

bool rg_export_wordpiece(rg_export *x, int32_t *bos, rg_error *err)
{
    const json_t *z = json_object_get(x->root, "normalizer"), *accents = json_object_get(z, "strip_accents");
    const json_t *most = json_object_get(x->model, "max_input_chars_per_word");
    const char *prefix = rg_export_text(x->model, "continuing_subword_prefix");
    bool lower = !json_is_false(json_object_get(z, "lowercase"));
    int64_t before, after;
    rg_buf text;
    bool ok;

    if (!rg_export_is(z, "BertNormalizer") || json_is_false(json_object_get(z, "clean_text")) ||
        json_is_false(json_object_get(z, "handle_chinese_chars")) ||
        !rg_export_is(json_object_get(x->root, "pre_tokenizer"), "BertPreTokenizer"))
        return rg_export_cannot(x, "a normalizer or a pre-tokenizer other than BERT's");
    if (!*prefix)
        return rg_export_cannot(x, "WordPiece without a mark inside words");
    if (!rg_export_template(json_object_get(x->root, "post_processor"), &before, &after) || before < 0 || after < 0)
        return rg_export_cannot(x, "a template that does not put a token before a text and one after it");
    rg_buf_init(&text, (size_t)1 << 30);
    ok = mark_words(x, prefix, &text, err);
    if (ok)
        rg_export_note(x, json_is_integer(most) && json_integer_value(most) != 100 ? "the length of a word" : "");
    ok = ok && rg_export_common(x, "bert", "default", bos, err) &&
         rg_ckpt_put_int(x->w, KEY "seperator_token_id", 4, after, err) &&
         rg_ckpt_put_bool(x->w, KEY "normalizer.lowercase", lower, err) &&
         rg_ckpt_put_bool(x->w, KEY "normalizer.strip_accents",
                          rg_export_absent(accents) ? lower : json_is_true(accents), err);
    rg_buf_fini(&text);
    return ok;
}
