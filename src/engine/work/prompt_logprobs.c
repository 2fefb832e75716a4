/* prompt_logprobs.c -- log-probabilities of a prompt's own ids, as its rows are computed; the rest is an answer's.
 *
 * Each position has its log-probability computed once, in rising order, whichever sample computes it: from the logits
 * of the row before it.  After a preemption known ones are not computed again, so the reader may read them while the
 * prompt is recomputed. */
#include "engine/work/prompt_logprobs.h"

#include <string.h>

#include "engine/numeric.h"
#include "engine/work/answer.h"

typedef struct prompt_part {
    rg_answer_part answer;  /* first: it stands for the whole part */
    rg_id_logprob *logprobs; /* [n_prompt], nothing in the first */
    rg_top *tops;           /* [n_prompt][n_prompt_tops] */
    float *logits;          /* [n_prompt][vocab_size]; NULL: not kept */
    int32_t vocab_size;
    int32_t n_read;         /* rows that are read for the prompt's sake: all but the last, whose logits are taken where
                             *   an id is drawn from them, if one is; if none is and logits are kept, the last too */
    atomic_int n_known;     /* 1 + leading rows of the prompt that were read: so many leading ids have their
                             *   log-probability, or, as the first, need none */
    int32_t n_coming;       /* the engine's own: the same after the step that is being computed */
} prompt_part;

/* ---- at the door ------------------------------------------------------------------------------------------------- */

static bool takes(const rg_params *p, const rg_request_model *m)
{
    (void)m;
    return p->prompt_logprobs;
}

static void carve(rg_carver *c, rg_request *r, const rg_params *p, const rg_request_model *m)
{
    const size_t n = (size_t)p->n_prompt;
    prompt_part *own = rg_carve(c, 1, sizeof *own);
    rg_id_logprob *logprobs = rg_carve(c, n, sizeof *logprobs);
    rg_top *tops = rg_carve_table(c, n, (size_t)p->n_prompt_tops, sizeof *tops);
    float *logits = rg_carve_table(c, p->prompt_logits ? n : 0, (size_t)m->vocab_size, sizeof *logits);

    if (c->base) {
        *own = (prompt_part){ .logprobs = logprobs, .tops = tops, .n_coming = 1, .vocab_size = m->vocab_size,
                              .logits = p->prompt_logits ? logits : NULL,
                              .n_read = p->n_prompt - (p->max_tokens || !p->prompt_logits) };
        atomic_init(&own->n_known, 1);
        r->part = own;
    }
    rg_answer_carve(c, c->base ? &own->answer : NULL, p);
}

/* ---- in steps ---------------------------------------------------------------------------------------------------- */

/* A log-probability needs the row before its id, so after a preemption only rows whose ids have theirs may be
 * cached. */
static int32_t cacheable(const rg_request *r, int i)
{
    const prompt_part *own = r->part;

    if (own->n_coming > own->n_read)
        return rg_rowwise_cacheable(r, i);
    return own->n_coming > 1 ? own->n_coming : 0;
}

/* The row at a position gives the log-probability of the id after it, and the prompt's last row that of none: it is
 * read only for its logits. */
static rg_rows read_rows(const rg_request *r, int32_t start, int32_t n)
{
    const prompt_part *own = r->part;
    const int32_t end = start + n < own->n_read ? start + n : own->n_read;
    const int32_t first = own->n_coming - 1 > start ? own->n_coming - 1 : start;

    return first < end ? (rg_rows){ first - start, end - first } : (rg_rows){ 0 };
}

/* The coming step computes them, so no other span of it shall. */
static void want(rg_work_step *s, int i)
{
    const rg_planned *p = &s->plan[i];
    prompt_part *own = p->request->part;
    const int32_t start = p->request->samples[p->sample].seq->length;
    const rg_rows run = read_rows(p->request, start, p->n_rows);

    RG_ASSERT(!run.n || start + run.first == own->n_coming - 1);
    own->n_coming += run.n;
    rg_work_add_rows(s, i);
    rg_step_batch_want_prompt(&s->member->rows, run.first, run.n);
    rg_answer_want(s, i);
}

