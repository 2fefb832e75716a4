/* test_filling.c -- models of diffusion over HTTP, beside one that draws id by id: whole and streamed answers, stops,
 * log-probabilities, lengths that nobody gives, company, and refusals that name what is not taken. */
#include "live.h"

#include <math.h>
#include <pthread.h>

#include "support/model.h"

static const char *const names[] = { "tales", "diffusion-gemma", "llada", "dream", "sdar-b4" };

enum { FIRST_FILLED = 1, N_MODELS = RG_LEN(names) };

typedef struct world {
    rg_host *host;
    rg_server *s;
    int port;
} world;

static rg_engine *open_one(void *arg, const char *path, rg_served *s, rg_error *err)
{
    world *w = arg;
    rg_options o = rg_options_default();

    (void)s;
    o.host = w->host;
    o.max_seqs = 4;
    o.max_seq_len = 160;
    o.max_batch_rows = 64;
    o.kv_bytes = (size_t)8 << 20;
    return rg_open(path, &o, err);
}

/* The goldens have no tokenizer of their own: they get one, and a template. */
static void start(world *w)
{
    static char paths[N_MODELS][600];
    const char *list[N_MODELS], *given[N_MODELS];
    rg_server_options o = test_server_options();
    rg_error err = { 0 };

    for (int i = 0; i < N_MODELS; i++) {
        char config[700];

        given[i] = names[i];
        list[i] = paths[i];
        snprintf(paths[i], sizeof paths[i], "%s", i < FIRST_FILLED ? RG_SOURCE_DIR "/models/tales-1m"
                                                                   : test_with_letters(names[i], names[i]));
        snprintf(config, sizeof config, "%s/tokenizer_config.json", paths[i]);
        if (i >= FIRST_FILLED)
            test_write_text(config, "{\"chat_template\":\"{% for m in messages %}{{ m.content }} {% endfor %}\"}");
    }
    w->host = rg_host_open(&(rg_host_options){ .n_threads = 1 }, &err);
    assert_ok(w->host, err);
    o.any_port = true;
    w->s = rg_server_open(&o, &err);
    assert_ok(w->s, err);
    assert_ok(rg_server_serve_models(w->s, &(rg_server_models){ .open = open_one, .arg = w, .keep_alive_s = -1 }, given,
                                     list, N_MODELS, &err), err);
    assert_ok(rg_server_listen(w->s, &err), err);
    w->port = test_port(w->s);
}

static void stop(world *w)
{
    rg_server_close(w->s);
    rg_host_close(w->host);
}

/* The body of a completion of a model, with these fields besides. */
static const char *asked(const char *model, int n, const char *fields)
{
    static _Thread_local char body[600];

    snprintf(body, sizeof body, "{\"model\":\"%s\",\"prompt\":[20,7,9,12,8],\"max_tokens\":%d,\"seed\":5,\"ignore_eos\":true%s}",
             model, n, fields);
    return body;
}

static json_t *ask(const world *w, const char *model, int n, const char *fields)
{
    return test_web_json(w->port, "/v1/completions", asked(model, n, fields), 200);
}

/* The text of all events of a stream; *finish: the last reason. */
static char *text_of_stream(const char *body, char finish[16])
{
    char *text = calloc(1, strlen(body) + 1);

    assert_non_null(text);
    finish[0] = 0;
    for (const char *at = strstr(body, "data: {"); at; at = strstr(at + 1, "data: {")) {
        json_t *v = json_loads(at + 6, JSON_DISABLE_EOF_CHECK, NULL);
        const char *why = json_string_value(test_json_at(v, "choices.0.finish_reason"));

        assert_non_null(v);
        strcat(text, test_json_text(v, "choices.0.text"));
        if (why)
            snprintf(finish, 16, "%s", why);
        json_decref(v);
    }
    assert_non_null(strstr(body, "data: [DONE]"));
    return text;
}

/* A log-probability for each id, and it is the largest of those told beside it or one of them is larger. */
static void check_logprobs(const json_t *v, size_t n)
{
    const json_t *each = test_json_at(v, "choices.0.logprobs.token_logprobs");
    const json_t *tops = test_json_at(v, "choices.0.logprobs.top_logprobs");

    assert_int_equal(json_array_size(each), n);
    assert_int_equal(json_array_size(tops), n);
    for (size_t i = 0; i < n; i++) {
        const double x = json_number_value(json_array_get(each, i));
        assert_true(isfinite(x) && x <= 0 && x > -20);
        assert_true(json_object_size(json_array_get(tops, i)) >= 1);
    }
}

