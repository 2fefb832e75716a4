/* goal.c -- see goal.h. */
#include "plan/goal.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "plan/what_if.h"

enum { MOST_CHIPS = 8, MOST_OFFERS = 1 << 16 };

/* Batches that are tried. */
static const int64_t batches[] = { 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024 };

static const int tried_drafts[] = { 2, 4, 8 };

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* A number above 0, with a unit of time where seconds are read. */
static bool read_number(const char *key, const char *text, bool seconds, double *out, rg_error *err)
{
    char *end;

    errno = 0;
    *out = strtod(text, &end);
    if (seconds && !strcmp(end, "ms"))
        *out /= 1e3;
    else if (seconds && !strcmp(end, "us"))
        *out /= 1e6;
    const bool unit = seconds && (!strcmp(end, "ms") || !strcmp(end, "us") || !strcmp(end, "s"));
    if (end == text || (*end && !unit) || errno || !isfinite(*out) || *out <= 0)
        return rg_fail(err, RG_E_USAGE, "--for: %s=%.40s is not a %s above 0", key, text,
                       seconds ? "time (50ms, 1.5s)" : "number");
    return true;
}

bool rg_plan_goal_read(const char *text, rg_plan_goal *goal, rg_error *err)
{
    double words = 0, tokens_per_word = 4.0 / 3;
    const struct {
        const char *key;
        double *to;
        bool seconds;
    } keys[] = { { "latency", &goal->latency_s, true },
                 { "ttft", &goal->ttft_s, true },
                 { "words", &words, false },
                 { "tokens_per_word", &tokens_per_word, false },
                 { "memory", &goal->memory_bytes, false },
                 { "budget", &goal->budget, false } };
    char item[128];

    for (const char *at = text; *at;) {
        const size_t n = strcspn(at, ",");
        size_t k = 0;

        snprintf(item, sizeof item, "%.*s", (int)(n < sizeof item ? n : sizeof item - 1), at);
        char *value = strchr(item, '=');
        if (value)
            *value++ = '\0';
        while (k < RG_LEN(keys) && strcmp(item, keys[k].key) != 0)
            k++;
        if (k == RG_LEN(keys) || !value)
            return rg_fail(err, RG_E_USAGE,
                           "--for: '%.40s' is not one of latency=, ttft=, words= (a day), "
                           "tokens_per_word=, memory=, budget=",
                           item);
        if (!read_number(keys[k].key, value, keys[k].seconds, keys[k].to, err))
            return false;
        at += n + (at[n] == ',');
    }
    goal->tokens_s = words * tokens_per_word / 86400;
    return true;
}

/* ---- one candidate ----------------------------------------------------------------------------------------------- */

typedef struct search {
    const rg_plan_subject *s;
    const rg_plan_machine *machines;
    int n_machines;
    const double *prices;
    const rg_plan_goal *goal;
    rg_plan_offers *out;
    rg_error *err;
} search;

/* A model on so many chips of a machine. */
typedef struct candidate {
    rg_plan_subject s;
    rg_plan_machine m;
    rg_plan_offer offer;
    int drafts;
    double state, arena; /* bytes of a sequence, and of its row in a step */
} candidate;

/* Seconds of a token of every sequence, with drafts those that a step gives on average. */
static bool latency_of(const search *x, const candidate *c, int64_t batch, double *latency, rg_bound *waits_for)
{
    rg_step_shape shape = {
        .n_seqs = (int)batch, .n_rows = 1 + c->drafts, .start = x->goal->seq - 1, .exact = c->s.exact
    };
    rg_cost cost;
    double one = 0;

    if (!rg_cost_shape(c->s.model, &c->m.m, &shape, &cost, NULL, NULL, x->err))
        return false;
    *latency = cost.seconds;
    *waits_for = cost.compute_s > cost.weights_s && cost.compute_s > cost.state_s ? RG_BOUND_COMPUTE
                 : cost.state_s > cost.weights_s                                  ? RG_BOUND_KV
                                                                                  : RG_BOUND_WEIGHTS;
    if (!c->drafts)
        return true;
    if (!rg_plan_latency(&c->s, &c->m, batch, x->goal->seq, &one, x->err))
        return false;
    *latency =
        (cost.seconds + c->drafts * x->goal->draft_cost * one) / rg_speculation_tokens(x->goal->acceptance, c->drafts);
    return true;
}

