/* prefill.c -- see prefill.h. */
#include "plan/prefill.h"

#include <math.h>
#include <string.h>

bool rg_plan_prefill_of(const rg_plan_subject *s, const rg_plan_machine *m, int64_t prompts, int64_t seq, int64_t chunk,
                        rg_plan_prefill *out, rg_error *err)
{
    double weights_s = 0, state_s = 0, compute_s = 0;
    int64_t each = chunk ? chunk / prompts : seq; /* rows of a prompt in a step */

    *out = (rg_plan_prefill){ .prompts = prompts, .chunk = chunk };
    if (!s->model || s->method != RG_PLAN_COUNTED)
        return rg_fail(err, RG_E_USAGE, "prompts that are computed together need a model and the method counted");
    if (each < 1)
        return rg_fail(err, RG_E_USAGE, "%lld prompts at once do not fit into steps of %lld rows", (long long)prompts,
                       (long long)chunk);
    each = each < seq ? each : seq;
    for (int64_t at = 0; at < seq; at += each) {
        const int64_t rows = seq - at < each ? seq - at : each;
        const rg_step_shape shape = { .n_seqs = (int)prompts, .n_rows = (int)rows, .start = at, .exact = s->exact };
        rg_cost cost;

        if (!rg_cost_shape(s->model, &m->m, &shape, &cost, NULL, NULL, err))
            return false;
        out->steps++;
        out->ttft_s += cost.seconds;
        out->activation_bytes = fmax(out->activation_bytes, (double)cost.activation_bytes);
        weights_s += cost.weights_s;
        state_s += cost.state_s;
        compute_s += cost.compute_s;
    }
    out->prompts_s = (double)prompts / out->ttft_s;
    out->bound_by = compute_s > weights_s && compute_s > state_s ? RG_BOUND_COMPUTE
                    : state_s > weights_s                        ? RG_BOUND_KV
                                                                 : RG_BOUND_WEIGHTS;
    return true;
}
