/* test_api.c -- the public API on real models: what ridge.h promises, through ridge.h. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"
#include "base/file.h"
#include "base/mem.h"

#define TALES RG_SOURCE_DIR "/models/tales-1m"

enum { MAX_IDS = 512 };

typedef struct answer {
    int32_t ids[MAX_IDS];
    float logprobs[MAX_IDS];
    char text[8192];
    int n;
    rg_finish finish;
} answer;

static rg_options options(int threads, const char *isa)
{
    rg_options o = rg_options_default();

    o.n_threads = threads;
    o.isa = isa;
    o.kv_bytes = (size_t)64 << 20;
    return o;
}

static rg_params params_of(const int32_t *ids, int n, int max_tokens)
{
    return (rg_params){ .prompt = ids, .n_prompt = n, .max_tokens = max_tokens, .n_samples = 1, .sampling = rg_sampling_default() };
}

/* Everything a request gives, sample by sample. */
static void collect(rg_request *r, answer *out)
{
    rg_token t;

    while (rg_next(r, &t)) {
        answer *a = &out[t.sample];
        if (t.id >= 0) {
            assert_true(a->n < MAX_IDS);
            a->logprobs[a->n] = t.logprob;
            a->ids[a->n++] = t.id;
        }
        strncat(a->text, t.text, sizeof a->text - strlen(a->text) - 1);
        if (t.finish != RG_RUNNING)
            a->finish = t.finish;
    }
}

static void same(const answer *a, const answer *b)
{
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->ids, b->ids, (size_t)a->n * sizeof *a->ids);
    assert_memory_equal(a->logprobs, b->logprobs, (size_t)a->n * sizeof *a->logprobs);
    assert_string_equal(a->text, b->text);
}

static void ask(rg_engine *e, const rg_params *p, answer *out)
{
    rg_error err = { 0 };
    rg_request *r = rg_submit(e, p, &err);

    assert_ok(r, err);
    collect(r, out);
    rg_usage u = rg_request_usage(r);
    assert_int_equal(u.n_prompt, p->n_prompt);
    assert_true(u.ttft_s > 0 && u.total_s >= u.ttft_s);
    rg_request_close(r);
}

/* The same prompt and seed: alone, among others, with its prefix cached, with one thread and with two. */
static void same_bits_in_any_company(void **state)
{
    static const char prompt[] = "Once upon a time there was a little girl who had a dog and a red ball. One day";
    answer *alone = calloc(8, sizeof *alone);
    rg_error err = { 0 };

    (void)state;
    for (int threads = 1; threads <= 2; threads++) {
        rg_options o = options(threads, "auto");
        rg_engine *e = rg_open(TALES, &o, &err);
        assert_ok(e, err);
        int32_t *ids;
        size_t n;
        assert_ok(rg_encode(e, prompt, strlen(prompt), RG_ENCODE_DEFAULT, &ids, &n, &err), err);
        rg_params p = params_of(ids, (int)n, 80);
        p.sampling.seed = 11;
        p.sampling.n_logprobs = 2;
        if (threads == 1)
            ask(e, &p, &alone[0]);
        rg_request *r[6];
        for (int i = 0; i < 6; i++) { /* others differ in seed, length and start */
            rg_params q = p;
            q.sampling.seed = i == 3 ? 11 : (uint64_t)i + 100;
            q.max_tokens = i == 3 ? 80 : 10 + 15 * i;
            q.n_prompt = i == 3 ? p.n_prompt : p.n_prompt - i;
            r[i] = rg_submit(e, &q, &err);
            assert_ok(r[i], err);
        }
        memset(&alone[1], 0, 7 * sizeof *alone);
        for (int i = 0; i < 6; i++) {
            collect(r[i], &alone[1 + i]);
            rg_request_close(r[i]);
        }
        same(&alone[0], &alone[4]);
        rg_ids_free(ids);
        rg_close(e);
    }
    free(alone);
}

