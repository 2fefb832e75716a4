/* Tests of the mailbox: refusals, ends, stop texts across borders of ids, whole characters only, a reader on another
 * thread. */
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "engine/draw.h"
#include "engine/request.h"
#include "engine/work/embedding.h"

enum { VOCAB = 300, CONTEXT = 4000, DIM = 3 };

/* A vocabulary of pieces: ids 0..255 are single bytes, then some longer ones. */
static const char *const pieces[] = {
    "",     "stop",          "st",     "op", "hello ", "\xe2\x82\xac", "\xf0\x9f\x98", "\x80\xf0\x9f", "aab",
    "abab", "\xc3\xa9t\xc3", "<|end|>"
};
static char data[2048];
static uint32_t offset[VOCAB + 1];
static rg_spelling bytes = { .at = { { data, offset } }, .n = 256 + (int32_t)RG_LEN(pieces) };

static void make_vocabulary(void)
{
    uint32_t at = 0;

    for (int i = 0; i < bytes.n; i++) {
        size_t n = i < 256 ? 1 : strlen(pieces[i - 256]);

        offset[i] = at;
        if (i < 256)
            data[at] = (char)i;
        else
            memcpy(data + at, pieces[i - 256], n);
        at += (uint32_t)n;
    }
    offset[bytes.n] = at;
}

static rg_params params_simple(void)
{
    static const int32_t prompt[] = { 1, 2, 3 };

    return (rg_params){ .prompt = prompt,
                        .n_prompt = 3,
                        .max_tokens = 1000,
                        .n_samples = 1,
                        .sampling = {
                            .temperature = 1, .top_p = 1, .typical_p = 1, .repetition_penalty = 1, .n_logprobs = -1 } };
}

static rg_request *open_request(const rg_params *p)
{
    static const int32_t eos[] = { 299 };
    rg_error err;
    rg_request *r = rg_request_new(p, &(rg_request_model){ VOCAB, CONTEXT, DIM, &bytes, eos, 1 }, &err);

    assert_ok(r, err);
    return r;
}

/* ---- what is refused --------------------------------------------------------------------------------------------- */

static void refused(const rg_params *p, rg_code code)
{
    rg_error err = { 0 };

    assert_null(rg_request_new(p, &(rg_request_model){ VOCAB, CONTEXT, DIM, &bytes, NULL, 0 }, &err));
    assert_int_equal(err.code, code);
}

static void bad_params_are_refused(void **state)
{
    static int32_t many_ids[(1 << 14) + 1];
    static const int32_t outside[] = { 1, VOCAB }, negative[] = { -1 };
    static int32_t many[CONTEXT];
    static const char *const empty[] = { "" };
    rg_params p;

    (void)state;
    p = params_simple(), p.n_prompt = 0, refused(&p, RG_E_INPUT);
    p = params_simple(), p.prompt = NULL, refused(&p, RG_E_INPUT);
    p = params_simple(), p.n_prompt = -5, refused(&p, RG_E_INPUT);
    p = params_simple(), p.prompt = outside, p.n_prompt = 2, refused(&p, RG_E_INPUT);
    p = params_simple(), p.prompt = negative, p.n_prompt = 1, refused(&p, RG_E_INPUT);
    p = params_simple(), p.prompt = many, p.n_prompt = CONTEXT, refused(&p, RG_E_LIMIT);
    p = params_simple(), p.max_tokens = 0, refused(&p, RG_E_INPUT);
    p = params_simple(), p.prompt_logprobs = true, p.max_tokens = -1, refused(&p, RG_E_INPUT);
    p = params_simple(), p.prompt_logprobs = true, p.n_prompt_tops = -1, refused(&p, RG_E_INPUT);
    p = params_simple(), p.prompt_logprobs = true, p.n_prompt_tops = VOCAB + 1, refused(&p, RG_E_INPUT);
    p = params_simple(), p.prompt_logits = true, refused(&p, RG_E_INPUT); /* without prompt_logprobs */
    p = params_simple(), p.prompt_logprobs = true, p.prompt = many, p.n_prompt = CONTEXT, refused(&p, RG_E_LIMIT);
    p.max_tokens = 0, rg_request_unref(open_request(&p)); /* nothing is to come after it */
    p = params_simple(), p.n_samples = 0, refused(&p, RG_E_INPUT);
    p = params_simple(), p.n_samples = 1 << 30, refused(&p, RG_E_INPUT);
    p = params_simple(), p.stop = empty, p.n_stop = 1, refused(&p, RG_E_INPUT);
    p = params_simple(), p.n_stop = 1, refused(&p, RG_E_INPUT);
    p = params_simple(), p.stop_ids = outside, p.n_stop_ids = 2, refused(&p, RG_E_INPUT);
    for (size_t i = 0; i < RG_LEN(many_ids); i++)
        many_ids[i] = 1;
    p = params_simple(), p.stop_ids = many_ids, p.n_stop_ids = RG_LEN(many_ids), refused(&p, RG_E_LIMIT);
    p = params_simple(), p.sampling.temperature = NAN, refused(&p, RG_E_INPUT);
}

