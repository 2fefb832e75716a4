/* request.c -- the mailbox: one allocation, carved twice by the same function (first to count, then to place).
 *
 * Tokens.  Sample i's ids are row i of [n_samples][n_prompt + max_tokens]: the prompt and its output, contiguous.
 *
 * Stop texts.  Both sides run the same matcher over the same bytes (Knuth, Morris and Pratt, one position per stop
 * text), so they cut at the same place whatever the ids' borders are: before the text that is complete first, of those
 * complete at one byte the longest.  The reader holds back what may yet become one: the longest of the positions. */
#include "engine/request.h"

#include <math.h> /* NAN */
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "engine/sampler.h"

enum {
    MAX_SAMPLES = 1024,
    MAX_STOP_BYTES = 1 << 16, /* of all stop texts together */
};

/* ---- building ---------------------------------------------------------------------------------------------------- */

typedef struct carver {
    char *base; /* NULL: only counting */
    size_t used;
    bool failed;
} carver;

static void *carve(carver *c, size_t n, size_t size)
{
    size_t bytes, at = (c->used + 15) / 16 * 16;

    if (!rg_mul(n, size, &bytes) || !rg_add(at, bytes, &c->used) || c->used > PTRDIFF_MAX - 64) {
        c->failed = true;
        c->used = 0;
        return NULL;
    }
    return c->base ? c->base + at : NULL;
}

typedef struct sizes {
    size_t row; /* ids of one sample */
    int32_t max_tokens;
    size_t pending_room; /* bytes of one sample that may be held back, and one id's */
} sizes;

static size_t longest_token(const rg_token_bytes *bytes)
{
    uint32_t most = 0;

    for (int32_t i = 0; i < bytes->n; i++) {
        uint32_t n = bytes->offset[i + 1] - bytes->offset[i];
        most = n > most ? n : most;
    }
    return most;
}

/* The failure links: for each length, the longest shorter start of the text that is also its end. */
static void link_stop(const char *text, int32_t n, int32_t *back)
{
    back[0] = 0;
    if (n)
        back[1] = 0;
    for (int32_t i = 1, k = 0; i < n; i++) {
        while (k && text[i] != text[k])
            k = back[k];
        k += text[i] == text[k];
        back[i + 1] = k;
    }
}

static void carve_stops(carver *c, rg_request *r, const rg_params *p)
{
    size_t n = (size_t)p->n_stop;
    const char **stop = carve(c, n, sizeof *stop);
    int32_t *lengths = carve(c, n, sizeof *lengths), **back = carve(c, n, sizeof *back);

    for (size_t i = 0; i < n; i++) {
        size_t length = strlen(p->stop[i]);
        char *text = carve(c, length + 1, 1);
        int32_t *links = carve(c, length + 1, sizeof *links);

        if (!c->base)
            continue;
        memcpy(text, p->stop[i], length + 1);
        link_stop(text, (int32_t)length, links);
        stop[i] = text;
        lengths[i] = (int32_t)length;
        back[i] = links;
    }
    if (c->base) {
        r->params.stop = stop;
        r->stop_len = lengths;
        r->stop_back = back;
    }
}

static void carve_samples(carver *c, rg_request *r, const rg_params *p, const sizes *z)
{
    size_t n_max = (size_t)z->max_tokens, n_tops = p->sampling.n_logprobs > 0 ? (size_t)p->sampling.n_logprobs : 0;
    rg_sample *samples = carve(c, (size_t)p->n_samples, sizeof *samples);

    for (int32_t i = 0; i < p->n_samples && !c->failed; i++) {
        rg_sample s = { .first_at = -1, .read_first_at = -1 };

        s.stop_at = carve(c, (size_t)p->n_stop, sizeof *s.stop_at);
        s.read_stop_at = carve(c, (size_t)p->n_stop, sizeof *s.read_stop_at);
        s.pending = carve(c, z->pending_room, 1);
        s.logprobs = carve(c, p->sampling.n_logprobs >= 0 ? n_max : 0, sizeof *s.logprobs);
        if (!rg_mul(n_max, n_tops, &n_tops))
            c->failed = true;
        s.tops = carve(c, n_tops, sizeof *s.tops);
        n_tops = p->sampling.n_logprobs > 0 ? (size_t)p->sampling.n_logprobs : 0;
        if (!c->base)
            continue;
        if (p->n_stop) {
            memset(s.stop_at, 0, (size_t)p->n_stop * sizeof *s.stop_at);
            memset(s.read_stop_at, 0, (size_t)p->n_stop * sizeof *s.read_stop_at);
        }
        s.ids = r->tokens + (size_t)i * z->row + p->n_prompt;
        if (p->sampling.n_logprobs < 0)
            s.logprobs = NULL;
        samples[i] = s;
        memcpy(r->tokens + (size_t)i * z->row, p->prompt, (size_t)p->n_prompt * sizeof *p->prompt);
    }
    if (c->base)
        r->samples = samples;
}

