/* call.c -- calls: built-in functions, macros, recursive loops, and the `if` of a for. */
#include <string.h>

#include "text/jinja/vm.h"

/* ---- arguments ---- */

static bool spread_list(jj_vm *v, jj_value from, jj_list *pos)
{
    jj_value all;

    if (!jj_to_list(&v->c, from, &all))
        return false;
    for (size_t i = 0; i < all.list->n; i++)
        if (!jj_list_add(&v->c, pos, all.list->item[i]))
            return false;
    return true;
}

static bool spread_dict(jj_vm *v, jj_value from, jj_list *names, jj_list *values)
{
    if (from.type != JJ_DICT)
        return jj_fail(&v->c, "the argument after ** must be a mapping, not %s", jj_type_name(from));
    for (size_t i = 0; i < from.dict->n; i++) {
        const jj_entry *e = &from.dict->entry[i];
        if (e->key.type != JJ_STR)
            return jj_fail(&v->c, "keywords must be strings");
        if (!jj_list_add(&v->c, names, e->key) || !jj_list_add(&v->c, values, e->value))
            return false;
    }
    return true;
}

/* The values of a call on the stack as arguments; *total: how many they are there. */
static bool gather(jj_vm *v, const jj_call *call, size_t *total, jj_args *out)
{
    jj_list pos = { 0 }, names = { 0 }, values = { 0 };
    size_t n = call->n_pos + call->n_kw + (call->list_at >= 0) + (call->dict_at >= 0), n_pos = 0, n_kw = 0;
    const jj_value *first = &v->stack[v->sp - n];

    *total = n;
    *out = (jj_args){ first, call->n_pos, call->kw_name, first + call->n_pos, call->n_kw };
    if (call->list_at < 0 && call->dict_at < 0)
        return true;
    for (size_t i = 0; i < n; i++) {
        bool ok;
        if ((int64_t)i == call->list_at)
            ok = spread_list(v, first[i], &pos);
        else if ((int64_t)i == call->dict_at)
            ok = spread_dict(v, first[i], &names, &values);
        else if (n_pos < call->n_pos)
            ok = n_pos++ < call->n_pos && jj_list_add(&v->c, &pos, first[i]);
        else
            ok = jj_list_add(&v->c, &names, call->kw_name[n_kw++]) && jj_list_add(&v->c, &values, first[i]);
        if (!ok)
            return false;
    }
    *out = (jj_args){ pos.item, pos.n, names.item, values.item, values.n };
    return true;
}

/* ---- macros ---- */

static bool activate(jj_vm *v, const jj_macro_def *def, jj_frame *frame, size_t sp)
{
    if (v->n_act == RG_JINJA_DEPTH)
        return jj_over(&v->c, "calls are nested too deep");
    v->act[v->n_act++] = (jj_activation){ .def = def, .back = v->pc + 1, .sp = sp, .frame = v->frame, .loop = v->loop,
                                          .capture = v->capture };
    v->frame = frame;
    v->pc = def->entry;
    return true;
}

static bool take_keyword(const jj_args *a, bool *used, const jj_str *name, jj_value *out)
{
    for (size_t i = 0; i < a->n_kw; i++) {
        if (used[i] || !jj_str_equal(a->kw_name[i].s, name))
            continue;
        used[i] = true;
        *out = a->kw[i];
        return true;
    }
    return false;
}

/* What a macro has without naming it: caller, kwargs, varargs. */
static bool specials(jj_vm *v, const jj_macro_def *m, const jj_args *a, bool *used, jj_frame *f)
{
    jj_value caller = JJ_NULL, name, rest;

    if (m->caller >= 0) {
        if (!jj_text(&v->c, &name, "caller"))
            return false;
        if ((!take_keyword(a, used, name.s, &caller) || caller.type == JJ_NONE) &&
            !jj_undefined(&v->c, &caller, JJ_WHY_HINT, "No caller defined", JJ_NOTHING))
            return false;
        f->slot[m->caller] = caller;
    }
    if (m->kwargs >= 0 && !jj_new_dict(&v->c, &f->slot[m->kwargs], false))
        return false;
    for (size_t i = 0; i < a->n_kw; i++) {
        const jj_str *s = a->kw_name[i].s;
        if (used[i])
            continue;
        if (m->kwargs < 0)
            return jj_fail(&v->c, "macro '%.*s' takes no keyword argument '%.*s'", (int)(m->name.s->n & 63),
                           jj_data(m->name.s), (int)(s->n & 63), jj_data(s));
        if (!jj_dict_put(&v->c, f->slot[m->kwargs].dict, a->kw_name[i], a->kw[i]))
            return false;
    }
    if (m->varargs < 0)
        return a->n <= m->n_params || jj_fail(&v->c, "macro '%.*s' takes not more than %u arguments",
                                              (int)(m->name.s->n & 63), jj_data(m->name.s), m->n_params);
    if (!jj_new_list(&v->c, &rest, JJ_TUPLE, a->n, false))
        return false;
    for (size_t i = m->n_params; i < a->n; i++)
        if (!jj_list_add(&v->c, rest.list, a->pos[i]))
            return false;
    f->slot[m->varargs] = rest;
    return true;
}