/* Every sample draws its first id from the prompt's last row, from the same numbers: those of sample 0 are kept. */
static void keep_logits(const prompt_part *own, const rg_work_step *s, const rg_wanted *w, int32_t position,
                        const float *logits)
{
    const rg_planned *p = &s->plan[w->span];
    const bool of_prompt = position < p->request->params.n_prompt && (w->node == RG_OF_PROMPT || !p->sample);

    if (own->logits && of_prompt)
        memcpy(own->logits + (size_t)position * (size_t)own->vocab_size, logits,
               (size_t)own->vocab_size * sizeof *logits);
}

static void take_logits(rg_work_step *s, int thread, int i, float *logits)
{
    const rg_wanted *w = &s->member->rows.wanted[i];
    rg_request *r = rg_work_request(s, w->span);
    prompt_part *own = r->part;
    const int32_t at = s->member->rows.index[s->member->rows.logit_rows[i]] + 1, k = r->params.n_prompt_tops;

    keep_logits(own, s, w, at - 1, logits);
    if (w->node != RG_OF_PROMPT) {
        rg_answer_take_logits(s, thread, i, logits);
        return;
    }
    if (at == r->params.n_prompt || !rg_is_id(r->params.prompt[at])) {
        if (!rg_all_finite(logits, own->vocab_size))
            atomic_store(&r->not_finite, true);
        return;
    }
    if (!rg_draw_prompt_logprob(s->member->scratch, thread, logits, r->params.prompt[at], &own->logprobs[at], k,
                                k ? own->tops + (size_t)at * (size_t)k : NULL))
        atomic_store(&r->not_finite, true);
}

/* The reader may see what the step computed. */
static bool take(rg_work_step *s, int i)
{
    const rg_planned *p = &s->plan[i];
    prompt_part *own = p->request->part;

    if (p->ends && !p->sample)
        own->n_coming = p->request->params.n_prompt + 1; /* the last row was read, too, for its logits or an id */
    atomic_store(&own->n_known, own->n_coming);
    if (!p->ends || rg_request_draws(p->request))
        return rg_answer_take(s, i);
    rg_request_end(p->request, p->sample, RG_FINISH_LENGTH);
    return true;
}

static bool commit(rg_work_step *s, int i)
{
    return rg_work_commit_rows(s, i, take);
}

static void undo(rg_request *r)
{
    prompt_part *own = r->part;

    own->n_coming = atomic_load(&own->n_known);
}

/* ---- the reader's side ------------------------------------------------------------------------------------------- */

bool rg_prompt_logprobs_get(const rg_request *r, int32_t position, rg_prompt_logprob *out)
{
    const prompt_part *own = r->work == &rg_work_prompt_logprobs ? r->part : NULL;
    const int32_t k = r->params.n_prompt_tops;

    if (!own || position < 1 || position >= r->params.n_prompt || position >= atomic_load(&own->n_known) ||
        !rg_is_id(r->params.prompt[position]))
        return false;
    *out = (rg_prompt_logprob){ .id = r->params.prompt[position], .logprob = own->logprobs[position].logprob,
                                .rank = own->logprobs[position].rank, .n_top = k,
                                .top = k ? own->tops + (size_t)position * (size_t)k : NULL };
    return true;
}

const float *rg_prompt_logits_get(const rg_request *r, int32_t position, int32_t *n)
{
    const prompt_part *own = r->work == &rg_work_prompt_logprobs ? r->part : NULL;

    if (!own || !own->logits || position < 0 || position >= atomic_load(&own->n_known) - 1)
        return NULL;
    *n = own->vocab_size;
    return own->logits + (size_t)position * (size_t)own->vocab_size;
}

const rg_work rg_work_prompt_logprobs = {
    .name = "prompt_logprobs",
    .takes = takes, .check = rg_answer_check, .shape = rg_answer_shape, .carve = carve, .most = rg_rowwise_most,
    .is_open = rg_rowwise_is_open, .target = rg_rowwise_target, .room = rg_rowwise_room,
    .cacheable = cacheable, .waits_to_fork = rg_rowwise_waits_to_fork, .rows = rg_rowwise_rows,
    .n_left = rg_rowwise_n_left, .read = read_rows,
    .want = want, .take_logits = take_logits, .take_hidden = rg_answer_take_hidden, .commit = commit,
    .undo = undo, .to_value = rg_answer_to_value, .valued = rg_answer_valued, .take_values = rg_answer_take_values,
    .told = rg_answer_told,
};
