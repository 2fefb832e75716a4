/* test_endpoints.c -- what every endpoint answers, streaming and not: the same tokens, exact usage, one [DONE]. */
#define _GNU_SOURCE 1
#include "server/live.h"

#include "base/json.h"

static test_server t;

static int setup(void **state)
{
    rg_server_options o = test_server_options();

    (void)state;
    test_server_start(&t, &o, 256, 16);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    test_server_stop(&t);
    return 0;
}

static long long int_at(const json_t *v, const char *path)
{
    if (!json_is_integer(test_json_at(v, path)))
        fail_msg("no integer at %s", path);
    return json_integer_value(test_json_at(v, path));
}

/* ---- streams ----------------------------------------------------------------------------------------------------- */

typedef struct stream {
    json_t *events;    /* list of the documents */
    int n_done;
    bool done_is_last;
} stream;

static stream read_stream(const char *path, const char *body)
{
    test_reply r = test_web_ask(t.port, "POST", path, NULL, body);
    stream s = { .events = json_array() };

    if (r.status != 200)
        fail_msg("%s: %d %s", path, r.status, r.body ? r.body : "");
    assert_non_null(strstr(test_reply_header(&r, "Content-Type"), "text/event-stream"));
    for (char *p = r.body, *next; p && *p; p = next) {
        next = strstr(p, "\n\n");
        assert_non_null(next); /* every event is closed */
        *next = 0;
        next += 2;
        char *data = strncmp(p, "event: ", 7) ? p : strchr(p, '\n') + 1;
        assert_memory_equal(data, "data: ", 6);
        s.done_is_last = !strcmp(data + 6, "[DONE]");
        s.n_done += s.done_is_last;
        if (!s.done_is_last)
            json_array_append_new(s.events, json_loads(data + 6, JSON_REJECT_DUPLICATES, NULL));
    }
    test_reply_free(&r);
    return s;
}

/* All texts at path in the events, put together. */
static char *gather(const json_t *events, const char *path)
{
    char *all = calloc(1, 1);

    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *v = test_json_at(json_array_get(events, i), path);
        if (json_is_string(v)) {
            all = realloc(all, strlen(all) + json_string_length(v) + 1);
            strcat(all, json_string_value(v));
        }
    }
    return all;
}

static void assert_gathers(const json_t *events, const char *path, const char *want)
{
    char *all = gather(events, path);

    assert_string_equal(all, want);
    free(all);
}

/* ---- completions ------------------------------------------------------------------------------------------------- */

#define PROMPT "\"prompt\":\"Once upon a time\",\"temperature\":0,\"max_tokens\":12"
#define CHAT "\"messages\":[{\"role\":\"user\",\"content\":\"Tell me a story\"}],\"temperature\":0,\"max_tokens\":16"

static void completions_stream_what_they_answer(void **state)
{
    json_t *v = test_web_json(t.port, "/v1/completions", "{" PROMPT "}", 200);
    stream s = read_stream("/v1/completions", "{" PROMPT ",\"stream\":true,\"stream_options\":{\"include_usage\":true}}");
    size_t n = json_array_size(s.events);
    const json_t *last = json_array_get(s.events, n - 1);

    (void)state;
    assert_string_equal(test_json_text(v, "object"), "text_completion");
    assert_string_equal(test_json_text(v, "choices.0.finish_reason"), "length");
    assert_int_equal(int_at(v, "usage.completion_tokens"), 12);
    assert_int_equal(int_at(v, "usage.total_tokens"), 12 + int_at(v, "usage.prompt_tokens"));
    assert_gathers(s.events, "choices.0.text", test_json_text(v, "choices.0.text"));
    assert_int_equal(s.n_done, 1);
    assert_true(s.done_is_last);
    assert_int_equal(json_array_size(test_json_at(last, "choices")), 0);
    assert_int_equal(int_at(last, "usage.completion_tokens"), 12);
    assert_int_equal(int_at(last, "usage.prompt_tokens"), int_at(v, "usage.prompt_tokens"));
    assert_true(json_is_null(test_json_at(json_array_get(s.events, 0), "usage")));
    json_decref(v);
    json_decref(s.events);
}

/* Text, ids, lists of either, echo, n: the same answers by every way. */
static void prompts_of_all_kinds_agree(void **state)
{
    json_t *ids = test_web_json(t.port, "/tokenize", "{\"prompt\":\"Once upon a time\"}", 200);
    json_t *one = test_web_json(t.port, "/v1/completions", "{" PROMPT "}", 200), *v;
    char *list = rg_json_dump(test_json_at(ids, "tokens"), JSON_COMPACT), body[1000];
    const char *text = test_json_text(one, "choices.0.text");

    (void)state;
    snprintf(body, sizeof body, "{\"prompt\":%s,\"temperature\":0,\"max_tokens\":12}", list);
    v = test_web_json(t.port, "/v1/completions", body, 200);
    assert_string_equal(test_json_text(v, "choices.0.text"), text);
    json_decref(v);
    snprintf(body, sizeof body, "{\"prompt\":[%s,%s],\"temperature\":0,\"max_tokens\":12,\"n\":2}", list, list);
    v = test_web_json(t.port, "/v1/completions", body, 200);
    assert_int_equal(json_array_size(test_json_at(v, "choices")), 4);
    assert_string_equal(test_json_text(v, "choices.3.text"), text);
    assert_int_equal(int_at(v, "choices.3.index"), 3);
    assert_int_equal(int_at(v, "usage.completion_tokens"), 48);
    json_decref(v);
    v = test_web_json(t.port, "/v1/completions",
                      "{\"prompt\":[\"Once upon a time\"],\"temperature\":0,\"max_tokens\":12,\"echo\":true}", 200);
    assert_memory_equal(test_json_text(v, "choices.0.text"), "Once upon a time", 16);
    assert_string_equal(test_json_text(v, "choices.0.text") + 16, text);
    json_decref(v);
    rg_free(list);
    json_decref(ids);
    json_decref(one);
}

