/* test_beams.c -- beam search on models: transformers' beams, group beams and best of several (tests/golden/speculation/
 * search). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/cases.h"
#include "support/engine.h"

enum { MAX_IDS = 64, MAX_ENDS = 64, VOCAB = 320, MAX_BEAMS = 8 };

static rg_engine *open_golden(const char *name)
{
    rg_options o = test_exact_options(12);

    return test_open(test_data(name), &o);
}

static json_t *load(const char *model, const char *kind)
{
    char name[100];

    snprintf(name, sizeof name, "speculation/search/%s%s.json", model, kind);
    return cases_load(name);
}

static float real(const json_t *c, const char *key, float otherwise)
{
    const json_t *v = json_object_get(c, key);

    return v ? (float)json_number_value(v) : otherwise;
}

typedef struct golden_case {
    rg_params p;
    int32_t prompt[MAX_IDS], ends[MAX_ENDS];
} golden_case;

static void read_case(const json_t *c, golden_case *g)
{
    const json_t *eos = json_object_get(c, "eos_token_id"), *early = json_object_get(c, "early_stopping");

    g->p = (rg_params){ .prompt = g->prompt, .n_prompt = cases_ints(json_object_get(c, "prompt"), g->prompt, MAX_IDS),
                        .max_tokens = cases_int(c, "max_new_tokens"), .n_samples = cases_int(c, "num_return_sequences"),
                        .sampling = rg_sampling_default(), .stop_ids = g->ends };
    g->p.sampling.ignore_eos = true;
    g->p.sampling.repetition_penalty = real(c, "repetition_penalty", 1);
    g->p.sampling.no_repeat_ngram = cases_int(c, "no_repeat_ngram_size");
    g->p.n_stop_ids = json_is_array(eos) ? cases_ints(eos, g->ends, MAX_ENDS) : json_is_integer(eos);
    if (json_is_integer(eos))
        g->ends[0] = (int32_t)json_integer_value(eos);
    g->p.beam = (rg_beam_params){ .n_beams = cases_int(c, "num_beams"), .length_penalty = real(c, "length_penalty", 1),
                                  .early_stopping = json_is_string(early) ? RG_EARLY_STOPPING_NEVER
                                                    : json_is_true(early) ? RG_EARLY_STOPPING_TRUE
                                                                          : RG_EARLY_STOPPING_FALSE,
                                  .n_groups = cases_int(c, "num_beam_groups"), .diversity = real(c, "diversity_penalty", 0) };
}

static void check_answers(rg_request *r, const json_t *c)
{
    int32_t got[MAX_BEAMS][MAX_IDS], n[MAX_BEAMS] = { 0 }, want[MAX_IDS];
    rg_token t;

    while (rg_next(r, &t)) {
        if (t.id >= 0)
            got[t.sample][n[t.sample]++] = t.id;
        else if (t.finish == RG_FINISH_STOP)
            got[t.sample][n[t.sample]++] = t.stop_id;
        else
            assert_int_equal(t.finish, RG_FINISH_LENGTH);
    }
    for (int32_t k = 0; k < cases_int(c, "num_return_sequences"); k++) {
        double score = json_number_value(json_array_get(json_object_get(c, "scores"), (size_t)k));

        assert_int_equal(cases_ints(json_array_get(json_object_get(c, "ids"), (size_t)k), want, MAX_IDS), n[k]);
        assert_memory_equal(got[k], want, (size_t)n[k] * sizeof *want);
        assert_true(fabs(rg_request_answer_score(r, k) - score) <= 1e-4 * fabs(score));
    }
}

static const char *const models[] = { "llama", "qwen2" }, *const kinds[] = { "", ".diverse" };

static void beams_are_those_of_transformers(void **state)
{
    int n_cases = 0;

    (void)state;
    for (size_t m = 0; m < 2; m++) {
        rg_engine *e = open_golden(models[m]);

        for (size_t k = 0; k < 2; k++) {
            json_t *all = load(models[m], kinds[k]), *c;
            size_t i;

            json_array_foreach(all, i, c) {
                const char *kind = json_string_value(json_object_get(c, "kind"));
                golden_case g;
                rg_error err;

                if ((strcmp(kind, "beam") && strcmp(kind, "diverse")) || json_object_get(c, "allowed"))
                    continue;
                read_case(c, &g);
                rg_request *r = rg_submit(e, &g.p, &err);
                assert_ok(r, err);
                check_answers(r, c);
                rg_request_close(r);
                n_cases++;
            }
            json_decref(all);
        }
        rg_close(e);
    }
    assert_int_equal(n_cases, 275);
}

/* The row of log-probabilities after some ids. */
static void row_after(rg_engine *e, const int32_t *ids, int32_t n, rg_top *top)
{
    rg_params p = { .prompt = ids, .n_prompt = n, .max_tokens = 1, .n_samples = 1, .sampling = rg_sampling_default() };
    rg_error err;
    rg_token t;

    p.sampling.n_logprobs = VOCAB;
    p.sampling.ignore_eos = true;
    rg_request *r = rg_submit(e, &p, &err);
    assert_ok(r, err);
    while (rg_next(r, &t))
        if (t.id >= 0)
            memcpy(top, t.top, VOCAB * sizeof *top);
    rg_request_close(r);
}