static void everything_is_copied(void **state)
{
    int32_t prompt[] = { 1, 2, 3 }, stop_ids[] = { 9 };
    char stop[] = "stop";
    const char *stops[] = { stop };
    rg_logit_bias bias[] = { { 4, 1.5f } };
    rg_params p = params_simple();
    rg_request *r;

    (void)state;
    p.prompt = prompt;
    p.stop_ids = stop_ids;
    p.n_stop_ids = 1;
    p.stop = stops;
    p.n_stop = 1;
    p.sampling.bias = bias;
    p.sampling.n_bias = 1;
    p.max_tokens = 1 << 30;
    r = open_request(&p);
    prompt[0] = stop_ids[0] = bias[0].id = 77;
    stop[0] = 'x';
    stops[0] = NULL;
    assert_int_equal(r->params.max_tokens, CONTEXT - 3);
    assert_int_equal(r->params.prompt[0], 1);
    assert_int_equal(r->params.stop_ids[0], 9);
    assert_int_equal(r->params.sampling.bias[0].id, 4);
    assert_string_equal(r->texts.stops[0].text, "stop");
    rg_request_ref(r);
    rg_request_unref(r);
    rg_request_unref(r);
}

/* Of an embedding nothing is looked at but the prompt, which may fill the context; there are no ids, and no texts. */
static void embeddings_are_a_prompt(void **state)
{
    static const int32_t prompt[CONTEXT + 1];
    const float rows[2][DIM + 1] = { { 1, 2, 3, 99 }, { 4, 4, 5, 99 } }, mean[DIM] = { 2.5f, 3, 4 };
    rg_params p = { .prompt = prompt, .n_prompt = CONTEXT, .max_tokens = -1, .n_samples = 7, .n_stop = 3,
                    .embed = RG_POOLING_MEAN };
    rg_request *r = open_request(&p);
    rg_token t;
    int32_t n;

    (void)state;
    assert_int_equal(r->work->most(r).n_positions, CONTEXT);
    rg_request_unref(r);
    p.n_prompt = CONTEXT + 1;
    refused(&p, RG_E_LIMIT);
    p.n_prompt = 2;
    p.embed = RG_POOLING_MODEL; /* it is for the API to know what that is */
    refused(&p, RG_E_INPUT);
    p.embed = RG_POOLING_MEAN;
    r = open_request(&p);
    rg_embedding_pool(r, 0, 1, rows[1], DIM + 1); /* and preempted: it begins again */
    rg_embedding_pool(r, 0, 2, rows[0], DIM + 1);
    assert_int_equal(rg_request_poll(r, &t), 0);
    rg_embedding_finish(r);
    assert_memory_equal(rg_embedding_result(r, &n), mean, sizeof mean);
    assert_int_equal(rg_request_poll(r, &t), 1);
    assert_int_equal(t.id, -1);
    assert_int_equal(t.finish, RG_FINISH_STOP);
    assert_int_equal(rg_request_poll(r, &t), -1);
    rg_request_unref(r);
}

/* ---- ends -------------------------------------------------------------------------------------------------------- */

