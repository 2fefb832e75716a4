/* gguf_tokenizer.c -- the tokenizer.ggml.* keys of GGUF: "llama" (SentencePiece BPE by scores, bytes for what is
 * unknown), "gpt2" (BPE by merges, split as tokenizer.ggml.pre names it), "t5" (Unigram) and "bert" (WordPiece). */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "text/charclass.h"
#include "text/clean.h"
#include "text/ends.h"
#include "text/internal.h"

#define KEY        "tokenizer.ggml."
#define META_SPACE "\xE2\x96\x81"

enum { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER_DEFINED, TYPE_UNUSED, TYPE_BYTE };

static rg_piece_type piece_type(int32_t type)
{
    switch (type) {
    case TYPE_UNKNOWN:
    case TYPE_CONTROL:
        return RG_PIECE_SPECIAL;
    case TYPE_USER_DEFINED:
        return RG_PIECE_ADDED;
    case TYPE_BYTE:
        return RG_PIECE_BYTE;
    default:
        return RG_PIECE_NORMAL;
    }
}

static bool read_pieces(rg_tokenizer *t, const rg_checkpoint *c, rg_error *err)
{
    const rg_string *pieces = NULL;
    const int32_t *types = NULL;
    size_t n = 0, n_types = 0;

    if (rg_meta_strings(c, KEY "tokens", &pieces, &n, err) < 0 ||
        rg_meta_ints(c, KEY "token_type", &types, &n_types, err) < 0)
        return false;
    if (!n || n > RG_VOCAB_CAP)
        return rg_fail(err, RG_E_INPUT, KEY "tokens: %zu pieces, where 1 to %d are allowed", n, RG_VOCAB_CAP);
    if (types && n_types != n)
        return rg_fail(err, RG_E_INPUT, KEY "token_type has %zu values for %zu tokens", n_types, n);
    if (!rg_vocab_init(&t->vocab, n, err))
        return false;
    for (size_t i = 0; i < n; i++) {
        rg_added a = { .id = (int32_t)i, .text = (char *)pieces[i].data, .n = pieces[i].n };
        int32_t type = types ? types[i] : TYPE_NORMAL;

        if (type != TYPE_BYTE && rg_ends_is_turn(pieces[i])) /* published files have these as other types, too */
            type = TYPE_CONTROL;
        if (!rg_vocab_add(&t->vocab, (int64_t)i, pieces[i], piece_type(type), err))
            return rg_fail_prefix(err, KEY "tokens");
        a.special = piece_type(type) == RG_PIECE_SPECIAL;
        if (!a.n || (!a.special && type != TYPE_USER_DEFINED))
            continue; /* a control token without a text has no place in texts */
        if (!rg_added_add(&t->raw, &a, err))
            return rg_fail_prefix(err, KEY "tokens");
    }
    rg_added_seal(&t->raw);
    rg_added_seal(&t->normalized);
    return rg_vocab_check(&t->vocab, err);
}

/* An id's key; ids beyond the vocabulary, as some files have them, are none. */
static bool read_id(const rg_tokenizer *t, const rg_checkpoint *c, const char *key, int32_t *out, rg_error *err)
{
    int64_t id = -1;

    if (rg_meta_int(c, key, INT32_MIN, UINT32_MAX, &id, err) < 0)
        return false;
    if (id >= 0 && id < t->vocab.n)
        *out = (int32_t)id;
    return true;
}

/* bos before and eos after a text; of a pair, eos after each of them, and sep before the second.  -1: none. */
static bool put_around(rg_tokenizer *t, int32_t bos, int32_t eos, int32_t sep, rg_error *err)
{
    const int32_t single[] = { bos, RG_AROUND_TEXT, eos };
    const int32_t pair[] = { bos, RG_AROUND_TEXT, eos, sep, RG_AROUND_SECOND, eos };
    enum { NONE = -1, FIRST_OF_SECOND = 4, TEXT = 1 };

    for (int i = 0; i < (int)RG_LEN(single); i++)
        if ((i == TEXT || single[i] != NONE) && !rg_around_add(&t->around, single[i], 0, err))
            return false;
    for (int i = 0; i < (int)RG_LEN(pair); i++)
        if ((i == TEXT || pair[i] != NONE) && !rg_around_add(&t->pair, pair[i], i >= FIRST_OF_SECOND, err))
            return false;
    rg_around_seal(&t->around);
    return true;
}

static bool read_around(rg_tokenizer *t, const rg_checkpoint *c, bool add_bos, bool add_eos, rg_error *err)
{
    bool add_sep = false;
    int32_t sep = -1;

    if (rg_meta_bool(c, KEY "add_bos_token", &add_bos, err) < 0 ||
        rg_meta_bool(c, KEY "add_eos_token", &add_eos, err) < 0 ||
        rg_meta_bool(c, KEY "add_sep_token", &add_sep, err) < 0 ||
        (add_sep && !read_id(t, c, KEY "seperator_token_id", &sep, err)))
        return false;
    return put_around(t, add_bos ? t->bos : -1, add_eos ? t->eos : -1, sep, err);
}

