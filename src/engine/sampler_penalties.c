/* sampler_penalties.c -- the rules that look at the ids written before, in the order of rg_penalize. */
#include "engine/sampler_inner.h"

static void ban(float *logits, const int32_t *banned, int32_t n_banned)
{
    for (int32_t i = 0; i < n_banned; i++)
        logits[banned[i]] = -INFINITY;
}

/* ---- the history ------------------------------------------------------------------------------------------------- */

/* A history in its parts: prompt, output, draft. */
enum { PROMPT, OUTPUT, DRAFT, N_PARTS };

static int32_t total_of(const rg_history *h)
{
    return h->n_prompt + h->n_output + h->n_draft;
}

/* The ids of a part that stand at `from` or later, counted over all parts; *n of them. */
static const int32_t *part_from(const rg_history *h, int part, int32_t from, int32_t *n)
{
    const int32_t *ids = part == PROMPT ? h->prompt : part == OUTPUT ? h->output : h->draft;
    int32_t start = part == PROMPT ? 0 : part == OUTPUT ? h->n_prompt : h->n_prompt + h->n_output;
    int32_t all = part == PROMPT ? h->n_prompt : part == OUTPUT ? h->n_output : h->n_draft;
    int32_t skip = from <= start ? 0 : from - start < all ? from - start : all;

    *n = all - skip;
    return *n ? ids + skip : ids;
}

/* The i-th id of all. */
static int32_t id_at(const rg_history *h, int32_t i)
{
    if (i < h->n_prompt)
        return h->prompt[i];
    i -= h->n_prompt;
    return i < h->n_output ? h->output[i] : h->draft[i - h->n_output];
}

/* Where the last n of all ids begin; n -1: all of them. */
static int32_t start_of_last(const rg_history *h, int32_t n)
{
    int32_t total = total_of(h);

    return n < 0 || n > total ? 0 : total - n;
}

/* ---- repetition, frequency and presence -------------------------------------------------------------------------- */

/* Ban the ids that followed, somewhere before, the last n - 1 ids. */
static void ban_repeated_runs(float *logits, const rg_history *h, int32_t n)
{
    int32_t total = total_of(h);

    for (int32_t at = 0; at <= total - n; at++) {
        int32_t k = 0;

        while (k < n - 1 && rg_is_id(id_at(h, at + k)) && id_at(h, at + k) == id_at(h, total - n + 1 + k))
            k++;
        if (k == n - 1 && rg_is_id(id_at(h, at + k)))
            logits[id_at(h, at + k)] = -INFINITY;
    }
}

static void penalize_repetition(rg_sampler *s, float *logits, const rg_history *h, int32_t from, float penalty)
{
    const int32_t *ids;
    int32_t n;

    for (int part = PROMPT; part < N_PARTS; part++) {
        ids = part_from(h, part, from, &n);
        for (int32_t i = 0; i < n; i++) {
            if (!rg_is_id(ids[i]) || s->count[ids[i]]++)
                continue;
            logits[ids[i]] = logits[ids[i]] > 0 ? logits[ids[i]] / penalty : logits[ids[i]] * penalty;
        }
    }
    for (int part = PROMPT; part < N_PARTS; part++) {
        ids = part_from(h, part, from, &n);
        for (int32_t i = 0; i < n; i++)
            if (rg_is_id(ids[i]))
                s->count[ids[i]] = 0;
    }
}

static void penalize_counts(rg_sampler *s, float *logits, const rg_history *h, int32_t from, const rg_sampling *p)
{
    const int32_t *ids;
    int32_t n;

    for (int part = PROMPT; part < N_PARTS; part++) {
        ids = part_from(h, part, from, &n);
        for (int32_t i = 0; i < n; i++)
            if (rg_is_id(ids[i]))
                s->count[ids[i]]++;
    }
    for (int part = PROMPT; part < N_PARTS; part++) {
        ids = part_from(h, part, from, &n);
        for (int32_t i = 0; i < n; i++) {
            if (!rg_is_id(ids[i]))
                continue;
            if (s->count[ids[i]])
                logits[ids[i]] -= p->frequency_penalty * (float)s->count[ids[i]] + p->presence_penalty;
            s->count[ids[i]] = 0;
        }
    }
}

/* ---- DRY --------------------------------------------------------------------------------------------------------- */

/* The last n ids, counted from the end: 0 is the last of all. */
typedef struct recent {
    const rg_history *h;
    int32_t end, n;
} recent;

static int32_t back(const recent *r, int32_t i)
{
    return id_at(r->h, r->end - i);
}

/* True if the tail stands behind the head, which is i back. */
static bool tail_follows(const recent *r, int32_t i, const int32_t *tail, int32_t n_tail)
{
    if (n_tail > i)
        return false;
    for (int32_t k = 0; k < n_tail; k++)
        if (tail[k] != back(r, i - 1 - k))
            return false;
    return true;
}

