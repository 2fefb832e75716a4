/* program.h -- a compiled template: code for a stack-based interpreter, and the tables that its operands index.
 *
 * Scopes are known when a template is compiled (the body of a for, a macro, a set block, ...; if has none), so a
 * variable is a slot of a frame some levels up.  A name may have a slot in several scopes around it, since `set` may
 * or may not have run: its reference lists them, innermost first, and the first that holds a value is it. */
#ifndef RG_TEXT_JINJA_PROGRAM_H
#define RG_TEXT_JINJA_PROGRAM_H

#include "text/jinja/internal.h"

typedef enum jj_code {
    JC_CONST,     /* a: constant.  Push it */
    JC_NAME,      /* a: reference */
    JC_STORE,     /* a: slot of the innermost frame.  Pop into it */
    JC_STORE_ATTR, /* a: attribute, b: reference to a namespace.  Pop into it */
    JC_NEED_NS,   /* a: reference, which must be a namespace */
    JC_DATA,      /* a: constant.  Write it */
    JC_EMIT,      /* pop, write as text */
    JC_POP, JC_NOT, JC_NEGATE, JC_POSITIVE,
    JC_JUMP,      /* a: how far; so with all jumps */
    JC_JUMP_IF_NOT, /* pops */
    JC_AND, JC_OR, /* keep the value and jump, or pop it */
    JC_BINARY,    /* a: jj_op */
    JC_COMPARE,   /* a: jj_cmp */
    JC_CHAIN,     /* b: jj_cmp.  a < b < c: compare and keep the right side, or push false and jump */
    JC_CONCAT,    /* a: of how many */
    JC_GETATTR,   /* a: attribute */
    JC_GETITEM, JC_SLICE,
    JC_LIST, JC_LIST_ADD, JC_TUPLE, /* TUPLE: the list on top becomes one */
    JC_DICT, JC_DICT_PUT,
    JC_CALL,      /* a: call.  The callee and what its parentheses hold are on the stack */
    JC_FILTER,    /* a: call, b: filter.  The subject takes the callee's place */
    JC_TEST,
    JC_FAIL,      /* a: constant, the message */
    JC_UNDEFINED, /* push what an inline if without else gives */
    JC_SCOPE, JC_UNSCOPE, /* a: scope */
    JC_CAPTURE, JC_CAPTURED, /* output goes to a string; push it */
    JC_DISCARD,   /* ... or drop it */
    JC_FOR,       /* a: scope, b: slot of `loop` + 1.  Pop what to go through */
    JC_FOR_NEXT,  /* a: where to when there is no more.  Push the item */
    JC_FOR_TURN,  /* a turn reached its end; a: back */
    JC_FOR_END,   /* b: something may still name the loop.  Leave it; push whether no turn reached its end */
    JC_PICKY,     /* a: scope, b: how far its code is.  Pop what to go through, push it with an `if` */
    JC_UNPACK,    /* a: into how many; the first on top */
    JC_MACRO,     /* a: macro.  Push it */
    JC_RECURSE,   /* a: macro of a recursive for.  Pop what to go through, push its text */
    JC_DEFAULT,   /* a: slot, b: how far to go if it is set */
    JC_RETURN,    /* from a macro: its text is pushed */
    JC_YIELD,     /* from the `if` of a for: pop the answer */
    JC_END,
} jj_code;

typedef struct jj_insn {
    int32_t op : 8, b : 24;
    int32_t a;
} jj_insn;

enum { JJ_MAX_B = (1 << 23) - 1 };

/* Values in the order in which they were written: positional ones, then named ones; among them *list and **dict. */
typedef struct jj_call {
    uint32_t n_pos, n_kw;
    int32_t list_at, dict_at; /* -1: none */
    jj_value *kw_name;
} jj_call;

typedef struct jj_place { /* of a variable */
    uint32_t up, slot;
} jj_place;

typedef struct jj_ref {
    uint32_t name, scope;
    uint32_t first, n; /* of its places */
} jj_ref;

typedef struct jj_scope {
    int32_t parent;
    uint32_t n_slots;
    bool kept; /* something may refer to its frame after it is left */
} jj_scope;

typedef struct jj_macro_def {
    uint32_t entry, scope;
    jj_value name;
    uint32_t n_params; /* in slots 0 .. n - 1 */
    jj_value *param;
    uint32_t n_defaults; /* of the last ones */
    int32_t caller, kwargs, varargs; /* slots; -1: not asked for */
    bool loop;                       /* the body of a recursive for */
} jj_macro_def;

struct rg_jinja {
    jj_ctx c; /* the arena of constants */
    jj_insn *code;
    uint32_t *line;
    size_t n_code, code_room;
    jj_value *constant;
    size_t n_constants, constants_room;
    jj_value *name; /* variables, by number */
    size_t n_names, names_room;
    jj_ref *ref;
    size_t n_refs, refs_room;
    jj_place *place;
    size_t n_places, places_room;
    jj_scope *scope;
    size_t n_scopes, scopes_room;
    jj_attr *attr;
    size_t n_attrs, attrs_room;
    jj_call *call;
    size_t n_calls, calls_room;
    jj_macro_def *macro;
    size_t n_macros, macros_room;
    const jj_def **def; /* filters and tests */
    size_t n_defs, defs_room;
};

