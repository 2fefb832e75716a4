/* ollama_models.c -- which models there are, as Ollama's clients ask: /api/tags, /api/show, /api/ps, /api/version,
 * and what manages models, which this server does not. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/sha256.h"
#include "server/api/abilities.h"
#include "server/models.h"
#include "server/api/ollama.h"

/* ---- facts ------------------------------------------------------------------------------------------------------- */

/* 7.6B, 1.1M: three digits at most. */
static void write_size(rg_buf *b, const char *key, double n)
{
    static const struct {
        double unit;
        const char *letter;
    } units[] = { { 1e12, "T" }, { 1e9, "B" }, { 1e6, "M" }, { 1e3, "K" }, { 1, "" } };
    char text[40];
    size_t i = 0;

    while (i + 1 < RG_LEN(units) && n < units[i].unit)
        i++;
    n /= units[i].unit;
    snprintf(text, sizeof text, "%.*f%s", n < 100 && units[i].unit > 1 ? 1 : 0, n, units[i].letter);
    rg_out_text(b, key, text);
}

static void write_upper(rg_buf *b, const char *key, const char *s)
{
    char text[64];
    size_t n = 0;

    for (; s[n] && n + 1 < sizeof text; n++)
        text[n] = (char)toupper((unsigned char)s[n]);
    text[n] = 0;
    rg_out_text(b, key, text);
}

static void write_facts(rg_buf *b, bool is_gguf, const char *family, uint64_t n_parameters, const char *weight_type)
{
    rg_out_open(b, "details", '{');
    rg_out_text(b, "parent_model", "");
    rg_out_text(b, "format", is_gguf ? "gguf" : "safetensors");
    rg_out_text(b, "family", family);
    rg_out_open(b, "families", '[');
    rg_out_text(b, NULL, family);
    rg_out_close(b, ']');
    write_size(b, "parameter_size", (double)n_parameters);
    write_upper(b, "quantization_level", weight_type);
    rg_out_close(b, '}');
}

static void write_details(rg_buf *b, const rg_served *s)
{
    write_facts(b, s->card.is_gguf, s->card.family, s->info.n_parameters, s->card.weight_type);
}

/* A name for the files as they are now: it changes when they do. */
static void write_digest(rg_buf *b, const rg_served *s, const char *name)
{
    char text[1200], hex[65];
    uint8_t sum[32];
    int n = snprintf(text, sizeof text, "%.500s|%.500s|%llu|%lld", name, s->card.path,
                     (unsigned long long)s->card.stored_bytes, (long long)s->card.modified_s);

    rg_sha256(text, (size_t)n, sum);
    for (size_t i = 0; i < sizeof sum; i++)
        snprintf(hex + 2 * i, 3, "%02x", sum[i]);
    rg_out_text(b, "digest", hex);
}

/* Write a model of a list; running: it is in memory. */
static void write_model(rg_buf *b, rg_served *s, const char *name, bool running)
{
    int64_t expires_s = s->server->models ? rg_models_expire_s(s) : 0;

    rg_out_open(b, NULL, '{');
    rg_ollama_write_name(b, "name", name);
    rg_ollama_write_name(b, "model", name);
    if (!running)
        rg_ollama_write_time(b, "modified_at", s->card.modified_s);
    rg_out_int(b, "size", (int64_t)(running ? s->info.weight_bytes : s->card.stored_bytes));
    write_digest(b, s, name);
    write_details(b, s);
    rg_write_abilities(b, s);
    if (running) {
        if (expires_s)
            rg_ollama_write_time(b, "expires_at", expires_s);
        else
            rg_out_text(b, "expires_at", "2318-01-01T00:00:00Z"); /* it stays, as with a keep_alive below 0 */
        rg_out_int(b, "size_vram", 0);
        rg_out_int(b, "context_length", s->info.max_seq_len);
    }
    rg_out_close(b, '}');
}

/* Write what the files of a model say that is not open. */
static void write_closed(rg_buf *b, const rg_served *s)
{
    int64_t modified_s, bytes = (int64_t)rg_models_stored(s, &modified_s);
    const rg_model_facts *f = rg_models_facts(s);

    rg_out_open(b, NULL, '{');
    rg_ollama_write_name(b, "name", s->name);
    rg_ollama_write_name(b, "model", s->name);
    rg_ollama_write_time(b, "modified_at", modified_s);
    rg_out_int(b, "size", bytes);
    rg_out_text(b, "digest", "");
    if (f) {
        write_facts(b, f->is_gguf, f->family, f->n_parameters, f->weight_type);
        rg_write_likely_abilities(b, f);
    } else {
        rg_out_open(b, "details", '{');
        rg_out_close(b, '}');
    }
    rg_out_close(b, '}');
}

