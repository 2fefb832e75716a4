/* test_same_bits.c -- the promise over HTTP: the text and log-probabilities of a request with a seed are the same bytes
 * alone, in any company, streamed or whole, its prefix cached or not, its prompt cut, and when it was preempted.
 *
 * Some 60 requests gate; RIDGE_TEST_SCALE=-20 (make soak) makes them more than a thousand. */
#define _GNU_SOURCE 1
#include "base/buf.h"
#include "base/json.h"
#include "server/live.h"

#include <pthread.h>
#include <stdatomic.h>

enum { USUAL = 60, LEAST = 24, N_CLIENTS = 12, CTX = 640 };

static int n_requests;
static char **alone; /* [n_requests] what each is answered, nobody else being there */

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static const char *const words[] = { "dog", "the", "little", "ran", "and", "tree", "saw", "Lily", "big", "red", "ball",
                                     "happy", ".", "mom", "was", "said" };

static void write_words(rg_buf *b, rg_rng *g, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        rg_buf_printf(b, " %s", words[rg_rng_below(g, RG_LEN(words))]);
}

/* A prompt, of which a part is shared by many. */
static void write_prompt(rg_buf *b, rg_rng *g)
{
    uint32_t shared = rg_rng_below(g, 4), own = rg_rng_below(g, 3) ? 1 + rg_rng_below(g, 20) : 60 + rg_rng_below(g, 200);
    rg_rng common = { .seed = 77 * test_seed + shared };

    rg_buf_str(b, "Once");
    write_words(b, &common, shared < 3 ? 70 + 60 * shared : 0);
    write_words(b, g, own);
}

static void write_sampling(rg_buf *b, rg_rng *g, int i)
{
    static const char *const more[] = { "", ",\"top_p\":0.9", ",\"top_k\":20", ",\"min_p\":0.05",
                                        ",\"repetition_penalty\":1.2", ",\"presence_penalty\":0.5,\"frequency_penalty\":0.3",
                                        ",\"stop\":[\".\",\" the d\"]", ",\"min_tokens\":5", ",\"ignore_eos\":true",
                                        ",\"logit_bias\":{\"17\":3,\"30\":-100}",
                                        ",\"response_format\":{\"type\":\"json_object\"}",
                                        ",\"dry_multiplier\":0.8,\"dry_allowed_length\":1", ",\"mirostat\":1",
                                        ",\"xtc_probability\":0.5,\"top_n_sigma\":1.5,\"dynatemp_range\":0.3",
                                        ",\"mirostat\":2,\"mirostat_tau\":3,\"repeat_last_n\":20,"
                                        "\"repetition_penalty\":1.2" };
    static const char *const heat[] = { "0", "0.7", "1.3" };

    rg_buf_printf(b, "\"seed\":%d,\"max_tokens\":%u,\"temperature\":%s,\"n\":%u%s", i, 1 + rg_rng_below(g, 60),
                  heat[rg_rng_below(g, 3)], rg_rng_below(g, 4) ? 1 : 2 + rg_rng_below(g, 2),
                  more[rg_rng_below(g, RG_LEN(more))]);
}