static void answers_are_filled_in(void **state)
{
    enum { N = 24 };
    world w;

    (void)state;
    start(&w);
    for (int i = FIRST_FILLED; i < N_MODELS; i++) {
        char finish[16], first[2] = "";
        json_t *whole = ask(&w, names[i], N, ",\"logprobs\":2,\"return_token_ids\":true");
        const char *text = test_json_text(whole, "choices.0.text");

        assert_int_equal(json_integer_value(test_json_at(whole, "usage.completion_tokens")), N);
        assert_string_equal(test_json_text(whole, "choices.0.finish_reason"), "length");
        check_logprobs(whole, N);
        test_reply r = test_web_ask(w.port, "POST", "/v1/completions", NULL, asked(names[i], N, ",\"stream\":true"));
        assert_int_equal(r.status, 200);
        char *streamed = text_of_stream(r.body, finish);
        assert_string_equal(streamed, text);
        assert_string_equal(finish, "length");
        free(streamed);
        test_reply_free(&r);
        /* A stop cuts the same text. */
        for (const char *at = text + strlen(text) / 2; *at && !*first; at++)
            if (*at > 'a' && *at <= 'z')
                first[0] = *at;
        if (*first) {
            char fields[64], *want = strdup(text);
            assert_non_null(want);
            *strchr(want, first[0]) = 0;
            snprintf(fields, sizeof fields, ",\"stop\":[\"%s\"]", first);
            json_t *cut = ask(&w, names[i], N, fields);
            assert_string_equal(test_json_text(cut, "choices.0.text"), want);
            assert_string_equal(test_json_text(cut, "choices.0.finish_reason"), "stop");
            json_decref(cut);
            free(want);
        }
        json_decref(whole);
    }
    stop(&w);
}

/* Whole canvases are computed, and as many ids are told as were asked for: a shorter answer is the longer one's beginning. */
static void canvases_are_cut(void **state)
{
    static const int lengths[] = { 1, 15, 16, 17, 33 };
    world w;

    (void)state;
    start(&w);
    json_t *longest = ask(&w, "diffusion-gemma", 40, ",\"return_token_ids\":true");
    const json_t *all = test_json_at(longest, "choices.0.token_ids");
    assert_int_equal(json_array_size(all), 40);
    for (size_t i = 0; i < RG_LEN(lengths); i++) {
        json_t *v = ask(&w, "diffusion-gemma", lengths[i], ",\"return_token_ids\":true");
        const json_t *ids = test_json_at(v, "choices.0.token_ids");
        assert_int_equal(json_array_size(ids), lengths[i]);
        for (size_t k = 0; k < json_array_size(ids); k++)
            assert_int_equal(json_integer_value(json_array_get(ids, k)), json_integer_value(json_array_get(all, k)));
        json_decref(v);
    }
    json_decref(longest);
    stop(&w);
}

/* Who does not say how long an answer may be gets one as long as can be: of models that compute all of it in one step, as
 * long as a step has room for. */
static void nobody_says_how_long(void **state)
{
    static const char *const paths[][2] = {
        { "/v1/chat/completions", "{\"model\":\"%s\",\"messages\":[{\"role\":\"user\",\"content\":\"ab\"}],\"seed\":1%s}" },
        { "/v1/responses", "{\"model\":\"%s\",\"input\":\"ab\",\"store\":false%s}" },
        { "/api/chat", "{\"model\":\"%s\",\"messages\":[{\"role\":\"user\",\"content\":\"ab\"}],\"stream\":false%s}" },
        { "/completion", "{\"model\":\"%s\",\"prompt\":[20,7,9],\"seed\":1%s}" },
    };
    world w;

    (void)state;
    start(&w);
    for (int i = FIRST_FILLED; i < N_MODELS; i++)
        for (size_t k = 0; k < RG_LEN(paths); k++) {
            char body[300];

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
            snprintf(body, sizeof body, paths[k][1], names[i], k ? "" : ",\"ignore_eos\":true");
#pragma GCC diagnostic pop
            json_t *v = test_web_json(w.port, paths[k][0], body, 200);
            if (!k) {
                const int64_t n = json_integer_value(test_json_at(v, "usage.completion_tokens"));
                const int64_t n_prompt = json_integer_value(test_json_at(v, "usage.prompt_tokens"));
                assert_true(!strcmp(names[i], "llada") || !strcmp(names[i], "dream") ? n_prompt + n == 64
                                                                                       : n_prompt + n > 128);
            }
            json_decref(v);
        }
    /* A length that was said is not changed. */
    test_reply r = test_web_ask(w.port, "POST", "/v1/completions", NULL, asked("llada", 100, ""));
    assert_true(r.status == 400 && strstr(r.body, "--batch-rows"));
    test_reply_free(&r);
    stop(&w);
}

