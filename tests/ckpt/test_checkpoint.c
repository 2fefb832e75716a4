/* Tests of checkpoints that are well: both kinds, the same tensors in each, metadata by type, split and sharded files,
 * and what the writers write read back. */
#include "support/test.h"

#include "ckpt/files.h"

#include <math.h>

#include "base/file.h"
#include "base/mem.h"
#include "ckpt/checkpoint.h"

static size_t n_live;

static int count_live(void **state)
{
    (void)state;
    n_live = rg_mem_count().n_live;
    return 0;
}

static int none_leaked(void **state)
{
    (void)state;
    return rg_mem_count().n_live == n_live
               ? 0
               : (print_error("%zu allocations leaked\n", rg_mem_count().n_live - n_live), -1);
}

static rg_checkpoint *open_ok(const char *path, unsigned flags)
{
    rg_error err = { 0 };
    rg_checkpoint *c = rg_checkpoint_open(path, flags, &err);

    assert_ok(c, err);
    return c;
}

static void *read_whole(const rg_checkpoint *c, const rg_tensor *t)
{
    void *p = rg_alloc((size_t)t->bytes);
    rg_error err;

    assert_ok(rg_tensor_read(c, t, 0, p, (size_t)t->bytes, &err), err);
    return p;
}

static void expect_same_tensor(const rg_checkpoint *a, const rg_tensor *s, const rg_checkpoint *b, const rg_tensor *t)
{
    void *p, *q;

    assert_non_null(s);
    assert_non_null(t);
    assert_int_equal(s->type, t->type);
    assert_int_equal(s->n_dims, t->n_dims);
    assert_memory_equal(s->shape, t->shape, sizeof s->shape);
    assert_int_equal(s->bytes, t->bytes);
    p = read_whole(a, s);
    q = read_whole(b, t);
    assert_memory_equal(p, q, (size_t)s->bytes);
    rg_free(p);
    rg_free(q);
}

static void both_kinds_hold_the_same_tensors(void **state)
{
    static const char *const names[][2] = {
        { "model.embed_tokens.weight", "token_embd.weight" },
        { "lm_head.weight", "output.weight" },
        { "model.layers.1.mlp.down_proj.weight", "blk.1.ffn_down.weight" },
        { "model.layers.2.input_layernorm.weight", "blk.2.attn_norm.weight" },
    };
    rg_checkpoint *hf = open_ok(test_data("llama/"), 0), *gguf = open_ok(test_data("llama/model.gguf"), 0);

    (void)state;
    assert_int_equal(rg_checkpoint_kind(hf), RG_CKPT_HF);
    assert_int_equal(rg_checkpoint_kind(gguf), RG_CKPT_GGUF);
    assert_int_equal(rg_checkpoint_n_tensors(hf), 30);
    assert_int_equal(rg_checkpoint_n_tensors(gguf), 30);
    for (size_t i = 0; i < RG_LEN(names); i++)
        expect_same_tensor(hf, rg_checkpoint_find(hf, names[i][0]), gguf, rg_checkpoint_find(gguf, names[i][1]));
    assert_null(rg_checkpoint_find(hf, "token_embd.weight"));
    assert_null(rg_checkpoint_tensor(hf, 30));
    assert_null(rg_checkpoint_tensor(hf, -1));
    rg_checkpoint_close(hf);
    rg_checkpoint_close(gguf);
}

static void real_models_open(void **state)
{
    static const char *const folders[] = { "llama", "llama3", "gemma3", "mixtral", "deepseek-v2", "mamba" };
    char path[64];

    (void)state;
    for (size_t i = 0; i < RG_LEN(folders); i++) {
        rg_checkpoint_close(open_ok(test_data(folders[i]), 0));
        snprintf(path, sizeof path, "%s/model.gguf", folders[i]);
        rg_checkpoint_close(open_ok(test_data(path), 0));
    }
}