static void samples_share_their_prompt(void **state)
{
    rg_options o = options(2, "auto");
    rg_error err = { 0 };
    rg_engine *e = rg_open(TALES, &o, &err);
    const int32_t ids[] = { 0, 100, 200, 300, 400 };
    answer *all = calloc(4, sizeof *all), *one = calloc(1, sizeof *one);

    (void)state;
    assert_ok(e, err);
    rg_params p = params_of(ids, 5, 40);
    p.n_samples = 4;
    p.sampling.seed = 5;
    ask(e, &p, all);
    p.n_samples = 1;
    ask(e, &p, one);
    one->finish = all[0].finish; /* sample 0 is the request alone */
    assert_int_equal(one->n, all[0].n);
    assert_memory_equal(one->ids, all[0].ids, (size_t)one->n * sizeof *one->ids);
    assert_true(all[0].n != all[1].n || memcmp(all[0].ids, all[1].ids, (size_t)all[0].n * sizeof *all[0].ids));
    rg_close(e);
    free(all);
    free(one);
}

/* A second request with the same long prompt takes its state from the first. */
static void prefixes_are_reused(void **state)
{
    rg_options o = options(2, "auto");
    rg_error err = { 0 };
    rg_engine *e = rg_open(TALES, &o, &err);
    int32_t ids[300];
    answer *a = calloc(2, sizeof *a);

    (void)state;
    assert_ok(e, err);
    for (int i = 0; i < 300; i++)
        ids[i] = (i * 37 + 5) % 4096;
    rg_params p = params_of(ids, 300, 20);
    p.sampling.n_logprobs = 0;
    for (int i = 0; i < 2; i++) {
        rg_request *r = rg_submit(e, &p, &err);
        assert_ok(r, err);
        collect(r, &a[i]);
        assert_int_equal(rg_request_usage(r).n_cached, i ? 299 : 0);
        rg_request_close(r);
    }
    same(&a[0], &a[1]);
    rg_close(e);
    free(a);
}

static void refusals_are_clear(void **state)
{
    rg_options o = options(1, "auto");
    rg_error err = { 0 };
    rg_engine *e = rg_open(TALES, &o, &err);
    const int32_t ids[] = { 0, 1, 2 }, bad[] = { 0, 4096 };
    static int32_t many[2000];

    (void)state;
    assert_ok(e, err);
    rg_params p = params_of(bad, 2, 8);
    assert_null(rg_submit(e, &p, &err));
    assert_int_equal(err.code, RG_E_INPUT);
    p = params_of(many, 2000, 8); /* longer than the context of 1,024 */
    assert_null(rg_submit(e, &p, &err));
    p = params_of(ids, 0, 8);
    assert_null(rg_submit(e, &p, &err));
    p = params_of(ids, 3, 8);
    p.sampling.temperature = NAN;
    assert_null(rg_submit(e, &p, &err));
    p.sampling.temperature = -1;
    assert_null(rg_submit(e, &p, &err));
    rg_close(e);
    assert_null(rg_open("/nonexistent/model", &o, &err));
    assert_non_null(strstr(err.text, "/nonexistent/model"));
    o.isa = "no-such-isa";
    assert_null(rg_open(TALES, &o, &err));
    o = options(1, "auto");
    o.recipe = "sloppy";
    assert_null(rg_open(TALES, &o, &err));
    o = options(1, "auto");
    o.kv_bytes = 1000; /* not even one sequence */
    assert_null(rg_open(TALES, &o, &err));
    for (int i = 0; i < 4; i++) {
        o = options(1, "auto");
        *(i % 2 ? &o.max_seqs : &o.max_batch_rows) = i < 2 ? INT32_MAX : -1;
        assert_null(rg_open(TALES, &o, &err));
        assert_int_equal(err.code, RG_E_USAGE);
        assert_non_null(strstr(err.text, i % 2 ? "max_seqs" : "max_batch_rows"));
    }
}

static void cancel_and_close(void **state)
{
    rg_options o = options(2, "auto");
    rg_error err = { 0 };
    rg_engine *e = rg_open(TALES, &o, &err);
    const int32_t ids[] = { 0, 5, 6 };
    answer *a = calloc(1, sizeof *a);
    rg_token t;

    (void)state;
    assert_ok(e, err);
    rg_params p = params_of(ids, 3, 500);
    p.sampling.ignore_eos = true;
    for (int i = 0; a->finish != RG_FINISH_CANCELLED; i++) { /* a thread that sleeps long may cancel too late */
        rg_request *r = rg_submit(e, &p, &err);
        assert_ok(r, err);
        assert_true(i < 20 && rg_next(r, &t));
        rg_cancel(r);
        *a = (answer){ 0 };
        collect(r, a);
        assert_int_equal(a->n < 499, a->finish == RG_FINISH_CANCELLED);
        rg_request_close(r);
    }
    rg_request *left = rg_submit(e, &p, &err);
    assert_ok(left, err);
    rg_request_close(left); /* while it runs */
    rg_close(e);
    free(a);
}