/* The i-th request, which is a chat or not. */
static bool compose(int i, bool stream, rg_buf *b)
{
    rg_rng g = { .seed = 1000003 * test_seed + (uint64_t)i };
    bool chat = !rg_rng_below(&g, 3);
    uint32_t logprobs = rg_rng_below(&g, 4);

    rg_buf_reset(b);
    rg_buf_str(b, "{");
    write_sampling(b, &g, i);
    if (logprobs && chat)
        rg_buf_printf(b, ",\"logprobs\":true,\"top_logprobs\":%u", logprobs);
    else if (logprobs)
        rg_buf_printf(b, ",\"logprobs\":%u", logprobs);
    rg_buf_str(b, chat ? ",\"messages\":[{\"role\":\"user\",\"content\":\"" : ",\"prompt\":\"");
    write_prompt(b, &g);
    rg_buf_str(b, chat ? "\"}]" : "\"");
    rg_buf_printf(b, ",\"stream\":%s}", stream ? "true" : "false");
    return chat;
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

/* What is kept of an answer: a line per choice, put together from all that was sent. */
typedef struct told {
    rg_buf text, logprobs;
    char finish[16];
} told;

static void add_list(rg_buf *b, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        char *s = rg_json_dump(json_array_get(list, i), JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
        rg_buf_printf(b, "%s;", s ? s : "?");
        rg_free(s);
    }
}

static void hear(told *to, const json_t *choice)
{
    const json_t *m = json_object_get(choice, "message"), *d = m ? m : json_object_get(choice, "delta");
    const json_t *text = json_object_get(d ? d : choice, d ? "content" : "text"), *l = json_object_get(choice, "logprobs");
    const char *finish = json_string_value(json_object_get(choice, "finish_reason"));

    if (text)
        rg_buf_add(&to->text, json_string_value(text), json_string_length(text));
    if (d) {
        add_list(&to->logprobs, json_object_get(l, "content"));
    } else { /* lists side by side: an entry a token, so that cutting them differently is the same */
        for (size_t i = 0; i < json_array_size(json_object_get(l, "tokens")); i++) {
            json_t *one = json_pack("[O,O,O,O]", json_array_get(json_object_get(l, "tokens"), i),
                                    json_array_get(json_object_get(l, "token_logprobs"), i),
                                    json_array_get(json_object_get(l, "top_logprobs"), i),
                                    json_array_get(json_object_get(l, "text_offset"), i));
            json_t *list = json_pack("[o]", one);
            add_list(&to->logprobs, list);
            json_decref(list);
        }
    }
    if (finish)
        snprintf(to->finish, sizeof to->finish, "%s", finish);
}

static void hear_all(told *to, const char *document)
{
    json_t *v = json_loads(document, 0, NULL), *choices = json_object_get(v, "choices");

    for (size_t i = 0; i < json_array_size(choices); i++) {
        const json_t *c = json_array_get(choices, i);
        json_int_t index = json_integer_value(json_object_get(c, "index"));
        if (index >= 0 && index < 4)
            hear(&to[index], c);
    }
    json_decref(v);
}

/* Ask the i-th request; what it was told, or why not.  rg_free it. */
static char *ask(int port, int i, bool stream)
{
    rg_buf body, all;
    told to[4] = { 0 };

    rg_buf_init(&body, 1 << 20);
    rg_buf_init(&all, 1 << 24);
    for (int k = 0; k < 4; k++) {
        rg_buf_init(&to[k].text, 1 << 20);
        rg_buf_init(&to[k].logprobs, 1 << 22);
    }
    bool chat = compose(i, stream, &body);
    test_reply r = test_web_ask(port, "POST", chat ? "/v1/chat/completions" : "/v1/completions", NULL, body.data);
    if (r.status != 200)
        rg_buf_printf(&all, "%d %s", r.status, r.body ? r.body : "");
    else if (!stream)
        hear_all(to, r.body);
    else
        for (char *p = strstr(r.body, "data: {"), *end; p && (end = strstr(p, "\n\n")); p = strstr(end, "data: {")) {
            *end++ = 0;
            hear_all(to, p + 6);
        }
    for (int k = 0; k < 4; k++) {
        rg_buf_printf(&all, "[%s|%s|%s]\n", to[k].text.n ? to[k].text.data : "", to[k].logprobs.n ? to[k].logprobs.data : "",
                      to[k].finish);
        rg_buf_fini(&to[k].text);
        rg_buf_fini(&to[k].logprobs);
    }
    test_reply_free(&r);
    rg_buf_fini(&body);
    return all.data;
}

/* ---- company ----------------------------------------------------------------------------------------------------- */

typedef struct crowd {
    int port;
    atomic_int next, n_wrong;
    const int *order;
    bool stream;   /* some of them */
    char *wrong;   /* the first */
    pthread_mutex_t lock;
} crowd;

static void *client(void *arg)
{
    crowd *c = arg;

    for (int k; (k = atomic_fetch_add(&c->next, 1)) < n_requests;) {
        int i = c->order[k];
        if (i % 3 == 0)
            test_nap(0.001 * (i % 7));
        char *got = ask(c->port, i, c->stream && k % 2);
        if ((!got || strcmp(got, alone[i]) != 0) && !atomic_fetch_add(&c->n_wrong, 1)) {
            pthread_mutex_lock(&c->lock);
            if (asprintf(&c->wrong, "request %d:\n%s\nalone:\n%s", i, got, alone[i]) < 0)
                c->wrong = NULL;
            pthread_mutex_unlock(&c->lock);
        }
        rg_free(got);
    }
    return NULL;
}

/* All requests in a new order, many at once. */
static void ask_all(const test_server *t, uint64_t shuffle, bool stream)
{
    int *order = calloc((size_t)n_requests, sizeof *order);
    crowd c = { .port = t->port, .order = order, .stream = stream, .lock = PTHREAD_MUTEX_INITIALIZER };
    rg_rng g = { .seed = 999 * test_seed + shuffle };
    pthread_t thread[N_CLIENTS];

    for (int i = 0; i < n_requests; i++) {
        int k = (int)rg_rng_below(&g, (uint32_t)i + 1);
        order[i] = order[k];
        order[k] = i;
    }
    for (int i = 0; i < N_CLIENTS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, client, &c), 0);
    for (int i = 0; i < N_CLIENTS; i++)
        pthread_join(thread[i], NULL);
    if (c.n_wrong)
        fail_msg("%d of %d differ; %s", c.n_wrong, n_requests, c.wrong);
    free(order);
    test_server_quiet(t);
    rg_engine_check(t->engine);
}