/* Choices best first: of a search all differ, and the first is at least as likely as the greedy answer. */
static void answers_are_chosen(void **state)
{
    static const char *const bodies[] = {
        "{\"prompt\":\"Once upon a time\",\"max_tokens\":8,\"n\":2,\"best_of\":5,\"use_beam_search\":true,"
        "\"length_penalty\":0.8,\"early_stopping\":\"never\",\"no_repeat_ngram_size\":3,\"logprobs\":2,\"stop\":\"zebra\"}",
        "{\"prompt\":\"Once upon a time\",\"max_tokens\":8,\"n\":2,\"best_of\":5,\"seed\":3,\"logprobs\":0,"
        "\"ignore_eos\":true}",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"max_tokens\":8,\"n\":2,\"use_beam_search\":true}",
    };

    (void)state;
    for (int i = 0; i < 3; i++) {
        json_t *r = test_web_json(t.port, i < 2 ? "/v1/completions" : "/v1/chat/completions", bodies[i], 200);
        double mean[2] = { 0 };
        const char *what = i < 2 ? "choices.%d.text" : "choices.%d.message.content";
        char path[2][40];

        for (int k = 0; k < 2; k++)
            snprintf(path[k], sizeof path[k], what, k);
        assert_int_equal(json_array_size(test_json_at(r, "choices")), 2);
        assert_string_not_equal(test_json_text(r, path[0]), test_json_text(r, path[1]));
        for (int k = 0; k < 2 && i == 1; k++) {
            snprintf(path[k], sizeof path[k], "choices.%d.logprobs.token_logprobs", k);
            for (size_t j = 0; j < json_array_size(test_json_at(r, path[k])); j++)
                mean[k] += json_number_value(json_array_get(test_json_at(r, path[k]), j)) /
                           (double)json_array_size(test_json_at(r, path[k]));
        }
        assert_true(mean[0] >= mean[1]);
        if (i == 1) /* all five count, whichever are returned */
            assert_int_equal(int_at(r, "usage.completion_tokens"), 5 * 8);
        json_decref(r);
    }
}

static void logprobs_stand_beside_their_tokens(void **state)
{
    json_t *v = test_web_json(t.port, "/v1/completions", "{" PROMPT ",\"logprobs\":3}", 200);
    const json_t *l = test_json_at(v, "choices.0.logprobs");
    char *joined = gather(test_json_at(l, "tokens"), "");

    (void)state;
    assert_int_equal(json_array_size(test_json_at(l, "tokens")), 12);
    assert_int_equal(json_array_size(test_json_at(l, "token_logprobs")), 12);
    assert_int_equal(json_object_size(test_json_at(l, "top_logprobs.0")), 3); /* greedy: the chosen one is among them */
    assert_int_equal(int_at(l, "text_offset.0"), 0);
    assert_string_equal(joined, test_json_text(v, "choices.0.text"));
    free(joined);
    json_decref(v);
    v = test_web_json(t.port, "/v1/chat/completions",
                      "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"max_tokens\":5,\"logprobs\":true,"
                      "\"top_logprobs\":2}", 200);
    assert_int_equal(json_array_size(test_json_at(v, "choices.0.logprobs.content")), 5);
    assert_int_equal(json_array_size(test_json_at(v, "choices.0.logprobs.content.4.top_logprobs")), 2);
    json_decref(v);
}

/* Tokens that are parts of characters: their bytes together are the text's, and offsets count its characters. */
static void parts_of_characters_are_told_as_bytes(void **state)
{
    static const char text[] = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z"; /* five characters, three of several bytes */
    unsigned char bytes[64];
    size_t n = 0;

    (void)state;
    json_t *v = test_web_json(t.port, "/v1/chat/completions",
                              "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"logprobs\":true,\"top_logprobs\":1,"
                              "\"regex\":\"a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z\"}", 200);
    const json_t *content = test_json_at(v, "choices.0.logprobs.content");
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *b = json_object_get(json_array_get(content, i), "bytes");
        for (size_t k = 0; k < json_array_size(b) && n < sizeof bytes; k++)
            bytes[n++] = (unsigned char)json_integer_value(json_array_get(b, k));
    }
    assert_string_equal(test_json_text(v, "choices.0.message.content"), text);
    assert_true(json_array_size(content) > 5); /* or no token is a part */
    assert_true(n >= strlen(text)); /* an end token may follow */
    assert_memory_equal(bytes, text, strlen(text));
    json_decref(v);
    v = test_web_json(t.port, "/v1/completions", "{\"prompt\":\"a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z\","
                      "\"logprobs\":1,\"echo\":true,\"regex\":\"a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z\"}", 200);
    const json_t *tokens = test_json_at(v, "choices.0.logprobs.tokens"), *at = test_json_at(v, "choices.0.logprobs.text_offset");
    json_int_t before = 0;
    int n_z = 0;
    for (size_t i = 0; i < json_array_size(at); i++) {
        json_int_t is = json_integer_value(json_array_get(at, i));
        if (is < before || is > before + 1)
            fail_msg("token %zu begins at %d, the one before at %d", i, (int)is, (int)before);
        before = is;
        if (!strcmp(json_string_value(json_array_get(tokens, i)), "z"))
            assert_int_equal(is, 4 + 5 * n_z++);
    }
    assert_int_equal(n_z, 2);
    json_decref(v);
}

