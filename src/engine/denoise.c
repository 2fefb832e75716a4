/* denoise.c -- see denoise.h. */
#include "engine/denoise.h"

#include "engine/numeric.h"
#include "model/runner.h"

/* Dream's time goes from 1 to this. */
static const double LAST_TIME = 1e-3;

static bool has_own_blocks(int32_t sees)
{
    return sees != RG_SEES_ALL;
}

int32_t rg_denoise_length(int32_t n_prompt, int32_t n_tokens, int32_t sees)
{
    int64_t n = (int64_t)n_prompt + n_tokens;

    if (has_own_blocks(sees) && n % sees)
        n += sees - n % sees;
    return n < INT32_MAX ? (int32_t)n : INT32_MAX;
}

/* True if masks are filled in by confidence in an id, which a threshold can be put to. */
static bool takes_threshold(const rg_diffusion_params *p, int32_t sees)
{
    if (has_own_blocks(sees))
        return p->remasking == RG_REMASKING_DEFAULT || p->remasking == RG_REMASKING_DYNAMIC;
    return p->remasking != RG_REMASKING_ENTROPY;
}

void rg_denoise_settle(rg_diffusion_params *p, const rg_diffusion *model, int32_t sees)
{
    const bool given = p->steps || p->threshold != 0;

    if (!given) {
        p->steps = model->steps;
        p->threshold = takes_threshold(p, sees) ? model->threshold : 0;
    }
    if (p->threshold == 0 && takes_threshold(p, sees) && (!p->steps || p->remasking == RG_REMASKING_DYNAMIC))
        p->threshold = RG_DIFFUSION_THRESHOLD;
    if (has_own_blocks(sees) && p->remasking == RG_REMASKING_DEFAULT && p->threshold > 0)
        p->remasking = RG_REMASKING_DYNAMIC;
}

static bool refuse(const char *what, const char *why, rg_error *err)
{
    return rg_fail(err, RG_E_UNSUPPORTED, "%s: %s", what, why);
}

bool rg_denoise_check(const rg_diffusion_params *p, const rg_diffusion *model, int32_t sees, rg_error *err)
{
    bool blocks = has_own_blocks(sees), timed = model->schedule == RG_SCHEDULE_TIME;

    if (p->steps < 0 || p->block < 0)
        return rg_fail(err, RG_E_USAGE, "steps %d and block %d must not be negative", p->steps, p->block);
    if (!(p->threshold >= 0 && p->threshold <= 1) || !(p->cfg_scale >= 0 && p->cfg_scale <= 100))
        return rg_fail(err, RG_E_USAGE, "a threshold of %g or guidance of %g: 0 to 1 and 0 to 100 are allowed",
                       (double)p->threshold, (double)p->cfg_scale);
    if (blocks && p->block && p->block != sees)
        return rg_fail(err, RG_E_UNSUPPORTED, "block %d: this model was made for blocks of %d", p->block, sees);
    if (timed && p->block)
        return refuse("block", "this model fills in an answer as a whole", err);
    if (!blocks && (p->remasking == RG_REMASKING_SEQUENTIAL || p->remasking == RG_REMASKING_DYNAMIC))
        return refuse("remasking", "sequential and dynamic are for models with blocks of their own", err);
    if (blocks && (p->remasking == RG_REMASKING_ENTROPY || p->remasking == RG_REMASKING_MARGIN))
        return refuse("remasking", "this model takes low_confidence, sequential and dynamic", err);
    if (p->remasking == RG_REMASKING_DYNAMIC && p->threshold == 0)
        return refuse("remasking", "dynamic needs a threshold", err);
    if (blocks && p->threshold > 0 && p->remasking != RG_REMASKING_DYNAMIC)
        return refuse("threshold", "this model takes one with remasking dynamic", err);
    if (p->cfg_scale > 0 && (blocks || timed))
        return refuse("cfg", "guidance is not published for this model", err);
    if (p->cache != RG_CACHE_NONE && (blocks || timed))
        return refuse("cache", blocks ? "the blocks of this model are kept exactly" : "not for shifted logits", err);
    return true;
}

