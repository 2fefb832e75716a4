/* refine.c -- see form.h: what the matcher relies on.
 *
 * Reachable nodes are put in an order in which, but for cycles, what a node is made of comes before it; facts are then
 * found by going through that order until nothing changes.  No recursion: sources choose the depth. */
#include "base/mem.h"
#include "grammar/form.h"
#include "grammar/dfa.h"
#include "grammar/object.h"

enum { MOST_ROUNDS = 200 }; /* of one fact: each goes through all nodes */

typedef struct refiner {
    rg_form *f;
    const rg_set *spelled;
    uint32_t *order, n_order;
    uint32_t *stack, *next; /* per depth: the node, and which of its edges is to be followed */
    uint32_t *apart;        /* node -> the same without the empty text, or 0 */
    uint32_t room;          /* of these arrays, in nodes */
} refiner;

/* The k-th node that node leads to; RG_END: no more. */
static uint32_t edge(const rg_form *f, const rg_grammar_node *node, uint32_t k)
{
    const rg_object *o;

    switch (node->kind) {
    case RG_NODE_SEQ:
    case RG_NODE_ALT: return k < node->n ? f->kid[node->a + k] : RG_END;
    case RG_NODE_REP:
    case RG_NODE_REF: return k ? RG_END : node->a;
    case RG_NODE_OPEN:
        o = &f->object[node->a];
        return k < o->n_edges ? f->kid[o->edges + k] : RG_END;
    case RG_NODE_UNIQUE: return k < RG_UNIQUE_EDGES ? f->kid[f->unique[node->a].edges + k] : RG_END;
    default: return RG_END;
    }
}

static void fini(refiner *r)
{
    rg_free(r->order);
    rg_free(r->stack);
    rg_free(r->next);
    rg_free(r->apart);
}

static bool make_room(refiner *r, uint32_t n)
{
    fini(r);
    r->room = n;
    r->order = rg_array(n, sizeof *r->order);
    r->stack = rg_array(n, sizeof *r->stack);
    r->next = rg_array(n, sizeof *r->next);
    r->apart = rg_array(n, sizeof *r->apart);
    if (r->order && r->stack && r->next && r->apart)
        return true;
    rg_form_fail(r->f, RG_E_MEMORY, "out of memory for a grammar of %u parts", n);
    return false;
}

static void set_order(refiner *r)
{
    rg_form *f = r->f;
    uint32_t depth = 1;

    r->n_order = 0;
    for (uint32_t i = 0; i < f->n_nodes; i++)
        f->node[i].done = false;
    r->stack[0] = f->root;
    r->next[0] = 0;
    f->node[f->root].done = true;
    while (depth) {
        uint32_t at = r->stack[depth - 1], to = edge(f, &f->node[at], r->next[depth - 1]++);

        if (to == RG_END) {
            r->order[r->n_order++] = at;
            depth--;
        } else if (!f->node[to].done) {
            f->node[to].done = true;
            r->stack[depth] = to;
            r->next[depth++] = 0;
        }
    }
}

/* ---- nullable and dead ------------------------------------------------------------------------------------------- */

static bool all_spelled(const refiner *r, const rg_grammar_node *node)
{
    for (uint32_t i = 0; i < node->n; i++)
        if (!rg_set_has(r->spelled, (unsigned char)r->f->text[node->a + i]))
            return false;
    return true;
}

static bool is_nullable(const rg_form *f, const rg_grammar_node *node)
{
    bool all = true, any = false;

    if (node->kind == RG_NODE_EMPTY)
        return true;
    if (node->kind == RG_NODE_WORD)
        return rg_dfa_word_done(&f->word[node->a], 0);
    if (node->kind == RG_NODE_REP)
        return node->min == 0 || f->node[node->a].nullable;
    if (node->kind == RG_NODE_REF)
        return f->node[node->a].nullable;
    if (node->kind != RG_NODE_SEQ && node->kind != RG_NODE_ALT)
        return false;
    for (uint32_t i = 0; i < node->n; i++) {
        bool is = f->node[f->kid[node->a + i]].nullable;
        all &= is;
        any |= is;
    }
    return node->kind == RG_NODE_SEQ ? all : any;
}