static void extend(json_t *to, const json_t *more)
{
    json_array_extend(to, (json_t *)(uintptr_t)more);
}

/* An answer, sent again as part of the prompt, is as likely as it was, bit for bit; in a stream too. */
static void prompts_are_scored_as_answers_are(void **state)
{
    static const char *const lists[] = { "tokens", "token_logprobs", "top_logprobs", "text_offset" };
    json_t *one = test_web_json(t.port, "/v1/completions", "{" PROMPT ",\"logprobs\":3}", 200);
    const json_t *l = test_json_at(one, "choices.0.logprobs");
    char body[600], path[100];
    size_t n, n_prompt = (size_t)int_at(one, "usage.prompt_tokens");

    (void)state;
    snprintf(body, sizeof body, "{\"prompt\":\"Once upon a time%s\",\"max_tokens\":0,\"echo\":true,\"logprobs\":3}",
             test_json_text(one, "choices.0.text"));
    json_t *v = test_web_json(t.port, "/v1/completions", body, 200);
    n = json_array_size(test_json_at(v, "choices.0.logprobs.tokens"));
    assert_int_equal(n, n_prompt + 12);
    assert_memory_equal(test_json_text(v, "choices.0.text"), "Once upon a time", 16);
    assert_string_equal(test_json_text(v, "choices.0.text") + 16, test_json_text(one, "choices.0.text"));
    assert_string_equal(test_json_text(v, "choices.0.finish_reason"), "length");
    assert_int_equal(int_at(v, "usage.completion_tokens"), 0);
    assert_true(json_is_null(test_json_at(v, "choices.0.logprobs.token_logprobs.0")));
    assert_true(json_is_null(test_json_at(v, "choices.0.logprobs.top_logprobs.0")));
    for (size_t k = 0; k < RG_LEN(lists); k++)
        for (size_t i = 0; i < 12; i++) {
            snprintf(path, sizeof path, "choices.0.logprobs.%s.%zu", lists[k], n_prompt + i);
            const json_t *was = json_array_get(json_object_get(l, lists[k]), i), *is = test_json_at(v, path);
            if (k == 3 ? json_integer_value(is) != json_integer_value(was) + 16 : !json_equal(is, was))
                fail_msg("%s is not what it was", path);
        }
    json_decref(v);
    /* The whole of it at once, and in a stream, whose first event has all of the prompt's. */
    v = test_web_json(t.port, "/v1/completions", "{" PROMPT ",\"logprobs\":3,\"echo\":true}", 200);
    stream s = read_stream("/v1/completions", "{" PROMPT ",\"logprobs\":3,\"echo\":true,\"stream\":true}");
    assert_gathers(s.events, "choices.0.text", test_json_text(v, "choices.0.text"));
    assert_true(json_array_size(test_json_at(s.events, "0.choices.0.logprobs.tokens")) > n_prompt);
    for (size_t k = 0; k < RG_LEN(lists); k++) {
        json_t *all = json_array();
        snprintf(path, sizeof path, "choices.0.logprobs.%s", lists[k]);
        for (size_t i = 0; i < json_array_size(s.events); i++)
            extend(all, test_json_at(json_array_get(s.events, i), path));
        assert_int_equal(json_array_size(all), n_prompt + 12);
        assert_true(json_equal(all, test_json_at(v, path)));
        json_decref(all);
    }
    json_decref(s.events);
    json_decref(v);
    json_decref(one);
}

/* vLLM's list: by id, the prompt's own in each, ranks as the best have them; in both APIs, for lists and ids too. */
static void prompt_logprobs_are_listed(void **state)
{
    json_t *v = test_web_json(t.port, "/v1/completions", "{\"prompt\":[[5,6,7,8],[9]],\"max_tokens\":0,\"n\":2,"
                              "\"logprobs\":1,\"echo\":true,\"prompt_logprobs\":2}", 200);

    (void)state;
    assert_int_equal(json_array_size(test_json_at(v, "choices")), 4);
    assert_true(json_equal(test_json_at(v, "choices.0.prompt_logprobs"), test_json_at(v, "choices.1.prompt_logprobs")));
    assert_int_equal(json_array_size(test_json_at(v, "choices.0.prompt_logprobs")), 4);
    assert_true(json_is_null(test_json_at(v, "choices.0.prompt_logprobs.0")));
    assert_int_equal(json_array_size(test_json_at(v, "choices.3.prompt_logprobs")), 1);
    for (int i = 1; i < 4; i++) {
        char path[80];
        snprintf(path, sizeof path, "choices.0.prompt_logprobs.%d", i);
        const json_t *all = test_json_at(v, path), *own, *l;
        const char *key;
        double best = -1e9, last = 0;
        snprintf(path, sizeof path, "%d", 5 + i);
        own = json_object_get(all, path);
        assert_true(json_is_string(json_object_get(own, "decoded_token")));
        assert_int_equal(json_object_size(all), json_integer_value(json_object_get(own, "rank")) <= 2 ? 2 : 3);
        json_object_foreach((json_t *)(uintptr_t)all, key, l) {
            double p = json_real_value(json_object_get(l, "logprob"));
            long long rank = json_integer_value(json_object_get(l, "rank"));
            best = rank == 1 ? p : best;
            last = p < last ? p : last;
            assert_true(p < 0 && rank >= 1);
        }
        assert_true(best > last);
        snprintf(path, sizeof path, "choices.0.logprobs.token_logprobs.%d", i);
        assert_true(json_equal(test_json_at(v, path), json_object_get(own, "logprob")));
        snprintf(path, sizeof path, "choices.0.logprobs.top_logprobs.%d", i);
        assert_true(json_object_size(test_json_at(v, path)) <= 2); /* one best, and its own */
    }
    json_decref(v);
    v = test_web_json(t.port, "/v1/chat/completions", "{" CHAT ",\"prompt_logprobs\":0}", 200);
    assert_int_equal(json_array_size(test_json_at(v, "prompt_logprobs")), int_at(v, "usage.prompt_tokens"));
    assert_int_equal(json_object_size(test_json_at(v, "prompt_logprobs.3")), 1);
    assert_null(test_json_at(v, "choices.0.prompt_logprobs"));
    json_decref(v);
}