static int32_t count_masks(const rg_denoise *d, int32_t from, int32_t upto)
{
    int32_t n = 0;

    for (int32_t i = from; i < upto; i++)
        n += d->ids[i] == d->model.mask_id;
    return n;
}

/* The block that begins at `from`. */
static void begin_block(rg_denoise *d, int32_t from)
{
    int32_t size = has_own_blocks(d->sees) ? d->sees : d->p.block ? d->p.block : d->n - d->n_prompt;

    d->from = from;
    d->upto = from + size < d->n ? from + size : d->n;
    d->step = 0;
    d->n_at_start = count_masks(d, d->from, d->upto);
}

void rg_denoise_init(rg_denoise *d, const rg_denoise_start *s)
{
    *d = (rg_denoise){ .p = *s->params,
                       .model = *s->model,
                       .sees = s->sees,
                       .n_prompt = s->n_prompt,
                       .n = s->n,
                       .in_order = s->in_order,
                       .ids = s->ids,
                       .candidates = s->candidates };
    for (int32_t i = s->n_prompt; i < s->n; i++)
        d->ids[i] = d->model.mask_id;
    begin_block(d, has_own_blocks(s->sees) ? s->n_prompt / s->sees * s->sees : s->n_prompt);
}

/* ---- how many steps, and how many masks a step fills in ---- */

/* Evaluations of a block; the same number for each. */
static int32_t steps_of_block(const rg_denoise *d)
{
    int32_t answer = d->n - d->n_prompt, n_blocks = d->p.block ? (answer + d->p.block - 1) / d->p.block : 1;
    int32_t all = d->p.steps ? d->p.steps : has_own_blocks(d->sees) ? d->sees : answer;

    if (has_own_blocks(d->sees))
        return all;
    return all > n_blocks ? all / n_blocks : 1;
}

static bool goes_by_threshold(const rg_denoise *d)
{
    return d->p.threshold > 0 && d->p.remasking != RG_REMASKING_DYNAMIC;
}

/* Of m masks in this step, where no threshold decides. */
static int32_t masks_to_fill(const rg_denoise *d, int32_t m)
{
    int32_t steps = steps_of_block(d), whole = has_own_blocks(d->sees) ? d->sees : d->n_at_start, n;

    if (d->model.schedule == RG_SCHEDULE_TIME) {
        double now = 1 + (LAST_TIME - 1) * d->step / steps, next = 1 + (LAST_TIME - 1) * (d->step + 1) / steps;

        return d->step == steps - 1 ? m : (int32_t)(m * (1 - next / now));
    }
    n = d->step < steps ? whole / steps + (d->step < whole % steps) : 0;
    return n < m ? n : m;
}

/* True once the block needs no more evaluations that fill in masks. */
static bool is_filled(const rg_denoise *d)
{
    if (!count_masks(d, d->from, d->upto))
        return has_own_blocks(d->sees) || goes_by_threshold(d) || d->p.cache != RG_CACHE_NONE ||
               d->step >= steps_of_block(d);
    return false;
}

/* ---- the loop ---- */

static void first_row(const rg_denoise *d, rg_evaluation *e)
{
    e->first = has_own_blocks(d->sees) || (d->p.cache != RG_CACHE_NONE && d->step > 0) ? d->from : 0;
    e->end = has_own_blocks(d->sees) || (d->p.cache == RG_CACHE_DUAL && d->step > 0) ? d->upto : d->n;
}

bool rg_denoise_next(rg_denoise *d, rg_evaluation *e)
{
    *e = (rg_evaluation){ .from = d->from, .upto = d->upto };
    if (is_filled(d) && d->upto == d->n)
        return false;
    if (is_filled(d) && !has_own_blocks(d->sees)) {
        begin_block(d, d->upto);
        e->from = d->from;
        e->upto = d->upto;
    }
    e->keeps = is_filled(d);
    first_row(d, e);
    for (int32_t i = e->from; i < e->upto; i++)
        d->candidates[i].id = -1;
    d->n_evaluations += !e->keeps;
    return true;
}