/* ---- "llama" ---- */

/* Spaces are written as U+2581, after one put in front or not; and back. */
static bool spm_steps(rg_tokenizer *t, bool prefix, rg_error *err)
{
    rg_norm_step put = { .kind = RG_NORM_PREPEND, .text = (char *)" ", .n_text = 1 };
    rg_norm_step swap = { .kind = RG_NORM_REPLACE, .text = (char *)META_SPACE, .n_text = 3 };

    if (prefix && !rg_normalizer_add(&t->normalizer, put, err))
        return false;
    swap.pattern = rg_regex_literal(" ", 1, err);
    return swap.pattern && rg_normalizer_add(&t->normalizer, swap, err);
}

static bool spm_decoders(rg_tokenizer *t, bool prefix, rg_error *err)
{
    rg_detok_step swap = { RG_DETOK_REPLACE, .text = (char *)" ", .n_text = 1 };
    rg_detok_step strip = { RG_DETOK_STRIP, .text = (char *)" ", .n_text = 1, .start = 1 };

    swap.pattern = rg_regex_literal(META_SPACE, 3, err);
    return swap.pattern && rg_detok_add(&t->detok, swap, err) &&
           rg_detok_add(&t->detok, (rg_detok_step){ RG_DETOK_BYTE_FALLBACK }, err) &&
           rg_detok_add(&t->detok, (rg_detok_step){ RG_DETOK_FUSE }, err) &&
           (!prefix || rg_detok_add(&t->detok, strip, err));
}

static bool read_llama(rg_tokenizer *t, const rg_checkpoint *c, rg_error *err)
{
    bool prefix = true, squeeze = false;
    const float *scores = NULL;
    size_t n = 0;

    if (rg_meta_floats(c, KEY "scores", &scores, &n, err) < 0 ||
        rg_meta_bool(c, KEY "add_space_prefix", &prefix, err) < 0 ||
        rg_meta_bool(c, KEY "remove_extra_whitespaces", &squeeze, err) < 0)
        return false;
    if (!scores || n != (size_t)t->vocab.n)
        return rg_fail(err, RG_E_INPUT, KEY "scores has %zu values for %d tokens", n, t->vocab.n);
    if (squeeze)
        return rg_fail(err, RG_E_UNSUPPORTED, KEY "remove_extra_whitespaces is not supported");
    if (!spm_steps(t, prefix, err) || !spm_decoders(t, prefix, err))
        return false;
    t->model = &rg_word_model_bpe;
    rg_bpe_init(&t->bpe, &t->vocab);
    t->bpe.byte_fallback = true;
    t->bpe.unk = t->vocab.type[0] == RG_PIECE_SPECIAL ? 0 : -1;
    t->kind = "SentencePiece BPE";
    return read_id(t, c, KEY "unknown_token_id", &t->bpe.unk, err) && rg_bpe_set_scores(&t->bpe, scores, err) &&
           rg_bpe_seal(&t->bpe, err) && read_around(t, c, true, false, err);
}

/* ---- "gpt2" ---- */

/* Tokens that are unused, such as those that fill up an embedding, need no merges. */
static bool check_merges(const rg_tokenizer *t, const rg_checkpoint *c, rg_error *err)
{
    const int32_t *types = NULL;
    size_t n_types = 0, n_lost = 0;

    if (rg_meta_ints(c, KEY "token_type", &types, &n_types, err) < 0)
        return false;
    for (int32_t id = 0; id < t->vocab.n; id++)
        n_lost += (!types || types[id] == TYPE_NORMAL) && rg_bpe_is_lost(&t->bpe, id);
    return rg_bpe_check_lost(n_lost, err) || rg_fail_prefix(err, KEY "merges");
}

static bool read_merges(rg_tokenizer *t, const rg_checkpoint *c, rg_error *err)
{
    const rg_string *merges = NULL;
    size_t n = 0;

    if (rg_meta_strings(c, KEY "merges", &merges, &n, err) < 0)
        return false;
    for (size_t i = 0; i < n; i++) {
        /* Between two pieces; a piece is never empty, so a space that comes first belongs to one. */
        const char *space = merges[i].n > 1 ? memchr(merges[i].data + 1, ' ', merges[i].n - 1) : NULL;
        size_t at = space ? (size_t)(space - merges[i].data) : 0;
        if (!space)
            return rg_fail(err, RG_E_INPUT, KEY "merges: number %zu is not a pair of pieces", i);
        if (!rg_bpe_add_pair(&t->bpe, (rg_string){ merges[i].data, at }, (rg_string){ space + 1, merges[i].n - at - 1 },
                             err))
            return rg_fail_prefix(err, KEY "merges");
    }
    return rg_bpe_seal(&t->bpe, err) && check_merges(t, c, err);
}

