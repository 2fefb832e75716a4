/* json_tokenizer.c -- a tokenizer.json: its vocabulary, added tokens and model; json_steps.c reads the other parts. */
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "ckpt/json.h"
#include "text/internal.h"
#include "text/json_parts.h"

static rg_string text_of(const json_t *v)
{
    return (rg_string){ json_string_value(v), json_string_length(v) };
}

/* ---- vocabulary and added tokens ---- */

/* {"piece": id, ...} */
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

/* Read [["piece", score], ...]; *scores becomes the list of scores. */
static bool read_scored(rg_tokenizer *t, const json_t *vocab, double **scores, double *lowest, rg_error *err)
{
    size_t n = json_array_size(vocab);

    if (!json_is_array(vocab))
        return rg_fail(err, RG_E_INPUT, "model: \"vocab\" is not a list");
    if (n > RG_VOCAB_CAP)
        return rg_fail(err, RG_E_INPUT, "vocab: %zu pieces, more than %d", n, RG_VOCAB_CAP);
    *lowest = 0;
    *scores = rg_zalloc_tail(sizeof **scores, n, sizeof **scores);
    if (!*scores)
        return rg_fail_memory(err, n * sizeof **scores);
    if (!rg_vocab_init(&t->vocab, n, err))
        return false;
    for (size_t i = 0; i < n; i++) {
        const json_t *pair = json_array_get(vocab, i), *score = json_array_get(pair, 1);
        double not_finite;
        if (json_array_size(pair) != 2 || !json_is_string(json_array_get(pair, 0)) ||
            (!json_is_number(score) && !rg_json_not_finite(score, &not_finite)))
            return rg_fail(err, RG_E_INPUT, "vocab: item %zu is not a piece with a score", i);
        if (!json_is_number(score))
            return rg_fail(err, RG_E_INPUT, "vocab: the score of item %zu is not a finite number", i);
        (*scores)[i] = json_number_value(score);
        if (!i || (*scores)[i] < *lowest)
            *lowest = (*scores)[i];
        if (!rg_vocab_add(&t->vocab, (int64_t)i, text_of(json_array_get(pair, 0)), RG_PIECE_NORMAL, err))
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
    rg_matcher *m = rg_matcher_new((size_t)json_array_size(list) * 64, err);
    rg_draft two[2] = { 0 };
    bool ok = m;

    if (ok && list && !json_is_null(list) && !json_is_array(list))
        ok = rg_fail(err, RG_E_INPUT, "\"added_tokens\" is not a list");
    t->vocab.n_expected += json_array_size(list);
    for (size_t i = 0; ok && i < json_array_size(list); i++) {
        rg_added token;
        rg_passage text;

        ok = read_added(t, json_array_get(list, i), &token, err);
        if (!ok)
            break;
        if (!token.normalized) {
            ok = rg_added_add(&t->raw, &token, err);
            continue;
        }
        text = (rg_passage){ .text = token.text, .n = token.n };
        ok = rg_normalize(&t->normalizer, m, two, &text, err);
        if (!ok)
            break;
        token.n = text.n;
        if (!token.n) {
            char shown[48];
            ok = rg_fail(err, RG_E_UNSUPPORTED, "added token '%s' normalises to nothing",
                         rg_piece_text(t->vocab.piece[token.id], shown));
            break;
        }
        token.text = (char *)text.text;
        ok = rg_added_add(&t->normalized, &token, err) &&
             rg_vocab_show(&t->vocab, token.id, (rg_string){ text.text, token.n }, err);
    }
    rg_draft_fini(&two[0]);
    rg_draft_fini(&two[1]);
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

/* A mark that BPE puts around characters, copied to *at. */
static bool read_affix(const json_t *model, const char *key, rg_string *out, char **at, rg_error *err)
{
    rg_string s = { 0 };

    if (!rg_json_string(model, key, &s, err))
        return false;
    if (s.n > RG_BPE_AFFIX)
        return rg_fail(err, RG_E_UNSUPPORTED, "model BPE: \"%s\" has %zu bytes, more than %d", key, s.n, RG_BPE_AFFIX);
    if (s.n)
        memcpy(*at, s.data, s.n);
    *out = (rg_string){ *at, s.n };
    *at += s.n;
    return true;
}

/* The id of the unknown token; -1 if the vocabulary has none. */
static bool read_unk(rg_tokenizer *t, const json_t *model, const char *usual, int32_t *unk, bool *named, rg_error *err)
{
    rg_string s = { usual, usual ? strlen(usual) : 0 };

    if (!rg_json_string(model, "unk_token", &s, err))
        return false;
    *named = s.data;
    *unk = s.data ? rg_vocab_id(&t->vocab, s.data, s.n) : -1;
    return true;
}

static bool read_bpe(rg_tokenizer *t, const json_t *model, rg_error *err)
{
    const json_t *dropout = json_object_get(model, "dropout");
    rg_bpe *b = &t->bpe;
    char *at = t->affix = rg_alloc(2 * RG_BPE_AFFIX);
    bool named;

    rg_bpe_init(b, &t->vocab);
    if (!at)
        return rg_fail_memory(err, 2 * RG_BPE_AFFIX);
    if (dropout && !json_is_null(dropout) && json_number_value(dropout) != 0)
        return rg_fail(err, RG_E_UNSUPPORTED, "model BPE: \"dropout\" is not supported");
    if (!read_affix(model, "continuing_subword_prefix", &b->prefix, &at, err) ||
        !read_affix(model, "end_of_word_suffix", &b->suffix, &at, err) ||
        !rg_json_bool(model, "fuse_unk", &b->fuse_unk, err) ||
        !rg_json_bool(model, "byte_fallback", &b->byte_fallback, err) ||
        !rg_json_bool(model, "ignore_merges", &b->ignore_merges, err) ||
        !read_unk(t, model, NULL, &b->unk, &named, err))
        return false;
    b->unk_missing = named && b->unk < 0;
    for (int i = 0; b->byte_fallback && b->unk < 0 && i < 256; i++)
        if (b->byte[i] < 0)
            return rg_fail(err, RG_E_INPUT,
                           "model: byte_fallback, but <0x%02X> is not in the vocabulary and there is no "
                           "unk_token",
                           (unsigned)i);
    return read_merges(t, json_object_get(model, "merges"), err);
}

static bool read_unigram(rg_tokenizer *t, const json_t *model, double *scores, double lowest, rg_error *err)
{
    int64_t unk = -1;

    if (!rg_unigram_init(&t->unigram, &t->vocab, scores, lowest, NULL, err) ||
        !rg_json_int(model, "unk_id", &unk, err) ||
        !rg_json_bool(model, "byte_fallback", &t->unigram.byte_fallback, err))
        return false;
    if (unk < -1 || unk >= t->vocab.n || (unk < 0 && json_is_integer(json_object_get(model, "unk_id"))))
        return rg_fail(err, RG_E_INPUT, "model: unk_id %lld is not in the vocabulary", (long long)unk);
    t->unigram.unk = (int32_t)unk;
    return true;
}

static bool read_wordpiece(rg_tokenizer *t, const json_t *model, rg_error *err)
{
    rg_string prefix = { "##", 2 };
    int64_t most = 100;
    bool named;

    if (!rg_json_string(model, "continuing_subword_prefix", &prefix, err) ||
        !rg_json_int(model, "max_input_chars_per_word", &most, err) ||
        !rg_wordpiece_init(&t->wordpiece, &t->vocab, prefix, NULL, err))
        return false;
    if (most < 0)
        return rg_fail(err, RG_E_INPUT, "model: max_input_chars_per_word %lld is below 0", (long long)most);
    t->wordpiece.max_chars = (size_t)most;
    return read_unk(t, model, "[UNK]", &t->wordpiece.unk, &named, err);
}

static bool read_wordlevel(rg_tokenizer *t, const json_t *model, rg_error *err)
{
    bool named;

    t->wordpiece = (rg_wordpiece){ .vocab = &t->vocab };
    return read_unk(t, model, "<unk>", &t->wordpiece.unk, &named, err);
}

/* Files from before models said their type: by what only that type has. */
static const rg_word_model *old_model(const json_t *model)
{
    return json_object_get(model, "merges")                     ? &rg_word_model_bpe
           : json_is_array(json_object_get(model, "vocab"))     ? &rg_word_model_unigram
           : json_object_get(model, "max_input_chars_per_word") ? &rg_word_model_wordpiece
           : json_object_get(model, "unk_token")                ? &rg_word_model_wordlevel
                                                                : &rg_word_model_bpe;
}

static bool find_model(const json_t *model, const rg_word_model **out, rg_error *err)
{
    static const rg_word_model *const models[] = { &rg_word_model_bpe, &rg_word_model_unigram,
                                                   &rg_word_model_wordpiece, &rg_word_model_wordlevel };
    rg_string type = { 0 };

    if (!json_is_object(model))
        return rg_fail(err, RG_E_INPUT, "there is no \"model\"");
    if (!rg_json_string(model, "type", &type, err))
        return false;
    *out = type.data ? NULL : old_model(model);
    for (size_t i = 0; type.data && i < RG_LEN(models); i++)
        if (!strcmp(models[i]->type, type.data))
            *out = models[i];
    return *out || rg_fail(err, RG_E_UNSUPPORTED, "model '%.60s' is not supported", type.data);
}

static const char *kind_of(const rg_pretok *p)
{
    for (int i = 0; i < p->n; i++)
        if (p->steps[i].kind == RG_PRETOK_BYTES)
            return "byte-level BPE";
    return "SentencePiece BPE";
}

/* Added tokens need no merges. */
static bool check_merges(const rg_tokenizer *t, rg_error *err)
{
    size_t n_lost = 0;

    for (int32_t id = 0; id < t->vocab.n; id++)
        n_lost += rg_bpe_is_lost(&t->bpe, id);
    return rg_bpe_check_lost(n_lost, err) || rg_fail_prefix(err, "model");
}

/* The vocabulary, the model that stands on it, and the added tokens. */
static bool read_model(rg_tokenizer *t, const json_t *root, rg_error *err)
{
    json_t *model = json_object_get(root, "model"), *vocab = json_object_get(model, "vocab");
    const rg_word_model *kind = NULL;
    double *scores = NULL, lowest = 0;
    bool ok;

    if (!find_model(model, &kind, err))
        return false;
    t->model = kind;
    t->kind = kind == &rg_word_model_bpe ? kind_of(&t->pretok) : kind->type;
    if (kind == &rg_word_model_unigram) {
        ok = read_scored(t, vocab, &scores, &lowest, err);
        if (!ok)
            return rg_free(scores), false;
        ok = read_unigram(t, model, scores, lowest, err);
    } else {
        ok = read_vocab(t, vocab, err) && (kind == &rg_word_model_bpe         ? read_bpe(t, model, err)
                                           : kind == &rg_word_model_wordpiece ? read_wordpiece(t, model, err)
                                                                              : read_wordlevel(t, model, err));
    }
    /* After the model, which knows the pieces as they are written and not as added tokens are shown. */
    return ok && read_all_added(t, json_object_get(root, "added_tokens"), err) && rg_vocab_check(&t->vocab, err) &&
           (kind != &rg_word_model_bpe || check_merges(t, err));
}

static bool check_ids(const rg_tokenizer *t, const rg_around *a, rg_error *err)
{
    for (int i = 0; i < a->n; i++)
        if (a->item[i] >= t->vocab.n)
            return rg_fail(err, RG_E_INPUT, "post_processor: id %d is not in the vocabulary", a->item[i]);
    return true;
}

static bool read_root(rg_tokenizer *t, const json_t *root, rg_error *err)
{
    /* "truncation" and "padding" are for batches: the caller sets them, as with the published libraries. */
    if (!rg_json_normalizer(&t->normalizer, json_object_get(root, "normalizer"), err) ||
        !rg_json_pretok(&t->pretok, json_object_get(root, "pre_tokenizer"), err) ||
        !rg_json_detok(&t->detok, json_object_get(root, "decoder"), err) ||
        !rg_json_around(&t->around, &t->pair, json_object_get(root, "post_processor"), err) ||
        !read_model(t, root, err) || !check_ids(t, &t->around, err) || !check_ids(t, &t->pair, err))
        return false;
    if (t->around.n_before)
        t->bos = t->around.before[0];
    return true;
}

bool rg_tokenizer_read_json(rg_tokenizer *t, const char *text, size_t n, rg_error *err)
{
    json_t *root = rg_json_parse_within("tokenizer.json", text, n, rg_json_budget(n, RG_JSON_TIMES_WORDS), err);
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
