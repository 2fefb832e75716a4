/* test_embed_endpoint.c -- /v1/embeddings: the engine's embeddings, of length 1, in both encodings and however the inputs
 * come; what is refused; models that say more, or less. */
#define _GNU_SOURCE 1
#include "base/json.h"
#include "server/live.h"

#include <math.h>
#include <sys/stat.h>

#include "support/model.h"

#define PATH "/v1/embeddings"

static test_server t;
static size_t dim;

static int setup(void **state)
{
    rg_server_options o = test_server_options();

    (void)state;
    o.max_choices = 40;
    test_server_start(&t, &o, 64, 16);
    dim = (size_t)rg_engine_info(t.engine).dim;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    test_server_stop(&t);
    return 0;
}

/* The n numbers of input i of an answer. */
static float *numbers(const json_t *v, size_t i, size_t n)
{
    const json_t *item = json_array_get(json_object_get(v, "data"), i), *list = json_object_get(item, "embedding");
    float *out = calloc(n, sizeof *out);

    assert_string_equal(json_string_value(json_object_get(v, "object")), "list");
    assert_string_equal(json_string_value(json_object_get(item, "object")), "embedding");
    assert_int_equal(json_integer_value(json_object_get(item, "index")), i);
    assert_int_equal(json_array_size(list), n);
    for (size_t k = 0; k < n; k++)
        out[k] = (float)json_number_value(json_array_get(list, k));
    return out;
}

static int digit(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    assert_true(c && strchr(digits, c));
    return (int)(strchr(digits, c) - digits);
}

static void decode(const char *s, unsigned char *out, size_t n)
{
    assert_int_equal(strlen(s), (n + 2) / 3 * 4);
    for (size_t i = 0; i < n; i++) {
        int two = digit(s[i * 4 / 3]) << 6 | digit(s[i * 4 / 3 + 1]);
        out[i] = (unsigned char)(i % 3 == 0 ? two >> 4 : i % 3 == 1 ? two >> 2 : two);
    }
    for (size_t i = (n * 8 + 5) / 6; i < strlen(s); i++)
        assert_int_equal(s[i], '=');
}

/* The engine's own, cut and of length 1. */
static float *engines(rg_engine *e, const char *text, size_t n)
{
    int32_t *ids, size;
    size_t n_ids;
    rg_error err = { 0 };
    rg_token token;
    double sum = 0;
    float *out = calloc(n, sizeof *out);

    assert_ok(rg_encode(e, text, strlen(text), RG_ENCODE_DEFAULT, &ids, &n_ids, &err), err);
    rg_params p = { .prompt = ids, .n_prompt = (int32_t)n_ids, .embed = RG_POOLING_MODEL };
    rg_request *r = rg_submit(e, &p, &err);
    assert_ok(r, err);
    while (rg_next(r, &token))
        ;
    const float *v = rg_request_embedding(r, &size);
    for (size_t i = 0; i < n; i++)
        sum += (double)v[i] * (double)v[i];
    for (size_t i = 0; i < n; i++)
        out[i] = (float)((double)v[i] / sqrt(sum));
    rg_request_close(r);
    rg_ids_free(ids);
    return out;
}

static void all_ways_give_the_engines_embedding(void **state)
{
    json_t *ids = test_web_json(t.port, "/tokenize", "{\"prompt\":\"The cat sat\"}", 200), *v;
    char *list = rg_json_dump(json_object_get(ids, "tokens"), JSON_COMPACT), *body;
    int n_ids = (int)json_array_size(json_object_get(ids, "tokens"));
    float *want = engines(t.engine, "The cat sat", dim);
    const char *const inputs[][2] = { { "\"The cat sat\"", "" }, { "[\"The cat sat\"]", "" }, { list, "" },
                                      { "[", list }, { "[\"A dog\",\"The cat sat\"", "]" } };

    (void)state;
    for (size_t i = 0; i < RG_LEN(inputs); i++) {
        size_t at = i == 4;
        assert_true(asprintf(&body, "{\"input\":%s%s%s}", inputs[i][0], inputs[i][1], i == 3 ? "]" : "") > 0);
        v = test_web_json(t.port, PATH, body, 200);
        float *got = numbers(v, at, dim);
        assert_memory_equal(got, want, dim * sizeof *got);
        assert_int_equal(json_array_size(json_object_get(v, "data")), 1 + at);
        json_int_t used = json_integer_value(json_object_get(json_object_get(v, "usage"), "prompt_tokens"));
        assert_true(at ? used > n_ids : used == n_ids);
        assert_int_equal(json_integer_value(json_object_get(json_object_get(v, "usage"), "total_tokens")), used);
        assert_string_equal(json_string_value(json_object_get(v, "model")), "tales");
        json_decref(v);
        free(got);
        free(body);
    }
    v = test_web_json(t.port, PATH, "{\"input\":\"The cat sat\",\"encoding_format\":\"base64\",\"user\":\"me\"}", 200);
    unsigned char *packed = malloc(4 * dim);
    decode(json_string_value(json_object_get(json_array_get(json_object_get(v, "data"), 0), "embedding")), packed, 4 * dim);
    for (size_t i = 0; i < dim; i++) {
        uint32_t bits = packed[4 * i] | (uint32_t)packed[4 * i + 1] << 8 | (uint32_t)packed[4 * i + 2] << 16 |
                        (uint32_t)packed[4 * i + 3] << 24;
        assert_memory_equal(&bits, &want[i], sizeof bits);
    }
    free(packed);
    free(want);
    json_decref(v);
    rg_free(list);
    json_decref(ids);
}

