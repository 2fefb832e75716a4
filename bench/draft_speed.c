/* draft_speed.c -- how much quicker drafts make a model of any shape, with random weights.
 *
 *   draft_speed copy CONFIG.json TYPE
 *   draft_speed chance CONFIG.json TYPE DRAFT-CONFIG.json
 *
 * Random weights write random text, so the answer is given: each step computes everything, and then the logit of the
 * text's own next id is made the largest.  All rows are medians of ROUNDS rounds; within a round the loop answers once
 * without drafts and once in each way, in turns.
 *
 * copy: the answer repeats the prompt, word for word or with one id in 16 changed; the drafters are prompt lookup, the
 * suffix automaton (all they can), and the suffix automaton as `--draft auto` runs it.
 *
 * chance: a model of DRAFT-CONFIG drafts g ids, of which each is then made right with chance a.  Beside the speed-up
 * that was measured stands ids per step / (g c + v): c is what an id of a draft takes and v what a step with g drafts
 * takes, both as a multiple of a step without drafts; v is measured of single steps between the answers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/quantile.h"
#include "base/rng.h"
#include "engine/loop.h"
#include "engine/step_batch.h"
#include "model/model.h"

enum { ROUNDS = 5, PROMPT = 128, ANSWER = 128, LEN = PROMPT + ANSWER, ROWS = 256, SAME = 16, STEPS = 5 };

static const double chances[] = { 0.5, 0.7, 0.9 };
static const int32_t depths[] = { 2, 4, 8 };

/* A runner whose logits say that the text goes on as given. */
typedef struct follower {
    rg_runner r; /* first */
    rg_runner *inner;
    const int32_t *text; /* [LEN] */
    const rg_batch *batch;
    const rg_sink *sink;
} follower;

static void follow(void *arg, int thread, int i, float *logits)
{
    const follower *f = arg;
    const int32_t at = f->batch->index[f->batch->logit_rows[i]] + 1;

    if (at < LEN)
        logits[f->text[at]] = 1e9f;
    f->sink->logits(f->sink->arg, thread, i, logits);
}

static void follower_step(rg_runner *r, const rg_batch *batch, const rg_sink *sink)
{
    follower *f = (follower *)r;

    f->batch = batch;
    f->sink = sink;
    f->inner->step(f->inner, batch, &(rg_sink){ .logits = follow, .arg = f });
}

typedef struct shape {
    rg_checkpoint *ckpt;
    rg_model *model;
    rg_runner *runner;
} shape;

typedef struct world {
    shape target, draft;
    follower follower;
    rg_states *states; /* of the same store as the loop's, whose sequences have ended */
    rg_step_batch rows;
    rg_rng random;
    int32_t text[LEN];
} world;

static bool open_shape(shape *s, const char *config, const char *type, rg_error *err)
{
    rg_model_options o = { .random_weights = true, .n_threads = rg_cores() };
    rg_runner_options r = { .backend = rg_backend_find("auto", err), .n_threads = rg_cores(), .max_rows = ROWS,
                            .max_logits = 1 + RG_MAX_DRAFT, .max_seqs = 2, .max_seq_len = LEN + RG_MAX_DRAFT,
                            .state_bytes = (size_t)256 << 20 };

    if (!rg_type_by_name(type, &o.declared_type))
        return rg_fail(err, RG_E_USAGE, "type '%.20s' is not one of f32, f16, bf16, q8_0, q4_0, ...", type);
    s->ckpt = rg_checkpoint_open(config, RG_CKPT_NO_WEIGHTS, err);
    s->model = s->ckpt ? rg_model_open(s->ckpt, &o, err) : NULL;
    s->runner = s->model && r.backend ? rg_model_runner_new(s->model, &r, err) : NULL;
    return s->runner;
}

static void close_shape(shape *s)
{
    rg_model_runner_free(s->runner);
    rg_model_close(s->model);
    rg_checkpoint_close(s->ckpt);
}

