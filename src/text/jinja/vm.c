/* vm.c -- see vm.h: the loop, and what it does with values and variables. */
#include "text/jinja/vm.h"

#include <string.h>

bool jj_vm_push(jj_vm *v, jj_value x)
{
    if (v->sp == JJ_STACK)
        return jj_over(&v->c, "an expression holds too many values at once");
    v->stack[v->sp++] = x;
    return true;
}

bool jj_vm_run(jj_vm *v)
{
    const rg_jinja *j = v->j;

    while (!v->done) {
        jj_insn n = j->code[v->pc];
        v->c.line = j->line[v->pc];
        if (++v->c.steps > JJ_STEP * RG_JINJA_STEPS)
            return jj_over(&v->c, "it takes too many steps");
        if (!jj_runs[n.op](v, n))
            return false;
    }
    return true;
}

/* ---- variables ---- */

static bool look_up(jj_vm *v, uint32_t name, jj_value *out)
{
    jj_value key = v->j->name[name];
    const jj_def *d;
    int got = jj_dict_get(&v->c, v->foreign.dict, key, out);

    if (!got)
        got = jj_dict_get(&v->c, v->trusted.dict, key, out);
    if (got < 0)
        return false;
    if (!got && (d = jj_find_def(jj_globals, jj_data(key.s), key.s->n)))
        *out = (jj_value){ .type = JJ_FUNCTION, .def = d };
    else if (!got && !jj_undefined(&v->c, out, JJ_WHY_NAME, "", key))
        return false;
    v->variable[name] = *out;
    return true;
}

static bool load(jj_vm *v, int32_t id, jj_value *out)
{
    const jj_ref *r = &v->j->ref[id];
    const jj_place *p = r->n ? &v->j->place[r->first] : NULL;
    jj_frame *f = v->frame;
    uint32_t up = 0;

    for (uint32_t i = 0; i < r->n; i++) {
        for (; up < p[i].up; up++)
            f = f->parent;
        *out = f->slot[p[i].slot];
        if (out->type != JJ_MISSING)
            return true;
    }
    *out = v->variable[r->name];
    return out->type != JJ_MISSING || look_up(v, r->name, out);
}

static bool run_name(jj_vm *v, jj_insn n)
{
    jj_value x;

    v->pc++;
    return load(v, n.a, &x) && jj_vm_push(v, x);
}

static bool run_store(jj_vm *v, jj_insn n)
{
    v->frame->slot[n.a] = jj_vm_pop(v);
    v->pc++;
    return true;
}

static bool run_need_ns(jj_vm *v, jj_insn n)
{
    jj_value x;

    v->pc++;
    if (!load(v, n.a, &x))
        return false;
    return x.type == JJ_NAMESPACE || jj_fail(&v->c, "cannot assign attribute on non-namespace object");
}

static bool run_store_attr(jj_vm *v, jj_insn n)
{
    jj_value x;

    v->pc++;
    if (!load(v, n.b, &x))
        return false;
    if (x.type != JJ_NAMESPACE)
        return jj_fail(&v->c, "cannot assign attribute on non-namespace object");
    return jj_dict_put(&v->c, x.dict, v->j->attr[n.a].name, jj_vm_pop(v));
}

static bool run_macro(jj_vm *v, jj_insn n)
{
    jj_macro *m = jj_alloc(&v->c, sizeof *m);

    v->pc++;
    if (!m)
        return false;
    *m = (jj_macro){ &v->j->macro[n.a], v->frame };
    return jj_vm_push(v, (jj_value){ .type = JJ_MACRO, .macro = m });
}

static bool run_default(jj_vm *v, jj_insn n)
{
    v->pc += v->frame->slot[n.b].type == JJ_MISSING ? 1 : (size_t)n.a;
    return true;
}

/* ---- values ---- */

static bool run_const(jj_vm *v, jj_insn n)
{
    v->pc++;
    return jj_vm_push(v, v->j->constant[n.a]);
}

