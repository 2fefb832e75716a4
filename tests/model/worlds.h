/* worlds.h -- models for the tests of this floor: the goldens, their weights rounded to integer formats (where fast is
 * not exact), and a small random Llama, dense or with experts, wide enough for the k-formats. */
#ifndef RG_TEST_WORLDS_H
#define RG_TEST_WORLDS_H

#include "support/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/convert.h"
#include "shrink/shrink.h"

static inline bool world_skip_window(const char *key)
{
    return strstr(key, "attention.sliding_window") && !strstr(key, "pattern");
}

/* Which format a tensor of a golden gets: matrices one after the other from a list, tables and vectors as they are. */
static inline rg_type world_type(const rg_tensor *t, int turn)
{
    static const rg_type types[] = { RG_Q8_0, RG_Q4_0, RG_Q4_1, RG_Q5_0, RG_Q5_1 };
    bool table = strstr(t->name, "ssm_conv1d") || strstr(t->name, "ssm_a") || strstr(t->name, "gate_inp");

    if (t->n_dims < 2 || table || rg_tensor_cols(t) % 32)
        return t->type;
    return types[turn % (int)RG_LEN(types)];
}

/* Write a tensor of c in `type`, its n values changed before (NULL: as they are). */
static inline void world_write(rg_ckpt_writer *w, const rg_checkpoint *c, const rg_tensor *t, rg_type type,
                               void (*change)(const rg_tensor *t, float *x, size_t n))
{
    const rg_format *in = rg_format_of(t->type), *out = rg_format_of(type);
    const size_t n = (size_t)rg_tensor_count(t), bytes = n / (size_t)out->block_len * (size_t)out->block_bytes;
    uint8_t *raw = malloc(t->bytes), *coded = malloc(bytes);
    float *x = malloc(n * sizeof *x);
    rg_error err = { 0 };

    assert_ok(rg_tensor_read(c, t, 0, raw, t->bytes, &err), err);
    in->decode(raw, (int64_t)n / in->block_len, x);
    if (change)
        change(t, x, n);
    out->encode(x, (int64_t)n / out->block_len, coded);
    assert_ok(rg_ckpt_write(w, coded, bytes, &err), err);
    free(raw);
    free(coded);
    free(x);
}

/* The golden's model.gguf with its matrices in integer formats, and, unless 0, another window.  Its path. */
static inline const char *world_quantized(const char *name, int window)
{
    char from[64], to[64], key[64];
    rg_error err = { 0 };

    snprintf(from, sizeof from, "%s/model.gguf", name);
    snprintf(to, sizeof to, "%s-%d-quantized.gguf", name, window);
    rg_checkpoint *c = rg_checkpoint_open(test_data(from), RG_CKPT_DEFAULT, &err);
    assert_ok(c, err);
    const char *path = test_scratch(to);
    rg_ckpt_writer *w = rg_gguf_create(path, &err);
    assert_ok(w, err);
    assert_ok(rg_ckpt_put_all(w, c, window ? world_skip_window : NULL, &err), err);
    snprintf(key, sizeof key, "%s.attention.sliding_window", name);
    if (window)
        assert_ok(rg_ckpt_put_int(w, key, 4, window, &err), err);
    for (int i = 0; i < rg_checkpoint_n_tensors(c); i++) {
        const rg_tensor *t = rg_checkpoint_tensor(c, i);
        assert_ok(rg_ckpt_declare(w, t->name, world_type(t, i), t->n_dims, t->shape, &err), err);
    }
    for (int i = 0; i < rg_checkpoint_n_tensors(c); i++) {
        const rg_tensor *t = rg_checkpoint_tensor(c, i);
        world_write(w, c, t, world_type(t, i), NULL);
    }
    assert_ok(rg_ckpt_commit(w, &err), err);
    rg_checkpoint_close(c);
    return path;
}

