/* dfa.c -- see dfa.h: tables, and words. */
#include "grammar/dfa.h"

#include "base/hash.h"
#include "base/mem.h"
#include "grammar/matcher.h"
#include "grammar/object.h"

enum { STACK_FRAMES = 1 << 14 };

/* ---- a table in the making --------------------------------------------------------------------------------------- */

typedef struct table_key {
    char *data;
    size_t n;
} table_key;

typedef struct table {
    rg_form *f;
    uint8_t class[256]; /* bytes that are alike */
    uint8_t first[256]; /* the first byte of a class */
    uint32_t n_classes;
    uint16_t *next; /* [n][n_classes] */
    uint8_t *ends;
    uint32_t n, room;
    table_key *key; /* [n] what a state stands for */
    rg_dict *known;
} table;

static bool refuse(rg_form *f, rg_code code)
{
    if (code == RG_E_MEMORY)
        rg_form_fail(f, code, "out of memory for a pattern");
    else
        rg_form_fail(f, code, "a pattern, with what else is asked of it, is too large: it needs more than %d states",
                     RG_DFA_STATES);
    return false;
}

/* Tell bytes apart that were alike so far and are of different kinds. */
static void split(table *t, const uint8_t kind[256])
{
    uint16_t head[256], next[256]; /* of a class: the first byte of each kind, as a list; 256: its end */
    uint8_t new[256];
    uint32_t n = 0;

    for (unsigned i = 0; i < 256; i++)
        head[i] = 256;
    for (unsigned c = 0; c < 256; c++) {
        uint32_t k = head[t->class[c]];
        while (k < 256 && kind[k] != kind[c])
            k = next[k];
        new[c] = k < 256 ? new[k] : (uint8_t)n++;
        if (k == 256) {
            next[c] = head[t->class[c]];
            head[t->class[c]] = (uint16_t)c;
        }
    }
    memcpy(t->class, new, sizeof new);
    t->n_classes = n;
}

static bool table_init(table *t, rg_form *f)
{
    *t = (table){ .f = f, .n_classes = 1, .known = rg_dict_new(64) };
    return t->known || refuse(f, RG_E_MEMORY);
}

/* After the last split. */
static void find_first_bytes(table *t)
{
    for (unsigned c = 256; c-- > 0;)
        t->first[t->class[c]] = (uint8_t)c;
}

static void table_fini(table *t)
{
    for (uint32_t i = 0; i < t->n; i++)
        rg_free(t->key[i].data);
    rg_free(t->key);
    rg_free(t->next);
    rg_free(t->ends);
    rg_dict_free(t->known);
}

static bool table_grow(table *t)
{
    uint32_t room = t->room ? 2 * t->room : 64; /* fits: at most RG_DFA_STATES */
    void *next = rg_resize_array(t->next, room, t->n_classes * sizeof *t->next), *ends, *key;

    t->next = next ? next : t->next;
    ends = rg_resize_array(t->ends, room, 1);
    t->ends = ends ? ends : t->ends;
    key = rg_resize_array(t->key, room, sizeof *t->key);
    t->key = key ? key : t->key;
    if (!next || !ends || !key)
        return refuse(t->f, RG_E_MEMORY);
    t->room = room;
    return true;
}

static uint16_t *next_of(const table *t, uint32_t state, uint32_t class)
{
    return &t->next[(size_t)state * t->n_classes + class];
}

/* The state that stands for these bytes, made if there is none; DEAD: a failure. */
static uint16_t state_of(table *t, const void *key, size_t n, uint8_t ends)
{
    int found = rg_dict_get(t->known, key, n);
    char *own;

    if (found >= 0)
        return (uint16_t)found;
    if (t->n == RG_DFA_STATES)
        return refuse(t->f, RG_E_LIMIT), RG_DFA_DEAD;
    if (t->n == t->room && !table_grow(t))
        return RG_DFA_DEAD;
    own = rg_alloc(n);
    if (!own)
        return refuse(t->f, RG_E_MEMORY), RG_DFA_DEAD;
    memcpy(own, key, n);
    memset(next_of(t, t->n, 0), 0xff, t->n_classes * sizeof *t->next);
    t->key[t->n] = (table_key){ own, n };
    t->ends[t->n] = ends;
    if (!rg_dict_put(t->known, own, n, (int)t->n))
        refuse(t->f, RG_E_MEMORY);
    return (uint16_t)t->n++;
}