static int32_t random_id(world *w)
{
    return (int32_t)rg_rng_below(&w->random, (uint32_t)w->target.model->config.vocab_size);
}

/* ---- a drafter that knows the text, after it has taken the time of one that does not ---- */

typedef struct knowing {
    rg_drafter d; /* first */
    rg_drafter *inner; /* NULL: it takes no time */
    world *w;
    double chance, took_s;
    int64_t n_ids;
} knowing;

static bool propose(rg_drafter *d, const rg_draft_ask *asks, int32_t n)
{
    knowing *k = (knowing *)d;
    uint64_t start = rg_now_ns();

    if (k->inner && !k->inner->propose(k->inner, asks, n))
        return false;
    k->took_s += rg_seconds(start, rg_now_ns());
    for (int32_t i = 0; i < n; i++) {
        const rg_draft_ask *a = &asks[i];

        a->draft->n = 0;
        for (int32_t j = 0; j < a->depth && a->n_ids + j < LEN; j++) {
            bool right = (double)rg_rng_below(&k->w->random, 1 << 20) < k->chance * (1 << 20);
            int32_t id = k->w->text[a->n_ids + j];

            rg_draft_add(a->draft, j - 1, right ? id : (id + 1) % k->w->target.model->config.vocab_size);
            k->n_ids++;
        }
    }
    return true;
}

static void begin(rg_drafter *d, int32_t lane)
{
    knowing *k = (knowing *)d;

    if (k->inner && k->inner->begin)
        k->inner->begin(k->inner, lane);
}

/* ---- answers ---- */

typedef struct run {
    double ids_s;    /* ids a second, the first one not counted */
    double per_step; /* ids of a step */
} run;

static bool answer(world *w, rg_drafter *drafter, int32_t depth, bool adapts, run *out, rg_error *err)
{
    rg_loop_options o = { .max_seqs = 1, .max_rows = ROWS, .max_seq_len = LEN, .max_waiting = 1, .drafter = drafter,
                          .max_draft = depth, .adapt_drafts = adapts };
    rg_request_model m = { .vocab_size = w->target.model->config.vocab_size, .max_seq_len = LEN, .max_draft = depth };
    rg_params p = { .prompt = w->text, .n_prompt = PROMPT, .max_tokens = ANSWER, .n_samples = 1,
                    .sampling = rg_sampling_default() };
    uint64_t start = 0;
    int32_t had = 0;

    p.sampling.temperature = 0;
    p.sampling.n_logprobs = -1;
    rg_loop *l = rg_loop_new(&w->follower.r, &o, err);
    rg_request *r = l ? rg_request_new(&p, &m, err) : NULL;
    bool ok = r && rg_loop_submit(l, r, err);
    while (ok && rg_loop_step(l))
        if (!had) {
            had = r->samples[0].n_output;
            start = rg_now_ns();
        }
    if (ok) {
        out->ids_s = (ANSWER - had) / rg_seconds(start, rg_now_ns());
        out->per_step = (double)ANSWER / atomic_load(&r->counts.n_steps);
        ok = (r->samples[0].n_output == ANSWER && !memcmp(r->samples[0].ids, w->text + PROMPT, ANSWER * sizeof *w->text)) ||
             rg_fail(err, RG_E_INPUT, "the answer is not the text");
    }
    rg_request_unref(r);
    rg_loop_free(l);
    return ok;
}

/* ---- single steps ---- */

static void ignore(void *arg, int thread, int i, float *logits)
{
    (void)arg, (void)thread, (void)i, (void)logits;
}

