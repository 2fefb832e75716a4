/* draft_choice.c -- see draft_choice.h. */
#include "engine/draft_choice.h"

#include <string.h>

#include "base/mem.h"

/* What is known of an answer, and of all answers of a drafter, counts as much as so many tries of what is held beside
 * it: the drafter's, and FIRST_CHANCE. */
static const double HELD = 3, FIRST_CHANCE = 0.5;
/* Older tries fade by so much with each new one: some 15 count, and some 60 of all answers together. */
static const float FADE = 0.935f, FADE_OVERALL = 0.985f;
/* Drafts are worth their trouble if they bring so much more. */
static const double CLEARLY = 1.03;
/* A step with drafts does all that one without them does.  If it takes less than this part of what those took, they
 * take less by now, and are measured anew. */
static const double OUTDATED = 0.8;
/* The share of the time of steps without drafts that drafts may lose, and the most that is saved up for it, in such
 * steps. */
static const double CREDIT_SHARE = 0.01, CREDIT_STEPS = 8;
/* What a row more is taken to cost, as a share of a row of a step without drafts, where no step of that size was seen:
 * most machines are better, but a prediction that nothing has confirmed may not be trusted with more than this. */
static const double UNSEEN_ROW = 0.25;

void rg_draft_choice_init(rg_draft_choice *c)
{
    memset(c, 0, sizeof *c);
    c->pause = RG_CHOICE_TRY;
    c->last_try = -c->pause;
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

double rg_draft_chance(const rg_draft_choice *c, const rg_draft_record *own, int32_t drafter, int32_t k)
{
    const rg_draft_record *all = &c->overall[drafter];
    double held = ((double)all->stood[k] + HELD * FIRST_CHANCE) / ((double)all->tried[k] + HELD);

    return ((double)own->stood[k] + HELD * held) / ((double)own->tried[k] + HELD);
}

static void note(rg_draft_record *r, int32_t k, bool stood, float fade)
{
    r->tried[k] = r->tried[k] * fade + 1;
    r->stood[k] = r->stood[k] * fade + (stood ? 1 : 0);
}

void rg_draft_note(rg_draft_choice *c, rg_draft_record *own, int32_t drafter, int32_t n_deep, int32_t n_path)
{
    for (int32_t k = 0; k <= n_path && k < n_deep && k < RG_CHOICE_DEPTH; k++) {
        note(own, k, k < n_path, FADE);
        note(&c->overall[drafter], k, k < n_path, FADE_OVERALL);
    }
}

/* ---- what was measured ------------------------------------------------------------------------------------------- */

enum {
    MEAN_STEPS = 8,      /* a mean is of about so many steps; */
    SURE_STEPS = 3,      /* it counts from so many on, */
    TRY_DEPTH = 2,
    LONGEST_PAUSE = 8 * RG_CHOICE_TRY,
    LONG_ANSWER = 1000,  /* ids that an answer is taken to have at most */
    STALE = RG_CHOICE_TRY, /* steps without drafts are taken again after so many */
};

/* The power of two of a number of answers. */
static int size_of(int32_t n)
{
    int size = 0;

    while (n > 1 && size < RG_STEP_SIZES - 1) {
        n /= 2;
        size++;
    }
    return size;
}

static rg_draft_measured *measured_of(rg_draft_choice *c, int32_t n)
{
    return &c->measured[size_of(n)];
}

/* A single step counts as twice or half the mean at most. */
static void take_mean(double *mean, int32_t n, double x)
{
    if (n > 0)
        x = x < *mean / 2 ? *mean / 2 : x > 2 * *mean ? 2 * *mean : x;
    *mean += (x - *mean) / (n + 1);
}

/* A step brought so much to the credit, or took it off.  Steps without drafts took plain_s lately. */
static void add_credit(rg_draft_choice *c, double s, double plain_s)
{
    const double most = CREDIT_STEPS * plain_s;

    c->credit_s = c->credit_s + s < most ? c->credit_s + s : most;
}

/* True if drafts were made in every step for so long that steps without them may take another time by now. */
static bool is_stale(const rg_draft_choice *c, const rg_draft_measured *m)
{
    return c->n_steps - m->last_plain > STALE;
}

static void count_one(int32_t *n)
{
    *n += *n < MEAN_STEPS - 1;
}

/* A step without drafts.  One that took less than half of the mean begins a new mean: nothing makes a step faster than
 * it is, so that those before were held up, as the first ones are by cold caches and by threads that wake.  Drafts
 * that are compared with those would seem to pay. */
static void measure_plain(rg_draft_choice *c, rg_draft_measured *m, double took_s)
{
    if (is_stale(c, m) || took_s < m->plain_s / 2)
        m->n_plain = 0;
    if (!m->n_plain)
        m->plain_s = 0;
    take_mean(&m->plain_s, m->n_plain, took_s);
    count_one(&m->n_plain);
    m->last_plain = c->n_steps;
    add_credit(c, CREDIT_SHARE * took_s, m->plain_s);
}

void rg_draft_measure(rg_draft_choice *c, int32_t n, bool drafted, double took_s, int32_t n_ids)
{
    rg_draft_measured *m = measured_of(c, n);
    double saved_s = (double)n_ids / n * m->plain_s - took_s;

    if (!drafted) {
        measure_plain(c, m, took_s);
        return;
    }
    take_mean(&m->ids, m->n_drafted, (double)n_ids / n);
    take_mean(&m->drafted_s, m->n_drafted, took_s);
    count_one(&m->n_drafted);
    if (took_s < OUTDATED * m->plain_s)
        m->n_plain = 0;
    add_credit(c, saved_s, m->plain_s);
    if (c->tried && saved_s > 0)
        c->last_try = c->n_steps - c->pause; /* the next larger draft may be tried at once */
}

double rg_draft_plain_s(const rg_draft_choice *c, int32_t n)
{
    const rg_draft_measured *m = &c->measured[size_of(n)];

    return m->n_plain >= SURE_STEPS ? m->plain_s : 0;
}

/* True if drafts are known to bring no more than they cost. */
static bool has_lost(const rg_draft_measured *m)
{
    return m->n_drafted >= SURE_STEPS && m->n_plain >= SURE_STEPS && m->ids * m->plain_s < CLEARLY * m->drafted_s;
}

/* True if a step without drafts has to be taken, for comparing. */
static bool needs_plain(const rg_draft_choice *c, const rg_draft_measured *m)
{
    return m->n_plain < SURE_STEPS || is_stale(c, m);
}

/* ---- one answer -------------------------------------------------------------------------------------------------- */

/* What a step costs and brings. */
typedef struct prices {
    double plain_s;       /* seconds of a step that has the answers' rows alone */
    double plain_rate;    /* ids a second of such steps */
    double row_s;         /* more seconds of this step for a row more, about */
    double with_s;        /* seconds of this step without drafts */
} prices;

/* Ids that a draft of this depth is expected to bring. */
static double gain_of(const rg_draft_choice *c, const rg_draft_record *own, int32_t drafter, int32_t depth)
{
    double chance = 1, gain = 0;

    for (int32_t k = 0; k < depth; k++) {
        chance *= rg_draft_chance(c, own, drafter, k);
        gain += chance;
    }
    return gain;
}

/* The depth at which a drafter is worth most to an answer, and how many ids more than it costs it brings there. */
static int32_t best_depth(const rg_draft_choice *c, const rg_draft_answer *a, const rg_draft_option *o, int32_t drafter,
                          const prices *p, int32_t n_answers, double *worth)
{
    int32_t best = 0, most = a->max_depth < o->depth ? a->max_depth : o->depth;
    double chance = 1, gain = 0;

    *worth = 0;
    for (int32_t k = 1; k <= most; k++) {
        double cost_s = o->nodes[k] * p->row_s + k * o->level_s / n_answers, net;

        chance *= rg_draft_chance(c, &a->records[drafter], drafter, k - 1);
        gain += chance;
        net = gain - cost_s * p->plain_rate;
        if (net > *worth) {
            *worth = net;
            best = k;
        }
    }
    return best;
}

/* The share of an answer's time that reading its text for a drafter may take: as little as other tries where nothing is
 * known of drafts, and half of what they win where they do. */
static double reading_share(const rg_draft_measured *m)
{
    double won = m->n_drafted < SURE_STEPS ? 0 : m->ids * m->plain_s / m->drafted_s - 1;

    return won / 2 > CREDIT_SHARE ? won / 2 : CREDIT_SHARE;
}

/* True if what a drafter does before its first guess for an answer is worth it: the credit covers it, or it is little
 * beside the ids that the answer may still have.  Few answers have as many as they may. */
static bool may_begin(const rg_draft_choice *c, const rg_draft_answer *a, const rg_draft_option *o, int32_t drafter,
                      const prices *p, int32_t n_answers)
{
    const double first_s = a->read_s[drafter] + (o->is_new ? p->plain_s : 0);
    const int32_t left = a->left < LONG_ANSWER ? a->left : LONG_ANSWER;
    const rg_draft_measured *m = &c->measured[size_of(n_answers)];

    return first_s <= c->credit_s || (first_s > 0 && first_s <= reading_share(m) * left * p->plain_s);
}

/* The drafters that are worth something to an answer, the best first. */
static void rank(const rg_draft_choice *c, rg_draft_answer *a, const rg_draft_option *drafters, int32_t n_drafters,
                 const prices *p, int32_t n_answers)
{
    double worths[RG_CHOICE_DRAFTERS];

    a->n = 0;
    for (int32_t j = 0; j < n_drafters; j++) {
        double worth;
        int32_t depth = best_depth(c, a, &drafters[j], j, p, n_answers, &worth), at = a->n;

        if (!depth || !may_begin(c, a, &drafters[j], j, p, n_answers))
            continue;
        for (a->n++; at > 0 && worths[at - 1] < worth; at--) {
            worths[at] = worths[at - 1];
            a->drafter[at] = a->drafter[at - 1];
            a->depth[at] = a->depth[at - 1];
        }
        worths[at] = worth;
        a->drafter[at] = j;
        a->depth[at] = depth;
    }
}

/* ---- the step ---------------------------------------------------------------------------------------------------- */

typedef struct choosing {
    const rg_draft_option *drafters;
    int32_t n_drafters, n;
    rg_draft_answer *answers; /* [n] */
} choosing;

typedef struct plan {
    int32_t n_rows;   /* of drafts */
    double gain;      /* ids expected of them */
    double more_s;    /* seconds more than the step takes without them */
    double rate;      /* ids a second */
    rg_step_load load;
} plan;

/* Rows of a draft behind an answer's own row, which is in the load. */
static void add_rows(rg_step_load *load, const rg_step_facts *facts, int64_t start, int32_t n)
{
    rg_step_load one = { 0 }, all = { 0 };

    rg_step_load_add(&one, facts, start, 1, 1);
    rg_step_load_add(&all, facts, start, 1 + n, 1 + n);
    load->n_rows += n;
    load->n_logits += n;
    load->key_bytes += all.key_bytes - one.key_bytes;
    load->key_ops += all.key_ops - one.key_ops;
}

/* What the step is expected to do if every answer takes its first choice, none deeper than `depth`. */
static plan plan_for(const rg_draft_choice *c, const rg_step_time *t, const rg_step_load *load, const prices *p,
                     const choosing *of, int32_t depth)
{
    int32_t deepest[RG_CHOICE_DRAFTERS] = { 0 };
    plan x = { .load = *load };

    for (int32_t i = 0; i < of->n; i++) {
        const rg_draft_answer *a = &of->answers[i];
        int32_t j = a->drafter[0], k = a->n && a->depth[0] < depth ? a->depth[0] : depth;

        if (!a->n)
            continue;
        x.gain += gain_of(c, &a->records[j], j, k);
        x.n_rows += of->drafters[j].nodes[k];
        deepest[j] = k > deepest[j] ? k : deepest[j];
        add_rows(&x.load, &t->facts, a->start, of->drafters[j].nodes[k]);
    }
    x.more_s = rg_step_time_predict(t, &x.load) - p->with_s;
    for (int32_t j = 0; j < of->n_drafters; j++)
        x.more_s += deepest[j] * of->drafters[j].level_s;
    x.rate = (of->n + x.gain) / (p->plain_s + x.more_s);
    return x;
}

/* Nobody drafts deeper. */
static void limit(rg_draft_answer *answers, int32_t n, int32_t depth)
{
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = 0; k < answers[i].n; k++)
            if (answers[i].depth[k] > depth)
                answers[i].depth[k] = depth;
}

