/* expression.c -- expressions to code, in one pass: tighter operators are compiled first, so code comes out in the
 * order in which the stack-based interpreter needs it. */
#include <string.h>

#include "base/mem.h"
#include "text/jinja/program.h"

enum { MAX_LEVELS = 800, MAX_CONCAT = 1000 };

/* Operators by how they bind: or, and, not, comparisons, + -, ~, * / // %, **. */
enum { L_OR, L_AND, L_NOT, L_COMPARE, L_SUM, L_CONCAT, L_PRODUCT, L_POWER };

static bool unary(jj_compiler *k, bool with_filters);

bool jj_load_name(jj_compiler *k, jj_value name)
{
    uint32_t id;
    int64_t ref;

    if (jj_str_is(name.s, "caller"))
        k->asks.caller = true;
    else if (jj_str_is(name.s, "kwargs"))
        k->asks.kwargs = true;
    else if (jj_str_is(name.s, "varargs"))
        k->asks.varargs = true;
    else if (jj_str_is(name.s, "loop"))
        k->asks.loop = true;
    return jj_name_id(k, name, &id) && jj_ref_id(k, id, &ref) && jj_emit(k, JC_NAME, ref, 0);
}

bool jj_push(jj_compiler *k, jj_value v)
{
    int64_t id;

    return jj_constant(k, v, &id) && jj_emit(k, JC_CONST, id, 0);
}

/* ---- the smallest parts ---- */

static bool name_or_constant(jj_compiler *k)
{
    jj_value name;

    if (!jj_token_text(k, &k->tok, &name) || !jj_advance(k))
        return false;
    if (jj_str_is(name.s, "true") || jj_str_is(name.s, "True"))
        return jj_push(k, jj_bool(true));
    if (jj_str_is(name.s, "false") || jj_str_is(name.s, "False"))
        return jj_push(k, jj_bool(false));
    if (jj_str_is(name.s, "none") || jj_str_is(name.s, "None"))
        return jj_push(k, JJ_NULL);
    return jj_load_name(k, name);
}

/* One string, or several side by side. */
static bool strings(jj_compiler *k)
{
    jj_value v, next;

    if (!jj_token_text(k, &k->tok, &v) || !jj_advance(k))
        return false;
    if (k->tok.type == JT_STRING) {
        jj_buf *b = jj_buf_new(k->c, v.s->n, k->tok.n);
        if (!b || !jj_put_str(k->c, b, v.s))
            return false;
        while (k->tok.type == JT_STRING)
            if (!jj_token_text(k, &k->tok, &next) || !jj_put_str(k->c, b, next.s) || !jj_advance(k))
                return false;
        b->room = b->used; /* a constant never grows */
        if (!jj_give(&v, jj_str_from(k->c, b)))
            return false;
    }
    return jj_push(k, v);
}

static bool list(jj_compiler *k)
{
    if (!jj_advance(k) || !jj_emit(k, JC_LIST, 0, 0))
        return false;
    for (bool first = true; k->tok.type != JT_RBRACKET; first = false) {
        if (!first && !jj_expect(k, JT_COMMA, "','"))
            return false;
        if (k->tok.type == JT_RBRACKET)
            break;
        if (!jj_expression(k, true) || !jj_emit(k, JC_LIST_ADD, 0, 0))
            return false;
    }
    return jj_advance(k);
}

static bool dict(jj_compiler *k)
{
    if (!jj_advance(k) || !jj_emit(k, JC_DICT, 0, 0))
        return false;
    for (bool first = true; k->tok.type != JT_RBRACE; first = false) {
        if (!first && !jj_expect(k, JT_COMMA, "','"))
            return false;
        if (k->tok.type == JT_RBRACE)
            break;
        if (!jj_expression(k, true) || !jj_expect(k, JT_COLON, "':'") || !jj_expression(k, true) ||
            !jj_emit(k, JC_DICT_PUT, 0, 0))
            return false;
    }
    return jj_advance(k);
}

bool jj_primary(jj_compiler *k)
{
    char got[64];
    bool ok;

    switch (k->tok.type) {
    case JT_NAME:
        return name_or_constant(k);
    case JT_STRING:
        return strings(k);
    case JT_INT:
        return jj_push(k, jj_int(k->tok.i)) && jj_advance(k);
    case JT_FLOAT:
        return jj_push(k, jj_float(k->tok.f)) && jj_advance(k);
    case JT_LPAREN: case JT_LBRACKET: case JT_LBRACE:
        if (!jj_down(k))
            return false;
        if (k->tok.type == JT_LPAREN)
            ok = jj_advance(k) && jj_tuple(k, true, NULL, true) && jj_expect(k, JT_RPAREN, "')'");
        else
            ok = k->tok.type == JT_LBRACKET ? list(k) : dict(k);
        jj_up(k);
        return ok;
    case JT_VAR_END: case JT_BLOCK_END:
        return jj_fail(k->c, "expected an expression, got '%s'", jj_token_name(&k->tok, got));
    default:
        return jj_fail(k->c, "unexpected '%s'", jj_token_name(&k->tok, got));
    }
}

