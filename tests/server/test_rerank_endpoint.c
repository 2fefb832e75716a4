/* test_rerank_endpoint.c -- an encoder that is served: /v1/rerank and /v1/score give the scores of its head, /v1/embeddings its
 * pooled states; what is refused, by it and by models without such a head. */
#define _GNU_SOURCE 1
#include "server/live.h"

#include <math.h>

#include "support/model.h"

static test_server t;

static void start(test_server *s, const char *path, int batch_rows)
{
    rg_server_options o = test_server_options();
    rg_options e = rg_options_default();
    rg_error err = { 0 };

    e.n_threads = 1;
    e.max_batch_rows = batch_rows;
    e.max_seqs = 8;
    e.kv_bytes = (size_t)32 << 20;
    o.max_choices = 40;
    rg_engine *engine = rg_open(path, &e, &err);
    assert_ok(engine, err);
    test_server_start_with(s, &o, engine);
}

static int setup(void **state)
{
    (void)state;
    start(&t, test_with_letters("letters", "bert-rerank"), 48);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    test_server_stop(&t);
    return 0;
}

/* The engine's score of a pair. */
static double score(const char *a, const char *b)
{
    const char *const text[2] = { a, b };
    const size_t n[2] = { strlen(a), strlen(b) };
    rg_error err = { 0 };
    rg_token token;
    int32_t *ids, n_labels;
    size_t n_ids;
    rg_params p = { .score = true };

    assert_ok(rg_encode_pair(t.engine, text, n, RG_ENCODE_PLAIN, &ids, &n_ids, &p.second, &err), err);
    p.prompt = ids;
    p.n_prompt = (int32_t)n_ids;
    rg_request *r = rg_submit(t.engine, &p, &err);
    assert_ok(r, err);
    while (rg_next(r, &token))
        ;
    const float *v = rg_request_head_scores(r, &n_labels);
    assert_non_null(v);
    assert_int_equal(n_labels, 1);
    double got = (double)v[0];
    rg_request_close(r);
    rg_ids_free(ids);
    return got;
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double number_at(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);

    assert_true(json_is_number(v));
    return json_number_value(v);
}

static void same(double got, double want)
{
    if (!(fabs(got - want) <= 1e-9))
        fail_msg("%.12g, not %.12g", got, want);
}

static const char *const documents[] = { "a red dog", "the fox is a fox", "what ?", "dog dog dog, red!" };

#define BODY "{\"query\":\"what is a fox?\",\"documents\":[\"a red dog\",{\"text\":\"the fox is a fox\"},\"what ?\"," \
             "\"dog dog dog, red!\"]"

/* Results with the best first; each of them the score of its pair. */
static void check_results(const json_t *v, size_t n, bool raw, bool with_documents)
{
    const json_t *list = json_object_get(v, "results");
    double before = INFINITY;

    assert_int_equal(json_array_size(list), n);
    for (size_t i = 0; i < n; i++) {
        const json_t *r = json_array_get(list, i);
        size_t index = (size_t)number_at(r, "index");
        double want = score("what is a fox?", documents[index]), got = number_at(r, "relevance_score");
        const char *text = json_string_value(json_object_get(json_object_get(r, "document"), "text"));

        same(got, raw ? want : sigmoid(want));
        assert_true(got <= before);
        before = got;
        if (with_documents)
            assert_string_equal(text, documents[index]);
        else
            assert_null(json_object_get(r, "document"));
    }
}

