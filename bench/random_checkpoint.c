/* random_checkpoint.c -- a checkpoint of any supported shape with random weights, for measuring speed.
 *
 *   random_checkpoint CONFIG.json TYPE OUT.gguf [VOCABULARY.gguf]
 *
 * With a vocabulary (a GGUF file of the same number of tokens), its tokenizer is put in, for servers that want text.
 * Rows are drawn from a normal distribution with deviation 1 / sqrt(columns); a few hundred are drawn per tensor and
 * repeated, so that a large model takes seconds; those of the embedding are all drawn, with deviation 4, so that tokens
 * stay different through the layers and choose different experts.  The values mean nothing; the bytes and the shape are
 * real. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "model/convert.h"
#include "model/origin.h"
#include "model/weights.h"

enum { DISTINCT_ROWS = 256 };

static rg_type type_of(const rg_weight_set *s, int i, rg_type type)
{
    uint64_t bytes;

    if (rg_spec_is_vector(s->spec[i]) || s->spec[i]->role == W_ROUTER)
        return RG_F32;
    return rg_row_bytes(type, s->all[i].cols, &bytes) ? type : RG_F32;
}

static bool declare(rg_ckpt_writer *w, const rg_weight_set *s, const rg_config *c, int i, rg_type type, rg_error *err)
{
    const rg_weight_spec *spec = s->spec[i];
    const rg_weight *v = &s->all[i];
    char name[160];
    int64_t shape[3] = { v->n_mats, v->rows, v->cols };
    int n = rg_spec_dims(spec);
    bool swapped = spec->load_gguf != NULL; /* stored transposed */

    (void)c;
    if (s->layer[i] >= 0)
        snprintf(name, sizeof name, "blk.%d.%s", s->layer[i], spec->gguf);
    else
        snprintf(name, sizeof name, "%s", spec->gguf);
    if (!strstr(name, ".bias") && strcmp(spec->gguf, "ssm_a") && strcmp(spec->gguf, "ssm_d"))
        strncat(name, ".weight", sizeof name - strlen(name) - 1);
    if (swapped)
        shape[1] = v->cols, shape[2] = v->rows;
    return rg_ckpt_declare(w, name, type_of(s, i, type), n, shape + 3 - n, err);
}

static bool write_tensor(rg_ckpt_writer *w, const rg_weight_set *s, int i, rg_type type, rg_rng *rng, rg_error *err)
{
    const rg_weight *v = &s->all[i];
    const rg_format *f = rg_format_of(type_of(s, i, type));
    int64_t rows = v->n_mats * v->rows;
    int64_t distinct = rows < DISTINCT_ROWS || s->spec[i]->role == W_EMBED_TOKENS ? rows : DISTINCT_ROWS;
    size_t row_bytes = (size_t)(v->cols / f->block_len * f->block_bytes);
    float *x = rg_array((size_t)v->cols, sizeof *x), scale = 1.0f / __builtin_sqrtf((float)v->cols);
    uint8_t *all = rg_array((size_t)distinct, row_bytes);

    scale = s->spec[i]->role == W_EMBED_TOKENS ? 4.0f : scale;
    bool ok = x && all;

    for (int64_t r = 0; ok && r < distinct; r++) {
        for (int64_t k = 0; k < v->cols; k++)
            x[k] = !strcmp(s->spec[i]->gguf, "ssm_a") ? -1.0f - (float)(k % 16)
                   : !strcmp(s->spec[i]->gguf, "ssm_dt.bias")
                       ? -4.6f /* steps of 0.01: a trained model's; states stay normal numbers */
                   : rg_spec_is_vector(s->spec[i]) ? 1.0f
                                                   : scale * rg_rng_normal(rng);
        f->encode(x, v->cols / f->block_len, all + (size_t)r * row_bytes);
    }
    for (int64_t r = 0; ok && r < rows; r += distinct)
        ok = rg_ckpt_write(w, all, (size_t)(rows - r < distinct ? rows - r : distinct) * row_bytes, err);
    if (!x || !all)
        rg_fail_memory(err, (size_t)distinct * row_bytes);
    rg_free(x);
    rg_free(all);
    return ok;
}

static bool no_tokenizer_key(const char *key)
{
    return strncmp(key, "tokenizer.", 10) != 0;
}

/* path NULL: none. */
static bool put_tokenizer(rg_ckpt_writer *w, const char *path, int vocab_size, rg_error *err)
{
    size_t n = 0;
    bool ok;

    if (!path)
        return rg_ckpt_put_string(w, "tokenizer.ggml.model", "none", 4, err);
    rg_checkpoint *from = rg_checkpoint_open(path, RG_CKPT_NO_WEIGHTS, err);
    ok = from && rg_meta_length(from, "tokenizer.ggml.tokens", &n, err) == 1;
    if (ok && n != (size_t)vocab_size)
        ok = rg_fail(err, RG_E_INPUT, "%s: %zu tokens, and the shape has %d", path, n, vocab_size);
    ok = ok && rg_ckpt_put_all(w, from, no_tokenizer_key, err);
    rg_checkpoint_close(from);
    return ok;
}

int main(int argc, char **argv)
{
    rg_error err = { 0 };
    rg_type type;
    rg_rng rng = { .seed = 1 };
    static rg_config c;
    static rg_weight_set s;

    if (argc < 4 || argc > 5 || !rg_type_by_name(argv[2], &type)) {
        fprintf(stderr, "usage: random_checkpoint CONFIG.json TYPE OUT.gguf [VOCABULARY.gguf]\n");
        return 2;
    }
    rg_checkpoint *ckpt = rg_checkpoint_open(argv[1], RG_CKPT_NO_WEIGHTS, &err);
    bool ok = ckpt && rg_config_read(&c, ckpt, &err) && rg_weights_declare(&s, &c, NULL, RG_F32, &err);
    rg_ckpt_writer *w = ok ? rg_gguf_create(argv[3], &err) : NULL;
    ok = w && rg_convert_keys(w, ckpt, &c, type, &err) && put_tokenizer(w, argc > 4 ? argv[4] : NULL, c.vocab_size, &err);
    for (int i = 0; ok && i < s.n; i++)
        ok = declare(w, &s, &c, i, type, &err);
    for (int i = 0; ok && i < s.n; i++)
        ok = write_tensor(w, &s, i, type, &rng, &err);
    if (ok)
        ok = rg_ckpt_commit(w, &err);
    else
        rg_ckpt_abort(w);
    rg_weights_fini(&s);
    rg_checkpoint_close(ckpt);
    if (!ok)
        fprintf(stderr, "random_checkpoint: %s\n", err.text);
    return !ok;
}