static void memory_of(const candidate *c, int64_t batch, rg_plan_memory *y)
{
    *y = c->offer.memory;
    y->kv *= (double)batch;
    y->recurrent *= (double)batch;
    y->activations = fmax(y->activations, (double)batch * c->arena * (1 + c->drafts));
    y->total = y->weights + y->kv + y->recurrent + y->activations;
}

/* The last of batches [0, n) that is quick enough, by halving; -1: none. */
static bool last_in_time(const search *x, const candidate *c, int n, int *last)
{
    int lo = -1, hi = n;

    while (hi - lo > 1) {
        const int at = lo + (hi - lo) / 2;
        rg_bound waits_for;
        double latency;

        if (!latency_of(x, c, batches[at], &latency, &waits_for))
            return false;
        if (x->goal->latency_s > 0 && latency > x->goal->latency_s)
            hi = at;
        else
            lo = at;
        if (x->goal->latency_s <= 0)
            lo = n - 1;
    }
    *last = lo;
    return true;
}

/* The first of batches [0, last] that gives as many tokens as are wanted; last: none does before. */
static bool first_enough(const search *x, const candidate *c, int *last)
{
    int lo = -1, hi = *last;

    while (x->goal->tokens_s > 0 && hi - lo > 1) {
        const int at = lo + (hi - lo) / 2;
        rg_bound waits_for;
        double latency;

        if (!latency_of(x, c, batches[at], &latency, &waits_for))
            return false;
        if ((double)batches[at] / latency >= x->goal->tokens_s)
            hi = at;
        else
            lo = at;
    }
    *last = hi;
    return true;
}

/* The largest batch that is quick enough, fits, and is of use; 0: none.  What stops it is told. */
static bool find_batch(const search *x, candidate *c, bool *slow)
{
    const double room = x->goal->memory_bytes > 0 ? fmin(x->goal->memory_bytes, c->m.memory_bytes) : c->m.memory_bytes;
    rg_plan_offer *o = &c->offer;
    rg_plan_memory y;
    int n = 0, last = -1;

    *slow = false;
    o->batch = 0;
    for (; n < (int)RG_LEN(batches); n++) {
        memory_of(c, batches[n], &y);
        if (y.total > room)
            break;
    }
    if (!n)
        return true;
    if (!last_in_time(x, c, n, &last))
        return false;
    *slow = last + 1 < n;
    o->binds = *slow ? "latency" : n < (int)RG_LEN(batches) ? "memory" : "none";
    if (last < 0)
        return true;
    const int most = last;
    if (!first_enough(x, c, &last))
        return false;
    o->batch = batches[last];
    memory_of(c, o->batch, &o->memory);
    if (!latency_of(x, c, o->batch, &o->latency_s, &o->waits_for))
        return false;
    o->throughput = (double)o->batch / o->latency_s;
    if (last < most || (x->goal->tokens_s > 0 && o->throughput >= x->goal->tokens_s))
        o->binds = "demand";
    return true;
}

static bool keep(search *x, const rg_plan_offer *o)
{
    rg_plan_offers *all = x->out;

    if (all->n == all->room) {
        const int room = all->room ? 2 * all->room : 64;
        rg_plan_offer *more = room <= MOST_OFFERS ? rg_array((size_t)room, sizeof *more) : NULL;

        if (!more)
            return rg_fail_memory(x->err, (size_t)room * sizeof *more);
        if (all->n)
            memcpy(more, all->all, (size_t)all->n * sizeof *more);
        rg_free(all->all);
        all->all = more;
        all->room = room;
    }
    all->all[all->n++] = *o;
    return true;
}

