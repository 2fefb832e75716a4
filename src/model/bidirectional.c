/* bidirectional.c -- see bidirectional.h. */
#include "model/bidirectional.h"

#include <string.h>

#include "model/arch.h"

/* What the keys that were read say. */
typedef struct saying {
    bool said, both_ways; /* one of them is there; and one says that rows see each other */
    const char *key;      /* that says so; or, where none does, the last one */
} saying;

static void say(saying *s, const char *key, bool both_ways)
{
    s->said = true;
    s->key = both_ways || !s->both_ways ? key : s->key;
    s->both_ways = s->both_ways || both_ways;
}

/* A boolean, or a word for one: "all" rows, or "vision", whose rows do not occur here. */
static bool read_switch(saying *s, const rg_checkpoint *ckpt, const char *key, bool when_true, rg_error *err)
{
    static const char *const words[] = { "all", "vision", NULL };
    bool yes = false;
    int which = -1, got;

    if (rg_meta_type_of(ckpt, key) == RG_META_STRING) {
        if (!rg_config_choice(ckpt, key, words, &which, err))
            return false;
        say(s, key, which == 0);
        return true;
    }
    got = rg_meta_bool(ckpt, key, &yes, err);
    if (got > 0)
        say(s, key, yes == when_true);
    return got >= 0;
}

static bool read_keys(saying *s, const rg_config *c, const rg_checkpoint *ckpt, char key[128], rg_error *err)
{
    if (c->from_gguf)
        return read_switch(s, ckpt, rg_gguf_key(ckpt, "attention.causal", key), false, err);
    if (!read_switch(s, ckpt, "is_causal", false, err) ||
        !read_switch(s, ckpt, "use_bidirectional_attention", true, err) ||
        !read_switch(s, ckpt, "bidirectional", true, err))
        return false;
    if (rg_arch_class_is_bidirectional(ckpt))
        say(s, "architectures", true);
    return true;
}

/* Layers whose state goes on from row to row, or which choose keys, read rows in their order. */
static bool check_layers(const rg_config *c, const rg_checkpoint *ckpt, const char *key, rg_error *err)
{
    for (int i = 0; i < c->n_layers; i++) {
        rg_keep keep = { 0 };

        rg_layer_kind_of(c, i)->keep(c, i, &keep);
        if (keep.n_buffers || c->layer[i].pattern >= 0)
            return rg_fail(err, RG_E_UNSUPPORTED,
                           "%s: %s asks for attention in both directions, which is not supported for this architecture "
                           "(%s): layer %d reads rows in their order",
                           rg_checkpoint_path(ckpt), key, rg_config_name(c), i);
    }
    return true;
}

bool rg_bidirectional_read(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    saying s = { 0 };
    char key[128];
    bool headless = false;

    if (!read_keys(&s, c, ckpt, key, err) || rg_meta_bool(ckpt, "ridge.headless", &headless, err) < 0)
        return false;
    c->tie_embeddings = c->tie_embeddings && !headless;
    if (c->sees != RG_CAUSAL) { /* an encoder or a diffusion model */
        if (s.said && !s.both_ways && c->sees == RG_SEES_ALL && !strcmp(s.key, "is_causal"))
            return rg_fail(err, RG_E_UNSUPPORTED, "%s: is_causal is true, which is not supported",
                           rg_checkpoint_path(ckpt));
        return true;
    }
    if (!s.both_ways)
        return true;
    if (!check_layers(c, ckpt, s.key, err))
        return false;
    c->sees = RG_SEES_ALL;
    for (int i = 0; i < c->n_layers; i++) {
        rg_layer_config *l = &c->layer[i];

        l->around = l->window > 0;
        if (l->around)
            l->window = (c->arch->halves_window ? l->window / 2 : l->window) + 1;
    }
    return true;
}
