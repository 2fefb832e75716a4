/* request.c -- making a request: what is refused, and one allocation, carved twice by the same function (first to
 * count, then to place).  mailbox.c passes answers through it, embed.c makes an embedding, score.c knows how likely the
 * prompt was.
 *
 * Tokens.  Sample i's ids are row i of [n_branches][n_prompt + max_tokens]: the prompt and its output, contiguous. */
#include "engine/request.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/sampler.h"

enum {
    MAX_SAMPLES = 1024,
    MAX_STOP_BYTES = 1 << 16, /* of all stop texts together */
    MAX_STOP_IDS = 1 << 14,
};

/* Prefixes of sequences that take another variant of a rope are apart from those of others. */
static const uint64_t ROPE_SALT = 0x9fb21c651e98df25;
/* And those of sequences with another adapter. */
static const uint64_t ADAPTER_SALT = 0xd6e8feb86659fd93;

static const rg_spelling silence; /* no id shows anything */

/* ---- what is refused --------------------------------------------------------------------------------------------- */

/* An embedding or scores are wanted, and no answer. */
static bool ends_with_prompt(const rg_params *p)
{
    return p->embed || p->score;
}

/* The blocks that answers are filled in by, where they are the model's own; else 1. */
static int32_t block_of(const rg_request_model *m)
{
    return m->sees > 1 ? m->sees : 1;
}

/* Positions that prompt and answer may have: whole blocks. */
static int32_t context_of(const rg_request_model *m)
{
    return m->max_seq_len - m->max_seq_len % block_of(m);
}

static bool check_prompt(const rg_params *p, const rg_request_model *m, rg_error *err)
{
    char blocks[48] = "";

    if (p->n_prompt < 1 || !p->prompt)
        return rg_fail(err, RG_E_INPUT, "the prompt is empty: it needs an id at least");
    if (p->n_prompt > m->max_seq_len)
        return rg_fail(err, RG_E_LIMIT, "the prompt has %d ids, and the context holds %d", (int)p->n_prompt,
                       (int)m->max_seq_len);
    if (block_of(m) > 1)
        snprintf(blocks, sizeof blocks, " (in whole blocks of %d)", (int)block_of(m));
    if (!ends_with_prompt(p) && p->max_tokens && p->n_prompt >= context_of(m))
        return rg_fail(err, RG_E_LIMIT, "the prompt has %d ids, and the context of %d%s must hold one more",
                       (int)p->n_prompt, (int)context_of(m), blocks);
    for (int32_t i = 0; i < p->n_prompt; i++)
        if (p->prompt[i] < 0 || p->prompt[i] >= m->vocab_size)
            return rg_fail(err, RG_E_INPUT, "id %d at place %d of the prompt is not in the vocabulary of %d",
                           (int)p->prompt[i], (int)i, (int)m->vocab_size);
    if (p->tenant_weight != 0 && !(p->tenant_weight >= RG_TENANT_WEIGHT_LEAST &&
                                   p->tenant_weight <= RG_TENANT_WEIGHT_MOST)) /* NaN too */
        return rg_fail(err, RG_E_INPUT, "tenant_weight is %g: want %g to %g", (double)p->tenant_weight,
                       RG_TENANT_WEIGHT_LEAST, RG_TENANT_WEIGHT_MOST);
    if (!(p->deadline_s >= 0)) /* NaN too */
        return rg_fail(err, RG_E_INPUT, "deadline_s is %g: want 0 or more", p->deadline_s);
    return true;
}

static bool check_stops(const rg_params *p, int32_t vocab_size, rg_error *err)
{
    size_t total = 0;

    if (p->n_stop < 0 || p->n_stop_ids < 0 || (p->n_stop && !p->stop) || (p->n_stop_ids && !p->stop_ids))
        return rg_fail(err, RG_E_INPUT, "a count of stop texts or stop ids without the list");
    for (int32_t i = 0; i < p->n_stop; i++) {
        size_t n = p->stop[i] ? strnlen(p->stop[i], MAX_STOP_BYTES + 1) : 0;

        if (!n)
            return rg_fail(err, RG_E_INPUT, "stop text %d is empty", (int)i);
        total += n;
        if (total > MAX_STOP_BYTES)
            return rg_fail(err, RG_E_LIMIT, "the stop texts have more than %d bytes", MAX_STOP_BYTES);
    }
    if (p->n_stop_ids > MAX_STOP_IDS)
        return rg_fail(err, RG_E_LIMIT, "%d stop ids: at most %d may be given", (int)p->n_stop_ids, MAX_STOP_IDS);
    for (int32_t i = 0; i < p->n_stop_ids; i++)
        if (p->stop_ids[i] < 0 || p->stop_ids[i] >= vocab_size)
            return rg_fail(err, RG_E_INPUT, "stop id %d is not in the vocabulary of %d", (int)p->stop_ids[i],
                           (int)vocab_size);
    return true;
}