/* What a constraint by position leaves: beams by hand, wide enough for each step, with the constraint as biases of one
 * id after the other would be; here from rows of single requests. */
static void a_constraint_leaves_the_best_that_it_allows(void **state)
{
    (void)state;
    for (size_t m = 0; m < 2; m++) {
        rg_engine *e = open_golden(models[m]);
        json_t *all = load(models[m], ""), *c;
        size_t i;

        json_array_foreach(all, i, c) {
            golden_case g;
            int32_t ids[MAX_BEAMS][MAX_IDS], n_live = 1;
            double sum[MAX_BEAMS] = { 0 };

            if (!json_object_get(c, "allowed"))
                continue;
            read_case(c, &g);
            memcpy(ids[0], g.prompt, (size_t)g.p.n_prompt * sizeof **ids);
            for (int32_t n = g.p.n_prompt; n < g.p.n_prompt + g.p.max_tokens; n++) {
                int32_t next[MAX_BEAMS][MAX_IDS], n_next = 0;
                double next_sum[MAX_BEAMS];

                for (int32_t b = 0; b < n_live; b++) {
                    rg_top top[VOCAB];

                    row_after(e, ids[b], n, top);
                    for (int32_t k = 0; k < VOCAB; k++) {
                        double s = sum[b] + (double)top[k].logprob;
                        int32_t at;

                        if (top[k].id % 3 != n % 3 || (n_next == MAX_BEAMS && s <= next_sum[n_next - 1]))
                            continue;
                        for (at = n_next < MAX_BEAMS ? n_next++ : n_next - 1; at > 0 && next_sum[at - 1] < s; at--) {
                            next_sum[at] = next_sum[at - 1];
                            memcpy(next[at], next[at - 1], sizeof next[at]);
                        }
                        next_sum[at] = s;
                        memcpy(next[at], ids[b], (size_t)n * sizeof **next);
                        next[at][n] = top[k].id;
                    }
                }
                n_live = n_next;
                memcpy(ids, next, sizeof ids);
                memcpy(sum, next_sum, sizeof sum);
            }
            for (int32_t k = 0; k < MAX_BEAMS; k++) {
                int32_t want[MAX_IDS], n = cases_ints(json_array_get(json_object_get(c, "ids"), (size_t)k), want, MAX_IDS);
                double score = json_number_value(json_array_get(json_object_get(c, "scores"), (size_t)k));

                assert_memory_equal(ids[k] + g.p.n_prompt, want, (size_t)n * sizeof *want);
                assert_true(fabs(sum[k] / n - score) <= 1e-4 * fabs(score));
            }
        }
        json_decref(all);
        rg_close(e);
    }
}

