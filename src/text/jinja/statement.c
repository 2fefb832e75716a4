/* statement.c -- the text of a template and its tags to code, but for loops and macros. */
#include <string.h>

#include "text/jinja/program.h"

/* ---- what is assigned to ---- */

static bool add_target(jj_compiler *k, jj_target t)
{
    if (!jj_grow(k->c, &k->target, k->n_targets, &k->targets_room, sizeof *k->target))
        return false;
    k->target[k->n_targets++] = t;
    return true;
}

static bool one_name(jj_compiler *k, bool attributes)
{
    jj_value name, attr;
    jj_target t = { .kind = JJ_TO_NAME };
    int64_t id;

    if (k->tok.type != JT_NAME)
        return jj_unexpected(k, "a name to assign to");
    if (!jj_token_text(k, &k->tok, &name) || !jj_advance(k))
        return false;
    static const char *const constants[] = { "true", "false", "none", "True", "False", "None" };
    for (size_t i = 0; i < RG_LEN(constants); i++)
        if (jj_str_is(name.s, constants[i]))
            return jj_fail(k->c, "can't assign to '%s'", constants[i]);
    if (!jj_name_id(k, name, &t.name))
        return false;
    if (attributes && k->tok.type == JT_DOT) {
        if (!jj_advance(k) || k->tok.type != JT_NAME)
            return k->c->failed ? false : jj_unexpected(k, "name");
        if (!jj_token_text(k, &k->tok, &attr) || !jj_attr_id(k, attr, &id) || !jj_advance(k))
            return false;
        t.kind = JJ_TO_ATTR;
        t.attr = (uint32_t)id;
    } else if (k->loop && jj_str_is(name.s, "loop")) {
        return jj_fail(k->c, "can't assign to special loop variable");
    }
    return add_target(k, t);
}

/* a, b or (a, b), nested; a tuple's entry stands before those of its parts. */
static bool targets(jj_compiler *k, bool attributes, const char *end_name, jj_tok close)
{
    size_t at = k->n_targets;
    uint32_t n = 0;
    bool tuple = false;

    if (!add_target(k, (jj_target){ .kind = JJ_TO_TUPLE }))
        return false;
    while (k->tok.type != close && !(end_name && jj_at_name(k, end_name)) && k->tok.type != JT_BLOCK_END) {
        bool ok;
        if (k->tok.type == JT_LPAREN) {
            ok = jj_down(k) && jj_advance(k) && targets(k, false, NULL, JT_RPAREN) && jj_expect(k, JT_RPAREN, "')'");
            jj_up(k);
        } else {
            ok = one_name(k, attributes);
        }
        if (!ok)
            return false;
        n++;
        if (k->tok.type != JT_COMMA)
            break;
        tuple = true;
        if (!jj_advance(k))
            return false;
    }
    if (!n && close != JT_RPAREN)
        return jj_unexpected(k, "a name to assign to");
    k->target[at].n = n;
    if (!tuple && n == 1) { /* no tuple: its one part alone */
        memmove(&k->target[at], &k->target[at + 1], (k->n_targets - at - 1) * sizeof *k->target);
        k->n_targets--;
    }
    return true;
}

bool jj_targets(jj_compiler *k, bool attributes, const char *end_name, size_t *first)
{
    *first = k->n_targets;
    return targets(k, attributes, end_name, JT_ASSIGN);
}

/* Namespaces are looked at before what they are given is computed. */
static bool need_namespaces(jj_compiler *k, size_t first)
{
    for (size_t i = first; i < k->n_targets; i++) {
        int64_t ref;
        if (k->target[i].kind == JJ_TO_ATTR &&
            (!jj_ref_id(k, k->target[i].name, &ref) || !jj_emit(k, JC_NEED_NS, ref, 0)))
            return false;
    }
    return true;
}

bool jj_store(jj_compiler *k, size_t first)
{
    for (size_t i = first; i < k->n_targets; i++) {
        const jj_target *t = &k->target[i];
        uint32_t slot;
        int64_t ref;
        bool ok;
        if (t->kind == JJ_TO_TUPLE)
            ok = jj_emit(k, JC_UNPACK, t->n, 0);
        else if (t->kind == JJ_TO_NAME)
            ok = jj_slot(k, k->scope, t->name, &slot) && jj_emit(k, JC_STORE, slot, 0);
        else
            ok = jj_ref_id(k, t->name, &ref) && jj_emit(k, JC_STORE_ATTR, t->attr, ref);
        if (!ok)
            return false;
    }
    k->n_targets = first;
    return true;
}

