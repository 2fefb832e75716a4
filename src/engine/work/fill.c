/* fill.c -- see fill.h. */
#include "engine/work/fill.h"

#include <math.h>
#include <string.h>

#include "engine/work/answer.h"

/* ---- at the door ------------------------------------------------------------------------------------------------- */

static bool takes(const rg_params *p, const rg_request_model *m)
{
    (void)p;
    return m->diffusion;
}

static bool has_canvas(const rg_request_model *m)
{
    return m->diffusion->canvas.length > 0;
}

static int32_t own_block(const rg_request_model *m)
{
    return rg_denoise_own_block(m->diffusion, m->sees);
}

/* Most positions of a block: one evaluation may want logits of all of them. */
static int32_t block_of(const rg_diffusion_params *p, const rg_request_model *m, int32_t n_tokens)
{
    if (own_block(m))
        return own_block(m);
    return p->block && p->block < n_tokens ? p->block : n_tokens;
}

/* Positions of a prompt and its answer of so many ids. */
static int32_t length_of(const rg_params *p, const rg_request_model *m, int32_t n_tokens)
{
    return rg_denoise_length(p->n_prompt, n_tokens, m->diffusion, m->sees);
}

/* Evaluations of an answer at most. */
static int32_t most_evaluations(const rg_diffusion_params *p, const rg_request_model *m, int32_t n_tokens)
{
    const int32_t own = own_block(m);
    int64_t most = (int64_t)n_tokens + 2 * own;

    if (has_canvas(m))
        most = (n_tokens + (int64_t)own - 1) / own * p->steps;
    else if (!own && p->steps > n_tokens)
        most = p->steps;
    else if (own && p->steps > own)
        most *= p->steps;
    return most < INT32_MAX ? (int32_t)most : INT32_MAX;
}

/* How the answer is filled in, with what was left out. */
static rg_diffusion_params settled(const rg_params *p, const rg_request_model *m)
{
    rg_diffusion_params d = p->diffusion;

    rg_denoise_settle(&d, m->diffusion, m->sees);
    return d;
}

enum { MAX_FILL_POSITIONS = 1 << 24, MAX_TRACED = 1 << 26 /* bytes */ };

/* The rule of sampling that needs ids one after the other; NULL: none is asked for. */
static const char *rule_in_order(const rg_sampling *p)
{
    bool penalties = p->repetition_penalty != 1 || p->frequency_penalty != 0 || p->presence_penalty != 0;

    return p->mirostat                     ? "mirostat"
           : p->dry_multiplier > 0         ? "dry_multiplier"
           : p->penalty_last_n && penalties ? "penalty_last_n"
                                           : NULL;
}

/* What is kept of the evaluations of an answer as long as the context leaves room for. */
static bool check_trace(const rg_params *p, const rg_request_model *m, rg_error *err)
{
    const int32_t n_tokens = rg_request_tokens_left(p, m);
    const rg_diffusion_params d = settled(p, m);
    const size_t n = (size_t)length_of(p, m, n_tokens);

    if (d.trace && (size_t)most_evaluations(&d, m, n_tokens) > MAX_TRACED / sizeof(int32_t) / n)
        return rg_fail(err, RG_E_LIMIT, "a trace of so many steps is too large");
    return true;
}