static void reads_stay_in_their_tensor(void **state)
{
    rg_checkpoint *c = open_ok(test_data("stories260K.gguf"), 0);
    const rg_tensor *t = rg_checkpoint_find(c, "output_norm.weight");
    float some[64];
    rg_error err;

    (void)state;
    assert_ok(rg_tensor_read(c, t, 0, some, 256, &err), err);
    assert_true(some[0] > 0.0f && some[0] < 100.0f);
    assert_ok(rg_tensor_read(c, t, 256, some, 0, &err), err);
    assert_false(rg_tensor_read(c, t, 1, some, 256, &err));
    assert_false(rg_tensor_read(c, t, UINT64_MAX, some, 2, &err));
    assert_int_equal(err.code, RG_E_USAGE);
    rg_checkpoint_close(c);
}

static void gguf_metadata_is_typed(void **state)
{
    rg_checkpoint *c = open_ok(test_data("stories260K.gguf"), 0);
    rg_error err = { 0 };
    int64_t i = -7;
    double f = 0;
    bool b;
    const char *s;
    const rg_string *tokens;
    const float *scores;
    const int32_t *types;
    size_t n;
    char text[64];

    (void)state;
    assert_int_equal(rg_meta_int(c, "llama.block_count", 1, 100, &i, &err), 1);
    assert_int_equal(i, 5);
    assert_int_equal(rg_meta_int(c, "llama.block_count", 6, 100, &i, &err), -1);
    assert_non_null(strstr(err.text, "llama.block_count"));
    assert_int_equal(rg_meta_int(c, "no.such.key", 0, 1, &i, &err), 0);
    assert_int_equal(i, 5);
    assert_int_equal(rg_meta_float(c, "llama.attention.layer_norm_rms_epsilon", &f, &err), 1);
    assert_true(fabs(f - 1e-5) < 1e-9);
    assert_int_equal(rg_meta_bool(c, "llama.block_count", &b, &err), -1);
    assert_int_equal(rg_meta_string(c, "general.architecture", &s, &err), 1);
    assert_string_equal(s, "llama");
    assert_int_equal(rg_meta_string(c, "tokenizer.ggml.tokens.2", &s, &err), 1);
    assert_string_equal(s, "</s>");
    assert_int_equal(rg_meta_string(c, "tokenizer.ggml.tokens.512", &s, &err), 0);
    assert_int_equal(rg_meta_string(c, "tokenizer.ggml.tokens.02", &s, &err), 0);
    assert_int_equal(rg_meta_strings(c, "tokenizer.ggml.tokens", &tokens, &n, &err), 1);
    assert_int_equal(n, 512);
    assert_int_equal(tokens[1].n, 3);
    assert_int_equal(rg_meta_floats(c, "tokenizer.ggml.scores", &scores, &n, &err), 1);
    assert_int_equal(rg_meta_ints(c, "tokenizer.ggml.token_type", &types, &n, &err), 1);
    assert_true(types[0] == 2 && types[3] == 6);
    assert_int_equal(rg_meta_ints(c, "tokenizer.ggml.tokens", &types, &n, &err), -1);
    assert_int_equal(rg_meta_strings(c, "general.name", &tokens, &n, &err), -1);
    assert_int_equal(rg_meta_length(c, "tokenizer.ggml.tokens", &n, &err), 1);
    assert_int_equal(rg_meta_type_of(c, "tokenizer.ggml.tokens"), RG_META_ARRAY);
    assert_int_equal(rg_meta_type_of(c, "tokenizer.ggml.scores.0"), RG_META_FLOAT);
    assert_int_equal(rg_meta_type_of(c, "llama"), RG_META_NONE);
    rg_meta_text(c, "tokenizer.ggml.token_type", text, sizeof text);
    assert_string_equal(text, "[2, 3, 3, 6, 6, 6, 6, 6 ... 512 in all]");
    n = 1;
    assert_null(rg_checkpoint_side_file(c, "stories260K.safetensors", &n, &err));
    assert_int_equal(err.code, RG_OK);
    rg_checkpoint_close(c);
}

