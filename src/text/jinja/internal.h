/* internal.h -- what the files of the template interpreter share.
 *
 * A template is compiled to code for a small stack-based interpreter, so neither the depth of an expression nor that of
 * a call uses C stack.  All memory of a render comes from one arena, which the render's end frees whole; every byte
 * taken from it, or looked at by a filter, is charged against the budget, and a failed charge ends the render.
 * Functions that return bool or a pointer have set the error when they return false or NULL. */
#ifndef RG_TEXT_JINJA_INTERNAL_H
#define RG_TEXT_JINJA_INTERNAL_H

#include "text/jinja.h"

/* ---- the arena, budgets, errors (memory.c) ---- */

typedef struct jj_chunk jj_chunk;

typedef struct jj_ctx {
    jj_chunk *chunks;
    size_t bytes;   /* made or looked at, against RG_JINJA_BYTES */
    uint32_t steps; /* in parts of one, against RG_JINJA_STEPS */
    uint32_t line;  /* of the template, for errors */
    int depth;      /* of C functions that walk nested values */
    bool failed;
    rg_error *err;
    uint64_t seed; /* of hashes */
    int64_t now_s;
} jj_ctx;

enum { JJ_WALK = 12 }; /* charge for a byte that is walked through */
enum { JJ_STEP = 2 }; /* instructions that make a step; built-in functions count whole steps */

void *jj_alloc(jj_ctx *c, size_t n); /* aligned to 8, not zeroed */
void *jj_alloc_tail(jj_ctx *c, size_t head, size_t n, size_t each); /* head + n * each bytes, checked */
void *jj_array(jj_ctx *c, size_t n, size_t bytes);                  /* n * bytes, checked, zeroed */
bool jj_charge(jj_ctx *c, size_t n);
bool jj_charge_times(jj_ctx *c, size_t n, size_t by); /* n * by, checked */
bool jj_step(jj_ctx *c, size_t n);
void jj_free_all(jj_ctx *c);
bool jj_fail(jj_ctx *c, const char *fmt, ...) RG_PRINTF(2, 3);
bool jj_over(jj_ctx *c, const char *what); /* a budget was met */
bool jj_over_bytes(jj_ctx *c);             /* the budget of bytes was met */
bool jj_no_memory(jj_ctx *c, size_t n);
/* To be called around a function that recurses into a value. */
bool jj_enter(jj_ctx *c);
void jj_leave(jj_ctx *c);

/* ---- strings (string.c) ---- */

/* Bytes in runs of one provenance.  What is in [0, used) never changes, so that a string is a view of a buffer, and one
 * that reaches its end may be extended in place. */
typedef struct jj_buf {
    char *data;
    size_t used, room;
    rg_run *run, one;
    uint32_t n_runs, runs_room;
    struct jj_marks *marks; /* NULL: none yet */
    bool ascii;
    bool shared; /* by renders, as the template's own are: never marked */
} jj_buf;

enum { JJ_MARK = 128 };

typedef struct jj_marks { /* where every JJ_MARK-th code point begins, of the first `bytes` */
    size_t n, bytes, at[];
} jj_marks;

typedef struct jj_str {
    jj_buf *b;
    size_t off, n;
    size_t points; /* code points; SIZE_MAX: not counted */
} jj_str;

static inline const char *jj_data(const jj_str *s)
{
    return s->b->data + s->off;
}

jj_buf *jj_buf_new(jj_ctx *c, size_t n, size_t more); /* with room for n + more bytes */
bool jj_put_bytes(jj_ctx *c, jj_buf *b, const char *p, size_t n, bool trusted);
bool jj_put_text(jj_ctx *c, jj_buf *b, const char *s, bool trusted);
bool jj_put_sub(jj_ctx *c, jj_buf *b, const jj_str *s, size_t off, size_t n);
bool jj_put_str(jj_ctx *c, jj_buf *b, const jj_str *s);
bool jj_put_code(jj_ctx *c, jj_buf *b, uint32_t code, bool trusted);
bool jj_put_times(jj_ctx *c, jj_buf *b, const jj_str *s, size_t n);
/* s between quotes, its characters as spell says: so many bytes of out, or 0, as they are. */
typedef int jj_spell(uint32_t code, int how, char out[16]);
bool jj_put_spelled(jj_ctx *c, jj_buf *b, const jj_str *s, char quote, jj_spell *spell, int how);
bool jj_put_fill(jj_ctx *c, jj_buf *b, const jj_str *fill, size_t n); /* fill's one character, n times; NULL: blanks */

