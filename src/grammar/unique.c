/* unique.c -- see dfa.h: arrays whose items differ. */
#include "base/mem.h"
#include "grammar/dfa.h"

enum { MOST_EDGES = 1 << 15, MOST_BYTES = 1 << 10 /* of one of few items */, STATE_AT = 40, HASH_AT = 56 };

static uint32_t hash_on(uint32_t h, uint8_t byte)
{
    return (h * 33 + byte) % RG_UNIQUE_ITEMS;
}

/* ---- few items: each has a number -------------------------------------------------------------------------------- */

/* The texts of a language that has few. */
typedef struct texts {
    const rg_dfa *d;
    char text[RG_UNIQUE_ITEMS][MOST_BYTES];
    uint32_t n, size[RG_UNIQUE_ITEMS];
} texts;

/* All texts, found by following all bytes in turn.  False: they are too many or too long. */
static bool find_texts(texts *t)
{
    uint16_t state[MOST_BYTES + 1] = { 0 };
    int byte[MOST_BYTES + 1] = { 0 };
    char path[MOST_BYTES];
    uint32_t depth = 0;

    for (;;) {
        int c = byte[depth];
        uint16_t to = RG_DFA_DEAD;

        if (c == 0 && t->d->ends[state[depth]] & RG_DFA_ENDS) {
            if (t->n == RG_UNIQUE_ITEMS)
                return false;
            memcpy(t->text[t->n], path, depth);
            t->size[t->n++] = depth;
        }
        while (c < 256 && (to = rg_dfa_next(t->d, state[depth], (uint8_t)c)) == RG_DFA_DEAD)
            c++;
        byte[depth] = c + 1;
        if (c < 256) {
            if (depth == MOST_BYTES)
                return false;
            path[depth++] = (char)c;
            state[depth] = to;
            byte[depth] = 0;
        } else if (depth-- == 0) {
            return true;
        }
    }
}

/* A tree of the texts in place of *d, and the number of each at its end.  False: no memory. */
static bool make_tree(const texts *t, rg_dfa *d, int8_t **number)
{
    uint32_t most = 1;
    rg_dfa tree = { .n = 1, .n_classes = 256 };

    for (uint32_t i = 0; i < t->n; i++)
        most += t->size[i];
    tree.next = rg_array(most, 256 * sizeof *tree.next); /* fits: few texts of few bytes */
    tree.ends = rg_array(most, 1);
    *number = rg_array(most, 1);
    if (!tree.next || !tree.ends || !*number) {
        rg_dfa_fini(&tree);
        return false;
    }
    memset(tree.next, 0xff, (size_t)most * 256 * sizeof *tree.next);
    memset(tree.ends, 0, most);
    for (int c = 0; c < 256; c++)
        tree.class[c] = (uint8_t)c;
    for (uint32_t i = 0; i < t->n; i++) {
        uint16_t at = 0;
        for (uint32_t k = 0; k < t->size[i]; k++) {
            uint16_t *to = &tree.next[at * 256 + (unsigned char)t->text[i][k]];
            if (*to == RG_DFA_DEAD)
                *to = (uint16_t)tree.n++;
            at = *to;
        }
        tree.ends[at] = RG_DFA_ENDS;
        (*number)[at] = (int8_t)i;
    }
    rg_dfa_fini(d);
    *d = tree;
    return true;
}

/* ---- what can be reached ----------------------------------------------------------------------------------------- */

static uint64_t *reach_of(const rg_unique *u, uint32_t state, uint32_t h)
{
    return &u->reach[(size_t)state * RG_UNIQUE_ITEMS + h];
}

static uint64_t class_at(const rg_unique *u, uint32_t state, uint32_t h)
{
    return u->d.ends[state] & RG_DFA_ENDS ? 1ULL << (u->number ? (uint32_t)u->number[state] : h) : 0;
}