static void choose_none(rg_draft_answer *answers, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        answers[i].n = 0;
}

/* By what steps without drafts were measured to take, as far as they were, and else by predictions. */
static prices prices_of(const rg_draft_choice *c, const rg_step_time *t, const rg_step_load *load, const choosing *of)
{
    rg_step_load plain = { 0 }, more = *load;
    prices p;

    for (int32_t i = 0; i < of->n; i++) {
        rg_step_load_add(&plain, &t->facts, of->answers[i].start, 1, 1);
        add_rows(&more, &t->facts, of->answers[i].start, 2);
    }
    p.plain_s = rg_draft_plain_s(c, of->n);
    if (!(p.plain_s > 0))
        p.plain_s = rg_step_time_predict(t, &plain);
    p.with_s = rg_step_time_predict(t, load);
    p.plain_rate = of->n / p.plain_s;
    p.row_s = (rg_step_time_predict(t, &more) - p.with_s) / (2 * of->n);
    return p;
}

/* True if the credit covers what a step would lose if all its guesses were wrong.  known: steps of that many rows were
 * seen lately, so that what they are predicted to take more can be trusted. */
static bool is_covered(const rg_draft_choice *c, const prices *p, const choosing *of, const plan *x, bool known)
{
    const double unseen_s = UNSEEN_ROW * p->plain_s * x->n_rows / of->n;

    return (known || x->more_s > unseen_s ? x->more_s : unseen_s) <= c->credit_s;
}

