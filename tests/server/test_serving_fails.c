/* test_serving_fails.c -- requests to a running server, and its end, with each allocation and each system call failing once
 * in turn: a request gets its whole answer or an error, nothing is leaked, and the next request is answered as ever. */
#include "server/live.h"

#include "base/log.h"
#include "support/failing.h"

typedef struct kind {
    const char *name, *method, *path, *body;
    int most; /* of the failures that are tried, spread over all */
} kind;

static const kind kinds[] = {
    { "completion", "POST", "/v1/completions",
      "{\"prompt\":\"Once upon\",\"max_tokens\":6,\"temperature\":0,\"logprobs\":2}", 60 },
    { "answers", "POST", "/v1/completions", "{\"prompt\":[\"One\",\"Two\"],\"n\":2,\"max_tokens\":4,\"seed\":3}", 60 },
    { "stream", "POST", "/v1/chat/completions",
      "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"max_tokens\":6,\"seed\":5,\"stream\":true}", 60 },
    { "schema", "POST", "/v1/chat/completions",
      "{\"messages\":[{\"role\":\"user\",\"content\":\"Where?\"}],\"max_tokens\":30,\"temperature\":0,\"response_"
      "format\":{\"type\":"
      "\"json_schema\",\"json_schema\":{\"name\":\"a\",\"schema\":{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":"
      "[\"x\",\"y\"]}},"
      "\"required\":[\"a\"],\"additionalProperties\":false}}}}",
      60 },
    { "tool", "POST", "/v1/chat/completions",
      "{\"messages\":[{\"role\":\"user\",\"content\":\"Go\"}],\"max_tokens\":40,\"temperature\":0,\"tool_choice\":"
      "\"required\",\"tools\":["
      "{\"type\":\"function\",\"function\":{\"name\":\"go\",\"parameters\":{\"type\":\"object\",\"properties\":{\"to\":"
      "{\"enum\":[\"Oslo\"]}},"
      "\"required\":[\"to\"],\"additionalProperties\":false}}}]}",
      60 },
    { "beams", "POST", "/v1/completions",
      "{\"prompt\":\"A\",\"use_beam_search\":true,\"n\":2,\"max_tokens\":4,\"temperature\":0}", 40 },
    { "response", "POST", "/v1/responses", "{\"input\":\"Hi\",\"max_output_tokens\":4,\"temperature\":0}", 60 },
    { "message", "POST", "/v1/messages",
      "{\"model\":\"tales\",\"max_tokens\":4,\"temperature\":0,\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}",
      40 },
    { "embedding", "POST", "/v1/embeddings", "{\"input\":\"A dog\"}", 40 },
    { "tokens", "POST", "/tokenize", "{\"prompt\":\"A dog\"}", 40 },
    { "models", "GET", "/v1/models", NULL, 20 },
    { "metrics", "GET", "/metrics", NULL, 20 },
};

/* A copy of a body without what is not the same each time: ids and times. */
static char *without_ids(const char *body)
{
    static const char *const keys[] = { "\"id\":\"", "_id\":\"", "\"created\":", "_at\":", "\"timings\":{" };
    char *out = strdup(body);

    assert_non_null(out);
    for (size_t k = 0; k < RG_LEN(keys); k++)
        for (char *p = out; (p = strstr(p, keys[k]));) {
            char *from = p + strlen(keys[k]), *to = from + strcspn(from, from[-1] == '{' ? "}" : "\",}");
            memmove(from, to, strlen(to) + 1);
            p = from;
        }
    return out;
}

/* The text of a stream, however it is cut; NULL: the stream did not end as it should. */
static char *text_of_stream(const char *body)
{
    static const char key[] = "\"content\":\"";
    char *out = strstr(body, "data: [DONE]") ? calloc(strlen(body) + 1, 1) : NULL;

    if (!out)
        return NULL;

    for (const char *p = body; (p = strstr(p, key));) {
        p += strlen(key);
        strncat(out, p, strcspn(p, "\""));
    }
    return out;
}