/* Seconds of a step in the middle of the answer with a chain of so many guesses: the median of some. */
static bool time_step(world *w, int32_t n_draft, double *seconds, rg_error *err)
{
    rg_draft_tree chain = { .n = n_draft };
    double took[STEPS];
    rg_seq *q = rg_seq_new(w->states, LEN + RG_MAX_DRAFT, 0, err);
    int32_t at = PROMPT + ANSWER / 2;

    if (!q)
        return false;
    for (int32_t i = 0; i < n_draft; i++) {
        chain.id[i] = random_id(w);
        chain.parent[i] = i - 1;
    }
    if (!rg_seq_grow(w->states, q, at + 1 + n_draft))
        return rg_seq_free(w->states, q), rg_fail(err, RG_E_LIMIT, "no room for %d positions", at + 1 + n_draft);
    rg_seq_advance(w->states, q, at, 0, NULL);
    for (int i = 0; i < STEPS; i++) {
        uint64_t start;

        rg_step_batch_begin(&w->rows);
        rg_step_batch_add(&w->rows, w->states, q, w->text, 1, n_draft ? &chain : NULL);
        rg_step_batch_want_draws(&w->rows, n_draft);
        start = rg_now_ns();
        w->target.runner->step(w->target.runner, &w->rows.batch, &(rg_sink){ .logits = ignore });
        took[i] = rg_seconds(start, rg_now_ns());
    }
    rg_seq_free(w->states, q);
    *seconds = rg_quantile(took, STEPS, 0.5);
    return true;
}

/* ---- chance ---- */

typedef struct cell {
    double measured[ROUNDS], expected[ROUNDS], ratio[ROUNDS], c[ROUNDS], v[ROUNDS], per_step[ROUNDS];
} cell;

static bool chance_round(world *w, double chance, int32_t depth, double plain_ids_s, int round, cell *out, rg_error *err)
{
    knowing k = { .d = { .depth = depth, .propose = propose, .begin = begin }, .w = w, .chance = chance };
    rg_draft_options o = { .n_lanes = 1, .max_draft = depth, .vocab_size = w->target.model->config.vocab_size,
                           .max_seq_len = LEN, .runner = w->draft.runner };
    double one, more;
    run drafted;

    k.inner = rg_draft_kind_find("model")->open(&o, err);
    bool ok = k.inner && time_step(w, 0, &one, err) && time_step(w, depth, &more, err) &&
              answer(w, &k.d, depth, false, &drafted, err);
    rg_drafter_close(k.inner);
    if (!ok)
        return false;
    out->c[round] = k.took_s / (double)k.n_ids / one;
    out->v[round] = more / one;
    out->per_step[round] = drafted.per_step;
    out->measured[round] = drafted.ids_s / plain_ids_s;
    out->expected[round] = drafted.per_step / (depth * out->c[round] + out->v[round]);
    out->ratio[round] = out->measured[round] / out->expected[round];
    return true;
}

static double median(double *x)
{
    return rg_quantile(x, ROUNDS, 0.5);
}

static void print_cell(double chance, int32_t depth, cell *c)
{
    double expected = 0, power = 1;

    for (int32_t i = 0; i <= depth; i++, power *= chance)
        expected += power;
    printf("%6.1f %3d %10.2f %10.2f %7.3f %7.2f %9.2f %9.2f %7.2f\n", chance, (int)depth, median(c->per_step), expected,
           median(c->c), median(c->v), median(c->measured), median(c->expected), median(c->ratio));
}

static bool chance_table(world *w, rg_error *err)
{
    static cell cells[RG_LEN(chances)][RG_LEN(depths)];

    for (int round = 0; round < ROUNDS; round++) {
        run plain;

        if (!answer(w, NULL, 0, false, &plain, err))
            return false;
        for (size_t a = 0; a < RG_LEN(chances); a++)
            for (size_t g = 0; g < RG_LEN(depths); g++)
                if (!chance_round(w, chances[a], depths[g], plain.ids_s, round, &cells[a][g], err))
                    return false;
    }
    printf("%6s %3s %10s %10s %7s %7s %9s %9s %7s\n", "chance", "g", "ids/step", "expected", "c", "v", "speed-up",
           "expected", "ratio");
    for (size_t a = 0; a < RG_LEN(chances); a++)
        for (size_t g = 0; g < RG_LEN(depths); g++)
            print_cell(chances[a], depths[g], &cells[a][g]);
    return true;
}

