/* step_time.c -- see step_time.h. */
#include "engine/step_time.h"

#include <math.h>
#include <string.h>

enum {
    MEAN_STEPS = 6,  /* an efficiency is the mean of about so many steps */
    FIRST_STEPS = 4, /* after so many steps the guess has become a measurement */
    RECENT = 256,    /* steps after which what was learnt of a size is forgotten */
};

/* A single step counts as at most OUTLIER times quicker or slower than the mean; during the first steps, FIRST_OUTLIER
 * times. */
static const double OUTLIER = 2, FIRST_OUTLIER = 8;
/* Efficiencies assumed before any step: of one row, and of many. */
static const double FIRST_FEW = 0.7, FIRST_MANY = 0.5;
static const double LEAST_EFFICIENCY = 1e-4, MOST_EFFICIENCY = 1e4;

static double within(double x, double least, double most)
{
    return x < least ? least : x > most ? most : x;
}

/* The power of two of a number of rows. */
static int size_of(int32_t n_rows)
{
    int size = 0;

    while (n_rows > 1 && size < RG_STEP_SIZES - 1) {
        n_rows /= 2;
        size++;
    }
    return size;
}

static double first_guess(int size)
{
    return FIRST_FEW + (FIRST_MANY - FIRST_FEW) * size / (RG_STEP_SIZES - 1);
}

static bool is_known(const rg_step_time *t)
{
    return t->roofs.bytes_s > 0;
}

static double seconds_at(double amount, double per_s)
{
    return per_s > 0 ? amount / per_s : 0;
}

static double bytes_s(const rg_step_time *t, const rg_step_load *load)
{
    return seconds_at(rg_step_bytes(&t->facts, load), t->roofs.bytes_s);
}

static double ops_s(const rg_step_time *t, const rg_step_load *load)
{
    return seconds_at(rg_step_product_ops(&t->facts, load), t->roofs.product_ops_s) +
           seconds_at(load->key_ops, t->roofs.key_ops_s);
}

double rg_step_limit_s(const rg_step_time *t, const rg_step_load *load)
{
    return is_known(t) ? fmax(bytes_s(t, load), ops_s(t, load)) : 0;
}

static double roof_s(const rg_step_time *t, const rg_step_load *load)
{
    return rg_step_limit_s(t, load) + t->facts.fixed_s;
}

/* They are asked for in every step, and change with the limits alone. */
static void find_plain_roofs(rg_step_time *t)
{
    for (int i = 0; i < RG_STEP_SIZES; i++) {
        rg_step_load load = { 0 };

        rg_step_load_add(&load, &t->facts, 0, (int32_t)1 << i, 1);
        t->plain_roof_s[i] = roof_s(t, &load);
    }
}

void rg_step_time_init(rg_step_time *t, const rg_step_facts *facts, const rg_step_roofs *roofs)
{
    memset(t, 0, sizeof *t);
    t->facts = *facts;
    t->roofs = *roofs;
    find_plain_roofs(t);
    for (int i = 0; i < RG_STEP_SIZES; i++)
        t->efficiency[i] = first_guess(i);
}

double rg_step_time_predict(const rg_step_time *t, const rg_step_load *load)
{
    return is_known(t) ? roof_s(t, load) / t->efficiency[size_of(load->n_rows)] : 0;
}

bool rg_step_time_knows(const rg_step_time *t, int32_t n_rows)
{
    return t->n_learnt[size_of(n_rows)] > 0;
}

/* The size nearest to this one that was measured; of two, the smaller.  One at least was. */
static int nearest_learnt(const rg_step_time *t, int size)
{
    for (int d = 0;; d++) {
        if (size - d >= 0 && t->n_learnt[size - d])
            return size - d;
        if (size + d < RG_STEP_SIZES && t->n_learnt[size + d])
            return size + d;
    }
}

/* Keep what was just learnt of one size: make larger steps take at least as long, and smaller ones at most as long. */
static void order_neighbours(rg_step_time *t, int size)
{
    double seconds = t->plain_roof_s[size] / t->mean[size];

    for (int i = 0; i < RG_STEP_SIZES; i++) {
        double fits = t->plain_roof_s[i] / seconds; /* the efficiency with which it takes as long */

        if (t->n_learnt[i] && ((i < size && t->mean[i] < fits) || (i > size && t->mean[i] > fits)))
            t->mean[i] = fits;
    }
}

/* Efficiencies from means.  Sizes that were not measured follow the nearest one, by what was guessed of both, and
 * are put in order between their neighbours. */
static void derive(rg_step_time *t)
{
    double seconds[RG_STEP_SIZES];

    for (int i = 0; i < RG_STEP_SIZES; i++) {
        int near = nearest_learnt(t, i);

        seconds[i] = t->plain_roof_s[i] / (t->mean[near] * (first_guess(i) / first_guess(near)));
    }
    for (int i = 1; i < RG_STEP_SIZES; i++)
        if (!t->n_learnt[i])
            seconds[i] = fmax(seconds[i], seconds[i - 1]);
    for (int i = RG_STEP_SIZES - 2; i >= 0; i--)
        if (!t->n_learnt[i])
            seconds[i] = fmin(seconds[i], seconds[i + 1]);
    for (int i = 0; i < RG_STEP_SIZES; i++)
        t->efficiency[i] = t->plain_roof_s[i] / seconds[i];
}

