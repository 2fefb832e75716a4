/* tags.c -- arguments that stand in a tag each: <parameter=KEY>VALUE</parameter>.
 *
 * What a value is follows from the tag's attributes or from the tool's schema; a text is given out as it comes. */
#include "base/json.h"
#include "server/talk/inner.h"

enum { MAX_KEY = 1024, MAX_REFS = 8 };

/* ---- what an argument may be ------------------------------------------------------------------------------------- */

static unsigned type_bit(const char *type)
{
    static const struct {
        const char *name;
        unsigned bit;
    } types[] = { { "string", RG_IS_TEXT },  { "integer", RG_IS_WHOLE }, { "number", RG_IS_NUMBER | RG_IS_WHOLE },
                  { "boolean", RG_IS_BOOL }, { "null", RG_IS_NULL },     { "object", RG_IS_OBJECT },
                  { "array", RG_IS_LIST },   { "str", RG_IS_TEXT },      { "dict", RG_IS_OBJECT } };

    for (size_t i = 0; type && i < RG_LEN(types); i++)
        if (!strcmp(type, types[i].name))
            return types[i].bit;
    return RG_IS_ANY;
}

static unsigned bit_of(const json_t *v)
{
    return json_is_string(v)    ? RG_IS_TEXT
           : json_is_integer(v) ? RG_IS_WHOLE
           : json_is_real(v)    ? RG_IS_NUMBER
           : json_is_boolean(v) ? RG_IS_BOOL
           : json_is_null(v)    ? RG_IS_NULL
           : json_is_object(v)  ? RG_IS_OBJECT
                                : RG_IS_LIST;
}

/* The schema that "#/$defs/NAME" means. */
static const json_t *referred(const json_t *root, const char *ref)
{
    const char *slash = strrchr(ref, '/');

    if (!slash || strncmp(ref, "#/", 2) != 0)
        return NULL;
    const json_t *defs = json_object_get(root, strncmp(ref, "#/definitions/", 14) ? "$defs" : "definitions");
    return json_object_get(defs, slash + 1);
}

static unsigned types_of(const json_t *root, const json_t *s, int depth)
{
    static const char *const unions[] = { "anyOf", "oneOf", "allOf" }, *const rules[] = { "pattern", "format",
                                                                                          "minLength", "maxLength" };
    const json_t *type = json_object_get(s, "type"), *values = json_object_get(s, "enum");
    const char *ref = json_string_value(json_object_get(s, "$ref"));
    unsigned set = 0, bound = 0;

    if (!json_is_object(s) || depth > MAX_REFS)
        return RG_IS_ANY;
    if (ref)
        return types_of(root, referred(root, ref), depth + 1);
    for (size_t i = 0; i < RG_LEN(rules); i++)
        bound |= json_object_get(s, rules[i]) ? RG_IS_BOUND : 0;
    for (size_t i = 0; i < json_array_size(values); i++)
        set |= bit_of(json_array_get(values, i));
    if (json_object_get(s, "const"))
        set |= bit_of(json_object_get(s, "const"));
    if (set)
        return set | bound;
    for (size_t i = 0; i < json_array_size(type); i++)
        set |= type_bit(json_string_value(json_array_get(type, i)));
    if (json_is_string(type))
        set = type_bit(json_string_value(type));
    for (size_t u = 0; !set && u < RG_LEN(unions); u++)
        for (size_t i = 0; i < json_array_size(json_object_get(s, unions[u])); i++)
            set |= types_of(root, json_array_get(json_object_get(s, unions[u]), i), depth + 1);
    if (json_is_true(json_object_get(s, "nullable")))
        set |= RG_IS_NULL;
    return (set ? set : RG_IS_ANY) | bound;
}

unsigned rg_property_types(const json_t *root, const json_t *schema)
{
    return types_of(root, schema, 0);
}

