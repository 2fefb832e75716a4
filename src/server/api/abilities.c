/* abilities.c -- see abilities.h. */
#include "server/api/abilities.h"

#include "base/mem.h"

void rg_write_abilities(rg_buf *b, const rg_served *s)
{
    const rg_info *info = &s->info;
    const bool chats = info->generates && !rg_engine_chat_problem(s->engine);
    const struct {
        const char *word;
        bool is;
    } all[] = {
        { "completion", info->generates },
        { "tools", chats && s->use.shows_tools },
        { "thinking", chats && s->use.thinks },
        { "insert", info->generates && s->fim.prefix >= 0 },
        { "embedding", !info->generates && info->embed != RG_POOLING_NONE },
        { "rerank", info->n_labels == 1 },
    };

    rg_out_open(b, "capabilities", '[');
    for (size_t i = 0; i < RG_LEN(all); i++)
        if (all[i].is)
            rg_out_text(b, NULL, all[i].word);
    rg_out_close(b, ']');
}

void rg_write_likely_abilities(rg_buf *b, const rg_model_facts *f)
{
    rg_out_open(b, "capabilities", '[');
    for (int i = 0; i < f->n_abilities; i++)
        rg_out_text(b, NULL, f->abilities[i]);
    rg_out_close(b, ']');
}
