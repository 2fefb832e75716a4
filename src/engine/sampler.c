/* sampler.c -- the rules, one small function each in the order of rg_sample_rules, and the draw.
 *
 * Top-k, top-p and typical-p are one filter: keep the fewest ids of least key that are k, or whose masses reach p.
 * Keys are sorted into buckets, whole buckets are kept or dropped, and only the ids of the one at the border are
 * selected among: linear, nothing sorts a vocabulary.  Sums run in a fixed order, so the same logits give the same
 * result everywhere. */
#include "engine/sampler.h"

#include <math.h> /* INFINITY, isnan: no function of libm is called */
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/numeric.h"

enum {
    N_BUCKETS = 1024,
    PER_NAT = 16, /* buckets per unit of key; the last takes all that is beyond */
};

typedef struct candidate {
    double key; /* least is best; ties go to the lowest id */
    double mass;
    int32_t id;
} candidate;

struct rg_sampler {
    int32_t vocab_size;
    int32_t *count;  /* [vocab_size] of the output's ids; all 0 between calls */
    candidate *list; /* [vocab_size] */
    double bucket[N_BUCKETS];
};

rg_sampler *rg_sampler_new(int32_t vocab_size, rg_error *err)
{
    rg_sampler *s = rg_zalloc(sizeof *s);

    RG_ASSERT(vocab_size > 0);
    if (!s)
        return rg_fail_memory(err, sizeof *s), NULL;
    s->vocab_size = vocab_size;
    s->count = rg_array((size_t)vocab_size, sizeof *s->count);
    s->list = rg_array((size_t)vocab_size, sizeof *s->list);
    if (!s->count || !s->list) {
        rg_sampler_free(s);
        return rg_fail_memory(err, (size_t)vocab_size * sizeof *s->list), NULL;
    }
    return s;
}

void rg_sampler_free(rg_sampler *s)
{
    if (!s)
        return;
    rg_free(s->count);
    rg_free(s->list);
    rg_free(s);
}

/* ---- what is refused --------------------------------------------------------------------------------------------- */

static bool check_range(const char *name, float x, double low, double high, rg_error *err)
{
    if (x >= (float)low && x <= (float)high) /* false for NaN */
        return true;
    return rg_fail(err, RG_E_INPUT, "%s is %g: want a number in [%g, %g]", name, (double)x, low, high);
}

bool rg_sampling_check(const rg_sampling *p, int32_t vocab_size, rg_error *err)
{
    const float most = 1e6f;

#define CHECK(member, LIMIT) check_range(#member, p->member, RG_##LIMIT##_MIN, RG_##LIMIT##_MAX, err)
    if (!CHECK(temperature, TEMPERATURE) || !CHECK(top_p, TOP_P) || !CHECK(min_p, MIN_P) ||
        !CHECK(typical_p, TYPICAL_P) || !CHECK(repetition_penalty, REPETITION_PENALTY) ||
        !CHECK(presence_penalty, PRESENCE_PENALTY) || !CHECK(frequency_penalty, FREQUENCY_PENALTY))
        return false;
#undef CHECK
    if (p->top_k < 0)
        return rg_fail(err, RG_E_INPUT, "top_k is %d: want 0 (no limit) or more", (int)p->top_k);
    if (p->min_tokens < 0)
        return rg_fail(err, RG_E_INPUT, "min_tokens is %d: want 0 or more", (int)p->min_tokens);
    if (p->no_repeat_ngram < 0)
        return rg_fail(err, RG_E_INPUT, "no_repeat_ngram is %d: want 0 (off) or more", (int)p->no_repeat_ngram);
    if (p->n_logprobs < -1 || p->n_logprobs > vocab_size)
        return rg_fail(err, RG_E_INPUT, "n_logprobs is %d: want -1 (none) to %d", (int)p->n_logprobs, (int)vocab_size);
    if (p->n_bias < 0 || (p->n_bias && !p->bias))
        return rg_fail(err, RG_E_INPUT, "n_bias is %d, with no list of biases", (int)p->n_bias);
    for (int32_t i = 0; i < p->n_bias; i++) {
        if (p->bias[i].id < 0 || p->bias[i].id >= vocab_size)
            return rg_fail(err, RG_E_INPUT, "a logit bias is for id %d, and the vocabulary has %d", (int)p->bias[i].id,
                           (int)vocab_size);
        if (!(p->bias[i].bias <= most))
            return rg_fail(err, RG_E_INPUT, "the logit bias of id %d is not a number up to %g", (int)p->bias[i].id,
                           (double)most);
    }
    return true;
}

