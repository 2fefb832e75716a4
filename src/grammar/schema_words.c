/* schema_words.c -- see schema.h: what needs a table (dfa.h): strings of several patterns, formats and lengths at once,
 * multiples, and items that must differ. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "grammar/chars.h"
#include "grammar/dfa.h"
#include "grammar/matcher.h"
#include "grammar/object.h"
#include "grammar/schema.h"

enum {
    MOST_TEXTS = 16,     /* patterns and formats of one value */
    MOST_LISTED = 2000,  /* multiples that are listed: those nearest to 0, or to the bound */
    MOST_TABLES = 1 << 12, /* patterns of one schema */
    MOST_REMAINDERS = 48, /* larger ones are listed */
};

static const rg_set every = { { ~0ULL, ~0ULL, ~0ULL, ~0ULL } };

/* ---- tables ------------------------------------------------------------------------------------------------------ */

/* The table of a form of its own, which ends with this.  False: the form has failed, and so does s unless `try`. */
static bool end_anchored(rg_schemas *s, rg_form *own, uint32_t root, bool try, bool anchored, rg_dfa *out)
{
    rg_error *err = own->err;
    bool ok = false;

    *out = (rg_dfa){ 0 };
    own->root = root;
    if (!own->failed) {
        bool refined = rg_form_refine(own, &every);
        ok = refined ? rg_dfa_of(own, own, anchored, out)
                     : own->node && own->node[own->root].dead; /* dead: nothing matches */
    }
    if (!ok && (!try || err->code == RG_E_INPUT || err->code == RG_E_MEMORY))
        rg_form_fail(s->f, err->code, "%s", err->text);
    rg_form_fini(own);
    return ok;
}

static bool end_form(rg_schemas *s, rg_form *own, uint32_t root, bool try, rg_dfa *out)
{
    return end_anchored(s, own, root, try, false, out);
}

bool rg_schema_narrow(rg_schemas *s, rg_dfa *d, const rg_dfa *other, bool not_other, bool first)
{
    rg_dfa both = { 0 };
    bool ok;

    if (first && !not_other)
        return rg_dfa_copy(s->f, other, d);
    if (first && !rg_dfa_chars(s->f, d))
        return false;
    ok = rg_dfa_both(s->f, d, other, not_other, &both);
    rg_dfa_fini(d);
    *d = both;
    return ok;
}

/* The same; other is taken. */
static bool narrow(rg_schemas *s, rg_dfa *d, rg_dfa *other, bool not_other, bool first)
{
    bool ok = rg_schema_narrow(s, d, other, not_other, first);

    rg_dfa_fini(other);
    return ok;
}

bool rg_schema_words_table(rg_schemas *s, rg_literal *word, uint32_t n, rg_dfa *out)
{
    rg_error err = { 0 };
    rg_list l = { 0 };
    rg_form own;
    bool ok;

    rg_form_init(&own, &err);
    for (uint32_t i = 0; i < n; i++)
        rg_list_add(&own, &l, rg_object_text(&own, word[i].text, word[i].n));
    ok = end_form(s, &own, rg_form_alt(&own, l.id, l.n), false, out);
    rg_list_fini(&l);
    if (ok)
        rg_dfa_unquote(out);
    return ok;
}

static bool simple_table(rg_schemas *s, const char *pattern, size_t n, rg_dfa *out)
{
    bool within = rg_pattern_anchors_within(pattern, n);
    rg_error err = { 0 };
    rg_form own;
    uint32_t root;

    rg_form_init(&own, &err);
    root = within ? rg_pattern_marked(&own, pattern, n) : rg_pattern(&own, pattern, n, RG_WRITE_JSON, false);
    return end_anchored(s, &own, root, false, within, out);
}

static bool format_table(rg_schemas *s, const char *format, rg_dfa *out)
{
    rg_error err = { 0 };
    rg_form own;

    rg_form_init(&own, &err);
    return end_form(s, &own, rg_json_format(&own, format), false, out);
}

/* ---- lookahead at the start of a pattern ------------------------------------------------------------------------- */

static bool looks_ahead(const char *pattern)
{
    return strstr(pattern, "(?=") || strstr(pattern, "(?!");
}