/* ---- operators ---- */

static bool signs(jj_compiler *k, bool with_filters)
{
    jj_code op = k->tok.type == JT_SUB ? JC_NEGATE : JC_POSITIVE;

    if (++k->levels > MAX_LEVELS)
        return jj_over(k->c, "an expression is nested too deep");
    if (!jj_advance(k) || !unary(k, false) || !jj_emit(k, op, 0, 0))
        return false;
    k->levels--;
    return jj_postfix(k) && (!with_filters || jj_filters_and_tests(k));
}

static bool unary(jj_compiler *k, bool with_filters)
{
    if (k->tok.type == JT_SUB || k->tok.type == JT_ADD)
        return signs(k, with_filters);
    return jj_primary(k) && jj_postfix(k) && (!with_filters || jj_filters_and_tests(k));
}

/* The level at which the token is an operator between two values; -1: it is none. */
static int level_of(const jj_compiler *k)
{
    switch (k->tok.type) {
    case JT_ADD: case JT_SUB:
        return L_SUM;
    case JT_TILDE:
        return L_CONCAT;
    case JT_MUL: case JT_DIV: case JT_FLOORDIV: case JT_MOD:
        return L_PRODUCT;
    case JT_POW:
        return L_POWER;
    case JT_EQ: case JT_NE: case JT_LT: case JT_LE: case JT_GT: case JT_GE:
        return L_COMPARE;
    case JT_NAME:
        return jj_at_name(k, "or") ? L_OR : jj_at_name(k, "and") ? L_AND
               : jj_at_name(k, "in") || jj_at_name(k, "not") ? L_COMPARE : -1;
    default:
        return -1;
    }
}

static jj_op op_of(jj_tok type)
{
    static const jj_op ops[] = { JJ_ADD, JJ_SUB, JJ_MUL, JJ_DIV, JJ_FLOORDIV, JJ_MOD, JJ_POW };

    return ops[type - JT_ADD];
}

static bool operators(jj_compiler *k, int min);

/* A comparison's operator, read; false without an error: there is none. */
static bool compare_op(jj_compiler *k, jj_cmp *op)
{
    if (k->tok.type >= JT_EQ && k->tok.type <= JT_GE) {
        static const jj_cmp ops[] = { JJ_EQ, JJ_NE, JJ_LT, JJ_LE, JJ_GT, JJ_GE };
        *op = ops[k->tok.type - JT_EQ];
        return jj_advance(k);
    }
    if (jj_at_name(k, "in"))
        return *op = JJ_IN, jj_advance(k);
    if (!jj_at_name(k, "not") || !jj_look(k) || k->ahead.type != JT_NAME || k->ahead.n != 2 ||
        memcmp(k->ahead.s, "in", 2))
        return false;
    *op = JJ_NOT_IN;
    return jj_advance(k) && jj_advance(k);
}

/* Make all jumps of a chain lead here; each of them holds the distance to the one before. */
static void patch_chain(jj_compiler *k, size_t last)
{
    while (last != SIZE_MAX) {
        int32_t back = k->j->code[last].a;
        jj_patch(k, last);
        last = back ? last - (size_t)back : SIZE_MAX;
    }
}

/* a < b < c: each side once, and no further than the first that is false. */
static bool comparisons(jj_compiler *k, bool *none)
{
    size_t last = SIZE_MAX;
    jj_cmp op, next;
    bool more = compare_op(k, &op);

    *none = !more && !k->c->failed;
    while (more) {
        if (!operators(k, L_SUM))
            return false;
        more = compare_op(k, &next);
        if (k->c->failed)
            return false;
        if (more) {
            size_t at = k->j->n_code;
            if (!jj_emit(k, JC_CHAIN, last == SIZE_MAX ? 0 : (int64_t)(at - last), op))
                return false;
            last = at;
        } else if (!jj_emit(k, JC_COMPARE, op, 0)) {
            return false;
        }
        op = next;
    }
    patch_chain(k, last);
    return !k->c->failed;
}

/* a or b or c, after a. */
static bool logic(jj_compiler *k, int level)
{
    size_t last = SIZE_MAX;

    while (level_of(k) == level) {
        size_t at = k->j->n_code;
        if (!jj_advance(k) ||
            !jj_emit(k, level == L_OR ? JC_OR : JC_AND, last == SIZE_MAX ? 0 : (int64_t)(at - last), 0))
            return false;
        last = at;
        if (!operators(k, level + 1))
            return false;
    }
    patch_chain(k, last);
    return true;
}

static bool concat(jj_compiler *k)
{
    int64_t n = 1;

    while (k->tok.type == JT_TILDE) {
        if (!jj_advance(k) || !operators(k, L_CONCAT + 1))
            return false;
        if (++n < MAX_CONCAT)
            continue;
        if (!jj_emit(k, JC_CONCAT, n, 0)) /* keeps the stack low */
            return false;
        n = 1;
    }
    return n == 1 || jj_emit(k, JC_CONCAT, n, 0);
}