static bool call_macro(jj_vm *v, const jj_macro *macro, const jj_args *a, size_t sp)
{
    const jj_macro_def *m = macro->def;
    jj_frame *f = jj_frame_new(v, m->scope, macro->scope);
    bool *used = jj_array(&v->c, a->n_kw + 1, sizeof *used); /* fits: as many as lie on the stack */

    if (!f || !used)
        return false;
    for (uint32_t i = 0; i < m->n_params; i++) {
        if (i < a->n)
            f->slot[i] = a->pos[i];
        else if (!take_keyword(a, used, m->param[i].s, &f->slot[i]) && i < m->n_params - m->n_defaults &&
                 !jj_undefined(&v->c, &f->slot[i], JJ_WHY_NAME, "", m->param[i]))
            return false;
    }
    return specials(v, m, a, used, f) && activate(v, m, f, sp) && jj_capture_begin(v);
}

bool jj_run_return(jj_vm *v, jj_insn n)
{
    jj_activation *a = &v->act[v->n_act - 1];
    jj_value x;

    (void)n;
    if (!jj_capture_end(v, &x))
        return false;
    if (!a->def->loop && !v->j->scope[a->def->scope].kept) {
        v->frame->parent = v->spare_frame[v->frame->scope];
        v->spare_frame[v->frame->scope] = v->frame;
    }
    v->n_act--;
    v->pc = a->back;
    v->sp = a->sp;
    v->frame = a->frame;
    v->loop = a->loop;
    v->capture = a->capture;
    return jj_vm_push(v, x);
}

/* ---- a recursive for ---- */

static bool call_loop(jj_vm *v, const jj_macro_def *def, jj_frame *scope, jj_value of, int64_t depth0, size_t sp)
{
    if (!activate(v, def, scope, sp))
        return false;
    v->act[v->n_act - 1].depth0 = depth0;
    return jj_capture_begin(v) && jj_vm_push(v, of);
}

bool jj_run_recurse(jj_vm *v, jj_insn n)
{
    jj_value of = jj_vm_pop(v);

    return call_loop(v, &v->j->macro[n.a], v->frame, of, 0, v->sp);
}

/* ---- calls ---- */

bool jj_run_call(jj_vm *v, jj_insn n)
{
    size_t total;
    jj_args a;
    jj_value callee, out = JJ_NULL;
    bool ok;

    v->c.steps += 2 * JJ_STEP; /* dearer than most */
    if (!gather(v, &v->j->call[n.a], &total, &a))
        return false;
    size_t base = v->sp - total - 1;
    callee = v->stack[base];
    switch (callee.type) {
    case JJ_MACRO:
        return call_macro(v, callee.macro, &a, base);
    case JJ_LOOP:
        if (!callee.loop->again)
            return jj_fail(&v->c, "the loop must have the 'recursive' marker to be called recursively");
        if (a.n != 1 || a.n_kw)
            return jj_fail(&v->c, "loop() takes one iterable");
        return call_loop(v, callee.loop->again, callee.loop->scope, a.pos[0], callee.loop->depth0 + 1, base);
    case JJ_FUNCTION:
        ok = jj_call_def(&v->c, callee.def, JJ_NULL, &a, &out);
        break;
    case JJ_METHOD:
        ok = jj_call_def(&v->c, callee.bound->def, callee.bound->self, &a, &out);
        break;
    case JJ_JOINER:
        ok = callee.cycler->at++ ? (out = callee.cycler->items->item[0], true) : jj_text(&v->c, &out, "");
        break;
    case JJ_UNDEFINED:
        return jj_fail_undefined(&v->c, callee);
    default:
        return jj_fail(&v->c, "'%s' object is not callable", jj_type_name(callee));
    }
    v->pc++;
    v->sp = base;
    return ok && jj_vm_push(v, out);
}

static bool call_on(jj_vm *v, jj_insn n)
{
    size_t total;
    jj_args a;
    jj_value out;

    v->c.steps += 2 * JJ_STEP;
    if (!gather(v, &v->j->call[n.a], &total, &a) ||
        !jj_call_def(&v->c, v->j->def[n.b], v->stack[v->sp - total - 1], &a, &out))
        return false;
    v->pc++;
    v->sp -= total;
    v->stack[v->sp - 1] = out;
    return true;
}

bool jj_run_filter(jj_vm *v, jj_insn n)
{
    return call_on(v, n);
}

bool jj_run_test(jj_vm *v, jj_insn n)
{
    return call_on(v, n);
}

/* ---- the `if` of a for: code that is run for one item, between the interpreter's own steps ---- */

static bool pick_by_code(jj_ctx *c, jj_iter *it, jj_value item, bool *keep, jj_value *out)
{
    jj_vm *v = (jj_vm *)c;
    jj_macro_def code = { .entry = it->entry };
    size_t sp = v->sp, pc = v->pc;
    jj_frame *f = jj_frame_new(v, it->scope, it->run);

    *out = item;
    if (!f || !activate(v, &code, f, sp) || !jj_vm_push(v, item) || !jj_vm_run(v))
        return false;
    *keep = v->answer;
    v->done = false;
    v->pc = pc;
    return true;
}

bool jj_run_picky(jj_vm *v, jj_insn n)
{
    jj_value *top = &v->stack[v->sp - 1];
    jj_iter *it = jj_iter_over(&v->c, jj_iterate(&v->c, *top), pick_by_code);

    if (!it)
        return false;
    it->entry = (uint32_t)v->pc + 1;
    it->scope = (uint32_t)n.a;
    it->run = v->frame;
    *top = (jj_value){ .type = JJ_ITER, .iter = it };
    v->pc += (size_t)n.b;
    return true;
}

bool jj_run_yield(jj_vm *v, jj_insn n)
{
    jj_activation *a = &v->act[v->n_act - 1];

    (void)n;
    v->answer = jj_truth(jj_vm_pop(v));
    v->n_act--;
    v->sp = a->sp;
    v->frame = a->frame;
    v->loop = a->loop;
    v->capture = a->capture;
    v->done = true;
    return true;
}
