/* device.c -- the far back end's process: it does with `ref`, in its own memory, what messages ask for.
 *
 * Usage: far_device FD, the number of a socket.  One message after the other; the process ends with the socket. */
#include "support/far/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

static int fd;
static void **things; /* by number */
static uint32_t n_things;
static const void **constants; /* the first of them is number 1 */
static uint32_t n_constants;

/* ---- what is held ------------------------------------------------------------------------------------------------ */

/* A vector, whose values lie side by side; the others are ref's own. */
typedef struct vector {
    rg_placed base; /* first; no owner */
    float values[];
} vector;

const rg_backend *far_ref(void)
{
    return rg_backend_nth(0);
}

void far_set(uint32_t number, void *p)
{
    if (number >= n_things) {
        const uint32_t n = 2 * number + 64;

        things = realloc(things, n * sizeof *things);
        RG_ASSERT(things);
        memset(things + n_things, 0, (n - n_things) * sizeof *things);
        n_things = n;
    }
    things[number] = p;
}

void *far_at(uint32_t number)
{
    RG_ASSERT(number < n_things && things[number]);
    return things[number];
}

const void *far_constant_at(uint32_t number)
{
    RG_ASSERT(number && number <= n_constants);
    return constants[number - 1];
}

const rg_placed *far_placed_at(uint32_t number)
{
    return far_at(number);
}

const float *far_values_at(const rg_placed *placed)
{
    RG_ASSERT(!placed->owner);
    return ((const vector *)placed)->values;
}

static void *next_thing(far_wire *in)
{
    uint32_t number;

    FAR_GET(in, number);
    return far_at(number);
}

void far_put_failure(far_wire *out, const rg_error *err)
{
    const bool ok = false;

    FAR_PUT(out, ok);
    far_put(out, err, sizeof *err);
}