/* ---- selection --------------------------------------------------------------------------------------------------- */

static bool before(const candidate *a, const candidate *b)
{
    return a->key < b->key || (a->key == b->key && a->id < b->id);
}

static void swap(candidate *a, candidate *b)
{
    candidate t = *a;

    *a = *b;
    *b = t;
}

/* Split [lo, hi) so that everything less than the pivot comes first; returns the pivot's place.  The pivot is the
 * median of three places drawn by a small generator, so that no order of the vocabulary is slow. */
static int32_t split(candidate *c, int32_t lo, int32_t hi, uint32_t *random)
{
    int32_t pick[3], mid, end = hi - 1;

    for (int i = 0; i < 3; i++) {
        *random = *random * 1664525u + 1013904223u;
        pick[i] = lo + (int32_t)((uint64_t)*random * (uint64_t)(hi - lo) >> 32);
    }
    if (before(&c[pick[1]], &c[pick[0]])) {
        int32_t t = pick[0];
        pick[0] = pick[1];
        pick[1] = t;
    }
    mid = before(&c[pick[2]], &c[pick[0]]) ? pick[0] : before(&c[pick[1]], &c[pick[2]]) ? pick[1] : pick[2];
    swap(&c[mid], &c[end]);
    mid = lo;
    for (int32_t i = lo; i < end; i++)
        if (before(&c[i], &c[end]))
            swap(&c[i], &c[mid++]);
    swap(&c[mid], &c[end]);
    return mid;
}

/* Bring to the front the fewest least candidates whose masses reach `mass`, at least one; returns how many.  Keys with
 * ids differ, so each split makes progress. */
static int32_t select_best(candidate *c, int32_t n, double mass)
{
    int32_t lo = 0, hi = n;
    uint32_t random = 12345;
    double sum = 0.0;

    /* The masses of [0, lo) are too little; those of [0, hi) are enough, or all there are. */
    while (hi - lo > 1) {
        int32_t mid = split(c, lo, hi, &random);
        double left = 0.0;

        for (int32_t i = lo; i < mid; i++)
            left += c[i].mass;
        if (mid > lo && sum + left >= mass) {
            hi = mid;
        } else if (sum + left + c[mid].mass >= mass) {
            return mid + 1;
        } else {
            sum += left + c[mid].mass;
            lo = mid + 1;
        }
    }
    return hi;
}

/* ---- the rules --------------------------------------------------------------------------------------------------- */

/* Eight maxima side by side; NaN is none. */
static float greatest(const float *x, int32_t n)
{
    float lane[8], best = -INFINITY;
    int32_t i = 0;

    for (int k = 0; k < 8; k++)
        lane[k] = -INFINITY;
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++)
            lane[k] = x[i + k] > lane[k] ? x[i + k] : lane[k];
    for (int k = 0; k < 8; k++)
        best = lane[k] > best ? lane[k] : best;
    for (; i < n; i++)
        best = x[i] > best ? x[i] : best;
    return best;
}

