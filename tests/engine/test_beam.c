/* Tests of beam search: the algorithm against all sequences of a tiny vocabulary and against the plain definition, and
 * requests with beams in the step loop over a fake model (fake.h): whatever is beside them, they give what the
 * definition gives. */
#include "engine/fake.h"

#include <math.h>
#include <stdlib.h>

#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "engine/work/beams.h"

enum { MAX_LEN = 320, MAX_ANSWERS = 128, MAX_BEAMS = 128, MAX_TOKENS = 48 };

static const int32_t eos[] = { EOS };

enum { N_STOPS = 4 };
static const char *const stop_texts[N_STOPS] = { "abaab", "bbb", "aabb", "babaa" };

/* ---- the definition, with everything written out ----------------------------------------------------------------- */

typedef struct answer {
    int32_t ids[MAX_TOKENS + 1];
    int32_t n, end;
    bool stopped;
    double sum, score;
} answer;

typedef struct answers {
    answer item[MAX_ANSWERS];
    int32_t n;
    bool tied; /* two candidates were equal where that may matter: which goes first is another matter */
} answers;

typedef void (*row_fn)(const void *arg, const int32_t *ids, int32_t n, float *logprobs); /* NAN: no such id */

typedef struct definition {
    const rg_beam_params *p;
    row_fn row;
    const void *arg;
    int32_t vocab, max_tokens, end;
    const char *stop; /* the text that ends an answer; NULL: none does */
} definition;

static char letter_of(int32_t id)
{
    return id % 2 ? 'a' : 'b';
}

static bool has_stop(const char *stop, const int32_t *ids, int32_t n)
{
    int32_t n_stop = stop ? (int32_t)strlen(stop) : n + 1;

    if (n < n_stop)
        return false;
    for (int32_t i = 0; i < n_stop; i++)
        if (letter_of(ids[n - n_stop + i]) != stop[i])
            return false;
    return true;
}

static int by_sum(const void *a, const void *b)
{
    const answer *x = a, *y = b;

    return x->sum < y->sum ? 1 : x->sum > y->sum ? -1 : 0;
}

static int by_score(const void *a, const void *b)
{
    const answer *x = a, *y = b;

    return x->score < y->score ? 1 : x->score > y->score ? -1 : 0;
}

static bool is_close(double x, double y)
{
    return fabs(x - y) <= 1e-12 * fabs(x);
}

static bool is_same(const answer *x, const answer *y)
{
    return x->n == y->n && x->end == y->end && !memcmp(x->ids, y->ids, (size_t)x->n * sizeof *x->ids);
}

static void keep_best(answers *done, answer *a, int32_t n, int32_t most, double penalty)
{
    a->score = a->sum / pow(n, penalty);
    done->item[done->n++] = *a;
    qsort(done->item, (size_t)done->n, sizeof *a, by_score);
    done->n = done->n < most ? done->n : most;
}

typedef struct group {
    answers running, done;
    bool over;
} group;

/* One group at one length: all beams by all ids, sorted.  True: some of the best are equal. */
static bool define_step(const definition *d, group *groups, int g, int32_t n, int32_t size)
{
    static answer all[MAX_BEAMS * VOCAB];
    group *own = &groups[g];
    bool last = n + 1 == d->max_tokens, grouped = d->p->n_groups > 1, tied = false;
    answers next = { .n = 0 };
    int32_t n_all = 0;
    double best;

    for (int32_t b = 0; b < own->running.n; b++) {
        float row[VOCAB];

        d->row(d->arg, own->running.item[b].ids, n, row);
        for (int32_t id = 0; id < d->vocab; id++) {
            answer *a = &all[n_all];
            int32_t chosen = 0;

            if (!(row[id] > -INFINITY))
                continue;
            n_all++;
            *a = own->running.item[b];
            a->ids[n] = id;
            a->n = n + 1;
            for (int e = 0; e < g; e++)
                for (int32_t k = 0; k < groups[e].running.n; k++)
                    chosen += groups[e].running.n && groups[e].running.item[k].n == n + 1 && groups[e].running.item[k].ids[n] == id;
            a->sum += (double)row[id] - (double)d->p->diversity * chosen;
        }
    }
    qsort(all, (size_t)n_all, sizeof *all, by_sum);
    best = n_all ? all[0].sum : 0;
    for (int32_t k = 1; k < n_all && k < 3 * size; k++)
        tied |= is_close(all[k].sum, all[k - 1].sum);
    n_all = n_all < 2 * size ? n_all : 2 * size; /* which matters only where stop texts end most of them */
    for (int32_t rank = 0; rank < n_all; rank++) {
        answer *a = &all[rank];

        a->stopped = a->ids[n] != d->end && has_stop(d->stop, a->ids, n + 1);
        if (a->ids[n] == d->end || a->stopped || (last && !grouped)) {
            bool ends = a->ids[n] == d->end;

            a->end = ends ? d->end : -1;
            a->n -= ends;
            if (rank < size)
                keep_best(&own->done, a, n + 1, size, (double)d->p->length_penalty);
            a->n += ends;
        } else if (next.n < size) {
            next.item[next.n++] = *a;
        }
    }
    own->over = !next.n;
    best = grouped || !next.n ? best : next.item[0].sum;
    if (!own->over && own->done.n == size) {
        bool never = d->p->early_stopping == RG_EARLY_STOPPING_NEVER && d->p->length_penalty > 0;
        double most = best / pow(never ? d->max_tokens : n + 1, (double)d->p->length_penalty);

        own->over = d->p->early_stopping == RG_EARLY_STOPPING_TRUE || own->done.item[size - 1].score >= most;
    }
    for (int32_t k = 0; last && !own->over && k < next.n; k++) {
        next.item[k].end = -1;
        keep_best(&own->done, &next.item[k], n + 1, size, (double)d->p->length_penalty);
    }
    own->over |= last;
    own->running = next;
    return tied;
}

