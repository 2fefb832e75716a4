/* test_serving_fails.c -- requests to a running server, and its end, with each allocation and each system call failing once
 * in turn: a request gets its whole answer or an error, nothing is leaked, and the next request is answered as ever. */
#include "server/live.h"

#include "base/log.h"
#include "support/batch.h"
#include "support/failing.h"

typedef struct kind {
    const char *name, *method, *path, *body;
    int most; /* of the failures that are tried, spread over all */
    /* What is posted before, if anything, whose answer's id takes the place of %s in path and body; each: before every try,
     * as the request ends what it names. */
    const char *before, *before_body;
    bool each;
    bool stays; /* work goes on after the answer, and may fail too */
} kind;

#define CONVERSATION "/v1/conversations"
#define NEW_CONVERSATION                                                                                               \
    "{\"items\":[{\"type\":\"message\",\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"assistant\",\"content\":"              \
    "[{\"type\":\"output_text\",\"text\":\"Ho\"}]}],\"metadata\":{\"a\":\"b\"}}"
#define RESPONSE "{\"input\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"max_output_tokens\":4,\"temperature\":0}"
#define LINE "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"A\",\"max_tokens\":2}}\n"
#define FORM(text)                                                                                                     \
    "--" TEST_BOUNDARY "\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--" TEST_BOUNDARY             \
    "\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.jsonl\"\r\n\r\n" text "\r\n--" TEST_BOUNDARY "--\r\n"

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
    { "conversation, made", "POST", CONVERSATION, NEW_CONVERSATION, 60 },
    { "conversation", "GET", CONVERSATION "/%s", NULL, 40, CONVERSATION, NEW_CONVERSATION },
    { "conversation, changed", "POST", CONVERSATION "/%s", "{\"metadata\":{\"c\":\"d\",\"e\":\"f\"}}", 60, CONVERSATION,
      NEW_CONVERSATION },
    { "conversation, ended", "DELETE", CONVERSATION "/%s", NULL, 40, CONVERSATION, NEW_CONVERSATION, true },
    { "items", "GET", CONVERSATION "/%s/items", NULL, 60, CONVERSATION, NEW_CONVERSATION },
    { "items, added", "POST", CONVERSATION "/%s/items", "{\"items\":[{\"role\":\"user\",\"content\":\"more\"}]}", 60,
      CONVERSATION, NEW_CONVERSATION },
    { "response in a conversation", "POST", "/v1/responses",
      "{\"input\":\"Hi\",\"max_output_tokens\":2,\"temperature\":0,\"conversation\":\"%s\"}", 60, CONVERSATION,
      NEW_CONVERSATION, true },
    { "kept response", "GET", "/v1/responses/%s", NULL, 60, "/v1/responses", RESPONSE },
    { "kept response's items", "GET", "/v1/responses/%s/input_items", NULL, 60, "/v1/responses", RESPONSE },
    { "kept response, gone", "DELETE", "/v1/responses/%s", NULL, 40, "/v1/responses", RESPONSE, true },
    { "response that goes on", "POST", "/v1/responses",
      "{\"input\":\"and\",\"max_output_tokens\":4,\"temperature\":0,\"previous_response_id\":\"%s\"}", 60, "/v1/responses",
      RESPONSE },
    { "background", "POST", "/v1/responses",
      "{\"input\":\"Hi\",\"max_output_tokens\":4,\"temperature\":0,\"background\":true}", 60, .stays = true },
    { "file", "POST", "/v1/files", FORM(LINE), 40 },
    { "file, told", "GET", "/v1/files/%s", NULL, 20, "/v1/files", FORM(LINE) },
    { "file, read", "GET", "/v1/files/%s/content", NULL, 20, "/v1/files", FORM(LINE) },
    { "batch", "POST", "/v1/batches",
      "{\"input_file_id\":\"%s\",\"endpoint\":\"/v1/completions\",\"completion_window\":\"24h\",\"metadata\":{\"a\":\"b\"}}", 40,
      "/v1/files", FORM(LINE) },
    { "batch of messages", "POST", "/v1/messages/batches",
      "{\"requests\":[{\"custom_id\":\"a\",\"params\":{\"max_tokens\":2,\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}}]}",
      40 },
    { "models", "GET", "/v1/models", NULL, 20 },
    { "metrics", "GET", "/metrics", NULL, 20 },
};

