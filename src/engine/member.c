/* member.c -- see member.h. */
#include "engine/member.h"

#include "base/clock.h"
#include "engine/restore.h"

bool rg_member_init(rg_member *m, rg_runner *runner, const rg_member_options *o, rg_error *err)
{
    *m = (rg_member){ .runner = runner };
    m->states = rg_states_new(runner->spec, runner->store, o->use_prefixes, err);
    if (m->states && o->durable && !rg_states_keep(m->states, o->durable, o->max_seq_len, err))
        return false;
    m->scratch = m->states ? rg_sample_scratch_new(runner->n_threads, o->vocab_size, o->max_seq_len, err) : NULL;
    if (!m->scratch || (o->judge && !rg_sample_scratch_judge(m->scratch, err)) ||
        !rg_step_batch_init(&m->rows, o->max_seqs, runner->max_rows, runner->max_logits,
                            o->trees && !rg_states_keep_chains(m->states), err))
        return false;
    m->rows.sees = runner->sees;
    if (runner->diffusion.canvas.length)
        return rg_step_batch_refine(&m->rows, runner->diffusion.canvas.length, runner->dim, err);
    return true;
}

void rg_member_fini(rg_member *m)
{
    rg_states_free(m->states);
    rg_sample_scratch_free(m->scratch);
    rg_step_batch_fini(&m->rows);
    *m = (rg_member){ 0 };
}

void rg_member_step(rg_member *m, const rg_sink *sink)
{
    const double old = 0.9; /* the share of older steps in the mean */
    uint64_t start = rg_now_ns();

    m->runner->step(m->runner, &m->rows.batch, sink);
    m->took_s = rg_seconds(start, rg_now_ns());
    m->mean_s = m->n_steps++ ? old * m->mean_s + (1 - old) * m->took_s : m->took_s;
}
