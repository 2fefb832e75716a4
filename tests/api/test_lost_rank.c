/* test_lost_rank.c -- a rank that is killed under load: engines compute anew what it knew, with the same bits; the server
 * ends with an error what streams, and answers the rest; a request whose ranks end time and again is given up. */
#include <signal.h>

#include "model/rank_calls.h"
#include "server/live.h"

enum { N_RANKS = 3, N_ASKED = 6, N_IDS = 40, N_PROMPT = 90 };

static rg_ranks *ranks;

static rg_engine *open_engine(rg_ranks *on, int max_seqs, int ctx)
{
    rg_options o = rg_options_default();
    rg_error err = { 0 };

    o.ranks = on;
    o.n_threads = 1;
    o.max_seqs = max_seqs;
    o.max_seq_len = ctx;
    o.kv_bytes = (size_t)32 << 20;
    rg_engine *e = rg_open(RG_SOURCE_DIR "/models/tales-1m", &o, &err);
    assert_ok(e, err);
    return e;
}

/* The k-th request: some share their prompt, of more than a block. */
static rg_request *ask(rg_engine *e, int k, int n_ids)
{
    int32_t prompt[N_PROMPT];
    rg_params p = { .prompt = prompt, .n_prompt = k % 2 ? N_PROMPT : 5 + k, .max_tokens = n_ids, .n_samples = 1 + k % 3 / 2,
                    .sampling = rg_sampling_default() };
    rg_error err = { 0 };

    for (int i = 0; i < N_PROMPT; i++)
        prompt[i] = (7 + 13 * i + 5 * (k / 4)) % 900;
    p.sampling.seed = 100 + (uint64_t)k;
    p.sampling.ignore_eos = true;
    rg_request *r = rg_submit(e, &p, &err);
    assert_ok(r, err);
    return r;
}

typedef struct answers {
    int32_t ids[2][N_IDS];
    int n[2];
    rg_finish finish[2];
} answers;

/* Take what there is; with `once` only until something is. */
static void hear(rg_request *r, answers *a, bool once)
{
    rg_token t;

    while (rg_next(r, &t)) {
        if (t.id >= 0)
            a->ids[t.sample][a->n[t.sample]++] = t.id;
        a->finish[t.sample] = t.finish;
        if (once && t.id >= 0)
            return;
    }
}

static void kill_rank(int rank)
{
    const int process = rg_link_process(rg_ranks_link(ranks), rank);

    assert_true(process > 0);
    assert_int_equal(kill(process, SIGKILL), 0);
}

/* Once some request has begun, which is then computed, a rank is killed; none of them notices. */
static void answers_stay_the_same(void **state)
{
    static answers want[N_ASKED];
    rg_engine *e = open_engine(ranks, 3, 256);

    (void)state;
    for (int k = 0; k < N_ASKED; k++) {
        rg_request *r = ask(e, k, N_IDS);

        hear(r, &want[k], false);
        assert_int_equal(rg_request_usage(r).n_lost, 0);
        rg_request_close(r);
    }
    for (int turn = 1; turn < N_RANKS; turn++) {
        rg_request *r[N_ASKED];
        static answers have[N_ASKED];
        int n_lost = 0;

        memset(have, 0, sizeof have);
        for (int k = 0; k < N_ASKED; k++)
            r[k] = ask(e, k, N_IDS);
        hear(r[0], &have[0], true);
        kill_rank(turn);
        for (int k = 0; k < N_ASKED; k++) {
            hear(r[k], &have[k], false);
            n_lost += rg_request_usage(r[k]).n_lost;
            rg_request_close(r[k]);
        }
        assert_memory_equal(have, want, sizeof want);
        assert_true(n_lost > 0);
        assert_int_equal(rg_engine_stats(e).n_rank_losses, turn);
        rg_engine_check(e);
    }
    rg_close(e);
}

/* Two engines on the same ranks: the one that was idle finds its state gone as well, and computes anew. */
static void both_engines_go_on(void **state)
{
    rg_engine *one = open_engine(ranks, 2, 256), *other = open_engine(ranks, 2, 256);
    static answers want, have;
    rg_request *r = ask(other, 1, N_IDS);

    (void)state;
    hear(r, &want, false);
    rg_request_close(r);
    r = ask(one, 0, N_IDS);
    hear(r, &have, true);
    kill_rank(1);
    hear(r, &have, false);
    assert_int_equal(have.finish[0], RG_FINISH_LENGTH);
    rg_request_close(r);
    memset(&have, 0, sizeof have);
    r = ask(other, 1, N_IDS);
    hear(r, &have, false);
    assert_memory_equal(&have, &want, sizeof want);
    assert_int_equal(rg_request_usage(r).n_cached, 0); /* what it had cached is gone */
    rg_request_close(r);
    assert_int_equal(rg_engine_stats(other).n_rank_losses, 1);
    rg_close(one);
    rg_close(other);
}

/* While nothing runs: the next request finds the ranks started again. */
static void an_idle_engine_goes_on(void **state)
{
    rg_engine *e = open_engine(ranks, 2, 256);
    static answers want, have;

    (void)state;
    for (int i = 0; i < 2; i++) {
        rg_request *r = ask(e, 3, N_IDS);

        hear(r, i ? &have : &want, false);
        assert_int_equal(rg_request_usage(r).n_lost, 0);
        rg_request_close(r);
        if (i)
            break;
        kill_rank(2);
        TEST_UNTIL(rg_link_is_lost(rg_ranks_link(ranks)));
    }
    assert_memory_equal(&have, &want, sizeof want);
    /* and another model can be opened on them after a loss */
    kill_rank(1);
    TEST_UNTIL(rg_link_is_lost(rg_ranks_link(ranks)));
    rg_engine *other = open_engine(ranks, 2, 256);
    rg_close(other);
    rg_close(e);
}