/* Of responses: beside the text where it is asked for, in the events as in the whole. */
static void responses_have_logprobs_too(void **state)
{
    static const char body[] = "{\"input\":\"Tell me a story\",\"temperature\":0,\"max_output_tokens\":6,\"top_logprobs\":2,"
                               "\"include\":[\"message.output_text.logprobs\"],\"stream\":%s}";
    char text[400];

    (void)state;
    snprintf(text, sizeof text, body, "false");
    json_t *v = test_web_json(t.port, "/v1/responses", text, 200), *all = json_array(), *e;
    const json_t *list = test_json_at(v, "output.0.content.0.logprobs");
    char *joined = gather(list, "token");
    size_t i;
    assert_int_equal(json_array_size(list), 6);
    assert_int_equal(json_array_size(test_json_at(list, "5.top_logprobs")), 2);
    assert_string_equal(joined, test_json_text(v, "output.0.content.0.text"));
    snprintf(text, sizeof text, body, "true");
    stream s = read_stream("/v1/responses", text);
    json_array_foreach(s.events, i, e) {
        if (!strcmp(test_json_text(e, "type"), "response.output_text.delta"))
            json_array_extend(all, json_object_get(e, "logprobs"));
        if (!strcmp(test_json_text(e, "type"), "response.output_text.done"))
            assert_true(json_equal(json_object_get(e, "logprobs"), list));
    }
    assert_true(json_equal(all, list));
    free(joined);
    json_decref(all);
    json_decref(s.events);
    json_decref(v);
}

static void seeds_make_answers_again(void **state)
{
    static const char body[] = "{\"prompt\":\"The\",\"max_tokens\":20,\"seed\":42,\"n\":3,\"temperature\":1.5}";
    json_t *a = test_web_json(t.port, "/v1/completions", body, 200), *b = test_web_json(t.port, "/v1/completions", body, 200);

    (void)state;
    assert_true(json_equal(test_json_at(a, "choices"), test_json_at(b, "choices")));
    assert_string_not_equal(test_json_text(a, "choices.0.text"), test_json_text(a, "choices.1.text"));
    json_decref(a);
    json_decref(b);
}

static void stops_and_biases_are_kept(void **state)
{
    json_t *v = test_web_json(t.port, "/v1/completions", "{" PROMPT ",\"stop\":[\"boy\",\"little\"]}", 200);
    json_t *w = test_web_json(t.port, "/tokenize", "{\"prompt\":\" there\",\"add_special_tokens\":false}", 200);
    char body[400];

    (void)state;
    assert_string_equal(test_json_text(v, "choices.0.finish_reason"), "stop");
    assert_null(strstr(test_json_text(v, "choices.0.text"), "little"));
    json_decref(v);
    snprintf(body, sizeof body, "{" PROMPT ",\"logit_bias\":{\"%lld\":-100}}", int_at(w, "tokens.0"));
    v = test_web_json(t.port, "/v1/completions", body, 200);
    assert_null(strstr(test_json_text(v, "choices.0.text"), " there"));
    json_decref(v);
    json_decref(w);
}

/* What ended an answer is said in each API's way: the stop text, the stop id, or nothing where the model itself ended. */
static void what_stopped_is_told(void **state)
{
    json_t *one = test_web_json(t.port, "/v1/completions", "{" PROMPT ",\"logprobs\":0}", 200), *v;
    const char *word = test_json_text(one, "choices.0.logprobs.tokens.3");
    char body[600], quoted[100];
    long long id;

    (void)state;
    word += *word == ' ';
    snprintf(quoted, sizeof quoted, "[\"no such\",\"%s\"]", word);
    snprintf(body, sizeof body, "{" PROMPT ",\"stop\":%s}", quoted);
    v = test_web_json(t.port, "/v1/completions", body, 200);
    assert_string_equal(test_json_text(v, "choices.0.finish_reason"), "stop");
    assert_string_equal(test_json_text(v, "choices.0.stop_reason"), word);
    json_decref(v);
    v = test_web_json(t.port, "/v1/chat/completions", "{" CHAT ",\"logprobs\":true}", 200);
    word = test_json_text(v, "choices.0.logprobs.content.5.token");
    snprintf(body, sizeof body, "{\"prompt\":\"%s\",\"add_special_tokens\":false}", word);
    json_t *ids = test_web_json(t.port, "/tokenize", body, 200);
    id = int_at(ids, "tokens.0");
    snprintf(body, sizeof body, "{" CHAT ",\"stop_token_ids\":[%lld]}", id);
    json_t *by_id = test_web_json(t.port, "/v1/chat/completions", body, 200);
    if (json_array_size(test_json_at(ids, "tokens")) == 1)
        assert_int_equal(int_at(by_id, "choices.0.stop_reason"), id);
    word += *word == ' ';
    snprintf(body, sizeof body, "{" CHAT ",\"stop_sequences\":[\"no such\",\"%s\"]}", word);
    json_t *message = test_web_json(t.port, "/v1/messages", body, 200);
    assert_string_equal(test_json_text(message, "stop_reason"), "stop_sequence");
    assert_string_equal(test_json_text(message, "stop_sequence"), word);
    snprintf(body, sizeof body, "{" CHAT ",\"stop_sequences\":[\"no such\",\"%s\"],\"stream\":true}", word);
    stream s = read_stream("/v1/messages", body);
    const json_t *end = json_array_get(s.events, json_array_size(s.events) - 2);
    assert_string_equal(test_json_text(end, "delta.stop_reason"), "stop_sequence");
    assert_string_equal(test_json_text(end, "delta.stop_sequence"), word);
    json_decref(s.events);
    json_decref(message);
    json_decref(by_id);
    json_decref(ids);
    json_decref(v);
    json_decref(one);
}

