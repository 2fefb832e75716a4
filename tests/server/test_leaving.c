/* test_leaving.c -- clients that leave at any moment: while they send, while they wait, while the prompt is computed, at any
 * token and at the last one; politely or not.  Every block and slot comes back, and who stays gets what it would get alone. */
#define _GNU_SOURCE 1
#include "server/live.h"

#include "base/json.h"

#include <pthread.h>
#include <sys/socket.h>

enum { N_CLIENTS = 6, MAX_SEQS = 3, MAX_TOKENS = 40 };

static test_server t;
static char *alone; /* what the request of those who stay is answered, nobody else being there */
static const char stays[] = "{\"prompt\":\"The dog\",\"max_tokens\":30,\"ignore_eos\":true,\"temperature\":1,\"seed\":7,"
                            "\"logprobs\":1}";

/* "text" and "logprobs" of its choice, as they stand. */
static char *ask_one_that_stays(void)
{
    test_reply r = test_web_ask(t.port, "POST", "/v1/completions", NULL, stays);
    json_t *v = test_reply_json(&r), *choice = json_array_get(json_object_get(v, "choices"), 0);

    assert_int_equal(r.status, 200);
    json_t *kept = json_pack("{s:O,s:O}", "text", json_object_get(choice, "text"), "logprobs",
                             json_object_get(choice, "logprobs"));
    char *s = rg_json_dump(kept, JSON_COMPACT | JSON_SORT_KEYS);
    assert_non_null(s);
    json_decref(kept);
    json_decref(v);
    test_reply_free(&r);
    return s;
}

/* A request whose shape is drawn: streamed or whole, short or long prompt (the same for some, so that blocks are shared),
 * one answer or several. */
static size_t compose(rg_rng *g, char *to, size_t room, int *n_tokens)
{
    char body[4096], prompt[2048] = "1";
    uint32_t n = rg_rng_below(g, 2) ? 3 : 80 + rg_rng_below(g, 100), same = rg_rng_below(g, 2);

    *n_tokens = 1 + (int)rg_rng_below(g, MAX_TOKENS);
    for (uint32_t i = 0; i < n; i++)
        snprintf(prompt + strlen(prompt), sizeof prompt - strlen(prompt), ",%u", same ? i % 97 + 5 : rg_rng_below(g, 500));
    snprintf(body, sizeof body, "{\"prompt\":[%s],\"max_tokens\":%d,\"ignore_eos\":true,\"n\":%u,\"stream\":%s}", prompt,
             *n_tokens, 1 + rg_rng_below(g, 2), rg_rng_below(g, 4) ? "true" : "false");
    return (size_t)snprintf(to, room, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s",
                            strlen(body), body);
}

static void leave(rg_rng *g, int fd)
{
    const struct linger reset = { .l_onoff = 1 };

    if (rg_rng_below(g, 2))
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    else if (rg_rng_below(g, 2))
        shutdown(fd, SHUT_WR);
    close(fd);
}

static int count_events(const char *s)
{
    int n = 0;

    for (; (s = strstr(s, "\"text\":")); s++)
        n++;
    return n;
}

/* One that leaves. */
static void come_and_go(rg_rng *g)
{
    char all[8192], got[65536];
    int n_tokens, fd = test_web_connect(t.port);
    size_t n = compose(g, all, sizeof all, &n_tokens), have = 0;
    uint32_t when = rg_rng_below(g, 8);
    int wanted = when < 7 ? 1 + (int)rg_rng_below(g, (uint32_t)n_tokens) : n_tokens;
    long k;

    if (when == 0)
        n = rg_rng_below(g, (uint32_t)n); /* in the middle of the request */
    test_web_send(fd, all, n);
    if (when == 1 || when == 2)
        test_nap(0.001 * rg_rng_below(g, 8)); /* in the queue, or in the prompt */
    for (got[0] = 0; when > 3 && have < sizeof got - 1 && count_events(got) < wanted; got[have] = 0) {
        k = test_web_some(fd, got + have, sizeof got - 1 - have, 20);
        if (k <= 0)
            break;
        have += (size_t)k;
        got[have] = 0;
        if (!strstr(all, "\"stream\":true") || strstr(got, "[DONE]") || strstr(got, "HTTP/1.1 4"))
            break; /* that was all */
    }
    leave(g, fd);
}

static void *some_clients(void *arg)
{
    rg_rng g = { .seed = test_seed + 1000 * (uint64_t)(uintptr_t)arg };

    for (int i = 0; i < test_scale(300) / N_CLIENTS; i++)
        come_and_go(&g);
    return NULL;
}

static void whenever_they_leave_nothing_stays(void **state)
{
    pthread_t threads[N_CLIENTS];
    int n_same = 0;

    (void)state;
    for (int i = 0; i < N_CLIENTS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, some_clients, (void *)(uintptr_t)(i + 1)), 0);
    for (int i = 0; i < 10; i++) {
        char *s = ask_one_that_stays();
        assert_string_equal(s, alone);
        rg_free(s);
        n_same++;
        rg_engine_check(t.engine);
    }
    for (int i = 0; i < N_CLIENTS; i++)
        pthread_join(threads[i], NULL);
    test_server_quiet(&t);
    rg_engine_check(t.engine);
    assert_int_equal(rg_engine_stats(t.engine).state_used_bytes, 0); /* all blocks are free, or kept for reuse only */
    char *s = ask_one_that_stays();
    assert_string_equal(s, alone);
    rg_free(s);
    print_message("%d that stayed got what they get alone\n", n_same + 1);
}

static int setup(void **state)
{
    rg_server_options o = test_server_options();

    (void)state;
    test_server_start(&t, &o, 256, MAX_SEQS);
    alone = ask_one_that_stays();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    rg_free(alone);
    test_server_stop(&t);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(whenever_they_leave_nothing_stays) };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, setup, teardown);
}