/* True if the load is exact: how many experts rows of a batch share is an estimate. */
static bool is_counted(const rg_step_time *t, const rg_step_load *load)
{
    return !t->facts.n_experts || load->n_rows == 1;
}

/* A step took less than a limit allows: raise the limit to what it reached.  Other work can only slow a step down, so a
 * single one is proof.  Means keep the seconds that they stand for. */
static void correct_roofs(rg_step_time *t, const rg_step_load *load, double took_s)
{
    double by_bytes = bytes_s(t, load) / took_s, by_ops = ops_s(t, load) / took_s, seconds[RG_STEP_SIZES];

    if ((by_bytes <= 1 && by_ops <= 1) || !is_counted(t, load))
        return;
    for (int i = 0; i < RG_STEP_SIZES; i++)
        seconds[i] = t->n_learnt[i] ? t->plain_roof_s[i] / t->mean[i] : 0;
    if (by_bytes > 1)
        t->roofs.bytes_s *= by_bytes;
    if (by_ops > 1) {
        t->roofs.product_ops_s *= by_ops;
        t->roofs.key_ops_s *= by_ops;
    }
    find_plain_roofs(t);
    for (int i = 0; i < RG_STEP_SIZES; i++)
        if (t->n_learnt[i])
            t->mean[i] = t->plain_roof_s[i] / seconds[i];
}

void rg_step_time_learn(rg_step_time *t, const rg_step_load *load, double took_s)
{
    int size = size_of(load->n_rows);
    int32_t *n = &t->n_learnt[size];
    double far = *n < FIRST_STEPS ? FIRST_OUTLIER : OUTLIER, mean;

    if (!is_known(t) || !(took_s > 0))
        return;
    correct_roofs(t, load, took_s);
    mean = *n ? t->mean[size] : t->efficiency[size];
    t->last[size] = t->n_steps++;
    for (int i = 0; i < RG_STEP_SIZES; i++)
        if (t->n_steps - t->last[i] > RECENT)
            t->n_learnt[i] = 0;
    if (*n < MEAN_STEPS - 1)
        ++*n;
    mean += (within(roof_s(t, load) / took_s, mean / far, mean * far) - mean) / (*n + 1);
    t->mean[size] = within(mean, LEAST_EFFICIENCY, MOST_EFFICIENCY);
    order_neighbours(t, size);
    derive(t);
}

static rg_step_load with_prompt(const rg_step_time *t, const rg_step_load *load, int64_t start, int32_t n_rows)
{
    rg_step_load with = *load;

    rg_step_load_add(&with, &t->facts, start, n_rows, 1);
    return with;
}

/* The most rows that take most_s, where lo rows take lo_s <= most_s, hi rows hi_s, and those between lie on a line. */
static int32_t rows_between(int32_t lo, double lo_s, int32_t hi, double hi_s, double most_s)
{
    return hi_s <= most_s ? hi : lo + (int32_t)((hi - lo) * ((most_s - lo_s) / (hi_s - lo_s)));
}

/* Within one power of two of rows the efficiency is one number, so the time left for bytes and for operations is known,
 * and both grow about evenly with rows. */
static int32_t rows_of_size(const rg_step_time *t, const rg_step_load *load, int64_t start, double most_s, int32_t lo,
                            int32_t hi)
{
    rg_step_load least = with_prompt(t, load, start, lo), most = with_prompt(t, load, start, hi);
    double left_s = most_s * t->efficiency[size_of(most.n_rows)] - t->facts.fixed_s;
    int32_t by_bytes = rows_between(lo, bytes_s(t, &least), hi, bytes_s(t, &most), left_s);
    int32_t by_ops = rows_between(lo, ops_s(t, &least), hi, ops_s(t, &most), left_s);

    return by_bytes < by_ops ? by_bytes : by_ops;
}

int32_t rg_step_time_rows(const rg_step_time *t, const rg_step_load *load, int64_t start, double most_s,
                          int32_t max_rows)
{
    int32_t lo = 1;

    if (!is_known(t))
        return max_rows;
    while (lo <= max_rows) { /* the rows with which the step is of one size */
        int size = size_of(load->n_rows + lo);
        int64_t last = ((int64_t)2 << size) - 1 - load->n_rows;
        int32_t hi = size < RG_STEP_SIZES - 1 && last < max_rows ? (int32_t)last : max_rows;
        rg_step_load least = with_prompt(t, load, start, lo), most = with_prompt(t, load, start, hi);

        if (rg_step_time_predict(t, &least) > most_s)
            return lo - 1;
        if (rg_step_time_predict(t, &most) > most_s)
            return rows_of_size(t, load, start, most_s, lo, hi);
        lo = hi + 1;
    }
    return max_rows;
}

bool rg_step_time_swap_is_quicker(const rg_step_time *t, int64_t n, int32_t max_rows)
{
    int32_t at_once = n < max_rows ? (int32_t)n : max_rows;
    rg_step_load load = { 0 };

    /* On average its steps see half of the positions. */
    rg_step_load_add(&load, &t->facts, (n - at_once) / 2, at_once, 0);
    double again_s = rg_step_time_predict(t, &load) * (double)n / at_once;
    double copy_s = seconds_at(4 * rg_step_kept_bytes(&t->facts, n), t->roofs.bytes_s); /* read and written, twice */
    return copy_s < again_s;
}