jj_str *jj_str_from(jj_ctx *c, jj_buf *b);
jj_str *jj_str_borrow(jj_ctx *c, const char *p, size_t n, bool trusted); /* p lives as long as the render */
jj_str *jj_str_copy(jj_ctx *c, const char *p, size_t n, bool trusted);
jj_str *jj_str_sub(jj_ctx *c, const jj_str *s, size_t off, size_t n); /* bytes */
jj_str *jj_str_concat(jj_ctx *c, const jj_str *a, const jj_str *b);
bool jj_str_is(const jj_str *s, const char *text);
bool jj_str_equal(const jj_str *a, const jj_str *b);
bool jj_str_uniform(const jj_str *s);            /* all of one provenance */
bool jj_str_trusted(const jj_str *s);            /* all of it; the empty string as its buffer */
bool jj_str_trust_at(const jj_str *s, size_t at);
size_t jj_str_points(const jj_str *s);
size_t jj_str_char(const jj_str *s, size_t at, uint32_t *code); /* the one at byte `at`; its bytes */
bool jj_str_ascii(const jj_str *s);
/* Where code point i begins, in bytes; i <= points. */
bool jj_str_offset(jj_ctx *c, const jj_str *s, size_t i, size_t *off);
bool jj_charge_find(jj_ctx *c, size_t n, size_t n_what); /* for looking through n bytes */
/* The first `what` at or after byte `from`; SIZE_MAX: none. */
size_t jj_str_find(const jj_str *s, size_t from, const char *what, size_t n);
size_t jj_str_rfind(const jj_str *s, size_t before, const char *what, size_t n); /* the last that ends at most there */

/* Walk code points with their provenance. */
typedef struct jj_walk {
    const jj_str *s;
    size_t at, run;
    size_t same; /* up to where the run goes on */
    uint32_t code;
    int n; /* its bytes */
    bool trusted;
} jj_walk;

jj_walk jj_walk_start(const jj_str *s);
bool jj_walk_on(jj_walk *w);
static inline bool jj_walk_next(jj_walk *w)
{
    w->at += (size_t)w->n;
    if (w->at >= w->s->n || w->at >= w->same || (signed char)jj_data(w->s)[w->at] < 0)
        return jj_walk_on(w);
    w->code = (uint32_t)jj_data(w->s)[w->at];
    w->n = 1;
    return true;
}
bool jj_charge_walk(jj_ctx *c, size_t n); /* for walking through n bytes */
/* Stretches of one provenance; false: no more.  *at starts at 0. */
bool jj_next_run(const jj_str *s, size_t *at, size_t *n, bool *trusted);

/* ---- values (value.c, dict.c) ---- */

typedef enum jj_type {
    JJ_MISSING, /* no value: an unset variable, an argument not given */
    JJ_UNDEFINED, JJ_NONE, JJ_BOOL, JJ_INT, JJ_FLOAT, JJ_STR, JJ_LIST, JJ_TUPLE, JJ_DICT, JJ_VIEW, JJ_RANGE, JJ_SLICE,
    JJ_ITER, JJ_NAMESPACE, JJ_MACRO, JJ_FUNCTION, JJ_METHOD, JJ_LOOP, JJ_CYCLER, JJ_JOINER,
} jj_type;

typedef struct jj_value jj_value;
typedef struct jj_def jj_def;
typedef struct jj_loop jj_loop;
typedef struct jj_iter jj_iter;
typedef struct jj_macro jj_macro;

typedef struct jj_list {
    size_t n, room;
    jj_value *item;
} jj_list;

typedef struct jj_dict {
    size_t n, room;
    struct jj_entry *entry; /* in the order they were put */
    uint32_t *slot;         /* hash -> entry + 1; NULL while small */
    size_t n_slots;
} jj_dict;

typedef struct jj_range {
    int64_t start, stop, step;
    size_t n;
} jj_range;

typedef enum jj_why { JJ_WHY_NAME, JJ_WHY_ATTR, JJ_WHY_HINT, JJ_WHY_UNSAFE } jj_why;

