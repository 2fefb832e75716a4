/* torch_pickle.c -- see torch.h.  The machine that a pickle is for: a stack, a memo, and opcodes.  It has what
 * torch.save writes for a dict of tensors, and nothing that could call anything. */
#include <string.h>

#include "base/mem.h"
#include "ckpt/torch.h"

enum { MOST_VALUES = 1 << 20 };

typedef enum kind { NONE, NUMBER, TEXT, TUPLE, LIST, DICT, NAME, STORAGE, TENSOR, MARK } kind;

typedef struct value {
    kind kind;
    int64_t n;      /* NUMBER, DICT, TENSOR: which; NAME: of names; TUPLE, STORAGE: first of the items */
    int64_t n_items;
    rg_string text; /* TEXT */
} value;

typedef struct values {
    value *v;
    size_t n, room;
} values;

/* What is set in a dict. */
typedef struct setting {
    int64_t dict, tensor;
    rg_string key;
} setting;

typedef struct machine {
    const uint8_t *p;
    size_t n, at;
    values stack, memo, items; /* items: of tuples */
    int64_t n_dicts;
    rg_pickled *tensors;
    size_t n_tensors, tensors_room;
    setting *settings;
    size_t n_settings, settings_room;
    rg_error *err;
} machine;

static const struct {
    const char *name;
    rg_type type; /* of a storage's values */
} names[] = {
    { "torch._utils _rebuild_tensor_v2", RG_F32 }, { "torch._utils _rebuild_parameter", RG_F32 },
    { "collections OrderedDict", RG_F32 },
    { "torch FloatStorage", RG_F32 },  { "torch HalfStorage", RG_F16 }, { "torch BFloat16Storage", RG_BF16 },
    { "torch DoubleStorage", RG_F64 }, { "torch LongStorage", RG_I64 }, { "torch IntStorage", RG_I32 },
    { "torch ShortStorage", RG_I16 },  { "torch CharStorage", RG_I8 },  { "torch ByteStorage", RG_U8 },
    { "torch BoolStorage", RG_U8 },
};

enum { REBUILD_TENSOR, REBUILD_PARAMETER, ORDERED_DICT, FIRST_STORAGE };

/* ---- values ------------------------------------------------------------------------------------------------------ */

static bool damaged(machine *m, const char *what)
{
    return rg_fail(m->err, RG_E_INPUT, "the pickle is damaged at byte %zu: %s", m->at, what);
}

/* Room for one more of `size` bytes in *p. */
static bool make_room(machine *m, void **p, size_t n, size_t *room, size_t size)
{
    size_t more = *room ? 2 * *room : 64;
    void *grown;

    if (n < *room)
        return true;
    if (n >= MOST_VALUES)
        return rg_fail(m->err, RG_E_LIMIT, "the pickle has more than %d values", MOST_VALUES);
    grown = rg_resize_array(*p, more, size);
    if (!grown)
        return rg_fail_memory(m->err, more * size);
    *p = grown;
    *room = more;
    return true;
}

static bool add(machine *m, values *to, value v)
{
    void *p = to->v;

    if (!make_room(m, &p, to->n, &to->room, sizeof v))
        return false;
    to->v = p;
    to->v[to->n++] = v;
    return true;
}

static bool push(machine *m, value v)
{
    return add(m, &m->stack, v);
}

static bool pop(machine *m, value *v)
{
    if (!m->stack.n || m->stack.v[m->stack.n - 1].kind == MARK)
        return damaged(m, "the stack is empty");
    *v = m->stack.v[--m->stack.n];
    return true;
}

static bool pop_kind(machine *m, kind wanted, value *v)
{
    return pop(m, v) && (v->kind == wanted || damaged(m, "a value of another kind stands where one is needed"));
}

/* The last n values of the stack become a tuple. */
static bool make_tuple(machine *m, size_t n)
{
    const value t = { .kind = TUPLE, .n = (int64_t)m->items.n, .n_items = (int64_t)n };

    if (m->stack.n < n)
        return damaged(m, "the stack is empty");
    for (size_t i = m->stack.n - n; i < m->stack.n; i++)
        if (m->stack.v[i].kind == MARK)
            return damaged(m, "a mark in a tuple");
        else if (!add(m, &m->items, m->stack.v[i]))
            return false;
    m->stack.n -= n;
    return push(m, t);
}

/* How many values stand above the last mark. */
static bool find_mark(machine *m, size_t *n)
{
    for (*n = 0; *n < m->stack.n; ++*n)
        if (m->stack.v[m->stack.n - 1 - *n].kind == MARK)
            return true;
    return damaged(m, "there is no mark");
}

