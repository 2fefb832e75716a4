/* tour_facts.c -- what the tour plans for the lecture's machine, and measures on this one. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/engine.h"
#include "cli/tour.h"

/* ---- the lecture's model on the lecture's machine ---------------------------------------------------------------- */

/* Llama 2 13B (Touvron et al. 2023), by the lecture's own formulae. */
static const double D = 5120, F = 13824, N = 40, H = 128, L = 40, V = 32000, S = 1024;

static double lecture_params(double kv_heads)
{
    return 2 * V * D + 3 * D * F * L + (2 * D * N * H + 2 * D * kv_heads * H) * L;
}

static double lecture_kv_bytes(double kv_heads)
{
    return kv_heads * H * L * 2 * 2;
}

static bool plan_lecture(tour_facts *f, rg_error *err)
{
    static const int64_t batches[] = { 1, 64, 256 };

    if (!rg_plan_machine_find(&f->h100, "h100", err))
        return false;
    for (int i = 0; i < TOUR_LECTURE; i++) {
        tour_planned *p = &f->lecture[i];
        p->batch = batches[i % 3];
        p->grouped = i >= 3;

        const double heads = p->grouped ? 8 : N;
        const rg_plan_subject s = { .method = RG_PLAN_GENERAL, .params = lecture_params(heads), .weight_bytes = 2,
                                    .kv_bytes = lecture_kv_bytes(heads), .kv_value_bytes = 2 };
        if (!rg_plan_point(&s, &f->h100, p->batch, (int64_t)S, &p->row, err))
            return false;
    }
    return true;
}

bool tour_plan(tour_facts *f, const cli_args *a, bool full, rg_error *err)
{
    static const int few[] = { 1, 8, 64 };

    f->n_steps = full ? 8 : (int)RG_LEN(few);
    for (int i = 0; i < f->n_steps; i++)
        f->step[i].batch = full ? 1 << i : few[i];
    return plan_lecture(f, err) &&
           cli_machine_here(&f->here, &f->profile, f->here_title, &a->common, false, err);
}

/* ---- steps of the shipped model ---------------------------------------------------------------------------------- */

enum { CONTEXT = 128, STEPS = 32, ROUNDS = 3 };

static bool plan_steps(tour_facts *f, const tool *t, rg_error *err)
{
    const rg_plan_subject s = { .method = RG_PLAN_COUNTED, .model = t->model, .exact = t->recipe.exact };
    rg_plan_row row;

    for (int i = 0; i < f->n_steps; i++) {
        if (!rg_plan_point(&s, &f->here, f->step[i].batch, CONTEXT, &row, err))
            return false;
        f->step[i].planned_s = row.latency_s;
        f->step[i].bound_by = row.bound_by;
    }
    if (!rg_plan_point(&s, &f->here, 1, TOUR_PROMPT, &f->row, err) ||
        !rg_plan_list_ops(&s, &f->here, 1, TOUR_PROMPT, &f->ops, err))
        return false;
    f->b_star = f->row.critical_batch;
    f->prefill_planned_s = f->row.ttft_s;
    f->kv_bytes = (double)rg_state_bytes_per_position(&t->model->state);
    f->weight_bytes = (double)t->model->weights.bytes;
    return true;
}

static void take_least(double *to, double s)
{
    *to = *to > 0 && *to < s ? *to : s;
}

/* Each in turn, and the quickest of some rounds: other work on the machine can only slow one down. */
static bool time_steps(tour_facts *f, speed *s, rg_error *err)
{
    const int n = TOUR_PROMPT / 8;
    double prompt_s, s_all, step_s;

    for (int round = 0; round < ROUNDS && !cli_interrupted(); round++) {
        for (int i = 0; i < f->n_steps; i++) {
            if (!speed_decode(s, f->step[i].batch, CONTEXT, STEPS, &s_all, &step_s, err))
                return false;
            take_least(&f->step[i].measured_s, step_s);
        }
        if (!speed_prefill(s, TOUR_PROMPT, 0, &s_all, err))
            return false;
        take_least(&f->prefill_s, s_all);
        if (!speed_prefill(s, n, 0, &prompt_s, err) || !speed_decode(s, 1, n, n, &s_all, NULL, err))
            return false;
        take_least(&f->cached_s, prompt_s + s_all);
        if (!speed_without_cache(s, n, n, &s_all, err))
            return false;
        take_least(&f->naive_s, s_all);
    }
    return true;
}

static bool measure_steps(tour_facts *f, const cli_args *a, rg_error *err)
{
    const tool_options o = { .common = &a->common, .model = a->n_positional ? a->positional[0] : NULL,
                             .max_rows = SPEED_ROWS, .max_seqs = f->step[f->n_steps - 1].batch,
                             .max_seq_len = TOUR_PROMPT + STEPS + 1 };
    tool t = { 0 };
    speed s = { 0 };
    bool ok = tool_open(&t, &o, err) && speed_init(&s, &t, err) && plan_steps(f, &t, err) && time_steps(f, &s, err);

    speed_fini(&s);
    tool_close(&t);
    return ok;
}

/* ---- answers of the engine --------------------------------------------------------------------------------------- */

typedef struct answer {
    int32_t ids[TOUR_IDS];
    float logprobs[TOUR_IDS];
    int n;
} answer;

static const char story[] = "Once upon a time there was a little girl who lived in a small house near the woods.";