static void documents_are_ranked(void **state)
{
    static const char *const paths[] = { "/v1/rerank", "/v2/rerank", "/rerank", "/reranking", "/v1/reranking" };

    (void)state;
    for (size_t i = 0; i < RG_LEN(paths); i++) {
        json_t *v = test_web_json(t.port, paths[i], BODY ",\"model\":\"tales\"}", 200);
        check_results(v, 4, false, true);
        assert_string_equal(json_string_value(json_object_get(v, "model")), "tales");
        assert_true(number_at(json_object_get(v, "usage"), "total_tokens") > 40);
        assert_true(number_at(json_object_get(v, "usage"), "prompt_tokens") ==
                    number_at(json_object_get(v, "usage"), "total_tokens"));
        json_decref(v);
    }
    json_t *v = test_web_json(t.port, paths[0], BODY ",\"top_n\":2,\"return_documents\":false,\"user\":\"me\"}", 200);
    check_results(v, 2, false, false);
    json_decref(v);
    v = test_web_json(t.port, paths[0], BODY ",\"top_n\":9,\"use_activation\":false}", 200);
    check_results(v, 4, true, true);
    json_decref(v);
}

static void check_score(const char *body, size_t n, const char *const pairs[][2], bool raw)
{
    json_t *v = test_web_json(t.port, "/v1/score", body, 200), *w = test_web_json(t.port, "/score", body, 200);
    const json_t *data = json_object_get(v, "data");

    assert_string_equal(json_string_value(json_object_get(v, "object")), "list");
    assert_int_equal(json_array_size(data), n);
    assert_true(json_equal(data, json_object_get(w, "data")));
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(data, i);
        double want = score(pairs[i][0], pairs[i][1]);
        assert_int_equal(number_at(item, "index"), i);
        assert_string_equal(json_string_value(json_object_get(item, "object")), "score");
        same(number_at(item, "score"), raw ? want : sigmoid(want));
    }
    json_decref(v);
    json_decref(w);
}

static void pairs_are_scored(void **state)
{
    (void)state;
    check_score("{\"text_1\":\"a fox\",\"text_2\":\"red\"}", 1, (const char *const[][2]){ { "a fox", "red" } }, false);
    check_score("{\"text_1\":\"a fox\",\"text_2\":[\"red\",\"dog\"]}", 2,
                (const char *const[][2]){ { "a fox", "red" }, { "a fox", "dog" } }, false);
    check_score("{\"text_1\":[\"a fox\"],\"text_2\":[\"red\",\"dog\"],\"activation\":false}", 2,
                (const char *const[][2]){ { "a fox", "red" }, { "a fox", "dog" } }, true);
    check_score("{\"text_1\":[\"a fox\",\"what\"],\"text_2\":[\"red\",\"\"]}", 2,
                (const char *const[][2]){ { "a fox", "red" }, { "what", "" } }, false);
}

static void refused(int port, const char *path, const char *body, int status, const char *param)
{
    json_t *v = test_web_json(port, path, body, status), *e = json_object_get(v, "error");
    const char *got = json_string_value(json_object_get(e, "param"));

    if (param ? !got || strcmp(got, param) != 0 : got != NULL)
        fail_msg("%s %s: refused by the name of %s", path, body, got ? got : "nothing");
    json_decref(v);
}

