/* schema_arrays.c -- see schema.h: arrays, by the places of their items and by what they must contain. */
#include "base/mem.h"
#include "grammar/schema.h"

enum { MOST_CONDITIONS = 4, MOST_STATES = 4096 };

/* The schemas of the first items: "prefixItems", or of older drafts a list in "items". */
static json_t *prefix_of(const json_t *schema)
{
    json_t *v = rg_schema_get(schema, "prefixItems"), *items = rg_schema_get(schema, "items");

    return v ? v : json_is_array(items) ? items : NULL;
}

/* The terms of item k, or of those past all prefixes; after a list in "items" those are "additionalItems". */
static rg_terms item_terms(rg_schemas *s, const rg_terms *t, size_t k)
{
    rg_terms sub = { 0 };

    for (uint32_t i = 0; i < t->n; i++) {
        json_t *schema = t->term[i].schema, *v = json_array_get(prefix_of(schema), k);
        if (!v)
            v = rg_schema_get(schema, json_is_array(rg_schema_get(schema, "items")) ? "additionalItems" : "items");
        if (v)
            rg_terms_add(s, &sub, v, 0);
    }
    return sub;
}

static uint32_t item_node(rg_schemas *s, const rg_terms *t, size_t k)
{
    rg_terms sub = item_terms(s, t, k);

    return rg_schema_node(s, &sub);
}

/* An array whose items must differ.  Where items could not be told apart as they are written, there is at most one. */
static uint32_t unique_array(rg_schemas *s, const rg_terms *t, const rg_array_spec *spec, size_t n_prefix)
{
    rg_terms items = item_terms(s, t, n_prefix);
    uint32_t made = n_prefix || s->f->failed ? RG_NEVER : rg_schema_unique(s, &items, spec->min, spec->max), one;
    rg_array_spec few = { .item = RG_NEVER, .n_prefix = 1, .prefix = &one, .min = spec->min, .max = 1 };

    if (made != RG_NEVER || s->f->failed)
        return made;
    if (spec->min > 1) {
        rg_schema_cannot(s, "'uniqueItems' with 'minItems' of %u: so many different items cannot be told apart here",
                         spec->min);
        return RG_NEVER;
    }
    one = item_node(s, t, 0);
    return rg_json_array(s->f, &s->parts, &few);
}

/* ---- contains ---------------------------------------------------------------------------------------------------- */

/* A "contains": so many items satisfy its schema. */
typedef struct condition {
    json_t *schema;
    uint32_t least, most; /* most: RG_FOREVER: any number */
} condition;

/* An array under conditions, as a graph of states: how many items there are, and how many of them count for each
 * condition.  An item that satisfies a condition need not count for it unless the condition has a `most`, so that the
 * ways of counting run beside each other, as all alternatives of a grammar do. */
typedef struct counted {
    rg_schemas *s;
    const rg_terms *t;
    const rg_array_spec *spec;
    condition of[MOST_CONDITIONS];
    uint32_t n;                      /* conditions */
    uint32_t last;                   /* items past this number are as the one at it, if there is no maxItems */
    uint32_t n_counts;               /* different counts of a state */
    uint32_t *item;                  /* [place][set of conditions]: the node of an item that counts for these */
    uint32_t *state, comma;          /* [number of items][counts]: what may follow, with the bracket */
} counted;

static uint32_t top(const condition *c)
{
    return c->most == RG_FOREVER ? c->least : c->most;
}

static void find_conditions(counted *a)
{
    for (uint32_t i = 0; i < a->t->n; i++) {
        rg_terms one = { .n = 1, .term = { a->t->term[i] } };
        condition c = { rg_schema_get(one.term[0].schema, "contains"),
                        rg_schema_count(a->s, &one, "minContains", true, 1),
                        rg_schema_count(a->s, &one, "maxContains", false, RG_FOREVER) };
        if (!c.schema || (!c.least && c.most == RG_FOREVER))
            continue;
        if (a->n == MOST_CONDITIONS) {
            rg_schema_cannot(a->s, "more than %d of 'contains' for one array", MOST_CONDITIONS);
            return;
        }
        a->of[a->n++] = c;
    }
}

/* The node of the item at a place that counts for a set of conditions. */
static uint32_t counted_item(const counted *a, uint32_t place, uint32_t set)
{
    rg_terms sub = item_terms(a->s, a->t, place);
    const char *left_out;

    for (uint32_t c = 0; c < a->n && !a->s->f->failed; c++) {
        json_t *schema = a->of[c].schema;
        if (set >> c & 1) {
            rg_terms_add(a->s, &sub, schema, 0);
        } else if (a->of[c].most != RG_FOREVER) {
            json_t *other = rg_schema_not(a->s, schema, false, &left_out);
            if (left_out)
                rg_schema_cannot(a->s, "'maxContains': what does not satisfy '%s' is not known", left_out);
            else if (other)
                rg_terms_add(a->s, &sub, other, 0);
        }
    }
    return a->s->f->failed ? RG_NEVER : rg_schema_node(a->s, &sub);
}

/* The counts after one more item that counts for `set`; false: they would be too high, or no need to count it. */
static bool count(const counted *a, uint32_t counts, uint32_t set, uint32_t *after, bool *enough)
{
    *after = counts;
    *enough = true;
    for (uint32_t c = 0, unit = 1; c < a->n; unit *= top(&a->of[c]) + 1, c++) {
        uint32_t had = counts / unit % (top(&a->of[c]) + 1);
        if (set >> c & 1 && had == top(&a->of[c]))
            return false;
        *after += set >> c & 1 ? unit : 0;
        *enough &= had >= a->of[c].least;
    }
    return true;
}

