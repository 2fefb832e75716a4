/* gguf_tokenizer.c -- the tokenizer.ggml.* keys of GGUF: "llama" (SentencePiece BPE by scores, bytes for what is
 * unknown) and "gpt2" (byte-level BPE by merges, split as tokenizer.ggml.pre names it). */
#include <string.h>

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

static bool read_around(rg_tokenizer *t, const rg_checkpoint *c, bool add_bos, rg_error *err)
{
    bool add_eos = false;

    if (rg_meta_bool(c, KEY "add_bos_token", &add_bos, err) < 0 ||
        rg_meta_bool(c, KEY "add_eos_token", &add_eos, err) < 0)
        return false;
    return (!add_bos || t->bos < 0 || rg_around_before(&t->around, t->bos, err)) &&
           (!add_eos || t->eos < 0 || rg_around_after(&t->around, t->eos, err));
}

/* ---- "llama" ---- */

static bool replace_steps(rg_tokenizer *t, bool prefix, rg_error *err)
{
    rg_regex *space = rg_regex_literal(" ", 1, err), *meta = space ? rg_regex_literal(META_SPACE, 3, err) : NULL;

    if (!meta)
        return rg_regex_free(space), false;
    if (prefix &&
        !rg_normalizer_add(&t->normalizer, (rg_norm_step){ RG_NORM_PREPEND, .text = (char *)" ", .n_text = 1 }, err))
        return rg_regex_free(space), rg_regex_free(meta), false;
    if (!rg_normalizer_add(&t->normalizer, (rg_norm_step){ RG_NORM_REPLACE, space, (char *)META_SPACE, 3 }, err))
        return rg_regex_free(meta), false;
    return rg_detok_add(&t->detok, (rg_detok_step){ RG_DETOK_REPLACE, meta, (char *)" ", 1 }, err);
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
    if (!replace_steps(t, prefix, err) || !rg_detok_add(&t->detok, (rg_detok_step){ RG_DETOK_BYTE_FALLBACK }, err) ||
        !rg_detok_add(&t->detok, (rg_detok_step){ RG_DETOK_FUSE }, err) ||
        (prefix && !rg_detok_add(&t->detok,
                                 (rg_detok_step){ RG_DETOK_STRIP, .text = (char *)" ", .n_text = 1, .start = 1 }, err)))
        return false;
    rg_bpe_init(&t->bpe, &t->vocab);
    t->bpe.byte_fallback = true;
    t->bpe.unk = t->vocab.type[0] == RG_PIECE_SPECIAL ? 0 : -1;
    t->kind = "SentencePiece BPE";
    return read_id(t, c, KEY "unknown_token_id", &t->bpe.unk, err) && rg_bpe_set_scores(&t->bpe, scores, err) &&
           rg_bpe_seal(&t->bpe, err) && read_around(t, c, true, err);
}

/* ---- "gpt2" ---- */

static bool read_gpt2(rg_tokenizer *t, const rg_checkpoint *c, rg_error *err)
{
    const char *pre = "default";
    const rg_string *merges = NULL;
    size_t n = 0;
    bool ignore_merges = false, prefix = false;

    if (rg_meta_string(c, KEY "pre", &pre, err) < 0 || rg_meta_strings(c, KEY "merges", &merges, &n, err) < 0 ||
        rg_meta_bool(c, KEY "add_space_prefix", &prefix, err) < 0)
        return false;
    if (prefix && !rg_pretok_add(&t->pretok, (rg_pretok_step){ RG_PRETOK_SPACE }, err))
        return false;
    if (!rg_pretok_named(&t->pretok, pre, &ignore_merges, err))
        return rg_fail_prefix(err, KEY "pre");
    rg_bpe_init(&t->bpe, &t->vocab);
    t->bpe.ignore_merges = ignore_merges;
    t->kind = "byte-level BPE";
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
    return rg_bpe_seal(&t->bpe, err) && rg_detok_add(&t->detok, (rg_detok_step){ RG_DETOK_BYTE_LEVEL }, err) &&
           read_around(t, c, ignore_merges, err);
}

bool rg_tokenizer_read_gguf(rg_tokenizer *t, const rg_checkpoint *c, rg_error *err)
{
    const char *model = "";

    if (rg_meta_string(c, KEY "model", &model, err) < 0)
        return false;
    if (strcmp(model, "llama") && strcmp(model, "gpt2"))
        return rg_fail(err, RG_E_UNSUPPORTED, KEY "model '%.60s' is not supported", model);
    rg_meta_understand(c, KEY); /* what is left of them is for people, or for other uses than text */
    if (!read_pieces(t, c, err))
        return false;
    if (!strcmp(model, "llama")) { /* SentencePiece's own order, of files that do not say */
        t->bos = t->vocab.n > 1 && t->vocab.type[1] == RG_PIECE_SPECIAL ? 1 : -1;
        t->eos = t->vocab.n > 2 && t->vocab.type[2] == RG_PIECE_SPECIAL ? 2 : -1;
    }
    if (!read_id(t, c, KEY "bos_token_id", &t->bos, err) || !read_id(t, c, KEY "eos_token_id", &t->eos, err))
        return false;
    return !strcmp(model, "llama") ? read_llama(t, c, err) : read_gpt2(t, c, err);
}