static void ends_are_not_part_of_the_output(void **state)
{
    static const int32_t stop_ids[] = { 42 };
    rg_params p = params_simple();
    rg_request *r;
    rg_token t;

    (void)state;
    p.stop_ids = stop_ids;
    p.n_stop_ids = 1;
    p.max_tokens = 2;
    p.n_samples = 3;
    r = open_request(&p);
    assert_int_equal(rg_request_append(r, 0, 299, 0, NULL), RG_FINISH_STOP);
    assert_int_equal(rg_request_append(r, 1, 'a', 0, NULL), RG_RUNNING);
    assert_int_equal(rg_request_append(r, 1, 42, 0, NULL), RG_FINISH_STOP);
    assert_int_equal(rg_request_append(r, 2, 'a', 0, NULL), RG_RUNNING);
    assert_int_equal(rg_request_append(r, 2, 'b', 0, NULL), RG_FINISH_LENGTH);
    assert_true(r->counts.finished_ns > 0 && r->counts.first_ns > 0);
    assert_int_equal(r->samples[0].n_output, 0);
    assert_int_equal(r->samples[1].n_output, 1);
    assert_int_equal(rg_request_tokens(r, 2)[4], 'b');
    for (int n = 0; n < 6; n++) {
        assert_int_equal(rg_request_wait(r, &t), 1);
        assert_int_equal(t.stop, -1);
        assert_int_equal(t.stop_id, t.finish == RG_FINISH_STOP && t.sample == 1 ? 42 : -1); /* 299 ends the model's own */
    }
    assert_int_equal(rg_request_poll(r, &t), -1);
    assert_int_equal(rg_request_wait(r, &t), -1);
    rg_request_unref(r);

    p.sampling.ignore_eos = true;
    r = open_request(&p);
    assert_int_equal(rg_request_append(r, 0, 299, 0, NULL), RG_RUNNING);
    rg_request_end(r, 0, RG_FINISH_CANCELLED);
    rg_request_end(r, 0, RG_FINISH_LENGTH); /* the first end counts */
    assert_int_equal(rg_request_poll(r, &t), 1);
    assert_int_equal(t.id, 299);
    assert_int_equal(rg_request_poll(r, &t), 1);
    assert_int_equal(t.finish, RG_FINISH_CANCELLED);
    assert_int_equal(rg_request_poll(r, &t), 0);
    rg_request_unref(r);
}

static void logprobs_come_with_their_ids(void **state)
{
    const rg_top top[2][2] = { { { 5, -0.5f }, { 6, -1.5f } }, { { 7, -0.25f }, { 8, -2.5f } } };
    rg_params p = params_simple();
    rg_request *r;
    rg_token t;

    (void)state;
    p.sampling.n_logprobs = 2;
    r = open_request(&p);
    rg_request_append(r, 0, 5, -0.5f, top[0]);
    rg_request_append(r, 0, 8, -2.5f, top[1]);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(rg_request_poll(r, &t), 1);
        assert_true(t.logprob == (i ? -2.5f : -0.5f));
        assert_int_equal(t.n_top, 2);
        assert_memory_equal(t.top, top[i], sizeof top[i]);
    }
    rg_request_unref(r);
}

/* ---- text against a slow reference ------------------------------------------------------------------------------- */

/* Cut before the stop text that is complete first, the longest of those complete at one byte. */
static size_t cut_slowly(const char *text, size_t n, const char *const *stop, int n_stop)
{
    for (size_t end = 1; end <= n; end++) {
        size_t longest = 0;

        for (int i = 0; i < n_stop; i++) {
            size_t k = strlen(stop[i]);

            if (k <= end && k > longest && !memcmp(text + end - k, stop[i], k))
                longest = k;
        }
        if (longest)
            return end - longest;
    }
    return n;
}

/* One character more, by the rules of Unicode; written from the definition, not from utf8.c's table. */
static size_t decode_slowly(const unsigned char *p, size_t n, bool *valid)
{
    static const struct {
        unsigned char lead[2], follow[3][2];
    } forms[] = {
        { { 0x00, 0x7f }, { { 0 } } },
        { { 0xc2, 0xdf }, { { 0x80, 0xbf } } },
        { { 0xe0, 0xe0 }, { { 0xa0, 0xbf }, { 0x80, 0xbf } } },
        { { 0xe1, 0xec }, { { 0x80, 0xbf }, { 0x80, 0xbf } } },
        { { 0xed, 0xed }, { { 0x80, 0x9f }, { 0x80, 0xbf } } },
        { { 0xee, 0xef }, { { 0x80, 0xbf }, { 0x80, 0xbf } } },
        { { 0xf0, 0xf0 }, { { 0x90, 0xbf }, { 0x80, 0xbf }, { 0x80, 0xbf } } },
        { { 0xf1, 0xf3 }, { { 0x80, 0xbf }, { 0x80, 0xbf }, { 0x80, 0xbf } } },
        { { 0xf4, 0xf4 }, { { 0x80, 0x8f }, { 0x80, 0xbf }, { 0x80, 0xbf } } },
    };

    *valid = false;
    for (size_t f = 0; f < RG_LEN(forms); f++) {
        size_t k = 1;

        if (p[0] < forms[f].lead[0] || p[0] > forms[f].lead[1])
            continue;
        while (k <= 3 && forms[f].follow[k - 1][1] && k < n && p[k] >= forms[f].follow[k - 1][0] &&
               p[k] <= forms[f].follow[k - 1][1])
            k++;
        *valid = k > 3 || !forms[f].follow[k - 1][1];
        return k;
    }
    return 1;
}