/* What answers must be like. */
static bool check_answers(const rg_params *p, const rg_request_model *m, rg_error *err)
{
    if (p->max_tokens < !p->prompt_logprobs)
        return rg_fail(err, RG_E_INPUT, "max_tokens is %d: want 1 or more, or 0 and prompt_logprobs",
                       (int)p->max_tokens);
    if (p->n_prompt_tops < 0 || p->n_prompt_tops > m->vocab_size)
        return rg_fail(err, RG_E_INPUT, "n_prompt_tops is %d: want 0 to %d", (int)p->n_prompt_tops, (int)m->vocab_size);
    if (p->n_samples < 1 || p->n_samples > MAX_SAMPLES)
        return rg_fail(err, RG_E_INPUT, "n_samples is %d: want 1 to %d", (int)p->n_samples, MAX_SAMPLES);
    if (p->best_of < 0 || p->best_of > MAX_SAMPLES || (p->best_of && p->best_of < p->n_samples))
        return rg_fail(err, RG_E_INPUT, "best_of is %d: want at least the %d answers that are to be told, and at most "
                       "%d", (int)p->best_of, (int)p->n_samples, MAX_SAMPLES);
    if (p->best_of > p->n_samples && (m->diffusion || p->beam.n_beams))
        return rg_fail(err, RG_E_UNSUPPORTED, "best_of needs the log-probabilities of answers that are drawn: %s",
                       m->diffusion ? "this model fills them in" : "it does not go together with beams");
    return rg_sampling_check(&p->sampling, m->vocab_size, err) && check_stops(p, m->vocab_size, err);
}

/* What does not go with a search. */
static bool check_beams(const rg_params *p, const rg_request_model *m, rg_error *err)
{
    if (!rg_beams_check(&p->beam, p->n_samples, err))
        return false;
    if (m->diffusion)
        return rg_fail(err, RG_E_UNSUPPORTED, "this model fills in answers in any order: beams need ids one after the "
                       "other");
    if (p->prompt_logprobs)
        return rg_fail(err, RG_E_UNSUPPORTED, "beams and log-probabilities of the prompt do not go together: ask for "
                       "those without beams");
    if (p->grammar && (p->sampling.ignore_eos || !m->n_eos))
        return rg_fail(err, RG_E_UNSUPPORTED, "beams and a grammar need an end token of the model, which says that an "
                       "answer is complete");
    return true;
}

enum { MAX_FILL_POSITIONS = 1 << 24, MAX_TRACED = 1 << 26 /* bytes */ };

/* The rule of sampling that needs ids one after the other; NULL: none is asked for. */
static const char *rule_in_order(const rg_sampling *p)
{
    bool penalties = p->repetition_penalty != 1 || p->frequency_penalty != 0 || p->presence_penalty != 0;

    return p->mirostat                     ? "mirostat"
           : p->dry_multiplier > 0         ? "dry_multiplier"
           : p->penalty_last_n && penalties ? "penalty_last_n"
                                           : NULL;
}

