/* fim.c -- see fim.h. */
#include "server/api/fim.h"

#include <string.h>

#include "base/mem.h"

/* Marks as vocabularies write them.  suffix_first: the text after the gap comes first, and no mark behind the other. */
static const struct {
    const char *prefix, *suffix, *middle, *repo, *file;
    bool suffix_first;
} families[] = {
    { "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>", false },
    { "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", NULL, "<|file_separator|>", false },
    { "<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<reponame>", "<filename>", false },
    { "<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<repo_name>", "<file_sep>", false },
    { "<fim-prefix>", "<fim-suffix>", "<fim-middle>", NULL, NULL, false },
    { "<|fim▁begin|>", "<|fim▁hole|>", "<|fim▁end|>", NULL, NULL, false },
    { "<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>", NULL, NULL, false },
    { "▁<PRE>", "▁<SUF>", "▁<MID>", NULL, NULL, false },
    { "<PRE>", "<SUF>", "<MID>", NULL, NULL, false },
    { "<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>", NULL, NULL, false },
    { "[PREFIX]", "[SUFFIX]", NULL, NULL, NULL, true },
    { "<FIM_PREFIX>", "<FIM_SUFFIX>", "<FIM_MIDDLE>", NULL, NULL, false },
};

/* The id of a mark that is one token; -1: it is none, or there is no such mark. */
static int32_t id_of(const rg_engine *engine, const char *mark)
{
    int32_t *ids = NULL, id = -1;
    size_t n = 0;

    if (!mark || !rg_encode(engine, mark, strlen(mark), RG_ENCODE_NO_SPECIAL, &ids, &n, NULL))
        return -1;
    if (n == 1)
        id = ids[0];
    rg_ids_free(ids);
    return id;
}

void rg_fim_learn(rg_fim *f, const rg_engine *engine)
{
    *f = (rg_fim){ -1, -1, -1, -1, -1, false };
    for (size_t i = 0; i < RG_LEN(families); i++) {
        rg_fim is = { .prefix = id_of(engine, families[i].prefix),
                      .suffix = id_of(engine, families[i].suffix),
                      .middle = id_of(engine, families[i].middle),
                      .repo = id_of(engine, families[i].repo),
                      .file = id_of(engine, families[i].file),
                      .suffix_first = families[i].suffix_first };
        bool whole = is.prefix >= 0 && is.suffix >= 0 && (is.middle >= 0 || is.suffix_first);

        if (whole && (f->prefix < 0 || (f->file < 0 && is.file >= 0)))
            *f = is;
    }
}

static bool mark(rg_mixed *p, int32_t id, rg_refusal *e)
{
    return id < 0 || rg_mixed_add(p, &id, 1, e);
}

static bool text(rg_mixed *p, const rg_served *s, const char *t, rg_refusal *e)
{
    return rg_mixed_text(p, s, t, strlen(t), RG_ENCODE_NO_SPECIAL | RG_ENCODE_PLAIN, e);
}

/* Each file with its name, behind a mark where the vocabulary has one. */
static bool write_files(rg_mixed *p, const rg_served *s, const rg_fim_prompt *prompt, rg_refusal *e)
{
    bool ok = !prompt->n_files || s->fim.repo < 0 || (mark(p, s->fim.repo, e) && text(p, s, "project\n", e));

    for (size_t i = 0; ok && i < prompt->n_files; i++)
        ok = mark(p, s->fim.file, e) && text(p, s, s->fim.file < 0 ? "\n--- " : "", e) &&
             text(p, s, prompt->files[i].name, e) && text(p, s, "\n", e) && text(p, s, prompt->files[i].text, e);
    return ok && (!prompt->n_files || s->fim.file < 0 || (mark(p, s->fim.file, e) && text(p, s, "filename\n", e)));
}

bool rg_fim_write(rg_mixed *p, const rg_served *s, const rg_fim_prompt *prompt, rg_refusal *e)
{
    const rg_fim *f = &s->fim;

    if (f->prefix < 0)
        return rg_refuse(e, 501, "unsupported_endpoint", NULL,
                         "This model does not support insert: its vocabulary has no marks to fill in the middle.");
    if (!rg_mixed_begin(p, s, e) || !write_files(p, s, prompt, e))
        return false;
    if (f->suffix_first)
        return mark(p, f->suffix, e) && text(p, s, prompt->suffix, e) && mark(p, f->prefix, e) &&
               text(p, s, prompt->prefix, e) && text(p, s, prompt->start, e);
    return mark(p, f->prefix, e) && text(p, s, prompt->prefix, e) && mark(p, f->suffix, e) &&
           text(p, s, prompt->suffix, e) && mark(p, f->middle, e) && text(p, s, prompt->start, e);
}

bool rg_fim_take(rg_call *c, const rg_fim_prompt *prompt, rg_refusal *e)
{
    rg_mixed ids;

    rg_mixed_init(&ids);
    bool ok = rg_fim_write(&ids, c->served, prompt, e) && rg_mixed_take(&ids, c, e);
    rg_mixed_fini(&ids);
    return ok;
}
