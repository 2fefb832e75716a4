/* json_tokenizer.c -- a tokenizer.json: its vocabulary, added tokens and model; json_steps.c reads the other parts. */
#include <string.h>

#include "base/mem.h"
#include "ckpt/json.h"
#include "text/internal.h"

static rg_string text_of(const json_t *v)
{
    return (rg_string){ json_string_value(v), json_string_length(v) };
}

/* ---- vocabulary and added tokens ---- */

static bool read_vocab(rg_tokenizer *t, json_t *vocab, rg_error *err)
{
    void *it;

    if (!json_is_object(vocab))
        return rg_fail(err, RG_E_INPUT, "model: \"vocab\" is not an object");
    if (!rg_vocab_init(&t->vocab, json_object_size(vocab), err))
        return false;
    for (it = json_object_iter(vocab); it; it = json_object_iter_next(vocab, it)) {
        rg_string piece = { json_object_iter_key(it), json_object_iter_key_len(it) };
        const json_t *id = json_object_iter_value(it);
        if (!json_is_integer(id)) {
            char shown[48];
            return rg_fail(err, RG_E_INPUT, "vocab: the id of '%s' is not an integer", rg_piece_text(piece, shown));
        }
        if (!rg_vocab_add(&t->vocab, json_integer_value(id), piece, RG_PIECE_NORMAL, err))
            return rg_fail_prefix(err, "vocab");
    }
    return true;
}

/* One added token, in the vocabulary; *token says the rest. */
static bool read_added(rg_tokenizer *t, const json_t *v, rg_added *token, rg_error *err)
{
    rg_string content = { 0 };
    int64_t id = -1;
    int32_t known;
    char shown[48];

    *token = (rg_added){ .normalized = true };
    if (!rg_json_string(v, "content", &content, err) || !rg_json_int(v, "id", &id, err) ||
        !rg_json_bool(v, "special", &token->special, err) || !rg_json_bool(v, "normalized", &token->normalized, err) ||
        !rg_json_bool(v, "lstrip", &token->lstrip, err) || !rg_json_bool(v, "rstrip", &token->rstrip, err) ||
        !rg_json_bool(v, "single_word", &token->single_word, err))
        return false;
    if (!content.n)
        return rg_fail(err, RG_E_INPUT, "the added token with id %lld is empty", (long long)id);
    known = rg_vocab_find(&t->vocab, content.data, content.n);
    if (known < 0 && !rg_vocab_add_outside(&t->vocab, id, content, RG_PIECE_ADDED, err))
        return false;
    if (known >= 0 && known != id)
        return rg_fail(err, RG_E_INPUT, "added token '%s' has id %lld here and %d in the vocabulary",
                       rg_piece_text(content, shown), (long long)id, known);
    t->vocab.type[id] = token->special ? RG_PIECE_SPECIAL : RG_PIECE_ADDED;
    token->id = (int32_t)id;
    token->text = (char *)content.data;
    token->n = content.n;
    return true;
}

static bool read_all_added(rg_tokenizer *t, const json_t *list, rg_error *err)
{
    rg_matcher *m = rg_matcher_new(err);
    rg_buf two[2];
    bool ok = m;

    rg_buf_init(&two[0], 0);
    rg_buf_init(&two[1], 0);
    if (ok && list && !json_is_null(list) && !json_is_array(list))
        ok = rg_fail(err, RG_E_INPUT, "\"added_tokens\" is not a list");
    for (size_t i = 0; ok && i < json_array_size(list); i++) {
        rg_added token;
        const char *text;
        bool first = true;

        ok = read_added(t, json_array_get(list, i), &token, err);
        if (!ok)
            break;
        if (!token.normalized) {
            ok = rg_added_add(&t->raw, &token, err);
            continue;
        }
        text = token.text;
        ok = rg_normalize(&t->normalizer, m, two, &text, &token.n, &first, err);
        if (!ok)
            break;
        if (!token.n) {
            char shown[48];
            ok = rg_fail(err, RG_E_UNSUPPORTED, "added token '%s' normalises to nothing",
                         rg_piece_text(t->vocab.piece[token.id], shown));
            break;
        }
        token.text = (char *)text;
        ok = rg_added_add(&t->normalized, &token, err) &&
             rg_vocab_show(&t->vocab, token.id, (rg_string){ text, token.n }, err);
    }
    rg_buf_fini(&two[0]);
    rg_buf_fini(&two[1]);
    rg_matcher_free(m);
    rg_added_seal(&t->raw);
    rg_added_seal(&t->normalized);
    return ok;
}

