/* for.c -- loops to code. */
#include <string.h>

#include "base/mem.h"
#include "text/jinja/program.h"

/* Note that frames of this scope, and of those around it, may be read after they were left. */
static void keep_scopes(jj_compiler *k)
{
    for (int32_t s = k->scope; s >= 0 && !k->j->scope[s].kept; s = k->j->scope[s].parent)
        k->j->scope[s].kept = true;
}

/* `for x in y if z`: z as code of its own, run for each item in a scope that has but x. */
static bool picky(jj_compiler *k, size_t first)
{
    size_t at = k->j->n_code, n = k->n_targets - first;
    int32_t scope;
    bool ok;

    keep_scopes(k);
    if (!jj_emit(k, JC_PICKY, 0, 0) || !jj_new_scope(k, &scope))
        return false;
    for (size_t i = 0; i < n; i++) { /* the targets are wanted again by the loop itself */
        if (!jj_grow(k->c, &k->target, k->n_targets, &k->targets_room, sizeof *k->target))
            return false;
        k->target[k->n_targets++] = k->target[first + i];
    }
    ok = jj_store(k, first + n) && jj_expression(k, true) && jj_emit(k, JC_YIELD, 0, 0);
    jj_leave_scope(k);
    if (ok && k->j->n_code - at > JJ_MAX_B)
        return jj_over(k->c, "the template is too large");
    k->j->code[at].a = scope;
    k->j->code[at].b = (int32_t)(k->j->n_code - at);
    return ok;
}

/* The body, up to endfor or else, with what break and continue jump to. */
static bool turns(jj_compiler *k, size_t first, size_t *which, size_t *setup)
{
    static const char *const ends[] = { "endfor", "else", NULL };
    jj_loop_ctx loop = { .captures = k->captures, .scopes = k->scopes + 1, .inside = true, .outer = k->loop };
    bool outer_asks = k->asks.loop, ok;
    int32_t scope;
    uint32_t slot = 0, name;
    jj_value text;

    k->asks.loop = false;
    *setup = k->j->n_code;
    if (!jj_new_scope(k, &scope) || !jj_emit(k, JC_FOR, scope, 0))
        return false;
    k->scopes++;
    loop.turn = k->j->n_code;
    k->loop = &loop;
    ok = jj_emit(k, JC_FOR_NEXT, 0, 0) && jj_store(k, first) && jj_block(k, ends, which) &&
         jj_emit(k, JC_FOR_TURN, (int64_t)loop.turn - (int64_t)k->j->n_code, 0);
    k->loop = loop.outer;
    k->scopes--;
    if (ok && k->asks.loop) {
        ok = jj_text(k->c, &text, "loop") && jj_name_id(k, text, &name) && jj_slot(k, scope, name, &slot);
        k->j->code[*setup].b = (int32_t)slot + 1;
    }
    k->asks.loop |= outer_asks;
    jj_leave_scope(k);
    if (ok) {
        jj_patch(k, loop.turn);
        for (size_t i = 0; i < loop.n_breaks; i++)
            jj_patch(k, loop.breaks[i]);
        ok = jj_emit(k, JC_FOR_END, scope, slot || k->j->code[*setup].b);
    }
    rg_free(loop.breaks);
    return ok;
}

/* Code from the iterable on the stack to the end of the loop. */
static bool whole_loop(jj_compiler *k, size_t first)
{
    size_t which, setup, at = 0;

    if (!turns(k, first, &which, &setup))
        return false;
    if (which == 0)
        return jj_emit(k, JC_POP, 0, 0);
    at = k->j->n_code;
    if (!jj_emit(k, JC_JUMP_IF_NOT, 0, 0) || !jj_scoped(k, "endfor"))
        return false;
    jj_patch(k, at);
    return true;
}

/* The loop as a macro that gets the iterable, so that loop(...) can call it again. */
static bool recursive(jj_compiler *k, size_t first, size_t picky_at)
{
    rg_jinja *j = k->j;
    size_t at = picky_at, id = j->n_macros; /* its `if`, which is compiled already, moves into the macro */
    jj_loop_ctx *outer = k->loop;
    bool ok;

    keep_scopes(k);
    if (!jj_grow(k->c, &j->macro, j->n_macros, &j->macros_room, sizeof *j->macro) || !jj_emit(k, JC_JUMP, 0, 0) ||
        !jj_swap_code(k, at, j->n_code - 1))
        return false;
    j->macro[j->n_macros++] = (jj_macro_def){ .entry = (uint32_t)at + 1, .loop = true, .caller = -1, .kwargs = -1,
                                              .varargs = -1 };
    k->loop = NULL;
    ok = whole_loop(k, first) && jj_emit(k, JC_RETURN, 0, 0);
    k->loop = outer;
    if (!ok)
        return false;
    jj_patch(k, at);
    return jj_emit(k, JC_RECURSE, (int64_t)id, 0) && jj_emit(k, JC_EMIT, 0, 0);
}

bool jj_for(jj_compiler *k)
{
    size_t first, picky_at, n;

    if (!jj_targets(k, false, "in", &first))
        return false;
    n = k->n_targets;
    if (!jj_at_name(k, "in"))
        return jj_unexpected(k, "'in'");
    if (!jj_advance(k) || !jj_tuple(k, false, "recursive", false))
        return false;
    picky_at = k->j->n_code;
    if (jj_at_name(k, "if") && (!jj_advance(k) || !picky(k, first)))
        return false;
    k->n_targets = n;
    if (!jj_at_name(k, "recursive"))
        return whole_loop(k, first);
    return jj_advance(k) && recursive(k, first, picky_at);
}

bool jj_break(jj_compiler *k, bool again)
{
    jj_loop_ctx *l = k->loop;
    size_t at;

    if (!l)
        return jj_fail(k->c, "'%s' outside of a loop", again ? "continue" : "break");
    for (int i = k->captures; i > l->captures; i--)
        if (!jj_emit(k, JC_DISCARD, 0, 0))
            return false;
    for (int i = k->scopes; i > l->scopes; i--)
        if (!jj_emit(k, JC_UNSCOPE, 0, 0))
            return false;
    at = k->j->n_code;
    if (!jj_emit(k, JC_JUMP, (int64_t)l->turn - (int64_t)at, 0))
        return false;
    if (again)
        return true;
    if (!jj_grow(k->c, &l->breaks, l->n_breaks, &l->breaks_room, sizeof *l->breaks))
        return false;
    l->breaks[l->n_breaks++] = at;
    return true;
}
