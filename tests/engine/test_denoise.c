/* Answers of diffusion models: the ids after every evaluation are those of the authors' loops (generations.json), for every
 * order, schedule, threshold, guidance and cache; settings that a model does not take are refused. */
#include "support/model.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/denoise.h"

enum { MAX_POSITIONS = 64, MAX_VOCAB = 320 };

typedef struct job {
    test_model model;
    test_rig rig;
    rg_denoise d;
    rg_evaluation e;
    int32_t ids[MAX_POSITIONS], unguided[MAX_POSITIONS];
    rg_candidate candidates[MAX_POSITIONS];
    float logits[MAX_POSITIONS][MAX_VOCAB], without[MAX_POSITIONS][MAX_VOCAB];
    rg_seq *seq, *without_seq;
} job;

static void take_row(void *arg, int feed, int row, float *logits)
{
    job *j = arg;

    memcpy(feed ? j->without[row] : j->logits[row], logits, MAX_VOCAB * sizeof *logits);
}

/* The best id that is not the mask, and its confidence by the logits as they are. */
static void take_candidates(job *j)
{
    for (int32_t p = j->e.from; p < j->e.upto; p++) {
        int row = rg_denoise_row(&j->d, p) - j->e.first;
        float *logits = j->logits[row];
        int32_t best = 0;

        if (j->without_seq)
            rg_guide(logits, j->without[row], MAX_VOCAB, j->d.p.cfg_scale);
        for (int32_t i = 1; i < MAX_VOCAB; i++)
            if (i != j->d.model.mask_id && logits[i] > logits[best])
                best = i;
        j->candidates[p] = (rg_candidate){ best, rg_confidence(logits, MAX_VOCAB, best, j->d.p.remasking) };
    }
}

/* Rows of a sequence that is computed as a whole; without the prompt too, where the answer is guided. */
static void evaluate_whole(job *j)
{
    test_feed feeds[2] = { { .seq = j->seq, .ids = j->ids + j->e.first, .n = j->e.end - j->e.first, .n_seq = j->d.n } };

    rg_seq_scratch_from(j->rig.states, j->seq, j->e.first);
    assert_true(rg_seq_grow(j->rig.states, j->seq, j->d.n));
    if (j->without_seq) {
        memcpy(j->unguided, j->ids, sizeof j->unguided);
        for (int i = 0; i < j->d.n_prompt; i++)
            j->unguided[i] = j->d.model.mask_id;
        assert_true(rg_seq_grow(j->rig.states, j->without_seq, j->d.n));
        feeds[1] = feeds[0];
        feeds[1].seq = j->without_seq;
        feeds[1].ids = j->unguided + j->e.first;
    }
    test_rig_step(&j->rig, feeds, j->without_seq ? 2 : 1, take_row, j);
}

/* A block of the model: drafts, until its ids are final. */
static void evaluate_block(job *j)
{
    int n = j->e.end - j->e.first, n_draft = j->e.keeps ? 0 : n;

    assert_int_equal(j->seq->length, j->e.first);
    assert_true(rg_seq_grow(j->rig.states, j->seq, j->e.end));
    test_rig_step(&j->rig, &(test_feed){ .seq = j->seq, .ids = j->ids + j->e.first, .n = n, .n_draft = n_draft }, 1, take_row, j);
    rg_seq_advance(j->rig.states, j->seq, n, n_draft, j->ids);
    rg_seq_rollback(j->rig.states, j->seq, j->seq->committed);
}

static rg_seq *sequence(job *j)
{
    rg_error err;
    rg_seq *q = rg_seq_new(j->rig.states, MAX_POSITIONS, 0, &err);

    assert_ok(q, err);
    if (j->rig.runner->sees == RG_SEES_ALL)
        rg_seq_scratch(q);
    return q;
}