/* The length of the group at the start of p, brackets included; 0: it does not end. */
static size_t group_length(const char *p)
{
    bool in_class = false;
    int depth = 0;

    for (size_t i = 0; p[i]; i++) {
        if (p[i] == '\\' && p[i + 1])
            i++;
        else if (in_class || p[i] == '[')
            in_class = p[i] != ']';
        else if (p[i] == '(')
            depth++;
        else if (p[i] == ')' && --depth == 0)
            return i + 1;
    }
    return 0;
}

/* True if the pattern has alternatives outside of all groups. */
static bool has_alternatives(const char *p)
{
    while (*p && *p != '|') {
        if (*p == '\\' && p[1])
            p += 2;
        else if (*p == '[')
            p += strcspn(p, "]");
        else if (*p == '(')
            p += group_length(p) ? group_length(p) : strlen(p);
        else
            p++;
    }
    return *p;
}

/* The table of what a lookahead of this body lets follow: any text that begins with it, or if it ends with $ is it. */
static bool body_table(rg_schemas *s, const char *body, size_t n, rg_dfa *out)
{
    bool begins = n && body[0] == '^', ok;
    bool ends = n > begins && body[n - 1] == '$' && (n < 2 || body[n - 2] != '\\');
    rg_buf b;

    rg_buf_init(&b, n + 16);
    ok = rg_buf_str(&b, "^(?:") && rg_buf_add(&b, body + begins, n - begins - ends) &&
         rg_buf_str(&b, ends ? ")$" : ")");
    if (!ok)
        rg_form_fail(s->f, RG_E_MEMORY, "schema: out of memory");
    ok = ok && simple_table(s, b.data, b.n, out);
    rg_buf_fini(&b);
    return ok;
}

/* A pattern.  Lookaheads after the ^ at its start are taken off it one by one. */
static bool pattern_table(rg_schemas *s, const char *pattern, rg_dfa *out)
{
    const char *p = pattern + 1, *rest = p;
    rg_dfa d = { 0 };
    rg_buf b;
    bool ok;

    *out = (rg_dfa){ 0 };
    if (pattern[0] != '^' || !looks_ahead(pattern))
        return simple_table(s, pattern, strlen(pattern), out);
    while (!strncmp(rest, "(?=", 3) || !strncmp(rest, "(?!", 3)) {
        size_t n = group_length(rest);
        if (!n)
            break;
        rest += n;
    }
    if (has_alternatives(rest))
        rest = p; /* the lookahead belongs to one alternative alone, and is refused */
    rg_buf_init(&b, strlen(rest) + 2);
    ok = (rg_buf_str(&b, "^") && rg_buf_str(&b, rest)) && simple_table(s, b.data, b.n, out);
    rg_buf_fini(&b);
    for (; ok && p < rest; p += group_length(p))
        ok = body_table(s, p + 3, group_length(p) - 4, &d) && narrow(s, out, &d, p[2] == '!', false);
    if (!ok && !s->f->failed)
        rg_form_fail(s->f, RG_E_MEMORY, "schema: out of memory");
    return ok;
}

/* ---- strings ----------------------------------------------------------------------------------------------------- */

/* The different texts of a keyword; of formats those that are known, since others only annotate. */
typedef struct text_list {
    const char *text[MOST_TEXTS];
    uint32_t n;
} text_list;

static text_list texts_of(rg_schemas *s, const rg_terms *t, const char *key, bool formats)
{
    text_list l = { 0 };

    RG_EACH(t, i, key, v) {
        const char *text = rg_schema_text(s, v, strcmp(key, RG_NOT_PATTERN) ? key : "pattern");
        bool there = false;
        if (s->f->failed)
            break;
        for (uint32_t k = 0; k < l.n && !there; k++)
            there = !strcmp(l.text[k], text);
        if (there || (formats && !rg_json_has_format(text)))
            continue;
        if (l.n == MOST_TEXTS) {
            rg_schema_cannot(s, "more than %d of '%s' for a value", MOST_TEXTS, key);
            break;
        }
        l.text[l.n++] = text;
    }
    return l;
}

uint32_t rg_schema_quoted(rg_form *f, uint32_t inside)
{
    uint32_t quote = rg_form_str(f, "\"");

    return f->failed || inside == RG_NEVER ? RG_NEVER : RG_SEQ(f, quote, inside, quote);
}

static void use(bool *first)
{
    *first = false;
}