/* ---- copy ---- */

static const struct way {
    const char *name, *kind;
    int32_t max_draft; /* 0: the kind's own */
    bool adapts;
} ways[] = {
    { "ngram", "ngram", 0, false }, { "suffix", "suffix", 0, false }, { "auto", "suffix", 8, true },
};

typedef struct copied {
    double speed_up[ROUNDS], per_step[ROUNDS];
} copied;

static bool copy_round(world *w, const struct way *way, double plain_ids_s, int round, copied *out, rg_error *err)
{
    const rg_draft_kind *kind = rg_draft_kind_find(way->kind);
    const int32_t depth = way->max_draft ? way->max_draft : kind->max_draft;
    rg_drafter *d = kind->open(&(rg_draft_options){ .n_lanes = 1, .max_draft = depth, .max_seq_len = LEN,
                                                    .vocab_size = w->target.model->config.vocab_size }, err);
    run drafted;
    bool ok = d && answer(w, d, depth, way->adapts, &drafted, err);

    rg_drafter_close(d);
    if (ok) {
        out->speed_up[round] = drafted.ids_s / plain_ids_s;
        out->per_step[round] = drafted.per_step;
    }
    return ok;
}

static bool copy_text(world *w, const char *name, rg_error *err)
{
    copied all[RG_LEN(ways)];

    for (int round = 0; round < ROUNDS; round++) {
        run plain;

        if (!answer(w, NULL, 0, false, &plain, err))
            return false;
        for (size_t k = 0; k < RG_LEN(ways); k++)
            if (!copy_round(w, &ways[k], plain.ids_s, round, &all[k], err))
                return false;
    }
    for (size_t k = 0; k < RG_LEN(ways); k++)
        printf("%-16s %-8s %10.2f %9.2f\n", name, ways[k].name, median(all[k].per_step), median(all[k].speed_up));
    return true;
}

static bool copy_table(world *w, rg_error *err)
{
    static const char *const texts[] = { "word for word", "1 id in 16 new" };

    printf("%-16s %-8s %10s %9s\n", "the copy", "drafter", "ids/step", "speed-up");
    for (int edited = 0; edited < 2; edited++) {
        for (int i = PROMPT; i < LEN; i++)
            w->text[i] = edited && i % SAME == SAME - 1 ? random_id(w) : w->text[i - PROMPT];
        if (!copy_text(w, texts[edited], err))
            return false;
    }
    return true;
}

/* ---- opening ---- */

static bool work(world *w, int argc, char **argv, rg_error *err)
{
    bool copies = argc == 4 && !strcmp(argv[1], "copy");

    if (!copies && (argc != 5 || strcmp(argv[1], "chance") != 0))
        return rg_fail(err, RG_E_USAGE, "draft_speed copy CONFIG.json TYPE, or chance CONFIG.json TYPE DRAFT-CONFIG.json");
    if (!open_shape(&w->target, argv[2], argv[3], err) || (!copies && !open_shape(&w->draft, argv[4], argv[3], err)))
        return false;
    w->follower = (follower){ .r = *w->target.runner, .inner = w->target.runner, .text = w->text };
    w->follower.r.step = follower_step;
    w->states = rg_states_new(w->target.runner->spec, w->target.runner->store, false, err);
    if (!w->states || !rg_step_batch_init(&w->rows, 1, ROWS, 1 + RG_MAX_DRAFT, false, err))
        return false;
    for (int i = 0; i < LEN; i++)
        w->text[i] = random_id(w);
    return copies ? copy_table(w, err) : chance_table(w, err);
}

int main(int argc, char **argv)
{
    static world w = { .random = { .seed = 1 } };
    rg_error err = { 0 };
    bool ok = work(&w, argc, argv, &err);

    rg_step_batch_fini(&w.rows);
    rg_states_free(w.states);
    close_shape(&w.target);
    close_shape(&w.draft);
    if (!ok)
        fprintf(stderr, "draft_speed: %s\n", err.text);
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
