/* api_models.c -- GET /v1/models and /v1/models/NAME: the models there are, open or not, and their adapters. */
#include <string.h>

#include "server/abilities.h"
#include "server/core.h"
#include "server/json.h"
#include "server/models.h"

/* What is known of an open model. */
static void write_facts(rg_buf *b, const rg_server *s)
{
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
}

/* adapter NULL: the model itself.  open: it is held. */
static void write_model(rg_buf *b, const rg_server *s, const char *adapter, bool open)
{
    int64_t modified_s;

    rg_out_open(b, NULL, '{');
    rg_out_text(b, "id", adapter ? adapter : s->o.model);
    rg_out_text(b, "object", "model");
    rg_out_int(b, "created", s->started_s);
    rg_out_text(b, "owned_by", "ridge");
    if (adapter)
        rg_out_text(b, "parent", s->o.model);
    if (s->models)
        rg_out_bool(b, "loaded", open);
    if (open) {
        write_facts(b, s);
    } else {
        rg_out_open(b, "meta", '{');
        rg_out_int(b, "size", (int64_t)rg_models_stored(s, &modified_s));
        rg_out_close(b, '}');
    }
    rg_out_close(b, '}');
}

static void write_with_adapters(rg_buf *b, rg_server *s)
{
    bool open = rg_server_hold(s);

    write_model(b, s, NULL, open);
    for (int32_t i = 0; open && i < s->info.n_adapters; i++)
        write_model(b, s, rg_engine_adapter(s->engine, i), true);
    if (open)
        rg_server_release(s);
}

void rg_api_models(rg_server *s, rg_exchange *x)
{
    rg_server *each;
    rg_buf out;

    rg_buf_init(&out, 1 << 20);
    rg_out_open(&out, NULL, '{');
    rg_out_text(&out, "object", "list");
    rg_out_open(&out, "data", '[');
    for (int i = 0; (each = rg_server_nth(s, i)); i++)
        write_with_adapters(&out, each);
    rg_out_close(&out, ']');
    rg_out_close(&out, '}');
    rg_reply_json(s, x, &out);
}

void rg_api_model(rg_server *s, rg_exchange *x)
{
    const char *name = rg_exchange_path(x) + strlen("/v1/models/");
    rg_refusal e = { 0 };
    rg_buf out;

    rg_server *each = rg_models_find(s, name);
    if (!each) {
        rg_refuse_model(s, &e);
        rg_reply_refusal(s, x, &e);
        return;
    }
    rg_buf_init(&out, 1 << 16);
    bool open = rg_server_hold(each);
    write_model(&out, each, rg_find_adapter(each, name), open);
    if (open)
        rg_server_release(each);
    rg_reply_json(s, x, &out);
}
