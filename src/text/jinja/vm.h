/* vm.h -- a render: the interpreter that runs a template's code.  Nesting in a template uses no C stack, except for the
 * `if` of a for, whose runs are counted as calls. */
#ifndef RG_TEXT_JINJA_VM_H
#define RG_TEXT_JINJA_VM_H

#include "text/jinja/program.h"

enum { JJ_STACK = 1 << 15 };

typedef struct jj_frame {
    struct jj_frame *parent; /* or the next one that may be used again */
    uint32_t scope;
    jj_value slot[];
} jj_frame;

typedef struct jj_capture {
    jj_buf *b;
    struct jj_capture *outer;
} jj_capture;

struct jj_macro {
    const jj_macro_def *def;
    jj_frame *scope;
};

typedef struct jj_activation { /* what a return goes back to */
    const jj_macro_def *def;
    size_t back, sp;
    jj_frame *frame;
    jj_loop *loop;
    jj_capture *capture;
    int64_t depth0; /* of a recursive loop */
} jj_activation;

typedef struct jj_vm {
    jj_ctx c; /* first: a jj_ctx of a render is its jj_vm */
    const rg_jinja *j;
    rg_text *out;
    size_t pc;
    jj_value *stack;
    size_t sp;
    jj_frame *frame, **spare_frame;
    jj_loop *loop, *spare_loop;
    jj_capture *capture; /* NULL: output goes to out */
    jj_buf *scratch;
    jj_activation act[RG_JINJA_DEPTH];
    int n_act;
    bool done, answer;
    jj_value *variable; /* by number of its name; missing: not looked up yet */
    jj_value foreign, trusted;
} jj_vm;

typedef bool jj_run(jj_vm *v, jj_insn n);
extern jj_run *const jj_runs[]; /* by jj_code */

bool jj_vm_run(jj_vm *v); /* until it is done */
bool jj_vm_push(jj_vm *v, jj_value x);
static inline jj_value jj_vm_pop(jj_vm *v)
{
    return v->stack[--v->sp];
}

/* call.c */
jj_run jj_run_call, jj_run_filter, jj_run_test, jj_run_recurse, jj_run_return, jj_run_picky, jj_run_yield;
/* loop.c */
jj_run jj_run_scope, jj_run_unscope, jj_run_for, jj_run_for_next, jj_run_for_turn, jj_run_for_end, jj_run_unpack,
    jj_run_capture, jj_run_captured, jj_run_discard, jj_run_emit, jj_run_data;
jj_frame *jj_frame_new(jj_vm *v, uint32_t scope, jj_frame *parent);
bool jj_capture_begin(jj_vm *v);
bool jj_capture_end(jj_vm *v, jj_value *out);

#endif