/* ---- while it is compiled (compile.c) ---- */

#include "text/jinja/lex.h"

typedef struct jj_target { /* what is assigned to, in the order of a walk down */
    enum { JJ_TO_NAME, JJ_TO_ATTR, JJ_TO_TUPLE } kind;
    uint32_t name, attr, n;
    uint32_t line;
} jj_target;

typedef struct jj_loop_ctx { /* the for that break and continue mean */
    size_t turn;             /* where FOR_NEXT is */
    size_t *breaks;
    size_t n_breaks, breaks_room;
    int captures, scopes;
    bool inside; /* false: a macro stands between */
    struct jj_loop_ctx *outer;
} jj_loop_ctx;

typedef struct jj_asks { /* which of the special names the macro that is compiled reads */
    bool caller, kwargs, varargs, loop;
} jj_asks;

typedef struct jj_compiler {
    jj_ctx *c;
    rg_jinja *j;
    jj_lexer x;
    jj_token tok, ahead;
    bool has_ahead;
    int depth;  /* of nested brackets and blocks */
    int levels; /* of C functions that call themselves */
    jj_dict *names, *slots, *refs, *attrs; /* what has a number already */
    int32_t scope;
    jj_target *target;
    size_t n_targets, targets_room;
    jj_loop_ctx *loop;
    int captures, scopes; /* open ones */
    jj_asks asks;
} jj_compiler;

bool jj_compile(rg_jinja *j, jj_ctx *c, const char *source, size_t n);

/* compile.c */
bool jj_advance(jj_compiler *k);
bool jj_look(jj_compiler *k); /* fill k->ahead */
bool jj_expect(jj_compiler *k, jj_tok type, const char *what);
bool jj_at_name(const jj_compiler *k, const char *name);
bool jj_unexpected(jj_compiler *k, const char *wanted);
bool jj_emit(jj_compiler *k, jj_code op, int64_t a, int64_t b);
void jj_patch(jj_compiler *k, size_t at); /* the jump at `at` comes here */
bool jj_down(jj_compiler *k);             /* one level deeper, and back */
void jj_up(jj_compiler *k);
bool jj_constant(jj_compiler *k, jj_value v, int64_t *out);
bool jj_token_text(jj_compiler *k, const jj_token *t, jj_value *out);
bool jj_name_id(jj_compiler *k, jj_value name, uint32_t *out);
bool jj_slot(jj_compiler *k, int32_t scope, uint32_t name, uint32_t *out); /* of a name in a scope, made if need be */
bool jj_ref_id(jj_compiler *k, uint32_t name, int64_t *out);
bool jj_attr_id(jj_compiler *k, jj_value name, int64_t *out);
bool jj_def_id(jj_compiler *k, const jj_def *d, int64_t *out);
bool jj_new_scope(jj_compiler *k, int32_t *out); /* and enter it */
void jj_leave_scope(jj_compiler *k);
bool jj_resolve(jj_compiler *k); /* at the end: references to places */
/* Add one more element of `bytes` to an array of the program. */
bool jj_grow(jj_ctx *c, void *array, size_t n, size_t *room, size_t bytes);

/* expression.c */
bool jj_expression(jj_compiler *k, bool with_if);
bool jj_tuple(jj_compiler *k, bool with_if, const char *end_name, bool parentheses);
bool jj_primary(jj_compiler *k);
/* Swap the code [from, mid) with [mid, end): what was compiled first runs last.  Jumps are relative and stay inside. */
bool jj_swap_code(jj_compiler *k, size_t from, size_t mid);
bool jj_load_name(jj_compiler *k, jj_value name);
bool jj_push(jj_compiler *k, jj_value v);

/* postfix.c */
bool jj_postfix(jj_compiler *k);
bool jj_filters_and_tests(jj_compiler *k);
bool jj_filters(jj_compiler *k, bool inline_first); /* | a | b on what is on the stack */
bool jj_add_call(jj_compiler *k, jj_call call, int64_t *id);

/* statement.c, for.c, macro.c */
bool jj_body(jj_compiler *k, const char *const *ends, size_t *which); /* up to one of the tags, its name read */
bool jj_block(jj_compiler *k, const char *const *ends, size_t *which); /* the same, after the end of the opening tag */
bool jj_scoped(jj_compiler *k, const char *end);                       /* such a block in a scope of its own */
bool jj_targets(jj_compiler *k, bool attributes, const char *end_name, size_t *first);
bool jj_store(jj_compiler *k, size_t first);
bool jj_for(jj_compiler *k);
bool jj_break(jj_compiler *k, bool again);
bool jj_macro_statement(jj_compiler *k);
bool jj_call_statement(jj_compiler *k);

#endif