/* The strings that must not be. */
static bool leave_out_texts(rg_schemas *s, const json_t *without, rg_dfa *d, bool *first)
{
    rg_literal *word = rg_array(json_array_size(without), sizeof *word);
    rg_dfa words = { 0 };
    uint32_t n = 0;
    json_t *v;
    size_t i;
    bool ok = word != NULL;

    if (!ok)
        rg_form_fail(s->f, RG_E_MEMORY, "schema: out of memory");
    json_array_foreach(without, i, v)
        if (word && json_is_string(v))
            word[n++] = (rg_literal){ json_string_value(v), json_string_length(v) };
    if (n) {
        ok = rg_schema_words_table(s, word, n, &words) && narrow(s, d, &words, true, *first);
        use(first);
    }
    rg_free(word);
    return ok;
}

/* The table of all strings that the terms allow, without their quotes; lengths are not looked at. */
static bool string_table(rg_schemas *s, const rg_terms *t, const json_t *without, rg_dfa *d, bool *first)
{
    text_list patterns = texts_of(s, t, "pattern", false), formats = texts_of(s, t, "format", true);
    text_list not = texts_of(s, t, RG_NOT_PATTERN, false);
    rg_dfa one = { 0 };
    bool ok = !s->f->failed;

    *d = (rg_dfa){ 0 };
    *first = true;
    for (uint32_t i = 0; i < patterns.n && ok; i++, use(first)) {
        const rg_dfa *table = rg_schema_table(s, patterns.text[i]);
        ok = table && rg_schema_narrow(s, d, table, false, *first);
    }
    for (uint32_t i = 0; i < formats.n && ok; i++, use(first))
        ok = format_table(s, formats.text[i], &one) && narrow(s, d, &one, false, *first);
    for (uint32_t i = 0; i < not.n && ok; i++, use(first)) {
        const rg_dfa *table = rg_schema_table(s, not.text[i]);
        ok = table && rg_schema_narrow(s, d, table, true, *first);
    }
    return ok && leave_out_texts(s, without, d, first);
}

bool rg_schema_string_table(rg_schemas *s, const rg_terms *t, rg_dfa *out)
{
    rg_error err = { 0 };
    rg_form own;
    bool ok;

    rg_form_init(&own, &err);
    ok = end_form(s, &own, rg_schema_one_way(s, t, &own), false, out);
    if (ok)
        rg_dfa_unquote(out);
    return ok;
}

static uint32_t by_table(rg_schemas *s, const rg_terms *t, const json_t *without, uint32_t min, uint32_t max)
{
    bool first, ok;
    rg_dfa d, chars = { 0 };

    ok = string_table(s, t, without, &d, &first);
    if (ok && (min || max != RG_FOREVER))
        ok = rg_dfa_chars(s->f, &chars) && narrow(s, &d, &chars, false, first);
    if (ok)
        return rg_dfa_word_node(s->f, &d, min, max);
    rg_dfa_fini(&d);
    return RG_NEVER;
}

static bool has_text(const json_t *list)
{
    json_t *v;
    size_t i;

    json_array_foreach(list, i, v)
        if (json_is_string(v))
            return true;
    return false;
}

uint32_t rg_schema_string(rg_schemas *s, const rg_terms *t, const json_t *without)
{
    text_list patterns = texts_of(s, t, "pattern", false), formats = texts_of(s, t, "format", true);
    text_list not = texts_of(s, t, RG_NOT_PATTERN, false);
    uint32_t min = rg_schema_count(s, t, "minLength", true, 0), n = patterns.n + formats.n;
    uint32_t max = rg_schema_count(s, t, "maxLength", false, RG_FOREVER);
    const char *one = patterns.n ? patterns.text[0] : NULL;
    uint32_t character = s->one_way ? rg_chars_any(s->f, RG_WRITE_JSON) : s->parts.string_char;
    bool excluded = not.n || has_text(without);

    if (min > max || s->f->failed)
        return RG_NEVER;
    if (!n && !excluded && !min && max == RG_FOREVER)
        return s->parts.string;
    if (!n && !excluded)
        return rg_schema_quoted(s->f, rg_form_rep(s->f, character, min, max));
    if (n > 1 || excluded || min || max != RG_FOREVER ||
        (one && (looks_ahead(one) || rg_pattern_anchors_within(one, strlen(one)))))
        return rg_schema_quoted(s->f, by_table(s, t, without, min, max));
    return rg_schema_quoted(s->f, one ? rg_pattern(s->f, one, strlen(one), RG_WRITE_JSON, false)
                                      : rg_json_format(s->f, formats.text[0]));
}