/* How many ids stand behind the last sequence breaker or given row; all, if there is none. */
static int32_t since_breaker(const recent *r, const rg_breakers *breakers)
{
    for (int32_t i = 0; i < r->n; i++) {
        const rg_breaker *of;

        if (!rg_is_id(back(r, i)))
            return i;
        size_t n = rg_breakers_of(breakers, back(r, i), &of);

        for (size_t k = 0; k < n; k++)
            if (tail_follows(r, i, rg_breakers_tail(breakers, &of[k]), of[k].n_tail))
                return i - of[k].n_tail;
    }
    return r->n;
}

/* repeat[k], for k from 1: how many ids from the end on back equal those from k further back on (the Z-algorithm, from
 * the end: linear, since `right` only grows). */
static void find_repeats(const recent *r, int32_t *repeat)
{
    int32_t left = 0, right = 0; /* ids [left, right) equal those [0, right - left) */

    for (int32_t k = 1; k < r->n; k++) {
        int32_t n = 0;

        if (k < right && repeat[k - left] < right - k) {
            repeat[k] = repeat[k - left];
            continue;
        }
        if (k < right)
            n = right - k;
        while (k + n < r->n && back(r, n) == back(r, k + n))
            n++;
        repeat[k] = n;
        left = k;
        right = k + n;
    }
}

/* base^n for n >= 0. */
static double power(double base, int32_t n)
{
    double y = 1.0;

    for (; n; n >>= 1, base *= base)
        if (n & 1)
            y *= base;
    return y;
}

/* What an id loses that would be one more of a run of n that was seen before.  The exponent ends where a float does. */
static float dry_penalty(const rg_sampling *p, int32_t n)
{
    const float log_of_most = 88.7228391f;
    int32_t exponent = n - p->dry_allowed_length, most = 0;

    if (p->dry_base > 1.000001f)
        most = (int32_t)(log_of_most / (float)rg_ln((double)p->dry_base));
    if (most > 0 && exponent > most)
        exponent = most;
    return (float)((double)p->dry_multiplier * power((double)p->dry_base, exponent));
}

static bool is_breaker(const rg_breakers *breakers, int32_t id)
{
    const rg_breaker *of;
    size_t n = rg_breakers_of(breakers, id, &of);

    return n && !of[n - 1].n_tail; /* the shortest is last */
}

static void penalize_dry(rg_sampler *s, float *logits, const rg_sampling *p, const rg_sample_place *at)
{
    const rg_history *h = &at->history;
    recent r = { .h = h, .end = total_of(h) - 1, .n = total_of(h) - start_of_last(h, p->dry_penalty_last_n) };
    int32_t most;

    RG_ASSERT(r.n <= s->most_ids);
    if (r.n <= p->dry_allowed_length)
        return;
    most = since_breaker(&r, at->breakers);
    if (most < p->dry_allowed_length)
        return;
    find_repeats(&r, s->repeat);
    for (int32_t k = 1; k < r.n; k++) {
        int32_t n = s->repeat[k] < most ? s->repeat[k] : most, id = back(&r, k - 1);

        if (n >= p->dry_allowed_length && rg_is_id(id) && s->count[id] <= n)
            s->count[id] = n + 1;
    }
    for (int32_t k = 1; k < r.n; k++) {
        int32_t id = back(&r, k - 1);

        if (!rg_is_id(id))
            continue;
        if (s->count[id] && !is_breaker(at->breakers, id))
            logits[id] -= dry_penalty(p, s->count[id] - 1);
        s->count[id] = 0;
    }
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static bool has_dry(const rg_sampling *p)
{
    return p->dry_multiplier > 0 && p->dry_penalty_last_n;
}

bool rg_penalizes(const rg_sampling *p)
{
    return p->no_repeat_ngram || p->repetition_penalty != 1 || p->frequency_penalty != 0 || p->presence_penalty != 0 ||
           has_dry(p) || p->n_bias;
}

void rg_penalize(rg_sampler *s, float *logits, const rg_sampling *p, const rg_sample_place *at)
{
    const rg_history *h = &at->history;
    int32_t window = start_of_last(h, p->penalty_last_n);

    ban(logits, at->banned, at->n_banned);
    if (p->no_repeat_ngram)
        ban_repeated_runs(logits, h, p->no_repeat_ngram);
    if (p->repetition_penalty != 1)
        penalize_repetition(s, logits, h, p->penalty_last_n ? window : 0, p->repetition_penalty);
    if (p->frequency_penalty != 0 || p->presence_penalty != 0)
        penalize_counts(s, logits, h, p->penalty_last_n ? window : h->n_prompt, p);
    if (has_dry(p))
        penalize_dry(s, logits, p, at);
    for (int32_t i = 0; i < p->n_bias; i++)
        logits[p->bias[i].id] += p->bias[i].bias;
}