static void refused(const char *body, int status, const char *code, const char *param)
{
    json_t *v = test_web_json(t.port, PATH, body, status), *e = json_object_get(v, "error");
    const char *got = json_string_value(json_object_get(e, "param"));

    if (!got || strcmp(got, param) != 0)
        fail_msg("%s: refused by the name of %s", body, got ? got : "nothing");
    if (code)
        assert_string_equal(json_string_value(json_object_get(e, "code")), code);
    json_decref(v);
}

static void what_cannot_be_had_is_refused(void **state)
{
    char long_input[1000] = "{\"input\":[[1", many[2000] = "{\"input\":[\"a\"", body[100];

    (void)state;
    refused("{}", 400, NULL, "input");
    refused("{\"input\":[]}", 400, NULL, "input");
    refused("{\"input\":[[]]}", 400, NULL, "input");
    refused("{\"input\":7}", 400, NULL, "input");
    refused("{\"input\":[\"a\",[1.5]]}", 400, NULL, "input");
    refused("{\"input\":[99999999]}", 400, NULL, "input");
    refused("{\"input\":\"a\",\"encoding_format\":\"hex\"}", 400, NULL, "encoding_format");
    refused("{\"input\":\"a\",\"dimensions\":0}", 400, NULL, "dimensions");
    refused("{\"input\":\"a\",\"dimensions\":3}", 400, NULL, "dimensions");
    refused("{\"input\":\"a\",\"normalize\":false}", 400, NULL, "normalize");
    refused("{\"input\":\"a\",\"embd_normalize\":-2}", 400, NULL, "embd_normalize");
    refused("{\"input\":\"a\",\"truncate_prompt_tokens\":0}", 400, NULL, "truncate_prompt_tokens");
    refused("{\"input\":\"a\",\"truncate_prompt_tokens\":-2}", 400, NULL, "truncate_prompt_tokens");
    refused("{\"input\":\"a\",\"truncate\":\"END\"}", 400, NULL, "truncate");
    refused("{\"input\":\"a\",\"truncation_side\":\"middle\"}", 400, NULL, "truncation_side");
    refused("{\"input\":\"a\",\"prompt_name\":\"query\"}", 400, NULL, "prompt_name");
    refused("{\"messages\":[]}", 400, NULL, "messages");
    refused("{\"input\":\"a\",\"model\":\"other\"}", 404, "model_not_found", "model");
    for (int i = 1; i < 65; i++)
        strcat(long_input, ",1");
    refused(strcat(long_input, "]]}"), 400, "context_length_exceeded", "input");
    for (int i = 1; i < 41; i++)
        strcat(many, ",\"a\"");
    refused(strcat(many, "]}"), 400, NULL, "input");
    snprintf(body, sizeof body, "{\"input\":\"a\",\"dimensions\":%zu}", dim);
    json_decref(test_web_json(t.port, PATH, body, 200));
    json_decref(test_web_json(t.port, PATH, "{\"input\":\"a\",\"dimensions\":null,\"encoding_format\":null}", 200));
}

/* The longest prompt fills the context; as many inputs as are allowed come back in order, beside an answer. */
static void the_most_is_taken(void **state)
{
    char long_input[1000] = "{\"input\":[1", many[2000] = "{\"input\":[\"a0\"", text[16];

    (void)state;
    for (int i = 1; i < 64; i++)
        strcat(long_input, ",1");
    json_decref(test_web_json(t.port, PATH, strcat(long_input, "]}"), 200));
    for (int i = 1; i < 40; i++) {
        snprintf(text, sizeof text, ",\"a%d\"", i);
        strcat(many, text);
    }
    json_t *v = test_web_json(t.port, PATH, strcat(many, "]}"), 200);
    for (size_t i = 0; i < 40; i += 13) {
        snprintf(text, sizeof text, "a%zu", i);
        float *want = engines(t.engine, text, dim), *got = numbers(v, i, dim);
        assert_memory_equal(got, want, dim * sizeof *got);
        free(want);
        free(got);
    }
    json_decref(v);
}

