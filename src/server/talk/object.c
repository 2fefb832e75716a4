/* object.c -- calls that are JSON objects with a name and arguments, read member by member, so that arguments are given
 * out as they come. */
#include "base/json.h"
#include "server/talk/inner.h"

enum { KEY, IN_KEY, COLON, VALUE, IN_NAME, SKIP, EARLY, STREAM, CLOSED };
enum { OTHER, NAME, ARGUMENTS, FUNCTION };

static bool is_one_of(const rg_buf *key, const char *const *words)
{
    for (; *words; words++)
        if (strlen(*words) == key->n && !memcmp(key->data, *words, key->n))
            return true;
    return false;
}

static int role_of(const rg_answer *a)
{
    static const char *const names[] = { "name", "tool_name", NULL }, *const functions[] = { "function", NULL },
                             *const arguments[] = { "arguments", "parameters", "input", "args", NULL };

    if (!a->key.n)
        return OTHER;
    return is_one_of(&a->key, names)       ? NAME
           : is_one_of(&a->key, functions) ? FUNCTION
           : is_one_of(&a->key, arguments) ? ARGUMENTS
                                           : OTHER;
}

/* The text that a JSON string stands for; NULL: it is none. */
static json_t *text_of(const rg_buf *raw)
{
    json_t *v = raw->n ? rg_json_load(raw->data, raw->n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;

    if (json_is_string(v))
        return v;
    json_decref(v);
    return NULL;
}

static bool commit(rg_answer *a, const rg_buf *raw)
{
    json_t *name = text_of(raw);
    size_t n = json_string_length(name);
    const char *s = json_string_value(name);
    bool ok = name && !memchr(s, 0, n) && ((a->form->open && !a->form->offered) || rg_tool_offered(a->tools, s, n)) &&
              rg_commit(a, s, n, NULL, 0);

    json_decref(name);
    return ok;
}

/* Arguments that came before the name, or as JSON in a text. */
static bool give_early(rg_answer *a)
{
    json_t *text = text_of(&a->value);
    rg_buf *to = &rg_call_now(a)->arguments;

    if (text)
        rg_put(a, to, json_string_value(text), json_string_length(text));
    else if (a->value.n && *a->value.data == '{')
        rg_put(a, to, a->value.data, a->value.n);
    if (!to->n)
        rg_put(a, to, "{}", 2);
    rg_call_now(a)->done = true;
    json_decref(text);
    return true;
}

/* The first byte of a member's value. */
static bool begin_value(rg_answer *a, char c)
{
    bool keyed = a->form->way == RG_CALL_KEYED && !a->nest;
    int role = keyed ? ARGUMENTS : role_of(a);

    if (keyed) {
        rg_buf_reset(&a->name);
        rg_buf_add(&a->name, "\"", 1);
        rg_put(a, &a->name, a->key.data ? a->key.data : "", a->key.n);
        rg_buf_add(&a->name, "\"", 1);
    }
    if (role == FUNCTION && c == '{') {
        a->nest++;
        a->phase = KEY;
        rg_skip(a, 1);
        return true;
    }
    a->scan = (rg_json_scan){ 0 };
    a->role = role == FUNCTION ? NAME : role;
    a->phase = SKIP;
    if (a->role == NAME && c == '"' && !a->committed) {
        rg_buf_reset(&a->name);
        a->phase = IN_NAME;
    } else if (a->role == ARGUMENTS && !a->committed) {
        if (c != '{' && c != '"' && c != 'n')
            return false;
        rg_buf_reset(&a->value);
        a->phase = EARLY;
        if (c == '{' && a->name.n) {
            if (!commit(a, &a->name))
                return false;
            a->phase = STREAM;
        }
    }
    return true;
}

static bool in_value(rg_answer *a)
{
    rg_buf *to = a->phase == STREAM    ? &rg_call_now(a)->arguments
                 : a->phase == IN_NAME ? &a->name
                 : a->phase == EARLY   ? &a->value
                                       : NULL;
    bool done;
    size_t n = rg_json_scan_feed(&a->scan, rg_rest(a), rg_n_rest(a), &done);

    if (to)
        rg_put(a, to, rg_rest(a), n);
    rg_skip(a, n);
    if (!done)
        return false;
    if (a->phase == STREAM)
        rg_call_now(a)->done = true;
    a->phase = KEY;
    return true;
}

/* The object ends: now or never it is a call. */
static bool close_object(rg_answer *a)
{
    rg_skip(a, 1);
    if (a->nest) {
        a->nest--;
        return true;
    }
    if (!a->committed && a->name.n && commit(a, &a->name))
        give_early(a);
    else if (!a->committed)
        return rg_no_call(a);
    a->state = RG_S_TAIL;
    return true;
}

static bool in_key(rg_answer *a)
{
    bool done;
    size_t n = rg_json_scan_feed(&a->scan, rg_rest(a), rg_n_rest(a), &done);

    rg_put(a, &a->key, rg_rest(a), n - done);
    rg_skip(a, n);
    a->phase = done ? COLON : IN_KEY;
    return done;
}

/* Something that no object has here: no call, or one whose rest is lost. */
static bool give_up(rg_answer *a)
{
    if (!a->committed)
        return rg_no_call(a);
    a->state = RG_S_TAIL;
    return true;
}

bool rg_turn_object(rg_answer *a)
{
    char c;

    if (a->phase >= IN_NAME)
        return in_value(a);
    if (a->phase == IN_KEY)
        return in_key(a);
    rg_skip_blanks(a);
    if (!rg_n_rest(a))
        return false;
    c = *rg_rest(a);
    if (a->phase == VALUE)
        return begin_value(a, c) || give_up(a);
    if (a->phase == COLON) {
        if (c != ':')
            return give_up(a);
        a->phase = VALUE;
        rg_skip(a, 1);
        return true;
    }
    if (c == '}')
        return close_object(a);
    if (c == '{' || c == ',') { /* the first byte, or between members */
        rg_skip(a, 1);
        return true;
    }
    if (c != '"')
        return give_up(a);
    rg_buf_reset(&a->key);
    rg_skip(a, 1);
    a->scan = (rg_json_scan){ .inside = true };
    a->phase = IN_KEY;
    return true;
}

/* ---- a JSON object that is cut ----------------------------------------------------------------------------------- */

/* How much of s is kept, and the brackets that are then open, the innermost last. */
typedef struct cut_at {
    size_t n;
    int depth;
} cut_at;

/* The last place of s where all values are whole; brackets: the closers of what is open there. */
static cut_at find_cut(const char *s, char brackets[RG_CALL_DEPTH])
{
    cut_at best = { 0 };
    int depth = 0;
    char before = 0; /* the last byte that is part of no string, number or blank */

    for (size_t i = 0; s[i]; i++) {
        bool whole = false;
        if (s[i] == '"') {
            for (i++; s[i] && s[i] != '"'; i++)
                i += s[i] == '\\' && s[i + 1];
            if (!s[i])
                break;
            whole = before == ':' || (depth && brackets[depth - 1] == ']');
        } else if (s[i] == '{' || s[i] == '[') {
            if (depth == RG_CALL_DEPTH)
                break;
            brackets[depth++] = s[i] == '{' ? '}' : ']';
            whole = true;
        } else if ((s[i] == '}' || s[i] == ']') && depth) {
            depth--;
            whole = true;
        }
        if (whole || s[i] == ',')
            best = (cut_at){ i + (s[i] != ','), depth };
        if (strchr("{}[]:,", s[i]))
            before = s[i];
    }
    return best;
}

char *rg_arguments_close(const char *s)
{
    char brackets[RG_CALL_DEPTH], *out;
    cut_at at;

    if (*s != '{')
        return NULL;
    at = find_cut(s, brackets);
    out = rg_alloc_tail(at.n, (size_t)at.depth + 1, 1); /* fits: at most RG_CALL_DEPTH */
    if (!out)
        return NULL;
    memcpy(out, s, at.n);
    for (int i = 0; i < at.depth; i++)
        out[at.n + (size_t)i] = brackets[at.depth - 1 - i];
    out[at.n + (size_t)at.depth] = 0;
    return out;
}