static void what_cannot_be_had_is_refused(void **state)
{
    char many[1000] = "{\"query\":\"a\",\"documents\":[\"b\"", long_text[1000] = "{\"query\":\"a\",\"documents\":[\"ok\",\"b";

    (void)state;
    refused(t.port, "/rerank", "{}", 400, "query");
    refused(t.port, "/rerank", "{\"query\":7,\"documents\":[\"a\"]}", 400, "query");
    refused(t.port, "/rerank", "{\"query\":\"a\"}", 400, "documents");
    refused(t.port, "/rerank", "{\"query\":\"a\",\"documents\":\"b\"}", 400, "documents");
    refused(t.port, "/rerank", "{\"query\":\"a\",\"documents\":[]}", 400, "documents");
    refused(t.port, "/rerank", "{\"query\":\"a\",\"documents\":[\"b\",3]}", 400, "documents");
    refused(t.port, "/rerank", "{\"query\":\"a\",\"documents\":[{\"title\":\"b\"}]}", 400, "documents");
    refused(t.port, "/rerank", "{\"query\":\"a\",\"documents\":[\"b\"],\"top_n\":-1}", 400, "top_n");
    refused(t.port, "/rerank", "{\"query\":\"a\",\"documents\":[\"b\"],\"return_documents\":1}", 400, "return_documents");
    refused(t.port, "/rerank", "{\"query\":\"a\",\"documents\":[\"b\"],\"max_chunks_per_doc\":1}", 400, "max_chunks_per_doc");
    refused(t.port, "/rerank", "{\"query\":\"a\",\"documents\":[\"b\"],\"model\":\"other\"}", 404, "model");
    refused(t.port, "/score", "{\"text_1\":\"a\"}", 400, "text_2");
    refused(t.port, "/score", "{\"text_1\":[],\"text_2\":\"b\"}", 400, "text_1");
    refused(t.port, "/score", "{\"text_1\":[\"a\",\"b\"],\"text_2\":\"b\"}", 400, "text_1");
    refused(t.port, "/score", "{\"text_1\":[\"a\",\"b\"],\"text_2\":[\"b\",\"c\",\"d\"]}", 400, "text_1");
    for (int i = 1; i < 41; i++)
        strcat(many, ",\"b\"");
    refused(t.port, "/rerank", strcat(many, "]}"), 400, "documents");
    for (int i = 0; i < 46; i++)
        strcat(long_text, " b");
    refused(t.port, "/rerank", strcat(long_text, "\"]}"), 400, "documents"); /* a step has 48 rows */
    refused(t.port, "/v1/completions", "{\"prompt\":\"a\"}", 501, NULL);
    refused(t.port, "/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}", 501, NULL);
    test_reply r = test_web_ask(t.port, "POST", "/v1/rerank", "X-Request-Timeout: 0.000001\r\n", BODY "}");
    assert_int_equal(r.status, 504);
    test_reply_free(&r);
    test_server_quiet(&t);
}

/* The mean of its states, of length 1, from a text and from its ids; a list comes back in its order. */
static void embeddings_are_given(void **state)
{
    json_t *a = test_web_json(t.port, "/v1/embeddings", "{\"input\":[\"a fox\",\"what is a fox?\"]}", 200);
    json_t *b = test_web_json(t.port, "/v1/embeddings", "{\"input\":[1,66,67,4,64,58,2]}", 200);
    const json_t *x = json_object_get(json_array_get(json_object_get(a, "data"), 1), "embedding");
    const json_t *y = json_object_get(json_array_get(json_object_get(b, "data"), 0), "embedding");
    rg_params p = { .prompt = (const int32_t[]){ 1, 66, 67, 4, 64, 58, 2 }, .n_prompt = 7, .embed = RG_POOLING_MEAN };
    rg_error err = { 0 };
    rg_token token;
    double sum = 0;
    int32_t n;

    (void)state;
    assert_true(json_equal(x, y));
    rg_request *r = rg_submit(t.engine, &p, &err);
    assert_ok(r, err);
    while (rg_next(r, &token))
        ;
    const float *v = rg_request_embedding(r, &n);
    assert_int_equal(json_array_size(x), n);
    for (int32_t i = 0; i < n; i++)
        sum += (double)v[i] * (double)v[i];
    for (int32_t i = 0; i < n; i++)
        assert_true(fabs(json_number_value(json_array_get(x, (size_t)i)) - (double)v[i] / sqrt(sum)) < 1e-6);
    rg_request_close(r);
    json_decref(a);
    json_decref(b);
}

static void models_without_a_head_say_so(void **state)
{
    test_server s;
    rg_server_options o = test_server_options();

    (void)state;
    start(&s, test_with_letters("bare", "bert"), 0);
    refused(s.port, "/v1/rerank", BODY "}", 501, NULL);
    refused(s.port, "/v1/score", "{\"text_1\":\"a\",\"text_2\":\"b\"}", 501, NULL);
    json_decref(test_web_json(s.port, "/v1/embeddings", "{\"input\":\"a fox\"}", 200));
    test_server_stop(&s);
    test_server_start(&s, &o, 64, 4);
    refused(s.port, "/v1/rerank", BODY "}", 501, NULL);
    test_server_stop(&s);
}