static size_t lossy_slowly(const char *text, size_t n, char *out)
{
    size_t m = 0;

    for (size_t at = 0; at < n;) {
        bool valid;
        size_t k = decode_slowly((const unsigned char *)text + at, n - at, &valid);

        memcpy(out + m, valid ? text + at : "\xef\xbf\xbd", valid ? k : 3);
        m += valid ? k : 3;
        at += k;
    }
    return m;
}

static bool is_whole(const char *text, size_t n)
{
    for (size_t at = 0; at < n;) {
        bool valid;

        at += decode_slowly((const unsigned char *)text + at, n - at, &valid);
        if (!valid)
            return false;
    }
    return true;
}

typedef struct story { /* a run of ids, and what its text must be */
    int32_t ids[200];
    int n_ids;
    char want[4000];
    size_t n_want;
    bool stopped;
    char stop[8];  /* the longest that may have stopped it: what stands where the text was cut */
} story;

static void story_random(rg_rng *g, const char *const *stop, int n_stop, story *s)
{
    static const char letters[] = "abstop\xe2\x82\xac\xc3\xa9\xf0";
    char text[4000];
    size_t n = 0, cut;

    s->n_ids = 1 + (int)rg_rng_below(g, 60);
    for (int i = 0; i < s->n_ids; i++) {
        int32_t id = rg_rng_below(g, 3) ? (unsigned char)letters[rg_rng_below(g, sizeof letters - 1)]
                                        : (int32_t)rg_rng_below(g, VOCAB - 1);
        s->ids[i] = id;
        if (id >= bytes.n)
            continue;
        memcpy(text + n, data + offset[id], offset[id + 1] - offset[id]);
        n += offset[id + 1] - offset[id];
    }
    cut = cut_slowly(text, n, stop, n_stop);
    s->stopped = cut < n;
    memset(s->stop, 0, sizeof s->stop);
    memcpy(s->stop, text + cut, n - cut < sizeof s->stop ? n - cut : sizeof s->stop);
    s->n_want = lossy_slowly(text, cut, s->want);
}

static void text_in_pieces_equals_text_at_once(void **state)
{
    static const char *const stop[] = { "stop", "aab", "abab", "\xa9t", "op st", "bst" };
    rg_rng g = { .seed = test_seed };
    int n_stopped = 0;

    (void)state;
    for (int round = 0; round < 20000; round++) {
        static story s;
        rg_params p = params_simple();
        rg_finish why = RG_RUNNING;
        char got[4000];
        size_t n_got = 0;
        int fed = 0, n_events = 0;
        rg_request *r;
        rg_token t;

        p.stop = stop;
        p.n_stop = (int32_t)rg_rng_below(&g, RG_LEN(stop) + 1);
        story_random(&g, stop, p.n_stop, &s);
        r = open_request(&p);
        for (bool ended = false; !ended;) {
            if (why == RG_RUNNING && rg_rng_below(&g, 2)) {
                why = fed < s.n_ids ? rg_request_append(r, 0, s.ids[fed], 0, NULL) : RG_FINISH_LENGTH;
                if (fed++ == s.n_ids)
                    rg_request_end(r, 0, why);
            }
            while (rg_rng_below(&g, 3) && rg_request_poll(r, &t) > 0) {
                assert_true(is_whole(t.text, t.n_text));
                assert_int_equal(t.text[t.n_text], 0);
                memcpy(got + n_got, t.text, t.n_text);
                n_got += t.n_text;
                if (t.id >= 0)
                    assert_int_equal(t.id, s.ids[n_events++]);
                ended = t.finish != RG_RUNNING;
                assert_int_equal(t.stop >= 0, ended && s.stopped);
                if (t.stop >= 0)
                    assert_memory_equal(s.stop, stop[t.stop], strlen(stop[t.stop]));
            }
        }
        assert_int_equal(why == RG_FINISH_STOP, s.stopped);
        assert_int_equal(n_got, s.n_want);
        assert_memory_equal(got, s.want, n_got);
        n_stopped += s.stopped;
        rg_request_unref(r);
    }
    assert_true(n_stopped > 1000);
}

