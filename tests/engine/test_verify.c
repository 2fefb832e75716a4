/* test_verify.c -- drafts judged by chance: the arithmetic beside enumerations by the papers' definitions, and draws that
 * follow the model's distribution. */
#include "support/cases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/draw.h"
#include "engine/sampler.h"
#include "engine/verify.h"

enum { MAX_VOCAB = 32, CHAIN = 3, VOCAB = 4, MAX_BLOCKS = 400 };

static const double TOLERANCE = 1e-9, FLOAT_TOLERANCE = 1e-6; /* the latter of what was computed in float32 */

static int32_t numbers(const json_t *list, double *out, int32_t most)
{
    int32_t n = (int32_t)json_array_size(list);

    assert_true(n <= most);
    for (int32_t i = 0; i < n; i++)
        out[i] = json_number_value(json_array_get(list, (size_t)i));
    return n;
}

static double number(const json_t *v, const char *key)
{
    return json_number_value(json_object_get(v, key));
}

static int32_t integer(const json_t *v)
{
    return (int32_t)json_integer_value(v);
}

static void check_near(const json_t *want, const double *got, int32_t n)
{
    assert_int_equal(json_array_size(want), n);
    for (int32_t i = 0; i < n; i++)
        if (!(fabs(json_number_value(json_array_get(want, (size_t)i)) - got[i]) < TOLERANCE))
            fail_msg("%.12g instead of %.12g", got[i], json_number_value(json_array_get(want, (size_t)i)));
}

static int by_mass(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? 1 : x > y ? -1 : 0;
}

/* Softmax after temperature, top-k and top-p, by the definition; no two masses are equal. */
static void distribution(const double *logits, int32_t n, double temperature, int32_t top_k, double top_p, double *p)
{
    double sum = 0, best = -INFINITY, sorted[MAX_VOCAB], kept = 0, least = 0;

    for (int32_t i = 0; i < n; i++)
        best = fmax(best, logits[i]);
    for (int32_t i = 0; i < n; i++)
        sum += p[i] = temperature > 0 ? exp((logits[i] - best) / temperature) : logits[i] == best;
    for (int32_t i = 0; i < n; i++)
        sorted[i] = p[i] /= sum;
    qsort(sorted, (size_t)n, sizeof *sorted, by_mass);
    sum = 0;
    for (int32_t i = 0; i < (top_k ? top_k : n); i++)
        sum += sorted[i];
    for (int32_t i = 0; i < (top_k ? top_k : n) && kept < top_p * sum; i++)
        kept += least = sorted[i];
    sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += p[i] = p[i] < least || p[i] == 0 ? 0 : p[i];
    for (int32_t i = 0; i < n; i++)
        p[i] /= sum;
}

/* ---- chains ------------------------------------------------------------------------------------------------------ */

/* What one round can emit: ids and how likely they are.  A place in the tables: ids of a prefix as digits, after those
 * of shorter ones. */
typedef struct one_round {
    const json_t *c;
    double target[85][VOCAB], draft[21][VOCAB];
    double block[85 * VOCAB]; /* by place of all ids but the last, and the last */
    double accepted[CHAIN + 1];
    bool argmax;
} one_round;

static int32_t place_after(int32_t place, int32_t id)
{
    return place * VOCAB + 1 + id;
}

static void read_round(const json_t *all, const json_t *c, one_round *r)
{
    const json_t *table = json_array_get(json_object_get(all, "tables"), (size_t)integer(json_object_get(c, "table")));
    double logits[VOCAB];

    *r = (one_round){ .c = c, .argmax = !strcmp(json_string_value(json_object_get(c, "draft")), "argmax") };
    for (int32_t i = 0; i < 85; i++) {
        const json_t *prefix = json_array_get(json_object_get(table, "prefixes"), (size_t)i);
        int32_t place = 0, top_k = integer(json_object_get(c, "top_k"));

        for (size_t k = 0; k < json_array_size(prefix); k++)
            place = place_after(place, integer(json_array_get(prefix, k)));
        numbers(json_array_get(json_object_get(table, "target"), (size_t)i), logits, VOCAB);
        distribution(logits, VOCAB, number(c, "temperature"), top_k, number(c, "top_p"), r->target[place]);
        if (place >= 21)
            continue;
        numbers(json_array_get(json_object_get(table, "draft"), (size_t)i), logits, VOCAB);
        if (r->argmax)
            distribution(logits, VOCAB, 0, 0, 1, r->draft[place]);
        else
            distribution(logits, VOCAB, number(c, "temperature"), top_k, number(c, "top_p"), r->draft[place]);
    }
}