/* ---- chats ------------------------------------------------------------------------------------------------------- */


static void chats_of_three_apis_agree(void **state)
{
    json_t *chat = test_web_json(t.port, "/v1/chat/completions", "{" CHAT "}", 200);
    json_t *response = test_web_json(t.port, "/v1/responses",
                                     "{\"input\":\"Tell me a story\",\"temperature\":0,\"max_output_tokens\":16}", 200);
    json_t *message = test_web_json(t.port, "/v1/messages", "{" CHAT "}", 200);
    json_t *count = test_web_json(t.port, "/v1/messages/count_tokens", "{" CHAT "}", 200);
    const char *text = test_json_text(chat, "choices.0.message.content");

    (void)state;
    assert_string_equal(test_json_text(response, "output.0.content.0.text"), text);
    assert_string_equal(test_json_text(response, "status"), "incomplete");
    assert_string_equal(test_json_text(message, "content.0.text"), text);
    assert_string_equal(test_json_text(message, "stop_reason"), "max_tokens");
    assert_int_equal(int_at(count, "input_tokens"), int_at(chat, "usage.prompt_tokens"));
    assert_int_equal(int_at(response, "usage.input_tokens"), int_at(chat, "usage.prompt_tokens"));
    stream s = read_stream("/v1/chat/completions", "{" CHAT ",\"stream\":true,\"stream_options\":{\"include_usage\":true}}");
    assert_gathers(s.events, "choices.0.delta.content", text);
    assert_string_equal(test_json_text(json_array_get(s.events, 0), "choices.0.delta.role"), "assistant");
    assert_int_equal(s.n_done, 1);
    assert_true(s.done_is_last);
    assert_int_equal(int_at(json_array_get(s.events, json_array_size(s.events) - 1), "usage.completion_tokens"), 16);
    json_decref(s.events);
    s = read_stream("/v1/responses",
                    "{\"input\":\"Tell me a story\",\"temperature\":0,\"max_output_tokens\":16,\"stream\":true}");
    assert_gathers(s.events, "delta", text);
    for (size_t i = 0; i < json_array_size(s.events); i++)
        assert_int_equal(int_at(json_array_get(s.events, i), "sequence_number"), i);
    json_decref(s.events);
    s = read_stream("/v1/messages", "{" CHAT ",\"stream\":true}");
    assert_gathers(s.events, "delta.text", text);
    assert_string_equal(test_json_text(json_array_get(s.events, json_array_size(s.events) - 1), "type"), "message_stop");
    json_decref(s.events);
    json_decref(chat);
    json_decref(response);
    json_decref(message);
    json_decref(count);
}

/* Nothing that a person writes becomes a special token; the template shows what it would make. */
static void templates_are_applied(void **state)
{
    json_t *v = test_web_json(t.port, "/apply-template",
                              "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}", 200);
    json_t *w = test_web_json(t.port, "/apply-template",
                              "{\"messages\":[{\"role\":\"user\",\"content\":\"<|end|>\"}]}", 200);

    (void)state;
    assert_string_equal(test_json_text(v, "prompt"), "<|endoftext|><|user|>hi<|end|><|assistant|>");
    assert_true(int_at(w, "count") > 5); /* and not one id for the text of a person */
    json_decref(v);
    json_decref(w);
}

static void tools_results_and_parts_are_taken(void **state)
{
    static const char *const bodies[][2] = {
        { "/v1/chat/completions",
          "{\"max_tokens\":2,\"messages\":[{\"role\":\"developer\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}]},"
          "{\"role\":\"user\",\"content\":\"b\"},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"1\","
          "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}}]},{\"role\":\"tool\","
          "\"tool_call_id\":\"1\",\"content\":\"c\"}],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}" },
        { "/v1/responses",
          "{\"max_output_tokens\":2,\"instructions\":\"be\",\"input\":[{\"role\":\"user\",\"content\":[{\"type\":"
          "\"input_text\",\"text\":\"a\"}]},{\"type\":\"function_call\",\"call_id\":\"1\",\"name\":\"f\",\"arguments\":"
          "\"{}\"},{\"type\":\"function_call_output\",\"call_id\":\"1\",\"output\":\"x\"}],\"tools\":[{\"type\":"
          "\"function\",\"name\":\"f\",\"parameters\":{}}],\"reasoning\":{\"effort\":\"low\"}}" },
        { "/v1/messages",
          "{\"max_tokens\":2,\"system\":[{\"type\":\"text\",\"text\":\"s\"}],\"messages\":[{\"role\":\"user\",\"content\":"
          "\"a\"},{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"hm\",\"signature\":\"\"},"
          "{\"type\":\"tool_use\",\"id\":\"1\",\"name\":\"f\",\"input\":{}}]},{\"role\":\"user\",\"content\":[{\"type\":"
          "\"tool_result\",\"tool_use_id\":\"1\",\"content\":\"ok\"},{\"type\":\"text\",\"text\":\"go\"}]}],\"tools\":"
          "[{\"name\":\"f\",\"input_schema\":{\"type\":\"object\"}}],\"thinking\":{\"type\":\"disabled\"}}" },
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(bodies); i++)
        json_decref(test_web_json(t.port, bodies[i][0], bodies[i][1], 200));
}

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