unsigned rg_argument_types(const json_t *function, const char *key, size_t n)
{
    const json_t *parameters = json_object_get(function, "parameters");

    return types_of(parameters, json_object_getn(json_object_get(parameters, "properties"), key, n), 0);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static int match(const rg_answer *a, const char *mark)
{
    return mark ? rg_mark_match(mark, rg_rest(a) + a->scanned, rg_n_rest(a) - a->scanned, a->last) : RG_MARK_NO;
}

static bool close_tags(rg_answer *a)
{
    rg_buf *to = &rg_call_now(a)->arguments;

    rg_put(a, to, to->n ? "}" : "{}", to->n ? 1 : 2);
    rg_call_now(a)->done = true;
    a->state = RG_S_TAIL;
    return true;
}

/* What the attributes of a tag say; 0: nothing. */
static unsigned attribute_types(const rg_answer *a, const char *s, size_t n)
{
    char text[256];

    if (!a->form->tags->is_text)
        return 0;
    n = n < sizeof text - 1 ? n : sizeof text - 1;
    memcpy(text, s, n);
    text[n] = 0;
    if (rg_mark_is_blank(text))
        return 0;
    return strstr(text, a->form->tags->is_text) ? RG_IS_TEXT : RG_IS_ANY;
}

static void begin_value(rg_answer *a, unsigned types)
{
    rg_tool_call *c = rg_call_now(a);
    rg_buf *to = &c->arguments;

    rg_put(a, to, to->n ? "," : "{", 1);
    rg_put(a, to, "\"", 1);
    rg_put_escaped(a, to, a->key.data ? a->key.data : "", a->key.n);
    rg_put(a, to, "\":", 2);
    if (!types)
        types = rg_argument_types(rg_tool_offered(a->tools, c->name, strlen(c->name)), a->key.data ? a->key.data : "",
                                  a->key.n);
    a->role = (int)types;
    a->streams = types == RG_IS_TEXT;
    rg_put(a, to, "\"", a->streams);
    rg_buf_reset(&a->value);
    a->phase = a->nest = 0;
    a->state = RG_S_VALUE;
}

/* KEY, and what stands between it and the value. */
static bool read_key(rg_answer *a, size_t n_open)
{
    const rg_talk_tags *t = a->form->tags;
    size_t key_from = n_open, key_to, rest;
    int n = RG_MARK_NO;

    for (a->scanned = n_open; a->scanned < rg_n_rest(a) && a->scanned < MAX_KEY; a->scanned++)
        if ((n = match(a, t->key_close)) != RG_MARK_NO)
            break;
    key_to = rest = a->scanned;
    if (n >= 0)
        a->scanned = rest += (size_t)n;
    for (; n >= 0 && t->key_rest && a->scanned < rg_n_rest(a) && a->scanned < MAX_KEY; a->scanned++) {
        int k = match(a, t->key_rest);
        if (k == RG_MARK_NO)
            continue;
        n = k;
        break;
    }
    if (n >= 0 && t->key_rest && match(a, t->key_rest) < 0)
        n = RG_MARK_MAYBE;
    a->work += a->scanned;
    if (n < 0 && !a->last && a->scanned < MAX_KEY)
        return a->scanned = 0, false;
    if (n < 0) { /* the tag is cut: the call is */
        rg_skip(a, rg_n_rest(a));
        return false;
    }
    unsigned types = t->key_rest ? attribute_types(a, rg_rest(a) + rest, a->scanned - rest) : 0;
    size_t end = t->key_rest ? a->scanned + (size_t)match(a, t->key_rest) : rest;
    rg_buf_reset(&a->key);
    while (key_to > key_from && rg_is_blank(rg_rest(a)[key_to - 1]))
        key_to--;
    while (key_to > key_from && rg_is_blank(rg_rest(a)[key_from]))
        key_from++;
    rg_put(a, &a->key, rg_rest(a) + key_from, key_to - key_from);
    rg_skip(a, end);
    begin_value(a, types);
    return true;
}

/* Before a tag, or where the tags end. */
bool rg_turn_tags(rg_answer *a)
{
    const char *const ends[] = { a->form->item_close, a->form->close, a->form->open };
    size_t longest = RG_LEN(ends);
    int n;

    rg_skip_blanks(a);
    if (!rg_n_rest(a))
        return false;
    if (rg_mark_is_cut(a, a->form->tags->key_open) || rg_mark_is_cut(a, ends[0]) || rg_mark_is_cut(a, ends[1])) {
        rg_skip(a, rg_n_rest(a));
        return false;
    }
    n = match(a, a->form->tags->key_open);
    for (size_t i = 0; i < RG_LEN(ends) && n != RG_MARK_MAYBE; i++) {
        int k = match(a, ends[i]);
        if (k == RG_MARK_MAYBE || k > n) /* the longest mark: one may begin another */
            longest = i, n = k;
    }
    if (n == RG_MARK_MAYBE)
        return false;
    return n >= 0 && longest == RG_LEN(ends) ? read_key(a, (size_t)n) : close_tags(a);
}

/* A value that is no plain text, whole. */
static void give_value(rg_answer *a)
{
    static const char *const words[][2] = { { "True", "true" }, { "False", "false" }, { "None", "null" } };
    rg_buf *to = &rg_call_now(a)->arguments;
    const char *s = a->value.data ? a->value.data : "";
    size_t n = a->value.n, lead = 0;
    unsigned types = (unsigned)a->role & RG_IS_ANY;

    while (n && rg_is_blank(s[n - 1]))
        n--;
    while (lead < n && rg_is_blank(s[lead]))
        lead++;
    if (a->form->tags->nested && rg_mark_match(a->form->tags->key_open, s + lead, n - lead, true) >= 0) {
        const char *name = rg_call_now(a)->name;
        rg_put_elements(a, rg_tool_offered(a->tools, name, strlen(name)), a->key.data ? a->key.data : "", s + lead,
                        n - lead);
        return;
    }
    json_t *v = n > lead ? rg_json_load(s + lead, n - lead, JSON_DECODE_ANY, NULL) : NULL;
    bool fits = v && (types == RG_IS_ANY || bit_of(v) & types || (json_is_real(v) && types & RG_IS_WHOLE) ||
                      !(types & RG_IS_TEXT));
    if (json_is_string(v) && types == RG_IS_ANY && a->form->tags->is_text)
        fits = true;
    for (size_t i = 0; !v && !(types & RG_IS_TEXT && types != RG_IS_ANY) && i < RG_LEN(words); i++)
        if (strlen(words[i][0]) == n - lead && !memcmp(s + lead, words[i][0], n - lead)) {
            rg_put(a, to, words[i][1], strlen(words[i][1]));
            return;
        }
    if (fits) {
        rg_put(a, to, s + lead, n - lead);
    } else {
        rg_put(a, to, "\"", 1);
        rg_put_escaped(a, to, s, a->value.n);
        rg_put(a, to, "\"", 1);
    }
    json_decref(v);
}

/* Give out the next n bytes of the value. */
static void take_value(rg_answer *a, size_t n)
{
    if (a->streams)
        rg_put_escaped(a, &rg_call_now(a)->arguments, rg_rest(a), n);
    else
        rg_put(a, &a->value, rg_rest(a), n);
    rg_skip(a, n);
}

/* Where a value's reading stands. */
enum { BEFORE, PLAIN, RAW, CLOSING };

/* What stands before the value: its marks, or the end of the tag's line. */
static bool open_value(rg_answer *a)
{
    const rg_talk_tags *t = a->form->tags;
    int n = RG_MARK_NO;

    if (t->value_open) {
        rg_skip_blanks(a);
        n = rg_n_rest(a) ? match(a, t->value_open) : RG_MARK_MAYBE;
        if (n == RG_MARK_MAYBE)
            return false;
        rg_skip(a, n > 0 ? (size_t)n : 0);
    } else if (t->lines && *rg_rest(a) == '\n') {
        rg_skip(a, 1);
    }
    if (t->raw_open && (n = match(a, t->raw_open)) == RG_MARK_MAYBE)
        return false;
    a->phase = t->raw_open && n >= 0 ? RAW : PLAIN;
    if (a->phase == RAW)
        rg_skip(a, (size_t)n);
    return true;
}

/* The bytes of what ends the value here.  a->nest: the tags that are open within it. */
static int value_ends(rg_answer *a)
{
    const rg_talk_tags *t = a->form->tags;
    int n = match(a, a->phase == RAW ? t->raw_close : t->close);

    if (!t->nested || n == RG_MARK_MAYBE)
        return n;
    if (n >= 0)
        return a->nest-- ? RG_MARK_NO : n;
    if (match(a, t->key_open) >= 0)
        a->nest++;
    return RG_MARK_NO;
}

/* The rest of the tag that closes the value. */
static bool close_value(rg_answer *a)
{
    const rg_talk_tags *t = a->form->tags;
    int n = RG_MARK_NO;

    if (t->nested) {
        for (; a->scanned < rg_n_rest(a) && a->scanned < MAX_KEY; a->scanned++)
            if ((n = match(a, t->key_close)) != RG_MARK_NO)
                break;
        if (n < 0 && !a->last && a->scanned < MAX_KEY)
            return false;
        rg_skip(a, n < 0 ? 0 : a->scanned + (size_t)n);
    } else if (a->phase == CLOSING) {
        rg_skip_blanks(a);
        n = rg_n_rest(a) ? match(a, t->close) : RG_MARK_MAYBE;
        if (n == RG_MARK_MAYBE)
            return false;
        rg_skip(a, n < 0 ? 0 : (size_t)n);
    }
    if (a->streams)
        rg_put(a, &rg_call_now(a)->arguments, "\"", 1);
    else
        give_value(a);
    a->streams = false;
    a->nest = 0;
    a->state = RG_S_TAGS;
    return true;
}

bool rg_turn_value(rg_answer *a)
{
    const rg_talk_tags *t = a->form->tags;
    size_t words;
    int n = RG_MARK_NO;

    if (a->phase == CLOSING)
        return close_value(a);
    if (a->phase == BEFORE && !open_value(a))
        return false;
    for (a->scanned = 0; a->scanned < rg_n_rest(a); a->scanned++) {
        a->work++;
        if (a->first[(unsigned char)rg_rest(a)[a->scanned]] && (n = value_ends(a)) != RG_MARK_NO)
            break;
    }
    words = a->scanned;
    bool line = t->lines && words && rg_rest(a)[words - 1] == '\n' && (n >= 0 || n == RG_MARK_MAYBE || !a->last);
    take_value(a, words - line);
    if (n < 0) {
        if (a->last && !a->streams) /* of a call that is cut, as far as it goes */
            rg_put(a, &rg_call_now(a)->arguments, a->value.data ? a->value.data : "", a->value.n);
        return false;
    }
    rg_skip(a, line + (size_t)n);
    if (a->phase == RAW || t->nested) {
        a->phase = CLOSING;
        return true;
    }
    return close_value(a);
}