/* The best logit and its id, ties to the lowest; NaN is none.  The id is searched for in the best run alone. */
static float best_of(const float *logits, int32_t n, int32_t *id)
{
    const int32_t run = 256;
    float best = -INFINITY;

    *id = 0;
    for (int32_t i = 0; i < n; i += run) {
        float most = greatest(logits + i, n - i < run ? n - i : run);

        if (most > best) {
            best = most;
            *id = i;
        }
    }
    while (best > -INFINITY && logits[*id] != best)
        ++*id;
    return best;
}

static void ban(float *logits, const int32_t *banned, int32_t n_banned)
{
    for (int32_t i = 0; i < n_banned; i++)
        logits[banned[i]] = -INFINITY;
}

/* A history in its parts: prompt, output, draft. */
enum { PROMPT, OUTPUT, DRAFT, N_PARTS };

static const int32_t *part_of(const rg_history *h, int part, int32_t *n)
{
    *n = part == PROMPT ? h->n_prompt : part == OUTPUT ? h->n_output : h->n_draft;
    return part == PROMPT ? h->prompt : part == OUTPUT ? h->output : h->draft;
}

/* The i-th id of all. */
static int32_t id_at(const rg_history *h, int32_t i)
{
    if (i < h->n_prompt)
        return h->prompt[i];
    i -= h->n_prompt;
    return i < h->n_output ? h->output[i] : h->draft[i - h->n_output];
}

/* Ban the ids that followed, somewhere before, the last n - 1 ids. */
static void ban_repeated_runs(float *logits, const rg_history *h, int32_t n)
{
    int32_t total = h->n_prompt + h->n_output + h->n_draft;

    for (int32_t at = 0; at <= total - n; at++) {
        int32_t k = 0;

        while (k < n - 1 && id_at(h, at + k) == id_at(h, total - n + 1 + k))
            k++;
        if (k == n - 1)
            logits[id_at(h, at + k)] = -INFINITY;
    }
}

static void penalize_repetition(rg_sampler *s, float *logits, const rg_history *h, float penalty)
{
    const int32_t *ids;
    int32_t n;

    for (int part = PROMPT; part < N_PARTS; part++) {
        ids = part_of(h, part, &n);
        for (int32_t i = 0; i < n; i++) {
            if (s->count[ids[i]]++)
                continue;
            logits[ids[i]] = logits[ids[i]] > 0 ? logits[ids[i]] / penalty : logits[ids[i]] * penalty;
        }
    }
    for (int part = PROMPT; part < N_PARTS; part++) {
        ids = part_of(h, part, &n);
        for (int32_t i = 0; i < n; i++)
            s->count[ids[i]] = 0;
    }
}

static void penalize_output(rg_sampler *s, float *logits, const rg_history *h, float frequency, float presence)
{
    const int32_t *ids;
    int32_t n;

    for (int part = OUTPUT; part < N_PARTS; part++) {
        ids = part_of(h, part, &n);
        for (int32_t i = 0; i < n; i++)
            s->count[ids[i]]++;
    }
    for (int part = OUTPUT; part < N_PARTS; part++) {
        ids = part_of(h, part, &n);
        for (int32_t i = 0; i < n; i++) {
            if (s->count[ids[i]])
                logits[ids[i]] -= frequency * (float)s->count[ids[i]] + presence;
            s->count[ids[i]] = 0;
        }
    }
}

/* The rest is divided by the temperature.  All is first shifted by the best logit, so that no temperature, however
 * small, overflows; the distribution does not see it. */
static void divide(float *logits, int32_t n, float best, float temperature)
{
    for (int32_t i = 0; i < n; i++)
        logits[i] = logits[i] == best ? 0.0f : (logits[i] - best) / temperature;
}

/* e^(logit - best); what is below e^-40 counts as nothing: a million of them would not reach 1e-11. */
static double mass_of(float logit, float best)
{
    if (logit == best)
        return 1.0;
    return logit < best - 40.0f ? 0.0 : rg_exp_negative((double)logit - (double)best);
}

