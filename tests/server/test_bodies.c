/* test_bodies.c -- whole bodies of requests, from a kilobyte to the server's limit and beyond, to every endpoint that
 * takes one: each gets an answer, of 200 or of 4xx, and the server is well after it. */
#define _GNU_SOURCE 1
#include "server/live.h"

enum { LEAST = 1 << 10, WATCHDOG_S = 60 };

static test_server t;
static size_t max_body;

static int setup(void **state)
{
    rg_server_options o = test_server_options();

    (void)state;
    if (TEST_SLOWER > 1)
        o.max_body = 4 << 20; /* checked code is slow, and finds no more in longer ones */
    max_body = o.max_body;
    test_server_start(&t, &o, 256, 16);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    test_server_stop(&t);
    return 0;
}

/* A body is `before`, then `piece` as often as there is room for it, then `after`. */
typedef struct shape {
    const char *path, *before, *piece, *after;
} shape;

#define ONE_MESSAGE "\"messages\":[{\"role\":\"user\",\"content\":\""
#define MANY_MESSAGES "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}"
#define A_MESSAGE ",{\"role\":\"user\",\"content\":\"Once upon a time there was a little girl.\"}"

static const shape shapes[] = {
    { "/v1/chat/completions", "{\"max_tokens\":1," ONE_MESSAGE, "word ", "\"}]}" },
    { "/v1/chat/completions", "{\"max_tokens\":1," ONE_MESSAGE, "\xc3\xa9\\n", "\"}]}" },
    { "/v1/chat/completions", "{\"max_tokens\":1," MANY_MESSAGES, A_MESSAGE, "]}" },
    { "/v1/chat/completions", "{\"max_tokens\":1,\"messages\":", "[", "]}" },
    { "/apply-template", "{" ONE_MESSAGE, "word ", "\"}]}" },
    { "/tokenize", "{" ONE_MESSAGE, "word ", "\"}]}" },
    { "/tokenize", "{\"prompt\":\"", "word ", "\"}" },
    { "/detokenize", "{\"tokens\":[1", ",300", "]}" },
    { "/v1/messages", "{\"max_tokens\":1," ONE_MESSAGE, "word ", "\"}]}" },
    { "/v1/messages/count_tokens", "{" ONE_MESSAGE, "word ", "\"}]}" },
    { "/v1/responses", "{\"max_output_tokens\":1,\"input\":\"", "word ", "\"}" },
    { "/v1/responses", "{\"max_output_tokens\":1,\"input\":[{\"role\":\"user\",\"content\":\"a\"}", A_MESSAGE, "]}" },
    { "/v1/completions", "{\"max_tokens\":1,\"prompt\":\"", "word ", "\"}" },
    { "/v1/completions", "{\"max_tokens\":1,\"prompt\":[1", ",300", "]}" },
    { "/v1/embeddings", "{\"input\":\"", "word ", "\"}" },
    { "/v1/embeddings", "{\"input\":[\"a\"", ",\"word\"", "]}" },
};

/* The status that a body of at most n bytes gets, what is left filled with blanks, as of a request of n bytes. */
static int ask(const shape *s, size_t n)
{
    size_t before = strlen(s->before), piece = strlen(s->piece), after = strlen(s->after), at;
    char *all = malloc(n + 4096);

    assert_non_null(all);
    size_t head = (size_t)snprintf(all, 4096, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n", s->path, n);
    char *body = all + head;
    memcpy(body, s->before, before);
    size_t total = n < before + after ? 0 : (n - before - after) / piece * piece;
    memcpy(body + before, s->piece, total ? piece : 0);
    for (size_t have = piece, k; have < total; have += k) { /* what is there doubles */
        k = have < total - have ? have : total - have;
        memcpy(body + before + have, body + before, k);
    }
    at = before + total;
    memcpy(body + at, s->after, after);
    memset(body + at + after, ' ', n - at - after);
    int fd = test_web_connect(t.port);
    test_web_send(fd, all, head + n); /* false where it is refused before all is read */
    test_reply r = test_web_read(fd, WATCHDOG_S);
    int status = r.status;
    test_reply_free(&r);
    close(fd);
    free(all);
    return status;
}

static void every_size_is_answered(void **state)
{
    /* from size to size: to 16 MiB, where a chat was once too long, either way */
    const size_t factor = test_all() ? 2 : TEST_SLOWER > 1 ? 16 : 4;

    (void)state;
    for (size_t i = 0; i < RG_LEN(shapes); i++) {
        for (size_t n = LEAST; n <= max_body; n *= factor) {
            int status = ask(&shapes[i], n);
            if (status != 200 && (status < 400 || status > 499))
                fail_msg("%s%s... of %zu bytes: %d", shapes[i].path, shapes[i].before, n, status);
        }
        assert_int_equal(test_web_status(t.port, "/health", NULL), 200);
    }
}

static void beyond_the_limit_is_refused(void **state)
{
    int status = ask(&shapes[0], max_body + 1);

    (void)state;
    assert_true(status == 413 || status == 0); /* 0: closed while the rest was still being sent */
    assert_int_equal(test_web_status(t.port, "/health", NULL), 200);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_is_answered),
        cmocka_unit_test(beyond_the_limit_is_refused),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, setup, teardown);
}
