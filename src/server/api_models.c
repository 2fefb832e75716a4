/* api_models.c -- GET /v1/models and /v1/models/NAME: the one model there is, and its adapters. */
#include <string.h>

#include "server/abilities.h"
#include "server/core.h"
#include "server/json.h"

/* adapter NULL: the model itself. */
static void write_model(rg_buf *b, const rg_server *s, const char *adapter)
{
    rg_out_open(b, NULL, '{');
    rg_out_text(b, "id", adapter ? adapter : s->o.model);
    rg_out_text(b, "object", "model");
    rg_out_int(b, "created", s->started_s);
    rg_out_text(b, "owned_by", "ridge");
    if (adapter)
        rg_out_text(b, "parent", s->o.model);
    rg_write_abilities(b, s);
    rg_out_int(b, "max_model_len", s->info.max_seq_len);
    rg_out_open(b, "meta", '{');
    rg_out_text(b, "architecture", s->info.architecture);
    rg_out_int(b, "n_params", (int64_t)s->info.n_parameters);
    rg_out_int(b, "n_vocab", s->info.vocab_size);
    rg_out_int(b, "n_ctx", s->info.max_seq_len);
    rg_out_int(b, "size", (int64_t)s->info.weight_bytes);
    rg_out_bool(b, "chat_template", rg_chat_has_template(s->engine));
    rg_out_close(b, '}');
    rg_out_close(b, '}');
}

void rg_api_models(rg_server *s, rg_exchange *x)
{
    rg_buf out;

    rg_buf_init(&out, 1 << 18);
    rg_out_open(&out, NULL, '{');
    rg_out_text(&out, "object", "list");
    rg_out_open(&out, "data", '[');
    write_model(&out, s, NULL);
    for (int32_t i = 0; i < s->info.n_adapters; i++)
        write_model(&out, s, rg_engine_adapter(s->engine, i));
    rg_out_close(&out, ']');
    rg_out_close(&out, '}');
    rg_reply_json(s, x, &out);
}

void rg_api_model(rg_server *s, rg_exchange *x)
{
    const char *name = rg_exchange_path(x) + strlen("/v1/models/");
    rg_refusal e = { 0 };
    rg_buf out;

    if (!rg_is_model(s, name) && !rg_refuse_model(s, &e)) {
        rg_reply_refusal(s, x, &e);
        return;
    }
    rg_buf_init(&out, 1 << 16);
    write_model(&out, s, rg_find_adapter(s, name));
    rg_reply_json(s, x, &out);
}