typedef struct client {
    const world *w;
    const char *model;
    json_t *answer;
    pthread_t thread;
} client;

static void *run_client(void *arg)
{
    client *c = arg;

    c->answer = ask(c->w, c->model, 30, ",\"logprobs\":1,\"return_token_ids\":true");
    return NULL;
}

/* All models at once, two requests each: each answer is what it is alone, to the last digit of its log-probabilities. */
static void company_changes_nothing(void **state)
{
    client clients[2 * N_MODELS];
    json_t *alone[N_MODELS];
    world w;

    (void)state;
    start(&w);
    for (int i = 0; i < N_MODELS; i++)
        alone[i] = ask(&w, names[i], 30, ",\"logprobs\":1,\"return_token_ids\":true");
    for (int i = 0; i < 2 * N_MODELS; i++) {
        clients[i] = (client){ .w = &w, .model = names[i % N_MODELS] };
        assert_int_equal(pthread_create(&clients[i].thread, NULL, run_client, &clients[i]), 0);
    }
    for (int i = 0; i < 2 * N_MODELS; i++) {
        assert_int_equal(pthread_join(clients[i].thread, NULL), 0);
        assert_true(json_equal(test_json_at(clients[i].answer, "choices.0.token_ids"),
                               test_json_at(alone[i % N_MODELS], "choices.0.token_ids")));
        assert_true(json_equal(test_json_at(clients[i].answer, "choices.0.logprobs.token_logprobs"),
                               test_json_at(alone[i % N_MODELS], "choices.0.logprobs.token_logprobs")));
        json_decref(clients[i].answer);
    }
    for (int i = 0; i < N_MODELS; i++)
        json_decref(alone[i]);
    stop(&w);
}

/* Refusals name what is not taken. */
static void refusals_name_it(void **state)
{
    static const struct {
        const char *model, *field, *about;
    } refused[] = {
        { "diffusion-gemma", "\"threshold\":0.9", "threshold" },
        { "diffusion-gemma", "\"block_length\":8", "canvases of 16" },
        { "diffusion-gemma", "\"remasking\":\"margin\"", "remasking" },
        { "diffusion-gemma", "\"cfg_scale\":1", "cfg" },
        { "diffusion-gemma", "\"diffusion_cache\":\"dual\"", "cache" },
        { "diffusion-gemma", "\"guided_regex\":\"[a-z]+\"", "grammar" },
        { "diffusion-gemma", "\"best_of\":3", "best_of" },
        { "diffusion-gemma", "\"use_beam_search\":true,\"n\":2", "beams" },
        { "diffusion-gemma", "\"search\":{\"simulations\":4}", "tree search" },
        { "diffusion-gemma", "\"echo\":true,\"logprobs\":1", "prompt_logprobs" },
        { "diffusion-gemma", "\"mirostat\":2", "mirostat" },
        { "sdar-b4", "\"block_length\":8", "blocks of 4" },
        { "sdar-b4", "\"remasking\":\"margin\"", "remasking" },
        { "dream", "\"block_length\":8", "block" },
        { "llada", "\"remasking\":\"dynamic\"", "remasking" },
    };
    world w;

    (void)state;
    start(&w);
    for (int i = FIRST_FILLED; i < N_MODELS; i++)
        json_decref(ask(&w, names[i], 4, ""));
    for (size_t i = 0; i < RG_LEN(refused); i++) {
        char fields[100];

        snprintf(fields, sizeof fields, ",%s", refused[i].field);
        test_reply r = test_web_ask(w.port, "POST", "/v1/completions", NULL, asked(refused[i].model, 8, fields));
        if (r.status != 400 || !strstr(r.body, refused[i].about))
            fail_msg("%s: %s: %d %s", refused[i].model, refused[i].field, r.status, r.body);
        test_reply_free(&r);
    }
    stop(&w);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_filled_in),   cmocka_unit_test(canvases_are_cut),
        cmocka_unit_test(nobody_says_how_long),    cmocka_unit_test(company_changes_nothing),
        cmocka_unit_test(refusals_name_it),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