/* Everything of a request in its order.  Counting, r is NULL. */
static rg_request *carve_request(carver *c, const rg_params *p, const sizes *z)
{
    rg_request *r = carve(c, 1, sizeof *r);
    size_t n_ids = 0, text_room = 0;
    int32_t *tokens, *stop_ids;
    rg_logit_bias *bias;
    char *text;

    if (!rg_mul((size_t)p->n_samples, z->row, &n_ids) || !rg_mul(z->pending_room, (size_t)3, &text_room))
        c->failed = true;
    tokens = carve(c, n_ids, sizeof *tokens);
    stop_ids = carve(c, (size_t)p->n_stop_ids, sizeof *stop_ids);
    bias = carve(c, (size_t)p->sampling.n_bias, sizeof *bias);
    text = carve(c, text_room + 1, 1);
    if (c->base) {
        memset(r, 0, sizeof *r);
        r->params = *p;
        r->params.max_tokens = z->max_tokens;
        r->tokens = tokens;
        r->params.prompt = tokens;
        r->params.stop_ids = stop_ids;
        r->params.sampling.bias = bias;
        r->text = text;
        if (p->n_stop_ids)
            memcpy(stop_ids, p->stop_ids, (size_t)p->n_stop_ids * sizeof *stop_ids);
        if (p->sampling.n_bias)
            memcpy(bias, p->sampling.bias, (size_t)p->sampling.n_bias * sizeof *bias);
    }
    carve_stops(c, r, p);
    carve_samples(c, r, p, z);
    return r;
}

static bool check_stops(const rg_params *p, int32_t vocab_size, size_t *longest, rg_error *err)
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
        *longest = n > *longest ? n : *longest;
    }
    for (int32_t i = 0; i < p->n_stop_ids; i++)
        if (p->stop_ids[i] < 0 || p->stop_ids[i] >= vocab_size)
            return rg_fail(err, RG_E_INPUT, "stop id %d is not in the vocabulary of %d", (int)p->stop_ids[i],
                           (int)vocab_size);
    return true;
}

static bool check_params(const rg_params *p, int32_t vocab_size, int32_t max_seq_len, size_t *longest, rg_error *err)
{
    if (p->n_prompt < 1 || !p->prompt)
        return rg_fail(err, RG_E_INPUT, "the prompt is empty: it needs an id at least");
    if (p->n_prompt >= max_seq_len)
        return rg_fail(err, RG_E_LIMIT, "the prompt has %d ids, and the context of %d must hold one more",
                       (int)p->n_prompt, (int)max_seq_len);
    for (int32_t i = 0; i < p->n_prompt; i++)
        if (p->prompt[i] < 0 || p->prompt[i] >= vocab_size)
            return rg_fail(err, RG_E_INPUT, "id %d at place %d of the prompt is not in the vocabulary of %d",
                           (int)p->prompt[i], (int)i, (int)vocab_size);
    if (p->max_tokens < 1)
        return rg_fail(err, RG_E_INPUT, "max_tokens is %d: want 1 or more", (int)p->max_tokens);
    if (p->n_samples < 1 || p->n_samples > MAX_SAMPLES)
        return rg_fail(err, RG_E_INPUT, "n_samples is %d: want 1 to %d", (int)p->n_samples, MAX_SAMPLES);
    if (!(p->deadline_s >= 0)) /* NaN too */
        return rg_fail(err, RG_E_INPUT, "deadline_s is %g: want 0 or more", p->deadline_s);
    return rg_sampling_check(&p->sampling, vocab_size, err) && check_stops(p, vocab_size, longest, err);
}

/* ---- text: what both sides agree on ------------------------------------------------------------------------------ */

