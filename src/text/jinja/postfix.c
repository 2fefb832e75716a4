/* postfix.c -- what stands after a value: .a [b] (c) |d is e. */
#include <string.h>

#include "text/jinja/program.h"

enum { MAX_ARGUMENTS = 1000, MAX_KEYWORDS = 255 };

bool jj_add_call(jj_compiler *k, jj_call call, int64_t *id)
{
    rg_jinja *j = k->j;

    if (!jj_grow(k->c, &j->call, j->n_calls, &j->calls_room, sizeof *j->call))
        return false;
    *id = (int64_t)j->n_calls;
    j->call[j->n_calls++] = call;
    return true;
}

/* name=value, the name already known to be one. */
static bool keyword(jj_compiler *k, jj_call *call, uint32_t *room)
{
    jj_value name;

    if (!jj_token_text(k, &k->tok, &name) || !jj_advance(k) || !jj_advance(k))
        return false;
    for (uint32_t i = 0; i < call->n_kw; i++)
        if (jj_str_equal(call->kw_name[i].s, name.s))
            return jj_fail(k->c, "a keyword argument repeated");
    if (call->n_kw == MAX_KEYWORDS)
        return jj_fail(k->c, "more than %d keyword arguments", MAX_KEYWORDS);
    if (call->n_kw == *room) {
        /* Room for a call block's caller.  fits: at most MAX_KEYWORDS. */
        jj_value *names = jj_array(k->c, 2 * *room + 5, sizeof *names);
        if (!names)
            return false;
        if (call->n_kw)
            memcpy(names, call->kw_name, call->n_kw * sizeof *names);
        call->kw_name = names;
        *room = 2 * *room + 4;
    }
    call->kw_name[call->n_kw++] = name;
    return jj_expression(k, true);
}

static bool is_keyword(jj_compiler *k)
{
    return k->tok.type == JT_NAME && jj_look(k) && k->ahead.type == JT_ASSIGN;
}

static bool one_argument(jj_compiler *k, jj_call *call, uint32_t *room)
{
    int32_t at = (int32_t)(call->n_pos + call->n_kw) + (call->list_at >= 0) + (call->dict_at >= 0);
    bool ok;

    if (k->tok.type == JT_MUL && call->list_at < 0 && call->dict_at < 0) {
        call->list_at = at;
        return jj_advance(k) && jj_expression(k, true);
    }
    if (k->tok.type == JT_POW && call->dict_at < 0) {
        call->dict_at = at;
        return jj_advance(k) && jj_expression(k, true);
    }
    ok = k->tok.type != JT_MUL && k->tok.type != JT_POW && call->dict_at < 0;
    if (ok && is_keyword(k))
        return keyword(k, call, room);
    if (k->c->failed)
        return false;
    if (!ok || call->n_kw || call->list_at >= 0)
        return jj_fail(k->c, "invalid syntax for function call expression");
    if (++call->n_pos > MAX_ARGUMENTS)
        return jj_fail(k->c, "more than %d arguments", MAX_ARGUMENTS);
    return jj_expression(k, true);
}

/* (a, b=c, *d, **e), or no parentheses at all. */
static bool call_args(jj_compiler *k, int64_t *id)
{
    jj_call call = { .list_at = -1, .dict_at = -1 };
    uint32_t room = 0;

    *id = 0; /* the empty one */
    if (k->tok.type != JT_LPAREN)
        return true;
    if (!jj_down(k) || !jj_advance(k))
        return false;
    for (bool first = true; k->tok.type != JT_RPAREN; first = false) {
        if (!first && !jj_expect(k, JT_COMMA, "','"))
            return false;
        if (k->tok.type == JT_RPAREN && !first)
            break;
        if (!one_argument(k, &call, &room))
            return false;
    }
    jj_up(k);
    if (!jj_advance(k))
        return false;
    return !(call.n_pos || call.n_kw || call.list_at >= 0 || call.dict_at >= 0) || jj_add_call(k, call, id);
}

/* One index or slice. */
static bool subscript(jj_compiler *k)
{
    bool slice = k->tok.type == JT_COLON;

    if (!slice && !jj_expression(k, true))
        return false;
    if (!slice && k->tok.type != JT_COLON)
        return true;
    if (slice && !jj_push(k, JJ_NULL))
        return false;
    for (int i = 0; i < 2; i++) {
        bool colon = k->tok.type == JT_COLON;
        if (colon && !jj_advance(k))
            return false;
        if (!colon || k->tok.type == JT_COLON || k->tok.type == JT_RBRACKET || k->tok.type == JT_COMMA) {
            if (!jj_push(k, JJ_NULL))
                return false;
        } else if (!jj_expression(k, true)) {
            return false;
        }
    }
    return jj_emit(k, JC_SLICE, 0, 0);
}