static void write_models(rg_buf *b, rg_served *s, bool running)
{
    bool open = rg_served_hold(s);

    if (!open && !running)
        write_closed(b, s);
    if (!open)
        return;
    write_model(b, s, s->name, running);
    for (int32_t i = 0; i < s->info.n_adapters; i++)
        write_model(b, s, rg_engine_adapter(s->engine, i), running);
    rg_served_release(s);
}

static void reply_models(rg_served *s, rg_exchange *x, bool running)
{
    rg_served *each;
    rg_buf out;

    rg_buf_init(&out, 1 << 18);
    rg_out_open(&out, NULL, '{');
    rg_out_open(&out, "models", '[');
    for (int i = 0; (each = rg_server_nth(s->server, i)); i++)
        write_models(&out, each, running);
    rg_out_close(&out, ']');
    rg_out_close(&out, '}');
    rg_reply_json(s, x, &out);
}

void rg_api_ollama_tags(rg_served *s, rg_exchange *x)
{
    reply_models(s, x, false);
}

void rg_api_ollama_ps(rg_served *s, rg_exchange *x)
{
    reply_models(s, x, true);
}

void rg_api_ollama_version(rg_served *s, rg_exchange *x)
{
    rg_buf out;

    rg_buf_init(&out, 4096);
    rg_out_open(&out, NULL, '{');
    rg_out_text(&out, "version", RG_OLLAMA_VERSION);
    rg_out_close(&out, '}');
    rg_reply_json(s, x, &out);
}

/* ---- one model --------------------------------------------------------------------------------------------------- */

static void write_under(rg_buf *b, const rg_served *s, const char *name, int64_t v)
{
    char key[160];

    snprintf(key, sizeof key, "%.60s.%s", s->card.family, name);
    if (v)
        rg_out_int(b, key, v);
}

/* Under GGUF's keys, those of the architecture below its name. */
static void write_info(rg_buf *b, const rg_served *s)
{
    const rg_card *card = &s->card;
    const rg_info *info = &s->info;
    char key[160];

    rg_out_open(b, "model_info", '{');
    rg_out_text(b, "general.architecture", card->family);
    rg_out_text(b, "general.basename", s->name);
    rg_out_int(b, "general.parameter_count", (int64_t)info->n_parameters);
    write_under(b, s, "context_length",
                info->max_seq_len < card->context_length ? info->max_seq_len : card->context_length);
    write_under(b, s, "embedding_length", info->dim);
    write_under(b, s, "block_count", card->n_layers);
    write_under(b, s, "feed_forward_length", card->ffn_dim);
    write_under(b, s, "attention.head_count", card->n_heads);
    write_under(b, s, "attention.head_count_kv", card->n_kv_heads);
    write_under(b, s, "attention.key_length", card->head_dim);
    write_under(b, s, "attention.value_length", card->head_dim);
    write_under(b, s, "expert_count", card->n_experts);
    write_under(b, s, "expert_used_count", card->n_experts_used);
    write_under(b, s, "vocab_size", info->vocab_size);
    if (!info->generates)
        write_under(b, s, "pooling_type", info->embed);
    if (card->rope_theta > 0) {
        snprintf(key, sizeof key, "%.60s.rope.freq_base", card->family);
        rg_out_real(b, key, card->rope_theta);
    }
    if (info->bos_id >= 0)
        rg_out_int(b, "tokenizer.ggml.bos_token_id", info->bos_id);
    if (info->n_eos)
        rg_out_int(b, "tokenizer.ggml.eos_token_id", info->eos_ids[0]);
    rg_out_close(b, '}');
}