/* Which states can reach an end. */
static bool find_live(const table *t, uint8_t *live)
{
    for (uint32_t i = 0; i < t->n; i++)
        live[i] = t->ends[i] & RG_DFA_ENDS;
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t i = t->n; i-- > 0;)
            for (uint32_t c = 0; c < t->n_classes && !live[i]; c++)
                if (*next_of(t, i, c) != RG_DFA_DEAD && live[*next_of(t, i, c)])
                    live[i] = 1, changed = true;
    }
    return t->n && live[0];
}

/* Classes with equal columns are one. */
static void find_classes(const table *t, rg_dfa *d, uint8_t of[256])
{
    uint8_t first[256]; /* of each new class: one of the old classes that it stands for */

    d->n_classes = 0;
    for (uint32_t c = 0; c < t->n_classes; c++) {
        uint32_t k = 0;
        bool same = false;
        for (; k < d->n_classes && !same; k += !same) {
            same = true;
            for (uint32_t i = 0; i < t->n && same; i++)
                same = *next_of(t, i, c) == *next_of(t, i, first[k]);
        }
        if (k == d->n_classes)
            first[d->n_classes++] = (uint8_t)c;
        of[c] = (uint8_t)k;
    }
    for (int c = 0; c < 256; c++)
        d->class[c] = of[t->class[c]];
}

/* Make the table small: live states only, and classes of bytes. */
static bool finish(table *t, rg_dfa *out)
{
    uint8_t *live = rg_array(t->n + 1, 1), of[256];        /* fits: at most RG_DFA_STATES */
    uint16_t *number = rg_array(t->n + 1, sizeof *number); /* likewise: fits */
    bool ok = !t->f->failed && ((live && number) || refuse(t->f, RG_E_MEMORY));

    *out = (rg_dfa){ 0 };
    if (ok && find_live(t, live)) {
        for (uint32_t i = 0; i < t->n; i++)
            number[i] = live[i] ? (uint16_t)out->n++ : RG_DFA_DEAD;
        for (uint32_t i = 0; i < t->n; i++)
            for (uint32_t c = 0; c < t->n_classes; c++) {
                uint16_t *to = next_of(t, i, c);
                *to = live[i] && *to != RG_DFA_DEAD ? number[*to] : RG_DFA_DEAD;
            }
        find_classes(t, out, of);
        out->next = rg_array(out->n, out->n_classes * sizeof *out->next); /* fits: both are small */
        out->ends = rg_array(out->n, 1);
        ok = (out->next && out->ends) || refuse(t->f, RG_E_MEMORY);
    }
    for (uint32_t i = 0; ok && i < t->n && out->n; i++) {
        if (number[i] == RG_DFA_DEAD)
            continue;
        out->ends[number[i]] = t->ends[i];
        for (uint32_t c = 0; c < t->n_classes; c++)
            out->next[number[i] * out->n_classes + of[c]] = *next_of(t, i, c);
    }
    rg_free(live);
    rg_free(number);
    if (!ok)
        rg_dfa_fini(out);
    return ok;
}

void rg_dfa_fini(rg_dfa *d)
{
    rg_free(d->next);
    rg_free(d->ends);
    *d = (rg_dfa){ 0 };
}

bool rg_dfa_copy(rg_form *f, const rg_dfa *d, rg_dfa *out)
{
    *out = *d;
    out->next = rg_array(d->n, d->n_classes * sizeof *d->next); /* fits: there is one as large */
    out->ends = rg_array(d->n, 1);
    if (!out->next || !out->ends) {
        rg_dfa_fini(out);
        return refuse(f, RG_E_MEMORY);
    }
    if (d->n) {
        memcpy(out->next, d->next, (size_t)d->n * d->n_classes * sizeof *d->next);
        memcpy(out->ends, d->ends, d->n);
    }
    return true;
}