static void keep_min_p(float *logits, int32_t n, float best, float min_p)
{
    for (int32_t i = 0; i < n; i++)
        if (logits[i] > -INFINITY && mass_of(logits[i], best) < (double)min_p)
            logits[i] = -INFINITY;
}

/* How far a logit lies below the best, seen from `center`: 0 for top-k and top-p, the entropy for typical-p. */
static double key_of(float logit, float best, double center)
{
    double below = logit == best ? 0.0 : (double)best - (double)logit, key = below - center;

    return key < 0.0 ? -key : key;
}

static int bucket_of(double key)
{
    return key < (double)(N_BUCKETS - 1) / PER_NAT ? (int)(key * PER_NAT) : N_BUCKETS - 1;
}

/* Keep the fewest ids of least key that are k, or (k 0) whose masses are the share p of all. */
static void keep_least(rg_sampler *s, float *logits, float best, double center, int32_t k, double p)
{
    double total = 0.0, reached = 0.0, wanted;
    int32_t n = 0, kept;
    int border = 0;

    memset(s->bucket, 0, sizeof s->bucket);
    for (int32_t i = 0; i < s->vocab_size; i++) {
        double mass;

        if (logits[i] == -INFINITY)
            continue;
        mass = k ? 1.0 : mass_of(logits[i], best);
        s->bucket[bucket_of(key_of(logits[i], best, center))] += mass;
        total += mass;
    }
    wanted = k ? (double)k : p * total;
    if (k && wanted >= total)
        return;
    while (border < N_BUCKETS - 1 && reached + s->bucket[border] < wanted)
        reached += s->bucket[border++];
    for (int32_t i = 0; i < s->vocab_size; i++) {
        double key;
        int bucket;

        if (logits[i] == -INFINITY)
            continue;
        key = key_of(logits[i], best, center);
        bucket = bucket_of(key);
        if (bucket == border)
            s->list[n++] = (candidate){ .key = key, .id = i, .mass = k ? 1.0 : mass_of(logits[i], best) };
        else if (bucket > border)
            logits[i] = -INFINITY;
    }
    kept = select_best(s->list, n, wanted - reached);
    for (int32_t i = kept; i < n; i++)
        logits[s->list[i].id] = -INFINITY;
}

/* Locally typical sampling (Meister et al., 2022): nearest first to the entropy H, by |-log p - H|.  With Z the sum of
 * masses and d = best - logit, -log p = d + log Z, so the center of d is H - log Z = sum of p d. */
static void keep_typical(rg_sampler *s, float *logits, float best, float typical_p)
{
    double total = 0.0, sum = 0.0;

    for (int32_t i = 0; i < s->vocab_size; i++) {
        double mass = logits[i] == -INFINITY ? 0.0 : mass_of(logits[i], best);

        total += mass;
        if (mass > 0.0)
            sum += mass * key_of(logits[i], best, 0.0);
    }
    keep_least(s, logits, best, sum / total, 0, (double)typical_p);
}

static void filter(rg_sampler *s, float *logits, const rg_sampling *p, float best)
{
    if (p->min_p > 0)
        keep_min_p(logits, s->vocab_size, best, p->min_p);
    if (p->top_k)
        keep_least(s, logits, best, 0.0, p->top_k, 0.0);
    if (p->top_p < 1)
        keep_least(s, logits, best, 0.0, 0, (double)p->top_p);
    if (p->typical_p < 1)
        keep_typical(s, logits, best, p->typical_p);
}

/* True if no rule before the temperature changes a logit. */
static bool is_plain(const rg_sampling *p, int32_t n_banned)
{
    return !n_banned && !p->no_repeat_ngram && p->repetition_penalty == 1 && p->frequency_penalty == 0 &&
           p->presence_penalty == 0 && !p->n_bias;
}