/* What an answer of a diffusion model must be like. */
static bool check_fill(const rg_params *p, const rg_request_model *m, rg_error *err)
{
    int32_t n = rg_denoise_length(p->n_prompt, p->max_tokens, m->sees), guided = 1 + (p->diffusion.cfg_scale > 0);
    int32_t block = rg_fill_block(&p->diffusion, m->sees, p->max_tokens);

    if (!rg_denoise_check(&p->diffusion, m->diffusion, m->sees, err))
        return false;
    if (p->grammar || p->sampling.n_logprobs >= 0 || p->prompt_logprobs)
        return rg_fail(err, RG_E_UNSUPPORTED, "this model fills in answers in any order: a grammar, logprobs and "
                       "prompt_logprobs need ids one after the other");
    if (rule_in_order(&p->sampling))
        return rg_fail(err, RG_E_UNSUPPORTED, "this model fills in answers in any order: %s needs ids one after the "
                       "other", rule_in_order(&p->sampling));
    if (m->sees == RG_SEES_ALL && (int64_t)n * guided > m->max_rows)
        return rg_fail(err, RG_E_LIMIT, "%d prompt ids and an answer of %d are computed in one step%s, which has room "
                       "for %d rows (--batch-rows)", (int)p->n_prompt, (int)p->max_tokens,
                       guided > 1 ? ", and again without the prompt" : "", (int)m->max_rows);
    if (m->sees != RG_SEES_ALL && block > m->max_rows)
        return rg_fail(err, RG_E_LIMIT, "blocks of %d positions are computed in one step, which has room for %d rows "
                       "(--batch-rows)", (int)block, (int)m->max_rows);
    if ((int64_t)block * guided > m->max_logits)
        return rg_fail(err, RG_E_LIMIT, "blocks of %d positions: a step has room for the logits of %d; ask for smaller "
                       "blocks", (int)block, (int)m->max_logits / guided);
    for (int32_t i = 0; i < p->n_prompt; i++)
        if (p->prompt[i] == m->diffusion->mask_id)
            return rg_fail(err, RG_E_INPUT, "id %d at place %d of the prompt is the mask", (int)p->prompt[i], (int)i);
    return n <= MAX_FILL_POSITIONS || rg_fail(err, RG_E_LIMIT, "the answer is too long");
}

static bool fills(const rg_params *p, const rg_request_model *m)
{
    return m->diffusion && !ends_with_prompt(p);
}

/* The prompt is one span, never cut. */
static bool is_whole(const rg_params *p, const rg_request_model *m)
{
    return m->whole && !fills(p, m);
}

static bool check_whole(const rg_params *p, const rg_request_model *m, rg_error *err)
{
    if (!ends_with_prompt(p))
        return rg_fail(err, RG_E_UNSUPPORTED, "this model is an encoder: it makes embeddings of texts%s, and generates "
                       "no answers", m->n_labels ? " and scores pairs of them" : "");
    return p->n_prompt <= m->max_rows ||
           rg_fail(err, RG_E_LIMIT, "the prompt has %d ids, which this model computes in one step, and a step has room "
                   "for %d rows (--batch-rows)", (int)p->n_prompt, (int)m->max_rows);
}

/* Embedders made of language models are published without a head. */
static bool check_headless(const rg_params *p, rg_error *err)
{
    return ends_with_prompt(p) ||
           rg_fail(err, RG_E_UNSUPPORTED, "this model has no head (the checkpoint has no lm_head, and does not tie it "
                   "to the embedding): it makes embeddings of texts, and generates no answers");
}

static bool check_score(const rg_params *p, const rg_request_model *m, rg_error *err)
{
    if (p->embed)
        return rg_fail(err, RG_E_INPUT, "a request makes an embedding or scores, not both");
    return m->n_labels || rg_fail(err, RG_E_UNSUPPORTED, "this model has no head that scores texts");
}

/* Pool as the checkpoint says, with what it has behind the pooling. */
static bool by_model(const rg_params *p, const rg_request_model *m)
{
    return p->embed == RG_POOLING_MODEL && m->embedding && m->embedding->n_poolings;
}

static bool check_pooling(const rg_params *p, const rg_request_model *m, rg_error *err)
{
    if (p->pool_from < 0 || p->pool_from >= p->n_prompt)
        return rg_fail(err, RG_E_INPUT, "positions are pooled from %d on, of %d ids", (int)p->pool_from,
                       (int)p->n_prompt);
    return by_model(p, m) || (p->embed >= RG_POOLING_LAST && p->embed <= RG_POOLING_WEIGHTED_MEAN) ||
           rg_fail(err, RG_E_INPUT, "%d is no way to make an embedding", (int)p->embed);
}

/* What is wanted of a prompt without an answer. */
static bool check_ending(const rg_params *p, const rg_request_model *m, rg_error *err)
{
    if (p->second < 0 || p->second > p->n_prompt)
        return rg_fail(err, RG_E_INPUT, "the second text begins at %d of %d ids", (int)p->second, (int)p->n_prompt);
    return p->score ? check_score(p, m, err) : check_pooling(p, m, err);
}

