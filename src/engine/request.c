/* request.c -- making a request: what is refused, and one allocation, carved twice by the same function (first to
 * count, then to place).  mailbox.c passes answers through it.  Its kind of work (work/work.h) checks and carves what
 * is its own.
 *
 * Tokens.  Sample i's ids are row i of [n_branches][n_prompt + max_tokens]: the prompt and its output, contiguous. */
#include "engine/request.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/sha256.h"
#include "engine/numeric.h"
#include "engine/sampler.h"
#include "engine/work/work.h"

enum {
    MAX_STOP_BYTES = 1 << 16, /* of all stop texts together */
    MAX_STOP_IDS = 1 << 14,
};

/* Keeps prefixes of sequences with different variants of a rope apart. */
static const uint64_t ROPE_SALT = 0x9fb21c651e98df25;
/* The same for sequences with different adapters. */
static const uint64_t ADAPTER_SALT = 0xd6e8feb86659fd93;

static const rg_spelling silence; /* no id shows anything */

/* ---- what is refused --------------------------------------------------------------------------------------------- */

/* The blocks that answers are filled in by, where they are the model's own; else 1. */
static int32_t block_of(const rg_request_model *m)
{
    const int32_t canvas = m->diffusion ? m->diffusion->canvas.length : 0;

    return canvas ? canvas : m->sees > 1 ? m->sees : 1;
}

/* Positions that a prompt and its answer may have: whole blocks, or whole canvases behind the prompt. */
static int32_t context_of(const rg_request_model *m, int32_t n_prompt)
{
    const bool canvas = m->diffusion && m->diffusion->canvas.length && n_prompt < m->max_seq_len;

    return m->max_seq_len - (m->max_seq_len - (canvas ? n_prompt : 0)) % block_of(m);
}

/* The i-th run of given rows, which may begin at position `from`. */
static bool check_given(const rg_params *p, const rg_request_model *m, int32_t i, int32_t from, rg_error *err)
{
    const rg_given_rows *g = &p->given[i];

    if (g->n < 1 || !g->rows)
        return rg_fail(err, RG_E_INPUT, "run %d of given rows is empty", (int)i);
    if (g->at < from)
        return rg_fail(err, RG_E_INPUT, "run %d of given rows begins at place %d of the prompt: want %d or more, "
                       "behind the run before it", (int)i, (int)g->at, (int)from);
    if (g->at > p->n_prompt || g->n > p->n_prompt - g->at)
        return rg_fail(err, RG_E_INPUT, "run %d of given rows, %d from place %d on, ends behind the prompt's %d "
                       "positions", (int)i, (int)g->n, (int)g->at, (int)p->n_prompt);
    for (int32_t k = 0; k < g->n; k++) {
        if (p->prompt[g->at + k] != RG_GIVEN)
            return rg_fail(err, RG_E_INPUT, "id %d stands at place %d of the prompt, where a row is given: want -1",
                           (int)p->prompt[g->at + k], (int)(g->at + k));
        if (!rg_all_finite(g->rows + (size_t)k * (size_t)m->given_dim, m->given_dim))
            return rg_fail(err, RG_E_INPUT, "row %d of run %d of given rows has a number that is not finite", (int)k,
                           (int)i);
    }
    return true;
}

/* Each position has an id of the vocabulary, or a given row and -1. */
static bool check_positions(const rg_params *p, const rg_request_model *m, rg_error *err)
{
    int32_t i = 0;

    if (p->n_given < 0 || (p->n_given && !p->given))
        return rg_fail(err, RG_E_INPUT, "a count of given rows without the list");
    if (p->n_given && !m->given_dim)
        return rg_fail(err, RG_E_UNSUPPORTED, "this model takes no given rows");
    for (int32_t k = 0; k < p->n_given; k++) {
        if (!check_given(p, m, k, k ? p->given[k - 1].at + p->given[k - 1].n : 0, err))
            return false;
    }
    for (int32_t k = 0; i < p->n_prompt; i++) {
        if (k < p->n_given && i == p->given[k].at) {
            i += p->given[k++].n - 1;
            continue;
        }
        if (p->n_given && p->prompt[i] == RG_GIVEN)
            return rg_fail(err, RG_E_INPUT, "-1 stands at place %d of the prompt, where no row is given", (int)i);
        if (p->prompt[i] < 0 || p->prompt[i] >= m->vocab_size)
            return rg_fail(err, RG_E_INPUT, "id %d at place %d of the prompt is not in the vocabulary of %d",
                           (int)p->prompt[i], (int)i, (int)m->vocab_size);
    }
    return true;
}