/* Stop texts across tokens, and logprobs that are what they say. */
static void stops_and_logprobs(void **state)
{
    rg_options o = options(2, "auto");
    rg_error err = { 0 };
    rg_engine *e = rg_open(TALES, &o, &err);
    static const char prompt[] = "Once upon a time";
    const char *stop[] = { "little", " a " };
    answer *a = calloc(1, sizeof *a);
    int32_t *ids;
    size_t n;
    rg_token t;

    (void)state;
    assert_ok(e, err);
    assert_ok(rg_encode(e, prompt, strlen(prompt), RG_ENCODE_DEFAULT, &ids, &n, &err), err);
    rg_params p = params_of(ids, (int)n, 60);
    p.sampling.temperature = 0;
    p.stop = stop;
    p.n_stop = 2;
    ask(e, &p, a);
    assert_int_equal(a->finish, RG_FINISH_STOP);
    assert_null(strstr(a->text, "little"));
    assert_null(strstr(a->text, " a "));
    p.n_stop = 0;
    p.sampling.n_logprobs = 3;
    rg_request *r = rg_submit(e, &p, &err);
    assert_ok(r, err);
    while (rg_next(r, &t)) {
        if (t.id < 0)
            continue;
        assert_int_equal(t.n_top, 3);
        assert_int_equal(t.top[0].id, t.id); /* greedy */
        assert_true(t.logprob == t.top[0].logprob && t.logprob <= 0 && t.top[1].logprob <= t.top[0].logprob);
    }
    rg_request_close(r);
    rg_ids_free(ids);
    rg_close(e);
    free(a);
}

/* ---- every allocation and every file operation fails once ---- */

typedef struct gate { /* several threads go through it */
    atomic_int left;
    atomic_bool failed;
} gate;

static bool allow(gate *g)
{
    if (atomic_fetch_sub(&g->left, 1) != 0)
        return true;
    atomic_store(&g->failed, true);
    return false;
}

static bool allow_memory(void *arg, size_t bytes)
{
    (void)bytes;
    return allow(arg);
}

static bool allow_file(void *arg, const char *operation)
{
    (void)operation;
    return allow(arg);
}

/* Open, one short request, close.  True if all of it worked. */
static bool whole_life(rg_error *err)
{
    rg_options o = options(2, "auto");
    const int32_t ids[] = { 1, 5, 6 };

    o.kv_bytes = (size_t)4 << 20;
    o.max_seqs = 2;
    o.max_batch_rows = 8;
    rg_engine *e = rg_open(RG_TEST_DATA "/stories260K.gguf", &o, err);
    rg_params p = params_of(ids, 3, 4);
    rg_request *r = e ? rg_submit(e, &p, err) : NULL;
    answer a = { .n = 0 };
    if (r)
        collect(r, &a);
    bool ok = r && a.n > 0;
    rg_request_close(r);
    rg_close(e);
    return ok;
}

static void fails_cleanly(bool memory)
{
    gate g = { 0 };
    int n = 0;
    size_t live = rg_mem_count().n_live;

    for (;; n++) {
        rg_error err = { 0 };
        atomic_store(&g.left, n);
        atomic_store(&g.failed, false);
        if (memory)
            rg_mem_set_gate(allow_memory, &g);
        else
            rg_file_set_gate(allow_file, &g);
        bool ok = whole_life(&err);
        rg_mem_set_gate(NULL, NULL);
        rg_file_set_gate(NULL, NULL);
        assert_int_equal(rg_mem_count().n_live, live);
        if (!g.failed) {
            assert_ok(ok, err);
            break;
        }
        assert_true(ok || (err.code != RG_OK && err.text[0])); /* a failed cache or preemption buffer need not fail a request */
        rg_error after = { 0 };
        if (n % 16 == 0)
            assert_ok(whole_life(&after), after);
    }
    assert_true(n > 10);
}

static void memory_failures(void **state)
{
    (void)state;
    fails_cleanly(true);
}

static void file_failures(void **state)
{
    (void)state;
    fails_cleanly(false);
}

/* A model whose rope has other factors for sequences that may exceed its original context of 1,024 positions: what
 * counts is prompt and max_tokens together, and no prefix of one kind is taken for the other's. */