static bool check_params(const rg_params *p, const rg_request_model *m, rg_error *err)
{
    return check_prompt(p, m, err) && (!is_whole(p, m) || check_whole(p, m, err)) &&
           (!m->headless || check_headless(p, err)) &&
           (ends_with_prompt(p) ? check_ending(p, m, err) : check_answers(p, m, err)) &&
           (ends_with_prompt(p) || !p->beam.n_beams || check_beams(p, m, err)) &&
           (!fills(p, m) || check_fill(p, m, err));
}

/* ---- building ---------------------------------------------------------------------------------------------------- */

typedef struct carver {
    char *base; /* NULL: only counting */
    size_t used;
    bool failed;
} carver;

static void *carve(carver *c, size_t n, size_t size)
{
    size_t bytes, at;

    if (!rg_round_up(c->used, 16, &at) || !rg_mul(n, size, &bytes) ||
        !rg_add(at, bytes, &c->used) || c->used > PTRDIFF_MAX - 64) {
        c->failed = true;
        c->used = 0;
        return NULL;
    }
    return c->base ? c->base + at : NULL;
}

typedef struct sizes {
    size_t row;          /* ids of one sample */
    size_t pending_room; /* bytes of one sample that may be held back, and one id's */
    size_t dim;          /* of a pooled state; 0: none is wanted */
    size_t n_poolings, n_finish; /* of an embedding: its ways of pooling, and floats of what is made of them */
    size_t n_labels;     /* of the head's scores; 0: none are wanted */
    size_t max_draft;    /* nodes */
    size_t fill;         /* positions of a block of an answer that is filled in; 0: none is */
    size_t traced;       /* evaluations that are kept */
    size_t n_branches, n_ends, vocab_size; /* samples that are written; ids that end an answer, some twice; all ids */
} sizes;

static size_t longest_stop(const rg_params *p)
{
    size_t most = 0;

    for (int32_t i = 0; i < p->n_stop; i++) {
        size_t n = strlen(p->stop[i]);
        most = n > most ? n : most;
    }
    return most;
}

static void carve_stops(carver *c, rg_request *r, const rg_params *p)
{
    rg_stop *stops = carve(c, (size_t)p->n_stop, sizeof *stops);

    for (int32_t i = 0; i < p->n_stop; i++) {
        size_t n = strlen(p->stop[i]);
        char *text = carve(c, n + 1, 1);
        int32_t *back = carve(c, n + 1, sizeof *back);

        if (!c->base)
            continue;
        memcpy(text, p->stop[i], n + 1);
        stops[i] = (rg_stop){ .text = text, .n = (int32_t)n, .back = back };
        rg_stop_link(&stops[i]);
    }
    if (c->base)
        r->stops = stops;
}

static rg_fill *carve_fill(carver *c, const rg_params *p, const sizes *z)
{
    size_t guided = p->diffusion.cfg_scale > 0, n_traced = 0;
    rg_fill *f = carve(c, 1, sizeof *f);
    rg_candidate *candidates = carve(c, z->row, sizeof *candidates);
    rg_guided *rows = carve(c, guided * z->fill, sizeof *rows);
    int32_t *trace;

    if (!rg_mul(z->traced, z->row, &n_traced))
        c->failed = true;
    trace = carve(c, n_traced, sizeof *trace);
    if (!c->base)
        return NULL;
    memset(rows, 0, guided * z->fill * sizeof *rows);
    *f = (rg_fill){ .d.candidates = candidates, .guided = rows, .trace = z->traced ? trace : NULL,
                    .most_traced = (int32_t)z->traced };
    return f;
}