/* ---- tables that are kept ---------------------------------------------------------------------------------------- */

const rg_dfa *rg_schema_table(rg_schemas *s, const char *pattern)
{
    int at = rg_dict_get(s->table_of, pattern, strlen(pattern));
    rg_dfa **all, *d;

    if (at >= 0)
        return s->table[at];
    d = rg_zalloc(sizeof *d);
    /* fits: there are fewer than MOST_TABLES */
    all = d && s->n_tables < MOST_TABLES ? rg_resize_array(s->table, s->n_tables + 1, sizeof *all) : NULL;
    if (!all || !rg_dict_put(s->table_of, pattern, strlen(pattern), (int)s->n_tables)) {
        rg_form_fail(s->f, s->n_tables < MOST_TABLES ? RG_E_MEMORY : RG_E_LIMIT,
                     "schema: more than %d patterns, or no memory for them", MOST_TABLES);
        s->table = all ? all : s->table;
        rg_free(d);
        return NULL;
    }
    s->table = all;
    s->table[s->n_tables++] = d;
    return pattern_table(s, pattern, d) ? d : NULL;
}

void rg_schema_tables_fini(rg_schemas *s)
{
    for (uint32_t i = 0; i < s->n_tables; i++) {
        rg_dfa_fini(s->table[i]);
        rg_free(s->table[i]);
    }
    rg_free(s->table);
    rg_dict_free(s->table_of);
}

/* A text as JSON writes it, in a table of such texts without their quotes. */
static bool in_table(rg_schemas *s, const rg_dfa *d, const char *text)
{
    uint16_t state = d->n ? 0 : RG_DFA_DEAD;
    rg_buf b;

    rg_buf_init(&b, RG_FORM_TEXT);
    if (!rg_chars_quote(&b, text, strlen(text)))
        rg_form_fail(s->f, RG_E_MEMORY, "schema: out of memory");
    for (size_t i = 1; i + 1 < b.n && state != RG_DFA_DEAD; i++)
        state = rg_dfa_next(d, state, (uint8_t)b.data[i]);
    rg_buf_fini(&b);
    return state != RG_DFA_DEAD && d->ends[state] & RG_DFA_ENDS;
}

bool rg_schema_fits_format(rg_schemas *s, const json_t *schema, const json_t *v)
{
    const char *format = json_string_value(rg_schema_get(schema, "format"));
    rg_dfa d;
    bool fits;

    if (!format || !json_is_string(v) || !rg_json_has_format(format))
        return true;
    fits = format_table(s, format, &d) && in_table(s, &d, json_string_value(v));
    rg_dfa_fini(&d);
    return fits;
}

bool rg_schema_found(rg_schemas *s, const char *pattern, const char *text)
{
    const rg_dfa *d = rg_schema_table(s, pattern);

    return d && in_table(s, d, text);
}

/* ---- multiples --------------------------------------------------------------------------------------------------- */

bool rg_schema_has_multiple(const rg_terms *t)
{
    RG_EACH(t, i, "multipleOf", v)
        return true;
    return false;
}

/* As readers with and without exact arithmetic see it: both have to agree. */
static bool is_multiple(const json_t *v, const json_t *of)
{
    double quotient = json_number_value(v) / json_number_value(of);

    if (json_is_integer(v) && json_is_integer(of))
        return json_integer_value(v) % json_integer_value(of) == 0;
    return isfinite(quotient) && floor(quotient) == quotient;
}

bool rg_schema_is_multiple(rg_schemas *s, const rg_terms *t, const json_t *v)
{
    bool all = true;

    RG_EACH(t, i, "multipleOf", of) {
        if (!json_is_number(of) || !(json_number_value(of) > 0))
            rg_schema_bad(s, "'multipleOf' is not a number above 0");
        else
            all &= is_multiple(v, of);
    }
    return all && !s->f->failed;
}

/* The largest 'multipleOf'; *n: how many there are. */
static const json_t *largest(rg_schemas *s, const rg_terms *t, int *n)
{
    const json_t *most = NULL;

    *n = 0;
    RG_EACH(t, i, "multipleOf", of) {
        ++*n;
        if (!json_is_number(of) || !(json_number_value(of) > 0))
            rg_schema_bad(s, "'multipleOf' is not a number above 0");
        else if (!most || rg_schema_compare(of, most) > 0)
            most = of;
    }
    return most;
}