/* ---- tags ---- */

static bool open_scope(jj_compiler *k, bool capture)
{
    int32_t scope;

    if (capture) {
        k->captures++;
        if (!jj_emit(k, JC_CAPTURE, 0, 0))
            return false;
    }
    k->scopes++;
    return jj_new_scope(k, &scope) && jj_emit(k, JC_SCOPE, scope, 0);
}

static bool close_scope(jj_compiler *k, bool capture)
{
    k->scopes--;
    jj_leave_scope(k);
    if (!jj_emit(k, JC_UNSCOPE, 0, 0))
        return false;
    k->captures -= capture;
    return !capture || jj_emit(k, JC_CAPTURED, 0, 0);
}

bool jj_scoped(jj_compiler *k, const char *end)
{
    const char *const ends[] = { end, NULL };
    size_t which;

    return open_scope(k, false) && jj_block(k, ends, &which) && close_scope(k, false);
}

/* A block whose text is passed through filters that are written before it: they are compiled before it, and run after
 * it. */
static bool filtered_block(jj_compiler *k, const char *end, bool inline_first)
{
    const char *const ends[] = { end, NULL };
    size_t start = k->j->n_code, out, which;

    if (!jj_emit(k, JC_JUMP, 0, 0) || !jj_filters(k, inline_first))
        return false;
    out = k->j->n_code;
    if (!jj_emit(k, JC_JUMP, 0, 0))
        return false;
    jj_patch(k, start);
    if (!open_scope(k, true) || !jj_block(k, ends, &which) || !close_scope(k, true) ||
        !jj_emit(k, JC_JUMP, (int64_t)start + 1 - (int64_t)k->j->n_code, 0))
        return false;
    jj_patch(k, out);
    return true;
}

static bool s_set(jj_compiler *k)
{
    size_t first;

    if (!jj_targets(k, true, NULL, &first))
        return false;
    if (k->tok.type == JT_ASSIGN)
        return need_namespaces(k, first) && jj_advance(k) && jj_tuple(k, true, NULL, false) && jj_store(k, first);
    return filtered_block(k, "endset", false) && need_namespaces(k, first) && jj_store(k, first);
}

static bool s_filter(jj_compiler *k)
{
    return filtered_block(k, "endfilter", true) && jj_emit(k, JC_EMIT, 0, 0);
}

static bool s_if(jj_compiler *k)
{
    static const char *const ends[] = { "elif", "else", "endif", NULL }, *const last[] = { "endif", NULL };
    size_t which = 0, exits = SIZE_MAX, at;

    while (which == 0) {
        if (!jj_tuple(k, false, NULL, false))
            return false;
        at = k->j->n_code;
        if (!jj_emit(k, JC_JUMP_IF_NOT, 0, 0) || !jj_block(k, ends, &which))
            return false;
        if (which < 2) { /* the exits hang on one another until their end is known */
            size_t exit = k->j->n_code;
            if (!jj_emit(k, JC_JUMP, exits == SIZE_MAX ? 0 : (int64_t)(exit - exits), 0))
                return false;
            exits = exit;
        }
        jj_patch(k, at);
    }
    if (which == 1 && !jj_block(k, last, &which))
        return false;
    while (exits != SIZE_MAX) {
        int32_t back = k->j->code[exits].a;
        jj_patch(k, exits);
        exits = back ? exits - (size_t)back : SIZE_MAX;
    }
    return true;
}

/* with a = 1, b = 2: the values know nothing of the names. */
static bool s_with(jj_compiler *k)
{
    static const char *const ends[] = { "endwith", NULL };
    size_t first[32], which;
    int n = 0;

    while (k->tok.type != JT_BLOCK_END) {
        if (n == RG_LEN(first))
            return jj_fail(k->c, "more than %d variables in a with", n);
        if ((n && !jj_expect(k, JT_COMMA, "','")) || !jj_targets(k, false, NULL, &first[n]) ||
            !jj_expect(k, JT_ASSIGN, "'='") || !jj_expression(k, true))
            return false;
        n++;
    }
    if (!open_scope(k, false))
        return false;
    while (n > 0)
        if (!jj_store(k, first[--n]))
            return false;
    return jj_block(k, ends, &which) && close_scope(k, false);
}

