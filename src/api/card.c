/* card.c -- see card.h. */
#define _GNU_SOURCE 1
#include "api/card.h"

#include <sys/stat.h>

int64_t rg_card_modified_s(const char *path)
{
    struct stat st;

    return stat(path, &st) ? 0 : (int64_t)st.st_mtime;
}

rg_card rg_card_of(const rg_model *m, const rg_chat *chat)
{
    const rg_config *c = &m->config;
    const char *source = chat ? rg_chat_source(chat) : NULL;

    return (rg_card){ .family = c->arch->gguf_name ? c->arch->gguf_name : rg_config_name(c),
                      .weight_type = rg_weights_commonest_type(&m->weights),
                      .chat_template = source ? source : "",
                      .is_gguf = c->from_gguf,
                      .stored_bytes = m->weights.stored_bytes,
                      .context_length = c->max_seq_len,
                      .n_layers = c->n_layers,
                      .ffn_dim = c->ffn_dim,
                      .n_heads = c->n_heads,
                      .n_kv_heads = c->n_kv_heads,
                      .head_dim = c->head_dim,
                      .n_experts = c->routing.n_experts,
                      .n_experts_used = c->routing.n_used,
                      .norm_eps = (double)c->norm_eps,
                      .rope_theta = c->n_ropes ? c->ropes[0].theta : 0 };
}