/* ---- the model ---- */

/* "a b" or ["a", "b"]. */
static bool read_merge(const json_t *v, rg_string *left, rg_string *right)
{
    const char *space;

    if (json_is_array(v) && json_array_size(v) == 2 && json_is_string(json_array_get(v, 0)) &&
        json_is_string(json_array_get(v, 1))) {
        *left = text_of(json_array_get(v, 0));
        *right = text_of(json_array_get(v, 1));
        return true;
    }
    if (!json_is_string(v))
        return false;
    *left = text_of(v);
    space = memchr(left->data, ' ', left->n);
    if (!space)
        return false;
    *right = (rg_string){ space + 1, left->n - (size_t)(space + 1 - left->data) };
    left->n = (size_t)(space - left->data);
    return !memchr(right->data, ' ', right->n);
}

static bool read_merges(rg_tokenizer *t, const json_t *merges, rg_error *err)
{
    if (!json_is_array(merges))
        return rg_fail(err, RG_E_INPUT, "model: \"merges\" is not a list");
    for (size_t i = 0; i < json_array_size(merges); i++) {
        rg_string left, right;
        if (!read_merge(json_array_get(merges, i), &left, &right))
            return rg_fail(err, RG_E_INPUT, "merge %zu is not a pair of pieces", i);
        if (!rg_bpe_add_pair(&t->bpe, left, right, err))
            return false;
    }
    return rg_bpe_seal(&t->bpe, err);
}

/* Options that would change the ids and that ridge does not have. */
static bool refuse_options(const json_t *model, rg_error *err)
{
    static const char *const strings[] = { "continuing_subword_prefix", "end_of_word_suffix" };
    const json_t *dropout = json_object_get(model, "dropout");

    for (size_t i = 0; i < RG_LEN(strings); i++) {
        rg_string s = { 0 };
        if (!rg_json_string(model, strings[i], &s, err))
            return false;
        if (s.n)
            return rg_fail(err, RG_E_UNSUPPORTED, "model BPE: \"%s\" is not supported", strings[i]);
    }
    if (dropout && !json_is_null(dropout) && json_number_value(dropout) != 0)
        return rg_fail(err, RG_E_UNSUPPORTED, "model BPE: \"dropout\" is not supported");
    return true;
}

static bool read_bpe(rg_tokenizer *t, const json_t *model, rg_error *err)
{
    rg_bpe *b = &t->bpe;
    rg_string unk = { 0 };
    char shown[48];

    rg_bpe_init(b, &t->vocab);
    if (!refuse_options(model, err) || !rg_json_bool(model, "fuse_unk", &b->fuse_unk, err) ||
        !rg_json_bool(model, "byte_fallback", &b->byte_fallback, err) ||
        !rg_json_bool(model, "ignore_merges", &b->ignore_merges, err) || !rg_json_string(model, "unk_token", &unk, err))
        return false;
    if (unk.data) {
        b->unk = rg_vocab_id(&t->vocab, unk.data, unk.n);
        if (b->unk < 0)
            return rg_fail(err, RG_E_INPUT, "model: unk_token '%s' is not in the vocabulary",
                           rg_piece_text(unk, shown));
    }
    for (int i = 0; b->byte_fallback && b->unk < 0 && i < 256; i++)
        if (b->byte[i] < 0)
            return rg_fail(err, RG_E_INPUT,
                           "model: byte_fallback, but <0x%02X> is not in the vocabulary and there is no "
                           "unk_token",
                           (unsigned)i);
    return read_merges(t, json_object_get(model, "merges"), err);
}

