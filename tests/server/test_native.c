/* test_native.c -- llama-server's own endpoints: /completion and its fields, /infill, /embedding, /tokenize, and what it
 * tells of itself. */
#define _GNU_SOURCE 1
#include "server/live.h"

#include <math.h>

#include "server/core.h"

static test_server t;

static int setup(void **state)
{
    rg_server_options o = test_server_options();
    rg_sampling p = rg_sampling_default();

    (void)state;
    o.max_tokens = 20;
    o.template_kwargs = "{\"messages\":[],\"variable\":1}";
    p.seed = 42;
    t.engine = test_engine_open(512, 16, o.max_waiting, "fast");
    rg_error err = { 0 };
    t.s = rg_server_open(&o, &err);
    assert_ok(t.s, err);
    t.port = test_port(t.s);
    rg_served_sampling(rg_server_first(t.s), &p, true);
    rg_server_ready(t.s, t.engine);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    test_server_stop(&t);
    return 0;
}

static json_t *ask(const char *path, const char *body)
{
    return test_web_json(t.port, path, body, 200);
}

static long long int_at(const json_t *v, const char *path)
{
    if (!json_is_integer(test_json_at(v, path)))
        fail_msg("no integer at %s in %s", path, json_dumps(v, 0));
    return json_integer_value(test_json_at(v, path));
}

static bool true_at(const json_t *v, const char *path)
{
    if (!json_is_boolean(test_json_at(v, path)))
        fail_msg("no boolean at %s in %s", path, json_dumps(v, 0));
    return json_is_true(test_json_at(v, path));
}

/* The events of a stream, as a list. */
static json_t *events_of(const char *path, const char *body)
{
    test_reply r = test_web_ask(t.port, "POST", path, NULL, body);
    json_t *all = json_array();

    assert_int_equal(r.status, 200);
    for (char *line = strtok(r.body, "\n"); line; line = strtok(NULL, "\n")) {
        if (strncmp(line, "data: ", 6) != 0)
            continue;
        json_t *v = json_loads(line + 6, 0, NULL);
        if (!v)
            fail_msg("no JSON: %s", line);
        json_array_append_new(all, v);
    }
    test_reply_free(&r);
    return all;
}

#define FEW "\"n_predict\":8,\"temperature\":0"

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static void an_answer_tells_of_itself(void **state)
{
    json_t *want = ask("/v1/completions", "{\"prompt\":\"Once upon\",\"max_tokens\":8,\"temperature\":0}");
    json_t *v = ask("/completion", "{\"prompt\":\"Once upon\"," FEW ",\"return_tokens\":true,\"stop\":[\"no such\"]}");

    (void)state;
    assert_string_equal(test_json_text(v, "content"), test_json_text(want, "choices.0.text"));
    assert_int_equal(int_at(v, "tokens_predicted"), 8);
    assert_int_equal(int_at(v, "tokens_evaluated"), int_at(want, "usage.prompt_tokens"));
    assert_int_equal(json_array_size(test_json_at(v, "tokens")), 8);
    assert_string_equal(test_json_text(v, "stop_type"), "limit");
    assert_string_equal(test_json_text(v, "model"), "tales");
    assert_string_equal(test_json_text(v, "prompt"), "<|endoftext|>Once upon");
    assert_true(true_at(v, "stop") && !true_at(v, "truncated") && !true_at(v, "has_new_line"));
    assert_int_equal(int_at(v, "generation_settings.n_predict"), 8);
    assert_int_equal(int_at(v, "generation_settings.seed"), 42);
    assert_string_equal(test_json_text(v, "generation_settings.stop.0"), "no such");
    assert_int_equal(int_at(v, "timings.predicted_n"), 8);
    assert_int_equal(int_at(v, "timings.prompt_n") + int_at(v, "timings.cache_n"), int_at(v, "tokens_evaluated"));
    json_decref(want);
    json_decref(v);
}

