/* test_ollama.c -- Ollama's API: the requests of completions, chat and embeddings in another dress.
 *
 * Two servers: the shipped model, and the same weights with a template that knows tools and reasoning, and a vocabulary
 * with marks to fill in the middle. */
#define _GNU_SOURCE 1
#include "server/live.h"

#include <sys/stat.h>

#include "base/json.h"

static const char template[] =
    "{{- bos_token -}}{%- if tools -%}<tools>{{ tools | tojson }}</tools>{%- endif -%}"
    "{%- for m in messages -%}<|{{ 'assistant' if m.role == 'assistant' else 'user' }}|>"
    "{%- if m.reasoning_content -%}<think>{{ m.reasoning_content }}</think>{%- endif -%}{{ m.content }}"
    "{%- for c in m.tool_calls or [] -%}<tool_call>{{ {'name': c.function.name, 'arguments': c.function.arguments} | "
    "tojson }}</tool_call>{%- endfor -%}<|end|>{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|assistant|>{%- if enable_thinking is defined and enable_thinking -%}"
    "<think>\n{%- endif -%}{%- endif -%}";

static test_server plain, rich;
static char folder[600];

static void link_file(const char *name)
{
    char path[700], from[700];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    snprintf(from, sizeof from, "%s/models/tales-1m/%s", RG_SOURCE_DIR, name);
    unlink(path);
    assert_int_equal(symlink(from, path), 0);
}

static void write_text(const char *name, const char *text, size_t n)
{
    char path[700];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    fclose(f);
}