static bool check_ids(const rg_tokenizer *t, const int32_t *ids, int n, rg_error *err)
{
    for (int i = 0; i < n; i++)
        if (ids[i] >= t->vocab.n)
            return rg_fail(err, RG_E_INPUT, "post_processor: id %d is not in the vocabulary", ids[i]);
    return true;
}

static const char *kind_of(const rg_pretok *p)
{
    for (int i = 0; i < p->n; i++)
        if (p->steps[i].kind == RG_PRETOK_BYTES)
            return "byte-level BPE";
    return "SentencePiece BPE";
}

static bool read_root(rg_tokenizer *t, const json_t *root, rg_error *err)
{
    json_t *model = json_object_get(root, "model");
    rg_string type = { "BPE", 3 }; /* old files do not say */

    if (!json_is_object(model))
        return rg_fail(err, RG_E_INPUT, "there is no \"model\"");
    if (!rg_json_string(model, "type", &type, err))
        return false;
    if (strcmp(type.data, "BPE"))
        return rg_fail(err, RG_E_UNSUPPORTED, "model '%.60s' is not supported", type.data);
    /* "truncation" and "padding" are about batches: whoever encodes sets them, as the published libraries do. */
    if (!rg_json_normalizer(&t->normalizer, json_object_get(root, "normalizer"), err) ||
        !rg_json_pretok(&t->pretok, json_object_get(root, "pre_tokenizer"), err) ||
        !rg_json_detok(&t->detok, json_object_get(root, "decoder"), err) ||
        !rg_json_around(&t->around, json_object_get(root, "post_processor"), err) ||
        !read_vocab(t, json_object_get(model, "vocab"), err) ||
        !read_all_added(t, json_object_get(root, "added_tokens"), err) || !rg_vocab_check(&t->vocab, err) ||
        !read_bpe(t, model, err) || !check_ids(t, t->around.before, t->around.n_before, err) ||
        !check_ids(t, t->around.after, t->around.n_after, err))
        return false;
    t->kind = kind_of(&t->pretok);
    if (t->around.n_before)
        t->bos = t->around.before[0];
    return true;
}

bool rg_tokenizer_read_json(rg_tokenizer *t, const char *text, size_t n, rg_error *err)
{
    json_t *root = rg_json_parse("tokenizer.json", text, n, err);
    bool ok;

    if (!root)
        return false;
    ok = read_root(t, root, err) || rg_fail_prefix(err, "tokenizer.json");
    json_decref(root);
    return ok;
}

/* "bos_token" is a string, or an added token's object. */
static bool named_token(const rg_tokenizer *t, const json_t *config, const char *key, int32_t *out, rg_error *err)
{
    const json_t *v = json_object_get(config, key);
    rg_string s = { 0 };

    if (json_is_object(v) ? !rg_json_string(v, "content", &s, err) : !rg_json_string(config, key, &s, err))
        return false;
    if (s.n && rg_vocab_find(&t->vocab, s.data, s.n) >= 0)
        *out = rg_vocab_find(&t->vocab, s.data, s.n);
    return true;
}

bool rg_tokenizer_read_config(rg_tokenizer *t, const char *text, size_t n, rg_error *err)
{
    json_t *config = rg_json_parse("tokenizer_config.json", text, n, err);
    bool ok;

    if (!config)
        return false;
    ok = (named_token(t, config, "bos_token", &t->bos, err) && named_token(t, config, "eos_token", &t->eos, err)) ||
         rg_fail_prefix(err, "tokenizer_config.json");
    json_decref(config);
    return ok;
}