static void define(const definition *d, answers *out)
{
    static group groups[MAX_BEAMS];
    int32_t n_groups = d->p->n_groups > 1 ? d->p->n_groups : 1, size = d->p->n_beams / n_groups, n_open = n_groups;

    out->n = 0;
    out->tied = false;
    for (int g = 0; g < n_groups; g++)
        groups[g] = (group){ .running.n = 1 };
    for (int32_t n = 0; n_open; n++) {
        n_open = 0;
        for (int g = 0; g < n_groups; g++) {
            if (!groups[g].over)
                out->tied |= define_step(d, groups, g, n, size);
            else
                groups[g].running.n = 0;
            n_open += !groups[g].over;
        }
    }
    for (int g = 0; g < n_groups; g++)
        for (int32_t i = 0; i < groups[g].done.n; i++)
            out->item[out->n++] = groups[g].done.item[i];
    qsort(out->item, (size_t)out->n, sizeof *out->item, by_score);
    for (int32_t k = 1; k < out->n; k++)
        out->tied |= is_close(out->item[k].score, out->item[k - 1].score) &&
                     !is_same(&out->item[k], &out->item[k - 1]);
}

/* ---- the algorithm by itself ------------------------------------------------------------------------------------- */

typedef struct tiny { /* logits are a hash of the ids */
    int32_t vocab;
    uint64_t seed;
} tiny;

static void tiny_row(const void *arg, const int32_t *ids, int32_t n, float *logprobs)
{
    const tiny *t = arg;
    uint64_t h = t->seed;
    double total = 0;

    for (int32_t i = 0; i < n; i++)
        h = stir(h, (uint64_t)ids[i] + 1);
    for (int32_t i = 0; i < t->vocab; i++) {
        logprobs[i] = (float)(stir(h, 77 + (uint64_t)i) >> 40) * 0x1p-24f * 5;
        total += exp((double)logprobs[i]);
    }
    for (int32_t i = 0; i < t->vocab; i++)
        logprobs[i] -= (float)log(total);
}

static int by_logprob(const void *a, const void *b)
{
    const rg_top *x = a, *y = b;

    return x->logprob < y->logprob ? 1 : x->logprob > y->logprob ? -1 : x->id - y->id;
}

typedef struct plain_search { /* all arrays of one */
    rg_beams b;
    rg_beam beam[MAX_BEAMS];
    rg_top listed[MAX_BEAMS * VOCAB];
    rg_beam_candidate kept[4 * MAX_BEAMS], next[MAX_BEAMS];
    rg_hypothesis finished[MAX_BEAMS];
    rg_beam_ids places[MAX_BEAMS];
    const char *stop; /* as the definition's */
    int32_t ids[MAX_BEAMS][MAX_TOKENS], finished_ids[MAX_BEAMS][MAX_TOKENS], n_finished[MAX_BEAMS], order[MAX_BEAMS], end;
    bool is_over[MAX_BEAMS];
} plain_search;