/* All that can follow a place with this many ids, reached with this chance. */
static void enumerate(one_round *r, int32_t place, int32_t depth, double chance)
{
    if (depth == CHAIN) {
        r->accepted[CHAIN] += chance;
        for (int32_t i = 0; i < VOCAB; i++)
            r->block[place * VOCAB + i] += chance * r->target[place][i];
        return;
    }
    for (int32_t x = 0; x < VOCAB; x++) {
        const double *d = r->argmax ? NULL : r->draft[place];
        double drafted = r->draft[place][x], left[VOCAB], stands;

        if (drafted == 0)
            continue;
        memcpy(left, r->target[place], sizeof left);
        stands = rg_verify_chance(left, x, d);
        enumerate(r, place_after(place, x), depth + 1, chance * drafted * stands);
        if (stands == 1)
            continue;
        assert_true(rg_verify_reject(left, VOCAB, x, d));
        r->accepted[depth] += chance * drafted * (1 - stands);
        for (int32_t i = 0; i < VOCAB; i++)
            r->block[place * VOCAB + i] += chance * drafted * (1 - stands) * left[i];
    }
}

static int32_t block_place(const json_t *ids)
{
    int32_t place = 0;
    size_t n = json_array_size(ids);

    for (size_t k = 0; k + 1 < n; k++)
        place = place_after(place, integer(json_array_get(ids, k)));
    return place * VOCAB + integer(json_array_get(ids, n - 1));
}

static void chains_are_accepted_as_enumerated(void **state)
{
    json_t *all = cases_load("speculation/acceptance/chain.json"), *c, *block;
    size_t k, i;

    (void)state;
    json_array_foreach(json_object_get(all, "cases"), k, c) {
        one_round r;
        double sum = 0, expected = 0;

        read_round(all, c, &r);
        check_near(json_object_get(c, "first_target"), r.target[0], VOCAB);
        check_near(json_object_get(c, "first_draft"), r.draft[0], VOCAB);
        enumerate(&r, 0, 0, 1);
        check_near(json_object_get(c, "accepted"), r.accepted, CHAIN + 1);
        for (int32_t n = 0; n <= CHAIN; n++)
            expected += n * r.accepted[n];
        assert_true(fabs(expected - number(c, "expected_accepted")) < TOLERANCE);
        json_array_foreach(json_object_get(c, "blocks"), i, block) {
            double want = json_number_value(json_array_get(block, 1));

            assert_true(fabs(r.block[block_place(json_array_get(block, 0))] - want) < TOLERANCE);
            sum += want;
        }
        assert_true(fabs(sum - 1) < 1e-6);
    }
    assert_int_equal(k, 27);
    json_decref(all);
}

/* ---- siblings ---------------------------------------------------------------------------------------------------- */

typedef struct tries {
    int32_t n_vocab, n;
    bool again;          /* an id may be drawn twice */
    double stands[8];    /* by the try; of none, last */
    double out[MAX_VOCAB];
} tries;

