/* structs.c -- members and structs of the seam, as bytes; see wire.h.  What goes is said by fields.def. */
#include "support/far/wire.h"

#include <stdlib.h>
#include <string.h>

/* ---- members ----------------------------------------------------------------------------------------------------- */

static void put_value(far_codec *c, const void *field, size_t bytes)
{
    far_put(c->wire, field, bytes);
}

static void get_value(far_codec *c, void *field, size_t bytes)
{
    far_get(c->wire, field, bytes);
}

static void put_none(far_codec *c, const void *field, size_t bytes)
{
    (void)c, (void)field, (void)bytes;
}

static void get_none(far_codec *c, void *field, size_t bytes)
{
    (void)c;
    memset(field, 0, bytes);
}

static void *take(far_codec *c, size_t bytes)
{
    const size_t at = (c->memory_used + 15) / 16 * 16;

    RG_ASSERT(at + bytes <= c->memory_bytes);
    c->memory_used = at + bytes;
    return memset(c->memory + at, 0, bytes);
}

static void put_act(far_codec *c, const void *field, size_t bytes)
{
    const rg_act *const *a = field;

    for (size_t i = 0; i < bytes / sizeof *a; i++) {
        const int16_t number = a[i] ? (int16_t)(a[i] - c->f->acts) : -1;

        RG_ASSERT(number >= -1 && number < c->f->n_acts);
        FAR_PUT(c->wire, number);
    }
}

static void get_act(far_codec *c, void *field, size_t bytes)
{
    const rg_act **a = field;
    int16_t number;

    for (size_t i = 0; i < bytes / sizeof *a; i++) {
        FAR_GET(c->wire, number);
        a[i] = number < 0 ? NULL : &c->f->acts[number];
    }
}

/* What was placed, by its number; 0: nothing. */
static void put_placed(far_codec *c, const void *field, size_t bytes)
{
    const far_weight *p = *(const far_weight *const *)field;
    const uint32_t number = p ? p->number : 0;

    (void)bytes;
    RG_ASSERT(!p || p->base.owner == c->owner);
    FAR_PUT(c->wire, number);
}

static void get_placed(far_codec *c, void *field, size_t bytes)
{
    uint32_t number;

    (void)bytes;
    FAR_GET(c->wire, number);
    *(const rg_placed **)field = number ? c->placed_at(number) : NULL;
}

/* Constants by their numbers, from 1 on. */
static void put_patterns(far_codec *c, const void *field, size_t bytes)
{
    const rg_patterns *p = *(const rg_patterns *const *)field;
    const uint32_t number = p ? c->constant(p, sizeof *p, false) : 0;

    (void)bytes;
    FAR_PUT(c->wire, number);
}

static void get_constant(far_codec *c, void *field)
{
    uint32_t number;

    FAR_GET(c->wire, number);
    *(const void **)field = number ? c->constant_at(number) : NULL;
}

static void get_patterns(far_codec *c, void *field, size_t bytes)
{
    (void)bytes;
    get_constant(c, field);
}

static void put_rope(far_codec *c, const void *field, size_t bytes);
static void get_rope(far_codec *c, void *field, size_t bytes);
static void put_weight(far_codec *c, const void *field, size_t bytes);
static void get_weight(far_codec *c, void *field, size_t bytes);
static void put_deltas(far_codec *c, const void *field, size_t bytes);
static void get_deltas(far_codec *c, void *field, size_t bytes);

/* Pointers to one struct or none, which goes by value. */
#define POINTERS(DO)                                                                                                   \
    DO(weights, rg_weight) DO(kv, rg_kv) DO(buffer, rg_buffer) DO(sight, rg_sight) DO(attend, rg_attend_params)         \
    DO(routing, rg_routing) DO(recurrence, rg_linear_attention_params) DO(decay, rg_decay_params)
#define DECLARE(how, type)                                                                                             \
    static void put_##how(far_codec *c, const void *field, size_t bytes);                                              \
    static void get_##how(far_codec *c, void *field, size_t bytes);
POINTERS(DECLARE)

/* ---- structs ----------------------------------------------------------------------------------------------------- */

/* Every member has its line: else "missing initializer for field ..." names the one that has none. */
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wmissing-field-initializers"
#define STRUCT(type)      __attribute__((unused)) static const type every_member_of_##type = {
#define ONE(how, member)  0,
#define MANY(how, member) { 0 },
#define END(type) };
#include "support/far/fields.def"
#undef STRUCT
#undef ONE
#undef MANY
#undef END
#pragma GCC diagnostic pop