typedef struct jj_undef {
    jj_why why;
    const char *of; /* the kind of thing that lacks it, or the hint */
    jj_value *name;
} jj_undef;

typedef struct jj_bound jj_bound;
typedef struct jj_cycler jj_cycler;

enum { JJ_MARKUP = 1 /* sub of a string: escaped HTML */, JJ_GROUP = 1 /* of a tuple: one of groupby */ };
enum { JJ_KEYS, JJ_VALUES, JJ_ITEMS }; /* sub of a view */

struct jj_value {
    uint8_t type;
    uint8_t sub;
    bool foreign; /* of what is no string: its text is */
    union {
        bool b;
        int64_t i;
        double f;
        jj_str *s;
        jj_list *list; /* LIST, TUPLE, SLICE (start, stop, step) */
        jj_dict *dict; /* DICT, VIEW, NAMESPACE */
        jj_range *range;
        const jj_undef *undef;
        jj_iter *iter;
        jj_macro *macro;
        const jj_def *def;
        jj_bound *bound;
        jj_loop *loop;
        jj_cycler *cycler;
    };
};

typedef struct jj_entry {
    jj_value key, value;
    uint64_t hash;
} jj_entry;

struct jj_bound {
    jj_value self;
    const jj_def *def;
};

struct jj_cycler { /* of a joiner: its separator; at: was it used */
    jj_list *items;
    size_t at;
};

#define JJ_NOTHING ((jj_value){ .type = JJ_MISSING })
#define JJ_NULL ((jj_value){ .type = JJ_NONE })

static inline jj_value jj_bool(bool b)
{
    return (jj_value){ .type = JJ_BOOL, .b = b };
}

static inline jj_value jj_int(int64_t i)
{
    return (jj_value){ .type = JJ_INT, .i = i };
}

static inline jj_value jj_float(double f)
{
    return (jj_value){ .type = JJ_FLOAT, .f = f };
}

/* Put a string that was made into *out; false if it is NULL. */
static inline bool jj_give(jj_value *out, jj_str *s)
{
    *out = (jj_value){ .type = JJ_STR, .s = s };
    return s;
}

bool jj_text(jj_ctx *c, jj_value *out, const char *s); /* a literal: borrowed, trusted */
bool jj_new_list(jj_ctx *c, jj_value *out, jj_type type, size_t room, bool foreign);
bool jj_list_add(jj_ctx *c, jj_list *l, jj_value v);
void jj_list_copy(jj_list *to, const jj_list *from); /* to its end, where there is room */
bool jj_new_tuple2(jj_ctx *c, jj_value *out, jj_value a, jj_value b, bool foreign);
bool jj_new_dict(jj_ctx *c, jj_value *out, bool foreign);
bool jj_dict_put(jj_ctx *c, jj_dict *d, jj_value key, jj_value value); /* replaces; fails on what cannot be a key */
/* 1: found; 0: not there; -1: cannot be a key (no error set). */
int jj_dict_get(jj_ctx *c, const jj_dict *d, jj_value key, jj_value *out);
bool jj_hash(jj_ctx *c, jj_value v, uint64_t *out); /* false: unhashable, no error set */

bool jj_undefined(jj_ctx *c, jj_value *out, jj_why why, const char *of, jj_value name);
bool jj_fail_undefined(jj_ctx *c, jj_value v);
const char *jj_type_name(jj_value v); /* Python's */
bool jj_truth(jj_value v);
bool jj_is_number(jj_value v);            /* bool, int, float */
double jj_as_double(jj_value v);          /* of a number */
bool jj_as_index(jj_value v, int64_t *i); /* int or bool */
bool jj_equal(jj_ctx *c, jj_value a, jj_value b, bool *out);
bool jj_same(jj_value a, jj_value b); /* `is` */
typedef enum jj_cmp { JJ_LT, JJ_LE, JJ_GT, JJ_GE, JJ_EQ, JJ_NE, JJ_IN, JJ_NOT_IN } jj_cmp;
bool jj_compare(jj_ctx *c, jj_cmp op, jj_value a, jj_value b, bool *out);
bool jj_contains(jj_ctx *c, jj_value item, jj_value in, bool *out);
bool jj_length(jj_ctx *c, jj_value v, jj_value *out);