typedef struct visits {
    int n, n_understood;
    char first[64];
} visits;

static void visit(void *arg, const char *key, rg_meta_type type, bool understood)
{
    visits *v = arg;

    assert_true(type != RG_META_NONE);
    if (!v->n++)
        snprintf(v->first, sizeof v->first, "%s", key);
    v->n_understood += understood;
}

static void json_becomes_keys(void **state)
{
    rg_error err = { 0 };
    rg_checkpoint *c;
    const int32_t *ints;
    const float *floats;
    const rg_string *strings;
    const char *s;
    int64_t i;
    double f;
    bool b;
    size_t n;
    visits v = { 0 };

    (void)state;
    put_text("config.json", "{\"a\": 1, \"b\": {\"c\": 2.5, \"d\": {\"e\": [1, 2, 3000000000]}}, \"none\": null,"
                            " \"mixed\": [1, \"x\", {\"y\": true}], \"real\": [1, 2.5], \"yes\": [true, false],"
                            " \"huge\": 1000000000000000019884624838656, \"limit\": [0.0, Infinity], \"empty\": [],"
                            " \"text\": \"n\\u0000l\", \"minus\": -Infinity, \"whole\": 4.0,"
                            " \"names\": [\"p\", \"NaN 12345678901234567890\"], \"o\": {}}");
    put_text("generation_config.json", "{\"eos_token_id\": [7, 8], \"top_p\": 0.5}");
    put_text("tokenizer_config.json", "{\"bos_token\": {\"content\": \"<s>\"}}");
    put_text("tokenizer.json", "side");
    c = open_ok(in_scratch("config.json"), 0);
    assert_int_equal(rg_meta_int(c, "a", 0, 9, &i, &err), 1);
    assert_int_equal(rg_meta_float(c, "b.c", &f, &err), 1);
    assert_true(f == 2.5);
    assert_int_equal(rg_meta_int(c, "b.d.e.2", 0, INT64_MAX, &i, &err), 1);
    assert_int_equal(i, 3000000000);
    assert_int_equal(rg_meta_ints(c, "b.d.e", &ints, &n, &err), -1);
    assert_int_equal(rg_meta_int(c, "none", 0, 9, &i, &err), 0);
    assert_int_equal(rg_meta_type_of(c, "none"), RG_META_NULL);
    assert_int_equal(rg_meta_type_of(c, "b"), RG_META_OBJECT);
    assert_int_equal(rg_meta_length(c, "mixed", &n, &err), 1);
    assert_int_equal(n, 3);
    assert_int_equal(rg_meta_bool(c, "mixed.2.y", &b, &err), 1);
    assert_int_equal(rg_meta_string(c, "mixed.1", &s, &err), 1);
    assert_int_equal(rg_meta_floats(c, "real", &floats, &n, &err), 1);
    assert_true(floats[0] == 1.0f && floats[1] == 2.5f);
    assert_int_equal(rg_meta_bool(c, "yes.0", &b, &err), 1);
    assert_true(b);
    assert_int_equal(rg_meta_float(c, "huge", &f, &err), 1);
    assert_true(f > 9e29 && f < 1.1e30);
    assert_int_equal(rg_meta_int(c, "huge", 0, INT64_MAX, &i, &err), -1);
    assert_int_equal(rg_meta_floats(c, "limit", &floats, &n, &err), 1);
    assert_true(floats[0] == 0.0f && isinf(floats[1]));
    assert_int_equal(rg_meta_float(c, "minus", &f, &err), -1);
    assert_int_equal(rg_meta_int(c, "whole", 0, 9, &i, &err), 1);
    assert_int_equal(rg_meta_strings(c, "empty", &strings, &n, &err), 1);
    assert_int_equal(n, 0);
    assert_int_equal(rg_meta_string(c, "text", &s, &err), -1);
    assert_int_equal(rg_meta_strings(c, "names", &strings, &n, &err), 1);
    assert_string_equal(strings[1].data, "NaN 12345678901234567890");
    assert_int_equal(rg_meta_ints(c, "generation.eos_token_id", &ints, &n, &err), 1);
    assert_true(n == 2 && ints[1] == 8);
    assert_int_equal(rg_meta_string(c, "tokenizer_config.bos_token.content", &s, &err), 1);
    assert_string_equal(s, "<s>");
    rg_meta_each(c, visit, &v);
    assert_string_equal(v.first, "a");
    assert_int_equal(v.n, 20);
    assert_int_equal(v.n_understood, 17); /* all but mixed.0, o and generation.top_p */
    rg_meta_understand(c, "generation.");
    v = (visits){ 0 };
    rg_meta_each(c, visit, &v);
    assert_int_equal(v.n_understood, 18);
    s = rg_checkpoint_side_file(c, "tokenizer.json", &n, &err);
    assert_string_equal(s, "side");
    rg_free((void *)s);
    assert_null(rg_checkpoint_side_file(c, "../config.json", &n, &err));
    assert_int_equal(err.code, RG_OK);
    rg_checkpoint_close(c);
}

