/* tokenize.c -- POST /tokenize and /detokenize: text to ids and back. */
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "server/api/fields.h"
#include "server/talk/conversation.h"
#include "server/core.h"
#include "server/json.h"

static const json_t *first_of(const json_t *o, const char *a, const char *b)
{
    const json_t *v = json_object_get(o, a);

    return v ? v : json_object_get(o, b);
}

static void write_pieces(rg_buf *out, rg_served *s, const int32_t *ids, size_t n)
{
    rg_out_open(out, "token_strs", '[');
    for (size_t i = 0; i < n; i++) {
        size_t len = 0;
        char *text = rg_decode(s->engine, &ids[i], 1, false, &len, NULL);
        rg_out_string(out, NULL, text ? text : "", text ? len : 0);
        rg_text_free(text);
    }
    rg_out_close(out, ']');
}

/* with_pieces: each id with its text, or with its bytes where they are no whole characters. */
static void write_ids_with_pieces(rg_buf *out, rg_served *s, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t len;
        const char *text = rg_id_bytes(s->engine, ids[i], false, &len);

        rg_out_open(out, NULL, '{');
        rg_out_int(out, "id", ids[i]);
        if (rg_utf8_valid(text, len)) {
            rg_out_string(out, "piece", text, len);
        } else {
            rg_out_open(out, "piece", '[');
            for (size_t k = 0; k < len; k++)
                rg_out_int(out, NULL, (unsigned char)text[k]);
            rg_out_close(out, ']');
        }
        rg_out_close(out, '}');
    }
}

static const char *const flags[] = { "add_special_tokens", "add_special", "parse_special",
                                     "return_token_strs",  "with_pieces", "add_generation_prompt" };

static bool encode_text(rg_served *s, const json_t *body, int32_t **ids, size_t *n, rg_refusal *e)
{
    const json_t *text = first_of(body, "prompt", "content"), *special = first_of(body, flags[0], flags[1]);
    const bool adds = json_is_boolean(special) ? json_is_true(special) : json_object_get(body, "prompt") != NULL;
    unsigned how = (adds ? 0u : RG_ENCODE_NO_SPECIAL) |
                   (json_is_false(json_object_get(body, "parse_special")) ? RG_ENCODE_PLAIN : 0u);
    rg_error err = { 0 };

    if (!json_is_string(text))
        return rg_refuse_field(e, "prompt", "'prompt' must be a string.");
    if (!rg_encode(s->engine, json_string_value(text), json_string_length(text), how, ids, n, &err))
        return rg_refuse_engine(s, e, &err), false;
    return true;
}

static bool encode_chat(rg_served *s, const json_t *body, int32_t **ids, size_t *n, rg_refusal *e)
{
    rg_conversation talk = { 0 };
    rg_rendered r = { 0 };
    bool ok = rg_chat_conversation(body, &talk, e) &&
              rg_render(s, &talk, !json_is_false(json_object_get(body, "add_generation_prompt")), &r, e);

    rg_conversation_fini(&talk);
    rg_text_free(r.text);
    *ids = r.ids;
    *n = r.n;
    return ok;
}

static bool tokenize(rg_served *s, const json_t *body, rg_buf *out, rg_refusal *e)
{
    int32_t *ids = NULL;
    size_t n = 0;

    for (size_t i = 0; i < RG_LEN(flags); i++) {
        const json_t *v = json_object_get(body, flags[i]);
        if (v && !json_is_boolean(v) && !json_is_null(v))
            return rg_refuse_field(e, flags[i], "'%s' must be true or false.", flags[i]);
    }
    if (!(json_object_get(body, "messages") ? encode_chat : encode_text)(s, body, &ids, &n, e))
        return false;
    rg_out_open(out, NULL, '{');
    rg_out_int(out, "count", (int64_t)n);
    rg_out_int(out, "max_model_len", s->info.max_seq_len);
    rg_out_open(out, "tokens", '[');
    if (json_is_true(json_object_get(body, "with_pieces")))
        write_ids_with_pieces(out, s, ids, n);
    for (size_t i = 0; i < n && !json_is_true(json_object_get(body, "with_pieces")); i++)
        rg_out_int(out, NULL, ids[i]);
    rg_out_close(out, ']');
    if (json_is_true(json_object_get(body, "return_token_strs")))
        write_pieces(out, s, ids, n);
    rg_out_close(out, '}');
    rg_ids_free(ids);
    return true;
}

static bool detokenize(rg_served *s, const json_t *body, rg_buf *out, rg_refusal *e)
{
    const json_t *list = json_object_get(body, "tokens"), *skip = json_object_get(body, "skip_special_tokens");
    int32_t *ids = NULL;
    size_t n = 0, n_text = 0;
    rg_error err = { 0 };
    char *text = NULL;
    bool ok;

    if (!json_is_array(list))
        return rg_refuse_field(e, "tokens", "'tokens' must be a list of token ids.");
    ok = rg_ids_read(list, "tokens", &ids, &n, e);
    for (size_t i = 0; ok && i < n; i++)
        if (ids[i] >= s->info.vocab_size)
            ok = rg_refuse_field(e, "tokens", "'tokens' must hold ids below %d.", (int)s->info.vocab_size);
    if (ok && !(text = rg_decode(s->engine, ids, n, json_is_true(skip), &n_text, &err)))
        rg_refuse_engine(s, e, &err);
    if (text) {
        rg_out_open(out, NULL, '{');
        rg_out_string(out, "prompt", text, n_text);
        rg_out_string(out, "content", text, n_text);
        rg_out_close(out, '}');
    }
    rg_text_free(text);
    rg_free(ids);
    return text != NULL;
}

static void answer(rg_served *s, rg_exchange *x, bool (*make)(rg_served *, const json_t *, rg_buf *, rg_refusal *))
{
    rg_refusal e = { 0 };
    json_t *body = rg_read_object(x, &e);
    rg_buf out;

    rg_buf_init(&out, (size_t)1 << 29);
    if (body && rg_check_model(s, json_string_value(json_object_get(body, "model")), &e) && make(s, body, &out, &e)) {
        rg_reply_json(s, x, &out);
    } else {
        rg_buf_fini(&out);
        rg_reply_refusal(s, x, &e);
    }
    json_decref(body);
}

void rg_api_tokenize(rg_served *s, rg_exchange *x)
{
    answer(s, x, tokenize);
}

void rg_api_detokenize(rg_served *s, rg_exchange *x)
{
    answer(s, x, detokenize);
}
