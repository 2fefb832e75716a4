/* object.c -- see object.h. */
#include "grammar/object.h"

#include <stdio.h>

#include "base/buf.h"
#include "base/mem.h"
#include "grammar/chars.h"

/* ---- strings written in the one way ------------------------------------------------------------------------------ */

#define KEYS ((1ULL << RG_OBJECT_ANY_ORDER) - 1) /* bits of a frame's data: the keys that were written */

enum { TEXT = RG_LEX_TEXT, ESCAPE, U, U0, U00, U000, U001, C1, C2, C3, E0, ED, F0, F4, N_LEX };

_Static_assert((int)N_LEX < (int)RG_LEX_DONE, "room for the states");

static int lex_text(unsigned char c)
{
    if (c == '"')
        return RG_LEX_DONE;
    if (c == '\\')
        return ESCAPE;
    if (c < 0x80)
        return c < 0x20 ? RG_LEX_STATES : TEXT;
    if (c < 0xC2 || c > 0xF4)
        return RG_LEX_STATES;
    if (c < 0xE0)
        return C1;
    if (c < 0xF0)
        return c == 0xE0 ? E0 : c == 0xED ? ED : C2;
    return c == 0xF0 ? F0 : c == 0xF4 ? F4 : C3;
}

static bool in(unsigned char c, unsigned char from, unsigned char to)
{
    return c >= from && c <= to;
}

int rg_lex(int state, unsigned char c)
{
    bool ok = false;
    int to = TEXT;

    switch (state) {
    case TEXT: return lex_text(c);
    case ESCAPE: ok = c && strchr("\"\\bfnrtu", c); to = c == 'u' ? U : TEXT; break;
    case U: ok = c == '0'; to = U0; break;
    case U0: ok = c == '0'; to = U00; break;
    case U00: ok = in(c, '0', '1'); to = c == '0' ? U000 : U001; break;
    case U000: ok = c && strchr("01234567bef", c); break;
    case U001: ok = c && strchr("0123456789abcdef", c); break;
    case C1: ok = in(c, 0x80, 0xBF); break;
    case C2: ok = in(c, 0x80, 0xBF); to = C1; break;
    case C3: ok = in(c, 0x80, 0xBF); to = C2; break;
    case E0: ok = in(c, 0xA0, 0xBF); to = C1; break;
    case ED: ok = in(c, 0x80, 0x9F); to = C1; break;
    case F0: ok = in(c, 0x90, 0xBF); to = C2; break;
    case F4: ok = in(c, 0x80, 0x8F); to = C2; break;
    default: break;
    }
    return ok ? to : RG_LEX_STATES;
}

/* tail[s]: a byte that leads to state t, then tail[t].  In the state TEXT that is a loop of its own. */
static void make_tails(rg_form *f)
{
    uint32_t text = rg_form_ref(f, "string", 6), *tail = f->tail;

    _Static_assert(RG_LEN(f->tail) == RG_LEX_STATES, "a tail for every state");
    if (tail[RG_LEX_DONE])
        return;

    for (int s = 0; s < RG_LEX_STATES; s++)
        tail[s] = s == TEXT ? text : s < N_LEX ? rg_form_ref(f, "string", 6) : RG_NEVER;
    tail[RG_LEX_DONE] = RG_EMPTY;
    for (int s = 0; s < N_LEX; s++) {
        rg_list l = { 0 };
        for (int to = 0; to < RG_LEX_STATES; to++) {
            rg_set set = { 0 };
            bool any = false;
            for (unsigned c = 0; c < 256; c++)
                if (rg_lex(s, (unsigned char)c) == to)
                    rg_set_add(&set, c, c), any = true;
            if (any)
                rg_list_add(f, &l, RG_SEQ(f, rg_form_set(f, &set), tail[to]));
        }
        uint32_t rest = rg_form_alt(f, l.id, l.n);
        if (s == TEXT && !f->failed)
            f->node[rest].any_text = true;
        rg_form_bind(f, tail[s], rest);
        rg_list_fini(&l);
    }
}

