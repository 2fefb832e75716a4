/* ollama_embed.c -- POST /api/embed and the older /api/embeddings of Ollama: the request of /v1/embeddings in
 * another dress. */
#include <string.h>

#include "server/api/ollama.h"

/* Texts are cut to what the model takes unless the client says otherwise, and there is no stream. */
static bool adapt(rg_call *c, rg_refusal *e)
{
    bool ok = rg_ollama_adapt(c, e);
    const json_t *cut = json_object_get(c->body, "truncate");

    if (ok && (!cut || json_is_null(cut)))
        ok = json_object_set_new(c->body, "truncate", json_true()) == 0 || rg_refuse_memory(e);
    json_object_del(c->body, "stream");
    return ok;
}

static bool is_empty(const json_t *v)
{
    return !v || json_is_null(v) || (json_is_string(v) && !json_string_length(v)) ||
           (json_is_array(v) && !json_array_size(v));
}

/* Nothing to embed asks whether the model is there.  Always false: it has been answered. */
static bool answer_empty(rg_call *c, const char *key, rg_refusal *e)
{
    rg_buf out;

    if (!rg_check_model(c->served, json_string_value(json_object_get(c->body, "model")), e))
        return false;
    rg_buf_init(&out, 4096);
    rg_out_open(&out, NULL, '{');
    if (!strcmp(key, "embeddings"))
        rg_ollama_write_name(&out, "model", rg_call_model(c));
    rg_out_open(&out, key, '[');
    rg_out_close(&out, ']');
    rg_out_close(&out, '}');
    rg_reply_json(c->served, c->x, &out);
    return false;
}

/* ---- /api/embed -------------------------------------------------------------------------------------------------- */

static bool adapt_many(rg_call *c, rg_refusal *e)
{
    return adapt(c, e) && (!is_empty(json_object_get(c->body, "input")) || answer_empty(c, "embeddings", e));
}

static void whole_many(rg_call *c, rg_buf *out)
{
    rg_out_open(out, NULL, '{');
    rg_ollama_write_name(out, "model", rg_call_model(c));
    rg_out_open(out, "embeddings", '[');
    for (int32_t i = 0; i < c->n_choices; i++)
        rg_out_raw(out, NULL, c->choices[i].text.data, c->choices[i].text.n);
    rg_out_close(out, ']');
    rg_ollama_write_durations(out, c, false);
    rg_out_close(out, '}');
}

static const rg_shape many = { .api = RG_API_EMBEDDINGS | RG_API_OLLAMA,
                               .id_prefix = "embd-",
                               .embeds = true,
                               .input = "input",
                               .adapt = adapt_many,
                               .read = rg_embeddings_read,
                               .ended = rg_embeddings_ended,
                               .whole = whole_many };

void rg_api_ollama_embed(rg_served *s, rg_exchange *x)
{
    rg_call_answer(s, x, &many);
}

/* ---- /api/embeddings --------------------------------------------------------------------------------------------- */

static bool adapt_one(rg_call *c, rg_refusal *e)
{
    const json_t *prompt;

    if (!adapt(c, e))
        return false;
    prompt = json_object_get(c->body, "prompt");
    if (!is_empty(prompt) && !json_is_string(prompt))
        return rg_refuse_field(e, "prompt", "'prompt' must be a string.");
    return !is_empty(prompt) || answer_empty(c, "embedding", e);
}

static void whole_one(rg_call *c, rg_buf *out)
{
    rg_out_open(out, NULL, '{');
    rg_out_raw(out, "embedding", c->choices[0].text.data, c->choices[0].text.n);
    rg_out_close(out, '}');
}

static const rg_shape one = { .api = RG_API_EMBEDDINGS | RG_API_OLLAMA,
                              .id_prefix = "embd-",
                              .embeds = true,
                              .input = "prompt",
                              .adapt = adapt_one,
                              .read = rg_embeddings_read,
                              .ended = rg_embeddings_ended,
                              .whole = whole_one };

void rg_api_ollama_embeddings(rg_served *s, rg_exchange *x)
{
    rg_call_answer(s, x, &one);
}
