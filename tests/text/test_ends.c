/* Tests of the ids that end an answer: every source, marks that are no ends beside others, and the way through GGUF.
 * golden/ends/model.gguf names <eos> alone, and its template ends turns with <end_of_turn>. */
#include "support/test.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "ridge.h"
#include "text/ends.h"
#include "text/export.h"

enum { MAX_TOKENS = 12, CONTROL = 3, USER = 4, NORMAL = 1, PIECES = 20 };

/* ---- GGUF ---- */

typedef struct token {
    const char *text;
    int type;
} token;

typedef struct put {
    const char *key;
    int64_t id;
} put;

/* A file of a vocabulary: id 0 is "a", and these follow. */
typedef struct gguf_case {
    token tokens[MAX_TOKENS];
    put keys[4];
    const int32_t *list; /* [2], as eos_token_ids; NULL: none */
    const char *want;    /* "ID ID ..." */
} gguf_case;

static const char *scratch(const char *name)
{
    static char path[4][600];
    static int at;
    char *p = path[at++ % 4];

    snprintf(p, sizeof path[0], "%s/ends_%s", RG_BUILD_DIR, name);
    return p;
}

static rg_checkpoint *write_gguf(const gguf_case *c, int *n_tokens)
{
    rg_string pieces[MAX_TOKENS + 1] = { { "a", 1 } };
    int32_t types[MAX_TOKENS + 1] = { NORMAL };
    const int64_t one = 1;
    const char *path = scratch("case.gguf");
    rg_error err = { 0 };
    rg_ckpt_writer *w = rg_gguf_create(path, &err);
    int n = 1;

    assert_ok(w, err);
    for (; n <= MAX_TOKENS && c->tokens[n - 1].text; n++) {
        pieces[n] = (rg_string){ c->tokens[n - 1].text, strlen(c->tokens[n - 1].text) };
        types[n] = c->tokens[n - 1].type;
    }
    assert_ok(rg_ckpt_put_string(w, "tokenizer.ggml.model", "gpt2", 4, &err), err);
    assert_ok(rg_ckpt_put_strings(w, "tokenizer.ggml.tokens", pieces, (size_t)n, &err), err);
    assert_ok(rg_ckpt_put_ints(w, "tokenizer.ggml.token_type", types, (size_t)n, &err), err);
    for (size_t i = 0; i < RG_LEN(c->keys) && c->keys[i].key; i++)
        assert_ok(rg_ckpt_put_int(w, c->keys[i].key, 4, c->keys[i].id, &err), err);
    if (c->list)
        assert_ok(rg_ckpt_put_ints(w, "tokenizer.ggml.eos_token_ids", c->list, 2, &err), err);
    assert_ok(rg_ckpt_declare(w, "x", RG_F32, 1, &one, &err), err);
    assert_ok(rg_ckpt_write(w, "\0\0\0", 4, &err), err);
    assert_ok(rg_ckpt_commit(w, &err), err);
    rg_checkpoint *ckpt = rg_checkpoint_open(path, RG_CKPT_DEFAULT, &err);
    assert_ok(ckpt, err);
    *n_tokens = n;
    return ckpt;
}