static void weights_may_be_left_out_on_request(void **state)
{
    rg_error err;

    (void)state;
    mkdir(in_scratch("bare"), 0755);
    put_text("bare/config.json", "{\"a\": 1}");
    assert_null(rg_checkpoint_open(in_scratch("bare"), 0, &err));
    assert_non_null(strstr(err.text, "model.safetensors"));
    rg_checkpoint_close(open_ok(in_scratch("bare"), RG_CKPT_NO_WEIGHTS));
    rg_checkpoint_close(open_ok(in_scratch("bare/"), RG_CKPT_NO_WEIGHTS));
    assert_null(rg_checkpoint_open(in_scratch("nowhere"), 0, &err));
    assert_int_equal(err.code, RG_E_IO);
}

static void a_config_stands_for_its_folder(void **state)
{
    rg_checkpoint *folder = open_ok(test_data("llama"), 0), *config = open_ok(test_data("llama/config.old.json"), 0),
                  *alone = open_ok(test_data("llama/config.old.json"), RG_CKPT_NO_WEIGHTS);

    (void)state;
    assert_true(rg_checkpoint_n_tensors(folder) > 0);
    assert_int_equal(rg_checkpoint_n_tensors(config), rg_checkpoint_n_tensors(folder));
    assert_int_equal(rg_meta_type_of(config, "rope_parameters"), RG_META_NONE); /* the old spelling, not the folder's */
    assert_int_equal(rg_checkpoint_n_tensors(alone), 0);
    rg_checkpoint_close(folder);
    rg_checkpoint_close(config);
    rg_checkpoint_close(alone);
}

static bool skip_name(const char *key)
{
    return !strcmp(key, "general.name");
}

/* Copy every tensor of `from`, in pieces of `piece` bytes. */
static void copy_tensors(rg_ckpt_writer *w, const rg_checkpoint *from, size_t piece)
{
    rg_error err;

    for (int i = 0; i < rg_checkpoint_n_tensors(from); i++) {
        const rg_tensor *t = rg_checkpoint_tensor(from, i);
        assert_ok(rg_ckpt_declare(w, t->name, t->type, t->n_dims, t->shape, &err), err);
    }
    for (int i = 0; i < rg_checkpoint_n_tensors(from); i++) {
        const rg_tensor *t = rg_checkpoint_tensor(from, i);
        char *p = read_whole(from, t);
        for (size_t at = 0; at < t->bytes; at += piece) {
            size_t n = t->bytes - at < piece ? (size_t)t->bytes - at : piece;
            assert_ok(rg_ckpt_write(w, p + at, n, &err), err);
        }
        rg_free(p);
    }
}

