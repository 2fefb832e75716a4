/* find.c -- which family a template and a vocabulary are of; see talk.h. */
#include <stdio.h>

#include "server/talk/inner.h"

static bool is_alias(const char *aliases, const char *name)
{
    size_t n = strlen(name);

    for (const char *at = aliases; at && (at = strstr(at, name)); at++)
        if (at > aliases && at[-1] == ' ' && at[n] == ' ')
            return true;
    return false;
}

const rg_talk *rg_talk_named(const char *name)
{
    for (const rg_talk *t = rg_talks; t->name; t++)
        if (!strcmp(t->name, name) || (*name && is_alias(t->aliases, name)))
            return t;
    return NULL;
}

static bool shows_sign(const rg_talk *t, const char *rendered)
{
    for (size_t i = 0; i < RG_LEN(t->signs) && t->signs[i]; i++)
        if (strstr(rendered, t->signs[i]))
            return true;
    return false;
}

static bool has_tokens(const rg_talk *t, bool (*has)(void *arg, const char *text), void *arg)
{
    for (size_t i = 0; i < RG_LEN(t->tokens) && t->tokens[i]; i++)
        if (!has(arg, t->tokens[i]))
            return false;
    return t->tokens[0];
}

const rg_talk *rg_talk_of(const char *rendered, bool (*has)(void *arg, const char *text), void *arg)
{
    const rg_talk *last = rg_talks;

    for (const rg_talk *t = rg_talks; t->name; last = t++)
        if (shows_sign(t, rendered))
            return t;
    for (const rg_talk *t = rg_talks; t->name; t++)
        if (has_tokens(t, has, arg))
            return t;
    return last;
}

/* True if the template shows a call in this form. */
static bool shows_form(const rg_talk_form *f, const char *rendered)
{
    char mark[512];

    snprintf(mark, sizeof mark, "%s%s%sridge_probe%s", f->open ? f->open : "", f->list ? " [" : "",
             f->item_open ? f->item_open : "",
             f->way == RG_CALL_PYTHON ? "("
             : f->sep                 ? f->sep
                                      : "");
    for (const char *p = rendered; *p; p++)
        if (rg_mark_match(mark, p, strlen(p) < sizeof mark ? strlen(p) : sizeof mark, true) >= 0)
            return true;
    return false;
}

bool rg_talk_shows_form(const rg_talk *t, const char *rendered)
{
    for (int i = 0; i < RG_TALK_FORMS; i++)
        if (rg_talk_has_form(&t->forms[i]) && shows_form(&t->forms[i], rendered))
            return true;
    return false;
}

const rg_talk_form *rg_talk_form_of(const rg_talk *t, const char *rendered)
{
    for (int i = 0; i < RG_TALK_FORMS; i++)
        if (rg_talk_has_form(&t->forms[i]) && shows_form(&t->forms[i], rendered))
            return &t->forms[i];
    return &t->forms[0];
}

static void give(void (*take)(void *arg, const char *mark), void *arg, const char *mark)
{
    if (mark && *mark)
        take(arg, mark);
}

static void give_form(const rg_talk_form *f, void (*take)(void *arg, const char *mark), void *arg)
{
    const rg_talk_tags *t = f->tags;
    const char *const marks[] = { f->open,
                                  f->close,
                                  f->item_open,
                                  f->sep,
                                  f->sep_rest,
                                  f->item_close,
                                  f->quote,
                                  f->id_mark,
                                  f->name_end,
                                  f->name_after,
                                  t ? t->key_open : NULL,
                                  t ? t->key_close : NULL,
                                  t ? t->key_rest : NULL,
                                  t ? t->value_open : NULL,
                                  t ? t->close : NULL,
                                  t ? t->raw_open : NULL,
                                  t ? t->raw_close : NULL };

    for (size_t i = 0; i < RG_LEN(marks); i++)
        give(take, arg, marks[i]);
}

void rg_talk_marks(const rg_talk *t, void (*take)(void *arg, const char *mark), void *arg)
{
    const rg_talk_heads *h = t->heads;

    for (size_t i = 0; i < RG_LEN(t->think); i++) {
        give(take, arg, t->think[i].open);
        give(take, arg, t->think[i].close);
    }
    for (int i = 0; i < RG_TALK_MARKS; i++)
        give(take, arg, t->silent[i]);
    for (int i = 0; i < RG_TALK_FORMS; i++)
        give_form(&t->forms[i], take, arg);
    for (size_t i = 0; h && i < RG_LEN(h->open); i++)
        give(take, arg, h->open[i]);
    for (size_t i = 0; h && i < RG_LEN(h->end); i++)
        give(take, arg, h->end[i]);
    if (h) {
        give(take, arg, h->body);
        give(take, arg, h->say);
        give(take, arg, h->call);
        give(take, arg, h->call_rest);
        give(take, arg, h->again);
    }
}