static void carve_samples(carver *c, rg_request *r, const rg_params *p, const sizes *z)
{
    size_t n_max = (size_t)p->max_tokens, k = p->sampling.n_logprobs > 0 ? (size_t)p->sampling.n_logprobs : 0, n_tops;
    rg_sample *samples = carve(c, z->n_branches, sizeof *samples);

    if (!rg_mul(n_max + z->max_draft, k, &n_tops))
        c->failed = true;
    for (size_t i = 0; i < z->n_branches && !c->failed; i++) {
        rg_sample s = { .stop = -1, .stop_id = -1, .lane = -1 };

        s.stop_at = carve(c, (size_t)p->n_stop, sizeof *s.stop_at);
        s.try_stop_at = carve(c, (size_t)p->n_stop, sizeof *s.try_stop_at);
        s.read_stop_at = carve(c, (size_t)p->n_stop, sizeof *s.read_stop_at);
        s.pending = carve(c, z->pending_room, 1);
        s.logprobs = carve(c, p->sampling.n_logprobs >= 0 ? n_max : 0, sizeof *s.logprobs);
        s.tops = carve(c, n_tops, sizeof *s.tops);
        s.fill = z->fill ? carve_fill(c, p, z) : NULL;
        if (!c->base)
            continue;
        if (p->n_stop) {
            memset(s.stop_at, 0, (size_t)p->n_stop * sizeof *s.stop_at);
            memset(s.read_stop_at, 0, (size_t)p->n_stop * sizeof *s.read_stop_at);
        }
        s.ids = r->tokens + i * z->row + p->n_prompt;
        s.mu = rg_mirostat_begin(&p->sampling);
        if (p->sampling.n_logprobs < 0)
            s.logprobs = NULL;
        samples[i] = s;
        memcpy(r->tokens + i * z->row, p->prompt, (size_t)p->n_prompt * sizeof *p->prompt);
    }
    if (c->base)
        r->samples = samples;
}

static void carve_embedding(carver *c, rg_request *r, const sizes *z)
{
    float *embedding = carve(c, z->dim * z->n_poolings, sizeof *embedding);
    float *labels = carve(c, z->n_labels, sizeof *labels), *finish = carve(c, z->n_finish, sizeof *finish);
    double *sum = carve(c, z->dim * z->n_poolings, sizeof *sum);

    if (!c->base)
        return;
    r->n_labels = (int32_t)z->n_labels;
    r->labels = z->n_labels ? labels : NULL;
    r->dim = (int32_t)z->dim;
    r->embedding = z->dim ? embedding : NULL;
    r->pool_sum = z->dim ? sum : NULL;
    r->finish_scratch = z->n_finish ? finish : NULL;
}

static void carve_scores(carver *c, rg_request *r, const rg_params *p)
{
    size_t n = p->prompt_logprobs ? (size_t)p->n_prompt : 0, n_tops = 0;
    rg_score *scores = carve(c, n, sizeof *scores);
    rg_top *tops;

    if (!rg_mul(n, (size_t)p->n_prompt_tops, &n_tops))
        c->failed = true;
    tops = carve(c, n_tops, sizeof *tops);
    if (!c->base)
        return;
    r->scores = n ? scores : NULL;
    r->score_tops = n_tops ? tops : NULL;
    r->n_scoring = 1;
    atomic_init(&r->n_scored, 1);
}

static rg_top *carve_tops(carver *c, size_t n, size_t n_tops)
{
    size_t all = 0;

    if (!rg_mul(n, n_tops, &all))
        c->failed = true;
    return carve(c, all, sizeof(rg_top));
}

/* Room for the ids of an answer. */
static rg_beam_ids carve_beam_ids(carver *c, const rg_params *p, size_t n_tops)
{
    size_t n = (size_t)p->max_tokens;
    rg_beam_ids is = { .ids = carve(c, n, sizeof *is.ids) };

    is.logprobs = carve(c, p->sampling.n_logprobs >= 0 ? n : 0, sizeof *is.logprobs);
    is.tops = carve_tops(c, n, n_tops);
    return is;
}