/* What an answer of a diffusion model must be like. */
static bool check(const rg_params *p, const rg_request_model *m, rg_error *err)
{
    if (!rg_answer_check(p, m, err))
        return false;
    int32_t n = length_of(p, m, p->max_tokens), guided = 1 + (p->diffusion.cfg_scale > 0);
    int32_t block = block_of(&p->diffusion, m, p->max_tokens);
    const rg_diffusion_params d = settled(p, m);

    if (!rg_denoise_check(&d, m->diffusion, m->sees, err))
        return false;
    if (p->prompt_logprobs)
        return rg_fail(err, RG_E_UNSUPPORTED,
                       "this model fills in answers in any order: prompt_logprobs needs ids one "
                       "after the other");
    if (p->grammar && has_canvas(m))
        return rg_fail(err, RG_E_UNSUPPORTED,
                       "this model draws all ids of a canvas anew in each evaluation: a grammar needs ids that stay");
    if (p->grammar && d.cache != RG_CACHE_NONE)
        return rg_fail(err, RG_E_UNSUPPORTED,
                       "a grammar goes with diffusion_cache none: what prefix and dual keep is "
                       "made again by other ids");
    if (rule_in_order(&p->sampling))
        return rg_fail(err, RG_E_UNSUPPORTED, "this model fills in answers in any order: %s needs ids one after the "
                       "other", rule_in_order(&p->sampling));
    if (m->sees == RG_SEES_ALL && (int64_t)n * guided > m->max_rows)
        return rg_fail(err, RG_E_LIMIT, "%d prompt ids and an answer of %d are computed in one step%s, which has room "
                       "for %d rows (--batch-rows)", (int)p->n_prompt, (int)p->max_tokens,
                       guided > 1 ? ", and again without the prompt" : "", (int)m->max_rows);
    if (own_block(m) && block > m->max_rows)
        return rg_fail(err, RG_E_LIMIT, "blocks of %d positions are computed in one step, which has room for %d rows "
                       "(--batch-rows)", (int)block, (int)m->max_rows);
    if ((int64_t)block * guided > m->max_logits)
        return rg_fail(err, RG_E_LIMIT, "blocks of %d positions: a step has room for the logits of %d; ask for smaller "
                       "blocks", (int)block, (int)m->max_logits / guided);
    for (int32_t i = 0; i < p->n_prompt; i++)
        if (!has_canvas(m) && p->prompt[i] == m->diffusion->mask_id)
            return rg_fail(err, RG_E_INPUT, "id %d at place %d of the prompt is the mask", (int)p->prompt[i], (int)i);
    if (n > MAX_FILL_POSITIONS)
        return rg_fail(err, RG_E_LIMIT, "the answer is too long");
    return check_trace(p, m, err);
}

static rg_work_shape shape(const rg_params *p, const rg_request_model *m)
{
    return (rg_work_shape){ .row = (size_t)length_of(p, m, p->max_tokens),
                            .n_branches = p->n_samples, .n_ending = p->n_samples };
}

static void carve_one(rg_carver *c, rg_fill *f, const rg_params *p, const rg_request_model *m)
{
    const size_t n = shape(p, m).row;
    const rg_diffusion_params d = settled(p, m);
    const size_t n_traced = d.trace ? (size_t)most_evaluations(&d, m, p->max_tokens) : 0;
    const size_t n_guided = p->diffusion.cfg_scale > 0 ? (size_t)block_of(&p->diffusion, m, p->max_tokens) : 0;
    rg_candidate *candidates = rg_carve(c, n, sizeof *candidates);
    rg_guided *guided = rg_carve(c, n_guided, sizeof *guided);
    const size_t n_ordered = p->grammar ? (size_t)block_of(&p->diffusion, m, p->max_tokens) : 0;
    const size_t n_tops = p->sampling.n_logprobs > 0 ? (size_t)p->sampling.n_logprobs : 0;
    float **rows = rg_carve(c, n_ordered, sizeof *rows);
    rg_top *tops = rg_carve_table(c, n_tops, n, sizeof *tops);
    int32_t *trace = rg_carve_table(c, n_traced, n, sizeof *trace);

    const size_t n_soft = has_canvas(m) ? (size_t)own_block(m) : 0;
    float *soft = rg_carve_table(c, n_soft, (size_t)m->dim, sizeof *soft);

    if (!c->base)
        return;
    memset(guided, 0, n_guided * sizeof *guided);
    *f = (rg_fill){ .d.candidates = candidates,
                    .guided = guided,
                    .rows = n_ordered ? rows : NULL,
                    .tops = n_tops ? tops : NULL,
                    .soft = n_soft ? soft : NULL,
                    .dim = m->dim,
                    .trace = n_traced ? trace : NULL,
                    .most_traced = (int32_t)n_traced };
}

/* Any id, by the seed of the request. */
static int32_t noise(void *arg, int32_t n_evaluations, int32_t position)
{
    const rg_fill *f = arg;
    const rg_sample_key key = { .seed = f->seed, .sample = f->sample, .draw = n_evaluations, .position = position };

    return rg_sample_any(&key, f->vocab_size);
}

/* Every answer begins as masks, or as noise. */
static void start(rg_request *r, int32_t i, const rg_request_model *m)
{
    rg_fill *f = (rg_fill *)r->part + i;
    const rg_diffusion_params d = settled(&r->params, m);

    f->seed = r->params.sampling.seed;
    f->sample = i;
    f->vocab_size = m->vocab_size;
    rg_denoise_init(&f->d, &(rg_denoise_start){ .params = &d,
                                                .in_order = r->params.grammar != NULL,
                                                .model = m->diffusion,
                                                .sees = m->sees,
                                                .n_prompt = r->params.n_prompt,
                                                .n = (int32_t)r->row,
                                                .ids = r->samples[i].ids - r->params.n_prompt,
                                                .candidates = f->d.candidates,
                                                .noise = noise,
                                                .noise_arg = f });
    f->done = !rg_denoise_next(&f->d, &f->e);
}