static bool plain_stops(void *arg, int32_t place, int32_t id)
{
    const plain_search *s = arg;
    int32_t ids[MAX_TOKENS];

    memcpy(ids, s->ids[place], (size_t)s->b.n_ids * sizeof *ids);
    ids[s->b.n_ids] = id;
    return has_stop(s->stop, ids, s->b.n_ids + 1);
}

/* All lists are lost; the ids that all beams have in common are counted. */
static void lose(plain_search *s)
{
    int32_t first = 0, n = 0;
    bool same = true;

    rg_beams_lose(&s->b, s->places);
    while (!s->beam[first].runs)
        first++;
    for (; same && n < s->b.n_ids; n += same)
        for (int i = 0; i < s->b.p.n_beams; i++)
            same &= !s->beam[i].runs || s->ids[i][n] == s->ids[first][n];
    assert_int_equal(s->b.n_common, n);
}

/* Run the search over rows of a function. */
static void search(plain_search *s, const definition *d)
{
    rg_beams *b = &s->b;
    bool is_again = false;

    s->end = d->end;
    *b = (rg_beams){ .p = *d->p, .max_tokens = d->max_tokens, .ends = &s->end, .n_ends = d->end >= 0,
                     .room = rg_beams_room(d->p, d->end >= 0, d->vocab), .beam = s->beam, .listed = s->listed, .kept = s->kept,
                     .next = s->next, .finished = s->finished, .n_finished = s->n_finished, .is_over = s->is_over,
                     .order = s->order };
    b->p.n_groups = d->p->n_groups > 1 ? d->p->n_groups : 1;
    assert_true(rg_beams_kept(d->p, 1) <= (int32_t)RG_LEN(s->kept));
    s->stop = d->stop;
    b->stops = d->stop ? plain_stops : NULL;
    b->stops_arg = s;
    for (int i = 0; i < d->p->n_beams; i++) {
        s->finished[i].is = (rg_beam_ids){ .ids = s->finished_ids[i] };
        s->places[i] = (rg_beam_ids){ .ids = s->ids[i] };
    }
    for (rg_beams_begin(b);;) {
        for (int i = 0; i < d->p->n_beams; i++) {
            float row[VOCAB];
            rg_top top[VOCAB];

            if (!rg_beams_waits(b, i))
                continue;
            d->row(d->arg, s->ids[i], b->n_ids, row);
            for (int32_t id = 0; id < d->vocab; id++)
                top[id] = (rg_top){ id, row[id] };
            qsort(top, (size_t)d->vocab, sizeof *top, by_logprob);
            memcpy(s->listed + (size_t)i * (size_t)b->room, top, (size_t)b->room * sizeof *top);
            b->beam[i].n_listed = b->room;
            b->beam[i].is_listed = true;
            b->n_listed++;
        }
        assert_int_equal(b->n_listed, b->n_running);
        if (stir(7, (uint64_t)b->n_ids) % 3 == 0 && !is_again) {
            lose(s);
            is_again = true;
            continue;
        }
        is_again = false;
        if (rg_beams_step(b, s->places))
            return;
        for (int i = 0; i < d->p->n_beams; i++)
            if (b->beam[i].runs && b->beam[i].parent != i)
                assert_true(b->beam[b->beam[i].parent].runs && b->beam[b->beam[i].parent].parent == b->beam[i].parent);
    }
}

static void assert_same(const plain_search *s, const answers *want)
{
    assert_int_equal(s->b.n_ordered, want->n);
    for (int32_t k = 0; k < want->n; k++) {
        const rg_hypothesis *h = &s->finished[s->order[k]];

        assert_int_equal(h->n, want->item[k].n);
        assert_int_equal(h->end, want->item[k].end);
        assert_int_equal(h->stopped, want->item[k].stopped);
        assert_memory_equal(h->is.ids, want->item[k].ids, (size_t)h->n * sizeof *h->is.ids);
        assert_true(fabs(h->score - want->item[k].score) < 1e-9 * fabs(h->score));
    }
}

/* All sequences that end, or have all their ids. */
static void enumerate(const definition *d, answer *at, answers *all)
{
    float row[VOCAB];

    d->row(d->arg, at->ids, at->n, row);
    for (int32_t id = 0; id < d->vocab; id++) {
        answer a = *at;

        a.sum += (double)row[id];
        a.ids[a.n++] = id;
        a.end = id == d->end ? id : -1;
        if (id != d->end && a.n < d->max_tokens) {
            enumerate(d, &a, all);
            continue;
        }
        a.score = a.sum / pow(a.n, (double)d->p->length_penalty);
        a.n -= id == d->end;
        assert_true(all->n < MAX_ANSWERS);
        all->item[all->n++] = a;
    }
}

