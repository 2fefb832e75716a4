/* export.c -- see export.h.
 *
 * BPE is written in two ways (other models: export_words.c).  Byte-level BPE must have a splitter that GGUF has a name
 * for (pretok.def).  SentencePiece BPE must have merges that follow from scores of pieces: a piece's score is minus the
 * rank of the first merge that makes it. */
#include "text/export.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"
#include "ckpt/json.h"
#include "text/ends.h"
#include "text/export_parts.h"
#include "text/pretok.h"
#include "text/templates.h"

enum { MAX_STEPS = 8, PIECE_CAP = 1 << 12 };

typedef rg_export export;

bool rg_export_cannot(rg_export *x, const char *what)
{
    snprintf(x->warning, RG_EXPORT_WARNING, "the tokenizer is not written, since GGUF cannot express it: %s", what);
    return false;
}

const char *rg_export_text(const json_t *object, const char *key)
{
    const char *s = json_string_value(json_object_get(object, key));

    return s ? s : "";
}

bool rg_export_is(const json_t *object, const char *type)
{
    return !strcmp(rg_export_text(object, "type"), type);
}

/* ---- the splitter's name ---- */

typedef struct splitter {
    const char *name;
    unsigned flags;
    const char *patterns[MAX_STEPS];
} splitter;

static const splitter splitters[] = {
#define PRETOK(name, flags, ...) { name, flags, { __VA_ARGS__ } },
#include "text/pretok.def"
#undef PRETOK
};

/* The pattern by which a published step cuts; NULL: none that GGUF would know. */
static const char *pattern_of(const json_t *step)
{
    const json_t *pattern = json_object_get(step, "pattern");

    if (rg_export_is(step, "Split") && !strcmp(rg_export_text(step, "behavior"), "Isolated") &&
        !json_is_true(json_object_get(step, "invert")))
        return json_string_value(json_object_get(pattern, "Regex"));
    if (rg_export_is(step, "Digits"))
        return json_is_true(json_object_get(step, "individual_digits")) ? "\\p{N}" : "\\p{N}+";
    if (rg_export_is(step, "Punctuation"))
        return "[\\p{P}\\$\\+<=>\\^~\\|]+";
    return NULL;
}

/* Patterns of a byte-level splitter in order; false: something else is in it. */
static bool read_splitter(const json_t *pre, const char *patterns[MAX_STEPS])
{
    const json_t *list = rg_export_is(pre, "Sequence") ? json_object_get(pre, "pretokenizers") : NULL;
    size_t n = list ? json_array_size(list) : 1;
    int n_patterns = 0;
    bool bytes = false;

    for (size_t i = 0; i < n; i++) {
        const json_t *step = list ? json_array_get(list, i) : pre;
        const char *pattern = pattern_of(step);
        if (bytes || n_patterns >= MAX_STEPS - 1)
            return false;
        if (rg_export_is(step, "ByteLevel")) {
            if (json_is_true(json_object_get(step, "add_prefix_space")))
                return false;
            bytes = true;
            if (json_is_false(json_object_get(step, "use_regex")))
                continue;
            pattern = GPT2;
        }
        if (!pattern)
            return false;
        patterns[n_patterns++] = pattern;
    }
    return bytes;
}

static bool same_patterns(const char *const *a, const char *const *b)
{
    int i = 0;

    while (i < MAX_STEPS && a[i] && b[i] && !strcmp(a[i], b[i]))
        i++;
    return i == MAX_STEPS || (!a[i] && !b[i]);
}

static const char *splitter_name(const json_t *pre, bool ignore_merges)
{
    const char *patterns[MAX_STEPS] = { NULL };

    if (!read_splitter(pre, patterns))
        return NULL;
    for (size_t i = 1; i < RG_LEN(splitters); i++) /* not the first, which stands for no name */
        if (!(splitters[i].flags & RG_PRE_CHARS) && !(splitters[i].flags & RG_PRE_IGNORE_MERGES) == !ignore_merges &&
            same_patterns(splitters[i].patterns, patterns))
            return splitters[i].name;
    return NULL;
}

