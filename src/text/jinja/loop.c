/* loop.c -- the interpreter's scopes, captures, output and loops. */
#include <string.h>

#include "text/jinja/vm.h"

/* ---- scopes ---- */

jj_frame *jj_frame_new(jj_vm *v, uint32_t scope, jj_frame *parent)
{
    size_t n = v->j->scope[scope].n_slots;
    jj_frame *f = v->spare_frame[scope];

    if (f)
        v->spare_frame[scope] = f->parent;
    else if (!(f = jj_alloc_tail(&v->c, sizeof *f, n, sizeof *f->slot)))
        return NULL;
    f->parent = parent;
    f->scope = scope;
    memset(f->slot, 0, n * sizeof *f->slot);
    return f;
}

static void leave(jj_vm *v)
{
    jj_frame *f = v->frame;

    v->frame = f->parent;
    if (v->j->scope[f->scope].kept)
        return;
    f->parent = v->spare_frame[f->scope];
    v->spare_frame[f->scope] = f;
}

bool jj_run_scope(jj_vm *v, jj_insn n)
{
    jj_frame *f = jj_frame_new(v, (uint32_t)n.a, v->frame);

    v->pc++;
    if (f)
        v->frame = f;
    return f;
}

bool jj_run_unscope(jj_vm *v, jj_insn n)
{
    (void)n;
    v->pc++;
    leave(v);
    return true;
}

/* ---- output ---- */

bool jj_capture_begin(jj_vm *v)
{
    jj_capture *k = jj_alloc(&v->c, sizeof *k);

    if (!k || !(k->b = jj_buf_new(&v->c, 64, 0)))
        return false;
    k->outer = v->capture;
    v->capture = k;
    return true;
}

bool jj_capture_end(jj_vm *v, jj_value *out)
{
    jj_capture *k = v->capture;

    v->capture = k->outer;
    return jj_give(out, jj_str_from(&v->c, k->b));
}

bool jj_run_capture(jj_vm *v, jj_insn n)
{
    (void)n;
    v->pc++;
    return jj_capture_begin(v);
}

bool jj_run_captured(jj_vm *v, jj_insn n)
{
    jj_value x;

    (void)n;
    v->pc++;
    return jj_capture_end(v, &x) && jj_vm_push(v, x);
}

bool jj_run_discard(jj_vm *v, jj_insn n)
{
    (void)n;
    v->pc++;
    v->capture = v->capture->outer;
    return true;
}

static bool write(jj_vm *v, jj_value x)
{
    jj_str whole, *s = x.s;
    size_t n;
    bool trusted;

    v->c.steps += JJ_STEP; /* costs more than most */
    if (v->capture)
        return jj_print(&v->c, v->capture->b, x);
    if (x.type != JJ_STR) { /* by way of a buffer of its own, used again and again */
        jj_buf *b = v->scratch;
        if (!b && !(b = v->scratch = jj_buf_new(&v->c, 64, 0)))
            return false;
        b->used = b->n_runs = 0;
        b->ascii = true;
        if (!jj_print(&v->c, b, x))
            return false;
        whole = (jj_str){ b, 0, b->used, SIZE_MAX };
        s = &whole;
    }
    if (!jj_charge_times(&v->c, s->n, 2)) /* made once more */
        return false;
    for (size_t at = 0; jj_next_run(s, &at, &n, &trusted); at += n) {
        if (n > v->out->bytes.cap - v->out->bytes.n)
            return jj_over(&v->c, "the text is longer than it may be");
        if (!rg_text_add(v->out, jj_data(s) + at, n, trusted))
            return jj_no_memory(&v->c, n);
    }
    return true;
}

bool jj_run_emit(jj_vm *v, jj_insn n)
{
    (void)n;
    v->pc++;
    return write(v, jj_vm_pop(v));
}

bool jj_run_data(jj_vm *v, jj_insn n)
{
    v->pc++;
    return write(v, v->j->constant[n.a]);
}

/* ---- loops ---- */

bool jj_run_for(jj_vm *v, jj_insn n)
{
    jj_value of = jj_vm_pop(v);
    jj_loop *l = v->spare_loop; /* only loops that `loop` cannot refer to any more are kept for reuse */
    jj_frame *f;
    const jj_activation *act = v->n_act ? &v->act[v->n_act - 1] : NULL;

    if (l)
        v->spare_loop = l->outer;
    else if (!(l = jj_alloc(&v->c, sizeof *l)))
        return false;
    *l = (jj_loop){ .iterable = of, .index0 = -1, .length = -1, .scope = v->frame, .outer = v->loop };
    l->iter = jj_iterate(&v->c, of);
    if (!l->iter || !(f = jj_frame_new(v, (uint32_t)n.a, v->frame)))
        return false;
    if (act && act->def->loop && v->loop == act->loop) { /* not one inside it */
        l->again = act->def;
        l->depth0 = act->depth0;
    }
    v->frame = f;
    v->loop = l;
    v->pc++;
    return true;
}

bool jj_run_for_next(jj_vm *v, jj_insn n)
{
    const jj_insn setup = v->j->code[v->pc - 1];
    jj_frame *f = v->frame;
    jj_value item;

    if (!jj_loop_next(&v->c, v->loop, &item))
        return false;
    if (item.type == JJ_MISSING) {
        v->pc += (size_t)n.a;
        return true;
    }
    memset(f->slot, 0, v->j->scope[f->scope].n_slots * sizeof *f->slot);
    if (setup.b)
        f->slot[setup.b - 1] = (jj_value){ .type = JJ_LOOP, .loop = v->loop };
    v->pc++;
    return jj_vm_push(v, item);
}

bool jj_run_for_turn(jj_vm *v, jj_insn n)
{
    v->loop->completed = true;
    v->pc = (size_t)((int64_t)v->pc + n.a);
    return true;
}

bool jj_run_for_end(jj_vm *v, jj_insn n)
{
    jj_loop *l = v->loop;
    bool completed = l->completed;

    v->pc++;
    v->loop = l->outer;
    leave(v);
    if (!n.b) {
        l->outer = v->spare_loop;
        v->spare_loop = l;
    }
    return jj_vm_push(v, jj_bool(!completed));
}

bool jj_run_unpack(jj_vm *v, jj_insn n)
{
    jj_value x = jj_vm_pop(v), item;
    size_t want = (size_t)n.a;
    jj_iter *it = jj_iterate(&v->c, x);

    v->pc++;
    if (!it)
        return false;
    for (size_t i = 0; i < want; i++)
        if (!jj_vm_push(v, JJ_NULL))
            return false;
    for (size_t i = 0;; i++) {
        if (!jj_next(&v->c, it, &item))
            return false;
        if (item.type == JJ_MISSING && i < want)
            return jj_fail(&v->c, "not enough values to unpack (expected %zu, got %zu)", want, i);
        if (item.type == JJ_MISSING)
            return true;
        if (i == want)
            return jj_fail(&v->c, "too many values to unpack (expected %zu)", want);
        v->stack[v->sp - 1 - i] = item;
    }
}