static void long_sequences_have_their_own_rope(void **state)
{
    static const int32_t ids[] = { 5, 9, 300, 17, 42, 42, 8, 100, 101, 7, 64, 3, 250, 31, 77, 12, 13, 14, 15, 16, 200, 201, 6, 11,
                                   5, 9, 300, 17, 42, 42, 8, 100, 101, 7, 64, 3, 250, 31, 77, 12, 13, 14, 15, 16, 200, 201, 6, 11,
                                   5, 9, 300, 17, 42, 42, 8, 100, 101, 7, 64, 3, 250, 31, 77, 12, 13, 14, 15, 16, 200, 201, 6, 11 };
    enum { N = sizeof ids / sizeof *ids };
    static const struct {
        int max_tokens;
        bool is_long, finds_prefix;
    } cases[] = { { 1024 - N, false, false }, { 1024 - N, false, true }, { 1025 - N, true, false }, { 1025 - N, true, true } };
    rg_options o = options(2, "auto");
    rg_error err = { 0 };
    rg_engine *e = rg_open(test_data("phi4-mini"), &o, &err);
    float first[4];

    (void)state;
    assert_ok(e, err);
    for (size_t i = 0; i < 4; i++) {
        rg_params p = params_of(ids, N, cases[i].max_tokens);
        rg_token t;

        p.sampling.temperature = 0;
        p.sampling.n_logprobs = 0;
        rg_request *r = rg_submit(e, &p, &err);
        assert_ok(r, err);
        assert_true(rg_next(r, &t));
        first[i] = t.logprob;
        assert_int_equal(rg_request_usage(r).n_cached > 0, cases[i].finds_prefix);
        rg_request_close(r);
    }
    assert_true(first[0] == first[1] && first[2] == first[3] && first[0] != first[2]);
    rg_close(e);
}

static uint64_t encode(const rg_engine *e, const rg_json *conversation, int32_t **ids, size_t *n)
{
    uint64_t before = rg_mem_count().n_allocs;
    rg_error err = { 0 };

    assert_ok(rg_chat_encode(e, conversation, NULL, ids, n, NULL, &err), err);
    return rg_mem_count().n_allocs - before;
}