/* The golden's folder as GPTQ leaves it in 4 bits with act-order: groups of 32 columns that are no neighbours.  What is
 * not coded is f32, which has one recipe everywhere. */
static inline const char *world_act_order(const char *name)
{
    enum { N = 96 };
    char to[64];
    int32_t ids[N];
    rg_error err = { 0 };
    rg_shrink_report r;
    rg_convert_report converted;
    const char *path, *plain = test_scratch("f32");

    for (int i = 0; i < N; i++)
        ids[i] = i * 37 % 250;
    rg_shrink_options o = { .method = rg_shrink_method_find("gptq", &err), .coding = { .bits = 4, .group = 32 },
                            .act_order = true, .ids = ids, .n_samples = 4, .ctx = N / 4, .n_threads = 2,
                            .backend = test_backend(0) };
    for (int i = 0; test_backend(i); i++)
        o.backend = test_backend(i);
    snprintf(to, sizeof to, "%s-act-order", name);
    path = test_scratch(to);
    rg_checkpoint *c = rg_checkpoint_open(test_data(name), RG_CKPT_DEFAULT, &err);
    assert_ok(c, err);
    assert_ok(rg_convert(&converted, c, plain, &(rg_convert_options){ .type = RG_F32, .to_hf = true, .n_threads = 2 }, &err),
              err);
    rg_convert_report_fini(&converted);
    rg_checkpoint_close(c);
    c = rg_checkpoint_open(plain, RG_CKPT_DEFAULT, &err);
    assert_ok(c, err);
    assert_ok(rg_shrink(&r, c, path, &o, &err), err);
    rg_shrink_report_fini(&r);
    rg_checkpoint_close(c);
    return path;
}

/* ---- a random Llama ---- */

enum { WIDE_DIM = 256, WIDE_FFN = 256, WIDE_VOCAB = 96, WIDE_HEADS = 8, WIDE_KV_HEADS = 2, WIDE_LAYERS = 2, WIDE_EXPERTS = 5 };

typedef struct wide_tensor {
    const char *name;
    rg_type type;
    int64_t mats, rows, cols; /* rows 0: a vector */
    bool moe, dense;          /* only with, only without experts */
} wide_tensor;

static const wide_tensor wide_layer[] = {
    { "attn_norm.weight", RG_F32, 1, 0, WIDE_DIM, false, false },
    { "attn_q.weight", RG_Q4_K, 1, WIDE_DIM, WIDE_DIM, false, false },
    { "attn_k.weight", RG_BF16, 1, WIDE_DIM / 4, WIDE_DIM, false, false }, /* q and v fast, k exact, in one operation */
    { "attn_v.weight", RG_Q6_K, 1, WIDE_DIM / 4, WIDE_DIM, false, false },
    { "attn_output.weight", RG_Q5_K, 1, WIDE_DIM, WIDE_DIM, false, false },
    { "ffn_norm.weight", RG_F32, 1, 0, WIDE_DIM, false, false },
    { "ffn_gate.weight", RG_Q3_K, 1, WIDE_FFN, WIDE_DIM, false, true },
    { "ffn_up.weight", RG_F16, 1, WIDE_FFN, WIDE_DIM, false, true },
    { "ffn_down.weight", RG_Q2_K, 1, WIDE_DIM, WIDE_FFN, false, true },
    { "ffn_gate_inp.weight", RG_F32, 1, WIDE_EXPERTS, WIDE_DIM, true, false },
    { "ffn_gate_exps.weight", RG_Q4_K, WIDE_EXPERTS, WIDE_FFN, WIDE_DIM, true, false },
    { "ffn_up_exps.weight", RG_Q8_0, WIDE_EXPERTS, WIDE_FFN, WIDE_DIM, true, false },
    { "ffn_down_exps.weight", RG_Q6_K, WIDE_EXPERTS, WIDE_DIM, WIDE_FFN, true, false },
};

