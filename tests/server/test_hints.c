/* test_hints.c -- what training and agents ask of the server besides answers: the ids of prompts and answers, budgets of
 * reasoning, predicted answers, and weights that are replaced. */
#define _GNU_SOURCE 1
#include "server/live.h"

#include <strings.h>

#include "base/file.h"
#include "server/json.h"
#include "support/model.h"

#define TALES RG_SOURCE_DIR "/models/tales-1m"

static test_server start(const char *chat_template, const char *tool_format, bool updates)
{
    rg_options o = rg_options_default();
    rg_server_options so = test_server_options();
    rg_error err = { 0 };
    test_server t = { 0 };

    o.n_threads = 1;
    o.max_seq_len = 512;
    o.max_seqs = 4;
    o.kv_bytes = (size_t)32 << 20;
    o.draft = "suffix";
    o.chat_template = chat_template;
    t.engine = rg_open(TALES, &o, &err);
    assert_ok(t.engine, err);
    so.strict_model = false;
    so.tool_format = tool_format;
    so.allow_updates = updates;
    test_server_start_with(&t, &so, t.engine);
    return t;
}

static long long number(const json_t *v, const char *path)
{
    return json_integer_value(test_json_at(v, path));
}

/* ---- ids --------------------------------------------------------------------------------------------------------- */

static void ids_are_those_of_the_texts(void **state)
{
    test_server t = start(NULL, NULL, false);
    char body[512];

    (void)state;
    json_t *v = test_web_json(t.port, "/v1/completions", "{\"prompt\":[\"Once upon\",\"A dog\"],\"max_tokens\":9,\"n\":2,"
                              "\"seed\":1,\"logprobs\":1,\"return_token_ids\":true}", 200);
    for (int i = 0; i < 4; i++) {
        const json_t *c = json_array_get(json_object_get(v, "choices"), (size_t)i);
        const json_t *ids = json_object_get(c, "token_ids");
        assert_int_equal(json_array_size(ids), json_array_size(test_json_at(c, "logprobs.token_logprobs")));
        char *list = rg_body_dump(ids);
        snprintf(body, sizeof body, "{\"tokens\":%s}", list);
        json_t *text = test_web_json(t.port, "/detokenize", body, 200);
        assert_non_null(strstr(test_json_text(text, "prompt"), test_json_text(c, "text") + 1));
        snprintf(body, sizeof body, "{\"prompt\":\"%s\",\"add_special_tokens\":true}", i < 2 ? "Once upon" : "A dog");
        json_t *own = test_web_json(t.port, "/tokenize", body, 200);
        assert_true(json_equal(json_object_get(own, "tokens"), json_object_get(c, "prompt_token_ids")));
        json_decref(own);
        json_decref(text);
        rg_free(list);
    }
    json_decref(v);
    v = test_web_json(t.port, "/v1/completions", "{\"prompt\":\"Once\",\"max_tokens\":3}", 200);
    assert_null(test_json_at(v, "choices.0.token_ids")); /* unless they are asked for */
    assert_null(test_json_at(v, "choices.0.prompt_token_ids"));
    json_decref(v);
    test_server_stop(&t);
}

/* Of all chunks of a stream: the ids of answer and prompt. */
static void gather(const char *body, bool chat, json_t *ids, json_t *prompt)
{
    for (const char *at = body; (at = strstr(at, "data: {")); at++) {
        json_t *v = json_loads(at + 6, JSON_DISABLE_EOF_CHECK, NULL);
        const json_t *c = json_array_get(json_object_get(v, "choices"), 0);
        json_array_extend(ids, json_object_get(c, "token_ids"));
        json_array_extend(prompt, json_object_get(chat ? v : c, "prompt_token_ids"));
        json_decref(v);
    }
}

static void streams_have_the_same_ids(void **state)
{
    static const struct {
        const char *path, *body, *prompt;
        bool chat;
    } asks[] = { { "/v1/completions", "{\"prompt\":\"Once upon a time\",\"max_tokens\":40,\"seed\":5,"
                   "\"return_token_ids\":true,\"stream\":%s}", "choices.0.prompt_token_ids", false },
                 { "/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":\"A story\"}],\"max_tokens\":40,"
                   "\"seed\":5,\"return_token_ids\":true,\"stream\":%s}", "prompt_token_ids", true } };
    test_server t = start(NULL, NULL, false);
    char body[400];

    (void)state;
    for (size_t i = 0; i < RG_LEN(asks); i++) {
        json_t *ids = json_array(), *prompt = json_array();
        snprintf(body, sizeof body, asks[i].body, "false");
        json_t *whole = test_web_json(t.port, asks[i].path, body, 200);
        snprintf(body, sizeof body, asks[i].body, "true");
        test_reply r = test_web_ask(t.port, "POST", asks[i].path, NULL, body);
        gather(r.body, asks[i].chat, ids, prompt);
        assert_int_equal(json_array_size(ids), number(whole, "usage.completion_tokens"));
        assert_true(json_equal(ids, (json_t *)(uintptr_t)test_json_at(whole, "choices.0.token_ids")));
        assert_int_equal(json_array_size(prompt), number(whole, "usage.prompt_tokens"));
        assert_true(json_equal(prompt, (json_t *)(uintptr_t)test_json_at(whole, asks[i].prompt)));
        test_reply_free(&r);
        json_decref(whole);
        json_decref(ids);
        json_decref(prompt);
    }
    test_server_stop(&t);
}