uint32_t rg_object_text(rg_form *f, const char *s, size_t n)
{
    rg_buf b;
    uint32_t lit;

    rg_buf_init(&b, RG_FORM_TEXT);
    if (rg_chars_quote(&b, s, n)) {
        lit = rg_form_lit(f, b.data, b.n);
    } else {
        rg_form_fail(f, RG_E_MEMORY, "out of memory for a text of %zu bytes", n);
        lit = RG_NEVER;
    }
    rg_buf_fini(&b);
    return lit;
}

/* ---- building ---------------------------------------------------------------------------------------------------- */

void rg_object_fini(rg_object *o)
{
    rg_free(o->prop);
    rg_free(o->key);
    rg_free(o->below);
    rg_free(o->other);
    *o = (rg_object){ 0 };
}

static uint32_t new_key(rg_form *f, rg_object *o, unsigned char byte, uint8_t lex)
{
    if (f->n_keys >= RG_FORM_KEYS) {
        rg_form_fail(f, RG_E_LIMIT, "the names of properties are too many (more than %d bytes)", RG_FORM_KEYS);
        return 0;
    }
    if (o->n_keys == o->room_keys) {
        uint32_t room = o->room_keys ? 2 * o->room_keys : 32;
        rg_key_node *key = rg_resize_array(o->key, room, sizeof *key);
        if (!key) {
            rg_form_fail(f, RG_E_MEMORY, "out of memory for the names of properties");
            return 0;
        }
        o->key = key;
        o->room_keys = room;
    }
    f->n_keys++;
    o->key[o->n_keys] = (rg_key_node){ .byte = byte, .lex = lex, .prop = -1 };
    return o->n_keys++;
}

static uint32_t step_key(rg_form *f, rg_object *o, uint32_t at, unsigned char c)
{
    uint32_t k;

    for (k = o->key[at].child; k; k = o->key[k].sibling)
        if (o->key[k].byte == c)
            return k;
    /* the opening quote leads from the root into the text */
    k = new_key(f, o, c, (uint8_t)(at ? rg_lex(o->key[at].lex, c) : TEXT));
    if (k) {
        o->key[k].sibling = o->key[at].child;
        o->key[at].child = k;
    }
    return k;
}

static void add_name(rg_form *f, rg_object *o, const char *s, size_t n, int32_t prop)
{
    uint32_t at = 0;

    for (size_t i = 0; i < n && !f->failed; i++) {
        at = step_key(f, o, at, (unsigned char)s[i]);
        if (!o->ordered)
            o->key[at].below |= 1ULL << prop;
        else
            o->key[at].to++; /* for now a count */
    }
    if (!f->failed)
        o->key[at].prop = prop;
}

/* Where the keys have an order: the sorted lists of what is below each place. */
static void list_below(rg_form *f, rg_object *o, const rg_buf *names, const size_t *end)
{
    uint32_t n = 0;

    for (uint32_t k = 0; k < o->n_keys; k++) {
        uint32_t count = o->key[k].to;
        o->key[k].from = o->key[k].to = n;
        n += count;
    }
    o->below = rg_array(n, sizeof *o->below);
    if (!o->below) {
        rg_form_fail(f, RG_E_MEMORY, "out of memory for the names of properties");
        return;
    }
    for (uint32_t p = 0; p < o->n_props; p++) {
        uint32_t at = 0;
        for (size_t i = p ? end[p - 1] : 0; i < end[p]; i++) {
            at = step_key(f, o, at, (unsigned char)names->data[i]);
            o->below[o->key[at].to++] = p;
        }
    }
}