bool rg_sample_penalize(rg_sampler *s, float *logits, const rg_sampling *p, const rg_history *h, const int32_t *banned,
                        int32_t n_banned)
{
    int32_t n = s->vocab_size, id;

    ban(logits, banned, n_banned);
    if (p->no_repeat_ngram)
        ban_repeated_runs(logits, h, p->no_repeat_ngram);
    if (p->repetition_penalty != 1)
        penalize_repetition(s, logits, h, p->repetition_penalty);
    if (p->frequency_penalty != 0 || p->presence_penalty != 0)
        penalize_output(s, logits, h, p->frequency_penalty, p->presence_penalty);
    for (int32_t i = 0; i < p->n_bias; i++)
        logits[p->bias[i].id] += p->bias[i].bias;
    for (int32_t i = 0; i < n; i++)
        logits[i] = isnan(logits[i]) ? -INFINITY : logits[i];
    return best_of(logits, n, &id) > -INFINITY;
}

void rg_sample_rules(rg_sampler *s, float *logits, const rg_sampling *p, const rg_history *h, const int32_t *banned,
                     int32_t n_banned)
{
    int32_t n = s->vocab_size, raw_id, id;
    bool plain = is_plain(p, n_banned);
    float best;

    if (plain && p->temperature == 0)
        return;
    best = best_of(logits, n, &raw_id);
    if (!rg_sample_penalize(s, logits, p, h, banned, n_banned)) {
        logits[raw_id] = 0.0f;
        return;
    }
    best = plain ? best : best_of(logits, n, &id);
    if (p->temperature == 0) /* the best id survives every filter */
        return;
    if (p->temperature != 1) {
        divide(logits, n, best, p->temperature);
        best = 0.0f;
    }
    filter(s, logits, p, best);
}

/* ---- the draw ---------------------------------------------------------------------------------------------------- */

/* Four ids share one call: id / 4 is in the counter, id % 4 is the lane. */
static void noise_bits(const rg_sample_key *key, uint32_t group, uint32_t out[4])
{
    uint32_t counter[4] = { group, (uint32_t)key->position, (uint32_t)key->sample, (uint32_t)key->draw };
    uint32_t philox_key[2] = { (uint32_t)key->seed, (uint32_t)(key->seed >> 32) };

    rg_philox(counter, philox_key, out);
}

/* -log(-log u), u = (bits + 1/2) / 2^32 within (0, 1). */
static float gumbel(uint32_t bits)
{
    double u = ((double)bits + 0.5) * 0x1p-32;

    return (float)-rg_log(-rg_log(u));
}

float rg_sample_noise(const rg_sample_key *key, int32_t id)
{
    uint32_t bits[4];

    noise_bits(key, (uint32_t)id / 4, bits);
    return gumbel(bits[id % 4]);
}

double rg_sample_uniform(const rg_sample_key *key)
{
    uint32_t bits[4];

    noise_bits(key, 0, bits);
    return ((double)bits[0] + 0.5) * 0x1p-32;
}

/* An upper bound of gumbel(bits), with room for its rounding.  -log u >= 1 - u, so the noise is at most -log(1 - u);
 * and 1 - u = (~bits + 1/2) / 2^32 >= 2^-(z + 1) for z leading zeros of ~bits. */
static float gumbel_bound(uint32_t bits)
{
    int z = ~bits ? __builtin_clz(~bits) : 32;

    return 0.6931472f * (float)(z + 1) + 1e-3f;
}

/* No noise exceeds -log(-log(1 - 2^-33)) < 22.9. */
static const float MOST_NOISE = 23.0f;