static void put_success(far_wire *out)
{
    const bool ok = true;

    FAR_PUT(out, ok);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

static rg_placed *vector_new(const rg_placing *what)
{
    vector *v = calloc(1, sizeof *v + (size_t)what->cols * sizeof(float));

    RG_ASSERT(v);
    v->base = (rg_placed){ .type = RG_F32, .n_mats = 1, .rows = 1, .cols = what->cols,
                           .bytes = (size_t)what->cols * sizeof(float) };
    return &v->base;
}

static void ask_weight_new(far_wire *in, far_wire *out)
{
    rg_error err = { 0 };
    rg_placing what;
    uint32_t number;

    FAR_GET(in, number);
    far_get_placing(in, &what);
    rg_placed *p = what.vector ? vector_new(&what) : far_ref()->weight_new(far_ref(), &what, &err);
    if (!p) {
        far_put_failure(out, &err);
        return;
    }
    far_set(number, p);
    put_success(out);
    far_put_placed(out, p);
}

static void ask_weight_free(far_wire *in, far_wire *out)
{
    uint32_t number;

    (void)out;
    FAR_GET(in, number);
    rg_placed *p = far_at(number);
    if (p->owner)
        rg_placed_free(p);
    else
        free(p);
    far_set(number, NULL);
}

static void ask_weight_put(far_wire *in, far_wire *out)
{
    rg_placed *p = next_thing(in);
    int64_t mat, row;

    (void)out;
    FAR_GET(in, mat);
    FAR_GET(in, row);
    if (!p->owner) {
        far_get(in, ((vector *)p)->values, p->bytes);
        return;
    }
    const size_t n = in->n - in->at;
    void *aligned = malloc(n + 1);
    far_get(in, aligned, n);
    p->owner->weight_put(p, mat, row, aligned);
    free(aligned);
}

static void ask_weight_order(far_wire *in, far_wire *out)
{
    rg_placed *p = next_thing(in);
    int64_t mat;
    int32_t *order = malloc((size_t)p->cols * sizeof *order);

    (void)out;
    FAR_GET(in, mat);
    far_get(in, order, (size_t)p->cols * sizeof *order);
    p->owner->weight_order(p, mat, order);
    free(order);
}

static void ask_weight_end(far_wire *in, far_wire *out)
{
    rg_placed *p = next_thing(in);

    p->owner->weight_end(p);
    far_put_placed(out, p);
}

static void ask_weight_get(far_wire *in, far_wire *out)
{
    const rg_placed *p = next_thing(in);
    float *row = malloc((size_t)p->cols * sizeof *row);
    int64_t mat, at;

    FAR_GET(in, mat);
    FAR_GET(in, at);
    p->owner->weight_get(p, mat, at, row);
    far_put(out, row, (size_t)p->cols * sizeof *row);
    free(row);
}

static void ask_image_version(far_wire *in, far_wire *out)
{
    const uint64_t version = far_ref()->image_version(far_ref());

    (void)in;
    FAR_PUT(out, version);
}

static void ask_image_bytes(far_wire *in, far_wire *out)
{
    rg_error err = { 0 };
    rg_placing what;
    size_t bytes;

    far_get_placing(in, &what);
    if (!far_ref()->image_bytes(far_ref(), &what, &bytes, &err)) {
        far_put_failure(out, &err);
        return;
    }
    put_success(out);
    FAR_PUT(out, bytes);
}

static bool take_image(void *arg, const void *image, size_t bytes, rg_error *err)
{
    (void)err;
    far_put(arg, image, bytes);
    return true;
}

static bool fill_image(void *arg, void *image, size_t bytes, rg_error *err)
{
    (void)err;
    far_get(arg, image, bytes);
    return true;
}

static void ask_image_save(far_wire *in, far_wire *out)
{
    const rg_placed *p = next_thing(in);
    int64_t mat;

    FAR_GET(in, mat);
    RG_ASSERT(p->owner->image_save(p, mat, take_image, out, NULL));
}

static void ask_image_load(far_wire *in, far_wire *out)
{
    rg_placed *p = next_thing(in);
    int64_t mat;

    (void)out;
    FAR_GET(in, mat);
    RG_ASSERT(p->owner->image_load(p, mat, fill_image, in, NULL));
}

static void ask_constant(far_wire *in, far_wire *out)
{
    bool is_rope;

    (void)out;
    FAR_GET(in, is_rope);
    const size_t n = in->n - in->at;
    void *bytes = malloc(n);
    far_get(in, bytes, n);
    constants = realloc(constants, (n_constants + 1) * sizeof *constants);
    constants[n_constants++] = is_rope ? (const void *)far_rope_of(bytes, n) : bytes;
    if (is_rope)
        free(bytes);
}

/* ---- state ------------------------------------------------------------------------------------------------------- */

static void ask_state_new(far_wire *in, far_wire *out)
{
    far_state *s = calloc(1, sizeof *s);
    rg_error err = { 0 };
    uint32_t number;

    FAR_GET(in, number);
    far_get_shape(in, &s->shape);
    s->groups = far_groups_of(&s->shape);
    s->memory = far_ref()->state_new(far_ref(), &s->shape, &err);
    if (!s->memory) {
        far_put_failure(out, &err);
        free((void *)(uintptr_t)s->shape.kv);
        free((void *)(uintptr_t)s->shape.buffer);
        free(s);
        return;
    }
    far_set(number, s);
    put_success(out);
}

static void ask_state_free(far_wire *in, far_wire *out)
{
    uint32_t number;

    (void)out;
    FAR_GET(in, number);
    far_state *s = far_at(number);
    far_ref()->state_free(s->memory);
    free((void *)(uintptr_t)s->shape.kv);
    free((void *)(uintptr_t)s->shape.buffer);
    free(s);
    far_set(number, NULL);
}

/* State, a group of it and one of its blocks. */
static far_state *get_block(far_wire *in, int *group, int32_t *block)
{
    far_state *s = next_thing(in);

    FAR_GET(in, *group);
    FAR_GET(in, *block);
    RG_ASSERT(*block >= 0 && *block < s->shape.n_blocks[*group]);
    return s;
}

static void ask_state_copy(far_wire *in, far_wire *out)
{
    int32_t from, to;
    int group;
    far_state *s = get_block(in, &group, &from);

    (void)out;
    FAR_GET(in, to);
    far_ref()->state_copy(s->memory, group, from, to);
}

static void ask_state_save(far_wire *in, far_wire *out)
{
    int32_t block;
    int group;
    far_state *s = get_block(in, &group, &block);

    far_ref()->state_save(s->memory, group, block, far_room(out, s->shape.block_bytes[group]));
}

static void ask_state_load(far_wire *in, far_wire *out)
{
    int32_t block;
    int group;
    far_state *s = get_block(in, &group, &block);

    (void)out;
    far_ref()->state_load(s->memory, group, block, far_get_in_place(in, s->shape.block_bytes[group]));
}

static void ask_state_fill(far_wire *in, far_wire *out)
{
    int32_t block;
    int group, byte;
    far_state *s = get_block(in, &group, &block);

    (void)out;
    FAR_GET(in, byte);
    far_ref()->state_fill(s->memory, group, block, byte);
}

static void ask_state_move(far_wire *in, far_wire *out)
{
    int32_t from_block, to_block;
    int group, from, to;
    far_state *s = get_block(in, &group, &from_block);

    (void)out;
    FAR_GET(in, from);
    FAR_GET(in, to_block);
    FAR_GET(in, to);
    far_ref()->state_move(s->memory, group, from_block, from, to_block, to);
}

/* Tables that have the block's entry alone. */
static void ask_state_close(far_wire *in, far_wire *out)
{
    far_state *s = next_thing(in);
    const int32_t *tables[RG_MAX_GROUPS] = { 0 };
    int32_t *entries[RG_MAX_GROUPS], block;

    (void)out;
    FAR_GET(in, block);
    for (int g = 0; g < RG_MAX_GROUPS; g++)
        tables[g] = entries[g] = calloc((size_t)block + 1, sizeof **entries);
    for (int i = 0; i < s->shape.n_kv; i++) {
        const rg_kv *kv = &s->shape.kv[i];

        if (rg_kv_has_open(kv)) {
            FAR_GET(in, entries[kv->open_group][block]);
            FAR_GET(in, entries[kv->group][block]);
        }
    }
    far_ref()->state_close(s->memory, tables, block);
    for (int g = 0; g < RG_MAX_GROUPS; g++)
        free(entries[g]);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static void ask_lane_open(far_wire *in, far_wire *out)
{
    far_ask_lane_open(in, out);
}

static void ask_lane_close(far_wire *in, far_wire *out)
{
    (void)out;
    far_ask_lane_close(in);
}

static void ask_step(far_wire *in, far_wire *out)
{
    (void)out;
    far_ask_step(in);
}

static void ask_step_more(far_wire *in, far_wire *out)
{
    (void)in, (void)out;
    RG_ASSERT(!"a part of a step without its beginning");
}

static void ask_step_wait(far_wire *in, far_wire *out)
{
    far_ask_step_wait(in, out);
}

void far_answer(far_verb verb, const far_wire *out)
{
    if (!far_send(fd, verb, out))
        _exit(0);
}

static bool is_answered(far_verb verb)
{
    switch (verb) {
    case FAR_weight_new:
    case FAR_weight_end:
    case FAR_weight_get:
    case FAR_image_version:
    case FAR_image_bytes:
    case FAR_image_save:
    case FAR_state_new:
    case FAR_state_save:
    case FAR_lane_open:
    case FAR_step_wait:
        return true;
    default:
        return false;
    }
}

void far_serve_until(far_verb until, far_wire *in)
{
    static void (*const asked[])(far_wire *in, far_wire *out) = {
#define VERB(name) ask_##name,
#include "support/far/verbs.def"
#undef VERB
    };
    far_wire out = { 0 };

    for (;;) {
        uint32_t verb;

        if (!far_receive(fd, &verb, in))
            _exit(0);
        RG_ASSERT(verb < FAR_VERBS);
        if (verb == until)
            break;
        far_reset(&out);
        asked[verb](in, &out);
        if (is_answered(verb))
            far_answer(verb, &out);
    }
    far_fini(&out);
}

int main(int argc, char **argv)
{
    far_wire in = { 0 };

    if (argc != 2 || sscanf(argv[1], "%d", &fd) != 1) {
        fprintf(stderr, "far_device: tests start it\n");
        return 2;
    }
    far_serve_until(FAR_VERBS, &in);
}