/* v as digits times a power of ten: v = *digits / 10^places. */
static bool split(const json_t *v, int64_t *digits, int *places)
{
    char text[64], all[64];

    for (*places = 0; *places <= 15; ++*places) {
        size_t n = 0;
        snprintf(text, sizeof text, "%.*f", *places, json_number_value(v));
        if (strtod(text, NULL) != json_number_value(v))
            continue;
        for (const char *p = text; *p; p++)
            if (*p != '.' && n < 18)
                all[n++] = *p;
        all[n] = 0;
        *digits = strtoll(all, NULL, 10);
        return n < 18;
    }
    return false;
}

/* k x digits / 10^places as a decimal number, without zeros at the end of a fraction; false: it is too large. */
static bool write_multiple(char text[48], int64_t k, int64_t digits, int places)
{
    int64_t v;
    char all[48];
    int n;

    if (__builtin_mul_overflow(k, digits, &v) || v == INT64_MIN)
        return false;
    n = snprintf(all, sizeof all, "%0*lld", places + 1, (long long)(v < 0 ? -v : v));
    snprintf(text, 48, "%s%.*s.%s", v < 0 ? "-" : "", n - places, all, all + n - places);
    for (n = (int)strlen(text); text[n - 1] == '0'; n--)
        ;
    text[text[n - 1] == '.' ? n - 1 : n] = 0;
    return true;
}

/* Which multiples are listed: *from to *to times. */
static void choose_range(rg_schemas *s, const rg_terms *t, double of, int64_t *from, int64_t *to)
{
    double low, high;

    rg_schema_bounds(s, t, &low, &high);
    low = fmax(ceil(low / of) - 1, -0x1p62); /* one more at each end: the division rounds */
    high = fmin(floor(high / of) + 1, 0x1p62);
    if (low > 0)
        high = fmin(high, low + MOST_LISTED);
    else if (high < 0)
        low = fmax(low, high - MOST_LISTED);
    else
        low = fmax(low, -MOST_LISTED / 2), high = fmin(high, MOST_LISTED / 2);
    *from = (int64_t)low;
    *to = (int64_t)high;
}

static uint32_t listed_multiples(rg_schemas *s, const rg_terms *t, const json_t *of, bool whole)
{
    char (*text)[48] = rg_array(MOST_LISTED + 8, sizeof *text);
    rg_literal *word = rg_array(MOST_LISTED + 8, sizeof *word);
    int64_t from = 0, to = -1, digits = 0;
    uint32_t n = 0, made = RG_NEVER;
    int places = 0;

    if (!text || !word)
        rg_form_fail(s->f, RG_E_MEMORY, "schema: out of memory");
    else if (!split(of, &digits, &places))
        rg_schema_cannot(s, "a 'multipleOf' of %.17g, which has too many digits", json_number_value(of));
    if (!s->f->failed)
        choose_range(s, t, json_number_value(of), &from, &to);
    for (int64_t k = s->f->failed ? 1 : from; !s->f->failed && k <= to && n < MOST_LISTED + 8; k++) {
        if (!write_multiple(text[n], k, digits, places))
            continue;
        json_t *v = strchr(text[n], '.') ? json_real(strtod(text[n], NULL)) : json_integer(strtoll(text[n], NULL, 10));
        if (!(whole && json_is_real(v)) && rg_schema_in_range(s, t, v) && rg_schema_is_multiple(s, t, v)) {
            word[n] = (rg_literal){ text[n], strlen(text[n]) };
            n++;
        }
        json_decref(v);
    }
    if (!s->f->failed && n)
        made = rg_form_words(s->f, word, n);
    rg_free(text);
    rg_free(word);
    return made;
}

uint32_t rg_schema_multiples(rg_schemas *s, const rg_terms *t, bool whole)
{
    int n;
    const json_t *of = largest(s, t, &n);
    double v = json_number_value(of);
    rg_dfa d, multiples = { 0 };
    rg_error err = { 0 };
    rg_form own;

    if (s->f->failed)
        return RG_NEVER;
    if (n > 1 || floor(v) != v || v > MOST_REMAINDERS)
        return listed_multiples(s, t, of, whole);
    rg_form_init(&own, &err);
    if (!end_form(s, &own, rg_schema_number(s, &own, t, true, true), false, &d))
        return RG_NEVER;
    if (!rg_dfa_multiples(s->f, (uint32_t)v, &multiples) || !narrow(s, &d, &multiples, false, false)) {
        rg_dfa_fini(&d);
        return RG_NEVER;
    }
    return rg_dfa_word_node(s->f, &d, 0, RG_FOREVER);
}

