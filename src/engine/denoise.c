/* denoise.c -- see denoise.h. */
#include "engine/denoise.h"

#include "engine/numeric.h"
#include "model/runner.h"

/* Dream's time goes from 1 to this. */
static const double LAST_TIME = 1e-3;

/* Evaluations of a canvas where neither a request nor the checkpoint says how many. */
enum { CANVAS_STEPS = 48 };

static bool has_own_blocks(int32_t sees)
{
    return sees != RG_SEES_ALL;
}

int32_t rg_denoise_own_block(const rg_diffusion *model, int32_t sees)
{
    return model->canvas.length ? model->canvas.length : sees != RG_SEES_ALL ? sees : 0;
}

int32_t rg_denoise_length(int32_t n_prompt, int32_t n_tokens, const rg_diffusion *model, int32_t sees)
{
    const int32_t block = rg_denoise_own_block(model, sees);
    int64_t n = (int64_t)n_prompt + n_tokens, over;

    if (block) {
        over = (model->canvas.length ? n_tokens : n) % block;
        n += over ? block - over : 0;
    }
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

    if (model->canvas.length) {
        p->steps = p->steps ? p->steps : model->steps ? model->steps : CANVAS_STEPS;
        return;
    }
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

/* A canvas has one published loop. */
static bool check_canvas(const rg_diffusion_params *p, const rg_diffusion *model, rg_error *err)
{
    if (p->block && p->block != model->canvas.length)
        return rg_fail(err, RG_E_UNSUPPORTED, "block %d: this model was made for canvases of %d", p->block,
                       model->canvas.length);
    if (p->threshold > 0)
        return refuse("threshold", "this model accepts ids by their entropies, not by a threshold", err);
    if (p->remasking != RG_REMASKING_DEFAULT)
        return refuse("remasking", "this model has no masks, and makes noise of what it does not accept", err);
    if (p->cfg_scale > 0)
        return refuse("cfg", "guidance is not published for this model", err);
    if (p->cache != RG_CACHE_NONE)
        return refuse("cache", "what this model reads before its canvas is kept exactly", err);
    return true;
}

bool rg_denoise_check(const rg_diffusion_params *p, const rg_diffusion *model, int32_t sees, rg_error *err)
{
    bool blocks = has_own_blocks(sees), timed = model->schedule == RG_SCHEDULE_TIME;

    if (p->steps < 0 || p->block < 0)
        return rg_fail(err, RG_E_USAGE, "steps %d and block %d must not be negative", p->steps, p->block);
    if (!(p->threshold >= 0 && p->threshold <= 1) || !(p->cfg_scale >= 0 && p->cfg_scale <= 100))
        return rg_fail(err, RG_E_USAGE, "a threshold of %g or guidance of %g: 0 to 1 and 0 to 100 are allowed",
                       (double)p->threshold, (double)p->cfg_scale);
    if (model->canvas.length)
        return check_canvas(p, model, err);
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

/* True if blocks are the model's own, counted from the first position, and kept as they were filled in. */
static bool has_aligned_blocks(const rg_denoise *d)
{
    return !d->model.canvas.length && has_own_blocks(d->sees);
}

/* The block that begins at `from`. */
static void begin_block(rg_denoise *d, int32_t from)
{
    const int32_t own = rg_denoise_own_block(&d->model, d->sees);
    const int32_t size = own ? own : d->p.block ? d->p.block : d->n - d->n_prompt;

    d->from = from;
    d->upto = from + size < d->n ? from + size : d->n;
    d->step = d->n_same = 0;
    d->done = false;
    d->n_at_start = count_masks(d, d->from, d->upto);
    for (int32_t i = d->from; d->model.canvas.length && i < d->upto; i++) {
        d->ids[i] = d->noise(d->noise_arg, d->n_evaluations, i);
        d->candidates[i].best = -1;
    }
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
                       .candidates = s->candidates,
                       .noise = s->noise,
                       .noise_arg = s->noise_arg };
    for (int32_t i = s->n_prompt; i < s->n; i++)
        d->ids[i] = d->model.mask_id;
    begin_block(d, has_aligned_blocks(d) ? s->n_prompt / s->sees * s->sees : s->n_prompt);
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

/* How many of m masks this step fills, where no threshold decides. */
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
    if (d->model.canvas.length)
        return d->done;
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
    if (is_filled(d) && !has_aligned_blocks(d)) {
        begin_block(d, d->upto);
        e->from = d->from;
        e->upto = d->upto;
    }
    e->keeps = is_filled(d);
    first_row(d, e);
    for (int32_t i = e->from; i < e->upto; i++) {
        d->candidates[i].id = -1;
        d->candidates[i].before = d->candidates[i].best;
    }
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

/* ---- a canvas ---- */

float rg_denoise_temperature(const rg_denoise *d)
{
    const rg_canvas *c = &d->model.canvas;

    return c->t_min + (c->t_max - c->t_min) * (float)(d->p.steps - d->step) / (float)d->p.steps;
}

enum { OPEN = -1 };

/* Returns the position with the surest candidate that is not accepted yet; -1: all candidates are accepted. */
static int32_t surest_open(const rg_denoise *d, const rg_evaluation *e)
{
    int32_t best = -1;

    for (int32_t i = e->from; i < e->upto; i++)
        if (d->ids[i] == OPEN && (best < 0 || d->candidates[i].confidence > d->candidates[best].confidence))
            best = i;
    return best;
}

/* True once the likeliest ids are stable, and the distributions sharp. */
static bool is_settled(rg_denoise *d, const rg_evaluation *e)
{
    const rg_canvas *c = &d->model.canvas;
    double entropies = 0;
    bool same = true;

    for (int32_t i = e->from; i < e->upto; i++) {
        entropies -= (double)d->candidates[i].confidence;
        same = same && d->candidates[i].best == d->candidates[i].before;
    }
    d->n_same = same ? d->n_same + 1 : 0;
    return d->n_same >= c->stability && entropies / (e->upto - e->from) < (double)c->confidence;
}

/* Accept the surest candidates; what is left becomes noise. */
static void refine(rg_denoise *d, const rg_evaluation *e)
{
    double sum = 0;
    int32_t i;

    for (int32_t k = e->from; k < e->upto; k++)
        d->ids[k] = OPEN;
    while (sum <= (double)d->model.canvas.entropy_bound && (i = surest_open(d, e)) >= 0) {
        d->ids[i] = d->candidates[i].id;
        sum -= (double)d->candidates[i].confidence;
    }
    for (int32_t k = e->from; k < e->upto; k++)
        if (d->ids[k] == OPEN)
            d->ids[k] = d->noise(d->noise_arg, d->n_evaluations, k);
}

/* Returns how many ids of the answer are final: those of canvases that are done. */
static int32_t commit_canvas(rg_denoise *d, const rg_evaluation *e)
{
    d->step++;
    d->done = is_settled(d, e) || d->step >= d->p.steps;
    if (!d->done) {
        refine(d, e);
        return e->from - d->n_prompt;
    }
    for (int32_t i = e->from; i < e->upto; i++)
        d->ids[i] = d->candidates[i].best;
    return e->upto - d->n_prompt;
}

int32_t rg_denoise_commit(rg_denoise *d, const rg_evaluation *e)
{
    int32_t n_final = d->n_prompt;

    if (d->model.canvas.length)
        return commit_canvas(d, e);
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
            entropy += p * rg_ln(p + 1e-10);
    }
    return (float)(remasking == RG_REMASKING_ENTROPY ? entropy : remasking == RG_REMASKING_MARGIN ? own - second : own);
}

float rg_entropy(const float *logits, int32_t n)
{
    double most = largest(logits, n), sum = 0, weighed = 0;

    for (int32_t i = 0; i < n; i++) {
        double x = (double)logits[i] - most, w = rg_exp_negative(x);

        sum += w;
        weighed += w * x;
    }
    return (float)(rg_ln(sum) - weighed / sum);
}

void rg_guide(float *logits, const float *without, int32_t n, float scale)
{
    for (int32_t i = 0; i < n; i++)
        logits[i] = without[i] + (scale + 1) * (logits[i] - without[i]);
}