/* ---- budgets ----------------------------------------------------------------------------------------------------- */

static void reasoning_keeps_its_budget(void **state)
{
    static const struct {
        const char *path, *field;
    } ways[] = { { "/v1/chat/completions", "\"thinking_token_budget\":6" },
                 { "/v1/chat/completions", "\"thinking_budget\":6" },
                 { "/v1/chat/completions", "\"reasoning_budget\":6" },
                 { "/v1/chat/completions", "\"reasoning\":{\"max_tokens\":6}" },
                 { "/v1/messages", "\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":6}" } };
    const char *template = test_scratch("test_hints.jinja");
    rg_error err = { 0 };
    char body[400];
    rg_writer *w = rg_writer_open(template, &err);
    static const char text[] = "{% for m in messages %}{{ m.content }}\n{% endfor %}"
                               "{% if add_generation_prompt %}<think>\n{% endif %}";

    (void)state;
    assert_ok(w && rg_writer_write(w, text, strlen(text), &err) && rg_writer_commit(w, &err), err);
    test_server t = start(template, NULL, false);
    for (size_t i = 0; i < RG_LEN(ways); i++) {
        snprintf(body, sizeof body, "{\"messages\":[{\"role\":\"user\",\"content\":\"A story\"}],\"max_tokens\":60,%s,"
                 "\"seed\":3,\"ignore_eos\":true}", ways[i].field);
        json_t *v = test_web_json(t.port, ways[i].path, body, 200);
        if (i < 4) {
            assert_true(strlen(test_json_text(v, "choices.0.message.reasoning_content")) > 0);
            assert_true(strlen(test_json_text(v, "choices.0.message.content")) > 0);
            assert_true(number(v, "usage.completion_tokens_details.reasoning_tokens") < 6 + 9); /* and the mark */
        } else {
            assert_string_equal(test_json_text(v, "content.0.type"), "thinking");
            assert_string_equal(test_json_text(v, "content.1.type"), "text");
        }
        json_decref(v);
    }
    json_t *v = test_web_json(t.port, "/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":\"A\"}],"
                              "\"max_tokens\":40,\"ignore_eos\":true,\"seed\":3,\"thinking_budget\":-1}", 200);
    assert_string_equal(test_json_text(v, "choices.0.message.content"), ""); /* without, it reasons to its end */
    json_decref(v);
    v = test_web_json(t.port, "/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":\"A\"}],"
                      "\"reasoning\":{\"max_tokens\":-6}}", 400);
    assert_string_equal(test_json_text(v, "error.param"), "reasoning.max_tokens");
    json_decref(v);
    test_server_stop(&t);
    unlink(template);
}

/* ---- predicted answers ------------------------------------------------------------------------------------------- */

static void predictions_are_counted(void **state)
{
    test_server t = start(NULL, NULL, false);
    const char *ask = "\"messages\":[{\"role\":\"user\",\"content\":\"A story\"}],\"max_tokens\":80,\"temperature\":0";
    char body[4096];

    (void)state;
    snprintf(body, sizeof body, "{%s}", ask);
    json_t *v = test_web_json(t.port, "/v1/chat/completions", body, 200);
    char *said = rg_body_dump(test_json_at(v, "choices.0.message.content"));
    assert_null(test_json_at(v, "usage.completion_tokens_details.accepted_prediction_tokens"));
    snprintf(body, sizeof body, "{%s,\"prediction\":{\"type\":\"content\",\"content\":%s}}", ask, said);
    json_t *again = test_web_json(t.port, "/v1/chat/completions", body, 200);
    assert_string_equal(test_json_text(again, "choices.0.message.content"), test_json_text(v, "choices.0.message.content"));
    assert_true(number(again, "usage.completion_tokens_details.accepted_prediction_tokens") > 20);
    json_decref(again);
    snprintf(body, sizeof body, "{%s,\"prediction\":{\"type\":\"content\",\"content\":[{\"type\":\"text\",\"text\":"
             "\"Nothing of this is said.\"}]}}", ask);
    again = test_web_json(t.port, "/v1/chat/completions", body, 200);
    assert_string_equal(test_json_text(again, "choices.0.message.content"), test_json_text(v, "choices.0.message.content"));
    assert_true(number(again, "usage.completion_tokens_details.rejected_prediction_tokens") > 3);
    json_decref(again);
    json_decref(v);
    rg_free(said);
    assert_int_equal(test_web_status(t.port, "/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":\"A\"}],"
                                     "\"prediction\":{\"type\":\"text\",\"content\":\"x\"}}"), 400);
    assert_int_equal(test_web_status(t.port, "/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":\"A\"}],"
                                     "\"prediction\":{\"type\":\"content\",\"content\":7}}"), 400);
    test_server_stop(&t);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

static void weights_are_replaced_if_that_is_allowed(void **state)
{
    test_server t = start(NULL, NULL, false);

    (void)state;
    assert_int_equal(test_web_status(t.port, "/update_weights", "{\"path\":\"" TALES "\"}"), 403);
    test_server_stop(&t);
    t = start(NULL, NULL, true);
    for (int i = 1; i < 4; i++) {
        json_t *v = test_web_json(t.port, "/update_weights", "{\"path\":\"" TALES "\"}", 200);
        assert_true(json_is_true(json_object_get(v, "success")));
        assert_int_equal(number(v, "updates"), i);
        json_decref(v);
        TEST_UNTIL(test_web_status(t.port, "/update_weights", "{}") == 400); /* until that thread has ended: 409 */
    }
    TEST_UNTIL(test_web_status(t.port, "/update_weights", "{\"path\":\"" RG_SOURCE_DIR "/models/tales-7m\"}") == 400);
    TEST_UNTIL(test_web_status(t.port, "/update_weights_from_disk", "{\"model_path\":\"/nowhere\"}") == 400);
    assert_int_equal(test_web_status(t.port, "/v1/completions", "{\"prompt\":\"Once\",\"max_tokens\":3}"), 200);
    test_server_stop(&t);
}

/* ---- votes ------------------------------------------------------------------------------------------------------- */

/* As the server counts, from all answers: the text with the most, of equal ones the first. */
static int most_votes(const json_t *choices, int *votes)
{
    int best = 0;

    *votes = 0;
    for (int i = 0; i < (int)json_array_size(choices); i++) {
        int n = 0;
        for (size_t k = 0; k < json_array_size(choices); k++)
            n += !strcasecmp(test_json_text(json_array_get(choices, (size_t)i), "text"),
                             test_json_text(json_array_get(choices, k), "text"));
        best = n > *votes ? i : best;
        *votes = n > *votes ? n : *votes;
    }
    return best;
}

static void the_majority_is_told(void **state)
{
    static const char ask[] = "\"prompt\":\"Once upon a time, there was a little\",\"max_tokens\":1,\"seed\":4";
    test_server t = start(NULL, NULL, false);
    char body[512];
    int votes;

    (void)state;
    snprintf(body, sizeof body, "{%s,\"n\":24}", ask);
    json_t *all = test_web_json(t.port, "/v1/completions", body, 200);
    int best = most_votes(json_object_get(all, "choices"), &votes);
    assert_true(votes > 1);
    snprintf(body, sizeof body, "{%s,\"best_of\":24,\"best_of_by\":\"majority\"}", ask);
    json_t *v = test_web_json(t.port, "/v1/completions", body, 200);
    assert_int_equal(json_array_size(json_object_get(v, "choices")), 1);
    assert_string_equal(test_json_text(v, "choices.0.text"),
                        test_json_text(json_array_get(json_object_get(all, "choices"), (size_t)best), "text"));
    assert_int_equal(number(v, "choices.0.votes"), votes);
    assert_int_equal(number(v, "usage.completion_tokens"), number(all, "usage.completion_tokens"));
    json_decref(v);
    snprintf(body, sizeof body, "{%s,\"n\":3,\"best_of\":24,\"best_of_by\":\"majority\",\"vote_after\":\"\"}", ask);
    v = test_web_json(t.port, "/v1/completions", body, 200);
    for (int i = 0, before = votes; i < 3; i++) {
        const json_t *c = json_array_get(json_object_get(v, "choices"), (size_t)i);
        assert_int_equal(number(c, "index"), i);
        assert_true(number(c, "votes") <= before);
        before = (int)number(c, "votes");
    }
    json_decref(v);
    v = test_web_json(t.port, "/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],"
                      "\"max_tokens\":4,\"best_of\":5,\"best_of_by\":\"majority\",\"vote_after\":\" \"}", 200);
    assert_int_equal(json_array_size(json_object_get(v, "choices")), 1);
    assert_true(number(v, "choices.0.votes") >= 1);
    json_decref(v);
    json_decref(all);
    assert_int_equal(test_web_status(t.port, "/v1/completions", "{\"prompt\":\"x\",\"best_of_by\":\"majority\"}"), 400);
    assert_int_equal(test_web_status(t.port, "/v1/completions", "{\"prompt\":\"x\",\"best_of\":3,\"stream\":true,"
                                     "\"best_of_by\":\"majority\"}"), 400);
    test_server_stop(&t);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_those_of_the_texts),
        cmocka_unit_test(streams_have_the_same_ids),
        cmocka_unit_test(reasoning_keeps_its_budget),
        cmocka_unit_test(predictions_are_counted),
        cmocka_unit_test(weights_are_replaced_if_that_is_allowed),
        cmocka_unit_test(the_majority_is_told),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