static bool check_prompt(const rg_params *p, const rg_request_model *m, const rg_work *work, rg_error *err)
{
    char blocks[48] = "";

    if (p->n_prompt < 1 || !p->prompt)
        return rg_fail(err, RG_E_INPUT, "the prompt is empty: it needs an id at least");
    if (p->n_prompt > m->max_seq_len)
        return rg_fail(err, RG_E_LIMIT, "the prompt has %d ids, and the context holds %d", (int)p->n_prompt,
                       (int)m->max_seq_len);
    if (block_of(m) > 1)
        snprintf(blocks, sizeof blocks, " (in whole blocks of %d)", (int)block_of(m));
    if (!work->ends_with_prompt && p->max_tokens && p->n_prompt >= context_of(m, p->n_prompt))
        return rg_fail(err, RG_E_LIMIT, "the prompt has %d ids, and the context of %d%s must hold one more",
                       (int)p->n_prompt, (int)context_of(m, p->n_prompt), blocks);
    if (!check_positions(p, m, err))
        return false;
    if (p->tenant_weight != 0 && !(p->tenant_weight >= RG_TENANT_WEIGHT_LEAST &&
                                   p->tenant_weight <= RG_TENANT_WEIGHT_MOST)) /* NaN too */
        return rg_fail(err, RG_E_INPUT, "tenant_weight is %g: want %g to %g", (double)p->tenant_weight,
                       RG_TENANT_WEIGHT_LEAST, RG_TENANT_WEIGHT_MOST);
    if (!(p->deadline_s >= 0)) /* NaN too */
        return rg_fail(err, RG_E_INPUT, "deadline_s is %g: want 0 or more", p->deadline_s);
    return true;
}

bool rg_request_check_stops(const rg_params *p, int32_t vocab_size, rg_error *err)
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

/* ---- building ---------------------------------------------------------------------------------------------------- */

static size_t longest_stop(const rg_params *p)
{
    size_t most = 0;

    for (int32_t i = 0; i < p->n_stop; i++) {
        size_t n = strlen(p->stop[i]);
        most = n > most ? n : most;
    }
    return most;
}

/* Bytes of one sample that may be held back, and one id's. */
static size_t pending_room(const rg_params *p, const rg_request_model *m)
{
    return longest_stop(p) + 4 + rg_spelling_room(m->spelling ? m->spelling : &silence);
}

static void carve_stops(rg_carver *c, rg_request *r, const rg_params *p)
{
    rg_stop *stops = rg_carve(c, (size_t)p->n_stop, sizeof *stops);

    for (int32_t i = 0; i < p->n_stop; i++) {
        size_t n = strlen(p->stop[i]);
        char *text = rg_carve(c, n + 1, 1);
        int32_t *back = rg_carve(c, n + 1, sizeof *back);

        if (!c->base)
            continue;
        memcpy(text, p->stop[i], n + 1);
        stops[i] = (rg_stop){ .text = text, .n = (int32_t)n, .back = back };
        rg_stop_link(&stops[i]);
    }
    if (c->base)
        r->texts.stops = stops;
}

static void find_hash(rg_given_rows *g, size_t n_bytes)
{
    static const uint8_t none[sizeof g->hash];
    uint8_t sum[32];

    if (memcmp(g->hash, none, sizeof none))
        return;
    rg_sha256(g->rows, n_bytes, sum);
    memcpy(g->hash, sum, sizeof g->hash);
}