static void expect_same_tensors(const rg_checkpoint *a, const rg_checkpoint *b)
{
    assert_int_equal(rg_checkpoint_n_tensors(a), rg_checkpoint_n_tensors(b));
    for (int i = 0; i < rg_checkpoint_n_tensors(a); i++) {
        const rg_tensor *t = rg_checkpoint_tensor(a, i);
        expect_same_tensor(a, t, b, rg_checkpoint_find(b, t->name));
    }
}

static void gguf_comes_back(void **state)
{
    rg_checkpoint *from = open_ok(test_data("stories260K.gguf"), 0), *back;
    static const int32_t ints[] = { -1, 0, INT32_MAX };
    static const float floats[] = { 0.5f, -2.0f };
    static const rg_string strings[] = { { "a\0b", 3 }, { "", 0 } };
    rg_ckpt_writer *w;
    const rg_string *s;
    const int32_t *v;
    rg_error err = { 0 };
    int64_t i;
    bool b;
    size_t n;
    char x[64], y[64];

    (void)state;
    w = rg_gguf_create(in_scratch("copy.gguf"), &err);
    assert_ok(w, err);
    assert_ok(rg_ckpt_put_all(w, from, skip_name, &err), err);
    assert_ok(rg_ckpt_put_int(w, "x.u8", 0, 255, &err), err);
    assert_ok(rg_ckpt_put_int(w, "x.i64", 11, INT64_MIN, &err), err);
    assert_false(rg_ckpt_put_int(w, "x.small", 0, 256, &err));
    assert_false(rg_ckpt_put_int(w, "x.type", 6, 1, &err));
    assert_ok(rg_ckpt_put_bool(w, "x.yes", true, &err), err);
    assert_ok(rg_ckpt_put_float(w, "x.half", 0.5, &err), err);
    assert_ok(rg_ckpt_put_string(w, "x.text", "hello", 5, &err), err);
    assert_ok(rg_ckpt_put_strings(w, "x.texts", strings, 2, &err), err);
    assert_ok(rg_ckpt_put_ints(w, "x.ints", ints, 3, &err), err);
    assert_ok(rg_ckpt_put_floats(w, "x.floats", floats, 2, &err), err);
    assert_false(rg_ckpt_put_bool(w, "x.yes", true, &err));
    copy_tensors(w, from, 1000);
    assert_false(rg_ckpt_put_bool(w, "x.late", true, &err));
    assert_ok(rg_ckpt_commit(w, &err), err);
    back = open_ok(in_scratch("copy.gguf"), 0);
    expect_same_tensors(from, back);
    assert_int_equal(rg_meta_type_of(back, "general.name"), RG_META_NONE);
    assert_int_equal(rg_meta_int(back, "x.u8", 0, 255, &i, &err), 1);
    assert_int_equal(i, 255);
    assert_int_equal(rg_meta_int(back, "x.i64", INT64_MIN, 0, &i, &err), 1);
    assert_true(i == INT64_MIN);
    assert_int_equal(rg_meta_bool(back, "x.yes", &b, &err), 1);
    assert_int_equal(rg_meta_strings(back, "x.texts", &s, &n, &err), 1);
    assert_true(n == 2 && s[0].n == 3 && !memcmp(s[0].data, "a\0b", 3) && s[1].n == 0);
    assert_int_equal(rg_meta_ints(back, "x.ints", &v, &n, &err), 1);
    assert_memory_equal(v, ints, sizeof ints);
    rg_meta_text(from, "tokenizer.ggml.tokens", x, sizeof x);
    rg_meta_text(back, "tokenizer.ggml.tokens", y, sizeof y);
    assert_string_equal(x, y);
    rg_checkpoint_close(from);
    rg_checkpoint_close(back);
}