/* One candidate on one machine: the number of chips that costs least, of the first two that do.  *computes: its steps
 * wait for arithmetic, so that drafts would only add to it. */
static bool try_on(search *x, const candidate *like, int machine, bool *computes)
{
    const double price = x->prices ? x->prices[machine] : 1;
    rg_plan_offer best = { .cost = INFINITY };
    bool fits = false, slow = false;
    int n_done = 0;

    *computes = false;

    for (int chips = 1; chips <= MOST_CHIPS && n_done < 2; chips *= 2) {
        candidate c = *like;
        rg_step_shape prompt = { .n_seqs = 1, .n_rows = (int)x->goal->seq, .exact = c.s.exact };
        rg_cost prefill;

        c.m = x->machines[machine];
        if (chips > 1 && !c.m.link_bytes_s)
            break; /* its chips do not reach each other */
        rg_plan_machine_chips(&c.m, chips);
        rg_cost_prompt(c.s.model, &c.m.m, &prompt, c.m.chunk ? c.m.chunk : prompt.n_rows, &prefill);
        c.offer.machine = &x->machines[machine];
        c.offer.chips = chips;
        c.offer.ttft_s = prefill.seconds;
        c.offer.memory = (rg_plan_memory){ .weights = (double)c.s.model->weights.stored_bytes,
                                           .of = c.m.memory_bytes,
                                           .activations = (double)prefill.activation_bytes };
        rg_plan_state_bytes(c.s.model, x->goal->seq, &c.offer.memory.kv, &c.offer.memory.recurrent);
        if (x->goal->ttft_s > 0 && prefill.seconds > x->goal->ttft_s) {
            fits = slow = true;
            continue;
        }
        bool late;
        if (!find_batch(x, &c, &late))
            return false;
        fits |= late || c.offer.batch > 0;
        slow |= late && !c.offer.batch;
        if (!c.offer.batch)
            continue;
        n_done++;
        c.offer.copies = x->goal->tokens_s > 0 ? (int64_t)ceil(x->goal->tokens_s / c.offer.throughput) : 1;
        c.offer.cost = price * chips * (double)c.offer.copies;
        if (c.offer.cost < best.cost)
            best = c.offer;
    }
    *computes = n_done && best.waits_for == RG_BOUND_COMPUTE;
    x->out->n_tried++;
    if (isinf(best.cost)) {
        *(fits && slow ? &x->out->too_slow : &x->out->too_large) += 1;
        return true;
    }
    if (x->goal->budget > 0 && best.cost > x->goal->budget) {
        x->out->too_dear++;
        return true;
    }
    return keep(x, &best);
}

/* ---- candidates -------------------------------------------------------------------------------------------------- */

/* A model of this config, with each type of weights and K/V, with and without drafts, on each machine. */
static bool try_config(search *x, const rg_config *config, const char *name, rg_type own)
{
    const rg_type types[] = { own, RG_Q8_0, RG_Q4_0 };
    const char *const kvs[] = { rg_kv_name(x->s->model->kv_type), "q8", "q4" };

    for (size_t t = 0; t < RG_LEN(types); t++)
        for (size_t k = 0; k < RG_LEN(kvs); k++) {
            rg_model_options o = { .kv_type = kvs[k], .declared_type = types[t] };
            rg_error why = { 0 };

            if ((t && types[t] == own) || (k && !strcmp(kvs[k], kvs[0])))
                continue;
            rg_model *m = rg_model_declare(config, &o, &why);
            if (!m && why.code == RG_E_MEMORY)
                return *x->err = why, false;
            if (!m)
                continue; /* formats that do not divide this model's rows, or K/V that it does not take */
            candidate c = { .s = *x->s };
            bool ok = true;
            c.s.model = m;
            c.arena = rg_plan_row_arena(m, &x->machines[0]);
            c.offer.weights = types[t];
            c.offer.kv = kvs[k];
            c.offer.n_changes = (strcmp(name, "as it is") != 0) + (t > 0) + (k > 0);
            snprintf(c.offer.architecture, sizeof c.offer.architecture, "%s", name);
            for (int i = 0; ok && i < x->n_machines; i++) {
                bool computes = false;

                for (size_t d = 0; ok && !computes && d <= RG_LEN(tried_drafts); d++) {
                    c.drafts = c.offer.drafts = d ? tried_drafts[d - 1] : 0;
                    ok = try_on(x, &c, i, &computes);
                }
            }
            rg_model_close(m);
            if (!ok)
                return false;
        }
    return true;
}