/* The bytes of an id, of a text that begins with it or not. */
static const char *id_text(const rg_token_bytes *b, int32_t id, bool first, size_t *n)
{
    const uint32_t *offset;

    *n = 0;
    if (!b || id >= b->n)
        return "";
    first &= b->first_offset != NULL;
    offset = first ? b->first_offset : b->offset;
    *n = offset[id + 1] - offset[id];
    return (first ? b->first_data : b->data) + offset[id];
}

static bool prompt_shows(const rg_request *r)
{
    size_t n = 0;

    for (int32_t i = 0; i < r->params.n_prompt && !n; i++)
        id_text(r->bytes, r->params.prompt[i], false, &n);
    return n > 0;
}

/* The bytes of output k.  The first that shows begins the text, unless the prompt did; *first_at remembers it. */
static const char *token_text(const rg_request *r, const rg_sample *s, int32_t k, int32_t *first_at, size_t *n)
{
    if (*first_at < 0 && !r->prompt_shows) {
        id_text(r->bytes, s->ids[k], false, n);
        if (*n)
            *first_at = k;
    }
    return id_text(r->bytes, s->ids[k], k == *first_at, n);
}

static void stop_grammars(rg_request *r)
{
    for (int32_t i = 0; i < r->params.n_samples; i++)
        rg_grammar_stop(r->samples[i].grammar);
}

static bool start_grammars(rg_request *r, rg_error *err)
{
    for (int32_t i = 0; r->params.grammar && i < r->params.n_samples; i++) {
        r->samples[i].grammar = rg_grammar_start(r->params.grammar, err);
        if (!r->samples[i].grammar)
            return false;
    }
    r->params.grammar = NULL; /* the states refer to it */
    return true;
}

static uint64_t hash_of(const char *s)
{
    return s && *s ? rg_hash(s, strlen(s), 0) : 0;
}

rg_request *rg_request_new(const rg_params *params, int32_t vocab_size, int32_t max_seq_len,
                           const rg_token_bytes *bytes, const int32_t *eos_ids, int32_t n_eos, rg_error *err)
{
    carver c = { 0 };
    size_t longest = 0;
    int32_t room;
    rg_request *r;
    sizes z;

    if (!check_params(params, vocab_size, max_seq_len, &longest, err))
        return NULL;
    room = max_seq_len - params->n_prompt;
    z.max_tokens = params->max_tokens < room ? params->max_tokens : room;
    z.row = (size_t)params->n_prompt + (size_t)z.max_tokens;
    z.pending_room = longest + 4 + (bytes ? longest_token(bytes) : 0);
    (void)carve_request(&c, params, &z);
    if (c.failed)
        return rg_fail(err, RG_E_LIMIT, "the request is too large"), NULL;
    c.base = rg_alloc(c.used);
    if (!c.base)
        return rg_fail_memory(err, c.used), NULL;
    c.used = 0;
    r = carve_request(&c, params, &z);
    atomic_init(&r->references, 1);
    r->bytes = bytes;
    r->prompt_shows = prompt_shows(r);
    r->eos_ids = eos_ids;
    r->n_eos = n_eos;
    r->tenant = hash_of(params->tenant);
    r->salt = hash_of(params->cache_salt);
    r->params.tenant = r->params.cache_salt = NULL;
    if (!start_grammars(r, err)) {
        stop_grammars(r);
        rg_free(r);
        return NULL;
    }
    if (pthread_mutex_init(&r->lock, NULL)) {
        stop_grammars(r);
        rg_free(r);
        return rg_fail_memory(err, 0), NULL;
    }
    if (pthread_cond_init(&r->ready, NULL)) {
        pthread_mutex_destroy(&r->lock);
        stop_grammars(r);
        rg_free(r);
        return rg_fail_memory(err, 0), NULL;
    }
    return r;
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
    pthread_cond_destroy(&r->ready);
    pthread_mutex_destroy(&r->lock);
    rg_free(r);
}

const int32_t *rg_request_tokens(const rg_request *r, int i)
{
    return r->samples[i].ids - r->params.n_prompt;
}

/* One byte more; the length of the longest stop text that is now complete, 0: none. */
static int32_t feed_stops(const rg_request *r, int32_t *at, char byte)
{
    int32_t longest = 0;

    for (int32_t i = 0; i < r->params.n_stop; i++) {
        const char *text = r->params.stop[i];

        while (at[i] && text[at[i]] != byte)
            at[i] = r->stop_back[i][at[i]];
        at[i] += text[at[i]] == byte;
        if (at[i] < r->stop_len[i])
            continue;
        longest = at[i] > longest ? at[i] : longest;
        at[i] = r->stop_back[i][at[i]];
    }
    return longest;
}