static void add_names(rg_form *f, rg_object *o, const rg_object_spec *spec)
{
    size_t *end = rg_zalloc_tail(sizeof *end, (size_t)spec->n_props, sizeof *end);
    rg_buf names;

    rg_buf_init(&names, RG_FORM_TEXT);
    new_key(f, o, 0, TEXT);
    for (uint32_t i = 0; i < spec->n_props && end && !f->failed; i++) {
        size_t from = names.n;
        if (!rg_chars_quote(&names, spec->prop[i].name, spec->prop[i].n_name)) {
            rg_form_fail(f, names.n + 6 * spec->prop[i].n_name < RG_FORM_TEXT ? RG_E_MEMORY : RG_E_LIMIT,
                         "the names of properties are too long, or there is no memory for them");
            break;
        }
        end[i] = names.n;
        add_name(f, o, names.data + from, names.n - from, (int32_t)i);
    }
    if (!end)
        rg_form_fail(f, RG_E_MEMORY, "out of memory for %u properties", spec->n_props);
    if (o->ordered && !f->failed)
        list_below(f, o, &names, end);
    rg_buf_fini(&names);
    rg_free(end);
}

static void make_nodes(rg_form *f, uint32_t number, const rg_object *o, rg_object *to)
{
    rg_list l = { 0 };

    *to = *o;
    to->open = rg_form_node(f, (rg_grammar_node){ .kind = RG_NODE_OPEN, .a = number });
    to->next = rg_form_node(f, (rg_grammar_node){ .kind = RG_NODE_NEXT, .a = number });
    for (uint32_t k = 0; k < o->n_keys && !f->failed; k++) {
        uint32_t node = rg_form_node(f, (rg_grammar_node){ .kind = RG_NODE_KEY, .a = number, .n = k });
        if (!k)
            to->root = node;
    }
    rg_list_add(f, &l, o->space);
    for (uint32_t i = 0; i < o->n_others; i++) {
        rg_list_add(f, &l, o->other[i].value);
        rg_list_add(f, &l, o->other[i].key);
    }
    for (int s = 0; s < RG_LEX_STATES; s++)
        rg_list_add(f, &l, o->tail[s]);
    for (uint32_t i = 0; i < o->n_props; i++)
        rg_list_add(f, &l, o->prop[i].value);
    to->n_edges = l.n;
    to->edges = rg_form_slice(f, l.id, l.n);
    rg_list_fini(&l);
}

/* Its keys and what follows them.  False: no memory. */
static bool take_parts(rg_form *f, rg_object *o, const rg_object_spec *spec)
{
    uint32_t colon = RG_SEQ(f, spec->space, rg_form_str(f, ":"), spec->space);

    o->prop = rg_array(spec->n_props, sizeof *o->prop);
    o->other = rg_array(spec->n_others, sizeof *o->other);
    if (!o->prop || !o->other)
        return false;
    for (uint32_t i = 0; i < spec->n_props; i++) {
        uint32_t value = spec->prop[i].value;
        o->prop[i] = (rg_prop){ .required = spec->prop[i].required, .needs = spec->prop[i].needs,
                                .value = value == RG_NEVER ? RG_NEVER : RG_SEQ(f, colon, value, spec->space) };
        o->has_needs |= o->prop[i].needs != 0;
        if (o->prop[i].required && !o->ordered)
            o->required |= 1ULL << i;
    }
    for (uint32_t i = 0; i < spec->n_others; i++)
        o->other[i] = (rg_object_other){ spec->other[i].key, RG_SEQ(f, colon, spec->other[i].value, spec->space) };
    o->n_others = spec->n_others;
    if (rg_object_any_string(o))
        make_tails(f);
    for (int s = 0; s < RG_LEX_STATES; s++)
        o->tail[s] = rg_object_any_string(o) ? f->tail[s] : RG_NEVER;
    return true;
}