/* The sampling that the checkpoint asks for, where it is not neutral: a line each. */
static void write_parameters(rg_buf *b, const rg_served *s)
{
    const rg_sampling *p = &s->info.sampling, neutral = rg_sampling_default();
    const struct {
        const char *name;
        double is, neutral;
    } all[] = {
        { "temperature", (double)p->temperature, (double)neutral.temperature },
        { "top_k", p->top_k, neutral.top_k },
        { "top_p", (double)p->top_p, (double)neutral.top_p },
        { "min_p", (double)p->min_p, (double)neutral.min_p },
        { "typical_p", (double)p->typical_p, (double)neutral.typical_p },
        { "repeat_penalty", (double)p->repetition_penalty, (double)neutral.repetition_penalty },
        { "presence_penalty", (double)p->presence_penalty, (double)neutral.presence_penalty },
        { "frequency_penalty", (double)p->frequency_penalty, (double)neutral.frequency_penalty },
    };
    rg_buf text;

    rg_buf_init(&text, 4096);
    for (size_t i = 0; i < RG_LEN(all); i++)
        if (all[i].is < all[i].neutral || all[i].is > all[i].neutral)
            rg_buf_printf(&text, "%s%-30s %g", text.n ? "\n" : "", all[i].name, all[i].is);
    rg_out_string(b, "parameters", text.data ? text.data : "", text.n);
    rg_buf_fini(&text);
}

static void write_shown(rg_buf *b, const rg_served *s, const char *name)
{
    rg_out_open(b, NULL, '{');
    rg_out_text(b, "license", "");
    rg_out_text(b, "modelfile", "# This server runs the model that it was started with.");
    write_parameters(b, s);
    rg_out_text(b, "template", s->card.chat_template);
    rg_ollama_write_name(b, "model", name);
    write_details(b, s);
    write_info(b, s);
    rg_write_abilities(b, s);
    rg_ollama_write_time(b, "modified_at", s->card.modified_s);
    rg_out_close(b, '}');
}

/* The body's name of a model, in its newer or older field: one that is here, else *e. */
static bool find_model(const rg_served *s, const json_t *body, const char **name, rg_refusal *e)
{
    const json_t *v = json_object_get(body, "model") ? json_object_get(body, "model") : json_object_get(body, "name");
    const char *given = json_string_value(v);

    if (!given || !*given)
        return rg_refuse_field(e, "model", "'model' must be the name of a model.");
    if (!rg_is_model(s, given))
        return rg_refuse_model(s, e);
    *name = rg_find_adapter(s, given) ? rg_find_adapter(s, given) : s->name;
    return true;
}

void rg_api_ollama_show(rg_served *s, rg_exchange *x)
{
    rg_refusal e = { 0 };
    json_t *body = rg_read_object(x, &e);
    const char *name;
    rg_buf out;

    if (body && find_model(s, body, &name, &e)) {
        rg_buf_init(&out, (size_t)1 << 26);
        write_shown(&out, s, name);
        rg_reply_json(s, x, &out);
    } else {
        rg_reply_refusal(s, x, &e);
    }
    json_decref(body);
}

/* ---- what manages models ----------------------------------------------------------------------------------------- */

/* A model that is here need not be fetched. */
void rg_api_ollama_pull(rg_served *s, rg_exchange *x)
{
    rg_refusal e = { 0 };
    json_t *body = rg_read_object(x, &e);
    bool stream = !json_is_false(json_object_get(body, "stream"));
    const char *name;
    rg_buf out;

    if (body && find_model(s, body, &name, &e)) {
        rg_buf_init(&out, 4096);
        rg_out_open(&out, NULL, '{');
        rg_out_text(&out, "status", "success");
        rg_out_close(&out, '}');
        if (stream)
            rg_buf_str(&out, "\n");
        rg_note_answer(s, x, 200);
        rg_exchange_reply(x, 200, stream ? rg_ollama.stream_type : "application/json", &out);
    } else {
        rg_reply_refusal(s, x, &e);
    }
    json_decref(body);
}

void rg_api_ollama_manage(rg_served *s, rg_exchange *x)
{
    rg_refusal e = { 0 };

    rg_refuse(&e, 501, "unsupported_endpoint", NULL,
              "This server runs the models that it was started with, and does not make, copy, push or delete any.");
    rg_reply_refusal(s, x, &e);
}

void rg_api_ollama_blob(rg_served *s, rg_exchange *x)
{
    rg_refusal e = { 0 };

    rg_refuse(&e, 404, "not_found", NULL, "This server keeps no blobs.");
    rg_reply_refusal(s, x, &e);
}
