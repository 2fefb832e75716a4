/* models.c -- see models.h. */
#include "cli/models.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "model/model.h"
#include "text/chat.h"

enum { README_BYTES = 1 << 20 };

const char *cli_bytes_text(uint64_t n, char text[32])
{
    const bool large = n >= 1000000000;

    snprintf(text, 32, "%.1f %s", (double)n / (large ? 1e9 : 1e6), large ? "GB" : "MB");
    return text;
}

/* The licence as GGUF's metadata or the front of README.md says it. */
static void look_for_license(cli_model *m, const rg_checkpoint *ckpt)
{
    const char *text;
    char *readme, *line;
    size_t n;

    if (rg_meta_string(ckpt, "general.license", &text, NULL) == 1) {
        snprintf(m->license, sizeof m->license, "%.63s", text);
        return;
    }
    readme = rg_checkpoint_side_file(ckpt, "README.md", &n, NULL);
    line = readme && n < README_BYTES && !strncmp(readme, "---", 3) ? strstr(readme, "\nlicense:") : NULL;
    if (line && line < readme + n) {
        line += strlen("\nlicense:");
        line += strspn(line, " \t\"'");
        snprintf(m->license, sizeof m->license, "%.*s", (int)strcspn(line, "\"' \t\r\n"), line);
    }
    rg_free(readme);
}

static bool has_word(const char *text, const char *const *words)
{
    for (; text && *words; words++)
        if (strstr(text, *words))
            return true;
    return false;
}

static void add_ability(cli_model *m, const char *word, bool is)
{
    if (is)
        m->ability[m->n_abilities++] = word;
}

static void look_at_talk(cli_model *m, const rg_checkpoint *ckpt, bool generates)
{
    static const char *const tools[] = { "tools", NULL };
    static const char *const thinking[] = { "enable_thinking", "reasoning_content", "reasoning_effort", "<think>",
                                            "thinking", NULL };
    rg_chat *chat = generates ? rg_chat_open(ckpt, NULL) : NULL;
    const char *source = chat ? rg_chat_source(chat) : NULL;

    add_ability(m, "tools", has_word(source, tools));
    add_ability(m, "thinking", has_word(source, thinking));
    if (source)
        m->template_text = rg_strdup(source);
    rg_chat_close(chat);
}

static void look_at_model(cli_model *m, const rg_checkpoint *ckpt, const rg_model *model)
{
    const rg_config *c = &model->config;
    const bool generates = rg_config_generates(c);

    snprintf(m->architecture, sizeof m->architecture, "%s",
             c->arch->gguf_name ? c->arch->gguf_name : rg_config_name(c));
    snprintf(m->type, sizeof m->type, "%s", rg_weights_commonest_type(&model->weights));
    m->is_gguf = rg_checkpoint_kind(ckpt) != RG_CKPT_HF;
    m->context = c->max_seq_len;
    m->vocab_size = c->vocab_size;
    m->n_layers = c->n_layers;
    m->dim = c->dim;
    m->n_experts = c->routing.n_experts;
    m->parameters = model->weights.n_parameters;
    look_for_license(m, ckpt);
    add_ability(m, "completion", generates);
    look_at_talk(m, ckpt, generates);
    add_ability(m, "embedding", !generates);
    add_ability(m, "rerank", c->n_labels == 1);
}

void cli_model_look(cli_model *m)
{
    const rg_model_options declared = { .declare_only = true, .declared_type = RG_BF16 };
    rg_error err = { 0 };
    rg_checkpoint *ckpt = rg_checkpoint_open(m->found.path, RG_CKPT_DEFAULT, &err);
    rg_model *model = ckpt ? rg_model_open(ckpt, &declared, &err) : NULL;

    if (model)
        look_at_model(m, ckpt, model);
    else
        snprintf(m->problem, sizeof m->problem, "%s", err.text);
    rg_model_close(model);
    rg_checkpoint_close(ckpt);
}

void cli_model_fini(cli_model *m)
{
    rg_free(m->template_text);
    m->template_text = NULL;
}

void cli_model_json(cli_json *j, const cli_model *m, bool whole)
{
    const bool usable = !m->problem[0];

    cli_json_open(j, NULL, '{');
    cli_json_text(j, "name", m->found.name);
    cli_json_text(j, "path", m->found.path);
    cli_json_text(j, "place", rg_place_name(m->found.place));
    cli_json_u64(j, "bytes", m->found.bytes);
    cli_json_text(j, "problem", usable ? NULL : m->problem);
    if (usable) {
        cli_json_text(j, "architecture", m->architecture);
        cli_json_text(j, "type", m->type);
        cli_json_u64(j, "parameters", m->parameters);
        cli_json_int(j, "context", m->context);
        cli_json_int(j, "vocab_size", m->vocab_size);
        cli_json_int(j, "layers", m->n_layers);
        cli_json_int(j, "dim", m->dim);
        cli_json_int(j, "experts", m->n_experts);
        cli_json_open(j, "capabilities", '[');
        for (int i = 0; i < m->n_abilities; i++)
            cli_json_text(j, NULL, m->ability[i]);
        cli_json_close(j);
        cli_json_text(j, "license", m->license[0] ? m->license : NULL);
        cli_json_bool(j, "has_template", m->template_text);
        if (whole)
            cli_json_text(j, "template", m->template_text);
    }
    cli_json_close(j);
}
