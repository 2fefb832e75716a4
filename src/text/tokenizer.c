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
    rg_free(t->stream.data);
    rg_free(t->stream.offset);
    rg_free(t->first.data);
    rg_free(t->first.offset);
    rg_free(t);
}

/* What each id adds to a text in the making, which begins with it or does not. */
static bool make_stream(const rg_tokenizer *t, struct rg_stream *s, bool first, rg_error *err)
{
    rg_matcher *m = rg_matcher_new((size_t)t->vocab.n * 64, err);
    rg_buf out;
    bool ok = m;

    rg_buf_init(&out, UINT32_MAX - 1);
    s->offset = rg_array((size_t)t->vocab.n + 1, sizeof *s->offset);
    if (!s->offset)
        ok = rg_fail_memory(err, (size_t)t->vocab.n);
    for (int32_t id = 0; ok && id < t->vocab.n; id++) {
        bool byte = t->vocab.type[id] == RG_PIECE_BYTE; /* of GGUF, whose decoders know bytes by their type */
        if (t->vocab.type[id] != RG_PIECE_SPECIAL && t->vocab.type[id] != RG_PIECE_HOLE)
            ok = rg_detok_piece(&t->detok, m, t->vocab.piece[id], first, byte, &out, err);
        s->offset[id + 1] = (uint32_t)out.n;
    }
    rg_matcher_free(m);
    s->data = out.data;
    if (ok && !s->data)
        ok = (s->data = rg_zalloc(1)) || rg_fail_memory(err, 1);
    return ok;
}

static bool make_streams(rg_tokenizer *t, rg_error *err)
{
    return make_stream(t, &t->stream, false, err) &&
           (!rg_detok_minds_first(&t->detok) || make_stream(t, &t->first, true, err));
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
    if (ok && make_streams(t, err))
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
    *data = t->stream.data;
    *offset = t->stream.offset;
}

bool rg_tokenizer_first_bytes(const rg_tokenizer *t, const char **data, const uint32_t **offset)
{
    *data = t->first.data;
    *offset = t->first.offset;
    return t->first.offset;
}

rg_string rg_tokenizer_shown(const rg_tokenizer *t, int32_t id, bool first)
{
    const struct rg_stream *s = first && t->first.offset ? &t->first : &t->stream;

    if (id < 0 || id >= t->vocab.n)
        return (rg_string){ "", 0 };
    return (rg_string){ s->data + s->offset[id], s->offset[id + 1] - s->offset[id] };
}

rg_string rg_tokenizer_piece(const rg_tokenizer *t, int32_t id)
{
    return known(t, id) ? t->vocab.piece[id] : (rg_string){ "", 0 };
}

const char *rg_tokenizer_kind(const rg_tokenizer *t)
{
    return t->kind;
}
