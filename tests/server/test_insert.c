/* test_insert.c -- `suffix` of completions and llama-server's /infill: what is to stand between two texts, by the marks of
 * each family of vocabularies.  The prompt is made here by hand, as the families' publishers write it: mark by mark, and the
 * texts between as texts. */
#include "live.h"

#include <sys/stat.h>

#include "base/json.h"
#include "support/model.h"

enum { N_VOCAB = 4096 };

/* A family: its marks, and where in the prompt they and the texts stand: p, s, m the marks, P and S the texts. */
typedef struct family {
    const char *marks[5]; /* prefix, suffix, middle, and of files: repository, file; NULL: it has none */
    const char *order;
} family;

static const family families[] = {
    { { "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>" }, "pPsSm" }, /* Qwen2.5-Coder */
    { { "<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<reponame>", "<filename>" }, "pPsSm" },            /* StarCoder */
    { { "<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>" }, "pPsSm" },                                   /* DeepSeek-Coder */
    { { "<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>" }, "pPsSm" },                               /* GLM-4 */
    { { "[PREFIX]", "[SUFFIX]", "[MIDDLE]" }, "sSpP" },                                                     /* Codestral */
};

/* The id of a mark: the last ids of the vocabulary become marks. */
static int mark_id(const family *f, int mark)
{
    return N_VOCAB - (f->marks[3] ? 5 : 3) + mark;
}