static size_t held_back(const rg_request *r, const int32_t *at)
{
    int32_t most = 0;

    for (int32_t i = 0; i < r->params.n_stop; i++)
        most = at[i] > most ? at[i] : most;
    return (size_t)most;
}

/* ---- the engine's side ------------------------------------------------------------------------------------------- */

/* The reader counts itself before it looks; we publish before we look, all sequentially consistent: one of us sees the
 * other. */
static void wake_reader(rg_request *r)
{
    if (!atomic_load(&r->n_asleep))
        return;
    pthread_mutex_lock(&r->lock);
    pthread_cond_broadcast(&r->ready);
    pthread_mutex_unlock(&r->lock);
}

static bool is_end(const rg_request *r, int32_t id)
{
    for (int32_t i = 0; i < r->n_eos && !r->params.sampling.ignore_eos; i++)
        if (r->eos_ids[i] == id)
            return true;
    for (int32_t i = 0; i < r->params.n_stop_ids; i++)
        if (r->params.stop_ids[i] == id)
            return true;
    return false;
}

/* Take the bytes of output k into the text.  True: a stop text is complete, and s->n_bytes is where it began. */
static bool append_text(rg_request *r, rg_sample *s, int32_t k)
{
    size_t n, n_before = s->n_bytes;
    const char *text = token_text(r, s, k, &s->first_at, &n);

    for (size_t i = 0; i < n && r->params.n_stop; i++) {
        int32_t matched = feed_stops(r, s->stop_at, text[i]);

        if (matched) {
            s->n_bytes = n_before + i + 1 - (size_t)matched;
            return true;
        }
    }
    s->n_bytes += n;
    return false;
}

/* Ids that have bytes before n_bytes, the text's length after a stop text was cut off. */
static int32_t ids_of_text(const rg_request *r, rg_sample *s, size_t n_all)
{
    int32_t k = s->n_output;

    while (k > 0 && n_all > s->n_bytes) {
        size_t n;

        token_text(r, s, k - 1, &s->first_at, &n);
        if (n_all - n < s->n_bytes)
            break;
        n_all -= n;
        k--;
    }
    return k;
}

static void finish(rg_request *r, rg_sample *s, int32_t n_text_ids, rg_finish why)
{
    if (atomic_load_explicit(&s->finish, memory_order_relaxed) != RG_RUNNING)
        return;
    s->n_text_ids = n_text_ids;
    s->n_text_bytes = s->n_bytes;
    if (atomic_fetch_add(&r->n_ended, 1) + 1 == r->params.n_samples)
        atomic_store(&r->finished_ns, rg_now_ns());
    atomic_store(&s->finish, (int)why);
}

/* Is the answer all that it may be? */
static bool ends_by_grammar(rg_sample *s, int32_t id)
{
    return s->grammar && (!rg_grammar_advance(s->grammar, id) || rg_grammar_stuck(s->grammar));
}

rg_finish rg_request_append(rg_request *r, int i, int32_t id, float logprob, const rg_top *top)
{
    rg_sample *s = &r->samples[i];
    int32_t k = r->params.sampling.n_logprobs;
    size_t n, n_all = s->n_bytes;
    rg_finish why = RG_RUNNING;

    if (!atomic_load_explicit(&r->first_ns, memory_order_relaxed))
        atomic_store(&r->first_ns, rg_now_ns());
    if (is_end(r, id)) {
        rg_request_end(r, i, RG_FINISH_STOP);
        return RG_FINISH_STOP;
    }
    RG_ASSERT(s->n_output < r->params.max_tokens);
    s->ids[s->n_output] = id;
    if (s->logprobs)
        s->logprobs[s->n_output] = logprob;
    if (k > 0 && top != s->tops + (size_t)s->n_output * (size_t)k)
        memcpy(s->tops + (size_t)s->n_output * (size_t)k, top, (size_t)k * sizeof *top);
    s->n_output++;
    token_text(r, s, s->n_output - 1, &s->first_at, &n);
    if (append_text(r, s, s->n_output - 1) || ends_by_grammar(s, id))
        why = RG_FINISH_STOP;
    else if (s->n_output == r->params.max_tokens)
        why = RG_FINISH_LENGTH;
    atomic_store(&s->n_ready, s->n_output);
    if (why != RG_RUNNING)
        finish(r, s, ids_of_text(r, s, n_all + n), why);
    wake_reader(r);
    return why;
}