/* The log-probabilities of given candidates; and of answers drawn, those with the best means are told. */
static void the_best_of_several_are_told(void **state)
{
    rg_engine *e = open_golden("llama");
    json_t *all = load("llama", ""), *c;
    size_t i;

    (void)state;
    json_array_foreach(all, i, c) {
        const json_t *lists = json_object_get(c, "candidates"), *want = json_object_get(c, "mean");
        int32_t ids[MAX_IDS], n = cases_ints(json_object_get(c, "prompt"), ids, MAX_IDS);

        for (size_t k = 0; k < json_array_size(lists); k++) {
            int32_t n_own = cases_ints(json_array_get(lists, k), ids + n, MAX_IDS - n);
            rg_params p = { .prompt = ids, .n_prompt = n + n_own, .n_samples = 1, .prompt_logprobs = true,
                            .sampling = rg_sampling_default() };
            double sum = 0, mean = json_number_value(json_array_get(want, k));
            rg_prompt_logprob l;
            rg_error err;
            rg_token t;
            rg_request *r = rg_submit(e, &p, &err);

            assert_ok(r, err);
            while (rg_next(r, &t))
                ;
            for (int32_t at = n; at < n + n_own; at++) {
                assert_true(rg_request_prompt_logprob(r, at, &l));
                sum += (double)l.logprob;
            }
            assert_true(fabs(sum / n_own - mean) <= 1e-4 * fabs(mean));
            rg_request_close(r);
        }
    }
    json_decref(all);

    const int32_t prompt[] = { 5, 6, 7 };
    rg_params p = { .prompt = prompt, .n_prompt = 3, .max_tokens = 6, .n_samples = 8, .sampling = rg_sampling_default() };
    double means[8], told[3];
    rg_error err;
    rg_token t;
    p.sampling.n_logprobs = 0;
    p.sampling.ignore_eos = true;
    rg_request *r = rg_submit(e, &p, &err);
    assert_ok(r, err);
    memset(means, 0, sizeof means);
    while (rg_next(r, &t))
        if (t.id >= 0)
            means[t.sample] += (double)t.logprob / 6;
    rg_request_close(r);
    p.n_samples = 3;
    p.best_of = 8;
    r = rg_submit(e, &p, &err);
    assert_ok(r, err);
    memset(told, 0, sizeof told);
    while (rg_next(r, &t))
        if (t.id >= 0)
            told[t.sample] += (double)t.logprob / 6;
    assert_int_equal(rg_request_usage(r).n_output, 8 * 6);
    for (int k = 0; k < 3; k++) {
        int better = 0;

        for (int j = 0; j < 8; j++)
            better += means[j] > told[k] + 1e-9;
        assert_int_equal(better, k);
        assert_true(fabs(rg_request_answer_score(r, k) - told[k]) < 1e-6);
    }
    rg_request_close(r);
    p.best_of = 2;
    assert_null(rg_submit(e, &p, &err));
    assert_int_equal(err.code, RG_E_INPUT);
    p.best_of = 8;
    p.beam.n_beams = 4;
    assert_null(rg_submit(e, &p, &err));
    assert_int_equal(err.code, RG_E_UNSUPPORTED);
    rg_close(e);
}

/* ---- texts, log-probabilities and grammars ----------------------------------------------------------------------- */

enum { MAX_TOKENS = 24, TOPS = 3, ENDS = 2 };

static const char *const stops[] = { " and", ".", "ed " };
static const int32_t tales_ends[ENDS] = { 0, 3 };

static rg_engine *open_tales(int32_t max_seqs)
{
    rg_options o = test_exact_options(max_seqs);

    return test_open(RG_SOURCE_DIR "/models/tales-1m", &o);
}

typedef struct answer {
    int32_t ids[MAX_IDS], n;
    float logprobs[MAX_IDS];
    rg_top tops[MAX_IDS][TOPS];
    char text[2000];
    rg_finish finish;
    int32_t stop;
    double score;
} answer;

static void ask(rg_engine *e, const rg_params *p, answer *out)
{
    rg_error err;
    rg_token t;
    rg_request *r = rg_submit(e, p, &err);

    assert_ok(r, err);
    memset(out, 0, (size_t)p->n_samples * sizeof *out);
    while (rg_next(r, &t)) {
        answer *a = &out[t.sample];

        if (t.id >= 0) {
            a->logprobs[a->n] = t.logprob;
            if (t.n_top)
                memcpy(a->tops[a->n], t.top, TOPS * sizeof *t.top);
            a->ids[a->n++] = t.id;
        }
        strcat(a->text, t.text);
        a->finish = t.finish;
        a->stop = t.stop;
    }
    for (int32_t k = 0; k < p->n_samples; k++)
        out[k].score = rg_request_answer_score(r, k);
    rg_request_close(r);
}