static void add_mark(json_t *tokenizer, int id, const char *mark)
{
    json_t *model = json_object_get(tokenizer, "model"), *vocab = json_object_get(model, "vocab"), *was;
    json_t *merges = json_object_get(model, "merges");
    const char *key;

    json_object_foreach(vocab, key, was) if (json_integer_value(was) == id) break;
    assert_non_null(key);
    char *name = strdup(key);
    assert_non_null(name);
    json_object_del(vocab, name);
    free(name);
    json_array_remove(merges, json_array_size(merges) - 1);
    json_object_set_new(vocab, mark, json_integer(id));
    json_array_append_new(json_object_get(tokenizer, "added_tokens"),
                          json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", id, "content", mark, "single_word", 0,
                                    "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1));
}

/* The shipped model with the marks of a family in its vocabulary. */
static void start(test_server *t, const family *f)
{
    static const char *const same[] = { "config.json", "model.safetensors", "tokenizer_config.json" };
    rg_server_options o = test_server_options();
    rg_options e = rg_options_default();
    rg_error err = { 0 };
    char path[700], from[700], dir[600];

    snprintf(dir, sizeof dir, "%s", test_scratch("insert"));
    mkdir(dir, 0777);
    for (size_t i = 0; i < RG_LEN(same); i++) {
        snprintf(path, sizeof path, "%s/%s", dir, same[i]);
        snprintf(from, sizeof from, "%s/models/tales-1m/%s", RG_SOURCE_DIR, same[i]);
        unlink(path);
        assert_int_equal(symlink(from, path), 0);
    }
    json_t *v = json_load_file(RG_SOURCE_DIR "/models/tales-1m/tokenizer.json", 0, NULL);
    assert_non_null(v);
    for (int i = 4; i >= 0; i--) /* the last merge first */
        if (f->marks[i])
            add_mark(v, mark_id(f, i), f->marks[i]);
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    char *text = rg_json_dump(v, 0);
    assert_non_null(text);
    test_write_text(path, text);
    rg_free(text);
    json_decref(v);
    e.max_seq_len = 256;
    e.n_threads = 1;
    e.kv_bytes = (size_t)16 << 20;
    rg_engine *engine = rg_open(dir, &e, &err);
    assert_ok(engine, err);
    o.any_port = true;
    test_server_start_with(t, &o, engine);
}

/* Append the ids of a text, in which marks are text, too. */
static void add_text(const test_server *t, json_t *ids, const char *text)
{
    int32_t *more;
    size_t n;
    rg_error err = { 0 };

    assert_ok(rg_encode(t->engine, text, strlen(text), RG_ENCODE_NO_SPECIAL | RG_ENCODE_PLAIN, &more, &n, &err), err);
    for (size_t i = 0; i < n; i++)
        json_array_append_new(ids, json_integer(more[i]));
    rg_ids_free(more);
}

/* The prompt as the family writes it; file: one that is told before, with the family's marks. */
static json_t *by_hand(const test_server *t, const family *f, const char *prefix, const char *suffix, bool file)
{
    json_t *ids = json_array();
    int32_t bos = rg_engine_info(t->engine).bos_id;

    assert_non_null(ids);
    if (bos >= 0)
        json_array_append_new(ids, json_integer(bos));
    if (file) {
        json_array_append_new(ids, json_integer(mark_id(f, 3)));
        add_text(t, ids, "project\n");
        json_array_append_new(ids, json_integer(mark_id(f, 4)));
        add_text(t, ids, "a.c");
        add_text(t, ids, "\n");
        add_text(t, ids, "the cat");
        json_array_append_new(ids, json_integer(mark_id(f, 4)));
        add_text(t, ids, "filename\n");
    }
    for (const char *at = f->order; *at; at++)
        switch (*at) {
        case 'p': json_array_append_new(ids, json_integer(mark_id(f, 0))); break;
        case 's': json_array_append_new(ids, json_integer(mark_id(f, 1))); break;
        case 'm': json_array_append_new(ids, json_integer(mark_id(f, 2))); break;
        case 'P': add_text(t, ids, prefix); break;
        default: add_text(t, ids, suffix);
        }
    return ids;
}

/* Ask for the answer to a prompt of ids. */
static json_t *answer_to(const test_server *t, json_t *ids)
{
    json_t *body = json_pack("{s:o, s:i, s:i, s:i, s:b}", "prompt", ids, "max_tokens", 8, "temperature", 0, "logprobs", 0,
                             "ignore_eos", 1);
    char *text = rg_json_dump(body, 0);

    assert_non_null(text);
    json_t *v = test_web_json(t->port, "/v1/completions", text, 200);
    rg_free(text);
    json_decref(body);
    return v;
}

static json_t *insert(const test_server *t, const char *prefix, const char *suffix, const char *fields)
{
    char body[600];

    snprintf(body, sizeof body, "{\"prompt\":\"%s\",\"suffix\":\"%s\",\"max_tokens\":8,\"temperature\":0,\"ignore_eos\":true%s}",
             prefix, suffix, fields);
    return test_web_json(t->port, "/v1/completions", body, 200);
}

static void families_have_their_prompts(void **state)
{
    static const char *const texts[][2] = {
        { "Once upon a time", " and they were happy." },
        { "", "The end" },
        { "She said <|fim_suffix|>[SUFFIX]<fim_suffix>", " <|fim_middle|>" }, /* a user's text is no mark */
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(families); i++) {
        test_server t;

        start(&t, &families[i]);
        for (size_t k = 0; k < RG_LEN(texts); k++) {
            json_t *want = answer_to(&t, by_hand(&t, &families[i], texts[k][0], texts[k][1], false));
            json_t *got = insert(&t, texts[k][0], texts[k][1], ",\"logprobs\":0");
            const char *const same[] = { "choices.0.text", "choices.0.logprobs.token_logprobs", "usage.prompt_tokens" };

            for (size_t n = 0; n < RG_LEN(same); n++)
                if (!json_equal((json_t *)(uintptr_t)test_json_at(want, same[n]),
                                (json_t *)(uintptr_t)test_json_at(got, same[n])))
                    fail_msg("%s, text %zu: %s", families[i].marks[0], k, same[n]);
            json_decref(got);
            json_decref(want);
        }
        test_server_stop(&t);
    }
}

/* Streams, several answers, and what asks for nothing. */
static void as_other_completions(void **state)
{
    test_server t;

    (void)state;
    start(&t, &families[0]);
    json_t *one = insert(&t, "Once", "time", "");
    json_t *two = insert(&t, "Once", "time", ",\"n\":2");
    assert_string_equal(test_json_text(two, "choices.1.text"), test_json_text(one, "choices.0.text"));
    json_decref(two);
    test_reply r = test_web_ask(t.port, "POST", "/v1/completions", NULL,
                                "{\"prompt\":\"Once\",\"suffix\":\"time\",\"max_tokens\":8,\"temperature\":0,"
                                "\"ignore_eos\":true,\"stream\":true}");
    assert_int_equal(r.status, 200);
    size_t at = 0;
    const char *text = test_json_text(one, "choices.0.text");
    for (const char *e = strstr(r.body, "data: {"); e; e = strstr(e + 1, "data: {")) {
        json_t *v = json_loads(e + 6, JSON_DISABLE_EOF_CHECK, NULL);
        const char *part = test_json_text(v, "choices.0.text");
        assert_int_equal(strncmp(text + at, part, strlen(part)), 0);
        at += strlen(part);
        json_decref(v);
    }
    assert_int_equal(at, strlen(text));
    test_reply_free(&r);
    json_decref(one);
    /* No suffix, null and an empty one: a completion as any other. */
    json_t *plain = test_web_json(t.port, "/v1/completions", "{\"prompt\":\"Once\",\"max_tokens\":8,\"temperature\":0}", 200);
    static const char *const nothing[] = { "null", "\"\"" };
    for (size_t i = 0; i < RG_LEN(nothing); i++) {
        char body[200];
        snprintf(body, sizeof body, "{\"prompt\":\"Once\",\"max_tokens\":8,\"temperature\":0,\"suffix\":%s}", nothing[i]);
        json_t *v = test_web_json(t.port, "/v1/completions", body, 200);
        assert_string_equal(test_json_text(v, "choices.0.text"), test_json_text(plain, "choices.0.text"));
        json_decref(v);
    }
    json_decref(plain);
    static const char *const refused[][2] = {
        { "{\"prompt\":\"a\",\"suffix\":3}", "suffix" },
        { "{\"prompt\":[1,2],\"suffix\":\"b\"}", "prompt" },
        { "{\"prompt\":\"a\",\"suffix\":\"b\",\"echo\":true}", "echo" },
    };
    for (size_t i = 0; i < RG_LEN(refused); i++) {
        r = test_web_ask(t.port, "POST", "/v1/completions", NULL, refused[i][0]);
        assert_true(r.status == 400 && strstr(r.body, refused[i][1]));
        test_reply_free(&r);
    }
    test_server_stop(&t);
}

/* Files that are told before have their marks, and `prompt` begins what is filled in. */
static void infill_has_files(void **state)
{
    test_server t;

    (void)state;
    start(&t, &families[0]);
    json_t *ids = by_hand(&t, &families[0], "Once upon", " time", true);
    add_text(&t, ids, " a");
    json_t *want = answer_to(&t, ids);
    json_t *got = test_web_json(t.port, "/infill", "{\"input_prefix\":\"Once upon\",\"input_suffix\":\" time\",\"prompt\":\" a\","
                                "\"input_extra\":[{\"filename\":\"a.c\",\"text\":\"the cat\"}],\"n_predict\":8,\"seed\":1,"
                                "\"temperature\":0,\"ignore_eos\":true}", 200);
    assert_string_equal(test_json_text(got, "content"), test_json_text(want, "choices.0.text"));
    assert_int_equal(json_integer_value(test_json_at(got, "tokens_evaluated")),
                     json_integer_value(test_json_at(want, "usage.prompt_tokens")));
    json_decref(got);
    json_decref(want);
    test_server_stop(&t);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families_have_their_prompts),
        cmocka_unit_test(as_other_completions),
        cmocka_unit_test(infill_has_files),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
