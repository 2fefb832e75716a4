/* score.c -- POST /v1/rerank (in the form of Jina, Cohere and vLLM) and /v1/score (vLLM's): pairs of texts, each
 * scored by the model's head.
 *
 * A pair is put together as the tokenizer says; its texts cannot produce special tokens.  What is given is the sigmoid
 * of the head's score, as from other servers, or with "use_activation": false the score itself. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "server/call.h"

/* ---- the request ------------------------------------------------------------------------------------------------- */

static bool check_head(const rg_call *c, rg_refusal *e)
{
    int32_t n = c->served->info.n_labels;

    if (n == 1)
        return true;
    if (n > 1)
        return rg_refuse(e, 501, "unsupported_endpoint", NULL,
                         "This model's head has %d labels: pairs of texts are scored by heads of one.", (int)n);
    return rg_refuse(e, 501, "unsupported_endpoint", NULL, "This model has no head that scores pairs of texts.");
}

/* A text, as a string or as an object with "text".  NULL: it is neither. */
static const json_t *text_of(const json_t *v)
{
    const json_t *text = json_is_object(v) ? json_object_get(v, "text") : v;

    return json_is_string(text) ? text : NULL;
}

/* A list of texts; a single one counts as a list of it. */
typedef struct texts {
    const json_t *v;
    size_t n;
} texts;

static const json_t *nth(const texts *t, size_t i)
{
    return text_of(json_is_array(t->v) ? json_array_get(t->v, t->n > 1 ? i : 0) : t->v);
}

static bool read_texts(const rg_call *c, const char *field, texts *out, rg_refusal *e)
{
    *out = (texts){ .v = json_object_get(c->body, field) };
    out->n = json_is_array(out->v) ? json_array_size(out->v) : 1;
    if (!out->n)
        return rg_refuse_field(e, field, "'%s' is empty: it needs one text at least.", field);
    if (out->n > (size_t)c->served->server->o.max_choices)
        return rg_refuse_field(e, field, "'%s' has %zu texts, and %d are the most of one request.", field, out->n,
                               (int)c->served->server->o.max_choices);
    for (size_t i = 0; i < out->n; i++)
        if (!nth(out, i))
            return rg_refuse_field(e, field, "'%s' must be a text or a list of texts.", field);
    return true;
}

static bool add_pair(rg_call *c, const json_t *first, const json_t *second, rg_refusal *e)
{
    const char *const text[2] = { json_string_value(first), json_string_value(second) };
    const size_t n[2] = { json_string_length(first), json_string_length(second) };
    rg_text_options o;
    rg_text_ids out;
    rg_error err = { 0 };

    if (!rg_call_text_options(c, &o, e))
        return false;
    if (!rg_encode_pair_to_score(c->served->engine, text, n, &o, &out, &err))
        return rg_refuse_engine(c->served, e, &err), false;
    if (!rg_call_add_ids(c, out.ids, out.n, false, e))
        return false;
    c->prompts[c->n_prompts - 1].second = out.second;
    return true;
}

static bool add_pairs(rg_call *c, const texts *first, const texts *second, rg_refusal *e)
{
    for (size_t i = 0; i < second->n; i++)
        if (!add_pair(c, nth(first, i), nth(second, i), e))
            return false;
    return true;
}

/* The field that has them: Text Embeddings Inference calls them texts. */
static const char *documents_of(const rg_call *c)
{
    return json_object_get(c->body, "texts") && !json_object_get(c->body, "documents") ? "texts" : "documents";
}

static bool read_rerank(rg_call *c, rg_refusal *e)
{
    const json_t *query = text_of(json_object_get(c->body, "query"));
    texts one = { query, 1 }, documents;

    if (!check_head(c, e))
        return false;
    if (!query)
        return rg_refuse_field(e, "query", "'query' must be a text.");
    const char *field = documents_of(c);
    if (!json_is_array(json_object_get(c->body, field)))
        return rg_refuse_field(e, field, "'%s' must be a list of texts.", field);
    return read_texts(c, field, &documents, e) && add_pairs(c, &one, &documents, e);
}

/* One text against one, one against each of a list, or each of a list against its own. */
static bool read_score(rg_call *c, rg_refusal *e)
{
    texts first, second;

    if (!check_head(c, e) || !read_texts(c, "text_1", &first, e) || !read_texts(c, "text_2", &second, e))
        return false;
    if (first.n > 1 && first.n != second.n)
        return rg_refuse_field(e, "text_1",
                               "'text_1' has %zu texts and 'text_2' %zu: want one text in 'text_1', or as "
                               "many in both.",
                               first.n, second.n);
    return add_pairs(c, &first, &second, e);
}

/* ---- the answer -------------------------------------------------------------------------------------------------- */

