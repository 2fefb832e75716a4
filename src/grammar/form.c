/* form.c -- see form.h: building. */
#include "grammar/form.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/mem.h"
#include "grammar/dfa.h"
#include "grammar/object.h"

enum {
    SET_SLOTS = 2 * RG_FORM_SETS,
    FEW = 16, /* kids that need no list of their own */
};

void rg_form_fail(rg_form *f, rg_code code, const char *fmt, ...)
{
    char text[sizeof f->err->text];
    va_list args;

    if (f->failed)
        return;
    f->failed = true;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < 32 || *p == 127)
            *p = '?'; /* sources are quoted */
    rg_fail(f->err, code, "%s", text);
}

/* Room for n more of `each` bytes in *p; no more than most in all. */
static bool grow(rg_form *f, void **p, uint32_t *room, uint32_t have, size_t n, size_t each, uint32_t most)
{
    uint32_t want = *room ? *room : 64;
    void *q;

    if (f->failed)
        return false;
    if (n > most - have) {
        rg_form_fail(f, RG_E_LIMIT, "the grammar is too large (more than %u parts of a kind)", most);
        return false;
    }
    if (have + n <= *room)
        return true;
    while (want < have + n)
        want *= 2;
    q = rg_resize_array(*p, want, each);
    if (!q) {
        f->failed = true;
        return rg_fail_memory(f->err, want * each);
    }
    *p = q;
    *room = want;
    return true;
}

bool rg_form_init(rg_form *f, rg_error *err)
{
    static const rg_set none;

    *f = (rg_form){ .err = err, .set_index = rg_array(SET_SLOTS, sizeof(uint32_t)) };
    if (!f->set_index)
        return rg_fail_memory(err, SET_SLOTS * sizeof(uint32_t));
    rg_form_own_set(f, &none);
    rg_form_keep(f, "", 0); /* the name of nodes without one */
    for (uint32_t i = 0; i < RG_FIRST_FREE; i++)
        rg_form_node(f, (rg_grammar_node){ .kind = (uint8_t)(i == RG_NEVER ? RG_NODE_ALT : i) });
    return !f->failed;
}

void rg_form_fini(rg_form *f)
{
    for (uint32_t i = 0; i < f->n_objects; i++)
        rg_object_fini(&f->object[i]);
    for (uint32_t i = 0; i < f->n_words; i++)
        rg_dfa_word_fini(&f->word[i]);
    for (uint32_t i = 0; i < f->n_uniques; i++)
        rg_unique_fini(&f->unique[i]);
    rg_free(f->word);
    rg_free(f->unique);
    rg_free(f->node);
    rg_free(f->kid);
    rg_free(f->set);
    rg_free(f->set_index);
    rg_free(f->text);
    rg_free(f->object);
    *f = (rg_form){ 0 };
}

size_t rg_form_bytes(const rg_form *f)
{
    return f->room_nodes * sizeof *f->node + f->room_kids * sizeof *f->kid + f->room_sets * sizeof *f->set +
           SET_SLOTS * sizeof *f->set_index + f->room_text + f->room_objects * sizeof *f->object +
           2 * f->n_keys * sizeof(rg_key_node) + f->table_bytes;
}

static size_t dfa_bytes(const rg_dfa *d)
{
    return d->n * (d->n_classes * sizeof *d->next + 1);
}

uint32_t rg_form_own_word(rg_form *f, rg_dfa_word *w)
{
    void *p = f->word;

    if (!grow(f, &p, &f->room_words, f->n_words, 1, sizeof *w, RG_FORM_WORDS)) {
        rg_dfa_word_fini(w);
        return 0;
    }
    f->word = p;
    f->word[f->n_words] = *w;
    f->table_bytes += dfa_bytes(&w->d) + (size_t)w->d.n * w->n_bits / 8;
    return f->n_words++;
}

uint32_t rg_form_own_unique(rg_form *f, rg_unique *u)
{
    void *p = f->unique;

    if (!grow(f, &p, &f->room_uniques, f->n_uniques, 1, sizeof *u, RG_FORM_WORDS)) {
        rg_unique_fini(u);
        return 0;
    }
    f->unique = p;
    f->unique[f->n_uniques] = *u;
    f->table_bytes += dfa_bytes(&u->d) + u->d.n * RG_UNIQUE_ITEMS * sizeof *u->reach;
    return f->n_uniques++;
}