void rg_dfa_unquote(rg_dfa *d)
{
    uint16_t start = d->n ? rg_dfa_next(d, 0, '"') : RG_DFA_DEAD, last;

    if (start == RG_DFA_DEAD) {
        rg_dfa_fini(d);
        return;
    }
    /* texts end where the closing quote ended them, and begin after the opening one: that state becomes the first */
    for (uint32_t i = 1; i < d->n; i++)
        if ((last = rg_dfa_next(d, (uint16_t)i, '"')) != RG_DFA_DEAD && d->ends[last] & RG_DFA_ENDS)
            d->ends[i] |= RG_DFA_WHOLE;
    for (uint32_t i = 0; i < d->n; i++) {
        if (!i || d->ends[i] & RG_DFA_WHOLE)
            d->next[i * d->n_classes + d->class['"']] = RG_DFA_DEAD;
        d->ends[i] = d->ends[i] & RG_DFA_WHOLE ? RG_DFA_ENDS : 0;
    }
    for (uint32_t c = 0; c < d->n_classes; c++) {
        uint16_t swap = d->next[c];
        d->next[c] = d->next[start * d->n_classes + c];
        d->next[start * d->n_classes + c] = swap;
    }
    d->ends[0] = d->ends[start];
    d->ends[start] = 0;
    for (uint32_t i = 0; i < d->n * d->n_classes; i++)
        d->next[i] = d->next[i] == start ? 0 : d->next[i] == 0 ? start : d->next[i];
}

/* ---- of a form --------------------------------------------------------------------------------------------------- */

/* Bytes are alike if no set, literal or word of the form tells them apart. */
static void split_by_form(table *t, const rg_form *form)
{
    uint8_t single[256] = { 0 }, kind[256];
    uint32_t n = 0, last = UINT32_MAX;

    for (uint32_t i = 0; i < form->n_nodes; i++) {
        const rg_grammar_node *node = &form->node[i];
        for (uint32_t k = 0; node->kind == RG_NODE_LIT && k < node->n; k++)
            if (!single[(uint8_t)form->text[node->a + k]])
                single[(uint8_t)form->text[node->a + k]] = (uint8_t)(n < 255 ? ++n : 255);
        if (node->kind != RG_NODE_SET || node->a == last)
            continue;
        last = node->a;
        for (unsigned c = 0; c < 256; c++)
            kind[c] = rg_set_has(&form->set[last], c);
        split(t, kind);
    }
    split(t, single);
    for (uint32_t i = 0; i < form->n_words; i++)
        split(t, form->word[i].d.class);
}

static void sort_heads(rg_heads *h)
{
    for (uint32_t i = 1; i < h->n; i++) {
        uint32_t id = h->id[i], k = i;
        for (; k && h->id[k - 1] > id; k--)
            h->id[k] = h->id[k - 1];
        h->id[k] = id;
    }
}

/* A table in the making, of a form. */
typedef struct of_form {
    table t;
    const rg_form *form;
    rg_stacks *s;
    rg_heads from, to, past[2];
    bool anchored;
} of_form;

static bool may_end(const of_form *m, const rg_heads *h)
{
    for (uint32_t i = 0; i < h->n; i++)
        if (rg_stack_may_end(m->form, m->s, h->id[i], RG_STACK_END))
            return true;
    return false;
}

/* The form may end here, or after any number of RG_DFA_ENDED. */
static bool ends(of_form *m, const rg_heads *h)
{
    enum { MOST = 8 }; /* a pattern in which more of them follow each other is not written */
    bool end = may_end(m, h);

    for (int i = 0; m->anchored && i < MOST && h->n && !end; i++) {
        rg_step(m->form, m->s, h->id, h->n, RG_DFA_ENDED, &m->past[i & 1]);
        h = &m->past[i & 1];
        end = may_end(m, h);
    }
    return end;
}

static uint16_t state_of_heads(of_form *m, rg_heads *h)
{
    sort_heads(h);
    return state_of(&m->t, h->id, h->n * sizeof *h->id, ends(m, h) ? RG_DFA_ENDS : 0);
}

/* Where a text begins: the root, after any number of RG_DFA_BEGINS. */
static void begin(of_form *m)
{
    m->from.n = 1;
    m->from.id[0] = rg_stacks_push(m->s, m->form->root, 0, RG_STACK_END);
    for (uint32_t i = 0; m->anchored && i < m->from.n; i++) {
        rg_step(m->form, m->s, &m->from.id[i], 1, RG_DFA_BEGINS, &m->to);
        for (uint32_t k = 0; k < m->to.n; k++) {
            uint32_t at = 0;
            while (at < m->from.n && m->from.id[at] != m->to.id[k])
                at++;
            if (at == m->from.n && m->from.n < RG_HEADS)
                m->from.id[m->from.n++] = m->to.id[k];
        }
    }
}