static bool arithmetic(jj_compiler *k, int level)
{
    while (level_of(k) == level) {
        jj_op op = op_of(k->tok.type);
        if (!jj_advance(k) || !operators(k, level + 1) || !jj_emit(k, JC_BINARY, op, 0))
            return false;
    }
    return true;
}

static bool nots(jj_compiler *k)
{
    size_t n = 0;

    for (; jj_at_name(k, "not"); n++)
        if (!jj_advance(k))
            return false;
    return operators(k, L_COMPARE) && jj_emit(k, JC_NOT, 0, 0) && (n % 2 || jj_emit(k, JC_NOT, 0, 0));
}

/* A value, and operators behind it that bind at least as `min` does. */
static bool operators(jj_compiler *k, int min)
{
    bool ok, none = false;
    int level;

    if (++k->levels > MAX_LEVELS)
        return jj_over(k->c, "an expression is nested too deep");
    ok = min <= L_NOT && jj_at_name(k, "not") ? nots(k) : unary(k, true);
    while (ok && !none && (level = level_of(k)) >= min) {
        if (level <= L_AND)
            ok = logic(k, level);
        else if (level == L_COMPARE)
            ok = comparisons(k, &none);
        else
            ok = level == L_CONCAT ? concat(k) : arithmetic(k, level);
    }
    k->levels--;
    return ok;
}

/* ---- whole expressions ---- */

bool jj_swap_code(jj_compiler *k, size_t from, size_t mid)
{
    rg_jinja *j = k->j;
    size_t n = mid - from, m = j->n_code - mid;
    jj_insn *code = rg_zalloc_tail(sizeof *code, n, sizeof *code);
    uint32_t *line = rg_zalloc_tail(sizeof *line, n, sizeof *line);
    bool ok = code && line;

    if (ok) {
        memcpy(code, j->code + from, n * sizeof *code);
        memcpy(line, j->line + from, n * sizeof *line);
        memmove(j->code + from, j->code + mid, m * sizeof *code);
        memmove(j->line + from, j->line + mid, m * sizeof *line);
        memcpy(j->code + from + m, code, n * sizeof *code);
        memcpy(j->line + from + m, line, n * sizeof *line);
    } else {
        jj_no_memory(k->c, n * sizeof *code);
    }
    rg_free(code);
    rg_free(line);
    return ok;
}

/* value [if condition [else other]]... */
bool jj_expression(jj_compiler *k, bool with_if)
{
    size_t start = k->j->n_code;
    int n_ifs = 0;
    bool ok;

    if (++k->levels > MAX_LEVELS)
        return jj_over(k->c, "an expression is nested too deep");
    ok = operators(k, L_OR);
    while (ok && with_if && jj_at_name(k, "if")) {
        size_t mid = k->j->n_code, n_value = mid - start, n_code;
        if (n_ifs++ == RG_JINJA_DEPTH)
            return jj_over(k->c, "an expression of too many ifs");
        ok = jj_advance(k) && operators(k, L_OR) && jj_emit(k, JC_JUMP_IF_NOT, (int64_t)n_value + 2, 0) &&
             jj_swap_code(k, start, mid);
        n_code = k->j->n_code;
        ok = ok && jj_emit(k, JC_JUMP, 0, 0);
        if (ok && jj_at_name(k, "else"))
            ok = jj_advance(k) && jj_expression(k, true);
        else
            ok = ok && jj_emit(k, JC_UNDEFINED, 0, 0);
        if (ok)
            jj_patch(k, n_code);
    }
    k->levels--;
    return ok;
}

static bool tuple_ends(const jj_compiler *k, const char *end_name)
{
    return k->tok.type == JT_VAR_END || k->tok.type == JT_BLOCK_END || k->tok.type == JT_RPAREN ||
           (end_name && jj_at_name(k, end_name));
}

bool jj_tuple(jj_compiler *k, bool with_if, const char *end_name, bool parentheses)
{
    size_t start = k->j->n_code;
    char got[64];

    if (tuple_ends(k, end_name)) {
        if (!parentheses)
            return jj_fail(k->c, "expected an expression, got '%s'", jj_token_name(&k->tok, got));
        return jj_emit(k, JC_LIST, 0, 0) && jj_emit(k, JC_TUPLE, 0, 0);
    }
    if (!jj_expression(k, with_if))
        return false;
    if (k->tok.type != JT_COMMA)
        return true;
    size_t mid = k->j->n_code; /* a tuple after all: its list is made first */
    if (!jj_emit(k, JC_LIST, 0, 0) || !jj_swap_code(k, start, mid) || !jj_emit(k, JC_LIST_ADD, 0, 0))
        return false;
    while (k->tok.type == JT_COMMA) {
        if (!jj_advance(k))
            return false;
        if (tuple_ends(k, end_name))
            break;
        if (!jj_expression(k, with_if) || !jj_emit(k, JC_LIST_ADD, 0, 0))
            return false;
    }
    return jj_emit(k, JC_TUPLE, 0, 0);
}