static void carve(rg_carver *c, rg_request *r, const rg_params *p, const rg_request_model *m)
{
    rg_fill *fills = rg_carve(c, (size_t)p->n_samples, sizeof *fills);

    for (int32_t i = 0; i < p->n_samples && !c->failed; i++)
        carve_one(c, c->base ? &fills[i] : NULL, p, m);
    if (!c->base)
        return;
    r->part = fills;
    r->sees_ahead = r->in_bulk = true;
    r->is_scratch = m->sees == RG_SEES_ALL;
    r->n_seqs = 1 + (r->is_scratch && p->diffusion.cfg_scale > 0);
    for (int32_t i = 0; i < p->n_samples; i++)
        start(r, i, m);
}

/* ---- an answer's evaluations ------------------------------------------------------------------------------------- */

static rg_fill *fill_of(const rg_request *r, int i)
{
    return (rg_fill *)r->part + i;
}

const rg_fill *rg_fill_of(const rg_request *r, int32_t i)
{
    return r->work == &rg_work_fill && i >= 0 && i < r->params.n_samples ? fill_of(r, i) : NULL;
}

/* Rows and wanted logits of the next evaluation, both sequences counted. */
static int32_t n_rows_of(const rg_fill *f)
{
    return (f->e.end - f->e.first) * (1 + rg_fill_is_guided(f));
}

static int32_t n_logits_of(const rg_fill *f)
{
    int32_t n = 0;

    for (int32_t i = f->e.from; i < f->e.upto && !f->e.keeps; i++)
        n += rg_denoise_wants(&f->d, i);
    return n * (1 + rg_fill_is_guided(f));
}

/* The state is lost.  What the next evaluation would have read of it is made again: where that is approximate, the
 * block begins anew, and comes to the same ids. */
static void lose_state(rg_fill *f)
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
    for (int32_t i = 0; i < f->d.n; i++)
        f->trace[(size_t)n * (size_t)f->d.n + (size_t)i] = rg_is_id(f->d.ids[i]) ? f->d.ids[i] : RG_GIVEN;
    atomic_store(&f->n_traced, n + 1);
}

/* After an evaluation: commit, and begin the next one.  Returns how many ids of the answer are final and may be given
 * out: none before the last evaluation where all of them are kept. */
static int32_t commit_ids(rg_fill *f)
{
    int32_t n_final = rg_denoise_commit(&f->d, &f->e);

    keep_trace(f);
    f->done = !rg_denoise_next(&f->d, &f->e);
    for (int32_t i = f->e.from; rg_fill_is_guided(f) && !f->done && i < f->e.upto; i++)
        atomic_store(&f->guided[i - f->e.from].n, 0);
    return f->trace && !f->done ? 0 : n_final;
}

/* ---- who runs ---------------------------------------------------------------------------------------------------- */

/* Guidance needs them twice. */
static rg_work_room most(const rg_request *r)
{
    const rg_fill *f = fill_of(r, 0);

    return (rg_work_room){ f->d.n * (1 + rg_fill_is_guided(f)), { .n = 1, .shared = r->params.n_prompt - 1 } };
}

static rg_work_room room(const rg_request *r, int i)
{
    (void)i;
    return (rg_work_room){ most(r).n_positions, { 0 } };
}

static int32_t target(const rg_request *r, int i)
{
    return fill_of(r, i)->d.n;
}

/* No later step changes these. */
static int32_t cacheable(const rg_request *r, int i)
{
    return fill_of(r, i)->d.from;
}

static bool waits_to_fork(const rg_request *r, int i)
{
    (void)r;
    (void)i;
    return false;
}

/* Blocks that are final, or else the next evaluation. */
static rg_work_rows rows(const rg_request *r, int i)
{
    const rg_fill *f = fill_of(r, i);
    const int32_t at = r->samples[i].seq->length;

    if (!rg_fill_is_scratch(f) && at != f->d.from)
        return (rg_work_rows){ .first = at, .end = f->d.from, .block = f->d.sees };
    return (rg_work_rows){ .first = f->e.first, .end = f->e.end, .upto = rg_fill_is_scratch(f) ? f->d.n : f->e.end,
                           .logits = n_logits_of(f) };
}