static void carve_given(rg_carver *c, rg_request *r, const rg_params *p, const rg_request_model *m)
{
    rg_given_rows *given = rg_carve(c, (size_t)p->n_given, sizeof *given);

    for (int32_t i = 0; i < p->n_given; i++) {
        float *rows = rg_carve_table(c, (size_t)p->given[i].n, (size_t)m->given_dim, sizeof *rows);
        const size_t n_bytes = (size_t)p->given[i].n * (size_t)m->given_dim * sizeof *rows;

        if (!c->base)
            continue;
        memcpy(rows, p->given[i].rows, n_bytes);
        given[i] = p->given[i];
        given[i].rows = rows;
        find_hash(&given[i], n_bytes);
    }
    if (c->base) {
        r->params.given = given;
        r->given_dim = m->given_dim;
    }
}

static bool prompt_shows(const rg_request *r)
{
    for (int32_t i = 0; i < r->params.n_prompt; i++)
        if (rg_spelling_shows(r->texts.spelling, r->params.prompt[i]))
            return true;
    return false;
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

uint64_t rg_tenant_hash(const char *tenant)
{
    return hash_of(tenant, 0);
}

/* Whose prefixes in files the request may find.  Lengths stand in front of texts, so that no two lists of them are the
 * same bytes. */
static rg_block_name file_scope(const rg_request *r, const rg_request_model *m, bool tenants_share)
{
    const char *texts[] = { r->params.cache_salt, tenants_share ? NULL : r->params.tenant };
    const rg_request *from = m->forks; /* has no texts any more */
    const uint64_t numbers[] = { (uint64_t)r->who.rope, (uint64_t)(m->adapter > 0), m->adapter_identity,
                                 (uint64_t)tenants_share };
    uint8_t full[32];
    rg_sha256_state s;
    rg_block_name name;

    if (from && from->who.rope == r->who.rope)
        return from->who.scopes[tenants_share];
    rg_sha256_init(&s);
    if (from)
        rg_sha256_add(&s, &from->who.scopes[tenants_share], sizeof from->who.scopes[tenants_share]);
    rg_sha256_add(&s, numbers, sizeof numbers);
    for (size_t i = 0; i < RG_LEN(texts); i++) {
        const uint64_t n = texts[i] ? strlen(texts[i]) : UINT64_MAX;

        rg_sha256_add(&s, &n, sizeof n);
        rg_sha256_add(&s, texts[i], texts[i] ? (size_t)n : 0);
    }
    rg_sha256_end(&s, full);
    memcpy(name.hash, full, sizeof name.hash);
    return name;
}

/* What follows from params and model of a request that is placed, whatever its work. */
static void describe(rg_request *r, const rg_request_model *m)
{
    atomic_init(&r->references, 1);
    r->texts.spelling = m->spelling ? m->spelling : &silence;
    r->texts.prompt_shows = prompt_shows(r);
    for (int32_t i = 0; i < r->n_branches; i++)
        r->samples[i].speller = r->samples[i].read_speller = rg_speller_begin(r->texts.spelling, r->texts.prompt_shows);
    r->texts.eos_ids = m->eos_ids;
    r->texts.n_eos = m->n_eos;
    r->who.tenant = m->forks ? m->forks->who.tenant : rg_tenant_hash(r->params.tenant);
    r->who.own_salt = m->forks ? m->forks->who.own_salt : salt_of(r->params.cache_salt);
    r->forks = m->forks;
    if (r->forks)
        rg_request_ref(r->forks);
    r->who.weight = r->params.tenant_weight > 0 ? (double)r->params.tenant_weight : 1;
    r->who.rope = m->config ? rg_config_rope(m->config, r->params.n_prompt + r->params.max_tokens) : 0;
    r->who.adapter = m->adapter - 1;
    r->who.salt = r->who.own_salt ^ (uint64_t)r->who.rope * ROPE_SALT ^
                  (uint64_t)m->adapter * ADAPTER_SALT;
    for (int share = 0; share < 2; share++)
        r->who.scopes[share] = file_scope(r, m, share);
    r->params.tenant = r->params.cache_salt = r->params.adapter = NULL;
    r->is_valued = r->params.scorer != NULL;
    r->params.scorer = NULL;
    r->params.sampling.dry_breakers = NULL; /* what the engine keeps of them is r->breakers */
    r->texts.breakers = rg_breakers_ref(m->breakers);
}

static void carve_samples(rg_carver *c, rg_request *r, const rg_params *p, const rg_request_model *m,
                          const rg_work_shape *z)
{
    const size_t n_max = (size_t)p->max_tokens, k = p->sampling.n_logprobs > 0 ? (size_t)p->sampling.n_logprobs : 0;
    const size_t pending = pending_room(p, m);
    rg_sample *samples = rg_carve(c, (size_t)z->n_branches, sizeof *samples);

    for (size_t i = 0; i < (size_t)z->n_branches && !c->failed; i++) {
        rg_sample s = { .stop = -1, .stop_id = -1, .lane = -1 };

        s.stop_at = rg_carve(c, (size_t)p->n_stop, sizeof *s.stop_at);
        s.try_stop_at = rg_carve(c, (size_t)p->n_stop, sizeof *s.try_stop_at);
        s.read_stop_at = rg_carve(c, (size_t)p->n_stop, sizeof *s.read_stop_at);
        s.pending = rg_carve(c, pending, 1);
        s.logprobs = rg_carve(c, p->sampling.n_logprobs >= 0 ? n_max : 0, sizeof *s.logprobs);
        s.tops = rg_carve_table(c, n_max + (size_t)z->max_draft, k, sizeof *s.tops);
        if (!c->base)
            continue;
        if (p->n_stop) {
            memset(s.stop_at, 0, (size_t)p->n_stop * sizeof *s.stop_at);
            memset(s.read_stop_at, 0, (size_t)p->n_stop * sizeof *s.read_stop_at);
        }
        s.ids = r->tokens + i * z->row + p->n_prompt;
        s.mu = rg_mirostat_begin(&p->sampling);
        s.thought = rg_thought_begin(&p->thinking);
        if (p->sampling.n_logprobs < 0)
            s.logprobs = NULL;
        samples[i] = s;
        memcpy(r->tokens + i * z->row, p->prompt, (size_t)p->n_prompt * sizeof *p->prompt);
    }
    if (c->base)
        r->samples = samples;
}

static const int32_t *put_ids(int32_t *to, const int32_t *ids, int32_t n)
{
    if (n)
        memcpy(to, ids, (size_t)n * sizeof *ids);
    return to;
}

/* Everything of a request in its order.  Counting, r is NULL. */
static rg_request *carve_request(rg_carver *c, const rg_params *p, const rg_request_model *m, const rg_work *work)
{
    const rg_work_shape z = work->shape(p, m);
    rg_request *r = rg_carve(c, 1, sizeof *r);
    int32_t *tokens, *stop_ids, *end, *start, *predicted;
    rg_logit_bias *bias;
    char *text;

    tokens = rg_carve_table(c, (size_t)z.n_branches, z.row, sizeof *tokens);
    stop_ids = rg_carve(c, (size_t)p->n_stop_ids, sizeof *stop_ids);
    end = rg_carve(c, (size_t)p->thinking.n_end, sizeof *end);
    start = rg_carve(c, (size_t)p->thinking.n_start, sizeof *start);
    predicted = rg_carve(c, (size_t)p->n_predicted, sizeof *predicted);
    bias = rg_carve(c, (size_t)p->sampling.n_bias, sizeof *bias);
    text = rg_carve(c, 3 * pending_room(p, m) + 1, 1);
    if (c->base) {
        memset(r, 0, sizeof *r);
        r->params = *p;
        r->work = work;
        r->tokens = tokens;
        r->row = z.row;
        r->n_branches = z.n_branches;
        r->n_ending = z.n_ending;
        r->n_seqs = 1;
        r->params.prompt = tokens;
        r->params.stop = NULL;
        r->params.stop_ids = stop_ids;
        r->params.sampling.bias = bias;
        r->params.thinking.end = put_ids(end, p->thinking.end, p->thinking.n_end);
        r->params.thinking.start = put_ids(start, p->thinking.start, p->thinking.n_start);
        r->params.predicted = put_ids(predicted, p->predicted, p->n_predicted);
        r->mail.text = text;
        r->max_draft = z.max_draft;
        if (p->n_stop_ids)
            memcpy(stop_ids, p->stop_ids, (size_t)p->n_stop_ids * sizeof *stop_ids);
        if (p->sampling.n_bias)
            memcpy(bias, p->sampling.bias, (size_t)p->sampling.n_bias * sizeof *bias);
    }
    carve_given(c, r, p, m);
    carve_stops(c, r, p);
    carve_samples(c, r, p, m, &z);
    if (c->base)
        describe(r, m);
    if (work->carve)
        work->carve(c, r, p, m);
    return r;
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

rg_applicant rg_request_applicant(const rg_request *r)
{
    return (rg_applicant){ .tenant = r->who.tenant, .background = r->params.background, .n_ids = r->params.n_prompt,
                           .state = r->turn.state_part };
}

/* Where an answer's positions are all computed in one step: answer ids that a step has room for, at least one. */
static int32_t step_room(const rg_params *p, const rg_request_model *m)
{
    const int32_t room = m->max_rows / (1 + (p->diffusion.cfg_scale > 0)) - p->n_prompt;

    return room > 1 ? room : 1;
}

int32_t rg_request_tokens_left(const rg_params *p, const rg_request_model *m)
{
    int32_t room = context_of(m, p->n_prompt) - p->n_prompt;

    if (m->diffusion && m->sees == RG_SEES_ALL && p->max_tokens == INT32_MAX && step_room(p, m) < room)
        room = step_room(p, m); /* nobody said how many: as many as can be */
    return p->max_tokens < room ? p->max_tokens : room;
}

/* Params as they are to be kept: work without an answer has none of its settings. */
static rg_params settle(const rg_params *p, const rg_work *work)
{
    rg_params kept = *p;

    if ((kept.best_of > kept.n_samples || (kept.search.simulations && kept.scorer)) && kept.sampling.n_logprobs < 0)
        kept.sampling.n_logprobs = 0;
    if (work->ends_with_prompt) {
        kept.max_tokens = kept.n_stop = kept.n_stop_ids = 0;
        kept.n_samples = 1;
        kept.beam = (rg_beam_params){ 0 };
        kept.search = (rg_search_params){ 0 };
        kept.scorer = NULL;
        kept.best_of = 0;
        kept.thinking = (rg_thinking){ 0 };
        kept.n_predicted = 0;
        kept.prompt_logprobs = kept.prompt_logits = false;
        kept.sampling = (rg_sampling){ .n_logprobs = -1 };
        kept.grammar = NULL;
    }
    return kept;
}

/* What may fail of the carved request's other parts. */
static bool complete(rg_request *r, rg_error *err)
{
    if (!start_grammars(r, err))
        return false;
    if (pthread_mutex_init(&r->mail.lock, NULL))
        return rg_fail_memory(err, 0);
    if (!pthread_cond_init(&r->mail.ready, NULL))
        return true;
    pthread_mutex_destroy(&r->mail.lock);
    return rg_fail_memory(err, 0);
}

rg_request *rg_request_new(const rg_params *params, const rg_request_model *model, rg_error *err)
{
    const rg_work *work = rg_work_of(params, model);
    rg_carver c = { .align = 16 };
    rg_params kept = *params;
    rg_request *r;

    if (!check_prompt(params, model, work, err))
        return NULL;
    kept.max_tokens = rg_request_tokens_left(params, model); /* answers end with the context */
    if (!work->check(&kept, model, err))
        return NULL;
    kept = settle(&kept, work);
    (void)carve_request(&c, &kept, model, work);
    if (c.failed)
        return rg_fail(err, RG_E_LIMIT, "the request is too large"), NULL;
    c.base = rg_alloc(c.used);
    if (!c.base)
        return rg_fail_memory(err, c.used), NULL;
    c.used = 0;
    r = carve_request(&c, &kept, model, work);
    if (complete(r, err))
        return r;
    stop_grammars(r);
    rg_request_forked(r);
    rg_breakers_unref(r->texts.breakers);
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
    rg_request_forked(r);
    rg_breakers_unref(r->texts.breakers);
    pthread_cond_destroy(&r->mail.ready);
    pthread_mutex_destroy(&r->mail.lock);
    rg_free(r);
}

/* ---- forks ------------------------------------------------------------------------------------------------------- */

/* The engine may be writing numbers where rows are given: those places are not read. */
static void copy_prompt(const rg_request *from, int32_t *to)
{
    int32_t at = 0;

    for (int32_t k = 0; k <= from->params.n_given; k++) {
        const bool last = k == from->params.n_given;
        const int32_t end = last ? from->params.n_prompt : from->params.given[k].at;

        (void)put_ids(to + at, from->params.prompt + at, end - at);
        at = last ? end : end + from->params.given[k].n;
        for (int32_t i = end; i < at; i++)
            to[i] = RG_GIVEN;
    }
}

int32_t *rg_request_fork_ids(rg_request *from, int32_t told, int32_t n_output, const int32_t *ids, int32_t n,
                             int32_t *n_all, rg_error *err)
{
    const rg_sample *s = told < 0 || told >= from->params.n_samples ? NULL : rg_request_told(from, told);
    const int32_t n_prompt = from->params.n_prompt, n_ready = s ? atomic_load(&s->n_ready) : 0;
    int32_t *all;
    size_t n_ids;

    if (told < 0 || told >= from->params.n_samples)
        return rg_fail(err, RG_E_INPUT, "fork of answer %d: the request tells %d, from 0", (int)told,
                       (int)from->params.n_samples), NULL;
    if (n_output < 0 || n_output > n_ready)
        return rg_fail(err, RG_E_INPUT, "fork behind %d ids of an answer that has %d so far", (int)n_output,
                       (int)n_ready), NULL;
    if (n < 0 || (n && !ids))
        return rg_fail(err, RG_E_INPUT, "fork: a count of ids without the list"), NULL;
    if (!rg_add((size_t)n_prompt + (size_t)n_output, (size_t)n, &n_ids) || n_ids > INT32_MAX)
        return rg_fail(err, RG_E_LIMIT, "the fork's prompt has too many ids"), NULL;
    all = rg_array(n_ids, sizeof *all);
    if (!all)
        return rg_fail_memory(err, n_ids * sizeof *all), NULL;
    copy_prompt(from, all);
    (void)put_ids(all + n_prompt, s->ids, n_output);
    (void)put_ids(all + n_prompt + n_output, ids, n);
    *n_all = (int32_t)n_ids;
    return all;
}

void rg_request_forked(rg_request *r)
{
    rg_request *from = r->forks;

    r->forks = NULL;
    rg_request_unref(from);
}

rg_top *rg_request_tops(const rg_request *r, int i, int32_t node)
{
    const rg_sample *a = &r->samples[i];
    int32_t k = r->params.sampling.n_logprobs, at = node < 0 ? a->n_output : r->params.max_tokens + node;

    RG_ASSERT(node < r->max_draft);
    return k > 0 ? a->tops + (size_t)at * (size_t)k : NULL;
}

void rg_request_number(rg_request *r, rg_states *states)
{
    if (!r->params.n_given)
        return;
    r->who.salt ^= rg_states_number(states, r->params.given, r->params.n_given, r->tokens);
    for (int32_t i = 1; i < r->n_branches; i++)
        memcpy(r->tokens + (size_t)i * r->row, r->tokens, (size_t)r->params.n_prompt * sizeof *r->tokens);
}

const int32_t *rg_request_tokens(const rg_request *r, int i)
{
    return r->samples[i].ids - r->params.n_prompt;
}
