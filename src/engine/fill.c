/* fill.c -- see fill.h. */
#include "engine/fill.h"

#include <string.h>

int32_t rg_fill_block(const rg_diffusion_params *p, int32_t sees, int32_t n_tokens)
{
    if (sees != RG_SEES_ALL)
        return sees;
    return p->block && p->block < n_tokens ? p->block : n_tokens;
}

int32_t rg_fill_evaluations(const rg_diffusion_params *p, int32_t sees, int32_t n_tokens)
{
    int64_t most = (int64_t)n_tokens + 2 * sees;

    if (sees == RG_SEES_ALL && p->steps > n_tokens)
        most = p->steps;
    if (sees != RG_SEES_ALL && p->steps > sees)
        most *= p->steps;
    return most < INT32_MAX ? (int32_t)most : INT32_MAX;
}

int32_t rg_fill_rows(const rg_fill *f)
{
    return (f->e.end - f->e.first) * (1 + rg_fill_is_guided(f));
}

int32_t rg_fill_logits(const rg_fill *f)
{
    int32_t n = 0;

    for (int32_t i = f->e.from; i < f->e.upto && !f->e.keeps; i++)
        n += f->d.ids[i] == f->d.model.mask_id;
    return n * (1 + rg_fill_is_guided(f));
}

void rg_fill_lose_state(rg_fill *f)
{
    if (f->done || f->d.p.cache == RG_CACHE_NONE || !f->d.step)
        return;
    if (f->trace)
        atomic_fetch_sub(&f->n_traced, f->d.step);
    rg_denoise_restart(&f->d);
    f->done = !rg_denoise_next(&f->d, &f->e);
}

float *rg_fill_take(rg_fill *f, int32_t position, bool without, float *logits, int32_t vocab_size)
{
    rg_guided *g = &f->guided[position - f->e.from];

    if (!rg_fill_is_guided(f))
        return logits;
    g->logits[without] = logits;
    if (atomic_fetch_add(&g->n, 1) == 0)
        return NULL;
    rg_guide(g->logits[0], g->logits[1], vocab_size, f->d.p.cfg_scale);
    return g->logits[0];
}

int32_t rg_fill_id(const rg_fill *f, int32_t position, bool without)
{
    return without && position < f->d.n_prompt ? f->d.model.mask_id : f->d.ids[position];
}

static void keep_trace(rg_fill *f)
{
    int32_t n = atomic_load(&f->n_traced);

    if (!f->trace || f->e.keeps || n >= f->most_traced)
        return;
    memcpy(f->trace + (size_t)n * (size_t)f->d.n, f->d.ids, (size_t)f->d.n * sizeof *f->trace);
    atomic_store(&f->n_traced, n + 1);
}

int32_t rg_fill_commit(rg_fill *f)
{
    int32_t n_final = rg_denoise_commit(&f->d, &f->e);

    keep_trace(f);
    f->done = !rg_denoise_next(&f->d, &f->e);
    for (int32_t i = f->e.from; rg_fill_is_guided(f) && !f->done && i < f->e.upto; i++)
        atomic_store(&f->guided[i - f->e.from].n, 0);
    return f->trace && !f->done ? 0 : n_final;
}