/* What is certain is given with the id that made it so: no stop text in sight, no character open. */
static void text_is_not_held_longer_than_need_be(void **state)
{
    static const char *const stop[] = { "stop" };
    rg_params p = params_simple();
    rg_request *r;
    rg_token t;

    (void)state;
    p.stop = stop;
    p.n_stop = 1;
    r = open_request(&p);
    rg_request_append(r, 0, 'a', 0, NULL);
    assert_int_equal(rg_request_poll(r, &t), 1);
    assert_string_equal(t.text, "a");
    rg_request_append(r, 0, 258, 0, NULL); /* "st": may become a stop text */
    assert_int_equal(rg_request_poll(r, &t), 1);
    assert_string_equal(t.text, "");
    rg_request_append(r, 0, 's', 0, NULL); /* "sts": the first "st" is certain, the last s is not */
    assert_int_equal(rg_request_poll(r, &t), 1);
    assert_string_equal(t.text, "st");
    rg_request_append(r, 0, 261, 0, NULL); /* the euro sign */
    assert_int_equal(rg_request_poll(r, &t), 1);
    assert_string_equal(t.text, "s\xe2\x82\xac");
    assert_int_equal(rg_request_append(r, 0, 257, 0, NULL), RG_FINISH_STOP);
    rg_request_unref(r);
}

static void no_tokenizer_no_text(void **state)
{
    rg_params p = params_simple();
    rg_error err;
    rg_request *r = rg_request_new(&p, &(rg_request_model){ VOCAB, CONTEXT, DIM, NULL, NULL, 0 }, &err);
    rg_token t;

    (void)state;
    assert_ok(r, err);
    rg_request_append(r, 0, 'a', 0, NULL);
    assert_int_equal(rg_request_poll(r, &t), 1);
    assert_string_equal(t.text, "");
    assert_true(isnan(t.logprob));
    rg_request_unref(r);
}

/* A long stop text and a text that nearly is one, again and again: time stays linear. */
static void near_misses_cost_no_more(void **state)
{
    static char stop_text[20001];
    const char *const stop[] = { stop_text };
    rg_params p = params_simple();
    rg_request *r;
    rg_token t;
    size_t n_text = 0;

    (void)state;
    memset(stop_text, 'a', sizeof stop_text - 2);
    stop_text[sizeof stop_text - 2] = 'b';
    p.stop = stop;
    p.n_stop = 1;
    p.max_tokens = CONTEXT - 3;
    r = open_request(&p);
    for (int i = 0; rg_request_append(r, 0, 'a', 0, NULL) == RG_RUNNING; i++)
        assert_true(i < CONTEXT);
    while (rg_request_wait(r, &t) > 0)
        n_text += t.n_text;
    assert_int_equal(n_text, CONTEXT - 3);
    rg_request_unref(r);
}

/* ---- two threads ------------------------------------------------------------------------------------------------- */

static void *append_all(void *arg)
{
    rg_request *r = arg;

    for (int i = 0; i < 3000; i++)
        for (int s = 0; s < r->params.n_samples; s++)
            rg_request_append(r, s, 'a' + (i + s) % 26, (float)-i, NULL);
    for (int s = 0; s < r->params.n_samples; s++)
        rg_request_end(r, s, RG_FINISH_CANCELLED);
    rg_request_unref(r);
    return NULL;
}

static void a_reader_sees_all_in_order(void **state)
{
    rg_params p = params_simple();
    int n_seen[2] = { 0 };
    rg_request *r;
    pthread_t engine;
    rg_token t;

    (void)state;
    p.n_samples = 2;
    p.max_tokens = 3500;
    p.sampling.n_logprobs = 0;
    r = open_request(&p);
    rg_request_ref(r);
    assert_int_equal(pthread_create(&engine, NULL, append_all, r), 0);
    while (rg_request_wait(r, &t) > 0) {
        if (t.id < 0)
            continue;
        assert_int_equal(t.id, 'a' + (n_seen[t.sample] + t.sample) % 26);
        assert_true(t.logprob == (float)-n_seen[t.sample]);
        n_seen[t.sample]++;
    }
    assert_true(n_seen[0] == 3000 && n_seen[1] == 3000);
    rg_request_unref(r);
    pthread_join(engine, NULL);
}