int32_t rg_sample_draw(rg_sampler *s, const float *logits, const rg_sampling *p, const rg_sample_key *key)
{
    int32_t n = s->vocab_size, id, start;
    float top = best_of(logits, n, &start);
    double best;

    if (p->temperature == 0 || top == INFINITY)
        return start;
    /* The likeliest id first: most others then fall short without a logarithm, or even without their bits. */
    id = start;
    best = (double)logits[start] + (double)rg_sample_noise(key, start);
    for (int32_t g = 0; g < n; g += 4) {
        int32_t end = g + 4 < n ? g + 4 : n;
        uint32_t bits[4];
        bool any = false;

        for (int32_t i = g; i < end; i++)
            any |= (double)logits[i] + (double)MOST_NOISE >= best;
        if (!any)
            continue;
        noise_bits(key, (uint32_t)g / 4, bits);
        for (int32_t i = g; i < end; i++) {
            double score;

            if (logits[i] == -INFINITY || (double)logits[i] + (double)gumbel_bound(bits[i - g]) < best)
                continue;
            score = (double)logits[i] + (double)gumbel(bits[i - g]);
            if (score > best || (score == best && i < id)) {
                best = score;
                id = i;
            }
        }
    }
    return id;
}

void rg_sample_distribution(const rg_sampler *s, const float *logits, const rg_sampling *p, double *out)
{
    int32_t n = s->vocab_size, id;
    float best = best_of(logits, n, &id);
    double sum = 0;

    if (p->temperature == 0 || best == INFINITY || best == -INFINITY) {
        memset(out, 0, (size_t)n * sizeof *out);
        out[id] = 1;
        return;
    }
    for (int32_t i = 0; i < n; i++)
        sum += out[i] = isnan(logits[i]) ? 0 : mass_of(logits[i], best);
    for (int32_t i = 0; i < n; i++)
        out[i] /= sum;
}

/* ---- log-probabilities ------------------------------------------------------------------------------------------- */

static bool top_before(const rg_top *a, const rg_top *b)
{
    return a->logprob > b->logprob || (a->logprob == b->logprob && a->id < b->id);
}

/* Heap with the worst at its root: move the entry at i down. */
static void sink(rg_top *top, int32_t n, int32_t i)
{
    for (int32_t child; (child = 2 * i + 1) < n; i = child) {
        rg_top t = top[i];

        if (child + 1 < n && top_before(&top[child], &top[child + 1]))
            child++;
        if (!top_before(&t, &top[child]))
            return;
        top[i] = top[child];
        top[child] = t;
    }
}

/* The k best, best first; k <= n. */
static void find_top(const float *logits, int32_t n, int32_t k, rg_top *top)
{
    for (int32_t i = 0; i < n && k > 0; i++) {
        rg_top t = { .id = i, .logprob = isnan(logits[i]) ? -INFINITY : logits[i] };

        if (i < k)
            top[i] = t;
        if (i == k - 1)
            for (int32_t j = k / 2; j >= 0; j--)
                sink(top, k, j);
        if (i >= k && top_before(&t, &top[0])) {
            top[0] = t;
            sink(top, k, 0);
        }
    }
    for (int32_t m = k - 1; m > 0; m--) {
        rg_top worst = top[0];

        top[0] = top[m];
        top[m] = worst;
        sink(top, m, 0);
    }
}

/* The sum of all masses, in eight lanes; NaN has none. */
static double total_mass(const float *logits, int32_t n, float best)
{
    const int32_t whole = n / 8 * 8;
    rg_double2 sum[4] = { 0 };
    double total = 0;

    for (int32_t i = 0; i < whole; i += 8)
        for (int k = 0; k < 4; k++) {
            rg_double2 x = { (double)logits[i + 2 * k], (double)logits[i + 2 * k + 1] };
            x -= (double)best;
            rg_long2 counts = x >= -40.0;
            x = rg_exp_negative2((rg_double2)((rg_long2)x & counts));
            sum[k] += (rg_double2)((rg_long2)x & counts);
        }
    for (int k = 0; k < 8; k++)
        total += sum[k / 2][k % 2];
    for (int32_t i = whole; i < n; i++)
        total += isnan(logits[i]) ? 0 : mass_of(logits[i], best);
    return total;
}