/* A node is dead until it is shown that it can match. */
static bool is_dead(refiner *r, const rg_grammar_node *node)
{
    rg_form *f = r->f;
    rg_set set;
    bool all = true, any = false;

    switch (node->kind) {
    case RG_NODE_SET:
        set = f->set[node->a];
        for (int i = 0; i < 4; i++)
            any |= (set.bit[i] & r->spelled->bit[i]) != 0;
        return !any;
    case RG_NODE_LIT: return !all_spelled(r, node);
    case RG_NODE_REP: return node->min > 0 && f->node[node->a].dead;
    case RG_NODE_REF: return f->node[node->a].dead;
    case RG_NODE_SEQ:
    case RG_NODE_ALT:
        for (uint32_t i = 0; i < node->n; i++) {
            bool is = !f->node[f->kid[node->a + i]].dead;
            all &= is;
            any |= is;
        }
        return node->kind == RG_NODE_SEQ ? !all : !any;
    case RG_NODE_OPEN: {
        rg_object *o = &f->object[node->a];
        for (uint32_t i = 0; i < o->n_props; i++)
            if (o->prop[i].required && f->node[o->prop[i].value].dead)
                return true;
        return false;
    }
    default: return false;
    }
}

static bool find_facts(refiner *r)
{
    rg_form *f = r->f;
    bool changed = true;

    set_order(r);
    for (uint32_t i = 0; i < f->n_nodes; i++)
        f->node[i].dead = true, f->node[i].nullable = false;
    f->node[RG_EMPTY].dead = f->node[RG_END].dead = f->node[RG_BASE].dead = false;
    f->node[RG_EMPTY].nullable = true;
    for (int round = 0; changed; round++) {
        changed = false;
        if (round == MOST_ROUNDS) {
            rg_form_fail(f, RG_E_LIMIT, "the grammar's rules refer to each other in too complex a way");
            return false;
        }
        for (uint32_t i = 0; i < r->n_order; i++) {
            rg_grammar_node *node = &f->node[r->order[i]];
            bool nullable = node->nullable || is_nullable(f, node), dead = node->dead && is_dead(r, node);

            changed |= nullable != node->nullable || dead != node->dead;
            node->nullable = nullable;
            node->dead = dead;
        }
    }
    return true;
}

/* ---- taking out -------------------------------------------------------------------------------------------------- */

/* Remove dead alternatives; a dead node becomes NEVER, or empty.  True: this changed what can match. */
static bool prune_node(refiner *r, rg_grammar_node *node)
{
    rg_form *f = r->f;
    uint32_t n = 0;
    bool died = false;

    if (node->kind == RG_NODE_ALT) {
        for (uint32_t i = 0; i < node->n; i++)
            if (!f->node[f->kid[node->a + i]].dead)
                f->kid[node->a + n++] = f->kid[node->a + i];
        node->n = n;
    } else if (node->kind == RG_NODE_REP && f->node[node->a].dead) {
        *node = (rg_grammar_node){ .kind = RG_NODE_EMPTY, .nullable = true };
    } else if (node->kind == RG_NODE_SET) {
        rg_set set = f->set[node->a];
        for (int i = 0; i < 4; i++)
            set.bit[i] &= r->spelled->bit[i];
        node->a = rg_form_own_set(f, &set);
    } else if (node->kind == RG_NODE_OPEN) {
        died = !rg_object_possible(f, &f->object[node->a], r->spelled);
        if (died)
            *node = f->node[RG_NEVER]; /* its braces can no more be than it */
    }
    return died;
}

/* ALTs share no slice, but a slice of a sequence may be a tail of another's, which is why only ALTs are changed. */
static bool prune(refiner *r)
{
    bool died = true;

    while (died) {
        died = false;
        if (!find_facts(r))
            return false;
        for (uint32_t i = 0; i < r->n_order && !r->f->failed; i++)
            if (!r->f->node[r->order[i]].dead)
                died |= prune_node(r, &r->f->node[r->order[i]]);
    }
    return !r->f->failed;
}

/* ---- bodies that are never empty --------------------------------------------------------------------------------- */

