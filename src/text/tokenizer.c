/* tokenizer.c -- see tokenizer.h: opening, ids to text, and facts; text to ids is encode.c. */
#include "text/tokenizer.h"

#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "text/clean.h"
#include "text/internal.h"

enum { FILE_CAP = 1 << 28 };

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
    if (t->model)
        t->model->fini(t);
    rg_added_fini(&t->raw);
    rg_added_fini(&t->normalized);
    rg_normalizer_fini(&t->normalizer);
    rg_pretok_fini(&t->pretok);
    rg_detok_fini(&t->detok);
    rg_vocab_fini(&t->vocab);
    rg_free(t->affix);
    for (int place = 0; place < RG_SPELL_PLACES; place++) {
        rg_free((void *)(uintptr_t)t->spelling.at[place].data);
        rg_free((void *)(uintptr_t)t->spelling.at[place].offset);
    }
    rg_free((void *)(uintptr_t)t->spelling.kind);
    rg_free(t);
}

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

/* What each id shows in a place; kind: of each id, written if it is not NULL. */
static bool make_table(rg_tokenizer *t, unsigned place, uint8_t *kind, rg_error *err)
{
    rg_matcher *m = rg_matcher_new((size_t)t->vocab.n * 64, err);
    uint32_t *offset = rg_zalloc_tail(sizeof *offset, (size_t)t->vocab.n, sizeof *offset);
    rg_buf out;
    bool ok = m && (offset || rg_fail_memory(err, (size_t)t->vocab.n));

    rg_buf_init(&out, UINT32_MAX - 1);
    for (int32_t id = 0; ok && id < t->vocab.n; id++) {
        rg_spoken p = { t->vocab.piece[id], place, 0 };
        if (known(t, id) && !skipped(t, id))
            ok = rg_detok_piece(&t->detok, m, &p, &out, err);
        offset[id + 1] = (uint32_t)out.n;
        if (kind)
            kind[id] = (uint8_t)p.kind;
    }
    ok = ok && (rg_buf_add(&out, "", 0) || rg_fail_memory(err, 1));
    rg_matcher_free(m);
    t->spelling.at[place].data = out.data;
    t->spelling.at[place].offset = offset;
    return ok;
}

static bool make_spelling(rg_tokenizer *t, rg_error *err)
{
    unsigned minds = rg_detok_spelling(&t->detok, &t->spelling);
    uint8_t *kind = rg_zalloc_tail(1, (size_t)t->vocab.n, 1);

    t->spelling.n = t->vocab.n;
    t->spelling.kind = kind;
    if (!kind)
        return rg_fail_memory(err, (size_t)t->vocab.n);
    for (unsigned place = 0; place < RG_SPELL_PLACES; place++)
        if (!(place & ~minds) && !make_table(t, place, place ? NULL : kind, err))
            return false;
    return true;
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
    if (ok && make_spelling(t, err))
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

rg_tokenizer *rg_tokenizer_open_for(const rg_checkpoint *c, int32_t n_rows, rg_error *err)
{
    rg_tokenizer *t = rg_tokenizer_open(c, err);

    if (!t || rg_tokenizer_size(t) <= n_rows)
        return t;
    rg_fail(err, RG_E_INPUT, "%s: the tokenizer has %d ids, the embedding %d rows", rg_checkpoint_path(c),
            (int)rg_tokenizer_size(t), (int)n_rows);
    rg_tokenizer_close(t);
    return NULL;
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

/* ---- ids to text ---- */

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

const rg_spelling *rg_tokenizer_spelling(const rg_tokenizer *t)
{
    return &t->spelling;
}

bool rg_tokenizer_streams(const rg_tokenizer *t)
{
    return rg_detok_streams(&t->detok);
}

rg_string rg_tokenizer_piece(const rg_tokenizer *t, int32_t id)
{
    return known(t, id) ? t->vocab.piece[id] : (rg_string){ "", 0 };
}

const char *rg_tokenizer_kind(const rg_tokenizer *t)
{
    return t->kind;
}
