/* compile.c -- what compiling a template stands on: tokens, code, and numbers for names, slots and the rest. */
#include <string.h>

#include "base/mem.h"
#include "text/jinja/program.h"

/* ---- tokens ---- */

bool jj_advance(jj_compiler *k)
{
    if (k->has_ahead) {
        k->tok = k->ahead;
        k->has_ahead = false;
        k->c->line = k->tok.line;
        return true;
    }
    if (!jj_lex(&k->x, &k->tok))
        return false;
    k->c->line = k->tok.line;
    return true;
}

bool jj_look(jj_compiler *k)
{
    if (!k->has_ahead && !jj_lex(&k->x, &k->ahead))
        return false;
    k->has_ahead = true;
    k->c->line = k->tok.line;
    return true;
}

bool jj_unexpected(jj_compiler *k, const char *wanted)
{
    char got[64];

    return jj_fail(k->c, "expected %s, got '%s'", wanted, jj_token_name(&k->tok, got));
}

bool jj_expect(jj_compiler *k, jj_tok type, const char *what)
{
    return k->tok.type == type ? jj_advance(k) : jj_unexpected(k, what);
}

bool jj_at_name(const jj_compiler *k, const char *name)
{
    return k->tok.type == JT_NAME && k->tok.n == strlen(name) && !memcmp(k->tok.s, name, k->tok.n);
}

bool jj_down(jj_compiler *k)
{
    if (k->depth >= RG_JINJA_DEPTH)
        return jj_over(k->c, "brackets and blocks are nested too deep");
    k->depth++;
    return true;
}

void jj_up(jj_compiler *k)
{
    k->depth--;
}

/* ---- arrays, code ---- */

bool jj_grow(jj_ctx *c, void *array, size_t n, size_t *room, size_t bytes)
{
    void *old, *p;
    size_t want = *room ? 2 * *room : 16;

    if (n < *room)
        return true;
    memcpy(&old, array, sizeof old);
    p = rg_resize_array(old, want, bytes);
    if (!p)
        return jj_no_memory(c, want * bytes);
    memset((char *)p + n * bytes, 0, (want - n) * bytes);
    memcpy(array, &p, sizeof p);
    *room = want;
    return true;
}

bool jj_emit(jj_compiler *k, jj_code op, int64_t a, int64_t b)
{
    rg_jinja *j = k->j;
    size_t room = j->code_room;

    if (a > INT32_MAX || b > JJ_MAX_B)
        return jj_over(k->c, "the template is too large");
    if (!jj_grow(k->c, &j->code, j->n_code, &room, sizeof *j->code) ||
        !jj_grow(k->c, &j->line, j->n_code, &j->code_room, sizeof *j->line))
        return false;
    j->code_room = room;
    j->line[j->n_code] = k->c->line;
    j->code[j->n_code++] = (jj_insn){ .op = (int32_t)op, .b = (int32_t)b, .a = (int32_t)a };
    return true;
}

void jj_patch(jj_compiler *k, size_t at)
{
    k->j->code[at].a = (int32_t)(k->j->n_code - at);
}

bool jj_constant(jj_compiler *k, jj_value v, int64_t *out)
{
    rg_jinja *j = k->j;

    if (!jj_grow(k->c, &j->constant, j->n_constants, &j->constants_room, sizeof *j->constant))
        return false;
    if (v.type == JJ_STR) { /* shared by renders: counted now */
        v.s->points = jj_str_points(v.s);
        v.s->b->shared = true;
    }
    *out = (int64_t)j->n_constants;
    j->constant[j->n_constants++] = v;
    return true;
}

bool jj_token_text(jj_compiler *k, const jj_token *t, jj_value *out)
{
    if (!jj_give(out, jj_str_borrow(k->c, t->s, t->n, true)))
        return false;
    out->s->points = jj_str_points(out->s);
    out->s->b->shared = true;
    return true;
}

/* ---- numbers for things ---- */

/* The number of key in d; *fresh: it has just been given `next`. */
static bool number(jj_compiler *k, jj_dict *d, jj_value key, size_t next, uint32_t *out, bool *fresh)
{
    jj_value v;
    int got = jj_dict_get(k->c, d, key, &v);

    k->c->bytes = 0; /* memory of the source is bounded by its size */
    *fresh = !got;
    *out = got > 0 ? (uint32_t)v.i : (uint32_t)next;
    return got > 0 || (got == 0 && jj_dict_put(k->c, d, key, jj_int((int64_t)next)));
}

bool jj_name_id(jj_compiler *k, jj_value name, uint32_t *out)
{
    rg_jinja *j = k->j;
    bool fresh;

    if (!number(k, k->names, name, j->n_names, out, &fresh))
        return false;
    if (!fresh)
        return true;
    if (!jj_grow(k->c, &j->name, j->n_names, &j->names_room, sizeof *j->name))
        return false;
    j->name[j->n_names++] = name;
    return true;
}