static bool read_gpt2(rg_tokenizer *t, const rg_checkpoint *c, rg_error *err)
{
    const char *pre = "default", *model = "";
    unsigned flags = 0;
    bool prefix = false;

    if (rg_meta_string(c, KEY "model", &model, err) < 0)
        return false;
    if (strcmp(model, "gpt2")) /* these files name no splitter: the model stands for one */
        pre = model;
    if (rg_meta_string(c, KEY "pre", &pre, err) < 0 || rg_meta_bool(c, KEY "add_space_prefix", &prefix, err) < 0)
        return false;
    if (prefix && !rg_pretok_add(&t->pretok, (rg_pretok_step){ RG_PRETOK_SPACE }, err))
        return false;
    if (!rg_pretok_named(&t->pretok, pre, &flags, err))
        return rg_fail_prefix(err, KEY "pre");
    t->model = &rg_word_model_bpe;
    rg_bpe_init(&t->bpe, &t->vocab);
    t->bpe.ignore_merges = flags & RG_PRE_IGNORE_MERGES;
    t->bpe.byte_fallback = flags & RG_PRE_CHARS;
    t->kind = flags & RG_PRE_CHARS ? "SentencePiece BPE" : "byte-level BPE";
    return read_merges(t, c, err) &&
           (flags & RG_PRE_CHARS ? spm_steps(t, false, err) && spm_decoders(t, false, err)
                                 : rg_detok_add(&t->detok, (rg_detok_step){ RG_DETOK_BYTE_LEVEL }, err)) &&
           read_around(t, c, flags & RG_PRE_ADD_BOS, false, err);
}

/* ---- "t5" ---- */

static bool matchable(const rg_vocab *v, int32_t id)
{
    return v->type[id] == RG_PIECE_NORMAL || v->type[id] == RG_PIECE_ADDED;
}

/* The bytes of the file's character map, or none. */
static bool read_charsmap(rg_tokenizer *t, const rg_checkpoint *c, rg_error *err)
{
    const int32_t *value = NULL;
    size_t n = 0;
    unsigned char *blob;
    rg_norm_step step = { .kind = RG_NORM_CHARSMAP_LONGEST };

    if (rg_meta_ints(c, KEY "precompiled_charsmap", &value, &n, err) < 0)
        return false;
    if (!n)
        return true;
    blob = rg_alloc(n);
    if (!blob)
        return rg_fail_memory(err, n);
    for (size_t i = 0; i < n; i++)
        blob[i] = (unsigned char)value[i];
    step.map = rg_charsmap_new(blob, n, err);
    rg_free(blob);
    return step.map ? rg_normalizer_add(&t->normalizer, step, err) : rg_fail_prefix(err, KEY "precompiled_charsmap");
}

static bool read_t5(rg_tokenizer *t, const rg_checkpoint *c, rg_error *err)
{
    bool prefix = false, squeeze = false;
    const float *scores = NULL;
    const int32_t *types = NULL;
    double *score, lowest = 0;
    size_t n = 0, n_types = 0, n_normal = 0;

    if (rg_meta_ints(c, KEY "token_type", &types, &n_types, err) < 0 ||
        rg_meta_floats(c, KEY "scores", &scores, &n, err) < 0 ||
        rg_meta_bool(c, KEY "add_space_prefix", &prefix, err) < 0 ||
        rg_meta_bool(c, KEY "remove_extra_whitespaces", &squeeze, err) < 0)
        return false;
    if (!scores || n != (size_t)t->vocab.n)
        return rg_fail(err, RG_E_INPUT, KEY "scores has %zu values for %d tokens", n, t->vocab.n);
    score = rg_array(n, sizeof *score);
    if (!score)
        return rg_fail_memory(err, n * sizeof *score);
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(scores[i])) {
            rg_free(score);
            return rg_fail(err, RG_E_INPUT, "the score of id %zu is not a finite number", i);
        }
        score[i] = t->vocab.type[i] == RG_PIECE_ADDED ? 0 : (double)scores[i]; /* user-defined pieces are preferred */
        if ((!types || types[i] == TYPE_NORMAL) && (!n_normal++ || score[i] < lowest))
            lowest = score[i];
    }
    t->model = &rg_word_model_unigram;
    t->kind = "Unigram";
    if (!rg_unigram_init(&t->unigram, &t->vocab, score, lowest, matchable, err))
        return false;
    t->unigram.unk = t->vocab.n > 2 ? 2 : -1;
    return read_id(t, c, KEY "unknown_token_id", &t->unigram.unk, err) && read_charsmap(t, c, err) &&
           (!squeeze || rg_normalizer_add(&t->normalizer, (rg_norm_step){ .kind = RG_NORM_SQUEEZE }, err)) &&
           spm_steps(t, prefix || squeeze, err) && spm_decoders(t, prefix || squeeze, err) &&
           read_around(t, c, false, true, err);
}

