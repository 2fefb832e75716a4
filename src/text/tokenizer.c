/* tokenizer.c -- see tokenizer.h: opening, and the way of a text through the parts.
 *
 * Added tokens are cut out of the text as it came; each stretch between them is normalised, and added tokens that are
 * looked for in normalised text are cut out of that; what is left is cut into words, and the model makes ids of
 * each. */
#include "text/tokenizer.h"

#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "text/clean.h"
#include "text/internal.h"

enum { TEXT_CAP = 1 << 30, FILE_CAP = 1 << 28 };

/* ---- opening ---- */

static rg_tokenizer *tokenizer_new(rg_error *err)
{
    rg_tokenizer *t = rg_zalloc(sizeof *t);

    if (!t)
        return rg_fail_memory(err, sizeof *t), NULL;
    t->bos = t->eos = -1;
    t->kind = "";
    return t;
}

void rg_tokenizer_close(rg_tokenizer *t)
{
    if (!t)
        return;
    rg_bpe_fini(&t->bpe);
    rg_added_fini(&t->raw);
    rg_added_fini(&t->normalized);
    rg_normalizer_fini(&t->normalizer);
    rg_pretok_fini(&t->pretok);
    rg_detok_fini(&t->detok);
    rg_vocab_fini(&t->vocab);
    rg_free(t->stream);
    rg_free(t->stream_offset);
    rg_free(t);
}

/* What each id adds to a text in the making. */
static bool make_stream(rg_tokenizer *t, rg_error *err)
{
    rg_matcher *m = rg_matcher_new(err);
    rg_buf out;
    bool ok = m;

    rg_buf_init(&out, UINT32_MAX - 1);
    t->stream_offset = rg_array((size_t)t->vocab.n + 1, sizeof *t->stream_offset);
    if (!t->stream_offset)
        ok = rg_fail_memory(err, (size_t)t->vocab.n);
    for (int32_t id = 0; ok && id < t->vocab.n; id++) {
        rg_string piece = t->vocab.piece[id];
        char byte = (char)rg_piece_byte(piece);

        if (t->vocab.type[id] == RG_PIECE_BYTE)
            ok = rg_piece_byte(piece) < 0 || rg_buf_add(&out, &byte, 1) || rg_fail_memory(err, 1);
        else if (t->vocab.type[id] != RG_PIECE_SPECIAL)
            ok = rg_detok_piece(&t->detok, m, piece, &out, err);
        t->stream_offset[id + 1] = (uint32_t)out.n;
    }
    rg_matcher_free(m);
    t->stream = out.data;
    if (ok && !t->stream)
        ok = (t->stream = rg_zalloc(1)) || rg_fail_memory(err, 1);
    return ok;
}

/* A configuration's id, where the tokenizer itself has not said. */
static void config_id(const rg_tokenizer *t, const rg_checkpoint *c, const char *key, int32_t *out)
{
    int64_t id = -1;
    rg_error ignored;

    if (*out < 0 && rg_meta_type_of(c, key) == RG_META_INT && rg_meta_int(c, key, 0, INT32_MAX, &id, &ignored) == 1 &&
        id < t->vocab.n)
        *out = (int32_t)id;
}

static bool read_hf(rg_tokenizer *t, const rg_checkpoint *c, const char *text, size_t n, rg_error *err)
{
    rg_error why = { 0 };
    size_t n_config = 0;
    char *config = rg_checkpoint_side_file(c, "tokenizer_config.json", &n_config, &why);
    bool ok = config || why.code == RG_OK;

    if (!ok && err)
        *err = why;
    ok = ok && rg_tokenizer_read_json(t, text, n, err) &&
         (!config || rg_tokenizer_read_config(t, config, n_config, err));
    rg_free(config);
    if (!ok)
        return false;
    config_id(t, c, "bos_token_id", &t->bos);
    config_id(t, c, "eos_token_id", &t->eos);
    config_id(t, c, "eos_token_id.0", &t->eos);
    return true;
}

static rg_tokenizer *finish(rg_tokenizer *t, bool ok, rg_error *err)
{
    if (ok && make_stream(t, err))
        return t;
    rg_tokenizer_close(t);
    return NULL;
}