static void why_it_stopped_is_told(void **state)
{
    json_t *word = ask("/completion", "{\"prompt\":\"Once upon\"," FEW ",\"stop\":[\" time\"]}");
    json_t *full = ask("/completion", "{\"prompt\":\"Once upon\",\"n_predict\":-1,\"ignore_eos\":true}");
    json_t *default_limit = ask("/completion", "{\"prompt\":\"Once upon\",\"ignore_eos\":true}");

    (void)state;
    assert_string_equal(test_json_text(word, "stop_type"), "word");
    assert_string_equal(test_json_text(word, "stopping_word"), " time");
    assert_string_equal(test_json_text(full, "stop_type"), "limit");
    assert_true(true_at(full, "truncated"));
    assert_int_equal(int_at(full, "tokens_cached"), 512);
    assert_true(json_array_size(test_json_at(full, "generation_settings.logit_bias")) > 0);
    assert_int_equal(int_at(default_limit, "tokens_predicted"), 20);
    json_decref(word);
    json_decref(full);
    json_decref(default_limit);
}

/* The same request is answered alike, since the server has a seed; another seed answers otherwise. */
static void the_servers_seed_counts(void **state)
{
    json_t *a = ask("/completion", "{\"prompt\":\"Once\"}"), *b = ask("/completion", "{\"prompt\":\"Once\"}");
    json_t *c = ask("/completion", "{\"prompt\":\"Once\",\"seed\":42}"),
           *d = ask("/completion", "{\"prompt\":\"Once\",\"seed\":43}");

    (void)state;
    assert_string_equal(test_json_text(a, "content"), test_json_text(b, "content"));
    assert_string_equal(test_json_text(a, "content"), test_json_text(c, "content"));
    assert_string_not_equal(test_json_text(a, "content"), test_json_text(d, "content"));
    json_decref(a);
    json_decref(b);
    json_decref(c);
    json_decref(d);
}

static void a_stream_has_the_same_text(void **state)
{
    json_t *whole = ask("/completion", "{\"prompt\":\"Once upon\"," FEW ",\"return_tokens\":true}");
    json_t *events =
        events_of("/completion", "{\"prompt\":\"Once upon\"," FEW ",\"n_probs\":3,\"timings_per_token\":true,"
                                 "\"stream\":true}");
    size_t n = json_array_size(events), at = 0;
    char text[500] = "";

    (void)state;
    assert_int_equal(n, 9); /* with probabilities an event has one token */
    for (size_t i = 0; i < n; i++) {
        const json_t *e = json_array_get(events, i);
        at += (size_t)snprintf(text + at, sizeof text - at, "%s", test_json_text(e, "content"));
        assert_true(true_at(e, "stop") == (i + 1 == n));
        if (i + 1 == n)
            break;
        assert_int_equal(int_at(e, "tokens.0"), json_integer_value(json_array_get(test_json_at(whole, "tokens"), i)));
        assert_int_equal(json_array_size(test_json_at(e, "completion_probabilities")), 1);
        assert_int_equal(json_array_size(test_json_at(e, "completion_probabilities.0.top_logprobs")), 3);
        assert_non_null(test_json_at(e, "timings"));
    }
    assert_string_equal(text, test_json_text(whole, "content"));
    assert_non_null(test_json_at(json_array_get(events, n - 1), "generation_settings"));
    json_decref(whole);
    json_decref(events);
}

/* Probabilities after sampling are of what can be drawn: with top_k 2 of two ids, whose shares sum to 1. */
static void probabilities_after_sampling(void **state)
{
    json_t *v =
        ask("/completion", "{\"prompt\":\"Once upon a time there was\",\"n_predict\":6,\"n_probs\":5,\"top_k\":2,"
                           "\"temperature\":1,\"post_sampling_probs\":true}");
    json_t *raw =
        ask("/completion", "{\"prompt\":\"Once upon a time there was\",\"n_predict\":6,\"n_probs\":5,\"top_k\":2,"
                           "\"temperature\":1}");
    json_t *greedy = ask("/completion", "{\"prompt\":\"Once\",\"n_predict\":3,\"n_probs\":5,\"temperature\":0,"
                                        "\"post_sampling_probs\":true}");

    (void)state;
    for (size_t i = 0; i < 6; i++) {
        const json_t *token = json_array_get(test_json_at(v, "completion_probabilities"), i);
        const json_t *top = json_object_get(token, "top_probs");
        double sum = 0, prob = json_real_value(json_object_get(token, "prob"));

        assert_int_equal(json_array_size(top), 2);
        for (size_t k = 0; k < 2; k++)
            sum += json_number_value(json_object_get(json_array_get(top, k), "prob"));
        assert_true(fabs(sum - 1) < 1e-5 && prob > 0 && prob < 1);
    }
    assert_int_equal(json_array_size(test_json_at(raw, "completion_probabilities.0.top_logprobs")), 5);
    assert_true(json_real_value(test_json_at(raw, "completion_probabilities.0.logprob")) < 0);
    assert_int_equal(json_array_size(test_json_at(greedy, "completion_probabilities.0.top_probs")), 1);
    assert_true(json_number_value(test_json_at(greedy, "completion_probabilities.0.prob")) == 1);
    json_decref(v);
    json_decref(raw);
    json_decref(greedy);
}