static int32_t n_left(const rg_request *r, int i)
{
    return n_rows_of(fill_of(r, i));
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

/* An evaluation ends with the answer's last position, and blocks that are final do not. */
static bool is_evaluation(const rg_planned *p)
{
    return p->ends;
}

/* Before the rows of an answer with a grammar are computed.  Without memory to follow it, the answer ends. */
static void prepare_order(rg_work_step *s, const rg_planned *p)
{
    rg_sample *a = &p->request->samples[p->sample];
    rg_fill *f = fill_of(p->request, p->sample);

    if (!f->rows)
        return;
    if (!rg_draw_prepare(s->member->scratch, a))
        rg_grammar_lose(a->grammar);
    atomic_store(&f->n_missing, n_logits_of(f) / (1 + rg_fill_is_guided(f)));
}

static void want(rg_work_step *s, int i)
{
    const rg_planned *p = &s->plan[i];
    const rg_sample *a = &p->request->samples[p->sample];

    if (!is_evaluation(p)) {
        rg_work_add_rows(s, i);
        return;
    }
    prepare_order(s, p);
    rg_step_batch_add_fill(&s->member->rows, s->member->states, fill_of(p->request, p->sample),
                           p->beside ? a->beside : a->seq, p->beside);
    rg_step_batch_give(&s->member->rows, p->request->params.given, p->request->params.n_given,
                       p->request->given_dim);
}

static void take_logits(rg_work_step *s, int thread, int i, float *logits)
{
    const rg_wanted *w = &s->member->rows.wanted[i];
    const rg_planned *p = &s->plan[w->span];

    rg_draw_candidate(s->member->scratch, thread,
                      &(rg_draw_mask){ .request = p->request, .sample = p->sample,
                                       .fill = fill_of(p->request, p->sample), .position = w->node,
                                       .without = p->beside }, logits);
}

/* The ids that have become final from the answer's start on are given out.  True: it has ended. */
static bool take_filled(rg_work_step *s, int i)
{
    const rg_planned *p = &s->plan[i];
    rg_sample *a = &p->request->samples[p->sample];
    rg_fill *f = fill_of(p->request, p->sample);
    int32_t n_final = commit_ids(f);
    rg_finish finish = RG_RUNNING;

    atomic_fetch_add_explicit(&p->request->counts.n_steps, 1, memory_order_relaxed);
    while (a->n_output < n_final && finish == RG_RUNNING) {
        const int32_t at = p->request->params.n_prompt + a->n_output;
        const size_t n_tops = (size_t)p->request->params.sampling.n_logprobs;

        finish = rg_request_append(p->request, p->sample, a->ids[a->n_output], f->d.candidates[at].logprob,
                                   f->tops ? f->tops + n_tops * (size_t)at : NULL);
        s->n_output++;
    }
    return finish != RG_RUNNING;
}

/* What the model made of a position, for its next evaluation. */
static void take_soft(rg_work_step *s, int i, const float *soft)
{
    const rg_wanted *w = &s->member->rows.wanted[i];
    const rg_planned *p = &s->plan[w->span];
    rg_fill *f = fill_of(p->request, p->sample);

    memcpy(f->soft + (size_t)(w->node - f->e.from) * (size_t)f->dim, soft, (size_t)f->dim * sizeof *soft);
}

static bool take_nothing(rg_work_step *s, int i)
{
    (void)s;
    (void)i;
    return false;
}

/* A block of the model is kept once its ids are final. */
static bool commit(rg_work_step *s, int i)
{
    const rg_planned *p = &s->plan[i];
    rg_seq *q = p->request->samples[p->sample].seq;
    const rg_span *span = &s->member->rows.spans[i];

    if (!is_evaluation(p))
        return rg_work_commit_rows(s, i, take_nothing);
    if (p->beside)
        return false;
    rg_seq_advance(s->member->states, q, span->n_rows, span->n_draft, rg_request_tokens(p->request, p->sample));
    if (!q->scratch)
        rg_seq_rollback(s->member->states, q, q->committed);
    return !atomic_load(&p->request->not_finite) && take_filled(s, i);
}

static void lose(rg_request *r, int i)
{
    lose_state(fill_of(r, i));
}

const rg_work rg_work_fill = {
    .name = "fill",
    .takes = takes, .check = check, .shape = shape, .carve = carve, .most = most,
    .is_open = rg_rowwise_is_open, .target = target, .room = room, .cacheable = cacheable,
    .waits_to_fork = waits_to_fork, .rows = rows, .n_left = n_left,
    .want = want, .take_logits = take_logits, .take_soft = take_soft, .commit = commit, .lose = lose,
};