/* Submit one answer of TOUR_IDS ids, or n of them to one prompt. */
static rg_request *submit(rg_engine *e, uint64_t seed, int32_t n_samples, rg_error *err)
{
    rg_params p = { .max_tokens = TOUR_IDS, .n_samples = n_samples, .sampling = rg_sampling_default() };
    int32_t *ids;
    size_t n;

    if (!rg_encode(e, story, sizeof story - 1, RG_ENCODE_DEFAULT, &ids, &n, err))
        return NULL;
    p.prompt = ids;
    p.n_prompt = (int32_t)n;
    p.sampling.seed = seed;
    p.sampling.temperature = 0.6f;
    p.sampling.ignore_eos = true;
    p.sampling.n_logprobs = 0;
    rg_request *r = rg_submit(e, &p, err);
    rg_ids_free(ids);
    return r;
}

static bool collect(rg_request *r, answer *out, rg_error *err)
{
    rg_token t;
    bool ok = true;

    *out = (answer){ 0 };
    while (rg_next(r, &t)) {
        if (t.id >= 0 && out->n < TOUR_IDS) {
            out->logprobs[out->n] = t.logprob;
            out->ids[out->n++] = t.id;
        }
        ok = ok && (t.finish == RG_RUNNING || cli_finished(t.finish, err));
    }
    rg_request_close(r);
    return ok;
}

/* TOUR_ANSWERS answers, one after the other or at once. */
static bool answer_all(rg_engine *e, bool at_once, answer out[TOUR_ANSWERS], double *seconds, rg_error *err)
{
    rg_request *r[TOUR_ANSWERS] = { 0 };
    const uint64_t start = rg_now_ns();
    bool ok = true;

    for (int i = 0; ok && i < TOUR_ANSWERS; i++) {
        ok = (r[i] = submit(e, (uint64_t)i + 1, 1, err)) != NULL;
        if (ok && !at_once)
            ok = collect(r[i], &out[i], err);
    }
    for (int i = 0; at_once && i < TOUR_ANSWERS && r[i]; i++)
        ok = collect(r[i], &out[i], err) && ok;
    *seconds = rg_seconds(start, rg_now_ns());
    return ok;
}

/* Memory that answers to one prompt hold, when they have half of their ids. */
static bool share_prompt(tour_facts *f, rg_engine *e, rg_error *err)
{
    rg_request *r = submit(e, 1, TOUR_ANSWERS, err);
    int n = 0;
    rg_token t;

    while (r && rg_next(r, &t)) {
        if (t.id < 0 || ++n != TOUR_ANSWERS * TOUR_IDS / 2)
            continue;
        const rg_stats s = rg_engine_stats(e);
        const rg_usage u = rg_request_usage(r);
        f->live = (double)s.state_live_bytes;
        f->held = (double)s.state_used_bytes;
        f->apart = f->kv_bytes * TOUR_ANSWERS * (u.n_prompt + TOUR_IDS / 2);
    }
    rg_request_close(r);
    return r;
}

static rg_engine *open_with(const cli_args *a, const char *draft, rg_error *err)
{
    cli_engine v = { .draft = draft, .max_seqs = 2 * TOUR_ANSWERS, .kv_memory = (size_t)256 << 20 };

    return cli_engine_open(&v, a, err);
}

/* One answer with a drafter: its time, and ids a step. */
static bool draft(const cli_args *a, const char *how, double *seconds, double *ids_a_step, rg_error *err)
{
    rg_engine *e = open_with(a, how, err);
    bool ok = e;

    for (int i = 0; ok && i < ROUNDS; i++) { /* the first one warms up */
        const uint64_t start = rg_now_ns();
        rg_request *r = submit(e, 1, 1, err);
        rg_token t;

        while (r && rg_next(r, &t))
            ;
        ok = r;
        if (ok && i) {
            const rg_usage u = rg_request_usage(r);
            take_least(seconds, rg_seconds(start, rg_now_ns()));
            *ids_a_step = u.n_steps ? (double)u.n_output / u.n_steps : 0;
        }
        rg_request_close(r);
    }
    rg_close(e);
    return ok;
}

/* The model beside it that drafts, or where there is none the text so far. */
static const char *drafter(const cli_args *a, char path[1024])
{
    const int n = a->n_positional ? 0 : snprintf(path, 1024, "%s/tales-1m", cli_models_dir);

    return n > 0 && n < 1024 ? path : "suffix";
}

bool tour_measure(tour_facts *f, const cli_args *a, rg_error *err)
{
    static answer alone[TOUR_ANSWERS], together[TOUR_ANSWERS];
    char path[1024];
    double none, ignored = 0;
    rg_error why = { 0 };
    rg_engine *e;

    if (!measure_steps(f, a, err) || !(e = open_with(a, "none", err)))
        return false;
    bool ok = answer_all(e, false, alone, &none, err) && answer_all(e, false, alone, &f->alone_s, err) &&
              answer_all(e, true, together, &f->together_s, err) && share_prompt(f, e, err);
    f->same_alone = ok && !memcmp(alone, together, sizeof alone);
    rg_close(e);
    if (ok && !draft(a, "self:q4", &ignored, &f->self_ids_a_step, &why))
        f->self_ids_a_step = 0; /* its weights have no more bits than that */
    return ok && draft(a, "none", &f->plain_s, &none, err) &&
           draft(a, drafter(a, path), &f->drafted_s, &f->ids_a_step, err);
}