bool rg_dfa_of(rg_form *f, const rg_form *refined, bool anchored, rg_dfa *out)
{
    of_form *m = rg_zalloc(sizeof *m);
    bool ok = m && table_init(&m->t, f);

    *out = (rg_dfa){ 0 };
    if (!m)
        return refuse(f, RG_E_MEMORY);
    m->form = refined;
    m->anchored = anchored;
    m->s = rg_zalloc(sizeof *m->s);
    ok = ok && ((m->s && rg_stacks_init(m->s, STACK_FRAMES)) || refuse(f, RG_E_MEMORY));
    if (ok) {
        split_by_form(&m->t, refined);
        find_first_bytes(&m->t);
        begin(m);
        state_of_heads(m, &m->from);
    }
    for (uint32_t i = 0; ok && i < m->t.n; i++)
        for (uint32_t c = 0; c < m->t.n_classes && ok; c++) {
            if (anchored && m->t.first[c] >= RG_DFA_BEGINS)
                continue;
            memcpy(m->from.id, m->t.key[i].data, m->t.key[i].n);
            rg_step(refined, m->s, m->from.id, (uint32_t)(m->t.key[i].n / sizeof m->from.id[0]), m->t.first[c], &m->to);
            if (m->s->lost)
                refuse(f, RG_E_LIMIT);
            else if (m->to.n) {
                uint16_t to = state_of_heads(m, &m->to);
                *next_of(&m->t, i, c) = to;
            }
            ok = !f->failed;
        }
    ok = finish(&m->t, out) && ok;
    table_fini(&m->t);
    if (m->s)
        rg_stacks_fini(m->s);
    rg_free(m->s);
    rg_free(m);
    return ok;
}

/* ---- of others --------------------------------------------------------------------------------------------------- */

typedef struct pair {
    uint16_t a, b;
} pair;

static uint16_t state_of_pair(table *t, const rg_dfa *a, const rg_dfa *b, bool not_b, pair p)
{
    bool in_b = p.b != RG_DFA_DEAD && b->ends[p.b] & RG_DFA_ENDS, in_a = a->ends[p.a] & RG_DFA_ENDS;

    return state_of(t, &p, sizeof p, (uint8_t)((in_a && in_b != not_b ? RG_DFA_ENDS : 0) | (in_b ? RG_DFA_WHOLE : 0)));
}

bool rg_dfa_both(rg_form *f, const rg_dfa *a, const rg_dfa *b, bool not_b, rg_dfa *out)
{
    table t;
    bool ok = table_init(&t, f);

    *out = (rg_dfa){ 0 };
    split(&t, a->class);
    split(&t, b->class);
    find_first_bytes(&t);
    if (ok && a->n && (b->n || not_b))
        state_of_pair(&t, a, b, not_b, (pair){ 0, b->n ? 0 : RG_DFA_DEAD });
    for (uint32_t i = 0; ok && i < t.n; i++)
        for (uint32_t c = 0; c < t.n_classes && ok; c++) {
            pair p;
            memcpy(&p, t.key[i].data, sizeof p);
            p.a = rg_dfa_next(a, p.a, t.first[c]);
            p.b = p.b == RG_DFA_DEAD ? RG_DFA_DEAD : rg_dfa_next(b, p.b, t.first[c]);
            if (p.a != RG_DFA_DEAD && (not_b || p.b != RG_DFA_DEAD)) {
                uint16_t to = state_of_pair(&t, a, b, not_b, p);
                *next_of(&t, i, c) = to;
            }
            ok = !f->failed;
        }
    ok = finish(&t, out) && ok;
    table_fini(&t);
    return ok;
}

static bool single_bytes(table *t, rg_form *f)
{
    bool ok = table_init(t, f);

    for (unsigned c = 0; c < 256; c++)
        t->class[c] = t->first[c] = (uint8_t)c;
    t->n_classes = 256;
    return ok;
}

bool rg_dfa_chars(rg_form *f, rg_dfa *out)
{
    table t;
    bool ok = single_bytes(&t, f);

    for (int i = 0; ok && i < RG_LEX_DONE; i++) /* a state's number is its key */
        ok = state_of(&t, &i, sizeof i, i == RG_LEX_TEXT ? RG_DFA_ENDS : 0) == i;
    for (int i = 0; ok && i < RG_LEX_DONE; i++)
        for (unsigned c = 0; c < 256; c++) {
            int to = rg_lex(i, (unsigned char)c);
            if (to < RG_LEX_DONE)
                *next_of(&t, (uint32_t)i, c) = (uint16_t)to;
        }
    ok = finish(&t, out) && ok;
    table_fini(&t);
    return ok;
}

