/* after.c -- any text up to and including the first occurrence of a given text; see source.h.
 *
 * The nodes are the states of the automaton of Knuth, Morris and Pratt: state i is "the last i bytes are the first i of
 * the mark".  Each state refers to the next as the last part of a row, so that nothing piles up while a long text is
 * followed. */
#include "grammar/source.h"

enum { MARK_BYTES = 64 };

/* The state after byte c in state i of the mark m. */
static uint32_t next_state(const char *m, uint32_t i, char c)
{
    for (uint32_t k = i + 1; k > 0; k--)
        if (m[k - 1] == c && !memcmp(m, m + i - (k - 1), k - 1))
            return k;
    return 0;
}

uint32_t rg_until(rg_form *f, const char *mark)
{
    uint32_t n = (uint32_t)strlen(mark), state[MARK_BYTES + 1], beyond;
    rg_chars others = { 0 };

    if (!n || n > MARK_BYTES) {
        rg_form_fail(f, RG_E_USAGE, "the text that a grammar begins after must have 1 to %d bytes", MARK_BYTES);
        return RG_NEVER;
    }
    for (uint32_t i = 0; i < n; i++) {
        state[i] = rg_form_ref(f, "the text before", 15);
        if ((unsigned char)mark[i] >= 0x80)
            rg_form_fail(f, RG_E_USAGE, "the text that a grammar begins after must be ASCII");
    }
    state[n] = RG_EMPTY;
    rg_chars_add(f, &others, 0x80, 0x10ffff);
    beyond = rg_chars_node(f, &others, RG_WRITE_UTF8);
    rg_chars_fini(&others);
    for (uint32_t i = 0; i < n && !f->failed; i++) {
        uint32_t way[MARK_BYTES + 2], n_ways = 0;

        way[n_ways++] = RG_SEQ(f, beyond, state[0]);
        for (uint32_t to = 0; to <= i + 1; to++) {
            rg_set set = { 0 };
            bool any = false;

            for (unsigned c = 0; c < 0x80; c++)
                if (next_state(mark, i, (char)c) == to) {
                    rg_set_add(&set, c, c);
                    any = true;
                }
            if (any)
                way[n_ways++] = RG_SEQ(f, rg_form_set(f, &set), state[to]);
        }
        rg_form_bind(f, state[i], rg_form_alt(f, way, n_ways));
    }
    return f->failed ? RG_NEVER : state[0];
}