/* The deepest that some answer's first choice goes. */
static int32_t deepest_of(const choosing *of)
{
    int32_t deepest = 0;

    for (int32_t i = 0; i < of->n; i++)
        if (of->answers[i].n && of->answers[i].depth[0] > deepest)
            deepest = of->answers[i].depth[0];
    return deepest;
}

/* The depth, over all answers, with which the step is expected to do best; 0: without drafts.  Deeper drafts take
 * longer, so that none is worked out behind one that the credit does not cover: mostly the first. */
static int32_t best_limit(rg_draft_choice *c, const rg_step_time *t, const rg_step_load *load, const choosing *of,
                          int32_t max_rows, bool may_try)
{
    prices p = prices_of(c, t, load, of);
    int32_t depth = 0, deepest;
    double rate;

    for (int32_t i = 0; i < of->n; i++)
        rank(c, &of->answers[i], of->drafters, of->n_drafters, &p, of->n);
    rate = CLEARLY * p.plain_rate;
    deepest = deepest_of(of);
    for (int32_t k = 1; k <= deepest; k++) {
        plan x = plan_for(c, t, load, &p, of, k);
        bool known = rg_step_time_knows(t, x.load.n_rows);

        c->n_plans++;
        if (x.n_rows > max_rows || x.more_s > c->credit_s)
            break;
        if ((known || may_try) && x.rate > rate && is_covered(c, &p, of, &x, known)) {
            rate = x.rate;
            c->tried = !known;
            depth = k;
        }
    }
    return depth;
}

