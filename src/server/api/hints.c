/* hints.c -- see hints.h. */
#include "server/api/hints.h"

#include <string.h>

#include "base/json.h"
#include "base/mem.h"

/* ---- thinking ---------------------------------------------------------------------------------------------------- */

/* A member that is a number of tokens, as the table of fields reads them. */
static bool read_tokens(const json_t *in, const char *member, const char *name, int64_t least, int64_t *to,
                        rg_refusal *e)
{
    const json_t *v = json_object_get(in, member);
    int64_t n;

    if (!v || json_is_null(v))
        return true;
    if (!rg_json_whole(v, &n) || n < least || n > INT32_MAX)
        return rg_refuse_field(e, name, "'%s' must be an integer of %d or more.", name, (int)least);
    *to = n;
    return true;
}

/* RG_NOT_GIVEN: there is none. */
static bool read_budget(const rg_call *c, int64_t *budget, rg_refusal *e)
{
    const json_t *thinking = json_object_get(c->body, "thinking"), *reasoning = json_object_get(c->body, "reasoning");
    const char *type = json_string_value(json_object_get(thinking, "type"));

    *budget = c->f.thinking_budget == RG_UNLIMITED ? RG_NOT_GIVEN : c->f.thinking_budget;
    if (reasoning && !json_is_null(reasoning) && !json_is_object(reasoning))
        return rg_refuse_field(e, "reasoning", "'reasoning' must be an object.");
    return read_tokens(reasoning, "max_tokens", "reasoning.max_tokens", 0, budget, e) &&
           (!type || strcmp(type, "enabled") != 0 ||
            read_tokens(thinking, "budget_tokens", "thinking.budget_tokens", 1, budget, e));
}

static bool encode_mark(const rg_call *c, const char *mark, int32_t **ids, size_t *n, rg_refusal *e)
{
    rg_error err = { 0 };

    return rg_encode(c->served->engine, mark, strlen(mark), RG_ENCODE_NO_SPECIAL, ids, n, &err) || rg_refuse_memory(e);
}

bool rg_thinking_read(rg_call *c, rg_refusal *e)
{
    const rg_talk_use *use = &c->served->use;
    rg_hints *h = &c->hints;
    int64_t budget;
    size_t n_start = 0, n_end = 0;
    int best = 0;

    if (!c->shape->is_chat)
        return true;
    if (!read_budget(c, &budget, e))
        return false;
    if (budget == RG_NOT_GIVEN || !use->thinks || !use->talk->think[0].close)
        return true; /* a model that does not reason is within any budget */
    for (int i = (int)RG_LEN(use->talk->think) - 1; i >= 0; i--) { /* the marks that the vocabulary has as tokens */
        if (!use->talk->think[i].close)
            continue;
        rg_ids_free(h->end);
        h->end = NULL;
        if (!encode_mark(c, use->talk->think[i].close, &h->end, &n_end, e))
            return false;
        best = n_end == 1 ? i : best;
    }
    rg_ids_free(h->end);
    h->end = NULL;
    if (!encode_mark(c, use->talk->think[best].close, &h->end, &n_end, e) ||
        (c->start_at != RG_START_THINKING && !encode_mark(c, use->talk->think[best].open, &h->start, &n_start, e)))
        return false;
    h->thinking = (rg_thinking){ .end = h->end,
                                 .n_end = (int32_t)n_end,
                                 .start = h->start,
                                 .n_start = (int32_t)n_start,
                                 .budget = (int32_t)budget };
    return true;
}

/* ---- a predicted answer ------------------------------------------------------------------------------------------ */

/* {type: content, content: a text, or parts of type text} */
bool rg_prediction_read(rg_call *c, rg_refusal *e)
{
    static const char name[] = "prediction";
    const json_t *v = json_object_get(c->body, name), *content = json_object_get(v, "content"), *part;
    const char *type = json_string_value(json_object_get(v, "type"));
    rg_buf text;
    size_t i;

    if (!(c->shape->api & RG_API_CHAT) || !v || json_is_null(v))
        return true;
    if (!type || strcmp(type, "content") != 0)
        return rg_refuse_field(e, name, "'prediction.type' must be content.");
    if (!json_is_string(content) && !json_is_array(content))
        return rg_refuse_field(e, name, "'prediction.content' must be a text or a list of parts.");
    rg_buf_init(&text, (size_t)1 << 28);
    rg_buf_add(&text, json_is_string(content) ? json_string_value(content) : "", json_string_length(content));
    json_array_foreach(content, i, part)
    {
        const json_t *words = json_object_get(part, "text");

        if (!json_is_string(words)) {
            rg_buf_fini(&text);
            return rg_refuse_field(e, name, "'prediction.content' must have parts of type text, each with a 'text'.");
        }
        rg_buf_add(&text, json_string_value(words), json_string_length(words));
    }
    bool ok = !text.failed &&
              rg_encode(c->served->engine, text.data ? text.data : "", text.n, RG_ENCODE_NO_SPECIAL | RG_ENCODE_PLAIN,
                        &c->hints.predicted, &c->hints.n_predicted, NULL);
    rg_buf_fini(&text);
    return ok || rg_refuse_memory(e);
}

void rg_hints_fini(rg_hints *h)
{
    rg_ids_free(h->start);
    rg_ids_free(h->end);
    rg_ids_free(h->predicted);
}