static void prompts_of_every_form(void **state)
{
    static const struct {
        const char *prompt;
        int n; /* answers in a list; 0: one alone */
    } forms[] = {
        { "[0,809,604]", 0 },
        { "[0,\"Once upon\"]", 0 },
        { "{\"prompt_string\":\"Once upon\"}", 0 },
        { "[\"Once upon\",\"Once upon\"]", 2 },
        { "[[0,809,604],\"Once upon\",{\"prompt_string\":\"Once upon\"}]", 3 },
    };
    json_t *want = ask("/completion", "{\"prompt\":\"Once upon\"," FEW "}");
    char body[300];

    (void)state;
    for (size_t i = 0; i < RG_LEN(forms); i++) {
        snprintf(body, sizeof body, "{\"prompt\":%s," FEW "}", forms[i].prompt);
        json_t *v = ask("/completion", body);
        assert_int_equal(json_is_array(v), forms[i].n > 0);
        assert_int_equal(json_array_size(v), forms[i].n);
        for (int k = 0; k < forms[i].n; k++)
            assert_string_equal(test_json_text(json_array_get(v, (size_t)k), "content"),
                                test_json_text(want, "content"));
        if (!forms[i].n)
            assert_string_equal(test_json_text(v, "content"), test_json_text(want, "content"));
        json_decref(v);
    }
    json_decref(want);
}

static void only_the_fields_that_are_wanted(void **state)
{
    json_t *v = ask("/completion", "{\"prompt\":\"Once upon\"," FEW ",\"response_fields\":[\"content\","
                                   "\"generation_settings/n_predict\",\"no/such\"]}");

    (void)state;
    assert_int_equal(json_object_size(v), 2);
    assert_int_equal(json_integer_value(json_object_get(v, "generation_settings/n_predict")), 8);
    json_decref(v);
}

/* A sampler that is not listed does nothing; a text in logit_bias stands for its ids. */
static void samplers_and_biases(void **state)
{
    json_t *all = ask("/completion", "{\"prompt\":\"Once\",\"n_predict\":12,\"top_k\":1,\"temperature\":5,\"samplers\":"
                                     "[\"top_k\",\"temperature\"]}");
    json_t *greedy = ask("/completion", "{\"prompt\":\"Once\",\"n_predict\":12,\"temperature\":0}");
    json_t *free_one =
        ask("/completion", "{\"prompt\":\"Once\",\"n_predict\":12,\"top_k\":1,\"temperature\":5,\"samplers\":\"t\"}");
    json_t *banned = ask("/completion", "{\"prompt\":\"Once\",\"n_predict\":12,\"temperature\":0,\"logit_bias\":"
                                        "[[\" upon\",false]]}");

    (void)state;
    assert_string_equal(test_json_text(all, "content"), test_json_text(greedy, "content"));
    assert_string_not_equal(test_json_text(free_one, "content"), test_json_text(greedy, "content"));
    assert_non_null(strstr(test_json_text(greedy, "content"), " upon"));
    assert_null(strstr(test_json_text(banned, "content"), " upon"));
    json_decref(all);
    json_decref(greedy);
    json_decref(free_one);
    json_decref(banned);
}

static void grammars_and_prefill(void **state)
{
    json_t *v = ask("/completion", "{\"prompt\":\"Once\",\"n_predict\":20,\"grammar\":\"root ::= \\\"a\\\"{5,5}\"}");
    json_t *schema = ask("/completion", "{\"prompt\":\"Once\",\"n_predict\":20,\"json_schema\":{\"const\":\"42\"}}");
    json_t *none = ask("/completion", "{\"prompt\":\"Once\",\"n_predict\":0}");

    (void)state;
    assert_string_equal(test_json_text(v, "content"), "aaaaa");
    assert_string_equal(test_json_text(schema, "content"), "\"42\"");
    assert_int_equal(int_at(none, "tokens_predicted"), 0);
    json_decref(v);
    json_decref(schema);
    json_decref(none);
}