void rg_denoise_restart(rg_denoise *d)
{
    for (int32_t i = d->from > d->n_prompt ? d->from : d->n_prompt; i < d->upto; i++)
        d->ids[i] = d->model.mask_id;
    d->n_evaluations -= d->step + 1; /* the one that was begun is begun again */
    begin_block(d, d->from);
}

/* The most confident candidate of a mask, or the first; -1: there is none. */
static int32_t best_of(const rg_denoise *d, const rg_evaluation *e)
{
    int32_t best = -1;

    for (int32_t i = e->from; i < e->upto; i++) {
        const rg_candidate *c = &d->candidates[i];

        if (d->ids[i] != d->model.mask_id || c->id < 0)
            continue;
        if (best < 0 || c->confidence > d->candidates[best].confidence)
            best = i;
        if (d->in_order || d->p.remasking == RG_REMASKING_SEQUENTIAL)
            break;
    }
    return best;
}

static bool is_confident(const rg_denoise *d, float c)
{
    return goes_by_threshold(d) ? c >= d->p.threshold : c > d->p.threshold;
}

static int32_t count_confident(const rg_denoise *d, const rg_evaluation *e)
{
    int32_t n = 0;

    for (int32_t i = e->from; i < e->upto; i++) {
        if (d->ids[i] != d->model.mask_id)
            continue;
        bool sure = d->candidates[i].id >= 0 && is_confident(d, d->candidates[i].confidence);
        if (d->in_order && !sure)
            break;
        n += sure;
    }
    return n;
}

static int32_t ids_to_commit(const rg_denoise *d, const rg_evaluation *e)
{
    int32_t m = count_masks(d, e->from, e->upto), n = masks_to_fill(d, m), confident;

    if (d->p.threshold == 0)
        return n;
    confident = count_confident(d, e);
    if (goes_by_threshold(d))
        return confident ? confident : m > 0;
    return confident >= n ? confident : n;
}

int32_t rg_denoise_first_mask(const rg_denoise *d, const rg_evaluation *e)
{
    int32_t i = e->from;

    while (i < e->upto && d->ids[i] != d->model.mask_id)
        i++;
    return i;
}

bool rg_denoise_goes_on(const rg_denoise *d, const rg_evaluation *e, int32_t n, float confidence)
{
    if (d->p.threshold > 0 && is_confident(d, confidence))
        return true;
    return !goes_by_threshold(d) && n < masks_to_fill(d, count_masks(d, e->from, e->upto));
}

int32_t rg_denoise_commit(rg_denoise *d, const rg_evaluation *e)
{
    int32_t n_final = d->n_prompt;

    if (e->keeps) {
        begin_block(d, d->upto);
    } else {
        for (int32_t n = ids_to_commit(d, e), i; n > 0 && (i = best_of(d, e)) >= 0; n--)
            d->ids[i] = d->candidates[i].id;
        d->step++;
    }
    while (n_final < d->n && d->ids[n_final] != d->model.mask_id)
        n_final++;
    return n_final - d->n_prompt;
}

/* ---- one row of logits ---- */

static float largest(const float *logits, int32_t n)
{
    float most = logits[0];

    for (int32_t i = 1; i < n; i++)
        most = logits[i] > most ? logits[i] : most;
    return most;
}

float rg_confidence(const float *logits, int32_t n, int32_t id, rg_remasking remasking)
{
    double most = largest(logits, n), sum = 0, second = 0, own = 0, entropy = 0;

    for (int32_t i = 0; i < n; i++)
        sum += rg_exp_negative((double)logits[i] - most);
    for (int32_t i = 0; i < n; i++) {
        double p = rg_exp_negative((double)logits[i] - most) / sum;

        if (i == id)
            own = p;
        else if (p > second)
            second = p;
        if (remasking == RG_REMASKING_ENTROPY)
            entropy += p * rg_log(p + 1e-10);
    }
    return (float)(remasking == RG_REMASKING_ENTROPY ? entropy : remasking == RG_REMASKING_MARGIN ? own - second : own);
}

void rg_guide(float *logits, const float *without, int32_t n, float scale)
{
    for (int32_t i = 0; i < n; i++)
        logits[i] = without[i] + (scale + 1) * (logits[i] - without[i]);
}