/* ---- items that differ ------------------------------------------------------------------------------------------- */

uint32_t rg_schema_short_number(rg_schemas *s, const rg_terms *t)
{
    static const char numbers[] = "^(?:0|-?[1-9][0-9]{0,14}(?:\\.[0-9]{0,5}[1-9])?|-?0\\.[0-9]{0,5}[1-9])$";
    rg_dfa d, bounded = { 0 };
    rg_error err = { 0 };
    rg_form own;
    bool ok;

    if (!simple_table(s, numbers, strlen(numbers), &d))
        return RG_NEVER;
    rg_form_init(&own, &err);
    ok = end_form(s, &own, rg_schema_number(s, &own, t, false, false), false, &bounded);
    ok = ok && narrow(s, &d, &bounded, false, false);
    if (ok)
        return rg_dfa_word_node(s->f, &d, 0, RG_FOREVER);
    rg_dfa_fini(&d);
    return RG_NEVER;
}

/* All ways to write a number in decimals without an exponent, as a pattern. */
static void spellings(rg_buf *b, const json_t *v)
{
    char text[64];
    size_t n;

    if (json_is_integer(v))
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(v));
    else
        for (int digits = 0; digits <= 17; digits++) {
            snprintf(text, sizeof text, "%.*f", digits, fmod(json_real_value(v), 1e20));
            if (strtod(text, NULL) == json_real_value(v))
                break;
        }
    n = strlen(text);
    rg_buf_str(b, json_number_value(v) == 0 ? "|-?" : "|");
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '.')
            rg_buf_str(b, "\\");
        rg_buf_add(b, &text[i], 1);
    }
    rg_buf_str(b, strchr(text, '.') ? "0*" : "(?:\\.0+)?");
}

/* Reals that are integers, and the numbers that must not be. */
static bool leave_out_numbers(rg_schemas *s, uint32_t types, const json_t *without, rg_dfa *d)
{
    rg_dfa words = { 0 };
    rg_buf b;
    json_t *v;
    size_t i;
    bool ok;

    rg_buf_init(&b, RG_PATTERN_BYTES);
    rg_buf_str(&b, types & RG_TYPE_INTEGER ? "^(?:x" : "^(?:-?\\d+(?:\\.0+)?"); /* x: no number */
    json_array_foreach(without, i, v)
        if (json_is_number(v))
            spellings(&b, v);
    ok = rg_buf_str(&b, ")$");
    if (!ok)
        rg_schema_cannot(s, "so many numbers that must not be");
    ok = ok && simple_table(s, b.data, b.n, &words) && narrow(s, d, &words, true, false);
    rg_buf_fini(&b);
    return ok;
}

uint32_t rg_schema_numbers_without(rg_schemas *s, const rg_terms *t, uint32_t types, const json_t *without)
{
    rg_error err = { 0 };
    rg_form own;
    rg_dfa d;
    bool whole = !(types & RG_TYPE_REAL), ok;

    if (rg_schema_has_multiple(t)) {
        rg_schema_cannot(s, "'multipleOf' together with numbers that must not be");
        return RG_NEVER;
    }
    rg_form_init(&own, &err);
    ok = end_form(s, &own, rg_schema_number(s, &own, t, whole, true), false, &d) &&
         leave_out_numbers(s, types, without, &d);
    if (ok)
        return rg_dfa_word_node(s->f, &d, 0, RG_FOREVER);
    rg_dfa_fini(&d);
    return RG_NEVER;
}

uint32_t rg_schema_unique(rg_schemas *s, const rg_terms *items, uint32_t min, uint32_t max)
{
    rg_error err = { 0 };
    rg_dfa d;
    rg_form own;
    uint32_t rest;

    rg_form_init(&own, &err);
    if (!end_form(s, &own, rg_schema_one_way(s, items, &own), true, &d))
        return RG_NEVER;
    rest = rg_unique_node(s->f, &d, min, max, s->parts.space);
    return rest == RG_NEVER ? RG_NEVER : RG_SEQ(s->f, rg_form_str(s->f, "["), s->parts.space, rest);
}