/* ---- tokens ---- */

static bool is_byte_piece(const char *s, size_t n)
{
    return n == 6 && !memcmp(s, "<0x", 3) && s[5] == '>';
}

static bool put_token(export *x, int64_t id, const char *s, size_t n, int type)
{
    if (!s || id < 0 || id >= x->n)
        return true; /* beyond the embedding: no id of the model's */
    x->tokens[id] = (rg_string){ s, n };
    x->types[id] = type;
    return true;
}

/* Read Unigram's list of pieces with their scores. */
static void read_scored(export *x, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i), *s = json_array_get(v, 0);
        put_token(x, (int64_t)i, json_string_value(s), json_string_length(s), RG_TOKEN_NORMAL);
        if (i < (size_t)x->n)
            x->scores[i] = (float)json_number_value(json_array_get(v, 1));
    }
}

static void read_tokens(export *x)
{
    const json_t *vocab = json_object_get(x->model, "vocab"), *added = json_object_get(x->root, "added_tokens"), *v;
    const char *unk = rg_export_text(x->model, "unk_token");
    bool fallback = json_is_true(json_object_get(x->model, "byte_fallback"));

    read_scored(x, vocab);
    for (void *i = json_object_iter((json_t *)(uintptr_t)vocab); i;
         i = json_object_iter_next((json_t *)(uintptr_t)vocab, i)) {
        const char *s = json_object_iter_key(i);
        size_t n = json_object_iter_key_len(i);
        bool byte = fallback && is_byte_piece(s, n);
        v = json_object_iter_value(i);
        if (json_is_integer(v))
            put_token(x, json_integer_value(v), s, n, byte ? RG_TOKEN_BYTE : RG_TOKEN_NORMAL);
    }
    for (size_t i = 0; i < json_array_size(added); i++) {
        v = json_array_get(added, i);
        const json_t *s = json_object_get(v, "content"), *id = json_object_get(v, "id");
        if (json_is_string(s) && json_is_integer(id))
            put_token(x, json_integer_value(id), json_string_value(s), json_string_length(s),
                      json_is_true(json_object_get(v, "special")) ? RG_TOKEN_CONTROL : RG_TOKEN_USER);
    }
    v = json_object_get(x->model, "unk_id");
    if (json_is_integer(v) && json_integer_value(v) >= 0 && json_integer_value(v) < x->n)
        x->types[json_integer_value(v)] = RG_TOKEN_UNKNOWN;
    for (int i = 0; *unk && i < x->n; i++)
        if (x->tokens[i].data && x->tokens[i].n == strlen(unk) && !memcmp(x->tokens[i].data, unk, x->tokens[i].n))
            x->types[i] = RG_TOKEN_UNKNOWN;
}

/* Ids that the tokenizer does not use get a generated name. */
static bool fill_tokens(export *x, rg_buf *fill, rg_error *err)
{
    for (int pass = 0; pass < 2; pass++) {
        size_t at = 0;
        for (int i = 0; i < x->n; i++) {
            char name[32];
            int n = snprintf(name, sizeof name, "[PAD%d]", i);
            if (x->types[i] && x->types[i] != RG_TOKEN_UNUSED)
                continue;
            if (!pass && !rg_buf_add(fill, name, (size_t)n))
                return rg_fail_memory(err, fill->n);
            if (pass)
                put_token(x, i, fill->data + at, (size_t)n, RG_TOKEN_UNUSED);
            at += (size_t)n;
        }
    }
    for (int i = 0; i < x->n; i++)
        if (!rg_dict_put(x->ids, x->tokens[i].data, x->tokens[i].n, i))
            return rg_fail_memory(err, 64);
    return true;
}

/* ---- merges ---- */