/* The time of an answer is over at once; it goes on to its first line end, and no further. */
static void time_ends_an_answer(void **state)
{
    json_t *v = ask("/completion", "{\"prompt\":\"Once\",\"n_predict\":400,\"ignore_eos\":true,\"t_max_predict_ms\":1,"
                                   "\"grammar\":\"root ::= ([a-z ]{1,3} \\\"\\\\n\\\")+\"}");

    (void)state;
    assert_string_equal(test_json_text(v, "stop_type"), "limit");
    assert_true(true_at(v, "has_new_line"));
    assert_true(int_at(v, "tokens_predicted") < 400);
    json_decref(v);
}

/* ---- others ------------------------------------------------------------------------------------------------------ */

static void embeddings_in_its_form(void **state)
{
    json_t *want = ask("/v1/embeddings", "{\"input\":[\"One day\",[0,809]]}");
    json_t *v = ask("/embedding", "{\"content\":[\"One day\",[0,809]]}");
    json_t *one =
        ask("/embeddings", "{\"input\":{\"content\":[{\"type\":\"text\",\"text\":\"One \"},{\"type\":\"text\",\"text\":"
                           "\"day\"}]}}");
    json_t *plain = ask("/embedding", "{\"content\":\"One day\",\"embd_normalize\":-1}");

    (void)state;
    for (size_t i = 0; i < 2; i++)
        assert_true(json_equal(json_object_get(json_array_get(json_object_get(want, "data"), i), "embedding"),
                               json_array_get(json_object_get(json_array_get(v, i), "embedding"), 0)));
    assert_true(json_equal(test_json_at(one, "0.embedding.0"), test_json_at(v, "0.embedding.0")));
    double a = json_number_value(test_json_at(v, "0.embedding.0.0")),
           b = json_number_value(test_json_at(v, "0.embedding.0.1"));
    double x = json_number_value(test_json_at(plain, "0.embedding.0.0"));
    double y = json_number_value(test_json_at(plain, "0.embedding.0.1"));
    assert_true(fabs(x / a - y / b) < 1e-3 && fabs(x / a - 1) > 1e-3);
    json_decref(want);
    json_decref(v);
    json_decref(one);
    json_decref(plain);
}

static void tokens_and_pieces(void **state)
{
    json_t *v = ask("/tokenize", "{\"content\":\"Once upon\"}");
    json_t *special = ask("/tokenize", "{\"content\":\"Once upon\",\"add_special\":true}");
    json_t *prompt = ask("/tokenize", "{\"prompt\":\"Once upon\"}"); /* as vLLM has it */
    json_t *pieces = ask("/tokenize", "{\"content\":\"Once \\u5abd\",\"with_pieces\":true}");
    char text[100] = "";

    (void)state;
    assert_int_equal(json_array_size(test_json_at(v, "tokens")), 2);
    assert_int_equal(json_array_size(test_json_at(special, "tokens")), 3);
    assert_int_equal(json_array_size(test_json_at(prompt, "tokens")), 3);
    for (size_t i = 0, n = 0; i < json_array_size(test_json_at(pieces, "tokens")); i++) {
        const json_t *token = json_array_get(test_json_at(pieces, "tokens"), i),
                     *piece = json_object_get(token, "piece");
        assert_true(json_is_integer(json_object_get(token, "id")));
        for (size_t k = 0; k < json_array_size(piece); k++)
            text[n++] = (char)json_integer_value(json_array_get(piece, k));
        for (const char *s = json_string_value(piece); s && *s; s++)
            text[n++] = *s;
    }
    assert_string_equal(text, "Once \xe5\xaa\xbd");
    json_decref(v);
    json_decref(special);
    json_decref(prompt);
    json_decref(pieces);
}

static void the_prompt_is_shown_where_it_is_wanted(void **state)
{
    json_t *v = ask("/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_tokens\":1,"
                                            "\"verbose\":true}");
    json_t *none = ask("/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_tokens\":1,"
                                               "\"verbose\":false}");

    (void)state;
    assert_string_equal(test_json_text(v, "__verbose.prompt"), "<|endoftext|><|user|>a<|end|><|assistant|>");
    assert_null(json_object_get(none, "__verbose"));
    json_decref(v);
    json_decref(none);
}

