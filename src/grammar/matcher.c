/* matcher.c -- see matcher.h. */
#include "grammar/matcher.h"

#include "base/mem.h"
#include "grammar/dfa.h"
#include "grammar/object.h"

/* ---- frames ------------------------------------------------------------------------------------------------------ */

bool rg_stacks_init(rg_stacks *s, uint32_t cap)
{
    memset(s, 0, sizeof *s);
    s->cap = cap;
    s->frame = rg_array(cap, sizeof *s->frame);
    s->index = rg_array(cap, 2 * sizeof *s->index);
    if (s->frame && s->index)
        rg_stacks_reset(s);
    return s->frame && s->index;
}

void rg_stacks_fini(rg_stacks *s)
{
    rg_free(s->frame);
    rg_free(s->index);
    s->frame = NULL;
    s->index = NULL;
}

void rg_stacks_reset(rg_stacks *s)
{
    memset(s->index, 0, (size_t)s->cap * 2 * sizeof *s->index);
    s->frame[RG_STACK_END] = (rg_frame){ RG_END, RG_STACK_END, 0 };
    s->frame[RG_STACK_BASE] = (rg_frame){ RG_BASE, RG_STACK_BASE, 0 };
    s->n = 2;
}

static uint32_t hash(uint32_t node, uint64_t data, uint32_t below)
{
    uint64_t h = (node ^ (uint64_t)below << 32) * 0x9e3779b97f4a7c15ULL ^ data * 0xc2b2ae3d27d4eb4fULL;

    return (uint32_t)((h ^ h >> 29) * 0xbf58476d1ce4e5b9ULL >> 32);
}

static bool is_frame(const rg_frame *f, uint32_t node, uint64_t data, uint32_t below)
{
    return f->node == node && f->data == data && f->below == below;
}

uint32_t rg_stacks_push(rg_stacks *s, uint32_t node, uint64_t data, uint32_t below)
{
    uint32_t mask = s->cap * 2 - 1, at = hash(node, data, below) & mask;

    for (; s->index[at]; at = (at + 1) & mask)
        if (is_frame(&s->frame[s->index[at]], node, data, below))
            return s->index[at];
    if (s->n == s->cap || below == RG_STACK_NONE)
        return RG_STACK_NONE;
    s->frame[s->n] = (rg_frame){ node, below, data };
    s->index[at] = s->n;
    return s->n++;
}

static void put_index(rg_stacks *s, uint32_t id)
{
    uint32_t mask = s->cap * 2 - 1, at = hash(s->frame[id].node, s->frame[id].data, s->frame[id].below) & mask;

    while (s->index[at])
        at = (at + 1) & mask;
    s->index[at] = id;
}

void rg_stacks_copy(rg_stacks *to, const rg_stacks *from)
{
    RG_ASSERT(to->cap == from->cap);
    memcpy(to->frame, from->frame, from->n * sizeof *to->frame);
    memcpy(to->index, from->index, (size_t)from->cap * 2 * sizeof *to->index);
    to->n = from->n;
}