static void hf_comes_back(void **state)
{
    rg_checkpoint *from = open_ok(test_data("llama3"), 0), *back;
    rg_error err = { 0 };
    rg_ckpt_writer *w;
    const char *s;
    int64_t i;
    double f;

    (void)state;
    w = rg_hf_create(in_scratch("made"), &err);
    assert_ok(w, err);
    assert_ok(rg_ckpt_put_all(w, from, NULL, &err), err);
    assert_ok(rg_ckpt_put_string(w, "dtype", "float32", 7, &err), err);
    assert_ok(rg_ckpt_put_int(w, "quantization.bits", 4, 8, &err), err);
    assert_ok(rg_ckpt_put_float(w, "rope_parameters.added", 0.25, &err), err);
    assert_false(rg_ckpt_put_float(w, "dtype.under", 0.25, &err));
    assert_false(rg_ckpt_declare(w, "q", RG_Q4_0, 1, (int64_t[]){ 32 }, &err));
    assert_int_equal(err.code, RG_E_UNSUPPORTED);
    copy_tensors(w, from, 100000);
    assert_ok(rg_ckpt_commit(w, &err), err);
    back = open_ok(in_scratch("made"), 0);
    expect_same_tensors(from, back);
    assert_int_equal(rg_meta_string(back, "dtype", &s, &err), 1);
    assert_string_equal(s, "float32");
    assert_int_equal(rg_meta_int(back, "quantization.bits", 0, 9, &i, &err), 1);
    assert_int_equal(rg_meta_float(back, "rope_parameters.added", &f, &err), 1);
    assert_int_equal(rg_meta_int(back, "hidden_size", 64, 64, &i, &err), 1);
    assert_int_equal(rg_meta_float(back, "rope_parameters.rope_theta", &f, &err), 1);
    rg_checkpoint_close(from);
    rg_checkpoint_close(back);
}

/* A language model beside others: its settings stand at the top, its tensors have the names of a model of text alone. */
static void a_language_model_among_parts(void **state)
{
    static const char *const names[] = { "model.language_model.norm.weight", "language_model.model.other.weight",
                                         "language_model.lm_head.weight",    "model.vision_tower.patch.weight",
                                         "multi_modal_projector.weight",     "mtp.weight" };
    static const char *const wanted[] = { "model.norm.weight", "model.other.weight", "lm_head.weight" };
    const int64_t shape = 1;
    const float value = 1;
    const char *type;
    rg_error err;
    int64_t n;

    (void)state;
    put_text("config.json", "{\"model_type\": \"whole\", \"n\": 1, \"m\": 3, \"vision_config\": {\"n\": 5},"
                            " \"text_config\": {\"model_type\": \"part\", \"n\": 2}}");
    rg_ckpt_writer *w = rg_safetensors_create(in_scratch("model.safetensors"), &err);
    assert_ok(w, err);
    for (size_t i = 0; i < RG_LEN(names); i++)
        assert_ok(rg_ckpt_declare(w, names[i], RG_F32, 1, &shape, &err), err);
    for (size_t i = 0; i < RG_LEN(names); i++)
        assert_ok(rg_ckpt_write(w, &value, sizeof value, &err), err);
    assert_ok(rg_ckpt_commit(w, &err), err);
    rg_checkpoint *c = open_ok(in_scratch("config.json"), 0);
    assert_true(rg_checkpoint_has_parts(c));
    assert_int_equal(rg_meta_string(c, "model_type", &type, &err), 1);
    assert_string_equal(type, "part");
    assert_int_equal(rg_meta_int(c, "n", 0, 9, &n, &err), 1);
    assert_int_equal(n, 2);
    assert_int_equal(rg_meta_int(c, "m", 0, 9, &n, &err), 1);
    assert_int_equal(rg_meta_int(c, "vision_config.n", 5, 5, &n, &err), 1);
    for (size_t i = 0; i < RG_LEN(wanted); i++)
        assert_ptr_equal(rg_checkpoint_find(c, wanted[i]), rg_checkpoint_find(c, names[i]));
    assert_non_null(rg_checkpoint_find(c, names[0]));
    for (size_t i = 0; i < RG_LEN(names); i++)
        assert_int_equal(rg_tensor_is_of_other_part(c, rg_checkpoint_find(c, names[i])), i == 3 || i == 4);
    rg_checkpoint_close(c);
    unlink(in_scratch("model.safetensors"));
}