static void ids_are(const rg_ends *e, const char *want)
{
    char got[256] = "";

    for (int i = 0; i < e->n; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%d", i ? " " : "", e->id[i]);
    assert_string_equal(got, want);
}

#define EOS "tokenizer.ggml.eos_token_id"
#define EOT "tokenizer.ggml.eot_token_id"
#define EOM "tokenizer.ggml.eom_token_id"

static void every_source_of_gguf_is_joined(void **state)
{
    static const int32_t list[2] = { 1, 4 };
    static const gguf_case cases[] = {
        { .tokens = { { "<|x|>", CONTROL }, { "<|y|>", CONTROL }, { "<|z|>", CONTROL } },
          .keys = { { EOS, 1 }, { EOT, 2 }, { EOM, 3 } }, .want = "1 2 3" },
        { .tokens = { { "<|x|>", CONTROL }, { "<|y|>", CONTROL }, { "<|z|>", CONTROL }, { "<|w|>", CONTROL } },
          .keys = { { EOS, 1 }, { EOT, 1 } }, .list = list, .want = "1 4" },
        { .tokens = { { "<bos>", CONTROL }, { "<start_of_turn>", CONTROL }, { "<end_of_turn>", CONTROL } },
          .keys = { { EOS, 1 } }, .want = "1 3" },
        { .tokens = { { "<|begin_of_text|>", CONTROL }, { "<|end_of_text|>", CONTROL }, { "<|start_header_id|>", CONTROL },
                      { "<|eom_id|>", CONTROL }, { "<|eot_id|>", CONTROL }, { "<|python_tag|>", CONTROL } },
          .keys = { { EOS, 2 } }, .want = "2 5 4" },
        { .tokens = { { "<|im_start|>", CONTROL }, { "<|im_end|>", USER }, { "</think>", USER } }, .want = "2" },
        { .tokens = { { "<end_of_turn>", NORMAL }, { "<turn|>", CONTROL }, { "<|tool_response>", CONTROL } },
          .want = "1 2 3" },
        /* words of a text, unless they are control tokens */
        { .tokens = { { "</s>", USER }, { "<EOT>", NORMAL }, { "<eos>", CONTROL } }, .want = "3" },
        { .tokens = { { "</s>", CONTROL }, { "<|tool_response>", CONTROL } }, .keys = { { EOS, 1 } }, .want = "2" },
        /* <|end|> ends an answer, or a message inside one */
        { .tokens = { { "<|user|>", CONTROL }, { "<|end|>", CONTROL } }, .want = "2" },
        { .tokens = { { "<|end|>", CONTROL }, { "<|return|>", CONTROL }, { "<|call|>", CONTROL },
                      { "<|channel|>", CONTROL }, { "<|message|>", CONTROL }, { "<|endoftext|>", CONTROL } },
          .keys = { { EOS, 2 }, { EOT, 1 } }, .want = "2 3 6" },
        { .tokens = { { "<|end|>", CONTROL }, { "<|flush|>", CONTROL }, { "<|calls|>", CONTROL } }, .want = "2 3" },
        /* none: GGUF writes -1 without a sign */
        { .tokens = { { "<|x|>", CONTROL } }, .keys = { { EOS, UINT32_MAX } }, .want = "" },
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        rg_error err = { 0 };
        rg_ends e;
        int n;
        rg_checkpoint *c = write_gguf(&cases[i], &n);
        rg_tokenizer *t = rg_tokenizer_open(c, &err);
        assert_ok(t, err);
        assert_ok(rg_ends_read(&e, c, t, n, &err), err);
        ids_are(&e, cases[i].want);
        rg_tokenizer_close(t);
        rg_checkpoint_close(c);
    }
}

/* The mark of a turn's end is a control token whatever its type says: it has no text, and no text becomes it. */
static void a_mark_of_another_type_is_a_control_token(void **state)
{
    static const gguf_case c = { .tokens = { { "<end_of_turn>", NORMAL }, { "<|im_end|>", USER }, { "<b>", USER } } };
    rg_error err = { 0 };
    int n;
    rg_checkpoint *ckpt = write_gguf(&c, &n);
    rg_tokenizer *t = rg_tokenizer_open(ckpt, &err);

    (void)state;
    assert_ok(t, err);
    assert_true(rg_tokenizer_is_special(t, 1) && rg_tokenizer_is_special(t, 2) && !rg_tokenizer_is_special(t, 3));
    rg_tokenizer_close(t);
    rg_checkpoint_close(ckpt);
}

static void an_end_beyond_the_vocabulary_is_refused(void **state)
{
    static const gguf_case cases[] = {
        { .tokens = { { "b", NORMAL } }, .keys = { { EOS, 2 } } },
        { .tokens = { { "b", NORMAL } }, .keys = { { EOM, 3000000000 } } },
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        rg_error err = { 0 };
        rg_ends e;
        int n;
        rg_checkpoint *c = write_gguf(&cases[i], &n);
        assert_false(rg_ends_read(&e, c, NULL, n, &err));
        assert_non_null(strstr(err.text, "beyond the vocabulary of 2"));
        assert_non_null(strstr(err.text, cases[i].keys[0].key));
        rg_checkpoint_close(c);
    }
}

static void more_ends_than_there_is_room_for_are_refused(void **state)
{
    enum { MANY = RG_MAX_ENDS + 1 };
    static int32_t list[MANY];
    const int64_t one = 1;
    rg_error err = { 0 };
    rg_ends e;
    rg_ckpt_writer *w = rg_gguf_create(scratch("many.gguf"), &err);

    (void)state;
    assert_ok(w, err);
    for (int i = 0; i < MANY; i++)
        list[i] = i;
    assert_ok(rg_ckpt_put_ints(w, EOS, list, MANY, &err), err);
    assert_ok(rg_ckpt_declare(w, "x", RG_F32, 1, &one, &err), err);
    assert_ok(rg_ckpt_write(w, "\0\0\0", 4, &err), err);
    assert_ok(rg_ckpt_commit(w, &err), err);
    rg_checkpoint *c = rg_checkpoint_open(scratch("many.gguf"), RG_CKPT_DEFAULT, &err);
    assert_ok(c, err);
    assert_false(rg_ends_read(&e, c, NULL, 1000, &err));
    assert_non_null(strstr(err.text, "more than 256"));
    rg_checkpoint_close(c);
}

/* ---- a Hugging Face folder ---- */

/* "a" is 0, then added tokens: special but for </think> and the last. */
static const char tokenizer_json[] =
    "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": []}, \"pre_tokenizer\": {\"type\": \"ByteLevel\", "
    "\"add_prefix_space\": false}, \"decoder\": {\"type\": \"ByteLevel\"}, \"added_tokens\": ["
    "{\"id\": 1, \"content\": \"<|x|>\", \"special\": true}, {\"id\": 2, \"content\": \"<|y|>\", \"special\": true},"
    "{\"id\": 3, \"content\": \"<|z|>\", \"special\": true}, {\"id\": 4, \"content\": \"<|w|>\", \"special\": true},"
    "{\"id\": 5, \"content\": \"</think>\", \"special\": false}, {\"id\": 6, \"content\": \"%s\", \"special\": true},"
    "{\"id\": 7, \"content\": \"%s\", \"special\": true}, {\"id\": 8, \"content\": \"</s>\", \"special\": false}]}";