/* A copy of a body without what is not the same each time: ids and times. */
static char *without_ids(const char *body)
{
    static const char *const keys[] = { "\"id\":\"", "_id\":\"", "\"created\":", "_at\":\"", "_at\":", "\"timings\":{" };
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

static test_reply send(const test_server *t, const char *method, const char *path, const char *body)
{
    const bool form = body && !strncmp(body, "--", 2);

    return test_web_ask(t->port, method, path,
                        form ? "Content-Type: multipart/form-data; boundary=" TEST_BOUNDARY "\r\n" : NULL, body);
}

/* The id that an answer begins with. */
static void take_id(const char *body, char id[80])
{
    const char *at = strstr(body, "\"id\":\"");

    assert_non_null(at);
    at += strlen("\"id\":\"");
    snprintf(id, 80, "%.*s", (int)strcspn(at, "\""), at);
}

/* What is posted before; id: of its answer. */
static void prepare(const test_server *t, const kind *k, char id[80])
{
    if (!k->before)
        return;
    test_reply r = send(t, "POST", k->before, k->before_body);
    if (r.status != 200)
        fail_msg("%s: %d, %s", k->before, r.status, r.body);
    take_id(r.body, id);
    test_reply_free(&r);
    test_server_quiet(t);
}

/* The text with id in place of %s. */
static char *with_id(const char *text, const char *id)
{
    const char *at = text ? strstr(text, "%s") : NULL;
    char *out = text ? calloc(strlen(text) + 80, 1) : NULL;

    if (out)
        sprintf(out, "%.*s%s%s", at ? (int)(at - text) : (int)strlen(text), text, at ? id : "", at ? at + 2 : "");
    return out;
}

/* The request, with the n-th operation failing; below 0: none.  *n_all: how many there were. */
static test_reply ask(const test_server *t, const kind *k, test_operations what, long n, char id[80], long *n_all, bool *failed)
{
    if (k->each)
        prepare(t, k, id);
    char *path = with_id(k->path, id), *body = with_id(k->body, id);
    test_arm(what, n);
    test_reply r = send(t, k->method, path, body);
    if (k->stays)
        test_server_quiet(t);
    *n_all = test_disarm(failed);
    free(path);
    free(body);
    test_server_quiet(t);
    return r;
}

/* A response that was promised is made, or has failed. */
static void check_made(const test_server *t, const kind *k, const test_reply *promised)
{
    char path[128], id[80];

    take_id(promised->body, id);
    snprintf(path, sizeof path, "/v1/responses/%s", id);
    test_reply r = test_web_ask(t->port, "GET", path, NULL, NULL);
    json_t *v = test_reply_json(&r);
    const char *status = test_json_text(v, "status");
    const bool whole = strcmp(status, "failed") != 0;

    if (r.status != 200 || (whole && (strcmp(status, "incomplete") != 0 || !test_json_text(v, "output.0.content.0.text"))) ||
        (!whole && !test_json_text(v, "error.message")))
        fail_msg("%s: %d, %s", k->name, r.status, r.body);
    json_decref(v);
    test_reply_free(&r);
}

static void each_fails(const test_server *t, const kind *k, test_operations what)
{
    long n_all = 0, n_tried = 0, n_told = 0, stride = 1;
    char *want = NULL, id[80] = "";
    bool failed;

    prepare(t, k, id);
    for (int i = 0; i < 3; i++) { /* what is kept for the next is made by the first */
        test_reply r = ask(t, k, what, -1, id, &n_all, &failed);
        if (r.status != 200)
            fail_msg("%s: %d, %s", k->name, r.status, r.body);
        free(want);
        want = answer_of(k, &r);
        test_reply_free(&r);
    }
    stride = test_all() || n_all <= test_scale(k->most) ? 1 : (n_all + test_scale(k->most) - 1) / test_scale(k->most);
    for (long n = stride > 1 ? (long)(test_seed % (uint64_t)stride) : 0, n_now; n < n_all; n += stride) {
        test_reply r = ask(t, k, what, n, id, &n_now, &failed);
        char *got = answer_of(k, &r);
        if (!got && !is_told(k, &r))
            fail_msg("%s: operation %ld failed: %d, %s", k->name, n, r.status, r.body);
        if (got && r.n_body && strcmp(got, want))
            fail_msg("%s: operation %ld failed, and the answer is another one: %s, not %s", k->name, n, got, want);
        if (got && k->stays)
            check_made(t, k, &r);
        n_tried += failed;
        n_told += failed && !got;
        free(got);
        test_reply_free(&r);
        r = ask(t, k, what, -1, id, &n_now, NULL);
        got = answer_of(k, &r);
        if (!got || strcmp(got, want))
            fail_msg("%s: after operation %ld had failed: %d, %s, not %s", k->name, n, r.status, r.body, want);
        free(got);
        test_reply_free(&r);
    }
    print_message("%s: %ld of %ld %s failed, %ld were told\n", k->name, n_tried, n_all,
                  what == TEST_ALLOCATIONS ? "allocations" : "system calls", n_told);
    free(want);
}

static void serve_and_fail(test_operations what)
{
    rg_server_options o = test_server_options();
    const rg_mem_stats before = rg_mem_count();
    char dir[] = "/tmp/ridge-fails-XXXXXX", path[64];
    test_server t;

    assert_non_null(mkdtemp(dir));
    o.batch_dir = dir;
    o.max_batches = 100000; /* they end behind the tries */
    test_server_start(&t, &o, 320, 8);
    for (size_t i = 0; i < RG_LEN(kinds); i++)
        each_fails(&t, &kinds[i], what);
    test_arm(what, (long)(test_seed % 7)); /* the end, too */
    test_server_stop(&t);
    test_disarm(NULL);
    snprintf(path, sizeof path, "rm -rf %s", dir);
    assert_int_equal(system(path), 0);
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
