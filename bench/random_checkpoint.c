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
#include "model/weight_source.h"
#include "model/weights.h"

enum { PIECES = 32, LONGEST_PIECE = 256, ROOM = 1 << 20 };

/* A tensor of the file: that of one weight, or of several that share it. */
typedef struct item {
    char name[160];
    const rg_weight_spec *spec; /* of the first; NULL: factors of a rope, all 1 */
    rg_type type;
    int n;
    int64_t shape[4];
} item;

static rg_type type_of(const rg_weight_spec *spec, int64_t cols, rg_type type)
{
    uint64_t bytes;

    if (!spec || rg_spec_is_vector(spec) || spec->role == W_ROUTER)
        return RG_F32;
    return rg_row_bytes(type, cols, &bytes) ? type : RG_F32;
}

/* The sides of a weight's tensor as GGUF has it. */
static int shape_of(const rg_weight_spec *spec, const rg_config *c, int layer, int64_t shape[4])
{
    const bool shared = spec->first_row && !spec->split_in_gguf;
    int n = 0;

    if (spec->gguf_shape[0])
        for (; n < 4 && spec->gguf_shape[n]; n++)
            shape[n] = spec->gguf_shape[n](c, layer);
    else if (spec->stored[0] && (shared || spec->to_gguf || spec->load_gguf))
        for (; n < 3 && spec->stored[n]; n++)
            shape[n] = spec->stored[n](c, layer);
    else
        for (; n < rg_spec_dims(spec); n++)
            shape[n] = spec->shape[n](c, layer);
    return n;
}

/* One more tensor, unless the weight shares that of an earlier one; false: GGUF has no name for it. */
static bool add_item(item *all, int *n, const rg_weight_spec *spec, const rg_config *c, int layer, rg_type type)
{
    rg_config as_gguf = *c;
    char name[RG_WEIGHT_NAME];
    item *it = &all[*n];

    if (spec->derive)
        return true;
    as_gguf.from_gguf = true;
    const rg_weight_source o = rg_weight_source_of(spec, &as_gguf, NULL, layer);
    if (!rg_weight_source_name(&o, 0, name))
        return false;
    const size_t len = strlen(name);
    const bool bare = spec->bare || (len > 5 && !strcmp(name + len - 5, ".bias"));

    snprintf(it->name, sizeof it->name, "%s%s", name, bare ? "" : ".weight");
    for (int i = *n - 1; i >= 0; i--)
        if (!strcmp(all[i].name, it->name))
            return true;
    it->spec = spec;
    it->n = shape_of(spec, c, layer, it->shape);
    it->type = type_of(spec, it->shape[it->n - 1], type);
    (*n)++;
    return true;
}

/* GGUF has the scaling of some ropes as factors, for each pair of columns. */
static void add_factors(item *all, int *n, const rg_config *c)
{
    static const char *const lengths[] = { "rope_factors_short.weight", "rope_factors_long.weight" };
    const rg_rope_type rope = c->n_ropes ? c->ropes[0].type : RG_ROPE_DEFAULT;
    const int n_tensors = rope == RG_ROPE_LONG ? 2 : rope == RG_ROPE_LLAMA3 || rope == RG_ROPE_PROPORTIONAL;

    for (int i = 0; i < n_tensors; i++) {
        item *it = &all[(*n)++];

        *it = (item){ .type = RG_F32, .n = 1, .shape = { c->ropes[0].dim / 2 }, .spec = NULL };
        snprintf(it->name, sizeof it->name, "%s", rope == RG_ROPE_LONG ? lengths[i] : "rope_freqs.weight");
    }
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
        x[k] = !spec ? 1.0f
               : !strcmp(spec->gguf, "ssm_a") ? -1.0f - (float)(k % 16)
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

static bool write_tensor(rg_ckpt_writer *w, const item *it, rg_rng *rng, rg_error *err)
{
    const rg_format *f = rg_format_of(it->type);
    const int64_t cols = it->shape[it->n - 1];
    int64_t n = piece_length(cols, f->block_len), per_row = cols / n, rows = 1;
    int64_t at_once = 1 + ROOM / (cols * (int64_t)sizeof(float));
    size_t bytes = (size_t)(n / f->block_len * f->block_bytes);
    const bool embeds = it->spec && it->spec->role == W_EMBED_TOKENS;
    float scale = embeds ? 4.0f : 1.0f / __builtin_sqrtf((float)cols);

    for (int i = 0; i < it->n - 1; i++)
        rows *= it->shape[i];
    uint8_t *pieces = rg_array(PIECES, bytes), *to = rg_array((size_t)(at_once * per_row), bytes);
    bool ok = pieces && to ? true : rg_fail_memory(err, (size_t)(at_once * per_row) * bytes);

    if (ok)
        make_pieces(pieces, bytes, n, f, it->spec, scale, rng);
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

/* All tensors of the file; rg_free it.  NULL and *err: GGUF has no name for some weight, or there is no memory. */
static item *plan_tensors(const rg_weight_set *s, const rg_config *c, rg_type type, int *n, rg_error *err)
{
    item *all = rg_array((size_t)s->n + 2, sizeof *all);
    bool ok = all || rg_fail_memory(err, ((size_t)s->n + 2) * sizeof *all);

    *n = 0;
    if (ok)
        add_factors(all, n, c);
    for (int i = 0; ok && i < s->n; i++)
        if (!add_item(all, n, s->spec[i], c, s->layer[i], type))
            ok = rg_fail(err, RG_E_UNSUPPORTED, "GGUF has no name for the weight '%s'", s->all[i].name);
    if (ok)
        return all;
    rg_free(all);
    return NULL;
}

int main(int argc, char **argv)
{
    rg_error err = { 0 };
    rg_type type;
    rg_rng rng = { .seed = 1 };
    static rg_config c;
    static rg_weight_set s;
    int n = 0;

    of_bf16 = argc > 2 && !strcmp(argv[2], "f16-of-bf16");
    if (argc < 4 || argc > 5 || !rg_type_by_name(of_bf16 ? "f16" : argv[2], &type)) {
        fprintf(stderr, "usage: random_checkpoint CONFIG.json TYPE OUT.gguf [VOCABULARY.gguf]\n");
        return 2;
    }
    rg_checkpoint *ckpt = rg_checkpoint_open(argv[1], RG_CKPT_NO_WEIGHTS, &err);
    bool ok = ckpt && rg_config_read(&c, ckpt, &err) && rg_weights_declare(&s, &c, NULL, RG_F32, &err);
    ok = ok && (c.arch->gguf_name || rg_fail(&err, RG_E_UNSUPPORTED, "%s: GGUF has no names for this architecture", argv[1]));
    item *all = ok ? plan_tensors(&s, &c, type, &n, &err) : NULL;
    rg_ckpt_writer *w = all ? rg_gguf_create(argv[3], &err) : NULL;
    ok = w && rg_convert_keys(w, ckpt, &c, type, &err) && put_tokenizer(w, argc > 4 ? argv[4] : NULL, c.vocab_size, &err);
    for (int i = 0; ok && i < n; i++)
        ok = rg_ckpt_declare(w, all[i].name, all[i].type, all[i].n, all[i].shape, &err);
    for (int i = 0; ok && i < n; i++)
        ok = write_tensor(w, &all[i], &rng, &err);
    if (ok)
        ok = rg_ckpt_commit(w, &err);
    else
        rg_ckpt_abort(w);
    rg_free(all);
    rg_weights_fini(&s);
    rg_checkpoint_close(ckpt);
    if (!ok)
        fprintf(stderr, "random_checkpoint: %s\n", err.text);
    return !ok;
}
