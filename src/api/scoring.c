/* scoring.c -- see scoring.h. */
#include "api/scoring.h"

#include <math.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "engine/loop.h"
#include "engine/work/work.h"

enum { TEXT_BYTES = 1 << 28 };

struct rg_scoring {
    rg_scorer scorer;
    int32_t room;      /* answers that are valued at once, at most */
    double *values;    /* [room] */
    rg_request **asked; /* [room] of the reranker; NULL: this one is not asked, or has answered */
    int32_t n, n_asked; /* of the answers that are being valued; 0: none are */
    char *query;
    rg_buf text;
};

rg_scoring *rg_scoring_new(const rg_scorer *scorer, const rg_params *params, rg_error *err)
{
    const int32_t n_kinds = (scorer->score != NULL) + (scorer->reranker != NULL) + (scorer->grammar != NULL);
    const int32_t leaves = params->search.leaves ? params->search.leaves : 8;
    rg_scoring *s;

    if (n_kinds != 1)
        return rg_fail(err, RG_E_INPUT, "a scorer is a function, a reranker or a grammar: want one of them, not %d",
                       (int)n_kinds), NULL;
    if (scorer->reranker && !rg_engine_info(scorer->reranker).n_labels)
        return rg_fail(err, RG_E_INPUT, "the scorer's model scores no pairs of texts: want a reranker"), NULL;
    if (scorer->reranker && !scorer->query)
        return rg_fail(err, RG_E_INPUT, "a reranker needs a query"), NULL;
    s = rg_zalloc(sizeof *s);
    if (!s)
        return rg_fail_memory(err, sizeof *s), NULL;
    s->scorer = *scorer;
    s->room = params->search.simulations ? leaves : params->best_of;
    s->values = rg_array((size_t)s->room, sizeof *s->values);
    s->asked = rg_array((size_t)s->room, sizeof(rg_request *));
    s->query = rg_strndup(scorer->query ? scorer->query : "", scorer->query ? scorer->n_query : 0);
    rg_buf_init(&s->text, TEXT_BYTES);
    if (!s->values || !s->asked || !s->query) {
        rg_fail_memory(err, (size_t)s->room * sizeof *s->values);
        rg_scoring_free(s);
        return NULL;
    }
    if (scorer->grammar)
        rg_grammar_ref(scorer->grammar);
    return s;
}

void rg_scoring_free(rg_scoring *s)
{
    if (!s)
        return;
    for (int32_t i = 0; s->asked && i < s->room; i++)
        rg_request_close(s->asked[i]);
    rg_grammar_unref(s->scorer.grammar);
    rg_buf_fini(&s->text);
    rg_free(s->query);
    rg_free(s->asked);
    rg_free(s->values);
    rg_free(s);
}

/* ---- the value of one ------------------------------------------------------------------------------------------- */

static double by_grammar(const rg_scoring *s, const int32_t *ids, int32_t n)
{
    rg_grammar_state *g = rg_grammar_start(s->scorer.grammar, NULL);
    int32_t k = 0;
    double value;

    if (!g)
        return NAN;
    while (k < n && rg_grammar_advance(g, ids[k]))
        k++;
    value = k == n && rg_grammar_complete(g) ? 1 : (double)k / (n + 1);
    rg_grammar_stop(g);
    return value;
}

/* Ask the reranker for the score of the i-th answer.  False: its queue has no room now. */
static bool ask(rg_scoring *s, const rg_request *r, int32_t i, const int32_t *ids, int32_t n)
{
    rg_speller speller = rg_speller_begin(r->texts.spelling, r->texts.prompt_shows);
    rg_text_options options = { 0 };
    rg_text_ids pair;
    rg_error err = { 0 };
    rg_string text;

    rg_buf_reset(&s->text);
    while (rg_speller_next(r->texts.spelling, &speller, ids, n, true, &text))
        rg_buf_add(&s->text, text.data, text.n);
    const char *const texts[2] = { s->query, s->text.n ? s->text.data : "" };
    const size_t lengths[2] = { s->scorer.n_query, s->text.n };

    s->values[i] = NAN;
    if (!rg_encode_pair_to_score(s->scorer.reranker, texts, lengths, &options, &pair, &err))
        return true;
    const rg_params p = { .prompt = pair.ids, .n_prompt = (int32_t)pair.n, .second = pair.second, .score = true,
                          .n_samples = 1, .sampling = rg_sampling_default() };
    s->asked[i] = rg_submit(s->scorer.reranker, &p, &err);
    rg_ids_free(pair.ids);
    return s->asked[i] || err.code != RG_E_BUSY;
}

/* Read the score of the i-th answer.  False: it is not there yet. */
static bool answered(rg_scoring *s, int32_t i, bool wait)
{
    const float *scores;
    rg_token token;
    int32_t n;
    int got;

    if (!s->asked[i])
        return true;
    do
        got = wait ? rg_next(s->asked[i], &token) : rg_poll(s->asked[i], &token);
    while (got > 0);
    if (!got && !wait)
        return false;
    scores = rg_request_head_scores(s->asked[i], &n);
    s->values[i] = scores && n > 0 ? (double)scores[0] : NAN;
    rg_request_close(s->asked[i]);
    s->asked[i] = NULL;
    return true;
}

/* ---- of all ------------------------------------------------------------------------------------------------------ */

/* Value, or ask for the values of, answers from the first that was not asked about.  False: the queue is full. */
static bool ask_all(rg_scoring *s, rg_request *r)
{
    for (; s->n_asked < s->n; s->n_asked++) {
        const int32_t i = s->n_asked;
        const float *logprobs;
        const int32_t *ids;
        int32_t n;

        s->values[i] = NAN;
        if (!r->work->valued(r, i, &ids, &logprobs, &n))
            continue;
        if (s->scorer.score)
            s->values[i] = s->scorer.score(s->scorer.arg, ids, logprobs, n);
        else if (s->scorer.grammar)
            s->values[i] = by_grammar(s, ids, n);
        else if (!ask(s, r, i, ids, n))
            return false;
    }
    return true;
}

/* The request was cancelled: its answers have no values. */
static void give_up(rg_scoring *s)
{
    for (int32_t i = 0; i < s->n; i++) {
        rg_request_close(s->asked[i]);
        s->asked[i] = NULL;
        s->values[i] = NAN;
    }
    s->n_asked = s->n;
}

bool rg_scoring_serve(rg_scoring *s, rg_request *r, bool wait)
{
    bool all;

    s->n = s->n ? s->n : r->work->to_value(r);
    RG_ASSERT(s->n <= s->room);
    if (atomic_load(&r->cancelled))
        give_up(s);
    do {
        all = ask_all(s, r);
        for (int32_t i = 0; i < s->n_asked; i++)
            all &= answered(s, i, wait);
    } while (wait && !all);
    if (!all)
        return false;
    s->n = s->n_asked = 0;
    r->work->take_values(r, s->values);
    if (r->work->to_value(r)) /* a round that needed no step */
        return rg_scoring_serve(s, r, wait);
    rg_loop_return(r->loop, r);
    return true;
}