/* ---- given rows --------------------------------------------------------------------------------------------------- */

static const float some_rows[4 * DIM] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 };

static const rg_request_model takes_rows = { .vocab_size = VOCAB, .max_seq_len = CONTEXT, .dim = DIM, .given_dim = DIM,
                                             .spelling = &bytes };

static void given_rows_are_checked(void **state)
{
    static float bad[4 * DIM] = { 1, 2, 3, 4, INFINITY };
    static const struct {
        const char *why;
        int32_t prompt[6], n_given;
        rg_given_rows given[2];
    } cases[] = {
        { "-1 stands at place 3", { 1, -1, -1, -1, 2, 3 }, 1, { { 1, 2, some_rows, { 0 } } } },
        { "id 9 stands at place 2", { 1, -1, 9, 2, 2, 3 }, 1, { { 1, 2, some_rows, { 0 } } } },
        { "id -2 stands at place 1", { 1, -2, -1, 2, 2, 3 }, 1, { { 1, 2, some_rows, { 0 } } } },
        { "id -1 at place 5 of the prompt is not in the vocabulary", { 1, 1, 1, 1, 1, -1 }, 0, { { 0 } } },
        { "id -7 at place 5 of the prompt is not in the vocabulary", { -1, 1, 1, 1, 1, -7 }, 1, { { 0, 1, some_rows, { 0 } } } },
        { "run 0 of given rows is empty", { 1, 1, 1, 1, 1, 1 }, 1, { { 1, 0, some_rows, { 0 } } } },
        { "run 1 of given rows is empty", { -1, -1, 1, 1, 1, 1 }, 2, { { 0, 1, some_rows, { 0 } }, { 1, 1, NULL, { 0 } } } },
        { "run 0 of given rows begins at place -1", { -1, 1, 1, 1, 1, 1 }, 1, { { -1, 1, some_rows, { 0 } } } },
        { "run 1 of given rows begins at place 2", { 1, -1, -1, -1, 1, 1 }, 2,
          { { 1, 2, some_rows, { 0 } }, { 2, 2, some_rows, { 0 } } } },
        { "run 1 of given rows begins at place 0", { -1, 1, -1, 1, 1, 1 }, 2,
          { { 2, 1, some_rows, { 0 } }, { 0, 1, some_rows, { 0 } } } },
        { "run 0 of given rows, 3 from place 4 on", { 1, 1, 1, 1, -1, -1 }, 1, { { 4, 3, some_rows, { 0 } } } },
        { "run 0 of given rows, 2147483647 from place 4 on", { 1, 1, 1, 1, -1, -1 }, 1, { { 4, INT32_MAX, some_rows, { 0 } } } },
        { "run 0 of given rows, 1 from place 2147483647 on", { 1, 1, 1, 1, -1, -1 }, 1, { { INT32_MAX, 1, some_rows, { 0 } } } },
        { "row 1 of run 0 of given rows has a number that is not finite", { 1, -1, -1, 1, 1, 1 }, 1, { { 1, 2, bad, { 0 } } } },
        { "a count of given rows", { 1, 1, 1, 1, 1, 1 }, -1, { { 0 } } },
    };
    rg_params p = params_simple();
    rg_error err = { 0 };

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        p.prompt = cases[i].prompt;
        p.n_prompt = RG_LEN(cases[i].prompt);
        p.given = cases[i].given;
        p.n_given = cases[i].n_given;
        assert_null(rg_request_new(&p, &takes_rows, &err));
        assert_int_equal(err.code, RG_E_INPUT);
        if (!strstr(err.text, cases[i].why))
            fail_msg("\"%s\" does not say: %s", err.text, cases[i].why);
    }
    p.given = NULL;
    p.n_given = 1;
    assert_null(rg_request_new(&p, &takes_rows, &err));
    assert_non_null(strstr(err.text, "a count of given rows"));
    p.given = cases[0].given;
    assert_null(rg_request_new(&p, &(rg_request_model){ .vocab_size = VOCAB, .max_seq_len = CONTEXT, .dim = DIM }, &err));
    assert_int_equal(err.code, RG_E_UNSUPPORTED);
}