/* Merge i as text: "a b", or a pair of strings. */
static bool one_merge(const json_t *v, rg_string *left, rg_string *right)
{
    const json_t *a = json_array_get(v, 0), *b = json_array_get(v, 1);

    if (json_is_string(v)) {
        const char *s = json_string_value(v), *space = memchr(s, ' ', json_string_length(v));
        size_t n = json_string_length(v);
        if (!space)
            return false;
        *left = (rg_string){ s, (size_t)(space - s) };
        *right = (rg_string){ space + 1, n - left->n - 1 };
        return true;
    }
    if (!json_is_string(a) || !json_is_string(b))
        return false;
    *left = (rg_string){ json_string_value(a), json_string_length(a) };
    *right = (rg_string){ json_string_value(b), json_string_length(b) };
    return true;
}

static bool read_merges(export *x, rg_buf *text, rg_error *err)
{
    const json_t *list = json_object_get(x->model, "merges");
    size_t n = json_array_size(list), at = 0;
    rg_string a, b;

    x->merges = rg_array(n, sizeof *x->merges);
    if (!x->merges)
        return rg_fail_memory(err, n * sizeof *x->merges);
    for (size_t i = 0; i < n; i++) {
        if (!one_merge(json_array_get(list, i), &a, &b) || !a.n || !b.n || memchr(a.data, ' ', a.n) ||
            memchr(b.data, ' ', b.n))
            return rg_export_cannot(x, "a merge that is no pair of pieces without spaces");
        if (!rg_buf_add(text, a.data, a.n) || !rg_buf_add(text, " ", 1) || !rg_buf_add(text, b.data, b.n))
            return rg_fail_memory(err, text->n);
        x->merges[i].n = a.n + 1 + b.n;
    }
    for (size_t i = 0; i < n; i++) {
        x->merges[i].data = text->data + at;
        at += x->merges[i].n;
    }
    x->n_merges = n;
    return true;
}

/* ---- SentencePiece's scores ---- */

/* The piece that a merge makes; -1: none. */
static int merged_id(const export *x, const rg_string *m, char piece[PIECE_CAP])
{
    const char *space = memchr(m->data, ' ', m->n);
    size_t left = (size_t)(space - m->data);

    if (m->n > PIECE_CAP)
        return -1;
    memcpy(piece, m->data, left);
    memcpy(piece + left, space + 1, m->n - left - 1);
    return rg_dict_get(x->ids, piece, m->n - 1);
}

/* Merges of one piece must stand together: its score is one number. */
static bool score_pieces(export *x)
{
    char piece[PIECE_CAP];
    int last = -1;

    for (size_t i = 0; i < x->n_merges; i++) {
        int id = merged_id(x, &x->merges[i], piece);
        if (id < 0)
            return rg_export_cannot(x, "a merge whose piece is not in the vocabulary");
        if (id != last && x->made[id])
            return rg_export_cannot(x, "merges that do not follow from scores of pieces");
        if (!x->made[id])
            x->scores[id] = -(float)i;
        x->made[id] = true;
        last = id;
    }
    return true;
}

/* SentencePiece joins any two pieces that make a third; so every such pair must be a merge. */
static bool check_splits(export *x, rg_error *err)
{
    rg_dict *known = rg_dict_new(x->n_merges);
    bool ok = known || rg_fail_memory(err, x->n_merges);
    char both[PIECE_CAP + 1];

    for (size_t i = 0; ok && i < x->n_merges; i++)
        ok = rg_dict_put(known, x->merges[i].data, x->merges[i].n, 0) || rg_fail_memory(err, 64);
    for (int id = 0; ok && id < x->n; id++) {
        rg_string t = x->tokens[id];
        if (x->types[id] != RG_TOKEN_NORMAL)
            continue;
        if (t.n >= PIECE_CAP)
            ok = rg_export_cannot(x, "a piece of over 4,000 bytes");
        for (size_t cut = 1; ok && cut < t.n; cut++) {
            int a = (t.data[cut] & 0xc0) == 0x80 ? -1 : rg_dict_get(x->ids, t.data, cut);
            int b = a < 0 ? -1 : rg_dict_get(x->ids, t.data + cut, t.n - cut);
            if (a < 0 || b < 0 || x->types[a] != RG_TOKEN_NORMAL || x->types[b] != RG_TOKEN_NORMAL)
                continue;
            memcpy(both, t.data, cut);
            both[cut] = ' ';
            memcpy(both + cut + 1, t.data + cut, t.n - cut);
            if (rg_dict_get(known, both, t.n + 1) < 0)
                ok = rg_export_cannot(x, "pieces that no merge joins, which GGUF's scores would");
        }
    }
    rg_dict_free(known);
    return ok;
}

