/* Tests of the sampler: the goldens' distributions, draws against their distribution, and the properties that
 * speculation relies on. */
#include "support/test.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/numeric.h"
#include "engine/sampler.h"

enum { MAX_VOCAB = 4096 };

static rg_sampling neutral(void)
{
    return (rg_sampling){ .temperature = 1, .top_p = 1, .typical_p = 1, .repetition_penalty = 1, .n_logprobs = -1 };
}

static rg_sampler *sampler(int32_t vocab)
{
    rg_error err;
    rg_sampler *s = rg_sampler_new(vocab, 1024, &err);

    assert_ok(s, err);
    return s;
}

/* softmax of ruled logits, by libm. */
static void softmax(const float *logits, int n, double *p)
{
    double best = -INFINITY, total = 0;

    for (int i = 0; i < n; i++)
        best = fmax(best, (double)logits[i]);
    for (int i = 0; i < n; i++)
        total += p[i] = exp((double)logits[i] - best);
    for (int i = 0; i < n; i++)
        p[i] /= total;
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static void exp_and_log_are_close(void **state)
{
    rg_rng g = { .seed = test_seed };

    (void)state;
    for (int i = 0; i < 100000; i++) {
        double x = -(double)rg_rng_unit(&g) * (i % 2 ? 700.0 : 2.0);
        double y = ((double)rg_rng_unit(&g) + 1e-9) * (i % 3 ? 1e9 : 1.0);

        assert_true(fabs(rg_exp_negative(x) - exp(x)) <= 1e-14 * exp(x));
        rg_double2 two = rg_exp_negative2((rg_double2){ x, x / 16 });
        assert_true(fabs(two[0] - exp(x)) <= 1e-11 * exp(x) && fabs(two[1] - exp(x / 16)) <= 1e-11 * exp(x / 16));
        assert_true(fabs(rg_ln(y) - log(y)) <= 1e-14 * fabs(log(y)) + 1e-300);
    }
    assert_true(rg_exp_negative(0.0) == 1.0 && rg_ln(1.0) == 0.0);
    assert_true(rg_exp_negative(-INFINITY) == 0.0 && rg_exp_negative(-1e9) == 0.0);
    for (double u = 0.5; u > 1e-10; u *= 0.5) /* near 1, where the noise is large */
        assert_true(fabs(rg_ln(1.0 - u) - log1p(-u)) <= 1e-14 * fabs(log1p(-u)));
}

/* ---- goldens ----------------------------------------------------------------------------------------------------- */

static double number(const json_t *params, const char *key, double otherwise)
{
    const json_t *v = json_object_get(params, key);

    return v ? json_number_value(v) : otherwise;
}

static int read_ids(const json_t *array, int32_t *ids)
{
    int n = (int)json_array_size(array);

    for (int i = 0; i < n; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(array, (size_t)i));
    return n;
}

/* A list of ids that is one breaker each: its first is the head. */
static rg_breakers *read_breakers(const json_t *lists)
{
    size_t n = json_array_size(lists);
    rg_breaker *all = rg_array(n, sizeof *all);
    int32_t *tails = rg_array(64, sizeof *tails), n_tails = 0;
    rg_error err;
    rg_breakers *b;

    for (size_t i = 0; i < n; i++) {
        int32_t ids[8] = { 0 }, n_ids = read_ids(json_array_get(lists, i), ids);

        all[i] = (rg_breaker){ ids[0], n_tails, n_ids - 1 };
        for (int32_t k = 1; k < n_ids; k++)
            tails[n_tails++] = ids[k];
    }
    b = rg_breakers_new(all, n, tails, &err);
    assert_ok(b, err);
    return b;
}

static void read_params(const json_t *params, rg_sampling *p)
{
    p->temperature = (float)number(params, "temperature", 1);
    p->top_k = (int32_t)number(params, "top_k", 0);
    p->top_p = (float)number(params, "top_p", 1);
    p->min_p = (float)number(params, "min_p", 0);
    p->typical_p = (float)number(params, "typical_p", 1);
    p->repetition_penalty = (float)number(params, "repetition_penalty", 1);
    p->presence_penalty = (float)number(params, "presence_penalty", 0);
    p->frequency_penalty = (float)number(params, "frequency_penalty", 0);
    p->penalty_last_n = (int32_t)number(params, "repeat_last_n", 0);
    p->dry_multiplier = (float)number(params, "dry_multiplier", 0);
    p->dry_base = (float)number(params, "dry_base", 1.75);
    p->dry_allowed_length = (int32_t)number(params, "dry_allowed_length", 2);
    p->dry_penalty_last_n = (int32_t)number(params, "dry_penalty_last_n", -1);
    p->xtc_probability = (float)number(params, "xtc_probability", 0);
    p->xtc_threshold = (float)number(params, "xtc_threshold", 0.1);
    p->top_n_sigma = (float)number(params, "top_n_sigma", 0);
    p->dynatemp_range = (float)number(params, "dynatemp_range", 0);
    p->dynatemp_exponent = (float)number(params, "dynatemp_exponent", 1);
    p->mirostat = (int32_t)number(params, "mirostat", 0);
    p->mirostat_tau = (float)number(params, "mirostat_tau", 5);
    p->mirostat_eta = (float)number(params, "mirostat_eta", 0.1);
    if (json_object_get(params, "repeat_last_n") && !p->penalty_last_n) /* llama.cpp's 0: no penalties */
        p->repetition_penalty = 1, p->presence_penalty = p->frequency_penalty = 0;
}

static int read_logits(const json_t *l, float *logits)
{
    int n = (int)json_array_size(l);

    for (int i = 0; i < n; i++)
        logits[i] = (float)json_number_value(json_array_get(l, (size_t)i));
    return n;
}

/* softmax of ruled logits is the golden distribution. */
static void check_probs(const char *name, const float *logits, int n, const json_t *want, double within)
{
    double probs[256];

    softmax(logits, n, probs);
    for (int i = 0; i < n; i++) {
        double w = json_number_value(json_array_get(want, (size_t)i));

        if (fabs(probs[i] - w) > within)
            print_error("%s: id %d has %.9f, want %.9f\n", name, i, probs[i], w);
        assert_true(fabs(probs[i] - w) <= within);
    }
}

static void check_case(const json_t *c)
{
    const json_t *params = json_object_get(c, "params"), *breakers = json_object_get(c, "breakers");
    int32_t prompt[256] = { 0 }, output[64] = { 0 };
    rg_sample_place at = { .history = { .prompt = prompt, .output = output } };
    rg_sampling p = neutral();
    rg_logit_bias bias[16];
    rg_breakers *b = breakers ? read_breakers(breakers) : NULL;
    const char *key;
    json_t *value;
    float logits[256];
    int n = read_logits(json_object_get(c, "logits"), logits);
    rg_sampler *s = sampler(n);

    at.history.n_prompt = read_ids(json_object_get(c, "prompt"), prompt);
    at.history.n_output = read_ids(json_object_get(c, "output"), output);
    at.breakers = b;
    read_params(params, &p);
    p.bias = bias;
    json_object_foreach(json_object_get(params, "logit_bias"), key, value)
    {
        bias[p.n_bias++] = (rg_logit_bias){ atoi(key), (float)json_number_value(value) };
    }
    rg_sample_rules(s, logits, &p, &at);
    check_probs(json_string_value(json_object_get(c, "name")), logits, n, json_object_get(c, "probs"), 1e-6);
    rg_breakers_unref(b);
    rg_sampler_free(s);
}

/* One step after the other: the distribution under the bound mu, and the bound after the id that was drawn. */
static void check_mirostat(const json_t *c)
{
    const json_t *step;
    rg_sampling p = neutral();
    float mu;
    size_t k;

    read_params(json_object_get(c, "params"), &p);
    mu = rg_mirostat_begin(&p);
    json_array_foreach(json_object_get(c, "steps"), k, step) {
        float logits[256];
        int n = read_logits(json_object_get(step, "logits"), logits);
        rg_sampler *s = sampler(n);

        assert_true(fabs((double)mu - number(step, "mu", 0)) < 1e-4);
        mu = (float)number(step, "mu", 0); /* rounding does not add up */
        rg_sample_rules(s, logits, &p, &(rg_sample_place){ .mu = mu });
        check_probs(json_string_value(json_object_get(c, "name")), logits, n, json_object_get(step, "probs"), 1e-6);
        mu = rg_mirostat_next(s, logits, &p, mu, (int32_t)number(step, "id", 0));
        assert_true(fabs((double)mu - number(step, "mu_after", 0)) < 1e-4);
        rg_sampler_free(s);
    }
}

static void check_file(const char *name, size_t n_cases)
{
    json_error_t err;
    json_t *cases = json_load_file(test_data(name), 0, &err), *c;
    size_t i;

    assert_non_null(cases);
    assert_int_equal(json_array_size(cases), n_cases);
    json_array_foreach(cases, i, c) {
        if (json_object_get(c, "steps"))
            check_mirostat(c);
        else
            check_case(c);
    }
    json_decref(cases);
}

static void distributions_equal_the_goldens(void **state)
{
    (void)state;
    check_file("sampling.json", 56);
}

/* sampling-llama.json is what llama.cpp's own samplers made of logits: a program that includes its llama-sampler.cpp
 * (build 11434) applied penalties, DRY, top-n-sigma, temperature, min-p, top-k and XTC, or temperature and mirostat, in
 * this order, and wrote the softmax of what was left; and, of mirostat, mu before and after each id that it drew. */
static void distributions_equal_those_of_llama_cpp(void **state)
{
    (void)state;
    check_file("sampling-llama.json", 61);
}

/* ---- filters against a plain sort -------------------------------------------------------------------------------- */

typedef struct item {
    float logit;
    int32_t id;
} item;

static int by_logit(const void *a, const void *b)
{
    const item *x = a, *y = b;

    return x->logit != y->logit ? (x->logit < y->logit ? 1 : -1) : x->id - y->id;
}

/* What top-k, then top-p leave, from a full sort. */
static int kept_by_sorting(const float *logits, int n, const rg_sampling *p, bool *kept)
{
    static item items[MAX_VOCAB];
    double total = 0, sum = 0;
    int n_kept = 0;

    for (int i = 0; i < n; i++)
        items[i] = (item){ logits[i], i };
    qsort(items, (size_t)n, sizeof *items, by_logit);
    memset(kept, 0, MAX_VOCAB * sizeof *kept);
    if (p->top_k && p->top_k < n)
        n = p->top_k;
    for (int i = 0; i < n; i++)
        total += exp((double)items[i].logit - (double)items[0].logit);
    while (n_kept < n && (n_kept == 0 || sum < (double)p->top_p * total)) {
        sum += exp((double)items[n_kept].logit - (double)items[0].logit);
        kept[items[n_kept++].id] = true;
    }
    return n_kept;
}

static void filters_agree_with_a_sort(void **state)
{
    static float logits[MAX_VOCAB];
    static bool kept[MAX_VOCAB];
    rg_rng g = { .seed = test_seed };

    (void)state;
    for (int round = 0; round < 300; round++) {
        int n = 1 + (int)rg_rng_below(&g, round % 10 ? 100 : MAX_VOCAB), wrong = 0;
        bool ties = rg_rng_below(&g, 2);
        rg_sampler *s = sampler(n);
        rg_sampling p = neutral();

        p.top_k = rg_rng_below(&g, 2) ? 1 + (int32_t)rg_rng_below(&g, (uint32_t)n) : 0;
        p.top_p = rg_rng_below(&g, 2) ? rg_rng_unit(&g) * 0.98f + 0.01f : 1.0f;
        for (int i = 0; i < n; i++)
            logits[i] = ties ? (float)rg_rng_below(&g, 5) : rg_rng_normal(&g) * 3;
        kept_by_sorting(logits, n, &p, kept);
        rg_sample_rules(s, logits, &p, &(rg_sample_place){ 0 });
        for (int i = 0; i < n; i++)
            wrong += (logits[i] > -INFINITY) != kept[i];
        assert_int_equal(wrong, 0);
        rg_sampler_free(s);
    }
}

/* ---- hostile values ---------------------------------------------------------------------------------------------- */

static void nothing_left_keeps_the_best(void **state)
{
    int32_t all[4] = { 0, 1, 2, 3 };
    float logits[4] = { 1, 3, NAN, 2 }, none[4] = { NAN, NAN, -INFINITY, NAN };
    rg_sampling p = neutral();
    rg_sampler *s = sampler(4);

    (void)state;
    rg_sample_rules(s, logits, &p, &(rg_sample_place){ .banned = all, .n_banned = 4 });
    assert_int_equal(rg_sample_draw(s, logits, &p, &(rg_sample_key){ 0 }), 1);
    assert_true(logits[0] == -INFINITY && logits[2] == -INFINITY && logits[3] == -INFINITY);
    rg_sample_rules(s, none, &p, &(rg_sample_place){ 0 });
    assert_int_equal(rg_sample_draw(s, none, &p, &(rg_sample_key){ 0 }), 0);
    rg_sampler_free(s);
}

static void any_logits_give_an_id(void **state)
{
    static const float odd[] = { NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 0, 1, 1e-42f };
    rg_rng g = { .seed = test_seed };
    rg_sampler *s = sampler(37);

    (void)state;
    for (int round = 0; round < 20000; round++) {
        int32_t out[8], id;
        rg_history h = { .output = out, .n_output = 8 };
        rg_sampling p = neutral();
        float logits[37], raw[37];
        rg_top top[5];

        for (int i = 0; i < 8; i++)
            out[i] = (int32_t)rg_rng_below(&g, 37);
        for (int i = 0; i < 37; i++)
            raw[i] = logits[i] = rg_rng_below(&g, 3) ? rg_rng_normal(&g) : odd[rg_rng_below(&g, RG_LEN(odd))];
        p.temperature = rg_rng_below(&g, 2) ? 1e-40f : rg_rng_unit(&g) * 2;
        p.top_p = rg_rng_below(&g, 2) ? 1 : 0.5f;
        p.typical_p = rg_rng_below(&g, 2) ? 1 : 0.5f;
        p.top_k = (int32_t)rg_rng_below(&g, 40);
        p.min_p = rg_rng_below(&g, 2) ? 0 : 0.2f;
        p.repetition_penalty = rg_rng_below(&g, 2) ? 1 : 1e6f;
        p.frequency_penalty = rg_rng_below(&g, 2) ? 0 : -1e6f;
        rg_sample_rules(s, logits, &p, &(rg_sample_place){ .history = h });
        id = rg_sample_draw(s, logits, &p, &(rg_sample_key){ .seed = rg_rng_u64(&g) });
        assert_true(id >= 0 && id < 37 && logits[id] > -INFINITY);
        assert_false(isnan(rg_logprobs(s, raw, id, 5, top)));
        for (int i = 1; i < 5; i++)
            assert_true(top[i - 1].logprob >= top[i].logprob);
    }
    rg_sampler_free(s);
}

static void bad_values_are_refused(void **state)
{
    const rg_logit_bias outside = { 10, 1 }, nan_bias = { 1, NAN };
    rg_sampling good = neutral(), p;
    rg_error err;

    (void)state;
    assert_ok(rg_sampling_check(&good, 10, &err), err);
#define REFUSED(field, value)                                                                                          \
    do {                                                                                                               \
        p = good;                                                                                                      \
        p.field = (value);                                                                                             \
        err.code = RG_OK;                                                                                              \
        assert_false(rg_sampling_check(&p, 10, &err));                                                                 \
        assert_int_equal(err.code, RG_E_INPUT);                                                                        \
    } while (0)
    REFUSED(temperature, NAN);
    REFUSED(temperature, -0.1f);
    REFUSED(temperature, INFINITY);
    REFUSED(top_k, -1);
    REFUSED(top_p, 0);
    REFUSED(top_p, 1.01f);
    REFUSED(min_p, -0.1f);
    REFUSED(typical_p, NAN);
    REFUSED(repetition_penalty, 0);
    REFUSED(presence_penalty, NAN);
    REFUSED(frequency_penalty, INFINITY);
    REFUSED(min_tokens, -1);
    REFUSED(n_logprobs, -2);
    REFUSED(n_logprobs, 11);
    REFUSED(n_bias, 1);
    good.n_bias = 1;
    REFUSED(bias, &outside);
    REFUSED(bias, &nan_bias);
#undef REFUSED
}

/* ---- draws ------------------------------------------------------------------------------------------------------- */

/* Chi-square of 200,000 draws over 48 ids: 47 degrees of freedom, 95.0 is the 0.9999 quantile (seeded: no chance). */
static void draws_follow_the_distribution(void **state)
{
    enum { N = 48, DRAWS = 200000 };
    rg_rng g = { .seed = 3 };
    rg_sampling p = neutral();
    rg_sampler *s = sampler(N);
    int count[N] = { 0 };
    float logits[N];
    double probs[N], chi = 0;

    (void)state;
    for (int i = 0; i < N; i++)
        logits[i] = rg_rng_normal(&g);
    softmax(logits, N, probs);
    for (int i = 0; i < DRAWS; i++) {
        rg_sample_key key = { .seed = 99, .sample = i % 3, .draw = i % 2, .position = i };
        count[rg_sample_draw(s, logits, &p, &key)]++;
    }
    for (int i = 0; i < N; i++) {
        double want = probs[i] * DRAWS;
        chi += (count[i] - want) * (count[i] - want) / want;
    }
    assert_true(chi < 95.0);
    rg_sampler_free(s);
}

/* The shortcuts of the draw change nothing: it is the argmax of logit + noise, ties to the lowest id. */
static void a_draw_is_the_argmax(void **state)
{
    static float logits[MAX_VOCAB];
    rg_rng g = { .seed = test_seed };
    rg_sampling p = neutral();

    (void)state;
    for (int round = 0; round < 400; round++) {
        int n = 1 + (int)rg_rng_below(&g, round % 20 ? 200 : MAX_VOCAB), best = -1;
        rg_sample_key key = { rg_rng_u64(&g), (int32_t)rg_rng_below(&g, 9), (int32_t)rg_rng_below(&g, 3), round };
        rg_sampler *s = sampler(n);
        float scale = round % 3 ? 2.0f : 20.0f;
        double best_score = -INFINITY;

        for (int i = 0; i < n; i++) {
            double score;

            logits[i] = rg_rng_below(&g, 5) ? rg_rng_normal(&g) * scale : -INFINITY;
            if (i == 0)
                logits[i] = 0;
            score = (double)logits[i] + (double)rg_sample_noise(&key, i);
            if (score > best_score) {
                best_score = score;
                best = i;
            }
        }
        assert_int_equal(rg_sample_draw(s, logits, &p, &key), best);
        rg_sampler_free(s);
    }
}

static void greedy_takes_the_lowest_of_the_best(void **state)
{
    float logits[9] = { 0, 5, 1, 5, 2, 5, NAN, -INFINITY, 4 };
    rg_sampling p = neutral();
    rg_sampler *s = sampler(9);

    (void)state;
    p.temperature = 0;
    p.top_k = 2;
    rg_sample_rules(s, logits, &p, &(rg_sample_place){ 0 });
    assert_int_equal(rg_sample_draw(s, logits, &p, &(rg_sample_key){ .seed = 5 }), 1);
    rg_sampler_free(s);
}

/* Every part of the key matters, and nothing else does. */
static void noise_depends_on_all_of_its_key(void **state)
{
    rg_sample_key key = { .seed = 1, .sample = 2, .draw = 3, .position = 4 }, other;
    float was = rg_sample_noise(&key, 9);

    (void)state;
    assert_true(rg_sample_noise(&key, 9) == was);
    assert_true(rg_sample_noise(&key, 8) != was && rg_sample_noise(&key, 13) != was);
    for (int i = 0; i < 5; i++) {
        other = key;
        other.seed += i == 0 ? 1 : i == 1 ? (uint64_t)1 << 32 : 0;
        other.sample += i == 2;
        other.draw += i == 3;
        other.position += i == 4;
        assert_true(rg_sample_noise(&other, 9) != was);
    }
}

/* Fixed bits, so that another machine or compiler that differs is found out. */
static void noise_has_these_bits(void **state)
{
    rg_sample_key key = { .seed = 0x0123456789abcdefu, .sample = 1, .draw = 0, .position = 77 };
    uint32_t bits, hash = 0;

    (void)state;
    for (int i = 0; i < 1000; i++) {
        float x = rg_sample_noise(&key, i);

        memcpy(&bits, &x, sizeof bits);
        hash = (hash ^ bits) * 0x01000193u;
    }
    assert_int_equal(hash, 0xbb3d893f);
}

static void logprobs_are_those_of_the_raw_logits(void **state)
{
    enum { N = 1000 };
    static float logits[N];
    static double probs[N];
    rg_rng g = { .seed = test_seed };
    rg_sampler *s = sampler(N);
    rg_top top[20];

    (void)state;
    for (int i = 0; i < N; i++)
        logits[i] = rg_rng_normal(&g) * 4;
    logits[700] = logits[30]; /* a tie */
    softmax(logits, N, probs);
    for (int k = 0; k <= 20; k += 4) {
        float chosen = rg_logprobs(s, logits, 30, k, top);

        assert_true(fabs((double)chosen - log(probs[30])) < 1e-5);
        for (int i = 0; i < k; i++) {
            int n_better = 0;

            for (int j = 0; j < N; j++)
                n_better += logits[j] > logits[top[i].id] || (logits[j] == logits[top[i].id] && j < top[i].id);
            assert_int_equal(n_better, i);
            assert_true(fabs((double)top[i].logprob - log(probs[top[i].id])) < 1e-5);
        }
    }
    rg_sampler_free(s);
}

/* The first guess is the draw, and the others follow in the order of its race; without its noise, in that of the logits. */
static void guesses_are_in_the_order_of_the_draw(void **state)
{
    enum { N = 301, K = 7 };
    rg_sampler *s = rg_sampler_new(N, 1024, NULL);
    rg_rng g = { .seed = test_seed };
    float logits[N], score[N];
    rg_guess best[K];

    (void)state;
    for (int k = 0; k < test_scale(200); k++) {
        const bool noisy = k % 3 > 0;
        const rg_sample_key key = { .seed = rg_rng_u64(&g), .sample = k, .position = 3 * k };
        const rg_sampling p = { .temperature = k % 5 ? 1.0f : 0 };
        int n_left = 0;

        for (int i = 0; i < N; i++) {
            logits[i] = rg_rng_below(&g, k % 4 ? 8 : 100) ? rg_rng_unit(&g) * 8 : -INFINITY;
            score[i] = logits[i] + (noisy && p.temperature > 0 ? rg_sample_noise(&key, i) : 0);
            n_left += logits[i] > -INFINITY;
        }
        const int32_t n = rg_sample_best(logits, N, &p, noisy ? &key : NULL, K, best);
        assert_int_equal(n, n_left < K ? n_left : K);
        assert_true(!noisy || best[0].id == rg_sample_draw(s, logits, &p, &key));
        for (int i = 0; i < n; i++) {
            int n_before = 0;

            for (int j = 0; j < N; j++)
                n_before += score[j] > score[best[i].id] || (score[j] == score[best[i].id] && j < best[i].id);
            assert_int_equal(n_before, i);
            assert_true(best[i].logprob <= 0 && (i == 0 || best[i].logprob <= best[i - 1].logprob));
        }
    }
    rg_sampler_free(s);
}

/* What is no id, of a prompt that has given rows, is passed over, and no run goes across it: equal numbers are not alike. */
static void rules_pass_over_given_rows(void **state)
{
    static const struct {
        rg_sampling p;
        int32_t ids[10], n; /* of a prompt; below 0: given rows */
        int32_t like[10], n_like; /* ids that change logits alike */
    } cases[] = {
        { { .repetition_penalty = 1.5f }, { 3, -2, 5, -3, 3 }, 5, { 3, 5, 3 }, 3 },
        { { .repetition_penalty = 1.5f, .penalty_last_n = 3 }, { 3, 7, -2, 5, -3 }, 5, { 5 }, 1 },
        { { .repetition_penalty = 1, .frequency_penalty = 0.5f, .penalty_last_n = -1 }, { 3, -1, 5, -3, 3 }, 5, { 3, 5, 3 }, 3 },
        { { .repetition_penalty = 1, .presence_penalty = 0.5f, .penalty_last_n = -1 }, { -9, -9, -9 }, 3, { 0 }, 0 },
        { { .repetition_penalty = 1, .no_repeat_ngram = 3 }, { 1, -4, 2, 1, -4 }, 5, { 0 }, 0 },
        { { .repetition_penalty = 1, .no_repeat_ngram = 3 }, { 1, 2, -4, 1, 2 }, 5, { 0 }, 0 },
        { { .repetition_penalty = 1, .no_repeat_ngram = 3 }, { -4, 1, 2, 5, -4, 1, 2 }, 7, { 1, 2, 5, 1, 2 }, 5 },
        { { .repetition_penalty = 1, .dry_multiplier = 1, .dry_base = 2, .dry_allowed_length = 2, .dry_penalty_last_n = -1 },
          { 1, -4, 2, 6, 1, -4, 2 }, 7, { 0 }, 0 }, /* its run is 2 alone */
        { { .repetition_penalty = 1, .dry_multiplier = 1, .dry_base = 2, .dry_allowed_length = 1, .dry_penalty_last_n = -1 },
          { 1, -4, 2, 6, 1, -4, 2 }, 7, { 2, 6, 2 }, 3 },
        { { .repetition_penalty = 1, .dry_multiplier = 1, .dry_base = 2, .dry_allowed_length = 2, .dry_penalty_last_n = -1 },
          { 1, 2, -4, -5, 1, 2 }, 6, { 0 }, 0 }, /* what followed is no id */
        { { .repetition_penalty = 1, .dry_multiplier = 1, .dry_base = 2, .dry_allowed_length = 1, .dry_penalty_last_n = -1 },
          { -4, 1, -4 }, 3, { 0 }, 0 },
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        rg_sampling p = neutral();
        float got[8], want[8];
        rg_sampler *s = sampler(8);

        p.repetition_penalty = cases[i].p.repetition_penalty;
        p.frequency_penalty = cases[i].p.frequency_penalty;
        p.presence_penalty = cases[i].p.presence_penalty;
        p.penalty_last_n = cases[i].p.penalty_last_n;
        p.no_repeat_ngram = cases[i].p.no_repeat_ngram;
        p.dry_multiplier = cases[i].p.dry_multiplier;
        if (p.dry_multiplier > 0) {
            p.dry_base = cases[i].p.dry_base;
            p.dry_allowed_length = cases[i].p.dry_allowed_length;
            p.dry_penalty_last_n = cases[i].p.dry_penalty_last_n;
        }
        for (int twice = 0; twice < 2; twice++) { /* nothing is left of the first time */
            for (int k = 0; k < 8; k++)
                got[k] = want[k] = 1 + 0.25f * (float)k;
            rg_sample_rules(s, got, &p, &(rg_sample_place){ .history = { .prompt = cases[i].ids, .n_prompt = cases[i].n } });
            rg_sample_rules(s, want, &p,
                            &(rg_sample_place){ .history = { .prompt = cases[i].like, .n_prompt = cases[i].n_like } });
            for (int k = 0; k < 8; k++)
                if (got[k] != want[k])
                    fail_msg("case %zu: id %d has %g, want %g", i, k, (double)got[k], (double)want[k]);
        }
        rg_sampler_free(s);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_and_log_are_close),
        cmocka_unit_test(distributions_equal_the_goldens),
        cmocka_unit_test(distributions_equal_those_of_llama_cpp),
        cmocka_unit_test(filters_agree_with_a_sort),
        cmocka_unit_test(nothing_left_keeps_the_best),
        cmocka_unit_test(any_logits_give_an_id),
        cmocka_unit_test(bad_values_are_refused),
        cmocka_unit_test(draws_follow_the_distribution),
        cmocka_unit_test(a_draw_is_the_argmax),
        cmocka_unit_test(greedy_takes_the_lowest_of_the_best),
        cmocka_unit_test(noise_depends_on_all_of_its_key),
        cmocka_unit_test(noise_has_these_bits),
        cmocka_unit_test(guesses_are_in_the_order_of_the_draw),
        cmocka_unit_test(rules_pass_over_given_rows),
        cmocka_unit_test(logprobs_are_those_of_the_raw_logits),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
