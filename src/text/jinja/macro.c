/* macro.c -- macros and call blocks to code. */
#include <string.h>

#include "text/jinja/program.h"

/* (a, b=1): names in the slots 0, 1, ...; code that fills those left out with their defaults. */
static bool signature(jj_compiler *k, jj_macro_def *m)
{
    uint32_t room = 0, id, slot;
    jj_value name;

    if (!jj_expect(k, JT_LPAREN, "'('"))
        return false;
    for (bool first = true; k->tok.type != JT_RPAREN; first = false) {
        if (!first && !jj_expect(k, JT_COMMA, "','"))
            return false;
        if (k->tok.type != JT_NAME)
            return jj_unexpected(k, "name");
        if (!jj_token_text(k, &k->tok, &name) || !jj_advance(k) || !jj_name_id(k, name, &id) ||
            !jj_slot(k, k->scope, id, &slot))
            return false;
        if (slot < m->n_params)
            return jj_fail(k->c, "a parameter named twice");
        if (m->n_params == room) {
            jj_value *param = jj_array(k->c, 2 * room + 4, sizeof *param); /* fits: as the source is */
            if (!param)
                return false;
            if (m->n_params)
                memcpy(param, m->param, m->n_params * sizeof *param);
            m->param = param;
            room = 2 * room + 4;
        }
        m->param[m->n_params++] = name;
        if (k->tok.type == JT_ASSIGN) {
            size_t at = k->j->n_code;
            if (!jj_advance(k) || !jj_emit(k, JC_DEFAULT, 0, slot) || !jj_expression(k, true) ||
                !jj_emit(k, JC_STORE, slot, 0))
                return false;
            jj_patch(k, at);
            m->n_defaults++;
        } else if (m->n_defaults) {
            return jj_fail(k->c, "non-default argument follows default argument");
        }
    }
    return jj_advance(k);
}

/* A slot for one of the names that a macro has without saying so; -1: it says so, or never asks. */
static bool special(jj_compiler *k, const jj_macro_def *m, const char *text, bool asked, int32_t *out)
{
    jj_value name;
    uint32_t id, slot;

    *out = -1;
    if (!asked)
        return true;
    if (!jj_text(k->c, &name, text))
        return false;
    for (uint32_t i = 0; i < m->n_params; i++)
        if (jj_str_equal(m->param[i].s, name.s))
            return true;
    if (!jj_name_id(k, name, &id) || !jj_slot(k, k->scope, id, &slot))
        return false;
    *out = (int32_t)slot;
    return true;
}

/* From the signature, or the body where there is none, to the end tag; then the code that makes the macro. */
static bool define(jj_compiler *k, jj_value name, const char *end, size_t jump, int32_t scope, jj_macro_def *m)
{
    const char *const ends[] = { end, NULL };
    jj_asks outer = k->asks;
    jj_loop_ctx *loop = k->loop;
    rg_jinja *j = k->j;
    size_t which, id;

    for (int32_t s = j->scope[scope].parent; s >= 0 && !j->scope[s].kept; s = j->scope[s].parent)
        j->scope[s].kept = true;
    k->asks = (jj_asks){ 0 };
    k->loop = NULL;
    if (!jj_block(k, ends, &which) || !jj_emit(k, JC_RETURN, 0, 0) ||
        !special(k, m, "caller", k->asks.caller, &m->caller) || !special(k, m, "kwargs", k->asks.kwargs, &m->kwargs) ||
        !special(k, m, "varargs", k->asks.varargs, &m->varargs))
        return false;
    k->loop = loop;
    k->asks.caller |= outer.caller;
    k->asks.kwargs |= outer.kwargs;
    k->asks.varargs |= outer.varargs;
    k->asks.loop |= outer.loop;
    jj_leave_scope(k);
    jj_patch(k, jump);
    m->scope = (uint32_t)scope;
    m->name = name;
    if (!jj_grow(k->c, &j->macro, j->n_macros, &j->macros_room, sizeof *j->macro))
        return false;
    id = j->n_macros;
    j->macro[j->n_macros++] = *m;
    return jj_emit(k, JC_MACRO, (int64_t)id, 0);
}

static bool begin(jj_compiler *k, size_t *jump, int32_t *scope, jj_macro_def *m)
{
    *jump = k->j->n_code;
    if (!jj_emit(k, JC_JUMP, 0, 0) || !jj_new_scope(k, scope))
        return false;
    *m = (jj_macro_def){ .entry = (uint32_t)k->j->n_code };
    return true;
}

bool jj_macro_statement(jj_compiler *k)
{
    jj_value name;
    jj_macro_def m;
    size_t jump;
    int32_t scope;
    uint32_t id, slot;

    if (k->tok.type != JT_NAME)
        return jj_unexpected(k, "name");
    return jj_token_text(k, &k->tok, &name) && jj_advance(k) && begin(k, &jump, &scope, &m) && signature(k, &m) &&
           define(k, name, "endmacro", jump, scope, &m) && jj_name_id(k, name, &id) &&
           jj_slot(k, k->scope, id, &slot) && jj_emit(k, JC_STORE, slot, 0);
}

/* True if a jump of the code from `from` on leads to its end. */
static bool jumps_to_end(const rg_jinja *j, size_t from)
{
    for (size_t i = from; i < j->n_code; i++) {
        jj_insn n = j->code[i];
        bool jump = n.op == JC_JUMP || n.op == JC_JUMP_IF_NOT || n.op == JC_AND || n.op == JC_OR || n.op == JC_CHAIN;
        if (jump && (int64_t)i + n.a == (int64_t)j->n_code)
            return true;
    }
    return false;
}

/* call(a) f(x): the block becomes a macro that f gets as `caller`.  Its parameters are compiled first, then the call,
 * then the body, so the call is reached by jumps. */
bool jj_call_statement(jj_compiler *k)
{
    rg_jinja *j = k->j;
    jj_macro_def m;
    size_t jump, over, last;
    int32_t scope;
    jj_value name;
    jj_call call;
    int64_t id;

    if (!begin(k, &jump, &scope, &m) || (k->tok.type == JT_LPAREN && !signature(k, &m)))
        return false;
    over = j->n_code; /* the macro's code goes on behind the call */
    if (!jj_emit(k, JC_JUMP, 0, 0))
        return false;
    jj_leave_scope(k);
    jj_patch(k, jump);
    last = j->n_code;
    if (!jj_expression(k, true))
        return false;
    if (j->n_code <= last || j->code[j->n_code - 1].op != JC_CALL || jumps_to_end(j, last))
        return jj_fail(k->c, "expected call");
    call = j->call[j->code[j->n_code - 1].a];
    j->n_code--; /* it comes again, with caller */
    jump = j->n_code;
    if (!jj_emit(k, JC_JUMP, 0, 0))
        return false;
    jj_patch(k, over);
    k->scope = scope;
    if (!jj_text(k->c, &name, "caller") || !define(k, name, "endcall", jump, scope, &m))
        return false;
    jj_value *names = jj_array(k->c, call.n_kw + 1, sizeof *names); /* fits: as the source is */
    if (!names)
        return false;
    if (call.n_kw)
        memcpy(names, call.kw_name, call.n_kw * sizeof *names);
    names[call.n_kw++] = name;
    call.kw_name = names;
    return jj_add_call(k, call, &id) && jj_emit(k, JC_CALL, id, 0) && jj_emit(k, JC_EMIT, 0, 0);
}
