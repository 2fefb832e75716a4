/* notation.c -- see notation.h. */
#include "grammar/notation.h"

#include "base/mem.h"

enum { MOST_RULES = 1 << 16 };

void rg_notation_init(rg_notation *t, rg_form *f, const char *text, size_t n)
{
    *t = (rg_notation){ .f = f, .s = text, .n = n, .names = rg_dict_new(64) };
    if (!t->names)
        rg_form_fail(f, RG_E_MEMORY, "out of memory for the rules");
    rg_groups_init(&t->groups, f);
}

void rg_notation_fini(rg_notation *t)
{
    rg_groups_fini(&t->groups);
    rg_dict_free(t->names);
    rg_free(t->rule);
}

void rg_notation_refuse(rg_notation *t, rg_code code, const char *what)
{
    size_t line = 1;

    if (t->f->failed)
        return;
    for (size_t i = 0; i < t->at && i < t->n; i++)
        line += t->s[i] == '\n';
    rg_form_fail(t->f, code, "grammar, line %zu: %s", line, what);
}

/* Room for one more rule. */
static bool make_room(rg_notation *t)
{
    uint32_t room = t->room ? 2 * t->room : 32;
    rg_named_rule *r;

    if (t->n_rules < t->room)
        return true;
    r = t->n_rules < MOST_RULES ? rg_resize_array(t->rule, room, sizeof *r) : NULL;
    if (!r) {
        rg_notation_refuse(t, t->n_rules < MOST_RULES ? RG_E_MEMORY : RG_E_LIMIT,
                           "too many rules, or no memory for them");
        return false;
    }
    t->rule = r;
    t->room = room;
    return true;
}

rg_named_rule *rg_notation_rule(rg_notation *t, const char *name, size_t n)
{
    int at = rg_dict_get(t->names, name, n);

    if (at >= 0)
        return &t->rule[at];
    if (!make_room(t))
        return NULL;
    t->rule[t->n_rules] = (rg_named_rule){ name, n, rg_form_ref(t->f, name, n), false };
    if (!rg_dict_put(t->names, name, n, (int)t->n_rules))
        rg_notation_refuse(t, RG_E_MEMORY, "out of memory for the rules");
    return &t->rule[t->n_rules++];
}

uint32_t rg_notation_start(rg_notation *t, const char *name)
{
    int start = rg_dict_get(t->names, name, strlen(name));

    for (uint32_t i = 0; i < t->n_rules && !t->f->failed; i++)
        if (!t->rule[i].defined)
            rg_form_fail(t->f, RG_E_INPUT, "grammar: rule '%.*s' is used and not defined",
                         (int)(t->rule[i].n < 100 ? t->rule[i].n : 100), t->rule[i].name);
    if (start < 0)
        rg_form_fail(t->f, RG_E_INPUT, "grammar: there is no rule '%s'", name);
    return t->f->failed ? RG_NEVER : t->rule[start].ref;
}

void rg_notation_item(rg_notation *t, uint32_t id)
{
    rg_groups_item(&t->groups, id);
    t->atom = true;
}

void rg_notation_repeat(rg_notation *t, uint32_t min, uint32_t max)
{
    if (!t->atom)
        rg_notation_refuse(t, RG_E_INPUT, "a repetition of nothing");
    rg_groups_repeat(&t->groups, min, max);
}

size_t rg_notation_object(const rg_notation *t)
{
    size_t depth = 0;

    for (size_t i = 0; t->at + i < t->n; i++) {
        int c = rg_notation_peek(t, i);
        if (c == '"')
            for (i++; rg_notation_peek(t, i) >= 0 && rg_notation_peek(t, i) != '"'; i++)
                i += rg_notation_peek(t, i) == '\\';
        depth += c == '{';
        depth -= c == '}' && depth > 0;
        if (!depth)
            return i + 1;
    }
    return 0;
}