static void carve_beams(carver *c, rg_request *r, const rg_params *p, const sizes *z)
{
    size_t n = (size_t)p->beam.n_beams, n_groups = p->beam.n_groups > 1 ? (size_t)p->beam.n_groups : 1, n_listed;
    bool logprobs = p->sampling.n_logprobs >= 0;
    size_t n_tops = p->sampling.n_logprobs > 0 ? (size_t)p->sampling.n_logprobs : 0;
    int32_t room = rg_beams_room(&p->beam, (int32_t)z->n_ends, (int32_t)z->vocab_size);
    rg_beam_ids *places;
    rg_beams *b;
    int32_t *ends, *stop_scratch;

    if (!n)
        return;
    if (!rg_mul(n, (size_t)room, &n_listed)) {
        c->failed = true;
        return;
    }
    b = carve(c, 1, sizeof *b);
    ends = carve(c, z->n_ends, sizeof *ends);
    places = carve(c, n, sizeof *places);
    stop_scratch = carve(c, (size_t)p->n_stop, sizeof *stop_scratch);
    rg_beams made = {
        .p = p->beam, .max_tokens = p->max_tokens, .ends = ends, .room = room, .n_tops = (int32_t)n_tops,
        .beam = carve(c, n, sizeof *made.beam), .listed = carve(c, n_listed, sizeof *made.listed),
        .kept = carve(c, (size_t)rg_beams_kept(&p->beam, (int32_t)z->n_ends), sizeof *made.kept),
        .next = carve(c, n, sizeof *made.next), .finished = carve(c, n, sizeof *made.finished),
        .n_finished = carve(c, n_groups, sizeof *made.n_finished), .is_over = carve(c, n_groups, sizeof *made.is_over),
        .order = carve(c, n, sizeof *made.order),
    };
    float *raw = carve(c, logprobs ? n_listed : 0, sizeof *raw);
    made.listed_tops = carve_tops(c, n, n_tops);
    for (size_t i = 0; i < n && !c->failed; i++) {
        const rg_beam_ids is = carve_beam_ids(c, p, n_tops);

        if (!c->base)
            continue;
        made.finished[i].is = is;
        places[i] = (rg_beam_ids){ r->samples[i].ids, r->samples[i].logprobs, r->samples[i].tops };
    }
    if (!c->base)
        return;
    made.listed_raw = logprobs ? raw : NULL;
    made.p.n_groups = (int32_t)n_groups;
    *b = made;
    r->beams = b;
    r->places = places;
    r->stop_scratch = stop_scratch;
}

/* The ids that end an answer, and the first beams. */
static void start_beams(rg_request *r, const rg_request_model *m)
{
    rg_beams *b = r->beams;

    for (int32_t i = 0; !r->params.sampling.ignore_eos && i < m->n_eos; i++)
        b->ends[b->n_ends++] = m->eos_ids[i];
    for (int32_t i = 0; i < r->params.n_stop_ids; i++)
        b->ends[b->n_ends++] = r->params.stop_ids[i];
    if (r->params.n_stop) {
        b->stops = rg_request_would_stop;
        b->stops_arg = r;
    }
    rg_beams_begin(b);
}

/* Everything of a request in its order.  Counting, r is NULL. */
static rg_request *carve_request(carver *c, const rg_params *p, const sizes *z)
{
    rg_request *r = carve(c, 1, sizeof *r);
    size_t n_ids = 0, text_room = 0;
    int32_t *tokens, *stop_ids, *best;
    rg_logit_bias *bias;
    char *text;

    if (!rg_mul(z->n_branches, z->row, &n_ids) || !rg_mul(z->pending_room, (size_t)3, &text_room))
        c->failed = true;
    tokens = carve(c, n_ids, sizeof *tokens);
    stop_ids = carve(c, (size_t)p->n_stop_ids, sizeof *stop_ids);
    bias = carve(c, (size_t)p->sampling.n_bias, sizeof *bias);
    best = carve(c, z->n_branches, sizeof *best);
    text = carve(c, text_room + 1, 1);
    if (c->base) {
        memset(r, 0, sizeof *r);
        r->params = *p;
        r->tokens = tokens;
        r->row = z->row;
        r->n_branches = (int32_t)z->n_branches;
        r->n_ending = p->beam.n_beams ? p->n_samples : r->n_branches;
        r->best = p->best_of > p->n_samples ? best : NULL;
        r->params.prompt = tokens;
        r->params.stop = NULL;
        r->params.stop_ids = stop_ids;
        r->params.sampling.bias = bias;
        r->text = text;
        r->max_draft = (int32_t)z->max_draft;
        if (p->n_stop_ids)
            memcpy(stop_ids, p->stop_ids, (size_t)p->n_stop_ids * sizeof *stop_ids);
        if (p->sampling.n_bias)
            memcpy(bias, p->sampling.bias, (size_t)p->sampling.n_bias * sizeof *bias);
    }
    carve_stops(c, r, p);
    carve_samples(c, r, p, z);
    carve_beams(c, r, p, z);
    carve_embedding(c, r, z);
    carve_scores(c, r, p);
    return r;
}

static bool prompt_shows(const rg_request *r)
{
    for (int32_t i = 0; i < r->params.n_prompt; i++)
        if (rg_spelling_shows(r->spelling, r->params.prompt[i]))
            return true;
    return false;
}