/* Try number k: a guess drawn from d, judged by what is left of t. */
static void enumerate_tries(tries *all, const double *t, const double *d, int32_t k, double chance)
{
    int32_t n = all->n_vocab;

    if (k == all->n) {
        all->stands[k] += chance;
        for (int32_t i = 0; i < n; i++)
            all->out[i] += chance * t[i];
        return;
    }
    for (int32_t x = 0; x < n; x++) {
        double left[MAX_VOCAB], next[MAX_VOCAB], stands = rg_verify_chance(t, x, d);

        if (d[x] == 0)
            continue;
        all->stands[k] += chance * d[x] * stands;
        all->out[x] += chance * d[x] * stands;
        if (stands >= 1)
            continue;
        memcpy(left, t, (size_t)n * sizeof *left);
        memcpy(next, d, (size_t)n * sizeof *next);
        assert_true(rg_verify_reject(left, n, x, d));
        if (all->again || rg_verify_without(next, n, x)) {
            enumerate_tries(all, left, next, k + 1, chance * d[x] * (1 - stands));
            continue;
        }
        all->stands[all->n] += chance * d[x] * (1 - stands); /* the drafter has no id left */
        for (int32_t i = 0; i < n; i++)
            all->out[i] += chance * d[x] * (1 - stands) * left[i];
    }
}

static void check_tries(const json_t *c, const double *t, const double *d, int32_t n_vocab)
{
    static const char *const kinds[] = { "independent", "without_replacement" };

    for (int32_t k = 1; k <= 4; k++)
        for (int32_t kind = 0; kind < 2; kind++) {
            tries all = { .n_vocab = n_vocab, .n = k, .again = kind == 0 };
            char key[64];

            snprintf(key, sizeof key, "%s.%d", kinds[kind], (int)k);
            enumerate_tries(&all, t, d, 0, 1);
            check_near(json_object_get(c, key), all.stands, k + 1);
            check_near(json_object_get(c, "target"), all.out, n_vocab);
        }
}

/* Fixed guesses, one after the other. */
static void check_fixed(const json_t *c, const double *target, int32_t n)
{
    const json_t *top = json_object_get(c, "top4"), *ids = json_object_get(top, "ids");
    double t[MAX_VOCAB], chance = 1, got[8] = { 0 };
    size_t n_ids = json_array_size(ids);

    memcpy(t, target, sizeof t);
    for (size_t k = 0; k < n_ids; k++) {
        int32_t id = integer(json_array_get(ids, k));
        double stands = rg_verify_chance(t, id, NULL);

        got[k] = chance * stands;
        chance *= 1 - stands;
        if (rg_verify_reject(t, n, id, NULL) && chance > TOLERANCE)
            check_near(json_array_get(json_object_get(top, "residuals"), k), t, n);
    }
    got[n_ids] = chance;
    check_near(json_object_get(top, "accepted"), got, (int32_t)n_ids + 1);
}

static void check_steps(const json_t *c, const double *target, const double *draft, int32_t n)
{
    double t[MAX_VOCAB], d[MAX_VOCAB];
    json_t *step;
    size_t k;

    memcpy(t, target, sizeof t);
    memcpy(d, draft, sizeof d);
    json_array_foreach(json_object_get(c, "trace"), k, step) {
        int32_t id = integer(json_object_get(step, "id"));

        assert_true(fabs(rg_verify_chance(t, id, d) - number(step, "accept")) < TOLERANCE);
        rg_verify_reject(t, n, id, d);
        check_near(json_object_get(step, "residual"), t, n);
        if (!rg_verify_without(d, n, id))
            d[id] = 0; /* it has no id left */
        check_near(json_object_get(step, "draft"), d, n);
    }
}

static void siblings_are_accepted_as_enumerated(void **state)
{
    json_t *all = cases_load("speculation/acceptance/siblings.json"), *c;
    size_t k;

    (void)state;
    json_array_foreach(all, k, c) {
        double logits[MAX_VOCAB], t[MAX_VOCAB] = { 0 }, d[MAX_VOCAB] = { 0 };
        int32_t n = numbers(json_object_get(c, "target_logits"), logits, MAX_VOCAB);

        distribution(logits, n, number(c, "temperature"), 0, number(c, "top_p"), t);
        check_near(json_object_get(c, "target"), t, n);
        numbers(json_object_get(c, "draft_logits"), logits, MAX_VOCAB);
        distribution(logits, n, number(c, "temperature"), 0, number(c, "top_p"), d);
        check_near(json_object_get(c, "draft"), d, n);
        check_tries(c, t, d, n);
        check_fixed(c, t, n);
        check_steps(c, t, d, n);
    }
    assert_int_equal(k, 18);
    json_decref(all);
}