void rg_list_add(rg_form *f, rg_list *l, uint32_t id)
{
    void *p = l->id;

    if (grow(f, &p, &l->room, l->n, 1, sizeof *l->id, RG_FORM_KIDS)) {
        l->id = p;
        l->id[l->n++] = id;
    }
}

void rg_list_fini(rg_list *l)
{
    rg_free(l->id);
    *l = (rg_list){ 0 };
}

uint32_t rg_form_node(rg_form *f, rg_grammar_node node)
{
    void *p = f->node;

    if (!grow(f, &p, &f->room_nodes, f->n_nodes, 1, sizeof *f->node, RG_FORM_NODES))
        return RG_NEVER;
    f->node = p;
    f->node[f->n_nodes] = node;
    return f->n_nodes++;
}

uint32_t rg_form_own_set(rg_form *f, const rg_set *set)
{
    uint32_t at = (uint32_t)rg_hash(set, sizeof *set, 0) & (SET_SLOTS - 1);
    void *p;

    for (; f->set_index[at]; at = (at + 1) & (SET_SLOTS - 1))
        if (!memcmp(&f->set[f->set_index[at] - 1], set, sizeof *set))
            return f->set_index[at] - 1;
    p = f->set;
    if (!grow(f, &p, &f->room_sets, f->n_sets, 1, sizeof *f->set, RG_FORM_SETS))
        return 0;
    f->set = p;
    f->set[f->n_sets] = *set;
    f->set_index[at] = ++f->n_sets;
    return f->n_sets - 1;
}

uint32_t rg_form_set(rg_form *f, const rg_set *set)
{
    return rg_form_node(f, (rg_grammar_node){ .kind = RG_NODE_SET, .a = rg_form_own_set(f, set) });
}

uint32_t rg_form_range(rg_form *f, unsigned from, unsigned to)
{
    rg_set set = { 0 };

    rg_set_add(&set, from, to);
    return rg_form_set(f, &set);
}

uint32_t rg_form_keep(rg_form *f, const char *s, size_t n)
{
    void *p = f->text;

    if (!grow(f, &p, &f->room_text, f->n_text, n + 1, 1, RG_FORM_TEXT))
        return 0;
    f->text = p;
    if (n)
        memcpy(f->text + f->n_text, s, n);
    f->text[f->n_text + n] = 0;
    f->n_text += (uint32_t)n + 1;
    return f->n_text - (uint32_t)n - 1;
}

uint32_t rg_form_lit(rg_form *f, const char *s, size_t n)
{
    uint32_t at;

    if (!n)
        return RG_EMPTY;
    at = rg_form_keep(f, s, n);
    return rg_form_node(f, (rg_grammar_node){ .kind = RG_NODE_LIT, .a = at, .n = (uint32_t)n });
}

uint32_t rg_form_str(rg_form *f, const char *s)
{
    return rg_form_lit(f, s, strlen(s));
}

uint32_t rg_form_slice(rg_form *f, const uint32_t *id, uint32_t n)
{
    void *p = f->kid;

    if (!grow(f, &p, &f->room_kids, f->n_kids, n, sizeof *f->kid, RG_FORM_KIDS))
        return 0;
    f->kid = p;
    if (n)
        memcpy(f->kid + f->n_kids, id, n * sizeof *id);
    f->n_kids += n;
    return f->n_kids - n;
}

/* How many of id[0, n), from the first on, are literals that can be joined into one; *bytes: their length. */
static uint32_t literals(const rg_form *f, const uint32_t *id, uint32_t n, size_t *bytes)
{
    uint32_t i;

    *bytes = 0;
    for (i = 0; i < n && f->node[id[i]].kind == RG_NODE_LIT; i++)
        *bytes += f->node[id[i]].n;
    return i;
}