static plain_search one;

static void a_wide_search_finds_the_best_of_all(void **state)
{
    static answers all;

    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        /* 1 + 3 + 9 + 27 + 81 sequences */
        rg_beam_params p = { .n_beams = 121, .length_penalty = (float)(seed % 4) * 0.7f - 0.7f,
                             .early_stopping = RG_EARLY_STOPPING_NEVER };
        tiny t = { .vocab = 4, .seed = test_seed + seed };
        definition d = { .p = &p, .row = tiny_row, .arg = &t, .vocab = 4, .max_tokens = 4, .end = 2 };
        answer root = { .n = 0 };

        all.n = 0;
        enumerate(&d, &root, &all);
        assert_int_equal(all.n, 121);
        qsort(all.item, (size_t)all.n, sizeof all.item[0], by_score);
        search(&one, &d);
        assert_same(&one, &all);
    }
}

static rg_beam_params params_random(rg_rng *g, int32_t most)
{
    rg_beam_params p = { .n_beams = 1 + (int32_t)rg_rng_below(g, (uint32_t)most), .n_groups = 1 };

    p.length_penalty = (float)((int)rg_rng_below(g, 7) - 2) * 0.5f;
    p.early_stopping = (rg_early_stopping)rg_rng_below(g, 3);
    while (rg_rng_below(g, 2) && p.n_beams % (p.n_groups + 1) == 0)
        p.n_groups++;
    p.diversity = p.n_groups > 1 ? (float)rg_rng_below(g, 5) * 0.3f : 0;
    return p;
}

static void a_search_follows_the_definition(void **state)
{
    rg_rng g = { .seed = test_seed };
    static answers want;
    int n_tied = 0, n_stopped = 0;

    (void)state;
    for (int i = 0; i < 400; i++) {
        tiny t = { .vocab = 4 + (int32_t)rg_rng_below(&g, 28), .seed = rg_rng_u64(&g) };
        rg_beam_params p = params_random(&g, 12);
        definition d = { .p = &p, .row = tiny_row, .arg = &t, .vocab = t.vocab, .max_tokens = 1 + (int32_t)rg_rng_below(&g, 12),
                         .end = (int32_t)rg_rng_below(&g, (uint32_t)t.vocab + 1) - 1,
                         .stop = i % 2 ? stop_texts[i / 2 % N_STOPS] : NULL };

        define(&d, &want);
        search(&one, &d);
        n_tied += want.tied;
        if (!want.tied)
            assert_same(&one, &want);
        for (int32_t k = 0; k < want.n; k++)
            n_stopped += want.item[k].stopped;
    }
    assert_true(n_tied < 20 && n_stopped > 20);
}

/* ---- in the step loop -------------------------------------------------------------------------------------------- */

typedef struct model_row { /* of the fake model, with the rules of a request */
    const mix *m;
    const rg_params *p;
    rg_sampler *s;
} model_row;

static void row_of_model(const void *arg, const int32_t *ids, int32_t n, float *logprobs)
{
    const model_row *r = arg;
    int32_t all[MAX_LEN + MAX_TOKENS];
    bool may_end = n >= r->p->sampling.min_tokens;

    memcpy(all, r->p->prompt, (size_t)r->p->n_prompt * sizeof *all);
    memcpy(all + r->p->n_prompt, ids, (size_t)n * sizeof *all);
    logits_of(plain_hash(r->m, all, r->p->n_prompt + n), logprobs);
    rg_log_softmax(r->s, logprobs);
    (void)rg_sample_penalize(r->s, logprobs, &r->p->sampling,
                             &(rg_sample_place){ .history = { r->p->prompt, ids, r->p->n_prompt, n }, .banned = eos,
                                                 .n_banned = may_end || r->p->sampling.ignore_eos ? 0 : 1 });
}

typedef struct live {
    rg_request *r;
    answers *want; /* NULL: no beams, and only one sample is compared */
    int32_t seen[MAX_BEAMS];
    int32_t *ids; /* [n_samples][MAX_TOKENS] */
    bool cancelled;
} live;