/* The tokenizer, in which three ordinary tokens become marks to fill in the middle. */
static void write_tokenizer(void)
{
    static const char *const marks[] = { "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>" };
    json_t *v = json_load_file(RG_SOURCE_DIR "/models/tales-1m/tokenizer.json", 0, NULL);
    json_t *added = json_object_get(v, "added_tokens"), *vocab = json_object_get(json_object_get(v, "model"), "vocab");

    assert_non_null(added);
    for (int i = 0; i < 3; i++) {
        int id = 4093 + i;
        const char *key;
        json_t *was;
        json_object_foreach(vocab, key, was) if (json_integer_value(was) == id) break;
        assert_non_null(key);
        json_array_append_new(added,
                              json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", id, "content", marks[i],
                                        "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1));
        json_t *merges = json_object_get(json_object_get(v, "model"), "merges");
        json_array_remove(merges, json_array_size(merges) - 1);
        char *name = strdup(key);
        json_object_del(vocab, name);
        free(name);
        json_object_set_new(vocab, marks[i], json_integer(id));
    }
    char *text = rg_json_dump(v, 0);
    write_text("tokenizer.json", text, strlen(text));
    rg_free(text);
    json_decref(v);
}

static int setup(void **state)
{
    rg_server_options o = test_server_options();
    rg_options e = rg_options_default();
    rg_error err = { 0 };

    (void)state;
    o.strict_model = true;
    test_server_start(&plain, &o, 512, 16);
    snprintf(folder, sizeof folder, "%s/ollama_model", RG_BUILD_DIR);
    mkdir(folder, 0777);
    link_file("config.json");
    link_file("generation_config.json");
    link_file("model.safetensors");
    link_file("tokenizer_config.json");
    write_text("chat_template.jinja", template, sizeof template - 1);
    write_tokenizer();
    o.template_kwargs = "{\"enable_thinking\":true}"; /* of the second: a request without `think` thinks */
    e.max_seq_len = 512;
    e.n_threads = 1;
    e.kv_bytes = (size_t)64 << 20;
    rg_engine *engine = rg_open(folder, &e, &err);
    assert_ok(engine, err);
    test_server_start_with(&rich, &o, engine);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    test_server_stop(&plain);
    test_server_stop(&rich);
    return 0;
}

static json_t *ask(const test_server *t, const char *path, const char *body)
{
    return test_web_json(t->port, path, body, 200);
}

static long long int_at(const json_t *v, const char *path)
{
    if (!json_is_integer(test_json_at(v, path)))
        fail_msg("no integer at %s in %s", path, json_dumps(v, 0));
    return json_integer_value(test_json_at(v, path));
}

/* The lines of a streamed answer, as a list. */
static json_t *lines_of(const test_server *t, const char *path, const char *body)
{
    test_reply r = test_web_ask(t->port, "POST", path, NULL, body);
    json_t *all = json_array();

    assert_int_equal(r.status, 200);
    assert_string_equal(test_reply_header(&r, "Content-Type"), "application/x-ndjson");
    for (char *line = strtok(r.body, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *v = json_loads(line, 0, NULL);
        if (!v)
            fail_msg("no JSON: %s", line);
        json_array_append_new(all, v);
    }
    test_reply_free(&r);
    assert_true(json_array_size(all) > 0);
    return all;
}

/* What the lines have at path, one after the other. */
static void join(const json_t *lines, const char *path, char *to, size_t room)
{
    size_t n = 0;

    to[0] = 0;
    for (size_t i = 0; i < json_array_size(lines); i++) {
        const char *s = json_string_value(test_json_at(json_array_get(lines, i), path));
        n += (size_t)snprintf(to + n, room - n, "%s", s ? s : "");
        assert_true(n < room);
    }
}

#define STORY "{\"role\":\"user\",\"content\":\"Tell me a story.\"}"
#define FEW   "\"options\":{\"num_predict\":12,\"temperature\":0}"

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static void chat_says_what_chat_completions_say(void **state)
{
    json_t *want =
        ask(&plain, "/v1/chat/completions", "{\"messages\":[" STORY "],\"max_tokens\":12,\"temperature\":0}");
    json_t *got = ask(&plain, "/api/chat", "{\"model\":\"tales\",\"messages\":[" STORY "],\"stream\":false," FEW "}");
    json_t *lines = lines_of(&plain, "/api/chat", "{\"model\":\"tales:latest\",\"messages\":[" STORY "]," FEW "}");
    const json_t *last = json_array_get(lines, json_array_size(lines) - 1);
    const char *text = test_json_text(want, "choices.0.message.content");
    char streamed[1000];

    (void)state;
    assert_string_equal(test_json_text(got, "message.content"), text);
    assert_string_equal(test_json_text(got, "message.role"), "assistant");
    assert_string_equal(test_json_text(got, "model"), "tales:latest");
    assert_string_equal(test_json_text(got, "done_reason"), "length");
    assert_true(json_is_true(test_json_at(got, "done")));
    assert_int_equal(int_at(got, "prompt_eval_count"), int_at(want, "usage.prompt_tokens"));
    assert_int_equal(int_at(got, "eval_count"), 12);
    assert_true(int_at(got, "eval_duration") > 0 && int_at(got, "prompt_eval_duration") > 0 &&
                int_at(got, "total_duration") > 0);
    join(lines, "message.content", streamed, sizeof streamed);
    assert_string_equal(streamed, text);
    for (size_t i = 0; i + 1 < json_array_size(lines); i++)
        assert_true(json_is_false(test_json_at(json_array_get(lines, i), "done")));
    assert_true(json_is_true(test_json_at(last, "done")));
    assert_int_equal(int_at(last, "eval_count"), 12);
    json_decref(want);
    json_decref(got);
    json_decref(lines);
}

static void generate_is_one_turn_or_raw(void **state)
{
    json_t *turn =
        ask(&plain, "/v1/chat/completions", "{\"messages\":[" STORY "],\"max_tokens\":12,\"temperature\":0}");
    json_t *text = ask(&plain, "/v1/completions", "{\"prompt\":\"Once upon\",\"max_tokens\":12,\"temperature\":0}");
    json_t *got = ask(&plain, "/api/generate", "{\"prompt\":\"Tell me a story.\",\"stream\":false," FEW "}");
    json_t *raw = ask(&plain, "/api/generate", "{\"prompt\":\"Once upon\",\"raw\":true,\"stream\":false," FEW "}");
    json_t *lines = lines_of(&plain, "/api/generate", "{\"prompt\":\"Tell me a story.\"," FEW "}");
    char streamed[1000];

    (void)state;
    assert_string_equal(test_json_text(got, "response"), test_json_text(turn, "choices.0.message.content"));
    assert_string_equal(test_json_text(raw, "response"), test_json_text(text, "choices.0.text"));
    assert_null(test_json_at(raw, "context"));
    join(lines, "response", streamed, sizeof streamed);
    assert_string_equal(streamed, test_json_text(got, "response"));
    json_decref(turn);
    json_decref(text);
    json_decref(got);
    json_decref(raw);
    json_decref(lines);
}

/* The ids that an answer gives back go before the next prompt. */
static void a_context_goes_on(void **state)
{
    json_t *first = ask(&plain, "/api/generate", "{\"prompt\":\"Tell me a story.\",\"stream\":false," FEW "}");
    const json_t *context = test_json_at(first, "context");
    json_t *body = json_pack("{s:s, s:O, s:b, s:{s:i, s:i}}", "prompt", "And then?", "context", context, "stream", 0,
                             "options", "num_predict", 4, "temperature", 0);
    char *text = rg_json_dump(body, 0);
    json_t *second = ask(&plain, "/api/generate", text), *alone;

    (void)state;
    assert_int_equal(json_array_size(context), int_at(first, "prompt_eval_count") + 12);
    alone = ask(&plain, "/api/generate",
                "{\"prompt\":\"And then?\",\"stream\":false,\"options\":{\"num_predict\":4,"
                "\"temperature\":0}}");
    /* the beginning of a text stands there once */
    assert_int_equal(int_at(second, "prompt_eval_count"),
                     (long long)json_array_size(context) + int_at(alone, "prompt_eval_count") - 1);
    for (size_t i = 0; i < json_array_size(context); i++)
        assert_true(json_equal(json_array_get(context, i), json_array_get(test_json_at(second, "context"), i)));
    json_decref(first);
    json_decref(body);
    rg_free(text);
    json_decref(second);
    json_decref(alone);
    assert_int_equal(test_web_status(plain.port, "/api/generate", "{\"prompt\":\"a\",\"context\":[4096]}"), 400);
    assert_int_equal(test_web_status(plain.port, "/api/generate", "{\"prompt\":\"a\",\"context\":3}"), 400);
}

/* An empty request asks for the model to be loaded, or unloaded. */
static void nothing_to_answer_is_loading(void **state)
{
    static const char *const cases[][4] = {
        { "/api/generate", "{\"model\":\"tales\",\"stream\":false}", "load", "response" },
        { "/api/generate", "{\"model\":\"tales\",\"stream\":false,\"keep_alive\":0}", "unload", "response" },
        { "/api/generate", "{\"model\":\"tales\",\"stream\":false,\"keep_alive\":\"5m\",\"prompt\":\"\"}", "load",
          "response" },
        { "/api/chat", "{\"model\":\"tales\",\"stream\":false,\"messages\":[]}", "load", "message.content" },
        { "/api/chat", "{\"model\":\"tales\",\"stream\":false,\"keep_alive\":\"0\"}", "unload", "message.content" },
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        json_t *v = ask(&plain, cases[i][0], cases[i][1]);
        assert_string_equal(test_json_text(v, "done_reason"), cases[i][2]);
        assert_string_equal(test_json_text(v, cases[i][3]), "");
        assert_true(json_is_true(test_json_at(v, "done")));
        json_decref(v);
    }
    assert_int_equal(test_web_status(plain.port, "/api/generate", "{\"model\":\"nothing\"}"), 404);
}

static void options_count(void **state)
{
    json_t *v =
        ask(&plain, "/api/generate",
            "{\"prompt\":\"Once upon\",\"raw\":true,\"stream\":false,\"options\":{"
            "\"stop\":[\" time\"],\"temperature\":0,\"num_ctx\":2048,\"num_predict\":-1,\"num_keep\":5,\"num_gpu\":0,"
            "\"mirostat\":0,\"penalize_newline\":false,\"tfs_z\":0.5,\"typical_p\":1,\"repeat_last_n\":64,"
            "\"no_such_option\":1}}");
    json_t *same[2];

    (void)state;
    assert_string_equal(test_json_text(v, "response"), " a");
    assert_string_equal(test_json_text(v, "done_reason"), "stop");
    json_decref(v);
    for (int i = 0; i < 2; i++)
        same[i] = ask(&plain, "/api/generate",
                      "{\"prompt\":\"Once\",\"stream\":false,\"options\":{\"seed\":7,"
                      "\"temperature\":1,\"num_predict\":9}}");
    assert_string_equal(test_json_text(same[0], "response"), test_json_text(same[1], "response"));
    json_decref(same[0]);
    json_decref(same[1]);
}

static void a_format_binds(void **state)
{
    json_t *v =
        ask(&plain, "/api/chat",
            "{\"messages\":[" STORY "],\"stream\":false,\"options\":{\"num_predict\":60,"
            "\"temperature\":0},\"format\":{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[\"x\",\"y\"]}},"
            "\"required\":[\"a\"]}}");
    json_t *inner = json_loads(test_json_text(v, "message.content"), 0, NULL);

    (void)state;
    assert_non_null(json_string_value(json_object_get(inner, "a")));
    json_decref(inner);
    json_decref(v);
    v = ask(&plain, "/api/generate", "{\"prompt\":\"a\",\"stream\":false,\"format\":\"json\"," FEW "}");
    assert_true(test_json_text(v, "response")[0] == '{');
    json_decref(v);
    assert_int_equal(test_web_status(plain.port, "/api/generate", "{\"prompt\":\"a\",\"format\":\"xml\"}"), 400);
}

static void logprobs_are_given(void **state)
{
    json_t *v = ask(&plain, "/api/generate",
                    "{\"prompt\":\"a\",\"stream\":false,\"logprobs\":true,\"top_logprobs\":2," FEW "}");

    (void)state;
    assert_int_equal(json_array_size(test_json_at(v, "logprobs")), 12);
    assert_int_equal(json_array_size(test_json_at(v, "logprobs.0.top_logprobs")), 2);
    json_decref(v);
}

/* ---- tools and reasoning ----------------------------------------------------------------------------------------- */

#define TOOL                                                                                                           \
    "{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"description\":\"of a town\",\"parameters\":{"         \
    "\"type\":\"object\",\"properties\":{\"town\":{\"enum\":[\"Rome\"]}},\"required\":[\"town\"]}}}"

/* A call has its arguments as an object, and comes in one line. */
static void calls_have_objects(void **state)
{
    static const char body[] =
        "{\"messages\":[" STORY "],\"tools\":[" TOOL "],\"tool_choice\":\"required\",\"think\":false,\"stream\":%s,"
        "\"options\":{\"num_predict\":200,\"temperature\":0,\"stop\":[\"</tool_call>\"]}}";
    char text[1000];
    int n_calls = 0;

    (void)state;
    snprintf(text, sizeof text, body, "false");
    json_t *v = ask(&rich, "/api/chat", text);
    assert_string_equal(test_json_text(v, "message.tool_calls.0.function.name"), "weather");
    assert_string_equal(test_json_text(v, "message.tool_calls.0.function.arguments.town"), "Rome");
    json_decref(v);
    snprintf(text, sizeof text, body, "true");
    json_t *lines = lines_of(&rich, "/api/chat", text);
    for (size_t i = 0; i < json_array_size(lines); i++)
        n_calls += (int)json_array_size(test_json_at(json_array_get(lines, i), "message.tool_calls"));
    assert_int_equal(n_calls, 1);
    json_decref(lines);
}

/* Calls, results and thoughts of earlier turns go back into the prompt. */
static void history_is_rendered(void **state)
{
    json_t *v = ask(&rich, "/api/chat",
                    "{\"messages\":[" STORY ",{\"role\":\"assistant\",\"content\":\"\",\"thinking\":"
                    "\"Hm.\",\"tool_calls\":[{\"function\":{\"name\":\"weather\",\"arguments\":{\"town\":\"Rome\"}}}]},"
                    "{\"role\":\"tool\",\"content\":\"sunny\",\"tool_name\":\"weather\"}],\"stream\":false," FEW "}");
    json_t *same =
        ask(&rich, "/v1/chat/completions",
            "{\"messages\":[" STORY ",{\"role\":\"assistant\",\"content\":\"\","
            "\"reasoning_content\":\"Hm.\",\"tool_calls\":[{\"id\":\"a\",\"type\":\"function\",\"function\":{"
            "\"name\":\"weather\",\"arguments\":\"{\\\"town\\\":\\\"Rome\\\"}\"}}]},{\"role\":\"tool\","
            "\"tool_call_id\":\"a\",\"content\":\"sunny\"}],\"max_tokens\":12,\"temperature\":0}");

    (void)state;
    assert_int_equal(int_at(v, "prompt_eval_count"), int_at(same, "usage.prompt_tokens"));
    assert_string_equal(test_json_text(v, "message.content"), test_json_text(same, "choices.0.message.content"));
    json_decref(v);
    json_decref(same);
}

static void thinking_is_apart(void **state)
{
    json_t *on = ask(&rich, "/api/chat", "{\"messages\":[" STORY "],\"think\":true,\"stream\":false," FEW "}");
    json_t *level = ask(&rich, "/api/chat", "{\"messages\":[" STORY "],\"think\":\"high\",\"stream\":false," FEW "}");
    json_t *off = ask(&rich, "/api/chat", "{\"messages\":[" STORY "],\"think\":false,\"stream\":false," FEW "}");
    json_t *lines = lines_of(&rich, "/api/generate", "{\"prompt\":\"a\",\"think\":true," FEW "}");
    json_t *unsaid = ask(&rich, "/api/chat", "{\"messages\":[" STORY "],\"stream\":false," FEW "}");
    char thought[1000];

    (void)state;
    assert_true(strlen(test_json_text(on, "message.thinking")) > 0);
    assert_string_equal(test_json_text(on, "message.content"), "");
    assert_string_equal(test_json_text(level, "message.thinking"), test_json_text(on, "message.thinking"));
    assert_null(test_json_at(off, "message.thinking"));
    assert_true(strlen(test_json_text(off, "message.content")) > 0);
    join(lines, "thinking", thought, sizeof thought);
    assert_true(strlen(thought) > 0);
    assert_string_equal(test_json_text(unsaid, "message.thinking"), test_json_text(on, "message.thinking"));
    json_decref(unsaid);
    json_decref(on);
    json_decref(level);
    json_decref(off);
    json_decref(lines);
    assert_int_equal(test_web_status(plain.port, "/api/chat", "{\"messages\":[" STORY "],\"think\":true}"), 400);
    assert_int_equal(test_web_status(rich.port, "/api/chat", "{\"messages\":[" STORY "],\"think\":\"very\"}"), 400);
}

static void a_gap_is_filled(void **state)
{
    json_t *v = ask(&rich, "/api/generate", "{\"prompt\":\"Once\",\"suffix\":\"time\",\"stream\":false," FEW "}");
    json_t *same = ask(&rich, "/v1/completions",
                       "{\"prompt\":\"<|fim_prefix|>Once<|fim_suffix|>time<|fim_middle|>\","
                       "\"max_tokens\":12,\"temperature\":0}");

    (void)state;
    assert_string_equal(test_json_text(v, "response"), test_json_text(same, "choices.0.text"));
    assert_int_equal(int_at(v, "prompt_eval_count"), int_at(same, "usage.prompt_tokens"));
    json_decref(v);
    json_decref(same);
    assert_int_equal(test_web_status(plain.port, "/api/generate", "{\"prompt\":\"a\",\"suffix\":\"b\"}"), 400);
}

/* ---- models ------------------------------------------------------------------------------------------------------ */

static void has_ability(const test_server *t, const char *word, bool want)
{
    json_t *v = ask(t, "/api/show", "{\"model\":\"tales\"}");
    const json_t *all = test_json_at(v, "capabilities");
    bool is = false;

    for (size_t i = 0; i < json_array_size(all); i++)
        is |= !strcmp(json_string_value(json_array_get(all, i)), word);
    if (is != want)
        fail_msg("%s: %d", word, is);
    json_decref(v);
}

static void a_model_is_shown(void **state)
{
    json_t *v = ask(&plain, "/api/show", "{\"name\":\"tales:latest\"}");
    json_t *tags = test_web_json(plain.port, "/api/tags", NULL, 200),
           *ps = test_web_json(plain.port, "/api/ps", NULL, 200);
    json_t *version = test_web_json(plain.port, "/api/version", NULL, 200);
    int a = 0, b = 0, c = 0;

    (void)state;
    assert_string_equal(test_json_text(v, "details.family"), "llama");
    assert_string_equal(test_json_text(v, "details.quantization_level"), "BF16");
    const json_t *info = json_object_get(v, "model_info");
    assert_string_equal(json_string_value(json_object_get(info, "general.architecture")), "llama");
    assert_int_equal(json_integer_value(json_object_get(info, "llama.context_length")), 512);
    assert_int_equal(json_integer_value(json_object_get(info, "llama.embedding_length")), 128);
    assert_int_equal(json_integer_value(json_object_get(info, "llama.block_count")), 2);
    assert_non_null(strstr(test_json_text(v, "template"), "<|end|>"));
    assert_non_null(strstr(test_json_text(v, "parameters"), "temperature"));
    assert_string_equal(test_json_text(tags, "models.0.name"), "tales:latest");
    assert_int_equal(strlen(test_json_text(tags, "models.0.digest")), 64);
    assert_string_equal(test_json_text(ps, "models.0.digest"), test_json_text(tags, "models.0.digest"));
    assert_int_equal(int_at(ps, "models.0.context_length"), 512);
    assert_int_equal(sscanf(test_json_text(version, "version"), "%d.%d.%d", &a, &b, &c), 3);
    assert_true(a > 0 || b > 6 || (b == 6 && c >= 4));
    json_decref(v);
    json_decref(tags);
    json_decref(ps);
    json_decref(version);
    has_ability(&plain, "completion", true);
    has_ability(&plain, "tools", false);
    has_ability(&plain, "insert", false);
    has_ability(&rich, "tools", true);
    has_ability(&rich, "thinking", true);
    has_ability(&rich, "insert", true);
}

static void embeddings_are_those_of_openai(void **state)
{
    json_t *want = ask(&plain, "/v1/embeddings", "{\"input\":[\"One day\",\"The cat\"]}");
    json_t *many = ask(&plain, "/api/embed", "{\"model\":\"tales\",\"input\":[\"One day\",\"The cat\"]}");
    json_t *one = ask(&plain, "/api/embeddings", "{\"model\":\"tales\",\"prompt\":\"The cat\"}");
    json_t *none = ask(&plain, "/api/embed", "{\"model\":\"tales\",\"input\":[]}");

    (void)state;
    assert_true(json_equal(test_json_at(want, "data.0.embedding"), test_json_at(many, "embeddings.0")));
    assert_true(json_equal(test_json_at(want, "data.1.embedding"), test_json_at(one, "embedding")));
    assert_int_equal(int_at(many, "prompt_eval_count"), int_at(want, "usage.prompt_tokens"));
    assert_int_equal(json_array_size(test_json_at(none, "embeddings")), 0);
    json_decref(want);
    json_decref(many);
    json_decref(one);
    json_decref(none);
    char *body = malloc(10000);
    memcpy(body, "{\"input\":\"", 10);
    for (int i = 0; i < 1000; i++)
        memcpy(body + 10 + 4 * i, "cat ", 4);
    strcpy(body + 4010, "\"}");
    json_decref(ask(&plain, "/api/embed", body)); /* too long: cut, unless that is forbidden */
    strcpy(body + 4010, "\",\"truncate\":false}");
    assert_int_equal(test_web_status(plain.port, "/api/embed", body), 400);
    free(body);
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static void errors_are_texts(void **state)
{
    static const struct {
        const char *method, *path, *body;
        int status;
        const char *says;
    } cases[] = {
        { "POST", "/api/chat", "{\"model\":\"nothing\",\"messages\":[" STORY "]}", 404, "not served" },
        { "POST", "/api/chat", "{\"messages\":[" STORY "],\"options\":{\"temperature\":-1}}", 400, "temperature" },
        { "POST", "/api/chat", "{\"messages\":[" STORY "],\"options\":3}", 400, "options" },
        { "POST", "/api/chat", "{\"messages\":[{\"role\":\"king\",\"content\":\"a\"}]}", 400, "messages[0].role" },
        { "POST", "/api/chat", "{\"messages\":[3]}", 400, "messages" },
        { "POST", "/api/chat", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"images\":[\"AAAA\"]}]}", 400,
          "messages[0].images" },
        { "POST", "/api/generate", "{\"prompt\":\"a\",\"images\":[\"AAAA\"]}", 400, "images" },
        { "POST", "/api/generate", "{\"prompt\":3}", 400, "prompt" },
        { "POST", "/api/generate", "{\"prompt\":\"a\",\"template\":\"{{ .Prompt }}\"}", 400, "template" },
        { "POST", "/api/generate", "{", 400, "JSON" },
        { "POST", "/api/show", "{}", 400, "model" },
        { "POST", "/api/show", "{\"model\":\"nothing\"}", 404, "not served" },
        { "POST", "/api/pull", "{\"model\":\"nothing\"}", 404, "not served" },
        { "POST", "/api/create", "{\"model\":\"a\"}", 501, "does not make" },
        { "DELETE", "/api/delete", "{\"model\":\"a\"}", 501, "delete" },
        { "GET", "/api/blobs/sha256:00", NULL, 404, "blobs" },
        { "GET", "/api/chat", NULL, 405, "method" },
        { "GET", "/api/nothing", NULL, 404, "nothing at this path" },
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        test_reply r = test_web_ask(plain.port, cases[i].method, cases[i].path, NULL, cases[i].body);
        json_t *v = test_reply_json(&r);
        const char *text = json_string_value(json_object_get(v, "error"));
        if (r.status != cases[i].status || !text || !strstr(text, cases[i].says))
            fail_msg("%s %s: %d %s", cases[i].path, cases[i].body ? cases[i].body : "", r.status, r.body);
        json_decref(v);
        test_reply_free(&r);
    }
    json_decref(ask(&plain, "/api/pull", "{\"model\":\"tales\",\"stream\":false}"));
}

static void its_clients_find_it_running(void **state)
{
    test_reply head = test_web_ask(plain.port, "HEAD", "/", "Connection: close\r\n", NULL);
    test_reply asked = test_web_ask(plain.port, "GET", "/", "User-Agent: ollama-python/0.6\r\n", NULL);
    test_reply page = test_web_ask(plain.port, "GET", "/", "Accept: text/html\r\n", NULL);

    (void)state;
    assert_int_equal(head.status, 200);
    assert_string_equal(asked.body, "Ollama is running");
    assert_non_null(strstr(page.body, "<html"));
    test_reply_free(&head);
    test_reply_free(&asked);
    test_reply_free(&page);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(chat_says_what_chat_completions_say),
        cmocka_unit_test(generate_is_one_turn_or_raw),
        cmocka_unit_test(a_context_goes_on),
        cmocka_unit_test(nothing_to_answer_is_loading),
        cmocka_unit_test(options_count),
        cmocka_unit_test(a_format_binds),
        cmocka_unit_test(logprobs_are_given),
        cmocka_unit_test(calls_have_objects),
        cmocka_unit_test(history_is_rendered),
        cmocka_unit_test(thinking_is_apart),
        cmocka_unit_test(a_gap_is_filled),
        cmocka_unit_test(a_model_is_shown),
        cmocka_unit_test(embeddings_are_those_of_openai),
        cmocka_unit_test(errors_are_texts),
        cmocka_unit_test(its_clients_find_it_running),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, setup, teardown);
}