static void drop_mark(machine *m, size_t above)
{
    memmove(m->stack.v + m->stack.n - above - 1, m->stack.v + m->stack.n - above, above * sizeof *m->stack.v);
    m->stack.n--;
}

static const value *item(const machine *m, const value *tuple, int64_t i)
{
    return &m->items.v[tuple->n + i];
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

static bool take(machine *m, size_t n, const uint8_t **p)
{
    if (n > m->n - m->at)
        return damaged(m, "it ends too early");
    *p = m->p + m->at;
    m->at += n;
    return true;
}

static bool take_number(machine *m, size_t bytes, uint64_t *n)
{
    const uint8_t *p = NULL;

    if (!take(m, bytes, &p))
        return false;
    for (*n = 0; bytes--;)
        *n = *n << 8 | p[bytes];
    return true;
}

static bool push_number(machine *m, size_t bytes, bool is_signed)
{
    uint64_t n = 0;

    if (!take_number(m, bytes, &n))
        return false;
    return push(m, (value){ .kind = NUMBER, .n = is_signed && bytes == 4 ? (int32_t)(uint32_t)n : (int64_t)n });
}

/* LONG1: up to 8 bytes, two's complement. */
static bool push_long(machine *m)
{
    uint64_t bytes = 0, n = 0;

    if (!take_number(m, 1, &bytes))
        return false;
    if (bytes > 8)
        return damaged(m, "a number of more than 64 bits");
    if (bytes && !take_number(m, (size_t)bytes, &n))
        return false;
    if (bytes && bytes < 8 && n >> (8 * bytes - 1))
        n |= UINT64_MAX << (8 * bytes);
    return push(m, (value){ .kind = NUMBER, .n = (int64_t)n });
}

static bool push_text(machine *m, size_t length_bytes)
{
    const uint8_t *p = NULL;
    uint64_t n = 0;

    return take_number(m, length_bytes, &n) && (n <= m->n || damaged(m, "it ends too early")) &&
           take(m, (size_t)n, &p) && push(m, (value){ .kind = TEXT, .text = { (const char *)p, (size_t)n } });
}

/* Two lines, or two texts: a module and a name in it. */
static bool push_name(machine *m, rg_string module, rg_string name)
{
    char text[80];

    for (size_t i = 0; i < RG_LEN(names); i++) {
        const char *space = strchr(names[i].name, ' ');
        const size_t n = (size_t)(space - names[i].name);

        if (module.n == n && !memcmp(module.data, names[i].name, n) && name.n == strlen(space + 1) &&
            !memcmp(name.data, space + 1, name.n))
            return push(m, (value){ .kind = NAME, .n = (int64_t)i });
    }
    return rg_fail(m->err, RG_E_UNSUPPORTED, "the pickle asks for '%s', which is no tensor's",
                   rg_name_text(name.data, name.n, text));
}

static bool take_line(machine *m, rg_string *line)
{
    const uint8_t *from = m->p + m->at, *end = memchr(from, '\n', m->n - m->at);

    if (!end)
        return damaged(m, "a line does not end");
    *line = (rg_string){ (const char *)from, (size_t)(end - from) };
    m->at += line->n + 1;
    return true;
}

/* ---- objects ----------------------------------------------------------------------------------------------------- */

/* ('storage', its type, its key, where it was, how many values). */
static bool load_storage(machine *m)
{
    value v;

    if (!pop_kind(m, TUPLE, &v))
        return false;
    if (v.n_items != 5 || item(m, &v, 1)->kind != NAME || item(m, &v, 1)->n < FIRST_STORAGE ||
        item(m, &v, 2)->kind != TEXT)
        return damaged(m, "a storage is not as torch describes it");
    v.kind = STORAGE;
    return push(m, v);
}

/* Row after row, without holes. */
static bool is_contiguous(const machine *m, const rg_pickled *t, const value *strides)
{
    int64_t step = 1;

    for (int i = t->n_dims; i-- > 0;) {
        const value *s = item(m, strides, i);

        if (s->kind != NUMBER || (t->shape[i] != 1 && s->n != step) || !rg_mul(step, t->shape[i], &step))
            return false;
    }
    return true;
}

/* (storage, its first value, shape, strides, ...). */
static bool rebuild_tensor(machine *m, const value *args)
{
    const value *storage = item(m, args, 0), *first = item(m, args, 1), *shape = item(m, args, 2);
    const value *strides = item(m, args, 3);
    rg_pickled t = { 0 };
    void *p = m->tensors;

    if (args->n_items < 4 || storage->kind != STORAGE || first->kind != NUMBER || first->n < 0 ||
        shape->kind != TUPLE || strides->kind != TUPLE || shape->n_items != strides->n_items)
        return damaged(m, "a tensor is not as torch describes it");
    if (shape->n_items > RG_MAX_DIMS)
        return rg_fail(m->err, RG_E_UNSUPPORTED, "a tensor of %lld dimensions; at most %d are read",
                       (long long)shape->n_items, RG_MAX_DIMS);
    t.type = names[item(m, storage, 1)->n].type;
    t.storage = item(m, storage, 2)->text;
    t.first = (uint64_t)first->n;
    t.n_dims = (int)shape->n_items;
    for (int i = 0; i < RG_MAX_DIMS; i++)
        t.shape[i] = 1;
    for (int i = 0; i < t.n_dims; i++) {
        if (item(m, shape, i)->kind != NUMBER || item(m, shape, i)->n < 0)
            return damaged(m, "the shape of a tensor is not of numbers");
        t.shape[i] = item(m, shape, i)->n;
    }
    if (!is_contiguous(m, &t, strides))
        return rg_fail(m->err, RG_E_UNSUPPORTED, "a tensor whose values do not lie one after the other is not read");
    if (!make_room(m, &p, m->n_tensors, &m->tensors_room, sizeof t))
        return false;
    m->tensors = p;
    m->tensors[m->n_tensors] = t;
    return push(m, (value){ .kind = TENSOR, .n = (int64_t)m->n_tensors++ });
}

static bool reduce(machine *m)
{
    value args, name;

    if (!pop_kind(m, TUPLE, &args) || !pop_kind(m, NAME, &name))
        return false;
    if (name.n == ORDERED_DICT && !args.n_items)
        return push(m, (value){ .kind = DICT, .n = m->n_dicts++ });
    if (name.n == REBUILD_TENSOR && args.n_items >= 4)
        return rebuild_tensor(m, &args);
    if (name.n == REBUILD_PARAMETER && args.n_items && item(m, &args, 0)->kind == TENSOR)
        return push(m, *item(m, &args, 0));
    return damaged(m, "a call that makes no tensor and no dict");
}

/* The last 2 n values are set in the dict before them. */
static bool set_items(machine *m, size_t n)
{
    const value *dict, *pairs;
    void *p = m->settings;

    if (m->stack.n < 2 * n + 1)
        return damaged(m, "the stack is empty");
    pairs = m->stack.v + m->stack.n - 2 * n;
    dict = pairs - 1;
    if (dict->kind != DICT)
        return damaged(m, "there is no dict to set anything in");
    for (size_t i = 0; i < n; i++) {
        const value *key = &pairs[2 * i], *v = &pairs[2 * i + 1];

        if (key->kind == MARK || v->kind == MARK)
            return damaged(m, "a mark in a dict");
        if (key->kind != TEXT || v->kind != TENSOR)
            continue;
        if (!make_room(m, &p, m->n_settings, &m->settings_room, sizeof *m->settings))
            return false;
        m->settings = p;
        m->settings[m->n_settings++] = (setting){ dict->n, v->n, key->text };
    }
    m->stack.n -= 2 * n;
    return true;
}

static bool set_marked(machine *m)
{
    size_t n;

    if (!find_mark(m, &n))
        return false;
    if (n % 2)
        return damaged(m, "a key without a value");
    drop_mark(m, n);
    return set_items(m, n / 2);
}

static bool drop_marked(machine *m)
{
    size_t n;

    if (!find_mark(m, &n))
        return false;
    m->stack.n -= n + 1;
    return m->stack.n || damaged(m, "the stack is empty");
}

/* ---- the memo ---------------------------------------------------------------------------------------------------- */

static bool put_memo(machine *m, uint64_t at)
{
    if (!m->stack.n || m->stack.v[m->stack.n - 1].kind == MARK)
        return damaged(m, "there is nothing to remember");
    if (at >= MOST_VALUES)
        return damaged(m, "a place in the memo that is too far");
    while (m->memo.n <= at)
        if (!add(m, &m->memo, (value){ .kind = MARK }))
            return false;
    m->memo.v[at] = m->stack.v[m->stack.n - 1];
    return true;
}

static bool get_memo(machine *m, size_t bytes)
{
    uint64_t at = 0;

    if (!take_number(m, bytes, &at))
        return false;
    if (at >= m->memo.n || m->memo.v[at].kind == MARK)
        return damaged(m, "a place in the memo where nothing is");
    return push(m, m->memo.v[at]);
}

static bool put_memo_at(machine *m, size_t bytes)
{
    uint64_t at = 0;

    return take_number(m, bytes, &at) && put_memo(m, at);
}

/* ---- opcodes ----------------------------------------------------------------------------------------------------- */

static bool make_tuple_marked(machine *m)
{
    size_t n;

    if (!find_mark(m, &n))
        return false;
    drop_mark(m, n);
    return make_tuple(m, n);
}

static bool push_global(machine *m)
{
    rg_string module, name;

    return take_line(m, &module) && take_line(m, &name) && push_name(m, module, name);
}

static bool push_stack_global(machine *m)
{
    value module, name;

    return pop_kind(m, TEXT, &name) && pop_kind(m, TEXT, &module) && push_name(m, module.text, name.text);
}

static bool skip(machine *m, size_t n)
{
    const uint8_t *p = NULL;

    return take(m, n, &p);
}

static bool append_one(machine *m)
{
    value v;

    return pop(m, &v) && (m->stack.n || damaged(m, "the stack is empty"));
}

static bool run(machine *m, uint8_t op)
{
    switch (op) {
    case 0x80: return skip(m, 1);                          /* PROTO */
    case 0x95: return skip(m, 8);                          /* FRAME */
    case '}': return push(m, (value){ .kind = DICT, .n = m->n_dicts++ });
    case ']': return push(m, (value){ .kind = LIST });
    case ')': return push(m, (value){ .kind = TUPLE, .n = (int64_t)m->items.n });
    case '(': return push(m, (value){ .kind = MARK });
    case 'N': return push(m, (value){ .kind = NONE });
    case 0x88: return push(m, (value){ .kind = NUMBER, .n = 1 });
    case 0x89: return push(m, (value){ .kind = NUMBER });
    case 'K': return push_number(m, 1, false);             /* BININT1, BININT2, BININT, LONG1 */
    case 'M': return push_number(m, 2, false);
    case 'J': return push_number(m, 4, true);
    case 0x8a: return push_long(m);
    case 'G': return skip(m, 8) && push(m, (value){ .kind = NONE }); /* BINFLOAT */
    case 'X': return push_text(m, 4);                      /* BINUNICODE, and the short one */
    case 0x8c: return push_text(m, 1);
    case 'c': return push_global(m);
    case 0x93: return push_stack_global(m);
    case 't': return make_tuple_marked(m);
    case 0x85: return make_tuple(m, 1);
    case 0x86: return make_tuple(m, 2);
    case 0x87: return make_tuple(m, 3);
    case 'Q': return load_storage(m);                      /* BINPERSID */
    case 'R': return reduce(m);
    case 's': return set_items(m, 1);
    case 'u': return set_marked(m);
    case 'a':                                              /* APPEND; BUILD: what is left out is no tensor */
    case 'b': return append_one(m);
    case 'e': return drop_marked(m);                       /* APPENDS */
    case 'q': return put_memo_at(m, 1);                    /* BINPUT, LONG_BINPUT, MEMOIZE */
    case 'r': return put_memo_at(m, 4);
    case 0x94: return put_memo(m, m->memo.n);
    case 'h': return get_memo(m, 1);                       /* BINGET, LONG_BINGET */
    case 'j': return get_memo(m, 4);
    default: return rg_fail(m->err, RG_E_UNSUPPORTED, "opcode 0x%02x of the pickle is not one that tensors need", op);
    }
}

/* The tensors of the dict that the pickle came to. */
static rg_pickled *collect(machine *m, int *n)
{
    rg_pickled *out = NULL;
    value dict;

    if (!pop_kind(m, DICT, &dict))
        return NULL;
    out = rg_array(m->n_settings ? m->n_settings : 1, sizeof *out);
    if (!out)
        return rg_fail_memory(m->err, m->n_settings * sizeof *out), NULL;
    *n = 0;
    for (size_t i = 0; i < m->n_settings; i++)
        if (m->settings[i].dict == dict.n) {
            out[*n] = m->tensors[m->settings[i].tensor];
            out[(*n)++].name = m->settings[i].key;
        }
    return out;
}

rg_pickled *rg_pickle_read(const uint8_t *bytes, size_t n_bytes, int *n, rg_error *err)
{
    machine m = { .p = bytes, .n = n_bytes, .err = err };
    rg_pickled *out = NULL;
    bool ok = true;

    while (ok && m.at < m.n && m.p[m.at] != '.')
        ok = run(&m, m.p[m.at++]);
    if (ok && m.at == m.n)
        ok = damaged(&m, "it does not end");
    if (ok)
        out = collect(&m, n);
    rg_free(m.stack.v);
    rg_free(m.memo.v);
    rg_free(m.items.v);
    rg_free(m.tensors);
    rg_free(m.settings);
    return out;
}