static void small_endpoints_answer(void **state)
{
    json_t *v = test_web_json(t.port, "/v1/models", NULL, 200);

    (void)state;
    assert_string_equal(test_json_text(v, "data.0.id"), "tales");
    json_decref(v);
    json_decref(test_web_json(t.port, "/v1/models/tales", NULL, 200));
    json_decref(test_web_json(t.port, "/v1/models/other", NULL, 404));
    json_decref(test_web_json(t.port, "/health", NULL, 200));
    json_decref(test_web_json(t.port, "/livez", NULL, 200));
    json_decref(test_web_json(t.port, "/readyz", NULL, 200));
    json_decref(test_web_json(t.port, "/version", NULL, 200));
    json_t *status = test_web_json(t.port, "/status", NULL, 200);
    /* 2 layers, K and V, 2 heads of 32 columns, 2 bytes. */
    assert_int_equal(json_integer_value(json_object_get(json_object_get(status, "plan"), "position_bytes")), 2 * 2 * 2 * 32 * 2);
    json_decref(status);
    v = test_web_json(t.port, "/tokenize", "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}", 200);
    json_t *w = test_web_json(t.port, "/apply-template", "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}", 200);
    assert_int_equal(int_at(v, "count"), int_at(w, "count"));
    json_decref(w);
    json_decref(v);
    v = test_web_json(t.port, "/detokenize", "{\"tokens\":[1,2,3]}", 200);
    assert_string_equal(test_json_text(v, "prompt"), "<|user|><|assistant|><|end|>");
    json_decref(v);
    assert_int_equal(test_web_status(t.port, "/", NULL), 200);
    assert_int_equal(test_web_status(t.port, "/app.js", NULL), 200);
    assert_int_equal(test_web_status(t.port, "/app.css", NULL), 200);
    assert_int_equal(test_web_status(t.port, "/page/chat.js", NULL), 200);
    assert_int_equal(test_web_status(t.port, "/vendor/marked.LICENSE", NULL), 200);
    assert_int_equal(test_web_status(t.port, "/page/", NULL), 404);
    assert_int_equal(test_web_status(t.port, "/page/../app.js", NULL), 404);
    assert_int_equal(test_web_status(t.port, "/vendor/README.md", NULL), 404);
}

static void metrics_count(void **state)
{
    test_reply r = test_web_ask(t.port, "GET", "/metrics", NULL, NULL);
    static const char *const names[] = { "vllm:num_requests_running{", "vllm:time_to_first_token_seconds_bucket{le=\"0.001\",",
                                         "vllm:inter_token_latency_seconds_count{", "vllm:request_queue_time_seconds_sum{",
                                         "vllm:e2e_request_latency_seconds_count{", "vllm:generation_tokens_total{",
                                         "vllm:request_success_total{finished_reason=\"length\",", "ridge_roofline_ratio{",
                                         "ridge_step_seconds_count{", "ridge_bytes_total{", "ridge_ops_total{",
                                         "vllm:cache_config_info{block_size=\"64\",num_gpu_blocks=\"",
                                         "vllm:lora_requests_info{max_lora=\"0\",running_lora_adapters=\"\",",
                                         "http_requests_total{handler=\"/v1/completions\",method=\"POST\",status=\"2xx\"}" };

    (void)state;
    for (size_t i = 0; i < RG_LEN(names); i++)
        if (!strstr(r.body, names[i]))
            fail_msg("no %s", names[i]);
    const char *n = strstr(r.body, "\nvllm:generation_tokens_total{");
    assert_true(atof(strstr(n, "} ") + 2) > 100);
    test_reply_free(&r);
}

static void name_of(const char *headers, const char *prompt, char to[70])
{
    char body[2300];

    snprintf(body, sizeof body, "{\"prompt\":\"%s\",\"max_tokens\":1}", prompt);
    test_reply r = test_web_ask(t.port, "POST", "/v1/completions", headers, body);
    if (r.status != 200)
        fail_msg("%s", r.body);
    const char *name = test_reply_header(&r, "X-Ridge-Prefix");
    assert_non_null(name);
    snprintf(to, 70, "%.*s", (int)strcspn(name, "\r\n"), name);
    test_reply_free(&r);
}

/* The name of a prompt for balancers: of its first ids, or what the client sends. */
static void prompts_are_named(void **state)
{
    char text[2000] = "", longer[2100], one[70], other[70];
    static const struct {
        const char *headers, *name;
    } sent[] = { { "X-Ridge-Prefix: my-talk.7\r\n", "my-talk.7" }, { "X-Ridge-Prefix: two words\r\n", NULL },
                 { "X-Ridge-Prefix: 012345678901234567890123456789012345678901234567890123456789012345\r\n", NULL } };

    (void)state;
    for (int i = 0; i < 25; i++)
        sprintf(text + strlen(text), "The dog saw cat number %d. ", i);
    snprintf(longer, sizeof longer, "%sAnd then it slept.", text);
    name_of(NULL, text, one);
    assert_int_equal(strlen(one), 16);
    name_of(NULL, longer, other); /* the same 128 ids first */
    assert_string_equal(one, other);
    name_of(NULL, text + 4, other);
    assert_string_not_equal(one, other);
    for (size_t i = 0; i < RG_LEN(sent); i++) {
        name_of(sent[i].headers, text, other);
        assert_string_equal(other, sent[i].name ? sent[i].name : one);
    }
}