/* A draft of one answer, to see whether what is held of it has changed: by the drafter most likely to be right. */
static void try_one(rg_draft_choice *c, const rg_step_time *t, const rg_step_load *load, const choosing *of,
                    int32_t max_rows)
{
    rg_draft_answer *a = &of->answers[c->n_steps / RG_CHOICE_TRY % of->n];
    const prices p = prices_of(c, t, load, of);
    double best = 0;

    for (int32_t j = 0; j < of->n_drafters; j++) {
        int32_t depth = a->max_depth < of->drafters[j].depth ? a->max_depth : of->drafters[j].depth;
        double chance = rg_draft_chance(c, &a->records[j], j, 0);

        depth = depth < TRY_DEPTH ? depth : TRY_DEPTH;
        if (chance <= best || depth < 1 || of->drafters[j].nodes[depth] > max_rows)
            continue;
        const rg_draft_option *o = &of->drafters[j];
        const plan x = { .n_rows = o->nodes[depth], .more_s = o->nodes[depth] * p.row_s + depth * o->level_s };
        if (!may_begin(c, a, o, j, &p, of->n) || !is_covered(c, &p, of, &x, false))
            continue;
        best = chance;
        a->n = 1;
        a->drafter[0] = j;
        a->depth[0] = depth;
    }
    c->tried = a->n > 0;
}

void rg_draft_choose(rg_draft_choice *c, const rg_step_time *t, const rg_step_load *load,
                     const rg_draft_option *drafters, int32_t n_drafters, rg_draft_answer *answers, int32_t n,
                     int32_t max_rows)
{
    const choosing of = { drafters, n_drafters, n, answers };
    bool may_try = c->n_steps - c->last_try >= c->pause, lost;
    int32_t depth;

    choose_none(answers, n);
    c->tried = false;
    c->n_steps++;
    if (n < 1 || c->credit_s <= 0 || needs_plain(c, measured_of(c, n)) || !rg_step_time_knows(t, load->n_rows))
        return;
    lost = has_lost(measured_of(c, n));
    depth = best_limit(c, t, load, &of, max_rows, may_try);
    limit(answers, n, lost && depth > TRY_DEPTH ? TRY_DEPTH : depth);
    if (depth && lost)
        c->tried = true;
    if (!depth || (lost && !may_try)) {
        choose_none(answers, n);
        c->tried = false;
        if (may_try && !depth)
            try_one(c, t, load, &of, max_rows);
    }
    if (depth && !lost)
        c->pause = RG_CHOICE_TRY;
    else if (c->tried && c->pause < LONGEST_PAUSE)
        c->pause *= 2;
    if (c->tried)
        c->last_try = c->n_steps;
}