/* The body without what differs, if it is the whole answer; NULL: it is not. */
static char *answer_of(const kind *k, test_reply *r)
{
    const bool whole = r->status == 200 && !strstr(r->body, "\"error\":{");

    return !whole                        ? NULL
           : !strcmp(k->name, "metrics") ? strdup("")
           : !strcmp(k->name, "stream")  ? text_of_stream(r->body)
                                         : without_ids(r->body);
}

/* True if it says that the machine failed, or the connection was closed before the answer's end. */
static bool is_told(const kind *k, const test_reply *r)
{
    return r->status == 0 || r->status == 500 || r->status == 503 ||
           (r->status == 200 && (strstr(r->body, "\"error\":{") || !strcmp(k->name, "stream")));
}

static void each_fails(const test_server *t, const kind *k, test_operations what)
{
    long n_all = 0, n_tried = 0, n_told = 0, stride = 1;
    char *want = NULL;

    for (int i = 0; i < 3; i++) { /* what is kept for the next is made by the first */
        test_arm(what, -1);
        test_reply r = test_web_ask(t->port, k->method, k->path, NULL, k->body);
        n_all = test_disarm(NULL);
        if (r.status != 200)
            fail_msg("%s: %d, %s", k->name, r.status, r.body);
        free(want);
        want = answer_of(k, &r);
        test_reply_free(&r);
        test_server_quiet(t);
    }
    stride = test_all() || n_all <= test_scale(k->most) ? 1 : (n_all + test_scale(k->most) - 1) / test_scale(k->most);
    for (long n = stride > 1 ? (long)(test_seed % (uint64_t)stride) : 0; n < n_all; n += stride) {
        bool failed;
        test_arm(what, n);
        test_reply r = test_web_ask(t->port, k->method, k->path, NULL, k->body);
        test_disarm(&failed);
        char *got = answer_of(k, &r);
        if (!got && !is_told(k, &r))
            fail_msg("%s: operation %ld failed: %d, %s", k->name, n, r.status, r.body);
        if (got && r.n_body && strcmp(got, want))
            fail_msg("%s: operation %ld failed, and the answer is another one: %s, not %s", k->name, n, got, want);
        n_tried += failed;
        n_told += failed && !got;
        free(got);
        test_reply_free(&r);
        test_server_quiet(t);
        r = test_web_ask(t->port, k->method, k->path, NULL, k->body);
        got = answer_of(k, &r);
        if (!got || strcmp(got, want))
            fail_msg("%s: after operation %ld had failed: %d, %s, not %s", k->name, n, r.status, r.body, want);
        free(got);
        test_reply_free(&r);
        test_server_quiet(t);
    }
    print_message("%s: %ld of %ld %s failed, %ld were told\n", k->name, n_tried, n_all,
                  what == TEST_ALLOCATIONS ? "allocations" : "system calls", n_told);
    free(want);
}

static void serve_and_fail(test_operations what)
{
    rg_server_options o = test_server_options();
    const rg_mem_stats before = rg_mem_count();
    test_server t;

    test_server_start(&t, &o, 320, 8);
    for (size_t i = 0; i < RG_LEN(kinds); i++)
        each_fails(&t, &kinds[i], what);
    test_arm(what, (long)(test_seed % 7)); /* the end, too */
    test_server_stop(&t);
    test_disarm(NULL);
    const rg_mem_stats after = rg_mem_count();
    assert_true(after.n_live <= before.n_live + 8); /* what is made once for the process */
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    serve_and_fail(TEST_ALLOCATIONS);
}

static void every_system_call_may_fail(void **state)
{
    (void)state;
    serve_and_fail(TEST_SYSTEM_CALLS);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(every_system_call_may_fail),
    };

    test_init(argc, argv);
    rg_log_set_level(RG_LOG_ERROR - 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