static bool try_all(search *x, rg_config *c, rg_type own)
{
    const int was = c->n_kv_heads;
    char name[40];

    if (!try_config(x, c, "as it is", own))
        return false;
    for (int heads = was / 4; c->n_heads > 0 && was > 1; heads = 1) {
        if (heads >= 1 && c->n_heads % heads == 0) {
            c->n_kv_heads = heads;
            snprintf(name, sizeof name, "%d K/V head%s of %d", heads, heads > 1 ? "s" : "", was);
            if (!try_config(x, c, name, own))
                return false;
        }
        if (heads <= 1)
            break;
    }
    c->n_kv_heads = was;
    return true;
}

/* True if another offer of the same machine costs no more with no more changes, and is better in one of them, or comes
 * first. */
static bool is_beaten(const rg_plan_offers *all, int i)
{
    const rg_plan_offer *o = &all->all[i];

    for (int k = 0; k < all->n; k++) {
        const rg_plan_offer *x = &all->all[k];

        if (k != i && x->machine == o->machine && x->cost <= o->cost && x->n_changes <= o->n_changes &&
            (x->cost < o->cost || x->n_changes < o->n_changes || k < i))
            return true;
    }
    return false;
}

/* Keep of the sorted offers those that no other offer of the same machine beats. */
static void drop_beaten(rg_plan_offers *all)
{
    int kept = 0;

    all->n_found = all->n;
    for (int i = 0; i < all->n; i++)
        all->all[i].beaten = is_beaten(all, i);
    for (int i = 0; i < all->n; i++)
        if (!all->all[i].beaten)
            all->all[kept++] = all->all[i];
    all->n = kept;
}

static int by_cost(const void *a, const void *b)
{
    const rg_plan_offer *x = a, *y = b;

    if (x->cost != y->cost)
        return x->cost < y->cost ? -1 : 1;
    if (x->n_changes != y->n_changes)
        return x->n_changes - y->n_changes;
    if ((x->drafts > 0) != (y->drafts > 0))
        return x->drafts > 0 ? 1 : -1;
    return x->latency_s < y->latency_s ? -1 : x->latency_s > y->latency_s;
}

bool rg_plan_offer_all(const rg_plan_subject *s, const rg_plan_machine *machines, int n_machines, const double *prices,
                       const rg_plan_goal *goal, rg_plan_offers *out, rg_error *err)
{
    search x = {
        .s = s, .machines = machines, .n_machines = n_machines, .prices = prices, .goal = goal, .out = out, .err = err
    };

    memset(out, 0, sizeof *out);
    if (!s->model || s->method != RG_PLAN_COUNTED || s->model->config.sees != RG_CAUSAL)
        return rg_fail(err, RG_E_USAGE, "--for needs a model that is drawn from id by id, and the method counted");
    rg_config *c = rg_alloc(sizeof *c);
    if (!c)
        return rg_fail_memory(err, sizeof *c);
    *c = s->model->config;
    bool ok = try_all(&x, c, rg_plan_usual_type(s->model));
    rg_free(c);
    if (ok && out->n)
        qsort(out->all, (size_t)out->n, sizeof *out->all, by_cost);
    drop_beaten(out);
    return ok;
}

void rg_plan_offers_fini(rg_plan_offers *o)
{
    rg_free(o->all);
    *o = (rg_plan_offers){ 0 };
}