/* The node for id without the empty text; made, and put on the list of those to be filled, if it is not there yet. */
static uint32_t without(refiner *r, rg_list *todo, uint32_t id)
{
    rg_form *f = r->f;

    if (!f->node[id].nullable)
        return id;
    if (id == RG_EMPTY)
        return RG_NEVER;
    if (id >= r->room) { /* made just now, a tail of a sequence: not shared */
        uint32_t made = rg_form_node(f, (rg_grammar_node){ .kind = RG_NODE_REF, .a = id });
        rg_list_add(f, todo, made);
        return made;
    }
    if (!r->apart[id]) {
        r->apart[id] = rg_form_node(f, (rg_grammar_node){ .kind = RG_NODE_REF, .a = id });
        rg_list_add(f, todo, r->apart[id]);
    }
    return r->apart[id];
}

/* What `made`, for now a reference to the node that it is to be without its empty text, becomes. */
static void fill(refiner *r, rg_list *todo, uint32_t made)
{
    rg_form *f = r->f;
    rg_grammar_node from = f->node[f->node[made].a], to = { .kind = RG_NODE_ALT };
    rg_list l = { 0 };

    switch (from.kind) {
    case RG_NODE_REF: to = (rg_grammar_node){ .kind = RG_NODE_REF, .n = from.n, .a = without(r, todo, from.a) }; break;
    case RG_NODE_REP:
        to = from;
        to.min = 1;
        to.a = without(r, todo, from.a);
        break;
    case RG_NODE_ALT:
        for (uint32_t i = 0; i < from.n; i++)
            rg_list_add(f, &l, without(r, todo, f->kid[from.a + i]));
        break;
    case RG_NODE_SEQ: { /* the first is not empty and all else follows, or it is and the others are not empty */
        uint32_t rest = f->kid[from.a + 1], first = without(r, todo, f->kid[from.a]);
        if (from.n > 2)
            rest = rg_form_node(f, (rg_grammar_node){ .kind = RG_NODE_SEQ, .nullable = true, .a = from.a + 1,
                    .n = from.n - 1 });
        rg_list_add(f, &l, RG_SEQ(f, first, rest));
        rg_list_add(f, &l, without(r, todo, rest));
        break;
    }
    default: break;
    }
    if (to.kind == RG_NODE_ALT) {
        to.a = rg_form_slice(f, l.id, l.n);
        to.n = l.n;
    }
    rg_list_fini(&l);
    if (!f->failed) {
        to.nullable = false;
        f->node[made] = to;
    }
}

static bool part_bodies(refiner *r)
{
    rg_form *f = r->f;
    rg_list todo = { 0 };

    for (uint32_t i = 0; i < r->n_order && !f->failed; i++) {
        uint32_t id = r->order[i];
        if (f->node[id].kind != RG_NODE_REP || !f->node[f->node[id].a].nullable)
            continue;
        uint32_t body = without(r, &todo, f->node[id].a);
        f->node[id].a = body;
        f->node[id].min = 0; /* any number of its turns may be empty */
    }
    while (todo.n && !f->failed)
        fill(r, &todo, todo.id[--todo.n]);
    rg_list_fini(&todo);
    return !f->failed;
}

/* ---- first bytes ------------------------------------------------------------------------------------------------- */

/* The k-th node that may stand at the front of node. */
static uint32_t front(const rg_form *f, const rg_grammar_node *node, uint32_t k)
{
    if (node->kind == RG_NODE_OPEN || node->kind == RG_NODE_UNIQUE)
        return RG_END;
    if (node->kind == RG_NODE_SEQ && k && !f->node[f->kid[node->a + k - 1]].nullable)
        return RG_END;
    return edge(f, node, k);
}