/* Until nothing changes.  False: there are too many ways to look at. */
static bool find_reach(rg_unique *u)
{
    const uint64_t every = (1ULL << RG_UNIQUE_ITEMS) - 1;
    size_t n_edges = 0;

    for (uint32_t i = 0; i < u->d.n; i++)
        for (int c = 0; c < 256; c++)
            n_edges += rg_dfa_next(&u->d, (uint16_t)i, (uint8_t)c) != RG_DFA_DEAD;
    if (n_edges > MOST_EDGES)
        return false;
    memset(u->reach, 0, (size_t)u->d.n * RG_UNIQUE_ITEMS * sizeof *u->reach);
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t i = u->d.n; i-- > 0;)
            for (uint32_t h = 0; h < RG_UNIQUE_ITEMS; h++) {
                uint64_t all = class_at(u, i, h);
                if (*reach_of(u, i, h) == every)
                    continue;
                for (int c = 0; c < 256 && all != every; c++) {
                    uint16_t to = rg_dfa_next(&u->d, (uint16_t)i, (uint8_t)c);
                    all |= to == RG_DFA_DEAD ? 0 : *reach_of(u, to, hash_on(h, (uint8_t)c));
                }
                changed |= all != *reach_of(u, i, h);
                *reach_of(u, i, h) = all;
            }
    }
    return true;
}

/* ---- building ---------------------------------------------------------------------------------------------------- */

void rg_unique_fini(rg_unique *u)
{
    rg_dfa_fini(&u->d);
    rg_free(u->number);
    rg_free(u->reach);
    *u = (rg_unique){ 0 };
}

static bool no_memory(rg_form *f)
{
    rg_form_fail(f, RG_E_MEMORY, "out of memory for an array whose items differ");
    return false;
}

/* True if such arrays can be followed; false with or without a failure. */
static bool prepare(rg_form *f, rg_unique *u)
{
    texts *t = rg_zalloc(sizeof *t);
    bool ok = t != NULL;

    if (!ok)
        return no_memory(f);
    t->d = &u->d;
    if (u->d.n && find_texts(t))
        ok = make_tree(t, &u->d, &u->number) || no_memory(f);
    rg_free(t);
    u->reach = ok ? rg_array(u->d.n, RG_UNIQUE_ITEMS * sizeof *u->reach) : NULL; /* fits: few states */
    if (ok && !u->reach)
        return no_memory(f);
    return ok && u->d.n && find_reach(u);
}

uint32_t rg_unique_node(rg_form *f, rg_dfa *d, uint32_t min, uint32_t max, uint32_t space)
{
    rg_unique u = { .d = *d, .min = min, .max = max, .space = space };
    uint32_t number;

    *d = (rg_dfa){ 0 };
    if (f->failed || !prepare(f, &u) || (uint32_t)__builtin_popcountll(*reach_of(&u, 0, 0)) < min) {
        rg_unique_fini(&u);
        return RG_NEVER;
    }
    number = f->n_uniques;
    u.item = rg_form_node(f, (rg_grammar_node){ .kind = RG_NODE_UNIQUE_ITEM, .a = number });
    u.next = rg_form_node(f, (rg_grammar_node){ .kind = RG_NODE_UNIQUE_NEXT, .a = number });
    u.edges = rg_form_slice(f, (const uint32_t[]){ u.item, u.next, space }, RG_UNIQUE_EDGES);
    number = rg_form_own_unique(f, &u);
    return f->failed ? RG_NEVER : rg_form_node(f, (rg_grammar_node){ .kind = RG_NODE_UNIQUE, .a = number });
}

/* ---- for the matcher --------------------------------------------------------------------------------------------- */

uint64_t rg_unique_step(const rg_unique *u, uint64_t data, uint8_t byte)
{
    uint64_t taken = RG_UNIQUE_TAKEN(data);
    uint32_t state = data >> STATE_AT & 0xffff, h = (uint32_t)(data >> HASH_AT);
    uint16_t to = rg_dfa_next(&u->d, (uint16_t)state, byte);

    h = hash_on(h, byte);
    if (to == RG_DFA_DEAD || !(*reach_of(u, to, h) & ~taken))
        return UINT64_MAX;
    return taken | (uint64_t)to << STATE_AT | (uint64_t)h << HASH_AT;
}

bool rg_unique_done(const rg_unique *u, uint64_t data, uint64_t *taken)
{
    uint64_t bit = class_at(u, data >> STATE_AT & 0xffff, (uint32_t)(data >> HASH_AT));

    *taken = RG_UNIQUE_TAKEN(data) | bit;
    return bit & ~RG_UNIQUE_TAKEN(data);
}

bool rg_unique_may_go_on(const rg_unique *u, uint64_t taken)
{
    return (uint32_t)__builtin_popcountll(taken) < u->max && (*reach_of(u, 0, 0) & ~taken);
}

bool rg_unique_may_close(const rg_unique *u, uint64_t taken)
{
    return (uint32_t)__builtin_popcountll(taken) >= u->min;
}
