/* after.c -- any text up to and including the first occurrence of a given text, or any text without it; see source.h.
 *
 * The nodes are the states of the automaton of Knuth, Morris and Pratt over characters: state i is "the last i
 * characters are the first i of the mark".  Each state refers to the next as the last part of a row, so that nothing
 * piles up while a long text is followed. */
#include "base/utf8.h"
#include "grammar/source.h"

enum { MARK_CHARS = 64 };

typedef struct mark {
    uint32_t code[MARK_CHARS], n;
} mark;

/* The state after a character in state i. */
static uint32_t next_state(const mark *m, uint32_t i, uint32_t c)
{
    for (uint32_t k = i + 1; k > 0; k--)
        if (m->code[k - 1] == c && !memcmp(m->code, m->code + i - (k - 1), (k - 1) * sizeof *m->code))
            return k;
    return 0;
}

static bool read_mark(rg_form *f, const char *text, size_t n, mark *m)
{
    for (size_t at = 0; at < n;) {
        uint32_t code;
        int k = rg_utf8_decode(text + at, n - at, &code);
        if (k <= 0 || m->n == MARK_CHARS)
            break;
        m->code[m->n++] = code;
        at += (size_t)k;
        if (at == n)
            return true;
    }
    rg_form_fail(f, RG_E_USAGE, "the text that a grammar begins after must have 1 to %d characters, in UTF-8",
                 MARK_CHARS);
    return false;
}

/* The ways on from state i to states below the last one; all: to that one as well. */
static uint32_t ways_on(rg_form *f, const mark *m, uint32_t i, const uint32_t *state, bool all)
{
    uint32_t way[MARK_CHARS + 3], n_ways = 0;
    rg_chars others = { 0 };

    for (uint32_t k = 0; k < m->n; k++)
        rg_chars_add(f, &others, m->code[k], m->code[k]);
    rg_chars_invert(f, &others);
    way[n_ways++] = RG_SEQ(f, rg_chars_node(f, &others, RG_WRITE_UTF8), state[0]);
    rg_chars_fini(&others);
    for (uint32_t to = 0; to <= i + 1 && (to < m->n || all); to++) {
        rg_chars set = { 0 };
        bool any = false;

        for (uint32_t k = 0; k < m->n; k++)
            if (next_state(m, i, m->code[k]) == to) {
                rg_chars_add(f, &set, m->code[k], m->code[k]);
                any = true;
            }
        if (any)
            way[n_ways++] = RG_SEQ(f, rg_chars_node(f, &set, RG_WRITE_UTF8), state[to]);
        rg_chars_fini(&set);
    }
    if (!all)
        way[n_ways++] = RG_EMPTY;
    return rg_form_alt(f, way, n_ways);
}

static uint32_t follow(rg_form *f, const char *text, size_t n, bool until)
{
    uint32_t state[MARK_CHARS + 1];
    mark m = { .n = 0 };

    if (!read_mark(f, text, n, &m))
        return RG_NEVER;
    for (uint32_t i = 0; i < m.n; i++)
        state[i] = rg_form_ref(f, "the text before", 15);
    state[m.n] = RG_EMPTY;
    for (uint32_t i = 0; i < m.n && !f->failed; i++)
        rg_form_bind(f, state[i], ways_on(f, &m, i, state, until));
    return f->failed ? RG_NEVER : state[0];
}

uint32_t rg_until(rg_form *f, const char *text, size_t n)
{
    return follow(f, text, n, true);
}

uint32_t rg_without(rg_form *f, const char *text, size_t n)
{
    return follow(f, text, n, false);
}