/* Two methods of one path are two series. */
static void no_series_stands_twice(void **state)
{
    char *seen[4000], *line, *end;
    size_t n = 0;

    (void)state;
    test_web_status(t.port, "/v1/files", NULL);
    test_web_status(t.port, "/v1/files", "{}");
    test_reply r = test_web_ask(t.port, "GET", "/metrics", NULL, NULL);
    for (line = strtok_r(r.body, "\n", &end); line && n < RG_LEN(seen); line = strtok_r(NULL, "\n", &end)) {
        if (*line == '#')
            continue;
        *strrchr(line, ' ') = 0;
        for (size_t i = 0; i < n; i++)
            if (!strcmp(seen[i], line))
                fail_msg("twice: %s", line);
        seen[n++] = line;
    }
    assert_in_range(n, 200, RG_LEN(seen) - 1);
    test_reply_free(&r);
}

static void errors_have_their_apis_shapes(void **state)
{
    json_t *v = test_web_json(t.port, "/v1/completions", "{\"prompt\":\"x\",\"temperature\":-1}", 400);

    (void)state;
    assert_string_equal(test_json_text(v, "error.type"), "invalid_request_error");
    assert_string_equal(test_json_text(v, "error.param"), "temperature");
    assert_non_null(strstr(test_json_text(v, "error.message"), "temperature"));
    json_decref(v);
    v = test_web_json(t.port, "/v1/messages", "{\"messages\":[]}", 400);
    assert_string_equal(test_json_text(v, "type"), "error");
    assert_string_equal(test_json_text(v, "error.type"), "invalid_request_error");
    json_decref(v);
    v = test_web_json(t.port, "/v1/chat/completions", "{\"model\":\"gpt\",\"messages\":[]}", 404);
    assert_string_equal(test_json_text(v, "error.code"), "model_not_found");
    json_decref(v);
}

/* How many lengths the events of a stream that say this have. */
static int count_lengths(const char *body, const char *what)
{
    size_t seen[64];
    int n = 0, k;

    for (const char *p = strstr(body, "data: {"), *end; p; p = strstr(end, "data: {")) {
        end = strstr(p, "\n\n");
        assert_non_null(end);
        if (!memmem(p, (size_t)(end - p), what, strlen(what)))
            continue;
        for (k = 0; k < n && seen[k] != (size_t)(end - p); k++)
            ;
        if (k == n && n < 64)
            seen[n++] = (size_t)(end - p);
    }
    return n;
}

/* Whoever sees the packets sees next to nothing of the words in them. */
static void lengths_of_events_can_be_hidden(void **state)
{
    static const struct {
        const char *path, *rest, *what;
    } cases[] = {
        { "/v1/completions", "\"prompt\":\"Once\",\"max_tokens\":60", "\"choices\"" },
        { "/v1/chat/completions", "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_tokens\":60", "\"choices\"" },
        { "/v1/responses", "\"input\":\"a\",\"max_output_tokens\":60", "output_text.delta" },
    };
    char body[300];

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++)
        for (int hidden = 0; hidden < 2; hidden++) {
            snprintf(body, sizeof body, "{%s,\"temperature\":0,\"stream\":true%s}", cases[i].rest,
                     hidden ? ",\"stream_options\":{\"include_obfuscation\":true}" : "");
            test_reply r = test_web_ask(t.port, "POST", cases[i].path, NULL, body);
            assert_int_equal(r.status, 200);
            int n = count_lengths(r.body, cases[i].what);
            assert_true(hidden ? n >= 1 : !strstr(r.body, "obfuscation"));
            assert_int_equal(hidden, strstr(r.body, "\"obfuscation\":\"") != NULL);
            if (hidden && n > 3) /* those of the role, of words, and of the end with its timings */
                fail_msg("%s: %d lengths", cases[i].path, n);
            test_reply_free(&r);
        }
}

/* What was found of the prompt of a request with a key, and why not more. */
static int ask_cached(int port, const char *key, const char *path, const char *body, const char *details, char why[16])
{
    char headers[64], at_path[80];

    snprintf(headers, sizeof headers, "x-api-key: %s\r\n", key);
    test_reply r = test_web_ask(port, "POST", path, headers, body);
    json_t *v = test_reply_json(&r);
    assert_int_equal(r.status, 200);
    snprintf(at_path, sizeof at_path, "%s.uncached_reason", details);
    snprintf(why, 16, "%s", test_json_text(v, at_path));
    snprintf(at_path, sizeof at_path, "%s.cached_tokens", details);
    int n = (int)int_at(v, at_path);
    json_decref(v);
    test_reply_free(&r);
    return n;
}

static void check_cached(int port, const char *key, const char *prompt, const char *salt, int want, const char *why)
{
    char body[2000], is[16];

    snprintf(body, sizeof body, "{\"prompt\":\"%s\",\"max_tokens\":2%s%s%s}", prompt, salt ? ",\"cache_salt\":\"" : "",
             salt ? salt : "", salt ? "\"" : "");
    int n = ask_cached(port, key, "/v1/completions", body, "usage.prompt_tokens_details", is);
    if (n != want || strcmp(is, why) != 0)
        fail_msg("%s, salt %s: %d cached, %s; not %d, %s", key, salt ? salt : "none", n, is, want, why);
}

