/* answers.c -- see answers.h. */
#include "cli/study/answers.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/mem.h"

bool study_answers_keys(study_answers *a, const study_run *run, rg_error *err)
{
    snprintf(a->number, sizeof a->number, "%" PRIu64, a->seed);
    return study_text_key(run, false, a->text, err);
}

void study_answers_close(study_answers *a)
{
    rg_close(a->engine);
    rg_free(a->prompts);
    a->engine = NULL;
    a->prompts = NULL;
    a->m = NULL;
}

bool study_answers_open(study_answers *a, const study_run *run, const study_model *m, rg_error *err)
{
    rg_options o = rg_options_default();
    size_t n_ids;
    char path[1024];

    study_answers_close(a);
    if (!rg_mul((size_t)a->n_prompts, (size_t)a->n_prompt, &n_ids))
        return rg_fail_memory(err, SIZE_MAX);
    if (!cli_find_model(m->given, path, sizeof path, err))
        return false;
    o.n_threads = run->common->threads;
    o.isa = run->common->isa;
    o.recipe = run->common->recipe;
    a->engine = rg_open(path, &o, err);
    if (!a->engine)
        return false;
    a->prompts = rg_array(n_ids, sizeof *a->prompts);
    if (!a->prompts)
        return rg_fail_memory(err, n_ids * sizeof *a->prompts);
    const study_prompt_shape z = { a->n_prompts, a->n_prompt, rg_engine_info(a->engine).vocab_size, a->seed };
    a->m = m;
    return study_prompts(run, path, &z, a->prompts, err);
}

bool study_answers_run(const study_answers *a, int i, rg_params p, int32_t *out, double *logprob, rg_usage *usage,
                       rg_error *err)
{
    rg_token t;
    int32_t n = 0;

    p.prompt = a->prompts + (size_t)i * (size_t)a->n_prompt;
    p.n_prompt = a->n_prompt;
    p.max_tokens = a->answer;
    p.n_samples = 1;
    p.sampling = rg_sampling_default();
    p.sampling.temperature = 0;
    p.sampling.ignore_eos = true;
    p.sampling.n_logprobs = 0;
    *logprob = 0;
    rg_request *r = rg_submit(a->engine, &p, err);
    if (!r)
        return false;
    while (rg_next(r, &t)) {
        if (cli_interrupted())
            rg_cancel(r);
        if (t.id < 0 || n == a->answer)
            continue;
        if (out)
            out[n] = t.id;
        *logprob += (double)t.logprob;
        n++;
    }
    *usage = rg_request_usage(r);
    rg_request_close(r);
    return n == a->answer || rg_fail(err, RG_E_INPUT, "an answer ended before it had %d ids", a->answer);
}