static void set_first(rg_form *f, rg_grammar_node *node)
{
    rg_set set = { 0 };
    uint32_t to;

    if (node->kind == RG_NODE_SET)
        set = f->set[node->a];
    else if (node->kind == RG_NODE_LIT)
        rg_set_add(&set, (unsigned char)f->text[node->a], (unsigned char)f->text[node->a]);
    else if (node->kind == RG_NODE_OPEN)
        rg_set_add(&set, '"', '"'), rg_set_add(&set, '}', '}');
    else if (node->kind == RG_NODE_UNIQUE)
        rg_set_add(&set, ']', ']');
    for (unsigned c = 0; c < 256 && (node->kind == RG_NODE_WORD || node->kind == RG_NODE_UNIQUE); c++)
        if ((node->kind == RG_NODE_WORD && rg_dfa_word_step(&f->word[node->a], 0, (uint8_t)c) != UINT64_MAX) ||
            (node->kind == RG_NODE_UNIQUE && rg_unique_step(&f->unique[node->a], 0, (uint8_t)c) != UINT64_MAX))
            rg_set_add(&set, c, c);
    for (uint32_t k = 0; (to = front(f, node, k)) != RG_END; k++)
        for (int i = 0; i < 4; i++)
            set.bit[i] |= f->set[f->node[to].first].bit[i];
    node->first = rg_form_own_set(f, &set);
}

static bool begins_with_itself(refiner *r, uint32_t depth, uint32_t to)
{
    rg_form *f = r->f;
    const char *name = "";

    for (uint32_t i = depth; i-- > 0;) {
        if (f->node[r->stack[i]].kind == RG_NODE_REF && f->text[f->node[r->stack[i]].n])
            name = f->text + f->node[r->stack[i]].n;
        if (r->stack[i] == to)
            break;
    }
    rg_form_fail(f, RG_E_UNSUPPORTED, "left recursion: rule '%.100s' begins with itself", name);
    return false;
}

static bool find_first(refiner *r)
{
    enum { NEW, OPEN, CLOSED };
    rg_form *f = r->f;
    uint8_t *seen = rg_array(f->n_nodes, 1);
    bool ok = seen != NULL;

    if (!seen)
        rg_form_fail(f, RG_E_MEMORY, "out of memory for a grammar of %u parts", f->n_nodes);
    for (uint32_t i = 0; i < r->n_order && ok; i++) {
        uint32_t depth = 0;

        if (seen[r->order[i]] == NEW) {
            r->stack[depth] = r->order[i];
            r->next[depth++] = 0;
            seen[r->order[i]] = OPEN;
        }
        while (depth && ok) {
            uint32_t at = r->stack[depth - 1], to = front(f, &f->node[at], r->next[depth - 1]++);

            if (to == RG_END) {
                set_first(f, &f->node[at]);
                seen[at] = CLOSED;
                depth--;
            } else if (seen[to] == OPEN) {
                ok = begins_with_itself(r, depth, to);
            } else if (seen[to] == NEW) {
                r->stack[depth] = to;
                r->next[depth++] = 0;
                seen[to] = OPEN;
            }
        }
    }
    rg_free(seen);
    return ok && !f->failed;
}

/* ---- rules that are only another rule ---------------------------------------------------------------------------- */

/* Make references to references point to the last target; circular ones stay (left recursion). */
static void shorten_references(refiner *r)
{
    rg_form *f = r->f;

    for (uint32_t i = 0; i < f->n_nodes; i++)
        f->node[i].done = false;
    for (uint32_t i = 0; i < f->n_nodes; i++) {
        uint32_t end = i;

        for (; f->node[end].kind == RG_NODE_REF && !f->node[end].done; end = f->node[end].a)
            f->node[end].done = true;
        if (f->node[end].kind == RG_NODE_REF) /* done: on a circle, or it leads to the end already */
            end = f->node[end].a;
        if (f->node[end].kind == RG_NODE_REF)
            continue;
        for (uint32_t at = i; f->node[at].kind == RG_NODE_REF && f->node[at].a != end;) {
            uint32_t next = f->node[at].a;
            f->node[at].a = end;
            at = next;
        }
    }
}

bool rg_form_refine(rg_form *f, const rg_set *spelled)
{
    refiner r = { .f = f, .spelled = spelled };
    bool ok = !f->failed && make_room(&r, f->n_nodes);

    if (ok)
        shorten_references(&r);
    ok = ok && prune(&r) && part_bodies(&r) && make_room(&r, f->n_nodes) &&
              prune(&r) && find_first(&r);

    fini(&r);
    if (ok && f->node[f->root].dead) {
        rg_form_fail(f, RG_E_INPUT, "nothing can satisfy it, or nothing that the model's vocabulary can spell");
        ok = false;
    }
    return ok;
}