/* ---- text of values (print.c, tojson.c) ---- */
bool jj_print(jj_ctx *c, jj_buf *b, jj_value v); /* str(v) */
bool jj_repr(jj_ctx *c, jj_buf *b, jj_value v);
bool jj_to_str(jj_ctx *c, jj_value v, jj_str **out);
int jj_float_text(double f, char out[40]);
bool jj_tojson(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out);
/* JSON as a value; root: the variables, in which messages[i].role is trusted. */
bool jj_from_json(jj_ctx *c, const json_t *v, bool trusted, jj_value *out);
bool jj_from_foreign(jj_ctx *c, const json_t *root, jj_value *out);

/* ---- characters (unicode.c): as Python's str has them ---- */
typedef enum jj_class { JJ_ALPHA, JJ_ALNUM, JJ_DIGIT, JJ_DECIMAL, JJ_NUMERIC, JJ_SPACE, JJ_PRINTABLE } jj_class;
bool jj_is(jj_class k, uint32_t code);
bool jj_is_cased(uint32_t code, bool *upper, bool *lower, bool *title);
bool jj_is_break(uint32_t code); /* splitlines() cuts there */
typedef enum jj_case { JJ_UPPER, JJ_LOWER, JJ_TITLE, JJ_CAPITALIZE, JJ_SWAP, JJ_FOLD } jj_case;
bool jj_recase(jj_ctx *c, const jj_str *s, jj_case how, jj_str **out);
bool jj_put_recased(jj_ctx *c, jj_buf *b, const jj_str *s, size_t off, size_t n, jj_case how);
/* Bytes of s without characters of `chars` (NULL: white space) at the left, the right. */
bool jj_strip(jj_ctx *c, const jj_str *s, const jj_str *chars, bool left, bool right, jj_str **out);

/* ---- operators and attributes (ops.c, attr.c) ---- */
typedef enum jj_op { JJ_ADD, JJ_SUB, JJ_MUL, JJ_DIV, JJ_FLOORDIV, JJ_MOD, JJ_POW } jj_op;
bool jj_binary(jj_ctx *c, jj_op op, jj_value a, jj_value b, jj_value *out);
bool jj_negate(jj_ctx *c, jj_value a, bool minus, jj_value *out);
bool jj_join_all(jj_ctx *c, const jj_value *v, size_t n, jj_value *out); /* a ~ b ~ c */

enum { JJ_METHODS_STR, JJ_METHODS_LIST, JJ_METHODS_TUPLE, JJ_METHODS_DICT, JJ_METHODS_CYCLER, JJ_METHODS_LOOP,
       JJ_N_METHODS };

/* An attribute's name, and what it means for the types that have methods. */
typedef struct jj_attr {
    jj_value name;
    bool hidden; /* starts with an underscore */
    const jj_def *method[JJ_N_METHODS];
} jj_attr;

void jj_attr_of(jj_value name, jj_attr *out);
bool jj_getattr(jj_ctx *c, jj_value v, const jj_attr *a, jj_value *out);
/* An attribute that is no item; *out is missing if there is none. */
bool jj_own_attr(jj_ctx *c, jj_value v, const jj_attr *a, jj_value *out);
bool jj_getitem(jj_ctx *c, jj_value v, jj_value key, jj_value *out);
/* item.a.b.0, as filters' attribute= names it; attribute none: the item itself. */
bool jj_getpath(jj_ctx *c, jj_value item, jj_value path, jj_value *out);

/* ---- calling what is built in (native.c) ---- */
typedef struct jj_args {
    const jj_value *pos;
    size_t n;
    const jj_value *kw_name, *kw;
    size_t n_kw;
} jj_args;

typedef bool jj_native(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out);
typedef bool jj_variadic(jj_ctx *c, jj_value self, const jj_args *a, jj_value *out);

/* fn gets the named parameters, missing ones as JJ_MISSING; any gets the arguments as they are; neither: the sandbox
 * forbids it. */
struct jj_def {
    const char *name;
    jj_native *fn;
    const char *params; /* "a b c" */
    int n_required;
    jj_variadic *any;
    bool of_text; /* what it is called on is made a text first */
};