static uint32_t join(rg_form *f, const uint32_t *id, uint32_t n, size_t bytes)
{
    char *s;
    size_t at = 0;
    uint32_t lit;

    if (n == 1)
        return id[0];
    s = rg_alloc(bytes);
    if (!s) {
        rg_form_fail(f, RG_E_MEMORY, "out of memory for a text of %zu bytes", bytes);
        return RG_NEVER;
    }
    for (uint32_t i = 0; i < n; i++) {
        memcpy(s + at, f->text + f->node[id[i]].a, f->node[id[i]].n);
        at += f->node[id[i]].n;
    }
    lit = rg_form_lit(f, s, bytes);
    rg_free(s);
    return lit;
}

uint32_t rg_form_seq(rg_form *f, const uint32_t *id, uint32_t n)
{
    uint32_t few[FEW], made;
    rg_list l = n <= FEW ? (rg_list){ few, 0, FEW } : (rg_list){ 0 };

    for (uint32_t i = 0; i < n && !f->failed;) {
        size_t bytes;
        uint32_t some = literals(f, id + i, n - i, &bytes);

        if (some)
            rg_list_add(f, &l, join(f, id + i, some, bytes));
        else if (id[i] != RG_EMPTY)
            rg_list_add(f, &l, id[i]);
        i += some ? some : 1;
    }
    if (l.n < 2) {
        made = f->failed ? RG_NEVER : l.n ? l.id[0] : RG_EMPTY;
    } else {
        made = rg_form_slice(f, l.id, l.n);
        made = rg_form_node(f, (rg_grammar_node){ .kind = RG_NODE_SEQ, .a = made, .n = l.n });
    }
    if (l.id != few)
        rg_list_fini(&l);
    return made;
}

/* The literals of l leave it for one tree. */
static void gather(rg_form *f, rg_list *l)
{
    rg_literal *word = rg_array(l->n, sizeof *word);
    char *text = rg_alloc(f->n_text); /* a copy: the tree's own literals make f->text move */
    uint32_t n = 0, rest = 0;

    if (!word || !text) {
        rg_form_fail(f, RG_E_MEMORY, "out of memory for %u alternatives", l->n);
    } else {
        memcpy(text, f->text, f->n_text);
        for (uint32_t i = 0; i < l->n; i++) {
            const rg_grammar_node *node = &f->node[l->id[i]];
            if (node->kind == RG_NODE_LIT)
                word[n++] = (rg_literal){ text + node->a, node->n };
            else
                l->id[rest++] = l->id[i];
        }
        l->n = rest;
        rg_list_add(f, l, rg_form_words(f, word, n));
    }
    rg_free(word);
    rg_free(text);
}

uint32_t rg_form_alt(rg_form *f, const uint32_t *id, uint32_t n)
{
    uint32_t n_lit = 0, few[FEW], made;
    rg_list l = n <= FEW ? (rg_list){ few, 0, FEW } : (rg_list){ 0 };

    for (uint32_t i = 0; i < n && !f->failed; i++) {
        n_lit += f->node[id[i]].kind == RG_NODE_LIT;
        if (id[i] != RG_NEVER)
            rg_list_add(f, &l, id[i]);
    }
    if (n_lit > 8 && !f->failed)
        gather(f, &l);
    if (l.n > RG_FORM_WIDE)
        rg_form_fail(f, RG_E_LIMIT, "%u alternatives that are no plain texts, of at most %d", l.n, RG_FORM_WIDE);
    if (l.n < 2) {
        made = f->failed || !l.n ? RG_NEVER : l.id[0];
    } else {
        made = rg_form_slice(f, l.id, l.n);
        made = rg_form_node(f, (rg_grammar_node){ .kind = RG_NODE_ALT, .a = made, .n = l.n });
    }
    if (l.id != few)
        rg_list_fini(&l);
    return made;
}

uint32_t rg_form_rep(rg_form *f, uint32_t body, uint32_t min, uint32_t max)
{
    if (max == 0 || body == RG_EMPTY)
        return RG_EMPTY;
    if (max == 1)
        return min ? body : rg_form_opt(f, body);
    return rg_form_node(f, (rg_grammar_node){ .kind = RG_NODE_REP, .a = body, .min = min, .max = max });
}

