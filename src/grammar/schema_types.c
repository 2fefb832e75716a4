/* schema_types.c -- see schema.h: what a list of schemas says of values of each type. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "grammar/matcher.h"
#include "grammar/schema.h"

#define EACH RG_EACH

/* ---- types and values -------------------------------------------------------------------------------------------- */

static uint32_t type_named(rg_schemas *s, const json_t *v)
{
    static const struct {
        const char *name;
        uint32_t types;
    } types[] = {
        { "null", RG_TYPE_NULL },     { "boolean", RG_TYPE_BOOLEAN }, { "integer", RG_TYPE_INTEGER },
        { "string", RG_TYPE_STRING }, { "array", RG_TYPE_ARRAY },     { "object", RG_TYPE_OBJECT },
        { "number", RG_TYPE_INTEGER | RG_TYPE_REAL }, { RG_REAL, RG_TYPE_REAL },
    };

    for (size_t i = 0; i < RG_LEN(types) && json_is_string(v); i++)
        if (!strcmp(types[i].name, json_string_value(v)))
            return types[i].types;
    rg_schema_bad(s, "'type' is none of null, boolean, integer, number, string, array, object, nor a list of these");
    return 0;
}

uint32_t rg_schema_types(rg_schemas *s, const rg_terms *t)
{
    uint32_t types = RG_TYPE_ANY;

    EACH(t, i, "type", v) {
        uint32_t some = 0;
        json_t *one;
        size_t k;

        if (!json_is_array(v))
            some = type_named(s, v);
        json_array_foreach(v, k, one)
            some |= type_named(s, one);
        if (json_is_true(rg_schema_get(t->term[i].schema, "nullable")) && !(t->term[i].done & RG_DONE_NULLABLE))
            some |= RG_TYPE_NULL;
        types &= some;
    }
    return types;
}

uint32_t rg_schema_type_of(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_NULL: return RG_TYPE_NULL;
    case JSON_TRUE:
    case JSON_FALSE: return RG_TYPE_BOOLEAN;
    case JSON_INTEGER: return RG_TYPE_INTEGER;
    case JSON_REAL: return floor(json_real_value(v)) == json_real_value(v) ? RG_TYPE_INTEGER : RG_TYPE_REAL;
    case JSON_STRING: return RG_TYPE_STRING;
    case JSON_ARRAY: return RG_TYPE_ARRAY;
    case JSON_OBJECT: return RG_TYPE_OBJECT;
    }
    return 0;
}