/* ---- what stands around the model ---- */

static bool is_at_spaces(const json_t *step)
{
    return !strcmp(rg_export_text(json_object_get(step, "pattern"), "String"), " ");
}

/* True if a normalizer only writes spaces as U+2581, perhaps after putting one in front. */
static bool is_spm_normalizer(const json_t *v, bool *prefix)
{
    const json_t *list = rg_export_is(v, "Sequence") ? json_object_get(v, "normalizers") : NULL;
    size_t n = list ? json_array_size(list) : 1;
    bool replaces = false;

    for (size_t i = 0; i < n; i++) {
        const json_t *step = list ? json_array_get(list, i) : v;
        if (rg_export_is(step, "Prepend") && !strcmp(rg_export_text(step, "prepend"), "\xe2\x96\x81") && !i)
            *prefix = true;
        else if (rg_export_is(step, "Replace") && is_at_spaces(step) &&
                 !strcmp(rg_export_text(step, "content"), "\xe2\x96\x81"))
            replaces = true;
        else
            return false;
    }
    return replaces;
}

/* Splitting at spaces after all were replaced has no effect. */
static bool is_spm_shape(const json_t *normalizer, const json_t *pre, bool *prefix)
{
    *prefix = false;
    if (!rg_export_absent(normalizer))
        return is_spm_normalizer(normalizer, prefix) &&
               (rg_export_absent(pre) || (rg_export_is(pre, "Split") && is_at_spaces(pre)));
    if (!rg_export_is(pre, "Metaspace") || strcmp(rg_export_text(pre, "replacement"), "\xe2\x96\x81") ||
        !json_is_false(json_object_get(pre, "split")))
        return false;
    *prefix = strcmp(rg_export_text(pre, "prepend_scheme"), "never") != 0;
    return true;
}

bool rg_export_template(const json_t *post, int64_t *before, int64_t *after)
{
    const json_t *list = json_object_get(post, "processors"), *single, *special;
    bool seen = false;

    *before = *after = -1;
    for (size_t i = 0; i < json_array_size(list); i++) /* the others only mend offsets */
        if (rg_export_is(json_array_get(list, i), "TemplateProcessing"))
            post = json_array_get(list, i);
    if (!rg_export_is(post, "TemplateProcessing"))
        return true;
    single = json_object_get(post, "single");
    special = json_object_get(post, "special_tokens");
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *token = json_object_get(json_array_get(single, i), "SpecialToken");
        int64_t *to = seen ? after : before;
        if (!token) {
            seen = true;
            continue;
        }
        const json_t *ids = json_object_get(json_object_get(special, rg_export_text(token, "id")), "ids");
        if (*to >= 0 || json_array_size(ids) != 1)
            return false;
        *to = json_integer_value(json_array_get(ids, 0));
    }
    return true;
}

static bool put_text(export *x, const char *key, const char *s, rg_error *err)
{
    return rg_ckpt_put_string(x->w, key, s, strlen(s), err);
}

bool rg_export_common(rg_export *x, const char *model, const char *pre, int32_t *bos, rg_error *err)
{
    int64_t before, after;

    rg_export_template(json_object_get(x->root, "post_processor"), &before, &after);
    if (!put_text(x, "tokenizer.ggml.model", model, err) || !put_text(x, "tokenizer.ggml.pre", pre, err) ||
        !rg_ckpt_put_strings(x->w, "tokenizer.ggml.tokens", x->tokens, (size_t)x->n, err) ||
        !rg_ckpt_put_ints(x->w, "tokenizer.ggml.token_type", x->types, (size_t)x->n, err) ||
        !rg_ckpt_put_bool(x->w, "tokenizer.ggml.add_bos_token", before >= 0, err) ||
        !rg_ckpt_put_bool(x->w, "tokenizer.ggml.add_eos_token", after >= 0, err))
        return false;
    if (before >= 0 && before < x->n)
        *bos = (int32_t)before;
    for (int i = 0; i < x->n; i++)
        if (x->types[i] == RG_TOKEN_UNKNOWN)
            return rg_ckpt_put_int(x->w, "tokenizer.ggml.unknown_token_id", 4, i, err);
    return true;
}

