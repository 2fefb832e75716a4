/* head.c -- label scores: the model's head makes them in the step that computes the prompt. */
#include "engine/work/head.h"

#include <string.h>

#include "engine/numeric.h"
#include "engine/work/step.h"

typedef struct head_part {
    float *scores; /* [n] */
    int32_t n;
    rg_pooling pooling; /* of the rows that the head reads */
} head_part;

static bool takes(const rg_params *p, const rg_request_model *m)
{
    (void)m;
    return p->score;
}

static bool check(const rg_params *p, const rg_request_model *m, rg_error *err)
{
    if (!rg_prompt_work_check(p, m, err))
        return false;
    if (p->embed)
        return rg_fail(err, RG_E_INPUT, "a request makes an embedding or scores, not both");
    return m->n_labels || rg_fail(err, RG_E_UNSUPPORTED, "this model has no head that scores texts");
}

static void carve(rg_carver *c, rg_request *r, const rg_params *p, const rg_request_model *m)
{
    (void)p;
    head_part *h = rg_carve(c, 1, sizeof *h);
    float *scores = rg_carve(c, (size_t)m->n_labels, sizeof *scores);

    if (!c->base)
        return;
    *h = (head_part){ .scores = scores, .n = m->n_labels, .pooling = m->score_pooling };
    r->part = h;
    r->is_scratch = r->sees_ahead = m->whole;
}

static void want(rg_work_step *s, int i)
{
    const rg_request *r = rg_work_request(s, i);
    const head_part *h = r->part;

    rg_work_add_rows(s, i);
    rg_step_batch_want_label_scores(&s->member->rows,
                                    (rg_rows){ 0, h->pooling == RG_POOLING_MEAN ? r->params.n_prompt : 1 });
}

static void take_scores(rg_work_step *s, int i, const float *scores)
{
    head_part *h = rg_work_request(s, s->member->rows.scores_of[i])->part;

    memcpy(h->scores, scores, (size_t)h->n * sizeof *scores);
}

static bool take(rg_work_step *s, int i)
{
    rg_request *r = rg_work_request(s, i);
    const head_part *h = r->part;

    if (!s->plan[i].ends)
        return false;
    rg_request_end(r, 0, rg_all_finite(h->scores, h->n) ? RG_FINISH_STOP : RG_FINISH_NOT_FINITE);
    return true;
}

static bool commit(rg_work_step *s, int i)
{
    return rg_work_commit_rows(s, i, take);
}

const float *rg_head_result(const rg_request *r, int32_t *n)
{
    const head_part *h = r->part;

    if (r->work != &rg_work_head || atomic_load(&r->samples[0].finish) != RG_FINISH_STOP)
        return NULL;
    *n = h->n;
    return h->scores;
}

const rg_work rg_work_head = {
    .name = "head", .ends_with_prompt = true,
    .takes = takes, .check = check, .shape = rg_prompt_work_shape, .carve = carve,
    .most = rg_rowwise_most, .fits = rg_prompt_work_fits,
    .is_open = rg_rowwise_is_open, .target = rg_rowwise_target, .room = rg_prompt_work_room,
    .cacheable = rg_rowwise_cacheable, .waits_to_fork = rg_rowwise_waits_to_fork, .rows = rg_prompt_work_rows,
    .n_left = rg_rowwise_n_left,
    .want = want, .take_scores = take_scores, .commit = commit,
};