rg_tokenizer *rg_tokenizer_open(const rg_checkpoint *c, rg_error *err)
{
    rg_error why = { 0 };
    rg_tokenizer *t;
    size_t n = 0;
    char *text = NULL;
    bool ok;

    if (err)
        *err = (rg_error){ 0 };
    if (rg_checkpoint_kind(c) == RG_CKPT_HF) {
        text = rg_checkpoint_side_file(c, "tokenizer.json", &n, &why);
        if (!text) {
            if (err)
                *err = why;
            return NULL;
        }
    } else {
        const char *model = NULL;
        int got = rg_meta_string(c, "tokenizer.ggml.model", &model, err);
        if (got <= 0 || !strcmp(model, "none") || !strcmp(model, "no_vocab"))
            return NULL;
    }
    t = tokenizer_new(err);
    ok = t && (text ? read_hf(t, c, text, n, err) : rg_tokenizer_read_gguf(t, c, err));
    rg_free(text);
    return finish(t, ok, err);
}

static rg_tokenizer *open_files(const char *json, const char *config, rg_error *err)
{
    size_t n = 0, n_config = 0;
    char *text = rg_file_slurp(json, FILE_CAP, &n, err), *more = NULL;
    rg_tokenizer *t = text ? tokenizer_new(err) : NULL;
    bool ok = t && rg_tokenizer_read_json(t, text, n, err);

    if (ok && config && rg_path_look(config) != RG_PATH_NONE) {
        more = rg_file_slurp(config, FILE_CAP, &n_config, err);
        ok = more && rg_tokenizer_read_config(t, more, n_config, err);
    }
    rg_free(text);
    rg_free(more);
    return finish(t, ok, err);
}

rg_tokenizer *rg_tokenizer_open_path(const char *path, rg_error *err)
{
    char json[4096], config[4096];
    size_t n = strlen(path);
    rg_checkpoint *c;
    rg_tokenizer *t;
    rg_error why = { 0 };

    if (rg_path_look(path) == RG_PATH_DIR) {
        if (rg_path_join(json, sizeof json, path, "tokenizer.json") && rg_path_look(json) != RG_PATH_NONE)
            return open_files(json, rg_path_join(config, sizeof config, path, "tokenizer_config.json") ? config : NULL,
                              err);
    } else if (n > 5 && !strcmp(path + n - 5, ".json")) {
        return open_files(path, NULL, err);
    }
    c = rg_checkpoint_open(path, RG_CKPT_NO_WEIGHTS, err);
    if (!c)
        return NULL;
    t = rg_tokenizer_open(c, &why);
    if (!t && why.code == RG_OK)
        rg_fail(&why, RG_E_INPUT, "%s has no tokenizer", path);
    if (!t && err)
        *err = why;
    rg_checkpoint_close(c);
    return t;
}

/* ---- text to ids ---- */

void rg_ids_fini(rg_ids *ids)
{
    rg_free(ids->id);
    *ids = (rg_ids){ 0 };
}

/* One call's memory. */
typedef struct work {
    const rg_tokenizer *t;
    bool plain;
    rg_matcher *matcher;
    rg_buf clean, normal[2];
    rg_words words;
    rg_bpe_work bpe;
    rg_ids *ids;
    rg_error *err;
} work;

static bool encode_words(work *w, const char *text, size_t n, bool first)
{
    const rg_tokenizer *t = w->t;

    if (!rg_pretok_cut(&t->pretok, w->matcher, text, n, first, &w->words, w->err))
        return false;
    for (size_t i = 0; i < w->words.n; i++) {
        const rg_word *word = &w->words.word[i];
        rg_string s = { w->words.text + word->from, word->to - word->from };
        if (!rg_bpe_encode(&t->bpe, &w->bpe, s, w->plain, w->ids, w->err))
            return false;
    }
    return true;
}

typedef bool stretch(work *w, const char *text, size_t n, bool first);

/* The ids of the tokens of a set in text, and what `between` makes of each stretch between them. */
static bool cut_out(work *w, const rg_added_set *set, const char *text, size_t n, bool first, stretch *between)
{
    size_t done = 0;
    rg_search search = { 0 };
    rg_found f;

    while (rg_added_next(set, text, n, w->plain, &search, &f)) {
        if (f.from > done && !between(w, text + done, f.from - done, first && !done))
            return false;
        if (!rg_ids_add(w->ids, f.token->id, w->err))
            return false;
        done = f.to;
    }
    return done == n || between(w, text + done, n - done, first && !done);
}

static bool encode_stretch(work *w, const char *text, size_t n, bool first)
{
    if (!rg_normalize(&w->t->normalizer, w->matcher, w->normal, &text, &n, &first, w->err))
        return false;
    return cut_out(w, &w->t->normalized, text, n, first, encode_words);
}