static jj_value pair_key(int64_t a, int64_t b)
{
    return jj_int(a << 32 | b);
}

bool jj_slot(jj_compiler *k, int32_t scope, uint32_t name, uint32_t *out)
{
    jj_scope *s = &k->j->scope[scope];
    bool fresh;

    if (!number(k, k->slots, pair_key(scope, name), s->n_slots, out, &fresh))
        return false;
    s->n_slots += fresh;
    return true;
}

bool jj_ref_id(jj_compiler *k, uint32_t name, int64_t *out)
{
    rg_jinja *j = k->j;
    uint32_t id;
    bool fresh;

    if (!number(k, k->refs, pair_key(k->scope, name), j->n_refs, &id, &fresh))
        return false;
    *out = id;
    if (!fresh)
        return true;
    if (!jj_grow(k->c, &j->ref, j->n_refs, &j->refs_room, sizeof *j->ref))
        return false;
    j->ref[j->n_refs++] = (jj_ref){ .name = name, .scope = (uint32_t)k->scope };
    return true;
}

bool jj_attr_id(jj_compiler *k, jj_value name, int64_t *out)
{
    rg_jinja *j = k->j;
    uint32_t id;
    bool fresh;

    if (!number(k, k->attrs, name, j->n_attrs, &id, &fresh))
        return false;
    *out = id;
    if (!fresh)
        return true;
    if (!jj_grow(k->c, &j->attr, j->n_attrs, &j->attrs_room, sizeof *j->attr))
        return false;
    jj_attr_of(name, &j->attr[j->n_attrs++]);
    return true;
}

bool jj_def_id(jj_compiler *k, const jj_def *d, int64_t *out)
{
    rg_jinja *j = k->j;

    for (size_t i = 0; i < j->n_defs; i++)
        if (j->def[i] == d)
            return *out = (int64_t)i, true;
    if (!jj_grow(k->c, &j->def, j->n_defs, &j->defs_room, sizeof *j->def))
        return false;
    *out = (int64_t)j->n_defs;
    j->def[j->n_defs++] = d;
    return true;
}

/* ---- scopes ---- */

bool jj_new_scope(jj_compiler *k, int32_t *out)
{
    rg_jinja *j = k->j;

    if (!jj_grow(k->c, &j->scope, j->n_scopes, &j->scopes_room, sizeof *j->scope))
        return false;
    j->scope[j->n_scopes] = (jj_scope){ .parent = k->scope };
    k->scope = *out = (int32_t)j->n_scopes++;
    return true;
}

void jj_leave_scope(jj_compiler *k)
{
    k->scope = k->j->scope[k->scope].parent;
}

static bool places_of(jj_compiler *k, jj_ref *r)
{
    rg_jinja *j = k->j;
    jj_value slot;
    uint32_t up = 0;

    r->first = (uint32_t)j->n_places;
    for (int32_t s = (int32_t)r->scope; s >= 0; s = j->scope[s].parent, up++) {
        int got = jj_dict_get(k->c, k->slots, pair_key(s, r->name), &slot);
        if (got < 0)
            return false;
        if (!got)
            continue;
        if (!jj_grow(k->c, &j->place, j->n_places, &j->places_room, sizeof *j->place))
            return false;
        j->place[j->n_places++] = (jj_place){ up, (uint32_t)slot.i };
        r->n++;
    }
    return true;
}

bool jj_resolve(jj_compiler *k)
{
    for (size_t i = 0; i < k->j->n_refs; i++)
        if (!places_of(k, &k->j->ref[i]))
            return false;
    return true;
}

/* ---- all of it ---- */

bool jj_compile(rg_jinja *j, jj_ctx *c, const char *source, size_t n)
{
    static const char *const none[] = { NULL };
    jj_compiler k = { .c = c, .j = j, .scope = -1 };
    jj_value v[4];
    int32_t root;
    int64_t empty;
    size_t which;
    bool ok = true;

    for (size_t i = 0; ok && i < RG_LEN(v); i++)
        ok = jj_new_dict(c, &v[i], false);
    if (!ok)
        return false;
    k.names = v[0].dict;
    k.slots = v[1].dict;
    k.refs = v[2].dict;
    k.attrs = v[3].dict;
    ok = jj_lexer_init(&k.x, c, source, n) && jj_new_scope(&k, &root) &&
         jj_add_call(&k, (jj_call){ .list_at = -1, .dict_at = -1 }, &empty) && jj_advance(&k) &&
         jj_body(&k, none, &which) &&
         jj_emit(&k, JC_END, 0, 0) && jj_resolve(&k);
    rg_free(k.target);
    return ok;
}