/* The index is empty meanwhile, and serves as the map from old numbers to new ones. */
void rg_stacks_compact(rg_stacks *s, rg_heads *heads)
{
    uint32_t *map = s->index, n = 2;

    memset(map, 0, (size_t)s->cap * 2 * sizeof *map);
    for (uint32_t i = 0; i < heads->n; i++)
        for (uint32_t id = heads->id[i]; id >= 2 && !map[id]; id = s->frame[id].below)
            map[id] = 1;
    map[RG_STACK_BASE] = RG_STACK_BASE;
    for (uint32_t id = 2; id < s->n; id++) {
        if (!map[id])
            continue;
        rg_frame frame = s->frame[id];
        map[id] = n;
        frame.below = map[frame.below];
        s->frame[n++] = frame;
    }
    for (uint32_t i = 0; i < heads->n; i++)
        heads->id[i] = map[heads->id[i]];
    s->n = n;
    memset(map, 0, (size_t)s->cap * 2 * sizeof *map);
    for (uint32_t id = 2; id < n; id++)
        put_index(s, id);
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

typedef struct run {
    const rg_form *f;
    rg_stacks *s;
    rg_heads *to;
    uint8_t byte;
} run;

static void arrive(run *r, uint32_t id)
{
    for (uint32_t i = r->to->n; i-- > 0;)
        if (r->to->id[i] == id)
            return;
    if (id == RG_STACK_NONE || r->to->n == RG_HEADS)
        r->s->lost = true;
    else
        r->to->id[r->to->n++] = id;
}

/* Visit this frame too, once. */
static void visit(run *r, uint32_t node, uint64_t data, uint32_t below)
{
    rg_stacks *s = r->s;
    uint32_t at = hash(node, data, below) & (RG_WORK - 1);

    for (; s->seen[at].stamp == s->stamp; at = (at + 1) & (RG_WORK - 1))
        if (is_frame(&s->seen[at].frame, node, data, below))
            return;
    if (below == RG_STACK_NONE || s->n_todo == RG_LOOKS) {
        s->lost = true;
        return;
    }
    s->seen[at] = (rg_visited){ { node, below, data }, s->stamp };
    s->todo[s->n_todo++] = (rg_frame){ node, below, data };
}

static void pop(run *r, uint32_t id)
{
    const rg_frame *f = &r->s->frame[id];

    if (id > RG_STACK_BASE)
        visit(r, f->node, f->data, f->below);
}

static bool may_begin(const run *r, const rg_grammar_node *node)
{
    return rg_set_has(&r->f->set[node->first], r->byte);
}

/* What a reference leads to. */
static uint32_t target(const rg_form *f, uint32_t id)
{
    return f->node[id].kind == RG_NODE_REF ? f->node[id].a : id;
}

/* The stack of what is left of a sequence from its kid i on.  The last kid stands for itself, so that sequences that
 * end alike come to equal stacks. */
static uint32_t rest_of(run *r, const rg_grammar_node *node, const rg_frame *at, uint32_t i)
{
    if (i == node->n)
        return at->below;
    if (i + 1 == node->n)
        return rg_stacks_push(r->s, target(r->f, r->f->kid[node->a + i]), 0, at->below);
    return rg_stacks_push(r->s, at->node, i, at->below);
}

static void expand_seq(run *r, const rg_grammar_node *node, const rg_frame *at)
{
    uint32_t i = (uint32_t)at->data;
    const uint32_t *kid = r->f->kid + node->a;

    /* kids that may be empty are skipped here, so that no frame is made for them */
    for (; i < node->n; i++) {
        const rg_grammar_node *k = &r->f->node[kid[i]];
        if (may_begin(r, k))
            visit(r, kid[i], 0, rest_of(r, node, at, i + 1));
        if (!k->nullable)
            return;
    }
    pop(r, at->below);
}

static void expand_alt(run *r, const rg_grammar_node *node, const rg_frame *at)
{
    const uint32_t *kid = r->f->kid + node->a;

    for (uint32_t i = 0; i < node->n; i++)
        if (may_begin(r, &r->f->node[kid[i]]))
            visit(r, kid[i], 0, at->below);
    if (node->nullable)
        pop(r, at->below);
}

static void expand_rep(run *r, const rg_grammar_node *node, const rg_frame *at)
{
    uint64_t count = at->data;

    if (count >= node->min)
        pop(r, at->below);
    if (count >= node->max || !may_begin(r, &r->f->node[node->a]))
        return;
    if (node->max != RG_FOREVER || count < node->min)
        count++;
    visit(r, node->a, 0, rg_stacks_push(r->s, at->node, count, at->below));
}

/* A key has ended: push what follows it above the object. */
static void end_key(run *r, const rg_object *o, const rg_frame *at, int32_t prop)
{
    uint32_t next = rg_stacks_push(r->s, o->next, rg_object_with(o, at->data, prop), at->below);

    arrive(r, rg_stacks_push(r->s, prop < 0 ? o->other->value : o->prop[prop].value, 0, next));
}

/* A key that is not declared continues in this state of a string. */
static void other_key(run *r, const rg_object *o, const rg_frame *at, int lex)
{
    uint32_t next;

    if (lex == RG_LEX_STATES)
        return;
    if (lex == RG_LEX_DONE) {
        end_key(r, o, at, -1);
        return;
    }
    next = rg_stacks_push(r->s, o->next, rg_object_with(o, at->data, -1), at->below);
    next = rg_stacks_push(r->s, o->other->value, 0, next);
    arrive(r, rg_stacks_push(r->s, target(r->f, o->tail[lex]), 0, next));
}

static void expand_key(run *r, const rg_grammar_node *node, const rg_frame *at)
{
    const rg_object *o = &r->f->object[node->a];
    const rg_key_node *key = &o->key[node->n];
    bool other = rg_object_may_have_other(o, at->data), strings = other && rg_object_any_string(o);
    uint32_t k = key->child;

    while (k && o->key[k].byte != r->byte)
        k = o->key[k].sibling;
    if (!node->n && r->byte != '"')
        return;
    if (!node->n && other && !strings) { /* other keys have forms of their own */
        uint32_t next = rg_stacks_push(r->s, o->next, rg_object_with(o, at->data, -1), at->below);
        for (uint32_t i = 0; i < o->n_others; i++)
            visit(r, o->other[i].key, 0, rg_stacks_push(r->s, o->other[i].value, 0, next));
    }
    if (!k) {
        if (strings)
            other_key(r, o, at, node->n ? rg_lex(key->lex, r->byte) : RG_LEX_TEXT);
    } else if (o->key[k].prop >= 0) {
        if (rg_object_below(o, at->data, k))
            end_key(r, o, at, o->key[k].prop);
    } else if (strings || rg_object_below(o, at->data, k)) {
        arrive(r, rg_stacks_push(r->s, o->root + k, at->data, at->below));
    }
}

static void expand_object(run *r, const rg_grammar_node *node, const rg_frame *at)
{
    const rg_object *o = &r->f->object[node->a];

    if (r->byte == '}') {
        if (rg_object_may_close(o, at->data))
            arrive(r, at->below);
    } else if (node->kind == RG_NODE_OPEN) {
        if (r->byte == '"' && rg_object_may_go_on(o, at->data))
            visit(r, o->root, at->data, at->below);
    } else if (r->byte == ',' && rg_object_may_go_on(o, at->data)) {
        uint32_t key = rg_stacks_push(r->s, o->root, at->data, at->below);
        arrive(r, rg_stacks_push(r->s, o->space, 0, key));
    }
}

static void expand_word(run *r, const rg_grammar_node *node, const rg_frame *at)
{
    const rg_dfa_word *w = &r->f->word[node->a];
    uint64_t data = rg_dfa_word_step(w, at->data, r->byte);

    if (rg_dfa_word_done(w, at->data))
        pop(r, at->below);
    if (data != UINT64_MAX)
        arrive(r, rg_stacks_push(r->s, at->node, data, at->below));
}

/* Within an item, which may have ended. */
static void expand_item(run *r, const rg_unique *u, const rg_frame *at)
{
    uint64_t data = rg_unique_step(u, at->data, r->byte), taken;

    if (rg_unique_done(u, at->data, &taken))
        visit(r, u->space, 0, rg_stacks_push(r->s, u->next, taken, at->below));
    if (data != UINT64_MAX)
        arrive(r, rg_stacks_push(r->s, u->item, data, at->below));
}

static void expand_unique(run *r, const rg_grammar_node *node, const rg_frame *at)
{
    const rg_unique *u = &r->f->unique[node->a];
    uint64_t taken = RG_UNIQUE_TAKEN(at->data);

    if (node->kind == RG_NODE_UNIQUE_ITEM) {
        expand_item(r, u, at);
    } else if (r->byte == ']') {
        if (rg_unique_may_close(u, taken))
            arrive(r, at->below);
    } else if (node->kind == RG_NODE_UNIQUE) {
        if (rg_unique_may_go_on(u, taken))
            visit(r, u->item, taken, at->below);
    } else if (r->byte == ',' && rg_unique_may_go_on(u, taken)) {
        arrive(r, rg_stacks_push(r->s, u->space, 0, rg_stacks_push(r->s, u->item, taken, at->below)));
    }
}

static void look(run *r, const rg_frame *at)
{
    const rg_grammar_node *node = &r->f->node[at->node];

    switch ((rg_node_kind)node->kind) {
    case RG_NODE_END:
    case RG_NODE_BASE: break;
    case RG_NODE_EMPTY: pop(r, at->below); break;
    case RG_NODE_SET:
        if (rg_set_has(&r->f->set[node->a], r->byte))
            arrive(r, at->below);
        break;
    case RG_NODE_LIT:
        if ((uint8_t)r->f->text[node->a + at->data] != r->byte)
            break;
        arrive(r, at->data + 1 < node->n ? rg_stacks_push(r->s, at->node, at->data + 1, at->below) : at->below);
        break;
    case RG_NODE_SEQ: expand_seq(r, node, at); break;
    case RG_NODE_ALT: expand_alt(r, node, at); break;
    case RG_NODE_REP: expand_rep(r, node, at); break;
    case RG_NODE_REF: visit(r, node->a, 0, at->below); break;
    case RG_NODE_OPEN:
    case RG_NODE_NEXT: expand_object(r, node, at); break;
    case RG_NODE_KEY: expand_key(r, node, at); break;
    case RG_NODE_WORD: expand_word(r, node, at); break;
    case RG_NODE_UNIQUE:
    case RG_NODE_UNIQUE_ITEM:
    case RG_NODE_UNIQUE_NEXT: expand_unique(r, node, at); break;
    }
}

void rg_step(const rg_form *f, rg_stacks *s, const uint32_t *from, uint32_t n, uint8_t byte, rg_heads *to)
{
    run r = { f, s, to, byte };

    to->n = 0;
    s->n_todo = 0;
    s->lost = false;
    if (++s->stamp == 0) {
        memset(s->seen, 0, sizeof s->seen);
        s->stamp = 1;
    }
    for (uint32_t i = 0; i < n; i++)
        pop(&r, from[i]);
    for (uint32_t i = 0; i < s->n_todo; i++) {
        rg_frame at = s->todo[i];
        look(&r, &at);
    }
}

/* ---- where it may end -------------------------------------------------------------------------------------------- */

bool rg_frame_may_end(const rg_form *f, const rg_frame *frame)
{
    const rg_grammar_node *node = &f->node[frame->node];

    if (node->kind == RG_NODE_REP)
        return frame->data >= node->min;
    if (node->kind == RG_NODE_WORD)
        return rg_dfa_word_done(&f->word[node->a], frame->data);
    if (node->kind != RG_NODE_SEQ)
        return node->nullable;
    for (uint64_t i = frame->data; i < node->n; i++)
        if (!f->node[f->kid[node->a + i]].nullable)
            return false;
    return true;
}

bool rg_stack_may_end(const rg_form *f, const rg_stacks *s, uint32_t id, uint32_t bottom)
{
    for (; id != bottom; id = s->frame[id].below)
        if (id <= RG_STACK_BASE || !rg_frame_may_end(f, &s->frame[id]))
            return false;
    return true;
}
