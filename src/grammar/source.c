/* source.c -- see source.h: what the parsers share, and lists of choices. */
#include "grammar/source.h"

#include "base/mem.h"
#include "grammar/json.h"

void rg_groups_init(rg_groups *g, rg_form *f)
{
    g->f = f;
    g->depth = 0;
    g->level[0] = (rg_group_level){ 0 };
}

void rg_groups_fini(rg_groups *g)
{
    for (int i = 0; i <= g->depth; i++) {
        rg_list_fini(&g->level[i].alternatives);
        rg_list_fini(&g->level[i].items);
    }
    g->depth = -1;
}

void rg_groups_open(rg_groups *g)
{
    if (g->depth == RG_SOURCE_DEPTH)
        rg_form_fail(g->f, RG_E_LIMIT, "groups nested deeper than %d", RG_SOURCE_DEPTH);
    else
        g->level[++g->depth] = (rg_group_level){ 0 };
}

void rg_groups_bar(rg_groups *g)
{
    rg_group_level *l = &g->level[g->depth];

    rg_list_add(g->f, &l->alternatives, rg_form_seq(g->f, l->items.id, l->items.n));
    l->items.n = 0;
}

uint32_t rg_groups_end(rg_groups *g)
{
    rg_group_level *l = &g->level[g->depth];
    uint32_t made;

    rg_groups_bar(g);
    made = rg_form_alt(g->f, l->alternatives.id, l->alternatives.n);
    l->alternatives.n = 0;
    return made;
}

void rg_groups_close(rg_groups *g)
{
    uint32_t made = rg_groups_end(g);

    if (g->depth == 0)
        return;
    rg_list_fini(&g->level[g->depth].alternatives);
    rg_list_fini(&g->level[g->depth].items);
    g->depth--;
    rg_groups_item(g, made);
}

void rg_groups_item(rg_groups *g, uint32_t id)
{
    rg_list_add(g->f, &g->level[g->depth].items, id);
}

bool rg_groups_empty(const rg_groups *g)
{
    return g->level[g->depth].items.n == 0;
}

void rg_groups_repeat(rg_groups *g, uint32_t min, uint32_t max)
{
    rg_list *items = &g->level[g->depth].items;

    if (items->n && !g->f->failed)
        items->id[items->n - 1] = rg_form_rep(g->f, items->id[items->n - 1], min, max);
}

/* A number of up to 10 digits; 0 digits: false. */
static bool number(const char *s, size_t n, size_t *at, uint64_t *value)
{
    size_t from = *at;

    for (*value = 0; *at < n && s[*at] >= '0' && s[*at] <= '9'; ++*at)
        if (*value < 1ULL << 40)
            *value = *value * 10 + (uint64_t)(s[*at] - '0');
    return *at > from;
}

int rg_braces(rg_form *f, const char *s, size_t n, size_t *at, uint32_t range[2])
{
    size_t i = *at + 1;
    uint64_t min = 0, max = 0;
    bool has_min = number(s, n, &i, &min), comma = i < n && s[i] == ',', has_max;

    i += comma;
    has_max = comma && number(s, n, &i, &max);
    if (i >= n || s[i] != '}' || (!has_min && !has_max))
        return 0;
    if (!comma)
        max = min;
    if (min > RG_REPEAT_MIN || ((has_max || !comma) && max >= RG_FOREVER)) {
        rg_form_fail(f, RG_E_LIMIT, "a repetition of %llu times or more: at least %d times can be asked for, and %u "
                     "allowed", (unsigned long long)(min > RG_REPEAT_MIN ? min : max), RG_REPEAT_MIN, RG_FOREVER - 1);
        return -1;
    }
    if (comma && has_max && max < min) {
        rg_form_fail(f, RG_E_INPUT, "a repetition {%u,%u} whose bounds are in the wrong order", (uint32_t)min,
                     (uint32_t)max);
        return -1;
    }
    range[0] = (uint32_t)min;
    range[1] = comma && !has_max ? RG_FOREVER : (uint32_t)max;
    *at = i + 1;
    return 1;
}

bool rg_hex(const char *s, size_t n, size_t *at, int digits, uint32_t *value)
{
    *value = 0;
    for (int i = 0; i < digits; i++, ++*at) {
        char c = *at < n ? s[*at] : 0;
        int v = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' &&
                c <= 'F' ? c - 'A' + 10 : -1;
        if (v < 0)
            return false;
        *value = *value << 4 | (uint32_t)v;
    }
    return true;
}

uint32_t rg_choice(rg_form *f, const char *text, size_t n)
{
    json_t *doc = rg_grammar_json(f, "choices", text, n), *v;
    size_t count = json_array_size(doc), i;
    rg_literal *word = rg_array(count, sizeof *word);
    uint32_t made = RG_NEVER;

    if (!word)
        rg_form_fail(f, RG_E_MEMORY, "out of memory for %zu choices", count);
    if (doc && !json_is_array(doc))
        rg_form_fail(f, RG_E_INPUT, "choices are not a list of texts");
    if (!f->failed && !count)
        rg_form_fail(f, RG_E_INPUT, "the list of choices is empty");
    if (!f->failed) {
        json_array_foreach(doc, i, v) {
            if (!json_is_string(v)) {
                rg_form_fail(f, RG_E_INPUT, "choice %zu is not a text", i);
                break;
            }
            word[i] = (rg_literal){ json_string_value(v), json_string_length(v) };
        }
    }
    if (!f->failed)
        made = rg_form_words(f, word, (uint32_t)count);
    rg_free(word);
    json_decref(doc);
    return made;
}