static test_server start(rg_options o)
{
    rg_server_options so = test_server_options();
    rg_error err = { 0 };
    test_server t = { 0 };

    o.max_seq_len = CTX;
    o.kv_bytes = o.kv_bytes ? o.kv_bytes : (size_t)64 << 20;
    t.engine = rg_open(RG_SOURCE_DIR "/models/tales-1m", &o, &err);
    assert_ok(t.engine, err);
    t.s = rg_server_open(&so, &err);
    assert_ok(t.s, err);
    t.port = test_port(t.s);
    rg_server_ready(t.s, t.engine);
    return t;
}

static int setup(void **state)
{
    rg_options o = rg_options_default();

    (void)state;
    n_requests = test_scale(USUAL) < LEAST ? LEAST : test_scale(USUAL); /* fewer would not fill the memory */
    o.n_threads = 1;
    o.no_prefix_cache = true;
    test_server t = start(o);
    alone = calloc((size_t)n_requests, sizeof *alone);
    for (int i = 0; i < n_requests; i++) {
        alone[i] = ask(t.port, i, false);
        if (!alone[i] || alone[i][0] != '[')
            fail_msg("request %d: %s", i, alone[i]);
    }
    test_server_stop(&t);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (int i = 0; i < n_requests; i++)
        rg_free(alone[i]);
    free(alone);
    return 0;
}

static void together(void **state)
{
    rg_options o = rg_options_default();

    (void)state;
    o.n_threads = 2;
    o.no_prefix_cache = true;
    test_server t = start(o);
    ask_all(&t, 1, true);
    test_server_stop(&t);
}

static void cached(void **state)
{
    rg_options o = rg_options_default();

    (void)state;
    o.n_threads = 2;
    o.max_seqs = 5;
    o.max_batch_rows = 48; /* prompts are cut */
    test_server t = start(o);
    ask_all(&t, 2, true);
    assert_true(rg_engine_stats(t.engine).n_cached_rows > 0);
    ask_all(&t, 3, false); /* all of it known by now */
    test_server_stop(&t);
}

static void preempted(void **state)
{
    rg_options o = rg_options_default();

    (void)state;
    o.n_threads = 1;
    o.kv_bytes = 1 << 20;
    test_server t = start(o);
    for (int i = 0; i < 10 && !rg_engine_stats(t.engine).n_preempted; i++)
        ask_all(&t, 4 + (uint64_t)i, true);
    assert_true(rg_engine_stats(t.engine).n_preempted > 0);
    test_server_stop(&t);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(together),
        cmocka_unit_test(cached),
        cmocka_unit_test(preempted),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, setup, teardown);
}