static void it_tells_what_it_is(void **state)
{
    json_t *props = test_web_json(t.port, "/props", NULL, 200), *slots = test_web_json(t.port, "/slots", NULL, 200);
    json_t *lora = test_web_json(t.port, "/lora-adapters", NULL, 200),
           *models = test_web_json(t.port, "/models", NULL, 200);
    json_t *n = ask("/chat/completions/input_tokens", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}");
    test_reply metrics = test_web_ask(t.port, "GET", "/metrics", NULL, NULL);

    (void)state;
    assert_int_equal(int_at(props, "total_slots"), 16);
    assert_int_equal(int_at(props, "default_generation_settings.n_ctx"), 512);
    assert_int_equal(int_at(props, "default_generation_settings.params.seed"), 42);
    assert_non_null(strstr(test_json_text(props, "model_path"), "tales-1m"));
    assert_string_equal(test_json_text(props, "bos_token"), "<|endoftext|>");
    assert_int_equal(json_array_size(slots), 16);
    assert_true(!true_at(slots, "0.is_processing"));
    assert_int_equal(json_array_size(lora), 0);
    assert_string_equal(test_json_text(models, "data.0.id"), "tales");
    assert_true(int_at(n, "input_tokens") > 3);
    assert_non_null(strstr(metrics.body, "\nllamacpp:tokens_predicted_total "));
    assert_null(strstr(metrics.body, "\nllamacpp:n_tokens_max 0\n"));
    test_reply_free(&metrics);
    json_decref(props);
    json_decref(slots);
    json_decref(lora);
    json_decref(models);
    json_decref(n);
}

static void what_is_wrong_is_told(void **state)
{
    static const struct {
        const char *path, *body;
        int status;
        const char *says, *type;
    } cases[] = {
        { "/completion", "{}", 400, "prompt", "invalid_request_error" },
        { "/completion", "{\"prompt\":[]}", 400, "prompt", "invalid_request_error" },
        { "/completion", "{\"prompt\":[1,[2]]}", 400, "prompt", "invalid_request_error" },
        { "/completion", "{\"prompt\":[4096]}", 400, "4096", "invalid_request_error" },
        { "/completion", "{\"prompt\":{\"prompt_string\":\"a\",\"multimodal_data\":[\"AAAA\"]}}", 400, "text alone",
          "invalid_request_error" },
        { "/completion", "{\"prompt\":\"a\",\"samplers\":[\"king\"]}", 400, "samplers", "invalid_request_error" },
        { "/completion", "{\"prompt\":\"a\",\"lora\":[{\"id\":0,\"scale\":1}]}", 400, "lora", "invalid_request_error" },
        { "/completion", "{\"prompt\":\"a\",\"response_fields\":3}", 400, "response_fields", "invalid_request_error" },
        { "/completion", "{\"prompt\":\"a\",\"temperature\":-1}", 400, "temperature", "invalid_request_error" },
        { "/infill", "{\"input_prefix\":\"a\",\"input_suffix\":\"b\"}", 501, "insert", "not_supported_error" },
        { "/infill", "{\"input_prefix\":\"a\"}", 400, "input_suffix", "invalid_request_error" },
        { "/infill",
          "{\"input_prefix\":\"a\",\"input_suffix\":\"b\",\"input_extra\":[{\"filename\":3,\"text\":\"a\"}]}", 400,
          "input_extra", "invalid_request_error" },
        { "/embedding", "{\"content\":{\"content\":[{\"type\":\"image_url\"}]}}", 400, "text alone",
          "invalid_request_error" },
        { "/slots/0?action=save", "{\"filename\":\"a\"}", 501, "Slots", "not_supported_error" },
        { "/lora-adapters", "[{\"id\":0,\"scale\":1}]", 501, "request", "not_supported_error" },
        { "/props", "{}", 501, "flags", "not_supported_error" },
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        json_t *v = test_web_json(t.port, cases[i].path, cases[i].body, cases[i].status);
        if (!strstr(test_json_text(v, "error.message"), cases[i].says))
            fail_msg("%s: %s", cases[i].body, test_json_text(v, "error.message"));
        assert_string_equal(test_json_text(v, "error.type"), cases[i].type);
        assert_int_equal(int_at(v, "error.code"), cases[i].status);
        json_decref(v);
    }
    char *body = malloc(6000);
    strcpy(body, "{\"prompt\":\"");
    for (int i = 0; i < 1000; i++)
        strcat(body + 4 * i, "cat ");
    strcat(body, "\"}");
    json_t *v = test_web_json(t.port, "/completion", body, 400);
    assert_string_equal(test_json_text(v, "error.type"), "exceed_context_size_error");
    assert_int_equal(int_at(v, "error.n_ctx"), 512);
    assert_true(int_at(v, "error.n_prompt_tokens") > 512);
    json_decref(v);
    free(body);
}