static void a_request_is_given_up(void **state)
{
    rg_engine *e = open_engine(ranks, 2, 2048);
    rg_request *r = ask(e, 0, 1500);
    rg_token t = { 0 };

    (void)state;
    for (int turn = 0; turn < 3; turn++) {
        while (rg_poll(r, &t) == 1) /* what came before the last loss */
            ;
        TEST_UNTIL(rg_poll(r, &t) == 1); /* it runs again */
        assert_int_equal(t.finish, RG_RUNNING);
        kill_rank(1);
        TEST_UNTIL(rg_request_usage(r).n_lost == turn + 1);
    }
    while (rg_next(r, &t))
        ;
    assert_int_equal(t.finish, RG_FINISH_LOST);
    rg_request_close(r);
    r = ask(e, 2, 4); /* others are answered */
    while (rg_next(r, &t))
        ;
    assert_int_equal(t.finish, RG_FINISH_LENGTH);
    rg_request_close(r);
    rg_close(e);
}

/* ---- the server -------------------------------------------------------------------------------------------------- */

static int send_completion(int port, const char *body)
{
    char head[1024];
    const int fd = test_web_connect(port);

    snprintf(head, sizeof head,
             "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
             "Content-Length: %zu\r\n\r\n%s", strlen(body), body);
    assert_true(test_web_send(fd, head, strlen(head)));
    return fd;
}

/* Of two sequences at a time: the first streams and has something, the second is whole and has not; a third that streams
 * waits.  After the loss the first ends with an error event, the others are answered as they are alone. */
static void the_server_ends_what_streams(void **state)
{
    static const char first[] = "{\"prompt\":[1,2,3],\"max_tokens\":900,\"ignore_eos\":true,\"temperature\":0,\"stream\":true}";
    static const char second[] = "{\"prompt\":[5,6,7,8],\"max_tokens\":800,\"ignore_eos\":true,\"seed\":3}";
    static const char third[] = "{\"prompt\":[9,10,11],\"max_tokens\":30,\"ignore_eos\":true,\"temperature\":0,\"stream\":true}";
    rg_server_options o = test_server_options();
    test_server t;
    char some[4096];
    long n;

    (void)state;
    test_server_start_with(&t, &o, open_engine(ranks, 2, 1024));
    test_reply alone2 = test_web_ask(t.port, "POST", "/v1/completions", NULL, second);
    test_reply alone3 = test_web_ask(t.port, "POST", "/v1/completions", NULL, third);
    json_t *want = test_reply_json(&alone2);

    const int a = send_completion(t.port, first);
    n = test_web_some(a, some, sizeof some - 1, TEST_WATCHDOG_S);
    assert_true(n > 0);
    for (some[n] = 0; !strstr(some, "\"text\":"); some[n] = 0)
        n = test_web_some(a, some, sizeof some - 1, TEST_WATCHDOG_S);
    const int b = send_completion(t.port, second);
    TEST_UNTIL(rg_engine_stats(t.engine).n_running == 2);
    const int c = send_completion(t.port, third);
    TEST_UNTIL(rg_engine_stats(t.engine).n_running == 2 && rg_engine_stats(t.engine).n_waiting == 1);
    kill_rank(2);

    test_reply of2 = test_web_read(b, TEST_WATCHDOG_S), of3 = test_web_read(c, TEST_WATCHDOG_S);
    assert_int_equal(of2.status, 200);
    json_t *have = test_reply_json(&of2);
    assert_string_equal(test_json_text(have, "choices.0.text"), test_json_text(want, "choices.0.text"));
    assert_int_equal(of3.status, 200);
    assert_non_null(strstr(of3.body, "[DONE]"));
    assert_null(strstr(of3.body, "rank_lost"));

    size_t end = 0;
    for (; end + 1 < sizeof some && (n = test_web_some(a, some + end, sizeof some - 1 - end, TEST_WATCHDOG_S)) > 0; ) {
        end += (size_t)n;
        some[end] = 0;
        if (strstr(some, "rank_lost"))
            break;
        if (end > sizeof some / 2) { /* keep the end alone */
            memmove(some, some + end - 512, 512);
            end = 512;
        }
    }
    assert_non_null(strstr(some, "rank_lost"));
    assert_null(strstr(some, "[DONE]\n\ndata"));
    close(a);
    close(b);
    close(c);
    json_decref(want);
    json_decref(have);
    test_reply_free(&alone2);
    test_reply_free(&alone3);
    test_reply_free(&of2);
    test_reply_free(&of3);
    test_server_quiet(&t);
    test_reply metrics = test_web_ask(t.port, "GET", "/metrics", NULL, NULL);
    assert_non_null(strstr(metrics.body, "ridge_rank_losses_total"));
    test_reply_free(&metrics);
    test_server_stop(&t);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_stay_the_same), cmocka_unit_test(both_engines_go_on),
        cmocka_unit_test(an_idle_engine_goes_on), cmocka_unit_test(a_request_is_given_up),
        cmocka_unit_test(the_server_ends_what_streams),
    };
    rg_error err = { 0 };

    test_init(argc, argv);
    ranks = rg_ranks_start(N_RANKS, &err); /* before there are threads */
    if (!ranks) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rg_ranks_stop(ranks);
    return failed;
}