static void stop_grammars(rg_request *r)
{
    for (int32_t i = 0; i < r->n_branches; i++)
        rg_grammar_stop(r->samples[i].grammar);
}

static bool start_grammars(rg_request *r, rg_error *err)
{
    for (int32_t i = 0; r->params.grammar && i < r->n_branches; i++) {
        r->samples[i].grammar = rg_grammar_start(r->params.grammar, err);
        if (!r->samples[i].grammar)
            return false;
    }
    r->params.grammar = NULL; /* the states refer to it */
    return true;
}

static uint64_t hash_of(const char *s, uint64_t seed)
{
    return s && *s ? rg_hash(s, strlen(s), seed) : 0;
}

/* Clients choose their salts.  With a seed that nobody knows, none can be made to lead to what another tenant keeps. */
static uint64_t salt_seed;

static void draw_salt_seed(void)
{
    salt_seed = rg_seed();
}

static uint64_t salt_of(const char *s)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, draw_salt_seed);
    return hash_of(s, salt_seed);
}

rg_applicant rg_request_applicant(const rg_request *r)
{
    return (rg_applicant){ .tenant = r->tenant, .background = r->params.background, .n_ids = r->params.n_prompt,
                           .state = r->state_part };
}

uint64_t rg_tenant_hash(const char *tenant)
{
    return hash_of(tenant, 0);
}

/* Params as they are to be kept: answers end with the context, and an embedding has none, and no scores of ids. */
static rg_params settle(const rg_params *p, const rg_request_model *m)
{
    rg_params kept = *p;
    int32_t room = context_of(m) - p->n_prompt;

    kept.max_tokens = kept.max_tokens < room ? kept.max_tokens : room;
    if (kept.best_of > kept.n_samples && kept.sampling.n_logprobs < 0)
        kept.sampling.n_logprobs = 0;
    if (ends_with_prompt(p)) {
        kept.max_tokens = kept.n_stop = kept.n_stop_ids = 0;
        kept.n_samples = 1;
        kept.beam = (rg_beam_params){ 0 };
        kept.best_of = 0;
        kept.prompt_logprobs = false;
        kept.sampling = (rg_sampling){ .n_logprobs = -1 };
        kept.grammar = NULL;
    }
    return kept;
}

static void start_fills(rg_request *r, const rg_request_model *m)
{
    for (int32_t i = 0; i < r->params.n_samples; i++) {
        rg_sample *a = &r->samples[i];
        rg_fill *f = a->fill;

        if (!f)
            continue;
        rg_denoise_init(&f->d, &(rg_denoise_start){ .params = &r->params.diffusion, .model = m->diffusion,
                                                    .sees = m->sees, .n_prompt = r->params.n_prompt,
                                                    .n = rg_denoise_length(r->params.n_prompt, r->params.max_tokens,
                                                                           m->sees),
                                                    .ids = a->ids - r->params.n_prompt,
                                                    .candidates = f->d.candidates });
        f->done = !rg_denoise_next(&f->d, &f->e);
    }
}

/* The carved request's other parts, and what may fail of them. */
static bool complete(rg_request *r, const rg_request_model *m, rg_error *err)
{
    atomic_init(&r->references, 1);
    r->spelling = m->spelling ? m->spelling : &silence;
    r->prompt_shows = prompt_shows(r);
    for (int32_t i = 0; i < r->n_branches; i++)
        r->samples[i].speller = r->samples[i].read_speller = rg_speller_begin(r->spelling, r->prompt_shows);
    r->eos_ids = m->eos_ids;
    r->n_eos = m->n_eos;
    r->score_pooling = m->score_pooling;
    r->made_by = m->embedding;
    r->dense = m->dense;
    r->n_poolings = by_model(&r->params, m) ? m->embedding->n_poolings : 1;
    for (int i = 0; i < r->n_poolings; i++)
        r->poolings[i] = by_model(&r->params, m) ? m->embedding->poolings[i] : r->params.embed;
    r->is_whole = is_whole(&r->params, m);
    r->tenant = rg_tenant_hash(r->params.tenant);
    r->weight = r->params.tenant_weight > 0 ? (double)r->params.tenant_weight : 1;
    r->rope = m->config ? rg_config_rope(m->config, r->params.n_prompt + r->params.max_tokens) : 0;
    r->adapter = m->adapter - 1;
    r->salt = salt_of(r->params.cache_salt) ^ (uint64_t)r->rope * ROPE_SALT ^ (uint64_t)m->adapter * ADAPTER_SALT;
    r->params.tenant = r->params.cache_salt = r->params.adapter = NULL;
    r->params.sampling.dry_breakers = NULL; /* what the engine keeps of them is r->breakers */
    r->breakers = rg_breakers_ref(m->breakers);
    start_fills(r, m);
    if (r->beams)
        start_beams(r, m);
    if (!start_grammars(r, err))
        return false;
    if (pthread_mutex_init(&r->lock, NULL))
        return rg_fail_memory(err, 0);
    if (!pthread_cond_init(&r->ready, NULL))
        return true;
    pthread_mutex_destroy(&r->lock);
    return rg_fail_memory(err, 0);
}