bool rg_dfa_multiples(rg_form *f, uint32_t of, rg_dfa *out)
{
    table t;
    bool ok = single_bytes(&t, f);

    for (uint32_t i = 0; ok && i < of + 1; i++) /* the start, then 1 + the remainder */
        ok = state_of(&t, &i, sizeof i, i == 1 ? RG_DFA_ENDS : 0) == i;
    for (uint32_t i = 0; ok && i < of + 1; i++)
        for (uint32_t digit = 0; digit < 10; digit++)
            *next_of(&t, i, '0' + digit) = (uint16_t)(1 + ((i ? i - 1 : 0) * 10 + digit) % of);
    if (ok)
        *next_of(&t, 0, '-') = 0;
    ok = finish(&t, out) && ok;
    table_fini(&t);
    return ok;
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

static uint32_t words_64(uint32_t n_bits)
{
    return (n_bits + 63) / 64;
}

static bool fits_at(const rg_dfa_word *w, uint32_t state, uint32_t k)
{
    return w->fits[(size_t)state * words_64(w->n_bits) + k / 64] >> (k % 64) & 1;
}

/* The states that each state leads to, each once: to[from[i] .. from[i + 1]). */
typedef struct next_states {
    uint32_t *from;
    uint16_t *to;
} next_states;

static bool find_next(const rg_dfa *d, next_states *s)
{
    uint32_t *seen = rg_array(d->n, sizeof *seen), n = 0;

    s->from = rg_array(d->n + 1, sizeof *s->from); /* fits: there are no more than 65,536 */
    s->to = rg_array((size_t)d->n * d->n_classes, sizeof *s->to); /* fits: as the table itself */
    if (seen)
        memset(seen, 0, d->n * sizeof *seen);
    for (uint32_t i = 0; seen && s->from && s->to && i < d->n; i++) {
        s->from[i] = n;
        for (uint32_t c = 0; c < d->n_classes; c++) {
            uint16_t to = d->next[i * d->n_classes + c];
            if (to == RG_DFA_DEAD || seen[to] == i + 1)
                continue;
            seen[to] = i + 1;
            s->to[n++] = to;
        }
        s->from[i + 1] = n;
    }
    rg_free(seen);
    return seen && s->from && s->to;
}

/* The states from which k more characters are possible, by those from which k - 1 are: in `now`, of 0 at first. */
static void find_column(const rg_dfa_word *w, const next_states *s, uint32_t k, const uint8_t *before, uint8_t *now)
{
    for (bool changed = true; changed;) { /* states within a character take more than one turn */
        changed = false;
        for (uint32_t i = w->d.n; i-- > 0;) {
            bool fits = now[i] || (k == 0 && (w->max == RG_FOREVER || w->d.ends[i] & RG_DFA_ENDS));
            for (uint32_t t = s->from[i]; !fits && t < s->from[i + 1]; t++)
                fits = w->d.ends[s->to[t]] & RG_DFA_WHOLE ? k && before[s->to[t]] : now[s->to[t]];
            changed |= fits && !now[i];
            now[i] = fits;
        }
    }
}

/* From k on the answers are those of k. */
static void fill_from(rg_dfa_word *w, const uint8_t *now, uint32_t k)
{
    uint32_t n = words_64(w->n_bits);

    for (uint32_t i = 0; i < w->d.n; i++) {
        uint64_t *bits = w->fits + (size_t)i * n;
        for (uint32_t b = k; now[i] && b < w->n_bits; b = (b / 64 + 1) * 64)
            bits[b / 64] |= ~0ULL << (b % 64) & (w->n_bits - b / 64 * 64 < 64 ? (1ULL << w->n_bits % 64) - 1 : ~0ULL);
    }
}

/* What is possible from a state with k more characters follows from what is with k - 1, so that two columns alike are
 * followed by the same. */
static bool find_fits(rg_form *f, rg_dfa_word *w)
{
    uint32_t n = words_64(w->n_bits);
    next_states next = { 0 };
    bool ok = find_next(&w->d, &next);
    uint8_t *column = rg_array(w->d.n, 2), *now = column, *before = column ? column + w->d.n : NULL;

    w->fits = rg_array(w->d.n, n * sizeof *w->fits); /* fits: at most RG_DFA_STATES x RG_WORD_CHARS bits */
    ok &= column && w->fits;
    if (ok) {
        memset(w->fits, 0, (size_t)w->d.n * n * sizeof *w->fits);
        memset(before, 0, w->d.n);
    }
    for (uint32_t k = 0; ok && k < w->n_bits; k++) {
        uint8_t *last = before;
        memset(now, 0, w->d.n);
        find_column(w, &next, k, before, now);
        if (k > 1 && !memcmp(now, before, w->d.n)) {
            fill_from(w, now, k);
            break;
        }
        for (uint32_t i = 0; i < w->d.n; i++)
            w->fits[(size_t)i * n + k / 64] |= (uint64_t)now[i] << (k % 64);
        before = now;
        now = last;
    }
    rg_free(column);
    rg_free(next.from);
    rg_free(next.to);
    return ok || refuse(f, RG_E_MEMORY);
}

/* Some number of characters more, of from to to, is possible. */
static bool fits_any(const rg_dfa_word *w, uint32_t state, uint32_t from, uint32_t to)
{
    const uint64_t *bits = w->fits + (size_t)state * words_64(w->n_bits);

    for (uint32_t i = from / 64; i <= to / 64; i++) {
        uint64_t low = i == from / 64 ? ~0ULL << (from % 64) : ~0ULL;
        uint64_t high = i == to / 64 ? ~0ULL >> (63 - to % 64) : ~0ULL;
        if (bits[i] & low & high)
            return true;
    }
    return false;
}

/* Some number of characters more leads to a word of an allowed length. */
static bool can_end(const rg_dfa_word *w, uint32_t state, uint32_t count)
{
    uint32_t from = w->min > count ? w->min - count : 0;

    if (!w->n_bits)
        return true;
    if (w->max == RG_FOREVER)
        return fits_at(w, state, from);
    return count <= w->max && from <= w->max - count && fits_any(w, state, from, w->max - count);
}

uint64_t rg_dfa_word_step(const rg_dfa_word *w, uint64_t data, uint8_t byte)
{
    uint32_t state = data & 0xffff, count = (uint32_t)(data >> 16);
    uint16_t to = rg_dfa_next(&w->d, (uint16_t)state, byte);

    if (to == RG_DFA_DEAD)
        return UINT64_MAX;
    if (w->n_bits && w->d.ends[to] & RG_DFA_WHOLE && (w->max != RG_FOREVER || count < w->min))
        count++;
    return can_end(w, to, count) ? to | (uint64_t)count << 16 : UINT64_MAX;
}

bool rg_dfa_word_done(const rg_dfa_word *w, uint64_t data)
{
    return w->d.n && w->d.ends[data & 0xffff] & RG_DFA_ENDS && (!w->n_bits || data >> 16 >= w->min);
}

void rg_dfa_word_fini(rg_dfa_word *w)
{
    rg_dfa_fini(&w->d);
    rg_free(w->fits);
    *w = (rg_dfa_word){ 0 };
}

uint32_t rg_dfa_word_node(rg_form *f, rg_dfa *d, uint32_t min, uint32_t max)
{
    rg_dfa_word w = { .d = *d, .min = min, .max = max };
    uint32_t number;

    *d = (rg_dfa){ 0 };
    if (max != RG_FOREVER && max > RG_WORD_CHARS)
        w.max = RG_WORD_CHARS;
    if (min > RG_WORD_CHARS)
        rg_form_fail(f, RG_E_LIMIT, "a 'minLength' of %u beside a pattern or format, of at most %d", min,
                     RG_WORD_CHARS);
    if (min || max != RG_FOREVER)
        w.n_bits = (w.max == RG_FOREVER ? min : w.max) + 1;
    if (f->failed || !w.d.n || min > max || (w.n_bits && !find_fits(f, &w)) || !can_end(&w, 0, 0)) {
        rg_dfa_word_fini(&w);
        return RG_NEVER;
    }
    number = rg_form_own_word(f, &w);
    return f->failed ? RG_NEVER : rg_form_node(f, (rg_grammar_node){ .kind = RG_NODE_WORD, .a = number });
}