uint32_t rg_object_new(rg_form *f, const rg_object_spec *spec)
{
    rg_object o = { .n_props = spec->n_props, .min = spec->min, .max = spec->max, .space = spec->space,
                    .need_other = spec->need_other, .ordered = spec->n_props > RG_OBJECT_ANY_ORDER };
    uint32_t number = f->n_objects;

    if (f->n_objects == RG_FORM_OBJECTS)
        rg_form_fail(f, RG_E_LIMIT, "more than %d objects", RG_FORM_OBJECTS);
    else if (!take_parts(f, &o, spec))
        rg_form_fail(f, RG_E_MEMORY, "out of memory for an object of %u properties", spec->n_props);
    else
        add_names(f, &o, spec);
    if (!f->failed && f->n_objects == f->room_objects) {
        uint32_t room = f->room_objects ? 2 * f->room_objects : 16;
        rg_object *object = rg_resize_array(f->object, room, sizeof *object);
        if (object)
            f->object = object, f->room_objects = room;
        else
            rg_form_fail(f, RG_E_MEMORY, "out of memory for %u objects", room);
    }
    if (f->failed) {
        rg_object_fini(&o);
        return RG_NEVER;
    }
    f->n_objects++;
    make_nodes(f, number, &o, &f->object[number]);
    return RG_SEQ(f, rg_form_str(f, "{"), spec->space, f->object[number].open);
}

/* ---- what can be ------------------------------------------------------------------------------------------------- */

static bool spelt(const rg_set *spelled, const char *s)
{
    for (; *s; s++)
        if (!rg_set_has(spelled, (unsigned char)*s))
            return false;
    return true;
}

/* Which declared keys can be written: those whose way from the root has only bytes that there are. */
static void unspelt_keys(rg_object *o, const rg_set *spelled)
{
    for (uint32_t k = 1; k < o->n_keys; k++) {
        if (rg_set_has(spelled, o->key[k].byte))
            continue;
        if (o->ordered)
            for (uint32_t i = o->key[k].from; i < o->key[k].to; i++)
                o->prop[o->below[i]].never = true;
        else
            for (uint64_t m = o->key[k].below; m; m &= m - 1)
                o->prop[__builtin_ctzll(m)].never = true;
    }
}

static uint32_t missing(const rg_object *o, uint64_t data);

/* Kinds of other keys that cannot be, or whose values cannot, are taken out. */
static void possible_others(rg_form *f, rg_object *o)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < o->n_others; i++) {
        uint32_t key = o->other[i].key;
        if (!f->node[o->other[i].value].dead && !f->node[key == RG_NEVER ? o->tail[TEXT] : key].dead)
            o->other[n++] = o->other[i];
    }
    o->n_others = n;
}

/* A key that needs one that cannot be cannot be either; what a needed key needs is needed, too. */
static void close_needs(rg_object *o)
{
    bool changed = o->has_needs;

    while (changed) {
        changed = false;
        for (uint32_t i = 0; i < o->n_props; i++) {
            uint64_t all = o->prop[i].needs;
            for (uint64_t m = o->prop[i].needs; m; m &= m - 1) {
                const rg_prop *needed = &o->prop[__builtin_ctzll(m)];
                all |= needed->needs;
                changed |= needed->never && !o->prop[i].never;
                o->prop[i].never |= needed->never;
            }
            changed |= all != o->prop[i].needs;
            o->prop[i].needs = all;
        }
    }
}

bool rg_object_possible(rg_form *f, rg_object *o, const rg_set *spelled)
{
    uint32_t n_possible = 0, n_required = 0;

    if (!spelt(spelled, "\":,{}"))
        return false;
    unspelt_keys(o, spelled);
    for (uint32_t i = 0; i < o->n_props; i++)
        o->prop[i].never |= f->node[o->prop[i].value].dead;
    close_needs(o);
    for (uint32_t i = 0; i < o->n_props; i++) {
        if (o->prop[i].never && o->prop[i].required)
            return false;
        n_possible += !o->prop[i].never;
        n_required += o->prop[i].required;
    }
    possible_others(f, o);
    if (o->need_other && (!o->n_others || o->max == n_required))
        return false;
    if (o->has_needs && missing(o, 0) > o->max)
        return false;
    return n_required <= o->max && o->min <= o->max && (o->n_others || o->min <= n_possible);
}

/* ---- for the matcher --------------------------------------------------------------------------------------------- */

