/* scorer.c -- see scorer.h. */
#include "server/api/scorer.h"

#include <string.h>

#include "server/models.h"

/* The text of the last message of a user. */
static const json_t *last_question(const json_t *body)
{
    const json_t *messages = json_object_get(body, "messages"), *found = NULL;

    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *m = json_array_get(messages, i);
        const char *role = json_string_value(json_object_get(m, "role"));

        if (role && !strcmp(role, "user"))
            found = json_object_get(m, "content");
    }
    return found;
}

/* What answers to the i-th prompt are to fit, as a text; NULL: it is not known. */
static const json_t *question_of(const rg_call *c, int32_t i)
{
    const json_t *v = c->shape->is_chat ? last_question(c->body) : json_object_get(c->body, c->shape->input);

    if (json_is_array(v))
        v = json_array_get(v, (size_t)i);

    return json_is_string(v) ? v : NULL;
}

bool rg_scorer_find(rg_call *c, rg_refusal *e)
{
    rg_served *s;

    if (!c->f.scorer)
        return true;
    s = rg_models_find(c->served->server, c->f.scorer);
    if (!s)
        return rg_refuse(e, 404, "model_not_found", "scorer", "The model '%.200s' does not exist.", c->f.scorer);
    if (!rg_served_hold(s))
        return rg_refuse(e, 503, "model_not_open", "scorer",
                         "The scorer '%.200s' is not open: ask it for a score "
                         "first.",
                         c->f.scorer);
    c->scorer_served = s;
    if (!s->info.n_labels)
        return rg_refuse_field(e, "scorer", "The model '%.200s' scores no pairs of texts: 'scorer' must be a reranker.",
                               c->f.scorer);
    for (int32_t i = 0; i < c->n_prompts && !c->f.scorer_query; i++)
        if (!question_of(c, i))
            return rg_refuse_field(e, "scorer_query",
                                   "'scorer_query' must say what answers are to fit: the prompt is "
                                   "no text.");
    return true;
}

void rg_scorer_release(rg_call *c)
{
    if (c->scorer_served)
        rg_served_release(c->scorer_served);
    c->scorer_served = NULL;
}

const rg_scorer *rg_scorer_of(rg_call *c, int32_t i)
{
    const json_t *question = c->f.scorer_query ? NULL : question_of(c, i);

    if (!c->scorer_served)
        return NULL;
    c->scorer = (rg_scorer){ .reranker = c->scorer_served->engine,
                             .query = question ? json_string_value(question) : c->f.scorer_query };
    c->scorer.n_query = strlen(c->scorer.query);
    return &c->scorer;
}
