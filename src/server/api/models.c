/* models.c -- GET /v1/models and /v1/models/NAME: the models there are, open or not, and their adapters. */
#include <stdio.h>
#include <string.h>

#include "server/api/abilities.h"
#include "server/core.h"
#include "server/json.h"
#include "server/models.h"

/* What is known of an open model. */
static void write_facts(rg_buf *b, const rg_served *s)
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

/* What is known of a model that is not open. */
static void write_likely_facts(rg_buf *b, const rg_served *s)
{
    const rg_model_facts *f = rg_models_facts(s);
    int64_t modified_s;

    if (f) {
        rg_write_likely_abilities(b, f);
        rg_out_int(b, "max_model_len", f->context);
    }
    rg_out_open(b, "meta", '{');
    if (f) {
        rg_out_text(b, "architecture", f->family);
        rg_out_int(b, "n_params", (int64_t)f->n_parameters);
        rg_out_int(b, "n_vocab", f->vocab_size);
        rg_out_int(b, "n_ctx", f->context);
    }
    rg_out_int(b, "size", (int64_t)rg_models_stored(s, &modified_s));
    if (f)
        rg_out_bool(b, "chat_template", f->has_template);
    rg_out_close(b, '}');
}

/* adapter NULL: the model itself.  open: it is held. */
static void write_model(rg_buf *b, const rg_served *s, const char *adapter, bool open)
{
    rg_out_open(b, NULL, '{');
    rg_out_text(b, "id", adapter ? adapter : s->name);
    rg_out_text(b, "object", "model");
    rg_out_int(b, "created", s->server->started_s);
    rg_out_text(b, "owned_by", "ridge");
    if (adapter)
        rg_out_text(b, "parent", s->name);
    if (s->server->models)
        rg_out_bool(b, "loaded", open);
    if (open)
        write_facts(b, s);
    else
        write_likely_facts(b, s);
    rg_out_close(b, '}');
}

static void write_with_adapters(rg_buf *b, rg_served *s)
{
    bool open = rg_served_hold(s);

    write_model(b, s, NULL, open);
    for (int32_t i = 0; open && i < s->info.n_adapters; i++)
        write_model(b, s, rg_engine_adapter(s->engine, i), true);
    if (open)
        rg_served_release(s);
}

/* A client of Anthropic's asks: it sends the version of its API. */
static bool is_anthropic(const rg_exchange *x)
{
    return rg_exchange_header(x, "anthropic-version") != NULL;
}

enum { NAME_ROOM = 600 };

/* The same in Anthropic's form; last: its name, for the end of a list. */
static void write_for_anthropic(rg_buf *b, const rg_served *s, const char *name, char last[NAME_ROOM])
{
    rg_out_open(b, NULL, '{');
    rg_out_text(b, "type", "model");
    rg_out_text(b, "id", name);
    rg_out_text(b, "display_name", name);
    rg_out_time(b, "created_at", s->server->started_s);
    rg_out_close(b, '}');
    snprintf(last, NAME_ROOM, "%s", name);
}

static void list_for_anthropic(rg_served *s, rg_exchange *x)
{
    char last[NAME_ROOM] = "";
    rg_served *each;
    rg_buf out;

    rg_buf_init(&out, 1 << 20);
    rg_out_open(&out, NULL, '{');
    rg_out_open(&out, "data", '[');
    for (int i = 0; (each = rg_server_nth(s->server, i)); i++) {
        bool open = rg_served_hold(each);
        write_for_anthropic(&out, each, each->name, last);
        for (int32_t k = 0; open && k < each->info.n_adapters; k++)
            write_for_anthropic(&out, each, rg_engine_adapter(each->engine, k), last);
        if (open)
            rg_served_release(each);
    }
    rg_out_close(&out, ']');
    rg_out_text(&out, "first_id", s->name);
    rg_out_text(&out, "last_id", last);
    rg_out_bool(&out, "has_more", false);
    rg_out_close(&out, '}');
    rg_reply_json(s, x, &out);
}

void rg_api_models(rg_served *s, rg_exchange *x)
{
    if (is_anthropic(x)) {
        list_for_anthropic(s, x);
        return;
    }
    rg_served *each;
    rg_buf out;

    rg_buf_init(&out, 1 << 20);
    rg_out_open(&out, NULL, '{');
    rg_out_text(&out, "object", "list");
    rg_out_open(&out, "data", '[');
    for (int i = 0; (each = rg_server_nth(s->server, i)); i++)
        write_with_adapters(&out, each);
    rg_out_close(&out, ']');
    rg_out_close(&out, '}');
    rg_reply_json(s, x, &out);
}

void rg_api_model(rg_served *s, rg_exchange *x)
{
    const char *name = rg_exchange_path(x) + strlen("/v1/models/");
    rg_refusal e = { 0 };
    rg_buf out;

    rg_served *each = rg_models_find(s->server, name);
    if (!each) {
        rg_refuse_model(s, &e);
        rg_reply_refusal(s, x, &e);
        return;
    }
    rg_buf_init(&out, 1 << 16);
    bool open = rg_served_hold(each);
    const char *adapter = rg_find_adapter(each, name);
    char shown[NAME_ROOM];
    if (is_anthropic(x))
        write_for_anthropic(&out, each, adapter ? adapter : each->name, shown);
    else
        write_model(&out, each, adapter, open);
    if (open)
        rg_served_release(each);
    rg_reply_json(s, x, &out);
}
