/* branch.c -- see branch.h. */
#include "engine/branch.h"

#include <string.h>

bool rg_branch_is_to_fork(const rg_request *r, int i)
{
    return r->beams && r->beams->beam[i].runs && i != rg_branch_first(r) && r->samples[i].seq &&
           !r->samples[i].seq->length && rg_branch_fork_at(r) > 0;
}

void rg_branch_fork(rg_states *s, rg_request *r)
{
    const rg_seq *from = r->samples[rg_branch_first(r)].seq;

    if (!from || from->committed != rg_branch_fork_at(r))
        return;
    for (int i = 0; i < r->n_branches; i++)
        if (rg_branch_is_to_fork(r, i))
            RG_ASSERT(rg_seq_fork(s, from, r->samples[i].seq));
}

void rg_branch_lose(rg_request *r)
{
    rg_beams_lose(r->beams, r->places);
}

/* Place i, whose own beam has ended, continues that of its parent. */
static void take_over(rg_states *s, rg_request *r, int i)
{
    const rg_sample *from = &r->samples[r->beams->beam[i].parent];
    rg_sample *a = &r->samples[i];

    rg_request_take_text(r, i, r->beams->beam[i].parent);
    rg_seq_release(s, a->seq, NULL);
    RG_ASSERT(rg_seq_fork(s, from->seq, a->seq));
    if (a->grammar)
        rg_grammar_copy(a->grammar, from->grammar);
}

static void append(rg_request *r, int i)
{
    rg_sample *a = &r->samples[i];

    a->n_output = r->beams->n_ids;
    rg_request_follow_text(r, i);
    if (a->grammar && !rg_grammar_advance(a->grammar, r->beams->beam[i].id))
        rg_grammar_lose(a->grammar); /* its room is used up: no candidates will be listed */
}

/* Blocks that the beams hold and share. */
static void count_blocks(rg_states *s, rg_request *r)
{
    uint64_t held = 0, unshared = 0, copied = 0;

    for (int i = 0; i < r->n_branches; i++) {
        rg_states_count(s, r->samples[i].seq, &held, &unshared);
        copied += r->samples[i].seq->n_copied;
        r->samples[i].seq->n_copied = 0;
    }
    for (int i = 0; i < r->n_branches; i++)
        rg_states_uncount(s, r->samples[i].seq);
    atomic_fetch_add_explicit(&r->beam_blocks, held, memory_order_relaxed);
    atomic_fetch_add_explicit(&r->beam_blocks_unshared, unshared, memory_order_relaxed);
    atomic_fetch_add_explicit(&r->beam_blocks_copied, copied, memory_order_relaxed);
}

int32_t rg_branch_listed(rg_states *s, rg_request *r, int i)
{
    rg_beams *b = r->beams;
    int32_t n = b->n_running;

    b->beam[i].is_listed = true;
    if (++b->n_listed < n)
        return 0;
    count_blocks(s, r);
    atomic_fetch_add_explicit(&r->n_steps, 1, memory_order_relaxed);
    if (rg_beams_step(b, r->places)) {
        rg_request_tell(r, RG_RUNNING);
        return n;
    }
    for (int k = 0; k < r->n_branches; k++)
        if (b->beam[k].runs && b->beam[k].parent != k)
            take_over(s, r, k);
    for (int k = 0; k < r->n_branches; k++) {
        if (b->beam[k].runs)
            append(r, k);
        else if (r->samples[k].seq->length)
            rg_seq_release(s, r->samples[k].seq, NULL);
    }
    return b->n_running;
}
