/* test_reinforce.c -- what a training that draws its own data needs: the log-probabilities of a drawn answer are those of
 * the same ids as a prompt, bit for bit; weights are replaced in place, and no answer has two of them.  And what a
 * request can say of its answer beforehand: a budget of reasoning, and a text that it expects. */
#define _GNU_SOURCE 1
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/model.h"

#include "base/file.h"
#include "base/mem.h"

#define TALES RG_SOURCE_DIR "/models/tales-1m"

enum { N = 120, N_PROMPT = 100 };

typedef struct answer {
    int32_t ids[N];
    float logprobs[N];
    int n;
    rg_usage usage;
} answer;

static int32_t prompt[N_PROMPT];

static rg_engine *open_it(const char *model, const char *draft, const char *verify)
{
    rg_options o = rg_options_default();
    rg_error err = { 0 };

    o.n_threads = 1;
    o.kv_bytes = (size_t)32 << 20;
    o.max_seqs = 4;
    o.max_seq_len = 512;
    o.max_batch_rows = 48; /* prompts are cut */
    o.draft = draft;
    o.verify = verify;
    rg_engine *e = rg_open(model, &o, &err);
    assert_ok(e, err);
    return e;
}

static rg_params params(uint64_t seed)
{
    rg_params p = { .prompt = prompt, .n_prompt = N_PROMPT, .max_tokens = N, .n_samples = 1,
                    .sampling = rg_sampling_default() };

    p.sampling.seed = seed;
    p.sampling.top_p = 0.9f;
    p.sampling.n_logprobs = 1;
    p.sampling.ignore_eos = true;
    return p;
}

static rg_request *submit(rg_engine *e, const rg_params *p)
{
    rg_error err = { 0 };
    rg_request *r = rg_submit(e, p, &err);

    assert_ok(r, err);
    return r;
}

static answer collect(rg_request *r)
{
    answer a = { 0 };
    rg_token t;

    while (rg_next(r, &t))
        if (t.id >= 0) {
            a.ids[a.n] = t.id;
            a.logprobs[a.n++] = t.logprob;
        }
    a.usage = rg_request_usage(r);
    rg_request_close(r);
    return a;
}

static answer ask(rg_engine *e, const rg_params *p)
{
    return collect(submit(e, p));
}

static void same(const answer *a, const answer *b)
{
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->ids, b->ids, sizeof a->ids);
    assert_memory_equal(a->logprobs, b->logprobs, sizeof a->logprobs);
}

static bool differ(const answer *a, const answer *b)
{
    return a->n != b->n || memcmp(a->ids, b->ids, sizeof a->ids) != 0;
}

/* ---- log-probabilities ------------------------------------------------------------------------------------------- */