float rg_logprobs(rg_sampler *s, const float *logits, int32_t id, int32_t k, rg_top *top)
{
    int32_t n = s->vocab_size, best_id;
    float best = best_of(logits, n, &best_id), chosen = isnan(logits[id]) ? -INFINITY : logits[id];
    double total = best > -INFINITY ? total_mass(logits, n, best) : 0, log_total = total > 0 ? rg_log(total) : 0;

    find_top(logits, n, k, top);
    for (int32_t i = 0; i < k; i++)
        top[i].logprob =
            top[i].logprob == best ? (float)-log_total : (float)((double)top[i].logprob - (double)best - log_total);
    return chosen == best ? (float)-log_total : (float)((double)chosen - (double)best - log_total);
}

void rg_log_softmax(rg_sampler *s, float *logits)
{
    int32_t n = s->vocab_size, best_id;
    float best = best_of(logits, n, &best_id);
    double log_total = best > -INFINITY ? rg_log(total_mass(logits, n, best)) : 0;

    for (int32_t i = 0; i < n; i++)
        logits[i] = logits[i] == best ? (float)-log_total : (float)((double)logits[i] - (double)best - log_total);
}

int32_t rg_best_logprobs(rg_sampler *s, const float *logprobs, int32_t k, rg_top *top)
{
    int32_t n = 0;

    find_top(logprobs, s->vocab_size, k, top);
    while (n < k && top[n].logprob > -INFINITY)
        n++;
    return n;
}

/* ---- the most likely draws --------------------------------------------------------------------------------------- */

/* Put an id among the best *n of at most k.  Ids come in rising order, so that of equal ones the lowest stays first. */
static void put_guess(rg_guess *best, int32_t *n, int32_t k, rg_guess g)
{
    int32_t at = *n < k ? (*n)++ : k - 1;

    for (; at > 0 && best[at - 1].score < g.score; at--)
        best[at] = best[at - 1];
    best[at] = g;
}

static int32_t best_of_draw(const float *logits, int32_t n, const rg_sample_key *key, int32_t k, rg_guess *best)
{
    int32_t n_best = 0;

    for (int32_t g = 0; g < n; g += 4) {
        int32_t end = g + 4 < n ? g + 4 : n;
        float least = n_best < k ? -INFINITY : best[k - 1].score;
        uint32_t bits[4];
        bool any = false;

        for (int32_t i = g; i < end; i++)
            any |= logits[i] + MOST_NOISE > least;
        if (any)
            noise_bits(key, (uint32_t)g / 4, bits);
        for (int32_t i = g; any && i < end; i++) {
            least = n_best < k ? -INFINITY : best[k - 1].score;
            if (logits[i] == -INFINITY || logits[i] + gumbel_bound(bits[i - g]) < least)
                continue;
            rg_guess one = { i, logits[i] + gumbel(bits[i - g]) };
            if (one.score > least)
                put_guess(best, &n_best, k, one);
        }
    }
    return n_best;
}

int32_t rg_sample_best(const float *logits, int32_t n, const rg_sampling *p, const rg_sample_key *key, int32_t k,
                       rg_guess *best)
{
    const bool noisy = key && p->temperature != 0;
    int32_t n_best = noisy ? best_of_draw(logits, n, key, k, best) : 0;
    double total = 0;

    for (int32_t i = 0; !noisy && i < n; i++)
        if (logits[i] > (n_best < k ? -INFINITY : best[k - 1].score))
            put_guess(best, &n_best, k, (rg_guess){ i, logits[i] });
    if (!n_best)
        return 0;
    const double top = (double)best[0].score;
    if (noisy)
        for (int32_t i = 0; i < n_best; i++)
            total += rg_exp_negative((double)best[i].score - top);
    else
        total = total_mass(logits, n, best[0].score);
    for (int32_t i = 0; i < n_best; i++)
        best[i].score = (float)((double)best[i].score - top - rg_log(total));
    return n_best;
}