/* ---- typical ----------------------------------------------------------------------------------------------------- */

static void check_typical(const json_t *c)
{
    const json_t *logits = json_object_get(c, "logits"), *candidates = json_object_get(c, "candidates");
    rg_typical typical = { number(c, "epsilon"), number(c, "delta") };
    int32_t n_paths = (int32_t)json_array_size(candidates), n = 0, parent[128], path[128], last[128];
    bool stands[128];
    double log_p[128];

    for (int32_t k = 0; k < n_paths; k++) {
        const json_t *rows = json_array_get(logits, (size_t)k);
        int32_t depth = (int32_t)json_array_size(rows), length = 0;

        for (int32_t i = 0; i < depth; i++) {
            double row[MAX_VOCAB], p[MAX_VOCAB], entropy, least;
            int32_t n_vocab = numbers(json_array_get(rows, (size_t)i), row, MAX_VOCAB), n_ids = 0;
            const json_t *ids = json_array_get(json_array_get(json_object_get(c, "accepted_ids"), (size_t)k), (size_t)i);

            distribution(row, n_vocab, number(c, "temperature"), 0, 1, p);
            entropy = rg_typical_entropy(p, n_vocab);
            least = rg_typical_threshold(&typical, entropy);
            assert_true(fabs(entropy - json_number_value(json_array_get(json_array_get(
                                           json_object_get(c, "entropy"), (size_t)k), (size_t)i))) < FLOAT_TOLERANCE);
            assert_true(fabs(least - json_number_value(json_array_get(json_array_get(
                                         json_object_get(c, "threshold"), (size_t)k), (size_t)i))) < FLOAT_TOLERANCE);
            for (int32_t id = 0; id < n_vocab; id++)
                if (p[id] > least)
                    assert_int_equal(integer(json_array_get(ids, (size_t)n_ids++)), id);
            assert_int_equal(n_ids, json_array_size(ids));
            if (i + 1 == depth)
                break;
            int32_t id = integer(json_array_get(json_array_get(candidates, (size_t)k), (size_t)i + 1));
            parent[n] = i ? n - 1 : -1;
            stands[n] = p[id] > least;
            log_p[n] = stands[n] ? log(p[id]) : -INFINITY;
            length += stands[n] && length == i;
            last[n++] = k;
        }
        assert_int_equal(length, integer(json_array_get(json_object_get(c, "path_lengths"), (size_t)k)));
    }
    int32_t length = rg_typical_path(parent, stands, log_p, n, path);
    assert_int_equal(length, integer(json_object_get(c, "length")));
    if (length)
        assert_int_equal(last[path[length - 1]], integer(json_object_get(c, "best")));
}

static void typical_ids_and_paths_are_the_authors(void **state)
{
    json_t *all = cases_load("speculation/acceptance/typical.json"), *c;
    size_t k;

    (void)state;
    json_array_foreach(all, k, c)
        check_typical(c);
    assert_int_equal(k, 24);
    json_decref(all);
}

/* ---- draws ------------------------------------------------------------------------------------------------------- */

typedef struct drawing {
    const one_round *round;
    rg_sample_scratch *scratch;
    rg_request *r;
    float from[CHAIN][VOCAB];
} drawing;

static void logits_of(const double *p, float *out)
{
    for (int32_t i = 0; i < VOCAB; i++)
        out[i] = p[i] > 0 ? (float)log(p[i]) : -INFINITY;
}

static void shift_finite(float *logits)
{
    for (int32_t i = 0; i < VOCAB; i++)
        logits[i] = logits[i] == -INFINITY ? -1000 : logits[i];
}

