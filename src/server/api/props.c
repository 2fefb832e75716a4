/* props.c -- what llama-server tells of itself: GET /props, /slots, /lora-adapters, and what changes them. */
#include <string.h>

#include "base/json.h"
#include "server/api/abilities.h"
#include "server/api/native.h"

static void write_special(rg_buf *b, const rg_served *s, const char *key, int32_t id)
{
    size_t n = 0;
    const char *text = id < 0 ? "" : rg_id_bytes(s->engine, id, false, &n);

    rg_out_string(b, key, text, n);
}

static void write_modalities(rg_buf *b)
{
    rg_out_open(b, "modalities", '{');
    rg_out_bool(b, "vision", false);
    rg_out_bool(b, "audio", false);
    rg_out_close(b, '}');
}

void rg_api_props(rg_served *s, rg_exchange *x)
{
    rg_buf out;

    rg_buf_init(&out, (size_t)1 << 26);
    rg_out_open(&out, NULL, '{');
    rg_out_open(&out, "default_generation_settings", '{');
    rg_out_int(&out, "id", 0);
    rg_out_int(&out, "id_task", -1);
    rg_out_int(&out, "n_ctx", s->info.max_seq_len);
    rg_out_bool(&out, "speculative", strcmp(s->info.draft, "none") != 0);
    rg_out_bool(&out, "is_processing", false);
    rg_native_settings(&out, "params", s, NULL);
    rg_out_close(&out, '}');
    rg_out_int(&out, "total_slots", s->card.max_seqs);
    rg_out_text(&out, "model_alias", s->name);
    rg_out_text(&out, "model_path", s->card.path);
    write_modalities(&out);
    rg_write_abilities(&out, s);
    rg_out_text(&out, "chat_template", s->card.chat_template);
    rg_out_text(&out, "tool_format", s->use.talk->name);
    write_special(&out, s, "bos_token", s->info.bos_id);
    write_special(&out, s, "eos_token", s->info.n_eos ? s->info.eos_ids[0] : -1);
    rg_out_text(&out, "build_info", "ridge " RG_VERSION);
    rg_out_bool(&out, "is_sleeping", false);
    rg_out_close(&out, '}');
    rg_reply_json(s, x, &out);
}

static void refuse(rg_served *s, rg_exchange *x, const char *text)
{
    rg_refusal e;

    rg_refuse(&e, 501, "unsupported_endpoint", NULL, "%s", text);
    rg_reply_refusal(s, x, &e);
}

/* A slot is a sequence that may run: the engine has no fixed places, so that those that run count as the first ones. */
void rg_api_slots(rg_served *s, rg_exchange *x)
{
    if (s->server->o.no_slots) {
        refuse(s, x, "This server does not tell its slots (--no-slots).");
        return;
    }
    rg_stats now = rg_engine_stats(s->engine);
    rg_buf out;

    rg_buf_init(&out, (size_t)1 << 26);
    rg_out_open(&out, NULL, '[');
    for (int32_t i = 0; i < s->card.max_seqs; i++) {
        rg_out_open(&out, NULL, '{');
        rg_out_int(&out, "id", i);
        rg_out_int(&out, "n_ctx", s->info.max_seq_len);
        rg_out_bool(&out, "speculative", strcmp(s->info.draft, "none") != 0);
        rg_out_bool(&out, "is_processing", i < now.n_running);
        rg_out_close(&out, '}');
    }
    rg_out_close(&out, ']');
    rg_reply_json(s, x, &out);
}

void rg_api_slot_action(rg_served *s, rg_exchange *x)
{
    refuse(s, x,
           "Slots cannot be saved, restored or erased: prefixes are cached by what they hold, and shared by all "
           "requests (cache_prompt: false takes none).");
}

void rg_api_props_set(rg_served *s, rg_exchange *x)
{
    refuse(s, x, "Properties of this server are set by its flags, when it starts.");
}

void rg_api_lora_adapters(rg_served *s, rg_exchange *x)
{
    rg_buf out;

    rg_buf_init(&out, 1 << 18);
    rg_out_open(&out, NULL, '[');
    for (int32_t i = 0; i < s->info.n_adapters; i++) {
        rg_out_open(&out, NULL, '{');
        rg_out_int(&out, "id", i);
        rg_out_text(&out, "path", rg_engine_adapter(s->engine, i));
        rg_out_real(&out, "scale", 0);
        rg_out_close(&out, '}');
    }
    rg_out_close(&out, ']');
    rg_reply_json(s, x, &out);
}

void rg_api_lora_set(rg_served *s, rg_exchange *x)
{
    refuse(s, x, "Adapters are chosen by each request: by its 'model', or by 'lora' with their ids.");
}