/* Log-probabilities of ids behind a prompt, as of a prompt. */
static void score_ids(rg_engine *e, const rg_params *p, const int32_t *more, int32_t n, float *logprobs, rg_top (*tops)[TOPS])
{
    int32_t ids[2 * MAX_IDS];
    rg_params all = { .prompt = ids, .n_prompt = p->n_prompt + n, .n_samples = 1, .prompt_logprobs = true, .n_prompt_tops = TOPS,
                      .sampling = rg_sampling_default() };
    rg_prompt_logprob l;
    rg_error err;
    rg_token t;

    memcpy(ids, p->prompt, (size_t)p->n_prompt * sizeof *ids);
    memcpy(ids + p->n_prompt, more, (size_t)n * sizeof *ids);
    rg_request *r = rg_submit(e, &all, &err);
    assert_ok(r, err);
    while (rg_next(r, &t))
        ;
    for (int32_t i = 0; i < n; i++) {
        assert_true(rg_request_prompt_logprob(r, p->n_prompt + i, &l));
        logprobs[i] = l.logprob;
        if (tops)
            memcpy(tops[i], l.top, TOPS * sizeof *l.top);
    }
    rg_request_close(r);
}

static bool has_stop(rg_engine *e, const int32_t *ids, int32_t n)
{
    size_t n_text;
    bool has = false;
    rg_error err;
    char *text = rg_decode(e, ids, (size_t)n, false, &n_text, &err);

    assert_ok(text, err);
    for (size_t i = 0; i < RG_LEN(stops); i++)
        has |= strstr(text, stops[i]) != NULL;
    rg_text_free(text);
    return has;
}

/* An answer ends where its text has a stop text, and nowhere else; what is said of its ids is what they have in a
 * prompt, and their sum is its score. */
static void beams_end_at_texts_and_say_log_probabilities(void **state)
{
    static const char *const prompts[] = { "Once upon a time", "The dog was", "Tom went to the", "\"Look", "She" };
    rg_engine *e = open_tales(12);
    answer *a = calloc(6, sizeof *a);
    int n_stopped = 0, n_long = 0;

    (void)state;
    for (size_t i = 0; i < RG_LEN(prompts); i++) {
        rg_params p = { .max_tokens = 3 + (int32_t)i, .n_samples = 6, .sampling = rg_sampling_default(), .stop = stops,
                        .n_stop = RG_LEN(stops), .beam = { .n_beams = 6, .length_penalty = 1, .n_groups = i % 2 ? 2 : 1 } };
        int32_t *prompt;
        size_t n_prompt;
        rg_error err;

        p.sampling.ignore_eos = true;
        p.sampling.n_logprobs = TOPS;
        assert_ok(rg_encode(e, prompts[i], strlen(prompts[i]), RG_ENCODE_DEFAULT, &prompt, &n_prompt, &err), err);
        p.prompt = prompt;
        p.n_prompt = (int32_t)n_prompt;
        ask(e, &p, a);
        for (int k = 0; k < 6; k++) {
            float logprobs[MAX_IDS];
            rg_top tops[MAX_IDS][TOPS];
            double sum = 0;

            assert_true(a[k].n > 0);
            assert_int_equal(has_stop(e, a[k].ids, a[k].n), a[k].finish == RG_FINISH_STOP);
            assert_false(has_stop(e, a[k].ids, a[k].n - 1));
            for (size_t j = 0; j < RG_LEN(stops); j++)
                assert_null(strstr(a[k].text, stops[j]));
            assert_int_equal(a[k].stop >= 0, a[k].finish == RG_FINISH_STOP);
            n_stopped += a[k].stop >= 0;
            n_long += a[k].stop < 0;
            score_ids(e, &p, a[k].ids, a[k].n, logprobs, tops);
            assert_memory_equal(logprobs, a[k].logprobs, (size_t)a[k].n * sizeof *logprobs);
            assert_memory_equal(tops, a[k].tops, (size_t)a[k].n * sizeof *tops);
            for (int j = 0; j < a[k].n; j++)
                sum += (double)logprobs[j];
            assert_true(fabs(sum / a[k].n - a[k].score) < 1e-6);
        }
        rg_ids_free(prompt);
    }
    assert_true(n_stopped > 4 && n_long > 4);
    rg_close(e);
    free(a);
}