static rg_request *request_new(const rg_params *p)
{
    static char data[VOCAB];
    static uint32_t offset[VOCAB + 1];
    static const rg_spelling letters = { .at = { { data, offset } }, .n = VOCAB };
    rg_error err;

    for (int32_t i = 0; i < VOCAB; i++) {
        data[i] = letter_of(i);
        offset[i + 1] = (uint32_t)i + 1;
    }
    rg_request_model model = { .vocab_size = VOCAB, .max_seq_len = MAX_LEN, .dim = DIM, .eos_ids = eos, .n_eos = 1,
                               .max_draft = FAKE_DRAFT, .spelling = &letters };
    rg_request *r = rg_request_new(p, &model, &err);

    assert_ok(r, err);
    return r;
}

static rg_params request_random(rg_rng *g, int32_t *prompt, bool beams)
{
    int32_t n = 1 + (int32_t)(rg_rng_below(g, 3) ? rg_rng_below(g, 200) : rg_rng_below(g, 70));
    uint64_t family = rg_rng_below(g, 3);
    rg_params p = { .prompt = prompt, .n_prompt = n, .n_samples = 1,
                    .max_tokens = 1 + (int32_t)rg_rng_below(g, MAX_TOKENS - 1) };

    for (int32_t i = 0; i < n; i++)
        prompt[i] = (int32_t)(i < 150 ? stir(family, (uint64_t)i) % VOCAB : rg_rng_below(g, VOCAB));
    p.sampling = (rg_sampling){ .top_p = 1, .typical_p = 1, .repetition_penalty = 1, .n_logprobs = -1, .temperature = 1 };
    p.sampling.ignore_eos = !rg_rng_below(g, 4);
    p.sampling.min_tokens = (int32_t)rg_rng_below(g, 8);
    p.sampling.repetition_penalty = rg_rng_below(g, 3) ? 1.0f : 1.2f;
    p.sampling.no_repeat_ngram = (int32_t)rg_rng_below(g, 4);
    p.background = !rg_rng_below(g, 5);
    if (beams)
        p.beam = params_random(g, 6);
    if (beams && rg_rng_below(g, 2)) {
        p.stop = &stop_texts[rg_rng_below(g, N_STOPS)];
        p.n_stop = 1;
    }
    if (beams)
        p.n_samples = 1 + (int32_t)rg_rng_below(g, (uint32_t)p.beam.n_beams);
    if (!rg_rng_below(g, 25))
        p.deadline_s = 1e-9;
    return p;
}

/* False: the loop has no room for such a request, ever. */
static bool live_open(live *l, const mix *m, rg_loop *loop, rg_rng *g)
{
    int32_t prompt[MAX_LEN];
    rg_params p = request_random(g, prompt, rg_rng_below(g, 4));
    rg_error err;

    *l = (live){ .r = request_new(&p) };
    if (!rg_loop_submit(loop, l->r, &err)) {
        assert_int_equal(err.code, RG_E_LIMIT);
        rg_request_unref(l->r);
        *l = (live){ 0 };
        return false;
    }
    if (p.beam.n_beams) {
        model_row row = { .m = m, .p = &p, .s = rg_sampler_new(VOCAB, MAX_LEN + MAX_TOKENS, NULL) };
        definition d = { .p = &p.beam, .row = row_of_model, .arg = &row, .vocab = VOCAB, .max_tokens = l->r->params.max_tokens,
                         .end = p.sampling.ignore_eos ? -1 : EOS, .stop = p.n_stop ? p.stop[0] : NULL };

        l->want = rg_array(1, sizeof *l->want);
        define(&d, l->want);
        rg_sampler_free(row.s);
    }
    l->ids = rg_array((size_t)p.n_samples * MAX_TOKENS, sizeof *l->ids);
    return true;
}

static void check_answer(const live *l, int k, rg_finish finish)
{
    const answer *a = &l->want->item[k];

    if (finish == RG_FINISH_CANCELLED || finish == RG_FINISH_DEADLINE) {
        assert_true(l->cancelled || l->r->who.deadline_ns);
        return;
    }
    if (l->want->tied)
        return;
    if (k >= l->want->n) { /* too few ids are left by the rules */
        assert_int_equal(finish, RG_FINISH_GRAMMAR);
        return;
    }
    assert_int_equal(l->seen[k], a->n);
    assert_memory_equal(l->ids + (size_t)k * MAX_TOKENS, a->ids, (size_t)a->n * sizeof *a->ids);
    assert_int_equal(finish, a->end >= 0 || a->stopped ? RG_FINISH_STOP : RG_FINISH_LENGTH);
    double score = rg_beams_of(l->r)->finished[rg_beams_of(l->r)->order[k]].score;
    assert_true(fabs(score - a->score) <= 1e-9 * fabs(score));
}