rg_request *rg_request_new(const rg_params *params, const rg_request_model *model, rg_error *err)
{
    carver c = { 0 };
    rg_params kept;
    rg_request *r;
    sizes z;

    if (!check_params(params, model, err))
        return NULL;
    kept = settle(params, model);
    z.row = (size_t)kept.n_prompt + (size_t)kept.max_tokens;
    z.fill = z.traced = 0;
    if (fills(&kept, model)) {
        z.row = (size_t)rg_denoise_length(kept.n_prompt, kept.max_tokens, model->sees);
        z.fill = (size_t)rg_fill_block(&kept.diffusion, model->sees, kept.max_tokens);
        z.traced = kept.diffusion.trace
                       ? (size_t)rg_fill_evaluations(&kept.diffusion, model->sees, kept.max_tokens) : 0;
        if (z.traced > MAX_TRACED / sizeof(int32_t) / z.row)
            return rg_fail(err, RG_E_LIMIT, "a trace of so many steps is too large"), NULL;
    }
    z.pending_room = longest_stop(&kept) + 4 + rg_spelling_room(model->spelling ? model->spelling : &silence);
    z.dim = kept.embed ? (size_t)model->dim : 0;
    z.n_poolings = by_model(&kept, model) ? (size_t)model->embedding->n_poolings : 1;
    z.n_finish = by_model(&kept, model) ? rg_dense_room(model->embedding) : 0;
    z.n_labels = kept.score ? (size_t)model->n_labels : 0;
    z.max_draft = kept.beam.n_beams ? 0 : (size_t)model->max_draft;
    z.n_branches = (size_t)(kept.beam.n_beams              ? kept.beam.n_beams
                            : kept.best_of > kept.n_samples ? kept.best_of
                                                            : kept.n_samples);
    z.n_ends = (size_t)kept.n_stop_ids + (kept.sampling.ignore_eos ? 0 : (size_t)model->n_eos);
    z.vocab_size = (size_t)model->vocab_size;
    (void)carve_request(&c, &kept, &z);
    if (c.failed)
        return rg_fail(err, RG_E_LIMIT, "the request is too large"), NULL;
    c.base = rg_alloc(c.used);
    if (!c.base)
        return rg_fail_memory(err, c.used), NULL;
    c.used = 0;
    r = carve_request(&c, &kept, &z);
    if (complete(r, model, err))
        return r;
    stop_grammars(r);
    rg_breakers_unref(r->breakers);
    rg_free(r);
    return NULL;
}

void rg_request_ref(rg_request *r)
{
    atomic_fetch_add_explicit(&r->references, 1, memory_order_relaxed);
}

void rg_request_unref(rg_request *r)
{
    if (!r || atomic_fetch_sub_explicit(&r->references, 1, memory_order_acq_rel) > 1)
        return;
    stop_grammars(r);
    rg_breakers_unref(r->breakers);
    pthread_cond_destroy(&r->ready);
    pthread_mutex_destroy(&r->lock);
    rg_free(r);
}

rg_top *rg_request_tops(const rg_request *r, int i, int32_t node)
{
    const rg_sample *a = &r->samples[i];
    int32_t k = r->params.sampling.n_logprobs, at = node < 0 ? a->n_output : r->params.max_tokens + node;

    RG_ASSERT(node < r->max_draft);
    return k > 0 ? a->tops + (size_t)at * (size_t)k : NULL;
}

const int32_t *rg_request_tokens(const rg_request *r, int i)
{
    return r->samples[i].ids - r->params.n_prompt;
}