/* An ordered frame's data: the next declared key (24 bits), how many declared ones have been (24), others (16). */
static uint32_t next_of(uint64_t data)
{
    return (uint32_t)(data & 0xffffff);
}

/* The keys that an object without an order must have, given the keys that were written. */
static uint64_t required_of(const rg_object *o, uint64_t data)
{
    uint64_t all = o->required;

    for (uint64_t m = o->has_needs ? (data & KEYS) | o->required : 0; m; m &= m - 1)
        all |= o->prop[__builtin_ctzll(m)].needs;
    return all;
}

/* How many keys must still come. */
static uint32_t missing(const rg_object *o, uint64_t data)
{
    uint32_t n = o->need_other && !(data >> 48);

    if (!o->ordered)
        return n + (uint32_t)__builtin_popcountll(required_of(o, data) & ~data);
    for (uint32_t i = next_of(data); i < o->n_props; i++)
        n += o->prop[i].required;
    return n;
}

/* The last declared key that may come next, in an ordered object. */
static uint32_t last_of(const rg_object *o, uint64_t data)
{
    uint32_t i = next_of(data);

    while (i < o->n_props && !o->prop[i].required)
        i++;
    return i;
}

bool rg_object_may_close(const rg_object *o, uint64_t data)
{
    bool all = o->ordered ? last_of(o, data) == o->n_props : !(required_of(o, data) & ~data);

    return all && (!o->need_other || data >> 48) && (!o->min || rg_object_count(o, data) >= o->min);
}

/* How many more keys may come besides the required ones. */
static bool spare(const rg_object *o, uint64_t data)
{
    return o->max == RG_FOREVER || o->max - rg_object_count(o, data) > missing(o, data);
}

bool rg_object_may_have_other(const rg_object *o, uint64_t data)
{
    bool wanted = o->need_other && !(data >> 48);

    return o->n_others && (wanted || spare(o, data)) && (uint32_t)(data >> 48) < RG_OBJECT_OTHERS;
}

/* True if this key can have a value, and there is room for what it needs. */
static bool may_come(const rg_object *o, uint64_t data, uint32_t prop)
{
    if (o->prop[prop].never || !o->has_needs || o->max == RG_FOREVER)
        return !o->prop[prop].never;
    data |= 1ULL << prop;
    return missing(o, data) <= o->max - rg_object_count(o, data);
}

bool rg_object_below(const rg_object *o, uint64_t data, uint32_t place)
{
    const rg_key_node *k = &o->key[place];
    bool any = spare(o, data);
    uint32_t low, high, last;

    if (!o->ordered) {
        uint64_t m = k->below & ~data & (any ? ~0ULL : required_of(o, data));
        while (m && !may_come(o, data, (uint32_t)__builtin_ctzll(m)))
            m &= m - 1;
        return m != 0;
    }
    last = last_of(o, data);
    for (low = k->from, high = k->to; low < high;) {
        uint32_t middle = low + (high - low) / 2;
        if (o->below[middle] < next_of(data))
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < k->to && o->below[low] <= last; low++)
        if (!o->prop[o->below[low]].never && (any || o->prop[o->below[low]].required))
            return true;
    return false;
}

bool rg_object_may_go_on(const rg_object *o, uint64_t data)
{
    for (uint32_t k = o->key[0].child; k; k = o->key[k].sibling) /* the opening quote, if there are keys */
        if (rg_object_below(o, data, k))
            return true;
    return rg_object_may_have_other(o, data);
}

uint64_t rg_object_with(const rg_object *o, uint64_t data, int32_t prop)
{
    bool counts = o->max != RG_FOREVER || rg_object_count(o, data) < o->min || (o->need_other && !(data >> 48));

    if (prop < 0) /* counted only where it matters, so that frames stay equal */
        return counts ? data + (1ULL << 48) : data;
    if (!o->ordered)
        return data | 1ULL << prop;
    return (data & ~0xffffffULL) + (1ULL << 24) + (uint64_t)prop + 1;
}