static bool live_read(live *l)
{
    rg_token t;
    int got;

    while ((got = rg_request_poll(l->r, &t)) > 0) {
        if (t.id >= 0)
            l->ids[t.sample * MAX_TOKENS + l->seen[t.sample]++] = t.id;
        else if (l->want)
            check_answer(l, t.sample, t.finish);
    }
    if (got < 0) {
        rg_request_unref(l->r);
        rg_free(l->want);
        rg_free(l->ids);
        *l = (live){ 0 };
    }
    return got < 0;
}

static const mix mixes[] = {
    { .name = "global", .global = true, .n_blocks = 13 },
    { .name = "global, roomy", .global = true, .n_blocks = 60 },
    { .name = "window and global", .global = true, .window = 100, .n_blocks = 16, .n_window = 12 },
    { .name = "window alone", .window = 65, .n_window = 12 },
    { .name = "recurrent and global", .global = true, .recurrent = true, .n_blocks = 24, .n_slots = 8 },
    { .name = "all", .global = true, .window = 33, .recurrent = true, .latent = true, .n_blocks = 16, .n_window = 12,
      .n_slots = 6 },
};

static int32_t budget_random(void *arg)
{
    rg_rng *g = arg;

    if (rg_rng_below(g, 2))
        return MAX_ROWS;
    return 1 + (int32_t)rg_rng_below(g, rg_rng_below(g, 2) ? 5 : MAX_ROWS); /* few: beams of one step come in several */
}

static rg_loop_options options_of(bool use_prefixes, rg_preempt preempt)
{
    return (rg_loop_options){ .max_seqs = 7, .max_rows = MAX_ROWS, .max_seq_len = MAX_LEN, .max_waiting = 100,
                              .use_prefixes = use_prefixes, .preempt = preempt };
}

enum { MAX_LIVE = 6 };

static void run_random(const mix *m, bool use_prefixes, rg_preempt preempt, int n_steps, uint64_t seed)
{
    rg_rng g = { .seed = seed }, budgets = { .seed = seed + 1 };
    rg_loop_options options = options_of(use_prefixes, preempt);
    live lives[MAX_LIVE] = { { 0 } };
    int n_done = 0, n_refused = 0, n_again = 0, n_tied = 0;
    rg_error err;
    fake *f = fake_new(m, &err);
    rg_loop *loop = rg_loop_new(&f->runner, &options, &err);

    assert_ok(loop, err);
    rg_loop_set_budget(loop, budget_random, &budgets);
    for (int step = 0;; step++) {
        bool any = false;

        for (int i = 0; i < MAX_LIVE; i++) {
            if (!lives[i].r && step < n_steps && !rg_rng_below(&g, 12))
                n_refused += !live_open(&lives[i], m, loop, &g);
            if (lives[i].r && !rg_rng_below(&g, 500)) {
                lives[i].cancelled = true;
                atomic_store(&lives[i].r->cancelled, true);
            }
        }
        if (!rg_rng_below(&g, 15))
            rg_loop_preempt(loop, (int)rg_rng_below(&g, 4), rg_rng_below(&g, 2) ? RG_PREEMPT_SWAP : RG_PREEMPT_RECOMPUTE);
        rg_loop_step(loop);
        rg_loop_check(loop);
        for (int i = 0; i < MAX_LIVE; i++) {
            n_again += lives[i].r && lives[i].want && atomic_load(&lives[i].r->counts.n_preempted) == 1;
            n_tied += lives[i].want && lives[i].want->tied && atomic_load(&lives[i].r->counts.n_ended);
            n_done += lives[i].r && live_read(&lives[i]);
            any |= lives[i].r != NULL;
        }
        if (step >= n_steps && !any)
            break;
        assert_true(step < 40 * n_steps);
    }
    rg_stats s = rg_loop_stats(loop);
    print_message("%s%s: %d requests, %d refused, %d preempted, %d rows, %d from the cache\n", m->name,
                  use_prefixes ? ", prefixes" : "", n_done, n_refused, (int)s.n_preempted, (int)s.n_rows, (int)s.n_cached_rows);
    assert_true(n_done > n_steps / 60 && n_again > 0 && n_tied <= 1 + n_done / 20);
    rg_loop_free(loop);
    fake_free(f);
}