static void sampler_and_scorer_agree(void **state)
{
    static const char *const drafts[] = { "none", "suffix" };

    (void)state;
    for (size_t d = 0; d < RG_LEN(drafts); d++) {
        rg_engine *e = open_it(TALES, drafts[d], NULL);
        rg_params p = params(7), beside = params(8);
        rg_request *other = submit(e, &beside);
        answer a = ask(e, &p);
        int32_t all[N_PROMPT + N];

        memcpy(all, prompt, sizeof prompt);
        memcpy(all + N_PROMPT, a.ids, sizeof a.ids);
        p.prompt = all;
        p.n_prompt = N_PROMPT + a.n;
        p.max_tokens = 0;
        p.prompt_logprobs = true;
        rg_request *r = submit(e, &p);
        rg_token t;
        while (rg_next(r, &t))
            ;
        for (int i = 0; i < a.n; i++) {
            rg_prompt_logprob l;
            assert_true(rg_request_prompt_logprob(r, N_PROMPT + i, &l));
            assert_int_equal(l.id, a.ids[i]);
            assert_memory_equal(&l.logprob, &a.logprobs[i], sizeof l.logprob);
        }
        rg_request_close(r);
        (void)collect(other);
        rg_close(e);
    }
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* A copy of the model in which every seventh value of the last half of the file has another sign. */
static const char *other_weights(void)
{
    static char dir[256];
    static const char *const files[] = { "config.json", "tokenizer.json", "generation_config.json" };
    char from[512], to[512];
    size_t n;
    rg_error err = { 0 };

    snprintf(dir, sizeof dir, "%s", test_scratch("test_reinforce.other"));
    assert_true(rg_dir_make(dir, &err));
    for (size_t i = 0; i < RG_LEN(files); i++) {
        snprintf(from, sizeof from, TALES "/%s", files[i]);
        snprintf(to, sizeof to, "%s/%s", dir, files[i]);
        if (rg_path_look(from) == RG_PATH_FILE)
            test_copy_file(from, to, NULL, NULL);
    }
    char *all = rg_file_slurp(TALES "/model.safetensors", (size_t)1 << 30, &n, &err);
    assert_ok(all, err);
    for (size_t i = n - 1; i > n / 2; i -= 14)
        all[i] = (char)(all[i] ^ 0x80);
    snprintf(to, sizeof to, "%s/model.safetensors", dir);
    rg_writer *w = rg_writer_open(to, &err);
    assert_ok(w && rg_writer_write(w, all, n, &err) && rg_writer_commit(w, &err), err);
    rg_free(all);
    return dir;
}

typedef struct updating {
    rg_engine *e;
    const char *path;
    bool ok;
    rg_error err;
} updating;

static void *update(void *arg)
{
    updating *u = arg;

    u->ok = rg_engine_update_weights(u->e, u->path, &u->err);
    return NULL;
}

static void weights_are_replaced_in_place(void **state)
{
    const char *dir = other_weights();
    rg_engine *e = open_it(TALES, "suffix", NULL), *by_new = open_it(dir, "suffix", NULL);
    rg_params p = params(3), more = params(4);
    updating u = { .e = e, .path = dir };
    pthread_t thread;
    rg_error err = { 0 };

    (void)state;
    const answer old = ask(e, &p), new = ask(by_new, &p), new_more = ask(by_new, &more), old_more = ask(e, &more);
    assert_true(differ(&old, &new));
    rg_request *r[6];
    for (int i = 0; i < 6; i++) /* more than run at once */
        r[i] = submit(e, &more);
    assert_int_equal(pthread_create(&thread, NULL, update, &u), 0);
    while (!rg_engine_stats(e).n_updates) { /* some come while it waits, and have one of the two */
        answer a = ask(e, &p);
        assert_true(!differ(&a, &old) || !differ(&a, &new));
    }
    pthread_join(thread, NULL);
    assert_ok(u.ok, u.err);
    for (int i = 0; i < 6; i++) {
        answer a = collect(r[i]);
        assert_true(!differ(&a, &old_more) || !differ(&a, &new_more));
    }
    answer a = ask(e, &p);
    same(&a, &new);
    assert_int_equal(rg_engine_stats(e).n_updates, 1);

    /* Another shape, and what is no model: the weights stay. */
    assert_false(rg_engine_update_weights(e, RG_SOURCE_DIR "/models/tales-7m", &err));
    assert_non_null(strstr(err.text, "another model"));
    assert_false(rg_engine_update_weights(e, "/nowhere", &err));
    assert_false(rg_engine_update_weights(e, test_data("qwen3"), &err));
    a = ask(e, &p);
    same(&a, &new);
    assert_true(rg_engine_update_weights(e, TALES, &err));
    a = ask(e, &p);
    same(&a, &old);
    assert_int_equal(rg_engine_stats(e).n_updates, 2);
    rg_engine_check(e);
    rg_close(e);
    rg_close(by_new);

    e = open_it(TALES, TALES, NULL); /* a model that drafts has other weights then */
    assert_false(rg_engine_update_weights(e, dir, &err));
    assert_non_null(strstr(err.text, "drafts"));
    rg_close(e);
}

/* Nothing that was computed by the old weights is found by the new ones. */
static void cached_prefixes_are_dropped(void **state)
{
    rg_engine *e = open_it(TALES, NULL, NULL);
    rg_params p = params(3);
    rg_error err = { 0 };

    (void)state;
    (void)ask(e, &p);
    assert_true(ask(e, &p).usage.n_cached >= 64);
    assert_true(rg_engine_update_weights(e, TALES, &err));
    assert_int_equal(ask(e, &p).usage.n_cached, 0);
    assert_true(ask(e, &p).usage.n_cached >= 64);
    rg_close(e);
}

/* ---- budgets of reasoning ---------------------------------------------------------------------------------------- */

static void reasoning_ends_with_its_budget(void **state)
{
    static const int32_t end[] = { 70, 41, 99 };
    static const struct {
        const char *draft, *verify;
    } ways[] = { { "none", NULL }, { "suffix", NULL }, { "lookahead", NULL }, { "suffix", "rejection" },
                 { "suffix", "typical" } };
    answer plain[2];

    (void)state;
    for (size_t w = 0; w < RG_LEN(ways); w++)
        for (int budget = 0; budget < 20; budget += 9) {
            rg_engine *e = open_it(TALES, ways[w].draft, ways[w].verify);
            rg_params p = params(11);
            const answer free_one = ask(e, &p);
            p.thinking = (rg_thinking){ .end = end, .n_end = 3, .budget = budget };
            answer a = ask(e, &p);
            assert_int_equal(a.n, N);
            assert_memory_equal(a.ids + budget, end, sizeof end);
            if (!ways[w].verify)
                assert_memory_equal(a.ids, free_one.ids, (size_t)budget * sizeof *a.ids);
            for (int i = budget + 3; i < N - 2; i++) /* once */
                assert_true(memcmp(a.ids + i, end, sizeof end) != 0);
            if (!w && budget < 18)
                plain[budget / 9] = a;
            else if (!ways[w].verify && budget < 18)
                same(&a, &plain[budget / 9]);

            p.thinking.start = &free_one.ids[4]; /* it begins within the answer, where this id stands first */
            p.thinking.n_start = 1;
            int from = 0;
            while (free_one.ids[from] != free_one.ids[4])
                from++;
            a = ask(e, &p);
            if (!ways[w].verify)
                assert_memory_equal(a.ids + from + 1 + budget, end, sizeof end);
            rg_close(e);
        }
}

static void a_mark_that_came_by_itself_counts(void **state)
{
    rg_engine *e = open_it(TALES, "none", NULL);
    rg_params p = params(12);
    const answer free_one = ask(e, &p);
    rg_error err = { 0 };
    answer a;

    (void)state;
    p.thinking = (rg_thinking){ .end = free_one.ids + 6, .n_end = 2, .budget = 20 }; /* it ends before */
    a = ask(e, &p);
    same(&a, &free_one);
    p.thinking.budget = 7; /* the first id of the mark stands there: the second follows, and not both again */
    a = ask(e, &p);
    assert_int_equal(a.ids[6], free_one.ids[6]);
    assert_int_equal(a.ids[7], free_one.ids[7]);
    same(&a, &free_one);

    p.thinking.budget = -1;
    assert_null(rg_submit(e, &p, &err));
    p.thinking = (rg_thinking){ .end = (const int32_t[]){ 1 << 30 }, .n_end = 1 };
    assert_null(rg_submit(e, &p, &err));
    assert_non_null(strstr(err.text, "thinking.end"));
    p.thinking = (rg_thinking){ .end = free_one.ids, .n_end = 1 };
    p.beam.n_beams = 2;
    p.beam.length_penalty = 1;
    assert_null(rg_submit(e, &p, &err));
    rg_close(e);
}

/* ---- predicted answers ------------------------------------------------------------------------------------------- */

static void predicted_texts_are_drafts(void **state)
{
    static const char *const drafts[] = { "suffix", "auto", "jacobi" };

    (void)state;
    for (size_t d = 0; d < RG_LEN(drafts); d++) {
        rg_engine *e = open_it(TALES, drafts[d], NULL);
        rg_params p = params(5);
        const answer want = ask(e, &p);
        int32_t text[2 * N];

        p.uncached = true;
        p.predicted = want.ids;
        p.n_predicted = N;
        answer a = ask(e, &p);
        same(&a, &want);
        assert_true(a.usage.n_predicted_accepted > N / 2);
        assert_true(a.usage.n_steps < N / 2);

        memcpy(text, want.ids, N / 2 * sizeof *text); /* a part of it is another, and then it goes on */
        for (int i = 0; i < 5; i++)
            text[N / 2 + i] = 3 + i;
        memcpy(text + N / 2 + 5, want.ids + N / 2, N / 2 * sizeof *text);
        p.predicted = text;
        p.n_predicted = N + 5;
        a = ask(e, &p);
        same(&a, &want);
        assert_true(a.usage.n_predicted_accepted > N / 3);

        for (int i = 0; i < N; i++)
            text[i] = 3 + i % 7;
        a = ask(e, &p);
        same(&a, &want);
        rg_close(e);
    }
}

/* ---- those who give way ------------------------------------------------------------------------------------------ */

static void states_are_swapped_or_computed_again(void **state)
{
    static const char *const ways[] = { "swap", "recompute", "auto" };
    rg_error err = { 0 };
    rg_options o = rg_options_default();
    answer want[4];

    (void)state;
    o.n_threads = 1;
    o.max_seqs = 8;
    o.max_seq_len = 512;
    o.preempt = "never";
    assert_null(rg_open(TALES, &o, &err));
    assert_non_null(strstr(err.text, "recompute"));
    for (size_t w = 0; w < RG_LEN(ways); w++) {
        rg_request *r[8];
        rg_stats s;

        o.preempt = ways[w];
        o.kv_bytes = (size_t)32 << 20;
        rg_engine *e = rg_open(TALES, &o, &err);
        assert_ok(e, err);
        o.kv_bytes = 14 * 64 * rg_engine_info(e).position_bytes; /* 14 blocks, where 8 answers need 24 */
        rg_close(e);
        e = rg_open(TALES, &o, &err);
        assert_ok(e, err);
        for (int k = 0; k < 40 && !rg_engine_stats(e).n_preempted; k++) {
            for (int i = 0; i < 8; i++) {
                rg_params p = params((uint64_t)(i % 4));
                p.n_prompt = N_PROMPT - i % 4;
                p.cache_salt = i % 2 ? "a" : "b";
                r[i] = submit(e, &p);
            }
            for (int i = 0; i < 8; i++) {
                answer a = collect(r[i]);
                if (!w && !k && i < 4)
                    want[i] = a;
                same(&a, &want[i % 4]);
            }
        }
        s = rg_engine_stats(e);
        print_message("%s: %d preempted, %d swapped, %d computed again\n", ways[w], (int)s.n_preempted,
                      (int)s.n_swapped, (int)s.n_recomputed);
        assert_true(s.n_preempted > 0);
        assert_true(w == 1 ? !s.n_swapped && s.n_recomputed : w == 0 ? s.n_swapped > 0 : s.n_swapped + s.n_recomputed > 0);
        rg_close(e);
    }
}

static int set_up(void **state)
{
    (void)state;
    for (int i = 0; i < N_PROMPT; i++)
        prompt[i] = 10 + (i * i) % 300;
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sampler_and_scorer_agree),
        cmocka_unit_test(weights_are_replaced_in_place),
        cmocka_unit_test(cached_prefixes_are_dropped),
        cmocka_unit_test(reasoning_ends_with_its_budget),
        cmocka_unit_test(a_mark_that_came_by_itself_counts),
        cmocka_unit_test(predicted_texts_are_drafts),
        cmocka_unit_test(states_are_swapped_or_computed_again),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, set_up, NULL);
}