void rg_export_note(rg_export *x, const char *what)
{
    static const char *const flags[] = { "lstrip", "rstrip", "single_word" };
    const json_t *added = json_object_get(x->root, "added_tokens");
    bool found = false;

    for (size_t i = 0; i < json_array_size(added); i++)
        for (size_t k = 0; k < RG_LEN(flags); k++)
            found = found || json_is_true(json_object_get(json_array_get(added, i), flags[k]));
    if (*what || found)
        snprintf(x->warning, RG_EXPORT_WARNING,
                 "these parts of the tokenizer are not written, since GGUF cannot express them: %s%s%s", what,
                 *what && found ? " and " : "",
                 found ? "which spaces its added tokens take in (lstrip, rstrip, single_word)" : "");
}

static bool put_byte_level(export *x, int32_t *bos, rg_error *err)
{
    const json_t *normalizer = json_object_get(x->root, "normalizer");
    const char *name = splitter_name(json_object_get(x->root, "pre_tokenizer"),
                                     json_is_true(json_object_get(x->model, "ignore_merges")));

    if (!name)
        return rg_export_cannot(x, "a pre-tokenizer that none of its names stands for");
    if (!rg_export_absent(normalizer) && !rg_export_is(normalizer, "NFC"))
        return rg_export_cannot(x, "a normalizer");
    rg_export_note(x, rg_export_absent(normalizer) ? "" : "the normalizer NFC");
    return rg_export_common(x, "gpt2", name, bos, err) &&
           rg_ckpt_put_strings(x->w, "tokenizer.ggml.merges", x->merges, x->n_merges, err);
}

static bool put_spm(export *x, bool prefix, int32_t *bos, rg_error *err)
{
    if (!score_pieces(x) || !check_splits(x, err))
        return false;
    rg_export_note(x, "");
    return rg_export_common(x, "llama", "default", bos, err) &&
           rg_ckpt_put_floats(x->w, "tokenizer.ggml.scores", x->scores, (size_t)x->n, err) &&
           rg_ckpt_put_bool(x->w, "tokenizer.ggml.add_space_prefix", prefix, err);
}

static bool put_model(export *x, int32_t *bos, rg_error *err)
{
    const json_t *pre = json_object_get(x->root, "pre_tokenizer");
    int64_t before, after;
    bool prefix;

    if (rg_export_is(x->model, "Unigram"))
        return rg_export_unigram(x, bos, err);
    if (rg_export_is(x->model, "WordPiece"))
        return rg_export_wordpiece(x, bos, err);
    if (!rg_export_is(x->model, "BPE") && !json_is_array(json_object_get(x->model, "merges")))
        return rg_export_cannot(x, "its model");
    if (*rg_export_text(x->model, "continuing_subword_prefix") || *rg_export_text(x->model, "end_of_word_suffix"))
        return rg_export_cannot(x, "BPE with marks inside words");
    if (!rg_export_template(json_object_get(x->root, "post_processor"), &before, &after))
        return rg_export_cannot(x, "a template that puts several tokens on one side");
    if (json_is_true(json_object_get(x->model, "byte_fallback")) &&
        is_spm_shape(json_object_get(x->root, "normalizer"), pre, &prefix))
        return put_spm(x, prefix, bos, err);
    return put_byte_level(x, bos, err);
}

