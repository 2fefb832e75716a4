/* timings.c -- see timings.h. */
#include "server/api/timings.h"

#include "base/clock.h"

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Add the figures of one request to those of the call. */
static void add(rg_timings *t, const rg_call *c, const rg_usage *u)
{
    const double now_s = u->total_s > 0 ? u->total_s : rg_seconds(c->since_ns, rg_now_ns());
    const double first_s = u->ttft_s > 0 ? u->ttft_s : now_s;
    const int64_t known = u->total_s > 0 ? u->n_prompt : u->n_prefilled;

    t->n_cached += u->n_cached;
    t->n_prompt += known > u->n_cached ? known - u->n_cached : 0;
    t->n_drafted += u->n_drafted;
    t->n_accepted += u->n_accepted;
    t->queue_s = larger(t->queue_s, u->queue_s);
    if (known > u->n_cached || u->ttft_s > 0)
        t->prompt_s = larger(t->prompt_s, first_s - u->queue_s);
    if (u->ttft_s > 0)
        t->predicted_s = larger(t->predicted_s, u->paced_s > 0 ? u->paced_s : now_s - u->ttft_s);
    t->total_s = larger(t->total_s, now_s);
}

rg_timings rg_call_timings(const rg_call *c, int32_t prompt)
{
    rg_timings t = { 0 };

    for (int32_t i = 0; i < c->n_submitted; i++)
        if (prompt < 0 || i == prompt) {
            rg_usage u = rg_request_usage(c->requests[i]);
            add(&t, c, &u);
        }
    for (int32_t i = 0; i < c->n_choices; i++)
        if (prompt < 0 || i / c->f.n == prompt)
            t.n_predicted += c->choices[i].n_tokens;
    return t;
}

static double ratio(double a, double b)
{
    return b > 0 ? a / b : 0;
}

void rg_write_timings(rg_buf *b, const rg_timings *t)
{
    const double steps = (double)(t->n_predicted > 1 ? t->n_predicted - 1 : 0);
    const double prompt_ms = 1e3 * t->prompt_s, predicted_ms = 1e3 * t->predicted_s;

    rg_out_open(b, "timings", '{');
    rg_out_int(b, "cache_n", t->n_cached);
    rg_out_int(b, "prompt_n", t->n_prompt);
    rg_out_real(b, "prompt_ms", prompt_ms);
    rg_out_real(b, "prompt_per_token_ms", ratio(prompt_ms, (double)t->n_prompt));
    rg_out_real(b, "prompt_per_second", ratio((double)t->n_prompt, t->prompt_s));
    rg_out_int(b, "predicted_n", t->n_predicted);
    rg_out_real(b, "predicted_ms", predicted_ms);
    rg_out_real(b, "predicted_per_token_ms", ratio(predicted_ms, steps));
    rg_out_real(b, "predicted_per_second", ratio(steps, t->predicted_s));
    if (t->n_drafted) {
        rg_out_int(b, "draft_n", t->n_drafted);
        rg_out_int(b, "draft_n_accepted", t->n_accepted);
    }
    rg_out_close(b, '}');
}