/* Texts longer than what the server takes, 48 ids, are cut if the client says so: the special tokens around stay. */
static void long_texts_are_cut(void **state)
{
    static const struct {
        const char *more; /* fields */
        int status, tokens;
        const char *same; /* the beginning that is left; NULL: the end of the text */
    } cases[] = {
        { "", 400, 0, NULL },
        { ",\"truncate\":false", 400, 0, NULL },
        { ",\"truncate\":true", 200, 48, "" },
        { ",\"truncate_prompt_tokens\":-1", 200, 48, "" },
        { ",\"truncate_prompt_tokens\":5", 200, 5, "a b c" },
        { ",\"truncate\":false,\"truncate_prompt_tokens\":5", 200, 5, "a b c" },
        { ",\"truncate_prompt_tokens\":5,\"truncation_side\":\"left\"", 200, 5, "x y z" },
        { ",\"truncate_prompt_tokens\":5,\"truncation_direction\":\"Left\"", 200, 5, "x y z" },
        { ",\"truncate_prompt_tokens\":1000", 200, 48, "" },
    };
    char text[400] = "a b c", body[900];

    (void)state;
    for (int i = 0; i < 60; i++)
        strcat(text, " d");
    strcat(text, " x y z");
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        snprintf(body, sizeof body, "{\"input\":\"%s\"%s}", text, cases[i].more);
        json_t *v = test_web_json(t.port, "/v1/embeddings", body, cases[i].status);
        if (cases[i].status == 200)
            assert_int_equal(json_integer_value(test_json_at(v, "usage.prompt_tokens")), cases[i].tokens);
        else
            assert_string_equal(test_json_text(v, "error.code"), "context_length_exceeded");
        if (cases[i].same && *cases[i].same) {
            snprintf(body, sizeof body, "{\"input\":\"%s\"}", cases[i].same);
            json_t *w = test_web_json(t.port, "/v1/embeddings", body, 200);
            assert_true(json_equal(json_object_get(v, "data"), json_object_get(w, "data")));
            json_decref(w);
        }
        json_decref(v);
    }
    snprintf(body, sizeof body, "{\"query\":\"a\",\"documents\":[\"%s\",\"b\"],\"truncate\":true}", text);
    json_decref(test_web_json(t.port, "/v1/rerank", body, 200));
    snprintf(body, sizeof body, "{\"query\":\"a\",\"documents\":[\"%s\",\"b\"]}", text);
    json_decref(test_web_json(t.port, "/v1/rerank", body, 400));
    snprintf(body, sizeof body, "{\"text_1\":\"a b\",\"text_2\":\"%s\",\"truncate_prompt_tokens\":8}", text);
    json_t *v = test_web_json(t.port, "/v1/score", body, 200);
    assert_int_equal(json_integer_value(test_json_at(v, "usage.prompt_tokens")), 8);
    assert_true(fabs(json_number_value(test_json_at(v, "data.0.score")) - 1 / (1 + exp(-score("a b", "a b c")))) < 1e-6);
    json_decref(v);
    v = test_web_json(t.port, "/v1/embeddings", "{\"input\":[[1,4,5,6,7,2]],\"truncate_prompt_tokens\":4}", 200);
    json_t *w = test_web_json(t.port, "/v1/embeddings", "{\"input\":[[1,4,5,2]]}", 200);
    assert_true(json_equal(json_object_get(v, "data"), json_object_get(w, "data")));
    json_decref(v);
    json_decref(w);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_texts_are_cut),
        cmocka_unit_test(documents_are_ranked),          cmocka_unit_test(pairs_are_scored),
        cmocka_unit_test(what_cannot_be_had_is_refused), cmocka_unit_test(embeddings_are_given),
        cmocka_unit_test(models_without_a_head_say_so),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, setup, teardown);
}