static bool s_print(jj_compiler *k)
{
    for (bool first = true; k->tok.type != JT_BLOCK_END; first = false)
        if ((!first && !jj_expect(k, JT_COMMA, "','")) || !jj_expression(k, true) || !jj_emit(k, JC_EMIT, 0, 0))
            return false;
    return true;
}

static bool s_generation(jj_compiler *k)
{
    return jj_scoped(k, "endgeneration");
}

static bool s_block(jj_compiler *k)
{
    if (k->tok.type != JT_NAME)
        return jj_unexpected(k, "name");
    if (!jj_advance(k))
        return false;
    while (jj_at_name(k, "scoped") || jj_at_name(k, "required"))
        if (!jj_advance(k))
            return false;
    if (!jj_scoped(k, "endblock"))
        return false;
    return k->tok.type != JT_NAME || jj_advance(k);
}

static bool s_break(jj_compiler *k)
{
    return jj_break(k, false);
}

static bool s_continue(jj_compiler *k)
{
    return jj_break(k, true);
}

static bool s_autoescape(jj_compiler *k)
{
    if (!jj_at_name(k, "false") && !jj_at_name(k, "False"))
        return jj_fail(k->c, "autoescape is not supported, but for 'false'");
    return jj_advance(k) && jj_scoped(k, "endautoescape");
}

static const struct tag {
    const char *name;
    bool (*compile)(jj_compiler *k);
} tags[] = {
    { "if", s_if }, { "for", jj_for }, { "set", s_set }, { "macro", jj_macro_statement }, { "call", jj_call_statement },
    { "filter", s_filter }, { "with", s_with }, { "print", s_print }, { "generation", s_generation },
    { "break", s_break }, { "continue", s_continue }, { "block", s_block }, { "autoescape", s_autoescape },
};

static bool statement(jj_compiler *k)
{
    jj_token t = k->tok;

    if (t.type != JT_NAME)
        return jj_fail(k->c, "tag name expected");
    for (size_t i = 0; i < RG_LEN(tags); i++) {
        if (!jj_at_name(k, tags[i].name))
            continue;
        if (!jj_down(k) || !jj_advance(k) || !tags[i].compile(k))
            return false;
        jj_up(k);
        return jj_expect(k, JT_BLOCK_END, "'end of statement block'");
    }
    return jj_fail(k->c, "encountered unknown tag '%.*s'", t.n < 60 ? (int)t.n : 60, t.s);
}

static bool find_end(const jj_compiler *k, const char *const *ends, size_t *which)
{
    for (*which = 0; ends[*which]; ++*which)
        if (jj_at_name(k, ends[*which]))
            return true;
    return false;
}

bool jj_body(jj_compiler *k, const char *const *ends, size_t *which)
{
    for (;;) {
        jj_value v;
        int64_t id;
        bool ok;
        switch (k->tok.type) {
        case JT_EOF:
            return !ends[0] || jj_fail(k->c, "unexpected end of template; '%s' is missing", ends[0]);
        case JT_DATA:
            ok = jj_token_text(k, &k->tok, &v) && jj_constant(k, v, &id) && jj_emit(k, JC_DATA, id, 0) && jj_advance(k);
            break;
        case JT_VAR_BEGIN:
            ok = jj_advance(k) && jj_tuple(k, true, NULL, false) && jj_emit(k, JC_EMIT, 0, 0) &&
                 jj_expect(k, JT_VAR_END, "'end of print statement'");
            break;
        case JT_BLOCK_BEGIN:
            if (!jj_advance(k))
                return false;
            if (find_end(k, ends, which))
                return jj_advance(k);
            ok = statement(k);
            break;
        default:
            ok = jj_unexpected(k, "text or a tag");
            break;
        }
        if (!ok)
            return false;
    }
}

bool jj_block(jj_compiler *k, const char *const *ends, size_t *which)
{
    if (k->tok.type == JT_COLON && !jj_advance(k))
        return false;
    return jj_expect(k, JT_BLOCK_END, "'end of statement block'") && jj_body(k, ends, which);
}