static void results_are_those_of_the_request_alone(void **state)
{
    int n_steps = getenv("RIDGE_TEST_ALL") ? 6000 : 500;
    size_t n_before = rg_mem_count().n_live;

    (void)state;
    for (size_t i = 0; i < RG_LEN(mixes); i++) {
        run_random(&mixes[i], true, RG_PREEMPT_AUTO, n_steps, test_seed + 100 * i);
        run_random(&mixes[i], false, RG_PREEMPT_SWAP, n_steps, test_seed + 100 * i + 1);
    }
    assert_int_equal(rg_mem_count().n_live, n_before);
}

/* ---- sharing, ends, refusals ------------------------------------------------------------------------------------- */

static rg_params params_plain(int32_t *prompt, int32_t n_prompt, int32_t max_tokens)
{
    rg_params p = { .prompt = prompt, .n_prompt = n_prompt, .max_tokens = max_tokens, .n_samples = 4 };

    for (int32_t i = 0; i < n_prompt; i++)
        prompt[i] = i * 7 % VOCAB;
    p.sampling = (rg_sampling){ .top_p = 1, .typical_p = 1, .repetition_penalty = 1, .n_logprobs = -1, .ignore_eos = true };
    p.beam = (rg_beam_params){ .n_beams = 4, .length_penalty = 1 };
    return p;
}

/* A request in a loop of its own, preempted after so many steps (0: never), until it ends or for n steps. */
static rg_stats run_alone(const mix *m, rg_request *r, int preempted_after, int n)
{
    rg_loop_options options = options_of(false, RG_PREEMPT_AUTO);
    rg_error err;
    fake *f = fake_new(m, &err);
    rg_loop *loop = rg_loop_new(&f->runner, &options, &err);
    rg_stats stats;

    assert_ok(loop, err);
    assert_ok(rg_loop_submit(loop, r, &err), err);
    for (int step = 1; step <= n && rg_loop_step(loop); step++) {
        rg_loop_check(loop);
        if (step == preempted_after)
            assert_true(rg_loop_preempt(loop, 0, RG_PREEMPT_AUTO));
        rg_loop_check(loop);
    }
    stats = rg_loop_stats(loop);
    rg_loop_free(loop);
    fake_free(f);
    return stats;
}

static void beams_share_their_beginnings(void **state)
{
    int32_t prompt[200];
    rg_params p = params_plain(prompt, 200, 20);
    rg_request *r = request_new(&p), *again = request_new(&p);

    (void)state;
    rg_stats stats = run_alone(&mixes[1], r, 0, 1000);
    /* 200 rows of the prompt, and 19 more for each of 4 beams. */
    assert_int_equal(stats.n_rows, 200 + 19 * 4);
    rg_usage u = rg_request_used(r);
    assert_int_equal(u.n_steps, 20);
    /* 1 beam of 4 blocks, then 19 times 4 of 4: 3 blocks of the prompt are shared, and the last by no two. */
    assert_int_equal(u.search_blocks_unshared, 4 + 19 * 16);
    assert_int_equal(u.search_blocks, 4 + 19 * (3 + 4));
    assert_true(u.search_blocks_copied >= 3 && u.search_blocks_copied <= 19 * 3);
    stats = run_alone(&mixes[1], again, 12, 1000);
    assert_int_equal(stats.n_preempted, 1);
    /* What they had in common was computed once more, and the rest by each. */
    assert_true(stats.n_rows > 2 * 200 + 19 * 4 && stats.n_rows < 2 * 200 + 19 * 4 + 4 * 20);
    assert_int_equal(rg_request_used(again).search_blocks, u.search_blocks);
    for (int k = 0; k < 4; k++)
        assert_memory_equal(r->samples[k].ids, again->samples[k].ids, 20 * sizeof(int32_t));
    rg_request_unref(r);
    rg_request_unref(again);
}

static void slots_are_copied_and_counted(void **state)
{
    int32_t prompt[40];
    rg_params p = params_plain(prompt, 40, 10);
    rg_request *r = request_new(&p);

    (void)state;
    (void)run_alone(&mixes[4], r, 0, 1000);
    rg_usage u = rg_request_used(r);
    assert_true(u.search_blocks_copied >= 6); /* 3 beams that begin, each with its block and its slot */
    assert_int_equal(u.search_blocks, u.search_blocks_unshared);
    rg_request_unref(r);
}