#define STRUCT(type)                                                                                                   \
    __attribute__((unused)) static void put_##type(far_codec *c, const type *s)                                        \
    {
#define ONE(how, member)  put_##how(c, &s->member, sizeof s->member);
#define MANY(how, member) put_##how(c, &s->member, sizeof s->member);
#define END(type) }
#include "support/far/fields.def"
#undef STRUCT
#undef ONE
#undef MANY
#undef END

#define STRUCT(type)                                                                                                   \
    __attribute__((unused)) static void get_##type(far_codec *c, type *s)                                              \
    {
#define ONE(how, member)  get_##how(c, (void *)&s->member, sizeof s->member);
#define MANY(how, member) get_##how(c, (void *)&s->member, sizeof s->member);
#define END(type) }
#include "support/far/fields.def"
#undef STRUCT
#undef ONE
#undef MANY
#undef END

#define DEFINE(how, type)                                                                                              \
    static void put_##how(far_codec *c, const void *field, size_t bytes)                                               \
    {                                                                                                                  \
        const type *const *p = field;                                                                                  \
                                                                                                                       \
        for (size_t i = 0; i < bytes / sizeof *p; i++) {                                                               \
            const bool there = p[i];                                                                                   \
                                                                                                                       \
            FAR_PUT(c->wire, there);                                                                                   \
            if (there)                                                                                                 \
                put_##type(c, p[i]);                                                                                   \
        }                                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    static void get_##how(far_codec *c, void *field, size_t bytes)                                                     \
    {                                                                                                                  \
        const type **p = field;                                                                                        \
        bool there;                                                                                                    \
                                                                                                                       \
        for (size_t i = 0; i < bytes / sizeof *p; i++) {                                                               \
            FAR_GET(c->wire, there);                                                                                   \
            type *made = there ? take(c, sizeof *made) : NULL;                                                         \
            if (there)                                                                                                 \
                get_##type(c, made);                                                                                   \
            p[i] = made;                                                                                               \
        }                                                                                                              \
    }
POINTERS(DEFINE)

static void put_weight(far_codec *c, const void *field, size_t bytes)
{
    put_weights(c, field, bytes);
}

/* A vector's values are those of its copy. */
static void get_weight(far_codec *c, void *field, size_t bytes)
{
    rg_weight **w = field;

    get_weights(c, field, bytes);
    for (size_t i = 0; i < bytes / sizeof *w; i++)
        if (w[i] && w[i]->placed_vec)
            w[i]->vec = c->values_at(w[i]->placed_vec);
}

/* Those of the adapters that the batch names. */
static void put_deltas(far_codec *c, const void *field, size_t bytes)
{
    const rg_delta *d = *(const rg_delta *const *)field;
    const int32_t n = d ? c->batch->n_spans : 0;

    (void)bytes;
    FAR_PUT(c->wire, n);
    for (int32_t i = 0; i < n; i++) {
        const int32_t adapter = c->batch->spans[i].adapter;

        FAR_PUT(c->wire, adapter);
        if (adapter >= 0)
            put_rg_delta(c, &d[adapter]);
    }
}

enum { MOST_ADAPTERS = 64 };

static void get_deltas(far_codec *c, void *field, size_t bytes)
{
    int32_t n, adapter;
    rg_delta *d = NULL;

    (void)bytes;
    FAR_GET(c->wire, n);
    for (int32_t i = 0; i < n; i++) {
        FAR_GET(c->wire, adapter);
        RG_ASSERT(adapter < MOST_ADAPTERS);
        d = d ? d : take(c, MOST_ADAPTERS * sizeof *d);
        if (adapter >= 0)
            get_rg_delta(c, &d[adapter]);
    }
    *(const rg_delta **)field = d;
}

/* ---- ropes ------------------------------------------------------------------------------------------------------- */

static int n_variants(const rg_rope *r)
{
    return r->n_variants > 1 ? r->n_variants : 1;
}

static void put_rope(far_codec *c, const void *field, size_t bytes)
{
    const rg_rope *r = *(const rg_rope *const *)field;
    far_wire w = { 0 };
    far_codec all = { .wire = &w };
    uint32_t number = 0;

    (void)bytes;
    for (int i = 0; r && i < n_variants(r); i++) {
        put_rg_rope(&all, &r[i]);
        far_put(&w, r[i].inv_freq, (size_t)r[i].n_pairs * sizeof(float));
    }
    if (r)
        number = c->constant(w.data, w.n, true);
    far_fini(&w);
    FAR_PUT(c->wire, number);
}

const rg_rope *far_rope_of(void *bytes, size_t n)
{
    far_wire w = { .data = bytes, .n = n };
    far_codec c = { .wire = &w };
    rg_rope first;

    get_rg_rope(&c, &first);
    rg_rope *r = calloc((size_t)n_variants(&first), sizeof *r);
    w.at = 0;
    for (int i = 0; i < n_variants(&first); i++) {
        get_rg_rope(&c, &r[i]);
        const size_t n_bytes = (size_t)r[i].n_pairs * sizeof(float);
        float *freq = malloc(n_bytes + 1);
        far_get(&w, freq, n_bytes);
        r[i].inv_freq = freq;
    }
    return r;
}

static void get_rope(far_codec *c, void *field, size_t bytes)
{
    (void)bytes;
    get_constant(c, field);
}

/* ---- whole structs ----------------------------------------------------------------------------------------------- */

void far_put_op(far_codec *c, const rg_op *op)
{
    put_rg_op(c, op);
}

void far_get_op(far_codec *c, rg_op *op)
{
    get_rg_op(c, op);
}

void far_put_act(far_codec *c, const rg_act *a)
{
    put_rg_act(c, a);
}

void far_get_act(far_codec *c, rg_act *a)
{
    get_rg_act(c, a);
}

void far_put_placing(far_wire *w, const rg_placing *p)
{
    put_rg_placing(&(far_codec){ .wire = w }, p);
}

void far_get_placing(far_wire *w, rg_placing *p)
{
    get_rg_placing(&(far_codec){ .wire = w }, p);
}

void far_put_placed(far_wire *w, const rg_placed *p)
{
    put_rg_placed(&(far_codec){ .wire = w }, p);
}

void far_get_placed(far_wire *w, rg_placed *p)
{
    const rg_backend *owner = p->owner;

    get_rg_placed(&(far_codec){ .wire = w }, p);
    p->owner = owner;
}

void far_put_sizes(far_wire *w, const rg_reader_sizes *s)
{
    put_rg_reader_sizes(&(far_codec){ .wire = w }, s);
}

void far_get_sizes(far_wire *w, rg_reader_sizes *s)
{
    get_rg_reader_sizes(&(far_codec){ .wire = w }, s);
}

void far_put_shape(far_wire *w, const rg_state_shape *s)
{
    far_codec c = { .wire = w };

    put_rg_state_shape(&c, s);
    for (int i = 0; i < s->n_kv; i++)
        put_rg_kv(&c, &s->kv[i]);
    for (int i = 0; i < s->n_buffers; i++)
        put_rg_buffer(&c, &s->buffer[i]);
}

void far_get_shape(far_wire *w, rg_state_shape *s)
{
    far_codec c = { .wire = w };

    get_rg_state_shape(&c, s);
    rg_kv *kv = calloc((size_t)s->n_kv + 1, sizeof *kv);
    rg_buffer *buffer = calloc((size_t)s->n_buffers + 1, sizeof *buffer);
    for (int i = 0; i < s->n_kv; i++)
        get_rg_kv(&c, &kv[i]);
    for (int i = 0; i < s->n_buffers; i++)
        get_rg_buffer(&c, &buffer[i]);
    s->kv = kv;
    s->buffer = buffer;
}

void far_put_step(far_wire *w, const rg_step *s)
{
    put_rg_step(&(far_codec){ .wire = w }, s);
}

void far_get_step(far_wire *w, rg_step *s)
{
    get_rg_step(&(far_codec){ .wire = w }, s);
}

/* ---- batches ----------------------------------------------------------------------------------------------------- */

void far_put_spans(far_wire *w, const rg_batch *b)
{
    far_codec c = { .wire = w };

    put_rg_batch(&c, b);
    for (int i = 0; i < b->n_spans; i++)
        put_rg_span(&c, &b->spans[i]);
    for (int i = 0; i < b->n_hidden; i++)
        put_rg_rows(&c, &b->hidden[i]);
    for (int i = 0; i < b->n_scores; i++)
        put_rg_rows(&c, &b->scores[i]);
}

void far_get_spans(far_wire *w, far_batch *b)
{
    far_codec c = { .wire = w };

    get_rg_batch(&c, &b->batch);
    b->spans = calloc((size_t)b->batch.n_spans + 1, sizeof *b->spans);
    b->runs = calloc((size_t)b->batch.n_hidden + (size_t)b->batch.n_scores + 1, sizeof *b->runs);
    for (int i = 0; i < b->batch.n_spans; i++)
        get_rg_span(&c, &b->spans[i]);
    for (int i = 0; i < b->batch.n_hidden + b->batch.n_scores; i++)
        get_rg_rows(&c, &b->runs[i]);
    b->batch.spans = b->spans;
    b->batch.hidden = b->runs;
    b->batch.scores = b->runs + b->batch.n_hidden;
}