/* ---- the description --------------------------------------------------------------------------------------------- */

/* What the server sets does not replace what a conversation has. */
static void variables_are_set_where_they_are_missing(void **state)
{
    json_t *v = ask("/apply-template", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}");

    (void)state;
    assert_string_equal(test_json_text(v, "prompt"), "<|endoftext|><|user|>a<|end|><|assistant|>");
    json_decref(v);
}

/* Every route stands in it, with its method and all statuses; bodies have the fields of the table. */
static void the_description_has_every_route(void **state)
{
    json_t *v = test_web_json(t.port, "/openapi.json", NULL, 200);
    const json_t *paths = json_object_get(v, "paths");
    char path[200], method[10];

    (void)state;
    assert_string_equal(test_json_text(v, "openapi"), "3.1.0");
    for (int i = 0; i < rg_n_routes; i++) {
        const rg_route *r = &rg_routes[i];
        size_t n = 0;

        for (; r->method[n]; n++)
            method[n] = (char)(r->method[n] + ('a' - 'A'));
        method[n] = 0;
        snprintf(path, sizeof path, "%s%s", r->path, r->flags & RG_ROUTE_PREFIX ? "{id}" : "");
        const json_t *is = json_object_get(json_object_get(paths, path), method);
        const json_t *answers = json_object_get(is, "responses");
        if (!json_object_get(answers, "200") || !json_object_get(answers, "400") || !json_object_get(answers, "503"))
            fail_msg("%s %s is not described", r->method, path);
        assert_int_equal(json_object_get(is, "requestBody") != NULL, !strcmp(r->method, "POST"));
    }
    const json_t *body =
        json_object_get(json_object_get(json_object_get(paths, "/v1/completions"), "post"), "requestBody");
    const json_t *schema =
        test_json_at(json_object_get(json_object_get(body, "content"), "application/json"), "schema");
    assert_string_equal(test_json_text(schema, "required.0"), "prompt");
    assert_true(json_number_value(test_json_at(schema, "properties.temperature.maximum")) == RG_TEMPERATURE_MAX);
    assert_int_equal(int_at(schema, "properties.n.minimum"), 1);
    assert_null(test_json_at(schema, "properties.messages"));
    json_decref(v);
}

/* A path that has other methods names all of them. */
static void other_methods_are_named(void **state)
{
    test_reply r = test_web_ask(t.port, "PUT", "/props", NULL, "{}");

    (void)state;
    assert_int_equal(r.status, 405);
    assert_string_equal(test_reply_header(&r, "Allow"), "GET, HEAD, POST");
    test_reply_free(&r);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_tells_of_itself),
        cmocka_unit_test(why_it_stopped_is_told),
        cmocka_unit_test(the_servers_seed_counts),
        cmocka_unit_test(a_stream_has_the_same_text),
        cmocka_unit_test(probabilities_after_sampling),
        cmocka_unit_test(prompts_of_every_form),
        cmocka_unit_test(only_the_fields_that_are_wanted),
        cmocka_unit_test(samplers_and_biases),
        cmocka_unit_test(grammars_and_prefill),
        cmocka_unit_test(time_ends_an_answer),
        cmocka_unit_test(embeddings_in_its_form),
        cmocka_unit_test(tokens_and_pieces),
        cmocka_unit_test(the_prompt_is_shown_where_it_is_wanted),
        cmocka_unit_test(it_tells_what_it_is),
        cmocka_unit_test(what_is_wrong_is_told),
        cmocka_unit_test(variables_are_set_where_they_are_missing),
        cmocka_unit_test(the_description_has_every_route),
        cmocka_unit_test(other_methods_are_named),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, setup, teardown);
}
