/* steps.c -- see steps.h. */
#include "server/steps.h"

#include <pthread.h>
#include <string.h>

#include "base/mem.h"

struct rg_steps {
    pthread_mutex_t lock;
    uint64_t n_notes, n_answers; /* so far; the latest overwrite the oldest */
    uint64_t last;               /* the number of the latest step that was noted, */
    uint64_t engine_steps;       /*   and as its engine counts */
    rg_step_note step[RG_STEPS_KEPT];
    rg_answer_note answer[RG_ANSWERS_KEPT];
};

rg_steps *rg_steps_new(rg_error *err)
{
    rg_steps *s = rg_zalloc(sizeof *s);

    if (!s)
        return rg_fail_memory(err, sizeof *s), NULL;
    pthread_mutex_init(&s->lock, NULL);
    return s;
}

void rg_steps_free(rg_steps *s)
{
    if (!s)
        return;
    pthread_mutex_destroy(&s->lock);
    rg_free(s);
}

void rg_steps_add(rg_steps *s, const rg_stats *then, const rg_stats *now, uint64_t now_ns)
{
    pthread_mutex_lock(&s->lock);
    s->engine_steps = now->n_steps;
    if (now->n_steps == then->n_steps) {
        pthread_mutex_unlock(&s->lock);
        return;
    }
    s->last += now->n_steps - then->n_steps;
    s->step[s->n_notes++ % RG_STEPS_KEPT] = (rg_step_note){
        .number = s->last,
        .end_ns = now_ns,
        .took_s = now->busy_s - then->busy_s,
        .limit_s = now->limit_s - then->limit_s,
        .ops = now->ops - then->ops,
        .bytes = now->bytes_read - then->bytes_read,
        .n_rows = now->n_rows - then->n_rows,
        .n_output = now->n_output - then->n_output,
        .n_drafted = now->n_draft_rows - then->n_draft_rows,
        .n_accepted = now->n_draft_accepted - then->n_draft_accepted,
        .n_steps = (int32_t)(now->n_steps - then->n_steps),
        .n_running = now->n_running,
    };
    pthread_mutex_unlock(&s->lock);
}

void rg_steps_answered(rg_steps *s, const rg_answer_note *a, uint64_t engine_steps)
{
    pthread_mutex_lock(&s->lock);
    rg_answer_note *to = &s->answer[s->n_answers++ % RG_ANSWERS_KEPT];
    *to = *a;
    to->last_step = s->last + (engine_steps > s->engine_steps ? engine_steps - s->engine_steps : 0);
    pthread_mutex_unlock(&s->lock);
}

int rg_steps_read(rg_steps *s, uint64_t after, uint64_t from_ns, rg_step_note *out, int room, uint64_t *last)
{
    int n = 0;

    pthread_mutex_lock(&s->lock);
    uint64_t first = s->n_notes, least = s->n_notes > RG_STEPS_KEPT ? s->n_notes - RG_STEPS_KEPT : 0;
    for (; first > least && s->n_notes - first < (uint64_t)room; first--) {
        const rg_step_note *t = &s->step[(first - 1) % RG_STEPS_KEPT];
        if (t->number <= after || t->end_ns <= from_ns)
            break;
    }
    for (; first < s->n_notes; first++)
        out[n++] = s->step[first % RG_STEPS_KEPT];
    if (last)
        *last = s->last;
    pthread_mutex_unlock(&s->lock);
    return n;
}

bool rg_steps_find(rg_steps *s, const char *id, int32_t tenant, rg_answer_note *out)
{
    bool found = false;

    pthread_mutex_lock(&s->lock);
    for (uint64_t i = 0; i < s->n_answers && i < RG_ANSWERS_KEPT && !found; i++) {
        const rg_answer_note *a = &s->answer[(s->n_answers - 1 - i) % RG_ANSWERS_KEPT];
        found = a->tenant == tenant && !strcmp(a->id, id);
        if (found)
            *out = *a;
    }
    pthread_mutex_unlock(&s->lock);
    return found;
}