static bool add_all(rg_ids *ids, const int32_t *id, int n, rg_error *err)
{
    for (int i = 0; i < n; i++)
        if (!rg_ids_add(ids, id[i], err))
            return false;
    return true;
}

bool rg_tokenizer_encode(const rg_tokenizer *t, const char *text, size_t n, unsigned flags, rg_ids *ids, rg_error *err)
{
    work w = { .t = t, .plain = flags & RG_ENCODE_PLAIN, .ids = ids, .err = err };
    bool special = !(flags & RG_ENCODE_NO_SPECIAL), ok;

    if (n > TEXT_CAP)
        return rg_fail(err, RG_E_LIMIT, "a text of %zu bytes, more than %d", n, TEXT_CAP);
    w.matcher = rg_matcher_new(err);
    if (!w.matcher)
        return false;
    rg_buf_init(&w.clean, SIZE_MAX / 2);
    ok = !special || add_all(ids, t->around.before, t->around.n_before, err);
    if (ok && !rg_utf8_valid(text, n)) {
        ok = rg_clean_add(&w.clean, text, n) || rg_fail_memory(err, 3 * n);
        text = w.clean.data;
        n = w.clean.n;
    }
    ok = ok && cut_out(&w, &t->raw, text, n, true, encode_stretch) &&
         (!special || add_all(ids, t->around.after, t->around.n_after, err));
    rg_buf_fini(&w.clean);
    rg_buf_fini(&w.normal[0]);
    rg_buf_fini(&w.normal[1]);
    rg_words_fini(&w.words);
    rg_bpe_work_fini(&w.bpe);
    rg_matcher_free(w.matcher);
    return ok;
}

/* ---- ids to text ---- */

static bool known(const rg_tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->vocab.n && t->vocab.type[id] != RG_PIECE_HOLE;
}

/* A special token that is shown otherwise than it is written is not taken for one, as in the published library. */
static bool skipped(const rg_tokenizer *t, int32_t id)
{
    rg_string shown = t->vocab.piece[id];
    int32_t as = rg_vocab_find(&t->vocab, shown.data, shown.n);

    return t->vocab.type[id] == RG_PIECE_SPECIAL && as >= 0 && t->vocab.type[as] == RG_PIECE_SPECIAL;
}

char *rg_tokenizer_decode(const rg_tokenizer *t, const int32_t *ids, size_t n, bool skip_special, size_t *n_text,
                          rg_error *err)
{
    rg_parts parts = { 0 };
    rg_buf out;
    bool ok = true;

    rg_buf_init(&out, SIZE_MAX / 2);
    for (size_t i = 0; ok && i < n; i++) {
        if (known(t, ids[i]) && !(skip_special && skipped(t, ids[i])))
            ok = rg_parts_add(&parts, t->vocab.piece[ids[i]].data, t->vocab.piece[ids[i]].n, err);
    }
    ok = ok && rg_detok_text(&t->detok, &parts, &out, err) && (rg_buf_add(&out, "", 0) || rg_fail_memory(err, 1));
    rg_parts_fini(&parts);
    if (!ok)
        return rg_buf_fini(&out), NULL;
    *n_text = out.n;
    return out.data;
}

/* ---- facts ---- */

int32_t rg_tokenizer_size(const rg_tokenizer *t)
{
    return t->vocab.n;
}

int32_t rg_tokenizer_bos(const rg_tokenizer *t)
{
    return t->bos;
}

int32_t rg_tokenizer_eos(const rg_tokenizer *t)
{
    return t->eos;
}

bool rg_tokenizer_is_special(const rg_tokenizer *t, int32_t id)
{
    return known(t, id) && t->vocab.type[id] == RG_PIECE_SPECIAL;
}

bool rg_tokenizer_adds_bos(const rg_tokenizer *t)
{
    return t->around.n_before > 0 && t->around.before[0] == t->bos;
}

void rg_tokenizer_bytes(const rg_tokenizer *t, const char **data, const uint32_t **offset)
{
    *data = t->stream;
    *offset = t->stream_offset;
}

rg_string rg_tokenizer_piece(const rg_tokenizer *t, int32_t id)
{
    return known(t, id) ? t->vocab.piece[id] : (rg_string){ "", 0 };
}

const char *rg_tokenizer_kind(const rg_tokenizer *t)
{
    return t->kind;
}
