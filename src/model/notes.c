/* notes.c -- see notes.h. */
#include "model/notes.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "model/arch.h"

enum { NOTES_ROOM = 1 << 16, FEW = 8 };

typedef struct unknown_keys {
    const rg_config *c;
    char own[64]; /* "<architecture>.": with which GGUF's keys of the model begin */
    rg_buf names; /* of the first FEW, quoted */
    int n;
} unknown_keys;

/* null and "" ask for nothing; a GGUF key of another program is no setting of the model. */
static void visit(void *arg, const char *key, rg_meta_type type, bool understood)
{
    unknown_keys *u = arg;

    if (understood || type == RG_META_NULL || type == RG_META_OBJECT)
        return;
    if (u->c->from_gguf && strncmp(key, u->own, strlen(u->own)) != 0)
        return;
    if (u->n++ < FEW)
        rg_buf_printf(&u->names, "%s'%.100s'", u->n > 1 ? ", " : "", key);
}

static void add_not_followed(rg_buf *b, const rg_config *c)
{
    for (int i = 0; i < RG_MAX_NOT_FOLLOWED && c->not_followed[i]; i++)
        rg_buf_printf(b, "%sconfig.json's %s is not followed: transformers computes this class without it",
                      b->n ? "\n" : "", c->not_followed[i]);
}

static void add_unknown(rg_buf *b, const rg_config *c, const rg_checkpoint *ckpt)
{
    unknown_keys u = { .c = c };
    char name[128];

    snprintf(u.own, sizeof u.own, "%s", rg_gguf_key(ckpt, "", name));
    rg_buf_init(&u.names, NOTES_ROOM);
    rg_meta_each(ckpt, visit, &u);
    if (u.n) {
        rg_buf_printf(b, "%s%s: the setting%s %s", b->n ? "\n" : "", c->from_gguf ? "metadata" : "config.json",
                      u.n > 1 ? "s" : "", u.names.data ? u.names.data : "");
        if (u.n > FEW)
            rg_buf_printf(b, " and %d more", u.n - FEW);
        rg_buf_printf(b, " %s not known and %s ignored", u.n > 1 ? "are" : "is", u.n > 1 ? "are" : "is");
    }
    rg_buf_fini(&u.names);
}

/* The head is used that config.json's key denies. */
static void add_head(rg_buf *b, const rg_config *c)
{
    const char *key = "tie_word_embeddings";

    for (size_t i = 0; i < c->arch->n_keys; i++)
        if (c->arch->keys[i].at == offsetof(rg_config, tie_embeddings) && c->arch->keys[i].hf)
            key = c->arch->keys[i].hf;
    rg_buf_printf(b,
                  "config.json's %s is true, but the file has a head that differs from the embedding: the file's head "
                  "is used",
                  key);
}

char *rg_notes(const rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    rg_buf b;

    rg_buf_init(&b, NOTES_ROOM);
    if (c->head_differs)
        add_head(&b, c);
    add_not_followed(&b, c);
    add_unknown(&b, c, ckpt);
    char *text = rg_strdup(b.data ? b.data : "");
    if (!text)
        rg_fail_memory(err, b.n + 1);
    rg_buf_fini(&b);
    return text;
}