uint32_t rg_schema_count(rg_schemas *s, const rg_terms *t, const char *key, bool largest, uint32_t none)
{
    uint32_t out = none;
    bool any = false;

    EACH(t, i, key, v) {
        double d = json_is_number(v) ? json_number_value(v) : -1;
        uint32_t n;

        if (d < 0 || floor(d) != d) {
            rg_schema_bad(s, "'%s' is not a whole number of at least 0", key);
            return none;
        }
        if (largest && d > RG_REPEAT_MIN) {
            rg_form_fail(s->f, RG_E_LIMIT, "schema: '%s' of %.0f, of at most %d", key, d, RG_REPEAT_MIN);
            return none;
        }
        n = d >= RG_FOREVER ? RG_FOREVER - 1 : (uint32_t)d;
        out = !any ? n : largest == (n > out) ? n : out;
        any = true;
    }
    return out;
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

typedef struct limit {
    bool is, exclusive;
    const json_t *value; /* a number */
} limit;

static void tighten(limit *l, const json_t *v, bool exclusive, bool lower)
{
    int order = l->is ? rg_schema_compare(v, l->value) : 0;

    if (!l->is || (lower ? order > 0 : order < 0) || (order == 0 && exclusive))
        *l = (limit){ true, exclusive, v };
}

/* Draft 4 has true or false in exclusiveMinimum: whether the minimum itself is excluded. */
static limit find_limit(rg_schemas *s, const rg_terms *t, bool lower)
{
    const char *key[] = { lower ? "minimum" : "maximum", lower ? "exclusiveMinimum" : "exclusiveMaximum" };
    limit l = { 0 };

    for (int k = 0; k < 2; k++) {
        EACH(t, i, key[k], v) {
            if (k == 1 && json_is_boolean(v))
                continue;
            if (!json_is_number(v))
                rg_schema_bad(s, "'%s' is not a number", key[k]);
            else
                tighten(&l, v, k == 1 || json_is_true(rg_schema_get(t->term[i].schema, key[1])), lower);
        }
    }
    return l;
}

void rg_schema_bounds(rg_schemas *s, const rg_terms *t, double *low, double *high)
{
    limit least = find_limit(s, t, true), most = find_limit(s, t, false);

    *low = least.is ? json_number_value(least.value) : -(double)INFINITY;
    *high = most.is ? json_number_value(most.value) : (double)INFINITY;
}

/* The limit as a decimal text without an exponent, exactly.  Numbers are written with so few digits that a limit beyond
 * them on the far side of 0 is lowered to them. */
static rg_json_bound bound_text(rg_schemas *s, const limit *l, bool whole, bool lower, char text[64])
{
    double most = whole ? 1e20 : 1e15, value = l->is ? json_number_value(l->value) : 0;

    if (!l->is)
        return (rg_json_bound){ 0 };
    if (fabs(value) >= most) {
        if ((value > 0) == lower)
            rg_schema_cannot(s, "a minimum or maximum of %.17g, which has too many digits", value);
        snprintf(text, 64, "%s%.0f", lower ? "-" : "", whole ? 9223372036854775000.0 : 999999999999999.0);
        return (rg_json_bound){ text, false };
    }
    if (json_is_integer(l->value)) {
        snprintf(text, 64, "%lld", (long long)json_integer_value(l->value));
    } else {
        for (int digits = 0; digits <= 17; digits++) {
            snprintf(text, 64, "%.*f", digits, value);
            if (strtod(text, NULL) == value)
                break;
        }
    }
    if (strtod(text, NULL) != value)
        rg_schema_cannot(s, "a minimum or maximum of %.17g, which has too many digits", value);
    return (rg_json_bound){ text, l->exclusive };
}

uint32_t rg_schema_number(rg_schemas *s, rg_form *f, const rg_terms *t, bool whole, bool short_)
{
    static char least[] = "-999999999999999", most[] = "999999999999999";
    limit low = find_limit(s, t, true), high = find_limit(s, t, false);
    char low_text[64], high_text[64];
    rg_json_bound min, max;

    if (!low.is && !high.is && !short_)
        return whole ? rg_json_integer(f, (rg_json_bound){ 0 }, (rg_json_bound){ 0 })
                     : rg_json_number(f, (rg_json_bound){ 0 }, (rg_json_bound){ 0 });
    min = bound_text(s, &low, whole, true, low_text);
    max = bound_text(s, &high, whole, false, high_text);
    if (s->f->failed)
        return RG_NEVER;
    if (short_ && !min.text)
        min.text = least;
    if (short_ && !max.text)
        max.text = most;
    return whole ? rg_json_integer(f, min, max) : rg_json_number(f, min, max);
}

/* A number of these types that is none of the values in `without` (or NULL). */
static uint32_t number_node(rg_schemas *s, const rg_terms *t, uint32_t types, const json_t *without)
{
    bool bounded = find_limit(s, t, true).is || find_limit(s, t, false).is, whole = !(types & RG_TYPE_REAL);

    if (rg_schema_range_empty(s, t))
        return RG_NEVER;
    if (without || !(types & RG_TYPE_INTEGER))
        return rg_schema_numbers_without(s, t, types, without);
    if (rg_schema_has_multiple(t))
        return rg_schema_multiples(s, t, whole);
    if (s->one_way && !whole)
        return rg_schema_short_number(s, t);
    return bounded ? rg_schema_number(s, s->f, t, whole, false) : whole ? s->parts.integer : s->parts.number;
}

/* ---- values that are listed -------------------------------------------------------------------------------------- */

bool rg_schema_in_range(rg_schemas *s, const rg_terms *t, const json_t *v)
{
    limit low = find_limit(s, t, true), high = find_limit(s, t, false);
    int above = low.is ? rg_schema_compare(v, low.value) : 1, below = high.is ? rg_schema_compare(v, high.value) : -1;

    return above >= (low.is && low.exclusive) && below <= -(high.is && high.exclusive);
}

bool rg_schema_range_empty(rg_schemas *s, const rg_terms *t)
{
    limit low = find_limit(s, t, true), high = find_limit(s, t, false);
    int order = low.is && high.is ? rg_schema_compare(low.value, high.value) : -1;

    return order > 0 || (order == 0 && (low.exclusive || high.exclusive));
}

static uint32_t exactly(rg_schemas *s, json_t *v)
{
    double real = json_is_real(v) ? json_real_value(v) : 0.5;
    json_t *whole = NULL;
    uint32_t made;

    if (s->one_way && (json_is_array(v) || json_is_object(v)))
        return RG_NEVER;
    if (s->one_way && floor(real) == real && fabs(real) < 1e15)
        whole = json_integer((json_int_t)real);
    made = rg_json_exactly(s->f, &s->parts, whole ? whole : v);
    json_decref(whole);
    return made;
}

/* The listed values that satisfy all terms; from: the schema that lists them. */
static uint32_t listed(rg_schemas *s, const rg_terms *t, const json_t *list, const json_t *from)
{
    rg_list l = { 0 };
    json_t *v;
    size_t k;
    uint32_t made;

    json_array_foreach(list, k, v) {
        bool all = !s->f->failed;
        for (uint32_t i = 0; i < t->n && all; i++)
            all = rg_schema_valid(s, t->term[i].schema, v, from) &&
                  (t->term[i].schema == from || rg_schema_fits_format(s, t->term[i].schema, v));
        if (all)
            rg_list_add(s->f, &l, exactly(s, v));
    }
    made = rg_form_alt(s->f, l.id, l.n);
    rg_list_fini(&l);
    return made;
}

bool rg_schema_lists_values(const rg_terms *t)
{
    EACH(t, i, "const", v)
        return true;
    EACH(t, i, "enum", v)
        return true;
    return false;
}

/* The values that must not be, of all terms: one list, or NULL. */
static json_t *values_left_out(const rg_terms *t)
{
    json_t *all = NULL;

    EACH(t, i, RG_NOT_VALUES, v) {
        all = all ? all : json_array();
        json_array_extend(all, v);
    }
    return all;
}

static bool leaves_out(const json_t *list, const json_t *v)
{
    json_t *one;
    size_t i;

    json_array_foreach(list, i, one)
        if (json_equal(one, v))
            return true;
    return false;
}

/* Types whose forbidden values cannot be told from the others, or that nothing is left of; true and false are
 * *boolean. */
static uint32_t types_left_out(rg_schemas *s, const json_t *list, uint32_t *boolean)
{
    static const struct {
        json_type type;
        uint32_t types;
    } whole[] = { { JSON_ARRAY, RG_TYPE_ARRAY }, { JSON_OBJECT, RG_TYPE_OBJECT }, { JSON_NULL, RG_TYPE_NULL } };
    bool yes = leaves_out(list, json_true()), no = leaves_out(list, json_false());
    uint32_t out = yes && no ? RG_TYPE_BOOLEAN : 0;
    json_t *one;
    size_t i;

    *boolean = yes ? rg_form_str(s->f, "false") : no ? rg_form_str(s->f, "true") : s->parts.boolean;
    json_array_foreach(list, i, one)
        for (size_t k = 0; k < RG_LEN(whole); k++)
            if (json_typeof(one) == whole[k].type)
                out |= whole[k].types;
    return out;
}

uint32_t rg_schema_plain(rg_schemas *s, const rg_terms *t)
{
    uint32_t types = rg_schema_types(s, t), made[6], n = 0, boolean = s->parts.boolean;
    json_t *without;

    EACH(t, i, "const", v) {
        json_t *list = json_pack("[O]", v);
        uint32_t one = listed(s, t, list, t->term[i].schema);
        json_decref(list);
        return one;
    }
    EACH(t, i, "enum", v) {
        if (!json_is_array(v))
            rg_schema_bad(s, "'enum' is not a list of values");
        return listed(s, t, v, t->term[i].schema);
    }
    without = values_left_out(t);
    types &= without ? ~types_left_out(s, without, &boolean) : RG_TYPE_ANY;
    if (s->one_way)
        types &= ~(uint32_t)(RG_TYPE_OBJECT | RG_TYPE_ARRAY);
    if (types & RG_TYPE_OBJECT)
        made[n++] = rg_schema_object(s, t);
    if (types & RG_TYPE_ARRAY)
        made[n++] = rg_schema_array(s, t);
    if (types & RG_TYPE_STRING)
        made[n++] = rg_schema_string(s, t, without);
    if (types & (RG_TYPE_INTEGER | RG_TYPE_REAL))
        made[n++] = number_node(s, t, types, without);
    if (types & RG_TYPE_BOOLEAN)
        made[n++] = boolean;
    if (types & RG_TYPE_NULL)
        made[n++] = s->parts.null;
    json_decref(without);
    return rg_form_alt(s->f, made, n);
}