enum { JJ_MAX_PARAMS = 8 };
bool jj_call_def(jj_ctx *c, const jj_def *d, jj_value self, const jj_args *a, jj_value *out);
const jj_def *jj_find_def(const jj_def *table, const char *name, size_t n);
const jj_def *jj_find_filter(const jj_str *name);
const jj_def *jj_find_test(const jj_str *name);
bool jj_call_test(jj_ctx *c, const jj_def *d, jj_value self, const jj_args *a, bool *out);
extern const jj_def jj_tests[], jj_globals[], jj_str_methods[], jj_list_methods[], jj_tuple_methods[],
    jj_dict_methods[], jj_cycler_methods[], jj_loop_methods[];

/* What builtins.def lists, in str_methods.c, more_methods.c and *_filters.c. */
#define METHOD(name, params, n_required) jj_native jj_m_##name;
#define METHOD_ANY(name) jj_variadic jj_m_##name;
#define FILTER(name, fn, params, n_required) jj_native fn;
#define FILTER_TEXT FILTER
#define FILTER_ANY(name) jj_variadic jj_f_##name;
#include "text/jinja/builtins.def"
#undef METHOD
#undef METHOD_ANY
#undef FILTER
#undef FILTER_TEXT
#undef FILTER_ANY

/* v if it is a text, safe or not; else what str() makes of it. */
bool jj_soft(jj_ctx *c, jj_value v, jj_value *out);

/* Arguments by type; missing ones leave *out alone. */
bool jj_arg_str(jj_ctx *c, jj_value v, const char *what, jj_str **out);
bool jj_arg_int(jj_ctx *c, jj_value v, const char *what, int64_t *out);

bool jj_format_percent(jj_ctx *c, const jj_str *s, jj_value args, jj_value *out); /* s % args */
bool jj_format_braces(jj_ctx *c, const jj_str *s, const jj_args *a, jj_value *out); /* s.format(...) */
bool jj_strftime(jj_ctx *c, const jj_str *format, jj_value *out);
bool jj_replace(jj_ctx *c, const jj_str *s, const jj_str *from, const jj_str *to, int64_t count, jj_value *out);
bool jj_pad(jj_ctx *c, const jj_str *s, int64_t width, const jj_str *fill, char align, jj_value *out); /* < > ^ */
/* The line from *at: where it ends, and where the next one starts.  False: no more. */
bool jj_next_line(const jj_str *s, size_t *at, size_t *end, size_t *next);
bool jj_escape_html(jj_ctx *c, const jj_str *s, jj_value *out);

/* ---- going through things (iter.c) ---- */
typedef bool jj_pick(jj_ctx *c, jj_iter *it, jj_value item, bool *keep, jj_value *out);

struct jj_iter {
    jj_value of;    /* the iterable, by index `at` */
    jj_iter *from;  /* or another one: `pick` keeps, drops or changes each of its items */
    jj_pick *pick;
    size_t at;
    bool backwards;
    int chain;      /* how many stand behind it */
    const jj_def *def; /* for pick */
    jj_args args;
    jj_value path, otherwise;
    bool negate;
    void *run; /* for the interpreter's own iterators */
    uint32_t entry, scope;
};

/* NULL and an error if v is not iterable. */
jj_iter *jj_iterate(jj_ctx *c, jj_value v);
bool jj_next(jj_ctx *c, jj_iter *it, jj_value *out); /* JJ_MISSING: no more */
bool jj_iterable(jj_value v);
bool jj_to_list(jj_ctx *c, jj_value v, jj_value *out);
/* Sort item[0, n) and key[0, n) together by key, stably. */
bool jj_sort(jj_ctx *c, jj_list *item, jj_list *key, bool reverse, size_t n);
jj_iter *jj_iter_over(jj_ctx *c, jj_iter *from, jj_pick *pick);

/* One run through a for. */
struct jj_loop {
    jj_iter *iter;
    jj_value iterable, current, before, after; /* after: looked at already */
    int64_t index0, length;                    /* length -1: not known */
    jj_list *changed;
    int64_t depth0;
    bool completed; /* some turn reached its end */
    const struct jj_macro_def *again; /* of a recursive one */
    struct jj_frame *scope;
    jj_loop *outer; /* or the next one that may be used again */
};

bool jj_loop_next(jj_ctx *c, jj_loop *l, jj_value *out);
bool jj_loop_attr(jj_ctx *c, jj_loop *l, const jj_str *name, jj_value *out, bool *found);

#endif