static bool subscripts(jj_compiler *k)
{
    if (k->tok.type == JT_RBRACKET)
        return jj_emit(k, JC_LIST, 0, 0) && jj_emit(k, JC_TUPLE, 0, 0);
    if (!subscript(k))
        return false;
    return k->tok.type == JT_RBRACKET || jj_fail(k->c, "several indices at once are not supported");
}

static bool dotted(jj_compiler *k)
{
    jj_value name;
    int64_t id;

    if (!jj_advance(k))
        return false;
    if (k->tok.type == JT_INT)
        return jj_push(k, jj_int(k->tok.i)) && jj_emit(k, JC_GETITEM, 0, 0) && jj_advance(k);
    if (k->tok.type != JT_NAME)
        return jj_unexpected(k, "name or number");
    return jj_token_text(k, &k->tok, &name) && jj_attr_id(k, name, &id) && jj_emit(k, JC_GETATTR, id, 0) &&
           jj_advance(k);
}

static bool call(jj_compiler *k)
{
    int64_t id;

    return call_args(k, &id) && jj_emit(k, JC_CALL, id, 0);
}

bool jj_postfix(jj_compiler *k)
{
    for (;;) {
        bool ok = true;
        if (k->tok.type == JT_DOT) {
            ok = dotted(k);
        } else if (k->tok.type == JT_LBRACKET) {
            ok = jj_down(k) && jj_advance(k) && subscripts(k) && jj_expect(k, JT_RBRACKET, "']'") &&
                 jj_emit(k, JC_GETITEM, 0, 0);
            jj_up(k);
        } else if (k->tok.type == JT_LPAREN) {
            ok = call(k);
        } else {
            return true;
        }
        if (!ok)
            return false;
    }
}

/* a.b.c, as names of filters and tests may be. */
static bool long_name(jj_compiler *k, jj_value *out)
{
    if (k->tok.type != JT_NAME)
        return jj_unexpected(k, "name");
    return jj_token_text(k, &k->tok, out) && jj_advance(k);
}

/* A filter or test that there is not fails when it is reached: it may stand behind an if. */
static bool no_such(jj_compiler *k, const char *what, jj_value name)
{
    jj_buf *b = jj_buf_new(k->c, 64, 0);
    jj_value text;
    int64_t id;

    return b && jj_put_text(k->c, b, what, true) && jj_repr(k->c, b, name) && jj_give(&text, jj_str_from(k->c, b)) &&
           jj_constant(k, text, &id) && jj_emit(k, JC_FAIL, id, 0);
}

bool jj_filters(jj_compiler *k, bool inline_first)
{
    while (k->tok.type == JT_PIPE || inline_first) {
        jj_value name;
        int64_t id = 0, def = 0;
        if ((!inline_first && !jj_advance(k)) || !long_name(k, &name))
            return false;
        inline_first = false;
        const jj_def *d = jj_find_filter(name.s);
        if (!d && !no_such(k, "there is no filter ", name))
            return false;
        if (!call_args(k, &id))
            return false;
        if (d && (!jj_def_id(k, d, &def) || !jj_emit(k, JC_FILTER, id, def)))
            return false;
    }
    return true;
}

static bool starts_argument(const jj_compiler *k)
{
    switch (k->tok.type) {
    case JT_NAME:
        return !jj_at_name(k, "else") && !jj_at_name(k, "or") && !jj_at_name(k, "and");
    case JT_STRING: case JT_INT: case JT_FLOAT: case JT_LPAREN: case JT_LBRACKET: case JT_LBRACE:
        return true;
    default:
        return false;
    }
}

/* After `is`. */
static bool test(jj_compiler *k)
{
    jj_value name;
    int64_t id = 0, def = 0;
    bool negated;

    if (!jj_advance(k))
        return false;
    negated = jj_at_name(k, "not");
    if ((negated && !jj_advance(k)) || !long_name(k, &name))
        return false;
    const jj_def *d = jj_find_test(name.s);
    if (!d && !no_such(k, "there is no test ", name))
        return false;
    if (k->tok.type != JT_LPAREN && starts_argument(k)) {
        if (jj_at_name(k, "is"))
            return jj_fail(k->c, "You cannot chain multiple tests with is");
        if (!jj_primary(k) || !jj_postfix(k) ||
            !jj_add_call(k, (jj_call){ .n_pos = 1, .list_at = -1, .dict_at = -1 }, &id))
            return false;
    } else if (!call_args(k, &id)) {
        return false;
    }
    if (d && (!jj_def_id(k, d, &def) || !jj_emit(k, JC_TEST, id, def)))
        return false;
    return !negated || jj_emit(k, JC_NOT, 0, 0);
}

bool jj_filters_and_tests(jj_compiler *k)
{
    for (;;) {
        bool ok;
        if (k->tok.type == JT_PIPE)
            ok = jj_filters(k, false);
        else if (jj_at_name(k, "is"))
            ok = test(k);
        else if (k->tok.type == JT_LPAREN)
            ok = call(k);
        else
            return true;
        if (!ok)
            return false;
    }
}