static void make_state(counted *a, uint32_t n_items, uint32_t counts)
{
    rg_form *f = a->s->f;
    bool endless = n_items == a->last && a->spec->max == RG_FOREVER, enough;
    uint32_t n_sets = 1u << a->n, after, *item = a->item + (size_t)n_items * n_sets, made;
    uint32_t comma = n_items ? a->comma : RG_EMPTY;
    rg_list ways = { 0 };

    count(a, counts, 0, &after, &enough);
    if (enough && n_items >= a->spec->min)
        rg_list_add(f, &ways, rg_form_str(f, "]"));
    for (uint32_t set = endless; set < n_sets && (endless || n_items < a->last); set++)
        if (count(a, counts, set, &after, &enough)) {
            uint32_t next = a->state[(size_t)(n_items + !endless) * a->n_counts + after];
            rg_list_add(f, &ways, RG_SEQ(f, comma, item[set], a->s->parts.space, next));
        }
    made = rg_form_alt(f, ways.id, ways.n);
    if (endless)
        made = RG_SEQ(f, rg_form_rep(f, RG_SEQ(f, comma, item[0], a->s->parts.space), 0, RG_FOREVER), made);
    a->state[(size_t)n_items * a->n_counts + counts] = made;
    rg_list_fini(&ways);
}

static uint32_t make_states(counted *a, uint32_t n_prefix)
{
    uint32_t n_sets = 1u << a->n, made = RG_NEVER;

    a->comma = RG_SEQ(a->s->f, rg_form_str(a->s->f, ","), a->s->parts.space);
    a->item = rg_array((size_t)(a->last + 1) * n_sets, sizeof *a->item); /* fits: there are few states */
    a->state = rg_array((size_t)(a->last + 1) * a->n_counts, sizeof *a->state);
    if (!a->item || !a->state)
        rg_form_fail(a->s->f, RG_E_MEMORY, "out of memory for an array of %u items", a->last);
    for (uint32_t k = 0; k <= a->last && !a->s->f->failed; k++)
        for (uint32_t set = 0; set < n_sets; set++)
            a->item[k * n_sets + set] =
                k > n_prefix ? a->item[n_prefix * n_sets + set] : counted_item(a, k, set);
    for (uint32_t k = a->last + 1; k-- > 0 && !a->s->f->failed;)
        for (uint32_t counts = a->n_counts; counts-- > 0;)
            make_state(a, k, counts);
    if (!a->s->f->failed)
        made = RG_SEQ(a->s->f, rg_form_str(a->s->f, "["), a->s->parts.space, a->state[0]);
    rg_free(a->item);
    rg_free(a->state);
    return made;
}

static uint32_t counted_array(counted *a, uint32_t n_prefix)
{
    uint32_t max = a->spec->max, most = MOST_STATES;

    a->last = max != RG_FOREVER ? max : a->spec->min > n_prefix ? a->spec->min : n_prefix;
    a->last += !a->last && max; /* the first item has no comma before it */
    a->n_counts = 1;
    for (uint32_t c = 0; c < a->n; c++) {
        most /= top(&a->of[c]) < MOST_STATES ? top(&a->of[c]) + 1 : MOST_STATES + 1;
        a->n_counts *= most ? top(&a->of[c]) + 1 : 1;
    }
    if (a->last >= most) {
        rg_schema_cannot(a->s, "'contains' with so many items to count: %d states at most", MOST_STATES);
        return RG_NEVER;
    }
    return make_states(a, n_prefix);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static bool must_differ(const rg_terms *t)
{
    bool differ = false;

    RG_EACH(t, i, "uniqueItems", v)
        differ |= json_is_true(v);
    return differ;
}

uint32_t rg_schema_array(rg_schemas *s, const rg_terms *t)
{
    rg_array_spec spec = { .min = rg_schema_count(s, t, "minItems", true, 0),
                           .max = rg_schema_count(s, t, "maxItems", false, RG_FOREVER) };
    rg_list prefix = { 0 };
    size_t longest = 0;
    counted counts = { .s = s, .t = t, .spec = &spec };
    uint32_t made;

    RG_EACH(t, i, "prefixItems", v)
        if (!json_array_size(v))
            rg_schema_bad(s, "'prefixItems' is not a list of schemas");
    for (uint32_t i = 0; i < t->n; i++) {
        size_t n = json_array_size(prefix_of(t->term[i].schema));
        longest = n > longest ? n : longest;
    }
    find_conditions(&counts);
    if (counts.n && must_differ(t) && spec.max > 1 && spec.min < 2)
        spec.max = 1; /* one item differs from all others */
    if (must_differ(t) && spec.max > 1)
        return unique_array(s, t, &spec, longest);
    if (counts.n && !s->f->failed)
        return counted_array(&counts, (uint32_t)longest);
    for (size_t k = 0; k < longest && !s->f->failed; k++)
        rg_list_add(s->f, &prefix, item_node(s, t, k));
    spec.prefix = prefix.id;
    spec.n_prefix = prefix.n;
    spec.item = item_node(s, t, longest);
    made = rg_json_array(s->f, &s->parts, &spec);
    rg_list_fini(&prefix);
    return made;
}