static void unfinished_writing_leaves_nothing(void **state)
{
    rg_error err;
    rg_ckpt_writer *w = rg_gguf_create(in_scratch("never.gguf"), &err);
    float x[32] = { 0 };

    (void)state;
    assert_ok(rg_ckpt_declare(w, "a", RG_F32, 1, (int64_t[]){ 32 }, &err), err);
    assert_ok(rg_ckpt_declare(w, "b", RG_F32, 2, (int64_t[]){ 2, 16 }, &err), err);
    assert_false(rg_ckpt_declare(w, "a", RG_F32, 1, (int64_t[]){ 32 }, &err));
    assert_false(rg_ckpt_declare(w, "c", RG_Q4_0, 1, (int64_t[]){ 33 }, &err));
    assert_false(rg_ckpt_declare(w, "d", RG_F32, 2, (int64_t[]){ 0, 33 }, &err));
    assert_ok(rg_ckpt_write(w, x, sizeof x, &err), err);
    assert_false(rg_ckpt_write(w, x, sizeof x + 1, &err));
    assert_false(rg_ckpt_commit(w, &err));
    assert_non_null(strstr(err.text, "'b'"));
    w = rg_gguf_create(in_scratch("never.gguf"), &err);
    rg_ckpt_abort(w);
    rg_ckpt_abort(NULL);
    assert_int_equal(rg_path_look(in_scratch("never.gguf")), RG_PATH_NONE);
}

/* Part `no` of `count` of a split file: one tensor, and the metadata in the first. */
static void put_part(const char *name, int no, int count, int n_total, float value)
{
    rg_error err;
    rg_ckpt_writer *w = rg_gguf_create(in_scratch(name), &err);
    char tensor[16];
    float x[8];

    for (int i = 0; i < 8; i++)
        x[i] = value;
    snprintf(tensor, sizeof tensor, "t%d", no);
    if (no == 0)
        assert_ok(rg_ckpt_put_string(w, "general.architecture", "x", 1, &err), err);
    assert_ok(rg_ckpt_put_int(w, "split.no", 2, no, &err), err);
    assert_ok(rg_ckpt_put_int(w, "split.count", 2, count, &err), err);
    assert_ok(rg_ckpt_put_int(w, "split.tensors.count", 5, n_total, &err), err);
    assert_ok(rg_ckpt_declare(w, tensor, RG_F32, 1, (int64_t[]){ 8 }, &err), err);
    assert_ok(rg_ckpt_write(w, x, sizeof x, &err), err);
    assert_ok(rg_ckpt_commit(w, &err), err);
}