typedef struct found {
    double score[100];
    int32_t n;
} found;

/* All ways to write so many letters more, and their scores, best first. */
static void write_all(rg_engine *e, const rg_params *p, int32_t *ids, int32_t n, size_t left, found *out)
{
    static const char *const letters[] = { "a", "b", "ab", "bb", "aa" };
    float logprobs[MAX_IDS];

    for (int k = 0; !left && k < ENDS; k++) {
        double sum = 0;
        int32_t at = out->n++;

        ids[n] = tales_ends[k];
        score_ids(e, p, ids, n + 1, logprobs, NULL);
        for (int32_t i = 0; i <= n; i++)
            sum += (double)logprobs[i];
        for (sum /= n + 1; at > 0 && out->score[at - 1] < sum; at--)
            out->score[at] = out->score[at - 1];
        out->score[at] = sum;
    }
    for (size_t i = 0; i < RG_LEN(letters); i++) {
        int32_t *one;
        size_t n_one;
        rg_error err;

        if (strlen(letters[i]) > left)
            continue;
        assert_ok(rg_encode(e, letters[i], strlen(letters[i]), RG_ENCODE_NO_SPECIAL, &one, &n_one, &err), err);
        assert_int_equal(n_one, 1);
        ids[n] = one[0];
        rg_ids_free(one);
        write_all(e, p, ids, n + 1, left - strlen(letters[i]), out);
    }
}

/* As wide as there are answers, a search finds the best that a grammar admits, and a narrow one only such. */
static void beams_keep_to_a_grammar(void **state)
{
    const rg_grammar_source source = { .kind = RG_GRAMMAR_REGEX, .text = "[ab]{3}", .n = 7 };
    rg_engine *e = open_tales(40);
    int32_t *prompt, ids[MAX_IDS];
    answer *a = calloc(40, sizeof *a);
    found all = { .n = 0 };
    size_t n_prompt;
    rg_error err;
    rg_grammar *g = rg_grammar_new(e, &source, &err);

    (void)state;
    assert_ok(g, err);
    assert_ok(rg_encode(e, "The letters are", 15, RG_ENCODE_DEFAULT, &prompt, &n_prompt, &err), err);
    rg_params p = { .prompt = prompt, .n_prompt = (int32_t)n_prompt, .max_tokens = 8, .n_samples = 40, .grammar = g,
                    .sampling = rg_sampling_default(), .beam = { .n_beams = 40, .length_penalty = 1 } };
    write_all(e, &p, ids, 0, 3, &all);
    assert_int_equal(all.n, 40);
    ask(e, &p, a);
    for (int k = 0; k < 40; k++) {
        assert_int_equal(a[k].finish, RG_FINISH_STOP);
        assert_int_equal(strspn(a[k].text, "ab"), 3);
        assert_int_equal(strlen(a[k].text), 3);
        assert_true(fabs(a[k].score - all.score[k]) < 1e-6);
    }
    p.beam.n_beams = p.n_samples = 3;
    ask(e, &p, a);
    for (int k = 0; k < 3; k++)
        assert_true(strlen(a[k].text) == 3 && strspn(a[k].text, "ab") == 3 && a[k].score <= all.score[0] + 1e-6);
    rg_grammar_close(g);
    rg_ids_free(prompt);
    rg_close(e);
    free(a);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(beams_are_those_of_transformers),
        cmocka_unit_test(a_constraint_leaves_the_best_that_it_allows),
        cmocka_unit_test(the_best_of_several_are_told),
        cmocka_unit_test(beams_end_at_texts_and_say_log_probabilities),
        cmocka_unit_test(beams_keep_to_a_grammar),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