typedef struct folder_case {
    const char *config, *generation, *tokenizer_config, *special_map; /* NULL: no such file, or an empty one */
    const char *six, *seven; /* tokens */
    const char *want;
} folder_case;

static rg_checkpoint *write_folder(const folder_case *c)
{
    const char *const files[][2] = { { "config.json", c->config ? c->config : "{}" },
                                     { "generation_config.json", c->generation },
                                     { "tokenizer_config.json", c->tokenizer_config },
                                     { "special_tokens_map.json", c->special_map } };
    char path[700], text[2000];
    rg_error err = { 0 };

    assert_ok(rg_dir_make(scratch("folder"), &err), err);
    for (size_t i = 0; i < RG_LEN(files); i++) {
        snprintf(path, sizeof path, "%s/%s", scratch("folder"), files[i][0]);
        if (files[i][1])
            test_write_text(path, files[i][1]);
        else
            remove(path);
    }
    snprintf(path, sizeof path, "%s/tokenizer.json", scratch("folder"));
    snprintf(text, sizeof text, tokenizer_json, c->six ? c->six : "<|6|>", c->seven ? c->seven : "<|7|>");
    test_write_text(path, text);
    rg_checkpoint *ckpt = rg_checkpoint_open(scratch("folder"), RG_CKPT_NO_WEIGHTS, &err);
    assert_ok(ckpt, err);
    return ckpt;
}