static void what_was_found_is_told_at_an_early_end(void **state)
{
    int32_t prompt[20];
    rg_params p = params_plain(prompt, 20, 40);
    rg_request *r = request_new(&p);
    const rg_beams *b = rg_beams_of(r);
    rg_token t;

    (void)state;
    (void)run_alone(&mixes[0], r, 0, 10); /* closing cancels it */
    for (int i = 0; i < 4 * 10; i++) {
        assert_int_equal(rg_request_poll(r, &t), 1);
        assert_true(t.id >= 0 && t.finish == RG_RUNNING);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(rg_request_poll(r, &t), 1);
        assert_int_equal(t.finish, RG_FINISH_CANCELLED);
    }
    assert_int_equal(rg_request_poll(r, &t), -1);
    for (int k = 1; k < 4; k++)
        assert_true(b->finished[b->order[k - 1]].score >= b->finished[b->order[k]].score);
    rg_request_unref(r);
}

static void assert_refused(const rg_params *p, rg_code code, const char *what)
{
    rg_error err = { 0 };

    assert_null(rg_request_new(p, &(rg_request_model){ .vocab_size = VOCAB, .max_seq_len = MAX_LEN, .dim = DIM,
                                                      .eos_ids = eos, .n_eos = 1 }, &err));
    assert_int_equal(err.code, code);
    if (!strstr(err.text, what))
        fail_msg("'%s' does not say '%s'", err.text, what);
}

static void what_does_not_go_together_is_refused(void **state)
{
    int32_t prompt[20];
    const rg_params good = params_plain(prompt, 20, 40);
    rg_params p = good;

    (void)state;
    p.n_samples = 5;
    assert_refused(&p, RG_E_INPUT, "5 answers are asked of a search with 4 beams");
    p = good, p.beam.n_beams = -1;
    assert_refused(&p, RG_E_INPUT, "n_beams is -1");
    p = good, p.beam.n_groups = 3;
    assert_refused(&p, RG_E_INPUT, "4 beams in 3 groups");
    p = good, p.beam.diversity = 1;
    assert_refused(&p, RG_E_INPUT, "diversity is 1 with one group");
    p = good, p.beam.n_groups = 2, p.beam.diversity = NAN;
    assert_refused(&p, RG_E_INPUT, "diversity is");
    p = good, p.beam.length_penalty = 11;
    assert_refused(&p, RG_E_INPUT, "length_penalty is 11");
    p = good, p.beam.early_stopping = (rg_early_stopping)3;
    assert_refused(&p, RG_E_INPUT, "early_stopping is 3");
    p = good, p.prompt_logprobs = true;
    assert_refused(&p, RG_E_UNSUPPORTED, "log-probabilities");
    p = good, p.sampling.no_repeat_ngram = -1;
    assert_refused(&p, RG_E_INPUT, "no_repeat_ngram is -1");
}

static void what_can_never_fit_is_refused(void **state)
{
    rg_loop_options options = options_of(true, RG_PREEMPT_AUTO);
    mix small = { .name = "small", .global = true, .n_blocks = 10 };
    int32_t prompt[200];
    rg_params p = params_plain(prompt, 193, 64);
    rg_error err;
    fake *f = fake_new(&small, &err);
    rg_loop *loop = rg_loop_new(&f->runner, &options, &err);
    rg_request *r = request_new(&p), *wide;

    (void)state;
    assert_ok(rg_loop_submit(loop, r, &err), err); /* 3 blocks together, and 1 of each */
    while (rg_loop_step(loop))
        rg_loop_check(loop);
    assert_int_equal(atomic_load(&r->samples[3].finish), RG_FINISH_LENGTH);
    rg_request_unref(r);
    p.max_tokens = 64 + 2; /* 3 together, and 2 of each: 11 of 10 blocks */
    r = request_new(&p);
    assert_false(rg_loop_submit(loop, r, &err));
    assert_int_equal(err.code, RG_E_LIMIT);
    assert_non_null(strstr(err.text, "4 beams of 193 prompt ids"));
    p.beam.n_beams = 8;
    p.max_tokens = 2;
    wide = request_new(&p);
    assert_false(rg_loop_submit(loop, wide, &err));
    assert_non_null(strstr(err.text, "8 beams: the engine was opened for 7 sequences"));
    rg_request_unref(r);
    rg_request_unref(wide);
    rg_loop_free(loop);
    fake_free(f);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wide_search_finds_the_best_of_all),
        cmocka_unit_test(a_search_follows_the_definition),
        cmocka_unit_test(results_are_those_of_the_request_alone),
        cmocka_unit_test(beams_share_their_beginnings),
        cmocka_unit_test(slots_are_copied_and_counted),
        cmocka_unit_test(what_was_found_is_told_at_an_early_end),
        cmocka_unit_test(what_does_not_go_together_is_refused),
        cmocka_unit_test(what_can_never_fit_is_refused),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