static double score_of(const rg_call *c, int32_t i)
{
    int32_t n = 0;
    const float *v = rg_request_head_scores(c->requests[i], &n);
    double raw = v ? (double)v[0] : 0;

    return c->f.use_activation ? 1 / (1 + exp(-raw)) : raw;
}

static void write_usage(const rg_call *c, rg_buf *out)
{
    rg_totals t = rg_call_totals(c);

    rg_out_open(out, "usage", '{');
    rg_out_int(out, "prompt_tokens", t.n_prompt);
    rg_out_int(out, "total_tokens", t.n_prompt);
    rg_out_int(out, "completion_tokens", 0);
    rg_out_close(out, '}');
}

static void write_head(const rg_call *c, rg_buf *out)
{
    rg_out_open(out, NULL, '{');
    rg_out_text(out, "id", c->id);
    rg_out_text(out, "object", "list");
    rg_out_int(out, "created", c->created_s);
    rg_out_text(out, "model", c->served->name);
}

static void whole_score(rg_call *c, rg_buf *out)
{
    write_head(c, out);
    rg_out_open(out, "data", '[');
    for (int32_t i = 0; i < c->n_choices; i++) {
        rg_out_open(out, NULL, '{');
        rg_out_int(out, "index", i);
        rg_out_text(out, "object", "score");
        rg_out_real(out, "score", score_of(c, i));
        rg_out_close(out, '}');
    }
    rg_out_close(out, ']');
    write_usage(c, out);
    rg_out_close(out, '}');
}

typedef struct ranked {
    double score;
    int32_t index;
} ranked;

/* The best first; of equal ones the earlier. */
static int by_score(const void *a, const void *b)
{
    const ranked *x = a, *y = b;

    if (x->score != y->score)
        return x->score < y->score ? 1 : -1;
    return (x->index > y->index) - (x->index < y->index);
}

static void write_document(const rg_call *c, int32_t i, rg_buf *out)
{
    const json_t *text = text_of(json_array_get(json_object_get(c->body, documents_of(c)), (size_t)i));

    rg_out_open(out, "document", '{');
    rg_out_string(out, "text", json_string_value(text), json_string_length(text));
    rg_out_close(out, '}');
}

/* As Text Embeddings Inference has it: the list alone, with the texts where they are wanted. */
static void write_plain(const rg_call *c, const ranked *list, int32_t n, rg_buf *out)
{
    rg_out_open(out, NULL, '[');
    for (int32_t i = 0; i < n; i++) {
        const json_t *text = text_of(json_array_get(json_object_get(c->body, "texts"), (size_t)list[i].index));

        rg_out_open(out, NULL, '{');
        rg_out_int(out, "index", list[i].index);
        rg_out_real(out, "score", list[i].score);
        if (json_is_true(json_object_get(c->body, "return_text")))
            rg_out_string(out, "text", json_string_value(text), json_string_length(text));
        rg_out_close(out, '}');
    }
    rg_out_close(out, ']');
}

static void whole_rerank(rg_call *c, rg_buf *out)
{
    int32_t n = c->n_choices, most = c->f.top_n > 0 && c->f.top_n < n ? (int32_t)c->f.top_n : n;
    ranked *list = rg_array((size_t)n, sizeof *list);

    if (!list) {
        c->out.failed = true;
        return;
    }
    for (int32_t i = 0; i < n; i++)
        list[i] = (ranked){ score_of(c, i), i };
    qsort(list, (size_t)n, sizeof *list, by_score);
    if (!strcmp(documents_of(c), "texts")) {
        write_plain(c, list, most, out);
        rg_free(list);
        return;
    }
    write_head(c, out);
    rg_out_open(out, "results", '[');
    for (int32_t i = 0; i < most; i++) {
        rg_out_open(out, NULL, '{');
        rg_out_int(out, "index", list[i].index);
        rg_out_real(out, "relevance_score", list[i].score);
        if (c->f.return_documents)
            write_document(c, list[i].index, out);
        rg_out_close(out, '}');
    }
    rg_out_close(out, ']');
    write_usage(c, out);
    rg_out_close(out, '}');
    rg_free(list);
}

static const rg_shape rerank = { .api = RG_API_RERANK,
                                 .id_prefix = "rerank-",
                                 .embeds = true,
                                 .scores = true,
                                 .input = "documents",
                                 .read = read_rerank,
                                 .whole = whole_rerank };
static const rg_shape score = { .api = RG_API_SCORE,
                                .id_prefix = "score-",
                                .embeds = true,
                                .scores = true,
                                .input = "text_2",
                                .read = read_score,
                                .whole = whole_score };

void rg_api_rerank(rg_served *s, rg_exchange *x)
{
    rg_call_answer(s, x, &rerank);
}

void rg_api_score(rg_served *s, rg_exchange *x)
{
    rg_call_answer(s, x, &score);
}