/* One round: drafted ids, judged; the place of what is emitted.  The distributions have all rules in them already. */
static int32_t draw_round(drawing *d, int32_t n_seed)
{
    int32_t ids[CHAIN], place = 0, at = 0;
    float logits[VOCAB];

    d->r->params.sampling.seed = (uint64_t)n_seed;
    for (int32_t k = 0; k < CHAIN; k++) {
        rg_draw_place p = { .request = d->r, .draft = ids, .n_draft = k, .guess = true, .distribution = d->from[k] };

        logits_of(d->round->draft[place], logits);
        shift_finite(logits);
        ids[k] = rg_draw(d->scratch, 0, &p, logits).id;
        place = place_after(place, ids[k]);
    }
    for (int32_t k = 0; k <= CHAIN; k++) {
        rg_draw_guess guess = { .id = k < CHAIN ? ids[k] : 0, .from = d->round->argmax ? NULL : d->from[k % CHAIN] };
        rg_draw_place p = { .request = d->r, .draft = ids, .n_draft = k, .verify = RG_VERIFY_REJECTION,
                            .guesses = &guess, .n_guesses = k < CHAIN };
        int32_t id;

        logits_of(d->round->target[at], logits);
        shift_finite(logits);
        id = rg_draw(d->scratch, 0, &p, logits).id;
        if (k == CHAIN || id != ids[k])
            return at * VOCAB + id;
        at = place_after(at, id);
    }
    return -1;
}

/* What is emitted follows the enumerated chances. */
static void check_draws(drawing *d, int32_t n_rounds)
{
    static int32_t counts[85 * VOCAB];
    double chi = 0, rest = 0, n_rest = 0;
    int n_free = -1;

    memset(counts, 0, sizeof counts);
    for (int32_t i = 0; i < n_rounds; i++) {
        int32_t block = draw_round(d, i);

        assert_true(block >= 0 && block < 85 * VOCAB);
        counts[block]++;
    }
    for (int32_t i = 0; i < 85 * VOCAB; i++) {
        double want = d->round->block[i] * n_rounds;

        if (want < 5) { /* too rare each: together */
            rest += want;
            n_rest += counts[i];
            continue;
        }
        chi += (counts[i] - want) * (counts[i] - want) / want;
        n_free++;
    }
    if (rest >= 5) {
        chi += (n_rest - rest) * (n_rest - rest) / rest;
        n_free++;
    }
    /* Five standard deviations of a chi-square's cube root (Wilson and Hilferty). */
    if (n_free > 0) {
        double k = 2.0 / (9 * n_free), z = (pow(chi / n_free, 1.0 / 3) - (1 - k)) / sqrt(k);

        if (z > 5)
            fail_msg("chi-square %.1f of %d", chi, n_free);
    }
    assert_true(n_free > 0 || chi < 25);
}

static void draws_follow_the_model(void **state)
{
    json_t *all = cases_load("speculation/acceptance/chain.json"), *c;
    rg_request_model m = { .vocab_size = VOCAB, .max_seq_len = 64, .max_draft = CHAIN };
    int32_t prompt = 0;
    size_t k;

    (void)state;
    json_array_foreach(json_object_get(all, "cases"), k, c) {
        rg_params p = { .prompt = &prompt, .n_prompt = 1, .max_tokens = 8, .n_samples = 1,
                        .sampling = { .temperature = 1, .top_p = 1, .typical_p = 1, .repetition_penalty = 1,
                                      .n_logprobs = -1 } };
        rg_error err = { 0 };
        one_round r;
        drawing d = { .round = &r };

        if (!test_all() && k % 4)
            continue;
        read_round(all, c, &r);
        enumerate(&r, 0, 0, 1);
        d.r = rg_request_new(&p, &m, &err);
        assert_ok(d.r, err);
        d.scratch = rg_sample_scratch_new(1, VOCAB, 64, &err);
        assert_ok(d.scratch && rg_sample_scratch_judge(d.scratch, &err), err);
        check_draws(&d, test_all() ? 200000 : 20000);
        rg_sample_scratch_free(d.scratch);
        rg_request_unref(d.r);
    }
    json_decref(all);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chains_are_accepted_as_enumerated),
        cmocka_unit_test(siblings_are_accepted_as_enumerated),
        cmocka_unit_test(typical_ids_and_paths_are_the_authors),
        cmocka_unit_test(draws_follow_the_model),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