static void run_case(job *j, const rg_diffusion_params *p, const json_t *of)
{
    const json_t *prompt = json_object_get(of, "prompt"), *steps = json_object_get(of, "steps");
    int32_t sees = j->rig.runner->sees, n_prompt = (int32_t)json_array_size(prompt), n_final = 0;
    int n_tokens = (int)json_integer_value(json_object_get(json_object_get(of, "settings"), "gen_length"));
    rg_error err;

    for (int i = 0; i < n_prompt; i++)
        j->ids[i] = (int32_t)json_integer_value(json_array_get(prompt, (size_t)i));
    assert_ok(rg_denoise_check(p, &j->rig.runner->diffusion, sees, &err), err);
    rg_denoise_init(&j->d, &(rg_denoise_start){ .params = p, .model = &j->rig.runner->diffusion, .sees = sees, .ids = j->ids,
                                                .n_prompt = n_prompt,
                                                .n = rg_denoise_length(n_prompt, n_tokens, &j->rig.runner->diffusion, sees),
                                                .candidates = j->candidates });
    j->seq = sequence(j);
    j->without_seq = p->cfg_scale > 0 ? sequence(j) : NULL;
    if (j->d.from && sees != RG_SEES_ALL) { /* the prompt's whole blocks */
        assert_true(rg_seq_grow(j->rig.states, j->seq, j->d.from));
        test_rig_step(&j->rig, &(test_feed){ .seq = j->seq, .ids = j->ids, .n = j->d.from }, 1, take_row, j);
        rg_seq_advance(j->rig.states, j->seq, j->d.from, 0, j->ids);
    }
    while (rg_denoise_next(&j->d, &j->e)) {
        if (sees == RG_SEES_ALL)
            evaluate_whole(j);
        else
            evaluate_block(j);
        if (!j->e.keeps)
            take_candidates(j);
        int32_t now = rg_denoise_commit(&j->d, &j->e);
        assert_in_range(now, n_final, j->d.n - n_prompt);
        n_final = now;
        if (j->e.keeps)
            continue;
        assert_in_range(j->d.n_evaluations, 1, json_array_size(steps));
        const json_t *want = json_array_get(steps, (size_t)j->d.n_evaluations - 1);
        assert_int_equal(json_array_size(want), j->d.n);
        for (int i = 0; i < j->d.n; i++)
            if (j->ids[i] != json_integer_value(json_array_get(want, (size_t)i)))
                fail_msg("after evaluation %d: position %d has %d and not %d", j->d.n_evaluations, i, j->ids[i],
                         (int)json_integer_value(json_array_get(want, (size_t)i)));
    }
    assert_int_equal(j->d.n_evaluations, json_array_size(steps));
    assert_int_equal(n_final, j->d.n - n_prompt);
    rg_seq_free(j->rig.states, j->seq);
    rg_seq_free(j->rig.states, j->without_seq);
}

/* The settings of a case, in the words of whichever family. */
static rg_diffusion_params params_of(const json_t *s)
{
    static const struct {
        const char *name;
        rg_remasking remasking;
    } names[] = {
        { "low_confidence", RG_REMASKING_CONFIDENCE },        { "maskgit_plus", RG_REMASKING_CONFIDENCE },
        { "low_confidence_static", RG_REMASKING_CONFIDENCE }, { "entropy", RG_REMASKING_ENTROPY },
        { "margin", RG_REMASKING_MARGIN },                    { "topk_margin", RG_REMASKING_MARGIN },
        { "sequential", RG_REMASKING_SEQUENTIAL },            { "low_confidence_dynamic", RG_REMASKING_DYNAMIC },
    };
    static const char *const keys[] = { "remasking", "alg", "strategy" };
    const char *cache = json_string_value(json_object_get(s, "cache"));
    rg_diffusion_params p = { .steps = (int32_t)json_integer_value(json_object_get(s, "steps")),
                              .block = (int32_t)json_integer_value(json_object_get(s, "block_length")),
                              .threshold = (float)json_number_value(json_object_get(s, "threshold")),
                              .cfg_scale = (float)json_number_value(json_object_get(s, "cfg_scale")) };

    if (json_object_get(s, "denoising_steps"))
        p.steps = (int32_t)json_integer_value(json_object_get(s, "denoising_steps"));
    if (cache)
        p.cache = strcmp(cache, "dual") ? RG_CACHE_PREFIX : RG_CACHE_DUAL;
    for (size_t k = 0; k < RG_LEN(keys); k++)
        for (size_t i = 0; json_object_get(s, keys[k]) && i < RG_LEN(names); i++)
            if (!strcmp(json_string_value(json_object_get(s, keys[k])), names[i].name))
                p.remasking = names[i].remasking;
    return p;
}

static void check(const char *name)
{
    char path[64];
    json_error_t err;
    job *j = calloc(1, sizeof *j);

    snprintf(path, sizeof path, "%s/generations.json", name);
    json_t *cases = json_load_file(test_data(path), 0, &err), *one;
    size_t k;

    assert_true(j && json_array_size(cases) > 0);
    test_model_open(&j->model, test_data(name), "f32");
    test_rig_open(&j->rig, &j->model, &(test_rig_options){ .backend = rg_backend_find("auto", NULL), .n_threads = 2, .exact = true,
                                                           .max_rows = 2 * MAX_POSITIONS, .max_seqs = 2,
                                                           .max_len = MAX_POSITIONS });
    json_array_foreach(cases, k, one) {
        rg_diffusion_params p = params_of(json_object_get(one, "settings"));
        print_message("    %s, case %zu\n", name, k);
        run_case(j, &p, one);
    }
    test_rig_close(&j->rig);
    test_model_close(&j->model);
    json_decref(cases);
    free(j);
}