static const folder_case folders[] = {
    { .config = "{\"eos_token_id\": 1}", .generation = "{\"eos_token_id\": [2, 1]}",
      .tokenizer_config = "{\"eos_token\": \"<|z|>\"}",
      .special_map = "{\"eos_token\": {\"content\": \"<|w|>\", \"lstrip\": false}}", .want = "2 1 3 4" },
    { .config = "{\"eos_token_id\": 1, \"text_config\": {\"eos_token_id\": [3, 4]}}", .want = "1 3 4" },
    { .config = "{\"eos_token_id\": null}", .generation = "{\"eos_token_id\": null}",
      .tokenizer_config = "{\"eos_token\": {\"__type\": \"AddedToken\", \"content\": \"<|y|>\"}}",
      .special_map = "{\"eos_token\": null}", .want = "2" },
    { .config = "{\"eos_token_id\": 1}", .six = "<|im_start|>", .seven = "<|im_end|>", .want = "1 7" },
    { .config = "{\"eos_token_id\": 1}", .six = "<|end|>", .seven = "<|return|>", .want = "1 7" },
    { .config = "{\"eos_token_id\": [6, 1]}", .six = "<|end|>", .seven = "<|call|>", .want = "1 7" },
    { .config = "{\"eos_token_id\": 1}", .six = "<|end|>", .want = "1 6" },
    { .tokenizer_config = "{\"eos_token\": \"</s>\"}", .seven = "<|eom_id|>", .want = "8 7" },
};

static void every_source_of_a_folder_is_joined(void **state)
{
    (void)state;
    for (size_t i = 0; i < RG_LEN(folders); i++) {
        rg_error err = { 0 };
        rg_ends e;
        rg_checkpoint *c = write_folder(&folders[i]);
        rg_tokenizer *t = rg_tokenizer_open(c, &err);
        assert_ok(t, err);
        assert_ok(rg_ends_read(&e, c, t, PIECES, &err), err);
        ids_are(&e, folders[i].want);
        rg_tokenizer_close(t);
        rg_checkpoint_close(c);
    }
}

static void sources_are_named(void **state)
{
    rg_error err = { 0 };
    rg_ends e;
    rg_checkpoint *c = write_folder(&(folder_case){ .config = "{\"eos_token_id\": 6}", .six = "<|im_end|>",
                                                    .special_map = "{\"eos_token\": \"<|im_end|>\"}" });
    rg_tokenizer *t = rg_tokenizer_open(c, &err);
    char names[300] = "";

    (void)state;
    assert_ok(t, err);
    assert_ok(rg_ends_read(&e, c, t, PIECES, &err), err);
    ids_are(&e, "6");
    for (int k = 0; rg_ends_source(k); k++)
        if (e.sources[0] >> k & 1)
            snprintf(names + strlen(names), sizeof names - strlen(names), "%s; ", rg_ends_source(k));
    assert_string_equal(names, "config.json: eos_token_id; special_tokens_map.json: eos_token; its text; ");
    rg_tokenizer_close(t);
    rg_checkpoint_close(c);
}

static bool has(const rg_ends *e, int32_t id)
{
    for (int i = 0; i < e->n; i++)
        if (e->id[i] == id)
            return true;
    return false;
}

