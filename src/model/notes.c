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
    if (u->c->from_gguf && strncmp(key, u->own, strlen(u->own)) != 0 &&
        strncmp(key, RG_SAMPLING_KEYS, strlen(RG_SAMPLING_KEYS)) != 0)
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

typedef struct sought_key {
    const char *key;
    bool asked;
} sought_key;

static void visit_sought(void *arg, const char *key, rg_meta_type type, bool understood)
{
    sought_key *s = arg;

    s->asked = s->asked || (understood && type > RG_META_NULL && !strcmp(key, s->key));
}

/* True if the key has a value that the architecture asked for: reading another would say that it is known. */
static bool is_asked(const rg_checkpoint *ckpt, const char *key)
{
    sought_key s = { .key = key };

    rg_meta_each(ckpt, visit_sought, &s);
    return s.asked;
}

/* A rope's number beside its settings, which they have too, and another. */
static void add_overruled(rg_buf *b, const rg_checkpoint *ckpt)
{
    static const struct {
        const char *beside, *member;
    } numbers[] = {
        { "rope_theta", "rope_theta" },
        { "partial_rotary_factor", "partial_rotary_factor" },
        { "rotary_pct", "partial_rotary_factor" },
    };
    static const char *const objects[] = { "rope_parameters.", "rope_parameters.full_attention." };
    char key[96];

    for (size_t i = 0; i < RG_LEN(numbers); i++) {
        double beside = 0, within = 0;

        for (size_t k = 0; k < RG_LEN(objects) && is_asked(ckpt, numbers[i].beside); k++) {
            snprintf(key, sizeof key, "%s%s", objects[k], numbers[i].member);
            if (rg_meta_float(ckpt, key, &within, NULL) > 0 &&
                rg_meta_float(ckpt, numbers[i].beside, &beside, NULL) > 0 && beside != within)
                rg_buf_printf(b, "%sconfig.json's %s %g is not followed: %s is %g", b->n ? "\n" : "", numbers[i].beside,
                              beside, key, within);
        }
    }
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
    add_overruled(&b, ckpt);
    add_unknown(&b, c, ckpt);
    char *text = rg_strdup(b.data ? b.data : "");
    if (!text)
        rg_fail_memory(err, b.n + 1);
    rg_buf_fini(&b);
    return text;
}