static void split_files_open_by_any_part(void **state)
{
    static const char *const names[] = { "s-00001-of-00003.gguf", "s-00002-of-00003.gguf", "s-00003-of-00003.gguf" };
    rg_error err;

    (void)state;
    for (int i = 0; i < 3; i++)
        put_part(names[i], i, 3, 3, (float)i);
    for (int i = 0; i < 3; i++) {
        rg_checkpoint *c = open_ok(in_scratch(names[i]), 0);
        const rg_tensor *t = rg_checkpoint_find(c, "t2");
        float x[8];
        assert_int_equal(rg_checkpoint_n_tensors(c), 3);
        assert_int_equal(rg_meta_type_of(c, "general.architecture"), RG_META_STRING);
        assert_non_null(t);
        assert_ok(rg_tensor_read(c, t, 0, x, sizeof x, &err), err);
        assert_true(x[7] == 2.0f);
        rg_checkpoint_close(c);
    }
    unlink(in_scratch(names[1]));
    assert_null(rg_checkpoint_open(in_scratch(names[0]), 0, &err));
    assert_non_null(strstr(err.text, names[1]));
    rg_checkpoint_close(open_ok(in_scratch(names[0]), RG_CKPT_NO_WEIGHTS));
    put_part(names[1], 2, 3, 3, 0.0f);
    assert_null(rg_checkpoint_open(in_scratch(names[0]), 0, &err));
    assert_non_null(strstr(err.text, "split.no"));
    put_part(names[1], 1, 4, 3, 0.0f);
    assert_null(rg_checkpoint_open(in_scratch(names[0]), 0, &err));
    put_part(names[1], 1, 3, 4, 0.0f);
    put_part(names[2], 2, 3, 4, 0.0f);
    assert_null(rg_checkpoint_open(in_scratch(names[0]), 0, &err));
    assert_non_null(strstr(err.text, "split.tensors.count"));
    put_part("lonely.gguf", 0, 2, 2, 0.0f);
    assert_null(rg_checkpoint_open(in_scratch("lonely.gguf"), 0, &err));
    assert_non_null(strstr(err.text, "lonely.gguf"));
}

static void shards_open_by_their_index(void **state)
{
    rg_error err;
    rg_checkpoint *c;
    uint8_t x[8];

    (void)state;
    mkdir(in_scratch("sharded"), 0755);
    put_text("sharded/config.json", "{}");
    put_safetensors("sharded/m-00001-of-00002.safetensors",
                    "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8);
    put_safetensors("sharded/m-00002-of-00002.safetensors",
                    "{\"b\":{\"dtype\":\"BF16\",\"shape\":[2,2],\"data_offsets\":[4,12]},"
                    "\"c\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,4]}}",
                    12);
    put_text("sharded/model.safetensors.index.json",
             "{\"weight_map\":{\"a\":\"m-00001-of-00002.safetensors\",\"b\":\"m-00002-of-00002.safetensors\","
             "\"c\":\"m-00002-of-00002.safetensors\"}}");
    c = open_ok(in_scratch("sharded"), 0);
    assert_int_equal(rg_checkpoint_n_tensors(c), 3);
    assert_ok(rg_tensor_read(c, rg_checkpoint_find(c, "b"), 0, x, 8, &err), err);
    assert_int_equal(x[0], 4);
    assert_int_equal(rg_checkpoint_find(c, "b")->file, 1);
    rg_checkpoint_close(c);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(both_kinds_hold_the_same_tensors, count_live, none_leaked),
        cmocka_unit_test_setup_teardown(real_models_open, count_live, none_leaked),
        cmocka_unit_test_setup_teardown(reads_stay_in_their_tensor, count_live, none_leaked),
        cmocka_unit_test_setup_teardown(gguf_metadata_is_typed, count_live, none_leaked),
        cmocka_unit_test_setup_teardown(json_becomes_keys, count_live, none_leaked),
        cmocka_unit_test_setup_teardown(weights_may_be_left_out_on_request, count_live, none_leaked),
        cmocka_unit_test_setup_teardown(a_config_stands_for_its_folder, count_live, none_leaked),
        cmocka_unit_test_setup_teardown(gguf_comes_back, count_live, none_leaked),
        cmocka_unit_test_setup_teardown(hf_comes_back, count_live, none_leaked),
        cmocka_unit_test_setup_teardown(a_language_model_among_parts, count_live, none_leaked),
        cmocka_unit_test_setup_teardown(unfinished_writing_leaves_nothing, count_live, none_leaked),
        cmocka_unit_test_setup_teardown(split_files_open_by_any_part, count_live, none_leaked),
        cmocka_unit_test_setup_teardown(shards_open_by_their_index, count_live, none_leaked),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch) ? 1 : 0;
}