static inline void wide_declare(rg_ckpt_writer *w, const char *name, const wide_tensor *t)
{
    int64_t shape[3] = { t->mats, t->rows, t->cols };
    rg_error err = { 0 };
    int dims = t->rows ? t->mats > 1 ? 3 : 2 : 1;

    assert_ok(rg_ckpt_declare(w, name, t->type, dims, shape + 3 - dims, &err), err);
}

static inline void wide_write(rg_ckpt_writer *w, const wide_tensor *t, rg_rng *g)
{
    const rg_format *f = rg_format_of(t->type);
    size_t n = (size_t)(t->mats * (t->rows ? t->rows : 1) * t->cols), bytes = n / (size_t)f->block_len * (size_t)f->block_bytes;
    float *x = malloc(n * sizeof *x);
    uint8_t *coded = malloc(bytes);
    rg_error err = { 0 };

    /* Sharp enough that attention and routing choose; norms near 1. */
    for (size_t i = 0; i < n; i++)
        x[i] = t->rows ? 0.12f * rg_rng_normal(g) : 1.0f + 0.1f * rg_rng_normal(g);
    f->encode(x, (int64_t)n / f->block_len, coded);
    assert_ok(rg_ckpt_write(w, coded, bytes, &err), err);
    free(x);
    free(coded);
}

static inline const char *world_wide(bool moe)
{
    static const wide_tensor ends[] = { { "token_embd.weight", RG_Q4_K, 1, WIDE_VOCAB, WIDE_DIM, false, false },
                                        { "output_norm.weight", RG_F32, 1, 0, WIDE_DIM, false, false },
                                        { "output.weight", RG_Q6_K, 1, WIDE_VOCAB, WIDE_DIM, false, false } };
    static const struct { const char *key; int value; } ints[] = {
        { "llama.context_length", 8192 }, { "llama.embedding_length", WIDE_DIM }, { "llama.block_count", WIDE_LAYERS },
        { "llama.feed_forward_length", WIDE_FFN }, { "llama.attention.head_count", WIDE_HEADS },
        { "llama.attention.head_count_kv", WIDE_KV_HEADS }, { "llama.vocab_size", WIDE_VOCAB },
        { "llama.rope.dimension_count", WIDE_DIM / WIDE_HEADS } };
    const char *path = test_scratch(moe ? "wide-moe.gguf" : "wide.gguf");
    rg_rng g = { .seed = 7 };
    rg_error err = { 0 };
    rg_ckpt_writer *w = rg_gguf_create(path, &err);
    char name[64];

    assert_ok(w, err);
    assert_ok(rg_ckpt_put_string(w, "general.architecture", "llama", 5, &err), err);
    for (size_t i = 0; i < RG_LEN(ints); i++)
        assert_ok(rg_ckpt_put_int(w, ints[i].key, 4, ints[i].value, &err), err);
    assert_ok(rg_ckpt_put_float(w, "llama.attention.layer_norm_rms_epsilon", 1e-5, &err), err);
    if (moe) {
        assert_ok(rg_ckpt_put_int(w, "llama.expert_count", 4, WIDE_EXPERTS, &err), err);
        assert_ok(rg_ckpt_put_int(w, "llama.expert_used_count", 4, 2, &err), err);
    }
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < RG_LEN(ends); i++)
            pass ? wide_write(w, &ends[i], &g) : wide_declare(w, ends[i].name, &ends[i]);
        for (size_t i = 0; i < WIDE_LAYERS * RG_LEN(wide_layer); i++) {
            const wide_tensor *t = &wide_layer[i % RG_LEN(wide_layer)];
            if (moe ? t->dense : t->moe)
                continue;
            snprintf(name, sizeof name, "blk.%d.%s", (int)(i / RG_LEN(wide_layer)), t->name);
            pass ? wide_write(w, t, &g) : wide_declare(w, name, t);
        }
    }
    assert_ok(rg_ckpt_commit(w, &err), err);
    return path;
}

#endif