/* What the template does not look at costs memory once, when the text is parsed, and nothing when it is encoded. */
static void a_conversation_is_parsed_once(void **state)
{
    enum { UNUSED = 4000 };
    static const char head[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"Tell me a story.\"}],\"unused\":[0";
    rg_options o = options(2, "auto");
    rg_error err = { 0 };
    rg_engine *e = rg_open(TALES, &o, &err);
    char *text = calloc(1, sizeof head + 2 * UNUSED + 3);
    int32_t *few, *many, *again;
    size_t n_few, n_many, n_again;

    (void)state;
    assert_ok(e, err);
    strcpy(text, head);
    strcat(text, "]}");
    rg_json *small = rg_json_new(text, strlen(text), &err);
    for (size_t i = 0; i < UNUSED; i++)
        memcpy(text + strlen(head) + 2 * i, ",7", 3);
    strcat(text, "]}");
    uint64_t before = rg_mem_count().n_allocs;
    rg_json *large = rg_json_new(text, strlen(text), &err);
    assert_true(large && small);
    assert_true(rg_mem_count().n_allocs - before >= UNUSED);
    uint64_t of_small = encode(e, small, &few, &n_few), of_large = encode(e, large, &many, &n_many);
    assert_true(of_large < of_small + UNUSED / 10);
    encode(e, large, &again, &n_again);
    assert_int_equal(n_few, n_many);
    assert_int_equal(n_few, n_again);
    assert_memory_equal(few, many, n_few * sizeof *few);
    assert_memory_equal(few, again, n_few * sizeof *few);
    rg_ids_free(few);
    rg_ids_free(many);
    rg_ids_free(again);
    rg_json_close(small);
    rg_json_close(large);
    rg_close(e);
    free(text);
}

static void conversations_are_refused(void **state)
{
    static const char broken[] = "[{]", nul[] = "[{\"role\":\"user\",\"content\":\"a\\u0000b\"}]";
    rg_options o = options(2, "auto");
    rg_error err = { 0 };
    rg_engine *e = rg_open(TALES, &o, &err);
    int32_t *ids;
    size_t n;

    (void)state;
    assert_ok(e, err);
    assert_null(rg_json_new(broken, strlen(broken), &err));
    assert_int_equal(err.code, RG_E_INPUT);
    rg_json *v = rg_json_new(nul, strlen(nul), &err);
    assert_non_null(v);
    assert_false(rg_chat_encode(e, v, NULL, &ids, &n, NULL, &err));
    assert_int_equal(err.code, RG_E_INPUT);
    assert_string_equal(err.text, "the conversation has a NUL character");
    rg_json_close(v);
    rg_json_close(NULL);
    rg_close(e);
}

/* The logits of a prompt are those that its log-probabilities are made of; the last row is the answer's first. */
static void logits_of_a_prompt(void **state)
{
    static const char prompt[] = "Once upon a time there was a dog. The dog";
    rg_options o = options(2, "auto");
    rg_error err = { 0 };
    rg_engine *e = rg_open(TALES, &o, &err);
    rg_prompt_logprob l;
    rg_token t;
    int32_t *ids, n_logits = 0;
    size_t n;

    (void)state;
    assert_ok(e, err);
    assert_ok(rg_encode(e, prompt, strlen(prompt), RG_ENCODE_DEFAULT, &ids, &n, &err), err);
    for (int max_tokens = 0; max_tokens < 2; max_tokens++) {
        rg_params p = params_of(ids, (int)n, max_tokens);
        p.prompt_logprobs = p.prompt_logits = true;
        p.sampling.temperature = 0;
        p.sampling.ignore_eos = true;
        rg_request *r = rg_submit(e, &p, &err);
        assert_ok(r, err);
        assert_true(rg_next(r, &t));
        for (int32_t i = 0; i < (int32_t)n; i++) {
            const float *logits = rg_request_prompt_logits(r, i, &n_logits);
            int32_t best = 0;
            double sum = 0;

            assert_non_null(logits);
            assert_int_equal(n_logits, rg_engine_info(e).vocab_size);
            for (int32_t k = 0; k < n_logits; k++) {
                best = logits[k] > logits[best] ? k : best;
                sum += exp((double)logits[k]);
            }
            if (i + 1 == (int32_t)n) {
                assert_int_equal(t.id, max_tokens ? best : -1);
                break;
            }
            assert_true(rg_request_prompt_logprob(r, i + 1, &l));
            assert_float_equal(l.logprob, (double)logits[ids[i + 1]] - log(sum), 1e-4);
            assert_int_equal(l.rank == 1, best == ids[i + 1]);
        }
        assert_null(rg_request_prompt_logits(r, (int32_t)n, &n_logits));
        rg_request_close(r);
    }
    rg_ids_free(ids);
    rg_close(e);
}

/* What a binding in another language finds out before its first call; of every struct that ridge.h lays out. */
static void layouts_are_told(void **state)
{
    static const char begin[] = "\ntypedef struct ";
    char *header = test_read_text(RG_SOURCE_DIR "/include/ridge.h"), name[64];
    int n = 0;

    (void)state;
    for (const char *at = header; (at = strstr(at, begin)); n++) {
        at += strlen(begin);
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at, " ;"), at);
        if (at[strlen(name) + 1] == '{' && !rg_size_of(name))
            fail_msg("src/api/layout.c lacks %s, which ridge.h declares", name);
    }
    assert_true(n > 20);
    free(header);
    assert_string_equal(rg_version(), RG_VERSION);
    assert_int_equal(rg_size_of("rg_params"), sizeof(rg_params));
    assert_int_equal(rg_size_of("rg_options"), sizeof(rg_options));
    assert_int_equal(rg_size_of("rg_token"), sizeof(rg_token));
    assert_int_equal(rg_size_of("rg_engine"), 0);
    assert_int_equal(rg_size_of(""), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_in_any_company), cmocka_unit_test(samples_share_their_prompt),
        cmocka_unit_test(prefixes_are_reused),      cmocka_unit_test(refusals_are_clear),
        cmocka_unit_test(cancel_and_close),         cmocka_unit_test(stops_and_logprobs),
        cmocka_unit_test(memory_failures),          cmocka_unit_test(file_failures),
        cmocka_unit_test(long_sequences_have_their_own_rope),
        cmocka_unit_test(a_conversation_is_parsed_once), cmocka_unit_test(conversations_are_refused),
        cmocka_unit_test(logits_of_a_prompt), cmocka_unit_test(layouts_are_told),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