uint32_t rg_form_ref(rg_form *f, const char *name, size_t n)
{
    uint32_t at = rg_form_keep(f, name, n);

    return rg_form_node(f, (rg_grammar_node){ .kind = RG_NODE_REF, .a = RG_NEVER, .n = at });
}

void rg_form_bind(rg_form *f, uint32_t ref, uint32_t target)
{
    if (!f->failed)
        f->node[ref].a = target;
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

static int by_text(const void *a, const void *b)
{
    const rg_literal *x = a, *y = b;
    int order = memcmp(x->text, y->text, x->n < y->n ? x->n : y->n);

    return order ? order : (x->n > y->n) - (x->n < y->n);
}

/* The tree over the sorted words is built from its leaves: open nodes lie on a stack, each with the edges made so far.
 * */
typedef struct branch {
    size_t depth;  /* bytes above it */
    uint32_t from; /* where its edges begin in the list */
} branch;

typedef struct tree {
    rg_form *f;
    branch *open;
    uint32_t n_open;
    rg_list edges;
} tree;

/* Node `top` is complete: it becomes one edge, of the bytes of text between its parent (at depth) and it. */
static void close_branch(tree *t, const char *text, size_t depth)
{
    branch *b = &t->open[t->n_open - 1];
    uint32_t n = t->edges.n - b->from, made;

    if (t->f->failed)
        return;
    made = n == 1 ? t->edges.id[b->from] : rg_form_slice(t->f, t->edges.id + b->from, n);
    if (n > 1)
        made = rg_form_node(t->f, (rg_grammar_node){ .kind = RG_NODE_ALT, .a = made, .n = n });
    made = RG_SEQ(t->f, rg_form_lit(t->f, text + depth, b->depth - depth), made);
    t->edges.n = b->from;
    t->n_open--;
    rg_list_add(t->f, &t->edges, made);
}

/* Close what is deeper than depth; the last one closed hangs from a node at exactly that depth, made if need be. */
static void close_to(tree *t, const char *text, size_t depth)
{
    while (!t->f->failed && t->open[t->n_open - 1].depth > depth) {
        branch *up = &t->open[t->n_open - 2];

        if (up->depth >= depth) {
            close_branch(t, text, up->depth);
        } else {
            close_branch(t, text, depth);
            t->open[t->n_open++] = (branch){ depth, t->edges.n - 1 };
        }
    }
}

uint32_t rg_form_words(rg_form *f, rg_literal *word, uint32_t n)
{
    tree t = { .f = f, .open = rg_zalloc_tail(2 * sizeof(branch), n, sizeof(branch)) };
    uint32_t made = RG_NEVER;

    if (!t.open) {
        rg_form_fail(f, RG_E_MEMORY, "out of memory for %u texts", n);
        return RG_NEVER;
    }
    qsort(word, n, sizeof *word, by_text);
    t.open[t.n_open++] = (branch){ 0, 0 };
    for (uint32_t i = 0; i < n && !f->failed; i++) {
        size_t same = 0;

        if (i) {
            size_t most = word[i - 1].n < word[i].n ? word[i - 1].n : word[i].n;
            while (same < most && word[i - 1].text[same] == word[i].text[same])
                same++;
            if (same == word[i].n && same == word[i - 1].n)
                continue;
            close_to(&t, word[i - 1].text, same);
        }
        if (word[i].n > t.open[t.n_open - 1].depth)
            t.open[t.n_open++] = (branch){ word[i].n, t.edges.n };
        rg_list_add(f, &t.edges, RG_EMPTY); /* the word may end here */
    }
    if (n && !f->failed) {
        close_to(&t, word[n - 1].text, 0);
        made = t.edges.n == 1 ? t.edges.id[0] : rg_form_slice(f, t.edges.id, t.edges.n);
        if (t.edges.n > 1)
            made = rg_form_node(f, (rg_grammar_node){ .kind = RG_NODE_ALT, .a = made, .n = t.edges.n });
    }
    rg_list_fini(&t.edges);
    rg_free(t.open);
    return f->failed ? RG_NEVER : made;
}
