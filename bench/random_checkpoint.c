/* random_checkpoint.c -- a checkpoint of any supported shape with random weights, for measuring speed.
 *
 *   random_checkpoint CONFIG.json TYPE OUT.gguf [VOCABULARY.gguf]
 *
 * TYPE f16-of-bf16: F16 of values that were rounded to bf16 first, as those of most F16 checkpoints were.
 * With a vocabulary (a GGUF file of the same number of tokens), its tokenizer is put in, for servers that want text.
 * Weights are drawn from a normal distribution with deviation 1 / sqrt(columns), those of the embedding with deviation
 * 4, so that tokens stay different through the layers and choose different experts.  32 pieces of a row are drawn per
 * tensor, and each row is a random sequence of them, so that a large model takes seconds in the slowest format too.
 * The values mean nothing; the bytes and the shape are real. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "model/convert.h"
#include "model/origin.h"
#include "model/weights.h"

enum { PIECES = 32, LONGEST_PIECE = 256, ROOM = 1 << 20 };

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

/* Values that are encoded as one: a power of two that divides a row and that blocks divide, at most LONGEST if it can. */
static int64_t piece_length(int64_t cols, int block_len)
{
    int64_t n = block_len;

    while (2 * n <= LONGEST_PIECE && cols % (2 * n) == 0)
        n *= 2;
    return n;
}

static bool of_bf16; /* values are rounded to bf16 before they are encoded */

static void draw(float *x, int64_t n, const rg_weight_spec *spec, float scale, rg_rng *rng)
{
    for (int64_t k = 0; k < n; k++) {
        x[k] = !strcmp(spec->gguf, "ssm_a") ? -1.0f - (float)(k % 16)
               : !strcmp(spec->gguf, "ssm_dt.bias")
                   ? -4.6f /* steps of 0.01: a trained model's; states stay normal numbers */
               : rg_spec_is_vector(spec) ? 1.0f
                                         : scale * rg_rng_normal(rng);
        x[k] = of_bf16 ? rg_bf16_to_f32(rg_f32_to_bf16(x[k])) : x[k];
    }
}

/* Draw and encode the pieces of a tensor: n values each, into bytes each. */
static void make_pieces(uint8_t *to, size_t bytes, int64_t n, const rg_format *f, const rg_weight_spec *spec, float scale,
                        rg_rng *rng)
{
    float x[LONGEST_PIECE];

    for (int p = 0; p < PIECES; p++) {
        draw(x, n, spec, scale, rng);
        f->encode(x, n / f->block_len, to + (size_t)p * bytes);
    }
}

static bool write_tensor(rg_ckpt_writer *w, const rg_weight_set *s, int i, rg_type type, rg_rng *rng, rg_error *err)
{
    const rg_weight *v = &s->all[i];
    const rg_format *f = rg_format_of(type_of(s, i, type));
    int64_t n = piece_length(v->cols, f->block_len), per_row = v->cols / n, rows = v->n_mats * v->rows;
    int64_t at_once = 1 + ROOM / (v->cols * (int64_t)sizeof(float));
    size_t bytes = (size_t)(n / f->block_len * f->block_bytes);
    float scale = s->spec[i]->role == W_EMBED_TOKENS ? 4.0f : 1.0f / __builtin_sqrtf((float)v->cols);
    uint8_t *pieces = rg_array(PIECES, bytes), *to = rg_array((size_t)(at_once * per_row), bytes);
    bool ok = pieces && to ? true : rg_fail_memory(err, (size_t)(at_once * per_row) * bytes);

    if (ok)
        make_pieces(pieces, bytes, n, f, s->spec[i], scale, rng);
    for (int64_t r = 0; ok && r < rows; r += at_once) {
        int64_t m = (rows - r < at_once ? rows - r : at_once) * per_row;
        for (int64_t k = 0; k < m; k++)
            memcpy(to + (size_t)k * bytes, pieces + (size_t)rg_rng_below(rng, PIECES) * bytes, bytes);
        ok = rg_ckpt_write(w, to, (size_t)m * bytes, err);
    }
    rg_free(pieces);
    rg_free(to);
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

    of_bf16 = argc > 2 && !strcmp(argv[2], "f16-of-bf16");
    if (argc < 4 || argc > 5 || !rg_type_by_name(of_bf16 ? "f16" : argv[2], &type)) {
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