/* A long list is one request, however few may wait: its inputs go to the engine as earlier ones end. */
static void a_long_list_is_no_flood(void **state)
{
    rg_server_options o = test_server_options();
    char body[20000] = "{\"input\":[\"a0\"", text[16];
    test_server s;

    (void)state;
    o.max_waiting = 4;
    test_server_start(&s, &o, 64, 2);
    for (int i = 1; i < 500; i++) {
        snprintf(text, sizeof text, ",\"a%d\"", i);
        strcat(body, text);
    }
    json_t *v = test_web_json(s.port, PATH, strcat(body, "]}"), 200);
    float *want = engines(s.engine, "a499", dim), *got = numbers(v, 499, dim);
    assert_memory_equal(got, want, dim * sizeof *got);
    free(want);
    free(got);
    json_decref(v);
    v = test_web_json(s.port, "/v1/completions", "{\"prompt\":[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",\"h\",\"i\"],"
                                                 "\"max_tokens\":9,\"n\":3}", 200);
    assert_int_equal(json_array_size(json_object_get(v, "choices")), 27);
    json_decref(v);
    test_server_quiet(&s);
    test_server_stop(&s);
}

static void late_is_an_error(void **state)
{
    test_reply r = test_web_ask(t.port, "POST", PATH, "X-Request-Timeout: 0.000001\r\n", "{\"input\":[\"a\",\"b\"]}");

    (void)state;
    assert_int_equal(r.status, 504);
    test_reply_free(&r);
}

/* ---- other models ------------------------------------------------------------------------------------------------ */

/* The shipped model with something more in its config.json, and modules.json. */
static void open_variant(test_server *s, const char *name, const char *config, const char *modules)
{
    static const char *const files[] = { "model.safetensors", "tokenizer.json", "tokenizer_config.json" };
    const char *dir = test_scratch(name);
    rg_server_options o = test_server_options();
    char from[700], to[700];
    rg_error err = { 0 };
    rg_options e = rg_options_default();

    mkdir(dir, 0755);
    for (size_t i = 0; i < RG_LEN(files); i++) {
        snprintf(from, sizeof from, "%s/models/tales-1m/%s", RG_SOURCE_DIR, files[i]);
        snprintf(to, sizeof to, "%s/%s", dir, files[i]);
        test_copy_file(from, to, NULL, NULL);
    }
    snprintf(from, sizeof from, "%s/models/tales-1m/config.json", RG_SOURCE_DIR);
    snprintf(to, sizeof to, "%s/config.json", dir);
    test_copy_file(from, to, "\"architectures\"", config);
    snprintf(to, sizeof to, "%s/modules.json", dir);
    FILE *f = fopen(to, "w");
    assert_non_null(f);
    fputs(modules, f);
    assert_int_equal(fclose(f), 0);
    e.n_threads = 1;
    e.max_seq_len = 64;
    e.kv_bytes = (size_t)16 << 20;
    s->engine = rg_open(dir, &e, &err);
    assert_ok(s->engine, err);
    s->s = rg_server_open(&o, &err);
    assert_ok(s->s, err);
    s->port = test_port(s->s);
    rg_server_ready(s->s, s->engine);
}

static void embeddings_are_cut_where_they_are_made_for_it(void **state)
{
    test_server s;
    float *want, *got;
    json_t *v;

    (void)state;
    open_variant(&s, "cut", "\"matryoshka_dimensions\": [8, 16], \"architectures\"", "[]");
    v = test_web_json(s.port, PATH, "{\"input\":\"The cat\",\"dimensions\":16}", 200);
    want = engines(s.engine, "The cat", 16);
    got = numbers(v, 0, 16);
    assert_memory_equal(got, want, 16 * sizeof *got);
    free(want);
    free(got);
    json_decref(v);
    json_decref(test_web_json(s.port, PATH, "{\"input\":\"The cat\",\"dimensions\":9}", 400));
    test_server_stop(&s);
    open_variant(&s, "cut", "\"is_matryoshka\": true, \"architectures\"", "[]");
    json_decref(test_web_json(s.port, PATH, "{\"input\":\"The cat\",\"dimensions\":9}", 200));
    json_decref(test_web_json(s.port, PATH, "{\"input\":\"The cat\",\"dimensions\":999999}", 400));
    test_server_stop(&s);
}

static void models_without_embeddings_say_why(void **state)
{
    test_server s;
    json_t *v;

    (void)state;
    open_variant(&s, "without", "\"architectures\"", "[{\"type\": \"sentence_transformers.models.Dense\"}]");
    v = test_web_json(s.port, PATH, "{\"input\":\"The cat\"}", 501);
    assert_non_null(strstr(json_string_value(json_object_get(json_object_get(v, "error"), "message")), "'Dense'"));
    json_decref(v);
    json_decref(test_web_json(s.port, "/v1/completions", "{\"prompt\":\"The cat\",\"max_tokens\":2}", 200));
    test_server_stop(&s);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ways_give_the_engines_embedding),
        cmocka_unit_test(what_cannot_be_had_is_refused),
        cmocka_unit_test(the_most_is_taken),
        cmocka_unit_test(a_long_list_is_no_flood),
        cmocka_unit_test(late_is_an_error),
        cmocka_unit_test(embeddings_are_cut_where_they_are_made_for_it),
        cmocka_unit_test(models_without_embeddings_say_why),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, setup, teardown);
}