void rg_request_end(rg_request *r, int i, rg_finish why)
{
    finish(r, &r->samples[i], r->samples[i].n_output, why);
    wake_reader(r);
}

/* ---- the reader's side ------------------------------------------------------------------------------------------- */

/* What is certain of the pending bytes, as whole characters, into r->text. */
static size_t give_text(rg_request *r, rg_sample *s, bool last)
{
    size_t held = last || s->cut ? 0 : held_back(r, s->read_stop_at), used, n;

    n = rg_utf8_copy(s->pending, s->n_pending - held, last, r->text, &used);
    if (used)
        memmove(s->pending, s->pending + used, s->n_pending - used);
    s->n_pending -= used;
    s->n_given += n;
    r->text[n] = '\0';
    return n;
}

static void read_bytes(rg_request *r, rg_sample *s, int32_t k)
{
    size_t n;
    const char *text = token_text(r, s, k, &s->read_first_at, &n);

    for (size_t i = 0; i < n && !s->cut; i++) {
        int32_t matched = feed_stops(r, s->read_stop_at, text[i]);

        s->pending[s->n_pending++] = text[i];
        if (matched) {
            s->n_pending -= (size_t)matched;
            s->cut = true;
        }
    }
}

static void give_id(rg_request *r, int i, rg_token *out)
{
    rg_sample *s = &r->samples[i];
    int32_t k = r->params.sampling.n_logprobs, at = s->n_read++;

    read_bytes(r, s, at);
    *out = (rg_token){ .sample = i, .id = s->ids[at], .logprob = s->logprobs ? s->logprobs[at] : NAN };
    if (k > 0) {
        out->top = s->tops + (size_t)at * (size_t)k;
        out->n_top = k;
    }
    out->n_text = give_text(r, s, false);
    out->text = r->text;
}

static void give_end(rg_request *r, int i, rg_finish why, rg_token *out)
{
    rg_sample *s = &r->samples[i];

    s->end_given = true;
    *out = (rg_token){ .sample = i, .id = -1, .logprob = NAN, .finish = why };
    out->n_text = give_text(r, s, true);
    out->text = r->text;
}

/* Of the samples that have something, the one of which least was read: answers come side by side. */
int rg_request_poll(rg_request *r, rg_token *out)
{
    int best = -1, best_finish = RG_RUNNING;
    bool open = false, best_id = false;

    for (int i = 0; i < r->params.n_samples; i++) {
        rg_sample *s = &r->samples[i];
        int why; /* looked at before n_ready: once it is set, n_ready is final */
        bool id;

        if (s->end_given)
            continue;
        open = true;
        why = atomic_load(&s->finish);
        id = s->n_read < atomic_load(&s->n_ready);
        if ((id || why != RG_RUNNING) && (best < 0 || s->n_read < r->samples[best].n_read)) {
            best = i;
            best_id = id;
            best_finish = why;
        }
    }
    if (best < 0)
        return open ? 0 : -1;
    if (best_id)
        give_id(r, best, out);
    else
        give_end(r, best, (rg_finish)best_finish, out);
    return 1;
}

bool rg_request_wait(rg_request *r, rg_token *out)
{
    int got = rg_request_poll(r, out);

    if (got)
        return got > 0;
    pthread_mutex_lock(&r->lock);
    atomic_fetch_add(&r->n_asleep, 1);
    while (!(got = rg_request_poll(r, out)))
        pthread_cond_wait(&r->ready, &r->lock);
    atomic_fetch_sub(&r->n_asleep, 1);
    pthread_mutex_unlock(&r->lock);
    return got > 0;
}

static double since(const rg_request *r, uint64_t ns)
{
    return ns ? rg_seconds(atomic_load(&r->submitted_ns), ns) : 0;
}

rg_usage rg_request_used(const rg_request *r)
{
    rg_usage u = { .n_prompt = r->params.n_prompt, .n_cached = r->n_cached, .n_preempted = r->n_preempted,
                   .uncached = (rg_uncached)atomic_load(&r->uncached) };

    for (int i = 0; i < r->params.n_samples; i++)
        u.n_output += atomic_load(&r->samples[i].n_ready);
    u.queue_s = since(r, atomic_load(&r->admitted_ns));
    u.ttft_s = since(r, atomic_load(&r->first_ns));
    u.total_s = since(r, atomic_load(&r->finished_ns));
    return u;
}