/* Each folder as GGUF: the same ids, the tokenizer's own first. */
static void ends_go_over_to_gguf(void **state)
{
    const int64_t one = 1;

    (void)state;
    for (size_t i = 0; i < RG_LEN(folders); i++) {
        rg_error err = { 0 };
        rg_ends a, b;
        char warning[RG_EXPORT_WARNING];
        int32_t bos = -1;
        rg_checkpoint *c = write_folder(&folders[i]), *d;
        rg_tokenizer *t = rg_tokenizer_open(c, &err), *u;
        assert_ok(t, err);
        assert_ok(rg_ends_read(&a, c, t, PIECES, &err), err);
        rg_ckpt_writer *w = rg_gguf_create(scratch("over.gguf"), &err);
        assert_ok(w, err);
        assert_ok(rg_tokenizer_export(w, c, PIECES, &bos, warning, &err), err);
        assert_string_equal(warning, "");
        assert_ok(rg_ckpt_declare(w, "x", RG_F32, 1, &one, &err), err);
        assert_ok(rg_ckpt_write(w, "\0\0\0", 4, &err), err);
        assert_ok(rg_ckpt_commit(w, &err), err);
        d = rg_checkpoint_open(scratch("over.gguf"), RG_CKPT_DEFAULT, &err);
        assert_ok(d, err);
        u = rg_tokenizer_open(d, &err);
        assert_ok(u, err);
        assert_ok(rg_ends_read(&b, d, u, PIECES, &err), err);
        assert_int_equal(a.n, b.n);
        for (int k = 0; k < a.n; k++)
            assert_true(has(&b, a.id[k]));
        assert_true(rg_tokenizer_eos(t) < 0 || !has(&a, rg_tokenizer_eos(t)) ||
                    rg_tokenizer_eos(u) == rg_tokenizer_eos(t));
        rg_tokenizer_close(t);
        rg_tokenizer_close(u);
        rg_checkpoint_close(c);
        rg_checkpoint_close(d);
    }
}

/* ---- an answer ---- */

/* How an answer ends whose next id is forced. */
static rg_finish ends_with(rg_engine *e, int32_t id, bool ignore, int *n)
{
    const int32_t prompt[] = { 10, 11 };
    const rg_logit_bias bias = { .id = id, .bias = 100 };
    rg_params p = { .prompt = prompt, .n_prompt = 2, .max_tokens = 4, .n_samples = 1, .sampling = rg_sampling_default() };
    rg_finish finish = RG_RUNNING;
    rg_error err = { 0 };
    rg_token t;

    p.sampling.bias = &bias;
    p.sampling.n_bias = 1;
    p.sampling.ignore_eos = ignore;
    p.sampling.seed = 1;
    rg_request *r = rg_submit(e, &p, &err);
    assert_ok(r, err);
    for (*n = 0; rg_next(r, &t); finish = t.finish)
        *n += t.id >= 0;
    rg_request_close(r);
    return finish;
}

static void an_answer_ends_at_each(void **state)
{
    static const struct {
        int32_t id;
        bool ends;
    } ids[] = { { 0, true }, { 1, false }, { 2, false }, { 3, true }, { 4, false }, { 5, true } };
    rg_options o = rg_options_default();
    rg_error err = { 0 };
    int n;

    (void)state;
    o.n_threads = 1;
    o.kv_bytes = 1 << 20;
    rg_engine *e = rg_open(RG_TEST_DATA "/ends/model.gguf", &o, &err);
    assert_ok(e, err);
    assert_int_equal(rg_engine_info(e).n_eos, 3);
    for (size_t i = 0; i < RG_LEN(ids); i++) {
        assert_int_equal(ends_with(e, ids[i].id, false, &n), ids[i].ends ? RG_FINISH_STOP : RG_FINISH_LENGTH);
        assert_int_equal(n, ids[i].ends ? 0 : 4);
    }
    assert_int_equal(ends_with(e, 3, true, &n), RG_FINISH_LENGTH); /* banned or ordinary, it ends nothing */
    assert_int_equal(n, 4);
    rg_close(e);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_source_of_gguf_is_joined),
        cmocka_unit_test(a_mark_of_another_type_is_a_control_token),
        cmocka_unit_test(an_end_beyond_the_vocabulary_is_refused),
        cmocka_unit_test(more_ends_than_there_is_room_for_are_refused),
        cmocka_unit_test(every_source_of_a_folder_is_joined),
        cmocka_unit_test(sources_are_named),
        cmocka_unit_test(ends_go_over_to_gguf),
        cmocka_unit_test(an_answer_ends_at_each),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