static bool run_pop(jj_vm *v, jj_insn n)
{
    (void)n;
    v->pc++;
    v->sp--;
    return true;
}

static bool run_not(jj_vm *v, jj_insn n)
{
    jj_value *top = &v->stack[v->sp - 1];

    (void)n;
    v->pc++;
    *top = jj_bool(!jj_truth(*top));
    return true;
}

static bool run_negate(jj_vm *v, jj_insn n)
{
    jj_value *top = &v->stack[v->sp - 1];

    v->pc++;
    return jj_negate(&v->c, *top, n.op == JC_NEGATE, top);
}

static bool run_binary(jj_vm *v, jj_insn n)
{
    jj_value b = jj_vm_pop(v), *top = &v->stack[v->sp - 1], a = *top;

    v->pc++;
    return jj_binary(&v->c, (jj_op)n.a, a, b, top);
}

static bool run_compare(jj_vm *v, jj_insn n)
{
    jj_value b = jj_vm_pop(v), *top = &v->stack[v->sp - 1];
    bool is;

    v->pc++;
    if (!jj_compare(&v->c, (jj_cmp)n.a, *top, b, &is))
        return false;
    *top = jj_bool(is);
    return true;
}

static bool run_chain(jj_vm *v, jj_insn n)
{
    jj_value b = jj_vm_pop(v), *top = &v->stack[v->sp - 1];
    bool is;

    if (!jj_compare(&v->c, (jj_cmp)n.b, *top, b, &is))
        return false;
    *top = is ? b : jj_bool(false);
    v->pc += is ? 1 : (size_t)n.a;
    return true;
}

static bool run_concat(jj_vm *v, jj_insn n)
{
    jj_value *first = &v->stack[v->sp - (size_t)n.a];

    v->pc++;
    if (!jj_step(&v->c, (size_t)n.a / 4) || !jj_join_all(&v->c, first, (size_t)n.a, first))
        return false;
    v->sp -= (size_t)n.a - 1;
    return true;
}

static bool run_getattr(jj_vm *v, jj_insn n)
{
    jj_value *top = &v->stack[v->sp - 1];

    v->pc++;
    return jj_getattr(&v->c, *top, &v->j->attr[n.a], top);
}

static bool run_getitem(jj_vm *v, jj_insn n)
{
    jj_value key = jj_vm_pop(v), *top = &v->stack[v->sp - 1];

    (void)n;
    v->pc++;
    return jj_getitem(&v->c, *top, key, top);
}

static bool run_slice(jj_vm *v, jj_insn n)
{
    jj_value x;

    (void)n;
    v->pc++;
    if (!jj_new_list(&v->c, &x, JJ_SLICE, 3, false))
        return false;
    for (size_t i = 0; i < 3; i++)
        x.list->item[i] = v->stack[v->sp - 3 + i];
    x.list->n = 3;
    v->sp -= 2;
    v->stack[v->sp - 1] = x;
    return true;
}

static bool run_list(jj_vm *v, jj_insn n)
{
    jj_value x;

    (void)n;
    v->pc++;
    return jj_new_list(&v->c, &x, JJ_LIST, 0, false) && jj_vm_push(v, x);
}

static bool run_list_add(jj_vm *v, jj_insn n)
{
    jj_value x = jj_vm_pop(v);

    (void)n;
    v->pc++;
    return jj_list_add(&v->c, v->stack[v->sp - 1].list, x);
}

static bool run_tuple(jj_vm *v, jj_insn n)
{
    (void)n;
    v->pc++;
    v->stack[v->sp - 1].type = JJ_TUPLE;
    return true;
}

static bool run_dict(jj_vm *v, jj_insn n)
{
    jj_value x;

    (void)n;
    v->pc++;
    return jj_new_dict(&v->c, &x, false) && jj_vm_push(v, x);
}

