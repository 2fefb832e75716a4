/* test_searches.c -- tree search and scorers as clients ask for them: `search` of completions and chat, `scorer` of a
 * reranker among the server's models; what is refused; and that a closed connection ends a search. */
#include "live.h"

#include <math.h>

#include "server/json.h"
#include "support/model.h"

static const char *names[] = { "tales", "judge", "llama" };

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
    o.max_seqs = 8;
    o.max_seq_len = strstr(path, "judge") ? 48 : 256;
    o.kv_bytes = (size_t)16 << 20;
    return rg_open(path, &o, err);
}

static void start(world *w)
{
    rg_server_options o = test_server_options();
    rg_error err = { 0 };
    char judge[600];
    const char *const paths[] = { RG_SOURCE_DIR "/models/tales-1m", judge, test_data("llama") };

    snprintf(judge, sizeof judge, "%s", test_with_letters("judge", "bert-rerank"));
    w->host = rg_host_open(&(rg_host_options){ .n_threads = 2 }, &err);
    assert_ok(w->host, err);
    o.any_port = true;
    w->s = rg_server_open(&o, &err);
    assert_ok(w->s, err);
    assert_ok(rg_server_serve_models(w->s, &(rg_server_models){ .open = open_one, .arg = w, .keep_alive_s = -1 }, names,
                                     paths, RG_LEN(names), &err), err);
    assert_ok(rg_server_listen(w->s, &err), err);
    w->port = test_port(w->s);
}

static void stop(world *w)
{
    rg_server_close(w->s);
    rg_host_close(w->host);
}

#define PROMPT "\"model\":\"tales\",\"prompt\":\"Once upon a time\",\"max_tokens\":12"

/* The sum of the log-probabilities of a choice. */
static double sum_of(const json_t *v, int choice)
{
    char path[64];
    double sum = 0;

    snprintf(path, sizeof path, "choices.%d.logprobs.token_logprobs", choice);
    const json_t *list = test_json_at(v, path);
    assert_true(json_array_size(list) > 0);
    for (size_t i = 0; i < json_array_size(list); i++)
        sum += json_number_value(json_array_get(list, i));
    return sum;
}

static void searches_find_likely_answers(void **state)
{
    world w;

    (void)state;
    start(&w);
    json_t *greedy = test_web_json(w.port, "/v1/completions", "{" PROMPT ",\"temperature\":0,\"logprobs\":0,"
                                   "\"ignore_eos\":true}", 200);
    json_t *tree = test_web_json(w.port, "/v1/completions", "{" PROMPT ",\"search\":{\"simulations\":100,\"leaves\":4},"
                                 "\"n\":3,\"logprobs\":0,\"ignore_eos\":true}", 200);
    assert_int_equal(json_array_size(json_object_get(tree, "choices")), 3);
    assert_true(sum_of(tree, 0) >= sum_of(greedy, 0) - 1e-4);
    for (int i = 1; i < 3; i++)
        assert_true(sum_of(tree, i) <= sum_of(tree, i - 1) + 1e-4);
    json_t *again = test_web_json(w.port, "/v1/completions", "{" PROMPT ",\"search\":{\"simulations\":100,\"leaves\":4},"
                                  "\"n\":3,\"logprobs\":0,\"ignore_eos\":true,\"temperature\":0.3,\"seed\":9}", 200);
    assert_string_equal(test_json_text(again, "choices.0.text"), test_json_text(tree, "choices.0.text"));
    json_decref(again);
    json_decref(tree);
    json_decref(greedy);
    json_t *chat = test_web_json(w.port, "/v1/chat/completions", "{\"model\":\"tales\",\"messages\":[{\"role\":\"user\","
                                 "\"content\":\"Hi\"}],\"max_tokens\":8,\"search\":\"mcts\"}", 200);
    assert_non_null(test_json_text(chat, "choices.0.message.content"));
    assert_true(json_integer_value(test_json_at(chat, "usage.completion_tokens")) <= 8);
    json_decref(chat);
    stop(&w);
}

static void rerankers_score(void **state)
{
    world w;

    (void)state;
    start(&w);
    assert_int_equal(test_web_status(w.port, "/v1/completions", "{" PROMPT ",\"search\":\"mcts\",\"scorer\":\"judge\"}"),
                     503); /* it is not open */
    json_decref(test_web_json(w.port, "/v1/score", "{\"model\":\"judge\",\"text_1\":\"a\",\"text_2\":\"b\"}", 200));
    static const char *const asks[] = {
        "{" PROMPT ",\"search\":{\"simulations\":20},\"scorer\":\"judge\"}",
        "{" PROMPT ",\"best_of\":5,\"scorer\":\"judge\",\"scorer_query\":\"a cat\",\"seed\":1}",
        "{\"model\":\"tales\",\"prompt\":[5,6,7],\"max_tokens\":6,\"best_of\":4,\"scorer\":\"judge\",\"scorer_query\":\"a\"}",
    };
    for (size_t i = 0; i < RG_LEN(asks); i++) {
        json_t *v = test_web_json(w.port, "/v1/completions", asks[i], 200);
        assert_int_equal(json_array_size(json_object_get(v, "choices")), 1);
        json_decref(v);
    }
    json_t *v = test_web_json(w.port, "/v1/chat/completions", "{\"model\":\"tales\",\"messages\":[{\"role\":\"user\","
                              "\"content\":\"Hi\"}],\"max_tokens\":6,\"best_of\":3,\"scorer\":\"judge\"}", 200);
    json_decref(v);
    stop(&w);
}

static void what_does_not_go_is_refused(void **state)
{
    static const char *const refused[][2] = {
        { "\"search\":\"dfs\"", "search" }, { "\"search\":{\"depth\":3}", "search" },
        { "\"search\":{\"simulations\":0}", "search" }, { "\"search\":{\"width\":2.5}", "search" },
        { "\"search\":{\"explore\":-2}", "search" }, { "\"search\":\"mcts\",\"stream\":true", "search" },
        { "\"search\":\"mcts\",\"best_of\":3", "search" }, { "\"search\":\"mcts\",\"use_beam_search\":true", "search" },
        { "\"search\":{\"simulations\":2},\"n\":3", "n" }, { "\"scorer\":\"judge\"", "scorer" },
        { "\"best_of\":2,\"scorer_query\":\"x\"", "scorer_query" },
        { "\"best_of\":2,\"scorer\":\"llama\"", "scorer" }, { "\"best_of\":2,\"scorer\":\"nobody\"", "scorer" },
        { "\"suffix\":\"the end\"", "suffix" }, { "\"suffix\":3", "suffix" },
    };
    char body[400];
    world w;

    (void)state;
    start(&w);
    json_decref(test_web_json(w.port, "/v1/completions", "{\"model\":\"llama\",\"prompt\":[5],\"max_tokens\":1}", 200));
    for (size_t i = 0; i < RG_LEN(refused); i++) {
        snprintf(body, sizeof body, "{" PROMPT ",%s}", refused[i][0]);
        test_reply r = test_web_ask(w.port, "POST", "/v1/completions", NULL, body);
        if (r.status < 400 || r.status > 404 || !strstr(r.body, refused[i][1]))
            fail_msg("%s: %d %s", refused[i][0], r.status, r.body);
        test_reply_free(&r);
    }
    stop(&w);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(searches_find_likely_answers),
        cmocka_unit_test(rerankers_score),
        cmocka_unit_test(what_does_not_go_is_refused),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