/* ---- "bert" ---- */

/* Words begin with U+2581 in these files, and what goes on within one has no mark. */
static bool read_bert(rg_tokenizer *t, const rg_checkpoint *c, rg_error *err)
{
    static const rg_norm_kind accents[] = { RG_NORM_NFD, RG_NORM_STRIP_NONSPACING };
    rg_pretok_step meta = { RG_PRETOK_META, .scheme = RG_PREPEND_ALWAYS, .text = META_SPACE };
    rg_detok_step spaces = { RG_DETOK_META, .text = (char *)META_SPACE, .n_text = 3, .scheme = RG_PREPEND_ALWAYS };
    bool lower = true, strip;

    if (rg_meta_bool(c, KEY "normalizer.lowercase", &lower, err) < 0)
        return false;
    strip = lower;
    if (rg_meta_bool(c, KEY "normalizer.strip_accents", &strip, err) < 0)
        return false;
    for (size_t i = 0; strip && i < RG_LEN(accents); i++)
        if (!rg_normalizer_add(&t->normalizer, (rg_norm_step){ .kind = accents[i] }, err))
            return false;
    t->model = &rg_word_model_wordpiece;
    t->kind = "WordPiece";
    if (!rg_normalizer_add(&t->normalizer, (rg_norm_step){ .kind = RG_NORM_BERT_CLEAN }, err) ||
        (lower && !rg_normalizer_add(&t->normalizer, (rg_norm_step){ .kind = RG_NORM_LOWERCASE }, err)) ||
        !rg_normalizer_add(&t->normalizer, (rg_norm_step){ .kind = RG_NORM_IDEOGRAPHS }, err) ||
        !rg_pretok_class(&t->pretok, rg_is_space, RG_SPLIT_REMOVED, err) ||
        !rg_pretok_class(&t->pretok, rg_is_punct, RG_SPLIT_ISOLATED, err) || !rg_pretok_add(&t->pretok, meta, err) ||
        !rg_wordpiece_init(&t->wordpiece, &t->vocab, (rg_string){ "", 0 }, matchable, err))
        return false;
    t->wordpiece.unk = t->vocab.n > 100 ? 100 : -1;
    if (t->bos < 0 && t->vocab.n > 102) { /* BERT's own, of files that do not say */
        t->bos = 101;
        t->eos = t->eos < 0 ? 102 : t->eos;
    }
    return read_id(t, c, KEY "unknown_token_id", &t->wordpiece.unk, err) &&
           read_id(t, c, KEY "seperator_token_id", &t->eos, err) && rg_detok_add(&t->detok, spaces, err) &&
           put_around(t, t->bos, t->eos, -1, err);
}

bool rg_tokenizer_read_gguf(rg_tokenizer *t, const rg_checkpoint *c, rg_error *err)
{
    static const struct {
        const char *model;
        bool (*read)(rg_tokenizer *t, const rg_checkpoint *c, rg_error *err);
        int bos, eos; /* the usual order, of files that do not say; -1: none */
    } models[] = {
        { "llama", read_llama, 1, 2 },
        { "gpt2", read_gpt2, -1, -1 },
        { "gemma4", read_gpt2, -1, -1 },
        { "t5", read_t5, -1, 1 },
        { "bert", read_bert, -1, -1 },
    };
    const char *model = "";
    size_t i = 0;

    if (rg_meta_string(c, KEY "model", &model, err) < 0)
        return false;
    while (i < RG_LEN(models) && strcmp(models[i].model, model))
        i++;
    if (i == RG_LEN(models))
        return rg_fail(err, RG_E_UNSUPPORTED, KEY "model '%.60s' is not supported", model);
    rg_meta_understand(c, KEY); /* the other keys are for people, or for other uses than text */
    if (!read_pieces(t, c, err))
        return false;
    t->bos = models[i].bos < t->vocab.n && models[i].bos >= 0 && t->vocab.type[models[i].bos] == RG_PIECE_SPECIAL
                 ? models[i].bos
                 : -1;
    t->eos = models[i].eos < t->vocab.n && models[i].eos >= 0 && t->vocab.type[models[i].eos] == RG_PIECE_SPECIAL
                 ? models[i].eos
                 : -1;
    return read_id(t, c, KEY "bos_token_id", &t->bos, err) && read_id(t, c, KEY "eos_token_id", &t->eos, err) &&
           models[i].read(t, c, err);
}