/* A prefix is found again by the key that made it and with the same salt; by others only if the engine is told so.  Each
 * API says how much of it in its own way. */
static void what_was_cached_is_told(void **state)
{
    static const char *const keys[] = { "one", "two" };
    char text[800] = "", body[1200], why[16];
    rg_server_options o = test_server_options();
    rg_options e = rg_options_default();
    rg_error err = { 0 };

    (void)state;
    o.keys = keys;
    o.n_keys = 2;
    e.n_threads = 1;
    for (int i = 0; i < 26; i++)
        sprintf(text + strlen(text), "The dog saw cat number %d. ", i);
    for (int share = 0; share < 2; share++) {
        e.share_prefixes = share;
        test_server c = { .engine = rg_open(RG_SOURCE_DIR "/models/tales-1m", &e, &err) };
        assert_ok(c.engine, err);
        c.s = rg_server_open(&o, &err);
        assert_ok(c.s, err);
        c.port = test_port(c.s);
        rg_server_ready(c.s, c.engine);
        check_cached(c.port, "one", text, NULL, 0, "new");
        check_cached(c.port, "one", text, NULL, 225, "complete");
        check_cached(c.port, "two", text, NULL, share ? 225 : 0, share ? "complete" : "new");
        check_cached(c.port, "one", text, "pepper", 0, "new");
        check_cached(c.port, "one", text, "pepper", 225, "complete");
        check_cached(c.port, "two", text, "pepper", share ? 225 : 0, share ? "complete" : "new");
        text[400] ^= 1; /* all from there on is another prompt */
        check_cached(c.port, "one", text, NULL, 127, "new");
        text[400] ^= 1;
        snprintf(body, sizeof body, "{\"prompt\":\"%s\",\"max_tokens\":2,\"cache_prompt\":false}", text);
        assert_int_equal(ask_cached(c.port, "one", "/v1/completions", body, "usage.prompt_tokens_details", why), 0);
        assert_string_equal(why, "off");
        snprintf(body, sizeof body, "{\"prompt\":\"%s\",\"max_tokens\":2,\"skip_reading_prefix_cache\":true}", text);
        assert_int_equal(ask_cached(c.port, "one", "/v1/completions", body, "usage.prompt_tokens_details", why), 0);
        snprintf(body, sizeof body, "{\"input\":\"%s\",\"max_output_tokens\":2}", text);
        assert_int_equal(ask_cached(c.port, "one", "/v1/responses", body, "usage.input_tokens_details", why), 0);
        assert_int_equal(ask_cached(c.port, "one", "/v1/responses", body, "usage.input_tokens_details", why), 227);
        snprintf(body, sizeof body, "{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}],\"max_tokens\":2}", text);
        assert_int_equal(ask_cached(c.port, "one", "/v1/chat/completions", body, "usage.prompt_tokens_details", why), 227);
        test_reply r = test_web_ask(c.port, "POST", "/v1/messages", "x-api-key: one\r\n", body);
        json_t *v = test_reply_json(&r);
        assert_int_equal(int_at(v, "usage.cache_read_input_tokens"), 227);
        json_decref(v);
        test_reply_free(&r);
        test_server_stop(&c);
    }
}

static void headers_come_back(void **state)
{
    test_reply r = test_web_ask(t.port, "GET", "/health", "X-Request-Id: abc-123\r\n", NULL);

    (void)state;
    assert_string_equal(test_reply_header(&r, "X-Request-Id"), "abc-123");
    assert_string_equal(test_reply_header(&r, "X-Content-Type-Options"), "nosniff");
    test_reply_free(&r);
    r = test_web_ask(t.port, "GET", "/health", "X-Request-Id: <script>\r\n", NULL);
    assert_memory_equal(test_reply_header(&r, "X-Request-Id"), "req-", 4);
    test_reply_free(&r);
    r = test_web_ask(t.port, "GET", "/", NULL, NULL);
    assert_non_null(strstr(test_reply_header(&r, "Content-Security-Policy"), "default-src 'none'"));
    test_reply_free(&r);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(completions_stream_what_they_answer), cmocka_unit_test(prompts_of_all_kinds_agree),
        cmocka_unit_test(answers_are_chosen),
        cmocka_unit_test(logprobs_stand_beside_their_tokens),  cmocka_unit_test(responses_have_logprobs_too),
        cmocka_unit_test(parts_of_characters_are_told_as_bytes),
        cmocka_unit_test(prompts_are_scored_as_answers_are), cmocka_unit_test(prompt_logprobs_are_listed),
        cmocka_unit_test(seeds_make_answers_again),
        cmocka_unit_test(stops_and_biases_are_kept),
        cmocka_unit_test(what_stopped_is_told),           cmocka_unit_test(chats_of_three_apis_agree),
        cmocka_unit_test(templates_are_applied),               cmocka_unit_test(tools_results_and_parts_are_taken),
        cmocka_unit_test(small_endpoints_answer),              cmocka_unit_test(metrics_count),
        cmocka_unit_test(prompts_are_named),
        cmocka_unit_test(no_series_stands_twice),
        cmocka_unit_test(errors_have_their_apis_shapes),       cmocka_unit_test(headers_come_back),
        cmocka_unit_test(lengths_of_events_can_be_hidden),     cmocka_unit_test(what_was_cached_is_told),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, setup, teardown);
}