/* The caller's rows may go; a hash is made where there is none, and equal rows have equal ones. */
static void given_rows_are_copied(void **state)
{
    float rows[4 * DIM];
    int32_t prompt[] = { 1, -1, -1, -1, -1, 5 };
    rg_given_rows given[] = { { .at = 1, .n = 2, .rows = rows }, { .at = 3, .n = 2, .rows = rows, .hash = { 1, 2 } } };
    rg_params p = params_simple();
    rg_request *r[3];
    rg_error err;

    (void)state;
    p.prompt = prompt;
    p.n_prompt = RG_LEN(prompt);
    p.n_samples = 2;
    p.given = given;
    p.n_given = 2;
    for (int i = 0; i < 3; i++) {
        memcpy(rows, some_rows, sizeof rows);
        rows[2 * DIM - 1] += i == 2;
        r[i] = rg_request_new(&p, &takes_rows, &err);
        assert_ok(r[i], err);
        memset(rows, 0xff, sizeof rows);
        assert_int_equal(r[i]->params.n_given, 2);
        assert_memory_equal(r[i]->params.given[0].rows, some_rows, (2 * DIM - 1) * sizeof *rows);
        assert_memory_equal(r[i]->params.given[1].hash, given[1].hash, sizeof given[1].hash);
        assert_memory_equal(rg_request_tokens(r[i], 1), prompt, sizeof prompt);
        assert_true(rg_request_used(r[i]).n_prompt == 6 && rg_request_applicant(r[i]).n_ids == 6);
    }
    assert_memory_equal(r[0]->params.given[0].hash, r[1]->params.given[0].hash, sizeof given[0].hash);
    assert_memory_not_equal(r[0]->params.given[0].hash, r[2]->params.given[0].hash, sizeof given[0].hash);
    for (int i = 0; i < 3; i++)
        rg_request_unref(r[i]);
}

/* A prompt of rows alone shows nothing: the answer begins a text. */
static void given_rows_show_nothing(void **state)
{
    static const int32_t prompt[] = { -1, -1 }, with_text[] = { -1, 'a' };
    const rg_given_rows given = { .n = 2, .rows = some_rows }, less = { .n = 1, .rows = some_rows };
    rg_params p = params_simple();
    rg_error err;

    (void)state;
    p.n_prompt = 2;
    p.n_given = 1;
    for (int i = 0; i < 2; i++) {
        p.prompt = i ? with_text : prompt;
        p.given = i ? &less : &given;
        rg_request *r = rg_request_new(&p, &takes_rows, &err);

        assert_ok(r, err);
        assert_int_equal(r->texts.prompt_shows, i);
        rg_request_unref(r);
    }
}

/* ---- what a draw needs ------------------------------------------------------------------------------------------- */

/* The logits from which the first id is drawn are the prompt's last: where these are kept, all of them are needed. */
static void kept_logits_are_whole(void **state)
{
    rg_params p = params_simple();

    (void)state;
    p.prompt_logprobs = true;
    for (int keeps = 0; keeps < 2; keeps++) {
        p.prompt_logits = keeps;
        rg_request *r = open_request(&p);
        const int32_t draft[] = { 5 };

        assert_int_equal(rg_draw_pick(&(rg_draw_place){ .request = r }).k, keeps ? 0 : 1);
        assert_int_equal(rg_draw_pick(&(rg_draw_place){ .request = r, .draft = draft, .n_draft = 1 }).k, 1);
        rg_request_unref(r);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_params_are_refused),
        cmocka_unit_test(everything_is_copied),
        cmocka_unit_test(embeddings_are_a_prompt),
        cmocka_unit_test(ends_are_not_part_of_the_output),
        cmocka_unit_test(logprobs_come_with_their_ids),
        cmocka_unit_test(text_in_pieces_equals_text_at_once),
        cmocka_unit_test(text_is_not_held_longer_than_need_be),
        cmocka_unit_test(no_tokenizer_no_text),
        cmocka_unit_test(near_misses_cost_no_more),
        cmocka_unit_test(a_reader_sees_all_in_order),
        cmocka_unit_test(given_rows_are_checked),
        cmocka_unit_test(given_rows_are_copied),
        cmocka_unit_test(given_rows_show_nothing),
        cmocka_unit_test(kept_logits_are_whole),
    };

    test_init(argc, argv);
    make_vocabulary();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