static void by_blocks_of_the_answer(void **state)
{
    (void)state;
    check("llada");
}

static void as_a_whole(void **state)
{
    (void)state;
    check("dream");
}

static void by_blocks_of_the_model(void **state)
{
    (void)state;
    check("sdar-b4");
    check("sdar-b8");
}

static void settings_are_refused(void **state)
{
    static const rg_diffusion even = { .mask_id = 9 }, timed = { .mask_id = 9, .shifted = true, .schedule = RG_SCHEDULE_TIME };
    static const struct {
        const rg_diffusion *model;
        int32_t sees;
        rg_diffusion_params p;
        const char *why;
    } cases[] = {
        { &even, RG_SEES_ALL, { .steps = -1 }, "negative" },
        { &even, RG_SEES_ALL, { .threshold = NAN }, "threshold" },
        { &even, RG_SEES_ALL, { .cfg_scale = 101 }, "guidance" },
        { &even, RG_SEES_ALL, { .remasking = RG_REMASKING_SEQUENTIAL }, "remasking" },
        { &timed, RG_SEES_ALL, { .block = 4 }, "block" },
        { &timed, RG_SEES_ALL, { .cfg_scale = 1 }, "cfg" },
        { &timed, RG_SEES_ALL, { .cache = RG_CACHE_DUAL }, "cache" },
        { &even, 4, { .block = 8 }, "blocks of 4" },
        { &even, 4, { .remasking = RG_REMASKING_MARGIN }, "remasking" },
        { &even, 4, { .remasking = RG_REMASKING_DYNAMIC }, "threshold" },
        { &even, 4, { .threshold = 0.5f }, "threshold" },
        { &even, 4, { .cache = RG_CACHE_PREFIX }, "cache" },
    };
    rg_error err;

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        assert_false(rg_denoise_check(&cases[i].p, cases[i].model, cases[i].sees, &err));
        if (!strstr(err.text, cases[i].why))
            fail_msg("case %zu: %s", i, err.text);
    }
    assert_ok(rg_denoise_check(&(rg_diffusion_params){ .steps = 3, .block = 4, .cfg_scale = 2, .threshold = 1 }, &even, RG_SEES_ALL,
                               &err), err);
}

/* Where neither steps nor a threshold are given: what the checkpoint names, or else the threshold. */
static void what_is_left_out_is_settled(void **state)
{
    static const rg_diffusion even = { .mask_id = 9 }, named = { .mask_id = 9, .steps = 12 };
    static const struct {
        const rg_diffusion *model;
        int32_t sees;
        rg_diffusion_params given, want;
    } cases[] = {
        { &even, RG_SEES_ALL, { 0 }, { .threshold = 0.9f } },
        { &even, RG_SEES_ALL, { .remasking = RG_REMASKING_MARGIN }, { .remasking = RG_REMASKING_MARGIN, .threshold = 0.9f } },
        { &even, RG_SEES_ALL, { .remasking = RG_REMASKING_ENTROPY }, { .remasking = RG_REMASKING_ENTROPY } },
        { &even, RG_SEES_ALL, { .steps = 7 }, { .steps = 7 } },
        { &even, RG_SEES_ALL, { .threshold = 0.5f }, { .threshold = 0.5f } },
        { &even, 4, { 0 }, { .remasking = RG_REMASKING_DYNAMIC, .threshold = 0.9f } },
        { &even, 4, { .threshold = 0.5f }, { .remasking = RG_REMASKING_DYNAMIC, .threshold = 0.5f } },
        { &even, 4, { .remasking = RG_REMASKING_SEQUENTIAL }, { .remasking = RG_REMASKING_SEQUENTIAL } },
        { &even, 4, { .steps = 2 }, { .steps = 2 } },
        { &named, RG_SEES_ALL, { 0 }, { .steps = 12 } },
        { &named, RG_SEES_ALL, { .threshold = 0.8f }, { .threshold = 0.8f } },
        { &named, 4, { .steps = 3 }, { .steps = 3 } },
    };
    rg_error err;

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        rg_diffusion_params p = cases[i].given;
        rg_denoise_settle(&p, cases[i].model, cases[i].sees);
        if (p.steps != cases[i].want.steps || p.threshold != cases[i].want.threshold || p.remasking != cases[i].want.remasking)
            fail_msg("case %zu: steps %d, threshold %g, remasking %d", i, p.steps, (double)p.threshold, p.remasking);
        assert_ok(rg_denoise_check(&p, cases[i].model, cases[i].sees, &err), err);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_blocks_of_the_answer),
        cmocka_unit_test(as_a_whole),
        cmocka_unit_test(by_blocks_of_the_model),
        cmocka_unit_test(settings_are_refused),
        cmocka_unit_test(what_is_left_out_is_settled),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