static bool run_dict_put(jj_vm *v, jj_insn n)
{
    jj_value x = jj_vm_pop(v), key = jj_vm_pop(v);

    (void)n;
    v->pc++;
    return jj_dict_put(&v->c, v->stack[v->sp - 1].dict, key, x);
}

static bool run_undefined(jj_vm *v, jj_insn n)
{
    jj_value x;

    (void)n;
    v->pc++;
    return jj_undefined(&v->c, &x, JJ_WHY_HINT, "the inline if-expression was false and has no else", JJ_NOTHING) &&
           jj_vm_push(v, x);
}

static bool run_fail(jj_vm *v, jj_insn n)
{
    const jj_str *s = v->j->constant[n.a].s;

    return jj_fail(&v->c, "%.*s", s->n < 200 ? (int)s->n : 200, jj_data(s));
}

/* ---- where to go ---- */

static bool run_jump(jj_vm *v, jj_insn n)
{
    v->pc = (size_t)((int64_t)v->pc + n.a);
    return true;
}

static bool run_jump_if_not(jj_vm *v, jj_insn n)
{
    v->pc += jj_truth(jj_vm_pop(v)) ? 1 : (size_t)n.a;
    return true;
}

static bool run_logic(jj_vm *v, jj_insn n)
{
    bool stays = jj_truth(v->stack[v->sp - 1]) == (n.op == JC_OR);

    v->sp -= !stays;
    v->pc += stays ? (size_t)n.a : 1;
    return true;
}

static bool run_end(jj_vm *v, jj_insn n)
{
    (void)n;
    v->done = true;
    return true;
}

jj_run *const jj_runs[] = {
    [JC_CONST] = run_const,
    [JC_NAME] = run_name,
    [JC_STORE] = run_store,
    [JC_STORE_ATTR] = run_store_attr,
    [JC_NEED_NS] = run_need_ns,
    [JC_DATA] = jj_run_data,
    [JC_EMIT] = jj_run_emit,
    [JC_POP] = run_pop,
    [JC_NOT] = run_not,
    [JC_NEGATE] = run_negate,
    [JC_POSITIVE] = run_negate,
    [JC_JUMP] = run_jump,
    [JC_JUMP_IF_NOT] = run_jump_if_not,
    [JC_AND] = run_logic,
    [JC_OR] = run_logic,
    [JC_BINARY] = run_binary,
    [JC_COMPARE] = run_compare,
    [JC_CHAIN] = run_chain,
    [JC_CONCAT] = run_concat,
    [JC_GETATTR] = run_getattr,
    [JC_GETITEM] = run_getitem,
    [JC_SLICE] = run_slice,
    [JC_LIST] = run_list,
    [JC_LIST_ADD] = run_list_add,
    [JC_TUPLE] = run_tuple,
    [JC_DICT] = run_dict,
    [JC_DICT_PUT] = run_dict_put,
    [JC_CALL] = jj_run_call,
    [JC_FILTER] = jj_run_filter,
    [JC_TEST] = jj_run_test,
    [JC_FAIL] = run_fail,
    [JC_UNDEFINED] = run_undefined,
    [JC_SCOPE] = jj_run_scope,
    [JC_UNSCOPE] = jj_run_unscope,
    [JC_CAPTURE] = jj_run_capture,
    [JC_CAPTURED] = jj_run_captured,
    [JC_DISCARD] = jj_run_discard,
    [JC_FOR] = jj_run_for,
    [JC_FOR_NEXT] = jj_run_for_next,
    [JC_FOR_TURN] = jj_run_for_turn,
    [JC_FOR_END] = jj_run_for_end,
    [JC_PICKY] = jj_run_picky,
    [JC_UNPACK] = jj_run_unpack,
    [JC_MACRO] = run_macro,
    [JC_RECURSE] = jj_run_recurse,
    [JC_DEFAULT] = run_default,
    [JC_RETURN] = jj_run_return,
    [JC_YIELD] = jj_run_yield,
    [JC_END] = run_end,
};