/* Every template by its name; the one without a name is "default" in a folder. */
static bool put_each_template(export *x, const rg_templates *t, rg_error *err)
{
    rg_string names[RG_MAX_TEMPLATES];
    size_t n = 0;

    for (int i = 0; i < t->n; i++) {
        const rg_template *one = &t->all[i];
        bool named = strcmp(one->name, "default") != 0;
        char key[400];
        snprintf(key, sizeof key, "tokenizer.chat_template%s%s", named ? "." : "", named ? one->name : "");
        if (!one->source) /* not a text, which nobody can use */
            continue;
        if (named)
            names[n++] = (rg_string){ one->name, strlen(one->name) };
        if (!rg_ckpt_put_string(x->w, key, one->source, one->n, err))
            return false;
    }
    return !n || rg_ckpt_put_strings(x->w, "tokenizer.chat_templates", names, n, err);
}

static bool put_chat_templates(export *x, rg_error *err)
{
    rg_templates *t = rg_zalloc(sizeof *t);
    bool ok = t || rg_fail_memory(err, sizeof *t);

    ok = ok && rg_templates_read(t, &(rg_text_place){ .ckpt = x->from }, err) && put_each_template(x, t, err);
    if (t)
        rg_templates_fini(t);
    rg_free(t);
    return ok;
}

/* A tokenizer that ridge does not read still has ends that keys name. */
static bool put_ends(export *x, rg_error *err)
{
    rg_error why = { 0 };
    rg_tokenizer *t = rg_tokenizer_open(x->from, &why);
    rg_ends ends;
    bool ok = why.code != RG_E_MEMORY || rg_fail_memory(err, 0);

    ok = ok && rg_ends_read(&ends, x->from, t, x->n, err) && rg_ends_put(x->w, &ends, t, err);
    rg_tokenizer_close(t);
    return ok;
}

static bool put_tokenizer(export *x, int32_t *bos, rg_error *err)
{
    rg_buf merges, fill;
    size_t n = (size_t)x->n;
    bool ok;

    rg_buf_init(&merges, (size_t)1 << 30);
    rg_buf_init(&fill, (size_t)1 << 30);
    x->tokens = rg_array(n, sizeof *x->tokens);
    x->types = rg_array(n, sizeof *x->types);
    x->scores = rg_array(n, sizeof *x->scores);
    x->made = rg_array(n, sizeof *x->made);
    x->ids = rg_dict_new(n);
    ok = x->tokens && x->types && x->scores && x->made && x->ids;
    if (!ok)
        rg_fail_memory(err, n * 32);
    if (ok)
        read_tokens(x);
    ok = ok && fill_tokens(x, &fill, err) && read_merges(x, &merges, err) && put_model(x, bos, err);
    rg_free(x->tokens);
    rg_free(x->types);
    rg_free(x->scores);
    rg_free(x->made);
    rg_free(x->merges);
    rg_dict_free(x->ids);
    rg_buf_fini(&merges);
    rg_buf_fini(&fill);
    return ok;
}

bool rg_tokenizer_export(rg_ckpt_writer *w, const rg_checkpoint *from, int vocab_size, int32_t *bos,
                         char warning[RG_EXPORT_WARNING], rg_error *err)
{
    export x = { .w = w, .from = from, .warning = warning, .n = vocab_size };
    rg_error local = { 0 };
    json_t *root = NULL;
    size_t n;
    char *text;
    bool ok = false;

    err = err ? err : &local;
    err->code = RG_OK;
    warning[0] = 0;
    text = rg_checkpoint_side_file(from, "tokenizer.json", &n, err);
    if (!text && err->code != RG_OK)
        return false;
    if (text) {
        root = rg_json_parse_within("tokenizer.json", text, n, rg_json_budget(n, RG_JSON_TIMES_WORDS), err);
        rg_free(text);
        if (!root)
            return false;
        x.root = root;
        x.model = json_object_get(root, "model");
        ok = put_tokenizer(&x, bos, err);
    }
    json_decref(root);
    if (!ok && err->code != RG_OK)
        return false;
    /* All refusals happen before the first key is put. */
    if (!ok && !put_text(&x, "tokenizer.ggml.model", "none", err))
        return false;
    return put_ends(&x, err) && put_chat_templates(&x, err);
}
